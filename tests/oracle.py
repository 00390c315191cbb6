"""The truth the kernels are compared with: each operation in plain NumPy float64, and how far float32 may be off.

Every function has the name and the arguments of the public one and returns an `Approx`: the exact value and a bound on
the error of any sensible float32 computation of it, by running error analysis: a sum of k products is off by at
most k u sum |a||b| with u = 2**-24, whatever its order, and hardly ever by more than a few sqrt(k) u sum |a||b|, as
roundings go both ways; each later step adds its own. A term left out or read from a neighbour is far outside.
"""
import math
from typing import NamedTuple

import numpy as np

U = 2.0**-24  # the most that one float32 operation may be off, relative to its result
TINY = 1e-36  # what flushed denormals may add up to
STEEPEST = 1.5  # no activation has a larger slope than hardswish, its own parameters aside


class Approx(NamedTuple):
    """An exact value, and how far a float32 computation of it may be off."""

    value: np.ndarray
    error: np.ndarray

    def __add__(self, other):
        return Approx(
            self.value + other.value,
            self.error + other.error + 2 * U * (np.abs(self.value) + np.abs(other.value)),
        )

    def __mul__(self, other):
        a, b = np.abs(self.value), np.abs(other.value)
        return Approx(self.value * other.value, a * other.error + b * self.error + 2 * U * a * b + TINY)

    def map(self, function):
        """The same rearrangement of value and error: a part, a transpose."""
        return Approx(function(self.value), function(self.error))

    def split(self, parts):
        return [Approx(v, e) for v, e in zip(np.split(self.value, parts, -1), np.split(self.error, parts, -1))]


def exact(x):
    return x if isinstance(x, Approx) else Approx(np.asarray(x, np.float64), np.zeros(np.shape(x)))


def check(actual, expected, error=None):
    """`actual` is float32, has the right shape and lies within the bound; NaN and infinities stand where they must.

    `error`, if given, replaces the bound: the largest |actual - y| allowed, relative to the largest |y| (Winograd).
    """
    value, bound = expected
    assert type(actual) is np.ndarray and actual.dtype == np.float32
    assert actual.shape == value.shape
    if error is not None:
        bound = error * np.abs(value).max(initial=0) + TINY
    with np.errstate(invalid="ignore"):
        off = np.abs(actual - value)
        good = (off <= bound) | (actual == value) | (np.isnan(actual) & np.isnan(value))
    if good.all():
        return
    bad = np.argwhere(~good)
    at = tuple(map(int, bad[0]))
    raise AssertionError(
        f"{len(bad)} of {good.size} elements are off; the first at {at}: "
        f"{actual[at]!r} for {value[at]!r}, allowed {np.broadcast_to(bound, value.shape)[at]:.3g}"
    )


# Activations


def _sigmoid(x):
    e = np.exp(-np.abs(x))
    return np.where(x < 0, e, 1) / (1 + e)


def _times(x, gate):
    """x * gate, where a gate that closes wins over an infinite x."""
    return np.where(gate == 0, 0, x * gate)


_erfc = np.vectorize(math.erfc, otypes=[np.float64])

ACTIVATIONS = {
    "relu": lambda x: np.maximum(x, 0),
    "relu6": lambda x: np.clip(x, 0, 6),
    "clip": lambda x, lo, hi: np.clip(x, lo, hi),
    "leaky_relu": lambda x, slope=0.01: np.where(x < 0, slope * x, x),
    "elu": lambda x, alpha=1.0: np.where(x < 0, alpha * np.expm1(np.minimum(x, 0)), x),
    "sigmoid": _sigmoid,
    "tanh": np.tanh,
    "gelu": lambda x: _times(x, 0.5 * _erfc(-x / math.sqrt(2))),
    "gelu_tanh": lambda x: _times(x, _sigmoid(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "silu": lambda x: _times(x, _sigmoid(x)),
    "hardsigmoid": lambda x: np.clip(x / 6 + 0.5, 0, 1),
    "hardswish": lambda x: _times(x, np.clip(x / 6 + 0.5, 0, 1)),
    "softplus": lambda x: np.logaddexp(0, x),
    "mish": lambda x: _times(x, np.tanh(np.logaddexp(0, x))),
    "prelu": lambda x, slopes: np.where(x < 0, slopes * x, x),
}


def activate(x, activation, channels=lambda v: v):
    """`activation` of x; `channels` makes an array with one number per channel broadcast over x."""
    x = exact(x)
    if activation is None:
        return x
    name, *parameters = (activation,) if isinstance(activation, str) else activation
    parameters = [channels(np.asarray(p, np.float64)) if np.ndim(p) else np.float64(p) for p in parameters]
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        y = ACTIVATIONS[name](x.value, *parameters)
        slope = STEEPEST if name == "clip" else STEEPEST * max([1.0, *(np.abs(p).max(initial=0) for p in parameters)])
        return Approx(y, slope * x.error + _activation_error(name, x.value, y))


ULPS = dict(relu=0, relu6=0, clip=0, leaky_relu=1, prelu=1)  # of the result; 5 of any other


def _activation_error(name, x, y):
    """What the computation of y = activation(x) may add by itself."""
    ulps, floor = ULPS.get(name, 5), TINY
    if name in ("gelu", "gelu_tanh"):  # on the left near e^(-x^2 / 2), which has the rounding of its exponent
        ulps, floor = ulps + 3 * np.clip(-x, 0, 14) ** 2, 1e-11
    return 2 * U * ulps * np.abs(y) + floor


# Convolution and product


def fused(op, x, w, k, channels, bias=None, bn=None, residual=None, activation=None):
    """activation(batch_norm(op(x, w) + bias) + residual) for an op that is linear in x and in w and sums k products."""
    x, w = exact(x), np.asarray(w, np.float64)
    y, size, error = op(x.value, w), op(np.abs(x.value), np.abs(w)), op(x.error, np.abs(w))
    if bias is not None:
        bias = channels(np.asarray(bias, np.float64))
        y, size = y + bias, size + np.abs(bias)
    if bn is not None:
        scale, mean, beta = (channels(v) for v in _batch_norm(bn))
        y, size = (y - mean) * scale + beta, (size + np.abs(mean)) * np.abs(scale) + np.abs(beta)
        error = error * np.abs(scale)
    if residual is not None:
        residual = np.asarray(residual, np.float64)
        y, size = y + residual, size + np.abs(residual)
    return activate(Approx(y, error + (min(k, 4 * math.sqrt(k)) + 8) * U * size + TINY), activation, channels)


def _batch_norm(bn):
    gamma, beta, mean, var, eps = (None if v is None else np.asarray(v, np.float64) for v in bn)
    scale = (1 if gamma is None else gamma) / np.sqrt(var + eps)
    return scale, mean, np.zeros_like(mean) if beta is None else beta


def fold_batch_norm(w, bias, bn):
    """The exact weights and bias that do what w, bias and the batch norm do."""
    scale, mean, beta = _batch_norm(bn)
    w = np.asarray(w, np.float64)
    return w * scale.reshape(-1, *[1] * (w.ndim - 1)), ((0 if bias is None else bias) - mean) * scale + beta


def pair(v):
    return (v, v) if np.ndim(v) == 0 else tuple(v)


def pads(padding, image, kernel, stride, dilation):
    """((top, bottom), (left, right)). "same" gives ceil(image / stride) pixels, the odd one of the padding after."""
    if padding == "valid":
        padding = 0
    if padding == "same":
        spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilation)]
        total = [max((math.ceil(i / s) - 1) * s + span - i, 0) for i, s, span in zip(image, stride, spans)]
        return tuple((t // 2, t - t // 2) for t in total)
    return tuple(pair(p) for p in pair(padding))


def conv2d(x, w, *, bias=None, bn=None, residual=None, activation=None, stride=1, padding=0, dilation=1, groups=1,
           layout="NCHW", algorithm="direct"):
    if layout == "NHWC":
        x = np.moveaxis(x, 3, 1)
        residual = None if residual is None else np.moveaxis(residual, 3, 1)
    (sh, sw), (dh, dw) = stride, dilation = pair(stride), pair(dilation)
    (n, _, *image), (oc, icg, *kernel) = x.shape, w.shape
    padding = pads(padding, image, kernel, stride, dilation)
    padded = [i + sum(p) for i, p in zip(image, padding)]
    oh, ow = ((i - (k - 1) * d - 1) // s + 1 for i, k, d, s in zip(padded, kernel, dilation, stride))

    def op(x, w):
        x = np.pad(x, ((0, 0), (0, 0), *padding)).reshape(n, groups, icg, *padded)
        w = np.ascontiguousarray(np.moveaxis(w.reshape(groups, oc // groups, icg, *kernel), (3, 4), (0, 1)))
        y = np.zeros((n, groups, oc // groups, oh * ow))
        for r, s in np.ndindex(*kernel):
            tap = x[..., r * dh:, s * dw:][..., : (oh - 1) * sh + 1: sh, : (ow - 1) * sw + 1: sw]
            y += w[r, s] @ tap.reshape(n, groups, icg, oh * ow)
        return y.reshape(n, oc, oh, ow)

    y = fused(op, x, w, icg * math.prod(kernel), lambda v: v.reshape(-1, 1, 1), bias, bn, residual, activation)
    return y.map(lambda v: np.moveaxis(v, 1, 3)) if layout == "NHWC" else y


def conv_bn_relu(x, w, bn=None, **options):
    return conv2d(x, w, bn=bn, activation="relu", **options)


def depthwise_conv2d(x, w, *, layout="NCHW", **options):
    w = w[:, None] if w.ndim == 3 else w
    return conv2d(x, w, groups=x.shape[3 if layout == "NHWC" else 1], layout=layout, **options)


def depthwise_conv_bn_relu(x, w, bn=None, **options):
    return depthwise_conv2d(x, w, bn=bn, activation="relu", **options)


def gemm(a, b, *, bias=None, residual=None, activation=None):
    return fused(np.matmul, a, b, b.shape[0], lambda v: v, bias, None, residual, activation)


def linear(x, w, bias=None, *, residual=None, activation=None):
    return gemm(x, w.T, bias=bias, residual=residual, activation=activation)


# Recurrent cells


def _gates(x, h, w_ih, w_hh, b_ih, b_hh):
    """Both products as one sum, so that it does not matter where an implementation adds them up."""
    return linear(np.concatenate([x, h], -1), np.concatenate([w_ih, w_hh], -1), b_ih, residual=b_hh)


def rnn_cell(x, h, w_ih, w_hh, b_ih=None, b_hh=None, *, activation="tanh"):
    return activate(_gates(x, h, w_ih, w_hh, b_ih, b_hh), activation)


def lstm_cell(x, h, c, w_ih, w_hh, b_ih=None, b_hh=None):
    i, f, g, o = _gates(x, h, w_ih, w_hh, b_ih, b_hh).split(4)
    c = activate(f, "sigmoid") * exact(c) + activate(i, "sigmoid") * activate(g, "tanh")
    return activate(o, "sigmoid") * activate(c, "tanh"), c


def gru_cell(x, h, w_ih, w_hh, b_ih=None, b_hh=None, *, reset_after=True):
    def part(v, lo, hi):
        return None if v is None else v[lo * size: hi * size]

    size = h.shape[-1]
    r, z = activate(_gates(x, h, *(part(v, 0, 2) for v in (w_ih, w_hh, b_ih, b_hh))), "sigmoid").split(2)
    w_in, w_hn, b_in, b_hn = (part(v, 2, 3) for v in (w_ih, w_hh, b_ih, b_hh))
    h = exact(h)
    state = r * linear(h, w_hn, b_hn) if reset_after else linear(r * h, w_hn, b_hn)
    n = activate(linear(x, w_in, b_in) + state, "tanh")
    return Approx(1 - z.value, z.error + U) * n + z * h
