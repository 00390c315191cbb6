"""Layers in int8: products of uint8 or int8 values by int8 or uint8 weights become QuantizedConv and QuantizedLinear,
whose results are floats. Later passes take these as any other layer, and put scales, biases, residuals and
activations into them."""

import numpy as np

from . import dynamic, normalize
from .quantized_values import drop, source_of
from .qweights import float_gain, positive, weights, why_float_depthwise


def run(context):
    normalize.run(context)
    for node in context.nodes():
        if node.op in _FORMS:
            _form(context, node)
        elif node.op in ("ConvInteger", "MatMulInteger"):
            dynamic.form(context, node)
        elif node.op == "DequantizeLinear":
            dynamic.requantize(context, node)


# ---- layers of quantized inputs


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
    return weights(context, node.inputs[1], 0), 1.0, 1.0


def _matmul(context, node):
    return _as_rows(weights(context, node.inputs[1], 1)), 1.0, 1.0


def _gemm(context, node):
    alpha, beta, rows = node.attrs.get("alpha", 1.0), node.attrs.get("beta", 1.0), node.attrs.get("transB", 0)
    if node.attrs.get("transA", 0):
        return "its input is transposed", alpha, beta
    if alpha <= 0:
        return f"its result is scaled by {alpha}", alpha, beta
    found = weights(context, node.inputs[1], 0 if rows else 1)
    return found if rows else _as_rows(found), alpha, beta


def _as_rows(found):
    """Weights (k, n) as (n, k)."""
    if isinstance(found, str):
        return found
    return found._replace(w=np.ascontiguousarray(found.w.T)) if found.w.ndim == 2 else "its weights are not one matrix"


_FORMS = {"Conv": _conv, "MatMul": _matmul, "Gemm": _gemm}


def _form(context, node):
    """Makes a layer of int8 of a layer whose input and weights are int8, or tells why not."""
    source, (found, alpha, beta) = source_of(context, node.inputs[0]), _FORMS[node.op](context, node)
    is_int8 = any(getattr(context.producers.get(v), "op", "") == "DequantizeLinear" for v in node.inputs[:2])
    if isinstance(source, str) or isinstance(found, str):
        return context.refused(node, source if isinstance(source, str) else found) if is_int8 else None
    w, scale, zero, made = found
    if alpha != 1:
        scale = (scale.astype(np.float64) * alpha).astype(np.float32)
    if why := why_float_depthwise(context, node, found):
        return context.refused(node, why)
    bias = _bias(context, node.input(2), len(w)) if node.input(2) else None
    if node.input(2) and bias is None:
        return context.refused(node, "its bias is not a constant for each output channel")
    name, before = made.inputs[0], node.inputs
    if not positive(scale):
        return context.refused(node, f"its weights' scales times alpha, {alpha}, are not positive")
    if gain := float_gain(context, node, w.shape):
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
    node.attrs = node.attrs | {"x_q": source.q} | ({} if zero is None else {"w_zero": zero})
    context.reads_instead(node, before)
    for v in before:
        drop(context, v)
    context.fused([source.node, made], node, passes=2, per_element=2, value=before[0])
    return None


def _kept(node, conv):
    """The attributes that a layer of int8 has of its node."""
    return node.attrs if conv else {name: node.attrs[name] for name in ("nudge", "nudge_in_bias") if name in node.attrs}
