"""Networks that draw random numbers: seeds, threads, copies and files, what is not folded, and distributions."""

import copy
import pickle
import threading

import numpy as np
import pytest

pytest.importorskip("onnx")
from onnx.parser import parse_model

import fusedops as fo

HEAD = '<ir_version: 8, opset_import: ["" : 17]>\n'
NOISE = "net (float[n, m] x) => (float[n, m] y) { z = RandomNormalLike(x)  y = Add(x, z) }"
ZEROS = np.zeros((40, 50), np.float32)


def load(text, **options):
    return fo.load_onnx(parse_model(HEAD + text), **options)


def drawn(model, calls=3, x=ZEROS):
    return [model(x) for _ in range(calls)]


def equal(a, b):
    return all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


def test_calls_differ_and_a_seed_repeats_them():
    model = load(NOISE, seed=5)
    first = drawn(model)
    assert not np.array_equal(first[0], first[1]) and not np.array_equal(first[1], first[2])
    model.seed(5)
    assert equal(drawn(model), first)
    assert equal(drawn(load(NOISE, seed=5, fuse=False, fold=False)), first)
    model.seed(6)
    assert not np.array_equal(model(ZEROS), first[0])
    model.seed()
    assert not np.array_equal(model(ZEROS), drawn(load(NOISE), 1)[0])


def test_a_network_without_random_numbers_takes_a_seed():
    model = load("net (float[n] x) => (float[n] y) { y = Relu(x) }", seed=1)
    model.seed(2)
    assert np.array_equal(model(np.float32([-1, 2])), [0, 2])


@pytest.mark.parametrize("seed, error", [(-1, ValueError), (1.5, TypeError), (True, TypeError), ("1", TypeError)])
def test_what_is_no_seed(seed, error):
    with pytest.raises(error, match="seed is"):
        load(NOISE, seed=seed)
    with pytest.raises(error, match="seed is"):
        load(NOISE).seed(seed)


def test_copies_and_files_begin_where_the_seed_leaves_the_network(tmp_path):
    model = load(NOISE, seed=9)
    model.seed(np.int64(3))
    first = drawn(model)
    model.save(tmp_path / "net.fo")
    for other in (
        copy.copy(model),
        copy.deepcopy(model),
        pickle.loads(pickle.dumps(model)),
        fo.load(tmp_path / "net.fo"),
    ):
        assert equal(drawn(other), first)
    load(NOISE).save(tmp_path / "any.fo")
    a, b = (fo.load(tmp_path / "any.fo")(ZEROS) for _ in range(2))
    assert not np.array_equal(a, b)


def test_damaged_seed_of_a_file(tmp_path):
    model = load(NOISE)
    model._options = model._options._replace(seed=-4)
    model.save(tmp_path / "net.fo")
    with pytest.raises(ValueError, match="damaged.*seed is -4"):
        fo.load(tmp_path / "net.fo")


def test_calls_of_threads_draw_what_calls_in_a_row_draw():
    model, found = load(NOISE, seed=1), []
    wanted = {y.tobytes() for y in drawn(model, 24)}
    model.seed(1)
    threads = [threading.Thread(target=lambda: found.extend(drawn(model, 6))) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert {y.tobytes() for y in found} == wanted and len(wanted) == 24


def test_nodes_with_a_seed_have_sequences_of_their_own():
    """They do not depend on the network's seed, nor on each other; seed() begins them anew."""
    text = """net (float[n] x) => (float[n] a, float[n] b, float[n] c) {
        a = RandomUniformLike<seed=2.5>(x)  b = RandomUniformLike<seed=2.5>(x)  c = RandomUniformLike<seed=7.0>(x) }"""
    x = np.zeros(9, np.float32)
    model, other = load(text, seed=1), load(text, seed=2)
    (a, b, c), second = model(x), model(x)
    assert np.array_equal(a, b) and not np.array_equal(a, c) and not np.array_equal(a, second[0])
    assert equal(other(x), (a, b, c))
    model.seed(1)
    assert equal(model(x), (a, b, c))


def test_alike_nodes_draw_other_numbers():
    a, b = load("net (float[n] x) => (float[n] a, float[n] b) { a = RandomNormalLike(x)  b = RandomNormalLike(x) }")(
        np.zeros(9, np.float32)
    )
    assert (a != b).all()


@pytest.mark.parametrize("fold", [True, False])
def test_nothing_is_folded(fold):
    """Neither numbers of a constant shape nor what is computed of constants and them, in loops of constants too."""
    text = """net (float[2] x) => (float[2] y, float[3, 2] rows) {
        z = RandomNormal<shape=[2]>()  two = Constant<value_floats=[2.0, 2.0]>()  t = Mul(z, two)  y = Add(x, t)
        n = Constant<value_int=3>()  go = Constant<value = bool {1}>()
        rows = Loop(n, go) <body = body (int64 i, bool g) => (bool h, float[2] r) {
            h = Identity(g)  r = RandomUniform<shape=[2]>() }>
    }"""
    model = load(text, fold=fold)
    (y, rows), (again, others) = (model(np.zeros(2, np.float32)) for _ in range(2))
    assert (y != again).all() and (rows != others).all() and len(np.unique(rows)) == 6


def test_branches_and_shapes_that_values_decide():
    text = """net (float[n] x, bool up) => (float[n] y, int64[r, k] at) {
        y = If(up) <then_branch = then () => (float[n] a) { a = RandomUniformLike<low=1.0, high=2.0>(x) },
                    else_branch = other () => (float[n] b) { b = RandomUniformLike<low=-2.0, high=-1.0>(x) }>
        u = RandomUniformLike(x)  half = Constant<value_float=0.5>()  on = Less(u, half)  at = NonZero(on) }"""
    model, x = load(text, seed=0), np.zeros(300, np.float32)
    up, at = model(x, np.array(True))
    down, other = model(x, np.array(False))
    assert 1 <= up.min() < up.max() < 2 and -2 <= down.min() < down.max() < -1
    assert 100 < at.size < 200 and not np.array_equal(at, other)


def test_open_shapes():
    text = """net (float[n] x) => (float[a, b] y) { s = Shape(x)  three = Constant<value_ints=[3]>()
        shape = Concat<axis=0>(three, s)  z = ConstantOfShape(shape)  y = RandomNormalLike(z) }"""
    model = load(text)
    assert [model(np.zeros(n, np.float32)).shape for n in (4, 7, 4, 11)] == [(3, 4), (3, 7), (3, 4), (3, 11)]


@pytest.mark.parametrize("node, mean, deviation, dtype", [
    ("RandomNormal<shape=[300, 200], mean=1.0, scale=2.0>()", 1, 2, "float"),
    ("RandomNormal<shape=[300, 200], dtype=11>()", 0, 1, "double"),
    ("RandomUniform<shape=[300, 200], low=-1.0, high=3.0>()", 1, 2 / 3**0.5, "float"),
    ("RandomUniform<shape=[300, 200], dtype=10>()", 0.5, 12**-0.5, "float16"),
    ("RandomNormalLike<dtype=1, scale=0.0, mean=3.0>(i)", 3, 0, "float"),
    ("Bernoulli<dtype=1>(p)", 0.25, 0.1875**0.5, "float"),
    ("Bernoulli(p)", 0.25, 0.1875**0.5, "float"),
])  # fmt: skip
def test_distributions(node, mean, deviation, dtype):
    text = f"""net (float[300, 200] x) => ({dtype}[300, 200] y) {{
        i = Cast<to=6>(x)  q = Constant<value_float=0.25>()  p = Add(x, q)  y = {node} }}"""
    y = load(text, seed=0)(np.zeros((300, 200), np.float32))
    assert y.dtype == {"float": np.float32, "double": np.float64, "float16": np.float16}[dtype]
    y = y.astype(np.float64)
    assert abs(y.mean() - mean) < 0.03 and abs(y.std() - deviation) < 0.03


def test_uniform_numbers_stay_below_the_highest():
    y = load("net (float[n] x) => (float[n] y) { y = RandomUniformLike<low=16777214.0, high=16777216.0>(x) }", seed=0)(
        np.zeros(1000, np.float32)
    )
    assert set(y) == {16777214.0, 16777215.0}


def test_multinomial():
    text = "net (float[b, c] x) => (int64[b, n] y) { y = Multinomial<sample_size=20000, dtype=7>(x) }"
    p = np.array([[0.1, 0.2, 0.7], [0.5, 0.0, 0.5]], np.float32)
    with np.errstate(divide="ignore"):
        x = np.log(p) + np.float32(50)
    y = load(text, seed=0)(x)
    found = np.stack([np.bincount(row, minlength=3) / row.size for row in y])
    assert y.dtype == np.int64 and np.abs(found - p).max() < 0.02 and found[1, 1] == 0
    with pytest.raises(ValueError, match="no class with a probability"):
        load(text)(np.full((1, 3), -np.inf, np.float32))
    with pytest.raises(ValueError, match="sample_size is 0"):
        load(text.replace("20000", "0"))(x)
    with pytest.raises(ValueError, match="batch, classes"):
        load(text)(np.zeros((2, 0), np.float32))


def test_dropout_that_stayed_on_is_the_identity():
    text = """net (float[n] x) => (float[n] y, bool[n] mask) {
        r = Constant<value_float=0.5>()  t = Constant<value = bool {1}>()  y, mask = Dropout<seed=1>(x, r, t) }"""
    x = np.arange(8, dtype=np.float32)
    model = load(text)
    y, mask = model(x)
    assert np.array_equal(y, x) and mask.all() and "training mode" in str(model.explain())
    assert "training mode" not in str(load(text.replace("{1}", "{0}")).explain())


def test_explain_lists_what_draws():
    assert any(n.operator == "RandomNormalLike" and "drawn" in n.reason for n in load(NOISE).explain().numpy)


def test_variants_with_given_defaults_draw_from_the_seed():
    text = (
        "net (float[n] x, float scale) => (float[n] y) <float scale = {1.0}> "
        "{ z = RandomNormalLike(x)  y = Mul(z, scale) }"
    )
    model, x, one = load(text, seed=4), np.zeros(5, np.float32), np.float32(1)
    first = model(x)
    given = model.run({"x": x, "scale": one})["y"]
    assert np.array_equal(given, first)  # a network of its own: its first call
    model.seed(4)
    assert np.array_equal(model.run({"x": x, "scale": one})["y"], first)


def test_decoders_draw():
    text = """net (float[b, new, 2] x, float[b, past, 2] seen) => (float[b, total, 2] all, float[b, new, 2] y) {
        all = Concat<axis=1>(seen, x)  z = RandomNormalLike(x)  s = ReduceSum<keepdims=0>(all)  y = Add(z, s) }"""
    x = np.zeros((1, 1, 2), np.float32)
    first, second = (load(text, seed=2).decoder() for _ in range(2))
    a, b = ([d(x) for _ in range(3)] for d in (first, second))
    assert equal(a, b) and not np.array_equal(a[0], a[1])
