"""Arrays against pages that may not be touched: reading or writing there ends the process."""

import ctypes
import mmap

import numpy as np

PAGE, NOTHING = mmap.PAGESIZE, 0


def guarded(a, at_end):
    """A copy of a that ends where a forbidden page begins, or begins where one ends."""
    size = max(-(-a.nbytes // PAGE), 1) * PAGE
    memory = mmap.mmap(-1, size + 2 * PAGE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for page in (start, start + PAGE + size):
        assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(page), ctypes.c_size_t(PAGE), NOTHING) == 0
    copy = np.frombuffer(memory, a.dtype, a.size, PAGE + (size - a.nbytes if at_end else 0)).reshape(a.shape)
    copy[...] = a
    return copy
