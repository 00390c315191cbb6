"""softmax(scale a b + mask) v becomes one node, whose kernel keeps the scores out of memory.

It is found from the second product backwards: its first operand is a softmax over the last axis; between that and the
first product there may be scales by a number, masks that are added, masks by Where, and one cap, c tanh(scores / c).
What a mask hides is -infinity, or so low that no other score matters.
"""

import numpy as np

from ..ir.graph import Node
from ..operators.sdpa import LOW
from . import bn_folding

_BETWEEN = "MatMul", "Add", "Mul", "Div", "Activation", "Where"
_ABSORBING = -1e30  # from here on a finite score vanishes when it is added


class _Refused(Exception):
    """Why a softmax between two products stays; the text says it."""


def run(context):
    for node in context.nodes():
        if node.op == "MatMul" and node in context.order:
            _fuse(context, node)


def _fuse(context, product):
    found = _weights(context, product)
    if found is None:
        between = _changed_weights(context, product.inputs[0])
        if between is not None:
            context.refused(between[0], f"{between[1].op} {between[1].name} is between its weights and their product")
        return
    softmax, row, bias = found
    try:
        _check(context, softmax, row)
        first, chain, scale, cap, masks = _scores(context, softmax)
        if bias and all(bias != mask for mask, _ in masks):
            raise _Refused(f"rows of {bias}, which is not its mask, say where the weights are 0")
        if product.attrs.get("alpha", 1.0) != 1 or product.activation is not None or product.residual:
            raise _Refused(f"the product {product.name} does more than sum")
        shape = context.shape(softmax.inputs[0])
        if shape is None:
            raise _Refused("the shape of its scores is not known")
        masks = [_mask(context, softmax, shape, *m) for m in masks]
    except _Refused as why:
        context.refused(softmax, str(why))
        return
    mask = [_sum(context, softmax, masks)] if masks else []
    nodes = [first, *reversed(chain), softmax, *row]
    attrs = {"scale": scale} | ({"softcap": cap} if cap else {})
    fused = Node("SoftmaxProduct", product.name, [*first.inputs, product.inputs[1], *mask], product.outputs, attrs)
    scores = softmax.inputs[0]
    context.add(fused, product)
    context.remove(*nodes, product)
    context.fused(nodes, fused, passes=2 * len(nodes), value=scores)


def _weights(context, product):
    """(the softmax over the last axis that a product's first operand is, the nodes between, the mask that they read or
    "") where it follows from a product, else None."""
    node, row, bias = _with_rows_of_no_key(context, context.producers.get(product.inputs[0]))
    if node is None or node.op != "Softmax" or not _follows_product(context, node):
        return None
    return node, row, bias


def _follows_product(context, softmax):
    """Whether a softmax is one of scores: of a product, scaled and masked."""
    inside = context.producers.get(softmax.inputs[0])
    for _ in range(8):
        if inside is None or inside.op == "MatMul":
            break
        values = inside.inputs[1:] if inside.op == "Where" else inside.inputs
        producers = [context.producers.get(v) for v in values if v not in context.graph.constants]
        inside = next((b for b in producers if b is not None and b.op in _BETWEEN), None)
    return inside is not None and inside.op == "MatMul"


def _changed_weights(context, value):
    """(a softmax of scores, the node between it and a value) where that node makes other weights of one shape."""
    node = context.producers.get(value)
    for v in node.inputs if node is not None and node.op not in ("MatMul", "Softmax") else ():
        softmax = context.producers.get(v)
        if softmax is not None and softmax.op == "Softmax" and _follows_product(context, softmax):
            return (softmax, node) if context.shape(v) == context.shape(value) is not None else None
    return None


def _with_rows_of_no_key(context, node):
    """Returns (the node before those that make 0 of the rows without a key, which a softmax makes NaN; these, as the
    kernel does so itself; the mask that says which rows these are, or "" where NaN does)."""
    if node is None or node.op != "Where" or _number(context, node.inputs[1]) != 0:
        return node, [], ""
    before, tested = (context.producers.get(v) for v in (node.inputs[2], node.inputs[0]))
    constant = context.graph.constants.get(node.inputs[0])
    if constant is not None:
        return (node, [], "") if constant.any() else (before, [node], "")
    if tested is not None and tested.op == "IsNaN" and tested.inputs[0] == node.inputs[2]:
        return before, [tested, node], ""
    mask = _mask_of_rows(context, tested)
    return (before, [node], mask) if mask else (node, [], "")


def _mask_of_rows(context, tested):
    """The mask whose rows a node tests for being -infinity as a whole, or ""."""
    top = context.producers.get(tested.inputs[0]) if tested is not None and tested.op == "Equal" else None
    if top is None or top.op != "ReduceMax" or _number(context, tested.inputs[1]) != -np.inf:
        return ""
    axes, last = context.graph.constant(top, 1), len(context.shape(top.inputs[0]) or ()) - 1
    along_keys = axes is not None and axes.tolist() in ([-1], [last])
    return top.inputs[0] if along_keys and top.attrs.get("keepdims", 1) else ""


def _alone(context, value, readers, what):
    """Refuses a value that anything else reads."""
    if value in context.graph.results:
        raise _Refused(f"{what} {value} are an output of the network")
    if len(context.consumers.get(value, ())) > readers:
        raise _Refused(f"{what} {value} are used elsewhere too")


def _check(context, softmax, row):
    """Refuses weights of another axis than the last, and those that anything else reads."""
    shape = context.shape(softmax.inputs[0])
    axis = softmax.attrs.get("axis", -1)
    if shape is None or axis % len(shape) != len(shape) - 1:
        raise _Refused("its axis is not the last one")
    _alone(context, softmax.output, max(len(row), 1), "the weights")
    for node in row:
        _alone(context, node.output, 1, "tests of the weights" if node.op == "IsNaN" else "the weights")


def _scores(context, softmax):
    """(the first product, the nodes between from the softmax backwards, the scale of the product, what its scores are
    capped at or 0, its masks as (value, factor or Where's node))."""
    value, chain, scale, cap, masks = softmax.inputs[0], [], 1.0, 0.0, []
    while True:
        node = context.producers.get(value)
        _alone(context, value, 1, "the scores")
        capped = _caps(node) and not cap and scale > 0
        if node is None or node.residual or node.activation is not None and not capped:
            raise _Refused("an activation or a residual is between it and the product")
        if node.op == "MatMul":
            return node, chain, scale * node.attrs.get("alpha", 1.0), cap, masks
        chain.append(node)
        if node.op in ("Mul", "Div"):
            value, factor = bn_folding.factor(context, node, 1.0)
            if factor is None:
                raise _Refused(f"{node.op} {node.name} before it is not a scale by one number")
            scale *= factor
        elif capped:
            value, cap = node.inputs[0], scale
        elif cap:
            raise _Refused(f"{node.op} {node.name} is inside the cap of its scores")
        elif node.op == "Add":
            value, mask = _operands(context, node)
            masks.append((mask, scale))
        elif node.op == "Where":
            value = _chosen(context, node)
            masks.append((node, scale))
        else:
            raise _Refused(f"{node.op} {node.name} is between it and the product")


def _caps(node):
    return node is not None and node.op == "Activation" and node.activation == "tanh"


def _operands(context, node):
    """(the scores, what is added to them)"""
    for scores, mask in (node.inputs, node.inputs[::-1]):
        inside = context.producers.get(scores)
        if (
            inside is not None
            and inside.op in _BETWEEN
            and context.shape(scores) == context.shape(node.output)
            and _leads(context, scores)
        ) and not context.differ(scores, node.output):
            return scores, mask
    raise _Refused(f"Add {node.name} gives the scores more axes or elements")


def _leads(context, value):
    """Whether a value is a product, scaled and masked."""
    for _ in range(8):
        node = context.producers.get(value)
        if node is None or node.op == "MatMul":
            return node is not None
        value = next((v for v in node.inputs[node.op == "Where" :] if v in context.producers), None)
    return False


def _chosen(context, node):
    """Where's operand that has the scores; the other is one low number."""
    for scores, fill in (node.inputs[1:], node.inputs[:0:-1]):
        low = _number(context, fill)
        if (
            low is not None
            and low <= LOW
            and context.shape(scores) == context.shape(node.output)
            and not context.differ(scores, node.output)
        ):
            return scores
    raise _Refused(f"Where {node.name} gives the scores another value than one of {LOW:g} or less")


def _number(context, value):
    a = context.graph.constants.get(value)
    return a.item() if a is not None and a.size == 1 and a.dtype == np.float32 else None


def _mask(context, softmax, shape, mask, factor):
    """A value that is added to scores: (name, the data where it is constant)."""
    if isinstance(mask, Node):
        return _of_where(context, softmax, shape, mask)
    known = context.known.get(mask)
    if known is None or known.dtype != np.float32:
        raise _Refused(f"the mask {mask} is not float32")
    data = context.graph.constants.get(mask)
    if factor != 1 and data is None:
        raise _Refused(f"the mask {mask} is scaled after it is added")
    if data is None:
        return mask
    with np.errstate(over="ignore", invalid="ignore"):
        data = (data * np.float64(factor)).astype(np.float32) if factor != 1 else data
    low = np.where(data <= LOW, np.float32(-np.inf), data)
    return context.add_constant(f"{softmax.name}.mask", _hiding(low, data, shape))


def _hiding(low, data, shape):
    """`low` where each row has a key that is seen, or what is hidden absorbs any score: then it is the same as
    `data`."""
    rows = np.broadcast_to(low, (*low.shape[:-1], shape[-1])) if low.ndim else low
    seen = np.ndim(rows) > 0 and (rows == 0).any(-1).all()
    return low if seen else data


def _of_where(context, softmax, shape, node):
    """Where(condition, scores, fill) as what is added: 0 or -infinity."""
    scores = 1 if _number(context, node.inputs[2]) is not None else 2
    fill, condition = _number(context, node.inputs[3 - scores]), node.inputs[0]
    data = context.graph.constants.get(condition)
    if data is not None:
        taken = np.broadcast_to(
            data if scores == 1 else ~data, (*data.shape[:-1], shape[-1]) if data.ndim else (1, shape[-1])
        )
        if fill > _ABSORBING and not taken.any(-1).all():
            raise _Refused(f"{node.name} sets all scores of a query to {fill:g}, which gives equal weights")
        if fill > -np.inf and not taken.any(-1).all():
            raise _Refused(f"{node.name} hides all keys of a query, which gives equal weights")
        return context.add_constant(f"{softmax.name}.mask", np.where(taken, np.float32(0), np.float32(-np.inf)))
    if fill > _ABSORBING:
        raise _Refused(f"{node.name} sets scores to {fill:g}, which may be as large as others")
    zero, low = (
        context.add_constant(f"{softmax.name}.{name}", np.float32(v)) for name, v in (("seen", 0), ("hidden", fill))
    )
    mask = context.fresh(f"{softmax.name}.mask")
    made = Node(
        "Where",
        context.fresh(f"{node.name}.mask"),
        [condition, zero, low] if scores == 1 else [condition, low, zero],
        [mask],
    )
    context.add(made, node)
    return mask


def _sum(context, softmax, masks):
    """One mask for all."""
    total = masks[0]
    for mask in masks[1:]:
        made = Node(
            "Add", context.fresh(f"{softmax.name}.masks"), [mask, total], [context.fresh(f"{softmax.name}.mask")]
        )
        context.add(made, softmax)
        total = made.output
    return total
