"""Small and narrow images, whose patches are copied: products with rows and columns of zeros are left out."""

import numpy as np
import pytest

import fusedops as fo
import oracle
from catalog import dims
from conv_cases import NARROW, SMALL
from oracle import check

LAYOUTS = ["NCHW", "NHWC"]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("ic, oc, groups", [(17, 33, 1), (64, 130, 1), (48, 15, 3)])
@pytest.mark.parametrize("kernel, options, size", SMALL)
def test_small_images(isa, draw, layout, ic, oc, groups, kernel, options, size):
    x, w, bias = draw(*dims(layout, 3, ic, *size)), draw(oc, ic // groups, *kernel), draw(oc)
    options = options | dict(groups=groups, layout=layout)
    layer = fo.Conv2d(w, **options, algorithm="direct")
    residual = draw(*layer.output_shape(x.shape))
    assert layer.kernel(x.shape)[0] == "direct, patches as rows"
    check(layer(x), oracle.conv2d(x, w, **options))
    for activation in "relu", ("prelu", draw(oc)):
        epilogue = dict(bias=bias, activation=activation)
        check(
            fo.conv2d(x, w, **epilogue, residual=residual, **options, algorithm="direct"),
            oracle.conv2d(x, w, **epilogue, residual=residual, **options),
        )


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("ic, oc, groups", [(64, 40, 1), (9, 33, 1), (160, 96, 2)])
@pytest.mark.parametrize("kernel, options, size", NARROW)
def test_narrow_images(isa, threads, draw, layout, ic, oc, groups, kernel, options, size):
    x, w = draw(*dims(layout, 2, ic, *size)), draw(oc, ic // groups, *kernel)
    options = options | dict(bias=draw(oc), groups=groups, layout=layout)
    layer = fo.Conv2d(w, **options, algorithm="direct")
    residual = draw(*layer.output_shape(x.shape))
    assert layer.kernel(x.shape)[0] == "direct, patches as rows"
    check(layer(x, residual), oracle.conv2d(x, w, residual=residual, **options))


@pytest.mark.parametrize("ic, oc, groups", [(64, 130, 1), (48, 70, 2)])
@pytest.mark.parametrize("kernel, options, size", SMALL + NARROW)
def test_same_bits(isa, draw, ic, oc, groups, kernel, options, size):
    """Threads, batches, memory orders and gaps between pixels, of images and of results."""
    x, w, bias = draw(5 if size[0] * size[1] < 100 else 2, ic, *size), draw(oc, ic // groups, *kernel), draw(oc)
    layers = {
        layout: fo.Conv2d(w, bias, **options, groups=groups, layout=layout, algorithm="direct") for layout in LAYOUTS
    }
    y, before = layers["NCHW"](x), fo.get_num_threads()
    last = np.ascontiguousarray(x.transpose(0, 2, 3, 1))
    for threads in 1, 5:
        fo.set_num_threads(threads)
        np.testing.assert_array_equal(layers["NCHW"](x), y)
        np.testing.assert_array_equal(layers["NHWC"](last).transpose(0, 3, 1, 2), y)
        np.testing.assert_array_equal(layers["NCHW"](x[1:2]), y[1:2])
    fo.set_num_threads(before)
    for image in (
        np.repeat(x, 2, axis=3)[..., ::2],
        last.transpose(0, 3, 1, 2),
        np.asfortranarray(x),
        np.repeat(x, 2, axis=1)[:, ::2],
    ):
        np.testing.assert_array_equal(layers["NCHW"](image), y)
    wide = np.zeros((*y.shape[:3], y.shape[3] + 3), np.float32)
    layers["NCHW"](x, out=wide[..., : y.shape[3]])
    np.testing.assert_array_equal(wide[..., : y.shape[3]], y)
    assert not wide[..., y.shape[3] :].any()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("dilation", [(6, 3), (3, 6), (6, 6)])
def test_windows_of_zeros_alone(isa, draw, layout, batch, dilation):
    """No row or no column of the kernel meets the image, however far apart they are."""
    bias = draw(31)
    layer = fo.Conv2d(draw(31, 48, 2, 2), bias, padding=1, dilation=dilation, layout=layout)
    size = tuple(d - 1 for d in dilation)
    expected = np.broadcast_to(bias.reshape(dims(layout, 1, 31, 1, 1)), dims(layout, batch, 31, 1, 1))
    np.testing.assert_array_equal(layer(draw(*dims(layout, batch, 48, *size))), expected)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("pixels", range(1, 33))
def test_every_number_of_pixels(isa, draw, layout, pixels):
    for oc in 1, 31, 64, 130:
        x, w = draw(*dims(layout, 1, 20, 2, pixels)), draw(oc, 20, 3, 3)
        check(
            fo.conv2d(x, w, padding=1, layout=layout, algorithm="direct"), oracle.conv2d(x, w, padding=1, layout=layout)
        )


def test_weights_that_are_larger_than_the_cache(isa, threads, draw):
    x, w = draw(2, 512, 7, 7), draw(512, 512, 3, 3)
    check(fo.conv2d(x, w, padding=1, stride=2), oracle.conv2d(x, w, padding=1, stride=2))


def test_scratch_of_a_thread_is_bounded():
    before = fo.get_num_threads()
    fo.set_num_threads(1)
    for size in (1, 100000), (100000, 1), (7, 7):
        kernel, scratch = fo.Conv2d(np.zeros((64, 256, 3, 3), np.float32), padding=1, algorithm="direct").kernel(
            (4, 256, *size)
        )
        assert "patches" in kernel and 0 < scratch <= 2 << 20
    fo.set_num_threads(before)
