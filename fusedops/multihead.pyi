from ._types import Array, Input

class MultiheadAttention:
    def __init__(
        self,
        w_q: Input,
        w_k: Input,
        w_v: Input,
        w_out: Input,
        b_q: Input | None = None,
        b_k: Input | None = None,
        b_v: Input | None = None,
        b_out: Input | None = None,
        *,
        heads: int,
        batch_first: bool = False,
    ) -> None: ...
    def __call__(
        self,
        x: Input,
        k: Input | None = None,
        v: Input | None = None,
        *,
        mask: Input | None = None,
        causal: bool = False,
        out: Array | None = None,
    ) -> Array: ...
