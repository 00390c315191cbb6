"""precision="bfloat16": which steps multiply in bfloat16, and which images and rows are kept in it between them.

A convolution or product does where that is predicted to be faster here, the rounding of its input counted. A value
is in bfloat16 where such steps alone use its memory. Recurrent layers and attention multiply in it inside, by the
same rule. What computes little, and all else, is float32."""

import math
from types import NoneType

import numpy as np

from ... import _core
from ..ir.explanation import Refusal
from ..ir.symbolic import concrete, guard
from ..steps.prepared import UnpackedLayer
from ..steps.step import Step

PRODUCTS = {"conv2d": "qconv2d", "linear": "qlinear"}  # kinds of steps, and those that have types
_FLOAT32 = np.dtype(np.float32)
# A block is assumed to take its layers' float32 time. It gives way to layers in bfloat16 that take at most this share
# of that: in ten networks blocks above it took 0.74 to 1.33 of their layers' bfloat16 time, those below 1.13 to 1.77
# (Zen 4).
BLOCK_SHARE = 0.9
# Elements that take as long to round as one whose channels are not last takes to be moved: 0.1 to 0.4 ns of twelve 1x1
# convolutions (Zen 4).
MOVED = 2
_NO_PRODUCT = "the processor has no product of bfloat16 for it"


def choose(p):
    """Lets steps multiply in bfloat16, in place, and reports those that could and do not."""
    inner = [step for step in p.steps if step.kind in _INNER and _is_of_floats(step)]
    p.report += [*_layers(p.steps), *(refusal for step in inner for refusal in _inner(step))]


def _is_of_floats(step):
    """Whether a step has weights of floats, or none: int8 and those in blocks stay as they are."""
    return isinstance(step.arguments.get("layer"), (UnpackedLayer, NoneType))


def _may(step):
    return step.kind in PRODUCTS and not step.inner and _is_of_floats(step)


def _layers(steps):
    """Convolutions and products, and what is kept in bfloat16 between them."""
    users = {}
    for step in steps:
        for t in step.tensors():
            users.setdefault(id(t.buffer.root()), []).append((step, t))
    able, report = {id(s): s for s in filter(_may, steps)}, []
    narrow, slow = _found(users, able)
    while slow:  # each that is left out may leave another with an input to round
        report += [Refusal("precision", s.node.name, why, s.node.op) for s, why in slow]
        able = {key: s for key, s in able.items() if all(s is not left for left, _ in slow)}
        narrow, slow = _found(users, able)
    for step in able.values():
        _narrow(step, narrow)
    for b in narrow:
        for buffer in {id(t.buffer): t.buffer for _, t in users[b]}.values():
            buffer.nbytes //= 2
    return report


def split_blocks(p):
    """Leaves out the blocks whose layers, one after the other, are clearly faster in bfloat16."""
    kept, left = [], set()
    for block in p.blocks:
        calls, node = [call_of(part) for part in block.parts], block.whole.node
        if not guard(_pays, _of_block, *calls):
            kept.append(block)
            continue
        ns, narrow = _of_block(*concrete(calls))
        why = f"in bfloat16 its layers are predicted to take {BLOCK_SHARE * narrow / ns:.2f} of the time"
        p.report.append(Refusal("blocks", node.name, why, node.op))
        left.add(id(block.whole))
    p.steps, p.blocks = [step for step in p.steps if id(step) not in left], kept


def _of_block(*calls):
    """Returns the time that layers must beat for their block to give way, and their predicted time."""
    times = [of_layer(shape, x, y, where, moved, rounds=True) for shape, x, y, where, moved in calls]
    return BLOCK_SHARE * sum(ns for ns, _ in times), sum(map(min, times))


def _inner(step):
    """Lets a step of several products multiply in bfloat16, in place, or says why it does not."""
    why = _reason(_INNER[step.kind], *_case(step))
    if why:
        return [Refusal("precision", step.node.name, why, step.node.op)]
    if step.kind == "attention":
        step.arguments["precision"] = "bfloat16"
    else:
        step.arguments["layer"] = step.arguments["layer"]._replace(precision="bfloat16")
    return []


def _case(step):
    a = step.arguments
    if step.kind == "recurrent":
        return a["layer"].shape, a["x"].shape[1]
    if step.kind == "conv_transpose":
        return call_of(step)[:4]
    return a["q"].shape, a["k"].shape, a["v"].shape[-1]


def _of_recurrent(products, batch):
    """Predicts the time of a step of all cells in float32 and in bfloat16, with the rounding of x and h. `products` are
    the sizes (n, k) of theirs."""
    each = [_of_product(batch, n, k, batch * k) for n, k in products]
    return tuple(map(sum, zip(*each, strict=True)))


def _of_transposed(shape, x, y, where):
    return shape._nanoseconds((x[0], *x[2:]), y[2:], *where)


def _of_attention(q, k, dv):
    """Predicts the time of the products for one key head. Queries and weights are rounded as they are made, keys and
    values as they are packed, which float32 does too, but for a single query: that reads them where they lie."""
    (s, d), rows = k[-2:], q[-3] // k[-3] * q[-2]
    packed = s if rows == 1 else 0
    scores, values = _of_product(rows, s, d, packed * d), _of_product(rows, dv, s, packed * dv)
    return scores[0] + values[0], scores[1] + values[1]


def _of_product(m, n, k, rounded):
    ns, _, narrow = _core.linear_nanoseconds(m, n, k)
    return ns, narrow + _core.bfloat16_nanoseconds(rounded)


_INNER = {"recurrent": _of_recurrent, "conv_transpose": _of_transposed, "attention": _of_attention}


def _found(users, able):
    """(memory that holds values in bfloat16, the steps that are slower so and why), if all of `able` multiply so."""
    narrow = {b for b, using in users.items() if _stands(using, able)}
    reasons = [(s, _why_not(s, narrow)) for s in able.values()]
    return narrow, [(s, why) for s, why in reasons if why]


def _stands(using, able):
    """Whether memory holds a value between steps that multiply in bfloat16, and nothing else."""
    buffer = using[0][1].buffer
    inside = buffer.in_arena() and all(t.dtype == _FLOAT32 for _, t in using)
    return inside and all(id(s) in able for s, _ in using)


def _why_not(step, narrow):
    """Why a step stays float32; "" where it is faster in bfloat16."""
    return _reason(of_layer, *call_of(step), id(step.arguments["x"].buffer.root()) not in narrow)


def call_of(step):
    """A convolution's shape, or None of another layer; the shapes of x and y, where the image begins, and how many
    elements of images do not have their channels last: products in bfloat16 move them."""
    a = step.arguments
    if "top" not in a:
        return None, a["x"].shape, a["y"].shape, (), 0
    shape = a["layer"].shape if isinstance(a["layer"], UnpackedLayer) else a["layer"]
    images = [t for t in (a["x"], a["y"], a.get("residual")) if t is not None and t.shape[1] != 1 != t.strides[1]]
    return shape, a["x"].shape, a["y"].shape, (a["top"], a["left"]), sum(math.prod(t.shape) for t in images)


def _reason(ns_of, *case):
    """The same, by a function of what decides."""
    if guard(_pays, ns_of, *case):
        return ""
    ns, narrow_ns = ns_of(*concrete(case))
    return _NO_PRODUCT if narrow_ns == math.inf else f"float32 is predicted to take {ns / narrow_ns:.2f} of the time"


def _pays(ns_of, *case):
    ns, narrow_ns = ns_of(*case)
    return narrow_ns < ns


def of_layer(shape, x, y, where, moved, rounds):
    """Predicts the time of a step in float32, and in bfloat16 with the rounding of x, if that is needed, and with the
    elements that are moved."""
    if shape is not None:
        ns, _, narrow = shape._nanoseconds((x[0], *x[2:]), y[2:], *where)
    else:
        ns, _, narrow = _core.linear_nanoseconds(x[0], y[1], x[1])
    return ns, narrow + _core.bfloat16_nanoseconds((math.prod(x) if rounds else 0) + MOVED * moved)


def _narrow(step, narrow):
    """Gives the step bfloat16 operands."""
    arguments = {name: _stored(t, narrow) for name, t in step.arguments.items()}
    arguments["layer"] = step.arguments["layer"]._replace(precision="bfloat16")
    arguments["types"] = tuple(t and t.dtype for t in (arguments[name] for name in ("x", "residual", "y")))
    made = Step.of(PRODUCTS[step.kind], step.node, arguments)
    step.kind, step.arguments, step.reads, step.writes = made.kind, made.arguments, made.reads, made.writes


def _stored(t, narrow):
    """A tensor as it stands where its memory is narrow."""
    if not hasattr(t, "buffer") or id(t.buffer.root()) not in narrow:
        return t
    return t._replace(dtype=_core.BFLOAT16, offset=t.offset // 2)
