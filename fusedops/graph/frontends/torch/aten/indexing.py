"""What picks elements by indices, or puts them there."""

import math

import numpy as np

from ..fx_values import FxValue, Unsupported
from .shapes import axis, transpose


def _embedding(p, weight, indices, **_):
    return p.op("Gather", weight, p.cast(indices, p.torch.int64), axis=0)


def _bag(
    p,
    weight,
    indices,
    offsets,
    scale_grad_by_freq=False,
    mode=0,
    sparse=False,
    per_sample_weights=None,
    include_last_offset=False,
    padding_idx=-1,
):
    """Sums, means or maxima of rows, as many for each result; `offsets` are then a range of that step."""
    made = p.fx_node.args[2]
    step = made.args[2] if getattr(made, "args", None) and "arange" in str(made.target) and len(made.args) > 2 else None
    if not isinstance(step, int) or padding_idx is not None and padding_idx >= 0 or include_last_offset:
        raise Unsupported("fusedops does not have an embedding bag of bags that differ in length, or with padding")
    rows = p.op("Gather", weight, p.cast(indices, p.torch.int64), axis=0)
    if per_sample_weights is not None:
        rows = p.op("Mul", rows, p.op("Unsqueeze", per_sample_weights, [1]))
    bags = p.op("Reshape", rows, [-1, step, weight.shape[1]])
    return [p.op(("ReduceSum", "ReduceMean", "ReduceMax")[mode], bags, [1], keepdims=0), None, None, None]


def _index_select(p, x, dim, index):
    return p.op("Gather", x, p.cast(index, p.torch.int64), axis=axis(x, dim))


def _gather(p, x, dim, index):
    if x.ndim == 0:
        return p.op("Identity", x)
    part = _cropped(p, x, index, axis(x, dim))
    return p.op("GatherElements", part, index, axis=axis(x, dim))


def _cropped(p, x, index, dim=None):
    """The part of x that an index of smaller sizes reaches; along `dim` all of it."""
    for i, (n, m) in enumerate(zip(x.shape, index.shape, strict=True)):
        if i != dim and n != m:
            x = p.op("Slice", x, [0], p.shape([m]), [i])
    return x


def _scatter(reduction=None):
    names = {"add": "add", "multiply": "mul", "sum": "add", "prod": "mul", "amax": "max", "amin": "min", "mean": "add"}

    def read(p, x, dim, index, src=None, value=None, reduce=None, include_self=True):
        dim = axis(x, dim)
        if src is None:
            updates = p.op("Expand", p.cast(value, p.made.dtype), p.shape(index.shape))
        else:
            updates = _cropped(p, p.cast(src, p.made.dtype), index)
        how = reduction or (names[reduce] if reduce else "none")
        begin = x if include_self else _scattered(p, x, dim, index, _neutral(p, how))
        y = p.op("ScatterElements", begin, index, updates, axis=dim, reduction=how)
        return _divided(p, y, x, dim, index, include_self) if reduce == "mean" else y

    return read


def _scattered(p, x, dim, index, number, reduction="none"):
    """x with one number at each index."""
    updates = p.op("Expand", p.scalar(number, p.made), p.shape(index.shape))
    return p.op("ScatterElements", x, index, updates, axis=dim, reduction=reduction)


def _neutral(p, reduction):
    """The number that a reduction begins with."""
    dtype = p.made.dtype
    if dtype == p.torch.bool:
        raise Unsupported("fusedops does not have scatter_reduce of bools without the elements that were there")
    least, largest = -math.inf, math.inf
    if not dtype.is_floating_point:
        least, largest = p.torch.iinfo(dtype).min, p.torch.iinfo(dtype).max
    return {"add": 0, "mul": 1, "max": least, "min": largest}[reduction]


def _divided(p, y, x, dim, index, include_self):
    """Sums over how many elements they have."""
    if not p.made.dtype.is_floating_point:
        raise Unsupported("fusedops does not have scatter_reduce by the mean of integers")
    count = p.op("Expand", p.scalar(int(include_self), p.made), p.shape(x.shape))
    count = _scattered(p, count, dim, index, 1, "add")
    return p.op("Div", y, p.op("Max", count, p.scalar(1, p.made)))


def _index(p, x, indices):
    """x[i, :, j]: elements at indices that broadcast together."""
    given = [(d, i) for d, i in enumerate(indices) if i is not None]
    if len(indices) == 1 and indices[0].dtype == p.torch.bool:
        return _selected(p, x, indices[0])
    if any(i.dtype in (p.torch.bool, p.torch.uint8) for _, i in given):
        raise Unsupported("fusedops does not have an index of bools among others")
    if len(given) == 1:
        return p.op("Gather", x, p.cast(given[0][1], p.torch.int64), axis=given[0][0])
    if _is_grid(p, given):
        return _of_grid(p, x, given)
    return _at_table(p, x, given)


def _at_table(p, x, given):
    """By a table of indices; their axes come where the first index is, or in front if they are not neighbors."""
    dims = [d for d, _ in given]
    rest = [d for d in range(x.ndim) if d not in dims]
    table = _table(p, [i for _, i in given])
    y = p.op("GatherND", transpose(p, x, dims + rest), table)
    axes, first = max(i.ndim for _, i in given), dims[0]
    if dims != list(range(first, first + len(dims))) or first == 0:
        return y
    before = [axes + k for k in range(first)]
    return p.op("Transpose", y, perm=[*before, *range(axes), *range(axes + first, axes + len(rest))])


def _is_grid(p, given):
    """Whether constant indices of neighboring axes are a grid, such as x[:, :, rows[:, None], columns]."""
    dims, indices = zip(*given, strict=True)
    shapes = [(1,) * (len(dims) - i.ndim) + tuple(i.shape) for i in indices]
    return (
        all(isinstance(i, p.torch.Tensor) for i in indices)
        and dims == tuple(range(dims[0], dims[-1] + 1))
        and max(i.ndim for i in indices) == len(dims)
        and all(len(s) == len(dims) and math.prod(s) == s[k] for k, s in enumerate(shapes))
    )


def _of_grid(p, x, given):
    """Elements on a grid: nearest resizing by whole factors where it is that, as torch spells it out, else one axis
    after another."""
    factors = [_repeats(p, i.reshape(-1), x.shape[d]) for d, i in given]
    if x.ndim == 4 and given[0][0] == 2 and x.dtype == p.torch.float32 and all(factors):
        scales = p.torch.tensor([1.0, 1.0, *factors])
        options = dict(mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor")
        return p.op("Resize", x, None, scales, **options)
    for d, i in given:
        x = p.op("Gather", x, p.cast(i.reshape(-1), p.torch.int64), axis=d)
    return x


def _repeats(p, index, size):
    """How often an index takes each element of an axis in turn; 0: it does not."""
    factor = index.numel() // size if isinstance(size, int) and size else 0
    return factor if p.torch.equal(index.long(), p.torch.arange(size * factor) // max(factor, 1)) else 0


def _selected(p, x, mask):
    """The elements where a mask is true."""
    return p.op("GatherND", x, _non_zero(p, mask))


def _non_zero(p, x):
    return p.op("Transpose", p.op("NonZero", x), perm=[1, 0])


def _masked_select(p, x, mask):
    shape = p.shape(broadcast_shape(x.shape, mask.shape))
    return _selected(p, *(p.op("Expand", t, shape) if t.shape != x.shape else t for t in (x, mask)))


def _masked_scatter(p, x, mask, source):
    shape = broadcast_shape(x.shape, mask.shape)
    x, mask = (_expanded(p, t, shape) for t in (x, mask))
    flat = FxValue(p.op("Reshape", source, [-1]), (None,), x.dtype)
    return p.op("Where", mask, _in_order(p, mask, flat, shape), x)


def _in_order(p, mask, rows, shape):
    """Rows where a mask is true, in their order: the count of true elements up to one is the number of its row, after
    one of zeros, which is where the mask is false."""
    mask = p.cast(mask, p.torch.int64)
    count = p.op("CumSum", p.op("Reshape", mask, [-1]), p.number(0, np.int64))
    zeros = p.op("Expand", p.scalar(0, rows), p.shape([1, *rows.shape[1:]]))
    at = p.op("Mul", count, p.op("Reshape", mask, [-1]))
    found = p.op("Gather", p.op("Concat", zeros, rows, axis=0), at, axis=0)
    return p.reshape(FxValue(found, (None, *rows.shape[1:]), rows.dtype), shape)


def _expanded(p, x, shape):
    return x if tuple(x.shape) == tuple(shape) else FxValue(p.op("Expand", x, p.shape(shape)), shape, x.dtype)


def broadcast_shape(*shapes):
    """The shape that shapes of ints and open sizes broadcast to."""
    ndim = max(map(len, shapes))
    columns = zip(*[(1,) * (ndim - len(s)) + tuple(s) for s in shapes], strict=True)
    return tuple(next((n for n in column if n != 1), 1) for column in columns)


def _table(p, indices):
    """Indices of several axes as the rows of one table."""
    indices = [p.cast(i, p.torch.int64) for i in indices]
    shape = broadcast_shape(*[i.shape for i in indices])
    columns = [i if tuple(i.shape) == shape else p.op("Expand", i, p.shape(shape)) for i in indices]
    return p.op("Concat", *[p.op("Unsqueeze", c, [len(shape)]) for c in columns], axis=len(shape))


def _index_put(p, x, indices, values, accumulate=False):
    if any(i is None for i in indices) or any(i.dtype == p.torch.bool for i in indices):
        return _masked_put(p, x, indices, values, accumulate)
    shape = broadcast_shape(*[i.shape for i in indices])
    updates = p.op("Expand", p.cast(values, p.made.dtype), p.shape([*shape, *x.shape[len(indices) :]]))
    return p.op("ScatterND", x, _table(p, indices), updates, reduction="add" if accumulate else "none")


def _masked_put(p, x, indices, values, accumulate):
    """x[mask] = a number, one row for all true elements or one for each; of too many rows, which
    torch refuses, the first ones."""
    if len(indices) != 1 or indices[0] is None or accumulate:
        raise Unsupported("fusedops does not have an assignment to elements that a mask or several axes select")
    mask, values = indices[0], p.cast(values, p.made.dtype)
    rest = x.shape[mask.ndim :]
    if values.ndim > len(rest) and values.shape[0] != 1:
        values = _in_order(p, mask, _expanded(p, values, (values.shape[0], *rest)), x.shape)
    mask = mask if mask.ndim == x.ndim else p.op("Reshape", mask, p.shape([*mask.shape, *[1] * len(rest)]))
    return p.op("Where", mask, values, x)


def _index_add(p, x, dim, index, source, alpha=1):
    dim = axis(x, dim)
    if dim != 0 or alpha != 1:
        raise Unsupported("fusedops does not have index_add along another axis than the first")
    return p.op("ScatterND", x, p.op("Unsqueeze", p.cast(index, p.torch.int64), [1]), source, reduction="add")


def _take_along_dim(p, x, indices, dim=None):
    if dim is None:
        raise Unsupported("fusedops does not have take_along_dim without an axis")
    return p.op("GatherElements", x, indices, axis=axis(x, dim))


def _one_hot(p, x, num_classes=-1):
    if num_classes < 0:
        raise Unsupported("fusedops does not have one_hot of as many classes as the values say")
    classes = p.torch.arange(num_classes)
    return p.op("Cast", p.op("Equal", p.op("Unsqueeze", x, [x.ndim]), classes), to=7)


READERS = {
    "embedding": _embedding,
    "embedding_bag": _bag,
    "_embedding_bag": _bag,
    "index_select": _index_select,
    "gather": _gather,
    "scatter": _scatter(),
    "scatter_add": _scatter("add"),
    "scatter_reduce": _scatter(),
    **dict.fromkeys(("index", "_unsafe_index"), _index),
    **dict.fromkeys(("index_put", "_unsafe_index_put"), _index_put),
    "index_add": _index_add,
    "take_along_dim": _take_along_dim,
    "one_hot": _one_hot,
    "nonzero": _non_zero,
    "masked_select": _masked_select,
    "masked_scatter": _masked_scatter,
}
