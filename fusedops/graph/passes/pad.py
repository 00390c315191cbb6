"""Zeros that a Pad puts around an image become the padding of the convolution that reads it."""

import numpy as np


def run(context):
    for node in context.nodes():
        if node.op == "Pad":
            why = _fold(context, node)
            if why:
                context.refused(node, why)


def _why_not(graph, node, readers):
    """Why convolutions cannot pad in its place, or ""."""
    if not readers or any(r.op not in ("Conv", "QuantizedConv") or r.inputs[0] != node.output for r in readers):
        reader = readers[0].op + " " + readers[0].name if readers else "nothing"
        return f"it is read by {reader}, not by convolutions alone"
    if node.output in graph.results:
        return "its result is an output of the network"
    if any(_value(graph, node) != r.attrs.get("x_q", (1, 0))[1] for r in readers):
        return "it pads with something else than zeros"
    if not _adds_pixels(node, graph.constant(node, 1)):
        return "it does not add a constant number of rows and columns"
    if any(r.attrs.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID", "") for r in readers):
        return "the convolution pads by its own rule (auto_pad)"
    return ""


def _adds_pixels(node, pads):
    """Whether it adds rows and columns, as many for all inputs, to all images and channels."""
    if pads is None or node.input(3) or (pads < 0).any():
        return False
    begins, ends = np.split(pads, 2)
    return not (begins[:2].any() or ends[:2].any())


def _value(graph, node):
    """The number that a Pad writes, or None if it is not one that is known."""
    value = graph.constant(node, 2)
    if node.attrs.get("mode", "constant") != "constant" or value is None and node.input(2):
        return None
    return 0 if value is None or not value.size else value.item()


def _fold(context, node):
    """Folds one Pad, or returns why not."""
    readers = context.consumers.get(node.output, [])
    if why := _why_not(context.graph, node, readers):
        return why
    begins, ends = np.split(context.graph.constant(node, 1), 2)
    added = [*begins[2:].tolist(), *ends[2:].tolist()]
    for r in readers:
        own = r.attrs.get("pads") or [0] * len(added)
        r.attrs["pads"], r.attrs["auto_pad"] = [a + b for a, b in zip(own, added, strict=True)], "NOTSET"
    context.rename(node.output, node.inputs[0])
    context.remove(node)
    context.fused([node], readers[0], passes=2, value=node.output)
    return None
