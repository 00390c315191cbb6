"""What gives elements other places or shapes, picks them or puts them in."""

from __future__ import annotations

import numpy as np

from .entry import (
    Builtin,
    activated,
    as_shape,
    axis_in,
    is_float,
    is_image,
    length,
    moved,
    moved_to,
    ranked,
    same_quantization,
)

_END = 2**62  # of an axis, whatever its length


# ---- shapes


def _reshape(r, op):
    if op.input(1) is not None:
        shape = as_shape(r, op, 1)
    else:
        shape = op.numbers("NewShape")
    zeros = not isinstance(shape, list) or 0 in shape
    moved_to(r, op, lambda x: r.emit("Reshape", x, shape, **(dict(allowzero=1) if zeros else {})))


def _squeeze(r, op):
    axes = op.numbers("SqueezeDims")
    moved_to(r, op, lambda x: r.emit("Squeeze", x, axes or ""))


def _expand_dims(r, op):
    axis = op.constant(1, "axis").reshape(-1)[:1].tolist()
    moved_to(r, op, lambda x: r.emit("Unsqueeze", x, axis))


def _transpose(r, op):
    perm = op.constant(1, "order of axes").reshape(-1)
    rank = ranked(r, op, op.inputs[0])
    moved_to(r, op, lambda x: r.emit("Transpose", x, perm=[axis_in(a, rank, False, op) for a in perm]))


def _shape(r, op):
    sizes, y = r.fixed(op.inputs[0]), op.outputs[0]
    dtype = y.tensor.dtype or np.dtype(np.int32)
    if sizes is not None:
        return r.put(y, r.constant(r.at, sizes, dtype))
    return r.put(y, r.cast(r.emit("Shape", r.value(op.inputs[0], real=False)), dtype))


def _rank(r, op):
    r.put(op.outputs[0], r.constant(r.at, ranked(r, op, op.inputs[0]), np.int32))


def _broadcast_to(r, op):
    shape = as_shape(r, op, 1)
    moved_to(r, op, lambda x: r.emit("Expand", x, shape))


def _broadcast_args(r, op):
    a, b = (op.constant(i, "shape").reshape(-1).tolist() for i in range(2))
    r.put(op.outputs[0], r.constant(r.at, np.broadcast_shapes(a, b), op.outputs[0].tensor.dtype or np.int32))


def _fill(r, op):
    shape = as_shape(r, op, 0)
    moved_to(r, op, lambda x: r.emit("Expand", x, shape), 1)


def _zeros_like(r, op):
    x, y = op.inputs[0], op.outputs[0]
    zero, sizes = r.number(0, x.tensor.dtype), r.fixed(x)
    r.put(y, r.emit("Expand", zero, list(sizes) if sizes is not None else r.emit("Shape", r.value(x))), real=False)


def _range(r, op):
    dtype = op.outputs[0].tensor.dtype
    ends = [r.cast(r.value(each), dtype) for each in op.inputs[:3]]
    info = [r.info(v) for v in ends]
    if all(i is not None and i.data is not None for i in info):
        start, stop, step = (i.data.item() for i in info)
        return r.put(op.outputs[0], r.constant(r.at, np.arange(start, stop, step, dtype=dtype), dtype))
    return r.put(op.outputs[0], r.emit("Range", *(r.emit("Reshape", v, []) for v in ends)))


def _tile(r, op):
    repeats = as_shape(r, op, 1)
    moved_to(r, op, lambda x: r.emit("Tile", x, repeats))


# ---- parts


def _slice(r, op):
    begin, size = (r.array(op.inputs[i]) for i in (1, 2))
    if begin is None or size is None:
        starts, extents = (r.cast(r.value(op.inputs[i]), np.int64) for i in (1, 2))
        whole = r.emit("Less", extents, r.constant(r.at, 0, np.int64))
        ends = r.emit("Where", whole, r.constant(r.at, _END, np.int64), r.emit("Add", starts, extents))
        return moved_to(r, op, lambda x: r.emit("Slice", x, starts, ends))
    rank = ranked(r, op, op.inputs[0])
    begin, size = begin.reshape(-1).tolist(), size.reshape(-1).tolist()
    if not len(begin) == len(size) == rank:
        raise op.error(f"its begin {begin} and size {size} do not fit {rank} axes")
    ends = [_END if n < 0 else b + n for b, n in zip(begin, size, strict=True)]
    return moved(r, op, lambda x, first: _sliced(r, op, x, first, rank, begin, ends, [1] * rank))


def _sliced(r, op, x, first, rank, begin, ends, steps):
    """The part of x between bounds for each axis."""
    part = [a for a in range(rank) if (begin[a], steps[a]) != (0, 1) or ends[a] != _END]
    if not part:
        return x
    axes = [axis_in(a, rank, first, op) for a in part]
    return r.emit("Slice", x, *([values[a] for a in part] for values in (begin, ends)), axes, [steps[a] for a in part])


def _strided_slice(r, op):
    bounds = [r.array(op.inputs[i]) for i in (1, 2, 3)]
    if any(b is None for b in bounds):
        return _computed_slice(r, op)
    begin, end, step = (b.reshape(-1).tolist() for b in bounds)
    rank = ranked(r, op, op.inputs[0])
    parts, shape = _parts(op, rank, begin, end, step)
    begin, ends, steps = map(list, zip(*parts, strict=True)) if parts else ([], [], [])

    def make(x, first):
        y = _sliced(r, op, x, first, rank, begin, ends, steps)
        if shape == list(range(rank)):
            return y
        gone = [a for a in range(rank) if a not in shape]
        y = r.emit("Squeeze", y, gone) if gone else y
        new = [i for i, a in enumerate(shape) if a is None]
        return r.emit("Unsqueeze", y, new) if new else y

    return moved(r, op, make, first=None if shape == list(range(rank)) else False)


def _parts(op, rank, begin, end, step):
    """((begin, end, step) of each axis, the axes of the result, None for a new one) of a STRIDED_SLICE with masks."""
    new, whole = (_bits(op, name) for name in ("NewAxisMask", "EllipsisMask"))
    taken = [i for i in range(len(begin)) if i not in whole and i not in new]
    if not len(begin) == len(end) == len(step) or len(taken) > rank:
        raise op.error(f"its bounds {begin}, {end}, {step} do not fit {rank} axes")
    if not whole.intersection(range(len(begin))):
        whole.add(len(begin))
        begin, end, step = [*begin, 0], [*end, 0], [*step, 1]
    parts: list[tuple] = []
    shape: list[int | None] = []
    shrunk = _bits(op, "ShrinkAxisMask")
    for i, bounds in enumerate(zip(begin, end, step, strict=True)):
        if i in whole:
            rest = rank - len(taken) if i == min(whole) else 0
            shape += range(len(parts), len(parts) + rest)
            parts += [(0, _END, 1)] * rest
        elif i in new:
            shape.append(None)
        elif i in shrunk:
            parts.append((bounds[0], bounds[0] + 1 if bounds[0] != -1 else _END, 1))
        else:
            shape.append(len(parts))
            parts.append(_bounds(op, i, *bounds))
    return parts, shape


def _bits(op, name):
    """The places of a mask's bits."""
    return {i for i in range(32) if op.option(name) >> i & 1}


def _bounds(op, i, begin, end, step):
    """The bounds of an axis that stays, by the masks and options for its place in the lists."""
    if step == 0:
        raise op.error("its step is 0")
    if op.option("EndMask") >> i & 1:
        end = _END if step > 0 else -_END
    elif op.option("Offset"):
        end += begin
    if op.option("BeginMask") >> i & 1:
        begin = 0 if step > 0 else _END
    return begin, end, step


def _computed_slice(r, op):
    """A STRIDED_SLICE whose bounds the network computes: single elements of axes, or whole and partial ones."""
    begin, end = (r.cast(r.value(op.inputs[i]), np.int64) for i in (1, 2))
    step = op.constant(3, "list of steps").reshape(-1).tolist()
    if op.option("EllipsisMask") or op.option("NewAxisMask"):
        raise op.error("it has computed bounds and new axes: fusedops does not have both")
    shrink, axes = op.option("ShrinkAxisMask"), range(len(step))

    def make(x):
        kept = [a for a in axes if not shrink >> a & 1]
        for a in kept:
            whole = op.option("BeginMask") >> a & op.option("EndMask") >> a & 1
            if not (whole and step[a] == 1):
                start = [0] if op.option("BeginMask") >> a & 1 else r.emit("Slice", begin, [a], [a + 1])
                stop = [_END] if op.option("EndMask") >> a & 1 else r.emit("Slice", end, [a], [a + 1])
                x = r.emit("Slice", x, start, stop, [a], [step[a]])
        for a in reversed(axes):
            if shrink >> a & 1:
                at = r.emit("Reshape", r.emit("Slice", begin, [a], [a + 1]), [])
                x = r.emit("Gather", x, at, axis=a)
        return x

    moved_to(r, op, make)


def _split(r, op, sizes, axis, i):
    """Parts of an input along an axis: equal ones where no sizes are given, and -1 is what the others leave."""
    x, rank, n = op.inputs[i], ranked(r, op, op.inputs[i]), len(op.outputs)
    if sizes is not None and len(sizes) != n:
        raise op.error(f"it makes {n} parts of sizes {sizes}")
    real = not all(same_quantization(x, y) for y in op.outputs)
    first = x.native
    value, axis = r.value(x, first, real), axis_in(axis, rank, first, op)
    if sizes is None:
        parts = r.emit("Split", value, axis=axis, num_outputs=n, count=n)
    else:
        parts = r.emit("Split", value, _with_the_rest(r, value, axis, sizes), axis=axis, count=n)
    for y, part in zip(op.outputs, parts if n > 1 else [parts], strict=True):
        r.put(y, part, first, real)


def _with_the_rest(r, value, axis, sizes):
    """Sizes of parts, of which one may be what the others leave of an open size."""
    if -1 not in sizes:
        return sizes
    at = sizes.index(-1)
    rest = r.emit("Sub", length(r, value, axis), [sum(sizes) + 1])
    return r.emit("Concat", *filter(len, (sizes[:at], rest, sizes[at + 1 :])), axis=0)


def _length(r, op, i, axis):
    sizes, rank = r.sizes(op.inputs[i]), ranked(r, op, op.inputs[i])
    return sizes[axis_in(axis, rank, False, op)]


def _equal_split(r, op):
    axis, n = int(op.constant(0, "axis").reshape(-1)[0]), len(op.outputs)
    whole = _length(r, op, 1, axis)
    if not n or whole is not None and whole % n:
        raise op.error(f"an axis of {whole} does not split into {n} equal parts")
    _split(r, op, None if whole is None else [whole // n] * n, axis, 1)


def _split_v(r, op):
    sizes = op.constant(1, "list of sizes").reshape(-1).tolist()
    axis = int(op.constant(2, "axis").reshape(-1)[0])
    whole = _length(r, op, 0, axis) if -1 in sizes else None
    if whole is not None:
        sizes[sizes.index(-1)] = whole - sum(n for n in sizes if n != -1)
    _split(r, op, sizes, axis, 0)


def _joined(r, op, helds, real):
    first = is_image(r, *helds) and all(r.rank(h) == 4 for h in helds)
    return [r.value(h, first, real) for h in helds], first


def _concatenation(r, op):
    y, helds = op.outputs[0], op.inputs
    plain = r.activations.get(op.option("FusedActivationFunction")) == "NONE"
    real = not plain or not all(same_quantization(h, y) for h in helds)
    values, first = _joined(r, op, helds, real)
    axis = axis_in(op.option("Axis"), ranked(r, op, helds[0]), first, op)
    value = r.emit("Concat", *values, axis=axis) if len(values) > 1 else values[0]
    r.put(y, activated(r, op, value), first, real)


def _pack(r, op):
    y = op.outputs[0]
    real = not all(same_quantization(h, y) for h in op.inputs)
    axis = axis_in(op.option("Axis"), ranked(r, op, op.inputs[0]) + 1, False, op)
    values = [r.emit("Unsqueeze", r.value(h, real=real), [axis]) for h in op.inputs]
    r.put(y, r.emit("Concat", *values, axis=axis) if len(values) > 1 else values[0], real=real)


def _unpack(r, op):
    x = op.inputs[0]
    real = not all(same_quantization(x, y) for y in op.outputs)
    axis, n = axis_in(op.option("Axis"), ranked(r, op, x), False, op), len(op.outputs)
    parts = r.emit("Split", r.value(x, real=real), [1] * n, axis=axis, count=n)
    for y, part in zip(op.outputs, parts if n > 1 else [parts], strict=True):
        r.put(y, r.emit("Squeeze", part, [axis]), real=real)


# ---- padding


def _amounts(r, op, first):
    pads = op.constant(1, "padding")
    if pads.ndim != 2 or pads.shape[1] != 2 or pads.min(initial=0) < 0:
        raise op.error(f"its padding {pads.tolist()} is not a pair for each axis")
    pads = pads[[0, 3, 1, 2]] if first else pads
    return [*pads[:, 0].tolist(), *pads[:, 1].tolist()]


def _as_image(op):
    """Whether rows and columns of images are padded, which a convolution may do itself."""
    pads = op.constant(1, "padding")
    return pads.shape == (4, 2) and not pads[[0, 3]].any()


def _pad(r, op):
    """Zeros, or a value that is stored as the input is; of quantized tensors the zero point is 0."""
    x, given = op.inputs[0], op.input(2)

    def make(value, first):
        q, real = x.quantization, is_float(r, value)
        if given is not None:
            fill = r.emit("Reshape", r.value(given, real=real), [])
        elif q is not None and not real:
            fill = r.constant(f"{r.at}.zero", q.zero[0], x.tensor.dtype)
        else:
            fill = ""
        return r.emit("Pad", value, _amounts(r, op, first), fill)

    moved(r, op, make, first=True if _as_image(op) else None)


def _mirror_pad(r, op):
    first = op.inputs[0].native
    if not op.option("Mode"):  # REFLECT
        return moved(r, op, lambda x, first: r.emit("Pad", x, _amounts(r, op, first), mode="reflect"), first=first)

    def make(x, first):
        amounts = _amounts(r, op, first)
        for axis, (b, e) in enumerate(zip(amounts[: len(amounts) // 2], amounts[len(amounts) // 2 :], strict=True)):
            parts = [r.emit("Slice", x, [b - 1], [-_END], [axis], [-1])] if b else []
            parts += [x, *([r.emit("Slice", x, [-1], [-e - 1], [axis], [-1])] if e else [])]
            x = r.emit("Concat", *parts, axis=axis) if len(parts) > 1 else x
        return x

    return moved(r, op, make, first=first)


# ---- blocks of pixels


def _blocks(r, op):
    """(sizes of the input, block, pairs) of an operator that moves blocks to the batch or back."""
    sizes, block, pairs = r.sizes(op.inputs[0]), op.constant(1, "block").reshape(-1).tolist(), op.constant(2, "borders")
    if sizes is None or len(block) >= len(sizes) or pairs.shape != (len(block), 2) or min(block, default=1) < 1:
        raise op.error(f"its block {block} and borders {pairs.tolist()} do not fit a tensor of shape {sizes}")
    if None in sizes[1:]:
        raise op.error("its sizes are open: convert it with fixed sizes")
    return list(sizes), block, pairs


def _space_to_batch(r, op):
    (n, *spatial), block, pads = _blocks(r, op)
    m, rest = len(block), spatial[len(block) :]
    after = [s + int(p.sum()) for s, p in zip(spatial, pads, strict=False)]
    if any(s % b for s, b in zip(after, block, strict=True)):
        raise op.error(f"padded sizes {after} do not consist of blocks of {block}")

    def make(x):
        q = op.inputs[0].quantization
        zero = "" if q is None or is_float(r, x) else r.constant(r.at, q.zero[0], op.inputs[0].tensor.dtype)
        around = [0] * len(rest)
        if pads.any():
            x = r.emit("Pad", x, [0, *pads[:, 0].tolist(), *around, 0, *pads[:, 1].tolist(), *around], zero)
        x = r.emit(
            "Reshape",
            x,
            [-1 if n is None else n, *(k for s, b in zip(after, block, strict=True) for k in (s // b, b)), *rest],
        )
        inner, outer = [2 * i + 2 for i in range(m)], [2 * i + 1 for i in range(m)]
        x = r.emit("Transpose", x, perm=[*inner, 0, *outer, *range(2 * m + 1, 2 * m + 1 + len(rest))])
        return r.emit("Reshape", x, [-1, *(s // b for s, b in zip(after, block, strict=True)), *rest])

    if op.inputs[0].quantization is not None and not same_quantization(op.inputs[0], op.outputs[0]):
        raise op.error("it quantizes its result otherwise than its input")
    moved_to(r, op, make)


def _batch_to_space(r, op):
    (n, *spatial), block, crops = _blocks(r, op)
    m, rest = len(block), spatial[len(block) :]
    batch = -1 if n is None else n // int(np.prod(block))

    def make(x):
        x = r.emit("Reshape", x, [*block, batch, *spatial])
        pairs = [k for i in range(m) for k in (m + 1 + i, i)]
        x = r.emit("Transpose", x, perm=[m, *pairs, *range(2 * m + 1, 2 * m + 1 + len(rest))])
        whole = [s * b for s, b in zip(spatial, block, strict=False)]
        x = r.emit("Reshape", x, [batch, *whole, *rest])
        ends = [w - int(c[1]) for w, c in zip(whole, crops, strict=True)]
        return r.emit("Slice", x, crops[:, 0].tolist(), ends, list(range(1, m + 1))) if crops.any() else x

    moved_to(r, op, make)


_FIXED = "of fixed sizes"
READERS = {
    "BATCH_TO_SPACE_ND": Builtin(_batch_to_space, _FIXED),
    "BROADCAST_ARGS": Builtin(_broadcast_args, "of constant shapes"),
    "BROADCAST_TO": Builtin(_broadcast_to),
    "CONCATENATION": Builtin(_concatenation),
    "EXPAND_DIMS": Builtin(_expand_dims),
    "FILL": Builtin(_fill),
    "MIRROR_PAD": Builtin(_mirror_pad),
    "PACK": Builtin(_pack),
    "PAD": Builtin(_pad),
    "PADV2": Builtin(_pad),
    "RANGE": Builtin(_range),
    "RANK": Builtin(_rank),
    "RESHAPE": Builtin(_reshape),
    "SHAPE": Builtin(_shape),
    "SLICE": Builtin(_slice),
    "SPACE_TO_BATCH_ND": Builtin(_space_to_batch, _FIXED),
    "SPLIT": Builtin(_equal_split),
    "SPLIT_V": Builtin(_split_v),
    "SQUEEZE": Builtin(_squeeze),
    "STRIDED_SLICE": Builtin(_strided_slice),
    "TILE": Builtin(_tile),
    "TRANSPOSE": Builtin(_transpose),
    "UNPACK": Builtin(_unpack),
    "ZEROS_LIKE": Builtin(_zeros_like),
}
