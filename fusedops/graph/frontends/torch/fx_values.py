"""What the readers of torch's operators take and give: values of the graph with what torch's export knows of them."""

from typing import Any


class Unsupported(ValueError):
    """An operator, or a use of one, that has no reader."""


def _no_number(self, *_):
    raise Unsupported("an open size, or a number that the network computes, stands where it takes plain numbers alone")


def _unless_text(name):
    """A method of text that other texts have alone: no arithmetic with numbers."""
    method = getattr(str, name)
    return lambda self, other: method(self, other) if isinstance(other, str) else _no_number(self)


_UNARY = "__int__", "__index__", "__float__", "__neg__", "__abs__", "__round__"
_BINARY = [f"__{side}{name}__" for name in ("sub", "mul", "floordiv", "truediv", "pow") for side in ("", "r")]
_OF_TEXT = "__add__", "__lt__", "__le__", "__gt__", "__ge__"


def no_number(cls):
    """Lets a class refuse to be taken for a number."""
    for name in (*_UNARY, *_BINARY, *(() if issubclass(cls, str) else ("__radd__", "__mod__", "__rmod__"))):
        setattr(cls, name, _no_number)
    for name in _OF_TEXT:
        setattr(cls, name, _unless_text(name) if issubclass(cls, str) else _no_number)
    return cls


@no_number
class OpenSize:
    """An open size. It is no number: what would take it for the example's size fails."""

    def __init__(self, expression):
        self.expression = expression  # SymPy's

    def __eq__(self, other):
        return isinstance(other, OpenSize) and self.expression == other.expression

    def __hash__(self):
        return hash(self.expression)


@no_number
class FxValue(str):
    """A value of the graph, by its name, with what torch's export knows of it: dimensions are ints or OpenSize."""

    shape: Any
    dtype: Any

    def __new__(cls, name, shape=None, dtype=None):
        self = super().__new__(cls, name)
        self.shape, self.dtype = shape, dtype
        return self

    @property
    def ndim(self):
        return len(self.shape)


@no_number
class FxSize(str):
    """An integer or float that depends on open sizes, or on an element of a tensor, as a value of the graph without
    axes."""

    number: Any  # torch.SymInt or torch.SymFloat

    def __new__(cls, name, number):
        self = super().__new__(cls, name)
        self.number = number
        return self


class FxComplex:
    """A tensor of complex numbers as two values of the graph, or tensors of torch: `re` and `im`, the latter None where
    it is zero. `pair` has both along a last axis of its own, where it is known."""

    def __init__(self, re, im, shape, dtype, pair=None):
        self.re, self.im, self.shape, self.dtype, self.pair = re, im, shape, dtype, pair

    @property
    def ndim(self):
        return len(self.shape)


def sizes(shape):
    """A shape of torch's with each open size as Open, and those that export found to be fixed as ints."""
    return tuple(n if isinstance(n, (int, OpenSize, FxSize)) else _size(n.node.expr) for n in shape)


def _size(expression):
    return int(expression) if expression.is_Integer else OpenSize(expression)


def as_array(tensor):
    """A tensor as an array, in its memory where it can be; bfloat16, which NumPy does not have, as float32."""
    return (tensor.float() if str(tensor.dtype) == "torch.bfloat16" else tensor).numpy(force=True)


def leaves(values):
    for v in values:
        if isinstance(v, (list, tuple)):
            yield from leaves(v)
        else:
            yield v


def is_complex(torch, values):
    """Whether there are complex numbers among values, or in lists of them."""
    return any(
        isinstance(v, (FxComplex, complex)) or isinstance(v, torch.Tensor) and v.is_complex() for v in leaves(values)
    )
