"""Layers in int8: products of uint8 or int8 values by int8 weights become QuantizedConv and QuantizedLinear, whose
results are floats. The passes behind take these as any other layer, and put scales, biases, residuals and activations
into them."""

import numpy as np

from .... import _core
from ...inference import cost
from ...ir.dtypes import INT8
from ...ir.graph import Node
from . import normalize
from .quantized_values import drop, set_known, source_of

QUANTIZED = "QuantizeLinear", "DequantizeLinear", "QLinearConv", "QLinearMatMul", "ConvInteger", "MatMulInteger"


def run(context):
    normalize.run(context)
    for node in context.nodes():
        if node.op in _FORMS:
            _form(context, node)
        elif node.op in ("ConvInteger", "MatMulInteger"):
            _form_dynamic(context, node)
        elif node.op == "DequantizeLinear":
            _requantize(context, node)


# ---- layers of quantised inputs


def _weights(context, value, axis):
    """(int8 weights, their node, a scale for each point of an axis), or why there are none."""
    node = context.producers.get(value)
    if node is None or node.op != "DequantizeLinear":
        return "its weights are floats"
    q, scale, zero = (context.graph.constant(node, i) for i in range(3))
    if q is None or scale is None or node.input(2) and zero is None:
        return "its weights are not constant"
    if q.dtype not in INT8 or scale.dtype != np.float32:
        return f"its weights have type {q.dtype}, with scales of {scale.dtype}"
    if node.attrs.get("block_size", 0):
        return "its weights have a scale a block"
    if axis >= q.ndim:
        return "its weights are not one matrix"
    if scale.size > 1 and node.attrs.get("axis", 1) % q.ndim != axis:
        return "its weights have scales for another axis than that of its output channels"
    shape = [-1 if a == axis else 1 for a in range(q.ndim)]
    each = np.broadcast_to(scale.reshape(-1), q.shape[axis])
    w = q.astype(np.int16) - (0 if zero is None else np.broadcast_to(zero.reshape(-1), q.shape[axis]).reshape(shape))
    if w.size and (w.min() < -128 or w.max() > 127):
        return "its weights are not symmetric: less their zero points they do not fit int8"
    if not _positive(each):
        return "a scale of its weights is not positive"
    if w.size // max(q.shape[axis], 1) > _core.BYTE_STEPS:
        return f"its sums have more than {_core.BYTE_STEPS} products"
    return w.astype(np.int8), node, np.ascontiguousarray(each)


def _positive(scales):
    """Whether all are normal numbers above 0."""
    return np.all((scales >= np.finfo(np.float32).tiny) & np.isfinite(scales))


def _bias(context, value, n):
    """A constant bias as n floats; None where it is something else."""
    known = context.known.get(value)
    a = context.graph.constants.get(value, None if known is None else known.data)
    made = context.producers.get(value)
    if a is None and made is not None and made.op == "DequantizeLinear" and made.inputs[0] in context.graph.constants:
        q, scale, zero = (context.graph.constant(made, i) for i in range(3))
        a = (
            None
            if scale is None or made.input(2) and zero is None
            else (q.astype(np.int64) - (0 if zero is None else zero)).astype(np.float32) * scale
        )
    if a is None or a.dtype != np.float32 or not (a.size == 1 or a.size == n == a.shape[-1]):
        return None
    return np.ascontiguousarray(np.broadcast_to(a.reshape(-1), (n,)))


def _conv(context, node):
    return _weights(context, node.inputs[1], 0), 1.0, 1.0


def _matmul(context, node):
    return _as_rows(_weights(context, node.inputs[1], 1)), 1.0, 1.0


def _gemm(context, node):
    alpha, beta, rows = node.attrs.get("alpha", 1.0), node.attrs.get("beta", 1.0), node.attrs.get("transB", 0)
    if node.attrs.get("transA", 0):
        return "its input is transposed", alpha, beta
    if alpha <= 0:
        return f"its result is scaled by {alpha}", alpha, beta
    found = _weights(context, node.inputs[1], 0 if rows else 1)
    return found if rows else _as_rows(found), alpha, beta


def _as_rows(found):
    """Weights (k, n) as (n, k)."""
    if isinstance(found, str):
        return found
    w, node, scale = found
    return (np.ascontiguousarray(w.T), node, scale) if w.ndim == 2 else "its weights are not one matrix"


_FORMS = {"Conv": _conv, "MatMul": _matmul, "Gemm": _gemm}


def _form(context, node):
    """Makes a layer of 8 bits of a layer whose input and weights are bytes, or tells why not."""
    source, (weights, alpha, beta) = source_of(context, node.inputs[0]), _FORMS[node.op](context, node)
    bytes_here = any(getattr(context.producers.get(v), "op", "") == "DequantizeLinear" for v in node.inputs[:2])
    if isinstance(source, str) or isinstance(weights, str):
        return context.refused(node, source if isinstance(source, str) else weights) if bytes_here else None
    w, made, scale = weights
    bias = _bias(context, node.input(2), len(w)) if node.input(2) else None
    if node.input(2) and bias is None:
        return context.refused(node, "its bias is not a constant for each output channel")
    name, before = made.inputs[0], node.inputs
    scale = scale if alpha == 1 else (scale.astype(np.float64) * alpha).astype(np.float32)
    if not _positive(scale):
        return context.refused(node, f"its weights' scales times alpha, {alpha}, are not positive")
    if gain := _float_gain(context, node, w.shape):
        return context.refused(node, f"float32 is predicted {gain:.2f} times as fast here, conversions counted")
    bias = bias if bias is None or beta == 1 else (bias.astype(np.float64) * beta).astype(np.float32)
    node.inputs = [
        source.value,
        context.add_constant(f"{name}.int8", w),
        "" if bias is None else context.add_constant(f"{node.name}.bias", bias),
        context.add_constant(f"{name}.scale", scale),
    ]
    conv = node.op == "Conv"
    node.op, node.attrs = "QuantizedConv" if conv else "QuantizedLinear", _kept(node, conv)
    node.attrs = node.attrs | {"x_q": source.q}
    context.reads_instead(node, before)
    for v in before:
        drop(context, v)
    context.fused([source.node, made], node, passes=2, per_element=2, value=before[0])
    return None


def _float_gain(context, node, w):
    """How many times as fast a layer with weights of this shape is predicted to be in float32; 0 where it is not, or
    where shapes are not known."""
    x, y = context.shape(node.inputs[0]), context.shape(node.output)
    if x is None or y is None or not all((*x, *y)) or "Conv" in node.op and len(x) > 4 or _core.has_dot_product():
        return 0  # with a dot product of bytes no layer is faster in float32
    gain = cost.unquantized(node, x, y, w)
    return gain if gain > 1 else 0


def _kept(node, conv):
    """The attributes that a layer of 8 bits has of its node."""
    return node.attrs if conv else {name: node.attrs[name] for name in ("nudge",) if name in node.attrs}


# ---- layers that quantise floats as they come


def _of_dynamic(context, node):
    """The DynamicQuantizeLinear whose bytes and zero point a node reads first, or None."""
    maker = context.producers.get(node.inputs[0])
    found = maker is not None and maker.op == "DynamicQuantizeLinear" and node.inputs[0] == maker.outputs[0]
    return maker if found and node.input(2) == maker.outputs[2] else None


def _requantize(context, node):
    """dequantize(quantize(x)) by x's own range, in one pass."""
    maker = _of_dynamic(context, node)
    if maker is None or node.inputs[1] != maker.outputs[1]:
        return
    before, node.op, node.inputs, node.attrs = node.inputs, "DynamicRequantize", [maker.inputs[0]], {}
    context.reads_instead(node, before)
    drop(context, before[0])
    context.fused([maker], node, passes=2)


def _form_dynamic(context, node):
    """Makes a layer of an integer product of bytes by the range of x, a cast and products with the scales."""
    maker, conv = _of_dynamic(context, node), node.op == "ConvInteger"
    q, zero = context.graph.constant(node, 1), context.graph.constant(node, 3)
    if maker is None or q is None or q.dtype not in INT8 or not conv and q.ndim != 2 or node.input(3) and zero is None:
        return context.refused(node, "its input is not quantised by its own range, or its weights are not constant")
    n = q.shape[0 if conv else 1]
    row, scale = _scaled(context, node, maker.outputs[1], (n, *[1] * (q.ndim - 2)) if conv else (n,))
    each = (-1, *[1] * (q.ndim - 1)) if conv else (1, -1)
    if row is None or zero is not None and zero.size not in (1, n):
        return context.refused(node, "its sums are not scaled by the scales of its input and its weights")
    w = q.astype(np.int16) - (0 if zero is None else zero.astype(np.int16).reshape(-1).reshape(each))
    before, x, why = node.inputs, maker.inputs[0], _why_floats(context, node, w, scale)
    if why:
        w = w.astype(np.float32) * scale.reshape(each)
        x = context.fresh(f"{x}.requantized")
        set_known(context, x, maker.inputs[0], np.dtype(np.float32))
        context.add(Node("DynamicRequantize", context.fresh(maker.name), [maker.inputs[0]], [x]), maker)
        node.op, node.inputs = "Conv" if conv else "MatMul", [x, context.add_constant(f"{before[1]}.real", w)]
        context.refused(node, f"its sums are those of floats: {why}")
    else:
        given = np.ascontiguousarray((w if conv else w.T).astype(np.int8)), scale
        w, scale = (
            context.add_constant(f"{before[1]}.{kind}", a) for kind, a in zip(("int8", "scale"), given, strict=True)
        )
        node.op, node.attrs = ("QuantizedConv", node.attrs) if conv else ("QuantizedLinear", {})
        node.inputs = [x, w, "", scale]
    context.reads_instead(node, before)
    read = [v for each in row for v in each.inputs if v != node.output]
    context.merge(row, node)
    for v in (*read, *before):
        drop(context, v)
    context.fused([maker, *row], node, passes=4, per_element=2)
    return None


def _why_floats(context, node, w, scale):
    """Why a product of integers w, less their zero points, is computed in float32; "" where it is not."""
    if w.size and (w.min() < -128 or w.max() > 127):
        return "its weights less their zero points do not fit int8"
    if scale.min(initial=1) < np.finfo(np.float32).tiny:
        return "a scale is not positive"
    if w.size // max(len(scale), 1) > _core.BYTE_STEPS:
        return f"they have more than {_core.BYTE_STEPS} products"
    if node.op == "MatMulInteger":
        return ""
    if w.ndim > 4:
        return f"convolutions of {w.ndim - 2} axes have no kernel of bytes"
    if w.shape[1] == 1 and node.attrs.get("group", 1) == len(w) > 1:
        return "a depthwise convolution from floats to floats gains nothing from bytes"
    gain = _float_gain(context, node, w.shape)
    return f"float32 is predicted {gain:.2f} times as fast here, conversions counted" if gain else ""


def _scaled(context, node, x_scale, shape):
    """(nodes behind integer sums that make floats of them, the scale of each output channel), or (None, None)."""
    row, scale, value, wanted = [], np.ones(1, np.float32), node.output, True
    while value not in context.graph.results and len(readers := context.consumers.get(value, ())) == 1:
        behind = readers[0]
        if not row:
            if behind.op != "Cast" or context.known.get(behind.output, ((), None))[1] != np.float32:
                break
        else:
            found = _factors(context, behind, value, x_scale) if behind.op == "Mul" and wanted else None
            if found is None or any(
                np.shape(c) != () and c.size > 1 and c.shape[-len(shape) :] != shape and c.shape != shape
                for c in found[1]
            ):
                break
            wanted = wanted and not found[0]
            for c in found[1]:
                scale = scale * c.reshape(-1)
        row.append(behind)
        value = behind.output
        if not wanted:
            return row, np.ascontiguousarray(np.broadcast_to(scale, shape[:1]), np.float32)
    return None, None


def _factors(context, node, value, x_scale):
    """(whether the scale of x is among them, the constants) that a Mul multiplies a value by; None where there is
    something else."""
    others = [v for v in node.inputs if v != value]
    inner = context.producers.get(others[0]) if len(others) == 1 else None
    if inner is not None and inner.op == "Mul" and x_scale in inner.inputs:
        others = inner.inputs
    constants = [context.graph.constants.get(v) for v in others if v != x_scale]
    if not others or any(c is None or c.dtype != np.float32 for c in constants):
        return None
    return x_scale in others, constants
