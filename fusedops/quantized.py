"""int8: tensors of uint8 and int8, and layers that compute on them with everything that follows fused in."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from . import _core, activations
from .batchnorm import scale_and_bias
from .layers import windows
from .layers.arguments import bias_of
from .layers.layer import Layer, kept_activation
from .positions import options_by_name

if TYPE_CHECKING:
    from typing import Any

    from numpy.typing import DTypeLike, NDArray

    from ._types import Activation, Array, Bytes, Input, Ints, Layout, Padding
    from .batchnorm import BatchNorm


__all__ = ["QConv2d", "QLinear", "Quantization", "dequantize", "qconv2d", "qlinear", "quantize"]


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


def _number(q, name):
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


def _rows(q, name, shape, dtype):
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
    """Floats as bytes: ``y = saturate(round(x / scale) + zero_point)``, halves to even.

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
    scale, zero_point = _rows(q, "q", x.shape, y.dtype)
    return _core.convert(x, scale, zero_point, y)


def dequantize(x: Input, q: Quantization, *, out: Array | None = None) -> Array:
    """Bytes as floats: ``y = scale * (x - zero_point)``.

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
    scale, zero_point = _rows(q, "q", x.shape, x.dtype)
    return _core.convert(x, scale, zero_point, y)


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
        raise ValueError("bn is folded into float32 weights, but w is int8 with w_q: fold it before they are quantised")
    w = _core.as_bytes(w, "w", "a layer with w_q")
    if w.dtype != np.int8:
        raise TypeError(
            f"w has dtype {w.dtype}, but weights are int8: pass (w.astype(np.int16) - 128).astype(np.int8) with "
            f"zero point 0"
        )
    if w.ndim != ndim:
        raise ValueError(f"w has shape {w.shape}, but must have {ndim} axes")
    scale, zero = _rows(w_q, "w_q", w.shape, w.dtype)
    if zero.any():
        raise ValueError(f"w_q.zero_point is {zero[zero != 0][0]}, but weights are symmetric: their zero point is 0")
    return _short(w), np.ascontiguousarray(np.broadcast_to(scale, len(w))), bias


def _short(w):
    """w, if sums of its products fit 32 bits."""
    steps = w[:1].size
    if steps > _core.Q_STEPS:
        raise ValueError(
            f"w has shape {w.shape}: sums of {steps} products of bytes do not fit 32 bits, at most {_core.Q_STEPS} do"
        )
    return w


def symmetric(w: Array) -> Quantization:
    """Float32 weights by int8: for each output channel the least scale that holds them in -127..127."""
    most = np.abs(w.reshape(len(w), -1)).max(1, initial=0) if w.size else np.zeros(len(w), np.float32)
    if not np.isfinite(most).all():
        raise ValueError("w has elements that are not finite: they cannot be quantised")
    return Quantization(np.maximum(most / np.float32(127), np.finfo(np.float32).tiny).astype(np.float32), 0)


def _ends(x_q, residual_q, y_q):
    return _number(x_q, "x_q"), _number(residual_q, "residual_q"), _number(y_q, "y_q")


def _described(w, scale, bias, ends, **options):
    """What makes a layer again: int8 weights and what they stand for."""
    x_q, residual_q, y_q = (q and Quantization(*q) for q in ends)
    return (w.copy(), None if bias is None else bias.copy()), dict(
        x_q=x_q, residual_q=residual_q, y_q=y_q, w_q=Quantization(scale.copy(), 0), **options
    )


class QLinear(Layer, _core.QLinearPlan):
    """A fully connected layer in int8, ``y = activation(x w^T + bias + residual)``, with `w` packed once.

    Parameters
    ----------
    w : ndarray, int8 with `w_q`, or float32, (n, k)
        float32 weights are quantised an output channel at a time.
    bias : ndarray, float32, (n,), optional
    bn : BatchNorm, optional
        Folded into float32 weights and `bias`.
    x_q : Quantization, optional
        Of x. None: x is float32, and each of its rows is quantised as it comes, by its own least and largest element.
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
        float32 weights are quantised an output channel at a time.
    bias : ndarray, float32, (oc,), optional
    bn : BatchNorm, optional
        Folded into float32 weights and `bias`.
    x_q : Quantization
        Of x. What is outside an image is its zero point.
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


@options_by_name
def qconv2d(
    x: Input,
    w: Input,
    *,
    x_q: Quantization,
    w_q: Quantization,
    y_q: Quantization | None = None,
    bias: Input | None = None,
    activation: Activation = None,
    residual: Input | None = None,
    residual_q: Quantization | None = None,
    stride: Ints = 1,
    padding: Padding = 0,
    dilation: Ints = 1,
    groups: int = 1,
    layout: Layout = "NCHW",
    out: NDArray[Any] | None = None,
) -> NDArray[Any]:
    """2-D convolution in int8: ``y = activation(conv(x, w) + bias + residual)``, products summed exactly in 32 bits.

    Parameters
    ----------
    x : ndarray, uint8 or int8, (n, ic, ih, iw), or (n, ih, iw, ic) with ``layout="NHWC"``
        Any strides; fastest where channels are neighbours in memory.
    w : ndarray, int8, (oc, ic/groups, kh, kw)
    x_q : Quantization
    w_q : Quantization
        One scale, or one for each output channel; zero point 0.
    y_q : Quantization, optional
        None: the result is float32.
    bias : ndarray, float32, (oc,), optional
    activation : None, str or tuple
        See :func:`conv2d`.
    residual : ndarray, uint8 or int8 with `residual_q`, or float32, of the result's shape, optional
        Added before the activation.
    residual_q : Quantization, optional
    stride, padding, dilation, groups, layout
        See :func:`conv2d`; padding is of x's zero point.
    out : ndarray of the result's shape, optional
        uint8 or int8 with `y_q`, else float32; any strides; it may overlap an input.

    Returns
    -------
    ndarray, (n, oc, oh, ow) or (n, oh, ow, oc)
        `out` where it is given; else of x's type with `y_q`, and float32 without.

    Raises
    ------
    TypeError, ValueError
        As :class:`QConv2d`.

    See Also
    --------
    QConv2d : The same with weights packed once, and from float32 weights.

    References
    ----------
    .. [1] Jacob et al., "Quantization and training of neural networks for efficient integer-arithmetic-only
           inference", 2018, arXiv:1712.05877

    Examples
    --------
    >>> import numpy as np, fusedops as fo
    >>> x = np.full((1, 4, 8, 8), 12, np.uint8)
    >>> w = np.ones((2, 4, 3, 3), np.int8)
    >>> fo.qconv2d(x, w, x_q=fo.Quantization(0.5, 10), w_q=fo.Quantization(0.25), padding=1)[0, :, 0, 0]
    array([4., 4.], dtype=float32)
    """
    if w_q is None:
        raise TypeError("w_q must be a Quantization(scale, zero_point), not None: QConv2d quantises float32 weights")
    layer = QConv2d(
        w,
        bias,
        x_q=x_q,
        w_q=w_q,
        y_q=y_q,
        residual_q=residual_q,
        activation=activation,
        stride=stride,
        padding=padding,
        dilation=dilation,
        groups=groups,
        layout=layout,
    )
    return layer(x, residual, out)


@options_by_name
def qlinear(
    x: Input,
    w: Input,
    *,
    x_q: Quantization | None = None,
    w_q: Quantization,
    y_q: Quantization | None = None,
    bias: Input | None = None,
    activation: Activation = None,
    residual: Input | None = None,
    residual_q: Quantization | None = None,
    out: NDArray[Any] | None = None,
) -> NDArray[Any]:
    """Fully connected layer in int8: ``y = activation(x w^T + bias + residual)``, products summed exactly in 32 bits.

    Parameters
    ----------
    x : ndarray, uint8 or int8 with `x_q`, or float32, (..., k)
        float32 rows are quantised each by its own range, as ONNX's DynamicQuantizeLinear does with a tensor.
    w : ndarray, int8, (n, k)
    x_q : Quantization, optional
    w_q : Quantization
        One scale, or one for each of n; zero point 0.
    y_q : Quantization, optional
        None: the result is float32.
    bias : ndarray, float32, (n,), optional
    activation : None, str or tuple
        See :func:`conv2d`.
    residual : ndarray, uint8 or int8 with `residual_q`, or float32, (..., n), optional
    residual_q : Quantization, optional
    out : ndarray of the result's shape, optional
        uint8 or int8 with `y_q`, else float32; any strides; it may overlap an input.

    Returns
    -------
    ndarray, (..., n)
        `out` where it is given; else of x's type with `y_q` (uint8 where that is float32), and float32 without.

    Raises
    ------
    TypeError, ValueError
        As :class:`QLinear`.

    See Also
    --------
    QLinear : The same with weights packed once, and from float32 weights.

    References
    ----------
    .. [1] Jacob et al., "Quantization and training of neural networks for efficient integer-arithmetic-only
           inference", 2018, arXiv:1712.05877

    Examples
    --------
    >>> import numpy as np, fusedops as fo
    >>> x_q, w_q = fo.Quantization(0.5, 10), fo.Quantization(0.25)
    >>> fo.qlinear(np.uint8([[12, 8]]), np.int8([[1, 2], [3, -4]]), x_q=x_q, w_q=w_q)
    array([[-0.25,  1.75]], dtype=float32)
    """
    if w_q is None:
        raise TypeError("w_q must be a Quantization(scale, zero_point), not None: QLinear quantises float32 weights")
    layer = QLinear(w, bias, x_q=x_q, w_q=w_q, y_q=y_q, residual_q=residual_q, activation=activation)
    return layer(x, residual, out)
