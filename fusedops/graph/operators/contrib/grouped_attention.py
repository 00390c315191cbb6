"""Attention of the domain com.microsoft whose keys and values serve groups of heads, after those of earlier calls."""

import math

import numpy as np

from ...._internal import bfloat16
from ...ir.dtypes import BFLOAT16, FLOAT32, NARROW
from ...ir.graph_builder import GraphBuilder
from ...ir.symbolic import deferred
from ...steps.lowering import LoweringContext
from ...steps.tensor import along, broadcast
from ..schema import Inference, Kernel, Operator, values
from .multi_head_attention import heads_of, lower_rotated, refuse, rotated

_STORED = FLOAT32.union(NARROW)  # types of keys and values


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
    """Attention whose keys and values serve groups of heads, after those of earlier calls; each row has a length of
    its own."""
    if past_k is not None and past_k.dtype == BFLOAT16:
        past_k, past_v = (bfloat16.cast(x, np.float32) for x in (past_k, past_v))
        y, *made = _grouped(node, query, key, value, past_k, past_v, lasts, total, cos, sin, positions, bias, sinks)
        return y, *(bfloat16.cast(x, BFLOAT16) for x in made)
    q, *made, at = _present(node, query, key, value, past_k, past_v, lasts, total, cos, sin, positions)
    group, total = q.shape[1] // made[0].shape[1], int(total.reshape(-1)[0])
    k, v = (np.repeat(x[:, :, :total].astype(np.float32), group, 1) for x in made)
    scores = q.astype(np.float32) @ k.swapaxes(2, 3) * (node.attrs.get("scale") or q.shape[3] ** -0.5)
    if node.attrs.get("softcap", 0):
        scores = node.attrs["softcap"] * np.tanh(scores / node.attrs["softcap"])
    scores = scores if bias is None else scores + bias[..., :total]
    y = _softmax_of(node, scores, at[:, np.newaxis, :, np.newaxis], sinks) @ v
    return (y.swapaxes(1, 2).reshape(*query.shape[:2], -1).astype(query.dtype), *made)


def _attends(node, known, alike):
    """Whether the kernels have such an attention: causal, of float32; and where places are `alike` in all rows, whether
    earlier calls and tables reach them."""
    query, _, _, past, _, _, total, cos, _, positions, bias, sinks = known
    rotary, total = node.attrs.get("do_rotary", 0), np.reshape(values(total, "total length"), -1)[0]
    floats = [x.dtype for x in (query, bias, sinks, cos if rotary else None) if x is not None]
    if not node.attrs.get("causal", 1) or any(dtype != np.float32 for dtype in floats):
        return False
    if past is not None and past.dtype not in _STORED:
        return False
    if alike and (0 if past is None else past.shape[2]) < total - query.shape[1]:
        return False
    return not (rotary and _outside(cos, positions, alike, total))


def _outside(cos, positions, alike, total):
    """Whether there is no table of angles, or none for positions that are not given."""
    return cos is None or positions is None and alike and cos.shape[0] < total


def _lower(p: LoweringContext, node):
    """The keys and values of earlier calls and the new ones are put into their place, and read there."""
    known: list = [p.known[v] if v else None for v in [*node.inputs, *[""] * 5][:12]]
    query, _, _, past, _, lasts, total, _, _, positions, bias, _ = known
    (batch, length, _), total = query.shape, np.reshape(values(total, "total length"), -1)[0]
    alike, begin = bool(batch == 1 or length == total), total - length  # else each row of the batch has a length
    if not _attends(node, known, alike):
        return False
    kept, rotary = 0 if past is None else past.shape[2], node.attrs.get("do_rotary", 0)
    begins = None if alike else _lower_begins(p, node, lasts, length)
    angles = _lower_angles(p, node, positions, begins, begin, length) if rotary else None
    q, k, v = _lower_parts(p, node)
    shape = *k.shape[:2], max(kept, total), k.shape[3]
    stored = query.dtype if past is None else past.dtype
    presents = [p.result(y) if y else p.new(shape, dtype=stored) for y in [*node.outputs, "", ""][1:3]]
    if angles is not None:
        cos, sin = angles
        q = lower_rotated(p, node, q, p.new(q.shape), cos, sin, node.attrs.get("rotary_interleaved", 0))
    _lower_present(p, node, node.input(3), k, presents[0], begins, begin, angles)
    _lower_present(p, node, node.input(4), v, presents[1], begins, begin)
    p.add(
        "attention",
        node,
        q=q,
        k=along(presents[0], 2, 0, total),
        v=along(presents[1], 2, 0, total),
        y=heads_of(p.result(node.output), q.shape[1], q.shape[3], 0),
        kv_type=stored,
        mask=None if bias is None else broadcast(along(p.at(node.inputs[10]), 3, 0, total), (*q.shape[:3], total)),
        causal=True,
        diagonal=begin if alike else 0,
        diagonals=begins,
        sinks=_sinks(p, node),
        window=max(node.attrs.get("local_window_size", -1), 0),
        softcap=float(node.attrs.get("softcap", 0.0)),
        scale=float(node.attrs.get("scale") or int(q.shape[3]) ** -0.5),
    )
    return True


def _sinks(p: LoweringContext, node):
    """What has a share of each head's softmax, or None: a smooth one is that of sinks of 0."""
    heads = node.attrs["num_heads"]
    if node.input(11):
        return p.reshape(node, p.at(node.inputs[11]), (heads,))
    return p.constant(np.zeros(heads, np.float32), (heads,)) if node.attrs.get("smooth_softmax", -1) == 1 else None


def _lower_parts(p: LoweringContext, node):
    """The views (batch, heads, length, features of one) of queries, keys and values."""
    q_heads, kv_heads = node.attrs["num_heads"], node.attrs["kv_num_heads"]
    features, packed = p.known[node.inputs[0]].shape[2], not node.input(1)
    size = features // (q_heads + 2 * kv_heads if packed else q_heads)
    starts = (0, q_heads * size, (q_heads + kv_heads) * size) if packed else (0, 0, 0)
    return [
        heads_of(p.at(value or node.inputs[0]), count, size, start)
        for value, count, start in zip(node.inputs[:3], (q_heads, kv_heads, kv_heads), starts, strict=True)
    ]


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
    after."""
    interleaved, length, room = node.attrs.get("rotary_interleaved", 0), new.shape[2], present.shape[2]
    size, rounds = present.dtype.itemsize, present.dtype != new.dtype
    if angles is not None and (begins is not None or rounds):
        cos, sin = angles
        new, angles = lower_rotated(p, node, new, p.new(new.shape), cos, sin, interleaved), None
    if begins is not None:
        if rounds:
            new, wide = p.new(new.shape, dtype=present.dtype), new
            p.map(node, "cast", new, wide)
        p.add("append", node, past=p.at(past) if past else None, x=new, y=present, begins=begins, size=size)
        return
    seen = along(p.at(past), 2, 0, begin) if past else None
    if seen is not None and seen != along(present, 2, 0, begin):  # a cache is there already
        p.copy(node, seen, along(present, 2, 0, begin))
    target = along(present, 2, begin, length)
    if angles is not None:
        cos, sin = angles
        lower_rotated(p, node, new, target, cos, sin, interleaved)
    elif rounds:
        p.map(node, "cast", target, new)
    else:
        p.copy(node, new, target)
    if begin + length < room:
        p.add("fill", node, y=along(present, 2, begin + length, room - begin - length), value=0, size=size)


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
    stored = k.dtype if past_k is None else past_k.dtype
    made = [np.zeros((batch, k.shape[1], max(kept, total), k.shape[3]), stored) for _ in range(2)]
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


def _grouped_type(node, inputs, i):
    """Keys and values are kept in the type of those of earlier calls."""
    past = inputs[3] if i and len(inputs) > 3 else None
    return (inputs[0] if past is None else past).dtype


def _read_grouped(r: GraphBuilder, node):
    refuse(node, "kv_cache_bit_width", "qk_output", "sliding_window_cache")
    if any(node.input(i) for i in range(12, 17)):
        raise ValueError(
            f"{node.op} {node.name!r} has quantized or normalized keys, which fusedops does not have: export it without"
        )
    node.inputs = node.inputs[:12]
    r.add(node)


RECORDS = {
    "com.microsoft.GroupQueryAttention": Operator(
        _grouped,
        Inference(_grouped_shape, _grouped_type, shape_inputs=(6,)),
        Kernel(_lower, "causal", dtypes=_STORED),
        _read_grouped,
        optional={1, 2},
    ),
}
