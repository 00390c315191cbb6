from ._types import Activation, Array, Input, Layout, Padding3d, Triple
from .batchnorm import BatchNorm

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
) -> Array: ...

class Convolution:
    def __init__(
        self,
        w: Input,
        bias: Input | None,
        bn: BatchNorm | None,
        *,
        activation: Activation,
        stride: Triple,
        padding: Padding3d,
        dilation: Triple,
        groups: int,
        layout: Layout,
    ) -> None: ...
    def __call__(self, x: Input, residual: Input | None = None, out: Array | None = None) -> Array: ...
