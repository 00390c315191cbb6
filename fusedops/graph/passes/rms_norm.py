"""x / sqrt(mean(x^2) + eps) over the last axis, and the scale after it, become one node: as exporters spell out
RMSNorm, with a quotient or with the product by an inverse."""

import numpy as np

from ..ir.graph import Node


def run(context):
    for node in context.nodes():
        if node.op == "ReduceMean" and node in context.order:
            _fuse(context, node)


def _fuse(context, mean):
    x = _squared(context, mean)
    if x is None or not _along_last(context, mean, x):
        return
    added = _reader(context, mean.output)
    eps = _number(context, added, "Add", mean.output)
    root = _reader(context, added.output) if eps is not None and eps >= 0 else None
    if root is None or root.op != "Sqrt":
        return
    nodes = [context.producers[mean.inputs[0]], mean, added, root, *_division(context, x, root)]
    chain, last = nodes[:-1], nodes[-1]
    if last is not root and all(node.activation is None and not node.residual for node in (*chain, last)):
        _replace(context, chain, last, x, eps, context.shape(x)[-1])


def _division(context, x, root):
    """The nodes that divide x by a root, in order; none where it is not what becomes of the root."""
    node = _reader(context, root.output)
    if not _is_inverse(context, node, root.output):
        return [node] if node is not None and node.op == "Div" and node.inputs == [x, root.output] else []
    product = _reader(context, node.output)
    if product is None or product.op != "Mul" or sorted(product.inputs) != sorted([x, node.output]):
        return []
    return [node, product]


def _is_inverse(context, node, value):
    """Whether a node is 1 over a value."""
    return node is not None and (node.op == "Reciprocal" or _number(context, node, "Div", value, 0) == 1)


def _squared(context, mean):
    """The value whose squares a node takes the mean of, or None."""
    node = context.producers.get(mean.inputs[0])
    if node is None or len(context.consumers[node.output]) > 1 or node.output in context.graph.results:
        return None
    if node.op == "Mul" and node.inputs[0] == node.inputs[1]:
        return node.inputs[0]
    exponent = context.graph.constants.get(node.input(1)) if node.op == "Pow" else None
    return node.inputs[0] if exponent is not None and exponent.size == 1 and exponent.item() == 2 else None


def _along_last(context, mean, x):
    """Whether a mean goes over the last axis of a float32 value, whose size is fixed."""
    known, doubled = context.known.get(x), context.doubled(x)
    if known is None or known.dtype != np.float32 or doubled is None or doubled[-1:] != known.shape[-1:]:
        return False
    given = context.graph.constants.get(mean.input(1))
    last = given is not None and given.size == 1 and given.item() in (-1, len(known.shape) - 1)
    return last and mean.attrs.get("keepdims", 1) == 1


def _reader(context, value):
    """The one node that reads a value, or None."""
    readers = context.consumers.get(value, ())
    return readers[0] if len(readers) == 1 and value not in context.graph.results else None


def _number(context, node, op, value, at=None):
    """The number that a node of this operator has besides a value, at a place or at any; None where it is another."""
    if node is None or node.op != op:
        return None
    a = context.graph.constants.get(node.inputs[at] if at is not None else next(v for v in node.inputs if v != value))
    return a.item() if a is not None and a.size == 1 and a.dtype == np.float32 else None


def _replace(context, chain, last, x, eps, size):
    scaled = _reader(context, last.output)
    scale = None
    if scaled is not None and scaled.op == "Mul" and scaled.activation is None and not scaled.residual:
        scale = next((v for v in scaled.inputs if v != last.output), None)
        data = context.graph.constants.get(scale)
        scale = scale if data is not None and data.shape == (size,) and data.dtype == np.float32 else None
    if scale is None:
        scale, nodes = context.add_constant(f"{last.name}.ones", np.ones(size, np.float32)), [*chain, last]
    else:
        nodes = [*chain, last, scaled]
    end = nodes.pop()
    made = Node("RMSNormalization", end.name, [x, scale], end.outputs, {"axis": -1, "epsilon": eps})
    context.add(made, end)
    context.remove(*nodes, end)
    context.fused(nodes, made, passes=len(nodes))
