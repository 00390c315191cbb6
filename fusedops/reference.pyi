from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from ._types import Activation, Algorithm, Array, Input, Ints, Layout, Padding, Padding1d, Padding3d, Precision, Triple
from .batchnorm import BatchNorm
from .quantized import Quantization
from .recurrent import OptionalWeights, Weights

class Linear:
    def __init__(
        self,
        w: Input,
        bias: Input | None = None,
        *,
        activation: Activation = None,
        precision: Precision = "float32",
        fold_bn: bool = False,
    ) -> None: ...
    def __call__(self, x: Input, residual: Input | None = None, out: Array | None = None) -> Array: ...

class Conv2d:
    def __init__(
        self,
        w: Input,
        bias: Input | None = None,
        bn: BatchNorm | None = None,
        *,
        activation: Activation = None,
        stride: Ints = 1,
        padding: Padding = 0,
        dilation: Ints = 1,
        groups: int = 1,
        layout: Layout = "NCHW",
        algorithm: Algorithm = "auto",
        precision: Precision = "float32",
        fold_bn: bool = False,
    ) -> None: ...
    def __call__(self, x: Input, residual: Input | None = None, out: Array | None = None) -> Array: ...

class Conv1d:
    def __init__(
        self,
        w: Input,
        bias: Input | None = None,
        bn: BatchNorm | None = None,
        *,
        activation: Activation = None,
        stride: int = 1,
        padding: Padding1d = 0,
        dilation: int = 1,
        groups: int = 1,
        layout: Layout = "NCHW",
        algorithm: Algorithm = "auto",
        precision: Precision = "float32",
        fold_bn: bool = False,
    ) -> None: ...
    def __call__(self, x: Input, residual: Input | None = None, out: Array | None = None) -> Array: ...

class ConvTranspose2d:
    def __init__(
        self,
        w: Input,
        bias: Input | None = None,
        bn: BatchNorm | None = None,
        *,
        activation: Activation = None,
        stride: Ints = 1,
        padding: Padding = 0,
        output_padding: Ints = 0,
        dilation: Ints = 1,
        groups: int = 1,
        layout: Layout = "NCHW",
        fold_bn: bool = False,
    ) -> None: ...
    def __call__(self, x: Input, residual: Input | None = None, out: Array | None = None) -> Array: ...

class ConvTranspose1d:
    def __init__(
        self,
        w: Input,
        bias: Input | None = None,
        bn: BatchNorm | None = None,
        *,
        activation: Activation = None,
        stride: int = 1,
        padding: Padding1d = 0,
        output_padding: int = 0,
        dilation: int = 1,
        groups: int = 1,
        layout: Layout = "NCHW",
        fold_bn: bool = False,
    ) -> None: ...
    def __call__(self, x: Input, residual: Input | None = None, out: Array | None = None) -> Array: ...

class DepthwiseSeparable:
    def __init__(self, depthwise: Conv2d, pointwise: Conv2d) -> None: ...
    def __call__(self, x: Input, residual: Input | None = None, out: Array | None = None) -> Array: ...

class InvertedResidual:
    def __init__(self, expand: Conv2d | None, depthwise: Conv2d, project: Conv2d, *, residual: bool = True) -> None: ...
    def __call__(self, x: Input, out: Array | None = None) -> Array: ...

class RNNCell:
    def __init__(
        self,
        w_ih: Input,
        w_hh: Input,
        b_ih: Input | None = None,
        b_hh: Input | None = None,
        *,
        activation: Activation = "tanh",
        clip: float | None = None,
        fold_bn: bool = False,
    ) -> None: ...
    def __call__(self, x: Input, h: Input, out: Array | None = None) -> Array: ...

class LSTMCell:
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
        activations: Sequence[Activation] | None = None,
        fold_bn: bool = False,
    ) -> None: ...
    def __call__(self, x: Input, h: Input, c: Input, out: tuple[Array, Array] | None = None) -> tuple[Array, Array]: ...

class GRUCell:
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
        fold_bn: bool = False,
    ) -> None: ...
    def __call__(self, x: Input, h: Input, out: Array | None = None) -> Array: ...

class _Sequence:
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
        fold_bn: bool = False,
        **options: Any,
    ) -> None: ...

class RNN(_Sequence):
    def __call__(
        self, x: Input, state: Input | None = None, lengths: Input | None = None, out: Array | None = None
    ) -> tuple[Array, Array]: ...

class LSTM(_Sequence):
    def __call__(
        self, x: Input, state: tuple[Input, Input] | None = None, lengths: Input | None = None, out: Array | None = None
    ) -> tuple[Array, tuple[Array, Array]]: ...

class GRU(_Sequence):
    def __call__(
        self, x: Input, state: Input | None = None, lengths: Input | None = None, out: Array | None = None
    ) -> tuple[Array, Array]: ...

def conv1d(
    x: Input,
    w: Input,
    *,
    bias: Input | None = None,
    bn: BatchNorm | None = None,
    residual: Input | None = None,
    activation: Activation = None,
    stride: int = 1,
    padding: Padding1d = 0,
    dilation: int = 1,
    groups: int = 1,
    layout: Layout = "NCHW",
    algorithm: Algorithm = "auto",
    out: Array | None = None,
    fold_bn: bool = False,
) -> Array: ...
def conv_transpose2d(
    x: Input,
    w: Input,
    *,
    bias: Input | None = None,
    bn: BatchNorm | None = None,
    residual: Input | None = None,
    activation: Activation = None,
    stride: Ints = 1,
    padding: Padding = 0,
    output_padding: Ints = 0,
    dilation: Ints = 1,
    groups: int = 1,
    layout: Layout = "NCHW",
    out: Array | None = None,
    fold_bn: bool = False,
) -> Array: ...
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
def conv2d(
    x: Input,
    w: Input,
    *,
    bias: Input | None = None,
    bn: BatchNorm | None = None,
    residual: Input | None = None,
    activation: Activation = None,
    stride: Ints = 1,
    padding: Padding = 0,
    dilation: Ints = 1,
    groups: int = 1,
    layout: Layout = "NCHW",
    algorithm: Algorithm = "auto",
    out: Array | None = None,
    fold_bn: bool = False,
) -> Array: ...
def conv_bn_relu(
    x: Input,
    w: Input,
    bn: BatchNorm | None = None,
    *,
    bias: Input | None = None,
    residual: Input | None = None,
    stride: Ints = 1,
    padding: Padding = 0,
    dilation: Ints = 1,
    groups: int = 1,
    layout: Layout = "NCHW",
    algorithm: Algorithm = "auto",
    out: Array | None = None,
    fold_bn: bool = False,
) -> Array: ...
def depthwise_conv2d(
    x: Input,
    w: Input,
    *,
    bias: Input | None = None,
    bn: BatchNorm | None = None,
    residual: Input | None = None,
    activation: Activation = None,
    stride: Ints = 1,
    padding: Padding = 0,
    dilation: Ints = 1,
    layout: Layout = "NCHW",
    out: Array | None = None,
    fold_bn: bool = False,
) -> Array: ...
def depthwise_conv_bn_relu(
    x: Input,
    w: Input,
    bn: BatchNorm | None = None,
    *,
    bias: Input | None = None,
    residual: Input | None = None,
    stride: Ints = 1,
    padding: Padding = 0,
    dilation: Ints = 1,
    layout: Layout = "NCHW",
    out: Array | None = None,
    fold_bn: bool = False,
) -> Array: ...
def linear(
    x: Input,
    w: Input,
    bias: Input | None = None,
    *,
    residual: Input | None = None,
    activation: Activation = None,
    out: Array | None = None,
    fold_bn: bool = False,
) -> Array: ...
def gemm(
    a: Input,
    b: Input,
    *,
    bias: Input | None = None,
    residual: Input | None = None,
    activation: Activation = None,
    out: Array | None = None,
    fold_bn: bool = False,
) -> Array: ...
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
    fold_bn: bool = False,
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
    fold_bn: bool = False,
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
    fold_bn: bool = False,
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
    fold_bn: bool = False,
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
    fold_bn: bool = False,
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
    fold_bn: bool = False,
    **options: Any,
) -> tuple[Array, Array]: ...

class QLinear:
    def __init__(
        self,
        w: Input,
        bias: Input | None = None,
        bn: BatchNorm | None = None,
        *,
        x_q: Quantization | None = None,
        w_q: Quantization | None = None,
        y_q: Quantization | None = None,
        residual_q: Quantization | None = None,
        activation: Activation = None,
    ) -> None: ...
    def __call__(self, x: Input, residual: Input | None = None, out: NDArray[Any] | None = None) -> NDArray[Any]: ...

class QConv2d:
    def __init__(
        self,
        w: Input,
        bias: Input | None = None,
        bn: BatchNorm | None = None,
        *,
        x_q: Quantization,
        w_q: Quantization | None = None,
        y_q: Quantization | None = None,
        residual_q: Quantization | None = None,
        activation: Activation = None,
        stride: Ints = 1,
        padding: Padding = 0,
        dilation: Ints = 1,
        groups: int = 1,
        layout: Layout = "NCHW",
    ) -> None: ...
    def __call__(self, x: Input, residual: Input | None = None, out: NDArray[Any] | None = None) -> NDArray[Any]: ...

def qlinear(
    x: Input,
    w: Input,
    *,
    x_q: Quantization | None = None,
    w_q: Quantization,
    y_q: Quantization | None = None,
    bias: Input | None = None,
    activation: Activation = None,
    residual: Input | None = None,
    residual_q: Quantization | None = None,
    out: NDArray[Any] | None = None,
) -> NDArray[Any]: ...
def qconv2d(
    x: Input,
    w: Input,
    *,
    x_q: Quantization,
    w_q: Quantization,
    y_q: Quantization | None = None,
    bias: Input | None = None,
    activation: Activation = None,
    residual: Input | None = None,
    residual_q: Quantization | None = None,
    stride: Ints = 1,
    padding: Padding = 0,
    dilation: Ints = 1,
    groups: int = 1,
    layout: Layout = "NCHW",
    out: NDArray[Any] | None = None,
) -> NDArray[Any]: ...
def conv_transpose1d(
    x: Input,
    w: Input,
    *,
    bias: Input | None = None,
    bn: BatchNorm | None = None,
    residual: Input | None = None,
    activation: Activation = None,
    stride: int = 1,
    padding: Padding1d = 0,
    output_padding: int = 0,
    dilation: int = 1,
    groups: int = 1,
    layout: Layout = "NCHW",
    out: Array | None = None,
    fold_bn: bool = False,
) -> Array: ...
def conv3d(
    x: Input,
    w: Input,
    *,
    bias: Input | None = None,
    bn: BatchNorm | None = None,
    residual: Input | None = None,
    activation: Activation = None,
    stride: Triple = 1,
    padding: Padding3d = 0,
    dilation: Triple = 1,
    groups: int = 1,
    layout: Layout = "NCHW",
    out: Array | None = None,
    fold_bn: bool = False,
) -> Array: ...
def batch_norm(
    x: Input, bn: BatchNorm, *, activation: Activation = None, layout: Layout = "NCHW", out: Array | None = None
) -> Array: ...
