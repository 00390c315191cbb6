"""Tensors of uint8 and int8, and what their integers stand for."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from . import _core

if TYPE_CHECKING:
    from typing import Any

    from numpy.typing import DTypeLike, NDArray

    from ._types import Array, Bytes, Input


class Quantization(NamedTuple):
    """What integers stand for: ``real = scale * (q - zero_point)``.

    Parameters
    ----------
    scale : float or ndarray, (channels,)
        Positive. Weights may have one for each output channel, their first axis.
    zero_point : int or ndarray, (channels,)
        The integer that represents 0, one of the type's; of weights 0.

    Examples
    --------
    >>> import numpy as np, fusedops as fo
    >>> q = fo.Quantization(0.5, 128)
    >>> fo.quantize(np.float32([-64, 0, 1.3, 100]), q)
    array([  0, 128, 131, 255], dtype=uint8)
    """

    scale: float | NDArray[Any]
    zero_point: int | NDArray[Any] = 0


def between(least: float, most: float) -> Quantization:
    """The Quantization to uint8 of a range that holds 0."""
    scale = np.float32((most - least) / 255)
    if not scale >= np.finfo(np.float32).tiny:
        return Quantization(1.0, 0)  # nothing but zeros
    return Quantization(float(scale), int(np.clip(np.rint(-least / scale), 0, 255)))


def symmetric(w: Array) -> Quantization:
    """Float32 weights by int8: for each output channel the least scale that holds them in -127..127."""
    most = np.abs(w.reshape(len(w), -1)).max(1, initial=0) if w.size else np.zeros(len(w), np.float32)
    if not np.isfinite(most).all():
        raise ValueError("w has elements that are not finite: they cannot be quantized")
    return Quantization(np.maximum(most / np.float32(127), np.finfo(np.float32).tiny).astype(np.float32), 0)


def _pair(q, name):
    """scale and zero point as arrays, float32 and int32, checked but for their shapes."""
    if not isinstance(q, (tuple, list)) or len(q) != 2:
        raise TypeError(f"{name} must be a Quantization(scale, zero_point), not {q!r}")
    scale, zero = np.asarray(q[0]), np.asarray(q[1])
    if scale.dtype.kind not in "fiu":
        raise TypeError(f"{name}.scale must be a number or an array of them, not {q[0]!r}")
    if zero.dtype.kind not in "iu":
        raise TypeError(f"{name}.zero_point must be an int or an array of them, not {q[1]!r}")
    with np.errstate(over="ignore"):
        single = scale.astype(np.float32)
    wrong = ~(np.isfinite(single) & (single >= np.finfo(np.float32).tiny))
    if wrong.any():
        raise ValueError(
            f"{name}.scale must be positive, finite and a normal float32, but is {scale[wrong].flat[0]}: "
            "of values in lo..hi it is (hi - lo) / 255"
        )
    outside = (zero < -128) | (zero > 255)
    if outside.any():
        raise ValueError(f"{name}.zero_point is {zero[outside].flat[0]}, but bytes have -128..127 or 0..255")
    return single, zero.astype(np.int32)


def number_of(q, name):
    """(scale, zero_point) of one tensor, or None."""
    if q is None:
        return None
    scale, zero = _pair(q, name)
    if scale.size != 1 or zero.size != 1:
        raise ValueError(
            f"{name} has a scale of shape {scale.shape} and a zero point of shape {zero.shape}, but activations "
            f"have one number of each: "
            "only weights have one for each output channel"
        )
    return float(scale.item()), int(zero.item())


def rows_of(q, name, shape, dtype):
    """Scales and zero points for the rows of an array, or one for all of it."""
    scale, zero = _pair(q, name)
    rows = (
        np.broadcast_shapes(scale.shape, zero.shape)
        if scale.ndim <= 1
        and zero.ndim <= 1
        and 1 in (scale.size, zero.size, scale.size // max(zero.size, 1))
        and (scale.size == zero.size or 1 in (scale.size, zero.size))
        else None
    )
    if rows is None or rows not in ((), (1,)) and (not shape or rows != shape[:1]):
        raise ValueError(
            f"{name} has a scale of shape {scale.shape} and a zero point of shape {zero.shape}, but must have "
            f"numbers, or one for each "
            f"of the {shape[0] if shape else 1} channels of the first axis of {shape}"
        )
    for value in np.unique(zero):
        _core.fits(int(value), name, dtype)
    return tuple(np.ascontiguousarray(np.broadcast_to(v, rows).reshape(-1)) for v in (scale, zero))


def _dtype(dtype):
    dtype = np.dtype(dtype)
    if dtype not in (np.uint8, np.int8):
        raise TypeError(f"dtype must be uint8 or int8, not {dtype}")
    return dtype


def quantize(x: Input, q: Quantization, dtype: DTypeLike = np.uint8, *, out: Bytes | None = None) -> NDArray[Any]:
    """Rounds float32 to int8 or uint8: ``y = saturate(round(x / scale) + zero_point)``, ties to even.

    Parameters
    ----------
    x : ndarray, float32
        Any shape and strides. NaN becomes the type's lowest value.
    q : Quantization
        Numbers, or one for each point of the first axis.
    dtype : uint8 or int8
    out : ndarray, uint8 or int8, of x's shape, optional
        Any strides; its dtype counts then.

    Returns
    -------
    ndarray, uint8 or int8, of x's shape
        `out` where it is given.

    Raises
    ------
    TypeError
        An array or a parameter has the wrong type.
    ValueError
        A scale that is zero, negative or not finite, a zero point that the type does not have, another number of
        them than channels.

    See Also
    --------
    dequantize : The way back.

    References
    ----------
    .. [1] Jacob et al., "Quantization and training of neural networks for efficient integer-arithmetic-only
           inference", 2018, arXiv:1712.05877

    Examples
    --------
    >>> import numpy as np, fusedops as fo
    >>> fo.quantize(np.float32([-1, 0, 0.25, 0.75, 9]), fo.Quantization(0.5, 0), np.int8)
    array([-2,  0,  0,  2, 18], dtype=int8)
    """
    x = _core.as_input(x, "x")
    y = (
        np.empty(x.shape, _dtype(dtype))
        if out is None
        else _core.checked_byte_out(out, x.shape, (np.dtype(np.uint8), np.dtype(np.int8)))
    )
    scale, zero_point = rows_of(q, "q", x.shape, y.dtype)
    return _core.convert(x, scale, zero_point, y)


def dequantize(x: Input, q: Quantization, *, out: Array | None = None) -> Array:
    """Widens int8 or uint8 to float32: ``y = scale * (x - zero_point)``.

    Parameters
    ----------
    x : ndarray, uint8 or int8
        Any shape and strides.
    q : Quantization
        Numbers, or one for each point of the first axis.
    out : ndarray, float32, of x's shape, optional

    Returns
    -------
    ndarray, float32, of x's shape
        `out` where it is given.

    Raises
    ------
    TypeError, ValueError
        As :func:`quantize`.

    Examples
    --------
    >>> import numpy as np, fusedops as fo
    >>> fo.dequantize(np.uint8([0, 128, 255]), fo.Quantization(0.5, 128))
    array([-64. ,   0. ,  63.5], dtype=float32)
    """
    x = _core.as_bytes(x, "x", "dequantize")
    y = np.empty(x.shape, np.float32) if out is None else _core.checked_out(out, x.shape)
    scale, zero_point = rows_of(q, "q", x.shape, x.dtype)
    return _core.convert(x, scale, zero_point, y)
