"""One-shot convolutions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .. import _core
from .._internal.keyword_options import options_by_name
from ..layers import Conv1d, Conv2d, LentLinear

if TYPE_CHECKING:
    from .._types import Activation, Algorithm, Array, Input, Ints, Layout, Padding, Padding1d
    from ..batchnorm import BatchNorm


LENT_PIXELS = 2  # up to which a convolution of pixels is a product that reads weights where they lie


def _are_few_pixels(x, w, layout):
    """Whether a 1x1 convolution of these is such a product."""
    if not (type(x) is type(w) is np.ndarray and x.dtype == w.dtype == np.float32 and x.ndim == w.ndim == 4):
        return False
    ic = x.shape[3 if layout == "NHWC" else 1]
    pixels = layout == "NHWC" or (layout == "NCHW" and x.shape[2:] == (1, 1))
    return pixels and w.shape[1:] == (ic, 1, 1) and len(w) > _core.DOT_COLUMNS and 0 < x.size <= LENT_PIXELS * ic


def _of_few_pixels(x, w, bias, residual, activation, layout, out):
    """A 1x1 convolution of an image of a pixel or two: a product by weights where they lie, bit-identical. None
    for all others, and for what is an error."""
    if not _are_few_pixels(x, w, layout):
        return None
    ic, rows = w.shape[1], x.size // w.shape[1]
    shape = (*x.shape[:3], len(w)) if layout == "NHWC" else (len(x), len(w), 1, 1)
    if residual is not None and np.shape(residual) != shape:
        return None
    residual = residual if residual is None else np.reshape(residual, (rows, -1))
    to = out if out is None else _core.checked_out(out, shape)
    y = LentLinear(w.reshape(len(w), ic), bias, activation=activation)(x.reshape(rows, ic), residual).reshape(shape)
    if to is None:
        return y
    to[...] = y
    return out


@options_by_name
def conv2d(
    x: Input,
    w: Input,
    *,
    bias: Input | None = None,
    bn: BatchNorm | None = None,
    residual: Input | None = None,
    activation: Activation = None,
    stride: Ints = 1,
    padding: Padding = 0,
    dilation: Ints = 1,
    groups: int = 1,
    layout: Layout = "NCHW",
    algorithm: Algorithm = "auto",
    out: Array | None = None,
) -> Array:
    """2-D convolution with everything that follows it fused in: ``y = activation(batch_norm(conv(x, w) + bias) +
    residual)``.

    ``conv(x, w)[n, o, h, w] = sum over c, i, j of w[o, c, i, j] x[n, c, h sh + i dh - top, w sw + j dw - left]``

    Parameters
    ----------
    x : ndarray, float32, (n, ic, ih, iw), or (n, ih, iw, ic) with ``layout="NHWC"``
        Any strides. An NCHW-shaped array whose memory is NHWC is read as it lies, and gives a result like itself.
    w : ndarray, float32 or float16 (see :class:`Conv2d`), (oc, ic/groups, kh, kw)
    bias : ndarray, float32, (oc,), optional
    bn : BatchNorm, optional
        Folded into `w` and `bias`: it costs nothing per pixel.
    residual : ndarray, float32, of the result's shape, optional
        Added before the activation.
    activation : None, str or tuple
        ``"relu"``, ``"relu6"``, ``("clip", lo, hi)``, ``("leaky_relu", slope)``, ``("elu", alpha)``, ``"sigmoid"``,
        ``"tanh"``, ``"gelu"`` (erf), ``"gelu_tanh"``, ``"silu"``, ``"hardsigmoid"``, ``"hardswish"``, ``"softplus"``,
        ``"mish"``, ``"softsign"`` or ``("prelu", slopes)`` with one slope for each output channel.
    stride, dilation : int or (int, int)
    padding : int, (ph, pw), ((top, bottom), (left, right)), "same" or "valid"
        Zeros around the image. "same" gives ceil(input / stride) points; an odd number of zeros has one more at the
        end.
    groups : int
    layout : {"NCHW", "NHWC"}
    algorithm : {"auto", "direct", "winograd", "winograd1d"}
        "auto" depends on the shapes and the processor alone. The last two take fewer multiplications. "winograd"
        (3x3, stride 1, or 2 without dilation, not depthwise) works on tiles, and rounds more than "direct": by 2e-5 of
        the largest output at most, in large images of stride 1 by 5e-5. "winograd1d" (kernels higher than their stride,
        not depthwise) works on two or three output rows, and rounds as "direct" does.
    out : ndarray, float32, optional
        Where the result goes: any strides; it may overlap an input.

    Returns
    -------
    ndarray, float32, (n, oc, oh, ow) or (n, oh, ow, oc)
        `out` where it is given.

    Raises
    ------
    TypeError
        An array is not float32, or an option has the wrong type.
    ValueError
        Shapes that do not fit, an unknown name, a kernel larger than the padded image. `out` has not been written to.

    See Also
    --------
    Conv2d : The same with weights packed once.

    Notes
    -----
    Weights are packed at each call, which takes about as long as reading and writing them a few times; :class:`Conv2d`
    does it once.

    References
    ----------
    .. [1] Goto and van de Geijn, "Anatomy of high-performance matrix multiplication", ACM TOMS 34(3), 2008: products in
           panels
    .. [2] Lavin and Gray, "Fast algorithms for convolutional neural networks", 2016, arXiv:1509.09308: Winograd's
           algorithm

    Examples
    --------
    >>> import numpy as np, fusedops as fo
    >>> fo.conv2d(np.ones((1, 2, 4, 4), np.float32), np.ones((3, 2, 3, 3), np.float32), activation="relu").shape
    (1, 3, 2, 2)
    """
    windows = groups, dilation, padding, stride
    plain = all(type(option) is int for option in windows) and windows == (1, 1, 0, 1)
    if plain and bn is None and algorithm in ("auto", "direct"):
        y = _of_few_pixels(x, w, bias, residual, activation, layout, out)
        if y is not None:
            return y
    layer = Conv2d(
        w,
        bias,
        bn,
        activation=activation,
        stride=stride,
        padding=padding,
        dilation=dilation,
        groups=groups,
        layout=layout,
        algorithm=algorithm,
    )
    return layer(x, residual, out)


@options_by_name
def conv1d(
    x: Input,
    w: Input,
    *,
    bias: Input | None = None,
    bn: BatchNorm | None = None,
    residual: Input | None = None,
    activation: Activation = None,
    stride: int = 1,
    padding: Padding1d = 0,
    dilation: int = 1,
    groups: int = 1,
    layout: Layout = "NCHW",
    algorithm: Algorithm = "auto",
    out: Array | None = None,
) -> Array:
    """One-dimensional convolution with everything that follows it fused in: ``y = activation(batch_norm(conv(x, w) +
    bias) + residual)``.

    ``conv(x, w)[n, o, l] = sum over c, j of w[o, c, j] x[n, c, l s + j d - before]``

    Parameters
    ----------
    x : ndarray, float32, (n, ic, l), or (n, l, ic) with ``layout="NHWC"``
        Any strides, as in :func:`conv2d`.
    w : ndarray, float32 or float16 (see :class:`Conv2d`), (oc, ic/groups, k)
    bias, bn, residual, activation, groups, algorithm, out
        See :func:`conv2d`.
    stride, dilation : int
    padding : int, (before, after), "same" or "valid"
        Zeros around the sequence. ``((k - 1) * dilation, 0)`` makes the convolution causal.
    layout : {"NCHW", "NHWC"}
        Whether the channels are the second axis or the last.

    Returns
    -------
    ndarray, float32, (n, oc, ol) or (n, ol, oc)
        `out` where it is given.

    Raises
    ------
    TypeError, ValueError
        As :func:`conv2d`.

    See Also
    --------
    Conv1d : The same with weights packed once.

    References
    ----------
    .. [1] Waibel et al., "Phoneme recognition using time-delay neural networks", 1989

    Examples
    --------
    >>> import numpy as np, fusedops as fo
    >>> fo.conv1d(np.arange(5, dtype=np.float32).reshape(1, 1, 5), np.ones((1, 1, 3), np.float32))
    array([[[3., 6., 9.]]], dtype=float32)
    """
    layer = Conv1d(
        w,
        bias,
        bn,
        activation=activation,
        stride=stride,
        padding=padding,
        dilation=dilation,
        groups=groups,
        layout=layout,
        algorithm=algorithm,
    )
    return layer(x, residual, out)


@options_by_name
def conv_bn_relu(
    x: Input,
    w: Input,
    bn: BatchNorm | None = None,
    *,
    bias: Input | None = None,
    residual: Input | None = None,
    stride: Ints = 1,
    padding: Padding = 0,
    dilation: Ints = 1,
    groups: int = 1,
    layout: Layout = "NCHW",
    algorithm: Algorithm = "auto",
    out: Array | None = None,
) -> Array:
    """Convolution, batch norm and ReLU in one kernel: ``y = max(batch_norm(conv(x, w) + bias) + residual, 0)``.

    :func:`conv2d` with ``activation="relu"``. ``conv_bn_relu(x, w)`` alone works.

    Parameters
    ----------
    x : ndarray, float32, (n, ic, ih, iw), or (n, ih, iw, ic) with ``layout="NHWC"``
    w : ndarray, float32 or float16 (see :class:`Conv2d`), (oc, ic/groups, kh, kw)
    bn : BatchNorm, optional
    bias, residual, stride, padding, dilation, groups, layout, algorithm, out
        See :func:`conv2d`.

    Returns
    -------
    ndarray, float32, (n, oc, oh, ow) or (n, oh, ow, oc)

    Raises
    ------
    TypeError, ValueError
        As :func:`conv2d`.

    See Also
    --------
    reference.conv_bn_relu : The same in three passes.

    Examples
    --------
    >>> import numpy as np, fusedops as fo
    >>> fo.conv_bn_relu(np.ones((1, 2, 4, 4), np.float32), -np.ones((3, 2, 3, 3), np.float32)).max()
    np.float32(0.0)
    """
    return conv2d(
        x,
        w,
        bias=bias,
        bn=bn,
        residual=residual,
        activation="relu",
        stride=stride,
        padding=padding,
        dilation=dilation,
        groups=groups,
        layout=layout,
        algorithm=algorithm,
        out=out,
    )
