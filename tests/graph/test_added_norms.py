"""An addition in front of a layer norm is part of its step, spelled out or as ONNX Runtime's operator for both."""

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper

import fusedops as fo
import oracle

WIDTH = 37


def model(nodes, inputs, outputs, constants, contrib=False):
    """Inputs and outputs by name with their shapes; before the addition is a sine, which takes no addition itself."""
    described = [
        [helper.make_tensor_value_info(k, TensorProto.FLOAT, s) for k, s in names.items()]
        for names in (inputs, outputs)
    ]
    weights = [numpy_helper.from_array(a, k) for k, a in constants.items()]
    domains = [helper.make_opsetid("", 17), *([helper.make_opsetid("com.microsoft", 1)] if contrib else [])]
    return helper.make_model(helper.make_graph(nodes, "g", *described, weights), opset_imports=domains, ir_version=8)


@pytest.fixture
def constants(draw):
    return {"weight": draw(WIDTH), "bias": draw(WIDTH)}


SPELLED = [
    helper.make_node("Sin", ["x"], ["s"], name="sin"),
    helper.make_node("Add", ["s", "r"], ["t"], name="add"),
    helper.make_node("LayerNormalization", ["t", "weight", "bias"], ["y"], name="norm", axis=-1),
]


def norms(net):
    """What the norm absorbed."""
    return [names for fusion in net.explain().fusions for names in [fusion.nodes] if fusion.into == "norm"]


@pytest.mark.parametrize("with_bias", [False, True])
def test_addition_and_norm_are_one_step(isa, threads, draw, constants, with_bias):
    if not with_bias:
        del constants["bias"]
    norm = helper.make_node("LayerNormalization", ["t", *constants], ["y"], name="norm", axis=-1)
    shape = ["n", 5, WIDTH]
    net = fo.load_onnx(model([*SPELLED[:2], norm], {"x": shape, "r": shape}, {"y": shape}, constants))
    assert norms(net) == [("add",)]
    for n in 1, 3:
        x, r = draw(n, 5, WIDTH), draw(n, 5, WIDTH)
        expected = oracle.layer_norm(np.sin(x.astype(np.float64)), *constants.values(), residual=r).value
        np.testing.assert_allclose(net(x, r), expected, rtol=1e-5, atol=1e-5)
        unfused = fo.load_onnx(
            model([*SPELLED[:2], norm], {"x": shape, "r": shape}, {"y": shape}, constants), fuse=False
        )
        np.testing.assert_allclose(unfused(x, r), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "why, inputs, outputs",
    [
        ("output", {"x": ["n", 5, WIDTH], "r": ["n", 5, WIDTH]}, {"y": ["n", 5, WIDTH], "t": ["n", 5, WIDTH]}),
        ("shape", {"x": ["n", 5, WIDTH], "r": [5, WIDTH]}, {"y": ["n", 5, WIDTH]}),
        ("broadcast", {"x": ["n", 5, WIDTH], "r": [1, 5, WIDTH]}, {"y": ["n", 5, WIDTH]}),
    ],
)
def test_what_stays_two_steps_and_why(draw, constants, why, inputs, outputs):
    net = fo.load_onnx(model(SPELLED, inputs, outputs, constants))
    assert not norms(net)
    assert any(why in refusal.reason for refusal in net.explain().refusals if refusal.node == "norm")
    x, r = (draw(*(3 if d == "n" else d for d in shape)) for shape in inputs.values())
    y = net(x, r)
    expected = oracle.layer_norm(np.sin(x.astype(np.float64)) + r, *constants.values()).value
    np.testing.assert_allclose(y[0] if isinstance(y, tuple) else y, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("total", [False, True])
def test_operator_of_onnx_runtime(draw, constants, biased, total):
    """Its sum may be a result; skip may be broadcast."""
    runtime = pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
    shape, more = [2, 5, WIDTH], {"added": draw(WIDTH)} if biased else {}
    node = helper.make_node(
        "SkipLayerNormalization",
        ["x", "r", "weight", "bias", *more],
        ["y", "", "", "t"] if total else ["y"],
        name="norm",
        domain="com.microsoft",
        epsilon=1e-5,
    )
    outputs = {"y": shape, "t": shape} if total else {"y": shape}
    proto = model([node], {"x": shape, "r": shape}, outputs, constants | more, contrib=True)
    x, r = draw(*shape), draw(*shape)
    net = fo.load_onnx(proto)
    expected = runtime.InferenceSession(proto.SerializeToString()).run(None, {"x": x, "r": r})
    for y, theirs in zip(net(x, r) if total else [net(x, r)], expected, strict=True):
        np.testing.assert_allclose(y, theirs, rtol=1e-5, atol=1e-5)
    assert bool(norms(net)) == (not total)


def test_saved_and_loaded(tmp_path, draw, constants):
    shape = ["n", WIDTH]
    net = fo.load_onnx(model(SPELLED, {"x": shape, "r": shape}, {"y": shape}, constants))
    net.save(tmp_path / "net.fo")
    x, r = draw(3, WIDTH), draw(3, WIDTH)
    np.testing.assert_array_equal(fo.load(tmp_path / "net.fo")(x, r), net(x, r))


def test_a_transformer_of_pytorch(draw):
    """Norms after the additions: those that a product does not take are the norm's."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    layer = torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, norm_first=False, dropout=0).eval()
    x = torch.from_numpy(draw(2, 6, 32))
    net = fo.from_torch(layer, x)
    np.testing.assert_allclose(net(x.numpy()), layer(x).detach().numpy(), rtol=1e-4, atol=1e-5)
