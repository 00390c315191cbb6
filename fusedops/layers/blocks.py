"""Blocks of convolutions that run as one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import _core
from .conv import Conv2d
from .layer import Layer

if TYPE_CHECKING:
    from typing import Any


def _convolutions(**parts):
    """Refuses parts of a block that are none; there may be no expansion."""
    for name, part in parts.items():
        if not isinstance(part, Conv2d) and (name != "expand" or part is not None):
            raise TypeError(f"{name} must be a Conv2d, not {part!r}")


class DepthwiseSeparable(Layer, _core.BlockPlan):
    """A depthwise convolution and the 1x1 convolution after it, ``y = pointwise(depthwise(x))``, as one kernel.

    A tile of rows goes through both while it is in the cache; the tensor between them is never stored as a whole. Where
    that tensor would stay in the cache anyway, the two layers run one after the other, which is then faster.

    Parameters
    ----------
    depthwise : Conv2d
        One filter for each channel (``groups`` = input channels = output channels), any kernel, stride, padding and
        activation.
    pointwise : Conv2d
        1x1, stride 1, no padding, one group, any activation.

    Raises
    ------
    ValueError
        A part has another form, or the parts do not fit: channels, layout.

    Notes
    -----
    ``layer(x, residual=None, out=None)`` is that of :class:`Conv2d`; the residual is added in the pointwise part.

    References
    ----------
    .. [1] Howard et al., "MobileNets", 2017, arXiv:1704.04861

    Examples
    --------
    >>> import numpy as np, fusedops as fo
    >>> depthwise = fo.Conv2d(np.ones((2, 1, 3, 3), np.float32), padding=1, groups=2, activation="relu")
    >>> pointwise = fo.Conv2d(np.ones((4, 2, 1, 1), np.float32))
    >>> fo.DepthwiseSeparable(depthwise, pointwise)(np.ones((1, 2, 5, 5), np.float32)).shape
    (1, 4, 5, 5)
    """

    def __init__(self, depthwise: Conv2d, pointwise: Conv2d) -> None:
        _convolutions(depthwise=depthwise, pointwise=pointwise)
        self._arguments: tuple[tuple[Conv2d, ...], dict[str, Any]] = (depthwise, pointwise), {}
        self._join(None, depthwise, pointwise)

    def __repr__(self):
        return f"DepthwiseSeparable({', '.join(map(repr, self._arguments[0]))})"


class InvertedResidual(Layer, _core.ResidualPlan):
    """MobileNetV2's block, ``y = project(depthwise(expand(x))) + x``, as one kernel.

    As in :class:`DepthwiseSeparable`, tiles go through all parts while they are in the cache. The expanded image, which
    is several times as large as `x`, is never in memory.

    Parameters
    ----------
    expand : Conv2d or None
        1x1; None where the block has no expansion.
    depthwise : Conv2d
        One filter for each channel.
    project : Conv2d
        1x1. Its activation, usually None, comes after the addition.
    residual : bool
        Add `x` where it has the shape of the result. False: never.

    Raises
    ------
    ValueError
        A part has another form, or the parts do not fit: channels, layout.

    Notes
    -----
    ``layer(x, out=None)`` takes x (n, c, ih, iw) and returns y (n, oc, oh, ow), or both with their channels last, as
    the parts have it.

    References
    ----------
    .. [1] Sandler et al., "MobileNetV2: inverted residuals and linear bottlenecks", 2018, arXiv:1801.04381

    Examples
    --------
    >>> import numpy as np, fusedops as fo
    >>> expand = fo.Conv2d(np.ones((6, 2, 1, 1), np.float32), activation="relu6")
    >>> depthwise = fo.Conv2d(np.ones((6, 1, 3, 3), np.float32), padding=1, groups=6, activation="relu6")
    >>> project = fo.Conv2d(np.zeros((2, 6, 1, 1), np.float32))
    >>> x = np.ones((1, 2, 5, 5), np.float32)
    >>> np.array_equal(fo.InvertedResidual(expand, depthwise, project)(x), x)
    True
    """

    def __init__(self, expand: Conv2d | None, depthwise: Conv2d, project: Conv2d, *, residual: bool = True) -> None:
        _convolutions(expand=expand, depthwise=depthwise, project=project)
        self._arguments = (expand, depthwise, project), {"residual": bool(residual)}
        self._join(expand, depthwise, project)
        self._add(bool(residual))

    def __repr__(self):
        parts, options = self._arguments
        return f"InvertedResidual({', '.join(map(repr, parts))}, residual={options['residual']})"
