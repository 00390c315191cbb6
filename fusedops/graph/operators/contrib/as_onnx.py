"""Operators of com.microsoft that ONNX has since, or that a few of its nodes are."""

import numpy as np

from ...ir.graph import Node
from ...ir.graph_builder import GraphBuilder
from ..schema import Rewrite

# The values of 4 bits in bitsandbytes' two types.
_FP4 = [0, 0.0625 / 12, 8 / 12, 1, 4 / 12, 6 / 12, 2 / 12, 3 / 12]
_NF4 = [-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635,
        -0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634,
        0.33791524171829224, 0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0]  # fmt: skip
_TABLES = [*_FP4, *[-v for v in _FP4]], _NF4


def _number(r: GraphBuilder, node, name, value, dtype=np.float32):
    return r.constant(f"{node.name}.{name}", value, dtype)


def _known(r: GraphBuilder, node, i, what):
    found = r.graph.constants.get(node.input(i))
    if found is None:
        raise ValueError(f"{node.op} {node.name!r} has a {what} that is not constant, which fusedops does not have")
    return found


def _read_distances(r: GraphBuilder, node):
    """Distances between the rows of two matrices, or their squares."""
    a, b = (
        r.node("Unsqueeze", node, v, _number(r, node, "axis", [i], np.int64))
        for v, i in zip(node.inputs, (1, 0), strict=True)
    )
    gaps, axis = r.node("Sub", node, a, b), _number(r, node, "last", [-1], np.int64)
    square = node.attrs.get("metric", "sqeuclidean") == "sqeuclidean"
    squares = r.node("Mul", node, gaps, gaps)
    y = r.node("ReduceSum", node, squares, axis, result=node.output if square else None, keepdims=0)
    if not square:
        r.node("Sqrt", node, y, result=node.output)


def _read_expand_dims(r: GraphBuilder, node):
    axis = _known(r, node, 1, "axis").reshape(-1)
    r.node("Unsqueeze", node, node.inputs[0], _number(r, node, "axis", axis, np.int64), result=node.output)


def _read_grid_sample(r: GraphBuilder, node):
    mode = {"bilinear": "linear", "bicubic": "cubic"}
    attrs = node.attrs | {"mode": mode.get(node.attrs.get("mode", "bilinear"), node.attrs.get("mode"))}
    r.add(Node("GridSample", node.name, node.inputs, node.outputs, attrs))


def _read_unique(r: GraphBuilder, node):
    """Numbers in the order in which they come first, the index of each element among them, and how often they come."""
    y, inverse, counts = [*node.outputs, "", ""][:3]
    r.add(Node("Unique", node.name, node.inputs, [y, "", inverse, counts], {"sorted": 0}))


def _read_crop_and_resize(r: GraphBuilder, node):
    """Parts of images, whose corners are fractions of the last row and column, as images of one size."""
    x, _, which = node.inputs[:3]
    if node.attrs.get("mode", "bilinear") != "bilinear":
        raise ValueError(f"{node.op} {node.name!r} takes nearest pixels, which fusedops does not have: it has bilinear")
    rows, columns = _grid_axes(r, node)
    axis, last, channel = (_number(r, node, "axis", [a], np.int64) for a in (3, -1, 1))
    common = r.node("Shape", node, r.node("Add", node, rows, columns))
    grid = [r.node("Unsqueeze", node, r.node("Expand", node, v, common), axis) for v in (columns, rows)]
    grid = r.node("Concat", node, *grid, axis=3)
    images = r.node("Gather", node, x, which, axis=0)
    y = r.node("GridSample", node, images, grid, align_corners=1, padding_mode="border", mode="linear")
    far = r.node("ReduceMax", node, r.node("Abs", node, grid), last, keepdims=0)
    outside = r.node("Unsqueeze", node, r.node("Greater", node, far, r.constant_like(node, "edge", 1.0)), channel)
    fill = r.constant_like(node, "fill", float(node.attrs.get("extrapolation_value", 0.0)))
    r.node("Where", node, outside, fill, y, result=node.output)


def _grid_axes(r: GraphBuilder, node):
    """Where the rows (n, height, 1) and columns (n, 1, width) of the parts lie, from -1 to 1."""
    corners = r.node("Split", node, node.inputs[1], outputs=4, axis=1, num_outputs=4)  # y, x of the first, y, x
    found = []
    for i, n in enumerate(_known(r, node, 3, "size").reshape(-1).tolist()):
        steps = np.linspace(-1, 1, n) if n > 1 else np.zeros(1)
        # first + (last - first) (step + 1) / 2, of which twice less 1
        middle = r.node("Sub", node, r.node("Add", node, corners[i], corners[2 + i]), r.constant_like(node, "one", 1.0))
        size = r.node("Sub", node, corners[2 + i], corners[i])
        at = r.node("Add", node, r.node("Mul", node, size, _number(r, node, "steps", steps[np.newaxis])), middle)
        found.append(r.node("Unsqueeze", node, at, _number(r, node, "axis", [2 - i], np.int64)))
    return found


def _read_bnb4(r: GraphBuilder, node):
    """A product with weights of 4 bits of bitsandbytes, the first of two in the upper bits, in blocks of a largest
    magnitude each."""
    packed, largest = _known(r, node, 1, "matrix of weights").reshape(-1), _known(r, node, 2, "list of scales")
    n, k, block, kind = (node.attrs[name] for name in ("N", "K", "block_size", "quant_type"))
    if kind not in (0, 1) or packed.size * 2 < n * k or block < 1 or largest.size < -(-n * k // block):
        raise ValueError(f"{node.op} {node.name!r} has no {n} x {k} weights of its types in blocks of {block}")
    table = np.array(_TABLES[kind], np.float32)
    each = table[np.stack([packed >> 4, packed & 15], -1).reshape(-1)[: n * k]]
    each = each * np.repeat(largest.reshape(-1).astype(np.float32), block)[: n * k]
    transposed = node.attrs.get("transB", 1)
    w = np.ascontiguousarray(each.reshape(n, k).T) if transposed else each.reshape(k, n)
    r.node("MatMul", node, node.inputs[0], _number(r, node, "weights", w), result=node.output)


RECORDS = {
    f"com.microsoft.{name}": record
    for name, record in {
        "CDist": Rewrite(_read_distances, ("Sub", "ReduceSum")),
        "CropAndResize": Rewrite(_read_crop_and_resize, ("GridSample", "Where")),
        "ExpandDims": Rewrite(_read_expand_dims, ("Unsqueeze",)),
        "GridSample": Rewrite(_read_grid_sample, ("GridSample",)),
        "MatMulBnb4": Rewrite(_read_bnb4, ("MatMul",)),
        "Unique": Rewrite(_read_unique, ("Unique",)),
    }.items()
}
