"""Calls that want some of the outputs, and networks with a number of threads of their own."""

import pickle
import threading

import numpy as np
import pytest

pytest.importorskip("onnx")
from onnx.parser import parse_model

import fusedops as fo
from fusedops import _core
from fusedops.graph.runtime.threads import limited

TEXT = """<ir_version: 8, opset_import: ["" : 17]>
net (float[n, 3] x, int64[k] shape) => (float[n, 3] y, float[m] z, float[n, 3] twice) {
    h = Add(x, x)
    y = Relu(h)
    z = Reshape(x, shape)
    twice = Add(h, h)
}"""
X, SHAPE, WRONG = np.float32([[-1, 0, 2]]), np.array([3]), np.array([7])


@pytest.fixture
def net():
    return fo.load_onnx(parse_model(TEXT))


def test_chosen_outputs(net):
    y, z, twice = net(X, SHAPE)
    assert np.array_equal(net(X, SHAPE, outputs="y"), y) and np.array_equal(net(X, SHAPE, outputs=["y"]), y)
    second, first = net(X, shape=SHAPE, outputs=("twice", "y"))
    assert np.array_equal(second, twice) and np.array_equal(first, y)
    assert all(np.array_equal(a, b) for a, b in zip(net(X, SHAPE, outputs=("y", "z", "twice")), (y, z, twice)))
    assert list(net.run({"x": X, "shape": SHAPE}, outputs=["z"])) == ["z"]
    assert np.array_equal(net.run({"x": X, "shape": SHAPE}, outputs="z")["z"], z)


def test_others_are_not_computed(net):
    with pytest.raises(ValueError, match="Reshape"):
        net(X, WRONG)
    assert np.array_equal(net(X, WRONG, outputs="y"), [[0, 0, 4]])


def test_chosen_outputs_are_written(net):
    y, twice = np.empty((1, 3), np.float32), np.empty((1, 3), np.float32)
    assert net(X, SHAPE, outputs="y", out=y) is y and np.array_equal(y, [[0, 0, 4]])
    results = net(X, SHAPE, outputs=("twice", "y"), out={"twice": twice})
    assert results[0] is twice and np.array_equal(twice, 4 * X)


@pytest.mark.parametrize(
    ("outputs", "words"),
    [
        (("y", "h"), "no output 'h': its outputs are y, z, twice"),
        ((), "outputs names none"),
        (("y", "y"), "more than once: y, y"),
    ],
)
def test_wrong_outputs(net, outputs, words):
    with pytest.raises(fo.InvalidArgument, match=words):
        net(X, SHAPE, outputs=outputs)


def test_weights_are_packed_once(rng=np.random.default_rng(0)):
    text = """<ir_version: 8, opset_import: ["" : 17]>
    net (float[n, 64] x, float[64, 64] w) => (float[n, 64] y, float[n, 64] z)
    { h = MatMul(x, w)  y = Relu(h)  z = Neg(h) }"""
    proto = parse_model(text)
    from onnx import numpy_helper

    proto.graph.initializer.append(numpy_helper.from_array(rng.standard_normal((64, 64), np.float32), "w"))
    del proto.graph.input[1]
    net, x = fo.load_onnx(proto), rng.standard_normal((2, 64), np.float32)
    y, z = net(x)
    before = dict(net._session.layers)
    assert np.array_equal(net(x, outputs="z"), z) and np.array_equal(net(x, outputs="y"), y)
    assert before and dict(net._session.layers) == before


def test_an_optional_input_and_a_chosen_output():
    net = fo.load_onnx(
        parse_model("""<ir_version: 8, opset_import: ["" : 17]>
    net (float[n] x, float[1] scale = {2}) => (float[n] y, float[n] z) { y = Mul(x, scale)  z = Neg(x) }""")
    )
    assert [(v.name, v.shape, v.optional) for v in net.optional_inputs] == [("scale", (1,), True)]
    assert not net.inputs[0].optional
    x = np.float32([3])
    assert net(x, outputs="y") == 6 and net(x, scale=np.float32([5]), outputs="y") == 15


def test_random_numbers_of_chosen_outputs():
    net = fo.load_onnx(
        parse_model("""<ir_version: 8, opset_import: ["" : 17]>
    net (float[n] x) => (float[n] y, float[n] z) { r = RandomNormalLike(x)  y = Add(x, r)  z = Neg(x) }"""),
        seed=1,
    )
    x = np.zeros(4, np.float32)
    first = net(x)[0]
    net.seed(1)
    assert np.array_equal(net(x, outputs="y"), first)


def test_a_missing_input_is_named(net):
    for call in (lambda: net(X), lambda: net.run({"x": X}), lambda: net(x=X)):
        with pytest.raises(fo.InvalidArgument, match="shape is missing"):
            call()


# ---- threads


@pytest.mark.parametrize("n", [0, 1025, -1])
def test_numbers_of_threads_that_cannot_be(n):
    with pytest.raises(ValueError, match=f"num_threads is {n}, but must be between 1 and 1024"):
        fo.load_onnx(parse_model(TEXT), num_threads=n)
    with pytest.raises(TypeError, match="num_threads is an int"):
        fo.load_onnx(parse_model(TEXT), num_threads=1.5)


@pytest.fixture
def two_threads():
    before = fo.get_num_threads()
    fo.set_num_threads(2)
    yield
    fo.set_num_threads(before)


def test_networks_have_threads_of_their_own(two_threads):
    one, all_ = fo.load_onnx(parse_model(TEXT), num_threads=1), fo.load_onnx(parse_model(TEXT))
    assert one.num_threads == 1 and all_.num_threads is None
    x = np.ones((4, 3), np.float32)
    for net in (one, all_):
        net(x, np.array([12]))
    assert [key[0] for key in one._session._plans] == [1] and [key[0] for key in all_._session._plans] == [2]
    assert pickle.loads(pickle.dumps(one)).num_threads == 1


def test_side_by_side(two_threads):
    """While a call with one thread lasts, another has two."""
    barrier, found = threading.Barrier(2, timeout=20), {}

    def tell(n):
        barrier.wait()
        found[n] = _core.get_num_threads()
        barrier.wait()

    threads = [threading.Thread(target=limited(n, tell), args=(n,)) for n in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {1: 1, 2: 2} and fo.get_num_threads() == 2


def test_the_number_is_given_back_after_an_error(two_threads):
    net = fo.load_onnx(parse_model(TEXT), num_threads=1)
    with pytest.raises(ValueError, match="Reshape"):
        net(X, WRONG)
    assert fo.get_num_threads() == 2


def test_no_more_than_all_threads(two_threads):
    assert limited(8, _core.get_num_threads)() == 2
