"""Graphs inside nodes: a branch whose condition is known takes the place of its node, and each other graph goes
through the passes itself."""

from typing import TYPE_CHECKING

from ...lazy import LazyModule
from ..inference.shape_inference import infer, without_data
from ..ir.subgraph import decisions, drop_unused, graphs_of, inlined, take_constants
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
    while decided and any(n.op == "If" or n.op in _SEQUENCES for n in graph.nodes):
        fixed = {
            v.name: v.shape for v in graph.inputs if v.shape is not None and all(isinstance(n, int) for n in v.shape)
        }
        known = infer(graph, fixed, strict=False)
        decided = decisions(graph, known)
        if decided:
            found = inlined(graph, decided).copy()
            graph.nodes, graph.constants = found.nodes, found.constants
        else:
            sequence_elements.resolve(graph, known)
    return without_data(known)


def run(context):
    for node in context.nodes():
        graphs, before = graphs_of(node), list(node.inputs)
        if not graphs:
            continue
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


def _named(record, prefix):
    """A Fusion or Refusal inside a graph, with the names of its nodes behind that of the graph."""
    if hasattr(record, "nodes"):
        return record._replace(nodes=tuple(prefix + name for name in record.nodes), into=prefix + record.into)
    return record._replace(node=prefix + record.node)
