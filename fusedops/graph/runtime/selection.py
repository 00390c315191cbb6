"""Some of a network's outputs: the nodes that these need."""

from ..ir.errors import InvalidArgument
from ..ir.graph import Graph


def selected(graph, names):
    """The graph of the outputs with these names, in their order, and of the states that the network keeps."""
    kept = len(graph.states)
    numbers = {v.name: i for i, v in enumerate(graph.outputs[: len(graph.outputs) - kept])}
    _check(names, numbers)
    wanted = [*(numbers[name] for name in names), *range(len(numbers), len(graph.outputs))]
    results = [graph.results[i] for i in wanted]
    live, nodes = set(results), []
    for node in reversed(graph.nodes):
        if not live.isdisjoint(node.outputs):
            live.update(node.reads())
            nodes.append(node)
    constants = {v: a for v, a in graph.constants.items() if v in live}
    outputs = [graph.outputs[i] for i in wanted]
    return Graph(nodes[::-1], constants, graph.inputs, outputs, results, graph.opset, states=graph.states)


def _check(names, known):
    unknown = [str(name) for name in names if name not in known]
    if unknown:
        raise InvalidArgument(
            f"the network has no output {', '.join(map(repr, unknown))}: its outputs are {', '.join(known)}"
        )
    if not names:
        raise InvalidArgument(f"outputs names none: the network has {', '.join(known)}")
    if len(set(names)) < len(names):
        raise InvalidArgument(f"outputs names one more than once: {', '.join(names)}")
