"""Graphs inside nodes: what they take from outside, their networks, and a branch in the place of its node.

A node with graphs has the values that its graphs take from outside after its own inputs, for each graph in order;
inside they are the last `captures` inputs of the graph. So passes and plans see all that a node reads.
"""

import numpy as np

from .graph import Graph, Node, TensorInfo, unique

MAX_ITERATIONS = 10_000_000  # of a loop: one that goes on is taken to have no end
FIRST_ROUND = {"round": np.array(0, np.int64), "goes on": np.array(True)}  # what the body of a Loop takes first
MAX_FOLDED_ITERATIONS = 1000  # rounds of a loop that is computed while planning


class DataDependentShape(ValueError):
    """A shape depends on values that only a call knows. `node` and `known` say where, and what is known there."""

    node: Node | None = None
    known: dict[str, TensorInfo] | None = None


def graphs_of(node):
    """{attribute: graph} of a node."""
    return {k: a for k, a in node.attrs.items() if isinstance(a, Graph)}


def own_inputs(node, inputs):
    """What a node takes itself, out of things in the order of its inputs."""
    inputs = list(inputs)
    return inputs[: len(inputs) - sum(g.captures for g in graphs_of(node).values())]


def captured(node, key, inputs):
    """What the graph under an attribute takes from outside, out of things in the order of the node's inputs."""
    at = len(own_inputs(node, inputs))
    for name, graph in graphs_of(node).items():
        if name == key:
            return list(inputs[at : at + graph.captures])
        at += graph.captures
    return []


def drop_unused(node):
    """Forgets what the graphs of a node take from outside and do not read, or have as constants."""
    kept, taken = own_inputs(node, node.inputs), {key: captured(node, key, node.inputs) for key in graphs_of(node)}
    for key, graph in graphs_of(node).items():
        outside = list(zip(graph.inputs[len(graph.inputs) - graph.captures :], taken[key], strict=True))
        used = {v for n in graph.nodes for v in n.reads()}.union(graph.results)
        gone = {v.name for v, _ in outside if v.name not in used or v.name in graph.constants}
        graph.inputs = [v for v in graph.inputs if v.name not in gone]
        graph.captures -= len(gone)
        kept += [name for v, name in outside if v.name not in gone]
    node.inputs = kept


def take_constants(graph, node):
    """Gives the graphs of a node as constants what they take from outside and is constant there."""
    for key, inner in graphs_of(node).items():
        formal = inner.inputs[len(inner.inputs) - inner.captures :]
        inner.constants |= {
            v.name: graph.constants[name]
            for v, name in zip(formal, captured(node, key, node.inputs), strict=True)
            if name in graph.constants
        }
    drop_unused(node)


_ROUNDS = {"Loop": (2, 1), "Scan": (0, 0)}  # where carried values begin in what a body takes and gives


def unchanged(node):
    """The carried values of a Loop or Scan that its body returns as it took them, by their numbers."""
    if node.op not in _ROUNDS:
        return []
    body, (first_in, first_out) = node.attrs["body"], _ROUNDS[node.op]
    count = len(own_inputs(node, node.inputs)) - first_in - node.attrs.get("num_scan_inputs", 0)
    same = {n.output: n.inputs[0] for n in body.nodes if n.op == "Identity"}
    found = []
    for i in range(count):
        result = body.results[first_out + i]
        while result in same:
            result = same[result]
        if result == body.inputs[first_in + i].name:
            found.append(i)
    return found


def take_unchanged(node, numbers):
    """Lets the body of a Loop or Scan take these carried values from outside; returns {result of each: value}."""
    body, (first_in, first_out) = node.attrs["body"], _ROUNDS[node.op]
    renamed = {}
    for i in reversed(numbers):
        body.inputs.append(body.inputs.pop(first_in + i))
        node.inputs.append(node.inputs.pop(first_in + i))
        body.captures += 1
        del body.results[first_out + i], body.outputs[first_out + i]
        if i < len(node.outputs):
            renamed[node.outputs.pop(i)] = node.inputs[-1]
    renamed.pop("", None)
    return renamed


def inlined(graph, decided):
    """The graph with a graph of each node in `decided` in the place of it, a dict from the node to the attribute: a
    branch of an If, or the one round of a Loop."""
    made = _Inlining(graph)
    for node in graph.nodes:
        if node in decided:
            made.put(node, decided[node])
        else:
            made.found.append(node)
    return Graph(
        made.found,
        made.constants,
        graph.inputs,
        graph.outputs,
        graph.results,
        graph.opset,
        graph.defaults,
        graph.captures,
    )


class _Inlining:
    """A graph as it grows by those inside its nodes."""

    def __init__(self, graph):
        self.nodes, self.names = graph.node_names(), graph.value_names()
        self.constants, self.found = dict(graph.constants), []

    def put(self, node, key):
        """Adds the nodes of a graph in the place of its node."""
        inner, given, carried = node.attrs[key], captured(node, key, node.inputs), len(node.outputs)
        if node.op == "Loop":
            own = own_inputs(node, node.inputs)[2:]
            first, carried = [self._constant(f"{node.name}.{n}", a) for n, a in FIRST_ROUND.items()], len(own)
            given = [*first, *own, *given]
        scope = {"": ""} | dict(zip((v.name for v in inner.inputs), given, strict=True))
        scope |= {name: self._constant(name, a) for name, a in inner.constants.items()}
        for n in inner.nodes:
            scope |= {v: unique(v, self.names) for v in n.outputs if v}
            self.found.append(_renamed(n, unique(n.name, self.nodes), scope))
        results = inner.results[node.op == "Loop" :]
        for i, (v, result) in enumerate(zip(node.outputs, results, strict=False)):
            if v:
                axes = [] if i < carried else [self._constant(f"{node.name}.axes", np.zeros(1, np.int64))]
                op, name = "Unsqueeze" if axes else "Identity", unique(f"{node.name}.{v}", self.nodes)
                self.found.append(Node(op, name, [scope[result], *axes], [v]))

    def _constant(self, name, a):
        name = unique(name, self.names)
        self.constants[name] = a
        return name


def _renamed(node, name, scope):
    """A node with this name, its values with those that `scope` gives them."""
    reads, made = ([scope[v] for v in values] for values in (node.inputs, node.outputs))
    return Node(node.op, name, reads, made, node.attrs, scope[node.residual], node.activation, list(node.fused_from))


def branch_of(node, condition):
    """The attribute of the branch that a condition, an array of one element, takes."""
    condition = np.asarray(condition)
    if condition.size != 1:
        raise ValueError(f"its condition has shape {condition.shape}, but must have one element")
    return "then_branch" if condition.item() else "else_branch"


def decisions(graph, known):
    """{node: attribute of its branch} of each `If` whose condition is known."""
    conditions = {n: known.get(n.input(0)) for n in graph.nodes if n.op == "If"}
    return {n: branch_of(n, k.data) for n, k in conditions.items() if k is not None and k.data is not None}
