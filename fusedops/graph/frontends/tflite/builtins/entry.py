"""The record of a builtin operator, and what many of them share: fused activations, operands in one layout, axes."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ..call import FIRST

ACTIVATIONS = {
    "NONE": None,
    "RELU": "relu",
    "RELU_N1_TO_1": ("clip", -1.0, 1.0),
    "RELU6": "relu6",
    "TANH": "tanh",
}


class Builtin(NamedTuple):
    """An operator of TFLite: `read(reader, call)` adds what it is in the graph; `note`: which of its uses, for the
    documentation."""

    read: Callable
    note: str = ""


def activated(r, op, value, kind=None):
    """A value after the activation that is fused into an operator."""
    kind = op.option("FusedActivationFunction") if kind is None else kind
    name = r.activations.get(kind, str(kind))
    if name not in ACTIVATIONS:
        raise op.error(f"the activation {name} is fused into it, which fusedops does not have")
    return value if ACTIVATIONS[name] is None else r.emit("Activation", value, activation=ACTIVATIONS[name])


def is_image(r, *helds):
    """Whether tensors are to be read with their channels first: one was made so, and the others can be."""
    return any(h.native for h in helds) and all(r.rank(h) == 4 or r.array(h) is not None for h in helds)


def operand(r, held, first, real=True):
    """A tensor as an operand that is broadcast: one of fewer axes gets those of an image."""
    rank, a = r.rank(held), r.array(held)
    if not first or rank == 4:
        return r.value(held, first, real)
    if a.size == 1 or rank == 0:
        return r.value(held, False, real)
    found = r.emit("Reshape", r.value(held, real=real), [1] * (4 - rank) + list(a.shape))
    return r.emit("Transpose", found, perm=FIRST)


def operands(r, helds, real=True):
    """(values of tensors in one layout, whether their channels are first)."""
    first = is_image(r, *helds)
    return [operand(r, h, first, real) for h in helds], first


def is_float(r, value):
    """Whether the elements of a value are float32."""
    info = r.info(value)
    return (r.dtype(value) if info is None else info.dtype) == np.float32


def same_quantization(a, b):
    """Whether two tensors store real numbers alike."""
    p, q = a.quantization, b.quantization
    if p is None or q is None:
        return p is q
    return a.tensor.dtype == b.tensor.dtype and all(np.array_equal(x, y) for x, y in zip(p, q, strict=True))


def moved(r, op, make, i=0, first=None, out=0):
    """An operator that only moves elements: of what is stored where the result is stored alike. `make` gives the result
    of (the value, whether its channels are first)."""
    x, y = op.inputs[i], op.outputs[out]
    real = not same_quantization(x, y)
    if not real and not any(key in x.forms for key in ((False, False), (True, False))):
        first = (x.native and r.rank(x) == 4) if first is None else first
        y.forms, y.native = {(first, True): make(r.value(x, first), first)}, first
        return
    first = (x.native and r.rank(x) == 4) if first is None else first
    r.put(y, make(r.value(x, first, real), first), first, real)


def axis_in(axis, rank, first, op):
    """An axis of a tensor, of which negative ones count from the end, in the layout of a value."""
    axis = int(axis) + rank * (int(axis) < 0)
    if not 0 <= axis < rank:
        raise op.error(f"its axis {axis} is none of {rank}")
    return FIRST.index(axis) if first else axis


def length(r, value, axis):
    """The size of one axis of a value, as a list of it."""
    return r.emit("Shape", value, start=axis, end=axis + 1)


def ranked(r, op, held):
    """The number of a tensor's axes."""
    rank = r.rank(held)
    if rank is None:
        raise op.error(f"the number of axes of {held.tensor.name!r} is not known")
    return rank


def as_shape(r, op, i):
    """An input that holds sizes, as int64: a list where it is constant, else a value."""
    a = r.array(op.inputs[i])
    return a.reshape(-1).astype(np.int64).tolist() if a is not None else r.cast(r.value(op.inputs[i]), np.int64)


def stored(r, op, i=0):
    """(an input with its channels last, whether as real numbers): as it is stored where the result is stored alike."""
    real = not same_quantization(op.inputs[i], op.outputs[0])
    return r.value(op.inputs[i], real=real), real


def moved_to(r, op, make, i=0):
    """A result that `make` gives of an input with its channels last."""
    moved(r, op, lambda x, first: make(x), i, first=False)
