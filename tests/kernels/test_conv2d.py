import itertools

import numpy as np
import pytest

import fusedops as fo
import oracle
from catalog import dims
from conv_cases import DIRECT, FIRST
from oracle import ACTIVATIONS, check


def inputs(draw, layout, n, ic, size, oc, kernel, groups=1):
    return draw(*dims(layout, n, ic, *size)), draw(oc, ic // groups, *kernel)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("ic, size, oc, kernel, options", DIRECT)
def test_shapes(isa, draw, layout, ic, size, oc, kernel, options):
    x, w = inputs(draw, layout, 2, ic, size, oc, kernel, options.get("groups", 1))
    y = fo.conv2d(x, w, **options, layout=layout, algorithm="direct")
    check(y, oracle.conv2d(x, w, **options, layout=layout))


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("oc", [1, 2, 3, 4, 6, 7, 12, 13, 16, 31, 32, 33, 65])
def test_tile_borders(isa, draw, layout, oc):
    """Output channels and pixels just below, on and above the borders of every register tile."""
    w = draw(oc, 3, 1, 1)
    for pixels in (1, 2, 5, 6, 7, 11, 12, 13, 15, 16, 17, 24, 25, 31, 32, 33, 64, 65):
        x = draw(*dims(layout, 1, 3, 1, pixels))
        check(fo.conv2d(x, w, layout=layout), oracle.conv2d(x, w, layout=layout))


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("kernel", [(1, 1), (3, 3)])
def test_every_combination_of_epilogues(isa, draw, layout, kernel):
    x, w = inputs(draw, layout, 2, 5, (7, 9), 18, kernel)
    shape = fo.Conv2d(w, padding="same", layout=layout).output_shape(x.shape)
    bias, bn, residual = draw(18), draw.batch_norm(18), draw(*shape)
    for given in itertools.product([None, bias], [None, bn], [None, residual], [None, "relu", "tanh"]):
        options = dict(zip(("bias", "bn", "residual", "activation"), given), padding="same", layout=layout)
        check(fo.conv2d(x, w, **options, algorithm="direct"), oracle.conv2d(x, w, **options))


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_every_activation(isa, draw, layout, name):
    x, w = inputs(draw, layout, 1, 4, (5, 7), 19, (3, 3))
    options = dict(bias=3 * draw(19), activation=draw.activation(name, 19), layout=layout)
    check(fo.conv2d(x, w, **options, algorithm="direct"), oracle.conv2d(x, w, **options))


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize(
    "ic, size, oc, kernel, options",
    [
        (300, (19, 21), 17, (1, 1), {}),
        # few steps, a result larger than the cache: tiles go along its rows; the last columns are two vectors
        (60, (90, 91), 41, (1, 1), {}),
        (5, (59, 139), 70, (1, 1), {}),  # or one
        (16, (30, 31), 40, (3, 3), dict(padding=1)),
        (24, (40, 41), 24, (3, 3), dict(groups=24, padding=1)),
        (12, (40, 41), 24, (5, 5), dict(groups=2, stride=2)),
    ],
)
def test_each_task_has_its_part_of_everything(isa, threads, draw, layout, ic, size, oc, kernel, options):
    """Images that are cut into several tasks, with every array that has to be cut along."""
    x, w = inputs(draw, layout, 2, ic, size, oc, kernel, options.get("groups", 1))
    residual = draw(*fo.Conv2d(w, **options, layout=layout).output_shape(x.shape))
    options = options | dict(bias=draw(oc), residual=residual, activation=("prelu", draw(oc)), layout=layout)
    check(fo.conv2d(x, w, **options, algorithm="direct"), oracle.conv2d(x, w, **options))


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("activation", [None, "relu", "relu6", "silu"])
@pytest.mark.parametrize(
    "ic, size, oc",
    [
        (4, (23, 25), 6),
        (5, (23, 25), 13),
        (7, (23, 25), 15),
        (16, (23, 25), 17),
        (37, (23, 25), 29),
        (64, (23, 25), 34),
        (63, (23, 25), 48),
        (16, (5, 6), 33),
        (18, (5, 7), 70),
    ],
)
def test_few_steps(isa, draw, layout, activation, ic, size, oc):
    """Tiles along the rows of the result, of each height that they may have; a tile ends where the next begins, or by
    itself."""
    x, w = inputs(draw, layout, 1, ic, size, oc, (1, 1))
    options = dict(bias=draw(oc), activation=activation, layout=layout)
    y = fo.conv2d(x, w, **options)
    check(y, oracle.conv2d(x, w, **options))
    residual = draw(*y.shape)
    check(fo.conv2d(x, w, **options, residual=residual), oracle.conv2d(x, w, **options, residual=residual))
    few = fo.conv2d(x, w[:5], **options | dict(bias=options["bias"][:5]))
    np.testing.assert_array_equal(few, y[:, :5] if layout == "NCHW" else y[..., :5])


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_groups_have_their_own_channels_of_every_epilogue(isa, draw, layout):
    x, w = inputs(draw, layout, 2, 9, (4, 5), 21, (3, 3), groups=3)
    options = dict(bias=draw(21), bn=draw.batch_norm(21), activation=("prelu", draw(21)), groups=3, layout=layout)
    check(fo.conv2d(x, w, **options), oracle.conv2d(x, w, **options))


@pytest.mark.parametrize(
    "padding, same_as",
    [
        (1, ((1, 1), (1, 1))),
        ((1, 2), ((1, 1), (2, 2))),
        ("valid", ((0, 0), (0, 0))),
        ("same", ((1, 1), (1, 2))),
    ],
)
def test_forms_of_padding(draw, padding, same_as):
    x, w = draw(1, 3, 8, 9), draw(4, 3, 3, 4)
    np.testing.assert_array_equal(fo.conv2d(x, w, padding=padding), fo.conv2d(x, w, padding=same_as))


@pytest.mark.parametrize("kernel", [1, 2, 3, 5])
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("dilation", [1, 2])
def test_same_padding(draw, kernel, stride, dilation):
    x, w = draw(1, 2, 7, 8), draw(3, 2, kernel, kernel)
    options = dict(padding="same", stride=stride, dilation=dilation)
    y = fo.conv2d(x, w, **options, algorithm="direct")
    assert y.shape == (1, 3, -(-7 // stride), -(-8 // stride))
    check(y, oracle.conv2d(x, w, **options))


def test_conv_bn_relu(isa, draw):
    x, w, bn = draw(2, 6, 7, 5), draw(11, 6, 3, 3), draw.batch_norm(11)
    y = fo.conv_bn_relu(x, w, bn, padding=1, algorithm="direct")
    check(y, oracle.conv2d(x, w, bn=bn, activation="relu", padding=1))
    np.testing.assert_array_equal(y, fo.conv2d(x, w, bn=bn, activation="relu", padding=1, algorithm="direct"))


def test_conv_bn_relu_without_batch_norm(draw):
    x, w = draw(2, 6, 7, 5), draw(11, 6, 3, 3)
    np.testing.assert_array_equal(fo.conv_bn_relu(x, w), fo.conv2d(x, w, activation="relu"))


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("kernel", [1, 3, 5])
def test_an_image_has_the_same_bits_alone_and_in_a_batch(isa, draw, layout, kernel):
    x, w = inputs(draw, layout, 5, 7, (9, 10), 13, (kernel, kernel))
    options = dict(layout=layout, activation="tanh", padding=1)
    batch = fo.conv2d(x, w, **options)
    for i in range(5):
        np.testing.assert_array_equal(batch[i : i + 1], fo.conv2d(x[i : i + 1], w, **options))


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_automatic_choice_is_within_the_bound_of_winograd(isa, draw, layout):
    for ic, size, oc in [(3, (8, 8), 5), (16, (12, 13), 32), (64, (28, 28), 64)]:
        x, w = inputs(draw, layout, 1, ic, size, oc, (3, 3))
        options = dict(padding=1, activation="relu", layout=layout)
        check(fo.conv2d(x, w, **options), oracle.conv2d(x, w, **options), error=2e-5)


@pytest.mark.parametrize(
    "x, w, options",
    [
        ((0, 3, 5, 5), (4, 3, 3, 3), {}),
        ((2, 3, 5, 5), (0, 3, 3, 3), {}),
        ((2, 0, 5, 5), (4, 0, 3, 3), dict(bias=4)),
        ((2, 0, 5, 5), (4, 0, 1, 1), dict(residual=(2, 4, 5, 5))),
        ((1, 3, 0, 4), (4, 3, 1, 3), dict(padding=1)),
    ],
)
def test_zero_sizes(isa, draw, x, w, options):
    """Nothing to compute gives an empty result, for which no kernel runs; nothing to sum up gives the bias alone."""
    x, w = draw(*x), draw(*w)
    options = {k: draw(*np.atleast_1d(v)) if k in ("bias", "residual") else v for k, v in options.items()}
    y = fo.conv2d(x, w, **options, activation="sigmoid")
    check(y, oracle.conv2d(x, w, **options, activation="sigmoid"))
    assert y.size or fo.Conv2d(w, padding=options.get("padding", 0)).kernel(x.shape) == ("none, an empty result", 0)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_tall_image(threads, draw, layout):
    """An image of many more rows than fit the scratch of a task: its part alone has the same bits."""
    x, w = draw(1, 512, 1001, 9), draw(8, 512, 3, 3)
    if layout == "NHWC":
        x = np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    y = fo.conv2d(x, w, padding=1, algorithm="direct")
    np.testing.assert_array_equal(
        y[:, :, 1:9], fo.conv2d(x[:, :, :10], w, padding=((0, 0), (1, 1)), algorithm="direct")
    )
    np.testing.assert_array_equal(
        y[:, :, 989:], fo.conv2d(x[:, :, 988:], w, padding=((0, 1), (1, 1)), algorithm="direct")
    )


# input channels, image, output channels, kernel, stride: each window is copied, and becomes a pixel, where there is no
# padding.
APART = [
    (3, (32, 48), 64, 4, 4),
    (3, (65, 33), 32, 8, 8),
    (3, (50, 75), 70, 5, 5),
    (1, (29, 31), 64, 6, 7),
    (20, (30, 18), 64, (2, 3), (2, 3)),
    (33, (19, 40), 65, 2, 2),
    (18, (41, 17), 64, 3, 4),
    (40, (16, 21), 64, (1, 3), (2, 3)),
    (16, (9, 9), 64, 1, 3),
    (64, (14, 14), 64, 2, 2),
    (3, (64, 96), 64, 16, 16),
    (17, (8, 300), 64, 4, 4),
]


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("ic, size, oc, kernel, stride", APART)
def test_windows_that_do_not_overlap(isa, threads, draw, layout, ic, size, oc, kernel, stride):
    x, w = draw(*dims(layout, 3, ic, *size)), draw(oc, ic, *np.broadcast_to(kernel, 2))
    channels = 3 if layout == "NHWC" else 1
    other = np.moveaxis(np.moveaxis(x, channels, 4 - channels).copy(), 4 - channels, channels)  # the other memory order
    view = np.full((*x.shape[:3], x.shape[3] + 3), np.nan, np.float32)[..., 1:-2]
    view[...] = x
    for padding in 0, ((0, 1), (0, 2)), ((1, 0), (1, 1)):
        options = dict(bias=draw(oc), stride=stride, padding=padding, activation="relu", layout=layout)
        options["residual"] = draw(*fo.conv2d(x, w, **options).shape)
        y = fo.conv2d(x, w, **options)
        check(y, oracle.conv2d(x, w, **options), 5e-6)
        for same in other, view:
            np.testing.assert_array_equal(fo.conv2d(same, w, **options), y)
        last = {**options, "residual": options["residual"][2:]}
        np.testing.assert_array_equal(fo.conv2d(x[2:], w, **last), y[2:])


def test_many_windows_are_copied_some_rows_at_a_time(draw, threads):
    x, w = draw(2, 3, 800, 512), draw(64, 3, 16, 16)
    layer = fo.Conv2d(w, stride=16)
    y = layer(x)
    check(y, oracle.conv2d(x, w, stride=16), 5e-6)
    assert layer.kernel(x.shape)[1] < 8 << 20 < x.nbytes
    np.testing.assert_array_equal(layer(x[1:]), y[1:])


@pytest.mark.parametrize("stride", [3, 4, 5])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_long_strides_at_every_width(isa, draw, layout, stride):
    for width in (*range(6, 20), 31, 63, 64, 65, 66, 127, 130, 259):
        x, w = draw(*dims(layout, 1, 2, 9, width)), draw(5, 2, 6, 6)
        for padding in 2, ((0, 3), (4, 0)):
            check(
                fo.conv2d(x, w, stride=stride, padding=padding, layout=layout),
                oracle.conv2d(x, w, stride=stride, padding=padding, layout=layout),
            )


def in_both_orders(x, w, draw, options):
    """Checks a convolution with a residual, on x in both orders of memory; the options with it, and the result."""
    options = {**options, "residual": draw(*fo.conv2d(x, w, **options).shape)}
    y = fo.conv2d(x, w, **options)
    check(y, oracle.conv2d(x, w, **options), 5e-6)
    channels = 3 if options["layout"] == "NHWC" else 1
    other = np.moveaxis(np.moveaxis(x, channels, 4 - channels).copy(), 4 - channels, channels)
    np.testing.assert_array_equal(fo.conv2d(other, w, **options), y)
    return options, y


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize(
    "ic, size, oc, k, options",
    [
        (32, (17, 19), 48, 7, dict(padding=(0, 3))),
        (17, (12, 33), 33, 3, dict(padding=((1, 0), (0, 1)))),
        (64, (18, 40), 64, 5, dict(stride=(2, 1), padding=(0, 2))),
        (24, (14, 30), 96, 9, dict(stride=(1, 2), padding=(0, 4))),
        (16, (11, 25), 70, 3, dict(dilation=(1, 2), padding=(0, 2))),
        (40, (1, 300), 40, 3, {}),
        (130, (20, 21), 5, 4, {}),
        (3, (40, 3), 64, 3, dict(padding=(0, 1))),
    ],
)
def test_kernels_of_one_row(isa, half_rate, threads, draw, layout, ic, size, oc, k, options):
    """Which several output columns share products of, as rows of a turned image."""
    x, w = draw(*dims(layout, 2, ic, *size)), draw(oc, ic, 1, k)
    options, y = in_both_orders(x, w, draw, dict(bias=draw(oc), activation="relu", layout=layout, **options))
    np.testing.assert_array_equal(fo.conv2d(x[1:], w, **{**options, "residual": options["residual"][1:]}), y[1:])


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize(
    "ic, size, oc, k, options",
    [
        (32, (70, 1), 48, 5, dict(padding=(2, 0))),
        (17, (33, 1), 33, 3, dict(stride=(2, 1), padding=((1, 0), (0, 0)))),
        (24, (40, 2), 40, 5, dict(stride=(2, 1), padding=(2, 0), dilation=(2, 1))),
        (16, (30, 8), 20, 7, dict(padding=(3, 1), stride=(1, 2))),
        (64, (30, 9), 20, 3, {}),
        (12, (50, 1), 12, 3, dict(groups=12, padding=(1, 0))),
        (12, (50, 3), 24, 3, dict(groups=4, padding=(1, 0))),
        (130, (7, 1), 65, 3, {}),
    ],
)
def test_kernels_of_one_column(isa, threads, draw, layout, ic, size, oc, k, options):
    """On images of few columns, which are rows of few rows."""
    x, w = draw(*dims(layout, 2, ic, *size)), draw(oc, ic // options.get("groups", 1), k, 1)
    options, y = in_both_orders(x, w, draw, dict(bias=draw(oc), activation="relu", layout=layout, **options))
    rows = 1 if layout == "NHWC" else 2
    spaced = np.moveaxis(np.moveaxis(np.repeat(x, 2, rows), rows, 0)[1::2], 0, rows)  # rows that are no neighbors
    np.testing.assert_array_equal(fo.conv2d(spaced, w, **options), y)


def test_columns_are_rows(draw):
    """By the same steps as the row that they are, with no copy where their elements are neighbors."""
    w, x = draw(48, 32, 5, 1), draw(1, 300, 1, 32)
    column, row = fo.Conv2d(w, layout="NHWC"), fo.Conv2d(w.swapaxes(2, 3).copy(), layout="NHWC")
    assert column.kernel(x.shape) == row.kernel((1, 1, 300, 32))
    np.testing.assert_array_equal(column(x), row(x.swapaxes(1, 2)).swapaxes(1, 2))


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_scratch_of_kernels_of_one_row(draw, layout):
    layers = [fo.Conv2d(draw(128, 128, 1, 7), padding=(0, 3), layout=layout, algorithm=a) for a in ("auto", "direct")]
    (_, scratch), (name, _) = (layer.kernel(dims(layout, 1, 128, 17, 17)) for layer in layers)
    assert scratch < 4 << 20 and name.startswith("direct")


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize(
    "ic, size, oc, kernel, options",
    [
        (160, (1, 2000), 9, (1, 5), dict(padding=(0, 2))),
        (160, (1, 1501), 20, (1, 5), dict(stride=(1, 3), padding=((0, 0), (3, 0)))),
        (96, (1, 3999), 8, (1, 3), dict(dilation=(1, 700), padding=((0, 0), (900, 700)))),
        (100, (1, 2500), 6, (3, 3), dict(padding=1)),
        (120, (1, 2000), 40, (1, 7), dict(groups=2, stride=(1, 2), padding=(0, 3))),
    ],
)
def test_long_rows(isa, threads, draw, layout, ic, size, oc, kernel, options):
    """A row that is cut into tasks, each with a copy of the columns under its pixels."""
    x, w = inputs(draw, layout, 2, ic, size, oc, kernel, options.get("groups", 1))
    options = dict(bias=draw(oc), activation="relu", layout=layout, algorithm="direct", **options)
    y = fo.conv2d(x, w, **options)
    check(y, oracle.conv2d(x, w, **options))
    np.testing.assert_array_equal(fo.conv2d(x[1:], w, **options), y[1:])


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("k", [3, 5])
def test_large_results(isa, half_rate, draw, layout, k):
    """Two images together have more than 4 MB, whose lines are fetched before they are written, and one alone has
    not."""
    x, w, bias, residual = (
        draw(*dims(layout, 2, 3, 95, 96)),
        draw(64, 3, k, k),
        draw(64),
        draw(*dims(layout, 2, 64, 95, 96)),
    )
    for given in (dict(), dict(residual=residual)):
        y = fo.conv2d(x, w, bias=bias, **given, activation="relu", padding=k // 2, layout=layout)
        part = {name: a[1:] for name, a in given.items()}
        np.testing.assert_array_equal(
            y[1:], fo.conv2d(x[1:], w, bias=bias, **part, activation="relu", padding=k // 2, layout=layout)
        )
        check(y, oracle.conv2d(x, w, bias=bias, **given, activation="relu", padding=k // 2, layout=layout), 5e-6)


@pytest.mark.parametrize("activation", [None, "relu6", "tanh", "prelu"])
@pytest.mark.parametrize("ic, oc, size, options", FIRST)
def test_first_layer_of_a_network(isa, draw, threads, activation, ic, oc, size, options):
    """Images and results in either memory order, with the same bits."""
    x, w = draw(2, *size, ic), draw(oc, ic, 3, 3)
    residual = draw(*fo.Conv2d(w, stride=2, **options, layout="NHWC").output_shape(x.shape))
    options = options | dict(
        stride=2, bias=draw(oc), activation=("prelu", draw(oc)) if activation == "prelu" else activation, layout="NHWC"
    )
    layer = fo.Conv2d(w, **options)
    planes = np.ascontiguousarray(x.transpose(0, 3, 1, 2)).transpose(0, 2, 3, 1)
    for r in None, residual:
        y = layer(x, residual=r)
        check(y, oracle.conv2d(x, w, **options, residual=r), error=2e-6)
        out = np.empty((2, oc, *y.shape[1:3]), np.float32).transpose(0, 2, 3, 1)
        for image in x, planes, np.repeat(x, 2, axis=2)[:, :, ::2]:
            np.testing.assert_array_equal(layer(image, residual=r), y)
            np.testing.assert_array_equal(layer(image, residual=r, out=out), y)
