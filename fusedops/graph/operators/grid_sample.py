"""What reads an image at places that are no pixels, and boxes in images; for deformable convolutions, too
(deform_conv.py)."""

import itertools
import math

import numpy as np

from ... import _core
from ..ir.graph_builder import GraphBuilder
from ..steps.lowering import LoweringContext
from ..steps.tensor import along, row_major
from . import conv_geometry
from .schema import Inference, Kernel, NumPyOnly, Operator, always, values

CUBIC = -0.75  # the coefficient of GridSample's cubic weights


def taps(places, mode, cubic=CUBIC):
    """Pairs (index, weight) of the points that a value at each of the places is made of."""
    if mode == "nearest":
        return [(np.rint(places).astype(np.int64), np.ones_like(places))]
    first = np.floor(places)
    t, i = places - first, first.astype(np.int64)
    if mode == "linear":
        return [(i, 1 - t), (i + 1, t)]
    near, far = (
        [(cubic + 2) * d**3 - (cubic + 3) * d**2 + 1 for d in (t, 1 - t)],
        [cubic * (d**3 - 5 * d**2 + 8 * d - 4) for d in (1 + t, 2 - t)],
    )
    return [(i - 1, far[0]), (i, near[0]), (i + 1, near[1]), (i + 2, far[1])]


def interpolate(x, places, mode, inside):
    """Values (n, points..., c) of images x (n, c, spatial...) at places, an array (n, points...) for each spatial axis.
    `inside` makes indices into an axis of those that may lie beyond it, with a factor: inside(axis, i) -> (i, factor).
    """
    sizes, pixels = x.shape[2:], np.ascontiguousarray(np.moveaxis(x, 1, -1)).reshape(-1, x.shape[1])
    first = np.arange(x.shape[0]).reshape(-1, *[1] * (places[0].ndim - 1)) * math.prod(sizes)  # pixels of each image
    lines = []
    for axis, p in enumerate(places):
        along = [(*inside(axis, i), w) for i, w in taps(p, mode)]
        lines.append([(i * math.prod(sizes[axis + 1 :]), w * factor) for i, factor, w in along])
    chosen = list(itertools.product(*lines))
    at = np.stack([sum((i for i, _ in each), first) for each in chosen])
    weights = np.stack([math.prod(w for _, w in each) for each in chosen])
    if x.dtype == np.float32:
        flat = len(chosen), -1
        y = _core.sampled(pixels, at.reshape(flat), weights.astype(np.float32, copy=False).reshape(flat))
        return y.reshape(*places[0].shape, -1)
    dtype = np.result_type(x, places[0])
    weighed = zip(at, weights[..., np.newaxis].astype(dtype), strict=True)
    # what weighs 0 may be infinite, and beyond the image
    return sum(
        np.multiply(pixels[i], w, out=np.zeros((*i.shape, x.shape[1]), dtype), where=w != 0) for i, w in weighed
    ).astype(x.dtype)


def zeros_outside(sizes):
    """For interpolate: what is beyond the image counts as 0."""

    def inside(axis, i):
        return np.clip(i, 0, sizes[axis] - 1), (i >= 0) & (i < sizes[axis])

    return inside


def _bordered(sizes, reflecting=None):
    """For interpolate: what is beyond the image is the pixel at its border, or the one that the border reflects."""

    def inside(axis, i):
        i = i if reflecting is None else _reflected(i, *reflecting[axis])
        return np.clip(i, 0, sizes[axis] - 1).astype(np.int64), 1

    return inside


def _reflected(v, low, high):
    """Places beyond two borders as they are reflected there, as often as need be."""
    span = high - low
    if span <= 0:
        return np.zeros_like(v)
    d = np.mod(v - low, 2 * span)
    return low + np.minimum(d, 2 * span - d)


def _mode(node):
    """How a node reads between pixels, and beyond the image; whether -1 and 1 are the middles of its corners."""
    mode, padding, corners = (
        node.attrs.get(name, default)
        for name, default in (("mode", "linear"), ("padding_mode", "zeros"), ("align_corners", 0))
    )
    return {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode), padding, corners


def _borders(sizes, corners):
    """What reflects along each axis."""
    return [(0, n - 1) if corners else (-0.5, n - 0.5) for n in sizes]


def _grid_sample(node, x, grid):
    (mode, padding, corners), sizes = _mode(node), x.shape[2:]
    places = [
        (g + 1) / 2 * (n - 1) if corners else ((g + 1) * n - 1) / 2
        for g, n in zip(np.moveaxis(grid, -1, 0)[::-1], sizes, strict=True)
    ]
    borders = _borders(sizes, corners)
    inside = zeros_outside(sizes)
    if padding == "border":
        places = places if mode == "cubic" else [np.clip(p, 0, n - 1) for p, n in zip(places, sizes, strict=True)]
        inside = _bordered(sizes)
    elif padding == "reflection":
        places = places if mode == "cubic" else [_reflected(p, *b) for p, b in zip(places, borders, strict=True)]
        inside = _bordered(sizes, borders)
    return np.moveaxis(interpolate(x, places, mode, inside), -1, 1)


def _lower_grid_sample(p: LoweringContext, node):
    x, grid = p.at(node.inputs[0]), p.at(node.inputs[1])
    if len(x.shape) != 4 or x.dtype != np.float32 or grid.dtype != np.float32:
        return False
    mode, beyond, corners = _mode(node)
    places = [along(grid, 3, i, 1) for i in (1, 0)]
    places = [
        t._replace(shape=(t.shape[0], 1, *t.shape[1:3]), strides=(t.strides[0], 0, *t.strides[1:3])) for t in places
    ]
    image, y = p.pixels(node, node.inputs[0]), p.result(node.output, image=True, direct=False)
    add_reading(p, node, image, places, y, mode, beyond, "corners" if corners else "borders")
    return True


def add_reading(p: LoweringContext, node, x, places, y, mode, beyond, coordinates):
    """Adds the step that reads images x at places (n, 1, oh, ow), a tensor for each axis."""
    rows, columns = places
    p.add("grid_sample", node, x=x, rows=rows, columns=columns, y=y, mode=mode, beyond=beyond, coordinates=coordinates)


def _grid_sample_shape(node, x, grid):
    if (
        len(x.shape) < 3
        or len(grid.shape) != len(x.shape)
        or grid.shape[0] != x.shape[0]
        or grid.shape[-1] != len(x.shape) - 2
    ):
        raise ValueError(
            f"a grid of shape {grid.shape} does not fit: it needs {x.shape[0]} images and "
            f"{len(x.shape) - 2} coordinates a point"
        )
    return (*x.shape[:2], *grid.shape[1:-1])


def _affine_grid(node, theta, size):
    """Coordinates of a grid's points, from -1 to 1 along each axis, as a matrix moves them."""
    axes, corners = size.tolist()[2:], node.attrs.get("align_corners", 0)
    lines = [
        np.linspace(-1, 1, n) if corners and n > 1 else np.zeros(n) if corners else (2 * np.arange(n) + 1) / n - 1
        for n in axes
    ]
    points = np.stack([*np.meshgrid(*lines, indexing="ij")[::-1], np.ones(axes)], -1)
    return np.einsum("nij,...j->n...i", theta.astype(np.float64), points).astype(theta.dtype)


def _affine_grid_shape(node, theta, size):
    n, _, *axes = values(size, "size").tolist()
    if len(axes) not in (2, 3) or theta.shape != (n, len(axes), len(axes) + 1):
        raise ValueError(f"matrices of shape {theta.shape} must have {(n, len(axes), len(axes) + 1)}")
    return (n, *axes, len(axes))


def _roi_line(start, size, bins, ratio, length):
    """How one axis of a box is read: ((index, weight) of the lower and the upper points, all (bins, samples)). Beyond
    the image all weighs 0."""
    samples = ratio if ratio > 0 else max(math.ceil(size / bins), 0)
    step = size / bins
    p = start + step * np.arange(bins)[:, np.newaxis] + (np.arange(samples) + 0.5) * step / max(samples, 1)
    seen = (p >= -1) & (p <= length)
    p = np.clip(p, 0, length - 1)
    i = p.astype(np.int64)
    return [(i, (i + 1 - p) * seen), (np.minimum(i + 1, length - 1), (p - i) * seen)]


def _roi_mean(image, lines, result):
    """The means over the samples of bins (bins, bins, c) of an image (h, w, c): a product with a matrix for each
    axis."""
    y = image
    for axis, line in enumerate(lines):
        first, end = min(i.min() for i, _ in line), max(i.max() for i, _ in line) + 1
        bins, samples = line[0][0].shape
        weights = np.zeros((bins, end - first))
        for i, w in line:
            np.add.at(weights, (np.arange(bins)[:, np.newaxis], i - first), w / samples)
        weights = weights.astype(y.dtype)
        y = weights @ y[:, first:end] if axis else np.tensordot(weights, y[first:end], (1, 0))
    result[:] = y


def _roi_max(image, lines, result):
    """The largest of the four points around each sample, each times its weight."""
    result[:] = np.max(
        [
            image[i[:, np.newaxis, :, np.newaxis], j[:, np.newaxis]]
            * (u[:, np.newaxis, :, np.newaxis] * v[:, np.newaxis])[..., np.newaxis]
            for i, u in lines[0]
            for j, v in lines[1]
        ],
        0,
    ).max((2, 3))


def _roi_align(node, x, rois, batch):
    bins = node.attrs.get("output_height", 1), node.attrs.get("output_width", 1)
    ratio, scale = node.attrs.get("sampling_ratio", 0), node.attrs.get("spatial_scale", 1.0)
    centred = node.attrs["coordinate_transformation_mode"] == "half_pixel"
    pool = _roi_mean if node.attrs.get("mode", "avg") == "avg" else _roi_max
    pixels = np.ascontiguousarray(np.moveaxis(x, 1, -1)).astype(np.result_type(x, np.float32), copy=False)
    if not np.isfinite(rois).all():
        first = int(np.argmin(np.isfinite(rois).all(1)))
        raise ValueError(f"{node.op} {node.name!r}: box {first} is {rois[first].tolist()}, but boxes must be finite")
    y = np.zeros((rois.shape[0], *bins, x.shape[1]), x.dtype)
    for roi, image, result in zip(rois.astype(np.float64) * scale - 0.5 * centred, batch.tolist(), y, strict=True):
        sizes = roi[3] - roi[1], roi[2] - roi[0]
        sizes = sizes if centred else [max(s, 1.0) for s in sizes]
        lines = [
            _roi_line(s, d, b, ratio, n) for s, d, b, n in zip((roi[1], roi[0]), sizes, bins, x.shape[2:], strict=True)
        ]
        if 0 not in x.shape[2:] and all(line[0][0].size for line in lines):
            pool(pixels[image], lines, result)
    return np.moveaxis(y, -1, 1)


def _lower_roi_align(p: LoweringContext, node):
    x, boxes, images = (p.at(v) for v in node.inputs)
    if node.attrs.get("mode", "avg") != "avg" or x.dtype != np.float32 or boxes.dtype != np.float32:
        return False
    scale, centred = node.attrs.get("spatial_scale", 1.0), node.attrs["coordinate_transformation_mode"] == "half_pixel"
    if images.dtype != np.int64:
        wide = p.new(images.shape, dtype=np.dtype(np.int64))
        p.map(node, "cast", wide, images)
        images = wide
    p.add(
        "roi_align",
        node,
        x=p.pixels(node, node.inputs[0]),
        boxes=p.dense(node, boxes, row_major(boxes.shape)),
        images=images,
        y=p.result(node.output, image=True, direct=False),
        samples=max(node.attrs.get("sampling_ratio", 0), 0),
        scale=scale,
        shift=-0.5 * centred,
        centred=centred,
    )
    return True


def _roi_align_shape(node, x, rois, batch):
    if len(x.shape) != 4 or len(rois.shape) != 2 or rois.shape[1] != 4 or batch.shape != rois.shape[:1]:
        raise ValueError("it needs images (n, c, h, w), boxes (count, 4) and the index of an image for each")
    if batch.data is not None and batch.data.size and not 0 <= batch.data.min() <= batch.data.max() < x.shape[0]:
        raise ValueError(f"there are boxes in images {batch.data.min()} to {batch.data.max()} of {x.shape[0]}")
    return (rois.shape[0], x.shape[1], node.attrs.get("output_height", 1), node.attrs.get("output_width", 1))


def _max_roi_pool(node, x, rois):
    bins, scale, sizes = node.attrs["pooled_shape"], node.attrs.get("spatial_scale", 1.0), x.shape[2:]
    y = np.zeros((rois.shape[0], x.shape[1], *bins), x.dtype)
    for roi, result in zip(rois, y, strict=True):
        image, (left, top, right, bottom) = int(roi[0]), np.floor(roi[1:] * scale + 0.5).astype(int).tolist()
        cuts = [
            [
                slice(*(min(max(first + v, 0), n) for v in (i * length // b, -(-(i + 1) * length // b))))
                for i in range(b)
            ]
            for first, length, b, n in zip(
                (top, left), (max(bottom - top + 1, 1), max(right - left + 1, 1)), bins, sizes, strict=True
            )
        ]
        for i, j in np.ndindex(*bins):
            part = x[image, :, cuts[0][i], cuts[1][j]]
            result[:, i, j] = part.max((1, 2)) if part.size else 0
    return y


def _max_roi_pool_shape(node, x, rois):
    if len(x.shape) != 4 or len(rois.shape) != 2 or rois.shape[1] != 5:
        raise ValueError(
            "it needs images (n, c, h, w) and boxes (count, 5), an image's index before the four coordinates"
        )
    return (rois.shape[0], x.shape[1], *node.attrs["pooled_shape"])


def _suppressed(node, boxes, scores, most=None, overlap=None, least=None):
    """Rows (batch, class, box) of the boxes that are kept, the best first, none of which overlaps a better one of its
    class too much."""
    most, overlap, least = (None if v is None else v.reshape(-1)[0] for v in (most, overlap, least))
    boxes, scores = (np.asarray(v, np.float32) for v in (boxes, scores))
    return _core.suppressed(boxes, scores, most or 0, overlap or 0, least, node.attrs.get("center_point_box", 0))


def _suppressed_shape(node, boxes, scores, *limits):
    if len(boxes.shape) != 3 or len(scores.shape) != 3 or boxes.shape != (scores.shape[0], scores.shape[2], 4):
        raise ValueError("it needs boxes (batch, count, 4) and scores (batch, classes, count)")
    given = [None if v is None else values(v, "number of boxes") for v in (boxes, scores, *limits)]
    return _suppressed(node, *given).shape


def _col2im(node, x, image, block):
    """Sums of columns (n, c * taps, places) at the pixels that they were taken from."""
    kernel, size = block.tolist(), image.tolist()
    strides, dilations, pads = conv_geometry.window(node, size, kernel)
    counts = conv_geometry.output_sizes(node, size, kernel)
    columns = x.reshape(x.shape[0], -1, *kernel, *counts)
    y = np.zeros((*columns.shape[:2], *(n + b + e for n, (b, e) in zip(size, pads, strict=True))), x.dtype)
    for tap in np.ndindex(*kernel):
        where = tuple(
            slice(t * d, t * d + (o - 1) * s + 1, s) for t, d, o, s in zip(tap, dilations, counts, strides, strict=True)
        )
        y[(slice(None), slice(None), *where)] += columns[(slice(None), slice(None), *tap)]
    return y[(slice(None), slice(None), *(slice(b, b + n) for n, (b, _) in zip(size, pads, strict=True)))]


def _col2im_shape(node, x, image, block):
    kernel, size = values(block, "block's shape").tolist(), values(image, "image's shape").tolist()
    places, taps_ = math.prod(conv_geometry.output_sizes(node, size, kernel)), math.prod(kernel)
    if len(x.shape) != 3 or x.shape[1] % taps_ or x.shape[2] != places:
        raise ValueError(
            f"columns of blocks {kernel} of an image {size} must have the shape (n, c * {taps_}, {places})"
        )
    return (x.shape[0], x.shape[1] // taps_, *size)


def _read_roi_align(r: GraphBuilder, node):
    node.attrs.setdefault("coordinate_transformation_mode", "half_pixel" if r.opset >= 16 else "output_half_pixel")
    r.add(node)


RECORDS = {
    "AffineGrid": Operator(
        _affine_grid, Inference(_affine_grid_shape, shape_inputs=(1,), may_grow=True), NumPyOnly("no kernel: rare")
    ),
    "Col2Im": Operator(_col2im, Inference(_col2im_shape, shape_inputs=(1, 2)), NumPyOnly("no kernel: rare")),
    "GridSample": Operator(
        _grid_sample, Inference(_grid_sample_shape, may_grow=True), Kernel(_lower_grid_sample, "two spatial axes")
    ),
    "MaxRoiPool": Operator(_max_roi_pool, Inference(_max_roi_pool_shape, may_grow=True), NumPyOnly("no kernel: rare")),
    "NonMaxSuppression": Operator(
        _suppressed,
        Inference(_suppressed_shape, dtype=always(np.int64), shape_inputs=(0, 1, 2, 3, 4)),
        NumPyOnly("how many boxes it finds depends on values: a plan is made for each"),
    ),
    "RoiAlign": Operator(
        _roi_align,
        Inference(_roi_align_shape, may_grow=True),
        Kernel(_lower_roi_align, "of means"),
        _read_roi_align,
    ),
}
