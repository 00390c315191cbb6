"""What picks elements by indices, or puts them there."""

import math

import numpy as np

from ... import _core
from ..._internal.mmap_arrays import is_odd
from ..ir.dtypes import ANY, MOVED, PROGRAM, from_onnx
from ..ir.errors import BadNode
from ..ir.graph import Node
from ..ir.graph_builder import GraphBuilder
from ..ir.symbolic import Deferred, as_dim, deferred, guard, is_symbolic
from ..steps.lowering import LoweringContext
from ..steps.tensor import along, broadcast, part, row_major
from . import ranges
from .schema import Inference, Kernel, NumPyOnly, Operator, Rewrite, always, axes_of, axis_of, same_shape, values

LONG = 1024  # elements of a part from which on a call for each is faster than one for all elements


def _index(node, i):
    """The index of elements whose place along one axis is in i, and along the others their own."""
    index = list(np.indices(i.shape, sparse=True))
    index[node.attrs.get("axis", 0)] = i
    return tuple(index)


def _gather_elements(node, x, i):
    return x[_index(node, i)]


def _gather_nd(node, x, i):
    """Elements, or parts of x, whose leading indices are rows of i, after ``batch_dims`` axes that both have."""
    batch = node.attrs.get("batch_dims", 0)
    own = (a.reshape(*a.shape, *[1] * (i.ndim - 1 - batch)) for a in np.indices(i.shape[:batch], sparse=True))
    return x[(*own, *np.moveaxis(i, -1, 0))]


def _scattered(node, x, index, updates):
    y, reduction = np.array(x, order="C"), node.attrs.get("reduction", "none")
    if reduction == "none":
        y[index] = updates
    elif updates.size:
        function = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}[reduction]
        places, each = _places_of(index, x.shape), math.prod(x.shape[len(index) :])
        if each < LONG:
            function.at(
                y.reshape(-1), (places[:, np.newaxis] * each + np.arange(each)).reshape(-1), updates.reshape(-1)
            )
            return y
        parts = y.reshape(-1, each)
        for place, update in zip(places.tolist(), updates.reshape(-1, each), strict=True):
            function(parts[place], update, out=parts[place])
    return y


def _places_of(index, shape):
    """Where the parts that an index names are in a row of all: NumPy is three times as fast with it."""
    for i, n in zip(index, shape, strict=False):
        if not _are_inside(i, n):
            raise IndexError(f"there are indices {i.min()} to {i.max()} into an axis of {n}")
    parts = np.zeros(1, np.int64)
    for i, n in zip(index, shape, strict=False):
        parts = parts * n + np.where(i < 0, i + n, i)
    return parts.reshape(-1)


def _scatter_elements(node, x, i, updates):
    return _scattered(node, x, _index(node, i), updates)


def _scatter_nd(node, x, i, updates):
    return _scattered(node, x, tuple(np.moveaxis(i, -1, 0)), updates)


def _triangle(node, x, k=None):
    return (np.triu if node.attrs.get("upper", 1) else np.tril)(x, 0 if k is None else k.item())


def _kept(node, rows, columns, k):
    return _triangle(node, np.ones((rows, columns), np.bool_), k)


def _lower_triangle(p: LoweringContext, node):
    """A choice between x and zeros by a table of where x is kept."""
    x, k = p.at(node.inputs[0]), p.data(node.input(1)) if node.input(1) else np.zeros(1, np.int64)
    if not isinstance(k, np.ndarray):
        return False
    mask = p.constant(deferred(_kept, node, *x.shape[-2:], k), x.shape[-2:], np.dtype(np.bool_))
    zero = p.constant(np.zeros((), x.dtype), ())
    p.map(node, "where", p.result(node.output, like=x), mask, x, zero)
    return True


def _are_inside(indices, size):
    return -size <= indices.min() <= indices.max() < size


def _one_hot(node, indices, depth, values):
    """values[1] where the index along the new axis is that of the element, else values[0]; negative ones count from
    the end."""
    depth, axis = int(depth.reshape(-1)[0]), node.attrs.get("axis", -1)
    i = np.where(indices < 0, indices + depth, indices)
    rows = np.arange(depth).reshape(-1, *[1] * (indices.ndim - axis % (indices.ndim + 1)))
    return np.where(np.expand_dims(i, axis) == rows, values[1], values[0])


def _compress(node, x, condition):
    return np.compress(condition, x, node.attrs.get("axis"))


def _unique(node, x):
    """(values, first places, places of x's elements among the values, counts), in order of the values or of their
    first places."""
    y, first, inverse, counts = np.unique(x, True, True, True, axis=node.attrs.get("axis"))
    inverse = inverse.reshape(-1)
    if not node.attrs.get("sorted", 1):
        order = np.argsort(first)
        y, first, counts = y.take(order, node.attrs.get("axis")), first[order], counts[order]
        inverse = np.argsort(order)[inverse]
    return y, first, inverse, counts


def _reverse_sequence(node, x, lengths):
    """The first elements along the time axis in reverse, in each row of the batch as many as its length."""
    axes, y = (node.attrs.get("batch_axis", 1), node.attrs.get("time_axis", 0)), x.copy()
    rows, to = (np.moveaxis(a, axes, (0, 1)) for a in (x, y))
    if lengths.size and not 0 <= lengths.min() <= lengths.max() <= rows.shape[1]:
        raise IndexError(f"there are lengths {lengths.min()} to {lengths.max()} along an axis of {rows.shape[1]}")
    for row, result, n in zip(rows, to, lengths.tolist(), strict=True):
        result[:n] = row[:n][::-1]
    return y


def _lower_reverse_sequence(p: LoweringContext, node):
    """A gather along the time axis, of the length - 1 - t where t is before a length, else of t. A negative length
    counts as one that is too long, whose first index is outside."""
    x, lengths = p.at(node.inputs[0]), _places(p, node)
    batch, time = axes_of([node.attrs.get("batch_axis", 1), node.attrs.get("time_axis", 0)], len(x.shape))
    steps, rows = x.shape[time], x.shape[batch]
    wide, shape = np.dtype(np.int64), (steps, rows)

    def number(n):
        return p.constant(deferred(np.array, n, wide), (), wide)

    below, before = (p.new(s, dtype=np.dtype(np.bool_)) for s in ((rows,), shape))
    checked, last, mirrored, places = (p.new(s, dtype=wide) for s in ((rows,), (rows,), shape, shape))
    t = p.constant(deferred(_counted, steps, wide), (steps,), wide)
    t = t._replace(shape=(steps, 1), strides=(1, 0))
    p.map(node, "less", below, lengths, number(0))
    p.map(node, "where", checked, below, number(steps + 1), lengths)
    p.map(node, "sub", last, checked, number(1))
    p.map(node, "sub", mirrored, broadcast(last, shape), t)
    p.map(node, "less", before, broadcast(t, shape), checked)
    p.map(node, "where", places, before, mirrored, t)
    strides = [places.strides[1] if d == batch else places.strides[0] if d == time else 0 for d in range(len(x.shape))]
    return gather(p, node, x, places._replace(shape=x.shape, strides=tuple(strides)), time, single=True)


def _tensor_scatter(node, cache, update, starts=None):
    """The cache with a sequence written to each of its rows from an index on; a circular one goes on at its begin."""
    axis = node.attrs.get("axis", -2) % cache.ndim
    y, length = np.moveaxis(cache.copy(), axis, 1), cache.shape[axis]
    places = (0 if starts is None else starts.reshape(-1, 1)) + np.arange(update.shape[axis])
    if node.attrs.get("mode", "linear") == "circular":
        places = places % length
    elif places.size and not 0 <= places.min() <= places.max() < length:
        raise IndexError(f"there are places {places.min()} to {places.max()} in a cache of {length}")
    y[np.arange(cache.shape[0])[:, np.newaxis], places] = np.moveaxis(update, axis, 1)
    return np.moveaxis(y, 1, axis)


def _eye(node, x):
    if len(x.shape) != 2:
        raise ValueError("it needs a matrix")
    rows, columns = x.shape
    return np.eye(rows, columns, node.attrs.get("k", 0), _eye_type(node, [x], 0))


def _eye_type(node, inputs, i):
    return from_onnx(node.attrs["dtype"]) if "dtype" in node.attrs else inputs[0].dtype


def _integer(n):
    """A number that may be a float as an integer."""
    return int(n) if isinstance(n, np.floating) else n


def _one_hot_shape(node, indices, depth, values_):
    axis, depth = axis_of(node, len(indices.shape) + 1, -1), as_dim(_integer(values(depth, "depth").reshape(-1)[0]))
    if depth < 1 or values_.shape != (2,):
        raise ValueError(f"a depth of {depth} and values of shape {values_.shape} must be at least 1 and of shape (2,)")
    return (*indices.shape[:axis], depth, *indices.shape[axis:])


def _found_shapes(evaluate):
    """The shapes of results whose sizes depend on the values of all inputs."""

    def shape(node, *xs):
        results = evaluate(node, *(values(x, "shape") for x in xs))
        return [y.shape for y in results] if isinstance(results, tuple) else results.shape

    return shape


def _reverse_shape(node, x, lengths):
    batch, time = axes_of([node.attrs.get("batch_axis", 1), node.attrs.get("time_axis", 0)], len(x.shape))
    if lengths.shape != (x.shape[batch],):
        raise ValueError(f"it needs {x.shape[batch]} lengths, got {lengths.shape}")
    if (
        lengths.data is not None
        and not 0 <= lengths.data.min(initial=0) <= lengths.data.max(initial=0) <= x.shape[time]
    ):
        raise ValueError(f"sequences of {x.shape[time]} have no lengths of {lengths.data.max()}")
    return x.shape


def _gather_shape(node, x, i):
    axis = axis_of(node, len(x.shape))
    size = x.shape[axis]
    if i.dtype is not None and i.dtype.kind not in "iu":
        raise BadNode(f"its indices are of {i.dtype}, which counts nothing")
    if size == 0 and 0 not in i.shape:
        raise ValueError("there are indices into an axis of 0")
    known = i.data is not None and not isinstance(i.data, Deferred)  # else a call sees to it
    if 0 not in i.shape and (size == 0 or known and not guard(_are_inside, i.data, size)):
        given = "" if i.data is None else f" {i.data.min()} to {i.data.max()}"
        raise ValueError(f"there are indices{given} into an axis of {size}")
    return (*x.shape[:axis], *i.shape, *x.shape[axis + 1 :])


def _gather_nd_shape(node, x, i):
    batch, depth = node.attrs.get("batch_dims", 0), i.shape[-1]
    if batch + depth > len(x.shape) or batch >= len(i.shape) or x.shape[:batch] != i.shape[:batch]:
        raise ValueError(f"indices of {depth} after {batch} axes do not fit")
    return (*i.shape[:-1], *x.shape[batch + depth :])


def _read_scatter(r: GraphBuilder, node):
    r.add(Node("ScatterElements", node.name, node.inputs, node.outputs, node.attrs))


def _lower_gather(p: LoweringContext, node):
    data, i = p.data(node.inputs[0]), p.at(node.inputs[1])
    axis = node.attrs.get("axis", 0) % len(p.known[node.inputs[0]].shape)
    one = p.data(node.inputs[1]) is not None and i.shape == ()
    if not one and is_odd(data) and axis < data.ndim - 1 and _gather_bytes(p, node, data, axis):
        return True
    x = p.at(node.inputs[0])
    if one:
        at = p.data(node.inputs[1]).item() % x.shape[axis]
        part = along(x, axis, at, 1)
        p.view(
            node.output,
            part._replace(shape=x.shape[:axis] + x.shape[axis + 1 :], strides=x.strides[:axis] + x.strides[axis + 1 :]),
        )
        return True
    return gather(p, node, x, _places(p, node), axis)


def _gather_bytes(p: LoweringContext, node, table, axis):
    """Rows of a table at odd addresses in a mapped file are moved as bytes: the table needs no copy."""
    y, size = p.result(node.output), table.itemsize
    if y.strides[-1] != 1:
        return False
    strides = *(s * size for s in y.strides[:-1]), 1
    y = y._replace(shape=(*y.shape[:-1], y.shape[-1] * size), strides=strides, dtype=np.dtype(np.uint8))
    x = p.constant(table.view(np.uint8), (*table.shape[:-1], table.shape[-1] * size))
    p.add("gather", node, x=x, indices=_places(p, node), y=y, along=axis, to=x.dtype)
    return True


def gather(p: LoweringContext, node, x, i, axis, single=False):
    """A step that picks elements of x along an axis, by indices of 64 bits."""
    if x.dtype not in MOVED:
        return False
    y = p.result(node.output)
    p.add("gather", node, x=x, indices=i, y=y, along=axis, to=x.dtype, single=single)
    return True


def _places(p: LoweringContext, node):
    """The indices of a node, in 64 bits."""
    i, wide = p.at(node.inputs[1]), np.dtype(np.int64)
    data = p.data(node.inputs[1])
    if i.dtype == wide:
        return i
    if isinstance(data, np.ndarray) and not is_symbolic(data):
        return p.constant(data.astype(wide), data.shape)
    y = p.new(i.shape, dtype=wide)
    p.map(node, "cast", y, i)
    return y


def _lower_gather_elements(p: LoweringContext, node):
    x, i = p.at(node.inputs[0]), _places(p, node)
    axis = node.attrs.get("axis", 0) % len(x.shape)
    rest = zip(x.shape, i.shape, strict=True)
    if any(n < m for d, (n, m) in enumerate(rest) if d != axis):
        return False
    return gather(p, node, x, i, axis, single=True)


def _lower_gather_nd(p: LoweringContext, node):
    """Rows of one index each are places along the first axis; indices that count along axes take all that is there."""
    if not node.attrs.get("batch_dims", 0) and ranges.lower_grid(p, node):
        return True
    i, x, batch = _places(p, node), p.at(node.inputs[0]), node.attrs.get("batch_dims", 0)
    depth = i.shape[-1]
    if not isinstance(depth, int) or not depth or x.dtype not in MOVED:
        return False
    if not batch and depth == 1:
        return gather(p, node, x, i._replace(shape=i.shape[:-1], strides=i.strides[:-1]), 0)
    count = math.prod(x.shape[: batch + depth])
    rows = p.reshape(node, x, (count, *x.shape[batch + depth :]))
    return gather(p, node, rows, _flat_places(p, node, x.shape[: batch + depth], i, batch), 0)


def _flat_places(p: LoweringContext, node, shape, i, batch):
    """The numbers of the parts that rows of indices name, after the axes of a batch, among all: tables give each index
    its distance, and refuse what is outside."""
    steps, wide, whole = row_major(shape), np.dtype(np.int64), i.shape[:-1]
    total = None
    for k in range(i.shape[-1]):
        one = i._replace(shape=whole, strides=i.strides[:-1], offset=i.offset + k * i.strides[-1] * wide.itemsize)
        n, at = shape[batch + k], p.new(whole, dtype=wide)
        table = p.constant(deferred(_distances, steps[batch + k], n), (n,), wide)
        p.add("gather", node, x=table, indices=p.dense(node, one, at.strides), y=at, along=0, to=wide)
        total = at if total is None else _sum(p, node, total, at)
    if batch:
        each = *shape[:batch], *[1] * (len(whole) - batch)
        total = _sum(p, node, total, p.constant(deferred(_distances, steps[batch - 1], *each), each, wide))
    return total


def _distances(step, *shape):
    """How far the parts of an array are from the first, where one is a step from the next."""
    return np.arange(math.prod(shape), dtype=np.int64).reshape(shape) * step


def _sum(p: LoweringContext, node, a, b):
    y = p.new(a.shape, dtype=a.dtype)
    p.map(node, "add", y, a, b)
    return y


def _counted(n, dtype):
    return np.arange(n, dtype=dtype)


def _lower_one_hot(p: LoweringContext, node):
    """Where the index, from the front, is that of the element."""
    i, v, y = p.at(node.inputs[0]), p.at(node.inputs[2]), p.known[node.output]
    axis = node.attrs.get("axis", -1) % len(y.shape)
    depth = y.shape[axis]
    if v.dtype not in PROGRAM:
        return False
    one = (*i.shape[:axis], 1, *i.shape[axis:])
    size, zero = (p.constant(deferred(np.array, n, i.dtype), (), i.dtype) for n in (depth, 0))
    wrapped, front = p.new(i.shape, dtype=i.dtype), p.new(i.shape, dtype=i.dtype)
    negative, same = p.new(i.shape, dtype=np.dtype(np.bool_)), p.new(y.shape, dtype=np.dtype(np.bool_))
    p.map(node, "add", wrapped, i, size)
    p.map(node, "less", negative, i, zero)
    p.map(node, "where", front, negative, wrapped, i)
    rows = p.constant(deferred(_counted, depth, i.dtype), (depth,), i.dtype)
    rows = p.reshape(node, rows, (depth, *[1] * (len(y.shape) - 1 - axis)))
    p.map(node, "equal", same, p.reshape(node, front, one), rows)
    off, on = (along(v, 0, n, 1)._replace(shape=(), strides=()) for n in (0, 1))
    p.map(node, "where", p.result(node.output), same, on, off)
    return True


def _box(indices, shape):
    """The slices that rows of indices are all places of, in order; None where they are no such part."""
    depth = indices.shape[-1]
    if indices.ndim != depth + 1 or indices.size == 0:
        return None
    first, last = indices[(0,) * depth], indices[(-1,) * depth]
    steps = [(b - a) // (n - 1) if n > 1 else 1 for a, b, n in zip(first, last, indices.shape[:-1], strict=True)]
    ends = [b + 1 for b in last.tolist()]
    inside = all(a >= 0 and s > 0 and e <= n for a, s, e, n in zip(first, steps, ends, shape[:depth], strict=True))
    if not inside:
        return None
    ranges = [range(a, e, s) for a, e, s in zip(first.tolist(), ends, map(int, steps), strict=True)]
    if tuple(map(len, ranges)) != indices.shape[:-1]:
        return None
    grid = np.stack(np.meshgrid(*ranges, indexing="ij"), -1)
    return [slice(r.start, r.stop, r.step) for r in ranges] if np.array_equal(grid, indices) else None


def _lower_scatter_nd(p: LoweringContext, node):
    """A step, or two copies where constant indices are all places of a part: all of x, and the updates into it."""
    indices, x = p.data(node.inputs[1]), p.at(node.inputs[0])
    known = isinstance(indices, np.ndarray) and not is_symbolic((indices, x.shape))
    where = _box(indices, x.shape) if known and node.attrs.get("reduction", "none") == "none" else None
    if where is None:
        return _scatter(p, node, x, None)
    y = p.result(node.output, like=x)
    p.copy(node, x, y)
    p.copy(node, p.at(node.inputs[2]), part(y, [*where, *[slice(None)] * (len(x.shape) - len(where))]))
    return True


def _lower_scatter_elements(p: LoweringContext, node):
    x = p.at(node.inputs[0])
    return _scatter(p, node, x, node.attrs.get("axis", 0) % len(x.shape))


def _scatter(p: LoweringContext, node, x, axis):
    reduction = node.attrs.get("reduction", "none")
    if not _core.scatter_takes(reduction, x.dtype):
        return False
    y, indices, updates = p.result(node.output), _places(p, node), p.at(node.inputs[2])
    p.add("scatter", node, x=x, indices=indices, updates=updates, y=y, reduction=reduction, along=axis, of=x.dtype)
    return True


_SINGLE = "no kernel that picks single elements"
_OWN = "its shape depends on values: the network runs in stages there"


def _nonzero(node, x):
    return np.array(np.nonzero(x.reshape(-1)) if x.ndim == 0 else np.nonzero(x), np.int64)[: x.ndim]


RECORDS = {
    "Compress": Operator(_compress, Inference(_found_shapes(_compress), shape_inputs=(0, 1)), NumPyOnly(_OWN)),
    "EyeLike": Operator(
        _eye, Inference(same_shape, dtype=_eye_type, shape_only=True), NumPyOnly("known as soon as shapes are")
    ),
    "Gather": Operator(
        lambda node, x, i: x.take(i, node.attrs.get("axis", 0)),
        Inference(_gather_shape, symbolic=True),
        Kernel(_lower_gather, dtypes=ANY),
    ),
    "GatherElements": Operator(
        _gather_elements, Inference(lambda node, x, i: i.shape), Kernel(_lower_gather_elements, dtypes=MOVED)
    ),
    "GatherND": Operator(
        _gather_nd,
        Inference(_gather_nd_shape),
        Kernel(_lower_gather_nd, dtypes=MOVED),
    ),
    "NonZero": Operator(
        _nonzero, Inference(_found_shapes(_nonzero), dtype=always(np.int64), shape_inputs=(0,)), NumPyOnly(_OWN)
    ),
    "OneHot": Operator(
        _one_hot,
        Inference(_one_hot_shape, dtype=lambda node, inputs, i: inputs[2].dtype, shape_inputs=(1,), may_grow=True),
        Kernel(_lower_one_hot, dtypes=PROGRAM),
    ),
    "ReverseSequence": Operator(
        _reverse_sequence, Inference(_reverse_shape), Kernel(_lower_reverse_sequence, dtypes=MOVED)
    ),
    "Scatter": Rewrite(_read_scatter, ("ScatterElements",)),
    "ScatterElements": Operator(
        _scatter_elements, Inference(same_shape), Kernel(_lower_scatter_elements, dtypes=MOVED)
    ),
    "ScatterND": Operator(_scatter_nd, Inference(same_shape), Kernel(_lower_scatter_nd, dtypes=MOVED)),
    "TensorScatter": Operator(_tensor_scatter, Inference(same_shape), NumPyOnly(_SINGLE)),
    "Trilu": Operator(
        _triangle, Inference(same_shape), Kernel(_lower_triangle, "of a constant diagonal", dtypes=PROGRAM)
    ),
    "Unique": Operator(
        _unique,
        Inference(
            _found_shapes(_unique),
            dtype=lambda node, inputs, i: np.dtype(np.int64) if i else inputs[0].dtype,
            shape_inputs=(0,),
        ),
        NumPyOnly(_OWN),
    ),
}
