"""The workloads of ``fusedops bench``: each fused, folded only, unfused and, but for blocks, in plain NumPy.

The first four have the shapes of figure 4 of the TVM paper (Chen et al., OSDI 2018). The paper does not state all:
batch 1, stride 1, padding 1 for the 3x3 kernel, 128 inputs of the cells and float32 are our assumptions. WeeNet is the
example of TVM's forum, a 3x3 convolution of 64 planes of 128x128 with batch norm and ReLU, and once more with a
depthwise convolution. The last are blocks of MobileNet V1 and V2, channels last as networks run them; there, "fused"
runs layer by layer, and "fused block" is one kernel. The third chapter has the paper's convolutions and WeeNet's in 8
bits, channels last: float32 unfused and fused, bfloat16 fused (dense ones), int8 unfused (dequantize, compute,
activate, quantize, each a pass) and int8 fused.

An operation is its sizes; `arrays` draws inputs and weights, `variants` makes functions of them. ``bench/`` runs more
of them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np

from .. import _core, layers, quantization, reference
from ..batchnorm import BatchNorm

# From the slowest to the fastest, as the table lists them.
VARIANTS = {
    "numpy": "NumPy",
    "unfused": "unfused",
    "folded": "folded only",
    "fused": "fused",
    "block": "fused block",
    "float32 unfused": "float32 unfused",
    "float32": "float32 fused",
    "bfloat16": "bfloat16",
    "int8 unfused": "int8 unfused",
    "int8 fused": "int8 fused",
}
BASELINES = "unfused", "float32"  # what a workload's variants are compared with: the one of these that it has


@dataclass(frozen=True)
class Convolution:
    """Convolution, batch norm and activation of square images, padded by half a kernel."""

    channels: int
    size: int
    outputs: int
    kernel: int = 1
    stride: int = 1
    groups: int = 1
    batch: int = 1
    activation: str | None = "relu"

    @property
    def padding(self):
        return self.kernel // 2

    @property
    def result_size(self):
        return (self.size + 2 * self.padding - self.kernel) // self.stride + 1

    @property
    def flop(self):
        return 2 * self.batch * self.outputs * self.result_size**2 * self.kernel**2 * self.channels // self.groups

    @property
    def traffic(self):
        """Bytes of image, weights and result."""
        images = self.batch * (self.channels * self.size**2 + self.outputs * self.result_size**2)
        return 4 * (images + self.outputs * self.channels // self.groups * self.kernel**2)

    def arrays(self, rng):
        fan_in = self.channels // self.groups * self.kernel**2
        shape = self.outputs, self.channels // self.groups, self.kernel, self.kernel
        w = _normal(rng, *shape) / np.float32(np.sqrt(fan_in))
        gamma, beta, mean = (_normal(rng, self.outputs) for _ in range(3))
        bn = BatchNorm(gamma, beta, mean, var=rng.uniform(0.5, 1.5, self.outputs).astype(np.float32))
        return SimpleNamespace(x=_normal(rng, self.batch, self.channels, self.size, self.size), w=w, bn=bn)

    def layer(self, a, module=layers, **options):
        """The prepared layer, of `fusedops.reference` where `module` says so, in int8 where its input is."""
        kind = module.QConv2d if "x_q" in options else module.Conv2d
        return kind(
            a.w,
            bn=a.bn,
            activation=self.activation,
            stride=self.stride,
            padding=self.padding,
            groups=self.groups,
            **options,
        )

    def variants(self, a):
        made = {
            "unfused": self.layer(a, reference),
            "folded": self.layer(a, reference, fold_bn=True),
            "fused": self.layer(a),
        }
        return {
            "numpy": lambda: self._numpy(a),
            **{variant: into_one_array(layer, a.x) for variant, layer in made.items()},
        }

    def _numpy(self, a):
        convolution = _numpy_convolution if self.groups == 1 else _numpy_depthwise
        return ACTIVATIONS[self.activation](_numpy_bn(convolution(a.x, a.w, self.stride, self.padding), a.bn))


def depthwise(channels, size, kernel=3, stride=1, **options):
    return Convolution(channels, size, channels, kernel, stride, groups=channels, **options)


@dataclass(frozen=True)
class Cell:
    """One step of a recurrent cell, "RNN", "LSTM" or "GRU", of as many inputs as units."""

    mode: str
    hidden: int
    batch: int = 1

    @property
    def flop(self):
        return 4 * self.batch * GATES[self.mode] * self.hidden**2

    @property
    def traffic(self):
        """Bytes of weights, input and states."""
        return 4 * (
            2 * GATES[self.mode] * self.hidden**2 + self.batch * self.hidden * (5 if self.mode == "LSTM" else 3)
        )

    def arrays(self, rng):
        states = [np.tanh(_normal(rng, self.batch, self.hidden)) for _ in range(2 if self.mode == "LSTM" else 1)]
        return SimpleNamespace(
            x=_normal(rng, self.batch, self.hidden),
            states=states,
            weights=recurrent_weights(rng, self.mode, self.hidden),
        )

    def variants(self, a):
        fused, unfused = (getattr(module, f"{self.mode}Cell") for module in (layers, reference))
        cells = {
            "unfused": unfused(*a.weights),
            "folded": unfused(*a.weights, fold_bn=True),
            "fused": fused(*a.weights),
        }
        step = NUMPY_STEPS[self.mode]
        return {
            "numpy": lambda: step(a.x, *a.states, *a.weights),
            **{variant: lambda cell=cell: cell(a.x, *a.states) for variant, cell in cells.items()},
        }


@dataclass(frozen=True)
class Block:
    """MobileNet's blocks: a depthwise 3x3 convolution and a 1x1 convolution; with `expansion` another 1x1 convolution
    before them, ReLU6, no activation at the end, and the input added where it has the result's shape."""

    channels: int
    size: int
    outputs: int
    stride: int = 1
    expansion: int | None = None

    @property
    def parts(self):
        """The convolutions, in their order."""
        if self.expansion is None:
            return (
                depthwise(self.channels, self.size, stride=self.stride),
                Convolution(self.channels, self.size // self.stride, self.outputs),
            )
        hidden = self.channels * self.expansion
        return (
            Convolution(self.channels, self.size, hidden, activation="relu6"),
            depthwise(hidden, self.size, stride=self.stride, activation="relu6"),
            Convolution(hidden, self.size // self.stride, self.outputs, activation=None),
        )

    @property
    def residual(self):
        return self.expansion is not None and self.stride == 1 and self.channels == self.outputs

    @property
    def flop(self):
        return sum(part.flop for part in self.parts)

    @property
    def traffic(self):
        """Bytes of image, weights and result: not those of the images between."""
        between = sum(8 * part.outputs * part.result_size**2 for part in self.parts[:-1])
        return sum(part.traffic for part in self.parts) - between

    def arrays(self, rng):
        parts = [part.arrays(rng) for part in self.parts]
        return SimpleNamespace(x=parts[0].x, parts=parts)

    def variants(self, a):
        def made(module, **options):
            return [
                part.layer(b, module, layout="NHWC", **options) for part, b in zip(self.parts, a.parts, strict=True)
            ]

        fused = made(layers)
        block = layers.DepthwiseSeparable(*fused) if self.expansion is None else layers.InvertedResidual(*fused)
        x = np.ascontiguousarray(a.x.transpose(0, 2, 3, 1))
        calls = {
            "unfused": self._in_a_row(made(reference), x),
            "folded": self._in_a_row(made(reference, fold_bn=True), x),
            "fused": self._in_a_row(fused, x),
            "block": into_one_array(block, x),
        }
        return {variant: lambda call=call: call().transpose(0, 3, 1, 2) for variant, call in calls.items()}

    def _in_a_row(self, parts, x):
        """The layers one after the other, each with an array for its result that is there already."""
        results = [x]
        for layer in parts:
            results.append(layer(results[-1]))
        residual = x if self.residual else None

        def call():
            for layer, image, y in zip(parts[:-1], results, results[1:]):
                layer(image, out=y)
            return parts[-1](results[-2], residual, out=results[-1])

        return call


@dataclass(frozen=True)
class EightBits:
    """A convolution in int8 next to the same in float32, channels last."""

    convolution: Convolution

    def arrays(self, rng):
        a = self.convolution.arrays(rng)
        a.x = np.ascontiguousarray(a.x.transpose(0, 2, 3, 1))
        a.y = self.convolution.layer(a, layout="NHWC")(a.x)
        a.x_q, a.y_q = (quantization.between(min(v.min(), 0), max(v.max(), 0)) for v in (a.x, a.y))
        return a

    def variants(self, a):
        fused, twin = (
            self.convolution.layer(a, module, layout="NHWC", x_q=a.x_q, y_q=a.y_q) for module in (layers, reference)
        )
        x, floats = quantization.quantize(a.x, a.x_q), np.empty_like(a.x)
        result, y = np.empty_like(a.y), np.empty(a.y.shape, np.uint8)

        def arrays(scale, zero_point):
            return np.array([scale], np.float32), np.array([zero_point], np.int32)

        (x_scale, x_zero), (y_scale, y_zero) = arrays(*a.x_q), arrays(*a.y_q)

        def unfused():
            """The twin's passes, each into an array that is there already."""
            _core.convert(x, x_scale, x_zero, floats)
            twin._layer(floats, out=result)
            return _core.convert(result, y_scale, y_zero, y)

        def form(module=layers, **options):
            return into_one_array(self.convolution.layer(a, module, layout="NHWC", **options), a.x)

        return {
            "float32 unfused": form(reference),
            "float32": form(),
            **({"bfloat16": form(precision="bfloat16")} if self.convolution.groups == 1 else {}),
            "int8 unfused": unfused,
            "int8 fused": into_one_array(fused, x),
        }

    def comparable(self, a, results):
        """Results as real numbers, and by what part of the largest one they may differ."""
        return [y if y.dtype == np.float32 else quantization.dequantize(y, a.y_q) for y in results], 0.03


def into_one_array(layer, x):
    """A function that writes the layer's result into the same array each time."""
    y = layer(x)
    return lambda: layer(x, out=y)


GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


def recurrent_weights(rng, mode, hidden):
    """``w_ih, w_hh, b_ih, b_hh`` of as many inputs as units."""
    rows = GATES[mode] * hidden
    weights = [_normal(rng, rows, hidden) / np.float32(np.sqrt(hidden)) for _ in range(2)]
    return [*weights, *(_normal(rng, rows) for _ in range(2))]


def _normal(rng, *shape):
    return rng.standard_normal(shape, np.float32)


def _numpy_convolution(x, w, stride, padding):
    """A convolution as one matrix product over the unfolded image."""
    oc, ic, kh, kw = w.shape
    if kh == kw == stride == 1:
        return np.matmul(w.reshape(oc, ic), x.reshape(len(x), ic, -1)).reshape(len(x), oc, *x.shape[2:])
    padded = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    # n c oh ow kh kw
    windows = np.lib.stride_tricks.sliding_window_view(padded, (kh, kw), axis=(2, 3))[:, :, ::stride, ::stride]
    n, _, oh, ow = windows.shape[:4]
    columns = windows.transpose(0, 1, 4, 5, 2, 3).reshape(n, ic * kh * kw, oh * ow)
    return np.matmul(w.reshape(oc, -1), columns).reshape(n, oc, oh, ow)


def _numpy_depthwise(x, w, stride, padding):
    """A depthwise convolution as a sum over the kernel's points, several times faster than einsum over windows."""
    padded = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    kh, kw = w.shape[2:]
    windows = np.lib.stride_tricks.sliding_window_view(padded, (kh, kw), axis=(2, 3))[:, :, ::stride, ::stride]
    y = np.zeros(windows.shape[:4], np.float32)
    for i in range(kh):
        for j in range(kw):
            y += w[:, 0, i, j, np.newaxis, np.newaxis] * windows[..., i, j]
    return y


def _numpy_bn(y, bn):
    scale = bn.gamma / np.sqrt(bn.var + np.float32(bn.eps))
    shift = bn.beta - bn.mean * scale
    return y * scale[:, np.newaxis, np.newaxis] + shift[:, np.newaxis, np.newaxis]


def _numpy_rnn(x, h, w_ih, w_hh, b_ih, b_hh):
    return np.tanh(x @ w_ih.T + b_ih + h @ w_hh.T + b_hh)


def _numpy_lstm(x, h, c, w_ih, w_hh, b_ih, b_hh):
    i, f, g, o = np.split(x @ w_ih.T + b_ih + h @ w_hh.T + b_hh, 4, axis=-1)
    c = _sigmoid(f) * c + _sigmoid(i) * np.tanh(g)
    return _sigmoid(o) * np.tanh(c), c


def _numpy_gru(x, h, w_ih, w_hh, b_ih, b_hh):
    of_x, of_h = (np.split(v, 3, axis=-1) for v in (x @ w_ih.T + b_ih, h @ w_hh.T + b_hh))
    r, z = (_sigmoid(a + b) for a, b in zip(of_x[:2], of_h[:2], strict=True))
    n = np.tanh(of_x[2] + r * of_h[2])
    return n + z * (h - n)


NUMPY_STEPS: dict[str, Callable] = {"RNN": _numpy_rnn, "LSTM": _numpy_lstm, "GRU": _numpy_gru}


def _sigmoid(x):
    return 1 / (1 + np.exp(-x))


ACTIVATIONS: dict[str | None, Callable] = {
    "relu": lambda x: np.maximum(x, 0),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "gelu_tanh": lambda x: 0.5 * x * (1 + np.tanh(np.float32(np.sqrt(2 / np.pi)) * (x + np.float32(0.044715) * x**3))),
}


class Workload(NamedTuple):
    title: str
    operation: Convolution | Cell | Block | EightBits

    def build(self, rng) -> dict[str, Callable]:
        """``{variant: function without arguments that returns an array or a tuple of arrays}``"""
        return self.operation.variants(self.operation.arrays(rng))


WORKLOADS = {
    "conv1x1": Workload("conv 1x1 128x28x28 -> 256", Convolution(128, 28, 256)),
    "depthwise": Workload("depthwise 3x3 512x14x14", depthwise(512, 14)),
    "rnn_cell": Workload("RNN cell, 128 units", Cell("RNN", 128)),
    "lstm_cell": Workload("LSTM cell, 128 units", Cell("LSTM", 128)),
    "weenet": Workload("WeeNet 3x3 64x128x128", Convolution(64, 128, 64, 3)),
    "weenet_depthwise": Workload("WeeNet, depthwise", depthwise(64, 128)),
    "separable": Workload("separable 32x112x112 -> 64", Block(32, 112, 64)),
    "inverted": Workload("inverted 24x56x56, 6x", Block(24, 56, 24, expansion=6)),
    "inverted_stride2": Workload("inverted 16x112x112, 6x -> 24", Block(16, 112, 24, 2, 6)),
    "inverted_large": Workload("inverted 24x224x224, 6x", Block(24, 224, 24, expansion=6)),
}
WORKLOADS |= {
    f"{name}_8_bits": Workload(f"{workload.title}, int8", EightBits(workload.operation))
    for name, workload in WORKLOADS.items()
    if isinstance(workload.operation, Convolution)
}


def build(name, seed=0):
    """The variants of a workload on random data, each checked against the first.

    Returns
    -------
    dict of str to function

    Raises
    ------
    ArithmeticError
        The variants do not agree.
    """
    operation = WORKLOADS[name].operation
    a = operation.arrays(np.random.default_rng(seed))
    calls = operation.variants(a)
    check(name, calls, partial(operation.comparable, a) if isinstance(operation, EightBits) else _as_they_are)
    return calls


def _as_they_are(results):
    return results, 1e-4


def check(name, calls, comparable=_as_they_are):
    """An ArithmeticError where the results differ by more than rounding; `comparable` makes real numbers of them, and
    says what they may differ by."""
    first, *others = calls
    expected = [y.copy() for y in _arrays(calls[first]())]
    for variant in others:
        for pair in zip(_arrays(calls[variant]()), expected, strict=True):
            (got, want), most = comparable(pair)
            error = float(np.max(np.abs(got - want)) / np.max(np.abs(want)))
            if not error < most:
                raise ArithmeticError(
                    f"{name}: {VARIANTS[variant]} differs from {VARIANTS[first]} by {error:.1e} of the largest value"
                )


def _arrays(result):
    return result if isinstance(result, tuple) else (result,)
