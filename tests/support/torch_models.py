"""Small re-implementations of well-known networks in PyTorch, with random weights and statistics."""

import functools

import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F
from torch import nn

import fusedops as fo


def conv_bn(i, o, k=1, s=1, g=1, act=nn.ReLU):
    return nn.Sequential(
        nn.Conv2d(i, o, k, s, k // 2, groups=g, bias=False), nn.BatchNorm2d(o), *([act()] if act else [])
    )


class Residual(nn.Module):
    """The block of ResNet-18 (expansion 1) and ResNet-50 (expansion 4)."""

    def __init__(self, i, m, s, expansion):
        super().__init__()
        o = m * expansion
        self.body = (
            nn.Sequential(conv_bn(i, m, 3, s), conv_bn(m, m, 3, act=None))
            if expansion == 1
            else nn.Sequential(conv_bn(i, m), conv_bn(m, m, 3, s), conv_bn(m, o, act=None))
        )
        self.skip = conv_bn(i, o, 1, s, act=None) if s != 1 or i != o else nn.Identity()

    def forward(self, x):
        return F.relu(self.body(x) + self.skip(x))


class SqueezeExcite(nn.Module):
    def __init__(self, c, m):
        super().__init__()
        self.down, self.up = nn.Conv2d(c, m, 1), nn.Conv2d(m, c, 1)

    def forward(self, x):
        return x * torch.sigmoid(self.up(F.silu(self.down(F.adaptive_avg_pool2d(x, 1)))))


class Inverted(nn.Module):
    """The block of MobileNetV2 (ReLU6) and EfficientNet (SiLU, squeeze and excite)."""

    def __init__(self, i, o, s, t, k=3, act=nn.ReLU6, excite=False):
        super().__init__()
        h = i * t
        self.body = nn.Sequential(
            *([conv_bn(i, h, act=act)] if t > 1 else []),
            conv_bn(h, h, k, s, h, act),
            *([SqueezeExcite(h, max(1, i // 4))] if excite else []),
            conv_bn(h, o, act=None),
        )
        self.skip = s == 1 and i == o

    def forward(self, x):
        return x + self.body(x) if self.skip else self.body(x)


class Classifier(nn.Module):
    def __init__(self, layers, width):
        super().__init__()
        self.features, self.head = nn.Sequential(*layers), nn.Linear(width, 100)

    def forward(self, x):
        return self.head(torch.flatten(F.adaptive_avg_pool2d(self.features(x), 1), 1))


def resnet(counts, expansion):
    layers, i = [conv_bn(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1)], 64
    for stage, count in enumerate(counts):
        for j in range(count):
            layers.append(Residual(i, 64 << stage, 2 if j == 0 and stage else 1, expansion))
            i = (64 << stage) * expansion
    return Classifier(layers, i)


def mobilenet_v1():
    layers = [conv_bn(3, 32, 3, 2)]
    for i, o, s in [
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
        layers += [conv_bn(i, i, 3, s, i), conv_bn(i, o)]
    return Classifier(layers, 1024)


def mobilenet_v2(counts=(1, 2, 3, 4, 3, 3, 1)):
    layers, i = [conv_bn(3, 32, 3, 2, act=nn.ReLU6)], 32
    for count, t, o, s in zip(
        counts, (1, 6, 6, 6, 6, 6, 6), (16, 24, 32, 64, 96, 160, 320), (1, 2, 2, 2, 1, 2, 1), strict=True
    ):
        for j in range(count):
            layers.append(Inverted(i, o, s if j == 0 else 1, t))
            i = o
    return Classifier([*layers, conv_bn(320, 1280, act=nn.ReLU6)], 1280)


def efficientnet_b0():
    layers, i = [conv_bn(3, 32, 3, 2, act=nn.SiLU)], 32
    for t, o, count, s, k in [
        (1, 16, 1, 1, 3),
        (6, 24, 2, 2, 3),
        (6, 40, 2, 2, 5),
        (6, 80, 3, 2, 3),
        (6, 112, 3, 1, 5),
        (6, 192, 4, 2, 5),
        (6, 320, 1, 1, 3),
    ]:
        for j in range(count):
            layers.append(Inverted(i, o, s if j == 0 else 1, t, k, nn.SiLU, excite=True))
            i = o
    return Classifier([*layers, conv_bn(320, 1280, act=nn.SiLU)], 1280)


class UNet(nn.Module):
    def __init__(self, width=16, depth=3):
        super().__init__()
        sizes = [width << d for d in range(depth + 1)]

        def double(i, o):
            return nn.Sequential(conv_bn(i, o, 3), conv_bn(o, o, 3, act=nn.LeakyReLU))

        self.down = nn.ModuleList(double(i, o) for i, o in zip([3, *sizes], sizes, strict=False))
        self.up = nn.ModuleList(
            nn.Sequential(nn.ConvTranspose2d(2 * s, s, 2, 2, bias=False), nn.BatchNorm2d(s), nn.ReLU())
            for s in sizes[:-1]
        )
        self.merge = nn.ModuleList(double(2 * s, s) for s in sizes[:-1])
        self.head = nn.Conv2d(width, 2, 1)

    def forward(self, x):
        skips = []
        for block in self.down[:-1]:
            skips.append(block(x))
            x = F.max_pool2d(skips[-1], 2)
        x = self.down[-1](x)
        for up, merge in zip(reversed(self.up), reversed(self.merge), strict=True):
            x = merge(torch.cat([up(x), skips.pop()], 1))
        return self.head(F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False))


class CRNN(nn.Module):
    """Convolutions, then a bidirectional LSTM over the columns of the image."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            conv_bn(1, 32, 3), nn.MaxPool2d(2), conv_bn(32, 64, 3), nn.MaxPool2d((2, 1)), conv_bn(64, 64, 3)
        )
        self.lstm, self.head = (
            nn.LSTM(64 * 8, 48, num_layers=2, bidirectional=True, batch_first=True),
            nn.Linear(96, 37),
        )

    def forward(self, x):
        v = self.features(x)
        y, _ = self.lstm(v.flatten(1, 2).transpose(1, 2))
        return F.log_softmax(self.head(y), 2)


class Encoder(nn.Module):
    """A transformer encoder over tokens."""

    def __init__(self, width=64, heads=4, layers=2, words=50):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Parameter(torch.randn(1, 128, width) * 0.1)
        self.blocks = nn.ModuleList(
            nn.ModuleDict(
                dict(
                    n1=nn.LayerNorm(width),
                    qkv=nn.Linear(width, 3 * width),
                    out=nn.Linear(width, width),
                    n2=nn.LayerNorm(width),
                    a=nn.Linear(width, 4 * width),
                    b=nn.Linear(4 * width, width),
                )
            )
            for _ in range(layers)
        )
        self.heads, self.norm = heads, nn.LayerNorm(width)

    def attention(self, block, x):
        n, t, c = x.shape
        q, k, v = block["qkv"](x).reshape(n, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        weights = torch.softmax(q @ k.transpose(-2, -1) / (c // self.heads) ** 0.5, -1)
        return block["out"]((weights @ v).transpose(1, 2).reshape(n, t, c))

    def forward(self, tokens):
        x = self.words(tokens) + self.places[:, : tokens.shape[1]]
        for block in self.blocks:
            x = x + self.attention(block, block["n1"](x))
            x = x + block["b"](F.gelu(block["a"](block["n2"](x))))
        return self.norm(x)


def image(*shape):
    return lambda: torch.randn(*shape)


NETWORKS = {
    "resnet18": (lambda: resnet([2, 2, 2, 2], 1), image(2, 3, 64, 64)),
    "resnet50": (lambda: resnet([3, 4, 6, 3], 4), image(2, 3, 64, 64)),
    "mobilenet_v1": (mobilenet_v1, image(2, 3, 64, 64)),
    "mobilenet_v2": (mobilenet_v2, image(2, 3, 64, 64)),
    "efficientnet_b0": (efficientnet_b0, image(2, 3, 64, 64)),
    "unet": (UNet, image(2, 3, 48, 64)),
    "crnn": (CRNN, image(2, 1, 32, 40)),
    "encoder": (Encoder, lambda: torch.randint(0, 50, (2, 24))),
}
# each kind of block, for an exporter that takes long
SHORT = {"mobilenet_v2": (lambda: mobilenet_v2((1, 2, 0, 0, 0, 0, 1)), image(2, 3, 64, 64))}


def build(name, short=False):
    """(module in eval mode, its input) with weights and batch norm statistics from a fixed seed."""
    torch.manual_seed(0)
    make, draw = SHORT.get(name, NETWORKS[name]) if short else NETWORKS[name]
    module = make()
    for m in module.modules():
        if isinstance(m, nn.BatchNorm2d):
            m.running_mean.uniform_(-0.2, 0.2), m.running_var.uniform_(0.5, 1.5)
            m.weight.data.uniform_(0.5, 1.5), m.bias.data.uniform_(-0.2, 0.2)
    return module.eval(), draw()


@functools.cache
def exported(name):
    """(module, input, network as written), once for all tests: an export takes longer than what follows."""
    module, x = build(name)
    return module, x, fo.from_torch(module, x, fold=False, fuse=False)
