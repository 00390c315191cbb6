"""Layers keep their weights once, give them back, and say in which forms they have them."""

import pickle
import tracemalloc

import numpy as np
import pytest

import fusedops as fo
from fusedops._internal.bfloat16 import rounded
from fusedops.layers import LentLinear

LANES = {"scalar": 1, "avx2": 8, "avx512": 16, "neon": 4}


@pytest.mark.parametrize("shape", [(300, 70), (64, 1000), (3, 600), (1, 5), (5, 0), (0, 5)])
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_a_linear_keeps_its_weights_once(isa, draw, shape, precision, dtype):
    """And gives them back: as they came, or rounded where products are."""
    w = draw(*shape).astype(dtype)
    layer = fo.Linear(w, precision=precision)
    back, bias = layer._weights()
    expected = rounded(w.astype(np.float32)) if precision == "bfloat16" else w
    np.testing.assert_array_equal(back, expected)
    assert bias is None and back.dtype == (np.float32 if precision == "bfloat16" else dtype)
    again = pickle.loads(pickle.dumps(layer))
    x = draw(2, shape[1])
    np.testing.assert_array_equal(again(x), layer(x))
    assert repr(again) == repr(layer)
    if min(shape) > 63:
        assert sum(layer.memory().values()) <= 1.3 * w.size * (2 if precision == "bfloat16" else w.itemsize)


def test_a_linear_keeps_no_array(draw):
    w = draw(1000, 1000)
    tracemalloc.start()
    layer = fo.Linear(w)
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert held < 100_000 and layer.memory() == {"panels": pytest.approx(w.nbytes, rel=0.1)}


@pytest.mark.parametrize("shape, groups", [((70, 64), 1), ((96, 33), 3), ((5, 8), 1)])
@pytest.mark.parametrize("algorithm", ["direct", "auto"])
def test_a_convolution_of_pixels_keeps_panels(shape, groups, algorithm, isa, draw):
    """And makes rows of them where an algorithm, a pickle or an image in planes asks for them."""
    w, bias = draw(*shape, 1, 1), draw(shape[0])
    options = dict(groups=groups, layout="NHWC", algorithm=algorithm)
    layer, x = fo.Conv2d(w, bias, **options), draw(2, 9, 10, shape[1] * groups)
    assert list(layer.memory()) == ["direct, panels"]
    again = pickle.loads(pickle.dumps(layer))
    parts = np.split(x.astype(np.float64), groups, -1), np.split(w[:, :, 0, 0].astype(np.float64), groups)
    expected = np.concatenate([a @ b.T for a, b in zip(*parts, strict=True)], -1) + bias
    for one in layer, again:
        np.testing.assert_allclose(one(x), expected, rtol=0, atol=1e-4)
    np.testing.assert_array_equal(again._weights()[0], w)
    planes = np.ascontiguousarray(x.transpose(0, 3, 1, 2)).transpose(0, 2, 3, 1)
    np.testing.assert_allclose(layer(planes), expected, rtol=0, atol=1e-4)
    if algorithm == "direct":
        columns, each = 2 * LANES[layer.isa], shape[0] // groups  # of a panel, of a group
        padded = groups * -(-each // columns) * columns
        assert layer.memory()["direct, panels"] <= padded / shape[0] * w.nbytes


def test_a_convolution_of_pixels_in_float16_keeps_panels(isa, draw):
    w, x = draw(70, 256, 1, 1).astype(np.float16), draw(1, 9, 10, 256)
    layer = fo.Conv2d(w, layout="NHWC")
    again = pickle.loads(pickle.dumps(layer))
    np.testing.assert_array_equal(again._weights()[0], w)
    planes = np.ascontiguousarray(x.transpose(0, 3, 1, 2)).transpose(0, 2, 3, 1)
    expected = x.astype(np.float64) @ w[:, :, 0, 0].T.astype(np.float64)
    for one in layer, again:
        np.testing.assert_allclose(one(x), expected, rtol=0, atol=1e-3)
        assert list(one.memory()) == ["direct, panels"]
        np.testing.assert_allclose(one(planes), expected, rtol=0, atol=1e-3)


def test_panels_of_sums_need_no_rows(isa, draw):
    """Winograd's sums of the rows of a 5x5 kernel are packed from the weights, without a form between."""
    layer = fo.Conv2d(draw(70, 33, 5, 5), layout="NHWC", padding=2, algorithm="winograd1d")
    layer(draw(1, 12, 40, 33))
    assert len([name for name in layer.memory() if name.startswith("winograd1d")]) == 1


def test_lent_weights_are_not_kept(draw):
    layer = LentLinear(draw(40, 30))
    assert layer.memory() == {}
    with pytest.raises(TypeError, match="caller's arrays"):
        layer._weights()


def test_an_unmade_linear_has_no_memory():
    layer = fo.Linear.__new__(fo.Linear)
    for call in (layer.memory, layer._weights):
        with pytest.raises(RuntimeError, match="__init__"):
            call()


CELLS = {
    "rnn": (fo.RNNCell, 1, {}),
    "lstm": (fo.LSTMCell, 4, {}),
    "gru": (fo.GRUCell, 3, {}),
    "gru that resets before": (fo.GRUCell, 3, {"reset_after": False}),
}


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize(("inputs", "hidden"), [(1, 1), (3, 5), (17, 16), (40, 33), (8, 64)])
@pytest.mark.parametrize("cell", CELLS)
def test_cells_give_their_weights_back(isa, draw, cell, inputs, hidden, dtype):
    kind, gates, options = CELLS[cell]
    w = [draw(gates * hidden, k).astype(dtype) for k in (inputs, hidden)]
    layer = kind(*w, draw(gates * hidden), **options)
    for back, given in zip(layer._arguments[0], w):
        np.testing.assert_array_equal(back, given)
        assert back.dtype == dtype
    again, states = pickle.loads(pickle.dumps(layer)), [draw(2, hidden)] * (2 if gates == 4 else 1)
    x = draw(2, inputs)
    np.testing.assert_array_equal(again(x, *states), layer(x, *states))
    assert repr(again) == repr(layer)


def test_a_cell_keeps_no_array(draw):
    w = draw(1024, 256), draw(1024, 256)
    tracemalloc.start()
    layer = fo.LSTMCell(*w)
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert held < 100_000 and f"{layer!r}".startswith("LSTMCell(256 -> 256")


def test_a_convolution_names_each_form(isa, draw):
    w = draw(64, 64, 3, 3)
    for algorithm, layout in (("auto", "NCHW"), ("direct", "NHWC"), ("winograd", "NHWC")):
        layer = fo.Conv2d(w, padding=1, algorithm=algorithm, layout=layout)
        assert list(layer.memory()) == ["weights"] and w.nbytes <= layer.memory()["weights"] <= 1.1 * w.nbytes
        layer(draw(1, 64, 28, 28) if layout == "NCHW" else draw(1, 28, 28, 64))
        forms = {name: nbytes / w.nbytes for name, nbytes in layer.memory().items() if name != "weights"}
        if algorithm == "winograd":
            (name, factor), *others = forms.items()
            assert not others and name.startswith("winograd, ")
            pixels = int(name[10])  # of a tile
            assert factor >= ((pixels + 2) / 3) ** 2
        if algorithm == "direct":
            assert list(forms) == ["direct, panels"] and 1 <= forms["direct, panels"] <= 1.6


def test_all_layers_of_convolutions_have_their_memory(draw):
    layers = [
        (fo.Conv1d(draw(8, 4, 3)), draw(1, 4, 20)),
        (fo.Conv2d(draw(8, 4, 3, 3).astype(np.float16)), draw(1, 4, 9, 9)),
        (fo.Conv2d(draw(16, 1, 3, 3), groups=16, layout="NHWC"), draw(1, 9, 9, 16)),
        (fo.Conv2d(draw(8, 4, 3, 3), precision="bfloat16"), draw(1, 4, 9, 9)),
    ]
    for layer, x in layers:
        layer(x)
        memory = layer.memory()
        assert "weights" in memory and all(nbytes > 0 for nbytes in memory.values())
