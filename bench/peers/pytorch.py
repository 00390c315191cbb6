"""PyTorch's modules in inference mode, as they come."""

import torch
from torch import nn

from . import Builder, Call, inputs

ACTIVATIONS = {
    None: nn.Identity,
    "relu": nn.ReLU,
    "relu6": nn.ReLU6,
    "gelu_tanh": lambda: nn.GELU("tanh"),
    "silu": nn.SiLU,
    "sigmoid": nn.Sigmoid,
}


class TorchBuilder(Builder):
    """Values are tensors: to build is to run. Modules are made the first time."""

    activations = (*Builder.activations, "silu")

    def __init__(self):
        self.modules = {}

    def module(self, a, make, *arguments):
        if id(a) not in self.modules:
            self.modules[id(a)] = make(*arguments, a).eval()
        return self.modules[id(a)]

    def convolution(self, x, operation, a):
        return self.module(a, _convolution, operation)(x)

    def product(self, x, operation, a):
        return self.module(a, _linear, operation)(x)

    def add(self, x, y, activation):
        return torch.relu(x + y) if activation else x + y

    def max_pool(self, x, operation):
        return nn.functional.max_pool2d(x, 3, 2, 1)

    def passed(self, x, operation, a):
        f, options = nn.functional, dict(operation.options)
        parameters = [torch.from_numpy(v) for v in a.parameters]
        match operation.function:
            case "max_pool2d" | "avg_pool2d":
                return getattr(f, operation.function)(x, **options)
            case "softmax":
                return f.softmax(x, options.get("axis", -1))
            case "group_norm":
                return f.group_norm(x, options["groups"], *parameters)
            case "layer_norm" | "rms_norm":
                x = x if a.residual is None else x + torch.from_numpy(a.residual)
                eps = {"eps": 1e-5} if operation.function == "rms_norm" else {}
                return getattr(f, operation.function)(x, x.shape[-1:], *parameters, **eps)
            case "resize":
                mode = "bilinear" if options.get("mode") == "linear" else "nearest"
                return f.interpolate(x, scale_factor=options["scale"], mode=mode)

    def excite(self, x, operation, a):
        y = self.mean(x, operation)
        for product, b in zip(operation.excite, a.excite, strict=True):
            y = self.product(y, product, b)
        return x * y[:, :, None, None]

    def encoder(self, x, operation, a):
        return self.module(a, _encoder, operation)(x)

    def mean(self, x, operation):
        return x.mean((2, 3))

    def cell(self, x, operation, a, *states):
        states = states if operation.mode == "LSTM" else states[0]
        y = self.module(a, _recurrent, getattr(nn, f"{operation.mode}Cell"), "", operation)(x, states)
        return y[0] if operation.mode == "LSTM" else y

    def attention(self, q, operation, k, v):
        return nn.functional.scaled_dot_product_attention(q, k, v, is_causal=operation.causal)

    def sequence(self, x, operation, a):
        return self.module(a, _recurrent, getattr(nn, operation.mode), "_l0", operation)(x)[0]


def _convolution(operation, a):
    conv = nn.Conv2d(
        operation.channels,
        operation.outputs,
        operation.kernel,
        operation.stride,
        operation.padding,
        groups=operation.groups,
        bias=False,
    )
    bn = nn.BatchNorm2d(operation.outputs, eps=a.bn.eps)
    _set(conv, weight=a.w)
    _set(bn, weight=a.bn.gamma, bias=a.bn.beta, running_mean=a.bn.mean, running_var=a.bn.var)
    return nn.Sequential(conv, bn, ACTIVATIONS[operation.activation]())


def _linear(operation, a):
    linear = nn.Linear(operation.inputs, operation.outputs)
    _set(linear, weight=a.w, bias=a.bias)
    return nn.Sequential(linear, ACTIVATIONS[operation.activation]())


def _encoder(operation, a):
    layers = []
    for b in a.layers:
        layer = nn.TransformerEncoderLayer(
            operation.width, operation.heads, 4 * operation.width, 0.0, "gelu", batch_first=True
        )
        _set(layer.self_attn, in_proj_weight=b.qkv[0], in_proj_bias=b.qkv[1])
        parts = {
            layer.self_attn.out_proj: b.out,
            layer.norm1: b.norm1,
            layer.linear1: b.wide,
            layer.linear2: b.narrow,
            layer.norm2: b.norm2,
        }
        for module, (weight, bias) in parts.items():
            _set(module, weight=weight, bias=bias)
        layers.append(layer)
    return nn.Sequential(*layers)


def _recurrent(kind, suffix, operation, a):
    module = kind(operation.hidden, operation.hidden)
    names = (name + suffix for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))
    _set(module, **dict(zip(names, a.weights, strict=True)))
    return module


def _set(module, **arrays):
    for name, array in arrays.items():
        getattr(module, name).data = torch.from_numpy(array)


def prepare(operation, a, threads):
    torch.set_num_threads(threads)
    builder, tensors = TorchBuilder(), [torch.from_numpy(v) for v in inputs(operation, a)]

    def call():
        with torch.inference_mode():
            return builder.build(operation, a, *tensors)

    return Call(call)
