"""Convolutions in int8: integers exact on every set, against NumPy."""

import copy
import math
import pickle
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fusedops as fo
import oracle
from fusedops import _core, activations, layers
from guard_pages import guarded
from q_oracle import ACTIVATIONS, TYPES, Quantization, bytes_of, check, ended

# Channels of x, image, outputs, kernel, options.
SHAPES = [
    (16, (7, 9), 32, (1, 1), {}),
    (5, (6, 6), 70, (1, 1), {}),
    (64, (14, 14), 100, (1, 1), dict(stride=2)),
    (12, (5, 7), 20, (1, 1), dict(padding=1)),
    (16, (8, 9), 33, (3, 3), dict(padding=1)),
    (128, (5, 50), 40, (3, 3), dict(padding=1)),
    (3, (23, 21), 24, (7, 7), dict(stride=2, padding=3)),
    (3, (9, 8), 16, (3, 3), dict(stride=2, padding="same")),
    (20, (10, 11), 17, (3, 2), dict(padding=((2, 0), (1, 3)), dilation=(2, 3))),
    (8, (9, 9), 12, (5, 5), dict(stride=(2, 3), padding=2, groups=4)),
    (6, (7, 7), 6, (3, 3), dict(padding=1, groups=2)),
    (6, (9, 8), 10, (3, 3), dict(padding=1, groups=2)),
    (9, (7, 30), 12, (5, 7), dict(stride=2, padding=2, groups=3)),
    (4, (8, 8), 12, (3, 3), dict(padding=1, groups=4)),
    (1, (6, 6), 3, (3, 3), dict(padding=1)),
    (2, (1, 40), 5, (1, 7), dict(padding=(0, 3))),
    (7, (3, 3), 9, (9, 9), dict(padding=4)),
    (8, (9, 30), 70, (3, 3), dict(padding=1)),
    (64, (9, 9), 80, (3, 3), dict(padding=1)),
    (32, (5, 34), 40, (3, 3), dict(padding=1)),
    (128, (7, 7), 64, (1, 1), {}),
    (4, (7, 60), 12, (3, 2), dict(stride=2, padding=((1, 0), (0, 1)))),
    (8, (6, 26), 6, (5, 3), dict(padding=((4, 3), (1, 2)), dilation=(2, 1), groups=2)),
    (4, (3, 2), 5, (1, 9), dict(padding=(0, 30))),
    (1, (28, 28), 33, (5, 5), dict(padding=2)),
    (3, (6, 130), 34, (3, 3), dict(padding=1)),
    (5, (9, 31), 12, (3, 3), dict(padding=1, stride=2)),
    (7, (6, 20), 17, (2, 5), dict(stride=(1, 3))),
    (10, (8, 40), 8, (3, 3), dict(padding=1)),
    (6, (11, 40), 9, (3, 11), dict(padding=5)),
]
DEPTHWISE = [
    (c, size, c, kernel, options | dict(groups=c))
    for c, size, kernel, options in [
        (3, (5, 5), (3, 3), dict(padding=1)),
        (64, (9, 40), (3, 3), dict(padding=1)),
        (70, (7, 9), (3, 3), dict(padding=1, stride=2)),
        (144, (12, 33), (5, 5), dict(padding=2)),
        (33, (9, 70), (5, 5), dict(padding=2, stride=2)),
        (16, (8, 8), (7, 7), dict(padding=3)),
        (40, (6, 9), (1, 1), {}),
        (20, (9, 9), (2, 4), dict(padding=((1, 2), (0, 3)))),
        (34, (20, 20), (3, 3), dict(padding=2, dilation=2)),
        (10, (9, 9), (3, 3), dict(padding="same", stride=3)),
        (5, (30, 30), (9, 3), dict(padding=(4, 1))),
        (2, (3, 60), (3, 20), dict(dilation=(1, 3))),
        (8, (1, 1), (3, 3), dict(padding=1)),
        (32, (11, 9), (3, 3), dict(padding=1)),
        (80, (7, 8), (2, 3), dict(padding=(1, 0))),
        (96, (13, 70), (3, 3), dict(padding=1, stride=2)),
        (24, (10, 6), (4, 3), dict(padding=(2, 1))),
        (3, (42, 12), (40, 9), dict(padding=1)),
        (2, (270, 250), (3, 3), dict(padding=1)),
        (5, (9, 45), (3, 4), dict(padding=((3, 1), (0, 2)), stride=(2, 1))),
        (4, (19, 40), (3, 3), dict(padding=(2, 1), dilation=(3, 1))),
        (70, (19, 18), (17, 17), dict(padding=8)),
        (9, (40, 70), (21, 33), dict(padding=(10, 16), stride=(3, 2))),
        (66, (21, 34), (9, 9), dict(padding=16, dilation=4)),
        (17, (39, 40), (3, 3), dict(padding=36, dilation=36)),
        (3, (3, 90), (1, 70), dict(stride=(1, 20))),
    ]
]


def sums(x, w, zero, stride=1, padding=0, dilation=1, groups=1):
    """The convolution of integers, NCHW; float64 has them all."""
    stride, dilation = oracle.pair(stride), oracle.pair(dilation)
    padding = oracle.pads(padding, x.shape[2:], w.shape[2:], stride, dilation)
    x, w = x.astype(np.float64) - zero, w.astype(np.float64)
    return oracle.convolution(x, w, stride, padding, dilation, groups).astype(np.int64)


def problem(rng, shape, dtype=np.uint8, y_dtype=np.uint8, residual=None, activation="relu", n=2):
    ic, size, oc, kernel, options = shape
    k = ic // options.get("groups", 1) * math.prod(kernel)
    given = dict(
        x=bytes_of(rng, (n, ic, *size), dtype),
        w=bytes_of(rng, (oc, k // math.prod(kernel), *kernel), np.int8),
        x_q=Quantization(0.02, 113 if dtype == np.uint8 else -20),
        w_q=Quantization(rng.uniform(1e-3, 1e-2, oc).astype(np.float32)),
        bias=rng.standard_normal(oc).astype(np.float32),
        activation=("prelu", rng.uniform(-1, 1, oc).astype(np.float32)) if activation == "prelu" else activation,
    )
    given |= options
    if y_dtype is not None:
        given["y_q"] = Quantization(0.004 * k**0.5 + 0.01, 20 if y_dtype == np.uint8 else -100)
    if residual is not None:
        y = sums(given["x"], given["w"], 0, **options).shape
        given["residual"] = (
            rng.standard_normal(y).astype(np.float32) if residual == np.float32 else bytes_of(rng, y, residual)
        )
        if residual != np.float32:
            given["residual_q"] = Quantization(0.03, 7)
    return given


@pytest.mark.parametrize("oc", [33, 70])
def test_pixels_that_are_one_in_memory(isa, products, rng, oc):
    """Rows of a product at a distance of 0, after another product's."""
    given = problem(rng, (64, (7, 7), oc, (1, 1), {}), n=1)
    fo.qconv2d(**given)
    given["x"] = np.broadcast_to(given["x"][:, :, 3:4, 3:4].transpose(0, 2, 3, 1), (1, 7, 7, 64)).transpose(0, 3, 1, 2)
    np.testing.assert_array_equal(fo.qconv2d(**given), expected_of(given, np.uint8))


def expected_of(given, y_dtype):
    """NCHW."""
    g = dict(given)
    x, w, x_q, w_q = (g.pop(name) for name in ("x", "w", "x_q", "w_q"))
    options = {name: g.pop(name) for name in ("stride", "padding", "dilation", "groups") if name in g}
    if g.get("residual") is not None:
        g["residual"] = np.moveaxis(g["residual"], 1, -1)
    y = np.moveaxis(sums(x, w, x_q.zero_point, **options), 1, -1)
    return np.moveaxis(ended(y, w_q.scale, x_scale=float(np.float32(x_q.scale)), dtype=y_dtype, **g), -1, 1)


def called(given, y_dtype, layout, memory=None, guard=lambda a: a):
    """In a layout and, of NCHW, a memory order; the result as NCHW."""

    def order(a):
        if layout == "NHWC":
            return guard(np.ascontiguousarray(np.moveaxis(a, 1, 3)))
        return (
            np.moveaxis(guard(np.ascontiguousarray(np.moveaxis(a, 1, 3))), 3, 1)
            if memory == "NHWC"
            else guard(np.ascontiguousarray(a))
        )

    given = (
        given
        | {name: order(given[name]) for name in ("x", "residual") if given.get(name) is not None}
        | dict(layout=layout)
    )
    layer = dict(given)
    x, residual, w = layer.pop("x"), layer.pop("residual", None), guard(layer.pop("w"))
    layer = fo.QConv2d(w, layer.pop("bias"), **layer)
    out = (
        None
        if y_dtype in (None, x.dtype) and guard(x) is x
        else guard(np.full(layer.output_shape(x.shape), 7, y_dtype or np.float32))
    )
    y = layer(x, residual, out)
    assert out is None or y is out
    if memory == "NHWC" and out is None and min(*x.shape, *y.shape) > 1:
        assert y.transpose(0, 2, 3, 1).flags.c_contiguous
    return np.moveaxis(y, 3, 1) if layout == "NHWC" else y


def packed(given, layout, **more):
    """A plan of a problem, with what layers do not have."""
    w, window = given["w"], dict(stride=1, padding=0, dilation=1, groups=1)
    window = layers.windows(w, *(given.get(name, default) for name, default in window.items()), layout)
    plan, parsed = _core.QConv2dPlan(), activations.parse(given["activation"], len(w))
    ends = tuple(given["x_q"]), None, tuple(given["y_q"])
    plan._pack(w, given["w_q"].scale, given["bias"], parsed, *window, *ends, **more)
    return plan


@pytest.mark.parametrize("activation", [None, "relu6"])
@pytest.mark.parametrize("shape", SHAPES + DEPTHWISE, ids=str)
def test_nudge(isa, products, rng, shape, activation):
    """What kernels that round twice add to the size of a result."""
    given = problem(rng, shape, activation=activation)
    nudge = rng.uniform(0, 0.3, len(given["w"])).astype(np.float32)
    expected = expected_of(given | dict(nudge=nudge), np.uint8)
    assert expected.size < 100 or np.any(expected != expected_of(given, np.uint8))
    for layout in ("NHWC", "NCHW"):
        x = given["x"] if layout == "NCHW" else np.ascontiguousarray(given["x"].transpose(0, 2, 3, 1))
        y = packed(given, layout, nudge=nudge)(x)
        np.testing.assert_array_equal(y if layout == "NCHW" else y.transpose(0, 3, 1, 2), expected)


@pytest.mark.parametrize("shape", DEPTHWISE, ids=str)
def test_zero_points_of_depthwise_weights(isa, products, threads, rng, shape):
    """As far from 0 as they can be: less them weights have nine bits."""
    for dtype, activation in (np.uint8, "relu"), (np.int8, "silu"):
        given = problem(rng, shape, dtype, dtype, activation=activation)
        zero = rng.choice(np.array([-128, -77, 0, 127], np.int8), len(given["w"]))
        expected = expected_of(given | dict(w=given["w"].astype(int) - zero.reshape(-1, 1, 1, 1)), dtype)
        for layout in ("NHWC", "NCHW"):
            plan, x = packed(given, layout, w_zero=zero), given["x"]
            y = plan(x if layout == "NCHW" else np.ascontiguousarray(x.transpose(0, 2, 3, 1)))
            check(y if layout == "NCHW" else y.transpose(0, 3, 1, 2), expected, activation)


@pytest.mark.parametrize("shape", SHAPES + DEPTHWISE, ids=str)
def test_shapes(isa, products, threads, rng, shape):
    for dtype in TYPES:
        given = problem(rng, shape, dtype, dtype)
        expected = expected_of(given, dtype)
        for memory in ("NCHW", None), ("NCHW", "NHWC"), ("NHWC", None):
            np.testing.assert_array_equal(called(given, dtype, *memory), expected, str(memory))


@pytest.mark.parametrize("residual", [None, *TYPES, np.float32])
@pytest.mark.parametrize("y_dtype", [None, *TYPES])
@pytest.mark.parametrize("shape", [SHAPES[4], DEPTHWISE[2], DEPTHWISE[3], SHAPES[8]], ids=str)
def test_types(isa, products, rng, shape, y_dtype, residual):
    for activation in None, ("clip", -0.5, 0.5), "sigmoid":
        given = problem(rng, shape, np.uint8, y_dtype, residual, activation)
        expected = expected_of(given, y_dtype)
        for layout in "NCHW", "NHWC":
            check(called(given, y_dtype, layout), expected, activation)


@pytest.mark.parametrize("activation", [a for a in ACTIVATIONS if a != "prelu"])
def test_activations(isa, rng, activation):
    for shape in SHAPES[4], DEPTHWISE[2]:
        given = problem(rng, shape, np.uint8, np.uint8, np.uint8, activation)
        check(called(given, np.uint8, "NHWC"), expected_of(given, np.uint8), activation)


def test_slopes_of_channels(isa, rng):
    for shape in SHAPES[8], DEPTHWISE[2]:
        given = problem(rng, shape, activation="prelu")
        slopes = given["activation"][1]
        plain = expected_of(given | dict(activation=None, y_q=None), None)
        y = np.where(plain < 0, plain * slopes[:, None, None], plain)
        expected = np.clip(
            np.rint(y * np.float32(1 / np.float32(given["y_q"].scale))) + given["y_q"].zero_point, 0, 255
        )
        np.testing.assert_array_equal(called(given, np.uint8, "NHWC"), expected)


@pytest.mark.parametrize("shape", SHAPES + DEPTHWISE, ids=str)
def test_nothing_outside(isa, products, rng, shape):
    given = problem(rng, shape, residual=np.uint8, n=1)
    expected = expected_of(given, np.uint8)
    for layout in "NCHW", "NHWC":
        for at_end in False, True:
            y = called(given, np.uint8, layout, guard=partial(guarded, at_end=at_end))
            np.testing.assert_array_equal(y, expected)


def test_threads_and_batch(isa, products, rng):
    before = fo.get_num_threads()
    try:
        for shape in SHAPES[2], SHAPES[4], SHAPES[5], DEPTHWISE[1], DEPTHWISE[3]:
            given = problem(rng, shape, n=5)
            expected = expected_of(given, np.uint8)
            for count in 1, 2, 3, 7:
                fo.set_num_threads(count)
                for part in slice(0, 5), slice(2, 3), slice(3, 5):
                    np.testing.assert_array_equal(
                        called(given | dict(x=given["x"][part]), np.uint8, "NHWC"), expected[part]
                    )
    finally:
        fo.set_num_threads(before)


def test_views_and_out(isa, rng):
    for shape in SHAPES[0], SHAPES[4], DEPTHWISE[2]:
        given = problem(rng, shape, residual=np.uint8)
        expected, x = expected_of(given, np.uint8), given["x"]
        wide = np.zeros((2, x.shape[1] + 3, x.shape[2] + 2, x.shape[3] * 2), np.uint8)
        view = wide[:, 2:-1, 1:-1, ::2]
        view[...] = x
        np.testing.assert_array_equal(fo.qconv2d(**given | dict(x=view)), expected)
        np.testing.assert_array_equal(fo.qconv2d(**given | dict(x=x[..., ::-1][..., ::-1])), expected)
        pixels = np.zeros((2, *x.shape[2:], x.shape[1] + 5), np.uint8)[..., 3:-2].transpose(0, 3, 1, 2)
        pixels[...] = x
        np.testing.assert_array_equal(fo.qconv2d(**given | dict(x=pixels)), expected)
        room = np.full((*expected.shape[:3], expected.shape[3] * 2), 9, np.uint8)
        out = room[..., ::2]
        assert fo.qconv2d(**given, out=out) is out
        np.testing.assert_array_equal(out, expected)
        assert (room[..., 1::2] == 9).all()
    given = problem(rng, DEPTHWISE[1])
    expected = expected_of(given, np.uint8)
    np.testing.assert_array_equal(fo.qconv2d(**given, out=given["x"]), expected)


def test_nothing_to_do(isa):
    for x, w in ((0, 3, 5, 5), (4, 3, 3, 3)), ((2, 3, 5, 5), (0, 3, 3, 3)), ((2, 0, 5, 5), (4, 0, 3, 3)):
        y = fo.qconv2d(np.zeros(x, np.uint8), np.zeros(w, np.int8), x_q=Quantization(1.0), w_q=Quantization(1.0))
        assert y.shape == (x[0], w[0], 3, 3) and not y.any()


def test_layer_from_floats(isa, rng):
    w, bn = (
        rng.standard_normal((8, 4, 3, 3)).astype(np.float32),
        fo.BatchNorm(*(rng.uniform(0.5, 1.5, 8).astype(np.float32) for _ in range(4))),
    )
    x = rng.uniform(-1, 1, (1, 4, 9, 9)).astype(np.float32)
    q = Quantization(2 / 255, 128)
    exact = fo.conv2d(x, w, bn=bn, padding=1)
    layer = fo.QConv2d(w, bn=bn, x_q=q, padding=1)
    assert np.abs(layer(fo.quantize(x, q)) - exact).max() < 0.03 * np.abs(exact).max()
    assert layer.output_shape((1, 4, 9, 9)) == (1, 8, 9, 9) and "im2col" in repr(layer)
    for other in copy.deepcopy(layer), pickle.loads(pickle.dumps(layer)):
        np.testing.assert_array_equal(other(fo.quantize(x, q)), layer(fo.quantize(x, q)))


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_any_shape(data):
    number = lambda lo, hi: data.draw(st.integers(lo, hi))  # noqa: E731
    groups = data.draw(st.sampled_from([1, 1, 2, 5]))
    icg, ocg = number(1, 9), number(1, 30)
    if data.draw(st.booleans()):
        groups, icg, ocg = number(2, 80), 1, 1
    kernel, size = (number(1, 5), number(1, 5)), (number(5, 14), number(5, 14))
    options = dict(
        stride=(number(1, 3), number(1, 3)), padding=(number(0, 3), number(0, 3)), dilation=number(1, 1), groups=groups
    )
    given = problem(
        np.random.default_rng(number(0, 2**32)),
        (groups * icg, size, groups * ocg, kernel, options),
        data.draw(st.sampled_from(TYPES)),
    )
    np.testing.assert_array_equal(
        called(given, np.uint8, data.draw(st.sampled_from(["NCHW", "NHWC"]))), expected_of(given, np.uint8)
    )


X, W, Q = np.zeros((1, 4, 5, 5), np.uint8), np.zeros((6, 4, 3, 3), np.int8), Quantization(1.0)
GOOD = dict(x=X, w=W, x_q=Q, w_q=Q)


@pytest.mark.parametrize(
    "wrong, error, message",
    [
        (dict(x_q=None), TypeError, "x_q must be"),
        (dict(w_q=None), TypeError, "w_q must be"),
        (dict(x_q=Quantization(0)), ValueError, "positive"),
        (dict(w_q=Quantization(np.ones(4, np.float32))), ValueError, "6 channels"),
        (dict(x=X.astype(np.float32)), TypeError, "takes uint8 or int8"),
        (dict(x=X[0]), ValueError, "needs"),
        (dict(x=X.transpose(0, 2, 3, 1)), ValueError, "layout='NHWC'"),
        (dict(x=X[:, :, :2]), ValueError, "smaller than the kernel"),
        (dict(w=W[0]), ValueError, "4 axes"),
        (dict(w=W.astype(np.float32)), TypeError, "uint8 or int8"),
        (dict(groups=4), ValueError, "groups=4"),
        (dict(stride=0), ValueError, "stride"),
        (dict(residual=np.zeros((1, 6, 3, 3), np.uint8)), TypeError, "float32"),
        (dict(residual=np.zeros((1, 6, 3, 2), np.float32)), ValueError, "residual has shape"),
        (dict(out=np.zeros((1, 6, 3, 3), np.uint8)), TypeError, "float32"),
        (dict(out=np.zeros((1, 6, 3, 3), np.int8), y_q=Quantization(1.0, 200)), ValueError, "y_q.zero_point"),
        (dict(w=np.zeros((1, 66_000, 1, 1), np.int8), x=np.zeros((1, 66_000, 1, 1), np.uint8)), ValueError, "32 bits"),
    ],
)
def test_errors(wrong, error, message):
    fo.qconv2d(**GOOD)
    with pytest.raises(error, match=message):
        fo.qconv2d(**GOOD | wrong)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_twin_is_within_a_step(isa, rng, layout):
    for shape in SHAPES[4], SHAPES[8], DEPTHWISE[2]:
        given = problem(rng, shape, residual=np.uint8, activation="hardswish")
        if layout == "NHWC":
            given |= {name: np.ascontiguousarray(given[name].transpose(0, 2, 3, 1)) for name in ("x", "residual")}
        y, twin = fo.qconv2d(**given, layout=layout), fo.reference.qconv2d(**given, layout=layout)
        off = np.abs(twin.astype(int) - y)
        assert twin.dtype == y.dtype and off.max() <= 1 and off.sum() <= 1 + off.size / 1000


@pytest.mark.parametrize(
    "w, groups, kernel", [((8, 4, 3, 3), 1, "im2col"), ((8, 4, 1, 1), 1, "gemm"), ((4, 1, 3, 3), 4, "depthwise")]
)
def test_a_layer_names_its_kernel(w, groups, kernel):
    layer = fo.QConv2d(np.ones(w, np.float32), x_q=fo.Quantization(0.1), groups=groups)
    assert layer.kernel((1, 4, 8, 8)) == (kernel, 0)
    assert layer.kernel((0, 4, 8, 8))[0] == "none, an empty result"
    with pytest.raises(ValueError, match="x has shape"):
        layer.kernel((1, 5, 8, 8))
