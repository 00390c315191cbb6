"""Operators that pick, order, move or contract elements, in plain NumPy; see evaluate.py."""
import string

import numpy as np


def best(function):
    """ArgMax and ArgMin: the place along an axis, as an axis of length 1 if ``keepdims``."""
    def run(node, x):
        axis = node.attrs.get("axis", 0)
        if node.attrs.get("select_last_index", 0):
            i = x.shape[axis] - 1 - function(np.flip(x, axis), axis)
        else:
            i = function(x, axis)
        return np.expand_dims(i, axis) if node.attrs.get("keepdims", 1) else i
    return run


def top_k(node, x, k):
    """The k largest or smallest along an axis, in order, and their places; of equal ones the first."""
    axis, largest = node.attrs.get("axis", -1), node.attrs.get("largest", 1)
    order = np.flip(x, axis) if largest else x
    order = np.argsort(order, axis, kind="stable")
    order = x.shape[axis] - 1 - np.flip(order, axis) if largest else order
    order = order.take(range(k.item()), axis)
    return np.take_along_axis(x, order, axis), order


def cumsum(node, x, axis):
    axis = axis.item()
    y = np.flip(x, axis) if node.attrs.get("reverse", 0) else x
    y = y.cumsum(axis, dtype=x.dtype)
    if node.attrs.get("exclusive", 0):
        rows = np.moveaxis(y, axis, 0)
        rows[1:], rows[:1] = rows[:-1].copy(), 0
    return np.flip(y, axis) if node.attrs.get("reverse", 0) else y


def triangle(node, x, k=None):
    return (np.triu if node.attrs.get("upper", 1) else np.tril)(x, 0 if k is None else k.item())


def _along(node, i):
    """The index of elements whose place along one axis is in i, and along the others their own."""
    index = list(np.indices(i.shape, sparse=True))
    index[node.attrs.get("axis", 0)] = i
    return tuple(index)


def gather_elements(node, x, i):
    return x[_along(node, i)]


def gather_nd(node, x, i):
    """Elements, or parts of x, whose leading indices are rows of i, behind ``batch_dims`` axes that both have."""
    batch = node.attrs.get("batch_dims", 0)
    own = (a.reshape(*a.shape, *[1] * (i.ndim - 1 - batch)) for a in np.indices(i.shape[:batch], sparse=True))
    return x[(*own, *np.moveaxis(i, -1, 0))]


def _scattered(node, x, index, updates):
    y, reduction = x.copy(), node.attrs.get("reduction", "none")
    if reduction == "none":
        y[index] = updates
    else:
        {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}[reduction].at(y, index, updates)
    return y


def scatter_elements(node, x, i, updates):
    return _scattered(node, x, _along(node, i), updates)


def scatter_nd(node, x, i, updates):
    return _scattered(node, x, tuple(np.moveaxis(i, -1, 0)), updates)


def blocks(node, shape):
    """How DepthToSpace and SpaceToDepth move squares of pixels: (x's shape with the squares as axes, the order of those in y, y's shape)."""
    (n, c, h, w), b = shape, node.attrs["blocksize"]
    if node.op == "SpaceToDepth":
        if b < 1 or h % b or w % b:
            raise ValueError(f"an image of {h} x {w} does not consist of blocks of {b} x {b}")
        order = (0, 1, 3, 5, 2, 4) if node.attrs.get("mode", "DCR") == "CRD" else (0, 3, 5, 1, 2, 4)
        return (n, c, h // b, b, w // b, b), order, (n, c * b * b, h // b, w // b)
    if b < 1 or c % (b * b):
        raise ValueError(f"{c} channels do not fill blocks of {b} x {b} pixels")
    rest = c // (b * b)
    if node.attrs.get("mode", "DCR") == "CRD":
        return (n, rest, b, b, h, w), (0, 1, 4, 2, 5, 3), (n, rest, h * b, w * b)
    return (n, b, b, rest, h, w), (0, 3, 4, 1, 5, 2), (n, rest, h * b, w * b)


def move_blocks(node, x):
    split, order, shape = blocks(node, x.shape)
    return x.reshape(split).transpose(order).reshape(shape)


def einsum_terms(equation, ndims):
    """([the letters of each operand's axes], the letters of the result's axes); an ellipsis becomes capital letters of its own."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    spare = [c for c in string.ascii_uppercase if c not in equation]
    hidden = [n - len(t.replace("...", "")) if "..." in t else 0 for t, n in zip(terms, ndims, strict=True)]
    ellipsis = "".join(spare[:max(hidden)])
    if not arrow:
        right = "..." * any("..." in t for t in terms) + "".join(sorted(c for c in set(left) - {",", "."} if left.count(c) == 1))
    terms = [t.replace("...", ellipsis[len(ellipsis) - n:]) for t, n in zip(terms, hidden, strict=True)]
    if [len(t) for t in terms] != list(ndims):
        raise ValueError(f"the equation {equation!r} does not fit inputs of {', '.join(map(str, ndims))} axes")
    return terms, right.replace("...", ellipsis)


def einsum(node, *xs):
    return np.einsum(node.attrs["equation"], *xs, optimize=True)


def log_sum_exp(x, axes, keepdims):
    most = x.max(axes, keepdims=True, initial=-np.inf)
    most = np.where(np.isfinite(most), most, 0).astype(x.dtype)
    with np.errstate(divide="ignore"):
        y = np.log(np.exp(x - most).sum(axes, keepdims=True)) + most
    return y if keepdims else y.squeeze(axes)
