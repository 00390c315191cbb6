"""Cells: one step of an RNN, LSTM or GRU."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .. import _core, activations
from . import checked_precision
from .layer import Layer, kept_activation, shown_precision, storage_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .._types import Activation, Input, Precision


KINDS = _core.CELLS
GATES = {"RNN": 1, "LSTM": 4, "GRU": 3}
_USUAL = {"LSTM": ("sigmoid", "tanh", "tanh"), "GRU": ("sigmoid", "tanh")}


def _array(value, name, shape, w=None):
    """A contiguous copy of an optional array of this shape: a vector that goes with the weights w, or weights."""
    if value is None:
        return None
    value = _core.as_weights(value, name) if w is None else _core.as_input(_core.widened(value, name, w), name).copy()
    if value.shape != shape:
        raise ValueError(f"{name} has shape {value.shape}, but must have shape {shape}")
    return value


def cell_weights(kind, w_ih, w_hh, b_ih, b_hh, w_hr=None, peephole=None, *, lend=False):
    """Contiguous copies of one layer's weights, their shapes checked; borrowed w_ih and w_hh are no copies if they
    are contiguous."""
    gates, order = GATES[kind], None if lend else "C"
    w_ih, w_hh = _core.as_weights(w_ih, "w_ih", 2, order), _core.as_weights(w_hh, "w_hh", 2, order)
    if lend:
        w_ih, w_hh = np.ascontiguousarray(w_ih), np.ascontiguousarray(w_hh)
    rows, outputs = w_hh.shape
    hidden = rows // gates
    if rows % gates or w_ih.shape[0] != rows or (outputs != hidden and w_hr is None):
        raise ValueError(
            f"w_ih has shape {w_ih.shape} and w_hh has shape {w_hh.shape}, but {kind} weights are "
            f"({gates}*hidden, inputs) and ({gates}*hidden, hidden)"
            + (", w_hh (4*hidden, outputs) with w_hr" if kind == "LSTM" else "")
        )
    w_hr = _array(w_hr, "w_hr", (outputs, hidden))
    for name, w in ("w_hh", w_hh), ("w_hr", w_hr):
        if w is not None and w.dtype != w_ih.dtype:
            narrow = name if w.dtype == np.float16 else "w_ih"
            raise TypeError(
                f"w_ih has dtype {w_ih.dtype} and {name} has dtype {w.dtype}, but a cell's weights are of "
                f"one dtype: pass {narrow}.astype(np.float32)"
            )
    return (
        w_ih,
        w_hh,
        _array(b_ih, "b_ih", (rows,), w_ih),
        _array(b_hh, "b_hh", (rows,), w_ih),
        w_hr,
        _array(peephole, "peephole", (3, hidden), w_ih),
    )


def clip_of(clip, name="clip"):
    if clip is None:
        return np.inf
    clip = activations.number(clip, name)
    if not clip > 0:
        raise ValueError(f"{name} must be None or a positive number, not {clip!r}")
    return clip


def activation_of(activation):
    """The activation parsed; one that has no parameter for each channel."""
    if isinstance(activation, (tuple, list)) and "prelu" in activation[:1]:
        raise ValueError(
            f"a recurrent cell has no slopes for {activation!r}: "
            "use 'tanh', 'relu' or another activation of fusedops.conv2d"
        )
    return activations.parse(activation)


def gate_functions(kind, given):
    """Parses the option `activations`: returns what to keep of it, and the functions of g or n, of the other gates and
    of c' as the kernels take them."""
    usual = _USUAL[kind]
    given = usual if given is None else given
    if not isinstance(given, (tuple, list)) or len(given) != len(usual):
        raise ValueError(
            f"activations must be None or {len(usual)} functions of a {kind}, such as {usual}, not {given!r}"
        )
    gate, act, *out = parsed = [activation_of(each) for each in given]
    kept = tuple(map(kept_activation, given, parsed))
    return None if kept == usual else kept, (act, gate, *(out or [act]))


LENT_ROWS = 2  # up to which weights are read where they lie by a cell for one call


class _Cell(Layer):
    _lends = False  # a cell for one call, which reads weights where they lie

    def _lent(self, w):
        return self._lends and w[0].dtype == np.float32

    def _keep(self, w, options):
        """What a cell is made of: its weights where they cannot be unpacked."""
        packed = options["precision"] == "float32" and not self._lends
        self._made_of = None if packed else w[:2], w[0].dtype, w[2:4], options

    @property
    def _arguments(self):
        weights, dtype, biases, options = self._made_of
        return (*(self._weights(dtype) if weights is None else weights), *biases), options

    def __repr__(self):
        (_, inputs), (_, outputs) = self._shapes()
        _, dtype, biases, options = self._made_of
        shown = "".join(
            f", {k}={v!r}"
            for k, v in options.items()
            if k in ("activation", "activations", "reset_after", "clip", "cell_clip") and v is not None
        )
        bias = any(b is not None for b in biases)
        return (
            f"{type(self).__name__}({inputs} -> {outputs}, {storage_of(dtype)}bias={bias}{shown}"
            f"{shown_precision(options)}, "
            f"kernel='{self.isa} gemm and gates')"
        )


class RNNCell(_Cell, _core.CellPlan):
    """One step of a simple recurrent layer, packed once: ``h' = activation(w_ih x + b_ih + w_hh h + b_hh)``.

    Parameters
    ----------
    w_ih : ndarray, float32 or float16, (hidden, inputs)
    w_hh : ndarray, of the dtype of `w_ih`, (hidden, hidden)
    b_ih, b_hh : ndarray, float32 (or as `w_ih`), (hidden,), optional
        All copied.
    activation : str or tuple
        "tanh", or any other of :func:`fusedops.conv2d` but "prelu".
    clip : float, optional
        Bounds the activation's argument to -clip..clip.
    precision : "float32" or "bfloat16"
        Of the operands, as :class:`Linear` has it: with bfloat16 the weights, x and what is multiplied of the state are
        rounded to it; sums, gates and states are float32.

    Raises
    ------
    TypeError
        An array is neither float32 nor, of the weights, float16; weights of two dtypes; an option of the wrong type.
    ValueError
        Shapes that do not fit, or an unknown name.

    Notes
    -----
    ``cell(x, h, out=None)`` takes x (batch, inputs) and h (batch, hidden), or both without a batch, and returns h';
    `out` may be h.

    float16 weights stay float16, in half of the memory, and are widened where they are read. Results are bit-identical
    to those of ``w.astype(np.float32)``. A step that is bound by reading weights takes less time with them.

    References
    ----------
    .. [1] Elman, "Finding structure in time", Cognitive Science 14, 1990

    Examples
    --------
    >>> import numpy as np, fusedops as fo
    >>> cell = fo.RNNCell(np.eye(2, dtype=np.float32), np.eye(2, dtype=np.float32), activation="relu")
    >>> cell(np.float32([[1, -3]]), np.float32([[1, 1]]))
    array([[2., 0.]], dtype=float32)
    """

    def __init__(
        self,
        w_ih: Input,
        w_hh: Input,
        b_ih: Input | None = None,
        b_hh: Input | None = None,
        *,
        activation: Activation = "tanh",
        clip: float | None = None,
        precision: Precision = "float32",
    ) -> None:
        checked_precision(precision)
        w, parsed = cell_weights("RNN", w_ih, w_hh, b_ih, b_hh, lend=self._lends), activation_of(activation)
        self._keep(w, dict(activation=kept_activation(activation, parsed), clip=clip, precision=precision))
        self._pack(KINDS["RNN"], *w, (parsed,) * 3, False, clip_of(clip), np.inf, precision, lend=self._lent(w))


class LSTMCell(_Cell, _core.LSTMCellPlan):
    """One step of an LSTM, its weights packed once: ``(h', c') = cell(x, h, c)``.

    ``i, f, g, o = w_ih x + b_ih + w_hh h + b_hh``, ``c' = sigmoid(f) c + sigmoid(i) tanh(g)``,
    ``h' = sigmoid(o) tanh(c')``

    Parameters
    ----------
    w_ih : ndarray, float32 or float16, (4*hidden, inputs)
        The gates one after another, in PyTorch's order i f g o.
    w_hh : ndarray, of the dtype of `w_ih`, (4*hidden, hidden), or (4*hidden, outputs) with `w_hr`
    b_ih, b_hh : ndarray, float32 (or as `w_ih`), (4*hidden,), optional
    w_hr : ndarray, of the dtype of `w_ih`, (outputs, hidden), optional
        A projection: ``h' = w_hr (sigmoid(o) tanh(c'))``.
    peephole : ndarray, float32 (or as `w_ih`), (3, hidden), optional
        Weights p of i, f and o: ``p_i c`` is added to i, ``p_f c`` to f and ``p_o c'`` to o.
    clip : float, optional
        Bounds the arguments of the gates' functions to -clip..clip, as ONNX's attribute; c' is not bounded.
    cell_clip : float, optional
        Bounds c' to -cell_clip..cell_clip, as TensorFlow's option.
    activations : tuple of three, optional
        The functions of i, f and o, of g, and of c' in h', each as :func:`fusedops.conv2d` takes them, but not
        "prelu". None is ("sigmoid", "tanh", "tanh"), which is the fastest.
    precision : "float32" or "bfloat16"
        Of the operands, as :class:`RNNCell` has it.

    Raises
    ------
    TypeError
        An array is neither float32 nor, of the weights, float16; weights of two dtypes; an option of the wrong type.
    ValueError
        Shapes that do not fit, or an unknown name.

    Notes
    -----
    ``cell(x, h, c, out=None)`` takes x (batch, inputs), h (batch, hidden) and c (batch, hidden), or all without a
    batch, and returns (h', c'); `out` is a pair of arrays, and may be (h, c).

    float16 weights stay float16, in half of the memory, and are widened where they are read. Results are bit-identical
    to those of ``w.astype(np.float32)``. A step that is bound by reading weights takes less time with them.

    References
    ----------
    .. [1] Hochreiter and Schmidhuber, "Long short-term memory", Neural Computation 9(8), 1997
    .. [2] Gers, Schraudolph and Schmidhuber, "Learning precise timing with LSTM recurrent networks", JMLR 3, 2002:
           peepholes
    .. [3] Sak, Senior and Beaufays, "Long short-term memory based recurrent neural network architectures for large
       vocabulary speech recognition", 2014, arXiv:1402.1128: projections

    Examples
    --------
    >>> import numpy as np, fusedops as fo
    >>> cell = fo.LSTMCell(np.ones((8, 3), np.float32), np.ones((8, 2), np.float32))
    >>> h, c = cell(np.zeros((1, 3), np.float32), np.zeros((1, 2), np.float32), np.ones((1, 2), np.float32))
    >>> c
    array([[0.5, 0.5]], dtype=float32)
    """

    def __init__(
        self,
        w_ih: Input,
        w_hh: Input,
        b_ih: Input | None = None,
        b_hh: Input | None = None,
        *,
        w_hr: Input | None = None,
        peephole: Input | None = None,
        clip: float | None = None,
        cell_clip: float | None = None,
        activations: Sequence[Activation] | None = None,
        precision: Precision = "float32",
    ) -> None:
        w = cell_weights("LSTM", w_ih, w_hh, b_ih, b_hh, w_hr, peephole, lend=self._lends)
        kept, functions = gate_functions("LSTM", activations)
        options = dict(w_hr=w[4], peephole=w[5], clip=clip, cell_clip=cell_clip, activations=kept)
        self._keep(w, options | {"precision": precision})
        self._pack(
            KINDS["LSTM"],
            *w,
            functions,
            False,
            clip_of(clip),
            clip_of(cell_clip, "cell_clip"),
            checked_precision(precision),
            lend=self._lent(w),
        )


class GRUCell(_Cell, _core.CellPlan):
    """One step of a GRU, its weights packed once: ``h' = cell(x, h)``.

    ``r, z = sigmoid(w_ih x + b_ih + w_hh h + b_hh)``, ``n = tanh(w_in x + b_in + r (w_hn h + b_hn))``,
    ``h' = (1 - z) n + z h``

    Parameters
    ----------
    w_ih : ndarray, float32 or float16, (3*hidden, inputs)
        The gates one after another, in PyTorch's order r z n.
    w_hh : ndarray, of the dtype of `w_ih`, (3*hidden, hidden)
    b_ih, b_hh : ndarray, float32 (or as `w_ih`), (3*hidden,), optional
        All copied.
    reset_after : bool
        True is PyTorch's and cuDNN's variant, above. False: ``n = tanh(w_in x + b_in + w_hn (r h) + b_hn)``, the
        original one (ONNX's default, Keras's ``reset_after=False``).
    clip : float, optional
        Bounds the arguments of sigmoid and tanh to -clip..clip.
    activations : tuple of two, optional
        The functions of r and z, and of n, each as :func:`fusedops.conv2d` takes them, but not "prelu". None is
        ("sigmoid", "tanh"), which is the fastest.
    precision : "float32" or "bfloat16"
        Of the operands, as :class:`RNNCell` has it.

    Raises
    ------
    TypeError
        An array is neither float32 nor, of the weights, float16; weights of two dtypes; an option of the wrong type.
    ValueError
        Shapes that do not fit, or an unknown name.

    Notes
    -----
    ``cell(x, h, out=None)`` takes x (batch, inputs) and h (batch, hidden), or both without a batch, and returns h';
    `out` may be h.

    float16 weights stay float16, in half of the memory, and are widened where they are read. Results are bit-identical
    to those of ``w.astype(np.float32)``. A step that is bound by reading weights takes less time with them.

    References
    ----------
    .. [1] Cho et al., "Learning phrase representations using RNN encoder-decoder for statistical machine translation",
       2014, arXiv:1406.1078

    Examples
    --------
    >>> import numpy as np, fusedops as fo
    >>> cell = fo.GRUCell(np.zeros((6, 3), np.float32), np.zeros((6, 2), np.float32))
    >>> cell(np.ones((1, 3), np.float32), np.ones((1, 2), np.float32))
    array([[0.5, 0.5]], dtype=float32)
    """

    def __init__(
        self,
        w_ih: Input,
        w_hh: Input,
        b_ih: Input | None = None,
        b_hh: Input | None = None,
        *,
        reset_after: bool = True,
        clip: float | None = None,
        activations: Sequence[Activation] | None = None,
        precision: Precision = "float32",
    ) -> None:
        checked_precision(precision)
        w = cell_weights("GRU", w_ih, w_hh, b_ih, b_hh, lend=self._lends)
        kept, functions = gate_functions("GRU", activations)
        reset_after = bool(reset_after)
        options = dict(reset_after=reset_after, clip=clip, activations=kept)
        self._keep(w, options | {"precision": precision})
        self._pack(KINDS["GRU"], *w, functions, reset_after, clip_of(clip), np.inf, precision, lend=self._lent(w))


class LentRNNCell(RNNCell):
    _lends = True


class LentLSTMCell(LSTMCell):
    _lends = True


class LentGRUCell(GRUCell):
    _lends = True
