"""Convolutions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .. import _core, activations
from .._internal.arguments import bias_of, checked_precision, integer, one_of, pair_of, warn, windows
from ..batchnorm import scale_and_bias
from .layer import Layer, kept_activation, shown_precision, storage_of

if TYPE_CHECKING:
    from typing import Any

    from .._types import Activation, Algorithm, Input, Ints, Layout, Padding, Padding1d, Precision
    from ..batchnorm import BatchNorm


ALGORITHMS: dict[str, int] = _core.ALGORITHMS
LARGEST_SIDE = 7  # of a kernel in use: a longer one of 3 rows, from 3 channels to 3, is taken for 3x3 in another order


def _winograd_applies(w_shape, stride, dilation, groups):
    return (
        w_shape[2:] == (3, 3)
        and (stride == (1, 1) or stride == (2, 2) and dilation == (1, 1))
        and (w_shape[1] > 1 or groups == 1)
    )


def _winograd1d_applies(w_shape, stride, dilation, groups):
    return stride[0] < w_shape[2] <= 16 and dilation[0] == 1 and (w_shape[1] > 1 or groups == 1)


def _check_algorithm(algorithm, w, stride, padding, dilation, groups, precision):
    """An error where an algorithm is none, or not one for such a convolution."""
    if one_of(algorithm, "algorithm", ALGORITHMS) in ("auto", "direct"):
        return
    if precision != "float32":
        raise ValueError(
            f"algorithm={algorithm!r} is one of float32, but precision is {precision!r}: use algorithm='auto'"
        )
    if w.dtype == np.float16:
        raise ValueError(
            f"algorithm={algorithm!r} computes other weights, but those of float16 stay as they are: "
            "use algorithm='direct', or pass w.astype(np.float32)"
        )
    needs = {
        "winograd": (
            _winograd_applies(w.shape, stride, dilation, groups),
            "a 3x3 kernel, stride 1, or 2 without dilation, and not depthwise",
        ),
        "winograd1d": (
            _winograd1d_applies(w.shape, stride, dilation, groups),
            "a kernel higher than its stride, of at most 16 rows, without dilation and not depthwise",
        ),
    }
    applies, what = needs.get(algorithm, (True, ""))
    if not applies:
        raise ValueError(
            f"algorithm={algorithm!r} needs {what}, not w {w.shape}, stride {stride}, padding {padding!r}, "
            f"dilation {dilation}, groups={groups}"
        )


def _warn_of_order(w, groups):
    """Warns of weights that fit by chance in TensorFlow's order."""
    if w.shape[:3] == (3, 3, 3) and w.shape[3] > LARGEST_SIDE and groups == 1:
        warn(
            f"w has shape {w.shape}, which is (oc, ic/groups, kh, kw): a kernel of 3 x {w.shape[3]} that makes 3 "
            f"channels of 3. If it is (kh, kw, ic, oc), as TensorFlow has it, pass w.transpose(3, 2, 0, 1)"
        )


class Conv2d(Layer, _core.Conv2dPlan):
    """A 2-D convolution, ``y = activation(batch_norm(conv(x, w) + bias) + residual)``, folded and packed once.

    Parameters
    ----------
    w : ndarray, float32 or float16, (oc, ic/groups, kh, kw)
        Weights, in this order for both layouts. Copied. float16 stays so, which is half of the memory: each call widens
        them and takes the direct algorithm. With `bn`, and where each group has one input channel, they become float32.
    bias : ndarray, float32 (or as `w`), (oc,), optional
    bn : BatchNorm, optional
        Folded into `w` and `bias` here.
    activation, stride, padding, dilation, groups, layout, algorithm
        See :func:`fusedops.conv2d`.
    precision : "float32" or "bfloat16"
        Of the operands, as :class:`Linear` has it. With bfloat16 `algorithm` is "auto" or "direct", which are one, and
        depthwise convolutions multiply the rounded numbers in float32.

    Raises
    ------
    TypeError
        An array is neither float32 nor, of `w` and `bias`, float16, or an option has the wrong type.
    ValueError
        Shapes that do not fit, or an unknown name.

    Notes
    -----
    ``layer(x, residual=None, out=None)`` takes x (n, ic, ih, iw), adds `residual` before the activation, and returns
    y (n, oc, oh, ow): `out` where it is given; with ``layout="NHWC"`` all three have their channels last.
    ``layer.output_shape(x.shape)`` is y's shape, and ``layer.kernel(x.shape)`` the name of the kernel that serves it
    with the bytes of its scratch memory. A layer may be called from many threads, copied and pickled.

    Examples
    --------
    >>> import numpy as np, fusedops as fo
    >>> layer = fo.Conv2d(np.ones((1, 1, 3, 3), np.float32), padding=1)
    >>> layer(np.ones((1, 1, 3, 3), np.float32))[0, 0]
    array([[4., 6., 4.],
           [6., 9., 6.],
           [4., 6., 4.]], dtype=float32)
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
        dilation: Ints = 1,
        groups: int = 1,
        layout: Layout = "NCHW",
        algorithm: Algorithm = "auto",
        precision: Precision = "float32",
    ) -> None:
        w = _core.as_weights(w, "w", 4, None)
        oc = w.shape[0]
        stride, zeros, dilation, groups, nhwc = windows(w, stride, padding, dilation, groups, layout)
        checked_precision(precision)
        _warn_of_order(w, groups)
        bias = _core.widened(bias, "bias", w)
        if w.dtype == np.float16 and (bn is not None or w.shape[1] == 1 < groups) and precision == "float32":
            w = w.astype(np.float32)
        _check_algorithm(algorithm, w, stride, zeros, dilation, groups, precision)
        parsed = activations.parse(activation, oc)
        bias, scale = bias_of(bias, oc), None
        if bn is not None:
            scale, bias = scale_and_bias(bias, bn, oc)
        self._pack(
            np.ascontiguousarray(w),
            scale,
            bias,
            parsed,
            stride,
            zeros,
            dilation,
            groups,
            nhwc,
            ALGORITHMS[algorithm],
            precision,
        )
        self._options = dict(
            activation=kept_activation(activation, parsed),
            stride=stride,
            padding=padding if isinstance(padding, (int, str)) else zeros,
            dilation=dilation,
            groups=groups,
            layout=layout,
            algorithm=algorithm,
            precision=precision,
        )

    @property
    def _arguments(self):
        return self._weights(), self._options

    def __repr__(self):
        shape, options = self._weights_shape(), self._options
        oc, icg, kh, kw = shape
        kernel = " or ".join(self._algorithms())  # as the size of x has it: self.kernel(x.shape)
        if options["algorithm"] != "auto" and kernel != "depthwise":
            kernel = options["algorithm"]
        usual = dict(stride=(1, 1), padding=0, dilation=(1, 1), groups=1, layout="NCHW", algorithm="auto")
        changed = "".join(f", {k}={options[k]!r}" for k, v in usual.items() if options[k] != v)
        return (
            f"Conv2d({icg * options['groups']} -> {oc}, {kh}x{kw}, {storage_of(self._dtype())}"
            f"bias={self._has_bias()}, "
            f"activation={activations.described(options['activation'])}{changed}{shown_precision(options)}, "
            f"kernel='{self.isa} {kernel}')"
        )


class _Sequences(Layer, _core.RowPlan):
    """A layer of sequences: `_layer` of images of one row, which is the axis that sequences lack."""

    _plain: Any

    def _set(self, layer: Any) -> None:
        self._layer, self._plain = layer, None
        self._over(layer, 1 if layer._arguments[1]["layout"] == "NHWC" else 2)

    def _weights_shape(self):
        first, second, _, k = self._layer._weights_shape()
        return first, second, k

    def stream(self, batch: int = 1) -> _core.ConvolutionStream:
        """The layer over a sequence that comes frame by frame, or in chunks.

        Its outputs have the bits of the whole sequence at once.

        Parameters
        ----------
        batch : int
            Sequences side by side.

        Returns
        -------
        ConvolutionStream
            ``.step(x)`` takes the next frames and returns the outputs that they complete, ``.flush()`` those that the
            end completes; ``.reset()`` goes back to the beginning; ``.state`` is a copy of what is kept, and may be
            assigned to.

        Raises
        ------
        ValueError
            The padding follows from the length of the sequence, or frames are left out between kernels.

        Examples
        --------
        >>> import numpy as np, fusedops as fo
        >>> layer = fo.Conv1d(np.ones((1, 1, 2), np.float32), padding=1)
        >>> stream = layer.stream()
        >>> stream.step(np.float32([[[1, 2]]])), stream.step(np.float32([[[3]]])), stream.flush()
        (array([[[1., 3.]]], dtype=float32), array([[[5.]]], dtype=float32), array([[[3.]]], dtype=float32))
        """
        return _core.ConvolutionStream(self, integer(batch, "batch"))


class Conv1d(_Sequences):
    """A 1-D convolution, ``y = activation(batch_norm(conv(x, w) + bias) + residual)``, folded and packed once.

    Parameters
    ----------
    w : ndarray, float32 or float16, (oc, ic/groups, k)
        Copied. See :class:`Conv2d` for float16.
    bias : ndarray, float32 (or as `w`), (oc,), optional
    bn : BatchNorm, optional
        Folded into `w` and `bias` here.
    activation, stride, padding, dilation, groups, layout, algorithm
        See :func:`fusedops.conv1d`.
    precision : "float32" or "bfloat16"
        See :class:`Conv2d`.

    Raises
    ------
    TypeError
        An array is not float32, or an option has the wrong type.
    ValueError
        Shapes that do not fit, or an unknown name.

    Notes
    -----
    ``layer(x, residual=None, out=None)`` takes x (n, ic, l), adds `residual` before the activation, and returns y (n,
    oc, ol): `out` where it is given; with ``layout="NHWC"`` all three have their channels last. It is a :class:`Conv2d`
    of images of one row. A layer may be called from many threads, copied and pickled.

    Examples
    --------
    >>> import numpy as np, fusedops as fo
    >>> fo.Conv1d(np.ones((1, 1, 3), np.float32), padding=1)(np.ones((1, 1, 4), np.float32))
    array([[[2., 3., 3., 2.]]], dtype=float32)
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
        dilation: int = 1,
        groups: int = 1,
        layout: Layout = "NCHW",
        algorithm: Algorithm = "auto",
        precision: Precision = "float32",
    ) -> None:
        w = _core.as_weights(w, "w", 3, None)
        stride, dilation = integer(stride, "stride"), integer(dilation, "dilation")
        if not isinstance(padding, str):
            padding = (0, 0), pair_of(padding, "padding", 0, "an int, a pair (before, after), 'same' or 'valid'")
        self._set(
            Conv2d(
                w[:, :, np.newaxis],
                bias,
                bn,
                activation=activation,
                stride=(1, stride),
                padding=padding,
                dilation=(1, dilation),
                groups=groups,
                layout=layout,
                algorithm=algorithm,
                precision=precision,
            )
        )
        self._options = dict(
            self._layer._options,
            stride=stride,
            dilation=dilation,
            padding=padding if isinstance(padding, str) else padding[1],
        )

    @property
    def _arguments(self):
        w, bias = self._layer._weights()
        return (w[:, :, 0], bias), self._options

    def memory(self) -> dict[str, int]:
        """The bytes that the layer keeps of its weights, by form: see :meth:`Conv2d.memory`.

        Returns
        -------
        dict of str to int

        Examples
        --------
        >>> import numpy as np, fusedops as fo
        >>> fo.Conv1d(np.ones((8, 4, 3), np.float32)).memory()
        {'weights': 384}
        """
        return self._layer.memory()

    def _windows(self):
        """The layer without padding, which is made once, and which frames its outputs need."""
        (w, bias), options = self._arguments
        if self._plain is None:
            self._plain = Conv1d(w, bias, **options | dict(padding=0, algorithm="direct"))
        span = (w.shape[2] - 1) * options["dilation"] + 1
        return self._plain, _core.Windows(options["stride"], span, options["padding"])

    def __repr__(self):
        oc, icg, k = self._weights_shape()
        usual = dict(stride=1, padding=(0, 0), dilation=1, groups=1, layout="NCHW", algorithm="auto")
        options = self._options
        changed = "".join(f", {name}={options[name]!r}" for name, v in usual.items() if options[name] != v)
        return (
            f"Conv1d({icg * options['groups']} -> {oc}, {k}, {storage_of(self._layer._dtype())}"
            f"bias={self._layer._has_bias()}, "
            f"activation={activations.described(options['activation'])}{changed}{shown_precision(options)}, "
            f"kernel='{self._layer.isa} {'gemm' if options['precision'] == 'bfloat16' else 'direct'}')"
        )
