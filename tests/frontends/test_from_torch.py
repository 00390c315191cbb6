"""Modules of PyTorch as networks: every common layer and function, sizes that change, structures, what is refused, what
is checked."""

import contextlib
import gc
import io
import linecache
import os
import subprocess
import sys
import threading
import time
import tracemalloc
import warnings
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import fusedops as fo

torch = pytest.importorskip("torch", reason="PyTorch is not installed (its CPU build is enough)")
from torch import nn

from fusedops.graph.frontends.torch import aten, export, progress, verify
from fusedops.graph.frontends.torch.examples import Example
from fusedops.graph.frontends.torch.fx_reader import FxReader
from torch_families import FAMILIES
from torch_models import build

F = nn.functional
IMAGE, SERIES, VOLUME = (2, 3, 5, 6), (2, 4, 8), (2, 2, 4, 4, 6)


class Called(nn.Module):
    """A module that is a function of tensors."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *inputs):
        return self.function(*inputs)


@pytest.fixture
def exported(monkeypatch):
    """Torch's graph export alone: a module that needs the tracing exporter fails."""

    def none(*_):
        raise export.Unsupported("tracing was needed")

    monkeypatch.setattr(export, "_traced", none)


def randn(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(len(shape) + sum(shape)))


def leaves(value):
    return [t for t in torch.utils._pytree.tree_leaves(value) if isinstance(t, torch.Tensor)]


def agrees(net, module, *inputs):
    with torch.no_grad():
        expected = leaves(module(*(x.clone() for x in inputs)))
    found = net(*(x.numpy() for x in inputs))
    found = found if isinstance(found, tuple) else (found,)
    assert len(found) == len(expected)
    for y, e in zip(found, expected, strict=True):
        assert y.shape == tuple(e.shape) and y.dtype == e.numpy().dtype
        np.testing.assert_allclose(y, e.numpy(), rtol=2e-4, atol=2e-5)


def loads(module, *inputs, sizes=None, batches=(1, 3), **options):
    """Loads a module and compares it, in other batch sizes too; `sizes` are other shapes to compare in instead."""
    torch.manual_seed(0)
    module = module if isinstance(module, nn.Module) else Called(module)
    module.eval()
    net = fo.from_torch(module, inputs, **options)
    agrees(net, module, *inputs)
    shapes = sizes if sizes is not None else [[(n, *x.shape[1:]) for x in inputs] for n in batches]
    for each in shapes:
        agrees(net, module, *(other_sizes(x, s) for x, s in zip(inputs, each, strict=True)))
    return net


def other_sizes(x, shape):
    """Other floats in another shape; integers and bools from those that are there."""
    places = torch.arange(np.prod(shape)) % x.numel()
    return randn(*shape) if x.is_floating_point() else x.flatten()[places].reshape(shape)


LAYERS = {
    "image": (
        IMAGE,
        [
            nn.ReLU(),
            nn.ReLU(inplace=True),
            nn.ReLU6(),
            nn.Sigmoid(),
            nn.Tanh(),
            nn.GELU(),
            nn.GELU("tanh"),
            nn.SiLU(),
            nn.Mish(),
            nn.Hardswish(),
            nn.Hardswish(inplace=True),
            nn.Hardsigmoid(),
            nn.Hardtanh(-0.5, 0.7),
            nn.ELU(0.7),
            nn.CELU(0.5),
            nn.SELU(),
            nn.LeakyReLU(0.2),
            nn.PReLU(),
            nn.PReLU(3),
            nn.RReLU(),
            nn.Softplus(),
            nn.Softplus(2, 5),
            nn.Softsign(),
            nn.Softshrink(),
            nn.Hardshrink(),
            nn.Tanhshrink(),
            nn.LogSigmoid(),
            nn.Threshold(0.1, 20.0),
            nn.Softmax(1),
            nn.LogSoftmax(-1),
            nn.Softmin(1),
            nn.Softmax2d(),
            nn.GLU(-1),
            nn.Identity(),
            nn.Dropout(),
            nn.Dropout2d(),
            nn.AlphaDropout(),
            nn.Flatten(),
            nn.Flatten(2),
            nn.Unflatten(1, (3, 1)),
            nn.LocalResponseNorm(3),
            nn.InstanceNorm2d(3),
            nn.InstanceNorm2d(3, affine=True),
            nn.InstanceNorm2d(3, track_running_stats=True),
            nn.BatchNorm2d(3),
            nn.BatchNorm2d(3, affine=False),
            nn.GroupNorm(3, 3),
            nn.LayerNorm(6),
            nn.LayerNorm([5, 6]),
            nn.LayerNorm(6, elementwise_affine=False),
            nn.LayerNorm(6, bias=False),
            nn.RMSNorm(6),
            nn.ZeroPad2d(1),
            nn.ConstantPad2d((1, 2, 0, 1), 3.0),
            nn.ReflectionPad2d(2),
            nn.ReplicationPad2d((1, 0, 2, 1)),
            nn.CircularPad2d(1),
            nn.Upsample(scale_factor=2),
            nn.Upsample(scale_factor=1.5),
            nn.Upsample(size=(7, 9)),
            nn.Upsample(size=(7, 9), mode="bilinear"),
            nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True),
            nn.Upsample(scale_factor=2, mode="nearest-exact"),
            nn.MaxPool2d(2),
            nn.MaxPool2d(3, 2, 1, ceil_mode=True),
            nn.MaxPool2d(3, 1, dilation=2),
            nn.AvgPool2d(2),
            nn.AvgPool2d(3, 2, 1),
            nn.AvgPool2d(3, 2, 1, count_include_pad=False, ceil_mode=True),
            nn.AvgPool2d(2, divisor_override=3),
            nn.AdaptiveAvgPool2d(1),
            nn.AdaptiveAvgPool2d((2, 3)),
            nn.AdaptiveAvgPool2d((None, 2)),
            nn.AdaptiveMaxPool2d(1),
            nn.AdaptiveMaxPool2d((2, 4)),
            nn.LPPool2d(2, 2),
            nn.Conv2d(3, 4, 3),
            nn.Conv2d(3, 4, 3, padding=1, padding_mode="reflect"),
            nn.Conv2d(3, 4, 3, padding=1, padding_mode="circular"),
            nn.Conv2d(3, 6, 3, groups=3, padding="same"),
            nn.Conv2d(3, 4, 4, padding="same"),
            nn.Conv2d(3, 4, (2, 3), stride=2, dilation=(1, 2), bias=False),
            nn.ConvTranspose2d(3, 4, 3, 2, 1, 1),
            nn.ConvTranspose2d(3, 6, 2, groups=3),
            nn.Unfold(3, 1, 1, 2),
            nn.Linear(6, 4),
            nn.Linear(6, 4, bias=False),
            nn.ChannelShuffle(3),
        ],
    ),
    "series": (
        SERIES,
        [
            nn.Conv1d(4, 5, 3, padding=1),
            nn.Conv1d(4, 4, 3, groups=4, dilation=2),
            nn.ConvTranspose1d(4, 5, 3, 2),
            nn.MaxPool1d(2),
            nn.AvgPool1d(3, 2, 1),
            nn.AdaptiveAvgPool1d(3),
            nn.AdaptiveMaxPool1d(2),
            nn.BatchNorm1d(4),
            nn.InstanceNorm1d(4),
            nn.GroupNorm(2, 4),
            nn.ReflectionPad1d(2),
            nn.Upsample(scale_factor=2, mode="linear"),
            nn.LSTM(8, 6, 2, bidirectional=True, batch_first=True),
            nn.GRU(8, 6, batch_first=True),
            nn.RNN(8, 6, nonlinearity="relu", batch_first=True),
            nn.LSTM(8, 6, bias=False, batch_first=True),
            nn.TransformerEncoderLayer(8, 2, 16, batch_first=True),
            nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=True, activation="gelu"),
            nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2),
        ],
    ),
    "volume": (
        VOLUME,
        [
            nn.Conv3d(2, 3, 3, padding=1),
            nn.ConvTranspose3d(2, 3, 2, 2),
            nn.MaxPool3d(2),
            nn.AvgPool3d(2),
            nn.AdaptiveAvgPool3d(1),
            nn.BatchNorm3d(2),
            nn.InstanceNorm3d(2),
        ],
    ),
    "row": (
        (2, 8),
        [
            nn.Linear(8, 3),
            nn.BatchNorm1d(8),
            nn.GroupNorm(2, 8),
            nn.LSTMCell(8, 6),
            nn.GRUCell(8, 6),
            nn.RNNCell(8, 6),
            nn.RNNCell(8, 6, nonlinearity="relu"),
            nn.Dropout1d(),
        ],
    ),
    "blocks": ((2, 12, 4, 6), [nn.PixelShuffle(2), nn.PixelUnshuffle(2), nn.ChannelShuffle(4)]),
    "words": (
        (2, 5),
        [
            nn.Embedding(10, 4),
            nn.Embedding(10, 4, padding_idx=0),
            nn.EmbeddingBag(10, 4),
            nn.EmbeddingBag(10, 4, mode="sum"),
            nn.EmbeddingBag(10, 4, mode="max"),
        ],
    ),
}


class Several(nn.Module):
    """The results of several modules on one input; exporting takes longer than any of them."""

    def __init__(self, modules):
        super().__init__()
        self.each = nn.ModuleList(modules)

    def forward(self, x):
        given = [x.clone() if getattr(m, "inplace", False) else x for m in self.each]
        return {f"{i} {type(m).__name__}": m(v) for i, (m, v) in enumerate(zip(self.each, given, strict=True))}


@pytest.mark.parametrize("kind, start", [(kind, i) for kind in LAYERS for i in range(0, len(LAYERS[kind][1]), 11)])
def test_layers(exported, kind, start):
    together(kind, LAYERS[kind][1][start : start + 11])


@pytest.mark.thorough
@pytest.mark.parametrize("kind", LAYERS)
def test_layers_in_core_operators(exported, monkeypatch, kind):
    """As modules are read that have operators without a reader, or changes in place that views see."""

    def core(torch, exported, names):
        return FxReader(torch, export._quietly(torch, exported.run_decompositions), aten.READERS, names)

    monkeypatch.setattr(export, "_program", core)
    without = [
        m
        for m in LAYERS[kind][1]
        if isinstance(m, nn.RReLU) or isinstance(m, nn.InstanceNorm2d) and m.track_running_stats
    ]
    together(kind, [m for m in LAYERS[kind][1] if m not in without])


def together(kind, modules):
    shape, module = LAYERS[kind][0], Several(modules)
    with torch.no_grad():
        for name, t in [*module.named_buffers(), *module.named_parameters()]:
            if t.is_floating_point():
                t.copy_(randn(*t.shape).abs() + 0.5 if name.endswith("running_var") else 0.4 * randn(*t.shape))
    net = loads(module, torch.arange(10).reshape(shape) if kind == "words" else randn(*shape))
    assert net.inputs[0].shape == ("batch", *shape[1:])


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_steps_of_recurrent_layers_are_open(exported, kind):
    """The layer stays one step of the network, whatever the number of its own."""
    torch.manual_seed(0)
    net = loads(kind(8, 6, 2, bidirectional=True), randn(5, 2, 8), sizes=[[(1, 2, 8)], [(9, 2, 8)]])
    assert [s.kind for s in net._plan(np.ones((5, 2, 8), np.float32))[0].steps].count("recurrent") == 2
    both = kind(8, 6, batch_first=True)
    loads(both, randn(2, 5, 8), sizes=[[(1, 9, 8)], [(3, 1, 8)]], dynamic_shapes=({1: "steps"},))
    layer = kind(8, 6, bias=False)
    state = (randn(1, 2, 6), randn(1, 2, 6)) if kind is nn.LSTM else (randn(1, 2, 6),)
    loads(
        Called(lambda x, *s: layer(x, s if kind is nn.LSTM else s[0])),
        randn(5, 2, 8),
        *state,
        sizes=[[(7, 2, 8), *[(1, 2, 6)] * len(state)]],
    )
    loads(layer, randn(5, 8), sizes=[[(3, 8)]])  # without a batch


@pytest.mark.parametrize("first", [[1], [[1]], [[1], [0]]], ids=str)
@pytest.mark.parametrize("second", [[0, 2, 3], [0], [[0, 2, 3]]], ids=str)
def test_constant_indices_side_by_side(exported, first, second):
    """As many axes as the indices have together: one of 1-D ones, which are no grid."""
    i, j = torch.tensor(first), torch.tensor(second)
    loads(lambda x: (x[:, i, j], x[:, :, i, j]), randn(3, 4, 4, 5))


@pytest.mark.parametrize(
    "options",
    [
        dict(scale_factor=0.5, mode="bilinear", antialias=True),
        dict(size=(3, 9), mode="bicubic", antialias=True),
        dict(size=(11, 5), mode="bicubic"),
        dict(scale_factor=1.7, mode="bicubic", align_corners=True),
        dict(scale_factor=0.4, mode="bicubic", recompute_scale_factor=True),
    ],
    ids=str,
)
def test_sizes_by_weights(exported, options):
    """Cubic and antialiased sizes are products with weights, in kernels."""
    net = loads(lambda x: F.interpolate(x, **options), randn(2, 3, 8, 7))
    assert "numpy" not in [s.kind for s in net._plan(np.ones((2, 3, 8, 7), np.float32))[0].steps]


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "bilinear"])
@pytest.mark.parametrize("scale", [1.00001, 1.13, 1.7, 2.13])
def test_scales_near_whole_ones(exported, mode, scale):
    """Where a size stays, or doubles to nearest pixels, torch takes the ratio of sizes."""
    loads(lambda x: F.interpolate(x, scale_factor=scale, mode=mode), randn(2, 3, 7, 7), sizes=[[(1, 3, 7, 7)]])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_roundings_to_halves(exported, dtype):
    """Also of what a layer gives: values that the type has, none else."""
    loads(lambda x: (x * 100).to(dtype).float() + x, randn(3, 5))
    torch.manual_seed(0)
    linear, x = nn.Linear(5, 4), 100 * randn(40, 5)
    net = fo.from_torch(Called(lambda x: linear(x).to(dtype).float()), x)
    y, right = torch.from_numpy(net(x.numpy())), linear(x).to(dtype).float()
    assert torch.equal(y, y.to(dtype).float()) and (y == right).float().mean() > 0.98
    assert ((y - right).abs() <= torch.finfo(dtype).eps * right.abs()).all()


def test_projections_of_an_lstm():
    torch.manual_seed(0)
    loads(nn.LSTM(8, 6, proj_size=3), randn(4, 2, 8), batches=())


FUNCTIONS = [
    lambda x: x.abs() + x.exp() + x.abs().log() + x.abs().sqrt() + x.neg() + x.sin() + x.cos(),
    lambda x: x.floor() + x.ceil() + x.round() + x.trunc() + x.frac() + x.sign() + x.erf() + x.erfc(),
    lambda x: (
        x.abs().rsqrt() + x.reciprocal() + x.abs().log1p() + x.expm1() + x.abs().log2() + x.abs().log10() + x.exp2()
    ),
    lambda x: x**2 + x**3 + x.abs() ** 0.5 + x.abs() ** 1.7 + 2**x + x**0 + x**1 + x**-1 + x.square(),
    lambda x: x // 2.0 + x % 2 + torch.fmod(x, 1.5) + torch.div(x, 3, rounding_mode="trunc"),
    lambda x: torch.div(x, 0.7, rounding_mode="floor"),
    lambda x: torch.where(x > 0, x, 2 * x) + x.masked_fill(x < 0, 5) + (x == 0) + (x != 0) + (x <= 0) + (x >= 1),
    lambda x: (
        ((x > 0) & (x < 1) | (x < -1) ^ (x > 2)).float()
        + torch.logical_not(x > 0)
        + (~(x > 0))
        + torch.logical_and(x, x)
    ),
    lambda x: (
        torch.maximum(x, x * 2)
        + torch.minimum(x, x + 1)
        + torch.max(x, -x)
        + x.clamp(min=0)
        + x.clamp(max=torch.tensor(1.0))
        + x.clamp(x - 1, x + 1)
    ),
    lambda x: (
        torch.lerp(x, x * 2, 0.3)
        + torch.addcmul(x, x, x, value=2)
        + torch.addcdiv(x, x, x.abs() + 1)
        + torch.add(x, x, alpha=3)
        + (1 - x)
    ),
    lambda x: (torch.isnan(x), torch.nan_to_num(x, 1.0)),
    lambda x: torch.sinc(x) + torch.sigmoid(x).logit() + torch.hypot(x, x + 1) + torch.special.expit(x),
    lambda x: x.sum() + x.mean() + x.prod() + x.max() + x.min() + x.std() + x.var() + x.norm(),
    lambda x: (
        x.sum(1),
        x.mean((1, 2)),
        x.amax(-1),
        x.amin(1, True),
        x.prod(1),
        (x > 0).any(1),
        x.all(1),
        x.std(1),
        x.var((1, 2), unbiased=False),
    ),
    lambda x: (
        x.norm(dim=1),
        x.norm(1, 1),
        x.norm(float("inf"), 1),
        x.norm(3, 1),
        F.normalize(x, dim=-1),
        x.logsumexp(1),
        torch.var_mean(x, 1),
    ),
    lambda x: (
        *x.max(1),
        *x.min(-1, True),
        x.argmin(1),
        x.argmax(1, True),
        *x.topk(2, -1),
        *x.sort(1),
        x.argsort(1, descending=True),
        x.cumsum(1),
    ),
    lambda x: (
        x[:, 1],
        x[..., -1],
        x[:, 1:],
        x[:, ::2],
        x[:, None],
        x[0],
        x[-1],
        x[:, [0, 2]],
        x[:, :, [1, 0]],
        x[:, [0, 1], [1, 2]],
        x[:, -2:],
    ),
    lambda x: (
        x[[0, 0], :, [1, 2]],
        x[:, :, torch.tensor([[0, 1], [2, 3]])],
        x[:, torch.tensor([0, 2])[:, None], torch.tensor([1, 3])],
    ),
    lambda x: (x.flip(1), x.roll(1, 1), x.roll(-2, -1), x.roll(1), x.roll((1, 2), (1, 2)), torch.rot90(x, 1, (1, 2))),
    lambda x: (x.tril(), x.triu(1), x.diagonal(0, 1, 2), x.diagonal(-1, 1, 2), x.unfold(1, 2, 1), x.unfold(-1, 2, 2)),
    lambda x: (
        x.repeat(1, 2, 1),
        x.repeat(2, 1, 1, 1),
        x.tile(2),
        x.repeat_interleave(2, 1),
        x.repeat_interleave(2),
        x.expand(3, -1, -1, -1),
    ),
    lambda x: (
        torch.cat([x, x], 1),
        torch.stack([x, x]),
        torch.stack([x, x], -1),
        torch.vstack([x, x]),
        torch.cat([x, torch.ones(1, 3, 4)]),
    ),
    lambda x: (*x.split(2, 1), *x.chunk(2, 1), *x.unbind(1), *x.split([1, 2], 1), *torch.tensor_split(x, 2, 2)),
    lambda x: (
        x.permute(0, 2, 1),
        x.mT,
        x.movedim(1, -1),
        x.swapaxes(1, 2),
        x.reshape(-1, 4),
        x.flatten(1),
        x.unflatten(2, (2, 2)),
        x.unsqueeze(-1),
    ),
    lambda x: (
        x.view(x.size(0), -1),
        x.reshape(x.shape[0] * 3, 4),
        x.view(-1, 2, 2, 3),
        x[:, None].squeeze(1),
        x.sum((1, 2)).squeeze(),
    ),
    lambda x: (
        torch.ones(x.shape[0], 2),
        torch.full_like(x, 3),
        x.new_zeros(x.shape[0], 3),
        torch.arange(x.shape[0]),
        torch.arange(3.0) + x[0, 0, 0],
    ),
    lambda x: (
        torch.eye(x.shape[1]) + x[:, :, :3],
        torch.linspace(0, 1, 4) * x,
        torch.empty_like(x).fill_(2),
        torch.zeros_like(x) + x.size(0),
    ),
    lambda x: (
        torch.zeros_like(x).scatter(1, x.argmax(1, True), 1.0),
        torch.zeros_like(x).scatter_add(1, x.argmax(1, True), x),
        F.one_hot(x.argmax(1), 3),
    ),
    lambda x: (x.index_select(1, torch.tensor([2, 0])), torch.gather(x, 1, x.argmax(1, True))),
    lambda x: (
        x[:, torch.tensor([[2], [0]]), torch.tensor([3, 1, -1])],
        x[:, torch.tensor([0, 1]), torch.tensor([3, 1])],
        x[:, torch.tensor([2, 1, 0]).view(1, 3), torch.tensor([1, 0]).view(2, 1)],
    ),
    lambda x: (x.float(), x.double(), x.long(), x.int(), x.bool(), x.sum(dtype=torch.float64), x.type_as(x)),
    lambda x: (
        x @ x.mT,
        torch.bmm(x, x.mT),
        torch.matmul(x, torch.ones(4)),
        torch.einsum("bij,bkj->bik", x, x),
        torch.cdist(x, x),
    ),
    lambda x: (
        F.cosine_similarity(x, x + 1, dim=1),
        torch.baddbmm(x[:, :, :3], x, x.mT, beta=0.5, alpha=2),
        x.mean(1) @ torch.ones(4, 2),
    ),
    lambda x: (
        F.pad(x, (1, 2)),
        F.pad(x, (-1, 2)),
        F.pad(x, (1, 1), "reflect"),
        F.pad(x, (1, 1, 1, 0), value=7),
        F.pad(x, (1, 2), "circular"),
    ),
    lambda x: (
        F.layer_norm(x, (4,))
        + F.softmax(x, -1, dtype=torch.float32)
        + F.log_softmax(x, 1)
        + F.rms_norm(x, (4,))
        + F.softmax(x, -1).log()
    ),
    lambda x: F.gelu(x) + torch.diff(x, dim=1, append=x[:, :1]) + torch.cross(x[..., :3], x[..., 1:], dim=-1).sum(),
    lambda x: x * len(x.shape) + x.numel() / x.shape[1] + x.mean() * x.shape[0] ** 0.5,
]


@pytest.mark.parametrize("i", range(len(FUNCTIONS)))
def test_functions(exported, i):
    loads(FUNCTIONS[i], randn(2, 3, 4))


def test_integers(exported):
    loads(
        lambda i: (
            i // 2,
            i % 3,
            i * 2 + 1.5,
            i / 2,
            i.float().mean(),
            -i,
            i.abs(),
            i.sum(),
            i > 2,
            i.clamp(0, 3),
            i + torch.tensor(0.5),
            i * True,
        ),
        torch.arange(-5, 7).reshape(2, 6),
    )


@pytest.mark.parametrize("options", [dict(is_causal=True), dict(scale=0.3), dict(enable_gqa=True), {}], ids=str)
def test_attention(exported, options):
    heads = 2 if "enable_gqa" in options else 4
    loads(
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, **options),
        randn(2, 4, 5, 8),
        randn(2, heads, 7, 8),
        randn(2, heads, 7, 8),
    )
    for mask in (randn(2, 1, 5, 5), randn(2, 1, 5, 5) > -1):
        loads(lambda q, m: F.scaled_dot_product_attention(q, q, q, attn_mask=m), randn(2, 4, 5, 8), mask, batches=())


def test_multi_head_attention(exported):
    torch.manual_seed(0)
    attention = nn.MultiheadAttention(16, 4, batch_first=True)
    loads(Called(lambda x: attention(x, x, x)), randn(2, 5, 16))
    loads(
        Called(lambda x, m: attention(x, x, x, key_padding_mask=m)[0]),
        randn(2, 5, 16),
        torch.tensor([[False] * 4 + [True]] * 2),
    )
    loads(nn.TransformerDecoderLayer(16, 4, 32, batch_first=True), randn(2, 5, 16), randn(2, 7, 16))
    loads(nn.Transformer(16, 4, 1, 1, 32, batch_first=True), randn(2, 5, 16), randn(2, 7, 16))


@pytest.mark.parametrize("name", FAMILIES)
def test_families(exported, name):
    """Each with the sizes open that its kind has, in others than the example's too."""
    torch.manual_seed(0)
    make, inputs, shapes = FAMILIES[name]
    module = make().eval()
    for m in module.modules():
        if isinstance(m, nn.BatchNorm2d):
            m.running_mean.uniform_(-0.2, 0.2), m.running_var.uniform_(0.5, 1.5)
    inputs = inputs()
    more = {"height": 3, "width": 5, "length": 4, "read": 2, "written": 7, "edges": 1}
    sizes = [
        [
            tuple(n + more.get((names or {}).get(a), a == 0 and x.is_floating_point()) for a, n in enumerate(x.shape))
            for x, names in zip(inputs, shapes, strict=True)
        ]
    ]
    net = loads(module, *inputs, sizes=sizes, dynamic_shapes=shapes)
    for value, names in zip(net.inputs, shapes, strict=True):
        assert all(value.shape[a] == label for a, label in (names or {}).items())


# ---- sizes


OPEN = [
    lambda x: F.adaptive_avg_pool2d(F.relu(x), 1).flatten(1),
    lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
    lambda x: x.flatten(2).transpose(1, 2).softmax(-1),
    lambda x: F.conv2d(x, torch.ones(4, 3, 3, 3)),
    lambda x: x.reshape(x.shape[0], -1).mean(-1),
    lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=True),
    lambda x: F.group_norm(x, 3) + F.instance_norm(x) + torch.arange(x.shape[2])[:, None],
    lambda x: (
        x.mean(2),
        x.var(2),
        x.cumsum(2),
        x.flip(2),
        x[:, :, -2:],
        x.roll(1, 2),
        x[:, :, 1:-1],
        x[:, :, : x.shape[2] // 2],
    ),
    lambda x: F.pad(x, (0, (-x.shape[-1]) % 4)),
    lambda x: x[:, :, :, :, None].expand(-1, -1, -1, -1, 2).flatten(3),
    lambda x: x.mT @ x,
    lambda x: F.interpolate(x, size=(x.shape[2] * 2, 5)),
    lambda x: torch.cat([x, x.new_zeros(x.shape[0], 3, x.shape[2], 1)], 3),
    lambda x: x.sum() / x.numel(),
]


@pytest.mark.parametrize("i", range(len(OPEN)))
def test_open_sizes(exported, i):
    net = loads(
        OPEN[i], randn(2, 3, 8, 9), sizes=[[(1, 3, 6, 9)], [(3, 3, 9, 12)]], dynamic_shapes=({2: "height", 3: "width"},)
    )
    assert net.inputs[0].shape == ("batch", 3, "height", "width")


def test_sizes_of_a_u_net(exported):
    """Images are halved, doubled and joined: only whole multiples fit, as in the module itself."""
    module = build("unet")[0]
    net = fo.from_torch(module, randn(1, 3, 16, 24), dynamic_shapes=({2: "height", 3: "width"},))
    agrees(net, module, randn(2, 3, 32, 8))


def test_sizes_of_several_inputs(exported):
    net = loads(
        lambda q, k: (q @ k.mT).softmax(-1) @ k,
        randn(2, 5, 8),
        randn(2, 7, 8),
        sizes=[[(3, 1, 8), (3, 9, 8)], [(1, 6, 8), (1, 2, 8)]],
        dynamic_shapes=({1: "queries"}, {1: "keys"}),
    )
    assert [v.shape for v in net.inputs] == [("batch", "queries", 8), ("batch", "keys", 8)]
    net = loads(
        lambda a, b: a + b, randn(2, 5), randn(2, 5), sizes=[[(4, 3), (4, 3)]], dynamic_shapes=({1: "n"}, {-1: "n"})
    )
    assert [v.shape for v in net.inputs] == [("batch", "n"), ("batch", "n")]


@pytest.mark.parametrize(
    "function, shape",
    [
        (lambda x: torch.stack([v.relu() for v in x]), (2, 6)),
        (lambda x: sum(x[i] for i in range(len(x))), (2, 6)),
        (lambda x: x / len(x), (2, 6)),
        (lambda x: x * 2 if x.shape[0] == 1 else x * 3, (1, 6)),
        (lambda x: x * 2 if x.shape[0] > 3 else x * 3, (2, 6)),
        (lambda x: x * 2 if x.shape[0] % 2 else x * 3, (2, 6)),
    ],
)
def test_a_size_that_the_module_fixes(function, shape):
    """The network says so and takes no other; it does not answer wrong."""
    net = loads(function, randn(*shape), batches=())
    assert net.inputs[0].shape == shape
    with pytest.raises(ValueError, match="the network takes"):
        net(np.ones((5, 6), np.float32))


@pytest.mark.parametrize("length", [5, 20])
def test_a_length_beyond_which_the_module_makes_a_larger_table(length):
    """The network has the table that the module began with: it refuses longer inputs rather than compute another
    thing."""

    def positions(x):
        n = x.shape[1]
        return x + (table[:n] if n <= 20 else randn(40, 6)[:n])

    table = randn(20, 6)
    net = loads(Called(positions), randn(2, length, 6), dynamic_shapes=({1: "n"},))
    assert net(np.ones((2, 20, 6), np.float32)).shape == (2, 20, 6)
    with pytest.raises(ValueError):
        net(np.ones((2, 21, 6), np.float32))


def test_what_is_traced_is_compared_below_the_lengths_that_export_takes_for_granted():
    module = Called(lambda x: x.roll(1, 1) if x.shape[1] >= 4 else x * 1)
    with pytest.raises(ValueError, match=r"\(2, 3, 6\)"):
        fo.from_torch(module, randn(2, 5, 6), dynamic_shapes=({1: "n"},))


def test_a_fixed_size_that_was_to_be_open():
    with pytest.raises(ValueError, match="fixes the size of dimension 1"):
        fo.from_torch(
            Called(lambda x: x.reshape(-1, 2, 3)[:, 0] if x.shape[1] == 6 else x),
            randn(2, 6),
            dynamic_shapes=({1: "n"},),
        )


@pytest.mark.parametrize(
    "given, error, text",
    [
        (({5: "n"},), ValueError, r"dimension 5.*shape \(2, 6\)"),
        (("n",), TypeError, "a dict from its dimensions to names"),
        (({1: "n"}, None), TypeError, "structure of the example inputs"),
        ({"x": {1: "n"}}, ValueError, "names 'x', but forward takes input"),
    ],
)
def test_wrong_dynamic_shapes(given, error, text):
    with pytest.raises(error, match=text):
        fo.from_torch(nn.ReLU(), (randn(2, 6),), dynamic_shapes=given)


class TwoInputs(nn.Module):
    def forward(self, image, scale):
        return image * scale.mean() + image.sum(1, keepdim=True)


@pytest.mark.parametrize(
    "given, open_axes",
    [
        ({"image": {1: "channels"}}, [(None, "channels"), (None, 6)]),
        ({"image": {1: torch.export.Dim("channels")}, "scale": None}, [(None, "channels"), (None, 6)]),
        ({"image": (None, torch.export.Dim("channels")), "scale": {0: None}}, [(None, "channels"), (None, 6)]),
        ({"scale": {1: torch.export.Dim.AUTO}, "image": {1: torch.export.Dim.STATIC}}, [(None, 6), (None, None)]),
    ],
)
def test_dynamic_shapes_as_torch_export_has_them(given, open_axes):
    model = fo.from_torch(TwoInputs(), (randn(2, 6), randn(2, 6)), dynamic_shapes=given)
    for value, wanted in zip(model.inputs, open_axes, strict=True):
        assert all(not isinstance(n, int) if w is None else n == w for n, w in zip(value.shape, wanted)), value


def test_dynamic_shapes_by_name_of_a_single_tensor():
    model = fo.from_torch(nn.ReLU(), randn(2, 6), dynamic_shapes={"input": {1: "n"}})
    assert [isinstance(n, str) for n in model.inputs[0].shape] == [True, True]
    with pytest.raises(ValueError, match="but there is no such example input"):
        fo.from_torch(TwoInputs(), randn(2, 6), dynamic_shapes={"scale": {1: "n"}})


def test_progress():
    told = []
    fo.from_torch(nn.Sequential(nn.Linear(3, 4), nn.ReLU()), randn(2, 3), progress=told.append)
    assert told[0] == 0.0 and told[-1] == 1.0 and sorted(told) == told


def test_a_file_of_pytorch_is_no_network(tmp_path):
    torch.save(nn.Linear(3, 4), tmp_path / "net.pt")
    with pytest.raises(ValueError, match=r"a file of PyTorch: read it with torch\.load.*fusedops\.from_torch"):
        fo.load(tmp_path / "net.pt")
    torch.export.save(torch.export.export(nn.Linear(3, 4), (randn(2, 3),)), tmp_path / "net.pt2")
    with pytest.raises(ValueError, match=r"a file of PyTorch: read it with torch\.export\.load"):
        fo.load(tmp_path / "net.pt2")
    np.savez(tmp_path / "arrays.npz", a=randn(2).numpy())
    with pytest.raises(ValueError, match=r"an archive of arrays \(a\): numpy\.load reads it"):
        fo.load(tmp_path / "arrays.npz")


# ---- structures


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(6, 4), nn.Linear(4, 2)

    def forward(self, x, mask=None, scale=1.0, *, sizes=None):
        h = torch.relu(self.body(x)) * scale
        h = h if mask is None else h * mask
        return {"logits": self.head(h), "features": [h, (h.sum(1),)], "count": 3, "none": sizes}


def test_structures(exported):
    torch.manual_seed(0)
    module, x, mask = Detector().eval(), randn(2, 6), randn(2, 4)
    net = fo.from_torch(module, {"x": x, "mask": mask})
    assert [v.name for v in net.inputs] == ["x", "mask"] and [v.name for v in net.outputs] == [
        "logits",
        "features.0",
        "features.1.0",
    ]
    found, expected = net.run({"x": x.numpy(), "mask": mask.numpy()}), module(x, mask)
    for name, e in (
        ("logits", expected["logits"]),
        ("features.0", expected["features"][0]),
        ("features.1.0", expected["features"][1][0]),
    ):
        np.testing.assert_allclose(found[name], e.detach().numpy(), rtol=1e-5, atol=1e-6)
    net = fo.from_torch(module, x)  # what has a default is no input
    assert [v.name for v in net.inputs] == ["x"]
    agrees(fo.from_torch(module, (x, mask, 2.0)), lambda x, m: module(x, m, 2.0), x, mask)
    nested = fo.from_torch(
        Called(lambda d: d["a"][0] + d["b"]),
        ({"a": [x], "b": x * 2},),
        dynamic_shapes=({"a": [{1: "n"}], "b": {1: "n"}},),
    )
    np.testing.assert_array_equal(nested(x.numpy(), x.numpy()), 2 * x.numpy())
    assert [v.shape for v in nested.inputs] == [("batch", "n")] * 2


def test_results_that_are_one_value_an_input_or_a_constant(exported):
    net = loads(lambda x: (x * 2, None, 3, torch.ones(2), x, x), randn(2, 3))
    assert len({v.name for v in net.outputs}) == 4
    loads(lambda x, y: x + 1, randn(2, 3), randn(2, 3))  # an input that nothing reads


def test_a_list_of_examples():
    example = torch.randn(2, 3)
    model = fo.from_torch(nn.Linear(3, 4), [example])
    assert model(example).shape == (2, 4)


def test_arrays_and_numbers_as_examples(exported):
    x = randn(2, 3).numpy()
    net = fo.from_torch(Called(lambda x, n, k: x * n + k), (x, np.float32(2), 1))
    np.testing.assert_array_equal(net(x, np.float32(5)), x * 5 + 1)


@pytest.mark.parametrize(
    "module, example, error, text",
    [
        (lambda x: x, randn(2, 3), TypeError, "takes a torch.nn.Module, not function"),
        (
            nn.Linear(3, 2).state_dict(),
            randn(2, 3),
            TypeError,
            "not OrderedDict: make its module, and call load_state_dict",
        ),
        (nn.ReLU(), object(), TypeError, "an example input is object"),
        (nn.ReLU(), (1, 3, 32, 32), TypeError, r"pass an example, not its shape, torch\.zeros\(1, 3, 32, 32\)"),
        (nn.ReLU(), (), TypeError, "example_inputs has no tensor"),
        (nn.Linear(3, 2), randn(2, 5), ValueError, r"the example inputs \(2, 5\) of float32: mat1.*pass an example"),
        (
            nn.ReLU(),
            (randn(2), randn(2)),
            TypeError,
            r"the example inputs \(2,\) of float32, \(2,\) of float32: .*positional",
        ),
        ("net.pt", randn(2), TypeError, r"not str: pass torch\.load\('net\.pt', weights_only=False\)"),
        (Path("net.pt2"), None, TypeError, r"pass torch\.export\.load\('net\.pt2'\)"),
        (nn.ReLU(), randn(2, 3) * 1j, TypeError, r"complex64.*\.float\(\)"),
        (Called(lambda x: None), randn(2, 3), ValueError, "returns NoneType without a tensor"),
        (nn.Linear(3, 2).bfloat16(), randn(2, 3), ValueError, "dtype"),
        (Called(lambda x: x * (1 + 0j)), randn(2), ValueError, "complex"),
    ],
    ids=range(13),
)
def test_wrong_modules_and_examples(module, example, error, text):
    with pytest.raises(error, match=text):
        fo.from_torch(module, example)


# ---- what is refused


@pytest.mark.parametrize(
    "function, inputs, text",
    [
        (
            lambda x: x * 2 if x.sum() > 0 else x * 3,
            (randn(2, 6),),
            r"decides in Python by a value.*test_from_torch.py, line \d+: .*x.sum\(\) > 0",
        ),
        (lambda x: x / float(x.max()), (randn(2, 6),), "decides in Python by a value"),
        (lambda x, n: x[:, : int(n)], (randn(2, 6), torch.tensor(3)), "int"),
        (lambda x: x + torch.from_numpy(x.numpy().mean(0)), (randn(2, 6),), "decides in Python by a value"),
        (lambda x: F.alpha_dropout(x, training=True), (randn(2, 6),), "drops values at random"),
        (lambda x: F.scaled_dot_product_attention(x, x, x, dropout_p=0.5), (randn(2, 3, 4),), "drops values at random"),
        (
            lambda x: F.batch_norm(x, torch.zeros(6), torch.ones(6), training=True),
            (randn(2, 6),),
            "statistics from the batch",
        ),
        (lambda x: torch.linalg.lu(x), (randn(2, 3, 3),), "does not have torch's operator aten::linalg_lu"),
    ],
)
def test_refused(function, inputs, text):
    with pytest.raises(ValueError, match=text):
        fo.from_torch(Called(function), inputs)


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(3))

    def forward(self, x):
        self.calls += 1
        return x + self.calls


def test_state_that_a_module_keeps():
    with pytest.raises(ValueError, match="writes to 'calls'.*keeps no state"):
        fo.from_torch(Counter(), randn(2, 3))


def test_items_that_export_can_keep(exported):
    x, n = randn(2, 6), torch.tensor(3)
    net = fo.from_torch(Called(lambda x: x / x.max().item()), x)
    agrees(net, lambda x: x / x.max(), x)
    agrees(net, lambda x: x / x.max(), x * 3)
    net = fo.from_torch(Called(lambda x, n: x * n.item()), (x, n))
    np.testing.assert_allclose(net(x.numpy(), np.int64(5)), 5 * x.numpy(), rtol=1e-6)


# ---- changes in place


def _written(x):
    y = x * 1
    y[:, 0] += 1
    y[:, 1:3].mul_(2)
    y[:, :, -1] = 0
    y[x > 1] = 7
    return y


def _filled(x):
    y = torch.zeros(x.shape[0], 3, 4)
    y[:, :2] = x[:, :2]
    y[:, 2] = 1
    return y


def _seen_through_a_view(x):
    y = x * 1
    view = y.view(-1)
    view.relu_()
    return y, y * 2


def _seen_before(x):
    y = x * 1
    z = y.transpose(1, 2)
    y.add_(1).mul_(2)
    return z, y


def _dropped_and_changed(x):
    y = x * 1
    return F.relu_(F.dropout(y, 0.5, False)) + y


@pytest.mark.parametrize(
    "function",
    [
        _written,
        _filled,
        _seen_through_a_view,
        _seen_before,
        lambda x: (x * 1).relu_().add_(x),
        lambda x: x.add_(1) * 2,
        lambda x: (x.mul_(2), x)[0] + x,
        lambda x: [x.view(-1).zero_(), x + 1][1],
    ],
)
def test_changes_in_place(exported, function):
    x = randn(2, 3, 4)
    before = x.clone()
    loads(function, x, batches=(1, 3))
    assert torch.equal(x, before)


def test_a_change_that_export_loses():
    """A dropout gives back its very input, which torch's export does not know: the tracing exporter may, or the module
    is refused."""
    pytest.importorskip("onnx")
    loads(_dropped_and_changed, randn(2, 3, 4))


def test_a_change_that_is_lost(exported):
    with pytest.raises(ValueError, match="would not compute what the module does"):
        fo.from_torch(Called(_dropped_and_changed), randn(2, 3, 4))


# ---- weights


def test_parametrisations_hooks_and_shared_weights(exported):
    torch.manual_seed(0)
    parametrizations = nn.utils.parametrizations
    loads(parametrizations.weight_norm(nn.Conv2d(3, 4, 3)), randn(*IMAGE))
    loads(parametrizations.spectral_norm(nn.Linear(6, 4)).eval(), randn(2, 6))
    loads(parametrizations.orthogonal(nn.Linear(6, 4)), randn(2, 6))
    hooked = nn.Linear(6, 4)
    hooked.register_forward_hook(lambda m, args, y: y * 2)
    hooked.register_forward_pre_hook(lambda m, args: (args[0] + 1,))
    loads(hooked, randn(2, 6))
    tied = nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 6))
    tied[2].weight = tied[0].weight
    net = loads(tied, randn(2, 6))
    assert sum(a.size == 36 for a in net._source.constants.values()) == 1


def test_weights_are_copied_once_and_stay():
    """What becomes of the module afterwards does not change the network."""
    torch.manual_seed(0)
    module, x = (
        nn.Sequential(nn.Embedding(50, 8), nn.Linear(8, 4), nn.LayerNorm(4)).eval(),
        torch.arange(6).reshape(2, 3),
    )
    net = fo.from_torch(module, x)
    before = net(x.numpy())
    with torch.no_grad():
        for p in module.parameters():
            p.mul_(2)
    np.testing.assert_array_equal(net(x.numpy()), before)


def test_memory_of_loading():
    """At most the weights as read and as packed, each once."""
    module, x = nn.Sequential(*[nn.Linear(1024, 1024) for _ in range(4)]).eval(), torch.ones(1, 1024)
    fo.from_torch(nn.Sequential(nn.Linear(4, 4)), torch.ones(1, 4))  # imports
    size = 4 * sum(p.numel() for p in module.parameters())
    gc.collect()
    tracemalloc.start()
    net = fo.from_torch(module, x)
    kept, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert net(x.numpy()).shape == (1, 1024)
    assert kept < 2.1 * size and peak < 2.6 * size


def test_the_module_stays_as_it_was(exported):
    module = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.ReLU(inplace=True)).train()
    module[1].eval()
    state = {k: v.clone() for k, v in module.state_dict().items()}
    fo.from_torch(module, randn(1, 3, 4, 4))
    assert [m.training for m in module.modules()] == [True, True, False, True]
    assert all(torch.equal(v, state[k]) for k, v in module.state_dict().items())
    assert torch.is_grad_enabled() and torch.backends.mha.get_fastpath_enabled()


@pytest.mark.parametrize(
    "make",
    [
        lambda m, x: torch.export.export(m, (x,)).module(),
        lambda m, x: nn.DataParallel(m),
        lambda m, x: torch.fx.symbolic_trace(m),
        lambda m, x: torch.compile(m, backend="eager"),  # the wrapper, without a compiler
    ],
)
def test_modules_around_modules(exported, make):
    torch.manual_seed(0)
    module, x = nn.Sequential(nn.Linear(6, 4), nn.ReLU()).eval(), randn(2, 6)
    agrees(fo.from_torch(make(module, x), x), module, x)


def test_scripted_modules():
    pytest.importorskip("onnx")
    loads(torch.jit.script(nn.Sequential(nn.Linear(6, 4), nn.ReLU()).eval()), randn(2, 6))


def test_statistics_of_the_batch(exported):
    """Where a norm keeps none it takes those of the batch, in eval mode too."""
    loads(nn.BatchNorm2d(3, track_running_stats=False), randn(*IMAGE))
    loads(nn.BatchNorm1d(3, track_running_stats=False, affine=False), randn(4, 3), batches=(3,))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16])
def test_other_floats(exported, dtype):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4)).to(dtype).eval()
    x = randn(2, 6).to(dtype)
    y, expected = fo.from_torch(module, x)(x.numpy()), module(x).detach().numpy()
    assert y.dtype == expected.dtype
    np.testing.assert_allclose(y, expected, rtol=1e-12 if dtype == torch.float64 else 2e-2, atol=1e-3)


# ---- the check


def test_a_wrong_result_is_refused_by_name(exported, monkeypatch):
    monkeypatch.setitem(aten.READERS, "relu", lambda p, x: p.op("Sigmoid", x))
    with pytest.raises(ValueError, match=r"would not compute what the module does: on the example.*aten::relu is off"):
        fo.from_torch(nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 2)), randn(2, 6))


def test_noise_of_a_module_that_amplifies_it(exported):
    """Differences of large values are all rounding: as large as a change of the last digits of the input makes."""
    net = fo.from_torch(Called(lambda x: (x.sum(1) * 1e3).sin()), 10 + randn(2, 512))
    assert net.inputs[0].shape == ("batch", 512)


# ---- the tracing exporter


def test_tracing_where_export_fails(recwarn):
    """A mask that the module compares with another one of its own: export takes that for a decision by a value."""
    pytest.importorskip("onnx")
    torch.manual_seed(0)
    encoder = (
        nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 1, enable_nested_tensor=False)
        .eval()
        .requires_grad_(False)
    )
    mask = nn.Transformer.generate_square_subsequent_mask(6)
    loads(lambda x: encoder(x, mask=mask), randn(2, 6, 16))

    def warned(x):
        if torch.ones(1).cumsum(0) > 0:  # of a constant
            return x + 1
        return x

    recwarn.clear()
    loads(warned, randn(2, 6))
    assert any("Python boolean" in str(w.message) for w in recwarn) or not recwarn.list


def from_a_neighbour(monkeypatch, source):
    """The function f of a source, as of a package that is installed next to torch and whose name begins like it."""
    file = os.path.join(os.path.dirname(torch.__file__) + "vision", "neighbor.py")
    monkeypatch.setitem(linecache.cache, file, (len(source), None, source.splitlines(True), file))
    space = {"torch": torch}
    exec(compile(source, file, "exec"), space)
    return space["f"]


def test_a_line_of_a_package_whose_name_begins_with_torch(monkeypatch):
    decides = from_a_neighbour(monkeypatch, "def f(x):\n    return x if x.sum() > 0 else -x\n")
    with pytest.raises(ValueError, match=r"\(neighbor.py, line 2: return x if x.sum\(\) > 0"):
        fo.from_torch(Called(lambda x: decides(x) + 1), randn(2, 6))


def test_a_warning_of_a_package_whose_name_begins_with_torch(monkeypatch):
    """Those about torch's own lines say nothing to the user; others do."""
    pytest.importorskip("onnx")
    monkeypatch.setattr(export, "_export", lambda *_: (_ for _ in ()).throw(export.Unsupported("")))
    constant = from_a_neighbour(monkeypatch, "def f(x):\n    return x + 1 if torch.ones(1).cumsum(0) > 0 else x\n")
    with pytest.warns(torch.jit.TracerWarning, match="Python boolean") as caught:
        fo.from_torch(Called(constant), randn(2, 6))
    assert {os.path.basename(w.filename) for w in caught} == {"neighbor.py"}


def test_a_size_that_values_decide():
    """As many rows come out as a value says: a trace keeps those of the example."""
    with pytest.raises(ValueError, match=r"result 0 has shape|decides in Python by a value|cannot export"):
        fo.from_torch(Called(lambda x, n: x[: int(n.max())]), (randn(6, 5), torch.tensor([5, 3])))


def test_export_prints_nothing(capfd):
    """torch prints the graph so far where a value decides."""
    with pytest.raises(ValueError, match="decides in Python"):
        fo.from_torch(Called(lambda x: 2 * x if x.sum() > 0 else x), randn(2, 6))
    assert capfd.readouterr() == ("", "")


def test_inputs_in_a_tuple_are_given_one_by_one():
    net = fo.from_torch(Called(lambda x, state: x + state[0] * state[1]), (randn(2, 6), (randn(2, 6), randn(2, 6))))
    x, h, c = (np.full((2, 6), i, np.float32) for i in range(3))
    assert np.array_equal(net(x, h, c), x + h * c)
    with pytest.raises(ValueError, match=r"takes 3 inputs .* got 2: pass the arrays inside a tuple, .*one by one"):
        net(x, (h, c))


@pytest.mark.thorough
def test_tracing_prints_nothing(capfd):
    pytest.importorskip("onnx")
    with pytest.raises(ValueError, match="bessel_j0"), warnings.catch_warnings():
        warnings.simplefilter("error")
        fo.from_torch(Called(lambda x: torch.special.bessel_j0(x)), randn(2, 6))
    assert capfd.readouterr() == ("", "")


@pytest.mark.thorough
def test_without_onnx():
    """Reading torch's graph export needs torch alone."""
    code = (
        "import sys; sys.modules['onnx'] = sys.modules['onnxscript'] = None\nimport torch, fusedops as fo\n"
        "net = fo.from_torch(torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU()), "
        "torch.ones(1, 3, 5, 5))\nprint(net)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "input: float32 (batch, 3, 5, 5)" in result.stdout


def test_several_threads_load():
    """One after another, as torch's export is not for several."""
    errors = []

    def load():
        try:
            loads(nn.Sequential(nn.Linear(6, 4), nn.ReLU()), randn(2, 6))
        except Exception as e:
            errors.append(e)

    threads = [threading.Thread(target=load) for _ in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors


def test_products_of_many_elements():
    """The other values that they are compared on do not overflow where those of the example do not."""
    x = np.abs(np.random.default_rng(0).standard_normal((512, 1024))) + 0.1
    loads(lambda x: x.prod(-1), torch.tensor(x, dtype=torch.float32))


# ---- what loading costs, and what it says


class Counted(nn.Module):
    """Counts the images that it computes; those of export are no real ones."""

    def __init__(self):
        super().__init__()
        self.layer, self.images = nn.Conv2d(3, 4, 3), 0

    def forward(self, x):
        self.images += len(x) if type(x) is torch.Tensor else 0
        return torch.relu(self.layer(x))


@pytest.mark.parametrize("options, most", [({}, 1 + 2), (dict(dynamic_shapes=({2: "height"},)), 1 + 2 + 2)])
def test_the_module_computes_few_images(options, most, monkeypatch):
    """The example once, and other values in other sizes; two more of a height that it does not take."""
    exports = []
    monkeypatch.setattr(export, "_export", lambda *a, of=export._export: exports.append(1) or of(*a))
    module = Counted()
    agrees(fo.from_torch(module, torch.ones(1, 3, 8, 8), **options), module, randn(3, 3, 8, 8))
    assert 2 <= module.images - 3 <= most and len(exports) == 1


class Negative:
    """In place of a network that negates, but not where `wrong` says so."""

    _graph = SimpleNamespace(nodes=[])

    def __init__(self, wrong):
        self.wrong = wrong

    def __call__(self, x):
        return x if self.wrong(x) else -x


@pytest.mark.parametrize(
    "wrong, sizes, traced, found",
    [
        (lambda x: False, [[(3, 2)]], True, None),
        (lambda x: True, [[(3, 2)]], False, "on the example"),
        (lambda x: len(x) == 3, [[(3, 2)]], False, "on inputs of shape (3, 2)"),
        (lambda x: x[0, 0] < 0, [], False, "on other values"),
        (lambda x: x[0, 0] < 0, [[(3, 2)]], True, "on other values"),
        (lambda x: x[0, 0] < 0, [[(2, 2)]], False, "on other values"),  # the example's own sizes are no other ones
        (lambda x: x[0, 0] < 0, [[(2, 3)]], False, "on other values"),  # nor are those that the module does not take
    ],
)
def test_what_is_compared(wrong, sizes, traced, found):
    module = Called(lambda x: x * torch.tensor([-1.0, -1.0]))
    example = Example(torch, torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    expected = example.tensors(module, example.leaves)
    difference = verify.difference(Negative(wrong), module, example, expected, sizes, traced)
    assert difference is None if found is None else difference[0].startswith(found)


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("stream", [Terminal, io.StringIO])
def test_progress_on_a_terminal_alone(stream, monkeypatch):
    """What takes long is told in a line that is gone in the end, after an error too."""
    exports, told = export._exported_doubled, "from_torch: torch exports the module ("

    def slow(*given):  # until the line is there, however busy the machine
        for _ in range(6000 if stream is Terminal else 0):
            if told in sys.stderr.getvalue():
                break
            time.sleep(0.01)
        return exports(*given)

    monkeypatch.setattr(export, "_exported_doubled", slow)
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    monkeypatch.setattr(progress, "PERIOD", 0.01)
    for module in nn.ReLU(), Called(lambda x: torch.special.bessel_j0(x)):
        monkeypatch.setattr(sys, "stderr", stream())
        with contextlib.suppress(ValueError):
            fo.from_torch(module, randn(2, 6))
        text = sys.stderr.getvalue()
        assert (told in text) == (stream is Terminal)
        assert text.endswith(progress.CLEAR) == (stream is Terminal)


def test_no_progress_before_some_seconds(monkeypatch):
    monkeypatch.setattr(progress, "PATIENCE", 60.0)
    monkeypatch.setattr(sys, "stderr", Terminal())
    fo.from_torch(nn.ReLU(), randn(2, 6))
    assert sys.stderr.getvalue() == ""


# ---- random numbers

DRAWS = {
    "rand": lambda x: x[:1] * 0 + torch.rand(2, 6),
    "rand of an open size": lambda x: torch.rand(x.shape[0], 3) + x.sum(),
    "randn_like": lambda x: x + torch.randn_like(x),
    "randn of float64": lambda x: x + torch.randn(x.shape[0], 1, dtype=torch.float64),
    "randn of halves": lambda x: x + torch.randn(x.shape[0], 1).half(),
    "gumbel": lambda x: F.gumbel_softmax(x, hard=True),
    "bernoulli": lambda x: torch.bernoulli(x.sigmoid()),
    "bernoulli of a number": lambda x: torch.bernoulli(x, 0.3) + x,
    "bernoulli in place": lambda x: torch.empty_like(x).bernoulli_() + x,
    "bernoulli in place of a number": lambda x: torch.empty_like(x).bernoulli_(0.3) + x,
    "dropout": lambda x: F.dropout(x, 0.3),
    "normal": lambda x: torch.normal(x, x.abs() + 1),
    "normal of one deviation": lambda x: torch.normal(x, 2.0),
    "normal of one mean": lambda x: torch.normal(1.0, x.abs()),
    "normal of a size": lambda x: torch.normal(1.0, 2.0, (3, 4)) + x.sum(),
    "normal in place": lambda x: torch.empty_like(x).normal_() + x,
    "uniform in place": lambda x: torch.empty_like(x).uniform_(-1, 3) + x,
    "exponential in place": lambda x: torch.empty(4).exponential_(2.0) + x.sum(),
    "multinomial": lambda x: torch.multinomial(x.softmax(-1), 3),
    "multinomial with replacement": lambda x: torch.multinomial(x.softmax(-1), 3, replacement=True),
    "multinomial of one row": lambda x: torch.multinomial(x[0].softmax(-1), 3, replacement=True),
    "randint": lambda x: torch.randint(3, 9, (x.shape[0], 4)) + x.sum().long(),
    "randint_like": lambda x: torch.randint_like(x, 9) + x,
    "randperm": lambda x: x[torch.randperm(x.shape[0])],
}


@pytest.mark.parametrize("name", DRAWS)
def test_random_numbers(exported, name):
    """Network and module are compared with the same numbers by from_torch itself; here, that calls differ."""
    x = randn(5, 6)
    net = fo.from_torch(Called(DRAWS[name]), x, seed=4)
    first, second = net(x.numpy()), net(x.numpy())
    net.seed(4)
    assert not np.array_equal(first, second) and np.array_equal(net(x.numpy()), first)


def test_random_numbers_that_are_used_wrongly_are_found(monkeypatch):
    """The comparison with the module sees what is done with the numbers."""
    monkeypatch.setitem(aten.READERS, "uniform", aten.READERS["rand"])
    with pytest.raises(ValueError, match="not compute what the module does"):
        fo.from_torch(Called(lambda x: torch.empty_like(x).uniform_(-1, 3) + x), randn(5, 6))


# ---- places of maxima


def unpooled(x, n, **more):
    pool, unpool = getattr(F, f"max_pool{n}d"), getattr(F, f"max_unpool{n}d")
    y, places = pool(x, 2, 2, return_indices=True, **more)
    return unpool(y, places, 2, 2, output_size=x.shape[-n:]), places


@pytest.mark.parametrize("n, shape", [(1, (2, 3, 6)), (2, (2, 3, 7, 5)), (2, (3, 7, 5)), (3, (2, 3, 4, 6, 5))])
def test_maxima_go_back_where_they_were(exported, n, shape):
    fo.from_torch(Called(lambda x: unpooled(x, n, ceil_mode=n == 2)), randn(*shape))


def test_maxima_of_open_sizes(exported):
    net = fo.from_torch(Called(lambda x: unpooled(x, 2)), randn(2, 3, 8, 6), dynamic_shapes=({2: "h", 3: "w"},))
    x = randn(1, 3, 4, 10)
    for y, wanted in zip(net(x.numpy()), unpooled(x, 2), strict=True):
        assert np.array_equal(y, wanted.numpy())
