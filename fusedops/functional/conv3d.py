"""One-shot 3-D convolutions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._internal.keyword_options import options_by_name
from ..layers.conv3d import Conv3d

if TYPE_CHECKING:
    from .._types import Activation, Array, Input, Layout, Padding3d, Triple
    from ..batchnorm import BatchNorm


@options_by_name
def conv3d(
    x: Input,
    w: Input,
    *,
    bias: Input | None = None,
    bn: BatchNorm | None = None,
    residual: Input | None = None,
    activation: Activation = None,
    stride: Triple = 1,
    padding: Padding3d = 0,
    dilation: Triple = 1,
    groups: int = 1,
    layout: Layout = "NCHW",
    out: Array | None = None,
) -> Array:
    """Convolution over three axes with everything that follows it fused in: ``y = activation(batch_norm(conv(x, w) +
    bias) + residual)``.

    ``conv(x, w)[n, o, d, h, w]`` is the sum over c, k, i, j of ``w[o, c, k, i, j] x[n, c, d sd + k dd - front, h sh + i
    dh - top, w sw + j dw - left]``.

    Parameters
    ----------
    x : ndarray, float32, (n, ic, id, ih, iw), or (n, id, ih, iw, ic) with ``layout="NHWC"``
        Any strides. An x whose memory has the channels last gives a result like itself.
    w : ndarray, float32, (oc, ic/groups, kd, kh, kw)
    bias, bn, residual, activation, groups, out
        See :func:`conv2d`.
    stride, dilation : int or (int, int, int)
    padding : int, (pd, ph, pw), ((front, back), (top, bottom), (left, right)), "same" or "valid"
        Zeros around the image, as in :func:`conv2d`.
    layout : {"NCHW", "NHWC"}
        Whether the channels are the second axis or the last.

    Returns
    -------
    ndarray, float32, (n, oc, od, oh, ow) or (n, od, oh, ow, oc)
        `out` where it is given.

    Raises
    ------
    TypeError, ValueError
        As :func:`conv2d`.

    Notes
    -----
    The slices that a kernel covers are copied side by side as channels, kd times as large as x, and convolved in two
    axes; where each group has one channel, each slice of the kernel is a convolution that adds to the last.

    References
    ----------
    .. [1] Tran et al., "Learning spatiotemporal features with 3D convolutional networks", 2015, arXiv:1412.0767

    Examples
    --------
    >>> import numpy as np, fusedops as fo
    >>> fo.conv3d(np.ones((1, 2, 4, 5, 6), np.float32), np.ones((3, 2, 3, 3, 3), np.float32)).shape
    (1, 3, 2, 3, 4)
    """
    layer = Conv3d(
        w,
        bias,
        bn,
        activation=activation,
        stride=stride,
        padding=padding,
        dilation=dilation,
        groups=groups,
        layout=layout,
    )
    return layer(x, residual, out)
