"""What the tests of a common property run over: each operation on small arrays, and arrays of every kind of memory."""

import functools
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
from fusedops import _core

EXHAUSTIVE = os.environ.get("FUSEDOPS_EXHAUSTIVE", "0") != "0"  # every float, 100,000 calls: hours instead of seconds


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


BATCHED = {"x", "a", "h", "c", "residual", "q", "k", "v"}  # for each element of a batch; others are shared by all


class Operation(NamedTuple):
    """A public function, the shapes of its array arguments, its other arguments and the shape of each result."""

    function: Callable
    arrays: dict
    options: dict
    results: list
    axis: int = 0  # of the batch

    def draw(self, draw):
        return {name: draw(*shape) for name, shape in self.arrays.items()}

    def of(self, n):
        """The same of a batch of n."""

        def resized(shape):
            return (*shape[: self.axis], n, *shape[self.axis + 1 :])

        arrays = {name: resized(shape) if name in BATCHED else shape for name, shape in self.arrays.items()}
        return self._replace(arrays=arrays, results=[resized(shape) for shape in self.results])

    def part(self, arrays, rows):
        """Those of some elements of the batch."""
        at = (slice(None),) * self.axis + (rows,)
        return {name: a[at] if name in BATCHED else a for name, a in arrays.items()}

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


def _weights(gates, inputs, units):
    return dict(w_ih=(gates * units, inputs), w_hh=(gates * units, units), b_ih=(gates * units,), b_hh=(gates * units,))


def _cell(function, gates, states=("h",), inputs=7, units=13, **options):
    arrays = dict(x=(3, inputs)) | dict.fromkeys(states, (3, units)) | _weights(gates, inputs, units)
    return Operation(function, arrays, options, [(3, units)] * len(states))


def _sequence(function, gates, **options):
    axis = 0 if options.get("batch_first") else 1
    shape = [7, 7]
    shape[axis] = 2
    return Operation(
        lambda x, **others: function(x, None, **others),
        dict(x=(*shape, 17)) | _weights(gates, 17, 24),
        options,
        [(*shape, 24)],
        axis,
    )


def _image(function, x, w, y, **options):
    return Operation(function, dict(x=x, w=w, bias=(w[0],), residual=y), options, [y])


def _transposed(x, w, y, **options):
    return Operation(
        fo.conv_transpose2d, dict(x=x, w=w, bias=(w[1] * options.get("groups", 1),), residual=y), options, [y]
    )


def _alone(function, x, y, **options):
    return Operation(function, dict(x=x), options, [y])


def _normed(function, x, each, **options):
    return Operation(function, dict(x=x, weight=each, bias=each, residual=x), options, [x])


OPERATIONS = {
    "conv1x1": _image(fo.conv2d, (2, 5, 6, 7), (9, 5, 1, 1), (2, 9, 6, 7), activation="relu"),
    "conv1x1_nhwc": _image(fo.conv2d, (2, 6, 7, 5), (9, 5, 1, 1), (2, 6, 7, 9), layout="NHWC"),
    "conv3x3": _image(fo.conv2d, (2, 5, 6, 7), (9, 5, 3, 3), (2, 9, 6, 7), padding=1, algorithm="direct"),
    "conv3x3_nhwc": _image(
        fo.conv2d,
        (2, 6, 7, 5),
        (9, 5, 3, 3),
        (2, 6, 7, 9),
        padding=1,
        algorithm="direct",
        layout="NHWC",
        activation="silu",
    ),
    "im2col": _image(fo.conv2d, (2, 17, 5, 6), (9, 17, 3, 3), (2, 9, 3, 3), padding=1, stride=2, algorithm="direct"),
    "im2col_nhwc": _image(
        fo.conv2d, (2, 1, 150, 17), (33, 17, 3, 3), (2, 1, 150, 33), padding=1, layout="NHWC", activation="tanh"
    ),
    "winograd": _image(fo.conv2d, (2, 5, 14, 19), (9, 5, 3, 3), (2, 9, 14, 19), padding=1, algorithm="winograd"),
    "winograd_nhwc": _image(
        fo.conv2d, (2, 9, 8, 17), (5, 17, 3, 3), (2, 7, 6, 5), algorithm="winograd", layout="NHWC", activation="tanh"
    ),
    "winograd_strided": _image(
        fo.conv2d, (2, 5, 14, 19), (9, 5, 3, 3), (2, 9, 7, 10), padding=1, stride=2, algorithm="winograd"
    ),
    "winograd_strided_nhwc": _image(
        fo.conv2d,
        (2, 9, 8, 17),
        (5, 17, 3, 3),
        (2, 4, 3, 5),
        stride=2,
        algorithm="winograd",
        layout="NHWC",
        activation="tanh",
    ),
    "winograd_dilated": _image(
        fo.conv2d, (2, 5, 14, 19), (9, 5, 3, 3), (2, 9, 10, 19), padding=(1, 2), dilation=(3, 2), algorithm="winograd"
    ),
    "winograd_dilated_nhwc": _image(
        fo.conv2d,
        (2, 9, 8, 17),
        (5, 17, 3, 3),
        (2, 5, 4, 5),
        dilation=2,
        algorithm="winograd",
        layout="NHWC",
        activation="tanh",
    ),
    "winograd1d": _image(
        fo.conv2d, (2, 5, 14, 19), (9, 5, 3, 3), (2, 9, 7, 10), padding=1, stride=2, algorithm="winograd1d"
    ),
    "winograd1d_nhwc": _image(
        fo.conv2d,
        (2, 8, 17, 9),
        (5, 9, 5, 5),
        (2, 8, 17, 5),
        padding=2,
        algorithm="winograd1d",
        layout="NHWC",
        activation="tanh",
    ),
    "first_layer": _image(fo.conv2d, (2, 9, 52, 3), (32, 3, 3, 3), (2, 5, 26, 32), padding=1, stride=2, layout="NHWC"),
    "conv_groups": _image(fo.conv2d, (1, 6, 9, 8), (4, 3, 3, 2), (1, 4, 4, 7), groups=2, stride=(2, 1)),
    "conv_bn_relu": _image(fo.conv_bn_relu, (2, 5, 6, 7), (9, 5, 3, 3), (2, 9, 4, 5), algorithm="direct"),
    "depthwise": _image(fo.depthwise_conv2d, (2, 5, 6, 7), (5, 3, 3), (2, 5, 6, 7), padding=1, activation="relu6"),
    "depthwise_nhwc": _image(fo.depthwise_conv2d, (2, 6, 7, 5), (5, 1, 3, 3), (2, 6, 7, 5), padding=1, layout="NHWC"),
    "depthwise_bn_relu": _image(fo.depthwise_conv_bn_relu, (2, 5, 9, 7), (10, 1, 3, 3), (2, 10, 4, 3), stride=2),
    "gemm": Operation(
        fo.gemm, dict(a=(7, 13), b=(13, 19), bias=(19,), residual=(7, 19)), dict(activation="gelu"), [(7, 19)]
    ),
    "gemm_batch": Operation(fo.gemm, dict(a=(2, 3, 5, 6), b=(6, 9)), {}, [(2, 3, 5, 9)]),
    "linear": Operation(fo.linear, dict(x=(7, 13), w=(19, 13), bias=(19,), residual=(7, 19)), {}, [(7, 19)]),
    "linear_row": Operation(fo.linear, dict(x=(1, 65), w=(33, 65), bias=(33,)), dict(activation="tanh"), [(1, 33)]),
    "attention": Operation(fo.attention, dict(q=(2, 4, 5, 8), k=(2, 2, 7, 8), v=(2, 2, 7, 9)), {}, [(2, 4, 5, 9)]),
    "attention_causal": Operation(
        fo.attention, dict(q=(2, 4, 7, 8), k=(2, 2, 7, 8), v=(2, 2, 7, 9)), dict(causal=True), [(2, 4, 7, 9)]
    ),
    "rnn_cell": _cell(fo.rnn_cell, 1),
    "lstm_cell": _cell(fo.lstm_cell, 4, ("h", "c")),
    "gru_cell": _cell(fo.gru_cell, 3),
    "gru_cell_reset_before": _cell(fo.gru_cell, 3, reset_after=False),
    "conv1d": _image(fo.conv1d, (2, 5, 11), (9, 5, 3), (2, 9, 11), padding=1, activation="relu"),
    "conv1d_nhwc": Operation(
        fo.conv1d,
        dict(x=(2, 13, 6), w=(8, 3, 3), bias=(8,), residual=(2, 5, 8)),
        dict(stride=2, dilation=2, padding=(1, 0), groups=2, layout="NHWC"),
        [(2, 5, 8)],
    ),
    "conv_transpose2d": _transposed(
        (2, 6, 4, 5), (6, 3, 3, 3), (2, 9, 9, 12), groups=3, stride=2, output_padding=(0, 1), activation="relu"
    ),
    "conv_transpose2d_nhwc": _transposed(
        (2, 4, 5, 6),
        (6, 5, 2, 4),
        (2, 7, 6, 5),
        layout="NHWC",
        stride=(2, 1),
        padding=((0, 1), (1, 1)),
        activation="tanh",
    ),
    "conv_transpose1d": Operation(
        fo.conv_transpose1d,
        dict(x=(2, 6, 7), w=(6, 3, 4), bias=(9,), residual=(2, 9, 15)),
        dict(groups=3, stride=2, padding=1, output_padding=1, activation="relu"),
        [(2, 9, 15)],
    ),
    "conv_transpose1d_nhwc": Operation(
        fo.conv_transpose1d,
        dict(x=(2, 7, 6), w=(6, 5, 3), bias=(5,), residual=(2, 9, 5)),
        dict(layout="NHWC", activation="tanh"),
        [(2, 9, 5)],
    ),
    "conv3d": _image(fo.conv3d, (2, 5, 4, 6, 7), (9, 5, 3, 3, 3), (2, 9, 4, 6, 7), padding=1, activation="silu"),
    "conv3d_nhwc": _image(
        fo.conv3d,
        (2, 6, 7, 8, 4),
        (6, 2, 2, 3, 1),
        (2, 3, 5, 8, 6),
        layout="NHWC",
        groups=2,
        stride=(2, 1, 1),
        dilation=(2, 1, 1),
        padding=((1, 0), (0, 0), (0, 0)),
    ),
    "conv3d_depthwise": _image(
        fo.conv3d, (2, 5, 6, 5, 7), (5, 1, 3, 3, 3), (2, 5, 3, 5, 7), groups=5, stride=(2, 1, 1), padding=1
    ),
    "activation": _alone(fo.activation, (3, 5, 7), (3, 5, 7), activation="gelu"),
    "activation_prelu": _alone(
        fo.activation, (3, 4, 7), (3, 4, 7), activation=("prelu", np.float32([0.25, -0.5, 1, 2]))
    ),
    "batch_norm": _alone(fo.batch_norm, (3, 5, 4, 6), (3, 5, 4, 6), bn=Draw(5).batch_norm(5), activation="relu"),
    "batch_norm_nhwc": _alone(
        fo.batch_norm, (3, 4, 6, 5), (3, 4, 6, 5), bn=Draw(5).batch_norm(5), activation="tanh", layout="NHWC"
    ),
    "matmul": Operation(fo.matmul, dict(a=(2, 3, 5, 7), b=(3, 7, 9)), {}, [(2, 3, 5, 9)]),
    "matmul_shared": Operation(fo.matmul, dict(a=(2, 5, 7), b=(7, 9)), {}, [(2, 5, 9)]),
    "matmul_row": Operation(fo.matmul, dict(a=(4, 1, 19), b=(19, 6)), {}, [(4, 1, 6)]),
    "max_pool1d": _alone(fo.max_pool1d, (2, 5, 11), (2, 5, 5), kernel_size=3, stride=2),
    "avg_pool1d_nhwc": _alone(
        fo.avg_pool1d,
        (2, 11, 5),
        (2, 12, 5),
        kernel_size=4,
        stride=1,
        padding=(2, 2),
        count_include_pad=False,
        layout="NHWC",
    ),
    "global_avg_pool2d": _alone(fo.global_avg_pool2d, (2, 5, 7, 9), (2, 5, 1, 1)),
    "adaptive_avg_pool2d": _alone(fo.adaptive_avg_pool2d, (2, 5, 7, 9), (2, 5, 3, 6), size=(3, 6)),
    "adaptive_avg_pool2d_nhwc": _alone(fo.adaptive_avg_pool2d, (2, 8, 9, 5), (2, 4, 3, 5), size=(4, 3), layout="NHWC"),
    "max_pool2d": _alone(fo.max_pool2d, (2, 5, 7, 9), (2, 5, 3, 4), kernel_size=3, stride=2),
    "max_pool2d_nhwc": _alone(
        fo.max_pool2d,
        (2, 7, 9, 5),
        (2, 4, 5, 5),
        kernel_size=(2, 3),
        stride=2,
        padding=(0, 1),
        ceil_mode=True,
        layout="NHWC",
    ),
    "avg_pool2d": _alone(fo.avg_pool2d, (2, 5, 7, 9), (2, 5, 7, 9), kernel_size=3, stride=1, padding=1),
    "avg_pool2d_nhwc": _alone(
        fo.avg_pool2d,
        (2, 7, 9, 5),
        (2, 4, 4, 5),
        kernel_size=3,
        stride=2,
        dilation=(1, 2),
        padding=1,
        ceil_mode=True,
        count_include_pad=False,
        layout="NHWC",
    ),
    "softmax": _alone(fo.softmax, (4, 3, 37), (4, 3, 37)),
    "softmax_of_channels": _alone(fo.softmax, (2, 7, 3, 6), (2, 7, 3, 6), axis=1),
    "log_softmax": _alone(fo.log_softmax, (4, 11), (4, 11)),
    "layer_norm": _normed(fo.layer_norm, (3, 5, 19), (19,)),
    "rms_norm": Operation(fo.rms_norm, dict(x=(5, 35), weight=(35,), residual=(5, 35)), {}, [(5, 35)]),
    "group_norm": _normed(fo.group_norm, (2, 6, 3, 5), (6,), groups=3),
    "group_norm_nhwc": _normed(fo.group_norm, (2, 3, 5, 6), (6,), groups=2, layout="NHWC"),
    "instance_norm": Operation(fo.instance_norm, dict(x=(2, 6, 3, 5), weight=(6,), bias=(6,)), {}, [(2, 6, 3, 5)]),
    "instance_norm_nhwc": Operation(
        fo.instance_norm, dict(x=(2, 7, 6), weight=(6,), bias=(6,)), dict(layout="NHWC"), [(2, 7, 6)]
    ),
    "resize": _alone(fo.resize, (2, 5, 4, 6), (2, 5, 7, 9), size=(7, 9)),
    "resize_linear": _alone(fo.resize, (2, 5, 4, 6), (2, 5, 8, 9), scale=(2, 1.5), mode="linear"),
    "resize_nhwc": _alone(
        fo.resize, (2, 4, 6, 5), (2, 3, 12, 5), size=(3, 12), mode="linear", align_corners=True, layout="NHWC"
    ),
}
# Large enough to be cut into tasks, some of them also to have their weights packed so.
MANY_TASKS = {
    "conv1x1": (fo.conv2d, [(1, 64, 28, 28), (96, 64, 1, 1)], {}),
    "conv3x3_direct": (fo.conv2d, [(1, 32, 28, 28), (64, 32, 3, 3)], dict(padding=1, algorithm="direct")),
    "conv3x3_auto": (fo.conv2d, [(1, 64, 28, 28), (64, 64, 3, 3)], dict(padding=1)),
    "conv3x3_nhwc": (fo.conv2d, [(1, 28, 28, 64), (64, 64, 3, 3)], dict(padding=1, layout="NHWC")),
    "conv3x3_stride": (fo.conv2d, [(1, 128, 28, 28), (128, 128, 3, 3)], dict(padding=1, stride=2)),
    "conv3x3_stride_nhwc": (fo.conv2d, [(1, 28, 28, 128), (120, 128, 3, 3)], dict(padding=1, stride=2, layout="NHWC")),
    "conv_groups": (fo.conv2d, [(2, 64, 20, 20), (64, 16, 3, 3)], dict(groups=4)),
    "first_layer": (fo.conv2d, [(1, 3, 96, 96), (32, 3, 7, 7)], dict(stride=2, padding=3)),
    "depthwise": (fo.depthwise_conv2d, [(1, 96, 56, 56), (96, 3, 3)], dict(padding=1)),
    "depthwise_nhwc": (fo.depthwise_conv2d, [(1, 56, 56, 96), (96, 3, 3)], dict(padding=1, layout="NHWC")),
    "gemm": (fo.gemm, [(200, 150), (150, 250)], dict(activation="gelu")),
    "gemm_tall": (fo.gemm, [(3000, 40), (40, 17)], {}),
    "linear_row": (fo.linear, [(1, 1024), (999, 1024)], dict(activation="relu")),
    "linear_narrow": (fo.linear, [(15, 2000), (67, 2000)], dict(activation="relu")),
    "lstm_cell": (fo.lstm_cell, [(8, 200), (8, 256), (8, 256), (1024, 200), (1024, 256)], {}),
    "gru_cell": (fo.gru_cell, [(8, 200), (8, 256), (768, 200), (768, 256)], {}),
}
# Larger ones and sequences, for the tests of bits: algorithms and tasks that small sizes do not reach.
LARGE = {
    "conv1x1": _image(fo.conv2d, (2, 24, 9, 10), (40, 24, 1, 1), (2, 40, 9, 10), activation="relu"),
    "conv1x1_nhwc": _image(fo.conv2d, (2, 9, 10, 24), (40, 24, 1, 1), (2, 9, 10, 40), layout="NHWC", activation="gelu"),
    "conv1x1_stride": _image(fo.conv2d, (2, 65, 25, 23), (72, 65, 1, 1), (2, 72, 13, 12), stride=2, activation="relu"),
    "conv1x1_stride_nhwc": _image(fo.conv2d, (2, 25, 23, 96), (72, 96, 1, 1), (2, 13, 12, 72), stride=2, layout="NHWC"),
    "conv3x3": _image(
        fo.conv2d, (2, 8, 9, 10), (20, 8, 3, 3), (2, 20, 9, 10), padding=1, algorithm="direct", activation="silu"
    ),
    "conv3x3_auto": _image(fo.conv2d, (2, 32, 16, 16), (32, 32, 3, 3), (2, 32, 16, 16), padding=1),
    "conv3x3_auto_nhwc": _image(fo.conv2d, (2, 16, 16, 32), (32, 32, 3, 3), (2, 16, 16, 32), padding=1, layout="NHWC"),
    "im2col": _image(fo.conv2d, (2, 33, 7, 6), (70, 33, 3, 3), (2, 70, 4, 3), padding=1, stride=2, activation="relu"),
    "im2col_nhwc": _image(fo.conv2d, (2, 1, 90, 33), (40, 33, 3, 3), (2, 1, 90, 40), padding=1, layout="NHWC"),
    "conv1x1_wide": _image(fo.conv2d, (2, 96, 13, 15), (256, 96, 1, 1), (2, 256, 13, 15), activation="relu"),
    "conv1x1_wide_nhwc": _image(fo.conv2d, (2, 19, 15, 96), (256, 96, 1, 1), (2, 19, 15, 256), layout="NHWC"),
    "long_reduction": _image(
        fo.conv2d, (2, 5, 5, 1100), (230, 1100, 1, 1), (2, 5, 5, 230), layout="NHWC", algorithm="direct"
    ),
    "winograd1d_nhwc": _image(
        fo.conv2d, (2, 21, 11, 5), (40, 5, 5, 5), (2, 21, 11, 40), padding=2, layout="NHWC", algorithm="winograd1d"
    ),
    "first_layer": _image(
        fo.conv2d,
        (2, 31, 66, 3),
        (32, 3, 3, 3),
        (2, 16, 33, 32),
        padding=1,
        stride=2,
        layout="NHWC",
        activation="relu6",
    ),
    "conv_bn_relu": _image(fo.conv_bn_relu, (2, 3, 17, 17), (16, 3, 7, 7), (2, 16, 9, 9), stride=2, padding=3),
    "depthwise": _image(
        fo.depthwise_conv2d, (2, 11, 12, 19), (11, 3, 3), (2, 11, 12, 19), padding=1, activation="relu6"
    ),
    "depthwise_nhwc": _image(
        fo.depthwise_conv2d, (2, 12, 19, 11), (11, 3, 3), (2, 12, 19, 11), padding=1, layout="NHWC"
    ),
    "depthwise_bn_relu": _image(
        fo.depthwise_conv_bn_relu, (2, 11, 12, 19), (22, 1, 5, 5), (2, 22, 6, 10), padding=2, stride=2
    ),
    "depthwise_strips": Operation(
        fo.depthwise_conv2d, dict(x=(2, 3, 29, 37), w=(3, 3, 3)), dict(padding=1), [(2, 3, 29, 37)]
    ),
    "depthwise_crowded": Operation(
        fo.depthwise_conv2d, dict(x=(2, 11, 7, 512), w=(512, 3, 3)), dict(padding=1, layout="NHWC"), [(2, 11, 7, 512)]
    ),
    "gemm": Operation(
        fo.gemm, dict(a=(2, 150), b=(150, 70), bias=(70,), residual=(2, 70)), dict(activation="mish"), [(2, 70)]
    ),
    "gemm_batch": Operation(fo.gemm, dict(a=(2, 5, 33), b=(33, 70), residual=(2, 5, 70)), {}, [(2, 5, 70)]),
    "linear": Operation(
        fo.linear, dict(x=(2, 600), w=(99, 600), bias=(99,), residual=(2, 99)), dict(activation="tanh"), [(2, 99)]
    ),
    "attention": Operation(
        fo.attention, dict(q=(2, 3, 60, 24), k=(2, 3, 300, 24), v=(2, 3, 300, 40)), {}, [(2, 3, 60, 40)]
    ),
    "attention_row": Operation(
        fo.attention, dict(q=(2, 3, 1, 24), k=(2, 3, 600, 24), v=(2, 3, 600, 40)), {}, [(2, 3, 1, 40)]
    ),
    "rnn_cell": _cell(fo.rnn_cell, 1, inputs=33, units=48),
    "lstm_cell": _cell(fo.lstm_cell, 4, ("h", "c"), 33, 48),
    "gru_cell": _cell(fo.gru_cell, 3, inputs=33, units=48),
    "gru_cell_reset_before": _cell(fo.gru_cell, 3, inputs=33, units=48, reset_after=False),
    "rnn": _sequence(fo.rnn, 1),
    "lstm": _sequence(fo.lstm, 4),
    "gru": _sequence(fo.gru, 3, batch_first=True),
    "conv1d": _image(fo.conv1d, (2, 24, 65), (40, 24, 3), (2, 40, 63), activation="gelu"),
    "conv_transpose2d": _transposed(
        (2, 17, 9, 11), (17, 40, 4, 4), (2, 40, 18, 22), stride=2, padding=1, activation="relu"
    ),
    "conv_transpose2d_nhwc": _transposed(
        (2, 9, 11, 17), (17, 40, 3, 3), (2, 18, 22, 40), layout="NHWC", stride=2, padding=1, output_padding=1
    ),
    "conv3d": _image(fo.conv3d, (2, 9, 5, 12, 14), (40, 9, 3, 3, 3), (2, 40, 5, 12, 14), padding=1, activation="relu"),
    "conv3d_nhwc": _image(
        fo.conv3d, (2, 5, 12, 14, 24), (40, 24, 3, 1, 1), (2, 5, 12, 14, 40), padding=(1, 0, 0), layout="NHWC"
    ),
    "activation": _alone(fo.activation, (2, 70, 333), (2, 70, 333), activation="mish"),
    "batch_norm": _alone(fo.batch_norm, (2, 70, 9, 21), (2, 70, 9, 21), bn=Draw(5).batch_norm(70), activation="silu"),
    "matmul": Operation(fo.matmul, dict(a=(2, 3, 70, 33), b=(3, 33, 65)), {}, [(2, 3, 70, 65)]),
    "matmul_row": Operation(fo.matmul, dict(a=(2, 1, 130), b=(130, 200)), {}, [(2, 1, 200)]),
    "adaptive_avg_pool2d": _alone(fo.adaptive_avg_pool2d, (2, 70, 13, 13), (2, 70, 7, 7), size=7),
    "max_pool2d": _alone(fo.max_pool2d, (2, 5, 23, 71), (2, 5, 12, 36), kernel_size=3, stride=2, padding=1),
    "max_pool2d_nhwc": _alone(
        fo.max_pool2d, (2, 9, 11, 70), (2, 9, 11, 70), kernel_size=5, stride=1, padding=2, layout="NHWC"
    ),
    "avg_pool2d": _alone(fo.avg_pool2d, (2, 5, 24, 70), (2, 5, 12, 35), kernel_size=2),
    "avg_pool2d_nhwc": _alone(fo.avg_pool2d, (2, 9, 11, 70), (2, 1, 1, 70), kernel_size=(9, 11), layout="NHWC"),
    "max_pool2d_whole": _alone(fo.max_pool2d, (2, 19, 9, 21), (2, 19, 1, 1), kernel_size=(9, 21)),
    "avg_pool2d_whole": _alone(fo.avg_pool2d, (2, 19, 7, 7), (2, 19, 1, 1), kernel_size=7),
    "avg_pool2d_whole_nhwc": _alone(fo.avg_pool2d, (2, 7, 7, 270), (2, 1, 1, 270), kernel_size=7, layout="NHWC"),
    "softmax": _alone(fo.softmax, (2, 4, 333), (2, 4, 333)),
    "softmax_of_channels": _alone(fo.softmax, (2, 70, 5, 9), (2, 70, 5, 9), axis=1),
    "layer_norm": _normed(fo.layer_norm, (2, 7, 770), (770,)),
    "rms_norm": Operation(fo.rms_norm, dict(x=(2, 4, 259), weight=(259,), residual=(2, 4, 259)), {}, [(2, 4, 259)]),
    "group_norm": _normed(fo.group_norm, (2, 24, 9, 21), (24,), groups=4),
    "group_norm_nhwc": _normed(fo.group_norm, (2, 9, 21, 24), (24,), groups=4, layout="NHWC"),
    "resize": _alone(fo.resize, (2, 19, 9, 23), (2, 19, 18, 46), scale=2, mode="linear"),
    "resize_nhwc": _alone(fo.resize, (2, 9, 23, 19), (2, 18, 46, 19), scale=2, mode="linear", layout="NHWC"),
}


# Memory of every kind


def misaligned(a, offset):
    """A copy that starts `offset` bytes after a multiple of 4."""
    record = np.zeros((), dtype=[("before", np.uint8, 4 + offset), ("array", np.float32, a.shape)])
    view = record["array"]
    view[...] = a
    return view


def _field(a):
    """A copy in records of an odd size, one for each index of the first axis: of a single record, the array is aligned
    and contiguous, and its first stride nothing that one could count in elements."""
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


@contextmanager
def using_machine(**fields):
    """What is made here is as on a machine that differs by some fields of csrc/machine/machine.h."""
    before = _core.machine()
    _core.set_machine(**fields)
    try:
        yield
    finally:
        _core.set_machine(**before)


INT8_PRODUCTS = {"amx": (True, True), "dots": (True, False), "words": (False, False)}


@contextmanager
def using_int8_products(kind):
    """AMX, dot products or neither, as far as the set in use has them: whether it has."""
    here, (dots, tiles) = _core.machine(), INT8_PRODUCTS[kind]
    with using_machine(dot_product=dots and here["dot_product"], tiles=tiles and here["tiles"]):
        yield (_core.has_dot_product(), _core.has_amx()) == INT8_PRODUCTS[kind]


@functools.cache
def int8_products(isa):
    """The kinds of products of int8 that an instruction set has here."""
    found = ["words"]
    with using_isa(isa):
        for kind in "dots", "amx":
            with using_int8_products(kind) as there:
                found += [kind] * there
    return found


@contextmanager
def using_bf16_products(kind):
    """As using_int8_products; without any, bfloat16 is multiplied in float32."""
    with using_int8_products("words" if kind == "float32" else kind) as there:
        yield there and _core.has_bfloat16()


@functools.cache
def bf16_products(isa):
    """The kinds of products of bfloat16 that an instruction set has here."""
    found = ["float32"]
    with using_isa(isa):
        for kind in "dots", "amx":
            with using_bf16_products(kind) as there:
                found += [kind] * there
    return found


def python(code, **environment):
    """Runs code in a fresh interpreter, with the same fusedops: the completed process, output as text."""
    return subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=60,
        cwd=Path(fo.__file__).parent.parent,
    )
