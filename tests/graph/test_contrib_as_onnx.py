"""Operators of com.microsoft that a few of ONNX's are, each against ONNX Runtime."""

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
import fusedops as fo
from onnx_single_node import agree as agreeing
from onnx_single_node import model

RNG = np.random.default_rng(0)


def floats(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def agree(op, inputs, constants=None, outputs=(np.float32,), **options):
    agreeing(op, inputs, constants, outputs, **{"domain": "com.microsoft", **options})


@pytest.mark.parametrize("metric", ["euclidean", "sqeuclidean"])
def test_distances_of_rows(metric):
    agree("CDist", {"a": floats(4, 7), "b": floats(5, 7)}, metric=metric)


@pytest.mark.parametrize("axis", [0, 2, -1])
def test_expand_dims(axis):
    agree("ExpandDims", {"x": floats(2, 3)}, {"axis": np.array(axis, np.int32)})


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("padding, corners", [("zeros", 0), ("border", 1), ("reflection", 0)])
def test_grid_sample(mode, padding, corners):
    grid = RNG.uniform(-1.2, 1.2, (2, 5, 6, 2)).astype(np.float32)
    agree("GridSample", {"x": floats(2, 3, 7, 8), "grid": grid}, mode=mode, padding_mode=padding, align_corners=corners)


def test_unique_in_the_order_of_first_places():
    agree("Unique", {"x": np.float32([3, 1, 3, 2, 1, 3])}, outputs=(np.float32, np.int64, np.int64))


@pytest.mark.parametrize("size", [(4, 5), (1, 3)])
def test_crop_and_resize(size):
    rois = np.float32([[0.1, 0.2, 0.8, 0.9], [0, 0, 1, 1], [-0.3, 0.4, 0.6, 1.3], [0.9, 0.8, 0.1, 0.2]])
    agree(
        "CropAndResize",
        {"x": floats(2, 3, 9, 11), "rois": rois, "which": np.int32([0, 1, 1, 0])},
        {"size": np.array(size, np.int32)},
        mode="bilinear",
        extrapolation_value=0.5,
    )


@pytest.mark.parametrize("kind", [0, 1])
@pytest.mark.parametrize("block", [16, 64])
def test_weights_of_bitsandbytes(kind, block):
    n, k = 24, 64
    packed = RNG.integers(0, 256, n * k // 2).astype(np.uint8)
    largest = RNG.uniform(0.1, 1, n * k // block).astype(np.float32)
    agree(
        "MatMulBnb4", {"x": floats(3, k)}, {"w": packed, "scale": largest}, N=n, K=k, block_size=block, quant_type=kind
    )


@pytest.mark.parametrize(
    "op, inputs, constants, attrs, words",
    [
        (
            "CropAndResize",
            {"x": floats(1, 1, 4, 4), "rois": floats(1, 4), "which": np.int32([0])},
            {"size": np.int32([2, 2])},
            dict(mode="nearest"),
            "has bilinear",
        ),
        ("ExpandDims", {"x": floats(2), "axis": np.array(0, np.int32)}, {}, {}, "axis that is not constant"),
        (
            "MatMulBnb4",
            {"x": floats(3, 64)},
            {"w": np.zeros(8, np.uint8), "s": np.zeros(1, np.float32)},
            dict(N=8, K=64, block_size=16, quant_type=1),
            "no 8 x 64 weights",
        ),
    ],
)
def test_what_is_refused(op, inputs, constants, attrs, words):
    with pytest.raises(ValueError, match=words):
        fo.load_onnx(model(op, inputs, constants, (np.float32,), domain="com.microsoft", attrs=attrs))
