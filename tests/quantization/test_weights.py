"""Weights in 4 and 8 bits without samples."""

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnx.parser import parse_model

import fusedops as fo
from fusedops import cli
from fusedops.graph.quantization.weights import rounded_weights

NET = """<ir_version: 8, opset_import: ["" : 17]>
    net (float[n, 96] x) => (float[n, 64] y) {
        a = MatMul(x, v)  b = Add(a, bias)  h = Relu(b)  c = MatMul(h, w)  t = Tanh(c)  y = MatMul(t, w)  }"""


def model(rng, **weights):
    proto = parse_model(NET)
    found = {
        "v": rng.standard_normal((96, 64)) / 8,
        "bias": rng.standard_normal(64),
        "w": rng.standard_normal((64, 64)) / 8,
    } | weights
    proto.graph.initializer.extend(numpy_helper.from_array(np.float32(a), name) for name, a in found.items())
    return fo.load_onnx(proto), [np.float32(a).astype(np.float64) for a in found.values()]


@pytest.mark.parametrize("weights, least, most", [("int4", 20, 0.2), ("int8", 44, 0.02)])
def test_products_keep_weights_in_blocks(isa, rng, tmp_path, weights, least, most):
    net, (v, bias, w) = model(rng)
    small, x = net.quantize(weights=weights), rng.standard_normal((7, 96)).astype(np.float32)
    exact = np.tanh(np.maximum(x @ v + bias, 0) @ w) @ w
    assert np.sqrt(np.square(small(x) - exact).mean()) < most * exact.std()
    quantized = small.explain().quantized
    assert [layer.bits for layer in quantized.layers] == [int(weights[3:])] * len(quantized.layers)
    assert all(layer.snr > least for layer in quantized.layers)
    assert f"in {weights}; weights by rounding to nearest" in str(quantized)
    assert f"layers in {weights}" in repr(quantized) and "gain" not in repr(quantized)
    small.save(tmp_path / "small.fo")
    again = fo.load(tmp_path / "small.fo")
    np.testing.assert_array_equal(again(x), small(x))
    assert again.explain().quantized == quantized
    with pytest.raises(ValueError, match="quantized already"):
        small.quantize(weights=weights)


def test_memory_and_shared_weights(rng):
    net, _ = model(rng, v=rng.standard_normal((96, 64)))
    small = net.quantize(weights="int4")
    kept = sum(a.nbytes for a in small._graph.constants.values())
    assert kept == (0.5 + 4 / 32) * (96 * 64 + 64 * 64) + 2 * 4 * 64 + 4 * 64


def test_layers_that_stay(rng):
    net, _ = model(rng)
    name = next(n.name for n in net._graph.nodes if n.op == "Linear")
    kept = net.quantize(weights="int8", keep=(name,)).explain().quantized.layers
    assert {layer.reason for layer in kept if layer.bits == 32} == {"kept, as was asked"}
    bad, _ = model(rng, w=np.full((64, 64), np.inf))
    reasons = {layer.reason for layer in bad.quantize(weights="int8").explain().quantized.layers}
    assert reasons == {"", "its weights are not finite"}
    narrow = parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> net (float[n, 96] x) => (float[n, 2] y) { y = MatMul(x, w) }'
    )
    narrow.graph.initializer.append(numpy_helper.from_array(np.ones((96, 2), np.float32), "w"))
    (layer,) = fo.load_onnx(narrow).quantize(weights="int8").explain().quantized.layers
    assert layer.reason == "its weights would not be smaller"


def test_arguments(rng):
    net, _ = model(rng)
    with pytest.raises(TypeError, match="takes samples, or weights"):
        net.quantize()
    with pytest.raises(TypeError, match="takes samples, or weights"):
        net.quantize([np.zeros((1, 96), np.float32)], weights="int4")
    with pytest.raises(ValueError, match="'int3', but must be one of 'int4', 'int8'"):
        net.quantize(weights="int3")
    for option in dict(calibration="minmax"), dict(calibration="mse"), dict(layer_snr=30), dict(snr=0), dict(snr=20):
        with pytest.raises(TypeError, match="about samples"):
            net.quantize(weights="int4", **option)
    done = []
    assert net.quantize(weights="int4", progress=done.append).explain().quantized
    assert done[0] == 0.0 and done[-1] == 1.0 and sorted(done) == done
    with pytest.raises(ValueError, match="keep names 'fc', which is not a product"):
        net.quantize(weights="int4", keep=("fc",))
    relu = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[n] x) => (float[n] y) { y = Relu(x) }'
    )
    with pytest.raises(ValueError, match="no product with constant weights"):
        fo.load_onnx(relu).quantize(weights="int4")


@pytest.mark.parametrize("bits", [4, 8])
def test_no_other_scale_is_much_better(rng, bits):
    """Next to the best of many scales; and better than that for which the largest weight is the last level."""
    w, half = rng.standard_normal((200, 32)).astype(np.float32), 2 ** (bits - 1)
    q, scales, snr = rounded_weights(w, bits)

    def errors(scale):
        return np.square(np.clip(np.rint(w / scale), -half, half - 1) * scale - w, dtype=np.float64).sum(1)

    largest = np.abs(w).max(1, keepdims=True)
    best = np.min(
        [errors(largest / half * part) for part in (*np.linspace(-1.5, -0.5, 200), *np.linspace(0.5, 1.5, 200))], 0
    )
    found = np.square((q - np.float64(half)) * scales - w).sum(1)
    assert found.sum() < 1.12 * best.sum()
    assert found.sum() < 0.95 * errors(largest / (half - 1)).sum()
    assert snr == pytest.approx(10 * np.log10(np.square(w, dtype=np.float64).sum() / found.sum()), rel=1e-4)


def test_extremes(rng):
    w = np.zeros((3, 40), np.float32)
    w[1, :3], w[2] = [1, -8, 7], 1e-30
    q, scales, snr = rounded_weights(w, 4)
    assert q.shape == (3, 64) and np.isfinite(scales).all()
    np.testing.assert_allclose(((q.reshape(3, 2, 32) - 8.0) * scales[..., None]).reshape(3, 64)[:, :40], w, rtol=1e-6)
    assert snr > 100


# ---- the command -----------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(rng, tmp_path):
    proto = parse_model(NET)
    shapes = {"v": (96, 64), "bias": (64,), "w": (64, 64)}
    arrays = {name: rng.standard_normal(shape).astype(np.float32) / 8 for name, shape in shapes.items()}
    proto.graph.initializer.extend(numpy_helper.from_array(a, name) for name, a in arrays.items())
    onnx.save(proto, tmp_path / "net.onnx")
    return tmp_path


@pytest.mark.parametrize("weights", ["int4", "int8"])
def test_the_command_writes_a_network(folder, rng, weights, capsys):
    assert cli.main(["quantize", f"{folder}/net.onnx", "--weights", weights, "-o", f"{folder}/net.fo"]) == 0
    assert f"3 of 3 layers in {weights}; weights by rounding to nearest" in capsys.readouterr().out
    x = rng.standard_normal((2, 96)).astype(np.float32)
    same = fo.load_onnx(folder / "net.onnx").quantize(weights=weights)
    np.testing.assert_array_equal(fo.load(folder / "net.fo")(x), same(x))


@pytest.mark.parametrize(
    "arguments, told",
    [
        ([], "quantize takes SAMPLES, or --weights int4 or int8 in their place"),
        (["x.npz", "--weights", "int4"], "quantize takes SAMPLES, or --weights"),
        (["--weights", "int8", "--no-time"], "--no-time and --threads are of SAMPLES"),
        (["--weights", "int8", "--threads", "2"], "--no-time and --threads are of SAMPLES"),
        (["--weights", "int8", "--snr", "30"], "weights= takes keep alone"),
        (["--weights", "int8", "--snr", "20"], "weights= takes keep alone"),
    ],
)
def test_the_command_tells_what_is_wrong(folder, arguments, told, capsys):
    assert cli.main(["quantize", f"{folder}/net.onnx", *arguments, "-o", f"{folder}/net.fo"]) == 1
    assert told in capsys.readouterr().err and not (folder / "net.fo").exists()


def test_layers_without_such_kernels_are_named(rng):
    """A network of convolutions says that they stay as they are: many in one line."""
    nodes = "h0 = Relu(x) " + " ".join(f"h{i + 1} = Conv<pads=[1, 1, 1, 1]>(h{i}, w)" for i in range(5))
    proto = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[n, 4, 8, 8] x) => (float[n, 32] y) '
        f"{{ {nodes} f = Flatten(h5)  y = MatMul(f, v) }}"
    )
    arrays = {"w": rng.standard_normal((4, 4, 3, 3)), "v": rng.standard_normal((256, 32))}
    proto.graph.initializer.extend(onnx.numpy_helper.from_array(a.astype(np.float32), n) for n, a in arrays.items())
    done = fo.load_onnx(proto).quantize(weights="int4").explain().quantized
    assert str(done).startswith("1 of 6 layers in int4")
    rows = [row for row in done.layers if row.reason == "only products have weights in blocks"]
    assert len(rows) == 5 and str(done).count("5 layers, ") == 1 and str(done).count("only products") == 1
    assert [layer.bits for layer in done.layers] == [4, 32, 32, 32, 32, 32]
