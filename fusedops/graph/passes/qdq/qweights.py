"""Weights of layers in int8: what kernels take of int8 and uint8 ones, and whether it pays."""

from typing import NamedTuple

import numpy as np

from .... import _core, activations
from ...inference import cost
from ...ir.dtypes import INT8
from ...ir.graph import Node
from ...operators.qlinear import as_int8

_CLIPS = activations.parse(None)[0], activations.parse("relu")[0]
_ZEROS_WIDTH = 3  # columns of a depthwise kernel up to which weights with zero points gain (Zen 4)


class Weights(NamedTuple):
    """int8 weights with a scale and, where less their zero points they do not fit int8, a zero point for each output;
    the node that makes floats of them."""

    w: np.ndarray
    scale: np.ndarray
    zero: np.ndarray | None
    node: Node | None = None


def weights(context, value, axis):
    """The Weights of a float value, or why there are none."""
    node = context.producers.get(value)
    if node is None or node.op != "DequantizeLinear":
        return "its weights are floats"
    q, scale, zero = (context.graph.constant(node, i) for i in range(3))
    if q is None or scale is None or node.input(2) and zero is None:
        return "its weights are not constant"
    if why := _unlike_rows(node, q, scale, axis):
        return why
    w, zero = as_int8(q, zero, axis)
    found = Weights(w, np.ascontiguousarray(np.broadcast_to(scale.reshape(-1), q.shape[axis])), zero, node)
    return too_long(found) or found


def _unlike_rows(node, q, scale, axis):
    """Why weights are not int8 with a scale for each output, or \"\"."""
    if q.dtype not in INT8 or scale.dtype != np.float32:
        return f"its weights have type {q.dtype}, with scales of {scale.dtype}"
    if node.attrs.get("block_size", 0):
        return "its weights have a scale a block"
    if axis >= q.ndim:
        return "its weights are not one matrix"
    if scale.size > 1 and node.attrs.get("axis", 1) % q.ndim != axis:
        return "its weights have scales for another axis than that of its output channels"
    if not positive(scale):
        return "a scale of its weights is not positive"
    return ""


def too_long(given):
    """Why sums may not fit 32 bits, or ""."""
    most = _core.Q_STEPS if given.zero is None else _core.Q_STEPS_OF_ZEROS
    return f"its sums have more than {most} products" if given.w.size // max(len(given.scale), 1) > most else ""


def positive(scales):
    """Whether all are normal numbers above 0."""
    return np.all((scales >= np.finfo(np.float32).tiny) & np.isfinite(scales))


def is_depthwise(node, w):
    """Whether each channel of an image has one filter."""
    return w.ndim > 2 and w.shape[1] == 1 and node.attrs.get("group", 1) == len(w) > 1


def is_clip(node):
    """Whether the activation of a node keeps its results or clips them."""
    return activations.parse(node.activation)[0] in _CLIPS


def why_float_depthwise(context, node, given):
    """Why a depthwise convolution with these Weights is faster in float32, or "". Its kernel of int8 is fast where it
    makes int8 by a clip: elsewhere it takes two to three times as long as floats (Zen 4)."""
    if not is_depthwise(node, given.w):
        return ""
    if given.zero is not None and (given.w.shape[-1] > _ZEROS_WIDTH or not _core.has_dot_product()):
        return "with zero points of its weights float32 is as fast"
    return "" if _becomes_int8(context, node.output) else "float32 is faster, as its results are not int8 after a clip"


def _becomes_int8(context, value):
    """Whether a value is quantized and nothing else, but for clips and biases on the way."""
    readers = context.consumers.get(value, ())
    if len(readers) != 1 or value in context.graph.results:
        return False
    (reader,) = readers
    if reader.op == "QuantizeLinear":
        return True
    is_bias = reader.op == "Add" and any(v in context.graph.constants for v in reader.inputs)
    return (is_bias or reader.op == "Activation" and is_clip(reader)) and _becomes_int8(context, reader.output)


def float_gain(context, node, w):
    """How many times as fast a layer with weights of this shape is predicted to be in float32; 0 where it is not, or
    where shapes are not known."""
    x, y = context.shape(node.inputs[0]), context.shape(node.output)
    if x is None or y is None or not all((*x, *y)) or "Conv" in node.op and len(x) > 4 or _core.has_dot_product():
        return 0  # with an int8 dot product no layer is faster in float32
    gain = cost.unquantized(node, x, y, w)
    return gain if gain > 1 else 0
