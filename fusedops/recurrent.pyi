from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

from . import _core
from ._types import Activation, Array, Direction, Input

Weights: TypeAlias = Input | Sequence[Input]
OptionalWeights: TypeAlias = Input | Sequence[Input | None] | None

class RNNCell(_core.CellPlan):
    def __init__(
        self,
        w_ih: Input,
        w_hh: Input,
        b_ih: Input | None = None,
        b_hh: Input | None = None,
        *,
        activation: Activation = "tanh",
        clip: float | None = None,
    ) -> None: ...

class LSTMCell(_core.LSTMCellPlan):
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
    ) -> None: ...

class GRUCell(_core.CellPlan):
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
    ) -> None: ...

class _Sequence:
    def stream(self, batch: int = 1) -> _core.Stream: ...

class RNN(_Sequence, _core.SequencePlan):
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
    ) -> None: ...
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
    ) -> RNN: ...
    @classmethod
    def from_keras(cls, *weights: Input, activation: Activation = "tanh", batch_first: bool = True) -> RNN: ...

class LSTM(_Sequence, _core.SequencePlan):
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
    ) -> None: ...
    def __call__(
        self, x: Input, state: tuple[Input, Input] | None = None, lengths: Input | None = None, out: Array | None = None
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
    ) -> LSTM: ...
    @classmethod
    def from_keras(cls, *weights: Input, batch_first: bool = True) -> LSTM: ...

class GRU(_Sequence, _core.SequencePlan):
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
    ) -> None: ...
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
    ) -> GRU: ...
    @classmethod
    def from_keras(cls, *weights: Input, reset_after: bool = True, batch_first: bool = True) -> GRU: ...

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
) -> Array: ...
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
) -> tuple[Array, Array]: ...
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
) -> Array: ...
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
    **options: Any,
) -> tuple[Array, Array]: ...
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
    **options: Any,
) -> tuple[Array, tuple[Array, Array]]: ...
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
    **options: Any,
) -> tuple[Array, Array]: ...
