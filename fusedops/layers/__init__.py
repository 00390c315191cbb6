"""Prepared layers: batch norm folded and weights packed once, then called many times, from any thread."""

from .arguments import LARGEST, LAYOUTS, PRECISIONS, integer, multiplies, windows
from .block_layers import DepthwiseSeparable, InvertedResidual
from .conv_layers import ALGORITHMS, LARGEST_SIDE, Conv1d, Conv2d
from .layer import rebuilt, storage_of
from .linear_layers import ConstantLinear, LentLinear, Linear
from .transposed_layers import ConvTranspose1d, ConvTranspose2d, fold_transposed, spreading

_rebuild = rebuilt  # by this name layers were pickled once

__all__ = [
    "ALGORITHMS",
    "ConstantLinear",
    "Conv1d",
    "Conv2d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "DepthwiseSeparable",
    "InvertedResidual",
    "LARGEST",
    "LARGEST_SIDE",
    "LAYOUTS",
    "LentLinear",
    "Linear",
    "PRECISIONS",
    "fold_transposed",
    "integer",
    "multiplies",
    "spreading",
    "storage_of",
    "windows",
]
