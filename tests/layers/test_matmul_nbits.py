"""Weights of 4 and 8 bits in blocks: bits of a product of the unpacked weights, in layers and in networks."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import fusedops as fo
import oracle
from fusedops import _core, activations
from fusedops.graph.ir.graph import Node
from fusedops.graph.ir.subgraph import graphs_of
from fusedops.graph.operators import matmul_nbits
from nbits import layer, network, unpacked, weights
from oracle import check


def test_unpacking_by_hand():
    """0x21 is 1, then 2; scales and zero points of two blocks."""
    node = Node("MatMulBits", "product", [], ["y"], dict(N=1, K=12, bits=4, block_size=8))
    q = np.array([[[0x21, 0x43, 0x65, 0x87], [0xF9, 0, 0, 0]]], np.uint8)
    given = q, np.float32([[0.5, 2]]), np.array([[0x31]], np.uint8)
    expected = np.float32([[0, 0.5, 1, 1.5, 2, 2.5, 3, 3.5, 12, 24, -6, -6]])
    np.testing.assert_array_equal(unpacked(node, *given), expected)
    np.testing.assert_array_equal(layer(node, *given)(np.eye(12, dtype=np.float32)), expected.T)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("block", [8, 16, 32, 64, 128, 256])
@pytest.mark.parametrize("k", [1, 7, 16, 37, 128, 300])
def test_bits_of_a_product_of_floats(isa, draw, bits, block, k):
    for n in 1, 2, 3, 8, 15, 16, 17, 31, 32, 33, 50, 65, 130:
        node, *given = weights(n, k, bits, block, zeros=n % 2)
        w, bias, whole = unpacked(node, *given), draw(n), draw(14, k)
        packed, expected = layer(node, *given, bias=bias), fo.Linear(w, bias)
        for m in range(1, 15) if n > 1 else ():  # a column of floats is a dot product
            np.testing.assert_array_equal(packed(whole[:m]), expected(whole[:m]))
        check(packed(whole), oracle.linear(whole, w, bias))


@pytest.mark.parametrize("activation", [None, "relu", "gelu"])
def test_bias_residual_and_activation(isa, draw, activation):
    node, *given = weights(70, 50)
    bias, x, residual = draw(70), draw(3, 9, 50), draw(3, 9, 70)
    for m in 1, 2, 9:
        y = layer(node, *given, bias=bias, activation=activation)(x[:, :m], residual[:, :m])
        expected = fo.Linear(unpacked(node, *given), bias, activation=activation)(x[:, :m], residual[:, :m])
        np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("n, k", [(700, 1500), (67, 9000), (40, 8200), (1200, 256)])
def test_long_products_on_threads(isa, threads, draw, n, k):
    for bits, block in (4, 32), (8, 256):
        node, *given = weights(n, k, bits, block)
        packed, x = layer(node, *given), draw(130, k)
        expected = fo.Linear(unpacked(node, *given))(x)
        for m in 1, 3, 12, 13, 130:
            y = packed(x[:m])
            np.testing.assert_array_equal(y, expected[:m])
        np.testing.assert_array_equal(packed(x[0]), y[0])


def test_packed_arrays_are_checked():
    node, *given = weights(40, 64)
    q, scales, zeros = matmul_nbits.packed(node, *given)
    none = activations.parse(None, 40)
    with pytest.raises(ValueError, match=r"have shape \(2, 8, 32\) and dtype float32, but must have \(2, 8, 32\)"):
        _core.LinearPlan()._pack_bits(40, 64, 4, 32, q.view(np.float32), scales, zeros, None, none)
    for wrong in (41, 64, 5, 32), (40, 64, 4, 12), (40, 0, 4, 32), (40, 65, 4, 32), (65, 64, 4, 32):
        with pytest.raises(ValueError, match="bits"):
            _core.LinearPlan()._pack_bits(*wrong, q, scales, zeros, None, none)
    with pytest.raises(ValueError, match="blocks of up to 518, not of 1024"):
        _core.LinearPlan()._pack_bits(40, 64, 4, 1024, q, scales, zeros, None, none, True)
    with pytest.raises(ValueError, match=r"bias has shape \(3,\)"):
        _core.LinearPlan()._pack_bits(40, 64, 4, 32, q, scales, zeros, np.zeros(3, np.float32), none)


# ---- networks


def operators(model):
    return [node.op for node in model._graph.nodes]


@pytest.mark.parametrize("bits, block, zeros", [(4, 16, True), (4, 32, False), (8, 64, True), (8, 128, False)])
def test_a_network_keeps_packed_weights(isa, draw, tmp_path, bits, block, zeros):
    proto, (v, w) = network(100, 70, 40, bits=bits, block=block, zeros=zeros)
    model = fo.load_onnx(proto)
    assert operators(model) == ["LinearBits", "LinearBits"]
    assert f"q0 of {bits} bits" in str(model.explain())
    model.save(tmp_path / "net.fo")
    for m in 1, 5, 40:
        x = draw(m, 100)
        expected = fo.Linear(w, activation="relu")(fo.Linear(v, activation="relu")(x))
        for each in model, fo.load(tmp_path / "net.fo"), fo.load_onnx(proto, fuse=False):
            np.testing.assert_array_equal(each(x), expected)
        np.testing.assert_allclose(fo.load_onnx(proto, fold=False, fuse=False)(x), expected, rtol=1e-4, atol=1e-4)


def test_weights_are_there_once_and_small(tmp_path):
    proto, _ = network(512, 256, 512, block=32)
    model = fo.load_onnx(proto)
    model(np.zeros((1, 512), np.float32))
    count, kept = 2 * 512 * 256, sum(a.nbytes for a in model._graph.constants.values())
    assert kept / count == pytest.approx(0.5 + 4 / 32 + 0.5 / 32)
    constants = {id(a) for a in model._graph.constants.values()}
    for packed in model._session.layers.values():
        assert constants.issuperset(map(id, packed._kept))
    model.save(tmp_path / "net.fo")
    assert (tmp_path / "net.fo").stat().st_size < 0.65 * count + 10000


@pytest.mark.parametrize(
    "options", [{"fuse": False}, {"fold": False, "fuse": False}, {"disabled_passes": ("packed weights",)}]
)
def test_without_fusion_weights_become_floats(options):
    model = fo.load_onnx(network(64, 33)[0], **options)
    assert "LinearBits" not in operators(model) and "MatMulBits" not in operators(model)


@pytest.mark.parametrize("then", [(), [("Add", np.float32([3]))], [("Mul", np.arange(33, dtype=np.float32))]])
def test_what_follows_a_product(draw, then):
    """A bias of the node, and a shift after it, start the sums; a scale stays a node of its own."""
    proto, (w,) = network(64, 33, bias=True, then=then)
    x = draw(3, 64)
    y = np.maximum(x.astype(np.float64) @ w.T.astype(np.float64) + np.arange(33), 0)
    for op, c in then:
        y = y + c if op == "Add" else y * c
    for options in {}, {"fuse": False}, {"fold": False}:
        np.testing.assert_allclose(fo.load_onnx(proto, **options)(x), y, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("op", ["Add", "Sub", "Mul"])
def test_a_shift_becomes_the_bias(draw, op):
    proto, (w,) = network(64, 33, then=[(op, np.arange(33, dtype=np.float32))])
    relu = next(node for node in proto.graph.node if node.op_type == "Relu")
    relu.op_type = "Identity"
    model, x, c = fo.load_onnx(proto), draw(3, 64), np.arange(33)
    exact = x.astype(np.float64) @ w.T.astype(np.float64)
    expected = {"Add": exact + c, "Sub": exact - c, "Mul": exact * c}[op]
    np.testing.assert_allclose(model(x), expected, rtol=1e-5, atol=1e-4)
    assert operators(model) == ["LinearBits"] + ["Mul"] * (op == "Mul")


def test_weights_of_an_input_and_of_two_bits_become_floats(draw):
    proto, (w,) = network(64, 33)
    q = next(i for i in proto.graph.initializer if i.name == "q0")
    proto.graph.initializer.remove(q)
    proto.graph.input.append(helper.make_tensor_value_info("q0", TensorProto.UINT8, q.dims))
    model, x = fo.load_onnx(proto), draw(3, 64)
    np.testing.assert_allclose(model(x, numpy_helper.to_array(q)), np.maximum(x @ w.T, 0), rtol=1e-4, atol=1e-4)
    assert any("not constant" in refusal.reason for refusal in model.explain().refusals)
    two, (w,) = network(64, 33, bits=2)
    model = fo.load_onnx(two)
    np.testing.assert_allclose(model(x), np.maximum(x @ w.T, 0), rtol=1e-4, atol=1e-4)
    assert any("not 2 bits" in refusal.reason for refusal in model.explain().refusals)


def test_products_share_weights(draw):
    proto, _ = network(64, 64, 64)
    second = [node for node in proto.graph.node if node.op_type == "MatMulNBits"][1]
    second.input[1:] = ["q0", "s0", "z0"]
    model = fo.load_onnx(onnx.ModelProto.FromString(proto.SerializeToString()))
    first, second = model._graph.nodes
    assert first.inputs[1] == second.inputs[1]
    x = draw(2, 64)
    np.testing.assert_array_equal(model(x), fo.load_onnx(proto, fuse=False)(x))


def test_branches_share_weights(draw):
    """A decoder that optimum merged, with weights of 4 bits, has them once."""
    proto, (w,) = network(64, 48)
    product, graph = proto.graph.node[0], proto.graph
    branches = []
    for op, name in ("Relu", "then"), ("Neg", "else"):
        made, end = onnx.NodeProto(), helper.make_node(op, ["p"], [name])
        made.CopyFrom(product)
        made.output[0] = "p"
        result = helper.make_tensor_value_info(name, TensorProto.FLOAT, ["m", 48])
        branches.append(helper.make_graph([made, end], name, [], [result]))
    then, other = branches
    del graph.node[:]
    graph.node.append(helper.make_node("If", ["past"], ["y"], then_branch=then, else_branch=other))
    graph.input.append(helper.make_tensor_value_info("past", TensorProto.BOOL, []))
    model, x = fo.load_onnx(proto), draw(5, 64)
    for past in True, False:
        y = x @ w.T
        np.testing.assert_allclose(model(x, np.array(past)), np.maximum(y, 0) if past else -y, rtol=1e-4, atol=1e-4)
    (node,) = (n for n in model._graph.nodes if n.op == "If")
    first, second = (g.constants for g in graphs_of(node).values())
    assert len(first) == 3
    for a, b in zip(first.values(), second.values(), strict=True):
        assert np.shares_memory(a, b)


# ---- accuracy level 4: rows of int8, and steps in an order of their own


@pytest.mark.parametrize("bits, block, zeros", [(4, 16, True), (4, 32, False), (8, 64, True), (8, 256, False)])
def test_a_network_rounds_rows(isa, draw, tmp_path, bits, block, zeros):
    proto, (v, w) = network(300, 70, 40, bits=bits, block=block, zeros=zeros, level=4)
    model = fo.load_onnx(proto)
    assert operators(model) == ["LinearBits", "LinearBits"]
    model.save(tmp_path / "net.fo")
    for m in 1, 5, 40:
        x = draw(m, 300)
        hidden = np.maximum(matmul_nbits.rounded(x, block).astype(np.float64) @ v.T, 0).astype(np.float32)
        expected = np.maximum(matmul_nbits.rounded(hidden, block).astype(np.float64) @ w.T, 0)
        for each in model, fo.load(tmp_path / "net.fo"):
            y = each(x)
            assert np.abs(y - expected).max() < 1e-3 * np.abs(expected).max()  # a halfway value may go the other way
        np.testing.assert_array_equal(model(x[-1:]), y[-1:])  # token by token, or all at once
    exact = fo.load_onnx(proto, fuse=False)(x)
    assert 1e-3 < np.abs(y - exact).max() / np.abs(exact).max() < 0.03


@pytest.mark.parametrize("bits, block, zeros", [(4, 16, True), (4, 128, False), (8, 32, True), (8, 256, False)])
def test_error_next_to_onnx_runtime(draw, bits, block, zeros):
    onnxruntime = pytest.importorskip("onnxruntime")
    proto, (w,) = network(1000, 300, bits=bits, block=block, zeros=zeros, level=4)
    x = draw(5, 1000)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    exact = np.maximum(x.astype(np.float64) @ w.T.astype(np.float64), 0)
    ours, theirs = (((y - exact) ** 2).sum() for y in (fo.load_onnx(proto)(x), session.run(None, {"x": x})[0]))
    assert ours <= 1.1**2 * theirs


@pytest.mark.parametrize("level", [0, 4])
def test_weights_stay_where_products_may_be_of_bfloat16(draw, level):
    proto, _ = network(512, 512, level=level)
    x = draw(64, 512)
    np.testing.assert_array_equal(fo.load_onnx(proto, precision="bfloat16")(x), fo.load_onnx(proto)(x))


def test_large_blocks_are_not_rounded(draw):
    proto, (w,) = network(2000, 30, block=1024, level=4)
    x = draw(3, 2000)
    np.testing.assert_allclose(fo.load_onnx(proto)(x), np.maximum(x @ w.T, 0), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("level", [0, 4])
@pytest.mark.parametrize("k", [64, 72])
def test_steps_in_another_order_are_gathered(draw, bits, level, k):
    """g_idx: the block of each step. The last block has fewer steps than others."""
    order = np.random.default_rng(3).permutation(np.arange(k) // 16).astype(np.int32)
    proto, (w,) = network(k, 33, bits=bits, block=16, zeros=k == 64, level=level, order=order)
    model, x = fo.load_onnx(proto), draw(3, k)
    assert operators(model) == ["Gather", "LinearBits"]
    expected = np.maximum(x.astype(np.float64) @ w.T, 0)
    for each in [model] if level else [model, fo.load_onnx(proto, fuse=False), fo.load_onnx(proto, fold=False)]:
        np.testing.assert_allclose(each(x), expected, rtol=0, atol=(1e-2 if level else 1e-6) * np.abs(expected).max())


def test_steps_in_their_own_order_are_not_gathered(draw):
    order = (np.arange(64) // 16).astype(np.int32)
    model, x = fo.load_onnx(network(64, 33, block=16, order=order)[0]), draw(3, 64)
    assert operators(model) == ["LinearBits"]
    np.testing.assert_array_equal(model(x), fo.load_onnx(network(64, 33, block=16)[0])(x))


def test_blocks_of_uneven_steps_become_floats(draw):
    order = np.repeat(np.int32([0, 1, 2, 3]), [10, 22, 16, 16])
    proto, (w,) = network(64, 33, block=16, order=order)
    model, x = fo.load_onnx(proto), draw(3, 64)
    np.testing.assert_allclose(model(x), np.maximum(x @ w.T, 0), rtol=1e-4, atol=1e-4)
    assert any("not all of 16 steps" in refusal.reason for refusal in model.explain().refusals)


@pytest.mark.parametrize(
    "wrong, message",
    [([0, 1, 2], r"64 steps \(g_idx\) have the shape \(3,\)"), ([4] * 64, "from 4 to 4, but there are 4")],
)
def test_a_wrong_order_is_refused(draw, wrong, message):
    proto, _ = network(64, 33, block=16, order=np.zeros(64, np.int32))
    initializer = next(i for i in proto.graph.initializer if i.name == "order")
    initializer.CopyFrom(onnx.numpy_helper.from_array(np.int32(wrong), "order"))
    with pytest.raises(ValueError, match=message):
        fo.load_onnx(proto)(draw(3, 64))
