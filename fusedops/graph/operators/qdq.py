"""Quantized values: real = scale * (q - zero_point). Sums of 8-bit products are exact, in int32; results round half
to even and saturate.

Scales and zero points are one number, one an index of an axis, or one a block of an axis.
"""

import numpy as np

from ..ir.dtypes import BY_ONNX, INT8_AND_FLOAT32, from_onnx
from ..ir.graph_builder import GraphBuilder
from .conv import convolution, convolution_shape
from .matmul import matmul_shape
from .matmul_nbits import unpack
from .qlinear import dynamic, lower_convert, saturate
from .schema import Inference, Kernel, NumPyOnly, Operator, always, axis_of


def quantize(x, scale, zero_point, dtype):
    """round(x / scale) + zero_point, held to the range of the type."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return saturate(np.rint(x / scale), zero_point, dtype)


def _each(node, x, p):
    """Scales or zero points in a shape that broadcasts to x."""
    if p is None or p.size == 1:
        return 0 if p is None else p.reshape(())
    axis, block = node.attrs.get("axis", 1) % x.ndim, node.attrs.get("block_size", 0)
    if p.ndim == x.ndim and block:
        return p.repeat(block, axis)[tuple(slice(n) for n in x.shape)]
    return p.reshape([-1 if a == axis else 1 for a in range(x.ndim)])


def _quantize(node, x, scale, zero_point=None):
    kind = node.attrs.get("precision") or 0
    kind = from_onnx(kind) if kind else scale.dtype
    scale, zero_point = _each(node, x, scale).astype(kind), _each(node, x, zero_point)
    return quantize(x.astype(kind), scale, zero_point, _quantized_type(node, [x, scale, zero_point], 0))


def _quantized_type(node, inputs, i):
    if node.attrs.get("output_dtype"):
        return from_onnx(node.attrs["output_dtype"])
    zero_point = inputs[2] if len(inputs) > 2 else None
    return np.dtype(np.uint8) if zero_point is None or isinstance(zero_point, int) else zero_point.dtype


def _dequantize(node, x, scale, zero_point=None):
    kind = _real_type(node, [x, scale], 0)
    return (x.astype(np.int64) - _each(node, x, zero_point)).astype(kind) * _each(node, x, scale).astype(kind)


def _real_type(node, inputs, i):
    return from_onnx(node.attrs["output_dtype"]) if node.attrs.get("output_dtype") else inputs[1].dtype


def _scale_shape(node, x, scale, zero_point=None):
    """That of x, where scales and zero points fit it."""
    each, axis, block = scale.shape, node.attrs.get("axis", 1), node.attrs.get("block_size", 0)
    if zero_point is not None and zero_point.shape != each and (np.prod(each), np.prod(zero_point.shape)) != (1, 1):
        raise ValueError(f"scales of shape {each} and zero points of shape {zero_point.shape} must have one shape")
    if np.prod(each) == 1:
        return x.shape
    axis += len(x.shape) * (axis < 0)
    axis = 0 if len(x.shape) == 1 else axis
    wanted = (
        x.shape[axis : axis + 1] if not block else (*x.shape[:axis], -(-x.shape[axis] // block), *x.shape[axis + 1 :])
    )
    if each != wanted:
        raise ValueError(f"scales of shape {each} must have {wanted}")
    return x.shape


def _dynamic_shape(node, x):
    each = node.attrs.get("each", 0)
    one = (*x.shape[:each], *[1] * (len(x.shape) - each)) if each else ()
    return [x.shape, one, one]


def _dynamic_type(node, inputs, i):
    return np.dtype(np.float32 if i == 1 else np.uint8)


def _centred(x, zero_point, rows=False):
    """x less its zero points, one a row or one a column; in float64, whose sums of such products are exact."""
    x = x.astype(np.float64)
    if zero_point is None:
        return x
    return x - (zero_point.reshape(-1, 1) if rows and zero_point.ndim == 1 and zero_point.size > 1 else zero_point)


def _to_int32(sums):
    return sums.astype(np.int64).astype(np.int32)


def _matmul_integer(node, a, b, a_zero=None, b_zero=None):
    return _to_int32(_centred(a, a_zero, rows=True) @ _centred(b, b_zero))


def _qlinear_matmul(node, a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero):
    a_scale = a_scale.reshape(-1, 1) if a_scale.ndim == 1 and a_scale.size > 1 else a_scale
    return _requantized(_matmul_integer(node, a, b, a_zero, b_zero), a_scale, b_scale, y_scale, y_zero)


def _requantized(sums, a_scale, b_scale, y_scale, y_zero):
    factor = a_scale.astype(np.float32) * b_scale.astype(np.float32) / y_scale.astype(np.float32)
    return saturate(np.rint(sums.astype(np.float32) * factor), y_zero, y_zero.dtype)


def _conv_integer(node, x, w, x_zero=None, w_zero=None, b=None):
    spread = None if w_zero is None else w_zero.reshape(-1, *[1] * (w.ndim - 1))
    return _to_int32(
        convolution(node, _centred(x, None if x_zero is None else x_zero.reshape(())), _centred(w, spread), b)
    )


def _qlinear_conv(node, x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, b=None):
    sums, each = _conv_integer(node, x, w, x_zero, w_zero, b), (-1, *[1] * (x.ndim - 2))
    return _requantized(sums, x_scale.reshape(()), w_scale.reshape(each), y_scale.reshape(()), y_zero.reshape(()))


def _gather_blocks(node, q, at, scales, zero_points=None):
    """Rows of numbers of 2, 4 or 8 bits, times the scale of each block; zeros where `at` is outside."""
    bits, at = node.attrs.get("bits", 4), at + len(q) * (at < 0)
    there = (at >= 0) & (at < len(q))
    rows = np.where(there, at, 0)
    q, scales = q[rows], scales[rows]
    q, block = unpack(bits, q, None), np.arange(q.shape[-1] * 8 // bits) // node.attrs.get("block_size", 128)
    if zero_points is None:
        zero = scales.dtype.type(2 ** (bits - 1))
    else:
        zero = unpack(bits, zero_points[rows], scales.shape[-1])[..., block].astype(scales.dtype)
    y = (q.astype(scales.dtype) - zero) * scales[..., block]
    y[~there] = 0
    return y


def _gather_blocks_shape(node, q, at, scales, zero_points=None):
    bits, block, last = node.attrs.get("bits", 4), node.attrs.get("block_size", 128), len(q.shape) - 1
    gathered, along = axis_of(node, last + 1, name="gather_axis"), axis_of(node, last + 1, 1, "quantize_axis")
    if q.dtype != np.uint8 or bits not in (2, 4, 8) or gathered or along != last or not last or block < 1:
        raise ValueError(
            f"it gathers {q.dtype} of {bits} bits on axis {gathered}, in blocks of {block} on axis {along}; fusedops "
            f"gathers uint8 of 2, 4 or 8 bits on axis 0, in blocks on the last axis"
        )
    shape = (*q.shape[:-1], q.shape[-1] * 8 // bits)
    blocks = (*q.shape[:-1], -(-shape[-1] // block))
    zeros = (*q.shape[:-1], -(-blocks[-1] * bits // 8))
    if scales.shape != blocks or zero_points is not None and zero_points.shape != zeros:
        raise ValueError(
            f"{shape} numbers in blocks of {block} have scales of shape {blocks} and zero points of shape "
            f"{zeros}, not {scales.shape} and {None if zero_points is None else zero_points.shape}"
        )
    return (*at.shape, *shape[1:])


def _read_quantize(r: GraphBuilder, node):
    if r.has_int4(node.input(2)):
        raise ValueError(f"{node.op} {node.name!r} makes elements of 4 bits, which NumPy does not have")
    read_typed(r, node)


def read_typed(r: GraphBuilder, node):
    """Reads an operator that may name the type of its result."""
    for name in ("output_dtype", "precision"):
        if node.attrs.get(name) and node.attrs[name] not in BY_ONNX:
            raise ValueError(
                f"{node.op} {node.name!r} makes elements of ONNX's type {node.attrs[name]}, which NumPy does not have"
            )
    r.add(node)


def _matmul_integer_shape(node, a, b, *zero_points):
    return matmul_shape(node, a, b)


def _qlinear_matmul_shape(node, a, a_scale, a_zero, b, *others):
    return matmul_shape(node, a, b)


def _conv_integer_shape(node, x, w, *others):
    return convolution_shape(node, x, w)


def _qlinear_conv_shape(node, x, x_scale, x_zero, w, *others):
    return convolution_shape(node, x, w)


def _type_of(place):
    return lambda node, inputs, i: inputs[place].dtype


_BYTES = "no kernel of its own: fusion makes a layer of int8 of it"
_CONVERTED = "float32 and bytes, one constant scale"
RECORDS = {
    "com.microsoft.GatherBlockQuantized": Operator(
        _gather_blocks,
        Inference(_gather_blocks_shape, dtype=_type_of(2), may_grow=True),
        NumPyOnly("rows of 2 to 8 bits, each with scales"),
    ),
    "ConvInteger": Operator(_conv_integer, Inference(_conv_integer_shape, dtype=always(np.int32)), NumPyOnly(_BYTES)),
    "DequantizeLinear": Operator(
        _dequantize,
        Inference(_scale_shape, dtype=_real_type),
        Kernel(lower_convert(1), _CONVERTED, dtypes=INT8_AND_FLOAT32),
        read_typed,
    ),
    "DynamicQuantizeLinear": Operator(
        lambda node, x: dynamic(x, node.attrs.get("each", 0)),
        Inference(_dynamic_shape, dtype=_dynamic_type),
        NumPyOnly(_BYTES),
    ),
    "MatMulInteger": Operator(
        _matmul_integer, Inference(_matmul_integer_shape, dtype=always(np.int32)), NumPyOnly(_BYTES)
    ),
    "QLinearConv": Operator(_qlinear_conv, Inference(_qlinear_conv_shape, dtype=_type_of(7)), NumPyOnly(_BYTES)),
    "QLinearMatMul": Operator(_qlinear_matmul, Inference(_qlinear_matmul_shape, dtype=_type_of(7)), NumPyOnly(_BYTES)),
    "QuantizeLinear": Operator(
        _quantize,
        Inference(_scale_shape, dtype=_quantized_type),
        Kernel(lower_convert(0), _CONVERTED, dtypes=INT8_AND_FLOAT32),
        _read_quantize,
    ),
}
