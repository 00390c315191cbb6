"""The QDQ form: operators of quantized values are spelled out, DequantizeLinear moves down and QuantizeLinear up
through what only moves elements, and equal pairs cancel."""

import numpy as np

from ...ir.graph import Node, TensorInfo
from ...operators.registry import carried
from ...operators.schema import axes_of
from .quantized_values import drop, set_known, source_of, target_of


def run(context):
    for node in context.nodes():
        if node.op in ("QLinearConv", "QLinearMatMul"):
            _to_qdq(context, node)
        elif node.op == "ReduceMean" and not node.attrs.get("keepdims", 1):
            _keep_axes(context, node)
    for node in context.nodes():
        _share(context, node)
        _push_dq_down(context, node)
    for node in context.nodes(reverse=True):
        _push_q_up(context, node)
    for node in context.nodes():
        _cancel(context, node)


def _to_qdq(context, node):
    """An operator of ONNX on quantized values as that of floats between DequantizeLinear and QuantizeLinear."""
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
        context.order[added] -= 0.5
        set_known(context, result, v, np.dtype(np.float32))
        return result

    ndim = np.ndim(graph.constants[w]) if w in graph.constants else len(context.shape(w) or ())
    inputs = [dequantized(x, xs, xz), dequantized(w, ws, wz, axis=0 if conv else ndim - 1)]
    if node.input(8):
        scale = scales[0].reshape(()) * scales[2]
        inputs.append(dequantized(node.input(8), context.add_constant(f"{node.name}.bias.scale", scale), axis=0))
    node.op, node.inputs = "Conv" if conv else "MatMul", inputs
    context.reads_instead(node, before)
    context.produce(node, [context.fresh(f"{y}.real")])
    set_known(context, node.output, y, np.dtype(np.float32))
    context.add(Node("QuantizeLinear", f"{node.name}.quantized", [node.output, ys, yz], [y]), node)


def _keep_axes(context, node):
    """A mean of int8 with its axes, which are removed after it: as int8, where it becomes those."""
    axes, shape = context.graph.constant(node, 1), context.shape(node.inputs[0])
    if isinstance(source_of(context, node.inputs[0]), str) or axes is None or not axes.size or shape is None:
        return
    y, node.attrs = node.output, node.attrs | {"keepdims": 1}
    context.produce(node, [context.fresh(f"{y}.kept")])
    over = axes_of(axes.reshape(-1), len(shape))
    context.known[node.output] = TensorInfo(
        tuple(1 if a in over else n for a, n in enumerate(shape)), np.dtype(np.float32)
    )
    squeeze = Node("Squeeze", context.fresh(f"{node.name}.squeezed"), [node.output, node.inputs[1]], [y])
    context.add(squeeze, node)
    context.order[squeeze] += 0.75  # a QuantizeLinear may come between


def _share(context, node):
    """Of two equal conversions of one value the first is kept."""
    if node.op not in ("DequantizeLinear", "QuantizeLinear"):
        return
    if node.output in context.graph.results:
        return
    for other in list(context.consumers.get(node.inputs[0], ())):
        later = context.order[other] > context.order[node]
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


def _push_dq_down(context, node):
    """op(dequantize(x)) = dequantize(op(x)) of an operator that only moves elements."""
    where = carried(node)
    if where is None or not node.inputs[where]:
        return
    if node.op == "Transpose" and _push_dq_down_weights(context, node):
        return
    sources = [source_of(context, v) for v in node.inputs[where]]
    if any(isinstance(s, str) for s in sources) or len({(s.q, s.dtype) for s in sources}) > 1:
        return
    first, before = sources[0], node.inputs
    inputs = list(before)
    inputs[where] = [s.value for s in sources]
    if node.op == "Pad" and (inputs := _padded(context, node, inputs, first)) is None:
        return
    node.inputs = inputs
    context.reads_instead(node, before)
    for v in before[where]:
        drop(context, v)
    _dequantize_after(context, node, first)


def _dequantize_after(context, node, source):
    """The results of a node that was given int8 become its int8 results, with a DequantizeLinear after each."""
    results = node.outputs
    context.produce(node, [v and context.fresh(f"{v}.int8") for v in results])
    for old, new in zip(results, node.outputs, strict=True):
        if old:
            set_known(context, new, old, source.dtype)
            name, inputs = context.fresh(f"{node.name}.dequantized"), [new, *source.node.inputs[1:]]
            context.add(Node("DequantizeLinear", name, inputs, [old], dict(source.node.attrs)), node)


def _padded(context, node, inputs, source):
    """The inputs of a Pad of int8, which pads with the zero point; None where it pads with something else than 0."""
    value = context.graph.constant(node, 2)
    if node.attrs.get("mode", "constant") != "constant":
        return inputs
    if node.input(2) and (value is None or value.size and value.item() != 0):
        return None
    zero = context.add_constant(f"{node.name}.zero", np.array(source.q[1], source.dtype))
    return [*inputs[:2], zero, *inputs[3:]]


def _push_dq_down_weights(context, node):
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
    drop(context, before[0])
    return True


def _push_q_up(context, node):
    """quantize(op(x)) = op(quantize(x)) of an operator that only moves elements, where its inputs are as few."""
    found = target_of(context, node) if node.op == "QuantizeLinear" else ""
    into = context.producers.get(node.inputs[0])
    if isinstance(found, str) or into is None or into.op == "Pad":
        return
    where = carried(into)
    if where is None or len(into.outputs) > 1 or into.output in context.graph.results:
        return
    sources = into.inputs[where]
    few = into.op == "MaxPool" or sum(map(context.size, sources)) <= context.size(into.output)
    if len(context.consumers[into.output]) > 1 or not few or any(v in context.graph.constants for v in sources):
        return
    before, inputs = into.inputs, list(into.inputs)
    added = [_quantize_before(context, node, v, into, found[1]) for v in sources]
    inputs[where] = [q.output for q in added]
    into.inputs = inputs
    context.reads_instead(into, before)
    context.merge([node], into)
    for q in added:
        _push_q_up(context, q)


def _quantize_before(context, node, value, reader, dtype):
    """A QuantizeLinear like `node`, of another value, in front of what reads it."""
    inputs, output = [value, *node.inputs[1:]], context.fresh(f"{value}.int8")
    q = Node("QuantizeLinear", context.fresh(f"{node.name}.{value}"), inputs, [output], dict(node.attrs))
    context.add(q, reader)
    context.order[q] -= 0.5
    set_known(context, output, value, dtype)
    return q


def _cancel(context, node):
    """quantize(dequantize(x)) = x of equal quantizations."""
    found = target_of(context, node) if node.op == "QuantizeLinear" else ""
    source = source_of(context, node.inputs[0]) if not isinstance(found, str) else ""
    if isinstance(source, str) or found != (source.q, source.dtype):
        return
    context.rename(node.output, source.value)
    context.remove(node)
    drop(context, node.inputs[0])
