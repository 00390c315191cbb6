"""Sequences whose elements are known: what splits or joins one reads the elements themselves."""

import numpy as np

from ..ir.graph import Node, unique
from ..operators.onnx_sequences import parts_of

MAX_PARTS = 256  # of a split that is resolved


def resolve(graph, known):
    """Resolves sequences in place; `known` is what is certain of values."""
    if not any(n.op in _MAKERS or n.op in _READERS for n in graph.nodes):
        return
    work = _Work(graph, known)
    for node in graph.nodes:
        elements = work.lists.get(node.input(0))
        if node.op in _MAKERS and (made := _MAKERS[node.op](work, node, elements)) is not None:
            work.lists[node.output] = made
        if node.op not in _READERS or elements is None or not _READERS[node.op](work, node, elements):
            work.nodes.append(node)
    graph.nodes = work.nodes


class _Work:
    """The nodes as they are made, and the elements of each sequence that is known."""

    def __init__(self, graph, known):
        self.graph, self.known, self.nodes, self.lists = graph, known, [], {}
        self.values, self.names = graph.value_names(), graph.node_names()

    def constant(self, name, data):
        name = unique(name, self.values)
        self.graph.constants[name] = np.asarray(data, np.int64)
        return name

    def add(self, op, like, inputs, outputs, **attrs):
        self.nodes.append(Node(op, unique(like.name, self.names), inputs, outputs, attrs))

    def with_axis(self, op, node, value, axis):
        """A value with an axis more or less."""
        made = unique(f"{value}.{op.lower()}", self.values)
        self.add(op, node, [value, self.constant(f"{node.name}.axis", [axis])], [made])
        return made

    def data(self, value):
        known = self.known.get(value)
        return None if known is None else known.data

    def position(self, node, i, count, default):
        """The position below `count` that an input says, from the end where it is negative; None where it is not known,
        or is none."""
        if not node.input(i):
            return default
        data = self.data(node.input(i))
        if data is None or data.size != 1:
            return None
        at = int(data.reshape(()))
        at += count * (at < 0)
        return at if 0 <= at < count else None


def _inserted(work, node, elements):
    at = None if elements is None else work.position(node, 2, len(elements), len(elements))
    return None if at is None else [*elements[:at], node.inputs[1], *elements[at:]]


def _erased(work, node, elements):
    at = None if not elements else work.position(node, 1, len(elements), len(elements) - 1)
    return None if at is None else [*elements[:at], *elements[at + 1 :]]


def _split(work, node, elements):
    """The parts, made by a Split before the node, which nothing may need any more."""
    x, sizes = work.known.get(node.inputs[0]), work.data(node.input(1))
    if x is None or not x.shape or node.input(1) and sizes is None:
        return None
    axis = node.attrs.get("axis", 0)
    try:
        sizes = parts_of(x.shape[axis], sizes)
    except (IndexError, ValueError):
        return None  # which the node itself says when it runs
    if not 0 < len(sizes) <= MAX_PARTS:
        return None
    parts = [unique(f"{node.output}.{i}", work.values) for i in range(len(sizes))]
    work.add("Split", node, [node.inputs[0], work.constant(f"{node.name}.split", sizes)], parts, axis=axis)
    squeeze = not node.input(1) and not node.attrs.get("keepdims", 1)
    return [work.with_axis("Squeeze", node, v, axis) for v in parts] if squeeze else parts


def _element(work, node, elements):
    at = work.position(node, 1, len(elements), None)
    if at is not None:
        work.add("Identity", node, [elements[at]], node.outputs)
    return at is not None


def _length(work, node, elements):
    work.add("Identity", node, [work.constant(node.output, len(elements))], node.outputs)
    return True


def _joined(work, node, elements):
    axis = node.attrs["axis"]
    if elements and node.attrs.get("new_axis", 0):
        elements = [work.with_axis("Unsqueeze", node, v, axis) for v in elements]
    if elements:
        work.add("Concat", node, list(elements), node.outputs, axis=axis)
    return bool(elements)


_MAKERS = {
    "SequenceConstruct": lambda work, node, elements: list(node.inputs),
    "SequenceEmpty": lambda *_: [],
    "SequenceInsert": _inserted,
    "SequenceErase": _erased,
    "SplitToSequence": _split,
    "Identity": lambda work, node, elements: elements,
}
_READERS = {"ConcatFromSequence": _joined, "SequenceAt": _element, "SequenceLength": _length}
