"""Parameters that the network computes, as scale and shift of a norm and the bias of a convolution: they leave the
node, whose kernel takes constants, and become a product and a sum after it."""

import numpy as np

from ..ir.graph import Node


def run(context):
    for node in context.nodes():
        parameters = PARAMETERS.get(node.op)
        if parameters and not node.residual and node.activation is None and not any(node.outputs[1:]):
            parameters(context, node)


def _is_computed(context, value):
    known = context.known.get(value)
    return bool(value) and value not in context.graph.constants and known is not None and known.dtype == np.float32


def _fixed(context, value):
    """The shape of a value where no open size is in it, else None."""
    shape, doubled = context.shape(value), context.doubled(value)
    return shape if shape is not None and shape == doubled else None


def _convolution(context, node):
    w, bias = context.graph.constant(node, 1), node.input(2)
    if w is not None and w.ndim > 2 and _is_computed(context, bias):
        _split(context, node, node.inputs[:2], None, bias, w.ndim)


def _instance_norm(context, node):
    """The scale and shift of each channel, after a norm with 1 and 0."""
    shape, (scale, shift) = context.shape(node.inputs[0]), node.inputs[1:3]
    if shape is None or not any(_is_computed(context, v) for v in (scale, shift)):
        return
    channels = _fixed(context, scale)
    if channels is None:
        return
    one, zero = (context.add_constant(f"{node.name}.{n}", np.full(channels, n, np.float32)) for n in (1, 0))
    _split(context, node, [node.inputs[0], one, zero], scale, shift, len(shape))


def _layer_norm(context, node):
    scale, shift = node.inputs[1], node.input(2)
    if not any(_is_computed(context, v) for v in (scale, shift)):
        return
    shape = _fixed(context, scale)
    if shape is None:
        return
    one = context.add_constant(f"{node.name}.1", np.ones(shape, np.float32))
    _split(context, node, [node.inputs[0], one], scale, shift, 0)


def _split(context, node, inputs, scale, shift, axes):
    """Leaves the node with these inputs; scale and shift follow it, along axis 1 of `axes` or, where that is 0, the
    last ones."""
    before, result = list(node.inputs), node.output
    node.inputs = inputs
    context.reads_instead(node, before)
    context.produce(node, [context.fresh(f"{result}.plain")])
    steps, value = [(op, v) for op, v in (("Mul", scale), ("Add", shift)) if v], node.output
    for i, (op, v) in enumerate(steps):
        if axes:
            shape = context.add_constant(f"{node.name}.{op}.shape", np.array([1, -1, *[1] * (axes - 2)], np.int64))
            channels = context.fresh(f"{v}.channels")
            context.add(Node("Reshape", f"{node.name}.{op}.reshape", [v, shape], [channels]), node)
            v = channels
        made = result if i == len(steps) - 1 else context.fresh(f"{result}.{op}")
        context.add(Node(op, f"{node.name}.{op}", [value, v], [made]), node)
        value = made


PARAMETERS = {
    "Conv": _convolution,
    "ConvTranspose": _convolution,
    "InstanceNormalization": _instance_norm,
    "LayerNormalization": _layer_norm,
}
