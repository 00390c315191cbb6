"""Prepared layers: batch norm folded and weights packed once, then called many times, from any thread."""

from .._internal.arguments import LARGEST, LAYOUTS, PRECISIONS, checked_precision, integer, windows
from .attention import MultiheadAttention
from .blocks import DepthwiseSeparable, InvertedResidual
from .cells import GRUCell, LSTMCell, RNNCell
from .conv import ALGORITHMS, LARGEST_SIDE, Conv1d, Conv2d
from .conv_transpose import ConvTranspose1d, ConvTranspose2d, fold_transposed, spreading
from .kv_cache import KVCache
from .layer import rebuilt, storage_of
from .linear import ConstantLinear, LentLinear, Linear
from .quantized import QConv2d, QLinear
from .sequences import GRU, LSTM, RNN

_rebuild = rebuilt  # by this name layers were pickled once

__all__ = [
    "ALGORITHMS",
    "ConstantLinear",
    "Conv1d",
    "Conv2d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "DepthwiseSeparable",
    "GRU",
    "GRUCell",
    "InvertedResidual",
    "KVCache",
    "LARGEST",
    "LARGEST_SIDE",
    "LAYOUTS",
    "LSTM",
    "LSTMCell",
    "LentLinear",
    "Linear",
    "MultiheadAttention",
    "PRECISIONS",
    "QConv2d",
    "QLinear",
    "RNN",
    "RNNCell",
    "fold_transposed",
    "integer",
    "checked_precision",
    "spreading",
    "storage_of",
    "windows",
]
