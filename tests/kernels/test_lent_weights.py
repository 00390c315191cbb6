"""Functions for one call of few rows read weights where they lie, with the bits of layers that pack them."""

import numpy as np
import pytest

import fusedops as fo
from guard_pages import guarded

SIZES = [(1, 3), (5, 16), (9, 1), (16, 17), (33, 40), (70, 64), (256, 300)]  # outputs or units, steps


@pytest.mark.parametrize("rows", [1, 2, 3])
@pytest.mark.parametrize(("n", "k"), SIZES)
def test_products(isa, draw, n, k, rows):
    x, w, bias, residual, slopes = draw(rows, k), draw(n, k), draw(n), draw(rows, n), draw(n)
    options = dict(bias=bias, activation=("prelu", slopes))
    np.testing.assert_array_equal(fo.linear(x, w, residual=residual, **options), fo.Linear(w, **options)(x, residual))
    far = np.repeat(w, 3, 0)[::3]  # rows at a distance
    np.testing.assert_array_equal(fo.linear(x, far), fo.Linear(w)(x))


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("pixels", [1, 2, 3])
@pytest.mark.parametrize(("n", "k"), SIZES)
def test_convolutions_of_few_pixels(isa, draw, n, k, pixels, layout):
    w, bias = draw(n, k, 1, 1), draw(n)
    x = draw(pixels, k, 1, 1) if layout == "NCHW" else draw(1, 1, pixels, k)
    layer = fo.Conv2d(w, bias, activation="relu", layout=layout)
    residual = draw(*layer.output_shape(x.shape))
    options = dict(bias=bias, activation="relu", layout=layout)
    y = fo.conv2d(x, w, residual=residual, **options)
    np.testing.assert_array_equal(y, layer(x, residual))
    out = np.full((*y.shape[:3], 2 * y.shape[3]), np.nan, np.float32)[..., ::2]
    assert fo.conv2d(x, w, residual=residual, out=out, **options) is out
    np.testing.assert_array_equal(out, y)


def test_errors_of_few_pixels_are_those_of_many(draw):
    x, w = draw(1, 20, 1, 1), draw(10, 20, 1, 1)
    with pytest.raises(ValueError, match="residual has shape"):
        fo.conv2d(x, w, residual=draw(1, 10, 2, 1))
    with pytest.raises(ValueError, match="bias has shape"):
        fo.conv2d(x, w, bias=draw(9))
    with pytest.raises(ValueError, match="out has shape"):
        fo.conv2d(x, w, out=np.empty((1, 9, 1, 1), np.float32))
    with pytest.raises(ValueError, match="unknown layout"):
        fo.conv2d(x, w, layout="CHWN")
    with pytest.raises(ValueError, match="x has shape"):
        fo.conv2d(x[:, :19], w)


CELLS = {
    "rnn": (fo.rnn_cell, fo.RNNCell, 1, {}),
    "rnn, relu": (fo.rnn_cell, fo.RNNCell, 1, {"activation": "relu"}),
    "lstm": (fo.lstm_cell, fo.LSTMCell, 4, {}),
    "gru": (fo.gru_cell, fo.GRUCell, 3, {}),
    "gru that resets before": (fo.gru_cell, fo.GRUCell, 3, {"reset_after": False}),
}


@pytest.mark.parametrize("rows", [None, 1, 2, 3])
@pytest.mark.parametrize(("hidden", "inputs"), SIZES)
@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("threads", [1, 3], indirect=True)
def test_cells(isa, threads, draw, cell, hidden, inputs, rows):
    function, layer, gates, options = CELLS[cell]
    w = dict(w_ih=draw(gates * hidden, inputs), w_hh=draw(gates * hidden, hidden), b_ih=draw(gates * hidden))
    shape = () if rows is None else (rows,)
    given = [draw(*shape, inputs), *(draw(*shape, hidden) for _ in range(2 if gates == 4 else 1))]
    expected = layer(**w, **options)(*given)
    np.testing.assert_array_equal(function(*given, **w, **options), expected)
    w["b_hh"] = draw(gates * hidden)
    np.testing.assert_array_equal(function(*given, **w, **options), layer(**w, **options)(*given))


def test_a_cell_may_write_over_what_it_reads(draw):
    x, h, w_ih, w_hh = draw(1, 8), draw(1, 8), draw(8, 8), draw(8, 8)
    expected = fo.rnn_cell(x, h, w_ih, w_hh)
    for out in (w_hh.copy(), w_ih.copy(), np.repeat(h, 8, 0)):
        y = out[3:4]
        weights = (out if out[0, 0] == w_ih[0, 0] else w_ih), (out if out[0, 0] == w_hh[0, 0] else w_hh)
        fo.rnn_cell(x, h, *weights, out=y)
        np.testing.assert_array_equal(y, expected)


def test_weights_of_16_bits_are_packed(draw):
    x, h, w_ih, w_hh = draw(1, 8), draw(1, 8), draw(8, 8).astype(np.float16), draw(8, 8).astype(np.float16)
    expected = np.tanh(w_ih.astype(np.float64) @ x[0] + w_hh.astype(np.float64) @ h[0])
    np.testing.assert_allclose(fo.rnn_cell(x, h, w_ih, w_hh)[0], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("n", "k"), SIZES)
def test_the_last_row_ends_where_the_array_does(isa, n, k, draw):
    """Rows of weights that end with a page."""
    x, w = draw(1, k), draw(n, k)
    expected = fo.linear(x, w)
    for at_end in (False, True):
        np.testing.assert_array_equal(fo.linear(guarded(x, at_end), guarded(w, at_end)), expected)
