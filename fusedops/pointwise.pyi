from typing import Any

from ._types import Activation, Array, Input, Layout
from .batchnorm import BatchNorm

def activation(x: Input, activation: Activation, *, out: Array | None = None) -> Array: ...
def batch_norm(
    x: Input, bn: BatchNorm, *, activation: Activation = None, layout: Layout = "NCHW", out: Array | None = None
) -> Array: ...
def normed_operands(
    x: Input, bn: BatchNorm, activation: Activation, layout: Layout
) -> tuple[Array, Array, Array, tuple[Any, ...]]: ...
