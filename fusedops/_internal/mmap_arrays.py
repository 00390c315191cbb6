"""Files of networks, and arrays in mapped ones: constants that need memory only while they are read, and may lie at odd
addresses."""

import mmap
import os
import stat

import numpy as np

_SMALL = 1 << 16
_LARGE = 31 << 20  # below the largest block that glibc learns from


def whole(source):
    """The bytes of a file that is open, from where it stands; anything else as it is."""
    if not hasattr(source, "read"):
        return source
    data = source.read()
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise TypeError(f"the file gives {type(data).__name__}, not bytes: open it with mode 'rb'")
    return data


def opened(path):
    """Opens a file or a pipe, which ends where its writer closes it. A device may have no end."""
    mode = os.stat(path).st_mode
    if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
        raise OSError(f"{path!r} is a device: networks are read from files and pipes")
    return open(path, "rb")


def mapped_file(f):
    """Maps a file. Also works around glibc: until a large array has been freed, it returns all freed memory to the
    system, and each call's results are new pages. A process that reads its weights frees a large array; one that maps
    them frees none, so this frees one here."""
    np.empty(_LARGE, np.uint8)
    return mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)


def is_odd(a):
    """Whether elements stand one after the other at odd addresses."""
    return isinstance(a, np.ndarray) and a.flags.c_contiguous and not a.flags.aligned


def aligned(a):
    """An array whose elements kernels can read: itself, or a copy in the order that it has in memory."""
    if a.flags.aligned:
        return a
    copy = a.copy("K")
    let_go(a)
    return copy


def let_go(a):
    """Gives back the memory that a mapped file took for an array: what is read again comes from the file."""
    if a.flags.writeable:  # it is none of a file
        return
    base = a
    while isinstance(base, np.ndarray):
        base = base.base
    base = base.obj if isinstance(base, memoryview) else base
    if isinstance(base, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED") and a.nbytes:
        first = a.ctypes.data - np.frombuffer(base, np.uint8).ctypes.data
        page = first // mmap.PAGESIZE * mmap.PAGESIZE
        base.madvise(mmap.MADV_DONTNEED, page, first + a.nbytes - page)


def for_a_while(a, dtype):
    """A copy of an array in another type that is freed soon. A large one is mapped: its memory goes back to the system,
    where glibc keeps what lies between other blocks."""
    nbytes = a.size * np.dtype(dtype).itemsize
    if nbytes < _SMALL:
        return a.astype(dtype)
    copy: np.ndarray = np.ndarray(a.shape, dtype, mmap.mmap(-1, nbytes))
    copy[...] = a
    return copy
