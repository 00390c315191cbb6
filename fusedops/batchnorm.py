"""Batch norm as data, and its folding into the weights before it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from . import _core
from .activations import number

if TYPE_CHECKING:
    from numpy import dtype, float64, ndarray

    from ._types import Array, Input


class BatchNorm(NamedTuple):
    """The parameters of an inference batch norm, ``y = gamma (x - mean) / sqrt(var + eps) + beta``, one of each per
    channel.

    Parameters
    ----------
    gamma, beta : ndarray, float32, (channels,), or None
        None stands for 1 and 0.
    mean, var : ndarray, float32, (channels,)
        The statistics of training.
    eps : float

    See Also
    --------
    fold_batch_norm : Its arithmetic as weights and a bias.

    Notes
    -----
    The functions that take it check it: TypeError for a wrong dtype, ValueError for a wrong length or var + eps <= 0.

    References
    ----------
    .. [1] Ioffe and Szegedy, "Batch normalization", 2015, arXiv:1502.03167

    Examples
    --------
    >>> import numpy as np, fusedops as fo
    >>> one, zero = np.ones(1, np.float32), np.zeros(1, np.float32)
    >>> bn = fo.BatchNorm(gamma=2 * one, beta=one, mean=zero, var=one, eps=0)
    >>> fo.conv2d(np.float32([[[[3]]]]), np.float32([[[[1]]]]), bn=bn)
    array([[[[7.]]]], dtype=float32)
    """

    gamma: Input | None
    beta: Input | None
    mean: Input
    var: Input
    eps: float = 1e-5


def scale_and_shift(
    bn: BatchNorm, channels: int
) -> tuple[ndarray[tuple[int, ...], dtype[float64]], ndarray[tuple[int, ...], dtype[float64]]]:
    """The batch norm as ``y = scale x + shift``, both float64 of length `channels`.

    Raises
    ------
    TypeError
        `bn` is not a BatchNorm (or such a tuple), or one of its arrays is not float32.
    ValueError
        A length that is not `channels`, or a variance with var + eps <= 0.
    """
    if not isinstance(bn, tuple) or len(bn) not in (4, 5):
        raise TypeError(f"bn must be fusedops.BatchNorm(gamma, beta, mean, var, eps), not {type(bn).__name__}")
    bn = BatchNorm(*bn)
    if bn.mean is None or bn.var is None:
        raise ValueError("bn.mean and bn.var must be given: batch norm is folded with the statistics of training")
    eps = number(bn.eps, "bn.eps")
    both = _core.batch_norm_scale(bn.gamma, bn.beta, bn.mean, bn.var, eps, channels)
    if both is None:
        var = _core.as_input(bn.var, "bn.var").astype(np.float64) + eps
        bad = int(np.argmin(var > 0))
        raise ValueError(f"bn.var + bn.eps must be positive, but is {var[bad]:g} for channel {bad}")
    return both


def silence():
    """Silences NumPy's warnings about infinite statistics and values beyond float32's range, as kernels do not warn."""
    return np.errstate(over="ignore", invalid="ignore")


def scale_and_bias(
    bias: Input | None, bn: BatchNorm, channels: int
) -> tuple[ndarray[tuple[int, ...], dtype[float64]], Array]:
    """Folds a batch norm into the weights and bias before it: returns `w` times a float64 `scale` of its channels, and
    the float32 `bias`."""
    scale, shift = scale_and_shift(bn, channels)
    return scale, _core.fold_bias(bias, scale, shift)


def fold_batch_norm(w: Input, bias: Input | None, bn: BatchNorm) -> tuple[Array, Array]:
    """Folds a batch norm into the weights and bias before it: ``bn(op(x, w) + bias) = op(x, w') + bias'``.

    ``w' = w gamma / sqrt(var + eps)``, ``bias' = (bias - mean) gamma / sqrt(var + eps) + beta``, by output channel.
    Computed in float64 and rounded once; weights that would be denormal become 0.

    Parameters
    ----------
    w : ndarray, float32, (channels, ...)
        Weights whose first axis is the output channel.
    bias : ndarray, float32, (channels,), or None
    bn : BatchNorm

    Returns
    -------
    w : ndarray, float32, of the shape of `w`
    bias : ndarray, float32, (channels,)

    Raises
    ------
    TypeError
        An array is not float32, or `bn` not a BatchNorm.
    ValueError
        A length that does not fit, or var + eps <= 0.

    References
    ----------
    .. [1] Jacob et al., "Quantization and training of neural networks for efficient integer-arithmetic-only inference",
       2018, section 3.2, arXiv:1712.05877

    Examples
    --------
    >>> import numpy as np, fusedops as fo
    >>> one = np.ones(2, np.float32)
    >>> w, bias = fo.fold_batch_norm(np.ones((2, 3), np.float32), None, fo.BatchNorm(2 * one, one, one, one, eps=0))
    >>> w[0], bias
    (array([2., 2., 2.], dtype=float32), array([-1., -1.], dtype=float32))
    """
    w = _core.as_input(w, "w")
    if w.ndim < 1:
        raise ValueError("w has shape (), but its first axis must be the output channel")
    scale, bias = scale_and_bias(bias, bn, w.shape[0])
    return _core.fold_scale(np.ascontiguousarray(w), scale), bias
