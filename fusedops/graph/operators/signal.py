"""Fourier transforms, mel filters and counts of n-grams."""

import itertools
import math

import numpy as np

from ..ir.dtypes import from_onnx
from ..ir.graph_builder import GraphBuilder
from .schema import Inference, NumPyOnly, Operator, axes_of, values


def _complex(x):
    """Numbers whose last axis has the real part, or that and the imaginary one."""
    v = x.astype(np.float64)
    return v[..., 0] + 1j * v[..., 1] if x.shape[-1] == 2 else v[..., 0]


def _parts(v, dtype):
    return np.stack([v.real, v.imag], -1).astype(dtype)


def _spectrum(v, length, axis, onesided):
    """The transform of real or complex numbers; of the real ones' the half that is its own."""
    if onesided and not np.iscomplexobj(v):
        return np.fft.rfft(v, length, axis)
    y = np.fft.fft(v, length, axis)
    return y.take(range(length // 2 + 1), axis) if onesided else y


def _dft(node, x, length=None, axis=None):
    axis, length = _dft_size(node, x, length, axis)
    onesided = node.attrs.get("onesided", 0)
    v = _complex(x)
    if not node.attrs.get("inverse", 0):
        return _parts(_spectrum(v, length, axis, onesided), x.dtype)
    if onesided:
        return np.fft.irfft(v, length, axis)[..., np.newaxis].astype(x.dtype)
    return _parts(np.fft.ifft(v, length, axis), x.dtype)


def _dft_size(node, x, length, axis):
    """(axis, length) of a transform."""
    (axis,) = axes_of([-2 if axis is None else int(axis.reshape(-1)[0])], len(x.shape))
    if axis == len(x.shape) - 1 or x.shape[-1] not in (1, 2):
        raise ValueError(
            f"axis {axis} has the parts of numbers, one or two: it needs another axis, and here 1 or 2 parts"
        )
    if length is not None:
        return axis, int(length.reshape(-1)[0])
    return axis, 2 * (x.shape[axis] - 1) if node.attrs.get("inverse", 0) and node.attrs.get("onesided", 0) else x.shape[
        axis
    ]


def _dft_shape(node, x, length=None, axis=None):
    axis, length = _dft_size(node, x, values(length, "length"), values(axis, "axis"))
    if length < 1:
        raise ValueError(f"a transform of {length} points needs 1 or more")
    onesided, inverse = node.attrs.get("onesided", 0), node.attrs.get("inverse", 0)
    size = length // 2 + 1 if onesided and not inverse else length
    return (*x.shape[:axis], size, *x.shape[axis + 1 : -1], 1 if onesided and inverse else 2)


def _read_dft(r: GraphBuilder, node):
    if r.opset < 20:
        node.attrs.setdefault("axis", 1)
        r.as_input(node, "axis", 2)
    r.add(node)


def _stft(node, x, step, window=None, length=None):
    """Transforms of the frames of a signal, each times the window."""
    _, _, bins, _ = _stft_shape(node, x, step, window, length)
    length = _frame(x, window, length)
    v = _complex(x) if x.ndim == 3 else x.astype(np.float64)
    frames = np.lib.stride_tricks.sliding_window_view(v, length, 1)[:, :: int(step.reshape(-1)[0])]
    frames = frames if window is None else frames * window.astype(np.float64)
    return _parts(_spectrum(frames, length, 2, bins != length or node.attrs.get("onesided", 1)), x.dtype)


def _frame(x, window, length):
    return int(length.reshape(-1)[0]) if length is not None else window.shape[0] if window is not None else x.shape[1]


def _stft_shape(node, x, step, window=None, length=None):
    step, length = getattr(step, "data", step), None if length is None else getattr(length, "data", length)
    step, length = (
        int(np.asarray(step).reshape(-1)[0]),
        _frame(x, window, None if length is None else np.asarray(length)),
    )
    if step < 1 or not 1 <= length <= x.shape[1] or window is not None and window.shape != (length,):
        raise ValueError(
            f"frames of {length} points, {step} after another, do not fit a signal of {x.shape[1]} "
            f"and a window of shape {None if window is None else window.shape}"
        )
    return (
        x.shape[0],
        (x.shape[1] - length) // step + 1,
        length // 2 + 1 if node.attrs.get("onesided", 1) else length,
        2,
    )


def _stft_planned(node, x, step, window=None, length=None):
    values(step, "frame step"), values(length, "frame length")
    return _stft_shape(node, x, step, window, length)


def _mel(node, count, length, rate, low, high):
    """Triangles over the bins of a spectrum (bins, count), evenly spaced on the mel scale from one frequency to
    another."""
    count, length, rate, low, high = (v.item() for v in (count, length, rate, low, high))
    first, last = (2595 * math.log10(1 + f / 700) for f in (low, high))
    edges = first + np.arange(count + 2) * (last - first) / (count + 2)
    edges = (length + 1) * (700 * (10 ** (edges / 2595) - 1)) // rate
    bins, (left, center, right) = np.arange(length // 2 + 1)[:, np.newaxis], (edges[i : count + i] for i in range(3))
    up, down = (bins - left) / (center - left), (right - bins) / (right - center)
    up, down = np.where(center == left, bins == center, up), np.where(right == center, 0, down)
    y = np.where((bins >= left) & (bins <= center), up, np.where((bins > center) & (bins < right), down, 0))
    return y.astype(_mel_type(node, (), 0))


def _mel_type(node, inputs, i):
    return from_onnx(node.attrs.get("output_datatype", 1))


def _mel_shape(node, count, length, *others):
    count, length = (values(v, "size").item() for v in (count, length))
    if count < 1 or length < 1:
        raise ValueError(f"{count} bands of a transform of {length} points must both be 1 or more")
    return length // 2 + 1, count


def _count_grams(node, x):
    """How often each of a pool's sequences of integers occurs in each row, with up to ``max_skip_count`` others
    between its members."""
    a, y = node.attrs, np.zeros((*x.shape[:-1], max(node.attrs["ngram_indexes"]) + 1), np.float32)
    starts, pool = [*a["ngram_counts"], len(a["pool_int64s"])], a["pool_int64s"]
    places, weights = a["ngram_indexes"], np.zeros(y.shape[-1], np.float32)
    weights[places], known, entry = a.get("weights") or 1, {}, 0
    for n, (begin, end) in enumerate(itertools.pairwise(starts), 1):
        for i in range(begin, end - n + 1, n):
            known[tuple(pool[i : i + n])], entry = places[entry], entry + 1
    for row, counts in zip(x.reshape(-1, x.shape[-1]), y.reshape(-1, y.shape[-1]), strict=True):
        for n in range(a["min_gram_length"], a["max_gram_length"] + 1):
            for distance in range(1, 2 if n == 1 else a["max_skip_count"] + 2):
                for start in range(row.size - (n - 1) * distance):
                    place = known.get(tuple(row[start : start + (n - 1) * distance + 1 : distance].tolist()))
                    if place is not None:
                        counts[place] += 1
    return y if a["mode"] == "TF" else (np.minimum(y, 1) if a["mode"] == "IDF" else y) * weights


def _read_grams(r: GraphBuilder, node):
    if "pool_int64s" not in node.attrs:
        raise ValueError(
            f"{node.op} {node.name!r} counts strings, which fusedops does not have: give it the numbers of words"
        )
    r.add(node)


_FOURIER = "no kernel: NumPy's transforms are fast"
RECORDS = {
    "DFT": Operator(_dft, Inference(_dft_shape, shape_inputs=(1, 2)), NumPyOnly(_FOURIER), _read_dft),
    "MelWeightMatrix": Operator(
        _mel,
        Inference(_mel_shape, dtype=_mel_type, shape_inputs=(0, 1, 2, 3, 4), may_grow=True),
        NumPyOnly("constant as soon as its sizes are known"),
    ),
    "STFT": Operator(_stft, Inference(_stft_planned, shape_inputs=(1, 3), may_grow=True), NumPyOnly(_FOURIER)),
    "TfIdfVectorizer": Operator(
        _count_grams,
        Inference(
            lambda node, x: (*x.shape[:-1], max(node.attrs["ngram_indexes"]) + 1),
            dtype=lambda node, inputs, i: np.dtype(np.float32),
        ),
        NumPyOnly("no kernel: it looks words up"),
        _read_grams,
    ),
}
