"""Operator fusion on CPUs: convolution, GEMM and recurrent kernels with everything that follows them fused in, as NumPy
functions."""

import sys
from importlib import import_module
from typing import TYPE_CHECKING

from ._version import __version__ as __version__

try:
    import_module("._core", __name__)
except ModuleNotFoundError as e:
    if e.name != f"{__name__}._core":  # NumPy is not there
        raise
    raise ImportError(
        f"{__path__[0]} has the sources of fusedops, not compiled for this Python: run `pip install -e .` in the "
        "folder above it, or, where fusedops is installed, leave that folder"
    ) from None

from . import activations
from ._core import ConvolutionStream as ConvolutionStream
from ._core import Stream as Stream
from .runtime import available_isas, get_num_threads, isa, set_isa, set_num_threads, show_config

__all__ = [
    "BatchNorm",
    "Conv1d",
    "Conv2d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "DamagedFile",
    "DepthwiseSeparable",
    "GRU",
    "GRUCell",
    "InvalidArgument",
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
    "UnsupportedOperator",
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
    "torch_report",
]

if TYPE_CHECKING:  # and for tools such as PyInstaller, which look for statements of import
    from . import graph as graph
    from . import reference as reference
    from .batchnorm import BatchNorm, fold_batch_norm
    from .functional import (
        activation,
        adaptive_avg_pool2d,
        avg_pool1d,
        avg_pool2d,
        batch_norm,
        conv1d,
        conv2d,
        conv_bn_relu,
        conv_transpose1d,
        conv_transpose2d,
        depthwise_conv2d,
        depthwise_conv_bn_relu,
        embedding,
        gemm,
        global_avg_pool2d,
        group_norm,
        gru,
        gru_cell,
        instance_norm,
        layer_norm,
        linear,
        log_softmax,
        lstm,
        lstm_cell,
        max_pool1d,
        max_pool2d,
        qconv2d,
        qlinear,
        rms_norm,
        rnn,
        rnn_cell,
        softmax,
    )
    from .functional.attention import attention
    from .functional.conv3d import conv3d
    from .functional.matmul import matmul
    from .functional.resize import resize
    from .graph import Benchmark as Benchmark
    from .graph import (
        DamagedFile,
        InvalidArgument,
        Model,
        UnsupportedOperator,
        from_torch,
        load,
        load_onnx,
        load_tflite,
        torch_report,
    )
    from .graph import Decoder as Decoder
    from .graph import Explanation as Explanation
    from .graph import Profile as Profile
    from .graph import Value as Value
    from .interop.keras import from_keras
    from .layers import (
        GRU,
        LSTM,
        RNN,
        Conv1d,
        Conv2d,
        ConvTranspose1d,
        ConvTranspose2d,
        DepthwiseSeparable,
        GRUCell,
        InvertedResidual,
        KVCache,
        Linear,
        LSTMCell,
        MultiheadAttention,
        QConv2d,
        QLinear,
        RNNCell,
    )
    from .quantization import Quantization, dequantize, quantize

_MODULES = {  # where each name is, which is imported when it is first used
    ".batchnorm": "BatchNorm fold_batch_norm",
    ".functional": """
        activation adaptive_avg_pool2d attention avg_pool1d avg_pool2d batch_norm conv1d conv2d conv3d conv_bn_relu
        conv_transpose1d conv_transpose2d depthwise_conv2d depthwise_conv_bn_relu embedding gemm global_avg_pool2d
        group_norm gru gru_cell instance_norm layer_norm linear log_softmax lstm lstm_cell matmul max_pool1d
        max_pool2d qconv2d qlinear resize rms_norm rnn rnn_cell softmax
    """,
    ".layers": """
        GRU LSTM RNN Conv1d Conv2d ConvTranspose1d ConvTranspose2d DepthwiseSeparable GRUCell InvertedResidual
        KVCache Linear LSTMCell MultiheadAttention QConv2d QLinear RNNCell
    """,
    ".quantization": "Quantization dequantize quantize",
    ".graph": """
        DamagedFile InvalidArgument Model UnsupportedOperator from_torch load load_onnx load_tflite torch_report
        Benchmark Decoder Explanation Profile Value
    """,
    ".interop.keras": "from_keras",
}
_LATER = {name: module for module, names in _MODULES.items() for name in names.split()}


if not TYPE_CHECKING:  # or checkers of types would take any name

    def __getattr__(name):
        """Imports a part of the library when it is first used."""
        if name == "reference" or f".{name}" in _MODULES:
            return import_module("." + name, __name__)
        if name in _LATER:
            found = globals()[name] = getattr(import_module(_LATER[name], __name__), name)
            return found
        told = f": write activation(x, {name!r})" if name in activations.NAMES else ""
        text = f"module {__name__!r} has no attribute {name!r}{told}"
        raise AttributeError(text, name=name, obj=sys.modules[__name__])


def __dir__():
    return sorted([*globals(), *_LATER, "reference"])
