"""MediaPipe's operators between landmarks and crops of images, against their formulas pixel by pixel."""

import contextlib

import numpy as np
import pytest

pytest.importorskip("tflite")
from flatbuffers import flexbuffers

import fusedops as fo
from tflite_models import Tensor, single

F = np.float32
RNG = np.random.default_rng
OPTIONS = dict(
    subset_idxs=[0, 3, 4, 7, 9],
    left_rotation_idx=2,
    right_rotation_idx=5,
    target_rotation_radians=0.0,
    output_height=6,
    output_width=9,
    scale_x=1.5,
    scale_y=1.25,
)


def _loaded(kind, shapes, out, **options):
    custom = bytes(flexbuffers.Dumps(options)) if options else b""
    return fo.load_tflite(single(kind, [Tensor(s) for s in shapes], [Tensor(out)], None, custom))


def _matrix(points, angle, **o):
    left, right = points[o["left_rotation_idx"]], points[o["right_rotation_idx"]]
    r = angle - np.arctan2(right[1] - left[1], right[0] - left[0])
    turn = np.array([[np.cos(r), -np.sin(r)], [np.sin(r), np.cos(r)]])
    rotated = points[o["subset_idxs"]][:, :2] @ turn.T
    low, high = rotated.min(0), rotated.max(0)
    size = np.array([o["output_width"], o["output_height"]])
    linear = turn.T @ np.diag((high - low) * [o["scale_x"], o["scale_y"]] / size)
    found = np.eye(4)
    found[:2, :2], found[:2, 3] = linear, turn.T @ ((low + high) / 2) - linear @ (size / 2)
    return found


@pytest.mark.parametrize("angle", [0.0, 0.7, -2.5])
def test_matrix_around_landmarks(angle):
    options = OPTIONS | dict(target_rotation_radians=angle)
    model = _loaded("Landmarks2TransformMatrix", [(1, 10, 3)], (1, 4, 4), **options)
    for seed in range(4):
        x = RNG(seed).uniform(-20, 90, (1, 10, 3)).astype(F)
        np.testing.assert_allclose(model(x)[0], _matrix(x[0].astype(float), angle, **options), rtol=1e-4, atol=1e-4)
    x[0, 5] = x[0, 2]  # without a direction
    np.testing.assert_allclose(model(x)[0], _matrix(x[0].astype(float), angle, **options), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dimensions", [2, 3])
def test_landmarks_of_a_crop(dimensions):
    model = _loaded("TransformLandmarks", [(1, 7, dimensions), (1, 4, 4)], (1, 7, dimensions))
    x, m = RNG(0).standard_normal((1, 7, dimensions)).astype(F), RNG(1).standard_normal((1, 4, 4)).astype(F)
    want = x.copy()
    want[0, :, :2] = x[0, :, :2] @ m[0, :2, :2].T + m[0, :2, 3]
    np.testing.assert_allclose(model(x, m), want, rtol=1e-5, atol=1e-5)


def _pixel(x, u, v):
    """The pixel at column u and row v, between its neighbors; 0 outside."""
    h, w = x.shape[:2]
    if not (0 <= u <= w - 1 and 0 <= v <= h - 1):
        return np.zeros(x.shape[2])
    i, j = int(v), int(u)
    b, a = v - i, u - j
    i2, j2 = min(i + 1, h - 1), min(j + 1, w - 1)
    return (1 - b) * ((1 - a) * x[i, j] + a * x[i, j2]) + b * ((1 - a) * x[i2, j] + a * x[i2, j2])


@pytest.mark.parametrize("angle", [0.0, 0.4])
def test_pixels_of_a_crop(angle):
    model = _loaded(
        "TransformTensorBilinear", [(1, 12, 15, 3), (1, 4, 4)], (1, 6, 9, 3), output_height=6, output_width=9
    )
    x, m = RNG(0).standard_normal((1, 12, 15, 3)).astype(F), np.eye(4, dtype=F)[None]
    m[0, :2, :2] = 1.3 * np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    m[0, :2, 3] = 3.3, -1.1
    want = np.zeros((6, 9, 3))
    for row in range(6):
        for column in range(9):
            u, v = m[0, :2, :2].astype(float) @ [column + 0.5, row + 0.5] + m[0, :2, 3] - 0.5
            want[row, column] = _pixel(x[0].astype(float), u, v)
    assert (want == 0).all(2).any() and (want != 0).all(2).any()
    np.testing.assert_allclose(model(x, m)[0], want, rtol=1e-4, atol=1e-4)


def test_damaged_options():
    """No assertion of the package that reads tables of names gets out."""
    x, options = Tensor((1, 10, 3)), bytearray(flexbuffers.Dumps(OPTIONS))
    for at in range(len(options)):
        for value in (0, 255):
            damaged = bytes(options[:at]) + bytes([value]) + bytes(options[at + 1 :])
            model = single("Landmarks2TransformMatrix", [x], [Tensor((1, 4, 4))], None, damaged)
            with contextlib.suppress(ValueError):
                fo.load_tflite(model)


WRONG = {
    "a landmark that is not there": ("Landmarks2TransformMatrix", [(1, 5, 3)], OPTIONS),
    "no landmark": ("Landmarks2TransformMatrix", [(1, 10, 3)], OPTIONS | dict(subset_idxs=[])),
    "no size": ("Landmarks2TransformMatrix", [(1, 10, 3)], OPTIONS | dict(output_width=0)),
    "the first version": ("Landmarks2TransformMatrix", [(1, 10, 3)], dict(dimensions=3)),
    "landmarks of four numbers": ("TransformLandmarks", [(1, 7, 4), (1, 4, 4)], {}),
    "another matrix": ("TransformLandmarks", [(1, 7, 2), (1, 3, 4)], {}),
    "an image without rows": (
        "TransformTensorBilinear", [(1, 1, 5, 2), (1, 4, 4)], dict(output_height=2, output_width=2)
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_wrong_files(name):
    kind, shapes, options = WRONG[name]
    with pytest.raises(ValueError, match=f"'{kind}'"):
        _loaded(kind, shapes, (1, 4, 4), **options)
