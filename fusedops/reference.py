"""The operations of fusedops, unfused: what fusion is compared with.

The convolution or product runs in the same kernel without its epilogue; bias, batch norm, residual and activation are passes of their
own (``_core.pointwise``: vectorised, the same threads and instruction set), each with its result in memory. The passes run in place,
which is as kind to the caches as passes can be. ``fold_bn=True`` folds batch norm and bias into the kernel, as frameworks do with a
frozen network, and keeps the residual, the activation and a cell's gates apart.
"""
import numpy as np

from . import _core, activations, functional, layers, recurrent
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


class _UnfusedCell:
    """Two products, their biases, then the gates and the new state, each step a pass over memory."""

    def __init__(self, kind, w_ih, w_hh, b_ih, b_hh, fold_bn):
        self._weights = recurrent._weights(kind, w_ih, w_hh, b_ih, b_hh)[:4]
        w_ih, w_hh, b_ih, b_hh = self._weights
        self._inputs, self._hidden = w_ih.shape[1], w_hh.shape[1]
        self._of_x, self._of_h = _affine(w_ih, b_ih, fold_bn), _affine(w_hh, b_hh, fold_bn)

    def _rows(self, x, *states):
        """x and the states as matrices, checked against one another."""
        x = _core.as_input(x, "x", (1, 2))
        if x.shape[-1] != self._inputs:
            raise ValueError(f"x has shape {x.shape}, but w_ih has {self._inputs} columns")
        arrays = [x]
        for name, state in zip("hc", states):
            state = _core.as_input(state, name)
            if state.shape != x.shape[:-1] + (self._hidden,):
                raise ValueError(f"{name} has shape {state.shape}, but x has shape {x.shape}: {name} must have shape {x.shape[:-1] + (self._hidden,)}")
            arrays.append(state)
        return arrays if x.ndim == 2 else [a[np.newaxis] for a in arrays]


def _affine(w, bias, folded):
    """``w x + bias`` as a function of x, with the bias in the kernel or as a pass of its own."""
    layer = layers.Linear(w, bias if folded else None)
    if folded or bias is None:
        return layer

    def affine(x):
        y = layer(x)
        _core.pointwise(y, y, shift=bias)
        return y

    return affine


def _result(y, like, out):
    """The new state y in the shape of the old one, or in `out`."""
    y = y.reshape(np.shape(like))
    if out is None:
        return y
    _core.checked_out(out, y.shape)[...] = y
    return out


_SIGMOID, _TANH = activations.parse("sigmoid"), activations.parse("tanh")


class RNNCell(_UnfusedCell):
    """:class:`fusedops.RNNCell`, unfused."""

    def __init__(self, w_ih, w_hh, b_ih=None, b_hh=None, *, activation="tanh", fold_bn=False):
        super().__init__("RNN", w_ih, w_hh, b_ih, b_hh, fold_bn)
        self._activation = recurrent._activation(activation)

    def __call__(self, x, h, out=None):
        xs, hs = self._rows(x, h)
        y = self._of_x(xs)
        _core.pointwise(y, y, residual=self._of_h(hs))
        _core.pointwise(y, y, activation=self._activation)
        return _result(y, h, out)


class LSTMCell(_UnfusedCell):
    """:class:`fusedops.LSTMCell`, unfused."""

    def __init__(self, w_ih, w_hh, b_ih=None, b_hh=None, *, fold_bn=False):
        super().__init__("LSTM", w_ih, w_hh, b_ih, b_hh, fold_bn)

    def __call__(self, x, h, c, out=None):
        xs, hs, cs = self._rows(x, h, c)
        h_out, c_out = (None, None) if out is None else (_core.checked_out(a, np.shape(h)) for a in out)
        n = self._hidden
        gates = self._of_x(xs)
        _core.pointwise(gates, gates, residual=self._of_h(hs))
        i, f, g, o = gates[:, :n], gates[:, n:2 * n], gates[:, 2 * n:3 * n], gates[:, 3 * n:]
        _core.pointwise(gates[:, :2 * n], gates[:, :2 * n], activation=_SIGMOID)
        _core.pointwise(g, g, activation=_TANH)
        _core.pointwise(o, o, activation=_SIGMOID)
        c_new, h_new = np.empty((len(xs), n), np.float32), np.empty((len(xs), n), np.float32)
        _core.pointwise(f, c_new, factor=np.ascontiguousarray(cs))
        _core.pointwise(i, i, factor=g)
        _core.pointwise(c_new, c_new, residual=i)
        _core.pointwise(c_new, h_new, activation=_TANH)
        _core.pointwise(h_new, h_new, factor=o)
        return _result(h_new, h, h_out), _result(c_new, c, c_out)


class GRUCell(_UnfusedCell):
    """:class:`fusedops.GRUCell`, unfused."""

    def __init__(self, w_ih, w_hh, b_ih=None, b_hh=None, *, reset_after=True, fold_bn=False):
        super().__init__("GRU", w_ih, w_hh, b_ih, b_hh, fold_bn)
        self._reset_after = reset_after
        if not reset_after:  # n waits for r: its rows are a product of their own
            _, w, _, b = self._weights
            cut = 2 * self._hidden
            self._of_h = _affine(w[:cut], None if b is None else b[:cut], fold_bn)
            self._of_rh = _affine(w[cut:], None if b is None else b[cut:], fold_bn)
        self._minus = np.full(self._hidden, -1, np.float32)

    def __call__(self, x, h, out=None):
        xs, hs = self._rows(x, h)
        hs, cut = np.ascontiguousarray(hs), 2 * self._hidden
        of_x, of_h = self._of_x(xs), self._of_h(hs)
        rz, n = of_x[:, :cut], of_x[:, cut:]
        _core.pointwise(rz, rz, residual=of_h[:, :cut])
        _core.pointwise(rz, rz, activation=_SIGMOID)
        r, z = rz[:, :self._hidden], rz[:, self._hidden:]
        if self._reset_after:
            inner = of_h[:, cut:]
            _core.pointwise(inner, inner, factor=r)
        else:
            _core.pointwise(r, r, factor=hs)
            inner = self._of_rh(r)
        _core.pointwise(n, n, residual=inner)
        _core.pointwise(n, n, activation=_TANH)
        y = np.empty_like(hs)  # n + z (h - n)
        _core.pointwise(n, y, scale=self._minus, residual=hs)
        _core.pointwise(y, y, factor=z)
        _core.pointwise(y, y, residual=n)
        return _result(y, h, out)


def rnn_cell(x, h, w_ih, w_hh, b_ih=None, b_hh=None, *, activation="tanh", out=None, fold_bn=False):
    """:func:`fusedops.rnn_cell`, unfused."""
    return RNNCell(w_ih, w_hh, b_ih, b_hh, activation=activation, fold_bn=fold_bn)(x, h, out)


def lstm_cell(x, h, c, w_ih, w_hh, b_ih=None, b_hh=None, *, out=None, fold_bn=False):
    """:func:`fusedops.lstm_cell`, unfused."""
    return LSTMCell(w_ih, w_hh, b_ih, b_hh, fold_bn=fold_bn)(x, h, c, out)


def gru_cell(x, h, w_ih, w_hh, b_ih=None, b_hh=None, *, reset_after=True, out=None, fold_bn=False):
    """:func:`fusedops.gru_cell`, unfused."""
    return GRUCell(w_ih, w_hh, b_ih, b_hh, reset_after=reset_after, fold_bn=fold_bn)(x, h, out)
