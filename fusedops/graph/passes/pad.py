"""Zeros that a Pad puts around an image become the padding of the convolution that reads it."""


def run(context):
    for node in context.nodes():
        if node.op == "Pad":
            why = _fold(context, node)
            if why:
                context.refused(node, why)


def _fold(context, node):
    """Folds one Pad, or returns why not."""
    graph, pads, value = context.graph, context.graph.constant(node, 1), context.graph.constant(node, 2)
    readers = context.consumers.get(node.output, [])
    if not readers or any(r.op not in ("Conv", "QuantizedConv") or r.inputs[0] != node.output for r in readers):
        reader = readers[0].op + " " + readers[0].name if readers else "nothing"
        return f"it is read by {reader}, not by convolutions alone"
    if node.output in graph.results:
        return "its result is an output of the network"
    constant = node.attrs.get("mode", "constant") == "constant" and (value is not None or not node.input(2))
    padded = value.item() if constant and value is not None and value.size else 0
    if not constant or any(padded != r.attrs.get("x_q", (1, 0))[1] for r in readers):
        return "it pads with something else than zeros"
    if pads is None or node.input(3) or pads[:2].any() or pads[pads.size // 2 :][:2].any() or (pads < 0).any():
        return "it does not add a constant number of rows and columns"
    if any(r.attrs.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID", "") for r in readers):
        return "the convolution pads by its own rule (auto_pad)"
    half = pads.size // 2
    added = [*pads[2:half].tolist(), *pads[half + 2 :].tolist()]
    for r in readers:
        own = r.attrs.get("pads") or [0] * len(added)
        r.attrs["pads"], r.attrs["auto_pad"] = [a + b for a, b in zip(own, added, strict=True)], "NOTSET"
    context.rename(node.output, node.inputs[0])
    context.remove(node)
    context.fused([node], readers[0], passes=2, value=node.output)
    return None
