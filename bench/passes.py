"""What surrounds the products: pools, softmax, norms and resizing, at the shapes of known networks."""

import math
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np

import fusedops as fo
from fusedops import reference


@dataclass(frozen=True)
class Pass:
    """A function of fusedops on one array; `channels_last` is the order of an image in memory."""

    function: str
    shape: tuple[int, ...]
    options: tuple[tuple[str, object], ...] = ()
    channels_last: bool = False
    residual: bool = False
    flop = 0

    @property
    def traffic(self):
        return 8 * math.prod(self.shape)

    @property
    def scaled(self):
        """How many weights and biases a norm has; 0 of other functions."""
        return self.shape[1 if self.function == "group_norm" else -1] if self.function.endswith("_norm") else 0

    def arrays(self, rng):
        def array(*shape):
            a = rng.standard_normal(shape, np.float32)
            return np.ascontiguousarray(np.moveaxis(a, 1, -1)).transpose(0, 3, 1, 2) if self.channels_last else a

        parameters = [rng.standard_normal(self.scaled, np.float32) for _ in range(2 if self.scaled else 0)]
        return SimpleNamespace(
            x=array(*self.shape),
            parameters=parameters[: 1 if self.function == "rms_norm" else 2],
            residual=array(*self.shape) if self.residual else None,
        )

    def variants(self, a):
        options = dict(self.options) | ({"residual": a.residual} if self.residual else {})
        names = ["weight", "bias"][: len(a.parameters)]
        options |= dict(zip(names, a.parameters, strict=True))
        made = {"unfused": reference} if self.residual else {}
        made["fused"] = fo
        calls = {name: lambda f=getattr(module, self.function): f(a.x, **options) for name, module in made.items()}
        return {"numpy": lambda: getattr(_Numpy, self.function)(a.x, **options), **calls}


class _Numpy:
    """The same functions as one writes them in NumPy."""

    @staticmethod
    def _windows(x, kernel_size, stride, padding, outside):
        p = ((0, 0), (0, 0), (padding,) * 2, (padding,) * 2)
        x = np.pad(x, p, constant_values=outside)
        return np.lib.stride_tricks.sliding_window_view(x, (kernel_size,) * 2, (2, 3))[:, :, ::stride, ::stride]

    @staticmethod
    def max_pool2d(x, kernel_size, stride=None, padding=0):
        return _Numpy._windows(x, kernel_size, stride or kernel_size, padding, -np.inf).max((4, 5))

    @staticmethod
    def avg_pool2d(x, kernel_size, stride=None, padding=0):
        return _Numpy._windows(x, kernel_size, stride or kernel_size, padding, 0).mean((4, 5))

    @staticmethod
    def softmax(x, axis=-1):
        e = np.exp(x - x.max(axis, keepdims=True))
        return e / e.sum(axis, keepdims=True)

    @staticmethod
    def layer_norm(x, weight, bias, residual=None):
        x = x if residual is None else x + residual
        d = x - x.mean(-1, keepdims=True)
        return d / np.sqrt((d * d).mean(-1, keepdims=True) + np.float32(1e-5)) * weight + bias

    @staticmethod
    def rms_norm(x, weight):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + np.float32(1e-5)) * weight

    @staticmethod
    def group_norm(x, groups, weight, bias):
        n, _, *points = x.shape
        d = x.reshape(n, groups, -1)
        d = d - d.mean(-1, keepdims=True)
        y = (d / np.sqrt((d * d).mean(-1, keepdims=True) + np.float32(1e-5))).reshape(x.shape)
        each = (-1, *[1] * len(points))
        return y * weight.reshape(each) + bias.reshape(each)

    @staticmethod
    def resize(x, scale, mode="nearest"):
        if mode == "nearest":
            return x.repeat(scale, 2).repeat(scale, 3)
        for axis in 2, 3:
            size = x.shape[axis]
            at = np.maximum((np.arange(size * scale) + 0.5) / scale - 0.5, 0)
            first = at.astype(int)
            t = (at - first).astype(np.float32).reshape(-1, *[1] * (3 - axis))
            x = x.take(first, axis) * (1 - t) + x.take(np.minimum(first + 1, size - 1), axis) * t
        return x


def _options(**options):
    return tuple(options.items())


PASSES = {
    "max_pool3s2_64x112": Pass("max_pool2d", (1, 64, 112, 112), _options(kernel_size=3, stride=2, padding=1)),
    "max_pool3s2_64x112_nhwc": Pass(
        "max_pool2d", (1, 64, 112, 112), _options(kernel_size=3, stride=2, padding=1), True
    ),
    "max_pool5_512x13_nhwc": Pass("max_pool2d", (1, 512, 13, 13), _options(kernel_size=5, stride=1, padding=2), True),
    "avg_pool3_192x35": Pass("avg_pool2d", (1, 192, 35, 35), _options(kernel_size=3, stride=1, padding=1)),
    "avg_pool_global_2048x7": Pass("avg_pool2d", (1, 2048, 7, 7), _options(kernel_size=7)),
    "avg_pool_global_2048x7_nhwc": Pass("avg_pool2d", (1, 2048, 7, 7), _options(kernel_size=7), True),
    "softmax_1024x128": Pass("softmax", (8, 128, 128)),
    "softmax_64x1000": Pass("softmax", (64, 1000)),
    "softmax_channels_19x64": Pass("softmax", (1, 19, 64, 64), _options(axis=1)),
    "layer_norm_128x768": Pass("layer_norm", (128, 768)),
    "layer_norm_residual_128x768": Pass("layer_norm", (128, 768), residual=True),
    "rms_norm_128x768": Pass("rms_norm", (128, 768)),
    "group_norm_128x32": Pass("group_norm", (1, 128, 32, 32), _options(groups=32)),
    "resize_nearest_32x64": Pass("resize", (1, 32, 64, 64), _options(scale=2)),
    "resize_linear_32x64": Pass("resize", (1, 32, 64, 64), _options(scale=2, mode="linear")),
    "resize_linear_32x64_nhwc": Pass("resize", (1, 32, 64, 64), _options(scale=2, mode="linear"), True),
}
