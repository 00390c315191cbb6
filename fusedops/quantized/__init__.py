"""int8: tensors of uint8 and int8, and layers that compute on them with everything that follows fused in."""

from .int8_functions import qconv2d, qlinear
from .int8_layers import QConv2d, QLinear
from .scales import Quantization, between, dequantize, quantize, symmetric

__all__ = [
    "QConv2d",
    "QLinear",
    "Quantization",
    "between",
    "dequantize",
    "qconv2d",
    "qlinear",
    "quantize",
    "symmetric",
]
