"""What gives elements other places or shapes, joins and parts tensors, or makes new ones."""

import numpy as np

from ..fx_values import FxValue, OpenSize, Unsupported, sizes

END = 2**63 - 1


def _reshape(p, x, *_, **__):
    """View, flatten, squeeze and their kin: torch's export says which shape comes out."""
    return p.reshape(x, p.made.shape)


def _element(p, x):
    return p.op("Reshape", x, [])


def axis(x, dim):
    return dim % max(x.ndim, 1)


def transpose(p, x, order):
    return p.op("Transpose", x, perm=list(order))


def _squeeze(p, x, dim=None):
    """Without axes named, an open size of 1 goes too when a call has it, as in torch."""
    return p.reshape(x, p.made.shape) if dim is not None else p.op("Squeeze", x)


def _as_strided(p, x, size, stride, storage_offset=0):
    """The tensor as it is, told how its axes of one element lie, as after a pool of an image with channels last."""
    found, made = p.fx_node.args[0].meta["val"], p.made
    if sizes(found.shape) != sizes(made.shape) or found.storage_offset() != (storage_offset or 0):
        raise Unsupported("fusedops does not have as_strided")
    pairs = zip(x.shape, found.stride(), made.stride(), strict=True)
    if any(n != 1 and sizes([a]) != sizes([b]) for n, a, b in pairs):
        raise Unsupported("fusedops does not have as_strided")
    return x


def _permute(p, x, dims):
    return transpose(p, x, [axis(x, d) for d in dims])


def _swap(p, x, dim0=-2, dim1=-1):
    order = list(range(x.ndim))
    if x.ndim > 1:
        a, b = axis(x, dim0), axis(x, dim1)
        order[a], order[b] = b, a
    return transpose(p, x, order)


def _swap_named(p, x, axis0, axis1):
    return _swap(p, x, axis0, axis1)


def _move(p, x, source, destination):
    source, destination = ([axis(x, d) for d in (s if isinstance(s, list) else [s])] for s in (source, destination))
    rest = iter(a for a in range(x.ndim) if a not in source)
    places = dict(zip(destination, source, strict=True))
    return transpose(p, x, [places[i] if i in places else next(rest) for i in range(x.ndim)])


def _reverse_axes(p, x):
    return transpose(p, x, range(x.ndim)[::-1])


def _expand(p, x, *_, **__):
    """To the shape that comes out; an open size that x has already stays as it is."""
    shape = list(sizes(p.made.shape))
    before = len(shape) - x.ndim
    for i, n in enumerate(shape):
        if isinstance(n, OpenSize) and i >= before and n == x.shape[i - before]:
            shape[i] = 1
    return p.op("Expand", x, p.shape(shape))


def _repeat(p, x, repeats):
    more = len(repeats) - x.ndim
    x = p.reshape(x, [1] * more + list(x.shape)) if more else x
    return p.op("Tile", x, p.shape(repeats))


def _tile(p, x, dims):
    return _repeat(p, x, [1] * (x.ndim - len(dims)) + list(dims))


def _repeat_interleave(p, x, repeats, dim=None, output_size=None):
    """Each element, as an axis of one after its own, as often as it is wanted."""
    if not isinstance(repeats, int):
        raise Unsupported("fusedops does not have repeat_interleave with a number for each element")
    if dim is None:
        return p.op("Reshape", p.op("Expand", p.op("Reshape", x, [-1, 1]), [1, repeats]), [-1])
    dim = axis(x, dim)
    wide = p.op("Expand", p.op("Unsqueeze", x, [dim + 1]), [1] * (dim + 1) + [repeats] + [1] * (x.ndim - dim - 1))
    return p.reshape(FxValue(wide, (*x.shape[: dim + 1], repeats, *x.shape[dim + 1 :]), x.dtype), p.made.shape)


def _cat(p, tensors, dim=0):
    tensors = [t for t in tensors if tuple(t.shape) != (0,) or len(p.made.shape) == 1]  # torch leaves out empty vectors
    return p.op("Concat", *[p.cast(t, p.made.dtype) for t in tensors], axis=axis(p.made, dim))


def _stack(p, tensors, dim=0):
    dim = axis(p.made, dim)
    return p.op("Concat", *[p.op("Unsqueeze", p.cast(t, p.made.dtype), [dim]) for t in tensors], axis=dim)


def _split(p, x, *_, dim=0, **__):
    """Into parts of the sizes that come out."""
    dim = axis(x, dim)
    lengths = [made.shape[dim] for made in p.made]
    if len(lengths) == 1:
        return [x]
    return p.op("Split", x, p.shape(lengths), count=len(lengths), axis=dim)


def _unbind(p, x, dim=0):
    return [p.op("Gather", x, i, axis=axis(x, dim)) for i in range(len(p.made))]


def _select(p, x, dim, index):
    return p.op("Gather", x, index, axis=axis(x, dim))


def part(p, x, dim, start=0, end=None, step=1):
    bounds = [p.shape([n]) for n in (start or 0, END if end is None else end)]
    return p.op("Slice", x, *bounds, [dim], [step])


def _slice(p, x, dim=0, start=None, end=None, step=1):
    if (start or 0) == 0 and (end is None or isinstance(end, int) and end >= END) and step == 1:
        return x
    return part(p, x, axis(x, dim), start, end, step)


def _narrow(p, x, dim, start, length):
    if isinstance(start, int) and isinstance(length, int):
        return part(p, x, axis(x, dim), start, start + length)
    start, length = (p.number(v, np.int64) for v in (start, length))
    ends = [p.op("Unsqueeze", v, [0]) for v in (start, p.op("Add", start, length))]
    return p.op("Slice", x, *ends, [axis(x, dim)])


def _slice_scatter(p, x, src, dim=0, start=None, end=None, step=1):
    """x with a part replaced: what is before it, the part, what is after it."""
    dim = axis(x, dim)
    if step != 1:
        raise Unsupported(f"fusedops does not have an assignment to every {step}th element")
    length, start = x.shape[dim], start or 0
    end = END if end is None else end
    whole = start == 0 and isinstance(end, int) and (end >= END or isinstance(length, int) and end >= length)
    src = p.op("Expand", p.cast(src, p.made.dtype), p.shape(src.shape))
    if whole:
        return src
    parts = [part(p, x, dim, 0, start)] if start != 0 else []
    parts += [src] + ([part(p, x, dim, end)] if not (isinstance(end, int) and end >= END) else [])
    return p.op("Concat", *parts, axis=dim) if len(parts) > 1 else parts[0]


def _select_scatter(p, x, src, dim, index):
    dim = axis(x, dim)
    if not isinstance(index, int):
        raise Unsupported("fusedops does not have an assignment at an index that is open")
    src = p.op("Unsqueeze", p.cast(src, p.made.dtype), [dim])
    if index < 0 and not isinstance(x.shape[dim], int):
        parts = [part(p, x, dim, 0, index), src, *([part(p, x, dim, index + 1)] if index != -1 else [])]
    else:
        index %= x.shape[dim] if isinstance(x.shape[dim], int) else END
        parts = [part(p, x, dim, 0, index)] * (index > 0) + [src, part(p, x, dim, index + 1)]
    return p.op("Concat", *parts, axis=dim)


def _pad(p, x, pad, mode="constant", value=None):
    """`pad` has pairs for the last axes, the last one first."""
    modes = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}
    before, after = list(pad[::2])[::-1], list(pad[1::2])[::-1]
    rest = [0] * (x.ndim - len(before))
    given = [p.scalar(value or 0, x)] if mode == "constant" else []
    return p.op("Pad", x, p.shape([*rest, *before, *rest, *after]), *given, mode=modes[mode])


def _padded(mode):
    return lambda p, x, padding: _pad(p, x, padding, mode)


def _flip(p, x, dims):
    n = len(dims)
    return p.op("Slice", x, [-1] * n, [-END] * n, [axis(x, d) for d in dims], [-1] * n)


def _roll(p, x, shifts, dims=()):
    """The last `shift` of an axis go to its front."""
    shifts, dims = ([v] if isinstance(v, int) else list(v) for v in (shifts, dims))
    if not dims:
        flat = FxValue(p.op("Reshape", x, [-1]), (None,), x.dtype)
        return p.reshape(FxValue(_rolled(p, flat, shifts[0], 0), (None,), x.dtype), p.made.shape)
    for shift, dim in zip(shifts, dims, strict=True):
        x = FxValue(_rolled(p, x, shift, axis(x, dim)), x.shape, x.dtype)
    return x


def _rolled(p, x, shift, dim):
    if isinstance(x.shape[dim], int) and x.shape[dim]:
        shift %= x.shape[dim]
    if shift == 0:
        return x
    return p.op("Concat", part(p, x, dim, -shift), part(p, x, dim, 0, -shift), axis=dim)


def windows(p, x, dim, size, step, dilation=1):
    """x with an axis parted into windows: (places, size) in its place."""
    length = p.static([x.shape[dim]], "windows along an axis")[0]
    starts = np.arange(0, length - (size - 1) * dilation, step)
    return p.op("Gather", x, starts[:, None] + dilation * np.arange(size), axis=dim)


def _unfold(p, x, dimension, size, step):
    if x.ndim == 0:
        return p.op("Unsqueeze", x, [0])
    dim = axis(x, dimension)
    order = [*range(dim + 1), *range(dim + 2, x.ndim + 1), dim + 1]
    return p.op("Transpose", windows(p, x, dim, size, step), perm=order)


def _im2col(p, x, kernel_size, dilation, padding, stride):
    """Patches of an image as columns (n, c kh kw, places)."""
    c, h, w = x.shape[-3:]
    (kh, kw), (ph, pw) = kernel_size, padding
    batched = x.ndim == 4
    y = x if batched else p.op("Unsqueeze", x, [0])
    y = p.op("Pad", y, [0, 0, ph, pw, 0, 0, ph, pw], p.scalar(0, x)) if ph or pw else y
    h, w = p.static([h, w], "unfold of an image")
    y = windows(p, FxValue(y, (None, c, h + 2 * ph, w + 2 * pw)), 2, kh, stride[0], dilation[0])
    y = windows(p, FxValue(y, (None, c, None, kh, w + 2 * pw)), 4, kw, stride[1], dilation[1])
    y = p.op("Transpose", y, perm=[0, 1, 3, 5, 2, 4])
    return p.op("Reshape", y, [0, c * kh * kw, -1] if batched else [c * kh * kw, -1])


def _col2im(p, x, output_size, kernel_size, dilation, padding, stride):
    pads = [*padding, *padding]
    return p.op(
        "Col2Im", x, p.shape(output_size), list(kernel_size), dilations=list(dilation), pads=pads, strides=list(stride)
    )


def _pixel_shuffle(p, x, upscale_factor):
    return p.op("DepthToSpace", x, blocksize=upscale_factor, mode="CRD")


def _pixel_unshuffle(p, x, downscale_factor):
    """The blocks of an image as channels, the channel before the place in the block."""
    r, (_, c, h, w) = downscale_factor, x.shape
    h, w = p.static([h, w], "pixel_unshuffle of an image")
    y = p.op("Reshape", x, [-1, c, h // r, r, w // r, r])
    return p.op("Reshape", p.op("Transpose", y, perm=[0, 1, 3, 5, 2, 4]), [-1, c * r * r, h // r, w // r])


def _channel_shuffle(p, x, groups):
    c, *spatial = x.shape[1:]
    if not all(isinstance(s, int) for s in spatial):
        raise Unsupported("fusedops does not have channel_shuffle of an image of open size")
    y = p.op("Reshape", x, [-1, groups, c // groups, *spatial])
    y = p.op("Transpose", y, perm=[0, 2, 1, *range(3, 3 + len(spatial))])
    return p.op("Reshape", y, [-1, c, *spatial])


def _full(value=None):
    """A new tensor of one value, `value` or the argument of that name, in the shape that comes out."""

    def read(p, _, *__, fill_value=0, **___):
        number = fill_value if value is None else value
        if isinstance(number, str):
            return p.op("Expand", p.cast(number, p.made.dtype), p.shape(p.made.shape))
        if p.made.dtype == p.torch.bfloat16:
            number = p.torch.tensor(number, dtype=p.made.dtype).item()
        filled = np.full(1, number, p.numpy_type(p.made.dtype))
        return p.op("ConstantOfShape", p.shape(p.made.shape), value=filled)

    return read


def _arange(p, first, end=None, step=1, **_):
    start, end = (0, first) if end is None else (first, end)
    dtype = p.numpy_type(p.made.dtype)
    made = p.op("Range", *[p.number(v, dtype) for v in (start, end, step)])
    narrow = p.made.dtype == p.torch.bfloat16
    return p.cast(FxValue(made, p.made.shape, p.torch.float32), p.made.dtype) if narrow else made


def _scalar_tensor(p, s, **_):
    return p.cast(s, p.made.dtype)


def _eye(p, n, m=None, **_):
    """1 where a row's number is that of its column."""
    rows, columns = (p.op("Range", *[p.number(v, np.int64) for v in (0, end, 1)]) for end in (n, n if m is None else m))
    return p.cast(FxValue(p.op("Equal", p.op("Unsqueeze", rows, [1]), columns), None, p.torch.bool), p.made.dtype)


def _diagonal(p, x, offset=0, dim1=0, dim2=1):
    """The elements whose places along both axes differ by the offset, as the last axis."""
    a, b = axis(x, dim1), axis(x, dim2)
    rows, columns = p.static([x.shape[a], x.shape[b]], "the diagonal of a matrix")
    length = max(min(rows + min(offset, 0), columns - max(offset, 0)), 0)
    rest = [d for d in range(x.ndim) if d not in (a, b)]
    y = p.op("Transpose", x, perm=[a, b, *rest])
    table = np.stack([np.arange(length) - min(offset, 0), np.arange(length) + max(offset, 0)], 1)
    return p.op("Transpose", p.op("GatherND", y, table), perm=[*range(1, len(rest) + 1), 0])


def _triangle(upper):
    return lambda p, x, diagonal=0: p.op("Trilu", x, p.number(diagonal, np.int64), upper=upper)


def _size(p, x, dim):
    return p.op("Squeeze", p.op("Shape", x, start=axis(x, dim), end=axis(x, dim) + 1), [0])


def _numel(p, x):
    return p.op("ReduceProd", p.op("Shape", x), keepdims=0)


READERS = {
    **dict.fromkeys(
        (
            "view",
            "_unsafe_view",
            "reshape",
            "view_as",
            "reshape_as",
            "flatten",
            "unflatten",
            "unsqueeze",
            "ravel",
            "_reshape_alias",
            "atleast_1d",
            "atleast_2d",
            "atleast_3d",
        ),
        _reshape,
    ),
    **dict.fromkeys(("expand", "expand_as", "broadcast_to"), _expand),
    **dict.fromkeys(
        ("split", "split_with_sizes", "chunk", "unsafe_chunk", "unsafe_split", "tensor_split", "hsplit", "vsplit"),
        _split,
    ),
    **dict.fromkeys(("transpose", "t", "swapdims", "mT", "matrix_H", "adjoint"), _swap),
    **{
        name: _full(value)
        for name, value in {
            "zeros": 0,
            "ones": 1,
            "full": None,
            "zeros_like": 0,
            "ones_like": 1,
            "full_like": None,
            "empty": 0,
            "empty_like": 0,
            "new_empty": 0,
            "new_zeros": 0,
            "new_ones": 1,
            "new_full": None,
        }.items()
    },
    **{f"reflection_pad{n}d": _padded("reflect") for n in (1, 2, 3)},
    **{f"replication_pad{n}d": _padded("replicate") for n in (1, 2, 3)},
    "as_strided": _as_strided,
    "squeeze": _squeeze,
    "item": _element,
    "_local_scalar_dense": _element,
    "swapaxes": _swap_named,
    "permute": _permute,
    "movedim": _move,
    "moveaxis": _move,
    "numpy_T": _reverse_axes,
    "repeat": _repeat,
    "tile": _tile,
    "repeat_interleave": _repeat_interleave,
    "cat": _cat,
    "concat": _cat,
    "concatenate": _cat,
    "stack": _stack,
    "unbind": _unbind,
    "select": _select,
    "slice": _slice,
    "narrow": _narrow,
    "slice_scatter": _slice_scatter,
    "select_scatter": _select_scatter,
    "pad": _pad,
    "constant_pad_nd": lambda p, x, pad, value=0: _pad(p, x, pad, "constant", value),
    "flip": _flip,
    "roll": _roll,
    "unfold": _unfold,
    "im2col": _im2col,
    "col2im": _col2im,
    "pixel_shuffle": _pixel_shuffle,
    "pixel_unshuffle": _pixel_unshuffle,
    "channel_shuffle": _channel_shuffle,
    "native_channel_shuffle": _channel_shuffle,
    "arange": _arange,
    "scalar_tensor": _scalar_tensor,
    "eye": _eye,
    "diagonal": _diagonal,
    "tril": _triangle(0),
    "triu": _triangle(1),
    "sym_size": _size,
    "sym_numel": _numel,
}
