"""Arrays of Dask: refused whole, taken block by block."""

import numpy as np
import pytest

da = pytest.importorskip("dask.array")
onnx = pytest.importorskip("onnx")

import fusedops as fo

X = np.random.default_rng(0).standard_normal((6, 3, 8, 8), np.float32)
W = np.random.default_rng(1).standard_normal((3, 3, 3, 3), np.float32)
CHUNKS = da.from_array(X, chunks=(2, 3, 8, 8))


@pytest.fixture
def model():
    """An image for an image, of 8 x 8 alone: no array of ones of size 1 fits."""
    proto = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> net (float[n, 3, 8, 8] x) => (float[n, 3, 8, 8] y) '
        "{ y = Conv<pads=[1, 1, 1, 1]>(x, w) }"
    )
    proto.graph.initializer.append(onnx.numpy_helper.from_array(W, "w"))
    return fo.load_onnx(proto)


def test_a_whole_array_is_refused(model):
    layer = fo.Conv2d(W, padding=1)
    for call in (
        lambda: fo.conv2d(CHUNKS, W),
        lambda: fo.activation(CHUNKS, "relu"),
        lambda: fo.softmax(CHUNKS),
        lambda: fo.linear(X[0, 0], CHUNKS[0, 0]),
        lambda: layer(CHUNKS),
        lambda: fo.QLinear(W[0, 0])(CHUNKS),
        lambda: model(CHUNKS),
        lambda: model.run({"x": CHUNKS}),
        lambda: model.quantize([CHUNKS]),
    ):
        with pytest.raises(TypeError, match=r"is a Dask array.*map_blocks\(f, dtype=np.float32\).*\.compute\(\)"):
            call()


def test_blocks(model):
    expected = model(X)
    for call in (model, fo.Conv2d(W, padding=1)):
        np.testing.assert_array_equal(CHUNKS.map_blocks(call, dtype=np.float32).compute(), expected)


def test_dask_finds_the_dtype(model):
    y = CHUNKS.map_blocks(model)
    assert y.dtype == np.float32
    np.testing.assert_array_equal(y.compute(), model(X))


def test_an_error_of_a_block_is_an_error(model):
    wrong = da.from_array(X[:, :, :4], chunks=(2, 3, 4, 8)).map_blocks(model)
    with pytest.raises(ValueError, match="x has shape"):
        wrong.compute()
