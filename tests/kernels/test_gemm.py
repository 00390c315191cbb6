import numpy as np
import pytest

import fusedops as fo
import oracle
from oracle import ACTIVATIONS, check

# The register tiles are 12 x 32, 6 x 16 and 4 x 2: below, on and above their borders, and primes.
M = [1, 2, 3, 5, 6, 7, 11, 12, 13, 25]
N = [1, 2, 3, 7, 8, 15, 16, 17, 31, 32, 33, 49, 65]
K = [1, 2, 3, 16, 37]


@pytest.mark.parametrize("m", M)
@pytest.mark.parametrize("n", N)
def test_tile_borders(isa, draw, m, n):
    for k in K:
        a, b = draw(m, k), draw(k, n)
        check(fo.gemm(a, b), oracle.gemm(a, b))


@pytest.mark.parametrize(
    "m, k, n",
    [
        (1, 1031, 67),
        (67, 1, 131),
        (130, 259, 1),
        (13, 700, 523),
        (97, 513, 33),
        (150, 64, 97),
        (15, 900, 67),
        (2, 1500, 100),
    ],
)
def test_block_borders(isa, draw, threads, m, k, n):
    """Larger than the blocks for the caches, and none of them a multiple."""
    a, b = draw(m, k), draw(k, n)
    check(fo.gemm(a, b), oracle.gemm(a, b))


@pytest.mark.parametrize("m", [1, 4, 13])
@pytest.mark.parametrize("name", [None, *ACTIVATIONS])
def test_epilogue(isa, draw, m, name):
    a, b, bias, residual = draw(m, 9), draw(9, 37), draw(37), draw(m, 37)
    activation = draw.activation(name, 37)
    for given in (dict(), dict(bias=bias), dict(residual=residual), dict(bias=bias, residual=residual)):
        check(fo.gemm(a, b, **given, activation=activation), oracle.gemm(a, b, **given, activation=activation))


def test_many_batch_axes(isa, draw):
    a, b, bias = draw(2, 3, 5, 7), draw(7, 9), draw(9)
    residual = draw(2, 3, 5, 9)
    check(fo.gemm(a, b, bias=bias, residual=residual), oracle.gemm(a, b, bias=bias, residual=residual))


def test_as_many_axes_as_numpy_has(draw):
    x, w = draw(2, 3), draw(4, 3)
    axes = (1,) * (62 if np.lib.NumpyVersion(np.__version__) >= "2.0.0" else 30)
    np.testing.assert_array_equal(fo.linear(x.reshape(2, *axes, 3), w).reshape(2, 4), fo.linear(x, w))


@pytest.mark.parametrize("shape", [(13,), (1, 13), (7, 13), (2, 3, 13), (2, 1, 3, 13)])
def test_linear(isa, draw, shape):
    x, w, bias = draw(*shape), draw(19, 13), draw(19)
    residual = draw(*shape[:-1], 19)
    check(fo.linear(x, w), oracle.linear(x, w))
    check(fo.linear(x, w, bias, activation="relu"), oracle.linear(x, w, bias, activation="relu"))
    check(fo.linear(x, w, bias, residual=residual), oracle.linear(x, w, bias, residual=residual))


@pytest.mark.parametrize("n", [6, 12, 24, 44, 56])
@pytest.mark.parametrize("activation", [None, "relu", "relu6", "tanh"])
def test_a_vector_and_a_half(isa, half_rate, draw, n, activation):
    """Two rows share a register: right for odd and even heights, and with the bits of a product of whole vectors."""
    for m in M:
        x, w, bias, residual = draw(m, 37), draw(n, 37), draw(n), draw(m, n)
        wider = np.concatenate([w, draw(40, 37)])
        for given in (dict(), dict(bias=bias), dict(residual=residual), dict(bias=bias, residual=residual)):
            check(fo.linear(x, w, **given, activation=activation), oracle.linear(x, w, **given, activation=activation))
        np.testing.assert_array_equal(
            fo.linear(x, w, activation=activation), fo.linear(x, wider, activation=activation)[:, :n]
        )


@pytest.mark.parametrize("n", [24, 40, 48, 56, 64, 72, 73])
@pytest.mark.parametrize("k", [37, 128, 131, 1026])
def test_three_vectors(isa, draw, n, k):
    """Tiles of 4 x 24, one below the other, next to those of 6 x 16: any epilogue, sums of long reductions, and the
    bits of a row alone."""
    for m in 19, 20, 21, 22, 23, 63, 64, 97:
        x, w, bias, residual = draw(m, k), draw(n, k), draw(n), draw(m, n)
        for activation in None, "relu6", "tanh":
            for given in (dict(), dict(bias=bias, residual=residual)):
                y = fo.linear(x, w, **given, activation=activation)
                check(y, oracle.linear(x, w, **given, activation=activation))
        alone = [
            fo.linear(x[i : i + 1], w, bias, residual=residual[i : i + 1], activation="tanh") for i in range(0, m, 5)
        ]
        np.testing.assert_array_equal(y[::5], np.concatenate(alone))


def test_repr_names_the_set_of_kernels(isa, half_rate, draw):
    """At half rate that of some products is another (golden/decisions.csv)."""
    for n in 8, 64:
        layer = fo.Linear(draw(n, 100))
        assert f"'{layer.isa} gemm'" in repr(layer)


@pytest.mark.parametrize("k", [1, 16, 64, 65])
@pytest.mark.parametrize("m", [71, 72, 75, 97])
def test_few_steps(isa, half_rate, draw, m, k):
    """Lower tiles of many rows; what does not fit them goes the general way, with the same bits."""
    x, w, bias, residual = draw(m, k), draw(70, k), draw(70), draw(m, 70)
    for activation in None, "relu6", "tanh":
        for given in (dict(), dict(bias=bias), dict(residual=residual), dict(bias=bias, residual=residual)):
            y = fo.linear(x, w, **given, activation=activation)
            check(y, oracle.linear(x, w, **given, activation=activation))
            given = {name: a[:5] if name == "residual" else a for name, a in given.items()}
            np.testing.assert_array_equal(y[:5], fo.linear(x[:5], w, **given, activation=activation))


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("k", [16, 63, 64, 113, 145, 1024])
@pytest.mark.parametrize("name", [None, "relu", "prelu", "gelu"])
def test_few_columns(isa, half_rate, draw, n, k, name):
    """Rows are lanes: around blocks of them, with rows that share a set of the cache, and with the bits of a row
    alone."""
    for m in 7, 8, 9, 16, 31, 64, 75:
        x, w, bias, residual, activation = draw(m, k), draw(n, k), draw(n), draw(m, n), draw.activation(name, n)
        y = fo.linear(x, w, bias, residual=residual, activation=activation)
        check(y, oracle.linear(x, w, bias, residual=residual, activation=activation))
        for i in range(0, m, 6):
            np.testing.assert_array_equal(
                y[i : i + 1], fo.linear(x[i : i + 1], w, bias, residual=residual[i : i + 1], activation=activation)
            )
        out = np.zeros((m, 2 * n), np.float32)
        fo.linear(x, w, bias, residual=residual, activation=activation, out=out[:, ::2])
        np.testing.assert_array_equal(out[:, ::2], y)
        assert not out[:, 1::2].any()
        fo.linear(x, w, bias, residual=residual, activation=activation, out=residual)
        np.testing.assert_array_equal(residual, y)


@pytest.mark.parametrize("n", [1, 2, 3, 7, 8, 9])
@pytest.mark.parametrize("k", [511, 512, 543, 4096, 4097, 8225])
def test_few_columns_of_many_steps(isa, half_rate, draw, threads, n, k):
    """Dot products: around blocks of them, of weights in either order and of float16, with the bits of a row alone."""
    for m in 1, 2, 8, 9, 17:
        name = (None, "relu", "prelu", "gelu")[(m + n + k // 512) % 4]  # each number of rows, columns and steps has all
        x, w, bias, residual, activation = draw(m, k), draw(n, k), draw(n), draw(m, n), draw.activation(name, n)
        w = w.astype(np.float16).astype(np.float32)
        y = fo.linear(x, w, bias, residual=residual, activation=activation)
        check(y, oracle.linear(x, w, bias, residual=residual, activation=activation))
        for i in range(0, m, 5):
            np.testing.assert_array_equal(
                y[i : i + 1], fo.linear(x[i : i + 1], w, bias, residual=residual[i : i + 1], activation=activation)
            )
        for other in np.asfortranarray(w), w.astype(np.float16), np.asfortranarray(w.astype(np.float16)):
            layer = fo.Linear(other, bias, activation=activation)
            np.testing.assert_array_equal(layer(x, residual=residual), y)


def test_large_results(isa, half_rate, draw):
    """More than 4 MB, whose lines are fetched before they are written: the bits of a few rows."""
    x, w, bias, residual = draw(2100, 65), draw(520, 65), draw(520), draw(2100, 520)
    for given in (dict(), dict(residual=residual)):
        y = fo.linear(x, w, bias, **given, activation="relu")
        for rows in slice(0, 5), slice(1000, 1003), slice(2098, 2100):
            part = {name: a[rows] for name, a in given.items()}
            np.testing.assert_array_equal(y[rows], fo.linear(x[rows], w, bias, **part, activation="relu"))


def test_linear_is_gemm_with_the_weights_transposed(isa, draw):
    x, w, bias = draw(7, 33), draw(45, 33), draw(45)
    np.testing.assert_array_equal(fo.linear(x, w, bias), fo.gemm(x, w.T, bias=bias))


@pytest.mark.parametrize("k, n", [(5, 3), (64, 33), (300, 70)])
def test_a_row_has_the_same_bits_alone_and_in_a_batch(isa, draw, k, n):
    a, b, bias = draw(29, k), draw(k, n), draw(n)
    batch = fo.gemm(a, b, bias=bias, activation="tanh")
    for rows in (1, 2, 5, 12, 28):
        np.testing.assert_array_equal(fo.gemm(a[:rows], b, bias=bias, activation="tanh"), batch[:rows])


@pytest.mark.parametrize(
    "m, k, n, name",
    [
        (70, 1027, 21, "gelu"),
        (130, 2049, 8, "relu"),
        (33, 3001, 261, None),
        (65, 1100, 260, "prelu"),
        (70, 4096, 261, "relu"),
        (90, 1024, 70, None),
        (70, 4096, 2, "gelu"),
    ],
)
def test_reductions_in_pieces(isa, draw, threads, m, k, n, name):
    """Bias comes first, residual and activation last; a row alone has its sums in one piece."""
    x, w, bias, residual = draw(m, k), draw(n, k), draw(n), draw(m, n)
    activation = draw.activation(name, n)
    y = fo.linear(x, w, bias, residual=residual, activation=activation)
    check(y, oracle.linear(x, w, bias, residual=residual, activation=activation))
    for i in (0, m // 2, m - 1):
        np.testing.assert_array_equal(
            y[i : i + 1], fo.linear(x[i : i + 1], w, bias, residual=residual[i : i + 1], activation=activation)
        )


def test_many_terms(isa, draw):
    """Terms of one sign, alike or not: the error stays within 1e-6 of the sum of magnitudes."""
    for m, k, n in (1, 1_000_003, 1), (2, 100_000, 17), (13, 8200, 3):
        constant = np.full((m, k), 0.1, np.float32), np.full((n, k), 0.3, np.float32)
        for a, b in [constant, (abs(draw(m, k)), abs(draw(n, k)))]:
            exact = a.astype(np.float64) @ b.T.astype(np.float64)
            assert np.abs(fo.linear(a, b, np.ones(n, np.float32)) - exact - 1).max() < 1e-6 * exact.max()


def test_many_terms_of_a_convolution(isa, draw):
    x, w, bias = abs(draw(1, 1024, 4, 5)), abs(draw(3, 1024, 3, 3)), draw(3)
    for layout, image in ("NCHW", x), ("NHWC", np.ascontiguousarray(x.transpose(0, 2, 3, 1))):
        y = fo.conv2d(image, w, bias=bias, layout=layout, activation="relu")
        check(y if layout == "NCHW" else y.transpose(0, 3, 1, 2), oracle.conv2d(x, w, bias=bias, activation="relu"))


def test_an_infinite_term_among_many(isa):
    a = np.ones((1, 9000), np.float32)
    a[0, 17] = np.inf
    assert fo.linear(a, np.ones((1, 9000), np.float32)) == np.inf


@pytest.mark.parametrize(
    "a, b",
    [
        ((0, 5), (5, 7)),
        ((3, 5), (5, 0)),
        ((3, 0), (0, 7)),
        ((2, 0, 5), (5, 7)),
        ((0, 3, 5), (5, 7)),
        ((2, 3, 0), (0, 7)),
    ],
)
def test_zero_sizes(isa, draw, a, b):
    """Nothing to compute gives an empty result; nothing to sum up gives the bias alone."""
    a, b, bias = draw(*a), draw(*b), draw(b[1])
    check(fo.gemm(a, b, bias=bias, activation="tanh"), oracle.gemm(a, b, bias=bias, activation="tanh"))
    check(fo.linear(a, b.T.copy(), bias), oracle.linear(a, b.T, bias))
