"""Every operator in plain NumPy: the meaning that plans and passes must keep, and the tool of constant folding.

A function takes the node and its inputs (None where one is not given) and returns its result, or a tuple of them.
"""
import math

import numpy as np

from .. import activations
from . import elements, windows


def evaluate(node, inputs, residual=None):
    """The results of a node as a list of arrays: ``activation(op(inputs) + residual)``; ValueError where its inputs or attributes have none."""
    try:
        results = OPERATORS[node.op](node, *inputs)
    except (ArithmeticError, AttributeError, LookupError, TypeError) as e:
        raise ValueError(f"{node.op} {node.name!r} cannot be computed: {e}") from e
    results = list(results) if isinstance(results, (tuple, list)) else [results]
    if residual is not None:
        results[0] = results[0] + residual
    if node.activation is not None:
        results[0] = activate(results[0], node.activation, 1 if node.op != "Linear" else -1)
    return results


# ---- activations ------------------------------------------------------------------------------------------------------

def _erf(x):
    return np.array([math.erf(v) for v in x.ravel().tolist()], x.dtype).reshape(x.shape)


def _sigmoid(x):
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + e), e / (1 + e))


def activate(x, activation, channel_axis=1):
    """An activation, computed in float64 and rounded to the type of x."""
    kind, p0, p1, slopes = activations.parse(activation)
    if slopes is not None and slopes.size > 1:
        slopes = slopes.reshape([-1 if a == channel_axis % x.ndim else 1 for a in range(x.ndim)])
    v, zero = x.astype(np.float64), np.zeros(())
    with np.errstate(over="ignore", invalid="ignore"):
        y = {
            "identity": lambda: v, "clip": lambda: np.minimum(np.maximum(v, p0), p1),
            "leaky_relu": lambda: np.where(v > 0, v, p0 * v), "prelu": lambda: np.where(v > 0, v, slopes * v),
            "elu": lambda: np.where(v > 0, v, p0 * np.expm1(np.minimum(v, zero))), "sigmoid": lambda: _sigmoid(v), "tanh": lambda: np.tanh(v),
            "gelu": lambda: v / 2 * (1 + _erf(v / math.sqrt(2))),
            "gelu_tanh": lambda: v / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v ** 3))),
            "silu": lambda: v * _sigmoid(v), "hardsigmoid": lambda: np.clip(v / 6 + 0.5, 0, 1),
            "hardswish": lambda: v * np.clip(v / 6 + 0.5, 0, 1), "softplus": lambda: np.logaddexp(v, 0),
            "mish": lambda: v * np.tanh(np.logaddexp(v, 0)),
        }[activations.KINDS[kind]]()
    return y.astype(x.dtype)


# ---- convolution and pooling ------------------------------------------------------------------------------------------

def _windows(x, kernel, strides, dilations):
    """A view (n, c, out..., kernel...) of the windows of x (n, c, spatial...)."""
    n = len(kernel)
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    v = np.lib.stride_tricks.sliding_window_view(x, spans, axis=tuple(range(2, 2 + n)))
    return v[(slice(None),) * 2 + tuple(slice(None, None, s) for s in strides) + tuple(slice(None, None, d) for d in dilations)]


def _padded(x, pads, value):
    return np.pad(x, [(0, 0), (0, 0), *pads], constant_values=value) if any(map(any, pads)) else x


def _conv(node, x, w, b=None):
    kernel, groups = w.shape[2:], node.attrs.get("group", 1)
    strides, dilations, pads = windows.window(node, x.shape[2:], kernel)
    v = _windows(_padded(x, pads, 0), kernel, strides, dilations)
    out, taps = v.shape[2:2 + len(kernel)], math.prod(kernel)
    v = np.moveaxis(v.reshape(x.shape[0], groups, -1, *v.shape[2:]), 2, 2 + len(kernel))  # n, groups, out..., c, kernel...
    v = v.reshape(x.shape[0], groups, math.prod(out), w.shape[1] * taps)
    y = v @ w.reshape(groups, -1, w.shape[1] * taps).swapaxes(1, 2)
    y = y.swapaxes(2, 3).reshape(x.shape[0], w.shape[0], *out)
    return y if b is None else y + b.reshape(-1, *[1] * len(kernel))


def _conv_transpose(node, x, w, b=None):
    kernel, groups = w.shape[2:], node.attrs.get("group", 1)
    sizes, strides, dilations, begins = windows.transposed(node, x.shape[2:], kernel)
    reach = [(i - 1) * s + (k - 1) * d + 1 for i, s, k, d in zip(x.shape[2:], strides, kernel, dilations, strict=True)]
    full = np.zeros((x.shape[0], w.shape[1] * groups, *[max(r, b0 + o) for r, b0, o in zip(reach, begins, sizes, strict=True)]), x.dtype)
    xg = x.reshape(x.shape[0], groups, x.shape[1] // groups, -1)
    for tap in np.ndindex(*kernel):
        wt = w[(slice(None), slice(None), *tap)].reshape(groups, -1, w.shape[1])
        y = (wt.swapaxes(1, 2) @ xg).reshape(x.shape[0], -1, *x.shape[2:])
        full[(slice(None),) * 2 + tuple(slice(t * d, t * d + (i - 1) * s + 1, s) for t, d, i, s
                                        in zip(tap, dilations, x.shape[2:], strides, strict=True))] += y
    y = full[(slice(None),) * 2 + tuple(slice(b0, b0 + o) for b0, o in zip(begins, sizes, strict=True))]
    return y if b is None else y + b.reshape(-1, *[1] * len(kernel))


def _pool_windows(node, x, border, beyond):
    """The windows of a pool and the axes to reduce. The padding has the value `border`, cells past it (ceil_mode) `beyond`."""
    kernel = node.attrs["kernel_shape"]
    strides, dilations, pads = windows.window(node, x.shape[2:], kernel)
    sizes = windows.output_sizes(node, x.shape[2:], kernel)
    past = [(0, max(0, (o - 1) * s + (k - 1) * d + 1 - i - sum(p)))
            for p, o, s, k, d, i in zip(pads, sizes, strides, kernel, dilations, x.shape[2:], strict=True)]
    n = len(kernel)
    v = _windows(_padded(_padded(x, pads, border), past, beyond), kernel, strides, dilations)
    return v[(slice(None),) * 2 + tuple(slice(o) for o in sizes)], tuple(range(2 + n, 2 + 2 * n))


def _lowest(dtype):
    return -np.inf if dtype.kind == "f" else False if dtype.kind == "b" else np.iinfo(dtype).min


def _highest(dtype):
    return np.inf if dtype.kind == "f" else True if dtype.kind == "b" else np.iinfo(dtype).max


def _max_pool(node, x):
    v, axes = _pool_windows(node, x, _lowest(x.dtype), _lowest(x.dtype))
    return v.max(axes)


def _average_pool(node, x):
    v, axes = _pool_windows(node, x, 0, 0)
    counted, _ = _pool_windows(node, np.ones((1, 1, *x.shape[2:]), x.dtype), int(node.attrs.get("count_include_pad", 0)), 0)
    return v.sum(axes) / counted.sum(axes)


def _batch_norm(node, x, scale, shift, mean, var):
    each = (-1, *[1] * (x.ndim - 2))
    if node.attrs.get("training_mode", 0):
        axes, momentum = tuple(a for a in range(x.ndim) if a != 1), node.attrs.get("momentum", 0.9)
        seen_mean, seen_var = x.mean(axes), x.var(axes)
        running = mean * momentum + seen_mean * (1 - momentum), var * momentum + seen_var * (1 - momentum)
        mean, var = seen_mean, seen_var
    factor = scale.astype(np.float64) / np.sqrt(var.astype(np.float64) + node.attrs.get("epsilon", 1e-5))
    offset = shift - mean * factor
    y = x * factor.astype(x.dtype).reshape(each) + offset.astype(x.dtype).reshape(each)
    return (y, *running) if node.attrs.get("training_mode", 0) else y


def _normalized(x, axes, eps):
    v = x.astype(np.float64)
    v = v - v.mean(axes, keepdims=True)
    inverse = 1 / np.sqrt((v * v).mean(axes, keepdims=True) + eps)
    return v * inverse, inverse


def _layer_norm(node, x, scale, shift=None):
    axes = tuple(range(node.attrs.get("axis", -1) % x.ndim, x.ndim))
    v, inverse = _normalized(x, axes, node.attrs.get("epsilon", 1e-5))
    y = (v * scale if shift is None else v * scale + shift).astype(x.dtype)
    return y, x.mean(axes, keepdims=True), inverse.astype(x.dtype)


def _instance_norm(node, x, scale, shift):
    each = (-1, *[1] * (x.ndim - 2))
    v, _ = _normalized(x, tuple(range(2, x.ndim)), node.attrs.get("epsilon", 1e-5))
    return (v * scale.reshape(each) + shift.reshape(each)).astype(x.dtype)


def _lrn(node, x):
    size, channels = node.attrs["size"], x.shape[1]
    squares = np.zeros_like(x)
    for c in range(channels):
        squares[:, c] = np.square(x[:, max(0, c - (size - 1) // 2):min(channels, c + size // 2 + 1)]).sum(1)
    return x / (node.attrs.get("bias", 1.0) + node.attrs.get("alpha", 1e-4) / size * squares) ** node.attrs.get("beta", 0.75)


# ---- products ---------------------------------------------------------------------------------------------------------

def _gemm(node, a, b, c=None):
    a, b = a.T if node.attrs.get("transA", 0) else a, b.T if node.attrs.get("transB", 0) else b
    y = (a @ b) * np.asarray(node.attrs.get("alpha", 1.0), a.dtype)
    return y if c is None else y + c * np.asarray(node.attrs.get("beta", 1.0), a.dtype)


def _linear(node, x, w, b=None):
    return x @ w.T if b is None else x @ w.T + b


# ---- recurrent --------------------------------------------------------------------------------------------------------

_GATE_ACTIVATIONS = {
    "Relu": lambda v, a, b: np.maximum(v, 0), "Tanh": lambda v, a, b: np.tanh(v), "Sigmoid": lambda v, a, b: _sigmoid(v),
    "Affine": lambda v, a, b: (1.0 if a is None else a) * v + (0.0 if b is None else b),
    "LeakyRelu": lambda v, a, b: np.where(v >= 0, v, (0.01 if a is None else a) * v),
    "ThresholdedRelu": lambda v, a, b: np.where(v >= (1.0 if a is None else a), v, 0),
    "ScaledTanh": lambda v, a, b: (1.0 if a is None else a) * np.tanh((1.0 if b is None else b) * v),
    "HardSigmoid": lambda v, a, b: np.clip((0.2 if a is None else a) * v + (0.5 if b is None else b), 0, 1),
    "Elu": lambda v, a, b: np.where(v >= 0, v, (1.0 if a is None else a) * np.expm1(v)),
    "Softsign": lambda v, a, b: v / (1 + np.abs(v)), "Softplus": lambda v, a, b: np.logaddexp(v, 0),
}
_TAKES_ALPHA = {"Affine", "LeakyRelu", "ThresholdedRelu", "ScaledTanh", "HardSigmoid", "Elu"}
_TAKES_BETA = {"Affine", "ScaledTanh", "HardSigmoid"}


def _gate_functions(node, directions, default):
    """For each direction the functions of its gates."""
    names = node.attrs.get("activations") or default * directions
    alphas, betas = list(node.attrs.get("activation_alpha", [])), list(node.attrs.get("activation_beta", []))
    found, lookup = [], {k.lower(): k for k in _GATE_ACTIVATIONS}
    for name in names:
        if name.lower() not in lookup:
            raise ValueError(f"{node.op} {node.name!r} has the activation {name!r}, which fusedops does not have")
        name = lookup[name.lower()]
        a = alphas.pop(0) if name in _TAKES_ALPHA and alphas else None
        b = betas.pop(0) if name in _TAKES_BETA and betas else None
        found.append(lambda v, f=_GATE_ACTIVATIONS[name], a=a, b=b: f(v, a, b))
    each = len(default)
    return [found[d * each:(d + 1) * each] for d in range(directions)]


def _rnn_step(node, f, xw, h, c, r, rb, p):
    return f[0](xw + h @ r.T + rb), None


def _gru_step(node, f, xw, h, c, r, rb, p):
    (xz, xr, xh), (rz, rr, rh), (bz, br, bh) = np.split(xw, 3, 1), np.split(r, 3), np.split(rb, 3)
    z, gate = f[0](xz + h @ rz.T + bz), f[0](xr + h @ rr.T + br)
    if node.attrs.get("linear_before_reset", 0):
        new = f[1](xh + gate * (h @ rh.T + bh))
    else:
        new = f[1](xh + (gate * h) @ rh.T + bh)
    return (1 - z) * new + z * h, None


def _lstm_step(node, f, xw, h, c, r, rb, p):
    i, o, forget, new = np.split(xw + h @ r.T + rb, 4, 1)
    pi, po, pf = np.split(p, 3) if p is not None else (0, 0, 0)
    i, forget = f[0](i + pi * c), f[0](forget + pf * c)
    c = (1 - i if node.attrs.get("input_forget", 0) else forget) * c + i * f[1](new)
    return f[0](o + po * c) * f[2](c), c


def _recurrent(step, gates, default):
    def run(node, x, w, r, b=None, lengths=None, h0=None, c0=None, p=None):
        batch_first, direction = node.attrs.get("layout", 0), node.attrs.get("direction", "forward")
        directions, hidden, clip = w.shape[0], r.shape[2], node.attrs.get("clip")
        if batch_first:
            x, h0, c0 = (s if s is None else s.swapaxes(0, 1) for s in (x, h0, c0))
        steps, batch = x.shape[:2]
        functions = _gate_functions(node, directions, default)
        if clip is not None:
            functions = [[lambda v, g=g: g(np.clip(v, -clip, clip)) for g in each] for each in functions]
        y = np.zeros((steps, directions, batch, hidden), x.dtype)
        last = np.zeros((2, directions, batch, hidden), x.dtype)
        lengths = np.full(batch, steps) if lengths is None else lengths
        for d in range(directions):
            h, c = (np.zeros((batch, hidden), x.dtype) if s is None else s[d].copy() for s in (h0, c0))
            wb, rb = np.split(b[d], 2) if b is not None else (np.zeros(gates * hidden, x.dtype),) * 2
            backward = direction == "reverse" or d == 1
            for t in range(steps):
                live = t < lengths
                at = np.where(live, lengths - 1 - t if backward else t, 0)
                xt = x[at, np.arange(batch)]
                new_h, new_c = step(node, functions[d], xt @ w[d].T + wb, h, c, r[d], rb, None if p is None else p[d])
                h = np.where(live[:, None], new_h, h).astype(x.dtype)
                c = c if new_c is None else np.where(live[:, None], new_c, c).astype(x.dtype)
                rows = np.flatnonzero(live)
                y[at[rows], d, rows] = h[rows]
            last[0, d], last[1, d] = h, c
        if batch_first:
            return y.transpose(2, 0, 1, 3), *last.swapaxes(1, 2)
        return y, *last
    return run


# ---- shapes and places ------------------------------------------------------------------------------------------------

def axes_of(axes, ndim):
    """Axes, of which negative ones count from behind, as numbers from 0; None is all of them."""
    axes = range(ndim) if axes is None else [int(a) for a in axes]
    found = tuple(a + ndim * (a < 0) for a in axes)
    if len(set(found)) < len(found) or not all(0 <= a < ndim for a in found):
        raise ValueError(f"{list(axes)} are not axes of an array of {ndim}")
    return found


def axis_of(node, ndim, default=0):
    """The one axis that a node works along."""
    return axes_of([node.attrs.get("axis", default)], ndim)[0]


def _reduce(function):
    def run(node, x, axes=None):
        if (axes is None or axes.size == 0) and node.attrs.get("noop_with_empty_axes", 0):
            return x
        return function(x, axes_of(axes if axes is not None and axes.size else None, x.ndim), bool(node.attrs.get("keepdims", 1)))
    return run


def flatten_shape(node, shape):
    axis = node.attrs.get("axis", 1)
    axis += len(shape) * (axis < 0)
    if not 0 <= axis <= len(shape):
        raise ValueError(f"its axis {node.attrs['axis']} is none of {len(shape)}")
    return math.prod(shape[:axis]), math.prod(shape[axis:])


def reshape_shape(node, shape, wanted):
    wanted = [int(w) for w in wanted]
    if not node.attrs.get("allowzero", 0):
        wanted = [shape[i] if w == 0 else w for i, w in enumerate(wanted)]
    if min(wanted, default=0) < -1 or wanted.count(-1) > 1:
        raise ValueError(f"{wanted} is no shape")
    if -1 in wanted:
        rest = math.prod(w for w in wanted if w != -1)
        wanted[wanted.index(-1)] = math.prod(shape) // rest if rest else 0
    return tuple(wanted)


def unsqueeze_shape(shape, axes):
    ndim = len(shape) + len(axes)
    where, rest = axes_of(axes, ndim), iter(shape)
    return tuple(1 if i in where else next(rest) for i in range(ndim))


def squeeze_shape(shape, axes):
    where = axes_of(axes, len(shape)) if axes is not None else [i for i, s in enumerate(shape) if s == 1]
    if any(shape[i] != 1 for i in where):
        raise ValueError(f"the axes {list(where)} do not all have length 1")
    return tuple(s for i, s in enumerate(shape) if i not in where)


def split_sizes(node, length, sizes):
    parts = len(node.outputs)
    each = -(-length // parts)
    sizes = [min(each, length - i * each) for i in range(parts)] if sizes is None else [int(s) for s in sizes]
    if len(sizes) != parts or sum(sizes) != length or min(sizes) < 0 or node.attrs.get("num_outputs", parts) != parts:
        raise ValueError(f"an axis of {length} cannot be split into {parts} parts of {sizes}")
    return sizes


def slices(shape, starts, ends, axes=None, steps=None):
    """The Python slices of a Slice."""
    found = [slice(None)] * len(shape)
    for i, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        axis, step = int(axes[i]) if axes is not None else i, int(steps[i]) if steps is not None else 1
        size = shape[axis]
        start, end = start + size * (start < 0), end + size * (end < 0)
        if step > 0:
            found[axis] = slice(min(max(start, 0), size), min(max(end, 0), size), step)
        else:
            end = min(max(end, -1), size - 1)
            found[axis] = slice(min(max(start, 0), size - 1), None if end < 0 else end, step)
    return tuple(found)


def pad_amounts(ndim, pads, axes=None):
    pads, amounts = pads.tolist(), [(0, 0)] * ndim
    axes = axes_of(axes, ndim)
    for i, a in enumerate(axes):
        amounts[a] = pads[i], pads[i + len(axes)]
    return amounts


def _pad(node, x, pads, value=None, axes=None):
    mode, amounts = node.attrs.get("mode", "constant"), pad_amounts(x.ndim, pads, axes)
    x = x[tuple(slice(max(-b, 0), x.shape[i] - max(-e, 0)) for i, (b, e) in enumerate(amounts))]  # a negative pad crops
    amounts = [(max(b, 0), max(e, 0)) for b, e in amounts]
    if mode == "constant":
        return np.pad(x, amounts, constant_values=0 if value is None or value.size == 0 else value.item())
    return np.pad(x, amounts, mode=mode)


def _resize(node, x, roi=None, scales=None, sizes=None):
    out, scale = windows.resize_sizes(node, x.shape, roi, scales, sizes)
    for axis, (size, o, s) in enumerate(zip(x.shape, out, scale, strict=True)):
        if s == 1 and size == o:
            continue
        i0, i1, t = windows.resize_table(node, size, o, s)
        y = x.take(i0, axis)
        if i1 is not None:
            t = t.reshape([-1 if a == axis else 1 for a in range(x.ndim)])
            y = (1 - t) * y + t * x.take(i1, axis)
        x = y
    return x.copy() if x.base is not None else x


def _softmax(node, x):
    axis = node.attrs.get("axis", -1) % max(x.ndim, 1)
    axes = tuple(range(axis, x.ndim)) if node.attrs.get("to_end") else axis
    e = x - x.max(axes, keepdims=True)
    if node.op == "LogSoftmax":
        return e - np.log(np.exp(e).sum(axes, keepdims=True))
    e = np.exp(e)
    return e / e.sum(axes, keepdims=True)


def _shape(node, x):
    return np.array(x.shape[node.attrs.get("start", 0):node.attrs.get("end")], np.int64)


def _constant_of_shape(node, shape):
    value = node.attrs.get("value", np.zeros(1, np.float32))
    return np.full(tuple(shape.tolist()), value.item(), value.dtype)


# TensorProto's numbers for the types of elements.
CAST_TYPES = {1: np.float32, 2: np.uint8, 3: np.int8, 4: np.uint16, 5: np.int16, 6: np.int32, 7: np.int64, 9: np.bool_, 10: np.float16,
              11: np.float64, 12: np.uint32, 13: np.uint64}


def _cast(node, x):
    with np.errstate(invalid="ignore"):
        return x.astype(CAST_TYPES[node.attrs["to"]])


def _div(node, a, b):
    if a.dtype.kind == "f":
        return a / b
    with np.errstate(divide="ignore"):
        q = np.abs(a) // np.abs(b)  # C's division: towards zero
    return (np.where((a < 0) != (b < 0), -q, q) if a.dtype.kind == "i" else q).astype(a.dtype)


def _mod(node, a, b):
    with np.errstate(divide="ignore", invalid="ignore"):
        return (np.fmod if node.attrs.get("fmod", 0) else np.mod)(a, b)


def _elementwise(function):
    return lambda node, *xs: function(*xs)


def _flatten(node, x):
    return x.reshape(flatten_shape(node, x.shape))


def _clip(node, x, lo=None, hi=None):
    x = x if lo is None else np.maximum(x, lo)
    return x if hi is None else np.minimum(x, hi)


def _dropout(node, x):
    return (x, np.ones(x.shape, np.bool_))[:len(node.outputs)]


def _split(node, x, sizes=None):
    axis = node.attrs.get("axis", 0)
    return np.split(x, np.cumsum(split_sizes(node, x.shape[axis], sizes))[:-1], axis)


ELEMENTWISE = {
    "Add": _elementwise(np.add), "Sub": _elementwise(np.subtract), "Mul": _elementwise(np.multiply), "Div": _div,
    "Pow": _elementwise(lambda a, b: np.power(a, b).astype(a.dtype)), "Sqrt": _elementwise(np.sqrt), "Exp": _elementwise(np.exp),
    "Erf": _elementwise(_erf), "Neg": _elementwise(np.negative), "Abs": _elementwise(np.abs), "Log": _elementwise(np.log),
    "Reciprocal": _elementwise(np.reciprocal), "Max": _elementwise(lambda *xs: np.maximum.reduce(np.broadcast_arrays(*xs))),
    "Min": _elementwise(lambda *xs: np.minimum.reduce(np.broadcast_arrays(*xs))), "Where": _elementwise(np.where),
    "Equal": _elementwise(np.equal), "Greater": _elementwise(np.greater), "Less": _elementwise(np.less), "Not": _elementwise(np.logical_not),
    "And": _elementwise(np.logical_and), "Or": _elementwise(np.logical_or), "Clip": _clip, "Cast": _cast, "Identity": lambda node, x: x,
    "PRelu": lambda node, x, slope: np.where(x > 0, x, slope * x), "Activation": lambda node, x: x,
    "Ceil": _elementwise(np.ceil), "Cos": _elementwise(np.cos), "Floor": _elementwise(np.floor), "GreaterOrEqual": _elementwise(np.greater_equal),
    "IsNaN": _elementwise(np.isnan), "LessOrEqual": _elementwise(np.less_equal), "Mod": _mod, "Round": _elementwise(np.rint),
    "Sign": _elementwise(np.sign), "Sin": _elementwise(np.sin), "Softsign": _elementwise(lambda x: x / (1 + np.abs(x))),
    "Xor": _elementwise(np.logical_xor),
}
COMPARISONS = {"Equal", "Greater", "GreaterOrEqual", "IsNaN", "Less", "LessOrEqual", "Not", "And", "Or", "Xor"}
OPERATORS = ELEMENTWISE | {
    "ArgMax": elements.best(np.argmax), "ArgMin": elements.best(np.argmin), "AveragePool": _average_pool, "BatchNormalization": _batch_norm,
    "Concat": lambda node, *xs: np.concatenate(xs, node.attrs["axis"]), "ConstantOfShape": _constant_of_shape, "Conv": _conv,
    "ConvTranspose": _conv_transpose, "CumSum": elements.cumsum, "DepthToSpace": elements.move_blocks, "Dropout": _dropout, "Einsum": elements.einsum,
    "Expand": lambda node, x, shape: x * np.ones(shape.tolist(), x.dtype) if x.dtype != bool else x & np.ones(shape.tolist(), bool),
    "Flatten": _flatten, "GRU": _recurrent(_gru_step, 3, ["Sigmoid", "Tanh"]), "Gather": lambda node, x, i: x.take(i, node.attrs.get("axis", 0)),
    "GatherElements": elements.gather_elements, "GatherND": elements.gather_nd, "Gemm": _gemm,
    "GlobalAveragePool": lambda node, x: x.mean(tuple(range(2, x.ndim)), keepdims=True),
    "GlobalMaxPool": lambda node, x: x.max(tuple(range(2, x.ndim)), keepdims=True), "InstanceNormalization": _instance_norm, "LRN": _lrn,
    "LSTM": _recurrent(_lstm_step, 4, ["Sigmoid", "Tanh", "Tanh"]), "LayerNormalization": _layer_norm, "Linear": _linear,
    "LogSoftmax": _softmax, "MatMul": _gemm, "MaxPool": _max_pool, "Pad": _pad, "RNN": _recurrent(_rnn_step, 1, ["Tanh"]),
    "Range": lambda node, a, b, step: np.arange(a.item(), b.item(), step.item(), dtype=a.dtype),
    "ReduceLogSumExp": _reduce(elements.log_sum_exp), "ReduceMax": _reduce(lambda x, a, k: x.max(a, keepdims=k, initial=_lowest(x.dtype))),
    "ReduceMean": _reduce(lambda x, a, k: x.mean(a, keepdims=k)), "ReduceMin": _reduce(lambda x, a, k: x.min(a, keepdims=k, initial=_highest(x.dtype))),
    "ReduceProd": _reduce(lambda x, a, k: x.prod(a, keepdims=k, dtype=x.dtype)), "ReduceSum": _reduce(lambda x, a, k: x.sum(a, keepdims=k, dtype=x.dtype)),
    "Reshape": lambda node, x, shape: x.reshape(reshape_shape(node, x.shape, shape)), "Resize": _resize,
    "ScatterElements": elements.scatter_elements, "ScatterND": elements.scatter_nd, "Shape": _shape,
    "Slice": lambda node, x, *where: x[slices(x.shape, *where)], "Softmax": _softmax, "SpaceToDepth": elements.move_blocks, "Split": _split,
    "Squeeze": lambda node, x, axes=None: x.reshape(squeeze_shape(x.shape, axes)), "Tile": lambda node, x, repeats: np.tile(x, repeats.tolist()),
    "TopK": elements.top_k, "Transpose": lambda node, x: x.transpose(node.attrs.get("perm")), "Trilu": elements.triangle,
    "Unsqueeze": lambda node, x, axes: x.reshape(unsqueeze_shape(x.shape, axes)),
}
