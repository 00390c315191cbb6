"""One-shot functions, unfused."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import _core, functional, layers
from .._internal.attention import flag, operands
from .._internal.bfloat16 import rounded
from ..batchnorm import fold_batch_norm
from ..functional.depthwise import depthwise_operands
from ..functional.matmul import gemm_operands
from ..functional.pointwise import normed_operands
from ..layers.conv3d import Conv3d
from .layers import Conv1d, Conv2d, ConvTranspose1d, ConvTranspose2d, Linear, Unfused
from .twins import twin_of


def _convolution(fused: Any, layer: Any) -> Any:
    @twin_of(fused)
    def convolution(x, w, bias, bn, residual, out, **options):
        return layer(w, bias, bn, **options)(x, residual, out)

    return convolution


conv1d = _convolution(functional.conv1d, Conv1d)
conv2d = _convolution(functional.conv2d, Conv2d)
conv_transpose1d = _convolution(functional.conv_transpose1d, ConvTranspose1d)
conv_transpose2d = _convolution(functional.conv_transpose2d, ConvTranspose2d)


class _Conv3d(Unfused):
    def __init__(self, w, bias, bn, activation, fold_bn, **windows):
        w = _core.as_input(w, "w", 5)
        if fold_bn and bn is not None:
            w, bias = fold_batch_norm(w, bias, bn)
            bn = None

        def kernel(bias):
            return Conv3d(w, bias, None, activation=None, **windows)

        self._assemble(kernel, w.shape[0], windows["layout"] == "NHWC", bias, bn, activation, fold_bn)


conv3d = _convolution(functional.conv3d, _Conv3d)


@twin_of(functional.conv_bn_relu)
def conv_bn_relu(**given):
    return conv2d(activation="relu", **given)


@twin_of(functional.depthwise_conv2d)
def depthwise_conv2d(x, w, layout, **options):
    x, w, channels = depthwise_operands(x, w, layout)
    return conv2d(x, w, groups=channels, layout=layout, **options)


@twin_of(functional.depthwise_conv_bn_relu)
def depthwise_conv_bn_relu(**given):
    return depthwise_conv2d(activation="relu", **given)


@twin_of(functional.linear)
def linear(x, w, bias, residual, activation, out, fold_bn):
    return Linear(w, bias, activation=activation, fold_bn=fold_bn)(x, residual, out)


@twin_of(functional.gemm)
def gemm(a, b, **options):
    a, b = gemm_operands(a, b)
    return linear(a, b.T, **options)


@twin_of(functional.batch_norm, folds=False)
def batch_norm(x, bn, activation, layout, out):
    """the activation in a pass of its own."""
    parsed = normed_operands(x, bn, activation, layout)[3]
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


def _norm(fused: Any) -> Any:
    @twin_of(fused, folds=False)
    def norm(x, residual, **options):
        """the residual added in a pass of its own."""
        return fused(_added(x, residual), **options)

    return norm


layer_norm = _norm(functional.layer_norm)
rms_norm = _norm(functional.rms_norm)
group_norm = _norm(functional.group_norm)


@twin_of(functional.attention, folds=False)
def attention(q, k, v, mask, causal, scale, precision, out):
    """unfused: the scores of all queries for all keys, the mask, the softmax and the product with the values, each in
    memory."""
    q, k, v, mask, scale, one = operands(q, k, v, mask, scale)
    rounds = layers.checked_precision(precision) == "bfloat16"
    if rounds:
        q, k, v, scale = rounded(np.float32(scale) * q), rounded(k), rounded(v), 1.0
    causal, shape, (kv_heads, s, dv) = flag(causal), (*q.shape[one:-1], v.shape[-1]), v.shape[-3:]
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
