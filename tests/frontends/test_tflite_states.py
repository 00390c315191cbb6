"""What goes on in networks of TFLite: variables, recurrent layers, loops and branches."""

import numpy as np
import pytest

pytest.importorskip("tflite")

import fusedops as fo
from tflite_models import Graph, Op, Tensor, constant, single, write

F, INT = np.float32, np.int32
RNG = np.random.default_rng


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
    model = fo.load_tflite(single("TANH", [Tensor((3,))], [Tensor((3,))]))
    model.reset()
    assert model(np.zeros(3, F)).tolist() == [0, 0, 0]


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
