from typing import NamedTuple

from numpy import dtype, float64, ndarray

from ._types import Array, Input

class BatchNorm(NamedTuple):
    gamma: Input | None
    beta: Input | None
    mean: Input
    var: Input
    eps: float = ...

def scale_and_shift(
    bn: BatchNorm, channels: int
) -> tuple[ndarray[tuple[int, ...], dtype[float64]], ndarray[tuple[int, ...], dtype[float64]]]: ...
def scale_and_bias(
    bias: Input | None, bn: BatchNorm, channels: int
) -> tuple[ndarray[tuple[int, ...], dtype[float64]], Array]: ...
def fold_batch_norm(w: Input, bias: Input | None, bn: BatchNorm) -> tuple[Array, Array]: ...
