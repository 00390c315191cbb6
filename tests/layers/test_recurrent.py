"""Sequences of recurrent cells against a float64 loop over the formulas, and the ways in which their results must have
the same bits."""

import copy
import pickle
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest

import fusedops as fo

GATES = {"RNN": 1, "LSTM": 4, "GRU": 3}
# Recurrent weights are drawn such that a step does not enlarge an error: some units in the last place of 1 are enough.
TOLERANCE = 4e-6


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def cell(
    kind,
    x,
    h,
    c,
    w_ih,
    w_hh,
    b_ih,
    b_hh,
    w_hr=None,
    peephole=None,
    clip=np.inf,
    cell_clip=np.inf,
    reset_after=True,
    activation=np.tanh,
    gate=sigmoid,
    new=np.tanh,
    out=np.tanh,
):
    """One step in float64: h and c after it."""

    def held(s):
        return np.clip(s, -clip, clip)

    n = w_ih.shape[0] // GATES[kind]
    gx, gh = np.split(x @ w_ih.T + b_ih, GATES[kind], -1), np.split(h @ w_hh.T + b_hh, GATES[kind], -1)
    if kind == "RNN":
        return activation(held(gx[0] + gh[0])), c
    if kind == "GRU":
        r, z = gate(held(gx[0] + gh[0])), gate(held(gx[1] + gh[1]))
        n = new(held(gx[2] + (r * gh[2] if reset_after else (r * h) @ w_hh[-h.shape[1] :].T + b_hh[-h.shape[1] :])))
        return (1 - z) * n + z * h, c
    p_i, p_f, p_o = np.zeros((3, n)) if peephole is None else peephole
    i, f = gate(held(gx[0] + gh[0] + p_i * c)), gate(held(gx[1] + gh[1] + p_f * c))
    c = np.clip(f * c + i * new(held(gx[2] + gh[2])), -cell_clip, cell_clip)
    h = gate(held(gx[3] + gh[3] + p_o * c)) * out(c)
    return h if w_hr is None else h @ w_hr.T, c


def sequence(kind, x, h, c, weights, directions=1, reverse=False, lengths=None, **options):
    """Layers over (steps, batch, inputs) in float64; weights holds the arrays of each layer and direction by name."""
    h, c = h.astype(np.float64), c.astype(np.float64)
    lengths = np.full(x.shape[1], x.shape[0]) if lengths is None else np.asarray(lengths)
    x = x.astype(np.float64)
    for layer in range(len(weights) // directions):
        y = []
        for d in range(directions):
            at = layer * directions + d
            w = {k: None if v is None else v.astype(np.float64) for k, v in weights[at].items()}
            out = np.zeros((*x.shape[:2], h.shape[2]))
            for t in range(len(x))[:: -1 if (d == 1) != reverse else 1]:
                on = t < lengths
                h[at, on], c[at, on] = cell(kind, x[t, on], h[at, on], c[at, on], **w, **options)
                out[t, on] = h[at, on]
            y.append(out)
        x = np.concatenate(y, -1)
    return x, h, c


class Case:
    """Random weights, x and initial state of a layer."""

    def __init__(
        self, draw, kind, steps=5, batch=3, inputs=7, hidden=20, layers=1, directions=1, outputs=None, peephole=False
    ):
        self.kind, self.directions = kind, directions
        rows, width = GATES[kind] * hidden, hidden if outputs is None else outputs
        self.weights = [
            dict(
                w_ih=draw(rows, inputs if i < directions else directions * width) / 2,
                w_hh=draw(rows, width) / np.float32(max(width, 1) ** 0.5),
                b_ih=draw(rows),
                b_hh=draw(rows),
                **({} if outputs is None else dict(w_hr=draw(outputs, hidden))),
                **(dict(peephole=draw(3, hidden)) if peephole else {}),
            )
            for i in range(layers * directions)
        ]
        self.x = draw(steps, batch, inputs)
        self.h, self.c = draw(layers * directions, batch, width), draw(layers * directions, batch, hidden)
        self.state = (self.h, self.c) if kind == "LSTM" else self.h

    def layer(self, **options):
        weights = {name: [w[name] for w in self.weights] for name in self.weights[0]}
        options |= dict(num_layers=len(self.weights) // self.directions, bidirectional=self.directions == 2)
        return getattr(fo, self.kind)(**weights, **options)

    def check(self, result, state=True, **options):
        h, c = (self.h, self.c) if state else (0 * self.h, 0 * self.c)
        y, h, c = sequence(self.kind, self.x, h, c, self.weights, self.directions, **options)
        expected = (y, h, c) if self.kind == "LSTM" else (y, h)
        for a, b in zip(flat(result), expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=0, atol=TOLERANCE)


def flat(result):
    y, state = result
    return (y, *state) if isinstance(state, tuple) else (y, state)


def same(a, b):
    return all(np.array_equal(i, j) for i, j in zip(flat(a), flat(b), strict=True))


@pytest.fixture(params=GATES)
def kind(request):
    return request.param


@pytest.mark.parametrize(
    "shape",
    [
        dict(),
        dict(steps=1),
        dict(batch=1, hidden=1, inputs=1),
        dict(batch=1, hidden=64, steps=9),
        dict(layers=3),
        dict(directions=2),
        dict(layers=2, directions=2, batch=14),
        dict(batch=40, hidden=33, steps=3),
        dict(inputs=70, hidden=16, batch=17),
        dict(hidden=130, inputs=3),
        dict(hidden=0, layers=2, directions=2),
        dict(batch=2, hidden=40, steps=5),
        dict(batch=9, hidden=272, steps=2),
        dict(batch=50, hidden=24, steps=3),
    ],
    ids=str,
)
def test_agrees_with_float64(isa, threads, kind, draw, shape):
    case = Case(draw, kind, **shape)
    layer = case.layer()
    case.check(layer(case.x, case.state))
    case.check(layer(case.x), state=False)


@pytest.mark.parametrize("directions", [1, 2])
@pytest.mark.parametrize("batch", [4, 30])
def test_lengths(isa, threads, kind, draw, directions, batch):
    case = Case(draw, kind, steps=6, batch=batch, directions=directions, layers=2)
    lengths = np.arange(batch) * 5 % 7
    layer = case.layer()
    y, state = layer(case.x, case.state, lengths)
    case.check((y, state), lengths=lengths)
    assert all(not y[n:, b].any() for b, n in enumerate(lengths))
    ended = np.where(np.arange(6)[:, None, None] < lengths[:, None], case.x, np.nan).astype(np.float32)
    assert same(layer(ended, case.state, lengths), (y, state))  # what lies beyond the end does not matter


@pytest.mark.parametrize(
    "options",
    [
        dict(outputs=6),
        dict(outputs=20),
        dict(peephole=True),
        dict(outputs=35, peephole=True),
        dict(outputs=0),
        dict(hidden=0, outputs=3),
        dict(hidden=0),
    ],
    ids=str,
)
def test_projection_and_peephole(isa, threads, draw, options):
    case = Case(draw, "LSTM", layers=2, directions=2, batch=9, **options)
    layer = case.layer()
    case.check(layer(case.x, case.state))
    state = layer.cells[0](case.x[0], case.h[0], case.c[0])
    assert same(
        fo.LSTM(**case.weights[0])(case.x[:1], (case.h[:1], case.c[:1])),
        (state[0][None], tuple(s[None] for s in state)),
    )


@pytest.mark.parametrize(
    "kind, options",
    [
        ("RNN", dict(clip=0.3)),
        ("LSTM", dict(clip=0.3)),
        ("LSTM", dict(cell_clip=0.1)),
        ("GRU", dict(clip=0.3)),
        ("GRU", dict(reset_after=False)),
        ("GRU", dict(reset_after=False, clip=0.3)),
    ],
    ids=str,
)
def test_variants(isa, threads, draw, kind, options):
    case = Case(draw, kind, hidden=50, batch=5)
    result = case.layer(**options)(case.x, case.state)
    case.check(result, **options)
    assert not np.allclose(result[0], case.layer()(case.x, case.state)[0], atol=1e-3)


def test_relu(isa, draw):
    case = Case(draw, "RNN")
    case.check(case.layer(activation="relu")(case.x, case.state), activation=lambda s: np.maximum(s, 0))


FUNCTIONS = {
    "sigmoid": sigmoid,
    "tanh": np.tanh,
    "softplus": lambda s: np.logaddexp(s, 0),
    "softsign": lambda s: s / (1 + np.abs(s)),
    None: lambda s: s,
    "relu": lambda s: np.maximum(s, 0),
    "hardsigmoid": lambda s: np.clip(s / 6 + 0.5, 0, 1),
    ("clip", -0.25, 0.5): lambda s: np.clip(s, -0.25, 0.5),
    ("leaky_relu", 0.25): lambda s: np.where(s < 0, s / 4, s),
}


@pytest.mark.parametrize(
    "names",
    [
        ("hardsigmoid", "tanh", "tanh"),
        ("sigmoid", ("clip", -0.25, 0.5), "tanh"),
        ("sigmoid", "tanh", None),
        ("tanh", "hardsigmoid", ("leaky_relu", 0.25)),
        (("clip", -0.25, 0.5), "softplus", "relu"),
        ("hardsigmoid", "softsign", "softsign"),
    ],
    ids=str,
)
@pytest.mark.parametrize(
    "kind, options",
    [
        ("LSTM", dict(clip=0.3)),
        ("LSTM", dict(peephole=True)),
        ("GRU", {}),
        ("GRU", dict(reset_after=False, clip=0.3)),
    ],
    ids=str,
)
@pytest.mark.parametrize("path", [fo, fo.reference], ids=["fused", "unfused"])
def test_other_functions_of_gates(isa, threads, draw, names, kind, options, path):
    options = dict(options)
    case = Case(draw, kind, hidden=37, batch=5, **({"peephole": True} if options.pop("peephole", False) else {}))
    gate, new, out = (FUNCTIONS[name] for name in names)
    names = names if kind == "LSTM" else names[:2]
    weights = {name: [w[name] for w in case.weights] for name in case.weights[0]}
    layer = getattr(path, kind)(**weights, activations=names, **options)
    case.check(layer(case.x, case.state), gate=gate, new=new, out=out, **options)


def test_the_functions_of_gates_that_are_usual(draw, kind):
    if kind == "RNN":
        pytest.skip("an RNN has one, its activation")
    usual = ("sigmoid", "tanh", "tanh")[: 3 if kind == "LSTM" else 2]
    case = Case(draw, kind)
    layer, plain = case.layer(activations=usual), case.layer()
    assert same(layer(case.x, case.state), plain(case.x, case.state)) and repr(layer) == repr(plain)
    other = case.layer(activations=["relu", *usual[1:]])
    assert "activations=('relu', 'tanh'" in repr(other)
    assert same(pickle.loads(pickle.dumps(other))(case.x, case.state), other(case.x, case.state))
    for wrong in "tanh", ("tanh",), (("prelu", 0.1), *usual[1:]), ("nope", *usual[1:]):
        for path in fo, fo.reference:
            with pytest.raises(ValueError, match="activations must be|prelu|unknown activation"):
                getattr(path, kind)(**case.weights[0], activations=wrong)


def test_reverse(isa, kind, draw):
    case = Case(draw, kind, layers=2)
    case.check(case.layer(reverse=True)(case.x, case.state, [2, 0, 5]), reverse=True, lengths=[2, 0, 5])


def test_bits_of_a_row_alone_and_of_threads(isa, kind, draw):
    case = Case(draw, kind, steps=4, batch=19, hidden=144, inputs=40)
    layer = case.layer()
    y = layer(case.x)[0]
    for b in (0, 7, 18):
        assert np.array_equal(layer(case.x[:, b : b + 1])[0], y[:, b : b + 1])
    before = fo.get_num_threads()
    for n in (1, 2, 3, 5):
        fo.set_num_threads(n)
        assert same(layer(case.x), layer(case.x)) and np.array_equal(layer(case.x)[0], y)
        assert np.array_equal(layer(case.x[:, :2])[0], y[:, :2])
    fo.set_num_threads(before)


@pytest.mark.parametrize("options", [dict(), dict(reverse=True), dict(lengths=[25, 40, 1])], ids=str)
def test_bits_of_layers_that_follow_one_another(isa, kind, draw, options):
    """Two and more threads work on different layers at a time; every layer reads what the one before has finished, and
    no more."""
    options = dict(options)
    lengths = options.pop("lengths", None)
    case = Case(draw, kind, steps=40, batch=3 if lengths else 1, hidden=64, inputs=9, layers=4)
    layer = case.layer(**options)
    before = fo.get_num_threads()
    fo.set_num_threads(1)
    expected = layer(case.x, case.state, lengths)
    case.check(expected, lengths=lengths, **options)
    many = isa == fo.available_isas()[-1]  # who waits for whom is the same code for every set
    for n, repeats in ((2, 20), (3, 5), (5, 5)) if many else ((3, 2),):  # more threads than cores take turns at waiting
        fo.set_num_threads(n)
        assert all(same(layer(case.x, case.state, lengths), expected) for _ in range(repeats)), f"{n} threads"
    fo.set_num_threads(before)


@pytest.mark.parametrize("options", [dict(), dict(reverse=True), dict(directions=2), dict(layers=3)], ids=str)
@pytest.mark.parametrize(
    "lengths", [[40, 40, 33, 7, 7, 1, 0, 0, 0], [3, 40, 0, 17, 40, 1, 17, 16, 2], [7, 40]], ids=str
)
def test_bits_of_rows_with_lengths(isa, kind, draw, options, lengths):
    """Rows are sorted by their lengths, dealt out to threads and dropped where they end: each has the bits that it has
    alone."""
    options = dict(options)
    shape = dict(layers=options.pop("layers", 1), directions=options.pop("directions", 1))
    hidden = 160 if len(lengths) == 2 else 48  # two rows are so few that threads share units or layers
    case = Case(draw, kind, 45, len(lengths), hidden=hidden, **shape)
    layer, before = case.layer(**options), fo.get_num_threads()
    fo.set_num_threads(1)
    alone = []
    for b, n in enumerate(lengths):
        state = tuple(s[:, b : b + 1] for s in case.state) if kind == "LSTM" else case.state[:, b : b + 1]
        y, last = layer(case.x[:n, b : b + 1], state)
        alone.append((np.pad(y, ((0, 45 - n), (0, 0), (0, 0))), *(last if kind == "LSTM" else (last,))))
    expected = [np.concatenate(parts, 1) for parts in zip(*alone)]
    for n in (1, 2, 3) if isa == fo.available_isas()[-1] else (3,):
        fo.set_num_threads(n)
        out = np.full(expected[0].shape, 7, np.float32)
        y, last = layer(case.x, case.state, np.int64(lengths), out=out)
        assert same((y, last), (expected[0], tuple(expected[1:]) if kind == "LSTM" else expected[1])), f"{n} threads"
    fo.set_num_threads(before)


@pytest.mark.parametrize("batch", [1, 6])
def test_sequence_is_its_cells_and_its_stream(isa, kind, draw, batch):
    case = Case(draw, kind, steps=7, batch=batch, hidden=40)
    y, state = case.layer()(case.x, case.state)
    one = getattr(fo, kind + "Cell")(**case.weights[0])
    now = tuple(s[0] for s in (case.state if kind == "LSTM" else (case.state,)))
    stream = case.layer().stream(batch)
    stream.state = case.state
    for t in range(7):
        now = one(case.x[t], *now)
        now = now if kind == "LSTM" else (now,)
        assert np.array_equal(now[0], y[t]) and np.array_equal(stream.step(case.x[t]), y[t])
    assert same((y, stream.state), (y, state))


def test_stream(kind, draw):
    case = Case(draw, kind, layers=2, batch=1)
    layer = case.layer()
    stream = layer.stream()
    y = layer(case.x)[0]
    out = np.empty((1, 20), np.float32)
    assert repr(stream) == f"Stream(batch=1, {layer!r})"
    for _ in range(2):
        stream.reset()
        assert np.array_equal(stream.step(case.x[0, 0]), y[0, 0])
        assert stream.step(case.x[1], out=out) is out and np.array_equal(out, y[1])
        kept = stream.state
        third = stream.step(case.x[2])
        stream.state = kept
        assert np.array_equal(stream.step(case.x[2][:, ::-1].copy()[:, ::-1]), third)
    with pytest.raises(ValueError, match="backwards"):
        Case(draw, kind, directions=2).layer().stream()
    with pytest.raises(ValueError, match=r"\(1, 8\).*\(1, 7\)"):
        stream.step(draw(1, 8))
    with pytest.raises(TypeError if kind == "LSTM" else ValueError):
        stream.state = draw(1, 20)


@pytest.mark.parametrize(
    "copied",
    [copy.copy, copy.deepcopy, lambda stream: pickle.loads(pickle.dumps(stream))],
    ids=["copy", "deepcopy", "pickle"],
)
def test_copies_of_a_stream(kind, draw, copied):
    """They go on from the same state, each with its own."""
    case = Case(draw, kind, layers=2, batch=2)
    stream = case.layer().stream(2)
    stream.step(case.x[0])
    other = copied(stream)
    second = stream.step(case.x[1])
    assert np.array_equal(other.step(case.x[1]), second) and same((second, other.state), (second, stream.state))


def test_memory_of_every_kind(kind, draw):
    case = Case(draw, kind, steps=5, batch=4)
    layer, first = case.layer(), case.layer(batch_first=True)
    expected = layer(case.x, case.state)
    turned = case.x.transpose(1, 0, 2)
    for x in (turned, np.ascontiguousarray(turned), np.asfortranarray(turned)):
        y, state = first(x, case.state)
        assert same((y.transpose(1, 0, 2), state), expected)
    for x in (case.x[..., ::-1].copy()[..., ::-1], np.pad(case.x, 2)[2:-2, 2:-2, 2:-2], np.asfortranarray(case.x)):
        assert same(layer(x, case.state), expected)
    wide = np.full((5, 4, 50), 7, np.float32)
    assert layer(case.x, case.state, out=wide[..., 3:23])[0].base is wide and np.array_equal(
        wide[..., 3:23], expected[0]
    )
    assert (wide[..., :3] == 7).all() and (wide[..., 23:] == 7).all()
    for out in (np.empty((5, 20, 4), np.float32).transpose(0, 2, 1), np.empty((5, 4, 20), np.float32)[::-1]):
        assert np.array_equal(layer(case.x, case.state, out=out)[0], expected[0]) and np.array_equal(out, expected[0])
    alone, batch = flat(layer(case.x[:, 0])), flat(layer(case.x[:, :1]))
    assert all(np.array_equal(a[:, None], b) for a, b in zip(alone, batch, strict=True))


def test_out_over_the_input(draw):
    case = Case(draw, "GRU", inputs=20)
    expected = case.layer()(case.x)[0]
    x = case.x.copy()
    assert case.layer()(x, out=x)[0] is x and np.array_equal(x, expected)


def test_out_over_the_lengths(draw):
    case = Case(draw, "GRU", steps=4, batch=3)
    expected = case.layer()(case.x, lengths=[4, 2, 3])[0]
    out = np.zeros_like(expected)
    lengths = out.reshape(-1)[:6].view(np.int64)
    lengths[:] = 4, 2, 3
    assert np.array_equal(case.layer()(case.x, lengths=lengths, out=out)[0], expected)


def test_denormal_and_special_values(isa, draw):
    case = Case(draw, "LSTM", hidden=33, batch=1, steps=2)
    tiny = np.full_like(case.h, 1e-41)
    assert np.isfinite(case.layer()(case.x, (tiny, tiny))[0]).all()
    x = case.x.copy()
    x[0, 0, 2] = np.nan
    assert np.isnan(case.layer()(x)[0]).all()
    huge = case.layer()(case.x * np.float32(1e30), case.state)[0]
    assert (np.abs(huge) <= 1).all()


def test_empty(kind, draw):
    case = Case(draw, kind, batch=0)
    y, state = case.layer()(case.x, case.state)
    assert y.shape == (5, 0, 20) and flat((y, state))[1].shape == (1, 0, 20)
    assert case.layer()(case.x, lengths=[])[0].shape == (5, 0, 20)
    case = Case(draw, kind, steps=0)
    y, state = case.layer()(case.x, case.state)
    assert y.shape == (0, 3, 20) and same((y, state), (y, case.state))


def test_one_shot_functions_and_copies(kind, draw):
    case = Case(draw, kind, layers=2)
    layer = case.layer()
    expected = layer(case.x, case.state, [5, 2, 3])
    weights = {name: [w[name] for w in case.weights] for name in case.weights[0]}
    assert same(getattr(fo, kind.lower())(case.x, case.state, **weights, num_layers=2, lengths=[5, 2, 3]), expected)
    for other in (pickle.loads(pickle.dumps(layer)), copy.copy(layer), copy.deepcopy(layer)):
        assert same(other(case.x, case.state, [5, 2, 3]), expected) and repr(other) == repr(layer)


@pytest.mark.parametrize(
    "error, text, call",
    [
        (ValueError, r"\(3, 4, 8\).*\(steps, batch, 7\)", lambda f, d: f(d(3, 4, 8))),
        (ValueError, r"x has shape \(7,\)", lambda f, d: f(d(7))),
        (TypeError, r"x has dtype float64.*astype", lambda f, d: f(d(3, 4, 7).astype(np.float64))),
        (ValueError, r"h has shape \(4, 20\).*\(1, 4, 20\)", lambda f, d: f(d(3, 4, 7), (d(4, 20), d(1, 4, 20)))),
        (ValueError, r"c has shape \(1, 3, 20\).*\(1, 4, 20\)", lambda f, d: f(d(3, 4, 7), (d(1, 4, 20), d(1, 3, 20)))),
        (
            TypeError,
            r"state must be a pair of arrays \(h, c\), not a single ndarray",
            lambda f, d: f(d(3, 4, 7), d(1, 4, 20)),
        ),
        (
            TypeError,
            r"state must be a pair of arrays \(h, c\), not 3 of them",
            lambda f, d: f(d(3, 4, 7), [d(1, 4, 20)] * 3),
        ),
        (TypeError, r"lengths has dtype float", lambda f, d: f(d(3, 4, 7), None, [1.0, 2, 3, 3])),
        (TypeError, r"lengths has dtype float", lambda f, d: f(d(3, 1, 7), None, [2.5])),
        (
            ValueError,
            r"lengths has shape \(3,\), but must have shape \(4,\)",
            lambda f, d: f(d(3, 4, 7), None, [1, 2, 3]),
        ),
        (ValueError, r"lengths must be in 0..3.*9", lambda f, d: f(d(3, 1, 7), None, [9])),
        (ValueError, r"lengths must be in 0..3.*4", lambda f, d: f(d(3, 4, 7), None, [1, 2, 3, 4])),
        (ValueError, r"out has shape \(3, 4, 21\).*\(3, 4, 20\)", lambda f, d: f(d(3, 4, 7), out=d(3, 4, 21))),
    ],
    ids=lambda v: None,
)
@pytest.mark.parametrize("path", [fo, fo.reference], ids=["fused", "unfused"])
def test_errors_of_a_call(draw, path, error, text, call):
    with pytest.raises(error, match=text):
        call(path.LSTM(**Case(draw, "LSTM").weights[0]), draw)


@pytest.mark.parametrize(
    "error, text, out",
    [
        (TypeError, r"out must be a pair of arrays \(h, c\), not 3 of them", lambda y: (y, y.copy(), y)),
        (TypeError, r"out must be a pair of arrays \(h, c\), not a single ndarray", lambda y: y),
        (TypeError, "out must be .*None", lambda y: (y, None)),
        (TypeError, "out must be .*None", lambda y: (None, y)),
        (ValueError, "overlap", lambda y: (y, y)),
    ],
    ids=lambda v: None,
)
@pytest.mark.parametrize("path", [fo, fo.reference], ids=["fused", "unfused"])
def test_errors_of_the_results_of_a_cell(draw, path, error, text, out):
    case = Case(draw, "LSTM")
    with pytest.raises(error, match=text):
        path.LSTMCell(**case.weights[0])(case.x[0], case.h[0], case.c[0], out=out(case.c[0].copy()))


@pytest.mark.parametrize(
    "error, text, options",
    [
        (ValueError, "w_ih holds 1 array, but num_layers=2", dict(w_ih=(20, 7), w_hh=(20, 20), num_layers=2)),
        (ValueError, "num_layers must be at least 1", dict(w_ih=(20, 7), w_hh=(20, 20), num_layers=0)),
        (ValueError, r"w_ih has shape \(20, 7\) and w_hh has shape \(20, 21\)", dict(w_ih=(20, 7), w_hh=(20, 21))),
        (ValueError, r"b_hh has shape \(19,\).*\(20,\)", dict(w_ih=(20, 7), w_hh=(20, 20), b_hh=(19,))),
        (
            ValueError,
            "bidirectional layer has both",
            dict(w_ih=[(20, 7)] * 2, w_hh=[(20, 20)] * 2, bidirectional=True, reverse=True),
        ),
        (
            ValueError,
            r"w_ih\[1\] has shape \(20, 7\).*\(20, 20\)",
            dict(w_ih=[(20, 7)] * 2, w_hh=[(20, 20)] * 2, num_layers=2),
        ),
        (ValueError, "clip must be", dict(w_ih=(20, 7), w_hh=(20, 20), clip=-1.0)),
        (ValueError, "prelu", dict(w_ih=(20, 7), w_hh=(20, 20), activation=("prelu", 0.1))),
        (ValueError, "unknown activation", dict(w_ih=(20, 7), w_hh=(20, 20), activation="nope")),
        (
            ValueError,
            r"w_ih\[1\] has shape \(10, 7\).*\(20, 7\)",
            dict(w_ih=[(20, 7), (10, 7)], w_hh=[(20, 20), (10, 10)], bidirectional=True),
        ),
    ],
    ids=lambda v: None,
)
@pytest.mark.parametrize("path", [fo, fo.reference], ids=["fused", "unfused"])
def test_errors_of_a_layer(draw, path, error, text, options):
    def drawn(v):
        if isinstance(v, list):
            return [draw(*shape) for shape in v]
        return draw(*v) if isinstance(v, tuple) and isinstance(v[0], int) else v

    with pytest.raises(error, match=text):
        path.RNN(**{k: drawn(v) for k, v in options.items()})


# Weights from elsewhere: results that the frameworks computed (data/make_recurrent.py). Weights are random and
# unscaled, so that the gates in any other order give something else.

VECTORS = np.load(Path(__file__).parents[1] / "data" / "recurrent.npz")


def vectors(framework):
    """The entries of a framework by name."""
    found = {}
    for key in VECTORS:
        source, name, array = key.split("/")
        if source == framework:
            found.setdefault(name, {})[array] = VECTORS[key]
    return found


def agree(result, *expected):
    for a, b in zip(flat(result), expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=2e-6)


def torch_layer(name, v):
    layers, directions = (2, 2) if "2_bidirectional" in name else (1, 1)
    names = [f"l{i}{s}" for i in range(layers) for s in ("", "_reverse")[:directions]]
    options = (
        dict(w_hr=[v["weight_hr_l0"]]) if "projection" in name else dict(activation="relu") if "relu" in name else {}
    )
    return getattr(fo, name.split("_")[0].upper())(
        *([v[f"{k}_{n}"] for n in names] for k in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")),
        num_layers=layers,
        bidirectional=directions == 2,
        batch_first=name == "lstm_2_bidirectional",
        **options,
    )


@pytest.mark.parametrize("name", vectors("torch"))
def test_vectors_of_pytorch(isa, name):
    v = vectors("torch")[name]
    agree(torch_layer(name, v)(v["x"]), v["y"], *(v[k] for k in "hc" if k in v))


ONNX_OPTIONS = {
    "lstm_clip": dict(clip=0.4),
    "gru_clip": dict(clip=0.4),
    "gru_linear_before_reset": dict(linear_before_reset=1),
    "lstm_reverse": dict(direction="reverse"),
    "lstm_bidirectional": dict(direction="bidirectional"),
    "gru_bidirectional": dict(direction="bidirectional"),
    "lstm_layout_1": dict(layout=1),
    "gru_layout_1": dict(layout=1),
}


@pytest.mark.parametrize("name", vectors("onnx"))
def test_vectors_of_onnx(isa, name):
    v = vectors("onnx")[name]
    options = ONNX_OPTIONS.get(name, {})
    weights = [v[k] for k in "WRBP" if k in v]
    batch_first = "layout" in options
    turned = (1, 0, 2) if batch_first else (0, 1, 2)
    state = [v[k].transpose(turned) for k in ("initial_h", "initial_c") if k in v]
    layer = getattr(fo, name.split("_")[0].upper()).from_onnx(*weights, **options)
    y, state = layer(v["X"], tuple(state) if len(state) == 2 else state[0], v.get("sequence_lens"))
    directions = v["W"].shape[0]
    expected = v["Y"] if batch_first else v["Y"].transpose(0, 2, 1, 3)
    last = [v[k].transpose(turned) for k in ("Y_h", "Y_c") if k in v]  # the reference evaluator has no Y_c
    agree((y.reshape(*y.shape[:2], directions, 5), flat((y, state))[1:][: len(last)]), expected, *last)


@pytest.mark.parametrize("name", vectors("keras"))
def test_vectors_of_keras(isa, name):
    v = vectors("keras")[name]
    weights = [v[str(i)] for i in range(len(v) - 2)]
    options = dict(reset_after=False) if name == "gru_reset_before" else {}
    layer = getattr(fo, name.split("_")[0].upper()).from_keras(*weights, **options)
    agree((layer(v["x"])[0], ()), v["y"])


@pytest.mark.parametrize("framework", ["torch", "onnx", "keras"])
def test_no_other_order_of_gates_agrees(framework):
    """The vectors tell every order of the gates from every other one."""
    for name, v in vectors(framework).items():
        if framework == "torch" and name in ("lstm", "gru"):
            kind = name.upper()
            for order in permutations(range(GATES[kind])):
                names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
                w = [np.concatenate([np.split(v[k], len(order))[i] for i in order]) for k in names]
                same_order = order == tuple(range(GATES[kind]))
                assert np.allclose(getattr(fo, kind)(*w)(v["x"])[0], v["y"], atol=1e-4) == same_order
        if framework == "onnx" and name in ("lstm", "gru"):
            kind = name.upper()
            state = (v["initial_h"], v["initial_c"]) if kind == "LSTM" else v["initial_h"]
            for order in permutations(range(GATES[kind])):

                def turned(a, order=order):
                    return np.concatenate([np.split(a, len(order))[i] for i in order])

                w, r = turned(v["W"][0])[None], turned(v["R"][0])[None]
                b = np.concatenate([turned(half) for half in np.split(v["B"][0], 2)])[None]
                y = getattr(fo, kind).from_onnx(w, r, b)(v["X"], state, v["sequence_lens"])[0]
                assert np.allclose(y, v["Y"][:, 0], atol=1e-4) == (order == tuple(range(GATES[kind])))
        if framework == "keras" and name in ("lstm", "gru_reset_after", "gru_reset_before"):
            kind = name.split("_")[0].upper()
            for order in permutations(range(GATES[kind])):
                w = [
                    np.concatenate([np.split(v[str(i)], len(order), axis=-1)[j] for j in order], axis=-1)
                    for i in range(3)
                ]
                options = dict(reset_after=name == "gru_reset_after") if kind == "GRU" else {}
                y = getattr(fo, kind).from_keras(*w, **options)(v["x"])[0]
                assert np.allclose(y, v["y"], atol=1e-4) == (order == tuple(range(GATES[kind])))


def test_from_torch(draw):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed (its CPU build is enough)")
    x = draw(4, 3, 7)
    for kind, options in (
        ("RNN", dict(nonlinearity="relu")),
        ("LSTM", dict(num_layers=2, bidirectional=True, batch_first=True)),
        ("LSTM", dict(proj_size=3)),
        ("GRU", dict(bias=False)),
    ):
        m = getattr(torch.nn, kind)(7, 20, **options)
        y, state = m(torch.from_numpy(x))
        agree(fo.from_torch(m)(x), *(t.detach().numpy() for t in (y, *(state if kind == "LSTM" else (state,)))))
    h, c = draw(3, 20), draw(3, 20)
    for kind, options in (("RNN", dict(nonlinearity="relu")), ("LSTM", {}), ("GRU", dict(bias=False))):
        m = getattr(torch.nn, kind + "Cell")(7, 20, **options)
        a, b = torch.from_numpy(h), torch.from_numpy(c)
        expected = m(torch.from_numpy(x[0]), (a, b)) if kind == "LSTM" else (m(torch.from_numpy(x[0]), a),)
        result = fo.from_torch(m)(x[0], h, *([c] if kind == "LSTM" else []))
        for i, j in zip(result if kind == "LSTM" else (result,), expected, strict=True):
            np.testing.assert_allclose(i, j.detach().numpy(), rtol=0, atol=2e-6)


@pytest.mark.parametrize(
    "text, call",
    [
        (r"b has shape \(1, 19\).*\(1, 40\)", lambda d: fo.RNN.from_onnx(d(1, 20, 3), d(1, 20, 20), d(1, 19))),
        (r"r has shape \(2, 20, 20\)", lambda d: fo.RNN.from_onnx(d(1, 20, 3), d(2, 20, 20))),
        (r"unknown direction 'both'", lambda d: fo.RNN.from_onnx(d(1, 20, 3), d(1, 20, 20), direction="both")),
        (r"weights have 1 direction", lambda d: fo.RNN.from_onnx(d(1, 20, 3), d(1, 20, 20), direction="bidirectional")),
        (r"layout must be 0 or 1", lambda d: fo.RNN.from_onnx(d(1, 20, 3), d(1, 20, 20), layout=2)),
        (r"shape \(22, 3\).*4 blocks", lambda d: fo.LSTM.from_onnx(d(1, 22, 3), d(1, 22, 5))),
        (r"not 5 arrays", lambda d: fo.LSTM.from_keras(*[d(3, 20)] * 5)),
    ],
    ids=lambda v: None,
)
def test_errors_of_weights_from_elsewhere(draw, text, call):
    with pytest.raises(ValueError, match=text):
        call(draw)


@pytest.mark.parametrize("directions, lengths", [(1, None), (2, [5, 2, 0])])
def test_unfused(kind, draw, directions, lengths):
    case = Case(draw, kind, layers=2, directions=directions)
    weights = {name: [w[name] for w in case.weights] for name in case.weights[0]}
    options = dict(num_layers=2, bidirectional=directions == 2)
    unfused = getattr(fo.reference, kind.lower())
    case.check(unfused(case.x, case.state, **weights, **options, lengths=lengths), lengths=lengths)
    y = unfused(case.x.transpose(1, 0, 2), None, **weights, **options, batch_first=True)[0]
    np.testing.assert_allclose(y.transpose(1, 0, 2), case.layer()(case.x)[0], rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("module", [fo, fo.reference])
@pytest.mark.parametrize("kind, gates", [("RNN", 1), ("LSTM", 4), ("GRU", 3)])
def test_direction_says_what_the_two_flags_say(kind, gates, module, draw):
    w_ih, w_hh, x = draw(gates * 3, 5), draw(gates * 3, 3), draw(4, 2, 5)
    layer = getattr(module, kind)
    for direction, flags in (
        ("forward", {}),
        ("reverse", {"reverse": True}),
        ("bidirectional", {"bidirectional": True}),
    ):
        weights = ([w_ih] * 2, [w_hh] * 2) if direction == "bidirectional" else (w_ih, w_hh)
        expected = layer(*weights, **flags)(x)[0]
        np.testing.assert_array_equal(layer(*weights, direction=direction)(x)[0], expected)
        np.testing.assert_array_equal(layer(*weights, direction=direction, **flags)(x)[0], expected)
        function = getattr(module, kind.lower())
        np.testing.assert_array_equal(function(x, None, *weights, direction=direction)[0], expected)
    with pytest.raises(ValueError, match="unknown direction 'both'; known are 'forward', 'reverse', 'bidirectional'"):
        layer(w_ih, w_hh, direction="both")
    with pytest.raises(
        ValueError, match="direction='forward', but bidirectional=True and reverse=False: pass direction"
    ):
        layer(w_ih, w_hh, direction="forward", bidirectional=True)
