"""How a network is called: inputs in order and by name, results in arrays of the caller, and what a wrong call is
told."""

import threading
import tracemalloc

import numpy as np
import pytest

import fusedops as fo

pytest.importorskip("onnx")
from onnx import numpy_helper
from onnx.parser import parse_model


def network(text, **constants):
    proto = parse_model(f'<ir_version: 8, opset_import: ["" : 17]> net {text}')
    proto.graph.initializer.extend([numpy_helper.from_array(a, name) for name, a in constants.items()])
    return fo.load_onnx(proto)


@pytest.fixture(scope="module")
def two():
    """With two inputs and two outputs."""
    return network(
        "(float[n, m] x, float[n, m] b) => (float[n, m] y, float[n, m] z) { h = Add(x, b) y = Relu(h) z = Mul(h, b) }"
    )


@pytest.fixture(scope="module")
def image():
    w = np.random.default_rng(0).standard_normal((5, 3, 3, 3)).astype(np.float32)
    return network("(float[n, 3, 8, 9] x) => (float[n, 5, 6, 7] y) { h = Conv(x, w) y = Relu(h) }", w=w)


@pytest.fixture
def given(draw):
    return draw(4, 6), draw(4, 6)


# ---- inputs


def test_inputs_by_name(two, given):
    x, b = given
    for results in two(x=x, b=b), two(b=b, x=x), two(x, b=b), two(*given):
        np.testing.assert_array_equal(results[0], np.maximum(x + b, 0))
        np.testing.assert_array_equal(results[1], (x + b) * b)


def test_an_input_with_a_default_by_name(draw):
    proto = parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> net (float[n] x, float t) => (float[n] y) { y = Add(x, t) }'
    )
    proto.graph.initializer.append(numpy_helper.from_array(np.array(2, np.float32), "t"))
    net, x = fo.load_onnx(proto), draw(3)
    np.testing.assert_array_equal(net(x), x + 2)
    np.testing.assert_array_equal(net(x, t=np.float32(5)), x + 5)
    out = np.empty_like(x)
    assert net(x, t=np.float32(5), out=out) is out
    np.testing.assert_array_equal(out, x + 5)


@pytest.mark.parametrize(
    "call, error, text",
    [
        (
            lambda net, x: net({"x": x, "b": x}),
            TypeError,
            r"model\(\*\*inputs\), or model.run\(inputs\).* x, b as keys",
        ),
        (
            lambda net, x: net.run(None, {"x": x, "b": x}),
            TypeError,
            r"write model.run\(inputs\) in place of ONNX Runtime",
        ),
        (lambda net, x: net.run(["y"], {"x": x, "b": x}), TypeError, r"model.run\(inputs, outputs=names\)"),
        (lambda net, x: net.run(x), TypeError, "takes a dict"),
        (lambda net, x: net(x, x=x), ValueError, "x is given twice"),
        (lambda net, x: net(x), ValueError, "takes 2 inputs"),
        (lambda net, x: net(x=x), ValueError, "takes the inputs x, b, got x: b is missing$"),
        (lambda net, x: net(x, c=x), ValueError, "takes the inputs x, b, got x, c: b is missing and c is unknown$"),
        (lambda net, x: net(x, x, x, b=x), ValueError, "takes 2 inputs .* got 3"),
        (lambda net, x: net(x, b=x.astype(float)), TypeError, r"b.astype\(np.float32\)"),
    ],
)
def test_a_wrong_call_is_told_what_to_write(two, draw, call, error, text):
    with pytest.raises(error, match=text):
        call(two, draw(2, 3))


def test_a_dict_for_one_input(image, draw):
    x = draw(1, 3, 8, 9)
    with pytest.raises(TypeError, match=r"model\(\*\*inputs\)"):
        image({"x": x})
    np.testing.assert_array_equal(image(x=x), image(x))


@pytest.mark.parametrize(
    "shape, advice",
    [
        ((1, 3, 10, 9), "dynamic_shapes, {2: 'height'} for x"),
        ((1, 3, 10, 11), "dynamic_shapes, {2: 'height', 3: 'width'} for x"),
        ((1, 4, 8, 9), None),  # other channels are no other size
        ((1, 4, 8, 10), None),
        ((3, 8, 10), None),
        ((3, 8, 9), ": pass x[np.newaxis]"),
        ((1, 8, 9, 3), ": pass x.transpose(0, 3, 1, 2)"),
        ((8, 9, 3), ": pass x.transpose(2, 0, 1)[np.newaxis]"),
    ],
)
def test_an_image_of_another_size(image, draw, shape, advice):
    with pytest.raises(ValueError, match="but the network takes x") as caught:
        image(draw(*shape))
    assert any(told in str(caught.value) for told in ("dynamic_shapes", "pass ")) == (advice is not None)
    assert advice is None or advice in str(caught.value)
    if advice is not None and "pass" in advice:  # what it writes is taken
        image(eval(advice.removeprefix(": pass "), {"x": draw(*shape), "np": np}))


# ---- out


@pytest.mark.parametrize("form", [tuple, list, lambda arrays: dict(zip("yz", arrays))], ids=["tuple", "list", "dict"])
def test_out_of_several(two, given, form):
    expected, arrays = two(*given), [np.full((4, 6), 7, np.float32) for _ in range(2)]
    results = two(*given, out=form(arrays))
    for result, array, right in zip(results, arrays, expected, strict=True):
        assert result is array
        np.testing.assert_array_equal(array, right)


@pytest.mark.parametrize("form", [lambda y: (y, None), lambda y: {"y": y}, lambda y: {"y": y, "z": None}])
def test_out_for_some(two, given, form):
    expected, array = two(*given), np.full((4, 6), 7, np.float32)
    y, z = two(*given, out=form(array))
    assert y is array and z is not array
    np.testing.assert_array_equal(y, expected[0])
    np.testing.assert_array_equal(z, expected[1])


def places(shape):
    """Arrays of a shape in memory of any kind."""
    n, c, h, w = shape
    raw = np.full(n * c * h * w * 4 + 1, 7, np.uint8)
    yield np.full(shape, 7, np.float32)
    yield np.full((n, h, w, c), 7, np.float32).transpose(0, 3, 1, 2)
    yield np.full((n, c, h, 2 * w), 7, np.float32)[..., ::2]
    yield np.full(shape, 7, np.float32)[:, ::-1, :, ::-1]
    yield np.full((n + 1, *shape[1:]), 7, np.float32)[1:]
    yield raw[1:].view(np.float32).reshape(shape)  # not aligned


def test_out_of_any_strides(image, draw, isa, threads):
    x = draw(2, 3, 8, 9)
    expected = image(x)
    for y in places(expected.shape):
        assert image(x, out=y) is y
        np.testing.assert_array_equal(y, expected)


def test_a_view_is_written_alone(image, draw):
    """What lies between its elements and around it stays."""
    x, big = draw(2, 3, 8, 9), np.full((4, 5, 6, 14), 7, np.float32)
    image(x, out=big[1:3, ..., ::2])
    np.testing.assert_array_equal(big[1:3, ..., ::2], image(x))
    assert (big[..., 1::2] == 7).all() and (big[[0, 3]] == 7).all()


def test_outs_that_lie_between_each_other(two, given):
    """Every other column of one array is no overlap."""
    both = np.empty((4, 12), np.float32)
    two(*given, out=(both[:, ::2], both[:, 1::2]))
    for y, expected in zip((both[:, ::2], both[:, 1::2]), two(*given), strict=True):
        np.testing.assert_array_equal(y, expected)


def test_out_that_overlaps_an_input(draw):
    net = network(
        "(float[n, m] x, float[n, m] b) => (float[n, m] y) { t = Transpose(x) h = MatMul(t, b) y = Add(h, x) }"
    )
    x, b = draw(6, 6), draw(6, 6)
    expected = net(x, b)
    for get in (lambda x: x, lambda x: x[::-1], lambda x: x.T):
        memory = x.copy()
        y = get(memory)
        np.testing.assert_array_equal(net(memory, b, out=y), expected)
        np.testing.assert_array_equal(y, expected)
    memory = np.concatenate([x, x])  # a part of it
    np.testing.assert_array_equal(net(memory[:6], b, out=memory[3:9]), expected)


def test_an_input_that_is_an_output(draw):
    net = network("(float[n] x) => (float[n] y, float[n] z) { y = Identity(x) z = Neg(x) }")
    x = draw(5)
    before = x.copy()
    y, z = net(x, out=(x, None))
    assert y is x
    np.testing.assert_array_equal(y, before)
    np.testing.assert_array_equal(z, -before)


def test_out_is_written_in_place(draw):
    """Without another array of its size."""
    net = network("(float[n] x) => (float[n] y) { h = Mul(x, x) y = Relu(h) }")
    x, y = draw(1 << 18), np.empty(1 << 18, np.float32)
    for give, least, most in ((None, y.nbytes, 1 << 30), (y, 0, y.nbytes // 8)):
        net(x, out=give)
        tracemalloc.start()
        try:
            net(x, out=give)
            assert least <= tracemalloc.get_traced_memory()[1] <= most
        finally:
            tracemalloc.stop()


def read_only(shape):
    y = np.full(shape, 7, np.float32)
    y.flags.writeable = False
    return y


WRONG = [
    (lambda: np.full((4, 5), 7, np.float32), ValueError, r"y has shape \(4, 5\), but the result has shape \(4, 6\)"),
    (lambda: np.full((4, 6, 1), 7, np.float32), ValueError, "has shape"),
    (lambda: np.full((4, 6), 7.0), TypeError, r"y has dtype float64, .*np.empty\(\(4, 6\), np.float32\)"),
    (lambda: np.full((4, 6), 7, ">f4"), TypeError, "dtype"),
    (lambda: read_only((4, 6)), ValueError, "read-only"),
    (lambda: np.ma.masked_array(np.full((4, 6), 7, np.float32), mask=True), TypeError, "masked"),
    (lambda: [[7.0] * 6] * 4, TypeError, "must be a numpy array, not list"),
]


@pytest.mark.parametrize("wrong, error, text", WRONG)
@pytest.mark.parametrize("last", [False, True])
def test_a_wrong_out_leaves_the_others_alone(two, given, wrong, error, text, last):
    """Whichever of them is wrong, none is written."""
    right, wrong = np.full((4, 6), 7, np.float32), wrong()
    with pytest.raises(error, match=text.replace("y has", "z has") if last else text):
        two(*given, out=(right, wrong) if last else (wrong, right))
    assert (right == 7).all() and (np.asarray(wrong) == 7).all()


@pytest.mark.parametrize(
    "out, error, text",
    [
        (lambda y: y, TypeError, "outputs y, z: out takes a tuple .* or a dict"),
        (lambda y: (y,), ValueError, "out has 1 arrays, but the network has 2 outputs"),
        (lambda y: (y, y), ValueError, "two arrays of out overlap"),
        (lambda y: (y, y[::-1]), ValueError, "two arrays of out overlap"),
        (lambda y: {"y": y, "q": y}, ValueError, "out names q, but the outputs are y, z"),
        (lambda y: "y", TypeError, "not str"),
    ],
)
def test_out_of_another_form(two, given, out, error, text):
    y = np.full((4, 6), 7, np.float32)
    with pytest.raises(error, match=text):
        two(*given, out=out(y))
    assert (y == 7).all()


def test_out_of_integers_and_without_axes(draw):
    net = network(
        "(float[n, m] x) => (int64[n] i, float s)"
        " { i = ArgMax<axis = 1, keepdims = 0>(x) s = ReduceSum<keepdims = 0>(x) }"
    )
    x, i, s = draw(4, 6), np.empty(4, np.int64), np.empty((), np.float32)
    found = net(x, out=(i, s))
    assert found[0] is i and found[1] is s
    np.testing.assert_array_equal(i, x.argmax(1))
    np.testing.assert_allclose(s, x.sum(), rtol=1e-5)
    with pytest.raises(TypeError, match="int32.*int64"):
        net(x, out=(i.astype(np.int32), s))


def test_out_whose_shape_values_decide(draw):
    """It is known when all is computed, and nothing is written before."""
    net = network("(float[n] x) => (float[m] y) { p = Relu(x) i = NonZero(p) t = Transpose(i) y = GatherND(p, t) }")
    x = np.float32([-1, 2, 0, 3])
    y = np.full(2, 7, np.float32)
    assert net(x, out=y) is y
    np.testing.assert_array_equal(y, [2, 3])
    wrong = np.full(3, 7, np.float32)
    with pytest.raises(ValueError, match=r"out has shape \(3,\), but the result has shape \(2,\)"):
        net(x, out=wrong)
    assert (wrong == 7).all()


def test_an_error_about_values_names_the_node():
    """Of two that could have refused a value."""
    net = network(
        "(float[n] x, int64[m] i, int64[m] j) => (float[m] y, float[m] z)"
        "{ e = Exp(x) [first] y = Gather(e, i) [second] z = Gather(e, j) }"
    )
    x, inside, outside = np.ones(3, np.float32), np.array([0, -3]), np.array([0, 3])
    with pytest.raises(ValueError, match="Gather 'first': an index is outside its axis"):
        net(x, outside, inside)
    with pytest.raises(ValueError, match="Gather 'second': an index is outside its axis"):
        net(x, inside, outside)


@pytest.mark.parametrize("indices", [[0, 9, 1], [0, 1, -9]])
def test_an_index_outside_leaves_out_alone(indices):
    net = network("(float[n] x, int64[m] i) => (float[m] y, float[n] z) { y = Gather(x, i) z = Neg(x) }")
    x, out = np.ones(3, np.float32), (np.full(3, 7, np.float32), np.full(3, 7, np.float32))
    with pytest.raises(ValueError, match="outside its axis"):
        net(x, np.array(indices), out=out)
    assert (out[0] == 7).all() and (out[1] == 7).all()


def test_empty_batches_and_out(image, draw):
    y = np.empty((0, 5, 6, 7), np.float32)
    assert image(draw(0, 3, 8, 9), out=y) is y


def test_threads_with_an_out_each(image, draw):
    xs = [draw(2, 3, 8, 9) for _ in range(4)]
    expected, outs = [image(x) for x in xs], [np.empty((2, 5, 6, 7), np.float32) for _ in xs]

    def run(x, y):
        for _ in range(20):
            image(x, out=y)

    threads = [threading.Thread(target=run, args=pair) for pair in zip(xs, outs, strict=True)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for y, right in zip(outs, expected, strict=True):
        np.testing.assert_array_equal(y, right)
