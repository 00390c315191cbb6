"""Convolutions, pools and resizing of images."""

import numpy as np

from ..call import FIRST, Helds
from .entry import Builtin, activated, as_shape, moved, ranked, same_quantization

_FIRST_3D, _LAST_3D = [0, 4, 1, 2, 3], [0, 2, 3, 4, 1]


def same_pads(sizes, kernel, strides, dilations):
    """Padding of SAME, all fronts before all ends: the odd one is at the end."""
    total = [
        max((-(-n // s) - 1) * s + (k - 1) * d + 1 - n, 0)
        for n, k, s, d in zip(sizes, kernel, strides, dilations, strict=True)
    ]
    return [t // 2 for t in total] + [t - t // 2 for t in total]


def window(r, op, x, kernel, strides, dilations):
    """Attributes of a convolution or pool of x, whose channels are last."""
    attrs = dict(strides=strides, dilations=dilations)
    if min(*strides, *dilations) < 1:
        raise op.error(f"its strides {strides} and dilations {dilations} must be at least 1")
    padding = r.padding.get(op.option("Padding"))
    if padding == "VALID":
        return attrs
    if padding != "SAME":
        raise op.error(f"the model is damaged: it has the padding {op.option('Padding')}")
    sizes = (r.sizes(x) or (None,))[1:-1]
    if len(sizes) != len(kernel) or None in sizes:
        return attrs | dict(auto_pad="SAME_UPPER")
    return attrs | dict(pads=same_pads(sizes, kernel, strides, dilations))


def weights(r, op, perm):
    """(a value with the weights in another order of axes, their shape in the file). Integers stay so after
    DequantizeLinear where the input is quantized too."""
    held = op.inputs[1]
    stored, q = r.array(held), held.quantization
    if stored is None:
        return r.emit("Transpose", r.value(held), perm=perm), r.fixed(held)
    if q is None or op.inputs[0].quantization is None:
        w = r.real_array(held)
        return r.constant(f"{r.at}.weights", np.ascontiguousarray(w.transpose(perm)), w.dtype), stored.shape
    value = r.constant(f"{r.at}.weights", np.ascontiguousarray(stored.transpose(perm)), stored.dtype)
    scale, zero = r.quantization(q, stored.dtype)
    return r.emit("DequantizeLinear", value, scale, zero, axis=perm.index(q.axis)), stored.shape


def bias(r, op, i):
    """The bias as floats, "" where there is none; one of integers has the scales of the products."""
    held = op.input(i)
    if held is None:
        return ""
    a, x, w = r.array(held), op.inputs[0].quantization, op.inputs[1].quantization
    if a is None:
        return r.value(held)
    if x is None or w is None or a.dtype.kind != "i":
        a = r.real_array(held)
        return r.constant(f"{r.at}.bias", a.reshape(-1), np.float32)
    each, nudge = a.reshape(-1) * (x.scale.astype(np.float64) * w.scale), _first_rounding(r, op)
    if nudge is not None and _never_negative(r, op):
        each = each + nudge * op.outputs[0].quantization.scale[0]
    return r.constant(f"{r.at}.bias", each, np.float32)


def _first_rounding(r, op):
    """What LiteRT's rounding of a product of integers, first to some bits after the point and then to a whole number,
    adds to its size before a single one: half of the last of these bits, in units of the result's scale, a channel."""
    x, w, y = op.inputs[0].quantization, op.inputs[1].quantization, op.outputs[0]
    if x is None or w is None or y.quantization is None or y.tensor.dtype.itemsize > 1:
        return None
    bits = -np.frexp(x.scale.astype(np.float64) * w.scale / y.quantization.scale[0])[1]
    return np.where(bits > 0, 0.5 ** (bits + 1.0), 0)


def _never_negative(r, op):
    """Whether results below zero are cut off, so that the bias may hold what is added to the size, for products of
    floats."""
    y, activation = op.outputs[0], r.activations.get(op.option("FusedActivationFunction"))
    return activation in ("RELU", "RELU6") or y.quantization.zero[0] == np.iinfo(y.tensor.dtype).min


def rounding(r, op, channels):
    """Attributes of a product that is rounded as LiteRT does."""
    nudge = _first_rounding(r, op)
    if nudge is None:
        return {}
    in_bias = int(op.input(2) is not None and _never_negative(r, op))
    return dict(nudge=np.array(np.broadcast_to(nudge, (channels,)), np.float32), nudge_in_bias=in_bias)


def _conv(r, op, w, shape, kernel, groups):
    x, strides = op.inputs[0], [op.option("StrideH", 1), op.option("StrideW", 1)]
    dilations = [op.option("DilationHFactor", 1), op.option("DilationWFactor", 1)]
    attrs = window(r, op, x, kernel, strides, dilations) | dict(kernel_shape=kernel, group=groups)
    attrs |= rounding(r, op, shape[3] if op.kind == "DEPTHWISE_CONV_2D" else shape[0])
    y = r.emit("Conv", r.value(x, True), w, bias(r, op, 2), **attrs)
    r.put(op.outputs[0], activated(r, op, y), True)


def _conv_2d(r, op):
    w, shape = weights(r, op, FIRST)
    if shape is None or len(shape) != 4:
        raise op.error(f"its weights have shape {shape}, not (outputs, height, width, inputs)")
    channels = _channels(r, op)
    if not shape[3] or channels % shape[3]:
        raise op.error(f"its weights take {shape[3]} channels, the input has {channels}")
    _conv(r, op, w, shape, list(shape[1:3]), channels // shape[3])


def _channels(r, op):
    """The channels of the first input."""
    sizes = r.sizes(op.inputs[0])
    if not sizes or not sizes[-1]:
        raise op.error(f"the channels of its input {op.inputs[0].tensor.name!r} are not known")
    return sizes[-1]


def _depthwise_conv_2d(r, op):
    w, shape = weights(r, op, [3, 0, 1, 2])
    if shape is None or len(shape) != 4 or shape[0] != 1:
        raise op.error(f"its weights have shape {shape}, not (1, height, width, outputs)")
    _conv(r, op, w, shape, list(shape[1:3]), _channels(r, op))


def transposed(r, op, w, shape, sizes, b, strides, begins):
    """A transposed convolution of weights (outputs, height, width, inputs) to the given height and width, cropped in
    front by `begins`."""
    kernel, inner = list(shape[1:3]), r.sizes(op.inputs[0])
    if inner is None or None in inner[1:3]:
        raise op.error("a transposed convolution of an open size: convert it with fixed sizes")
    full = [(n - 1) * s + k for n, s, k in zip(inner[1:3], strides, kernel, strict=True)]
    ends = [f - b - n for f, b, n in zip(full, begins, sizes, strict=True)]
    attrs = dict(kernel_shape=kernel, strides=strides, pads=[*begins, *(max(e, 0) for e in ends)])
    attrs["output_padding"] = [max(-e, 0) for e in ends]
    return r.emit("ConvTranspose", r.value(op.inputs[0], True), w, b, **attrs)


def _transpose_conv(r, op):
    sizes = op.constant(0, "shape of the result").reshape(-1).tolist()
    given = op.inputs
    op.inputs = Helds([given[2], given[1], op.input(3)])  # as a convolution has them
    w, shape = weights(r, op, [3, 0, 1, 2])
    if shape is None or len(shape) != 4 or len(sizes) != 4:
        raise op.error(f"its weights have shape {shape}, its result {sizes}: both have four axes")
    strides, kernel = [op.option("StrideH", 1), op.option("StrideW", 1)], shape[1:3]
    if min(strides) < 1:
        raise op.error(f"its strides {strides} must be at least 1")
    same = r.padding.get(op.option("Padding")) == "SAME"
    begins = same_pads(sizes[1:3], kernel, strides, [1, 1])[:2] if same else [0, 0]
    y = transposed(r, op, w, shape, sizes[1:3], bias(r, op, 2), strides, begins)
    r.put(op.outputs[0], activated(r, op, y), True)


def _kernel_3d(r, op, held):
    sizes = r.fixed(held)
    if sizes is None or len(sizes) != 5:
        raise op.error(f"its weights have shape {sizes}, not (depth, height, width, inputs, outputs)")
    return sizes[:3]


def _conv_3d(r, op):
    held = op.inputs[1]
    kernel, x = list(_kernel_3d(r, op, held)), r.emit("Transpose", r.value(op.inputs[0]), perm=_FIRST_3D)
    strides = [op.option(f"Stride{a}", 1) for a in "DHW"]
    dilations = [op.option(f"Dilation{a}Factor", 1) for a in "DHW"]
    attrs = window(r, op, op.inputs[0], kernel, strides, dilations)
    channels, inner = _channels(r, op), r.sizes(held)[3]
    if not inner or channels % inner:
        raise op.error(f"its weights take {inner} channels, the input has {channels}")
    w = r.emit("Transpose", r.value(held), perm=[4, 3, 0, 1, 2])
    y = r.emit("Conv", x, w, bias(r, op, 2), kernel_shape=kernel, group=channels // inner, **attrs)
    r.put(op.outputs[0], r.emit("Transpose", activated(r, op, y), perm=_LAST_3D))


def _conv_3d_transpose(r, op):
    sizes, inner = op.constant(0, "shape of the result").reshape(-1).tolist(), r.sizes(op.inputs[2])
    if inner is None or None in inner[1:4]:
        raise op.error("a transposed convolution of an open size: convert it with fixed sizes")
    kernel, strides = list(_kernel_3d(r, op, op.inputs[1])), [op.option(f"Stride{a}", 1) for a in "DHW"]
    same = r.padding.get(op.option("Padding")) == "SAME"
    begins = (same_pads(sizes[1:4], kernel, strides, [1] * 3) if same else [0] * 6)[:3]
    full = [(n - 1) * s + k for n, s, k in zip(inner[1:4], strides, kernel, strict=True)]
    ends = [f - b - n for f, b, n in zip(full, begins, sizes[1:4], strict=True)]
    w = r.emit("Transpose", r.value(op.inputs[1]), perm=[4, 3, 0, 1, 2])
    y = r.emit(
        "ConvTranspose",
        r.emit("Transpose", r.value(op.inputs[2]), perm=_FIRST_3D),
        w,
        r.value(op.inputs[3]) if op.input(3) else "",
        kernel_shape=kernel,
        strides=strides,
        pads=[*begins, *(max(e, 0) for e in ends)],
        output_padding=[max(-e, 0) for e in ends],
    )
    r.put(op.outputs[0], r.emit("Transpose", activated(r, op, y), perm=_LAST_3D))


# ---- pools


def _pool_attrs(r, op):
    kernel = [op.option("FilterHeight", 1), op.option("FilterWidth", 1)]
    strides = [op.option("StrideH", 1), op.option("StrideW", 1)]
    return dict(kernel_shape=kernel) | window(r, op, op.inputs[0], kernel, strides, [1, 1])


def _average_pool_2d(r, op):
    attrs, plain = _pool_attrs(r, op), r.activations.get(op.option("FusedActivationFunction")) == "NONE"
    if plain and _is_raw(op):
        return _of_raw(r, op, lambda x: r.emit("AveragePool", x, **attrs))
    y = r.emit("AveragePool", r.value(op.inputs[0], True), **attrs)
    return r.put(op.outputs[0], activated(r, op, y), True)


def _is_raw(op):
    """Whether the integers of a file themselves are averaged, as signed ones."""
    x, y = op.inputs[0], op.outputs[0]
    signed = x.tensor.dtype == np.int8 or x.raw
    return bool(x.quantization is not None and signed and same_quantization(x, y) and x.quantization.scale.size == 1)


def _of_raw(r, op, average):
    """A mean of integers as LiteRT rounds it: halves away from zero, and so by a factor a little above 1."""
    x, y = op.inputs[0], op.outputs[0]
    zero = r.constant(f"{r.at}.raw", x.raw, x.tensor.dtype)
    value = r.emit("DequantizeLinear", r.value(x, True, False), r.number(1 + 2.0**-19), zero)
    r.put(y, r.emit("QuantizeLinear", average(value), r.number(1), zero), True, real=False)


def _max_pool_2d(r, op):
    attrs, plain = _pool_attrs(r, op), r.activations.get(op.option("FusedActivationFunction")) == "NONE"
    if plain:
        return moved(r, op, lambda x, first: r.emit("MaxPool", x, **attrs), first=True)
    y = r.emit("MaxPool", r.value(op.inputs[0], True), **attrs)
    return r.put(op.outputs[0], activated(r, op, y), True)


def _l2_pool_2d(r, op):
    x = r.value(op.inputs[0], True)
    y = r.emit("Sqrt", r.emit("AveragePool", r.emit("Mul", x, x), **_pool_attrs(r, op)))
    r.put(op.outputs[0], activated(r, op, y), True)


# ---- resizing


def _resized(r, op, **attrs):
    def make(x, first):
        return r.emit("Resize", x, "", "", as_shape(r, op, 1), axes=[2, 3], **attrs)

    moved(r, op, make, first=True)


def _resize_bilinear(r, op):
    form = "align_corners" if op.option("AlignCorners") else "half_pixel"
    form = form if op.option("AlignCorners") or op.option("HalfPixelCenters") else "asymmetric"
    x, y, attrs = op.inputs[0], op.outputs[0], dict(mode="linear", coordinate_transformation_mode=form)
    if x.quantization is None or not same_quantization(x, y):
        return _resized(r, op, **attrs)
    if x.tensor.kind != "UINT8":
        attrs |= _rounded_ratios(r, op)

    def make(value):
        return r.emit("Resize", value, "", "", as_shape(r, op, 1), axes=[2, 3], **attrs)

    return _of_raw(r, op, make) if _is_raw(op) else r.put(y, make(r.value(x, True)), True)


def _rounded_ratios(r, op):
    sizes, wanted, corners = r.sizes(op.inputs[0]), r.array(op.inputs[1]), op.option("AlignCorners")
    if sizes is None or None in sizes[1:3] or wanted is None:
        return {}
    if wanted.size != 2 or wanted.min() < 1:
        raise op.error(f"it makes an image of {wanted.reshape(-1).tolist()}, which is not a height and a width")
    ends = [(n - 1, m - 1) if corners and m > 1 else (n, m) for n, m in zip(sizes[1:3], wanted.tolist(), strict=True)]
    steps = [(1024 * n + m // 2) // m for n, m in ends]
    if 0 in steps:  # of one pixel
        return {}
    form = dict(coordinate_transformation_mode="asymmetric") if corners else {}
    return form | dict(ratios=[1024 / step for step in steps])


def _resize_nearest(r, op):
    corners, half = op.option("AlignCorners"), op.option("HalfPixelCenters")
    sizes, wanted = r.sizes(op.inputs[0]), r.array(op.inputs[1])
    if wanted is not None and (wanted.size != 2 or wanted.min() < 1):
        raise op.error(f"it makes an image of {wanted.reshape(-1).tolist()}, which is not a height and a width")
    if sizes is not None and None not in sizes[1:3] and wanted is not None:
        places = [_nearest(n, int(m), corners, half) for n, m in zip(sizes[1:3], wanted.reshape(-1), strict=True)]
        exact = [_exact_nearest(n, int(m), corners, half) for n, m in zip(sizes[1:3], wanted.reshape(-1), strict=True)]
        if any(not np.array_equal(a, b) for a, b in zip(places, exact, strict=True)):  # TFLite rounds the ratio
            return moved(r, op, lambda x, first: _gathered(r, x, places), first=True)
    form = "align_corners" if corners else "tf_half_pixel_for_nn" if half else "asymmetric"
    rounding = "round_prefer_ceil" if corners else "floor"
    return _resized(r, op, mode="nearest", coordinate_transformation_mode=form, nearest_mode=rounding)


def _gathered(r, x, places):
    for axis, at in enumerate(places, 2):
        x = r.emit("Gather", x, at.tolist(), axis=axis)
    return x


def _nearest(n, m, corners, half):
    """The nearest points of an axis of n for one of m, as TFLite finds them, in float32."""
    scale = np.float32((n - 1) / (m - 1)) if corners and m > 1 else np.float32(n) / np.float32(m)
    at = (np.arange(m, dtype=np.float32) + np.float32(0.5 if half else 0)) * scale
    return np.clip(np.floor(at + np.float32(0.5)) if corners else np.floor(at), 0, n - 1).astype(np.int64)


def _exact_nearest(n, m, corners, half):
    o = np.arange(m)
    if corners:
        return (2 * o * (n - 1) + max(m - 1, 1)) // (2 * max(m - 1, 1))
    return np.minimum((2 * o + 1) * n // (2 * m) if half else o * n // m, n - 1)


def _space_to_depth(r, op):
    block = op.option("BlockSize", 1)
    moved(r, op, lambda x, first: r.emit("SpaceToDepth", x, blocksize=block), first=True)


def _depth_to_space(r, op):
    block = op.option("BlockSize", 1)
    moved(r, op, lambda x, first: r.emit("DepthToSpace", x, blocksize=block), first=True)


def _local_response_normalization(r, op):
    size = 2 * op.option("Radius") + 1
    attrs = dict(size=size, alpha=op.option("Alpha") * size, beta=op.option("Beta"), bias=op.option("Bias"))
    r.put(op.outputs[0], r.emit("LRN", r.value(op.inputs[0], True), **attrs), True)


def _dilate(r, op):
    """Zeros, or a value, between the elements."""
    by, fill = op.constant(1, "dilations").reshape(-1).tolist(), r.value(op.inputs[2])
    x, rank = r.value(op.inputs[0]), ranked(r, op, op.inputs[0])
    if len(by) != rank or min(by, default=1) < 1:
        raise op.error(f"it spreads a tensor of {rank} axes by {by}")
    for axis, d in enumerate(by):
        if d > 1:  # each element with what is after it, but for the last one
            x = r.emit("Pad", r.emit("Unsqueeze", x, [axis + 1]), [0, d - 1], fill, [axis + 1])
            around = (r.emit("Shape", x, start=0, end=axis), [-1], r.emit("Shape", x, start=axis + 2))
            x = r.emit("Slice", r.emit("Reshape", x, r.emit("Concat", *around, axis=0)), [0], [1 - d], [axis])
    r.put(op.outputs[0], x)


_CONSTANT = "of a constant size"
READERS = {
    "AVERAGE_POOL_2D": Builtin(_average_pool_2d),
    "CONV_2D": Builtin(_conv_2d),
    "CONV_3D": Builtin(_conv_3d),
    "CONV_3D_TRANSPOSE": Builtin(_conv_3d_transpose, _CONSTANT),
    "DEPTHWISE_CONV_2D": Builtin(_depthwise_conv_2d),
    "DEPTH_TO_SPACE": Builtin(_depth_to_space),
    "DILATE": Builtin(_dilate),
    "L2_POOL_2D": Builtin(_l2_pool_2d),
    "LOCAL_RESPONSE_NORMALIZATION": Builtin(_local_response_normalization),
    "MAX_POOL_2D": Builtin(_max_pool_2d),
    "RESIZE_BILINEAR": Builtin(_resize_bilinear),
    "RESIZE_NEAREST_NEIGHBOR": Builtin(_resize_nearest),
    "SPACE_TO_DEPTH": Builtin(_space_to_depth),
    "TRANSPOSE_CONV": Builtin(_transpose_conv, _CONSTANT),
}
