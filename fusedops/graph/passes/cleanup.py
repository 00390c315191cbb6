"""Removes what does nothing: identities, casts to the type that a value has, transpositions and reshapes that undo or hide each other,
and nodes and constants that nothing reads."""
import numpy as np

from ..evaluate import CAST_TYPES


def run(context):
    for node in context.nodes():
        producer = context.producers.get(node.input(0)) if node.op in ("Transpose", "Reshape") else None
        if producer is not None and producer.op == node.op:
            _join(context, producer, node)
        if _does_nothing(context, node):
            context.rename(node.output, node.inputs[0])
            context.remove(node)
    remove_dead(context)


def _does_nothing(context, node):
    graph = context.graph
    if node.activation is not None or node.residual:
        return False
    if node.op == "Dropout":
        return len(node.outputs) == 1 or not context.consumers.get(node.outputs[1]) and node.outputs[1] not in graph.results
    if node.op == "Cast":
        known = context.known.get(node.inputs[0])
        return known is not None and known.dtype == CAST_TYPES[node.attrs["to"]]
    if node.op == "Transpose":
        perm, shape = node.attrs.get("perm"), context.shape(node.inputs[0])
        return perm is not None and shape is not None and list(perm) == list(range(len(shape)))
    if node.op == "Pad":
        pads = graph.constant(node, 1)
        return pads is not None and not pads.any()
    return node.op == "Identity" or node.op == "Concat" and len(node.inputs) == 1


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
