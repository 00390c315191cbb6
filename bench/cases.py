"""What is measured: operations at the shapes of known networks, blocks, and whole networks. Their data comes from a
fixed seed."""

from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from fusedops import functional, layers, reference
from fusedops.benchmark import workloads
from fusedops.benchmark.report import network, random_input
from fusedops.benchmark.workloads import (
    ACTIVATIONS,
    GATES,
    NUMPY_STEPS,
    Block,
    Cell,
    Convolution,
    depthwise,
    into_one_array,
)

from .encoder import Encoder
from .passes import PASSES


@dataclass(frozen=True)
class Added(Convolution):
    """A convolution with a residual."""

    def arrays(self, rng):
        a = super().arrays(rng)
        shape = self.batch, self.outputs, self.result_size, self.result_size
        return SimpleNamespace(**vars(a), residual=rng.standard_normal(shape, np.float32))

    def variants(self, a):
        def call(layer):
            y = layer(a.x, a.residual)
            return lambda: layer(a.x, a.residual, out=y)

        return {
            "unfused": call(self.layer(a, reference)),
            "folded": call(self.layer(a, reference, fold_bn=True)),
            "fused": call(self.layer(a)),
        }


@dataclass(frozen=True)
class Product:
    """A linear layer: rows x inputs times inputs x outputs, bias and activation."""

    rows: int
    inputs: int
    outputs: int
    activation: str | None = "relu"

    @property
    def flop(self):
        return 2 * self.rows * self.inputs * self.outputs

    @property
    def traffic(self):
        return 4 * (self.rows * self.inputs + self.inputs * self.outputs + self.rows * self.outputs)

    def arrays(self, rng):
        w = rng.standard_normal((self.outputs, self.inputs), np.float32) / np.float32(np.sqrt(self.inputs))
        return SimpleNamespace(
            x=rng.standard_normal((self.rows, self.inputs), np.float32),
            w=w,
            bias=rng.standard_normal(self.outputs, np.float32),
        )

    def variants(self, a, precision="float32"):
        def layer(module, **options):
            options |= dict(activation=self.activation, precision=precision)
            return into_one_array(module.Linear(a.w, a.bias, **options), a.x)

        return {
            "numpy": lambda: ACTIVATIONS[self.activation](a.x @ a.w.T + a.bias),
            "unfused": layer(reference),
            "folded": layer(reference, fold_bn=True),
            "fused": layer(layers),
        }


@dataclass(frozen=True)
class Attention:
    """So many heads of `width` elements, for `tokens` queries and keys."""

    heads: int
    tokens: int
    width: int
    causal: bool = False

    @property
    def flop(self):
        return 4 * self.heads * self.tokens**2 * self.width // (2 if self.causal else 1)

    @property
    def traffic(self):
        return 16 * self.heads * self.tokens * self.width

    def arrays(self, rng):
        return SimpleNamespace(
            qkv=[rng.standard_normal((1, self.heads, self.tokens, self.width), np.float32) for _ in range(3)]
        )

    def variants(self, a, precision="float32"):
        options = dict(causal=self.causal, precision=precision)
        return {
            "numpy": lambda: self._numpy(*a.qkv),
            "unfused": lambda: reference.attention(*a.qkv, **options),
            "fused": lambda: functional.attention(*a.qkv, **options),
        }

    def _numpy(self, q, k, v):
        scores = q @ k.swapaxes(-1, -2) / np.float32(np.sqrt(self.width))
        if self.causal:
            scores[..., ~np.tri(self.tokens, dtype=bool)] = -np.inf
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        return weights / weights.sum(-1, keepdims=True) @ v


@dataclass(frozen=True)
class Sequence:
    """A recurrent layer over a sequence, of as many inputs as units."""

    mode: str
    steps: int
    batch: int
    hidden: int

    @property
    def flop(self):
        return self.steps * Cell(self.mode, self.hidden, self.batch).flop

    @property
    def traffic(self):
        """Bytes of weights, inputs and results, each once: the recurrent weights stay in a cache."""
        return 4 * (2 * GATES[self.mode] * self.hidden**2 + 2 * self.steps * self.batch * self.hidden)

    def arrays(self, rng):
        x = rng.standard_normal((self.steps, self.batch, self.hidden), np.float32)
        return SimpleNamespace(x=x, weights=workloads.recurrent_weights(rng, self.mode, self.hidden))

    def variants(self, a, precision="float32"):
        fused, unfused = (partial(getattr(module, self.mode), precision=precision) for module in (layers, reference))
        made = {"unfused": unfused(*a.weights), "folded": unfused(*a.weights, fold_bn=True), "fused": fused(*a.weights)}
        return {
            "numpy": lambda: self._numpy(a),
            **{variant: lambda layer=layer: layer(a.x)[0] for variant, layer in made.items()},
        }

    def _numpy(self, a):
        states = [np.zeros((self.batch, self.hidden), np.float32) for _ in range(2 if self.mode == "LSTM" else 1)]
        y = np.empty_like(a.x)
        for t, x in enumerate(a.x):
            new = NUMPY_STEPS[self.mode](x, *states, *a.weights)
            states = new if self.mode == "LSTM" else [new]
            y[t] = states[0]
        return y


@dataclass(frozen=True)
class Residual:
    """The block of a ResNet: ``relu(body(x) + skip(x))``; `skip` is None where that is x itself."""

    body: tuple[Convolution, ...]
    skip: Convolution | None

    @property
    def flop(self):
        return sum(part.flop for part in (*self.body, *([self.skip] if self.skip else [])))

    def arrays(self, rng):
        return SimpleNamespace(body=[part.arrays(rng) for part in self.body], skip=self.skip and self.skip.arrays(rng))


@dataclass(frozen=True)
class MBConv:
    """The block of an EfficientNet: 1x1 (but for an expansion of 1) and depthwise convolution with SiLU, squeeze and
    excite, 1x1 convolution, and the input added where it has the result's shape."""

    channels: int
    size: int
    outputs: int
    kernel: int
    stride: int
    expansion: int

    @property
    def parts(self):
        hidden = self.channels * self.expansion
        wide = depthwise(hidden, self.size, self.kernel, self.stride, activation="silu")
        expand = [Convolution(self.channels, self.size, hidden, activation="silu")] if self.expansion > 1 else []
        return *expand, wide, Convolution(hidden, wide.result_size, self.outputs, activation=None)

    @property
    def excite(self):
        """The products between the means of the channels and their factors."""
        hidden, few = self.channels * self.expansion, self.channels // 4
        return Product(1, hidden, few, "silu"), Product(1, few, hidden, "sigmoid")

    @property
    def residual(self):
        return self.stride == 1 and self.channels == self.outputs

    @property
    def flop(self):
        return sum(part.flop for part in (*self.parts, *self.excite))

    def arrays(self, rng):
        parts, excite = ([part.arrays(rng) for part in parts] for parts in (self.parts, self.excite))
        return SimpleNamespace(x=parts[0].x, parts=parts, excite=excite)


@dataclass(frozen=True)
class MaxPool:
    """3x3, stride 2, padding 1: what a ResNet has after its first convolution."""

    channels: int
    size: int
    flop = 0

    def arrays(self, rng):
        return None


@dataclass(frozen=True)
class Network:
    """A classifier: its parts in a row, the mean over the image, and a product."""

    parts: tuple[Convolution | Block | Residual | MBConv | MaxPool, ...]
    head: Product
    batch: int = 1

    @property
    def flop(self):
        return self.batch * (self.head.flop + sum(part.flop for part in self.parts))

    def arrays(self, rng):
        first, *others = self.parts
        parts = [part.arrays(rng) for part in (replace(first, batch=self.batch), *others)]
        return SimpleNamespace(x=parts[0].x, parts=parts, head=self.head.arrays(rng))


@dataclass(frozen=True)
class File:
    """A network of an ONNX file, on random inputs of the sizes that it declares; an open first axis is one item."""

    path: str
    flop = 0  # not counted

    def arrays(self, rng):
        values = network(self.path).inputs
        for value in values:
            if not all(isinstance(n, int) for n in (value.shape or ())[1:]):
                raise ValueError(f"{self.path} does not declare every size of its input {value.name}: {value.shape}")
        return SimpleNamespace(inputs=[random_input(value, {}) for value in values])


def _mobilenet_v1():
    parts, size = [Convolution(3, 224, 32, 3, 2)], 112
    for channels, outputs, stride in [
        (32, 64, 1),
        (64, 128, 2),
        (128, 128, 1),
        (128, 256, 2),
        (256, 256, 1),
        (256, 512, 2),
        *[(512, 512, 1)] * 5,
        (512, 1024, 2),
        (1024, 1024, 1),
    ]:
        parts.append(Block(channels, size, outputs, stride))
        size //= stride
    return Network(tuple(parts), Product(1, 1024, 1000, None))


def _mobilenet_v2():
    parts = [
        Convolution(3, 224, 32, 3, 2, activation="relu6"),
        depthwise(32, 112, activation="relu6"),
        Convolution(32, 112, 16, activation=None),
    ]
    channels, size = 16, 112
    for outputs, count, first in [(24, 2, 2), (32, 3, 2), (64, 4, 2), (96, 3, 1), (160, 3, 2), (320, 1, 1)]:
        for stride in (first, *[1] * (count - 1)):
            parts.append(Block(channels, size, outputs, stride, 6))
            channels, size = outputs, size // stride
    return Network((*parts, Convolution(320, 7, 1280, activation="relu6")), Product(1, 1280, 1000, None))


def _resnet(counts, bottleneck):
    parts, channels, size = [Convolution(3, 224, 64, 7, 2), MaxPool(64, 112)], 64, 56
    for stage, count in enumerate(counts):
        width = 64 << stage
        outputs = 4 * width if bottleneck else width
        for stride in (2 if stage else 1, *[1] * (count - 1)):
            after = size // stride
            if bottleneck:
                body = (
                    Convolution(channels, size, width),
                    Convolution(width, size, width, 3, stride),
                    Convolution(width, after, outputs, activation=None),
                )
            else:
                body = (
                    Convolution(channels, size, width, 3, stride),
                    Convolution(width, after, width, 3, activation=None),
                )
            skip = (
                None
                if stride == 1 and channels == outputs
                else Convolution(channels, size, outputs, 1, stride, activation=None)
            )
            parts.append(Residual(body, skip))
            channels, size = outputs, after
    return Network(tuple(parts), Product(1, channels, 1000, None))


def _efficientnet_b0():
    parts, channels, size = [Convolution(3, 224, 32, 3, 2, activation="silu")], 32, 112
    for expansion, outputs, count, first, kernel in [
        (1, 16, 1, 1, 3),
        (6, 24, 2, 2, 3),
        (6, 40, 2, 2, 5),
        (6, 80, 3, 2, 3),
        (6, 112, 3, 1, 5),
        (6, 192, 4, 2, 5),
        (6, 320, 1, 1, 3),
    ]:
        for stride in (first, *[1] * (count - 1)):
            parts.append(MBConv(channels, size, outputs, kernel, stride, expansion))
            channels, size = outputs, size // stride
    return Network((*parts, Convolution(320, 7, 1280, activation="silu")), Product(1, 1280, 1000, None))


OPERATIONS = {
    "conv1x1_128x28_256": Convolution(128, 28, 256),
    "conv1x1_256x56_64": Convolution(256, 56, 64),
    "conv1x1_1024x14_256": Convolution(1024, 14, 256),
    "conv3x3_64x128_weenet": Convolution(64, 128, 64, 3),
    "conv3x3_64x56": Convolution(64, 56, 64, 3),
    "conv3x3_256x14": Convolution(256, 14, 256, 3),
    "conv3x3_512x7": Convolution(512, 7, 512, 3),
    "conv3x3s2_128x56": Convolution(128, 56, 128, 3, 2),
    "conv7x7s2_3x224": Convolution(3, 224, 64, 7, 2),
    "dw3x3_512x14": depthwise(512, 14),
    "dw3x3_32x128": depthwise(32, 128),
    "dw3x3_144x56": depthwise(144, 56),
    "dw3x3_576x14": depthwise(576, 14),
    "dw3x3s2_96x112": depthwise(96, 112, stride=2),
    "dw5x5_240x28": depthwise(240, 28, 5),
    "separable_32x112_64": Block(32, 112, 64),
    "separable_512x14_512": Block(512, 14, 512),
    "inverted_16x112_24_s2": Block(16, 112, 24, 2, 6),
    "inverted_24x56": Block(24, 56, 24, expansion=6),
    "inverted_24x224": Block(24, 224, 24, expansion=6),
    "linear_512x512x512": Product(512, 512, 512),
    "linear_gelu_128x768x3072": Product(128, 768, 3072, "gelu_tanh"),
    "linear_1x2048x1000": Product(1, 2048, 1000),
    "linear_8x64x64": Product(8, 64, 64),
    "attention_8x512x64": Attention(8, 512, 64),
    "attention_8x2048x64": Attention(8, 2048, 64),
    "attention_causal_8x1024x64": Attention(8, 1024, 64, causal=True),
    "rnn_cell_128": Cell("RNN", 128),
    "lstm_cell_128": Cell("LSTM", 128),
    "gru_cell_128": Cell("GRU", 128),
    "rnn_50x1_128": Sequence("RNN", 50, 1, 128),
    "lstm_50x1_128": Sequence("LSTM", 50, 1, 128),
    "lstm_50x16_256": Sequence("LSTM", 50, 16, 256),
    "gru_50x1_128": Sequence("GRU", 50, 1, 128),
    **PASSES,
}
NETWORKS = {
    "mobilenet_v1": _mobilenet_v1(),
    "mobilenet_v2": _mobilenet_v2(),
    "resnet18": _resnet([2, 2, 2, 2], bottleneck=False),
    "resnet50": _resnet([3, 4, 6, 3], bottleneck=True),
    "efficientnet_b0": _efficientnet_b0(),
    "minilm": Encoder(6, 128, 384, 12),
}
CASES = OPERATIONS | NETWORKS
FUSION = {  # between the rows of OPERATIONS in arithmetic a value: fusedops alone is measured on them
    "conv1x1_64x56_256_gelu": Convolution(64, 56, 256, activation="gelu_tanh"),
    "conv1x1_64x56_256_silu": Convolution(64, 56, 256, activation="silu"),
    "conv1x1_64x56_256_residual": Added(64, 56, 256),
    "conv3x3_64x128_batch16": Convolution(64, 128, 64, 3, batch=16),
    "dw3x3_96x112": depthwise(96, 112),
    "conv1x1_16x112_96": Convolution(16, 112, 96),
    "conv1x1_16x112_96_batch8": Convolution(16, 112, 96, batch=8),
    "linear_512x16x512": Product(512, 16, 512),
    "linear_64x64x64": Product(64, 64, 64),
    "linear_1x128x128": Product(1, 128, 128),
}


def files(folder):
    """The paths of a folder's ONNX files; none without a folder."""
    return sorted(map(str, Path(folder).glob("*.onnx"))) if folder else []


@lru_cache(maxsize=1)
def data(name, batch=1):
    """(operation, its inputs and weights); a name that no case has is the path of an ONNX file."""
    case = (CASES | FUSION).get(name) or File(name)
    case = case if batch == 1 else replace(case, batch=batch)
    return case, case.arrays(np.random.default_rng(0))
