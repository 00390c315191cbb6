"""Batch norm, and any other scale and shift of channels by constants, into the weights before it: w' = w scale, b' = b
scale + shift.

A single constant that scales a product of two computed values, or one of its operands, becomes a factor of the product.

A row of such nodes is composed in float64 and rounded once. After anything but weights the row becomes one batch norm.
It is left alone where folding would change another result, or has nothing constant to fold into; the report says which.
"""

import numpy as np

from ... import _core
from ...batchnorm import BatchNorm, scale_and_shift
from ..operators.registry import OPERATORS

ARITHMETIC = {"Add", "Sub", "Mul", "Div"}
# of a product, which is applied to one operand: more, or less than its reciprocal, could leave the range of float32
_LARGEST_FACTOR = 2.0**24


def fold_scales(context):
    """Folds whole rows of scales and shifts."""
    _run(context, {"BatchNormalization", *ARITHMETIC})
    for node in context.nodes():
        if node.op == "MatMul" and context.shape(node.output) is not None:
            _fold_into_product(context, node)


def fold_biases(context):
    """Folds shifts and signs alone, y + c and c - y: the bias of a product."""
    _run(context, {"Add", "Sub"})


def _run(context, allowed):
    for node in context.nodes():
        if OPERATORS[node.op].kernel.weights:
            _fold(context, node, allowed)
    for node in context.nodes():
        if node.op == "BatchNormalization" and node.op in allowed:
            context.refused(node, _why_not(context, node))
            _join(context, node, allowed)


def _row(context, node, allowed, last):
    """The nodes after `node` that scale and shift its channels, each the only reader of the one before, and what they
    do together."""
    consumers, row, total, value = context.consumers, [], None, node.output
    while (
        value not in context.graph.results and len(consumers.get(value, ())) == 1 and consumers[value][0].op in allowed
    ):
        after = consumers[value][0]
        step = _scale_and_shift(context, after, value, last)
        if step is None:
            break
        scale, shift = step
        total = (scale, shift) if total is None else (total[0] * scale, total[1] * scale + shift)
        row.append(after)
        value = after.output
    return row, total


def _fold(context, node, allowed):
    """Lets a layer do what the nodes after it do to its channels: scales go into its weights, shifts into its bias."""
    at = OPERATORS[node.op].kernel.scale_input
    w, b = context.graph.constant(node, at or 1), context.graph.constant(node, 2)
    if not _takes_channels(node, w, b, at):
        return
    row, total = _row(context, node, allowed, "Linear" in node.op)
    if not row:
        return
    scale, shift = (np.broadcast_to(a, (_channels(context, node, w, at),)) for a in total)
    scales = bool(np.any(scale != 1))  # c - y has a scale too
    if scales and not at or at > 1 and np.any(scale * w < np.finfo(np.float32).tiny):
        return  # scales of int8 weights are positive
    before = list(node.inputs)
    if scales:
        node.inputs[at] = context.add_constant(node.inputs[at] + ".folded", _scaled(node, w, scale))
    shift = shift if b is None else shift + b.astype(np.float64) * scale
    node.inputs[2:3] = [context.add_constant(node.name + ".bias.folded", shift.astype(np.float32))]
    context.reads_instead(node, before)
    context.merge(row, node)
    context.fused(
        row, node, passes=2 * len(row), per_element=sum(2 if n.op == "BatchNormalization" else 1 for n in row)
    )


def _takes_channels(node, w, b, at):
    """Whether what comes after a layer's sums may go into its weights `w` and its bias `b`."""
    if node.activation is not None or node.residual or node.input(2) and b is None:
        return False
    return w is not None and not (at and w.dtype != np.float32)


def _channels(context, node, w, at):
    if not at:
        return context.shape(node.output)[-1]
    return w.shape[1] * node.attrs.get("group", 1) if node.op == "ConvTranspose" else w.shape[0]


def _scaled(node, w, scale):
    """Weights scaled by output channel."""
    if node.op == "ConvTranspose":
        return _scaled_transposed(w, scale, node.attrs.get("group", 1))
    return _core.fold_scale(np.ascontiguousarray(w), np.ascontiguousarray(scale))


def _fold_into_product(context, node):
    """Single factors of both operands and after: attention's 1 / sqrt(d) stands in any of these places."""
    graph, alpha = context.graph, 1.0
    for i, value in enumerate(node.inputs):
        scaling = context.producers.get(value)
        if scaling is None or value in graph.results or len(context.consumers[value]) > 1:
            continue
        source, found = factor(context, scaling, alpha)
        if found is not None:
            alpha = found
            context.read_instead(node, source, i)
            context.remove(scaling)
            context.fused([scaling], node, passes=2, per_element=1, value=value)
    while node.output not in graph.results and len(readers := context.consumers.get(node.output, ())) == 1:
        after = readers[0]
        _, found = factor(context, after, alpha)
        if found is None:
            break
        alpha = found
        context.merge([after], node)
        context.fused([after], node, passes=2, per_element=1)
    if alpha != 1:
        node.attrs["alpha"] = alpha


def factor(context, node, alpha):
    """(value, alpha times the constant) of a node that multiplies a value by a single constant, or (None, None)."""
    value = next((v for v in node.inputs if v not in context.graph.constants), None)
    step = _scale_and_shift(context, node, value, True) if value and node.op in ("Mul", "Div") else None
    if step is None or step[0].size != 1 or not 1 / _LARGEST_FACTOR <= abs(alpha * step[0].item()) <= _LARGEST_FACTOR:
        return None, None
    return value, alpha * step[0].item()


def _scaled_transposed(w, scale, groups):
    """The weights (ic, oc/groups, ...) of a transposed convolution, scaled by output channel."""
    grouped = w.astype(np.float64).reshape(groups, -1, *w.shape[1:])
    scaled = grouped * scale.reshape(groups, 1, w.shape[1], *[1] * (w.ndim - 2))
    scaled[np.abs(scaled) < np.finfo(np.float32).tiny] = 0
    return scaled.reshape(w.shape).astype(np.float32)


def _scale_and_shift(context, node, value, last):
    """Returns the (scale, shift) that a node applies to the channels of `value`, or None; `last`: its channels are the
    last axis, else axis 1."""
    graph, shape = context.graph, context.shape(value)
    if node.activation is not None or node.residual or shape is None:
        return None
    if node.op == "BatchNormalization":
        if _unfoldable(graph, node) or last and len(shape) != 2:
            return None
        return scale_and_shift(_batch_norm(graph, node), shape[1])
    first = node.inputs[0] == value
    c = _of_channels(graph.constants.get(node.inputs[1 if first else 0]), shape, len(shape) - 1 if last else 1)
    if c is None or node.op == "Div" and not (first and c.all()):
        return None
    one, zero = np.ones(1), np.zeros(1)
    return {
        "Mul": lambda: (c, zero),
        "Div": lambda: (1 / c, zero),
        "Add": lambda: (one, c),
        "Sub": lambda: (one, -c) if first else (-one, c),
    }[node.op]()


def _of_channels(c, shape, axis):
    """A constant that has one value, or one for each place along an axis, in float64; else None."""
    if c is None or c.dtype != np.float32 or c.ndim > len(shape):
        return None
    each = (1,) * (len(shape) - c.ndim) + c.shape
    if any(n != 1 for i, n in enumerate(each) if i != axis) or each[axis] not in (1, shape[axis]):
        return None
    return c.astype(np.float64).reshape(-1)


def _batch_norm(graph, node):
    gamma, beta, mean, var = (graph.constants[v] for v in node.inputs[1:5])
    return BatchNorm(gamma, beta, mean, var, node.attrs.get("epsilon", 1e-5))


def _unfoldable(graph, node):
    """Why a batch norm is no constant scale and shift, or None."""
    if node.attrs.get("training_mode", 0):
        return "it is in training mode: its statistics are those of the batch"
    parameters = [graph.constants.get(v) for v in node.inputs[1:5]]
    if any(a is None for a in parameters):
        return "its parameters are not constant"
    if any(a.dtype != np.float32 for a in parameters):
        return f"its parameters have type {parameters[0].dtype}, not float32"
    if not np.all(parameters[3].astype(np.float64) + node.attrs.get("epsilon", 1e-5) > 0):
        return "var + eps is not positive for every channel"
    return None


def _why_not(context, node):
    graph, value = context.graph, node.inputs[0]
    producer, why = context.producers.get(value), _unfoldable(context.graph, node)
    if why:
        return why
    if producer is None or not OPERATORS[producer.op].kernel.weights:
        before = "an input" if producer is None else f"{producer.op} {producer.name}"
        return f"it follows {before}, which has no weights to fold into"
    name = f"{OPERATORS[producer.op].kernel.weights} {producer.name}"
    w, b = graph.constant(producer, 1), graph.constant(producer, 2)
    if w is None or producer.input(2) and b is None:
        return f"the {'weights' if w is None else 'bias'} of {name} are not constant"
    if w.dtype != np.float32:
        return f"the weights of {name} have type {w.dtype}, not float32"
    if value in graph.results:
        return f"the result of {name} is an output of the network"
    readers = len(context.consumers[value])
    if readers > 1:
        return f"the result of {name} has {readers} consumers"
    if producer.op == "Linear":
        return f"its channels are not the last axis of {name}'s result"
    return f"the shape of {name}'s result is not known"


def _join(context, node, allowed):
    """A batch norm that stays takes in the scales and shifts after it."""
    if _unfoldable(context.graph, node) or context.shape(node.output) is None:
        return
    row, total = _row(context, node, allowed, False)
    if not row:
        return
    graph, channels = context.graph, context.shape(node.output)[1]
    scale, shift = scale_and_shift(_batch_norm(graph, node), channels)
    parameters = scale * total[0], shift * total[0] + total[1], np.zeros(channels), np.ones(channels)
    before = node.inputs
    node.inputs = [
        before[0],
        *(
            context.add_constant(f"{node.name}.{part}.folded", p.astype(np.float32))
            for part, p in zip(("gamma", "beta", "mean", "var"), parameters, strict=True)
        ),
    ]
    context.reads_instead(node, before)
    node.attrs["epsilon"] = 0.0
    context.merge(row, node)
    context.fused(row, node, passes=2 * len(row), per_element=len(row))
