"""A graph inside a node that is called round after round on inputs of the same shapes: one plan, and memory that is
kept."""
import math

import numpy as np

from .. import _core
from . import executor
from .control import network
from .memory import check_bytes

BLOCK = 1 << 22  # bytes of rows that are taken at once


class Rounds:
    """The rounds of a graph whose results from `first_out` on are its inputs from `first_in` on in the next round,
    `carried`
    of them; all further results are kept, a row a round."""

    def __init__(self, plan, arenas, inputs, first_in, first_out, carried):
        self._plan, self._arenas = plan, arenas
        self._arena, *_ = executor._memory(plan, arenas)
        self.inputs, self._in, self._out, self._carried = list(inputs), first_in, first_out, carried
        self._results = [_core.new_results(plan.outputs[:first_out + carried]) for _ in range(2)]
        self._rows = [_Rows(*each) for each in plan.outputs[first_out + carried:]]

    def run(self):
        """One round; returns the results in front of those that are carried."""
        results = self._results[0]
        self._results.reverse()
        self._plan.run((self._arena, *self.inputs, *results, *[rows.next() for rows in self._rows]))
        self.inputs[self._in:self._in + self._carried] = results[self._out:]
        return results[:self._out]

    def end(self):
        """What is carried out of the last round, and the rows of each further result."""
        self._arenas.append(self._arena)
        return self.inputs[self._in:self._in + self._carried], [rows.all() for rows in self._rows]


def steady(graph, inputs, first_in, first_out, carried):
    """The Rounds of a graph inside a node; None where another round may have other shapes, or holds sequences."""
    model = network(graph, inputs)
    if any(isinstance(x, list) for x in inputs):
        return None
    arrays = [executor._checked(x, v, True) for x, v in zip(inputs, graph.inputs, strict=True)]
    plan, arenas = model.plan(*arrays)
    given = [(x.shape, x.dtype) for x in arrays[first_in:first_in + carried]]
    if plan.staged or plan.outputs[first_out:first_out + carried] != given:
        return None
    return Rounds(plan, arenas, arrays, first_in, first_out, carried)


class _Rows:
    """Results of one shape, in blocks that grow."""

    def __init__(self, shape, dtype):
        self._shape, self._dtype, self._blocks, self._free, self._length = shape, dtype, [], 0, 8
        self._bytes, self._total = math.prod(shape) * dtype.itemsize, 0

    def next(self):
        """Memory for one more."""
        if not self._free:
            self._free = self._length = max(min(2 * self._length, BLOCK // max(self._bytes, 1)), 1)
            self._total += self._length * self._bytes
            check_bytes(self._total)
            self._blocks.append(np.empty((self._length, *self._shape), self._dtype))
        block = self._blocks[-1]
        self._free -= 1
        return block[len(block) - self._free - 1:len(block) - self._free].reshape(self._shape)

    def all(self):
        """All of them as one array."""
        blocks = self._blocks or [np.empty((0, *self._shape), self._dtype)]
        blocks = [*blocks[:-1], blocks[-1][:len(blocks[-1]) - self._free]]
        return blocks[0] if len(blocks) == 1 else np.concatenate(blocks)
