import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from .._types import Input
from .ir.explanation import Explanation
from .ir.graph import Value
from .runtime.profiler import Benchmark, Profile

class Model:
    @property
    def inputs(self) -> list[Value]: ...
    @property
    def outputs(self) -> list[Value]: ...
    def __call__(self, *arrays: Input) -> Any: ...  # an array, or a tuple of them where there are several outputs
    def run(self, inputs: Mapping[str, Input]) -> dict[str, NDArray[Any]]: ...
    def memory(self, *shapes: tuple[int, ...]) -> int: ...
    def explain(self) -> Explanation: ...
    def benchmark(
        self, *arrays: Input, number: int = 10, repeat: int = 10, progress: Callable[[float], object] = ...
    ) -> Benchmark: ...
    def profile(self, *arrays: Input, repeat: int = 20) -> Profile: ...
    def quantize(
        self,
        samples: Iterable[Input | tuple[Input, ...] | list[Input] | Mapping[str, Input]],
        *,
        calibration: str | tuple[str, float] = "mse",
        keep: Sequence[str] = (),
        layer_snr: float = 20.0,
        snr: float = 20.0,
        progress: Callable[[float], object] = ...,
    ) -> Model: ...
    def save(self, path: str | os.PathLike[str]) -> None: ...
