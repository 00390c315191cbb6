"""Prepared layers: the one-shot functions' bits, and everything one does with an object."""

import copy
import pickle
import re
import threading

import numpy as np
import pytest

import fusedops as fo
from catalog import results, using_isa

CONV = dict(stride=(2, 1), padding=((1, 0), (1, 2)))
DEPTHWISE = dict(groups=6, padding=1, layout="NHWC", activation=("clip", -0.5, 0.5))


def _conv2d(w, bias=None, bn=None, **options):
    return fo.Conv2d(w, bias, bn, **options), lambda x, **o: fo.conv2d(x, w, bias=bias, bn=bn, **options, **o)


def _linear(w, **options):
    return fo.Linear(w, **options), lambda x, **o: fo.linear(x, w, **options, **o)


def _cell(layer, function, gates, draw, **options):
    weights = draw(gates * 11, 7), draw(gates * 11, 11), draw(gates * 11), draw(gates * 11)
    return layer(*weights, **options), lambda *arrays, **o: function(*arrays, *weights, **options, **o)


# Kind: how to make the layer and the one-shot call that does the same, and the shapes of its arrays.
KINDS = {
    "conv": (
        lambda draw: _conv2d(draw(9, 3, 3, 3), draw(9), draw.batch_norm(9), activation=("prelu", draw(9)), **CONV),
        [(2, 3, 8, 9)],
    ),
    "conv_auto": (lambda draw: _conv2d(draw(9, 3, 3, 3), padding=1), [(2, 3, 16, 16)]),
    "depthwise": (lambda draw: _conv2d(draw(6, 1, 3, 3), **DEPTHWISE), [(2, 7, 8, 6)]),
    "linear": (lambda draw: _linear(draw(19, 13), bias=draw(19), activation="gelu"), [(5, 13)]),
    "rnn": (lambda draw: _cell(fo.RNNCell, fo.rnn_cell, 1, draw, activation="relu"), [(5, 7), (5, 11)]),
    "lstm": (lambda draw: _cell(fo.LSTMCell, fo.lstm_cell, 4, draw), [(5, 7), (5, 11), (5, 11)]),
    "gru": (lambda draw: _cell(fo.GRUCell, fo.gru_cell, 3, draw), [(5, 7), (5, 11)]),
    "gru_reset_before": (lambda draw: _cell(fo.GRUCell, fo.gru_cell, 3, draw, reset_after=False), [(5, 7), (5, 11)]),
}


def make(draw, kind):
    """A layer, the same as a one-shot call, and arrays for both."""
    layer_and_function, shapes = KINDS[kind]
    return *layer_and_function(draw), [draw(*shape) for shape in shapes]


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


def equal(actual, expected):
    for y, y_expected in zip(results(actual), results(expected), strict=True):
        np.testing.assert_array_equal(y, y_expected)


def test_same_bits_as_the_one_shot_function(isa, draw, kind):
    layer, one_shot, arrays = make(draw, kind)
    equal(layer(*arrays), one_shot(*arrays))


def test_called_again_and_with_other_sizes(isa, draw, kind):
    layer, one_shot, arrays = make(draw, kind)
    expected = layer(*arrays)
    layer(*(np.concatenate([a, a, a]) for a in arrays))
    layer(*(a[:1] for a in arrays))
    equal(layer(*arrays), expected)


def test_an_image_of_another_size(isa, draw):
    w = draw(9, 3, 3, 3)
    layer = fo.Conv2d(w, padding=1)
    for size in [(8, 9), (3, 3), (1, 1), (31, 5)]:
        x = draw(1, 3, *size)
        np.testing.assert_array_equal(layer(x), fo.conv2d(x, w, padding=1))


def test_calls_that_differ_in_one_thing(isa, draw):
    """What a layer keeps of its last call serves calls that are like it alone."""
    w, x, residual = draw(5, 3, 3, 3), draw(2, 3, 6, 7), draw(2, 5, 6, 7)
    layer, oneshot = _conv2d(w, padding=1, algorithm="direct")
    channels_last, strided = (
        np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2),
        draw(2, 3, 6, 14)[..., ::2],
    )
    out = np.empty((2, 5, 6, 14), np.float32)[..., ::2]
    calls = [
        dict(x=x),
        dict(x=x[:1]),
        dict(x=x[:, :, :4]),
        dict(x=x[..., :5]),
        dict(x=channels_last),
        dict(x=strided),
        dict(x=x, residual=residual),
        dict(x=x, residual=residual.copy(order="F")),
        dict(x=x, out=out),
        dict(x=draw(2, 3, 6, 7)),
    ]
    expected = [oneshot(**call).copy() for call in calls]
    for i in [j for a in range(len(calls)) for b in range(len(calls)) for j in (a, b)]:
        np.testing.assert_array_equal(layer(**calls[i]), expected[i])


def test_residual(isa, draw):
    conv, one_shot, [x] = make(draw, "conv")
    residual = draw(*conv(x).shape)
    equal(conv(x, residual), one_shot(x, residual=residual))
    equal(conv(x, residual=residual), one_shot(x, residual=residual))
    linear, one_shot, [x] = make(draw, "linear")
    residual = draw(5, 19)
    equal(linear(x, residual), one_shot(x, residual=residual))


def test_out(isa, draw, kind):
    layer, _, arrays = make(draw, kind)
    expected = results(layer(*arrays))
    out = tuple(np.empty_like(y) for y in expected)
    y = layer(*arrays, out=out if len(out) > 1 else out[0])
    assert all(a is b for a, b in zip(results(y), out))
    equal(out, expected)


@pytest.mark.parametrize(
    "copied",
    [copy.copy, copy.deepcopy, lambda layer: pickle.loads(pickle.dumps(layer))],
    ids=["copy", "deepcopy", "pickle"],
)
def test_copies(isa, draw, kind, copied):
    layer, _, arrays = make(draw, kind)
    other = copied(layer)
    assert type(other) is type(layer) and repr(other) == repr(layer)
    equal(other(*arrays), layer(*arrays))


class Named(fo.Linear):
    """One whose __init__ takes something else."""

    def __init__(self, name, n, k):
        super().__init__(np.arange(n * k, dtype=np.float32).reshape(n, k), activation="relu")
        self.name = name


class Backwards(fo.GRU):
    def __init__(self, name):
        super().__init__(np.ones((6, 3), np.float32), np.ones((6, 2), np.float32), reverse=True)
        self.name = name


@pytest.mark.parametrize(
    "layer, shape", [(Named("first", 5, 3), (2, 3)), (Backwards("second"), (4, 2, 3))], ids=["layer", "sequence"]
)
def test_a_subclass_travels_with_what_it_adds(draw, layer, shape):
    x, other = draw(*shape), pickle.loads(pickle.dumps(layer))
    assert type(other) is type(layer) and other.name == layer.name and repr(other) == repr(layer)
    equal(other(x)[0], layer(x)[0])


@pytest.mark.parametrize(
    "make, option",
    [
        (lambda draw, o: fo.Conv2d(draw(2, 3, 3, 3), padding=o), [1, 1]),
        (lambda draw, o: fo.Conv2d(draw(2, 3, 3, 3), padding=o), np.array([1, 1])),
        (lambda draw, o: fo.Conv2d(draw(2, 3, 3, 3), padding=(o, (0, 1))), [1, 0]),
        (lambda draw, o: fo.Conv2d(draw(2, 3, 3, 3), stride=o), [2, 2]),
        (lambda draw, o: fo.Conv2d(draw(2, 3, 3, 3), activation=o), ["clip", -1, 1]),
        (lambda draw, o: fo.Linear(draw(2, 3), activation=o), ["clip", -1, 1]),
        (lambda draw, o: fo.RNNCell(draw(2, 3), draw(2, 2), activation=o), ["clip", -1, 1]),
        (lambda draw, o: fo.RNN(draw(2, 3), draw(2, 2), activation=o), ["clip", -1, 1]),
    ],
)
def test_an_option_that_changes_later(draw, make, option):
    layer = make(draw, option)
    before = repr(layer)
    option[-1] = 5
    assert repr(layer) == repr(pickle.loads(pickle.dumps(layer))) == before


def test_pickled_under_another_instruction_set(draw, kind):
    """Weights are packed again where the layer is loaded."""
    layer, one_shot, arrays = make(draw, kind)
    pickled = pickle.dumps(layer)
    for name in fo.available_isas():
        with using_isa(name):
            equal(pickle.loads(pickled)(*arrays), one_shot(*arrays))


def test_layer_outlives_a_change_of_instruction_set(draw, kind):
    for made in fo.available_isas():
        with using_isa(made):
            layer, _, arrays = make(draw, kind)
            expected = layer(*arrays)
        for used in fo.available_isas():
            with using_isa(used):
                equal(layer(*arrays), expected)


def test_reentrant(draw, kind):
    """One layer, called from many Python threads with different inputs."""
    layer, _, arrays = make(draw, kind)
    inputs = [[draw(*a.shape) for a in arrays] for _ in range(6)]
    expected = [results(layer(*a)) for a in inputs]
    wrong = []

    def work(a, expected):
        for _ in range(30):
            if any((y != y_one).any() for y, y_one in zip(results(layer(*a)), expected)):
                wrong.append(kind)

    threads = [threading.Thread(target=work, args=pair) for pair in zip(inputs, expected)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


UNMADE = {
    fo.Conv2d: [(1, 0, 5, 5)],
    fo.DepthwiseSeparable: [(1, 0, 5, 5)],
    fo.Linear: [(2, 0)],
    fo.RNNCell: [(2, 0)] * 2,
    fo.GRUCell: [(2, 0)] * 2,
    fo.LSTMCell: [(2, 0)] * 3,
    fo.RNN: [(3, 2, 0)],
}


@pytest.mark.parametrize("layer", UNMADE, ids=lambda layer: layer.__name__)
def test_a_subclass_that_forgets_init(layer):
    """An error, not a call with weights that are not there."""

    class Forgetful(layer):
        def __init__(self):
            pass

    with pytest.raises(RuntimeError, match="Forgetful.*__init__"):
        Forgetful()(*(np.zeros(shape, np.float32) for shape in UNMADE[layer]))
    uses = [repr, pickle.dumps]
    uses += [lambda made: made.output_shape((1, 0, 5, 5))] * hasattr(layer, "output_shape")
    uses += [lambda made: made.stream()] * hasattr(layer, "stream")
    for use in uses:
        with pytest.raises(RuntimeError, match="Forgetful.*__init__"):
            use(Forgetful())


def test_a_layer_does_not_change(draw, kind):
    """Blocks, sequences and streams point to what the first __init__ made."""
    layer, one_shot, arrays = make(draw, kind)
    (*weights,), options = layer._arguments
    with pytest.raises(RuntimeError, match=f"{type(layer).__name__}.*does not change"):
        layer.__init__(*weights, **options)
    equal(layer(*arrays), one_shot(*arrays))


def test_a_block_or_sequence_does_not_change(draw):
    depthwise, pointwise = fo.Conv2d(draw(6, 1, 3, 3), groups=6), fo.Conv2d(draw(4, 6, 1, 1))
    block, sequence = fo.DepthwiseSeparable(depthwise, pointwise), fo.RNN(draw(5, 3), draw(5, 5))
    with pytest.raises(RuntimeError, match="does not change"):
        block.__init__(depthwise, fo.Conv2d(draw(400, 6, 1, 1)))
    with pytest.raises(RuntimeError, match="does not change"):
        sequence.__init__(draw(500, 3), draw(500, 500))


@pytest.mark.parametrize(
    "name, texts",
    [
        ("conv", ["Conv2d", "3", "9", "prelu", "stride"]),
        ("conv_auto", ["Conv2d", "padding=1"]),
        ("depthwise", ["Conv2d", "6", "groups", "NHWC"]),
        ("linear", ["Linear", "13", "19", "gelu"]),
        ("rnn", ["RNNCell", "7", "11", "relu"]),
        ("lstm", ["LSTMCell", "7", "11"]),
        ("gru_reset_before", ["GRUCell", "7", "11", "reset_after=False"]),
    ],
)
def test_repr(draw, name, texts):
    text = repr(make(draw, name)[0])
    assert "\n" not in text and all(t in text for t in texts), text


def test_many_outputs_of_no_inputs():
    """There is nothing to pack, however many they are."""
    layer = fo.Linear(np.empty((2**40, 0), np.float32))
    assert layer(np.empty((0, 0), np.float32)).shape == (0, 2**40)


@pytest.mark.parametrize("made", [lambda w: fo.Linear(w), lambda w: fo.RNN(w, w[:, :4])])
def test_pickled_when_a_module_had_all_layers(draw, made):
    layer, x = made(draw(4, 5)), draw(2, 3, 5)
    data = re.sub(rb"layers\.(cells|sequences|stacks)\n", rb"recurrent\n", pickle.dumps(layer, protocol=0))
    data = re.sub(rb"layers\.\w+\n", rb"layers\n", data)
    data = data.replace(b"\nrebuilt", b"\n_rebuild").replace(b"\nassembled", b"\n_assembled")
    assert b"\n_rebuild" in data and b"layers." not in data and b"cells" not in data
    np.testing.assert_array_equal(pickle.loads(data)(x)[0], layer(x)[0])
