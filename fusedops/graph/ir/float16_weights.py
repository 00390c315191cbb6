"""Weights that are float16 in memory: those of products and convolutions whose values float16 has.

Passes compute with float32. What a file has in float16 is widened for them, and afterwards a constant that they left as
it was, perhaps turned over, is the file's own array again: a mapped file has it without memory of the process. Products
pack it in 16 bits, convolutions in float32."""

import numpy as np

from ..._internal.mmap_arrays import for_a_while
from .subgraph import graphs_of

SMALL = 1024  # elements: less is not worth a look
_PLACES = {"Linear": 1, "Conv": 1}  # the input of an operator that is its weights


def exact_float16(a):
    """Values as float16 where none is lost, else None."""
    if a.dtype == np.float16:
        return a
    with np.errstate(over="ignore", invalid="ignore"):
        for part in a.ravel("K")[:256], a:  # most arrays tell at once
            narrow = part.astype(np.float16)
            if not np.array_equal(
                narrow.astype(np.float32).view(np.uint32), np.ascontiguousarray(part).view(np.uint32)
            ):
                return None
    return narrow


def as_float16_weights(*weights):
    """Weights of a layer in float16 where none of them loses anything: a product of few rows is bound by reading
    them."""
    exact = [exact_float16(w) for w in weights]
    return weights if any(w is None for w in exact) else exact


class Widened:
    """Arrays of float16 as float32, each once however many graphs have it."""

    def __init__(self):
        self._wide: dict[int, tuple] = {}  # {id of either array: (float32, float16)}
        self._was: dict[int, tuple] = {}

    def of(self, a):
        """The values of a float16 array as float32."""
        if id(a) not in self._wide:
            self._add(for_a_while(a, np.float32), a)
        return self._wide[id(a)][0]

    def _add(self, wide, narrow):
        self._wide[id(narrow)] = self._was[id(wide)] = wide, narrow

    def back(self, a):
        """What a float32 array was, or the same view of what the whole array was. Of one that the process has alone a
        copy in float16, where no value is lost; else the array itself."""
        whole = a
        while id(whole) not in self._was and isinstance(whole.base, np.ndarray):
            whole = whole.base
        if id(whole) not in self._was:
            copy = exact_float16(a) if whole.base is None else None
            if copy is None:
                return a
            self._add(a, copy)
            return copy
        wide, narrow = self._was[id(whole)]
        if a is wide:
            return narrow
        if not (wide.flags.c_contiguous and narrow.flags.c_contiguous):
            return a
        first = (a.__array_interface__["data"][0] - wide.__array_interface__["data"][0]) // 2
        return np.ndarray(a.shape, narrow.dtype, narrow.reshape(-1), first, [s // 2 for s in a.strides])


def widen(graph, widened=None):
    """Lets weights be float32 for passes, in place; returns what `narrow` takes."""
    widened = Widened() if widened is None else widened
    for node in graph.nodes:
        v = node.input(_PLACES.get(node.op, len(node.inputs)))
        if v in graph.constants and graph.constants[v].dtype == np.float16:
            graph.constants[v] = widened.of(graph.constants[v])
        for inner in graphs_of(node).values():
            widen(inner, widened)
    return widened


def narrow(graph, widened):
    """Lets weights be float16 that were or may be, in place; returns the graph."""
    weights, others = set(), set(graph.results)
    for node in graph.nodes:
        place = _PLACES.get(node.op)
        weights.update(v for i, v in enumerate(node.inputs) if i == place)
        others.update(v for i, v in enumerate(node.inputs) if i != place)
        others.add(node.residual)
        for inner in graphs_of(node).values():
            narrow(inner, widened)
    for v in weights - others:
        a = graph.constants.get(v)
        if a is not None and a.dtype == np.float32 and a.size >= SMALL:
            graph.constants[v] = widened.back(a)
    return graph
