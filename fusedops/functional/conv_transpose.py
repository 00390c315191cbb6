"""One-shot transposed convolutions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._internal.keyword_options import options_by_name
from ..layers import ConvTranspose1d, ConvTranspose2d

if TYPE_CHECKING:
    from .._types import Activation, Array, Input, Ints, Layout, Padding, Padding1d
    from ..batchnorm import BatchNorm


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
