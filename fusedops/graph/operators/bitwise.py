"""Operators on the bits of integers."""

import numpy as np

from ..ir.dtypes import BY_ONNX, from_onnx
from .schema import Inference, NumPyOnly, Operator, broadcast_shape, by_numpy, same_shape


def _each(function):
    return Operator(by_numpy(function), Inference(broadcast_shape), NumPyOnly(_INTEGERS))


def _shift(node, x, by):
    return by_numpy(np.left_shift if node.attrs["direction"] == "LEFT" else np.right_shift)(node, x, by)


def _bit_cast(node, x):
    return np.ascontiguousarray(x).reshape(x.shape).view(from_onnx(node.attrs["to"]))


def _bit_cast_type(node, inputs, i):
    dtype = from_onnx(node.attrs["to"])
    known = inputs[0].dtype
    if known is not None and dtype.itemsize != known.itemsize:
        raise ValueError(f"the bits of {known} are not as many as those of {dtype}")
    return dtype


def _read_bit_cast(r, node):
    if node.attrs["to"] not in BY_ONNX:
        raise ValueError(
            f"bit cast {node.name!r} makes elements of ONNX's type {node.attrs['to']}, which NumPy does not have"
        )
    r.add(node)


_INTEGERS = "no kernel for integers"
RECORDS = {
    "BitCast": Operator(_bit_cast, Inference(same_shape, dtype=_bit_cast_type), NumPyOnly(_INTEGERS), _read_bit_cast),
    "BitShift": Operator(_shift, Inference(broadcast_shape), NumPyOnly(_INTEGERS)),
    "BitwiseAnd": _each(np.bitwise_and),
    "BitwiseNot": _each(np.invert),
    "BitwiseOr": _each(np.bitwise_or),
    "BitwiseXor": _each(np.bitwise_xor),
}
