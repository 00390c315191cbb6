"""What a call costs besides its work: every layer on as little as one frame of 40 channels, into memory that is there.

No two layers do the same work here; those of a few thousand multiply-adds are to be within a microsecond of `Linear`.
"""

import numpy as np
import pytest

import fusedops as fo


def _random(*shape):
    return np.random.default_rng(0).standard_normal(shape, np.float32)


def _quantized(layer):
    return layer(_random(32, 40, 1, 1)[..., 0, 0] if layer is fo.QLinear else _random(32, 40, 1, 1), x_q=(0.05, 128))


def _bytes(*shape):
    return np.random.default_rng(0).integers(0, 256, shape, np.uint8)


def _depthwise():
    return fo.Conv2d(_random(40, 1, 1, 3), padding=(0, 1), groups=40)


def _block():
    return fo.InvertedResidual(fo.Conv2d(_random(40, 40, 1, 1)), _depthwise(), fo.Conv2d(_random(40, 40, 1, 1)))


def _cell(cell, gates, *states):
    layer = cell(_random(gates * 32, 40), _random(gates * 32, 32))
    out = tuple(np.empty((1, 32), np.float32) for _ in states)
    return lambda: layer(_random_frame, *states, out=out if len(out) > 1 else out[0])


def _steps(stream):
    out = stream.step(_random_frame)
    return lambda: stream.step(_random_frame, out=out)


def _call(layer, x):
    out = layer(x)
    return lambda: layer(x, out=out)


_random_frame, _state = _random(1, 40), np.zeros((1, 32), np.float32)
CALLS = {
    "Linear": lambda: _call(fo.Linear(_random(32, 200)), _random(1, 200)),
    "Conv1d": lambda: _call(fo.Conv1d(_random(32, 40, 5)), _random(1, 40, 5)),
    "Conv2d": lambda: _call(fo.Conv2d(_random(32, 40, 1, 5)), _random(1, 40, 1, 5)),
    "ConvTranspose1d": lambda: _call(fo.ConvTranspose1d(_random(40, 32, 5)), _random(1, 40, 1)),
    "ConvTranspose2d": lambda: _call(fo.ConvTranspose2d(_random(40, 32, 1, 5)), _random(1, 40, 1, 1)),
    "DepthwiseSeparable": lambda: _call(
        fo.DepthwiseSeparable(_depthwise(), fo.Conv2d(_random(32, 40, 1, 1))), _random(1, 40, 1, 5)
    ),
    "InvertedResidual": lambda: _call(_block(), _random(1, 40, 1, 5)),
    "QLinear": lambda: _call(_quantized(fo.QLinear), _bytes(1, 40)),
    "QConv2d": lambda: _call(_quantized(fo.QConv2d), _bytes(1, 40, 1, 5)),
    "RNNCell": lambda: _cell(fo.RNNCell, 1, _state),
    "GRUCell": lambda: _cell(fo.GRUCell, 3, _state),
    "LSTMCell": lambda: _cell(fo.LSTMCell, 4, _state, _state),
    "RNN, a step": lambda: _steps(fo.RNN(_random(32, 40), _random(32, 32)).stream()),
    "GRU, a step": lambda: _steps(fo.GRU(_random(96, 40), _random(96, 32)).stream()),
    "LSTM, a step": lambda: _steps(fo.LSTM(_random(128, 40), _random(128, 32)).stream()),
    "Conv1d, a step": lambda: _steps(fo.Conv1d(_random(32, 40, 5), padding=(4, 0)).stream()),
    "ConvTranspose1d, a step": lambda: _steps(fo.ConvTranspose1d(_random(40, 32, 5)).stream()),
}


@pytest.mark.parametrize("name", CALLS)
def test_call(benchmark, name):
    benchmark.group = "calls of layers"
    benchmark.extra_info.update(kind="call", name=name, variant="fused")
    benchmark(CALLS[name]())
