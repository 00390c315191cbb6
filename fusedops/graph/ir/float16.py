"""Networks of halves: float16 and bfloat16 are ways to store. Inside, every value is float32 and goes through the same
kernels; inputs are widened and outputs rounded once, at the ends. NumPy has no bfloat16: such inputs and outputs are
float32."""

import numpy as np

from .dtypes import BY_ONNX, to_onnx
from .graph import Node, unique
from .subgraph import graphs_of

_KEYS = "to", "dtype", "output_dtype", "softmax_precision"  # attributes that name a type of elements
_ROUNDED = {float(np.float16(c)): c for c in (2**0.5, 0.5**0.5, (2 / np.pi) ** 0.5, 0.044715, 1.702, 1 / 6, 1 / 3)}


def exact_float16(a):
    """float32 values as float16 where none is lost, else None."""
    with np.errstate(over="ignore", invalid="ignore"):
        for part in a.reshape(-1)[:256], a:  # most arrays tell at once
            half = part.astype(np.float16)
            if not np.array_equal(half.astype(np.float32).view(np.uint32), np.ascontiguousarray(part).view(np.uint32)):
                return None
    return half


def as_float16_weights(*weights):
    """Weights of a layer in float16 where none of them loses anything: a product of few rows is bound by reading
    them."""
    halves = [exact_float16(w) for w in weights]
    return weights if any(h is None for h in halves) else halves


def upcast(graph):
    """Turns halves into float32, in place; returns the graph. The network's inputs and outputs keep their types."""
    _upcast_inside(graph)
    if not any(v.dtype == np.float16 for v in (*graph.inputs, *graph.outputs)):
        return graph
    values = [*graph.constants, *(v.name for v in graph.inputs), *(v for n in graph.nodes for v in n.outputs)]
    values, names = dict.fromkeys(values, 0), dict.fromkeys((n.name for n in graph.nodes), 0)
    halves = [v.name for v in graph.inputs if v.dtype == np.float16]
    wide = {v: unique(f"{v}.float32", values) for v in halves if any(v in n.reads() for n in graph.nodes)}
    for node in graph.nodes:
        node.inputs = [wide.get(v, v) for v in node.inputs]
        node.residual = wide.get(node.residual, node.residual)
    graph.nodes[:0] = [
        Node("Cast", unique(f"{v}.cast", names), [v], [w], {"to": to_onnx(np.float32)}) for v, w in wide.items()
    ]
    for i, (v, value) in enumerate(zip(graph.results, graph.outputs, strict=True)):
        if value.dtype == np.float16 and v not in halves:
            graph.results[i] = unique(f"{v}.float16", values)
            graph.nodes.append(
                Node("Cast", unique(f"{value.name}.cast", names), [v], [graph.results[i]], {"to": to_onnx(np.float16)})
            )
    return graph


def _upcast_inside(graph):
    """The same of a graph and those inside its nodes, whose inputs and outputs are widened too."""
    graph.constants |= {v: _upcast_constant(a) for v, a in graph.constants.items() if a.dtype == np.float16}
    for node in graph.nodes:
        for key, a in node.attrs.items():
            if isinstance(a, np.ndarray) and a.dtype == np.float16:
                node.attrs[key] = a.astype(np.float32)
            elif key in _KEYS and a in BY_ONNX and BY_ONNX[a].stored:
                node.attrs[key] = to_onnx(np.float32)
        for inner in graphs_of(node).values():
            _upcast_inside(inner)
            for values in (inner.inputs, inner.outputs):
                values[:] = [_float32(v) for v in values]


def _upcast_constant(a):
    """A constant as float32: a single number that activations consist of as it was before it was rounded."""
    wide = a.astype(np.float32)
    return np.full(a.shape, _ROUNDED.get(wide.item(), wide.item()), np.float32) if a.size == 1 else wide


def _float32(value):
    return type(value)(value.name, value.shape, np.dtype(np.float32)) if value.dtype == np.float16 else value
