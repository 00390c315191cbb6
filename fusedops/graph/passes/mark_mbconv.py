"""Marks the blocks of MobileNets: a depthwise convolution between 1x1 convolutions, for one kernel without the images
between them. Each plan decides by its sizes whether the kernel gains (planner/mbconv.py)."""


def run(context):
    """Notes at the last convolution of a block how many before it belong to it."""
    graph = context.graph
    producers, consumers = context.producers, context.consumers

    def before(node):
        """The convolution that alone makes, and makes alone for this node, what it reads."""
        v = node.inputs[0]
        p = producers.get(v)
        return (
            p
            if p is not None and p.op == "Conv" and not p.residual and v not in graph.results and len(consumers[v]) == 1
            else None
        )

    for node in graph.nodes:
        depthwise = before(node) if _is_pointwise(graph, node) else None
        if depthwise is not None and _is_depthwise(graph, depthwise):
            expand = before(depthwise)
            node.attrs["block"] = 2 if expand is not None and _is_pointwise(graph, expand) else 1


def _is_pointwise(graph, node):
    w = graph.constant(node, 1) if node.op == "Conv" else None
    if w is None or w.shape[2:] != (1, 1) or node.attrs.get("group", 1) != 1:
        return False
    return set(node.attrs.get("strides", (1,))) == {1} and not any(node.attrs.get("pads", ()))


def _is_depthwise(graph, node):
    w = graph.constant(node, 1)
    return w is not None and w.ndim == 4 and w.shape[1] == 1 and node.attrs.get("group", 1) == w.shape[0]
