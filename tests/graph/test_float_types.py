"""float16, bfloat16 and float64: halves are stored and computed in float32, doubles are computed by NumPy."""

import os

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
from onnx import TensorProto as T
from onnx import helper, numpy_helper

import fusedops as fo

RNG = np.random.default_rng(0)
make, info = helper.make_node, helper.make_tensor_value_info


def network(kind, nodes, x, y, weights, opset=18):
    arrays = [helper.make_tensor(name, kind, a.shape, a.astype(np.float32).ravel()) for name, a in weights.items()]
    graph = helper.make_graph(nodes, "g", [info("x", kind, x)], [info("y", kind, y)], arrays)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def convolutions(kind):
    w, b, v = RNG.standard_normal((8, 3, 3, 3)) / 4, RNG.standard_normal(8), 1 + RNG.random(8)
    nodes = [
        make("Conv", ["x", "w"], ["c"], pads=[1] * 4),
        make("BatchNormalization", ["c", "v", "b", "b", "v"], ["n"]),
        make("Relu", ["n"], ["r"]),
        make("GlobalAveragePool", ["r"], ["y"]),
    ]
    return network(kind, nodes, ["n", 3, 9, 9], ["n", 8, 1, 1], {"w": w, "b": b, "v": v})


def gelu(kind):
    constants = {
        "root": np.array(2**0.5),
        "one": np.array(1.0),
        "half": np.array(0.5),
        "w": RNG.standard_normal((6, 6)) / 3,
    }
    nodes = [
        make("MatMul", ["x", "w"], ["m"]),
        make("Div", ["m", "root"], ["d"]),
        make("Erf", ["d"], ["e"]),
        make("Add", ["e", "one"], ["a"]),
        make("Mul", ["m", "a"], ["p"]),
        make("Mul", ["p", "half"], ["y"]),
    ]
    return network(kind, nodes, ["n", 6], ["n", 6], constants)


@pytest.mark.parametrize("build, shape", [(convolutions, (2, 3, 9, 9)), (gelu, (5, 6))])
@pytest.mark.parametrize("kind", [T.FLOAT16, T.BFLOAT16])
def test_halves(build, shape, kind, tmp_path):
    """As near to the exact result as one rounding of the output, by the same kernels as float32."""
    proto, x = build(kind), RNG.standard_normal(shape).astype(np.float16)
    if kind == T.BFLOAT16:
        x = x.astype(np.float32)
    net = fo.load_onnx(proto)
    weights = {t.name: numpy_helper.to_array(t).astype(np.float32) for t in proto.graph.initializer}
    double = onnx.ModelProto.FromString(proto.SerializeToString())
    for t in double.graph.initializer:
        t.CopyFrom(numpy_helper.from_array(weights[t.name].astype(np.float64), t.name))
    for v in (*double.graph.input, *double.graph.output):
        v.type.tensor_type.elem_type = T.DOUBLE
    exact = fo.load_onnx(double, fold=False, fuse=False)(x.astype(np.float64))
    assert exact.dtype == np.float64
    net.save(tmp_path / "net.fo")
    plain = fo.load_onnx(proto, fold=False, fuse=False)
    for form in (net, plain, fo.load(tmp_path / "net.fo")):
        y = form(x)
        assert y.dtype == x.dtype
        np.testing.assert_allclose(y.astype(np.float64), exact, rtol=1.5e-3, atol=1.5e-3)
    steps = {s.kind: s.node.op for s in net.plan(x)[0].steps}
    assert steps.get("numpy", "Cast") == "Cast" and {"conv2d", "linear"} & set(steps)
    if kind == T.FLOAT16:
        assert len(net.explain().fusions) == len(fo.load_onnx(build(T.FLOAT)).explain().fusions)
        with pytest.raises(TypeError, match="float16"):
            net(x.astype(np.float32))


def test_saved_halves_take_their_own_size(tmp_path):
    w = RNG.standard_normal((256, 256)) / 16
    sizes = {}
    for kind in (T.FLOAT, T.FLOAT16, T.BFLOAT16):
        net = fo.load_onnx(
            network(kind, [make("MatMul", ["x", "w"], ["h"]), make("Relu", ["h"], ["y"])], [1, 256], [1, 256], {"w": w})
        )
        net.save(tmp_path / "net.fo")
        sizes[kind] = os.path.getsize(tmp_path / "net.fo")
        x = RNG.standard_normal((1, 256)).astype(np.float16 if kind == T.FLOAT16 else np.float32)
        assert np.array_equal(fo.load(tmp_path / "net.fo")(x), net(x))
    assert sizes[T.FLOAT16] < 0.6 * sizes[T.FLOAT] and sizes[T.BFLOAT16] < 0.6 * sizes[T.FLOAT]


def test_halves_overflow_as_the_type_does():
    net = fo.load_onnx(network(T.FLOAT16, [make("Mul", ["x", "x"], ["y"])], [2], [2], {}))
    assert np.array_equal(net(np.float16([300, 2])), np.float16([np.inf, 4]))


def test_halves_inside_branches_and_as_defaults():
    text = """<ir_version: 9, opset_import: ["" : 18]>
    net (float16[2] x, bool c, float16[2] t) => (float16[2] y) {
        h = Add(x, t)
        y = If (c) <then_branch = a () => (float16[2] p) { p = Mul(h, x) },
                    else_branch = b () => (float16[2] q) { q = Cast<to = 10>(h) }>
    }"""
    proto = onnx.parser.parse_model(text)
    proto.graph.initializer.append(numpy_helper.from_array(np.float16([1, 2]), "t"))
    net, x = fo.load_onnx(proto), np.float16([3, 4])
    assert np.array_equal(net.run({"x": x, "c": np.array(True)})["y"], (x + np.float16([1, 2])) * x)
    y = net.run({"x": x, "c": np.array(False), "t": np.float16([5, 5])})["y"]
    assert np.array_equal(y, x + np.float16(5)) and y.dtype == np.float16


def test_doubles_are_computed_by_numpy():
    w = RNG.standard_normal((4, 3))
    graph = helper.make_graph(
        [make("MatMul", ["x", "w"], ["h"]), make("Relu", ["h"], ["y"])],
        "g",
        [info("x", T.DOUBLE, ["n", 4])],
        [info("y", T.DOUBLE, ["n", 3])],
        [numpy_helper.from_array(w, "w")],
    )
    net = fo.load_onnx(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9))
    x = RNG.standard_normal((2, 4))
    np.testing.assert_allclose(net(x), np.maximum(x @ w, 0), rtol=1e-14)
    assert any("float64" in r.reason for r in net.explain().refusals)
