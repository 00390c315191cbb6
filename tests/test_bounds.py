"""Nothing is read or written outside of an array: each argument lies against pages that may not be touched.

A kernel that does so ends the test run with a segmentation fault.
"""
import ctypes
import mmap
import sys

import numpy as np
import pytest

import fusedops as fo
import oracle
from operations import OPERATIONS, Operation, dims, given
from test_conv2d import CONVOLUTIONS
from test_depthwise import DEPTHWISE

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="mprotect of an anonymous mapping")
PAGE, NOTHING = mmap.PAGESIZE, 0


def guarded(a, at_end):
    """A copy of a that ends where a forbidden page begins, or begins where one ends."""
    size = max(-(-a.nbytes // PAGE), 1) * PAGE
    memory = mmap.mmap(-1, size + 2 * PAGE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for page in (start, start + PAGE + size):
        assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(page), ctypes.c_size_t(PAGE), NOTHING) == 0
    copy = np.frombuffer(memory, np.float32, a.size, PAGE + (size - a.nbytes if at_end else 0)).reshape(a.shape)
    copy[...] = a
    return copy


def check(operation, draw):
    arrays = operation.draw(draw)
    expected = operation(arrays)
    for at_end in (False, True):
        out = [guarded(y, at_end) for y in operation.out()]
        operation({name: guarded(a, at_end) for name, a in arrays.items()}, out=given(out))
        for y, y_expected in zip(out, expected):
            np.testing.assert_array_equal(y, y_expected)


@pytest.mark.parametrize("name", OPERATIONS)
def test_operations(isa, draw, name):
    check(OPERATIONS[name], draw)


@pytest.mark.parametrize("m", [1, 2, 5, 6, 7, 11, 12, 13])
def test_products(isa, draw, m):
    for n in (1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 63):
        for k in (1, 3, 16, 33):
            check(Operation(fo.gemm, dict(a=(m, k), b=(k, n), bias=(n,), residual=(m, n)), {}, [(m, n)]), draw)
            check(Operation(fo.linear, dict(x=(m, k), w=(n, k), bias=(n,), residual=(m, n)), {}, [(m, n)]), draw)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("ic, size, oc, kernel, options", CONVOLUTIONS + [
    (c, size, c * multiplier, kernel, options | dict(groups=c)) for c, multiplier, size, kernel, options in DEPTHWISE
])
def test_images(isa, draw, layout, ic, size, oc, kernel, options):
    x, w = dims(layout, 2, ic, *size), (oc, ic // options.get("groups", 1), *kernel)
    y = oracle.conv2d(np.zeros(x), np.zeros(w), **options, layout=layout).value.shape
    arrays = dict(x=x, w=w, bias=(oc,), residual=y)
    check(Operation(fo.conv2d, arrays, options | dict(layout=layout), [y]), draw)
