"""Sparse weights: a tree of axes, each dense or with the places of what is there, as arrays."""

import math

import numpy as np


def densified(tflite, sparsity, values, shape, each):
    """The array of a tensor of which a file has the elements that are not zero; `each` gives the indices of a list."""
    order, blocks = (_listed(found) for found in (sparsity.TraversalOrderAsNumpy(), sparsity.BlockMapAsNumpy()))
    levels = [sparsity.DimMetadata(i) for i in each(sparsity.DimMetadataLength())]
    n = len(shape)
    if sorted(order) != list(range(n + len(blocks))) or len(levels) != len(order) or not set(blocks) <= set(range(n)):
        raise ValueError(f"a sparse tensor of {n} axes has the levels {order} and blocks of the axes {blocks}")
    size, count, places = math.prod(shape), 1, {}
    for axis, level in zip(order, levels, strict=True):
        if level.Format() == tflite.DimensionType.DENSE:
            length = level.DenseSize()
            if not 0 <= count * length <= size:
                raise ValueError(f"a sparse tensor of {size} elements has {count * length} places")
            parents, at = np.repeat(np.arange(count), length), np.tile(np.arange(length), count)
        else:
            segments, at = (
                _indices(tflite, kind, table)
                for kind, table in (
                    (level.ArraySegmentsType(), level.ArraySegments()),
                    (level.ArrayIndicesType(), level.ArrayIndices()),
                )
            )
            counts = np.diff(segments)
            if len(counts) != count or counts.min(initial=0) < 0 or counts.sum() != len(at):
                raise ValueError(f"the segments of a sparse tensor do not fit its {count} rows")
            parents = np.repeat(np.arange(count), counts)
        places = {a: p[parents] for a, p in places.items()} | {axis: at}
        count = len(at)
    if count != len(values):
        raise ValueError(f"a sparse tensor has {count} places for {len(values)} elements")
    return _filled(values, shape, places, blocks, dict(zip(order, levels, strict=True)))


def _listed(found):
    """A vector of the schema's package, which gives 0 for one that is not there."""
    return [] if isinstance(found, int) else found.tolist()


def _filled(values, shape, places, blocks, levels):
    """Places of blocks and inside them as places of elements."""
    at = [places[a] for a in range(len(shape))]
    for i, a in enumerate(blocks):
        at[a] = at[a] * levels[len(shape) + i].DenseSize() + places[len(shape) + i]
    if any(p.size and not 0 <= p.min() <= p.max() < n for p, n in zip(at, shape, strict=True)):
        raise ValueError(f"a sparse tensor of shape {shape} has an element outside")
    dense = np.zeros(shape, values.dtype)
    dense[tuple(at)] = values
    return dense


def _indices(tflite, kind, table):
    """A vector of integers of one of the types that the schema has for them."""
    names = {1: "Int32Vector", 2: "Uint16Vector", 3: "Uint8Vector"}
    if kind not in names or table is None:
        raise ValueError(f"a sparse tensor has places of the kind {kind}")
    vector = getattr(tflite, names[kind])()
    vector.Init(table.Bytes, table.Pos)
    found = vector.ValuesAsNumpy()
    return np.empty(0, np.int64) if isinstance(found, int) else found.astype(np.int64)
