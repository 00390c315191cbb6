"""Linear layers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import _core, activations
from .._internal.arguments import bias_of, checked_precision
from .._internal.mmap_arrays import aligned, let_go
from .layer import Layer, kept_activation, shown_precision, storage_of

if TYPE_CHECKING:
    from .._types import Activation, Input, Precision


def _linear(w, bias, activation):
    """Returns the parts of a layer as its plan takes them; w where it is."""
    w = _core.as_weights(w, "w", 2, None, True)
    return w, bias_of(_core.widened(bias, "bias", w), w.shape[0]), activations.parse(activation, w.shape[0])


class LentLinear(_core.LinearPlan):
    """A Linear for one call, whose few rows read `w` where it lies."""

    def __init__(self, w, bias=None, *, activation=None):
        self._pack(*_linear(w, bias, activation), lend=True)


class Linear(Layer, _core.LinearPlan):
    """A fully connected layer, ``y = activation(x w^T + bias + residual)``, with `w` packed once.

    Parameters
    ----------
    w : ndarray, float32, float16 or bfloat16, (n, k)
        As PyTorch's ``nn.Linear.weight``. Copied. float16 and bfloat16 stay so, in half of the memory, and are widened
        where they are read: sums are float32, bit-identical to those of ``w.astype(np.float32)``. bfloat16 is a dtype
        of that name, as ``ml_dtypes`` has it, or one that names its bits:
        ``np.dtype((np.uint16, {"bfloat16": (np.uint16, 0)}))``.
    bias : ndarray, float32 (or as `w`), (n,), optional
    activation : None, str or tuple
        See :func:`fusedops.conv2d`.
    precision : "float32" or "bfloat16"
        Of the operands. With bfloat16, x and `w` are rounded to it, to nearest, ties to even. Their products are summed
        in float32, and all that follows is float32. Processors with AVX512_BF16 or AMX, and 64-bit ARM with BFMMLA
        (under Linux), multiply them faster than float32; others multiply the rounded numbers in float32.

    Raises
    ------
    TypeError
        An array is neither float32 nor, of `w` and `bias`, of 16 bits, or an option has the wrong type.
    ValueError
        Shapes that do not fit, or an unknown name.

    Notes
    -----
    ``layer(x, residual=None, out=None)`` takes x (..., k), adds `residual` (..., n) before the activation, and returns
    y (..., n): `out` where it is given. It may be called from many threads, copied and pickled.

    Examples
    --------
    >>> import numpy as np, fusedops as fo
    >>> layer = fo.Linear(np.eye(3, dtype=np.float32), activation="relu")
    >>> layer(np.array([[-1, 0, 2]], np.float32))
    array([[0., 0., 2.]], dtype=float32)
    """

    def __init__(
        self, w: Input, bias: Input | None = None, *, activation: Activation = None, precision: Precision = "float32"
    ) -> None:
        w, bias, parsed = _linear(w, bias, activation)
        options = {"activation": kept_activation(activation, parsed), "precision": precision}
        self._pack(w, bias, parsed, checked_precision(precision))
        self._options = options

    @property
    def _arguments(self):
        return self._weights(), self._options

    def __repr__(self):
        options = self._options
        return (
            f"Linear({self.k} -> {self.n}, {storage_of(self._dtype())}bias={self._has_bias()}, "
            f"activation={activations.described(options['activation'])}{shown_precision(options)}, "
            f"kernel='{self.isa} gemm')"
        )


class ConstantLinear(Linear):
    """A Linear of a network, whose weights nobody changes: they are kept without a copy, and may stand at odd addresses
    in a mapped file; those need no memory once they are packed."""

    def __init__(self, w, bias=None, *, activation=None, precision="float32"):
        bias = bias_of(_core.widened(bias, "bias", w), w.shape[0])
        parsed = activations.parse(activation, w.shape[0])
        self._options = {"activation": kept_activation(activation, parsed), "precision": precision}
        self._pack(w if precision == "float32" else aligned(w), bias, parsed, precision)
        let_go(w)
