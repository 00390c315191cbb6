"""Steps on elements of any type: comparisons, logic, casts, integer arithmetic, choices, and elements that are picked
by index. Against NumPy, on every instruction set, and without a step that NumPy computes."""

import numpy as np
import pytest

pytest.importorskip("onnx")
from onnx.parser import parse_model

import fusedops as fo
from fusedops import _core
from fusedops._core import Program
from onnx_single_node import model

FLOATS = np.float32, np.float64
WHOLE = np.int64, np.int32
ALL = (*FLOATS, *WHOLE, np.int8, np.uint8, np.bool_)
# rows just below, on and above a vector of bytes; broadcast operands, and no elements at all
SHAPES = [
    ((), ()),
    ((1,), (5,)),
    ((7, 63), (7, 63)),
    ((3, 129), (129,)),
    ((3, 1), (3, 64)),
    ((5, 65), (5, 1)),
    ((2, 1, 4), (1, 3, 1)),
    ((0, 3), (3,)),
]


def numbers(rng, shape, dtype):
    """Of few values, so that many are equal; with NaN, infinities and signed zeros among the floats."""
    if np.dtype(dtype).kind == "f":
        special = np.array([np.nan, np.inf, -np.inf, -0.0, 0.0, 0.5, -0.5, 1.5, 2.5, -2.5, 3, -7.25], dtype)
        return rng.choice(special, shape)
    return rng.integers(0 if np.dtype(dtype).kind in "bu" else -4, 5, shape).astype(dtype)


def load(op, inputs, constants, output, **options):
    """A network of one node, which a program computes."""
    net = fo.load_onnx(model(op, inputs, constants, (output,), **options))
    plan, _ = net._plan(*inputs.values())
    assert [s.kind for s in plan.steps if s.kind == "numpy" and s.node.op == op] == []
    return net


def agrees(op, inputs, expected, constants=None, **options):
    y = load(op, inputs, constants or {}, expected.dtype, **options)(*inputs.values())
    assert y.dtype == expected.dtype and y.shape == expected.shape
    np.testing.assert_array_equal(y, expected)


def operands(dtype):
    rng = np.random.default_rng(0)
    for a, b in SHAPES:
        yield numbers(rng, a, dtype), numbers(rng, b, dtype)


@pytest.mark.parametrize("dtype", ALL)
@pytest.mark.parametrize(
    "op, function",
    [
        ("Equal", np.equal),
        ("Less", np.less),
        ("LessOrEqual", np.less_equal),
        ("Greater", np.greater),
        ("GreaterOrEqual", np.greater_equal),
    ],
)
def test_comparisons(isa, op, function, dtype):
    if dtype == np.bool_ and op != "Equal":
        pytest.skip("bools have no order in ONNX")
    for a, b in operands(dtype):
        agrees(op, {"a": a, "b": b}, np.asarray(function(a, b)))


@pytest.mark.parametrize("op, function", [("And", np.logical_and), ("Or", np.logical_or), ("Xor", np.logical_xor)])
def test_logic(isa, op, function):
    for a, b in operands(np.bool_):
        agrees(op, {"a": a, "b": b}, np.asarray(function(a, b)))
        agrees("Not", {"a": a}, np.asarray(~a))


@pytest.mark.parametrize("dtype", WHOLE)
@pytest.mark.parametrize(
    "op, function",
    [("Add", np.add), ("Sub", np.subtract), ("Mul", np.multiply), ("Max", np.maximum), ("Min", np.minimum)],
)
def test_integer_arithmetic(isa, op, function, dtype):
    """What does not fit wraps around, as in NumPy."""
    top = np.iinfo(dtype)
    with np.errstate(over="ignore"):
        for a, b in [*operands(dtype), (np.array([top.max, top.min], dtype), np.array([top.max, top.max], dtype))]:
            agrees(op, {"a": a, "b": b}, np.asarray(function(a, b)))


@pytest.mark.parametrize("dtype", WHOLE)
def test_integer_quotients(isa, dtype):
    """Towards zero; a remainder has the divisor's sign. The least integer by -1 wraps around, and nothing traps."""
    least = np.iinfo(dtype).min
    a, b = (v.reshape(-1) for v in np.meshgrid(np.arange(-9, 10, dtype=dtype), np.array([-4, -1, 1, 3], dtype)))
    agrees("Div", {"a": a, "b": b}, np.trunc(a / b).astype(dtype))
    agrees("Mod", {"a": a, "b": b}, np.mod(a, b))
    a, b = np.array([least, 5], dtype), np.array([-1, 0], dtype)
    agrees("Div", {"a": a, "b": b}, np.array([least, 0], dtype))
    agrees("Mod", {"a": a, "b": b}, np.array([0, 0], dtype))


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.int64])
def test_integer_quotients_at_both_ends(isa, dtype, constant):
    """The lowest integer has no absolute value: in kernels, in NumPy and in constants that are folded."""
    ends = [np.iinfo(dtype).min, np.iinfo(dtype).min + 1, np.iinfo(dtype).max]
    pairs = [(a, b) for a in [*ends, -7, 0, 7] for b in [*ends, -7, -1, 1, 2, 7]]
    a, b = (np.array(v, dtype) for v in zip(*pairs, strict=True))
    down = [int(u) // int(v) for u, v in pairs]
    zero = [q + 1 if q < 0 and q * int(v) != u else q for q, (u, v) in zip(down, pairs, strict=True)]
    wrapped = [(np.array(q, object) & (1 << 8 * a.itemsize) - 1) for q in zero]
    expected = {
        "Div": np.array(wrapped, np.uint64).astype(dtype),
        "Mod": np.array([int(u) % int(v) for u, v in pairs], dtype),
        "fmod": np.array([int(u) - q * int(v) for q, (u, v) in zip(zero, pairs, strict=True)], dtype),
    }
    for name, y in expected.items():
        op, attrs = ("Mod", {"fmod": 1}) if name == "fmod" else (name, {})
        for inputs, constants in (
            (({"a": a}, {"b": b}), ({"a": a, "b": b}, {})) if not constant else (({}, {"a": a, "b": b}),)
        ):
            proto = model(op, inputs, constants, (dtype,), attrs=attrs)
            for fold in True, False:
                np.testing.assert_array_equal(fo.load_onnx(proto, fold=fold).run(inputs)["y0"], y, name)


@pytest.mark.parametrize("dtype", WHOLE)
def test_means_of_integers_at_both_ends(dtype):
    """Towards zero, of sums that wrap around."""
    least, top = np.iinfo(dtype).min, np.iinfo(dtype).max
    x = np.array([[least, 0, 0], [least + 1, 0, 0], [top, 0, 0], [top, 1, 0], [-1, -2, -4]], dtype)
    total = [least, least + 1, top, least, -7]
    y = fo.load_onnx(model("ReduceMean", {"x": x}, {"axes": np.array([1])}, (dtype,), attrs={"keepdims": 0}))(x)
    np.testing.assert_array_equal(y, [-(-t // 3) if t < 0 else t // 3 for t in total])


def test_what_is_beyond_a_whole_number(isa):
    """As torch's x % 1 is: of negative numbers too, and NaN of infinities."""
    rng = np.random.default_rng(0)
    x = np.concatenate([numbers(rng, 70, np.float32), np.float32([-1e-9, 1e-9, 1e20, -1e20, 16777215, -0.75])])
    with np.errstate(invalid="ignore"):
        expected = np.mod(x, np.float32(1))
    for one in np.float32(1), np.ones(1, np.float32):
        agrees("Mod", {"x": x}, expected, {"one": one})


@pytest.mark.parametrize("dtype", WHOLE)
def test_integers_of_one_argument(isa, dtype):
    x = np.array([*range(-70, 71), np.iinfo(dtype).min], dtype)
    for op, function in ("Abs", np.abs), ("Neg", np.negative), ("Sign", np.sign):
        agrees(op, {"x": x}, function(x))


@pytest.mark.parametrize(
    "op, function",
    [
        ("Floor", np.floor),
        ("Ceil", np.ceil),
        ("Round", np.rint),
        ("Sign", np.sign),
        ("Softsign", lambda x: x / (1 + np.abs(x))),
    ],
)
def test_whole_floats(isa, op, function):
    """To the nearest even one, and with the sign of zeros."""
    x = np.float32([-2.5, -1.5, -0.5, -0.0, 0.0, 0.5, 1.5, 2.5, 1e9, -3.7, np.nan, 0.3] * 5)
    y = load(op, {"x": x}, {}, np.float32)(x)
    np.testing.assert_array_equal(y, function(x))
    np.testing.assert_array_equal(np.signbit(y), np.signbit(function(x)))


@pytest.mark.parametrize("to", ALL)
@pytest.mark.parametrize("dtype", ALL)
def test_casts(isa, dtype, to):
    from onnx import helper

    rng = np.random.default_rng(0)
    for shape in [(), (7, 63), (129,), (0, 3)]:
        x = rng.integers(0, 2 if dtype == np.bool_ else 100, shape).astype(dtype)
        if np.dtype(dtype).kind == "f" and np.dtype(to).kind not in "ub":
            x = x + rng.choice(np.array([-1.5, -0.5, 0, 0.5], dtype), shape)
        elif np.dtype(dtype).kind == "i" and np.dtype(to).kind != "u":
            x = -x
        agrees("Cast", {"x": x}, x.astype(to), attrs={"to": helper.np_dtype_to_tensor_dtype(np.dtype(to))})


@pytest.mark.parametrize("dtype", WHOLE)
def test_floats_without_an_integer_become_the_least_one(isa, dtype):
    from onnx import helper

    x = np.float32([np.nan, np.inf, -np.inf, 1e30, -1e30, 5.9, -5.9, -(2.0**31)])
    least = np.iinfo(dtype).min
    agrees(
        "Cast",
        {"x": x},
        np.array([*[least] * 5, 5, -5, -(2**31)], dtype),
        attrs={"to": helper.np_dtype_to_tensor_dtype(np.dtype(dtype))},
    )


@pytest.mark.parametrize("dtype", ALL)
def test_where(isa, threads, dtype):
    rng = np.random.default_rng(0)
    for c, a, b in [
        ((), (), ()),
        ((7, 65), (7, 65), (7, 65)),
        ((7, 65), (), (7, 65)),
        ((7, 65), (7, 65), ()),
        ((7, 65), (1,), (1, 1)),
        ((7, 1), (65,), (1, 65)),
        ((0,), (0,), (1,)),
        ((400, 300), (1,), (300,)),
    ]:
        condition, x, y = rng.integers(0, 2, c) > 0, numbers(rng, a, dtype), numbers(rng, b, dtype)
        agrees("Where", {"c": condition, "x": x, "y": y}, np.where(condition, x, y))


@pytest.mark.parametrize("dtype", ALL)
@pytest.mark.parametrize("indices", WHOLE)
def test_gathers(isa, dtype, indices):
    rng = np.random.default_rng(0)
    x = numbers(rng, (5, 9, 6), dtype)
    for axis, n in enumerate(x.shape):
        for shape in (), (4,), (2, 3), (0,):
            i = rng.integers(-n, n, shape).astype(indices)
            agrees("Gather", {"x": x, "i": i}, np.take(x, i, axis), attrs={"axis": axis})
        i = rng.integers(-n, n, (3, 4, 5)).astype(indices)
        expected = np.take_along_axis(
            x[tuple(slice(None) if a == axis else slice(m) for a, m in enumerate(i.shape))], i.astype(np.int64), axis
        )
        agrees("GatherElements", {"x": x, "i": i}, expected, attrs={"axis": axis})
    if indices == np.int64:
        i = rng.integers(-5, 5, (4, 2, 1))
        agrees("GatherND", {"x": x, "i": i}, x[i[..., 0]])


def test_gather_of_many_single_elements(isa, threads):
    rng = np.random.default_rng(0)
    x, i = rng.random((3, 7000), np.float32), rng.integers(-7000, 7000, (90, 400))
    agrees("Gather", {"x": x}, x[:, i], {"i": i}, attrs={"axis": -1})


REDUCTIONS = {"none": None, "add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.int32, np.uint8, np.float64, np.bool_])
@pytest.mark.parametrize("reduction", REDUCTIONS)
@np.errstate(invalid="ignore")
def test_scatters(dtype, reduction):
    """In the order of the updates: of places that are named twice the last one counts, or all are put together."""
    if reduction != "none" and dtype in (np.uint8, np.float64, np.bool_):
        pytest.skip("no kernel puts these together")
    rng, function = np.random.default_rng(0), REDUCTIONS[reduction]
    attrs = {"reduction": reduction}
    for shape in (5, 9, 6), (7,), (4, 1, 3, 2):
        x = numbers(rng, shape, dtype)
        for depth in range(1, len(shape) + 1):
            i = np.stack([rng.integers(-n, n, (3, 4)) for n in shape[:depth]], -1)
            u, y = numbers(rng, (3, 4, *shape[depth:]), dtype), x.copy()
            for row in np.ndindex(3, 4):
                at = tuple(i[row])
                y[at] = u[row] if function is None else function(y[at], u[row])
            agrees("ScatterND", {"x": x, "i": i, "u": u}, y, attrs=attrs)
        for axis, n in enumerate(shape):
            part = [max(1, m - a) for a, m in enumerate(shape)]
            part[axis] = 2 * n
            i, u, y = rng.integers(-n, n, part), numbers(rng, part, dtype), x.copy()
            for at in np.ndindex(*part):
                to = (*at[:axis], i[at], *at[axis + 1 :])
                y[to] = u[at] if function is None else function(y[to], u[at])
            agrees("ScatterElements", {"x": x, "i": i, "u": u}, y, attrs=attrs | {"axis": axis})


def test_scatters_of_long_rows(threads):
    rng = np.random.default_rng(0)
    x, i, u = (
        rng.random((900, 250), np.float32),
        rng.integers(-900, 900, (4000, 1)),
        rng.random((4000, 250), np.float32),
    )
    y = x.copy()
    np.add.at(y, i[:, 0], u)
    agrees("ScatterND", {"x": x, "i": i, "u": u}, y, attrs={"reduction": "add"})
    i, y = np.broadcast_to(i, u.shape), x.copy()
    np.maximum.at(y, (i, np.arange(250)), u)
    agrees("ScatterElements", {"x": x, "i": i, "u": u}, y, attrs={"reduction": "max"})


def test_scatter_outside():
    """Nothing is written where one index is outside."""
    x, u, y = np.ones((4, 3), np.float32), np.zeros((2, 3), np.float32), np.full((4, 3), 7, np.float32)
    p = _core.Program()
    p.append("scatter", x, np.array([[0], [4]]), u, y, reduction="none", along=None, of=np.dtype(np.float32))
    with pytest.raises(ValueError, match="outside its axis"):
        p.run(())
    assert (y == 7).all()
    for wrong in dict(indices=np.zeros((3, 1), int)), dict(updates=u[:, :2]), dict(reduction="add", of=np.dtype(bool)):
        given = dict(x=x, indices=np.zeros((2, 1), int), updates=u, y=y, reduction="none", along=None) | wrong
        with pytest.raises((ValueError, TypeError), match="fit|puts"):
            _core.Program().append("scatter", **{"of": np.dtype(np.float32)} | given)


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.bool_])
@pytest.mark.parametrize("indices", WHOLE)
@pytest.mark.parametrize("axis", [-1, 0, 1])
def test_one_hot(isa, dtype, indices, axis):
    """An index counts from the end where it is negative; one outside gives no element."""
    i, depth, values = np.array([[0, 3, -1, -4], [4, -5, 2, 1]], indices), np.array(4), np.array([0, 1], dtype)
    front = np.where(i < 0, i + 4, i)
    expected = np.moveaxis(np.where(front[..., np.newaxis] == np.arange(4), values[1], values[0]), -1, axis)
    proto = model("OneHot", {"i": i}, {"depth": depth, "values": values}, (dtype,), attrs={"axis": axis})
    net = fo.load_onnx(proto)
    np.testing.assert_array_equal(net(i), expected)
    assert all(s.kind == "map" for s in net._plan(i)[0].steps if s.node.op == "OneHot")


@pytest.mark.parametrize("op, function", [("ArgMax", np.argmax), ("ArgMin", np.argmin)])
@pytest.mark.parametrize("keep", [0, 1])
def test_places_of_extremes(isa, threads, op, function, keep):
    """The first of equal ones; a NaN is largest and least."""
    rng = np.random.default_rng(0)
    for shape in (3, 5, 130), (2, 70), (1, 1), (2, 33, 4, 65):
        for special in False, True:
            x = numbers(rng, shape, np.float32) if special else rng.standard_normal(shape).astype(np.float32)
            for axis in range(len(shape)):
                expected = function(x, axis)
                agrees(
                    op,
                    {"x": x},
                    np.expand_dims(expected, axis) if keep else expected,
                    attrs={"axis": axis, "keepdims": keep},
                )


@pytest.mark.parametrize("op, function", [("ReduceMin", np.min), ("ReduceProd", np.prod)])
def test_least_and_product(isa, threads, op, function):
    rng = np.random.default_rng(0)
    x = rng.uniform(0.8, 1.25, (3, 70, 9, 33)).astype(np.float32)
    x[0, 1, 2, 3], x[1, 1, 1, 1] = np.nan, -np.inf
    for axes in (0,), (1,), (3,), (2, 3), (0, 2), (1, 3), (0, 1, 2, 3):
        y = load(op, {"x": x}, {"axes": np.array(axes)}, np.float32)(x)
        np.testing.assert_allclose(y, function(x.astype(np.float64), axes, keepdims=True), 1e-4)


@pytest.mark.parametrize("largest", [0, 1])
def test_few_of_many(largest, threads):
    """The k best of an axis, in order; of equal ones the first, also where the first axis is ordered, or float64."""
    rng = np.random.default_rng(0)
    for x in (
        rng.integers(0, 30, (3, 400)).astype(np.float32),
        rng.standard_normal((2, 500)).astype(np.float32),
        numbers(rng, (2, 100), np.float32),
    ):
        for k in 0, 1, 5, 12, 99, 100:
            order = np.argsort(-x if largest else x, -1, kind="stable")
            if np.isnan(x).any():
                order = (x.shape[-1] - 1 - np.argsort(x[:, ::-1], -1, kind="stable")[:, ::-1]) if largest else order
            net = fo.load_onnx(
                model("TopK", {"x": x}, {"k": np.array([k])}, (np.float32, np.int64), attrs={"largest": largest})
            )
            assert not k or net._plan(x)[0].steps[0].kind == "top_k"
            y, i = net(x)
            np.testing.assert_array_equal(i, order[:, :k])
            np.testing.assert_array_equal(y, np.take_along_axis(x, order[:, :k], -1))
            down = fo.load_onnx(
                model(
                    "TopK",
                    {"x": x.T},
                    {"k": np.array([k])},
                    (np.float32, np.int64),
                    attrs={"largest": largest, "axis": 0},
                )
            )
            for a, b in zip(down(x.T), (y.T, i.T), strict=True):
                np.testing.assert_array_equal(a, b)
            wide = fo.load_onnx(
                model(
                    "TopK",
                    {"x": x.astype(np.float64)},
                    {"k": np.array([k])},
                    (np.float64, np.int64),
                    attrs={"largest": largest},
                )
            )
            for a, b in zip(wide(x.astype(np.float64)), (y, i), strict=True):
                np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("dtype", ALL)
@pytest.mark.parametrize("upper", [0, 1])
def test_triangles(isa, dtype, upper):
    """Of every matrix, with NaN and infinities beyond the diagonal, which leave zeros."""
    rng = np.random.default_rng(0)
    for shape in (5, 7), (7, 5), (2, 3, 64, 33), (0, 4), (1, 1):
        x = numbers(rng, shape, dtype)
        for k in -70, -2, 0, 1, 70:
            agrees("Trilu", {"x": x}, (np.triu if upper else np.tril)(x, k), {"k": np.array(k)}, attrs={"upper": upper})


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.int32])
@pytest.mark.parametrize("exclusive", [0, 1])
@pytest.mark.parametrize("reverse", [0, 1])
def test_sums_so_far(dtype, exclusive, reverse, threads):
    """Of neighbors in memory and of elements that are not, of short rows and of long ones."""
    rng = np.random.default_rng(0)
    shapes = (
        ((4, 5), 0),
        ((4, 5), 1),
        ((1, 7), 0),
        ((5, 4000), 0),
        ((2, 6, 300), 1),
        ((2, 6, 300), -1),
        ((9,), 0),
        ((0, 300), 0),
        ((300, 0), 0),
    )
    for shape, axis in shapes:
        x = rng.integers(-9, 9, shape).astype(dtype)
        rows = np.flip(x, axis) if reverse else x
        expected = np.cumsum(rows, axis, dtype) - rows * dtype(exclusive)
        net = fo.load_onnx(
            model(
                "CumSum",
                {"x": x},
                {"axis": np.array(axis)},
                (dtype,),
                attrs={"exclusive": exclusive, "reverse": reverse},
            )
        )
        assert not x.size or net._plan(x)[0].steps[0].kind == "cumsum"
        np.testing.assert_array_equal(net(x), np.flip(expected, axis) if reverse else expected)


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.float64])
@pytest.mark.parametrize("known", [True, False])
def test_exponents_of_any_type(isa, dtype, known):
    x, e = np.float32([[0.5, 2, -3], [1, 4, 9]]), np.array([2], dtype)
    if known:
        agrees("Pow", {"x": x}, x * x, {"e": e})
    else:
        agrees("Pow", {"x": x, "e": e}, x * x)


@pytest.mark.parametrize("op, function", [("Max", np.maximum), ("Min", np.minimum)])
def test_extremes_of_many(isa, op, function):
    rng = np.random.default_rng(0)
    a, b, c = rng.standard_normal((4, 5), np.float32), rng.standard_normal(5, np.float32), np.float32([0.1])
    agrees(op, {"a": a, "b": b, "c": c}, function(function(a, b), c))
    agrees(op, {"a": a}, a)


def test_strided_elements(isa):
    """Rows that are no neighbors in memory, in bytes and longs."""
    rng = np.random.default_rng(0)
    a, b, y = rng.integers(0, 9, (40, 30)), rng.integers(0, 9, (30, 80)), np.zeros((30, 40), np.bool_)
    p = Program()
    p.append("map", "less", a.T, b[:, ::2], None, y, a.dtype, y.dtype)
    p.run(())
    np.testing.assert_array_equal(y, np.less(a.T, b[:, ::2]))


def test_steps_without_a_kernel():
    """Types that the kernels do not have are computed by NumPy, and a step of them is refused."""
    x = np.arange(6, dtype=np.uint16)
    net = fo.load_onnx(model("Less", {"a": x, "b": x}, {}, (np.bool_,)))
    np.testing.assert_array_equal(net(x, x[::-1].copy()), x < x[::-1])
    with pytest.raises(TypeError, match="uint16"):
        Program().append("map", "less", x, x, None, np.zeros(6, np.bool_), x.dtype, np.dtype(np.bool_))
    assert np.dtype(np.uint16) not in _core.ELEMENTS


@pytest.mark.parametrize("shapes", [((0, 1), (1, 0)), ((0, 3), (1, 3)), ((2, 0), (2, 0))])
@pytest.mark.parametrize("op, dtype", [("Add", "float"), ("Add", "int64"), ("Less", "float")])
def test_empty_results(op, dtype, shapes):
    a, b = (np.zeros(s, np.float32 if dtype == "float" else np.int64) for s in shapes)
    result = "bool" if op == "Less" else dtype
    net = fo.load_onnx(
        parse_model(f"""<ir_version: 8, opset_import: ["" : 17]>
        net ({dtype}[m, n] a, {dtype}[k, l] b) => ({result}[p, q] y) {{ y = {op}(a, b) }}""")
    )
    assert net(a, b).shape == np.broadcast_shapes(*shapes)
