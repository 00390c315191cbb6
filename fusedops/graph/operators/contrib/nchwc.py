"""Operators of com.microsoft.nchwc, as ONNX Runtime writes them into files that it saves at its default level.

Images have their channels in blocks, the rest of the last block zeros. Here they are plain images of as many channels.

Files do not say how long a block is, which ONNX Runtime takes from the processor. Weights are laid out by it.
"""

import numpy as np

from .... import _core
from ...ir.graph_builder import GraphBuilder
from ..schema import Rewrite
from .fused import activated, moved, onnx

DOMAIN = "com.microsoft.nchwc"
_BLOCKS = 16, 8  # channels of a block with AVX-512, and without


def block_of(nodes, shapes):
    """The channels of a block of a file: what its convolutions have to be multiples of, as far as some are none of the
    longer block, or have more channels than are read in the end; else that of the processor at hand. `nodes` are
    (operator, inputs, outputs, attributes), `shapes` those of constants by their names."""
    outputs = {}
    for op, inputs, results, attrs in nodes:
        if op == "Conv" and inputs[1] in shapes:
            outputs[results[0]] = shapes[inputs[1]][0]
            if shapes[inputs[1]][0] % _BLOCKS[0]:
                return _BLOCKS[1]
        elif op == "ReorderOutput" and outputs.get(inputs[0], 0) - attrs.get("channels", 0) >= _BLOCKS[1]:
            return _BLOCKS[0]
    return _BLOCKS[0 if "avx512" in _core.isa_names() else 1]


def _plain_weights(w, block):
    """Weights (o, i, h, w) whose data is in the order of the blocks: (o / block, h, w, block) where the input has few
    channels or one a group, else (o / block, i / block, h, w, block of i, block of o)."""
    o, i, h, w_ = w.shape
    if o % block:
        raise ValueError(f"weights of shape {w.shape} are not in blocks of {block} channels")
    if i % block:
        return np.ascontiguousarray(w.reshape(o // block, i, h, w_, block).transpose(0, 4, 1, 2, 3)).reshape(w.shape)
    parts = w.reshape(o // block, i // block, h, w_, block, block).transpose(0, 5, 1, 4, 2, 3)
    return np.ascontiguousarray(parts).reshape(w.shape)


def _read_conv(r: GraphBuilder, node):
    x, w, b, z = ([*node.inputs, "", "", ""])[:4]
    if w not in r.graph.constants:
        raise ValueError(f"{node.op} {node.name!r} has weights that are not constant: save the model at a lower level")
    plain = r.constant(f"{node.name}.weights", _plain_weights(r.graph.constants[w], r.channel_block()), np.float32)
    attrs = {k: v for k, v in node.attrs.items() if not k.startswith("activation")}
    y = onnx(r, "Conv", node, x, plain, *[b] * bool(b), **attrs)
    activated(r, node, r.node("Add", node, y, z) if z else y, node.output)


def _read_in(r: GraphBuilder, node):
    """Channels up to a whole block, those that are missing 0."""
    x = moved(r, node, node.inputs[0], -1, 1) if node.attrs.get("channels_last", 0) else node.inputs[0]
    block = r.constant(f"{node.name}.block", [r.channel_block()])
    missing = r.node("Mod", node, r.node("Neg", node, r.node("Shape", node, x, start=1, end=2)), block)
    before, after = (r.constant(f"{node.name}.pads", [0] * n) for n in (5, 2))
    pads = r.node("Concat", node, before, missing, after, axis=0)
    r.node("Pad", node, x, pads, result=node.output)


def _read_out(r: GraphBuilder, node):
    """The channels that count."""
    cut = [
        r.constant(f"{node.name}.{name}", [n])
        for name, n in (("start", 0), ("end", node.attrs["channels"]), ("axis", 1))
    ]
    last = node.attrs.get("channels_last", 0)
    y = r.node("Slice", node, node.inputs[0], *cut, result=None if last else node.output)
    if last:
        moved(r, node, y, 1, -1, node.output)


def _read_upsample(r: GraphBuilder, node):
    scales = r.constant(f"{node.name}.scales", node.attrs["scales"], np.float32)
    attrs = {
        "mode": node.attrs.get("mode", "nearest"),
        "coordinate_transformation_mode": node.attrs.get("coordinate_transformation_mode", "asymmetric"),
        "nearest_mode": "floor",
    }
    r.node("Resize", node, node.inputs[0], "", scales, result=node.output, **attrs)


def _as(op):
    return Rewrite(lambda r, node: onnx(r, op, node, *node.inputs, result=node.output, **node.attrs), (op,))


RECORDS = {
    f"{DOMAIN}.{name}": record
    for name, record in {
        "AveragePool": _as("AveragePool"),
        "Conv": Rewrite(_read_conv, ("Conv", "Add", "Activation")),
        "GlobalAveragePool": _as("GlobalAveragePool"),
        "GlobalMaxPool": _as("GlobalMaxPool"),
        "MaxPool": _as("MaxPool"),
        "ReorderInput": Rewrite(_read_in, ("Pad",)),
        "ReorderOutput": Rewrite(_read_out, ("Slice",)),
        "Upsample": Rewrite(_read_upsample, ("Resize",)),
    }.items()
}
