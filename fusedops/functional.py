"""One-shot functions: a prepared layer, made and dropped."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from . import _core
from .images import (
    adaptive_avg_pool2d,
    avg_pool1d,
    avg_pool2d,
    global_avg_pool2d,
    max_pool1d,
    max_pool2d,
    resize,
)
from .layers import LAYOUTS, Conv1d, Conv2d, ConvTranspose1d, ConvTranspose2d, LentLinear
from .layers.arguments import one_of
from .norms import group_norm, instance_norm, layer_norm, log_softmax, rms_norm, softmax
from .pointwise import activation, batch_norm
from .positions import options_by_name
from .tokens import attention, embedding
from .volumes import conv3d

if TYPE_CHECKING:
    from ._types import Activation, Algorithm, Array, Input, Ints, Layout, Padding, Padding1d
    from .batchnorm import BatchNorm


__all__ = [
    "activation",
    "adaptive_avg_pool2d",
    "attention",
    "avg_pool1d",
    "avg_pool2d",
    "batch_norm",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_bn_relu",
    "conv_transpose1d",
    "conv_transpose2d",
    "depthwise_conv2d",
    "depthwise_conv_bn_relu",
    "embedding",
    "gemm",
    "global_avg_pool2d",
    "group_norm",
    "instance_norm",
    "layer_norm",
    "linear",
    "log_softmax",
    "matmul",
    "max_pool1d",
    "max_pool2d",
    "resize",
    "rms_norm",
    "softmax",
]


LENT_PIXELS = 2  # up to which a convolution of pixels is a product that reads weights where they lie
DOT_COLUMNS = 8  # up to which the sums of a product may have another order than those of a convolution


def _are_few_pixels(x, w, layout):
    """Whether a 1x1 convolution of these is such a product."""
    if not (type(x) is type(w) is np.ndarray and x.dtype == w.dtype == np.float32 and x.ndim == w.ndim == 4):
        return False
    ic = x.shape[3 if layout == "NHWC" else 1]
    pixels = layout == "NHWC" or (layout == "NCHW" and x.shape[2:] == (1, 1))
    return pixels and w.shape[1:] == (ic, 1, 1) and len(w) > DOT_COLUMNS and 0 < x.size <= LENT_PIXELS * ic


def _of_few_pixels(x, w, bias, residual, activation, layout, out):
    """A 1x1 convolution of an image of a pixel or two: a product by weights where they lie, with the same bits. None
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
        Zeros around the image. "same" gives ceil(input / stride) points; where their number is odd, one zero more
        stands behind.
    groups : int
    layout : {"NCHW", "NHWC"}
    algorithm : {"auto", "direct", "winograd", "winograd1d", "strassen"}
        "auto" depends on the shapes and the processor alone. The last three take fewer multiplications. "winograd"
        (3x3, stride 1, or 2 without dilation, not depthwise) works on tiles, and rounds more than "direct": by 2e-5 of
        the largest output at most, in large images of stride 1 by 5e-5. "winograd1d" (kernels higher than their stride,
        not depthwise) works on two or three output rows, and does not. "strassen" (1x1, stride 1, no padding, one
        group) multiplies 7 blocks in place of 8 from 64 pixels and 64 output channels on, and rounds a little more.
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
    .. [3] Strassen, "Gaussian elimination is not optimal", 1969

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
def conv_transpose2d(
    x: Input,
    w: Input,
    *,
    bias: Input | None = None,
    bn: BatchNorm | None = None,
    residual: Input | None = None,
    activation: Activation = None,
    stride: Ints = 1,
    padding: Padding = 0,
    output_padding: Ints = 0,
    dilation: Ints = 1,
    groups: int = 1,
    layout: Layout = "NCHW",
    out: Array | None = None,
) -> Array:
    """Transposed 2-D convolution, which spreads pixels: ``y = activation(batch_norm(conv_transpose(x, w) + bias) +
    residual)``.

    ``conv_transpose(x, w)[n, o, h, w]`` is the sum of ``w[c, o, i, j] x[n, c, p, q]`` over all c, i, j, p, q with ``h =
    p sh + i dh - top`` and ``w = q sw + j dw - left``. No sum is scattered: each phase of the output is an ordinary
    convolution, with its epilogue fused.

    Parameters
    ----------
    x : ndarray, float32, (n, ic, ih, iw), or (n, ih, iw, ic) with ``layout="NHWC"``
        Any strides. An NCHW-shaped array whose memory is NHWC gives a result like itself; a stride above 1 is fastest
        so.
    w : ndarray, float32, (ic, oc/groups, kh, kw)
        As PyTorch's ``nn.ConvTranspose2d.weight``.
    bias, bn, residual, activation, groups, layout, out
        See :func:`conv2d`.
    stride, dilation : int or (int, int)
    padding : int, (ph, pw), ((top, bottom), (left, right)), "same" or "valid"
        Rows and columns that the result lacks at its borders. "same" gives input * stride points.
    output_padding : int or (int, int)
        Rows below and columns to the right that the result has more; less than the stride or the dilation.

    Returns
    -------
    ndarray, float32, (n, oc, oh, ow) or (n, oh, ow, oc)
        ``oh = (ih - 1) sh - top - bottom + (kh - 1) dh + 1 + output_padding``, and ow alike. `out` where it is given.

    Raises
    ------
    TypeError, ValueError
        As :func:`conv2d`; also where nothing is left of the result.

    See Also
    --------
    ConvTranspose2d : The same with weights packed once.

    References
    ----------
    .. [1] Zeiler et al., "Deconvolutional networks", 2010
    .. [2] Dumoulin and Visin, "A guide to convolution arithmetic for deep learning", 2016, arXiv:1603.07285

    Examples
    --------
    >>> import numpy as np, fusedops as fo
    >>> fo.conv_transpose2d(np.array([[[[1, 2]]]], np.float32), np.ones((1, 1, 1, 2), np.float32), stride=2)
    array([[[[1., 1., 2., 2.]]]], dtype=float32)
    """
    layer = ConvTranspose2d(
        w,
        bias,
        bn,
        activation=activation,
        stride=stride,
        padding=padding,
        output_padding=output_padding,
        dilation=dilation,
        groups=groups,
        layout=layout,
    )
    return layer(x, residual, out)


@options_by_name
def conv_transpose1d(
    x: Input,
    w: Input,
    *,
    bias: Input | None = None,
    bn: BatchNorm | None = None,
    residual: Input | None = None,
    activation: Activation = None,
    stride: int = 1,
    padding: Padding1d = 0,
    output_padding: int = 0,
    dilation: int = 1,
    groups: int = 1,
    layout: Layout = "NCHW",
    out: Array | None = None,
) -> Array:
    """Transposed 1-D convolution, which spreads steps: ``y = activation(batch_norm(conv_transpose(x, w) + bias) +
    residual)``.

    ``conv_transpose(x, w)[n, o, l]`` is the sum of ``w[c, o, j] x[n, c, q]`` over all c, j, q with ``l = q s + j d -
    before``.

    Parameters
    ----------
    x : ndarray, float32, (n, ic, l), or (n, l, ic) with ``layout="NHWC"``
        Any strides, as in :func:`conv_transpose2d`.
    w : ndarray, float32, (ic, oc/groups, k)
        As PyTorch's ``nn.ConvTranspose1d.weight``.
    bias, bn, residual, activation, groups, out
        See :func:`conv2d`.
    stride, dilation : int
    padding : int, (before, after), "same" or "valid"
        Steps that the result lacks at its ends. "same" gives input * stride steps.
    output_padding : int
        Steps that the result has more at its end; less than the stride or the dilation.
    layout : {"NCHW", "NHWC"}
        Whether the channels are the second axis or the last.

    Returns
    -------
    ndarray, float32, (n, oc, ol) or (n, ol, oc)
        ``ol = (l - 1) s - before - after + (k - 1) d + 1 + output_padding``. `out` where it is given.

    Raises
    ------
    TypeError, ValueError
        As :func:`conv_transpose2d`.

    See Also
    --------
    ConvTranspose1d : The same with weights packed once.

    Examples
    --------
    >>> import numpy as np, fusedops as fo
    >>> fo.conv_transpose1d(np.array([[[1, 2]]], np.float32), np.ones((1, 1, 2), np.float32), stride=2)
    array([[[1., 1., 2., 2.]]], dtype=float32)
    """
    layer = ConvTranspose1d(
        w,
        bias,
        bn,
        activation=activation,
        stride=stride,
        padding=padding,
        output_padding=output_padding,
        dilation=dilation,
        groups=groups,
        layout=layout,
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


@options_by_name
def depthwise_conv2d(
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
    layout: Layout = "NCHW",
    out: Array | None = None,
) -> Array:
    """Depthwise 2-D convolution: each channel of `x` has its own kernel, or `m` of them.

    ``y[n, c m + q] = activation(batch_norm(conv(x[n, c], w[c m + q]) + bias) + residual)``

    Parameters
    ----------
    x : ndarray, float32, (n, c, ih, iw), or (n, ih, iw, c) with ``layout="NHWC"``
    w : ndarray, float32, (c*m, 1, kh, kw) or (c*m, kh, kw)
    bias, bn, residual, activation, stride, padding, dilation, layout, out
        See :func:`conv2d`.

    Returns
    -------
    ndarray, float32, (n, c*m, oh, ow) or (n, oh, ow, c*m)

    Raises
    ------
    TypeError, ValueError
        As :func:`conv2d`; also where the first axis of `w` is not a multiple of the channels of `x`.

    References
    ----------
    .. [1] Howard et al., "MobileNets", 2017, arXiv:1704.04861

    Examples
    --------
    >>> import numpy as np, fusedops as fo
    >>> fo.depthwise_conv2d(np.ones((1, 8, 5, 5), np.float32), np.ones((8, 3, 3), np.float32), padding=1).shape
    (1, 8, 5, 5)
    """
    x, w, channels = depthwise_operands(x, w, layout)
    return conv2d(
        x,
        w,
        bias=bias,
        bn=bn,
        residual=residual,
        activation=activation,
        stride=stride,
        padding=padding,
        dilation=dilation,
        groups=channels,
        layout=layout,
        out=out,
    )


def depthwise_operands(x: Input, w: Input, layout: Layout) -> tuple[Array, Array, int]:
    """x and w (c*m, 1, kh, kw) checked, and the channels of x, which are the groups."""
    x, w = _core.as_input(x, "x", 4), _core.as_input(w, "w", (3, 4))
    channels = x.shape[3 if one_of(layout, "layout", LAYOUTS) == "NHWC" else 1]
    if channels == 0:
        raise ValueError(f"x has shape {x.shape}, but a depthwise convolution needs at least one channel")
    if w.ndim == 4 and w.shape[1] != 1 or w.shape[0] % channels:
        kh, kw, c, m = w.shape if w.ndim == 4 else (0, 0, 0, 0)
        order = f"; one of (kh, kw, c, m) is w.transpose(2, 3, 0, 1).reshape({c * m}, 1, {kh}, {kw})"
        raise ValueError(
            f"w has shape {w.shape}, but x {x.shape} has {channels} channels: w must be ({channels}*m, 1, kh, kw) or "
            f"({channels}*m, kh, kw){order * (c == channels)}"
        )
    if w.ndim == 3:
        w = w[:, np.newaxis]
    return x, w, channels


@options_by_name
def depthwise_conv_bn_relu(
    x: Input,
    w: Input,
    bn: BatchNorm | None = None,
    *,
    bias: Input | None = None,
    residual: Input | None = None,
    stride: Ints = 1,
    padding: Padding = 0,
    dilation: Ints = 1,
    layout: Layout = "NCHW",
    out: Array | None = None,
) -> Array:
    """Depthwise convolution, batch norm and ReLU in one kernel: ``y = max(batch_norm(conv(x, w) + bias) + residual,
    0)``.

    :func:`depthwise_conv2d` with ``activation="relu"``.

    Parameters
    ----------
    x : ndarray, float32, (n, c, ih, iw), or (n, ih, iw, c) with ``layout="NHWC"``
    w : ndarray, float32, (c*m, 1, kh, kw) or (c*m, kh, kw)
    bn : BatchNorm, optional
    bias, residual, stride, padding, dilation, layout, out
        See :func:`conv2d`.

    Returns
    -------
    ndarray, float32, (n, c*m, oh, ow) or (n, oh, ow, c*m)

    Raises
    ------
    TypeError, ValueError
        As :func:`depthwise_conv2d`.

    Examples
    --------
    >>> import numpy as np, fusedops as fo
    >>> fo.depthwise_conv_bn_relu(np.ones((1, 8, 5, 5), np.float32), np.ones((8, 3, 3), np.float32), stride=2).shape
    (1, 8, 2, 2)
    """
    return depthwise_conv2d(
        x,
        w,
        bias=bias,
        bn=bn,
        residual=residual,
        activation="relu",
        stride=stride,
        padding=padding,
        dilation=dilation,
        layout=layout,
        out=out,
    )


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
    try:
        if not a.ndim or not b.ndim or a.shape[-1] != b.shape[-2 if b.ndim > 1 else 0]:
            raise ValueError
        batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    except ValueError:
        raise ValueError(
            f"a has shape {a.shape} and b has shape {b.shape}: they must be (..., m, k) and (..., k, n), the axes in "
            f"front alike or 1{_turned(a, b, '.swapaxes(-2, -1)')}"
        ) from None
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


def gemm_operands(a: Input, b: Input) -> tuple[Array, Array]:
    """a and b checked."""
    a, b = _core.as_input(a, "a"), _core.as_input(b, "b", 2)
    if a.ndim < 2 or a.shape[-1] != b.shape[0]:
        raise ValueError(
            f"a has shape {a.shape} and b has shape {b.shape}: they must be (..., m, k) and (k, n){_turned(a, b, '.T')}"
        )
    return a, b


def _turned(a, b, transpose):
    """What an error adds where b would fit with its last axes in the other order."""
    return f": pass b{transpose}" if a.ndim > 1 and b.ndim > 1 and a.shape[-1] == b.shape[-1] else ""
