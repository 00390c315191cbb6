"""Products with weights of 2 to 8 bits in blocks along k, of a scale and a zero point each: w = (q - zero) scale.

``MatMulBits`` has them as files do (MatMulNBits). In ``LinearBits`` they are constants of 4 or 8 bits in the order of
the kernels (fo_blockwise in csrc/include/fusedops/fusedops.h), which unpack them in registers; with accuracy level 4
rows are rounded to int8 by blocks, and integers are multiplied.
"""

import numpy as np

from ... import _core, activations
from ..steps.lowering import LoweringContext
from .matmul import add_linear
from .schema import Inference, Kernel, NumPyOnly, Operator, floats


def unpack(bits, packed, count):
    """`count` numbers of so many bits from the bytes of each row, the lowest bits first."""
    each = packed.reshape(*packed.shape[:-1], -1, 1) >> np.arange(0, 8, bits, dtype=np.uint8) & np.uint8(2**bits - 1)
    return each.reshape(*packed.shape[:-1], -1)[..., :count]


def pack(bits, numbers):
    """The other way round, of rows of whole bytes."""
    each = 8 // bits
    parts = numbers.astype(np.uint8).reshape(*numbers.shape[:-1], -1, each) << np.arange(0, 8, bits, dtype=np.uint8)
    return np.bitwise_or.reduce(parts, axis=-1)


def _sizes(node):
    """n, k, the bits of a weight, the steps of a block and the number of blocks."""
    n, k, block = (node.attrs[name] for name in ("N", "K", "block_size"))
    return n, k, node.attrs.get("bits", 4), block, -(-k // block) if block > 0 else 0


def _dequantize(node, q, scales, zeros=None, order=None):
    """The weights (n, k) of MatMulNBits: blocks along k of `block_size` numbers of `bits` bits, each with a scale and
    perhaps a zero point; `order` says for each step whose."""
    weights_shape(node, q, scales, zeros, order)
    n, k, bits, block, blocks = _sizes(node)
    q, scales = unpack(bits, q.reshape(n, blocks, -1), block), scales.reshape(n, blocks, 1)
    if zeros is None:
        zeros = np.full((n, blocks), 2 ** (bits - 1))
    elif zeros.dtype == np.uint8:
        zeros = unpack(bits, zeros.reshape(n, -1), blocks)
    zeros = zeros.reshape(n, blocks, 1).astype(scales.dtype)
    if order is not None:
        order = order.reshape(-1)[:k]
        if order.min() < 0 or order.max() >= blocks:
            raise ValueError(f"g_idx has blocks from {order.min()} to {order.max()}, but there are {blocks}")
        q, scales, zeros = q.reshape(n, -1)[:, :k], scales[:, order, 0], zeros[:, order, 0]
    return ((q.astype(scales.dtype) - zeros) * scales).reshape(n, -1)[:, :k]


def rounded(x, block):
    """Rows as int8 times a scale a block, as kernels of accuracy level 4 take them: 127 is the largest magnitude."""
    k = x.shape[-1]
    blocks = np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, -k % block)]).reshape(*x.shape[:-1], -1, block)
    step = np.abs(blocks).max(-1, keepdims=True) / np.float32(127)
    with np.errstate(invalid="ignore"):
        q = np.rint(blocks / np.where(step >= np.finfo(np.float32).tiny, step, np.float32(np.inf)))
        return (q * step).reshape(*x.shape[:-1], -1)[..., :k]


def weights_shape(node, q, scales, zeros=None, order=None):
    n, k, bits, block, blocks = _sizes(node)
    if (
        min(n, k, block) < 1
        or bits not in (2, 4, 8)
        or np.prod(q.shape) != n * blocks * (-(-block * bits // 8))
        or np.prod(scales.shape) != n * blocks
    ):
        raise ValueError(
            f"weights of {n} x {k} in blocks of {block} do not have {bits} bits, or {np.prod(q.shape)} "
            f"bytes and {np.prod(scales.shape)} scales; fusedops reads 2, 4 and 8 bits"
        )
    each = -(-blocks * bits // 8) if zeros is not None and zeros.dtype == np.uint8 else blocks
    if zeros is not None and np.prod(zeros.shape) != n * each:
        raise ValueError(
            f"{n} x {blocks} zero points of {bits} bits do not have the shape {zeros.shape}, dtype {zeros.dtype}"
        )
    if order is not None and np.prod(order.shape) not in (k, blocks * block):
        raise ValueError(f"the blocks of {k} steps (g_idx) have the shape {order.shape}")
    return n, k


def _matmul(node, x, q, scales, zeros=None, bias=None, order=None):
    y = x @ _dequantize(node, q, scales, zeros, order).T
    return y if bias is None else y + bias


def _matmul_shape(node, x, q, scales, zeros=None, bias=None, order=None):
    return _product_shape(x, *weights_shape(node, q, scales, zeros, order))


def _product_shape(x, n, k):
    if x.shape[-1] != k:
        raise ValueError(f"the weights ({n}, {k}) need a last axis of {k}")
    return (*x.shape[:-1], n)


# ---- the order of the kernels


def _panels(rows):
    """Rows, one a column of the product, as panels (panels, numbers of a column, columns of a panel)."""
    columns, (n, k) = _core.BITS_COLUMNS, rows.shape
    panels, whole = np.empty((-(-n // columns), k, columns), rows.dtype), n // columns
    panels[:whole] = rows[: whole * columns].reshape(-1, columns, k).swapaxes(1, 2)
    if n % columns:
        panels[whole] = 0
        panels[whole, :, : n % columns] = rows[whole * columns :].T
    return panels


def _rows(panels, n):
    return panels.swapaxes(1, 2).reshape(-1, panels.shape[1])[:n]


def _words(packed):
    """The bytes of each row as words, the first bytes in the lowest bits."""
    spare = -packed.shape[1] % 4
    packed = np.pad(packed, ((0, 0), (0, spare))) if spare else np.ascontiguousarray(packed)
    return packed.view("<u4").astype(np.uint32, copy=False)


def _bytes(words):
    return np.ascontiguousarray(words).astype("<u4", copy=False).view(np.uint8)


def in_blocks(node, order):
    """The steps of one block after another, where each has whole ones of `order` (g_idx); else None."""
    _, k, _, block, blocks = _sizes(node)
    order = order.reshape(-1)[:k]
    sizes = np.minimum(block, k - block * np.arange(blocks))
    if order.min() < 0 or order.max() >= blocks or np.any(np.bincount(order, minlength=blocks) != sizes):
        return None
    return np.argsort(order, kind="stable")


def packed(node, q, scales, zeros, order=None):
    """(weights, scales, zero points) of a MatMulBits in the order of the kernels; zeros: the packed ones or None;
    order: the steps in another order."""
    n, k, bits, block, blocks = _sizes(node)
    if zeros is None:
        zeros = np.full((n, -(-blocks * bits // 8)), 0x88 if bits == 4 else 0x80, np.uint8)
    q = q.reshape(n, -1)
    if order is not None:
        steps = unpack(bits, q, blocks * block)
        steps[:, :k] = steps[:, order]
        q = pack(bits, steps)
    return (
        _panels(_words(q)),
        _panels(scales.reshape(n, blocks)),
        _panels(_words(zeros.reshape(n, -1))),
    )


def _linear(node, x, q, bias, scales, zeros):
    n, _, bits, block, blocks = _sizes(node)
    zeros = _bytes(_rows(zeros, n))[:, : -(-blocks * bits // 8)]
    x = rounded(x, block) if rounds(node) else x
    return _matmul(node, x, _bytes(_rows(q, n)), _rows(scales, n), zeros, bias)


def rounds(node):
    """Whether kernels round rows by blocks, as a file allows."""
    return node.attrs.get("accuracy_level") == 4 and node.attrs["block_size"] <= _core.BITS_BLOCK


def _linear_shape(node, x, *others):
    return _product_shape(x, node.attrs["N"], node.attrs["K"])


def _lower_linear(p: LoweringContext, node):
    q, bias, scales, zeros = (p.data(v) for v in node.inputs[1:5])
    n, k, bits, block, _ = _sizes(node)
    if any(a is None for a in (q, scales, zeros)) or not floats(bias, scales) or node.input(2) and bias is None:
        return False
    if node.residual and _linear_shape(node, p.known[node.inputs[0]]) != p.known[node.residual].shape:
        return False

    def make():
        plan = _core.LinearPlan()
        plan._pack_bits(n, k, bits, block, q, scales, zeros, bias, activations.parse(node.activation, n), rounds(node))
        return plan

    add_linear(p, node, p.layer(node.name, make), k, rounds(node))
    return True


def _like(place):
    return lambda node, inputs, i: inputs[place].dtype


RECORDS = {
    "DequantizeBits": Operator(
        _dequantize,
        Inference(weights_shape, dtype=_like(1), may_grow=True),
        NumPyOnly("constant as soon as the weights are"),
        None,
    ),
    "LinearBits": Operator(
        _linear,
        Inference(_linear_shape),
        Kernel(_lower_linear, fuses={"residual", "activation"}, weights="product of weights in blocks", scale_input=0),
        None,
        optional={2},
    ),
    "MatMulBits": Operator(
        _matmul, Inference(_matmul_shape), NumPyOnly("passes make a LinearBits or a MatMul of it"), None
    ),
}
