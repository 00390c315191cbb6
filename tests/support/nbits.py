"""Products with weights of a few bits in blocks: nodes, their arrays, and layers of them."""

import itertools

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from fusedops import _core, activations
from fusedops.graph.ir.graph import Node
from fusedops.graph.operators import matmul_nbits
from fusedops.graph.operators.registry import OPERATORS


def weights(n, k, bits=4, block=32, zeros=True, seed=0, level=0):
    """A MatMulBits node, and its weights, scales and zero points as files have them."""
    rng, blocks = np.random.default_rng(seed), -(-k // block)
    q = rng.integers(0, 256, (n, blocks, block * bits // 8), np.uint8)
    scales = (rng.standard_normal((n, blocks)) / 8).astype(np.float32)  # some are negative
    packed = rng.integers(0, 256, (n, -(-blocks * bits // 8)), np.uint8) if zeros else None
    attrs = dict(N=n, K=k, bits=bits, block_size=block) | ({"accuracy_level": level} if level else {})
    return Node("MatMulBits", "product", [], ["y"], attrs), q, scales, packed


def unpacked(node, *given):
    return OPERATORS["DequantizeBits"].evaluate(node, *given)


def layer(node, *given, bias=None, activation=None):
    """The product with weights that stay packed."""
    n, k, bits, block = (node.attrs[name] for name in ("N", "K", "bits", "block_size"))
    plan, kind = _core.LinearPlan(), activations.parse(activation, n)
    plan._pack_bits(n, k, bits, block, *matmul_nbits.packed(node, *given), bias, kind, matmul_nbits.rounds(node))
    return plan


def network(*sizes, bits=4, block=32, zeros=True, bias=False, then=(), level=0, order=None):
    """MatMulNBits in a row, with Relu between; the weights as floats."""
    nodes, constants, value, reals = [], {}, "x", []
    for i, (k, n) in enumerate(itertools.pairwise(sizes)):
        node, q, scales, packed = weights(n, k, bits, block, zeros, seed=i, level=level)
        given = {f"q{i}": q, f"s{i}": scales.reshape(-1)} | ({f"z{i}": packed} if zeros else {})
        names = [value, *given, *[""] * (3 - len(given)), "" if order is None else "order", *[f"b{i}"] * bias]
        while not names[-1]:
            names.pop()
        constants |= given | ({f"b{i}": np.arange(n, dtype=np.float32)} if bias else {})
        made = helper.make_node("MatMulNBits", names, [f"y{i}"], f"product{i}", domain="com.microsoft", **node.attrs)
        nodes += [made, helper.make_node("Relu", [f"y{i}"], [f"r{i}"])]
        value = f"r{i}"
        reals.append(unpacked(node, q, scales, packed, order))
    if order is not None:
        constants["order"] = order
    for op, c in then:
        constants[f"{value}.c"] = c
        nodes.append(helper.make_node(op, [value, f"{value}.c"], [f"{value}.{op}"]))
        value = nodes[-1].output[0]
    nodes[-1].output[0] = "y"
    ends = [helper.make_tensor_value_info(v, TensorProto.FLOAT, ["m", n]) for v, n in (("x", sizes[0]), ("y", n))]
    graph = helper.make_graph(
        nodes, "net", ends[:1], ends[1:], [numpy_helper.from_array(a, name) for name, a in constants.items()]
    )
    domains = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    proto = helper.make_model(graph, opset_imports=domains, ir_version=8)
    return proto, reals
