"""Integers and quantized values, with random attributes and sizes, against ONNX Runtime."""

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper

import fusedops as fo
from onnx_single_node import SEEDS, agree, few, floats, integers, ints, model

# ---- integers ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.int8, np.uint8])
@pytest.mark.parametrize("op, attrs", [("Div", {}), ("Mod", {}), ("Mod", {"fmod": 1})])
def test_integer_division(op, attrs, dtype):
    """Division rounds towards zero, as C does; the sign of a remainder is the divisor's, or with fmod that of what
    is divided."""
    a, b = integers(0, 0 if dtype == np.uint8 else -50, 50, 40, dtype=dtype), integers(1, 1, 9, 40, dtype=dtype)
    agree(
        op,
        {"a": a, "b": b if dtype == np.uint8 else b * np.where(np.arange(40) % 2, 1, -1).astype(dtype)},
        outputs=(dtype,),
        **attrs,
    )


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize(
    "op", ["ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceSumSquare"]
)
@pytest.mark.parametrize("keep", [0, 1])
def test_integer_reductions(op, keep, dtype):
    if op == "ReduceMean" and dtype == np.int64:
        x = integers(0, -20, 20, 3, 4, dtype=dtype)
        y = fo.load_onnx(model(op, {"x": x}, {"axes": ints(1)}, (dtype,), attrs={"keepdims": keep}))(x)
        np.testing.assert_array_equal(y, np.trunc(x.mean(1, keepdims=bool(keep))).astype(dtype))
        return
    agree(op, {"x": integers(0, -20, 20, 3, 4, dtype=dtype)}, {"axes": ints(-1)}, (dtype,), opset=18, keepdims=keep)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint32, np.uint64])
@pytest.mark.parametrize("direction", ["LEFT", "RIGHT"])
def test_shifts(direction, dtype):
    agree(
        "BitShift",
        {"a": integers(0, 0, 200, 4, 5, dtype=dtype), "b": integers(1, 0, 7, 5, dtype=dtype)},
        outputs=(dtype,),
        direction=direction,
    )


@pytest.mark.parametrize("op", ["BitwiseAnd", "BitwiseOr", "BitwiseXor"])
def test_bits(op):
    agree(op, {"a": integers(0, -99, 99, 4, 5), "b": integers(1, -99, 99, 5)}, outputs=(np.int64,))


# ---- quantized ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.uint16, np.int16])
def test_quantisation(dtype):
    x, q, common = (
        20 * floats(0, 2, 3, 4),
        integers(0, 0, 100, 2, 3, 4, dtype=dtype),
        {"outputs": (dtype,), "rtol": 0, "atol": 0},
    )
    each = {"s": np.float32([0.1, 0.2, 0.3]), "z": np.array([1, 2, 3], dtype)}
    blocks = {"s": np.abs(floats(1, 2, 3, 2)) + 0.05, "z": np.ones((2, 3, 2), dtype)}
    agree("QuantizeLinear", {"x": x}, {"s": np.array(0.1, np.float32), "z": np.array(7, dtype)}, **common)
    agree("QuantizeLinear", {"x": x}, each, axis=-2, **common)
    agree("QuantizeLinear", {"x": x}, blocks, axis=2, block_size=2, **common)
    agree("DequantizeLinear", {"x": q}, each)
    agree("DequantizeLinear", {"x": q}, blocks, axis=2, block_size=2)


@few
@given(st.sampled_from([np.uint8, np.int8]), st.integers(0, 255), st.booleans(), st.integers(1, 2), SEEDS)
def test_integer_convolutions(dtype, zero, each, groups, seed):
    w, x, b = (
        integers(seed, *((0, 255) if dtype == np.uint8 else (-128, 127)), 4, 4 // groups, 3, 3, dtype=dtype),
        integers(seed, 0, 255, 1, 4, 6, 6, dtype=np.uint8),
        integers(seed, -500, 500, 4, dtype=np.int32),
    )
    shape, attrs = (
        (4,) if each and dtype == np.int8 else (),
        dict(pads=[1] * 4, group=groups, strides=[2, 1], rtol=0, atol=0),
    )
    scales = {
        "xs": np.array(0.02, np.float32),
        "xz": np.array(zero, np.uint8),
        "w": w,
        "ws": np.full(shape, 0.01, np.float32),
        "wz": np.full(shape, 0 if shape else 3, dtype),
        "ys": np.array(0.2, np.float32),
        "yz": np.array(128, np.uint8),
    }
    agree("QLinearConv", {"x": x}, {**scales, "b": b}, (np.uint8,), **attrs)
    agree("ConvInteger", {"x": x}, {"w": w, "xz": scales["xz"], "wz": np.array(3, dtype)}, (np.int32,), **attrs)


@few
@given(st.booleans(), st.integers(0, 255), SEEDS)
def test_integer_products(each, zero, seed):
    # weights of 7 bits: without VNNI ONNX Runtime adds two products in 16 bits, which saturate
    a, b = integers(seed, 0, 255, 2, 5, 6, dtype=np.uint8), integers(seed, -64, 63, 6, 4, dtype=np.int8)
    scales = np.float32([0.01, 0.02, 0.03, 0.04]) if each else np.array(0.01, np.float32)
    az, bz = np.array(zero, np.uint8), np.zeros(scales.shape, np.int8)
    agree(
        "QLinearMatMul",
        {"a": a},
        {
            "as": np.array(0.02, np.float32),
            "az": az,
            "b": b,
            "bs": scales,
            "bz": bz,
            "ys": np.array(0.2, np.float32),
            "yz": np.array(120, np.uint8),
        },
        (np.uint8,),
        rtol=0,
        atol=0,
    )
    agree("MatMulInteger", {"a": a}, {"b": b, "az": az, "bz": bz}, (np.int32,), rtol=0, atol=0)
    agree("DynamicQuantizeLinear", {"x": floats(seed, 3, 4)}, outputs=(np.uint8, np.float32, np.uint8))


def test_types_that_numpy_lacks_are_named():
    proto = model(
        "QuantizeLinear",
        {"x": floats(0, 3)},
        {"s": np.array(1, np.float32)},
        (np.uint8,),
        attrs={"output_dtype": onnx.TensorProto.FLOAT8E4M3FN},
    )
    with pytest.raises(ValueError, match="which NumPy does not have"):
        fo.load_onnx(proto)
    info = helper.make_tensor_value_info("x", onnx.TensorProto.INT4, [3])
    graph = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["y"])],
        "g",
        [info],
        [helper.make_tensor_value_info("y", onnx.TensorProto.INT4, [3])],
    )
    with pytest.raises(ValueError, match="which are not numbers of NumPy"):
        fo.load_onnx(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10))
