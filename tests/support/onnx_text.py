"""Networks in ONNX's text form, as fusedops and ONNX Runtime compute them."""

import pickle

import numpy as np
import pytest
from onnx.parser import parse_model

ort = pytest.importorskip("onnxruntime")

import fusedops as fo

RNG = np.random.default_rng(0)
X = RNG.standard_normal((3, 4), np.float32)
HEAD = '<ir_version: 8, opset_import: ["" : 17]>\n'
TRUE, FALSE = np.array(True), np.array(False)


def expected(proto, inputs):
    options = ort.SessionOptions()
    # its int8 products of processors without VNNI saturate sums of pairs in 16 bits
    options.add_session_config_entry("session.x64quantprecision", "1")
    options.log_severity_level = 4
    return ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"]).run(
        None, inputs
    )


def check(proto, *feeds, tmp_path=None):
    """The fused, the unfused and the saved network against ONNX Runtime; returns the fused one."""
    proto = parse_model(HEAD + proto) if isinstance(proto, str) else proto
    model = fo.load_onnx(proto)
    forms = [
        model,
        fo.load_onnx(proto, fuse=False),
        fo.load_onnx(proto, fold=False, fuse=False),
        pickle.loads(pickle.dumps(model)),
    ]
    if tmp_path is not None:
        model.save(tmp_path / "net.fo")
        forms.append(fo.load(tmp_path / "net.fo"))
    for inputs in feeds:
        truth = expected(proto, inputs)
        for form in forms:
            for _ in range(2):
                found = list(form.run(inputs).values())
                for a, b in zip(found, truth, strict=True):
                    same(a, b)
    return model


def same(a, b):
    if isinstance(b, list):
        assert isinstance(a, list) and len(a) == len(b)
        return [same(x, y) for x, y in zip(a, b, strict=True)]
    assert a.dtype == b.dtype and a.shape == b.shape
    np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5)
