"""ONNX's own Attention, read as that of the kernels, with keys and values after those of earlier calls; and its
RotaryEmbedding.

What the kernel of attention does not compute is spelled out: scores that are an output, and a softmax in another
precision.
"""

import numpy as np

from ..ir.dtypes import BY_ONNX
from ..ir.graph_builder import GraphBuilder
from ..steps.lowering import LoweringContext
from .contrib.fused import onnx
from .contrib.multi_head_attention import heads, heads_of, lower_rotated, scaled, turned
from .schema import Inference, Kernel, Operator, Rewrite, floats


def _read(r: GraphBuilder, node):
    q, k, v, mask, past_k, past_v, lengths = ([*node.inputs, *[""] * 7])[:7]
    if bool(past_k) != bool(past_v) or past_k and lengths:
        raise ValueError(
            f"Attention {node.name!r} takes keys and values of earlier calls together, and then no nonpad_kv_seqlen"
        )
    axes = _axes(r, q)
    flat = "q_num_heads" in node.attrs if axes is None else axes == 3
    if flat and axes is None:
        q = r.node("Transpose", node, q, perm=[0, 1, 2])  # an error where there are four
    if flat:
        counts = node.attrs["q_num_heads"], *[node.attrs["kv_num_heads"]] * 2
        q, k, v = (heads(r, node, x, count) for x, count in zip((q, k, v), counts, strict=True))
    k, v = (_present(r, node, past, x, i) for i, (past, x) in enumerate(((past_k, k), (past_v, v)), 1))
    last = _last(r, node, q, past_k, lengths)
    mask = _mask(r, node, q, k, mask, lengths, last)
    attend = _spelled_out if _output(node, 3) or not _in_own_precision(r, node, q) else _attention
    result = {} if flat else {"result": node.output}
    y = attend(r, node, (q, k, v), mask, last if _is_bounded(node) else "", result)
    if flat:
        y = r.node("Transpose", node, y, perm=[0, 2, 1, 3])
        r.node("Reshape", node, y, r.constant(f"{node.name}.joined", [0, 0, -1]), result=node.output)


def _output(node, i):
    return node.outputs[i] if i < len(node.outputs) else ""


def _axes(r: GraphBuilder, value):
    """How many axes a value has, where that is known."""
    shape, maker = r.shape(value), r.makers.get(value)
    if shape is not None:
        return len(shape)
    if maker is not None and maker.op == "Transpose" and "perm" in maker.attrs:
        return len(maker.attrs["perm"])
    if maker is not None and maker.op == "Reshape" and maker.inputs[1] in r.graph.constants:
        return r.graph.constants[maker.inputs[1]].size
    return None


def _present(r: GraphBuilder, node, past, x, i):
    """Keys or values with those of earlier calls, which are an output too."""
    result = {"result": y} if (y := _output(node, i)) else {}
    if past:
        return r.node("Concat", node, past, x, axis=2, **result)
    if result:
        r.node("Identity", node, x, **result)
    return x


def _in_own_precision(r: GraphBuilder, node, q):
    """Whether the softmax is in the type of the values; those of 16 bits are computed in float32."""
    kind = BY_ONNX.get(node.attrs.get("softmax_precision", 0))
    return kind is None or kind.stored or r.dtype(q) in (kind.dtype, *[np.float16] * (kind.name == "float32"))


def _is_bounded(node):
    """Whether there is a last key that a query sees."""
    return bool(node.attrs.get("is_causal", 0)) or node.attrs.get("right_window_size", -1) >= 0


def _size(r: GraphBuilder, node, value, axis):
    return r.node("Shape", node, value, start=axis, end=axis + 1)


def _plus(r: GraphBuilder, node, value, number):
    return r.node("Add", node, value, r.constant(f"{node.name}.by", [number])) if number else value


def _last(r: GraphBuilder, node, q, past, lengths):
    """The key up to which the first query sees, in an array of one or of one for each row of the batch; where queries
    are not bounded, the one at its own place."""
    if lengths:
        own = r.node("Sub", node, lengths, _size(r, node, q, 2))
    else:
        own = _size(r, node, past, 2) if past else r.constant(f"{node.name}.own", [0])
    beyond = 0 if node.attrs.get("is_causal", 0) else max(node.attrs.get("right_window_size", -1), 0)
    return _plus(r, node, own, beyond)


def _places(r: GraphBuilder, node, value, axes, last=""):
    """The places along the third axis of a value, perhaps with what is added to them, in an array whose other axes are
    these."""
    zero, one = (r.constant(f"{node.name}.{n}", n) for n in (0, 1))
    count = r.node("Squeeze", node, _size(r, node, value, 2), r.constant(f"{node.name}.first", [0]))
    places = r.node("Unsqueeze", node, r.node("Range", node, zero, count, one), r.constant(f"{node.name}.axes", axes))
    if not last:
        return places
    return r.node("Add", node, places, r.node("Unsqueeze", node, last, r.constant(f"{node.name}.each", [1, 2, 3])))


def _mask(r: GraphBuilder, node, q, k, mask, lengths, last):
    """What is added to scores, or "": the mask that is given, the rows that are no keys yet, and a window that has no
    last key."""
    added = [_given_mask(r, node, q, k, mask)] if mask else []
    left = node.attrs.get("left_window_size", -1)
    if lengths and not node.attrs.get("is_causal", 0):
        ends = r.node("Unsqueeze", node, lengths, r.constant(f"{node.name}.each", [1, 2, 3]))
        added.append(_where(r, node, q, r.node("Less", node, _places(r, node, k, [0, 1, 2]), ends)))
    if left >= 0 and not _is_bounded(node):
        first = _places(r, node, q, [0, 1, 3], _plus(r, node, last, -left))
        added.append(_where(r, node, q, r.node("GreaterOrEqual", node, _places(r, node, k, [0, 1, 2]), first)))
    total = added[0] if added else ""
    for other in added[1:]:
        total = r.node("Add", node, total, other)
    return total


def _where(r: GraphBuilder, node, q, seen):
    """0 where a key is seen, else -infinity."""
    zero, low = (r.constant(f"{node.name}.{name}", n, r.dtype(q)) for name, n in (("seen", 0), ("hidden", -np.inf)))
    return r.node("Where", node, seen, zero, low)


def _given_mask(r: GraphBuilder, node, q, k, mask):
    """A mask as what is added to scores; from opset 24 on it may end before the last key."""
    if r.dtype(mask) == np.bool_:
        mask = _where(r, node, q, mask)
    elif r.dtype(mask) != r.dtype(q):
        mask = r.node("CastLike", node, mask, q)
    if r.opset < 24:
        return mask
    missing = r.node("Sub", node, _size(r, node, k, 2), r.node("Shape", node, mask, start=-1))
    pads = r.node("Concat", node, r.constant(f"{node.name}.before", [0]), missing, axis=0)
    low, axes = r.constant(f"{node.name}.hidden", -np.inf, r.dtype(q)), r.constant(f"{node.name}.axes", [-1])
    return r.node("Pad", node, mask, pads, low, axes)


def _attention(r: GraphBuilder, node, parts, mask, last, result):
    """The one node that has a kernel."""
    q, k, v = parts
    k = r.node("Transpose", node, k, perm=[0, 1, 3, 2])
    attrs = {name: node.attrs[name] for name in ("scale", "softcap") if name in node.attrs}
    if last and (window := _window(node)):
        attrs["window"] = window
    inputs = [q, k, v, mask, last]
    while not inputs[-1]:
        inputs.pop()
    return r.node("SoftmaxProduct", node, *inputs, **result, **attrs)


def _window(node):
    """The number of keys that a query sees up to the last one, 0 for all."""
    left, right = (node.attrs.get(f"{side}_window_size", -1) for side in ("left", "right"))
    return 0 if left < 0 else left + 1 + (0 if node.attrs.get("is_causal", 0) else max(right, 0))


def _spelled_out(r: GraphBuilder, node, parts, mask, last, result):
    """The same in the nodes that ONNX defines it by, of which one makes the output of scores."""
    q, k, v = parts
    k, v = (_for_each_head(r, node, x, q) for x in (k, v))
    scores = r.node(
        "MatMul", node, scaled(r, node, q, node.attrs.get("scale")), r.node("Transpose", node, k, perm=[0, 1, 3, 2])
    )
    stages = [scores]
    if node.attrs.get("softcap", 0.0):
        cap = r.constant(f"{node.name}.cap", node.attrs["softcap"], r.dtype(q))
        scores = r.node("Mul", node, onnx(r, "Tanh", node, r.node("Div", node, scores, cap)), cap)
    stages.append(scores)
    bias = _bounds(r, node, q, k, mask, last) if last else mask
    scores = r.node("Add", node, scores, bias) if bias else scores
    stages.append(scores)
    kind = BY_ONNX.get(node.attrs.get("softmax_precision", 0))
    scores = r.node("Cast", node, scores, to=kind.onnx) if kind else scores
    weights = r.node("Softmax", node, scores, axis=-1, to_end=False)
    weights = r.node("CastLike", node, weights, q) if kind else weights
    if bias:
        top = r.node("ReduceMax", node, bias, r.constant(f"{node.name}.row", [-1]), keepdims=1)
        low, zero = (r.constant(f"{node.name}.{n}", n, r.dtype(q)) for n in (-np.inf, 0))
        weights = r.node("Where", node, r.node("Equal", node, top, low), zero, weights)
    stages.append(weights)
    if _output(node, 3):
        r.node("Identity", node, stages[node.attrs.get("qk_matmul_output_mode", 0)], result=node.outputs[3])
    return r.node("MatMul", node, weights, v, **result)


def _bounds(r: GraphBuilder, node, q, k, mask, last):
    """The mask with the keys hidden that are after the last one that a query sees, or before its window."""
    places, at = _places(r, node, k, [0, 1, 2]), _places(r, node, q, [0, 1, 3], last)
    seen = [r.node("LessOrEqual", node, places, at)]
    if window := _window(node):
        first = _places(r, node, q, [0, 1, 3], _plus(r, node, last, -window))
        seen.append(r.node("Greater", node, places, first))
    bias = _where(r, node, q, r.node("And", node, *seen) if len(seen) > 1 else seen[0])
    return r.node("Add", node, mask, bias) if mask else bias


def _for_each_head(r: GraphBuilder, node, x, q):
    """Keys or values, of which each head is repeated for the queries of its group."""
    one, zero = (r.constant(f"{node.name}.{n}", [n]) for n in (1, 0))
    count = _size(r, node, q, 1)
    wide = r.node("Unsqueeze", node, x, r.constant(f"{node.name}.group", [2]))
    shape = r.node("Concat", node, one, one, r.node("Div", node, count, _size(r, node, x, 1)), one, one, axis=0)
    wide = r.node("Expand", node, wide, shape)
    shape = r.node("Concat", node, zero, count, r.node("Shape", node, x, start=2, end=4), axis=0)
    return r.node("Reshape", node, wide, shape)


def _read_rotary(r: GraphBuilder, node):
    """Angles are those of positions, or of the tokens in their order."""
    x, cos, sin, positions = ([*node.inputs, ""])[:4]
    if positions:
        cos, sin = (r.node("Gather", node, t, positions, axis=0) for t in (cos, sin))
    node.inputs = [x, cos, sin]
    r.add(node)


def _rotary(node, x, cos, sin):
    if x.ndim == 4:
        return turned(x, cos, sin, node.attrs.get("interleaved", 0))
    apart = x.reshape(*x.shape[:2], node.attrs["num_heads"], -1).swapaxes(1, 2)
    return turned(apart, cos, sin, node.attrs.get("interleaved", 0)).swapaxes(1, 2).reshape(x.shape)


def _rotary_shape(node, x, cos, sin):
    axes, heads_ = len(x.shape), node.attrs["num_heads"] if len(x.shape) == 3 else 1
    rotated = node.attrs.get("rotary_embedding_dim", 0) or x.shape[-1] // heads_
    tokens = (x.shape[0], x.shape[1 if axes == 3 else 2]) if axes in (3, 4) else ()
    if cos.shape != sin.shape or cos.shape != (*tokens, rotated // 2) or rotated > x.shape[-1] // heads_:
        raise ValueError(f"angles of shape {cos.shape} and {sin.shape} do not fit {rotated} features of {x.shape}")
    return x.shape


def _lower_rotary(p: LoweringContext, node):
    x, cos, sin = (p.at(v) for v in node.inputs)
    if not floats(x, cos, sin):
        return False
    y = p.result(node.output)
    if len(x.shape) == 3:
        count = node.attrs["num_heads"]
        x, y = (heads_of(t, count, t.shape[2] // count, 0) for t in (x, y))
    lower_rotated(p, node, x, y, cos, sin, node.attrs.get("interleaved", 0))
    return True


RECORDS = {
    "Attention": Rewrite(_read, ("SoftmaxProduct",)),
    "RotaryEmbedding": Operator(_rotary, Inference(_rotary_shape), Kernel(_lower_rotary), _read_rotary),
}
