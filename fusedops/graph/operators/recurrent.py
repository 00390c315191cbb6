"""RNN, LSTM and GRU as recurrent layers: the directions side by side."""
import numpy as np

from ...recurrent import GRU, LSTM, RNN
from ..builder import Builder
from ..halves import lean
from ..ir import Node
from ..memory import Buffer, Tensor, row_major
from .activation import sigmoid
from .eight_bits import requantized
from .record import Operator, always, same_shape

_GATE_ACTIVATIONS = {
    "Relu": lambda v, a, b: np.maximum(v, 0), "Tanh": lambda v, a, b: np.tanh(v), "Sigmoid": lambda v, a, b: sigmoid(v),
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

_TAKES = {name.lower() for name in _TAKES_ALPHA}


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
    h = requantized(h) if node.attrs.get("dynamic") else h  # as com.microsoft's DynamicQuantizeLSTM has it
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
        if clip is not None:  # of the arguments of gates: an LSTM's new state is none, as in ONNX Runtime
            functions = [[g if i == 2 else lambda v, g=g: g(np.clip(v, -clip, clip)) for i, g in enumerate(each)]
                         for each in functions]
        y = np.zeros((steps, directions, batch, hidden), x.dtype)
        last = np.zeros((2, directions, batch, hidden), x.dtype)
        lengths = np.full(batch, steps) if lengths is None else _checked_lengths(node, lengths, steps)
        for d in range(directions):
            h, c = (np.zeros((batch, hidden), x.dtype) if s is None else s[d].copy() for s in (h0, c0))
            wb, rb = np.split(b[d], 2) if b is not None else (np.zeros(gates * hidden, x.dtype),) * 2
            sums = (x.reshape(steps * batch, -1) @ w[d].T + wb).reshape(steps, batch, -1)
            backward = direction == "reverse" or d == 1
            for t in range(steps):
                live = t < lengths
                at = np.where(live, lengths - 1 - t if backward else t, 0)
                xw = sums[at, np.arange(batch)]
                new_h, new_c = step(node, functions[d], xw, h, c, r[d], rb, None if p is None else p[d])
                h = np.where(live[:, None], new_h, h).astype(x.dtype)
                c = c if new_c is None else np.where(live[:, None], new_c, c).astype(x.dtype)
                rows = np.flatnonzero(live)
                y[at[rows], d, rows] = h[rows]
            last[0, d], last[1, d] = h, c
        if batch_first:
            return y.transpose(2, 0, 1, 3), *last.swapaxes(1, 2)
        return y, *last
    return run


def _checked_lengths(node, lengths, steps):
    """The steps of each row of a batch, as the kernels take them."""
    if lengths.size and not 0 <= lengths.min() <= lengths.max() <= steps:
        raise ValueError(f"its lengths must be in 0..{steps}, the steps of x, not {lengths.min()} to {lengths.max()}")
    return lengths.astype(np.int64)


def _recurrent_shape(node, x, w, r, *optional):
    batch_first, hidden = node.attrs.get("layout", 0), r.shape[-1]
    if len(x.shape) != 3 or w.shape != (w.shape[0], {"RNN": 1, "GRU": 3, "LSTM": 4}[node.op] * hidden,
                                        x.shape[2]) or r.shape != (*w.shape[:2], hidden):
        raise ValueError(f"weights of shape {w.shape} and {r.shape} do not fit")
    steps, batch = x.shape[:2] if not batch_first else x.shape[1::-1]
    state = (batch, w.shape[0], r.shape[2]) if batch_first else (w.shape[0], batch, r.shape[2])
    needed = {
        "B": (w.shape[0], 2 * w.shape[1]), "sequence_lens": (batch, ), "initial_h": state, "initial_c": state,
        "P": (w.shape[0], 3 * hidden)
    }
    for (name, shape), given in zip(needed.items(), optional, strict=False):
        if given is not None and given.shape != shape:
            raise ValueError(f"{name} of shape {given.shape} must have {shape}")
    return [(batch, steps, *state[1:]) if batch_first else (steps, *state), state, state]


_DEFAULTS = {"RNN": ["tanh"], "LSTM": ["sigmoid", "tanh", "tanh"], "GRU": ["sigmoid", "tanh"]}


def _lower(p: Builder, node):
    """Adds the step of a recurrent node; returns whether its weights are constant and its gates those of the
    kernels."""
    w, r, b, peephole = (p.data(node.input(i)) for i in (1, 2, 3, 7))
    given = [node.input(i) for i in (3, 7)]
    activation = _gates(node, w)
    if w is None or r is None or activation is None or not node.attrs.get("clip", 1) > 0 or \
            any(node.attrs.get(name, 0) for name in ("input_forget", "dynamic")) or \
            any(v and a is None for v, a in zip(given, (b, peephole), strict=True)):
        return False
    layer = p.layer(node.name, lambda: _layer(node, w, r, b, peephole, activation))
    x, batch_first = p.at(node.inputs[0]), node.attrs.get("layout", 0)
    x = _swapped(x) if batch_first else x
    x = x if x.strides[2] == 1 else p.dense(node, x, row_major(x.shape))
    (steps, batch), directions, hidden = x.shape[:2], w.shape[0], r.shape[2]
    y = p.new((steps, batch, directions * hidden))
    h0, c0 = (_state(p, node, node.input(i), batch_first) for i in (5, 6))
    last = [p.new((directions, batch, hidden)) for _ in range(1 + (node.op == "LSTM"))]
    hn, cn = (*last, None)[:2]
    lengths = _lengths(p, node, steps, int(bool(batch_first))) if node.input(4) else None
    p.add("recurrent", node, layer=layer, x=x, y=y, h0=h0, c0=c0, hn=hn, cn=cn, lengths=lengths)
    inner = (directions * hidden, hidden, 1)
    if batch_first:
        p.view(node.outputs[0],
               y._replace(shape=(batch, steps, directions, hidden), strides=(inner[0], batch * inner[0], *inner[1:])))
    else:
        p.view(node.outputs[0],
               y._replace(shape=(steps, directions, batch, hidden), strides=(batch * inner[0], hidden, inner[0], 1)))
    for v, t in zip(node.outputs[1:], last, strict=False):
        p.view(v, _swapped(t) if batch_first else t)
    return True


def _lengths(p: Builder, node, steps, axis):
    """The lengths of the rows as a tensor of int64, checked before the layer reads them."""
    given = p.at(node.input(4))
    if p.data(node.input(4)) is not None:
        checked = _checked_lengths(node, p.data(node.input(4)), steps)
        return Tensor(Buffer(checked.nbytes, array=checked), checked.shape, (1,), checked.dtype)
    checked = p.new(given.shape, dtype=np.dtype(np.int64))
    check = Node("CheckedLengths", node.name, [node.input(4), node.inputs[0]], [node.output], {"axis": axis})
    p.numpy(check, [given, p.at(node.inputs[0])], [checked])
    return checked


def _gates(node, w):
    """The activation of an RNN's steps, "tanh" for gates of the usual functions, or None for others."""
    names = [
        name.lower() for name in node.attrs.get("activations") or _DEFAULTS[node.op] * (0 if w is None else w.shape[0])
    ]
    alphas = [node.attrs.get(f"activation_{name}") or [] for name in ("alpha", "beta")]
    if w is None or any(alphas) and any(name in _TAKES for name in names):
        return None
    if node.op == "RNN" and len(set(names)) == 1 and names[0] in ("tanh", "relu", "sigmoid"):
        return names[0]
    return "tanh" if names == _DEFAULTS[node.op] * w.shape[0] else None


def _layer(node, w, r, b, peephole, activation):
    options = dict(direction=node.attrs.get("direction", "forward"), clip=node.attrs.get("clip"))
    w, r = lean(w, r)
    if node.op == "RNN":
        return RNN.from_onnx(w, r, b, activation=activation, **options)
    if node.op == "GRU":
        return GRU.from_onnx(w, r, b, linear_before_reset=node.attrs.get("linear_before_reset", 0), **options)
    return LSTM.from_onnx(w, r, b, peephole, **options)


def _state(p: Builder, node, value, batch_first):
    """An initial state as (directions, batch, hidden); None where there is none, or zeros."""
    known = p.data(value)
    if not value or known is not None and not known.any():
        return None
    t = p.at(value)
    t = _swapped(t) if batch_first else t
    return p.dense(node, t, row_major(t.shape))


def _swapped(t):
    return t._replace(shape=(t.shape[1], t.shape[0], *t.shape[2:]),
                      strides=(t.strides[1], t.strides[0], *t.strides[2:]))


def _sequence(step, *gates, count):
    return Operator(_recurrent(step, count, list(gates)), _recurrent_shape, _lower,
                    note="constant weights, the gates' usual functions")


RECORDS = {
    "CheckedLengths": Operator(
        lambda node, lengths, x: _checked_lengths(node, lengths, x.shape[node.attrs["axis"]]),
        same_shape,
        "a check of a few numbers",
        None,
        always(np.int64),
    ),
    "GRU": _sequence(_gru_step, "Sigmoid", "Tanh", count=3),
    "LSTM": _sequence(_lstm_step, "Sigmoid", "Tanh", "Tanh", count=4),
    "RNN": _sequence(_rnn_step, "Tanh", count=1),
}
