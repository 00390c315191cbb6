"""Softmax and norms against the float64 oracle and PyTorch, on random shapes, values and memory."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fusedops as fo
import oracle
from catalog import Draw
from fusedops import reference
from hypothesis_args import agrees, examples, isas, layouts, numbers_of_threads, running, seeds, views

# Softmax


@st.composite
def fibres(draw):
    arrays = Draw(draw(seeds))
    shape = tuple(draw(st.lists(st.sampled_from([1, 2, 3, 5, 17, 33]), min_size=1, max_size=4)))
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    shape = list(shape)
    shape[axis] = draw(st.sampled_from([1, 2, 7, 8, 16, 33, 65, 130, 300]))
    return draw(views)(arrays(*shape) * np.float32(draw(st.sampled_from([1, 20, 500])))), axis


@examples
@given(fibres(), isas, numbers_of_threads)
def test_softmax(case, isa, threads):
    x, axis = case
    agrees("softmax", x, axis, isa=isa, threads=threads)
    agrees("log_softmax", x, axis, isa=isa, threads=threads)
    x = np.ascontiguousarray(x)
    with running(isa, threads):
        expected = fo.softmax(x, axis)
        assert fo.softmax(x, axis, out=x) is x
    np.testing.assert_array_equal(x, expected)


@pytest.mark.parametrize("axis", [0, 1])
def test_values_of_softmax(isa, axis):
    inf = np.float32(np.inf)
    rows = np.array(
        [[-inf, 1, 1, -inf], [0, 0, 0, 1e38], [1, np.nan, 2, 3], [-inf] * 4, [inf, 0, 0, 0], [3e38, 3e38, -3e38, 0]],
        np.float32,
    )
    x = rows if axis else np.ascontiguousarray(rows.T)
    y = fo.softmax(x, axis)
    y = y if axis else y.T
    np.testing.assert_array_equal(y[[0, 1, 5]], [[0, 0.5, 0.5, 0], [0, 0, 0, 1], [0.5, 0.5, 0, 0]])
    assert np.isnan(y[2:5]).all()


@pytest.mark.parametrize("axis, text", [(2, "no axis"), (-3, "no axis"), (1.0, "int"), (None, "int")])
def test_softmax_refuses(draw, axis, text):
    for function in fo.softmax, fo.log_softmax:
        with pytest.raises((TypeError, ValueError), match=text):
            function(draw(3, 4), axis)
    with pytest.raises(ValueError, match="axis"):
        fo.softmax(np.float32(1)[()] * np.ones((), np.float32))


# Norms


@st.composite
def rows(draw, last):
    arrays = Draw(draw(seeds))
    shape = (*draw(st.lists(st.integers(1, 9), max_size=3)), draw(last))
    x = draw(views)(
        arrays(*shape) * np.float32(draw(st.sampled_from([1, 100]))) + np.float32(draw(st.sampled_from([0, 3])))
    )
    options = {"weight": arrays(shape[-1])} if draw(st.booleans()) else {}
    if draw(st.booleans()):
        options["residual"] = draw(views)(arrays(*shape))
    return x, options | dict(eps=draw(st.sampled_from([1e-5, 1e-3])))


@examples
@given(
    rows(st.sampled_from([1, 2, 7, 8, 15, 16, 33, 64, 130, 768, 3000])), st.booleans(), seeds, isas, numbers_of_threads
)
def test_layer_norm(case, biased, seed, isa, threads):
    x, options = case
    agrees("rms_norm", x, **options, isa=isa, threads=threads)
    if biased:
        options["bias"] = Draw(seed)(x.shape[-1])
    agrees("layer_norm", x, **options, isa=isa, threads=threads)


@st.composite
def groups_of_channels(draw):
    arrays = Draw(draw(seeds))
    groups, each = draw(st.integers(1, 5)), draw(st.integers(1, 9))
    points = draw(st.lists(st.integers(1, 17), max_size=3))
    layout, c = draw(layouts), groups * each
    n = draw(st.integers(1, 3))
    shape = (n, *points, c) if layout == "NHWC" else (n, c, *points)
    x = arrays(*shape) + np.float32(draw(st.sampled_from([0, 5])))
    options = {name: arrays(c) for name in ("weight", "bias") if draw(st.booleans())}
    if draw(st.booleans()):
        options["residual"] = draw(views)(arrays(*shape))
    return draw(views)(x), groups, options | dict(layout=layout, eps=1e-3)


@examples
@given(groups_of_channels(), isas, numbers_of_threads)
def test_group_norm(case, isa, threads):
    x, groups, options = case
    agrees("group_norm", x, groups, **options, isa=isa, threads=threads)


def test_norms_are_pytorchs(draw):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    f, x, w, b = torch.nn.functional, draw(3, 12, 5, 7), draw(7), draw(7)
    t = torch.from_numpy
    expected = f.layer_norm(t(x), (7,), t(w), t(b)).numpy()
    np.testing.assert_allclose(fo.layer_norm(x, w, b), expected, rtol=1e-5, atol=1e-6)
    expected = f.rms_norm(t(x), (7,), t(w), 1e-5).numpy()
    np.testing.assert_allclose(fo.rms_norm(x, w), expected, rtol=1e-5, atol=1e-6)
    w, b = draw(12), draw(12)
    for groups in 1, 3, 12:
        expected = f.group_norm(t(x), groups, t(w), t(b)).numpy()
        np.testing.assert_allclose(fo.group_norm(x, groups, w, b), expected, rtol=1e-5, atol=1e-5)
        last = np.ascontiguousarray(np.moveaxis(x, 1, -1))
        np.testing.assert_array_equal(
            np.moveaxis(fo.group_norm(last, groups, w, b, layout="NHWC"), -1, 1), fo.group_norm(x, groups, w, b)
        )
        np.testing.assert_array_equal(
            fo.group_norm(np.moveaxis(last, -1, 1), groups, w, b), fo.group_norm(x, groups, w, b)
        )


@pytest.mark.parametrize("n", [1, 3, 16, 33, 300, 5000, 100_003])
@pytest.mark.parametrize("kind", ["far", "huge", "both signs", "tiny"])
def test_values_far_from_zero(isa, draw, n, kind):
    """Differences keep their digits where values are far from zero, and squares do not overflow."""
    near = np.arange(n) * 7 % 4
    x = {
        "far": 1.6e7 + near,
        "huge": 1e20 * (1 + 0.1 * near),
        "both signs": 2.9e38 * (1 - near % 3),
        "tiny": 1e-18 * near,
    }[kind].astype(np.float32)
    x = np.stack([x, x[::-1], np.roll(x, 5)])
    eps = 0 if n > 3 else 1e-5
    for view in (x, np.asfortranarray(x), np.repeat(x, 2, -1)[:, ::2]):
        exact = oracle.layer_norm(x, eps=eps).value
        np.testing.assert_allclose(fo.layer_norm(view, eps=eps), exact, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(fo.rms_norm(view, eps=eps), oracle.rms_norm(x, eps=eps).value, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(fo.group_norm(view[:, None], 1, eps=eps)[:, 0], exact, rtol=1e-5, atol=1e-5)


def test_norms_in_place(isa, draw):
    x, r = draw(5, 37), draw(5, 37)
    for first, second in ((x, r), (r, x)):
        expected = fo.layer_norm(first, residual=second)
        given = first.copy()
        assert fo.layer_norm(given, residual=second, out=given) is given
        np.testing.assert_array_equal(given, expected)
        given = second.copy()
        np.testing.assert_array_equal(fo.layer_norm(first, residual=given, out=given), expected)


@pytest.mark.parametrize(
    "options, text",
    [
        (dict(eps=-1), "eps"),
        (dict(eps="x"), "eps"),
        (dict(eps=np.nan), "eps"),
        (dict(eps=None), "eps"),
        (dict(weight=np.ones(3, np.float32)), r"weight has shape \(3,\)"),
        (dict(residual=np.ones((4, 3), np.float32)), "residual has shape"),
    ],
)
def test_norms_refuse(draw, options, text):
    for function in fo.layer_norm, fo.rms_norm, reference.layer_norm, reference.rms_norm:
        with pytest.raises((TypeError, ValueError), match=text):
            function(draw(3, 4), **options)


@pytest.mark.parametrize("groups, text", [(0, "at least 1"), (5, "must divide"), (2.0, "int")])
def test_group_norm_refuses(draw, groups, text):
    with pytest.raises((TypeError, ValueError), match=text):
        fo.group_norm(draw(2, 6, 3), groups)
