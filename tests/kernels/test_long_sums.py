"""Sums of up to ten million terms, on every axis and in every layout: right to 1e-6 of the sum of magnitudes."""

import numpy as np
import pytest

import fusedops as fo

BOUND = 1e-6
LONG = 300_007  # neither a multiple of a vector nor of a block


def terms(kind, *shape):
    """Of one sign, alike or not, or of both signs."""
    if kind == "alike":
        return np.full(shape, 0.1, np.float32)
    draw = np.random.default_rng(0).random(shape, np.float32)
    return draw if kind == "random" else draw - np.float32(0.5)


def wide(x):
    return x.astype(np.float64)


def rows(kind, layout, n=LONG):
    """An array and the axes along which it has n elements."""
    if layout == "spread":
        return np.repeat(terms(kind, n, 1), 2, 1)[:, :1], (0,)
    shape, axes = {
        "whole": ((n,), (0,)),
        "last": ((2, n), (1,)),
        "first": ((n, 3), (0,)),
        "first of many": ((n // 20, 70), (0,)),
        "two": ((2, n // 1000, 1000), (1, 2)),
        "outer two": ((n // 1000, 1000, 3), (0, 1)),
        "short and long": ((n // 7, 2, 7), (0, 2)),
        "three": ((n // 500, 2, 25, 2, 20), (0, 2, 4)),
    }[layout]
    return terms(kind, *shape), axes


LAYOUTS = ["whole", "last", "first", "first of many", "two", "outer two", "short and long", "three", "spread"]
REDUCTIONS = {
    "ReduceSum": (lambda x, a: x.sum(a), lambda x, a: np.abs(x).sum(a)),
    "ReduceMean": (lambda x, a: x.mean(a), lambda x, a: np.abs(x).mean(a)),
    "ReduceSumSquare": (lambda x, a: (x * x).sum(a), lambda x, a: (x * x).sum(a)),
    "ReduceL1": (lambda x, a: np.abs(x).sum(a), lambda x, a: np.abs(x).sum(a)),
    "ReduceL2": (lambda x, a: np.sqrt((x * x).sum(a)), lambda x, a: np.sqrt((x * x).sum(a))),
    "ReduceLogSumExp": (lambda x, a: np.log(np.exp(x).sum(a)), lambda x, a: np.log(np.exp(x).sum(a))),
}


def reduction(op, x, axes, constant=False, **options):
    pytest.importorskip("onnx")
    from onnx_single_node import model

    given, stored = {"x": x}, {"axes": np.array(axes)}
    inputs, constants = ({}, given | stored) if constant else (given, stored)
    proto = model(op, inputs, constants, (np.float32,), attrs={"keepdims": 0})
    return fo.load_onnx(proto, **options).run(inputs)["y0"]


@pytest.mark.parametrize("kind", ["alike", "both"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_reductions(isa, kind, layout):
    x, axes = rows(kind, layout)
    for op in "ReduceSum", "ReduceMean":
        exact, size = (f(wide(x), axes) for f in REDUCTIONS[op])
        assert (np.abs(reduction(op, x, axes) - exact) <= BOUND * size).all(), op


@pytest.mark.parametrize("op", REDUCTIONS)
@pytest.mark.parametrize("layout", ["last", "first"])
def test_reductions_of_every_kind(op, layout):
    """In kernels, and in NumPy while constants are folded."""
    x, axes = rows("alike", layout)
    exact, size = (f(wide(x), axes) for f in REDUCTIONS[op])
    for constant in False, True:
        assert (np.abs(reduction(op, x, axes, constant) - exact) <= BOUND * size).all()


@pytest.mark.parametrize("layout", ["last", "first"])
def test_ten_million_terms(layout):
    x, axes = rows("alike", layout, 10_000_003)
    exact = wide(x).sum(axes)
    assert (np.abs(reduction("ReduceSum", x, axes) - exact) <= BOUND * exact).all()


def test_infinite_and_undefined_terms(isa):
    """They reach the sum as in a short one, also after blocks."""
    x = np.ones((4, 70_000), np.float32)
    x[0, 40_000], x[1, 9], x[2, 69_999], x[3, [5, 60_000]] = np.inf, np.nan, -np.inf, [np.inf, -np.inf]
    for given, axis in (x, 1), (np.ascontiguousarray(x.T), 0):
        np.testing.assert_array_equal(reduction("ReduceSum", given, (axis,)), [np.inf, np.nan, -np.inf, np.nan])


POOLS = {  # channels, image, window
    "planes": (3, (501, 400), (501, 400)),
    "long window": (2, (1, 50_007), (1, 50_001)),
    "high window": (2, (50_007, 1), (50_001, 1)),
    "windows": (2, (301, 211), (300, 200)),
    "narrow windows": (2, (4040, 7), (4001, 3)),
    "many channels": (150, (120, 90), (120, 90)),
    "the first long ones": (5, (67, 70), (64, 65)),
}


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("name", POOLS)
def test_average_pools(isa, name, layout):
    c, image, window = POOLS[name]
    x = terms("alike", 1, c, *image)
    x[:, :, ::3] *= 1.7
    sums = np.pad(wide(x).cumsum(2).cumsum(3), ((0, 0), (0, 0), (1, 0), (1, 0)))
    h, w = window
    exact = (sums[:, :, h:, w:] - sums[:, :, :-h, w:] - sums[:, :, h:, :-w] + sums[:, :, :-h, :-w]) / (h * w)
    given = x if layout == "NCHW" else np.ascontiguousarray(np.moveaxis(x, 1, -1))
    for stride in (1, 2, 3) if exact[0, 0].size > 1 else (1,):
        y = fo.avg_pool2d(given, window, stride=stride, layout=layout)
        y = y if layout == "NCHW" else np.moveaxis(y, -1, 1)
        np.testing.assert_allclose(y, exact[:, :, ::stride, ::stride], rtol=BOUND)


@pytest.mark.parametrize(
    "window, padding", [((70, 90), (9, 40)), ((1, 300), (0, 150)), ((300, 2), (140, 1)), ((20, 130), 7)]
)
@pytest.mark.parametrize("channels", [2, 70])
def test_long_windows_have_the_same_bits_in_both_layouts(isa, draw, window, padding, channels):
    """Zeros around the image, which one layout adds and the other leaves out, change no bit."""
    x = draw(1, channels, 170, 160)
    for stride in 1, 2, 31:
        options = dict(stride=stride, padding=padding, ceil_mode=True, count_include_pad=False)
        planes = fo.avg_pool2d(x, window, **options)
        pixels = fo.avg_pool2d(np.ascontiguousarray(np.moveaxis(x, 1, -1)), window, layout="NHWC", **options)
        np.testing.assert_array_equal(planes, np.moveaxis(pixels, -1, 1))


@pytest.mark.parametrize("shape", [(1, 2, 700, 501), (1, 150, 200, 130)])
@pytest.mark.parametrize("last", [False, True])
def test_global_average_pools(isa, shape, last):
    pytest.importorskip("onnx")
    from onnx_single_node import model

    x = terms("alike", *shape)
    if last:
        x = np.moveaxis(np.ascontiguousarray(np.moveaxis(x, 1, -1)), -1, 1)
    y = fo.load_onnx(model("GlobalAveragePool", {"x": x}, {}, (np.float32,)))(x)
    np.testing.assert_allclose(y[..., 0, 0], wide(x).mean((2, 3)), rtol=BOUND)


def test_norms(isa):
    """Layer, RMS, group and instance norms of rows, and of columns and images with neighboring channels."""
    x = terms("random", 2, LONG)
    far = wide(x) - wide(x).mean(1, keepdims=True)
    normed = far / np.sqrt((far * far).mean(1, keepdims=True) + 1e-5)
    scale, shift = np.ones(LONG, np.float32), np.zeros(LONG, np.float32)
    np.testing.assert_allclose(fo.layer_norm(x, scale, shift), normed, rtol=BOUND, atol=2 * BOUND)
    root = wide(x) / np.sqrt((wide(x) ** 2).mean(1, keepdims=True) + 1e-6)
    np.testing.assert_allclose(fo.rms_norm(x, scale, eps=1e-6), root, rtol=BOUND, atol=BOUND)
    image = np.repeat(x[:1, :300_000], 3, 0).reshape(1, 3, 500, 600)
    one, none = np.ones(3, np.float32), np.zeros(3, np.float32)
    planes = fo.group_norm(image, 3, one, none)
    pixels = fo.group_norm(np.ascontiguousarray(np.moveaxis(image, 1, -1)), 3, one, none, layout="NHWC")
    np.testing.assert_array_equal(planes, np.moveaxis(pixels, -1, 1))
    far = wide(image) - wide(image).mean((2, 3), keepdims=True)
    normed = far / np.sqrt((far * far).mean((2, 3), keepdims=True) + 1e-5)
    np.testing.assert_allclose(planes, normed, rtol=BOUND, atol=2 * BOUND)


@pytest.mark.parametrize("n", [1025, 9000, LONG, (1 << 18) + 512])
@pytest.mark.parametrize("log", [False, True])
def test_softmax(isa, n, log):
    function = fo.log_softmax if log else fo.softmax
    x = terms("both", n, 3)
    e = np.exp(wide(x) - wide(x).max(0))
    exact = np.log(e / e.sum(0)) if log else e / e.sum(0)
    y = function(x, axis=0)
    np.testing.assert_allclose(y, exact, rtol=BOUND)
    np.testing.assert_array_equal(function(np.ascontiguousarray(x.T), axis=1), y.T)


def test_the_length_from_which_sums_are_long(isa):
    """Around it, and around blocks after it."""
    for n in 63, 64, 65, 200, 1023, 1024, 1025, 1024 + 63, 1024 + 64, 1024 + 65, 8193:
        x = terms("alike", 2, n)
        for given, axis in (x, 1), (np.ascontiguousarray(x.T), 0):
            np.testing.assert_allclose(reduction("ReduceSum", given, (axis,)), wide(x).sum(1), rtol=BOUND)
