"""Sums that become int8 as LiteRT's reference kernels make them: exact arithmetic of integers is the oracle."""

import numpy as np
import pytest

from fusedops import _core, activations
from q_oracle import bytes_of

F = np.float32


def litert(sums, scale, zero):
    """Times a multiplier of 31 bits, to some bits after the point, ties up; then to a whole number, ties away."""
    part, exponent = np.frexp(scale)
    multiplier = np.rint(part * 2.0**31).astype(np.int64)
    left, right = np.maximum(exponent, 0), np.maximum(-exponent, 0).astype(np.int64)
    first = ((sums << left) * multiplier + (1 << 30)) >> 31
    return np.clip((first + (1 << right >> 1) - (first < 0) >> right) + zero, 0, 255)


def nudge_of(scale):
    bits = -np.frexp(scale)[1]
    return np.where(bits > 0, 0.5 ** (bits + 1.0), 0).astype(F)


@pytest.mark.parametrize("span", ["usual", "halves", "long", "large"])
def test_products(isa, products, rng, span):
    """Scales of powers of two have sums at a half; long sums do not fit a float; large scales are above 1."""
    m, n, k = (40, 37, 5000 if span == "long" else 60)
    w, x = bytes_of(rng, (n, k), np.int8), bytes_of(rng, (m, k), np.uint8)
    if span == "long":
        w, x = np.abs(w.astype(int)).clip(90, 127).astype(np.int8), x.clip(200)
    y_scale, zero = F(0.5), 117
    scale = {
        "usual": rng.uniform(1e-3, 2e-2, n),
        "halves": 0.5 ** rng.integers(2, 9, n),
        "long": rng.uniform(1e-7, 3e-6, n),
        "large": rng.uniform(0.5, 40, n),
    }[span].astype(F)
    real = scale.astype(float) / y_scale
    bias = rng.integers(-900, 900, n) if span != "long" else -(w.astype(np.int64).sum(1) * 220)
    plan = _core.QLinearPlan()
    given = (scale, (bias * scale.astype(float)).astype(F), activations.parse(None), (1.0, 3), None, (y_scale, zero))
    plan._pack(w, *given, nudge=nudge_of(real))
    sums = (x.astype(np.int64) - 3) @ w.astype(np.int64).T
    own = np.rint((bias * scale.astype(float)).astype(F) / scale.astype(float)).astype(np.int64)
    want = litert(sums + own, real, zero)
    assert span == "large" or len(np.unique(want)) > 30
    np.testing.assert_array_equal(plan(x), want)
