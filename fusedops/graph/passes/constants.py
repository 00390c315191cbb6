"""Constant folding: a node whose inputs are all constant is computed now."""
import numpy as np

from ..evaluate import evaluate


def run(context):
    graph = context.graph
    for node in list(graph.nodes):
        if not all(v in graph.constants for v in node.reads()) or node.op == "Range" and not node.inputs:
            continue
        results = evaluate(node, [graph.constants[v] if v else None for v in node.inputs], graph.constants.get(node.residual))
        for v, result in zip(node.outputs, results, strict=False):
            if v:
                graph.constants[v] = np.asarray(result)
        graph.remove(node)
