"""RNN, LSTM and GRU of ONNX as recurrent layers: the directions side by side."""
from ..recurrent import GRU, LSTM, RNN
from .memory import row_major

_DEFAULTS = {"RNN": ["tanh"], "LSTM": ["sigmoid", "tanh", "tanh"], "GRU": ["sigmoid", "tanh"]}


def lower(p, node):
    """Adds the step of a recurrent node; returns whether its weights are constant and its gates those of the kernels."""
    w, r, b, lengths, peephole = (p.data(node.input(i)) for i in (1, 2, 3, 4, 7))
    given = [node.input(i) for i in (3, 4, 7)]
    activation = _activation(node, w)
    if w is None or r is None or activation is None or node.attrs.get("input_forget", 0) or not node.attrs.get("clip", 1) > 0 or \
            any(v and a is None for v, a in zip(given, (b, lengths, peephole), strict=True)):
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
    p.add("recurrent", node, layer=layer, x=x, y=y, h0=h0, c0=c0, hn=hn, cn=cn, lengths=lengths)
    inner = (directions * hidden, hidden, 1)
    if batch_first:
        p.view(node.outputs[0], y._replace(shape=(batch, steps, directions, hidden), strides=(inner[0], batch * inner[0], *inner[1:])))
    else:
        p.view(node.outputs[0], y._replace(shape=(steps, directions, batch, hidden), strides=(batch * inner[0], hidden, inner[0], 1)))
    for v, t in zip(node.outputs[1:], last, strict=False):
        p.view(v, _swapped(t) if batch_first else t)
    return True


def _activation(node, w):
    """The activation of an RNN's steps, "tanh" for gates of the usual functions, or None for others."""
    names = [name.lower() for name in node.attrs.get("activations") or _DEFAULTS[node.op] * (0 if w is None else w.shape[0])]
    if node.attrs.get("activation_alpha") or node.attrs.get("activation_beta") or w is None:
        return None
    if node.op == "RNN" and len(set(names)) == 1 and names[0] in ("tanh", "relu", "sigmoid"):
        return names[0]
    return "tanh" if names == _DEFAULTS[node.op] * w.shape[0] else None


def _layer(node, w, r, b, peephole, activation):
    options = dict(direction=node.attrs.get("direction", "forward"), clip=node.attrs.get("clip"))
    if node.op == "RNN":
        return RNN.from_onnx(w, r, b, activation=activation, **options)
    if node.op == "GRU":
        return GRU.from_onnx(w, r, b, linear_before_reset=node.attrs.get("linear_before_reset", 0), **options)
    return LSTM.from_onnx(w, r, b, peephole, **options)


def _state(p, node, value, batch_first):
    """An initial state as (directions, batch, hidden); None where there is none, or zeros."""
    known = p.data(value)
    if not value or known is not None and not known.any():
        return None
    t = p.at(value)
    t = _swapped(t) if batch_first else t
    return p.dense(node, t, row_major(t.shape))


def _swapped(t):
    return t._replace(shape=(t.shape[1], t.shape[0], *t.shape[2:]), strides=(t.strides[1], t.strides[0], *t.strides[2:]))
