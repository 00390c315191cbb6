"""Every operator of numbers at the extreme values of every type: kernels, NumPy's steps and folded constants agree with
each other and with NumPy in float64, or exactly where elements are integers."""

import math

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
from onnx import helper

import fusedops as fo
from fusedops.graph.inference.evaluate import Interpreter
from fusedops.graph.operators.activation import activate
from onnx_single_node import model

pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")  # infinities and NaN are results

SIGNED, UNSIGNED = (np.int8, np.int16, np.int32, np.int64), (np.uint8, np.uint16, np.uint32, np.uint64)
INTEGERS, FLOATS = (*SIGNED, *UNSIGNED), (np.float32, np.float64)
NUMBERS, BOOL = (*FLOATS, *INTEGERS), (np.bool_,)
TINY = float(np.finfo(np.float32).tiny)  # below it kernels flush to zero
LENGTH = 37  # of a row: whole vectors and a rest of every set


def extremes(dtype):
    """Ends, what is near them, infinities and NaN; not subnormal numbers, which are zeros in kernels."""
    dtype = np.dtype(dtype)
    if dtype == np.bool_:
        return np.array([False, True])
    if dtype.kind == "f":
        info = np.finfo(dtype)
        large = [info.max, info.max / 2, 1e30, 2.0**63, 2.0**31, 2.0**24 + 2, 2.0**24, 3e9, 255.5, 128, 88.8, 20]
        small = [0, info.tiny, 1e-30, 1e-6, 0.5, 1.5, 2.5, 1, 2, 7]
        values = np.array([*large, *small, np.inf], dtype)
        return np.concatenate([values, -values, [np.nan]]).astype(dtype)
    info = np.iinfo(dtype)
    ends = [info.min, info.min + 1, info.min // 2, info.max // 2, info.max - 1, info.max]
    return np.array([*ends, *(v for v in (-7, -2, -1) if dtype.kind == "i"), 0, 1, 2, 3, 7], dtype)


def row(dtype, turn=0):
    """All extreme values, as many times as a row is long, from another one on in each turn."""
    values = extremes(dtype)
    return np.resize(np.roll(values, -turn), max(LENGTH, len(values)) | 1)


def pairs(dtype):
    """Each value with seven others: two arrays."""
    turns = (0, 1, 2, 5, 9, 12, 24)
    a = np.tile(row(dtype), (len(turns), 1))
    return a, np.stack([row(dtype, turn) for turn in turns])


def ways(op, inputs, constants, output, **options):
    """What one node gives by kernels, by NumPy, and as a folded constant."""
    given = inputs | constants
    proto = model(op, inputs, constants, (output,), **options)
    net = fo.load_onnx(proto)
    yield "kernels", net.run(inputs)["y0"]
    plain = fo.load_onnx(proto, fold=False, fuse=False)._graph
    with np.errstate(all="ignore"):
        yield "NumPy", Interpreter().call(plain, [inputs[v.name] for v in plain.inputs])[0]
    yield "folded", fo.load_onnx(model(op, {}, given, (output,), **options)).run({})["y0"]


def same(y, expected, rtol, what):
    """Bits of integers; floats to rtol, small ones to a thousandth of it, and results below the least normal number may
    be flushed to zero."""
    assert y.dtype == expected.dtype and y.shape == expected.shape, what
    if y.dtype.kind != "f":
        np.testing.assert_array_equal(y, expected, what)
        return
    tiny = TINY if y.dtype == np.float32 else 0
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(y, expected, rtol=rtol, atol=1.01 * tiny + rtol / 1000, err_msg=what)


def agrees(op, inputs, expected, constants=None, rtol=0.0, **options):
    expected = np.asarray(expected)
    for way, y in ways(op, inputs, constants or {}, expected.dtype, **options):
        same(y, expected, rtol, f"{op} of {[str(a.dtype) for a in inputs.values()]} by {way}")


def exactly(function, dtype, *operands):
    """Of Python's integers, wrapped to the type."""
    found = [function(*map(int, each)) for each in zip(*(a.flat for a in operands), strict=True)]
    mask = (1 << 8 * np.dtype(dtype).itemsize) - 1
    return np.array([v & mask for v in found], np.uint64).astype(dtype).reshape(operands[0].shape)


def wide(function, dtype, *operands):
    """In float64, rounded once."""
    with np.errstate(all="ignore"):
        return np.asarray(function(*(a.astype(np.float64) for a in operands))).astype(dtype)


def truncated(a, b):
    return 0 if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


# ---- elements -------------------------------------------------------------------------------------------------------

ONE_INTEGER = {"Abs": abs, "Neg": lambda a: -a, "Relu": lambda a: max(a, 0), "Sign": lambda a: (a > 0) - (a < 0)}


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("op", [*ONE_INTEGER, "BitwiseNot"])
def test_integers(op, dtype):
    if op == "Neg" and dtype in UNSIGNED:
        pytest.skip("ONNX has no such type for it")
    x = row(dtype)
    agrees(op, {"x": x}, ~x if op == "BitwiseNot" else exactly(ONE_INTEGER[op], dtype, x))


TWO_INTEGERS = {
    "Add": lambda a, b: a + b,
    "Sub": lambda a, b: a - b,
    "Mul": lambda a, b: a * b,
    "Max": max,
    "Min": min,
    "Div": truncated,
    "Mod": lambda a, b: a % b if b else 0,
    "fmod": lambda a, b: a - b * truncated(a, b) if b else 0,
    "BitwiseAnd": lambda a, b: a & b,
    "BitwiseOr": lambda a, b: a | b,
    "BitwiseXor": lambda a, b: a ^ b,
}


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("op", TWO_INTEGERS)
def test_two_integers(op, dtype):
    a, b = pairs(dtype)
    name, attrs = ("Mod", {"fmod": 1}) if op == "fmod" else (op, {})
    agrees(name, {"a": a, "b": b}, exactly(TWO_INTEGERS[op], dtype, a, b), attrs=attrs)


@pytest.mark.parametrize("dtype", UNSIGNED)
@pytest.mark.parametrize("direction", ["LEFT", "RIGHT"])
def test_shifts(direction, dtype):
    bits = 8 * np.dtype(dtype).itemsize
    a, by = row(dtype), np.resize(np.array([0, 1, bits // 2, bits - 1], dtype), len(row(dtype)))
    shift = (lambda u, n: u << n) if direction == "LEFT" else (lambda u, n: u >> n)
    agrees("BitShift", {"a": a, "b": by}, exactly(shift, dtype, a, by), attrs={"direction": direction})


ERF = np.vectorize(math.erf, [np.float64])
ONE_FLOAT = {  # the function, and the error that its kernel may have
    "Abs": (np.abs, 0),
    "Neg": (np.negative, 0),
    "Sign": (np.sign, 0),
    "Floor": (np.floor, 0),
    "Ceil": (np.ceil, 0),
    "Round": (np.rint, 0),
    "Sqrt": (np.sqrt, 2e-7),
    "Reciprocal": (lambda x: 1 / x, 2e-7),
    "Exp": (np.exp, 1e-6),
    "Log": (np.log, 1e-6),
    "Erf": (ERF, 1e-6),
    "Sin": (np.sin, 1e-6),
    "Cos": (np.cos, 1e-6),
    "Atan": (np.arctan, 1e-6),
    "Sinh": (np.sinh, 1e-6),
    "Asinh": (np.arcsinh, 1e-6),
    "Relu": (lambda x: np.maximum(x, 0), 0),
    "Sigmoid": (lambda x: 1 / (1 + np.exp(-x)), 1e-6),
    "Tanh": (np.tanh, 1e-6),
    "Softplus": (lambda x: np.logaddexp(x, 0), 1e-6),
    "Elu": (lambda x: np.where(x > 0, x, np.expm1(x)), 1e-6),
    "LeakyRelu": (lambda x: np.where(x > 0, x, np.float32(0.01) * x), 2e-7),
    "HardSigmoid": (lambda x: np.clip(np.float32(0.2) * x + 0.5, 0, 1), 1e-6),
    "ThresholdedRelu": (lambda x: np.where(x > 1, x, 0), 0),
    "Gelu": (lambda x: np.maximum(x, -1e3) / 2 * (1 + ERF(x / math.sqrt(2))), 1e-6),
    "Mish": (lambda x: np.maximum(x, -1e3) * np.tanh(np.logaddexp(x, 0)), 1e-6),
    "HardSwish": (lambda x: np.maximum(x, -1e3) * np.clip(x / 6 + 0.5, 0, 1), 1e-6),
    "Softsign": (lambda x: x / (1 + np.abs(x)), 2e-7),
    "IsNaN": (np.isnan, 0),
    "IsInf": (np.isinf, 0),
}


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("op", ONE_FLOAT)
def test_floats(isa, op, dtype):
    x, (function, error) = row(dtype), ONE_FLOAT[op]
    agrees(op, {"x": x}, wide(function, np.bool_ if op.startswith("Is") else dtype, x), rtol=error)


TWO_FLOATS = {
    "Add": (np.add, 2e-7),
    "Sub": (np.subtract, 2e-7),
    "Mul": (np.multiply, 2e-7),
    "Div": (np.divide, 2e-7),
    "Max": (np.maximum, 0),
    "Min": (np.minimum, 0),
    "Pow": (np.power, 2e-6),
    "fmod": (np.fmod, 0),
}


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("op", TWO_FLOATS)
def test_two_floats(isa, op, dtype):
    (a, b), (function, error) = pairs(dtype), TWO_FLOATS[op]
    name, attrs = ("Mod", {"fmod": 1}) if op == "fmod" else (op, {})
    agrees(name, {"a": a, "b": b}, wide(function, dtype, a, b), rtol=error, attrs=attrs)


COMPARISONS = {
    "Equal": np.equal,
    "Less": np.less,
    "LessOrEqual": np.less_equal,
    "Greater": np.greater,
    "GreaterOrEqual": np.greater_equal,
}


@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("op", COMPARISONS)
def test_comparisons(op, dtype):
    a, b = pairs(dtype)
    agrees(op, {"a": a, "b": b}, COMPARISONS[op](a, b))


@pytest.mark.parametrize("dtype", NUMBERS)
def test_bounds(dtype):
    x = row(dtype)
    with np.errstate(invalid="ignore"):
        lo, hi = np.array(2, dtype), np.array(100, dtype)
        for bounds in {"lo": lo, "hi": hi}, {"lo": hi, "hi": lo}, {"lo": None, "hi": hi}, {"lo": lo}, {}:
            expected = x if bounds.get("lo") is None else np.maximum(x, bounds["lo"])
            expected = np.minimum(expected, bounds["hi"]) if "hi" in bounds else expected
            agrees("Clip", {"x": x}, expected, bounds)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_clip_activation_of_integers(dtype):
    """Bounds outside the type do nothing, or leave its end."""
    x = extremes(dtype)
    for lo, hi in (
        (0, 6),
        (-math.inf, math.inf),
        (-math.inf, 3),
        (2, 2.0**64),
        (-(2.0**64), -(2.0**63)),
        (2.0**63, 2.0**65),
    ):
        y = activate(x, ("clip", lo, hi))
        ends = [min(max(bound, np.iinfo(dtype).min), np.iinfo(dtype).max) for bound in (lo, hi)]
        assert y.dtype == dtype
        assert y.tolist() == [min(max(v, ends[0]), ends[1]) for v in x.tolist()], (lo, hi)


@pytest.mark.parametrize("dtype", NUMBERS)
def test_choices(dtype):
    x = row(dtype)
    c = np.resize([True, False, True], len(x))
    agrees("Where", {"c": c, "x": x, "y": x[::-1].copy()}, np.where(c, x, x[::-1]))


@pytest.mark.parametrize("to", [*NUMBERS, *BOOL])
@pytest.mark.parametrize("dtype", [*NUMBERS, *BOOL])
def test_casts(isa, dtype, to):
    """Integers wrap around. What a float does not have as an integer is left to the processor in ONNX: the three ways
    agree, as far as NumPy's own casts do not depend on the length of a row."""
    x, code = row(dtype), helper.np_dtype_to_tensor_dtype(np.dtype(to))
    if np.dtype(dtype).kind == "f" and np.dtype(to).kind in "iu":
        info = np.iinfo(to)
        x = np.where(np.isnan(x) | (x.astype(np.float64) <= info.min - 1.0) | (x >= info.max), dtype(1), x)
    with np.errstate(all="ignore"):
        expected = x.astype(to)
    agrees("Cast", {"x": x}, expected, attrs={"to": code})


# ---- reductions and what is like them -------------------------------------------------------------------------------


def whole(x):
    """Rows of neighboring extreme values and of one each; the last axis is reduced."""
    return np.stack([np.roll(x, -i)[:3] for i in range(len(x))])


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint32, np.uint64, np.int8, np.uint8])
@pytest.mark.parametrize("op", ["ReduceSum", "ReduceProd", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceSumSquare"])
def test_reductions_of_integers(op, dtype):
    if np.dtype(dtype).itemsize == 1 and op not in ("ReduceMax", "ReduceMin"):
        pytest.skip("ONNX has no such type for it")
    functions = {
        "ReduceSum": lambda *v: sum(v),
        "ReduceProd": lambda *v: math.prod(v),
        "ReduceMax": lambda *v: max(v),
        "ReduceMin": lambda *v: min(v),
        "ReduceL1": lambda *v: sum(map(abs, v)),
        "ReduceSumSquare": lambda *v: sum(a * a for a in v),
    }
    x = whole(extremes(dtype))
    expected = exactly(functions[op], dtype, *x.T)
    agrees(op, {"x": x}, expected, {"axes": np.array([1])}, attrs={"keepdims": 0})
    agrees(op, {"x": x.T.copy()}, expected, {"axes": np.array([0])}, attrs={"keepdims": 0})


FLOAT_REDUCTIONS = {
    "ReduceSum": lambda x, a: x.sum(a),
    "ReduceMean": lambda x, a: x.mean(a),
    "ReduceMax": lambda x, a: x.max(a),
    "ReduceMin": lambda x, a: x.min(a),
    "ReduceProd": lambda x, a: x.prod(a),
    "ReduceL1": lambda x, a: np.abs(x).sum(a),
    "ReduceL2": lambda x, a: np.sqrt((x * x).sum(a)),
    "ReduceSumSquare": lambda x, a: (x * x).sum(a),
    "ReduceLogSumExp": lambda x, a: np.logaddexp.reduce(x, a),
}


@pytest.mark.parametrize("op", FLOAT_REDUCTIONS)
def test_reductions_of_floats(isa, op):
    """Of values whose sums and squares float32 holds, and of infinities and NaN."""
    x = whole(np.float32([0, -0.0, 1e-18, 1e-6, 0.5, 1, 2**24 + 2, 1e9, np.inf, -1, -1e9, -np.inf, 3, np.nan, 88, -7]))
    expected = wide(lambda v: FLOAT_REDUCTIONS[op](v, 1), np.float32, x)
    for given, axis in (x, 1), (x.T.copy(), 0):
        agrees(op, {"x": given}, expected, {"axes": np.array([axis])}, rtol=1e-6, attrs={"keepdims": 0})


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
def test_softmax(isa, op):
    """Of rows with a finite largest value; one with infinity or NaN is NaN in both."""
    x = whole(np.float32([0, 3e38, 1e30, -1e30, 88, 89, -104, -3e38, 5, -np.inf, 1e-40, 2]))
    x64 = x.astype(np.float64)
    e = x64 - x64.max(1, keepdims=True)
    with np.errstate(all="ignore"):
        y = e - np.log(np.exp(e).sum(1, keepdims=True))
        expected = (y if op == "LogSoftmax" else np.exp(e) / np.exp(e).sum(1, keepdims=True)).astype(np.float32)
    agrees(op, {"x": x}, expected, rtol=2e-6, attrs={"axis": 1})
    agrees(op, {"x": x.T.copy()}, expected.T, rtol=2e-6, attrs={"axis": 0})


NORM_ROWS = np.float32(
    [
        [1e20, 2e20, 3e20],
        [3e38, -3e38, 1e38],
        [3e38] * 3,
        [1e-30, 2e-30, 3e-30],
        [0] * 3,
        [1, np.inf, 2],
        [1, np.nan, 2],
    ]
)


def normed(far):
    with np.errstate(all="ignore"):
        return (far / np.sqrt((far * far).mean(1, keepdims=True) + 1e-5)).astype(np.float32)


@pytest.mark.parametrize("op", ["LayerNormalization", "RMSNormalization", "InstanceNormalization"])
def test_norms(isa, op):
    """Of values whose squares and sums float32 does not hold, and of equal ones. RMSNormalization is read as the nodes
    by which ONNX defines it, of float32: its squares must be floats."""
    rows = NORM_ROWS[3:] if op == "RMSNormalization" else NORM_ROWS
    x, ones = rows.astype(np.float64), np.ones(3 if op != "InstanceNormalization" else 7, np.float32)
    with np.errstate(all="ignore"):
        expected = normed(x if op == "RMSNormalization" else x - x.mean(1, keepdims=True))
    shape = (1, 7, 3) if op == "InstanceNormalization" else rows.shape
    constants = {"s": ones, "b": 0 * ones} if op == "InstanceNormalization" else {"s": ones}
    agrees(op, {"x": rows.reshape(shape)}, expected.reshape(shape), constants, rtol=2e-6, opset=23)


def test_rms_norm_of_a_layer(isa):
    x = NORM_ROWS.astype(np.float64)
    same(fo.rms_norm(NORM_ROWS, np.ones(3, np.float32)), normed(x), 2e-6, "rms_norm")


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int64])
@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
def test_places(op, dtype):
    """The first of equal ones."""
    x = whole(extremes(dtype))
    expected = (np.argmax if op == "ArgMax" else np.argmin)(x, 1)
    agrees(op, {"x": x}, expected, attrs={"axis": 1, "keepdims": 0})
    agrees(op, {"x": x.T.copy()}, expected, attrs={"axis": 0, "keepdims": 0})


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.float32, np.float64])
def test_sums_so_far(dtype):
    x = row(dtype)
    if np.dtype(dtype).kind == "f":
        x = x[np.abs(x) < 1e30]
    with np.errstate(all="ignore"):
        agrees("CumSum", {"x": x}, np.cumsum(x, dtype=dtype), {"axis": np.array(0)}, rtol=1e-6)


@pytest.mark.parametrize("to", [np.int8, np.uint8, np.int16, np.uint16])
def test_quantisation(isa, to):
    """Saturates; NaN, which ONNX leaves open, is the lowest, as in ONNX Runtime."""
    info, x = np.iinfo(to), row(np.float32)
    for zero in info.min, 3, info.max:
        q = np.clip(np.rint(x.astype(np.float64) / np.float32(0.5)) + zero, info.min, info.max)
        q = np.where(np.isnan(x), info.min, q).astype(to)
        agrees("QuantizeLinear", {"x": x}, q, {"s": np.array(0.5, np.float32), "z": np.array(zero, to)})
        back = ((row(to).astype(np.int32) - zero) * np.float32(0.5)).astype(np.float32)
        agrees("DequantizeLinear", {"x": row(to)}, back, {"s": np.array(0.5, np.float32), "z": np.array(zero, to)})


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("op", ["Log", "Sqrt"])
def test_tables_of_functions_with_a_domain(op, dtype):
    """A table has what the nodes that it stands for give: the lowest where the function has no value."""
    x = np.arange(256, dtype=np.uint8).view(dtype)
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "s", "z"], ["real"]),
        helper.make_node(op, ["real"], ["f"]),
        helper.make_node("QuantizeLinear", ["f", "t", "z"], ["y"]),
    ]
    zero, (s, t) = np.array(5, dtype), np.float32([0.02, 0.05])
    constants = {"s": s, "t": t, "z": zero}
    code = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    x_info, y_info = (helper.make_tensor_value_info(name, code, [256]) for name in "xy")
    given = [onnx.numpy_helper.from_array(np.asarray(a), name) for name, a in constants.items()]
    graph = helper.make_graph(nodes, op, [x_info], [y_info], given)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    net = fo.load_onnx(proto)
    assert [node.op for node in net._graph.nodes] == ["Lookup"]
    info = np.iinfo(dtype)
    with np.errstate(all="ignore"):
        real = getattr(np, op.lower())((x.astype(np.float32) - np.float32(5)) * s)
        expected = np.where(np.isnan(real), info.min, np.clip(np.rint(real / t) + 5, info.min, info.max))
    np.testing.assert_array_equal(net(x), expected)
    np.testing.assert_array_equal(fo.load_onnx(proto, fuse=False)(x), expected)
