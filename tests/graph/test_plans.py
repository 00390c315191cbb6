"""Networks of open sizes: the plan of a new size is filled in from one that was made before, and is
what planning anew gives."""

import copy

import numpy as np
import pytest

pytest.importorskip("onnx")
from onnx.parser import parse_model

import fusedops as fo
from fusedops.graph.inference import shape_inference
from fusedops.graph.ir import symbolic
from fusedops.graph.ir.errors import NoSymbolic
from fusedops.graph.operators.registry import OPERATORS
from fusedops.graph.planner import plan
from fusedops.graph.runtime import session

FAILED = session.Session._failed  # which all tests forbid
WEIGHTS = np.random.default_rng(0)


def network(inputs, body, **constants):
    """A network with constants as initializers, of opset 17."""
    model = parse_model(
        f'<ir_version: 8, opset_import: ["" : 17]> net ({inputs}) => (float[..] y) {{ {body} }}'.replace("[..]", "")
    )
    from onnx import numpy_helper

    model.graph.initializer.extend(numpy_helper.from_array(a, name) for name, a in constants.items())
    return fo.load_onnx(model)


def w(*shape):
    return WEIGHTS.standard_normal(shape, np.float32) / 4


def ints(*values):
    return np.array(values, np.int64)


CASES = {  # a network of an image (n, 4, h, w), or of rows (n, t, 8)
    "convolutions": (
        "float[n, 4, h, w] x",
        'a = Conv<pads=[1,1,1,1]>(x, w) b = Relu(a) c = Conv<auto_pad="SAME_UPPER", strides=[2,2]>(b, v) '
        "d = AveragePool<kernel_shape=[3,3], pads=[1,1,1,1], strides=[2,2], ceil_mode=1>(c) y = GlobalAveragePool(d)",
        dict(w=w(8, 4, 3, 3), v=w(16, 8, 3, 3)),
    ),
    "pyramid": (
        "float[n, 4, h, w] x",
        'a = MaxPool<kernel_shape=[2,2], strides=[2,2]>(x) b = Resize<mode="linear">(a, , s) '
        "c = Conv<pads=[1,1,1,1]>(b, w) "
        'p = Pad<mode="reflect">(c, pads) y = Concat<axis=1>(p, p)',
        dict(s=np.float32([1, 1, 2, 2]), w=w(4, 4, 3, 3), pads=ints(0, 0, 1, 2, 0, 0, 2, 1)),
    ),
    "separable": (
        "float[n, 4, h, w] x",
        "a = Conv(x, p) b = Relu(a) c = Conv<pads=[1,1,1,1], group=16>(b, d) e = Relu(c) y = Conv(e, q)",
        dict(p=w(16, 4, 1, 1), d=w(16, 1, 3, 3), q=w(32, 16, 1, 1)),
    ),
    "attention": (
        "float[n, t, 8] x",
        "s = Shape(x) n1 = Gather(s, zero) t1 = Gather(s, one) n2 = Unsqueeze(n1, zeros) t2 = Unsqueeze(t1, zeros) "
        "heads = Concat<axis=0>(n2, t2, split) q0 = MatMul(x, w) q1 = Reshape(q0, heads) "
        "q = Transpose<perm=[0,2,1,3]>(q1) "
        "k = Transpose<perm=[0,2,3,1]>(q1) l = MatMul(q, k) a = Softmax<axis=-1>(l) o = MatMul(a, q) "
        "o1 = Transpose<perm=[0,2,1,3]>(o) "
        "flat = Concat<axis=0>(n2, t2, last) o2 = Reshape(o1, flat) r = Add(x, o2) y = LayerNormalization(r, g, b)",
        dict(
            zero=np.array(0), one=np.array(1), zeros=ints(0), split=ints(2, 4), last=ints(-1), w=w(8, 8), g=w(8), b=w(8)
        ),
    ),
    "positions": (
        "float[n, t, 8] x",
        "s = Shape(x) t1 = Gather(s, one) i = Range(zero, t1, one) e = Gather<axis=0>(table, i) h = Add(x, e) "
        "t2 = Unsqueeze(t1, zeros) m0 = Slice(table, zeros, t2, zeros) y = Mul(h, m0)",
        dict(zero=np.array(0), one=np.array(1), zeros=ints(0), table=w(64, 8)),
    ),
    "halves": (
        "float[n, t, 8] x",
        "s = Shape(x) t1 = Gather(s, one) half = Div(t1, two) h = Unsqueeze(half, zeros) a = Slice(x, zeros, h, axis) "
        "more = Sub(t1, half) m = Unsqueeze(more, zeros) parts = Concat<axis=0>(h, m) "
        "b, c = Split<axis=1>(x, parts) d = Add(a, b) "
        "y = Concat<axis=1>(c, d, a)",
        dict(one=np.array(1), two=np.array(2), zeros=ints(0), axis=ints(1)),
    ),
    "recurrent": (
        "float[t, n, 8] x",
        "a, h, c = LSTM<hidden_size=4>(x, w, r) b = Squeeze(a, one) m = Where(cond, b, b) z = Neg(m) y = Exp(z)",
        dict(w=w(1, 16, 8), r=w(1, 16, 4), one=ints(1), cond=np.array(True)),
    ),
    "filled": (
        "float[n, t, 8] x",
        "s = Shape(x) z = ConstantOfShape(s) e = Expand(row, s) a = Add(x, z) y = Mul(a, e)",
        dict(row=w(8)),
    ),
}
SHAPES = {
    4: [
        (1, 4, 12, 16),
        (1, 4, 16, 20),
        (1, 4, 32, 24),
        (1, 4, 30, 40),
        (2, 4, 8, 8),
        (2, 4, 64, 10),
        (1, 4, 48, 96),
        (3, 4, 36, 50),
    ],
    3: [(1, 5, 8), (1, 6, 8), (1, 17, 8), (3, 9, 8), (2, 24, 8), (1, 40, 8), (2, 31, 8), (5, 2, 8)],
}


def given(inputs):
    return [WEIGHTS.standard_normal(shape, np.float32) for shape in SHAPES[4 if "h, w" in inputs else 3]]


def described(step):
    """All that a step says, but for the layers, which plans share."""
    tensors = [
        (t.shape, t.strides, t.dtype, t.offset, t.stride_bytes, t.buffer.slot, t.buffer.nbytes, t.buffer.offset)
        for t in step.tensors()
    ]
    return (
        step.kind,
        step.node.name,
        step.tiles,
        tensors,
        [n.name for n in step.inner],
        [str(a) for a in step.arguments.values() if isinstance(a, (int, float, str))],
    )


@pytest.mark.parametrize("case", CASES)
def test_the_same_as_planned_anew(case, threads):
    inputs, body, constants = CASES[case]
    net = network(inputs, body, **constants)
    for x in given(inputs):
        anew = copy.copy(net)
        y = net(x)
        np.testing.assert_array_equal(y, anew(x))
        ours, theirs = net._plan(x)[0], anew._plan(x)[0]
        assert list(map(described, ours.steps)) == list(map(described, theirs.steps))
        assert (ours.arena, ours.outputs, ours.shapes) == (theirs.arena, theirs.outputs, theirs.shapes)


@pytest.mark.parametrize("case", CASES)
def test_most_sizes_share_one_planning(case, monkeypatch):
    """Shapes are inferred and steps chosen for few of many sizes, not for each."""
    inputs, body, constants = CASES[case]
    net, calls = network(inputs, body, **constants), []
    monkeypatch.setattr(plan, "infer", lambda *a, **k: calls.append(a) or shape_inference.infer(*a, **k))
    for n in range(4, 44):
        net(
            WEIGHTS.standard_normal(
                (1, 4, 2 * n, 64) if "h, w" in inputs else (n, 2, 8) if "[t," in inputs else (1, n, 8), np.float32
            )
        )
    assert 1 < len(calls) <= 6


def test_a_size_that_an_operator_asks_for_is_that_of_its_plan_alone():
    """What cannot stay a Size becomes a plain int; other sizes are planned anew."""
    net = network("float[n, t, 8] x", "k = Shape(x) f = Cast<to=1>(k) g = Floor(f) i = Cast<to=7>(g) y = Reshape(x, i)")
    for t in (3, 5, 9, 5, 7, 3):
        x = np.ones((1, t, 8), np.float32)
        np.testing.assert_array_equal(net(x), x)


def test_sizes_that_do_not_fit_are_refused_as_ever():
    net = network("float[n, t, 8] x, float[n, u, 8] z", "y = Add(x, z)")
    for t in (2, 3, 4):
        assert net(np.ones((1, t, 8), np.float32), np.ones((1, t, 8), np.float32)).shape == (1, t, 8)
    with pytest.raises(ValueError, match="does not fit its inputs of shape"):
        net(np.ones((1, 2, 8), np.float32), np.ones((1, 3, 8), np.float32))
    assert net(np.ones((1, 6, 8), np.float32), np.ones((1, 1, 8), np.float32)).shape == (1, 6, 8)


def test_an_operator_that_fails_with_symbols_is_counted(monkeypatch):
    """Each size is planned anew, and gives what it ever did; errors of a call itself do not count."""
    record = OPERATORS["Softmax"]
    net, other = (network("float[n, t, 8] x, float[n, u, 8] z", "s = Softmax(x) y = Add(s, z)") for _ in range(2))
    inputs = [[np.full((1, t, 8), t, np.float32)] * 2 for t in range(2, 6)]
    expected = [net(*each) for each in inputs]
    assert net._session.failures == 0

    def lower(p, node):
        if symbolic.is_symbolic(p.known[node.output].shape):
            raise NoSymbolic("it takes ints alone")
        return record.kernel.lower(p, node)

    monkeypatch.setitem(OPERATORS, "Softmax", record._replace(kernel=record.kernel._replace(lower=lower)))
    monkeypatch.setattr(session.Session, "_failed", FAILED)
    for each, y in zip(inputs, expected, strict=True):
        np.testing.assert_array_equal(other(*each), y)
    with pytest.raises(ValueError, match="does not fit its inputs of shape"):
        other(inputs[0][0], inputs[1][0])
    assert other._session.failures == 3


def test_templates_are_not_made_without_end(monkeypatch):
    """A network whose plans hold for one size each."""
    monkeypatch.setattr(session, "SYMBOLIC_PLANS", 3)
    net = network("float[n, t, 8] x", "k = Shape(x) f = Cast<to=1>(k) g = Floor(f) i = Cast<to=7>(g) y = Reshape(x, i)")
    for t in range(1, 9):
        net(np.ones((1, t, 8), np.float32))
    assert sum(map(len, net._session._symbolic.values())) <= 3


# ---- sizes


def traced(*values):
    env = symbolic.ShapeEnv(values)
    return env, env.given


def test_arithmetic_is_that_of_ints():
    for a, b in ((7, 3), (-7, 3), (12, -5), (0, 4), (1, 1)):
        env, (x, y) = traced(a, b)
        found = [
            x + y,
            x - y,
            x * y,
            x // y,
            x % y,
            -x,
            3 + x,
            3 - x,
            5 * x,
            100 // y,
            100 % y,
            x + 2,
            x - 2,
            x // 2,
            x % 4,
            abs(x),
        ]
        values = symbolic._core.Formulas(env.formulas).run((a, b))
        expected = [
            a + b,
            a - b,
            a * b,
            a // b,
            a % b,
            -a,
            3 + a,
            3 - a,
            5 * a,
            100 // b,
            100 % b,
            a + 2,
            a - 2,
            a // 2,
            a % 4,
            abs(a),
        ]
        assert [symbolic.value(n) for n in found] == symbolic.concrete(found, values) == expected


@pytest.mark.parametrize(
    "test",
    [
        lambda x, y: x < y,
        lambda x, y: x <= y,
        lambda x, y: x > y,
        lambda x, y: x >= y,
        lambda x, y: x == y,
        lambda x, y: x != y,
        lambda x, y: bool(x - y),
        lambda x, y: x / y,
        lambda x, y: int(x * y),
        lambda x, y: max(x, y) > 4,
        lambda x, y: 5 in (x, y),
        lambda x, y: range(x),
        lambda x, y: np.zeros(y).shape,
        lambda x, y: {x: 1}[x],
        lambda x, y: abs(x - y) < 2,
        lambda x, y: float(x),
        lambda x, y: x + 0.5,
        lambda x, y: symbolic.guard(lambda a, b: a + b > 7, x, y),
    ],
)
def test_conditions(test):
    """Sizes that meet the conditions of an environment have its results."""
    pairs = [(a, b) for a in range(1, 8) for b in range(1, 8)]
    for pair in pairs:
        env, (x, y) = traced(*pair)
        result = test(x, y)
        assert result == test(*pair)
        formulas = symbolic._core.Formulas(env.formulas)
        for other in pairs:
            values = formulas.run(other)
            held = values is not None and all(f(*symbolic.concrete(a, values)) == r for f, a, r in env.guards)
            assert held or other != pair
            assert not held or test(*other) == result or result is x


def test_what_overflows_does_not_hold():
    env, (x, y) = traced(3, 4)
    assert x * y * x * y == 144
    assert symbolic._core.Formulas(env.formulas).run((1 << 40, 1 << 40)) is None
    env, (x, y) = traced(3, 4)
    assert x // y == 0
    assert symbolic._core.Formulas(env.formulas).run((3, 0)) is None
    with pytest.raises(OverflowError):
        traced(1 << 62)[1][0] * 4


def test_values_that_come_later():
    env, (x, y) = traced(3, 4)
    assert symbolic.deferred(np.arange, 5).tolist() == [0, 1, 2, 3, 4]
    late = symbolic.deferred(np.arange, x * y)
    assert (
        symbolic.is_symbolic((1, [late]))
        and len(symbolic.concrete(late, symbolic._core.Formulas(env.formulas).run((2, 5)))) == 10
    )
    assert late.size == 12  # looked at before: from now on the only size
    assert (
        symbolic._core.Formulas(env.formulas).run((2, 5)) is None
        and symbolic._core.Formulas(env.formulas).run((6, 2)) is not None
    )


def test_values_that_come_later_stay_while_their_sizes_do():
    env, (x, _) = traced(3, 4)
    made = []
    inner = symbolic.deferred(lambda n: made.append(n) or np.arange(n), x + 1)
    late = symbolic.deferred(np.negative, inner)
    for sizes in (2, 5), (2, 6), (2, 7), (4, 7), (2, 7):
        values = symbolic._core.Formulas(env.formulas).run(sizes)
        np.testing.assert_array_equal(symbolic.concrete(late, values), -np.arange(sizes[0] + 1))
    assert made == [3, 5, 3]


# ---- steps that had no kernel


@pytest.mark.parametrize("bounds", ["lo, hi", "lo", ", hi"])
def test_clip_with_computed_bounds(bounds):
    """Two steps, as numpy.minimum of numpy.maximum; NaN and bounds in the wrong order too."""
    net = network(
        "float[n, t, 8] x, float[1] lo, float hi",
        f"a = Exp(x) b = Clip(a, {bounds.replace('lo', 'lo1')}) y = Neg(b)".replace(
            "a = Exp(x)", "one = Shape(hi) lo1 = Reshape(lo, one) a = Exp(x)"
        ),
    )
    x = WEIGHTS.standard_normal((2, 3, 8), np.float32)
    x[0, 0, 0] = np.nan
    for lo, hi in ((0.5, 1.5), (2.0, 1.0), (np.nan, 1.0)):
        y = network("float[n, t, 8] x", "y = Exp(x)")(x)
        y = np.maximum(y, np.float32(lo)) if "lo" in bounds else y
        y = -(np.minimum(y, np.float32(hi)) if "hi" in bounds else y)
        given = np.float32([lo]), np.array(hi, np.float32)
        np.testing.assert_array_equal(net(x, *given), y)
        assert "numpy" not in [step.kind for step in net._plan(x, *given)[0].steps]


def test_clip_whose_bounds_pass_through_cast():
    net = network(
        "float[n, 4, h, w] x",
        "l = Cast<to=1>(lo) h1 = Identity(hi) a = Conv(x, w) y = Clip(a, l, h1)",
        lo=np.array(0.0),
        hi=np.array(6.0, np.float32),
        w=w(4, 4, 1, 1),
    )
    x = WEIGHTS.standard_normal((1, 4, 5, 6), np.float32)
    assert [step.kind for step in net._plan(x)[0].steps] == ["conv2d"]
    assert net(x).min() >= 0 and net(x).max() <= 6


def test_batches_that_share_the_right_operand():
    net = network("float[n, t, 8] x, float[8, 5] z", "y = MatMul(x, z)")
    x, z = WEIGHTS.standard_normal((7, 3, 8), np.float32), w(8, 5)
    (step,) = net._plan(x, z)[0].steps
    assert step.arguments["a"].shape == (21, 8)
    np.testing.assert_allclose(net(x, z), x @ z, rtol=1e-5, atol=1e-6)


def test_plans_share_the_memory_inside():
    net = network("float[n, t, 8] x", "a = MatMul(x, x1) y = Exp(a)", x1=w(8, 64))
    for t in (9, 200, 50, 3):
        net(np.ones((1, t, 8), np.float32))
    assert len({id(arenas) for _, arenas in net._session._plans.values()}) == 1 and len(net._session._arenas) == 1


def scattered(indices, updates, shape=(3, 4, 5)):
    net = network(
        "float[a, b, c] x, float[] u".replace("float[] u", f"float{list(updates)} u"),
        "e = Exp(x) s = ScatterND(e, i, u) y = Neg(s)",
        i=np.array(indices, np.int64),
    )
    x, u = WEIGHTS.standard_normal(shape, np.float32), WEIGHTS.standard_normal(updates, np.float32)
    expected = network("float[a, b, c] x", "y = Exp(x)")(x)
    expected[tuple(np.moveaxis(np.array(indices), -1, 0))] = u
    np.testing.assert_array_equal(net(x, u), -expected)
    return [step.kind for step in net._plan(x, u)[0].steps]


def test_scatter_into_a_part_is_a_copy():
    """Indices that are all places of a part, in order; any others take a step of their own."""
    grid = np.stack(np.meshgrid(range(1, 3), range(0, 4, 3), indexing="ij"), -1)
    assert "scatter" not in scattered(grid, (2, 2, 5))
    assert "scatter" not in scattered([[1]], (1, 4, 5))
    assert "scatter" not in scattered(
        np.stack(np.meshgrid(range(3), range(4), range(2, 4), indexing="ij"), -1), (3, 4, 2)
    )
    assert "scatter" in scattered(grid[::-1], (2, 2, 5))
    assert "scatter" in scattered([[2], [0], [1]], (3, 4, 5))
    assert "scatter" in scattered([[-1]], (1, 4, 5))
    assert "scatter" in scattered([[0, 1], [1, 2]], (2, 5))
    assert "scatter" in scattered(np.where(grid == 2, 1, grid), (2, 2, 5))


def test_views_of_integers_are_no_steps():
    net = network(
        "int64[n, t] x",
        "a = Unsqueeze(x, one) b = Transpose<perm=[2,1,0]>(a) c = Squeeze(b, one) "
        "d = Slice(c, zero, one, zero) y = Cast<to=1>(d)",
        one=ints(1),
        zero=ints(0),
    )
    x = np.arange(12).reshape(3, 4)
    np.testing.assert_array_equal(net(x), x.T[:1])
    assert len(net._plan(x)[0].steps) == 1


def test_integers_that_decide_on_shapes_stay_open_too(monkeypatch):
    """A target size as an input: one plan for all."""
    net, calls = network("float[n, t, 8] x, int64[1] k", "y = Slice(x, zero, k, one)", zero=ints(0), one=ints(1)), []
    monkeypatch.setattr(plan, "infer", lambda *a, **k: calls.append(a) or shape_inference.infer(*a, **k))
    x = WEIGHTS.standard_normal((1, 30, 8), np.float32)
    for k in range(2, 25):
        np.testing.assert_array_equal(net(x, ints(k)), x[:, :k])
    np.testing.assert_array_equal(net(x, ints(-3)), x[:, :-3])
    np.testing.assert_array_equal(net(x, ints(99)), x)
    assert len(calls) <= 6


def test_a_reduction_of_sizes_that_objects_lack():
    net = network(
        "float[n, t, 8] x",
        "s = Shape(x) m = ReduceMax<keepdims=1>(s) z = Expand(unit, m) a = ReduceSum(z) y = Add(x, a)",
        unit=np.ones(1, np.float32),
    )
    for t in (9, 12, 20, 5):
        x = np.zeros((1, t, 8), np.float32)
        np.testing.assert_array_equal(net(x), x + max(t, 8))


def test_a_factor_of_a_product_divides_it():
    """Whatever the sizes are but 0, and not only those that it was noted for."""
    env, (x, y) = traced(4, 6)
    assert (x * y // y).number == x.number and x * y % x == 0 and (x * 2 // 2).number == x.number
    assert symbolic.is_multiple(x * y, y) and symbolic.is_multiple(x, x) and symbolic.is_multiple(x * 2, 2)
    conditions = symbolic.Conditions(env)
    assert conditions.values((5, 7)) is not None and conditions.values((5, 0)) is None
    assert not symbolic.is_multiple(x, 2) and not symbolic.is_multiple(12, x) and not symbolic.is_multiple(y * 2, x)
    assert symbolic.is_multiple(12, 4) and not symbolic.is_multiple(12, 5)
