"""One-shot functions: an int8 layer, made and dropped."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._internal.keyword_options import options_by_name
from ..layers.quantized import QConv2d, QLinear

if TYPE_CHECKING:
    from typing import Any

    from numpy.typing import NDArray

    from .._types import Activation, Input, Ints, Layout, Padding
    from ..quantization import Quantization


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
        Any strides; fastest where channels are neighbors in memory.
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
        raise TypeError("w_q must be a Quantization(scale, zero_point), not None: QConv2d quantizes float32 weights")
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
        float32 rows are quantized each by its own range, as ONNX's DynamicQuantizeLinear does with a tensor.
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
        raise TypeError("w_q must be a Quantization(scale, zero_point), not None: QLinear quantizes float32 weights")
    layer = QLinear(w, bias, x_q=x_q, w_q=w_q, y_q=y_q, residual_q=residual_q, activation=activation)
    return layer(x, residual, out)
