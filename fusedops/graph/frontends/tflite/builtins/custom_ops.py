"""Custom operators that files of MediaPipe and of TensorFlow's detectors have, and what finds boxes."""

import struct
from typing import Any

import numpy as np

from ..flat_model import table_of
from .entry import Builtin, activated
from .image_ops import bias, same_pads, transposed, weights

_SAME = 1  # TfLitePadding's number, in options that are structures of C


def _fields(op, count):
    """The first 32-bit numbers of options that are a structure of C."""
    if len(op.custom) < 4 * count:
        raise op.error(f"its options have {len(op.custom)} bytes, fewer than {4 * count}")
    return struct.unpack_from(f"<{count}i", op.custom)


def _transpose_bias(r, op):
    padding, stride_w, stride_h = _fields(op, 3)
    w, shape = weights(r, op, [3, 0, 1, 2])
    inner = r.sizes(op.inputs[0])
    if shape is None or len(shape) != 4 or inner is None or None in inner[1:3] or min(stride_w, stride_h) < 1:
        raise op.error(f"weights of shape {shape} and strides {stride_h}, {stride_w} do not fit an input {inner}")
    strides, kernel = [stride_h, stride_w], shape[1:3]
    crop = [
        max(0, k - (n - 1) % s - 1) * (padding == _SAME) for k, n, s in zip(kernel, inner[1:3], strides, strict=True)
    ]
    sizes = [s * (n - 1) + k - c for s, n, k, c in zip(strides, inner[1:3], kernel, crop, strict=True)]
    begins = [c // 2 for c in crop]
    r.put(op.outputs[0], transposed(r, op, w, shape, sizes, bias(r, op, 2), strides, begins), True)


def _windows(r, op, x):
    """(window, strides, padding) of a pool whose options are TfLitePoolParams."""
    padding, stride_w, stride_h, width, height = _fields(op, 5)
    sizes = r.sizes(x)
    if min(stride_w, stride_h, width, height) < 1 or sizes is None or None in sizes[1:3] or height * width > 256:
        raise op.error(f"windows of {height} x {width} and strides {stride_h}, {stride_w} do not fit {sizes}")
    kernel, strides = [height, width], [stride_h, stride_w]
    pads = same_pads(sizes[1:3], kernel, strides, [1, 1]) if padding == _SAME else [0] * 4
    return sizes[1:3], kernel, strides, pads


def _max_pool_argmax(r, op):
    """The largest element of each window, and its place inside the window, as a float with 0.1 added."""
    inner, kernel, strides, pads = _windows(r, op, op.inputs[0])
    x, count = r.value(op.inputs[0], True), kernel[0] * kernel[1]
    if any(pads):
        lowest = r.number(np.finfo(np.float32).min)
        x = r.emit("Pad", x, [0, 0, *pads[:2], 0, 0, *pads[2:]], lowest)
    out = [(n + pads[i] + pads[2 + i] - kernel[i]) // strides[i] + 1 for i, n in enumerate(inner)]
    parts = []
    for k in range(count):
        start = divmod(k, kernel[1])
        ends = [b + (n - 1) * s + 1 for b, n, s in zip(start, out, strides, strict=True)]
        parts.append(r.emit("Slice", x, list(start), ends, [2, 3], strides))
    most, place = parts[0], r.number(0.1)
    for k, part in enumerate(parts[1:], 1):
        place = r.emit("Where", r.emit("Greater", part, most), r.number(k + 0.1), place)
        most = r.emit("Max", most, part)
    if count == 1:
        place = r.emit("Add", r.emit("Mul", most, r.number(0)), place)
    r.put(op.outputs[0], activated(r, op, most, _fields(op, 6)[5]), True)
    r.put(op.outputs[1], place, True)


def _max_unpool(r, op):
    """Each element at its place in its window, among zeros; windows lie side by side."""
    _, kernel, strides, _ = _windows(r, op, op.inputs[0])
    if kernel != strides:
        raise op.error(
            f"its windows of {kernel} overlap or lie apart, by strides of {strides}: fusedops needs them equal"
        )
    x, place = r.value(op.inputs[0], True), r.emit("Floor", r.value(op.inputs[1], True))
    n, h, w, c = r.sizes(op.inputs[0])
    zero = r.number(0)
    parts = [
        r.emit("Unsqueeze", r.emit("Where", r.emit("Equal", place, r.number(k)), x, zero), [1])
        for k in range(kernel[0] * kernel[1])
    ]
    y = r.emit("Concat", *parts, axis=1) if len(parts) > 1 else parts[0]
    y = r.emit("Reshape", y, [-1, *kernel, c, h, w])
    y = r.emit("Transpose", y, perm=[0, 3, 4, 1, 5, 2])
    r.put(op.outputs[0], r.emit("Reshape", y, [-1 if n is None else n, c, h * kernel[0], w * kernel[1]]), True)


def _detection(r, op):
    options = table_of(op.custom)
    attrs: dict[str, Any] = dict(
        scales=[float(options.number(k)) for k in ("y_scale", "x_scale", "h_scale", "w_scale")],
        least_score=float(options.number("nms_score_threshold")),
        overlap=float(options.number("nms_iou_threshold")),
        detections=int(options.number("max_detections")),
        classes_per_detection=int(options.number("max_classes_per_detection")),
        detections_per_class=int(options.number("detections_per_class", 100)),
        classes=int(options.number("num_classes")),
        each_class=bool(options.get("use_regular_nms", False)),
    )
    if min(attrs["detections"], attrs["classes_per_detection"], attrs["classes"]) < 1:
        raise op.error(f"its options are out of range: {attrs}")
    if attrs["detections"] * attrs["classes_per_detection"] > 1 << 24:
        raise op.error(f"{attrs['detections']} detections of {attrs['classes_per_detection']} classes are too many")
    found = r.emit("DetectionPostProcess", *(r.value(held) for held in op.inputs[:3]), count=4, **attrs)
    for held, value in zip(op.outputs, found, strict=False):
        r.put(held, value)


def _non_max_suppression(r, op):
    boxes, scores, _, *numbers = op.inputs
    size = int(op.constant(2, "number of boxes").reshape(-1)[0])
    if not 0 <= size <= 1 << 24:
        raise op.error(f"it selects {size} boxes")
    given = [r.value(h) for h in (boxes, scores, *numbers)]
    places, kept, count = r.emit("SoftNonMaxSuppression", *given, count=3, most=size)
    values = [places, kept, count] if op.kind.endswith("V5") else [places, count]
    for held, value in zip(op.outputs, values, strict=True):
        r.put(held, value, real=False)


READERS = {
    "'Convolution2DTransposeBias'": Builtin(_transpose_bias, "of MediaPipe"),
    "'MaxPoolingWithArgmax2D'": Builtin(_max_pool_argmax, "of MediaPipe"),
    "'MaxUnpooling2D'": Builtin(_max_unpool, "of MediaPipe, of windows side by side"),
    "'TFLite_Detection_PostProcess'": Builtin(_detection),
    "NON_MAX_SUPPRESSION_V4": Builtin(_non_max_suppression, "of a constant number of boxes"),
    "NON_MAX_SUPPRESSION_V5": Builtin(_non_max_suppression, "of a constant number of boxes"),
}
