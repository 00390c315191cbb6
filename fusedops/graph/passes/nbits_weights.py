"""Products with constant weights of 4 or 8 bits keep them so, in the order of the kernels. Steps that a file has in
another order than its blocks (g_idx) are gathered, of the rows in each call and of the weights once. The weights of
other products, and of all without fusion, become floats: where they are constant, once.
"""

import contextlib

import numpy as np

from ..._internal.mmap_arrays import let_go
from ..inference.shape_inference import infer_node
from ..ir.explanation import Fusion
from ..ir.graph import Node
from ..operators.matmul_nbits import in_blocks, packed, weights_shape
from ..operators.schema import floats
from ..steps.prepared import OfConstants


def pack(context):
    done = {}  # constants that several products share
    for node in context.nodes():
        if node.op != "MatMulBits":
            continue
        why = _why_not(context, node)
        if why:
            context.refused(node, why)
        else:
            _pack(context, node, done)


def _why_not(context, node):
    """Why a product's weights become floats, or ""."""
    q, scales, zeros, bias, order = (context.graph.constant(node, i) for i in range(1, 6))
    given = [node.input(i) for i in range(1, 6)]
    if any(a is None and v for a, v in zip((q, scales, zeros, bias, order), given, strict=True)):
        return "its weights, scales, zero points, order or bias are not constant"
    try:
        weights_shape(node, q, scales, zeros, order)
    except ValueError as e:
        return str(e)
    return _why_no_kernel(context, node, q, scales, zeros, bias, order)


def _why_no_kernel(context, node, q, scales, zeros, bias, order):
    """Why no kernel takes weights of these constants, or ""."""
    if not floats(scales, bias) or bias is not None and bias.shape != (node.attrs["N"],):
        return f"its scales have type {scales.dtype}, or its bias is not a vector of float32"
    if q.dtype != np.uint8 or zeros is not None and zeros.dtype != np.uint8:
        return "its weights or zero points are not packed in bytes"
    bits, block = node.attrs["bits"], node.attrs["block_size"]
    if bits not in (4, 8) or block % 8:
        return f"kernels take 4 or 8 bits in blocks of a multiple of 8, not {bits} bits in blocks of {block}"
    if order is not None and in_blocks(node, order) is None:
        return f"its blocks (g_idx) are not all of {block} steps"
    known = context.known.get(node.inputs[0])
    # in a branch it may not be known: by the operator's definition its type is that of the scales
    return "" if known is None or known.dtype == np.float32 else f"it takes {known.dtype}, not float32"


def _pack(context, node, done):
    graph, before, bits = context.graph, node.inputs, node.attrs["bits"]
    sizes = tuple(sorted((name, value) for name, value in node.attrs.items() if name != "accuracy_level"))
    names, key = before[1:4], (*before[1:4], node.input(5), *sizes)
    if key not in done:
        *arrays, order = _arrays(context, node, sizes)
        done[key] = (
            [context.add_constant(f"{name or node.name}.packed", a) for name, a in zip(names, arrays, strict=True)],
            order,
        )
    (q, scales, zeros), order = done[key]
    x = before[0] if order is None or np.all(np.diff(order) == 1) else _gathered(context, node, order)
    node.op, node.inputs = "LinearBits", [x, q, before[4], scales, zeros]
    context.reads_instead(node, before)
    saved = 4 * node.attrs["N"] * node.attrs["K"] - sum(graph.constants[v].nbytes for v in done[key][0])
    context.report.append(Fusion(context.kind, (f"{names[0]} of {bits} bits",), node.name, 0, saved))


def _arrays(context, node, sizes):
    """(weights, scales, zero points, order) as kernels take them, once for all branches that have these constants."""
    given = [context.graph.constant(node, i) for i in (1, 2, 3, 5)]
    key = OfConstants(sizes, *given)
    if key not in context.packed:
        q, scales, zeros, order = given
        order = None if order is None else in_blocks(node, order)
        context.packed[key] = *packed(node, q, scales, zeros, order), order
        let_go(q)
    return context.packed[key]


def _gathered(context, node, order):
    """The steps of the rows in the order of blocks."""
    return _before(
        context, node, "Gather", [node.inputs[0], context.add_constant(f"{node.input(5)}.order", order)], {"axis": -1}
    )


def _before(context, node, op, inputs, attrs):
    """The result of a new node in front of `node`."""
    result = context.fresh(f"{node.name}.{op}")
    added = Node(op, f"{node.name}.{op}", inputs, [result], attrs)
    context.add(added, node)
    context.order[added] -= 0.5
    if all(v in context.known for v in inputs):
        with contextlib.suppress(ValueError):  # of weights that do not fit, which a call tells
            context.known |= infer_node(added, [context.known[v] for v in inputs])
    return result


def dequantize(context):
    for node in context.nodes():
        if node.op == "MatMulBits":
            _dequantize(context, node)


def _dequantize(context, node):
    """The weights as a node of their own, transposed, and a product; a bias is added after it."""
    x, q, scales, zeros, bias, order = before = [*node.inputs, ""][:6]
    given = [q, scales, zeros, order]
    while not given[-1]:
        given.pop()
    w = _before(context, node, "DequantizeBits", given, node.attrs)
    w = _before(context, node, "Transpose", [w], {"perm": [1, 0]})
    node.op, node.inputs, node.attrs = "MatMul", [x, w], {}
    context.reads_instead(node, before)
    if bias:
        total = node.output
        context.produce(node, [context.fresh(f"{total}.product")])
        context.add(Node("Add", f"{node.name}.bias", [node.output, bias], [total]), node)
