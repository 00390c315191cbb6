"""Inverses, systems of equations, decompositions, distances of rows, what adds up along an axis, and places in sorted
rows."""

import math

import numpy as np

from ....ir.dtypes import to_onnx
from ....ir.graph import Node, unique
from ..fx_values import Unsupported


def _own(p, op, *inputs, count=1, **attrs):
    """The result of a node of the graph's own, which no file has, or a list of them."""
    name = unique(f"{p.path}.{op}".lstrip("."), p.names)
    made = [p.fresh(name) for _ in range(count)]
    p.add(Node(op, name, [p.name(v) for v in inputs], list(made), attrs))
    return made if count > 1 else made[0]


def _inverse(p, x):
    return p.op("com.microsoft.Inverse", x)


def _with_info(read):
    """An operator that also says by 0 that it succeeded: it raises an error otherwise."""

    def both(p, x, check_errors=False, **given):
        last = len(p.made) - 1
        if not check_errors and any(reader.args[1] == last and reader.users for reader in p.fx_node.users):
            raise Unsupported("fusedops does not say in numbers which matrices have no result: pass check_errors=True")
        info = p.op("Expand", p.torch.tensor(0, dtype=p.torch.int32), p.shape(p.made[-1].shape))
        return [read(p, x, **given), *[None] * (len(p.made) - 2), info]

    return both


# ---- systems of equations


def _solve(p, x, B, left=True):
    sizes = (x.shape[:-1], B.shape)
    vector = B.ndim == 1 or B.ndim == x.ndim - 1 and [str(n) for n in sizes[0]] == [str(n) for n in sizes[1]]
    return _own(p, "Solve", x, B, left=int(left), vector=int(vector))


def _solve_triangular(p, x, B, *, upper, left=True, unitriangular=False):
    return _own(p, "SolveTriangular", x, B, upper=int(upper), left=int(left), unit=int(unitriangular))


def _old_triangular(p, x, A, upper=True, transpose=False, unitriangular=False):
    matrix = _transposed(p, A, A.ndim) if transpose else A
    return [_solve_triangular(p, matrix, x, upper=upper != transpose, unitriangular=unitriangular), A]


def _transposed(p, x, ndim):
    return p.op("Transpose", x, perm=[*range(ndim - 2), ndim - 1, ndim - 2])


def _cholesky(p, x, upper=False):
    return _own(p, "Cholesky", x, upper=int(upper))


def _of_factor(p, x, upper):
    """The matrix whose Cholesky factor is a triangle of this."""
    factor = p.op("Trilu", x, upper=int(upper))
    other = _transposed(p, factor, x.ndim)
    return p.op("MatMul", other, factor) if upper else p.op("MatMul", factor, other)


def _cholesky_solve(p, x, input2, upper=False):
    return _own(p, "Solve", _of_factor(p, input2, upper), x)


def _cholesky_inverse(p, x, upper=False):
    return p.op("com.microsoft.Inverse", _of_factor(p, x, upper))


def _pseudo_inverse(p, x, rcond=None, hermitian=False, atol=None, rtol=None):
    given = rtol if rcond is None else rcond
    if atol or not isinstance(given, (int, float, type(None))):
        raise Unsupported("fusedops takes pinv with rtol alone, a number")
    if given is None:
        given = max(x.shape[-2:]) * p.torch.finfo(x.dtype).eps
    return _own(p, "PseudoInverse", x, rtol=float(given), hermitian=int(hermitian))


# ---- decompositions


def _singular_values(p, x, *_, **__):
    return _own(p, "SingularValues", x)


def _decomposed(p, x, full_matrices=False, compute_uv=True, driver=None):
    if not any(reader.args[1] != 1 and reader.users for reader in p.fx_node.users):
        return [None, _singular_values(p, x), None]
    return _own(p, "SingularDecomposition", x, count=3, full=int(full_matrices))


def _eigen(p, x, UPLO="L", compute_v=True):
    return _own(p, "SymmetricEigen", x, count=2, triangle=UPLO)


def _qr(p, x, mode="reduced"):
    return _own(p, "QR", x, count=2, mode=mode)


def _log_determinant(p, x):
    found = _own(p, "LogDeterminant", x, count=2)
    return [*found, *[None] * (len(p.made) - 2)]


def _real_log_determinant(p, x):
    sign, size = _own(p, "LogDeterminant", x, count=2)
    return p.op("Add", p.op("Log", sign), size)


def _exponential(p, x):
    return _own(p, "MatrixExponential", x)


# ---- along an axis


def _accumulated(function):
    def read(p, x, dim, dtype=None):
        several = isinstance(p.made, (list, tuple))
        x = x if several else p.cast(x, p.made.dtype)
        return _own(p, "Accumulated", x, count=1 + several, function=function, axis=dim % max(x.ndim, 1))

    return read


def _row(p, x, dim):
    """What a median along an axis, or of all, is taken of, and along which axis."""
    return (p.op("Reshape", x, [-1]), 0) if dim is None or x.ndim == 0 else (x, dim % x.ndim)


def _without(p, found, x, axis, keepdim):
    return found if keepdim and x.ndim else [p.op("Squeeze", v, [axis]) for v in found]


def _nan_median(p, x, dim=None, keepdim=False):
    row, axis = _row(p, x, dim)
    found = _without(p, _own(p, "NanMedian", row, count=2, axis=axis), x, axis, keepdim)
    return found[0] if dim is None else found


# ---- distances


def _distance(p, x, /, x2, **given):
    """Distances between the rows of two matrices."""
    ends = p.op("Unsqueeze", x, [x.ndim - 1]), p.op("Unsqueeze", x2, [x2.ndim - 2])
    return _norm(p, p.op("Sub", *ends), float(given.get("p", 2)))


def _distance_of_all(p, x, /, other, **given):
    return _norm(p, p.op("Reshape", p.op("Sub", x, other), [-1]), float(given.get("p", 2)))


def _norm(p, gaps, power):
    """That of the last axis."""
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


def _median(p, x, dim=None, keepdim=False):
    """The lower one of an even number."""
    row, axis = _row(p, x, dim)
    n = p.op("Squeeze", p.op("Shape", row, start=axis, end=axis + 1), [0])
    k = p.op("Div", p.op("Add", n, p.torch.tensor(1)), p.torch.tensor(2))
    found = _without(p, _smallest(p, row, axis, k), x, axis, keepdim)
    return found[0] if dim is None else found


def _kth(p, x, k, dim=-1, keepdim=False):
    row, axis = _row(p, x, dim)
    return _without(p, _smallest(p, row, axis, p.number(p.size(k), np.int64)), x, axis, keepdim)


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
    "_linalg_eigh": _eigen,
    "_linalg_slogdet": _log_determinant,
    "_linalg_solve_ex": _with_info(_solve),
    "_linalg_svd": _decomposed,
    "bucketize": _bucketize,
    "cdist": _distance,
    "_cdist_forward": _distance,
    "cholesky": _cholesky,
    "cholesky_inverse": _cholesky_inverse,
    "cholesky_solve": _cholesky_solve,
    "cummax": _accumulated("max"),
    "cummin": _accumulated("min"),
    "dist": _distance_of_all,
    "inverse": _inverse,
    "kthvalue": _kth,
    "linalg_cholesky": _cholesky,
    "linalg_cholesky_ex": _with_info(_cholesky),
    "linalg_eigh": _eigen,
    "linalg_eigvalsh": lambda p, x, UPLO="L": _eigen(p, x, UPLO)[0],
    "linalg_inv": _inverse,
    "linalg_inv_ex": _with_info(_inverse),
    "linalg_matrix_exp": _exponential,
    "linalg_pinv": _pseudo_inverse,
    "linalg_qr": _qr,
    "linalg_slogdet": _log_determinant,
    "linalg_solve": _solve,
    "linalg_solve_ex": _with_info(_solve),
    "linalg_solve_triangular": _solve_triangular,
    "linalg_svd": _decomposed,
    "linalg_svdvals": _singular_values,
    "logcumsumexp": _accumulated("logsumexp"),
    "logdet": _real_log_determinant,
    "median": _median,
    "nanmedian": _nan_median,
    "searchsorted": _search,
    "triangular_solve": _old_triangular,
}
