"""Operators of single elements: arithmetic, comparisons, activations, conversions; and norms of rows."""

import numpy as np

from . import int16_ops
from .entry import Builtin, activated, is_float, is_image, operand, operands


def _binary(op_name):
    def read(r, op):
        (a, b), first = operands(r, op.inputs[:2])
        y = r.emit(op_name, a, b)
        fused = op.option("FusedActivationFunction") if hasattr(op.options, "FusedActivationFunction") else 0
        r.put(op.outputs[0], activated(r, op, y, fused), first)

    return Builtin(read)


def _mapped(*names):
    """Operators of the graph in a row."""

    def read(r, op):
        x = op.inputs[0]
        first = x.native
        value = r.value(x, first)
        for name in names:
            value = r.emit(name, value)
        r.put(op.outputs[0], value, first)

    return Builtin(read)


def _activation(form):
    """An activation; `form` is it, or makes it of the operator."""

    def read(r, op):
        x = op.inputs[0]
        value = r.emit("Activation", r.value(x, x.native), activation=form(op) if callable(form) else form)
        r.put(op.outputs[0], value, x.native)

    return Builtin(read)


def _of_two(compute):
    """An operator that `compute(reader, a, b)` spells out."""

    def read(r, op):
        (a, b), first = operands(r, op.inputs[:2])
        r.put(op.outputs[0], compute(r, a, b), first)

    return Builtin(read)


def _squared_difference(r, a, b):
    d = r.emit("Sub", a, b)
    return r.emit("Mul", d, d)


def _floor_div(r, a, b):
    if is_float(r, a):
        return r.emit("Floor", r.emit("Div", a, b))
    return r.emit("Div", r.emit("Sub", a, r.emit("Mod", a, b)), b)


def _floor_mod(r, a, b):
    if is_float(r, a):
        return r.emit("Sub", a, r.emit("Mul", b, r.emit("Floor", r.emit("Div", a, b))))
    return r.emit("Mod", a, b)


def _atan2(r, y, x):
    """The angle of a point: that of y / x, and half a turn more where x is negative."""
    zero, pi = r.number(0), r.number(np.pi)
    angle = r.emit("Atan", r.emit("Div", y, x))
    turn = r.emit("Where", r.emit("Less", y, zero), r.emit("Sub", angle, pi), r.emit("Add", angle, pi))
    angle = r.emit("Where", r.emit("Less", x, zero), turn, angle)
    origin = r.emit("And", r.emit("Equal", x, zero), r.emit("Equal", y, zero))
    return r.emit("Where", origin, zero, angle)


def _not_equal(r, a, b):
    return r.emit("Not", r.emit("Equal", a, b))


def _right_shift(r, a, b):
    dtype = r.info(a).dtype
    if dtype.kind == "u":
        return r.emit("BitShift", a, b, direction="RIGHT")
    by = r.emit("Pow", r.number(2.0, np.float64), r.emit("Cast", b, to=11))
    return r.cast(r.emit("Floor", r.emit("Div", r.emit("Cast", a, to=11), by)), dtype)


def _add_n(r, op):
    values, first = operands(r, [op.inputs[0], *op.inputs[1:]])
    y = values[0]
    for v in values[1:]:
        y = r.emit("Add", y, v)
    r.put(op.outputs[0], y, first)


def _select(r, op):
    """The old SELECT may choose whole rows by a condition of one axis."""
    condition, a, b = op.inputs[:3]
    rank, whole = r.rank(condition), r.rank(a)
    if op.kind == "SELECT" and rank == 1 and whole is not None and whole > 1:
        rows = r.emit("Reshape", r.value(condition), [-1] + [1] * (whole - 1))
        return r.put(op.outputs[0], r.emit("Where", rows, r.value(a), r.value(b)))
    values, first = operands(r, op.inputs[:3])
    return r.put(op.outputs[0], r.emit("Where", *values), first)


def _prelu(r, op):
    x, slopes = op.inputs[:2]
    first = is_image(r, x, slopes)
    value = operand(r, slopes, first)
    r.put(op.outputs[0], r.emit("PRelu", r.value(x, first), value), first)


def _cast(r, op):
    x, dtype = op.inputs[0], op.outputs[0].tensor.dtype
    if dtype is None or dtype.kind == "c":
        raise op.error(f"it makes elements of type {op.outputs[0].tensor.kind}, which fusedops does not have")
    r.put(op.outputs[0], r.cast(r.integers(x, x.native), dtype), x.native, real=False)


def _quantize(r, op):
    x = op.inputs[0]
    r.put(op.outputs[0], r.value(x, x.native), x.native)


def _dequantize(r, op):
    """Constants become floats here: weights of float16, or of integers whose product is one of floats."""
    x, y = op.inputs[0], op.outputs[0]
    a = r.real_array(x)
    if a is not None:
        return r.put(y, r.constant(x.tensor.name, a, np.float32))
    return r.put(y, r.cast(r.value(x, x.native), np.float32), x.native)


def _densify(r, op):
    a = op.constant(0, "input")  # dense since it was read
    r.put(op.outputs[0], r.constant(op.inputs[0].tensor.name, a, a.dtype), real=False)


def _fake_quant(r, op):
    """Rounds as a quantized network would: to one of 2^bits points between two numbers, one of which is zero."""
    low, high = np.float32(op.option("Min")), np.float32(op.option("Max"))
    bits, narrow = op.option("NumBits", 8), bool(op.option("NarrowRange"))
    least, most = int(narrow), 2**bits - 1
    if not low < high or not 2 <= bits <= 16:
        raise op.error(f"it rounds to {bits} bits between {low} and {high}")
    scale = (high - low) / np.float32(most - least)
    zero = float(np.clip(np.rint(least - low / scale), least, most))
    x = op.inputs[0]
    value = r.emit("Mul", r.value(x, x.native), r.number(1 / scale))
    value = r.emit("Activation", r.emit("Round", value), activation=("clip", least - zero, most - zero))
    r.put(op.outputs[0], r.emit("Mul", value, r.number(scale)), x.native)


def _in_int16(read, other):
    """An operator that LiteRT computes by tables in int16."""
    return Builtin(lambda r, op: read(r, op) if int16_ops.is_int16(op) else other.read(r, op))


def _softmax(r, op):
    x = op.inputs[0]
    beta = op.option("Beta", 1.0) if op.kind == "SOFTMAX" else 1.0
    if op.kind == "SOFTMAX" and int16_ops.is_int16(op):
        return int16_ops.softmax(r, op, beta)
    value = r.value(x, x.native)
    if beta != 1:
        value = r.emit("Mul", value, r.number(beta))
    name = "Softmax" if op.kind == "SOFTMAX" else "LogSoftmax"
    return r.put(op.outputs[0], r.emit(name, value, axis=1 if x.native else -1, to_end=False), x.native)


def _l2_normalization(r, op):
    """x over the root of the sum of squares along the last axis."""
    x = op.inputs[0]
    value, axis = r.value(x, x.native), [1 if x.native else -1]
    norm = r.emit("Sqrt", r.emit("ReduceSum", r.emit("Mul", value, value), axis, keepdims=1))
    y = r.emit("Div", value, r.emit("Max", norm, r.number(1e-6)))
    r.put(op.outputs[0], activated(r, op, y), x.native)


def _rsqrt(r, op):
    x = op.inputs[0]
    r.put(op.outputs[0], r.emit("Reciprocal", r.emit("Sqrt", r.value(x, x.native))), x.native)


def _square(r, op):
    x = op.inputs[0]
    value = r.value(x, x.native)
    r.put(op.outputs[0], r.emit("Mul", value, value), x.native)


def _bucketize(r, op):
    """How many boundaries an element has reached."""
    bounds = np.float32(op.numbers("Boundaries"))
    x = r.cast(r.value(op.inputs[0]), np.float32)
    rank = r.rank(op.inputs[0]) or 0
    above = r.emit("GreaterOrEqual", r.emit("Unsqueeze", x, [rank]), r.constant(f"{r.at}.bounds", bounds, np.float32))
    count = r.emit("ReduceSum", r.emit("Cast", above, to=6), [rank], keepdims=0)
    r.put(op.outputs[0], r.cast(count, np.int32))


READERS = {
    "ABS": _mapped("Abs"),
    "ADD": _binary("Add"),
    "ADD_N": Builtin(_add_n),
    "ATAN2": _of_two(_atan2),
    "BITWISE_XOR": _binary("BitwiseXor"),
    "BUCKETIZE": Builtin(_bucketize),
    "CAST": Builtin(_cast),
    "CEIL": _mapped("Ceil"),
    "COS": _mapped("Cos"),
    "DENSIFY": Builtin(_densify, "of constants"),
    "DEQUANTIZE": Builtin(_dequantize),
    "DIV": _binary("Div"),
    "ELU": _activation(("elu", 1.0)),
    "EQUAL": _binary("Equal"),
    "EXP": _in_int16(int16_ops.exponential, _mapped("Exp")),
    "FAKE_QUANT": Builtin(_fake_quant),
    "FLOOR": _mapped("Floor"),
    "FLOOR_DIV": _of_two(_floor_div),
    "FLOOR_MOD": _of_two(_floor_mod),
    "GELU": _activation(lambda op: "gelu_tanh" if op.option("Approximate") else "gelu"),
    "GREATER": _binary("Greater"),
    "GREATER_EQUAL": _binary("GreaterOrEqual"),
    "HARD_SWISH": _activation("hardswish"),
    "L2_NORMALIZATION": Builtin(_l2_normalization),
    "LEAKY_RELU": _activation(lambda op: ("leaky_relu", op.option("Alpha"))),
    "LESS": _binary("Less"),
    "LESS_EQUAL": _binary("LessOrEqual"),
    "LOG": _in_int16(int16_ops.logarithm, _mapped("Log")),
    "LOGICAL_AND": _binary("And"),
    "LOGICAL_NOT": _mapped("Not"),
    "LOGICAL_OR": _binary("Or"),
    "LOGISTIC": _in_int16(int16_ops.logistic, _activation("sigmoid")),
    "LOG_SOFTMAX": Builtin(_softmax),
    "MAXIMUM": _binary("Max"),
    "MINIMUM": _binary("Min"),
    "MUL": _binary("Mul"),
    "NEG": _mapped("Neg"),
    "NOT_EQUAL": _of_two(_not_equal),
    "POW": _binary("Pow"),
    "PRELU": Builtin(_prelu),
    "QUANTIZE": Builtin(_quantize),
    "RELU": _activation("relu"),
    "RELU6": _activation("relu6"),
    "RELU_0_TO_1": _activation(("clip", 0.0, 1.0)),
    "RELU_N1_TO_1": _activation(("clip", -1.0, 1.0)),
    "RIGHT_SHIFT": _of_two(_right_shift),
    "ROUND": _mapped("Round"),
    "RSQRT": Builtin(_rsqrt),
    "SELECT": Builtin(_select),
    "SELECT_V2": Builtin(_select),
    "SIGN": _mapped("Sign"),
    "SIN": _mapped("Sin"),
    "SOFTMAX": Builtin(_softmax),
    "SQRT": _mapped("Sqrt"),
    "SQUARE": Builtin(_square),
    "SQUARED_DIFFERENCE": _of_two(_squared_difference),
    "SUB": _binary("Sub"),
    "TANH": _in_int16(int16_ops.tanh, _activation("tanh")),
}
