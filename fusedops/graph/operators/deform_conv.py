"""Deformable convolutions: each tap reads the image at an offset from its position."""

import math
from functools import partial

import numpy as np

from ...layers import ConstantLinear
from ..ir.float16_weights import as_float16_weights
from ..ir.symbolic import deferred, is_symbolic
from ..steps.lowering import LoweringContext
from ..steps.prepared import OfConstants, UnpackedLayer
from ..steps.tensor import along, broadcast
from . import conv_geometry
from .grid_sample import add_reading, interpolate, zeros_outside
from .schema import Inference, Kernel, Operator


def _deform_conv(node, x, w, offset, b=None, mask=None):
    """A convolution each of whose taps reads the image at an offset from its position, one for each point of the
    result, and times a mask."""
    kernel, parts, groups = w.shape[2:], node.attrs.get("offset_group", 1), node.attrs.get("group", 1)
    strides, dilations, pads = conv_geometry.window(node, x.shape[2:], kernel)
    out, taps_, n = offset.shape[2:], math.prod(kernel), x.shape[0]
    offset = np.moveaxis(offset.reshape(n, parts, taps_, len(kernel), *out), 3, 0)
    mask = None if mask is None else mask.reshape(n, parts, taps_, *out)
    grids = np.meshgrid(*(np.arange(o) * s - p[0] for o, s, p in zip(out, strides, pads, strict=True)), indexing="ij")
    grids = [
        at.reshape(-1, *[1] * len(kernel)) * d + g
        for at, d, g in zip(np.meshgrid(*map(np.arange, kernel), indexing="ij"), dilations, grids, strict=True)
    ]
    read = []
    for g, part in enumerate(np.split(x, parts, 1)):
        values_ = interpolate(
            part, [o[:, g] + at for o, at in zip(offset, grids, strict=True)], "linear", zeros_outside(x.shape[2:])
        )
        read.append(values_ if mask is None else values_ * mask[:, g][..., np.newaxis])
    read = np.concatenate(read, -1).reshape(n, taps_, -1, groups, w.shape[1]).swapaxes(2, 3)
    each = np.moveaxis(w.reshape(groups, -1, w.shape[1], taps_), -1, 0).swapaxes(2, 3)  # taps, groups, c, outputs
    y = sum(read[:, tap] @ each[tap] for tap in range(taps_)).swapaxes(2, 3).reshape(n, -1, *out)
    return (y if b is None else y + b.reshape(-1, *[1] * len(kernel))).astype(x.dtype, copy=False)


def _tap_positions(kernel, strides, dilations, pads, *out):
    """Where the taps (taps, axes, oh, ow) of a convolution's results are, without offsets."""
    windows = [np.arange(o) * s - p[0] for o, s, p in zip(out, strides, pads, strict=True)]
    taps_ = np.indices(kernel).reshape(len(kernel), -1)
    lines = [w + d * t[:, np.newaxis] for w, d, t in zip(windows, dilations, taps_, strict=True)]
    shape = taps_.shape[1], *out
    return np.stack(
        [np.broadcast_to(lines[0][:, :, np.newaxis], shape), np.broadcast_to(lines[1][:, np.newaxis], shape)], 1
    ).astype(np.float32)


def _product(w, b, precision):
    """The product of windows (taps, c) and weights."""
    (rows,) = as_float16_weights(w.reshape(*w.shape[:2], -1).swapaxes(1, 2).reshape(w.shape[0], -1))
    return ConstantLinear(rows, b, precision=precision)


def _lower_deform_conv(p: LoweringContext, node):
    """Positions of taps, what is read there times the mask, as rows (points, taps, channels), and a product."""
    x, w, offset, mask = p.at(node.inputs[0]), p.data(node.inputs[1]), p.at(node.inputs[2]), node.input(4)
    b, parts = p.data(node.input(3)), node.attrs.get("offset_group", 1)
    constant = isinstance(w, np.ndarray) and (not node.input(3) or isinstance(b, np.ndarray))
    if not constant or w.ndim != 4 or node.attrs.get("group", 1) != 1:
        return False
    window = conv_geometry.window(node, x.shape[2:], w.shape[2:])
    if is_symbolic(window):
        return False
    (oc, c, *kernel), (n, _, *out) = w.shape, offset.shape
    taps_, points, each = math.prod(kernel), math.prod(out), c // parts
    base = p.constant(deferred(_tap_positions, tuple(kernel), *window, *out), (taps_, 2, *out))
    positions, read = p.new((n, parts, taps_, 2, *out)), p.new((n, points, taps_, c))
    offset, base = p.reshape(node, offset, positions.shape), broadcast(base, positions.shape)
    p.add("binary", node, name="add", a=offset, b=base, y=positions, activation=None)
    image = p.pixels(node, node.inputs[0])
    for g in range(parts):
        own = along(positions, 1, g, 1)
        lines = [p.reshape(node, along(own, 3, axis, 1), (n, 1, taps_, points)) for axis in (0, 1)]
        to = along(read, 3, g * each, each)
        to = to._replace(shape=(n, each, taps_, points), strides=tuple(to.strides[i] for i in (0, 3, 2, 1)))
        add_reading(p, node, along(image, 1, g * each, each), lines, to, "linear", "zeros", "pixels")
    if mask:
        factors = p.reshape(node, p.at(mask), (n, parts, taps_, points))
        factors = factors._replace(
            shape=(n, points, taps_, parts, 1), strides=(*(factors.strides[i] for i in (0, 3, 2, 1)), 0)
        )
        all_ = p.reshape(node, read, (n, points, taps_, parts, each))
        p.add("binary", node, name="mul", a=all_, b=broadcast(factors, all_.shape), y=all_, activation=None)
    layer = UnpackedLayer(OfConstants("DeformConv", w, b), partial(_product, w, b))
    y = p.result(node.output, image=True, direct=False)
    windows = p.reshape(node, read, (n * points, taps_ * c))
    p.add("linear", node, layer=layer, x=windows, y=y._replace(shape=(n * points, oc), strides=(oc, 1)), residual=None)
    return True


def _deform_conv_shape(node, x, w, offset, b=None, mask=None):
    out, parts = tuple(conv_geometry.output_sizes(node, x.shape[2:], w.shape[2:])), node.attrs.get("offset_group", 1)
    taps_, groups = math.prod(w.shape[2:]), node.attrs.get("group", 1)
    wanted = (x.shape[0], parts * taps_ * len(out), *out)
    if x.shape[1] != w.shape[1] * groups or x.shape[1] % parts or w.shape[0] % groups or offset.shape != wanted:
        raise ValueError(
            f"weights need {w.shape[1] * groups} channels in {groups} groups, offsets the shape {wanted} "
            f"and not {offset.shape}"
        )
    if mask is not None and mask.shape != (x.shape[0], parts * taps_, *out):
        raise ValueError(f"a mask of shape {mask.shape} must have {(x.shape[0], parts * taps_, *out)}")
    return (x.shape[0], w.shape[0], *out)


RECORDS = {
    "DeformConv": Operator(
        _deform_conv,
        Inference(_deform_conv_shape),
        Kernel(_lower_deform_conv, "two spatial axes, one group, constant weights"),
    ),
}
