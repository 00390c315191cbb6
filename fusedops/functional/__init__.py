"""One-shot functions: a prepared layer, made and dropped."""

from ..images import (
    adaptive_avg_pool2d,
    avg_pool1d,
    avg_pool2d,
    global_avg_pool2d,
    max_pool1d,
    max_pool2d,
    resize,
)
from ..norms import group_norm, instance_norm, layer_norm, log_softmax, rms_norm, softmax
from ..pointwise import activation, batch_norm
from ..tokens import attention, embedding
from ..volumes import conv3d
from .conv_functions import conv1d, conv2d, conv_bn_relu
from .depthwise_functions import depthwise_conv2d, depthwise_conv_bn_relu, depthwise_operands
from .products import gemm, gemm_operands, linear, matmul
from .transposed_functions import conv_transpose1d, conv_transpose2d

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
    "depthwise_operands",
    "embedding",
    "gemm",
    "gemm_operands",
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
