"""What int8 have to be, in NumPy: sums of integers, then the epilogue's operations of floats in their order."""

import numpy as np

import fusedops as fo
import oracle
from fusedops import activations
from oracle import twice

TYPES = (np.uint8, np.int8)
ACTIVATIONS = [None, "relu", "relu6", ("clip", -0.5, 0.25), "leaky_relu", "elu", *activations.PLAIN, "prelu"]

F = np.float32


def bytes_of(rng, shape, dtype):
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max + 1, shape).astype(dtype)


def quantized(x, q, dtype):
    """Halves to even, within the type; one scale."""
    with np.errstate(over="ignore"):
        return np.clip(np.rint(x / F(q.scale)) + q.zero_point, *limits(dtype)).astype(dtype)


def in_registers(activation):
    """The bounds of what is no activation or a clip; None of others."""
    if isinstance(activation, tuple):
        return activation[1:] if activation[0] == "clip" else None
    return {None: (-np.inf, np.inf), "relu": (0, np.inf), "relu6": (0, 6)}.get(activation)


def multiply_add(a, b, c):
    """Of float32, rounded once: the product is exact in float64."""
    return (a.astype(np.float64) * b + c).astype(F)


def ended(
    sums,
    w_scale,
    *,
    x_scale,
    row_scale=None,
    y_q=None,
    dtype=None,
    bias=None,
    activation=None,
    residual=None,
    residual_q=None,
    nudge=None,
    axis=-1,
):
    """What becomes of sums whose axis -1 is that of channels. Not of clips: within a step."""
    bounds = in_registers(activation)
    unit = float(F(y_q.scale)) if y_q and bounds else 1.0
    y, scale = sums.astype(F), (x_scale * np.asarray(w_scale, F).astype(np.float64) / unit).astype(F)
    if row_scale is not None:
        y, scale = y * scale, row_scale
    y = multiply_add(y, scale, F(0) if bias is None else (bias.astype(np.float64) / unit).astype(F))
    if nudge is not None:
        y = twice(sums, x_scale * np.asarray(w_scale, F).astype(np.float64), unit, bias, nudge)
    if residual is not None and residual_q is None:
        y = multiply_add(residual, F(1 / unit), y)
    elif residual is not None:
        y = multiply_add(
            (residual.astype(np.int32) - residual_q.zero_point).astype(F), F(float(F(residual_q.scale)) / unit), y
        )
    if not bounds:
        y = oracle.activate(y.astype(np.float64), activation)[0]
        return y if y_q is None else np.clip(np.rint(y / F(y_q.scale)) + y_q.zero_point, *limits(dtype))
    if y_q is None:
        return np.clip(y, *map(F, bounds))
    least, most = limits(dtype)
    lo, hi = (np.clip(b / unit, least - y_q.zero_point, most - y_q.zero_point) for b in bounds)
    return (np.rint(np.clip(y, F(lo), F(hi))) + y_q.zero_point).astype(dtype)


def limits(dtype):
    return np.iinfo(dtype).min, np.iinfo(dtype).max


def by_rows(x):
    """A float32 matrix as DynamicQuantizeLinear takes each row: bytes, scales and zero points."""
    lo, hi = np.minimum(x.min(-1, initial=0), 0), np.maximum(x.max(-1, initial=0), 0)
    scale = (hi - lo) / F(255)  # in float32, as ONNX says
    zero = np.rint(-lo / np.where(scale > 0, scale, 1)).astype(np.int32)
    return np.clip(np.rint(x / scale[..., None]) + zero[..., None], 0, 255), scale, zero


def check(actual, expected, activation):
    """To the bit; after other activations than clips a step where the polynomial is on the other side of a half."""
    if in_registers(activation):
        np.testing.assert_array_equal(actual, expected)
    elif actual.dtype == F:
        np.testing.assert_allclose(actual, expected, rtol=2e-6, atol=1e-6)
    else:
        off = np.abs(actual.astype(int) - expected)
        assert off.max(initial=0) <= 1 and off.sum() <= 1 + off.size / 1000


Quantization = fo.Quantization
