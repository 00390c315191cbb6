"""Attention of the domain com.microsoft: projections, heads, masks of every form, keys and values of earlier calls,
rotated positions."""

import itertools

import numpy as np

from ...ir.graph_builder import GraphBuilder
from ...steps.lowering import LoweringContext
from ...steps.tensor import broadcast
from ..schema import Inference, Kernel, NumPyOnly, Operator, Rewrite
from .fused import moved


def heads(r: GraphBuilder, node, x, count):
    """(batch, length, features) as (batch, heads, length, features of one)."""
    x = r.node("Reshape", node, x, r.constant(f"{node.name}.heads", [0, 0, count, -1]))
    return r.node("Transpose", node, x, perm=[0, 2, 1, 3])


def scaled(r: GraphBuilder, node, q, scale):
    """Queries (batch, heads, length, features) by a scale, or if it is None by one over the root of the features."""
    if scale is not None:
        return r.node("Mul", node, q, r.constant_like(node, "scale", scale))
    size = r.node("Cast", node, r.node("Shape", node, q, start=3, end=4), to=1)
    root = r.node("Reciprocal", node, r.node("Sqrt", node, size))
    return r.node("Mul", node, q, r.node("CastLike", node, root, q))


def attend(r: GraphBuilder, node, q, k, v, mask, bias, scores=""):
    """softmax(scale q k^T + mask + bias) v, its heads one after the other again."""
    s = r.node("MatMul", node, scaled(r, node, q, node.attrs.get("scale") or None), moved(r, node, k, -1, -2))
    s = r.node("Add", node, s, bias) if bias else s
    if mask or node.attrs.get("unidirectional", 0):
        own = {"filter": node.attrs.get("mask_filter_value") or -10000.0, "causal": node.attrs.get("unidirectional", 0)}
        s = r.node("Add", node, s, r.node("AttentionMask", node, q, k, *[mask] * bool(mask), **own))
    if scores:
        r.node("Identity", node, s, result=scores)
    y = r.node("MatMul", node, r.node("Softmax", node, s, axis=-1, to_end=False), v)
    y = r.node("Transpose", node, y, perm=[0, 2, 1, 3])
    r.node("Reshape", node, y, r.constant(f"{node.name}.joined", [0, 0, -1]), result=node.output)


def _mask(node, q, k, mask=None):
    """What is added to scores: 0 where a query may see a key, else a large negative number."""
    length, total = q.shape[-2], k.shape[-2]
    hidden, places = np.zeros((1, 1, 1, 1), bool), np.arange(total)
    if mask is not None and mask.ndim == 1:
        ends = mask[: q.shape[0], np.newaxis]
        hidden = places >= ends
        if mask.size == 2 * q.shape[0]:
            hidden |= places < mask[q.shape[0] :, np.newaxis]
        hidden = hidden[:, np.newaxis, np.newaxis]
    elif mask is not None:
        hidden = mask == 0
        hidden = (
            hidden[:, np.newaxis, np.newaxis]
            if mask.ndim == 2
            else hidden[:, np.newaxis]
            if mask.ndim == 3
            else hidden[:, :, total - length : total, :total]
        )
    added = np.where(hidden, node.attrs["filter"], 0.0)
    if node.attrs["causal"]:
        later = places > np.arange(length)[:, np.newaxis] + total - length
        added = np.where(later, np.finfo(q.dtype).min, added)
    return np.broadcast_to(added, _mask_shape(node, q, k, mask)).astype(q.dtype)


def _mask_shape(node, q, k, mask=None):
    batch, length, total = q.shape[0], q.shape[-2], k.shape[-2]
    rows = length if node.attrs["causal"] or mask is not None and len(mask.shape) > 2 else 1
    if mask is None:
        return (1, 1, rows, total)
    fits = {
        1: mask.shape in ((batch,), (2 * batch,), (3 * batch + 2,)),
        2: mask.shape == (batch, total),
        3: mask.shape == (batch, length, total),
        4: True,
    }
    if not fits.get(len(mask.shape)):
        raise ValueError(f"a mask of shape {mask.shape} fits no {length} queries of {total} keys in {batch} rows")
    return (batch, 1, rows, total)


def refuse(node, *names):
    given = [name for name in names if node.attrs.get(name)]
    if given:
        raise ValueError(
            f"{node.op} {node.name!r} has {given[0]}={node.attrs[given[0]]}, which fusedops does not have: "
            f"export it without"
        )


def _output(node, i):
    return node.outputs[i] if i < len(node.outputs) else ""


def _read_attention(r: GraphBuilder, node):
    """One projection makes queries, keys and values of the input; those of earlier calls come as one array of both."""
    refuse(node, "do_rotary", "past_present_share_buffer")
    x, w, b, mask, past, bias = ([*node.inputs, *[""] * 6])[:6]
    projected = r.node("MatMul", node, x, w)
    projected = r.node("Add", node, projected, b) if b else projected
    project(r, node, projected, mask, past, bias)


def project(r: GraphBuilder, node, projected, mask, past, bias):
    """Attention over queries, keys and values that lie one after the other."""
    sizes = node.attrs.get("qkv_hidden_sizes")
    given = [r.constant(f"{node.name}.sizes", sizes)] if sizes else []
    parts = r.node("Split", node, projected, *given, outputs=3, axis=-1, **({} if sizes else {"num_outputs": 3}))
    q, k, v = (heads(r, node, part, node.attrs["num_heads"]) for part in parts)
    if past:
        k, v = (
            r.node("Concat", node, r.node("Gather", node, past, r.constant(f"{node.name}.at", i), axis=0), t, axis=2)
            for i, t in enumerate((k, v))
        )
    if _output(node, 1):
        first = r.constant(f"{node.name}.first", [0])
        r.node("Concat", node, *(r.node("Unsqueeze", node, t, first) for t in (k, v)), axis=0, result=node.outputs[1])
    attend(r, node, q, k, v, mask, bias)


def _read_multi_head(r: GraphBuilder, node):
    """Queries, keys and values in arrays of their own, or packed with the heads of all three as neighbors."""
    q, k, v, bias, mask, added, past_k, past_v, length = ([*node.inputs, *[""] * 9])[:9]
    count = node.attrs["num_heads"]
    if length or len(node.inputs) > 9:
        raise ValueError(
            f"{node.op} {node.name!r} shares a buffer with its past, which fusedops does not have: export it without"
        )
    biases = _biases(r, node, q, v, bias)
    if not k:
        parts = [_packed(r, node, q, i) for i in range(3)]
    elif not v:
        parts = [heads(r, node, q, count), *(_packed(r, node, k, i) for i in range(2))]
    else:
        parts = [
            x if len(r.shape(x) or ()) == 4 else heads(r, node, _biased(r, node, x, each), count)
            for x, each in zip((q, k, v), biases, strict=True)
        ]
    q, k, v = parts
    k, v = (r.node("Concat", node, past, t, axis=2) if past else t for past, t in ((past_k, k), (past_v, v)))
    for t, i in ((k, 1), (v, 2)):
        if _output(node, i):
            r.node("Identity", node, t, result=node.outputs[i])
    attend(r, node, q, k, v, mask, added, _output(node, 3))


def _biases(r, node, q, v, bias):
    """Those of queries, keys and values, of which the last may be wider; packed ones have none."""
    if not bias or not v:
        return [""] * 3
    width, of_values = _width(r, q), _width(r, v)
    if width is None or of_values is None:
        at = r.node("Shape", node, q, start=2, end=3)
        end = r.node("Add", node, at, at)
        cuts = [r.constant(f"{node.name}.begin", [0]), at, end, r.constant(f"{node.name}.end", [2**62])]
        return [r.node("Slice", node, bias, *cut) for cut in itertools.pairwise(cuts)]
    sizes = r.constant(f"{node.name}.widths", [width, width, of_values])
    return r.node("Split", node, bias, sizes, outputs=3, axis=0)


def _width(r, value):
    """The last size of a value, where it is known or that of constant weights; that of heads is all of theirs."""
    shape, maker = r.shape(value), r.makers.get(value)
    if shape is not None:
        return shape[-1] if len(shape) != 4 or shape[1] is None else shape[1] * shape[3]
    if maker is not None and maker.op in ("MatMul", "Add") and r.shape(maker.inputs[1]):
        return r.shape(maker.inputs[1])[-1]
    return None


def _biased(r, node, x, bias):
    return r.node("Add", node, x, bias) if bias else x


def _packed(r, node, x, i):
    """The i-th part of (batch, length, heads, parts, features) as (batch, heads, length, features)."""
    part = r.node("Gather", node, x, r.constant(f"{node.name}.at", i), axis=3)
    return r.node("Transpose", node, part, perm=[0, 2, 1, 3])


def rotated(x, cos, sin, positions, interleaved):
    """x (batch, heads, length, features), the first of whose features are rotated in pairs by an angle of their
    position (batch, length)."""
    return turned(x, cos[positions], sin[positions], interleaved)


def turned(x, cos, sin, interleaved):
    """The same where cos and sin are those of the positions, (batch, length, half)."""
    half = cos.shape[-1]
    c, s = (t[:, np.newaxis].astype(np.result_type(t, np.float32)) for t in (cos, sin))
    a, b = (slice(0, 2 * half, 2), slice(1, 2 * half, 2)) if interleaved else (slice(half), slice(half, 2 * half))
    u, v = x[..., a], x[..., b]
    y = np.empty_like(x, np.result_type(x, c))
    y[..., 2 * half :] = x[..., 2 * half :]
    np.multiply(u, c, out=y[..., a])
    y[..., a] -= v * s
    np.multiply(u, s, out=y[..., b])
    y[..., b] += v * c
    return y.astype(x.dtype, copy=False)


def _rotary(node, x, positions, cos, sin):
    batch, length = (x.shape[0], x.shape[1]) if x.ndim == 3 else (x.shape[0], x.shape[2])
    if positions.size == 1 and positions.ndim < 2:
        positions = np.broadcast_to(int(positions.reshape(-1)[0]) + np.arange(length), (batch, length))
    size = 2 * cos.shape[1] if not node.attrs.get("num_heads") else x.shape[-1] // node.attrs["num_heads"]
    v = x if x.ndim == 4 else x.reshape(batch, length, -1, size).swapaxes(1, 2)
    y = rotated(v, cos, sin, positions, node.attrs.get("interleaved", 0))
    return y if x.ndim == 4 else y.swapaxes(1, 2).reshape(x.shape)


def _lower_rotary(p: LoweringContext, node):
    """Positions that each token has; the one from which tokens count is known to NumPy alone."""
    x, positions, tables = p.at(node.inputs[0]), p.at(node.inputs[1]), [p.at(v) for v in node.inputs[2:4]]
    floats = {t.dtype for t in (x, *tables)} == {np.dtype(np.float32)}
    if not floats or len(positions.shape) != 2 or positions.dtype != np.int64:
        return False
    cos, sin = angles = [p.new((*positions.shape, t.shape[1])) for t in tables]
    for table, picked in zip(tables, angles, strict=True):
        p.add("gather", node, x=table, indices=positions, y=picked, along=0, to=table.dtype, single=False)
    y = p.result(node.output)
    if len(x.shape) == 3:
        size = x.shape[2] // node.attrs["num_heads"] if node.attrs.get("num_heads") else 2 * tables[0].shape[1]
        x, y = (heads_of(t, x.shape[2] // size, size, 0) for t in (x, y))
    lower_rotated(p, node, x, y, cos, sin, node.attrs.get("interleaved", 0))
    return True


def _rotary_shape(node, x, positions, cos, sin):
    heads_, size = node.attrs.get("num_heads") or 1, x.shape[-1]
    if len(x.shape) not in (3, 4) or cos.shape != sin.shape or size % heads_ or 2 * cos.shape[1] > size:
        raise ValueError(f"angles of shape {cos.shape} do not fit {size} features in {heads_} heads")
    return x.shape


def _read_rotary(r: GraphBuilder, node):
    refuse(node, "is_packed_batching")
    r.add(node)


def heads_of(x, count, size, start):
    """The view (batch, heads, length, features of one) of heads that are side by side from a feature on."""
    batch, length, _ = x.shape
    sb, sl, sf = x.strides
    return x._replace(
        shape=(batch, count, length, size),
        strides=(sb, size * sf, sl, sf),
        offset=x.offset + start * sf * x.dtype.itemsize,
    )


def lower_rotated(p: LoweringContext, node, x, y, cos, sin, interleaved):
    """Writes x (batch, heads, length, features) into y, rotated as `rotated` does it; cos and sin are those of the
    positions, (batch or 1, length, half)."""
    angles = [
        broadcast(
            t._replace(shape=(t.shape[0], 1, *t.shape[1:]), strides=(t.strides[0], 0, *t.strides[1:])),
            (*x.shape[:3], t.shape[2]),
        )
        for t in (cos, sin)
    ]
    p.add("rotate", node, x=x, y=y, cos=angles[0], sin=angles[1], interleaved=bool(interleaved))
    return y


RECORDS = {
    "AttentionMask": Operator(_mask, Inference(_mask_shape), NumPyOnly("small against the scores"), None),
    "com.microsoft.Attention": Rewrite(_read_attention, ("MatMul", "Softmax")),
    "com.microsoft.MultiHeadAttention": Rewrite(_read_multi_head, ("MatMul", "Softmax")),
    "com.microsoft.RotaryEmbedding": Operator(
        _rotary, Inference(_rotary_shape), Kernel(_lower_rotary, "positions that each token has"), _read_rotary
    ),
}
