from . import reference as reference
from .batchnorm import BatchNorm as BatchNorm
from .batchnorm import fold_batch_norm as fold_batch_norm
from .functional import conv1d as conv1d
from .functional import conv2d as conv2d
from .functional import conv_bn_relu as conv_bn_relu
from .functional import conv_transpose1d as conv_transpose1d
from .functional import conv_transpose2d as conv_transpose2d
from .functional import depthwise_conv2d as depthwise_conv2d
from .functional import depthwise_conv_bn_relu as depthwise_conv_bn_relu
from .functional import gemm as gemm
from .functional import linear as linear
from .functional import matmul as matmul
from .graph import Model as Model
from .graph import from_torch as from_torch
from .graph import load as load
from .graph import load_onnx as load_onnx
from .graph import load_tflite as load_tflite
from .images import adaptive_avg_pool2d as adaptive_avg_pool2d
from .images import avg_pool1d as avg_pool1d
from .images import avg_pool2d as avg_pool2d
from .images import global_avg_pool2d as global_avg_pool2d
from .images import max_pool1d as max_pool1d
from .images import max_pool2d as max_pool2d
from .images import resize as resize
from .keras_layers import from_keras as from_keras
from .layers import Conv1d as Conv1d
from .layers import Conv2d as Conv2d
from .layers import ConvTranspose1d as ConvTranspose1d
from .layers import ConvTranspose2d as ConvTranspose2d
from .layers import DepthwiseSeparable as DepthwiseSeparable
from .layers import InvertedResidual as InvertedResidual
from .layers import Linear as Linear
from .multihead import MultiheadAttention as MultiheadAttention
from .norms import group_norm as group_norm
from .norms import instance_norm as instance_norm
from .norms import layer_norm as layer_norm
from .norms import log_softmax as log_softmax
from .norms import rms_norm as rms_norm
from .norms import softmax as softmax
from .pointwise import activation as activation
from .pointwise import batch_norm as batch_norm
from .quantized import QConv2d as QConv2d
from .quantized import QLinear as QLinear
from .quantized import Quantization as Quantization
from .quantized import dequantize as dequantize
from .quantized import qconv2d as qconv2d
from .quantized import qlinear as qlinear
from .quantized import quantize as quantize
from .recurrent import GRU as GRU
from .recurrent import LSTM as LSTM
from .recurrent import RNN as RNN
from .recurrent import GRUCell as GRUCell
from .recurrent import LSTMCell as LSTMCell
from .recurrent import RNNCell as RNNCell
from .recurrent import gru as gru
from .recurrent import gru_cell as gru_cell
from .recurrent import lstm as lstm
from .recurrent import lstm_cell as lstm_cell
from .recurrent import rnn as rnn
from .recurrent import rnn_cell as rnn_cell
from .runtime import available_isas as available_isas
from .runtime import get_num_threads as get_num_threads
from .runtime import isa as isa
from .runtime import set_isa as set_isa
from .runtime import set_num_threads as set_num_threads
from .runtime import show_config as show_config
from .tokens import KVCache as KVCache
from .tokens import attention as attention
from .tokens import embedding as embedding
from .volumes import conv3d as conv3d

__version__: str
__all__ = [
    "BatchNorm",
    "Conv1d",
    "Conv2d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "DepthwiseSeparable",
    "GRU",
    "GRUCell",
    "InvertedResidual",
    "KVCache",
    "LSTM",
    "LSTMCell",
    "Linear",
    "Model",
    "MultiheadAttention",
    "QConv2d",
    "QLinear",
    "Quantization",
    "RNN",
    "RNNCell",
    "activation",
    "adaptive_avg_pool2d",
    "attention",
    "available_isas",
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
    "dequantize",
    "embedding",
    "fold_batch_norm",
    "from_keras",
    "from_torch",
    "gemm",
    "get_num_threads",
    "global_avg_pool2d",
    "group_norm",
    "gru",
    "gru_cell",
    "instance_norm",
    "isa",
    "layer_norm",
    "linear",
    "load",
    "load_onnx",
    "load_tflite",
    "log_softmax",
    "lstm",
    "lstm_cell",
    "matmul",
    "max_pool1d",
    "max_pool2d",
    "qconv2d",
    "qlinear",
    "quantize",
    "resize",
    "rms_norm",
    "rnn",
    "rnn_cell",
    "set_isa",
    "set_num_threads",
    "show_config",
    "softmax",
]
