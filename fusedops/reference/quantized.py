"""int8, unfused: tensors are dequantized, computed with in float32 and quantized."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .. import _core, functional, layers, quantization
from .layers import Conv2d, Linear
from .twins import Twin, twin_of

if TYPE_CHECKING:
    from typing import Any

    from numpy.typing import NDArray

    from .._types import Input


class _Requantized(Twin):
    """An unfused float32 layer of dequantized weights, with passes that make floats of bytes and bytes of floats."""

    def _assemble(self, kind, fused, **options):
        """fused: the layer in int8, whose checks and weights these are."""
        (w, bias), given = fused._arguments
        self._x_q, self._residual_q, self._y_q = given["x_q"], given["residual_q"], given["y_q"]
        self._layer = kind(quantization.dequantize(w, given["w_q"]), bias, activation=given["activation"], **options)

    def __call__(self, x: Input, residual: Input | None = None, out: NDArray[Any] | None = None) -> NDArray[Any]:
        if self._x_q is None:
            floats = _by_rows(_core.as_input(x, "x"))
        else:
            floats = quantization.dequantize(x, self._x_q)
        if residual is not None and self._residual_q is not None:
            residual = quantization.dequantize(residual, self._residual_q)
        if self._y_q is None:
            return self._layer(floats, residual, out)
        dtype = np.uint8 if self._x_q is None else _core.as_bytes(x, "x", "a layer with x_q").dtype
        return quantization.quantize(self._layer(floats, residual), self._y_q, dtype, out=out)


def _by_rows(x):
    """Each row through the bytes of its own range."""
    rows = x.reshape(-1, x.shape[-1]) if x.size else x.reshape(0, 1)
    least, most = np.minimum(rows.min(1, initial=0), 0), np.maximum(rows.max(1, initial=0), 0)
    scale = np.maximum((most - least) / np.float32(255), np.finfo(np.float32).tiny)
    q = quantization.Quantization(scale, np.clip(np.rint(-least / scale), 0, 255).astype(np.int32))
    return quantization.dequantize(quantization.quantize(rows, q), q).reshape(x.shape)


class QLinear(_Requantized, fused=layers.QLinear, folds=False):
    def _make(self, **given):
        self._assemble(Linear, layers.QLinear(**given))


class QConv2d(_Requantized, fused=layers.QConv2d, folds=False):
    def _make(self, **given):
        windows = {name: given[name] for name in ("stride", "padding", "dilation", "groups", "layout")}
        self._assemble(Conv2d, layers.QConv2d(**given), **windows)


@twin_of(functional.qlinear, folds=False)
def qlinear(x, w, residual, out, **options):
    """unfused: dequantized, computed in float32, activated and quantized, each a pass."""
    return QLinear(w, **options)(x, residual, out)


@twin_of(functional.qconv2d, folds=False)
def qconv2d(x, w, residual, out, **options):
    """unfused: dequantized, computed in float32, activated and quantized, each a pass."""
    return QConv2d(w, **options)(x, residual, out)
