"""The same bits every time: whatever the threads, the batch around a row, the place of arrays in memory, and the call.

Other instruction sets may differ, within the error bounds of the other tests.
"""

import numpy as np
import pytest

import fusedops as fo
from catalog import BATCHED, LARGE, OPERATIONS, VIEWS, given, results

THREADS = (1, 2, 3, 7)
ROWS = 64
IMAGES = 16
ALL = OPERATIONS | {f"large_{name}": operation for name, operation in LARGE.items()}


def flat(y):
    """The results as a list; a recurrent layer's state stands in a tuple of its own."""
    return [array for part in results(y) for array in results(part)]


def bits(arrays):
    return [np.ascontiguousarray(a).tobytes() for a in arrays]


def drawn(operation, draw, n):
    """Arrays for a batch of n; what is shared is small enough that sums do not grow."""
    arrays = operation.of(n).draw(draw)
    return {k: a if k in BATCHED else a / np.float32(a.shape[-1] ** 0.5) for k, a in arrays.items()}


def call(operation, arrays, **options):
    return flat(operation.function(**arrays, **operation.options, **options))


@pytest.fixture(params=ALL)
def operation(request):
    return ALL[request.param]


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
    size = IMAGES if len(operation.results[0]) == 4 else ROWS
    arrays = drawn(operation, draw, size)
    fo.set_num_threads(1)
    whole = call(operation, arrays)
    expected = {}
    for rows in (0, size), (0, 1), (size - 1, size), (5, 7), (9, 14):
        batch = slice(*rows)
        expected[rows] = bits(y[batch] if y.shape[0] == size else y[:, batch] for y in whole)
    for n in each_number_of_threads():
        for rows, y in expected.items():
            assert bits(call(operation, operation.part(arrays, slice(*rows)))) == y, f"{n} threads, rows {rows}"


def at_offset(a, floats):
    """A copy that begins `floats` elements after a multiple of 64 bytes."""
    memory = np.empty(a.size + 32, np.float32)
    start = -(memory.ctypes.data // 4) % 16 + floats
    copy = memory[start : start + a.size].reshape(a.shape)
    copy[...] = a
    return copy


def test_alignments(isa, draw, operation):
    """Inputs, weights and `out` begin at each of the 16 places in a cache line."""
    arrays = drawn(operation, draw, 2)
    expected = call(operation, arrays)
    for floats in range(16):
        moved = {k: at_offset(v, floats) for k, v in arrays.items()}
        out = given([at_offset(y, floats) for y in expected[: len(operation.results)]])
        assert bits(call(operation, moved, out=out)) == bits(expected), f"{4 * floats} bytes after a cache line"


def test_strides(isa, draw, operation):
    arrays = drawn(operation, draw, 2)
    expected = bits(call(operation, arrays))
    for name, view in VIEWS.items():
        assert bits(call(operation, {k: view(v) for k, v in arrays.items()})) == expected, name


def test_repeats(draw, restored, operation):
    """50 times on each number of threads: what another call left in scratch, and who ran which task, does not show."""
    arrays = drawn(operation, draw, 5)
    first = bits(call(operation, arrays))
    for n in each_number_of_threads():
        assert all(bits(call(operation, arrays)) == first for _ in range(50)), f"{n} threads"
