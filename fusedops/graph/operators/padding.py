"""Pad: borders of a value, or of what they repeat; negative ones crop."""

import numpy as np

from ..ir.dtypes import ANY
from ..ir.graph_builder import GraphBuilder
from ..ir.symbolic import deferred
from ..steps.lowering import LoweringContext
from ..steps.tensor import along, broadcast, part
from .schema import Inference, Kernel, Operator, Traits, axes_of, values


def _pad_amounts(ndim, pads, axes=None):
    pads, amounts = pads.reshape(-1).tolist(), [(0, 0)] * ndim
    axes = axes_of(axes, ndim)
    if len(pads) != 2 * len(axes):
        raise ValueError(f"{len(pads)} pads are not two for each of {len(axes)} axes")
    for i, a in enumerate(axes):
        amounts[a] = pads[i], pads[i + len(axes)]
    return amounts


def _added_and_cut(amounts):
    """(the elements that padding adds, those that it cuts off) before and after each axis; negative amounts crop."""
    added, cut = [], []
    for pair in amounts:
        both = [(n, 0) if n >= 0 else (0, -n) for n in pair]
        added.append(tuple(n for n, _ in both))
        cut.append(tuple(n for _, n in both))
    return added, cut


def _pad(node, x, pads, value=None, axes=None):
    mode, (amounts, cut) = node.attrs.get("mode", "constant"), _added_and_cut(_pad_amounts(x.ndim, pads, axes))
    x = x[tuple(slice(b, n - e) for n, (b, e) in zip(x.shape, cut, strict=True))]
    if mode == "constant":
        return np.pad(x, amounts, constant_values=0 if value is None or value.size == 0 else value.item())
    return np.pad(x, amounts, mode=mode)


def _pad_shape(node, x, pads, value=None, axes=None):
    amounts, repeats = (
        _pad_amounts(len(x.shape), values(pads, "padding"), values(axes, "axes")),
        node.attrs.get("mode", "constant") != "constant",
    )
    for s, (b, e), pair, cut in zip(x.shape, amounts, *_added_and_cut(amounts), strict=True):
        if s - sum(cut) < (repeats and max(pair) > 0):
            raise ValueError(f"an axis of {s} is too short for padding {b}, {e}")
    return tuple(s + b + e for s, (b, e) in zip(x.shape, amounts, strict=True))


def _padded_positions(size, before, after, mode):
    """The positions along an axis that a padded axis repeats."""
    return np.pad(np.arange(size), (before, after), mode=mode)


# Of an axis of n positions after b padded ones: the first of those that e positions before or after it repeat.
_BORDERS = {
    "reflect": (lambda n, b, e: b + 1, lambda n, b, e: b + n - 1 - e),
    "edge": (lambda n, b, e: b, lambda n, b, e: b + n - 1),
    "wrap": (lambda n, b, e: n, lambda n, b, e: b),
}


def _pad_by_copies(p: LoweringContext, node, x, amounts, mode, value):
    """The inner part, then border after border: a value, or a copy of what is there already."""
    y = p.result(node.output, image=len(x.shape) == 4)
    first = sum(b * stride for (b, _), stride in zip(amounts, y.strides, strict=True))
    done = y._replace(shape=x.shape, offset=y.offset + first * y.dtype.itemsize)  # also where nothing is inside
    p.copy(node, x, done)
    for axis in reversed(range(len(x.shape))):
        n, (b, e) = x.shape[axis], amounts[axis]
        done = done._replace(
            offset=done.offset - b * y.strides[axis] * y.dtype.itemsize,
            shape=(*done.shape[:axis], b + n + e, *done.shape[axis + 1 :]),
        )
        for after, (start, count) in enumerate(((0, b), (b + n, e))):
            border = along(done, axis, start, count)
            if count and mode == "constant" and isinstance(value, float):
                p.add("fill", node, y=border, value=value, size=x.dtype.itemsize)
            elif count and mode == "constant":
                p.copy(node, broadcast(value, border.shape), border)
            elif count:
                source = along(done, axis, _BORDERS[mode][after](n, b, count), 1 if mode == "edge" else count)
                order = -1 if mode == "reflect" else 1
                source = part(source, [slice(None, None, order if a == axis else 1) for a in range(len(x.shape))])
                p.copy(node, broadcast(source, border.shape), border)


def _pad_by_positions(p: LoweringContext, node, x, amounts):
    """Borders of any length, an axis after another."""
    for axis, (b, e) in enumerate(amounts):
        if b or e:
            i = deferred(_padded_positions, x.shape[axis], b, e, node.attrs["mode"])
            y = p.new((*x.shape[:axis], b + x.shape[axis] + e, *x.shape[axis + 1 :]))
            p.add("gather", node, x=x, indices=i, y=y, along=axis)
            x = y
    p.view(node.output, x)


def _padding_value(p: LoweringContext, node, x):
    """What a border has: a float that is known, which one step fills it with, or a tensor of one element."""
    value, filled = p.data(node.input(2)), x.dtype in (np.float32, np.float16) or x.dtype.itemsize == 1
    if node.input(2) and (value is None or value.size and not filled):
        return p.reshape(node, p.at(node.inputs[2]), ())
    number = value.item() if value is not None and value.size else 0
    return float(number) if filled else p.constant(np.full((), number, x.dtype), ())


def _lower_pad(p: LoweringContext, node):
    mode, x = node.attrs.get("mode", "constant"), p.at(node.inputs[0])
    amounts, cut = _added_and_cut(_pad_amounts(len(x.shape), p.data(node.inputs[1]), p.data(node.input(3))))
    x = part(x, [slice(b, n - e) for n, (b, e) in zip(x.shape, cut, strict=True)])
    beyond = {"reflect": 1, "wrap": 0}.get(mode)  # positions of an axis that its border cannot repeat
    if not any(map(any, amounts)):
        p.view(node.output, x)
    elif beyond is None or all(max(pair) <= n - beyond for n, pair in zip(x.shape, amounts, strict=True) if any(pair)):
        _pad_by_copies(p, node, x, amounts, mode, _padding_value(p, node, x) if mode == "constant" else None)
    elif x.dtype != np.float32:
        return False
    else:
        _pad_by_positions(p, node, x, amounts)
    return True


def _read_pad(r: GraphBuilder, node):
    value = node.attrs.pop("value", 0.0)
    if "pads" in node.attrs:
        r.as_input(node, "pads", 1)
        node.inputs.append(r.constant(f"{node.name}.value", value, np.float32))
    r.add(node)


RECORDS = {
    "Pad": Operator(
        _pad,
        Inference(_pad_shape, shape_inputs=(1, 3), may_grow=True),
        Kernel(_lower_pad, dtypes=ANY),
        _read_pad,
        traits=Traits(
            is_identity=lambda node, x, pads, *_: pads is not None and pads.data is not None and not pads.data.any(),
            moves_elements=lambda node: slice(0, 1),
        ),
    ),
}
