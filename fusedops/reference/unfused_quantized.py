"""int8, unfused: tensors are dequantized, computed with in float32 and quantized."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .. import _core, quantized
from ..positions import options_by_name
from .unfused_layers import Conv2d, Linear

if TYPE_CHECKING:
    from typing import Any

    from numpy.typing import NDArray

    from .._types import Activation, Input, Ints, Layout, Padding
    from ..batchnorm import BatchNorm
    from ..quantized import Quantization


class _Requantized:
    """An unfused float32 layer of dequantized weights, with passes that make floats of bytes and bytes of floats."""

    def __init__(self, kind, fused, **options):
        """fused: the layer in int8, whose checks and weights these are."""
        (w, bias), given = fused._arguments
        self._x_q, self._residual_q, self._y_q = given["x_q"], given["residual_q"], given["y_q"]
        self._layer = kind(quantized.dequantize(w, given["w_q"]), bias, activation=given["activation"], **options)

    def __call__(self, x: Input, residual: Input | None = None, out: NDArray[Any] | None = None) -> NDArray[Any]:
        if self._x_q is None:
            floats = _by_rows(_core.as_input(x, "x"))
        else:
            floats = quantized.dequantize(x, self._x_q)
        if residual is not None and self._residual_q is not None:
            residual = quantized.dequantize(residual, self._residual_q)
        if self._y_q is None:
            return self._layer(floats, residual, out)
        dtype = np.uint8 if self._x_q is None else _core.as_bytes(x, "x", "a layer with x_q").dtype
        return quantized.quantize(self._layer(floats, residual), self._y_q, dtype, out=out)


def _by_rows(x):
    """Each row through the bytes of its own range."""
    rows = x.reshape(-1, x.shape[-1]) if x.size else x.reshape(0, 1)
    least, most = np.minimum(rows.min(1, initial=0), 0), np.maximum(rows.max(1, initial=0), 0)
    scale = np.maximum((most - least) / np.float32(255), np.finfo(np.float32).tiny)
    q = quantized.Quantization(scale, np.clip(np.rint(-least / scale), 0, 255).astype(np.int32))
    return quantized.dequantize(quantized.quantize(rows, q), q).reshape(x.shape)


class QLinear(_Requantized):
    """:class:`fusedops.QLinear`, unfused."""

    def __init__(
        self,
        w: Input,
        bias: Input | None = None,
        bn: BatchNorm | None = None,
        *,
        x_q: Quantization | None = None,
        w_q: Quantization | None = None,
        y_q: Quantization | None = None,
        residual_q: Quantization | None = None,
        activation: Activation = None,
    ) -> None:
        super().__init__(
            Linear,
            quantized.QLinear(w, bias, bn, x_q=x_q, w_q=w_q, y_q=y_q, residual_q=residual_q, activation=activation),
        )


class QConv2d(_Requantized):
    """:class:`fusedops.QConv2d`, unfused."""

    def __init__(
        self,
        w: Input,
        bias: Input | None = None,
        bn: BatchNorm | None = None,
        *,
        x_q: Quantization,
        w_q: Quantization | None = None,
        y_q: Quantization | None = None,
        residual_q: Quantization | None = None,
        activation: Activation = None,
        stride: Ints = 1,
        padding: Padding = 0,
        dilation: Ints = 1,
        groups: int = 1,
        layout: Layout = "NCHW",
    ) -> None:
        options: dict[str, Any] = dict(stride=stride, padding=padding, dilation=dilation, groups=groups, layout=layout)
        super().__init__(
            Conv2d,
            quantized.QConv2d(
                w, bias, bn, x_q=x_q, w_q=w_q, y_q=y_q, residual_q=residual_q, activation=activation, **options
            ),
            **options,
        )


@options_by_name
def qlinear(
    x: Input,
    w: Input,
    *,
    x_q: Quantization | None = None,
    w_q: Quantization,
    y_q: Quantization | None = None,
    bias: Input | None = None,
    activation: Activation = None,
    residual: Input | None = None,
    residual_q: Quantization | None = None,
    out: NDArray[Any] | None = None,
) -> NDArray[Any]:
    """:func:`fusedops.qlinear`, unfused: dequantized, computed in float32, activated and quantized, each a pass."""
    return QLinear(w, bias, x_q=x_q, w_q=w_q, y_q=y_q, residual_q=residual_q, activation=activation)(x, residual, out)


@options_by_name
def qconv2d(
    x: Input,
    w: Input,
    *,
    x_q: Quantization,
    w_q: Quantization,
    y_q: Quantization | None = None,
    bias: Input | None = None,
    activation: Activation = None,
    residual: Input | None = None,
    residual_q: Quantization | None = None,
    stride: Ints = 1,
    padding: Padding = 0,
    dilation: Ints = 1,
    groups: int = 1,
    layout: Layout = "NCHW",
    out: NDArray[Any] | None = None,
) -> NDArray[Any]:
    """:func:`fusedops.qconv2d`, unfused: dequantized, computed in float32, activated and quantized, each a pass."""
    layer = QConv2d(
        w,
        bias,
        x_q=x_q,
        w_q=w_q,
        y_q=y_q,
        residual_q=residual_q,
        activation=activation,
        stride=stride,
        padding=padding,
        dilation=dilation,
        groups=groups,
        layout=layout,
    )
    return layer(x, residual, out)
