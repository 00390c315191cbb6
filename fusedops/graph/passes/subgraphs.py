"""Graphs inside nodes: a branch whose condition is known takes the place of its node, and each other graph goes
through the passes itself."""

from typing import TYPE_CHECKING

from ..._internal.lazy import LazyModule
from ..inference.shape_inference import infer, infer_from, without_data
from ..ir.graph import constant
from ..ir.subgraph import (
    FIRST_ROUND,
    captured,
    decisions,
    drop_unused,
    graphs_of,
    inlined,
    own_inputs,
    take_constants,
    take_unchanged,
    unchanged,
)
from ..operators.registry import FAMILIES

if TYPE_CHECKING:
    from . import sequence_elements
else:
    sequence_elements = LazyModule(".sequence_elements", __package__)

_SEQUENCES = frozenset(FAMILIES["onnx_sequences"].split())


def inline_known(graph):
    """Puts branches in the place of each `If` whose condition follows from constants and fixed shapes, and resolves
    sequences whose elements do. Returns what is known of values by these."""
    decided, known = True, {}
    while decided and any(n.op in ("If", "Loop") or n.op in _SEQUENCES for n in graph.nodes):
        fixed = {
            v.name: v.shape for v in graph.inputs if v.shape is not None and all(isinstance(n, int) for n in v.shape)
        }
        known = infer(graph, fixed, strict=False)
        decided = decisions(graph, known) | {n: "body" for n in graph.nodes if n.op == "Loop" and _runs_once(n, known)}
        if decided:
            found = inlined(graph, decided).copy()
            graph.nodes, graph.constants = found.nodes, found.constants
        else:
            sequence_elements.resolve(graph, known)
    return without_data(known)


def _runs_once(node, known):
    """Whether a Loop has one round, whatever it is called with."""
    trips, flag = (_only(known.get(v)) if v else None for v in node.inputs[:2])
    if flag is not None and not flag or None in (node.inputs[0] and trips, node.inputs[1] and flag):
        return False
    if trips is not None and trips <= 1:
        return trips == 1
    body, values = node.attrs["body"], [*own_inputs(node, node.inputs)[2:], *captured(node, "body", node.inputs)]
    given = {v.name: constant(a) for v, a in zip(body.inputs, FIRST_ROUND.values(), strict=False)}
    given |= {v.name: known[name] for v, name in zip(body.inputs[2:], values, strict=True) if name in known}
    return _only(infer_from(body, given, strict=False).get(body.results[0])) is False


def _only(info):
    """The one element of a value that is known, else None."""
    return info.data.item() if info is not None and info.data is not None and info.data.size == 1 else None


def run(context):
    for node in context.nodes():
        graphs, before = graphs_of(node), list(node.inputs)
        if not graphs:
            continue
        _take_unchanged(context, node)
        take_constants(context.graph, node)
        for key, inner in graphs.items():
            context.report += [_named(r, f"{node.name}.{key}/") for r in context.optimize(inner)]
        drop_unused(node)
        context.reads_instead(node, before)
        reason = (
            "its condition is known only when the network runs: each branch is a network of its own"
            if node.op == "If"
            else "its body is a network of its own, called once a round"
        )
        context.refused(node, reason)


def _take_unchanged(context, node):
    """Makes constants of values that a loop hands on unchanged from round to round: weights are packed once."""
    numbers = unchanged(node)
    if numbers:
        for result, value in take_unchanged(node, numbers).items():
            del context.producers[result]
            context.rename(result, value)


def _named(record, prefix):
    """A Fusion or Refusal inside a graph, with the names of its nodes after that of the graph."""
    if hasattr(record, "nodes"):
        return record._replace(nodes=tuple(prefix + name for name in record.nodes), into=prefix + record.into)
    return record._replace(node=prefix + record.node)
