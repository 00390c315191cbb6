"""The arrays that a caller gives for the results of a network: checked before anything is written, and written in place
where a plan can."""

from collections.abc import Mapping
from itertools import combinations
from operator import itemgetter

import numpy as np

from ..ir.dtypes import BFLOAT16, name_of

ALL_PAIRS = 16  # below as many arrays, all pairs are asked for overlaps sooner than bounds are known


def listed(out, outputs):
    """`out` as a list with an array or None for each of the outputs."""
    names = [v.name for v in outputs]
    if isinstance(out, Mapping):
        unknown = [str(name) for name in out if name not in names]
        if unknown:
            raise ValueError(f"out names {', '.join(unknown)}, but the outputs are {', '.join(names)}")
        return [out.get(name) for name in names]
    if not isinstance(out, (tuple, list)):
        if len(names) != 1:
            raise TypeError(
                f"the network has the outputs {', '.join(names)}: out takes a tuple of as many arrays, or a dict from "
                f"their names, not {type(out).__name__}"
            )
        out = [out]
    if len(out) != len(names):
        raise ValueError(f"out has {len(out)} arrays, but the network has {len(names)} outputs: {', '.join(names)}")
    return list(out)


def check(given, outputs, kinds):
    """Refuses arrays that cannot take results of these shapes and dtypes, whatever is wrong with any of them."""
    for array, value, (shape, dtype) in zip(given, outputs, kinds, strict=True):
        if array is not None:
            _check(array, "out" if len(given) == 1 else f"out for {value.name}", shape, dtype)
    if any(_overlap(a, b) for a, b in _meeting([array for array in given if array is not None])):
        raise ValueError("two arrays of out overlap")


def _meeting(arrays):
    """Pairs of arrays, among them all whose bounds in memory meet."""
    if len(arrays) < ALL_PAIRS:
        yield from combinations(arrays, 2)
        return
    found = []  # (where it ends, array) of those that reach the next one
    for start, end, array in sorted([(*_bounds(a), a) for a in arrays], key=itemgetter(0)):
        found = [pair for pair in found if pair[0] > start]
        yield from ((other, array) for _, other in found)
        found.append((end, array))


def _bounds(array):
    """The addresses of an array's first byte and of that after its last."""
    start = array.__array_interface__["data"][0]
    if array.flags.c_contiguous:
        return start, start + array.nbytes
    reach = [(n - 1) * step for n, step in zip(array.shape, array.strides, strict=True)]
    return start + sum(r for r in reach if r < 0), start + sum(r for r in reach if r > 0) + array.itemsize


def _overlap(a, b):
    """Whether two arrays share an element, and not their bounds alone, as every other column of an array does."""
    try:
        return np.shares_memory(a, b, max_work=1000)  # type: ignore[arg-type]
    except RuntimeError:  # NumPy's TooHardError: it cannot say so soon
        return True


def _check(array, what, shape, dtype):
    if dtype is None:
        raise TypeError(f"{what} was given, but that output is a sequence of arrays: leave it None")
    if not isinstance(array, np.ndarray):
        hint = ": pass out.numpy()" if hasattr(array, "numpy") else ""
        raise TypeError(f"{what} must be a numpy array, not {type(array).__name__}{hint}")
    if isinstance(array, np.ma.MaskedArray):
        raise TypeError(f"{what} is a masked array, and nothing would be written where its mask is hard: pass out.data")
    if array.dtype != dtype:
        made = '[("bfloat16", np.uint16)]' if dtype == BFLOAT16 else f"np.{dtype}"
        raise TypeError(
            f"{what} has dtype {array.dtype}, but the result is {name_of(dtype)}: "
            f"make it with np.empty({shape}, {made})"
        )
    if array.shape != shape:
        raise ValueError(f"{what} has shape {array.shape}, but the result has shape {shape}")
    if not array.flags.writeable:
        raise ValueError(f"{what} is read-only")


def in_place(given, arrays):
    """Those of the arrays that a plan may write to while it reads the inputs, None for others."""
    return [
        array
        if array is not None
        and array.flags.c_contiguous
        and array.flags.aligned
        and not any(np.may_share_memory(array, x) for x in arrays)
        else None
        for array in given
    ]


def deliver(results, given):
    """The results, in the given arrays where there are some."""
    for array, result in zip(given, results, strict=True):
        if array is not None and array is not result:
            np.copyto(array, result)
    return [result if array is None else array for array, result in zip(given, results, strict=True)]
