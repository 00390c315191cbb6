"""The same bits every time: whatever the threads, the batch around a row, the place of arrays in memory, and the call.

Other instruction sets may differ, within the error bounds of the other tests.
"""
from hashlib import sha256

import numpy as np
import pytest

import fusedops as fo
from operations import BATCHED, LARGE, OPERATIONS, VIEWS, given, results

THREADS = (1, 2, 3, 7)
ROWS = 64
BATCHES = [slice(0, 64), slice(0, 1), slice(63, 64), slice(5, 7), slice(17, 22)]  # 64, 1, 1, 2 and 5 of the same 64
ALL = OPERATIONS | {f"large_{name}": operation for name, operation in LARGE.items()}


def flat(y):
    """The results as a list; a recurrent layer's state stands in a tuple of its own."""
    return [array for part in results(y) for array in results(part)]


def digest(arrays):
    h = sha256()
    for a in arrays:
        h.update(np.ascontiguousarray(a).tobytes())
    return h.hexdigest()


def drawn(operation, draw, n=ROWS):
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
    arrays = drawn(operation, draw)
    fo.set_num_threads(1)
    whole = call(operation, arrays)
    for n in each_number_of_threads():
        for batch in BATCHES:
            expected = [y[batch] if y.shape[0] == ROWS else y[:, batch] for y in whole]
            actual = call(operation, operation.part(arrays, batch))
            assert digest(actual) == digest(expected), f"{n} threads, rows {batch}"


def at_offset(a, floats):
    """A copy that begins `floats` elements behind a multiple of 64 bytes."""
    memory = np.empty(a.size + 32, np.float32)
    start = -(memory.ctypes.data // 4) % 16 + floats
    copy = memory[start: start + a.size].reshape(a.shape)
    copy[...] = a
    return copy


def test_alignments(isa, draw, operation):
    """Inputs, weights and `out` begin at each of the 16 places in a cache line."""
    arrays = drawn(operation, draw, 2)
    expected = call(operation, arrays)
    for floats in range(16):
        moved = {k: at_offset(v, floats) for k, v in arrays.items()}
        out = given([at_offset(y, floats) for y in expected[:len(operation.results)]])
        assert digest(call(operation, moved, out=out)) == digest(expected), f"{4 * floats} bytes behind a cache line"


def test_strides(isa, draw, operation):
    arrays = drawn(operation, draw, 2)
    expected = digest(call(operation, arrays))
    for name, view in VIEWS.items():
        assert digest(call(operation, {k: view(v) for k, v in arrays.items()})) == expected, name


def test_repeats(draw, restored, operation):
    """50 times on each number of threads: what another call left in scratch, and who ran which task, does not show."""
    arrays = drawn(operation, draw, 5)
    digests = {digest(call(operation, arrays)) for _ in each_number_of_threads() for _ in range(50)}
    assert len(digests) == 1
