"""Operator fusion on CPUs: convolution, GEMM and recurrent kernels with everything that follows them fused in, as NumPy functions."""
from .batchnorm import BatchNorm, fold_batch_norm
from .functional import conv2d, conv_bn_relu, depthwise_conv2d, depthwise_conv_bn_relu, gemm, linear
from .layers import Conv2d, Linear
from .recurrent import GRUCell, LSTMCell, RNNCell, gru_cell, lstm_cell, rnn_cell
from .runtime import available_isas, get_num_threads, isa, set_isa, set_num_threads, show_config

__version__ = "0.1.0"
__all__ = [
    "BatchNorm", "Conv2d", "GRUCell", "LSTMCell", "Linear", "RNNCell", "available_isas", "conv2d", "conv_bn_relu",
    "depthwise_conv2d", "depthwise_conv_bn_relu", "fold_batch_norm", "gemm", "get_num_threads", "gru_cell", "isa",
    "linear", "lstm_cell", "rnn_cell", "set_isa", "set_num_threads", "show_config",
]
