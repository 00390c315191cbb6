"""torchvision's detectors while torch exports a module. Its batched_nms chooses between two ways to compute the same
boxes by their number, which only a call knows."""

import contextlib
import sys
from typing import Any


@contextlib.contextmanager
def without_decisions(torch):
    """Makes torchvision's batched_nms compute in one way while this lasts. Other threads get the same boxes from it."""
    boxes: Any = sys.modules.get("torchvision.ops.boxes")
    if boxes is None or not hasattr(boxes, "batched_nms"):
        yield
        return
    before = boxes.batched_nms

    def batched_nms(boxes_, scores, idxs, iou_threshold):
        """Boxes of other classes are moved so far apart that they do not meet."""
        span = torch.cat([boxes_.flatten(), boxes_.new_zeros(1)]).max() + 1
        return boxes.nms(boxes_ + (idxs.to(boxes_) * span)[:, None], scores, iou_threshold)

    boxes.batched_nms = batched_nms
    try:
        yield
    finally:
        boxes.batched_nms = before
