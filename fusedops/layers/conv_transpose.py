"""Transposed convolutions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .. import _core, activations
from .._internal.arguments import LAYOUTS, bias_of, checked_precision, integer, one_of, padding_of, pair_of
from ..batchnorm import scale_and_bias
from .conv import _Sequences
from .layer import Layer, kept_activation, shown_precision

if TYPE_CHECKING:
    from .._types import Activation, Input, Ints, Layout, Padding, Padding1d, Precision
    from ..batchnorm import BatchNorm


def spreading(w, groups, form):
    """The weights of a transposed convolution, of as many axes as `form` names, and its groups."""
    w, groups = _core.as_input(w, "w", form.count(",") + 1), integer(groups, "groups")
    if 0 in w.shape or w.shape[0] % groups:
        raise ValueError(
            f"w has shape {w.shape}, but must be {form} with at least one of each; groups={groups} must divide ic"
        )
    return w, groups


def fold_transposed(w, bias, bn, groups):
    """Weights (ic, oc/groups, kernel...) of a transposed convolution and its bias with a batch norm after it."""
    oc = w.shape[1] * groups
    scale, bias = scale_and_bias(bias_of(bias, oc), bn, oc)
    by_output = w.reshape(groups, -1, *w.shape[1:]).swapaxes(1, 2)  # (groups, oc/groups, ic/groups, kernel...)
    folded = _core.fold_scale(np.ascontiguousarray(by_output).reshape(oc, -1), scale)
    return np.ascontiguousarray(folded.reshape(by_output.shape).swapaxes(1, 2)).reshape(w.shape), bias


class ConvTranspose2d(Layer, _core.TransposedPlan):
    """A transposed 2-D convolution, ``y = activation(batch_norm(conv_transpose(x, w) + bias) + residual)``, folded and
    packed once.

    Parameters
    ----------
    w : ndarray, float32, (ic, oc/groups, kh, kw)
        As PyTorch's ``nn.ConvTranspose2d.weight``, for both layouts. Copied.
    bias : ndarray, float32, (oc,), optional
    bn : BatchNorm, optional
        Folded into `w` and `bias` here.
    activation, stride, padding, output_padding, dilation, groups, layout
        See :func:`fusedops.conv_transpose2d`.
    precision : "float32" or "bfloat16"
        Of the operands, as :class:`Linear` has it. Groups of one input channel multiply the rounded numbers in float32.

    Raises
    ------
    TypeError
        An array is not float32, or an option has the wrong type.
    ValueError
        Shapes that do not fit, or an unknown name.

    Notes
    -----
    ``layer(x, residual=None, out=None)`` and ``layer.output_shape(x.shape)`` are those of :class:`Conv2d`.
    A layer may be called from many threads, copied and pickled.

    Examples
    --------
    >>> import numpy as np, fusedops as fo
    >>> fo.ConvTranspose2d(np.ones((1, 1, 2, 2), np.float32), stride=2)(np.array([[[[1, 2]]]], np.float32))[0, 0]
    array([[1., 1., 2., 2.],
           [1., 1., 2., 2.]], dtype=float32)
    """

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
    ) -> None:
        w, groups = spreading(w, groups, "(ic, oc/groups, kh, kw)")
        oc = w.shape[1] * groups
        stride, dilation, more = (
            pair_of(stride, "stride", 1),
            pair_of(dilation, "dilation", 1),
            pair_of(output_padding, "output_padding", 0),
        )
        if any(m >= max(s, d) for m, s, d in zip(more, stride, dilation)):
            raise ValueError(
                f"output_padding={output_padding!r} must be less than the stride {stride} or the dilation {dilation}"
            )
        zeros, parsed, bias = padding_of(padding), activations.parse(activation, oc), bias_of(bias, oc)
        if zeros == "same" and any(more):
            raise ValueError(
                f"padding='same' says how large the result is: output_padding must be 0, not {output_padding!r}"
            )
        w = np.ascontiguousarray(w)
        if bn is not None:
            w, bias = fold_transposed(w, bias, bn, groups)
        nhwc = one_of(layout, "layout", LAYOUTS) == "NHWC"
        self._pack(w, bias, parsed, stride, zeros, more, dilation, groups, nhwc, checked_precision(precision))
        self._arguments = (
            ((w if bn is not None else w.copy()), None if bias is None else bias.copy()),
            dict(
                activation=kept_activation(activation, parsed),
                stride=stride,
                padding=zeros,
                output_padding=more,
                dilation=dilation,
                groups=groups,
                layout=layout,
                precision=precision,
            ),
        )

    def __repr__(self):
        (w, bias), options = self._arguments
        usual = dict(
            stride=(1, 1), padding=((0, 0), (0, 0)), output_padding=(0, 0), dilation=(1, 1), groups=1, layout="NCHW"
        )
        changed = "".join(f", {name}={options[name]!r}" for name, v in usual.items() if options[name] != v)
        return (
            f"ConvTranspose2d({w.shape[0]} -> {w.shape[1] * options['groups']}, {w.shape[2]}x{w.shape[3]}, "
            f"bias={bias is not None}, "
            f"activation={activations.described(options['activation'])}{changed}{shown_precision(options)})"
        )


class ConvTranspose1d(_Sequences):
    """A transposed 1-D convolution, ``y = activation(batch_norm(conv_transpose(x, w) + bias) + residual)``, folded and
    packed once.

    Parameters
    ----------
    w : ndarray, float32, (ic, oc/groups, k)
        As PyTorch's ``nn.ConvTranspose1d.weight``, for both layouts. Copied.
    bias : ndarray, float32, (oc,), optional
    bn : BatchNorm, optional
        Folded into `w` and `bias` here.
    activation, stride, padding, output_padding, dilation, groups, layout
        See :func:`fusedops.conv_transpose1d`.
    precision : "float32" or "bfloat16"
        See :class:`ConvTranspose2d`.

    Raises
    ------
    TypeError
        An array is not float32, or an option has the wrong type.
    ValueError
        Shapes that do not fit, or an unknown name.

    Notes
    -----
    ``layer(x, residual=None, out=None)`` and ``layer.output_shape(x.shape)`` are those of :class:`Conv1d`. It is a
    :class:`ConvTranspose2d` of images of one row. A layer may be called from many threads, copied and pickled.

    Examples
    --------
    >>> import numpy as np, fusedops as fo
    >>> fo.ConvTranspose1d(np.ones((1, 1, 3), np.float32), stride=2)(np.array([[[1, 2]]], np.float32))
    array([[[1., 1., 3., 2., 2.]]], dtype=float32)
    """

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
    ) -> None:
        w, groups = spreading(w, groups, "(ic, oc/groups, k)")
        stride, dilation = integer(stride, "stride"), integer(dilation, "dilation")
        output_padding = integer(output_padding, "output_padding", 0)
        if output_padding >= max(stride, dilation):
            raise ValueError(
                f"output_padding={output_padding} must be less than the stride {stride} or the dilation {dilation}"
            )
        if not isinstance(padding, str):
            padding = (0, 0), pair_of(padding, "padding", 0, "an int, a pair (before, after), 'same' or 'valid'")
        self._set(
            ConvTranspose2d(
                w[:, :, np.newaxis],
                bias,
                bn,
                activation=activation,
                stride=(1, stride),
                padding=padding,
                output_padding=(0, output_padding),
                dilation=(1, dilation),
                groups=groups,
                layout=layout,
                precision=precision,
            )
        )
        self._options = dict(
            self._layer._arguments[1],
            stride=stride,
            padding=padding if isinstance(padding, str) else padding[1],
            output_padding=output_padding,
            dilation=dilation,
        )

    @property
    def _arguments(self):
        w, bias = self._layer._arguments[0]
        return (w[:, :, 0], bias), self._options

    def _windows(self):
        (w, bias), options = self._arguments
        stride, span = options["stride"], (w.shape[2] - 1) * options["dilation"] + 1
        if self._plain is None:  # each frame has all of its outputs, those between two kernels too
            more = max(options["output_padding"], stride - span)
            self._plain = ConvTranspose1d(w, bias, **options | dict(padding=0, output_padding=more))
        windows = _core.TransposedWindows(stride, span, options["padding"], options["output_padding"])
        return self._plain, windows

    def __repr__(self):
        ic, ocg, k = self._weights_shape()
        usual = dict(stride=1, padding=(0, 0), output_padding=0, dilation=1, groups=1, layout="NCHW")
        changed = "".join(f", {name}={self._options[name]!r}" for name, v in usual.items() if self._options[name] != v)
        return (
            f"ConvTranspose1d({ic} -> {ocg * self._options['groups']}, {k}, "
            f"bias={self._layer._arguments[0][1] is not None}, "
            f"activation={activations.described(self._options['activation'])}{changed}{shown_precision(self._options)})"
        )
