# cython: boundscheck=False, wraparound=False, cdivision=True, freethreading_compatible=True
"""The binding: checks arguments, finds how arrays lie in memory, allocates results and makes one C call without the
GIL."""
import contextvars

import numpy as np

cimport numpy as cnp
from cpython.number cimport PyNumber_Index
from cpython.pycapsule cimport PyCapsule_New
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uintptr_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset, strcpy
from numpy cimport ndarray

cnp.import_array()

cdef object FLOAT32 = np.dtype(np.float32)

include "binding/processor.pxi"
include "binding/results.pxi"
include "binding/operands.pxi"
include "binding/linear.pxi"
include "binding/convolution.pxi"
include "binding/cells.pxi"
include "binding/sequences.pxi"
include "binding/weights.pxi"
include "binding/program.pxi"
include "binding/layer_steps.pxi"
include "binding/value_steps.pxi"
include "binding/image_steps.pxi"
include "binding/int8_steps.pxi"
include "binding/step_kinds.pxi"
include "binding/template.pxi"
include "binding/functions.pxi"
include "binding/convolution1d.pxi"
include "binding/batches.pxi"
include "binding/int8_layers.pxi"
