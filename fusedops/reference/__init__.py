"""The operations of fusedops, unfused: what fusion is compared with.

The convolution or product runs in the same kernel without its epilogue; bias, batch norm, residual and activation are
passes of their own (``_core.pointwise``: vectorized, the same threads and instruction set), each with its result in
memory. The passes run in place, which is as kind to the caches as passes can be. ``fold_bn=True`` folds batch norm and
bias into the kernel, as frameworks do with a frozen network, and keeps residual, activation and a cell's gates apart.
"""

from .functional import (
    attention,
    batch_norm,
    conv1d,
    conv2d,
    conv3d,
    conv_bn_relu,
    conv_transpose1d,
    conv_transpose2d,
    depthwise_conv2d,
    depthwise_conv_bn_relu,
    gemm,
    group_norm,
    layer_norm,
    linear,
    rms_norm,
)
from .layers import Conv1d, Conv2d, ConvTranspose1d, ConvTranspose2d, DepthwiseSeparable, InvertedResidual, Linear
from .quantized import QConv2d, QLinear, qconv2d, qlinear
from .recurrent import (
    GRU,
    LSTM,
    RNN,
    GRUCell,
    LSTMCell,
    RNNCell,
    gru,
    gru_cell,
    lstm,
    lstm_cell,
    rnn,
    rnn_cell,
)

__all__ = [
    "Conv1d",
    "Conv2d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "DepthwiseSeparable",
    "GRU",
    "GRUCell",
    "InvertedResidual",
    "LSTM",
    "LSTMCell",
    "Linear",
    "QConv2d",
    "QLinear",
    "RNN",
    "RNNCell",
    "attention",
    "batch_norm",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_bn_relu",
    "conv_transpose1d",
    "conv_transpose2d",
    "depthwise_conv2d",
    "depthwise_conv_bn_relu",
    "gemm",
    "group_norm",
    "gru",
    "gru_cell",
    "layer_norm",
    "linear",
    "lstm",
    "lstm_cell",
    "qconv2d",
    "qlinear",
    "rms_norm",
    "rnn",
    "rnn_cell",
]
