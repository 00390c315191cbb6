"""ONNX's own conformance cases, from the onnx package: single operators, small networks and those that PyTorch
exported, and real networks.

A case runs if LEFT_OUT does not name it.
"""

import fnmatch
import os
import warnings

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests

import fusedops as fo

_TYPES = "elements of a type that NumPy does not have"
_OPTIONAL, _STRINGS, _TRAINING, _RANDOM = "optional values", "strings", "training", "random numbers"
LEFT_OUT = {
    **dict.fromkeys(("test_cast*FLOAT8*", "test_cast*FLOAT4*", "test_cast*INT[24]*"), _TYPES),
    **dict.fromkeys(
        ("test_*quantizelinear_e[45]*", "test_*quantizelinear_*int[24]", "test_*quantizelinear_float4*"), _TYPES
    ),
    **dict.fromkeys(("test_optional*", "test_identity_opt", "test_if_opt", "test_loop16*"), _OPTIONAL),
    **dict.fromkeys(("test_equal_string*", "test_string*", "test_strnorm*", "test_regex*"), _STRINGS),
    **dict.fromkeys(
        ("test_adagrad*", "test_adam*", "test_momentum*", "test_nesterov*", "test_gradient*", "test_training_dropout*"),
        _TRAINING,
    ),
    "test_bernoulli*": _RANDOM,
    "test_ai_onnx_ml_label_encoder*": _STRINGS,
    "test_ai_onnx_ml_tree_ensemble_set_membership*": "branches by membership",
    "test_image_decoder*": "image decoding",
    **dict.fromkeys(
        ("test_resize_downsample_scales_linear_align_corners", "test_resize_downsample_scales_cubic_align_corners"),
        "the corners of size * scale, not those of the image as in PyTorch and ONNX Runtime",
    ),
}
LIGHT = os.path.join(os.path.dirname(onnx.__file__), "backend", "test", "data", "light")


def cases():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [
            c
            for kind in ("node", "simple", "pytorch-operator", "pytorch-converted")
            for c in load_model_tests(kind=kind)
        ]


def model_of(case):
    return case.model or onnx.load(os.path.join(case.model_dir, "model.onnx"))


def left_out(case):
    return next((why for pattern, why in LEFT_OUT.items() if fnmatch.fnmatch(case.name, pattern)), None)


def read(path):
    tensor = onnx.TensorProto()
    with open(path, "rb") as f:
        tensor.ParseFromString(f.read())
    return numpy_helper.to_array(tensor)


def data_of(case):
    """The (inputs, outputs) of a case."""
    if case.data_sets:
        return [
            [[numpy_helper.to_array(a) if isinstance(a, onnx.TensorProto) else a for a in arrays] for arrays in pair]
            for pair in case.data_sets
        ]
    found = []
    for folder in sorted(f.path for f in os.scandir(case.model_dir) if f.is_dir()):
        files = os.listdir(folder)
        found.append(
            [
                [read(os.path.join(folder, f"{kind}_{i}.pb")) for i in range(sum(f.startswith(kind) for f in files))]
                for kind in ("input", "output")
            ]
        )
    return found


CASES = cases()
RUN = [c for c in CASES if left_out(c) is None]


def compare(y, expected, case):
    """An array, or a list of them, with what ONNX says."""
    assert isinstance(y, list) == isinstance(expected, list)
    if isinstance(y, list):
        assert len(y) == len(expected)
        for a, b in zip(y, expected, strict=True):
            compare(a, b, case)
    else:
        halves = as_float32(expected) is not expected
        expected = as_float32(expected)
        assert y.dtype == expected.dtype and y.shape == expected.shape
        tolerance = 2**-7 if halves else 0
        np.testing.assert_allclose(y, expected, rtol=max(case.rtol, tolerance), atol=max(case.atol, 1e-6, tolerance))


def as_float32(x):
    """An input or result; networks of bfloat16, which NumPy lacks, take and give float32."""
    return x.astype(np.float32) if getattr(getattr(x, "dtype", None), "name", "") == "bfloat16" else x


@pytest.mark.parametrize("case", RUN, ids=[f"{c.kind}-{c.name}" for c in RUN])
def test_case(case):
    for fold, fuse in ((True, True), (False, False)):
        net = fo.load_onnx(model_of(case), fold=fold, fuse=fuse)
        for inputs, outputs in data_of(case):
            got = net(*map(as_float32, inputs))
            for y, expected in zip(got if isinstance(got, tuple) else (got,), outputs, strict=True):
                compare(y, expected, case)


def passes(case):
    try:
        test_case(case)
    except Exception:
        return False
    return True


@pytest.mark.parametrize("pattern", LEFT_OUT)
def test_what_is_left_out_fails(pattern):
    """A pattern goes as soon as all of its cases pass."""
    assert not all(map(passes, (c for c in CASES if fnmatch.fnmatch(c.name, pattern))))


def test_how_many_run():
    assert len(RUN) >= 1750, f"{len(RUN)} cases run, {len(CASES) - len(RUN)} are left out"
    assert all(any(fnmatch.fnmatch(c.name, p) for c in CASES) for p in LEFT_OUT)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("bvlc_alexnet", marks=pytest.mark.thorough),
        "densenet121",
        pytest.param("inception_v1", marks=pytest.mark.thorough),
        pytest.param("inception_v2", marks=pytest.mark.thorough),
        pytest.param("resnet50", marks=pytest.mark.thorough),
        "shufflenet",
        "squeezenet",
        pytest.param("vgg19", marks=pytest.mark.thorough),
        pytest.param("zfnet512", marks=pytest.mark.thorough),
    ],
)
def test_real_network(name):
    path = os.path.join(LIGHT, f"light_{name}.onnx")
    net = fo.load_onnx(path)
    x = [np.arange(n := int(np.prod(v.shape)), dtype=np.float32).reshape(v.shape) / np.float32(n) for v in net.inputs]
    np.testing.assert_allclose(net(*x), read(path[:-5] + "_output_0.pb"), rtol=1e-3, atol=1e-7)
    assert not any(step.kind == "numpy" for step in net._plan(*x)[0].steps)
