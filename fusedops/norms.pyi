from ._types import Array, Input, Layout

def softmax(x: Input, axis: int = -1, *, out: Array | None = None) -> Array: ...
def log_softmax(x: Input, axis: int = -1, *, out: Array | None = None) -> Array: ...
def layer_norm(
    x: Input,
    weight: Input | None = None,
    bias: Input | None = None,
    *,
    eps: float = 1e-5,
    residual: Input | None = None,
    out: Array | None = None,
) -> Array: ...
def rms_norm(
    x: Input, weight: Input | None = None, *, eps: float = 1e-5, residual: Input | None = None, out: Array | None = None
) -> Array: ...
def group_norm(
    x: Input,
    groups: int,
    weight: Input | None = None,
    bias: Input | None = None,
    *,
    eps: float = 1e-5,
    residual: Input | None = None,
    layout: Layout = "NCHW",
    out: Array | None = None,
) -> Array: ...
def instance_norm(
    x: Input,
    weight: Input | None = None,
    bias: Input | None = None,
    *,
    eps: float = 1e-5,
    layout: Layout = "NCHW",
    out: Array | None = None,
) -> Array: ...
