"""Constant weights of 4 and 8 bits that DequantizeLinear widens, in blocks and by columns."""

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper

import fusedops as fo

KINDS = {"int4": (TensorProto.INT4, -8, 8), "uint4": (TensorProto.UINT4, 0, 16), "int8": (TensorProto.INT8, -128, 128),
         "uint8": (TensorProto.UINT8, 0, 256)}  # fmt: skip
RNG = np.random.default_rng(0)


def stored(name, codes, kind):
    number, lowest, _ = KINDS[kind]
    if not kind.endswith("4"):
        return numpy_helper.from_array(codes.astype(kind), name)
    bits = np.append(codes.reshape(-1) & 15, [0] * (codes.size % 2)).astype(np.uint8)
    return helper.make_tensor(name, number, codes.shape, (bits[::2] | bits[1::2] << 4).tobytes(), raw=True)


def product(kind, k, n, block, rows, zero, stand="MatMul", x_rows=3):
    """(model, x, x w in float64): weights (k, n), or as rows (n, k), with a scale a block of k (0: a column)."""
    _, lowest, end = KINDS[kind]
    codes, axis = RNG.integers(lowest, end, (n, k) if rows else (k, n)), 1 if rows else 0
    shape = list(codes.shape)
    shape[axis] = -(-k // block) if block else 1
    scale, zeros = RNG.uniform(0.01, 0.1, shape).astype(np.float32), RNG.integers(lowest, end, shape) * zero
    wide = [a.repeat(block or k, axis).take(range(k), axis) for a in (scale, zeros)]
    w = (codes - wide[1]) * wide[0].astype(np.float64)
    attrs = {"axis": axis, "block_size": block} if block else {"axis": 1 - axis}
    parts = [scale, zeros] if block else [scale.reshape(-1), zeros.reshape(-1)]
    initializers = [stored("q", codes, kind), numpy_helper.from_array(parts[0], "s")]
    initializers += [stored("z", parts[1], kind)] if zero else []
    nodes = [helper.make_node("DequantizeLinear", ["q", "s", *["z"] * zero], ["d"], **attrs)]
    if stand == "Gemm":
        initializers.append(numpy_helper.from_array(np.ones(n, np.float32), "b"))
        nodes.append(helper.make_node("Gemm", ["x", "d", "b"], ["y"], transB=int(rows)))
    else:
        nodes += [helper.make_node("Transpose", ["d"], ["t"], perm=[1, 0])] * rows
        nodes.append(helper.make_node("MatMul", ["x", "t" if rows else "d"], ["y"]))
    values = [helper.make_tensor_value_info("x", 1, ["m", k]), helper.make_tensor_value_info("y", 1, ["m", n])]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], initializers)
    x = RNG.standard_normal((x_rows, k)).astype(np.float32)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return model, x, x @ (w.T if rows else w) + (stand == "Gemm")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "k, n, block", [(64, 12, 32), (50, 7, 16), (128, 8, 128), (33, 5, 16), (24, 6, 12), (64, 9, 0)]
)
@pytest.mark.parametrize(
    "rows, zero, stand", [(0, 0, "MatMul"), (0, 1, "MatMul"), (1, 1, "MatMul"), (1, 0, "Gemm"), (0, 1, "Gemm")]
)
def test_products(kind, k, n, block, rows, zero, stand, tmp_path):
    model, x, expected = product(kind, k, n, block, rows, zero, stand)
    nets = [fo.load_onnx(model), fo.load_onnx(model, fuse=False), fo.load_onnx(model, fold=False, fuse=False)]
    nets[0].save(tmp_path / "net.fo")
    for net in (*nets, fo.load(tmp_path / "net.fo")):
        assert np.abs(net(x) - expected).max() < 3e-6 * np.abs(expected).max()
    if block % 8 == 0 and (block or kind.endswith("4")):
        assert [n.op for n in nets[0]._graph.nodes] == ["LinearBits"]  # which keeps them packed


@pytest.mark.parametrize("rows", [0, 1])
def test_blocks_of_columns(rows):
    """Of a square matrix, whose scales have the shape that blocks of the other axis would have."""
    codes, scale = (
        RNG.integers(-8, 8, (64, 64)),
        RNG.uniform(0.01, 0.1, (8, 64) if rows else (64, 8)).astype(np.float32),
    )
    w = codes * scale.repeat(8, 1 - rows)
    nodes = [
        helper.make_node("DequantizeLinear", ["q", "s"], ["d"], axis=1 - rows, block_size=8),
        helper.make_node("Gemm", ["x", "d"], ["y"], transB=rows),
    ]
    values = [helper.make_tensor_value_info(name, 1, ["m", 64]) for name in "xy"]
    stores = [stored("q", codes, "int4"), numpy_helper.from_array(scale, "s")]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], stores)
    net = fo.load_onnx(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10))
    x = RNG.standard_normal((3, 64)).astype(np.float32)
    np.testing.assert_allclose(net(x), x @ (w.T if rows else w), rtol=1e-4, atol=1e-4)


def test_an_embedding_of_4_bits():
    codes, scale = RNG.integers(-8, 8, (30, 32)), RNG.uniform(0.01, 0.1, (30, 2)).astype(np.float32)
    nodes = [
        helper.make_node("DequantizeLinear", ["q", "s"], ["d"], axis=1, block_size=16),
        helper.make_node("Gather", ["d", "i"], ["y"]),
    ]
    values = [helper.make_tensor_value_info("i", TensorProto.INT64, ["n"]), helper.make_tensor_value_info("y", 1, None)]
    stores = [stored("q", codes, "int4"), numpy_helper.from_array(scale, "s")]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], stores)
    net = fo.load_onnx(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10))
    at = np.array([3, 29, 0])
    np.testing.assert_allclose(net(at), (codes * scale.repeat(16, 1))[at], rtol=1e-6)


def test_values_of_4_bits_are_refused():
    """Constants of 4 bits are read as 8; what makes such elements as the network runs is not."""
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"]),
    ]
    values = [helper.make_tensor_value_info(name, 1, [4]) for name in "xy"]
    stores = [numpy_helper.from_array(np.float32(1), "s"), stored("z", np.array(0), "int4")]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], stores)
    with pytest.raises(ValueError, match="elements of 4 bits"):
        fo.load_onnx(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10))
