"""Constant folding: a node whose inputs are all constant is computed now. One that has no result stays, for the plan to
say why. Quantised constants stay until layers of 8 bits have taken their weights from them."""


def run(context):
    _fold(context, [node for node in context.nodes() if node.op != "DequantizeLinear"])


def dequantised(context):
    """What is left of quantised constants, and what is computed from them."""
    _fold(context, context.nodes())


def _fold(context, nodes):
    graph = context.graph
    for node in nodes:
        reads = node.reads()
        if not reads or any(v not in graph.constants for v in reads):
            continue
        results = {v: context.known[v].data for v in node.outputs if v in context.known}
        if results and all(a is not None for a in results.values()):
            graph.constants |= results
            context.remove(node)
