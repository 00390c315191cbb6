"""Sums of rows at computed places, which GridSample and DeformConv are made of, and boxes of images."""

import numpy as np
import pytest

from fusedops import _core
from fusedops.graph.inference.evaluate import evaluate
from fusedops.graph.ir.graph import Node


@pytest.mark.parametrize("channels", [1, 7, 16, 33, 64, 130])
@pytest.mark.parametrize("taps, points", [(1, 1), (4, 37), (0, 3), (9, 0)])
def test_sums_of_rows(isa, threads, draw, channels, taps, points):
    x, w = draw(23, channels), draw(taps, points)
    at = np.random.default_rng(0).integers(0, 23, (taps, points))
    expected = (x[at].astype(np.float64) * w[..., np.newaxis]).sum(0)
    np.testing.assert_allclose(_core.sampled(x, at, w), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("place", [-1, 23])
def test_a_place_beyond_the_rows(draw, place):
    with pytest.raises(IndexError, match="are not all among 23 rows"):
        _core.sampled(draw(23, 5), np.full((1, 2), place), draw(1, 2))


@pytest.mark.parametrize("box", [[0, 0, np.inf, 5], [np.nan, 0, 5, 5], [0, -np.inf, 5, 5]])
def test_boxes_that_are_not_finite(draw, box):
    node, boxes = Node("RoiAlign", "r", [], ["y"], {"coordinate_transformation_mode": "half_pixel"}), np.zeros((2, 4))
    boxes[1] = box
    with pytest.raises(ValueError, match=r"RoiAlign 'r': box 1 is \[.*\], but boxes must be finite"):
        evaluate(node, [draw(1, 2, 5, 5), boxes.astype(np.float32), np.zeros(2, np.int64)])
