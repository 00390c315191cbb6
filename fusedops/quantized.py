"""Names by which layers of int8 were pickled in version 1.0."""

from .layers import QConv2d, QLinear
from .quantization import Quantization

__all__ = ["QConv2d", "QLinear", "Quantization"]
