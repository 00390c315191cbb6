"""Depthwise-separable and inverted-residual blocks: a depthwise convolution between 1x1 convolutions, for one kernel
without the images between them. A pass marks them (passes/mark_mbconv.py). Small images stay in a cache anyway and gain
nothing: a symbolic plan has the steps for both, and each plan that is made of it decides by its sizes."""

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ... import _core
from ...layers import DepthwiseSeparable, InvertedResidual
from ..ir.explanation import Fusion, Refusal
from ..ir.symbolic import concrete
from ..steps.prepared import UnpackedLayer
from ..steps.step import Step

SMALLEST = 7  # rows or columns of an image


class Block(NamedTuple):
    """One step for several: the `parts`, of which the last writes what `whole` writes, or `whole`. What is faster
    depends on the block's shape and on `sizes`, those of the images before and after it."""

    whole: Step
    parts: list[Step]
    shape: _core.SeparablePlan
    sizes: tuple | None


def find(p):
    """Adds the step of each block after its parts. Of two blocks that share a convolution the longer one comes first,
    for it saves more: 64 -> 128 of MobileNetV1 with the layers before it."""
    steps, blocks = p.steps, p.blocks
    marked = [step for step in steps if step.kind == "conv2d" and step.node.attrs.get("block", 0)]
    writers = {id(t.buffer): step for step in steps for t in step.writes if t is not None} if marked else {}
    for step in sorted(marked, key=lambda step: -step.node.attrs["block"]):
        parts = _parts(step, writers)
        if parts is None:
            continue
        layer = _layer(step.node, [part.arguments["layer"] for part in parts], p.layers)
        x, y = parts[0].arguments["x"], step.arguments["y"]
        planes = x.strides[1] != 1 or y.strides[1] != 1
        sizes = None if planes else (x.shape[2:], y.shape[2:])
        blocks.append(Block(_joined(layer, parts), parts, layer.shape, sizes))
    p.steps = _with_wholes(steps, blocks) if blocks else steps


def _with_wholes(steps, blocks):
    """The steps, with that of each block after its parts."""
    wholes = {id(block.parts[-1]): [] for block in blocks}
    for block in blocks:
        wholes[id(block.parts[-1])].append(block.whole)
    return [s for step in steps for s in (step, *wholes.get(id(step), ()))]


def numbered(blocks, steps, env, arena):
    """The blocks as _core.take_blocks has them; `arena` has the numbers of the buffers that take memory."""
    at = {id(step): i for i, step in enumerate(steps)}
    return [
        (
            shape,
            sizes and [env.number(n) for size in sizes for n in size],
            at[id(whole)],
            [at[id(part)] for part in parts],
            [arena[i] for i in (id(part.writes[0].buffer) for part in parts[:-1]) if i in arena],
        )
        for whole, parts, shape, sizes in blocks
    ]


def take_known(p):
    """Takes each block as one step or as several, where the sizes of the one plan are known."""
    if p.env.given:
        return
    numbers = numbered(p.blocks, p.steps, p.env, {})
    idle, outcomes = take(numbers, np.array(p.env.values, np.int64), len(p.steps))
    p.report += report(p.blocks, outcomes)
    p.steps, p.blocks = [step for step, no in zip(p.steps, idle, strict=True) if not no], []


def take(numbers, values, steps, nbytes=None):
    """(a byte for each of so many steps, 1 where it does not run; what becomes of each block) for the sizes that the
    formulas' `values` are. What is between the parts of those that are taken has no `nbytes`."""
    idle = bytearray(steps)
    return idle, _core.take_blocks(numbers, values, SMALLEST, idle, nbytes)


_REASONS = {
    _core.IN_PLANES: "an image that it reads or writes has its channels first",
    _core.FEW_PIXELS: "the images inside are small: as fast one after the other",
}


def report(blocks, outcomes, values=None):
    """A Fusion or Refusal for each block, but for those that share a part with another that is taken."""
    found: list[Fusion | Refusal] = []
    for (whole, parts, *_), outcome in zip(blocks, outcomes, strict=True):
        node = whole.node
        if outcome == _core.TAKEN:
            traffic = sum(2 * 4 * math.prod(concrete(part.writes[0].shape, values)) for part in parts[:-1])
            names, operators = zip(*((part.node.name, part.node.op) for part in parts[:-1]), strict=True)
            found.append(Fusion("blocks", names, node.name, 0, traffic, operators, node.op))
        elif outcome in _REASONS:
            found.append(Refusal("blocks", node.name, _REASONS[outcome], node.op))
    return found


def _parts(last, writers):
    """The steps of the block that `last` ends, in order, or None."""
    parts = [last]
    for _ in range(min(last.node.attrs["block"], 2)):
        before = writers.get(id(parts[0].arguments["x"].buffer))
        if before is None or before.kind != "conv2d" or before in parts:
            return None
        parts.insert(0, before)
    return parts if len(parts) > 1 else None


def _layer(node, parts, layers):
    """The layer of a block of these layers, all of which are unpacked."""

    def make(precision):
        packed = [part.packed(layers) for part in parts]
        return DepthwiseSeparable(*packed) if len(packed) == 2 else InvertedResidual(*packed, residual=False)

    expand, *others = (None, *(part.shape for part in parts))[-3:]
    return UnpackedLayer((node.name, "block"), make, _core.SeparablePlan()._join(expand, *others))


def _joined(block, parts):
    """The step of the block."""
    *inner, last = parts
    x, y, residual = parts[0].arguments["x"], last.arguments["y"], last.arguments["residual"]
    arguments = dict(
        layer=block, x=x, y=y, residual=residual, top=inner[-1].arguments["top"], left=inner[-1].arguments["left"]
    )
    fused_from = [name for part in inner for name in (part.node.name, *part.node.fused_from)]
    node = replace(last.node, fused_from=last.node.fused_from + fused_from)
    reads, nodes = [x] if residual is None else [x, residual], tuple(part.node for part in inner)
    return Step("separable", node, arguments, reads, [y], nodes, parts[0].tiles)
