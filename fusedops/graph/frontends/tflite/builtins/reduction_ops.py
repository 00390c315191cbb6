"""Reductions along axes, sums up to each element, and what is the largest."""

import numpy as np

from .entry import Builtin, axis_in, moved, ranked


def _axes(r, op, rank, first):
    axes = op.constant(1, "list of axes").reshape(-1)
    return sorted({axis_in(a, rank, first, op) for a in axes})


def _reduced(op_name, before=None, after=None):
    def read(r, op):
        x, keep = op.inputs[0], int(bool(op.option("KeepDims")))
        rank = ranked(r, op, x)
        last = _axes(r, op, rank, False)
        first = x.native and (keep or 3 not in last and {1, 2} <= set(last))
        axes = _axes(r, op, rank, first)
        value = r.value(x, first)
        dtype = x.tensor.dtype
        value = r.emit("Cast", value, to=before) if before else value
        if axes:  # none at all: nothing is reduced
            value = r.emit(op_name, value, axes, keepdims=keep)
        value = r.cast(value, dtype) if after else value
        r.put(op.outputs[0], value, bool(first and keep))

    return Builtin(read, "along constant axes")


def _best(op_name):
    def read(r, op):
        x, y = op.inputs[0], op.outputs[0]
        rank = ranked(r, op, x)
        axis = op.constant(1, "axis").reshape(-1)
        if axis.size != 1:
            raise op.error(f"it has {axis.size} axes, not one")
        first = x.native and axis_in(axis[0], rank, False, op) == 3
        found = r.emit(op_name, r.value(x, first), axis=axis_in(axis[0], rank, first, op), keepdims=0)
        r.put(y, r.cast(found, y.tensor.dtype or np.int64), real=False)

    return Builtin(read, "along a constant axis")


def _top_k(r, op):
    x, (y, places) = op.inputs[0], op.outputs
    k = op.constant(1, "number of places").reshape(-1)[:1]
    values, at = r.emit("TopK", r.value(x), k.tolist(), axis=-1, count=2)
    r.put(y, values)
    r.put(places, r.cast(at, places.tensor.dtype), real=False)


def _cumsum(r, op):
    axis = op.constant(1, "axis").reshape(-1)[:1].tolist()
    attrs = dict(exclusive=int(op.option("Exclusive")), reverse=int(op.option("Reverse")))
    r.put(op.outputs[0], r.emit("CumSum", r.value(op.inputs[0]), axis, **attrs))


def _segments(reduction, start):
    """Rows that go to the results that ids name; `start` is what no row goes to, of a type of elements."""

    def read(r, op):
        data, ids = r.value(op.inputs[0]), r.cast(r.value(op.inputs[1]), np.int64)
        rank = ranked(r, op, op.inputs[1])
        if op.kind == "SEGMENT_SUM":
            found = op.constant(1, "list of segments").reshape(-1)
            count = int(found[-1]) + 1 if found.size else 0
        else:
            count = int(op.constant(2, "number of segments").reshape(-1)[0])
        dtype = op.inputs[0].tensor.dtype
        shape = r.emit("Concat", [count], r.emit("Shape", data, start=rank), axis=0)
        zero = r.emit("Expand", r.constant(f"{r.at}.start", start(dtype), dtype), shape)
        kept = r.emit("Unsqueeze", ids, [rank])
        r.put(op.outputs[0], r.emit("ScatterND", zero, kept, data, reduction=reduction))

    return Builtin(read)


def _lowest(dtype):
    return np.finfo(dtype).min if dtype.kind == "f" else np.iinfo(dtype).min


def _highest(dtype):
    return np.finfo(dtype).max if dtype.kind == "f" else np.iinfo(dtype).max


def _reverse(r, op):
    axes = op.constant(1, "list of axes").reshape(-1)
    rank = ranked(r, op, op.inputs[0])

    def make(x, first):
        at = [axis_in(a, rank, first, op) for a in axes]
        return r.emit("Slice", x, [-1] * len(at), [-(2**62)] * len(at), at, [-1] * len(at))

    moved(r, op, make)


READERS = {
    "ARG_MAX": _best("ArgMax"),
    "ARG_MIN": _best("ArgMin"),
    "CUMSUM": Builtin(_cumsum),
    "MEAN": _reduced("ReduceMean"),
    "REDUCE_ALL": _reduced("ReduceMin", before=6, after=True),
    "REDUCE_ANY": _reduced("ReduceMax", before=6, after=True),
    "REDUCE_MAX": _reduced("ReduceMax"),
    "REDUCE_MIN": _reduced("ReduceMin"),
    "REDUCE_PROD": _reduced("ReduceProd"),
    "REVERSE_V2": Builtin(_reverse),
    "SEGMENT_SUM": _segments("add", lambda dtype: 0),
    "SUM": _reduced("ReduceSum"),
    "TOPK_V2": Builtin(_top_k, "of a constant number of places"),
    "UNSORTED_SEGMENT_MAX": _segments("max", _lowest),
    "UNSORTED_SEGMENT_MIN": _segments("min", _highest),
    "UNSORTED_SEGMENT_PROD": _segments("mul", lambda dtype: 1),
    "UNSORTED_SEGMENT_SUM": _segments("add", lambda dtype: 0),
}
