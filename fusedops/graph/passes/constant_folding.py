"""Constant folding: a node whose inputs are all constant is computed now. One that has no result stays, for the plan to
say why. Quantized constants stay until layers of int8 have taken their weights from them. Of a large result that is
one part over and over, such as that of Expand, the part is kept."""

import numpy as np

_LARGE = 1 << 16  # bytes


def run(context):
    _fold(context, [node for node in context.nodes() if node.op != "DequantizeLinear"])


def dequantized(context):
    """Computes the quantized constants that are left, and what depends on them."""
    _fold(context, context.nodes())


def _fold(context, nodes):
    graph = context.graph
    for node in nodes:
        reads = node.reads()
        if not reads or any(v not in graph.constants for v in reads):
            continue
        results = {v: context.known[v].data for v in node.outputs if v in context.known}
        if results and all(a is not None for a in results.values()):
            graph.constants |= {v: _spread(a) for v, a in results.items()}
            context.remove(node)


def _spread(a):
    """A large array that is the same all along some axes as a view of its first part."""
    part = a
    for axis, n in enumerate(a.shape if a.nbytes >= _LARGE else ()):
        first, second = (np.take(part, [i], axis) for i in (0, min(1, n - 1)))
        if n > 1 and _same(first, second) and _same(first, part):
            part = first
    return a if part is a else np.broadcast_to(part, a.shape)


def _same(a, b):
    """Whether all elements of b are those of a, which is broadcast, with the signs of zeros."""
    return bool((a == b).all()) and (a.dtype.kind != "f" or bool((np.signbit(a) == np.signbit(b)).all()))
