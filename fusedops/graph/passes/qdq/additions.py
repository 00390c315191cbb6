"""The sum of a layer's int8 and others, into the layer: its products are rounded to the int8 that they were, then
added in registers. The integers stay the same."""


def run(context):
    for node in context.nodes():
        if node.op == "QuantizedAdd":
            _fuse(context, node)


def _fuse(context, node):
    made = [(context.producers.get(v), i) for i, v in enumerate(node.inputs)]
    layers = [(p, i) for p, i in made if p is not None and p.op in ("QuantizedConv", "QuantizedLinear")]
    reasons = []
    for into, i in sorted(layers, key=lambda pair: -context.order[pair[0]]):
        if why := _why_not(context, into, node, node.inputs[1 - i]):
            reasons.append(why)
            continue
        names = ("b_q", "a_q") if i else ("a_q", "b_q")
        into.attrs |= {"product_q": node.attrs[names[0]], "product_type": into.attrs["y_type"]}
        into.attrs |= {"residual_q": node.attrs[names[1]], "y_q": node.attrs["y_q"], "y_type": node.attrs["y_type"]}
        into.activation = node.activation
        context.add_residual(into, node.inputs[1 - i])
        context.move(into, node)  # where both addends are there
        context.merge([node], into)
        return context.fused([node], into, passes=2, per_element=3)
    if reasons:
        context.refused(node, reasons[0])
    return None


def _why_not(context, into, node, other):
    """Why a sum cannot be made where `into` makes one addend, or None."""
    name, known = f"{into.op} {into.name}", [context.known.get(v) for v in (into.output, other, node.output)]
    if into.activation is not None or into.residual:
        return f"{name} has an activation or a residual already"
    if into.output in context.graph.results:
        return f"the result of {name} is an output of the network"
    if len(readers := context.consumers[into.output]) > 1:
        return f"the result of {name} has {len(readers)} consumers"
    if not all(known) or len({k.shape for k in known}) > 1 or context.differ(into.output, other):
        return f"{into.output} and {other} are not of one known shape"
    return None
