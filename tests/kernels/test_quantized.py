"""Tensors of int8, and the fully connected layer on them: integers exact on every set, against NumPy."""

import copy
import inspect
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fusedops as fo
from catalog import INT8_PRODUCTS, using_int8_products
from fusedops import _core, reference
from guard_pages import guarded
from q_oracle import ACTIVATIONS, TYPES, Quantization, by_rows, bytes_of, check, ended, quantized


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("n", [0, 1, 3, 4, 15, 16, 17, 63, 64, 65, 1000, 70_001])
def test_there_and_back(isa, threads, rng, dtype, n):
    zero = -3 if dtype == np.int8 else 130
    q = Quantization(0.1, zero)
    x = (rng.standard_normal(n) * 10).astype(np.float32)
    x[: min(n, 8)] = np.float32([np.inf, -np.inf, 1e38, -1e38, 0.05, 0.15, -0.05, -0.0])[:n]
    y = fo.quantize(x, q, dtype)
    np.testing.assert_array_equal(y, quantized(x, q, dtype))
    back = fo.dequantize(y, q)
    assert back.dtype == np.float32
    np.testing.assert_array_equal(back, np.float32(0.1) * (y.astype(np.int32) - zero).astype(np.float32))


def test_halves_to_even_and_nan(isa):
    x = np.float32([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 3.5, np.nan])
    np.testing.assert_array_equal(fo.quantize(x, Quantization(1.0), np.int8), [-2, -2, 0, 0, 2, 2, 4, -128])
    np.testing.assert_array_equal(fo.quantize(x, Quantization(1.0, 5)), [3, 3, 5, 5, 7, 7, 9, 0])


def test_each_channel_has_its_own(isa, rng):
    x = rng.standard_normal((5, 3, 7)).astype(np.float32)
    q = Quantization(np.float32([0.01, 0.02, 0.03, 0.5, 1]), np.int32([0, 1, 2, 3, -4]))
    y = fo.quantize(x, q, np.int8)
    for c in range(5):
        np.testing.assert_array_equal(y[c], quantized(x[c], Quantization(q.scale[c], q.zero_point[c]), np.int8))
    expected = (y.astype(np.float32) - q.zero_point[:, None, None].astype(np.float32)) * q.scale[:, None, None]
    np.testing.assert_array_equal(fo.dequantize(y, q), expected)


def test_strides_and_out(isa, rng):
    x = rng.standard_normal((6, 10)).astype(np.float32)
    q = Quantization(0.02, 100)
    expected = quantized(x, q, np.uint8)
    room = np.zeros((10, 12), np.uint8)
    out = room[:, ::2].T
    assert fo.quantize(x, q, out=out) is out
    np.testing.assert_array_equal(out, expected)
    assert not room[:, 1::2].any()
    np.testing.assert_array_equal(fo.quantize(x[::-1, ::3], q), expected[::-1, ::3])
    floats = np.zeros((10, 6), np.float32).T
    assert fo.dequantize(expected, q, out=floats) is floats
    np.testing.assert_array_equal(floats, fo.dequantize(expected, q))
    same = np.zeros(60, np.float32)
    same.view(np.uint8)[:60] = expected.ravel()
    np.testing.assert_array_equal(
        fo.dequantize(same.view(np.uint8)[:60], q, out=same), fo.dequantize(expected.ravel(), q)
    )


def problem(rng, m, n, k, dtype=np.uint8, y_dtype=np.uint8, residual=None, activation="relu"):
    """A call's arguments."""
    given = dict(
        x=bytes_of(rng, (m, k), dtype),
        w=bytes_of(rng, (n, k), np.int8),
        x_q=Quantization(0.02, 113 if dtype == np.uint8 else -20),
        w_q=Quantization(rng.uniform(1e-3, 1e-2, n).astype(np.float32)),
        bias=rng.standard_normal(n).astype(np.float32),
        activation=("prelu", rng.uniform(-1, 1, n).astype(np.float32)) if activation == "prelu" else activation,
    )
    if y_dtype is not None:
        given["y_q"] = Quantization(0.004 * max(k, 1) ** 0.5 + 0.01, 20 if y_dtype == np.uint8 else -100)
    if residual is not None and residual != np.float32:
        given |= dict(residual=bytes_of(rng, (m, n), residual), residual_q=Quantization(0.03, 7))
    elif residual is not None:
        given |= dict(residual=rng.standard_normal((m, n)).astype(np.float32))
    return given


def expected_of(given, y_dtype):
    g = dict(given)
    x, w, x_q, w_q = (g.pop(name) for name in ("x", "w", "x_q", "w_q"))
    sums = (x.astype(np.int64) - x_q.zero_point) @ w.astype(np.int64).T
    return ended(sums, w_q.scale, x_scale=float(np.float32(x_q.scale)), dtype=y_dtype, **g)


def called(given, y_dtype):
    shape = (len(given["x"]), len(given["w"]))
    out = None if y_dtype is None else np.full(shape, 7, y_dtype)
    return fo.qlinear(**given, out=out)


@pytest.mark.parametrize("m", [0, 1, 2, 3, 5, 6, 7, 11, 12, 13, 25])
def test_shapes(isa, products, rng, m):
    for n in (0, 1, 7, 8, 9, 16, 17, 31, 32, 33, 48, 63, 64, 65, 100):
        for k in (0, 1, 3, 4, 7, 8, 33):
            given = problem(rng, m, n, k)
            np.testing.assert_array_equal(called(given, np.uint8), expected_of(given, np.uint8))


@pytest.mark.parametrize("m", [7, 15, 16, 17, 31, 32, 33, 49, 64])
def test_shapes_of_tiles(isa, products, rng, m):
    """Around 16 rows, 16 groups of four steps and 16 columns, and where groups do not fill tiles."""
    for n in (1, 16, 33, 64, 100):
        for k in (28, 29, 32, 60, 64, 68, 72, 128, 144, 192):
            given = problem(rng, m, n, k)
            np.testing.assert_array_equal(called(given, np.uint8), expected_of(given, np.uint8))


@pytest.mark.parametrize("m", [17, 50, 80, 300])
@pytest.mark.parametrize("k", [576, 640, 1200, 2304])
def test_shapes_of_several_tiles(isa, products, rng, m, k):
    """Pairs of tiles, of which the last share rows, steps that are cut, and more columns than stay in a cache."""
    for n, residual, activation in (33, None, "relu"), (70, np.int8, "sigmoid"), (300, None, None):
        given = problem(rng, m, n, k, residual=residual, activation=activation)
        check(called(given, np.uint8), expected_of(given, np.uint8), activation)


@pytest.mark.parametrize("residual", [None, *TYPES, np.float32])
@pytest.mark.parametrize("y_dtype", [None, *TYPES])
@pytest.mark.parametrize("dtype", TYPES)
def test_types(isa, products, rng, dtype, y_dtype, residual):
    for m, n, k in (13, 37, 29), (4, 64, 16), (7, 128, 32), (33, 80, 64):
        for activation in None, "relu", ("clip", -1.0, 2.0), "sigmoid":
            given = problem(rng, m, n, k, dtype, y_dtype, residual, activation)
            check(called(given, y_dtype), expected_of(given, y_dtype), activation)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("y_dtype", [None, *TYPES])
def test_activations(isa, rng, activation, y_dtype):
    given = problem(rng, 31, 45, 16, np.uint8, y_dtype, np.int8, activation)
    check(called(given, y_dtype), expected_of(given, y_dtype), activation)


def test_same_bits_on_every_set(rng):
    """Floats, too, but for polynomials: integers after them are the same for all that."""
    for activation in ACTIVATIONS:
        for y_dtype in (np.uint8, np.int8):
            given, ys = problem(rng, 67, 129, 77, np.uint8, y_dtype, np.uint8, activation), []
            before = fo.isa()
            for name in fo.available_isas():
                fo.set_isa(name)
                for kind in INT8_PRODUCTS:
                    with using_int8_products(kind):
                        ys.append(called(given, y_dtype))
            fo.set_isa(before)
            for y in ys[1:]:
                np.testing.assert_array_equal(y, ys[0], err_msg=str(activation))


def test_largest_sums(isa, products):
    """All bits of 32: the worst bytes, as many as may be."""
    k = _core.Q_STEPS
    for x_value, zero, w_value in (255, 0, -128), (0, 255, -128), (255, 0, 127):
        x, w = np.full((2, k), x_value, np.uint8), np.full((3, k), w_value, np.int8)
        y = fo.qlinear(x, w, x_q=Quantization(1.0, zero), w_q=Quantization(1.0))
        np.testing.assert_array_equal(y, np.full((2, 3), (x_value - zero) * w_value * k, np.float32))
    with pytest.raises(ValueError, match="do not fit 32 bits"):
        fo.qlinear(
            np.zeros((1, k + 1), np.uint8), np.zeros((1, k + 1), np.int8), x_q=Quantization(1.0), w_q=Quantization(1.0)
        )


def test_neighbours_do_not_saturate(isa, products):
    """Two products of 255 and 127 do not fit 16 bits."""
    for w_value in 127, -128:
        y = fo.qlinear(
            np.full((1, 64), 255, np.uint8),
            np.full((64, 64), w_value, np.int8),
            x_q=Quantization(1.0),
            w_q=Quantization(1.0),
        )
        np.testing.assert_array_equal(y, np.full((1, 64), 255 * w_value * 64, np.float32))


@pytest.mark.parametrize("m, n, k", [(1, 70, 50), (5, 33, 7), (64, 100, 128), (130, 20, 300)])
def test_rows_of_floats(isa, products, threads, rng, m, n, k):
    x, w = rng.standard_normal((m, k)).astype(np.float32), bytes_of(rng, (n, k), np.int8)
    x[m // 2] = np.abs(x[m // 2])
    bias, w_q = rng.standard_normal(n).astype(np.float32), Quantization(rng.uniform(1e-3, 1e-2, n).astype(np.float32))
    q, scale, zero = by_rows(x)
    sums = (q.astype(np.int64) - zero[:, None]) @ w.astype(np.int64).T
    for y_q in None, Quantization(0.05, 100):
        y = fo.qlinear(x, w, w_q=w_q, bias=bias, y_q=y_q, activation="relu")
        np.testing.assert_array_equal(
            y,
            ended(
                sums,
                w_q.scale,
                x_scale=1.0,
                row_scale=scale[:, None],
                bias=bias,
                y_q=y_q,
                dtype=np.uint8,
                activation="relu",
            ),
        )


def test_rows_of_floats_that_have_no_range(isa):
    x = np.zeros((5, 8), np.float32)
    x[1], x[2, 3], x[3, 4], x[4] = 2, np.nan, -np.inf, 1e-45
    y = fo.qlinear(x, np.full((3, 8), 64, np.int8), w_q=Quantization(1 / 64))
    np.testing.assert_allclose(y, np.float32([0, 16, np.nan, np.nan, 0])[:, None].repeat(3, 1), atol=1e-3)


def test_layer_from_floats(isa, rng):
    w, x = rng.standard_normal((20, 64)).astype(np.float32), rng.standard_normal((9, 64)).astype(np.float32)
    w[3] = 0
    bn = fo.BatchNorm(*(rng.uniform(0.5, 1.5, 20).astype(np.float32) for _ in range(4)))
    for norm in None, bn:
        exact = fo.Linear(*(fo.fold_batch_norm(w, None, bn) if norm else (w,)))(x)
        y = fo.QLinear(w, bn=norm)(x)
        assert np.abs(y - exact).max() < 0.02 * np.abs(exact).max()
    w_q = Quantization(np.maximum(np.abs(w).max(1) / np.float32(127), np.finfo(np.float32).tiny))
    layer = fo.QLinear(w, x_q=Quantization(0.02, 128), y_q=Quantization(0.2, 100))
    xq = fo.quantize(x, Quantization(0.02, 128))
    np.testing.assert_array_equal(
        layer(xq),
        fo.qlinear(xq, quantized_rows(w, w_q), x_q=Quantization(0.02, 128), w_q=w_q, y_q=Quantization(0.2, 100)),
    )


def quantized_rows(w, w_q):
    return np.clip(np.rint(w / w_q.scale[:, None]), -128, 127).astype(np.int8)


def test_layers_are_copied_and_pickled(isa, rng):
    given = problem(rng, 9, 21, 40)
    layer = fo.QLinear(given["w"], given["bias"], **{k: given[k] for k in ("x_q", "w_q", "y_q", "activation")})
    expected = layer(given["x"])
    for other in copy.deepcopy(layer), pickle.loads(pickle.dumps(layer)):
        np.testing.assert_array_equal(other(given["x"]), expected)
    assert "QLinear(40 -> 21" in repr(layer)
    given["w"][:] = 0
    np.testing.assert_array_equal(layer(given["x"]), expected)


def test_threads_and_batch(isa, products, rng):
    """A row has the bytes that it has alone, on any number of threads."""
    given, before = problem(rng, 64, 300, 120), fo.get_num_threads()
    layer = fo.QLinear(given["w"], given["bias"], **{k: given[k] for k in ("x_q", "w_q", "y_q", "activation")})
    expected = expected_of(given, np.uint8)
    try:
        for count in 1, 2, 3, 7:
            fo.set_num_threads(count)
            for rows in slice(0, 64), slice(5, 6), slice(17, 22):
                np.testing.assert_array_equal(layer(given["x"][rows]), expected[rows])
    finally:
        fo.set_num_threads(before)


def test_views_and_out(isa, rng):
    given = problem(rng, 8, 20, 12)
    expected, x = expected_of(given, np.uint8), given["x"]
    wide = np.zeros((8, 24), np.uint8)
    wide[:, 5:17] = x
    for view in wide[:, 5:17], np.asfortranarray(x), np.repeat(x, 2, 1)[:, ::2], x[::-1][::-1]:
        np.testing.assert_array_equal(fo.qlinear(**given | dict(x=view)), expected)
    np.testing.assert_array_equal(fo.qlinear(**given | dict(w=np.asfortranarray(given["w"]))), expected)
    room = np.full((8, 40), 9, np.uint8)
    for out in room[:, 3:23], room[:, ::2]:
        assert fo.qlinear(**given, out=out) is out
        np.testing.assert_array_equal(out, expected)
    square = problem(rng, 8, 12, 12)
    result = expected_of(square, np.uint8)
    np.testing.assert_array_equal(fo.qlinear(**square, out=square["x"]), result)
    batch = fo.qlinear(**given | dict(x=x.reshape(2, 2, 2, 12)))
    np.testing.assert_array_equal(batch, expected.reshape(2, 2, 2, 20))


@pytest.mark.parametrize("at_end", [False, True])
@pytest.mark.parametrize("m", [1, 6, 13, 17, 33])
def test_nothing_outside(isa, products, rng, m, at_end):
    for n, k in (1, 1), (17, 3), (33, 9), (64, 16), (100, 7), (33, 64), (100, 128), (17, 72):
        for dtype in TYPES:
            given = problem(rng, m, n, k, dtype, residual=np.uint8)
            near = {name: guarded(a, at_end) if isinstance(a, np.ndarray) else a for name, a in given.items()}
            out = guarded(np.zeros((m, n), np.uint8), at_end)
            np.testing.assert_array_equal(fo.qlinear(**near, out=out), expected_of(given, np.uint8))
    x = guarded(rng.standard_normal((m, 13)).astype(np.float32), at_end)
    y = guarded(np.zeros((m, 13), np.uint8), at_end)
    fo.quantize(x, Quantization(0.1, 100), out=y)
    fo.dequantize(y, Quantization(0.1, 100), out=x)


@settings(deadline=None, max_examples=60)
@given(
    st.integers(0, 20),
    st.integers(0, 140),
    st.integers(0, 70),
    st.sampled_from(TYPES),
    st.sampled_from([None, *TYPES]),
    st.sampled_from([None, "relu", "hardswish"]),
    st.integers(0, 2**32),
)
def test_any_shape(m, n, k, dtype, y_dtype, activation, seed):
    given = problem(np.random.default_rng(seed), m, n, k, dtype, y_dtype, None, activation)
    check(called(given, y_dtype), expected_of(given, y_dtype), activation)


X, W = np.zeros((2, 3), np.uint8), np.zeros((4, 3), np.int8)
Q = Quantization(1.0)
GOOD = dict(x=X, w=W, x_q=Q, w_q=Q)


@pytest.mark.parametrize(
    "wrong, error, message",
    [
        (dict(x_q=Quantization(0.0)), ValueError, "x_q.scale must be positive"),
        (dict(x_q=Quantization(-1.0)), ValueError, "x_q.scale must be positive"),
        (dict(x_q=Quantization(np.nan)), ValueError, "x_q.scale must be positive"),
        (dict(y_q=Quantization(np.inf)), ValueError, "y_q.scale must be positive"),
        (dict(y_q=Quantization(1e-40)), ValueError, "y_q.scale must be positive"),
        (dict(w_q=Quantization(np.float32([1, 1, 0, 1]))), ValueError, "w_q.scale must be positive"),
        (dict(w_q=Quantization(np.ones(3, np.float32))), ValueError, r"w_q has a scale of shape \(3,\).*4 channels"),
        (dict(w_q=Quantization(np.ones((4, 1), np.float32))), ValueError, "w_q has a scale"),
        (dict(x_q=Quantization(np.ones(3, np.float32))), ValueError, "only weights"),
        (dict(w_q=Quantization(1.0, 3)), ValueError, "weights are symmetric"),
        (dict(w_q=None), TypeError, "w_q must be"),
        (dict(x_q=Quantization(1.0, 300)), ValueError, "x_q.zero_point is 300"),
        (dict(x_q=Quantization(1.0, -1)), ValueError, "x_q.zero_point is -1, but uint8"),
        (dict(y_q=Quantization(1.0, -1)), ValueError, "y_q.zero_point is -1, but uint8"),
        (dict(x_q=Quantization(1.0, 1.5)), TypeError, "zero_point must be an int"),
        (dict(x_q=Quantization("1")), TypeError, "scale must be a number"),
        (dict(x_q=0.5), TypeError, "x_q must be a Quantization"),
        (dict(x=X.astype(np.float32)), TypeError, "takes uint8 or int8"),
        (dict(x_q=None), TypeError, "float32"),
        (dict(x=X.astype(np.int32)), TypeError, "takes uint8 or int8"),
        (dict(w=W.astype(np.uint8)), TypeError, "weights are int8"),
        (dict(w=W[0]), ValueError, "2 axes"),
        (dict(x=X[:, :2]), ValueError, "last axis of x"),
        (dict(bias=np.zeros(3, np.float32)), ValueError, "bias has shape"),
        (dict(residual=np.zeros((2, 4), np.uint8)), TypeError, "float32"),
        (dict(residual=np.zeros((2, 4), np.float32), residual_q=Q), TypeError, "takes uint8 or int8"),
        (dict(residual=np.zeros((2, 3), np.float32)), ValueError, "residual has shape"),
        (
            dict(residual=np.zeros((2, 4), np.int8), residual_q=Quantization(1.0, 200)),
            ValueError,
            "residual_q.zero_point",
        ),
        (dict(out=np.zeros((2, 4), np.uint8)), TypeError, "results are float32"),
        (dict(out=np.zeros((2, 4), np.float32), y_q=Q), TypeError, "uint8 or int8"),
        (dict(out=np.zeros((2, 3), np.uint8), y_q=Q), ValueError, "out has shape"),
        (dict(activation="rulu"), ValueError, "unknown activation"),
    ],
)
def test_errors(wrong, error, message):
    fo.qlinear(**GOOD)
    with pytest.raises(error, match=message):
        fo.qlinear(**GOOD | wrong)


def test_errors_of_conversions():
    x = np.zeros((2, 3), np.float32)
    for wrong, error, message in [
        (dict(q=Quantization(0.0)), ValueError, "positive"),
        (dict(q=Quantization(np.ones(3))), ValueError, "2 channels"),
        (dict(q=Quantization(1.0, 256)), ValueError, "zero_point is 256"),
        (dict(q=Quantization(1.0, 200), dtype=np.int8), ValueError, "int8 has"),
        (dict(q=Q, dtype=np.int16), TypeError, "uint8 or int8"),
        (dict(q=Q, out=np.zeros((2, 3), np.float32)), TypeError, "uint8 or int8"),
        (dict(q=Q, out=np.zeros((3, 2), np.uint8)), ValueError, "out has shape"),
    ]:
        with pytest.raises(error, match=message):
            fo.quantize(x, **wrong)
    with pytest.raises(TypeError, match="uint8 or int8"):
        fo.dequantize(x, Q)
    with pytest.raises(TypeError, match="float32"):
        fo.quantize(x.astype(np.float64), Q)
    read_only = np.zeros((2, 3), np.uint8)
    read_only.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        fo.quantize(x, Q, out=read_only)
    with pytest.raises(ValueError, match="not finite"):
        fo.QLinear(np.full((2, 2), np.nan, np.float32))
    with pytest.raises(ValueError, match="bn is folded into float32"):
        fo.QLinear(W, bn=fo.BatchNorm(*[np.ones(4, np.float32)] * 4), w_q=Q)


@pytest.mark.parametrize("name", ["qlinear", "qconv2d", "QLinear", "QConv2d"])
def test_twins_have_the_same_signatures(name):
    assert inspect.signature(getattr(reference, name)).parameters == inspect.signature(getattr(fo, name)).parameters


@pytest.mark.parametrize("residual", [None, np.uint8, np.float32])
def test_twins_are_within_a_step(isa, rng, residual):
    """Other sums of floats: one off where they are on the other side of a half."""
    for activation in None, "relu", "silu":
        for y_dtype in None, np.uint8:
            given = problem(rng, 33, 40, 64, np.uint8, y_dtype, residual, activation)
            y, twin = called(given, y_dtype), reference.qlinear(**given)
            if y_dtype is None:
                np.testing.assert_allclose(twin, y, rtol=1e-4, atol=1e-4)
            else:
                off = np.abs(twin.astype(int) - y)
                assert twin.dtype == y.dtype and off.max() <= 1 and off.sum() <= 3
    x = rng.standard_normal((5, 64)).astype(np.float32)
    np.testing.assert_allclose(
        reference.qlinear(x, given["w"], w_q=given["w_q"]),
        fo.qlinear(x, given["w"], w_q=given["w_q"]),
        rtol=1e-4,
        atol=1e-4,
    )
