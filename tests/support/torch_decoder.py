"""A small Llama of PyTorch with keys and values as inputs and outputs, as both exporters of torch.onnx write it."""

import io

import onnx
import pytest

torch = pytest.importorskip("torch")
from torch import nn

F = nn.functional
WIDTH, HEADS, KV_HEADS, HEAD, WORDS = 32, 4, 2, 16, 50


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        sizes = [HEADS * HEAD, KV_HEADS * HEAD, KV_HEADS * HEAD]
        self.qkv = nn.ModuleList(nn.Linear(WIDTH, n, False) for n in sizes)
        self.out, self.gate = nn.Linear(HEADS * HEAD, WIDTH, False), nn.Linear(WIDTH, 64, False)
        self.up, self.down = nn.Linear(WIDTH, 64, False), nn.Linear(64, WIDTH, False)
        self.norms = nn.ParameterList(torch.rand(WIDTH) + 0.5 for _ in range(2))

    @staticmethod
    def norm(x, weight):
        return weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))

    @staticmethod
    def rotated(x, cos, sin):
        half = x.shape[-1] // 2
        return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin

    @staticmethod
    def repeated(x):
        n, heads, length, d = x.shape
        x = x[:, :, None].expand(n, heads, HEADS // heads, length, d)
        return x.reshape(n, HEADS, length, d)

    def forward(self, x, cos, sin, mask, past_k, past_v):
        y = self.norm(x, self.norms[0])
        q, k, v = (f(y).view(*x.shape[:2], -1, HEAD).transpose(1, 2) for f in self.qkv)
        q, k = self.rotated(q, cos, sin), torch.cat((past_k, self.rotated(k, cos, sin)), 2)
        v = torch.cat((past_v, v), 2)
        a = F.scaled_dot_product_attention(q, self.repeated(k), self.repeated(v), attn_mask=mask)
        x = x + self.out(a.transpose(1, 2).reshape(*x.shape[:2], -1))
        y = self.norm(x, self.norms[1])
        return x + self.down(F.silu(self.gate(y)) * self.up(y)), k, v


class Llama(nn.Module):
    def __init__(self, layers=2):
        super().__init__()
        self.table, self.layers = nn.Embedding(WORDS, WIDTH), nn.ModuleList(Layer() for _ in range(layers))
        self.head = nn.Linear(WIDTH, WORDS, False)
        self.register_buffer("rates", 1 / 10000 ** (torch.arange(0, HEAD, 2) / HEAD))

    def forward(self, input_ids, attention_mask, position_ids, *past):
        angles = position_ids[:, :, None].float() * self.rates
        angles = torch.cat((angles, angles), -1)[:, None]
        new, total, low = input_ids.shape[1], attention_mask.shape[1], torch.finfo(torch.float32).min
        mask = torch.full((new, total), low).triu(diagonal=total - new + 1)[None, None]
        mask = mask.masked_fill((attention_mask == 0)[:, None, None, :], low)
        x, made = self.table(input_ids), []
        for layer, k, v in zip(self.layers, past[::2], past[1::2], strict=True):
            x, *both = layer(x, angles.cos(), angles.sin(), mask, k, v)
            made += both
        return self.head(x), *made


def exported(module, dynamo, past=4, new=3, heads=KV_HEADS, size=HEAD):
    """The ONNX model of a decoder with such keys and values."""
    plain, caches = examples(module, past, new, heads, size)
    return export(module, dynamo, plain, caches, ["logits", *(c.replace("past", "present") for c in caches)])


def program(module, past=4, new=3, heads=KV_HEADS, size=HEAD):
    """The program of torch.export of such a decoder."""
    plain, caches = (
        {name: (x, dict.fromkeys(axes, torch.export.Dim.DYNAMIC)) for name, (x, axes) in each.items()}
        for each in examples(module, past, new, heads, size)
    )
    shapes = (*(axes for _, axes in plain.values()), tuple(axes for _, axes in caches.values()))
    return torch.export.export(module, tuple(x for x, _ in (*plain.values(), *caches.values())), dynamic_shapes=shapes)


def examples(module, past, new, heads, size):
    """(arrays, keys and values) that a decoder takes: {name: (example, its open axes)}."""
    count = 2 * len(module.layers)
    plain = {
        "input_ids": (torch.ones(2, new, dtype=torch.int64), {0: "batch", 1: "new"}),
        "attention_mask": (torch.ones(2, past + new, dtype=torch.int64), {0: "batch", 1: "total"}),
        "position_ids": (torch.arange(past, past + new)[None].repeat(2, 1), {0: "batch", 1: "new"}),
    }
    names = [f"past.{i // 2}.{'kv'[i % 2]}" for i in range(count)]
    return plain, {name: (torch.randn(2, heads, past, size), {0: "batch", 2: "past"}) for name in names}


def export(module, dynamo, plain, caches, results):
    """The ONNX model of a module that takes these arrays and then, in one tuple, those: {name: (example, its open
    axes)}."""
    example = tuple(x for x, _ in (*plain.values(), *caches.values()))
    names = dict(input_names=[*plain, *caches], output_names=results)
    if dynamo:
        shapes = [*(axes for _, axes in plain.values()), tuple(axes for _, axes in caches.values())]
        made = torch.onnx.export(module, example, dynamo=True, verbose=False, dynamic_shapes=shapes, **names)
        return made.model_proto
    file, axes = io.BytesIO(), {name: axes for name, (_, axes) in (plain | caches).items()}
    torch.onnx.export(module, example, file, dynamo=False, dynamic_axes=axes, opset_version=17, **names)
    return onnx.load_from_string(file.getvalue())
