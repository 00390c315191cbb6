"""The operations of fusedops, unfused: what fusion is compared with.

The convolution or product runs in the same kernel without its epilogue; bias, batch norm, residual and activation are
passes of their own (``_core.pointwise``: vectorised, the same threads and instruction set), each with its result in
memory. The passes run in place, which is as kind to the caches as passes can be. ``fold_bn=True`` folds batch norm and
bias into the kernel, as frameworks do with a frozen network, and keeps residual, activation and a cell's gates apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from . import _core, activations, functional, layers, pointwise, quantized, recurrent, tokens, volumes
from .batchnorm import fold_batch_norm, scale_and_shift, silence
from .bfloat16 import rounded
from .positions import options_by_name

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from numpy.typing import NDArray

    from ._types import (
        Activation,
        Algorithm,
        Array,
        Input,
        Ints,
        Layout,
        OptionalWeights,
        Padding,
        Padding1d,
        Padding3d,
        Precision,
        Triple,
        Weights,
    )
    from .batchnorm import BatchNorm
    from .quantized import Quantization


class _Unfused:
    """A kernel without epilogue, then the passes that its fused layer spares."""

    def __init__(self, kernel, channels, channels_last, bias, bn, activation, fold_bn, rounds=False):
        """`kernel` makes the fused layer, given its bias; `bn` is None where it has been folded; rounds: x to
        bfloat16."""
        self._rounds = rounds
        bias = layers._bias(bias, channels)
        parsed = activations.parse(activation, channels)
        self._layer = kernel(bias if fold_bn else None)
        self._channels_last = channels_last
        self._before, self._after = [], []  # passes on either side of the residual
        if bias is not None and not fold_bn:
            self._before.append({"shift": bias.copy()})
        if bn is not None:
            scale, shift = scale_and_shift(bn, channels)
            with silence():
                self._before.append({"scale": scale.astype(np.float32), "shift": shift.astype(np.float32)})
        if activation is not None:
            self._after.append({"activation": parsed})

    def __call__(self, x: Input, residual: Input | None = None, out: Array | None = None) -> Array:
        if residual is not None:
            residual = _core.as_input(residual, "residual")
        direct = self._in_place(out, residual)
        if self._rounds:
            x = rounded(_core.as_input(x, "x"))
        y = self._layer(x, None, out if direct else None)
        if residual is not None and residual.shape != y.shape:
            raise ValueError(f"residual has shape {residual.shape}, but the result has shape {y.shape}")
        if out is None or direct:
            return self._passes(y, residual)
        _core.checked_out(out, y.shape)
        out[...] = self._passes(y, residual)
        return out

    def _in_place(self, out, residual):
        """Whether the passes can run on `out` itself: nothing that is still read or may be refused depends on it."""
        return (
            isinstance(out, np.ndarray)
            and out.flags.behaved
            and self._matrix(out) is not None
            and (residual is None or residual.shape == out.shape and not np.may_share_memory(out, residual))
        )

    def _matrix(self, y):
        """y as ``(matrix, channel_rows)`` for `_core.pointwise`; None where it is empty, one number or does not lie
        so."""
        if y.size and y.ndim and self._channels_last:
            return (y.reshape(-1, y.shape[-1]), 0) if y.flags.c_contiguous else None
        if y.size and y.ndim > 2:
            pixels = np.moveaxis(y, 1, -1)
            if y.flags.c_contiguous:
                return y.reshape(y.shape[0] * y.shape[1], -1), y.shape[1]
            if pixels.flags.c_contiguous:
                return pixels.reshape(-1, y.shape[1]), 0
        return None

    def _passes(self, y, residual):
        if not y.size:
            return y
        matrix, channel_rows = self._matrix(y)
        for options in self._before:
            _core.pointwise(matrix, matrix, channel_rows=channel_rows, **options)
        if residual is not None:
            if residual.strides != y.strides:
                same_order = np.empty_like(y)
                same_order[...] = residual
                residual = same_order
            _core.pointwise(matrix, matrix, residual=self._matrix(residual)[0])
        for options in self._after:
            _core.pointwise(matrix, matrix, channel_rows=channel_rows, **options)
        return y


def _widened(w, bias, axes):
    """Weights, which may be float16, and their bias, in float32."""
    w = _core.as_weights(w, "w", axes, None)
    return w.astype(np.float32, copy=False), _core.widened(bias, "bias", w)


def _operand(w, bias, precision):
    """Weights, their bias, and whether operands are rounded, as weights then are."""
    rounds = layers.multiplies(precision)
    return rounded(w) if rounds else w, bias, rounds


class Linear(_Unfused):
    """:class:`fusedops.Linear`, unfused."""

    def __init__(
        self,
        w: Input,
        bias: Input | None = None,
        *,
        activation: Activation = None,
        precision: Precision = "float32",
        fold_bn: bool = False,
    ) -> None:
        w, bias = _widened(w, bias, 2)
        w, bias, rounds = _operand(w, bias, precision)
        super().__init__(lambda bias: layers.Linear(w, bias), w.shape[0], True, bias, None, activation, fold_bn, rounds)


class Conv2d(_Unfused):
    """:class:`fusedops.Conv2d`, unfused."""

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
    ) -> None:
        w, bias = _widened(w, bias, 4)
        if fold_bn and bn is not None:
            w, bias = fold_batch_norm(w, bias, bn)
            bn = None
        w, bias, rounds = _operand(w, bias, precision)

        def kernel(bias):
            return layers.Conv2d(
                w,
                bias,
                stride=stride,
                padding=padding,
                dilation=dilation,
                groups=groups,
                layout=layout,
                algorithm=algorithm,
            )

        super().__init__(kernel, w.shape[0], layout == "NHWC", bias, bn, activation, fold_bn, rounds)


class Conv1d(_Unfused):
    """:class:`fusedops.Conv1d`, unfused."""

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
    ) -> None:
        w, bias = _widened(w, bias, 3)
        if fold_bn and bn is not None:
            w, bias = fold_batch_norm(w, bias, bn)
            bn = None
        w, bias, rounds = _operand(w, bias, precision)

        def kernel(bias):
            return layers.Conv1d(
                w,
                bias,
                stride=stride,
                padding=padding,
                dilation=dilation,
                groups=groups,
                layout=layout,
                algorithm=algorithm,
            )

        super().__init__(kernel, w.shape[0], layout == "NHWC", bias, bn, activation, fold_bn, rounds)


class ConvTranspose2d(_Unfused):
    """:class:`fusedops.ConvTranspose2d`, unfused."""

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
        precision: Precision = "float32",
        fold_bn: bool = False,
    ) -> None:
        w, groups = layers.spreading(w, groups, "(ic, oc/groups, kh, kw)")
        channels = w.shape[1] * groups
        if fold_bn and bn is not None:
            w, bias = layers.fold_transposed(w, bias, bn, groups)
            bn = None
        w, bias, rounds = _operand(w, bias, precision)

        def kernel(bias):
            return layers.ConvTranspose2d(
                w,
                bias,
                stride=stride,
                padding=padding,
                output_padding=output_padding,
                dilation=dilation,
                groups=groups,
                layout=layout,
            )

        super().__init__(kernel, channels, layout == "NHWC", bias, bn, activation, fold_bn, rounds)


class ConvTranspose1d(_Unfused):
    """:class:`fusedops.ConvTranspose1d`, unfused."""

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
        precision: Precision = "float32",
        fold_bn: bool = False,
    ) -> None:
        w, groups = layers.spreading(w, groups, "(ic, oc/groups, k)")
        channels = w.shape[1] * groups
        if fold_bn and bn is not None:
            w, bias = layers.fold_transposed(w, bias, bn, groups)
            bn = None
        w, bias, rounds = _operand(w, bias, precision)

        def kernel(bias):
            return layers.ConvTranspose1d(
                w,
                bias,
                stride=stride,
                padding=padding,
                output_padding=output_padding,
                dilation=dilation,
                groups=groups,
                layout=layout,
            )

        super().__init__(kernel, channels, layout == "NHWC", bias, bn, activation, fold_bn, rounds)


@options_by_name
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
) -> Array:
    """:func:`fusedops.conv1d`, unfused."""
    layer = Conv1d(
        w,
        bias,
        bn,
        activation=activation,
        stride=stride,
        padding=padding,
        dilation=dilation,
        groups=groups,
        layout=layout,
        algorithm=algorithm,
        fold_bn=fold_bn,
    )
    return layer(x, residual, out)


@options_by_name
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
) -> Array:
    """:func:`fusedops.conv_transpose2d`, unfused."""
    layer = ConvTranspose2d(
        w,
        bias,
        bn,
        activation=activation,
        stride=stride,
        padding=padding,
        output_padding=output_padding,
        dilation=dilation,
        groups=groups,
        layout=layout,
        fold_bn=fold_bn,
    )
    return layer(x, residual, out)


@options_by_name
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
) -> Array:
    """:func:`fusedops.conv_transpose1d`, unfused."""
    layer = ConvTranspose1d(
        w,
        bias,
        bn,
        activation=activation,
        stride=stride,
        padding=padding,
        output_padding=output_padding,
        dilation=dilation,
        groups=groups,
        layout=layout,
        fold_bn=fold_bn,
    )
    return layer(x, residual, out)


@options_by_name
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
) -> Array:
    """:func:`fusedops.conv3d`, unfused."""
    w = _core.as_input(w, "w", 5)
    if fold_bn and bn is not None:
        w, bias = fold_batch_norm(w, bias, bn)
        bn = None

    def kernel(bias):
        windows: dict[str, Any] = dict(stride=stride, padding=padding, dilation=dilation, groups=groups, layout=layout)
        return volumes.Convolution(w, bias, None, activation=None, **windows)

    return _Unfused(kernel, w.shape[0], layout == "NHWC", bias, bn, activation, fold_bn)(x, residual, out)


def batch_norm(
    x: Input, bn: BatchNorm, *, activation: Activation = None, layout: Layout = "NCHW", out: Array | None = None
) -> Array:
    """:func:`fusedops.batch_norm`, the activation in a pass of its own."""
    parsed = pointwise.normed_operands(x, bn, activation, layout)[3]
    y = functional.batch_norm(x, bn, layout=layout, out=out)
    return y if activation is None else _core.affine(y, y.ndim - 1 if layout == "NHWC" else 1, None, None, parsed, y)


def _added(x, residual):
    """x + residual as a pass of its own."""
    if residual is None:
        return x
    x, residual = _core.as_input(x, "x"), _core.as_input(residual, "residual")
    if residual.shape != x.shape:
        raise ValueError(f"residual has shape {residual.shape}, but x has shape {x.shape}")
    y = np.array(x, order="C")
    if y.size:
        rows = (-1, y.shape[-1]) if y.ndim else (1, 1)
        _core.pointwise(y.reshape(rows), y.reshape(rows), residual=np.ascontiguousarray(residual).reshape(rows))
    return y


def layer_norm(
    x: Input,
    weight: Input | None = None,
    bias: Input | None = None,
    *,
    eps: float = 1e-5,
    residual: Input | None = None,
    out: Array | None = None,
) -> Array:
    """:func:`fusedops.layer_norm`, the residual added in a pass of its own."""
    return functional.layer_norm(_added(x, residual), weight, bias, eps=eps, out=out)


def rms_norm(
    x: Input, weight: Input | None = None, *, eps: float = 1e-5, residual: Input | None = None, out: Array | None = None
) -> Array:
    """:func:`fusedops.rms_norm`, the residual added in a pass of its own."""
    return functional.rms_norm(_added(x, residual), weight, eps=eps, out=out)


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
) -> Array:
    """:func:`fusedops.group_norm`, the residual added in a pass of its own."""
    return functional.group_norm(_added(x, residual), groups, weight, bias, eps=eps, layout=layout, out=out)


@options_by_name
def attention(
    q: Input,
    k: Input,
    v: Input,
    *,
    mask: Input | None = None,
    causal: bool = False,
    scale: float | None = None,
    precision: Precision = "float32",
    out: Array | None = None,
) -> Array:
    """:func:`fusedops.attention`, unfused: the scores of all queries for all keys, the mask, the softmax and the
    product with the values, each in memory."""
    q, k, v, mask, scale, one = tokens.operands(q, k, v, mask, scale)
    rounds = layers.multiplies(precision)
    if rounds:
        q, k, v, scale = rounded(np.float32(scale) * q), rounded(k), rounded(v), 1.0
    causal, shape, (kv_heads, s, dv) = tokens.flag(causal), (*q.shape[one:-1], v.shape[-1]), v.shape[-3:]
    if out is not None:
        _core.checked_out(out, shape)
    heads, t = q.shape[-3:-1]
    y = np.zeros((*q.shape[:-1], dv), np.float32)
    if y.size and s:
        group = heads // kv_heads
        taken = np.tril(np.ones((t, s), bool)) if causal else None
        if mask is not None and mask.dtype == bool:
            mask, taken = None, mask if taken is None else mask & taken
        scores = np.empty((*q.shape[:-1], s), np.float32)
        by_group = [a.reshape(-1, kv_heads, group, *a.shape[-2:]) for a in (q, scores, y)]
        shared = [
            np.broadcast_to(a.reshape(-1, kv_heads, 1, *a.shape[-2:]), (*by_group[0].shape[:3], *a.shape[-2:]))
            for a in (k, v)
        ]
        _step("matmul", by_group[0], shared[0].swapaxes(-1, -2), by_group[1], scale)
        _weights_of(scores, mask, taken)
        if rounds:
            by_group[1] = rounded(by_group[1])
        _step("matmul", by_group[1], shared[1], by_group[2])
    return _delivered(y[0] if one else y, out)


def _weights_of(scores, mask, taken):
    """Makes scores the weights of their keys, in place: a pass each for the masks and the softmax."""
    if mask is not None:
        scores += mask
    if taken is not None:
        np.copyto(scores, -np.inf, where=~taken)
    nothing = None if mask is taken is None else (scores == -np.inf).all(-1)
    _core.softmax(scores, scores.ndim - 1, False, scores)
    if nothing is not None:
        scores[nothing] = 0


def _step(*given):
    """One step of a network by itself."""
    program = _core.Program()
    program.append(*given)
    program.run(())


def _delivered(y, out):
    if out is None:
        return y
    out[...] = y
    return out


@options_by_name
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
) -> Array:
    """:func:`fusedops.conv2d`, unfused."""
    layer = Conv2d(
        w,
        bias,
        bn,
        activation=activation,
        stride=stride,
        padding=padding,
        dilation=dilation,
        groups=groups,
        layout=layout,
        algorithm=algorithm,
        fold_bn=fold_bn,
    )
    return layer(x, residual, out)


@options_by_name
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
) -> Array:
    """:func:`fusedops.conv_bn_relu`, unfused."""
    return conv2d(
        x,
        w,
        bias=bias,
        bn=bn,
        residual=residual,
        activation="relu",
        stride=stride,
        padding=padding,
        dilation=dilation,
        groups=groups,
        layout=layout,
        algorithm=algorithm,
        out=out,
        fold_bn=fold_bn,
    )


@options_by_name
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
) -> Array:
    """:func:`fusedops.depthwise_conv2d`, unfused."""
    x, w, channels = functional.depthwise_operands(x, w, layout)
    return conv2d(
        x,
        w,
        bias=bias,
        bn=bn,
        residual=residual,
        activation=activation,
        stride=stride,
        padding=padding,
        dilation=dilation,
        groups=channels,
        layout=layout,
        out=out,
        fold_bn=fold_bn,
    )


@options_by_name
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
) -> Array:
    """:func:`fusedops.depthwise_conv_bn_relu`, unfused."""
    return depthwise_conv2d(
        x,
        w,
        bias=bias,
        bn=bn,
        residual=residual,
        activation="relu",
        stride=stride,
        padding=padding,
        dilation=dilation,
        layout=layout,
        out=out,
        fold_bn=fold_bn,
    )


@options_by_name
def linear(
    x: Input,
    w: Input,
    bias: Input | None = None,
    *,
    residual: Input | None = None,
    activation: Activation = None,
    out: Array | None = None,
    fold_bn: bool = False,
) -> Array:
    """:func:`fusedops.linear`, unfused."""
    return Linear(w, bias, activation=activation, fold_bn=fold_bn)(x, residual, out)


@options_by_name
def gemm(
    a: Input,
    b: Input,
    *,
    bias: Input | None = None,
    residual: Input | None = None,
    activation: Activation = None,
    out: Array | None = None,
    fold_bn: bool = False,
) -> Array:
    """:func:`fusedops.gemm`, unfused."""
    a, b = functional.gemm_operands(a, b)
    return linear(a, b.T, bias, residual=residual, activation=activation, out=out, fold_bn=fold_bn)


class _UnfusedCell:
    """Two products, their biases, then the gates and the new state, each step a pass over memory."""

    def __init__(
        self, kind, w_ih, w_hh, b_ih, b_hh, w_hr=None, peephole=None, *, clip=None, precision="float32", fold_bn=False
    ):
        self._rounds = layers.multiplies(precision)
        self._weights = recurrent._weights(kind, w_ih, w_hh, b_ih, b_hh, w_hr, peephole)
        w_ih, w_hh, b_ih, b_hh, w_hr, self._peephole = self._weights
        self._inputs, self._outputs = w_ih.shape[1], w_hh.shape[1]
        self._hidden = self._outputs if w_hr is None else w_hr.shape[1]
        self._of_x, self._of_h = (self._affine(w, b, fold_bn) for w, b in ((w_ih, b_ih), (w_hh, b_hh)))
        self._project = None if w_hr is None else self._affine(w_hr, None, True)
        self._clip = None if clip is None else activations.parse(("clip", -recurrent._clip(clip), clip))

    _step: Callable[..., Any]  # of its kind

    def _widths(self):
        """Of the states."""
        return (self._outputs,)

    def __call__(self, x, *states):
        """The new states for an x (batch, inputs) or (inputs,); ``_step`` writes over its first argument."""
        x = _core.as_input(x, "x", (1, 2))
        if x.shape[-1] != self._inputs:
            raise ValueError(f"x has shape {x.shape}, but w_ih has {self._inputs} columns")
        states = [_state(s, name, (*x.shape[:-1], width)) for s, name, width in zip(states, "hc", self._widths())]
        if x.ndim == 2:
            return self._step(self._of_x(x), *states)
        return [s[0] for s in self._step(self._of_x(x[np.newaxis]), *(s[np.newaxis] for s in states))]

    def _affine(self, w, bias, folded):
        """``w x + bias`` as a function of x, with the bias in the kernel or as a pass of its own."""
        layer = layers.Linear(rounded(w) if self._rounds else w, bias if folded else None)
        product = (lambda x: layer(rounded(x))) if self._rounds else layer
        if folded or bias is None:
            return product

        def affine(x):
            y = product(x)
            _core.pointwise(y, y, shift=bias)
            return y

        return affine

    def _apply(self, gate, activation):
        """A gate's function, after the clip where there is one."""
        if self._clip is not None:
            _core.pointwise(gate, gate, activation=self._clip)
        _core.pointwise(gate, gate, activation=activation)


def _state(state, name, shape):
    state = _core.as_input(state, name)
    if state.shape != shape:
        raise ValueError(f"{name} has shape {state.shape}, but x needs one of shape {shape}")
    return np.ascontiguousarray(state)


def _written(y, out):
    """y, in `out` where that is given."""
    if out is None:
        return y
    _core.checked_out(out, y.shape)[...] = y
    return out


class RNNCell(_UnfusedCell):
    """:class:`fusedops.RNNCell`, unfused."""

    def __init__(
        self,
        w_ih: Input,
        w_hh: Input,
        b_ih: Input | None = None,
        b_hh: Input | None = None,
        *,
        activation: Activation = "tanh",
        clip: float | None = None,
        precision: Precision = "float32",
        fold_bn: bool = False,
    ) -> None:
        super().__init__("RNN", w_ih, w_hh, b_ih, b_hh, clip=clip, precision=precision, fold_bn=fold_bn)
        self._activation = recurrent._activation(activation)

    def _step(self, of_x, h):
        _core.pointwise(of_x, of_x, residual=self._of_h(h))
        self._apply(of_x, self._activation)
        return (of_x,)

    def __call__(self, x: Input, h: Input, out: Array | None = None) -> Array:
        return _written(super().__call__(x, h)[0], out)


class LSTMCell(_UnfusedCell):
    """:class:`fusedops.LSTMCell`, unfused."""

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
        precision: Precision = "float32",
        fold_bn: bool = False,
    ) -> None:
        options = dict(clip=clip, precision=precision, fold_bn=fold_bn)
        super().__init__("LSTM", w_ih, w_hh, b_ih, b_hh, w_hr, peephole, **options)
        _, (self._of_new, self._of_gates, self._of_out) = recurrent._functions("LSTM", activations)

    def _widths(self):
        return self._outputs, self._hidden

    def _step(self, of_x, h, c):
        n = self._hidden
        _core.pointwise(of_x, of_x, residual=self._of_h(h))
        i, f, g, o = of_x[:, :n], of_x[:, n : 2 * n], of_x[:, 2 * n : 3 * n], of_x[:, 3 * n :]
        self._peep(i, c, 0)
        self._peep(f, c, 1)
        self._apply(of_x[:, : 2 * n], self._of_gates)
        self._apply(g, self._of_new)
        c_new, h_new = np.empty_like(c), np.empty_like(c)
        _core.pointwise(f, c_new, factor=c)
        _core.pointwise(i, i, factor=g)
        _core.pointwise(c_new, c_new, residual=i)
        self._peep(o, c_new, 2)
        self._apply(o, self._of_gates)
        _core.pointwise(c_new, h_new, activation=self._of_out)
        _core.pointwise(h_new, h_new, factor=o)
        return h_new if self._project is None else self._project(h_new), c_new

    def _peep(self, gate, c, which):
        if self._peephole is not None:
            _core.pointwise(c, gate, scale=self._peephole[which], residual=gate)

    def __call__(self, x: Input, h: Input, c: Input, out: tuple[Array, Array] | None = None) -> tuple[Array, Array]:
        if out is not None:
            out = _core.as_pair(out, "out")
            _core.disjoint(
                *(_core.checked_out(a, np.asarray(state).shape) for a, state in zip(out, (h, c), strict=True))
            )
        return tuple(map(_written, super().__call__(x, h, c), (None, None) if out is None else out))


class GRUCell(_UnfusedCell):
    """:class:`fusedops.GRUCell`, unfused."""

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
        precision: Precision = "float32",
        fold_bn: bool = False,
    ) -> None:
        super().__init__("GRU", w_ih, w_hh, b_ih, b_hh, clip=clip, precision=precision, fold_bn=fold_bn)
        _, (self._of_new, self._of_gates, _) = recurrent._functions("GRU", activations)
        self._reset_after = reset_after
        if not reset_after:  # n waits for r: its rows are a product of their own
            w, b, cut = self._weights[1], self._weights[3], 2 * self._hidden
            self._of_h = self._affine(w[:cut], None if b is None else b[:cut], fold_bn)
            self._of_rh = self._affine(w[cut:], None if b is None else b[cut:], fold_bn)
        self._minus = np.full(self._hidden, -1, np.float32)

    def _step(self, of_x, h):
        cut, of_h = 2 * self._hidden, self._of_h(h)
        rz, n = of_x[:, :cut], of_x[:, cut:]
        _core.pointwise(rz, rz, residual=of_h[:, :cut])
        self._apply(rz, self._of_gates)
        r, z = rz[:, : self._hidden], rz[:, self._hidden :]
        if self._reset_after:
            inner = of_h[:, cut:]
            _core.pointwise(inner, inner, factor=r)
        else:
            _core.pointwise(r, r, factor=h)
            inner = self._of_rh(r)
        _core.pointwise(n, n, residual=inner)
        self._apply(n, self._of_new)
        y = np.empty_like(h)  # n + z (h - n)
        _core.pointwise(n, y, scale=self._minus, residual=h)
        _core.pointwise(y, y, factor=z)
        _core.pointwise(y, y, residual=n)
        return (y,)

    def __call__(self, x: Input, h: Input, out: Array | None = None) -> Array:
        return _written(super().__call__(x, h)[0], out)


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
) -> Array:
    """:func:`fusedops.rnn_cell`, unfused."""
    return RNNCell(w_ih, w_hh, b_ih, b_hh, activation=activation, fold_bn=fold_bn)(x, h, out)


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
) -> tuple[Array, Array]:
    """:func:`fusedops.lstm_cell`, unfused."""
    return LSTMCell(w_ih, w_hh, b_ih, b_hh, fold_bn=fold_bn)(x, h, c, out)


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
) -> Array:
    """:func:`fusedops.gru_cell`, unfused."""
    return GRUCell(w_ih, w_hh, b_ih, b_hh, reset_after=reset_after, fold_bn=fold_bn)(x, h, out)


class _Sequence:
    """Layers of unfused cells: the share of x in all steps as one product, then step by step."""

    _cell: type[_UnfusedCell]

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
        **options,
    ) -> None:
        weights = dict(w_ih=w_ih, w_hh=w_hh, b_ih=b_ih, b_hh=b_hh)
        weights.update((name, options.pop(name)) for name in ("w_hr", "peephole") if name in options)
        self._cells = [
            self._cell(**each, fold_bn=fold_bn, **options)
            for each in recurrent._each_layer(num_layers, bidirectional, **weights)
        ]
        shapes = [tuple(w.shape for w in cell._weights[:2]) for cell in self._cells]
        self._directions = recurrent._directions(shapes, bidirectional, reverse)
        self._reverse, self._batch_first = reverse, batch_first

    def __call__(
        self, x: Input, state: Any = None, lengths: Input | None = None, out: Array | None = None
    ) -> tuple[Array, Any]:
        cells, inputs = self._cells, self._cells[0]._inputs
        x = _core.as_input(x, "x", (2, 3))
        if x.shape[-1] != inputs:
            order = "batch, steps" if self._batch_first else "steps, batch"
            raise ValueError(
                f"x has shape {x.shape}, but w_ih has {inputs} columns: x must be ({order}, {inputs}) or (steps, "
                f"{inputs})"
            )
        unbatched = x.ndim == 2
        y = x[:, np.newaxis] if unbatched else x.swapaxes(0, 1) if self._batch_first else x
        lengths = np.full(y.shape[1], len(y)) if lengths is None else _core.as_lengths(lengths, *y.shape[:2])
        states = _initial(cells, state, y.shape[1], unbatched)
        for first in range(0, len(cells), self._directions):
            both = []
            for k in range(first, first + self._directions):
                of_step, states[k] = _steps(cells[k], y, states[k], self._reverse or k > first, lengths)
                both.append(of_step)
            y = np.concatenate(both, axis=-1)
        last = [np.stack(s) for s in zip(*states)]
        if unbatched:
            y, last = y[:, 0], [s[:, 0] for s in last]
        elif self._batch_first:
            y = y.swapaxes(0, 1)
        return _written(y, out), last[0] if len(last) == 1 else tuple(last)


class RNN(_Sequence):
    """:class:`fusedops.RNN`, unfused."""

    _cell = RNNCell


class LSTM(_Sequence):
    """:class:`fusedops.LSTM`, unfused."""

    _cell = LSTMCell


class GRU(_Sequence):
    """:class:`fusedops.GRU`, unfused."""

    _cell = GRUCell


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
    **options,
) -> tuple[Array, Array]:
    """:func:`fusedops.rnn`, unfused."""
    return RNN(w_ih, w_hh, b_ih, b_hh, fold_bn=fold_bn, **options)(x, state, lengths, out)


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
    **options,
) -> tuple[Array, tuple[Array, Array]]:
    """:func:`fusedops.lstm`, unfused."""
    return LSTM(w_ih, w_hh, b_ih, b_hh, fold_bn=fold_bn, **options)(x, state, lengths, out)


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
    **options,
) -> tuple[Array, Array]:
    """:func:`fusedops.gru`, unfused."""
    return GRU(w_ih, w_hh, b_ih, b_hh, fold_bn=fold_bn, **options)(x, state, lengths, out)


def _initial(cells, state, batch, unbatched):
    """For each cell its states, (batch, width) each."""
    widths = cells[0]._widths()
    if state is None:
        return [[np.zeros((batch, width), np.float32) for width in widths] for _ in cells]
    given = _core.as_pair(state, "state") if len(widths) == 2 else (state,)
    shapes = [(len(cells), width) if unbatched else (len(cells), batch, width) for width in widths]
    given = [
        _state(s, name, shape).reshape(len(cells), batch, shape[-1])
        for s, name, shape in zip(given, "hc"[: len(widths)], shapes, strict=True)
    ]
    return [[s[k] for s in given] for k in range(len(cells))]


def _steps(cell, x, states, backwards, lengths):
    """One cell over x: (its outputs, the last states). Beyond a row's length its output is 0 and its states stay."""
    steps, batch, inputs = x.shape
    of_x = cell._of_x(x.reshape(steps * batch, inputs)).reshape(steps, batch, cell._weights[0].shape[0])
    y = np.zeros((steps, batch, cell._outputs), np.float32)
    for t in reversed(range(steps)) if backwards else range(steps):
        new, runs = cell._step(of_x[t], *states), t < lengths
        states = new if runs.all() else [np.where(runs[:, np.newaxis], n, s) for n, s in zip(new, states, strict=True)]
        y[t, runs] = states[0][runs]
    return y, states


def _kernels(**parts):
    """The kernels of a block's parts, in which the fused block finds what does not fit; there may be no expansion."""
    for name, part in parts.items():
        if not isinstance(part, Conv2d) and (name != "expand" or part is not None):
            raise TypeError(f"{name} must be a reference.Conv2d, not {part!r}")
    return [None if part is None else part._layer for part in parts.values()]


class DepthwiseSeparable:
    """:class:`fusedops.DepthwiseSeparable`, unfused: two unfused layers one after the other."""

    def __init__(self, depthwise: Conv2d, pointwise: Conv2d) -> None:
        layers.DepthwiseSeparable(*_kernels(depthwise=depthwise, pointwise=pointwise))
        self._parts = depthwise, pointwise

    def __call__(self, x: Input, residual: Input | None = None, out: Array | None = None) -> Array:
        depthwise, pointwise = self._parts
        return pointwise(depthwise(x), residual, out)


class InvertedResidual:
    """:class:`fusedops.InvertedResidual`, unfused: three unfused layers one after the other; `expand` may be None."""

    def __init__(self, expand: Conv2d | None, depthwise: Conv2d, project: Conv2d, *, residual: bool = True) -> None:
        layers.InvertedResidual(*_kernels(expand=expand, depthwise=depthwise, project=project))
        self._parts, self._residual = (expand, depthwise, project), residual

    def __call__(self, x: Input, out: Array | None = None) -> Array:
        expand, depthwise, project = self._parts
        hidden = depthwise(x if expand is None else expand(x))
        added = self._residual and project._layer.output_shape(hidden.shape) == np.asarray(x).shape
        return project(hidden, x if added else None, out)


# ---- int8: float32 between a dequantised x and a quantised y ---------------------------------------------------


class _Requantized:
    """An unfused float32 layer of dequantised weights, with passes that make floats of bytes and bytes of floats."""

    def __init__(self, kind, fused, **options):
        """fused: the layer in int8, whose checks and weights these are."""
        (w, bias), given = fused._arguments
        self._x_q, self._residual_q, self._y_q = given["x_q"], given["residual_q"], given["y_q"]
        self._layer = kind(quantized.dequantize(w, given["w_q"]), bias, activation=given["activation"], **options)

    def __call__(self, x: Input, residual: Input | None = None, out: NDArray[Any] | None = None) -> NDArray[Any]:
        if self._x_q is None:
            floats = _by_rows(_core.as_input(x, "x"))
        else:
            floats = quantized.dequantize(x, self._x_q)
        if residual is not None and self._residual_q is not None:
            residual = quantized.dequantize(residual, self._residual_q)
        if self._y_q is None:
            return self._layer(floats, residual, out)
        dtype = np.uint8 if self._x_q is None else _core.as_bytes(x, "x", "a layer with x_q").dtype
        return quantized.quantize(self._layer(floats, residual), self._y_q, dtype, out=out)


def _by_rows(x):
    """Each row through the bytes of its own range."""
    rows = x.reshape(-1, x.shape[-1]) if x.size else x.reshape(0, 1)
    least, most = np.minimum(rows.min(1, initial=0), 0), np.maximum(rows.max(1, initial=0), 0)
    scale = np.maximum((most - least) / np.float32(255), np.finfo(np.float32).tiny)
    q = quantized.Quantization(scale, np.clip(np.rint(-least / scale), 0, 255).astype(np.int32))
    return quantized.dequantize(quantized.quantize(rows, q), q).reshape(x.shape)


class QLinear(_Requantized):
    """:class:`fusedops.QLinear`, unfused."""

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
    ) -> None:
        super().__init__(
            Linear,
            quantized.QLinear(w, bias, bn, x_q=x_q, w_q=w_q, y_q=y_q, residual_q=residual_q, activation=activation),
        )


class QConv2d(_Requantized):
    """:class:`fusedops.QConv2d`, unfused."""

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
    ) -> None:
        options: dict[str, Any] = dict(stride=stride, padding=padding, dilation=dilation, groups=groups, layout=layout)
        super().__init__(
            Conv2d,
            quantized.QConv2d(
                w, bias, bn, x_q=x_q, w_q=w_q, y_q=y_q, residual_q=residual_q, activation=activation, **options
            ),
            **options,
        )


@options_by_name
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
) -> NDArray[Any]:
    """:func:`fusedops.qlinear`, unfused: dequantised, computed in float32, activated and quantised, each a pass."""
    return QLinear(w, bias, x_q=x_q, w_q=w_q, y_q=y_q, residual_q=residual_q, activation=activation)(x, residual, out)


@options_by_name
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
) -> NDArray[Any]:
    """:func:`fusedops.qconv2d`, unfused: dequantised, computed in float32, activated and quantised, each a pass."""
    layer = QConv2d(
        w,
        bias,
        x_q=x_q,
        w_q=w_q,
        y_q=y_q,
        residual_q=residual_q,
        activation=activation,
        stride=stride,
        padding=padding,
        dilation=dilation,
        groups=groups,
        layout=layout,
    )
    return layer(x, residual, out)
