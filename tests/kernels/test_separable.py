"""Blocks as one kernel against their layers one after the other: every layout, stride and place where tiles are cut."""

import pickle
import tracemalloc

import numpy as np
import pytest

import fusedops as fo
from fusedops import _core, reference


def _parts(draw, module, ic, hidden, oc, k=3, layout="NCHW", **depthwise):
    """Expansion, depthwise and 1x1 projection; without expansion where hidden is None."""
    expand = (
        None
        if hidden is None
        else module.Conv2d(draw(hidden, ic, 1, 1), draw(hidden), activation="relu6", layout=layout)
    )
    c = hidden or ic
    options = dict(padding=k // 2, activation="hardswish", groups=c, layout=layout) | depthwise
    return [
        expand,
        module.Conv2d(draw(c, 1, k, k), draw(c), **options),
        module.Conv2d(draw(oc, c, 1, 1), draw(oc), activation=("leaky_relu", 0.1), layout=layout),
    ]


def _in_a_row(parts, x, residual):
    expand, depthwise, project = parts
    return project(depthwise(x if expand is None else expand(x)), residual)


def _one_pass(block, x, residual=None, out=None):
    """The block's kernel, also where the block would use its layers."""
    kernel, parts = _core.SeparablePlan(), block._arguments[0]
    kernel._join(*(None,) * (3 - len(parts)), *parts)
    return kernel(x, residual, out)


def _check(block, parts, x, residual=None):
    expected = _in_a_row(parts, x, residual)
    actual = _one_pass(block, x, residual)
    assert actual.shape == expected.shape
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4)
    return actual


# The first size is one tile; the second is cut into rows; the third into rows and columns; with AVX-512 the last also
# into slices of channels, the last few.
@pytest.mark.parametrize("hidden, h, w", [(12, 9, 11), (96, 40, 50), (128, 24, 230), (100, 23, 90)])
@pytest.mark.parametrize("stride, k", [(1, 3), (2, 3), (1, 5), (2, 5), (3, 2)])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_inverted_residual(draw, isa, half_rate, threads, hidden, h, w, stride, k, layout):
    parts = _parts(draw, fo, 7, hidden, 7, k, layout, stride=stride)
    x = draw(2, 7, h, w) if layout == "NCHW" else draw(2, h, w, 7)
    _check(fo.InvertedResidual(*parts), parts, x)


# Channels are whole vectors of every set, a panel of them and half of one; the last image is cut into columns.
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("expanded", [True, False])
@pytest.mark.parametrize(
    "c, h, w, padding, activation",
    [
        (24, 9, 16, 1, "relu6"),
        (48, 40, 50, 1, None),
        (32, 23, 41, ((2, 1), (1, 0)), ("clip", -1, 2)),
        (24, 31, 30, 0, "relu"),
        (16, 12, 17, ((0, 3), (0, 1)), "relu6"),
        (24, 9, 7, 1, "relu6"),
        (136, 19, 230, 1, "relu6"),
    ],
)
def test_depthwise_lines_have_the_bits_of_the_layers(
    draw, isa, half_rate, threads, stride, expanded, c, h, w, padding, activation
):
    parts = _parts(
        draw,
        fo,
        7 if expanded else c,
        c if expanded else None,
        7,
        layout="NHWC",
        stride=stride,
        padding=padding,
        activation=activation,
    )
    block = fo.InvertedResidual(*parts, residual=False)
    x = draw(2, h, w, 7 if expanded else c)
    np.testing.assert_array_equal(_one_pass(block, x), _in_a_row(parts, x, None))


@pytest.mark.parametrize("ic, hidden, oc", [(50, 48, 24), (50, 96, 33), (20, 64, 64), (20, 40, 7)])
def test_parts_of_different_sets(draw, isa, half_rate, threads, ic, hidden, oc):
    """At half rate AVX2 has the expansion alone, the projection alone, or both; panels and slices of channels follow
    the expansion's."""
    parts = _parts(draw, fo, ic, hidden, oc, layout="NHWC")
    x = draw(1, 9, 180, ic)
    _check(fo.InvertedResidual(*parts, residual=False), parts, x)


@pytest.mark.parametrize("padding", ["same", "valid", ((0, 3), (2, 0))])
@pytest.mark.parametrize("dilation", [1, 2])
def test_paddings(draw, isa, padding, dilation):
    parts = _parts(draw, fo, 64, None, 5, padding=padding, dilation=dilation)
    _check(fo.DepthwiseSeparable(*parts[1:]), parts, draw(1, 64, 50, 60))


def test_residual_and_out_of_either_memory_order(draw, isa):
    parts = _parts(draw, fo, 8, 24, 8)
    block = fo.InvertedResidual(*parts)
    x = draw(1, 8, 20, 21)
    expected = _in_a_row(parts, x, x)
    for image in x, np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2):
        _check(block, parts, image, image)
        for out in np.empty_like(x), np.empty((1, 20, 21, 8), np.float32).transpose(0, 3, 1, 2):
            assert _one_pass(block, image, image, out) is out
            np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-4)


def test_bits_do_not_depend_on_threads(draw):
    parts = _parts(draw, fo, 8, 96, 8)
    block, x = fo.InvertedResidual(*parts), draw(1, 8, 70, 90)
    before = fo.get_num_threads()
    try:
        fo.set_num_threads(1)
        one = _one_pass(block, x, x)
        fo.set_num_threads(3)
        assert np.array_equal(_one_pass(block, x, x), one)
    finally:
        fo.set_num_threads(before)


@pytest.mark.parametrize("h", [6, 110])
@pytest.mark.parametrize("residual", [True, False])
def test_layers_and_unfused(draw, h, residual):
    """What a user calls, above and below the size from which one kernel is used."""
    seed = draw.rng.bit_generator.state
    block = fo.InvertedResidual(*_parts(draw, fo, 8, 96, 8), residual=residual)
    draw.rng.bit_generator.state = seed
    unfused = reference.InvertedResidual(*_parts(draw, reference, 8, 96, 8), residual=residual)
    x = draw(1, 8, h, h)
    np.testing.assert_allclose(block(x), unfused(x), rtol=1e-4, atol=1e-4)
    assert block.fuses(x.shape) == (h == 110)
    assert np.array_equal(pickle.loads(pickle.dumps(block))(x), block(x))


@pytest.mark.parametrize("expanded", [True, False])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_small_images_have_the_bits_of_the_layers(draw, isa, half_rate, threads, layout, expanded):
    parts = _parts(draw, fo, 64 if expanded else 128, 128 if expanded else None, 64, layout=layout)
    block = fo.InvertedResidual(*parts, residual=False)
    c = 64 if expanded else 128
    for n, turned in (1, False), (3, False), (2, True):
        x = draw(n, c, 14, 14) if layout == "NCHW" else draw(n, 14, 14, c)
        if turned:
            x = np.ascontiguousarray(x.transpose(0, 3, 2, 1)).transpose(0, 3, 2, 1)
        assert not block.fuses(x.shape)
        expected = _in_a_row(parts, x, None)
        np.testing.assert_array_equal(block(x), expected)
        np.testing.assert_array_equal(block(x, out=np.empty_like(expected)), expected)


def test_the_images_between_layers_are_scratch(draw):
    parts = _parts(draw, fo, 16, 96, 16, layout="NHWC")
    block, x = fo.InvertedResidual(*parts), draw(1, 14, 14, 16)
    y = block(x)
    assert not block.fuses(x.shape)
    tracemalloc.start()
    block(x, out=y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 14 * 14 * 96 * 4


def test_separable_against_unfused(draw):
    seed = draw.rng.bit_generator.state
    block = fo.DepthwiseSeparable(*_parts(draw, fo, 64, None, 9)[1:])
    draw.rng.bit_generator.state = seed
    unfused = reference.DepthwiseSeparable(*_parts(draw, reference, 64, None, 9)[1:])
    x, r = draw(1, 64, 190, 190), draw(1, 9, 190, 190)
    assert block.fuses(x.shape)
    np.testing.assert_allclose(block(x, r), unfused(x, r), rtol=1e-4, atol=1e-4)
    assert block(draw(0, 64, 70, 70)).shape == (0, 9, 70, 70)


def test_bits_do_not_depend_on_the_batch(draw):
    """Nor does the choice: by itself a product may take another algorithm than in a block."""
    for channels, h, fused in ((16, 65, True), (144, 65, False), (16, 40, False)):
        block = fo.DepthwiseSeparable(*_parts(draw, fo, 128, None, channels, layout="NHWC")[1:])
        x = draw(3, h, h, 128)
        assert block.fuses(x.shape) == block.fuses(x[:1].shape) == fused
        np.testing.assert_array_equal(block(x)[:1], block(x[:1]))


def test_parts_that_do_not_fit(draw):
    expand, depthwise, project = _parts(draw, fo, 8, 24, 8)
    with pytest.raises(ValueError, match="pointwise must be a 1x1"):
        fo.DepthwiseSeparable(depthwise, depthwise)
    with pytest.raises(ValueError, match="pointwise must be a 1x1"):  # 33 taps times both strides are 1 modulo 2^64
        fo.DepthwiseSeparable(depthwise, fo.Conv2d(draw(8, 24, 33, 1), stride=(1119412321, 998724481)))
    with pytest.raises(ValueError, match="one filter for each channel"):
        fo.DepthwiseSeparable(project, project)
    with pytest.raises(ValueError, match="channels of the parts"):
        fo.InvertedResidual(project, depthwise, project)
    with pytest.raises(ValueError, match="one layout"):
        fo.DepthwiseSeparable(depthwise, fo.Conv2d(draw(8, 24, 1, 1), layout="NHWC"))
    with pytest.raises(ValueError, match="x has shape"):
        fo.InvertedResidual(expand, depthwise, project)(draw(1, 9, 60, 60))
    with pytest.raises(TypeError, match="depthwise must be a Conv2d, not None"):
        fo.DepthwiseSeparable(None, None)
    with pytest.raises(TypeError, match="project must be a Conv2d, not None"):
        fo.InvertedResidual(None, depthwise, None)
    with pytest.raises(TypeError, match="x must be a float32 array"):
        fo.DepthwiseSeparable(depthwise, project)(None)


def test_unfused_parts_that_do_not_fit(draw):
    """What the fused blocks refuse."""
    expand, depthwise, project = _parts(draw, reference, 8, 24, 8)
    with pytest.raises(ValueError, match="pointwise must be a 1x1"):
        reference.DepthwiseSeparable(depthwise, depthwise)
    with pytest.raises(ValueError, match="channels of the parts"):
        reference.InvertedResidual(project, depthwise, project)
    with pytest.raises(TypeError, match="depthwise must be a reference.Conv2d, not Conv2d"):
        reference.DepthwiseSeparable(fo.Conv2d(draw(24, 1, 3, 3), groups=24), project)
    with pytest.raises(TypeError, match="depthwise must be a reference.Conv2d, not None"):
        reference.InvertedResidual(expand, None, project)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("hidden", [None, 3])
def test_an_image_of_no_pixels_is_refused_as_by_the_parts(draw, layout, hidden):
    expand, depthwise, project = parts = _parts(draw, fo, 3, hidden, 4, layout=layout, padding="same")
    block = fo.DepthwiseSeparable(depthwise, project) if expand is None else fo.InvertedResidual(*parts)
    x = np.empty((2, 3, 0, 0) if layout == "NCHW" else (2, 0, 0, 3), np.float32)
    for run in (lambda: _in_a_row(parts, x, None), lambda: block(x), lambda: block.output_shape(x.shape)):
        with pytest.raises(ValueError, match="x padded is 0 x 0 pixels"):
            run()
