"""Results in int8: QuantizeLinear goes into the layer before it, what follows from one byte becomes a table of 256, and
sums, products and means of int8 an operator on int8."""

import numpy as np

from ...inference.evaluate import evaluate
from ...ir.dtypes import INT8
from ...operators.registry import OPERATORS
from ...operators.schema import axes_of
from .quantized_values import drop, source_of, target_of
from .qweights import is_clip


def run(context):
    for node in context.nodes():
        if node.op in ("QuantizedConv", "QuantizedLinear") and node.residual:
            _residual(context, node)
    for node in context.nodes(reverse=True):
        if node.op == "QuantizeLinear":
            _store(context, node)
    for node in context.nodes():
        if node.op == "DequantizeLinear":
            _requantize(context, node)
    for node in context.nodes():
        if node.op in ("DequantizeLinear", "QuantizeLinear"):
            _explain(context, node)


def _residual(context, node):
    """Bytes in the place of a residual that is dequantized for this alone."""
    source = source_of(context, node.residual)
    if isinstance(source, str):
        return
    before = node.residual
    context.consumers[before].remove(node)
    context.add_residual(node, source.value)
    node.attrs["residual_q"] = source.q
    drop(context, before)
    context.fused([source.node], node, passes=2, per_element=2, value=before)


def _store(context, node):
    """quantize(layer) as the layer's own last step."""
    found, into = target_of(context, node), context.producers.get(node.inputs[0])
    if isinstance(found, str):
        return context.refused(node, found)
    if into is None or _lookup(context, node, found[1]):
        return None
    if into.op in ("QuantizedConv", "QuantizedLinear"):
        why = ""
    elif OPERATORS[into.op].traits.quantized_as:
        why = (_mean if "Pool" in OPERATORS[into.op].traits.quantized_as else _pair)(context, into)
    else:
        return None
    if not why and (into.output in context.graph.results or len(context.consumers[node.inputs[0]]) > 1):
        why = f"the result of {into.op} {into.name} is read as floats too"
    if why:
        return context.refused(node, why)
    if OPERATORS[into.op].traits.quantized_as:
        _on_int8(context, into)
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
            if known is not None and known.dtype in INT8:
                best = value, known.dtype, list(members)
        if len(made) < len(wanted):
            break
        last = max(made, key=context.order.get)
        if not _is_elementwise(context, last):
            break
        members.append(last)
        wanted = (wanted - {last.output}) | {v for v in last.inputs if v and v not in context.graph.constants}
    if best is None or context.shape(best[0]) is None or context.shape(best[0]) != context.shape(node.output):
        return False
    value, of, members = best
    table = context.add_constant(f"{node.name}.table", _table(context, (*members, node), value, of).astype(dtype))
    before, node.op, node.inputs, node.attrs = node.inputs, "Lookup", [value, table], {}
    context.reads_instead(node, before)
    drop(context, before[0])
    context.fused(members, node, passes=2 * len(members), per_element=len(members))
    return True


def _table(context, nodes, value, dtype):
    """Computes the result of the last of some nodes for each of the 256 values that `value` may have."""
    values, last = {value: np.arange(256, dtype=np.uint8).view(dtype)}, value
    with np.errstate(all="ignore"):
        for node in sorted(nodes, key=context.order.get):
            inputs = [
                values[v] if v in values else _flat(context.graph.constants[v]) if v else None for v in node.inputs
            ]
            last = node.output
            (values[last],) = evaluate(node, inputs)
    return values[last]


def _flat(a):
    return a if a.size > 1 else a.reshape(())


def _is_elementwise(context, node):
    """Whether each element of the result follows from the one at its place and numbers."""
    record = OPERATORS[node.op]
    if not (record.traits.elementwise or node.op in ("QuantizeLinear", "DequantizeLinear")) or node.residual:
        return False
    if isinstance(node.activation, tuple) and any(np.size(a) > 1 for a in node.activation):
        return False
    constants = [context.graph.constants.get(v) for v in node.inputs if v]
    return node.op == "Lookup" or all(c is None or c.size == 1 for c in constants)


def _pair(context, node):
    """Why a sum or product of two tensors does not work on int8; "" where it does."""
    sources = [source_of(context, v) for v in node.inputs]
    why = next((s for s in sources if isinstance(s, str)), "")
    if not why and not is_clip(node):
        why = f"int8 has no kernel of {node.op} with an activation but a clip"
    shape = context.shape(node.output)
    if not why and (shape is None or shape not in map(context.shape, node.inputs)):
        why = f"the operands of {node.op} are both broadcast, or of unknown shape"
    return why or ("a residual" if node.residual else "")


def _mean(context, node):
    """As _pair, of means of windows."""
    source = source_of(context, node.inputs[0])
    if isinstance(source, str) or node.activation is not None:
        return source if isinstance(source, str) else "it has an activation"
    shape = context.shape(node.inputs[0])
    if shape is None or len(shape) != 4:
        return f"{node.op} of int8 takes images"
    if node.op == "ReduceMean":
        axes = context.graph.constant(node, 1)
        if axes is None or not node.attrs.get("keepdims", 1) or sorted(axes_of(axes.reshape(-1), 4)) != [2, 3]:
            return "ReduceMean of int8 takes whole images, and keeps their axes"
    return ""


def _on_int8(context, node):
    """An operator of floats as that of int8."""
    node.op, before = OPERATORS[node.op].traits.quantized_as, node.inputs
    pair = "Pool" not in node.op
    sources = [source_of(context, v) for v in (before if pair else before[:1])]
    node.inputs = [s.value for s in sources]
    context.reads_instead(node, before)
    for v in before:
        drop(context, v)
    names = ("a_q", "b_q") if pair else ("x_q",)
    node.attrs = (node.attrs if node.op == "QuantizedAveragePool" else {}) | dict(
        zip(names, [s.q for s in sources], strict=True)
    )
    context.fused([s.node for s in sources], node, passes=2 * len(sources), per_element=2)


_LONGEST = 24  # nodes of a table


def _requantize(context, node):
    """dequantize(quantize(x)) of one quantization between floats, in one pass."""
    made, source = context.producers.get(node.inputs[0]), source_of(context, node.output)
    if made is None or made.op != "QuantizeLinear" or isinstance(source, str):
        return
    if target_of(context, made) != (source.q, source.dtype) or len(context.consumers[made.output]) > 1:
        return
    known = context.known.get(made.inputs[0])
    if made.output in context.graph.results or known is None or known.dtype != np.float32:
        return
    before, node.op, node.inputs = node.inputs, "Requantize", [made.inputs[0]]
    node.attrs = {"x_q": source.q, "x_type": str(source.dtype)}
    context.reads_instead(node, before)
    drop(context, before[0])
    context.fused([made], node, passes=2)


def _explain(context, node):
    """Names what stays in floats between int8."""
    down = node.op == "DequantizeLinear"
    others = context.consumers.get(node.output, ()) if down else [context.producers.get(node.inputs[0])]
    for other in others:
        if other is not None and other.op not in ("DequantizeLinear", "QuantizeLinear"):
            side = "takes" if down else "makes"
            context.refused(node, f"{other.op} {other.name} {side} floats")
