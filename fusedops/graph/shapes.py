"""Shapes and types of every value for given input shapes; what follows from shapes alone is computed here, not at run time."""
import math
from typing import NamedTuple

import numpy as np

from . import elements, windows
from .evaluate import (
    CAST_TYPES,
    COMPARISONS,
    axes_of,
    axis_of,
    evaluate,
    flatten_shape,
    pad_amounts,
    reshape_shape,
    slices,
    split_sizes,
    squeeze_shape,
    unsqueeze_shape,
)
from .memory import physical_memory


class Known(NamedTuple):
    """What is known of a value before the network runs; `data` where it is all."""
    shape: tuple
    dtype: np.dtype
    data: np.ndarray | None = None


def constant(a):
    return Known(a.shape, a.dtype, a)


REDUCTIONS = ("ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum")
# The inputs of operators on whose values the shape of the result depends.
_SHAPING = {"ConstantOfShape": (0,), "Expand": (1,), "Pad": (1, 3), "Range": (0, 1, 2), "Reshape": (1,), "Resize": (1, 2, 3), "Slice": (1, 2, 3, 4),
            "Split": (1,), "Squeeze": (1,), "Tile": (1,), "TopK": (1,), "Unsqueeze": (1,), **dict.fromkeys(REDUCTIONS, (1,))}


def shaping_inputs(graph):
    """Names of the network's inputs whose values, not only whose shapes, decide on the shapes inside."""
    wanted = {node.input(i) for node in graph.nodes for i in _SHAPING.get(node.op, ())}
    for node in reversed(graph.nodes):
        if node.op != "Shape" and wanted.intersection(node.outputs):
            wanted.update(node.reads())
    return [v.name for v in graph.inputs if v.name in wanted]


def infer(graph, shapes, values=(), strict=True):
    """A dict of Known for every value of the graph whose inputs have the given shapes, a dict from name to tuple; `values` has the data
    of those inputs that decide on shapes inside. Where not `strict`, what cannot be known is left out."""
    known = {name: constant(a) for name, a in graph.constants.items()}
    known |= {v.name: Known(tuple(shapes[v.name]), v.dtype) for v in graph.inputs if v.name in shapes}
    known |= {name: constant(a) for name, a in dict(values).items()}
    for node in graph.nodes:
        if not strict and any(v not in known for v in node.reads()):
            continue
        try:
            known |= infer_node(node, [known[v] if v else None for v in node.inputs], known.get(node.residual))
        except (ValueError, IndexError, TypeError, KeyError, AttributeError, ZeroDivisionError, OverflowError) as e:
            if not strict:
                continue
            given = ", ".join(str(known[v].shape) for v in node.inputs if v in known)
            raise ValueError(f"{node.op} {node.name!r} does not fit its inputs of shape {given}: {e}") from e
    return known


def infer_node(node, inputs, residual=None):
    """{output: Known} of one node."""
    if node.op == "Shape":
        x = inputs[0]
        return {node.output: constant(np.array(x.shape[node.attrs.get("start", 0):node.attrs.get("end")], np.int64))}
    shapes = _SHAPES[node.op](node, *inputs) if node.op in _SHAPES else np.broadcast_shapes(*(x.shape for x in inputs if x is not None))
    shapes = shapes if isinstance(shapes, list) else [shapes]
    if residual is not None:
        shapes[0] = np.broadcast_shapes(shapes[0], residual.shape)
    found = {v: Known(tuple(map(int, s)), _dtype(node, inputs, i)) for i, (v, s) in enumerate(zip(node.outputs, shapes, strict=False)) if v}
    constants = all(x is None or x.data is not None for x in (*inputs, residual))
    if constants or node.op in _GROWING:
        for shape, dtype, _ in found.values():
            if not 0 <= math.prod(shape) * dtype.itemsize < physical_memory():
                raise ValueError(f"the result would have {math.prod(shape)} elements, which this machine has no memory for")
    if constants:
        results = evaluate(node, [x if x is None else x.data for x in inputs], residual and residual.data)
        return {v: constant(np.asarray(r)) for v, r in zip(node.outputs, results, strict=False) if v}
    return found


def _dtype(node, inputs, i):
    if node.op in COMPARISONS or node.op == "Dropout" and i == 1:
        return np.dtype(np.bool_)
    if node.op in ("ArgMax", "ArgMin") or node.op == "TopK" and i == 1:
        return np.dtype(np.int64)
    if node.op == "Cast":
        return np.dtype(CAST_TYPES[node.attrs["to"]])
    if node.op == "ConstantOfShape":
        return node.attrs.get("value", np.zeros(1, np.float32)).dtype
    return inputs[1 if node.op == "Where" else 0].dtype


def _values(x, what):
    """The data of an input that shapes depend on."""
    if x is None:
        return None
    if x.data is None:
        raise ValueError(f"its {what} depends on the values of the network's input, so no plan can be made")
    return x.data


def _check_channels(node, x, w, channels):
    groups = node.attrs.get("group", 1)
    if len(x.shape) < 3 or len(w.shape) != len(x.shape) or x.shape[1] != channels or groups < 1 or w.shape[0] % groups:
        raise ValueError(f"the weights need an input of {channels} channels, in {groups} groups")


def _conv(node, x, w, b=None):
    _check_channels(node, x, w, w.shape[1] * node.attrs.get("group", 1))
    return (x.shape[0], w.shape[0], *windows.output_sizes(node, x.shape[2:], w.shape[2:]))


def _conv_transpose(node, x, w, b=None):
    _check_channels(node, x, w, w.shape[0])
    sizes = windows.transposed(node, x.shape[2:], w.shape[2:])[0]
    if min(sizes) < 0:
        raise ValueError(f"the result would have the size {sizes}")
    return (x.shape[0], w.shape[1] * node.attrs.get("group", 1), *sizes)


def _pool(node, x):
    if len(x.shape) < 3 or len(node.attrs["kernel_shape"]) != len(x.shape) - 2:
        raise ValueError(f"a window of {len(node.attrs['kernel_shape'])} axes does not fit")
    return (*x.shape[:2], *windows.output_sizes(node, x.shape[2:], node.attrs["kernel_shape"]))


def _gemm(node, a, b, c=None):
    (m, k), (k2, n) = (a.shape[::-1] if node.attrs.get("transA", 0) else a.shape), (b.shape[::-1] if node.attrs.get("transB", 0) else b.shape)
    if k != k2:
        raise ValueError("the inner sizes differ")
    return m, n


def _matmul(node, a, b):
    sa, sb = (1, *a.shape) if len(a.shape) == 1 else a.shape, (*b.shape, 1) if len(b.shape) == 1 else b.shape
    if sa[-1] != sb[-2]:
        raise ValueError("the inner sizes differ")
    y = (*np.broadcast_shapes(sa[:-2], sb[:-2]), sa[-2], sb[-1])
    y = y[:-2] + y[-1:] if len(a.shape) == 1 else y
    return y[:-1] if len(b.shape) == 1 else y


def _linear(node, x, w, b=None):
    if x.shape[-1] != w.shape[1]:
        raise ValueError(f"the weights {w.shape} need a last axis of {w.shape[1]}")
    return (*x.shape[:-1], w.shape[0])


def _concat(node, *xs):
    axis = axis_of(node, len(xs[0].shape))
    rest = {x.shape[:axis] + x.shape[axis + 1:] for x in xs}
    if len(rest) > 1:
        raise ValueError(f"all but axis {axis} must agree")
    return (*xs[0].shape[:axis], sum(x.shape[axis] for x in xs), *xs[0].shape[axis + 1:])


def _reduce(node, x, axes=None):
    axes = _values(axes, "list of axes")
    if (axes is None or axes.size == 0) and node.attrs.get("noop_with_empty_axes", 0):
        return x.shape
    where = axes_of(axes if axes is not None and axes.size else None, len(x.shape))
    keep = node.attrs.get("keepdims", 1)
    return tuple(1 if i in where else s for i, s in enumerate(x.shape) if keep or i not in where)


def _reshape(node, x, shape):
    wanted = reshape_shape(node, x.shape, _values(shape, "shape"))
    if np.prod(wanted, dtype=object) != np.prod(x.shape, dtype=object):
        raise ValueError(f"it cannot be reshaped to {wanted}")
    return wanted


def _slice(node, x, *where):
    found = slices(x.shape, *(_values(w, "bounds") for w in where))
    return tuple(len(range(*s.indices(n))) for s, n in zip(found, x.shape, strict=True))


def _split(node, x, sizes=None):
    axis = axis_of(node, len(x.shape))
    return [(*x.shape[:axis], s, *x.shape[axis + 1:]) for s in split_sizes(node, x.shape[axis], _values(sizes, "sizes"))]


def _pad(node, x, pads, value=None, axes=None):
    amounts, repeats = pad_amounts(len(x.shape), _values(pads, "padding"), _values(axes, "axes")), node.attrs.get("mode", "constant") != "constant"
    for s, (b, e) in zip(x.shape, amounts, strict=True):
        if s + min(b, 0) + min(e, 0) < (repeats and max(b, e) > 0):
            raise ValueError(f"an axis of {s} is too short for padding {b}, {e}")
    return tuple(s + b + e for s, (b, e) in zip(x.shape, amounts, strict=True))


def _gather(node, x, i):
    axis = axis_of(node, len(x.shape))
    size = x.shape[axis]
    least, most = (0, 0) if i.data is None else (i.data.min(initial=0), i.data.max(initial=0))
    if 0 not in i.shape and not -size <= least <= most < size:
        raise ValueError(f"there are indices {least} to {most} into an axis of {size}")
    return (*x.shape[:axis], *i.shape, *x.shape[axis + 1:])


def _transpose(node, x):
    perm = node.attrs.get("perm") or range(len(x.shape))[::-1]
    if sorted(perm) != list(range(len(x.shape))):
        raise ValueError(f"{list(perm)} is no order of {len(x.shape)} axes")
    return tuple(x.shape[a] for a in perm)


def _softmax(node, x):
    axis_of(node, len(x.shape), -1)
    return x.shape


def _best(node, x):
    axis, keep = axis_of(node, len(x.shape)), node.attrs.get("keepdims", 1)
    if x.shape[axis] == 0:
        raise ValueError(f"there is none along axis {axis} of length 0")
    return (*x.shape[:axis], *[1] * keep, *x.shape[axis + 1:])


def _top_k(node, x, k):
    axis, k = axis_of(node, len(x.shape), -1), _values(k, "number of places").item()
    if not 0 <= k <= x.shape[axis]:
        raise ValueError(f"there are no {k} elements along an axis of {x.shape[axis]}")
    return [(*x.shape[:axis], k, *x.shape[axis + 1:])] * 2


def _tile(node, x, repeats):
    repeats = _values(repeats, "repeats").tolist()
    if len(repeats) != len(x.shape) or min(repeats, default=0) < 0:
        raise ValueError(f"{repeats} are no repeats of {len(x.shape)} axes")
    return tuple(n * r for n, r in zip(x.shape, repeats, strict=True))


def _gather_nd(node, x, i):
    batch, depth = node.attrs.get("batch_dims", 0), i.shape[-1]
    if batch + depth > len(x.shape) or batch >= len(i.shape) or x.shape[:batch] != i.shape[:batch]:
        raise ValueError(f"indices of {depth} behind {batch} axes do not fit")
    return (*i.shape[:-1], *x.shape[batch + depth:])


def _einsum(node, *xs):
    terms, result = elements.einsum_terms(node.attrs["equation"], [len(x.shape) for x in xs])
    sizes = {}
    for term, x in zip(terms, xs, strict=True):
        for letter, n in zip(term, x.shape, strict=True):
            if n != sizes.setdefault(letter, n) and 1 not in (n, sizes[letter]):
                raise ValueError(f"the axes {letter!r} of {node.attrs['equation']!r} have the lengths {sizes[letter]} and {n}")
            sizes[letter] = n if sizes[letter] == 1 else sizes[letter]
    return tuple(sizes[letter] for letter in result)


def _range(node, *ends):
    start, stop, step = (_values(e, "length").item() for e in ends)
    return (max(math.ceil((stop - start) / step), 0),)


def _recurrent(node, x, w, r, *optional):
    batch_first, hidden = node.attrs.get("layout", 0), r.shape[-1]
    if len(x.shape) != 3 or w.shape != (w.shape[0], _GATES[node.op] * hidden, x.shape[2]) or r.shape != (*w.shape[:2], hidden):
        raise ValueError(f"weights of shape {w.shape} and {r.shape} do not fit")
    steps, batch = x.shape[:2] if not batch_first else x.shape[1::-1]
    state = (batch, w.shape[0], r.shape[2]) if batch_first else (w.shape[0], batch, r.shape[2])
    needed = {"B": (w.shape[0], 2 * w.shape[1]), "sequence_lens": (batch,), "initial_h": state, "initial_c": state, "P": (w.shape[0], 3 * hidden)}
    for (name, shape), given in zip(needed.items(), optional, strict=False):
        if given is not None and given.shape != shape:
            raise ValueError(f"{name} of shape {given.shape} must have {shape}")
    return [(batch, steps, *state[1:]) if batch_first else (steps, *state), state, state]


def _layer_norm(node, x, scale, shift=None):
    axis = axis_of(node, len(x.shape), -1)
    seen = (*x.shape[:axis], *[1] * (len(x.shape) - axis))
    return [x.shape, seen, seen]


_SHAPES = {
    "ArgMax": _best, "ArgMin": _best, "CumSum": lambda n, x, axis: x.shape, "DepthToSpace": lambda n, x: elements.blocks(n, x.shape)[2],
    "Einsum": _einsum, "GatherElements": lambda n, x, i: i.shape, "GatherND": _gather_nd, "ScatterElements": lambda n, x, i, updates: x.shape,
    "ScatterND": lambda n, x, i, updates: x.shape, "SpaceToDepth": lambda n, x: elements.blocks(n, x.shape)[2], "Tile": _tile, "TopK": _top_k,
    "Trilu": lambda n, x, k=None: x.shape, **dict.fromkeys(REDUCTIONS, _reduce),
    "AveragePool": _pool, "BatchNormalization": lambda n, x, *_: [x.shape, *(s.shape for s in _[2:])], "Concat": _concat,
    "ConstantOfShape": lambda n, shape: tuple(_values(shape, "shape")), "Conv": _conv, "ConvTranspose": _conv_transpose,
    "Dropout": lambda n, x: [x.shape, x.shape], "Expand": lambda n, x, shape: np.broadcast_shapes(x.shape, tuple(_values(shape, "shape"))),
    "Flatten": lambda n, x: flatten_shape(n, x.shape), "GRU": _recurrent, "Gather": _gather, "Gemm": _gemm,
    "GlobalAveragePool": lambda n, x: (*x.shape[:2], *[1] * (len(x.shape) - 2)),
    "GlobalMaxPool": lambda n, x: (*x.shape[:2], *[1] * (len(x.shape) - 2)), "InstanceNormalization": lambda n, x, *_: x.shape,
    "LRN": lambda n, x: x.shape, "LSTM": _recurrent, "LayerNormalization": _layer_norm, "Linear": _linear, "LogSoftmax": _softmax,
    "MatMul": _matmul, "MaxPool": _pool, "Pad": _pad, "RNN": _recurrent,
    "Range": _range, "Reshape": _reshape,
    "Resize": lambda n, x, *w: windows.resize_sizes(n, x.shape, *[_values(v, "size") for v in (*w, None, None, None)[:3]])[0],
    "Slice": _slice, "Softmax": _softmax, "Split": _split, "Squeeze": lambda n, x, axes=None: squeeze_shape(x.shape, _values(axes, "axes")),
    "Transpose": _transpose,
    "Unsqueeze": lambda n, x, axes: unsqueeze_shape(x.shape, _values(axes, "axes")),
}
_GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
_GROWING = {"ConstantOfShape", "ConvTranspose", "Expand", "Pad", "Range", "Resize", "Tile"}  # whose results may be much larger than their inputs
