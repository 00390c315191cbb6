"""Functions of int16 by tables, with the integers of TFLite's reference kernels."""

import numpy as np

from .schema import Inference, NumPyOnly, Operator, always

_WHY = "a table of all values is read"


def _looked_up(node, x, table):
    """The element of a table for each of the 65536 values of int16, of which negative ones are the second half."""
    return table.take(np.ascontiguousarray(x).view(np.uint16))


def interpolated(table, x):
    """Values of int16 between the 513 of a table, at a distance of 128, in int64."""
    at = 256 + (x >> 7)
    base = table[at].astype(np.int64)
    return base + ((table[at + 1] - base) * (x & 127) + 64 >> 7)


def _scaled(x, multiplier, shift):
    """x * multiplier * 2^(shift - 31), rounded as TFLite does: first to an integer, ties away from zero, then by the
    shift to the right."""
    product = (x << max(shift, 0)) * multiplier
    high = np.where(product >= 0, product + (1 << 30) >> 31, -(-product + (1 << 30) - 1 >> 31))
    right = max(-shift, 0)
    mask = (1 << right) - 1
    return (high >> right) + ((high & mask) > (mask >> 1) + (high < 0))


def _softmax(node, x, exponentials, reciprocals):
    """Softmax along the last axis: exponentials of differences to the largest in 1/32768, from a table of -10 to 0, and
    their sum's reciprocal from one of 1 / (1 + v)."""
    wide = x.astype(np.int64)
    below = _scaled(wide - wide.max(-1, keepdims=True), node.attrs["multiplier"], node.attrs["shift"])
    powers = interpolated(exponentials, np.clip(below + 32767, -32768, 32767))
    sums = powers.sum(-1, keepdims=True)
    bits = np.frexp(sums.astype(np.float64))[1]  # sums are below 2^bits
    shifted = (sums << 31 - bits) + (1 << 13) >> 14
    factor = interpolated(reciprocals, np.clip(shifted - (1 << 15) - (1 << 16), -32768, 32767))
    result = powers * factor + (1 << bits - 2) >> bits - 1
    return np.clip(result, 0, 32767).astype(np.int16)


def _by(compute, size):
    """An operator that reads tables of so many values."""

    def shape(node, x, *tables):
        if x.dtype != np.int16 or any(t.shape != (size,) for t in tables):
            shapes = [t.shape for t in tables]
            raise ValueError(f"{x.dtype} and tables of shape {shapes}, but it takes int16 and tables of {size} values")
        return x.shape

    return Operator(compute, Inference(shape, always(np.int16)), NumPyOnly(_WHY), None)


RECORDS = {"LookedUpInt16": _by(_looked_up, 65536), "SoftmaxInt16": _by(_softmax, 513)}
