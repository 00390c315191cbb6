"""Negative pads of a convolution cut the image, whatever the type of its operands."""

import numpy as np
import pytest

pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper

import fusedops as fo
from fusedops.graph.inference.evaluate import evaluate
from fusedops.graph.ir.graph import Node

PADS = [0, -1, 0, 0], [-1, 0, 0, 0], [-1, -2, 1, -1], [1, -1, 0, -2]
SHAPES = (3, 16, 1, 9), (3, 16, 1, 40), (16, 8, 1, 9), (6, 6, 6, 40), (32, 32, 32, 9)  # c, oc, groups, side


def network(node, kind, x, constants, **options):
    value = helper.make_tensor_value_info
    inits = [numpy_helper.from_array(a, name) for name, a in constants.items()]
    graph = helper.make_graph([node], "conv", [value("x", kind, x.shape)], [value("y", kind, None)], inits)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    return fo.load_onnx(model.SerializeToString(), **options)


def cut(x, pads):
    (top, left, bottom, right), (h, w) = pads, x.shape[2:]
    inside = x[:, :, max(-top, 0) : h + min(bottom, 0), max(-left, 0) : w + min(right, 0)]
    return np.ascontiguousarray(inside), [max(p, 0) for p in pads]


@pytest.mark.parametrize("pads", PADS, ids=str)
@pytest.mark.parametrize("c, oc, groups, side", SHAPES)
@pytest.mark.parametrize("precision, error", [("float32", 1e-5), ("bfloat16", 2e-2)])
def test_floats(isa, draw, precision, error, c, oc, groups, side, pads):
    x, w = draw(1, c, side, side + 2), draw(oc, c // groups, 3, 3)
    inside, left = cut(x.astype(np.float64), pads)
    expected = evaluate(
        Node("Conv", "c", ["x", "w"], ["y"], {"pads": left, "group": groups}), [inside, w.astype(np.float64)]
    )[0]
    node = helper.make_node("Conv", ["x", "w"], ["y"], pads=pads, group=groups)
    y = network(node, TensorProto.FLOAT, x, {"w": w}, precision=precision)(x)
    np.testing.assert_allclose(y, expected, rtol=0, atol=error * np.abs(expected).max())


@pytest.mark.parametrize("pads", PADS, ids=str)
@pytest.mark.parametrize("c, oc, groups, side", SHAPES)
def test_int8(isa, c, oc, groups, side, pads):
    rng = np.random.default_rng(0)
    x = rng.integers(0, 255, (1, c, side, side + 2), dtype=np.uint8)
    w = rng.integers(-127, 127, (oc, c // groups, 3, 3), dtype=np.int8)
    scales = {"x_scale": 0.1, "x_zero": 100, "w": w, "w_scale": 0.01, "w_zero": 0, "y_scale": 2.0, "y_zero": 128}
    types = {"x_zero": np.uint8, "w_zero": np.int8, "y_zero": np.uint8}
    constants = {n: a if n == "w" else np.array(a, types.get(n, np.float32)) for n, a in scales.items()}

    def run(x, pads):
        node = helper.make_node("QLinearConv", ["x", *constants], ["y"], pads=pads, group=groups)
        return network(node, TensorProto.UINT8, x, constants)(x)

    off = np.abs(run(x, pads).astype(int) - run(*cut(x, pads)))  # float32, where it is faster, rounds ties its way
    assert off.max() <= 1 and off.mean() < 1e-2
