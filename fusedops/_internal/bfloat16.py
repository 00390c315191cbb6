"""bfloat16, which NumPy lacks: the upper half of a float32."""

import numpy as np

from .. import _core


def rounded(x):
    """float32 values rounded to the nearest bfloat16, ties to even, as float32; NaN stays one."""
    bits = np.ascontiguousarray(x, np.float32).reshape(-1).view(np.uint32)
    nearest = bits + (0x7FFF + (bits >> 16 & 1))
    bits = np.where(bits & 0x7FFFFFFF > 0x7F800000, bits | 0x400000, nearest)
    return (bits & np.uint32(0xFFFF0000)).astype(np.uint32).view(np.float32).reshape(np.shape(x))


def cast(x, dtype):
    """x in another type; of the two, one or both are BFLOAT16."""
    if x.dtype == _core.BFLOAT16:
        x = (np.ascontiguousarray(x).view(np.uint16).astype(np.uint32) << 16).view(np.float32).reshape(x.shape)
    if dtype != _core.BFLOAT16:
        return x.astype(dtype)
    return (rounded(x).view(np.uint32) >> 16).astype(np.uint16).view(dtype)
