"""Functions of images around the convolutions: pools and resizing."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from .. import _core
from .._internal.arguments import one_of, padding_of, pair_of
from ..layers import LAYOUTS, integer

if TYPE_CHECKING:
    from .._types import Array, Input, Ints, Layout, Padding, Padding1d


def max_pool2d(
    x: Input,
    kernel_size: Ints,
    *,
    stride: Ints | None = None,
    padding: Padding = 0,
    dilation: Ints = 1,
    ceil_mode: bool = False,
    layout: Layout = "NCHW",
    out: Array | None = None,
) -> Array:
    """The largest value of each window: ``y[n, c, h, w] = max over i, j of x[n, c, h sh + i dh - top, w sw + j dw -
    left]``.

    Parameters
    ----------
    x : ndarray, float32, (n, c, ih, iw), or (n, ih, iw, c) with ``layout="NHWC"``
        Any strides. An NCHW-shaped array whose memory is NHWC gives a result like itself.
    kernel_size : int or (int, int)
        Rows and columns of a window.
    stride : int or (int, int), optional
        The kernel's size where it is not given.
    padding : int, (ph, pw), ((top, bottom), (left, right)), "same" or "valid"
        What is around the image is smaller than any value. At most half of the window, so that each touches the
        image.
    dilation : int or (int, int)
    ceil_mode : bool
        One window more where the last would leave the padded image, if it begins inside of it.
    layout : {"NCHW", "NHWC"}
    out : ndarray, float32, of the result's shape, optional
        Any strides; it may overlap `x`.

    Returns
    -------
    ndarray, float32, (n, c, oh, ow) or (n, oh, ow, c)
        `out` where it is given. NaN goes through.

    Raises
    ------
    TypeError
        `x` is not float32, or an option has the wrong type.
    ValueError
        No images, an unknown name, a window larger than the padded image, more padding than half of a window.

    Examples
    --------
    >>> import numpy as np, fusedops as fo
    >>> fo.max_pool2d(np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4), 2)[0, 0]
    array([[ 5.,  7.],
           [13., 15.]], dtype=float32)
    """
    w = _windows(x, kernel_size, stride, padding, dilation, ceil_mode, layout)
    nhwc = layout == "NHWC"
    return _core.pool(w.x, False, w.kernel, w.stride, w.before, w.dilation, w.size, (0, 0, 0, 0), nhwc, out)


def avg_pool2d(
    x: Input,
    kernel_size: Ints,
    *,
    stride: Ints | None = None,
    padding: Padding = 0,
    dilation: Ints = 1,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    layout: Layout = "NCHW",
    out: Array | None = None,
) -> Array:
    """The mean of each window: ``y[n, c, h, w] = mean over i, j of x[n, c, h sh + i dh - top, w sw + j dw - left]``.

    Parameters
    ----------
    x, kernel_size, stride, dilation, ceil_mode, layout, out
        See :func:`max_pool2d`.
    padding : int, (ph, pw), ((top, bottom), (left, right)), "same" or "valid"
        Zeros around the image, at most half of the window.
    count_include_pad : bool
        The zeros count: the sum is divided by the points of the window in the padded image, else by those in the image.

    Returns
    -------
    ndarray, float32, (n, c, oh, ow) or (n, oh, ow, c)
        `out` where it is given.

    Raises
    ------
    TypeError, ValueError
        As :func:`max_pool2d`.

    Examples
    --------
    >>> import numpy as np, fusedops as fo
    >>> fo.avg_pool2d(np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4), 2)[0, 0]
    array([[ 2.5,  4.5],
           [10.5, 12.5]], dtype=float32)
    """
    w = _windows(x, kernel_size, stride, padding, dilation, ceil_mode, layout)
    before, after = (w.before, w.after) if count_include_pad else ((0, 0), (0, 0))
    counted = -before[0], w.image[0] + after[0], -before[1], w.image[1] + after[1]
    nhwc = layout == "NHWC"
    return _core.pool(w.x, True, w.kernel, w.stride, w.before, w.dilation, w.size, counted, nhwc, out)


def global_avg_pool2d(x: Input, *, layout: Layout = "NCHW", out: Array | None = None) -> Array:
    """The mean of each channel of each image: ``y[n, c, 0, 0] = mean over h, w of x[n, c, h, w]``.

    Parameters
    ----------
    x, layout, out
        See :func:`max_pool2d`.

    Returns
    -------
    ndarray, float32, (n, c, 1, 1) or (n, 1, 1, c)
        `out` where it is given.

    Raises
    ------
    TypeError, ValueError
        As :func:`max_pool2d`; also for images without pixels.

    References
    ----------
    .. [1] Lin, Chen and Yan, "Network in network", 2013, arXiv:1312.4400

    Examples
    --------
    >>> import numpy as np, fusedops as fo
    >>> fo.global_avg_pool2d(np.arange(8, dtype=np.float32).reshape(1, 2, 2, 2))[0, :, 0, 0]
    array([1.5, 5.5], dtype=float32)
    """
    return adaptive_avg_pool2d(x, 1, layout=layout, out=out)


def adaptive_avg_pool2d(x: Input, size: Ints, *, layout: Layout = "NCHW", out: Array | None = None) -> Array:
    """Means over as many windows as the result has pixels: row h of it is the mean of the rows ``floor(h ih / oh)`` up
    to ``ceil((h + 1) ih / oh) - 1``, and columns alike.

    As PyTorch's ``adaptive_avg_pool2d``.

    Parameters
    ----------
    x, layout, out
        See :func:`max_pool2d`.
    size : int or (int, int)
        Rows and columns of the result, (oh, ow).

    Returns
    -------
    ndarray, float32, (n, c, oh, ow) or (n, oh, ow, c)
        `out` where it is given.

    Raises
    ------
    TypeError, ValueError
        As :func:`max_pool2d`; also for images without pixels.

    Examples
    --------
    >>> import numpy as np, fusedops as fo
    >>> fo.adaptive_avg_pool2d(np.float32([[[[1, 2, 3, 4, 5]]]]), (1, 2))
    array([[[[2., 4.]]]], dtype=float32)
    """
    x, nhwc = _core.as_input(x, "x", 4), one_of(layout, "layout", LAYOUTS) == "NHWC"
    row, size = 1 if nhwc else 2, pair_of(size, "size", 1)
    image = x.shape[row : row + 2]
    if min(image) < 1:
        raise ValueError(f"x has shape {x.shape}, but an image needs at least one pixel")
    shape = *x.shape[:row], *size, *x.shape[row + 2 :]
    y = np.empty_like(x, shape=shape) if out is None else _core.checked_out(out, shape)
    target = np.empty_like(y) if np.may_share_memory(x, y) else y
    count = math.gcd(image[0], size[0]), math.gcd(image[1], size[1])  # every so many windows are alike, evenly spaced
    stride = image[0] // count[0], image[1] // count[1]
    phases = [o // n for o, n in zip(size, count)]
    for phase in np.ndindex(*phases):
        first = [p * i // o for p, i, o in zip(phase, image, size)]
        rows, columns = (-(-(p + 1) * i // o) - f for p, i, o, f in zip(phase, image, size, first))
        windows = x[(slice(None),) * row + tuple(slice(f, None) for f in first)]
        means = target[(slice(None),) * row + tuple(slice(p, None, step) for p, step in zip(phase, phases))]
        counted = 0, windows.shape[row], 0, windows.shape[row + 1]
        _core.pool(windows, True, (rows, columns), stride, (0, 0), (1, 1), count, counted, nhwc, means)
    if target is not y:
        y[...] = target
    return y


def max_pool1d(
    x: Input,
    kernel_size: int,
    *,
    stride: int | None = None,
    padding: Padding1d = 0,
    dilation: int = 1,
    ceil_mode: bool = False,
    layout: Layout = "NCHW",
    out: Array | None = None,
) -> Array:
    """The largest value of each window: ``y[n, c, l] = max over j of x[n, c, l s + j d - before]``.

    Parameters
    ----------
    x : ndarray, float32, (n, c, l), or (n, l, c) with ``layout="NHWC"``
        Any strides.
    kernel_size, dilation : int
    stride : int, optional
        The kernel's size where it is not given.
    padding : int, (before, after), "same" or "valid"
        What is around the sequence is smaller than any value. At most half of the window.
    ceil_mode, layout, out
        See :func:`max_pool2d`.

    Returns
    -------
    ndarray, float32, (n, c, ol) or (n, ol, c)
        `out` where it is given. NaN goes through.

    Raises
    ------
    TypeError, ValueError
        As :func:`max_pool2d`.

    Examples
    --------
    >>> import numpy as np, fusedops as fo
    >>> fo.max_pool1d(np.float32([[[1, 5, 2, 3]]]), 2)
    array([[[5., 3.]]], dtype=float32)
    """
    return _of_rows(max_pool2d, x, kernel_size, stride, padding, dilation, ceil_mode, layout, out)


def avg_pool1d(
    x: Input,
    kernel_size: int,
    *,
    stride: int | None = None,
    padding: Padding1d = 0,
    dilation: int = 1,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    layout: Layout = "NCHW",
    out: Array | None = None,
) -> Array:
    """The mean of each window: ``y[n, c, l] = mean over j of x[n, c, l s + j d - before]``.

    Parameters
    ----------
    x, kernel_size, stride, dilation, ceil_mode, layout, out
        See :func:`max_pool1d`.
    padding : int, (before, after), "same" or "valid"
        Zeros around the sequence, at most half of the window.
    count_include_pad : bool
        See :func:`avg_pool2d`.

    Returns
    -------
    ndarray, float32, (n, c, ol) or (n, ol, c)
        `out` where it is given.

    Raises
    ------
    TypeError, ValueError
        As :func:`max_pool2d`.

    Examples
    --------
    >>> import numpy as np, fusedops as fo
    >>> fo.avg_pool1d(np.float32([[[1, 5, 2, 4]]]), 2, stride=1)
    array([[[3. , 3.5, 3. ]]], dtype=float32)
    """
    windows = kernel_size, stride, padding, dilation, ceil_mode
    return _of_rows(avg_pool2d, x, *windows, layout, out, count_include_pad=count_include_pad)


def _of_rows(pool, x, kernel_size, stride, padding, dilation, ceil_mode, layout, out, **options):
    """A pool of sequences as one of images of one row."""
    x, row = _core.as_input(x, "x", 3), 1 if one_of(layout, "layout", LAYOUTS) == "NHWC" else 2
    windows = dict(
        kernel_size=(1, integer(kernel_size, "kernel_size")),
        stride=None if stride is None else (1, integer(stride, "stride")),
        padding=padding,
        dilation=(1, integer(dilation, "dilation")),
        ceil_mode=ceil_mode,
        layout=layout,
    )
    if not isinstance(padding, str):
        windows["padding"] = (0, 0), pair_of(padding, "padding", 0, "an int, a pair (before, after), 'same' or 'valid'")
    image = np.expand_dims(x, row)
    if out is None:
        return pool(image, **windows, **options).squeeze(row)
    length = _windows(image, **windows)[5][1]
    _core.checked_out(out, (*x.shape[:row], length, *x.shape[row + 1 :]))
    pool(image, **windows, **options, out=np.expand_dims(out, row))
    return out


class _Windows(NamedTuple):
    """x, checked, and pairs of (rows, columns)."""

    x: Array
    kernel: tuple[int, int]
    stride: tuple[int, int]
    before: tuple[int, int]  # zeros
    dilation: tuple[int, int]
    size: tuple[int, int]  # of the result
    after: tuple[int, int]
    image: tuple[int, int]


def _windows(x, kernel_size, stride, padding, dilation, ceil_mode, layout):
    x, row = _core.as_input(x, "x", 4), 1 if one_of(layout, "layout", LAYOUTS) == "NHWC" else 2
    ih, iw = image = x.shape[row : row + 2]
    kernel = pair_of(kernel_size, "kernel_size", 1)
    strides, dilations = kernel if stride is None else pair_of(stride, "stride", 1), pair_of(dilation, "dilation", 1)
    zeros = padding_of(padding)
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilations)]
    if zeros == "same":
        total = [max((-(-i // s) - 1) * s + span - i, 0) for i, s, span in zip(image, strides, spans)]
        zeros = [(t // 2, t - t // 2) for t in total]
    elif any(2 * max(side) > span for side, span in zip(zeros, spans)):
        raise ValueError(f"padding={padding!r} is more than half of a window of {spans[0]} x {spans[1]}")
    padded = [i + sum(side) for i, side in zip(image, zeros)]
    size = [
        _outputs(p - span, s, i + side[0], ceil_mode)
        for p, span, s, i, side in zip(padded, spans, strides, image, zeros)
    ]
    if min(image) < 1 or min(size) < 1:
        raise ValueError(
            f"x has shape {x.shape}: {padded[0]} x {padded[1]} pixels when padded, but a window of "
            f"kernel_size={kernel_size!r} "
            f"spans {spans[0]} x {spans[1]}"
        )
    (top, bottom), (left, right) = zeros
    rows, columns = size
    return _Windows(x, kernel, strides, (top, left), dilations, (rows, columns), (bottom, right), (ih, iw))


def _outputs(room, stride, end, ceil_mode):
    """How many windows fit, `room` after the first; with ceil_mode also one that begins before `end`."""
    full = room // stride + 1
    return full + (ceil_mode and room % stride > 0 and full * stride < end)
