"""Random numbers: the network draws them from a generator of its own. What each operator makes of uniform or normal
numbers is written twice, as nodes here and in NumPy in `same_draws`, by which network and module are compared."""

import numpy as np

from ....ir.dtypes import to_onnx
from ..fx_values import sizes


def _drawn(p, op, dtype=None, **attrs):
    """Numbers in the shape of the result: of its type, or of one of NumPy's."""
    attrs = {"dtype": to_onnx(p.numpy_type(p.made.dtype) if dtype is None else dtype)} | {
        k: float(v) for k, v in attrs.items()
    }
    shape = sizes(p.made.shape)
    if all(isinstance(n, int) for n in shape):
        return p.op(op, shape=list(shape), **attrs)
    return p.op(f"{op}Like", p.op("ConstantOfShape", p.shape(shape)), **attrs)


def _rand(p, *_, **__):
    return _drawn(p, "RandomUniform")


def _randn(p, *_, **__):
    return _drawn(p, "RandomNormal")


def _uniform(p, x, **given):
    return _drawn(p, "RandomUniform", low=given.get("from", 0), high=given.get("to", 1))


def _normal(p, first, mean=None, std=1, size=None, **_):
    """`first` is the tensor that takes the numbers, or the mean."""
    changes = p.fx_node.target._schema.arguments[0].name == "self"
    mean = (mean or 0) if changes else first
    std, mean = (p.cast(v, p.made.dtype) for v in (std, mean))
    return p.op("Add", p.op("Mul", _drawn(p, "RandomNormal"), std), mean)


def _exponential(p, x, lambd=1.0):
    rest = p.op("Sub", p.scalar(1, p.made), _drawn(p, "RandomUniform"))
    return p.op("Div", p.op("Neg", p.op("Log", rest)), p.scalar(lambd, p.made))


def _happens(p, probability):
    """1 where a uniform number is below a probability, else 0."""
    probability = p.cast(probability, p.torch.float32)
    return p.cast_to(p.op("Less", _drawn(p, "RandomUniform", np.float32), probability), p.numpy_type(p.made.dtype))


def _bernoulli(p, x, /, **given):
    default = x if p.fx_node.target._schema.name == "aten::bernoulli" else 0.5
    return _happens(p, given.get("p", default))


def _dropout(p, x, /, **given):
    if not given["train"] or not given["p"]:
        return x
    kept = 1 - given["p"]
    return p.op("Mul", x, p.op("Div", _happens(p, kept), p.scalar(kept or 1, p.made)))


def _randint(p, first, high=None, size=None, **_):
    """`randint` has (high, size) or (low, high, size)."""
    return _integers(p, *((0, first) if high is None else (first, high)))


def _randint_like(p, x, high, low=0, **_):
    return _integers(p, low, high)


def _integers(p, low, high):
    low, high = (p.number(n, np.float64) for n in (low, high))
    drawn = p.op("Mul", _drawn(p, "RandomUniform", np.float64), p.op("Sub", high, low))
    return p.cast_to(p.op("Add", p.op("Floor", drawn), low), p.numpy_type(p.made.dtype))


def _multinomial(p, x, num_samples, replacement=False):
    """Without replacement the classes whose logarithm of probability is largest after a Gumbel number."""
    logits = p.op("Log", p.cast(x, p.torch.float32))
    if not replacement:
        race = p.op("Neg", p.op("Log", p.op("Neg", p.op("Log", p.op("RandomUniformLike", logits)))))
        return p.op("TopK", p.op("Add", logits, race), [num_samples], count=2, axis=-1)[1]
    rows = logits if x.ndim == 2 else p.op("Unsqueeze", logits, [0])
    found = p.op("Multinomial", rows, sample_size=num_samples, dtype=to_onnx(np.int64))
    return found if x.ndim == 2 else p.op("Squeeze", found, [0])


def _randperm(p, n, **_):
    drawn = _drawn(p, "RandomUniform", np.float64)
    found = p.op("TopK", drawn, p.op("Reshape", p.number(p.size(n), np.int64), [1]), count=2, axis=-1, largest=0)[1]
    return p.cast_to(found, p.numpy_type(p.made.dtype))


READERS = {
    "bernoulli": _bernoulli,
    "dropout": _dropout,
    "exponential": _exponential,
    "multinomial": _multinomial,
    "normal": _normal,
    "normal_functional": _normal,
    "rand": _rand,
    "rand_like": _rand,
    "randint": _randint,
    "randint_like": _randint_like,
    "randn": _randn,
    "randn_like": _randn,
    "randperm": _randperm,
    "uniform": _uniform,
}
