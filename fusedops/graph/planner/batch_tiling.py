"""A batch in tiles: where the images of a whole batch would leave the third-level cache between two steps, a section of
steps runs on a few images, then on the next few. Each image's arithmetic stays as it is, and so the bits.

A step may run in tiles where its operation keeps the images apart, and image i of each of its tensors lies in the i-th
part of the tensor's buffer: each tile then touches its own parts, whatever views reshape or transpose in between.
How many tiles: as many as make a step's tensors fit into CACHE_BYTES for each thread, as many as the steps
after it, and as many as the step before it where that hands over more than that. Towards the end of a network, where
images are small and weights large, the whole batch shares one reading of the weights.
"""

from itertools import groupby, pairwise
from math import ceil, prod

import numpy as np

from ... import _core
from ..ir.symbolic import guard, is_multiple
from ..steps.tensor import physical_memory

# A quarter of a third-level cache of 32 MB. ResNet-50 on one thread, us an image in batches of 1, 2, 4, 8: the 1x1
# convolution with residual at 56x56 (7 MB an image) 416 419 484 711, at 28x28 (4 MB) 409 404 415 505; the 3x3 one at
# 7x7 with its 9 MB of weights 674 576 556 540. Two threads want tiles of twice the images, to share them.
# With 512 KB of second-level cache half of it is better, batch 8 over 1: MobileNetV1 0.95 (8 MB: 1.01), ResNet-50 1.01
# (1.02).
CACHE_BYTES = 8 * _core.machine()["l2"]
MOST = 8  # times as many tiles as needed, where the batch has no better divisor; else the step runs at once


def choose(p):
    """Sets in how many tiles each step runs."""
    steps, n, tiles, cache, independent = p.steps, p.batch, 1, CACHE_BYTES * p.threads, set()
    for step in reversed(steps) if n > 1 else ():
        total = sum(map(_nbytes, step.tensors()))
        if tiles == 1 and total.__class__ is int and total <= cache:
            continue  # one tile, whatever the step does with rows
        independent_rows = _has_independent_rows(step, n)
        tiles = step.tiles = max(tiles, _needed(total, n, cache)) if independent_rows else 1
        if independent_rows:
            independent.add(id(step))
    for before, step in pairwise(steps):
        if before.tiles > step.tiles and id(step) in independent and any(_nbytes(t) > cache for t in step.reads):
            step.tiles = before.tiles


def _nbytes(t):
    return prod(t.shape) * t.dtype.itemsize


def _needed(total, n, cache):
    if total <= cache:  # asked first: it leaves sizes open
        return 1
    return guard(_tiles, total, n, cache)


def _tiles(total, n, cache):
    """How many tiles make `total` bytes of a batch of n fit into the cache."""
    if total > physical_memory():
        return 1
    needed = total / cache
    fewest, most = max(1, min(ceil(needed), n)), int(min(n, MOST * needed))
    return next((d for d in range(fewest, most + 1) if n % d == 0), 1)


def _has_independent_rows(step, n):
    kind = _core.STEPS.get(step.kind)
    return (
        kind is not None
        and kind.independent_rows(step.arguments)
        and all(_in_parts(step.arguments[name], n) for name in step.with_rows())
    )


def _in_parts(t, n):
    """Whether an n-th of the rows of axis 0 stands in each of n equal parts of the buffer, or all are one constant."""
    if not t.shape or isinstance(t, np.ndarray) or t.buffer.array is not None:
        return bool(t.shape) and t.strides[0] == 0
    if not is_multiple(t.shape[0], n):
        return False
    part, rows, size = t.buffer.nbytes // n, t.shape[0] // n, t.dtype.itemsize
    reaches = [s * (m - 1) for s, m in zip(t.strides, (rows, *t.shape[1:]), strict=True)]
    first, last = (t.offset + size * sum(f(r, 0) for r in reaches) for f in (min, max))
    equal = part * n == t.buffer.nbytes and size * rows * t.strides[0] == part
    return equal and first >= 0 and last + size <= part


def sections(steps):
    """The ranges of steps in a row that run in as many tiles."""
    ends = [0]
    for _, run in groupby(steps, key=lambda step: step.tiles):
        ends.append(ends[-1] + len(list(run)))
    return [range(*pair) for pair in pairwise(ends)]


def cut(p):
    """Lets each step work on its first tile. A buffer that one section alone uses holds one tile; others advance from
    tile to tile. Notes between which steps each buffer is in use: one that advances, as long as its section runs."""
    steps, users, inner = p.steps, _sections_of_buffers(p.steps), {}
    for section in sections(steps):
        n = steps[section.start].tiles
        for i in section:
            for b in [t.buffer for t in steps[i].tensors()]:
                if n > 1 and b.in_arena() and users[b] == {section}:
                    inner[b] = n
                first, last = (section.start, section.stop - 1) if n > 1 and b not in inner else (i, i)
                b.first, b.last = first if b.first < 0 else b.first, last
        for step in steps[section.start : section.stop] if n > 1 else ():
            step.replace({name: _tile(step.arguments[name], n, inner) for name in step.with_rows()})
    for b, n in inner.items():
        b.nbytes //= n


def _sections_of_buffers(steps):
    """The sections that use each buffer, where one runs in tiles."""
    users = {}
    for section in sections(steps) if any(step.tiles > 1 for step in steps) else ():
        for i in section:
            for t in steps[i].tensors():
                users.setdefault(t.buffer, set()).add(section)
    return users


def _tile(t, n, inner):
    """The first of n tiles of a tensor along axis 0, and how far it is to the next in memory."""
    if isinstance(t, np.ndarray):
        return t[: len(t) // n]
    stride_bytes = 0 if t.buffer in inner or t.buffer.array is not None else t.buffer.nbytes // n
    return t._replace(shape=(t.shape[0] // n, *t.shape[1:]), stride_bytes=stride_bytes)
