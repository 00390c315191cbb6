import numpy as np
import pytest

import fusedops as fo
import oracle
from catalog import dims
from conv_cases import DEPTHWISE
from oracle import ACTIVATIONS, check

LAYOUTS = ["NCHW", "NHWC"]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("c, multiplier, size, kernel, options", DEPTHWISE)
def test_shapes(isa, draw, layout, c, multiplier, size, kernel, options):
    x, w = draw(*dims(layout, 2, c, *size)), draw(c * multiplier, *kernel)
    y = fo.depthwise_conv2d(x, w, **options, layout=layout)
    check(y, oracle.depthwise_conv2d(x, w, **options, layout=layout))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("stride", [1, 2])
def test_every_width_and_channel_count_around_the_lanes(isa, draw, layout, stride):
    for c, width in [(c, 5) for c in range(1, 35)] + [(3, width) for width in range(1, 53)]:
        x, w = draw(*dims(layout, 1, c, 4, width)), draw(c, 3, 3)
        options = dict(stride=stride, padding=1, layout=layout)
        check(fo.depthwise_conv2d(x, w, **options), oracle.depthwise_conv2d(x, w, **options))


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("top, bottom", [(0, 0), (1, 1), (1, 0), (0, 1), (2, 1), (1, 3)])
def test_every_height_has_the_same_bits_in_both_layouts(isa, draw, stride, top, bottom):
    for height, width in [(height, 14) for height in range(3, 31)] + [(14, 5), (7, 7), (15, 16), (29, 28)]:
        x, w, b = draw(1, 3, height, width), draw(3, 3, 3), draw(3)
        options = dict(bias=b, activation="relu", stride=stride, padding=((top, bottom), (1, 1)))
        y = fo.depthwise_conv2d(x, w, **options)
        check(y, oracle.depthwise_conv2d(x, w, **options))
        pixels = fo.depthwise_conv2d(np.ascontiguousarray(x.transpose(0, 2, 3, 1)), w, **options, layout="NHWC")
        np.testing.assert_array_equal(y, pixels.transpose(0, 3, 1, 2))


@pytest.mark.parametrize("left, right", [(1, 1), (1, 0), (0, 1), (0, 0)])
@pytest.mark.parametrize("top, bottom", [(1, 1), (1, 0), (0, 1), (0, 0)])
def test_planes_of_few_columns_skip_rows_outside(isa, half_rate, draw, top, bottom, left, right):
    """Several output rows share a vector there; those that meet no row above or below the image do not meet its taps,
    however large."""
    few = [
        (height, width)
        for height in (3, 4, 5, 8, 9, 10, 17, 18, 34, 35)
        for width in (3, 4, 5, 7, 8, 9, 10, 15, 16, 17)
    ]
    for height, width in few + [
        (height, width) for height in (3, 4, 9, 18) for width in (18, 28, 31, 32, 33, 34, 47, 56, 62, 63, 64, 65)
    ]:
        x, w = draw(1, 2, height, width + 3)[..., :width], draw(2, 3, 3)
        options = dict(bias=draw(2), stride=2, padding=((top, bottom), (left, right)))
        check(fo.depthwise_conv2d(x, w, **options), oracle.depthwise_conv2d(x, w, **options))
        if left:
            w[0, 0, 1] = w[1, 2, 1] = np.inf  # the column in the middle, which never lies outside
        y = fo.depthwise_conv2d(x, w, **options)
        pixels = fo.depthwise_conv2d(np.ascontiguousarray(x.transpose(0, 2, 3, 1)), w, **options, layout="NHWC")
        np.testing.assert_array_equal(y, pixels.transpose(0, 3, 1, 2))


@pytest.mark.parametrize("width", [7, 15, 31, 62])
def test_rows_of_a_plane_that_threads_divide(isa, half_rate, draw, threads, width):
    x, w = draw(1, 2, 4003, width), draw(2, 3, 3)
    for padding in 1, ((0, 1), (1, 0)):
        y = fo.depthwise_conv2d(x, w, stride=2, padding=padding)
        pixels = fo.depthwise_conv2d(
            np.ascontiguousarray(x.transpose(0, 2, 3, 1)), w, stride=2, padding=padding, layout="NHWC"
        )
        np.testing.assert_array_equal(y, pixels.transpose(0, 3, 1, 2))


@pytest.mark.parametrize("k", [3, 5, 7])
@pytest.mark.parametrize("left, right", [(0, 0), (1, 1), (2, 2), (3, 3), (0, 2), (2, 0), (6, 6)])
def test_every_width_has_the_same_bits_in_both_layouts(isa, draw, k, left, right):
    """A row's last vector may overlap the one before; residual and activation meet each column once."""
    for width in range(max(1, k - left - right), 100):
        x, w = draw(1, 2, 3, width), draw(2, k, k)
        ow = width + left + right - k + 1
        name = ("relu6", "sigmoid")[(width + left) % 2]  # each width meets both, with another padding
        options = dict(residual=draw(1, 2, 3, ow), activation=name, padding=((k // 2, k // 2), (left, right)))
        y = fo.depthwise_conv2d(x, w, **options)
        check(y, oracle.depthwise_conv2d(x, w, **options))
        options["residual"] = np.ascontiguousarray(options["residual"].transpose(0, 2, 3, 1))
        pixels = fo.depthwise_conv2d(np.ascontiguousarray(x.transpose(0, 2, 3, 1)), w, **options, layout="NHWC")
        np.testing.assert_array_equal(y, pixels.transpose(0, 3, 1, 2))


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("left, right", [(0, 0), (1, 1), (0, 1), (1, 0), (2, 2)])
def test_strips_of_rows_have_the_same_bits_in_both_layouts(isa, draw, stride, left, right):
    for width in [*range(8, 70), 112, 130, 300, 530]:
        x, w, b = draw(1, 2, 33, width), draw(2, 3, 3), draw(2)
        options = dict(bias=b, stride=stride, activation=("clip", -0.5, 1), padding=((1, 1), (left, right)))
        y = fo.depthwise_conv2d(x, w, **options)
        check(y, oracle.depthwise_conv2d(x, w, **options))
        pixels = fo.depthwise_conv2d(np.ascontiguousarray(x.transpose(0, 2, 3, 1)), w, **options, layout="NHWC")
        np.testing.assert_array_equal(y, pixels.transpose(0, 3, 1, 2))


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("k", [3, 5])
@pytest.mark.parametrize(
    "c, apart, size", [(512, 512, (9, 14)), (500, 512, (9, 13)), (70, 1024, (15, 7)), (64, 512, (5, 30))]
)
def test_pixels_that_share_few_sets_of_the_cache(isa, draw, stride, k, c, apart, size):
    x, w = draw(1, *size, apart), draw(c, k, k)
    options = dict(bias=draw(c), stride=stride, padding=k // 2, layout="NHWC")
    for activation in "relu", "silu":
        y = fo.depthwise_conv2d(x[..., :c], w, **options, activation=activation)
        check(y, oracle.depthwise_conv2d(x[..., :c], w, **options, activation=activation))
        np.testing.assert_array_equal(y, fo.depthwise_conv2d(x[..., :c].copy(), w, **options, activation=activation))


@pytest.mark.parametrize(
    "padding", [((1, 1), (1, 1)), ((0, 1), (1, 0)), ((2, 0), (0, 2)), ((1, 1), (2, 2)), ((0, 0), (0, 0))]
)
@pytest.mark.parametrize(
    "c, apart, w, shift", [(512, 512, 14, 0), (512, 512, 7, 4), (48, 512, 21, 1), (20, 1024, 14, 0), (512, 512, 13, 12)]
)
def test_bands_of_such_pixels(isa, half_rate, draw, c, apart, w, shift, padding):
    """Columns outside on either side, on both, or more than one; vectors that begin anywhere in a line and reach into
    the next pixel."""
    width = w + 2 - sum(padding[1])
    for h in (5, 8, 9):
        x, k = draw(2, h, width, apart), draw(c, 3, 3)
        k[0, 0, 0] = np.inf
        image = among_nans(x, shift)[0][..., :c]
        for options in (
            dict(bias=draw(c), activation="relu6"),
            {},
            dict(residual=draw(2, h - 2 + sum(padding[0]), w, c), activation="relu"),
        ):
            y = fo.depthwise_conv2d(image, k, padding=padding, layout="NHWC", **options)
            planes = {
                name: np.ascontiguousarray(v.transpose(0, 3, 1, 2)) if name == "residual" else v
                for name, v in options.items()
            }
            expected = fo.depthwise_conv2d(
                np.ascontiguousarray(image.transpose(0, 3, 1, 2)), k, padding=padding, **planes
            )
            np.testing.assert_array_equal(y, expected.transpose(0, 2, 3, 1))


@pytest.mark.parametrize(
    "padding", [((1, 1), (1, 1)), ((0, 1), (1, 0)), ((1, 0), (0, 1)), ((1, 1), (2, 2)), ((0, 0), (0, 0))]
)
@pytest.mark.parametrize(
    "c, apart, shift", [(512, 512, 0), (256, 256, 4), (48, 128, 1), (528, 528, 0), (144, 144, 0), (20, 512, 0)]
)
def test_bands_of_stride_2(isa, half_rate, draw, threads, c, apart, shift, padding):
    """Columns and rows outside on any side; bands of either width, the last of which overlaps; vectors anywhere in a
    line; rows of several threads."""
    for h, w in (3, 9), (8, 15), (14, 14), (17, 22), (31, 33):
        x, k = draw(1, h, w, apart), draw(c, 3, 3)
        k[0, 0, 0] = np.inf
        image = among_nans(x, shift)[0][..., :c]
        for options in dict(bias=draw(c), activation="relu6"), {}:
            y = fo.depthwise_conv2d(image, k, stride=2, padding=padding, layout="NHWC", **options)
            expected = fo.depthwise_conv2d(
                np.ascontiguousarray(image.transpose(0, 3, 1, 2)), k, stride=2, padding=padding, **options
            )
            np.testing.assert_array_equal(y, expected.transpose(0, 2, 3, 1))


def test_an_image_of_no_width_among_such_pixels(isa, draw):
    x, bias = draw(1, 6, 9, 512)[:, :, :0], draw(512)
    y = fo.depthwise_conv2d(x, draw(512, 3, 3), bias=bias, padding=2, layout="NHWC")
    np.testing.assert_array_equal(y, np.broadcast_to(bias, (1, 8, 2, 512)))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("c", [19, 150])
@pytest.mark.parametrize("name", [None, *ACTIVATIONS])
def test_epilogue(isa, draw, layout, c, name):
    x, w = draw(*dims(layout, 2, c, 6, 21)), draw(c, 3, 3)
    options = dict(bias=draw(c), bn=draw.batch_norm(c), residual=draw(*x.shape), padding=1, layout=layout)
    options["activation"] = draw.activation(name, c)
    check(fo.depthwise_conv2d(x, w, **options), oracle.depthwise_conv2d(x, w, **options))


def among_nans(a, floats):
    """A copy that begins `floats` elements after a cache line's start, and the memory around it."""
    memory = np.full(a.size + 64, np.nan, np.float32)
    start = -(memory.ctypes.data // 4) % 16 + 16 + floats
    copy = memory[start:][: a.size].reshape(a.shape)
    copy[...] = a
    return copy, memory


@pytest.mark.parametrize("stride", [1, 2])
def test_columns_outside_are_zeros_that_are_multiplied(isa, draw, stride, threads):
    """An infinite weight times a column outside is NaN in every kernel, whatever the threads, the residual and the
    memory order."""
    for h, w, c in ((2, 5, 16), (2, 900, 16), (7, 14, 64), (7, 13, 20)):
        x, k = abs(draw(1, h, w, c)) + 1, abs(draw(c, 1, 3, 3))
        k[:, 0, 1, 0] = np.inf
        options = dict(stride=stride, padding=1, groups=c)
        y, planes = (
            fo.conv2d(x, k, layout="NHWC", **options),
            fo.conv2d(np.ascontiguousarray(x.transpose(0, 3, 1, 2)), k, **options),
        )
        assert np.isnan(y[..., 0, :]).all() and not np.isnan(y[..., 1:, :]).any()
        np.testing.assert_array_equal(np.isnan(y), np.isnan(planes.transpose(0, 2, 3, 1)))
        np.testing.assert_array_equal(y, fo.conv2d(x, k, residual=np.zeros_like(y), layout="NHWC", **options))


@pytest.mark.parametrize("kernel, stride", [(3, 1), (3, 2), (5, 1)])
@pytest.mark.parametrize("c, shift", [(8, 0), (20, 0), (64, 4), (16, 1), (160, 4)])
def test_every_size_has_the_same_bits_with_channels_last(isa, draw, kernel, stride, c, shift):
    """Tiles overlap at the lower and the right end, several go in one call, and windows reach beyond the image in every
    way."""
    pads = [((1, 1), (1, 1)), ((0, 1), (0, 1)), ((1, 0), (1, 0)), ((2, 0), (1, 3)), ((0, 0), (0, 0)), ((3, 2), (2, 0))]
    pads += [((2, 2), (2, 2)), ((0, 2), (2, 1))] if kernel == 5 else []
    sizes = [(h, 6) for h in range(1, 9)] + [(6, w) for w in range(1, 24)] + [(5, 131)]
    for n, (h, w) in enumerate(sizes):
        for padding in pads[n % 2 :: 2]:
            if h + sum(padding[0]) < kernel or w + sum(padding[1]) < kernel:
                continue
            x, k = draw(1, h, w, c), draw(c, kernel, kernel)
            options = dict(
                bias=draw(c) if n % 3 else None,
                activation=["relu6", "relu", None][n % 3],
                stride=stride,
                padding=padding,
            )
            image, _ = among_nans(x, shift)
            expected = oracle.depthwise_conv2d(x, k, **options, layout="NHWC")
            out, near = among_nans(expected[0].astype(np.float32), shift)
            out[...] = np.nan
            check(fo.depthwise_conv2d(image, k, **options, layout="NHWC", out=out), expected)
            assert np.isnan(near).sum() == 64
            y = fo.depthwise_conv2d(np.ascontiguousarray(x.transpose(0, 3, 1, 2)), k, **options)
            np.testing.assert_array_equal(y.transpose(0, 2, 3, 1), out)


@pytest.mark.parametrize("k, stride", [(3, 1), (3, 2), (5, 1), (7, 1)])
@pytest.mark.parametrize(
    "c, width, padding", [(112, 13, 1), (112, 16, 0), (32, 9, 1), (16, 8, 1), (48, 3, 3), (144, 1, 3), (260, 14, 1)]
)
def test_bits_do_not_depend_on_where_pixels_lie(isa, draw, k, stride, c, width, padding):
    """Vectors of channels begin elsewhere where the image does not begin on a cache line, and reach from one pixel into
    the next."""
    x, w, b = draw(1, 7, width, c), draw(c, k, k), draw(c)
    options = dict(bias=b, activation="relu", stride=stride, padding=padding, layout="NHWC")
    options["residual"] = r = draw(*fo.depthwise_conv2d(x, w, **options).shape)
    expected = oracle.depthwise_conv2d(x, w, **options)
    for shift in 0, 1, 4, 15:
        image, near_x = among_nans(x, shift)
        out, near_y = among_nans(r, shift)
        y = fo.depthwise_conv2d(image, w, **options)
        if shift == 0:
            first = y
            check(y, expected)
        np.testing.assert_array_equal(y, first)
        np.testing.assert_array_equal(fo.depthwise_conv2d(image, w, **options, out=out), first)
        assert np.isnan(near_y).sum() == near_y.size - r.size and np.isnan(near_x).sum() == near_x.size - x.size
        wide = np.full((*r.shape[:3], c + 16), np.nan, np.float32)
        np.testing.assert_array_equal(fo.depthwise_conv2d(image, w, **options, out=wide[..., :c]), first)
        assert np.isnan(wide[..., c:]).all()


def pixels_of(options):
    """The same options with a residual whose channels are last."""
    return {
        name: np.ascontiguousarray(value.transpose(0, 2, 3, 1)) if name == "residual" else value
        for name, value in options.items()
    }


def check_every_memory_order(x, w, **options):
    """Against the oracle; the same bits with channels last, of planes that touch (which may become pixels) and of those
    that do not. Then with an infinite weight, which reaches no row outside the image, but the columns."""
    y = fo.depthwise_conv2d(x, w, **options)
    if np.isfinite(w).all():
        check(y, oracle.depthwise_conv2d(x, w, **options))
        infinite = w.copy()
        infinite[0, w.shape[1] // 2, w.shape[2] // 2] = np.inf
        check_every_memory_order(x, infinite, **options)
    pixels = fo.depthwise_conv2d(np.ascontiguousarray(x.transpose(0, 2, 3, 1)), w, **pixels_of(options), layout="NHWC")
    np.testing.assert_array_equal(y, pixels.transpose(0, 3, 1, 2))
    apart = np.full((*x.shape[:3], x.shape[3] + 3), np.nan, np.float32)[..., 1:-2]
    apart[...] = x
    out, near = among_nans(y, 3)
    out[...] = np.nan
    np.testing.assert_array_equal(y, fo.depthwise_conv2d(apart, w, **options))
    np.testing.assert_array_equal(y, fo.depthwise_conv2d(x, w, **options, out=out))
    assert np.isnan(near).sum() == 64 + np.isnan(y).sum()


# kernel, stride, dilation
ANY = [
    (1, 1, 1),
    (1, 2, 1),
    (2, 1, 1),
    (2, 2, 1),
    (2, 1, 3),
    (2, 3, 1),
    (3, 3, 1),
    (3, 1, 2),
    (3, 1, 5),
    (3, 2, 2),
    (4, 1, 1),
    (4, 2, 1),
    (5, 1, 2),
    (5, 1, 4),
    (5, 2, 3),
    (6, 1, 1),
    (6, 2, 2),
    (7, 1, 2),
    (7, 2, 1),
    (9, 1, 1),
    (9, 4, 1),
    ((1, 6), 1, 1),
    ((5, 2), (1, 2), 1),
    ((3, 4), (2, 1), (2, 1)),
    ((2, 5), 2, (4, 2)),
]


@pytest.mark.parametrize("kernel, stride, dilation", ANY)
@pytest.mark.parametrize("c", [1, 16, 23])
def test_any_kernel_has_the_same_bits_in_every_memory_order(isa, half_rate, draw, kernel, stride, dilation, c):
    kernel, dilation = np.broadcast_to(kernel, 2), tuple(map(int, np.broadcast_to(dilation, 2)))
    reach = (kernel - 1) * dilation  # a window has a row and a column more
    for n, (h, w) in enumerate([(1, 1), (2, 3), (5, 4), (7, 7), (9, 8), (6, 15), (14, 17), (3, 33), (2, 50), (5, 69)]):
        for sides in [
            (reach // 2, reach - reach // 2),
            (0 * reach, 0 * reach),
            (0 * reach, reach),
            (reach + 2, 0 * reach),
        ][n % 2 :: 2]:
            padding = tuple((int(sides[0][axis]), int(sides[1][axis])) for axis in (0, 1))
            if h + sum(padding[0]) <= reach[0] or w + sum(padding[1]) <= reach[1]:
                continue
            x, k = draw(2, c, h, w), draw(c, *kernel)
            options = dict(
                bias=draw(c) if n % 3 else None,
                activation=["relu6", None, "silu", ("prelu", draw(c))][n % 4],
                stride=stride,
                dilation=dilation,
                padding=padding,
            )
            if n % 5 == 0:
                options["residual"] = draw(*fo.depthwise_conv2d(x, k, **options).shape)
            check_every_memory_order(x, k, **options)


@pytest.mark.parametrize("k, stride", [(3, 1), (3, 2), (5, 1), (5, 2), (7, 1)])
@pytest.mark.parametrize("c", [16, 37, 300])
def test_small_planes_that_become_pixels(isa, half_rate, draw, threads, k, stride, c):
    for n, (h, w) in enumerate(
        [(1, 1), (2, 2), (3, 4), (4, 4), (5, 5), (6, 6), (7, 7), (8, 8), (20, 3), (40, 8), (9, 14), (16, 16)]
    ):
        x, kernel = draw(1 + n % 2, c, h, w), draw(c, k, k)
        options = dict(
            bias=draw(c), activation=["relu", "gelu", ("prelu", draw(c))][n % 3], stride=stride, padding=k // 2
        )
        if n % 4 == 3:
            options["residual"] = draw(*fo.depthwise_conv2d(x, kernel, **options).shape)
        check_every_memory_order(x, kernel, **options)


@pytest.mark.parametrize("k, stride, dilation", [(4, 1, 1), (9, 1, 1), (5, 1, 3), (7, 2, 1), (3, 3, 1), (3, 2, 7)])
def test_large_planes_become_pixels_some_rows_at_a_time(isa, draw, threads, k, stride, dilation):
    c, padding = 18, ((2, (k - 1) * dilation), (k // 2, 1))
    x, w = draw(1, c, 61, 260), draw(c, k, k)
    options = dict(bias=draw(c), activation="relu", stride=stride, dilation=dilation, padding=padding)
    if threads > 1:  # whose parts of the residual are rows, too
        options["residual"] = draw(*fo.depthwise_conv2d(x, w, **options).shape)
    check_every_memory_order(x, w, **options)


@pytest.mark.parametrize(
    "kernel, stride, dilation",
    [
        ((1, 3), 1, 1),
        ((1, 31), 1, 1),
        ((1, 4), 2, 1),
        ((3, 5), 1, 1),
        ((2, 6), (1, 2), 3),
        ((5, 1), (2, 1), 2),
        ((1, 7), (1, 2), (1, 20)),
    ],
)
@pytest.mark.parametrize("w", [256, 261, 300, 530])
def test_long_rows_of_any_kernel(isa, draw, threads, kernel, stride, dilation, w):
    """Whose middle goes in groups of vectors and whose ends meet zeros; images of one row are sequences."""
    (kh, kw), (dh, dw) = kernel, np.broadcast_to(dilation, 2).tolist()
    for n, h in enumerate([1, 4]):
        x, k = draw(2, 3, h, w), draw(3, *kernel)
        reach = (kw - 1) * dw
        for left, right in [(0, 0), (reach // 2, reach - reach // 2), (reach + 3, 1)]:
            padding = ((kh // 2 * dh, (kh - 1) * dh), (left, right))
            options = dict(
                bias=draw(3),
                activation=["relu6", "gelu", ("prelu", draw(3))][left % 3],
                stride=stride,
                dilation=(dh, dw),
                padding=padding,
            )
            if n:
                options["residual"] = draw(*fo.depthwise_conv2d(x, k, **options).shape)
            check_every_memory_order(x, k, **options)


def test_images_of_one_column(isa, draw, threads):
    for c in 1, 5, 16, 70:
        x, k = draw(1, c, 40, 1), draw(c, 3, 1)
        residual = draw(1, c, 40, 1)
        last = np.ascontiguousarray(residual.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
        for adds in {}, {"residual": residual}, {"residual": last}:
            check_every_memory_order(x, k, bias=draw(c), activation="relu", padding=(1, 0), **adds)


@pytest.mark.parametrize("k", [2, 3, 5, 7])
@pytest.mark.parametrize("dilation", [2, (1, 3), (4, 1), 9, 30])
def test_dilated_kernels_whose_taps_meet_few_pixels(isa, draw, threads, k, dilation):
    """Some phases of a dilated kernel have no pixels at all; the rest of the window lies outside the image."""
    dh, dw = np.broadcast_to(dilation, 2).tolist()
    half, full = (k // 2 * dh, k // 2 * dw), ((k - 1) * dh, (k - 1) * dw)
    for c, h, w, paddings in (
        (5, 4, 4, [half, full]),
        (17, 9, 11, [full]),
        (16, 1, 40, [half, full]),
        (33, 17, 21, [half]),
    ):
        x, kernel = draw(1, c, h, w), draw(c, k, k)
        for padding in paddings:
            check_every_memory_order(x, kernel, bias=draw(c), activation="relu", dilation=(dh, dw), padding=padding)


def test_which_planes_become_pixels(isa, threads):
    """Those for which there is no walk along rows, as many rows as 640 KB of scratch memory for each thread have room
    for."""
    for k, stride, dilation, size, turns in [
        (4, 1, 1, 30, True),
        (3, 3, 1, 200, True),
        (5, 1, 2, 300, True),
        (3, 1, 1, 30, False),
        (3, 1, 2, 30, False),
    ]:
        layer = fo.Conv2d(np.ones((64, 1, k, k), np.float32), stride=stride, dilation=dilation, groups=64)
        name, scratch = layer.kernel((1, 64, size, size))
        turns = turns and isa != "scalar"
        assert name == ("depthwise, planes become pixels" if turns else "depthwise, columns as lanes")
        assert 0 < scratch <= threads * (640 << 10) if turns else not scratch
        assert layer.kernel((1, 64, size, size), nhwc_memory=True) == ("depthwise, channels as lanes", 0)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_multiplier_has_its_own_channels_of_every_epilogue(isa, draw, layout):
    x, w = draw(*dims(layout, 1, 5, 6, 7)), draw(15, 3, 3)
    options = dict(bias=draw(15), bn=draw.batch_norm(15), activation=("prelu", draw(15)), layout=layout)
    check(fo.depthwise_conv2d(x, w, **options), oracle.depthwise_conv2d(x, w, **options))


def test_weights_of_three_or_four_axes(draw):
    x, w = draw(2, 6, 7, 8), draw(12, 3, 3)
    np.testing.assert_array_equal(fo.depthwise_conv2d(x, w), fo.depthwise_conv2d(x, w[:, None]))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_is_conv2d_with_as_many_groups_as_channels(isa, draw, layout):
    x, w = draw(*dims(layout, 2, 6, 7, 8)), draw(12, 1, 3, 3)
    grouped = fo.conv2d(x, w, groups=6, stride=2, padding=1, layout=layout)
    np.testing.assert_array_equal(fo.depthwise_conv2d(x, w, stride=2, padding=1, layout=layout), grouped)


def test_depthwise_conv_bn_relu(isa, draw):
    x, w, bn = draw(2, 6, 7, 19), draw(6, 3, 3), draw.batch_norm(6)
    y = fo.depthwise_conv_bn_relu(x, w, bn, padding=1)
    check(y, oracle.depthwise_conv2d(x, w, bn=bn, activation="relu", padding=1))
    np.testing.assert_array_equal(fo.depthwise_conv_bn_relu(x, w), fo.depthwise_conv2d(x, w, activation="relu"))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_image_has_the_same_bits_alone_and_in_a_batch(isa, draw, layout):
    x, w = draw(*dims(layout, 5, 11, 9, 21)), draw(11, 3, 3)
    options = dict(padding=1, layout=layout, activation="silu")
    batch = fo.depthwise_conv2d(x, w, **options)
    for i in range(5):
        np.testing.assert_array_equal(batch[i : i + 1], fo.depthwise_conv2d(x[i : i + 1], w, **options))


def test_empty_batch(isa, draw):
    assert fo.depthwise_conv2d(draw(0, 3, 5, 5), draw(6, 3, 3)).shape == (0, 6, 3, 3)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("k, stride, dilation", [(3, 1, 1), (5, 1, 2), (6, 1, 1), (3, 3, 1)])
def test_images_of_no_width_or_height(isa, draw, layout, k, stride, dilation):
    for size in (5, 0), (0, 5), (0, 0):
        x, bias = draw(*dims(layout, 1, 20, *size)), draw(20)
        options = dict(bias=bias, stride=stride, dilation=dilation, padding=k * dilation, layout=layout)
        check(
            fo.depthwise_conv2d(x, draw(20, k, k), **options),
            oracle.depthwise_conv2d(x, np.ones((20, k, k), np.float32), **options),
        )
