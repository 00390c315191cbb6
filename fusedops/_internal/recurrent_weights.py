"""Recurrent weights as ONNX and Keras have them, in the order of fusedops: gates i f g o, r z n, peepholes i f o."""

import numpy as np

from .. import _core

# Which block of the other's gates each of ours is.
_ONNX_GATES = {"RNN": (0,), "LSTM": (0, 2, 3, 1), "GRU": (1, 0, 2)}  # i o f c, z r h
_ONNX_PEEPHOLES = (0, 2, 1)  # i o f
_KERAS_GATES = {"RNN": (0,), "LSTM": (0, 1, 2, 3), "GRU": (1, 0, 2)}  # i f c o, z r h


def _reordered(a, order):
    """The blocks of a's first axis in another order."""
    if a.shape[0] % len(order):
        raise ValueError(
            f"an array of weights has shape {a.shape}, but its gates are {len(order)} blocks of equal length"
        )
    blocks = np.split(a, len(order))
    return np.concatenate([blocks[i] for i in order])


def gates(kind, a):
    """An array whose first axis has the gates of ONNX one after another, in our order."""
    return np.ascontiguousarray(_reordered(a, _ONNX_GATES[kind]))


def peepholes(p):
    """Those of ONNX, one after another, as rows in our order."""
    return _reordered(p, _ONNX_PEEPHOLES).reshape(3, -1)


def of_onnx(kind, w, r, b=None, p=None):
    """The arguments of a layer from the inputs W, R, B and P of an ONNX node, their directions as the first axis.

    W (directions, gates*hidden, inputs), R (directions, gates*hidden, hidden), B (directions, 2*gates*hidden),
    P (directions, 3*hidden).
    """
    order, w, r = _ONNX_GATES[kind], _core.as_weights(w, "w", 3, None), _core.as_weights(r, "r", 3, None)
    weights = dict(w_ih=[_reordered(a, order) for a in w], w_hh=[_reordered(a, order) for a in r])
    directions, rows = w.shape[:2]
    if r.shape[:2] != (directions, rows):
        raise ValueError(
            f"w has shape {w.shape} and r has shape {r.shape}, but both must begin with (directions, gates*hidden)"
        )
    for name, a, shape in (("b", b, (directions, 2 * rows)), ("p", p, (directions, 3 * (rows // len(order))))):
        if a is not None and _core.as_input(a, name).shape != shape:
            raise ValueError(f"{name} has shape {np.shape(a)}, but w {w.shape} and r {r.shape} need {shape}")
    if b is not None:
        weights["b_ih"] = [_reordered(a[:rows], order) for a in np.asarray(b)]
        weights["b_hh"] = [_reordered(a[rows:], order) for a in np.asarray(b)]
    if p is not None:
        weights["peephole"] = [peepholes(a) for a in np.asarray(p)]
    return weights


def of_keras(kind, weights):
    """The arguments of a layer from ``layer.get_weights()`` of Keras, twice as many for a bidirectional one.

    kernel (inputs, gates*hidden), recurrent_kernel (hidden, gates*hidden) and, where there is one, bias
    (gates*hidden,) or (2, gates*hidden).
    """
    directions = 2 if len(weights) > 3 else 1
    if len(weights) not in (2, 3, 4, 6):
        raise ValueError(
            f"Keras has a kernel, a recurrent_kernel and perhaps a bias for each direction, not {len(weights)} arrays"
        )
    order, named = _KERAS_GATES[kind], {}
    for kernel, recurrent, *bias in np.split(np.arange(len(weights)), directions):
        w, r = _core.as_input(weights[kernel], "kernel", 2), _core.as_input(weights[recurrent], "recurrent_kernel", 2)
        named.setdefault("w_ih", []).append(_reordered(w.T, order))
        named.setdefault("w_hh", []).append(_reordered(r.T, order))
        if bias:
            b = _core.as_input(weights[bias[0]], "bias", (1, 2))
            of_x, of_h = b if b.ndim == 2 and len(b) == 2 else (b.reshape(-1), None)
            named.setdefault("b_ih", []).append(_reordered(of_x, order))
            named.setdefault("b_hh", []).append(None if of_h is None else _reordered(of_h, order))
    return named | dict(bidirectional=directions == 2)


def direction(name, directions, layout):
    """The options of a layer for the attributes `direction` and `layout` of ONNX."""
    if name not in ("forward", "reverse", "bidirectional"):
        raise ValueError(f"unknown direction {name!r}; known are 'forward', 'reverse', 'bidirectional'")
    if directions != (2 if name == "bidirectional" else 1):
        raise ValueError(f"direction={name!r}, but the weights have {directions} direction{'s' * (directions != 1)}")
    if layout not in (0, 1):
        raise ValueError(f"layout must be 0 or 1, not {layout!r}")
    return dict(bidirectional=name == "bidirectional", reverse=name == "reverse", batch_first=layout == 1)
