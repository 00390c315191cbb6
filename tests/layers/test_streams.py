"""Sequences that come frame by frame or in chunks: the bits of the whole at once."""

import copy
import pickle
import tracemalloc
from itertools import pairwise

import numpy as np
import pytest

import fusedops as fo

CHUNKS = [1, 1, 5, 2, 0, 13, 1, 27]  # 50 frames


def pieces(x, axis, chunks=CHUNKS):
    at = np.cumsum([0, *chunks])
    return [x[(slice(None),) * axis + (slice(a, b),)] for a, b in pairwise(at)]


def streamed(stream, x, axis):
    return np.concatenate([*(stream.step(part) for part in pieces(x, axis)), stream.flush()], axis)


def sequences(draw, layout, channels, frames=50, batch=2):
    return draw(*((batch, frames, channels) if layout == "NHWC" else (batch, channels, frames)))


CONVOLUTIONS = [
    (8, 24, 3, dict(padding=(2, 0))),
    (8, 24, 3, dict(padding=1, activation="silu")),
    (8, 24, 5, dict(padding=(5, 7))),
    (8, 24, 1, {}),
    (64, 40, 3, dict(padding=(8, 0), dilation=4, activation="tanh")),
    (24, 9, 7, dict(stride=3, padding=2, groups=3)),
    (16, 16, 4, dict(stride=4)),
    (12, 12, 5, dict(padding="same", groups=12)),
    (12, 24, 4, dict(padding="same", dilation=2)),
    (1, 40, 16, dict(stride=8)),
]
TRANSPOSED = [
    (8, 24, 4, dict(stride=2, padding=1, activation="relu")),
    (8, 24, 3, {}),
    (8, 24, 1, dict(stride=2, padding=1)),
    (24, 9, 7, dict(stride=3, padding=(2, 1), output_padding=2, groups=3)),
    (64, 40, 16, dict(stride=8, padding=4)),
    (16, 8, 2, dict(stride=3, padding="same")),
    (16, 8, 5, dict(stride=2, padding="same")),
    (12, 8, 1, dict(dilation=2, output_padding=1)),
    (12, 8, 3, dict(dilation=3, padding=(0, 6))),
]


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("ic, oc, k, options", CONVOLUTIONS)
def test_conv1d(isa, draw, layout, ic, oc, k, options):
    axis = 1 if layout == "NHWC" else 2
    layer = fo.Conv1d(draw(oc, ic // options.get("groups", 1), k), draw(oc), **options, layout=layout)
    x, stream = sequences(draw, layout, ic), layer.stream(2)
    for _ in range(2):  # flush is a reset
        np.testing.assert_array_equal(streamed(stream, x, axis), layer(x))


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("ic, oc, k, options", TRANSPOSED)
def test_conv_transpose1d(isa, draw, layout, ic, oc, k, options):
    axis = 1 if layout == "NHWC" else 2
    layer = fo.ConvTranspose1d(draw(ic, oc // options.get("groups", 1), k), draw(oc), **options, layout=layout)
    x, stream = sequences(draw, layout, ic), layer.stream(2)
    for _ in range(2):
        np.testing.assert_array_equal(streamed(stream, x, axis), layer(x))


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("kind", ["Conv1d", "ConvTranspose1d"])
def test_chunks_into_any_memory(draw, kind, layout):
    """`out` of either memory order, with gaps, of odd strides, or over x itself."""
    w = draw(4, 4, 3)
    layer = getattr(fo, kind)(w, padding=(2, 0) if kind == "Conv1d" else 0, layout=layout)
    x = sequences(draw, layout, 4, 6)
    expected = layer.stream(2).step(x)
    whole = layer(x)[:, :6] if layout == "NHWC" else layer(x)[:, :, :6]
    np.testing.assert_array_equal(expected, whole)
    odd = np.zeros(expected.size * 5 + 1, np.uint8)[1:].view([("f", "f4"), ("gap", "u1")])["f"].reshape(expected.shape)
    for out in (
        np.empty(expected.shape, np.float32),
        np.empty(expected.shape[::-1], np.float32).T,
        np.empty((*expected.shape, 2), np.float32)[..., 0],
        odd,
    ):
        assert layer.stream(2).step(x, out=out) is out
        np.testing.assert_array_equal(out, expected)
    assert layer.stream(2).step(x, out=x) is x
    np.testing.assert_array_equal(x, expected)


def peak_of(call):
    """The bytes that Python and NumPy take for it."""
    call()
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_step_into_given_memory_makes_no_array(draw):
    stream, x, out = fo.Conv1d(draw(6, 4, 3), padding=(2, 0)).stream(), draw(1, 4), np.empty((1, 6), np.float32)
    assert peak_of(lambda: stream.step(x, out)) < peak_of(lambda: np.empty((1, 6), np.float32))


@pytest.mark.parametrize("frames", [40, 130, 700])
def test_bits_do_not_depend_on_the_length(isa, draw, frames):
    """Sums of one row have one order, however few pixels there are."""
    layer, x = fo.Conv1d(draw(48, 40, 3), draw(48)), draw(1, 40, 700)
    np.testing.assert_array_equal(layer(x[:, :, :frames]), layer(x)[:, :, : frames - 2])


def test_frame_by_frame(draw):
    layer, x = fo.Conv1d(draw(6, 4, 3), draw(6), padding=(4, 0), dilation=2), draw(3, 4, 20)
    expected, stream, out = layer(x), layer.stream(3), np.empty((3, 6), np.float32)
    for t in range(20):
        assert stream.step(x[:, :, t], out=out) is out
        np.testing.assert_array_equal(out, expected[:, :, t])
    one = layer.stream()
    assert one.step(x[0, :, 0]).shape == (6,) and one.step(x[:1, :, 1]).shape == (1, 6)
    with pytest.raises(ValueError, match="pass chunks of shape"):
        fo.Conv1d(draw(6, 4, 3), padding=1).stream().step(x[0, :, 0])


@pytest.mark.parametrize(
    "make", [lambda d: fo.Conv1d(d(6, 4, 5), padding=2, stride=2), lambda d: fo.ConvTranspose1d(d(4, 6, 5), stride=2)]
)
def test_state(draw, make):
    layer, x = make(draw), draw(2, 4, 50)
    stream, first, second = layer.stream(2), x[:, :, :13], x[:, :, 13:]
    stream.step(first)
    kept, others = stream.state, [copy.deepcopy(stream), pickle.loads(pickle.dumps(stream))]
    expected = stream.step(second), stream.flush()
    stream.state = kept
    for other in (stream, *others):
        np.testing.assert_array_equal(other.step(second), expected[0])
        np.testing.assert_array_equal(other.flush(), expected[1])
    stream.step(first)
    stream.reset()
    np.testing.assert_array_equal(stream.step(x), layer.stream(2).step(x))
    for wrong, text in [
        ((kept[0][:, :, :1], kept[1]), "frames of shape"),
        ((kept[0], -1), "-1 frames"),
        (kept[0], "pair|shape"),
    ]:
        with pytest.raises((TypeError, ValueError), match=text):
            stream.state = wrong


def test_what_is_wrong_leaves_the_state(draw):
    layer, x = fo.Conv1d(draw(6, 4, 3), padding=(2, 0)), draw(1, 4, 9)
    stream, expected = layer.stream(), layer(x)
    stream.step(x[:, :, :3])
    for wrong, options, text in [
        (x[:, :3], {}, r"chunks have shape \(1, 4, l\)"),
        (np.repeat(x, 2, 0), {}, "chunks have shape"),
        (x.astype(np.float64), {}, "float64"),
        (x, dict(out=np.empty((1, 6, 3), np.float32)), "out has shape"),
    ]:
        with pytest.raises((TypeError, ValueError), match=text):
            stream.step(wrong, **options)
    np.testing.assert_array_equal(stream.step(x[:, :, 3:]), expected[:, :, 3:])


@pytest.mark.parametrize(
    "options, text", [(dict(stride=4), "within what the kernel spans"), (dict(stride=2, padding="same"), "length")]
)
def test_refused(draw, options, text):
    with pytest.raises(ValueError, match=text):
        fo.Conv1d(draw(6, 4, 3), **options).stream()


# Recurrent layers


GATES = {"RNN": 1, "LSTM": 4, "GRU": 3}


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("kind", GATES)
def test_chunks_of_recurrent_layers(isa, draw, kind, batch, batch_first):
    rows, axis = GATES[kind] * 20, 1 if batch_first else 0
    weights = [[draw(rows, 9) / 3, draw(rows, 20) / 4], [draw(rows, 20) / 4, draw(rows, 20) / 4]]
    layer = getattr(fo, kind)(*map(list, zip(*weights)), num_layers=2, batch_first=batch_first)
    x = draw(*((batch, 50, 9) if batch_first else (50, batch, 9)))
    expected, state = layer(x)
    stream = layer.stream(batch)
    y = np.concatenate([stream.step(part) for part in pieces(x, axis)], axis)
    np.testing.assert_array_equal(y, expected)
    for mine, whole in zip(*(s if isinstance(s, tuple) else (s,) for s in (stream.state, state))):
        np.testing.assert_array_equal(mine, whole)
    stream.reset()
    strange = np.asfortranarray(x[(slice(None),) * axis + (slice(7),)])
    out = np.asfortranarray(np.zeros((*strange.shape[:2], 20), np.float32))
    assert stream.step(strange, out=out) is out
    np.testing.assert_array_equal(out, expected[(slice(None),) * axis + (slice(7),)])
    if batch == 1:
        stream.reset()
        np.testing.assert_array_equal(stream.step(x.reshape(50, 9)), expected.reshape(50, 20))
    with pytest.raises(ValueError, match="chunks of them"):
        stream.step(draw(2, batch + 3, 9) if not batch_first else draw(batch + 3, 2, 9))
