"""What is done to the steps of a plan after lowering: each pass changes them, in the order of PASSES."""

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..._internal.lazy import LazyModule
from ..ir.explanation import Fusion, Refusal
from ..ir.symbolic import ShapeEnv
from ..steps.prepared import Prepared, UnpackedLayer
from ..steps.step import Step
from ..steps.tensor import channels_last, same_order
from . import batch_tiling, inplace, mbconv

if TYPE_CHECKING:
    from . import precision
else:
    precision = LazyModule(".precision", __package__)


@dataclass(slots=True)
class PlannedSteps:
    """The steps, and what passes decide by: the sizes of the environment, that of the batch, the threads of a call,
    and the precision that products may have. `blocks` are those that each plan decides on; `report` says what was
    decided here."""

    steps: list[Step]
    layers: Prepared
    env: ShapeEnv
    batch: int
    threads: int
    precision: str
    blocks: list[mbconv.Block] = field(default_factory=list)
    report: list[Fusion | Refusal] = field(default_factory=list)


def _leave_out_unread(p):
    """Leaves out steps whose results nothing reads: a kernel may follow from sizes what its node is given."""
    read, kept = set(), []
    for step in reversed(p.steps):
        if any(t is not None and (t.buffer.slot or id(t.buffer) in read) for t in step.writes):
            read.update(id(t.buffer) for t in step.reads)
            kept.append(step)
    p.steps = kept[::-1]


def _split_blocks(p):
    """Leaves out blocks whose layers, one after the other, are faster in bfloat16."""
    if p.precision != "float32":
        precision.split_blocks(p)


def _choose_precision(p):
    if p.precision != "float32":
        precision.choose(p)


def _space_pixels(p):
    """Gives the pixels of an image the distance that the convolution that reads it wants, where convolutions alone
    use its memory."""
    users = {}
    wanting = [step for step in p.steps if step.kind == "conv2d" and _pixel(step) != step.arguments["x"].shape[1]]
    for step in p.steps if wanting else ():
        for t in step.tensors():
            users.setdefault(id(t.buffer), []).append((step, t))
    for step in wanting:
        x, floats = step.arguments["x"], _pixel(step)
        if not x.buffer.in_arena():
            continue
        using = users[id(x.buffer)]
        if not all(s.kind == "conv2d" and _is_whole_image(t, x.shape) for s, t in using):
            continue
        n, _, *pixels = x.shape
        spaced = x._replace(strides=channels_last((n, floats, *pixels)))
        x.buffer.nbytes = math.prod((n, floats, *pixels)) * x.dtype.itemsize
        for s, t in using:
            s.replace({name: spaced for name, a in s.arguments.items() if a is t})


def _pixel(convolution):
    """The floats from one pixel to the next that a convolution wants."""
    return convolution.arguments["layer"].shape._pixel()


def _is_whole_image(t, shape):
    """Whether a tensor is a whole image of this shape, its channels last."""
    return t.shape == shape and t.whole() and same_order(shape, t.strides, channels_last(shape))


def _pack_layers(p):
    for step in p.steps:
        layer = step.arguments.get("layer")
        if isinstance(layer, UnpackedLayer):
            step.arguments["layer"] = layer.packed(p.layers)


PASSES = (
    _leave_out_unread,  # no pass asks for users that are none
    batch_tiling.choose,  # a block takes over the tiles of its parts
    mbconv.find,
    _split_blocks,  # before any is taken
    mbconv.take_known,  # the parts of one that is taken are no steps
    _choose_precision,  # of the steps that are left
    _space_pixels,  # between convolutions that stayed float32
    batch_tiling.cut,  # when buffers have their bytes; says from which step to which each is in use
    inplace.run,  # by that
    _pack_layers,  # when the types of products are known
)


def run(p):
    for each in PASSES:
        each(p)
