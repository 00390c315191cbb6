"""Attention as the kernels have it: what ONNX's Attention is read as, and what the pass of that name makes of two
products with a softmax between them."""

import math

import numpy as np

from ..ir.dtypes import NARROW
from ..ir.symbolic import guard
from ..steps.lowering import LoweringContext
from ..steps.tensor import broadcast, broadcast_shapes
from .schema import Inference, Kernel, Operator

LOW = -1e4  # exporters' least fill: next to a key that is seen its weight is 0


def _scale(node, features):
    """What scores are multiplied by: one over the root of the features, where the node does not say it."""
    scale = node.attrs.get("scale")
    return features**-0.5 if scale is None else float(scale)


def _attend(node, a, b, v, mask=None, last=None):
    """softmax(scale a b + mask) v, the scores before the mask perhaps capped; where nothing is seen, 0.

    Keys and values may have fewer heads, each for a group of those of a. Where `last` is given, one for all or one for
    each row of the batch, query i sees the keys up to i + last, of these perhaps a window.
    """
    b, v = (_of_groups(x, a) for x in (b, v))
    scores, cap = (a @ b) * np.asarray(_scale(node, a.shape[-1]), a.dtype), node.attrs.get("softcap", 0.0)
    if cap:
        scores = np.asarray(cap, a.dtype) * np.tanh(scores / np.asarray(cap, a.dtype))
    if mask is not None:
        scores = scores + mask
    if last is not None:
        scores = np.where(_seen(node, last, *scores.shape[-2:]), scores, scores.dtype.type(-np.inf))
    top = scores.max(-1, keepdims=True)
    e = np.exp(scores - np.where(top == -np.inf, np.zeros_like(top), top))
    total = e.sum(-1, keepdims=True)
    return np.where(total == 0, np.zeros_like(e), e / np.where(total == 0, np.ones_like(total), total)) @ v


def _of_groups(x, a):
    """Keys or values, of which each head is repeated for the queries of its group."""
    group = _group(a, x)
    return x if group == 1 else np.repeat(x, group, -3)


def _group(a, x):
    """How many heads of the queries share one of the keys or values; 1 also where NumPy repeats the only one."""
    if min(len(a.shape), len(x.shape)) < 3 or x.shape[-3] in (0, 1, a.shape[-3]) or a.shape[-3] % x.shape[-3]:
        return 1
    return a.shape[-3] // x.shape[-3]


def _seen(node, last, t, s):
    """The keys that each query sees."""
    at, keys = np.arange(t)[:, np.newaxis] + last.reshape(-1, *[1] * (3 if last.size > 1 else 1)), np.arange(s)
    window = node.attrs.get("window", 0)
    return (keys <= at) & (keys > at - window) if window else keys <= at


def _shape(node, a, b, v, mask=None, last=None):
    if min(len(x.shape) for x in (a, b, v)) < 2 or a.shape[-1] != b.shape[-2] or b.shape[-1] != v.shape[-2]:
        raise ValueError(f"queries {a.shape}, transposed keys {b.shape} and values {v.shape} form no attention")
    b, v = (x._replace(shape=(*x.shape[:-3], a.shape[-3], *x.shape[-2:])) if _group(a, x) > 1 else x for x in (b, v))
    batch = broadcast_shapes(a.shape[:-2], b.shape[:-2])
    scores = (*batch, a.shape[-2], b.shape[-1])
    if mask is not None and broadcast_shapes(scores, mask.shape) != scores:
        raise ValueError(f"the mask {mask.shape} does not fit scores of {scores}")
    return (*broadcast_shapes(batch, v.shape[:-2]), a.shape[-2], v.shape[-1])


def is_causal(mask, t, s, diagonal):
    """Whether a mask of (1, ..., t, s) is 0 up to this diagonal and hides what is above."""
    if mask.size != t * s or t * s < 2 or mask.dtype != np.float32:
        return False
    mask, seen = mask.reshape(t, s), np.tri(t, s, diagonal, dtype=bool)
    return bool((mask[seen] == 0).all() and (mask[~seen] <= (LOW if diagonal >= 0 else -np.inf)).all())


def _unscaled(p: LoweringContext, value):
    """(a value, the factor that makes the given one of it): what is a product with one number is scaled with the
    scores."""
    node = p.producers.get(value)
    if node is None or node.op != "Mul" or node.activation is not None or node.residual:
        return value, 1.0
    for v, other in (node.inputs, node.inputs[::-1]):
        data = p.data(other)
        number = (
            isinstance(data, np.ndarray) and data.dtype == np.float32 and data.size == 1 and np.isfinite(data).all()
        )
        if number and p.data(v) is None and p.known[v].shape == p.known[value].shape:
            return v, float(data.item())
    return value, 1.0


def _before(p: LoweringContext, value, op, perm=None):
    """What the operator of this kind takes that makes a value, or None."""
    node = p.producers.get(value)
    fits = node is not None and node.op == op and (perm is None or list(node.attrs.get("perm") or ()) == perm)
    return node.inputs[0] if fits else None


def _swapped(p: LoweringContext, value):
    """(a value, whether the given one is that with its last two of four axes swapped), perhaps with the batch and the
    heads as one axis meanwhile."""
    before = _before(p, value, "Transpose", [0, 1, 3, 2])
    if before is not None:
        return before, True
    joined = _before(p, _before(p, value, "Reshape"), "Transpose", [0, 2, 1])
    first = _before(p, joined, "Reshape")
    if first is None or len(p.known[first].shape) != 4:
        return value, False
    n, heads, s, d = p.known[first].shape
    good = p.known[joined].shape == (n * heads, s, d) and p.known[value].shape == (n, heads, d, s)
    return (first, True) if good else (value, False)


def _fewer_heads(p: LoweringContext, value):
    """The tensor of keys or values; without the copies that a Reshape makes of them for each head of a group."""
    before, swapped = _swapped(p, value)
    node = p.producers.get(before)
    if node is None or node.op != "Reshape" or len(p.known[node.output].shape) != 4:
        return p.at(value)
    x = p.at(node.inputs[0])
    repeated = len(x.shape) == 5 and x.strides[2].__class__ is int and x.strides[2] == 0
    if not repeated or (x.shape[0], x.shape[1] * x.shape[2], *x.shape[3:]) != p.known[node.output].shape:
        return p.at(value)
    order = (0, 1, 4, 3) if swapped else (0, 1, 3, 4)
    return x._replace(shape=tuple(x.shape[a] for a in order), strides=tuple(x.strides[a] for a in order))


def _heads_as(q, shape):
    """What the result is laid out like: where the heads of a token are side by side in q, they are in the result."""
    return q._replace(shape=shape) if len(q.shape) == len(shape) else None


def _heads_of(b, v, shape):
    """Heads of keys and values: fewer than those of the queries where both are shared by groups."""
    return b.shape[-3] if len(b.shape) > 3 and len(v.shape) > 3 and b.shape[-3] == v.shape[-3] else shape[-3]


def _as_stored(p: LoweringContext, *values):
    """Values as they are before a Cast widens all of them from one type of 16 bits, which the kernel does itself."""
    before = [_before(p, value, "Cast") for value in values]
    stored = {None if v is None else p.known[v].dtype for v in before}
    return before if len(stored) == 1 and stored <= NARROW.keys() else values


def _lower(p: LoweringContext, node):
    (queries, fa), (keys, fb) = (_unscaled(p, value) for value in node.inputs[:2])
    keys, values = _as_stored(p, keys, node.inputs[2])
    a, b, v = p.at(queries), _fewer_heads(p, keys), _fewer_heads(p, values)
    if b.shape[:-2] != v.shape[:-2]:
        b, v = p.at(keys), p.at(values)
    y = p.result(node.output, like=_heads_as(a, p.known[node.output].shape))
    more = (1,) * max(4 - len(y.shape), 0)  # a batch and heads
    shape, target = (*more, *y.shape), y._replace(shape=(*more, *y.shape), strides=(*more, *y.strides))
    batch, t, s = shape[:-3], shape[-2], v.shape[-2]
    heads = 1 if all(len(x.shape) < 3 or x.shape[-3] == 1 for x in (b, v)) else _heads_of(b, v, shape)
    k = b._replace(shape=(*b.shape[:-2], s, b.shape[-2]), strides=(*b.strides[:-2], b.strides[-1], b.strides[-2]))
    (diagonal, diagonals), causal = _diagonals(p, node, batch), _causal_mask(p, node, t, s)
    given = node.input(3) and causal is None
    diagonal = diagonal if causal is None else causal
    p.add(
        "attention",
        node,
        q=broadcast(a, (*shape[:-1], a.shape[-1])),
        k=broadcast(k, (*batch, heads, *k.shape[-2:])),
        v=broadcast(v, (*batch, heads, *v.shape[-2:])),
        y=target,
        mask=broadcast(p.at(node.input(3)), (*shape[:-1], s)) if given else None,
        kv_type=b.dtype,
        scale=_scale(node, int(a.shape[-1])) * fa * fb,
        softcap=float(node.attrs.get("softcap", 0.0)),
        causal=diagonal is not None or diagonals is not None,
        diagonal=0 if diagonal is None else diagonal,
        diagonals=diagonals,
        window=node.attrs.get("window", 0),
    )
    return True


def _causal_mask(p: LoweringContext, node, t, s):
    """The diagonal up to which a mask is 0 that hides all else, or None."""
    data = p.data(node.input(3))
    candidates = () if data is None or node.input(4) or p.grows and t == 1 else (0, s - t)
    return next((d for d in candidates if guard(is_causal, data, t, s, d)), None)


def _diagonals(p: LoweringContext, node, batch):
    """(how many keys beyond its own place the first query sees or None, these for each row of a batch or None)"""
    data = p.data(node.input(4))
    if isinstance(data, np.ndarray) and data.size == 1:
        return data.reshape(-1)[0], None
    if not node.input(4):
        return None, None
    each = p.reshape(node, last := p.at(node.input(4)), (math.prod(last.shape),))
    return None, each if each.shape == batch else p.dense(node, broadcast(each, batch), (1,))


RECORDS = {
    "SoftmaxProduct": Operator(_attend, Inference(_shape), Kernel(_lower), None),
}
