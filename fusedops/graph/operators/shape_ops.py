"""What gives elements other places or shapes: views, or copies where strides cannot say it."""

import math

import numpy as np

from ..ir.dtypes import ANY
from ..ir.graph_builder import GraphBuilder
from ..ir.symbolic import as_dim, integers
from ..steps.lowering import LoweringContext
from ..steps.tensor import along, broadcast, broadcast_shapes, extent, part
from .schema import (
    Inference,
    Kernel,
    NumPyOnly,
    Operator,
    Rewrite,
    Traits,
    always,
    axes_of,
    axis_of,
    same_shape,
    values,
    with_inputs,
)


def _flat(node, shape):
    axis = node.attrs.get("axis", 1)
    axis += len(shape) * (axis < 0)
    if not 0 <= axis <= len(shape):
        raise ValueError(f"its axis {node.attrs['axis']} is none of {len(shape)}")
    return math.prod(shape[:axis]), math.prod(shape[axis:])


def _reshaped(node, shape, wanted):
    wanted = [as_dim(w) for w in wanted]
    if not node.attrs.get("allowzero", 0):
        if 0 in wanted[len(shape) :]:
            raise ValueError(f"{wanted} keeps sizes of more axes than {len(shape)}")
        wanted = [shape[i] if w == 0 else w for i, w in enumerate(wanted)]
    if min(wanted, default=0) < -1 or wanted.count(-1) > 1:
        raise ValueError(f"{wanted} is not a shape")
    if -1 in wanted:
        rest = math.prod(w for w in wanted if w != -1)
        wanted[wanted.index(-1)] = math.prod(shape) // rest if rest else 0
    return tuple(wanted)


def _unsqueezed(shape, axes):
    axes = np.ravel(axes)  # ONNX's own functions give one as a number
    ndim = len(shape) + len(axes)
    where, rest = axes_of(axes, ndim), iter(shape)
    return tuple(1 if i in where else next(rest) for i in range(ndim))


def _squeezed(shape, axes):
    where = axes_of(np.ravel(axes), len(shape)) if axes is not None else [i for i, s in enumerate(shape) if s == 1]
    if any(shape[i] != 1 for i in where):
        raise ValueError(f"the axes {list(where)} do not all have length 1")
    return tuple(s for i, s in enumerate(shape) if i not in where)


def _split_sizes(node, length, sizes):
    parts = len(node.outputs)
    each = -(-length // parts)
    sizes = [min(each, length - i * each) for i in range(parts)] if sizes is None else [as_dim(s) for s in sizes]
    if len(sizes) != parts or sum(sizes) != length or min(sizes) < 0 or node.attrs.get("num_outputs", parts) != parts:
        raise ValueError(f"an axis of {length} cannot be split into {parts} parts of {sizes}")
    return sizes


def _slices(shape, starts, ends, axes=None, steps=None):
    """The Python _slices of a Slice."""
    found = [slice(None)] * len(shape)
    given = [a for a in (starts, ends, axes, steps) if a is not None]
    if len(starts.shape) != 1 or any(a.shape != starts.shape for a in given):
        raise ValueError(f"its starts, ends, axes and steps have the shapes {', '.join(str(a.shape) for a in given)}")
    axes = range(starts.shape[0]) if axes is None else axes.tolist()
    if any(not -len(shape) <= a < len(shape) for a in axes):
        raise ValueError(f"{list(axes)} are not axes of an array of {len(shape)}")
    for i, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        axis, step = axes[i], int(steps[i]) if steps is not None else 1
        size = shape[axis]
        start, end = start + size * (start < 0), end + size * (end < 0)
        if step > 0:
            found[axis] = slice(min(max(start, 0), size), min(max(end, 0), size), step)
        else:
            end = min(max(end, -1), size - 1)
            found[axis] = slice(min(max(start, 0), size - 1), None if end < 0 else end, step)
    return tuple(found)


def _flatten(node, x):
    return x.reshape(_flat(node, x.shape))


def _dropout(node, x):
    return (x, np.ones(x.shape, np.bool_))[: len(node.outputs)]


def _split(node, x, sizes=None):
    axis = node.attrs.get("axis", 0)
    return np.split(x, np.cumsum(_split_sizes(node, x.shape[axis], sizes))[:-1], axis)


def _shape(node, x):
    return integers(x.shape[node.attrs.get("start", 0) : node.attrs.get("end")])


def _constant_of_shape(node, shape):
    value = node.attrs.get("value", np.zeros(1, np.float32))
    return np.full(tuple(shape.tolist()), value.item(), value.dtype)


def blocks(node, shape):
    """How DepthToSpace and SpaceToDepth move squares of pixels: (x's shape with the squares as axes, the order of those
    in y, y's shape)."""
    (n, c, h, w), b = shape, node.attrs["blocksize"]
    if node.op == "SpaceToDepth":
        if b < 1 or h % b or w % b:
            raise ValueError(f"an image of {h} x {w} does not consist of blocks of {b} x {b}")
        order = (0, 1, 3, 5, 2, 4) if node.attrs.get("mode", "DCR") == "CRD" else (0, 3, 5, 1, 2, 4)
        return (n, c, h // b, b, w // b, b), order, (n, c * b * b, h // b, w // b)
    if b < 1 or c % (b * b):
        raise ValueError(f"{c} channels do not fill blocks of {b} x {b} pixels")
    rest = c // (b * b)
    if node.attrs.get("mode", "DCR") == "CRD":
        return (n, rest, b, b, h, w), (0, 1, 4, 2, 5, 3), (n, rest, h * b, w * b)
    return (n, b, b, rest, h, w), (0, 3, 4, 1, 5, 2), (n, rest, h * b, w * b)


def _move_blocks(node, x):
    split, order, shape = blocks(node, x.shape)
    return x.reshape(split).transpose(order).reshape(shape)


def _expand(node, x, shape):
    return x * np.ones(shape.tolist(), x.dtype) if x.dtype != bool else x & np.ones(shape.tolist(), bool)


def _concat_shape(node, *xs):
    axis = axis_of(node, len(xs[0].shape))
    first, *rest = (x.shape[:axis] + x.shape[axis + 1 :] for x in xs)
    if any(shape != first for shape in rest):
        raise ValueError(f"all but axis {axis} must agree")
    return (*xs[0].shape[:axis], sum(x.shape[axis] for x in xs), *xs[0].shape[axis + 1 :])


def _reshape_shape(node, x, shape):
    wanted = _reshaped(node, x.shape, values(shape, "shape"))
    if math.prod(wanted) != math.prod(x.shape):
        raise ValueError(f"it cannot be reshaped to {wanted}")
    return wanted


def _slice_shape(node, x, *where):
    found = _slices(x.shape, *(values(w, "bounds") for w in where))
    return tuple(extent(s, n)[2] for s, n in zip(found, x.shape, strict=True))


def _split_shape(node, x, sizes=None):
    axis = axis_of(node, len(x.shape))
    return [
        (*x.shape[:axis], s, *x.shape[axis + 1 :]) for s in _split_sizes(node, x.shape[axis], values(sizes, "sizes"))
    ]


def _transpose_shape(node, x):
    perm = node.attrs.get("perm") or range(len(x.shape))[::-1]
    if sorted(perm) != list(range(len(x.shape))):
        raise ValueError(f"{list(perm)} is not an order of {len(x.shape)} axes")
    return tuple(x.shape[a] for a in perm)


def _tile_shape(node, x, repeats):
    repeats = values(repeats, "repeats").tolist()
    if len(repeats) != len(x.shape) or min(repeats, default=0) < 0:
        raise ValueError(f"{repeats} are no repeats of {len(x.shape)} axes")
    return tuple(n * r for n, r in zip(x.shape, repeats, strict=True))


def _expand_shape(node, x, shape):
    return broadcast_shapes(x.shape, tuple(map(as_dim, values(shape, "shape"))))


def lower_same(p: LoweringContext, node):
    p.view(node.output, p.at(node.inputs[0]))
    return len(node.outputs) == 1


def _lower_reshape(p: LoweringContext, node):
    p.view(node.output, p.reshape(node, p.at(node.inputs[0]), p.known[node.output].shape))
    return True


def _lower_transpose(p: LoweringContext, node):
    x = p.at(node.inputs[0])
    perm = node.attrs.get("perm") or range(len(x.shape))[::-1]
    p.view(node.output, x._replace(shape=tuple(x.shape[a] for a in perm), strides=tuple(x.strides[a] for a in perm)))
    return True


def _lower_expand(p: LoweringContext, node):
    p.view(node.output, broadcast(p.at(node.inputs[0]), p.known[node.output].shape))
    return True


def _lower_slice(p: LoweringContext, node):
    x = p.at(node.inputs[0])
    p.view(node.output, part(x, _slices(x.shape, *(p.data(v) for v in node.inputs[1:]))))
    return True


def _lower_split(p: LoweringContext, node):
    x, start = p.at(node.inputs[0]), 0
    axis = node.attrs.get("axis", 0) % len(x.shape)
    for v, size in zip(node.outputs, _split_sizes(node, x.shape[axis], p.data(node.input(1))), strict=True):
        if v:
            p.view(v, along(x, axis, start, size))
        start += size
    return True


def _lower_concat(p: LoweringContext, node):
    shape, start = p.known[node.output].shape, 0
    axis = node.attrs["axis"] % len(shape)
    first = next((t for t in map(p.at, node.inputs) if t.buffer.array is None), None)
    # the rows of attention's heads, say, which are no images
    like = None if first is None else first._replace(shape=shape)
    y = p.tensors.get(node.output) or p.result(node.output, like, image=len(shape) == 4 and axis == 1)
    for v in node.inputs:
        part, size = p.at(v), p.known[v].shape[axis]
        target = along(y, axis, start, size)
        if part != target and 0 not in target.shape:
            p.copy(node, part, target)
        start += size
    return True


def _lower_move_blocks(p: LoweringContext, node):
    """One copy between two images, both with the rows and columns of their squares as axes."""
    x = p.at(node.inputs[0])
    split, order, _ = blocks(node, x.shape)
    x = p.reshape(node, x, split)
    x = x._replace(shape=tuple(split[a] for a in order), strides=tuple(x.strides[a] for a in order))
    p.copy(node, x, p.reshape(node, p.result(node.output, image=True), x.shape))
    return True


def _lower_tile(p: LoweringContext, node):
    """One copy from a view that repeats axes by a distance of 0."""
    x, y = p.at(node.inputs[0]), p.result(node.output)
    pairs = [(r, 0, n, s) for r, n, s in zip(p.data(node.inputs[1]).tolist(), x.shape, x.strides, strict=True)]
    axes = [axis for r, zero, n, s in pairs for axis in ([(r, zero)] if r != 1 else []) + [(n, s)]]
    p.copy(
        node,
        x._replace(shape=tuple(n for n, _ in axes), strides=tuple(s for _, s in axes)),
        p.reshape(node, y, tuple(n for n, _ in axes)),
    )
    return True


def _read_constant(r: GraphBuilder, node):
    values = {
        "value": lambda v: v,
        "value_float": np.float32,
        "value_int": np.int64,
        "value_floats": lambda v: np.array(v, np.float32),
        "value_ints": lambda v: np.array(v, np.int64),
        "sparse_value": lambda v: v,
    }
    ((kind, value),) = node.attrs.items()
    if kind not in values:
        raise ValueError(f"constant {node.name!r} is of the kind {kind!r}, which fusedops does not have")
    r.graph.constants[node.output] = np.asarray(values[kind](value))


def _read_dropout(r: GraphBuilder, node):
    training = r.known(node, 2)
    if node.input(2) and (training is None or training):
        node.attrs["training"] = 1
    node.inputs = node.inputs[:1]
    r.add(node)


def _blocks_shape(node, x):
    return blocks(node, x.shape)[2]


def _first(node):
    return slice(0, 1)


RECORDS = {
    "Concat": Operator(
        lambda node, *xs: np.concatenate(xs, node.attrs["axis"]),
        Inference(_concat_shape, symbolic=True),
        Kernel(_lower_concat, dtypes=ANY, writes_strided=True),
        traits=Traits(is_identity=lambda node, *xs: len(xs) == 1, moves_elements=lambda node: slice(None)),
    ),
    "Constant": Rewrite(_read_constant, ()),
    "ConstantOfShape": Operator(
        _constant_of_shape,
        Inference(
            lambda node, shape: tuple(values(shape, "shape")),
            dtype=lambda node, inputs, i: node.attrs.get("value", np.zeros(1, np.float32)).dtype,
            shape_inputs=(0,),
            may_grow=True,
        ),
        NumPyOnly("constant as soon as its shape is known"),
    ),
    "DepthToSpace": Operator(
        _move_blocks,
        Inference(_blocks_shape),
        Kernel(_lower_move_blocks, dtypes=ANY),
        traits=Traits(moves_elements=_first),
    ),
    "Dropout": Operator(
        _dropout,
        Inference(
            lambda node, x: [x.shape, x.shape],
            dtype=lambda node, inputs, i: np.dtype(np.bool_) if i else inputs[0].dtype,
        ),
        Kernel(lower_same),
        _read_dropout,
        traits=Traits(is_identity=lambda node, x: True, keeps_logits=True),
    ),
    "Expand": Operator(
        _expand,
        Inference(_expand_shape, shape_inputs=(1,), may_grow=True),
        Kernel(_lower_expand, dtypes=ANY),
        traits=Traits(moves_elements=_first),
    ),
    "Flatten": Operator(
        _flatten,
        Inference(lambda node, x: _flat(node, x.shape)),
        Kernel(_lower_reshape, dtypes=ANY),
        traits=Traits(moves_elements=_first, keeps_logits=True),
    ),
    "Identity": Operator(
        lambda node, x: x,
        Inference(same_shape, symbolic=True),
        Kernel(lower_same, dtypes=ANY),
        traits=Traits(is_identity=lambda node, x: True, moves_elements=_first, keeps_logits=True),
    ),
    "Reshape": Operator(
        lambda node, x, shape: x.reshape(_reshaped(node, x.shape, shape)),
        Inference(_reshape_shape, shape_inputs=(1,), symbolic=True),
        Kernel(_lower_reshape, dtypes=ANY),
        traits=Traits(moves_elements=_first, keeps_logits=True),
    ),
    "Shape": Operator(
        _shape,
        Inference(lambda node, x: [], dtype=always(np.int64), shape_only=True),
        NumPyOnly("known as soon as shapes are"),
    ),
    "Size": Operator(
        lambda node, x: integers([math.prod(x.shape)]).reshape(()),
        Inference(lambda node, x: (), dtype=always(np.int64), shape_only=True),
        NumPyOnly("known as soon as shapes are"),
    ),
    "Slice": Operator(
        lambda node, x, *where: x[_slices(x.shape, *where)],
        Inference(_slice_shape, shape_inputs=(1, 2, 3, 4), symbolic=True),
        Kernel(_lower_slice, dtypes=ANY),
        with_inputs("starts", "ends", "axes"),
        traits=Traits(moves_elements=_first),
    ),
    "SpaceToDepth": Operator(
        _move_blocks,
        Inference(_blocks_shape),
        Kernel(_lower_move_blocks, dtypes=ANY),
        traits=Traits(moves_elements=_first),
    ),
    "Split": Operator(
        _split,
        Inference(_split_shape, shape_inputs=(1,), symbolic=True),
        Kernel(_lower_split, dtypes=ANY),
        with_inputs("split"),
        traits=Traits(moves_elements=_first),
    ),
    "Squeeze": Operator(
        lambda node, x, axes=None: x.reshape(_squeezed(x.shape, axes)),
        Inference(
            lambda node, x, axes=None: _squeezed(x.shape, values(axes, "axes")), shape_inputs=(1,), symbolic=True
        ),
        Kernel(_lower_reshape, dtypes=ANY),
        with_inputs("axes"),
        traits=Traits(moves_elements=_first, keeps_logits=True),
    ),
    "Tile": Operator(
        lambda node, x, repeats: np.tile(x, repeats.tolist()),
        Inference(_tile_shape, shape_inputs=(1,), symbolic=True, may_grow=True),
        Kernel(_lower_tile, dtypes=ANY),
        traits=Traits(moves_elements=_first),
    ),
    "Transpose": Operator(
        lambda node, x: x.transpose(node.attrs.get("perm")),
        Inference(_transpose_shape, symbolic=True),
        Kernel(_lower_transpose, dtypes=ANY),
        traits=Traits(
            is_identity=lambda node, x: (
                x is not None and list(node.attrs.get("perm") or ()) == list(range(len(x.shape)))
            ),
            moves_elements=_first,
            keeps_logits=True,
        ),
    ),
    "Unsqueeze": Operator(
        lambda node, x, axes: x.reshape(_unsqueezed(x.shape, axes)),
        Inference(lambda node, x, axes: _unsqueezed(x.shape, values(axes, "axes")), shape_inputs=(1,), symbolic=True),
        Kernel(_lower_reshape, dtypes=ANY),
        with_inputs("axes"),
        traits=Traits(moves_elements=_first, keeps_logits=True),
    ),
}
