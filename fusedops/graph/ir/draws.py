"""Random numbers of a call: generators that follow from a seed and the number of the call, so that calls of several
threads are apart, and each can be made again."""

from contextlib import contextmanager
from contextvars import ContextVar
from itertools import count

import numpy as np

_DRAWS: ContextVar = ContextVar("draws", default=None)


class _Draws:
    """The generators of one call."""

    def __init__(self, seed, call):
        self._seed, self._call, self._generators = seed, call, {}

    def of(self, node, seed):
        key = None if seed is None else id(node)
        if key not in self._generators:
            self._generators[key] = np.random.default_rng((self._seed if seed is None else seed, self._call))
        return self._generators[key]


class _Fixed:
    """Draws equal numbers for each node and call, so that two programs can be compared whatever their order."""

    def of(self, node, seed):
        return np.random.default_rng(0)


class RandomNumbers:
    """What a network draws from: `seed` None is another seed for each object."""

    def __init__(self, seed):
        self.seed(seed)

    def seed(self, seed):
        self._sequence = _any_seed() if seed is None else seed, count()

    def call(self, run, *args):
        """The result of one call of `run`, which draws from generators of its own."""
        if isinstance(_DRAWS.get(), _Fixed):
            return run(*args)
        seed, calls = self._sequence
        token = _DRAWS.set(_Draws(seed, next(calls)))
        try:
            return run(*args)
        finally:
            _DRAWS.reset(token)


@contextmanager
def fixed():
    """Lets all nodes draw the same numbers in what runs inside."""
    token = _DRAWS.set(_Fixed())
    try:
        yield
    finally:
        _DRAWS.reset(token)


def generator(node, seed=None):
    """Returns the generator of a node: the network's, or one of its own if it has a seed (an int of 0 or more)."""
    return (_DRAWS.get() or _Draws(_any_seed(), 0)).of(node, seed)


def _any_seed():
    return np.random.SeedSequence().entropy


def checked_seed(seed):
    """A seed as an int, or None; TypeError or ValueError where it is none."""
    if seed is None:
        return None
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)):
        raise TypeError(f"seed is an int or None, not {type(seed).__name__}")
    if seed < 0:
        raise ValueError(f"seed is {seed}, but must be 0 or more")
    return int(seed)
