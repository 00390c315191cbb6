"""Layers of int8 weights, with everything that follows fused in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .. import _core, activations
from .._internal.arguments import bias_of
from ..batchnorm import scale_and_bias
from ..quantization import Quantization, number_of, quantize, rows_of, symmetric
from . import windows
from .layer import Layer, kept_activation

if TYPE_CHECKING:
    from .._types import Activation, Input, Ints, Layout, Padding
    from ..batchnorm import BatchNorm


def _weights(w, w_q, ndim, bias, bn):
    """int8 weights, a scale for each output channel, and bias with a batch norm folded in."""
    if w_q is None:
        w = _core.as_input(w, "w", ndim)
        if bn is not None:
            scale, bias = scale_and_bias(bias, bn, len(w))
            w = _core.fold_scale(np.ascontiguousarray(w), scale)
        w_q = symmetric(w)
        return _short(quantize(w, w_q, np.int8)), w_q.scale, bias
    if bn is not None:
        raise ValueError("bn is folded into float32 weights, but w is int8 with w_q: fold it before they are quantized")
    w = _core.as_bytes(w, "w", "a layer with w_q")
    if w.dtype != np.int8:
        raise TypeError(
            f"w has dtype {w.dtype}, but weights are int8: pass (w.astype(np.int16) - 128).astype(np.int8) with "
            f"zero point 0"
        )
    if w.ndim != ndim:
        raise ValueError(f"w has shape {w.shape}, but must have {ndim} axes")
    scale, zero = rows_of(w_q, "w_q", w.shape, w.dtype)
    if zero.any():
        raise ValueError(f"w_q.zero_point is {zero[zero != 0][0]}, but weights are symmetric: their zero point is 0")
    return _short(w), np.ascontiguousarray(np.broadcast_to(scale, len(w))), bias


def _short(w):
    """w, if sums of its products fit 32 bits."""
    steps = w[:1].size
    if steps > _core.Q_STEPS:
        raise ValueError(
            f"w has shape {w.shape}: sums of {steps} products of int8 do not fit 32 bits, at most {_core.Q_STEPS} do"
        )
    return w


def _ends(x_q, residual_q, y_q):
    return number_of(x_q, "x_q"), number_of(residual_q, "residual_q"), number_of(y_q, "y_q")


def _described(w, scale, bias, ends, **options):
    """Returns the arguments that make the layer again: int8 weights and what they stand for."""
    x_q, residual_q, y_q = (q and Quantization(*q) for q in ends)
    return (w.copy(), None if bias is None else bias.copy()), dict(
        x_q=x_q, residual_q=residual_q, y_q=y_q, w_q=Quantization(scale.copy(), 0), **options
    )


class QLinear(Layer, _core.QLinearPlan):
    """A fully connected layer in int8, ``y = activation(x w^T + bias + residual)``, with `w` packed once.

    Parameters
    ----------
    w : ndarray, int8 with `w_q`, or float32, (n, k)
        float32 weights are quantized an output channel at a time.
    bias : ndarray, float32, (n,), optional
    bn : BatchNorm, optional
        Folded into float32 weights and `bias`.
    x_q : Quantization, optional
        Of x. None: x is float32, and each of its rows is quantized as it comes, by its own least and largest element.
    w_q : Quantization, optional
        Of int8 weights: one scale, or one for each output channel; zero point 0.
    y_q : Quantization, optional
        Of y. None: y is float32.
    residual_q : Quantization, optional
        Of the residual. None: it is float32.
    activation : None, str or tuple
        See :func:`fusedops.conv2d`.

    Raises
    ------
    TypeError
        An array or an option has the wrong type.
    ValueError
        Shapes that do not fit, scales that are not positive, zero points that a type does not have, sums that may
        not fit 32 bits.

    Notes
    -----
    ``layer(x, residual=None, out=None)`` takes x (..., k) of uint8, int8 or, without `x_q`, float32, and returns y
    (..., n): of x's type, uint8 where that is float32, or of out's; float32 without `y_q`.
    The integers are the same on every instruction set.

    Examples
    --------
    >>> import numpy as np, fusedops as fo
    >>> x_q, y_q = fo.Quantization(0.1, 10), fo.Quantization(0.1, 0)
    >>> layer = fo.QLinear(np.eye(3, dtype=np.float32), x_q=x_q, y_q=y_q, activation="relu")
    >>> layer(np.uint8([[0, 10, 30]]))
    array([[ 0,  0, 20]], dtype=uint8)
    >>> fo.QLinear(np.eye(3, dtype=np.float32))(np.float32([[-1, 0, 1]])).round(2)
    array([[-1.,  0.,  1.]], dtype=float32)
    """

    def __init__(
        self,
        w: Input,
        bias: Input | None = None,
        bn: BatchNorm | None = None,
        *,
        x_q: Quantization | None = None,
        w_q: Quantization | None = None,
        y_q: Quantization | None = None,
        residual_q: Quantization | None = None,
        activation: Activation = None,
    ) -> None:
        w, scale, bias = _weights(w, w_q, 2, bias, bn)
        bias = bias_of(bias, len(w))
        parsed = activations.parse(activation, len(w))
        ends = _ends(x_q, residual_q, y_q)
        self._arguments = _described(w, scale, bias, ends, activation=kept_activation(activation, parsed))
        self._pack(w, scale, bias, parsed, *ends)

    def __repr__(self):
        (w, bias), options = self._arguments
        kind = "float32 by rows" if options["x_q"] is None else "bytes"
        return (
            f"QLinear({w.shape[1]} -> {w.shape[0]}, {kind} -> {'float32' if options['y_q'] is None else 'bytes'}, "
            f"bias={bias is not None}, "
            f"activation={activations.described(options['activation'])}, kernel='{self.isa} gemm')"
        )


class QConv2d(Layer, _core.QConv2dPlan):
    """A 2-D convolution in int8, ``y = activation(conv(x, w) + bias + residual)``, folded and packed once.

    Parameters
    ----------
    w : ndarray, int8 with `w_q`, or float32, (oc, ic/groups, kh, kw)
        float32 weights are quantized an output channel at a time.
    bias : ndarray, float32, (oc,), optional
    bn : BatchNorm, optional
        Folded into float32 weights and `bias`.
    x_q : Quantization
        Of x. Padding is filled with its zero point.
    w_q, y_q, residual_q
        See :class:`QLinear`.
    activation, stride, padding, dilation, groups, layout
        See :func:`fusedops.conv2d`.

    Raises
    ------
    TypeError
        An array or an option has the wrong type.
    ValueError
        Shapes that do not fit, scales that are not positive, zero points that a type does not have, sums that may
        not fit 32 bits.

    Notes
    -----
    ``layer(x, residual=None, out=None)`` takes x (n, ic, ih, iw) of uint8 or int8 and returns y (n, oc, oh, ow) of
    the same type, or of out's; float32 without `y_q`. With ``layout="NHWC"`` all have their channels last, and so they
    are fastest: images with their channels first are transposed on the way. The integers are the same on every
    instruction set.

    Examples
    --------
    >>> import numpy as np, fusedops as fo
    >>> q = fo.Quantization(1.0, 5)
    >>> layer = fo.QConv2d(np.ones((1, 1, 3, 3), np.float32), x_q=q, y_q=fo.Quantization(1.0, 0), padding=1)
    >>> layer(np.full((1, 1, 3, 3), 6, np.uint8))[0, 0]
    array([[4, 6, 4],
           [6, 9, 6],
           [4, 6, 4]], dtype=uint8)
    """

    def __init__(
        self,
        w: Input,
        bias: Input | None = None,
        bn: BatchNorm | None = None,
        *,
        x_q: Quantization,
        w_q: Quantization | None = None,
        y_q: Quantization | None = None,
        residual_q: Quantization | None = None,
        activation: Activation = None,
        stride: Ints = 1,
        padding: Padding = 0,
        dilation: Ints = 1,
        groups: int = 1,
        layout: Layout = "NCHW",
    ) -> None:
        if x_q is None:
            raise TypeError("x_q must be a Quantization(scale, zero_point), not None: images are bytes")
        w, scale, bias = _weights(w, w_q, 4, bias, bn)
        stride, zeros, dilation, groups, nhwc = windows(w, stride, padding, dilation, groups, layout)
        bias = bias_of(bias, len(w))
        parsed = activations.parse(activation, len(w))
        ends = _ends(x_q, residual_q, y_q)
        self._arguments = _described(
            w,
            scale,
            bias,
            ends,
            activation=kept_activation(activation, parsed),
            stride=stride,
            padding=padding if isinstance(padding, (int, str)) else zeros,
            dilation=dilation,
            groups=groups,
            layout=layout,
        )
        self._pack(np.ascontiguousarray(w), scale, bias, parsed, stride, zeros, dilation, groups, nhwc, *ends)

    def __repr__(self):
        (w, bias), options = self._arguments
        usual = dict(stride=(1, 1), padding=0, dilation=(1, 1), groups=1, layout="NCHW")
        changed = "".join(f", {k}={options[k]!r}" for k, v in usual.items() if options[k] != v)
        return (
            f"QConv2d({w.shape[1] * options['groups']} -> {len(w)}, {w.shape[2]}x{w.shape[3]}, bytes -> "
            f"{'float32' if options['y_q'] is None else 'bytes'}, bias={bias is not None}, "
            f"activation={activations.described(options['activation'])}{changed}, kernel='{self.isa} {self._kernel()}')"
        )
