"""Prepared layers, unfused: the product, batch norm, activation and sum are a pass each."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from .. import _core, activations, layers
from .._internal.arguments import bias_of
from .._internal.bfloat16 import rounded
from ..batchnorm import fold_batch_norm, scale_and_shift, silence
from .twins import Twin

if TYPE_CHECKING:
    from typing import Any

    from .._types import Array, Input


class Unfused(Twin):
    """A kernel without epilogue, then the passes that its fused layer spares."""

    def _assemble(self, kernel, channels, channels_last, bias, bn, activation, fold_bn, rounds=False):
        """`kernel` makes the fused layer, given its bias; `bn` is None where it has been folded; rounds: x to
        bfloat16."""
        self._rounds = rounds
        bias = bias_of(bias, channels)
        parsed = activations.parse(activation, channels)
        self._layer = kernel(bias if fold_bn else None)
        self._channels_last = channels_last
        self._before, self._after = [], []  # passes on either side of the residual
        if bias is not None and not fold_bn:
            self._before.append({"shift": bias.copy()})
        if bn is not None:
            scale, shift = scale_and_shift(bn, channels)
            with silence():
                self._before.append({"scale": scale.astype(np.float32), "shift": shift.astype(np.float32)})
        if activation is not None:
            self._after.append({"activation": parsed})

    def __call__(self, x: Input, residual: Input | None = None, out: Array | None = None) -> Array:
        if residual is not None:
            residual = _core.as_input(residual, "residual")
        direct = self._in_place(out, residual)
        if self._rounds:
            x = rounded(_core.as_input(x, "x"))
        y = self._layer(x, None, out if direct else None)
        if residual is not None and residual.shape != y.shape:
            raise ValueError(f"residual has shape {residual.shape}, but the result has shape {y.shape}")
        if out is None or direct:
            return self._passes(y, residual)
        _core.checked_out(out, y.shape)
        out[...] = self._passes(y, residual)
        return out

    def _in_place(self, out, residual):
        """Whether the passes can run on `out` itself: nothing that is still read or may be refused depends on it."""
        return (
            isinstance(out, np.ndarray)
            and out.flags.behaved
            and self._matrix(out) is not None
            and (residual is None or residual.shape == out.shape and not np.may_share_memory(out, residual))
        )

    def _matrix(self, y):
        """y as ``(matrix, channel_rows)`` for `_core.pointwise`; None where it is empty, one number or does not lie
        so."""
        if y.size and y.ndim and self._channels_last:
            return (y.reshape(-1, y.shape[-1]), 0) if y.flags.c_contiguous else None
        if y.size and y.ndim > 2:
            pixels = np.moveaxis(y, 1, -1)
            if y.flags.c_contiguous:
                return y.reshape(y.shape[0] * y.shape[1], -1), y.shape[1]
            if pixels.flags.c_contiguous:
                return pixels.reshape(-1, y.shape[1]), 0
        return None

    def _passes(self, y, residual):
        if not y.size:
            return y
        matrix, channel_rows = self._matrix(y)
        for options in self._before:
            _core.pointwise(matrix, matrix, channel_rows=channel_rows, **options)
        if residual is not None:
            if residual.strides != y.strides:
                same_order = np.empty_like(y)
                same_order[...] = residual
                residual = same_order
            _core.pointwise(matrix, matrix, residual=self._matrix(residual)[0])
        for options in self._after:
            _core.pointwise(matrix, matrix, channel_rows=channel_rows, **options)
        return y


def _widened(w, bias, axes):
    """Weights, which may be float16, and their bias, in float32."""
    w = _core.as_weights(w, "w", axes, None)
    return w.astype(np.float32, copy=False), _core.widened(bias, "bias", w)


def _operand(w, bias, precision):
    """Weights, their bias, and whether operands are rounded, as weights then are."""
    rounds = layers.checked_precision(precision) == "bfloat16"
    return rounded(w) if rounds else w, bias, rounds


class Linear(Unfused, fused=layers.Linear):
    def _make(self, w, bias, activation, precision, fold_bn):
        w, bias = _widened(w, bias, 2)
        w, bias, rounds = _operand(w, bias, precision)
        kernel = partial(layers.Linear, w)
        self._assemble(kernel, w.shape[0], True, bias, None, activation, fold_bn, rounds)


class _Convolution(Unfused):
    _fused: Any
    _axes: int

    def _make(self, w, bias, bn, activation, precision, fold_bn, **windows):
        w, bias, channels = self._weights(w, bias, windows)
        if fold_bn and bn is not None:
            w, bias = self._folded(w, bias, bn, windows)
            bn = None
        w, bias, rounds = _operand(w, bias, precision)
        kernel = partial(self._fused, w, **windows)
        self._assemble(kernel, channels, windows["layout"] == "NHWC", bias, bn, activation, fold_bn, rounds)

    def _weights(self, w, bias, windows):
        """Weights, their bias, and the channels of the result."""
        w, bias = _widened(w, bias, self._axes)
        return w, bias, w.shape[0]

    def _folded(self, w, bias, bn, windows):
        return fold_batch_norm(w, bias, bn)


class Conv2d(_Convolution, fused=layers.Conv2d):
    _fused, _axes = layers.Conv2d, 4


class Conv1d(_Convolution, fused=layers.Conv1d):
    _fused, _axes = layers.Conv1d, 3


class _Transposed(_Convolution):
    def _weights(self, w, bias, windows):
        form = "(ic, oc/groups, kh, kw)" if self._axes == 4 else "(ic, oc/groups, k)"
        w, windows["groups"] = layers.spreading(w, windows["groups"], form)
        return w, bias, w.shape[1] * windows["groups"]

    def _folded(self, w, bias, bn, windows):
        return layers.fold_transposed(w, bias, bn, windows["groups"])


class ConvTranspose2d(_Transposed, fused=layers.ConvTranspose2d):
    _fused, _axes = layers.ConvTranspose2d, 4


class ConvTranspose1d(_Transposed, fused=layers.ConvTranspose1d):
    _fused, _axes = layers.ConvTranspose1d, 3


def _kernels(**parts):
    """The kernels of a block's parts, in which the fused block finds what does not fit; there may be no expansion."""
    for name, part in parts.items():
        if not isinstance(part, Conv2d) and (name != "expand" or part is not None):
            raise TypeError(f"{name} must be a reference.Conv2d, not {part!r}")
    return [None if part is None else part._layer for part in parts.values()]


class DepthwiseSeparable(Twin, fused=layers.DepthwiseSeparable, folds=False):
    """unfused: two unfused layers one after the other."""

    def _make(self, depthwise, pointwise):
        layers.DepthwiseSeparable(*_kernels(depthwise=depthwise, pointwise=pointwise))
        self._parts = depthwise, pointwise

    def __call__(self, x: Input, residual: Input | None = None, out: Array | None = None) -> Array:
        depthwise, pointwise = self._parts
        return pointwise(depthwise(x), residual, out)


class InvertedResidual(Twin, fused=layers.InvertedResidual, folds=False):
    """unfused: three unfused layers one after the other; `expand` may be None."""

    def _make(self, expand, depthwise, project, residual):
        layers.InvertedResidual(*_kernels(expand=expand, depthwise=depthwise, project=project))
        self._parts, self._residual = (expand, depthwise, project), residual

    def __call__(self, x: Input, out: Array | None = None) -> Array:
        expand, depthwise, project = self._parts
        hidden = depthwise(x if expand is None else expand(x))
        added = self._residual and project._layer.output_shape(hidden.shape) == np.asarray(x).shape
        return project(hidden, x if added else None, out)
