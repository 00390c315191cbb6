"""Layers that keep float16 weights: bits of the widened weights, half of the memory, errors."""
import pickle
import subprocess
import sys

import numpy as np
import pytest

import fusedops as fo
import oracle
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


@pytest.mark.parametrize("m, k, n", [(1, 1500, 700), (2, 9000, 67), (13, 9000, 40), (130, 1031, 67), (40, 2100, 300)])
def test_long_products(isa, threads, draw, m, k, n):
    w, x = halves(draw, n, k), draw(m, k)
    y = fo.Linear(w)(x)
    np.testing.assert_array_equal(y, fo.Linear(*wide(w))(x))
    np.testing.assert_array_equal(y[0], fo.Linear(w)(x[0]))


@pytest.mark.parametrize("kind", GATES)
@pytest.mark.parametrize("hidden, inputs, batch", [
    (1, 1, 1), (5, 3, 1), (17, 9, 3), (40, 33, 13), (130, 64, 2), (64, 70, 40)
])
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
    other = {"C": w, "F": np.asfortranarray(w), "strided": np.repeat(np.repeat(w, 2, 0), 3, 1)[::2, ::3],
             "unaligned": raw[1:].view(np.float16).reshape(w.shape)}[order]
    if order == "unaligned":
        other[...] = w
    np.testing.assert_array_equal(fo.Linear(other)(x), fo.Linear(w)(x))
    np.testing.assert_array_equal(fo.RNNCell(other[:, :20], w[:, :13].repeat(3, 1)[:, :33])(x, draw(3, 33) * 0),
                                  fo.RNNCell(w, w[:, :13].repeat(3, 1)[:, :33])(x, np.zeros((3, 33), np.float32)))


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
    for small, large in ((fo.Linear(w), fo.Linear(*wide(w))),
                         (fo.RNNCell(w[:200], w[:200]), fo.RNNCell(*wide(w[:200], w[:200])))):
        assert len(pickle.dumps(small)) < 0.51 * len(pickle.dumps(large))
    x = draw(1, 200)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(fo.Linear(w)))(x), fo.Linear(w)(x))
    assert "float16 weights" in repr(fo.Linear(w)) and "float16" not in repr(fo.Linear(*wide(w)))


MEMORY = """
import sys, numpy as np, fusedops as fo
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096
dtype, make = sys.argv[1:]
w = np.ones((2048, 2048), dtype)
x = np.ones((1, 2048), np.float32)
before = resident()
layers = [fo.Linear(w) if make == "linear" else fo.RNNCell(w, w) for _ in range(4)]
print(resident() - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize("make", ["linear", "cell"])
def test_memory_is_half(make):
    """Of the weights that a layer keeps and of those that it has packed."""
    used = [int(subprocess.run([sys.executable, "-c", MEMORY, dtype, make], capture_output=True, check=True).stdout)
            for dtype in ("float16", "float32")]
    assert 0.4 < used[0] / used[1] < 0.6


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
    with pytest.raises(TypeError, match="x has dtype float16"):
        fo.Linear(w)(np.zeros((1, 5), np.float16))
