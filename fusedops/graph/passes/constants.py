"""Constant folding: a node whose inputs are all constant is computed now. One that has no result stays, for the plan to say why."""


def run(context):
    graph, left = context.graph, []
    for node in graph.nodes:
        results = {v: context.known[v].data for v in node.outputs if v in context.known}
        if results and node.reads() and all(v in graph.constants for v in node.reads()):
            graph.constants.update(results)
        else:
            left.append(node)
    graph.nodes = left
