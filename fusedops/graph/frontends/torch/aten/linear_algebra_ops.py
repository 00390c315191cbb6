"""Inverses, singular values, distances of rows, and places in sorted rows."""

import math

import numpy as np

from ....ir.dtypes import to_onnx
from ....ir.graph import Node, unique
from ..fx_values import Unsupported


def _own(p, op, *inputs, **attrs):
    """The result of a node of the graph's own, which no file has."""
    name = unique(f"{p.path}.{op}".lstrip("."), p.names)
    y = p.fresh(name)
    p.add(Node(op, name, [p.name(v) for v in inputs], [y], attrs))
    return y


def _inverse(p, x):
    return p.op("com.microsoft.Inverse", x)


def _inverse_and_info(p, x, check_errors=False):
    return [_inverse(p, x), p.op("Expand", p.torch.tensor(0, dtype=p.torch.int32), p.shape(p.made[1].shape))]


def _singular_values(p, x, *_, **__):
    return _own(p, "SingularValues", x)


def _decomposed(p, x, *_, **given):
    if any(reader.args[1] != 1 and reader.users for reader in p.fx_node.users):
        raise Unsupported("fusedops has singular values, but not the vectors of a decomposition")
    return [None, _singular_values(p, x), None]


def _distance(p, x, /, x2, **given):
    """Distances between the rows of two matrices."""
    ends = p.op("Unsqueeze", x, [x.ndim - 1]), p.op("Unsqueeze", x2, [x2.ndim - 2])
    gaps, power = p.op("Sub", *ends), float(given.get("p", 2))
    if power in (1, 2):
        return p.op(f"ReduceL{power:.0f}", gaps, [-1], keepdims=0)
    gaps = p.op("Abs", gaps)
    if math.isinf(power):
        return p.op("ReduceMax", gaps, [-1], keepdims=0)
    if power == 0:
        return p.op("ReduceSum", p.op("Sign", gaps), [-1], keepdims=0)
    total = p.op("ReduceSum", p.op("Pow", gaps, p.scalar(power, p.made)), [-1], keepdims=0)
    return p.op("Pow", total, p.scalar(1 / power, p.made))


def _smallest(p, x, dim, k):
    """[the last of the k smallest elements along an axis, its place], with that axis of 1; k is a value."""
    found = p.op("TopK", x, p.op("Reshape", k, [1]), count=2, axis=dim, largest=0)
    return [p.op("Gather", v, np.array([-1]), axis=dim) for v in found]


def _reduced(p, x, dim, keepdim, k):
    found = _smallest(p, x, dim, k)
    return found if keepdim else [p.op("Squeeze", v, [dim]) for v in found]


def _median(p, x, dim=None, keepdim=False):
    """The lower one of an even number."""
    flat = x if dim is not None else p.op("Reshape", x, [-1])
    axis = dim % max(x.ndim, 1) if dim is not None else 0
    n = p.op("Squeeze", p.op("Shape", flat, start=axis, end=axis + 1), [0])
    k = p.op("Div", p.op("Add", n, p.torch.tensor(1)), p.torch.tensor(2))
    found = _reduced(p, flat, axis, keepdim, k)
    return found if dim is not None else found[0]


def _kth(p, x, k, dim=-1, keepdim=False):
    return _reduced(p, x, dim % max(x.ndim, 1), keepdim, p.number(p.size(k), np.int64))


def _bucketize(p, x, boundaries, out_int32=False, right=False):
    return _searched(p, boundaries, x, out_int32, right)


def _search(p, rows, self=None, out_int32=False, right=False, side=None, sorter=None, **_):
    if sorter is not None or not hasattr(self, "dtype"):
        raise Unsupported("fusedops does not have searchsorted with a sorter, or of a number")
    return _searched(p, rows, self, out_int32, right or side == "right")


def _searched(p, rows, x, out_int32, right):
    common = p.torch.promote_types(rows.dtype, x.dtype)
    y = _own(p, "SearchSorted", p.cast(rows, common), p.cast(x, common), right=int(right))
    return p.op("Cast", y, to=to_onnx(np.int32)) if out_int32 else y


READERS = {
    "_linalg_svd": _decomposed,
    "bucketize": _bucketize,
    "cdist": _distance,
    "_cdist_forward": _distance,
    "inverse": _inverse,
    "kthvalue": _kth,
    "linalg_inv": _inverse,
    "linalg_inv_ex": _inverse_and_info,
    "linalg_svdvals": _singular_values,
    "median": _median,
    "searchsorted": _search,
}
