"""PyTorch's modules in inference mode, as they come."""
import torch
from torch import nn

from . import Builder, Call, inputs

ACTIVATIONS = {None: nn.Identity, "relu": nn.ReLU, "relu6": nn.ReLU6, "gelu_tanh": lambda: nn.GELU("tanh")}


class TorchBuilder(Builder):
    """Values are tensors: to build is to run. Modules are made the first time."""

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
    conv = nn.Conv2d(operation.channels, operation.outputs, operation.kernel, operation.stride, operation.padding,
                     groups=operation.groups, bias=False)
    bn = nn.BatchNorm2d(operation.outputs, eps=a.bn.eps)
    _set(conv, weight=a.w)
    _set(bn, weight=a.bn.gamma, bias=a.bn.beta, running_mean=a.bn.mean, running_var=a.bn.var)
    return nn.Sequential(conv, bn, ACTIVATIONS[operation.activation]())


def _linear(operation, a):
    linear = nn.Linear(operation.inputs, operation.outputs)
    _set(linear, weight=a.w, bias=a.bias)
    return nn.Sequential(linear, ACTIVATIONS[operation.activation]())


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
