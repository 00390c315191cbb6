from typing import Any, NamedTuple, TypeAlias

from numpy import dtype, int8, ndarray, uint8
from numpy.typing import DTypeLike, NDArray

from . import _core
from ._types import Activation, Array, Input, Ints, Layout, Padding
from .batchnorm import BatchNorm

__all__ = ["QConv2d", "QLinear", "Quantization", "dequantize", "qconv2d", "qlinear", "quantize"]

_Bytes: TypeAlias = ndarray[tuple[int, ...], dtype[uint8]] | ndarray[tuple[int, ...], dtype[int8]]

class Quantization(NamedTuple):
    scale: float | NDArray[Any]
    zero_point: int | NDArray[Any] = 0

def quantize(x: Input, q: Quantization, dtype: DTypeLike = ..., *, out: _Bytes | None = None) -> NDArray[Any]: ...
def dequantize(x: Input, q: Quantization, *, out: Array | None = None) -> Array: ...
def symmetric(w: Array) -> Quantization: ...
def between(least: float, most: float) -> Quantization: ...

class QLinear(_core.QLinearPlan):
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
    ) -> None: ...

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
) -> NDArray[Any]: ...

class QConv2d(_core.QConv2dPlan):
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
    ) -> None: ...

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
) -> NDArray[Any]: ...
