"""Reductions, sums along an axis, and what is the largest."""

import math

import numpy as np

from ..ir.dtypes import PROGRAM
from ..ir.graph import Node
from ..ir.graph_builder import GraphBuilder
from ..steps.lowering import LoweringContext
from ..steps.tensor import broadcast
from .elementwise import quotient
from .schema import (
    Inference,
    Kernel,
    NumPyOnly,
    Operator,
    Rewrite,
    Traits,
    always,
    axes_of,
    axis_of,
    highest,
    lowest,
    mean_of,
    read_to_end,
    same_shape,
    sum_of,
    values,
    with_inputs,
)

MANY = 2048  # elements of a row of which the few best are found without sorting all
SAMPLE = 1024  # of them, at least, that tell how large these are
LONG = 256  # elements of a row from which to add row after row: 512 rows of 1024 in a third of the time


def _reduce(function):
    def run(node, x, axes=None):
        if (axes is None or axes.size == 0) and node.attrs.get("noop_with_empty_axes", 0):
            return x
        return function(
            x, axes_of(axes if axes is not None and axes.size else None, x.ndim), bool(node.attrs.get("keepdims", 1))
        )

    return run


def _mean(x, axes, keepdims):
    """The mean; that of integers is rounded towards zero."""
    if x.dtype.kind == "f":
        return mean_of(x, axes, keepdims)
    count = math.prod(x.shape[a] for a in axes)
    return quotient(sum_of(x, axes, keepdims), x.dtype.type(max(count, 1))).astype(x.dtype)


def _log_sum_exp(x, axes, keepdims):
    if x.dtype.kind != "f":
        return _log_sum_exp(x.astype(np.float64), axes, keepdims).astype(x.dtype)
    most = x.max(axes, keepdims=True, initial=-np.inf)
    most = np.where(np.isfinite(most), most, 0).astype(x.dtype)
    y = np.log(sum_of(np.exp(x - most), axes, True)) + most
    return y if keepdims else y.squeeze(axes)


def _best(function):
    """ArgMax and ArgMin: the place along an axis, as an axis of length 1 if ``keepdims``."""

    def run(node, x):
        axis = node.attrs.get("axis", 0)
        if node.attrs.get("select_last_index", 0):
            i = x.shape[axis] - 1 - function(np.flip(x, axis), axis)
        else:
            i = function(x, axis)
        return np.expand_dims(i, axis) if node.attrs.get("keepdims", 1) else i

    return run


def _top_k(node, x, k):
    """The k largest or smallest along an axis, in order, and their places; of equal ones the first."""
    axis, largest, k = node.attrs.get("axis", -1), node.attrs.get("largest", 1), k.item()
    n = x.shape[axis]
    if 0 < k <= n // 8 and n >= MANY and not (x.dtype.kind == "f" and np.isnan(x).any()):
        rows = np.moveaxis(x, axis, -1)
        best = np.array([_best_places(row, k, largest) for row in rows.reshape(-1, n)])
        order = np.moveaxis(best.reshape(*rows.shape[:-1], k), -1, axis)
    else:
        order = _sorted(x, axis, largest).take(range(k), axis)
    return np.take_along_axis(x, order, axis), order


def _sorted(x, axis, largest):
    """The places along an axis in the order of their elements; of equal ones the first comes first."""
    if not largest:
        return np.argsort(x, axis, kind="stable")
    return x.shape[axis] - 1 - np.flip(np.argsort(np.flip(x, axis), axis, kind="stable"), axis)


def _best_places(row, k, largest):
    """The places of the k largest or smallest elements of a long row, in order. A sample tells which can be among
    them."""
    step = row.size // SAMPLE
    sample = row[::step]
    rank = min(k * 3 // (2 * step) + 8, sample.size)
    bound = np.partition(sample, at := sample.size - rank if largest else rank - 1)[at]
    among = np.flatnonzero(row >= bound if largest else row <= bound)
    if among.size < k:
        among = np.arange(row.size)
    return among[_sorted(row[among], 0, largest)[:k]]


def _cumulative(function, first):
    """Sums or products along an axis: of what is before each element too, from the other end if ``reverse``; `first`
    is that of none."""

    def run(node, x, axis):
        y, axis = np.empty_like(x, order="C"), int(axis.reshape(-1)[0])
        rows, to = (np.moveaxis(array, axis, 0) for array in (x, y))
        if node.attrs.get("reverse", 0):
            rows, to = rows[::-1], to[::-1]
        if node.attrs.get("exclusive", 0):
            to[:1] = first
            rows, to = rows[:-1], to[1:]
        if rows[:1].size < LONG or axis % x.ndim == x.ndim - 1:
            function.accumulate(rows, 0, dtype=x.dtype, out=to)
            return y
        to[0] = rows[0]
        for before, row, result in zip(to[:-1], rows[1:], to[1:], strict=True):
            function(before, row, out=result)
        return y

    return run


def _hardmax(node, x):
    """1 at the first of the largest elements along an axis, or, in old opsets, along all from this one on."""
    if x.size == 0:
        return np.zeros_like(x)
    axis = node.attrs["axis"] % max(x.ndim, 1)
    rows = x.reshape(*x.shape[:axis], -1) if node.attrs["to_end"] else np.moveaxis(x, axis, -1)
    y = (np.arange(rows.shape[-1]) == rows.argmax(-1)[..., np.newaxis]).astype(x.dtype)
    return y.reshape(x.shape) if node.attrs["to_end"] else np.moveaxis(y, -1, axis)


def _lower_hardmax(p: LoweringContext, node):
    """Zeros, and a one where the largest element is."""
    x, y = p.at(node.inputs[0]), p.result(node.output)
    axis = axis_of(node, len(x.shape), -1)
    if x.dtype != np.float32:
        return False
    if node.attrs["to_end"]:
        flat = (*x.shape[:axis], math.prod(x.shape[axis:]))
        x, y = p.reshape(node, x, flat), p.reshape(node, y, flat)
    places = p.new((*x.shape[:axis], 1, *x.shape[axis + 1 :]), dtype=np.dtype(np.int64))
    ones = broadcast(p.constant(np.ones((), x.dtype), ()), places.shape)
    p.add("fill", node, y=y, value=0.0)
    if x.shape[axis] == 0:
        return True
    p.add("argmax", node, least=False, x=x, y=places, axis=axis)
    p.add("scatter", node, x=y, indices=places, updates=ones, y=y, reduction="none", along=axis, of=x.dtype)
    return True


def _reduce_shape(node, x, axes=None):
    axes = values(axes, "list of axes")
    if (axes is None or axes.size == 0) and node.attrs.get("noop_with_empty_axes", 0):
        return x.shape
    where = axes_of(axes if axes is not None and axes.size else None, len(x.shape))
    keep = node.attrs.get("keepdims", 1)
    return tuple(1 if i in where else s for i, s in enumerate(x.shape) if keep or i not in where)


def _best_shape(node, x):
    axis, keep = axis_of(node, len(x.shape)), node.attrs.get("keepdims", 1)
    if x.shape[axis] == 0:
        raise ValueError(f"there is none along axis {axis} of length 0")
    return (*x.shape[:axis], *[1] * keep, *x.shape[axis + 1 :])


def _top_k_shape(node, x, k):
    axis, k = axis_of(node, len(x.shape), -1), values(k, "number of places").item()
    if not 0 <= k <= x.shape[axis]:
        raise ValueError(f"there are no {k} elements along an axis of {x.shape[axis]}")
    return [(*x.shape[:axis], k, *x.shape[axis + 1 :])] * 2


def _lower_best(least):
    def lower(p: LoweringContext, node):
        x = p.at(node.inputs[0])
        if x.dtype != np.float32 or node.attrs.get("select_last_index", 0):
            return False
        axis, y = axis_of(node, len(x.shape)), p.result(node.output)
        if len(y.shape) < len(x.shape):
            y = y._replace(
                shape=(*x.shape[:axis], 1, *x.shape[axis + 1 :]), strides=(*y.strides[:axis], 1, *y.strides[axis:])
            )
        p.add("argmax", node, least=least, x=x, y=y, axis=axis)
        return True

    return lower


def _lower_top_k(p: LoweringContext, node):
    x = p.at(node.inputs[0])
    axis = axis_of(node, len(x.shape), -1)
    if x.dtype != np.float32 or x.shape[axis] >= 1 << 32:
        return False
    y, places = (
        p.result(v) if v else p.new(p.known[node.outputs[0]].shape, dtype=dtype)
        for v, dtype in zip([*node.outputs, ""], (x.dtype, np.dtype(np.int64)), strict=False)
    )
    p.add("top_k", node, least=not node.attrs.get("largest", 1), x=x, y=y, places=places, axis=axis)
    return True


def _lower_cumsum(p: LoweringContext, node):
    x, axis = p.at(node.inputs[0]), p.data(node.inputs[1])
    if x.dtype not in (np.float32, np.int32, np.int64) or not isinstance(axis, np.ndarray) or not x.shape:
        return False
    exclusive, reverse = (bool(node.attrs.get(name, 0)) for name in ("exclusive", "reverse"))
    p.add(
        "cumsum",
        node,
        x=x,
        y=p.result(node.output, like=x),
        axis=int(axis.reshape(-1)[0]) % len(x.shape),
        exclusive=exclusive,
        reverse=reverse,
        of=x.dtype,
    )
    return True


def lower_reduction(p: LoweringContext, node, name, axes):
    x = p.at(node.inputs[0])
    y = p.result(node.output, image=len(p.known[node.output].shape) == 4)
    kept = iter(y.strides)
    full = tuple(1 if i in axes else n for i, n in enumerate(x.shape))
    if y.shape != full:
        y = y._replace(shape=full, strides=tuple(1 if i in axes else next(kept) for i in range(len(full))))
    p.add("reduce", node, name=name, x=x, y=y, axes=tuple(sorted(axes)))
    return True


def _lower_reduce(name):
    def lower(p: LoweringContext, node):
        axes = p.data(node.input(1))
        empty = axes is None or axes.size == 0
        if empty and node.attrs.get("noop_with_empty_axes", 0):
            return False
        return lower_reduction(p, node, name, axes_of(None if empty else axes, len(p.known[node.inputs[0]].shape)))

    return lower


def _read_of_sum(before="", after=""):
    """A reduction by a sum: of what `before` makes of x, and `after` of the sum, where these are given."""

    def read(r: GraphBuilder, node):
        r.as_input(node, "axes", 1)
        terms, total = node.inputs[0], r.fresh(f"{node.name}.sum") if after else node.output
        if before:
            terms = r.fresh(f"{node.name}.terms")
            r.add(Node(before, f"{node.name}.terms", node.inputs[:1] * (2 if before == "Mul" else 1), [terms]))
        r.add(Node("ReduceSum", node.name, [terms, *node.inputs[1:]], [total], node.attrs))
        if after:
            r.add(Node(after, f"{node.name}.{after}", [total], node.outputs))

    return read


def _reduction(function, kernel, traits=Traits()):
    inference = Inference(_reduce_shape, shape_inputs=(1,), symbolic=True)
    return Operator(_reduce(function), inference, kernel, with_inputs("axes"), traits)


def _of_sum(before="", after=""):
    return Rewrite(_read_of_sum(before, after), tuple(filter(None, (before, "ReduceSum", after))))


_MEAN = Traits(quantized_as="QuantizedGlobalAveragePool", keeps_logits=True)
RECORDS = {
    "ArgMax": Operator(
        _best(np.argmax), Inference(_best_shape, dtype=always(np.int64)), Kernel(_lower_best(False), dtypes=PROGRAM)
    ),
    "ArgMin": Operator(
        _best(np.argmin), Inference(_best_shape, dtype=always(np.int64)), Kernel(_lower_best(True), dtypes=PROGRAM)
    ),
    "CumProd": Operator(_cumulative(np.multiply, 1), Inference(same_shape), NumPyOnly("no kernel: rare")),
    "CumSum": Operator(
        _cumulative(np.add, 0),
        Inference(same_shape),
        Kernel(_lower_cumsum, "of float32, int32 and int64", dtypes=PROGRAM),
    ),
    "Hardmax": Operator(_hardmax, Inference(same_shape), Kernel(_lower_hardmax), read_to_end),
    "ReduceL1": _of_sum("Abs"),
    "ReduceL2": _of_sum("Mul", "Sqrt"),
    "ReduceLogSum": _of_sum(after="Log"),
    "ReduceLogSumExp": _reduction(_log_sum_exp, NumPyOnly("no kernel that shifts and sums in one")),
    "ReduceMax": _reduction(
        lambda x, a, k: x.max(a, keepdims=k, initial=lowest(x.dtype)), Kernel(_lower_reduce("max"))
    ),
    "ReduceMean": _reduction(_mean, Kernel(_lower_reduce("mean")), _MEAN),
    "ReduceMin": _reduction(
        lambda x, a, k: x.min(a, keepdims=k, initial=highest(x.dtype)), Kernel(_lower_reduce("min"))
    ),
    "ReduceProd": _reduction(lambda x, a, k: x.prod(a, keepdims=k, dtype=x.dtype), Kernel(_lower_reduce("prod"))),
    "ReduceSum": _reduction(sum_of, Kernel(_lower_reduce("sum"))),
    "ReduceSumSquare": _of_sum("Mul"),
    "TopK": Operator(
        _top_k,
        Inference(
            _top_k_shape, dtype=lambda node, inputs, i: np.dtype(np.int64) if i else inputs[0].dtype, shape_inputs=(1,)
        ),
        Kernel(_lower_top_k, "of float32", dtypes=PROGRAM),
        with_inputs("k"),
    ),
}
