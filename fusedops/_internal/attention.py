"""The operands of attention, checked, for functions and layers."""

from __future__ import annotations

import math
from numbers import Real
from typing import TYPE_CHECKING

import numpy as np

from .. import _core

if TYPE_CHECKING:
    from typing import Any

    from numpy.typing import NDArray

    from .._types import Array, Input


MAX_AXES: int = 8  # before the heads


def attended(q, k, v, mask, causal, diagonal, scale, out, precision="float32"):
    """Checks the operands and computes attention; where it is causal, the query i sees the keys 0 .. diagonal + i."""
    q, k, v, mask, scale, one = operands(q, k, v, mask, scale)
    if out is not None:
        _core.checked_out(out, (*q.shape[one:-1], v.shape[-1]))
    to = out[np.newaxis] if one and out is not None else out
    y = _core.attention(q, k, v, mask, causal, diagonal, scale, to, precision)
    return out if out is not None else y[0] if one else y


def operands(
    q: Input, k: Input, v: Input, mask: Input | None, scale: float | None
) -> tuple[Array, Array, Array, NDArray[Any] | None, float, bool]:
    """All of them, checked, and whether there was no axis of heads, which is added; those before it are broadcast, the
    mask to the scores' shape."""
    q, k, v = _broadcast(q, k, v)
    one = q.ndim == 2
    if one:
        q, k, v = q[np.newaxis], k[np.newaxis], v[np.newaxis]
    if mask is not None:
        mask = _mask(mask, (*q.shape[:-1], k.shape[-2]), one)
    return q, k, v, mask, _scale(scale, q.shape[-1]), one


def _broadcast(q, k, v):
    """q, k and v, checked, the axes before the heads broadcast; of 2 axes each or of 3 and more."""
    q, k, v = _core.as_input(q, "q"), _core.as_input(k, "k"), _core.as_input(v, "v")
    axes = q.ndim, k.ndim, v.ndim
    if min(axes) < 2 or (2 in axes and max(axes) > 2):
        raise _misfit(
            q,
            k,
            v,
            ", but they must be (..., heads, t, d), (..., kv_heads, s, d) and (..., kv_heads, s, dv), "
            "or all without heads",
        )
    if q.shape[-1] != k.shape[-1]:
        raise _misfit(q, k, v, ": the last axes of q and k must have one length")
    if k.shape[-2] != v.shape[-2]:
        raise _misfit(q, k, v, ": k and v must have one number of tokens")
    if q.ndim == 2:
        return q, k, v
    heads, kv_heads = q.shape[-3], k.shape[-3]
    if kv_heads != v.shape[-3] or (heads % kv_heads if kv_heads else heads):
        raise _misfit(q, k, v, ": k and v must have one number of heads, which divides that of q")
    if q.shape[:-3] == k.shape[:-3] == v.shape[:-3] and q.ndim <= MAX_AXES + 3:
        return q, k, v
    try:
        batch = np.broadcast_shapes(q.shape[:-3], k.shape[:-3], v.shape[:-3])
    except ValueError:
        raise _misfit(q, k, v, ": the axes before the heads cannot be broadcast to one shape") from None
    if len(batch) > MAX_AXES:
        raise _misfit(q, k, v, f": at most {MAX_AXES} axes may be before the heads; reshape them to fewer")
    return tuple(np.broadcast_to(a, (*batch, *a.shape[-3:])) for a in (q, k, v))


def _misfit(q, k, v, why):
    return ValueError(f"q has shape {q.shape}, k {k.shape} and v {v.shape}{why}")


def _mask(mask, shape, one):
    """The mask, broadcast to the scores' shape (..., heads, t, s)."""
    mask = _core.as_array(mask, "mask")
    if mask.dtype != bool:
        if mask.dtype.kind != "f":
            raise TypeError(
                f"mask has dtype {mask.dtype}, but must be bool (True takes part) or float32 (added): "
                "pass mask.astype(bool) or a sum"
            )
        mask = _core.as_input(mask, "mask")
    if mask.shape == shape:
        return mask
    try:
        return np.broadcast_to(mask, shape)
    except ValueError:
        shape = shape[1:] if one else shape
        raise ValueError(f"mask has shape {mask.shape}, which cannot be broadcast to the scores' {shape}") from None


def flag(causal: bool) -> bool:
    if not isinstance(causal, (bool, np.bool_)):
        raise TypeError(f"causal must be True or False, not {causal!r}")
    return bool(causal)


_LARGEST = float(np.finfo(np.float32).max)


def _scale(scale, d):
    if scale is None:
        return 1 / math.sqrt(d) if d else 1.0
    if not isinstance(scale, Real) or isinstance(scale, (bool, np.bool_)):
        raise TypeError(f"scale must be a number, not {scale!r}")
    if not abs(scale) <= _LARGEST:  # type: ignore[operator]
        raise ValueError(f"scale must be a finite number that float32 holds, at most {_LARGEST:.3g}, not {scale!r}")
    return float(scale)
