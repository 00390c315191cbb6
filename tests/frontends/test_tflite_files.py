"""Files of TFLite as wholes: signatures, open sizes, variables, subgraphs, sparse and 16-bit weights, custom operators,
recurrent layers, and what is refused."""

import itertools
import struct

import numpy as np
import pytest

tflite = pytest.importorskip("tflite")

import fusedops as fo
from tflite_cases import nhwc_conv
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
    assert isinstance(model.inputs[0].shape[0], str)
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
    """Weights of 8 bits and floats around them: near what floats give."""
    w = RNG(1).integers(-127, 128, (8, 16)).astype(np.int8)
    scale = RNG(2).uniform(0.01, 0.02, 8) if per_channel else 0.015
    b = RNG(3).standard_normal(8).astype(F)
    graph = [Tensor((3, 16)), constant(w, scale=scale), constant(b)], [Tensor((3, 8))]
    x = RNG(0).uniform(-1, 1, (3, 16)).astype(F)
    want = x @ (w * np.reshape(scale, (-1, 1))).T + b
    got = fo.load_tflite(single("FULLY_CONNECTED", *graph))(x)
    assert got.dtype == F and np.abs(got - want).max() < 0.02 * np.abs(want).max()


def test_weights_of_four_bits():
    w = RNG(1).integers(-8, 8, (4, 6)).astype(np.int8)
    packed = (w.reshape(-1, 2)[:, 0] & 15) | (w.reshape(-1, 2)[:, 1] << 4)
    tensor = Tensor(w.shape, "INT4", packed.astype(np.int8), 0.1)
    x = RNG(0).uniform(-1, 1, (2, 6)).astype(F)
    got = fo.load_tflite(single("FULLY_CONNECTED", [Tensor((2, 6)), tensor, None], [Tensor((2, 4))]))(x)
    want = x @ (0.1 * w).T
    assert np.abs(got - want).max() < 0.02 * np.abs(want).max()


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


# ---- variables


def _counter(first=None):
    """y = x + state; the state becomes y. `first`: what CALL_ONCE gives it."""
    handle = Tensor((), "RESOURCE")
    tensors = [Tensor((2,)), handle, Tensor((2,)), Tensor((2,))]
    var = Op("VAR_HANDLE", [], [1], ("VarHandleOptions", dict(SharedName="state")))
    ops = [var, Op("READ_VARIABLE", [1], [2]), Op("ADD", [0, 2], [3]), Op("ASSIGN_VARIABLE", [1, 3], [])]
    if first is None:
        return write(Graph(tensors, [var, Op("ASSIGN_VARIABLE", [1, 0], []), *ops[1:]], [0], [3]))
    once = Op("CALL_ONCE", [], [], ("CallOnceOptions", dict(InitSubgraphIndex=1)))
    init = Graph([handle, constant(np.full(2, first, F))], [Op("VAR_HANDLE", [], [0], var.options),
                 Op("ASSIGN_VARIABLE", [0, 1], [])], [], [])  # fmt: skip
    return write(Graph(tensors, [once, *ops], [0], [3]), init)


def test_variables_go_on_until_reset(tmp_path):
    model = fo.load_tflite(_counter(5))
    assert len(model.inputs) == len(model.outputs) == 1
    model.save(tmp_path / "model.fo")
    for each in (model, fo.load(tmp_path / "model.fo")):
        for _ in range(2):
            for n in range(1, 4):
                assert each(np.ones(2, F)).tolist() == [5 + n] * 2
            each.reset()
        out = np.empty(2, F)
        assert each(np.ones(2, F), out=out) is out and out.tolist() == [6, 6]
        assert each.run({each.inputs[0].name: np.ones(2, F)})[each.outputs[0].name].tolist() == [7, 7]
        assert each.memory((2,)) >= 0 and each.profile(np.ones(2, F), repeat=1).layers
        assert each(np.ones(2, F)).tolist() == [8, 8]  # a profile changes nothing
    with pytest.raises(ValueError, match="takes 1 input"):
        model(np.ones(2, F), np.ones(2, F))
    with pytest.raises(ValueError, match="variables"):
        model.quantize([{model.inputs[0].name: np.ones(2, F)}])


def test_reset_of_a_network_without_variables():
    graph, *_ = _dense()
    fo.load_tflite(write(graph)).reset()


def test_variable_that_nothing_gave_a_value():
    tensors = [Tensor((), "RESOURCE"), Tensor((2,))]
    ops = [Op("VAR_HANDLE", [], [0], ("VarHandleOptions", dict(SharedName="s"))), Op("READ_VARIABLE", [0], [1])]
    with pytest.raises(ValueError, match="nothing has given a value"):
        fo.load_tflite(write(Graph(tensors, ops, [], [1])))


# ---- recurrent layers


def _sigmoid(x):
    return 1 / (1 + np.exp(-x))


def _lstm(x, h, c, w, r, b, clip):
    ys = []
    for step in x:
        i, f, g, o = (step @ a.T + h @ k.T + v for a, k, v in zip(w, r, b))
        c = np.clip(_sigmoid(f) * c + _sigmoid(i) * np.tanh(g), -clip, clip)
        h = _sigmoid(o) * np.tanh(c)
        ys.append(h)
    return np.stack(ys), h, c


@pytest.mark.parametrize("clip, projection", [(0.0, 0), (0.2, 0), (0.2, 5)])
def test_lstm(clip, projection):
    """Two calls: the second goes on from the states of the first."""
    steps, batch, inputs, hidden = 7, 2, 4, 6
    outputs = projection or hidden
    rng = RNG(3)
    w = [rng.standard_normal((hidden, inputs)).astype(F) for _ in range(4)]
    r = [rng.standard_normal((hidden, outputs)).astype(F) for _ in range(4)]
    b = [rng.standard_normal(hidden).astype(F) for _ in range(4)]
    p = rng.standard_normal((outputs, hidden)).astype(F) if projection else None
    states = [Tensor((batch, n), variable=True) for n in (outputs, hidden)]
    given = [Tensor((batch, steps, inputs)), *map(constant, (*w, *r)), None, None, None, *map(constant, b),
             None if p is None else constant(p), None, *states]  # fmt: skip
    options = dict(FusedActivationFunction=4, CellClip=clip, ProjClip=0.0, TimeMajor=False)
    model = fo.load_tflite(
        single(
            "UNIDIRECTIONAL_SEQUENCE_LSTM",
            given,
            [Tensor((batch, steps, outputs))],
            ("UnidirectionalSequenceLSTMOptions", options),
        )
    )
    h, c = np.zeros((batch, outputs)), np.zeros((batch, hidden))
    for call in range(2):
        x = RNG(call).standard_normal((batch, steps, inputs)).astype(F)
        want = []
        for step in x.swapaxes(0, 1):
            y, h, c = _lstm(step[None], h, c, w, r, b, clip or np.inf)
            h = h if p is None else h @ p.T
            want.append(h)
        np.testing.assert_allclose(model(x), np.stack(want, 1), rtol=1e-4, atol=1e-5)
    model.reset()
    again = model(RNG(0).standard_normal((batch, steps, inputs)).astype(F))
    assert not np.allclose(again, np.stack(want, 1))


def test_rnn_and_svdf():
    rng = RNG(4)
    w, r, b = (rng.standard_normal(s).astype(F) for s in ((5, 3), (5, 5), (5,)))
    state = Tensor((2, 5), variable=True)
    model = fo.load_tflite(
        single(
            "UNIDIRECTIONAL_SEQUENCE_RNN",
            [Tensor((2, 4, 3)), constant(w), constant(r), constant(b), state],
            [Tensor((2, 4, 5))],
            ("SequenceRNNOptions", dict(FusedActivationFunction=4)),
        )
    )
    x, h = rng.standard_normal((2, 4, 3)).astype(F), np.zeros((2, 5))
    for t, y in enumerate(model(x).swapaxes(0, 1)):
        h = np.tanh(x[:, t] @ w.T + h @ r.T + b)
        np.testing.assert_allclose(y, h, rtol=1e-4, atol=1e-5)

    features, times = rng.standard_normal((4, 3)).astype(F), rng.standard_normal((4, 6)).astype(F)
    state = Tensor((2, 24), variable=True)
    model = fo.load_tflite(
        single(
            "SVDF",
            [Tensor((2, 3)), constant(features), constant(times), None, state],
            [Tensor((2, 2))],
            ("SVDFOptions", dict(Rank=2)),
        )
    )
    past = np.zeros((2, 4, 6))
    for call in range(8):
        x = RNG(call).standard_normal((2, 3)).astype(F)
        past = np.concatenate([past[..., 1:], (x @ features.T)[..., None]], 2)
        want = (past * times).sum(2).reshape(2, 2, 2).sum(2)
        np.testing.assert_allclose(model(x), want, rtol=1e-4, atol=1e-4)


# ---- subgraphs


def _while(limit):
    """x doubled until a counter that starts at input 1 reaches a limit."""
    number, flag, x = Tensor((), INT), Tensor((), np.bool_), Tensor((3,))
    condition = Graph([number, x, constant(np.array(limit, INT)), flag], [Op("LESS", [0, 2], [3])], [0, 1], [3])
    body = Graph([number, x, constant(np.array(1, INT)), number, x],
                 [Op("ADD", [0, 2], [3]), Op("ADD", [1, 1], [4])], [0, 1], [3, 4])  # fmt: skip
    return condition, body


_WHILE = ("WhileOptions", dict(CondSubgraphIndex=1, BodySubgraphIndex=2))


def test_while_of_known_rounds_is_unrolled():
    tensors = [Tensor((3,)), constant(np.array(0, INT)), Tensor((), INT), Tensor((3,))]
    model = fo.load_tflite(write(Graph(tensors, [Op("WHILE", [1, 0], [2, 3], _WHILE)], [0], [3]), *_while(5)))
    assert "Loop" not in {n.op for n in model._graph.nodes}
    assert model(np.arange(3, dtype=F)).tolist() == [0, 32, 64]


def test_while_of_unknown_rounds():
    tensors = [Tensor((3,)), Tensor((), INT), Tensor((), INT), Tensor((3,))]
    model = fo.load_tflite(write(Graph(tensors, [Op("WHILE", [1, 0], [2, 3], _WHILE)], [0, 1], [2, 3]), *_while(5)))
    for start in (0, 3, 7):
        count, y = model(np.arange(3, dtype=F), np.array(start, INT))
        assert count == max(5, start) and y.tolist() == [0, 2.0 ** max(5 - start, 0), 2 * 2.0 ** max(5 - start, 0)]
    endless = write(Graph(tensors, [Op("WHILE", [1, 0], [2, 3], _WHILE)], [0, 1], [3]), *_while(2**31 - 1))
    assert fo.load_tflite(endless)(np.zeros(3, F), np.array(2**31 - 3, INT)).tolist() == [0, 0, 0]


def test_if():
    x, flag = Tensor((3,)), Tensor((), np.bool_)
    branches = [Graph([x, x, x], [Op(kind, [0, 1], [2])], [0, 1], [2]) for kind in ("ADD", "MUL")]
    op = Op("IF", [0, 1, 2], [3], ("IfOptions", dict(ThenSubgraphIndex=1, ElseSubgraphIndex=2)))
    model = fo.load_tflite(write(Graph([flag, x, x, x], [op], [0, 1, 2], [3]), *branches))
    a, b = np.float32([1, 2, 3]), np.float32([4, 5, 6])
    assert model(np.array(True), a, b).tolist() == [5, 7, 9] and model(np.array(False), a, b).tolist() == [4, 10, 18]
    known = write(Graph([constant(np.array(True)), x, x, x], [op], [1, 2], [3]), *branches)
    model = fo.load_tflite(known)
    assert "If" not in {n.op for n in model._graph.nodes} and model(a, b).tolist() == [5, 7, 9]


def test_composite_is_the_subgraph_that_it_names():
    x = Tensor((3,))
    inner = Graph([x, x], [Op("TANH", [0], [1])], [0], [1])
    op = Op("STABLEHLO_COMPOSITE", [0], [1], ("StableHLOCompositeOptions", dict(DecompositionSubgraphIndex=1)))
    model = fo.load_tflite(write(Graph([x, x], [op], [0], [1]), inner))
    np.testing.assert_allclose(model(np.ones(3, F)), np.tanh(np.ones(3)), rtol=1e-5)


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
    ops = [Op("FlexErf", [0], [1], None, b"x"), Op("MULTINOMIAL", [0], [1]), Op("Mine", [0], [1], None, b"x")]
    with pytest.raises(ValueError, match=r"'FlexErf'.*TensorFlow itself.*'Mine' \(here\).*MULTINOMIAL.*random"):
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


# ---- networks of several layers in 8 and 16 bits


def _chain(dtype):
    """(a network of a convolution, a padding, a depthwise convolution, a sum, a pool and a product, its value in
    floats)."""
    rng, tensors, ops, real = RNG(7), [], [], {}
    info, w_type = np.iinfo(dtype), np.int8 if dtype != np.uint8 else np.uint8
    steps, zero = (32767, 0) if dtype == np.int16 else (127, 128 if dtype == np.uint8 else 3)

    def tensor(shape, most):
        tensors.append(Tensor(shape, dtype, None, most / steps, zero))
        return len(tensors) - 1

    def weights(shape, axis, x):
        w_zero = 128 if w_type is np.uint8 else 0
        w = rng.integers(-60, 60, shape)
        tensors.append(constant((w + w_zero).astype(w_type), scale=0.01, zero=w_zero, axis=axis))
        b = rng.integers(-50, 50, shape[axis])
        scale = 0.01 * tensors[x].scale
        tensors.append(constant(b.astype(np.int64 if dtype == np.int16 else INT), scale=scale))
        real[len(tensors) - 2], real[len(tensors) - 1] = w * 0.01, b * scale
        return len(tensors) - 2, len(tensors) - 1

    x = tensor((1, 8, 8, 4), 1.0)
    w, b = weights((6, 3, 3, 4), 0, x)
    c = tensor((1, 8, 8, 6), 6.0)
    pads = len(tensors)
    tensors.append(constant(np.array([[0, 0], [1, 1], [1, 1], [0, 0]], INT)))
    p = tensor((1, 10, 10, 6), 6.0)
    w2, b2 = weights((1, 3, 3, 6), 3, p)
    d, s, m = tensor((1, 8, 8, 6), 9.0), tensor((1, 8, 8, 6), 15.0), tensor((1, 4, 4, 6), 15.0)
    w3, b3 = weights((5, 96), 0, m)
    y = tensor((1, 5), 150.0)
    window = dict(StrideH=1, StrideW=1, DilationHFactor=1, DilationWFactor=1)
    pool = dict(StrideH=2, StrideW=2, FilterHeight=2, FilterWidth=2, Padding=1)
    ops = [
        Op("CONV_2D", [x, w, b], [c], ("Conv2DOptions", window | dict(Padding=0, FusedActivationFunction=3))),
        Op("PAD", [c, pads], [p]),
        Op("DEPTHWISE_CONV_2D", [p, w2, b2], [d], ("DepthwiseConv2DOptions", window | dict(Padding=1))),
        Op("ADD", [c, d], [s], ("AddOptions", dict(FusedActivationFunction=1))),
        Op("MAX_POOL_2D", [s], [m], ("Pool2DOptions", pool)),
        Op("FULLY_CONNECTED", [m, w3, b3], [y]),
    ]

    def compute(a):
        a = (a.astype(float) - zero) / steps
        one = np.clip(nhwc_conv(a, real[w], real[b], padding="SAME"), 0, 6)
        two = nhwc_conv(one, real[w2].transpose(3, 1, 2, 0), real[b2], padding="SAME", groups=6)
        both = np.maximum(one + two, 0).reshape(1, 4, 2, 4, 2, 6).max((2, 4))
        return both.reshape(1, -1) @ real[w3].T + real[b3]

    given = RNG(0).integers(info.min, info.max, (1, 8, 8, 4), endpoint=True).astype(dtype)
    return write(Graph(tensors, ops, [x], [y])), given, compute(given), tensors[y]


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16])
def test_quantized_network(dtype, tmp_path):
    data, x, want, result = _chain(dtype)
    model = fo.load_tflite(data)
    y = model(x)
    model.save(tmp_path / "model.fo")
    assert np.array_equal(fo.load(tmp_path / "model.fo")(x), y)
    assert y.dtype == dtype
    got = (y.astype(float) - result.zero) * result.scale
    bound = 0.02 if dtype != np.int16 else 2e-4  # of several roundings, by the largest value
    assert np.abs(got - want).max() <= bound * np.abs(want).max() + 2 * result.scale
    kinds = [n.op for n in model._graph.nodes]
    if dtype == np.int16:
        assert "Conv" in kinds and kinds.count("DequantizeLinear") == 1  # the input; inside they are floats
    else:
        assert not {"Conv", "Gemm", "Pad", "DequantizeLinear", "QuantizeLinear"}.intersection(kinds)
    unfused = fo.load_tflite(data, fold=False, fuse=False)(x)
    assert np.abs(unfused.astype(np.int64) - y.astype(np.int64)).max() <= 2


def test_products_of_rows_take_a_residual():
    w = RNG(1).standard_normal((3, 3)).astype(F)
    tensors = [Tensor((2, 5, 3)), constant(w), Tensor((2, 5, 3)), Tensor((2, 5, 3))]
    options = ("FullyConnectedOptions", dict(KeepNumDims=True))
    ops = [Op("FULLY_CONNECTED", [0, 1, -1], [2], options), Op("ADD", [2, 0], [3])]
    model = fo.load_tflite(write(Graph(tensors, ops, [0], [3])))
    assert [n.op for n in model._graph.nodes] == ["Linear"]
    x = RNG(0).standard_normal((2, 5, 3)).astype(F)
    np.testing.assert_allclose(model(x), x @ w.astype(float).T + x, rtol=1e-5, atol=1e-5)


def _requantized(sums, scale, zero, low):
    """Sums as LiteRT's reference kernels make int8 of them: by a multiplier of 31 bits, rounded to bits behind the point
    that a second rounding drops, halves away from zero."""
    significand, exponent = np.frexp(scale)
    multiplier = np.rint(significand * 2**31).astype(np.int64)
    first = (sums.astype(np.int64) * multiplier + (1 << 30)) >> 31
    right = -exponent.astype(np.int64)
    return np.clip((first + (1 << right >> 1) - (first < 0) >> right) + zero, low, 127)


@pytest.mark.parametrize("act, zero", [(0, 5), (1, 5), (0, -128)])
@pytest.mark.parametrize("kind", ["CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"])
def test_rounds_as_litert(isa, kind, act, zero):
    """Large scales, where the first of two roundings keeps few bits, and so shows."""
    rng, channels = RNG(2), 24
    x, x_zero = rng.integers(-128, 128, (1, 9, 9, channels)).astype(np.int8), -7
    deep = kind == "DEPTHWISE_CONV_2D"
    w = rng.integers(-127, 128, (1, 3, 3, channels) if deep else (channels, 1, 1, channels)).astype(np.int8)
    b = rng.integers(-500, 500, channels).astype(INT)
    w_scale, y_scale = rng.uniform(0.002, 0.02, channels).astype(F), F(0.35 if deep else 0.7)
    scale = w_scale.astype(float) * F(0.5) / y_scale
    centred = x.astype(np.int64) - x_zero
    if deep:
        padded = np.pad(centred, [(0, 0), (1, 1), (1, 1), (0, 0)])
        sums = sum(padded[:, i : i + 9, j : j + 9] * w[0, i, j].astype(np.int64) for i in range(3) for j in range(3))
    else:
        sums = centred @ w.reshape(channels, channels).astype(np.int64).T
    want = _requantized(sums + b, scale, zero, max(-128, zero) if act else -128)
    if kind == "FULLY_CONNECTED":
        x, w, want = x.reshape(-1, channels), w.reshape(channels, channels), want.reshape(-1, channels)
    tensors = [
        Tensor(x.shape, np.int8, None, 0.5, x_zero),
        constant(w, scale=w_scale, axis=3 if deep else 0),
        constant(b, scale=w_scale * F(0.5)),
        Tensor(want.shape, np.int8, None, float(y_scale), zero),
    ]
    names = {"CONV_2D": "Conv2DOptions", "DEPTHWISE_CONV_2D": "DepthwiseConv2DOptions"}
    options = dict(FusedActivationFunction=act)
    if kind != "FULLY_CONNECTED":
        options |= dict(StrideH=1, StrideW=1, DilationHFactor=1, DilationWFactor=1, Padding=0)
    op = Op(kind, [0, 1, 2], [3], (names.get(kind, "FullyConnectedOptions"), options))
    data = write(Graph(tensors, [op], [0], [3]))
    for form in ({}, dict(fuse=False)) if act or zero == -128 else ({},):
        y = fo.load_tflite(data, **form)(x)
        assert np.abs(y - want).max() <= 1 and np.mean(y != want) < 2e-3


def test_integers_inside_a_network_are_those_of_the_file():
    """A cast of what is kept as uint8 inside."""
    x, z = Tensor((4,), np.int8, None, 0.1, 3), Tensor((4,), np.int8, None, 0.1, 3)
    ops = [Op("RELU", [0], [1]), Op("CAST", [1], [2], ("CastOptions", dict(OutDataType=2)))]
    model = fo.load_tflite(write(Graph([x, z, Tensor((4,), INT)], ops, [0], [2])))
    assert model(np.array([-128, 2, 3, 127], np.int8)).tolist() == [3, 3, 3, 127]


def test_inputs_that_are_outputs_and_outputs_that_are_one():
    x = Tensor((1, 2, 2, 3))
    data = write(Graph([x, x], [Op("TANH", [0], [1])], [0], [0, 1, 1]))
    a = RNG(0).standard_normal((1, 2, 2, 3)).astype(F)
    same, once, twice = fo.load_tflite(data)(a)
    assert np.array_equal(same, a) and np.array_equal(once, twice)
    np.testing.assert_allclose(once, np.tanh(a), rtol=1e-5)
