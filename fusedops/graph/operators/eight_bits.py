"""What fusion makes of DequantizeLinear, an operator and QuantizeLinear: operators on bytes.

A node's attributes have the quantisations, pairs of scale and zero point: ``x_q`` of its input, ``residual_q`` of its
residual and ``y_q`` of its result, whose type is ``y_type``. Without one the tensor is float32. Weights are int8 with
zero point 0; their scales, one for each output channel, are an input.
"""
import math
from typing import Any

import numpy as np

from ...quantized import QConv2d, QLinear, Quantization
from ..builder import Builder
from ..memory import row_major
from . import windows
from .conv import convolution, convolution_shape
from .record import Operator

BYTES = np.dtype(np.uint8), np.dtype(np.int8)


def real(node, name, x):
    """A tensor as real numbers: that of bytes by the quantisation of this name."""
    if node.attrs.get(name) is None:
        return x
    scale, zero = node.attrs[name]
    return (x.astype(np.int32) - zero).astype(np.float32) * np.float32(scale)


def quantized(node, y):
    """The result of a node as it says: bytes, or as it is."""
    if node.attrs.get("y_q") is None:
        return y
    scale, zero = node.attrs["y_q"]
    dtype = np.dtype(node.attrs["y_type"])
    with np.errstate(invalid="ignore"):
        info, q = np.iinfo(dtype), np.rint(y / np.float32(scale)) + zero
        return np.where(np.isnan(q), info.min, np.clip(q, info.min, info.max)).astype(dtype)


def _type(node, inputs, i):
    return np.dtype(np.float32 if node.attrs.get("y_q") is None else node.attrs["y_type"])


def _sums(node, sums, w_scale, bias, axes):
    """Exact sums of products as real numbers."""
    each = (-1, *[1] * axes)
    y = sums.astype(np.float32) * (np.float32(node.attrs["x_q"][0]) * w_scale).reshape(each)
    return y if bias is None else y + bias.reshape(each)


def _centred(node, x):
    """x less its zero point in float64, whose sums of products of bytes are exact."""
    return x.astype(np.float64) - node.attrs["x_q"][1]


def _conv(node, x, w, bias, w_scale):
    return _sums(node, convolution(node, _centred(node, x), w.astype(np.float64)), w_scale, bias, x.ndim - 2)


def _linear(node, x, w, bias, w_scale):
    return _sums(node, _centred(node, x) @ w.T.astype(np.float64), w_scale, bias, 0)


def _conv_shape(node, x, w, *others):
    return convolution_shape(node, x, w)


def _linear_shape(node, x, w, *others):
    if x.shape[-1] != w.shape[1]:
        raise ValueError(f"the weights {w.shape} need a last axis of {w.shape[1]}")
    return (*x.shape[:-1], w.shape[0])


def _layer(p: Builder, node, make, **options):
    """The prepared layer of a node."""
    w, bias, scale = map(p.data, node.inputs[1:4])
    ends = {name: q and Quantization(*q) for name in ("x_q", "residual_q", "y_q") if (q := node.attrs.get(name))}
    return p.layer(
        node.name, lambda: make(w, w_q=Quantization(scale), bias=bias, activation=node.activation, **ends, **options)
    )


def _fits(p: Builder, node, shape):
    """Whether the residual has the shape of the product."""
    product = tuple(shape(node, *[p.known[v] if v else None for v in node.inputs]))
    return not node.residual or product == p.known[node.residual].shape == p.known[node.output].shape


def _types(*tensors):
    return tuple(t and t.dtype for t in tensors)


def _lower_conv(p: Builder, node):
    w = p.data(node.inputs[1])
    if w.ndim not in (3, 4) or not _fits(p, node, _conv_shape):
        return False
    strides, dilations, pads = windows.window(node, p.known[node.inputs[0]].shape[2:], w.shape[2:])
    if w.ndim == 3:
        strides, dilations, pads = [1, *strides], [1, *dilations], [(0, 0), *pads]
    layer = _layer(
        p,
        node,
        lambda w, **options: QConv2d(w.reshape(*w.shape[:2], -1, w.shape[-1]) if w.ndim == 3 else w, **options),
        stride=tuple(strides),
        dilation=tuple(dilations),
        groups=node.attrs.get("group", 1),
        layout="NHWC",
    )
    x, y = p.as_2d(p.at(node.inputs[0])), p.as_2d(p.result(node.output, image=True))
    r = p.as_2d(p.at(node.residual)) if node.residual else None
    p.add(
        "qconv2d", node, layer=layer, types=_types(x, r, y), x=x, y=y, residual=r, top=pads[0][0], left=pads[1][0]
    )
    return True


def _rows(p: Builder, node, t, shape):
    """A tensor as rows whose elements are neighbours."""
    t = p.reshape(node, t, shape)
    return t if t.strides[1] == 1 or shape[1] == 1 else p.dense(node, t, row_major(shape))


def _lower_linear(p: Builder, node):
    if not _fits(p, node, _linear_shape):
        return False
    layer = _layer(p, node, QLinear)
    y = p.result(node.output)
    m, n, k = math.prod(y.shape[:-1]), y.shape[-1], p.known[node.inputs[1]].shape[1]
    y = y._replace(shape=(m, n), strides=(n, 1))
    x = _rows(p, node, p.at(node.inputs[0]), (m, k))
    r = _rows(p, node, p.at(node.residual), (m, n)) if node.residual else None
    p.add("qlinear", node, layer=layer, types=_types(x, r, y), x=x, y=y, residual=r)
    return True


def lower_convert(i):
    """Lowers QuantizeLinear (i 0) or DequantizeLinear (1) of one constant quantisation."""

    def lower(p: Builder, node):
        found = quantization(*[p.data(v) for v in node.inputs[1:3]])
        x, known = p.at(node.inputs[0]), p.known[node.output]
        ends = x.dtype, known.dtype
        if isinstance(found, str) or ends[i] != np.float32 or ends[1 - i] not in BYTES:
            return False
        y = p.result(node.output, like=x)
        x = p.dense(node, x, y.strides)
        p.add("convert", node, x=x, y=y, q=found, **{"from": x.dtype, "to": y.dtype})
        return True

    return lower


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


_FUSES: dict[str, Any] = dict(
    dtype=_type, read=None, adds=True, activates=True, channels=True, anywhere=True, bytes=True, scales=3
)
RECORDS = {
    "QuantizedConv": Operator(_conv, _conv_shape, _lower_conv, weighted="convolution of 8 bits", **_FUSES),
    "QuantizedLinear": Operator(_linear, _linear_shape, _lower_linear, weighted="product of 8 bits", **_FUSES),
}
