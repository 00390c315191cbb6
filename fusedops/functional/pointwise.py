"""Activations and batch norm as functions of their own: a pass over an array."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .. import _core, activations
from .._internal.arguments import one_of
from ..batchnorm import scale_and_shift, silence
from ..layers import LAYOUTS

if TYPE_CHECKING:
    from typing import Any

    from .._types import Activation, Array, Input, Layout
    from ..batchnorm import BatchNorm


def activation(x: Input, activation: Activation, *, out: Array | None = None) -> Array:
    """An activation of each element, ``y = activation(x)``.

    After a product or convolution it costs nothing as that operation's `activation`; this is the pass for the rest.

    Parameters
    ----------
    x : ndarray, float32, of any shape
        Any strides.
    activation : None, str or tuple
        A name, or ``(name, parameter...)``, as in :func:`conv2d`. The slopes of ``("prelu", slopes)`` are one for all,
        or one for each channel: each point of the second axis.
    out : ndarray, float32, of x's shape, optional
        Any strides; it may overlap `x`, or be `x`.

    Returns
    -------
    ndarray, float32, of x's shape
        `out` where it is given.

    Raises
    ------
    TypeError
        `x` is not float32, or the activation is not a name.
    ValueError
        An unknown name, or parameters that do not fit.

    Examples
    --------
    >>> import numpy as np, fusedops as fo
    >>> fo.activation(np.float32([-2, 0, 8]), "relu6")
    array([0., 0., 6.], dtype=float32)
    >>> fo.activation(np.float32([-2, 0, 8]), ("leaky_relu", 0.5))
    array([-1.,  0.,  8.], dtype=float32)
    """
    x, parsed = _core.as_input(x, "x"), activations.parse(activation)
    slopes = parsed[3]
    if slopes is not None and slopes.size != 1 and (x.ndim < 2 or slopes.size != x.shape[1]):
        raise ValueError(
            f"the slopes of 'prelu' have shape {slopes.shape}, but x has shape {x.shape}: pass one slope, or one for "
            "each point of the second axis"
        )
    return _core.activated(x, parsed, out)


def batch_norm(
    x: Input, bn: BatchNorm, *, activation: Activation = None, layout: Layout = "NCHW", out: Array | None = None
) -> Array:
    """A batch norm with the statistics of training, and the activation after it: ``y = activation(gamma (x - mean) /
    sqrt(var + eps) + beta)``.

    After a product or convolution it costs nothing as that operation's `bn`; this is the pass for a batch norm that
    stands elsewhere, as before a convolution.

    Parameters
    ----------
    x : ndarray, float32, (n, c, ...), or (n, ..., c) with ``layout="NHWC"``
        Any strides, any number of axes after the first.
    bn : BatchNorm
    activation : None, str or tuple
        See :func:`conv2d`.
    layout : {"NCHW", "NHWC"}
        Whether the channels are the second axis or the last.
    out : ndarray, float32, of x's shape, optional
        Any strides; it may overlap `x`, or be `x`.

    Returns
    -------
    ndarray, float32, of x's shape
        `out` where it is given.

    Raises
    ------
    TypeError
        An array is not float32, `bn` is not a BatchNorm, or an option has the wrong type.
    ValueError
        No channels in `x`, a length of `bn` that is not their number, var + eps <= 0, an unknown name.

    Notes
    -----
    Computed as ``x scale + shift`` with scale and shift in float64, each rounded once.

    References
    ----------
    .. [1] Ioffe and Szegedy, "Batch normalization", 2015, arXiv:1502.03167

    Examples
    --------
    >>> import numpy as np, fusedops as fo
    >>> one = np.ones(2, np.float32)
    >>> fo.batch_norm(np.float32([[3, -3]]), fo.BatchNorm(2 * one, one, one, one, eps=0), activation="relu")
    array([[5., 0.]], dtype=float32)
    """
    x, scale, shift, parsed = normed_operands(x, bn, activation, layout)
    return _core.affine(x, x.ndim - 1 if layout == "NHWC" else 1, scale, shift, parsed, out)


def normed_operands(
    x: Input, bn: BatchNorm, activation: Activation, layout: Layout
) -> tuple[Array, Array, Array, tuple[Any, ...]]:
    """x, scale and shift in float32, and the activation parsed; or the error that says what is wrong."""
    x, last = _core.as_input(x, "x"), one_of(layout, "layout", LAYOUTS) == "NHWC"
    if x.ndim < 2:
        raise ValueError(f"x has shape {x.shape}, but must be {'(n, ..., c)' if last else '(n, c, ...)'}")
    channels = x.shape[-1 if last else 1]
    parsed = activations.parse(activation, channels)
    scale, shift = scale_and_shift(bn, channels)
    with silence():
        return x, scale.astype(np.float32), shift.astype(np.float32), parsed
