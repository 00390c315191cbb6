"""What the tests of a common property run over: each operation on small arrays, and arrays of every kind of memory."""
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np

import fusedops as fo
import oracle


class Draw:
    """Random float32 arrays of unit scale from a fixed seed."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def __call__(self, *shape):
        return self.rng.uniform(-1, 1, shape).astype(np.float32)

    def integers(self, *shape):
        """Small enough that sums of a thousand products are exact."""
        return self.rng.integers(-4, 5, shape).astype(np.float32)

    def batch_norm(self, c):
        return fo.BatchNorm(self(c), self(c), self(c), self.rng.uniform(0.5, 2, c).astype(np.float32))

    def activation(self, name, c):
        """`name` with parameters where it must have them."""
        return {"clip": ("clip", -0.25, 0.5), "prelu": ("prelu", self(c))}.get(name, name)


def dims(layout, n, c, h, w):
    """The shape of a batch of images."""
    return (n, h, w, c) if layout == "NHWC" else (n, c, h, w)


class Operation(NamedTuple):
    """A public function, the shapes of its array arguments, its other arguments and the shape of each result."""

    function: Callable
    arrays: dict
    options: dict
    results: list

    def draw(self, draw):
        return {name: draw(*shape) for name, shape in self.arrays.items()}

    def __call__(self, arrays, **options):
        """The results as a tuple."""
        return results(self.function(**arrays, **self.options, **options))

    def out(self, filled=7):
        """Arrays for `out=`, as a list; `given` makes the argument of them."""
        return [np.full(shape, filled, np.float32) for shape in self.results]

    def oracle(self, arrays):
        y = getattr(oracle, self.function.__name__)(**arrays, **self.options)
        return (y,) if isinstance(y, oracle.Approx) else y


def results(y):
    return y if isinstance(y, tuple) else (y,)


def given(out):
    """What `out=` takes: the array, or a tuple of them where there are two results."""
    return out[0] if len(out) == 1 else tuple(out)


def _cell(function, gates, states=("h",), **options):
    arrays = dict(x=(3, 7)) | dict.fromkeys(states, (3, 13))
    arrays |= dict(w_ih=(gates * 13, 7), w_hh=(gates * 13, 13), b_ih=(gates * 13,), b_hh=(gates * 13,))
    return Operation(function, arrays, options, [(3, 13)] * len(states))


def _image(function, x, w, y, **options):
    return Operation(function, dict(x=x, w=w, bias=y[3 if "layout" in options else 1:][:1], residual=y), options, [y])


OPERATIONS = {
    "conv1x1": _image(fo.conv2d, (2, 5, 6, 7), (9, 5, 1, 1), (2, 9, 6, 7), activation="relu"),
    "conv1x1_nhwc": _image(fo.conv2d, (2, 6, 7, 5), (9, 5, 1, 1), (2, 6, 7, 9), layout="NHWC"),
    "conv3x3": _image(fo.conv2d, (2, 5, 6, 7), (9, 5, 3, 3), (2, 9, 6, 7), padding=1, algorithm="direct"),
    "conv3x3_nhwc": _image(fo.conv2d, (2, 6, 7, 5), (9, 5, 3, 3), (2, 6, 7, 9), padding=1, algorithm="direct",
                           layout="NHWC", activation="silu"),
    "patches": _image(fo.conv2d, (2, 17, 5, 6), (9, 17, 3, 3), (2, 9, 3, 3), padding=1, stride=2, algorithm="direct"),
    "patches_nhwc": _image(fo.conv2d, (2, 1, 150, 17), (33, 17, 3, 3), (2, 1, 150, 33), padding=1, layout="NHWC", activation="tanh"),
    "winograd": _image(fo.conv2d, (2, 5, 14, 19), (9, 5, 3, 3), (2, 9, 14, 19), padding=1, algorithm="winograd"),
    "winograd_nhwc": _image(fo.conv2d, (2, 9, 8, 17), (5, 17, 3, 3), (2, 7, 6, 5), algorithm="winograd", layout="NHWC",
                            activation="tanh"),
    "winograd_strided": _image(fo.conv2d, (2, 5, 14, 19), (9, 5, 3, 3), (2, 9, 7, 10), padding=1, stride=2, algorithm="winograd"),
    "winograd_strided_nhwc": _image(fo.conv2d, (2, 9, 8, 17), (5, 17, 3, 3), (2, 4, 3, 5), stride=2, algorithm="winograd", layout="NHWC",
                                    activation="tanh"),
    "winograd_dilated": _image(fo.conv2d, (2, 5, 14, 19), (9, 5, 3, 3), (2, 9, 10, 19), padding=(1, 2), dilation=(3, 2), algorithm="winograd"),
    "winograd_dilated_nhwc": _image(fo.conv2d, (2, 9, 8, 17), (5, 17, 3, 3), (2, 5, 4, 5), dilation=2, algorithm="winograd", layout="NHWC",
                                    activation="tanh"),
    "strassen": _image(fo.conv2d, (2, 5, 7, 19), (66, 5, 1, 1), (2, 66, 7, 19), algorithm="strassen", activation="relu"),
    "strassen_nhwc": _image(fo.conv2d, (2, 5, 11, 6), (133, 6, 1, 1), (2, 5, 11, 133), algorithm="strassen", layout="NHWC", activation="tanh"),
    "rows_together": _image(fo.conv2d, (2, 5, 14, 19), (9, 5, 3, 3), (2, 9, 7, 10), padding=1, stride=2, algorithm="winograd1d"),
    "rows_together_nhwc": _image(fo.conv2d, (2, 8, 17, 9), (5, 9, 5, 5), (2, 8, 17, 5), padding=2, algorithm="winograd1d", layout="NHWC",
                                 activation="tanh"),
    "first_layer": _image(fo.conv2d, (2, 9, 52, 3), (32, 3, 3, 3), (2, 5, 26, 32), padding=1, stride=2, layout="NHWC"),
    "conv_groups": _image(fo.conv2d, (1, 6, 9, 8), (4, 3, 3, 2), (1, 4, 4, 7), groups=2, stride=(2, 1)),
    "conv_bn_relu": _image(fo.conv_bn_relu, (2, 5, 6, 7), (9, 5, 3, 3), (2, 9, 4, 5), algorithm="direct"),
    "depthwise": _image(fo.depthwise_conv2d, (2, 5, 6, 7), (5, 3, 3), (2, 5, 6, 7), padding=1, activation="relu6"),
    "depthwise_nhwc": _image(fo.depthwise_conv2d, (2, 6, 7, 5), (5, 1, 3, 3), (2, 6, 7, 5), padding=1, layout="NHWC"),
    "depthwise_bn_relu": _image(fo.depthwise_conv_bn_relu, (2, 5, 9, 7), (10, 1, 3, 3), (2, 10, 4, 3), stride=2),
    "gemm": Operation(fo.gemm, dict(a=(7, 13), b=(13, 19), bias=(19,), residual=(7, 19)), dict(activation="gelu"),
                      [(7, 19)]),
    "gemm_batch": Operation(fo.gemm, dict(a=(2, 3, 5, 6), b=(6, 9)), {}, [(2, 3, 5, 9)]),
    "linear": Operation(fo.linear, dict(x=(7, 13), w=(19, 13), bias=(19,), residual=(7, 19)), {}, [(7, 19)]),
    "linear_row": Operation(fo.linear, dict(x=(1, 65), w=(33, 65), bias=(33,)), dict(activation="tanh"), [(1, 33)]),
    "rnn_cell": _cell(fo.rnn_cell, 1),
    "lstm_cell": _cell(fo.lstm_cell, 4, ("h", "c")),
    "gru_cell": _cell(fo.gru_cell, 3),
    "gru_cell_reset_before": _cell(fo.gru_cell, 3, reset_after=False),
}


# Memory of every kind


def misaligned(a, offset):
    """A copy that starts `offset` bytes after a multiple of 4."""
    record = np.zeros((), dtype=[("before", np.uint8, 4 + offset), ("array", np.float32, a.shape)])
    view = record["array"]
    view[...] = a
    return view


def _field(a):
    """A copy in records of an odd size, one for each index of the first axis: of a single record, the array is aligned and contiguous, and
    its first stride nothing that one could count in elements."""
    records = np.zeros(a.shape[0], [("array", np.float32, a.shape[1:]), ("after", np.uint8)])
    records["array"] = a
    return records["array"]


def _reversed(a):
    back = (slice(None, None, -1),) * a.ndim
    return np.ascontiguousarray(a[back])[back]


def _moved(a, axis, to):
    """A copy whose memory has the axis elsewhere; the same array to look at."""
    return np.moveaxis(np.ascontiguousarray(np.moveaxis(a, axis, to)), to, axis)


def _read_only(a):
    a = a.copy()
    a.flags.writeable = False
    return a


VIEWS = {
    "fortran": lambda a: a.copy(order="F"),
    "channels_last": lambda a: _moved(a, min(1, a.ndim - 1), -1),
    "last_axis_first": lambda a: _moved(a, -1, 0),
    "reversed": _reversed,
    "every_second": lambda a: np.repeat(a, 2, axis=-1)[..., ::2],
    "part_of_rows": lambda a: np.pad(a, [(0, 0)] * (a.ndim - 1) + [(3, 2)], constant_values=np.nan)[..., 3:-2],
    "part_of_all": lambda a: np.pad(a, 1, constant_values=np.nan)[(slice(1, -1),) * a.ndim],
    "field_of_records": _field,
    "misaligned_1": lambda a: misaligned(a, 1),
    "misaligned_2": lambda a: misaligned(a, 2),
    "misaligned_3": lambda a: misaligned(a, 3),
}


@contextmanager
def using_isa(name):
    before = fo.isa()
    fo.set_isa(name)
    try:
        yield
    finally:
        fo.set_isa(before)


def python(code, **environment):
    """Runs code in a fresh interpreter, with the same fusedops: the completed process, output as text."""
    return subprocess.run([sys.executable, "-c", code], env=os.environ | environment, capture_output=True, text=True,
                          timeout=60, cwd=Path(fo.__file__).parent.parent)
