"""ONNX's own conformance cases, from the onnx package: single operators, small networks and those that PyTorch exported, and real networks.

A case runs if fusedops has all of its operators and LEFT_OUT does not name it.
"""
import fnmatch
import os
import warnings

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
from onnx import numpy_helper  # noqa: E402
from onnx.backend.test.loader import load_model_tests  # noqa: E402

import fusedops as fo  # noqa: E402
from fusedops.graph.operators import READ  # noqa: E402

LEFT_OUT = {
    "test_*_bfloat16": "elements of a type that NumPy does not have",
    **dict.fromkeys(("test_cast*BFLOAT16*", "test_cast*FLOAT8*", "test_cast*FLOAT4*", "test_cast*INT[24]*"),
                    "casts between types of elements that NumPy does not have"),
    "test_equal_string*": "strings",
    "test_identity_sequence": "a sequence of tensors",
    "test_identity_opt": "an optional value",
    "test_maxpool_with_argmax_*": "the indices of a pool's maxima are not computed",
    "test_range_*": "Range as opset 27 has changed it",
    "test_resize_*antialias*": "antialiasing",
    "test_resize_*cubic*": "cubic interpolation",
    "test_resize_downsample_scales_linear_align_corners": "the corners of size * scale, not those of the image as in PyTorch and ONNX Runtime",
    "test_resize_tf_crop_and_resize*": "resizing of a part of the image",
    "test_training_dropout*": "random numbers: training mode",
}
LIGHT = os.path.join(os.path.dirname(onnx.__file__), "backend", "test", "data", "light")


def cases():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [c for kind in ("node", "simple", "pytorch-operator", "pytorch-converted") for c in load_model_tests(kind=kind)]


def model_of(case):
    return case.model or onnx.load(os.path.join(case.model_dir, "model.onnx"))


def covered(model):
    return all(n.domain in ("", "ai.onnx") and n.op_type in READ for n in model.graph.node) and not model.functions


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
        return [[[numpy_helper.to_array(a) if isinstance(a, onnx.TensorProto) else a for a in arrays] for arrays in pair] for pair in case.data_sets]
    found = []
    for folder in sorted(f.path for f in os.scandir(case.model_dir) if f.is_dir()):
        files = os.listdir(folder)
        found.append([[read(os.path.join(folder, f"{kind}_{i}.pb")) for i in range(sum(f.startswith(kind) for f in files))]
                      for kind in ("input", "output")])
    return found


CASES = [c for c in cases() if covered(model_of(c))]
RUN = [c for c in CASES if left_out(c) is None]


@pytest.mark.parametrize("case", RUN, ids=[f"{c.kind}-{c.name}" for c in RUN])
def test_case(case):
    for fold, fuse in ((True, True), (False, False)):
        net = fo.load_onnx(model_of(case), fold=fold, fuse=fuse)
        for inputs, outputs in data_of(case):
            got = net(*inputs)
            for y, expected in zip(got if isinstance(got, tuple) else (got,), outputs, strict=True):
                assert y.dtype == expected.dtype and y.shape == expected.shape
                np.testing.assert_allclose(y, expected, rtol=case.rtol, atol=max(case.atol, 1e-6))


def test_how_many_run():
    assert len(RUN) >= 700, f"{len(RUN)} cases run, {len(CASES) - len(RUN)} are left out"
    assert all(any(fnmatch.fnmatch(c.name, p) for c in CASES) for p in LEFT_OUT)


@pytest.mark.parametrize("name", ["bvlc_alexnet", "densenet121", "inception_v1", "inception_v2", "resnet50", "shufflenet", "squeezenet",
                                  "vgg19", "zfnet512"])
def test_real_network(name):
    path = os.path.join(LIGHT, f"light_{name}.onnx")
    net = fo.load_onnx(path)
    x = [np.arange(n := int(np.prod(v.shape)), dtype=np.float32).reshape(v.shape) / np.float32(n) for v in net.inputs]
    np.testing.assert_allclose(net(*x), read(path[:-5] + "_output_0.pb"), rtol=1e-3, atol=1e-7)
    assert not any(step.kind == "numpy" for step in net.plan(*x)[0].steps)
