"""LSTMs of int8 weights that quantize x and h as they come, in the kernels: against NumPy and ONNX Runtime."""

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")
from onnx import TensorProto, helper, numpy_helper

import fusedops as fo

F = np.float32
KINDS = {np.dtype(F): TensorProto.FLOAT, np.dtype(np.int8): TensorProto.INT8, np.dtype(np.uint8): TensorProto.UINT8}
KINDS[np.dtype(np.int32)] = TensorProto.INT32
NAMES = ["x", "w", "r", "b", "len", "h", "c", "p", "ws", "wz", "rs", "rz"]


def arrays(rng, steps, batch, inputs, hidden, directions, dtype=np.int8, each=True, only=()):
    """The inputs of a node; of the optional ones those in `only`."""
    info, rows = np.iinfo(dtype), 4 * hidden
    shape, states = (directions, rows) if each else (directions,), (directions, batch, hidden)
    zero = 0 if each else 3 if dtype == np.int8 else 117

    def weights(k):
        return rng.integers(info.min, info.max, (directions, k, rows), dtype, endpoint=True)

    scales = [rng.uniform(0.5, 1, shape).astype(F) * F(1.5 / info.max / k**0.5) for k in (inputs, hidden)]
    given = {
        "x": rng.standard_normal((steps, batch, inputs)).astype(F),
        "w": weights(inputs),
        "r": weights(hidden),
        "b": rng.standard_normal((directions, 2 * rows)).astype(F),
        "len": rng.integers(1, steps, batch, endpoint=True).astype(np.int32),
        "h": np.tanh(rng.standard_normal(states)).astype(F),
        "c": rng.standard_normal(states).astype(F),
        "p": rng.standard_normal((directions, 3 * hidden)).astype(F) / 4,
        "ws": scales[0],
        "wz": np.full(shape, zero, dtype),
        "rs": scales[1],
        "rz": np.full(shape, zero, dtype),
    }
    return {k: v for k, v in given.items() if k in only or k not in ("b", "len", "h", "c", "p")}


def node(given, constants, **attrs):
    """A network of one node; the other arrays are its inputs."""
    directions = len(given["w"])
    attrs = {"direction": "bidirectional" if directions == 2 else "forward"} | attrs
    names = [name if name in given else "" for name in NAMES]
    hidden = given["r"].shape[1]
    made = helper.make_node(
        "DynamicQuantizeLSTM", names, ["y", "yh", "yc"], domain="com.microsoft", hidden_size=hidden, **attrs
    )
    inputs = [helper.make_tensor_value_info(k, KINDS[v.dtype], v.shape) for k, v in given.items() if k not in constants]
    outputs = [helper.make_tensor_value_info(k, TensorProto.FLOAT, None) for k in ("y", "yh", "yc")]
    held = [numpy_helper.from_array(given[k], k) for k in constants if k in given]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(
        helper.make_graph([made], "net", inputs, outputs, held), opset_imports=opsets, ir_version=8
    )


CONSTANT = [name for name in NAMES if name not in ("x", "len", "h", "c")]


def both(given, **attrs):
    """The results of the kernels and those of NumPy, which runs networks whose weights are inputs."""
    fused = fo.load_onnx(node(given, CONSTANT, **attrs))
    plain = fo.load_onnx(node(given, [], **attrs))
    own = [v for k, v in given.items() if k not in CONSTANT]
    assert "recurrent" in [s.kind for s in fused._plan(*own)[0].steps]
    assert "recurrent" not in [s.kind for s in plain._plan(*given.values())[0].steps]
    return fused(*own), plain(*given.values())


@pytest.mark.parametrize("hidden", [1, 7, 16, 33])
@pytest.mark.parametrize("directions", [1, 2])
def test_like_numpy(isa, threads, rng, directions, hidden):
    for dtype, each in (np.int8, True), (np.uint8, False):
        for batch, only in (1, ("b",)), (3, ("b", "h", "c")), (2, ("b", "p")), (3, ("b", "len", "h", "c")):
            given = arrays(rng, 5, batch, 9, hidden, directions, dtype, each, only)
            for y, want in zip(*both(given), strict=True):
                np.testing.assert_allclose(y, want, rtol=0, atol=1e-2)
                assert np.median(np.abs(y - want)) < 1e-5


@pytest.mark.parametrize(
    "attrs", [dict(direction="reverse"), dict(clip=0.3), dict(activations=["HardSigmoid", "Relu", "Tanh"])], ids=str
)
def test_options(rng, attrs):
    given = arrays(rng, 4, 2, 5, 12, 1, only=("b", "len"))
    if "activations" in attrs:  # with parameters that kernels do not have: NumPy alone
        model = fo.load_onnx(node(given, CONSTANT, **attrs))
        assert "recurrent" not in [s.kind for s in model._plan(given["x"], given["len"])[0].steps]
        return
    for y, want in zip(*both(given, **attrs), strict=True):
        np.testing.assert_allclose(y, want, rtol=0, atol=1e-2)


def test_like_onnx_runtime(isa, rng, tmp_path):
    given = arrays(rng, 12, 1, 24, 40, 2, np.uint8, True, ("b", "h", "c"))
    proto = node(given, CONSTANT)
    own = {k: v for k, v in given.items() if k not in CONSTANT}
    want = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, own)
    model = fo.load_onnx(proto)
    results = model(*own.values())
    for y, w in zip(results, want, strict=True):
        np.testing.assert_allclose(y, w, rtol=0, atol=1e-2)
    model.save(tmp_path / "net.fo")
    for y, w in zip(fo.load(tmp_path / "net.fo")(*own.values()), results, strict=True):
        np.testing.assert_array_equal(y, w)


def test_same_bits_for_any_threads(rng):
    given, results = arrays(rng, 20, 2, 64, 130, 2, only=("b",)), []
    model = fo.load_onnx(node(given, CONSTANT))
    for n in (1, 2, 3):
        before = fo.get_num_threads()
        fo.set_num_threads(n)
        try:
            results.append(model(given["x"]))
        finally:
            fo.set_num_threads(before)
    for other in results[1:]:
        for y, want in zip(other, results[0], strict=True):
            np.testing.assert_array_equal(y, want)


def test_no_steps_and_no_rows(rng):
    for steps, batch in (0, 2), (3, 0):
        given = arrays(rng, max(steps, 1), max(batch, 1), 5, 4, 1, only=("b",))
        given["x"] = given["x"][:steps, :batch] if batch else np.zeros((steps, 0, 5), F)
        y, h, c = fo.load_onnx(node(given, CONSTANT))(np.zeros((steps, batch, 5), F))
        assert y.shape == (steps, 1, batch, 4) and h.shape == c.shape == (1, batch, 4)
        assert not h.any() and not c.any()
