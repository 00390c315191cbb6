"""What stays in 16 bits, float16 or bfloat16, in a network whose values are computed in float32: what is only moved,
where that gains something.

    seen (float16), Cast(new) -> Concat -> present (float16)
                                        -> Transpose -> Cast -> MatMul, of which attention reads what is before the Cast

A move is worth it on the way to an output of that type, on the way to a product of two computed operands, as of
attention, and where indices that a call gives pick rows. Elsewhere an input is widened at once: each part of it would
need a Cast of its own."""

import numpy as np

from .dtypes import NARROW, to_onnx
from .graph import Node, unique

FLOAT16, _FLOAT32 = to_onnx(np.float16), to_onnx(np.float32)
_LOOKUPS = {"Gather", "GatherElements", "GatherND"}
# Operators that move elements, and the inputs that they move; None: all.
MOVES: dict[str, tuple[int, ...] | None] = dict.fromkeys(
    (*_LOOKUPS, "Expand", "Flatten", "Identity", "Reshape", "Slice", "Split", "Squeeze"), (0,)
)
MOVES |= dict.fromkeys(("Tile", "Transpose", "Unsqueeze"), (0,))
MOVES |= {"Concat": None, "Where": (1, 2), "ScatterElements": (0, 2), "ScatterND": (0, 2)}
_CACHES = {"com.microsoft.GroupQueryAttention": (3, 4)}  # keys and values of earlier calls, which come back
_PLACES = MOVES | _CACHES


def tables(graph, dtype=np.float16):
    """The constants of a type of which nodes only gather rows."""
    found = {v: a for v, a in graph.constants.items() if a.dtype == dtype and v not in graph.results}
    for node in graph.nodes if found else ():
        for i, v in enumerate(node.reads()):
            if v in found and (i or node.op != "Gather"):
                del found[v]
    return found


def keep_moved(graph):
    """Lets moves of 16 bits keep them, in place, in a graph whose other values are float32; returns the graph."""
    for dtype in NARROW:
        stored = [v.name for v in graph.inputs if v.dtype == dtype]
        stored += [v for v, a in graph.constants.items() if a.dtype == dtype]
        if stored or any(v.dtype == dtype for v in graph.outputs):
            _Walk(graph, stored, dtype).run()
    return graph


def _moved_inputs(node):
    """The numbers of the inputs that a node only moves."""
    places = _PLACES.get(node.op, ())
    if node.activation is not None or node.residual or node.attrs.get("reduction", "none") != "none":
        return []
    return [i for i in (range(len(node.inputs)) if places is None else places) if node.input(i)]


def _worth_keeping(graph, dtype, is_cast):
    """The values that are better of this type, if they may be: they are moved to where that gains something."""
    wanted = {v for v, value in zip(graph.results, graph.outputs, strict=True) if value.dtype == dtype}
    for node in reversed(graph.nodes):
        lookup = node.op in _LOOKUPS and (node.inputs[0] in graph.constants or node.inputs[1] not in graph.constants)
        if lookup or (is_cast(node) and node.output in wanted):
            wanted.update(node.inputs[:1])
        elif node.op == "MatMul":
            wanted.update(() if graph.constants.keys() & set(node.inputs) else node.inputs)
        elif node.op == "SoftmaxProduct":  # attention, of which the passes made one node
            wanted.update(node.inputs[1:3])
        elif wanted.intersection(node.outputs):
            wanted.update(node.inputs[i] for i in _moved_inputs(node))
    return wanted


class _Walk:
    """Gives each value the type that it keeps, in one walk over the nodes of a graph."""

    def __init__(self, graph, stored, dtype):
        self._graph, self._values, self._names = graph, graph.value_names(), graph.node_names()
        self._dtype, self._to, self._name = dtype, to_onnx(dtype), NARROW[dtype]
        self._stored = {v: v for v in stored}  # {value of the graph as it was: the same in 16 bits}
        self._kept = _worth_keeping(graph, dtype, self._is_cast).union(v for v in stored if v in graph.constants)
        self._wide, self._rounded = {}, {}  # {value: its Cast to float32}, {value: its Cast to 16 bits}
        self._nodes = []

    def _is_cast(self, node):
        return node.op == "Cast" and node.attrs["to"] in (self._to, _FLOAT32)

    def run(self):
        graph = self._graph
        for node in graph.nodes:
            if self._is_cast(node) and node.inputs[0] in self._stored:
                self._stored[node.output] = self._stored[node.inputs[0]]  # widened where something computes with it
                continue
            if node.op == "Cast" and node.attrs["to"] == self._to:
                self._stored[node.output] = node.output
            if node.op in ("Shape", "Size"):
                node.inputs = [self._stored.get(v, v) for v in node.inputs]
            elif self._keeps(node):
                self._move(node)
            else:
                node.inputs = [self._widened(v) for v in node.inputs]
                node.residual = self._widened(node.residual)
            self._nodes.append(node)
        graph.results = [
            (self._narrowed if value.dtype == self._dtype else self._widened)(v)
            for v, value in zip(graph.results, graph.outputs, strict=True)
        ]
        graph.nodes = self._nodes

    def _keeps(self, node):
        """Whether a node moves what is in 16 bits and worth keeping."""
        return any(node.inputs[i] in self._stored and node.inputs[i] in self._kept for i in _moved_inputs(node))

    def _move(self, node):
        moved = _moved_inputs(node)
        node.inputs = [self._narrowed(v) if i in moved else self._widened(v) for i, v in enumerate(node.inputs)]
        for i, v in enumerate(node.outputs):
            if v and (i or node.op not in _CACHES):
                self._stored[v] = node.outputs[i] = unique(f"{v}.{self._name}", self._values)

    def _widened(self, v):
        if v not in self._stored:
            return v
        if v not in self._wide:
            self._wide[v] = unique(f"{v}.float32", self._values)
            self._cast(self._stored[v], self._wide[v], np.float32)
        return self._wide[v]

    def _narrowed(self, v):
        if v in self._stored:
            return self._stored[v]
        if v not in self._rounded:
            self._rounded[v] = unique(f"{v}.{self._name}", self._values)
            self._cast(v, self._rounded[v], self._dtype)
        return self._rounded[v]

    def _cast(self, v, result, dtype):
        self._nodes.append(Node("Cast", unique(f"{v}.cast", self._names), [v], [result], {"to": to_onnx(dtype)}))
