"""Where the windows of convolutions and pools lie: the arithmetic of ONNX's attributes, for any number of spatial
axes."""

import numpy as np

from ...layers import LARGEST
from ..ir.symbolic import SymInt
from ..steps.tensor import part


def padding(node, spatial, kernel, strides, dilations):
    """(begin, end) zeros for each spatial axis, from ``pads`` or ``auto_pad``."""
    auto = node.attrs.get("auto_pad", "NOTSET")
    if auto in ("NOTSET", ""):
        pads = node.attrs.get("pads", ()) or [0] * 2 * len(spatial)
        return list(zip(pads[: len(spatial)], pads[len(spatial) :], strict=True))
    if auto == "VALID":
        return [(0, 0)] * len(spatial)
    found = []
    for i, k, s, d in zip(spatial, kernel, strides, dilations, strict=True):
        total = max((-(-i // s) - 1) * s + (k - 1) * d + 1 - i, 0)
        found.append((total // 2, total - total // 2) if auto == "SAME_UPPER" else (total - total // 2, total // 2))
    return found


def strides_dilations(node, kernel):
    """(strides, dilations) of a convolution or pool, whose kernel is checked too."""
    strides, dilations = (list(node.attrs.get(name, ()) or [1] * len(kernel)) for name in ("strides", "dilations"))
    if not all(isinstance(v, (int, np.integer, SymInt)) and 1 <= v <= LARGEST for v in (*kernel, *strides, *dilations)):
        raise ValueError(
            f"{node.op} {node.name!r}: kernel {list(kernel)}, strides {strides} and dilations {dilations} must be at "
            f"least 1 and below 2**31"
        )
    return strides, dilations


def window(node, spatial, kernel):
    """(strides, dilations, pads) of a convolution or pool."""
    strides, dilations = strides_dilations(node, kernel)
    pads = padding(node, spatial, kernel, strides, dilations)
    if any(abs(p) > LARGEST for pair in pads for p in pair):
        raise ValueError(f"{node.op} {node.name!r}: padding {pads} must be below 2**31")
    return strides, dilations, pads


def output_sizes(node, spatial, kernel):
    """The spatial sizes of a convolution's or pool's result."""
    strides, dilations, pads = window(node, spatial, kernel)
    up, sizes = node.attrs.get("ceil_mode", 0), []
    for i, k, s, d, (begin, end) in zip(spatial, kernel, strides, dilations, pads, strict=True):
        over = node.op == "MaxPool" and i > 0  # a window larger than the image by less than a stride, as ONNX Runtime's
        reach = i + begin + end - (k - 1) * d - 1
        o = -(-reach // s) + 1 if up or over and reach < 0 else reach // s + 1
        if o < 1 or reach < 0 and not (up or over):
            raise ValueError(f"a window of {(k - 1) * d + 1} does not fit an image of {i} with padding {begin}, {end}")
        # a window starts inside the image or its front padding
        sizes.append(o - 1 if up and (o - 1) * s >= i + begin else o)
    return sizes


def counted(node, sizes, pads):
    """(first row, end, first column, end) of what counts for the mean of a window of two axes."""
    (h, w), ((top, bottom), (left, right)) = sizes, pads
    return (-top, h + bottom, -left, w + right) if node.attrs.get("count_include_pad", 0) else (0, h, 0, w)


def transposed(node, spatial, kernel):
    """(sizes, strides, dilations, begins) of a transposed convolution's result; begins: how much is cropped in
    front."""
    n = len(spatial)
    strides, dilations = strides_dilations(node, kernel)
    extra = node.attrs.get("output_padding") or [0] * n
    full = [
        (i - 1) * s + (k - 1) * d + 1 + e
        for i, s, k, d, e in zip(spatial, strides, kernel, dilations, extra, strict=True)
    ]
    auto, wanted = node.attrs.get("auto_pad", "NOTSET"), node.attrs.get("output_shape")
    if not wanted and auto in ("NOTSET", "VALID", ""):
        pads = (node.attrs.get("pads") if auto != "VALID" else None) or [0] * 2 * n
        return [f - b - e for f, b, e in zip(full, pads[:n], pads[n:], strict=True)], strides, dilations, pads[:n]
    wanted = wanted[-n:] if wanted else [i * s for i, s in zip(spatial, strides, strict=True)]
    crops = [max(f - w, 0) for f, w in zip(full, wanted, strict=True)]
    return wanted, strides, dilations, [c // 2 if auto == "SAME_UPPER" else c - c // 2 for c in crops]


def view(x, kernel, strides, dilations):
    """A view (n, c, out..., kernel...) of the windows of x (n, c, spatial...)."""
    n = len(kernel)
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    v = np.lib.stride_tricks.sliding_window_view(x, spans, axis=tuple(range(2, 2 + n)))
    return v[
        (slice(None),) * 2
        + tuple(slice(None, None, s) for s in strides)
        + tuple(slice(None, None, d) for d in dilations)
    ]


def cropped(node, x, pads):
    """(the view of an image without what negative pads cut off, the pads that are left)."""
    if min(node.attrs.get("pads") or [0]) >= 0:
        return x, pads
    inside = [slice(max(-b, 0), n + min(e, 0)) for n, (b, e) in zip(x.shape[2:], pads, strict=True)]
    return part(x, [slice(None), slice(None), *inside]), [(max(b, 0), max(e, 0)) for b, e in pads]


def padded(x, pads, value):
    """An image with borders; negative ones are cut off."""
    x = x[
        (slice(None),) * 2
        + tuple(slice(max(-b, 0), min(n + e, n)) for n, (b, e) in zip(x.shape[2:], pads, strict=True))
    ]
    pads = [(max(b, 0), max(e, 0)) for b, e in pads]
    return np.pad(x, [(0, 0), (0, 0), *pads], constant_values=value) if any(map(any, pads)) else x
