"""Weights of 4 and 8 bits by rows that are rounded to int8, block by block: sums of a block are exact."""

import numpy as np
import pytest

import fusedops as fo
import oracle
from catalog import using_isa
from fusedops.graph.operators.matmul_nbits import rounded
from guard_pages import guarded
from nbits import layer, unpacked, weights
from oracle import check


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("block", [8, 16, 32, 64, 128, 512])
@pytest.mark.parametrize("k", [1, 7, 16, 37, 128, 300])
def test_a_product_of_rounded_rows(isa, products, draw, bits, block, k):
    for n in 1, 2, 15, 16, 17, 31, 32, 33, 65, 130:
        node, *given = weights(n, k, bits, block, zeros=n % 2, level=4)
        bias, x = draw(n), draw(14, k)
        plan = layer(node, *given, bias=bias)
        whole = plan(x)
        check(whole, oracle.linear(rounded(x, block), unpacked(node, *given), bias))
        for m in 1, 2, 3, 4, 5, 6, 7, 9, 12, 13:
            np.testing.assert_array_equal(plan(x[:m]), whole[:m])
        with using_isa("scalar"):
            np.testing.assert_array_equal(layer(node, *given, bias=bias)(x), whole)


@pytest.mark.parametrize("bits, block, k", [(4, 16, 80), (4, 32, 300), (4, 128, 300), (8, 32, 64), (8, 256, 300)])
@pytest.mark.parametrize("n", [20, 70])
def test_many_rows(isa, products, draw, bits, block, k, n):
    """Tiles of all heights, of which the last ones share rows; the residual is where results go."""
    node, *given = weights(n, k, bits, block, level=4)
    plan, x, residual = layer(node, *given, bias=draw(n), activation="relu"), draw(70, k), draw(70, n)
    rows = [plan(x[i : i + 1], residual[i : i + 1]) for i in range(len(x))]
    for m in 9, 15, 16, 17, 31, 32, 33, 47, 48, 49, 64, 65, 70:
        y = residual[:m].copy()
        plan(x[:m], y, y)
        np.testing.assert_array_equal(y, np.concatenate(rows[:m]))


@pytest.mark.parametrize("activation", [None, "relu", "gelu", "prelu"])
def test_bias_residual_and_activation(isa, products, draw, activation):
    node, *given = weights(70, 50, level=4)
    activation = ("prelu", draw(70)) if activation == "prelu" else activation
    w, bias, x, residual = unpacked(node, *given), draw(70), draw(3, 9, 50), draw(3, 9, 70)
    for m in 1, 2, 9:
        y = layer(node, *given, bias=bias, activation=activation)(x[:, :m], residual[:, :m])
        exact = oracle.linear(rounded(x[:, :m], 32), w, bias, activation=activation, residual=residual[:, :m])
        check(y, exact)


@pytest.mark.parametrize("n, k", [(700, 1500), (67, 9000), (1200, 256)])
def test_long_products_on_threads(isa, threads, draw, n, k):
    for bits, block in (4, 32), (8, 256):
        node, *given = weights(n, k, bits, block, level=4)
        plan, x = layer(node, *given), draw(130, k)
        expected = plan(x)
        check(expected[:5], oracle.linear(rounded(x[:5], block), unpacked(node, *given), None))
        for m in 1, 3, 12, 130:
            np.testing.assert_array_equal(plan(x[:m]), expected[:m])
        np.testing.assert_array_equal(plan(x[:, ::-1])[:3], plan(np.ascontiguousarray(x[:3, ::-1])))


@pytest.mark.parametrize("bits", [4, 8])
def test_extremes(isa, products, bits):
    """Blocks of zeros, of denormals and of the largest floats; one that is not finite makes its row NaN."""
    node, *given = weights(40, 64, bits, level=4)
    x = np.zeros((6, 64), np.float32)
    x[1], x[2, :32], x[3, 3], x[4, 40], x[5, 1] = 1e-40, 3e38, np.nan, np.inf, -np.inf
    with np.errstate(all="ignore"):
        y = layer(node, *given)(x)
    np.testing.assert_array_equal(y[:2], 0)
    assert np.isnan(y[3:]).all() and not np.isnan(y[2]).any()


@pytest.mark.parametrize("k", [1, 31, 33])
def test_nothing_outside_of_arrays_is_touched(isa, products, draw, k):
    node, *given = weights(33, k, level=4)
    plan, x = layer(node, *given), draw(7, k)
    for at_end in False, True:
        out = guarded(np.empty((7, 33), np.float32), at_end)
        plan(guarded(x, at_end), None, out)
        np.testing.assert_array_equal(out, plan(x))


def test_all_ones(isa, products):
    """The largest sums: 512 products of 255 and 127."""
    node, q, scales, _ = weights(33, 512, 8, 512, level=4)
    q[:], scales[:], zeros = 255, 1, np.zeros((33, 1), np.uint8)
    y = layer(node, q, scales, zeros)(np.full((3, 512), 127, np.float32))
    np.testing.assert_array_equal(y, 512 * 255 * 127)
    assert fo.isa() == isa
