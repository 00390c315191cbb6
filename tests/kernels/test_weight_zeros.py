"""int8 weights with zero points, as uint8 ones have them: exact sums on every set."""

import numpy as np
import pytest

import oracle
from fusedops import _core, activations
from fusedops.layers import windows
from q_oracle import TYPES, by_rows, bytes_of, check, ended

F = np.float32
X_Q, Y_Q = {np.uint8: (0.02, 113), np.int8: (0.02, -20)}, (0.31, 20)


class Quantization:
    def __init__(self, scale, zero_point):
        self.scale, self.zero_point = scale, zero_point


def weights(rng, *shape):
    """Weights with a scale and a zero point, the extreme ones among them, for each output."""
    w, zero = bytes_of(rng, shape, np.int8), bytes_of(rng, shape[:1], np.int8)
    w[0], zero[0] = 127, -128
    w[-1], zero[-1] = -128, 127
    return w, rng.uniform(1e-3, 1e-2, len(w)).astype(F), zero


def less(w, zero):
    return w.astype(np.int64) - zero.reshape(-1, *[1] * (w.ndim - 1))


def linear(w, scale, bias, zero, *ends, activation=None, **options):
    plan = _core.QLinearPlan()
    plan._pack(w, scale, bias, activations.parse(activation), *ends, w_zero=zero, **options)
    return plan


@pytest.mark.parametrize("m", [1, 2, 5, 12, 13, 33])
def test_products(isa, products, rng, m):
    for n, k in (1, 1), (7, 3), (16, 64), (33, 29), (65, 72), (100, 132):
        (w, scale, zero), bias = weights(rng, n, k), rng.standard_normal(n).astype(F)
        for dtype in TYPES:
            x, x_q = bytes_of(rng, (m, k), dtype), X_Q[dtype]
            sums = (x.astype(np.int64) - x_q[1]) @ less(w, zero).T
            y = linear(w, scale, bias, zero, x_q, None, Y_Q, activation="relu")(x, out=np.zeros((m, n), np.uint8))
            given = dict(x_scale=float(F(x_q[0])), bias=bias, activation="relu", y_q=Quantization(*Y_Q), dtype=np.uint8)
            check(y, ended(sums, scale, **given), "relu")


@pytest.mark.parametrize("m", [1, 5, 17])
def test_products_of_floats(isa, products, threads, rng, m):
    """Each row has its zero point, or all have one."""
    x = rng.standard_normal((m, 70)).astype(F)
    w, scale, zero = weights(rng, 45, 70)
    for whole in False, True:
        q, row_scale, x_zero = by_rows(x.reshape(1, -1) if whole else x)
        q = (q - x_zero[:, None]).reshape(x.shape).astype(np.int64)
        sums = q @ less(w, zero).T
        row_scale = np.broadcast_to(row_scale, m)[:, None]
        y = linear(w, scale, None, zero, None, None, None, whole=whole)(x)
        check(y, ended(sums, scale, x_scale=1.0, row_scale=row_scale), None)


SHAPES = [  # channels, image, outputs, kernel, options
    (24, (9, 8), 24, (3, 3), dict(padding=1)),  # patches
    (3, (20, 70), 8, (3, 3), dict(padding=1, stride=2)),  # bands, with a fourth channel
    (8, (9, 70), 33, (3, 3), dict(padding=1)),
    (8, (9, 70), 12, (5, 5), dict(padding=2, groups=4)),
    (40, (7, 9), 30, (1, 1), {}),  # pixels as they are
    (6, (7, 9), 6, (3, 3), dict(padding=1, groups=6)),  # depthwise
    (5, (12, 9), 7, (2, 3), dict(dilation=2, padding=1)),
]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_convolutions(isa, products, threads, rng, shape):
    ic, size, oc, kernel, options = shape
    groups = options.get("groups", 1)
    (w, scale, zero), bias = weights(rng, oc, ic // groups, *kernel), rng.standard_normal(oc).astype(F)
    given = windows(w, options.get("stride", 1), options.get("padding", 0), options.get("dilation", 1), groups, "NHWC")
    pads = oracle.pads(options.get("padding", 0), size, kernel, given[0], given[2])
    for dtype in TYPES:
        x, x_q, plan = bytes_of(rng, (2, ic, *size), dtype), X_Q[dtype], _core.QConv2dPlan()
        plan._pack(w, scale, bias, activations.parse(None), *given, x_q, None, None, w_zero=zero)
        y = plan(np.ascontiguousarray(x.transpose(0, 2, 3, 1)))
        sums = oracle.convolution(
            x.astype(np.float64) - x_q[1], less(w, zero).astype(np.float64), given[0], pads, given[2], groups
        )
        want = ended(sums.astype(np.int64).transpose(0, 2, 3, 1), scale, x_scale=float(F(x_q[0])), bias=bias)
        check(y, want, None)


def test_the_longest_sums_fit(isa, products):
    """One more product may not: passes know the bound."""
    k = _core.Q_STEPS_OF_ZEROS
    x, w = np.full((1, k), 255, np.uint8), np.full((1, k), 127, np.int8)
    assert (k + 1) * 255 * 255 > np.iinfo(np.int32).max >= k * 255 * 255
    y = linear(w, np.ones(1, F), None, np.int8([-128]), (1.0, 0), None, None)(x)
    assert y[0, 0] == F(k * 255 * 255)
