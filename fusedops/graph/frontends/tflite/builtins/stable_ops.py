"""Operators of StableHLO, which converters leave where TFLite has none of its own, and windows that are reduced."""

import math

import numpy as np

from ..call import Held
from .entry import Builtin, axis_in, moved_to, operands, ranked
from .flow_ops import READERS as FLOW
from .indexing_ops import READERS as INDEXING
from .pointwise_ops import READERS as POINTWISE

_END = 2**62  # of an axis, whatever its length
_WINDOW = 4096  # elements that a window has at most along all axes
_REDUCTIONS = {"ADD": "add", "MULTIPLY": "mul", "MUL": "mul", "MAXIMUM": "max", "MINIMUM": "min"}
_COMPARISONS = "EQUAL", "NOT_EQUAL", "GREATER_EQUAL", "GREATER", "LESS_EQUAL", "LESS"
_PAIRS = {"add": "Add", "mul": "Mul", "max": "Max", "min": "Min", "and": "And", "or": "Or"}
_WINDOWED = {1: "add", 2: "mul", 3: "min", 4: "max", 5: "and", 6: "or"}  # numbers of ReduceWindowFunction
_OVER_ALL = {"add": "ReduceSum", "mul": "ReduceProd", "max": "ReduceMax", "min": "ReduceMin"}


def _reduction(r, op, index):
    """Returns the operation by which a subgraph of one operator combines two numbers; "none": it takes the second."""
    if not 0 <= index < len(r.model.subgraphs):
        raise op.error(f"the model is damaged: it calls subgraph {index} of {len(r.model.subgraphs)}")
    body = r.model.subgraphs[index]
    kinds = [o.kind.removeprefix("STABLEHLO_") for o in body.operations]
    if not kinds and body.outputs == body.inputs[1:]:
        return "none"
    if len(kinds) != 1 or kinds[0] not in _REDUCTIONS:
        raise op.error(
            f"it combines numbers by {' and '.join(kinds) or 'nothing'}: fusedops has {', '.join(_REDUCTIONS)}"
        )
    return _REDUCTIONS[kinds[0]]


# ---- single elements


def _compare(r, op):
    direction = op.option("ComparisonDirection")
    if not 0 <= direction < len(_COMPARISONS):
        raise op.error(f"it has the direction {direction}")
    POINTWISE[_COMPARISONS[direction]].read(r, op)


def _of_bits(logical, bitwise):
    def read(r, op):
        values, first = operands(r, op.inputs[:2])
        r.put(op.outputs[0], r.emit(logical if op.inputs[0].tensor.dtype == np.bool_ else bitwise, *values), first)

    return Builtin(read)


def _clamp(r, op):
    low, x, high = (r.value(h) for h in op.inputs[:3])
    r.put(op.outputs[0], r.emit("Min", r.emit("Max", x, low), high))


def _cube_root(r, op):
    x = r.value(op.inputs[0])
    root = r.emit("Pow", r.emit("Abs", x), r.number(1 / 3))
    r.put(op.outputs[0], r.emit("Mul", root, r.emit("Sign", x)))


def _shift_left(r, op):
    a, b = (r.integers(h) for h in op.inputs[:2])
    dtype = op.inputs[0].tensor.dtype
    wide = r.emit("Mul", r.cast(a, np.int64), r.emit("Pow", r.number(2, np.int64), r.cast(b, np.int64)))
    r.put(op.outputs[0], r.cast(wide, dtype), real=False)


def _remainder(r, op):
    """With the sign of what is divided."""
    r.put(op.outputs[0], r.emit("Mod", *(r.value(h) for h in op.inputs[:2]), fmod=1))


# ---- shapes


def _made_shape(op):
    """The shape of the result as the file has it."""
    shape = op.outputs[0].tensor.shape
    if shape is None or min(shape, default=0) < 0:
        raise op.error("the shape of its result is open: convert it with fixed sizes")
    return list(shape)


def _reshaped(r, x, sizes):
    """A value in a shape that is all known: 0 is a size there, not the one that x has."""
    return r.emit("Reshape", x, sizes, allowzero=1)


def _reshape(r, op):
    moved_to(r, op, lambda x: _reshaped(r, x, _made_shape(op)))


def _transpose(r, op):
    rank, perm = ranked(r, op, op.inputs[0]), op.numbers("Permutation")
    moved_to(r, op, lambda x: r.emit("Transpose", x, perm=[axis_in(a, rank, False, op) for a in perm]))


def _concatenate(r, op):
    values = [r.value(h) for h in op.inputs]
    r.put(op.outputs[0], r.emit("Concat", *values, axis=op.option("Dimension")))


def _broadcast_in_dim(r, op):
    """Axes of the input are those of the result that a list names."""
    sizes, inner, axes = _made_shape(op), r.fixed(op.inputs[0]), op.numbers("BroadcastDimensions")
    if inner is None or len(axes) != len(inner):
        raise op.error(f"it spreads a tensor of shape {inner} over axes {axes} of {sizes}")
    with_ones = [1] * len(sizes)
    for a, n in zip(axes, inner, strict=True):
        with_ones[axis_in(a, len(sizes), False, op)] = n
    moved_to(r, op, lambda x: r.emit("Expand", _reshaped(r, x, with_ones), sizes))


def _iota(r, op):
    y, sizes = op.outputs[0], _made_shape(op)
    at = axis_in(op.option("IotaDimension"), len(sizes), False, op)
    counted = np.arange(sizes[at]).reshape([-1 if a == at else 1 for a in range(len(sizes))])
    r.put(y, r.constant(r.at, np.broadcast_to(counted, sizes), y.tensor.dtype))


def _slice(r, op):
    bounds = [op.numbers(name) for name in ("StartIndices", "LimitIndices", "Strides")]
    axes = list(range(len(bounds[0])))
    moved_to(r, op, lambda x: r.emit("Slice", x, *bounds[:2], axes, bounds[2]))


def _start(r, op, i):
    """Scalars from input `i` on, where a part begins in each axis, as one value."""
    start = [r.emit("Reshape", r.cast(r.value(h), np.int64), [1]) for h in op.inputs[i:]]
    return r.emit("Concat", *start, axis=0) if len(start) > 1 else start[0]


def _dynamic_slice(r, op):
    """A part of constant size, inside the tensor wherever it is to begin."""
    sizes, whole = op.numbers("SliceSizes"), r.fixed(op.inputs[0])
    if whole is None or len(whole) != len(sizes) or len(op.inputs) != 1 + len(sizes):
        raise op.error(f"it takes {sizes} of a tensor of shape {whole}")
    if not sizes:
        return moved_to(r, op, lambda x: x)
    most = r.constant(r.at, [n - m for n, m in zip(whole, sizes, strict=True)], np.int64)
    start = r.emit("Max", r.emit("Min", _start(r, op, 1), most), r.constant(r.at, 0, np.int64))
    end = r.emit("Add", start, r.constant(r.at, sizes, np.int64))
    return moved_to(r, op, lambda x: r.emit("Slice", x, start, end))


def _dynamic_update_slice(r, op):
    if len(op.inputs) > 2:
        op.inputs = [*op.inputs[:2], Held(op.inputs[2].tensor._replace(dtype=np.dtype(np.int64)), _start(r, op, 2))]
    INDEXING["DYNAMIC_UPDATE_SLICE"].read(r, op)


def _pad(r, op):
    """A value before, after and between the elements; less than none takes elements away."""
    low, high, inside = (op.numbers(name) for name in ("EdgePaddingLow", "EdgePaddingHigh", "InteriorPadding"))
    sizes, fill = r.fixed(op.inputs[0]), r.emit("Reshape", r.value(op.inputs[1]), [])
    if sizes is None or not len(sizes) == len(low) == len(high) == len(inside) or min(inside, default=0) < 0:
        raise op.error(f"it pads a tensor of shape {sizes} by {low}, {high} and {inside} between")
    x = r.value(op.inputs[0])
    if any(inside):
        single = [n for size in sizes for n in (size, 1)]
        pads = [n for i in inside for n in (0, i)]
        x = r.emit("Pad", _reshaped(r, x, single), [0] * len(pads) + pads, fill)
        sizes = [n * (i + 1) for n, i in zip(sizes, inside, strict=True)]
        x = r.emit("Slice", _reshaped(r, x, sizes), [0] * len(sizes), [n - i for n, i in zip(sizes, inside)])
    r.put(op.outputs[0], r.emit("Pad", x, [*low, *high], fill) if any(low) or any(high) else x)


# ---- gather and scatter


def _slice_indices(r, start, operand_axes, sizes):
    """The indices (..., *sizes, axes) of the elements of slices that begin at `start` (..., one for each of
    `operand_axes`), as a value."""
    rank, batch = len(sizes), len(r.info(start).shape) - 1
    zero = r.emit("Mul", r.emit("Slice", start, [0], [1], [batch]), r.constant(r.at, 0, np.int64))
    columns = [operand_axes.index(a) if a in operand_axes else len(operand_axes) for a in range(rank)]
    start = r.emit("Gather", r.emit("Concat", start, zero, axis=batch), columns, axis=batch)
    start = r.emit("Unsqueeze", start, list(range(batch, batch + rank))) if rank else start
    grid = np.moveaxis(np.indices(sizes), 0, -1)
    return r.emit("Add", start, r.constant(r.at, grid, np.int64))


def _starts(r, op, i, count):
    """(the starts with their `count` numbers along the last axis, the number of their other axes)."""
    held, axis = op.inputs[i], op.option("IndexVectorDim")
    rank, value = ranked(r, op, held), r.cast(r.value(held), np.int64)
    if axis == rank and count == 1:
        return r.emit("Unsqueeze", value, [rank]), rank
    if not 0 <= axis < rank:
        raise op.error(f"its indices of {rank} axes have no axis {axis}")
    order = [*(a for a in range(rank) if a != axis), axis]
    return (value if axis == rank - 1 else r.emit("Transpose", value, perm=order)), rank - 1


def _gather(r, op):
    """Slices that begin, inside the tensor, where rows of indices say."""
    offsets, collapsed, axes, sizes = (
        op.numbers(name) for name in ("OffsetDims", "CollapsedSliceDims", "StartIndexMap", "SliceSizes")
    )
    whole = r.fixed(op.inputs[0])
    if whole is None or len(sizes) != len(whole) or r.fixed(op.inputs[1]) is None:
        raise op.error(f"it takes slices of {sizes} of a tensor of shape {whole}")
    start, batch = _starts(r, op, 1, len(axes))
    most = r.constant(r.at, [whole[a] - sizes[a] for a in axes], np.int64)
    start = r.emit("Max", r.emit("Min", start, most), r.constant(r.at, 0, np.int64))
    kept = [a for a in range(len(whole)) if a not in collapsed]
    others = iter(range(batch))
    after = iter(range(batch, batch + len(kept)))
    perm = [next(after) if a in offsets else next(others) for a in range(batch + len(kept))]

    def make(x):
        y = r.emit("GatherND", x, _slice_indices(r, start, axes, sizes))
        y = r.emit("Squeeze", y, [batch + a for a in collapsed]) if collapsed else y
        return y if perm == sorted(perm) else r.emit("Transpose", y, perm=perm)

    moved_to(r, op, make)


def _scatter(r, op):
    """Updates that are put, or combined with what is there, where rows of indices say."""
    windows, inserted, axes = (
        op.numbers(name) for name in ("UpdateWindowDims", "InsertedWindowDims", "ScatterDimsToOperandDims")
    )
    reduction = _reduction(r, op, op.option("UpdateComputationSubgraphIndex"))
    whole, updates = r.fixed(op.inputs[0]), r.fixed(op.inputs[2])
    if whole is None or updates is None or len(windows) + len(inserted) != len(whole):
        raise op.error(f"it puts updates of shape {updates} into a tensor of shape {whole}")
    extents = iter(updates[a] for a in windows)
    sizes = [1 if a in inserted else next(extents) for a in range(len(whole))]
    start, batch = _starts(r, op, 1, len(axes))
    order = [*(a for a in range(len(updates)) if a not in windows), *windows]
    value = r.value(op.inputs[2])
    value = value if order == sorted(order) else r.emit("Transpose", value, perm=order)
    value = _reshaped(r, value, [*(updates[a] for a in order[:batch]), *sizes])
    x, at = r.value(op.inputs[0]), _slice_indices(r, start, axes, sizes)
    known = r.info(at).data
    if known is not None and np.all((known >= 0) & (known < whole)):
        return r.put(op.outputs[0], r.emit("ScatterND", x, at, value, reduction=reduction))
    # what lies outside is put into a border, which is cut off
    ones, last = [1] * len(whole), r.constant(r.at, np.add(whole, 1), np.int64)
    at = r.emit("Add", at, r.constant(r.at, 1, np.int64))
    at = r.emit("Max", r.emit("Min", at, last), r.constant(r.at, 0, np.int64))
    y = r.emit("ScatterND", r.emit("Pad", x, ones + ones), at, value, reduction=reduction)
    return r.put(op.outputs[0], r.emit("Slice", y, ones, [n + 1 for n in whole]))


# ---- reductions and products


def _reduce(r, op):
    kind, axes = _reduction(r, op, op.option("BodySubgraphIndex")), op.numbers("Dimensions")
    if len(op.inputs) != 2 or kind == "none":
        raise op.error(f"it reduces {len(op.inputs) // 2} tensors: fusedops reduces one")
    y = r.emit(_OVER_ALL[kind], r.value(op.inputs[0]), axes, keepdims=0)
    r.put(op.outputs[0], r.emit(_PAIRS[kind], y, r.emit("Reshape", r.value(op.inputs[1]), [])))


def _windows_reduced(r, op, kind, x, sizes, window, strides, dilations):
    """Each window of x (of these sizes) combined, an axis after the other."""
    least = min([*window, *strides, *dilations], default=1)
    if not len(sizes) == len(window) == len(strides) == len(dilations) or least < 1:
        raise op.error(f"windows of {window} by strides {strides} do not fit a tensor of shape {tuple(sizes)}")
    if math.prod(window) > _WINDOW:
        raise op.error(f"its windows have {math.prod(window)} elements: fusedops takes up to {_WINDOW}")
    for a, (n, w, s, d) in enumerate(zip(sizes, window, strides, dilations, strict=True)):
        if w == s == 1:
            continue
        count = (n - (w - 1) * d - 1) // s + 1
        if count < 1:
            raise op.error(f"windows of {window} are larger than the tensor of shape {tuple(sizes)}")
        parts = [r.emit("Slice", x, [i * d], [i * d + (count - 1) * s + 1], [a], [s]) for i in range(w)]
        x = parts[0]
        for part in parts[1:]:
            x = r.emit(_PAIRS[kind], x, part)
    return x


def _reduce_window(r, op):
    window, strides, dilations = (op.constant(i, "window").reshape(-1).tolist() for i in (2, 3, 4))
    kind, sizes = _WINDOWED.get(op.option("ReduceFunction")), r.fixed(op.inputs[0])
    if kind is None or sizes is None:
        raise op.error(f"it reduces a tensor of shape {sizes} by function {op.option('ReduceFunction')}")
    y = _windows_reduced(r, op, kind, r.value(op.inputs[0]), sizes, window, strides, dilations)
    r.put(op.outputs[0], r.emit(_PAIRS[kind], y, r.emit("Reshape", r.value(op.inputs[1]), [])))


def _stable_reduce_window(r, op):
    kind, sizes = _reduction(r, op, op.option("BodySubgraphIndex")), r.fixed(op.inputs[0])
    window, strides, base_dilations, dilations, pads = (
        op.numbers(f) for f in ("WindowDimensions", "WindowStrides", "BaseDilations", "WindowDilations", "Padding")
    )
    if sizes is None or kind == "none" or any(n != 1 for n in base_dilations):
        raise op.error(f"it reduces a tensor of shape {sizes}, with {base_dilations} between elements")
    ones = [1] * len(sizes)
    start, x = r.emit("Reshape", r.value(op.inputs[1]), []), r.value(op.inputs[0])
    if any(pads):
        x = r.emit("Pad", x, [*pads[::2], *pads[1::2]], start)
        sizes = [n + a + b for n, a, b in zip(sizes, pads[::2], pads[1::2], strict=True)]
    y = _windows_reduced(r, op, kind, x, sizes, window, strides or ones, dilations or ones)
    r.put(op.outputs[0], r.emit(_PAIRS[kind], y, start))


def _dot_general(r, op):
    """A product over contracted axes for each index of a batch: the batch, then the other axes of both."""
    ends = []
    for held, side in zip(op.inputs[:2], ("Lhs", "Rhs"), strict=True):
        batch, inner = op.numbers(f"{side}BatchingDimensions"), op.numbers(f"{side}ContractingDimensions")
        sizes = r.fixed(held)
        if sizes is None:
            raise op.error("its sizes are open: convert it with fixed sizes")
        ends.append((r.value(held), batch, [a for a in range(len(sizes)) if a not in (*batch, *inner)], inner, sizes))
    (a, *left, m), (b, *right, n) = ends
    rows = [[sizes[i] for i in axes] for sizes, (_, axes, _) in ((m, left), (n, right))]
    batch, depth = [m[i] for i in left[0]], math.prod(m[i] for i in left[2])
    a = r.emit("Transpose", a, perm=[*left[0], *left[1], *left[2]])
    b = r.emit("Transpose", b, perm=[*right[0], *right[2], *right[1]])
    a = _reshaped(r, a, [*batch, math.prod(rows[0]), depth])
    b = _reshaped(r, b, [*batch, depth, math.prod(rows[1])])
    r.put(op.outputs[0], _reshaped(r, r.emit("MatMul", a, b), [*batch, *rows[0], *rows[1]]))


_ALIKE = {  # names in StableHLO of operators that TFLite has, too
    "ABS": "ABS", "ADD": "ADD", "CONVERT": "CAST", "COSINE": "COS", "DIVIDE": "DIV",
    "EXPONENTIAL": "EXP", "FLOOR": "FLOOR", "LOG": "LOG", "LOGISTIC": "LOGISTIC", "MAXIMUM": "MAXIMUM",
    "MINIMUM": "MINIMUM", "MULTIPLY": "MUL", "NEGATE": "NEG", "POWER": "POW", "RSQRT": "RSQRT",
    "SELECT": "SELECT_V2", "SUBTRACT": "SUB", "TANH": "TANH",
}  # fmt: skip
_FIXED = "of fixed sizes"
READERS = {f"STABLEHLO_{name}": POINTWISE[same] for name, same in _ALIKE.items()} | {
    "REDUCE_WINDOW": Builtin(_reduce_window, "of fixed sizes and constant windows"),
    "STABLEHLO_AND": _of_bits("And", "BitwiseAnd"),
    "STABLEHLO_BROADCAST_IN_DIM": Builtin(_broadcast_in_dim, _FIXED),
    "STABLEHLO_CBRT": Builtin(_cube_root),
    "STABLEHLO_CLAMP": Builtin(_clamp),
    "STABLEHLO_COMPARE": Builtin(_compare),
    "STABLEHLO_CONCATENATE": Builtin(_concatenate),
    "STABLEHLO_DOT_GENERAL": Builtin(_dot_general, _FIXED),
    "STABLEHLO_DYNAMIC_SLICE": Builtin(_dynamic_slice, _FIXED),
    "STABLEHLO_DYNAMIC_UPDATE_SLICE": Builtin(_dynamic_update_slice, _FIXED),
    "STABLEHLO_GATHER": Builtin(_gather, _FIXED),
    "STABLEHLO_IOTA": Builtin(_iota, _FIXED),
    "STABLEHLO_OR": _of_bits("Or", "BitwiseOr"),
    "STABLEHLO_PAD": Builtin(_pad, _FIXED),
    "STABLEHLO_REDUCE": Builtin(_reduce, "of one tensor by one operator"),
    "STABLEHLO_REDUCE_WINDOW": Builtin(_stable_reduce_window, "of fixed sizes by one operator"),
    "STABLEHLO_REMAINDER": Builtin(_remainder),
    "STABLEHLO_RESHAPE": Builtin(_reshape, _FIXED),
    "STABLEHLO_SCATTER": Builtin(_scatter, "of fixed sizes by one operator"),
    "STABLEHLO_SHIFT_LEFT": Builtin(_shift_left),
    "STABLEHLO_SLICE": Builtin(_slice),
    "STABLEHLO_TRANSPOSE": Builtin(_transpose),
    "STABLEHLO_WHILE": FLOW["WHILE"],
}
