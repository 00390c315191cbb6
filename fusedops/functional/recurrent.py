"""One-shot cells and sequences."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..layers.cells import LENT_ROWS, GRUCell, LentGRUCell, LentLSTMCell, LentRNNCell, LSTMCell, RNNCell
from ..layers.sequences import GRU, LSTM, RNN

if TYPE_CHECKING:
    from .._types import Activation, Array, Input, OptionalWeights, Weights


def _few(x):
    """Whether x has so few rows that weights for one call are best read where they lie."""
    return np.ndim(x) == 1 or np.ndim(x) == 2 and len(x) <= LENT_ROWS


def rnn_cell(
    x: Input,
    h: Input,
    w_ih: Input,
    w_hh: Input,
    b_ih: Input | None = None,
    b_hh: Input | None = None,
    *,
    activation: Activation = "tanh",
    out: Array | None = None,
) -> Array:
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
    TypeError
        An array is not float32, or an option has the wrong type.
    ValueError
        Shapes that do not fit, or an unknown name.

    Examples
    --------
    >>> import numpy as np, fusedops as fo
    >>> x, h = np.zeros((1, 3), np.float32), np.zeros((1, 2), np.float32)
    >>> fo.rnn_cell(x, h, np.ones((2, 3), np.float32), np.ones((2, 2), np.float32))
    array([[0., 0.]], dtype=float32)
    """
    cell = LentRNNCell if _few(x) else RNNCell
    return cell(w_ih, w_hh, b_ih, b_hh, activation=activation)(x, h, out)


def lstm_cell(
    x: Input,
    h: Input,
    c: Input,
    w_ih: Input,
    w_hh: Input,
    b_ih: Input | None = None,
    b_hh: Input | None = None,
    *,
    out: tuple[Array, Array] | None = None,
) -> tuple[Array, Array]:
    """One step of an LSTM: ``(h', c')``, with gates in PyTorch's order i f g o.

    ``i, f, g, o = w_ih x + b_ih + w_hh h + b_hh``, ``c' = sigmoid(f) c + sigmoid(i) tanh(g)``, ``h' = sigmoid(o)
    tanh(c')``

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
    h, c : ndarray, float32, of the shapes of `h` and `c`

    Raises
    ------
    TypeError
        An array is not float32, or an option has the wrong type.
    ValueError
        Shapes that do not fit, or an unknown name.

    Examples
    --------
    >>> import numpy as np, fusedops as fo
    >>> zero = np.zeros((1, 2), np.float32)
    >>> w_ih, w_hh = np.ones((8, 3), np.float32), np.ones((8, 2), np.float32)
    >>> h, c = fo.lstm_cell(np.zeros((1, 3), np.float32), zero, zero, w_ih, w_hh)
    >>> h
    array([[0., 0.]], dtype=float32)
    """
    cell = LentLSTMCell if _few(x) else LSTMCell
    return cell(w_ih, w_hh, b_ih, b_hh)(x, h, c, out)


def gru_cell(
    x: Input,
    h: Input,
    w_ih: Input,
    w_hh: Input,
    b_ih: Input | None = None,
    b_hh: Input | None = None,
    *,
    reset_after: bool = True,
    out: Array | None = None,
) -> Array:
    """One step of a GRU: ``h'``, with gates in PyTorch's order r z n.

    ``r, z = sigmoid(w_ih x + b_ih + w_hh h + b_hh)``, ``n = tanh(w_in x + b_in + r (w_hn h + b_hn))``,
    ``h' = (1 - z) n + z h``

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
    TypeError
        An array is not float32, or an option has the wrong type.
    ValueError
        Shapes that do not fit, or an unknown name.

    Examples
    --------
    >>> import numpy as np, fusedops as fo
    >>> x, h = np.zeros((1, 3), np.float32), np.ones((1, 2), np.float32)
    >>> fo.gru_cell(x, h, np.zeros((6, 3), np.float32), np.zeros((6, 2), np.float32))
    array([[0.5, 0.5]], dtype=float32)
    """
    cell = LentGRUCell if _few(x) else GRUCell
    return cell(w_ih, w_hh, b_ih, b_hh, reset_after=reset_after)(x, h, out)


def rnn(
    x: Input,
    state: Input | None,
    w_ih: Weights,
    w_hh: Weights,
    b_ih: OptionalWeights = None,
    b_hh: OptionalWeights = None,
    *,
    lengths: Input | None = None,
    out: Array | None = None,
    **options,
) -> tuple[Array, Array]:
    """Simple recurrent layers over a sequence: ``(y, state)``, where ``y[t] = activation(w_ih x[t] + b_ih + w_hh y[t-1]
    + b_hh)``.

    Parameters
    ----------
    x : ndarray, float32, (steps, batch, inputs), (batch, steps, inputs) with ``batch_first=True``, or (steps, inputs)
    state : ndarray, float32, (layers * directions, batch, hidden), or None for zeros
    w_ih, w_hh, b_ih, b_hh, **options
        See :class:`RNN`.
    lengths : (batch,) integers, optional
        Steps of each row. Beyond them y is 0; the state is that after a row's last step.
    out : ndarray, float32, of y's shape, optional

    Returns
    -------
    y : ndarray, float32, (steps, batch, directions * hidden)
    state : ndarray, float32, (layers * directions, batch, hidden)

    Raises
    ------
    TypeError
        An array is not float32, or an option has the wrong type.
    ValueError
        Shapes that do not fit, or an unknown name.

    Examples
    --------
    >>> import numpy as np, fusedops as fo
    >>> one = np.ones((1, 1), np.float32)
    >>> y, h = fo.rnn(np.ones((3, 2, 1), np.float32), None, one, one, activation="relu", lengths=[3, 2])
    >>> y[..., 0].T, h.ravel()
    (array([[1., 2., 3.],
           [1., 2., 0.]], dtype=float32), array([3., 2.], dtype=float32))
    """
    return RNN(w_ih, w_hh, b_ih, b_hh, **options)(x, state, lengths, out)


def lstm(
    x: Input,
    state: tuple[Input, Input] | None,
    w_ih: Weights,
    w_hh: Weights,
    b_ih: OptionalWeights = None,
    b_hh: OptionalWeights = None,
    *,
    lengths: Input | None = None,
    out: Array | None = None,
    **options,
) -> tuple[Array, tuple[Array, Array]]:
    """LSTM layers over a sequence: ``(y, (h, c))``, where ``y[t], c[t] = lstm_cell(x[t], y[t-1], c[t-1])``.

    Parameters
    ----------
    state : pair of ndarray (h, c), float32, (layers * directions, batch, width) each, or None for zeros
    w_ih, w_hh, b_ih, b_hh, **options
        See :class:`LSTM`.
    x, lengths, out
        See :func:`rnn`.

    Returns
    -------
    y : ndarray, float32, (steps, batch, directions * outputs)
    (h, c) : ndarray, float32, (layers * directions, batch, outputs) and (layers * directions, batch, hidden)

    Raises
    ------
    TypeError
        An array is not float32, or an option has the wrong type.
    ValueError
        Shapes that do not fit, or an unknown name.

    Examples
    --------
    >>> import numpy as np, fusedops as fo
    >>> w_ih, w_hh = np.ones((8, 3), np.float32), np.ones((8, 2), np.float32)
    >>> y, (h, c) = fo.lstm(np.ones((5, 2, 3), np.float32), None, w_ih, w_hh)
    >>> y.shape, (y[-1] == h[0]).all()
    ((5, 2, 2), np.True_)
    """
    return LSTM(w_ih, w_hh, b_ih, b_hh, **options)(x, state, lengths, out)


def gru(
    x: Input,
    state: Input | None,
    w_ih: Weights,
    w_hh: Weights,
    b_ih: OptionalWeights = None,
    b_hh: OptionalWeights = None,
    *,
    lengths: Input | None = None,
    out: Array | None = None,
    **options,
) -> tuple[Array, Array]:
    """GRU layers over a sequence: ``(y, state)``, where ``y[t] = gru_cell(x[t], y[t-1])``.

    Parameters
    ----------
    w_ih, w_hh, b_ih, b_hh, **options
        See :class:`GRU`.
    x, state, lengths, out
        See :func:`rnn`.

    Returns
    -------
    y : ndarray, float32, (steps, batch, directions * hidden)
    state : ndarray, float32, (layers * directions, batch, hidden)

    Raises
    ------
    TypeError
        An array is not float32, or an option has the wrong type.
    ValueError
        Shapes that do not fit, or an unknown name.

    Examples
    --------
    >>> import numpy as np, fusedops as fo
    >>> w_ih, w_hh = np.ones((6, 3), np.float32), np.ones((6, 2), np.float32)
    >>> y, h = fo.gru(np.ones((5, 2, 3), np.float32), None, w_ih, w_hh, batch_first=True)
    >>> y.shape, h.shape
    ((5, 2, 2), (1, 5, 2))
    """
    return GRU(w_ih, w_hh, b_ih, b_hh, **options)(x, state, lengths, out)
