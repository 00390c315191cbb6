"""Networks against PyTorch, and what a loaded network promises: open batch size, threads, pickling, files, refusals,
clear errors."""

import io
import itertools
import json
import pickle
import re
import subprocess
import sys
import threading
import tracemalloc
import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch")
onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper
from torch import nn

import fusedops as fo
from fusedops._internal.timing import Summary
from fusedops.graph.ir.options import BuildOptions
from fusedops.graph.runtime import profiler
from torch_models import NETWORKS, build, exported

FORMS = list(itertools.product((True, False), repeat=2))


def run_torch(module, *inputs):
    with torch.no_grad():
        return module(*inputs).numpy()


def assert_close(y, expected):
    assert y.shape == expected.shape
    assert np.abs(y - expected).max() <= 1e-4 * np.abs(expected).max()


@pytest.fixture(scope="module")
def networks():
    """(module, input, {(fold, fuse): model})"""
    made = {}

    def get(name):
        if name not in made:
            module, x, source = exported(name)
            made[name] = (
                module,
                x,
                {f: source if f == (False, False) else fo.Model.built(source._source, BuildOptions(*f)) for f in FORMS},
            )
        return made[name]

    return get


@pytest.mark.parametrize("name", NETWORKS)
def test_agrees_with_torch(networks, name):
    module, x, forms = networks(name)
    expected = run_torch(module, x)
    for net in forms.values():
        assert_close(net(x.numpy()), expected)


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["mobilenet_v2", "unet", "encoder"])
def test_current_exporter(name):
    pytest.importorskip("onnxscript")
    module, x = build(name, short=True)
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(module, (x,), file, dynamo=True, verbose=False)
    for fold, fuse in FORMS:
        assert_close(fo.load_onnx(file.getvalue(), fold=fold, fuse=fuse)(x.numpy()), run_torch(module, x))


@pytest.mark.parametrize("scale", [0.7, 1.5, 1.6])
@pytest.mark.parametrize("mode", [{}, {"mode": "bilinear"}, {"mode": "bilinear", "align_corners": True}])
def test_resizing_by_a_factor(scale, mode):
    """Sizes that are no whole multiples: 10 * 0.7 is 7 in torch's arithmetic, and the corners meet in images of those
    sizes."""
    module, x = nn.Upsample(scale_factor=scale, **mode), torch.randn(2, 3, 10, 7)
    assert_close(fo.from_torch(module, x)(x.numpy()), run_torch(module, x))


@pytest.mark.parametrize("name", NETWORKS)
def test_open_batch_size(networks, name):
    """Another batch size needs no new load, and an image's result does not depend on its company."""
    module, x, forms = networks(name)
    net = forms[True, True]
    both, one = net(x.numpy()), net(x.numpy()[:1])
    np.testing.assert_array_equal(one, both[:1])
    assert_close(net(np.concatenate([x.numpy()] * 2)), run_torch(module, torch.cat([x] * 2)))


@pytest.mark.parametrize("name", ["mobilenet_v1", pytest.param("mobilenet_v2", marks=pytest.mark.thorough)])
def test_blocks_of_large_images_run_in_one_kernel(name):
    module, x = build(name)[0], torch.randn(2, 3, 224, 224)
    net = fo.from_torch(module, x)
    layers = fo.Model.built(net._source, BuildOptions(fuse=False))
    assert any(step.kind == "separable" for step in net._plan(x.numpy())[0].steps)
    np.testing.assert_array_equal(net(x.numpy())[:1], net(x.numpy()[:1]))
    assert not any(step.kind == "separable" for step in layers._plan(x.numpy())[0].steps)


def test_of_blocks_that_share_a_convolution_the_longer_one_is_chosen():
    def depthwise(c, stride):
        return nn.Conv2d(c, c, 3, stride, 1, groups=c), nn.ReLU()

    module = nn.Sequential(
        *depthwise(32, 1),
        nn.Conv2d(32, 64, 1),
        nn.ReLU(),
        *depthwise(64, 2),
        nn.Conv2d(64, 24, 1),
        nn.AdaptiveAvgPool2d(1),
    ).eval()
    x = torch.randn(1, 32, 112, 112)
    net = fo.from_torch(module, x)
    assert [
        (step.kind, len(step.inner)) for step in net._plan(x.numpy())[0].steps if step.kind in ("conv2d", "separable")
    ] == [("conv2d", 0), ("separable", 2)]
    assert_close(net(x.numpy()), run_torch(module, x))


@pytest.mark.parametrize("channels", [256, 272, 1024])
def test_pixels_stand_apart_where_they_would_share_few_sets(channels, threads):
    """Of many channels or, for depthwise layers, with short vectors, an image that convolutions alone use has longer
    pixels; the bits stay those of the layers, and of a batch."""
    net = nn.Sequential(
        nn.Conv2d(5, channels, 1),
        nn.Conv2d(channels, channels, 3, 1, 1, groups=channels),
        nn.ReLU(),
        nn.Conv2d(channels, 70, 1),
    ).eval()
    x = torch.randn(3, 5, 9, 11)
    model = fo.from_torch(net, x)
    found = {t.strides[3] for step in model._plan(x.numpy())[0].steps for t in step.tensors()}
    assert (channels + 16 in found) == (channels == 1024 or (channels == 256 and fo.isa() != "avx512"))
    parts = [fo.from_torch(part) for part in (net[0], net[1], net[3])]
    y = parts[2](np.maximum(parts[1](parts[0](x.numpy())), 0))
    np.testing.assert_allclose(model(x.numpy()), y, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(model(x.numpy()), np.concatenate([model(x[i : i + 1].numpy()) for i in range(3)]))


def test_pixels_stand_side_by_side_where_others_than_convolutions_read_them():
    class TwoReaders(nn.Module):
        def __init__(self):
            super().__init__()
            self.image, self.depthwise, self.pool = (
                nn.Conv2d(5, 256, 1),
                nn.Conv2d(256, 256, 3, 1, 1, groups=256),
                nn.MaxPool2d(3, 1, 1),
            )

        def forward(self, x):
            y = self.image(x)
            return torch.cat([self.depthwise(y), self.pool(y)], 1)

    module, x = TwoReaders().eval(), torch.randn(2, 5, 9, 11)
    model = fo.from_torch(module, x)
    assert not any(t.strides[3] == 272 for step in model._plan(x.numpy())[0].steps for t in step.tensors())
    assert_close(model(x.numpy()), run_torch(module, x))


def test_blocks_are_explained_and_counted():
    """A block's operations are those of its three convolutions, and what it saves is its two images, written and
    read."""
    shapes = {"s": (32, 3, 3, 3), "e": (192, 32, 1, 1), "d": (192, 1, 3, 3), "p": (32, 192, 1, 1)}
    nodes = [
        helper.make_node("Conv", ["x", "s"], ["g"], "stem", pads=[1] * 4),
        helper.make_node("Conv", ["g", "e"], ["h"], "expand"),
        helper.make_node("Conv", ["h", "d"], ["i"], "depthwise", group=192, pads=[1] * 4),
        helper.make_node("Conv", ["i", "p"], ["j"], "project"),
        helper.make_node("GlobalAveragePool", ["j"], ["y"], "pool"),
    ]
    for side, merged in ((64, True), (8, False)):
        weights = {name: np.ones(shape, "f4") for name, shape in shapes.items()}
        net = fo.load_onnx(model(nodes, {"x": [1, 3, side, side]}, {"y": [1, 32, 1, 1]}, weights))
        told, profile = net.explain(), net.profile(np.ones((1, 3, side, side), "f4"), repeat=1)
        layers = {n.name: n for n in profile.layers}
        assert [(f.nodes, f.into, f.bytes) for f in told.fusions] == [
            (("expand", "depthwise"), "project", 4 * 4 * 192 * side**2)
        ] * merged
        assert [r.node for r in told.refusals] == ["project"] * (not merged)
        assert list(layers) == ["stem", *["expand", "depthwise"] * (not merged), "project", "pool"]
        assert layers["project"].gflop == pytest.approx(2e-9 * side**2 * 192 * (32 + (32 + 9) * merged))
        assert not merged or layers["project"].bytes == 4 * (2 * 32 * side**2 + 192 * (32 + 9 + 32))


@pytest.mark.parametrize("name", NETWORKS)
def test_one_call_without_python(networks, name):
    module, x, forms = networks(name)
    for net in forms.values():
        assert len(net._plan(x.numpy())[0].parts) == 1


def test_many_threads(networks):
    _, x, forms = networks("resnet18")
    net, x = forms[True, True], x.numpy()
    inputs = [x + np.float32(i) for i in range(6)]
    expected, found = [net(v) for v in inputs], [None] * 6

    def work(i):
        for _ in range(3):
            found[i] = net(inputs[i])

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for y, e in zip(found, expected, strict=True):
        np.testing.assert_array_equal(y, e)


@pytest.mark.parametrize("name", ["mobilenet_v2", "crnn"])
def test_pickle_and_file(networks, name, tmp_path):
    _, x, forms = networks(name)
    net = forms[True, True]
    expected = net(x.numpy())
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(net))(x.numpy()), expected)
    path = tmp_path / "network.fo"
    net.save(path)
    np.testing.assert_array_equal(fo.load(path)(x.numpy()), expected)
    np.save(tmp_path / "x.npy", x.numpy()), np.save(tmp_path / "y.npy", expected)
    code = (
        "import sys, numpy as np, fusedops as fo\n"
        f"y = fo.load({str(path)!r})(np.load({str(tmp_path / 'x.npy')!r}))\n"
        f"assert (y == np.load({str(tmp_path / 'y.npy')!r})).all()\n"
        "assert not {'onnx', 'torch', 'google.protobuf'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_file_of_another_version_or_damaged(networks, tmp_path, monkeypatch):
    _, x, forms = networks("crnn")
    path = tmp_path / "network.fo"
    monkeypatch.setattr("fusedops.graph.frontends.native.VERSION", 99)
    forms[True, True].save(path)
    monkeypatch.undo()
    with pytest.raises(ValueError, match="version 99"):
        fo.load(path)
    forms[True, True].save(path)
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    for size in [0, 1, 100, len(whole) // 2, len(whole) - 10]:
        path.write_bytes(whole[:size])
        with pytest.raises(ValueError, match="not a saved network"):
            fo.load(path)
    for at in rng.integers(0, len(whole), 40):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        try:
            fo.load(path)  # a byte that means nothing
        except ValueError:
            pass
    path.write_bytes(pickle.dumps({"a": 1}))
    with pytest.raises(ValueError, match="not a saved network"):
        fo.load(path)


def test_an_array_that_a_file_names_often_is_read_once(tmp_path):
    path = tmp_path / "network.fo"
    fo.load_onnx(
        model(
            [helper.make_node("Add", ["x", "c"], ["y"])],
            {"x": [1]},
            {"y": [250_000]},
            {"c": np.ones(250_000, np.float32)},
        )
    ).save(path)
    with np.load(path) as archive:
        arrays = dict(archive)
    header = json.loads(bytes(arrays["header"]))
    header["constants"] |= {f"c{i}": {"array": 0} for i in range(30)}
    with path.open("wb") as f:
        np.savez(f, **arrays | {"header": np.frombuffer(json.dumps(header).encode(), np.uint8)})
    tracemalloc.start()
    fo.load(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3 * 250_000 * 4  # the file has it in 16 bits


# ---- small graphs ---------------------------------------------------------------------------------------------------


def model(nodes, inputs, outputs, constants=None, opset=17):
    """An ONNX model; inputs and outputs map names to shapes."""

    def values(shapes):
        return [helper.make_tensor_value_info(k, TensorProto.FLOAT, v) for k, v in shapes.items()]

    graph = helper.make_graph(
        nodes,
        "g",
        values(inputs),
        values(outputs),
        [numpy_helper.from_array(v, k) for k, v in (constants or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def conv_bn_parts(oc=4, ic=3, bad_var=False):
    rng = np.random.default_rng(1)
    bn = {k: rng.uniform(0.5, 1.5, oc).astype(np.float32) for k in ("gamma", "beta", "mean", "var")}
    bn["gamma"][0] *= -1
    if bad_var:
        bn["var"][0] = -1
    return {"w": rng.standard_normal((oc, ic, 3, 3)).astype(np.float32), **bn}


CONV = helper.make_node("Conv", ["x", "w"], ["c"], name="conv", pads=[1, 1, 1, 1])


def bn(x="c", y="y", **attrs):
    return helper.make_node("BatchNormalization", [x, "gamma", "beta", "mean", "var"], [y], name="bn", **attrs)


IMAGE = {"x": [1, 3, 6, 7]}
RESULT = {"y": [1, 4, 6, 7]}


def agree(proto, *arrays):
    """The fused network, after a comparison with the unfused one."""
    net, plain = fo.load_onnx(proto), fo.load_onnx(proto, fold=False, fuse=False)
    for a, b in zip(np.atleast_1d(net(*arrays)), np.atleast_1d(plain(*arrays)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)
    return net


@pytest.fixture
def x():
    return np.random.default_rng(0).standard_normal((1, 3, 6, 7)).astype(np.float32)


def test_a_result_of_more_axes_than_arrays_have_is_refused():
    proto = model(
        [
            helper.make_node("Cast", ["x"], ["i"], to=TensorProto.INT64),
            helper.make_node("Reshape", ["i", "shape"], ["y"]),
        ],
        {"x": [6]},
        {"y": [6] + [1] * 99},
        {"shape": np.int64([6] + [1] * 99)},
    )
    proto.graph.output[0].type.tensor_type.elem_type = TensorProto.INT64
    net = fo.load_onnx(proto)
    with pytest.raises(ValueError, match="100 axes"):
        net(np.ones(6, np.float32))


def test_batch_norm_is_folded(x):
    net = agree(model([CONV, bn(epsilon=1e-3)], IMAGE, RESULT, conv_bn_parts()), x)
    (fusion,) = net.explain().fusions
    assert (fusion.kind, fusion.nodes, fusion.into) == ("batch norm", ("bn",), "conv")
    assert fusion.operations == 2 * 4 * 6 * 7 and fusion.bytes == 2 * 4 * 4 * 6 * 7
    assert "batch norm" in str(net.explain())


@pytest.mark.parametrize("second", ["Add", "Sub", "Mul", "Div"])
@pytest.mark.parametrize("swapped", [False, True])
def test_scale_and_shift_around_batch_norm(x, second, swapped):
    constants = conv_bn_parts() | {"k": np.array([1, 2, -3, 4], np.float32).reshape(4, 1, 1)}
    names = ["c", "k"] if not swapped else ["k", "c"]
    before = model([CONV, helper.make_node(second, names, ["s"], name="s"), bn("s")], IMAGE, RESULT, constants)
    names = ["b", "k"] if not swapped else ["k", "b"]
    after = model([CONV, bn(y="b"), helper.make_node(second, names, ["y"], name="s")], IMAGE, RESULT, constants)
    for proto in (before, after):
        net = agree(proto, x)
        folded = not (second == "Div" and swapped)
        assert len(net._graph.nodes) == (1 if folded else 3 - (proto is after))


@pytest.mark.parametrize("groups", [1, 2])
def test_batch_norm_behind_a_transposed_convolution(groups):
    rng = np.random.default_rng(0)
    constants = conv_bn_parts(6) | {"w": rng.standard_normal((4, 6 // groups, 3, 3)).astype(np.float32)}
    up = helper.make_node(
        "ConvTranspose", ["x", "w"], ["c"], name="up", strides=[2, 2], group=groups, output_padding=[1, 0]
    )
    proto = model([up, bn()], {"x": [2, 4, 5, 6]}, {"y": [2, 6, 12, 13]}, constants)
    net = agree(proto, rng.standard_normal((2, 4, 5, 6)).astype(np.float32))
    assert [f.into for f in net.explain().fusions] == ["up"]


def refusals(proto):
    return {r.kind: r.reason for r in fo.load_onnx(proto).explain().refusals}


def test_refused_with_two_consumers(x):
    proto = model(
        [CONV, bn(), helper.make_node("Relu", ["c"], ["r"], name="relu")],
        IMAGE,
        RESULT | {"r": [1, 4, 6, 7]},
        conv_bn_parts(),
    )
    agree(proto, x)
    assert "2 consumers" in refusals(proto)["batch norm"]


def test_refused_for_an_output(x):
    proto = model([CONV, bn()], IMAGE, RESULT | {"c": [1, 4, 6, 7]}, conv_bn_parts())
    agree(proto, x)
    assert "an output of the network" in refusals(proto)["batch norm"]


def test_refused_in_training_mode(x):
    norm = helper.make_node(
        "BatchNormalization", ["c", "gamma", "beta", "mean", "var"], ["y", "m", "v"], name="bn", training_mode=1
    )
    proto = model([CONV, norm], IMAGE, RESULT, conv_bn_parts())
    agree(proto, x)
    assert "training mode" in refusals(proto)["batch norm"]


def test_refused_for_weights_that_are_not_constant(x):
    parts = conv_bn_parts()
    w = parts.pop("w")
    proto = model([CONV, bn()], IMAGE | {"w": [4, 3, 3, 3]}, RESULT, parts)
    agree(proto, x, w)
    assert "not constant" in refusals(proto)["batch norm"]


def test_refused_without_weights(x):
    parts = {k: v[:3] for k, v in conv_bn_parts().items() if k != "w"}
    proto = model([bn("x")], IMAGE, {"y": [1, 3, 6, 7]}, parts)
    agree(proto, x)
    assert "no weights to fold into" in refusals(proto)["batch norm"]


def test_refused_for_a_variance_that_is_not_positive():
    assert "not positive" in refusals(model([CONV, bn()], IMAGE, RESULT, conv_bn_parts(bad_var=True)))["batch norm"]


def test_residual_that_is_broadcast_is_no_residual(x):
    nodes = [CONV, helper.make_node("Add", ["c", "r"], ["y"], name="add")]
    proto = model(nodes, IMAGE | {"r": [1, 4, 1, 7]}, RESULT, conv_bn_parts())
    agree(proto, x, np.ones((1, 4, 1, 7), np.float32))
    assert "broadcast" in refusals(proto)["epilogue"]


def test_padding_and_activation_are_fused(x):
    nodes = [
        helper.make_node("Pad", ["x", "pads"], ["p"], name="pad"),
        helper.make_node("Conv", ["p", "w"], ["c"], name="conv", strides=[2, 2]),
        helper.make_node("LeakyRelu", ["c"], ["y"], name="act", alpha=0.2),
    ]
    proto = model(nodes, IMAGE, {"y": [1, 4, 3, 4]}, conv_bn_parts() | {"pads": np.array([0, 0, 0, 1, 0, 0, 1, 2])})
    net = agree(proto, x)
    assert [f.kind for f in net.explain().fusions] == ["padding", "epilogue"] and len(net._plan(x)[0].steps) == 1


SPELLED_OUT = {
    "gelu": lambda v: v * 0.5 * (1 + torch.erf(v / 2**0.5)),
    "gelu_tanh": lambda v: 0.5 * v * (1 + torch.tanh(0.7978845608 * (v + 0.044715 * v**3))),
    "silu": lambda v: v * torch.sigmoid(v),
    "hardswish": lambda v: v * torch.clamp(v + 3, 0, 6) / 6,
    "hardsigmoid": lambda v: torch.clamp(v + 3, 0, 6) / 6,
    "mish": lambda v: v * torch.tanh(nn.functional.softplus(v)),
    "softsign": lambda v: v / (1 + torch.abs(v)),
}


@pytest.mark.parametrize("name", SPELLED_OUT)
def test_activation_spelled_out(name):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(16, 16)

        def forward(self, v):
            return SPELLED_OUT[name](self.fc(v))

    torch.manual_seed(0)
    module, v = Net(), 4 * torch.randn(5, 16)
    net = fo.from_torch(module, v)
    assert_close(net(v.numpy()), run_torch(module, v))
    assert len(net._plan(v.numpy())[0].steps) == 1 and net._graph.nodes[0].activation == name


def test_expression_that_is_used_elsewhere_stays():
    nodes = [helper.make_node("Sigmoid", ["x"], ["s"], name="s"), helper.make_node("Mul", ["x", "s"], ["y"], name="m")]
    proto = model(nodes, {"x": [2, 5]}, {"y": [2, 5], "s": [2, 5]})
    agree(proto, np.ones((2, 5), np.float32))
    assert "used elsewhere" in refusals(proto)["activation patterns"]


# ---- errors ---------------------------------------------------------------------------------------------------------


def test_all_unknown_operators_are_named():
    """With the reason, where ONNX defines them and fusedops leaves them out."""
    nodes = [
        helper.make_node("StringNormalizer", ["x"], ["a"], name="first"),
        helper.make_node("Magic", ["a"], ["b"], name="second"),
        helper.make_node("StringNormalizer", ["b"], ["y"], name="third"),
    ]
    with pytest.raises(
        ValueError, match=r"opset 17.*Magic \(second\); StringNormalizer \(first, third\), strings: turn text into"
    ):
        fo.load_onnx(model(nodes, {"x": [2]}, {"y": [2]}))


def test_damaged_model(networks):
    whole = model([CONV, bn()], IMAGE, RESULT, conv_bn_parts()).SerializeToString()
    for size in (1, 10, len(whole) // 3, len(whole) - 7):
        with pytest.raises(ValueError, match="not an ONNX model|damaged"):
            fo.load_onnx(whole[:size])
    rng = np.random.default_rng(0)
    for _ in range(300):
        broken = bytearray(whole)
        for at in rng.integers(0, len(whole), rng.integers(1, 4)):
            broken[at] = rng.integers(256)
        try:
            fo.load_onnx(bytes(broken))
        except (ValueError, MemoryError):  # a size may have become very large
            pass


@pytest.mark.parametrize("given, shape", [(3, (1, 12)), (4, (3,)), (5, (1, 2, 4)), (6, (1, 2, 5)), (7, (1, 3))])
def test_optional_inputs_of_an_lstm_that_do_not_fit(given, shape):
    """Zeros too: torch's current exporter writes an LSTM with projections as one without, whose cells have the wrong
    width."""
    shapes = {"w": (1, 12, 4), "r": (1, 12, 3), "o": shape}
    constants = {
        name: np.zeros(s, np.int32 if name == "o" and given == 4 else np.float32) for name, s in shapes.items()
    }
    node = helper.make_node("LSTM", ["x", "w", "r", *[""] * (given - 3), "o"], ["y"], hidden_size=3)
    with pytest.raises(ValueError, match=re.escape(f"of shape {shape} must have")):
        fo.load_onnx(model([node], {"x": [5, 2, 4]}, {"y": [5, 1, 2, 3]}, constants))


def test_weights_in_another_file(tmp_path, monkeypatch, x):
    """They are read from the model's folder alone, and may be larger than the 2 GB of a message."""
    parts = conv_bn_parts()
    expected = fo.load_onnx(model([CONV], IMAGE, {"c": [1, 4, 6, 7]}, parts))(x)
    path = tmp_path / "net.onnx"
    onnx.save(
        model([CONV], IMAGE, {"c": [1, 4, 6, 7]}, parts),
        path,
        save_as_external_data=True,
        location="weights.bin",
        size_threshold=0,
    )
    np.testing.assert_array_equal(fo.load_onnx(path)(x), expected)
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "net.onnx").symlink_to(path)
    (tmp_path / "linked" / "weights.bin").symlink_to(tmp_path / "weights.bin")  # as Hugging Face keeps them
    np.testing.assert_array_equal(fo.load_onnx(tmp_path / "linked" / "net.onnx")(x), expected)
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "net.onnx").write_bytes(path.read_bytes())
    (tmp_path / "copy" / "weights.bin").symlink_to(tmp_path / "weights.bin")
    with pytest.raises(ValueError, match=r"'weights.bin', outside its folder"):
        fo.load_onnx(tmp_path / "copy" / "net.onnx")
    monkeypatch.chdir(tmp_path)
    np.testing.assert_array_equal(fo.load_onnx("net.onnx")(x), expected)
    for there in path.read_bytes(), onnx.load(path, load_external_data=False):
        with pytest.raises(ValueError, match="tensor 'w' lies in another file: load the model by its path"):
            fo.load_onnx(there)
    (tmp_path / "weights.bin").unlink()
    with pytest.raises(FileNotFoundError, match="'weights.bin', which is not there: put it next to the model"):
        fo.load_onnx(path)


def test_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError):
        fo.load_onnx(tmp_path / "none.onnx")
    with pytest.raises(FileNotFoundError):
        fo.load(tmp_path / "none.fo")


def test_the_number_of_an_open_file_is_no_path(networks, tmp_path):
    """Python would read or write that file, and close it."""
    with open(tmp_path / "mine", "w+b") as file:
        for call in (fo.load, fo.load_onnx, networks("encoder")[2][True, True].save):
            with pytest.raises(TypeError, match="PathLike"):
                call(file.fileno())
        file.write(b"still open")
    assert (tmp_path / "mine").read_bytes() == b"still open"


def test_wrong_inputs(x):
    net = fo.load_onnx(model([CONV], IMAGE, {"c": [1, 4, 6, 7]}, conv_bn_parts()))
    with pytest.raises(TypeError, match="x has dtype float64.*astype"):
        net(x.astype(np.float64))
    with pytest.raises(TypeError, match=r"x has dtype float64.*pass np.asarray\(x, np.float32\)"):
        net(x.tolist())
    with pytest.raises(ValueError, match=r"x has shape \(1, 3, 6\)"):
        net(x[..., 0])
    for call in net, net.profile, net.benchmark, net.memory:
        with pytest.raises(ValueError, match=r"takes 1 input \(x"):
            call()
    for shape in (1, 3, 6), (1, 4, 6, 7), (-1, 3, 6, 7):
        with pytest.raises(ValueError, match=re.escape(f"x has shape {shape}, but the network takes x")):
            net.memory(shape)
    with pytest.raises(TypeError, match="the shape of x must be a tuple of ints, not 5"):
        net.memory(5)
    with pytest.raises(ValueError, match="takes the inputs x"):
        net.run({"z": x})
    with pytest.raises(TypeError, match="run takes a dict.*not list"):
        net.run([x])
    np.testing.assert_array_equal(net.run({"x": x})["c"], net(x))


def test_inputs_of_any_memory(x):
    net = fo.load_onnx(model([CONV], IMAGE, {"c": [1, 4, 6, 7]}, conv_bn_parts()))
    wide = np.zeros((1, 3, 6, 14), np.float32)
    wide[..., ::2] = x
    np.testing.assert_array_equal(net(wide[..., ::2]), net(x))


def test_profile_and_benchmark(networks):
    _, x, forms = networks("resnet18")
    net = forms[True, True]
    times = net.benchmark(x.numpy(), number=1, repeat=2)
    assert (
        set(times.as_dict()) == {"fused", "folded only", "unfused"} and times.mean > 0 and "folded only" in str(times)
    )
    profile = net.profile(x.numpy(), repeat=1)
    assert (
        len(profile.layers) == len(net._plan(x.numpy())[0].steps)
        and all(n.ms > 0 for n in profile.layers)
        and "of peak" in str(profile)
    )


def test_the_peak_of_a_profile_is_the_best_that_was_seen(x, monkeypatch):
    """Other work on the machine while the products ran would make shares above 100 %."""
    peaks = [3.0, 1.0, 2.0]
    monkeypatch.setattr(profiler, "_peak", lambda: peaks.pop())
    assert fo.load_onnx(model([CONV], IMAGE, {"c": [1, 4, 6, 7]}, conv_bn_parts())).profile(x, repeat=1).peak == 3


def test_the_peak_is_found_between_other_work(monkeypatch):
    """Samples are short and many, and the best one counts."""
    seconds = iter([4e-3] * 60 + [1e-3] + [4e-3] * 1000)
    monkeypatch.setattr(profiler, "batch_time", lambda call, number: number * next(seconds))
    assert profiler._peak() == pytest.approx(2 * 64 * fo.get_num_threads() * 512**2 / 1e-3 / 1e9)


def test_shares_above_the_peak_are_explained():
    def told(share):
        node = profiler.NodeProfile("c", "Conv", "conv", 1.0, 2.0, 1.0, 4, share)
        return str(profiler.Profile([node], 100.0, 10.0))

    assert "Winograd" in told(1.9) and "Winograd" not in told(0.9) and "the least of several runs" in told(0.9)


def test_a_busy_machine_is_told():
    """In the heading, and the least times are compared."""

    def told(*seconds):
        heading, titles, fused, _ = str(
            profiler.Benchmark({"fused": Summary.of(seconds), "unfused": Summary.of([0.034])})
        ).splitlines()
        return heading, titles.split()[0], fused.split()[1:]

    assert told(0.017, 0.034, 0.035) == (
        "Execution times. The machine is busy (medians are up to 2.0 times the least times): these are the least.",
        "min",
        ["17.0000", "2.00x"],
    )
    heading, first, cells = told(0.016, 0.017, 0.2)
    assert (heading, first) == ("Execution times", "mean") and cells[1] == "17.0000" and cells[-1] == "2.00x"


def test_a_benchmark_says_what_fusion_buys():
    fused, unfused = Summary.of([0.01]), Summary.of([0.02])
    lines = str(profiler.Benchmark({"fused": fused, "unfused": unfused})).splitlines()
    assert lines[1].endswith("vs unfused") and [line.split()[-1] for line in lines[2:]] == ["2.00x", "1.00x"]
    assert "vs unfused" not in str(profiler.Benchmark({"fused": fused}))  # a saved network's other forms are not there


def test_units_suit_the_sizes():
    times = str(profiler.Benchmark({"fused": Summary.of([2e-6])}))
    assert "min (us)" in times and "2.00" in times

    def told(*nodes):
        head, *rows = str(profiler.Profile(list(nodes), 100.0, 10.0)).splitlines()[: len(nodes) + 2]
        return head.split(), [row.split() for row in rows]

    conv = profiler.NodeProfile("c", "Conv", "conv", 0.0008, 0.001, 18.4e-6, 4, 0.2)
    relu = profiler.NodeProfile("r", "Relu", "pointwise", 0.0002, 0.0002, 0.0, 4, 0.0)
    head, rows = told(conv, relu)
    assert head == ["node", "operator", "steps", "us", "unfused", "us", "operations", "of", "peak"]
    assert rows == [
        ["c", "Conv", "conv", "0.80", "1.00", "18.4", "k", "20%"],
        ["r", "Relu", "pointwise", "0.20", "0.20"],
        ["all", "1.00", "1.20", "18.4", "k"],
    ]
    assert told(conv._replace(ms=2.0, gflop=1.5))[1][0] == ["c", "Conv", "conv", "2.0000", "0.0010", "1.5", "G", "20%"]
    assert told(relu._replace(unfused_ms=None))[0] == ["node", "operator", "steps", "us"]  # no column without a cell


def test_convolution_before_a_softmax_rounds_all_channels_alike():
    """Logits of 1e9 from equal weights: any difference in rounding would be a factor of e^100."""
    x = 1e4 * np.random.default_rng(0).random((1, 512, 13, 13), np.float32)
    w = np.full((1000, 512, 1, 1), 300, np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["p"]),
        helper.make_node("Softmax", ["p"], ["y"], axis=1),
    ]
    y = fo.load_onnx(model(nodes, {"x": x.shape}, {"y": (1, 1000, 1, 1)}, dict(w=w)))(x)
    np.testing.assert_allclose(y, 1e-3, rtol=1e-5)


class Called(nn.Module):
    """A module that is a function of tensors."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *inputs):
        return self.function(*inputs)


def assert_agrees(module, *inputs, numpy_steps=()):
    """Batches of 1 and 3 agree with PyTorch in every form; what NumPy computes are the operators of these names."""
    source = fo.from_torch(module.eval(), tuple(x[:1] for x in inputs), fold=False, fuse=False)
    for form in FORMS:
        net = fo.Model.built(source._source, BuildOptions(*form))
        for given in (inputs, [x[:1] for x in inputs]):
            found, expected = net(*(x.numpy() for x in given)), module(*given)
            pairs = zip(found, expected, strict=True) if isinstance(found, tuple) else [(found, expected)]
            for y, e in pairs:
                assert y.dtype == e.detach().numpy().dtype
                assert_close(y, e.detach().numpy())
        assert [s.node.op for s in net._plan(*(x.numpy() for x in inputs))[0].steps if s.kind == "numpy"] == list(
            numpy_steps
        )


def test_attention_modules_of_torch():
    """Exported without torch's own kernel for them, which has no ONNX form, and with the batch open."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 2, 32, activation="gelu", batch_first=True, norm_first=True)
    encoder, mask = (
        nn.TransformerEncoder(layer, 2, enable_nested_tensor=False),
        nn.Transformer.generate_square_subsequent_mask(6),
    )
    attention = nn.MultiheadAttention(16, 2, batch_first=True)
    encoder.eval().requires_grad_(False), attention.eval().requires_grad_(False)
    x = torch.randn(3, 6, 16)
    for module in (
        encoder,
        Called(lambda x: encoder(x, mask=mask)),
        Called(lambda x: attention(x, x, x, need_weights=False)[0]),
    ):
        assert_agrees(module, x)
    assert torch.backends.mha.get_fastpath_enabled()


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_zeros_beside_weights_are_added_without_a_warning():
    nodes = [helper.make_node("Conv", ["x", "w"], ["h"]), helper.make_node("Add", ["h", "zero"], ["y"])]
    constants = {"w": np.ones((2, 1, 1, 1), "f4"), "zero": np.zeros((2, 1, 1), "f4")}
    net = fo.load_onnx(model(nodes, {"x": ["n", 1, 2, 2]}, {"y": ["n", 2, 2, 2]}, constants))
    np.testing.assert_array_equal(net(np.ones((1, 1, 2, 2), "f4")), np.ones((1, 2, 2, 2), "f4"))


@pytest.mark.parametrize(
    "equation, shapes, numpy_steps",
    [
        ("bqhd,bkhd->bhqk", [(3, 5, 2, 4), (3, 6, 2, 4)], []),
        ("bhqk,bkhd->bqhd", [(3, 2, 5, 6), (3, 6, 2, 4)], []),
        ("be,bed->bd", [(3, 4), (3, 4, 5)], []),
        ("bd,be->bde", [(3, 4), (3, 5)], []),
        ("bij,bij->b", [(3, 4, 5), (3, 4, 5)], []),
        ("bhij,bjkl->blhki", [(3, 2, 4, 5), (3, 5, 6, 2)], []),
        ("...ij,...kj->...ki", [(3, 2, 4, 5), (3, 2, 6, 5)], []),
        ("bi,bj,bij->bj", [(3, 4), (3, 5), (3, 4, 5)], ["Einsum"]),
        ("bii->bi", [(3, 4, 4)], ["Einsum"]),
    ],
)
def test_einsum(equation, shapes, numpy_steps):
    torch.manual_seed(0)
    assert_agrees(Called(lambda *xs: torch.einsum(equation, *xs)), *map(torch.randn, shapes), numpy_steps=numpy_steps)


@pytest.mark.parametrize(
    "function, shape, numpy_steps",
    [
        (nn.Sequential(nn.Conv2d(3, 12, 3), nn.PixelShuffle(2), nn.Conv2d(3, 4, 1)), (3, 3, 8, 7), []),
        (
            nn.Sequential(nn.Linear(6, 12), nn.SELU(), nn.Linear(12, 8), nn.CELU(0.5), nn.Unflatten(1, (2, 4))),
            (3, 6),
            [],
        ),
        (lambda x: nn.functional.normalize(x, dim=-1) + torch.norm(x, p=1, dim=1, keepdim=True), (3, 5), []),
        (lambda x: torch.cat([x.repeat(1, 2, 3), x[:, :2].repeat(1, 4, 3)], 1), (3, 4, 5), []),
        (lambda x: (x.softmax(1).argmax(1), x.argmin(-1), *x.topk(2), x.sort(1)[0]), (3, 4, 5), []),
        (lambda x: (x.cumsum(1), x.amin(1), x.prod(1), x.logsumexp(-1)), (3, 4, 5), ["ReduceLogSumExp"]),
        (lambda x: torch.gather(x, 1, x.argmax(1, keepdim=True)), (3, 4, 5), []),
        (lambda x: torch.zeros_like(x).scatter(1, x.argmin(1, keepdim=True), 2.0), (3, 4, 5), []),
        (lambda x: torch.tril(x) + x.sin().round() + x.cos().floor() + x.sign().ceil(), (3, 4, 4), ["Sin", "Cos"]),
        (nn.AdaptiveAvgPool2d((2, 3)), (3, 2, 5, 7), []),
    ],
    ids=["shuffle", "selu", "norms", "tile", "order", "sums", "gather", "scatter", "rounding", "adaptive"],
)
def test_operators_that_users_meet(function, shape, numpy_steps):
    torch.manual_seed(0)
    module, x = function if isinstance(function, nn.Module) else Called(function), torch.randn(shape)
    assert_agrees(module, x, numpy_steps=numpy_steps)
