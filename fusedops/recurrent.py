"""Recurrent networks: cells, sequences and streams, and the one-shot functions for each."""
import numpy as np

from . import _core, activations
from .layers import _Layer

_KINDS = {"RNN": 0, "LSTM": 1, "GRU": 2}
_GATES = {"RNN": 1, "LSTM": 4, "GRU": 3}


def _array(value, name, shape):
    """A contiguous copy of an optional array of this shape."""
    if value is None:
        return None
    value = _core.as_input(value, name)
    if value.shape != shape:
        raise ValueError(f"{name} has shape {value.shape}, but must have shape {shape}")
    return value.copy()


def _weights(kind, w_ih, w_hh, b_ih, b_hh, w_hr=None, peephole=None):
    """Contiguous copies of one layer's weights, their shapes checked."""
    gates = _GATES[kind]
    w_ih, w_hh = _core.as_input(w_ih, "w_ih", 2).copy(), _core.as_input(w_hh, "w_hh", 2).copy()
    rows, outputs = w_hh.shape
    hidden = rows // gates
    if rows % gates or w_ih.shape[0] != rows or (outputs != hidden and w_hr is None):
        raise ValueError(f"w_ih has shape {w_ih.shape} and w_hh has shape {w_hh.shape}, but {kind} weights are "
                         f"({gates}*hidden, inputs) and ({gates}*hidden, hidden)" + (", w_hh (4*hidden, outputs) with w_hr" if kind == "LSTM" else ""))
    return (w_ih, w_hh, _array(b_ih, "b_ih", (rows,)), _array(b_hh, "b_hh", (rows,)), _array(w_hr, "w_hr", (outputs, hidden)),
            _array(peephole, "peephole", (3, hidden)))


def _clip(clip):
    if clip is None:
        return np.inf
    if not clip > 0:
        raise ValueError(f"clip must be None or a positive number, not {clip!r}")
    return float(clip)


class _Cell(_Layer):
    def __repr__(self):
        (w_ih, w_hh, b_ih, b_hh), options = self._arguments
        changed = "".join(f", {k}={v!r}" for k, v in options.items() if k in ("activation", "reset_after", "clip") and v is not None)
        return f"{type(self).__name__}({w_ih.shape[1]} -> {w_hh.shape[1]}, bias={b_ih is not None or b_hh is not None}{changed})"


class RNNCell(_Cell, _core.CellPlan):
    """One step of a simple recurrent layer, ``h' = activation(w_ih x + b_ih + w_hh h + b_hh)``, its weights packed once.

    Parameters
    ----------
    w_ih : ndarray, float32, (hidden, inputs)
    w_hh : ndarray, float32, (hidden, hidden)
    b_ih, b_hh : ndarray, float32, (hidden,), optional
        All copied.
    activation : str or tuple
        "tanh", or any other of :func:`fusedops.conv2d` but "prelu".
    clip : float, optional
        Bounds the activation's argument to -clip..clip.

    Examples
    --------
    >>> import numpy as np, fusedops as fo
    >>> cell = fo.RNNCell(np.eye(2, dtype=np.float32), np.eye(2, dtype=np.float32), activation="relu")
    >>> cell(np.float32([[1, -3]]), np.float32([[1, 1]]))
    array([[2., 0.]], dtype=float32)
    """

    def __init__(self, w_ih, w_hh, b_ih=None, b_hh=None, *, activation="tanh", clip=None):
        w = _weights("RNN", w_ih, w_hh, b_ih, b_hh)
        self._arguments = w[:4], dict(activation=activation, clip=clip)
        self._pack(_KINDS["RNN"], *w, _activation(activation), False, _clip(clip))


class LSTMCell(_Cell, _core.LSTMCellPlan):
    """One step of an LSTM, its weights packed once: ``(h', c') = cell(x, h, c)``.

    ``i, f, g, o = w_ih x + b_ih + w_hh h + b_hh``, ``c' = sigmoid(f) c + sigmoid(i) tanh(g)``, ``h' = sigmoid(o) tanh(c')``

    Parameters
    ----------
    w_ih : ndarray, float32, (4*hidden, inputs)
        The gates one after another, in PyTorch's order i f g o.
    w_hh : ndarray, float32, (4*hidden, hidden), or (4*hidden, outputs) with `w_hr`
    b_ih, b_hh : ndarray, float32, (4*hidden,), optional
    w_hr : ndarray, float32, (outputs, hidden), optional
        A projection: ``h' = w_hr (sigmoid(o) tanh(c'))``.
    peephole : ndarray, float32, (3, hidden), optional
        Weights p of i, f and o: ``p_i c`` is added to i, ``p_f c`` to f and ``p_o c'`` to o.
    clip : float, optional
        Bounds the arguments of the gates' functions to -clip..clip, as ONNX's attribute; c' is not bounded.

    Examples
    --------
    >>> import numpy as np, fusedops as fo
    >>> cell = fo.LSTMCell(np.ones((8, 3), np.float32), np.ones((8, 2), np.float32))
    >>> h, c = cell(np.zeros((1, 3), np.float32), np.zeros((1, 2), np.float32), np.ones((1, 2), np.float32))
    >>> c
    array([[0.5, 0.5]], dtype=float32)
    """

    def __init__(self, w_ih, w_hh, b_ih=None, b_hh=None, *, w_hr=None, peephole=None, clip=None):
        w = _weights("LSTM", w_ih, w_hh, b_ih, b_hh, w_hr, peephole)
        self._arguments = w[:4], dict(w_hr=w[4], peephole=w[5], clip=clip)
        self._pack(_KINDS["LSTM"], *w, _activation("tanh"), False, _clip(clip))


class GRUCell(_Cell, _core.CellPlan):
    """One step of a GRU, its weights packed once: ``h' = cell(x, h)``.

    ``r, z = sigmoid(w_ih x + b_ih + w_hh h + b_hh)``, ``n = tanh(w_in x + b_in + r (w_hn h + b_hn))``, ``h' = (1 - z) n + z h``

    Parameters
    ----------
    w_ih : ndarray, float32, (3*hidden, inputs)
        The gates one after another, in PyTorch's order r z n.
    w_hh : ndarray, float32, (3*hidden, hidden)
    b_ih, b_hh : ndarray, float32, (3*hidden,), optional
        All copied.
    reset_after : bool
        True is PyTorch's and cuDNN's variant, above. False: ``n = tanh(w_in x + b_in + w_hn (r h) + b_hn)``, the original one
        (ONNX's default, Keras's ``reset_after=False``).
    clip : float, optional
        Bounds the arguments of sigmoid and tanh to -clip..clip.

    Examples
    --------
    >>> import numpy as np, fusedops as fo
    >>> cell = fo.GRUCell(np.zeros((6, 3), np.float32), np.zeros((6, 2), np.float32))
    >>> cell(np.ones((1, 3), np.float32), np.ones((1, 2), np.float32))
    array([[0.5, 0.5]], dtype=float32)
    """

    def __init__(self, w_ih, w_hh, b_ih=None, b_hh=None, *, reset_after=True, clip=None):
        w = _weights("GRU", w_ih, w_hh, b_ih, b_hh)
        self._arguments = w[:4], dict(reset_after=reset_after, clip=clip)
        self._pack(_KINDS["GRU"], *w, _activation("tanh"), bool(reset_after), _clip(clip))


def _activation(activation):
    """The activation parsed; one that has no parameter for each channel."""
    if isinstance(activation, (tuple, list)) and "prelu" in activation[:1]:
        raise ValueError(f"a recurrent cell has no slopes for {activation!r}: use 'tanh', 'relu' or another activation of fusedops.conv2d")
    return activations.parse(activation)


def rnn_cell(x, h, w_ih, w_hh, b_ih=None, b_hh=None, *, activation="tanh", out=None):
    """One step of a simple recurrent layer: ``h' = activation(w_ih x + b_ih + w_hh h + b_hh)``.

    Parameters
    ----------
    x : ndarray, float32, (batch, inputs) or (inputs,)
    h : ndarray, float32, (batch, hidden) or (hidden,)
    w_ih, w_hh, b_ih, b_hh, activation
        See :class:`RNNCell`.
    out : ndarray, float32, of the shape of `h`, optional
        It may be `h`.

    Returns
    -------
    ndarray, float32, of the shape of `h`

    Raises
    ------
    TypeError, ValueError
        Wrong dtype; shapes that do not fit.

    Examples
    --------
    >>> import numpy as np, fusedops as fo
    >>> fo.rnn_cell(np.zeros((1, 3), np.float32), np.zeros((1, 2), np.float32), np.ones((2, 3), np.float32), np.ones((2, 2), np.float32))
    array([[0., 0.]], dtype=float32)
    """
    return RNNCell(w_ih, w_hh, b_ih, b_hh, activation=activation)(x, h, out)


def lstm_cell(x, h, c, w_ih, w_hh, b_ih=None, b_hh=None, *, out=None):
    """One step of an LSTM: ``(h', c')``, with gates in PyTorch's order i f g o.

    Parameters
    ----------
    x : ndarray, float32, (batch, inputs) or (inputs,)
    h, c : ndarray, float32, (batch, hidden) or (hidden,)
    w_ih, w_hh, b_ih, b_hh
        See :class:`LSTMCell`, which also has projections, peepholes and clipping.
    out : pair of ndarray, float32, of the shapes of `h` and `c`, optional
        It may be ``(h, c)``.

    Returns
    -------
    (ndarray, ndarray), float32, of the shapes of `h` and `c`

    Raises
    ------
    TypeError, ValueError
        Wrong dtype; shapes that do not fit.

    Examples
    --------
    >>> import numpy as np, fusedops as fo
    >>> zero = np.zeros((1, 2), np.float32)
    >>> h, c = fo.lstm_cell(np.zeros((1, 3), np.float32), zero, zero, np.ones((8, 3), np.float32), np.ones((8, 2), np.float32))
    >>> h
    array([[0., 0.]], dtype=float32)
    """
    return LSTMCell(w_ih, w_hh, b_ih, b_hh)(x, h, c, out)


def gru_cell(x, h, w_ih, w_hh, b_ih=None, b_hh=None, *, reset_after=True, out=None):
    """One step of a GRU: ``h'``, with gates in PyTorch's order r z n.

    Parameters
    ----------
    x : ndarray, float32, (batch, inputs) or (inputs,)
    h : ndarray, float32, (batch, hidden) or (hidden,)
    w_ih, w_hh, b_ih, b_hh, reset_after
        See :class:`GRUCell`.
    out : ndarray, float32, of the shape of `h`, optional
        It may be `h`.

    Returns
    -------
    ndarray, float32, of the shape of `h`

    Raises
    ------
    TypeError, ValueError
        Wrong dtype; shapes that do not fit.

    Examples
    --------
    >>> import numpy as np, fusedops as fo
    >>> fo.gru_cell(np.zeros((1, 3), np.float32), np.ones((1, 2), np.float32), np.zeros((6, 3), np.float32), np.zeros((6, 2), np.float32))
    array([[0.5, 0.5]], dtype=float32)
    """
    return GRUCell(w_ih, w_hh, b_ih, b_hh, reset_after=reset_after)(x, h, out)
