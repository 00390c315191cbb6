"""3-D convolutions by the kernels for images: for functions and for networks, which both cut them here."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .. import _core
from .._internal.arguments import LARGEST, LAYOUTS, integer, one_of
from ..batchnorm import fold_batch_norm
from .conv import Conv2d

if TYPE_CHECKING:
    from typing import Any

    from .._types import Activation, Array, Input, Layout, Padding3d, Triple
    from ..batchnorm import BatchNorm


_FORMS = "an int or three ints"
_PADDINGS = "an int, three ints, three pairs of ints, 'same' or 'valid'"


def _triple(value, name, least, forms=_FORMS):
    """An int or three of them as three."""
    if not isinstance(value, (tuple, list)):
        return (integer(value, name, least),) * 3
    if len(value) != 3:
        raise ValueError(f"{name} must be {forms}, not {value!r}")
    return tuple(integer(v, f"each of {name}", least) for v in value)


def _padding(padding):
    """Pairs for depth, rows and columns, or "same"."""
    if isinstance(padding, str):
        if padding not in ("same", "valid"):
            raise ValueError(f"padding must be {_PADDINGS}, not {padding!r}")
        return "same" if padding == "same" else ((0, 0),) * 3
    if isinstance(padding, (tuple, list)) and any(isinstance(p, (tuple, list)) for p in padding):
        if len(padding) != 3 or not all(isinstance(p, (tuple, list)) and len(p) == 2 for p in padding):
            raise ValueError(f"padding must be {_PADDINGS}, not {padding!r}")
        return tuple(tuple(integer(p, "each of padding", 0) for p in pair) for pair in padding)
    return tuple((p, p) for p in _triple(padding, "padding", 0, _PADDINGS))


def by_taps(w: Array, groups: int) -> bool:
    """Whether a convolution with weights (oc, ic/groups, kd, kh, kw) is a sum of one for each tap along the depth: of
    one channel a group. Others take the slices of all taps side by side as channels."""
    return w.shape[1] == 1 < groups


def kernels(w: Array, bias: Any, activation: Any, groups: int) -> list[tuple[Array, Any, Any]]:
    """(weights, bias, activation) of the 2-D convolutions of which it is the sum: the last one ends it."""
    oc, few, taps, *kernel = w.shape
    if not by_taps(w, groups):
        return [(w.swapaxes(1, 2).reshape(oc, taps * few, *kernel), bias, activation)]
    plain = [(np.ascontiguousarray(w[:, :, tap]), None, None) for tap in range(taps)]
    return [*plain[:-1], (plain[-1][0], bias, activation)]


def depth_range(size: Any, step: int, out: Any, offset: int) -> tuple[Any, Any]:
    """(lo, hi): for which i below `out` the slice i * step + offset is one of `size`."""
    return max(0, -(offset // step)), min(out, (size - 1 - offset) // step + 1)


def merges(x: Any) -> bool:
    """Whether the batch and the depth of a volume (n, c, d, h, w) are one axis."""
    return x.shape[0] == 1 or x.strides[0] == x.shape[2] * x.strides[2]


class Conv3d:
    """A 3-D convolution, its weights packed: slices of the depth are images of a batch."""

    def __init__(
        self,
        w: Input,
        bias: Input | None,
        bn: BatchNorm | None,
        *,
        activation: Activation,
        stride: Triple,
        padding: Padding3d,
        dilation: Triple,
        groups: int,
        layout: Layout,
    ) -> None:
        w, self._groups = _core.as_input(w, "w", 5), integer(groups, "groups")
        self._shape, self._last = w.shape, one_of(layout, "layout", LAYOUTS) == "NHWC"
        (self._step, *strides), (self._dilation, *dilations) = (
            _triple(stride, "stride", 1),
            _triple(dilation, "dilation", 1),
        )
        self._zeros = _padding(padding)
        if not 1 <= min(w.shape[2:]) <= max(w.shape[2:]) <= LARGEST:
            raise ValueError(f"w has shape {w.shape}, but a kernel has at least one slice, one row and one column")
        options = dict(
            stride=tuple(strides),
            padding="same" if self._zeros == "same" else self._zeros[1:],
            dilation=tuple(dilations),
            groups=self._groups,
        )
        self._by_taps = by_taps(w, self._groups) and w.shape[2] > 1
        if self._by_taps:
            Conv2d(w[:, :, 0], bias, bn, activation=activation, **options)  # which has the words for what does not fit
            if bn is not None:
                (w, bias), bn = fold_batch_norm(w, bias, bn), None
        of_slices = kernels(w, bias, activation, self._groups)
        self._layers = [Conv2d(w, b, bn, activation=act, **options) for w, b, act in of_slices]

    def __call__(self, x: Input, residual: Input | None = None, out: Array | None = None) -> Array:
        x = self._channels_second(self._fitting(_core.as_input(x, "x")))
        front, depth = self._slices(x)
        shape = (x.shape[0], self._shape[0], depth, *self._layers[0].output_shape(self._image(x))[2:])
        shown = (shape[0], *shape[2:], shape[1]) if self._last else shape
        if residual is not None:
            residual = _core.as_input(residual, "residual")
            if residual.shape != shown:
                raise ValueError(f"residual has shape {residual.shape}, but the result has shape {shown}")
            residual = self._channels_second(residual)
        pixels = self._last or x.strides[1] < x.strides[4] and x.shape[1] > 1
        target = None if out is None else self._channels_second(_core.checked_out(out, shown))
        if target is None or any(np.may_share_memory(target, a) for a in (x, residual) if a is not None):
            y = _empty(shape, pixels)
        else:
            y = target
        images = self._padded(x, front, depth) if self._by_taps else [self._gathered(x, front, depth, pixels)]
        self._convolve(images, residual, y)
        if out is None:
            return np.moveaxis(y, 1, -1) if self._last else y
        if target is not None and y is not target:
            target[...] = y
        return out

    def _fitting(self, x):
        ic = self._shape[1] * self._groups
        if x.ndim != 5 or x.shape[4 if self._last else 1] != ic:
            needed = f"(n, d, h, w, {ic})" if self._last else f"(n, {ic}, d, h, w)"
            raise ValueError(f"x has shape {x.shape}, but w {self._shape} with groups={self._groups} needs {needed}")
        return x

    def _channels_second(self, x):
        return np.moveaxis(x, -1, 1) if self._last else x

    def _image(self, x):
        """The shape of a slice as the layers see it."""
        taps = 1 if self._by_taps else self._shape[2]
        return 1, taps * x.shape[1], *x.shape[3:]

    def _slices(self, x):
        """Zeros before the first slice, and the slices of the result."""
        d, span = x.shape[2], (self._shape[2] - 1) * self._dilation + 1
        if self._zeros == "same":
            depth = -(-d // self._step)
            return max((depth - 1) * self._step + span - d, 0) // 2, depth
        padded = d + sum(self._zeros[0])
        if padded < span:
            raise ValueError(f"x padded has {padded} slices, fewer than the kernel of w, which spans {span}")
        return self._zeros[0][0], (padded - span) // self._step + 1

    def _source(self, x, tap, front, depth):
        """(lo, hi, slices): for which slices lo .. hi - 1 of the result the tap meets x, and those of x."""
        offset = tap * self._dilation - front
        lo, hi = depth_range(x.shape[2], self._step, depth, offset)
        lo = min(lo, depth)
        hi = max(hi, lo)
        first = lo * self._step + offset
        return lo, hi, x[:, :, first : first + max(hi - lo - 1, 0) * self._step + 1 : self._step][:, :, : hi - lo]

    def _gathered(self, x, front, depth, pixels):
        """x with the slices of each tap side by side as channels."""
        taps, groups = self._shape[2], self._groups
        if (taps, self._step, front, depth) == (1, 1, 0, x.shape[2]):
            return x
        n, ic, _, h, w = x.shape
        y = _empty((n, ic * taps, depth, h, w), pixels)
        split = (
            y.reshape(n, groups, taps, ic // groups, depth, h, w)
            if not pixels
            else np.moveaxis(
                np.moveaxis(y, 1, -1).reshape(n, depth, h, w, groups, taps, ic // groups), (4, 5, 6), (1, 2, 3)
            )
        )
        for tap in range(taps):
            lo, hi, slices = self._source(x, tap, front, depth)
            to = split[:, :, tap]
            to[:, :, :, :lo] = to[:, :, :, hi:] = 0
            _copy(to[:, :, :, lo:hi], slices, groups)
        return y

    def _padded(self, x, front, depth):
        """The slices that each tap meets; where those are outside, zeros."""
        found = []
        for tap in range(self._shape[2]):
            lo, hi, slices = self._source(x, tap, front, depth)
            if hi - lo < depth:
                inside, slices = slices, np.zeros_like(x, shape=(*x.shape[:2], depth, *x.shape[3:]))
                _copy(slices[:, np.newaxis, :, lo:hi], inside, 1)
            found.append(slices)
        return found

    def _convolve(self, volumes, residual, y):
        """Each layer over its volume, added to what the one before made, the first to the residual."""
        for number, (layer, x) in enumerate(zip(self._layers, volumes, strict=True)):
            made = y if number == len(volumes) - 1 else _empty(y.shape, x.strides[1] < x.strides[4])
            merge = all(v is None or merges(v) for v in (x, residual, made))
            parts = [[None] * len(y) if v is None else _images(v, merge) for v in (x, residual, made)]
            for images, added, result in zip(*parts):
                layer(images, added, result)
            residual = made


def _empty(shape, pixels):
    """A new volume (n, c, d, h, w), its channels last in memory where it is one of pixels."""
    if not pixels:
        return np.empty(shape, np.float32)
    return np.moveaxis(np.empty((shape[0], *shape[2:], shape[1]), np.float32), -1, 1)


def _images(x, merge):
    """A volume as images (n d, c, h, w), or as those of each of its batch."""
    x = x.swapaxes(1, 2)
    return [x.reshape(x.shape[0] * x.shape[1], *x.shape[2:])] if merge and len(x) else list(x)


def _copy(y, x, groups):
    """y (n, groups, c, d, h, w) = x (n, groups c, d, h, w), on all threads."""
    n, c, *size = x.shape
    x = np.lib.stride_tricks.as_strided(
        x, (n, groups, c // groups, *size), (x.strides[0], c // groups * x.strides[1], *x.strides[1:])
    )
    if y.size:
        _core.copy_to(y, x)
