"""float16, bfloat16 and float64: halves are stored and computed in float32, doubles are computed by NumPy."""

import os

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
from onnx import TensorProto as T
from onnx import helper, numpy_helper

import fusedops as fo
from fusedops import _core

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
    steps = {s.kind: s.node.op for s in net._plan(x)[0].steps}
    assert steps.get("numpy", "Cast") == "Cast" and {"conv2d", "linear"} & set(steps)
    if kind == T.FLOAT16:
        assert len(net.explain().fusions) == len(fo.load_onnx(build(T.FLOAT)).explain().fusions)
        with pytest.raises(TypeError, match="float16"):
            net(x.astype(np.float32))


@pytest.mark.parametrize("kind", [T.FLOAT, T.FLOAT16, T.BFLOAT16])
def test_files_of_bfloat16_multiply_in_it(kind, tmp_path):
    """By themselves, where it is faster; float16 would lose bits of its own."""
    nodes, w = [make("MatMul", ["x", "w"], ["h"]), make("Relu", ["h"], ["y"])], RNG.standard_normal((256, 256)) / 16
    proto = network(kind, nodes, [64, 256], [64, 256], {"w": w})
    x = RNG.standard_normal((64, 256)).astype(np.float16 if kind == T.FLOAT16 else np.float32)
    alone, *told = (fo.load_onnx(proto, **o) for o in ({}, {"precision": "float32"}, {"precision": "bfloat16"}))
    as_alone = told[kind == T.BFLOAT16]
    np.testing.assert_array_equal(alone(x), as_alone(x))
    assert [s.kind for s in alone._plan(x)[0].steps] == [s.kind for s in as_alone._plan(x)[0].steps]
    if kind == T.BFLOAT16:
        assert np.array_equal(told[0](x), told[1](x)) != _core.has_bfloat16()
        alone.save(tmp_path / "net.fo")
        np.testing.assert_array_equal(fo.load(tmp_path / "net.fo")(x), alone(x))


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


EDGES = np.float32(
    [0, -0.0, 1e-12, 6e-8, 2.98e-8, 2.99e-8, -6.1e-5, 1 / 3, -0.1, 2049, 2051, 65519.9, 65520, -123456.7]
)
EDGES = np.concatenate([EDGES, np.float32([1e38, -3.4e38, np.inf, -np.inf, np.nan])])


def bfloat16(x):
    """Rounded by way of float64: int8 of the significand, ties to even."""
    wide = x.astype(np.float64)
    with np.errstate(all="ignore"):
        size, power = np.frexp(wide)
        least = np.maximum(power - 8, -133)  # the exponent of the last place
        y = np.where(np.isfinite(wide), np.ldexp(np.rint(np.ldexp(size, power - least)), least), wide)
        return y.astype(np.float32)


def rounded(x, kind):
    with np.errstate(over="ignore"):
        return x.astype(np.float16).astype(np.float32) if kind == T.FLOAT16 else bfloat16(x)


def narrowing(kind, source, way):
    """A network that casts to halves and back: an input, a constant, or what a layer makes; all at once or not."""
    moved = [make("Reshape", ["c"], ["d"]), make("Cast", ["d"], ["b"], to=T.FLOAT)]
    moved[0].input.append("shape")
    before = {"layer": [make("Relu", ["x"], ["r"])], "constant": [], "input": []}[source]
    start = {"layer": "r", "constant": "k", "input": "x"}[source]
    casts = [make("Cast", [start], ["c"], to=kind)]
    casts += moved if way == "moved" else [make("Cast", ["c"], ["b"], to=T.FLOAT)]
    nodes = [*before, *casts, make("Mul", ["b", "x" if source == "constant" else "one"], ["y"])]
    stored = {"k": EDGES, "one": np.float32([1]), "shape": np.int64([-1])}
    graph = helper.make_graph(
        nodes,
        "g",
        [info("x", T.FLOAT, ["n"])],
        [info("y", T.FLOAT, ["n"])],
        [numpy_helper.from_array(a, n) for n, a in stored.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


@pytest.mark.parametrize("way", ["at once", "moved"])
@pytest.mark.parametrize("source", ["input", "constant", "layer"])
@pytest.mark.parametrize("kind", [T.FLOAT16, T.BFLOAT16])
def test_casts_to_halves_and_back_round(isa, kind, source, way, tmp_path):
    """In a network of float32 such a pair is meant: 100000 becomes infinite, 2049 becomes 2048."""
    x = np.ones_like(EDGES) if source == "constant" else np.tile(EDGES, 7)
    expected = rounded({"layer": np.maximum(x, 0), "constant": EDGES, "input": x}[source], kind)
    proto = narrowing(kind, source, way)
    net = fo.load_onnx(proto)
    net.save(tmp_path / "net.fo")
    for form in net, fo.load_onnx(proto, fold=False, fuse=False), fo.load(tmp_path / "net.fo"):
        np.testing.assert_array_equal(form(x), expected)
    assert not any(s.kind == "numpy" for s in net._plan(x)[0].steps)


@pytest.mark.parametrize("kind", [T.FLOAT16, T.BFLOAT16])
def test_every_rounding(isa, kind):
    """Of floats at, below and above each float16 and the middle between it and the next."""
    bits = np.arange(0, 0x7C00, 7, dtype=np.uint16).view(np.float16).astype(np.float32).view(np.uint32)
    bits = np.concatenate([bits + d for d in (0, 1, 0xFFF, 0x1000, 0x1001, 0x7FFF, 0x8000, 0x8001, 0x18000)])
    x = bits.astype(np.uint32).view(np.float32)
    x = np.concatenate([x, -x])[np.tile(x >= np.finfo(np.float32).tiny, 2)]
    np.testing.assert_array_equal(fo.load_onnx(narrowing(kind, "input", "at once"))(x), rounded(x, kind))


@pytest.mark.parametrize(
    "nodes, result, given, expected",
    [
        ("a = Cast<to=10>(x) y = Cast<to=6>(a)", "int32", [2049, 4099, -2051], np.int32([2048, 4100, -2052])),
        ("a = Cast<to=10>(x) y = IsInf(a)", "bool", [7e4, 6e4, -1e9], [True, False, True]),
        ("a = Cast<to=10>(x) b = Floor(a) y = Cast<to=1>(b)", "float", [2.9999, 1023.9, 5], np.float32([3, 1024, 5])),
        ("a = Cast<to=10>(x) b = Relu(a) y = Cast<to=1>(b)", "float", [2049, -1, 1e5], np.float32([2048, 0, np.inf])),
        ("a = Cast<to=10>(x) y = ArgMax<axis=0>(a)", "int64", [1, 1.0001, 1.0002], [0]),
        ("a = Cast<to=16>(x) z = Neg(a) y = Less(z, a)", "bool", [1e-45, 1, -1], [False, True, False]),
        ("a = Cast<to=10>(x) b = Cast<to=16>(a) y = Cast<to=1>(b)", "float", [2051, 1e5, 0.1], None),
        ("a = Cast<to=11>(x) b = Cast<to=10>(a) y = Cast<to=11>(b)", "double", [2049, 1e5, 0.5], [2048, np.inf, 0.5]),
        ("a = Cast<to=6>(x) b = Cast<to=10>(a) y = Cast<to=6>(b)", "int32", [2049, 7, -2051], [2048, 7, -2052]),
        ("a = Cast<to=3>(x) y = Cast<to=1>(a)", "float", [2.9, -3.9, 127], np.float32([2, -3, 127])),
    ],
)
def test_what_shows_that_a_cast_rounds(isa, nodes, result, given, expected):
    proto = onnx.parser.parse_model(
        f"""<ir_version: 9, opset_import: ["" : 20]> net (float[n] x) => ({result}[m] y) {{ {nodes} }}"""
    )
    x = np.float32(given)
    if expected is None:
        expected = bfloat16(rounded(x, T.FLOAT16))
    for form in fo.load_onnx(proto), fo.load_onnx(proto, fold=False, fuse=False):
        np.testing.assert_array_equal(form(x), expected)


def test_casts_into_products_of_halves_do_not_round():
    """Halves are a way to store there: the casts of mixed precision cost nothing, and no bit."""
    text = """<ir_version: 9, opset_import: ["" : 18]> net (float[n, 4] x) => (float[n, 3] y) {
        a = Cast<to = 10>(x)  h = MatMul(a, w)  y = Cast<to = 1>(h) }"""
    proto, w = onnx.parser.parse_model(text), RNG.standard_normal((4, 3)).astype(np.float16)
    proto.graph.initializer.append(numpy_helper.from_array(w, "w"))
    net, x = fo.load_onnx(proto), RNG.standard_normal((5, 4)).astype(np.float32)
    np.testing.assert_allclose(net(x), x.astype(np.float64) @ w, rtol=1e-5, atol=1e-6)
    assert [s.kind for s in net._plan(x)[0].steps] == ["linear"]


def test_constants_of_halves_that_are_cast_keep_their_value():
    """A third as float16 is 0.33325, though as a constant of an activation in halves it counts as 1/3."""
    text = """<ir_version: 9, opset_import: ["" : 18]> net (float[1] x) => (float[1] y) {
        c = Cast<to = 1>(k)  y = Mul(c, x) }"""
    proto = onnx.parser.parse_model(text)
    proto.graph.initializer.append(numpy_helper.from_array(np.float16([1 / 3]), "k"))
    assert fo.load_onnx(proto)(np.float32([1])) == np.float32(np.float16(1 / 3))
