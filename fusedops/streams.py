"""Convolutions over sequences that come in pieces: frames that later outputs need stay here between calls."""

from __future__ import annotations

from operator import index
from typing import TYPE_CHECKING

import numpy as np

from . import _core

if TYPE_CHECKING:
    from typing import Any, Literal

    from ._types import Array, Input


class ConvolutionStream:
    """A convolution of a sequence taken piece by piece. Made by ``layer.stream(batch)``; for one thread at a time.

    What `step` and at the end `flush` return, one after the other, is the result of the whole sequence, with its bits:
    those of ``algorithm="direct"``, which "auto" takes too, but for kernels of one step, where the products of many
    steps and channels may be Strassen's. A copy, also by way of pickle, has a state of its own.

    Examples
    --------
    >>> import numpy as np, fusedops as fo
    >>> stream = fo.Conv1d(np.ones((1, 1, 3), np.float32), padding=(2, 0)).stream()  # causal: a frame for each
    >>> [float(stream.step(np.float32([n]))[0]) for n in (1, 2, 3, 4)]
    [1.0, 3.0, 6.0, 9.0]
    >>> stream.reset()
    >>> stream.step(np.float32([[[1, 2, 3]]]))  # a chunk: (batch, channels, frames)
    array([[[1., 3., 6.]]], dtype=float32)
    >>> stream = fo.ConvTranspose1d(np.ones((1, 1, 3), np.float32), stride=2).stream()
    >>> stream.step(np.float32([[[1, 2]]])), stream.flush()
    (array([[[1., 1., 3., 2.]]], dtype=float32), array([[[2.]]], dtype=float32))
    """

    _begin: int  # of the frames in memory
    _end: int
    _count: int  # frames that have come

    def __init__(self, layer: Any, batch: int) -> None:
        self._layer, self._batch, self._windows = layer, batch, layer._windows()
        self._memory = np.empty((batch, 0, layer._inputs()), np.float32)  # of frames, one behind the other
        self.reset()

    def step(self, x: Input, out: Array | None = None) -> Array:
        """The outputs that are complete with the next frames.

        Parameters
        ----------
        x : ndarray, float32, (batch, ic, l), or (batch, l, ic) with ``layout="NHWC"``
            The next l frames; or a single one, (batch, ic), or (ic,) for a batch of one, where each frame completes an
            output: of a causal convolution of stride 1.
        out : ndarray, float32, of the result's shape, optional
            Any strides; it may overlap x.

        Returns
        -------
        ndarray, float32, (batch, oc, m), (batch, m, oc) or (batch, oc) or (oc,), as x is
            m may be 0. `out` where it is given.

        Raises
        ------
        TypeError, ValueError
            Not float32, or a shape that does not fit; the state stays as it was.
        """
        x, windows = _core.as_input(x, "x"), self._windows
        single, chunk = x.ndim < 3, x
        if single and not windows.one_for_one:
            raise ValueError(
                f"x has shape {x.shape}, but this layer does not make one frame of each: pass chunks of shape "
                f"{self._chunks()}"
            )
        if single:
            chunk = np.expand_dims(x if x.ndim == 2 else x.reshape(1, -1), self._layer._row)
        frames = self._by_frames(chunk)
        if frames.ndim != 3 or frames.shape[0] != self._batch or frames.shape[2] != self._memory.shape[2]:
            raise ValueError(f"x has shape {x.shape}, but this stream's chunks have shape {self._chunks()}")
        held, new = self._end - self._begin, frames.shape[1]
        self._make_room(new)
        self._memory[:, self._end : self._end + new] = frames
        y = self._outputs(held + new, *windows.complete(self._count, held, new))
        if single:
            y = y.squeeze(self._layer._row) if x.ndim == 2 else y.reshape(-1)
        y = _delivered(y, out)
        self._end, self._count = self._end + new, self._count + new
        self._begin = self._end - windows.kept(self._count)
        return y

    def _chunks(self):
        """What errors write of the shape of chunks."""
        batch, channels = self._batch, self._memory.shape[2]
        return f"({batch}, l, {channels})" if self._layer._row == 1 else f"({batch}, {channels}, l)"

    def flush(self, out: Array | None = None) -> Array:
        """The outputs that the end of the sequence completes, which its padding is a part of; then `reset`.

        Parameters
        ----------
        out : ndarray, float32, of the result's shape, optional

        Returns
        -------
        ndarray, float32, (batch, oc, m) or (batch, m, oc)
            m may be 0. `out` where it is given.
        """
        held, zeros = self._end - self._begin, self._windows.zeros_behind
        self._make_room(zeros)
        self._memory[:, self._end : self._end + zeros] = 0
        y = _delivered(self._outputs(held + zeros, *self._windows.rest(self._count, held)), out)
        self.reset()
        return y

    def reset(self) -> None:
        """Back to the beginning of a sequence."""
        self._begin = self._end = self._count = 0
        self._keep(np.zeros((self._batch, self._windows.kept(0), self._memory.shape[2]), np.float32), 0)

    def __repr__(self):
        return f"Stream(batch={self._batch}, {self._layer!r})"

    def __reduce__(self):
        return ConvolutionStream, (self._layer, self._batch), self.state

    def __setstate__(self, state: tuple[Array, int]) -> None:
        self.state = state

    @property
    def state(self) -> tuple[Array, int]:
        """A copy of the frames that are kept, (batch, ic, frames) or as the layout has them, and how many have come;
        assign to it to set it."""
        return self._by_layout(self._memory[:, self._begin : self._end]).copy(), self._count

    @state.setter
    def state(self, value: tuple[Array, int]) -> None:
        if not isinstance(value, (tuple, list)) or len(value) != 2:
            raise TypeError(f"state must be a pair (frames, how many have come), not {type(value).__name__}")
        count = index(value[1])
        if count < 0:
            raise ValueError(f"state says that {count} frames have come")
        frames = self._by_frames(_core.as_input(value[0], "state"))
        needed = (self._batch, self._windows.kept(count), self._memory.shape[2])
        if frames.shape != needed:
            shown = self._by_layout(np.broadcast_to(np.float32(0), needed)).shape
            raise ValueError(f"state has frames of shape {value[0].shape}, but after {count} frames they have {shown}")
        self._keep(frames.copy(), count)

    def _by_frames(self, x):
        """x with its channels last."""
        return x if self._layer._row == 1 or x.ndim != 3 else x.swapaxes(1, 2)

    _by_layout = _by_frames  # and back

    def _keep(self, frames, count):
        self._begin = self._end = 0
        self._make_room(frames.shape[1])
        self._memory[:, : frames.shape[1]] = frames
        self._end, self._count = frames.shape[1], count

    def _make_room(self, new):
        """For so many frames behind those that are held, which move to the front now and then."""
        held = self._end - self._begin
        if self._end + new <= self._memory.shape[1]:
            return
        memory = self._memory
        if 2 * held + new > memory.shape[1]:
            memory = np.empty((self._batch, 4 * held + 2 * new + 16, memory.shape[2]), np.float32)
        memory[:, :held] = self._memory[:, self._begin : self._end]
        self._memory, self._begin, self._end = memory, 0, held

    def _outputs(self, frames, first, last):
        """Outputs first .. last - 1 of the layer without padding, over frames from the beginning of those held."""
        row, windows = self._layer._row, self._windows
        if last <= first:
            return self._by_layout(np.empty((self._batch, 0, windows.outputs), np.float32))
        y = windows.layer(self._by_layout(self._memory[:, self._begin : self._begin + frames]))
        return y[(slice(None),) * row + (slice(first, last),)]


def _delivered(y, out):
    if out is None:
        return y
    _core.checked_out(out, y.shape)
    out[...] = y
    return out


class Windows:
    """Which frames a convolution's outputs need. `layer` is the same without padding; outputs are counted as it has
    them, over the frames that are held and the new ones."""

    def __init__(
        self, layer: Any, outputs: int, stride: int, span: int, padding: tuple[int, int] | Literal["same", "valid"]
    ) -> None:
        self.layer, self.outputs, self._stride, self._span = layer, outputs, stride, span
        if stride > span:
            raise ValueError(f"a stream needs a stride, here {stride}, within what the kernel spans, {span}")
        if padding == "same" and stride > 1:
            raise ValueError("padding='same' follows from the length of the sequence: a stream needs numbers")
        if isinstance(padding, str):
            padding = ((span - 1) // 2, span // 2) if padding == "same" else (0, 0)
        self._before, self.zeros_behind = padding
        self.one_for_one = stride == 1 and self._before == span - 1

    def _whole(self, frames):
        """Outputs of so many frames and the zeros before them."""
        return max((self._before + frames - self._span) // self._stride + 1, 0)

    def _done(self, count):
        """Outputs after so many frames; the first frame brings those of the zeros before it, too."""
        return self._whole(count) if count else 0

    def complete(self, count: int, held: int, new: int) -> tuple[int, int]:
        return 0, self._done(count + new) - self._done(count)

    def rest(self, count: int, held: int) -> tuple[int, int]:
        return 0, self._whole(count + self.zeros_behind) - self._done(count)

    def kept(self, count: int) -> int:
        """From the first frame on that the next output needs, zeros before the sequence among them."""
        return self._before + count - self._done(count) * self._stride


class TransposedWindows:
    """The same of a transposed convolution: which outputs no later frame adds to."""

    zeros_behind: int = 0

    def __init__(
        self,
        layer: Any,
        outputs: int,
        stride: int,
        span: int,
        padding: tuple[int, int] | Literal["same", "valid"],
        more: int,
    ) -> None:
        self.layer, self.outputs, self._stride = layer, outputs, stride
        if isinstance(padding, str):
            before = max(span - stride, 0) // 2
            padding = (before, span - stride - before) if padding == "same" else (0, 0)
        self._before, after = padding
        self._end = span + more - after - stride  # of the result, behind the last frame's first output but for a stride
        self._late = max(0, -self._end)  # outputs that the end of the sequence may cut off
        # frames that later outputs need or stand at, beside the next one
        self._overlap = max((span - 1 + self._late) // stride, -(-self._late // stride), int(self._end > 0))
        self.one_for_one = stride == 1 and self._before == self._late == 0

    def _part(self, count, held, first, last):
        """Outputs of the whole sequence without padding as those over the frames that are held; count: before them."""
        base = (count - held) * self._stride
        return max(first, self._before) - base, last - base

    def complete(self, count: int, held: int, new: int) -> tuple[int, int]:
        last = (count + new) * self._stride - self._late
        return self._part(count, held, count * self._stride - self._late, last)

    def rest(self, count: int, held: int) -> tuple[int, int]:
        first, last = count * self._stride - self._late, count * self._stride + self._end
        return self._part(count, held, first, last if count else first)

    def kept(self, count: int) -> int:
        return min(count, self._overlap)
