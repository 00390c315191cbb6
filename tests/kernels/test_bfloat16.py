"""Products of bfloat16: rounded operands whose products are summed in float32, against float64."""

import copy
import pickle

import numpy as np
import pytest

import fusedops as fo
import oracle
from fusedops import reference
from guard_pages import guarded
from oracle import bf16, check

SHAPES = [(1, 1, 1), (1, 64, 64), (5, 33, 17), (6, 64, 2), (7, 65, 31), (13, 16, 32), (12, 128, 96), (40, 130, 515)]
SHAPES += [(17, 33, 320), (50, 70, 608), (300, 40, 608), (50, 300, 1216)]  # the last rows of tiles share rows; k is cut


@pytest.mark.parametrize("m, n, k", SHAPES)
@pytest.mark.parametrize("activation", [None, "relu", "gelu"])
def test_linear(bf16_products, threads, rng, m, n, k, activation):
    x, w = rng.standard_normal((m, k), np.float32), rng.standard_normal((n, k), np.float32)
    bias, residual = rng.standard_normal((2, m, n), np.float32)
    y = fo.Linear(w, bias[0], activation=activation, precision="bfloat16")(x, residual)
    check(y, oracle.linear(bf16(x), bf16(w), bias[0], residual=residual, activation=activation))


CONVOLUTIONS = [
    dict(x=(2, 16, 9, 8), w=(24, 16, 1, 1)),
    dict(x=(1, 6, 9, 8), w=(5, 6, 1, 1), stride=2),
    dict(x=(1, 3, 19, 21), w=(8, 3, 7, 7), stride=2, padding=3),
    dict(x=(1, 32, 12, 70), w=(33, 32, 3, 3), padding=1),
    dict(x=(1, 32, 6, 5), w=(64, 32, 3, 3), padding=1),
    dict(x=(1, 64, 6, 50), w=(40, 64, 3, 3), padding=1),
    dict(x=(1, 5, 8, 60), w=(7, 5, 3, 2), padding=1),
    dict(x=(1, 8, 15, 13), w=(12, 8, 3, 3), dilation=2),
    dict(x=(1, 16, 8, 70), w=(8, 4, 3, 3), padding=1, groups=4),
    dict(x=(1, 6, 8, 9), w=(6, 3, 3, 3), padding=1, groups=2),
    dict(x=(1, 12, 8, 9), w=(12, 1, 3, 3), padding=1, groups=12),
    dict(x=(2, 33, 9, 70), w=(33, 1, 3, 3), padding=1, stride=2, groups=33),
    dict(x=(1, 20, 7, 6), w=(40, 1, 5, 5), padding=2, groups=20),
    dict(x=(2, 17, 12, 11), w=(17, 1, 7, 7), padding=3, groups=17),
    dict(x=(1, 16, 15, 13), w=(16, 1, 3, 3), dilation=2, padding=2, groups=16),
    dict(x=(1, 1, 8, 9), w=(3, 1, 3, 3), padding=1),
    dict(x=(1, 2, 9, 40), w=(8, 2, 5, 5), padding=2),
    dict(x=(2, 4, 9, 11), w=(33, 4, 3, 3), padding=1, stride=2),
    dict(x=(1, 7, 8, 34), w=(20, 7, 3, 3), padding=1),
    dict(x=(1, 9, 6, 70), w=(16, 9, 3, 3), padding=1),
    dict(x=(1, 3, 31, 79), w=(18, 3, 11, 11), padding=5, stride=4),
]


@pytest.mark.parametrize("case", CONVOLUTIONS)
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_conv2d(bf16_products, threads, rng, case, layout):
    case = dict(case)
    x, w = (rng.standard_normal(case.pop(name), np.float32) for name in "xw")
    bias = rng.standard_normal(len(w)).astype(np.float32)
    layer = fo.Conv2d(w, bias, activation="relu", layout=layout, precision="bfloat16", **case)
    given = x if layout == "NCHW" else np.ascontiguousarray(x.transpose(0, 2, 3, 1))
    residual = rng.standard_normal(layer.output_shape(given.shape)).astype(np.float32)
    y = layer(given, residual)
    options = dict(bias=bias, residual=residual, activation="relu", layout=layout)
    check(y, oracle.conv2d(bf16(given), bf16(w), **options, **case))
    np.testing.assert_array_equal(layer._weights()[0], bf16(w))


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_what_is_outside_a_window_does_not_count(bf16_products, rng, layout, value):
    """Lines of three pixels of three channels are whole groups with an element of the next pixel."""
    x, w = rng.standard_normal((2, 3, 9, 40), np.float32), rng.standard_normal((24, 3, 3, 3), np.float32)
    layer = fo.Conv2d(w, padding=1, layout=layout, precision="bfloat16")

    def called(x):
        y = layer(x if layout == "NCHW" else np.ascontiguousarray(x.transpose(0, 2, 3, 1)))
        return y if layout == "NCHW" else y.transpose(0, 3, 1, 2)

    expected = called(x).copy()
    for column in 0, 17, 39:
        x[1, 0, 4, column] = value
        expected[1, :, 3:6, max(column - 1, 0) : column + 2] = np.nan
    y = called(x)
    y[~np.isfinite(y)] = np.nan
    np.testing.assert_array_equal(y, expected)


SPREADING = [
    dict(x=(2, 16, 9, 8), w=(16, 24, 2, 2), stride=2),
    dict(x=(1, 6, 9, 8), w=(6, 5, 2, 2), stride=2),
    dict(x=(2, 32, 7, 6), w=(32, 16, 4, 4), stride=2, padding=1),
    dict(x=(1, 8, 6, 30), w=(8, 17, 3, 3), stride=2, padding=1, output_padding=1),
    dict(x=(1, 8, 6, 9), w=(8, 3, 2, 6), stride=(1, 3), padding=(0, 1)),
    dict(x=(1, 12, 5, 4), w=(12, 4, 3, 2), stride=(3, 1), groups=2),
    dict(x=(1, 12, 5, 4), w=(12, 1, 3, 3), stride=2, groups=12),
    dict(x=(1, 7, 6, 5), w=(7, 9, 3, 3), padding=1, dilation=2),
    dict(x=(1, 5, 4, 4), w=(5, 6, 1, 1), stride=3),
    dict(x=(2, 6, 1, 1), w=(6, 8, 4, 4), stride=4),
]


@pytest.mark.parametrize("case", SPREADING)
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_conv_transpose2d(bf16_products, threads, rng, case, layout):
    case = dict(case)
    x, w = (rng.standard_normal(case.pop(name), np.float32) for name in "xw")
    bias = rng.standard_normal(w.shape[1] * case.get("groups", 1)).astype(np.float32)
    layer = fo.ConvTranspose2d(w, bias, activation="relu", layout=layout, precision="bfloat16", **case)
    given = x if layout == "NCHW" else np.ascontiguousarray(x.transpose(0, 2, 3, 1))
    residual = rng.standard_normal(layer.output_shape(given.shape)).astype(np.float32)
    options = dict(bias=bias, residual=residual, activation="relu", layout=layout)
    y = layer(given, residual)
    check(y, oracle.conv_transpose2d(bf16(given), bf16(w), **options, **case))
    for at_end in (False, True):
        np.testing.assert_array_equal(layer(guarded(given, at_end), guarded(residual, at_end), guarded(y, at_end)), y)


@pytest.mark.parametrize("rounded", [(0, 1), (1, 0), (1, 1)])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_blocks_have_the_bits_of_their_layers(bf16_products, rng, layout, rounded):
    """Of an image for which a block in float32 is one kernel."""
    depthwise, pointwise = (("float32", "bfloat16")[i] for i in rounded)
    w, v = rng.standard_normal((32, 1, 3, 3), np.float32), rng.standard_normal((16, 32, 1, 1), np.float32)
    shape = (1, 260, 300, 32) if layout == "NHWC" else (1, 32, 260, 300)
    x = rng.standard_normal(shape, np.float32)
    parts = (
        fo.Conv2d(w, padding=1, groups=32, activation="relu", layout=layout, precision=depthwise),
        fo.Conv2d(v, layout=layout, precision=pointwise),
    )
    block = fo.DepthwiseSeparable(*parts)
    assert not block.fuses(x.shape)
    np.testing.assert_array_equal(block(x), parts[1](parts[0](x)))
    twin = reference.DepthwiseSeparable(
        reference.Conv2d(w, padding=1, groups=32, activation="relu", layout=layout, precision=depthwise),
        reference.Conv2d(v, layout=layout, precision=pointwise),
    )
    np.testing.assert_allclose(twin(x), block(x), atol=0.05)


@pytest.mark.parametrize("y_order", ["planes", "pixels"])
@pytest.mark.parametrize("x_order", ["planes", "pixels", "planes with gaps", "every second pixel"])
def test_depthwise_images_of_any_order(bf16_products, threads, rng, x_order, y_order):
    """x is rounded into the order of y, and a layer in float32 has the same bits for rounded operands."""
    x, w = rng.standard_normal((2, 18, 9, 40), np.float32), rng.standard_normal((18, 1, 3, 3), np.float32)
    images = {
        "planes": x,
        "pixels": np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2),
        "planes with gaps": np.pad(x, ((0, 0), (0, 0), (0, 2), (0, 3)))[:, :, :9, :40],
        "every second pixel": np.repeat(x, 2, 3)[:, :, :, ::2],
    }
    y = np.empty((2, 18, 9, 40), np.float32)
    if y_order == "pixels":
        y = np.empty((2, 9, 40, 18), np.float32).transpose(0, 3, 1, 2)
    options = dict(padding=1, groups=18)
    fo.Conv2d(w, precision="bfloat16", **options)(images[x_order], out=y)
    np.testing.assert_array_equal(y, fo.Conv2d(bf16(w), **options)(bf16(x)))


@pytest.mark.parametrize("fold_bn", [False, True])
def test_conv_transpose2d_and_its_batch_norm(bf16_products, rng, fold_bn):
    x, w = rng.standard_normal((2, 8, 5, 6), np.float32), rng.standard_normal((8, 3, 2, 2), np.float32)
    bn = fo.BatchNorm(*rng.uniform(0.5, 1.5, (4, 6)).astype(np.float32))
    options = dict(stride=2, groups=2, activation="relu", precision="bfloat16")
    y = fo.ConvTranspose2d(w, bn=bn, **options)(x)
    twin = reference.ConvTranspose2d(w, bn=bn, fold_bn=fold_bn, **options)(x)
    np.testing.assert_allclose(twin, y, **(dict(rtol=1e-5, atol=1e-5) if fold_bn else dict(atol=0.05)))


@pytest.mark.parametrize("ld", [24, 40])
def test_pixels_with_gaps_between_rows(bf16_products, threads, rng, ld):
    """An image that is a part of a larger one, and a residual that is none: lines of their own."""
    x, w = rng.standard_normal((2, 6, 5, 16), np.float32), rng.standard_normal((24, 16, 1, 1), np.float32)
    layer = fo.Conv2d(w, layout="NHWC", precision="bfloat16")
    residual = rng.standard_normal((2, 6, 5, 24), np.float32)
    out = np.zeros((2, 6, 9, ld), np.float32)
    layer(x, residual, out=out[:, :, 2:7, :24])
    np.testing.assert_array_equal(out[:, :, 2:7, :24], layer(x, residual))
    around = out.copy()
    around[:, :, 2:7, :24] = 0
    assert not around.any()
    wide = np.zeros((2, 6, 9, ld), np.float32)
    wide[:, :, 2:7, :24] = residual
    np.testing.assert_array_equal(layer(x, wide[:, :, 2:7, :24]), layer(x, residual))


def test_batch_norm_is_folded_before_weights_are_rounded(bf16_products, rng):
    x, w = rng.standard_normal((1, 8, 5, 5), np.float32), rng.standard_normal((16, 8, 1, 1), np.float32)
    bn = fo.BatchNorm(*rng.uniform(0.5, 1.5, (4, 16)).astype(np.float32))
    folded, bias = fo.fold_batch_norm(w, None, bn)
    y = fo.Conv2d(w, bn=bn, precision="bfloat16")(x)
    np.testing.assert_array_equal(y, fo.Conv2d(folded, bias, precision="bfloat16")(x))


def test_rounding(bf16_products):
    """To nearest, ties to even; what is beyond the largest becomes infinite; NaN stays."""
    one = np.float32(1)
    step = np.float32(2**-7)
    x = np.float32(
        [[1 + step / 2, 1 + 3 * step / 2, 1 + step / 2 + 2**-20, -1 - step / 2, 3.4e38, np.inf, np.nan, 1e-3]]
    )
    w = np.eye(8, dtype=np.float32)
    for i in range(8):
        y = fo.Linear(w[i : i + 1, i : i + 1], precision="bfloat16")(x[:, i : i + 1])
        np.testing.assert_array_equal(y, bf16(x[:, i : i + 1]))
    assert bf16(x)[0, 0] == one and bf16(x)[0, 1] == 1 + 2 * step and bf16(x)[0, 2] == 1 + step


@pytest.mark.parametrize("size", [1, 5, 16, 37])
def test_rounding_of_images(bf16_products, size):
    """The same in whole vectors and tails: a kernel of one tap leaves an image as it was rounded."""
    special = np.float32([1 + 2**-8, 1 + 3 * 2**-8, -1 - 2**-8, 3.4e38, -np.inf, np.nan, 1e-3])
    x = np.resize(special, (1, 8, 3, size))
    y = fo.Conv2d(np.ones((8, 1, 1, 1), np.float32), groups=8, precision="bfloat16")(x)
    np.testing.assert_array_equal(y, bf16(x))


def test_denormals_are_zeros(bf16_products):
    x = np.full((3, 8), 1e-40, np.float32)
    assert not fo.Linear(np.full((5, 8), 1e30, np.float32), precision="bfloat16")(x).any()


@pytest.mark.parametrize("k", [64, 100, 515])
def test_a_row_has_the_same_bits_in_every_batch(bf16_products, rng, k):
    x, w = rng.standard_normal((70, k), np.float32), rng.standard_normal((100, k), np.float32)
    layer = fo.Linear(w, precision="bfloat16")
    whole = layer(x)
    for rows in (slice(0, 1), slice(3, 9), slice(5, 38)):
        np.testing.assert_array_equal(layer(x[rows]), whole[rows])


def test_columns_have_the_same_bits_in_every_image(bf16_products, rng):
    x, w = rng.standard_normal((3, 16, 9, 70), np.float32), rng.standard_normal((24, 16, 3, 3), np.float32)
    layer = fo.Conv2d(w, padding=1, precision="bfloat16")
    np.testing.assert_array_equal(layer(x)[1:2], layer(x[1:2]))


@pytest.mark.parametrize("at_end", [False, True])
@pytest.mark.parametrize("m, n, k", [(3, 17, 5), (13, 66, 33)])
def test_linear_stays_within_arrays(bf16_products, rng, at_end, m, n, k):
    x, residual = rng.standard_normal((m, k), np.float32), rng.standard_normal((m, n), np.float32)
    layer = fo.Linear(rng.standard_normal((n, k), np.float32), precision="bfloat16")
    y = layer(guarded(x, at_end), guarded(residual, at_end), guarded(residual, at_end))
    np.testing.assert_array_equal(y, layer(x, residual))


@pytest.mark.parametrize("at_end", [False, True])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("case", [CONVOLUTIONS[i] for i in (0, 2, 3, 5, 6, 10, 11)])
def test_conv2d_stays_within_arrays(bf16_products, rng, at_end, layout, case):
    case = dict(case)
    x, w = (rng.standard_normal(case.pop(name), np.float32) for name in "xw")
    x = x if layout == "NCHW" else np.ascontiguousarray(x.transpose(0, 2, 3, 1))
    layer = fo.Conv2d(w, precision="bfloat16", layout=layout, **case)
    y = layer(x)
    np.testing.assert_array_equal(layer(guarded(x, at_end), out=guarded(y, at_end)), y)


def test_strided_arrays(bf16_products, rng):
    x, w = rng.standard_normal((6, 40), np.float32)[::-2, ::2], rng.standard_normal((9, 20), np.float32)
    layer = fo.Linear(w.T.copy().T, precision="bfloat16")
    out = np.zeros((3, 18), np.float32)[:, ::2]
    np.testing.assert_array_equal(layer(x, out=out), fo.Linear(w, precision="bfloat16")(x.copy()))


def test_conv1d_and_its_stream(bf16_products, rng):
    x, w = rng.standard_normal((1, 6, 50), np.float32), rng.standard_normal((8, 6, 3), np.float32)
    layer = fo.Conv1d(w, padding=1, precision="bfloat16")
    images = fo.Conv2d(w[:, :, None], padding=((0, 0), (1, 1)), precision="bfloat16")
    whole = layer(x)
    np.testing.assert_array_equal(whole, images(x[:, :, None])[:, :, 0])
    stream = layer.stream()
    parts = [stream.step(x[:, :, i : i + 10]) for i in range(0, 50, 10)] + [stream.flush()]
    np.testing.assert_array_equal(np.concatenate(parts, 2), whole)


@pytest.mark.parametrize(
    "kind, w, x",
    [
        ("Linear", (9, 20), (3, 20)),
        ("Conv2d", (8, 4, 3, 3), (1, 4, 6, 6)),
        ("Conv1d", (8, 4, 3), (1, 4, 9)),
        ("ConvTranspose2d", (8, 8, 3, 3), (1, 8, 6, 6)),
        ("ConvTranspose1d", (8, 8, 3), (1, 8, 9)),
    ],
)
def test_layers(rng, kind, w, x):
    """Copies, pickles, what is printed, and the unfused twin."""
    x, w = rng.standard_normal(x, np.float32), rng.standard_normal(w, np.float32)
    bias = rng.standard_normal(len(w)).astype(np.float32)
    layer = getattr(fo, kind)(w, bias, activation="relu", precision="bfloat16")
    y = layer(x)
    assert "precision='bfloat16'" in repr(layer) and "precision" not in repr(getattr(fo, kind)(w))
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        np.testing.assert_array_equal(other(x), y)
    unfused = getattr(reference, kind)(w, bias, activation="relu", precision="bfloat16")(x)
    np.testing.assert_allclose(unfused, y, rtol=1e-5, atol=1e-5)
    assert np.abs(getattr(fo, kind)(w, bias, activation="relu")(x) - y).max() > 1e-4


def test_show_config_says_what_multiplies(bf16_products):
    dots = "BFMMLA" if fo.isa() == "neon" else "AVX512_BF16"
    expected = {"amx": "AMX", "dots": dots, "float32": "float32"}[bf16_products]
    assert fo.show_config()["bfloat16_products"] == expected
    assert f"bfloat16_products  {expected}" in str(fo.show_config())


def test_errors(rng):
    w = rng.standard_normal((4, 4), np.float32)
    with pytest.raises(ValueError, match="unknown precision 'float16'; known are 'float32', 'bfloat16'"):
        fo.Linear(w, precision="float16")
    with pytest.raises(ValueError, match=r"unknown precision 'int8'.*write model\.quantize\(samples\) of a network"):
        fo.Linear(w, precision="int8")
    with pytest.raises(ValueError, match="algorithm='winograd' is one of float32"):
        fo.Conv2d(rng.standard_normal((4, 4, 3, 3), np.float32), algorithm="winograd", precision="bfloat16")
    with pytest.raises(ValueError, match="last axis of x must have length 4"):
        fo.Linear(w, precision="bfloat16")(np.zeros((2, 5), np.float32))


@pytest.mark.parametrize("shape", [(0, 4), (3, 0)])
def test_nothing_to_compute(bf16_products, shape):
    w = np.ones((5, shape[1]), np.float32)
    y = fo.Linear(w, np.arange(5, dtype=np.float32), precision="bfloat16")(np.ones(shape, np.float32))
    np.testing.assert_array_equal(y, np.broadcast_to(np.arange(5) + shape[1], (shape[0], 5)))
