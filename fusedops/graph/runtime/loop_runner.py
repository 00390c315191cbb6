"""A graph inside a node that is called round after round on inputs of the same shapes: one plan, and memory that is
kept."""

import math

import numpy as np

from ... import _core
from ..inference.shape_inference import SubgraphInference
from ..ir.graph import Value
from ..steps.tensor import check_bytes, working_memory

BLOCK = 1 << 22  # bytes of rows that are taken at once


class LoopRunner:
    """The rounds of a graph whose results from `first_out` on are its inputs from `first_in` on in the next round,
    `carried` of them; all further results are kept, a row a round."""

    def __init__(self, plan, arenas, inputs, first_in, first_out, carried):
        self._plan, self._arenas = plan, arenas
        self._arena, *_ = working_memory(plan, arenas)
        self.inputs, self._in, self._out, self._carried = list(inputs), first_in, first_out, carried
        self._results = [_core.new_results(plan.outputs[: first_out + carried]) for _ in range(2)]
        self._rows = [_Rows(*each) for each in plan.outputs[first_out + carried :]]

    def run(self):
        """One round; returns the results in front of those that are carried."""
        results = self._results[0]
        self._results.reverse()
        self._plan.run((self._arena, *self.inputs, *results, *[rows.next() for rows in self._rows]))
        self.inputs[self._in : self._in + self._carried] = results[self._out :]
        return results[: self._out]

    def end(self):
        """Returns the values that the last round carries out, and the rows of each further result."""
        self._arenas.append(self._arena)
        return self.inputs[self._in : self._in + self._carried], [rows.all() for rows in self._rows]


class Subgraphs:
    """The sessions of the graphs inside a network's nodes, each made when it is first called; `make` makes one of a
    graph."""

    def __init__(self, make):
        self._make, self.sessions = make, {}

    def session(self, graph, arrays):
        """The session of a graph; a type of elements that the file does not say is that of these inputs."""
        if id(graph) not in self.sessions:  # which keeps the graph, so that no other gets its id
            graph.inputs = [
                v if v.dtype is not None else Value(v.name, v.shape, a.dtype)
                for v, a in zip(graph.inputs, arrays, strict=True)
            ]
            self.sessions[id(graph)] = self._make(graph)
        return self.sessions[id(graph)]

    def call(self, graph, inputs):
        """The results of a graph, as a list."""
        if len(inputs) != len(graph.inputs):
            raise ValueError(f"a graph inside it takes {len(graph.inputs)} values, got {len(inputs)}")
        if not graph.nodes:  # a branch that hands on what it takes
            given = graph.constants | dict(zip((v.name for v in graph.inputs), inputs, strict=True))
            return [given[v] for v in graph.results]
        return self.session(graph, inputs).run(tuple(inputs))

    def infer(self, graph, inputs):
        """Infers the graph's results from what is known of its inputs."""
        return SubgraphInference().infer(graph, inputs)

    def fixed_shapes(self, graph, inputs, first_in, first_out, carried):
        """The LoopRunner of a graph; None where another round may have other shapes, or holds sequences."""
        session = self.session(graph, inputs)
        if any(isinstance(x, list) for x in inputs):
            return None
        arrays = session.take(inputs)
        plan, arenas = session.plan_of(arrays)
        given = [(x.shape, x.dtype) for x in arrays[first_in : first_in + carried]]
        if plan.segmented or plan.outputs[first_out : first_out + carried] != given:
            return None
        return LoopRunner(plan, arenas, arrays, first_in, first_out, carried)


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
        return block[len(block) - self._free - 1 : len(block) - self._free].reshape(self._shape)

    def all(self):
        """All of them as one array."""
        blocks = self._blocks or [np.empty((0, *self._shape), self._dtype)]
        blocks = [*blocks[:-1], blocks[-1][: len(blocks[-1]) - self._free]]
        return blocks[0] if len(blocks) == 1 else np.concatenate(blocks)
