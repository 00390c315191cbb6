"""Networks of float16 and bfloat16: these are ways to store. What is computed is float32 and goes through the same
kernels; inputs are widened, and outputs rounded once. What is only moved, as a decoder's caches, stays in 16
bits (float16_moves.py). NumPy has no bfloat16: such inputs and outputs of a file are float32.

A cast to one of them whose value is cast back, compared or counted, and not computed with in it, is meant to round: it
becomes ``Narrow``, which gives the rounded values as float32."""

import numpy as np

from ..._internal.mmap_arrays import let_go
from .dtypes import BY_ONNX, to_onnx
from .float16_moves import FLOAT16, MOVES, keep_moved, tables
from .float16_weights import Widened
from .subgraph import graphs_of

_KEYS = "to", "dtype", "output_dtype", "softmax_precision"  # attributes that name a type of elements
# What depends on values in jumps, and what has the same values before and after.
_JUMPS = {"Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "ArgMax", "ArgMin", "TopK", "IsInf", "IsNaN"}
_JUMPS |= {"Floor", "Ceil", "Round", "Sign", "Mod", "NonZero", "Unique", "BitCast", "QuantizeLinear"}
_KEEPS = {"Abs", "Neg", "Max", "Min", "Clip", "ReduceMax", "ReduceMin", "MaxPool", "GlobalMaxPool", "Pad", "Dropout"}
_KEEPS |= {"DepthToSpace", "SpaceToDepth", *MOVES}
_ROUNDED = {float(np.float16(c)): c for c in (2**0.5, 0.5**0.5, (2 / np.pi) ** 0.5, 0.044715, 1.702, 1 / 6, 1 / 3)}


def upcast(graph, widened=None):
    """Turns float16 into float32, in place; returns the graph. The network's inputs and outputs keep their types, and
    so does what is only moved. `widened` gets the constants."""
    _upcast_inside(graph, Widened() if widened is None else widened, tables(graph))
    return keep_moved(graph)


def _upcast_inside(graph, widened, kept=()):
    """Widens a graph, but for constants that are kept, and those inside its nodes, with their inputs and outputs."""
    _widen_constants(graph, _keep_roundings(graph), widened, kept)
    for node in graph.nodes:
        for key, a in node.attrs.items():
            if isinstance(a, np.ndarray) and a.dtype == np.float16:
                node.attrs[key] = a.astype(np.float32)
            elif key in _KEYS and a in BY_ONNX and BY_ONNX[a].stored:
                node.attrs[key] = to_onnx(np.float32)
        for inner in graphs_of(node).values():
            _upcast_inside(inner, widened)
            for values in (inner.inputs, inner.outputs):
                values[:] = [_float32(v) for v in values]


def _widen_constants(graph, shown, widened, kept):
    for v, a in graph.constants.items():
        if a.dtype == np.float16 and v not in kept:
            graph.constants[v] = widened.of(a) if v in shown or a.size != 1 else _as_it_was_written(a)
            let_go(a)


def _keep_roundings(graph):
    """Makes casts to 16 bits that are meant to round ``Narrow``; returns the values whose bits show."""
    stored = any(a.dtype == np.float16 for a in graph.constants.values())
    if not stored and not any(node.op in ("Cast", "CastLike") for node in graph.nodes):
        return set()
    kinds, targets = _kinds_of_values(graph)
    shown = _shown_values(graph, kinds, targets)
    for node, kind in targets.items():
        if kind and kinds.get(node.inputs[0]) != kind and node.output in shown:
            node.op, node.inputs, node.attrs = "Narrow", node.inputs[:1], {"type": kind}
    return shown


def _kinds_of_values(graph):
    """({value: its type of 16 bits, or None}, {cast: its target of 16 bits, or None})"""
    kinds = {v: FLOAT16 for v, a in graph.constants.items() if a.dtype == np.float16}
    kinds |= {v.name: FLOAT16 for v in graph.inputs if v.dtype == np.float16}
    targets = {}
    for node in graph.nodes:
        if node.op in ("Cast", "CastLike"):
            kind = node.attrs["to"] if node.op == "Cast" else kinds.get(node.inputs[1])
            kind = targets[node] = kind if kind in BY_ONNX and BY_ONNX[kind].stored else None
        else:
            kind = None if node.op in _JUMPS else next((kinds[v] for v in node.inputs if kinds.get(v)), None)
        kinds |= dict.fromkeys(node.outputs, kind)
    return kinds, targets


def _shown_values(graph, kinds, targets):
    """Values whose bits show: what is cast back, compared, counted or made whole, or only moved on the way there."""
    shown = set()
    for node in reversed(graph.nodes):
        clips = node.op == "Activation" and (node.activation == "relu" or node.activation[0] == "clip")
        keeps = node in targets or node.op in _KEEPS or clips
        if node in targets and targets[node] != kinds.get(node.inputs[0]):
            shown.add(node.inputs[0])
        elif node.op in _JUMPS or graphs_of(node) or (keeps and shown.intersection(node.outputs)):
            shown.update(node.inputs)
    return shown


def _as_it_was_written(a):
    """A single number as float32: one that activations consist of as it was before it was rounded."""
    return np.full(a.shape, _ROUNDED.get(a.item(), a.item()), np.float32)


def _float32(value):
    return type(value)(value.name, value.shape, np.dtype(np.float32)) if value.dtype == np.float16 else value
