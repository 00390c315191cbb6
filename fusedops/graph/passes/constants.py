"""Constant folding: a node whose inputs are all constant is computed now. One that has no result stays, for the plan to
say why."""


def run(context):
    graph = context.graph
    for node in context.nodes():
        results = {v: context.known[v].data for v in node.outputs if v in context.known}
        if (
            results
            and all(a is not None for a in results.values())
            and node.reads()
            and all(v in graph.constants for v in node.reads())
        ):
            graph.constants |= results
            context.remove(node)
