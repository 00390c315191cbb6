"""Networks of int8: one step for what exporters write as several nodes, with the integers of ONNX Runtime."""

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")
from onnx import helper
from onnx.parser import parse_model

import fusedops as fo
from catalog import using_int8_products
from fusedops import _core
from fusedops.graph.inference import cost
from qdq_net import Net, runtime


@pytest.fixture
def costed():
    """For tests of costs themselves."""


@pytest.fixture(autouse=True)
def cheap(request, monkeypatch):
    """int8 are worth it for every layer, on every machine."""
    if "costed" not in request.fixturenames:
        monkeypatch.setattr(cost, "unquantized", lambda *shapes: 0.5)


def kinds(model, *arrays):
    return [step.kind if step.kind != "numpy" else step.node.op for step in model._plan(*arrays)[0].steps]


def same_bytes(y, want):
    """At most one in 1,000 off, by one; two of a few."""
    assert y.dtype == want.dtype and y.shape == want.shape
    off = np.abs(y.astype(int) - want.astype(int))
    assert off.max(initial=0) <= 1 and np.count_nonzero(off) <= max(2, off.size // 1000)


def some_bytes(shape, dtype, seed=1):
    info = np.iinfo(dtype)
    return np.random.default_rng(seed).integers(info.min, info.max, shape, dtype, endpoint=True)


def conv_model(shape, oc, kernel, groups, dtype, zero, residual=None, **attrs):
    """A convolution between bytes; residual: the shape of one, which is added."""
    net, inputs = Net(), {"x": (dtype, shape)}
    w = net.weights(oc, shape[1] // groups, *kernel)
    y = net.add("Conv", net.dequantize("x", 0.05, zero, dtype), w, net.bias(oc), group=groups, **attrs)
    if residual:
        inputs["r"] = dtype, residual
        y = net.add("Add", net.dequantize("r", 0.03, zero, dtype), y)
    return net.model(inputs, net.quantize(net.add("Relu", y), 0.11, zero, dtype), types=[dtype])


def why_float(model):
    """Why the only layer that stays float32 does."""
    (reason,) = (r.reason for r in model.explain().refusals if r.kind == "8-bit layers")
    return reason


@pytest.mark.parametrize("dtype, zero", [(np.uint8, 131), (np.int8, -7)])
@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize(
    "shape, oc, kernel, groups, attrs",
    [
        ((1, 5, 9, 8), 7, (3, 3), 1, {"pads": [1, 1, 1, 1]}),
        ((2, 16, 7, 7), 33, (1, 1), 1, {}),
        ((1, 24, 9, 9), 24, (3, 3), 24, {"strides": [2, 2], "auto_pad": "SAME_UPPER"}),
        ((1, 12, 8, 6), 8, (3, 2), 4, {"dilations": [2, 1], "pads": [2, 0, 2, 1]}),
        ((2, 6, 11), 5, (3,), 1, {"pads": [1, 1]}),
        ((1, 3, 4, 5, 6), 4, (3, 3, 3), 1, {"pads": [1] * 6}),
    ],
)
def test_a_convolution_is_one_step(shape, oc, kernel, groups, attrs, residual, dtype, zero):
    arrays, form = [some_bytes(shape, dtype)], (shape, oc, kernel, groups, dtype, zero)
    proto = conv_model(*form, **attrs)
    if residual:
        arrays.append(some_bytes(runtime(proto, *arrays)[0].shape, dtype, 2))
        proto = conv_model(*form, arrays[1].shape, **attrs)
    model = fo.load_onnx(proto)
    same_bytes(model(*arrays), runtime(proto, *arrays, fused=False)[0])
    if residual and groups == oc:
        assert "qconv2d" not in kinds(model, *arrays) and "not int8 after a clip" in why_float(model)
    else:
        assert kinds(model, *arrays) == ["qconv2d" if len(shape) < 5 else "QuantizedConv"]


@pytest.mark.parametrize("activation, fast", [("Relu", True), (None, True), ("Sigmoid", False), ("Exp", False)])
def test_a_depthwise_layer_is_in_int8_where_it_makes_int8_by_a_clip(activation, fast):
    net = Net()
    y = net.add("Conv", net.dequantize("x"), net.weights(24, 1, 3, 3), group=24, pads=[1] * 4)
    y = net.add("Add", y, net.rng.standard_normal((24, 1, 1)).astype(np.float32))
    y = net.add(activation, y) if activation else y
    proto = net.model({"x": (np.uint8, (1, 24, 9, 8))}, net.quantize(y, 0.11), types=[np.uint8])
    model, x = fo.load_onnx(proto), some_bytes((1, 24, 9, 8), np.uint8)
    assert ("qconv2d" in kinds(model, x)) == fast
    assert fast or "not int8 after a clip" in why_float(model)
    off = np.abs(model(x).astype(int) - runtime(proto, x, fused=False)[0])
    assert off.max() <= 1


@pytest.mark.parametrize("dots", [True, False], ids=["dot", "no-dot"])
def test_a_layer_is_in_8_bits_where_that_is_no_slower(costed, dots):
    """Without a dot product, Winograd's algorithm in float32 wins where the kernel is 3x3."""
    if "avx2" not in fo.available_isas():
        pytest.skip("costs are tested on sets of x86-64")
    net = Net()
    q = net.quantize(net.add("Conv", net.dequantize("x"), net.weights(64, 64, 3, 3), net.bias(64), pads=[1] * 4), 0.11)
    y = net.quantize(net.add("Conv", net.dequantize(q, 0.11), net.weights(128, 64, 1, 1), net.bias(128)), 0.2)
    proto, x = net.model({"x": (np.uint8, (1, 64, 56, 56))}, y, types=[np.uint8]), some_bytes((1, 64, 56, 56), np.uint8)
    with using_int8_products("dots" if dots else "words"):
        fast = _core.has_dot_product()
        model = fo.load_onnx(proto)
        assert kinds(model, x) == ["qconv2d"] * 2 if fast else ["convert", "conv2d", "convert", "qconv2d"]
        reasons = [r.reason for r in model.explain().refusals if r.kind == "8-bit layers"]
        assert fast or len(reasons) == 1 and "times as fast here" in reasons[0]
        same_bytes(model(x), runtime(proto, x, fused=False)[0])


@pytest.mark.parametrize("batch", [(5,), (2, 3), ()])
@pytest.mark.parametrize("op", ["MatMul", "Gemm", "QLinearMatMul", "QGemm"])
def test_a_product_is_one_step(op, batch):
    net, shape = Net(), (*batch, 18)
    if op in ("Gemm", "QGemm") and len(batch) != 1:
        pytest.skip("a Gemm takes matrices")
    # 7 bits: without VNNI ONNX Runtime saturates sums of pairs in 16
    w, scale = net.rng.integers(-64, 64, (18, 21), np.int8), np.full(21, 0.002, np.float32)
    one, zero, out = np.float32(0.05), np.uint8(100), (np.float32(0.07), np.uint8(90))
    if op == "QLinearMatMul":
        y = net.add(op, "x", one, zero, w, np.float32(0.002), np.int8(0), *out)
    elif op == "QGemm":
        bias = net.rng.integers(-900, 900, 21, np.int32)
        y = net.add(op, "x", one, zero, w, scale, np.zeros(21, np.int8), bias, *out, domain="com.microsoft")
    else:
        x, w = net.dequantize("x", one, zero), net.add("DequantizeLinear", w, scale, np.zeros(21, np.int8), axis=1)
        bias = net.bias(21)
        y = net.add(op, x, w, bias) if op == "Gemm" else net.add("Add", net.add(op, x, w), bias)
        y = net.quantize(net.add("Relu", y), *out)
    proto = net.model({"x": (np.uint8, shape)}, y, types=[np.uint8])
    model, x = fo.load_onnx(proto), some_bytes(shape, np.uint8)
    same_bytes(model(x), runtime(proto, x, fused=False)[0])
    assert kinds(model, x) == ["qlinear"]


def test_a_product_with_a_scale_a_row_stays_exact():
    net, one = Net(), np.ones(5, np.float32)
    w = net.rng.integers(-127, 127, (18, 21), np.int8)
    y = net.add(
        "QLinearMatMul",
        "x",
        one * 0.05,
        np.full(5, 100, np.uint8),
        w,
        np.float32(0.002),
        np.int8(0),
        np.float32(0.07),
        np.uint8(90),
    )
    model, x = fo.load_onnx(net.model({"x": (np.uint8, (5, 18))}, y, types=[np.uint8])), some_bytes((5, 18), np.uint8)
    sums = (x.astype(int) - 100) @ w.astype(int)
    np.testing.assert_allclose(model(x), np.clip(sums * (0.05 * 0.002 / 0.07) + 90, 0, 255), atol=0.5001)


def test_what_does_nothing_is_a_copy():
    net, x = Net(), some_bytes((3, 4), np.uint8)
    model = fo.load_onnx(net.model({"x": (np.uint8, (3, 4))}, net.quantize(net.dequantize("x")), types=[np.uint8]))
    y = model(x)
    np.testing.assert_array_equal(y, x)
    assert not np.shares_memory(x, y)


@pytest.mark.parametrize("kind", ["blocks", "floats", "x16"])
def test_what_stays_float_is_named(kind):
    net = Net()
    wide = np.uint16 if kind == "x16" else np.uint8
    x = net.dequantize(net.quantize("x", 0.01, 120, wide), 0.01, 120, wide)
    if kind == "floats":
        w = net.constant(net.rng.standard_normal((4, 6, 1, 1)).astype(np.float32))
    elif kind == "blocks":
        q = net.rng.integers(-9, 9, (4, 6, 1, 1), np.int8)
        w = net.add("DequantizeLinear", q, np.full((4, 2, 1, 1), 0.1, np.float32), axis=1, block_size=3)
    else:
        w = net.weights(4, 6, 1, 1)
    y = net.add("Conv", x, w)
    proto = net.model({"x": (np.float32, (1, 6, 5, 5))}, y, opset=21)
    model, x = fo.load_onnx(proto), np.random.default_rng(0).standard_normal((1, 6, 5, 5)).astype(np.float32)
    want = runtime(proto, x, fused=False)[0]
    np.testing.assert_allclose(model(x), want, rtol=1e-4, atol=1e-4 * np.abs(want).max())
    reasons = {
        "blocks": "a scale a block",
        "floats": "its weights are floats",
        "x16": "has type uint16",
    }
    assert any(r.kind == "8-bit layers" and reasons[kind] in r.reason for r in model.explain().refusals)
    assert "conv2d" in kinds(model, x)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("each", [False, True])
def test_weights_with_zero_points(isa, dtype, each, tmp_path):
    """That do not fit int8 without: of uint8, and of int8."""
    net, zero = Net(), 90 if dtype == np.uint8 else -77
    w = net.weights(9, 5, 3, 3, dtype=dtype, zero=zero, each=each)
    y = net.between(net.add("Conv", net.dequantize("x", 0.05, 131), w, net.bias(9), pads=[1] * 4), 0.4171, 120)
    y = net.add("Reshape", y, np.int64([0, -1]))
    y = net.add("MatMul", y, net.weights(9 * 56, 13, axis=1, dtype=dtype, zero=zero, each=each))
    proto = net.model({"x": (np.uint8, (2, 5, 7, 8))}, net.quantize(y, 4.0311), types=[np.uint8])
    model, x = fo.load_onnx(proto), some_bytes((2, 5, 7, 8), np.uint8)
    y = model(x)
    off = np.abs(y.astype(int) - runtime(proto, x, fused=False)[0])
    assert off.max() <= 1 and np.count_nonzero(off) <= 2 and np.ptp(y.astype(int)) > 12
    assert [kind for kind in kinds(model, x) if kind != "copy"] == ["qconv2d", "qlinear"]
    model.save(tmp_path / "net.fo")
    np.testing.assert_array_equal(fo.load(tmp_path / "net.fo")(x), y)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("pixels", [(9, 11), (6, 70)])
def test_depthwise_weights_with_zero_points(isa, products, dtype, pixels):
    """On kernels where there is an int8 dot product, if they are narrow; else floats between conversions are as
    fast."""
    net, zero = Net(), 0 if dtype == np.uint8 else -128
    y = net.dequantize("x", 0.05, 131)
    for kernel, pads in (3, 1), (5, 2):
        w = net.weights(20, 1, kernel, kernel, dtype=dtype, zero=zero)
        y = net.between(net.add("Conv", y, w, net.bias(20), group=20, pads=[pads] * 4), 0.9171, 120)
    proto = net.model({"x": (np.uint8, (2, 20, *pixels))}, net.quantize(y, 0.9171, 120), types=[np.uint8])
    x = some_bytes((2, 20, *pixels), np.uint8)
    model = fo.load_onnx(proto)
    assert kinds(model, x).count("qconv2d") == _core.has_dot_product()
    assert {"with zero points of its weights float32 is as fast"} == {
        r.reason for r in model.explain().refusals if r.kind == "8-bit layers"
    }
    y = model(x)
    same_bytes(y, runtime(proto, x, fused=False)[0])
    assert np.ptp(y.astype(int)) > 12


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_a_pair_between_floats_is_one_step(isa, threads, dtype, tmp_path):
    """Unless the bytes are read, too, or the two quantizations differ."""
    net, q = Net(), (0.031, 120 if dtype == np.uint8 else -7)
    x = np.random.default_rng(0).standard_normal((3, 5, 407)).astype(np.float32) * 3
    x.flat[:3] = np.nan, np.inf, -np.inf
    y = net.dequantize(net.quantize("x", *q, dtype), *q, dtype)
    proto = net.model({"x": (np.float32, ("n", 5, 407))}, net.add("Exp", y))
    model = fo.load_onnx(proto)
    assert kinds(model, x)[0] == "requantize" and "convert" not in kinds(model, x)
    np.testing.assert_array_equal(model(x), fo.load_onnx(proto, fuse=False)(x))
    np.testing.assert_array_equal(model(x[:1]), model(x)[:1])
    model.save(tmp_path / "net.fo")
    np.testing.assert_array_equal(fo.load(tmp_path / "net.fo")(x), model(x))
    for other in (0.032, q[1]), (q[0], q[1] + 1):
        y = net.dequantize(net.quantize("x", *q, dtype), *other, dtype)
        proto = net.model({"x": (np.float32, x.shape)}, net.add("Exp", y))
        assert kinds(fo.load_onnx(proto), x).count("convert") == 2
    q8 = net.quantize("x", *q, dtype)
    proto = net.model({"x": (np.float32, x.shape)}, net.dequantize(q8, *q, dtype), q8, types=[np.float32, dtype])
    assert kinds(fo.load_onnx(proto), x).count("convert") == 2


def test_a_pair_of_more_axes_than_kernels_take(rng):
    net, x = Net(), rng.standard_normal((2, 1, 2, 1, 2, 1, 2, 1, 5)).astype(np.float32)
    proto = net.model({"x": (np.float32, x.shape)}, net.add("Softmax", net.between("x", 0.05, 10), axis=-1))
    np.testing.assert_allclose(fo.load_onnx(proto)(x), runtime(proto, x, fused=False)[0], rtol=1e-5)


def small_network():
    """Two convolutions, a block with a skip between them, and a product."""
    net = Net()
    x = net.between("x", 0.03, 120)
    a = net.between(net.add("Relu", net.add("Conv", x, net.weights(8, 3, 3, 3), net.bias(8), pads=[1] * 4)), 0.02, 0)
    b = net.add("Conv", a, net.weights(8, 8, 3, 3), net.bias(8), pads=[1] * 4)
    b = net.between(net.add("Relu", net.add("Add", b, a)), 0.03, 0)
    b = net.add("Reshape", net.add("Transpose", b, perm=[0, 2, 3, 1]), np.int64([0, -1]))
    y = net.add("MatMul", b, net.weights(8 * 36, 5, axis=1))
    return net.model({"x": (np.float32, ("n", 3, 6, 6))}, net.add("Add", y, net.bias(5)))


def test_a_network_is_the_same_for_every_batch_and_file(isa, threads, tmp_path):
    proto = small_network()
    model = fo.load_onnx(proto)
    x = np.random.default_rng(0).standard_normal((5, 3, 6, 6)).astype(np.float32)
    y = model(x)
    want = runtime(proto, x, fused=False)[0]
    np.testing.assert_allclose(y, want, rtol=0, atol=0.02 * np.abs(want).max())
    assert not {"conv2d", "linear", "QuantizeLinear", "DequantizeLinear"}.intersection(kinds(model, x))
    for n in (1, 2, 3):
        np.testing.assert_array_equal(model(x[:n]), y[:n])
    model.save(tmp_path / "net.fo")
    np.testing.assert_array_equal(fo.load(tmp_path / "net.fo")(x), y)


def test_unfused_each_node_is_a_pass():
    proto = small_network()
    x = np.random.default_rng(0).standard_normal((2, 3, 6, 6)).astype(np.float32)
    want = runtime(proto, x, fused=False)[0]
    for options in (
        {"fuse": False},
        {"fuse": False, "fold": False},
        {"disabled_passes": ("8-bit layers",)},
        {"disabled_passes": ("8-bit results",)},
    ):
        model = fo.load_onnx(proto, **options)
        np.testing.assert_allclose(model(x), want, rtol=0, atol=0.02 * np.abs(want).max())
        found = kinds(model, x)
        assert ("qconv2d" in found) == (options == {"disabled_passes": ("8-bit results",)})
        assert found.count("convert") + found.count("requantize") >= 3


# ---- between layers ----------------------------------------------------------------------------------------------

A, B, C = (0.05, 120), (0.0313, 100), (0.0717, 90)  # quotients seldom give halves
SIGNED = (0.0619, -9, np.int8)


def agree(net, y, wanted, arrays, inputs=None, dtype=np.uint8):
    """The integers of ONNX Runtime, by these kinds of steps alone."""
    inputs = inputs or {"x": (arrays[0].dtype, arrays[0].shape)}
    proto = net.model(inputs, y, types=[dtype], opset=18)
    model = fo.load_onnx(proto)
    want = runtime(proto, *arrays, fused=False)[0]
    same_bytes(model(*arrays), want) if want.dtype.kind in "iu" else np.testing.assert_allclose(
        model(*arrays), want, rtol=1e-5, atol=1e-5
    )
    assert sorted(set(kinds(model, *arrays))) == sorted(wanted)


@pytest.mark.parametrize("c", [1, 5, 16, 70])
@pytest.mark.parametrize("q", [A, SIGNED])
def test_pools(isa, threads, c, q):
    dtype = np.int8 if len(q) > 2 else np.uint8
    x, form = some_bytes((2, c, 7, 9), dtype), dict(kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 1, 1])
    for op, attrs, out in (
        ("MaxPool", form, q),
        ("MaxPool", {"kernel_shape": [3, 3], "dilations": [2, 2]}, q),
        ("AveragePool", form, B),
        ("AveragePool", form | {"count_include_pad": 1}, B),
        ("GlobalAveragePool", {}, B),
    ):
        net = Net()
        y = net.quantize(net.add(op, net.dequantize("x", *q), **attrs), *out)
        agree(
            net,
            y,
            ["copy", "qpool"] if c > 1 and op[0] != "G" else kinds_of(net, y, x, out),
            [x],
            dtype=np.int8 if len(out) > 2 else np.uint8,
        )


def kinds_of(net, y, x, q):
    """Where no copy is needed, or one alone."""
    proto = net.model({"x": (x.dtype, x.shape)}, y, types=[np.int8 if len(q) > 2 else np.uint8], opset=18)
    found = sorted(set(kinds(fo.load_onnx(proto), x)))
    assert found in (["qpool"], ["copy", "qpool"])
    return found


@pytest.mark.parametrize(
    "shape, other",
    [
        ((2, 5, 3, 7), (2, 5, 3, 7)),
        ((1, 70, 4, 4), (1, 70, 1, 1)),
        ((3, 130), (130,)),
        ((3, 65), (1, 1)),
        ((4, 1), (4, 1)),
    ],
)
@pytest.mark.parametrize("op", ["Add", "Sub", "Mul"])
def test_sums_and_products(isa, threads, op, shape, other):
    for a, b, out, activation in ((A, B, C, None), (A, SIGNED, SIGNED, "Relu"), (SIGNED, A, (0.0223, 0), None)):
        net, kinds_ = Net(), [np.int8 if len(q) > 2 else np.uint8 for q in (a, b, out)]
        y = net.add(op, net.dequantize("x", *a), net.dequantize("z", *b))
        y = net.quantize(net.add(activation, y) if activation else y, *out)
        arrays = [some_bytes(shape, kinds_[0]), some_bytes(other, kinds_[1], 2)]
        inputs = {"x": (kinds_[0], shape), "z": (kinds_[1], other)}
        proto = net.model(inputs, y, types=[kinds_[2]])
        model = fo.load_onnx(proto)
        same_bytes(model(*arrays), runtime(proto, *arrays, fused=False)[0])
        assert "qbinary" in kinds(model, *arrays) and not {"binary", "convert"} & {*kinds(model, *arrays)}


@pytest.mark.parametrize("n", [1, 63, 1000])
def test_what_follows_from_a_byte_is_a_table(threads, n):
    """x sigmoid(x), quantized in between, scaled, and requantized."""
    x, net = some_bytes((2, n), np.uint8), Net()
    real = net.dequantize("x", *A)
    gate = net.between(net.add("Sigmoid", real), 1 / 256, 0)
    y = net.between(net.add("Mul", real, gate), *B)
    y = net.quantize(net.add("Mul", net.add("Tanh", y), np.float32(3)), *SIGNED)
    agree(net, y, ["lookup"], [x], dtype=np.int8)


def test_what_moves_elements_works_on_bytes():
    """No step but copies and one table, for the part of the concatenation that has another scale."""
    net, x = Net(), some_bytes((1, 6, 4, 4), np.uint8)
    real = net.dequantize("x", *A)
    up = net.add(
        "Resize",
        real,
        "",
        np.float32([1, 1, 2, 2]),
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )
    net.nodes[-1].input[1] = ""
    up = net.add("Pad", net.between(up, *A), np.int64([0, 0, 1, 0, 0, 0, 0, 1]))
    down = net.add("Slice", net.add("Transpose", up, perm=[0, 1, 3, 2]), np.int64([1]), np.int64([7]), np.int64([2]))
    a, b = net.between(down, *A), net.between(net.dequantize(net.quantize(down, *A), *A), *B)
    y = net.quantize(net.add("Concat", a, b, axis=1), *B)
    agree(net, y, ["copy", "fill", "lookup", "nearest"], [x])


@pytest.mark.parametrize("op", ["Add", "AveragePool", "MaxPool", "Conv"])
def test_a_part_of_a_concatenation_is_written_where_it_is(op):
    """The distance of pixels is larger there than in the operands, which are copied to another order first."""
    net, x = Net(), some_bytes((2, 8, 8, 8), np.uint8)
    real = net.dequantize("x", *A)
    if op == "Add":
        part = net.add("Add", real, net.between(net.add("Transpose", real, perm=[0, 1, 3, 2]), *A))
    elif op == "Conv":
        part = net.add("Conv", real, net.weights(8, 8, 3, 3), pads=[1] * 4)
    else:
        part = net.add(op, real, kernel_shape=[3, 3], pads=[1] * 4)
    y = net.add("Concat", net.between(part, *B), net.between(net.add("Tanh", part), *B), axis=1)
    proto = net.model({"x": (np.uint8, x.shape)}, net.quantize(y, *B), types=[np.uint8])
    same_bytes(fo.load_onnx(proto)(x), runtime(proto, x, fused=False)[0])


def test_a_part_of_a_concatenation_that_a_product_makes():
    """Its rows are neighbors in memory, which pixels of the concatenation's are not."""
    net, x = Net(), some_bytes((2, 8, 6, 5), np.uint8)
    real = net.dequantize("x", *A)
    parts = net.add("MatMul", real, net.weights(5, 5, axis=1)), net.add("Relu", real)
    y = net.add("Concat", *(net.between(part, *B) for part in parts), axis=1)
    proto = net.model({"x": (np.uint8, x.shape)}, net.quantize(net.add("Tanh", y), *A), types=[np.uint8])
    same_bytes(fo.load_onnx(proto)(x), runtime(proto, x, fused=False)[0])


@pytest.mark.parametrize("op", ["Add", "Sub", "Mul"])
def test_a_part_of_a_concatenation_of_one_channel(op):
    """No two of its pixels are neighbors there."""
    net, x = Net(), some_bytes((2, 1, 7, 5), np.uint8)
    real = net.dequantize("x", *A)
    other = net.between(net.add("MaxPool", real, kernel_shape=[3, 3], pads=[1] * 4), *A)
    y = net.add("Concat", *(net.between(part, *B) for part in (net.add(op, real, other), real)), axis=1)
    proto = net.model({"x": (np.uint8, ("n", 1, 7, 5))}, net.quantize(net.add("Tanh", y), *A), types=[np.uint8])
    same_bytes(fo.load_onnx(proto)(x), runtime(proto, x, fused=False)[0])


def test_a_mean_without_its_axes():
    net, x = Net(), some_bytes((2, 5, 6, 6), np.uint8)
    y = net.add("ReduceMean", net.dequantize("x", *A), np.int64([2, 3]), keepdims=0)
    y = net.quantize(net.add("MatMul", net.between(y, *B), net.weights(5, 4, axis=1)), *C)
    agree(net, y, ["qpool", "copy", "qlinear"], [x])


# ---- quantized as they come --------------------------------------------------------------------------------------


@pytest.mark.parametrize("zero", [0, 7, 141])
@pytest.mark.parametrize("each", [False, True])
def test_dynamic_products(isa, threads, each, zero):
    net, shape = Net(), (3, 5, 40)
    net.nodes.append(helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]))
    # 7 bits: without VNNI ONNX Runtime saturates sums of pairs in 16
    info = {0: (-64, 63), 7: (0, 120), 141: (0, 255)}[zero]
    w = net.rng.integers(*info, (40, 21), np.uint8 if zero else np.int8, endpoint=True)
    scale, zeros = np.full(21 if each else (), 0.01, np.float32), np.full(21 if each else (), zero, w.dtype)
    y = net.add("Cast", net.add("MatMulInteger", "q", w, "z", zeros), to=1)
    y = net.add("Mul", y, net.add("Mul", "s", scale))
    y = net.add("Relu", net.add("Add", y, net.rng.standard_normal(21).astype(np.float32)))
    proto = net.model({"x": (np.float32, shape)}, y)
    x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    model = fo.load_onnx(proto)
    want = runtime(proto, x, fused=False)[0]
    np.testing.assert_allclose(model(x), want, rtol=1e-4, atol=2e-3 * np.abs(want).max())
    assert kinds(model, x) == ["qlinear"]
    np.testing.assert_allclose(fo.load_onnx(proto, fuse=False)(x), want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "shape, oc, kernel, groups, attrs",
    [
        ((2, 5, 9, 8), 7, (3, 3), 1, {"pads": [1, 0, 1, 1]}),
        ((1, 16, 7, 7), 33, (1, 1), 1, {}),
        ((2, 40, 9, 9), 80, (3, 3), 40, {"strides": [2, 2], "pads": [1] * 4}),
        ((1, 3, 30, 31), 8, (7, 7), 1, {"strides": [2, 2], "pads": [3] * 4}),
        ((1, 32, 12, 40), 16, (3, 3), 2, {"pads": [1] * 4}),
        ((2, 6, 11), 5, (3,), 1, {"pads": [1, 1]}),
    ],
)
def test_dynamic_convolutions(isa, threads, shape, oc, kernel, groups, attrs):
    """The whole image has one range; what is outside is 0 as a number, so its zero point as a byte."""
    net = Net()
    net.nodes.append(helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]))
    w = net.rng.integers(0, 255, (oc, shape[1] // groups, *kernel), np.uint8, endpoint=True)
    y = net.add("ConvInteger", "q", w, "z", np.uint8(128), group=groups, **attrs)
    each = (1, oc, *[1] * len(kernel))
    y = net.add("Mul", net.add("Cast", y, to=1), net.add("Mul", "s", np.float32(0.01)))
    y = net.add("Relu", net.add("Add", y, net.rng.standard_normal(each).astype(np.float32)))
    proto = net.model({"x": (np.float32, shape)}, y)
    x = np.random.default_rng(1).standard_normal(shape).astype(np.float32) + np.float32(0.3)
    model = fo.load_onnx(proto)
    for given in x, -np.abs(x), np.zeros_like(x):
        want = runtime(proto, given, fused=False)[0]
        np.testing.assert_allclose(model(given), want, rtol=1e-4, atol=2e-3 * max(np.abs(want).max(), 1))
    assert kinds(model, x).count("qconv2d") == 1 and "requantize" not in kinds(model, x)
    x[(0,) * x.ndim] = np.nan
    assert np.isnan(model(x)).all()


def test_dynamic_convolutions_and_asymmetric_products(threads):
    net = Net()
    net.nodes.append(helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]))
    w = net.rng.integers(0, 255, (4, 3, 3, 3), np.uint8)
    y = net.add("Cast", net.add("ConvInteger", "q", w, "z", np.uint8(100), pads=[1] * 4), to=1)
    y = net.add("Reshape", net.add("Mul", y, net.add("Mul", "s", np.float32(0.01))), np.int64([0, -1]))
    net.nodes.append(helper.make_node("DynamicQuantizeLinear", [y], ["q2", "s2", "z2"]))
    w = net.rng.integers(0, 255, (4 * 25, 6), np.uint8)
    y = net.add("Cast", net.add("MatMulInteger", "q2", w, "z2", np.uint8(100)), to=1)
    proto = net.model({"x": (np.float32, (2, 3, 5, 5))}, net.add("Mul", y, net.add("Mul", "s2", np.float32(0.01))))
    x = np.random.default_rng(1).standard_normal((2, 3, 5, 5)).astype(np.float32)
    model = fo.load_onnx(proto)
    want = runtime(proto, x, fused=False)[0]
    np.testing.assert_allclose(model(x), want, rtol=0, atol=0.01 * np.abs(want).max())
    assert set(kinds(model, x)) <= {"qconv2d", "qlinear", "copy"}


@pytest.mark.parametrize(
    "known, reshaped, form", [(1, 0, (1, 6, 1, 1)), (1, 1, (6,)), (1, 0, (6,)), (1, 0, (1,)), (0, 1, (6,))]
)
def test_a_bias_that_is_quantised_as_it_comes(known, reshaped, form):
    """As older tools write it: whole numbers of sums, added before the cast. Others have another for each column."""
    net, shape = Net(), (1, 8, 9, 6)
    net.nodes.append(helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]))
    w = net.rng.integers(0, 255, (6, 8, 3, 3), np.uint8)
    bias = net.rng.standard_normal(form).astype(np.float32)
    scale = np.float32(0.01)
    given = net.add("Div", bias if known else "b", net.add("Mul", "s", scale))
    given = net.add("Cast", net.add("Floor", given), to=6)
    given = net.add("Reshape", given, np.int64([1, -1, 1, 1])) if reshaped else given
    y = net.add("Add", net.add("ConvInteger", "q", w, "z", np.uint8(100), pads=[1] * 4), given)
    y = net.add("Mul", net.add("Cast", y, to=1), net.add("Mul", "s", scale))
    inputs = {"x": (np.float32, shape)} | ({} if known else {"b": (np.float32, bias.shape)})
    proto = net.model(inputs, net.add("Relu", y))
    arrays = [np.random.default_rng(1).standard_normal(shape).astype(np.float32)] + ([] if known else [bias])
    model, want = fo.load_onnx(proto), runtime(proto, *arrays, fused=False)[0]
    np.testing.assert_allclose(model(*arrays), want, rtol=1e-4, atol=1e-3 * np.abs(want).max())
    assert ("qconv2d" in kinds(model, *arrays)) == bool(known and (reshaped or form == (1, 6, 1, 1)))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_dynamic_of_what_is_not_finite_is_nan(bad):
    net = Net()
    net.nodes.append(helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]))
    w = net.rng.integers(-127, 127, (8, 4), np.int8)
    y = net.add(
        "Mul", net.add("Cast", net.add("MatMulInteger", "q", w, "z"), to=1), net.add("Mul", "s", np.float32(0.01))
    )
    model = fo.load_onnx(net.model({"x": (np.float32, (300, 8))}, y))
    x = np.ones((300, 8), np.float32)
    x[200, 3] = bad
    assert np.isnan(model(x)).all()


@pytest.mark.parametrize(
    "node, w", [("y = MatMul(a, b)", "int8[4] w"), ("y = Gemm<alpha = 1e-38>(a, b)", "int8[4, 1] w")]
)
def test_weights_that_no_layer_takes_stay_float(node, w):
    """A vector, and scales that alpha makes too small."""
    model = fo.load_onnx(
        parse_model(f"""<ir_version: 8, opset_import: ["" : 17]>
        net (uint8[n, 4] x) => (float[] y) <float s = {{0.1}}, uint8 z = {{3}}, {w} = {{1, 2, 3, 4}}, int8 wz = {{0}}>
        {{ a = DequantizeLinear(x, s, z)  b = DequantizeLinear(w, s, wz)  {node} }}""")
    )
    assert not {"qlinear", "QuantizedLinear"} & {n.op for n in model._graph.nodes}
    wanted = -0.2 if "MatMul" in node else 0
    np.testing.assert_allclose(model(np.ones((2, 4), np.uint8)).reshape(-1), [wanted] * 2, atol=1e-6)
