"""What is known of int8 and uint8 values: where they come from, with which quantization."""

from typing import NamedTuple

import numpy as np

from ...ir.dtypes import INT8
from ...ir.graph import Node, TensorInfo
from ...operators.qlinear import quantization


class Source(NamedTuple):
    """What a DequantizeLinear reads: bytes of a type and their quantization."""

    node: Node
    value: str
    q: tuple
    dtype: np.dtype


def source_of(context, value):
    """The Source of a float value, or why it is none."""
    node = context.producers.get(value)
    if node is None or node.op != "DequantizeLinear":
        return "it takes floats"
    zero, known = context.graph.constant(node, 2), context.known.get(node.inputs[0])
    dtype = known.dtype if zero is None and known is not None else None if zero is None else zero.dtype
    if dtype not in INT8:
        return f"its input has type {dtype}, not uint8 or int8"
    if node.input(2) and zero is None:
        return "the zero point of its input is not constant"
    q = quantization(context.graph.constant(node, 1), zero)
    return f"of its input, {q}" if isinstance(q, str) else Source(node, node.inputs[0], q, dtype)


def target_of(context, node):
    """(quantization, type) of a QuantizeLinear, or why it has none."""
    zero = context.graph.constant(node, 2)
    if node.input(2) and zero is None:
        return "its zero point is not constant"
    dtype = context.known[node.output].dtype if node.output in context.known else None if zero is None else zero.dtype
    if dtype not in INT8:
        return f"its result has type {dtype}, not uint8 or int8"
    q = quantization(context.graph.constant(node, 1), zero)
    return q if isinstance(q, str) else (q, dtype)


def drop(context, value):
    """Removes the node of a value that nothing reads any more, and those that were there for it alone."""
    node = context.producers.get(value)
    if node is None or node not in context.order:
        return
    if not any(context.consumers.get(v) or v in context.graph.results for v in node.outputs if v):
        context.remove(node)
        for v in node.reads():
            drop(context, v)


def set_known(context, value, like, dtype):
    known = context.known.get(like)
    if known is not None:
        context.known[value] = TensorInfo(known.shape, dtype)
