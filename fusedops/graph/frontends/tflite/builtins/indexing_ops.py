"""Elements that are picked by their places, or put into places."""

import numpy as np

from ....ir.dtypes import to_onnx
from .entry import Builtin, as_shape, axis_in, length, moved_to, ranked, same_quantization, stored


def _gather(r, op):
    rank = ranked(r, op, op.inputs[0])
    axis, batch = axis_in(op.option("Axis"), rank, False, op), op.option("BatchDims")
    at = r.value(op.inputs[1])
    places = r.rank(op.inputs[1]) or 0
    batch += (batch < 0) * places
    if not batch:
        return moved_to(r, op, lambda x: r.emit("Gather", x, at, axis=axis))
    if batch > min(axis, places):
        raise op.error(f"it gathers along axis {axis} in {batch} axes of a batch")
    order = [*range(batch), axis, *(a for a in range(batch, rank) if a != axis)]

    def make(x):
        x = x if order == list(range(rank)) else r.emit("Transpose", x, perm=order)
        y = r.emit("GatherND", x, r.emit("Unsqueeze", r.cast(at, np.int64), [places]), batch_dims=batch)
        ahead = axis - batch  # axes of x between the batch and the one that is gathered along: they are after
        if not ahead:
            return y
        picked, total = places - batch, rank - 1 + places - batch
        back = [*range(batch), *range(batch + picked, batch + picked + ahead), *range(batch, batch + picked)]
        return r.emit("Transpose", y, perm=[*back, *range(batch + picked + ahead, total)])

    return moved_to(r, op, make)


def _gather_nd(r, op):
    at = r.cast(r.value(op.inputs[1]), np.int64)
    moved_to(r, op, lambda x: r.emit("GatherND", x, at))


def _scatter_nd(r, op):
    at, shape = r.cast(r.value(op.inputs[0]), np.int64), as_shape(r, op, 2)
    value = r.value(op.inputs[1])
    dtype = op.inputs[1].tensor.dtype
    zeros = r.emit("Expand", r.number(0, np.float32 if op.inputs[1].quantization else dtype), shape)
    r.put(op.outputs[0], r.emit("ScatterND", zeros, at, value, reduction="add"))


def _sparse_to_dense(r, op):
    """A value everywhere, but at the places that rows of indices name."""
    rank = ranked(r, op, op.inputs[0])
    at, shape = r.cast(r.value(op.inputs[0]), np.int64), as_shape(r, op, 1)
    columns = len(shape) if isinstance(shape, list) else None
    if rank < 2:
        at = r.emit("Reshape", at, [-1, columns if rank == 1 and columns == 1 else 1])
    values = r.value(op.inputs[2])
    rows = r.emit("Expand", values, r.emit("Slice", r.emit("Shape", at), [0], [1]))
    r.put(op.outputs[0], r.emit("ScatterND", r.emit("Expand", r.value(op.inputs[3]), shape), at, rows))


def _dynamic_update_slice(r, op):
    """A part that another tensor takes, inside the tensor wherever it is to begin."""
    rank, y = ranked(r, op, op.inputs[0]), op.outputs[0]
    if rank != ranked(r, op, op.inputs[1]):
        raise op.error(f"it puts a tensor of {r.rank(op.inputs[1])} axes into one of {rank}")
    start, (x, real) = r.cast(r.value(op.inputs[2]), np.int64), stored(r, op)
    part = r.value(op.inputs[1], real=real)
    if rank:
        most = r.emit("Sub", *(r.emit("Shape", v) for v in (x, part)))
        start = r.emit("Max", r.emit("Min", start, most), r.constant(r.at, 0, np.int64))
    at = r.emit("Add", _grid(r, part, r.fixed(op.inputs[1]), rank), start)
    r.put(y, r.emit("ScatterND", x, at, part), real=real)


def _grid(r, value, sizes, rank):
    """The places of all elements of a value, along one more axis at the end; the sizes are None where one is open."""
    if sizes is not None:
        grid = np.stack(np.meshgrid(*map(np.arange, sizes), indexing="ij"), -1) if sizes else np.zeros(0, np.int64)
        return r.constant(r.at, grid, np.int64)
    shape = r.emit("Concat", r.emit("Shape", value), [1], axis=0)
    zero, one = (r.constant(r.at, n, np.int64) for n in (0, 1))
    each = []
    for axis in range(rank):
        places = r.emit("Range", zero, r.emit("Squeeze", length(r, value, axis), [0]), one)
        others = [a for a in range(rank + 1) if a != axis]
        each.append(r.emit("Expand", r.emit("Unsqueeze", places, others), shape))
    return r.emit("Concat", *each, axis=-1)


def _one_hot(r, op):
    """`on` where the index is that of the element, which none is if it is negative."""
    depth, rank = int(op.constant(1, "depth").reshape(-1)[0]), ranked(r, op, op.inputs[0])
    axis = op.option("Axis", -1)
    axis = rank if axis == -1 else axis_in(axis, rank + 1, False, op)
    at = r.emit("Unsqueeze", r.cast(r.value(op.inputs[0]), np.int64), [axis])
    each = np.arange(depth).reshape(-1, *[1] * (rank - axis))
    on, off = (r.emit("Reshape", r.value(op.inputs[i]), []) for i in (2, 3))
    r.put(op.outputs[0], r.emit("Where", r.emit("Equal", at, r.constant(r.at, each, np.int64)), on, off))


def _embedding_lookup(r, op):
    table, y = op.inputs[1], op.outputs[0]
    at, q = r.value(op.inputs[0]), table.quantization
    if q is None or same_quantization(table, y) or q.scale.size > 1:
        real = not same_quantization(table, y)
        return r.put(y, r.emit("Gather", r.value(table, real=real), at, axis=0), real=real)
    return r.put(y, r.dequantized(r.emit("Gather", r.value(table, real=False), at, axis=0), q, False))


def _where(r, op):
    r.put(op.outputs[0], r.emit("Transpose", r.emit("NonZero", r.integers(op.inputs[0])), perm=[1, 0]))


def _unique(r, op):
    x, (y, places) = op.inputs[0], op.outputs
    found = r.emit("Unique", r.integers(x), sorted=0, count=3)
    r.put(y, found[0], real=False)
    r.put(places, r.cast(found[2], places.tensor.dtype), real=False)


def _reverse_sequence(r, op):
    axes = dict(time_axis=op.option("SeqDim"), batch_axis=op.option("BatchDim"))
    rank = ranked(r, op, op.inputs[0])
    time, batch = (axis_in(a, rank, False, op) for a in axes.values())
    order = [batch, time, *(a for a in range(rank) if a not in (time, batch))]
    lengths = r.cast(r.value(op.inputs[1]), np.int64)

    def make(x):
        y = r.emit("ReverseSequence", r.emit("Transpose", x, perm=order), lengths, batch_axis=0, time_axis=1)
        return r.emit("Transpose", y, perm=[order.index(a) for a in range(rank)])

    moved_to(r, op, make)


def _matrix_diag(r, op):
    sizes, dtype = r.sizes(op.inputs[0]), op.inputs[0].tensor.dtype
    if not sizes or sizes[-1] is None:
        raise op.error("its sizes are open: convert it with fixed sizes")
    eye = r.constant(r.at, np.eye(sizes[-1]), np.bool_)
    x = r.emit("Unsqueeze", r.value(op.inputs[0]), [len(sizes)])
    r.put(op.outputs[0], r.emit("Where", eye, x, r.number(0, dtype)))


def _matrix_set_diag(r, op):
    """The diagonal of the last two axes, along the longer of them with zeros after its end, where none are taken."""
    sizes = r.sizes(op.inputs[0])
    if not sizes or len(sizes) < 2 or None in sizes[-2:]:
        raise op.error(f"it sets the diagonal of a tensor of shape {sizes}: it takes matrices of fixed sizes")
    rows, columns = sizes[-2:]
    eye, diagonal = r.constant(r.at, np.eye(rows, columns), np.bool_), r.value(op.inputs[1])
    rank = ranked(r, op, op.inputs[0])
    diagonal = r.emit("Unsqueeze", diagonal, [rank - 1 if rows <= columns else rank - 2])
    r.put(op.outputs[0], r.emit("Where", eye, diagonal, r.value(op.inputs[0])))


def _bitcast(r, op):
    from_, to = op.inputs[0].tensor.dtype, op.outputs[0].tensor.dtype
    if from_ is None or to is None or from_.itemsize != to.itemsize:
        raise op.error(f"it takes {op.inputs[0].tensor.kind} for {op.outputs[0].tensor.kind}: sizes must be the same")
    r.put(op.outputs[0], r.emit("BitCast", r.integers(op.inputs[0]), to=to_onnx(to)), real=False)


_FIXED = "of fixed sizes"
READERS = {
    "BITCAST": Builtin(_bitcast, "between types of one size"),
    "DYNAMIC_UPDATE_SLICE": Builtin(_dynamic_update_slice, _FIXED),
    "EMBEDDING_LOOKUP": Builtin(_embedding_lookup),
    "GATHER": Builtin(_gather),
    "GATHER_ND": Builtin(_gather_nd),
    "MATRIX_DIAG": Builtin(_matrix_diag, _FIXED),
    "MATRIX_SET_DIAG": Builtin(_matrix_set_diag, _FIXED),
    "ONE_HOT": Builtin(_one_hot, "of a constant depth"),
    "REVERSE_SEQUENCE": Builtin(_reverse_sequence),
    "SCATTER_ND": Builtin(_scatter_nd),
    "SPARSE_TO_DENSE": Builtin(_sparse_to_dense),
    "UNIQUE": Builtin(_unique),
    "WHERE": Builtin(_where),
}
