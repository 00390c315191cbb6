"""Where the windows of convolutions, pools and resizing lie: the arithmetic of ONNX's attributes, for any number of spatial axes."""
import numpy as np

from ..layers import LARGEST


def padding(node, spatial, kernel, strides, dilations):
    """(begin, end) zeros for each spatial axis, from ``pads`` or ``auto_pad``."""
    auto = node.attrs.get("auto_pad", "NOTSET")
    if auto in ("NOTSET", ""):
        pads = node.attrs.get("pads") or [0] * 2 * len(spatial)
        return list(zip(pads[:len(spatial)], pads[len(spatial):], strict=True))
    if auto == "VALID":
        return [(0, 0)] * len(spatial)
    found = []
    for i, k, s, d in zip(spatial, kernel, strides, dilations, strict=True):
        total = max((-(-i // s) - 1) * s + (k - 1) * d + 1 - i, 0)
        found.append((total // 2, total - total // 2) if auto == "SAME_UPPER" else (total - total // 2, total // 2))
    return found


def steps(node, kernel):
    """(strides, dilations) of a convolution or pool, whose kernel is checked too."""
    strides, dilations = ([int(v) for v in node.attrs.get(name) or [1] * len(kernel)] for name in ("strides", "dilations"))
    if any(not 1 <= v <= LARGEST for v in (*kernel, *strides, *dilations)):
        raise ValueError(f"{node.op} {node.name!r}: kernel {list(kernel)}, strides {strides} and dilations {dilations} must be at least 1 and below 2**31")
    return strides, dilations


def window(node, spatial, kernel):
    """(strides, dilations, pads) of a convolution or pool."""
    strides, dilations = steps(node, kernel)
    pads = padding(node, spatial, kernel, strides, dilations)
    if any(abs(p) > LARGEST for pair in pads for p in pair):
        raise ValueError(f"{node.op} {node.name!r}: padding {pads} must be below 2**31")
    return strides, dilations, pads


def output_sizes(node, spatial, kernel):
    """The spatial sizes of a convolution's or pool's result."""
    strides, dilations, pads = window(node, spatial, kernel)
    up, sizes = node.attrs.get("ceil_mode", 0), []
    for i, k, s, d, (begin, end) in zip(spatial, kernel, strides, dilations, pads, strict=True):
        reach = i + begin + end - (k - 1) * d - 1
        if reach < 0:
            raise ValueError(f"{node.op} {node.name!r}: a window of {(k - 1) * d + 1} does not fit an image of {i} with padding {begin}, {end}")
        o = -(-reach // s) + 1 if up else reach // s + 1
        sizes.append(o - 1 if up and (o - 1) * s >= i + begin else o)  # a window starts inside the image or its front padding
    return sizes


def transposed(node, spatial, kernel):
    """(sizes, strides, dilations, begins) of a transposed convolution's result; begins: how much is cropped in front."""
    n = len(spatial)
    strides, dilations = steps(node, kernel)
    extra = node.attrs.get("output_padding") or [0] * n
    full = [(i - 1) * s + (k - 1) * d + 1 + e for i, s, k, d, e in zip(spatial, strides, kernel, dilations, extra, strict=True)]
    auto, wanted = node.attrs.get("auto_pad", "NOTSET"), node.attrs.get("output_shape")
    if not wanted and auto in ("NOTSET", "VALID", ""):
        pads = (node.attrs.get("pads") if auto != "VALID" else None) or [0] * 2 * n
        return [f - b - e for f, b, e in zip(full, pads[:n], pads[n:], strict=True)], strides, dilations, pads[:n]
    wanted = wanted[-n:] if wanted else [i * s for i, s in zip(spatial, strides, strict=True)]
    crops = [max(f - w, 0) for f, w in zip(full, wanted, strict=True)]
    return wanted, strides, dilations, [c // 2 if auto != "SAME_LOWER" else c - c // 2 for c in crops]


def resize_sizes(node, shape, roi, scales, sizes):
    """(result's shape, scale of each axis) of a Resize. Scales are float32, and so are products with them: 10 * 0.7 is 7."""
    axes = [a % len(shape) for a in node.attrs.get("axes", range(len(shape)))]
    out, scale = list(shape), [1.0] * len(shape)
    if sizes is not None and sizes.size:
        ratios = [s / shape[a] for a, s in zip(axes, sizes.tolist(), strict=True)]
        policy = node.attrs.get("keep_aspect_ratio_policy", "stretch")
        if policy != "stretch":
            ratios = [min(ratios) if policy == "not_larger" else max(ratios)] * len(axes)
        for a, r, s in zip(axes, ratios, sizes.tolist(), strict=True):
            out[a], scale[a] = s if policy == "stretch" else int(np.floor(r * shape[a] + 0.5)), r
    else:
        for a, r in zip(axes, scales.tolist(), strict=True):
            out[a], scale[a] = shape[a] if r == 1 else int(np.float32(shape[a] * r)), r
    return tuple(out), scale


def resize_table(node, size, out, scale):
    """How one axis is resized: (i0, i1, t) with y[o] = (1 - t[o]) x[i0[o]] + t[o] x[i1[o]]; for the nearest point (i0, None, None).

    As in PyTorch and ONNX Runtime, `align_corners` lets the corners of the two images meet, where ONNX's reference takes those of size * scale.
    """
    o, transform = np.arange(out, dtype=np.float64), node.attrs.get("coordinate_transformation_mode", "half_pixel")
    if transform == "align_corners":
        x = o * (size - 1) / max(out - 1, 1)
    elif transform == "asymmetric":
        x = o / scale
    elif transform == "tf_half_pixel_for_nn":
        x = (o + 0.5) / scale
    elif transform == "pytorch_half_pixel" and out == 1:
        x = np.zeros(1)
    else:
        x = (o + 0.5) / scale - 0.5
        if transform == "half_pixel_symmetric":
            x += size / 2 * (1 - out / (scale * size))
    if node.attrs.get("mode", "nearest") == "nearest":
        rounding = {"round_prefer_floor": lambda v: np.ceil(v - 0.5), "round_prefer_ceil": lambda v: np.floor(v + 0.5),
                    "floor": np.floor, "ceil": np.ceil}[node.attrs.get("nearest_mode", "round_prefer_floor")]
        return np.clip(rounding(x.astype(np.float32)), 0, size - 1).astype(np.int64), None, None
    x = np.clip(x, 0, size - 1)
    i0 = np.floor(x).astype(np.int64)
    return i0, np.minimum(i0 + 1, size - 1), (x - i0).astype(np.float32)
