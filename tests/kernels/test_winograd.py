import numpy as np
import pytest

import fusedops as fo
import oracle
from catalog import dims
from conv_cases import LINES
from oracle import check

BOUND = 2e-5  # of max |y|, on data of unit scale; the direct algorithm is at 4e-7
LAYOUTS = ["NCHW", "NHWC"]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("ic, oc", [(1, 1), (3, 5), (16, 17), (33, 31), (64, 64)])
@pytest.mark.parametrize("size", [(3, 3), (4, 4), (5, 7), (6, 9), (13, 10)])
@pytest.mark.parametrize("stride", [1, 2])
def test_shapes(isa, draw, layout, ic, oc, size, stride):
    x, w = draw(*dims(layout, 2, ic, *size)), draw(oc, ic, 3, 3)
    for padding in (0, 1, ((2, 0), (1, 3))):
        options = dict(padding=padding, layout=layout, stride=stride)
        check(fo.conv2d(x, w, **options, algorithm="winograd"), oracle.conv2d(x, w, **options), error=BOUND)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("ic, oc, size", [(1, 1, (5, 6)), (5, 18, (13, 9)), (33, 31, (8, 22)), (64, 64, (28, 25))])
@pytest.mark.parametrize(
    "dilation, paddings", [(2, (0, 1, 2)), (3, (3, ((3, 0), (1, 5)))), ((1, 4), (4, ((0, 2), (4, 3)))), (12, (12, 11))]
)
def test_dilation(isa, draw, layout, ic, oc, size, dilation, paddings):
    x, w = draw(*dims(layout, 2, ic, *size)), draw(oc, ic, 3, 3)
    for padding in paddings:
        options = dict(padding=padding, layout=layout, dilation=dilation)
        residual = draw(*fo.Conv2d(w, **options).output_shape(x.shape))
        for epilogue in {}, dict(bias=draw(oc), residual=residual, activation="relu"):
            check(
                fo.conv2d(x, w, **options, **epilogue, algorithm="winograd"),
                oracle.conv2d(x, w, **options, **epilogue),
                error=BOUND,
            )


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    "groups, ic, oc, size",
    [
        (2, 2, 3, (7, 9)),
        (2, 2, 2, (4, 4)),
        (3, 5, 7, (13, 10)),
        (2, 17, 33, (9, 6)),
        (4, 32, 16, (14, 25)),
        (5, 16, 18, (20, 3)),
    ],
)
@pytest.mark.parametrize("stride, dilation", [(1, 1), (2, 1), (1, 2)])
def test_groups(isa, draw, threads, layout, groups, ic, oc, size, stride, dilation):
    """ic and oc channels a group, which are vectors or not, of pixels that have more."""
    x, w = draw(*dims(layout, 2, groups * ic, *size)), draw(groups * oc, ic, 3, 3)
    options = dict(padding=dilation, layout=layout, stride=stride, dilation=dilation, groups=groups)
    residual = draw(*fo.Conv2d(w, **options).output_shape(x.shape))
    for epilogue in (
        {},
        dict(bias=draw(groups * oc), residual=residual, activation="relu"),
        dict(residual=residual, activation=("prelu", draw(groups * oc))),
    ):
        check(
            fo.conv2d(x, w, **options, **epilogue, algorithm="winograd"),
            oracle.conv2d(x, w, **options, **epilogue),
            error=BOUND,
        )


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("oc, size", [(48, (14, 25)), (16, (7, 40)), (19, (9, 20))])
def test_two_limits(isa, draw, layout, oc, size):
    """Whole vectors of channels and of columns, and parts of them; some of y is beyond either limit."""
    x, w = draw(*dims(layout, 2, 32, *size)), draw(oc, 32, 3, 3) / np.float32(2)
    options = dict(padding=1, layout=layout, bias=draw(oc), activation="relu6")
    y = fo.conv2d(x, w, **options, algorithm="winograd")
    check(y, oracle.conv2d(x, w, **options), error=BOUND)
    assert (y == 0).any() and (y == 6).any()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    "groups, channels, size, stride", [(2, 96, 28, 1), (3, 96, 14, 1), (4, 256, 14, 1), (2, 128, 28, 2)]
)
def test_same_bits_of_groups(isa, draw, layout, groups, channels, size, stride):
    """More threads than groups share them, or blocks of one; a group's bits are those of a convolution of its own."""
    x, w = draw(*dims(layout, 2, channels, size, size)), draw(channels, channels // groups, 3, 3)
    options = dict(padding=1, layout=layout, stride=stride, algorithm="winograd")
    before, ys = fo.get_num_threads(), []
    for n in (1, 2, 5):
        fo.set_num_threads(n)
        ys.append(fo.conv2d(x, w, **options, groups=groups))
    fo.set_num_threads(before)
    for y in ys[1:]:
        np.testing.assert_array_equal(y, ys[0])
    axis, each = layout.index("C"), channels // groups
    last = np.take(x, range(channels - each, channels), axis)
    layer = fo.Conv2d(w[-each:], **options)
    if layer.kernel(last.shape)[0] == fo.Conv2d(w, **options, groups=groups).kernel(x.shape)[0]:
        np.testing.assert_array_equal(layer(last), np.take(ys[0], range(channels - each, channels), axis))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("size", [(1, 1), (2, 3)])
@pytest.mark.parametrize("stride", [1, 2])
def test_an_image_smaller_than_a_tile(isa, draw, layout, size, stride):
    x, w = draw(*dims(layout, 1, 5, *size)), draw(7, 5, 3, 3)
    options = dict(padding=1, layout=layout, stride=stride)
    check(fo.conv2d(x, w, **options, algorithm="winograd"), oracle.conv2d(x, w, **options), error=BOUND)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    "tile, ic, oc, size",
    [
        ("F(4x4,3x3)", 20, 33, (10, 14)),
        ("F(4x4,3x3)", 12, 33, (8, 10)),
        ("F(6x6,3x3)", 70, 35, (20, 22)),
        ("F(6x6,3x3)", 70, 35, (22, 20)),
        ("F(6x6,3x3)", 70, 35, (25, 24)),
        ("F(6x6,3x3)", 70, 35, (23, 21)),
    ],
)
def test_smaller_tiles_at_the_ends_of_axes(isa, draw, layout, tile, ic, oc, size):
    x, w = draw(*dims(layout, 2, ic, *size)), draw(oc, ic, 3, 3)
    layer = fo.Conv2d(w, padding=1, layout=layout, algorithm="winograd")
    assert tile in layer.kernel(x.shape)[0]
    check(layer(x), oracle.conv2d(x, w, padding=1, layout=layout), error=BOUND)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    "tile, ic, oc, size",
    [
        ("F(2x2,3x3)", 130, 140, (13, 14)),
        ("F(2x2,3x3)", 130, 140, (16, 11)),
        ("F(4x4,3x3)", 37, 35, (20, 21)),  # 10 and 11 outputs: last tiles of 2 and 3
        ("F(4x4,3x3)", 37, 35, (26, 32)),
        ("F(4x4,3x3)", 37, 35, (31, 25)),
        ("F(4x4,3x3)", 20, 18, (16, 130)),  # several strips
        ("F(4x4,3x3)", 20, 18, (11, 100)),
    ],
)
def test_strided_tiles_at_the_ends_of_axes(isa, draw, layout, tile, ic, oc, size):
    x, w = draw(*dims(layout, 2, ic, *size)), draw(oc, ic, 3, 3)
    options = dict(padding=1, stride=2, layout=layout)
    layer = fo.Conv2d(w, **options, algorithm="winograd")
    assert tile in layer.kernel(x.shape)[0]
    check(layer(x), oracle.conv2d(x, w, **options), error=BOUND)


@pytest.mark.parametrize(
    "tile, bound, ic, oc, size",
    [
        ("F(2x2,3x3)", 5e-6, 256, 256, 20),
        ("F(2x2,3x3)", 5e-6, 1024, 64, 12),
        ("F(4x4,3x3)", 2e-5, 128, 128, 64),
        ("F(4x4,3x3)", 2e-5, 1024, 32, 64),
    ],
)
def test_accuracy_of_each_strided_tile(isa, threads, draw, tile, bound, ic, oc, size):
    x, w = draw(1, ic, size, size), draw(oc, ic, 3, 3)
    layer = fo.Conv2d(w, padding=1, stride=2, algorithm="winograd")
    assert tile in layer.kernel(x.shape)[0]
    check(layer(x), oracle.conv2d(x, w, padding=1, stride=2), error=bound)


def test_more_channels_with_a_stride_than_the_promise_holds_for(isa, draw):
    w = draw(32, 1025, 3, 3)
    assert "x3)" not in fo.Conv2d(w, padding=1, stride=2).kernel((1, 1025, 64, 64))[0]
    assert "F(2x2" in fo.Conv2d(w, padding=1, stride=2, algorithm="winograd").kernel((1, 1025, 64, 64))[0]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    "tile, bound, channels, size",
    [
        ("F(2x2,3x3)", 2e-6, 512, 7),
        ("F(4x4,3x3)", 2e-5, 256, 14),
        ("F(4x4,3x3)", 2e-5, 64, 10),
        ("F(6x6,3x3)", 5e-5, 64, 96),
        ("F(6x6,3x3)", 5e-5, 128, 28),
    ],
)
def test_accuracy_of_each_tile(draw, threads, layout, tile, bound, channels, size):
    """On sizes for which the tile is chosen; the bounds are those that are promised."""
    x, w = draw(*dims(layout, 1, channels, size, size)), draw(channels, channels, 3, 3)
    residual = draw(*x.shape)
    layer = fo.Conv2d(w, padding=1, layout=layout, algorithm="winograd")
    assert tile in layer.kernel(x.shape)[0]
    check(layer(x, residual), oracle.conv2d(x, w, padding=1, layout=layout, residual=residual), error=bound)


@pytest.mark.parametrize("padding", [0, 1, ((2, 0), (3, 1)), 9, ((0, 1), (17, 8))])
@pytest.mark.parametrize("ic, oc, size", [(70, 35, (20, 22)), (20, 33, (9, 47)), (16, 40, (13, 64)), (9, 24, (7, 129))])
def test_planes_a_vector_of_columns_at_a_time(isa, draw, padding, ic, oc, size):
    """Columns outside the image, after the last whole vector, and rows that a last tile does not have; what is added
    may be y itself."""
    x, w, bias = draw(2, ic, *size), draw(oc, ic, 3, 3), draw(oc)
    options = dict(bias=bias, padding=padding, activation=("clip", -1, 1e4))
    exact = oracle.conv2d(x, w, **options)
    check(fo.conv2d(x, w, **options, algorithm="winograd"), exact, error=BOUND)
    y = draw(*exact.value.shape)
    exact = oracle.conv2d(x, w, **options, residual=y.copy())
    fo.conv2d(x, w, **options, residual=y, out=y, algorithm="winograd")
    check(y, exact, error=BOUND)


# of each stride
PROMISED = {
    1: {"F(2x2,3x3)": 2e-6, "F(4x4,3x3)": 2e-5, "F(6x6,3x3)": 5e-5},
    2: {"F(2x2,3x3)": 5e-6, "F(4x4,3x3)": 2e-5},
}
SCALES = {
    "unit": lambda draw, c: (1, 0, 1),
    "large": lambda draw, c: (1e15, 0, 1e15),
    "small": lambda draw, c: (1e-15, 0, 1e-15),
    "channels_apart": lambda draw, c: (10 ** (3 * draw(c, 1, 1)), 0, 1),
    "weights_apart": lambda draw, c: (1, 0, 10 ** (3 * draw(1, c, 1, 1))),
    "offset": lambda draw, c: (1, 100, 1),
}


@pytest.mark.thorough
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize(
    "stride, channels, size",
    [
        *(
            (1, c, size)
            for c, size in [
                (64, 224),
                (128, 112),
                (256, 56),
                (512, 28),
                (512, 14),
                (64, 56),
                (128, 28),
                (256, 14),
                (512, 7),
            ]
        ),
        (2, 64, 56),
        (2, 128, 56),
        (2, 256, 28),
        (2, 512, 14),
    ],
)
def test_promised_accuracy_on_vgg_and_resnet(draw, stride, channels, size, scale):
    """Of unit scale against max |y|; of bad scales against the largest sum of |w x|, which cancellation leaves
    alone."""
    of_x, offset, of_w = SCALES[scale](draw, channels)
    x, w = (
        (draw(1, channels, size, size) * of_x + offset).astype(np.float32),
        (draw(channels, channels, 3, 3) * of_w).astype(np.float32),
    )
    options = dict(padding=1, stride=stride)
    layer = fo.Conv2d(w, **options, algorithm="winograd")
    exact = oracle.conv2d(x, w, **options).value
    largest = np.abs(exact if scale == "unit" else oracle.conv2d(np.abs(x), np.abs(w), **options).value).max()
    error = np.abs(layer(x) - exact).max() / largest
    tile = next(tile for tile in PROMISED[stride] if tile in layer.kernel(x.shape)[0])
    print(f"stride {stride}, {tile} {channels}x{size}x{size} {scale}: {error:.2g}")
    assert error < PROMISED[stride][tile]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("activation", [None, "relu", "tanh"])
@pytest.mark.parametrize("stride, size", [(1, (9, 11)), (2, (18, 21))])
def test_epilogue(isa, draw, layout, activation, stride, size):
    x, w = draw(*dims(layout, 2, 12, *size)), draw(19, 12, 3, 3)
    residual = draw(*dims(layout, 2, 19, 9, 11))
    options = dict(
        bias=draw(19),
        bn=draw.batch_norm(19),
        residual=residual,
        activation=activation,
        padding=1,
        layout=layout,
        stride=stride,
    )
    check(fo.conv2d(x, w, **options, algorithm="winograd"), oracle.conv2d(x, w, **options), error=BOUND)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    "stride, dilation, size", [(1, 1, (18, 21)), (2, 1, (36, 41)), (2, 1, (13, 14)), (1, 2, (36, 41)), (1, 5, (13, 14))]
)
def test_same_bits_for_threads_and_batches(isa, draw, layout, stride, dilation, size):
    x, w = draw(*dims(layout, 3, 16, *size)), draw(32, 16, 3, 3)
    options = dict(padding=dilation, layout=layout, stride=stride, dilation=dilation, algorithm="winograd")
    before, ys = fo.get_num_threads(), []
    for n in (1, 2, 3):
        fo.set_num_threads(n)
        ys.append(fo.conv2d(x, w, **options))
    fo.set_num_threads(before)
    for y in ys[1:]:
        np.testing.assert_array_equal(y, ys[0])
    np.testing.assert_array_equal(fo.conv2d(x[1:2], w, **options), ys[0][1:2])


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("ic, oc, size", [(1, 256, (18, 32)), (64, 64, (26, 20)), (128, 64, (14, 14))])
def test_same_bits_where_threads_share_a_block(isa, draw, layout, ic, oc, size):
    """One image of few tiles, which one thread transforms by rows and several at once; the last tile of a row is two
    columns wide."""
    x, w = draw(*dims(layout, 1, ic, *size)), draw(oc, ic, 3, 3)
    before, ys = fo.get_num_threads(), []
    for n in (1, 2):
        fo.set_num_threads(n)
        ys.append(fo.conv2d(x, w, padding=1, layout=layout, algorithm="winograd"))
    fo.set_num_threads(before)
    np.testing.assert_array_equal(ys[1], ys[0])


@pytest.mark.parametrize("ic, oc", [(8192, 16), (16, 8192), (64, 64)])
def test_scratch_of_a_thread_is_bounded(draw, ic, oc):
    before = fo.get_num_threads()
    fo.set_num_threads(1)
    kernel, scratch = fo.Conv2d(np.zeros((oc, ic, 3, 3), np.float32), padding=1, algorithm="winograd").kernel(
        (1, ic, 60, 60)
    )
    fo.set_num_threads(before)
    assert "winograd" in kernel and 0 < scratch <= 8 << 20


def test_many_channels(isa, draw):
    x, w = draw(1, 3000, 9, 9), draw(3, 3000, 3, 3)
    check(fo.conv2d(x, w, padding=1, algorithm="winograd"), oracle.conv2d(x, w, padding=1), error=BOUND)


@pytest.mark.parametrize(
    "kernel, options",
    [
        ((3, 3), dict(stride=3)),
        ((3, 3), dict(stride=(1, 2))),
        ((5, 5), {}),
        ((1, 1), {}),
        ((3, 1), {}),
        ((3, 3), dict(stride=2, dilation=2)),
        ((3, 3), dict(groups=6)),
    ],
)
def test_refused_where_it_does_not_apply(draw, kernel, options):
    w = draw(6, 6 // options.get("groups", 1), *kernel)
    with pytest.raises(ValueError, match="algorithm='winograd' needs a 3x3 kernel"):
        fo.conv2d(draw(1, 6, 9, 9), w, **options, algorithm="winograd")


@pytest.mark.parametrize(
    "kernel, options",
    [
        ((3, 3), dict(stride=3)),
        ((1, 1), {}),
        ((1, 3), {}),
        ((17, 1), dict(padding=8)),
        ((3, 3), dict(dilation=2)),
        ((3, 3), dict(groups=6)),
    ],
)
def test_one_dimension_refused_where_it_does_not_apply(draw, kernel, options):
    w = draw(6, 6 // options.get("groups", 1), *kernel)
    with pytest.raises(ValueError, match="algorithm='winograd1d' needs a kernel higher than its stride"):
        fo.conv2d(draw(1, 6, 9, 9), w, **options, algorithm="winograd1d")


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kernel, options", LINES)
@pytest.mark.parametrize("height", range(11, 18))
def test_rows_together(isa, draw, layout, kernel, options, height):
    for ic, oc, width in ((4, 6, 19), (20, 34, 35), (4, 70, 9)):
        x, w = draw(*dims(layout, 2, ic, height, width)), draw(oc, ic // options.get("groups", 1), *kernel)
        layer = fo.Conv2d(w, **options, layout=layout, algorithm="winograd1d")
        assert "rows)" in layer.kernel(x.shape)[0]
        check(layer(x), oracle.conv2d(x, w, **options, layout=layout), error=BOUND)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("size", [(12, 24), (20, 33), (31, 66)])
def test_rows_together_whose_weights_pass_once_for_all(isa, draw, threads, layout, size):
    x, w = draw(*dims(layout, 2, 96, *size)), draw(100, 96, 3, 3)
    residual = draw(*fo.Conv2d(w, stride=2, padding=1, layout=layout).output_shape(x.shape))
    options = dict(
        stride=2, padding=1, bias=draw(100), residual=residual, activation=("prelu", draw(100)), layout=layout
    )
    check(fo.conv2d(x, w, **options, algorithm="winograd1d"), oracle.conv2d(x, w, **options), error=BOUND)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("activation", [None, "relu", "tanh", "prelu"])
@pytest.mark.parametrize("kernel, options", [((3, 3), dict(stride=2, padding=1)), ((5, 5), dict(padding=2))])
def test_epilogue_of_rows_together(isa, draw, layout, activation, kernel, options):
    for oc, width in ((19, 40), (40, 19)):
        x, w = draw(*dims(layout, 2, 12, 9, width)), draw(oc, 12, *kernel)
        residual = draw(*fo.Conv2d(w, **options, layout=layout).output_shape(x.shape))
        epilogue = dict(
            bias=draw(oc),
            bn=draw.batch_norm(oc),
            residual=residual,
            activation=("prelu", draw(oc)) if activation == "prelu" else activation,
        )
        check(
            fo.conv2d(x, w, **epilogue, **options, layout=layout, algorithm="winograd1d"),
            oracle.conv2d(x, w, **epilogue, **options, layout=layout),
            error=BOUND,
        )


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    "name, ic, size, oc, kernel, options",
    [
        ("F(3 rows)", 128, 56, 128, 3, dict(stride=(2, 1), padding=1)),
        ("F(2 rows)", 3, 224, 64, 7, dict(stride=2, padding=3)),
        ("F(2 rows)", 48, 27, 128, 5, dict(padding=2)),
    ],
)
def test_automatic_rows_are_as_accurate_as_direct(draw, threads, layout, name, ic, size, oc, kernel, options):
    x, w = draw(*dims(layout, 1, ic, size, size)), draw(oc, ic, kernel, kernel)
    layer = fo.Conv2d(w, **options, layout=layout)
    assert name in layer.kernel(x.shape)[0]
    check(layer(x), oracle.conv2d(x, w, **options, layout=layout), error=2e-6)


def test_strides_whose_product_overflows(draw):
    """33 * 998724481 * 1119412321 is 1 modulo 2^64."""
    x, w = draw(1, 64, 67, 3), draw(64, 64, 3, 3)
    y = fo.conv2d(x, w, stride=(998724481, 1119412321), dilation=(33, 1))
    np.testing.assert_allclose(
        y[0, :, 0, 0], np.einsum("chw,ochw->o", x[0, :, ::33].astype(float), w.astype(float)), atol=1e-4
    )
