"""How each operator becomes steps of a program. A function returns whether it did: where not (an unusual type, a weight that is not
constant), the node runs as a NumPy step. What each kind of step takes: STEPS of fusedops/program.pxi."""
import numpy as np

from .. import _core, activations
from ..batchnorm import BatchNorm, scale_and_shift
from ..layers import LARGEST, Conv2d, Linear
from . import sequences, windows
from .elements import blocks
from .evaluate import axes_of, pad_amounts, slices, split_sizes
from .memory import channels_last, in_order_of, row_major, same_order
from .shapes import infer_node

PHASES = 1024  # of a transposed convolution, each a plan of its own
# Operators whose steps write an image with any distance between its pixels, such as a part of a concatenation.
STRIDED = {"Activation", "Add", "AveragePool", "BatchNormalization", "Concat", "Conv", "ConvTranspose", "Div", "Erf", "Exp", "GlobalAveragePool",
           "GlobalMaxPool", "LRN", "MaxPool", "Mul", "PRelu", "Pow", "Resize", "Sqrt", "Sub"}


def _parsed(node, channels=None):
    return activations.parse(node.activation, channels)


def _floats(*arrays):
    return all(a is None or a.dtype == np.float32 for a in arrays)


# ---- convolution, products and what is fused into them ----------------------------------------------------------------

def _residual(p, node, y):
    """The residual as a tensor in the order of y."""
    if not node.residual:
        return None
    r = p.at(node.residual)
    if len(y.shape) == 4:
        r = p.as_2d(r)
        return p.dense(node, r, channels_last(r.shape)) if y.strides[1] == 1 and r.strides[1] != 1 else \
            p.dense(node, r, row_major(r.shape)) if y.strides[1] != 1 and r.strides[3] != 1 else r
    return p.dense(node, r, row_major(r.shape))


def _constant_weights(p, node, *allowed):
    """(weights, bias), or None where the layer cannot be prepared."""
    w, b = p.data(node.inputs[1]), p.data(node.input(2))
    if w is None or w.ndim not in allowed or not _floats(w, b) or node.input(2) and b is None:
        return None
    if node.residual:
        product = infer_node(node, [p.known[v] if v else None for v in node.inputs])
        if not product[node.output].shape == p.known[node.residual].shape == p.known[node.output].shape:
            return None
    return w, b


def _conv(p, node):
    weights = _constant_weights(p, node, 3, 4)
    if weights is None:
        return False
    w, b = weights
    strides, dilations, pads = windows.window(node, p.known[node.inputs[0]].shape[2:], w.shape[2:])
    if w.ndim == 3:
        w, strides, dilations, pads = w[:, :, np.newaxis], [1, *strides], [1, *dilations], [(0, 0), *pads]
    groups = node.attrs.get("group", 1)
    # A softmax makes factors of differences: where logits are large, channels must round alike.
    algorithm = "direct" if node.output in p.logits else "auto"
    layer = p.layer(node.name, lambda: Conv2d(w, b, activation=node.activation, stride=tuple(strides), dilation=tuple(dilations),
                                              groups=groups, layout="NHWC", algorithm=algorithm))
    outer = p.at(node.inputs[0]).buffer.slot > 0 and groups == 1  # an input of the network is read as it lies, by the ungrouped kernel
    mixes = groups == 1 or w.shape[1] > 1  # depthwise kernels do not write planes of pixels
    x, y = (p.image if outer else p.pixels)(node, node.inputs[0]), p.as_2d(p.result(node.output, image=True, direct=mixes))
    p.add("conv2d", node, layer=layer, x=x, y=y, residual=_residual(p, node, y), top=pads[0][0], left=pads[1][0])
    return True


def _conv_transpose(p, node):
    weights = _constant_weights(p, node, 3, 4)
    if weights is None:
        return False
    w, b = weights
    _, strides, dilations, begins = windows.transposed(node, p.known[node.inputs[0]].shape[2:], w.shape[2:])
    if np.prod(strides, dtype=object) > PHASES or max(map(abs, begins)) > LARGEST:
        return False
    if w.ndim == 3:
        w, strides, dilations, begins = w[:, :, np.newaxis], [1, *strides], [1, *dilations], [0, *begins]
    groups = node.attrs.get("group", 1)
    layer = p.layer(node.name, lambda: _core.ConvTranspose2dPlan(w, b, _parsed(node, w.shape[1] * groups), tuple(strides), tuple(dilations), groups))
    x, y = p.image(node, node.inputs[0]), p.as_2d(p.result(node.output, image=True, direct=False))
    p.add("conv_transpose", node, layer=layer, x=x, y=y, residual=_residual(p, node, y), top=begins[0], left=begins[1])
    return True


def _linear(p, node):
    weights = _constant_weights(p, node, 2)
    if weights is None:
        return False
    layer = p.layer(node.name, lambda: Linear(*weights, activation=node.activation))
    y = p.result(node.output)
    y = y._replace(shape=(int(np.prod(y.shape[:-1], dtype=np.int64)), y.shape[-1]), strides=(y.shape[-1], 1))
    x = p.reshape(node, p.at(node.inputs[0]), (y.shape[0], weights[0].shape[1]))
    if x.strides[1] != 1 and x.shape[1] != 1:
        x = p.dense(node, x, row_major(x.shape))
    r = _residual(p, node, p.at(node.output))
    p.add("linear", node, layer=layer, x=x, y=y, residual=r and p.reshape(node, r, y.shape))
    return True


def _broadcast(t, shape):
    """t as a view of the given shape."""
    strides, sizes = (0,) * (len(shape) - len(t.shape)) + t.strides, (1,) * (len(shape) - len(t.shape)) + t.shape
    return t._replace(shape=tuple(shape), strides=tuple(s if n == m else 0 for s, n, m in zip(strides, sizes, shape, strict=True)))


def _product(p, node, a, b, scale=1.0):
    shape = p.known[node.output].shape
    y = p.result(node.output)
    if len(a.shape) == 1:
        a, shape = a._replace(shape=(1, *a.shape), strides=(1, *a.strides)), (*shape[:-1], 1, shape[-1]) if len(b.shape) > 1 else (1,)
    if len(b.shape) == 1:
        b, shape = b._replace(shape=(*b.shape, 1), strides=(*b.strides, 1)), (*shape, 1)
    a, b = _broadcast(a, (*shape[:-2], *a.shape[-2:])), _broadcast(b, (*shape[:-2], *b.shape[-2:]))
    y = y._replace(shape=shape, strides=row_major(shape))
    p.add("matmul", node, a=a, b=b, y=y, scale=float(scale), activation=_parsed(node))
    return True


def _transposed(t):
    return t._replace(shape=t.shape[::-1], strides=t.strides[::-1])


def _matmul(p, node):
    return p.known[node.inputs[1]].dtype == np.float32 and _product(p, node, *map(p.at, node.inputs), node.attrs.get("alpha", 1.0))


def _gemm(p, node):
    """A product of two values that both come from the network's input; one with constant weights is a Linear."""
    if node.input(2):
        return False
    a, b = map(p.at, node.inputs)
    return _product(p, node, _transposed(a) if node.attrs.get("transA", 0) else a, _transposed(b) if node.attrs.get("transB", 0) else b,
                    node.attrs.get("alpha", 1.0))


def _norm_result(p, node, x):
    """Where a norm over the pixels of x writes: as x lies where that is row-major, else with its channels last. Both are evenly spaced."""
    return p.result(node.output, image=not same_order(x.shape, x.strides, row_major(x.shape)))


def _batch_norm(p, node):
    bn, x = [p.data(v) for v in node.inputs[1:5]], p.at(node.inputs[0])
    if any(a is None for a in bn) or not _floats(*bn) or node.attrs.get("training_mode", 0) or len(x.shape) not in (2, 3, 4):
        return False
    if node.residual and p.known[node.residual].shape != x.shape or not np.all(bn[3] + node.attrs.get("epsilon", 1e-5) > 0):
        return False
    scale, shift = scale_and_shift(BatchNorm(*bn, node.attrs.get("epsilon", 1e-5)), x.shape[1])
    y = _norm_result(p, node, x)
    order = in_order_of(y.shape, y.strides)
    x, r = (t and p.dense(node, t, t.strides if same_order(t.shape, t.strides, y.strides) else order)
            for t in (x, p.at(node.residual) if node.residual else None))
    p.add("affine", node, x=x, y=y, residual=r, scale=scale.astype(np.float32), shift=shift.astype(np.float32), activation=_parsed(node, x.shape[1]))
    return True


# ---- element by element -----------------------------------------------------------------------------------------------

def _activation(p, node):
    *_, slopes = _parsed(node)
    if slopes is None:
        return _unary("identity")(p, node)
    x = p.at(node.inputs[0])
    y = p.result(node.output, like=x)
    each = slopes.reshape([-1 if a == 1 else 1 for a in range(len(x.shape))]) if slopes.size > 1 else slopes
    p.add("binary", node, name="prelu", a=x, b=np.broadcast_to(each, x.shape), y=y)
    return True


def _unary(name):
    def lower(p, node):
        x = p.at(node.inputs[0])
        y = p.result(node.output, like=x)
        p.add("unary", node, name=name, x=x, y=y, activation=_parsed(node))
        return True
    return lower


def _binary(name):
    def lower(p, node):
        if len(node.inputs) != 2 or any(p.known[v].dtype != np.float32 for v in node.inputs):
            return False
        a, b = map(p.at, node.inputs)
        shape = p.known[node.output].shape
        whole = [t for t in (a, b) if t.shape == shape and t.buffer.array is None]
        y = p.result(node.output, like=whole[0] if whole else None)
        p.add("binary", node, name=name, a=_broadcast(a, shape), b=_broadcast(b, shape), y=y, activation=_parsed(node))
        return True
    return lower


# ---- pools and sums ---------------------------------------------------------------------------------------------------

def _pool(kind):
    def lower(p, node):
        kernel, shape = list(node.attrs["kernel_shape"]), p.known[node.inputs[0]].shape
        if len(kernel) > 2:
            return False
        strides, dilations, pads = windows.window(node, shape[2:], kernel)
        if len(kernel) == 1:
            kernel, strides, dilations, pads = [1, *kernel], [1, *strides], [1, *dilations], [(0, 0), *pads]
        x, y = p.as_2d(p.at(node.inputs[0])), p.as_2d(p.result(node.output, image=True))
        (top, bottom), (left, right) = pads
        counted = {}
        if kind == "avg_pool":
            h, w = x.shape[2:]
            counted = {"counted": (-top, h + bottom, -left, w + right) if node.attrs.get("count_include_pad", 0) else (0, h, 0, w)}
        p.add(kind, node, x=x, y=y, kernel=tuple(kernel), stride=tuple(strides), before=(top, left), dilation=tuple(dilations), **counted)
        return True
    return lower


def _reduction(p, node, name, axes):
    x = p.at(node.inputs[0])
    y = p.result(node.output, image=len(p.known[node.output].shape) == 4)
    kept = iter(y.strides)
    full = tuple(1 if i in axes else n for i, n in enumerate(x.shape))
    if y.shape != full:
        y = y._replace(shape=full, strides=tuple(1 if i in axes else next(kept) for i in range(len(full))))
    p.add("reduce", node, name=name, x=x, y=y, axes=tuple(sorted(axes)))
    return True


def _reduce(name):
    def lower(p, node):
        axes = p.data(node.input(1))
        empty = axes is None or axes.size == 0
        if empty and node.attrs.get("noop_with_empty_axes", 0):
            return False
        return _reduction(p, node, name, axes_of(None if empty else axes, len(p.known[node.inputs[0]].shape)))
    return lower


def _global_pool(name):
    return lambda p, node: _reduction(p, node, name, tuple(range(2, len(p.known[node.inputs[0]].shape))))


def _softmax(p, node):
    x = p.at(node.inputs[0])
    axis, log = node.attrs["axis"] % max(len(x.shape), 1), node.op == "LogSoftmax"
    if node.attrs["to_end"] and axis != len(x.shape) - 1:
        y = p.result(node.output)
        flat = int(np.prod(x.shape[:axis], dtype=np.int64)), int(np.prod(x.shape[axis:], dtype=np.int64))
        x, y, axis = p.reshape(node, x, flat), y._replace(shape=flat, strides=row_major(flat)), 1
    else:
        y = p.result(node.output, like=x)
    p.add("softmax", node, x=x, y=y, axis=axis, log=log)
    return True


def _layer_norm(p, node):
    scale, shift, x = p.data(node.inputs[1]), p.data(node.input(2)), p.at(node.inputs[0])
    axis = node.attrs.get("axis", -1) % len(x.shape)
    if len([v for v in node.outputs if v]) > 1 or not _floats(scale, shift) or scale is None or node.input(2) and shift is None \
            or any(a is not None and a.shape != x.shape[axis:] for a in (scale, shift)):
        return False
    y = p.result(node.output)
    p.add("norm", node, x=p.dense(node, x, row_major(x.shape)), y=y, eps=node.attrs.get("epsilon", 1e-5), scale=scale, shift=shift, first_axis=axis)
    return True


def _instance_norm(p, node):
    scale, shift, x = p.data(node.inputs[1]), p.data(node.inputs[2]), p.at(node.inputs[0])
    if scale is None or shift is None or not _floats(scale, shift) or len(x.shape) not in (3, 4):
        return False
    x, y = p.as_2d(x), p.as_2d(_norm_result(p, node, x))
    p.add("instance_norm", node, x=x, y=y, eps=node.attrs.get("epsilon", 1e-5), scale=scale, shift=shift)
    return True


def _lrn(p, node):
    x = p.at(node.inputs[0])
    if len(x.shape) != 4:
        return False
    x, y, a = p.pixels(node, node.inputs[0]), p.result(node.output, image=True, direct=False), node.attrs
    p.add("lrn", node, x=x, y=y, size=a["size"], alpha=a.get("alpha", 1e-4), beta=a.get("beta", 0.75), bias=a.get("bias", 1.0))
    return True


# ---- places: views, or copies where strides cannot say it ---------------------------------------------------------------

def _same(p, node):
    p.view(node.output, p.at(node.inputs[0]))
    return len(node.outputs) == 1


def _cast(p, node):
    return p.known[node.inputs[0]].dtype == np.float32 and _same(p, node)


def _reshape(p, node):
    p.view(node.output, p.reshape(node, p.at(node.inputs[0]), p.known[node.output].shape))
    return True


def _transpose(p, node):
    x = p.at(node.inputs[0])
    perm = node.attrs.get("perm") or range(len(x.shape))[::-1]
    p.view(node.output, x._replace(shape=tuple(x.shape[a] for a in perm), strides=tuple(x.strides[a] for a in perm)))
    return True


def _expand(p, node):
    p.view(node.output, _broadcast(p.at(node.inputs[0]), p.known[node.output].shape))
    return True


def _part(x, where):
    """The view of x that Python slices give."""
    ranges = [range(*s.indices(n)) for s, n in zip(where, x.shape, strict=True)]
    first = sum(r.start * s for r, s in zip(ranges, x.strides, strict=True) if len(r))
    return x._replace(shape=tuple(map(len, ranges)), strides=tuple(r.step * s for r, s in zip(ranges, x.strides, strict=True)),
                      offset=x.offset + first * x.dtype.itemsize)


def _slice(p, node):
    x = p.at(node.inputs[0])
    p.view(node.output, _part(x, slices(x.shape, *(p.data(v) for v in node.inputs[1:]))))
    return True


def _along(x, axis, start, size):
    where = [slice(None)] * len(x.shape)
    where[axis] = slice(start, start + size)
    return _part(x, where)


def _split(p, node):
    x, start = p.at(node.inputs[0]), 0
    axis = node.attrs.get("axis", 0) % len(x.shape)
    for v, size in zip(node.outputs, split_sizes(node, x.shape[axis], p.data(node.input(1))), strict=True):
        if v:
            p.view(v, _along(x, axis, start, size))
        start += size
    return True


def _concat(p, node):
    shape, start = p.known[node.output].shape, 0
    axis = node.attrs["axis"] % len(shape)
    first = next((t for t in map(p.at, node.inputs) if t.buffer.array is None), None)
    like = None if first is None else first._replace(shape=shape)  # the rows of attention's heads, say, which are no images
    y = p.places.get(node.output) or p.result(node.output, like, image=len(shape) == 4 and axis == 1)
    for v in node.inputs:
        part, size = p.at(v), p.known[v].shape[axis]
        target = _along(y, axis, start, size)
        if part != target and 0 not in target.shape:
            p.copy(node, part, target)
        start += size
    return True


def _move_blocks(p, node):
    """One copy between two images, both with the rows and columns of their squares as axes."""
    x = p.at(node.inputs[0])
    split, order, _ = blocks(node, x.shape)
    x = p.reshape(node, x, split)
    x = x._replace(shape=tuple(split[a] for a in order), strides=tuple(x.strides[a] for a in order))
    p.copy(node, x, p.reshape(node, p.result(node.output, image=True), x.shape))
    return True


def _tile(p, node):
    """One copy from a view that repeats axes by a distance of 0."""
    x, y = p.at(node.inputs[0]), p.result(node.output)
    pairs = [(r, 0, n, s) for r, n, s in zip(p.data(node.inputs[1]).tolist(), x.shape, x.strides, strict=True)]
    axes = [axis for r, zero, n, s in pairs for axis in ([(r, zero)] if r > 1 else []) + [(n, s)]]
    p.copy(node, x._replace(shape=tuple(n for n, _ in axes), strides=tuple(s for _, s in axes)), p.reshape(node, y, tuple(n for n, _ in axes)))
    return True


def _gather(p, node):
    x, i = p.at(node.inputs[0]), p.at(node.inputs[1])
    axis = node.attrs.get("axis", 0) % len(x.shape)
    if p.data(node.inputs[1]) is not None and i.shape == ():
        at = int(p.data(node.inputs[1])) % x.shape[axis]
        part = _along(x, axis, at, 1)
        p.view(node.output, part._replace(shape=x.shape[:axis] + x.shape[axis + 1:], strides=x.strides[:axis] + x.strides[axis + 1:]))
        return True
    if i.dtype != np.int64:
        return False
    y = p.result(node.output)
    p.add("gather", node, x=x, indices=i, y=y, along=axis)
    return True


def _pad(p, node):
    mode, x = node.attrs.get("mode", "constant"), p.at(node.inputs[0])
    value = p.data(node.input(2))
    if node.input(2) and value is None:
        return False
    amounts = pad_amounts(len(x.shape), p.data(node.inputs[1]), p.data(node.input(3)))
    x = _part(x, [slice(max(-b, 0), n - max(-e, 0)) for n, (b, e) in zip(x.shape, amounts, strict=True)])
    amounts = [(max(b, 0), max(e, 0)) for b, e in amounts]
    if mode != "constant":
        for axis, (b, e) in enumerate(amounts):
            if b or e:
                i = np.pad(np.arange(x.shape[axis]), (b, e), mode=mode)
                y = p.new((*x.shape[:axis], i.size, *x.shape[axis + 1:]))
                p.add("gather", node, x=x, indices=i, y=y, along=axis)
                x = y
        p.view(node.output, x)
        return True
    y = p.result(node.output, image=len(x.shape) == 4)
    p.add("fill", node, y=y, value=0.0 if value is None or value.size == 0 else value.item())
    p.copy(node, x, _part(y, [slice(b, b + n) for n, (b, _) in zip(x.shape, amounts, strict=True)]))
    return True


def _resize(p, node):
    x = p.at(node.inputs[0])
    _, scale = windows.resize_sizes(node, x.shape, *(p.data(node.input(i)) for i in (1, 2, 3)))
    out = p.known[node.output].shape
    if len(out) not in (3, 4) or x.shape[:2] != out[:2] or scale[:2] != [1, 1]:
        return False
    x, y = p.pixels(node, node.inputs[0]), p.as_2d(p.result(node.output, image=True, direct=False))
    rows, cols = (windows.resize_table(node, x.shape[a], y.shape[a], s) for a, s in zip((2, 3), [1.0, *scale[2:]][-2:], strict=True))
    p.add("resize", node, x=x, y=y, rows=rows, columns=cols)
    return True


LOWER = {
    "Abs": _unary("abs"), "Activation": _activation, "Add": _binary("add"), "AveragePool": _pool("avg_pool"), "BatchNormalization": _batch_norm,
    "Cast": _cast, "Concat": _concat, "Conv": _conv, "ConvTranspose": _conv_transpose, "DepthToSpace": _move_blocks, "Div": _binary("div"), "Dropout": _same,
    "Erf": _unary("erf"), "Exp": _unary("exp"), "Expand": _expand, "Flatten": _reshape, "GRU": sequences.lower, "Gather": _gather,
    "Gemm": _gemm, "GlobalAveragePool": _global_pool("mean"),
    "GlobalMaxPool": _global_pool("max"), "Identity": _same, "InstanceNormalization": _instance_norm, "LRN": _lrn,
    "LSTM": sequences.lower, "RNN": sequences.lower,
    "LayerNormalization": _layer_norm, "Linear": _linear, "Log": _unary("log"), "LogSoftmax": _softmax, "MatMul": _matmul, "Max": _binary("max"),
    "MaxPool": _pool("max_pool"), "Min": _binary("min"), "Mul": _binary("mul"), "Neg": _unary("neg"), "PRelu": _binary("prelu"), "Pad": _pad,
    "Pow": _binary("pow"), "Reciprocal": _unary("reciprocal"), "ReduceMax": _reduce("max"), "ReduceMean": _reduce("mean"),
    "ReduceSum": _reduce("sum"), "Reshape": _reshape, "Resize": _resize, "Slice": _slice, "Softmax": _softmax, "SpaceToDepth": _move_blocks, "Split": _split,
    "Sqrt": _unary("sqrt"), "Squeeze": _reshape, "Sub": _binary("sub"), "Tile": _tile, "Transpose": _transpose, "Unsqueeze": _reshape,
}
