"""Linear layers of one input, such as those of queries, keys and values, become one product: its weights are theirs one
below the other, its result is split into views that attention reads where they are. That pays where there are few rows,
as fewer steps start; with many, attention loses up to 1 % by keys that are further from each other.
"""

import math

import numpy as np

from ..ir.float16_weights import exact_float16
from ..ir.graph import Node

_VIEWS = "Reshape", "Transpose", "Squeeze", "Unsqueeze"
_ROWS = 32  # of a product, up to which one is faster than several


def run(context):
    groups = {}
    for node in context.nodes():
        weights, bias = (context.graph.constant(node, i) for i in (1, 2))
        if (
            node.op == "Linear"
            and weights is not None
            and (bias is not None or not node.input(2))
            and node.activation is None
            and not node.residual
            and _has_few_rows(context, node.inputs[0])
            and _is_attended(context, node.output)
        ):
            # weights that float16 holds are read as such, which others among them would prevent
            key = node.inputs[0], weights.shape[1], exact_float16(weights) is None
            groups.setdefault(key, []).append(node)
    for nodes in groups.values():
        if len(nodes) > 1:
            _merge(context, nodes)


def _has_few_rows(context, value):
    """Whether a value may have few rows; an open size may be 1. Of a Squeeze its number of axes may be open, too."""
    shape, doubled = context.shape(value), context.doubled(value)
    if shape is None or doubled is None or len(shape) != len(doubled):
        return False
    return math.prod(n for n, m in zip(shape[:-1], doubled[:-1], strict=True) if n == m) <= _ROWS


def _is_attended(context, value):
    """Whether attention alone reads a value, perhaps in another shape that is a view, or a concatenation, such as with
    the keys of the past, which copies it in any case."""
    if value in context.graph.results:
        return False
    readers = context.consumers.get(value, ())
    return bool(readers) and all(
        node.op == "Concat"
        or (node.op == "SoftmaxProduct" and value in node.inputs[:3])
        or (node.op in _VIEWS and value == node.inputs[0] and _is_attended(context, node.output))
        for node in readers
    )


def _merge(context, nodes):
    graph, first = context.graph, nodes[0]
    weights, biases = ([graph.constant(node, i) for node in nodes] for i in (1, 2))
    sizes = [len(w) for w in weights]
    inputs = [first.inputs[0], context.add_constant(f"{first.inputs[1]}.merged", np.concatenate(weights))]
    if any(b is not None for b in biases):
        biases = [np.zeros(n, np.float32) if b is None else b for n, b in zip(sizes, biases, strict=True)]
        inputs.append(context.add_constant(f"{first.name}.biases", np.concatenate(biases)))
    whole = context.fresh(f"{first.output}.merged")
    merged = Node("Linear", first.name, inputs, [whole])
    lengths = context.add_constant(f"{first.name}.sizes", np.array(sizes, np.int64))
    split = Node("Split", f"{first.name}.split", [whole, lengths], [node.output for node in nodes], {"axis": -1})
    context.add(merged, first)
    context.add(split, first)
    context.remove(*nodes)
    context.fused(nodes, merged, passes=len(nodes) - 1, value=merged.inputs[0])
