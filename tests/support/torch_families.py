"""Families of networks that torchvision and others have, small: each (module, example inputs, {input: {dimension:
name}})."""

import math

import pytest

torch = pytest.importorskip("torch")
from torch import nn

F = nn.functional


class DenseBlock(nn.Module):
    """DenseNet: each layer reads the results of all before it, through batch norm and ReLU in front of the
    convolution."""

    def __init__(self, channels=8, growth=4, layers=3):
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(
                nn.BatchNorm2d(channels + i * growth),
                nn.ReLU(inplace=True),
                nn.Conv2d(channels + i * growth, growth, 3, padding=1, bias=False),
            )
            for i in range(layers)
        )

    def forward(self, x):
        found = [x]
        for layer in self.layers:
            found.append(layer(torch.cat(found, 1)))
        return torch.cat(found, 1)


class ShuffleUnit(nn.Module):
    """ShuffleNet: half the channels pass by, then both halves are shuffled."""

    def __init__(self, channels=16):
        super().__init__()
        c = channels // 2
        self.branch = nn.Sequential(
            nn.Conv2d(c, c, 1, bias=False),
            nn.BatchNorm2d(c),
            nn.ReLU(inplace=True),
            nn.Conv2d(c, c, 3, 1, 1, groups=c, bias=False),
            nn.BatchNorm2d(c),
            nn.Conv2d(c, c, 1, bias=False),
            nn.BatchNorm2d(c),
            nn.ReLU(inplace=True),
        )

    def forward(self, x):
        a, b = x.chunk(2, 1)
        y = torch.cat([a, self.branch(b)], 1)
        n, c, h, w = y.shape
        return y.view(n, 2, c // 2, h, w).transpose(1, 2).contiguous().view(n, c, h, w)


class ConvNeXtBlock(nn.Module):
    def __init__(self, channels=12):
        super().__init__()
        self.depthwise, self.norm = (
            nn.Conv2d(channels, channels, 7, padding=3, groups=channels),
            nn.LayerNorm(channels, eps=1e-6),
        )
        self.up, self.down = nn.Linear(channels, 4 * channels), nn.Linear(4 * channels, channels)
        self.scale = nn.Parameter(torch.full((channels,), 0.5))

    def forward(self, x):
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        return x + (self.scale * self.down(F.gelu(self.up(y)))).permute(0, 3, 1, 2)


class VisionTransformer(nn.Module):
    def __init__(self, width=16, patches=16):
        super().__init__()
        self.patch, self.token = nn.Conv2d(3, width, 4, 4), nn.Parameter(torch.randn(1, 1, width))
        self.places = nn.Parameter(torch.randn(1, patches + 1, width))
        layer = nn.TransformerEncoderLayer(width, 4, 32, activation="gelu", batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, 10)

    def forward(self, x):
        y = self.patch(x).flatten(2).transpose(1, 2)
        y = torch.cat([self.token.expand(y.shape[0], -1, -1), y], 1) + self.places
        return self.head(self.body(y)[:, 0])


class Llama(nn.Module):
    """A decoder's layer: RMS norms, rotated positions, heads of keys and values that several heads of queries share, a
    gated block; tied ends."""

    def __init__(self, words=30, width=16, heads=4, kv_heads=2):
        super().__init__()
        self.words, self.heads, self.kv_heads, self.size = nn.Embedding(words, width), heads, kv_heads, width // heads
        self.q, self.k, self.v = (nn.Linear(width, n * self.size, bias=False) for n in (heads, kv_heads, kv_heads))
        self.out, self.norms = nn.Linear(width, width, bias=False), nn.ModuleList(nn.RMSNorm(width) for _ in range(3))
        self.gate, self.up, self.down = (
            nn.Linear(width, 40, bias=False),
            nn.Linear(width, 40, bias=False),
            nn.Linear(40, width, bias=False),
        )
        self.head = nn.Linear(width, words, bias=False)
        self.head.weight = self.words.weight
        self.register_buffer("frequencies", 1 / 100 ** (torch.arange(0, self.size, 2) / self.size), persistent=False)

    def rotated(self, x):
        angles = torch.arange(x.shape[2])[:, None] * self.frequencies
        cos, sin = torch.cat([angles, angles], -1).cos(), torch.cat([angles, angles], -1).sin()
        a, b = x.chunk(2, -1)
        return x * cos + torch.cat([-b, a], -1) * sin

    def attention(self, x):
        n, t, _ = x.shape
        q, k, v = (
            f(x).view(n, t, h, self.size).transpose(1, 2)
            for f, h in ((self.q, self.heads), (self.k, self.kv_heads), (self.v, self.kv_heads))
        )
        y = F.scaled_dot_product_attention(self.rotated(q), self.rotated(k), v, is_causal=True, enable_gqa=True)
        return self.out(y.transpose(1, 2).reshape(n, t, -1))

    def forward(self, tokens):
        x = self.words(tokens)
        x = x + self.attention(self.norms[0](x))
        y = self.norms[1](x)
        x = x + self.down(F.silu(self.gate(y)) * self.up(y))
        return self.head(self.norms[2](x))


class Tagger(nn.Module):
    """A label for each word, by an LSTM that runs both ways."""

    def __init__(self):
        super().__init__()
        self.words, self.rnn, self.head = (
            nn.Embedding(50, 12),
            nn.LSTM(12, 10, 2, bidirectional=True, batch_first=True),
            nn.Linear(20, 5),
        )

    def forward(self, tokens):
        return self.head(self.rnn(self.words(tokens))[0]).log_softmax(-1)


class Translator(nn.Module):
    """A GRU reads, another writes and attends to what the first has read."""

    def __init__(self, width=12):
        super().__init__()
        self.words = nn.Embedding(40, width)
        self.reader, self.writer = (nn.GRU(width, width, batch_first=True) for _ in range(2))
        self.head = nn.Linear(2 * width, 40)

    def forward(self, source, target):
        read, state = self.reader(self.words(source))
        written, _ = self.writer(self.words(target), state)
        seen = (written @ read.transpose(1, 2) / math.sqrt(read.shape[-1])).softmax(-1) @ read
        return {"logits": self.head(torch.cat([written, seen], -1)), "state": state}


class WaveNet(nn.Module):
    """Causal convolutions of growing dilation with gates; what each layer found is summed."""

    def __init__(self, channels=8):
        super().__init__()
        self.first = nn.Conv1d(1, channels, 1)
        self.layers = nn.ModuleList(nn.Conv1d(channels, 2 * channels, 2, dilation=2**i) for i in range(4))
        self.skips = nn.ModuleList(nn.Conv1d(channels, channels, 1) for _ in range(4))
        self.head = nn.Sequential(nn.ReLU(), nn.Conv1d(channels, 1, 1))

    def forward(self, x):
        x, total = self.first(x), 0
        for layer, skip in zip(self.layers, self.skips, strict=True):
            a, b = layer(F.pad(x, (layer.dilation[0], 0))).chunk(2, 1)
            y = torch.tanh(a) * torch.sigmoid(b)
            total = total + skip(y)
            x = x + y
        return self.head(total)


class Decoder(nn.Module):
    """The half of an autoencoder that draws."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(6, 8 * 4 * 4)
        self.body = nn.Sequential(
            nn.ConvTranspose2d(8, 8, 4, 2, 1),
            nn.BatchNorm2d(8),
            nn.LeakyReLU(0.2),
            nn.ConvTranspose2d(8, 4, 4, 2, 1),
            nn.InstanceNorm2d(4, affine=True),
            nn.ELU(),
            nn.Conv2d(4, 3, 3, padding=1),
            nn.Tanh(),
        )

    def forward(self, z):
        return self.body(self.first(z).view(-1, 8, 4, 4))


class Detector(nn.Module):
    """Features of two sizes, the coarse ones added to the fine; boxes around a grid of places, and scores."""

    def __init__(self):
        super().__init__()
        self.fine = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.SiLU())
        self.coarse = nn.Sequential(nn.Conv2d(8, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.SiLU())
        self.head = nn.Conv2d(8, 6, 1)

    def forward(self, x):
        fine = self.fine(x)
        fine = fine + F.interpolate(self.coarse(fine), size=fine.shape[-2:], mode="nearest")
        y = self.head(fine)
        n, c, h, w = y.shape
        ys, xs = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
        y = y.view(n, c, -1).transpose(1, 2)
        center = (torch.stack([xs, ys], -1).view(-1, 2) + y[..., :2].sigmoid()) * 2
        half = y[..., 2:4].exp() / 2
        return torch.cat([center - half, center + half], -1), y[..., 4:].sigmoid().max(-1).values


class SqueezeExcite(nn.Module):
    def __init__(self, channels=8):
        super().__init__()
        self.down, self.up = nn.Conv2d(channels, 4, 1), nn.Conv2d(4, channels, 1)

    def forward(self, x):
        y = F.adaptive_avg_pool2d(x, (1, 1))
        return x * F.hardsigmoid(self.up(F.relu(self.down(y), inplace=True)))


class Graph(nn.Module):
    """Messages between the nodes of a graph, summed where edges end."""

    def __init__(self):
        super().__init__()
        self.message, self.update = nn.Linear(6, 8), nn.GRUCell(8, 6)

    def forward(self, nodes, edges):
        sent = F.relu(self.message(nodes[edges[0]]))
        received = torch.zeros(nodes.shape[0], 8).index_add(0, edges[1], sent)
        return self.update(received, nodes)


def image(*shape):
    return lambda: (torch.randn(*shape),)


def words(*shape):
    return torch.arange(math.prod(shape)).mul(7).remainder(29).reshape(shape)


SIZES = {2: "height", 3: "width"}
FAMILIES = {
    "densenet": (DenseBlock, image(2, 8, 9, 10), [SIZES]),
    "shufflenet": (ShuffleUnit, image(2, 16, 8, 6), [SIZES]),
    "convnext": (ConvNeXtBlock, image(2, 12, 9, 8), [SIZES]),
    "vit": (VisionTransformer, image(2, 3, 16, 16), [None]),
    "llama": (Llama, lambda: (words(2, 7),), [{1: "length"}]),
    "tagger": (Tagger, lambda: (words(2, 6),), [{1: "length"}]),
    "translator": (Translator, lambda: (words(2, 6), words(2, 4)), [{1: "read"}, {1: "written"}]),
    "wavenet": (WaveNet, image(2, 1, 40), [{2: "length"}]),
    "decoder": (Decoder, image(2, 6), [None]),
    "detector": (Detector, image(2, 3, 16, 24), [SIZES]),
    "squeeze_excite": (SqueezeExcite, image(2, 8, 5, 6), [SIZES]),
    "graph": (
        Graph,
        lambda: (torch.randn(5, 6), torch.tensor([[0, 1, 2, 3, 4, 0], [1, 2, 3, 4, 0, 2]])),
        [None, {1: "edges"}],
    ),
}
