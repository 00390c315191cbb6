"""Convolutions, pools and resizing as functions: against the float64 oracle and PyTorch, on random shapes."""

import copy
import pickle

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import fusedops as fo
import oracle
from catalog import Draw, dims
from hypothesis_args import agrees, epilogues, examples, isas, layouts, numbers_of_threads, pairs, seeds, sides, views

# Convolutions


@st.composite
def sequences(draw):
    arrays, groups = Draw(draw(seeds)), draw(st.integers(1, 3))
    icg, ocg, k = draw(st.integers(1, 20)), draw(st.integers(1, 20)), draw(st.integers(1, 6))
    options = dict(
        groups=groups,
        stride=draw(st.integers(1, 3)),
        dilation=draw(st.integers(1, 3)),
        layout=draw(layouts),
        padding=draw(st.integers(0, 4) | sides | st.sampled_from(["same", "valid"])),
    )
    length = (k - 1) * options["dilation"] + draw(st.integers(1, 60))
    n, ic = draw(st.integers(1, 3)), groups * icg
    x = draw(views)(arrays(*((n, length, ic) if options["layout"] == "NHWC" else (n, ic, length))))
    w = draw(views)(arrays(groups * ocg, icg, k))
    shape = oracle.conv1d(x, w, **options).value.shape
    return x, w, options | draw(epilogues(arrays, groups * ocg, shape))


@examples
@given(sequences(), isas, numbers_of_threads)
def test_conv1d(case, isa, threads):
    x, w, options = case
    agrees("conv1d", x, w, **options, isa=isa, threads=threads)


@st.composite
def transposed(draw):
    arrays, groups = Draw(draw(seeds)), draw(st.integers(1, 3))
    icg, ocg = draw(st.integers(1, 18)), draw(st.integers(1, 18))
    kernel = draw(st.tuples(st.integers(1, 5), st.integers(1, 5)))
    options = dict(
        groups=groups,
        stride=draw(pairs(st.integers(1, 3))),
        dilation=draw(pairs(st.integers(1, 3))),
        layout=draw(layouts),
        padding=draw(pairs(st.integers(0, 2)) | st.tuples(sides, sides) | st.just("same")),
    )
    if options["padding"] != "same":
        most = [max(s, d) - 1 for s, d in zip(oracle.pair(options["stride"]), oracle.pair(options["dilation"]))]
        options["output_padding"] = tuple(draw(st.integers(0, m)) for m in most)
    n, h, w = draw(st.integers(1, 2)), draw(st.integers(1, 9)), draw(st.integers(1, 20))
    x = draw(views)(arrays(*dims(options["layout"], n, groups * icg, h, w)))
    weights = draw(views)(arrays(groups * icg, ocg, *kernel))
    shape = oracle.conv_transpose2d(x, weights, **options).value.shape
    assume(min(shape) > 0)
    return x, weights, options | draw(epilogues(arrays, groups * ocg, shape))


@examples
@given(transposed(), isas, numbers_of_threads)
def test_conv_transpose2d(case, isa, threads):
    x, w, options = case
    agrees("conv_transpose2d", x, w, **options, isa=isa, threads=threads)


@pytest.mark.parametrize(
    "options",
    [
        {},
        dict(stride=2),
        dict(stride=(2, 3), padding=1, output_padding=(1, 2)),
        dict(dilation=(2, 1), stride=1),
        dict(stride=2, dilation=3, padding=2, output_padding=2, groups=2),
    ],
    ids=str,
)
def test_conv_transpose2d_is_pytorchs(draw, options):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    x, w, b = draw(2, 6, 5, 7), draw(6, 4, 3, 4), draw(4 * options.get("groups", 1))
    expected = torch.nn.functional.conv_transpose2d(*map(torch.from_numpy, (x, w, b)), **options).numpy()
    np.testing.assert_allclose(fo.conv_transpose2d(x, w, bias=b, **options), expected, rtol=1e-5, atol=1e-5)


def test_layers_are_copied_and_pickled(draw):
    x, w, bn = draw(2, 6, 9), draw(4, 3, 3), draw.batch_norm(4)
    layer = fo.Conv1d(w, draw(4), bn, stride=2, padding=(2, 0), groups=2, activation="silu")
    images, transposing = (
        draw(2, 6, 3, 4),
        fo.ConvTranspose2d(draw(6, 3, 3, 2), bn=draw.batch_norm(6), stride=2, groups=2),
    )
    for made, array in (layer, x), (transposing, images):
        for other in pickle.loads(pickle.dumps(made)), copy.copy(made), copy.deepcopy(made):
            np.testing.assert_array_equal(other(array), made(array))
        assert made.output_shape(array.shape) == made(array).shape


@pytest.mark.parametrize(
    "options, text",
    [
        (dict(stride=0), "stride must be at least 1"),
        (dict(stride=(1, 1)), "stride must be an int"),
        (dict(padding=((1, 1), (1, 1))), "padding"),
        (dict(padding="full"), "padding"),
        (dict(groups=4), "groups=4"),
        (dict(layout="NCL"), "layout"),
        (dict(dilation=5), "smaller than the kernel"),
    ],
)
def test_conv1d_refuses(draw, options, text):
    with pytest.raises((TypeError, ValueError), match=text):
        fo.conv1d(draw(1, 3, 8), draw(6, 3, 3), **options)


@pytest.mark.parametrize(
    "options, text",
    [
        (dict(output_padding=1), "less than the stride"),
        (dict(stride=2, output_padding=2), "less than the stride"),
        (dict(padding=9), "leave -"),
        (dict(groups=4), "groups=4"),
        (dict(stride=2, padding="same", output_padding=1), "same"),
        (dict(layout="NCL"), "layout"),
        (dict(output_padding=-1), "output_padding"),
    ],
)
def test_conv_transpose2d_refuses(draw, options, text):
    with pytest.raises((TypeError, ValueError), match=text):
        fo.conv_transpose2d(draw(1, 6, 3, 4), draw(6, 3, 3, 3), **options)


# Pools


@st.composite
def pools(draw):
    arrays = Draw(draw(seeds))
    kernel = draw(pairs(st.integers(1, 5)))
    options = dict(
        kernel_size=kernel,
        stride=draw(st.none() | pairs(st.integers(1, 3))),
        layout=draw(layouts),
        dilation=draw(pairs(st.integers(1, 3))),
        ceil_mode=draw(st.booleans()),
    )
    spans = [(k - 1) * d + 1 for k, d in zip(oracle.pair(kernel), oracle.pair(options["dilation"]))]
    least = [s // 2 for s in oracle.pair(kernel)]
    options["padding"] = draw(
        st.sampled_from(["same", "valid"])
        | st.tuples(*(st.integers(0, p) for p in least))
        | st.tuples(*(st.tuples(st.integers(0, p), st.integers(0, p)) for p in least))
    )
    n, c = draw(st.integers(1, 2)), draw(st.integers(1, 70))
    h, w = (draw(st.integers(span, span + 20)) for span in spans)
    return draw(views)(arrays(*dims(options["layout"], n, c, h, w))), options


@examples
@given(pools(), isas, numbers_of_threads)
def test_max_pool2d(case, isa, threads):
    x, options = case
    agrees("max_pool2d", x, **options, isa=isa, threads=threads)


@examples
@given(pools(), st.booleans(), isas, numbers_of_threads)
def test_avg_pool2d(case, include, isa, threads):
    x, options = case
    assume(np.isfinite(oracle.avg_pool2d(x, **options, count_include_pad=include).value).all())
    agrees("avg_pool2d", x, **options, count_include_pad=include, isa=isa, threads=threads)


@st.composite
def pools_of_torch(draw):
    kernel = draw(st.tuples(st.integers(1, 4), st.integers(1, 4)))
    padding = tuple(draw(st.integers(0, k // 2)) for k in kernel)
    return (2, 3, *(draw(st.integers(k + 3, k + 12)) for k in kernel)), dict(
        kernel_size=kernel,
        stride=draw(st.none() | pairs(st.integers(1, 4))),
        padding=padding,
        ceil_mode=draw(st.booleans()),
    )


@examples
@given(pools_of_torch(), st.integers(1, 2), st.booleans())
def test_pools_are_pytorchs(case, dilation, include):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    shape, options = case
    x, f = Draw(0)(*shape), torch.nn.functional
    assume(
        all(
            i + 2 * p >= (k - 1) * dilation + 1
            for i, k, p in zip(shape[2:], options["kernel_size"], options["padding"])
        )
    )
    np.testing.assert_array_equal(
        fo.max_pool2d(x, **options, dilation=dilation),
        f.max_pool2d(torch.from_numpy(x), **options, dilation=dilation).numpy(),
    )
    np.testing.assert_allclose(
        fo.avg_pool2d(x, **options, count_include_pad=include),
        f.avg_pool2d(torch.from_numpy(x), **options, count_include_pad=include).numpy(),
        rtol=1e-5,
        atol=1e-6,
    )


def test_values_of_pools(isa):
    x = np.array([[[[np.nan, 1, -np.inf, -np.inf], [2, 3, -np.inf, -np.inf]]]], np.float32)
    np.testing.assert_array_equal(fo.max_pool2d(x, 2), [[[[np.nan, -np.inf]]]])
    np.testing.assert_array_equal(fo.avg_pool2d(x, 2), [[[[np.nan, -np.inf]]]])


@pytest.mark.parametrize(
    "options, text",
    [
        (dict(kernel_size=0), "kernel_size"),
        (dict(kernel_size=2, stride=0), "stride"),
        (dict(kernel_size=2, padding=2), "half"),
        (dict(kernel_size=9), "spans 9 x 9"),
        (dict(kernel_size=2.5), "kernel_size"),
        (dict(kernel_size=2, layout="CHW"), "layout"),
    ],
)
@pytest.mark.parametrize("function", [fo.max_pool2d, fo.avg_pool2d])
def test_pools_refuse(draw, function, options, text):
    with pytest.raises((TypeError, ValueError), match=text):
        function(draw(1, 3, 6, 7), **options)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("function", ["max_pool2d", "avg_pool2d"])
@pytest.mark.parametrize("options", [{}, {"padding": 1}, {"count_include_pad": False, "padding": 1}])
def test_windows_larger_than_the_image(draw, function, options, layout):
    """With ceil_mode one begins inside the image and ends outside, as U-Net's last pools of small images do."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    options = {k: v for k, v in options.items() if function == "avg_pool2d" or k != "count_include_pad"}
    for (h, w), kernel, stride in [
        ((1, 10), 2, 2), ((1, 1), 2, 2), ((2, 5), 3, 4), ((1, 10), (2, 1), 3), ((3, 2), (4, 5), (2, 4))
    ]:  # fmt: skip
        if options and min(oracle.pair(kernel)) < 2:
            continue
        x = draw(2, 5, h, w)
        expected = getattr(torch.nn.functional, function)(
            torch.from_numpy(x), kernel, stride, ceil_mode=True, **options
        ).numpy()
        given = x if layout == "NCHW" else np.ascontiguousarray(np.moveaxis(x, 1, -1))
        y = getattr(fo, function)(given, kernel, stride=stride, ceil_mode=True, layout=layout, **options)
        np.testing.assert_allclose(y if layout == "NCHW" else np.moveaxis(y, -1, 1), expected, rtol=1e-6, atol=1e-6)
    with pytest.raises(ValueError, match="spans"):
        getattr(fo, function)(draw(1, 2, 1, 1), 3, stride=2, ceil_mode=True)


# Resizing


@st.composite
def resizings(draw):
    arrays, layout = Draw(draw(seeds)), draw(layouts)
    n, c, h, w = (draw(st.integers(1, most)) for most in (2, 40, 12, 40))
    options = dict(layout=layout, mode=draw(st.sampled_from(["nearest", "linear"])))
    if options["mode"] == "linear":
        options["align_corners"] = draw(st.booleans())
    if draw(st.booleans()):
        options["size"] = draw(pairs(st.integers(1, 50)))
    else:
        options["scale"] = draw(pairs(st.sampled_from([1, 2, 3, 0.5, 1.5, 2.7, 0.4])))
        assume(all(int(i * s) for i, s in zip((h, w), oracle.pair(options["scale"]))))
    return draw(views)(arrays(*dims(layout, n, c, h, w))), options


@examples
@given(resizings(), isas, numbers_of_threads)
def test_resize(case, isa, threads):
    x, options = case
    agrees("resize", x, **options, isa=isa, threads=threads)


@examples
@given(resizings())
def test_resize_is_pytorchs(case):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    x, options = case
    x = np.array(x if options.pop("layout") == "NCHW" else np.moveaxis(x, -1, 1), order="C")
    linear = options.pop("mode") == "linear"
    theirs = dict(mode="bilinear", align_corners=options.get("align_corners")) if linear else dict(mode="nearest")
    expected = torch.nn.functional.interpolate(
        torch.from_numpy(x), options.get("size"), options.get("scale"), **theirs
    ).numpy()
    y = fo.resize(x, **options, mode="linear" if linear else "nearest")
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-4 if linear else 0)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("size", [2, 3, 7, 10, 33])
def test_resize_by_scales_near_whole_ones_is_pytorchs(draw, size, layout):
    """As PyTorch's kernel for channels last; that for large images of planes does not ask for the size."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    x = draw(1, 5, size, size)
    given = x if layout == "NCHW" else np.ascontiguousarray(np.moveaxis(x, 1, -1))
    for scale in 0.6, 0.9999, 1.00001, 1.05, 1 + 0.9 / size, 1.5, 2.0001, 2 + 0.9 / size, 2.7, 3.00001:
        for mode, theirs in ("nearest", {}), ("linear", {"align_corners": False}), ("linear", {"align_corners": True}):
            name = "bilinear" if theirs else mode
            image = torch.from_numpy(x).contiguous(memory_format=torch.channels_last)
            expected = torch.nn.functional.interpolate(image, scale_factor=scale, mode=name, **theirs)
            y = fo.resize(given, scale=scale, mode=mode, layout=layout, **theirs)
            y = y if layout == "NCHW" else np.moveaxis(y, -1, 1)
            np.testing.assert_allclose(y, expected.numpy(), rtol=1e-5, atol=1e-4 if theirs else 0, err_msg=f"{scale}")
    np.testing.assert_array_equal(fo.resize(np.float32([[[[1, 2, 3]]]]), scale=(1, 1.00001)), [[[[1, 2, 3]]]])


@pytest.mark.parametrize(
    "options, text",
    [
        ({}, "either size or scale"),
        (dict(size=3, scale=2), "either size or scale"),
        (dict(size=0), "size"),
        (dict(scale=0.01), "cannot be made"),
        (dict(scale=-1), "positive"),
        (dict(scale="x"), "scale"),
        (dict(size=3, mode="cubic"), "mode"),
        (dict(size=3, align_corners=True), "linear"),
        (dict(size=2.5), "size"),
        (dict(scale=(1, 2, 3)), "scale"),
    ],
)
def test_resize_refuses(draw, options, text):
    with pytest.raises((TypeError, ValueError), match=text):
        fo.resize(draw(1, 3, 6, 7), **options)


# All of them


@pytest.mark.parametrize(
    "call, shape",
    [
        (lambda x: fo.conv1d(x, np.ones((4, 3, 2), np.float32)), (0, 3, 5)),
        (lambda x: fo.conv_transpose2d(x, np.ones((3, 4, 2, 2), np.float32)), (0, 3, 5, 5)),
        (lambda x: fo.max_pool2d(x, 2), (0, 3, 4, 4)),
        (lambda x: fo.avg_pool2d(x, 2), (2, 0, 4, 4)),
        (fo.softmax, (0, 4)),
        (fo.softmax, (4, 0)),
        (fo.log_softmax, (0,)),
        (fo.layer_norm, (0, 4)),
        (fo.layer_norm, (4, 0)),
        (lambda x: fo.group_norm(x, 2), (0, 4, 3)),
        (lambda x: fo.group_norm(x, 2), (3, 4, 0)),
        (lambda x: fo.resize(x, 3), (0, 4, 3, 3)),
    ],
)
def test_empty(call, shape):
    y = call(np.zeros(shape, np.float32))
    assert y.size == 0 and y.dtype == np.float32


@pytest.mark.parametrize(
    "call",
    [
        lambda x, **o: fo.conv_transpose2d(x, np.ones((6, 6, 2, 2), np.float32), stride=2, **o),
        lambda x, **o: fo.max_pool2d(x, 2, **o),
        lambda x, **o: fo.avg_pool2d(x, 2, **o),
        lambda x, **o: fo.resize(x, scale=2, **o),
        lambda x, **o: fo.softmax(x, 1, **o),
        lambda x, **o: fo.group_norm(x, 2, **o),
    ],
)
def test_memory_order_is_kept(draw, call):
    """An image whose channels are neighbors in memory gives a result like itself, of the same values."""
    last = draw(2, 6, 8, 6)
    x = last.transpose(0, 3, 1, 2)
    y = call(x)
    assert y.transpose(0, 2, 3, 1).flags.c_contiguous
    np.testing.assert_array_equal(y, call(np.ascontiguousarray(x)))
    with pytest.raises(TypeError, match=r"x has dtype float64.*x.astype\(np.float32\)"):
        call(x.astype(np.float64))
    with pytest.raises(ValueError, match="out has shape"):
        call(x, out=np.empty((1, 1, 1, 1), np.float32))


def test_tensors_and_lists(draw):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    x = draw(2, 6, 8, 6)
    tensor = torch.from_numpy(x)
    for call in (
        lambda x: fo.max_pool2d(x, 2),
        fo.softmax,
        fo.layer_norm,
        lambda x: fo.group_norm(x, 3),
        lambda x: fo.resize(x, 4),
    ):
        np.testing.assert_array_equal(call(tensor), call(x))
        with pytest.raises(TypeError, match="x.detach"):
            call(torch.ones(1, 6, 8, 6, requires_grad=True))
