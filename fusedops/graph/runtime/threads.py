"""A number of threads that is a network's own. Each thread of a program has a limit in OpenMP, which kernels keep to:
it is lowered while a call lasts, so that calls of two networks in two threads do not know of one another."""

import ctypes
from functools import cache
from operator import index

from ... import _core


def checked_threads(n):
    """A number of threads as an int, or None; TypeError or ValueError where it is none."""
    if n is None:
        return None
    try:
        n = index(n)
    except TypeError:
        raise TypeError(f"num_threads is an int from 1 to 1024 or None, not {n!r}") from None
    if not 1 <= n <= 1024:
        raise ValueError(f"num_threads is {n}, but must be between 1 and 1024")
    return n


@cache
def _limits():
    """OpenMP's functions that tell and set the limit, or None where kernels are built without it."""
    library = ctypes.PyDLL(_core.__file__)
    try:
        return library.omp_get_max_threads, library.omp_set_num_threads
    except AttributeError:
        return None


def limited(n, call):
    """The function `call`, in which operations use at most `n` threads; as it is where `n` is None."""
    limits = None if n is None else _limits()
    if limits is None:
        return call
    limit, set_limit = limits

    def run(*args, **options):
        if _core.get_num_threads() <= n:
            return call(*args, **options)
        before = limit()
        set_limit(n)
        try:
            return call(*args, **options)
        finally:
            set_limit(before)

    return run
