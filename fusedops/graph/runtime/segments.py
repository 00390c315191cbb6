"""Networks whose shapes depend on what is computed: one segment after another, each planned when the sizes that it
needs are known.

A segment runs the nodes before the first one whose result has a shape that only a call knows, then evaluates that node,
and hands all values that are still read to the network of the nodes after it. Where a few integers decide the shape,
and the node has a kernel, they alone are handed on and the node is planned for them.
"""

from time import perf_counter

import numpy as np

from ..inference.evaluate import evaluate
from ..inference.shape_inference import MAX_VALUES
from ..ir.graph import Graph, Value
from ..operators.registry import OPERATORS
from ..operators.schema import Kernel
from ..steps.step import Step


class Segment:
    """A plan that ends early; it has the attributes of Plan. `error` is the DataDependentShape that infer raised for
    `graph`, and `make` gives the network of a graph; `inner` is a graph inside a node, whose values change from round
    to round."""

    segmented = True

    def __init__(self, graph, error, make, inner, graphs):
        self._graphs = graphs
        self.node, known, nodes = error.node, error.known, graph.nodes
        at = nodes.index(self.node) if self.node else len(nodes)
        before, self._later = nodes[:at], nodes[at + 1 :]
        if self.node and not inner and _is_planned(graph, self.node, known):
            self.node, self._later = None, nodes[at:]
        self._read = dict.fromkeys([*(v for n in self._later for v in n.reads()), *graph.results])
        needed = dict.fromkeys([*self._read, *(self.node.reads() if self.node else ())])
        self.constants = {v: known[v].data for v in needed if v in known and known[v].data is not None}
        self.before = _Before(graph, before, [v for v in needed if v not in self.constants], known, make)
        self.inputs, self.results = [v.name for v in graph.inputs], graph.results
        self.after, self._graph, self._make = None, graph, make
        self.types = _types(self.node, known) if self.node else {}
        self.used, self.arena, self.outputs = -1, self.before.arena, []
        self.steps, self.report = self.before.steps, self.before.report
        self.shapes = {name: k.shape for name, k in known.items()}

    def run(self, arrays):
        """All values that are read after it, by their names."""
        env = dict(zip(self.inputs, arrays, strict=True)) | self.constants
        env |= self.before.run(env)
        return self.evaluated(env)

    def evaluated(self, env):
        """The values with the results of the node; the network after it is made when these are there for the first
        time."""
        if self.node is not None:
            inputs = [env[v] if v else None for v in self.node.inputs]
            results = evaluate(self.node, inputs, env.get(self.node.residual), self._graphs)
            env |= {v: _own(r, self.types[v]) for v, r in zip(self.node.outputs, results, strict=False) if v}
        if self._later and self.after is None:
            self.after = self._network(env)
        return env

    def _network(self, env):
        """The network of the nodes after."""
        made = {v for n in self._later for v in n.outputs}
        changing = self.node.outputs if self.node else ()
        inputs = [
            _input(v, env[v], v in changing)
            for v in self._read
            if v not in self.constants and v in env and v not in made
        ]
        results = [v for v in dict.fromkeys(self.results) if v in made]
        constants = {v: a for v, a in (self._graph.constants | self.constants).items() if v in self._read}
        outputs = [Value(v, None, np.dtype(np.float32)) for v in results]
        return self._make(Graph(self._later, constants, inputs, outputs, results, self._graph.opset))


class _Before:
    """The network of the nodes in front; without any, nothing."""

    def __init__(self, graph, nodes, wanted, known, make):
        producers = {v: n for n in nodes for v in n.outputs if v}
        self.results = [v for v in wanted if v in producers]
        kept, live = _needed(graph, nodes, self.results, known)
        self.inputs = [v for v in graph.inputs if v.name in live]
        self.session, self.arena, self.steps, self.report = None, 0, [], []
        if kept:
            constants = {v: known[v].data for n in kept for v in n.reads() if known[v].data is not None}
            outputs = [Value(v, *known[v][:2]) for v in self.results]
            self.session = make(Graph(kept, constants, self.inputs, outputs, self.results, graph.opset))

    def run(self, env):
        if self.session is None:
            return {}
        return dict(zip(self.results, self.session.run(tuple([env[v.name] for v in self.inputs])), strict=True))


def _needed(graph, nodes, results, known):
    """(the nodes that these results follow from, the names of all that they read and make)."""
    live, kept = set(results), []
    for node in reversed(nodes):
        if live.intersection(node.outputs) and any(known[v].data is None for v in node.outputs if v):
            live.update(v for v in node.reads() if known[v].data is None or v in graph.constants)
            kept.append(node)
    return kept[::-1], live


def _is_planned(graph, node, known):
    """Whether the node has a kernel, and a few numbers decide its shape, which are not the network's inputs already."""
    record = OPERATORS[node.op]
    deciding = [v for i in record.inference.shape_inputs if (v := node.input(i)) and known[v].data is None]
    given = {v.name for v in graph.inputs}
    return (
        bool(deciding)
        and isinstance(record.kernel, Kernel)
        and node.op != "Slice"
        and all(v not in given and len(known[v].shape) <= 1 and known[v].shape[:1] <= (MAX_VALUES,) for v in deciding)
    )


def _types(node, known):
    """{result: its type of elements} of a node, None for what a sequence has."""
    inputs = [known[v] if v else None for v in node.inputs]
    return {v: OPERATORS[node.op].inference.dtype(node, inputs, i) for i, v in enumerate(node.outputs) if v}


def _input(name, value, changing):
    """A value as an input of the next segment; `changing`: in other calls it has another shape."""
    if isinstance(value, list):
        return Value(name, None, np.dtype(object))
    return Value(name, None if changing else value.shape, value.dtype)


def _own(result, dtype):
    """A result as an array of its own memory and type; a sequence stays one."""
    if isinstance(result, list):
        return result
    a = np.asarray(result, dtype)
    return a if a.base is None and a.flags.c_contiguous and a.flags.owndata else a.copy(order="C")


def run(plan, arenas, arrays, execute):
    """The results of a plan that may be a segment, and of all segments after it, none in memory of an input or a
    constant; `execute` runs a plan that is none."""
    passed, shared, results = [], [*arrays], []
    while isinstance(plan, Segment):
        passed.append((plan, plan.run(arrays)))
        shared += plan.constants.values()
        if plan.after is None:
            break
        arrays = plan.after.take([passed[-1][1][v.name] for v in plan.after.graph.inputs])
        plan, arenas = plan.after.plan_of(arrays)
    else:
        results = execute(plan, arenas, arrays)
    for segment, env in reversed(passed):
        env |= dict(zip(segment.after.graph.results, results, strict=True)) if segment.after is not None else {}
        results = [env[v] for v in segment.results]
    given = set(map(id, shared))
    return [x.copy() if id(x) in given else x for x in results]


class Timed:
    """The steps of all segments of one call, as a plan has them."""

    def __init__(self):
        self.steps, self.shapes = [], {}


def timed(plan, arenas, arrays, seconds_of):
    """(steps and shapes of all segments, the seconds of each step); `seconds_of` times a plan that is no segment."""
    found, seconds = Timed(), []
    while isinstance(plan, Segment):
        env = dict(zip(plan.inputs, arrays, strict=True)) | plan.constants
        if plan.before.session is not None:
            inner, times = plan.before.session.timed([env[v.name] for v in plan.before.inputs])
            found.steps += inner.steps
            found.shapes |= inner.shapes
            seconds += times
        env |= plan.before.run(env)
        start = perf_counter()
        env = plan.evaluated(env)
        if plan.node is not None:
            found.steps.append(Step("numpy", plan.node, {}, [], []))
            seconds.append(perf_counter() - start)
        found.shapes |= {v: np.shape(a) for v, a in env.items() if not isinstance(a, list)}
        if plan.after is None:
            return found, seconds
        arrays = plan.after.take([env[v.name] for v in plan.after.graph.inputs])
        plan, arenas = plan.after.plan_of(arrays)
    found.steps += plan.steps
    found.shapes |= plan.shapes
    return found, seconds + seconds_of(plan, arenas, arrays)
