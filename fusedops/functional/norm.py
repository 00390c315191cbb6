"""Softmax, and norms of each row, pixel or group of channels."""

from __future__ import annotations

from operator import index
from typing import TYPE_CHECKING

import numpy as np

from .. import _core
from .._internal.arguments import one_of
from ..layers import LAYOUTS, integer

if TYPE_CHECKING:
    from .._types import Array, Input, Layout


def softmax(x: Input, axis: int = -1, *, out: Array | None = None) -> Array:
    """Exponentials over their sum along an axis: ``y = exp(x - max(x)) / sum(exp(x - max(x)))``.

    Parameters
    ----------
    x : ndarray, float32, of any shape with at least one axis
        Any strides.
    axis : int
    out : ndarray, float32, of x's shape, optional
        Any strides; it may overlap `x`, or be `x`.

    Returns
    -------
    ndarray, float32, of x's shape
        `out` where it is given. A row with a NaN, with +infinity, or of -infinity alone is NaN.

    Raises
    ------
    TypeError
        `x` is not float32, or `axis` no int.
    ValueError
        `x` has no such axis, or `out` has another shape.

    Examples
    --------
    >>> import numpy as np, fusedops as fo
    >>> fo.softmax(np.array([[0, 0], [-np.inf, 5]], np.float32))
    array([[0.5, 0.5],
           [0. , 1. ]], dtype=float32)
    """
    x, axis = _along(x, axis)
    return _core.softmax(x, axis, False, out)


def log_softmax(x: Input, axis: int = -1, *, out: Array | None = None) -> Array:
    """The logarithm of :func:`softmax`: ``y = x - max(x) - log(sum(exp(x - max(x))))`` along an axis.

    Parameters
    ----------
    x, axis, out
        See :func:`softmax`.

    Returns
    -------
    ndarray, float32, of x's shape

    Raises
    ------
    TypeError, ValueError
        As :func:`softmax`.

    Examples
    --------
    >>> import numpy as np, fusedops as fo
    >>> fo.log_softmax(np.array([0, -100], np.float32))
    array([   0., -100.], dtype=float32)
    """
    x, axis = _along(x, axis)
    return _core.softmax(x, axis, True, out)


def _along(x, axis):
    """x, and the axis as a number that is not negative."""
    x = _core.as_input(x, "x")
    try:
        axis = index(axis)
    except TypeError:
        raise TypeError(f"axis must be an int, not {axis!r}") from None
    if not -x.ndim <= axis < x.ndim:
        raise ValueError(f"x has shape {x.shape}, which has no axis {axis}")
    return x, axis % x.ndim


def layer_norm(
    x: Input,
    weight: Input | None = None,
    bias: Input | None = None,
    *,
    eps: float = 1e-5,
    residual: Input | None = None,
    out: Array | None = None,
) -> Array:
    """Each row by its own mean and variance: ``y = (s - mean(s)) / sqrt(var(s) + eps) * weight + bias``, ``s = x +
    residual``, over the last axis.

    The residual is added in the same pass.

    Parameters
    ----------
    x : ndarray, float32, (..., d)
        Any strides.
    weight, bias : ndarray, float32, (d,), optional
    eps : float
    residual : ndarray, float32, of x's shape, optional
        Added before.
    out : ndarray, float32, of x's shape, optional
        Any strides; it may overlap an input, or be `x`.

    Returns
    -------
    ndarray, float32, of x's shape
        `out` where it is given.

    Raises
    ------
    TypeError
        An array is not float32, or `eps` no number.
    ValueError
        Shapes that do not fit, or a negative `eps`.

    Notes
    -----
    The variance is that of all d elements, not of d - 1. Values far from zero, as 1.6e7 + 0..3, and of any finite size
    keep their digits.

    References
    ----------
    .. [1] Ba, Kiros and Hinton, "Layer normalization", 2016, arXiv:1607.06450

    Examples
    --------
    >>> import numpy as np, fusedops as fo
    >>> fo.layer_norm(np.array([[1, 3], [5, 5]], np.float32), eps=0.0001).round(3)
    array([[-1.,  1.],
           [ 0.,  0.]], dtype=float32)
    """
    return _norm(x, weight, bias, residual, eps, out)


def rms_norm(
    x: Input, weight: Input | None = None, *, eps: float = 1e-5, residual: Input | None = None, out: Array | None = None
) -> Array:
    """Each row by its own size: ``y = s / sqrt(mean(s^2) + eps) * weight``, ``s = x + residual``, over the last axis.

    Parameters
    ----------
    x, weight, eps, residual, out
        See :func:`layer_norm`.

    Returns
    -------
    ndarray, float32, of x's shape

    Raises
    ------
    TypeError, ValueError
        As :func:`layer_norm`.

    References
    ----------
    .. [1] Zhang and Sennrich, "Root mean square layer normalization", 2019, arXiv:1910.07467

    Examples
    --------
    >>> import numpy as np, fusedops as fo
    >>> fo.rms_norm(np.array([[3, 3, -3]], np.float32), eps=0)
    array([[ 1.,  1., -1.]], dtype=float32)
    """
    return _norm(x, weight, None, residual, eps, out, True)


def _norm(x, weight, bias, residual, eps, out, rms=False):
    x = _core.as_input(x, "x")
    if x.ndim < 1:
        raise ValueError("x has shape (), but must have an axis to normalize")
    return _core.norm(x, x.ndim - 1, 0, _eps(eps), rms, weight, bias, residual, out)


def _eps(eps):
    if isinstance(eps, (str, bytes)) or np.ndim(eps):
        raise TypeError(f"eps must be a number, not {eps!r}")
    try:
        eps = float(eps)
    except (TypeError, ValueError):
        raise TypeError(f"eps must be a number, not {eps!r}") from None
    if not 0 <= eps < np.inf:
        raise ValueError(f"eps must be a finite number that is not negative, not {eps!r}")
    return eps


def group_norm(
    x: Input,
    groups: int,
    weight: Input | None = None,
    bias: Input | None = None,
    *,
    eps: float = 1e-5,
    residual: Input | None = None,
    layout: Layout = "NCHW",
    out: Array | None = None,
) -> Array:
    """Groups of channels of each image by their own mean and variance: ``y = (s - mean(s)) / sqrt(var(s) + eps) *
    weight + bias``, ``s = x + residual``.

    Mean and variance are those of c / groups channels with all of their points. With one group this is a layer norm of
    the image, with c groups an instance norm.

    Parameters
    ----------
    x : ndarray, float32, (n, c, ...), or (n, ..., c) with ``layout="NHWC"``
        Any strides, any number of axes after the first.
    groups : int
        Divides c.
    weight, bias : ndarray, float32, (c,), optional
    layout : {"NCHW", "NHWC"}
        Whether the channels are the second axis or the last.
    eps, residual, out
        See :func:`layer_norm`.

    Returns
    -------
    ndarray, float32, of x's shape
        `out` where it is given.

    Raises
    ------
    TypeError, ValueError
        As :func:`layer_norm`; also where `groups` does not divide the channels.

    References
    ----------
    .. [1] Wu and He, "Group normalization", 2018, arXiv:1803.08494

    Examples
    --------
    >>> import numpy as np, fusedops as fo
    >>> fo.group_norm(np.array([[[0, 2], [4, 8]]], np.float32), 2, eps=0)
    array([[[-1.,  1.],
            [-1.,  1.]]], dtype=float32)
    """
    x, last = _core.as_input(x, "x"), one_of(layout, "layout", LAYOUTS) == "NHWC"
    groups, eps = integer(groups, "groups"), _eps(eps)
    if x.ndim < 2:
        raise ValueError(f"x has shape {x.shape}, but must be {'(n, ..., c)' if last else '(n, c, ...)'}")
    channels = x.shape[-1 if last else 1]
    if channels % groups:
        raise ValueError(f"x has shape {x.shape}, but groups={groups} must divide its {channels} channels")
    for name, given in ("weight", weight), ("bias", bias):
        if given is not None and (found := np.asarray(given).shape) != (channels,):
            raise ValueError(f"{name} has shape {found}, but x has shape {x.shape}: it must have shape ({channels},)")
    if not last:
        return _core.norm(x, 1, groups, eps, False, weight, bias, residual, out)
    if residual is not None:
        residual = _core.as_input(residual, "residual")
        if residual.shape != x.shape:
            raise ValueError(f"residual has shape {residual.shape}, but x has shape {x.shape}")
        residual = np.moveaxis(residual, -1, 1)
    if out is not None:
        _core.norm(
            np.moveaxis(x, -1, 1),
            1,
            groups,
            eps,
            False,
            weight,
            bias,
            residual,
            np.moveaxis(_core.checked_out(out, x.shape), -1, 1),
        )
        return out
    return np.moveaxis(_core.norm(np.moveaxis(x, -1, 1), 1, groups, eps, False, weight, bias, residual), 1, -1)


def instance_norm(
    x: Input,
    weight: Input | None = None,
    bias: Input | None = None,
    *,
    eps: float = 1e-5,
    layout: Layout = "NCHW",
    out: Array | None = None,
) -> Array:
    """Each channel of each image by its own mean and variance: ``y = (x - mean(x)) / sqrt(var(x) + eps) * weight +
    bias``.

    Parameters
    ----------
    x : ndarray, float32, (n, c, ...), or (n, ..., c) with ``layout="NHWC"``
        Any strides, at least one axis besides those of the batch and the channels.
    weight, bias : ndarray, float32, (c,), optional
    layout : {"NCHW", "NHWC"}
        Whether the channels are the second axis or the last.
    eps, out
        See :func:`layer_norm`.

    Returns
    -------
    ndarray, float32, of x's shape
        `out` where it is given.

    Raises
    ------
    TypeError, ValueError
        As :func:`layer_norm`.

    See Also
    --------
    group_norm : The same over several channels each.

    References
    ----------
    .. [1] Ulyanov, Vedaldi and Lempitsky, "Instance normalization", 2016, arXiv:1607.08022

    Examples
    --------
    >>> import numpy as np, fusedops as fo
    >>> fo.instance_norm(np.array([[[0, 2], [4, 8]]], np.float32), eps=0)
    array([[[-1.,  1.],
            [-1.,  1.]]], dtype=float32)
    """
    x, last = _core.as_input(x, "x"), one_of(layout, "layout", LAYOUTS) == "NHWC"
    if x.ndim < 3:
        raise ValueError(f"x has shape {x.shape}, but must be {'(n, ..., c)' if last else '(n, c, ...)'} with points")
    groups = max(x.shape[-1 if last else 1], 1)
    return group_norm(x, groups, weight, bias, eps=eps, layout=layout, out=out)
