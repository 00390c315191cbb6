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
    patterns = _Patterns(context)
    for root in context.nodes(reverse=True):
        if root.op in ROOTS and root in patterns.parts:
            patterns.recognize(root)


@functools.cache
def _activations():
    """Computes each of the activations at the points."""
    return np.stack([activate(_POINTS, name) for name in activations.PLAIN])


class _Patterns:
    """`parts` has what each node computes that an expression may consist of, and `numbers` the values that follow from
    constants alone. Expressions are told apart by the numbers of their `forms`; `names` has the activation, or None, of
    each: a network has the same one many times."""

    def __init__(self, context):
        self.context, self.forms, self.names = context, {}, {}
        self.parts, self.numbers = {}, set(context.graph.constants)
        for node in context.nodes():
            described = _described(node)
            if described is not None:
                self.parts[node] = described
                if self.numbers.issuperset(node.inputs):
                    self.numbers.add(node.output)

    def recognize(self, root):
        """Puts one node in the place of the expression that root ends, where an activation computes the same."""
        context, results = self.context, self.context.graph.results
        for x, made, form in self._cuts(root):
            if form not in self.names:
                self.names[form] = self._name_of(x, made)
            name = self.names[form]
            if name is None:
                continue
            nodes = self._in_order(root, x)
            escaping = [
                n for n in nodes[:-1] if n.output in results or any(c not in nodes for c in context.consumers[n.output])
            ]
            if escaping:
                why = f"it computes {name}, but {escaping[0].name} inside it is used elsewhere too"
                return context.refused(root, why)
            fused = Node("Activation", root.name, [x], root.outputs, activation=name)
            context.add(fused, root)
            self.parts[fused] = _described(fused)
            context.remove(*nodes)
            return context.fused(nodes[:-1], fused, passes=2 * len(nodes) - 2, per_element=0)

    def _cuts(self, root):
        """(a value, the nodes that compute root from it and numbers alone, the number of their form) for each such
        value, the nearest first. A walk takes the last of the nodes in front, and numbers first: where one value is in
        front alone, all that follows it computes root. The form says what, whatever values are called: for each node
        its place, its operator, and for each input its number or place."""
        parts, forms = self.parts, self.forms
        nodes, places, front, ends, axes, form = [], {root.output: 0}, [root], [], 0, None
        while front and len(nodes) < _LARGEST:
            if len(front) > 1:
                front.sort(key=self._when)
            node = front.pop()
            nodes.append(node)
            described = [form, places[node.output], parts[node]]
            for v in node.inputs:
                place = places.get(v)
                if place is None:
                    place = places[v] = self._place(v, len(places), front, ends)
                    if place is None:
                        return
                    if place.__class__ is tuple:
                        axes = max(axes, place[0])
                described.append(place)
            form = forms.setdefault(tuple(described), len(forms))
            if len(front) + len(ends) == 1 < len(nodes):
                x = front[0].output if front else ends[0]
                if axes <= len(self.context.shape(x) or ()):
                    yield x, nodes, form

    def _place(self, value, place, front, ends):
        """What stands for a value in a form: a number itself, for others the place, with which they come in front, or
        to the `ends` where no part makes them; None where an expression has no such value."""
        maker = self.context.producers.get(value)
        if maker in self.parts:
            front.append(maker)
            return place
        constant = self.context.graph.constants.get(value)
        if maker is None and constant is not None:
            return (constant.ndim, constant.dtype.str, constant.tobytes()) if constant.size == 1 else None
        ends.append(value)
        return place if value else None

    def _when(self, node):
        return node.output in self.numbers, self.context.order[node]

    def _name_of(self, x, made):
        """The activation that nodes, the last one first, compute of x, or None."""
        same = _same(_value(self.context.graph, made[::-1], x), _activations())
        return next((name for name, same in zip(activations.PLAIN, same, strict=True) if same), None)

    def _in_order(self, root, x):
        """The nodes that compute root from x and numbers alone, each after what it reads."""
        found, producers = [], self.context.producers

        def visit(node):
            for v in node.inputs:
                if v != x and v in producers and producers[v] not in found:
                    visit(producers[v])
            found.append(node)

        visit(root)
        return found


def _described(node):
    """Returns the function that a node computes of single numbers, else None. An activation with a slope for each
    channel is none."""
    activation = node.activation
    part = (
        OPERATORS[node.op].traits.elementwise
        and not node.residual
        and (node.op == "Activation") == (activation is not None)
        and (activation.__class__ is not tuple or activations.parse(activation)[3] is None)
    )
    return (node.op, str(node.attrs) if node.attrs else "", activation) if part else None


def _same(y, known):
    """Which of the activations an expression computes: nearly, and far out exactly, but where it overflows and the
    activation does not."""
    far = np.arange(y.size) >= _NEAR.size
    with np.errstate(invalid="ignore", over="ignore"):
        tolerance = np.where(
            np.isfinite(known), 2e-6 * np.abs(known) + np.where(far, np.finfo(np.float32).tiny, 2e-6), 0
        )
        return np.all((y == known) | (np.abs(y - known) <= tolerance) | far & ~np.isfinite(y), axis=1)


def _value(graph, nodes, x):
    values = {x: _POINTS}
    with np.errstate(all="ignore"):
        for node in nodes:
            inputs = [values[v] if v in values else graph.constants[v].reshape(()) if v else None for v in node.inputs]
            (values[node.output],) = evaluate(node, inputs)
    return values[nodes[-1].output]
