"""Operators that draw random numbers: of a generator of the network or, with a seed, of a sequence of their own, which
goes on from call to call."""

import numpy as np

from ..ir.draws import generator
from ..ir.dtypes import from_onnx
from ..ir.graph_builder import GraphBuilder
from ..ir.subgraph import graphs_of
from .schema import Inference, NumPyOnly, Operator, Rewrite


def normal(generator, shape, dtype, mean=0.0, scale=1.0):
    """Numbers of a normal distribution."""
    own = dtype if dtype == np.float32 else np.float64
    return (generator.standard_normal(shape, own) * _number(scale, own) + _number(mean, own)).astype(dtype)


def uniform(generator, shape, dtype, low=0.0, high=1.0):
    """Numbers of low to high, which rounding does not reach."""
    own = dtype if dtype == np.float32 else np.float64
    low, high = _number(low, own), _number(high, own)
    with np.errstate(over="ignore"):
        y = (generator.random(shape, own) * (high - low) + low).astype(dtype)
        last = np.nextafter(np.asarray(high, dtype), np.asarray(low, dtype))
    return np.minimum(y, last) if low < high else y


def _number(number, dtype):
    return np.asarray(number, dtype)[()]


def multinomial(generator, logits, samples, dtype):
    """Samples of classes, whose probabilities are those of a softmax over the last axis."""
    x = logits.astype(np.float64)
    top = x.max(-1, keepdims=True)
    if not np.all(np.isfinite(top)):
        raise ValueError("a row has no class with a probability, or infinite or NaN logarithms")
    steps = np.cumsum(np.exp(x - top), -1)
    drawn = generator.random((len(x), samples)) * steps[:, -1:]
    y = np.empty(drawn.shape, dtype)
    for row, s, d in zip(y, steps, drawn, strict=True):
        row[:] = np.minimum(np.searchsorted(s, d, "right"), np.searchsorted(s, s[-1]))  # a product may round up
    return y


def draws(graph):
    """Whether a graph, or one inside its nodes, draws random numbers."""
    return any(n.op in _DRAWING or any(map(draws, graphs_of(n).values())) for n in graph.nodes)


def _of(node):
    seed = node.attrs.get("seed")
    if seed is None:
        return generator(node)
    return generator(node, int(np.float32(seed).view(np.uint32)) if isinstance(seed, float) else seed)


def _random(draw, low, high):
    """Numbers of two attributes, with these defaults, in a shape that an attribute or an input has."""

    def run(node, x=None):
        shape, (a, b) = _shape(node, x), (node.attrs.get(*each) for each in (low, high))
        return draw(_of(node), tuple(shape), _type(node, [x], 0), a, b)

    return Operator(run, Inference(_shape, dtype=_type, may_grow=True, random=True), NumPyOnly(_WHY))


def _shape(node, x=None):
    return tuple(node.attrs["shape"]) if x is None else x.shape


def _type(node, inputs, i):
    if "dtype" in node.attrs or not inputs or inputs[0] is None:
        return from_onnx(node.attrs.get("dtype", 1))
    return inputs[0].dtype


def _multinomial(node, x):
    return multinomial(_of(node), x, _samples(node), _class_type(node, [x], 0))


def _samples(node):
    n = node.attrs.get("sample_size", 1)
    if n < 1:
        raise ValueError(f"sample_size is {n}, but must be 1 or more")
    return n


def _class_type(node, inputs, i):
    return from_onnx(node.attrs.get("dtype", 6))


def _multinomial_shape(node, x):
    if len(x.shape) != 2 or x.shape[1] == 0:
        raise ValueError("it takes logarithms of probabilities as (batch, classes), with 1 class or more")
    return x.shape[0], _samples(node)


def _read_bernoulli(r: GraphBuilder, node):
    """Whether uniform numbers are below probabilities; ONNX's own function compares the other way round."""
    (x,), seed = node.inputs, {"seed": node.attrs["seed"]} if "seed" in node.attrs else {}
    happens = r.node("Less", node, r.node("RandomUniformLike", node, x, **seed), x)
    if "dtype" in node.attrs:
        r.node("Cast", node, happens, result=node.output, to=node.attrs["dtype"])
    else:
        r.node("CastLike", node, happens, x, result=node.output)


_WHY = "drawn by NumPy's generator"
_NORMAL, _UNIFORM = (
    _random(normal, ("mean", 0.0), ("scale", 1.0)),
    _random(uniform, ("low", 0.0), ("high", 1.0)),
)
RECORDS = {
    "Bernoulli": Rewrite(_read_bernoulli, ("RandomUniformLike", "Less", "Cast", "CastLike")),
    "Multinomial": Operator(
        _multinomial, Inference(_multinomial_shape, dtype=_class_type, may_grow=True, random=True), NumPyOnly(_WHY)
    ),
    "RandomNormal": _NORMAL,
    "RandomNormalLike": _NORMAL,
    "RandomUniform": _UNIFORM,
    "RandomUniformLike": _UNIFORM,
}
_DRAWING = frozenset(name for name, record in RECORDS.items() if isinstance(record, Operator))
