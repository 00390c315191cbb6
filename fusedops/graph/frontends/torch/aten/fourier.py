"""Fourier transforms, along one axis after the other, and spectrograms: by the operators DFT and STFT."""

import math

import numpy as np

from ..fx_values import FxComplex, Unsupported, sizes
from .complex_numbers import as_complex, given_type, of_pair, pair_of

_SCALES = {"forward": {None: "none", "backward": "none", "ortho": "root", "forward": "count"},
           "inverse": {None: "count", "backward": "count", "ortho": "root", "forward": "none"}}  # fmt: skip
_BY_NUMBER = ("none", "root", "count")  # as torch's inner operators count them


def _axes(dim, ndim):
    dims = range(ndim) if dim is None else dim if isinstance(dim, list) else [dim]
    return [d % ndim for d in dims]


def _transformed(p, pair, ndim, axis, count, inverse=False, onesided=False, scale="none"):
    """The transform of the numbers along an axis of a value whose last axis has their parts, cut or filled with zeros
    to `count`, None for as many as there are; scaled by one over the count, its root, or not."""
    length = "" if count is None else p.number(p.size(count), np.int64)
    y = p.op("DFT", pair, length, p.torch.tensor(axis), inverse=int(inverse), onesided=int(onesided))
    power = {"none": 0, "root": 0.5, "count": 1}[scale] - inverse
    if not power:
        return y
    if count is None:
        count = p.op("Squeeze", p.op("Shape", pair, start=axis, end=axis + 1), [0])
    else:
        count = p.number(p.size(count), np.int64)
    counted = p.cast_to(count, np.float64)
    factor = p.op("Pow", counted, p.torch.tensor(-power, dtype=p.torch.float64))
    return p.op("Mul", y, p.cast_to(factor, p.numpy_type(given_type(p), "a result")))


def _numbers(p, x):
    """A tensor as a value whose last axis has the parts of numbers: one for real ones."""
    if isinstance(x, FxComplex) or isinstance(x, p.torch.Tensor) and x.is_complex():
        return pair_of(p, as_complex(p, x))
    return p.op("Unsqueeze", p.cast(x, given_type(p)), [x.ndim])


def _fft(inverse, real="", dims=-1):
    """`real`: "input" of rfft, "result" of irfft, whose last axis is that of the real numbers. `dims` are usual: one
    axis, those of an image, or None for all."""

    def read(p, x, n=None, s=None, dim=dims, norm=None):
        counts = s if n is None else [n]
        axes = _axes(list(range(-len(counts), 0)) if dim is None and counts else dim, x.ndim)
        counts = [None if c == -1 else c for c in counts or [None] * len(axes)]
        scale = _SCALES["inverse" if inverse else "forward"][norm]
        return _along(p, x, list(zip(axes, counts, strict=True)), inverse, real, scale)

    return read


def _along(p, x, steps, inverse, real, scale):
    y = _numbers(p, x)
    if real == "input":  # first, while its numbers are real
        (axis, count), steps = steps[-1], steps[:-1]
        y = _transformed(p, y, x.ndim, axis, count, inverse, True, scale)
    last = steps.pop() if real == "result" else None
    for axis, count in steps:
        y = _transformed(p, y, x.ndim, axis, count, inverse, False, scale)
    if last is None:
        return of_pair(p, y)
    axis = last[0]
    y = _transformed(p, y, x.ndim, axis, sizes(p.made.shape)[axis], True, True, scale)
    return p.op("Squeeze", y, [x.ndim])


def _complex_to_complex(p, x, dim, normalization, forward):
    steps = [(axis, None) for axis in _axes(dim, x.ndim)]
    return _along(p, x, steps, not forward, "", _BY_NUMBER[normalization])


def _real_to_complex(p, x, dim, normalization, onesided):
    steps = [(axis, None) for axis in _axes(dim, x.ndim)]
    return _along(p, x, steps, False, "input" if onesided else "", _BY_NUMBER[normalization])


def _complex_to_real(p, x, dim, normalization, last_dim_size):
    steps = [(axis, None) for axis in _axes(dim, x.ndim)]
    return _along(p, x, steps, True, "result", _BY_NUMBER[normalization])


def _shifted(sign):
    def read(p, x, dim=None):
        axes = _axes(dim, x.ndim)
        counts = p.static([x.shape[a] for a in axes], "shifts of a spectrum")
        moves = [n // 2 if sign > 0 else -(n // 2) for n in counts]
        complex_ = isinstance(x, FxComplex)
        return p.readers["complex roll" if complex_ else "roll"](p, x, shifts=moves, dims=axes)

    return read


# ---- spectrograms


def _window(p, window, length, n):
    """The window of frames of n points: its own points in the middle of zeros."""
    dtype = given_type(p)
    if window is None:
        window = p.torch.ones(length, dtype=dtype)
    if not isinstance(window, p.torch.Tensor):
        raise Unsupported("fusedops does not have spectrograms whose window is computed")
    left = (n - window.shape[0]) // 2
    return p.torch.nn.functional.pad(window.to(dtype), (left, n - window.shape[0] - left))


def _stft(
    p, x, n_fft, hop_length=None, win_length=None, window=None, normalized=False, onesided=None, return_complex=None,
    align_to_window=None, center=False, pad_mode="reflect",
):  # fmt: skip
    """Transforms of frames of n_fft points, each times the window: (batch, bins, frames)."""
    if isinstance(x, FxComplex) or center or align_to_window or return_complex is False:
        raise Unsupported("fusedops does not have this form of stft: of complex numbers, aligned, or as pairs")
    hop = n_fft // 4 if hop_length is None else hop_length
    signal = x if x.ndim == 2 else p.op("Unsqueeze", x, [0])
    taps = _window(p, window, win_length or n_fft, n_fft) * (n_fft**-0.5 if normalized else 1)
    y = p.op("STFT", signal, p.torch.tensor(hop), taps, p.torch.tensor(n_fft), onesided=int(onesided is not False))
    y = p.op("Transpose", y, perm=[0, 2, 1, 3])
    return of_pair(p, y if x.ndim == 2 else p.op("Squeeze", y, [0]))


def _istft(
    p, x, n_fft, hop_length=None, win_length=None, window=None, center=True, normalized=False, onesided=None,
    length=None, return_complex=False,
):  # fmt: skip
    """The signal whose frames have these transforms: what overlaps is summed and divided by the squares of windows."""
    if return_complex or onesided is False:
        raise Unsupported("fusedops does not have the inverse of an stft of complex signals")
    hop = n_fft // 4 if hop_length is None else hop_length
    taps, single = _window(p, window, win_length or n_fft, n_fft), x.ndim == 2
    pair = pair_of(p, as_complex(p, x))
    pair = p.op("Unsqueeze", pair, [0]) if single else pair
    rows = p.op("Transpose", pair, perm=[0, 2, 1, 3])
    rows = p.op("DFT", rows, p.torch.tensor(n_fft), p.torch.tensor(2), inverse=1, onesided=1)
    frames = p.op("Mul", p.op("Squeeze", rows, [3]), taps * (n_fft**0.5 if normalized else 1))
    squares = p.op(
        "Add", p.op("Mul", p.op("Slice", frames, [0], [1], [0]), p.torch.zeros((), dtype=taps.dtype)), taps * taps
    )
    y = p.op("Div", *(_overlapped(p, v, n_fft, hop) for v in (frames, squares)))
    start = n_fft // 2 if center else 0
    (size,) = sizes(p.made.shape)[-1:]
    y = p.op("Pad", y, np.array([0, 0, 0, n_fft]), "", np.array([0, 1]))  # where more is wanted than there is
    y = p.op("Slice", y, [start], p.op("Add", p.shape([size]), np.array([start])), [1])
    return p.op("Squeeze", y, [0]) if single else y


def _overlapped(p, frames, n, hop):
    """The sum (batch, points) of frames (batch, count, n), each `hop` after the one before it. Frames are cut into
    pieces of that length, and a row of pieces is moved by its place in the frame."""
    pieces = math.ceil(n / hop)
    frames = p.op("Pad", frames, np.array([0, 0, 0, 0, 0, pieces * hop - n]))
    frames = p.op("Reshape", frames, [0, 0, pieces, hop])
    moved = [
        p.op("Pad", p.op("Gather", frames, p.torch.tensor(i), axis=2), np.array([0, i, 0, 0, pieces - 1 - i, 0]))
        for i in range(pieces)
    ]
    y = p.op("Reshape", p.op("Sum", *moved), [0, -1])
    return y if pieces * hop == n else p.op("Slice", y, [0], [n - pieces * hop], [1])


_PLAIN = {
    "_fft_c2r": _complex_to_real,
    "_fft_r2c": _real_to_complex,
    "_fft_c2c": _complex_to_complex,
    "stft": _stft,
    "istft": _istft,
    "fft_fftshift": _shifted(1),
    "fft_ifftshift": _shifted(-1),
    **{
        f"fft_{kind}{name}": _fft(inverse, real, dims)
        for kind, inverse, real in (("", 0, ""), ("i", 1, ""), ("r", 0, "input"), ("ir", 1, "result"))
        for name, dims in (("fft", -1), ("fft2", [-2, -1]), ("fftn", None))
    },
}
READERS = {form + name: reader for name, reader in _PLAIN.items() for form in ("", "complex ")}
