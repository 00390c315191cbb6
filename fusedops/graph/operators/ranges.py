"""Range, and indices that are made of ranges."""

import math

import numpy as np

from ..steps.lowering import LoweringContext
from ..steps.tensor import broadcast
from .schema import Inference, Kernel, Operator, values

_WIDE = np.dtype(np.int64)


def _range(node, a, b, step):
    return np.arange(a.item(), b.item(), step.item(), dtype=a.dtype)


def _range_shape(node, *ends):
    start, stop, step = (values(e, "length").item() for e in ends)
    floats = any(e.dtype.kind == "f" for e in ends)
    return (max(math.ceil((stop - start) / step) if floats else -((start - stop) // step), 0),)


def _lower_range(p: LoweringContext, node):
    """Sums of steps, from the start on."""
    y = p.result(node.output)
    start, _, step = (p.at(v) for v in node.inputs)
    counted = y if _is(p, node.inputs[0], 0) else p.new(y.shape, dtype=_WIDE)
    steps = broadcast(step._replace(shape=(1,), strides=(0,)), y.shape)
    p.add("cumsum", node, x=steps, y=counted, axis=0, exclusive=True, reverse=False, of=_WIDE)
    if counted is not y:
        p.map(node, "add", y, counted, start)
    return True


def _is(p, value, number):
    """Whether a value is known to be this number."""
    data = p.data(value)
    return isinstance(data, np.ndarray) and data.dtype != object and data.size == 1 and data.item() == number


def _counted_axis(p: LoweringContext, value):
    """The axis along which a value counts 0, 1, 2 ..., while it repeats along others; None for other values."""
    node = p.producers.get(value)
    if node is None or node.activation is not None or node.residual:
        return None
    if node.op == "Range":
        return 0 if _is(p, node.inputs[0], 0) and _is(p, node.inputs[2], 1) else None
    if node.op == "Add":
        counted = next((v for v, zero in (node.inputs, node.inputs[::-1]) if _is(p, zero, 0)), None)
        alike = counted is not None and p.known[counted].shape == p.known[value].shape
        return _counted_axis(p, counted) if alike else None
    if node.op not in ("Unsqueeze", "Reshape", "Expand"):
        return None
    axis = _counted_axis(p, node.inputs[0])
    return None if axis is None else _moved_axis(p, node, axis)


def _moved_axis(p: LoweringContext, node, axis):
    """Where an axis is after a node that adds others; None where it is longer or among several."""
    x, y = p.known[node.inputs[0]].shape, p.known[node.output].shape
    if node.op == "Expand":
        moved = axis + len(y) - len(x)
        return moved if x[axis] == y[moved] else None
    if node.op == "Reshape":  # of one axis, as Unsqueeze
        wide = [a for a, n in enumerate(y) if n.__class__ is not int or n != 1]
        return wide[0] if len(x) == len(wide) == 1 else None
    added = {int(a) % len(y) for a in p.data(node.inputs[1]).reshape(-1)}
    return [a for a in range(len(y)) if a not in added][axis]


def lower_grid(p: LoweringContext, node):
    """Whether a GatherND takes each element of x's first axes in order, as where a mask is read by ranges: a view."""
    joined, shape = p.producers.get(node.inputs[1]), p.known[node.output].shape
    last = len(p.known[node.inputs[1]].shape) - 1
    if joined is None or joined.op != "Concat" or joined.attrs["axis"] % (last + 1) != last:
        return False
    axes = [_counted_axis(p, v) for v in joined.inputs]
    if None in axes or len(set(axes)) < len(axes):
        return False
    x = p.at(node.inputs[0])
    if any(shape[a] > n for a, n in zip(axes, x.shape, strict=False)):
        return False
    strides = [0] * last
    for a, s in zip(axes, x.strides, strict=False):
        strides[a] = s
    p.view(node.output, x._replace(shape=shape, strides=(*strides, *x.strides[len(axes) :])))
    return True


RECORDS = {
    "Range": Operator(
        _range,
        Inference(_range_shape, shape_inputs=(0, 1, 2), may_grow=True),
        Kernel(
            _lower_range, "in a decoder; elsewhere it is constant as soon as its length is known", frozenset([_WIDE])
        ),
    ),
}
