"""Boxes of detectors: torchvision's operators."""

import numpy as np

_ALL = np.iinfo(np.int64).max  # boxes that may stay


def _nms(p, dets, scores, iou_threshold):
    """The boxes that stay, the best ones first."""
    bound = np.array(iou_threshold, np.float32)
    boxes, scores = p.op("Unsqueeze", dets, [0]), p.op("Unsqueeze", scores, [0, 1])
    rows = p.op("NonMaxSuppression", boxes, scores, np.array(_ALL), bound)
    return p.op("Gather", rows, np.array(2), axis=1)


def _roi_align(p, input, rois, spatial_scale, pooled_height, pooled_width, sampling_ratio, aligned):
    """Of boxes (n, 5), the first number of which is that of the image."""
    images = p.op("Cast", p.op("Gather", rois, np.array(0), axis=1), to=7)
    boxes = p.op("Slice", rois, [1], [5], [1])
    return p.op(
        "RoiAlign",
        input,
        boxes,
        images,
        coordinate_transformation_mode="half_pixel" if aligned else "output_half_pixel",
        output_height=pooled_height,
        output_width=pooled_width,
        sampling_ratio=max(sampling_ratio, 0),
        spatial_scale=float(spatial_scale),
    )


READERS = {"torchvision::nms": _nms, "torchvision::roi_align": _roi_align}
