"""The operations of fusedops, unfused: what fusion is compared with.

The convolution or product runs in the same kernel without its epilogue; bias, batch norm, residual and activation are passes of their
own (``_core.pointwise``: vectorised, the same threads and instruction set), each with its result in memory. The passes run in place,
which is as kind to the caches as passes can be. ``fold_bn=True`` folds batch norm and bias into the kernel, as frameworks do with a
frozen network, and keeps the residual and the activation apart.
"""
import numpy as np

from . import _core, activations, functional, layers
from .batchnorm import fold_batch_norm, scale_and_shift


class _Unfused:
    """A kernel without epilogue, then the passes that its fused layer spares."""

    def __init__(self, kernel, channels, channels_last, bias, bn, activation, fold_bn):
        """`kernel` makes the fused layer, given its bias; `bn` is None where it has been folded."""
        bias = layers._bias(bias, channels)
        parsed = activations.parse(activation, channels)
        self._layer = kernel(bias if fold_bn else None)
        self._channels_last = channels_last
        self._before, self._after = [], []  # passes on either side of the residual
        if bias is not None and not fold_bn:
            self._before.append({"shift": bias.copy()})
        if bn is not None:
            scale, shift = scale_and_shift(bn, channels)
            self._before.append({"scale": scale.astype(np.float32), "shift": shift.astype(np.float32)})
        if activation is not None:
            self._after.append({"activation": parsed})

    def __call__(self, x, residual=None, out=None):
        if residual is not None:
            residual = _core.as_input(residual, "residual")
        direct = self._in_place(out, residual)
        y = self._layer(x, None, out if direct else None)
        if residual is not None and residual.shape != y.shape:
            raise ValueError(f"residual has shape {residual.shape}, but the result has shape {y.shape}")
        if out is None or direct:
            return self._passes(y, residual)
        _core.checked_out(out, y.shape)
        out[...] = self._passes(y, residual)
        return out

    def _in_place(self, out, residual):
        """Whether the passes can run on `out` itself: nothing that is still read, or may still be refused, depends on it."""
        return (isinstance(out, np.ndarray) and out.flags.behaved and self._matrix(out) is not None
                and (residual is None or residual.shape == out.shape and not np.may_share_memory(out, residual)))

    def _matrix(self, y):
        """y as ``(contiguous matrix, channel_rows)`` for `_core.pointwise`; None where it is empty or does not lie so."""
        if y.size and self._channels_last:
            return (y.reshape(-1, y.shape[-1]), 0) if y.flags.c_contiguous else None
        if y.size and y.ndim == 4:
            n, c, h, w = y.shape
            if y.flags.c_contiguous:
                return y.reshape(n * c, h * w), c
            if y.transpose(0, 2, 3, 1).flags.c_contiguous:
                return y.transpose(0, 2, 3, 1).reshape(n * h * w, c), 0
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


class Linear(_Unfused):
    """:class:`fusedops.Linear`, unfused."""

    def __init__(self, w, bias=None, *, activation=None, fold_bn=False):
        w = _core.as_input(w, "w", 2)
        super().__init__(lambda bias: layers.Linear(w, bias), w.shape[0], True, bias, None, activation, fold_bn)


class Conv2d(_Unfused):
    """:class:`fusedops.Conv2d`, unfused."""

    def __init__(self, w, bias=None, bn=None, *, activation=None, stride=1, padding=0, dilation=1, groups=1, layout="NCHW",
                 algorithm="auto", fold_bn=False):
        w = _core.as_input(w, "w", 4)
        if fold_bn and bn is not None:
            w, bias = fold_batch_norm(w, bias, bn)
            bn = None

        def kernel(bias):
            return layers.Conv2d(w, bias, stride=stride, padding=padding, dilation=dilation, groups=groups, layout=layout,
                                 algorithm=algorithm)

        super().__init__(kernel, w.shape[0], layout == "NHWC", bias, bn, activation, fold_bn)


def conv2d(x, w, *, bias=None, bn=None, residual=None, activation=None, stride=1, padding=0, dilation=1, groups=1,
           layout="NCHW", algorithm="auto", out=None, fold_bn=False):
    """:func:`fusedops.conv2d`, unfused."""
    layer = Conv2d(w, bias, bn, activation=activation, stride=stride, padding=padding, dilation=dilation, groups=groups,
                   layout=layout, algorithm=algorithm, fold_bn=fold_bn)
    return layer(x, residual, out)


def conv_bn_relu(x, w, bn=None, *, bias=None, residual=None, stride=1, padding=0, dilation=1, groups=1, layout="NCHW",
                 algorithm="auto", out=None, fold_bn=False):
    """:func:`fusedops.conv_bn_relu`, unfused."""
    return conv2d(x, w, bias=bias, bn=bn, residual=residual, activation="relu", stride=stride, padding=padding, dilation=dilation,
                  groups=groups, layout=layout, algorithm=algorithm, out=out, fold_bn=fold_bn)


def depthwise_conv2d(x, w, *, bias=None, bn=None, residual=None, activation=None, stride=1, padding=0, dilation=1, layout="NCHW",
                     out=None, fold_bn=False):
    """:func:`fusedops.depthwise_conv2d`, unfused."""
    x, w, channels = functional.depthwise_operands(x, w, layout)
    return conv2d(x, w, bias=bias, bn=bn, residual=residual, activation=activation, stride=stride, padding=padding, dilation=dilation,
                  groups=channels, layout=layout, out=out, fold_bn=fold_bn)


def depthwise_conv_bn_relu(x, w, bn=None, *, bias=None, residual=None, stride=1, padding=0, dilation=1, layout="NCHW", out=None,
                           fold_bn=False):
    """:func:`fusedops.depthwise_conv_bn_relu`, unfused."""
    return depthwise_conv2d(x, w, bias=bias, bn=bn, residual=residual, activation="relu", stride=stride, padding=padding,
                            dilation=dilation, layout=layout, out=out, fold_bn=fold_bn)


def linear(x, w, bias=None, *, residual=None, activation=None, out=None, fold_bn=False):
    """:func:`fusedops.linear`, unfused."""
    return Linear(w, bias, activation=activation, fold_bn=fold_bn)(x, residual, out)


def gemm(a, b, *, bias=None, residual=None, activation=None, out=None, fold_bn=False):
    """:func:`fusedops.gemm`, unfused."""
    a, b = functional.gemm_operands(a, b)
    return linear(a, b.T, bias, residual=residual, activation=activation, out=out, fold_bn=fold_bn)
