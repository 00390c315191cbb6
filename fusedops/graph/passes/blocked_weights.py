"""Products whose constant weights are dequantized in blocks, or from 4 bits, as products by weights in blocks, which
stay as small as they are in the file."""

import numpy as np


def run(context):
    for node in context.nodes():
        if node.op == "MatMul" or node.op == "Gemm" and _is_plain(context, node):
            weights, along = _weights(context, node)
            if weights is not None:
                _replace(context, node, weights, along)


def _is_plain(context, node):
    attrs, bias = node.attrs, context.graph.constant(node, 2)
    scaled = attrs.get("alpha", 1.0) != 1 or attrs.get("beta", 1.0) != 1 or attrs.get("transA", 0)
    return not scaled and (not node.input(2) or bias is not None and bias.ndim == 1)


def _weights(context, node):
    """(the DequantizeLinear of a product's weights or None, their axis that is summed over)."""
    made, along = context.producers.get(node.inputs[1]), 1 if node.attrs.get("transB", 0) else 0
    if made is not None and made.op == "Transpose" and made.attrs.get("perm") == [1, 0]:
        made, along = context.producers.get(made.inputs[0]), 1 - along
    of = context.producers.get(node.inputs[0])
    if made is None or made.op != "DequantizeLinear" or of is not None and of.op == "DequantizeLinear":
        return None, along  # int8 products have layers of their own
    return made, along


def _constants(context, weights):
    """(numbers, scales, zero points) of a DequantizeLinear; None where they are not all constant, or of other types."""
    q, scale, zero = (context.graph.constant(weights, i) for i in range(3))
    if q is None or scale is None or weights.input(2) and zero is None:
        return None
    zero = np.zeros(scale.shape, q.dtype) if zero is None else zero
    fits = q.ndim == 2 and q.dtype.itemsize == 1 and scale.dtype == np.float32 and zero.shape == scale.shape
    return (q, scale, zero) if fits else None


def _replace(context, node, weights, along):
    given, before = _constants(context, weights), node.inputs
    if given is None:
        return
    q, scale, zero = given
    found = _blocks(weights, q, scale, zero, along)
    if found is None:
        return
    block, bits, scale, zero = found
    arrays = _packed(q if along else q.T, scale, zero, block, bits)
    names = [
        context.add_constant(f"{node.name}.{name}", a) for name, a in zip(("q", "scale", "zero"), arrays, strict=True)
    ]
    n, k = q.shape[1 - along], q.shape[along]
    node.op, node.attrs = "MatMulBits", {"N": n, "K": k, "bits": bits, "block_size": block}
    node.inputs = [before[0], *names, before[2] if len(before) > 2 else ""]
    context.reads_instead(node, before)


def _blocks(weights, q, scale, zero, along):
    """(steps of a block, bits, scales (n, blocks), zero points alike); None where kernels take no such blocks."""
    k, n, bits = q.shape[along], q.shape[1 - along], 4 if all(map(_fits_4_bits, (q, zero))) else 8
    block, axis = weights.attrs.get("block_size", 0), weights.attrs.get("axis", 1) % 2
    if block and (axis != along or scale.ndim != 2):  # blocks of the other axis
        return None
    if block:
        scale, zero = (a if along else a.T for a in (scale, zero))
    elif bits == 4 and _of_columns(scale, n, axis != along):
        block, (scale, zero) = k, (np.broadcast_to(a.reshape(-1, 1), (n, 1)) for a in (scale, zero))
    fits = block > 0 and block % 8 == 0 and scale.shape == (n, -(-k // block))
    return (block, bits, scale, zero) if fits else None


def _of_columns(scale, n, across):
    return scale.size == 1 or across and scale.shape == (n,)


def _fits_4_bits(a):
    lowest = -8 if a.dtype == np.int8 else 0
    return a.size and lowest <= a.min() and a.max() < lowest + 16


def _packed(q, scale, zero, block, bits):
    """(weights, scales, zero points) of rows (n, k) as MatMulBits has them."""
    (n, k), blocks = q.shape, scale.shape[1]
    codes, zeros = (_codes(a, bits) for a in (q, zero))
    codes = np.pad(codes, ((0, 0), (0, blocks * block - k)))
    return _spread(codes, bits).reshape(n, blocks, -1), np.ascontiguousarray(scale), _spread(zeros, bits)


def _codes(a, bits):
    """Numbers from 0 on; those with a sign moved by half of the range."""
    return (a.astype(np.int16) + (2 ** (bits - 1) if a.dtype == np.int8 else 0)).astype(np.uint8)


def _spread(codes, bits):
    """The bytes of each row, the first number in the lowest bits."""
    if bits == 4:
        codes = np.pad(codes, ((0, 0), (0, codes.shape[1] % 2)))
        codes = codes[:, ::2] | codes[:, 1::2] << 4
    return np.ascontiguousarray(codes)
