"""One-shot functions: a prepared layer, made and dropped."""

from .attention import attention, embedding
from .conv import conv1d, conv2d, conv_bn_relu
from .conv3d import conv3d
from .conv_transpose import conv_transpose1d, conv_transpose2d
from .depthwise import depthwise_conv2d, depthwise_conv_bn_relu
from .matmul import gemm, linear, matmul
from .norm import group_norm, instance_norm, layer_norm, log_softmax, rms_norm, softmax
from .pointwise import activation, batch_norm
from .pooling import adaptive_avg_pool2d, avg_pool1d, avg_pool2d, global_avg_pool2d, max_pool1d, max_pool2d
from .quantized import qconv2d, qlinear
from .recurrent import gru, gru_cell, lstm, lstm_cell, rnn, rnn_cell
from .resize import resize

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
    "gru",
    "gru_cell",
    "instance_norm",
    "layer_norm",
    "linear",
    "log_softmax",
    "lstm",
    "lstm_cell",
    "matmul",
    "max_pool1d",
    "max_pool2d",
    "qconv2d",
    "qlinear",
    "resize",
    "rms_norm",
    "rnn",
    "rnn_cell",
    "softmax",
]
