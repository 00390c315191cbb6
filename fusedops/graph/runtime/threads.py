"""A number of threads that is a network's own. Each thread of a program has a limit, which is lowered while a call
lasts: calls of two networks in two threads do not know of one another."""

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


def limited(n, call):
    """Returns the function `call`, in which operations use at most `n` threads; itself where `n` is None."""
    if n is None:
        return call

    def run(*args, **options):
        before = _core.limit_threads(n)
        try:
            return call(*args, **options)
        finally:
            _core.limit_threads(before)

    return run
