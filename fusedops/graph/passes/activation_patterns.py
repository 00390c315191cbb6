"""Activations that are spelled out, such as x/2 (1 + erf(x / sqrt 2)), become one node.

An expression of one value and numbers is recognized by what it computes, not by how it is written: it is evaluated at
some points and compared with the activations that the kernels have.
"""

import functools

import numpy as np

from ... import activations
from ..inference.evaluate import evaluate
from ..ir.graph import Node
from ..operators.activation import activate
from ..operators.registry import OPERATORS

ROOTS = {"Mul", "Div", "Log", "Reciprocal", "Activation"}
_NEAR = np.concatenate([np.linspace(-7, 7, 57), [-20, 20]])
# no activation bends here, and whatever clamp an expression has shows
_FAR = np.concatenate([2.0 ** np.arange(7, 128, 8), [np.inf]])
_POINTS = np.concatenate([_NEAR, _FAR, -_FAR]).astype(np.float32)
_LARGEST = 9  # nodes of an expression


def run(context):
    names = {}  # of the activations that expressions compute: a network has the same one many times
    parts = {node: described for node in context.nodes() if (described := _described(node)) is not None}
    for root in context.nodes(reverse=True):
        if root.op in ROOTS and root in parts:
            _recognize(context, root, names, parts)


@functools.cache
def _activations():
    """Computes each of the activations at the points."""
    return np.stack([activate(_POINTS, name) for name in activations.PLAIN])


def _recognize(context, root, names, parts):
    graph = context.graph
    producers, consumers = context.producers, context.consumers
    cone = _cone(root, producers, parts)
    if len(cone) < 2:
        return
    for x in dict.fromkeys(v for node in cone for v in node.inputs if v not in graph.constants):
        nodes = _between(context, root, x, parts)
        if nodes is None or len(nodes) < 2 or len(nodes) > _LARGEST:
            continue
        name = _name_of(graph, nodes, x, names, parts)
        if name is None:
            continue
        escaping = [
            n for n in nodes[:-1] if n.output in graph.results or any(c not in nodes for c in consumers[n.output])
        ]
        if escaping:
            return context.refused(root, f"it computes {name}, but {escaping[0].name} inside it is used elsewhere too")
        fused = Node("Activation", root.name, [x], root.outputs, activation=name)
        context.add(fused, root)
        parts[fused] = _described(fused)
        context.remove(*nodes)
        return context.fused(nodes[:-1], fused, passes=2 * len(nodes) - 2, per_element=0)


def _name_of(graph, nodes, x, names, parts):
    """The activation that nodes compute of x, or None; `names` has those of earlier forms."""
    form = _form(graph, nodes, x, parts)
    if form not in names:
        same = _same(_value(graph, nodes, x), _activations())
        names[form] = next((name for name, same in zip(activations.PLAIN, same, strict=True) if same), None)
    return names[form]


def _cone(root, producers, parts):
    """The nearest element-wise nodes that root's value is computed by."""
    found, front = [], [root]
    while front and len(found) <= _LARGEST + 1:
        node = front.pop(0)
        if node not in found:
            found.append(node)
            front += [below for v in node.inputs if (below := producers.get(v)) in parts]
    return found


def _described(node):
    """Returns the function that a node computes of single numbers, else None. An activation with a slope for each
    channel is none."""
    part = (
        OPERATORS[node.op].traits.elementwise
        and not node.residual
        and (node.op == "Activation") == (node.activation is not None)
        and activations.parse(node.activation)[3] is None
    )
    return (node.op, str(node.attrs), node.activation) if part else None


def _between(context, root, x, parts):
    """The nodes that compute root from x and numbers alone, in order; None where something else goes in, or gives the
    result more axes."""
    found, axes, producers = [], len(context.shape(x) or ()), context.producers
    constants = context.graph.constants

    def visit(node):
        for v in node.inputs:
            if v == x:
                continue
            below = producers.get(v)
            if below is None:
                constant = constants.get(v)
                if constant is None or constant.size != 1 or constant.ndim > axes:
                    return False
            elif below not in parts or len(found) > _LARGEST or below not in found and not visit(below):
                return False
        found.append(node)
        return True

    return found if visit(root) else None


def _same(y, known):
    """Which of the activations an expression computes: nearly, and far out exactly, but where it overflows and the
    activation does not."""
    far = np.arange(y.size) >= _NEAR.size
    with np.errstate(invalid="ignore", over="ignore"):
        tolerance = np.where(
            np.isfinite(known), 2e-6 * np.abs(known) + np.where(far, np.finfo(np.float32).tiny, 2e-6), 0
        )
        return np.all((y == known) | (np.abs(y - known) <= tolerance) | far & ~np.isfinite(y), axis=1)


def _form(graph, nodes, x, parts):
    """Returns the form of an expression, whatever its values are called: for each node its operator, and for each input
    its number or the place of the node that makes it."""
    places, form = {x: -1}, []
    for i, node in enumerate(nodes):
        inputs = [
            places.get(v) if v in places or not v else (a := graph.constants[v]).dtype.str + a.tobytes().hex()
            for v in node.inputs
        ]
        form.append((*parts[node], *inputs))
        places[node.output] = i
    return tuple(form)


def _value(graph, nodes, x):
    values = {x: _POINTS}
    with np.errstate(all="ignore"):
        for node in nodes:
            inputs = [values[v] if v in values else graph.constants[v].reshape(()) if v else None for v in node.inputs]
            (values[node.output],) = evaluate(node, inputs)
    return values[nodes[-1].output]
