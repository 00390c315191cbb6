"""The steps of a program one by one against NumPy in float64, and programs as a whole."""

import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import fusedops as fo
from fusedops import _core, activations
from fusedops._core import Program
from fusedops.graph.ir.graph import Node
from fusedops.graph.operators.registry import OPERATORS
from fusedops.graph.operators.resize import _weights
from oracle import Approx, U, activate, check


def run(kind, *args, **options):
    p = Program()
    p.append(kind, *args, **options)
    p.run(())


def nhwc(x):
    return np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)


def empty(*shape):
    return np.full(shape, 7, np.float32)


def close(y, value, relative=4 * U, scale=0):
    value = np.asarray(value, np.float64)
    check(np.ascontiguousarray(y), Approx(value, relative * np.abs(value) + scale))


UNARY = {
    "identity": lambda x: x,
    "sqrt": np.sqrt,
    "exp": np.exp,
    "log": np.log,
    "erf": np.vectorize(math.erf),
    "reciprocal": lambda x: 1 / x,
    "neg": np.negative,
    "abs": np.abs,
}
BINARY = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "pow": np.power,
    "max": np.maximum,
    "min": np.minimum,
    "prelu": lambda x, s: np.where(x > 0, x, s * x),
}


@pytest.mark.parametrize("name", UNARY)
@pytest.mark.parametrize("view", [lambda x: x, lambda x: x[:, ::2], lambda x: x.T, lambda x: x[::-1, 3:]])
def test_unary(name, view, isa, threads, draw):
    x = view(draw(37, 70) + np.float32(1.5))
    if name in ("neg", "abs", "identity"):
        x = -x
    y = empty(*x.shape)
    run("unary", name, x, y)
    close(y, UNARY[name](x.astype(np.float64)), scale=U)


@pytest.mark.parametrize("name", BINARY)
def test_binary(name, isa, draw):
    a, b, y = draw(5, 6, 33) + np.float32(1.5), draw(5, 6, 33), empty(5, 6, 33)
    run("binary", name, a, b, y)
    close(y, BINARY[name](a.astype(np.float64), b.astype(np.float64)), scale=U)


@pytest.mark.parametrize("shape", [(), (1,), (33,), (6, 1), (5, 1, 1), (1, 6, 33), (5, 1, 33)])
@pytest.mark.parametrize("activation", [None, "relu", "sigmoid", ("leaky_relu", 0.3)])
@pytest.mark.parametrize("swapped", [False, True])
def test_broadcast(shape, activation, swapped, isa, threads, draw):
    a, b, y = draw(5, 6, 33), draw(*shape), empty(5, 6, 33)
    operands = [np.broadcast_to(b, a.shape), a] if swapped else [a, np.broadcast_to(b, a.shape)]
    run("binary", "sub", *operands, y, activation=activations.parse(activation))
    difference = np.subtract(*operands, dtype=np.float64)
    expected = activate(Approx(difference, U * np.abs(difference)), activation)
    check(y, Approx(expected.value, expected.error + 4 * U))


@pytest.mark.parametrize("view", [lambda x: x, lambda x: x[:, ::2]])
@pytest.mark.parametrize("place", [None, 0.5])
def test_activation_of_long_rows(view, place, isa, threads, draw):
    """Of a value alone, and after a sum; rows go in parts."""
    x = view(draw(3, 2600))
    y = empty(*x.shape)
    if place is None:
        run("unary", "identity", x, y, activation=activations.parse("gelu"))
    else:
        run("binary", "add", x, np.broadcast_to(np.float32(place), x.shape), y, activation=activations.parse("gelu"))
    total = x.astype(np.float64) + (place or 0)
    check(y, activate(Approx(total, U * np.abs(total)), "gelu"))


@pytest.mark.parametrize("exponent", [2, 3, 0.5, -1, 1.5, 0])
@pytest.mark.parametrize("view", [lambda x: x, lambda x: x[::2]])
def test_one_exponent_for_all(exponent, view, isa, draw):
    x = view(np.concatenate([draw(70) + np.float32(1.5), np.float32([0, -0.0, np.inf, -np.inf, np.nan, -2, 3e37])]))
    y, exponents = empty(*x.shape), np.broadcast_to(np.float32(exponent), x.shape)
    run("binary", "pow", x, exponents, y)
    with np.errstate(all="ignore"):
        expected = np.power(x, np.array(exponents))  # not a view of one, which NumPy takes for a square root
    np.testing.assert_allclose(y, expected, 3e-7)
    zeros = x == 0
    assert np.array_equal(np.signbit(y[zeros]), np.signbit(expected[zeros]))


def test_exponents_of_rows(isa, threads, draw):
    """Each row's own, and the bits that it has alone."""
    x, y, alone = np.abs(draw(8, 5000)) + np.float32(0.5), empty(8, 5000), empty(1, 5000)
    exponents = np.broadcast_to(np.float32([[2], [3], [0.5], [3], [1.5], [3], [2], [3]]), x.shape)
    run("binary", "pow", x, exponents, y)
    close(y, np.power(x.astype(np.float64), exponents))
    for i in range(8):
        run("binary", "pow", x[i : i + 1], exponents[i : i + 1], alone)
        assert np.array_equal(alone[0], y[i])


def test_images_in_any_memory_order(draw):
    x, gate, y = nhwc(draw(2, 5, 6, 7)), draw(2, 5, 1, 1), nhwc(empty(2, 5, 6, 7))
    run("binary", "mul", x, np.broadcast_to(gate, x.shape), y)
    assert np.array_equal(y, x * gate)


@pytest.mark.parametrize("name", ["max", "min"])
def test_nan_goes_through(name, isa):
    values = np.array([np.nan, np.inf, -np.inf, 1, -0.0], np.float32)
    a, b = (v.ravel().copy() for v in np.meshgrid(values, values))
    y = empty(a.size)
    run("binary", name, a, b, y)
    assert np.array_equal(y, BINARY[name](a, b), equal_nan=True)


def test_in_place(draw):
    x = draw(9, 40)
    expected = np.maximum(x, 0)
    run("unary", "identity", x, x, activation=activations.parse("relu"))
    assert np.array_equal(x, expected)


@pytest.mark.parametrize("layout", [np.ascontiguousarray, nhwc])
@pytest.mark.parametrize("channels", [1, 19])
def test_affine(layout, channels, isa, draw):
    x, r, y = (layout(draw(2, channels, 5, 6)) for _ in range(3))
    scale, shift = draw(channels), draw(channels)
    run("affine", x, y, r, scale, shift, activations.parse("relu"))
    c = (slice(None), None, None)
    close(y, np.maximum(np.float64(x) * scale[c] + shift[c] + r, 0), scale=4 * U)


COPIES = {
    "contiguous": (lambda x: x, lambda y: y),
    "transposed": (lambda x: x.transpose(3, 1, 2, 0), lambda y: y),
    "to_nhwc": (lambda x: x, nhwc),
    "from_nhwc": (nhwc, lambda y: y),
    "reversed": (lambda x: x[:, ::-1, :, ::-2], lambda y: y),
    "repeated": (lambda x: np.broadcast_to(x[:, :1, :, :1], x.shape), lambda y: y),
    "part": (lambda x: x[1:2, 2:], lambda y: y),
    "permuted": (lambda x: x.transpose(2, 0, 3, 1), lambda y: y),
}


@pytest.mark.parametrize("case", COPIES)
def test_copy(case, isa, threads, draw):
    read, write = COPIES[case]
    x = read(draw(3, 21, 37, 18))
    y = write(empty(*x.shape))
    run("copy", x, y)
    assert np.array_equal(y, x)


def test_concatenation_and_fill(draw):
    parts, y = [draw(2, c, 3, 4) for c in (3, 5, 20)], nhwc(empty(2, 28, 3, 4))
    p = Program()
    for part, end in zip(parts, np.cumsum([3, 5, 20])):
        p.append("copy", part, y[:, end - part.shape[1] : end])
    p.run(())
    assert np.array_equal(y, np.concatenate(parts, 1))
    run("fill", y[:, 3:8], 2.5)
    assert np.array_equal(y, np.concatenate([parts[0], np.full((2, 5, 3, 4), 2.5), parts[2]], 1))


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("shape", [(), (4,), (2, 3)])
def test_gather(axis, shape, draw):
    x = draw(5, 7, 6)
    indices = draw.rng.integers(-5, 5, shape)
    expected = np.take(x, indices, axis)
    y = empty(*expected.shape)
    run("gather", x, indices, y, axis)
    assert np.array_equal(y, expected)


@pytest.mark.parametrize("size, index", [(5, 5), (5, -6), (5, 2**63 - 1), (5, -(2**63)), (0, 0), (0, -1)])
def test_gather_outside(draw, size, index):
    x, y = draw(size, 3), np.full((2, 3), 7, np.float32)
    with pytest.raises(ValueError, match="an index is outside its axis"):
        run("gather", x, np.array([-size if size else index, index]), y, 0)
    assert (y == 7).all()


@pytest.mark.parametrize("name", ["mean", "sum", "max"])
@pytest.mark.parametrize("axes", [(0,), (1,), (3,), (2, 3), (0, 2), (1, 3), (0, 1, 2, 3)])
@pytest.mark.parametrize("layout", [np.ascontiguousarray, nhwc])
def test_reduce(name, axes, layout, isa, threads, draw):
    x = layout(draw(3, 70, 9, 33))
    expected = getattr(np, name)(x.astype(np.float64), axes, keepdims=True)
    y = empty(*expected.shape)
    run("reduce", name, x, y, axes)
    error = {"sum": np.sum, "mean": np.mean, "max": lambda *_, **__: 0}[name](
        np.abs(np.float64(x)), axes, keepdims=True
    )
    check(y, Approx(expected, 30 * U * error))


def test_reduce_nan(isa, draw):
    x = draw(40, 41)
    x[3, 40] = x[0, 0] = x[20, 7] = np.nan
    for axis, shape in ((0, (1, 41)), (1, (40, 1))):
        y = empty(*shape)
        run("reduce", "max", x, y, (axis,))
        assert np.array_equal(y, x.max(axis, keepdims=True), equal_nan=True)


def test_long_sums_stay_exact(isa, draw):
    x, y = draw(1, 3, 300, 300) + np.float32(100), empty(1, 3, 1, 1)
    for layout in (np.ascontiguousarray, nhwc):
        run("reduce", "mean", layout(x), y, (2, 3))
        close(y, x.mean((2, 3), np.float64, keepdims=True), relative=2e-6)


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("view", [lambda x: x, lambda x: x[:, ::2, 1:], lambda x: x.transpose(2, 0, 1)])
def test_softmax(axis, log, view, isa, threads, draw):
    x = view(20 * draw(5, 18, 35))
    y = empty(*x.shape)
    run("softmax", x, y, axis, log)
    d = x - x.max(axis, keepdims=True).astype(np.float64)
    e = np.exp(d)
    total = e.sum(axis, keepdims=True)
    close(y, d - np.log(total) if log else e / total, relative=30 * U, scale=1e-6 if log else 1e-12)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("n", [1, 2, 7, 16, 31, 64, 100, 129])
def test_softmax_at_the_ends(axis, n, isa, draw):
    """Masked elements become exactly 0, and what is not a number makes its fibre, and no other, such."""
    x = 50 * draw(6, n)
    x[1, 1:] = -np.inf
    x[2] = -np.inf
    x[3, n // 2] = np.nan
    x[4, -1] = np.inf
    x[5] *= 1e30
    y = empty(*np.moveaxis(x, 1, axis).shape)
    run("softmax", np.ascontiguousarray(np.moveaxis(x, 1, axis)), y, axis)
    y = np.moveaxis(y, axis, 1)
    e = np.exp(x[0] - x[0].max(), dtype=np.float64)
    close(y[0], e / e.sum(), relative=30 * U, scale=1e-12)
    assert y[1, 0] == 1 and not y[1, 1:].any()
    assert np.isnan(y[2:5]).all()
    assert np.array_equal(y[5], (x[5] == x[5].max()) / np.float32((x[5] == x[5].max()).sum()))


@pytest.mark.parametrize("n", [1, 2, 15, 16, 33, 64, 95, 768])
@pytest.mark.parametrize("scaled", [False, True])
def test_layer_norm_of_any_width(n, scaled, isa, threads, draw):
    x, y = draw(9, n) + np.float32(3), empty(9, n)
    scale, shift = (draw(n), draw(n)) if scaled else (None, None)
    run("norm", x, y, 1e-5, scale, shift, -1)
    d = x - x.mean(1, np.float64, keepdims=True)
    expected = d / np.sqrt((d * d).mean(1, keepdims=True) + 1e-5)
    close(y, expected * scale + shift if scaled else expected, scale=2e-5)
    run("norm", x[4:5], alone := empty(1, n), 1e-5, scale, shift, -1)
    assert np.array_equal(alone, y[4:5])


@pytest.mark.parametrize("first", [-1, -2, 1])
@pytest.mark.parametrize("view", [lambda x: x, lambda x: x.transpose(1, 0, 2), lambda x: x[:, :, ::2]])
def test_layer_norm(first, view, isa, draw):
    x = view(draw(6, 7, 50) + np.float32(3))
    axes = tuple(range(first % 3, 3))
    scale, shift, y = draw(*x.shape[axes[0] :]), draw(*x.shape[axes[0] :]), empty(*x.shape)
    run("norm", x, y, 1e-5, scale, shift, first)
    wide = x.astype(np.float64)
    d = wide - wide.mean(axes, keepdims=True)
    close(y, d / np.sqrt((d * d).mean(axes, keepdims=True) + 1e-5) * scale + shift, scale=2e-5)


@pytest.mark.parametrize("layout", [np.ascontiguousarray, nhwc])
@pytest.mark.parametrize("channels", [1, 19, 64])
def test_instance_norm(layout, channels, isa, threads, draw):
    x = layout(draw(2, channels, 9, 8) + np.float32(3))
    scale, shift, y = draw(channels), draw(channels), layout(empty(*x.shape))
    run("instance_norm", x, y, 1e-5, scale, shift)
    c = (slice(None), None, None)
    d = x - x.mean((2, 3), np.float64, keepdims=True)
    close(y, d / np.sqrt((d * d).mean((2, 3), keepdims=True) + 1e-5) * scale[c] + shift[c], scale=2e-5)


@pytest.mark.parametrize("size, beta", [(5, 0.75), (4, 0.75), (3, 0.5), (99, 1)])
def test_lrn(size, beta, isa, draw):
    x, y = nhwc(3 * draw(2, 40, 3, 4)), nhwc(empty(2, 40, 3, 4))
    run("lrn", x, y, size, 0.1, beta, 2)
    squares = np.pad(x.astype(np.float64) ** 2, [(0, 0), ((size - 1) // 2, size), (0, 0), (0, 0)])
    sums = sum(squares[:, d : d + 40] for d in range(size))
    close(y, x / (2 + 0.1 / size * sums) ** beta, relative=20 * U)


def test_lrn_over_more_channels_than_there_are(isa, draw):
    """At once, and not after two thousand million loads of nothing."""
    x, y = nhwc(draw(1, 5, 3, 4)), nhwc(empty(1, 5, 3, 4))
    run("lrn", x, y, 2**31, 2.0**31, 1, 2)
    close(y, x / (2 + (x.astype(np.float64) ** 2).sum(1, keepdims=True)), relative=20 * U)


def test_resize_nearest(isa, threads, draw):
    x, y = nhwc(draw(2, 21, 4, 5)), nhwc(empty(2, 21, 8, 7))
    rows, columns = draw.rng.integers(0, 4, 8), draw.rng.integers(0, 5, 7)
    run("resize", x, y, (rows, None, None), (columns, None, None))
    assert np.array_equal(y, x[:, :, rows][:, :, :, columns])


def test_resize_linear(isa, draw):
    x, y = nhwc(draw(2, 21, 4, 5)), nhwc(empty(2, 21, 8, 7))
    rows, columns = ((*draw.rng.integers(0, n, (2, m)), np.abs(draw(m))) for n, m in ((4, 8), (5, 7)))
    run("resize", x, y, rows, columns)
    wide = x.astype(np.float64)
    tall = wide[:, :, rows[0]] * (1 - rows[2][:, None]) + wide[:, :, rows[1]] * rows[2][:, None]
    close(y, tall[..., columns[0]] * (1 - columns[2]) + tall[..., columns[1]] * columns[2], scale=8 * U)


@pytest.mark.parametrize("transform", _core.TRANSFORMS)
@pytest.mark.parametrize("rounding", _core.ROUNDINGS)
def test_resize_by_sizes(transform, rounding, draw):
    """Points that follow from sizes are those that NumPy computes, for scales that are ratios and others."""
    attrs = {"coordinate_transformation_mode": transform, "mode": "linear" if rounding == "linear" else "nearest"}
    node = Node("Resize", "resize", ["x"], ["y"], attrs | {"nearest_mode": rounding})
    for size, out, scale in ((1, 1, 1.0), (1, 5, 5.0), (4, 1, 0.25), (4, 10, None), (37, 18, 0.5), (37, 85, 2.3)):
        x, y = nhwc(draw(2, 5, size, 3)), nhwc(empty(2, 5, out, 3))
        run("resize", x, y, (transform, rounding, scale), ("asymmetric", "floor", 1.0))
        i, weights = _weights(node, size, out, out / size if scale is None else scale, (0.0, 1.0))
        close(y, np.einsum("nchtw,ht->nchw", x.astype(np.float64)[:, :, i], weights), scale=8 * U)


def test_resize_refuses_no_pixels():
    with pytest.raises(ValueError, match="no 3 pixels can be made of none"):
        run("resize", empty(1, 1, 0, 3), empty(1, 1, 3, 3), *[("asymmetric", "floor", None)] * 2)


def test_rows_after_a_past(isa, threads, draw):
    past, x, begins = draw(3, 2, 6, 5), draw(3, 2, 4, 5), np.array([0, 6, 2])
    y = np.full((3, 2, 11, 5), np.nan, np.float32)
    wanted = np.zeros_like(y)
    for n, begin in enumerate(begins):
        wanted[n, :, :begin], wanted[n, :, begin : begin + 4] = past[n, :, :begin], x[n]
    run("append", past, x, y, begins)
    np.testing.assert_array_equal(y, wanted)
    y[:, :, :6] = past
    run("append", y, x, y, begins)
    np.testing.assert_array_equal(y, wanted)
    run("append", None, x, y, np.zeros(3, np.int64))
    np.testing.assert_array_equal(y[:, :, :4], x)
    for begin in (-1, 7):
        with pytest.raises(ValueError, match="do not follow"):
            run("append", past, x, y, np.array([0, begin, 0]))
    with pytest.raises(ValueError, match="do not follow"):  # no room
        run("append", past, x, y[:, :, :9], np.array([0, 6, 2]))
    with pytest.raises(ValueError, match="do not fit"):
        run("append", past, x, y, begins[:2])
    with pytest.raises(ValueError, match="does not fit"):
        run("append", past[:2], x, y, begins)


@pytest.mark.parametrize("t, s, window", [(1, 900, 300), (1, 40, 7), (70, 600, 130), (5, 9, 1), (200, 200, 0)])
def test_attention_of_windows(t, s, window, isa, threads, draw):
    """A window of keys, bounded scores, and queries that begin at another key in each row of a batch."""
    q, k, v = draw(3, 4, t, 16), draw(3, 2, s, 16), draw(3, 2, s, 24)
    begins, keys = np.array([0, (s - t) // 2, s - t]), np.arange(s)
    at = begins[:, None, None, None] + np.arange(t)[:, None]
    seen = (keys <= at) & (keys > at - (window or s))
    scores = q.astype(np.float64) @ k.repeat(2, 1).swapaxes(2, 3).astype(np.float64)
    scores = np.where(seen, 3 * np.tanh(scores / 3), -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    wanted = weights / weights.sum(-1, keepdims=True) @ v.repeat(2, 1).astype(np.float64)
    options, y = dict(causal=True, window=window, softcap=3.0), empty(3, 4, t, 24)
    run("attention", q, k, v, y, None, **options, diagonals=begins)
    np.testing.assert_allclose(y, wanted, rtol=1e-4, atol=1e-5)
    for n, begin in enumerate(begins):  # a row alone, and each of its queries
        alone = empty(1, 4, t, 24)
        run("attention", q[n : n + 1], k[n : n + 1], v[n : n + 1], alone, None, **options, diagonal=begin)
        np.testing.assert_array_equal(alone[0], y[n])
        for i in {0, t // 2, t - 1}:
            one, ends = empty(1, 4, 1, 24), begin + i + 1
            run("attention", *(x[n : n + 1] for x in (q[:, :, i : i + 1], k[:, :, :ends], v[:, :, :ends])), one, None,
                **options, diagonal=begin + i)  # fmt: skip
            np.testing.assert_array_equal(one[0, :, 0], y[n, :, i])


def test_attention_refuses_windows():
    q = empty(2, 1, 3, 4)
    with pytest.raises(ValueError, match="a window of 2 keys is for causal attention"):
        run("attention", q, q, q, q.copy(), None, window=2)
    with pytest.raises(ValueError, match="diagonals"):
        run("attention", q, q, q, q.copy(), None, causal=True, diagonals=np.zeros(3, np.int64))


@pytest.mark.parametrize("m, n, k", [(1, 1, 1), (5, 7, 3), (100, 33, 20), (1, 40, 64), (200, 17, 1)])
@pytest.mark.parametrize("swap", ["", "a", "b", "y"])
def test_matmul(m, n, k, swap, isa, threads, draw):
    a, b, y = draw(2, 3, m, k), draw(2, 3, k, n), empty(2, 3, m, n)
    matrices = dict(a=a, b=b, y=y)
    if swap:
        matrices[swap] = np.ascontiguousarray(matrices[swap].swapaxes(2, 3)).swapaxes(2, 3)
    a, b, y = matrices.values()
    run("matmul", a, b, y, 0.25, activations.parse("relu"))
    error = (k + 3) * U * np.abs(a.astype(np.float64)) @ np.abs(b) * 0.25
    check(np.ascontiguousarray(y), Approx(np.maximum(0.25 * a.astype(np.float64) @ b, 0), error))


@pytest.mark.parametrize(
    "n, k",
    [
        (3, 70),
        (16, 7),
        (17, 64),
        (1023, 9),
        (1100, 16),
        (70, 8200),
        (5, 511),
        (1, 512),
        (8, 513),
        (3, 4097),
        (9, 600),
        (2, 8300),
    ],
)
@pytest.mark.parametrize("swap", ["", "a", "b", "y"])
def test_matmul_of_few_rows_or_columns(n, k, swap, isa, threads, draw):
    """B is read where it is, along its rows or its columns: the bits of a row are those that it has among many."""
    a, b, many = draw(3, 30, k), draw(3, k, n), empty(3, 30, n)
    run("matmul", a, b, many, 1, activations.parse("relu"))
    error = min(k + 3, 700) * U * np.abs(a.astype(np.float64)) @ np.abs(b)
    check(many, Approx(np.maximum(a.astype(np.float64) @ b, 0), error))
    for m in 1, 2, 4, 5:
        matrices = dict(a=a[:, :m].copy(), b=b, y=empty(3, m, n))
        if swap:
            matrices[swap] = np.ascontiguousarray(matrices[swap].swapaxes(1, 2)).swapaxes(1, 2)
        run("matmul", *matrices.values(), 1, activations.parse("relu"))
        np.testing.assert_array_equal(matrices["y"], many[:, :m])


@pytest.mark.parametrize("swap", [False, True])
@pytest.mark.parametrize("ends", [[1, 4, 4, 130], [0, 0, 120, 120], [0, 0, 0, 0], [130, 130, 130, 130]], ids=str)
def test_grouped_matmul(ends, swap, isa, threads, draw):
    x, w = draw(130, 37), draw(4, 20, 37).swapaxes(1, 2) if swap else draw(4, 37, 20)
    y, expected, ends = empty(130, 20), np.zeros((130, 20)), np.array(ends)
    for begin, end, matrix in zip([0, *ends], ends, w.astype(np.float64), strict=False):
        expected[begin:end] = x[begin:end] @ matrix
    run("grouped_matmul", x, w, ends, y)
    close(y, expected, scale=40 * 37 * U)
    node = Node("GroupedMatMul", "", ["x", "w", "ends"], ["y"])
    np.testing.assert_allclose(OPERATORS[node.op].evaluate(node, x, w, ends), expected, atol=1e-4)


@pytest.mark.parametrize("ends", [[3, 2], [-1, 2], [2, 9]], ids=str)
def test_groups_of_rows_that_are_not_there(ends):
    x, w, y, ends = empty(8, 4), empty(2, 4, 4), empty(8, 4), np.array(ends)
    with pytest.raises(ValueError, match="do not rise from 0"):
        run("grouped_matmul", x, w, ends, y)
    with pytest.raises(ValueError, match="do not rise from 0 to 8 rows"):
        OPERATORS["GroupedMatMul"].evaluate(Node("GroupedMatMul", "", [], []), x, w, ends)
    with pytest.raises(ValueError, match="one for each matrix"):
        run("grouped_matmul", x, w, ends[:1], y)
    with pytest.raises(ValueError, match="form no product"):
        run("grouped_matmul", x, empty(2, 3, 4), ends, y)


def test_matmul_broadcast(draw):
    a, b, y = draw(4, 5, 6), draw(6, 7), empty(4, 5, 7)
    run("matmul", a, np.broadcast_to(b, (4, 6, 7)), y)
    close(y, a.astype(np.float64) @ b, scale=1e-5)


def conv_transpose(x, w, groups, stride, dilation, crop, size):
    """By its definition: every element of x scatters w into y."""
    (n, c, ih, iw), (_, each, kh, kw) = x.shape, w.shape
    (sh, sw), (dh, dw) = stride, dilation
    y = np.zeros((n, groups * each, (ih - 1) * sh + kh * dh + 99, (iw - 1) * sw + kw * dw + 99))
    for g in range(groups):
        part = slice(g * c // groups, (g + 1) * c // groups)
        for i in range(kh):
            for j in range(kw):
                add = np.einsum("nchw,co->nohw", x[:, part].astype(np.float64), w[part, :, i, j])
                reached = y[:, g * each : (g + 1) * each, i * dh :: sh, j * dw :: sw]
                reached[:, :, :ih, :iw] += add
    y = np.pad(y, [(0, 0), (0, 0), (9, 0), (9, 0)])
    return y[:, :, 9 + crop[0] : 9 + crop[0] + size[0], 9 + crop[1] : 9 + crop[1] + size[1]]


# Kernel, stride, dilation, crop, groups, and rows and columns more than the shortest output. Of 8 channels the phases
# of columns are one convolution.
TRANSPOSED = [
    ((2, 4), (2, 4), (1, 1), (0, 0), 1, 0),
    ((1, 12), (1, 4), (1, 1), (0, 4), 1, 3),
    ((3, 8), (2, 4), (1, 1), (0, -3), 1, 0),
    ((2, 5), (1, 5), (1, 1), (0, 2), 1, 0),
    ((1, 4), (1, 4), (1, 1), (0, 13), 1, 4),
    ((2, 2), (2, 2), (1, 1), (0, 0), 1, 0),
    ((3, 3), (2, 2), (1, 1), (1, 1), 1, 1),
    ((4, 4), (2, 2), (1, 1), (1, 1), 1, 0),
    ((3, 2), (1, 1), (1, 1), (2, 0), 1, 0),
    ((3, 3), (3, 2), (2, 4), (1, 2), 2, 1),
    ((1, 2), (3, 3), (1, 1), (0, 0), 1, 2),
    ((6, 5), (2, 3), (3, 2), (4, 3), 3, 0),
    ((1, 5), (1, 2), (1, 1), (0, 2), 6, 0),
    ((5, 5), (2, 2), (1, 1), (7, 6), 1, 0),
]


@pytest.mark.parametrize("kernel, stride, dilation, crop, groups, more", TRANSPOSED)
@pytest.mark.parametrize("each", [1, 8, 17])
@pytest.mark.parametrize("layout", [np.ascontiguousarray, nhwc])
def test_conv_transpose(kernel, stride, dilation, crop, groups, more, each, layout, isa, draw):
    x, w, bias = layout(draw(2, 6, 5, 4)), draw(6, each, *kernel), draw(each * groups)
    size = [
        (i - 1) * s + d * (k - 1) + 1 + more - 2 * c for i, s, d, k, c in zip((5, 4), stride, dilation, kernel, crop)
    ]
    size = [max(s, 1) for s in size]
    y, r = nhwc(empty(2, each * groups, *size)), nhwc(draw(2, each * groups, *size))
    layer = _core.ConvTranspose2dPlan(w, bias, activations.parse("relu"), stride, dilation, groups)
    run("conv_transpose", layer, x, y, r, *crop)
    exact = conv_transpose(x, w, groups, stride, dilation, crop, size)
    close(y, np.maximum(exact + bias[:, None, None] + r, 0), scale=2e-5)


@pytest.mark.parametrize("expand", [False, True])
def test_separable(expand, isa, draw):
    options = dict(padding=1, activation="relu6", groups=24, layout="NHWC")
    depthwise, project = fo.Conv2d(draw(24, 1, 3, 3), **options), fo.Conv2d(draw(9, 24, 1, 1), layout="NHWC")
    x, y = draw(2, 5, 6, 9 if expand else 24), empty(2, 5, 6, 9)
    if expand:
        layer = fo.InvertedResidual(fo.Conv2d(draw(24, 9, 1, 1), layout="NHWC", activation="relu6"), depthwise, project)
    else:
        layer = fo.DepthwiseSeparable(depthwise, project)
    image = 0, 3, 1, 2
    run("separable", layer, x.transpose(image), y.transpose(image), x.transpose(image) if expand else None, 1, 1)
    assert np.array_equal(y, layer(x))


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("kind", [fo.LSTM, fo.GRU])
def test_recurrent(kind, bidirectional, draw):
    gates, directions = {fo.LSTM: 4, fo.GRU: 3}[kind], 1 + bidirectional
    w_ih, w_hh = ([draw(gates * 8, k) for _ in range(directions)] for k in (5, 8))
    layer = kind(*(w if bidirectional else w[0] for w in (w_ih, w_hh)), bidirectional=bidirectional)
    x, h0, c0 = draw(7, 3, 5), draw(directions, 3, 8), draw(directions, 3, 8)
    y, hn, cn = empty(3, 7, 8 * directions).transpose(1, 0, 2), empty(*h0.shape), empty(*c0.shape)
    lstm = kind is fo.LSTM
    run("recurrent", layer, x, y, h0, c0 if lstm else None, hn, cn if lstm else None, np.array([7, 3, 5]))
    expected, state = layer(x, (h0, c0) if lstm else h0, lengths=[7, 3, 5])
    assert np.array_equal(y, expected)
    assert np.array_equal([hn, cn] if lstm else hn, state)
    with pytest.raises(ValueError, match="must be given"):
        run("recurrent", layer, x, y)


def test_conv_transpose_leaves_gaps_clean(draw):
    """Outputs that no tap reaches are the bias alone, whatever stands in x."""
    x, y = np.full((1, 1, 2, 2), np.nan, np.float32), nhwc(empty(1, 1, 4, 4))
    run("conv_transpose", _core.ConvTranspose2dPlan(draw(1, 1, 1, 1), np.float32([3]), None, (2, 2)), x, y)
    assert (y[..., 1::2, :] == 3).all() and (y[..., 1::2] == 3).all() and np.isnan(y[..., ::2, ::2]).all()


@pytest.mark.parametrize("channels", [1, 17])
def test_conv_transpose_reads_its_taps_alone(channels, draw):
    """A pixel that is infinite is read by the outputs that its taps reach, no others."""
    x, y = draw(1, 3, 1, 9), nhwc(empty(1, channels, 1, 36))
    x[..., 4] = np.inf
    run("conv_transpose", _core.ConvTranspose2dPlan(draw(3, channels, 1, 8), None, None, (1, 4)), x, y, None, 0, 2)
    assert (np.isfinite(y) == ~((np.arange(36) >= 14) & (np.arange(36) < 22))).all()


# Programs


def network(draw, n):
    """A small network as a program over slots arena, x, y; and the function it computes."""
    conv = fo.Conv2d(draw(16, 3, 3, 3), draw(16), activation="relu")
    dense = fo.Linear(draw(10, 16), draw(10))
    p = Program()
    image = (0, 0, (n, 16, 8, 8), (1024, 1, 128, 16))
    p.append("conv2d", conv, (1, 0, (n, 3, 8, 8), (192, 64, 8, 1)), image, None, 1, 1)
    pooled = (0, 4096 * n, (n, 16, 4, 4), (256, 1, 64, 16))
    p.append("max_pool", image, pooled, (2, 2), (2, 2))
    p.append("reduce", "mean", pooled, (0, 5120 * n, (n, 16, 1, 1), (16, 1, 1, 1)), (2, 3))
    p.append("linear", dense, (0, 5120 * n, (n, 16), (16, 1)), (2, 0, (n, 10), (10, 1)))
    padded = fo.Conv2d(*conv._arguments[0], activation="relu", padding=1)

    def expected(x):
        return dense(padded(x).reshape(n, 16, 4, 2, 4, 2).max((3, 5)).mean((2, 3)))

    return p, 5120 * n // 4 + 16 * n, expected


def test_network(isa, draw):
    p, arena, expected = network(draw, 2)
    x, y = draw(2, 3, 8, 8), empty(2, 10)
    times = np.zeros(len(p))
    p.run((empty(arena), x, y), times)
    close(y, expected(x), scale=1e-5)
    assert p.names == ["conv2d", "max_pool", "mean", "linear"] and (times > 0).all()


def test_runs_from_many_threads(draw):
    p, arena, expected = network(draw, 2)
    xs = [draw(2, 3, 8, 8) for _ in range(8)]

    def call(x):
        memory, y = empty(arena), empty(2, 10)
        for _ in range(50):
            p.run((memory, x, y))
        return y

    with ThreadPoolExecutor(8) as pool:
        for x, y in zip(xs, pool.map(call, xs)):
            close(y, expected(x), scale=1e-5)


def test_program_outlives_its_layers(draw):
    p, arena, expected = network(draw, 1)
    x, y = draw(1, 3, 8, 8), empty(1, 10)
    value = expected(x)
    del expected
    p.run((empty(arena), x, y))
    close(y, value, scale=1e-5)


def test_repeat(threads, draw):
    """Sections of several rounds: what has a fifth number moves on, what has none is written anew in each round."""
    x, y, p = draw(6, 100), empty(6, 100), Program()
    p.append("unary", "neg", (1, 0, (2, 100), (100, 1), 800), (0, 0, (2, 100), (100, 1)))
    p.append("unary", "exp", (0, 0, (2, 100), (100, 1)), (2, 0, (2, 100), (100, 1), 800))
    p.repeat(0, 3)
    p.append("unary", "abs", (1, 2000, (1, 100), (100, 1), -400), (0, 0, (1, 100), (100, 1), 400))
    p.repeat(2, 6)
    p.append("binary", "add", (2, 0, (6, 100), (100, 1)), (0, 0, (6, 100), (100, 1)), (2, 0, (6, 100), (100, 1)))
    times = np.full(len(p), 1e9)
    p.run((empty(600), x, y), times)
    close(y, np.exp(-x.astype(np.float64)) + np.abs(x[::-1]), 8 * U)
    assert (times > 0).all() and times.max() < 1e3


def test_errors(draw):
    p, arena, _ = network(draw, 1)
    for first, rounds in ((4, 2), (-1, 2), (0, 0)):
        with pytest.raises(ValueError, match="not a section of 4 steps"):
            p.repeat(first, rounds)
    with pytest.raises(ValueError, match="uses 3 slots, but got 1"):
        p.run((empty(arena),))
    with pytest.raises(ValueError, match="times must be"):
        p.run((empty(arena), draw(1, 3, 8, 8), empty(1, 10)), np.zeros(1))
    with pytest.raises(ValueError, match="not a tensor"):
        Program().append("copy", (-1, 0, (1,), (1,)), draw(1))
    with pytest.raises(ValueError, match="shape"):
        Program().append("copy", draw(3), draw(4))
    assert len(p) == 4


def test_many_slots(draw):
    """Past keys of a decoder come as hundreds of inputs."""
    xs, y, p = [draw(8) for _ in range(300)], empty(300, 8), Program()
    for i in range(300):
        p.append("copy", (i, 0, (8,), (1,)), (300, 32 * i, (8,), (1,)))
    p.run((*xs, y))
    assert np.array_equal(y, xs)


def test_arguments_of_a_step_are_named():
    with pytest.raises(TypeError, match="a step lrn takes x, y, size, alpha, beta, bias, not 2 arguments and bet"):
        Program().append("lrn", empty(1), empty(1), bet=2)
