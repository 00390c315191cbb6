"""Pooling of images in every memory order, against plain NumPy."""

import numpy as np
import pytest

from fusedops._core import Program
from oracle import Approx, U, check


def nhwc(x):
    """x (n, c, h, w) with its channels side by side in memory."""
    return np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)


LAYOUTS = {
    "nchw": np.ascontiguousarray,
    "nhwc": nhwc,
    "slice": lambda x: nhwc(np.concatenate([x, x], 1))[:, : x.shape[1]],
    "spread": lambda x: np.repeat(np.repeat(x, 2, 3), 2, 1)[:, ::2, :, ::2],
}


def windows(x, size, kernel, stride, before, dilation, outside):
    """x's windows as (n, c, oh, ow, kh * kw), `outside` where they leave the image."""
    (kh, kw), (sh, sw), (top, left), (dh, dw) = kernel, stride, before, dilation
    oh, ow = size
    room = [(0, 0), (0, 0), (top, oh * sh + kh * dh), (left, ow * sw + kw * dw)]
    padded = np.pad(x.astype(np.float64), room, constant_values=outside)
    taps = [padded[:, :, i * dh :, j * dw :] for i in range(kh) for j in range(kw)]
    return np.stack([tap[:, :, : oh * sh : sh, : ow * sw : sw] for tap in taps], -1)


# kernel, stride, padding before, dilation, size of y: for an image of 9 x 7
CASES = {
    "2x2": ((2, 2), (2, 2), (0, 0), (1, 1), (4, 3)),
    "3x3_padded": ((3, 3), (2, 2), (1, 1), (1, 1), (5, 4)),
    "ceil_mode": ((3, 3), (2, 2), (0, 0), (1, 1), (5, 4)),
    "dilated": ((2, 3), (1, 2), (1, 2), (3, 2), (8, 4)),
    "1d": ((1, 3), (1, 1), (0, 1), (1, 1), (9, 7)),
    "shared": ((5, 5), (1, 1), (2, 2), (1, 1), (9, 7)),
    "shared_dilated": ((2, 4), (2, 2), (1, 2), (3, 1), (4, 4)),
    "global": ((9, 7), (1, 1), (0, 0), (1, 1), (1, 1)),
    "global_padded": ((11, 9), (1, 1), (1, 1), (1, 1), (1, 1)),
    "one_window": ((4, 5), (9, 9), (0, 0), (2, 1), (1, 1)),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("layouts", ["nhwc nhwc", "nchw nchw", "slice slice", "nchw nhwc", "spread nchw"])
@pytest.mark.parametrize("channels", [1, 5, 40, 70, 300])
def test_max(case, layouts, channels, isa, threads, draw):
    kernel, stride, before, dilation, size = CASES[case]
    layout_x, layout_y = layouts.split()
    x = LAYOUTS[layout_x](draw(2, channels, 9, 7))
    y = LAYOUTS[layout_y](np.full((2, channels, *size), 7, np.float32))
    p = Program()
    p.append("max_pool", x, y, kernel, stride, before, dilation)
    p.run(())
    assert np.array_equal(y, windows(x, size, kernel, stride, before, dilation, -np.inf).max(-1))


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("include", [False, True])
def test_average(case, layout, include, isa, draw):
    kernel, stride, (top, left), dilation, size = CASES[case]
    x = LAYOUTS[layout](draw(2, 37, 9, 7))
    y = LAYOUTS[layout](np.full((2, 37, *size), 7, np.float32))
    inside = (-top, 9 + top, -left, 7 + left) if include else (0, 9, 0, 7)
    p = Program()
    p.append("avg_pool", x, y, kernel, stride, (top, left), dilation, inside)
    p.run(())
    around = [(0, 0), (0, 0), (top, top), (left, left)]
    ones = np.pad(np.ones_like(x), around) if not include else np.ones((2, 37, 9 + 2 * top, 7 + 2 * left))
    counts = windows(ones, size, kernel, stride, (0, 0), dilation, 0).sum(-1)
    taps = windows(x, size, kernel, stride, (top, left), dilation, 0)
    error = (taps.shape[-1] + 2) * U * np.abs(taps).sum(-1) / counts
    check(np.ascontiguousarray(y), Approx(taps.sum(-1) / counts, error))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    "kernel, stride, dilation", [((3, 3), (1, 1), (1, 1)), ((2, 9), (1, 2), (1, 7)), ((3, 4), (1, 1), (1, 30))]
)
def test_long_rows_go_some_windows_at_a_time(layout, kernel, stride, dilation, isa, draw):
    before, size = (1, 3), (4, 150)
    x = LAYOUTS[layout](draw(1, 70, 4, 301))
    y = LAYOUTS[layout](np.full((1, 70, *size), 7, np.float32))
    p = Program()
    p.append("max_pool", x, y, kernel, stride, before, dilation)
    p.run(())
    assert np.array_equal(y, windows(x, size, kernel, stride, before, dilation, -np.inf).max(-1))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_nan_goes_through(layout, isa, draw):
    x = draw(1, 19, 8, 8)
    x[0, :, 2, 5] = np.nan
    x[0, 3, 7, 0] = np.inf
    x[0, 4] = -np.inf
    x, y = LAYOUTS[layout](x), LAYOUTS[layout](np.zeros((1, 19, 4, 4), np.float32))
    p = Program()
    p.append("max_pool", x, y, (2, 2), (2, 2))
    p.run(())
    assert np.array_equal(y, windows(x, (4, 4), (2, 2), (2, 2), (0, 0), (1, 1), -np.inf).max(-1), equal_nan=True)


def test_empty(draw):
    p = Program()
    p.append("max_pool", draw(0, 3, 4, 4), draw(0, 3, 2, 2), (2, 2), (2, 2))
    p.run(())


def test_wrong_shapes(draw):
    with pytest.raises(ValueError, match="differ in batch or channels"):
        Program().append("max_pool", draw(1, 3, 4, 4), draw(1, 4, 2, 2), (2, 2), (2, 2))
    with pytest.raises(ValueError, match="x has 3 axes"):
        Program().append("max_pool", draw(3, 4, 4), draw(3, 2, 2), (2, 2), (2, 2))
    with pytest.raises(TypeError, match="float64"):
        Program().append("max_pool", draw(1, 3, 4, 4).astype(np.float64), draw(1, 3, 2, 2), (2, 2), (2, 2))
