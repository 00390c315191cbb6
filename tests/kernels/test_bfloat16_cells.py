"""RNN, LSTM and GRU whose products are of bfloat16: a cell's step against float64 sums of rounded operands, and
sequences, which have the bits of one step after another."""

import copy
import pickle

import numpy as np
import pytest

import fusedops as fo
from fusedops import reference
from guard_pages import guarded
from oracle import bf16

GATES = {"RNN": 1, "LSTM": 4, "GRU": 3}
TOLERANCE = 4e-6
FLIPPED = 2e-3  # one operand that is rounded the other way, of what float32 and float64 make differently
# Rows, inputs and units: tile borders, and rows of whole kilobytes, which have a distance of their own.
SIZES = [(1, 1, 1), (2, 3, 5), (7, 33, 17), (1, 64, 96), (40, 30, 67), (9, 256, 512)]
KINDS = {
    "RNN": ("RNN", {}),
    "RNN relu": ("RNN", dict(activation="relu", clip=0.5)),
    "LSTM": ("LSTM", {}),
    "LSTM clipped": ("LSTM", dict(clip=0.7, cell_clip=0.6, activations=("hardsigmoid", "tanh", "relu"))),
    "LSTM peephole": ("LSTM", {}),
    "LSTM projected": ("LSTM", {}),
    "GRU": ("GRU", {}),
    "GRU reset before": ("GRU", dict(reset_after=False)),
}


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def product(x, w):
    return bf16(x).astype(np.float64) @ bf16(w).astype(np.float64).T


def step(kind, x, h, c, w, reset_after=True, clip=np.inf, cell_clip=np.inf, activation=None, activations=None):
    """h and c after a step: products of rounded operands, all else in float64."""
    gate, new, out = (sigmoid, np.tanh, np.tanh) if activations is None else (_hardsigmoid, np.tanh, _relu)
    n = w["w_ih"].shape[0] // GATES[kind]
    of_x = np.split(product(x, w["w_ih"]) + w["b_ih"], GATES[kind], -1)
    of_h = np.split(product(h, w["w_hh"]) + w["b_hh"], GATES[kind], -1)

    def held(s):
        return np.clip(s, -clip, clip)

    if kind == "RNN":
        return (_relu if activation else np.tanh)(held(of_x[0] + of_h[0])), c
    if kind == "GRU":
        r, z = (gate(held(of_x[i] + of_h[i])) for i in (0, 1))
        inner = r * of_h[2] if reset_after else product(r * h, w["w_hh"][2 * n :]) + w["b_hh"][2 * n :]
        return (1 - z) * new(held(of_x[2] + inner)) + z * h, c
    p = w.get("peephole", np.zeros((3, n)))
    i, f = (gate(held(of_x[q] + of_h[q] + p[q] * c)) for q in (0, 1))
    c = np.clip(f * c + i * new(held(of_x[2] + of_h[2])), -cell_clip, cell_clip)
    h = gate(held(of_x[3] + of_h[3] + p[2] * c)) * out(c)
    return product(h, w["w_hr"]) if "w_hr" in w else h, c


def _relu(x):
    return np.maximum(x, 0)


def _hardsigmoid(x):
    return np.clip(x / 6 + 0.5, 0, 1)


def weights(draw, name, inputs, hidden, outputs=None):
    kind, projected = KINDS[name][0], name.endswith("projected")
    rows, width = GATES[kind] * hidden, (outputs or hidden // 2 + 1) if projected else hidden
    w = dict(w_ih=draw(rows, inputs) / 2, w_hh=draw(rows, width) / np.float32(width**0.5), b_ih=draw(rows))
    w["b_hh"] = draw(rows)
    if projected:
        w["w_hr"] = draw(width, hidden) / np.float32(hidden**0.5)
    if name.endswith("peephole"):
        w["peephole"] = draw(3, hidden)
    return w


def state(draw, name, w, *shape):
    width, hidden = w["w_hh"].shape[1], w["w_hh"].shape[0] // GATES[KINDS[name][0]]
    return draw(*shape, width), draw(*shape, hidden)


def cell_of(name, w):
    kind, options = KINDS[name]
    return getattr(fo, kind + "Cell")(**w, **options, precision="bfloat16")


def run(cell, name, x, h, c):
    """(h, c) after a step."""
    return cell(x, h, c) if KINDS[name][0] == "LSTM" else (cell(x, h), c)


def layer_of(name, each, **options):
    kind, more = KINDS[name]
    listed = {key: [w[key] for w in each] for key in each[0]}
    return getattr(fo, kind)(**listed, **more, **options, precision="bfloat16")


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("batch, inputs, hidden", SIZES)
def test_a_step(bf16_products, threads, draw, name, batch, inputs, hidden):
    w, x = weights(draw, name, inputs, hidden), draw(batch, inputs)
    h, c = state(draw, name, w, batch)
    expected = step(KINDS[name][0], x, h, c.astype(np.float64), w, **KINDS[name][1])
    flips = name in ("LSTM projected", "GRU reset before")
    for a, b in zip(run(cell_of(name, w), name, x, h, c), expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=FLIPPED if flips else TOLERANCE)


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("inputs, hidden, batch", [(5, 20, 1), (8, 37, 3), (16, 130, 18), (256, 256, 3), (9, 512, 2)])
def test_a_sequence_has_the_bits_of_its_steps(bf16_products, threads, draw, name, batch, inputs, hidden):
    w, x = weights(draw, name, inputs, hidden), draw(6, batch, inputs)
    h, c = state(draw, name, w, batch)
    cell, given = cell_of(name, w), (h[None], c[None]) if KINDS[name][0] == "LSTM" else h[None]
    y, last = layer_of(name, [w])(x, given)
    for t in range(6):
        h, c = run(cell, name, x[t], h, c)
        np.testing.assert_array_equal(y[t], h)
    for a, b in zip(last if KINDS[name][0] == "LSTM" else (last,), (h, c), strict=False):
        np.testing.assert_array_equal(a[0], b)


@pytest.mark.parametrize("name", ["RNN", "LSTM", "LSTM projected", "GRU", "GRU reset before"])
def test_layers_and_directions(bf16_products, threads, draw, name):
    """A layer reads the outputs of the one before it, whose directions are layers of one direction."""
    first = [weights(draw, name, 9, 40, 40) for _ in range(2)]
    second = [weights(draw, name, 80, 40, 40) for _ in range(2)]
    x = draw(7, 5, 9)
    y, _ = layer_of(name, [*first, *second], num_layers=2, bidirectional=True)(x)
    for pair in (first, second):
        x = np.concatenate([layer_of(name, [w], reverse=bool(d))(x)[0] for d, w in enumerate(pair)], -1)
    np.testing.assert_array_equal(y, x)


@pytest.mark.parametrize("name", ["RNN", "LSTM", "LSTM projected", "GRU", "GRU reset before"])
@pytest.mark.parametrize("reverse", [False, True])
def test_lengths(bf16_products, threads, draw, name, reverse):
    w, x, lengths = weights(draw, name, 9, 21), draw(8, 6, 9), [3, 8, 0, 1, 5, 8]
    layer = layer_of(name, [w], reverse=reverse)
    y, last = layer(x, None, lengths)
    for b, length in enumerate(lengths):
        alone, after = layer(x[:length, b : b + 1])
        np.testing.assert_array_equal(y[:length, b : b + 1], alone)
        assert not y[length:, b].any()
        for a, e in zip(*[s if isinstance(s, tuple) else (s,) for s in (last, after)], strict=True):
            np.testing.assert_array_equal(a[:, b : b + 1], e)


@pytest.mark.parametrize("name", ["LSTM", "LSTM projected", "GRU", "GRU reset before"])
def test_rows_layers_strides_and_streams(bf16_products, threads, draw, name):
    """A row has the same bits in every batch, in layers that follow one another, and step by step."""
    each = [weights(draw, name, 12, 12, 12) for _ in range(3)]
    layer, x = layer_of(name, each, num_layers=3), draw(64, 9, 12)
    y, _ = layer(x)
    np.testing.assert_array_equal(layer(x[:, 2:5])[0], y[:, 2:5])
    wide = np.zeros((9, 64, 24), np.float32)
    wide[:, :, ::2] = x.swapaxes(0, 1)
    np.testing.assert_array_equal(
        layer_of(name, each, num_layers=3, batch_first=True)(wide[..., ::2])[0].swapaxes(0, 1), y
    )
    stream = layer.stream(9)
    parts = [stream.step(x[t]) for t in range(4)] + [stream.step(x[4:])]
    np.testing.assert_array_equal(np.concatenate([np.stack(parts[:4]), parts[4]]), y)


@pytest.mark.parametrize("name", ["RNN", "LSTM", "GRU"])
def test_values_that_are_not_finite_stay_in_their_row(bf16_products, draw, name):
    w, x = weights(draw, name, 6, 20), draw(4, 5, 6)
    layer = layer_of(name, [w])
    clean = layer(x)[0]
    x[1, 2, 3], x[1, 4, 0] = np.nan, np.inf
    y, others = layer(x)[0], [0, 1, 3]
    assert np.isnan(y[1:, 2]).all()
    np.testing.assert_array_equal(y[:, others], clean[:, others])


@pytest.mark.parametrize("at_end", [False, True])
@pytest.mark.parametrize("name", ["RNN", "LSTM projected", "GRU"])
def test_stays_within_arrays(bf16_products, draw, name, at_end):
    w, x = weights(draw, name, 7, 19), draw(3, 5, 7)
    h, c = state(draw, name, w, 5)
    cell, lstm = cell_of(name, w), KINDS[name][0] == "LSTM"
    expected = run(cell, name, x[0], h, c)
    found = run(cell, name, *(guarded(a, at_end) for a in (x[0], h, c)))
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a, b)
    layer, given = layer_of(name, [w]), (h[None], c[None]) if lstm else h[None]
    y, _ = layer(x, given)
    np.testing.assert_array_equal(layer(guarded(x, at_end), given, None, guarded(y, at_end))[0], y)


@pytest.mark.parametrize("name", [name for name in KINDS if name != "LSTM clipped"])
def test_copies_and_the_unfused_twin(draw, name):
    kind, options = KINDS[name]
    w, x = weights(draw, name, 12, 24), draw(4, 3, 12)
    layer = layer_of(name, [w])
    y, _ = layer(x)
    assert "precision='bfloat16'" in repr(layer) and "precision" not in repr(getattr(fo, kind)(**w))
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        np.testing.assert_array_equal(other(x)[0], y)
    for fold_bn in (False, True):
        twin = getattr(reference, kind)(**w, **options, precision="bfloat16", fold_bn=fold_bn)
        np.testing.assert_allclose(twin(x)[0], y, rtol=0, atol=FLIPPED)
    assert np.abs(getattr(fo, kind)(**w, **options)(x)[0] - y).max() > 1e-4


def test_float16_weights(bf16_products, draw):
    """They are rounded again, from what they are in float32."""
    w, x = {key: value.astype(np.float16) for key, value in weights(draw, "GRU", 6, 10).items()}, draw(3, 2, 6)
    wide = {key: value.astype(np.float32) for key, value in w.items()}
    np.testing.assert_array_equal(layer_of("GRU", [w])(x)[0], layer_of("GRU", [wide])(x)[0])


def test_one_shot_functions_and_errors(draw):
    w, x = weights(draw, "LSTM", 6, 10), draw(3, 2, 6)
    np.testing.assert_array_equal(fo.lstm(x, None, **w, precision="bfloat16")[0], layer_of("LSTM", [w])(x)[0])
    for kind in ("RNN", "LSTM", "GRU"):
        w = weights(draw, kind, 6, 10)
        for make in (getattr(fo, kind), getattr(fo, kind + "Cell"), getattr(reference, kind)):
            with pytest.raises(ValueError, match="unknown precision 'half'; known are 'float32', 'bfloat16'"):
                make(**w, precision="half")


@pytest.mark.parametrize("batch, inputs", [(0, 5), (3, 0)])
def test_nothing_to_compute(bf16_products, draw, batch, inputs):
    w = weights(draw, "GRU", inputs, 8)
    h = draw(batch, 8)
    y = fo.GRUCell(**w, precision="bfloat16")(np.ones((batch, inputs), np.float32), h)
    np.testing.assert_allclose(y, step("GRU", np.ones((batch, inputs)), h, h, w)[0], rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("kind", ["RNN", "LSTM", "GRU"])
def test_weights_of_onnx_and_keras(bf16_products, draw, kind):
    gates = {"RNN": 1, "LSTM": 4, "GRU": 3}[kind]
    make, x = getattr(fo, kind), draw(3, 2, 6)
    onnx = draw(1, gates * 8, 6), draw(1, gates * 8, 8)
    keras = draw(6, gates * 8), draw(8, gates * 8)
    for maker, weights, given in ((make.from_onnx, onnx, x), (make.from_keras, keras, x.swapaxes(0, 1))):
        layer = maker(*weights, precision="bfloat16")
        y, expected = layer(given)[0], maker(*weights)(given)[0]
        assert "precision='bfloat16'" in repr(layer)
        assert 1e-5 < np.abs(y - expected).max() < 0.1
