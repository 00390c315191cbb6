"""Tensors as views of buffers, and the plan that lays all buffers into one arena."""

import os
from dataclasses import dataclass, field
from functools import cache
from itertools import zip_longest
from math import prod
from typing import NamedTuple

import numpy as np

from ... import _core
from ..ir.errors import BadNode

ALIGNMENT = 64


@dataclass(slots=True, eq=False)
class Buffer:
    """Memory that steps read and write: in the arena, an input or output of the network (a slot of its own), or a
    constant."""

    nbytes: int
    slot: int = 0
    array: np.ndarray | None = None
    offset: int = 0
    first: int = -1  # the steps between which it is in use
    last: int = -1
    shares: "Buffer | None" = field(default=None, repr=False)  # in place: the buffer whose memory this one continues

    def in_arena(self):
        """Whether it is neither a slot of its own nor a constant."""
        return self.slot == 0 and self.array is None

    def meets(self, other):
        """Whether both are in use at some time."""
        return self.first <= other.last and other.first <= self.last

    def root(self):
        return self if self.shares is None else self.shares.root()


class TensorView(NamedTuple):
    """A strided view of a buffer. Strides are in elements; `offset` and `stride_bytes`, the distance to the next tile
    of a batch, in bytes."""

    buffer: Buffer
    shape: tuple
    strides: tuple
    dtype: np.dtype
    offset: int = 0
    stride_bytes: int = 0

    def finder(self):
        """A function of a call's memory that gives the tensor as a NumPy view."""
        b, shape, dtype = self.buffer.root(), self.shape, self.dtype
        offset, strides = b.offset + self.offset, tuple(s * dtype.itemsize for s in self.strides)
        if b.array is not None:
            memory = b.array.reshape(-1).view(np.uint8) if b.array.size else np.empty(0, np.uint8)
            found = np.ndarray(shape, dtype, memory, offset, strides)
            return lambda slots: found
        slot = b.slot
        if not slot:
            return lambda slots: np.ndarray(shape, dtype, slots[0], offset, strides)
        if not self.offset and self.strides == row_major(shape) and self.whole():
            return lambda slots: slots[slot].reshape(shape)

        def part_of_slot(slots):
            memory = slots[slot]
            memory = memory.reshape(-1).view(np.uint8) if memory.size else np.empty(0, np.uint8)
            return np.ndarray(shape, dtype, memory, offset, strides)

        return part_of_slot

    def whole(self):
        """Whether it covers its buffer, each element once."""
        return prod(self.shape) * self.dtype.itemsize == self.buffer.nbytes and 0 not in self.strides


def broadcast(t, shape):
    """t as a view of the given shape."""
    strides, sizes = (0,) * (len(shape) - len(t.shape)) + t.strides, (1,) * (len(shape) - len(t.shape)) + t.shape
    return t._replace(
        shape=tuple(shape), strides=tuple(s if n == m else 0 for s, n, m in zip(strides, sizes, shape, strict=True))
    )


def transposed(t):
    """The view of a matrix with its axes swapped."""
    return t._replace(shape=t.shape[::-1], strides=t.strides[::-1])


def extent(where, n):
    """(start, step, count) of the places that a slice takes of an axis of length n. SymInts of a plan stay as
    they are."""
    step = 1 if where.step is None else where.step
    least, most = (0, n) if step > 0 else (-1, n - 1)

    def bound(given, default):
        return default if given is None else min(max(given + n if given < 0 else given, least), most)

    start, stop = (
        (bound(where.start, least), bound(where.stop, most))
        if step > 0
        else (bound(where.start, most), bound(where.stop, least))
    )
    return start, step, max((stop - start + step - (1 if step > 0 else -1)) // step, 0)


def part(x, where):
    """The view of x that Python slices give."""
    ranges = [extent(s, n) for s, n in zip(where, x.shape, strict=True)]
    first = sum(start * s for (start, _, count), s in zip(ranges, x.strides, strict=True) if count)
    return x._replace(
        shape=tuple(count for *_, count in ranges),
        strides=tuple(step * s for (_, step, _), s in zip(ranges, x.strides, strict=True)),
        offset=x.offset + first * x.dtype.itemsize,
    )


def broadcast_shapes(*shapes):
    """As NumPy's, of shapes that SymInts may be in."""
    first = shapes[0] if shapes else ()
    for shape in shapes[1:]:
        if shape != first and shape:
            break
    else:
        return tuple(first)
    found = []
    for sizes in zip_longest(*(reversed(shape) for shape in shapes), fillvalue=1):
        size = next((n for n in sizes if n != 1), 1)
        if any(n != size and n != 1 for n in sizes):
            raise ValueError(f"shapes {', '.join(map(str, shapes))} cannot be broadcast to a single shape")
        found.append(size)
    return tuple(reversed(found))


def along(x, axis, start, size):
    """The view of x with `size` places along one axis, from `start` on."""
    where = [slice(None)] * len(x.shape)
    where[axis] = slice(start, start + size)
    return part(x, where)


@cache
def physical_memory():
    """Bytes of this machine's memory."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 1 << 40


def check_memory(infos):
    """ValueError where a result of these shapes and types, which are not there yet, cannot be held."""
    for info in infos:
        if info.dtype is None:
            raise BadNode("a result has no known type of elements")
        count = prod(info.shape)
        if not 0 <= count * info.dtype.itemsize < physical_memory():
            raise ValueError(f"a result would have {count} elements, which this machine has no memory for")


def check_bytes(nbytes):
    """MemoryError where the results of rounds are more than this machine holds."""
    if nbytes > physical_memory():
        raise MemoryError(f"the results of all rounds take {nbytes} bytes, more than this machine has")


def working_memory(plan, arenas, given=None):
    """An arena that no other call is using, and results: those that are given, None for new ones."""
    try:
        arena = arenas.pop()
    except IndexError:
        arena = None
    if arena is None or arena.size < plan.arena:
        raw = np.empty(plan.arena + ALIGNMENT, np.uint8)
        start = -raw.ctypes.data % ALIGNMENT
        arena = raw[start : start + plan.arena]
    if given is None:
        return arena, *_core.new_results(plan.outputs)
    new = iter(_core.new_results([kind for kind, y in zip(plan.outputs, given, strict=True) if y is None]))
    return arena, *(next(new) if y is None else y for y in given)


def _aligned(nbytes):
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def row_major(shape):
    strides, step = [], 1
    for n in reversed(shape):
        strides.append(step)
        step *= n
    return tuple(reversed(strides))


def channels_last(shape):
    """Strides of (n, c, spatial...) with the channels of a pixel as neighbors."""
    n, c, *spatial = shape
    inner = row_major((n, *spatial, c))
    return inner[0], inner[-1], *inner[1:-1]


def in_order_of(shape, like):
    """Dense strides for a shape whose axes lie in memory as those of the strides `like`."""
    order = sorted(range(len(shape)), key=lambda i: -abs(like[i]))
    if order == list(range(len(shape))):
        return row_major(shape)
    dense = row_major([shape[i] for i in order])
    return tuple(dense[order.index(i)] for i in range(len(shape)))


def same_order(shape, a, b):
    """Whether two sets of strides walk through memory in the same way; axes of length 1 do not matter."""
    return all(x == y for n, x, y in zip(shape, a, b, strict=True) if n != 1)


def reshaped(shape, strides, new):
    """Strides of the same elements under another shape, or None where they would have to move."""
    if 0 in shape:
        return row_major(new)
    runs = []
    for n, s in zip(shape, strides, strict=True):
        if n == 1:
            continue
        if runs and runs[-1][1] == n * s:
            runs[-1] = [runs[-1][0] * n, s]
        else:
            runs.append([n, s])
    found, left, step = [], 1, 1
    for n in reversed(new):
        if n != 1 and left == 1:
            left, step = runs.pop()
        if n != 1 and left % n:
            return None
        found.append(step)
        if n != 1:
            left, step = left // n, step * n
    return tuple(reversed(found))


def folded(tensors):
    """Views of the same elements with as few axes as tensors of one shape have in common."""
    axes = []
    for n, *strides in zip(tensors[0].shape, *(t.strides for t in tensors), strict=True):
        if n == 1:
            continue
        if axes and all(outer == n * inner for outer, inner in zip(axes[-1][1], strides, strict=True)):
            axes[-1] = (axes[-1][0] * n, strides)
        else:
            axes.append((n, strides))
    shape = tuple(n for n, _ in axes)
    return [t._replace(shape=shape, strides=tuple(s[i] for _, s in axes)) for i, t in enumerate(tensors)]


def lay_out(buffers):
    """Gives each buffer of the arena its offset; returns the bytes needed."""
    lifetimes = (np.array([getattr(b, name) for b in buffers], np.int64) for name in ("nbytes", "first", "last"))
    offsets, top = _core.lay_out(*lifetimes)
    for b, offset in zip(buffers, offsets.tolist(), strict=True):
        b.offset = offset
    return top
