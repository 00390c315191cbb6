"""Removes what does nothing: identities, casts to the type that a value has, transpositions and reshapes that undo or hide each other,
and nodes and constants that nothing reads."""
import numpy as np

from ..evaluate import CAST_TYPES


def run(context):
    graph = context.graph
    for node in list(graph.nodes):
        producer = graph.producers().get(node.input(0)) if node.op in ("Transpose", "Reshape") else None
        if producer is not None and producer.op == node.op:
            _join(graph, producer, node)
        if _does_nothing(context, node):
            graph.rename(node.output, node.inputs[0])
            graph.remove(node)
    remove_dead(context)


def _does_nothing(context, node):
    graph = context.graph
    if node.activation is not None or node.residual:
        return False
    if node.op == "Dropout":
        return len(node.outputs) == 1 or node.outputs[1] not in graph.consumers() and node.outputs[1] not in graph.results
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


def _join(graph, first, second):
    """Two transpositions, or two reshapes, as one."""
    if second.op == "Transpose":
        a, b = first.attrs.get("perm"), second.attrs.get("perm")
        if a is None or b is None or not sorted(a) == sorted(b) == list(range(len(a))):
            return
        second.attrs = {"perm": [a[i] for i in b]}
    else:
        shape = graph.constant(second, 1)
        if shape is None or np.any(shape == 0):
            return
    second.inputs = [first.inputs[0], *second.inputs[1:]]


def remove_dead(context):
    graph, live, kept = context.graph, set(context.graph.results), []
    for node in reversed(graph.nodes):
        if live.intersection(node.outputs):
            live.update(node.reads())
            kept.append(node)
    graph.nodes = kept[::-1]
    graph.constants = {v: a for v, a in graph.constants.items() if v in live}
