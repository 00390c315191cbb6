"""Attention of the domain com.microsoft: projections, heads, masks of every form, keys and values of earlier calls,
rotated positions."""

import math

import numpy as np

from ...ir.graph_builder import GraphBuilder
from ...ir.symbolic import deferred
from ...steps.lowering import LoweringContext
from ...steps.tensor import along, broadcast
from ..schema import Inference, Kernel, NumPyOnly, Operator, Rewrite, values
from .fused import moved


def heads(r: GraphBuilder, node, x, count):
    """(batch, length, features) as (batch, heads, length, features of one)."""
    x = r.node("Reshape", node, x, r.constant(f"{node.name}.heads", [0, 0, count, -1]))
    return r.node("Transpose", node, x, perm=[0, 2, 1, 3])


def attend(r: GraphBuilder, node, q, k, v, mask, bias, scores=""):
    """softmax(scale q k^T + mask + bias) v, its heads one behind the other again."""
    scale = node.attrs.get("scale") or 0.0
    if not scale:
        size = r.node("Cast", node, r.node("Shape", node, q, start=3, end=4), to=1)
        root = r.node("Reciprocal", node, r.node("Sqrt", node, size))
        factor = r.node("CastLike", node, root, q)
    else:
        factor = r.scalar(node, "scale", scale)
    s = r.node("MatMul", node, r.node("Mul", node, q, factor), moved(r, node, k, -1, -2))
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
    """Attention over queries, keys and values that lie one behind the other."""
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
    """Queries, keys and values in arrays of their own, or packed with the heads of all three as neighbours."""
    q, k, v, bias, mask, added, past_k, past_v, length = ([*node.inputs, *[""] * 9])[:9]
    count = node.attrs["num_heads"]
    if length or len(node.inputs) > 9:
        raise ValueError(
            f"{node.op} {node.name!r} shares a buffer with its past, which fusedops does not have: export it without"
        )
    biases = r.node("Split", node, bias, outputs=3, axis=0, num_outputs=3) if bias else [""] * 3
    if not k:
        parts = [_packed(r, node, q, i) for i in range(3)]
    elif not v:
        parts = [heads(r, node, _biased(r, node, q, biases[0]), count), *(_packed(r, node, k, i) for i in range(2))]
        biases = [""] * 3
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


def _biased(r, node, x, bias):
    return r.node("Add", node, x, bias) if bias else x


def _packed(r, node, x, i):
    """The i-th part of (batch, length, heads, parts, features) as (batch, heads, length, features)."""
    part = r.node("Gather", node, x, r.constant(f"{node.name}.at", i), axis=3)
    return r.node("Transpose", node, part, perm=[0, 2, 1, 3])


def rotated(x, cos, sin, positions, interleaved):
    """x (batch, heads, length, features), the first of whose features are rotated in pairs by an angle of their
    position (batch, length)."""
    half = cos.shape[-1]
    c, s = (t[positions][:, np.newaxis].astype(np.float32) for t in (cos, sin))
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
        x, y = (_heads_of(t, x.shape[2] // size, size, 0) for t in (x, y))
    _lower_rotated(p, node, x, y, cos, sin, node.attrs.get("interleaved", 0))
    return True


def _rotary_shape(node, x, positions, cos, sin):
    heads_, size = node.attrs.get("num_heads") or 1, x.shape[-1]
    if len(x.shape) not in (3, 4) or cos.shape != sin.shape or size % heads_ or 2 * cos.shape[1] > size:
        raise ValueError(f"angles of shape {cos.shape} do not fit {size} features in {heads_} heads")
    return x.shape


def _read_rotary(r: GraphBuilder, node):
    refuse(node, "is_packed_batching")
    r.add(node)


def _grouped_parts(node, query, key, value):
    """Queries (batch, heads, length, features), keys and values of fewer heads."""
    q_heads, k_heads = node.attrs["num_heads"], node.attrs["kv_num_heads"]
    if key is None:
        size = query.shape[-1] // (q_heads + 2 * k_heads)
        query, key, value = np.split(query, [q_heads * size, (q_heads + k_heads) * size], -1)
    return [
        x.reshape(*x.shape[:2], n, -1).swapaxes(1, 2) for x, n in ((query, q_heads), (key, k_heads), (value, k_heads))
    ]


def _grouped(
    node, query, key, value, past_k, past_v, lasts, total, cos=None, sin=None, positions=None, bias=None, sinks=None
):
    """Attention whose keys and values serve groups of heads, behind those of earlier calls; each row has a length of
    its own."""
    q, *made, at = _present(node, query, key, value, past_k, past_v, lasts, total, cos, sin, positions)
    group, total = q.shape[1] // made[0].shape[1], int(total.reshape(-1)[0])
    k, v = (np.repeat(x[:, :, :total].astype(np.float32), group, 1) for x in made)
    scores = q.astype(np.float32) @ k.swapaxes(2, 3) * (node.attrs.get("scale") or q.shape[3] ** -0.5)
    if node.attrs.get("softcap", 0):
        scores = node.attrs["softcap"] * np.tanh(scores / node.attrs["softcap"])
    scores = scores if bias is None else scores + bias[..., :total]
    y = _softmax_of(node, scores, at[:, np.newaxis, :, np.newaxis], sinks) @ v
    return (y.swapaxes(1, 2).reshape(*query.shape[:2], -1).astype(query.dtype), *made)


def _lower_grouped(p: LoweringContext, node):
    """The keys and values of earlier calls and the new ones are put into their place, and read there."""
    known: list = [p.known[v] if v else None for v in [*node.inputs, *[""] * 5][:12]]
    query, _, _, past, _, lasts, total, cos, _, positions, bias, sinks = known
    rotary = node.attrs.get("do_rotary", 0)
    odd = not node.attrs.get("causal", 1) or node.attrs.get("smooth_softmax", -1) == 1 or sinks is not None
    floats = [x.dtype for x in (query, past, bias, cos if rotary else None) if x is not None]
    if odd or any(dtype != np.float32 for dtype in floats) or rotary and cos is None:
        return False
    (batch, length, features), total = query.shape, np.reshape(values(total, "total length"), -1)[0]
    q_heads, kv_heads, kept = node.attrs["num_heads"], node.attrs["kv_num_heads"], 0 if past is None else past.shape[2]
    size = features // (q_heads if node.input(1) else q_heads + 2 * kv_heads)
    starts = (0, 0, 0) if node.input(1) else (0, q_heads * size, (q_heads + kv_heads) * size)
    parts = [
        _heads_of(p.at(value or node.inputs[0]), count, size, start)
        for value, count, start in zip(node.inputs[:3], (q_heads, kv_heads, kv_heads), starts, strict=True)
    ]
    alike, begin = bool(batch == 1 or length == total), total - length  # else each row of the batch has a length
    if alike and (kept < begin or positions is None and rotary and cos.shape[0] < total):
        return False
    begins = None if alike else _lower_begins(p, node, lasts, length)
    angles = _lower_angles(p, node, positions, begins, begin, length) if rotary else None
    presents = [
        p.result(v) if v else p.new((batch, kv_heads, max(kept, total), size)) for v in ([*node.outputs, "", ""])[1:3]
    ]
    q, k, v = parts
    if rotary:
        q = _lower_rotated(p, node, q, p.new(q.shape), *angles, node.attrs.get("rotary_interleaved", 0))
    _lower_present(p, node, node.input(3), k, presents[0], begins, begin, angles)
    _lower_present(p, node, node.input(4), v, presents[1], begins, begin)
    shape = (batch, q_heads, length, total)
    p.add(
        "attention",
        node,
        q=q,
        k=along(presents[0], 2, 0, total),
        v=along(presents[1], 2, 0, total),
        y=_heads_of(p.result(node.output), q_heads, size, 0),
        mask=None if bias is None else broadcast(along(p.at(node.inputs[10]), 3, 0, total), shape),
        causal=True,
        diagonal=begin if alike else 0,
        diagonals=begins,
        window=max(node.attrs.get("local_window_size", -1), 0),
        softcap=float(node.attrs.get("softcap", 0.0)),
        scale=float(node.attrs.get("scale") or int(size) ** -0.5),
    )
    return True


def _lower_begins(p: LoweringContext, node, lasts, length):
    """The places of the first new tokens of each row of a batch, from those of the last ones."""
    last, wide = p.at(node.inputs[5]), np.dtype(np.int64)
    if lasts.dtype != wide:
        last = p.new(lasts.shape, dtype=wide)
        p.map(node, "cast", last, p.at(node.inputs[5]))
    last, begins = p.reshape(node, last, (math.prod(lasts.shape),)), p.new((math.prod(lasts.shape),), dtype=wide)
    p.map(node, "add", begins, last, p.constant(deferred(np.array, 1 - length), (), wide))
    return begins


def _lower_angles(p: LoweringContext, node, positions, begins, begin, length):
    """cos and sin of the positions of the new tokens, (batch or 1, length, half)."""
    tables, wide = [p.at(v) for v in node.inputs[7:9]], np.dtype(np.int64)
    if positions is None and begins is None:
        rows = (along(t, 0, begin, length) for t in tables)
        return [t._replace(shape=(1, *t.shape), strides=(0, *t.strides)) for t in rows]
    if positions is not None:
        at = p.at(node.inputs[9])
    else:
        at = p.new((*begins.shape, length), dtype=wide)
        first = begins._replace(shape=(*begins.shape, 1), strides=(1, 1))
        p.map(node, "add", at, first, p.constant(deferred(np.arange, length), (length,), wide))
    angles = [p.new((*at.shape, t.shape[1])) for t in tables]
    for table, picked in zip(tables, angles, strict=True):
        p.add("gather", node, x=table, indices=at, y=picked, along=0, to=table.dtype, single=False)
    return angles


def _lower_present(p: LoweringContext, node, past, new, present, begins, begin, angles=None):
    """Writes keys or values of earlier calls and the new ones, rotated if there are angles, to their places; zeros
    behind."""
    interleaved, length, room = node.attrs.get("rotary_interleaved", 0), new.shape[2], present.shape[2]
    if begins is not None:
        if angles is not None:
            new = _lower_rotated(p, node, new, p.new(new.shape), *angles, interleaved)
        p.add("append", node, past=p.at(past) if past else None, x=new, y=present, begins=begins)
        return
    seen = along(p.at(past), 2, 0, begin) if past else None
    if seen is not None and seen != along(present, 2, 0, begin):  # a cache is there already
        p.copy(node, seen, along(present, 2, 0, begin))
    target = along(present, 2, begin, length)
    if angles is not None:
        _lower_rotated(p, node, new, target, *angles, interleaved)
    else:
        p.copy(node, new, target)
    if begin + length < room:
        p.add("fill", node, y=along(present, 2, begin + length, room - begin - length), value=0, size=4)


def _heads_of(x, count, size, start):
    """The view (batch, heads, length, features of one) of heads that are side by side from a feature on."""
    batch, length, _ = x.shape
    sb, sl, sf = x.strides
    return x._replace(
        shape=(batch, count, length, size),
        strides=(sb, size * sf, sl, sf),
        offset=x.offset + start * sf * x.dtype.itemsize,
    )


def _lower_rotated(p: LoweringContext, node, x, y, cos, sin, interleaved):
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


def _present(node, query, key, value, past_k, past_v, lasts, total, cos, sin, positions):
    """Queries, keys and values with those of earlier calls, and the places of the queries (batch, length)."""
    q, k, v = _grouped_parts(node, query, key, value)
    batch, length, total = q.shape[0], q.shape[2], int(total.reshape(-1)[0])
    begins = np.zeros(batch, np.int64) if length == total else lasts.reshape(-1).astype(np.int64) + 1 - length
    at = begins[:, np.newaxis] + np.arange(length)
    if node.attrs.get("do_rotary", 0):
        angles = at if positions is None else positions
        q, k = (rotated(x, cos, sin, angles, node.attrs.get("rotary_interleaved", 0)) for x in (q, k))
    kept = 0 if past_k is None else past_k.shape[2]
    if begins.min(initial=0) < 0 or begins.max(initial=0) > kept:
        raise ValueError(
            f"{node.op} {node.name!r}: {length} tokens from places {begins.tolist()} on do not follow "
            f"{kept} of earlier calls"
        )
    made = [np.zeros((batch, k.shape[1], max(kept, total), k.shape[3]), k.dtype) for _ in range(2)]
    for present, past, new in zip(made, (past_k, past_v), (k, v), strict=True):
        for row, begin in enumerate(begins.tolist()):
            if begin:
                present[row, :, :begin] = past[row, :, :begin]
            present[row, :, begin : begin + length] = new[row]
    return q, *made, at


def _softmax_of(node, scores, at, sinks):
    """softmax over the keys up to each query, of a window if there is one; sinks take a share of their own."""
    keys, window = np.arange(scores.shape[-1]), node.attrs.get("local_window_size", -1)
    seen = keys <= at if node.attrs.get("causal", 1) else np.ones(scores.shape[-1], bool)
    seen = seen & (keys > at - window) if window > 0 else seen
    scores = np.where(seen, scores, -np.inf)
    sink = None if sinks is None else sinks.astype(np.float32).reshape(1, -1, 1, 1)
    sink = np.zeros((1, 1, 1, 1), np.float32) if sink is None and node.attrs.get("smooth_softmax", -1) == 1 else sink
    most = scores.max(-1, keepdims=True)
    most = most if sink is None else np.maximum(most, sink)
    e = np.exp(scores - most)
    return e / (e.sum(-1, keepdims=True) + (0 if sink is None else np.exp(sink - most)))


def _grouped_shape(node, query, key, value, past_k, past_v, lasts, total, *others):
    q_heads, k_heads = node.attrs["num_heads"], node.attrs["kv_num_heads"]
    features = query.shape[-1] // (q_heads + 2 * k_heads if key is None else q_heads)
    total, kept = np.reshape(values(total, "total length"), -1)[0], 0 if past_k is None else past_k.shape[2]
    if (
        q_heads % k_heads
        or features * (q_heads + (2 * k_heads if key is None else 0)) != query.shape[-1]
        or query.shape[1] > total
    ):
        raise ValueError(
            f"{query.shape[-1]} features of {query.shape[1]} queries do not fit {q_heads} heads in groups of "
            f"{k_heads}, {total} in all"
        )
    present = (query.shape[0], k_heads, max(kept, total), features)
    return [(*query.shape[:2], q_heads * features), present, present]


def _read_grouped(r: GraphBuilder, node):
    refuse(node, "kv_cache_bit_width", "qk_output", "sliding_window_cache")
    if any(node.input(i) for i in range(12, 17)):
        raise ValueError(
            f"{node.op} {node.name!r} has quantised or normalised keys, which fusedops does not have: export it without"
        )
    node.inputs = node.inputs[:12]
    r.add(node)


RECORDS = {
    "AttentionMask": Operator(_mask, Inference(_mask_shape), NumPyOnly("small against the scores"), None),
    "com.microsoft.Attention": Rewrite(_read_attention, ("MatMul", "Softmax")),
    "com.microsoft.GroupQueryAttention": Operator(
        _grouped,
        Inference(_grouped_shape, shape_inputs=(6,)),
        Kernel(_lower_grouped, "causal, without attention sinks"),
        _read_grouped,
    ),
    "com.microsoft.MultiHeadAttention": Rewrite(_read_multi_head, ("MatMul", "Softmax")),
    "com.microsoft.RotaryEmbedding": Operator(
        _rotary, Inference(_rotary_shape), Kernel(_lower_rotary, "positions that each token has"), _read_rotary
    ),
}
