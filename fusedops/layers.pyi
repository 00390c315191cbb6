from typing import Any

from . import _core
from ._types import Activation, Algorithm, Array, Input, Ints, Layout, Padding, Padding1d, Precision
from .batchnorm import BatchNorm
from .streams import ConvolutionStream

ALGORITHMS: dict[str, int]
LAYOUTS: tuple[str, ...]
PRECISIONS: tuple[str, ...]
LARGEST: int

def multiplies(precision: str) -> bool: ...

class Linear(_core.LinearPlan):
    def __init__(
        self, w: Input, bias: Input | None = None, *, activation: Activation = None, precision: Precision = "float32"
    ) -> None: ...

class Conv2d(_core.Conv2dPlan):
    def __init__(
        self,
        w: Input,
        bias: Input | None = None,
        bn: BatchNorm | None = None,
        *,
        activation: Activation = None,
        stride: Ints = 1,
        padding: Padding = 0,
        dilation: Ints = 1,
        groups: int = 1,
        layout: Layout = "NCHW",
        algorithm: Algorithm = "auto",
        precision: Precision = "float32",
    ) -> None: ...

def windows(
    w: Array, stride: Ints, padding: Padding, dilation: Ints, groups: int, layout: Layout
) -> tuple[Any, Any, Any, int, bool]: ...

class Conv1d:
    def __init__(
        self,
        w: Input,
        bias: Input | None = None,
        bn: BatchNorm | None = None,
        *,
        activation: Activation = None,
        stride: int = 1,
        padding: Padding1d = 0,
        dilation: int = 1,
        groups: int = 1,
        layout: Layout = "NCHW",
        algorithm: Algorithm = "auto",
        precision: Precision = "float32",
    ) -> None: ...
    def __call__(self, x: Input, residual: Input | None = None, out: Array | None = None) -> Array: ...
    def output_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]: ...
    def stream(self, batch: int = 1) -> ConvolutionStream: ...

class ConvTranspose2d(_core.TransposedPlan):
    def __init__(
        self,
        w: Input,
        bias: Input | None = None,
        bn: BatchNorm | None = None,
        *,
        activation: Activation = None,
        stride: Ints = 1,
        padding: Padding = 0,
        output_padding: Ints = 0,
        dilation: Ints = 1,
        groups: int = 1,
        layout: Layout = "NCHW",
    ) -> None: ...

class ConvTranspose1d:
    def __init__(
        self,
        w: Input,
        bias: Input | None = None,
        bn: BatchNorm | None = None,
        *,
        activation: Activation = None,
        stride: int = 1,
        padding: Padding1d = 0,
        output_padding: int = 0,
        dilation: int = 1,
        groups: int = 1,
        layout: Layout = "NCHW",
    ) -> None: ...
    def __call__(self, x: Input, residual: Input | None = None, out: Array | None = None) -> Array: ...
    def output_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]: ...
    def stream(self, batch: int = 1) -> ConvolutionStream: ...

class DepthwiseSeparable(_core.BlockPlan):
    def __init__(self, depthwise: Conv2d, pointwise: Conv2d) -> None: ...

class InvertedResidual(_core.ResidualPlan):
    def __init__(self, expand: Conv2d | None, depthwise: Conv2d, project: Conv2d, *, residual: bool = True) -> None: ...
