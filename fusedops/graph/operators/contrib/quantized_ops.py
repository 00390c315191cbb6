"""Quantized operators of the domain com.microsoft. Additions, pools and activations are read as the same on real
numbers between
DequantizeLinear and QuantizeLinear, products as exact sums of integers."""

import numpy as np

from ...ir.graph import Node
from ...ir.graph_builder import GraphBuilder
from ..schema import Rewrite
from .fused import moved, onnx, read_embeddings
from .multi_head_attention import project, refuse


def real(r: GraphBuilder, node, i, axis=1):
    """The i-th input of a node, whose scale and zero point come after it, as real numbers."""
    return r.node("DequantizeLinear", node, *_given(node, i, i + 1, i + 2), axis=axis)


def _given(node, *places):
    found = [node.input(i) for i in places]
    while not found[-1]:
        found.pop()
    return found


def _quantized(r: GraphBuilder, node, y, i, like=0):
    """Makes the result of a node from real numbers: its i-th input is the scale, the next one the zero point; without
    one the result has the type of the input `like`."""
    zero_point = node.input(i + 1) or r.constant(f"{node.name}.zero", 0, r.dtype(node.inputs[like]) or np.uint8)
    r.node("QuantizeLinear", node, y, node.input(i), zero_point, result=node.output)


def _by_reals(make, *places, scale):
    """Reads an operator on quantized values, those at `places`, by what `make` makes of them as reals; `scale` is the
    place of the result's."""

    def read(r: GraphBuilder, node):
        xs, last = [real(r, node, i) for i in places], node.attrs.get("channels_last", 0)
        xs = [moved(r, node, x, -1, 1) for x in xs] if last else xs
        y = make(r, node, *xs)
        _quantized(r, node, moved(r, node, y, 1, -1) if last else y, scale, places[0])

    return Rewrite(read, ("DequantizeLinear", "QuantizeLinear"))


def _softmax(r, node, x):
    return r.node("Softmax", node, x, axis=node.attrs.get("axis", -1), to_end=node.attrs.get("opset", 13) < 13)


def _mean(r, node, x):
    axes = node.attrs.get("axes")
    given = [] if axes is None else [r.constant(f"{node.name}.axes", axes)]
    return r.node("ReduceMean", node, x, *given, keepdims=node.attrs.get("keepdims", 1))


def _average(r, node, x):
    return onnx(r, "AveragePool", node, x, **{k: v for k, v in node.attrs.items() if k != "channels_last"})


def _read_concat(r: GraphBuilder, node):
    _quantized(
        r,
        node,
        r.node("Concat", node, *(real(r, node, i) for i in range(2, len(node.inputs), 3)), axis=node.attrs["axis"]),
        0,
        2,
    )


def _read_where(r: GraphBuilder, node):
    _quantized(r, node, r.node("Where", node, node.inputs[0], real(r, node, 1), real(r, node, 4)), 7, 1)


def _read_conv(r: GraphBuilder, node):
    attrs = dict(node.attrs)
    last = attrs.pop("channels_last", 0)
    x = moved(r, node, node.inputs[0], -1, 1) if last else node.inputs[0]
    y = r.node("QLinearConv", node, x, *node.inputs[1:], result=None if last else node.output, **attrs)
    if last:
        moved(r, node, y, 1, -1, node.output)


def _read_gemm(r: GraphBuilder, node):
    """alpha a b + c, where c has the scale of the product, in the scale of y, or as reals without one."""
    attrs = {name: node.attrs[name] for name in ("alpha", "transA", "transB") if name in node.attrs}
    reals = [real(r, node, 0), real(r, node, 3, axis=0 if attrs.get("transB", 0) else 1)]
    if node.input(6):
        scale = r.node("Mul", node, node.inputs[1], node.inputs[4])
        if attrs.get("alpha", 1.0) != 1:
            scale = r.node("Mul", node, scale, r.constant(f"{node.name}.alpha", attrs["alpha"], np.float32))
        reals.append(r.node("DequantizeLinear", node, node.inputs[6], scale, axis=-1))
    y = r.node("Gemm", node, *reals, result=None if node.input(7) else node.output, **attrs)
    if node.input(7):
        _quantized(r, node, y, 7)


def _scaled_product(r, node, a, b, scales, zero_points, bias, result):
    """The exact product of integers times both scales, as reals, with a bias; None makes a name for the result."""
    while zero_points and not zero_points[-1]:
        zero_points = zero_points[:-1]
    sums = r.node("Cast", node, r.node("MatMulInteger", node, a, b, *zero_points), to=1)
    y = r.node("Mul", node, sums, r.node("Mul", node, *scales), result=None if bias else result)
    return r.node("Add", node, y, bias, result=result) if bias else y


def _read_matmul(r: GraphBuilder, node):
    a, b, *scales = node.inputs[:4]
    _scaled_product(r, node, a, b, scales, [node.input(4), node.input(5)], node.input(6), node.output)


def _read_dynamic_matmul(r: GraphBuilder, node):
    """The first factor is quantized for its own range."""
    a, scale, zero_point = r.node("DynamicQuantizeLinear", node, node.inputs[0], outputs=3)
    scales, zero_points = [scale, node.inputs[2]], [zero_point, node.input(3)]
    _scaled_product(r, node, a, node.inputs[1], scales, zero_points, node.input(4), node.output)


def _read_attention(r: GraphBuilder, node):
    """Attention whose one projection is a product of integers."""
    refuse(node, "do_rotary", "past_present_share_buffer")
    x, w, b, *scales = node.inputs[:5]
    projected = _scaled_product(r, node, x, w, scales, [node.input(6), node.input(7)], b, None)
    project(r, node, projected, node.input(5), node.input(8), "")


def _read_embeddings(r: GraphBuilder, node):
    """Embeddings whose tables and whose norm's parameters are bytes, each with one scale and zero point."""

    def table(i, scale):
        if not node.input(i):
            return ""
        each = (r.node("Squeeze", node, node.inputs[k]) for k in (scale, scale + 5))
        return r.node("DequantizeLinear", node, node.inputs[i], *each)

    tables = [table(i, scale) for scale, i in enumerate(range(2, 7), 8)]
    outputs = node.outputs[:2]
    read_embeddings(r, Node(node.op, node.name, [*node.inputs[:2], *tables, node.input(7)], outputs, node.attrs))


def _read_lstm(r: GraphBuilder, node):
    """An LSTM whose inputs and states are quantized for their own range before they meet weights of int8."""
    w, recurrent = (moved(r, node, node.inputs[i], -1, -2) for i in (1, 2))  # directions, inputs, gates
    inputs = [node.inputs[0], w, recurrent, *(node.input(i) for i in range(3, 12))]
    r.add(Node("DynamicLSTM", node.name, inputs, node.outputs, node.attrs))


def _read_bits(r: GraphBuilder, node):
    """A product with weights of 4 or 8 bits in blocks."""
    a, q, scales, zero_points, order, bias = [*node.inputs, "", "", ""][:6]
    if node.attrs.get("weight_prepacked", 0):
        raise ValueError(
            f"{node.op} {node.name!r} has weights in an order of its own (weight_prepacked): export it without"
        )
    sizes = {name: node.attrs[name] for name in ("N", "K", "block_size")} | {"bits": node.attrs.get("bits", 4)}
    if node.attrs.get("accuracy_level", 0) == 4:
        sizes["accuracy_level"] = 4
    r.add(Node("MatMulBits", node.name, [a, q, scales, zero_points, bias, order], node.outputs, sizes))


def _plain(op):
    def read(r: GraphBuilder, node):
        r.add(Node(op, node.name, node.inputs, node.outputs, node.attrs))

    return Rewrite(read, (op,))


def _binary(op):
    return _by_reals(lambda r, node, a, b: r.node(op, node, a, b), 0, 3, scale=6)


def _unary(op, *attrs):
    return _by_reals(
        lambda r, node, x: onnx(r, op, node, x, **{k: node.attrs[k] for k in attrs if k in node.attrs}), 0, scale=3
    )


RECORDS = {
    f"com.microsoft.{name}": record
    for name, record in {
        "DequantizeLinear": _plain("DequantizeLinear"),
        "DynamicQuantizeLSTM": Rewrite(_read_lstm, ("DynamicLSTM",)),
        "DynamicQuantizeMatMul": Rewrite(_read_dynamic_matmul, ("DynamicQuantizeLinear", "MatMulInteger")),
        "MatMulIntegerToFloat": Rewrite(_read_matmul, ("MatMulInteger",)),
        "MatMulNBits": Rewrite(_read_bits, ("MatMulBits",)),
        "QAttention": Rewrite(_read_attention, ("MatMulInteger", "MatMul", "Softmax")),
        "QEmbedLayerNormalization": Rewrite(_read_embeddings, ("DequantizeLinear", "Gather", "LayerNormalization")),
        "QGemm": Rewrite(_read_gemm, ("DequantizeLinear", "Gemm", "QuantizeLinear")),
        "QLinearAdd": _binary("Add"),
        "QLinearAveragePool": _by_reals(_average, 0, scale=3),
        "QLinearConcat": Rewrite(_read_concat, ("DequantizeLinear", "Concat", "QuantizeLinear")),
        "QLinearConv": Rewrite(_read_conv, ("QLinearConv",)),
        "QLinearGlobalAveragePool": _by_reals(lambda r, node, x: r.node("GlobalAveragePool", node, x), 0, scale=3),
        "QLinearLeakyRelu": _unary("LeakyRelu", "alpha"),
        "QLinearMul": _binary("Mul"),
        "QLinearReduceMean": _by_reals(_mean, 0, scale=3),
        "QLinearSigmoid": _unary("Sigmoid"),
        "QLinearSoftmax": _by_reals(_softmax, 0, scale=3),
        "QLinearWhere": Rewrite(_read_where, ("DequantizeLinear", "Where", "QuantizeLinear")),
        "QuantizeLinear": _plain("QuantizeLinear"),
    }.items()
}
