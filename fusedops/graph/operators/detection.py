"""What follows a detector's network in files of TFLite: boxes are decoded, and of those that overlap the best are
kept."""

import heapq

import numpy as np

from .schema import Inference, NumPyOnly, Operator

_WHY = "a search among boxes, by their values"


def _overlaps(box, others):
    """Intersection over union of a box with others, corners (ymin, xmin, ymax, xmax); 0 where one is empty."""

    def area(b):
        return (b[..., 2] - b[..., 0]) * (b[..., 3] - b[..., 1])

    low, high = np.maximum(box[:2], others[:, :2]), np.minimum(box[2:], others[:, 2:])
    common = np.maximum(high - low, 0).prod(1)
    areas = area(box), area(others)
    return np.where((areas[0] <= 0) | (areas[1] <= 0), np.float32(0), common / (areas[0] + areas[1] - common))


def _best(boxes, scores, least, overlap, most):
    """The places of up to `most` boxes of scores from `least` on, none of which overlaps a better one by more."""
    order = np.flatnonzero(scores >= least)
    order = order[np.argsort(-scores[order], kind="stable")]
    selected, active = [], np.ones(len(order), bool)
    for i, place in enumerate(order):
        if len(selected) == most:
            break
        if active[i]:
            selected.append(int(place))
            active[i + 1 :] &= ~(_overlaps(boxes[place], boxes[order[i + 1 :]]) > overlap)
    return selected


def _decoded(encoded, anchors, scales):
    """Boxes by their corners from centers and sizes that are relative to anchors."""
    e, a = encoded[:, :4].astype(np.float64) / np.float64(scales), anchors.astype(np.float64)
    center = (e[:, :2] * a[:, 2:] + a[:, :2]).astype(np.float32)
    half = (0.5 * np.exp(e[:, 2:]) * a[:, 2:]).astype(np.float32)
    return np.concatenate([center - half, center + half], 1)


def _postprocess(node, encoded, scores, anchors):
    a = node.attrs
    boxes, scores = _decoded(encoded[0], anchors, a["scales"]), scores[0]
    scores = scores[:, scores.shape[1] - a["classes"] :]  # the first may be that of the background
    find = _each_class if a["each_class"] else _each_box
    found, count = find(boxes, scores, a)
    size = a["detections"] * a["classes_per_detection"]
    results = np.zeros((1, size, 4), np.float32), np.zeros((1, size), np.float32), np.zeros((1, size), np.float32)
    for i, (box, kind, score) in enumerate(found[:size]):
        for result, value in zip(results, (boxes[box], kind, score), strict=True):
            result[0, i] = value
    return *results, np.array([count], np.float32)


def _each_class(boxes, scores, a):
    """The best of the boxes of all classes, each class for itself; (rows of box, class and score, how many)."""
    found = []
    for kind in range(scores.shape[1]):
        each = scores[:, kind]
        chosen = _best(boxes, each, a["least_score"], a["overlap"], a["detections_per_class"])
        found = sorted([*found, *((box, kind, each[box]) for box in chosen)], key=lambda row: -row[2])
        found = found[: a["detections"]]
    return found, len(found)


def _each_box(boxes, scores, a):
    """The boxes whose best class is best, with their best classes."""
    n = min(a["classes_per_detection"], scores.shape[1])
    order = np.argsort(-scores, 1, kind="stable")[:, :n]
    chosen = _best(boxes, scores.max(1, initial=-np.inf), a["least_score"], a["overlap"], a["detections"])
    return [(box, kind, scores[box, kind]) for box in chosen for kind in order[box]], len(chosen)


def _postprocess_shape(node, encoded, scores, anchors):
    n, classes = encoded.shape[1], node.attrs["classes"]
    fits = encoded.shape[0] == scores.shape[0] == 1 and scores.shape[1] == n and anchors.shape == (n, 4)
    if not fits or encoded.shape[2] < 4 or not 0 <= scores.shape[2] - classes <= 1:
        raise ValueError(f"{encoded.shape} boxes, {scores.shape} scores and {anchors.shape} anchors do not fit")
    size = node.attrs["detections"] * node.attrs["classes_per_detection"]
    return [(1, size, 4), (1, size), (1, size), (1,)]


def _suppressed(node, boxes, scores, overlap, least, sigma=None):
    """(places, scores, how many) of up to `most` boxes: one that overlaps a better one loses its place, or score."""
    most, least, overlap = node.attrs["most"], float(least.reshape(())), float(overlap.reshape(()))
    softness = 0.0 if sigma is None else float(sigma.reshape(()))
    low, high = np.minimum(boxes[:, :2], boxes[:, 2:]), np.maximum(boxes[:, :2], boxes[:, 2:])
    boxes = np.concatenate([low, high], 1)
    queue = [(-float(s), i, 0) for i, s in enumerate(scores) if s > least]
    heapq.heapify(queue)
    chosen = []
    while queue and len(chosen) < most:
        score, i, begin = heapq.heappop(queue)
        now, gone = -score, False
        for j, _ in reversed(chosen[begin:]):
            common = float(_overlaps(boxes[i], boxes[j : j + 1])[0])
            gone = common >= overlap
            if gone:
                break
            now *= np.exp(-0.5 * common * common / softness) if softness > 0 else 1.0
            if now <= least:
                break
        if not gone and now == -score:
            chosen.append((i, now))
        elif not gone and now > least:
            heapq.heappush(queue, (-now, i, len(chosen)))
    places, kept = np.zeros(most, np.int32), np.zeros(most, np.float32)
    for k, (i, score) in enumerate(chosen):
        places[k], kept[k] = i, score
    return places, kept, np.array(len(chosen), np.int32)


def _suppressed_shape(node, boxes, scores, *numbers):
    if len(boxes.shape) != 2 or boxes.shape[1] != 4 or scores.shape != boxes.shape[:1]:
        raise ValueError(f"boxes of shape {boxes.shape} and scores of shape {scores.shape} do not fit")
    return [(node.attrs["most"],), (node.attrs["most"],), ()]


RECORDS = {
    "DetectionPostProcess": Operator(
        _postprocess, Inference(_postprocess_shape, lambda node, inputs, i: np.dtype(np.float32)), NumPyOnly(_WHY), None
    ),
    "SoftNonMaxSuppression": Operator(
        _suppressed,
        Inference(_suppressed_shape, lambda node, inputs, i: np.dtype(np.float32 if i == 1 else np.int32)),
        NumPyOnly(_WHY),
        None,
    ),
}
