"""Operator fusion on CPUs: convolution, GEMM and recurrent kernels with everything that follows them fused in, as NumPy functions."""
from importlib import import_module

from .batchnorm import BatchNorm, fold_batch_norm
from .functional import conv2d, conv_bn_relu, depthwise_conv2d, depthwise_conv_bn_relu, gemm, linear
from .layers import Conv2d, DepthwiseSeparable, InvertedResidual, Linear
from .recurrent import GRU, LSTM, RNN, GRUCell, LSTMCell, RNNCell, gru, gru_cell, lstm, lstm_cell, rnn, rnn_cell
from .runtime import available_isas, get_num_threads, isa, set_isa, set_num_threads, show_config

__version__ = "0.1.0"
__all__ = [
    "BatchNorm", "Conv2d", "DepthwiseSeparable", "GRU", "GRUCell", "InvertedResidual", "LSTM", "LSTMCell", "Linear", "Model", "RNN", "RNNCell",
    "available_isas", "conv2d", "conv_bn_relu", "depthwise_conv2d", "depthwise_conv_bn_relu", "fold_batch_norm",
    "from_torch", "gemm", "get_num_threads", "gru", "gru_cell", "isa", "linear", "load", "load_onnx", "lstm",
    "lstm_cell", "rnn", "rnn_cell", "set_isa", "set_num_threads", "show_config",
]

_NETWORKS = ("Model", "from_torch", "load", "load_onnx")


def __getattr__(name):
    """Networks and the unfused path are imported when they are first used."""
    if name == "reference":
        return import_module("." + name, __name__)
    if name in _NETWORKS:
        from . import graph
        return getattr(graph, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__():
    return sorted([*globals(), *_NETWORKS, "reference"])
