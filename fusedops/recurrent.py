"""Recurrent networks: cells, sequences and streams, and the one-shot functions for each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from . import _core, activations, recurrent_weights
from .layers import _kept, _Layer, _precision, integer, multiplies, storage_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, Literal

    from ._types import Activation, Array, Direction, Input, OptionalWeights, Precision, Weights


_KINDS = _core.CELLS
_GATES = {"RNN": 1, "LSTM": 4, "GRU": 3}
_USUAL = {"LSTM": ("sigmoid", "tanh", "tanh"), "GRU": ("sigmoid", "tanh")}


def _array(value, name, shape, w=None):
    """A contiguous copy of an optional array of this shape: a vector that goes with the weights w, or weights."""
    if value is None:
        return None
    value = _core.as_weights(value, name) if w is None else _core.as_input(_core.widened(value, name, w), name).copy()
    if value.shape != shape:
        raise ValueError(f"{name} has shape {value.shape}, but must have shape {shape}")
    return value


def _weights(kind, w_ih, w_hh, b_ih, b_hh, w_hr=None, peephole=None, *, lend=False):
    """Contiguous copies of one layer's weights, their shapes checked; w_ih and w_hh that are lent are no copies if they
    are contiguous."""
    gates, order = _GATES[kind], None if lend else "C"
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
            half = name if w.dtype == np.float16 else "w_ih"
            raise TypeError(
                f"w_ih has dtype {w_ih.dtype} and {name} has dtype {w.dtype}, but a cell's weights are of "
                f"one dtype: pass {half}.astype(np.float32)"
            )
    return (
        w_ih,
        w_hh,
        _array(b_ih, "b_ih", (rows,), w_ih),
        _array(b_hh, "b_hh", (rows,), w_ih),
        w_hr,
        _array(peephole, "peephole", (3, hidden), w_ih),
    )


def _clip(clip, name="clip"):
    if clip is None:
        return np.inf
    clip = activations.number(clip, name)
    if not clip > 0:
        raise ValueError(f"{name} must be None or a positive number, not {clip!r}")
    return clip


def _activation(activation):
    """The activation parsed; one that has no parameter for each channel."""
    if isinstance(activation, (tuple, list)) and "prelu" in activation[:1]:
        raise ValueError(
            f"a recurrent cell has no slopes for {activation!r}: "
            "use 'tanh', 'relu' or another activation of fusedops.conv2d"
        )
    return activations.parse(activation)


def _functions(kind, given):
    """What to keep of the option `activations`, and as the kernels take them the functions of g or n, of the other
    gates and of c'."""
    usual = _USUAL[kind]
    given = usual if given is None else given
    if not isinstance(given, (tuple, list)) or len(given) != len(usual):
        raise ValueError(
            f"activations must be None or {len(usual)} functions of a {kind}, such as {usual}, not {given!r}"
        )
    gate, act, *out = parsed = [_activation(each) for each in given]
    kept = tuple(map(_kept, given, parsed))
    return None if kept == usual else kept, (act, gate, *(out or [act]))


LENT_ROWS = 2  # up to which weights are read where they lie by a cell for one call


class _Cell(_Layer):
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

    def _cell_options(self):
        return self._made_of[3]

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
            f"{_precision(options)}, "
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

    Weights of float16 stay so, which takes half of the memory and little more than half of the time of a step that is
    bound by reading them. They are widened where they are read: bits are those of ``w.astype(np.float32)``.

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
        bfloat16 = multiplies(precision)
        w, parsed = _weights("RNN", w_ih, w_hh, b_ih, b_hh, lend=self._lends), _activation(activation)
        self._keep(w, dict(activation=_kept(activation, parsed), clip=clip, precision=precision))
        self._pack(_KINDS["RNN"], *w, (parsed,) * 3, False, _clip(clip), np.inf, bfloat16, lend=self._lent(w))


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

    Weights of float16 stay so, which takes half of the memory and little more than half of the time of a step that is
    bound by reading them. They are widened where they are read: bits are those of ``w.astype(np.float32)``.

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
        bfloat16 = multiplies(precision)
        w = _weights("LSTM", w_ih, w_hh, b_ih, b_hh, w_hr, peephole, lend=self._lends)
        kept, functions = _functions("LSTM", activations)
        options = dict(w_hr=w[4], peephole=w[5], clip=clip, cell_clip=cell_clip, activations=kept)
        self._keep(w, options | {"precision": precision})
        self._pack(
            _KINDS["LSTM"],
            *w,
            functions,
            False,
            _clip(clip),
            _clip(cell_clip, "cell_clip"),
            bfloat16,
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

    Weights of float16 stay so, which takes half of the memory and little more than half of the time of a step that is
    bound by reading them. They are widened where they are read: bits are those of ``w.astype(np.float32)``.

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
        bfloat16 = multiplies(precision)
        w = _weights("GRU", w_ih, w_hh, b_ih, b_hh, lend=self._lends)
        kept, functions = _functions("GRU", activations)
        reset_after = bool(reset_after)
        options = dict(reset_after=reset_after, clip=clip, activations=kept)
        self._keep(w, options | {"precision": precision})
        self._pack(_KINDS["GRU"], *w, functions, reset_after, _clip(clip), np.inf, bfloat16, lend=self._lent(w))


class LentRNNCell(RNNCell):
    _lends = True


class LentLSTMCell(LSTMCell):
    _lends = True


class LentGRUCell(GRUCell):
    _lends = True


def _few(x):
    """Whether x has so few rows that weights for one call are best read where they lie."""
    return np.ndim(x) == 1 or np.ndim(x) == 2 and len(x) <= LENT_ROWS


def _each_layer(num_layers, bidirectional, **weights):
    """For each layer and direction a dict of its arrays, from lists of them, or from single arrays for a single one."""
    num_layers = integer(num_layers, "num_layers")
    count = num_layers * (2 if bidirectional else 1)
    for name, value in weights.items():
        if not isinstance(value, (tuple, list)):
            weights[name] = value = [value] * (count if value is None else 1)
        if len(value) != count:
            raise ValueError(
                f"{name} holds {len(value)} array{'s' * (len(value) != 1)}, but num_layers={num_layers} "
                f"and bidirectional={bool(bidirectional)} make {count}: pass a list, layer by layer, "
                "forward before backward"
            )
    return [{name: value[i] for name, value in weights.items()} for i in range(count)]


def _directions(shapes, bidirectional, reverse):
    """How many directions there are, for layers whose shapes of (w_ih, w_hh) fit one another."""
    if reverse and bidirectional:
        raise ValueError("reverse=True is for one direction; a bidirectional layer has both")
    directions = 2 if bidirectional else 1
    w_ih, w_hh = shapes[0]
    for i, found in enumerate(shapes):
        expected = (w_ih[0], w_ih[1] if i < directions else directions * w_hh[1]), w_hh
        if found != expected:
            raise ValueError(
                f"w_ih[{i}] has shape {found[0]} and w_hh[{i}] has shape {found[1]}, but to follow "
                f"w_ih[0] {w_ih} and w_hh[0] {w_hh} they must have {expected[0]} "
                f"and {expected[1]}"
            )
    return directions


class _Sequence(_Layer):
    """Layers of cells over a sequence."""

    def _assemble(self, cells, bidirectional, reverse, batch_first):
        directions = _directions([cell._shapes() for cell in cells], bidirectional, reverse)
        self._options = bool(bidirectional), bool(reverse), bool(batch_first)
        self._stack(tuple(cells), len(cells) // directions, directions, *self._options[1:])

    def __reduce__(self):
        return _assembled, (type(self), self.cells, self._options, self._added())

    def __repr__(self):
        options = dict(zip(("bidirectional", "reverse", "batch_first"), self._options))
        shown = [
            f"num_layers={len(self.cells) // (1 + options['bidirectional'])}",
            *(f"{k}=True" for k, v in options.items() if v),
        ]
        return f"{type(self).__name__}({', '.join(shown)}, {self.cells[0]!r})"

    def _in_bfloat16(self):
        """The same layer with ``precision="bfloat16"``."""
        arguments = [cell._arguments for cell in self.cells]
        cells = [type(self.cells[0])(*arrays, **options | {"precision": "bfloat16"}) for arrays, options in arguments]
        return _assembled(type(self), cells, self._options, self._added())

    def stream(self, batch: int = 1) -> _core.Stream:
        """A stepper that keeps its state between calls.

        Its outputs have the bits of the whole sequence at once.

        Parameters
        ----------
        batch : int
            Sequences side by side.

        Returns
        -------
        Stream
            ``.step(x)`` takes x (batch, inputs), or (inputs,) for a batch of one, and returns y alike; ``.reset()``
            sets the state to zeros; ``.state`` is a copy of it, and may be assigned to.

        Raises
        ------
        ValueError
            The layer runs backwards, which would need the steps to come.

        Examples
        --------
        >>> import numpy as np, fusedops as fo
        >>> stream = fo.RNN(np.ones((1, 1), np.float32), np.ones((1, 1), np.float32), activation="relu").stream()
        >>> [float(stream.step(np.ones(1, np.float32))[0]) for _ in range(3)]
        [1.0, 2.0, 3.0]
        """
        batch = integer(batch, "batch")
        if self._options[0] or self._options[1]:
            raise ValueError("a stream cannot run backwards: it needs a layer without bidirectional and reverse")
        layer: Any = self  # a SequencePlan
        return _core.Stream(layer, batch)


def _assembled(cls, cells, options, added):
    layer = cls.__new__(cls)
    layer._assemble(cells, *options)
    vars(layer).update(added)
    return layer


class RNN(_Sequence, _core.SequencePlan):
    """Simple recurrent layers over a sequence: ``y, state = layer(x)``, each step an :class:`RNNCell`.

    Parameters
    ----------
    w_ih, w_hh, b_ih, b_hh
        As :class:`RNNCell` takes them; with several layers or directions a list
        of each, layer by layer, forward before backward.
    activation, clip, precision
        See :class:`RNNCell`.
    num_layers : int
        A layer reads the outputs of the one before it, those of its directions side by side.
    bidirectional : bool
        A second direction runs from the last step to the first; y holds the outputs of both side by side.
    reverse : bool
        The only direction runs backwards.
    batch_first : bool
        x and y are (batch, steps, width) rather than (steps, batch, width).

    Raises
    ------
    TypeError
        An array is neither float32 nor, of the weights, float16; weights of two dtypes; an option of the wrong type.
    ValueError
        Shapes that do not fit, or an unknown name.

    Notes
    -----
    A call takes ``x``; optionally the initial ``state`` (layers * directions, batch, hidden), zeros otherwise;
    ``lengths``, one integer for each row of the batch, beyond which a row's y is 0 and its state stays as it was; and
    ``out`` for y. An x (steps, inputs) has no batch, and neither have its y and state then. The last state is returned
    beside y.

    Examples
    --------
    >>> import numpy as np, fusedops as fo
    >>> layer = fo.RNN(np.eye(2, dtype=np.float32), np.eye(2, dtype=np.float32), activation="relu")
    >>> y, h = layer(np.ones((3, 1, 2), np.float32))
    >>> y[:, 0, 0], h
    (array([1., 2., 3.], dtype=float32), array([[[3., 3.]]], dtype=float32))
    """

    def __init__(
        self,
        w_ih: Weights,
        w_hh: Weights,
        b_ih: OptionalWeights = None,
        b_hh: OptionalWeights = None,
        *,
        num_layers: int = 1,
        bidirectional: bool = False,
        reverse: bool = False,
        batch_first: bool = False,
        activation: Activation = "tanh",
        clip: float | None = None,
        precision: Precision = "float32",
    ) -> None:
        each = _each_layer(num_layers, bidirectional, w_ih=w_ih, w_hh=w_hh, b_ih=b_ih, b_hh=b_hh)
        cells = [RNNCell(**w, activation=activation, clip=clip, precision=precision) for w in each]
        self._assemble(cells, bidirectional, reverse, batch_first)

    if TYPE_CHECKING:  # the binding's, with the types of its states

        def __call__(
            self, x: Input, state: Input | None = None, lengths: Input | None = None, out: Array | None = None
        ) -> tuple[Array, Array]: ...

    @classmethod
    def from_onnx(
        cls,
        w: Input,
        r: Input,
        b: Input | None = None,
        *,
        direction: Direction = "forward",
        layout: Literal[0, 1] = 0,
        activation: Activation = "tanh",
        clip: float | None = None,
        precision: Precision = "float32",
    ) -> RNN:
        """The layer of an ONNX node RNN with these inputs and attributes.

        Parameters
        ----------
        w, r, b : ndarray, float32
            The node's W (directions, hidden, inputs), R (directions, hidden, hidden) and B (directions, 2*hidden).
        direction : {"forward", "reverse", "bidirectional"}
        layout : {0, 1}
            1 is ``batch_first=True``. The state is (directions, batch, hidden) with both.
        activation, clip
            See :class:`RNN`.
        precision : "float32" or "bfloat16"
            See :class:`RNN`.

        Returns
        -------
        RNN

        Raises
        ------
        ValueError
            Shapes that do not fit, an unknown direction or layout.

        Examples
        --------
        >>> import numpy as np, fusedops as fo
        >>> fo.RNN.from_onnx(np.ones((1, 2, 3), np.float32), np.ones((1, 2, 2), np.float32))
        RNN(num_layers=1, RNNCell(3 -> 2, bias=False, activation='tanh', kernel='... gemm and gates'))
        """
        weights = recurrent_weights.of_onnx("RNN", w, r, b)
        options = recurrent_weights.direction(direction, len(np.asarray(w)), layout)
        return cls(**weights, **options, activation=activation, clip=clip, precision=precision)

    @classmethod
    def from_keras(
        cls, *weights, activation: Activation = "tanh", batch_first: bool = True, precision: Precision = "float32"
    ) -> RNN:
        """The layer of a Keras SimpleRNN, or of a Bidirectional one, from its ``get_weights()``.

        Parameters
        ----------
        *weights : ndarray, float32
            kernel (inputs, hidden), recurrent_kernel (hidden, hidden) and, where there is one, bias (hidden,), for each
            direction.
        activation : str or tuple
        batch_first : bool
            Keras's order; see :class:`RNN`.
        precision : "float32" or "bfloat16"
            See :class:`RNN`.

        Returns
        -------
        RNN

        Raises
        ------
        TypeError, ValueError
            An array is not float32; shapes, or a number of arrays, that do not fit.

        Examples
        --------
        >>> import numpy as np, fusedops as fo
        >>> fo.RNN.from_keras(np.ones((3, 2), np.float32), np.ones((2, 2), np.float32))
        RNN(num_layers=1, batch_first=True, RNNCell(3 -> 2, bias=False, activation='tanh', kernel='... gemm and gates'))
        """
        return cls(
            **recurrent_weights.of_keras("RNN", weights),
            activation=activation,
            batch_first=batch_first,
            precision=precision,
        )


class LSTM(_Sequence, _core.SequencePlan):
    """LSTM layers over a sequence: ``y, (h, c) = layer(x)``, each step an :class:`LSTMCell`.

    Parameters
    ----------
    w_ih, w_hh, b_ih, b_hh, w_hr, peephole
        As :class:`LSTMCell` takes them; with several layers or directions a list
        of each, layer by layer, forward before backward.
    clip, cell_clip, activations, precision
        See :class:`LSTMCell`.
    num_layers, bidirectional, reverse, batch_first
        See :class:`RNN`, also for the arguments of a call; the state is the pair (h, c).

    Raises
    ------
    TypeError
        An array is neither float32 nor, of the weights, float16; weights of two dtypes; an option of the wrong type.
    ValueError
        Shapes that do not fit, or an unknown name.

    Examples
    --------
    >>> import numpy as np, fusedops as fo
    >>> layer = fo.LSTM(np.ones((8, 3), np.float32), np.ones((8, 2), np.float32))
    >>> zero, one = np.zeros((1, 1, 2), np.float32), np.ones((1, 1, 2), np.float32)
    >>> y, (h, c) = layer(np.zeros((5, 1, 3), np.float32), (zero, one))
    >>> y.shape, h.shape, c.shape
    ((5, 1, 2), (1, 1, 2), (1, 1, 2))
    """

    def __init__(
        self,
        w_ih: Weights,
        w_hh: Weights,
        b_ih: OptionalWeights = None,
        b_hh: OptionalWeights = None,
        *,
        num_layers: int = 1,
        bidirectional: bool = False,
        reverse: bool = False,
        batch_first: bool = False,
        w_hr: OptionalWeights = None,
        peephole: OptionalWeights = None,
        clip: float | None = None,
        cell_clip: float | None = None,
        activations: Sequence[Activation] | None = None,
        precision: Precision = "float32",
    ) -> None:
        each = _each_layer(
            num_layers, bidirectional, w_ih=w_ih, w_hh=w_hh, b_ih=b_ih, b_hh=b_hh, w_hr=w_hr, peephole=peephole
        )
        cells = [
            LSTMCell(**w, clip=clip, cell_clip=cell_clip, activations=activations, precision=precision) for w in each
        ]
        self._assemble(cells, bidirectional, reverse, batch_first)

    if TYPE_CHECKING:  # the binding's, with the types of its states

        def __call__(
            self,
            x: Input,
            state: tuple[Input, Input] | None = None,
            lengths: Input | None = None,
            out: Array | None = None,
        ) -> tuple[Array, tuple[Array, Array]]: ...

    @classmethod
    def from_onnx(
        cls,
        w: Input,
        r: Input,
        b: Input | None = None,
        p: Input | None = None,
        *,
        direction: Direction = "forward",
        layout: Literal[0, 1] = 0,
        clip: float | None = None,
        cell_clip: float | None = None,
        activations: Sequence[Activation] | None = None,
        precision: Precision = "float32",
    ) -> LSTM:
        """The layer of an ONNX node LSTM with these inputs and attributes.

        Parameters
        ----------
        w, r, b, p : ndarray, float32
            The node's W (directions, 4*hidden, inputs), R (directions, 4*hidden, hidden), B (directions, 8*hidden) and
            P (directions, 3*hidden), their gates in ONNX's order i o f c.
        direction : {"forward", "reverse", "bidirectional"}
        layout : {0, 1}
            1 is ``batch_first=True``. The states are (directions, batch, hidden) with both.
        clip, cell_clip : float, optional
        activations : tuple of three, optional
            As :class:`LSTMCell` takes them.
        precision : "float32" or "bfloat16"
            See :class:`LSTM`.

        Returns
        -------
        LSTM

        Raises
        ------
        ValueError
            Shapes that do not fit, an unknown direction or layout.

        Examples
        --------
        >>> import numpy as np, fusedops as fo
        >>> fo.LSTM.from_onnx(np.ones((1, 8, 3), np.float32), np.ones((1, 8, 2), np.float32))
        LSTM(num_layers=1, LSTMCell(3 -> 2, bias=False, kernel='... gemm and gates'))
        """
        weights = recurrent_weights.of_onnx("LSTM", w, r, b, p)
        options = recurrent_weights.direction(direction, len(np.asarray(w)), layout)
        return cls(**weights, **options, clip=clip, cell_clip=cell_clip, activations=activations, precision=precision)

    @classmethod
    def from_keras(cls, *weights, batch_first: bool = True, precision: Precision = "float32") -> LSTM:
        """The layer of a Keras LSTM, or of a Bidirectional one, from its ``get_weights()``: gates i f c o.

        Parameters
        ----------
        *weights : ndarray, float32
            kernel (inputs, 4*hidden), recurrent_kernel (hidden, 4*hidden) and, where there is one, bias (4*hidden,),
            for each direction.
        batch_first : bool
            Keras's order; see :class:`RNN`.
        precision : "float32" or "bfloat16"
            See :class:`LSTM`.

        Returns
        -------
        LSTM

        Raises
        ------
        TypeError, ValueError
            An array is not float32; shapes, or a number of arrays, that do not fit.

        Examples
        --------
        >>> import numpy as np, fusedops as fo
        >>> fo.LSTM.from_keras(np.ones((3, 8), np.float32), np.ones((2, 8), np.float32))
        LSTM(num_layers=1, batch_first=True, LSTMCell(3 -> 2, bias=False, kernel='... gemm and gates'))
        """
        return cls(**recurrent_weights.of_keras("LSTM", weights), batch_first=batch_first, precision=precision)


class GRU(_Sequence, _core.SequencePlan):
    """GRU layers over a sequence: ``y, state = layer(x)``, each step a :class:`GRUCell`.

    Parameters
    ----------
    w_ih, w_hh, b_ih, b_hh
        As :class:`GRUCell` takes them; with several layers or directions a list
        of each, layer by layer, forward before backward.
    reset_after, clip, activations, precision
        See :class:`GRUCell`.
    num_layers, bidirectional, reverse, batch_first
        See :class:`RNN`, also for the arguments of a call.

    Raises
    ------
    TypeError
        An array is neither float32 nor, of the weights, float16; weights of two dtypes; an option of the wrong type.
    ValueError
        Shapes that do not fit, or an unknown name.

    Examples
    --------
    >>> import numpy as np, fusedops as fo
    >>> layer = fo.GRU(np.zeros((6, 3), np.float32), np.zeros((6, 2), np.float32))
    >>> y, h = layer(np.ones((2, 1, 3), np.float32), np.ones((1, 1, 2), np.float32))
    >>> y[:, 0]
    array([[0.5 , 0.5 ],
           [0.25, 0.25]], dtype=float32)
    """

    def __init__(
        self,
        w_ih: Weights,
        w_hh: Weights,
        b_ih: OptionalWeights = None,
        b_hh: OptionalWeights = None,
        *,
        num_layers: int = 1,
        bidirectional: bool = False,
        reverse: bool = False,
        batch_first: bool = False,
        reset_after: bool = True,
        clip: float | None = None,
        activations: Sequence[Activation] | None = None,
        precision: Precision = "float32",
    ) -> None:
        each = _each_layer(num_layers, bidirectional, w_ih=w_ih, w_hh=w_hh, b_ih=b_ih, b_hh=b_hh)
        cells = [
            GRUCell(**w, reset_after=reset_after, clip=clip, activations=activations, precision=precision) for w in each
        ]
        self._assemble(cells, bidirectional, reverse, batch_first)

    if TYPE_CHECKING:  # the binding's, with the types of its states

        def __call__(
            self, x: Input, state: Input | None = None, lengths: Input | None = None, out: Array | None = None
        ) -> tuple[Array, Array]: ...

    @classmethod
    def from_onnx(
        cls,
        w: Input,
        r: Input,
        b: Input | None = None,
        *,
        direction: Direction = "forward",
        layout: Literal[0, 1] = 0,
        linear_before_reset: Literal[0, 1] = 0,
        clip: float | None = None,
        activations: Sequence[Activation] | None = None,
        precision: Precision = "float32",
    ) -> GRU:
        """The layer of an ONNX node GRU with these inputs and attributes.

        Parameters
        ----------
        w, r, b : ndarray, float32
            The node's W (directions, 3*hidden, inputs), R (directions, 3*hidden, hidden) and B (directions, 6*hidden),
            their gates in ONNX's order z r h.
        direction : {"forward", "reverse", "bidirectional"}
        layout : {0, 1}
            1 is ``batch_first=True``. The state is (directions, batch, hidden) with both.
        linear_before_reset : {0, 1}
            1 is ``reset_after=True``.
        clip : float, optional
        activations : tuple of two, optional
            As :class:`GRUCell` takes it.
        precision : "float32" or "bfloat16"
            See :class:`GRU`.

        Returns
        -------
        GRU

        Raises
        ------
        ValueError
            Shapes that do not fit, an unknown direction or layout.

        Examples
        --------
        >>> import numpy as np, fusedops as fo
        >>> fo.GRU.from_onnx(np.ones((1, 6, 3), np.float32), np.ones((1, 6, 2), np.float32))
        GRU(num_layers=1, GRUCell(3 -> 2, bias=False, reset_after=False, kernel='... gemm and gates'))
        """
        weights = recurrent_weights.of_onnx("GRU", w, r, b)
        options = recurrent_weights.direction(direction, len(np.asarray(w)), layout)
        return cls(
            **weights,
            **options,
            reset_after=bool(linear_before_reset),
            clip=clip,
            activations=activations,
            precision=precision,
        )

    @classmethod
    def from_keras(
        cls, *weights, reset_after: bool = True, batch_first: bool = True, precision: Precision = "float32"
    ) -> GRU:
        """The layer of a Keras GRU, or of a Bidirectional one, from its ``get_weights()``: gates in the order z r h.

        Parameters
        ----------
        *weights : ndarray, float32
            kernel (inputs, 3*hidden), recurrent_kernel (hidden, 3*hidden) and, where there is one, bias (3*hidden,) or
            (2, 3*hidden), for each direction.
        reset_after : bool
            As the Keras layer has it.
        batch_first : bool
            Keras's order; see :class:`RNN`.
        precision : "float32" or "bfloat16"
            See :class:`GRU`.

        Returns
        -------
        GRU

        Raises
        ------
        TypeError, ValueError
            An array is not float32; shapes, or a number of arrays, that do not fit.

        Examples
        --------
        >>> import numpy as np, fusedops as fo
        >>> fo.GRU.from_keras(np.ones((3, 6), np.float32), np.ones((2, 6), np.float32))
        GRU(num_layers=1, batch_first=True, GRUCell(3 -> 2, bias=False, reset_after=True, kernel='... gemm and gates'))
        """
        return cls(
            **recurrent_weights.of_keras("GRU", weights),
            reset_after=reset_after,
            batch_first=batch_first,
            precision=precision,
        )


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
