"""The truth the kernels are compared with: each operation in plain NumPy float64, and how far float32 may be off.

Every function has the name and the arguments of the public one and returns an `Approx`: the exact value and a bound on
the error of any sensible float32 computation of it, by running error analysis: a sum of k products is off by at
most k u sum |a||b| with u = 2**-24, whatever its order, and rarely by more than a few sqrt(k) u sum |a||b|, as
roundings go both ways; each later step adds its own. A term left out or read from a neighbor is far outside.
"""

import functools
import hashlib
import math
import pickle
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

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


class _Kept:
    """The last results, up to a number of bytes."""

    def __init__(self, most=256 << 20):
        self.results, self.free = {}, most

    def get(self, key, function):
        if key not in self.results:
            self.results[key] = result = function()
            for array in result:
                array.setflags(write=False)
                self.free -= array.nbytes
            while self.free < 0 and len(self.results) > 1:
                self.free += sum(a.nbytes for a in self.results.pop(next(iter(self.results))))
        return self.results[key]


_kept = _Kept()


def once(function):
    """`function`, computed once for equal arguments: tests ask again for each instruction set and number of threads."""

    @functools.wraps(function)
    def remembered(*args, **options):
        call = pickle.dumps((function.__name__, args, sorted(options.items())), protocol=5)
        return _kept.get(hashlib.blake2b(call, digest_size=16).digest(), lambda: function(*args, **options))

    return remembered


def exact(x):
    return x if isinstance(x, Approx) else Approx(np.asarray(x, np.float64), np.zeros(np.shape(x)))


def bf16(x):
    """x rounded to eight bits of mantissa, ties to even."""
    mantissa, exponent = np.frexp(np.asarray(x, np.float64))
    with np.errstate(over="ignore"):
        return np.ldexp(np.rint(np.ldexp(mantissa, 8)), exponent - 8).astype(np.float32)


def cast(x, dtype):
    """x, which may be bfloat16, in float32 or a type of 16 bits."""
    x, bfloat16 = np.asarray(x), np.dtype([("bfloat16", np.uint16)])
    if x.dtype == bfloat16:
        x = (x.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    if dtype == bfloat16:
        return (bf16(x).view(np.uint32) >> 16).astype(np.uint16).view(bfloat16)
    return x.astype(dtype)


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
    "softsign": lambda x: x / (1 + np.abs(x)),
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


# Attention


@once
def attention(q, k, v, *, mask=None, causal=False, scale=None, cap=None):
    """Of a score's error, the weight has as much times itself; sums and products add theirs. A query that sees nothing
    gives 0."""
    q, k, v = (np.asarray(a, np.float64) for a in (q, k, v))
    d, group = q.shape[-1], q.shape[-3] // max(k.shape[-3], 1)
    k, v = (np.repeat(a, group, -3).astype(np.float64) for a in (k, v))
    scale = scale if scale is not None else 1 / math.sqrt(max(d, 1))
    scores, size = (scale * (a @ b.swapaxes(-1, -2)) for a, b in ((q, k), (np.abs(q), np.abs(k))))
    error = 2 * U * (4 + 2 * math.sqrt(d)) * np.abs(size)
    if cap is not None:
        scores, error = cap * np.tanh(scores / cap), error + 8 * U * cap
    if mask is not None and mask.dtype == bool:
        scores = np.where(mask, scores, -np.inf)
    elif mask is not None:
        scores, error = scores + mask, error + 2 * U * np.where(np.isfinite(mask), np.abs(mask), 0)
    if causal:
        scores = np.where(np.tril(np.ones(scores.shape[-2:], bool)), scores, -np.inf)
    top = np.maximum(scores.max(-1, keepdims=True, initial=-np.inf), -np.finfo(np.float64).max)
    weights = np.exp(scores - top)
    total = weights.sum(-1, keepdims=True)
    weights = np.where(total == 0, 0, weights / np.where(total == 0, 1, total))
    error = weights * (
        error + (weights * error).sum(-1, keepdims=True) + 2 * U * (8 + np.where(weights > 0, top - scores, 0))
    )
    return Approx(
        weights @ v, error @ np.abs(v) + 2 * U * 2 * math.sqrt(v.shape[-2] + 1) * (weights @ np.abs(v)) + TINY
    )


# Convolution and product


def fused(op, x, w, k, channels, bias=None, bn=None, residual=None, activation=None):
    """activation(batch_norm(op(x, w) + bias) + residual) for an op that is linear in x and in w and sums k products."""
    given, x, w = x, exact(x), np.asarray(w, np.float64)
    y, size = op(x.value, w), op(np.abs(x.value), np.abs(w))
    error = op(x.error, np.abs(w)) if isinstance(given, Approx) else 0
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


def convolution(x, w, stride, padding, dilation, groups):
    """NCHW, by im2col of some output rows at a time, which a cache holds."""
    (n, c, ih, iw), (oc, _, *kernel), ((top, bottom), (left, right)) = x.shape, w.shape, padding
    padded = np.zeros((n, c, top + ih + bottom, left + iw + right))
    padded[:, :, top : top + ih, left : left + iw] = x
    seen = sliding_window_view(padded, [(k - 1) * d + 1 for k, d in zip(kernel, dilation)], (2, 3))
    seen = seen[:, :, :: stride[0], :: stride[1], :: dilation[0], :: dilation[1]].transpose(0, 1, 4, 5, 2, 3)
    taps, (oh, ow) = c // groups * math.prod(kernel), seen.shape[4:]
    y, w = np.zeros((n, groups, oc // groups, oh, ow)), w.reshape(groups, oc // groups, taps)
    rows = max(1, (1 << 17) // max(1, n * groups * taps * ow))
    for i in range(0, oh, rows):
        some = seen[..., i : i + rows, :]
        part = y[..., i : i + rows, :]
        part[...] = (w @ some.reshape(n, groups, taps, math.prod(some.shape[4:]))).reshape(part.shape)
    return y.reshape(n, oc, oh, ow)


@once
def conv2d(
    x,
    w,
    *,
    bias=None,
    bn=None,
    residual=None,
    activation=None,
    stride=1,
    padding=0,
    dilation=1,
    groups=1,
    layout="NCHW",
    algorithm="direct",
):
    if layout == "NHWC":
        x = np.moveaxis(x, 3, 1)
        residual = None if residual is None else np.moveaxis(residual, 3, 1)
    stride, dilation, kernel = pair(stride), pair(dilation), w.shape[2:]
    padding = pads(padding, x.shape[2:], kernel, stride, dilation)

    def op(x, w):
        return convolution(x, w, stride, padding, dilation, groups)

    y = fused(op, x, w, math.prod(w.shape[1:]), lambda v: v.reshape(-1, 1, 1), bias, bn, residual, activation)
    return y.map(lambda v: np.moveaxis(v, 1, 3)) if layout == "NHWC" else y


def conv_bn_relu(x, w, bn=None, **options):
    return conv2d(x, w, bn=bn, activation="relu", **options)


def depthwise_conv2d(x, w, *, layout="NCHW", **options):
    w = w[:, None] if w.ndim == 3 else w
    return conv2d(x, w, groups=x.shape[3 if layout == "NHWC" else 1], layout=layout, **options)


def depthwise_conv_bn_relu(x, w, bn=None, **options):
    return depthwise_conv2d(x, w, bn=bn, activation="relu", **options)


def conv1d(x, w, *, residual=None, stride=1, padding=0, dilation=1, layout="NCHW", **options):
    """A convolution of images of one row."""
    row = 1 if layout == "NHWC" else 2
    if not isinstance(padding, str):
        padding = ((0, 0), pair(padding))
    residual = None if residual is None else np.expand_dims(residual, row)
    y = conv2d(
        np.expand_dims(x, row),
        w[:, :, None],
        residual=residual,
        stride=(1, stride),
        padding=padding,
        dilation=(1, dilation),
        layout=layout,
        **options,
    )
    return y.map(lambda v: v.squeeze(row))


@once
def conv_transpose2d(
    x,
    w,
    *,
    bias=None,
    bn=None,
    residual=None,
    activation=None,
    stride=1,
    padding=0,
    output_padding=0,
    dilation=1,
    groups=1,
    layout="NCHW",
):
    """Each pixel of x spreads over a window of y."""
    if layout == "NHWC":
        x = np.moveaxis(x, 3, 1)
        residual = None if residual is None else np.moveaxis(residual, 3, 1)
    (sh, sw), (dh, dw), (more_h, more_w) = stride, dilation, _ = pair(stride), pair(dilation), pair(output_padding)
    (n, ic, ih, iw), (_, ocg, kh, kw) = x.shape, w.shape
    whole = (ih - 1) * sh + (kh - 1) * dh + 1, (iw - 1) * sw + (kw - 1) * dw + 1
    if padding == "same":
        total = [max(i - size * s, 0) for i, size, s in zip(whole, (ih, iw), (sh, sw))]
        oh, ow = ih * sh, iw * sw
        padding = tuple((t // 2, t - t // 2) for t in total)
    else:
        padding = pads(padding, (ih, iw), (kh, kw), stride, dilation)
        oh, ow = (size + more - sum(p) for size, more, p in zip(whole, (more_h, more_w), padding))

    def op(x, w):
        y = np.zeros((n, groups, ocg, max(whole[0], oh + padding[0][0]), max(whole[1], ow + padding[1][0])))
        x, w = x.reshape(n, groups, ic // groups, ih * iw), w.reshape(groups, ic // groups, ocg * kh * kw)
        windows = (w.swapaxes(1, 2) @ x).reshape(n, groups, ocg, kh, kw, ih, iw)
        for i, j in np.ndindex(kh, kw):
            y[..., i * dh :, j * dw :][..., : (ih - 1) * sh + 1 : sh, : (iw - 1) * sw + 1 : sw] += windows[
                ..., i, j, :, :
            ]
        return y.reshape(n, -1, *y.shape[3:])[:, :, padding[0][0] :, padding[1][0] :][:, :, :oh, :ow]

    y = fused(op, x, w, ic // groups * kh * kw, lambda v: v.reshape(-1, 1, 1), bias, bn, residual, activation)
    return y.map(lambda v: np.moveaxis(v, 1, 3)) if layout == "NHWC" else y


def conv_transpose1d(
    x, w, *, residual=None, stride=1, padding=0, output_padding=0, dilation=1, layout="NCHW", **options
):
    """A transposed convolution of images of one row."""
    row = 1 if layout == "NHWC" else 2
    y = conv_transpose2d(
        np.expand_dims(x, row),
        w[:, :, None],
        residual=None if residual is None else np.expand_dims(residual, row),
        stride=(1, stride),
        padding=padding if isinstance(padding, str) else ((0, 0), pair(padding)),
        output_padding=(0, output_padding),
        dilation=(1, dilation),
        layout=layout,
        **options,
    )
    return y.map(lambda v: v.squeeze(row))


def triple(v):
    return (v,) * 3 if np.ndim(v) == 0 else tuple(v)


def conv3d(
    x,
    w,
    *,
    bias=None,
    bn=None,
    residual=None,
    activation=None,
    stride=1,
    padding=0,
    dilation=1,
    groups=1,
    layout="NCHW",
):
    """A sum over the windows of the padded image, tap by tap."""
    if layout == "NHWC":
        x = np.moveaxis(x, -1, 1)
        residual = None if residual is None else np.moveaxis(residual, -1, 1)
    stride, dilation, (oc, icg, *kernel) = triple(stride), triple(dilation), w.shape
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilation)]
    if padding == "same":
        total = [max((math.ceil(i / s) - 1) * s + span - i, 0) for i, s, span in zip(x.shape[2:], stride, spans)]
        padding = [(t // 2, t - t // 2) for t in total]
    else:
        padding = [pair(p) for p in triple(0 if padding == "valid" else padding)]
    size = [(i + sum(p) - span) // s + 1 for i, p, span, s in zip(x.shape[2:], padding, spans, stride)]

    def op(x, w):
        x = np.pad(x, ((0, 0), (0, 0), *padding)).reshape(
            len(x), groups, icg, *(np.add(x.shape[2:], list(map(sum, padding))))
        )
        w, y = w.reshape(groups, oc // groups, icg, *kernel), np.zeros((len(x), groups, oc // groups, *size))
        for tap in np.ndindex(*kernel):
            at = (slice(t * d, t * d + (n - 1) * s + 1, s) for t, d, n, s in zip(tap, dilation, size, stride))
            y += np.einsum("goc,ngcdhw->ngodhw", w[(..., *tap)], x[(..., *at)])
        return y.reshape(len(x), oc, *size)

    y = fused(op, x, w, math.prod(w.shape[1:]), lambda v: v.reshape(-1, 1, 1, 1), bias, bn, residual, activation)
    return y.map(lambda v: np.moveaxis(v, 1, -1)) if layout == "NHWC" else y


def _channels_first(function):
    """The same for layout="NHWC"."""

    def either(x, *args, layout="NCHW", **options):
        if layout == "NCHW":
            return function(x, *args, **options)
        return function(np.moveaxis(x, -1, 1), *args, **options).map(lambda v: np.moveaxis(v, 1, -1))

    return either


# Activations and batch norm alone


def activation(x, activation):
    x = Approx(np.asarray(x, np.float64), np.full(np.shape(x), TINY))  # denormals count as zero
    return activate(x, activation, lambda v: v if v.size == 1 else v.reshape(-1, *[1] * (x.value.ndim - 2)))


@_channels_first
def batch_norm(x, bn, *, activation=None):
    """Scale and shift are rounded once, then a product and a sum."""

    def channels(v):
        return v.reshape(-1, *[1] * (x.ndim - 2))

    scale, mean, beta = _batch_norm(bn)
    shift = beta - mean * scale
    product = x * channels(scale)
    error = 4 * U * (np.abs(product) + np.abs(channels(shift))) + TINY
    return activate(Approx(product + channels(shift), error), activation, channels)


# Pools, softmax, norms, resizing


def _pooled(x, kernel_size, stride, padding, dilation, ceil_mode, outside):
    """x's windows as (n, c, oh, ow, points), `outside` where they leave it, and the windows of whether zeros count."""
    kernel = pair(kernel_size)
    stride, dilation = kernel if stride is None else pair(stride), pair(dilation)
    padding = pads(padding, x.shape[2:], kernel, stride, dilation)
    size, room = [], []
    for i, k, s, d, (before, after) in zip(x.shape[2:], kernel, stride, dilation, padding):
        left = i + before + after - (k - 1) * d - 1
        count = left // s + 1
        if ceil_mode and left % s and count * s < i + before:  # the last window begins inside
            count += 1
        size.append(count)
        room.append((before, after, max(count * s + k * d - i - before - after, 0)))

    def windows(a, inside, beyond):
        """a with `inside` in the padding and `beyond` it."""
        a = np.pad(a, ((0, 0), (0, 0), *(r[:2] for r in room)), constant_values=inside)
        a = np.pad(a, ((0, 0), (0, 0), *((0, r[2]) for r in room)), constant_values=beyond)
        taps = [a[:, :, i * dilation[0] :, j * dilation[1] :] for i, j in np.ndindex(*kernel)]
        ends = [slice(0, count * s, s) for count, s in zip(size, stride)]
        return np.stack([tap[:, :, ends[0], ends[1]] for tap in taps], -1)

    ones = np.ones((1, 1, *x.shape[2:]))
    return windows(np.asarray(x, np.float64), outside, outside), windows(ones, 1, 0), windows(ones, 0, 0)


@_channels_first
def max_pool2d(x, kernel_size, *, stride=None, padding=0, dilation=1, ceil_mode=False):
    windows, _, _ = _pooled(x, kernel_size, stride, padding, dilation, ceil_mode, -np.inf)
    largest = windows.max(-1)
    return Approx(largest, np.full(largest.shape, TINY))  # denormals count as zero


@_channels_first
def avg_pool2d(x, kernel_size, *, stride=None, padding=0, dilation=1, ceil_mode=False, count_include_pad=True):
    windows, padded, image = _pooled(x, kernel_size, stride, padding, dilation, ceil_mode, 0)
    counts = (padded if count_include_pad else image).sum(-1)
    with np.errstate(invalid="ignore"):
        return Approx(windows.sum(-1) / counts, (windows.shape[-1] + 2) * U * np.abs(windows).sum(-1) / counts + TINY)


def _of_rows(pool):
    """A pool of sequences from one of images."""

    def of_rows(x, kernel_size, *, stride=None, padding=0, dilation=1, layout="NCHW", **options):
        row = 1 if layout == "NHWC" else 2
        y = pool(
            np.expand_dims(x, row),
            (1, kernel_size),
            stride=None if stride is None else (1, stride),
            padding=padding if isinstance(padding, str) else ((0, 0), pair(padding)),
            dilation=(1, dilation),
            layout=layout,
            **options,
        )
        return y.map(lambda v: v.squeeze(row))

    return of_rows


max_pool1d, avg_pool1d = _of_rows(max_pool2d), _of_rows(avg_pool2d)


@_channels_first
def adaptive_avg_pool2d(x, size):
    x = np.asarray(x, np.float64)
    y, error = (np.zeros((*x.shape[:2], *pair(size))) for _ in range(2))
    for h, w in np.ndindex(*pair(size)):
        rows, columns = (slice(p * i // o, -(-(p + 1) * i // o)) for p, i, o in zip((h, w), x.shape[2:], pair(size)))
        window = x[:, :, rows, columns]
        window = window.reshape(*x.shape[:2], math.prod(window.shape[2:]))
        y[:, :, h, w] = window.mean(-1)
        error[:, :, h, w] = (window.shape[-1] + 2) * U * np.abs(window).mean(-1) + TINY
    return Approx(y, error)


def global_avg_pool2d(x, *, layout="NCHW"):
    return adaptive_avg_pool2d(x, 1, layout=layout)


def _log_softmax(x, axis):
    x = np.asarray(x, np.float64)
    with np.errstate(invalid="ignore"):
        fall = x - x.max(axis, keepdims=True, initial=-np.inf)
        return fall - np.log(np.exp(fall).sum(axis, keepdims=True))


def softmax(x, axis=-1):
    """The exponent's own rounding, some of the function's, and those of a sum of positive numbers."""
    y = np.exp(_log_softmax(x, axis))
    with np.errstate(invalid="ignore"):
        fall = np.where(y > 0, np.abs(x - x.max(axis, keepdims=True, initial=-np.inf)), 0)
    return Approx(y, (fall + 12 + 4 * math.log2(x.shape[axis] + 1)) * U * y + TINY)


def log_softmax(x, axis=-1):
    y = _log_softmax(x, axis)
    return Approx(y, 4 * U * np.abs(y) + (12 + 4 * math.log2(x.shape[axis] + 1)) * U)


def _normed(s, error, axes, eps, rms, weight, bias):
    """s normalized over axes; `error` is how far s may be off already."""
    mean = 0 if rms else s.mean(axes, keepdims=True)
    d = s - mean
    size = np.sqrt((d * d).mean(axes, keepdims=True))
    root = np.sqrt(size**2 + eps)
    off = error + error.mean(axes, keepdims=True) + 4 * U * (np.abs(d) + size)
    y, weight = d / root, 1 if weight is None else np.asarray(weight, np.float64)
    error = off / root + np.abs(y) * (np.sqrt((off**2).mean(axes, keepdims=True)) / root + 8 * U)
    y, error = y * weight, error * np.abs(weight)
    bias = 0 if bias is None else np.asarray(bias, np.float64)
    return Approx(y + bias, error + 4 * U * (np.abs(y) + np.abs(bias)) + TINY)


def _summed(x, residual):
    """x + residual, and the rounding of a sum."""
    s = np.asarray(x, np.float64) + (0 if residual is None else np.asarray(residual, np.float64))
    return s, np.zeros_like(s) if residual is None else U * np.abs(s)


@once
def layer_norm(x, weight=None, bias=None, *, eps=1e-5, residual=None):
    return _normed(*_summed(x, residual), -1, eps, False, weight, bias)


def rms_norm(x, weight=None, *, eps=1e-5, residual=None):
    return _normed(*_summed(x, residual), -1, eps, True, weight, None)


@once
def group_norm(x, groups, weight=None, bias=None, *, eps=1e-5, residual=None, layout="NCHW"):
    s, error = _summed(x, residual)
    if layout == "NHWC":
        s, error = np.moveaxis(s, -1, 1), np.moveaxis(error, -1, 1)
    n, c, *points = s.shape

    def grouped(v):
        return v.reshape(n, groups, c // groups, math.prod(points))

    weight, bias = (None if v is None else v.reshape(1, groups, -1, 1) for v in (weight, bias))
    y = _normed(grouped(s), grouped(error), (2, 3), eps, False, weight, bias).map(lambda v: v.reshape(n, c, *points))
    return y.map(lambda v: np.moveaxis(v, 1, -1)) if layout == "NHWC" else y


def instance_norm(x, weight=None, bias=None, *, eps=1e-5, layout="NCHW"):
    return group_norm(x, x.shape[-1 if layout == "NHWC" else 1], weight, bias, eps=eps, layout=layout)


@_channels_first
def resize(x, size=None, scale=None, mode="nearest", *, align_corners=False):
    scales = (None, None) if scale is None else pair(scale)
    sizes = pair(size) if scale is None else [int(i * s) for i, s in zip(x.shape[2:], scales)]
    y = np.asarray(x, np.float64)
    for axis, i, o, s in zip((2, 3), x.shape[2:], sizes, scales):
        by_sizes = s is None or o == i or mode == "nearest" and o == 2 * i
        step, at = i / o if by_sizes else 1 / s, np.arange(o)
        if mode == "nearest":
            places = np.minimum((at.astype(np.float32) * np.float32(step)).astype(int), i - 1)
            y = y.take(places, axis)
            continue
        at = at * ((i - 1) / max(o - 1, 1)) if align_corners else np.maximum((at + 0.5) * step - 0.5, 0)
        first = np.minimum(at.astype(int), i - 1)
        t = (at - first).reshape(-1, *[1] * (3 - axis))
        y = (1 - t) * y.take(first, axis) + t * y.take(np.minimum(first + 1, i - 1), axis)
    return Approx(y, np.full_like(y, (0 if mode == "nearest" else 12) * U * np.abs(x).max(initial=0)))


@once
def gemm(a, b, *, bias=None, residual=None, activation=None):
    return fused(np.matmul, a, b, b.shape[0], lambda v: v, bias, None, residual, activation)


def matmul(a, b):
    return fused(np.matmul, a, b, a.shape[-1], lambda v: v)


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
        return None if v is None else v[lo * size : hi * size]

    size = h.shape[-1]
    r, z = activate(_gates(x, h, *(part(v, 0, 2) for v in (w_ih, w_hh, b_ih, b_hh))), "sigmoid").split(2)
    w_in, w_hn, b_in, b_hn = (part(v, 2, 3) for v in (w_ih, w_hh, b_ih, b_hh))
    h = exact(h)
    state = r * linear(h, w_hn, b_hn) if reset_after else linear(r * h, w_hn, b_hn)
    n = activate(linear(x, w_in, b_in) + state, "tanh")
    return Approx(1 - z.value, z.error + U) * n + z * h


def twice(sums, scale, unit, bias, nudge):
    """Sums and a bias in whole numbers of them, times a multiplier of 31 bits, rounded with what is added to the size;
    halves up."""
    part, exponent = np.frexp(scale / unit)
    y = (sums + (0 if bias is None else np.rint(bias / scale))) * np.ldexp(np.rint(part * 2.0**31), exponent - 31)
    return np.rint(y + np.copysign(nudge.astype(np.float32), y) + 2.0**-24).astype(np.float32)
