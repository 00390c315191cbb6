"""Caches: inputs that come back as an output with more rows behind them, such as a decoder's keys and values.

A network may keep them: input and output are one piece of memory with room for more rows, in which a call writes the
new ones alone.
"""

from typing import NamedTuple

from .tensor import Buffer, TensorView, row_major


class Cache(NamedTuple):
    """An input and an output by their numbers, and the axis along which the output has more."""

    input: int
    output: int
    axis: int


def caches_of(graph):
    """The caches of a graph: inputs that a GroupQueryAttention takes as its past, or that a Concat has other rows
    behind."""
    numbers, found = {v.name: i for i, v in enumerate(graph.inputs)}, []
    for node in graph.nodes:
        if node.op == "com.microsoft.GroupQueryAttention" and len(node.outputs) > 2:
            pairs = [(node.input(3), node.outputs[1], 2), (node.input(4), node.outputs[2], 2)]
        elif node.op not in ("Concat", "Identity") or node.inputs[0] not in numbers:
            continue
        elif len(node.inputs) == 1:  # before clean-up
            numbers[node.output] = numbers[node.inputs[0]]
            continue
        else:
            shape = graph.inputs[numbers[node.inputs[0]]].shape
            pairs = [(node.inputs[0], node.output, node.attrs["axis"] % len(shape))] if shape else []
        found += [
            Cache(numbers[name], graph.results.index(made), axis)
            for name, made, axis in pairs
            if name in numbers and graph.results.count(made) == 1
        ]
    return found if len({c.input for c in found}) == len(found) else []


def kept(cache, number, given, made, capacity):
    """The tensors of a cache's input and output, of which these TensorInfos are known, in memory that has `capacity`
    places along its axis; `number` is that of its slot."""
    shape = (*given.shape[: cache.axis], capacity, *given.shape[cache.axis + 1 :])
    strides = row_major(shape)
    buffer = Buffer(shape[0] * strides[0] * given.dtype.itemsize, slot=number)
    return [TensorView(buffer, known.shape, strides, known.dtype) for known in (given, made)]
