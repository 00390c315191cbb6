"""Prepared layers: batch norm folded and weights packed once, then called many times, from any thread."""

from __future__ import annotations

import sys
import warnings
from operator import index
from typing import TYPE_CHECKING

import numpy as np

from . import _core, activations
from .batchnorm import scale_and_bias
from .mapped import aligned, let_go
from .streams import ConvolutionStream, TransposedWindows, Windows

if TYPE_CHECKING:
    from typing import Any

    from ._types import Activation, Algorithm, Array, Input, Ints, Layout, Padding, Padding1d, Precision
    from .batchnorm import BatchNorm


ALGORITHMS: dict[str, int] = _core.ALGORITHMS
LAYOUTS: tuple[str, ...] = ("NCHW", "NHWC")
LARGEST_SIDE = 7  # of a kernel in use: a longer one of 3 rows, from 3 channels to 3, is taken for 3x3 in another order
# Of a kernel's side, a stride, dilation or padding: what is computed of them stays within 64 bits.
LARGEST: int = 2**31 - 1


def _bias(bias, channels):
    if bias is None:
        return None
    bias = _core.as_input(bias, "bias")
    if bias.shape != (channels,):
        raise ValueError(
            f"bias has shape {bias.shape}, but there are {channels} outputs: it must have shape ({channels},)"
        )
    return np.ascontiguousarray(bias)


PRECISIONS: tuple[str, ...] = "float32", "bfloat16"  # of the operands of products


def multiplies(precision: str) -> bool:
    """Whether a `precision` is bfloat16, or the error that says what it may be."""
    return _choice(precision, "precision", PRECISIONS) == "bfloat16"


def storage_of(dtype):
    """What a repr says of the type of weights."""
    return "" if dtype == np.float32 else f"{'float16' if dtype == np.float16 else 'bfloat16'} weights, "


def _kept(activation, parsed):
    """The activation with its own copy of what the caller may change later."""
    if parsed[3] is not None:
        return "prelu", parsed[3]
    return tuple(activation) if isinstance(activation, list) else activation


_PACKAGE = __name__.partition(".")[0]


def _warn(text):
    """Warns about the line of the user's that led here."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == _PACKAGE:
        level, frame = level + 1, frame.f_back
    warnings.warn(text, stacklevel=level)


def integer(value, name, least=1):
    """The int that `value` is, or the error that says why not."""
    try:
        value = index(value)
    except TypeError:
        raise TypeError(f"{name} must be an int, not {value!r}") from None
    if not least <= value <= LARGEST:
        raise ValueError(f"{name} must be at least {least} and below 2**31, not {value}")
    return value


def _pair(value, name, least, forms="an int or a pair of ints"):
    """An int or a pair of ints as a pair; `name`, `least` and `forms` are for the error."""
    if type(value) is int and least <= value <= LARGEST:
        return value, value
    try:
        pair = (index(value),) * 2
    except TypeError:
        try:
            pair = tuple(map(index, value))
        except TypeError:
            raise TypeError(f"{name} must be {forms}, not {value!r}") from None
    if len(pair) != 2 or min(pair) < least or max(pair) > LARGEST:
        raise ValueError(f"{name} must be {forms}, each at least {least} and below 2**31, not {value!r}")
    return pair


_PADDINGS = "an int, a pair of ints, two such pairs, 'same' or 'valid'"


def _padding(padding):
    """``((top, bottom), (left, right))``, or "same"."""
    if isinstance(padding, str):
        if padding not in ("same", "valid"):
            causal = "; a causal Conv1d has padding=((k - 1) * dilation, 0)" if padding == "causal" else ""
            raise ValueError(f"padding must be {_PADDINGS}, not {padding!r}{causal}")
        return "same" if padding == "same" else ((0, 0), (0, 0))
    if isinstance(padding, (tuple, list)) and len(padding) == 2 and all(isinstance(p, (tuple, list)) for p in padding):
        return tuple(_pair(p, "each pair of padding", 0) for p in padding)
    vertical, horizontal = _pair(padding, "padding", 0, _PADDINGS)
    return (vertical,) * 2, (horizontal,) * 2


def _choice(value, name, known):
    if not isinstance(value, str) or value not in known:
        raise ValueError(f"unknown {name} {value!r}; known are {', '.join(map(repr, known))}")
    return value


def windows(
    w: Array, stride: Ints, padding: Padding, dilation: Ints, groups: int, layout: Layout
) -> tuple[Any, Any, Any, int, bool]:
    """A convolution's options as the binding takes them, or the error that says why not; layout is True for NHWC."""
    groups = integer(groups, "groups")
    if groups > max(len(w), 1) or len(w) % groups:
        raise ValueError(f"groups={groups} must divide the {len(w)} output channels of w {w.shape}")
    if not 1 <= min(w.shape[2:]) <= max(w.shape[2:]) <= LARGEST:
        raise ValueError(
            f"w has shape {w.shape}, but a kernel has at least one row and one column, and less than 2**31 of each"
        )
    stride, dilation = _pair(stride, "stride", 1), _pair(dilation, "dilation", 1)
    return stride, _padding(padding), dilation, groups, _choice(layout, "layout", LAYOUTS) == "NHWC"


def _winograd_applies(w_shape, stride, dilation, groups):
    return (
        w_shape[2:] == (3, 3)
        and (stride == (1, 1) or stride == (2, 2) and dilation == (1, 1))
        and (w_shape[1] > 1 or groups == 1)
    )


def _winograd1d_applies(w_shape, stride, dilation, groups):
    return stride[0] < w_shape[2] <= 16 and dilation[0] == 1 and (w_shape[1] > 1 or groups == 1)


def _strassen_applies(w_shape, stride, padding, groups):
    return w_shape[2:] == (1, 1) and stride == (1, 1) and padding in ("same", ((0, 0), (0, 0))) and groups == 1


# attributes that a layer's __init__ sets
_OWN = ("_arguments", "_options", "_layer", "_layers", "_row", "_plain", "_precision", "_made_of")


class _Layer:
    """Pickling and copying: the folded weights travel, and are packed again where they arrive.

    So do the attributes that a subclass adds; its own __init__, which may take anything, does not run there.
    """

    def __getattr__(self, name):
        if name in _OWN:
            raise _core.unmade(self)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)

    def __reduce__(self):
        kind = next(c for c in type(self).__mro__ if c.__module__.startswith(f"{__package__}."))
        return _rebuild, (type(self), kind, self._arguments, self._added())

    def _added(self):
        return {k: v for k, v in vars(self).items() if k not in _OWN}

    def __copy__(self):
        return self  # a layer does not change

    def __deepcopy__(self, memo):
        return self


def _rebuild(cls, kind, arguments, added):
    layer = cls.__new__(cls)
    kind.__init__(layer, *arguments[0], **arguments[1])
    vars(layer).update(added)
    return layer


def _linear(w, bias, activation):
    """What a layer is made of, as its plan takes it; w where it is."""
    w = _core.as_weights(w, "w", 2, None, True)
    return w, _bias(_core.widened(bias, "bias", w), w.shape[0]), activations.parse(activation, w.shape[0])


class LentLinear(_core.LinearPlan):
    """A Linear for one call, whose few rows read `w` where it lies."""

    def __init__(self, w, bias=None, *, activation=None):
        self._pack(*_linear(w, bias, activation), lend=True)


class Linear(_Layer, _core.LinearPlan):
    """A fully connected layer, ``y = activation(x w^T + bias + residual)``, with `w` packed once.

    Parameters
    ----------
    w : ndarray, float32, float16 or bfloat16, (n, k)
        As PyTorch's ``nn.Linear.weight``. Copied. 16 bits stay so, which is half of the memory, and are widened where
        they are read: sums are float32, with the bits of ``w.astype(np.float32)``. bfloat16 is a dtype of that name, as
        ``ml_dtypes`` has it, or its bits with one: ``np.dtype((np.uint16, {"bfloat16": (np.uint16, 0)}))``.
    bias : ndarray, float32 (or as `w`), (n,), optional
    activation : None, str or tuple
        See :func:`fusedops.conv2d`.
    precision : "float32" or "bfloat16"
        Of the operands. With bfloat16, x and `w` are rounded to it, to nearest, halves to even; their products are
        summed in float32, and all that follows is float32. Processors with AVX512_BF16 or AMX multiply so two to
        sixteen times as fast as float32; others multiply the rounded numbers in float32.

    Raises
    ------
    TypeError
        An array is neither float32 nor, of `w` and `bias`, of 16 bits, or an option has the wrong type.
    ValueError
        Shapes that do not fit, or an unknown name.

    Notes
    -----
    ``layer(x, residual=None, out=None)`` takes x (..., k), adds `residual` (..., n) before the activation, and returns
    y (..., n): `out` where it is given. It may be called from many threads, copied and pickled.

    Examples
    --------
    >>> import numpy as np, fusedops as fo
    >>> layer = fo.Linear(np.eye(3, dtype=np.float32), activation="relu")
    >>> layer(np.array([[-1, 0, 2]], np.float32))
    array([[0., 0., 2.]], dtype=float32)
    """

    def __init__(
        self, w: Input, bias: Input | None = None, *, activation: Activation = None, precision: Precision = "float32"
    ) -> None:
        bfloat16 = multiplies(precision)
        w, bias, parsed = _linear(w, bias, activation)
        options = {"activation": _kept(activation, parsed), "precision": precision}
        self._pack(w, bias, parsed, bfloat16)
        self._options = options

    @property
    def _arguments(self):
        return self._weights(), self._options

    def __repr__(self):
        options = self._options
        return (
            f"Linear({self.k} -> {self.n}, {storage_of(self._dtype())}bias={self._has_bias()}, "
            f"activation={activations.described(options['activation'])}{_precision(options)}, "
            f"kernel='{self.isa} gemm')"
        )


class ConstantLinear(Linear):
    """A Linear of a network, whose weights nobody changes: they are kept without a copy, and may stand at odd addresses
    in a mapped file; those need no memory once they are packed."""

    def __init__(self, w, bias=None, *, activation=None, precision="float32"):
        bias = _bias(_core.widened(bias, "bias", w), w.shape[0])
        parsed = activations.parse(activation, w.shape[0])
        self._options = {"activation": _kept(activation, parsed), "precision": precision}
        rounds = multiplies(precision)
        self._pack(aligned(w) if rounds else w, bias, parsed, rounds)
        let_go(w)


class Conv2d(_Layer, _core.Conv2dPlan):
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
        _choice(algorithm, "algorithm", ALGORITHMS)
        bfloat16 = multiplies(precision)
        if bfloat16 and algorithm not in ("auto", "direct"):
            raise ValueError(
                f"algorithm={algorithm!r} is one of float32, but precision is 'bfloat16': use algorithm='auto'"
            )
        if w.shape[:3] == (3, 3, 3) and w.shape[3] > LARGEST_SIDE and groups == 1:
            _warn(
                f"w has shape {w.shape}, which is (oc, ic/groups, kh, kw): a kernel of 3 x {w.shape[3]} that makes 3 "
                f"channels of 3. If it is (kh, kw, ic, oc), as TensorFlow has it, pass w.transpose(3, 2, 0, 1)"
            )
        bias = _core.widened(bias, "bias", w)
        if w.dtype == np.float16 and (bn is not None or w.shape[1] == 1 < groups) and not bfloat16:
            w = w.astype(np.float32)
        if w.dtype == np.float16 and algorithm not in ("auto", "direct"):
            raise ValueError(
                f"algorithm={algorithm!r} computes other weights, but those of float16 stay as they are: "
                "use algorithm='direct', or pass w.astype(np.float32)"
            )
        if algorithm == "winograd" and not _winograd_applies(w.shape, stride, dilation, groups):
            raise ValueError(
                f"algorithm='winograd' needs a 3x3 kernel, stride 1, or 2 without dilation, and not depthwise, not w "
                f"{w.shape}, "
                f"stride {stride}, dilation {dilation}, groups={groups}"
            )
        if algorithm == "winograd1d" and not _winograd1d_applies(w.shape, stride, dilation, groups):
            raise ValueError(
                f"algorithm='winograd1d' needs a kernel higher than its stride, of at most 16 rows, without dilation "
                f"and not "
                f"depthwise, not w {w.shape}, stride {stride}, dilation {dilation}, groups={groups}"
            )
        if algorithm == "strassen" and not _strassen_applies(w.shape, stride, zeros, groups):
            raise ValueError(
                f"algorithm='strassen' needs a 1x1 kernel, stride 1, no padding and groups=1, not w {w.shape}, stride "
                f"{stride}, "
                f"padding {padding!r}, groups={groups}"
            )
        parsed = activations.parse(activation, oc)
        bias, scale = _bias(bias, oc), None
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
            bfloat16,
        )
        self._options = dict(
            activation=_kept(activation, parsed),
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
            f"activation={activations.described(options['activation'])}{changed}{_precision(options)}, "
            f"kernel='{self.isa} {kernel}')"
        )


def _precision(options):
    """What a repr says of the operands."""
    precision = options.get("precision", "float32")
    return "" if precision == "float32" else f", precision={precision!r}"


class _Sequences(_Layer):
    """A layer of sequences: `_layer` of images of one row, which is their axis `_row`."""

    def _weights_shape(self):
        first, second, _, k = self._layer._weights_shape()
        return first, second, k

    def stream(self, batch: int = 1) -> ConvolutionStream:
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
        return ConvolutionStream(self, integer(batch, "batch"))

    def __call__(self, x: Input, residual: Input | None = None, out: Array | None = None) -> Array:
        x = _core.as_input(x, "x")
        shape = self.output_shape(x.shape)
        if residual is not None:
            residual = _core.as_input(residual, "residual")
            if residual.shape != shape:
                raise ValueError(f"residual has shape {residual.shape}, but the result has shape {shape}")
            residual = np.expand_dims(residual, self._row)
        if out is None:
            return self._layer(np.expand_dims(x, self._row), residual).squeeze(self._row)
        self._layer(np.expand_dims(x, self._row), residual, np.expand_dims(_core.checked_out(out, shape), self._row))
        return out

    def output_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of the result for an x of this shape.

        Parameters
        ----------
        shape : tuple of int
            Of x: (n, ic, l), or (n, l, ic) with ``layout="NHWC"``.

        Returns
        -------
        tuple of int

        Raises
        ------
        TypeError, ValueError
            No shape of three ints, other channels than the layer's, a kernel longer than the padded sequence.

        Examples
        --------
        >>> import numpy as np, fusedops as fo
        >>> fo.Conv1d(np.ones((8, 3, 3), np.float32), stride=2).output_shape((1, 3, 32))
        (1, 8, 15)
        """
        w, last = self._weights_shape(), self._row == 1
        ic = self._inputs()
        if not isinstance(shape, (tuple, list)):
            raise TypeError(f"the shape of x must be a tuple of ints, not {shape!r}")
        if len(shape) != 3 or shape[2 if last else 1] != ic:
            raise ValueError(
                f"x has shape {tuple(shape)}, but w {w} with groups={self._options['groups']} needs "
                f"{f'(n, l, {ic})' if last else f'(n, {ic}, l)'}"
            )
        shape = self._layer.output_shape((*shape[: self._row], 1, *shape[self._row :]))
        return shape[: self._row] + shape[self._row + 1 :]


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
            padding = (0, 0), _pair(padding, "padding", 0, "an int, a pair (before, after), 'same' or 'valid'")
        self._layer = Conv2d(
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
        self._row = 1 if layout == "NHWC" else 2
        self._plain: Conv1d | None = None
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

    def _inputs(self):
        return self._weights_shape()[1] * self._options["groups"]

    def _windows(self):
        """What a stream has to know; the layer without padding is made once."""
        (w, bias), options = self._arguments
        if self._plain is None:
            self._plain = Conv1d(w, bias, **options | dict(padding=0, algorithm="direct"))
        span = (w.shape[2] - 1) * options["dilation"] + 1
        return Windows(self._plain, w.shape[0], options["stride"], span, options["padding"])

    def __repr__(self):
        oc, icg, k = self._weights_shape()
        usual = dict(stride=1, padding=(0, 0), dilation=1, groups=1, layout="NCHW", algorithm="auto")
        changed = "".join(f", {name}={self._options[name]!r}" for name, v in usual.items() if self._options[name] != v)
        return (
            f"Conv1d({icg * self._options['groups']} -> {oc}, {k}, bias={self._layer._has_bias()}, "
            f"activation={activations.described(self._options['activation'])}{changed}{_precision(self._options)}, "
            f"kernel='{self._layer.isa} {'gemm' if self._options['precision'] == 'bfloat16' else 'direct'}')"
        )


def spreading(w, groups, form):
    """The weights of a transposed convolution, of as many axes as `form` names, and its groups."""
    w, groups = _core.as_input(w, "w", form.count(",") + 1), integer(groups, "groups")
    if 0 in w.shape or w.shape[0] % groups:
        raise ValueError(
            f"w has shape {w.shape}, but must be {form} with at least one of each; groups={groups} must divide ic"
        )
    return w, groups


def fold_transposed(w, bias, bn, groups):
    """Weights (ic, oc/groups, kernel...) of a transposed convolution and its bias with a batch norm behind it."""
    oc = w.shape[1] * groups
    scale, bias = scale_and_bias(_bias(bias, oc), bn, oc)
    by_output = w.reshape(groups, -1, *w.shape[1:]).swapaxes(1, 2)  # (groups, oc/groups, ic/groups, kernel...)
    folded = _core.fold_scale(np.ascontiguousarray(by_output).reshape(oc, -1), scale)
    return np.ascontiguousarray(folded.reshape(by_output.shape).swapaxes(1, 2)).reshape(w.shape), bias


class ConvTranspose2d(_Layer, _core.TransposedPlan):
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
            _pair(stride, "stride", 1),
            _pair(dilation, "dilation", 1),
            _pair(output_padding, "output_padding", 0),
        )
        if any(m >= max(s, d) for m, s, d in zip(more, stride, dilation)):
            raise ValueError(
                f"output_padding={output_padding!r} must be less than the stride {stride} or the dilation {dilation}"
            )
        zeros, parsed, bias = _padding(padding), activations.parse(activation, oc), _bias(bias, oc)
        if zeros == "same" and any(more):
            raise ValueError(
                f"padding='same' says how large the result is: output_padding must be 0, not {output_padding!r}"
            )
        w = np.ascontiguousarray(w)
        if bn is not None:
            w, bias = fold_transposed(w, bias, bn, groups)
        nhwc = _choice(layout, "layout", LAYOUTS) == "NHWC"
        bfloat16 = multiplies(precision)
        self._pack(w, bias, parsed, stride, zeros, more, dilation, groups, nhwc, bfloat16)
        self._arguments = (
            ((w if bn is not None else w.copy()), None if bias is None else bias.copy()),
            dict(
                activation=_kept(activation, parsed),
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
            f"activation={activations.described(options['activation'])}{changed}{_precision(options)})"
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
            padding = (0, 0), _pair(padding, "padding", 0, "an int, a pair (before, after), 'same' or 'valid'")
        self._layer = ConvTranspose2d(
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
        self._row = 1 if layout == "NHWC" else 2
        self._plain: ConvTranspose1d | None = None
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

    def _inputs(self):
        return self._weights_shape()[0]

    def _windows(self):
        (w, bias), options = self._arguments
        stride, span = options["stride"], (w.shape[2] - 1) * options["dilation"] + 1
        if self._plain is None:  # each frame has all of its outputs, those between two kernels too
            more = max(options["output_padding"], stride - span)
            self._plain = ConvTranspose1d(w, bias, **options | dict(padding=0, output_padding=more))
        outputs = w.shape[1] * options["groups"]
        return TransposedWindows(self._plain, outputs, stride, span, options["padding"], options["output_padding"])

    def __repr__(self):
        ic, ocg, k = self._weights_shape()
        usual = dict(stride=1, padding=(0, 0), output_padding=0, dilation=1, groups=1, layout="NCHW")
        changed = "".join(f", {name}={self._options[name]!r}" for name, v in usual.items() if self._options[name] != v)
        return (
            f"ConvTranspose1d({ic} -> {ocg * self._options['groups']}, {k}, "
            f"bias={self._layer._arguments[0][1] is not None}, "
            f"activation={activations.described(self._options['activation'])}{changed}{_precision(self._options)})"
        )


def _convolutions(**parts):
    """Refuses parts of a block that are none; there may be no expansion."""
    for name, part in parts.items():
        if not isinstance(part, Conv2d) and (name != "expand" or part is not None):
            raise TypeError(f"{name} must be a Conv2d, not {part!r}")


class DepthwiseSeparable(_Layer, _core.BlockPlan):
    """A depthwise convolution and the 1x1 convolution behind it, ``y = pointwise(depthwise(x))``, as one kernel.

    A tile of rows goes through both while it is in the cache; the image between them does not exist. Where that image
    would stay in the cache anyway, the two layers run one after the other, which is faster then.

    Parameters
    ----------
    depthwise : Conv2d
        One filter for each channel (``groups`` = input channels = output channels), any kernel, stride, padding and
        activation.
    pointwise : Conv2d
        1x1, stride 1, no padding, one group, any activation.

    Raises
    ------
    ValueError
        A part has another form, or the parts do not fit: channels, layout.

    Notes
    -----
    ``layer(x, residual=None, out=None)`` is that of :class:`Conv2d`; the residual is added in the pointwise part.

    References
    ----------
    .. [1] Howard et al., "MobileNets", 2017, arXiv:1704.04861

    Examples
    --------
    >>> import numpy as np, fusedops as fo
    >>> depthwise = fo.Conv2d(np.ones((2, 1, 3, 3), np.float32), padding=1, groups=2, activation="relu")
    >>> pointwise = fo.Conv2d(np.ones((4, 2, 1, 1), np.float32))
    >>> fo.DepthwiseSeparable(depthwise, pointwise)(np.ones((1, 2, 5, 5), np.float32)).shape
    (1, 4, 5, 5)
    """

    def __init__(self, depthwise: Conv2d, pointwise: Conv2d) -> None:
        _convolutions(depthwise=depthwise, pointwise=pointwise)
        self._arguments: tuple[tuple[Conv2d, ...], dict[str, Any]] = (depthwise, pointwise), {}
        self._join(None, depthwise, pointwise)

    def __repr__(self):
        return f"DepthwiseSeparable({', '.join(map(repr, self._arguments[0]))})"


class InvertedResidual(_Layer, _core.ResidualPlan):
    """MobileNetV2's block, ``y = project(depthwise(expand(x))) + x``, as one kernel.

    As in :class:`DepthwiseSeparable`, tiles go through all parts while they are in the cache. The expanded image, which
    is several times as large as `x`, is never in memory.

    Parameters
    ----------
    expand : Conv2d or None
        1x1; None where the block has no expansion.
    depthwise : Conv2d
        One filter for each channel.
    project : Conv2d
        1x1. Its activation, usually None, comes after the addition.
    residual : bool
        Add `x` where it has the shape of the result. False: never.

    Raises
    ------
    ValueError
        A part has another form, or the parts do not fit: channels, layout.

    Notes
    -----
    ``layer(x, out=None)`` takes x (n, c, ih, iw) and returns y (n, oc, oh, ow), or both with their channels last, as
    the parts have it.

    References
    ----------
    .. [1] Sandler et al., "MobileNetV2: inverted residuals and linear bottlenecks", 2018, arXiv:1801.04381

    Examples
    --------
    >>> import numpy as np, fusedops as fo
    >>> expand = fo.Conv2d(np.ones((6, 2, 1, 1), np.float32), activation="relu6")
    >>> depthwise = fo.Conv2d(np.ones((6, 1, 3, 3), np.float32), padding=1, groups=6, activation="relu6")
    >>> project = fo.Conv2d(np.zeros((2, 6, 1, 1), np.float32))
    >>> x = np.ones((1, 2, 5, 5), np.float32)
    >>> np.array_equal(fo.InvertedResidual(expand, depthwise, project)(x), x)
    True
    """

    def __init__(self, expand: Conv2d | None, depthwise: Conv2d, project: Conv2d, *, residual: bool = True) -> None:
        _convolutions(expand=expand, depthwise=depthwise, project=project)
        self._arguments = (expand, depthwise, project), {"residual": bool(residual)}
        self._join(expand, depthwise, project)
        self._add(bool(residual))

    def __repr__(self):
        parts, options = self._arguments
        return f"InvertedResidual({', '.join(map(repr, parts))}, residual={options['residual']})"
