"""Resize, and what it was called before."""
import numpy as np

from ..builder import Builder
from ..ir import Node
from ..reader import Reader
from ..sizes import later
from .record import Operator, Rewrite, values


def _resize_sizes(node, shape, roi, scales, sizes):
    """(result's shape, scale of each axis) of a Resize. Scales are float32, and so are products with them: 10 * 0.7 is 7."""
    axes = [a % len(shape) for a in node.attrs.get("axes", range(len(shape)))]
    out, scale = list(shape), [1.0] * len(shape)
    if sizes is not None and sizes.size:
        ratios = [s / shape[a] for a, s in zip(axes, sizes.tolist(), strict=True)]
        policy = node.attrs.get("keep_aspect_ratio_policy", "stretch")
        if policy != "stretch":
            ratios = [min(ratios) if policy == "not_larger" else max(ratios)] * len(axes)
        for a, r, s in zip(axes, ratios, sizes.tolist(), strict=True):
            out[a], scale[a] = s if policy == "stretch" else int(np.floor(r * shape[a] + 0.5)), r
    else:
        for a, r in zip(axes, scales.tolist(), strict=True):
            out[a], scale[a] = shape[a] * int(r) if r == int(r) else int(np.float32(shape[a] * r)), r
    return tuple(out), scale


def _resize_table(node, size, out, scale):
    """How one axis is resized: (i0, i1, t) with y[o] = (1 - t[o]) x[i0[o]] + t[o] x[i1[o]]; for the nearest point (i0, None, None).

    As in PyTorch and ONNX Runtime, `align_corners` lets the corners of the two images meet, where ONNX's reference takes those of size * scale.
    """
    o, transform = np.arange(out, dtype=np.float64), node.attrs.get("coordinate_transformation_mode", "half_pixel")
    if transform == "align_corners":
        x = o * (size - 1) / max(out - 1, 1)
    elif transform == "asymmetric":
        x = o / scale
    elif transform == "tf_half_pixel_for_nn":
        x = (o + 0.5) / scale
    elif transform == "pytorch_half_pixel" and out == 1:
        x = np.zeros(1)
    else:
        x = (o + 0.5) / scale - 0.5
        if transform == "half_pixel_symmetric":
            x += size / 2 * (1 - out / (scale * size))
    if node.attrs.get("mode", "nearest") == "nearest":
        rounding = {"round_prefer_floor": lambda v: np.ceil(v - 0.5), "round_prefer_ceil": lambda v: np.floor(v + 0.5),
                    "floor": np.floor, "ceil": np.ceil}[node.attrs.get("nearest_mode", "round_prefer_floor")]
        return np.clip(rounding(x.astype(np.float32)), 0, size - 1).astype(np.int64), None, None
    x = np.clip(x, 0, size - 1)
    i0 = np.floor(x).astype(np.int64)
    return i0, np.minimum(i0 + 1, size - 1), (x - i0).astype(np.float32)


def _resize(node, x, roi=None, scales=None, sizes=None):
    out, scale = _resize_sizes(node, x.shape, roi, scales, sizes)
    for axis, (size, o, s) in enumerate(zip(x.shape, out, scale, strict=True)):
        if s == 1 and size == o:
            continue
        i0, i1, t = _resize_table(node, size, o, s)
        y = x.take(i0, axis)
        if i1 is not None:
            t = t.reshape([-1 if a == axis else 1 for a in range(x.ndim)])
            y = (1 - t) * y + t * x.take(i1, axis)
        x = y
    return x.copy() if x.base is not None else x


def _resize_shape(node, x, *given):
    return _resize_sizes(node, x.shape, *[values(v, "size") for v in (*given, None, None, None)[:3]])[0]


def _lower_resize(p: Builder, node):
    x = p.at(node.inputs[0])
    _, scale = _resize_sizes(node, x.shape, *(p.data(node.input(i)) for i in (1, 2, 3)))
    out = p.known[node.output].shape
    if len(out) not in (3, 4) or x.shape[:2] != out[:2] or scale[:2] != [1, 1]:
        return False
    x, y = p.pixels(node, node.inputs[0]), p.as_2d(p.result(node.output, image=True, direct=False))
    rows, cols = (
        later(_resize_table, node, x.shape[a], y.shape[a], s)
        for a, s in zip((2, 3), [1.0, *scale[2:]][-2:], strict=True)
    )
    p.add("resize", node, x=x, y=y, rows=rows, columns=cols)
    return True


def _read_resize(r: Reader, node):
    if r.opset < 11:
        node.inputs = [node.inputs[0], "", node.inputs[1]]
        node.attrs |= {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    mode, transform = node.attrs.get("mode", "nearest"), node.attrs.get("coordinate_transformation_mode", "half_pixel")
    if mode not in ("nearest", "linear") or transform == "tf_crop_and_resize" or node.attrs.get("antialias", 0):
        raise ValueError(f"resize {node.name!r} has mode {mode!r}, coordinates {transform!r}, antialias={node.attrs.get('antialias', 0)}: "
                         "fusedops has the modes nearest and linear, without antialiasing or cropping")
    r.add(node)


def _read_upsample(r: Reader, node):
    """What Resize was before opset 10."""
    if "scales" in node.attrs:
        node.inputs.append(r.constant(f"{node.name}.scales", node.attrs.pop("scales"), np.float32))
    _read_resize(r, Node("Resize", node.name, node.inputs, node.outputs, node.attrs))


RECORDS = {
    "Resize": Operator(_resize, _resize_shape, _lower_resize, _read_resize, shaping=(1, 2, 3), grows=True, anywhere=True,
                       note="the modes nearest and linear, one or two spatial axes"),
    "Upsample": Rewrite(_read_upsample, ("Resize",)),
}
