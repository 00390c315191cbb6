"""Recurrent layers. Their states are variables: they go on in the next call."""

from typing import Any, NamedTuple

import numpy as np

from ....ir.graph import Node, Value, unique
from .entry import Builtin, activated

_GATES = "i", "f", "g", "o"
_FUNCTIONS = {"TANH": "Tanh", "RELU": "Relu", "NONE": "Affine"}


class _Lstm(NamedTuple):
    """Parameters of a direction, gates in the order i f g o, as arrays or None."""

    w: list  # (hidden, inputs) each
    r: list  # (hidden, outputs)
    bias: list
    peephole: list  # of i, f and o
    projection: tuple  # (weights, bias)
    norm: list  # coefficients of each gate's norm


def _lstm_parameters(r, op, first, norm=None):
    """The parameters from input `first` on; those of a missing input gate make it 1 - the forget gate."""
    x = op.inputs[0].quantization

    def array(i):
        held = op.input(i)
        return None if held is None else _real(r, op, held)

    def bias(i, weights):
        held, w = op.input(i), op.input(weights)
        if held is None or held.quantization is not None or x is None or w is None or r.array(held) is None:
            return array(i)
        stored = r.array(held)
        scale = x.scale.astype(np.float64) * w.quantization.scale if w.quantization else 1.0
        return (stored * scale).astype(np.float32) if stored.dtype.kind == "i" else stored

    w, rec = ([array(first + k + i) for i in range(4)] for k in (0, 4))
    peephole = [array(first + 8 + i) for i in range(3)]
    biases = [bias(first + 11 + i, first + i) for i in range(4)]
    projection = array(first + 15), array(first + 16)
    norms = [array(norm + i) for i in range(4)] if norm is not None else [None] * 4
    return _complete(op, _Lstm(w, rec, biases, peephole, projection, norms))


def _complete(op, lstm):
    """With what stands for parts that are left out."""
    w, rec, biases, peephole, _, norms = lstm
    if w[0] is None and w[1] is not None and rec[1] is not None:
        w[0], rec[0] = -w[1], -rec[1]
        biases[0] = None if biases[1] is None else -biases[1]
        peephole[0] = None if peephole[1] is None else -peephole[1]
        norms[0] = norms[1]  # of the sums, whose sign is the other one already
    if any(a is None for a in (*w, *rec)):
        raise op.error("the model is damaged: weights of a gate are missing")
    zeros = np.zeros(len(w[1]), np.float32)
    diagonals = [np.diag(a) if a.ndim == 1 else a for a in rec]
    return lstm._replace(r=diagonals, bias=[zeros if b is None else b for b in biases])


def _real(r, op, held):
    a = r.real_array(held)
    if a is None:
        raise op.error(f"its weights {held.tensor.name!r} are computed by the network: fusedops takes constant ones")
    return np.asarray(a, np.float32)


def _run_lstm(r, op, x, lstm, h, c, reverse=False):
    """(results of all steps (steps, batch, outputs), last h, last c) for x (steps, batch, inputs)."""
    name = r.activations.get(op.option("FusedActivationFunction"), "")
    if name not in _FUNCTIONS:
        raise op.error(f"its gates have the activation {name}, which fusedops does not have")
    cell_clip, proj_clip = (float(op.option(k)) for k in ("CellClip", "ProjClip"))
    projection, projection_bias = lstm.projection
    beside_product = projection is not None and (projection_bias is not None or proj_clip > 0)
    if beside_product or any(a is not None for a in lstm.norm):
        return _by_steps(r, x, lstm, h, c, _FUNCTIONS[name], (cell_clip, proj_clip), reverse)
    return _whole(r, x, lstm, h, c, _FUNCTIONS[name], cell_clip, reverse)


def _whole(r, x, lstm, h, c, function, cell_clip, reverse):
    """An LSTM as one node."""
    order = [0, 3, 1, 2]  # ONNX's i o f g

    def joined(parts, what):
        return r.constant(f"{r.at}.{what}", np.concatenate([parts[i] for i in order])[np.newaxis], np.float32)

    zeros = np.zeros(4 * len(lstm.w[0]), np.float32)
    bias = np.concatenate([*(lstm.bias[i] for i in order), zeros])[np.newaxis]
    peephole = ""
    if any(p is not None for p in lstm.peephole):
        i, f, o = (np.zeros(len(lstm.w[0]), np.float32) if p is None else p for p in lstm.peephole)
        peephole = r.constant(f"{r.at}.peephole", np.concatenate([i, o, f])[np.newaxis], np.float32)
    attrs: dict[str, Any] = dict(hidden_size=len(lstm.w[0]), direction="reverse" if reverse else "forward")
    attrs |= dict(cell_clip=cell_clip) if cell_clip > 0 else {}
    if function != "Tanh":
        attrs |= dict(activations=["Sigmoid", *[function] * 2], activation_alpha=[1.0] * 2)
    states = [r.emit("Unsqueeze", s, [0]) for s in (h, c)]
    given = joined(lstm.w, "w"), joined(lstm.r, "r"), r.constant(f"{r.at}.bias", bias, np.float32)
    kind, more = "LSTM", [peephole]
    if lstm.projection[0] is not None:
        weights = r.constant(f"{r.at}.projection", lstm.projection[0][np.newaxis], np.float32)
        kind, more = "ProjectedLSTM", [peephole, weights]
    y, h, c = r.emit(kind, x, *given, "", *states, *more, count=3, **attrs)
    return r.emit("Squeeze", y, [1]), r.emit("Squeeze", h, [0]), r.emit("Squeeze", c, [0])


def _by_steps(r, x, lstm, h, c, function, clips, reverse):
    """An LSTM with norms, or a projection with a bias or a clip, of which each step is spelled out."""
    sums = r.emit("MatMul", x, r.constant(f"{r.at}.w", np.concatenate(lstm.w).T, np.float32))
    body = r.child()
    names = [body.fresh(name) for name in ("h", "c", "sums")]
    for name in names:
        body.graph.inputs.append(Value(name, None, np.dtype(np.float32)))
        body.types[name] = np.dtype(np.float32)
    ends = _step(body, lstm, names, function, clips)
    body.finish([*ends, body.emit("Identity", ends[0])], 0)
    attrs = dict(body=body.graph, num_scan_inputs=1)
    if reverse:
        attrs |= dict(scan_input_directions=[1], scan_output_directions=[1])
    outputs = [r.fresh(r.at) for _ in range(3)]
    r.add(Node("Scan", unique(r.at, r.names), [h, c, sums], list(outputs), attrs))
    return outputs[2], outputs[0], outputs[1]


def _step(r, lstm, names, function, clips):
    """The next (h, c), of values h, c and sums."""
    h, c, sums = names

    def number(name, a):
        return r.constant(name, a, np.float32)

    def gate(i, value, kind, state):
        p = {0: 0, 1: 1, 3: 2}.get(i)
        if p is not None and lstm.peephole[p] is not None:
            value = r.emit("Add", value, r.emit("Mul", state, number("peephole", lstm.peephole[p])))
        if lstm.norm[i] is not None:
            scale = number("norm", lstm.norm[i])
            value = r.emit("LayerNormalization", value, scale, axis=-1, epsilon=1e-8)
        value = r.emit("Add", value, number("bias", lstm.bias[i]))
        return value if kind is None else r.emit("Activation", value, activation=kind)

    def held(value, most):
        return r.emit("Activation", value, activation=("clip", -most, most)) if most > 0 else value

    form = {"Tanh": "tanh", "Relu": "relu", "Affine": None}[function]
    sums = r.emit("Add", sums, r.emit("MatMul", h, number("r", np.concatenate(lstm.r).T)))
    n = len(lstm.w[0])
    i, f, g, o = r.emit("Split", sums, [n] * 4, axis=-1, count=4)
    i, f, g = gate(0, i, "sigmoid", c), gate(1, f, "sigmoid", c), gate(2, g, form, c)
    c = held(r.emit("Add", r.emit("Mul", f, c), r.emit("Mul", i, g)), clips[0])
    out = c if form is None else r.emit("Activation", c, activation=form)
    h = r.emit("Mul", gate(3, o, "sigmoid", c), out)
    if lstm.projection[0] is not None:
        w, b = lstm.projection
        h = r.emit("MatMul", h, number("projection", w.T))
        h = held(h if b is None else r.emit("Add", h, number("bias", b)), clips[1])
    return h, c


# ---- sequences


def _steps_first(r, op, time_major, rank=3):
    """The input as (steps, batch, inputs)."""
    x = r.value(op.inputs[0])
    if rank == 2:
        return r.emit("Unsqueeze", x, [0])
    return x if time_major else r.emit("Transpose", x, perm=[1, 0, 2])


def _as_given(r, y, time_major):
    return y if time_major else r.emit("Transpose", y, perm=[1, 0, 2])


def _keep(r, held, value):
    """Writes a state where it is a variable."""
    r.put(held, value)
    if held.handle is not None:
        r.write(held.handle, r.value(held, real=False))


def _unidirectional_lstm(r, op):
    time_major = op.option("TimeMajor")
    x = _steps_first(r, op, time_major)
    lstm = _lstm_parameters(r, op, 1, 20)
    h, c = op.inputs[18:20]
    y, last_h, last_c = _run_lstm(r, op, x, lstm, r.value(h), r.value(c))
    _keep(r, h, last_h), _keep(r, c, last_c)
    r.put(op.outputs[0], _as_given(r, y, time_major))


def _bidirectional_lstm(r, op):
    if any(op.input(i) is not None for i in range(39, 48)):
        raise op.error("it has an auxiliary input, which fusedops does not have")
    time_major = op.option("TimeMajor")
    x, results = _steps_first(r, op, time_major), []
    for first, states, reverse in ((1, 35, False), (18, 37, True)):
        h, c = op.inputs[states : states + 2]
        lstm = _lstm_parameters(r, op, first)
        y, last_h, last_c = _run_lstm(r, op, x, lstm, r.value(h), r.value(c), reverse)
        _keep(r, h, last_h), _keep(r, c, last_c)
        results.append(_as_given(r, y, time_major))
    _put_both(r, op, results)


def _put_both(r, op, results):
    if op.option("MergeOutputs"):
        return r.put(op.outputs[0], r.emit("Concat", *results, axis=2))
    for held, y in zip(op.outputs, results, strict=True):
        r.put(held, y)
    return None


def _lstm(r, op):
    """One step; the basic kernel takes its states and returns the next ones."""
    basic = op.option("KernelType") == 1
    if not basic:
        h, c = op.inputs[18:20]
        y, last_h, last_c = _run_lstm(
            r, op, _steps_first(r, op, True, 2), _lstm_parameters(r, op, 1), r.value(h), r.value(c)
        )
        _keep(r, h, last_h), _keep(r, c, last_c)
        return r.put(op.outputs[-1], r.emit("Squeeze", y, [0]))
    x, h, weights, bias, c = op.inputs[:5]
    joined = r.emit("Concat", r.value(x), r.value(h), axis=1)
    scale = x.quantization.scale * weights.quantization.scale if x.quantization and weights.quantization else 1.0
    b = r.constant(f"{r.at}.bias", r.array(bias) * scale, np.float32)
    w = r.constant(f"{r.at}.weights", _real(r, op, weights), np.float32)
    sums = r.emit("Gemm", joined, w, b, transB=1)
    n = len(_real(r, op, weights)) // 4
    i, g, f, o = r.emit("Split", sums, [n] * 4, axis=1, count=4)
    i, f, o = (r.emit("Activation", v, activation="sigmoid") for v in (i, f, o))
    g = r.emit("Activation", g, activation="tanh")
    c = r.emit("Add", r.emit("Mul", f, r.value(c)), r.emit("Mul", i, g))
    r.put(op.outputs[1], c)
    r.put(op.outputs[0], r.emit("Mul", o, r.emit("Activation", c, activation="tanh")))
    return None


def _run_rnn(r, op, x, first, reverse=False):
    """The results of all steps of a simple layer whose weights, bias and state are inputs from `first` on."""
    w, rec = (_real(r, op, op.inputs[first + i]) for i in range(2))
    b = _real(r, op, op.inputs[first + 2]) if op.input(first + 2) else np.zeros(len(w), np.float32)
    held = op.inputs[first + 3]
    name = r.activations.get(op.option("FusedActivationFunction"), "")
    if name not in _FUNCTIONS:
        raise op.error(f"it has the activation {name}, which fusedops does not have")
    attrs: dict[str, Any] = dict(hidden_size=len(w), activations=[_FUNCTIONS[name]])
    attrs |= dict(direction="reverse" if reverse else "forward")
    attrs |= dict(activation_alpha=[1.0]) if name == "NONE" else {}
    given = [r.constant(f"{r.at}.{k}", a[np.newaxis], np.float32) for k, a in (("w", w), ("r", rec))]
    bias = r.constant(f"{r.at}.bias", np.concatenate([b, np.zeros_like(b)])[np.newaxis], np.float32)
    h0 = r.emit("Unsqueeze", r.value(held), [0])
    y, h = r.emit("RNN", x, *given, bias, "", h0, count=2, **attrs)
    _keep(r, held, r.emit("Squeeze", h, [0]))
    return r.emit("Squeeze", y, [1])


def _rnn(r, op):
    r.put(op.outputs[0], r.emit("Squeeze", _run_rnn(r, op, _steps_first(r, op, True, 2), 1), [0]))


def _unidirectional_rnn(r, op):
    time_major = op.option("TimeMajor")
    r.put(op.outputs[0], _as_given(r, _run_rnn(r, op, _steps_first(r, op, time_major), 1), time_major))


def _bidirectional_rnn(r, op):
    if any(op.input(i) is not None for i in range(9, 12)):
        raise op.error("it has an auxiliary input, which fusedops does not have")
    time_major = op.option("TimeMajor")
    x = _steps_first(r, op, time_major)
    results = [_as_given(r, _run_rnn(r, op, x, first, back), time_major) for first, back in ((1, False), (5, True))]
    _put_both(r, op, results)


def _svdf(r, op):
    """A filter of each feature over its last values, which are the state."""
    features, times = (_real(r, op, op.inputs[i]) for i in (1, 2))
    held, rank = op.inputs[4], max(op.option("Rank", 1), 1)
    filters, memory = times.shape
    if filters % rank:
        raise op.error(f"its {filters} filters are not a multiple of its rank, {rank}")
    new = r.emit("MatMul", r.value(op.inputs[0]), r.constant(f"{r.at}.features", features.T, np.float32))
    before = r.emit("Reshape", r.value(held), [-1, filters, memory])
    past = r.emit("Slice", before, [1], [memory], [2], [1])
    state = r.emit("Concat", past, r.emit("Unsqueeze", new, [2]), axis=2)
    found = r.emit("Mul", state, r.constant(f"{r.at}.times", times, np.float32))
    y = r.emit("ReduceSum", r.emit("Reshape", found, [-1, filters // rank, rank * memory]), [2], keepdims=0)
    if op.input(3) is not None:
        stored, (x, w) = r.array(op.inputs[3]), (op.inputs[0].quantization, op.inputs[2].quantization)
        state_q = held.quantization
        scale = state_q.scale * w.scale if x is not None and w is not None and state_q is not None else 1.0
        y = r.emit("Add", y, r.constant(f"{r.at}.bias", stored * scale, np.float32))
    _keep(r, held, r.emit("Reshape", state, [-1, filters * memory]))
    r.put(op.outputs[0], activated(r, op, y))


READERS = {
    "BIDIRECTIONAL_SEQUENCE_LSTM": Builtin(_bidirectional_lstm, "without an auxiliary input"),
    "BIDIRECTIONAL_SEQUENCE_RNN": Builtin(_bidirectional_rnn, "without an auxiliary input"),
    "LSTM": Builtin(_lstm),
    "RNN": Builtin(_rnn),
    "SVDF": Builtin(_svdf),
    "UNIDIRECTIONAL_SEQUENCE_LSTM": Builtin(_unidirectional_lstm),
    "UNIDIRECTIONAL_SEQUENCE_RNN": Builtin(_unidirectional_rnn),
}
