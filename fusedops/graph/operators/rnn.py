"""RNN, LSTM and GRU as recurrent layers: the directions side by side."""

from dataclasses import replace
from functools import partial

import numpy as np

from ... import activations
from ..._core import Q_STEPS_OF_ZEROS
from ..._internal import recurrent_weights
from ...layers import GRU, LSTM, RNN
from ...layers.dynamic_lstm import Weights, dynamic_lstm
from ..ir.float16_weights import as_float16_weights
from ..ir.graph import Node
from ..steps.lowering import LoweringContext
from ..steps.prepared import UnpackedLayer
from ..steps.tensor import Buffer, TensorView, row_major
from .qlinear import as_int8, requantized
from .schema import Inference, Kernel, NumPyOnly, Operator, always, same_shape


def _without_parameters(function):
    return lambda v, a, b: function(v)


_PLAIN = {form.onnx: name for name, form in activations.FORMS.items() if form.onnx is not None}

_GATE_ACTIVATIONS = {
    **{op: _without_parameters(activations.FORMS[name].numpy) for op, name in _PLAIN.items()},
    "Relu": lambda v, a, b: np.maximum(v, 0),
    "Affine": lambda v, a, b: a * v + b,
    "LeakyRelu": lambda v, a, b: np.where(v >= 0, v, a * v),
    "ThresholdedRelu": lambda v, a, b: np.where(v >= a, v, 0),
    "ScaledTanh": lambda v, a, b: a * np.tanh(b * v),
    "HardSigmoid": lambda v, a, b: np.minimum(np.maximum(a * v + b, 0), 1),
    "Elu": lambda v, a, b: np.where(v >= 0, v, a * np.expm1(v)),
}

_NAMES = {name.lower(): name for name in _GATE_ACTIVATIONS}

_PARAMETERS = {  # with their defaults
    "Affine": (1.0, 0.0),
    "LeakyRelu": (0.01,),
    "ThresholdedRelu": (1.0,),
    "ScaledTanh": (1.0, 1.0),
    "HardSigmoid": (0.2, 0.5),
    "Elu": (1.0,),
}


def _gate_kinds(node, directions, default):
    """For each direction the (name, alpha, beta) of its gates' functions."""
    lists = [list(node.attrs.get(f"activation_{name}") or []) for name in ("alpha", "beta")]
    found = []
    for name in node.attrs.get("activations") or default * directions:
        if name.lower() not in _NAMES:
            raise ValueError(f"{node.op} {node.name!r} has the activation {name!r}, which fusedops does not have")
        name = _NAMES[name.lower()]
        usual = _PARAMETERS.get(name, ())
        own = [given.pop(0) if given else value for given, value in zip(lists, usual, strict=False)]
        found.append((name, *own, *[0.0] * (2 - len(own))))
    each = len(default)
    return [found[d * each : (d + 1) * each] for d in range(directions)]


def _gate_functions(node, directions, default):
    """For each direction the functions of its gates."""
    return [
        [lambda v, f=_GATE_ACTIVATIONS[name], a=a, b=b: f(v, a, b) for name, a, b in gates]
        for gates in _gate_kinds(node, directions, default)
    ]


def _rnn_step(node, f, r, rb, p):
    """(what is added to all x parts of the gates, the step from x's part, h and c to the next h and c)."""
    r = np.ascontiguousarray(r.T)
    return rb, lambda xw, h, c: (f[0](xw + h @ r), c)


def _gru_step(node, f, r, rb, p):
    n, after = r.shape[1], node.attrs.get("linear_before_reset", 0)
    first, new = (np.ascontiguousarray(part.T) for part in (r if after else r[: 2 * n], r[2 * n :]))
    bias = rb[2 * n :]

    def step(xw, h, c):
        hw = h @ first
        both = f[0](xw[:, : 2 * n] + hw[:, : 2 * n])
        z, reset = both[:, :n], both[:, n:]
        candidate = f[1](xw[:, 2 * n :] + (reset * (hw[:, 2 * n :] + bias) if after else (reset * h) @ new))
        return (1 - z) * candidate + z * h, c

    return np.concatenate([rb[: 2 * n], np.zeros_like(bias) if after else bias]), step


def _lstm_step(node, f, r, rb, p, projection=None):
    n, dynamic, coupled = len(r) // 4, node.attrs.get("dynamic"), node.attrs.get("input_forget", 0)
    most = node.attrs.get("cell_clip")
    r, (pi, po, pf) = np.ascontiguousarray(r.T), np.split(p, 3) if p is not None else [None] * 3

    def step(xw, h, c):
        h = requantized(h) if dynamic else h  # as com.microsoft's DynamicQuantizeLSTM has it
        sums = xw + h @ r
        gates, new = sums[:, : 3 * n], f[1](sums[:, 3 * n :])
        if p is None:
            gates = f[0](gates)  # few steps of NumPy: of small layers they are the time
        i, o, forget = gates[:, :n], gates[:, n : 2 * n], gates[:, 2 * n :]
        if p is not None:
            i, forget = f[0](i + pi * c), f[0](forget + pf * c)
        c = (1 - i if coupled else forget) * c + i * new
        c = c if most is None else np.minimum(np.maximum(c, -most), most)
        h = (o if p is None else f[0](o + po * c)) * f[2](c)
        return h if projection is None else h @ projection.T, c

    return rb, step


def _recurrent(prepare, gates, default):
    def run(node, x, w, r, b=None, lengths=None, h0=None, c0=None, p=None, projection=None):
        batch_first, direction = node.attrs.get("layout", 0), node.attrs.get("direction", "forward")
        directions, hidden, outputs = w.shape[0], w.shape[1] // gates, r.shape[2]
        if batch_first:
            x = x.swapaxes(0, 1)
            h0, c0 = (s if s is None else s.swapaxes(0, 1) for s in (h0, c0))
        steps, batch = x.shape[:2]
        functions = _clipped(_gate_functions(node, directions, default), node.attrs.get("clip"))
        y = np.zeros((steps, directions, batch, outputs), x.dtype)
        last = [np.zeros((directions, batch, n), x.dtype) for n in (outputs, hidden)]
        lengths = np.full(batch, steps) if lengths is None else _checked_lengths(node, lengths, steps)
        for d in range(directions):
            h, c = (end[d] if s is None else s[d].copy() for s, end in zip((h0, c0), last, strict=True))
            wb, rb = np.split(b[d], 2) if b is not None else (np.zeros(gates * hidden, x.dtype),) * 2
            more = [] if projection is None else [projection[d]]
            rb, step = prepare(node, functions[d], r[d], rb, None if p is None else p[d], *more)
            sums = (x.reshape(steps * batch, -1) @ w[d].T + (wb + rb)).reshape(steps, batch, -1)
            last[0][d], last[1][d] = _walk(step, sums, y[:, d], h, c, lengths, direction == "reverse" or d == 1)
        if batch_first:
            return y.transpose(2, 0, 1, 3), *(s.swapaxes(0, 1) for s in last)
        return y, *last

    return run


def _clipped(functions, clip):
    """Gates whose arguments are clipped; an LSTM's new state, the last of them, is none, as in ONNX Runtime."""
    if clip is None:
        return functions
    return [
        [g if i == 2 else lambda v, g=g: g(np.minimum(np.maximum(v, -clip), clip)) for i, g in enumerate(each)]
        for each in functions
    ]


def _walk(step, sums, y, h, c, lengths, backward):
    """The last states of one direction, whose steps write y; a row of a batch ends at its length."""
    steps, batch = y.shape[:2]
    if np.all(lengths == steps):
        for at in reversed(range(steps)) if backward else range(steps):
            y[at], c = h, c = step(sums[at], h, c)
        return h, c
    for t in range(steps):
        live = t < lengths
        at = np.where(live, lengths - 1 - t if backward else t, 0)
        new = step(sums[at, np.arange(batch)], h, c)
        h, c = (np.where(live[:, None], after, before) for after, before in zip(new, (h, c), strict=True))
        rows = np.flatnonzero(live)
        y[at[rows], rows] = h[rows]
    return h, c


def _checked_lengths(node, lengths, steps):
    """The steps of each row of a batch, as the kernels take them."""
    least = node.attrs.get("least", 0)
    if lengths.size and not least <= lengths.min() <= lengths.max() <= steps:
        given = f"{lengths.min()} to {lengths.max()}"
        raise ValueError(f"its lengths must be in {least}..{steps}, the steps of x, not {given}")
    return lengths.astype(np.int64)


def _recurrent_shape(node, x, w, r, *optional):
    batch_first, projection = node.attrs.get("layout", 0), optional[5] if len(optional) > 5 else None
    outputs = r.shape[-1]
    hidden = outputs if projection is None else projection.shape[-1]
    if (
        len(x.shape) != 3
        or w.shape != (w.shape[0], {"RNN": 1, "GRU": 3}.get(node.op, 4) * hidden, x.shape[2])
        or r.shape != (*w.shape[:2], outputs)
    ):
        raise ValueError(f"weights of shape {w.shape} and {r.shape} do not fit")
    steps, batch = x.shape[:2] if not batch_first else x.shape[1::-1]
    state, cells = ((batch, w.shape[0], n) if batch_first else (w.shape[0], batch, n) for n in (outputs, hidden))
    needed = {
        "B": (w.shape[0], 2 * w.shape[1]),
        "sequence_lens": (batch,),
        "initial_h": state,
        "initial_c": cells,
        "P": (w.shape[0], 3 * hidden),
        "the projection": (w.shape[0], outputs, hidden),
    }
    for (name, shape), given in zip(needed.items(), optional, strict=False):
        if given is not None and given.shape != shape:
            raise ValueError(f"{name} of shape {given.shape} must have {shape}")
    return [(batch, steps, *state[1:]) if batch_first else (steps, *state), state, cells]


_DEFAULTS = {"RNN": ["Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"], "GRU": ["Sigmoid", "Tanh"]}
_DEFAULTS["DynamicLSTM"] = _DEFAULTS["ProjectedLSTM"] = _DEFAULTS["LSTM"]


def _lower(p: LoweringContext, node):
    """Adds the step of a recurrent node; returns whether its weights are constant and its gates those of the
    kernels."""
    given = [node.input(i) for i in (1, 2, 3, 7, 8)]
    w, r, b, peephole, projection = map(p.data, given)
    gates = _gates(node, w)
    if gates is None or any(v and a is None for v, a in zip(given, (w, r, b, peephole, projection), strict=True)):
        return False

    make = partial(_layer, node, w, r, b, peephole, *gates, projection=projection)
    products = [(w.shape[1], w.shape[2] + r.shape[2])] * len(w)
    if projection is not None:
        products += [projection.shape[1:]] * len(w)
    return _add_sequence(p, node, UnpackedLayer(node.name, make, tuple(products)), w, r)


def _lower_dynamic(p: LoweringContext, node):
    """As _lower, of int8 weights."""
    given = [node.input(i) for i in (1, 2, 3, 7, 8, 9, 10, 11)]
    w, r, b, peephole, *scales = map(p.data, given)
    gates = _gates(node, w)
    if (
        any(v and a is None for v, a in zip(given, (w, r, b, peephole, *scales), strict=True))
        or gates is None
        or gates[1:] != (1, 0)
        or max(w.shape[2], r.shape[2]) > Q_STEPS_OF_ZEROS
    ):
        return False

    def make():
        options = {name: node.attrs.get(name) for name in ("clip", "cell_clip")}
        given = _rows_of_int8(w, *scales[:2]), _rows_of_int8(r, *scales[2:])
        direction = node.attrs.get("direction", "forward")
        return dynamic_lstm(*given, b, peephole, direction=direction, activations=gates[0], **options)

    return _add_sequence(p, node, p.layer(node.name, make), w, r)


def _rows_of_int8(w, scale, zero):
    """Weights of int8, (directions, rows, inputs), with one scale and zero point a direction or a row."""
    rows = w.reshape(-1, w.shape[2])

    def of_rows(a):
        return np.broadcast_to(a.reshape(len(w), -1), w.shape[:2])

    rows, zero = as_int8(rows, None if zero is None else of_rows(zero).reshape(-1), 0)
    zero = None if zero is None else zero.reshape(w.shape[:2])
    return Weights(rows.reshape(w.shape), np.ascontiguousarray(of_rows(scale)), zero)


def _add_sequence(p: LoweringContext, node, layer, w, r):
    """Adds the step of a layer with weights of these shapes; True."""
    x, batch_first = p.at(node.inputs[0]), node.attrs.get("layout", 0)
    x = _swapped(x) if batch_first else x
    x = x if x.strides[2] == 1 else p.dense(node, x, row_major(x.shape))
    (steps, batch), directions, outputs = x.shape[:2], w.shape[0], r.shape[2]
    y = p.new((steps, batch, directions * outputs))
    h0, c0 = (_state(p, node, node.input(i), batch_first) for i in (5, 6))
    widths = [outputs, w.shape[1] // 4] if node.op.endswith("LSTM") else [outputs]
    last = [p.new((directions, batch, n)) for n in widths]
    hn, cn = (*last, None)[:2]
    lengths = _lengths(p, node, steps, int(bool(batch_first))) if node.input(4) else None
    p.add("recurrent", node, layer=layer, x=x, y=y, h0=h0, c0=c0, hn=hn, cn=cn, lengths=lengths)
    inner = (directions * outputs, outputs, 1)
    if batch_first:
        p.view(
            node.outputs[0],
            y._replace(shape=(batch, steps, directions, outputs), strides=(inner[0], batch * inner[0], *inner[1:])),
        )
    else:
        p.view(
            node.outputs[0],
            y._replace(shape=(steps, directions, batch, outputs), strides=(batch * inner[0], outputs, inner[0], 1)),
        )
    for v, t in zip(node.outputs[1:], last, strict=False):
        p.view(v, _swapped(t) if batch_first else t)
    return True


def _lengths(p: LoweringContext, node, steps, axis):
    """The lengths of the rows as a tensor of int64, checked before the layer reads them."""
    given = p.at(node.input(4))
    if p.data(node.input(4)) is not None:
        checked = _checked_lengths(node, p.data(node.input(4)), steps)
        return TensorView(Buffer(checked.nbytes, array=checked), checked.shape, (1,), checked.dtype)
    checked = p.new(given.shape, dtype=np.dtype(np.int64))
    check = Node("CheckedLengths", node.name, [node.input(4), node.inputs[0]], [node.output], {"axis": axis})
    p.numpy(check, [given, p.at(node.inputs[0])], [checked])
    return checked


def _as_it_is(name):
    return lambda a, b: (name, 1.0, 0.0)


_OF_KERNELS = {  # the kernels' activation f and the factor and shift of v in f(factor * v + shift)
    **{op: _as_it_is(name) for op, name in _PLAIN.items()},
    "Relu": lambda a, b: ("relu", 1.0, 0.0),
    "LeakyRelu": lambda a, b: (("leaky_relu", a), 1.0, 0.0),
    "Elu": lambda a, b: (("elu", a), 1.0, 0.0),
    "Affine": lambda a, b: (None, a, b),
    "HardSigmoid": lambda a, b: (("clip", 0.0, 1.0), a, b),
}


def _gates(node, w):
    """(the kernels' functions of the gates, a factor of the weights of the first of them, a shift of its bias), or None
    where the kernels do not have them."""
    others = any(node.attrs.get(name, 0) for name in ("input_forget", "dynamic"))
    if w is None or others or not node.attrs.get("clip", 1.0) > 0:
        return None
    kinds, *others = _gate_kinds(node, len(w), _DEFAULTS[node.op])
    if any(other != kinds for other in others) or any(name not in _OF_KERNELS for name, *_ in kinds):
        return None
    (first, factor, shift), *rest = [_OF_KERNELS[name](a, b) for name, a, b in kinds]
    scaled = (factor, shift) != (1, 0)
    if any(more != [1, 0] for _, *more in rest) or scaled and node.attrs.get("clip") is not None:
        return None
    return (first, *(name for name, *_ in rest)), factor, shift


def _layer(node, w, r, b, peephole, functions, factor, shift, *, projection=None, once=False, precision="float32"):
    """once: for one call, which does not gain by smaller weights."""
    options = dict(direction=node.attrs.get("direction", "forward"), clip=node.attrs.get("clip"), precision=precision)
    if (factor, shift) != (1, 0):
        rows, gates = r.shape[1], {"RNN": 1, "GRU": 3}.get(node.op, 4)
        first = np.arange(rows) < (rows if gates == 1 else rows - rows // gates)  # the last block has another function
        scale, zeros = np.where(first, np.float32(factor), np.float32(1)), np.zeros(rows, np.float32)
        b = np.zeros((len(w), 2 * rows), w.dtype) if b is None else b * np.tile(scale, 2)
        b = b + np.concatenate([np.where(first, np.float32(shift), zeros), zeros])
        w, r = w * scale[:, np.newaxis], r * scale[:, np.newaxis]
        peephole = peephole if peephole is None else peephole * np.float32(factor)
    weights = [a for a in (w, r, projection) if a is not None]
    w, r, *projection = weights if once else as_float16_weights(*weights)
    if node.op == "RNN":
        return RNN.from_onnx(w, r, b, activation=functions[0], **options)
    options["activations"] = functions
    if node.op == "GRU":
        return GRU.from_onnx(w, r, b, linear_before_reset=node.attrs.get("linear_before_reset", 0), **options)
    options["cell_clip"] = node.attrs.get("cell_clip")
    if not projection:
        return LSTM.from_onnx(w, r, b, peephole, **options)
    given = recurrent_weights.of_onnx("LSTM", w, r, b, peephole)
    given |= recurrent_weights.direction(options.pop("direction"), len(w), 0)
    return LSTM(**given, w_hr=list(projection[0]), **options)


def _given_state(state, shape, batch_first):
    if state is None:
        return np.zeros(shape, np.float32)
    return state.swapaxes(0, 1) if batch_first else state


def _call_layer(node, residual, x, w, r, b=None, lengths=None, h0=None, c0=None, p=None):
    """By a layer for one call, of weights that are computed; None where the kernels do not have its gates."""
    gates, batch_first = _gates(node, w), node.attrs.get("layout", 0)
    if gates is None or {a.dtype for a in (x, w, r, b, h0, c0, p) if a is not None} != {np.dtype(np.float32)}:
        return None
    x = x.swapaxes(0, 1) if batch_first else x
    (steps, batch), directions, hidden = x.shape[:2], len(w), r.shape[2]
    if lengths is not None:
        lengths = _checked_lengths(node, lengths, steps)
    state = [_given_state(s, (directions, batch, hidden), batch_first) for s in (h0, c0)]
    state = tuple(state) if node.op == "LSTM" else state[0]
    y, last = _layer(node, w, r, b, p, *gates, once=True)(x, state, lengths)
    y, last = y.reshape(steps, batch, directions, hidden), last if node.op == "LSTM" else (last,)
    return [y.swapaxes(0, 1), *(s.swapaxes(0, 1) for s in last)] if batch_first else [y.swapaxes(1, 2), *last]


def _state(p: LoweringContext, node, value, batch_first):
    """An initial state as (directions, batch, hidden); None where there is none, or zeros."""
    known = p.data(value)
    if not value or known is not None and not known.any():
        return None
    t = p.at(value)
    t = _swapped(t) if batch_first else t
    return p.dense(node, t, row_major(t.shape))._replace(strides=row_major(t.shape))  # also of axes of length 1


def _swapped(t):
    return t._replace(
        shape=(t.shape[1], t.shape[0], *t.shape[2:]), strides=(t.strides[1], t.strides[0], *t.strides[2:])
    )


def _dynamic_shape(node, x, w, r, b, lengths, h0, c0, p, *scales):
    for given in scales:
        if given is not None and given.shape not in (w.shape[:1], w.shape[:2]):
            raise ValueError(
                f"scales and zero points of shape {given.shape} must have {w.shape[:1]} or {w.shape[:2]}: one a "
                f"direction, or one a gate"
            )
    return _recurrent_shape(node, x, w, r, b, lengths, h0, c0, p)


def _dynamic_lstm(node, x, w, r, b, lengths, h0, c0, p, *scales):
    """x and h are quantized for their own ranges before they meet int8 weights."""
    each = [s if s is None else s.reshape(len(w), -1, 1) for s in scales]
    w, r = (
        (a.astype(np.float32) - (0 if zero is None else zero.astype(np.float32))) * scale
        for a, scale, zero in ((w, *each[:2]), (r, *each[2:]))
    )
    node = replace(node, op="LSTM", attrs=node.attrs | {"dynamic": 1})
    return RECORDS["LSTM"].evaluate(node, requantized(x), w, r, b, lengths, h0, c0, p)


def _sequence(step, *gates, count):
    return Operator(
        _recurrent(step, count, list(gates)),
        Inference(_recurrent_shape),
        Kernel(_lower, "constant weights, functions of the gates that layers have"),
        run_layer=_call_layer,
    )


RECORDS = {
    "CheckedLengths": Operator(
        lambda node, lengths, x: _checked_lengths(node, lengths, x.shape[node.attrs["axis"]]),
        Inference(same_shape, dtype=always(np.int64)),
        NumPyOnly("a check of a few numbers"),
        None,
    ),
    "DynamicLSTM": Operator(
        _dynamic_lstm,
        Inference(_dynamic_shape, dtype=always(np.float32)),
        Kernel(_lower_dynamic, "constant weights of int8, functions of the gates that layers have"),
        None,
        optional={3, 4, 5, 6, 7},
    ),
    "GRU": _sequence(_gru_step, "Sigmoid", "Tanh", count=3),
    "LSTM": _sequence(_lstm_step, "Sigmoid", "Tanh", "Tanh", count=4),
    "ProjectedLSTM": _sequence(_lstm_step, *_DEFAULTS["LSTM"], count=4)._replace(read=None, run_layer=None),
    "RNN": _sequence(_rnn_step, "Tanh", count=1),
}
