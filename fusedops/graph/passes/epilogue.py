"""The addition of a residual and the activation after it, into the operation before: they are applied to its sums in
registers."""

import numpy as np

from ..operators.registry import OPERATORS


def run(context):
    graph = context.graph
    for node in context.nodes():
        if node.op == "PRelu":
            _as_activation(context, node)
        if node.op == "Add" and node.activation is None and all(v not in graph.constants for v in node.inputs):
            _residual(context, node)
        elif node.op == "Activation":
            _activation(context, node)
        elif node.op == "LayerNormalization":
            _added_before(context, node)


def _as_activation(context, node):
    """A PRelu with one constant slope, or one for each channel, in the form that kernels take."""
    slopes, shape = context.graph.constant(node, 1), context.shape(node.inputs[0])
    if slopes is None or shape is None or slopes.dtype != np.float32 or len(shape) < 3:
        return
    each = (1,) * (len(shape) - slopes.ndim) + slopes.shape
    if len(each) > len(shape) or any(n != 1 for i, n in enumerate(each) if i != 1) or slopes.size not in (1, shape[1]):
        return
    before, node.op, node.inputs = node.inputs, "Activation", node.inputs[:1]
    context.reads_instead(node, before)
    node.activation = ("leaky_relu", slopes.item()) if slopes.size == 1 else ("prelu", slopes.flatten())


def _residual(context, node):
    producers, reasons = context.producers, []
    candidates = sorted((producers[v] for v in node.inputs if v in producers), key=lambda n: -context.order[n])
    for into in candidates:
        if "residual" not in OPERATORS[into.op].kernel.fuses:
            continue
        why = _why_not(context, into, node)
        if why is None and context.shape(into.output) is None:
            why = "the shapes are not known before the network runs"
        other = next((v for v in node.inputs if v != into.output), into.output)
        if why is None and context.shape(other) != context.shape(into.output):
            why = f"{other} of shape {context.shape(other)} is broadcast to {context.shape(into.output)}"
        if why is None and context.differ(other, into.output):
            why = f"{other} or {into.output} is broadcast over a batch of more than one"
        if why is None:
            context.add_residual(into, other)
            context.move(into, node)  # where both addends are there
            return _join(context, into, node, passes=2)
        reasons.append(why)
    if reasons:
        context.refused(node, reasons[0])
    return None


def _added_before(context, norm):
    """The addition in front of a norm, which no other operation has taken: the norm's first pass adds."""
    add = context.producers.get(norm.inputs[0])
    if add is None or add.op != "Add" or add.residual or any(v in context.graph.constants for v in add.inputs):
        return None
    why, (x, other) = _why_not(context, add, norm), add.inputs
    if why is None and add.activation is not None:
        why = f"{add.op} {add.name} has an activation"
    if why is None and not context.shape(x) == context.shape(other) == context.shape(add.output) is not None:
        why = f"{x} of shape {context.shape(x)} and {other} of shape {context.shape(other)} are not of one known shape"
    if why is None and context.differ(x, other):
        why = f"{x} or {other} is broadcast over a batch of more than one"
    if why:
        return context.refused(norm, why)
    before = norm.inputs
    norm.inputs = [x, *(*norm.inputs[1:3], "")[:2], other]
    context.reads_instead(norm, before)
    context.remove(add)
    context.fused([add], norm, passes=2)
    return None


def _activation(context, node):
    into = context.producers.get(node.inputs[0])
    if into is None or "activation" not in OPERATORS[into.op].kernel.fuses:
        return
    why = _why_not(context, into, node)
    if (
        why is None
        and isinstance(node.activation, tuple)
        and node.activation[0] == "prelu"
        and "slopes" not in OPERATORS[into.op].kernel.fuses
    ):
        why = f"{into.op} has no channels that prelu's slopes could belong to"
    if why:
        return context.refused(node, why)
    into.activation = node.activation
    _join(context, into, node, passes=2)


def _why_not(context, into, node):
    """Why `node` cannot be applied where `into` makes its result, or None."""
    graph, name = context.graph, f"{into.op} {into.name}"
    known = context.known.get(into.output)
    if into.activation is not None or into.residual and node.op == "Add":
        return f"{name} has an activation or a residual already"
    if into.output in graph.results:
        return f"the result of {name} is an output of the network"
    readers = context.consumers[into.output]
    if len(readers) > 1:
        return f"the result of {name} has {len(readers)} consumers"
    if known is not None and known.dtype != np.float32:
        return f"{name} computes in {known.dtype}, not float32"
    if OPERATORS[into.op].kernel.weights and graph.constant(into, 1) is None:
        return f"the weights of {name} are not constant"
    return None


def _join(context, into, node, passes):
    context.merge([node], into)
    context.fused([node], into, passes=passes, per_element=1 if node.op == "Add" else 0)
