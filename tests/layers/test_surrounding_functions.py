"""Activations, batch norm, volumes, pools of sequences, products of batches and rows of a table as functions: against
the float64 oracle, NumPy and PyTorch, on random shapes."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import fusedops as fo
import oracle
from catalog import VIEWS, Draw
from hypothesis_args import (
    agrees,
    epilogues,
    examples,
    isas,
    layouts,
    numbers_of_threads,
    pairs,
    running,
    seeds,
    sides,
    views,
)
from oracle import ACTIVATIONS

shapes = st.lists(st.integers(0, 9), max_size=4)


def channels_at(layout, n, c, *points):
    return (n, *points, c) if layout == "NHWC" else (n, c, *points)


# Activations and batch norm


@examples
@given(shapes, st.integers(1, 40), st.sampled_from([*ACTIVATIONS]), views, seeds, isas, numbers_of_threads)
def test_activation(shape, last, name, view, seed, isa, threads):
    arrays = Draw(seed)
    shape = (*shape, last)
    slopes = shape[1] if len(shape) > 1 and seed % 2 else 1
    assume(slopes > 0)
    agrees("activation", view(arrays(*shape)), arrays.activation(name, slopes), isa=isa, threads=threads)


@pytest.mark.parametrize("view", VIEWS)
def test_activation_in_place(draw, view):
    x = VIEWS[view](draw(4, 5, 6))
    expected = fo.activation(x, "silu")
    assert fo.activation(x, "silu", out=x) is x
    np.testing.assert_array_equal(x, expected)


def test_activation_of_many_axes(draw):
    """More axes than a kernel has, none of which can be merged."""
    x = draw(*[3] * 10)[(slice(None, None, 2),) * 10]
    np.testing.assert_array_equal(fo.activation(x, "tanh"), fo.activation(x.copy(), "tanh"))
    assert fo.activation(draw(), "relu").shape == ()


@pytest.mark.parametrize(
    "activation, text",
    [
        ("swish", "unknown activation 'swish'"),
        (3, "activation must be None"),
        (("prelu", np.ones(4, np.float32)), r"slopes .* \(4,\), but x has shape \(2, 3, 5\)"),
        (("clip", 2, 1), "lo <= hi"),
    ],
)
def test_activation_refuses(draw, activation, text):
    with pytest.raises((TypeError, ValueError), match=text):
        fo.activation(draw(2, 3, 5), activation)


@examples
@given(
    st.integers(0, 3),
    st.integers(1, 40),
    st.lists(st.integers(1, 12), max_size=3),
    layouts,
    st.sampled_from([None, *ACTIVATIONS]),
    views,
    seeds,
    isas,
    numbers_of_threads,
)
def test_batch_norm(n, c, points, layout, name, view, seed, isa, threads):
    arrays = Draw(seed)
    x, bn = view(arrays(*channels_at(layout, n, c, *points))), arrays.batch_norm(c)
    options = dict(activation=None if name is None else arrays.activation(name, c), layout=layout)
    agrees("batch_norm", x, bn, **options, isa=isa, threads=threads)


def test_batch_norm_is_that_of_a_convolution(draw):
    """A 1x1 convolution that changes nothing, with the same batch norm."""
    x, bn = draw(2, 6, 5, 7), draw.batch_norm(6)
    one = np.eye(6, dtype=np.float32)[:, :, None, None]
    expected = fo.conv2d(x, one, bn=bn, activation="relu")
    np.testing.assert_allclose(fo.batch_norm(x, bn, activation="relu"), expected, rtol=1e-6, atol=1e-6)
    assert fo.batch_norm(x, bn, out=x) is x  # in place


def test_batch_norm_refuses(draw):
    bn = draw.batch_norm(3)
    for x, wrong, text in [
        (draw(2, 4), bn, r"bn.gamma has shape \(3,\)"),
        (draw(3), bn, r"\(3,\), but must be \(n, c, ...\)"),
        (draw(2, 3), (1, 2), "bn must be fusedops.BatchNorm"),
        (draw(2, 3), bn._replace(var=-bn.var), "must be positive"),
    ]:
        with pytest.raises((TypeError, ValueError), match=text):
            fo.batch_norm(x, wrong)


# Convolutions


@st.composite
def transposed_sequences(draw):
    arrays, groups = Draw(draw(seeds)), draw(st.integers(1, 3))
    icg, ocg, k = draw(st.integers(1, 18)), draw(st.integers(1, 18)), draw(st.integers(1, 6))
    options = dict(
        groups=groups,
        stride=draw(st.integers(1, 3)),
        dilation=draw(st.integers(1, 3)),
        layout=draw(layouts),
        padding=draw(st.integers(0, 2) | sides | st.sampled_from(["same", "valid"])),
    )
    if options["padding"] != "same":
        options["output_padding"] = draw(st.integers(0, max(options["stride"], options["dilation"]) - 1))
    x = draw(views)(
        arrays(*channels_at(options["layout"], draw(st.integers(1, 2)), groups * icg, draw(st.integers(1, 30))))
    )
    w = draw(views)(arrays(groups * icg, ocg, k))
    shape = oracle.conv_transpose1d(x, w, **options).value.shape
    assume(min(shape) > 0)
    return x, w, options | draw(epilogues(arrays, groups * ocg, shape))


@examples
@given(transposed_sequences(), isas, numbers_of_threads)
def test_conv_transpose1d(case, isa, threads):
    x, w, options = case
    agrees("conv_transpose1d", x, w, **options, isa=isa, threads=threads)


@pytest.mark.parametrize(
    "options, text",
    [
        (dict(output_padding=1), "less than the stride"),
        (dict(stride=(2, 2)), "stride must be an int"),
        (dict(padding=((1, 1), (0, 0))), "padding"),
        (dict(groups=4), r"w has shape \(6, 3, 4\)"),
        (dict(padding=9), "leave"),
    ],
)
def test_conv_transpose1d_refuses(draw, options, text):
    with pytest.raises((TypeError, ValueError), match=text):
        fo.conv_transpose1d(draw(1, 6, 3), draw(6, 3, 4), **options)


def triples(elements):
    return elements | st.tuples(elements, elements, elements)


@st.composite
def volumes(draw):
    arrays, groups = Draw(draw(seeds)), draw(st.integers(1, 4))
    icg, ocg = draw(st.integers(1, 9)), draw(st.integers(1, 9))
    kernel = [draw(st.integers(1, 3)) for _ in range(3)]
    options = dict(
        groups=groups,
        stride=draw(triples(st.integers(1, 2))),
        dilation=draw(triples(st.integers(1, 2))),
        layout=draw(layouts),
        padding=draw(triples(st.integers(0, 2)) | st.tuples(sides, sides, sides) | st.sampled_from(["same", "valid"])),
    )
    size = [(k - 1) * 2 + draw(st.integers(1, 6)) for k in kernel]
    x = draw(views)(arrays(*channels_at(options["layout"], draw(st.integers(1, 3)), groups * icg, *size)))
    w = draw(views)(arrays(groups * ocg, icg, *kernel))
    shape = oracle.conv3d(x, w, **options).value.shape
    return x, w, options | draw(epilogues(arrays, groups * ocg, shape))


@examples
@given(volumes(), isas, numbers_of_threads)
def test_conv3d(case, isa, threads):
    x, w, options = case
    agrees("conv3d", x, w, **options, isa=isa, threads=threads)


def test_conv3d_is_pytorchs(draw):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    for groups, options in [
        (1, dict(padding=1)),
        (2, dict(stride=(1, 2, 1), dilation=(2, 1, 1))),
        (4, dict(padding=2)),
    ]:
        x, w, b = draw(2, 4, 7, 6, 5), draw(8, 4 // groups, 3, 2, 3), draw(8)
        expected = torch.nn.functional.conv3d(*map(torch.from_numpy, (x, w, b)), groups=groups, **options).numpy()
        np.testing.assert_allclose(fo.conv3d(x, w, bias=b, groups=groups, **options), expected, rtol=1e-5, atol=1e-5)


def test_conv3d_keeps_the_memory_order(draw):
    x, w = draw(2, 5, 4, 6, 7), draw(3, 5, 2, 3, 3)
    assert fo.conv3d(x, w).flags.c_contiguous
    pixels = np.moveaxis(np.ascontiguousarray(np.moveaxis(x, 1, -1)), -1, 1)
    y = fo.conv3d(pixels, w)
    assert np.moveaxis(y, 1, -1).flags.c_contiguous
    np.testing.assert_array_equal(y, fo.conv3d(x, w))


@pytest.mark.parametrize("n, groups", [(0, 1), (1, 1), (0, 4), (2, 4)])
def test_conv3d_of_an_empty_batch(draw, n, groups):
    assert fo.conv3d(draw(n, 4, 4, 5, 6), draw(8, 4 // groups, 3, 3, 3), groups=groups).shape == (n, 8, 2, 3, 4)


@pytest.mark.parametrize(
    "options, text",
    [
        (dict(stride=(1, 1)), "stride must be an int or three ints"),
        (dict(padding=((1, 1), (1, 1))), "three pairs"),
        (dict(padding="full"), "padding must be"),
        (dict(dilation=0), "dilation"),
        (dict(groups=4), "groups=4"),
        (dict(dilation=(4, 1, 1)), "x padded has 6 slices"),
        (dict(dilation=(1, 4, 1)), "smaller than the kernel"),
        (dict(layout="NCDHW"), "layout"),
        (dict(layout="NHWC"), "layout|needs"),
    ],
)
def test_conv3d_refuses(draw, options, text):
    with pytest.raises((TypeError, ValueError), match=text):
        fo.conv3d(draw(1, 3, 6, 7, 8), draw(6, 3, 3, 3, 3), **options)


# Pools


@st.composite
def pools_of_sequences(draw):
    arrays, kernel, dilation = Draw(draw(seeds)), draw(st.integers(1, 5)), draw(st.integers(1, 3))
    options = dict(
        kernel_size=kernel,
        stride=draw(st.none() | st.integers(1, 3)),
        layout=draw(layouts),
        dilation=dilation,
        ceil_mode=draw(st.booleans()),
        padding=draw(
            st.sampled_from(["same", "valid"])
            | st.integers(0, kernel // 2)
            | st.tuples(st.integers(0, kernel // 2), st.integers(0, kernel // 2))
        ),
    )
    length = (kernel - 1) * dilation + draw(st.integers(1, 40))
    n, c = draw(st.integers(1, 2)), draw(st.integers(1, 40))
    return draw(views)(arrays(*channels_at(options["layout"], n, c, length))), options


@examples
@given(pools_of_sequences(), st.booleans(), isas, numbers_of_threads)
def test_pools_of_sequences(case, include, isa, threads):
    x, options = case
    agrees("max_pool1d", x, **options, isa=isa, threads=threads)
    assume(np.isfinite(oracle.avg_pool1d(x, **options, count_include_pad=include).value).all())
    agrees("avg_pool1d", x, **options, count_include_pad=include, isa=isa, threads=threads)


@examples
@given(
    st.tuples(st.integers(1, 2), st.integers(1, 40), st.integers(1, 20), st.integers(1, 20)),
    pairs(st.integers(1, 9)),
    layouts,
    views,
    seeds,
    isas,
    numbers_of_threads,
)
def test_adaptive_avg_pool2d(shape, size, layout, view, seed, isa, threads):
    """Also to more pixels than there are."""
    x = view(Draw(seed)(*channels_at(layout, *shape)))
    agrees("adaptive_avg_pool2d", x, size, layout=layout, isa=isa, threads=threads)
    agrees("global_avg_pool2d", x, layout=layout, isa=isa, threads=threads)


@pytest.mark.parametrize("size", [1, 3, 7, (2, 5), (13, 9), (20, 4)], ids=str)
def test_adaptive_avg_pool2d_is_pytorchs(draw, size):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    x = draw(2, 3, 13, 9)
    expected = torch.nn.functional.adaptive_avg_pool2d(torch.from_numpy(x), size).numpy()
    np.testing.assert_allclose(fo.adaptive_avg_pool2d(x, size), expected, rtol=1e-5, atol=1e-6)


def test_an_infinite_pixel_stays_in_its_windows(draw):
    x = draw(1, 1, 5, 5)
    x[0, 0, 0, 0] = np.inf
    y = fo.adaptive_avg_pool2d(x, 3)
    assert np.isinf(y).sum() == 1 and not np.isnan(y).any()


@pytest.mark.parametrize(
    "call, text",
    [
        (lambda d: fo.adaptive_avg_pool2d(d(1, 2, 4, 4), 0), "size must be"),
        (lambda d: fo.adaptive_avg_pool2d(d(1, 2, 4, 4), (1, 2, 3)), "size must be"),
        (lambda d: fo.adaptive_avg_pool2d(d(1, 2, 0, 4), 2), "at least one pixel"),
        (lambda d: fo.global_avg_pool2d(d(1, 2, 4)), "x has shape"),
        (lambda d: fo.max_pool1d(d(1, 2, 4), (1, 2)), "kernel_size must be an int"),
        (lambda d: fo.max_pool1d(d(1, 2, 4), 5), "x has shape"),
        (lambda d: fo.avg_pool1d(d(1, 2, 4, 4), 2), "x has shape"),
        (lambda d: fo.avg_pool1d(d(1, 2, 4), 2, padding=2), "half"),
        (lambda d: fo.instance_norm(d(2, 3)), "with points"),
        (lambda d: fo.instance_norm(d(2, 3, 4), d(2)), "weight has shape"),
    ],
)
def test_refused(draw, call, text):
    with pytest.raises((TypeError, ValueError), match=text):
        call(draw)


def test_instance_norm_is_pytorchs(draw):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    x, w, b = draw(2, 6, 5, 7), draw(6), draw(6)
    expected = torch.nn.functional.instance_norm(
        torch.from_numpy(x), weight=torch.from_numpy(w), bias=torch.from_numpy(b)
    )
    np.testing.assert_allclose(fo.instance_norm(x, w, b), expected.numpy(), rtol=1e-5, atol=1e-5)
    assert fo.instance_norm(draw(2, 0, 3)).shape == (2, 0, 3)


# Products


@st.composite
def matrices(draw):
    arrays, size = Draw(draw(seeds)), st.integers(0, 5) | st.integers(1, 70)
    m, n, k = draw(size), draw(size), draw(size)
    batch = draw(st.lists(st.integers(0, 3), max_size=3))
    a, b = (
        tuple(draw(st.sampled_from([length, 1])) for length in batch[draw(st.integers(0, len(batch))) :])
        for _ in range(2)
    )
    vectors = draw(st.sampled_from(["", "", "", "a", "b"]))
    a = arrays(k) if vectors == "a" else draw(views)(arrays(*a, m, k))
    b = arrays(k) if vectors == "b" else draw(views)(arrays(*b, k, n))
    return a, b


@examples
@given(matrices(), isas, numbers_of_threads)
def test_matmul(case, isa, threads):
    agrees("matmul", *case, isa=isa, threads=threads)


def test_matmul_has_numpys_shapes(draw):
    for a, b in [((3,), (3,)), ((2, 3), (3,)), ((3,), (4, 3, 2)), ((5, 1, 2, 3), (4, 3, 1)), ((0, 2, 3), (3, 2))]:
        x, y = draw(*a), draw(*b)
        assert fo.matmul(x, y).shape == np.matmul(x, y).shape
        out = np.zeros(np.matmul(x, y).shape, np.float32)
        assert fo.matmul(x, y, out=out) is out
        np.testing.assert_allclose(out, np.matmul(x, y), rtol=1e-5, atol=1e-6)


def test_matmul_of_many_axes(draw):
    """More batches than a kernel has axes, none of which can be merged."""
    a = draw(*[3] * 10, 2, 5)[(slice(None, None, 2),) * 10]
    b = draw(*[1, 2] * 5, 5, 3)
    np.testing.assert_allclose(fo.matmul(a, b), a @ b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("a, b", [((2, 3), (2, 3)), ((2, 2, 3), (3, 3, 4)), ((), (3,)), ((3,), (4,))])
def test_matmul_refuses(draw, a, b):
    with pytest.raises(ValueError) as caught:
        fo.matmul(draw(*a), draw(*b))
    assert str(a) in str(caught.value) and str(b) in str(caught.value)


# Rows of a table


@examples
@given(
    st.integers(1, 9), st.integers(0, 40), shapes, st.sampled_from("bhilBHIL"), views, seeds, isas, numbers_of_threads
)
def test_embedding(rows, d, shape, dtype, view, seed, isa, threads):
    table = view(Draw(seed)(rows, d)) if d else np.zeros((rows, 0), np.float32)
    least = -rows if np.dtype(dtype).kind == "i" else 0
    indices = np.random.default_rng(seed).integers(least, rows, shape).astype(dtype)
    expected = table[indices.astype(np.int64)]
    with running(isa, threads):
        np.testing.assert_array_equal(fo.embedding(table, indices), expected)
        out = np.asfortranarray(np.full(expected.shape, 7, np.float32))
        assert fo.embedding(table, indices, out=out) is out
        np.testing.assert_array_equal(out, expected)


def test_embedding_over_its_table(draw):
    table, indices = draw(6, 5), [3, 0, 5, 5, 1, -1]
    expected = table[indices]
    np.testing.assert_array_equal(fo.embedding(table, indices, out=table), expected)
    assert fo.embedding(table, 2).shape == (5,) and fo.embedding(table, []).shape == (0, 5)


@pytest.mark.parametrize(
    "error, indices, text",
    [
        (IndexError, [0, 6], r"indices has 6, but table \(6, 5\) has rows -6..5"),
        (IndexError, [-7, 0], "indices has -7"),
        (IndexError, np.uint64([2**63 + 1]), "indices has 9223372036854775809"),
        (TypeError, [0.0, 1.0], "indices has dtype float64, but must be integers"),
        (TypeError, [True], "indices has dtype bool"),
    ],
)
def test_embedding_refuses(draw, error, indices, text):
    out = np.full((np.size(indices), 5), 7, np.float32)
    with pytest.raises(error, match=text):
        fo.embedding(draw(6, 5), indices, out=out)
    assert (out == 7).all()


def test_embedding_of_an_empty_table(draw):
    assert fo.embedding(np.zeros((0, 3), np.float32), np.zeros((2, 0), int)).shape == (2, 0, 3)
    with pytest.raises(IndexError, match="no rows|has rows"):
        fo.embedding(np.zeros((0, 3), np.float32), [0])
