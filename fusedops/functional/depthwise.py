"""One-shot depthwise convolutions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .. import _core
from .._internal.arguments import one_of
from .._internal.keyword_options import options_by_name
from ..layers import LAYOUTS
from .conv import conv2d

if TYPE_CHECKING:
    from .._types import Activation, Array, Input, Ints, Layout, Padding
    from ..batchnorm import BatchNorm


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
