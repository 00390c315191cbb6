"""Matrix products, attention, recurrent layers."""

import math

from ..fx_values import FxValue, Unsupported
from .shapes import axis


def _linear(p, x, weight, bias=None):
    return p.linear(x, weight, bias)


def _matmul(p, x, other=None, mat2=None, vec=None, tensor=None):
    return _product(p, x, next(t for t in (other, mat2, vec, tensor) if t is not None))


def _product(p, a, b):
    return p.op("MatMul", a, b) if _weights(p, b) is None else p.linear(a, _weights(p, b))


def _weights(p, b):
    """The weights of a linear layer whose transpose, a view of them, is the constant b; None where it is no such."""
    constant = isinstance(b, p.torch.Tensor) and b.ndim == 2 and b.dtype == p.torch.float32
    return b.t() if constant and not b.is_contiguous() and b.t().is_contiguous() else None


def _add_product(first, second):
    """beta x + alpha a b."""

    def read(p, x, beta=1, alpha=1, **operands):
        a, b = operands[first], operands[second]
        if beta == alpha == 1 and x.ndim == 1 and _weights(p, b) is not None:
            return p.linear(a, _weights(p, b), x)
        y = _product(p, a, b)
        y = y if alpha == 1 else p.op("Mul", y, p.scalar(alpha, p.made))
        if beta == 0:
            return y
        return p.op("Add", y, x if beta == 1 else p.op("Mul", x, p.scalar(beta, p.made)))

    return read


def _grouped_product(p, x, mat2=None, weight=None, offs=None, bias=None, out_dtype=None):
    """Rows x (s, k), of which those of group e end before offs[e], by the matrix of their group in (groups, k, n)."""
    w = weight if mat2 is None else mat2
    if x.ndim != 2 or w.ndim != 3 or offs is None or bias is not None or p.made.dtype != x.dtype:
        raise Unsupported("fusedops has grouped products of rows by a matrix for each group alone, without a bias")
    return p.op("GroupedMatMul", x, w, p.cast(offs, p.torch.int64))


def _einsum(p, equation, tensors, path=None):
    return p.op("Einsum", *tensors, equation=equation)


def _outer(p, x, vec2):
    return p.op("Mul", p.op("Unsqueeze", x, [1]), vec2)


def _bilinear(p, x, input2, weight, bias=None):
    y = p.op("Einsum", x, weight, input2, equation="...i,oij,...j->...o")
    return y if bias is None else p.op("Add", y, bias)


def _attention(p, query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    """softmax(scale q k^T + mask) v. A mask of bools says what takes part."""
    q, k, v = query, key, value
    if enable_gqa:
        k, v = _shared(p, k, q), _shared(p, v, q)
    order = [*range(key.ndim - 2), key.ndim - 1, key.ndim - 2]
    scores = p.op("Mul", p.op("MatMul", q, p.op("Transpose", k, perm=order)), _scale(p, query, scale))
    if is_causal:
        attn_mask = _causal(p, query.shape[-2], key.shape[-2])
    if attn_mask is not None:
        if attn_mask.dtype == p.torch.bool:
            attn_mask = _additive(p, attn_mask, query)
        scores = p.op("Add", scores, attn_mask)
    return p.op("MatMul", p.op("Softmax", scores, axis=query.ndim - 1), v)


def _flash_attention(p, query, key, value, dropout_p=0.0, is_causal=False, attn_mask=None, scale=None):
    """As torch decides for the CPU; the logarithms of the sums are for gradients."""
    return [_attention(p, query, key, value, attn_mask, dropout_p, is_causal, scale), None]


def _scale(p, query, scale):
    """The factor of the scores; 1 / sqrt(size of a head) where none is given."""
    size = p.size(query.shape[-1])
    if scale is not None or isinstance(size, int):
        return p.scalar(1 / math.sqrt(size) if scale is None else scale, query)
    return p.op("Reciprocal", p.op("Sqrt", p.cast_to(size, p.numpy_type(query.dtype, "a tensor"))))


def _additive(p, mask, like):
    if isinstance(mask, p.torch.Tensor):
        return p.torch.zeros(mask.shape, dtype=like.dtype).masked_fill(~mask, -math.inf)
    return p.op("Where", mask, p.scalar(0, like), p.scalar(-math.inf, like))


def _causal(p, rows, columns):
    if isinstance(rows, int) and isinstance(columns, int):
        return p.torch.ones(rows, columns, dtype=p.torch.bool).tril()
    ones = p.op("ConstantOfShape", p.shape([rows, columns]), value=p.torch.ones(1, dtype=p.torch.int32).numpy())
    return FxValue(p.op("Cast", p.op("Trilu", ones, upper=0), to=9), (rows, columns), p.torch.bool)


def _shared(p, x, query):
    """Each head of keys or values for as many heads of queries as share it."""
    *front, heads, steps, size = x.shape
    times = query.shape[-3] // heads
    if times == 1:
        return x
    wide = p.op("Expand", p.op("Unsqueeze", x, [x.ndim - 2]), [1] * (x.ndim - 2) + [times, 1, 1])
    return p.reshape(FxValue(wide, (*front, heads, times, steps, size), x.dtype), [*front, heads * times, steps, size])


# ---- recurrent layers: torch's gates are i f g o and r z n, ONNX's i o f c and z r h

_ORDERS = {"LSTM": (0, 3, 1, 2), "GRU": (1, 0, 2), "RNN": (0,)}


def _stacked(p, op, tensors):
    order = _ORDERS[op]
    return p.torch.stack([p.torch.cat([t.chunk(len(order), 0)[g] for g in order], 0) for t in tensors])


def _layer(p, op, x, state, weights, attrs, lengths=None):
    """One layer, x (steps, batch, inputs) with the steps of each row: (its results side by side, its last states)."""
    if not all(isinstance(t, p.torch.Tensor) for each in weights for t in each):
        raise Unsupported(f"fusedops does not have a recurrent layer ({op}) with computed weights")
    w, r = (_stacked(p, op, [each[i] for each in weights]) for i in (0, 1))
    biased, projected = len(weights[0]) > 3, len(weights[0]) % 2 == 1
    b = p.torch.cat([_stacked(p, op, [each[i] for each in weights]) for i in (2, 3)], 1) if biased else None
    outputs, directions = r.shape[2], len(weights)
    more = dict(linear_before_reset=1) if op == "GRU" else {}
    projection = [None, p.torch.stack([each[-1] for each in weights])] if projected else []
    y, *last = p.op(
        "ProjectedLSTM" if projected else op,
        *(x, w, r, b, lengths, *state, *projection),
        count=1 + len(state),
        hidden_size=w.shape[1] // len(_ORDERS[op]),
        direction="bidirectional" if directions == 2 else "forward",
        **attrs,
        **more,
    )
    y = p.op("Reshape", p.op("Transpose", y, perm=[0, 2, 1, 3]), [0, 0, directions * outputs])
    return y, last


def _recurrent(op, **attrs):
    def read(
        p, x, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first=False, lengths=None, **_
    ):
        states, directions = (hx if isinstance(hx, list) else [hx]), 1 + bool(bidirectional)
        each = len(params) // (directions * num_layers)
        weights = [params[i : i + each] for i in range(0, len(params), each)]
        y, last = p.op("Transpose", x, perm=[1, 0, 2]) if batch_first else x, []
        given = {"activations": [attrs["activation"]] * directions} if attrs else {}
        for i in range(num_layers):
            rows = slice(i * directions, (i + 1) * directions)
            state = [_rows(p, s, rows, num_layers) for s in states]
            y, ends = _layer(p, op, y, state, weights[rows], given, lengths)
            last.append(ends)
        y = p.op("Transpose", y, perm=[1, 0, 2]) if batch_first else y
        return [y, *[ends[0] if num_layers == 1 else p.op("Concat", *ends, axis=0) for ends in zip(*last, strict=True)]]

    return read


def _checked_lengths(p, lengths, x):
    return p.op("CheckedLengths", lengths, x, axis=0, least=1)


def _cut_steps(p, y, lengths):
    """The steps up to the largest of lengths, a number that no shape has."""
    result = p.op("Slice", y, [0], p.op("ReduceMax", lengths, [0]), [0])
    p.symbols[p.made.shape[0].node.expr] = result, 0
    return result


def _rows(p, state, rows, layers):
    if layers == 1:
        return state
    return state[rows] if isinstance(state, p.torch.Tensor) else p.op("Slice", state, [rows.start], [rows.stop], [0])


def _cell(op, **attrs):
    """One step, as a sequence of one."""

    def read(p, x, hx, w_ih, w_hh, b_ih=None, b_hh=None):
        states = [p.op("Unsqueeze", s, [0]) for s in (hx if isinstance(hx, list) else [hx])]
        weights = [w for w in (w_ih, w_hh, b_ih, b_hh) if w is not None]
        given = {"activations": [attrs["activation"]]} if attrs else {}
        _, last = _layer(p, op, p.op("Unsqueeze", x, [0]), states, [weights], given)
        ends = [p.op("Squeeze", s, [0]) for s in last]
        return ends if op == "LSTM" else ends[0]

    return read


def _similarity(p, x, x2, dim=1, eps=1e-8):
    """Cosines: products of both over the product of their lengths, each at least eps."""
    a = axis(x, dim)
    lengths = [p.op("Max", p.op("ReduceL2", t, [a], keepdims=1), p.scalar(eps, x)) for t in (x, x2)]
    return p.op(
        "ReduceSum", p.op("Mul", *[p.op("Div", t, n) for t, n in zip((x, x2), lengths, strict=True)]), [a], keepdims=0
    )


READERS = {
    "linear": _linear,
    **dict.fromkeys(("matmul", "mm", "bmm", "mv", "dot"), _matmul),
    "addmm": _add_product("mat1", "mat2"),
    "baddbmm": _add_product("batch1", "batch2"),
    **dict.fromkeys(("_grouped_mm", "transformers::grouped_mm_fallback"), _grouped_product),
    "einsum": _einsum,
    "outer": _outer,
    "bilinear": _bilinear,
    "scaled_dot_product_attention": _attention,
    "cosine_similarity": _similarity,
    "_scaled_dot_product_flash_attention_for_cpu": _flash_attention,
    "_checked_lengths": _checked_lengths,
    "_cut_steps": _cut_steps,
    "lstm": _recurrent("LSTM"),
    "gru": _recurrent("GRU"),
    "rnn_tanh": _recurrent("RNN"),
    "rnn_relu": _recurrent("RNN", activation="Relu"),
    "lstm_cell": _cell("LSTM"),
    "gru_cell": _cell("GRU"),
    "rnn_tanh_cell": _cell("RNN"),
    "rnn_relu_cell": _cell("RNN", activation="Relu"),
}
