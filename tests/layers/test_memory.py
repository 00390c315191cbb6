"""Arrays of any memory: the result has the same bits, and nothing outside of `out` is written."""

import contextvars
import pickle
import sys
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from itertools import combinations, pairwise, product

import numpy as np
import pytest

import fusedops as fo
from catalog import OPERATIONS, VIEWS, given, misaligned, python
from fusedops import _core
from fusedops.graph.steps import tensor as memory

ARGUMENTS = [(name, argument) for name, operation in OPERATIONS.items() for argument in operation.arrays]


@pytest.mark.parametrize("name, argument", ARGUMENTS)
def test_inputs(isa, draw, name, argument):
    arrays = OPERATIONS[name].draw(draw)
    expected = OPERATIONS[name](arrays)
    for view in VIEWS.values():
        for y, y_expected in zip(OPERATIONS[name](arrays | {argument: view(arrays[argument])}), expected):
            np.testing.assert_array_equal(y, y_expected)


@pytest.mark.parametrize("name", OPERATIONS)
def test_all_inputs_at_once(isa, draw, name):
    arrays = OPERATIONS[name].draw(draw)
    expected = OPERATIONS[name](arrays)
    for kind, view in VIEWS.items():
        viewed = {argument: view(a) for argument, a in arrays.items()}
        for y, y_expected in zip(OPERATIONS[name](viewed), expected):
            np.testing.assert_array_equal(y, y_expected, kind)


@pytest.mark.parametrize("name, argument", ARGUMENTS)
def test_read_only(draw, name, argument):
    arrays = OPERATIONS[name].draw(draw)
    expected = OPERATIONS[name](arrays)
    arrays[argument].flags.writeable = False
    for y, y_expected in zip(OPERATIONS[name](arrays), expected):
        np.testing.assert_array_equal(y, y_expected)


@pytest.mark.parametrize("name, argument", ARGUMENTS)
def test_broadcast(draw, name, argument):
    """One element, or one row, seen many times."""
    arrays = OPERATIONS[name].draw(draw)
    shape = arrays[argument].shape
    for small in (draw(), draw(shape[-1]), draw(*shape[:-1], 1)):
        views = [np.broadcast_to(small, shape), np.broadcast_to(small, shape).copy()]
        for y, y_copied in zip(*(OPERATIONS[name](arrays | {argument: a}) for a in views)):
            np.testing.assert_array_equal(y, y_copied)


def test_memory_mapped(draw, tmp_path):
    np.save(tmp_path / "w.npy", draw(5, 3, 3, 3))
    x, mapped = draw(1, 3, 6, 6), np.load(tmp_path / "w.npy", mmap_mode="r")
    np.testing.assert_array_equal(fo.conv2d(x, mapped), fo.conv2d(x, np.array(mapped)))


def test_array_protocol(draw):
    class Wrapped:
        def __init__(self, array):
            self.array = array

        def __array__(self, dtype=None, copy=None):
            return self.array

    x, w = draw(3, 5), draw(4, 5)
    np.testing.assert_array_equal(fo.linear(Wrapped(x), Wrapped(w)), fo.linear(x, w))


# out=


@pytest.mark.parametrize("name", OPERATIONS)
def test_out_is_returned(isa, draw, name):
    operation = OPERATIONS[name]
    arrays, out = operation.draw(draw), operation.out()
    for y, o, expected in zip(operation(arrays, out=given(out)), out, operation(arrays)):
        assert y is o
        np.testing.assert_array_equal(o, expected)


@pytest.mark.parametrize("name", OPERATIONS)
def test_out_of_any_strides(isa, draw, name):
    operation = OPERATIONS[name]
    arrays = operation.draw(draw)
    expected = operation(arrays)
    for kind, view in VIEWS.items():
        out = [view(np.full(shape, np.nan, np.float32)) for shape in operation.results]
        around = [_everything_else(y) for y in out]
        operation(arrays, out=given(out))
        for y, y_expected, (base, inside, before) in zip(out, expected, around):
            np.testing.assert_array_equal(y, y_expected, kind)
            assert base[~inside].tobytes() == before, kind


def _everything_else(view):
    """The bytes of the memory that a view is part of, which of them the view covers, and what the others hold."""
    owner = view
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    base = np.ndarray(owner.nbytes, np.uint8, owner.data if owner.flags.c_contiguous else owner.T.data)
    start = base.__array_interface__["data"][0]
    inside = np.zeros(base.size, bool)
    at = view.__array_interface__["data"][0] - start
    for byte in range(view.itemsize):
        np.ndarray(view.shape, bool, inside, at + byte, view.strides)[...] = True
    return base, inside, base[~inside].tobytes()


def overlapping(draw, shape, result, shift):
    """Arrays of both shapes that begin `shift` elements apart in one buffer."""
    size, count = int(np.prod(shape)), int(np.prod(result))
    buffer = draw(size + count + abs(shift))
    start, at = max(0, -shift), max(0, shift)
    return buffer[start : start + size].reshape(shape), buffer[at : at + count].reshape(result)


@pytest.mark.parametrize("name, argument", ARGUMENTS)
def test_out_that_overlaps_an_input(isa, draw, name, argument):
    """The right answer or a ValueError, never anything else."""
    operation = OPERATIONS[name]
    for shift, (i, result) in product([0, 1, -1, 5, -17], enumerate(operation.results)):
        arrays, out = operation.draw(draw), operation.out()
        arrays[argument], out[i] = overlapping(draw, operation.arrays[argument], result, shift)
        before = out[i].copy()
        expected = operation({k: v.copy() for k, v in arrays.items()})
        try:
            operation(arrays, out=given(out))
        except ValueError as error:
            assert "out" in str(error)
            np.testing.assert_array_equal(out[i], before)
        else:
            for y, y_expected in zip(out, expected):
                np.testing.assert_array_equal(y, y_expected)


def test_the_two_results_of_an_lstm_cell_overlap(draw):
    operation = OPERATIONS["lstm_cell"]
    buffer = np.full((3, 14), 7, np.float32)
    with pytest.raises(ValueError, match="out"):
        operation(operation.draw(draw), out=(buffer[:, :13], buffer[:, 1:]))
    assert (buffer == 7).all()


def test_state_in_place(isa, draw):
    """h and c as their own results, as a loop over time steps has them."""
    operation = OPERATIONS["lstm_cell"]
    arrays = operation.draw(draw)
    expected = operation(arrays)
    try:
        operation(arrays, out=(arrays["h"], arrays["c"]))
    except ValueError as error:
        assert "out" in str(error)
    else:
        np.testing.assert_array_equal(arrays["h"], expected[0])
        np.testing.assert_array_equal(arrays["c"], expected[1])


# No hidden copies

PEAK = """
import resource
import numpy as np
import fusedops as fo
layer = fo.Conv2d(np.ones((4, 4, 1, 1), np.float32), stride=64, layout={layout!r})
layer({small})
x = {large}
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
layer(x)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss has other units elsewhere")
@pytest.mark.parametrize(
    "layout, array",
    [
        ("NCHW", "np.zeros((1, 4, {n}, {n}), np.float32)"),
        ("NHWC", "np.zeros((1, {n}, {n}, 4), np.float32)"),
        ("NCHW", "np.zeros((1, {n}, {n}, 4), np.float32).transpose(0, 3, 1, 2)"),
        ("NHWC", "np.zeros((1, {n}, 2 * {n}, 8), np.float32)[:, :, ::2, 2:6]"),
    ],
    ids=["nchw", "nhwc", "channels_last", "part"],
)
def test_an_image_is_read_as_it_lies(layout, array):
    """One pixel in 4096 is read: a copy of the 256 MB image would show."""
    done = python(PEAK.format(layout=layout, small=array.format(n=64), large=array.format(n=4096)))
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 64 * 1024, "kB more than before the call"


def test_result_keeps_the_memory_order_of_the_input(draw):
    x = draw(2, 6, 7, 5).transpose(0, 3, 1, 2)
    y = fo.conv2d(x, draw(9, 5, 3, 3))
    assert y.shape == (2, 9, 4, 5)
    assert y.transpose(0, 2, 3, 1).flags.c_contiguous


def at_byte(a, byte):
    """A copy of a that begins so many bytes past a line of the cache."""
    memory = np.empty(a.nbytes + 128, np.uint8)
    start = -memory.ctypes.data % 64 + byte
    copy = memory[start : start + a.nbytes].view(np.float32).reshape(a.shape)
    copy[...] = a
    return copy


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("groups", [1, 32])
def test_a_large_result_begins_at_a_line_of_the_cache(draw, groups, channels_last):
    w = draw(32, 32 // groups, 1, 1)
    for byte in (0, 16):
        x = at_byte(draw(1, 32, 32, 32), byte)
        y = fo.conv2d(x.transpose(0, 3, 1, 2) if channels_last else x, w, groups=groups)
        if byte == 0 or groups == 1:  # a depthwise result follows x
            assert y.ctypes.data % 64 == 0


@pytest.mark.parametrize("channels_last", [False, True])
def test_a_large_result_does_not_lie_where_the_input_does_in_a_page(draw, channels_last):
    for byte in (0, 16, 48):
        x = at_byte(draw(1, 32, 32, 32), byte)
        y = fo.depthwise_conv2d(x.transpose(0, 3, 1, 2) if channels_last else x, draw(32, 1, 1, 1))
        # no store is waited for by a load that follows, and both begin alike in a line
        assert (y.ctypes.data - x.ctypes.data) % 4096 == 2560


@pytest.mark.parametrize(
    "sizes", [[401408] * 6, [1 << 20, 65536, 401408, 100, 802816, 1 << 19]], ids=["alike", "mixed"]
)
def test_images_of_a_network_do_not_lie_where_their_input_does_in_a_page(sizes):
    chain = [memory.Buffer(nbytes, first=step, last=step + 1) for step, nbytes in enumerate(sizes)]
    kept = memory.Buffer(sizes[0], first=0, last=len(sizes))  # as an image that a later step adds
    top = memory.lay_out([*chain, kept])
    for x, y in pairwise(chain):
        assert min(x.nbytes, y.nbytes) < _core.PLACED or 1024 <= (y.offset - x.offset) % 4096 <= 3072
    for a, b in combinations([*chain, kept], 2):
        assert not a.meets(b) or a.offset + a.nbytes <= b.offset or b.offset + b.nbytes <= a.offset
    assert all(b.offset % memory.ALIGNMENT == 0 and b.offset + b.nbytes <= top for b in [*chain, kept])


def plain_layout(buffers):
    """{buffer: offset} of small buffers and the bytes of all, each by a comparison with all others: the lowest free
    places, or, where that takes little more memory, the middles of the first free lanes."""

    def aligned(n):
        return -(-n // memory.ALIGNMENT) * memory.ALIGNMENT

    tight, lanes, middle, top = {}, [], {}, 0
    for b in sorted(buffers, key=lambda b: (-b.nbytes, b.first)):
        offset = 0
        for other in sorted(filter(b.meets, tight), key=tight.get):
            if tight[other] < offset + b.nbytes:
                offset = max(offset, aligned(tight[other] + other.nbytes))
        tight[b] = offset
        free = next((lane for lane in lanes if not any(map(b.meets, lane))), None)
        lanes += [[]] if free is None else []
        (lanes[-1] if free is None else free).append(b)
    for lane in lanes:
        middle |= {b: aligned(top + (lane[0].nbytes - b.nbytes) // 2) for b in lane}
        top = max(top, *(middle[b] + b.nbytes for b in lane))
    lowest = max(tight[b] + b.nbytes for b in buffers)
    return (middle, top) if top <= 1.25 * lowest else (tight, lowest)


@pytest.mark.parametrize("spans", [2, 5, 40])
def test_layouts_of_many_buffers(spans):
    rng = np.random.default_rng(spans)
    for n in (1, 2, 10, 60, 200):
        first, last = rng.integers(0, 3 * n, n), rng.integers(0, spans, n)
        sizes = rng.choice([0, 4, 256, 1000, 60000], n) if n % 20 else rng.integers(0, 5000, n)
        buffers = [
            memory.Buffer(int(size), first=int(f), last=int(f + m))
            for size, f, m in zip(sizes, first, last, strict=True)
        ]
        top = memory.lay_out(buffers)
        assert ({b: b.offset for b in buffers}, top) == plain_layout(buffers)


def test_layouts_of_lives_that_end_before_they_begin():
    for first, last in ((2, 1), (-1, 1)):
        with pytest.raises(ValueError, match="in use"):
            memory.lay_out([memory.Buffer(8, first=first, last=last)])


def test_a_large_result_is_an_array_as_any_other(draw):
    x, w = draw(256, 64), draw(128, 64)
    tracemalloc.start()
    y = fo.linear(x, w)
    traced = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert traced >= y.nbytes and y.flags.owndata and y.base is None
    copy = y.copy()
    y.resize((512, 128), refcheck=False)  # reallocates
    np.testing.assert_array_equal(y[:256], copy)
    assert not y[256:].any()
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(y)), y)


def test_results_from_many_threads_and_contexts(draw):
    x, w = draw(256, 64), draw(128, 64)
    expected = fo.linear(x, w)

    def one(_):
        y = contextvars.Context().run(fo.linear, x, w)
        return y.ctypes.data % 64, np.array_equal(y, expected)

    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(one, range(64))) == {(0, True)}


def test_weights_are_copied_when_they_are_packed(draw):
    x, w, bias, slopes = draw(3, 5), draw(4, 5), draw(4), draw(4)
    layer = fo.Linear(w, bias, activation=("prelu", slopes))
    expected = layer(x)
    w[:], bias[:], slopes[:] = 0, 0, 0
    np.testing.assert_array_equal(layer(x), expected)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(layer))(x), expected)


def test_misaligned_image(isa, draw):
    for offset in (1, 2, 3):
        x, w = draw(2, 5, 9, 19), draw(7, 5, 3, 3)
        np.testing.assert_array_equal(fo.conv2d(misaligned(x, offset), w), fo.conv2d(x, w))


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("shape", [(1, 4, 6, 4), (0, 4, 6, 4), (1, 4, 1, 4)])
def test_a_field_of_one_record(isa, draw, layout, shape):
    """NumPy calls it contiguous and aligned: the strides of an axis of one element, or of an array of none, mean
    nothing."""
    x, residual = draw(*shape), draw(*shape)
    layer = fo.Conv2d(draw(4, 4, 1, 1), layout=layout)
    field = VIEWS["field_of_records"]
    assert field(x).flags.c_contiguous and field(x).flags.aligned and (field(x).strides[0] % 4 or not len(x))
    np.testing.assert_array_equal(layer(field(x), field(residual), out=field(x)), layer(x, residual))


@pytest.mark.parametrize("batch_first", [False, True])
def test_a_field_of_one_record_as_steps(isa, draw, batch_first):
    layer, field = fo.LSTM(draw(32, 5), draw(32, 8), batch_first=batch_first), VIEWS["field_of_records"]
    for shape in (1, 7, 5), (1, 1, 5), (0, 7, 5), (1, 0, 5):
        x, state = draw(*shape), tuple(draw(1, shape[0 if batch_first else 1], 8) for _ in range(2))
        expected = layer(x, state)
        y, last = layer(field(x), tuple(map(field, state)), out=field(expected[0]))
        np.testing.assert_array_equal(y, expected[0])
        np.testing.assert_array_equal(last, expected[1])
