"""Tensors as views of buffers, and the plan that lays all buffers into one arena."""
import os
from dataclasses import dataclass, field
from math import prod
from typing import NamedTuple

import numpy as np

from .. import _core

ALIGNMENT = 64
SPARE = 1.25


@dataclass(slots=True, eq=False)
class Buffer:
    """Memory that steps read and write: in the arena, an input or output of the network (a slot of its own), or a constant."""
    nbytes: int
    slot: int = 0
    array: np.ndarray | None = None
    offset: int = 0
    first: int = -1  # the steps between which it is in use
    last: int = -1
    shares: "Buffer | None" = field(default=None, repr=False)  # in place: the buffer whose memory this one continues

    def meets(self, other):
        """Whether both are in use at some time."""
        return self.first <= other.last and other.first <= self.last

    def root(self):
        return self if self.shares is None else self.shares.root()


class Tensor(NamedTuple):
    """A strided view of a buffer. Strides are in elements; `offset` and `advance`, the distance to the next slice of a batch, in bytes."""
    buffer: Buffer
    shape: tuple
    strides: tuple
    dtype: np.dtype
    offset: int = 0
    advance: int = 0

    @property
    def argument(self):
        """The tensor as a step of a program takes it."""
        b = self.buffer.root()
        if b.array is not None:
            return self.array()
        return b.slot, b.offset + self.offset, self.shape, self.strides, self.advance

    def array(self, slots=()):
        """The tensor as a NumPy view, in the memory of a call."""
        b = self.buffer.root()
        memory = b.array if b.array is not None else slots[b.slot]
        if b.array is not None or b.slot:
            memory = memory.reshape(-1).view(np.uint8) if memory.size else np.empty(0, np.uint8)
        size = self.dtype.itemsize
        return np.ndarray(self.shape, self.dtype, memory, b.offset + self.offset, [s * size for s in self.strides])

    def whole(self):
        """Whether it covers its buffer, each element once."""
        return prod(self.shape) * self.dtype.itemsize == self.buffer.nbytes and 0 not in self.strides


def broadcast(t, shape):
    """t as a view of the given shape."""
    strides, sizes = (0,) * (len(shape) - len(t.shape)) + t.strides, (1,) * (len(shape) - len(t.shape)) + t.shape
    return t._replace(shape=tuple(shape), strides=tuple(s if n == m else 0 for s, n, m in zip(strides, sizes, shape, strict=True)))


def transposed(t):
    """The view of a matrix with its axes swapped."""
    return t._replace(shape=t.shape[::-1], strides=t.strides[::-1])


def part(x, where):
    """The view of x that Python slices give."""
    ranges = [range(*s.indices(n)) for s, n in zip(where, x.shape, strict=True)]
    first = sum(r.start * s for r, s in zip(ranges, x.strides, strict=True) if len(r))
    return x._replace(shape=tuple(map(len, ranges)), strides=tuple(r.step * s for r, s in zip(ranges, x.strides, strict=True)),
                      offset=x.offset + first * x.dtype.itemsize)


def along(x, axis, start, size):
    """The view of x with `size` places along one axis, from `start` on."""
    where = [slice(None)] * len(x.shape)
    where[axis] = slice(start, start + size)
    return part(x, where)


def physical_memory():
    """Bytes of this machine's memory."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 1 << 40


def _aligned(nbytes):
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def row_major(shape):
    strides, step = [], 1
    for n in reversed(shape):
        strides.append(step)
        step *= n
    return tuple(reversed(strides))


def channels_last(shape):
    """Strides of (n, c, spatial...) with the channels of a pixel as neighbours."""
    n, c, *spatial = shape
    inner = row_major((n, *spatial, c))
    return inner[0], inner[-1], *inner[1:-1]


def in_order_of(shape, like):
    """Dense strides for a shape whose axes lie in memory as those of the strides `like`."""
    order = sorted(range(len(shape)), key=lambda i: -abs(like[i]))
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


def lay_out(buffers):
    """Gives each buffer of the arena its offset; returns the bytes needed.

    Threads cut one image after the other in the same way. Where the middles of images stand at one address, each of two threads writes where it
    wrote before, to lines that its own processor's cache holds; that is worth SPARE times the memory of the tightest layout."""
    tight, centred = _tight(buffers), _centred(buffers)
    offsets, top = centred if centred[1] <= SPARE * tight[1] else tight
    for b, offset in zip(buffers, offsets, strict=True):
        b.offset = offset
    return top


def _placed(offset, b):
    """The first place from `offset` on for a buffer. Large ones lie in their page as results do behind an image of the step before; they have a
    place of their own for eight steps."""
    return _core.place_of_step(offset, b.nbytes, b.first)


def _tight(buffers):
    """Offsets and bytes in all: the largest first, each at the lowest place that is free while it lives."""
    placed, top = [], 0
    for b in sorted(buffers, key=lambda b: (-b.nbytes, b.first)):
        offset = _placed(0, b)
        for other, start in placed:  # in ascending order of start
            if other.meets(b) and start < offset + b.nbytes:
                offset = max(offset, _placed(start + other.nbytes, b))
        placed.append((b, offset))
        placed.sort(key=lambda p: p[1])
        top = max(top, offset + b.nbytes)
    found = {id(b): offset for b, offset in placed}
    return [found[id(b)] for b in buffers], top


def _centred(buffers):
    """The same with lanes side by side: the largest first, each in the middle of the first lane that is free while it lives."""
    lanes, found, top = [], {}, 0
    for b in sorted(buffers, key=lambda b: (-b.nbytes, b.first)):
        lane = next((lane for lane in lanes if not any(other.meets(b) for other in lane)), None)
        if lane is None:
            lanes.append(lane := [])
        lane.append(b)
    for lane in lanes:
        for b in lane:
            found[id(b)] = _placed(top + (lane[0].nbytes - b.nbytes) // 2, b)
        top = max(found[id(b)] + b.nbytes for b in lane)
    return [found[id(b)] for b in buffers], top
