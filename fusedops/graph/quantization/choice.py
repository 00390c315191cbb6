"""Which layers go to int8 and which values are int8: the cheapest choice by the predicted nanoseconds.

A layer or value is in int8 or in float32, and where neighbors differ there is a conversion. The sum of all costs is
least for a minimum cut of the graph between "int8" and "float32": so a layer between floats pays for its conversions,
and a row of layers for those at its ends.
"""

import math
from collections import deque
from typing import Any, NamedTuple

from ... import _core
from ...quantization import between
from ..inference import cost
from ..operators.registry import OPERATORS, carried

_DOUBT = 1.1  # a prediction is no measurement: int8 must win by a tenth


class Cost(NamedTuple):
    """Predicted nanoseconds of a layer, in int8 and where it stays in floats."""

    ns: float
    float_ns: float


def cost_of(node, shapes, layer, precision):
    """The Cost of a layer for the shapes of its input and its result; `layer`: its Conv2d, prepared. `precision`: what
    products of floats may have."""
    x = shapes[node.inputs[0]]
    float_ns, ns, narrow_ns = cost.of_layer(node, x, shapes[node.output], layer)
    if precision == "bfloat16":
        float_ns = min(float_ns, narrow_ns + _core.bfloat16_nanoseconds(math.prod(x)))
    return Cost(ns, float_ns)


def choose(graph, costs, shapes, kept):
    """(nodes in int8: layers, and what moves int8; names of the values that are int8; predicted nanoseconds of
    layers and conversions, as chosen and in float32). `costs` has those of the layers that may go to int8, and
    `kept` the names of those that may not all the same."""
    cut = _Cut()
    values = {v for n in graph.nodes for v in (*n.reads(), *n.outputs) if v in shapes and v not in graph.constants}
    way = {v: _core.convert_nanoseconds(math.prod(shapes[v])) for v in values}
    made = set()
    for node in graph.nodes:
        reads = node.inputs[:1] if node in costs else taken(node, shapes)
        if not reads or not {*reads, node.output} <= values:
            for v in values.intersection(node.reads()):
                cut.prefer(v, way[v])  # it reads floats
            continue
        _add_node(cut, node, reads, way, costs.get(node), node.name in kept)
        made.add(node.output)
    for v in values.difference(made).union(values.intersection(graph.results)):
        cut.prefer(v, math.inf if v in graph.results else way[v])
    chosen = cut.side()
    doubt = (_DOUBT - 1) * sum(p.ns for n, p in costs.items() if n in chosen)
    nodes = {n for n in graph.nodes if n in chosen and (n in costs or {*taken(n, shapes), n.output} <= chosen)}
    return nodes, chosen & values, cut.value - doubt, sum(p.float_ns for p in costs.values())


def _add_node(cut, node, reads, way, of_layer, is_kept):
    """Adds a node that int8 is open to: its own Cost, if it is a layer, and conversions between it and its neighbors.
    `way` has their costs."""
    result = node.output
    if of_layer:
        cut.prefer(node, math.inf if is_kept else _DOUBT * of_layer.ns, of_layer.float_ns)
    elif way[result]:
        cut.differ(node, result, way[result])
    cut.differ(result, node, way[result])
    for v in reads:
        cut.differ(node, v, way[v])
        cut.differ(v, node, way[v])
    if node.residual in way:  # in int8 it takes either
        cut.differ(node.residual, node, way[node.residual])


def taken(node, shapes):
    """The inputs of a node that is no layer which may be int8, if its only result is; else nothing. Sums and products
    that broadcast are faster in float32: 0.04 and 0.3 ns an element."""
    if not OPERATORS[node.op].traits.quantized_as:
        return carried_inputs(node)
    reads = node.inputs if node.op in ("Add", "Mul", "Sub") else node.inputs[:1]
    plain = not node.residual and node.activation in (None, "relu")
    return reads if plain and len({shapes.get(v) for v in reads}) == 1 else []


def carried_inputs(node):
    """The inputs of a node whose elements are those of its only result, in other places."""
    where = None if any(node.outputs[1:]) else carried(node)
    return [] if where is None else node.inputs[where]


def shared(nodes, quantizations):
    """The quantizations with one for all values between which these nodes move int8: the range that holds theirs."""
    groups = {v: [v] for v in quantizations}
    for node in nodes:
        for v in carried_inputs(node):
            a, b = groups[v], groups[node.output]
            if a is not b:
                a += b
                groups |= dict.fromkeys(b, a)
    return {v: _holding([quantizations[member] for member in group]) for v, group in groups.items()}


def _holding(found):
    """The Quantization to uint8 of a range that holds those of all of these."""
    if len(set(found)) == 1:
        return found[0]
    least = max(q.scale * q.zero_point for q in found)
    return between(-least, max(q.scale * (255 - q.zero_point) for q in found))


class _Cut:
    """A minimum cut by shortest augmenting paths (Edmonds and Karp). What is on the source's side is in int8."""

    def __init__(self):
        self.capacity = {"int8": {}, "float32": {}}
        self.value = 0.0

    def differ(self, a, b, cost):
        """A cost for a in int8 and b in float32."""
        for p, q, c in ((a, b, cost), (b, a, 0.0)):
            edges = self.capacity.setdefault(p, {})
            edges[q] = edges.get(q, 0.0) + c

    def prefer(self, a, int8, float32=0.0):
        """Costs for either choice of a."""
        self.differ(a, "float32", int8)
        self.differ("int8", a, float32)

    def side(self):
        """All that is in int8."""
        while True:
            came = self._reached()
            if "float32" not in came:
                return set(came) - {"int8"}
            path, at = [], "float32"
            while at != "int8":
                path.append((came[at], at))
                at = came[at]
            flow = min(self.capacity[a][b] for a, b in path)
            self.value += flow
            for a, b in path:
                self.capacity[a][b] -= flow
                self.capacity[b][a] += flow

    def _reached(self):
        came: dict[Any, Any] = {"int8": None}
        queue = deque(["int8"])
        while queue and "float32" not in came:
            a = queue.popleft()
            for b, c in self.capacity[a].items():
                if c > 0 and b not in came:
                    came[b] = a
                    queue.append(b)
        return came
