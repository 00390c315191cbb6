"""The workloads of ``fusedops bench`` and ``pytest bench``: each fused, folded only, unfused and in plain NumPy.

The first four have the shapes of figure 4 of the TVM paper (Chen et al., OSDI 2018). The paper does not state all:
batch 1, stride 1, padding 1 for the 3x3 kernel, 128 inputs of the cells and float32 are our assumptions. WeeNet is the
example of TVM's forum, a 3x3 convolution of 64 planes of 128x128 with batch norm and ReLU; the last workload is that
with a depthwise convolution.
"""
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from . import reference
from .batchnorm import BatchNorm
from .layers import Conv2d
from .recurrent import LSTMCell, RNNCell

# From the slowest to the fastest, as the table lists them.
VARIANTS = {
    "numpy": "NumPy",
    "unfused": "unfused",
    "folded": "folded only",
    "fused": "fused",
}


class Workload(NamedTuple):
    title: str
    build: Callable  # build(rng) -> {variant: function without arguments that returns an array or a tuple of arrays}


def _convolution(channels, size, outputs, kernel, depthwise=False):
    """Convolution, batch norm and ReLU on one image; both paths write into arrays that are there."""
    def build(rng):
        groups = channels if depthwise else 1
        x = _normal(rng, 1, channels, size, size)
        w = _normal(rng, outputs, channels // groups, kernel, kernel) / np.float32(kernel * np.sqrt(channels // groups))
        gamma, beta, mean = (_normal(rng, outputs) for _ in range(3))
        bn = BatchNorm(gamma, beta, mean, var=rng.uniform(0.5, 1.5, outputs).astype(np.float32))
        options = dict(bn=bn, activation="relu", padding=kernel // 2, groups=groups)
        layers = {"unfused": reference.Conv2d(w, **options), "folded": reference.Conv2d(w, fold_bn=True, **options),
                  "fused": Conv2d(w, **options)}
        results = {variant: layer(x) for variant, layer in layers.items()}
        convolution = _numpy_depthwise if depthwise else _numpy_convolution
        return {"numpy": lambda: _numpy_bn_relu(convolution(x, w, kernel // 2), bn),
                **{variant: lambda variant=variant: layers[variant](x, out=results[variant]) for variant in layers}}

    return build


def _cell(fused, unfused, step, gates, hidden, inputs, state):
    """One step of a recurrent cell at batch 1; `state`: how many arrays it carries."""
    def build(rng):
        weights = [_normal(rng, gates * hidden, n) / np.float32(np.sqrt(n)) for n in (inputs, hidden)]
        weights += [_normal(rng, gates * hidden) for _ in range(2)]
        arrays = [_normal(rng, 1, inputs), *(np.tanh(_normal(rng, 1, hidden)) for _ in range(state))]
        cells = {"unfused": unfused(*weights), "folded": unfused(*weights, fold_bn=True), "fused": fused(*weights)}
        return {"numpy": lambda: step(*arrays, *weights),
                **{variant: lambda cell=cell: cell(*arrays) for variant, cell in cells.items()}}

    return build


def _normal(rng, *shape):
    return rng.standard_normal(shape, np.float32)


def _numpy_convolution(x, w, padding):
    """A convolution as one matrix product over the unfolded image."""
    oc, ic, kh, kw = w.shape
    if kh == kw == 1:
        return np.matmul(w.reshape(oc, ic), x.reshape(len(x), ic, -1)).reshape(len(x), oc, *x.shape[2:])
    padded = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (kh, kw), axis=(2, 3))  # n c oh ow kh kw
    n, _, oh, ow = windows.shape[:4]
    columns = windows.transpose(0, 1, 4, 5, 2, 3).reshape(n, ic * kh * kw, oh * ow)
    return np.matmul(w.reshape(oc, -1), columns).reshape(n, oc, oh, ow)


def _numpy_depthwise(x, w, padding):
    """A depthwise convolution as a sum over the kernel's points, several times faster than einsum over windows."""
    _, _, h, width = x.shape
    padded = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    y = np.zeros_like(x)
    for i in range(w.shape[2]):
        for j in range(w.shape[3]):
            y += w[:, 0, i, j, np.newaxis, np.newaxis] * padded[:, :, i:i + h, j:j + width]
    return y


def _numpy_bn_relu(y, bn):
    scale = bn.gamma / np.sqrt(bn.var + np.float32(bn.eps))
    shift = bn.beta - bn.mean * scale
    return np.maximum(y * scale[:, np.newaxis, np.newaxis] + shift[:, np.newaxis, np.newaxis], 0)


def _numpy_rnn(x, h, w_ih, w_hh, b_ih, b_hh):
    return np.tanh(x @ w_ih.T + b_ih + h @ w_hh.T + b_hh)


def _numpy_lstm(x, h, c, w_ih, w_hh, b_ih, b_hh):
    i, f, g, o = np.split(x @ w_ih.T + b_ih + h @ w_hh.T + b_hh, 4, axis=-1)
    c = _sigmoid(f) * c + _sigmoid(i) * np.tanh(g)
    return _sigmoid(o) * np.tanh(c), c


def _sigmoid(x):
    return 1 / (1 + np.exp(-x))


WORKLOADS = {
    "conv1x1": Workload("conv 1x1 128x28x28 -> 256", _convolution(128, 28, 256, 1)),
    "depthwise": Workload("depthwise 3x3 512x14x14", _convolution(512, 14, 512, 3, depthwise=True)),
    "rnn_cell": Workload("RNN cell, 128 units", _cell(RNNCell, reference.RNNCell, _numpy_rnn, 1, 128, 128, 1)),
    "lstm_cell": Workload("LSTM cell, 128 units", _cell(LSTMCell, reference.LSTMCell, _numpy_lstm, 4, 128, 128, 2)),
    "weenet": Workload("WeeNet 3x3 64x128x128", _convolution(64, 128, 64, 3)),
    "weenet_depthwise": Workload("WeeNet, depthwise", _convolution(64, 128, 64, 3, depthwise=True)),
}


def build(name, seed=0):
    """The variants of a workload on random data, each checked against the others.

    Returns
    -------
    dict of str to function

    Raises
    ------
    ArithmeticError
        The variants do not agree.
    """
    calls = WORKLOADS[name].build(np.random.default_rng(seed))
    expected = _arrays(calls["numpy"]())
    for variant, call in calls.items():
        for got, want in zip(_arrays(call()), expected, strict=True):
            error = float(np.max(np.abs(got - want)) / np.max(np.abs(want)))
            if not error < 1e-4:
                label = VARIANTS[variant]
                raise ArithmeticError(f"{name}: {label} differs from NumPy by {error:.1e} of the largest value")
    return calls


def _arrays(result):
    return result if isinstance(result, tuple) else (result,)
