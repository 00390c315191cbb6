"""Attention as the kernels have it: what the pass of that name makes of two products with a softmax between them."""

import numpy as np

from ..ir.symbolic import guard
from ..steps.lowering import LoweringContext
from ..steps.tensor import broadcast, broadcast_shapes
from .schema import Inference, Kernel, Operator

LOW = -1e4  # exporters' least fill: next to a key that is seen its weight is 0


def _attend(node, a, b, v, mask=None):
    """softmax(scale a b + mask) v; where nothing is seen, 0."""
    scores = (a @ b) * np.asarray(node.attrs.get("scale", 1.0), a.dtype)
    if mask is not None:
        scores = scores + mask
    top = scores.max(-1, keepdims=True)
    e = np.exp(scores - np.where(top == -np.inf, np.zeros_like(top), top))
    total = e.sum(-1, keepdims=True)
    return np.where(total == 0, np.zeros_like(e), e / np.where(total == 0, np.ones_like(total), total)) @ v


def _shape(node, a, b, v, mask=None):
    if min(len(x.shape) for x in (a, b, v)) < 2 or a.shape[-1] != b.shape[-2] or b.shape[-1] != v.shape[-2]:
        raise ValueError(f"queries {a.shape}, transposed keys {b.shape} and values {v.shape} form no attention")
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


def _heads_as(q, shape):
    """What the result is laid out like: where the heads of a token are side by side in q, they are in the result."""
    return q._replace(shape=shape) if len(q.shape) == len(shape) else None


def _lower(p: LoweringContext, node):
    a, b, v = (p.at(value) for value in node.inputs[:3])
    y = p.result(node.output, like=_heads_as(a, p.known[node.output].shape))
    more = (1,) * max(4 - len(y.shape), 0)  # a batch and heads
    shape, target = (*more, *y.shape), y._replace(shape=(*more, *y.shape), strides=(*more, *y.strides))
    batch, t, s = shape[:-3], shape[-2], v.shape[-2]
    heads = 1 if all(len(x.shape) < 3 or x.shape[-3] == 1 for x in (b, v)) else shape[-3]
    k = b._replace(shape=(*b.shape[:-2], s, b.shape[-2]), strides=(*b.strides[:-2], b.strides[-1], b.strides[-2]))
    mask, diagonal = None, None
    if node.input(3):
        data = p.data(node.input(3))
        candidates = () if data is None else (0, s - t)
        diagonal = next((d for d in candidates if guard(is_causal, data, t, s, d)), None)
        mask = broadcast(p.at(node.input(3)), (*shape[:-1], s)) if diagonal is None else None
    p.add(
        "attention",
        node,
        q=broadcast(a, (*shape[:-1], a.shape[-1])),
        k=broadcast(k, (*batch, heads, *k.shape[-2:])),
        v=broadcast(v, (*batch, heads, *v.shape[-2:])),
        y=target,
        mask=mask,
        scale=float(node.attrs.get("scale", 1.0)),
        causal=diagonal is not None,
        diagonal=0 if diagonal is None else diagonal,
    )
    return True


RECORDS = {
    "SoftmaxProduct": Operator(_attend, Inference(_shape), Kernel(_lower), None),
}
