"""Layers that keep float16 weights: bits of the widened weights, half of the memory, errors."""

import pickle
import subprocess
import sys

import numpy as np
import pytest

import fusedops as fo
import oracle
from fusedops import reference
from oracle import check

SPECIAL = np.float16([0, -0.0, 1, -1, 6e-8, -6e-5, 65504, -65504, 6.1e-5, 1 / 3])
GATES = {"RNN": 1, "LSTM": 4, "GRU": 3}


def halves(draw, *shape):
    """Small values, some of them subnormal or the largest that there are."""
    w = draw(*shape).astype(np.float16)
    w.flat[::7] = np.resize(SPECIAL, w.flat[::7].shape)
    return w


def wide(*arrays):
    return tuple(None if a is None else a.astype(np.float32) for a in arrays)


@pytest.mark.parametrize("m", [1, 2, 3, 4, 5, 6, 7, 8, 12, 13, 25])
@pytest.mark.parametrize("n", [1, 3, 8, 17, 24, 31, 33, 64, 97, 130])
def test_linear_has_the_bits_of_widened_weights(isa, draw, m, n):
    for k in 1, 2, 5, 37, 130:
        w, bias, x, residual = halves(draw, n, k), draw(n).astype(np.float16), draw(m, k), draw(m, n)
        y = fo.Linear(w, bias, activation="relu")(x, residual)
        np.testing.assert_array_equal(y, fo.Linear(*wide(w, bias), activation="relu")(x, residual))
        check(y, oracle.linear(x, *wide(w, bias), residual=residual, activation="relu"))


BFLOAT16 = np.dtype((np.uint16, {"bfloat16": (np.uint16, 0)}))  # its bits, for NumPy has no such number


def as_bfloat16(w):
    """Rounded towards zero, and the same as float32."""
    bits = (w.view(np.uint32) >> 16).astype(np.uint16)
    return bits.view(BFLOAT16), (bits.astype(np.uint32) << 16).view(np.float32)


@pytest.mark.parametrize("m", [1, 2, 3, 5, 8, 13, 25])
@pytest.mark.parametrize("n, k", [(1, 37), (3, 1), (24, 130), (33, 37), (64, 5), (130, 37), (4, 700), (300, 2100)])
def test_linear_of_bfloat16(isa, threads, draw, m, n, k):
    """The bits of widened weights, of any strides: panels, columns of dot products, pieces of a long reduction."""
    (w, wide), (bias, wide_bias), x = as_bfloat16(draw(n, k)), as_bfloat16(draw(n)), draw(m, k)
    layer = fo.Linear(w, bias, activation="relu")
    assert "bfloat16 weights" in repr(layer)
    y = layer(x)
    np.testing.assert_array_equal(y, fo.Linear(wide, wide_bias, activation="relu")(x))
    check(y, oracle.linear(x, wide, wide_bias, activation="relu"))
    np.testing.assert_array_equal(fo.linear(x, np.asfortranarray(w)), fo.linear(x, wide))
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(layer))(x), y)


def test_bfloat16_of_ml_dtypes(isa, draw):
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    w, bias, x = draw(33, 20).astype(bfloat16), draw(33).astype(bfloat16), draw(5, 20)
    np.testing.assert_array_equal(fo.Linear(w, bias)(x), fo.Linear(*wide(w, bias))(x))
    np.testing.assert_array_equal(fo.Linear(w[::2, ::-1])(x), fo.Linear(*wide(w[::2, ::-1]))(x))


def test_bfloat16_elsewhere(draw):
    """Other layers say what to pass."""
    w = as_bfloat16(draw(3, 2, 3, 3))[0]
    with pytest.raises(TypeError, match="w has dtype .*bfloat16.*float32"):
        fo.Conv2d(w)
    with pytest.raises(TypeError, match="bias has dtype float16"):
        fo.Linear(as_bfloat16(draw(3, 2))[0], draw(3).astype(np.float16))


@pytest.mark.parametrize("m, k, n", [(1, 1500, 700), (2, 9000, 67), (13, 9000, 40), (130, 1031, 67), (40, 2100, 300)])
def test_long_products(isa, threads, draw, m, k, n):
    w, x = halves(draw, n, k), draw(m, k)
    y = fo.Linear(w)(x)
    np.testing.assert_array_equal(y, fo.Linear(*wide(w))(x))
    np.testing.assert_array_equal(y[0], fo.Linear(w)(x[0]))


@pytest.mark.parametrize("kind", GATES)
@pytest.mark.parametrize(
    "hidden, inputs, batch", [(1, 1, 1), (5, 3, 1), (17, 9, 3), (40, 33, 13), (130, 64, 2), (64, 70, 40)]
)
def test_recurrent_layers_have_the_bits_of_widened_weights(isa, threads, draw, kind, hidden, inputs, batch):
    rows = GATES[kind] * hidden
    weights = (draw(rows, inputs) / 8).astype(np.float16), (draw(rows, hidden) / 8).astype(np.float16)
    bias, x, layer = draw(rows).astype(np.float16), draw(4, batch, inputs), getattr(fo, kind)
    for options in ({}, {"bidirectional": True}, *([{"reset_after": False}] if kind == "GRU" else [])):
        count = 1 + options.get("bidirectional", False)
        given = [[a] * count for a in (*weights, bias)]
        y, state = layer(*given, **options)(x)
        expected, expected_state = layer(*([a.astype(np.float32) for a in each] for each in given), **options)(x)
        np.testing.assert_array_equal(y, expected)
        np.testing.assert_array_equal(state, expected_state)
    stream = layer(*weights, bias).stream(batch)
    np.testing.assert_array_equal([stream.step(v) for v in x], layer(*weights, bias)(x)[0])


def test_projection_and_peephole(isa, draw):
    w_ih, w_hh, w_hr, p = ((draw(*shape) / 8).astype(np.float16) for shape in ((160, 9), (160, 30), (30, 40), (3, 40)))
    x = draw(5, 3, 9)
    y, (h, c) = fo.LSTM(w_ih, w_hh, w_hr=w_hr, peephole=p)(x)
    r, q = wide(w_hr, p)
    expected = fo.LSTM(*wide(w_ih, w_hh), w_hr=r, peephole=q)(x)
    np.testing.assert_array_equal(y, expected[0])
    np.testing.assert_array_equal(h, expected[1][0])
    np.testing.assert_array_equal(c, expected[1][1])


def test_cells_of_float64(draw):
    w_ih, w_hh, x, h, c = (draw(*s).astype(np.float16) / 4 for s in ((68, 9), (68, 17), (3, 9), (3, 17), (3, 17)))
    given = wide(x, h, c)
    for y, expected in zip(fo.LSTMCell(w_ih, w_hh)(*given), oracle.lstm_cell(*given, *wide(w_ih, w_hh))):
        check(y, expected)


@pytest.mark.parametrize("order", ["C", "F", "strided", "unaligned"])
def test_weights_of_any_memory(draw, order):
    w, x = halves(draw, 33, 20), draw(3, 20)
    raw = np.zeros(w.nbytes + 1, np.uint8)
    other = {
        "C": w,
        "F": np.asfortranarray(w),
        "strided": np.repeat(np.repeat(w, 2, 0), 3, 1)[::2, ::3],
        "unaligned": raw[1:].view(np.float16).reshape(w.shape),
    }[order]
    if order == "unaligned":
        other[...] = w
    np.testing.assert_array_equal(fo.Linear(other)(x), fo.Linear(w)(x))
    np.testing.assert_array_equal(
        fo.RNNCell(other[:, :20], w[:, :13].repeat(3, 1)[:, :33])(x, draw(3, 33) * 0),
        fo.RNNCell(w, w[:, :13].repeat(3, 1)[:, :33])(x, np.zeros((3, 33), np.float32)),
    )


CONVOLUTIONS = [  # channels, image, output channels, kernel, options
    (3, (9, 7), 5, (3, 3), dict(padding=1)),
    (16, (5, 6), 33, (1, 1), {}),
    (40, (14, 14), 70, (3, 3), dict(stride=2)),
    (12, (8, 9), 18, (3, 2), dict(groups=3, padding=1)),
    (64, (7, 7), 130, (1, 1), dict(stride=2)),
    (17, (12, 31), 24, (5, 1), dict(dilation=2, padding=4)),
    (256, (1, 1), 40, (1, 1), {}),
    (32, (2, 200), 16, (1, 3), {}),
]


def convolutions(draw, layout, case):
    """x, a layer of halves and one of the same weights, widened."""
    c, size, oc, kernel, options = case
    w, bias = draw(oc, c // options.get("groups", 1), *kernel).astype(np.float16), draw(oc).astype(np.float16)
    x = draw(2, c, *size) if layout == "NCHW" else draw(2, *size, c)
    made = (
        fo.Conv2d(*weights, activation="relu", layout=layout, **options, **how)
        for weights, how in (((w, bias), {}), (wide(w, bias), {"algorithm": "direct"}))
    )
    return w, bias, x, *made


def same_kernel(layer, expected, x):
    """Not where im2col, which has another order, is faster."""
    return layer.kernel(x.shape)[0] == expected.kernel(x.shape)[0]


def test_the_bits_of_most_convolutions_are_compared(isa, threads, draw):
    found = [
        same_kernel(layer, expected, x)
        for layout in ("NCHW", "NHWC")
        for case in CONVOLUTIONS
        for *_, x, layer, expected in [convolutions(draw, layout, case)]
    ]
    assert sum(found) > len(found) / 2


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_conv2d_has_the_bits_of_widened_weights(isa, threads, draw, layout, case):
    w, bias, x, layer, expected = convolutions(draw, layout, case)
    options, residual = case[-1], draw(*layer.output_shape(x.shape))
    y = layer(x, residual)
    np.testing.assert_array_equal(layer(x, residual), y)
    if same_kernel(layer, expected, x):
        np.testing.assert_array_equal(y, expected(x, residual))
    check(
        y,
        oracle.conv2d(x, *wide(w), bias=wide(bias)[0], residual=residual, activation="relu", layout=layout, **options),
    )
    again = pickle.loads(pickle.dumps(layer))
    np.testing.assert_array_equal(again(x, residual), y)
    np.testing.assert_array_equal(layer._weights()[0], w)
    assert layer._weights()[0].dtype == np.float16 and "float16 weights" in repr(again)


@pytest.mark.parametrize("fold_bn", [False, True])
def test_the_reference_takes_what_the_layers_take(draw, fold_bn):
    """It computes with widened weights."""
    w, bias, options = halves(draw, 8, 5), draw(8).astype(np.float16), dict(activation="relu", fold_bn=fold_bn)
    x = draw(3, 5)
    np.testing.assert_array_equal(
        reference.linear(x, w, bias, **options), reference.linear(x, *wide(w, bias), **options)
    )
    for name, axes in ("conv2d", 2), ("conv1d", 1):
        function, x = getattr(reference, name), draw(1, 5, *[9] * axes)
        w, bn = draw(8, 5, *[3] * axes).astype(np.float16), draw.batch_norm(8)
        wide_w, wide_bias = wide(w, bias)
        np.testing.assert_array_equal(
            function(x, w, bias=bias, bn=bn, **options), function(x, wide_w, bias=wide_bias, bn=bn, **options)
        )


def test_convolutions_that_become_float32(draw):
    x, w, bn = draw(1, 8, 9, 9), draw(8, 1, 3, 3).astype(np.float16), draw.batch_norm(8)
    for layer, expected in (
        (fo.Conv2d(w, groups=8), fo.Conv2d(*wide(w), groups=8)),
        (fo.Conv2d(w.repeat(8, 1), bn=bn), fo.Conv2d(*wide(w.repeat(8, 1)), bn=bn)),
    ):
        np.testing.assert_array_equal(layer(x), expected(x))
        assert "float16" not in repr(layer)


def test_blocks_of_halves(isa, threads, draw):
    """They go layer by layer, however large the image."""
    x = draw(1, 64, 100, 120)
    depthwise = fo.Conv2d(draw(64, 1, 3, 3), groups=64, padding=1, activation="relu")
    w = (draw(24, 64, 1, 1) / 8).astype(np.float16)
    y = fo.DepthwiseSeparable(depthwise, fo.Conv2d(w))(x)
    np.testing.assert_array_equal(y, fo.Conv2d(*wide(w), algorithm="direct")(depthwise(x)))


def test_conv1d(draw):
    w, x = halves(draw, 7, 5, 3), draw(2, 5, 20)
    np.testing.assert_array_equal(fo.Conv1d(w)(x), fo.Conv1d(*wide(w), algorithm="direct")(x))
    assert pickle.loads(pickle.dumps(fo.Conv1d(w)))._arguments[0][0].dtype == np.float16


def test_a_set_that_is_chosen_later(draw):
    w, x = halves(draw, 70, 33), draw(2, 33)
    layer, before = fo.Linear(w), fo.isa()
    y = layer(x)
    try:
        fo.set_isa("scalar")
        np.testing.assert_array_equal(layer(x), y)
    finally:
        fo.set_isa(before)


def test_pickles_are_half_as_large(draw):
    w = halves(draw, 300, 200)
    for small, large in (
        (fo.Linear(w), fo.Linear(*wide(w))),
        (fo.RNNCell(w[:200], w[:200]), fo.RNNCell(*wide(w[:200], w[:200]))),
    ):
        assert len(pickle.dumps(small)) < 0.51 * len(pickle.dumps(large))
    x = draw(1, 200)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(fo.Linear(w)))(x), fo.Linear(w)(x))
    assert "float16 weights" in repr(fo.Linear(w)) and "float16" not in repr(fo.Linear(*wide(w)))


def test_networks_keep_halves(isa, draw, tmp_path):
    """Bits of the network of widened weights, whose products and recurrent layers read half as much."""
    onnx = pytest.importorskip("onnx")
    text = """<ir_version: 8, opset_import: ["" : 17]>
    net (float[1, 40] x) => (float[1, 1, 1, 24] z) {
        y = MatMul(x, m)
        axes = Constant<value_ints = [0]>()
        s = Unsqueeze(y, axes)
        z, h, c = LSTM<hidden_size = 24>(s, w, r)
    }"""
    weights = {"m": draw(40, 32), "w": draw(1, 96, 32) / 4, "r": draw(1, 96, 24) / 4}
    x, found = draw(1, 40), []
    for dtype in np.float16, np.float32:
        proto = onnx.parser.parse_model(text)
        for name, w in weights.items():
            stored = w.astype(np.float16).astype(np.float32)
            stored.flat[0] = 0.25 if dtype == np.float16 else np.float32(1 / 3)  # one value that float16 has not
            proto.graph.initializer.append(onnx.numpy_helper.from_array(stored, name))
        net = fo.load_onnx(proto)
        net(x)
        found.append([repr(layer) for layer in net._session.layers.values()])
        if dtype == np.float16:
            net.save(tmp_path / "net")
            np.testing.assert_array_equal(fo.load(tmp_path / "net")(x), net(x))
            m, w, r = (a.astype(np.float16).astype(np.float32) for a in weights.values())
            for a in m, w, r:
                a.flat[0] = 0.25
            s = fo.linear(x, np.ascontiguousarray(m.T))
            np.testing.assert_array_equal(net(x)[:, 0], fo.LSTM.from_onnx(w, r)(s[None])[0])
    assert len(found[0]) == 2 and all("float16 weights" in text for text in found[0])
    assert not any("float16" in text for text in found[1])


MEMORY = """
import sys, numpy as np, fusedops as fo
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096
dtype, make = sys.argv[1:]
def layer_of(w):
    layer = {"linear": fo.Linear, "cell": lambda w: fo.RNNCell(w, w),
             "conv": lambda w: fo.Conv2d(w[:, :, None, None], layout="NHWC")}[make](w)
    make == "conv" and layer(np.ones((1, 1, 2, len(w)), np.float32))
    return layer
layer_of(np.ones((16, 16), dtype))  # what the first layer of a process brings along
w = np.ones((2048, 2048), dtype)
before = resident()
layers = [layer_of(w) for _ in range(8)]  # what a call widens is scratch of all
print(resident() - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize("make", ["linear", "cell", "conv"])
def test_memory_is_half(make):
    """Of the weights that a layer keeps and of those that it has packed."""
    used = [
        int(subprocess.run([sys.executable, "-c", MEMORY, dtype, make], capture_output=True, check=True).stdout)
        for dtype in ("float16", "float32")
    ]
    assert 0.4 < used[0] / used[1] < 0.75  # the allocator keeps some megabytes of its own


def test_errors(draw):
    w = halves(draw, 12, 5)
    with pytest.raises(TypeError, match=r"w has dtype float64.*astype\(np.float32\)"):
        fo.Linear(w.astype(np.float64))
    with pytest.raises(TypeError, match="w has dtype >f2"):
        fo.Linear(w.astype(">f2"))
    with pytest.raises(TypeError, match="bias has dtype float16"):
        fo.Linear(*wide(w), np.zeros(12, np.float16))
    with pytest.raises(ValueError, match=r"w has shape \(12,\)"):
        fo.Linear(w[:, 0])
    with pytest.raises(TypeError, match=r"w_ih has dtype float16 and w_hh has dtype float32.*w_ih.astype"):
        fo.LSTMCell(w, np.ones((12, 3), np.float32))
    with pytest.raises(ValueError, match="bias has shape"):
        fo.Linear(w, np.zeros(5, np.float16))
    with pytest.raises(ValueError, match="algorithm='winograd'.*use algorithm='direct'"):
        fo.Conv2d(w[:, :1, None, None].repeat(3, 2).repeat(3, 3), algorithm="winograd")
    with pytest.raises(TypeError, match="x has dtype float16"):
        fo.Linear(w)(np.zeros((1, 5), np.float16))
