"""Boxes that no better one overlaps too much, as a search over all pairs finds them."""

import numpy as np
import pytest

from fusedops import _core
from guard_pages import guarded

NAN, INF = np.float32(np.nan), np.float32(np.inf)


def corners(box, centred):
    if centred:
        return [box[:2][::-1] - box[2:][::-1] / 2, box[:2][::-1] + box[2:][::-1] / 2]
    return [np.minimum(box[:2], box[2:]), np.maximum(box[:2], box[2:])]


def overlap_of(a, b):
    """Intersection over union; 0 without an area, or where a number is NaN."""
    sides = np.minimum(a[1], b[1]) - np.maximum(a[0], b[0])
    areas, common = [np.prod(c[1] - c[0], dtype=np.float32) for c in (a, b)], np.prod(sides, dtype=np.float32)
    union = areas[0] + areas[1] - common
    return common / union if (sides > 0).all() and common > 0 and min(areas) > 0 and union > 0 else 0


def expected(boxes, scores, most, overlap, least, centred):
    found = []
    for batch, kind in np.ndindex(scores.shape[:2]):
        mine, kept = scores[batch, kind], []
        for i in np.argsort(-mine, kind="stable"):
            box = corners(boxes[batch, i], centred)
            taken = len(kept) < most and (least is None or mine[i] > np.float32(least))
            if taken and not any(overlap_of(box, b) > np.float32(overlap) for b in kept):
                kept.append(box)
                found.append((batch, kind, i))
    return np.array(found, np.int64).reshape(-1, 3)


def drawn(count, centred, seed=0):
    """Boxes and scores, of which some are equal."""
    random = np.random.default_rng(seed)
    boxes = random.random((2, count, 4), np.float32)
    boxes[..., 2:] *= 0.3
    boxes[..., 2:] += 0 if centred else boxes[..., :2]
    return boxes, random.integers(0, 40, (2, 3, count)).astype(np.float32) / 40 - np.float32(0.3)


@pytest.mark.parametrize("count", [0, 1, 15, 16, 17, 33, pytest.param(150, marks=pytest.mark.thorough)])
@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize("least", [None, 0.1, 2.0, -1.0])
def test_as_a_search_over_all_pairs(threads, count, centred, least):
    boxes, scores = drawn(count, centred)
    for most, overlap in [(0, 0.5), (-1, 0.5), (1, 0.5), (17, 0.3), (count, 0.0), (2**62, 0.2), (count, 1.0)]:
        found = _core.suppressed(boxes, scores, most, overlap, least, centred)
        np.testing.assert_array_equal(found, expected(boxes, scores, most, overlap, least, centred))
        assert found.dtype == np.int64


@pytest.mark.parametrize("strange", [NAN, INF, -INF, np.float32(3e38), np.float32(0)])
@pytest.mark.parametrize("least", [None, 0.0, -INF, NAN])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_numbers_that_are_none(strange, least):
    """A NaN is no score above another, and its box overlaps none."""
    boxes, scores = drawn(40, False)
    boxes[:, ::5, 1], boxes[:, 3::7, 2], scores[:, :, ::6] = strange, -strange, strange
    scores[:, 1, ::6] = -0.0
    found = _core.suppressed(boxes, scores, 30, 0.1, least, False)
    np.testing.assert_array_equal(found, expected(boxes, scores, 30, 0.1, least, False))


@pytest.mark.parametrize("at_end", [False, True])
def test_nothing_outside_is_read(at_end):
    boxes, scores = (guarded(a, at_end) for a in drawn(37, False))
    np.testing.assert_array_equal(
        _core.suppressed(boxes, scores, 50, 0.3, 0.0, False), expected(boxes, scores, 50, 0.3, 0.0, False)
    )


def test_strided_views():
    boxes, scores = drawn(64, True)
    given = boxes[:, ::-2], scores[::-1, :, ::2]
    np.testing.assert_array_equal(_core.suppressed(*given, 9, 0.2, None, True), expected(*given, 9, 0.2, None, True))
