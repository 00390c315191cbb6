"""Caches: inputs that come back as an output with more rows after them, such as a decoder's keys and values.

A network may keep them: input and output are one piece of memory with room for more rows, in which a call writes the
new ones alone.
"""

from collections import Counter
from typing import NamedTuple

from .tensor import Buffer, TensorView, row_major


class Cache(NamedTuple):
    """An input and an output by their numbers, and the axis along which the output has more."""

    input: int
    output: int
    axis: int


def caches_of(graph):
    """The caches of a graph: inputs that a GroupQueryAttention takes as its past, or that a Concat has other rows
    after."""
    numbers = _numbers(graph)
    reads = Counter(numbers.get(v) for v in graph.results)
    reads.update(
        numbers.get(v) for node in graph.nodes if node.op != "Shape" and not _renames(node) for v in node.reads()
    )
    found = [
        Cache(numbers[name], graph.results.index(made), axis)
        for node in graph.nodes
        for name, made, axis in _pairs(graph, node, numbers, reads)
        if name in numbers and graph.results.count(made) == 1
    ]
    return found if len({c.input for c in found}) == len(found) else []


def _renames(node):
    """Whether a node gives what it takes, as some do before clean-up."""
    return node.op in ("Concat", "Identity") and len(node.inputs) == 1


def _numbers(graph):
    """The numbers of inputs by all names that they have."""
    numbers = {v.name: i for i, v in enumerate(graph.inputs)}
    for node in graph.nodes:
        if _renames(node) and node.inputs[0] in numbers:
            numbers[node.output] = numbers[node.inputs[0]]
    return numbers


def _pairs(graph, node, numbers, reads):
    """(what a node puts other rows after, the result, the axis). A GroupQueryAttention may write new rows among those
    of its past, which nothing else reads then: `reads` counts."""
    if node.op == "com.microsoft.GroupQueryAttention" and len(node.outputs) > 2:
        return [(node.input(i), node.outputs[i - 2], 2) for i in (3, 4) if reads[numbers.get(node.input(i))] == 1]
    if node.op != "Concat" or _renames(node) or node.inputs[0] not in numbers:
        return []
    shape = graph.inputs[numbers[node.inputs[0]]].shape
    return [(node.inputs[0], node.output, node.attrs["axis"] % len(shape))] if shape else []


def kept(cache, number, given, made, capacity):
    """The tensors of a cache's input and output, of which these TensorInfos are known, in memory that has `capacity`
    places along its axis; `number` is that of its slot."""
    shape = (*given.shape[: cache.axis], capacity, *given.shape[cache.axis + 1 :])
    strides = row_major(shape)
    buffer = Buffer(shape[0] * strides[0] * given.dtype.itemsize, slot=number)
    return [TensorView(buffer, known.shape, strides, known.dtype) for known in (given, made)]
