"""Layers of 8 bits: one operator on bytes where exporters write DequantizeLinear, one of floats and QuantizeLinear.

`layers` comes first: operators of quantised values are spelled out, DequantizeLinear moves down and QuantizeLinear up
through what only moves elements, equal pairs cancel, and products of bytes by int8 weights become QuantizedConv and
QuantizedLinear, whose results are floats. The passes between take these as any other layer, and put scales, biases,
residuals and activations into them. `results` comes last: QuantizeLinear goes into the layer before it, what follows
from one byte becomes a table of 256, and sums, products and means of bytes an operator on bytes.
"""

from typing import NamedTuple

import numpy as np

from .... import _core, activations
from ...inference import cost
from ...inference.evaluate import evaluate
from ...ir.graph import Known, Node
from ...operators.qlinear import quantization
from ...operators.registry import OPERATORS, carried
from ...operators.schema import BYTES, axes_of

QUANTIZED = "QuantizeLinear", "DequantizeLinear", "QLinearConv", "QLinearMatMul", "ConvInteger", "MatMulInteger"


class Source(NamedTuple):
    """What a DequantizeLinear reads: bytes of a type and their quantisation."""

    node: Node
    value: str
    q: tuple
    dtype: np.dtype


def layers(context):
    for node in context.nodes():
        if node.op in ("QLinearConv", "QLinearMatMul"):
            _spell_out(context, node)
        elif node.op == "ReduceMean" and not node.attrs.get("keepdims", 1):
            _keep_axes(context, node)
    for node in context.nodes():
        _share(context, node)
        _sink(context, node)
    for node in context.nodes(reverse=True):
        _lift(context, node)
    for node in context.nodes():
        _cancel(context, node)
    for node in context.nodes():
        if node.op in _FORMS:
            _form(context, node)
        elif node.op in ("ConvInteger", "MatMulInteger"):
            _form_dynamic(context, node)
        elif node.op == "DequantizeLinear":
            _requantize(context, node)


def results(context):
    for node in context.nodes():
        if node.op in ("QuantizedConv", "QuantizedLinear") and node.residual:
            _residual(context, node)
    for node in context.nodes(reverse=True):
        if node.op == "QuantizeLinear":
            _store(context, node)
    for node in context.nodes():
        if node.op in ("DequantizeLinear", "QuantizeLinear"):
            _explain(context, node)


# ---- what is known of bytes


def _source(context, value):
    """The Source of a float value, or why it is none."""
    node = context.producers.get(value)
    if node is None or node.op != "DequantizeLinear":
        return "it takes floats"
    zero, known = context.graph.constant(node, 2), context.known.get(node.inputs[0])
    dtype = known.dtype if zero is None and known is not None else None if zero is None else zero.dtype
    if dtype not in BYTES:
        return f"its input has type {dtype}, not uint8 or int8"
    if node.input(2) and zero is None:
        return "the zero point of its input is not constant"
    q = quantization(context.graph.constant(node, 1), zero)
    return f"of its input, {q}" if isinstance(q, str) else Source(node, node.inputs[0], q, dtype)


def _target(context, node):
    """(quantisation, type) of a QuantizeLinear, or why it has none."""
    zero = context.graph.constant(node, 2)
    if node.input(2) and zero is None:
        return "its zero point is not constant"
    dtype = context.known[node.output].dtype if node.output in context.known else None if zero is None else zero.dtype
    if dtype not in BYTES:
        return f"its result has type {dtype}, not uint8 or int8"
    q = quantization(context.graph.constant(node, 1), zero)
    return q if isinstance(q, str) else (q, dtype)


def _drop(context, value):
    """Removes the node of a value that nothing reads any more, and those that were there for it alone."""
    node = context.producers.get(value)
    if node is None or node not in context.place:
        return
    if not any(context.consumers.get(v) or v in context.graph.results for v in node.outputs if v):
        context.remove(node)
        for v in node.reads():
            _drop(context, v)


def _known(context, value, like, dtype):
    known = context.known.get(like)
    if known is not None:
        context.known[value] = Known(known.shape, dtype)


# ---- QDQ form


def _spell_out(context, node):
    """An operator of ONNX on quantised values as that of floats between DequantizeLinear and QuantizeLinear."""
    graph, conv = context.graph, node.op == "QLinearConv"
    x, xs, xz, w, ws, wz, ys, yz = node.inputs[:8]
    scales = [graph.constants.get(v) for v in (xs, ys, ws)]
    if any(a is None or a.dtype != np.float32 for a in scales) or any(a.size != 1 for a in scales[:2]):
        return
    if scales[2].ndim > 1:
        return
    before, y = node.inputs, node.output

    def dequantized(v, *given, **attrs):
        result = context.fresh(f"{v}.real")
        added = Node("DequantizeLinear", f"{node.name}.{v}", [v, *given], [result], attrs)
        context.add(added, node)
        context.place[added] -= 0.5
        _known(context, result, v, np.dtype(np.float32))
        return result

    ndim = np.ndim(graph.constants[w]) if w in graph.constants else len(context.shape(w) or ())
    inputs = [dequantized(x, xs, xz), dequantized(w, ws, wz, axis=0 if conv else ndim - 1)]
    if node.input(8):
        scale = scales[0].reshape(()) * scales[2]
        inputs.append(dequantized(node.input(8), context.add_constant(f"{node.name}.bias.scale", scale), axis=0))
    node.op, node.inputs = "Conv" if conv else "MatMul", inputs
    context.reads_instead(node, before)
    context.produce(node, [context.fresh(f"{y}.real")])
    _known(context, node.output, y, np.dtype(np.float32))
    context.add(Node("QuantizeLinear", f"{node.name}.quantized", [node.output, ys, yz], [y]), node)


def _keep_axes(context, node):
    """A mean of bytes with its axes, which leave behind it: as bytes, where it becomes those."""
    axes, shape = context.graph.constant(node, 1), context.shape(node.inputs[0])
    if isinstance(_source(context, node.inputs[0]), str) or axes is None or not axes.size or shape is None:
        return
    y, node.attrs = node.output, node.attrs | {"keepdims": 1}
    context.produce(node, [context.fresh(f"{y}.kept")])
    over = axes_of(axes.reshape(-1), len(shape))
    context.known[node.output] = Known(tuple(1 if a in over else n for a, n in enumerate(shape)), np.dtype(np.float32))
    context.add(Node("Squeeze", context.fresh(f"{node.name}.squeezed"), [node.output, node.inputs[1]], [y]), node)


def _share(context, node):
    """Of two equal conversions of one value the first is kept."""
    if node.op not in ("DequantizeLinear", "QuantizeLinear"):
        return
    if node.output in context.graph.results:
        return
    for other in list(context.consumers.get(node.inputs[0], ())):
        later = context.place[other] > context.place[node]
        if later and other.output not in context.graph.results and _alike(context, node, other):
            context.rename(other.output, node.output)
            context.remove(other)


def _alike(context, a, b):
    """Whether two conversions are the same."""
    if a.op != b.op or a.attrs != b.attrs:
        return False
    pairs = [(context.graph.constant(a, i), context.graph.constant(b, i)) for i in (1, 2)]
    given = len([v for v in a.inputs if v]) == len([v for v in b.inputs if v])
    return given and all(
        p is q or p is not None and q is not None and p.dtype == q.dtype and np.array_equal(p, q) for p, q in pairs
    )


def _sink(context, node):
    """op(dequantize(x)) = dequantize(op(x)) of an operator that only moves elements."""
    where = carried(node)
    if where is None or not node.inputs[where]:
        return
    if node.op == "Transpose" and _sink_weights(context, node):
        return
    sources = [_source(context, v) for v in node.inputs[where]]
    if any(isinstance(s, str) for s in sources) or any(
        s.q != sources[0].q or s.dtype != sources[0].dtype for s in sources
    ):
        return
    first, before = sources[0], node.inputs
    inputs = list(before)
    inputs[where] = [s.value for s in sources]
    if node.op == "Pad" and (inputs := _padded(context, node, inputs, first)) is None:
        return
    node.inputs = inputs
    context.reads_instead(node, before)
    for v in before[where]:
        _drop(context, v)
    results = node.outputs
    context.produce(node, [v and context.fresh(f"{v}.bytes") for v in results])
    for old, new in zip(results, node.outputs, strict=True):
        if old:
            _known(context, new, old, first.dtype)
            context.add(
                Node(
                    "DequantizeLinear",
                    context.fresh(f"{node.name}.dequantized"),
                    [new, *first.node.inputs[1:]],
                    [old],
                    dict(first.node.attrs),
                ),
                node,
            )


def _padded(context, node, inputs, source):
    """The inputs of a Pad of bytes, which pads with the zero point; None where it pads with something else than 0."""
    value = context.graph.constant(node, 2)
    if node.attrs.get("mode", "constant") != "constant":
        return inputs
    if node.input(2) and (value is None or value.size and value.item() != 0):
        return None
    zero = context.add_constant(f"{node.name}.zero", np.array(source.q[1], source.dtype))
    return [*inputs[:2], zero, *inputs[3:]]


def _sink_weights(context, node):
    """A transposition of constant weights; their scales follow the axis."""
    made = context.producers.get(node.inputs[0])
    w = context.graph.constant(made, 0) if made is not None and made.op == "DequantizeLinear" else None
    if w is None or made.attrs.get("block_size", 0):
        return False
    perm = list(node.attrs.get("perm") or range(w.ndim)[::-1])
    moved = context.add_constant(f"{made.inputs[0]}.transposed", np.ascontiguousarray(w.transpose(perm)))
    before = node.inputs
    node.op, node.inputs = "DequantizeLinear", [moved, *made.inputs[1:]]
    node.attrs = made.attrs | {"axis": perm.index(made.attrs.get("axis", 1) % w.ndim)}
    context.reads_instead(node, before)
    _drop(context, before[0])
    return True


def _lift(context, node):
    """quantize(op(x)) = op(quantize(x)) of an operator that only moves elements, where its inputs are as few."""
    found = _target(context, node) if node.op == "QuantizeLinear" else ""
    into = context.producers.get(node.inputs[0]) if not isinstance(found, str) else None
    where = carried(into) if into is not None else None
    if where is None or into.op == "Pad" or len(into.outputs) > 1 or into.output in context.graph.results:
        return
    sources = into.inputs[where]
    few = into.op == "MaxPool" or sum(map(context.size, sources)) <= context.size(into.output)
    if len(context.consumers[into.output]) > 1 or not few or any(v in context.graph.constants for v in sources):
        return
    before, inputs, added = into.inputs, list(into.inputs), []
    for v in sources:
        q = Node(
            "QuantizeLinear",
            context.fresh(f"{node.name}.{v}"),
            [v, *node.inputs[1:]],
            [context.fresh(f"{v}.bytes")],
            dict(node.attrs),
        )
        context.add(q, into)
        context.place[q] -= 0.5
        _known(context, q.output, v, found[1])
        added.append(q)
    inputs[where] = [q.output for q in added]
    into.inputs = inputs
    context.reads_instead(into, before)
    context.merge([node], into)
    for q in added:
        _lift(context, q)


def _cancel(context, node):
    """quantize(dequantize(x)) = x of equal quantisations."""
    found = _target(context, node) if node.op == "QuantizeLinear" else ""
    source = _source(context, node.inputs[0]) if not isinstance(found, str) else ""
    if isinstance(source, str) or found != (source.q, source.dtype):
        return
    context.rename(node.output, source.value)
    context.remove(node)
    _drop(context, node.inputs[0])


# ---- layers


def _weights(context, value, axis):
    """(int8 weights, their node, a scale for each point of an axis), or why there are none."""
    node = context.producers.get(value)
    if node is None or node.op != "DequantizeLinear":
        return "its weights are floats"
    q, scale, zero = (context.graph.constant(node, i) for i in range(3))
    if q is None or scale is None or node.input(2) and zero is None:
        return "its weights are not constant"
    if q.dtype not in BYTES or scale.dtype != np.float32:
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
    source, (weights, alpha, beta) = _source(context, node.inputs[0]), _FORMS[node.op](context, node)
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
    node.op, node.attrs = "QuantizedConv" if conv else "QuantizedLinear", (node.attrs if conv else {})
    node.attrs = node.attrs | {"x_q": source.q}
    context.reads_instead(node, before)
    for v in before:
        _drop(context, v)
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
    _drop(context, before[0])
    context.fused([maker], node, passes=2)


def _form_dynamic(context, node):
    """Makes a layer of an integer product of bytes by the range of x, a cast and products with the scales."""
    maker, conv = _of_dynamic(context, node), node.op == "ConvInteger"
    q, zero = context.graph.constant(node, 1), context.graph.constant(node, 3)
    if maker is None or q is None or q.dtype not in BYTES or not conv and q.ndim != 2 or node.input(3) and zero is None:
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
        _known(context, x, maker.inputs[0], np.dtype(np.float32))
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
        _drop(context, v)
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


# ---- results


def _residual(context, node):
    """Bytes in the place of a residual that is dequantised for this alone."""
    source = _source(context, node.residual)
    if isinstance(source, str):
        return
    before = node.residual
    context.consumers[before].remove(node)
    context.add_residual(node, source.value)
    node.attrs["residual_q"] = source.q
    _drop(context, before)
    context.fused([source.node], node, passes=2, per_element=2, value=before)


def _store(context, node):
    """quantize(layer) as the layer's own last step."""
    found, into = _target(context, node), context.producers.get(node.inputs[0])
    if isinstance(found, str):
        return context.refused(node, found)
    if into is None or _lookup(context, node, found[1]):
        return None
    if into.op in ("QuantizedConv", "QuantizedLinear"):
        why = ""
    elif OPERATORS[into.op].on_bytes:
        why = (_mean if "Pool" in OPERATORS[into.op].on_bytes else _pair)(context, into)
    else:
        return None
    if not why and (into.output in context.graph.results or len(context.consumers[node.inputs[0]]) > 1):
        why = f"the result of {into.op} {into.name} is read as floats too"
    if why:
        return context.refused(node, why)
    if OPERATORS[into.op].on_bytes:
        _on_bytes(context, into)
    into.attrs["y_q"], into.attrs["y_type"] = found[0], str(found[1])
    value = node.inputs[0]
    context.merge([node], into)
    context.fused([node], into, passes=2, per_element=2, value=value)
    return None


def _lookup(context, node, dtype):
    """A table in the place of all nodes through which one byte alone decides on another."""
    wanted, members, best = {node.inputs[0]}, [], None
    while len(members) < _LONGEST:
        made = [p for v in wanted if (p := context.producers.get(v)) is not None]
        if len(wanted) == 1:
            (value,) = wanted
            known = context.known.get(value)
            if known is not None and known.dtype in BYTES:
                best = value, known.dtype, list(members)
        if len(made) < len(wanted):
            break
        last = max(made, key=context.place.get)
        if not _is_elementwise(context, last):
            break
        members.append(last)
        wanted = (wanted - {last.output}) | {v for v in last.inputs if v and v not in context.graph.constants}
    if best is None or context.shape(best[0]) is None or context.shape(best[0]) != context.shape(node.output):
        return False
    value, of, members = best
    values = {value: np.arange(256, dtype=np.uint8).view(of)}
    with np.errstate(all="ignore"):
        for each in sorted((*members, node), key=context.place.get):
            inputs = [
                values[v] if v in values else _flat(context.graph.constants[v]) if v else None for v in each.inputs
            ]
            (values[each.output],) = evaluate(each, inputs)
    table = context.add_constant(f"{node.name}.table", values[node.output].astype(dtype))
    before, node.op, node.inputs, node.attrs = node.inputs, "Lookup", [value, table], {}
    context.reads_instead(node, before)
    _drop(context, before[0])
    context.fused(members, node, passes=2 * len(members), per_element=len(members))
    return True


def _flat(a):
    return a if a.size > 1 else a.reshape(())


def _is_elementwise(context, node):
    """Whether each element of the result follows from the one at its place and numbers."""
    record = OPERATORS[node.op]
    if not (record.formula or node.op in ("QuantizeLinear", "DequantizeLinear")) or node.residual:
        return False
    if isinstance(node.activation, tuple) and any(np.size(a) > 1 for a in node.activation):
        return False
    constants = [context.graph.constants.get(v) for v in node.inputs if v]
    return node.op == "Lookup" or all(c is None or c.size == 1 for c in constants)


def _pair(context, node):
    """Why a sum or product of two tensors does not work on bytes; "" where it does."""
    sources = [_source(context, v) for v in node.inputs]
    why = next((s for s in sources if isinstance(s, str)), "")
    if not why and activations.parse(node.activation)[0] not in _CLIPS:
        why = f"bytes have no kernel of {node.op} with an activation but a clip"
    shape = context.shape(node.output)
    if not why and (shape is None or shape not in map(context.shape, node.inputs)):
        why = f"the operands of {node.op} are both broadcast, or of unknown shape"
    return why or ("a residual" if node.residual else "")


def _mean(context, node):
    """As _pair, of means of windows."""
    source = _source(context, node.inputs[0])
    if isinstance(source, str) or node.activation is not None:
        return source if isinstance(source, str) else "it has an activation"
    shape = context.shape(node.inputs[0])
    if shape is None or len(shape) != 4:
        return f"{node.op} of bytes takes images"
    if node.op == "ReduceMean":
        axes = context.graph.constant(node, 1)
        if axes is None or not node.attrs.get("keepdims", 1) or sorted(axes_of(axes.reshape(-1), 4)) != [2, 3]:
            return "ReduceMean of bytes takes whole images, and keeps their axes"
    return ""


def _on_bytes(context, node):
    """An operator of floats as that of bytes."""
    node.op, before = OPERATORS[node.op].on_bytes, node.inputs
    pair = "Pool" not in node.op
    sources = [_source(context, v) for v in (before if pair else before[:1])]
    node.inputs = [s.value for s in sources]
    context.reads_instead(node, before)
    for v in before:
        _drop(context, v)
    names = ("a_q", "b_q") if pair else ("x_q",)
    node.attrs = (node.attrs if node.op == "QuantizedAveragePool" else {}) | dict(
        zip(names, [s.q for s in sources], strict=True)
    )
    context.fused([s.node for s in sources], node, passes=2 * len(sources), per_element=2)


_LONGEST = 24  # nodes of a table
_CLIPS = activations.parse(None)[0], activations.parse("relu")[0]


def _explain(context, node):
    """Names what stays in floats between bytes."""
    down = node.op == "DequantizeLinear"
    others = context.consumers.get(node.output, ()) if down else [context.producers.get(node.inputs[0])]
    for other in others:
        if other is not None and other.op not in ("DequantizeLinear", "QuantizeLinear"):
            side = "takes" if down else "makes"
            context.refused(node, f"{other.op} {other.name} {side} floats")
