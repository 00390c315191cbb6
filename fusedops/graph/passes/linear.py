"""Gemm and MatMul with constant weights become Linear, whose weights are packed once; a Gemm's addition that is no bias
stands for itself."""

import numpy as np

from ..ir.graph import Node


def run(context):
    graph, made = context.graph, {}  # the weights that products share, transposed
    for node in context.nodes():
        if node.op == "MatMul" and _weights(graph, node) is not None:
            _read_weights(context, node, made, _weights(graph, node).T, 1.0)
            node.op = "Linear"
        elif node.op == "Gemm":
            _gemm(context, node, made)


def _read_weights(context, node, made, w, factor):
    """Lets a node read weights (n, k), once for all nodes that have the same."""
    key = node.inputs[1], w.strides, factor
    if key not in made:
        made[key] = context.add_constant(f"{node.inputs[1]}.rows", _scaled(w, factor))
    context.read_instead(node, made[key], 1)


def _weights(graph, node):
    w = graph.constant(node, 1)
    return w if w is not None and w.ndim == 2 and w.dtype == np.float32 else None


def _gemm(context, node, made):
    w, c = _weights(context.graph, node), context.graph.constant(node, 2)
    alpha, beta = node.attrs.pop("alpha", 1.0), node.attrs.pop("beta", 1.0)
    constant = w is not None and not node.attrs.get("transA", 0)
    if not constant:
        node.attrs["alpha"] = alpha
    else:
        w = w if node.attrs.get("transB", 0) else w.T
        node.op, node.attrs = "Linear", {}
        _read_weights(context, node, made, w, alpha)
    if not node.input(2):
        return
    before, addend = node.inputs, node.inputs[2]
    if constant and c is not None and _is_bias(c, w.shape[0]):
        bias = np.broadcast_to(_scaled(c.reshape(-1), beta), (w.shape[0],))
        context.read_instead(node, context.add_constant(addend + ".bias", np.ascontiguousarray(bias)), 2)
    else:
        node.inputs = before[:2]
        context.reads_instead(node, before)
        _add_after(context, node, addend, beta)


def _is_bias(c, channels):
    """Whether c has one value for each column of a product, or one for all."""
    return c.dtype == np.float32 and (c.size == 1 or c.size == c.shape[-1] == channels)


def _scaled(a, factor):
    return a if factor == 1 else (a.astype(np.float64) * factor).astype(np.float32)


def _add_after(context, node, addend, beta):
    """node's result + beta addend, as nodes of their own after it."""
    if beta != 1:
        factor = context.add_constant(node.name + ".beta", np.float32(beta))
        scaled = context.fresh(node.output + ".scaled")
        context.add(Node("Mul", node.name + ".scaled", [addend, factor], [scaled]), node)
        addend = scaled
    total = node.output
    context.produce(node, [context.fresh(node.output + ".product")])
    context.add(Node("Add", node.name + ".sum", [node.output, addend], [total]), node)
