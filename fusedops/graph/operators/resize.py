"""Resize, and what it was called before."""

import math
from collections.abc import Callable

import numpy as np

from ..ir.dtypes import INT8, INT8_AND_FLOAT32
from ..ir.errors import BadNode
from ..ir.graph import Node
from ..ir.graph_builder import GraphBuilder
from ..ir.symbolic import deferred, is_symbolic, ratio, scaled
from ..steps.lowering import LoweringContext
from ..steps.tensor import broadcast, transposed
from . import conv3d
from .schema import Inference, Kernel, Operator, Rewrite, Traits, values


def _resize_sizes(node, shape, roi, scales, sizes):
    """(result's shape, scale of each axis) of a Resize. Scales are float32, and so are products with them: 10 * 0.7 is
    7. Where a size becomes one of its multiples ``exact_for``, PyTorch takes their ratio, not the scale; ``ratios``
    are scales that TFLite rounds."""
    axes = [a % len(shape) for a in node.attrs.get("axes", range(len(shape)))]
    out, scale = list(shape), [1.0] * len(shape)
    if sizes is not None and sizes.size:
        policy = node.attrs.get("keep_aspect_ratio_policy", "stretch")
        if policy == "stretch":
            ratios = node.attrs.get("ratios") or [ratio(s, shape[a]) for a, s in zip(axes, sizes.tolist(), strict=True)]
        else:
            ratios = [s / shape[a] for a, s in zip(axes, sizes.tolist(), strict=True)]
            ratios = [min(ratios) if policy == "not_larger" else max(ratios)] * len(axes)
        for a, r, s in zip(axes, ratios, sizes.tolist(), strict=True):
            out[a], scale[a] = s if policy == "stretch" else int(np.floor(r * shape[a] + 0.5)), r
    else:
        for a, r in zip(axes, _numbers(scales), strict=True):
            out[a], scale[a] = shape[a] * int(r) if r == int(r) else scaled(shape[a], r), r
            if out[a] in [n * shape[a] for n in node.attrs.get("exact_for", ())]:
                scale[a] = out[a] / shape[a]
    return tuple(out), scale


def _numbers(scales):
    if scales is None:
        raise BadNode("it has neither sizes nor scales")
    if scales.ndim != 1:
        raise BadNode(f"its scales are {scales.tolist()}, which is not a list of numbers")
    return scales.tolist()


def _places(node, size, out, scale, roi):
    """Where the points of a result lie on an axis of the input.

    As in PyTorch and ONNX Runtime, `align_corners` lets the corners of the two images meet, where ONNX's reference
    takes those of size * scale.
    """
    o, transform = np.arange(out, dtype=np.float64), _transform(node)
    if transform == "align_corners":
        return o * (size - 1) / max(out - 1, 1)
    if transform == "tf_crop_and_resize":
        first, last = (r * (size - 1) for r in roi)
        return first + o * (last - first) / (out - 1) if out > 1 else np.array([(first + last) / 2])
    if transform == "asymmetric":
        return o / scale
    if transform == "tf_half_pixel_for_nn":
        return (o + 0.5) / scale
    if transform == "pytorch_half_pixel" and out == 1:
        return np.zeros(1)
    x = (o + 0.5) / scale - 0.5
    return x + size / 2 * (1 - out / (scale * size)) if transform == "half_pixel_symmetric" else x


def _transform(node):
    return node.attrs.get("coordinate_transformation_mode", "half_pixel")


def _is_simple(node):
    """Whether each point is made of one or two of an axis."""
    return (
        node.attrs.get("mode", "nearest") in ("nearest", "linear")
        and not node.attrs.get("antialias", 0)
        and _transform(node) != "tf_crop_and_resize"
    )


def _nearest(node, x, size):
    roundings: dict[str, Callable] = {
        "round_prefer_floor": lambda v: np.ceil(v - 0.5),
        "round_prefer_ceil": lambda v: np.floor(v + 0.5),
        "floor": np.floor,
        "ceil": np.ceil,
    }
    rounding = roundings[node.attrs.get("nearest_mode", "round_prefer_floor")]
    return np.clip(rounding(x.astype(np.float32)), 0, size - 1).astype(np.int64)


def _points(node, scale):
    """How a step "resize" or "nearest" finds the points of an axis. An open scale is the ratio of its sizes."""
    nearest = node.attrs.get("mode", "nearest") == "nearest"
    rounding = node.attrs.get("nearest_mode", "round_prefer_floor") if nearest else "linear"
    return _transform(node), rounding, None if is_symbolic([scale]) else scale


def _cubic(d, a):
    """Weights of points at these distances."""
    d = np.abs(d)
    near, far = (a + 2) * d**3 - (a + 3) * d**2 + 1, a * (d**3 - 5 * d**2 + 8 * d - 4)
    return np.where(d <= 1, near, np.where(d < 2, far, 0))


def _weights(node, size, out, scale, crop):
    """(indices, weights), both (out, taps), of the points that each one of a result is made of. To lessen an image
    without aliasing, the filter is as wide as the distance of the result's points."""
    x, mode = _places(node, size, out, scale, crop), node.attrs.get("mode", "nearest")
    if mode == "nearest":
        return _nearest(node, x, size)[:, np.newaxis], np.ones((x.size, 1))
    shrink, radius = min(scale, 1.0) if node.attrs.get("antialias", 0) else 1.0, 1 if mode == "linear" else 2
    reach = int(np.ceil(radius / shrink))
    i = np.floor(x).astype(np.int64)[:, np.newaxis] + np.arange(1 - reach, reach + 1)
    d = (i - x[:, np.newaxis]) * shrink
    w = np.maximum(1 - np.abs(d), 0) if mode == "linear" else _cubic(d, node.attrs.get("cubic_coeff_a", -0.75))
    if node.attrs.get("exclude_outside", 0):
        w = np.where((i >= 0) & (i < size), w, 0)
    return np.clip(i, 0, size - 1), w / w.sum(1, keepdims=True)


def _matrix(node, size, out, scale, crop):
    """The weights of an axis as a matrix (out, size)."""
    i, w = _weights(node, size, out, scale, crop)
    matrix = np.zeros((out, size))
    np.add.at(matrix, (np.arange(out)[:, np.newaxis], i), w)
    return matrix.astype(np.float32)


def _axes(node, shape, roi, scales, sizes):
    """(axis, size, size of the result, scale, part) of each axis that is resized."""
    out, scale = _resize_sizes(node, shape, roi, scales, sizes)
    crops = _crops(node, len(shape), roi)
    return [
        (a, n, o, s, crops[a])
        for a, (n, o, s) in enumerate(zip(shape, out, scale, strict=True))
        if s != 1 or n != o or crops[a] != (0.0, 1.0)
    ]


def _crops(node, ndim, roi):
    """The part of each axis that is resized, from 0 to 1."""
    found = [(0.0, 1.0)] * ndim
    if _transform(node) == "tf_crop_and_resize":
        axes = [a % ndim for a in node.attrs.get("axes", range(ndim))]
        if roi is None or roi.size != 2 * len(axes):
            raise ValueError(f"it resizes a part of the image, whose begin and end are needed for {len(axes)} axes")
        for a, begin, end in zip(axes, roi[: len(axes)].tolist(), roi[len(axes) :].tolist(), strict=True):
            found[a] = begin, end
    return found


def _resize(node, x, roi=None, scales=None, sizes=None):
    y = x if x.dtype.kind == "f" and x.dtype.itemsize > 2 else x.astype(np.float64)
    outside = np.zeros([1] * x.ndim, bool)
    for axis, *how in _axes(node, x.shape, roi, scales, sizes):
        each = [-1 if a == axis else 1 for a in range(x.ndim)]
        i, w = _weights(node, *how)
        y = sum(y.take(i[:, tap], axis) * w[:, tap].astype(y.dtype).reshape(each) for tap in range(i.shape[1]))
        if _transform(node) == "tf_crop_and_resize":
            places = _places(node, *how)
            outside = outside | ((places < 0) | (places > x.shape[axis] - 1)).reshape(each)
    y = np.where(outside, y.dtype.type(node.attrs.get("extrapolation_value", 0.0)), y) if outside.any() else y
    if x.dtype.kind in "iu":
        y = np.clip(np.rint(y), np.iinfo(x.dtype).min, np.iinfo(x.dtype).max)
    y = y.astype(x.dtype)
    return y.copy() if y.base is not None else y


def _resize_shape(node, x, *given):
    return _resize_sizes(node, x.shape, *[values(v, "size") for v in (*given, None, None, None)[:3]])[0]


def _lower_resize(p: LoweringContext, node):
    x, given = p.at(node.inputs[0]), [p.data(node.input(i)) for i in (1, 2, 3)]
    axes, out = _axes(node, x.shape, *given), p.known[node.output].shape
    if len(out) not in (3, 4, 5) or any(a < 2 for a, *_ in axes) or _transform(node) == "tf_crop_and_resize":
        return False
    nearest = x.dtype in INT8 and node.attrs.get("mode", "nearest") == "nearest"
    if x.dtype != np.float32 and not nearest:
        return False
    if not _is_simple(node):
        return not nearest and _lower_products(p, node, axes)
    kind, scales = "nearest" if nearest else "resize", {a - len(out): scale for a, _, _, scale, _ in axes}
    depth, rows, columns = (_points(node, scales.get(a, 1.0)) for a in (-3, -2, -1))
    if len(out) == 5:
        return conv3d.lower_resize(p, node, kind, (depth, rows, columns), _points(node, 1.0))
    x, y = _images(p, node, nearest)
    p.add(kind, node, x=x, y=y, rows=rows, columns=columns)
    return True


def _images(p: LoweringContext, node, pixels):
    """A node's image and result: planes become planes, unless only pixels are taken."""
    x = p.image(node, node.inputs[0])
    if x.strides[3] == 1 and not pixels and node.output not in p.concat_slots:
        return x, p.as_2d(p.result(node.output))
    return p.pixels(node, node.inputs[0]), p.as_2d(p.result(node.output, image=True, direct=False))


def _lower_products(p: LoweringContext, node, axes):
    """A resizing of more than two points is a product with a matrix of their weights for each axis, the last one
    first."""
    x = p.at(node.inputs[0])
    for axis, size, out, *how in reversed(axes):
        w = p.constant(deferred(_matrix, node, size, out, *how), (out, size))
        shape = (*x.shape[:axis], out, *x.shape[axis + 1 :])
        y = p.result(node.output) if axis == axes[0][0] else p.new(shape)
        if axis == len(shape) - 1:
            rows = math.prod(x.shape[:-1])
            a, b, result = p.reshape(node, x, (rows, size)), transposed(w), p.reshape(node, y, (rows, out))
        else:
            before, after = shape[:axis], math.prod(shape[axis + 1 :])
            a = broadcast(w, (*before, *w.shape))
            b, result = (p.reshape(node, t, (*before, t.shape[axis], after)) for t in (x, y))
        p.add("matmul", node, a=a, b=b, y=result, scale=1.0, activation=p.activation(node))
        x = y
    return bool(axes)


def _read_resize(r: GraphBuilder, node):
    if r.opset < 11:
        node.inputs = [node.inputs[0], "", node.inputs[1]]
        node.attrs |= {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    r.add(node)


def _read_upsample(r: GraphBuilder, node):
    """What Resize was before opset 10."""
    if "scales" in node.attrs:
        node.inputs.append(r.constant(f"{node.name}.scales", node.attrs.pop("scales"), np.float32))
    _read_resize(r, Node("Resize", node.name, node.inputs, node.outputs, node.attrs))


def _carries(node):
    """A resizing to nearest points moves them, but for what is outside the image."""
    nearest = node.attrs.get("mode", "nearest") == "nearest" and _transform(node) != "tf_crop_and_resize"
    return slice(0, 1) if nearest else None


RECORDS = {
    "Resize": Operator(
        _resize,
        Inference(_resize_shape, shape_inputs=(1, 2, 3), may_grow=True),
        Kernel(
            _lower_resize,
            "up to three spatial axes, but tf_crop_and_resize",
            dtypes=INT8_AND_FLOAT32,
            writes_strided=True,
        ),
        _read_resize,
        traits=Traits(moves_elements=_carries),
    ),
    "Upsample": Rewrite(_read_upsample, ("Resize",)),
}
