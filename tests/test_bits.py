"""The same bits every time: whatever the threads, the batch that a row is part of, where arrays lie in memory, and which call it is.

Other instruction sets may differ, within the error bounds of the other tests.
"""
from collections.abc import Callable
from hashlib import sha256
from typing import NamedTuple

import numpy as np
import pytest

import fusedops as fo
from operations import VIEWS, given, results

THREADS = (1, 2, 3, 7)
ROWS = 64
BATCHES = [slice(0, 64), slice(0, 1), slice(63, 64), slice(5, 7), slice(17, 22)]  # 64, 1, 1, 2 and 5 rows of the same 64


class Batched(NamedTuple):
    """An operation: arrays that hold one row of the batch for each index of their batch axis, and arrays that are shared by all."""

    function: Callable
    batched: dict  # name: shape without the batch axis
    shared: dict = {}
    options: dict = {}
    axis: int = 0
    outs: int = 1  # results that `out` takes

    def draw(self, draw):
        rows = {k: np.stack([draw(*shape) for _ in range(ROWS)], self.axis) for k, shape in self.batched.items()}
        return rows, {k: draw(*shape) / np.float32(shape[-1] ** 0.5) for k, shape in self.shared.items()}

    def __call__(self, rows, shared, **options):
        return flat(self.function(**rows, **shared, **self.options, **options))

    def part(self, arrays, rows):
        return [np.take(y, range(ROWS)[rows], self.axis) for y in arrays]


def flat(y):
    """The results as a list; a recurrent layer's state stands in a tuple of its own."""
    return [array for part in results(y) for array in results(part)]


def digest(arrays):
    h = sha256()
    for a in arrays:
        h.update(np.ascontiguousarray(a).tobytes())
    return h.hexdigest()


def image(function, x, w, y, **options):
    return Batched(function, dict(x=x, residual=y), dict(w=w, bias=y[2 if "layout" in options else 0:][:1]), options)


def cell(function, gates, states=("h",), **options):
    return Batched(function, dict(x=(33,)) | dict.fromkeys(states, (48,)),
                   dict(w_ih=(gates * 48, 33), w_hh=(gates * 48, 48), b_ih=(gates * 48,), b_hh=(gates * 48,)), options, outs=len(states))


def sequence(function, gates, **options):
    weights = dict(w_ih=(gates * 24, 17), w_hh=(gates * 24, 24), b_ih=(gates * 24,), b_hh=(gates * 24,))
    axis = 0 if options.get("batch_first") else 1
    return Batched(lambda x, **others: function(x, None, **others), dict(x=(7, 17)), weights, options, axis)


OPERATIONS = {
    "conv1x1": image(fo.conv2d, (24, 9, 10), (40, 24, 1, 1), (40, 9, 10), activation="relu"),
    "conv1x1_nhwc": image(fo.conv2d, (9, 10, 24), (40, 24, 1, 1), (9, 10, 40), layout="NHWC", activation="gelu"),
    "conv3x3": image(fo.conv2d, (8, 9, 10), (20, 8, 3, 3), (20, 9, 10), padding=1, algorithm="direct", activation="silu"),
    "conv3x3_auto": image(fo.conv2d, (32, 16, 16), (32, 32, 3, 3), (32, 16, 16), padding=1),
    "conv3x3_nhwc": image(fo.conv2d, (16, 16, 32), (32, 32, 3, 3), (16, 16, 32), padding=1, layout="NHWC"),
    "patches": image(fo.conv2d, (33, 7, 6), (70, 33, 3, 3), (70, 4, 3), padding=1, stride=2, activation="relu"),
    "patches_nhwc": image(fo.conv2d, (1, 90, 33), (40, 33, 3, 3), (1, 90, 40), padding=1, layout="NHWC"),
    "winograd": image(fo.conv2d, (5, 9, 11), (7, 5, 3, 3), (7, 9, 11), padding=1, algorithm="winograd"),
    "winograd_strided": image(fo.conv2d, (5, 21, 27), (7, 5, 3, 3), (7, 11, 14), padding=1, stride=2, algorithm="winograd"),
    "winograd_dilated": image(fo.conv2d, (5, 21, 27), (7, 5, 3, 3), (7, 17, 27), padding=(1, 2), dilation=(3, 2), algorithm="winograd"),
    "strassen": image(fo.conv2d, (96, 13, 15), (256, 96, 1, 1), (256, 13, 15), activation="relu"),
    "strassen_nhwc": image(fo.conv2d, (19, 15, 96), (256, 96, 1, 1), (19, 15, 256), layout="NHWC"),
    "long_reduction": image(fo.conv2d, (5, 5, 1100), (230, 1100, 1, 1), (5, 5, 230), layout="NHWC", algorithm="direct"),
    "strassen_few": image(fo.conv2d, (7, 9, 97), (250, 97, 1, 1), (7, 9, 250), layout="NHWC"),
    "rows_together": image(fo.conv2d, (5, 21, 11), (7, 5, 3, 3), (7, 11, 6), padding=1, stride=2, algorithm="winograd1d"),
    "rows_together_nhwc": image(fo.conv2d, (21, 11, 5), (40, 5, 5, 5), (21, 11, 40), padding=2, layout="NHWC", algorithm="winograd1d"),
    "first_layer": image(fo.conv2d, (31, 66, 3), (32, 3, 3, 3), (16, 33, 32), padding=1, stride=2, layout="NHWC", activation="relu6"),
    "conv_groups": image(fo.conv2d, (12, 9, 8), (8, 6, 3, 2), (8, 4, 7), groups=2, stride=(2, 1)),
    "conv1x1_stride": image(fo.conv2d, (65, 25, 23), (72, 65, 1, 1), (72, 13, 12), stride=2, activation="relu"),
    "conv1x1_stride_nhwc": image(fo.conv2d, (25, 23, 96), (72, 96, 1, 1), (13, 12, 72), stride=2, layout="NHWC"),
    "conv_bn_relu": image(fo.conv_bn_relu, (3, 17, 17), (16, 3, 7, 7), (16, 9, 9), stride=2, padding=3),
    "depthwise": image(fo.depthwise_conv2d, (11, 12, 19), (11, 3, 3), (11, 12, 19), padding=1, activation="relu6"),
    "depthwise_nhwc": image(fo.depthwise_conv2d, (12, 19, 11), (11, 3, 3), (12, 19, 11), padding=1, layout="NHWC"),
    "depthwise_bn_relu": image(fo.depthwise_conv_bn_relu, (11, 12, 19), (22, 1, 5, 5), (22, 6, 10), padding=2, stride=2),
    "depthwise_strips": Batched(fo.depthwise_conv2d, dict(x=(3, 29, 37)), dict(w=(3, 3, 3)), dict(padding=1)),
    "depthwise_aside": Batched(fo.depthwise_conv2d, dict(x=(11, 7, 512)), dict(w=(512, 3, 3)), dict(padding=1, layout="NHWC")),
    "gemm": Batched(fo.gemm, dict(a=(150,), residual=(70,)), dict(b=(150, 70), bias=(70,)), dict(activation="mish")),
    "gemm_many": Batched(fo.gemm, dict(a=(5, 33), residual=(5, 70)), dict(b=(33, 70))),
    "linear": Batched(fo.linear, dict(x=(600,), residual=(99,)), dict(w=(99, 600), bias=(99,)), dict(activation="tanh")),
    "rnn_cell": cell(fo.rnn_cell, 1),
    "lstm_cell": cell(fo.lstm_cell, 4, ("h", "c")),
    "gru_cell": cell(fo.gru_cell, 3),
    "gru_cell_reset_before": cell(fo.gru_cell, 3, reset_after=False),
    "rnn": sequence(fo.rnn, 1),
    "lstm": sequence(fo.lstm, 4),
    "gru": sequence(fo.gru, 3, batch_first=True),
}


@pytest.fixture(params=OPERATIONS)
def operation(request):
    return OPERATIONS[request.param]


@pytest.fixture
def restored():
    before = fo.get_num_threads()
    yield
    fo.set_num_threads(before)


def each_number_of_threads():
    for n in THREADS:
        fo.set_num_threads(n)
        yield n


def test_threads_and_batch(isa, draw, restored, operation):
    """A row has the bits that it has alone, in any batch, at any place of it, on any number of threads."""
    rows, shared = operation.draw(draw)
    fo.set_num_threads(1)
    whole = operation(rows, shared)
    for n in each_number_of_threads():
        for batch in BATCHES:
            part = {k: operation.part([v], batch)[0] for k, v in rows.items()}
            expected = [operation.part([y], batch)[0] if y.shape[operation.axis] == ROWS else y[:, batch] for y in whole]
            assert digest(operation(part, shared)) == digest(expected), f"{n} threads, rows {batch}"


def at_offset(a, floats):
    """A copy that begins `floats` elements behind a multiple of 64 bytes."""
    memory = np.empty(a.size + 32, np.float32)
    start = -(memory.ctypes.data // 4) % 16 + floats
    copy = memory[start: start + a.size].reshape(a.shape)
    copy[...] = a
    return copy


def small(operation, draw):
    rows, shared = operation.draw(draw)
    return {k: operation.part([v], slice(0, 2))[0] for k, v in rows.items()} | shared


def test_alignments(isa, draw, operation):
    """Inputs, weights and `out` begin at each of the 16 places in a cache line."""
    arrays = small(operation, draw)
    expected = operation(arrays, {})
    for floats in range(16):
        moved = {k: at_offset(v, floats) for k, v in arrays.items()}
        out = given([at_offset(y, floats) for y in expected[:operation.outs]])
        assert digest(operation(moved, {}, out=out)) == digest(expected), f"{4 * floats} bytes behind a cache line"


def test_strides(isa, draw, operation):
    arrays = small(operation, draw)
    expected = digest(operation(arrays, {}))
    for name, view in VIEWS.items():
        assert digest(operation({k: view(v) for k, v in arrays.items()}, {})) == expected, name


def test_repeats(draw, restored, operation):
    """50 times on each number of threads: what another call left in scratch memory, and who ran which task, does not show."""
    rows, shared = operation.draw(draw)
    part = {k: operation.part([v], slice(0, 5))[0] for k, v in rows.items()}
    digests = {digest(operation(part, shared)) for _ in each_number_of_threads() for _ in range(50)}
    assert len(digests) == 1
