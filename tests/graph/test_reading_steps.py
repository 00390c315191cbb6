"""Steps that read images between their pixels, and what networks make of them: against float64."""

import numpy as np
import pytest
from onnx import helper, numpy_helper

import fusedops as fo
from fusedops import _core
from fusedops._core import Program
from fusedops.graph.inference.evaluate import evaluate
from fusedops.graph.ir.graph import Node
from fusedops.graph.operators.grid_sample import taps
from guard_pages import guarded
from onnx_single_node import model

BEYOND = ["zeros", "border", "reflection"]


def nhwc(x):
    return np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)


def load(op, inputs, constants=None, **options):
    """A network of one node that takes and gives float32."""
    return fo.load_onnx(model(op, inputs, constants or {}, (np.float32,), **options))


def steps(net, *inputs):
    return [step.kind for step in net._plan(*inputs)[0].steps]


def run(kind, *args, **options):
    p = Program()
    p.append(kind, *args, **options)
    p.run(())


def reflected(i, low, high):
    if high == low:
        return np.full_like(i, low)
    period = 2 * (high - low)
    d = np.mod(i - low, period)
    return low + np.minimum(d, period - d)


def read(x, rows, columns, mode, beyond, borders):
    """(n, c, oh, ow): x (n, c, h, w) at places (n, oh, ow), in float64."""
    lines = []
    for axis, places in enumerate((rows, columns)):
        places, size = places.astype(np.float64), x.shape[2 + axis]
        if beyond == "reflection" and mode != "cubic":
            places = reflected(places, *borders[axis])
        line = []
        for i, w in taps(places, mode):
            inside = (i >= 0) & (i < size) if beyond == "zeros" else 1
            if beyond == "reflection" and mode == "cubic":
                i = reflected(i, *borders[axis]).astype(int)
            line.append((np.clip(i, 0, size - 1), w * inside))
        lines.append(line)
    n = np.arange(len(x))[:, np.newaxis, np.newaxis]
    x = x.astype(np.float64)
    return sum(x[n, :, i, j] * (u * v)[..., np.newaxis] for i, u in lines[0] for j, v in lines[1]).transpose(0, 3, 1, 2)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("beyond", BEYOND)
@pytest.mark.parametrize("shape, out", [((2, 5, 4, 6), (3, 70)), ((1, 33, 9, 2), (1, 64)), ((3, 1, 1, 7), (2, 1))])
def test_grid_sample(mode, beyond, shape, out, isa, threads, draw):
    x, (rows, columns) = nhwc(draw(*shape)), 9 * draw(2, shape[0], 1, *out)
    y = nhwc(np.full((*shape[:2], *out), 7, np.float32))
    borders = [(-0.5, n - 0.5) for n in shape[2:]]
    run("grid_sample", x, rows, columns, y, mode, beyond, "pixels")
    expected = read(x, rows[:, 0], columns[:, 0], mode, beyond, borders)
    np.testing.assert_allclose(y, expected, rtol=0, atol=2e-4)
    for coordinates, low, high in ("corners", 0, -1), ("borders", -0.5, -0.5):
        borders = [(low, n + high) for n in shape[2:]]
        given = [
            (2 * (p - low) / max(b - low, 1) - 1).astype(np.float32) for p, (_, b) in zip((rows, columns), borders)
        ]
        places = [((g[:, 0].astype(np.float64) + 1) / 2 * (b - a) + a) for g, (a, b) in zip(given, borders)]
        run("grid_sample", x, *given, y, mode, beyond, coordinates)
        expected = read(x, *places, mode, beyond, borders)
        # float32 may take the other pixel where two are as near
        sure = np.logical_and(*((abs(np.mod(p, 1) - 0.5) > 1e-4) | (mode != "nearest") for p in places))
        assert sure.mean() > 0.9 and (abs(y - expected) * sure[:, np.newaxis]).max() < 2e-4


@pytest.mark.parametrize("beyond", BEYOND)
def test_places_that_are_no_numbers(beyond, isa, draw):
    """They are beyond the image; what is read is inside, and finite."""
    x, places = nhwc(draw(1, 3, 4, 5)), np.float32([np.nan, np.inf, -np.inf, 3e38]).reshape(1, 1, 1, 4)
    for mode in "nearest", "linear", "cubic":
        y = nhwc(np.full((1, 3, 1, 4), 7, np.float32))
        run("grid_sample", x, places, places, y, mode, beyond, "pixels")
        assert np.isfinite(y).all() and (beyond != "zeros" or not y.any())


def test_what_grid_sample_refuses(draw):
    x, places, y = nhwc(draw(1, 3, 4, 5)), draw(1, 1, 2, 2), nhwc(draw(1, 3, 2, 2))
    options = "linear", "zeros", "pixels"
    for rows, columns in [(draw(1, 1, 2, 3), draw(1, 1, 2, 3)), (places, nhwc(np.tile(places, 2))[..., ::2])]:
        with pytest.raises(ValueError, match="do not fit y|has shape"):
            run("grid_sample", x, rows, columns, y, *options)
    with pytest.raises(ValueError, match="differ in batch or channels"):
        run("grid_sample", x, places, places, nhwc(draw(1, 2, 2, 2)), *options)
    with pytest.raises(ValueError, match="the images have no pixels"):
        run("grid_sample", x[:, :, :0], places, places, y, *options)
    for which, known in enumerate(["nearest, linear, cubic", "zeros, border, reflection", "pixels, corners, borders"]):
        wrong = [*options[:which], "odd", *options[which + 1 :]]
        with pytest.raises(ValueError, match=f"unknown 'odd'; known are {known}"):
            run("grid_sample", x, places, places, y, *wrong)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_what_weighs_nothing_may_be_infinite(mode, dtype, isa):
    """A pixel at the border is not read for points outside, by the step as by NumPy."""
    x, grid = np.ones((1, 1, 3, 3), dtype), np.full((1, 1, 2, 2), -3, dtype)
    x[..., 0, 0], grid[0, 0, 1] = np.inf, 1
    attrs = {"mode": mode, "align_corners": 1}
    node = Node("GridSample", "g", [], ["y"], attrs)
    np.testing.assert_array_equal(evaluate(node, [x, grid])[0], [[[[0, 1]]]])
    if dtype is np.float32:
        net = load("GridSample", {"x": x, "g": grid}, attrs=attrs, opset=20)
        np.testing.assert_array_equal(net(x, grid), [[[[0, 1]]]])


def test_rows_of_many_points(isa, threads, draw):
    """Threads share one row: it has the bits of as many rows of a point."""
    x, positions, results = nhwc(draw(1, 17, 9, 8)), 9 * draw(2, 1, 1, 1, 30001), []
    for out in (1, 30001), (30001, 1):
        results.append(nhwc(np.zeros((1, 17, *out), np.float32)))
        run("grid_sample", x, *positions.reshape(2, 1, 1, *out), results[-1], "linear", "border", "pixels")
    np.testing.assert_array_equal(results[0].reshape(results[1].shape), results[1])


def test_a_network_reads_by_a_step(draw):
    x, grid = draw(2, 3, 6, 7), draw(2, 4, 5, 2)
    net = load("GridSample", {"x": x, "g": grid}, attrs={"mode": "linear"})
    assert steps(net, x, grid) == ["copy", "grid_sample", "copy"]
    node = Node("GridSample", "g", [], ["y"], {"mode": "linear"})
    np.testing.assert_allclose(net(x, grid), evaluate(node, [x, grid])[0], atol=1e-5)


def roi_means(x, boxes, images, bins, samples, scale, shift, centred):
    """RoiAlign by its definition, a point at a time."""
    y = np.zeros((len(boxes), x.shape[1], *bins))
    for r, (box, image) in enumerate(zip(boxes.astype(np.float64) * scale + shift, images, strict=True)):
        start, size = box[[1, 0]], box[[3, 2]] - box[[1, 0]]
        size = size if centred else np.maximum(size, 1)
        counts = [samples or max(int(np.ceil(s / b)), 0) for s, b in zip(size, bins, strict=True)]
        for i, j, k, m in np.ndindex(*bins, *counts):
            place = [
                a + s / b * (at + (p + 0.5) / n)
                for a, s, b, at, p, n in zip(start, size, bins, (i, j), (k, m), counts, strict=True)
            ]
            if all(-1 <= v <= n for v, n in zip(place, x.shape[2:], strict=True)):
                place = [np.clip(np.float64(v), 0, n - 1)[np.newaxis, np.newaxis] for v, n in zip(place, x.shape[2:])]
                rows, columns = (v.reshape(1, 1, 1) for v in place)
                y[r, :, i, j] += read(x[[image]], rows, columns, "linear", "border", None)[0, :, 0, 0] / np.prod(counts)
    return y


BOXES = [[0, 0, 5, 6], [2.5, 1, 3, 9], [-30, -3, 40, 2], [4, 4, 4, 4], [6, 5, 1, 2], [300, 0, 330, 3], [7, 0, 7.1, 9]]


@pytest.mark.parametrize("samples", [0, 1, 3])
@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize("channels", [1, 17, 40])
def test_roi_align(samples, centred, channels, isa, threads, draw):
    x, boxes, images = nhwc(draw(2, channels, 7, 8)), np.float32(BOXES), np.arange(len(BOXES)) % 2
    y = nhwc(np.full((len(boxes), channels, 3, 2), 7, np.float32))
    run("roi_align", x, boxes, images, y, samples, 0.5, -0.5 * centred, centred)
    expected = roi_means(x, boxes, images, (3, 2), samples, 0.5, -0.5 * centred, centred)
    np.testing.assert_allclose(y, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    "size, box, bins, samples",
    [((6, 4), [3.75, 0.25, 4.75, 7.25], (2, 3), 2), ((2, 6), [0.5, -1.5, 5.75, -3], (3, 3), 3)],
)
def test_points_at_the_limits(size, box, bins, samples, isa):
    """A pixel beyond the image: they are read at its border."""
    x, boxes, images = np.ones((1, 1, *size), np.float32), np.float32([box]), np.array([0])
    attrs = dict(output_height=bins[0], output_width=bins[1], sampling_ratio=samples)
    attrs["coordinate_transformation_mode"] = "output_half_pixel"
    net = load("RoiAlign", {"x": x, "r": boxes, "b": images}, attrs=attrs, opset=16)
    node = Node("RoiAlign", "r", [], ["y"], attrs)
    for expected in evaluate(node, [x, boxes, images])[0], roi_means(x, boxes, images, bins, samples, 1, 0, False):
        np.testing.assert_allclose(net(x, boxes, images), expected, rtol=0, atol=1e-6)


def test_boxes_of_images_without_pixels(draw):
    """Every point is beyond them."""
    x, boxes, images = (
        nhwc(draw(1, 3, 1, 5))[:, :, :0],
        np.float32([[0, 0, 4, 4], [-1, -1, 0, 0]]),
        np.zeros(2, np.int64),
    )
    y = nhwc(draw(2, 3, 2, 2))
    for samples in 0, 2:
        run("roi_align", x, boxes, images, y, samples, 1.0, 0.0, False)
        np.testing.assert_array_equal(y, 0)
    node = Node("RoiAlign", "r", [], ["y"], {"coordinate_transformation_mode": "half_pixel", "sampling_ratio": 2})
    np.testing.assert_array_equal(evaluate(node, [x, boxes, images])[0], np.zeros((2, 3, 1, 1)))


def test_a_box_far_away(draw):
    """Points outside are not visited one by one: there would be 10^29."""
    x, y = nhwc(draw(1, 3, 4, 5)), nhwc(np.full((1, 3, 2, 2), 7, np.float32))
    run("roi_align", x, np.float32([[1e30, 0, 2e30, 3]]), np.array([0]), y, 0, 1.0, 0.0, False)
    np.testing.assert_array_equal(y, 0)
    run("roi_align", x, np.float32([[-1e30, 0, 1e30, 3]]), np.array([0]), y, 0, 1.0, 0.0, False)
    assert np.abs(y).max() < 1e-20


def test_boxes_that_roi_align_refuses(draw):
    x, y = nhwc(draw(2, 3, 4, 5)), nhwc(draw(1, 3, 2, 2))
    for box, image in [([0, 0, np.inf, 1], 0), ([np.nan, 0, 1, 1], 0), ([0, 0, 1, 1], 2), ([0, 0, 1, 1], -1)]:
        with pytest.raises(ValueError, match="a box is not finite, or in no image"):
            run("roi_align", x, np.float32([box]), np.array([image]), y, 1, 1.0, 0.0, False)
    with pytest.raises(ValueError, match="do not fit x"):
        run("roi_align", x, np.zeros((1, 3), np.float32), np.array([0]), y, 1, 1.0, 0.0, False)


def test_a_network_aligns_by_a_step(draw):
    x, boxes, images = draw(2, 3, 8, 9), np.float32([[0, 0, 5, 6], [1, 2, 7, 8]]), np.array([1, 0])
    attrs = dict(output_height=3, output_width=2, sampling_ratio=2, coordinate_transformation_mode="half_pixel")
    net = load("RoiAlign", {"x": x, "r": boxes, "b": images}, attrs=attrs, opset=16)
    assert steps(net, x, boxes, images) == ["copy", "roi_align", "copy"]
    expected = roi_means(x, boxes, images, (3, 2), 2, 1, -0.5, True)
    np.testing.assert_allclose(net(x, boxes, images), expected, atol=1e-5)


@pytest.mark.parametrize("parts, masked, biased", [(1, False, False), (1, True, True), (2, True, False)])
def test_deformable_convolution_by_steps(parts, masked, biased, isa, draw):
    """The steps against the meaning of the node, which NumPy computes."""
    x, w = draw(2, 6, 7, 8), draw(5, 6, 3, 2)
    attrs = dict(kernel_shape=[3, 2], strides=[2, 1], dilations=[1, 2], pads=[1, 0, 1, 1], offset_group=parts)
    offset, mask = 2 * draw(2, parts * 12, 4, 7), draw(2, parts * 6, 4, 7)
    given = {"x": x, "w": w, "o": offset, "b": draw(5) if biased else None, "m": mask if masked else None}
    runs = {k: given[k] for k in ("x", "o", *"m" * masked)}
    proto = model("DeformConv", given, {}, (np.float32,), attrs=attrs, opset=19)
    del proto.graph.input[:]
    proto.graph.input.extend(helper.make_tensor_value_info(k, 1, a.shape) for k, a in runs.items())
    proto.graph.initializer.extend(numpy_helper.from_array(given[k], k) for k in ("w", *"b" * biased))
    net = fo.load_onnx(proto)
    assert set(steps(net, *runs.values())) <= {"binary", "grid_sample", "linear", "copy"}
    node = Node("DeformConv", "d", [], ["y"], attrs)
    np.testing.assert_allclose(net(*runs.values()), evaluate(node, list(given.values()))[0], atol=1e-4)


def test_hardmax_and_sequences_backwards_by_steps(draw):
    x = np.round(draw(5, 7, 3))
    for axis in 0, 1, 2:
        net = load("Hardmax", {"x": x}, attrs={"axis": axis})
        assert "numpy" not in steps(net, x)
        expected = np.arange(x.shape[axis]).reshape(-1, *[1] * (2 - axis)) == np.expand_dims(x.argmax(axis), axis)
        np.testing.assert_array_equal(net(x), expected)
    for lengths in [0, 5, 3, 1, 2, 4, 5], [5] * 7:
        lengths = np.array(lengths)
        net = load("ReverseSequence", {"x": x, "l": lengths})
        assert "numpy" not in steps(net, x, lengths)
        expected = x.copy()
        for b, n in enumerate(lengths):
            expected[:n, b] = x[:n, b][::-1]
        np.testing.assert_array_equal(net(x, lengths), expected)


@pytest.mark.parametrize("shape, axis", [((3, 0), 1), ((2, 0, 3), 1), ((0, 3), 1)])
@pytest.mark.parametrize("opset", [12, 13])
def test_hardmax_of_nothing(shape, axis, opset):
    x = np.zeros(shape, np.float32)
    net = load("Hardmax", {"x": x}, attrs={"axis": axis}, opset=opset)
    node = Node("Hardmax", "h", [], ["y"], {"axis": axis, "to_end": opset < 13})
    assert "numpy" not in steps(net, x)
    assert net(x).shape == evaluate(node, [x])[0].shape == shape


def test_hardmax_of_nan():
    """The first NaN is the largest, as ArgMax has it."""
    x = np.float32([[1, np.nan, 3, np.nan]])
    np.testing.assert_array_equal(load("Hardmax", {"x": x}, attrs={"axis": 1})(x), [[0, 1, 0, 0]])


@pytest.mark.parametrize("at_end", [False, True])
@pytest.mark.parametrize("channels, height, width", [(1, 3, 4), (17, 5, 5), (33, 1, 1), (70, 4, 5)])
def test_no_pixel_outside_is_touched(channels, height, width, at_end, isa, draw):
    """Every array begins or ends at a page that may not be read."""

    def image(*shape):
        return guarded(draw(*shape), at_end).transpose(0, 3, 1, 2)

    x, boxes = image(2, height, width, channels), np.abs(4 * draw(6, 2))
    for columns in 3, 65:
        places = [guarded(9 * draw(2, 1, 3, columns), at_end) for _ in range(2)]
        for mode in "nearest", "linear", "cubic":
            for beyond in BEYOND:
                run("grid_sample", x, *places, image(2, 3, columns, channels), mode, beyond, "borders")
    boxes, images = guarded(np.hstack([boxes, boxes + 3]), at_end), guarded(np.arange(6) % 2, at_end)
    for samples in 0, 2:
        run("roi_align", x, boxes, images, image(6, 3, 2, channels), samples, 1.0, -0.5, True)


def test_names_of_the_enums():
    assert list(_core.BEYOND) == BEYOND and list(_core.INTERPOLATIONS) == ["nearest", "linear", "cubic"]
