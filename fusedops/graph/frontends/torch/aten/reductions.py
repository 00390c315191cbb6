"""Sums, means, extremes, and orders along axes."""

import numpy as np

from ..fx_values import FxValue, Unsupported
from .shapes import axis, part


def axes_of(x, dim):
    """Axes as a list of numbers from 0; None or an empty list is all of them."""
    dims = [dim] if isinstance(dim, int) else list(dim) if dim else range(x.ndim)
    return [axis(x, d) for d in dims]


def _reduce(op):
    def read(p, x, dim=None, keepdim=False, dtype=None):
        return reduced(p, op, p.cast(x, p.made.dtype), dim, keepdim)

    return read


def reduced(p, op, x, dim, keepdim, axes=None):
    axes = axes_of(x, dim) if axes is None else axes
    return p.op(op, x, axes, keepdims=int(keepdim)) if axes else p.op("Identity", x)


def _test(op):
    """any and all, of numbers too."""

    def read(p, x, dim=None, keepdim=False):
        truth = p.cast(p.cast(x, p.torch.bool), p.torch.int32)
        return p.op("Cast", reduced(p, op, truth, dim, keepdim), to=9)

    return read


def _extreme(op, best):
    """max and min: of all, along an axis with the places, or of two tensors."""

    def read(p, x, dim=None, keepdim=False, other=None):
        if other is not None:
            return p.op(op, p.cast(x, p.made.dtype), p.cast(other, p.made.dtype))
        if dim is None:
            return reduced(p, f"Reduce{op}", x, None, False)
        dim = axis(x, dim)
        return [p.op(f"Reduce{op}", x, [dim], keepdims=int(keepdim)), p.op(best, x, axis=dim, keepdims=int(keepdim))]

    return read


def _best(op):
    def read(p, x, dim=None, keepdim=False):
        if dim is None:
            x, dim = p.op("Reshape", x, [-1]), 0
            place = p.op(op, x, axis=0, keepdims=0)
            return p.reshape(p.typed(place, p.made), p.made.shape) if keepdim else place
        return p.op(op, x, axis=axis(x, dim), keepdims=int(keepdim))

    return read


def _count(p, x, axes):
    """How many elements are reduced, as a number or a value."""
    found = 1
    for a in axes:
        n = p.size(x.shape[a])
        known = isinstance(found, int) and isinstance(n, int)
        found = found * n if known else p.op("Mul", *[p.number(v, np.int64) for v in (found, n)])
    return found


def variance(p, x, dim, correction, keepdim):
    """(variance, mean): the sum of squared distances from the mean, over their number less the correction."""
    axes = axes_of(x, dim)
    mean = p.op("ReduceMean", x, axes, keepdims=1)
    distance = p.op("Sub", x, mean)
    squares, count = p.op("Mul", distance, distance), _count(p, x, axes)
    if correction == 0:
        found = p.op("ReduceMean", squares, axes, keepdims=int(keepdim))
    else:
        if isinstance(count, int):
            divisor = p.scalar(max(count - correction, 0), x)
        else:
            divisor = p.op("Sub", p.cast_to(count, p.numpy_type(x.dtype, "a tensor")), p.scalar(correction, x))
        found = p.op("Div", p.op("ReduceSum", squares, axes, keepdims=int(keepdim)), divisor)
    return found, mean if keepdim else p.op("Squeeze", mean, axes)


def _spread(root=False, mean=False):
    def read(p, x, dim=None, unbiased=True, correction=None, keepdim=False):
        found, middle = variance(p, x, dim, int(unbiased) if correction is None else correction, keepdim)
        found = p.op("Sqrt", found) if root else found
        return [found, middle] if mean else found

    return read


def _norm(p, x, ord=2, dim=None, keepdim=False, dtype=None):
    x = p.cast(x, p.made.dtype)
    axes = axes_of(x, dim)
    if ord in (1, 2):
        return p.op(f"ReduceL{int(ord)}", x, axes, keepdims=int(keepdim))
    size = p.op("Abs", x)
    if ord in (float("inf"), -float("inf")):
        return p.op("ReduceMax" if ord > 0 else "ReduceMin", size, axes, keepdims=int(keepdim))
    if ord == 0:
        return p.op("ReduceSum", p.op("Sign", size), axes, keepdims=int(keepdim))
    total = p.op("ReduceSum", p.op("Pow", size, p.scalar(ord, x)), axes, keepdims=int(keepdim))
    return p.op("Pow", total, p.scalar(1 / ord, x))


def _old_norm(p, x, /, dim=None, keepdim=False, dtype=None, **given):
    order = given.get("p")
    return _norm(p, x, 2 if order is None else order, dim, keepdim)


def _log_sum_exp(p, x, dim, keepdim=False):
    return reduced(p, "ReduceLogSumExp", p.cast(x, p.made.dtype), dim, keepdim)


def _top_k(p, x, k, dim=-1, largest=True, sorted=True):
    return p.op("TopK", x, p.shape([k]), count=2, axis=axis(x, dim), largest=int(largest), sorted=int(sorted))


def _sort(p, x, dim=-1, descending=False, stable=False):
    dim = axis(x, dim)
    return _top_k(p, x, x.shape[dim], dim, descending)


def _arg_sort(p, x, dim=-1, descending=False, stable=False):
    return _sort(p, x, dim, descending)[1]


def _cumulative(op):
    def read(p, x, dim, dtype=None):
        terms = p.cast(x, p.made.dtype)
        return p.op(op, terms, p.number(axis(x, dim), np.int64)) if x.ndim else terms

    return read


def _diff(p, x, n=1, dim=-1, prepend=None, append=None):
    """What each element adds to the one before it, n times over."""
    dim = axis(x, dim)
    ends = [t for t in (prepend, x, append) if t is not None]
    x = FxValue(p.op("Concat", *ends, axis=dim) if len(ends) > 1 else p.name(x), p.made.shape, x.dtype)
    op = "Xor" if x.dtype == p.torch.bool else "Sub"
    for _ in range(n):
        x = FxValue(p.op(op, part(p, x, dim, 1), part(p, x, dim, 0, -1)), x.shape, x.dtype)
    return x


def _histogram(p, x, bins=100, min=0, max=0):
    """How many elements are in each of as many bins; the last one has its upper end, too."""
    if min == max:
        raise Unsupported("fusedops does not have histc between the least and the largest value: give min and max")
    dtype = p.numpy_type(p.made.dtype)
    low, high = np.array(min, dtype), np.array(max, dtype)
    x = p.op("Reshape", x, [-1])
    bin = p.op("Mul", p.op("Sub", x, p.name(low)), p.name(np.array(bins, dtype)))  # rounded as torch rounds it
    bin = p.op(
        "Min", p.op("Floor", p.op("Div", bin, p.name(np.array(high - low, dtype)))), p.name(np.array(bins - 1, dtype))
    )
    inside = p.op("And", p.op("GreaterOrEqual", x, p.name(low)), p.op("LessOrEqual", x, p.name(high)))
    bin = p.op("Where", inside, bin, p.name(np.array(bins, dtype)))  # NaN and what is outside after the last
    one = p.op("Expand", p.name(np.ones(1, dtype)), p.op("Shape", x))
    none = p.name(np.zeros(bins + 1, dtype))
    counts = p.op("ScatterElements", none, p.op("Cast", bin, to=7), one, axis=0, reduction="add")
    return p.op("Slice", counts, [0], [bins], [0])


READERS = {
    **{
        name: _reduce(op)
        for name, op in {
            "sum": "ReduceSum",
            "mean": "ReduceMean",
            "prod": "ReduceProd",
            "amax": "ReduceMax",
            "amin": "ReduceMin",
        }.items()
    },
    "any": _test("ReduceMax"),
    "all": _test("ReduceMin"),
    "max": _extreme("Max", "ArgMax"),
    "min": _extreme("Min", "ArgMin"),
    "argmax": _best("ArgMax"),
    "argmin": _best("ArgMin"),
    "var": _spread(),
    "std": _spread(root=True),
    "var_mean": _spread(mean=True),
    "std_mean": _spread(root=True, mean=True),
    "linalg_vector_norm": _norm,
    "norm": _old_norm,
    "logsumexp": _log_sum_exp,
    "topk": _top_k,
    "sort": _sort,
    "argsort": _arg_sort,
    "msort": lambda p, x: _sort(p, x, 0)[0],
    "cumprod": _cumulative("CumProd"),
    "cumsum": _cumulative("CumSum"),
    "diff": _diff,
    "histc": _histogram,
}
