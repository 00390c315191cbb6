"""Inverses, solutions and decompositions of matrices, what adds up along an axis, places in sorted rows: by NumPy."""

from typing import Literal

import numpy as np

from .schema import Inference, NumPyOnly, Operator, always, broadcast_shapes


def _inverse(node, x):
    try:
        return np.linalg.inv(x.astype(np.float64)).astype(x.dtype)
    except np.linalg.LinAlgError as e:
        raise ValueError(f"a matrix has no inverse: {e}") from None


def _square(node, x):
    if len(x.shape) < 2 or x.shape[-1] != x.shape[-2]:
        raise ValueError(f"matrices of shape {x.shape} are not square")
    return x.shape


def _in_float64(function):
    """A function of matrices in float64, whose results have the type of the first."""

    def run(node, x, *others):
        try:
            found = function(node, x.astype(np.float64), *(a.astype(np.float64) for a in others))
        except np.linalg.LinAlgError as e:
            raise ValueError(f"{node.op} of such matrices: {e}") from None
        return found.astype(x.dtype) if isinstance(found, np.ndarray) else [np.asarray(y, x.dtype) for y in found]

    return run


def _singular_values(node, x):
    return np.linalg.svd(x, compute_uv=False)


def _singular_decomposition(node, x):
    return np.linalg.svd(x, full_matrices=bool(node.attrs["full"]))


def _singular_shapes(node, x):
    *batch, m, n = x.shape
    k = _least(m, n)
    u, v = ((m, m), (n, n)) if node.attrs["full"] else ((m, k), (k, n))
    return [(*batch, *u), (*batch, k), (*batch, *v)]


def _solve(node, a, b):
    """x of a x = b, or of x a = b; `vector`: b is one column for each a."""
    if node.attrs.get("vector"):
        return np.linalg.solve(a, b[..., np.newaxis])[..., 0]
    if node.attrs.get("left", 1):
        return np.linalg.solve(a, b)
    return np.linalg.solve(a.swapaxes(-1, -2), b.swapaxes(-1, -2)).swapaxes(-1, -2)


def _solve_shape(node, a, b):
    _square(node, a)
    columns = 1 if node.attrs.get("vector") else 2
    return (*broadcast_shapes(a.shape[:-2], b.shape[:-columns]), *b.shape[-columns:])


def _solve_triangular(node, a, b):
    """As _solve, of a triangle of a, by substitution: a zero on the diagonal gives infinities, as in LAPACK; `unit`:
    the diagonal is of ones."""
    upper = bool(node.attrs["upper"])
    if not node.attrs["left"]:
        a, b, upper = a.swapaxes(-1, -2), b.swapaxes(-1, -2), not upper
    n = a.shape[-1]
    x = np.array(np.broadcast_to(b, (*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), *b.shape[-2:])))
    with np.errstate(all="ignore"):
        for i in reversed(range(n)) if upper else range(n):
            if not node.attrs["unit"]:
                x[..., i, :] /= a[..., i, i, np.newaxis]
            rest = slice(i) if upper else slice(i + 1, n)
            x[..., rest, :] -= a[..., rest, i, np.newaxis] * x[..., i, np.newaxis, :]
    return x if node.attrs["left"] else x.swapaxes(-1, -2)


def _cholesky(node, x):
    found = np.linalg.cholesky(x)
    return found.swapaxes(-1, -2) if node.attrs.get("upper") else found


def _pseudo_inverse(node, x):
    return np.linalg.pinv(x, node.attrs["rtol"], hermitian=bool(node.attrs.get("hermitian")))


def _symmetric_eigen(node, x):
    return tuple(np.linalg.eigh(x, node.attrs.get("triangle", "L")))


def _qr(node, x):
    if node.attrs["mode"] == "r":
        return np.zeros(0), np.linalg.qr(x, "r")
    return tuple(np.linalg.qr(x, node.attrs["mode"]))


def _qr_shapes(node, x):
    *batch, m, n = x.shape
    k = m if node.attrs["mode"] == "complete" else _least(m, n)
    return [(0,) if node.attrs["mode"] == "r" else (*batch, m, k), (*batch, k, n)]


def _matrix_exponential(node, x):
    """By Taylor's series of x / 2^s, squared s times."""
    size = np.abs(x).sum(-1).max(initial=0)
    squarings = max(0, int(np.ceil(np.log2(size))) + 1) if 0 < size < np.inf else 0
    x = x / 2.0**squarings
    total = term = np.broadcast_to(np.eye(x.shape[-1]), x.shape)
    for i in range(1, 20):
        term = term @ x / i
        total = total + term
    for _ in range(squarings):
        total = total @ total
    return total


def _least(rows, columns):
    return min(rows, columns)


# ---- along an axis

_FUNCTIONS = {"max": np.maximum, "min": np.minimum, "logsumexp": np.logaddexp}


def _accumulated(node, x):
    """What the elements up to each one give together; of the largest and smallest also the last index that they had."""
    function, axis = _FUNCTIONS[node.attrs["function"]], node.attrs["axis"]
    y = function.accumulate(x, axis) if x.ndim else x
    if len(node.outputs) == 1:
        return y
    each = np.arange(x.shape[axis]).reshape([-1 if a == axis else 1 for a in range(x.ndim)]) if x.ndim else 0
    index = np.where((x == y) | (x != x), each, 0)
    return [y, np.maximum.accumulate(index, axis) if x.ndim else index]


def _nan_median(node, x):
    """[the lower median of the numbers along an axis, its index]."""
    axis = node.attrs["axis"]
    count = np.count_nonzero(~np.isnan(x), axis, keepdims=True)
    index = np.take_along_axis(np.argsort(x, axis, kind="stable"), np.maximum(count - 1, 0) // 2, axis)
    return [np.take_along_axis(x, index, axis), index]


def _nan_median_shapes(node, x):
    shape = tuple(1 if a == node.attrs["axis"] else n for a, n in enumerate(x.shape))
    return [shape, shape]


def _and_index(node, inputs, i):
    return inputs[0].dtype if i == 0 else np.dtype(np.int64)


# ---- sorted rows


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
_BATCHED = NumPyOnly(_WHY)


def _two_like(node, x):
    return [x.shape, x.shape]


RECORDS = {
    "Accumulated": Operator(_accumulated, Inference(_two_like, dtype=_and_index), NumPyOnly("no kernel: rare"), None),
    "Cholesky": Operator(_in_float64(_cholesky), Inference(_square), _BATCHED, None),
    "LogDeterminant": Operator(
        _in_float64(lambda node, x: tuple(np.linalg.slogdet(x))),
        Inference(lambda node, x: [x.shape[:-2]] * 2),
        _BATCHED,
        None,
    ),
    "MatrixExponential": Operator(_in_float64(_matrix_exponential), Inference(_square), _BATCHED, None),
    "NanMedian": Operator(_nan_median, Inference(_nan_median_shapes, dtype=_and_index), _BATCHED, None),
    "PseudoInverse": Operator(
        _in_float64(_pseudo_inverse), Inference(lambda node, x: (*x.shape[:-2], *x.shape[:-3:-1])), _BATCHED, None
    ),
    "QR": Operator(_in_float64(_qr), Inference(_qr_shapes), _BATCHED, None),
    "SingularDecomposition": Operator(
        _in_float64(_singular_decomposition), Inference(_singular_shapes), _BATCHED, None
    ),
    "Solve": Operator(_in_float64(_solve), Inference(_solve_shape), _BATCHED, None),
    "SolveTriangular": Operator(_in_float64(_solve_triangular), Inference(_solve_shape), _BATCHED, None),
    "SymmetricEigen": Operator(
        _in_float64(_symmetric_eigen), Inference(lambda node, x: [x.shape[:-1], _square(node, x)]), _BATCHED, None
    ),
    "com.microsoft.Inverse": Operator(_inverse, Inference(_square), NumPyOnly(_WHY)),
    "SearchSorted": Operator(_search, Inference(_search_shape, dtype=always(np.int64)), NumPyOnly(_WHY), None),
    "SingularValues": Operator(
        _in_float64(_singular_values),
        Inference(lambda node, x: (*x.shape[:-2], _least(*x.shape[-2:]))),
        NumPyOnly(_WHY),
        None,
    ),
}
