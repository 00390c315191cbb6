"""Files of TFLite as wholes: signatures, open sizes, sparse and 16-bit weights, custom operators, and what is
refused."""

import itertools
import struct

import numpy as np
import pytest

tflite = pytest.importorskip("tflite")

import fusedops as fo
from tflite_models import Graph, Op, Tensor, constant, single, write

F, INT = np.float32, np.int32
RNG = np.random.default_rng


def _dense(shape=(2, 3), signature=None):
    """A model y = relu(x w^T + b) and its (w, b)."""
    w, b = RNG(1).standard_normal((4, 3)).astype(F), RNG(2).standard_normal(4).astype(F)
    tensors = [
        Tensor(shape, signature=signature, name="x:0"),
        constant(w),
        constant(b),
        Tensor((shape[0], 4), name="y:0"),
    ]
    op = Op("FULLY_CONNECTED", [0, 1, 2], [3], ("FullyConnectedOptions", dict(FusedActivationFunction=1)))
    return Graph(tensors, [op], [0], [3]), w, b


def test_paths_bytes_and_names(tmp_path):
    graph, w, b = _dense()
    data = write(graph)
    (tmp_path / "model.tflite").write_bytes(data)
    x = RNG(0).standard_normal((2, 3)).astype(F)
    for source in (tmp_path / "model.tflite", str(tmp_path / "model.tflite"), data, bytearray(data), memoryview(data)):
        model = fo.load_tflite(source)
        np.testing.assert_allclose(model(x), np.maximum(x @ w.T + b, 0), rtol=1e-5, atol=1e-6)
    assert [v.name for v in model.inputs] == ["x:0"] and [v.name for v in model.outputs] == ["y:0"]


def test_signature_names_inputs_and_outputs():
    graph, w, b = _dense()
    model = fo.load_tflite(write(graph, signatures=[(0, {"image": 0}, {"scores": 3})]))
    x = np.ones((2, 3), F)
    assert list(model.run({"image": x})) == ["scores"]
    np.testing.assert_allclose(model(image=x), np.maximum(x @ w.T + b, 0), rtol=1e-5)


def test_open_batch():
    graph, w, b = _dense((1, 3), (-1, 3))
    model = fo.load_tflite(write(graph))
    assert model.inputs[0].shape == (None, 3) and str(model.inputs[0]).endswith("0, 3)")
    for n in (1, 2, 5):
        x = RNG(n).standard_normal((n, 3)).astype(F)
        np.testing.assert_allclose(model(x), np.maximum(x @ w.T + b, 0), rtol=1e-5, atol=1e-6)


def test_saved_network(tmp_path):
    graph, *_ = _dense()
    model, x = fo.load_tflite(write(graph)), np.ones((2, 3), F)
    model.save(tmp_path / "model.fo")
    assert np.array_equal(fo.load(tmp_path / "model.fo")(x), model(x))


def test_float16_weights():
    w = RNG(1).standard_normal((4, 3)).astype(np.float16)
    tensors = [Tensor((2, 3)), constant(w), Tensor((4, 3)), Tensor((2, 4))]
    ops = [Op("DEQUANTIZE", [1], [2]), Op("FULLY_CONNECTED", [0, 2, -1], [3])]
    x = np.ones((2, 3), F)
    y = fo.load_tflite(write(Graph(tensors, ops, [0], [3])))(x)
    np.testing.assert_allclose(y, x @ w.astype(float).T, rtol=1e-5)


@pytest.mark.parametrize("per_channel", [False, True])
def test_dynamic_range(per_channel):
    """Weights of int8 and floats around them: near what floats give."""
    w = RNG(1).integers(-127, 128, (8, 16)).astype(np.int8)
    scale = RNG(2).uniform(0.01, 0.02, 8) if per_channel else 0.015
    b = RNG(3).standard_normal(8).astype(F)
    graph = [Tensor((3, 16)), constant(w, scale=scale), constant(b)], [Tensor((3, 8))]
    x = RNG(0).uniform(-1, 1, (3, 16)).astype(F)
    want = x @ (w * np.reshape(scale, (-1, 1))).T + b
    got = fo.load_tflite(single("FULLY_CONNECTED", *graph))(x)
    assert got.dtype == F and np.abs(got - want).max() < 0.02 * np.abs(want).max()


@pytest.mark.parametrize("form", [{}, dict(fuse=False)])
@pytest.mark.parametrize("shape", [(5, 512), (2, 3, 512)])
def test_rows_of_floats_have_a_range_each(shape, form):
    """As LiteRT quantizes them: a small row next to a large one keeps its digits."""
    w = RNG(1).integers(-127, 128, (256, 512)).astype(np.int8)
    x = RNG(0).uniform(-1, 1, shape).astype(F) * np.logspace(-4, 2, shape[-2], dtype=F)[:, np.newaxis]
    given = [Tensor(shape), constant(w, scale=0.01), None]
    options = ("FullyConnectedOptions", dict(KeepNumDims=True))
    model = fo.load_tflite(single("FULLY_CONNECTED", given, [Tensor((*shape[:-1], 256))], options), **form)
    want = x.astype(float) @ (w * 0.01).T
    assert (np.abs(model(x) - want).max(-1) < 0.02 * np.abs(want).max(-1)).all()


def test_weights_of_four_bits():
    w = RNG(1).integers(-8, 8, (4, 6)).astype(np.int8)
    packed = (w.reshape(-1, 2)[:, 0] & 15) | (w.reshape(-1, 2)[:, 1] << 4)
    tensor = Tensor(w.shape, "INT4", packed.astype(np.int8), 0.1)
    x = RNG(0).uniform(-1, 1, (2, 6)).astype(F)
    got = fo.load_tflite(single("FULLY_CONNECTED", [Tensor((2, 6)), tensor, None], [Tensor((2, 4))]))(x)
    want = x @ (0.1 * w).T
    assert np.abs(got - want).max() < 0.02 * np.abs(want).max()


def test_weights_of_two_bits():
    w = RNG(1).integers(-2, 2, (4, 8)).astype(np.int8)
    packed = ((w.reshape(-1, 4) & 3) << np.arange(0, 8, 2)).sum(1).astype(np.uint8)
    tensor = Tensor(w.shape, 19, packed, 0.1)
    x = RNG(0).uniform(-1, 1, (2, 8)).astype(F)
    got = fo.load_tflite(single("FULLY_CONNECTED", [Tensor((2, 8)), tensor, None], [Tensor((2, 4))]))(x)
    want = x @ (0.1 * w).T
    assert np.abs(got - want).max() < 0.02 * np.abs(want).max()


@pytest.mark.parametrize("block", [32, 64])
def test_weights_with_scales_for_blocks(block):
    w = RNG(1).integers(-8, 8, (4, 128)).astype(np.int8)
    scale = RNG(2).uniform(0.01, 0.1, (4, 128 // block)).astype(np.float16)
    packed = ((w.reshape(-1, 2) & 15) << np.array([0, 4])).sum(1).astype(np.uint8)

    def details(t, b):
        b.StartObject(3)
        b.PrependInt32Slot(0, 1, 0)
        b.PrependInt32Slot(2, block, 0)
        return b.EndObject()

    tensors = [Tensor((2, 128)), constant(scale), Tensor(w.shape, "INT4", packed, 1.0, details=details), Tensor((2, 4))]
    x = RNG(0).uniform(-1, 1, (2, 128)).astype(F)
    model = write(Graph(tensors, [Op("FULLY_CONNECTED", [0, 2, -1], [3])], [0], [3]))
    want = x @ (w.reshape(4, -1, block) * scale[..., np.newaxis].astype(float)).reshape(4, 128).T
    np.testing.assert_allclose(fo.load_tflite(model)(x), want, rtol=1e-5, atol=1e-5)
    with pytest.raises(ValueError, match=f"no scales for blocks of {block}"):
        fo.load_tflite(write(Graph([t._replace(shape=(512,)) if t.details else t for t in tensors],
                                   [Op("FULLY_CONNECTED", [0, 2, -1], [3])], [0], [3])))  # fmt: skip


@pytest.mark.parametrize("has_zeros", [False, True])
def test_scales_for_blocks_that_are_the_first_tensor(has_zeros):
    w = RNG(1).integers(-8, 8, (4, 64)).astype(np.int8)
    scale, zero = RNG(2).uniform(0.01, 0.1, (4, 2)).astype(F), RNG(3).integers(-3, 4, (4, 2)).astype(F)
    packed = ((w.reshape(-1, 2) & 15) << np.array([0, 4])).sum(1).astype(np.uint8)

    def details(t, b):
        b.StartObject(3)
        b.PrependInt32Slot(1, 1 if has_zeros else -1, 0)
        b.PrependInt32Slot(2, 32, 0)
        return b.EndObject()

    weights = Tensor(w.shape, "INT4", packed, 1.0, details=details)
    tensors = [constant(scale), constant(zero), Tensor((2, 64)), weights, Tensor((2, 4))]
    x = RNG(0).uniform(-1, 1, (2, 64)).astype(F)
    model = write(Graph(tensors, [Op("FULLY_CONNECTED", [2, 3, -1], [4])], [2], [4]))
    real = (w.reshape(4, 2, 32) - has_zeros * zero[..., np.newaxis]) * scale[..., np.newaxis]
    np.testing.assert_allclose(fo.load_tflite(model)(x), x @ real.reshape(4, 64).T, rtol=1e-5, atol=1e-5)


# ---- sparse weights


def _sparsity(dense, block=1):
    """(elements that are stored, the writer of what says where they are): rows, of which blocks of columns."""
    rows, columns = dense.shape
    blocks = dense.reshape(rows, columns // block, block)
    there = blocks.any(-1)
    segments = np.r_[0, np.cumsum(there.sum(1))].astype(INT)
    indices = np.nonzero(there)[1].astype(INT)

    def write_to(t, b):
        def vector(values):
            data = b.CreateNumpyVector(values)
            t.Int32VectorStart(b)
            t.Int32VectorAddValues(b, data)
            return t.Int32VectorEnd(b)

        def level(size=None):
            if size is None:
                first, second = vector(segments), vector(indices)
            t.DimensionMetadataStart(b)
            t.DimensionMetadataAddFormat(b, int(size is None))
            if size is None:
                t.DimensionMetadataAddArraySegmentsType(b, t.SparseIndexVector.Int32Vector)
                t.DimensionMetadataAddArraySegments(b, first)
                t.DimensionMetadataAddArrayIndicesType(b, t.SparseIndexVector.Int32Vector)
                t.DimensionMetadataAddArrayIndices(b, second)
            else:
                t.DimensionMetadataAddDenseSize(b, size)
            return t.DimensionMetadataEnd(b)

        levels = [level(rows), level(), *([level(block)] if block > 1 else [])]
        order = b.CreateNumpyVector(np.arange(len(levels), dtype=INT))
        map_ = b.CreateNumpyVector(np.array([1], INT)) if block > 1 else None
        t.SparsityParametersStartDimMetadataVector(b, len(levels))
        for each in reversed(levels):
            b.PrependUOffsetTRelative(each)
        found = b.EndVector()
        t.SparsityParametersStart(b)
        t.SparsityParametersAddTraversalOrder(b, order)
        if map_ is not None:
            t.SparsityParametersAddBlockMap(b, map_)
        t.SparsityParametersAddDimMetadata(b, found)
        return t.SparsityParametersEnd(b)

    return blocks[there].reshape(-1), write_to


@pytest.mark.parametrize("block", [1, 4])
@pytest.mark.parametrize("densify", [False, True])
def test_sparse_weights(block, densify):
    w = RNG(1).standard_normal((6, 8)).astype(F)
    w.reshape(6, 8 // block, block)[RNG(2).random((6, 8 // block)) < 0.6] = 0
    values, sparsity = _sparsity(w, block)
    sparse = Tensor(w.shape, F, values, sparsity=sparsity)
    tensors = [Tensor((2, 8)), sparse, Tensor((6, 8)), Tensor((2, 6))]
    ops = [Op("DENSIFY", [1], [2])] * densify + [Op("FULLY_CONNECTED", [0, 2 if densify else 1, -1], [3])]
    x = np.ones((2, 8), F)
    y = fo.load_tflite(write(Graph(tensors, ops, [0], [3])))(x)
    np.testing.assert_allclose(y, x @ w.astype(float).T, rtol=1e-5, atol=1e-5)


# ---- custom operators


@pytest.mark.parametrize("same", [True, False])
def test_transpose_conv_with_bias(same):
    w, b = RNG(1).standard_normal((4, 3, 3, 5)).astype(F), RNG(2).standard_normal(4).astype(F)
    x = RNG(0).standard_normal((1, 4, 5, 5)).astype(F)
    crop = [max(0, 3 - (n - 1) % 2 - 1) * same for n in (4, 5)]  # as MediaPipe's own kernel has it
    size = [9 - crop[0], 11 - crop[1]]
    data = single("Convolution2DTransposeBias", [Tensor(x.shape), constant(w), constant(b)], [Tensor((1, *size, 4))],
                  custom=struct.pack("<iii", 1 if same else 2, 2, 2))  # fmt: skip
    full = np.zeros((1, 9, 11, 4))
    for i, j in itertools.product(range(3), range(3)):
        full[:, i : i + 7 : 2, j : j + 9 : 2] += x @ w[:, i, j].T.astype(float)
    got = fo.load_tflite(data)(x)
    i, j = crop[0] // 2, crop[1] // 2
    np.testing.assert_allclose(got, full[:, i : i + size[0], j : j + size[1]] + b, rtol=1e-4, atol=1e-4)


def test_max_pooling_with_argmax_and_unpooling():
    options = struct.pack("<6i", 1, 2, 2, 2, 2, 0)
    tensors = [Tensor((1, 4, 6, 3)), Tensor((1, 2, 3, 3)), Tensor((1, 2, 3, 3)), Tensor((1, 4, 6, 3))]
    ops = [Op("MaxPoolingWithArgmax2D", [0], [1, 2], None, options), Op("MaxUnpooling2D", [1, 2], [3], None, options)]
    x = RNG(0).standard_normal((1, 4, 6, 3)).astype(F)
    y, places, back = fo.load_tflite(write(Graph(tensors, ops, [0], [1, 2, 3])))(x)
    windows = x.reshape(1, 2, 2, 3, 2, 3).transpose(0, 1, 3, 5, 2, 4).reshape(1, 2, 3, 3, 4)
    assert np.array_equal(y, windows.max(-1))
    np.testing.assert_allclose(places, windows.argmax(-1) + 0.1, rtol=1e-6)
    assert np.array_equal(back, np.where(x == np.repeat(np.repeat(y, 2, 1), 2, 2), x, 0))


@pytest.mark.parametrize("regular", [False, True])
def test_detection_postprocess(regular):
    from flatbuffers import flexbuffers

    options = dict(y_scale=10.0, x_scale=10.0, h_scale=5.0, w_scale=5.0, nms_score_threshold=0.1, nms_iou_threshold=0.5,
                   max_detections=3, max_classes_per_detection=1, num_classes=2, use_regular_nms=regular,
                   detections_per_class=5)  # fmt: skip
    anchors = np.float32([[0.5, 0.5, 1, 1], [0.5, 0.5, 1, 1], [0.5, 0.5, 1, 1], [0.5, 10.5, 1, 1], [0.5, 10.5, 1, 1],
                          [0.5, 100.5, 1, 1]])  # fmt: skip
    boxes = np.float32([[0, 0, 0, 0], [1, 0, 0, 0], [-1, 0, 0, 0], [0, 0, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0]])
    scores = np.float32([[0, 0.9, 0.8], [0, 0.75, 0.72], [0, 0.6, 0.5], [0, 0.93, 0.95], [0, 0.5, 0.4], [0, 0.3, 0.2]])
    data = single("TFLite_Detection_PostProcess", [Tensor((1, 6, 4)), Tensor((1, 6, 3)), constant(anchors)],
                  [Tensor((1, 3, 4)), Tensor((1, 3)), Tensor((1, 3)), Tensor((1,))],
                  custom=bytes(flexbuffers.Dumps(options)))  # fmt: skip
    found, kinds, best, count = fo.load_tflite(data)(boxes[None], scores[None])
    assert count == 3
    assert kinds[0].tolist() == [1, 0, 0]
    np.testing.assert_allclose(best[0], [0.95, 0.93, 0.9] if regular else [0.95, 0.9, 0.3], rtol=1e-6)
    np.testing.assert_allclose(found[0, 0], [0, 10, 1, 11], atol=1e-5)


def test_non_max_suppression():
    boxes = np.float32(
        [[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, -0.1, 1, 0.9], [0, 10, 1, 11], [0, 10.1, 1, 11.1], [0, 100, 1, 101]]
    )
    scores = np.float32([0.9, 0.75, 0.6, 0.95, 0.5, 0.3])
    numbers = [constant(np.array(4, INT)), constant(np.array(0.5, F)), constant(np.array(0.4, F))]
    data = single(
        "NON_MAX_SUPPRESSION_V4", [Tensor((6, 4)), Tensor((6,)), *numbers], [Tensor((4,), INT), Tensor((), INT)]
    )
    places, count = fo.load_tflite(data)(boxes, scores)
    assert places.tolist() == [3, 0, 0, 0] and count == 2
    given = [Tensor((6, 4)), Tensor((6,)), *numbers, constant(np.array(0.5, F))]
    outputs = [Tensor((4,), INT), Tensor((4,)), Tensor((), INT)]
    places, kept, count = fo.load_tflite(single("NON_MAX_SUPPRESSION_V5", given, outputs))(boxes, scores)
    assert places.tolist() == [3, 0, 0, 0] and count == 2 and kept[0] == F(0.95)


# ---- what is refused


def test_unknown_operators_are_all_named():
    x = Tensor((3,), name="here")
    ops = [Op("FlexErf", [0], [1], None, b"x"), Op("SKIP_GRAM", [0], [1]), Op("Mine", [0], [1], None, b"x")]
    with pytest.raises(ValueError, match=r"'FlexErf'.*TensorFlow itself.*'Mine' \(here\).*SKIP_GRAM.*strings"):
        fo.load_tflite(write(Graph([x, x], ops, [0], [1])))


@pytest.mark.parametrize("data, words", [
    (b"", "not a TFLite model"), (b"PK\x03\x04TFLX", "fusedops.load reads"), (b"\x08\x00\x00\x00TFL3", "damaged"),
])  # fmt: skip
def test_not_a_model(data, words):
    with pytest.raises(ValueError, match=words):
        fo.load_tflite(data)


def test_missing_file():
    with pytest.raises(OSError, match="nowhere"):
        fo.load_tflite("nowhere.tflite")
    with pytest.raises(TypeError):
        fo.load_tflite(3)


def test_cycles_and_missing_tensors():
    x = Tensor((3,), name="x")
    with pytest.raises(ValueError, match="nothing makes"):
        fo.load_tflite(write(Graph([x, x, x], [Op("ADD", [0, 2], [1]), Op("TANH", [1], [2])], [0], [1])))
    call = Op("CALL", [0], [1], ("CallOptions", dict(Subgraph=0)))
    with pytest.raises(ValueError, match="call each other"):
        fo.load_tflite(write(Graph([x, x], [call], [0], [1])))
    calls = [Graph([x, x, x], [Op("CALL", [0], [1], ("CallOptions", dict(Subgraph=i))),
                               Op("CALL", [1], [2], ("CallOptions", dict(Subgraph=i)))], [0], [2])
             for i in range(1, 30)]  # fmt: skip
    with pytest.raises(ValueError, match="call each other"):
        fo.load_tflite(write(*calls, Graph([x, x], [Op("TANH", [0], [1])], [0], [1])))


def test_constants_without_elements():
    """Files keep nothing of them: a scalar's shape, and a window of no axes."""
    none, x = constant(np.zeros(0, INT)), np.array([3], F)
    assert fo.load_tflite(single("RESHAPE", [Tensor((1,)), none], [Tensor(())]))(x) == 3
    window, options = constant(np.zeros(0, np.int64)), ("ReduceWindowOptions", dict(ReduceFunction=1))
    inputs = [Tensor(()), constant(np.array(2, F)), window, window, window]
    assert fo.load_tflite(single("REDUCE_WINDOW", inputs, [Tensor(())], options))(F(3)) == 5


def test_errors_name_the_operator():
    w = constant(np.zeros((4, 5), F))
    with pytest.raises(ValueError, match="FULLY_CONNECTED|Gemm|Reshape"):
        fo.load_tflite(single("FULLY_CONNECTED", [Tensor((2, 3)), w, None], [Tensor((2, 4))]))
    computed = single("REVERSE_V2", [Tensor((2, 3)), Tensor((1,), INT)], [Tensor((2, 3))])
    with pytest.raises(ValueError, match="REVERSE_V2 .* computed by the network"):
        fo.load_tflite(computed)
    text = single("RESHAPE", [Tensor((2,), "STRING"), constant(np.array([1, 2], INT))], [Tensor((1, 2), "STRING")])
    with pytest.raises(ValueError, match="STRING"):
        fo.load_tflite(text)


def test_command_line(tmp_path, capsys):
    from fusedops.cli import main

    graph, *_ = _dense()
    path = tmp_path / "model.tflite"
    path.write_bytes(write(graph))
    assert main(["explain", str(path)]) == 0
    assert "fusion" in capsys.readouterr().out
    assert main(["bench", str(path), "--quick"]) == 0
    path.write_bytes(b"no model")
    assert main(["explain", str(path)]) == 1
    assert "not a TFLite model" in capsys.readouterr().err


def test_precision():
    """A product whose operands are rounded where that is faster, of a file as of ONNX."""
    x, w = RNG(3).standard_normal((64, 256)).astype(F), RNG(4).standard_normal((128, 256)).astype(F)
    given = [Tensor(x.shape), constant(w), None]
    model = single("FULLY_CONNECTED", given, [Tensor((64, 128))], ("FullyConnectedOptions", {}))
    y, expected = fo.load_tflite(model, precision="bfloat16")(x), fo.load_tflite(model)(x)
    error = np.abs(y - expected).max() / np.abs(expected).max()
    assert error < 0.02 and (error > 1e-5) == (fo.show_config()["bfloat16_products"] != "float32")
    with pytest.raises(ValueError, match="unknown precision 'half'"):
        fo.load_tflite(model, precision="half")


# ---- random numbers


def test_random_numbers():
    """Of the network's seed, or of the file's; in a shape that is known or computed."""
    shape, numbers = constant(np.array([50, 40], np.int32)), Tensor((50, 40))
    for kind, mean, deviation in (("RANDOM_STANDARD_NORMAL", 0, 1), ("RANDOM_UNIFORM", 0.5, 12**-0.5)):
        model = fo.load_tflite(single(kind, [shape], [numbers]), seed=1)
        first, second = model(), model()
        model.seed(1)
        assert (first != second).any() and np.array_equal(model(), first)
        assert abs(first.mean() - mean) < 0.1 and abs(first.std() - deviation) < 0.1 and first.shape == (50, 40)
        fixed = single(kind, [shape], [numbers], ("RandomOptions", {"Seed": 3, "Seed2": -7}))
        assert np.array_equal(fo.load_tflite(fixed, seed=1)(), fo.load_tflite(fixed, seed=2)())
        computed = fo.load_tflite(single(kind, [Tensor((2,), np.int32)], [Tensor((-1, -1))]), seed=1)
        assert np.array_equal(computed(np.array([50, 40], np.int32)), first)


def test_multinomial():
    logits = np.log(np.array([[0.25, 0.75], [1, 1e-30]], F))
    given = [Tensor((2, 2)), constant(np.array([4000], np.int32))]
    y = fo.load_tflite(single("MULTINOMIAL", given, [Tensor((2, 4000), np.int64)]), seed=0)(logits)
    assert y.dtype == np.int64 and abs(y[0].mean() - 0.75) < 0.03 and not y[1].any()
