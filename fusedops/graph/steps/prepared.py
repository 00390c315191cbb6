"""Layers that are prepared once, for the plans of all shapes and for all graphs that have the same constants."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple
from weakref import WeakValueDictionary


class OfConstants:
    """The key of a layer that constants and options decide on: arrays of the same memory are equal. It keeps them."""

    __slots__ = "_arrays", "_what"

    def __init__(self, what, *arrays):
        self._arrays = arrays
        self._what = what, *(a if a is None else (_address(a), a.shape, a.strides, a.dtype.str) for a in arrays)

    def __hash__(self):
        return hash(self._what)

    def __eq__(self, other):
        return isinstance(other, OfConstants) and self._what == other._what


class UnpackedLayer(NamedTuple):
    """A layer whose weights are not packed yet. The planner chooses the type of its products first, by the times that
    `shape` predicts; so each is packed once, and in memory once. `make` takes the precision."""

    key: Any
    make: Callable[..., Any]
    shape: Any = None
    precision: str = "float32"

    def packed(self, layers):
        """Returns the layer, of which Prepared `layers` have one for each precision."""
        key = self.key if self.precision == "float32" else (self.key, self.precision)
        return layers.layer(key, partial(self.make, precision=self.precision))


def _address(a):
    return a.__array_interface__["data"][0]


class Prepared(dict):
    """Layers by the names of their nodes, of blocks or by their constants; `shared` has those of constants, which other
    graphs take, too, while anybody uses them. Sessions that share it plan at the same time, so an entry may come or go
    between two lines: never iterate over it."""

    def __init__(self, shared=None):
        super().__init__()
        self.shared = WeakValueDictionary() if shared is None else shared

    def layer(self, key, make):
        """The layer with this key, which is made where there is none."""
        made = self.get(key)
        if made is None:
            of_constants = isinstance(key[0] if isinstance(key, tuple) else key, OfConstants)
            made = self.shared.get(key) if of_constants else None
            made = self.setdefault(key, make() if made is None else made)  # of two threads that make one the first
            if of_constants:
                self.shared[key] = made
        return made
