"""Matrices that are inverted or taken apart, and places in sorted rows: by NumPy."""

from typing import Literal

import numpy as np

from .schema import Inference, NumPyOnly, Operator, always


def _inverse(node, x):
    try:
        return np.linalg.inv(x.astype(np.float64)).astype(x.dtype)
    except np.linalg.LinAlgError as e:
        raise ValueError(f"a matrix has no inverse: {e}") from None


def _square(node, x):
    if len(x.shape) < 2 or x.shape[-1] != x.shape[-2]:
        raise ValueError(f"matrices of shape {x.shape} are not square")
    return x.shape


def _singular_values(node, x):
    return np.linalg.svd(x.astype(np.float64), compute_uv=False).astype(x.dtype)


def _least(rows, columns):
    return min(rows, columns)


def _search(node, rows, x):
    """How many elements of sorted rows are below each of x: one row for all, or one for each of x's."""
    side: Literal["left", "right"] = "right" if node.attrs.get("right", 0) else "left"
    if rows.ndim == 1:
        return np.searchsorted(rows, x, side).astype(np.int64)
    y = np.empty(x.shape, np.int64)
    for at in np.ndindex(rows.shape[:-1]):
        y[at] = np.searchsorted(rows[at], x[at], side)
    return y


def _search_shape(node, rows, x):
    if len(rows.shape) != 1 and rows.shape[:-1] != x.shape[:-1]:
        raise ValueError(f"rows of shape {rows.shape} do not fit values of shape {x.shape}")
    return x.shape


_WHY = "no kernel: NumPy's are fast"
RECORDS = {
    "com.microsoft.Inverse": Operator(_inverse, Inference(_square), NumPyOnly(_WHY)),
    "SearchSorted": Operator(_search, Inference(_search_shape, dtype=always(np.int64)), NumPyOnly(_WHY), None),
    "SingularValues": Operator(
        _singular_values, Inference(lambda node, x: (*x.shape[:-2], _least(*x.shape[-2:]))), NumPyOnly(_WHY), None
    ),
}
