"""What layers and functions are given, checked: each says what was wrong and what to do."""

from __future__ import annotations

import sys
import warnings
from operator import index
from typing import TYPE_CHECKING

import numpy as np

from .. import _core

if TYPE_CHECKING:
    from typing import Any

    from .._types import Array, Ints, Layout, Padding


LAYOUTS: tuple[str, ...] = ("NCHW", "NHWC")
# Of a kernel's side, a stride, dilation or padding: what is computed of them stays within 64 bits.
LARGEST: int = 2**31 - 1


def bias_of(bias, channels):
    if bias is None:
        return None
    bias = _core.as_input(bias, "bias")
    if bias.shape != (channels,):
        raise ValueError(
            f"bias has shape {bias.shape}, but there are {channels} outputs: it must have shape ({channels},)"
        )
    return np.ascontiguousarray(bias)


PRECISIONS: tuple[str, ...] = "float32", "bfloat16"  # of the operands of products


def checked_precision(precision: str) -> str:
    """The `precision`, or the error that says what it may be."""
    if precision == "int8":
        raise ValueError(
            "unknown precision 'int8'; known are 'float32', 'bfloat16'. int8 needs ranges: write "
            "model.quantize(samples) of a network, QConv2d or QLinear of a layer"
        )
    return one_of(precision, "precision", PRECISIONS)


PACKAGE = __name__.partition(".")[0]


def warn(text):
    """Warns about the line of the user's that led here."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == PACKAGE:
        level, frame = level + 1, frame.f_back
    warnings.warn(text, stacklevel=level)


def integer(value, name, least=1):
    """The int that `value` is, or the error that says why not."""
    try:
        value = index(value)
    except TypeError:
        raise TypeError(f"{name} must be an int, not {value!r}") from None
    if not least <= value <= LARGEST:
        raise ValueError(f"{name} must be at least {least} and below 2**31, not {value}")
    return value


def pair_of(value, name, least, forms="an int or a pair of ints"):
    """An int or a pair of ints as a pair; `name`, `least` and `forms` are for the error."""
    if type(value) is int and least <= value <= LARGEST:
        return value, value
    try:
        pair = (index(value),) * 2
    except TypeError:
        try:
            pair = tuple(map(index, value))
        except TypeError:
            raise TypeError(f"{name} must be {forms}, not {value!r}") from None
    if len(pair) != 2 or min(pair) < least or max(pair) > LARGEST:
        raise ValueError(f"{name} must be {forms}, each at least {least} and below 2**31, not {value!r}")
    return pair


_PADDINGS = "an int, a pair of ints, two such pairs, 'same' or 'valid'"


def padding_of(padding):
    """``((top, bottom), (left, right))``, or "same"."""
    if isinstance(padding, str):
        if padding not in ("same", "valid"):
            causal = "; a causal Conv1d has padding=((k - 1) * dilation, 0)" if padding == "causal" else ""
            raise ValueError(f"padding must be {_PADDINGS}, not {padding!r}{causal}")
        return "same" if padding == "same" else ((0, 0), (0, 0))
    if isinstance(padding, (tuple, list)) and len(padding) == 2 and all(isinstance(p, (tuple, list)) for p in padding):
        return tuple(pair_of(p, "each pair of padding", 0) for p in padding)
    vertical, horizontal = pair_of(padding, "padding", 0, _PADDINGS)
    return (vertical,) * 2, (horizontal,) * 2


def one_of(value, name, known):
    if not isinstance(value, str) or value not in known:
        raise ValueError(f"unknown {name} {value!r}; known are {', '.join(map(repr, known))}")
    return value


def windows(
    w: Array, stride: Ints, padding: Padding, dilation: Ints, groups: int, layout: Layout
) -> tuple[Any, Any, Any, int, bool]:
    """A convolution's options as the binding takes them, or the error that says why not; layout is True for NHWC."""
    groups = integer(groups, "groups")
    if groups > max(len(w), 1) or len(w) % groups:
        raise ValueError(f"groups={groups} must divide the {len(w)} output channels of w {w.shape}")
    if not 1 <= min(w.shape[2:]) <= max(w.shape[2:]) <= LARGEST:
        raise ValueError(
            f"w has shape {w.shape}, but a kernel has at least one row and one column, and less than 2**31 of each"
        )
    stride, dilation = pair_of(stride, "stride", 1), pair_of(dilation, "dilation", 1)
    return stride, padding_of(padding), dilation, groups, one_of(layout, "layout", LAYOUTS) == "NHWC"
