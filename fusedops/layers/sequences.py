"""Layers of cells that take whole sequences."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .. import _core
from .._internal import recurrent_weights
from .cells import GRUCell, LSTMCell, RNNCell
from .stacks import Stack, each_layer, ways

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Literal

    from .._types import Activation, Array, Direction, Input, OptionalWeights, Precision, Weights


class RNN(Stack, _core.SequencePlan):
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
    direction : {"forward", "reverse", "bidirectional"}, optional
        In place of `bidirectional` and `reverse`, as ONNX has it.
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
    ``lengths``, one integer for each row of the batch: after that many steps a row's y is 0 and its state stays as it
    was; and ``out`` for y. If x is (steps, inputs), without a batch, so are y and the state. The last state is returned
    next to y.

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
        direction: Direction | None = None,
        batch_first: bool = False,
        activation: Activation = "tanh",
        clip: float | None = None,
        precision: Precision = "float32",
    ) -> None:
        bidirectional, reverse = ways(direction, bidirectional, reverse)
        each = each_layer(num_layers, bidirectional, w_ih=w_ih, w_hh=w_hh, b_ih=b_ih, b_hh=b_hh)
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


class LSTM(Stack, _core.SequencePlan):
    """LSTM layers over a sequence: ``y, (h, c) = layer(x)``, each step an :class:`LSTMCell`.

    Parameters
    ----------
    w_ih, w_hh, b_ih, b_hh, w_hr, peephole
        As :class:`LSTMCell` takes them; with several layers or directions a list
        of each, layer by layer, forward before backward.
    clip, cell_clip, activations, precision
        See :class:`LSTMCell`.
    num_layers, bidirectional, reverse, direction, batch_first
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
        direction: Direction | None = None,
        batch_first: bool = False,
        w_hr: OptionalWeights = None,
        peephole: OptionalWeights = None,
        clip: float | None = None,
        cell_clip: float | None = None,
        activations: Sequence[Activation] | None = None,
        precision: Precision = "float32",
    ) -> None:
        bidirectional, reverse = ways(direction, bidirectional, reverse)
        each = each_layer(
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


class GRU(Stack, _core.SequencePlan):
    """GRU layers over a sequence: ``y, state = layer(x)``, each step a :class:`GRUCell`.

    Parameters
    ----------
    w_ih, w_hh, b_ih, b_hh
        As :class:`GRUCell` takes them; with several layers or directions a list
        of each, layer by layer, forward before backward.
    reset_after, clip, activations, precision
        See :class:`GRUCell`.
    num_layers, bidirectional, reverse, direction, batch_first
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
        direction: Direction | None = None,
        batch_first: bool = False,
        reset_after: bool = True,
        clip: float | None = None,
        activations: Sequence[Activation] | None = None,
        precision: Precision = "float32",
    ) -> None:
        bidirectional, reverse = ways(direction, bidirectional, reverse)
        each = each_layer(num_layers, bidirectional, w_ih=w_ih, w_hh=w_hh, b_ih=b_ih, b_hh=b_hh)
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
