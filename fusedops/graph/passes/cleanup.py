"""Removes what does nothing: identities, casts to the type that a value has, transpositions and reshapes that undo or
hide each other, and nodes and constants that nothing reads."""

import numpy as np

from ..operators.registry import OPERATORS


def run(context):
    for node in context.nodes():
        if node.op == "Dropout" and node.attrs.get("training"):
            context.refused(
                node, "the file has it in training mode; at inference it drops nothing: its result is its input"
            )
        producer = context.producers.get(node.input(0)) if node.op in ("Transpose", "Reshape") else None
        if producer is not None and producer.op == node.op:
            _join(context, producer, node)
        if _does_nothing(context, node):
            context.rename(node.output, node.inputs[0])
            context.remove(node)
    remove_dead(context)


def _does_nothing(context, node):
    graph, idle = context.graph, OPERATORS[node.op].traits.is_identity
    if (
        idle is None
        or node.activation is not None
        or node.residual
        or any(context.consumers.get(v) or v in graph.results for v in node.outputs[1:])
    ):
        return False
    known = [context.known.get(v) for v in node.inputs]
    return idle(node, *[k and k._replace(data=graph.constants.get(v)) for k, v in zip(known, node.inputs, strict=True)])


def _join(context, first, second):
    """Two transpositions, or two reshapes, as one."""
    if second.op == "Transpose":
        a, b = first.attrs.get("perm"), second.attrs.get("perm")
        if a is None or b is None or not sorted(a) == sorted(b) == list(range(len(a))):
            return
        second.attrs = {"perm": [a[i] for i in b]}
    else:
        shape = context.graph.constant(second, 1)
        if shape is None or np.any(shape == 0):
            return
    context.read_instead(second, first.inputs[0])


def remove_dead(context):
    graph, live = context.graph, set(context.graph.results)
    for node in context.nodes(reverse=True):
        if live.intersection(node.outputs):
            live.update(node.reads())
        else:
            context.remove(node)
    graph.constants = {v: a for v, a in graph.constants.items() if v in live}
