"""Depthwise-separable and inverted-residual blocks: a depthwise convolution between 1x1 convolutions, for one kernel
without the images between them. A pass marks them (passes/mark_mbconv.py); each plan decides by its sizes, as small
images stay in a cache anyway and gain nothing."""

import math
from dataclasses import replace

from ...layers import DepthwiseSeparable, InvertedResidual
from ..ir.explanation import Fusion, Refusal
from ..ir.symbolic import concrete, guard

SMALLEST = 7  # rows or columns of an image


def merge(builder):
    """(steps, report): the builder's steps, with one step for each block whose sizes gain by it. Of two blocks that
    share a convolution the longer one comes first, for it saves more: 64 -> 128 of MobileNetV1 with the layers before
    it."""
    steps, report = builder.steps, []
    writers, inside = {id(t.buffer): step for step in steps for t in step.writes if t is not None}, set()
    for step in sorted(steps, key=lambda step: -step.node.attrs.get("block", 0)):
        parts = _parts(step, writers)
        if parts is None or any(id(part) in inside for part in parts):
            continue
        block = builder.layer(
            (step.node.name, "block"), lambda layers=[part.arguments["layer"] for part in parts]: _layer(layers)
        )
        reason = _why_not(block, parts)
        if reason:
            report.append(Refusal("blocks", step.node.name, reason, step.node.op))
        else:
            inside.update(map(id, parts[:-1]))
            _join(block, parts)
            traffic = sum(2 * 4 * math.prod(concrete(part.writes[0].shape)) for part in parts[:-1])
            names, operators = zip(*((part.node.name, part.node.op) for part in parts[:-1]), strict=True)
            report.append(Fusion("blocks", names, step.node.name, 0, traffic, operators, step.node.op))
    return [step for step in steps if id(step) not in inside], report


def _parts(last, writers):
    """The steps of the block that `last` ends, in order, or None."""
    count, parts = last.node.attrs.get("block", 0) if last.kind == "conv2d" else 0, [last]
    for _ in range(min(count, 2)):
        before = writers.get(id(parts[0].arguments["x"].buffer))
        if before is None or before.kind != "conv2d" or before in parts:
            return None
        parts.insert(0, before)
    return parts if len(parts) > 1 else None


def _layer(layers):
    return DepthwiseSeparable(*layers) if len(layers) == 2 else InvertedResidual(*layers, residual=False)


def _why_not(block, parts):
    """Why the layers are as fast, or faster, one after the other; "" where they are not."""
    x, y = parts[0].arguments["x"], parts[-1].arguments["y"]
    if x.strides[1] != 1 or y.strides[1] != 1:
        return "an image beside it stands in planes"
    if min(x.shape[2:]) < SMALLEST or not guard(block._pays, x.shape[2:], y.shape[2:]):
        return "the images inside are small: as fast one after the other"
    return ""


def _join(block, parts):
    """Makes the last step that of the block."""
    *inner, last = parts
    x, y, residual = parts[0].arguments["x"], last.arguments["y"], last.arguments["residual"]
    last.kind, last.tiles = "separable", parts[0].tiles
    last.arguments = dict(
        layer=block, x=x, y=y, residual=residual, top=inner[-1].arguments["top"], left=inner[-1].arguments["left"]
    )
    last.reads, last.inner = [x] if residual is None else [x, residual], tuple(part.node for part in inner)
    fused_from = [name for part in inner for name in (part.node.name, *part.node.fused_from)]
    last.node = replace(last.node, fused_from=last.node.fused_from + fused_from)
