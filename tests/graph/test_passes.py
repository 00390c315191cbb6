"""Passes change no result: small graphs at which folding or fusing could, against NumPy, in every form of loading."""

import itertools
import time

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper

import fusedops as fo
from fusedops.graph.passes.optimizer import PASSES, check_names
from fusedops.graph.steps.lowering import LoweringContext
from fusedops.graph.steps.tensor import TensorView
from onnx_lines import network

FORMS = [{"fold": fold, "fuse": fuse} for fold, fuse in itertools.product((False, True), repeat=2)]
RNG = np.random.default_rng(0)


def some(*shape):
    return RNG.uniform(1, 2, shape).astype(np.float32)


def check(expected, graph, inputs, constants=None, rtol=1e-5):
    """The network with everything folded and fused, after a comparison of all forms with the expected result."""
    proto = network(graph, inputs, constants, expected.ndim)
    for form in FORMS:
        net = fo.load_onnx(proto, **form)
        y = net(*inputs.values())
        assert y.shape == expected.shape
        np.testing.assert_allclose(y, expected, rtol, err_msg=str(form))
    return net


ARITHMETIC = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide}


@pytest.mark.parametrize("layer", ["Conv", "ConvTranspose", "Gemm", "MatMul"])
@pytest.mark.parametrize("op", ARITHMETIC)
@pytest.mark.parametrize("swapped", [False, True])
def test_arithmetic_with_a_constant_after_weights(layer, op, swapped):
    x, w, b, c = some(3, 2), some(2, 4), some(4), some(4)
    h = x @ w + (0 if layer == "MatMul" else b)
    expected = ARITHMETIC[op](*(c, h) if swapped else (h, c))
    if "Conv" in layer:
        x, w, c, expected = (a[..., None, None] for a in (x, w.T if layer == "Conv" else w, c, expected))
    graph = f"h = {layer} x w{'' if layer == 'MatMul' else ' b'}; y = {op} {'c h' if swapped else 'h c'}"
    net = check(expected, graph, {"x": x}, {"w": w, "b": b, "c": c})
    assert len(net._graph.nodes) == (2 if op == "Div" and swapped else 1)


@pytest.mark.parametrize(
    "graph, scale, nodes",
    [
        ("h = MatMul x z; y = Div h c", 1 / 3, 1),
        ("h = MatMul x z; y = Mul c h", 3, 1),
        ("q = Mul x c; y = MatMul q z", 3, 1),
        ("q = Mul x c; k = Div z c; h = MatMul q k; s = Mul h c; y = Div s c", 1, 1),
        ("h = MatMul x z; g = Mul h c; y = Relu g", 3, 1),
        ("q = Mul x c; h = MatMul q z; y = Add h h", 6, 2),
        ("h = MatMul x z; g = Mul h c; y = Add g h", 4, 3),
    ],
)
@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_factor_of_a_product(graph, scale, nodes, shape):
    x, z = some(3, 2), some(1, 2, 4)
    net = check(scale * (x @ z), graph, {"x": x, "z": z}, {"c": np.full(shape, 3, np.float32)})
    assert len(net._graph.nodes) == nodes


@pytest.mark.parametrize(
    "graph, x_size, z_size, factor",
    [
        ("q = Mul x c; y = MatMul q z", 1e35, 1e-10, 1e-30),
        ("h = MatMul x z; y = Mul h c", 1e25, 1e-10, 1e-30),
        ("h = MatMul x z; y = Div h c", 1e-20, 1e12, 1e30),
    ],
)
def test_factor_beyond_the_range_of_one_operand(graph, x_size, z_size, factor):
    """It would make z 0 or infinite, while the result is a number."""
    x, z = some(3, 2) * np.float32(x_size), some(1, 2, 4) * np.float32(z_size)
    net = check(
        x.astype(np.float64) @ z * factor,
        graph,
        {"x": x, "z": z},
        {"c": np.float32(1 / factor if "Div" in graph else factor)},
    )
    assert len(net._graph.nodes) == 2


@pytest.mark.parametrize("axis", [1, 2, 3])
@pytest.mark.parametrize("heads", [1, 3])
def test_concatenation_of_heads(axis, heads, monkeypatch):
    """As rotary embeddings have it: what has four axes need not be an image, and has the layout of its parts, unless
    they are channels."""
    orders, add = {}, LoweringContext.add

    def recording(builder, kind, node, **arguments):
        orders[node.op] = [t.strides for t in arguments.values() if isinstance(t, TensorView)]
        return add(builder, kind, node, **arguments)

    monkeypatch.setattr(LoweringContext, "add", recording)
    x = some(2, heads, 5, 4)
    n, whole = helper.make_node, np.concatenate([-x, x], axis)
    nodes = [
        n("Transpose", ["x"], ["t"], perm=[0, 2, 1, 3]),
        n("Neg", ["t"], ["m"]),
        n("Transpose", ["m"], ["a"], perm=[0, 2, 1, 3]),
        n("Concat", ["a", "x"], ["c"], axis=axis),
        n("Mul", ["c", "w"], ["y"]),
    ]
    w = some(*whole.shape[2:])
    values = [[helper.make_tensor_value_info(k, TensorProto.FLOAT, a.shape)] for k, a in (("x", x), ("y", whole))]
    graph = helper.make_graph(nodes, "g", *values, [numpy_helper.from_array(w, "w")])
    net = fo.load_onnx(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))
    assert np.array_equal(net(x), whole * w)
    if heads > 1 and axis > 1:
        parts, concatenated = orders["Neg"][0], orders["Mul"][0]  # of (n, rows, heads, c) and (n, heads, rows, c)
        assert np.argsort(concatenated).tolist() == np.argsort([parts[i] for i in (0, 2, 1, 3)]).tolist()


@pytest.mark.parametrize(
    "graph, expected",
    [
        ("h = MatMul x z; y = Mul h c", lambda x, z, c: x @ z * c),
        ("h = MatMul x z; y = Div d h", lambda x, z, c: 3 / (x @ z)),
        ("q = Mul x d; h = MatMul q z; y = Mul h q", lambda x, z, c: 9 * (x @ z) * x),
        ("q = Mul x d; y = MatMul q q", lambda x, z, c: 9 * x @ x),
    ],
)
def test_what_is_no_factor_of_a_product(graph, expected):
    x, z, c = some(1, 4, 4), some(1, 4, 4), some(4)
    inputs = {"x": x, "z": z} if "z" in graph else {"x": x}
    check(expected(x, z, c), graph, inputs, {"c": c, "d": np.float32(3)})


@pytest.mark.parametrize("rows", [3, 4])
@pytest.mark.parametrize("shape", [(), (1,), (1, 1), (4,), (1, 4), ("rows", 1), ("rows", 4)])
def test_addend_of_a_gemm(rows, shape):
    x, w, c = some(rows, 2), some(2, 4), some(*(rows if n == "rows" else n for n in shape))
    check(x @ w + 2 * c, "y = Gemm beta=2 x w c", {"x": x}, {"w": w, "c": c})


FAR = np.float32([0, 1, 19, 25, 50, 88, 100, 1e6, 1e30, np.inf])


@pytest.mark.parametrize(
    "graph",
    [
        "h = Clip x lo hi; y = Softplus h",
        "h = Clip x lo hi; y = Sigmoid h",
        "s = Sigmoid x; h = Mul x s; y = Clip h lo hi",
        "s = Sigmoid x; h = Mul x s; y = Clip h lo",
        "s = Sigmoid x; h = Mul x s; y = Clip h - hi",
        "h = Clip x lo hi; y = HardSwish h",
        "h = Clip x - hi; s = Softplus h; t = Tanh s; y = Mul h t",
        "h = Clip x lo hi; s = Sigmoid h; y = Mul x s",
        "h = Clip x lo; y = Gelu h",
    ],
)
@pytest.mark.parametrize("bound", [20, 30, 80, 65504, np.finfo(np.float32).max])
def test_clamps_beyond_the_bend_of_an_activation_stay(graph, bound):
    x = np.concatenate([FAR, -FAR[:-1]])  # at minus infinity x sigmoid(x) is no number, and silu its limit
    proto = network(graph, {"x": x}, {"lo": -bound, "hi": bound}, opset=20)
    np.testing.assert_allclose(fo.load_onnx(proto)(x), fo.load_onnx(proto, fuse=False)(x), rtol=1e-5, atol=1e-37)


def test_constants_of_more_axes_give_an_activation_more_axes():
    x, constants = some(5), {"three": [[3]], "zero": 0, "six": 6}
    expected = (x * np.clip(x + 3, 0, 6) / 6)[np.newaxis]
    check(expected, "h = Add x three; c = Clip h zero six; m = Mul x c; y = Div m six", {"x": x}, constants)


def test_slopes_inside_an_expression():
    x, slopes = some(1, 3, 4, 4) - np.float32(1.5), some(3)
    proto = network("h = PRelu x w; y = Mul x h", {"x": x}, {"w": slopes}, 4, opset=6)
    np.testing.assert_allclose(fo.load_onnx(proto)(x), x * np.where(x > 0, x, slopes.reshape(3, 1, 1) * x), rtol=1e-5)


@pytest.mark.parametrize(
    "graph, expected",
    [
        ("y.product = Relu c; y = Gemm x w c; z = Mul y y.product", lambda x, w, c, d: (x @ w + c) * c),
        (
            "Gemm_0.scaled = Relu c; y.scaled = Relu d; y = Gemm beta=2 x w c; "
            "g = Add Gemm_0.scaled y.scaled; z = Add y g",
            lambda x, w, c, d: x @ w + 2 * c + c + d,
        ),
        ("v.T = Relu x; y = MatMul x v; z = Add y v.T", lambda x, w, c, d: 2 * x),
        ("v.packed = Relu x; y = Gemm alpha=2 x v; z = Add y v.packed", lambda x, w, c, d: 3 * x),
        ("v.packed.folded = Relu x; h = Gemm x v; y = Mul h two; z = Add y v.packed.folded", lambda x, w, c, d: 3 * x),
        (
            "Gemm_1.bias.folded = Relu x; h = Gemm x v; y = Add h two; z = Add y Gemm_1.bias.folded",
            lambda x, w, c, d: 2 * x + 2,
        ),
    ],
)
def test_values_with_the_names_that_passes_give(graph, expected):
    inputs = {"x": some(3, 2), "w": some(2, 4), "c": some(3, 4), "d": some(3, 4)}
    check(expected(**inputs), graph, inputs, {"v": np.eye(2, dtype="f4"), "two": 2})


@pytest.mark.parametrize("rows, added", [((1, 8), (3, 4)), ((3, 8), (1, 4))])
@pytest.mark.parametrize("layer", ["MatMul x w", "Conv x w", "BatchNormalization x one zero zero one"])
def test_residual_that_is_broadcast_over_the_batch(layer, rows, added):
    x, r, w = some(*rows), some(*added), some(8, 4)
    expected = x @ w + r
    if "Batch" in layer:
        x, expected = x[:, :4], x[:, :4] + r
    elif "Conv" in layer:
        x, r, w, expected = (a[..., None, None] for a in (x, r, w.T, expected))
    net = check(expected, f"h = {layer}; y = Add h r", {"x": x, "r": r}, {"w": w, "one": [1] * 4, "zero": [0] * 4})
    assert not any(step.kind == "numpy" for step in net._plan(x, r)[0].steps)
    assert "broadcast" in net.explain().refusals[-1].reason


def test_residual_of_an_open_batch_beside_another():
    x, r, w = some(3, 8), some(3, 4), some(8, 4)
    net = check(x @ w + r, "h = MatMul x w; y = Add h r", {"x": x, "r": r}, {"w": w})
    assert len(net._graph.nodes) == 1
    np.testing.assert_allclose(net(x[:1], r), x[:1] @ w + r, rtol=1e-5)


@pytest.mark.parametrize(
    "graph",
    [
        "c = Expand one far; y = Add x c",
        "c = ConstantOfShape far; y = Add x c",
        "c = MatMul column row; y = Add x c",
        "c = Mul column row; y = Add x c",
        "s = Softmax column; c = Gemm s row; y = Add x c",
    ],
)
def test_constants_larger_than_memory(graph):
    n = 1 << 21
    constants = {"one": [1], "far": np.array([1 << 46]), "column": np.ones((n, 1), "f4"), "row": np.ones((1, n), "f4")}
    proto = network(graph, {"x": some(1)}, constants, 2)
    for form in FORMS:
        with pytest.raises(ValueError, match="no memory"):
            fo.load_onnx(proto, **form)(some(1))


def test_loading_takes_time_by_the_node():
    """Eight times the nodes take about eight times as long, not sixty-four."""

    def seconds(pairs):
        chain = "; ".join(f"r{i} = Relu {f'v{i - 1}' if i else 'x'}; v{i} = Mul r{i} c" for i in range(pairs))
        proto, times = network(chain, {"x": some(3)}, {"c": 2}), []
        for _ in range(2):
            start = time.process_time()
            fo.load_onnx(proto)
            times.append(time.process_time() - start)
        return min(times)

    assert seconds(1000) < 20 * seconds(125)


def test_long_chains_beside_a_factor():
    """What a search for activations walks along ends after a few nodes, however many there are."""
    chain = "; ".join(f"v{i} = Neg {f'v{i - 1}' if i else 'x'}" for i in range(2000))
    check(-(np.arange(3, dtype=np.float32) ** 2), f"{chain}; b = Neg x; y = Mul b v1999", {"x": np.float32([0, 1, 2])})


def test_each_pass_off_by_name():
    """A pass that is left out leaves its nodes where they are, and the same numbers come out."""
    x, w = some(1, 3, 6, 6), some(4, 3, 3, 3)
    proto = network("h = Conv x w; y = Relu h", {"x": x}, {"w": w}, 4)
    fused, apart = fo.load_onnx(proto), fo.load_onnx(proto, disabled_passes=("epilogue",))
    assert [len(net._graph.nodes) for net in (fused, apart)] == [1, 2]
    for name in (each.name for each in PASSES):
        assert np.array_equal(fo.load_onnx(proto, disabled_passes=[name])(x), apart(x))


def test_passes_keep_the_names_of_1_0():
    assert check_names(["dequantised constants"]) == {"dequantized constants"}  # codespell:ignore dequantised


def test_unknown_passes_are_errors():
    with pytest.raises(ValueError, match="no pass 'epilog'; the passes are constant folding, .*epilogue, .*blocks"):
        fo.load_onnx(b"", disabled_passes=("epilog",))
    with pytest.raises(TypeError, match=r"pass \('epilogue',\)"):
        fo.load_onnx(b"", disabled_passes="epilogue")


@pytest.mark.parametrize("names", [("t", "t"), ("a", "b")])
def test_open_sizes_of_other_names_and_short_tables(names):
    """Sizes that must agree though their names differ, and a table of fewer rows than the usual example has."""
    onnx = pytest.importorskip("onnx")
    text = f"""<ir_version: 8, opset_import: ["" : 17]>
    net (float[n, {names[0]}, 4] x, float[n, {names[1]}, 4] z) => (float[n, t, 4] y) <float[20, 4] table> {{
        s = Add(x, z)  shape = Shape(s)  one = Constant<value_int = 1>()  length = Gather(shape, one)
        zero = Constant<value_int = 0>()  places = Range(zero, length, one)  p = Gather(table, places)
        q = Add(s, p)  y = Relu(q)
    }}"""
    proto = onnx.parser.parse_model(text)
    table = np.random.default_rng(0).standard_normal((20, 4), np.float32)
    del proto.graph.initializer[:]
    proto.graph.initializer.append(onnx.numpy_helper.from_array(table, "table"))
    net = fo.load_onnx(proto)
    assert len(net.explain().fusions) == 1
    x = np.random.default_rng(1).standard_normal((2, 5, 4), np.float32)
    np.testing.assert_allclose(net(x, x), np.maximum(2 * x + table[:5], 0), rtol=1e-6)
