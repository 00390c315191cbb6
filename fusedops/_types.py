"""Types of arguments and results, for annotations alone: nothing imports this module at run time."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias

from numpy import dtype, float32, int8, ndarray, uint8
from numpy.typing import ArrayLike, NDArray


class SupportsDLPack(Protocol):
    def __dlpack__(self, *, stream: Any = ...) -> Any: ...


Array: TypeAlias = ndarray[tuple[int, ...], dtype[float32]]
Bytes: TypeAlias = ndarray[tuple[int, ...], dtype[uint8]] | ndarray[tuple[int, ...], dtype[int8]]
Input: TypeAlias = ArrayLike | SupportsDLPack
Out: TypeAlias = NDArray[Any] | Sequence[NDArray[Any] | None] | Mapping[str, NDArray[Any] | None]  # of a network
Plain: TypeAlias = Literal[
    "relu", "relu6", "sigmoid", "tanh", "gelu", "gelu_tanh", "silu", "hardsigmoid", "hardswish", "softplus", "mish",
    "softsign",
]  # fmt: skip
Sloped: TypeAlias = Literal["leaky_relu", "elu"]
Activation: TypeAlias = (
    Plain
    | Sloped
    | tuple[Plain | Sloped]
    | tuple[Sloped, float]
    | tuple[Literal["clip"], float, float]
    | tuple[Literal["prelu"], Array]
    | None
)
Ints: TypeAlias = int | tuple[int, int]
Padding: TypeAlias = Ints | tuple[tuple[int, int], tuple[int, int]] | Literal["same", "valid"]
Padding1d: TypeAlias = Ints | Literal["same", "valid"]
Triple: TypeAlias = int | tuple[int, int, int]
Padding3d: TypeAlias = Triple | tuple[tuple[int, int], tuple[int, int], tuple[int, int]] | Literal["same", "valid"]
Layout: TypeAlias = Literal["NCHW", "NHWC"]
Algorithm: TypeAlias = Literal["auto", "direct", "winograd", "winograd1d"]
Precision: TypeAlias = Literal["float32", "bfloat16"]
Calibration: TypeAlias = Literal["mse", "minmax", "percentile"] | tuple[Literal["percentile"], float]
Progress: TypeAlias = bool | Callable[[float], object] | None  # True: a bar, or lines; else told what part is done
Resizing: TypeAlias = Literal["nearest", "linear"]
Direction: TypeAlias = Literal["forward", "reverse", "bidirectional"]
State: TypeAlias = Array | tuple[Array, Array]
Weights: TypeAlias = Input | Sequence[Input]
OptionalWeights: TypeAlias = Input | Sequence[Input | None] | None
