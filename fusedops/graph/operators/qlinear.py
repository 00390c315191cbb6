"""What fusion makes of DequantizeLinear, an operator and QuantizeLinear: operators on bytes.

A node's attributes have the quantizations, pairs of scale and zero point: ``x_q`` of its input, ``residual_q`` of its
residual and ``y_q`` of its result, whose type is ``y_type``. Without one the tensor is float32; a product quantizes
floats as they come (dynamic). Weights are int8; their scales, one for each output channel, are an input. ``w_zero``:
the zero points of those that do not fit int8 without. ``product_q`` and ``product_type``: a product with its bias is
rounded to these bytes before a residual is added. ``nudge``, in units of the scale of what products are rounded to
first, is added to the size of each product and its bias, so that results are those of kernels that round twice;
``nudge_in_bias``: the bias has it for products of floats, whose results below zero are cut off. A Requantize, whose
result is floats again, rounds to integers of ``x_q`` and ``x_type``.
"""

import math
from dataclasses import replace

import numpy as np

from ... import _core, activations
from ...layers import QConv2d, QLinear
from ...layers import windows as parsed
from ...quantization import Quantization
from ..ir.dtypes import INT8, INT8_AND_FLOAT32
from ..ir.symbolic import is_symbolic
from ..steps.lowering import LoweringContext
from ..steps.tensor import broadcast, channels_last, in_order_of, row_major, same_order
from . import conv_geometry, pool
from .conv import convolution, convolution_shape
from .schema import Inference, Kernel, Operator, Traits, broadcast_shape, same_shape


def as_int8(q, zero, axis):
    """(uint8 or int8 weights as int8, a zero point for each output, those of an axis): None where weights less theirs
    fit; uint8 ones and their zero points are moved by 128."""
    low = np.iinfo(q.dtype).min + 128
    each = np.broadcast_to(np.int16(0) if zero is None else zero.reshape(-1).astype(np.int16), q.shape[axis])
    others = tuple(a for a in range(q.ndim) if a != axis)
    fits = not q.size or (each == low).all()
    fits = fits or (q.min(others) - each).min() >= -128 and (q.max(others) - each).max() <= 127
    less = each.reshape([-1 if a == axis else 1 for a in range(q.ndim)]) if fits else np.int16(low)
    moved = (q.view(np.uint8) - less.astype(np.uint8)).view(np.int8)  # as numbers modulo 256
    return moved, None if fits else (each - low).astype(np.int8)


def real(node, name, x):
    """A tensor as real numbers: that of bytes by the quantization of this name."""
    if node.attrs.get(name) is None:
        return x
    scale, zero = node.attrs[name]
    return (x.astype(np.int32) - zero).astype(np.float32) * np.float32(scale)


def rounded(node, name, y):
    """Real numbers as those of bytes of the quantization of this name, or as they are."""
    return y if node.attrs.get(f"{name}_q") is None else real(node, f"{name}_q", quantized(node, y, name))


def quantized(node, y, name="y"):
    """The result of a node, or what has this name, as it says: bytes, or as it is."""
    if node.attrs.get(f"{name}_q") is None:
        return y
    scale, zero = node.attrs[f"{name}_q"]
    with np.errstate(invalid="ignore"):
        return saturate(np.rint(y / np.float32(scale)), zero, np.dtype(node.attrs[f"{name}_type"]))


def saturate(rounded, zero_point, dtype):
    """The integers of a type that are nearest to rounded + zero_point; NaN gives the lowest one, as in the kernels."""
    info = np.iinfo(dtype)
    return np.fmin(np.fmax(rounded.astype(np.float64) + zero_point, info.min), info.max).astype(dtype)


def _type(node, inputs, i):
    return np.dtype(np.float32 if node.attrs.get("y_q") is None else node.attrs["y_type"])


def dynamic(x, each=0):
    """x as uint8, with the scale and zero point that its least and largest value ask for, of each index of the first
    `each` axes."""
    axis = tuple(range(each, x.ndim)) if each else None
    low, high = (np.float32(f(x.astype(np.float32), axis, keepdims=each > 0, initial=0)) for f in (np.min, np.max))
    scale = (high - low) / np.float32(255)
    scale = np.where(scale == 0, np.float32(1), scale)
    with np.errstate(invalid="ignore"):
        zero = np.clip(np.rint(-low / scale), 0, 255).astype(np.uint8)
        return np.clip(np.rint(x / scale) + zero, 0, 255).astype(np.uint8), scale, zero


def requantized(x):
    """x as it is in int8."""
    q, scale, zero = dynamic(x)
    return (q.astype(np.float32) - zero) * scale


def _product(node, x, w_scale, bias, axes, sums):
    """Exact sums of products as real numbers; float64 holds them."""
    x, scale, zero = (x, *node.attrs["x_q"]) if node.attrs.get("x_q") else dynamic(x, node.attrs.get("each", 0))
    each = (-1, *[1] * axes)
    y = sums(x.astype(np.float64) - zero).astype(np.float32) * (np.float32(scale) * w_scale.reshape(each))
    y = y if bias is None else y + bias.reshape(each)
    nudge = None if node.attrs.get("nudge_in_bias") else _nudge(node)
    return y if nudge is None else y + np.copysign(nudge.reshape(each), y)


def _nudge(node):
    """What is added to the size of a product before it is rounded, as a real number; None: nothing."""
    first, nudge = node.attrs.get("product_q") or node.attrs.get("y_q"), node.attrs.get("nudge")
    return None if first is None or nudge is None else nudge * np.float32(first[0])


def _less_zero(node, w):
    zero = node.attrs.get("w_zero")
    return w.astype(np.float64) - (0 if zero is None else zero.reshape(-1, *[1] * (w.ndim - 1)))


def _conv(node, x, w, bias, w_scale):
    return _product(node, x, w_scale, bias, x.ndim - 2, lambda x: convolution(node, x, _less_zero(node, w)))


def _linear(node, x, w, bias, w_scale):
    return _product(node, x, w_scale, bias, 0, lambda x: x @ _less_zero(node, w).T)


def _conv_shape(node, x, w, *others):
    return convolution_shape(node, x, w)


def _linear_shape(node, x, w, *others):
    if len(w.shape) != 2 or x.shape[-1:] != w.shape[1:]:
        raise ValueError(f"weights of shape {w.shape} do not fit an input of shape {x.shape}")
    return (*x.shape[:-1], w.shape[0])


def _layer(p: LoweringContext, node, make, **options):
    """The prepared layer of a node."""
    w, bias, scale = map(p.data, node.inputs[1:4])
    ends = {name: Quantization(*q) for name in ("x_q", "residual_q", "y_q") if (q := node.attrs.get(name))}
    return p.layer(
        node.name, lambda: make(w, w_q=Quantization(scale), bias=bias, activation=node.activation, **ends, **options)
    )


def _prepared(node):
    """Whether the layer is one that users make: it has a quantized input, and is rounded once."""
    once = node.attrs.get("nudge") is None or node.attrs.get("y_q") is None
    return node.attrs.get("x_q") and once and not any(name in node.attrs for name in ("product_q", "w_zero"))


def _packed_layer(p: LoweringContext, node, window=None):
    """Another layer: one that quantizes all of its floats alike, or rounds twice; window: the options of a
    convolution."""
    w, bias, scale = map(p.data, node.inputs[1:4])
    bias = _own_bias(node, bias)
    ends = [tuple(q) if (q := node.attrs.get(name)) else None for name in ("x_q", "residual_q", "y_q")]
    rounds = dict(
        nudge=node.attrs.get("nudge") if ends[2] else None, product_q=_product_q(node), w_zero=node.attrs.get("w_zero")
    )

    def make():
        activation = p.activation(node, len(w))
        if window is None:
            plan = _core.QLinearPlan()
            plan._pack(
                w, scale, bias, activation, *ends, whole=ends[0] is None and not node.attrs.get("each"), **rounds
            )
        else:
            plan, images = _core.QConv2dPlan(), _images(w)
            options = parsed(images, padding=0, **window)
            plan._pack(images, scale, bias, activation, *options, *ends, **rounds)
        return plan

    return p.layer(node.name, make)


def _own_bias(node, bias):
    """A bias without what was added to it for products of floats."""
    nudge = _nudge(node) if node.attrs.get("nudge_in_bias") else None
    return bias if nudge is None or bias is None else bias - nudge


def _product_q(node):
    """product_q as uint8 has it."""
    if node.attrs.get("product_q") is None:
        return None
    scale, zero = node.attrs["product_q"]
    return scale, zero + (128 if node.attrs["product_type"] == "int8" else 0)


def _images(w):
    """Weights of images; those of rows are of height 1."""
    return np.ascontiguousarray(w.reshape(*w.shape[:2], -1, w.shape[-1]))


def _fits(p: LoweringContext, node, shape):
    """Whether the residual has the shape of the product."""
    product = tuple(shape(node, *[p.known[v] if v else None for v in node.inputs]))
    return not node.residual or product == p.known[node.residual].shape == p.known[node.output].shape


def _types(*tensors):
    return tuple(t and t.dtype for t in tensors)


def _lower_conv(p: LoweringContext, node):
    w = p.data(node.inputs[1])
    if w.ndim not in (3, 4) or not _fits(p, node, _conv_shape):
        return False
    strides, dilations, pads = conv_geometry.window(node, p.known[node.inputs[0]].shape[2:], w.shape[2:])
    if w.ndim == 3:
        strides, dilations, pads = [1, *strides], [1, *dilations], [(0, 0), *pads]
    x, y = p.as_2d(p.at(node.inputs[0])), p.as_2d(p.result(node.output, image=True))
    x, pads = conv_geometry.cropped(node, x, pads)
    count = _pixels_together(node, w, x, y, [*strides, *map(sum, pads)])
    if count > 1:
        _lower_together(p, node, w, x, y, count)
        return True
    window = dict(stride=tuple(strides), dilation=tuple(dilations), groups=node.attrs.get("group", 1), layout="NHWC")
    if _prepared(node):
        layer = _layer(p, node, lambda w, **options: QConv2d(_images(w), **options), **window)
    else:
        layer = _packed_layer(p, node, window)
    r = p.as_2d(p.at(node.residual)) if node.residual else None
    p.add("qconv2d", node, layer=layer, types=_types(x, r, y), x=x, y=y, residual=r, top=pads[0][0], left=pads[1][0])
    return True


FEW, PIXELS = 8, 1024  # outputs that fill a part of a vector; pixels from which on more weights pay


def _pixels_together(node, w, x, y, window):
    """How many pixels in a row a product of few outputs takes at once."""
    n, pixels = len(w), math.prod(x.shape[2:])
    plain = node.attrs.get("x_q") and not node.residual and activations.parse(node.activation, n)[3] is None
    if (
        not plain
        or "w_zero" in node.attrs
        or window != [1, 1, 0, 0]
        or w.size != n * w.shape[1]
        or node.attrs.get("group", 1) > 1
        or n > FEW
        or not _in_a_row(x)
        or not _in_a_row(y)
    ):
        return 1
    return next((c for c in (8, 4, 2) if pixels % c == 0 and c * n <= 2 * FEW and pixels >= PIXELS), 1)


def _in_a_row(t):
    """Whether the pixels of one image of known size are neighbors."""
    return not is_symbolic(t.shape) and t.shape[0] == 1 and same_order(t.shape, t.strides, channels_last(t.shape))


def _lower_together(p: LoweringContext, node, w, x, y, count):
    """A product of few outputs for each pixel as one for `count` pixels, whose weights stand on a diagonal: 2 outputs
    of 16 channels take a third of the time."""
    n, k = w.shape[:2]
    wide = np.kron(np.eye(count, dtype=np.int8), w.reshape(n, k))
    given = p.data(node.inputs[3]), _own_bias(node, p.data(node.inputs[2])), node.attrs.get("nudge")
    scale, bias, nudge = (a if a is None else np.tile(a, count) for a in given)
    ends = [tuple(q) if (q := node.attrs.get(name)) else None for name in ("x_q", "residual_q", "y_q")]

    def make():
        plan = _core.QLinearPlan()
        plan._pack(wide, scale, bias, p.activation(node, count * n), *ends, nudge=nudge if ends[2] else None)
        return plan

    rows = [
        t._replace(shape=(math.prod(t.shape[2:]) // count, count * c), strides=(count * c, 1))
        for t, c in ((x, k), (y, n))
    ]
    layer = p.layer(f"{node.name} by {count}", make)
    p.add("qlinear", node, layer=layer, types=_types(x, None, y), x=rows[0], y=rows[1], residual=None)


def _rows(p: LoweringContext, node, t, shape):
    """A tensor as rows whose elements are neighbors."""
    t = p.reshape(node, t, shape)
    return t if t.strides[1] == 1 or shape[1] == 1 else p.dense(node, t, row_major(shape))


def _lower_linear(p: LoweringContext, node):
    if not _fits(p, node, _linear_shape):
        return False
    layer = _layer(p, node, QLinear) if _prepared(node) else _packed_layer(p, node)
    y = p.result(node.output)
    m, n, k = math.prod(y.shape[:-1]), y.shape[-1], p.known[node.inputs[1]].shape[1]
    y = y._replace(shape=(m, n), strides=(n, 1))
    x = _rows(p, node, p.at(node.inputs[0]), (m, k))
    r = _rows(p, node, p.at(node.residual), (m, n)) if node.residual else None
    p.add("qlinear", node, layer=layer, types=_types(x, r, y), x=x, y=y, residual=r)
    return True


def lower_convert(i):
    """Lowers QuantizeLinear (i 0) or DequantizeLinear (1) of one constant quantization."""

    def lower(p: LoweringContext, node):
        found = quantization(*[p.data(v) for v in node.inputs[1:3]])
        x, known = p.at(node.inputs[0]), p.known[node.output]
        ends = x.dtype, known.dtype
        if isinstance(found, str) or ends[i] != np.float32 or ends[1 - i] not in INT8:
            return False
        y = p.result(node.output, like=x)
        x = p.dense(node, x, y.strides)
        p.add("convert", node, x=x, y=y, q=found, **{"from": x.dtype, "to": y.dtype})
        return True

    return lower


def _lower_requantize(p: LoweringContext, node):
    x = p.at(node.inputs[0])
    y, q = p.result(node.output, like=x), node.attrs.get("x_q")
    if q is not None and node.attrs["x_type"] == "int8":
        q = q[0], q[1] + 128  # the same numbers by uint8
    p.add("requantize", node, x=p.dense(node, x, y.strides), y=y, q=q)
    return True


def _lookup(node, x, table):
    return table[x.view(np.uint8)]


def _lower_lookup(p: LoweringContext, node):
    x = p.at(node.inputs[0])
    p.add("lookup", node, x=x, y=p.result(node.output, like=x), table=p.data(node.inputs[1]))
    return True


def _pair(function):
    def run(node, a, b):
        return function(real(node, "a_q", a), real(node, "b_q", b))

    return run


def _lower_pair(name):
    def lower(p: LoweringContext, node):
        a, b = map(p.at, node.inputs)
        ends = [node.attrs["a_q"], node.attrs["b_q"]]
        shape = p.known[node.output].shape
        if a.shape != shape and name != "sub":
            a, b, ends = b, a, ends[::-1]
        if a.shape != shape:
            return False
        y = p.result(node.output, like=a, image=len(shape) == 4, direct=False)  # may be a part of a concatenation
        if 1 not in [s for n, s in zip(shape, y.strides, strict=True) if n != 1]:  # of one channel: copied there
            y = p.new(shape, None, y.dtype)
            p.view(node.output, y)
        dense = in_order_of(shape, y.strides)
        a = p.dense(node, a, dense)
        b = p.dense(node, b, dense) if b.shape == shape else broadcast(b, shape)
        if any(n != 1 and s == 1 and t not in (0, 1) for n, s, t in zip(shape, y.strides, b.strides, strict=True)):
            return False
        p.add(
            "qbinary",
            node,
            name=name,
            types=_types(a, b, y),
            q=(*map(tuple, ends), tuple(node.attrs["y_q"])),
            a=a,
            b=b,
            y=y,
            activation=p.activation(node),
        )
        return True

    return lower


def _mean(evaluate):
    def run(node, x):
        return evaluate(node, real(node, "x_q", x))

    return run


MAX_POINTS = (2**31 - 1) // 255  # of a mean whose sum of bytes fits 32 bits


def _lower_mean(p: LoweringContext, node):
    shape = p.known[node.inputs[0]].shape
    if len(shape) not in (3, 4):
        return False
    windows_ = node if "kernel_shape" in node.attrs else replace(node, attrs=node.attrs | {"kernel_shape": shape[2:]})
    if math.prod(windows_.attrs["kernel_shape"]) > MAX_POINTS:
        return False
    return pool.lower_pool("avg_pool")(p, windows_)


def quantization(scale, zero_point=None):
    """(scale, zero_point) of constants of one tensor, or why they are none."""
    if scale is None or not isinstance(scale, np.ndarray):
        return "its scale is not constant"
    if scale.size != 1:
        return f"it has {scale.size} scales"
    if scale.dtype != np.float32:
        return f"its scale is {scale.dtype}"
    s, zero = scale.item(), 0 if zero_point is None else zero_point
    if not np.finfo(np.float32).tiny <= s <= np.finfo(np.float32).max:
        return f"its scale is {s}"
    return s, int(np.asarray(zero).reshape(-1)[0])


def _quantized_layer(evaluate, shape, lower, what, strided):
    """A layer whose input, residual and result may be quantized."""
    kernel = Kernel(
        lower,
        dtypes=INT8_AND_FLOAT32,
        fuses=("residual", "activation", "slopes"),
        writes_strided=strided,
        weights=what,
        scale_input=3,
    )
    return Operator(evaluate, Inference(shape, _type), kernel, None, optional={2})


def _between(evaluate, shape, lower):
    """An operator on quantized values, to a quantized one."""
    return Operator(
        evaluate, Inference(shape, _type), Kernel(lower, dtypes=INT8_AND_FLOAT32, writes_strided=True), None
    )


RECORDS = {
    "DynamicRequantize": Operator(
        lambda node, x: requantized(x), Inference(same_shape), Kernel(_lower_requantize), None
    ),
    "Lookup": Operator(
        _lookup,
        Inference(lambda node, x, table: x.shape, dtype=lambda node, inputs, i: inputs[1].dtype),
        Kernel(_lower_lookup, dtypes=frozenset(INT8)),
        None,
        traits=Traits(elementwise=True),
    ),
    "Requantize": Operator(
        lambda node, x: rounded(node, "x", x), Inference(same_shape), Kernel(_lower_requantize), None
    ),
    "QuantizedAdd": _between(_pair(np.add), broadcast_shape, _lower_pair("add")),
    "QuantizedAveragePool": _between(_mean(pool.average_pool), pool.pool_shape, _lower_mean),
    "QuantizedConv": _quantized_layer(_conv, _conv_shape, _lower_conv, "convolution of int8", True),
    "QuantizedGlobalAveragePool": _between(_mean(pool.whole_mean), pool.whole_shape, _lower_mean),
    "QuantizedLinear": _quantized_layer(_linear, _linear_shape, _lower_linear, "product of int8", False),
    "QuantizedMul": _between(_pair(np.multiply), broadcast_shape, _lower_pair("mul")),
    "QuantizedSub": _between(_pair(np.subtract), broadcast_shape, _lower_pair("sub")),
}
