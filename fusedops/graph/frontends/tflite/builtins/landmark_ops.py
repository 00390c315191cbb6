"""MediaPipe's custom operators between a face's landmarks and parts of images, which face meshes with attention have:
a crop around some landmarks as a matrix, the pixels inside it, and landmarks of the crop back on the image."""

import numpy as np

from ..flat_model import table_of
from .entry import Builtin

F = np.float32


def _options(op, *names):
    """The options, which have these names; those of the operators' first versions have others."""
    found = table_of(op.custom)
    if not all(name in found for name in names):
        raise op.error(f"it is of another version: its options are {sorted(found)}, not {list(names)}")
    return found


def _number(r, values):
    return r.constant(r.at, np.array(values, F), F)


# ---- the matrix


def _transform_matrix(r, op):
    """The matrix (1, 4, 4) from pixels of a crop to the image, whose box holds landmarks (1, n, 3) of a subset when the
    line from one landmark to another is rotated to an angle."""
    ends, sizes = ("left_rotation_idx", "right_rotation_idx"), ("output_height", "output_width", "scale_x", "scale_y")
    options = _options(op, "subset_idxs", *ends, "target_rotation_radians", *sizes)
    height, width, scale_x, scale_y = size = [float(options.number(name)) for name in sizes]
    left, right = (int(options.number(name)) for name in ends)
    indices, shape = [left, right, *options.integers("subset_idxs")], r.sizes(op.inputs[0])
    fits = (
        shape is None
        or len(shape) == 3
        and all(
            n is None or good for n, good in zip(shape, (shape[0] == 1, max(indices) < (shape[1] or 0), shape[2] == 3))
        )
    )
    if not fits or len(indices) < 3 or min(indices) < 0 or min(height, width, scale_x, scale_y) <= 0:
        raise op.error(f"landmarks of shape {shape} and its options {indices}, {size} do not fit")
    points = r.emit("Slice", r.emit("Reshape", r.value(op.inputs[0]), [-1, 3]), [0], [2], [1])
    ends = r.emit("Gather", points, indices[:2], axis=0)
    back = _rotation(r, r.emit("MatMul", _number(r, [[-1, 1]]), ends), float(options.number("target_rotation_radians")))
    rotated = r.emit("MatMul", r.emit("Gather", points, indices[2:], axis=0), back)
    high, low = (r.emit(f"Reduce{kind}", rotated, [0], keepdims=1) for kind in ("Max", "Min"))
    middle = r.emit("Mul", r.emit("Add", high, low), r.number(0.5))
    center = r.emit("MatMul", middle, r.emit("Transpose", back, perm=[1, 0]))
    scales = r.emit("Mul", r.emit("Sub", high, low), _number(r, [[scale_x / width, scale_y / height]]))
    linear = r.emit("Mul", back, scales)
    corner = r.emit("MatMul", linear, _number(r, [[-width / 2], [-height / 2]]))
    moved = r.emit("Add", r.emit("Transpose", center, perm=[1, 0]), corner)
    rows = r.emit("Concat", linear, _number(r, np.zeros((2, 1))), moved, axis=1)
    whole = r.emit("Concat", rows, _number(r, [[0, 0, 1, 0], [0, 0, 0, 1]]), axis=0)
    r.put(op.outputs[0], r.emit("Reshape", whole, [1, 4, 4]))


def _rotation(r, line, angle):
    """The matrix (2, 2) that takes rows of points to where a line (1, 2) is at an angle; points themselves, as
    columns, it takes back. A line without length is one to the right."""
    length = r.emit("Sqrt", r.emit("ReduceSum", r.emit("Mul", line, line), [1], keepdims=1))
    none = r.emit("Equal", length, r.number(0.0))
    line = r.emit("Where", none, _number(r, [[1, 0]]), line)
    unit = r.emit("Div", line, r.emit("Where", none, r.number(1.0), length))
    c, s = np.cos(angle), np.sin(angle)
    return r.emit("Reshape", r.emit("MatMul", unit, _number(r, [[c, s, -s, c], [s, -c, c, s]])), [2, 2])


# ---- where it takes pixels and landmarks


def _parts(r, op):
    """(what turns and scales (2, 2), what moves (2, 1)) of a matrix from a crop."""
    if r.fixed(op.inputs[1]) not in (None, (1, 4, 4)):
        raise op.error(f"its matrix has the shape {r.fixed(op.inputs[1])}, not (1, 4, 4)")
    matrix = r.emit("Reshape", r.value(op.inputs[1]), [4, 4])
    return [r.emit("Slice", matrix, [0, first], [2, last], [0, 1]) for first, last in ((0, 2), (3, 4))]


def _mapped(r, points, linear, moved):
    """Points as rows, mapped."""
    rotated = r.emit("MatMul", points, r.emit("Transpose", linear, perm=[1, 0]))
    return r.emit("Add", rotated, r.emit("Transpose", moved, perm=[1, 0]))


def _transform_landmarks(r, op):
    """x and y of landmarks (1, n, 2 or 3) mapped; z stays."""
    shape = r.sizes(op.inputs[0])
    if shape is None or len(shape) != 3 or shape[2] not in (2, 3) or op.custom:
        raise op.error(f"it takes landmarks (1, n, 2 or 3) and no options, as version 2 does, not of shape {shape}")
    x = r.value(op.inputs[0])
    mapped = _mapped(r, r.emit("Slice", x, [0], [2], [2]), *_parts(r, op))
    if shape[2] == 3:
        mapped = r.emit("Concat", mapped, r.emit("Slice", x, [2], [3], [2]), axis=2)
    r.put(op.outputs[0], mapped)


def _transform_tensor(r, op):
    """The image (1, h, w, c) at the middles of a crop's pixels, between pixels by bilinear weights; 0 outside."""
    names = "output_height", "output_width"
    options, shape = _options(op, *names), r.fixed(op.inputs[0])
    height, width = (int(options.number(name)) for name in names)
    if shape is None or len(shape) != 4 or shape[0] != 1 or min(shape[1:3]) < 2 or not 0 < height * width <= 1 << 24:
        raise op.error(f"an image of shape {shape} and {height} x {width} results do not fit")
    rows, columns = np.indices((height, width)).reshape(2, -1) + 0.5
    points = _mapped(r, _number(r, np.stack([columns, rows], 1)), *_parts(r, op))
    points = r.emit("Sub", points, r.number(0.5))
    last = np.array([[shape[2] - 1, shape[1] - 1]])
    inside = r.emit("Max", r.emit("Min", points, _number(r, last)), r.number(0.0))
    outside = r.emit("ReduceMax", r.emit("Abs", r.emit("Sub", points, inside)), [1], keepdims=0)
    grid = r.emit("Sub", r.emit("Mul", inside, _number(r, 2 / last)), r.number(1.0))
    grid = r.emit("Reshape", grid, [1, height, width, 2])
    y = r.emit("GridSample", r.value(op.inputs[0], True), grid, align_corners=1, mode="linear", padding_mode="border")
    is_in = r.emit("Equal", r.emit("Reshape", outside, [1, 1, height, width]), r.number(0.0))
    r.put(op.outputs[0], r.emit("Where", is_in, y, r.number(0.0)), True)


READERS = {
    "'Landmarks2TransformMatrix'": Builtin(_transform_matrix, "of MediaPipe, version 2"),
    "'TransformLandmarks'": Builtin(_transform_landmarks, "of MediaPipe, version 2"),
    "'TransformTensorBilinear'": Builtin(_transform_tensor, "of MediaPipe, version 2"),
}
