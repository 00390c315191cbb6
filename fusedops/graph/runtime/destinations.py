"""The arrays that a caller gives for the results of a network: checked before anything is written, and written in place
where a plan can."""

from collections.abc import Mapping
from itertools import combinations

import numpy as np


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
    for a, b in combinations([array for array in given if array is not None], 2):
        if _overlap(a, b):
            raise ValueError("two arrays of out overlap")


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
        raise TypeError(
            f"{what} has dtype {array.dtype}, but the result is {dtype}: make it with np.empty({shape}, np.{dtype})"
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
