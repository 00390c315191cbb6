from ._types import Array, Input, Ints, Layout, Padding, Padding1d, Resizing

def max_pool2d(
    x: Input,
    kernel_size: Ints,
    *,
    stride: Ints | None = None,
    padding: Padding = 0,
    dilation: Ints = 1,
    ceil_mode: bool = False,
    layout: Layout = "NCHW",
    out: Array | None = None,
) -> Array: ...
def avg_pool2d(
    x: Input,
    kernel_size: Ints,
    *,
    stride: Ints | None = None,
    padding: Padding = 0,
    dilation: Ints = 1,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    layout: Layout = "NCHW",
    out: Array | None = None,
) -> Array: ...
def resize(
    x: Input,
    size: Ints | None = None,
    scale: float | tuple[float, float] | None = None,
    mode: Resizing = "nearest",
    *,
    align_corners: bool = False,
    layout: Layout = "NCHW",
    out: Array | None = None,
) -> Array: ...
def max_pool1d(
    x: Input,
    kernel_size: int,
    *,
    stride: int | None = None,
    padding: Padding1d = 0,
    dilation: int = 1,
    ceil_mode: bool = False,
    layout: Layout = "NCHW",
    out: Array | None = None,
) -> Array: ...
def avg_pool1d(
    x: Input,
    kernel_size: int,
    *,
    stride: int | None = None,
    padding: Padding1d = 0,
    dilation: int = 1,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    layout: Layout = "NCHW",
    out: Array | None = None,
) -> Array: ...
def global_avg_pool2d(x: Input, *, layout: Layout = "NCHW", out: Array | None = None) -> Array: ...
def adaptive_avg_pool2d(x: Input, size: Ints, *, layout: Layout = "NCHW", out: Array | None = None) -> Array: ...
