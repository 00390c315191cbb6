"""One-shot functions, unfused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .. import _core, functional, layers, pointwise, tokens, volumes
from ..batchnorm import fold_batch_norm
from ..bfloat16 import rounded
from ..positions import options_by_name
from .unfused_layers import Conv1d, Conv2d, ConvTranspose1d, ConvTranspose2d, Linear, _Unfused

if TYPE_CHECKING:
    from typing import Any

    from .._types import (
        Activation,
        Algorithm,
        Array,
        Input,
        Ints,
        Layout,
        Padding,
        Padding1d,
        Padding3d,
        Precision,
        Triple,
    )
    from ..batchnorm import BatchNorm


@options_by_name
def conv1d(
    x: Input,
    w: Input,
    *,
    bias: Input | None = None,
    bn: BatchNorm | None = None,
    residual: Input | None = None,
    activation: Activation = None,
    stride: int = 1,
    padding: Padding1d = 0,
    dilation: int = 1,
    groups: int = 1,
    layout: Layout = "NCHW",
    algorithm: Algorithm = "auto",
    out: Array | None = None,
    fold_bn: bool = False,
) -> Array:
    """:func:`fusedops.conv1d`, unfused."""
    layer = Conv1d(
        w,
        bias,
        bn,
        activation=activation,
        stride=stride,
        padding=padding,
        dilation=dilation,
        groups=groups,
        layout=layout,
        algorithm=algorithm,
        fold_bn=fold_bn,
    )
    return layer(x, residual, out)


@options_by_name
def conv_transpose2d(
    x: Input,
    w: Input,
    *,
    bias: Input | None = None,
    bn: BatchNorm | None = None,
    residual: Input | None = None,
    activation: Activation = None,
    stride: Ints = 1,
    padding: Padding = 0,
    output_padding: Ints = 0,
    dilation: Ints = 1,
    groups: int = 1,
    layout: Layout = "NCHW",
    out: Array | None = None,
    fold_bn: bool = False,
) -> Array:
    """:func:`fusedops.conv_transpose2d`, unfused."""
    layer = ConvTranspose2d(
        w,
        bias,
        bn,
        activation=activation,
        stride=stride,
        padding=padding,
        output_padding=output_padding,
        dilation=dilation,
        groups=groups,
        layout=layout,
        fold_bn=fold_bn,
    )
    return layer(x, residual, out)


@options_by_name
def conv_transpose1d(
    x: Input,
    w: Input,
    *,
    bias: Input | None = None,
    bn: BatchNorm | None = None,
    residual: Input | None = None,
    activation: Activation = None,
    stride: int = 1,
    padding: Padding1d = 0,
    output_padding: int = 0,
    dilation: int = 1,
    groups: int = 1,
    layout: Layout = "NCHW",
    out: Array | None = None,
    fold_bn: bool = False,
) -> Array:
    """:func:`fusedops.conv_transpose1d`, unfused."""
    layer = ConvTranspose1d(
        w,
        bias,
        bn,
        activation=activation,
        stride=stride,
        padding=padding,
        output_padding=output_padding,
        dilation=dilation,
        groups=groups,
        layout=layout,
        fold_bn=fold_bn,
    )
    return layer(x, residual, out)


@options_by_name
def conv3d(
    x: Input,
    w: Input,
    *,
    bias: Input | None = None,
    bn: BatchNorm | None = None,
    residual: Input | None = None,
    activation: Activation = None,
    stride: Triple = 1,
    padding: Padding3d = 0,
    dilation: Triple = 1,
    groups: int = 1,
    layout: Layout = "NCHW",
    out: Array | None = None,
    fold_bn: bool = False,
) -> Array:
    """:func:`fusedops.conv3d`, unfused."""
    w = _core.as_input(w, "w", 5)
    if fold_bn and bn is not None:
        w, bias = fold_batch_norm(w, bias, bn)
        bn = None

    def kernel(bias):
        windows: dict[str, Any] = dict(stride=stride, padding=padding, dilation=dilation, groups=groups, layout=layout)
        return volumes.Convolution(w, bias, None, activation=None, **windows)

    return _Unfused(kernel, w.shape[0], layout == "NHWC", bias, bn, activation, fold_bn)(x, residual, out)


def batch_norm(
    x: Input, bn: BatchNorm, *, activation: Activation = None, layout: Layout = "NCHW", out: Array | None = None
) -> Array:
    """:func:`fusedops.batch_norm`, the activation in a pass of its own."""
    parsed = pointwise.normed_operands(x, bn, activation, layout)[3]
    y = functional.batch_norm(x, bn, layout=layout, out=out)
    return y if activation is None else _core.affine(y, y.ndim - 1 if layout == "NHWC" else 1, None, None, parsed, y)


def _added(x, residual):
    """x + residual as a pass of its own."""
    if residual is None:
        return x
    x, residual = _core.as_input(x, "x"), _core.as_input(residual, "residual")
    if residual.shape != x.shape:
        raise ValueError(f"residual has shape {residual.shape}, but x has shape {x.shape}")
    y = np.array(x, order="C")
    if y.size:
        rows = (-1, y.shape[-1]) if y.ndim else (1, 1)
        _core.pointwise(y.reshape(rows), y.reshape(rows), residual=np.ascontiguousarray(residual).reshape(rows))
    return y


def layer_norm(
    x: Input,
    weight: Input | None = None,
    bias: Input | None = None,
    *,
    eps: float = 1e-5,
    residual: Input | None = None,
    out: Array | None = None,
) -> Array:
    """:func:`fusedops.layer_norm`, the residual added in a pass of its own."""
    return functional.layer_norm(_added(x, residual), weight, bias, eps=eps, out=out)


def rms_norm(
    x: Input, weight: Input | None = None, *, eps: float = 1e-5, residual: Input | None = None, out: Array | None = None
) -> Array:
    """:func:`fusedops.rms_norm`, the residual added in a pass of its own."""
    return functional.rms_norm(_added(x, residual), weight, eps=eps, out=out)


def group_norm(
    x: Input,
    groups: int,
    weight: Input | None = None,
    bias: Input | None = None,
    *,
    eps: float = 1e-5,
    residual: Input | None = None,
    layout: Layout = "NCHW",
    out: Array | None = None,
) -> Array:
    """:func:`fusedops.group_norm`, the residual added in a pass of its own."""
    return functional.group_norm(_added(x, residual), groups, weight, bias, eps=eps, layout=layout, out=out)


@options_by_name
def attention(
    q: Input,
    k: Input,
    v: Input,
    *,
    mask: Input | None = None,
    causal: bool = False,
    scale: float | None = None,
    precision: Precision = "float32",
    out: Array | None = None,
) -> Array:
    """:func:`fusedops.attention`, unfused: the scores of all queries for all keys, the mask, the softmax and the
    product with the values, each in memory."""
    q, k, v, mask, scale, one = tokens.operands(q, k, v, mask, scale)
    rounds = layers.multiplies(precision)
    if rounds:
        q, k, v, scale = rounded(np.float32(scale) * q), rounded(k), rounded(v), 1.0
    causal, shape, (kv_heads, s, dv) = tokens.flag(causal), (*q.shape[one:-1], v.shape[-1]), v.shape[-3:]
    if out is not None:
        _core.checked_out(out, shape)
    heads, t = q.shape[-3:-1]
    y = np.zeros((*q.shape[:-1], dv), np.float32)
    if y.size and s:
        group = heads // kv_heads
        taken = np.tril(np.ones((t, s), bool)) if causal else None
        if mask is not None and mask.dtype == bool:
            mask, taken = None, mask if taken is None else mask & taken
        scores = np.empty((*q.shape[:-1], s), np.float32)
        by_group = [a.reshape(-1, kv_heads, group, *a.shape[-2:]) for a in (q, scores, y)]
        shared = [
            np.broadcast_to(a.reshape(-1, kv_heads, 1, *a.shape[-2:]), (*by_group[0].shape[:3], *a.shape[-2:]))
            for a in (k, v)
        ]
        _step("matmul", by_group[0], shared[0].swapaxes(-1, -2), by_group[1], scale)
        _weights_of(scores, mask, taken)
        if rounds:
            by_group[1] = rounded(by_group[1])
        _step("matmul", by_group[1], shared[1], by_group[2])
    return _delivered(y[0] if one else y, out)


def _weights_of(scores, mask, taken):
    """Makes scores the weights of their keys, in place: a pass each for the masks and the softmax."""
    if mask is not None:
        scores += mask
    if taken is not None:
        np.copyto(scores, -np.inf, where=~taken)
    nothing = None if mask is taken is None else (scores == -np.inf).all(-1)
    _core.softmax(scores, scores.ndim - 1, False, scores)
    if nothing is not None:
        scores[nothing] = 0


def _step(*given):
    """One step of a network by itself."""
    program = _core.Program()
    program.append(*given)
    program.run(())


def _delivered(y, out):
    if out is None:
        return y
    out[...] = y
    return out


@options_by_name
def conv2d(
    x: Input,
    w: Input,
    *,
    bias: Input | None = None,
    bn: BatchNorm | None = None,
    residual: Input | None = None,
    activation: Activation = None,
    stride: Ints = 1,
    padding: Padding = 0,
    dilation: Ints = 1,
    groups: int = 1,
    layout: Layout = "NCHW",
    algorithm: Algorithm = "auto",
    out: Array | None = None,
    fold_bn: bool = False,
) -> Array:
    """:func:`fusedops.conv2d`, unfused."""
    layer = Conv2d(
        w,
        bias,
        bn,
        activation=activation,
        stride=stride,
        padding=padding,
        dilation=dilation,
        groups=groups,
        layout=layout,
        algorithm=algorithm,
        fold_bn=fold_bn,
    )
    return layer(x, residual, out)


@options_by_name
def conv_bn_relu(
    x: Input,
    w: Input,
    bn: BatchNorm | None = None,
    *,
    bias: Input | None = None,
    residual: Input | None = None,
    stride: Ints = 1,
    padding: Padding = 0,
    dilation: Ints = 1,
    groups: int = 1,
    layout: Layout = "NCHW",
    algorithm: Algorithm = "auto",
    out: Array | None = None,
    fold_bn: bool = False,
) -> Array:
    """:func:`fusedops.conv_bn_relu`, unfused."""
    return conv2d(
        x,
        w,
        bias=bias,
        bn=bn,
        residual=residual,
        activation="relu",
        stride=stride,
        padding=padding,
        dilation=dilation,
        groups=groups,
        layout=layout,
        algorithm=algorithm,
        out=out,
        fold_bn=fold_bn,
    )


@options_by_name
def depthwise_conv2d(
    x: Input,
    w: Input,
    *,
    bias: Input | None = None,
    bn: BatchNorm | None = None,
    residual: Input | None = None,
    activation: Activation = None,
    stride: Ints = 1,
    padding: Padding = 0,
    dilation: Ints = 1,
    layout: Layout = "NCHW",
    out: Array | None = None,
    fold_bn: bool = False,
) -> Array:
    """:func:`fusedops.depthwise_conv2d`, unfused."""
    x, w, channels = functional.depthwise_operands(x, w, layout)
    return conv2d(
        x,
        w,
        bias=bias,
        bn=bn,
        residual=residual,
        activation=activation,
        stride=stride,
        padding=padding,
        dilation=dilation,
        groups=channels,
        layout=layout,
        out=out,
        fold_bn=fold_bn,
    )


@options_by_name
def depthwise_conv_bn_relu(
    x: Input,
    w: Input,
    bn: BatchNorm | None = None,
    *,
    bias: Input | None = None,
    residual: Input | None = None,
    stride: Ints = 1,
    padding: Padding = 0,
    dilation: Ints = 1,
    layout: Layout = "NCHW",
    out: Array | None = None,
    fold_bn: bool = False,
) -> Array:
    """:func:`fusedops.depthwise_conv_bn_relu`, unfused."""
    return depthwise_conv2d(
        x,
        w,
        bias=bias,
        bn=bn,
        residual=residual,
        activation="relu",
        stride=stride,
        padding=padding,
        dilation=dilation,
        layout=layout,
        out=out,
        fold_bn=fold_bn,
    )


@options_by_name
def linear(
    x: Input,
    w: Input,
    bias: Input | None = None,
    *,
    residual: Input | None = None,
    activation: Activation = None,
    out: Array | None = None,
    fold_bn: bool = False,
) -> Array:
    """:func:`fusedops.linear`, unfused."""
    return Linear(w, bias, activation=activation, fold_bn=fold_bn)(x, residual, out)


@options_by_name
def gemm(
    a: Input,
    b: Input,
    *,
    bias: Input | None = None,
    residual: Input | None = None,
    activation: Activation = None,
    out: Array | None = None,
    fold_bn: bool = False,
) -> Array:
    """:func:`fusedops.gemm`, unfused."""
    a, b = functional.gemm_operands(a, b)
    return linear(a, b.T, bias, residual=residual, activation=activation, out=out, fold_bn=fold_bn)
