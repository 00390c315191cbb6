from typing import Any

from numpy.typing import NDArray

from ._types import Array, Input

MOST_AXES: int

def attention(
    q: Input,
    k: Input,
    v: Input,
    *,
    mask: Input | None = None,
    causal: bool = False,
    scale: float | None = None,
    out: Array | None = None,
) -> Array: ...
def operands(
    q: Input, k: Input, v: Input, mask: Input | None, scale: float | None
) -> tuple[Array, Array, Array, NDArray[Any] | None, float, bool]: ...
def flag(causal: bool) -> bool: ...

class KVCache:
    def __init__(self, batch: int, heads: int, d: int, dv: int | None = None, *, capacity: int = 64) -> None: ...
    def __len__(self) -> int: ...
    @property
    def k(self) -> Array: ...
    @property
    def v(self) -> Array: ...
    def append(self, k: Input, v: Input) -> None: ...
    def truncate(self, tokens: int = 0) -> None: ...
    def attention(
        self, q: Input, *, mask: Input | None = None, scale: float | None = None, out: Array | None = None
    ) -> Array: ...
