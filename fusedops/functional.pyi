from ._types import Activation, Algorithm, Array, Input, Ints, Layout, Padding, Padding1d
from .batchnorm import BatchNorm
from .images import adaptive_avg_pool2d as adaptive_avg_pool2d
from .images import avg_pool1d as avg_pool1d
from .images import avg_pool2d as avg_pool2d
from .images import global_avg_pool2d as global_avg_pool2d
from .images import max_pool1d as max_pool1d
from .images import max_pool2d as max_pool2d
from .images import resize as resize
from .norms import group_norm as group_norm
from .norms import instance_norm as instance_norm
from .norms import layer_norm as layer_norm
from .norms import log_softmax as log_softmax
from .norms import rms_norm as rms_norm
from .norms import softmax as softmax
from .pointwise import activation as activation
from .pointwise import batch_norm as batch_norm
from .tokens import attention as attention
from .tokens import embedding as embedding
from .volumes import conv3d as conv3d

__all__ = [
    "activation",
    "adaptive_avg_pool2d",
    "attention",
    "avg_pool1d",
    "avg_pool2d",
    "batch_norm",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_bn_relu",
    "conv_transpose1d",
    "conv_transpose2d",
    "depthwise_conv2d",
    "depthwise_conv_bn_relu",
    "embedding",
    "gemm",
    "global_avg_pool2d",
    "group_norm",
    "instance_norm",
    "layer_norm",
    "linear",
    "log_softmax",
    "matmul",
    "max_pool1d",
    "max_pool2d",
    "resize",
    "rms_norm",
    "softmax",
]

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
) -> Array: ...
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
) -> Array: ...
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
) -> Array: ...
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
) -> Array: ...
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
) -> Array: ...
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
) -> Array: ...
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
) -> Array: ...
def linear(
    x: Input,
    w: Input,
    bias: Input | None = None,
    *,
    residual: Input | None = None,
    activation: Activation = None,
    out: Array | None = None,
) -> Array: ...
def gemm(
    a: Input,
    b: Input,
    *,
    bias: Input | None = None,
    residual: Input | None = None,
    activation: Activation = None,
    out: Array | None = None,
) -> Array: ...
def depthwise_operands(x: Input, w: Input, layout: Layout) -> tuple[Array, Array, int]: ...
def gemm_operands(a: Input, b: Input) -> tuple[Array, Array]: ...
def matmul(a: Input, b: Input, *, out: Array | None = None) -> Array: ...
