"""Networks whose weights are stored in 16 bits, as ``Model.astype`` makes them: float16 or bfloat16. What is computed
stays float32, or products of bfloat16. Caches of decoders are in 16 bits, too, so that attention reads half the
memory."""

from functools import partial

import numpy as np

from ..._internal import bfloat16
from ..ir.dtypes import BFLOAT16, NARROW
from ..ir.float16_moves import keep_moved, tables
from ..ir.float16_weights import exact_float16, narrow, widen
from ..ir.subgraph import graphs_of

TYPES = tuple(NARROW.values())
SMALL = 1024  # elements: less is not worth the rounding
TABLE = 1 << 16  # elements: what is gathered from a smaller table is not worth a Cast
# Operators whose inputs are scales of weights in 4 and 8 bits, which are exact.
_EXACT = {"LinearBits", "QuantizeLinear", "DequantizeLinear"}


def kind_of(dtype):
    """Returns the name of a type of 16 bits, or raises the error that says what it may be."""
    name = dtype if isinstance(dtype, str) else np.dtype(dtype).name
    if name not in TYPES:
        raise ValueError(
            f"astype takes 'float16' or 'bfloat16', not {dtype!r}; for weights of 4 and 8 bits, and int8, write "
            "model.quantize"
        )
    return name


def stored_as(graph, kind, caches):
    """Copies an optimized graph with its weights and caches ({input: output}, by their numbers) in a type of 16 bits,
    and no defaults of inputs."""
    graph = graph.copy()
    graph.defaults = []
    widened = widen(graph)
    rounded = bfloat16.rounded if kind == "bfloat16" else partial(_rounded_to_float16, widened)
    _round_weights(graph, rounded, {})
    dtype = next(t for t, name in NARROW.items() if name == kind)
    for pair in caches.items():
        for values, i in zip((graph.inputs, graph.outputs), pair, strict=True):
            if values[i].dtype == np.float32:
                values[i] = type(values[i])(values[i].name, values[i].shape, dtype)
    exact = partial(bfloat16.cast, dtype=dtype) if dtype == BFLOAT16 else exact_float16
    found = {v: exact(a) for v, a in tables(graph, np.float32).items() if a.ndim > 1 and a.size >= TABLE}
    graph.constants |= {v: a for v, a in found.items() if a is not None}
    return narrow(keep_moved(graph), widened)


def _round_weights(graph, rounded, done):
    """Rounds float32 constants of two and more axes, in place, and those of graphs inside its nodes. `done` has each
    array's once: {id: (it, rounded)}."""
    exact = {v for node in graph.nodes if node.op in _EXACT for v in node.reads()}
    for v, a in graph.constants.items():
        if a.dtype == np.float32 and a.ndim > 1 and a.size >= SMALL and v not in exact:
            if id(a) not in done:
                done[id(a)] = a, rounded(a)
            graph.constants[v] = done[id(a)][1]
    for node in graph.nodes:
        for inner in graphs_of(node).values():
            _round_weights(inner, rounded, done)


def _rounded_to_float16(widened, a):
    """Rounds float32 values to those that float16 has; as they are where one of them is too large for it."""
    with np.errstate(over="ignore"):
        small = a.astype(np.float16)
    return widened.of(small) if np.array_equal(np.isfinite(small), np.isfinite(a)) else a
