"""Images of another size."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from .. import _core
from .._internal.arguments import LAYOUTS, one_of, pair_of

if TYPE_CHECKING:
    from .._types import Array, Input, Ints, Layout, Resizing


def resize(
    x: Input,
    size: Ints | None = None,
    scale: float | tuple[float, float] | None = None,
    mode: Resizing = "nearest",
    *,
    align_corners: bool = False,
    layout: Layout = "NCHW",
    out: Array | None = None,
) -> Array:
    """Images of another size: ``y[n, c, h, w] = x`` at row ``(h + 1/2) ih / oh - 1/2`` and the like column, or the
    nearest point above and left of it.

    As PyTorch's ``interpolate``.

    Parameters
    ----------
    x : ndarray, float32, (n, c, ih, iw), or (n, ih, iw, c) with ``layout="NHWC"``
        Any strides. An NCHW-shaped array whose memory is NHWC gives a result like itself.
    size : int or (int, int), optional
        Rows and columns of the result.
    scale : float or (float, float), optional
        In place of `size`: ``size = floor(scale * input)``, and points are 1 / scale apart. As in PyTorch, an axis
        whose size stays keeps its pixels, and so does, with "nearest", one whose size doubles, two of each. (PyTorch's
        "nearest" forgets this where planes have results of more than 128 rows and columns together.)
    mode : {"nearest", "linear"}
        "nearest": pixel ``floor(h ih / oh)``. "linear": between the two next rows and columns; the image's border goes
        on outside.
    align_corners : bool
        With "linear": the centers of the corner pixels meet, so points are (ih - 1) / (oh - 1) apart.
    layout : {"NCHW", "NHWC"}
    out : ndarray, float32, of the result's shape, optional
        Any strides; it may overlap `x`.

    Returns
    -------
    ndarray, float32, (n, c, oh, ow) or (n, oh, ow, c)
        `out` where it is given.

    Raises
    ------
    TypeError
        `x` is not float32, or an option has the wrong type.
    ValueError
        No images, an unknown name, both or neither of `size` and `scale`, no pixels in `x` or in the result.

    Examples
    --------
    >>> import numpy as np, fusedops as fo
    >>> x = np.array([[[[0, 4]]]], np.float32)
    >>> fo.resize(x, (1, 4), mode="linear")
    array([[[[0., 1., 3., 4.]]]], dtype=float32)
    >>> fo.resize(x, scale=2)[0, 0]
    array([[0., 0., 4., 4.],
           [0., 0., 4., 4.]], dtype=float32)
    """
    x, row = _core.as_input(x, "x", 4), 1 if one_of(layout, "layout", LAYOUTS) == "NHWC" else 2
    linear = one_of(mode, "mode", ("nearest", "linear")) == "linear"
    image = x.shape[row : row + 2]
    if (size is None) == (scale is None):
        raise ValueError(f"either size or scale must be given, not size={size!r} and scale={scale!r}")
    if align_corners and not linear:
        raise ValueError("align_corners is for mode='linear' alone")
    scales = (None, None) if scale is None else _scales(scale)
    sizes = pair_of(size, "size", 1) if scale is None else tuple(int(i * s) for i, s in zip(image, scales))
    if min(image) < 1 or min(sizes) < 1:
        raise ValueError(f"x has shape {x.shape}, of which {sizes[0]} x {sizes[1]} pixels cannot be made")
    rows, columns = (_points(i, o, s, linear, bool(align_corners)) for i, o, s in zip(image, sizes, scales))
    return _core.resize(x, rows, columns, layout == "NHWC", out)


def _scales(scale):
    try:
        pair = (float(scale),) * 2 if np.ndim(scale) == 0 else tuple(map(float, scale))
    except (TypeError, ValueError):
        raise TypeError(f"scale must be a number or a pair of numbers, not {scale!r}") from None
    if len(pair) != 2 or not all(0 < s < 2**31 for s in pair):
        raise ValueError(f"scale must be a positive number or a pair of them, not {scale!r}")
    return pair


@lru_cache(maxsize=64)
def _points(size, out, scale, linear, align_corners):
    """Where the points of an axis of the result lie: (i0, i1, t) for (1 - t) x[i0] + t x[i1], or (i0, None, None)."""
    o = np.arange(out)
    if out == size or not linear and out == 2 * size:
        scale = None  # as PyTorch, which asks for the size first
    if not linear:  # the step is a float, as in PyTorch, and so is its product
        step = np.float32(size / out if scale is None else 1 / scale)
        return np.minimum(np.floor(o.astype(np.float32) * step).astype(np.int64), size - 1), None, None
    if align_corners:
        at = o * ((size - 1) / max(out - 1, 1))
    else:
        at = np.maximum((o + 0.5) * (size / out if scale is None else 1 / scale) - 0.5, 0)
    first = np.minimum(np.floor(at).astype(np.int64), size - 1)
    return first, np.minimum(first + 1, size - 1), (at - first).astype(np.float32)
