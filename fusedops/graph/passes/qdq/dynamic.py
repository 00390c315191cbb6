"""Layers that quantize floats as they come: DynamicQuantizeLinear, an integer product, a cast and products with the
scales become one layer."""

import numpy as np

from ...ir.dtypes import INT8
from ...ir.graph import Node
from ...operators.qlinear import as_int8
from .quantized_values import drop, set_known
from .qweights import Weights, float_gain, is_depthwise, too_long


def _of_dynamic(context, node):
    """The DynamicQuantizeLinear whose integers and zero point a node reads first, or None."""
    maker = context.producers.get(node.inputs[0])
    found = maker is not None and maker.op == "DynamicQuantizeLinear" and node.inputs[0] == maker.outputs[0]
    return maker if found and node.input(2) == maker.outputs[2] else None


def requantize(context, node):
    """dequantize(quantize(x)) by x's own range, in one pass."""
    maker = _of_dynamic(context, node)
    if maker is None or maker.attrs.get("each") or node.inputs[1] != maker.outputs[1]:
        return
    before, node.op, node.inputs, node.attrs = node.inputs, "DynamicRequantize", [maker.inputs[0]], {}
    context.reads_instead(node, before)
    drop(context, before[0])
    context.fused([maker], node, passes=2)


def form(context, node):
    """Makes a layer of an integer product of int8 by the range of x, a cast and products with the scales."""
    maker, conv = _of_dynamic(context, node), node.op == "ConvInteger"
    found = _product(context, node, maker)
    if isinstance(found, str):
        return context.refused(node, found)
    given, row, bias = found
    before, why = node.inputs, _why_floats(context, node, given)
    bias = "" if bias is None else context.add_constant(f"{node.name}.bias", bias)
    if why:
        _as_floats(context, node, maker, given, bias)
        context.refused(node, f"its sums are those of floats: {why}")
    else:
        arrays = ("int8", np.ascontiguousarray(given.w if conv else given.w.T)), ("scale", given.scale)
        w, scale = (context.add_constant(f"{before[1]}.{kind}", a) for kind, a in arrays)
        node.op, node.attrs = ("QuantizedConv", node.attrs) if conv else ("QuantizedLinear", dict(maker.attrs))
        node.attrs = node.attrs | ({} if given.zero is None else {"w_zero": given.zero})
        node.inputs = [maker.inputs[0], w, bias, scale]
    context.reads_instead(node, before)
    read = [v for each in row for v in each.inputs if v != node.output]
    context.merge(row, node)
    for v in (*read, *before):
        drop(context, v)
    context.fused([maker, *row], node, passes=4, per_element=2)
    return None


def _product(context, node, maker):
    """(the Weights of an integer product, the nodes that make floats of its sums, the bias among them or None), or why
    there is none."""
    conv, q, zero = node.op == "ConvInteger", context.graph.constant(node, 1), context.graph.constant(node, 3)
    if maker is None or q is None or q.dtype not in INT8 or node.input(3) and zero is None or not conv and q.ndim != 2:
        return "its input is not quantized by its own range, or its weights are not constant"
    n = q.shape[0 if conv else 1]
    row, scale, bias = _scaled(context, node, maker.outputs[1], (n, *[1] * (q.ndim - 2)) if conv else (n,))
    if row is None or zero is not None and zero.size not in (1, n):
        return "its sums are not scaled by the scales of its input and its weights"
    w, zero = as_int8(q, zero, 0 if conv else 1)
    return Weights(w, scale, zero), row, bias


def _as_floats(context, node, maker, given, bias):
    """The operator of floats, on x as it is in int8; without the readers of its inputs. Rows of a range each, which are
    weights of int8 in a TFLite file, stay what they are."""
    conv, x = node.op == "ConvInteger", maker.inputs[0]
    each = (-1, *[1] * (given.w.ndim - 1)) if conv else (1, -1)
    w = given.w.astype(np.float32) - (0 if given.zero is None else given.zero.reshape(each).astype(np.float32))
    if not maker.attrs.get("each"):
        x = context.fresh(f"{x}.requantized")
        set_known(context, x, maker.inputs[0], np.dtype(np.float32))
        context.add(Node("DynamicRequantize", context.fresh(maker.name), [maker.inputs[0]], [x]), maker)
    w = context.add_constant(f"{node.inputs[1]}.real", w * given.scale.reshape(each))
    node.op, node.inputs = "Conv" if conv else "MatMul", [x, w, bias] if bias else [x, w]


def _why_floats(context, node, given):
    """Why a product of integers by Weights is computed in float32; "" where it is not."""
    w = given.w
    if given.scale.min(initial=1) < np.finfo(np.float32).tiny:
        return "a scale is not positive"
    if node.op == "MatMulInteger" or too_long(given):
        return too_long(given)
    if w.ndim > 4:
        return f"convolutions of {w.ndim - 2} axes have no kernel of int8"
    if is_depthwise(node, w):
        return "a depthwise convolution from floats to floats gains nothing from int8"
    gain = float_gain(context, node, w.shape)
    return f"float32 is predicted {gain:.2f} times as fast here, conversions counted" if gain else ""


def _scaled(context, node, x_scale, shape):
    """(nodes after integer sums that make floats of them, the scale of each output channel, the bias among them or
    None), or Nones."""
    row, reader, bias = _with_bias(context, node, x_scale, shape)
    if reader is None or reader.op != "Cast" or context.known.get(reader.output, ((), None))[1] != np.float32:
        return None, None, None
    scale, wanted = np.ones(1, np.float32), True
    while wanted:
        row, value = [*row, reader], reader.output
        reader = _only_reader(context, value)
        found = _factors(context, reader, value, x_scale) if reader is not None and reader.op == "Mul" else None
        if found is None or not all(_is_each(c, shape) for c in found[1]):
            return None, None, None
        wanted = not found[0]
        for c in found[1]:
            scale = scale * c.reshape(-1)
    scale = np.ascontiguousarray(np.broadcast_to(scale, shape[:1]), np.float32)
    if bias and not np.array_equal(np.broadcast_to(bias[1], shape[:1]), scale):
        return None, None, None
    return [*row, reader], scale, bias and bias[0]


def _is_each(c, shape):
    """Whether a constant has one value, or one for each channel."""
    return c.size <= 1 or c.shape == shape or c.shape[-len(shape) :] == shape


def _with_bias(context, node, x_scale, shape):
    """(the addition of a bias of integers in a list, what reads the sums with it, the bias and the scale of the
    weights), or of other sums ([], what reads them, None)."""
    reader = _only_reader(context, node.output)
    if reader is None or reader.op != "Add" or node.op != "ConvInteger":
        return [], reader, None
    bias = _integer_bias(context, next((v for v in reader.inputs if v != node.output), ""), x_scale, shape)
    return ([reader], _only_reader(context, reader.output), bias) if bias else ([], None, None)


def _only_reader(context, value):
    readers = context.consumers.get(value, ())
    return readers[0] if value not in context.graph.results and len(readers) == 1 else None


def _integer_bias(context, value, x_scale, shape):
    """(a bias, the scale of the weights) of integers that are floor(bias / (x_scale * scale)); None where they are
    something else. As floats it is added without rounding, at most a unit of the sums away."""
    divided = _divided(context, value) if context.shape(value) in (shape, (1, *shape)) else None
    bias, by = (None, None) if divided is None else (context.graph.constants.get(divided[0]), divided[1])
    if bias is None or bias.dtype != np.float32 or bias.size != shape[0] or by is None or x_scale not in by.inputs:
        return None
    found = _factors(context, by, x_scale, x_scale) if by.op == "Mul" else None
    if found is None or len(found[1]) != 1 or found[1][0].size not in (1, shape[0]):
        return None
    return np.ascontiguousarray(bias.reshape(-1)), found[1][0].reshape(-1)


def _divided(context, value):
    """(x, the node of y) of a value that is floor(x / y) as integers, perhaps in another shape; else None."""
    node = context.producers.get(value)
    for op in "Reshape", "Cast", "Floor":
        if node is not None and node.op == op:
            node = context.producers.get(node.inputs[0])
        elif op != "Reshape":
            return None
    return (node.inputs[0], context.producers.get(node.inputs[1])) if node is not None and node.op == "Div" else None


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
