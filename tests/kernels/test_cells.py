import numpy as np
import pytest

import fusedops as fo
import oracle
from catalog import results
from oracle import Approx, check

CELLS = {
    "rnn": (fo.rnn_cell, 1, 1, {}),
    "rnn_relu": (fo.rnn_cell, 1, 1, dict(activation="relu")),
    "lstm": (fo.lstm_cell, 4, 2, {}),
    "gru": (fo.gru_cell, 3, 1, {}),
    "gru_reset_before": (fo.gru_cell, 3, 1, dict(reset_after=False)),
}
SIZES = [(1, 1), (2, 3), (3, 8), (5, 7), (1, 12), (7, 13), (13, 16), (16, 17), (40, 31), (33, 33), (17, 64), (64, 65)]


@pytest.fixture(params=CELLS)
def cell(request):
    return Cell(*CELLS[request.param])


class Cell:
    """One kind of cell: its function, how many gates and states it has, its options."""

    def __init__(self, function, gates, states, options):
        self.function, self.gates, self.states, self.options = function, gates, states, options

    def weights(self, draw, inputs, hidden, bias=True):
        rows = self.gates * hidden
        return [draw(rows, inputs), draw(rows, hidden), *([draw(rows), draw(rows)] if bias else [])]

    def state(self, draw, *shape):
        return [draw(*shape) for _ in range(self.states)]

    def __call__(self, x, state, weights, **options):
        return results(self.function(x, *state, *weights, **self.options, **options))

    def check(self, x, state, weights):
        expected = getattr(oracle, self.function.__name__)(x, *state, *weights, **self.options)
        actual = self(x, state, weights)
        assert len(actual) == self.states
        for y, y64 in zip(actual, (expected,) if isinstance(expected, Approx) else expected):
            check(y, y64)


@pytest.mark.parametrize("inputs, hidden", SIZES)
def test_sizes(isa, draw, cell, inputs, hidden):
    weights = cell.weights(draw, inputs, hidden)
    for batch in (1, 2, 7, 13):
        cell.check(draw(batch, inputs), cell.state(draw, batch, hidden), weights)


def test_fig4(isa, draw, threads, cell):
    cell.check(draw(1, 128), cell.state(draw, 1, 128), [w / 8 for w in cell.weights(draw, 128, 128)])


@pytest.mark.parametrize("given", ["none", "b_ih", "b_hh"])
def test_optional_biases(isa, draw, cell, given):
    w_ih, w_hh, b_ih, b_hh = cell.weights(draw, 6, 11)
    biases = dict(none=(None, None), b_ih=(b_ih, None), b_hh=(None, b_hh))[given]
    cell.check(draw(3, 6), cell.state(draw, 3, 11), [w_ih, w_hh, *biases])


def test_without_biases(isa, draw, cell):
    cell.check(draw(3, 6), cell.state(draw, 3, 11), cell.weights(draw, 6, 11, bias=False))


def test_saturated_gates(isa, draw, cell):
    """Gates far out are 0 and 1; the state goes through or goes away, and nothing becomes NaN."""
    weights = [100 * w for w in cell.weights(draw, 9, 19)]
    cell.check(draw(3, 9), cell.state(draw, 3, 19), weights)


def test_unbatched(draw, cell):
    x, state, weights = draw(6), cell.state(draw, 11), cell.weights(draw, 6, 11)
    batched = cell(x[None], [s[None] for s in state], weights)
    for y, y_batched in zip(cell(x, state, weights), batched):
        np.testing.assert_array_equal(y, y_batched[0])


def test_a_row_has_the_same_bits_alone_and_in_a_batch(isa, draw, cell):
    x, state, weights = draw(15, 10), cell.state(draw, 15, 35), cell.weights(draw, 10, 35)
    batch = cell(x, state, weights)
    for i in range(15):
        alone = cell(x[i : i + 1], [s[i : i + 1] for s in state], weights)
        for y, y_batch in zip(alone, batch):
            np.testing.assert_array_equal(y[0], y_batch[i])


def test_empty_batch(isa, draw, cell):
    for y in cell(draw(0, 6), cell.state(draw, 0, 11), cell.weights(draw, 6, 11)):
        assert y.shape == (0, 11)


def test_no_inputs(isa, draw, cell):
    cell.check(draw(3, 0), cell.state(draw, 3, 11), cell.weights(draw, 0, 11))


def test_nan_stays_in_its_row(isa, draw, cell):
    x, state, weights = draw(5, 6), cell.state(draw, 5, 20), cell.weights(draw, 6, 20)
    clean = cell(x, state, weights)
    x[2, 3] = np.nan
    others = np.arange(5) != 2
    for y, y_clean in zip(cell(x, state, weights), clean):
        assert np.isnan(y[2]).all()
        np.testing.assert_array_equal(y[others], y_clean[others])
