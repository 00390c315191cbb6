"""What users of such libraries reported in public, each with its right value."""

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper

import fusedops as fo

RNG = np.random.default_rng(0)
make = helper.make_node


def load(node, shapes, outputs, weights, opset=17, kinds=(), **options):
    """A network of one node, whose first inputs have these shapes."""
    kinds = dict.fromkeys(shapes, TensorProto.FLOAT) | dict(kinds)
    inputs = [helper.make_tensor_value_info(name, kinds[name], shape) for name, shape in shapes.items()]
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    graph = helper.make_graph(
        [node], "g", inputs, results, [numpy_helper.from_array(a, name) for name, a in weights.items()]
    )
    return fo.load_onnx(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8), **options
    )


@pytest.mark.parametrize("fuse", [True, False])
@pytest.mark.parametrize("auto, first", [("NOTSET", 1), ("VALID", 1), ("SAME_UPPER", 0), ("SAME_LOWER", 1)])
@pytest.mark.parametrize("axes, groups", [(1, 1), (2, 1), (2, 2), (3, 1)])
def test_transposed_convolution_of_a_given_shape(auto, first, axes, groups, fuse):
    """With an odd crop, one pixel more goes in front, but with SAME_UPPER (the specification and ONNX Runtime)."""
    x, w = (
        RNG.standard_normal((1, 2, *[3] * axes), np.float32),
        RNG.standard_normal((2, 2 // groups, *[3] * axes), np.float32),
    )
    options = dict(strides=[2] * axes, group=groups)
    full = load(make("ConvTranspose", ["x", "w"], ["y"], **options), {"x": x.shape}, ["y"], {"w": w}, fuse=fuse)(x)
    node = make("ConvTranspose", ["x", "w"], ["y"], auto_pad=auto, output_shape=[6] * axes, **options)
    y = load(node, {"x": x.shape}, ["y"], {"w": w}, fuse=fuse)(x)
    np.testing.assert_allclose(y, full[(..., *[slice(first, first + 6)] * axes)], rtol=1e-5, atol=1e-5)


def recurrent(op, gates, extra=(), **attributes):
    """A layer of 4 units over 3 inputs, its weights, and what it is given: x of 5 steps and 2 rows."""
    w, r = RNG.standard_normal((1, gates * 4, 3), np.float32), RNG.standard_normal((1, gates * 4, 4), np.float32)
    shapes = {"x": [5, 2, 3], **dict(extra)}
    node = make(
        op, ["x", "w", "r", "", *(name for name in shapes if name != "x")], ["y", "h"], hidden_size=4, **attributes
    )
    return load(node, shapes, ["y", "h"], {"w": w, "r": r}, kinds={"n": TensorProto.INT32}), w[0], r[0]


def sigmoid(v):
    return 1 / (1 + np.exp(-v))


@pytest.mark.parametrize("kernel", [True, False])
def test_lstm_clip_bounds_the_gates_alone(kernel):
    """One answer from the kernel and from NumPy: that of ONNX Runtime, which leaves the new state as it is."""
    names = ["Sigmoid", "Tanh", "Tanh"] if kernel else ["Affine", "Tanh", "Tanh"]
    more = {} if kernel else {"activation_alpha": [1.0], "activation_beta": [0.25]}
    net, w, r = recurrent("LSTM", 4, clip=0.5, activations=names, **more)
    x = 3 * RNG.standard_normal((5, 2, 3)).astype(np.float32)
    h, c = np.zeros((2, 2, 4))
    gate = sigmoid if kernel else (lambda v: v + 0.25)
    for step in x.astype(np.float64):
        i, o, f, g = np.clip(np.split(step @ w.T + h @ r.T, 4, 1), -0.5, 0.5)
        c = gate(f) * c + gate(i) * np.tanh(g)
        h = gate(o) * np.tanh(c)
    assert {s.kind for s in net._plan(x)[0].steps} >= {"recurrent" if kernel else "numpy"}
    np.testing.assert_allclose(net(x)[1][0], h, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("op, gates", [("LSTM", 4), ("GRU", 3), ("RNN", 1)])
@pytest.mark.parametrize("direction", ["forward", "reverse"])
def test_lengths_as_an_input(op, gates, direction):
    """Each row as if it ended where its length says, by the kernels, and an error for lengths that are none."""
    net, *_ = recurrent(op, gates, {"n": [2]}, direction=direction)
    x = RNG.standard_normal((5, 2, 3), np.float32)
    y, h = net(x, np.int32([5, 3]))
    for row, length in enumerate([5, 3]):
        each, last = net(
            np.concatenate([x[:length, row : row + 1]] * 2, 1)
            if length == 5
            else np.pad(np.concatenate([x[:length, row : row + 1]] * 2, 1), [(0, 5 - length), (0, 0), (0, 0)]),
            np.int32([length] * 2),
        )
        np.testing.assert_allclose(y[:length, 0, row], each[:length, 0, 0], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(h[0, row], last[0, 0], rtol=1e-5, atol=1e-6)
        assert not y[length:, 0, row].any()
    kinds = {s.node.op for s in net._plan(x, np.int32([5, 3]))[0].steps if s.kind == "numpy"}
    assert kinds == {"CheckedLengths"}
    for wrong in ([6, 1], [-1, 2]):
        with pytest.raises(ValueError, match=r"lengths must be in 0\.\.5"):
            net(x, np.int32(wrong))
    zero = net(x, np.int32([0, 5]))
    assert not zero[0][:, 0, 0].any() and not zero[1][0, 0].any()


def test_alphas_that_no_function_takes():
    """Keras writes them for sigmoid and tanh too; the layer stays one of the kernels."""
    net, *_ = recurrent("LSTM", 4, activation_alpha=[0.0, 0.0, 0.0])
    assert {s.kind for s in net._plan(np.zeros((5, 2, 3), np.float32))[0].steps} <= {"recurrent", "copy"}


RNN_GATES = [
    ("Affine", [0.5], [0.25], lambda v: 0.5 * v + 0.25),
    ("HardSigmoid", [], [], lambda v: np.clip(0.2 * v + 0.5, 0, 1)),
    ("HardSigmoid", [0.5], [0.25], lambda v: np.clip(0.5 * v + 0.25, 0, 1)),
    ("LeakyRelu", [0.5], [], lambda v: np.where(v < 0, 0.5 * v, v)),
    ("Elu", [0.5], [], lambda v: np.where(v < 0, 0.5 * np.expm1(v), v)),
    ("Softplus", [], [], lambda v: np.logaddexp(v, 0)),
    ("Softsign", [], [], lambda v: v / (1 + np.abs(v))),
]


@pytest.mark.parametrize("name, alpha, beta, f", RNN_GATES)
@pytest.mark.parametrize("directions", [1, 2])
def test_any_function_of_an_rnn_is_one_of_the_kernel(name, alpha, beta, f, directions):
    """A factor and a shift of the argument are part of the weights."""
    w, r, b = (RNG.standard_normal((directions, *s), np.float32) / 2 for s in [(4, 3), (4, 4), (8,)])
    given = {"activation_alpha": alpha * directions, "activation_beta": beta * directions}
    node = make(
        "RNN",
        ["x", "w", "r", "b"],
        ["y", "h"],
        hidden_size=4,
        activations=[name] * directions,
        direction=["forward", "bidirectional"][directions - 1],
        **{k: v for k, v in given.items() if v},
    )
    net = load(node, {"x": [5, 2, 3]}, ["y", "h"], {"w": w, "r": r, "b": b})
    x = RNG.standard_normal((5, 2, 3), np.float32)
    for d in range(directions):
        h = np.zeros((2, 4))
        for step in x[:: -1 if d else 1]:
            h = f(step @ w[d].T.astype(np.float64) + h @ r[d].T + b[d, :4] + b[d, 4:])
        np.testing.assert_allclose(net(x)[1][d], h, rtol=1e-5, atol=1e-6)
    assert "recurrent" in {s.kind for s in net._plan(x)[0].steps}


@pytest.mark.parametrize("name, alpha, beta, f", RNN_GATES)
@pytest.mark.parametrize("op, attributes", [("LSTM", {}), ("GRU", {}), ("GRU", {"linear_before_reset": 1})])
@pytest.mark.parametrize("first", [True, False])
def test_functions_of_gates_are_those_of_the_kernel(name, alpha, beta, f, op, attributes, first):
    """For the sigmoids, with a factor and a shift of their argument, or where there is none for the tanh."""
    if not first and name in ("Affine", "HardSigmoid"):
        pytest.skip("these take a factor, which stays in NumPy")
    count = {"LSTM": 4, "GRU": 3}[op]
    gate, new = (f, np.tanh) if first else (sigmoid, f)
    names = [name, "Tanh", "Tanh"] if first else ["Sigmoid", name, name]
    w, r, b, p = (
        RNG.standard_normal((1, *s), np.float32) / 2 for s in [(4 * count, 3), (4 * count, 4), (8 * count,), (12,)]
    )
    given = {"activation_alpha": alpha * (1 if first else 2), "activation_beta": beta}
    peepholes = ["", "", "", "p"] if op == "LSTM" else []
    node = make(
        op,
        ["x", "w", "r", "b", *peepholes],
        ["y", "h"],
        hidden_size=4,
        activations=names[: count - 1],
        **attributes,
        **{k: v for k, v in given.items() if v},
    )
    net = load(node, {"x": [5, 2, 3]}, ["y", "h"], {"w": w, "r": r, "b": b, "p": p})
    x = RNG.standard_normal((5, 2, 3), np.float32)
    h, c = np.zeros((2, 2, 4))
    pi, po, pf = np.split(p[0].astype(np.float64), 3)
    for step in x:
        of_x = np.split(step @ w[0].T.astype(np.float64) + b[0, : 4 * count], count, 1)
        of_h = np.split(h @ r[0].T + b[0, 4 * count :], count, 1)
        if op == "LSTM":
            i, o, forget, g = (u + v for u, v in zip(of_x, of_h, strict=True))
            c = gate(forget + pf * c) * c + gate(i + pi * c) * new(g)
            h = gate(o + po * c) * new(c)
        else:
            z, reset = gate(of_x[0] + of_h[0]), gate(of_x[1] + of_h[1])
            inner = reset * of_h[2] if attributes else (reset * h) @ r[0, 8:].T + b[0, 20:]
            h = (1 - z) * new(of_x[2] + inner) + z * h
    np.testing.assert_allclose(net(x)[1][0], h, rtol=1e-4, atol=1e-5)
    assert {s.kind for s in net._plan(x)[0].steps} <= {"recurrent", "copy"}


def test_functions_of_an_rnn_that_stay_in_numpy():
    """A clip is one of the argument before its factor; two directions may have two functions."""
    for attributes in [dict(activations=["HardSigmoid"], clip=0.5), dict(activations=["ScaledTanh"])]:
        net, *_ = recurrent("RNN", 1, **attributes)
        assert {s.kind for s in net._plan(np.zeros((5, 2, 3), np.float32))[0].steps} == {"numpy"}
    net, w, r = recurrent("RNN", 1, activations=["HardSigmoid"], clip=0.5)
    x, h = RNG.standard_normal((5, 2, 3), np.float32) * 4, np.zeros((2, 4))
    for step in x:
        h = 0.2 * np.clip(step @ w.T + h @ r.T, -0.5, 0.5) + 0.5
    np.testing.assert_allclose(net(x)[1][0], h, rtol=1e-5)


COMPUTED = [
    ("Conv", {"pads": [1, 1, 1, 1]}, [1, 3, 6, 6], {"w": [4, 3, 3, 3], "b": [4]}, ["b"]),
    ("Conv", {"pads": [1, 1, 1, 1]}, [2, 3, 6, 6], {"w": [4, 3, 3, 3], "b": [4]}, ["w"]),
    ("Conv", {"strides": [2]}, [2, 3, 9], {"w": [4, 3, 3]}, ["w"]),
    (
        "Conv",
        {"group": 4, "dilations": [2, 1], "pads": [0, 1, 2, 0]},
        [1, 4, 7, 6],
        {"w": [4, 1, 3, 3], "b": [4]},
        ["w", "b"],
    ),
    ("ConvTranspose", {"strides": [2, 2]}, [1, 3, 4, 4], {"w": [3, 2, 3, 3], "b": [2]}, ["b"]),
    ("ConvTranspose", {"strides": [2, 2], "pads": [1, 0, 1, 2]}, [2, 3, 4, 5], {"w": [3, 2, 3, 4], "b": [2]}, ["w"]),
    ("ConvTranspose", {"strides": [3], "output_padding": [2]}, [2, 3, 9], {"w": [3, 2, 4]}, ["w"]),
    ("ConvTranspose", {"strides": [2, 3], "auto_pad": "SAME_UPPER"}, [1, 3, 4, 5], {"w": [3, 2, 3, 2]}, ["w"]),
    (
        "ConvTranspose",
        {"group": 2, "dilations": [2, 1], "output_shape": [9, 6]},
        [1, 4, 7, 6],
        {"w": [4, 3, 3, 3], "b": [6]},
        ["w", "b"],
    ),
    ("InstanceNormalization", {}, [2, 3, 5, 5], {"s": [3], "b": [3]}, ["s", "b"]),
    ("InstanceNormalization", {}, [2, 3, 5], {"s": [3], "b": [3]}, ["b"]),
    ("LayerNormalization", {}, [2, 5, 6], {"s": [6], "b": [6]}, ["s", "b"]),
    ("LayerNormalization", {"axis": -2}, [2, 5, 6], {"s": [5, 6]}, ["s"]),
    ("Gemm", {"beta": 0.5}, [4, 3], {"w": [3, 2], "b": [2]}, ["b"]),
]


@pytest.mark.parametrize("op, attributes, x, weights, computed", COMPUTED)
def test_parameters_that_the_network_computes(op, attributes, x, weights, computed, monkeypatch):
    """The same as with constants, by kernels: no step of NumPy but a convolution's own call."""
    arrays = {name: RNG.standard_normal(shape, np.float32) for name, shape in weights.items()}
    node = make(op, ["x", *arrays], ["y"], **attributes)
    given = {name: arrays.pop(name) for name in computed}
    shapes = {"x": x, **{name: list(a.shape) for name, a in given.items()}}
    x = RNG.standard_normal(x, np.float32)
    expected = load(node, {"x": list(x.shape)}, ["y"], given | arrays, fold=False, fuse=False)(x)
    net = load(node, shapes, ["y"], arrays)
    monkeypatch.setattr("fusedops.graph.planner.plan.evaluate", None)  # a convolution's own call has a layer
    np.testing.assert_allclose(net(x, *given.values()), expected, rtol=2e-4, atol=2e-5)
    numpy = {s.node.op for s in net._plan(x, *given.values())[0].steps if s.kind == "numpy"}
    assert numpy == ({op} if "w" in computed else set())


def test_a_computed_convolution_with_residual_and_activation():
    """What follows a convolution with computed weights is part of its call."""
    text = """<ir_version: 8, opset_import: ["" : 17]>
    net (float[1, 3, 5, 5] x, float[3, 3, 3, 3] w) => (float[1, 3, 5, 5] y) {
        c = Conv<pads = [1, 1, 1, 1]>(x, w)  s = Add(c, x)  y = Relu(s)
    }"""
    proto = onnx.parser.parse_model(text)
    x, w = RNG.standard_normal((1, 3, 5, 5), np.float32), RNG.standard_normal((3, 3, 3, 3), np.float32)
    net, plain = fo.load_onnx(proto), fo.load_onnx(proto, fold=False, fuse=False)
    np.testing.assert_allclose(net(x, w), plain(x, w), rtol=1e-4, atol=1e-5)
    assert len(net._plan(x, w)[0].steps) <= 3


@pytest.mark.parametrize(
    "a, b, rows",
    [
        ([8, 16, 1, 64], [1, 1, 64, 40], (128, 64)),  # heads that share keys
        ([2, 8, 4, 3, 64], [2, 8, 1, 64, 40], (2, 8, 12, 64)),
        ([2, 8, 4, 3, 64], [8, 1, 64, 40], (2, 8, 12, 64)),
        ([2, 1, 4, 3, 64], [2, 8, 1, 64, 40], (2, 8, 4, 3, 64)),  # a is shared as well
        ([3, 2, 4, 5], [2, 5, 6], (3, 2, 4, 5)),
        ([32, 16], [64, 16, 1], (64, 16)),  # one column a batch
        ([1, 32, 16], [2, 3, 16, 1], (6, 16)),
        ([2, 1, 32, 16], [2, 3, 16, 1], (2, 3, 32, 16)),
    ],
)
def test_a_matrix_that_batches_share_is_packed_once(a, b, rows):
    """Rows of all batches that have it in common are those of one product."""
    net = load(make("MatMul", ["a", "b"], ["y"]), {"a": a, "b": b}, ["y"], {})
    x, y = RNG.standard_normal(a, np.float32), RNG.standard_normal(b, np.float32)
    np.testing.assert_allclose(net(x, y), np.matmul(x, y, dtype=np.float64), rtol=1e-4, atol=1e-4)
    (step,) = [s for s in net._plan(x, y)[0].steps if s.kind == "matmul"]
    assert step.arguments["a"].shape == rows


def test_rows_of_batches_that_memory_keeps_from_one_matrix():
    """Queries whose heads were an inner axis: their rows have no common distance."""
    text = """<ir_version: 8, opset_import: ["" : 17]>
    net (float[b, 5, 4, 8] q, float[b, 1, 8, 6] k) => (float[b, 4, 5, 6] y)
    { t = Transpose<perm = [0, 2, 1, 3]>(q)  y = MatMul(t, k) }"""
    net = fo.load_onnx(onnx.parser.parse_model(text))
    for batch in (1, 3):
        q, k = RNG.standard_normal((batch, 5, 4, 8), np.float32), RNG.standard_normal((batch, 1, 8, 6), np.float32)
        np.testing.assert_allclose(net(q, k), q.swapaxes(1, 2) @ k, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("n", [1, 17, 40, 64, 500, 512])
@pytest.mark.parametrize("step", [1, 2])
def test_few_rows_of_a_batch_read_its_matrix_in_place(isa, n, step):
    """With the bits of products of many rows, whose matrix is packed; rows of A at any distances."""
    a, b = RNG.standard_normal((3, 8, 33), np.float32), RNG.standard_normal((3, 33, n), np.float32)
    node = make("MatMul", ["a", "b"], ["y"])
    whole = load(node, {"a": ["b", "m", "k"], "b": ["b", "k", "n"]}, ["y"], {})
    expected = whole(a, b)
    np.testing.assert_allclose(expected, a @ b, rtol=1e-4, atol=1e-5)
    text = """<ir_version: 8, opset_import: ["" : 17]>
    net (float[b, k, m] a, float[b, k, n] b) => (float[b, m, n] y) {
        t = Transpose<perm = [0, 2, 1]>(a)  y = MatMul(t, b)
    }"""
    net = whole if step == 1 else fo.load_onnx(onnx.parser.parse_model(text))
    for m in (1, 2, 3, 4, 5):
        rows = a[:, :m] if step == 1 else np.ascontiguousarray(a[:, :m].swapaxes(1, 2))
        assert np.array_equal(net(rows, b), expected[:, :m])


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge", "wrap"])
@pytest.mark.parametrize(
    "shape, pads, kind",
    [
        ((2, 3, 5, 6), [0, 0, 4, 2, 0, 0, 3, 5], np.float32),
        ((2, 3, 5, 6), [1, 0, 0, 3, 1, 2, 0, 0], np.float32),
        ((3, 4, 7), [0, -1, 6, 0, 2, -2], np.float32),
        ((2, 5), [3, 9, 7, 12], np.float32),
        ((4, 6), [1, 0, 2, 3], np.int64),
        ((4, 6), [0, 2, 3, 0], np.uint8),
        ((4, 6), [0, 2, 3, 7], np.uint8),
    ],
)
def test_borders_repeat_what_is_inside(mode, shape, pads, kind):
    """As numpy.pad, with each size known or open; borders may be longer than what they repeat."""
    x, ndim = (RNG.standard_normal(shape) * 9).astype(kind), len(shape)
    pads, crops = (
        np.array(pads),
        tuple(slice(max(-b, 0), n - max(-e, 0)) for n, b, e in zip(shape, pads[:ndim], pads[ndim:], strict=True)),
    )
    expected = np.pad(x[crops], np.maximum(pads, 0).reshape(2, ndim).T, mode=mode)
    for sizes in (list(shape), [f"n{axis}" for axis in range(ndim)]):
        node = make("Pad", ["x", "pads"], ["y"], mode=mode)
        element = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
        graph = helper.make_graph(
            [node],
            "g",
            [helper.make_tensor_value_info("x", element, sizes)],
            [helper.make_tensor_value_info("y", element, None)],
            [numpy_helper.from_array(pads, "pads")],
        )
        net = fo.load_onnx(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=8))
        assert np.array_equal(net(x), expected)


@pytest.mark.parametrize("pads", [[0, 5, 0, -3], [6, -3, 0, 0], [2, 4, -4, -3], [0, -1, 7, -2]])
@pytest.mark.parametrize("sizes", [[4, 3], ["n", "m"]])
def test_borders_around_nothing(pads, sizes):
    """Where a crop leaves nothing inside, the borders are all there is, and stay within the result."""
    value = numpy_helper.from_array(np.float32(7), "value")
    graph = helper.make_graph(
        [make("Pad", ["x", "pads", "value"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, sizes)],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.int64(pads), "pads"), value],
    )
    net = fo.load_onnx(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=8))
    shape = 4 + pads[0] + pads[2], 3 + pads[1] + pads[3]
    assert np.array_equal(net(np.ones((4, 3), np.float32)), np.full(shape, 7, np.float32))


@pytest.mark.parametrize("fuse", [True, False])
@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
def test_pools_of_windows_larger_than_the_image(op, fuse):
    """With ceil_mode a window may end outside: U-Net's last pools of small images, of one row here."""
    node = make(op, ["x"], ["y"], kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1)
    x = RNG.standard_normal((1, 3, 1, 10)).astype(np.float32)
    pairs = x.reshape(1, 3, 1, 5, 2)
    y = load(node, {"x": ["n", 3, "h", "w"]}, ["y"], {}, fuse=fuse, fold=fuse)(x)
    np.testing.assert_allclose(y, pairs.max(-1) if op == "MaxPool" else pairs.mean(-1), rtol=1e-6, atol=1e-7)
