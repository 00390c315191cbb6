"""Operands in whatever order of memory: the bits of those in rows. A left operand whose columns are contiguous, weights
of one call that are read where they lie, and batches of single rows and columns."""

import numpy as np
import pytest

import fusedops as fo
from guard_pages import guarded

ACTIVATIONS = [None, "relu", "gelu", "prelu"]


def options(draw, m, n, i):
    """A bias, a residual and an activation, each now and then."""
    activation = ACTIVATIONS[i % 4]
    return (
        draw(n) if i % 3 else None,
        draw(m, n) if i % 2 else None,
        ("prelu", draw(n)) if activation == "prelu" else activation,
    )


@pytest.mark.parametrize("m", [1, 2, 7, 16, 65, 530])
@pytest.mark.parametrize("n", [1, 3, 8, 9, 70])
@pytest.mark.parametrize("k", [1, 31, 32, 65, 600])
def test_a_transposed_left_operand(isa, threads, draw, m, n, k):
    x, w = draw(m, k), draw(n, k)
    bias, residual, activation = options(draw, m, n, m + n + k)
    layer = fo.Linear(w, bias, activation=activation)
    expected = layer(x, residual)
    np.testing.assert_array_equal(layer(np.asfortranarray(x), residual), expected)
    wide = np.asfortranarray(draw(m + 5, k + 3))[2 : m + 2, 1 : k + 1]
    np.testing.assert_array_equal(layer(wide, residual), layer(wide.copy(order="C"), residual))
    np.testing.assert_array_equal(fo.matmul(np.asfortranarray(x), w.T.copy()), fo.matmul(x, w.T.copy()))
    np.testing.assert_array_equal(fo.matmul(np.asfortranarray(x), w.T), fo.matmul(x, w.T))


@pytest.mark.parametrize("k", [4096, 5000, 20001])
def test_long_columns(isa, draw, k):
    """Beyond one block of steps."""
    for n, activation in ((1, None), (2, "tanh")):
        x, w = draw(33, k), draw(n, k)
        layer = fo.Linear(w, draw(n), activation=activation)
        y = layer(np.asfortranarray(x))
        np.testing.assert_array_equal(y, layer(x))
    exact = x.astype(np.float64) @ w.T
    bound = 1e-6 * np.abs(x).astype(np.float64) @ np.abs(w.T)
    assert (np.abs(fo.matmul(np.asfortranarray(x), w.T) - exact) <= bound).all()


@pytest.mark.parametrize("at_end", [False, True])
@pytest.mark.parametrize("m, k, n", [(37, 70, 1), (9, 520, 3), (130, 33, 1), (5, 6, 40)])
def test_nothing_outside_the_columns_is_read(isa, draw, at_end, m, k, n):
    x, w = guarded(np.ascontiguousarray(draw(m, k).T), at_end).T, draw(n, k)
    y = fo.Linear(w)(x)
    np.testing.assert_array_equal(y, fo.Linear(w)(x.copy(order="C")))


@pytest.mark.parametrize("m", [1, 2, 5, 12, 13, 48, 49])
@pytest.mark.parametrize("n", [1, 3, 33, 300])
@pytest.mark.parametrize("k", [0, 1, 31, 100, 600, 9000])
def test_weights_of_one_call(isa, threads, draw, m, n, k):
    """The functions have the bits of the layers, which pack."""
    if k == 9000 and n == 300 and m > 12:
        pytest.skip("takes long, and is packed")
    x, w = draw(m, k), draw(n, k)
    bias, residual, activation = options(draw, m, n, m + n + k)
    expected = fo.Linear(w, bias, activation=activation)(x, residual)
    for given in (w, np.asfortranarray(w), draw(2 * n, k)[::2]):
        if given.strides[0] != w.strides[0]:
            given[...] = w
        np.testing.assert_array_equal(fo.linear(x, given, bias, residual=residual, activation=activation), expected)
    b = np.ascontiguousarray(w.T)
    np.testing.assert_array_equal(fo.gemm(x, b, bias=bias, residual=residual, activation=activation), expected)


@pytest.mark.parametrize("at_end", [False, True])
@pytest.mark.parametrize("m, k, n", [(1, 37, 70), (3, 9, 33), (20, 5, 6), (2, 600, 3)])
def test_nothing_outside_the_weights_is_read(isa, draw, at_end, m, k, n):
    x, w = guarded(draw(m, k), at_end), guarded(draw(n, k), at_end)
    np.testing.assert_array_equal(fo.linear(x, w), fo.Linear(w)(x))
    b = guarded(np.ascontiguousarray(w.T), at_end)
    np.testing.assert_array_equal(fo.gemm(x, b), fo.Linear(w)(x))


def test_a_result_in_the_place_of_the_weights(draw):
    w, x = draw(40, 40), draw(3, 40)
    expected = fo.linear(x, w.copy())
    np.testing.assert_array_equal(fo.linear(x, w, out=w[5:8]), expected)


@pytest.mark.parametrize("batch", [(), (1,), (7,), (300,), (5, 40)])
@pytest.mark.parametrize("k", [1, 31, 32, 64, 700, 5001])
def test_batches_of_dot_products(isa, threads, draw, batch, k):
    a, b = draw(*batch, 1, k), draw(*batch, k, 1)
    y, expected = fo.matmul(a, b), np.matmul(a.astype(np.float64), b.astype(np.float64))
    magnitudes = np.matmul(np.abs(a).astype(np.float64), np.abs(b))
    assert y.shape == expected.shape and (np.abs(y - expected) <= 1e-6 * magnitudes).all()
    if batch:
        np.testing.assert_array_equal(y[-1], fo.matmul(a[-1], b[-1]))
        one = b[(0,) * len(batch)]
        np.testing.assert_array_equal(fo.matmul(a, one)[-1], fo.matmul(a[-1], one))
        reversed_ = fo.matmul(a[::-1], b[::-1])
        np.testing.assert_array_equal(reversed_[0], y[-1])


@pytest.mark.parametrize("over", [(0,), (1,), (2,), (1, 2), (0, 1, 2), (0, 1, 2, 3)], ids=str)
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_residuals_spread_without_copies(isa, draw, layout, over):
    """Strides of 0, as np.broadcast_to makes them: a residual read as if it lay there would be read past its end."""
    x, w, shape = draw(2, 5, 6, 16), draw(16, 16, 3, 3), (2, 5, 6, 16)
    small, q = draw(*(1 if axis in over else n for axis, n in enumerate(shape))), fo.Quantization(0.05, 100)
    options = dict(padding=1, layout=layout)

    def image(a):
        return a if layout == "NHWC" else np.moveaxis(a, -1, 1)

    for layer in (
        fo.Conv2d(w, **options),
        fo.Conv2d(w, precision="bfloat16", **options),
        fo.ConvTranspose2d(w, precision="bfloat16", **options),
        fo.QConv2d(w, x_q=q, residual_q=q, **options),
    ):
        given, added = x, small
        if isinstance(layer, fo.QConv2d):
            given, added = fo.quantize(x, q), fo.quantize(small, q)
        added = np.broadcast_to(added, shape)
        y = layer(image(given), image(np.ascontiguousarray(added)))
        np.testing.assert_array_equal(layer(image(given), image(added)), y)
