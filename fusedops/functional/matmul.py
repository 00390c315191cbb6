"""One-shot matrix products."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .. import _core
from .._internal.keyword_options import options_by_name
from ..layers import LentLinear

if TYPE_CHECKING:
    from .._types import Activation, Array, Input


@options_by_name
def linear(
    x: Input,
    w: Input,
    bias: Input | None = None,
    *,
    residual: Input | None = None,
    activation: Activation = None,
    out: Array | None = None,
) -> Array:
    """Fully connected layer: ``y = activation(x w^T + bias + residual)``.

    Parameters
    ----------
    x : ndarray, float32, (..., k)
    w : ndarray, float32 (or see :class:`Linear`), (n, k)
        As in PyTorch.
    bias : ndarray, float32 (or as `w`), (n,), optional
    residual : ndarray, float32, (..., n), optional
    activation : None, str or tuple
        See :func:`conv2d`; the channels of ``("prelu", slopes)`` are the n columns.
    out : ndarray, float32, (..., n), optional
        Any strides; it may overlap an input.

    Returns
    -------
    ndarray, float32, (..., n)

    Raises
    ------
    TypeError
        An array is not float32, nor of a type of weights, or an option has the wrong type.
    ValueError
        Shapes that do not fit, or an unknown name.

    See Also
    --------
    Linear : The same with weights packed once.
    gemm : The product without the transposition.

    Examples
    --------
    >>> import numpy as np, fusedops as fo
    >>> fo.linear(np.ones((2, 3), np.float32), np.ones((4, 3), np.float32), activation="relu6")
    array([[3., 3., 3., 3.],
           [3., 3., 3., 3.]], dtype=float32)
    """
    return LentLinear(w, bias, activation=activation)(x, residual, out)


@options_by_name
def gemm(
    a: Input,
    b: Input,
    *,
    bias: Input | None = None,
    residual: Input | None = None,
    activation: Activation = None,
    out: Array | None = None,
) -> Array:
    """Matrix product with a fused epilogue: ``y = activation(a b + bias + residual)``.

    Parameters
    ----------
    a : ndarray, float32, (..., m, k)
    b : ndarray, float32, (k, n)
    bias : ndarray, float32, (n,), optional
    residual, activation, out
        See :func:`linear`.

    Returns
    -------
    ndarray, float32, (..., m, n)

    Raises
    ------
    TypeError
        An array is not float32, or an option has the wrong type.
    ValueError
        Shapes that do not fit, or an unknown name.

    References
    ----------
    .. [1] Goto and van de Geijn, "Anatomy of high-performance matrix multiplication", ACM TOMS 34(3), 2008

    Examples
    --------
    >>> import numpy as np, fusedops as fo
    >>> fo.gemm(np.ones((2, 3), np.float32), np.ones((3, 2), np.float32))
    array([[3., 3.],
           [3., 3.]], dtype=float32)
    """
    a, b = gemm_operands(a, b)
    return LentLinear(b.T, bias, activation=activation)(a, residual, out)


def matmul(a: Input, b: Input, *, out: Array | None = None) -> Array:
    """Products of matrices, batch by batch: ``y[..., i, j] = sum over p of a[..., i, p] b[..., p, j]``.

    As ``numpy.matmul``: the axes before the last two are broadcast; a vector is a row of `a` or a column of `b`, and
    the result has no axis for it. Where `b` is the same in many calls, :class:`Linear` packs it once.

    Parameters
    ----------
    a : ndarray, float32, (..., m, k) or (k,)
        Any strides.
    b : ndarray, float32, (..., k, n) or (k,)
    out : ndarray, float32, of the result's shape, optional
        Any strides; it may overlap an input.

    Returns
    -------
    ndarray, float32, (..., m, n)
        `out` where it is given.

    Raises
    ------
    TypeError
        An array is not float32.
    ValueError
        Shapes that do not fit.

    See Also
    --------
    gemm : With bias, residual and activation fused, for one `b`.

    Examples
    --------
    >>> import numpy as np, fusedops as fo
    >>> fo.matmul(np.ones((5, 1, 2, 3), np.float32), np.ones((4, 3, 7), np.float32)).shape
    (5, 4, 2, 7)
    """
    a, b = _core.as_input(a, "a"), _core.as_input(b, "b")
    batch = _batch_of(a, b)
    shape = (*batch, *a.shape[-2:-1], *(b.shape[-1:] if b.ndim > 1 else ()))
    vectors = tuple(axis for axis, x in ((-2, a), (-1, b)) if x.ndim == 1)
    left, right = a if a.ndim > 1 else a[np.newaxis], b if b.ndim > 1 else b[:, np.newaxis]
    left, right = (x if x.shape[:-2] == batch else np.broadcast_to(x, (*batch, *x.shape[-2:])) for x in (left, right))
    if out is None:
        y = _core.products(left, right)
        return y.reshape(shape) if vectors else y
    _core.checked_out(out, shape)
    _core.products(left, right, out if not vectors else np.expand_dims(out, vectors))
    return out


def _batch_of(a, b):
    """The axes in front of the matrices of a product."""
    try:
        if not a.ndim or not b.ndim or a.shape[-1] != b.shape[-2 if b.ndim > 1 else 0]:
            raise ValueError
        return np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    except ValueError:
        raise ValueError(
            f"a has shape {a.shape} and b has shape {b.shape}: they must be (..., m, k) and (..., k, n), the axes in "
            f"front alike or 1{_turned(a, b, '.swapaxes(-2, -1)')}"
        ) from None


def gemm_operands(a: Input, b: Input) -> tuple[Array, Array]:
    """a and b checked."""
    a, b = _core.as_input(a, "a"), _core.as_input(b, "b", 2)
    if a.ndim < 2 or a.shape[-1] != b.shape[0]:
        raise ValueError(
            f"a has shape {a.shape} and b has shape {b.shape}: they must be (..., m, k) and (k, n){_turned(a, b, '.T')}"
        )
    return a, b


def _turned(a, b, transpose):
    """Returns a hint for an error if b would fit with its last two axes swapped, else ""."""
    return f": pass b{transpose}" if a.ndim > 1 and b.ndim > 1 and a.shape[-1] == b.shape[-1] else ""
