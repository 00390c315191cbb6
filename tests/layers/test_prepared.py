"""A decision is taken once: calls of known sizes choose nothing, and what a layer decides does not change after it is
made."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import fusedops as fo
from catalog import using_isa, using_machine
from fusedops import _core

# ic, oc, kernel, size, options of a Conv2d: every algorithm, and both rewrites
LAYERS = {
    "direct": (24, 40, 3, 20, dict(padding=1, algorithm="direct")),
    "im2col": (48, 40, 3, 7, dict(padding=1, algorithm="direct")),
    "winograd1d": (32, 32, 5, 30, dict(padding=2, algorithm="winograd1d")),
    "winograd": (64, 64, 3, 28, dict(padding=1)),
    "winograd_dilated": (32, 32, 3, 20, dict(padding=2, dilation=2, algorithm="winograd")),
    "first_layer": (3, 32, 3, 224, dict(stride=2, padding=1)),
    "pixels": (128, 256, 1, 28, {}),
    "depthwise": (48, 48, 3, 28, dict(padding=1, groups=48)),
    "windows": (64, 128, 1, 28, dict(stride=2)),
    "patchify": (3, 96, 4, 56, dict(stride=4)),
    "one_row": (64, 64, (1, 5), 28, dict(padding=(0, 2))),
}


def conv2d(draw, name, layout="NHWC"):
    ic, oc, k, size, options = LAYERS[name]
    kh, kw = k if isinstance(k, tuple) else (k, k)
    shape = (2, size, size, ic) if layout == "NHWC" else (2, ic, size, size)
    return fo.Conv2d(
        draw(oc, ic // options.get("groups", 1), kh, kw), draw(oc), activation="relu", layout=layout, **options
    ), draw(*shape)


def separable(draw, expand=True, size=40):
    hidden = fo.Conv2d(draw(96, 1, 3, 3), padding=1, groups=96, activation="relu6", layout="NHWC")
    project = fo.Conv2d(draw(24, 96, 1, 1), layout="NHWC")
    if not expand:
        return fo.DepthwiseSeparable(hidden, project), draw(1, size, size, 96)
    return fo.InvertedResidual(fo.Conv2d(draw(96, 24, 1, 1), activation="relu6", layout="NHWC"), hidden, project), draw(
        1, size, size, 24
    )


def chosen(call):
    """How often an algorithm is chosen in a call."""
    before = _core.choices()
    call()
    return _core.choices() - before


@pytest.mark.parametrize("layout", fo.layers.LAYOUTS)
@pytest.mark.parametrize("name", LAYERS)
def test_a_second_call_chooses_nothing(isa, threads, draw, layout, name):
    layer, x = conv2d(draw, name, layout)
    first = layer(x)
    assert chosen(lambda: np.testing.assert_array_equal(layer(x), first)) == 0


def test_a_plan_keeps_the_calls_of_some_sizes(draw):
    layer = fo.Conv2d(draw(32, 16, 3, 3), padding=1, layout="NHWC")
    images = [draw(1, size, size, 16) for size in (9, 14, 20, 31)]
    assert chosen(lambda: [layer(x) for x in images]) == 4
    assert chosen(lambda: [layer(x) for x in images + images]) == 0
    for size in range(40, 60):  # and lets the oldest go
        layer(draw(1, size, size, 16))
    assert chosen(lambda: layer(images[0])) == 1
    assert chosen(lambda: layer(images[0])) == 0


def test_other_threads_are_another_call(draw):
    layer, x = conv2d(draw, "direct")
    before = fo.get_num_threads()
    try:
        for n in (1, 2):
            fo.set_num_threads(n)
            layer(x)
        for n in (1, 2, 1, 2):
            fo.set_num_threads(n)
            assert chosen(lambda: layer(x)) == 0
    finally:
        fo.set_num_threads(before)


def test_threads_of_python_that_share_a_layer_at_many_sizes(isa, draw):
    layer = fo.Conv2d(draw(24, 16, 3, 3), padding=1, layout="NHWC")
    images = [draw(1, size, size, 16) for size in range(5, 17)]
    expected = [layer(x) for x in images]

    def work(first):
        for _ in range(20):
            for i in range(len(images)):
                at = (first + i) % len(images)
                np.testing.assert_array_equal(layer(images[at]), expected[at])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(0, 12, 3)))


# ---- programs -------------------------------------------------------------------------------------------------------


def program(draw):
    """A program of all these layers and a block, its tensors bound for good; the results of its steps."""
    p, results = _core.Program(), []
    for name in LAYERS:
        layer, x = conv2d(draw, name)
        y = np.empty(layer.output_shape(x.shape), np.float32)
        (top, left) = (lambda p: (p, p) if isinstance(p, int) else p)(LAYERS[name][4].get("padding", 0))
        p.append("conv2d", layer, x.transpose(0, 3, 1, 2), y.transpose(0, 3, 1, 2), None, top, left)
        results.append(y)
    for expand in (True, False):
        block, x = separable(draw, expand)
        y = np.empty(block.output_shape(x.shape), np.float32)
        p.append("separable", block, x.transpose(0, 3, 1, 2), y.transpose(0, 3, 1, 2), None, 1, 1)
        results.append(y)
    return p, results


def test_a_program_chooses_when_it_is_made(isa, threads, draw):
    p, results = program(draw)
    assert chosen(lambda: p.run(())) == 0
    first = [y.copy() for y in results]
    assert chosen(lambda: p.run(())) == 0
    for y, expected in zip(results, first, strict=True):
        np.testing.assert_array_equal(y, expected)


def test_a_program_on_other_threads_than_it_was_made_for(isa, draw):
    before = fo.get_num_threads()
    try:
        fo.set_num_threads(1)
        p, results = program(draw)
        p.run(())
        expected = [y.copy() for y in results]
        fo.set_num_threads(3)
        p.run(())
        assert chosen(lambda: p.run(())) == 0
        for y, same in zip(results, expected, strict=True):
            np.testing.assert_array_equal(y, same)
    finally:
        fo.set_num_threads(before)


@pytest.mark.parametrize("kernel, phases", [(2, 2), (3, 4)])
def test_a_transposed_convolution_chooses_once(draw, kernel, phases):
    """For each row's phases, which are one convolution, or for each phase."""
    p, x, y = _core.Program(), draw(1, 16, 9, 9), np.empty((1, 16 + kernel, 16 + kernel, 16), np.float32)
    layer = _core.ConvTranspose2dPlan(draw(16, 16, kernel, kernel), None, None, (2, 2))
    p.append("conv_transpose", layer, x, y.transpose(0, 3, 1, 2))
    assert chosen(lambda: p.run(())) == phases
    assert chosen(lambda: p.run(())) == 0


# ---- a layer is what it was when it was made ------------------------------------------------------------------------


def recurrent(draw, kind, gates):
    return kind(draw(gates * 40, 24), draw(gates * 40, 40), draw(gates * 40), draw(gates * 40)), draw(6, 3, 24)


def linear(draw, k, n):
    return fo.Linear(draw(n, k), draw(n), activation="gelu"), draw(50, k)


MADE = {
    **{
        f"{name}_{layout}": (lambda draw, name=name, layout=layout: conv2d(draw, name, layout))
        for name in LAYERS
        for layout in fo.layers.LAYOUTS
    },
    "separable": lambda draw: separable(draw, False),
    "separable_large": lambda draw: separable(draw, False, 80),
    "inverted_residual": separable,
    "inverted_residual_large": lambda draw: separable(draw, True, 80),
    "linear": lambda draw: linear(draw, 144, 24),
    "linear_wide": lambda draw: linear(draw, 256, 512),
    "linear_vector": lambda draw: linear(draw, 96, 3),
    "rnn": lambda draw: recurrent(draw, fo.RNN, 1),
    "lstm": lambda draw: recurrent(draw, fo.LSTM, 4),
    "gru": lambda draw: recurrent(draw, fo.GRU, 3),
}


def result(layer, x):
    """y, without the state of a recurrent layer."""
    y = layer(x)
    return y[0] if isinstance(y, tuple) else y


@pytest.mark.parametrize("name", MADE)
def test_a_layer_is_of_the_set_that_it_was_made_under(isa, half_rate, draw, name):
    layer, x = MADE[name](draw)
    kernel = layer.kernel(x.shape) if hasattr(layer, "kernel") else None
    fuses = layer.fuses(x.shape) if hasattr(layer, "fuses") else None
    text, y = repr(layer), result(layer, x)
    for other in fo.available_isas():
        for rate in (False, True) if other == "avx512" else (False,):  # which no other set asks for
            with using_isa(other), using_machine(half_rate=rate):
                same = result(layer, x), result(layer, np.repeat(x, 2, axis=-1)[..., ::2])
                assert kernel is None or layer.kernel(x.shape) == kernel
                assert fuses is None or layer.fuses(x.shape) == fuses
            for again in same:
                np.testing.assert_array_equal(again, y)
            assert repr(layer) == text
