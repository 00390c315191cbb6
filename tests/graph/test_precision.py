"""Networks whose products multiply in bfloat16 where that is faster."""

import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from weakref import WeakValueDictionary

import numpy as np
import pytest
from onnx import numpy_helper
from onnx.parser import parse_model

import fusedops as fo
from catalog import using_machine
from fusedops import _core, activations, cli
from fusedops.graph.planner.precision import call_of, of_layer
from fusedops.graph.steps.prepared import OfConstants, Prepared, UnpackedLayer
from onnx_lines import network

CHAIN = "a = Conv x w; b = Relu a; c = Conv b v; d = Add c b; e = Relu d; y = Conv e u"
LINEARS = "a = MatMul x w; b = Relu a; c = MatMul b v; y = Softmax c"


def chain(rng):
    """1x1 convolutions one after the other, with a residual."""
    w, v, u = (
        rng.standard_normal(shape).astype(np.float32) / 8 for shape in [(64, 32, 1, 1), (64, 64, 1, 1), (32, 64, 1, 1)]
    )
    x = rng.standard_normal((1, 32, 20, 20)).astype(np.float32)
    return network(CHAIN, {"x": x}, dict(w=w, v=v, u=u), 4), x


def linears(rng, rows=40):
    w, v = (rng.standard_normal(shape).astype(np.float32) / 16 for shape in [(200, 300), (300, 100)])
    x = rng.standard_normal((rows, 200)).astype(np.float32)
    return network(LINEARS, {"x": x}, dict(w=w, v=v), 2), x


def types(model, x):
    """Of x, the residual and y of each product in bfloat16."""
    steps = [s for s in model._plan(x)[0].steps if s.kind in ("qconv2d", "qlinear")]
    return [tuple(t and ("bfloat16" if t == _core.BFLOAT16 else t.name) for t in s.arguments["types"]) for s in steps]


needs_bfloat16 = pytest.mark.skipif(not _core.has_bfloat16(), reason="the processor has no dot product of bfloat16")


@needs_bfloat16
def test_values_between_two_products_stand_in_bfloat16(rng):
    proto, x = chain(rng)
    model = fo.load_onnx(proto, precision="bfloat16")
    wide, narrow = "float32", "bfloat16"
    assert types(model, x) == [(wide, None, narrow), (narrow, narrow, narrow), (narrow, None, wide)]
    assert model.memory(x.shape) < 0.7 * fo.load_onnx(proto).memory(x.shape)


@needs_bfloat16
@pytest.mark.parametrize("make", [chain, linears])
def test_each_layer_is_packed_once(rng, monkeypatch, make):
    """In the type that it multiplies in."""
    proto, x = make(rng)
    packed, before = [], UnpackedLayer.packed
    monkeypatch.setattr(UnpackedLayer, "packed", lambda layer, layers: packed.append(layer) or before(layer, layers))
    session = fo.load_onnx(proto, precision="bfloat16")._session
    session.plan([x.shape])
    assert {layer.precision for layer in packed} == {"bfloat16"}
    assert session.layers.keys() == {(layer.key, "bfloat16") for layer in packed}


def test_graphs_share_layers_of_constants(rng):
    shared, w = WeakValueDictionary(), rng.standard_normal((8, 8), np.float32)
    layer = UnpackedLayer(OfConstants("Linear", w), partial(fo.Linear, w))
    for each in layer, layer._replace(precision="bfloat16"):
        first = each.packed(Prepared(shared))
        assert each.packed(Prepared(shared)) is first
        assert ("bfloat16" in repr(first)) == (each.precision == "bfloat16")


def test_what_a_layer_takes_follows_from_its_shape(rng):
    """A convolution without weights is predicted to take what the same one with weights is, and cannot be called."""
    for w, options in (
        ((24, 32, 3, 3), dict(stride=(1, 1), groups=1)),
        ((32, 32, 1, 1), dict(stride=(2, 2), groups=1)),
        ((32, 1, 5, 5), dict(stride=(1, 1), groups=32)),
        ((16, 8, 7, 1), dict(stride=(1, 1), groups=2)),
    ):
        shape = _core.Conv2dShape()._describe(
            w, activations.parse("relu"), options["stride"], (1, 1), options["groups"], True, 0
        )
        layer = fo.Conv2d(rng.standard_normal(w, np.float32), activation="relu", layout="NHWC", **options)
        for side in 14, 56:
            case = (2, side, side), layer.output_shape((1, side, side, w[1] * options["groups"]))[1:3], 0, 0
            assert shape._nanoseconds(*case) == layer._nanoseconds(*case)
        assert shape._pixel() == layer._pixel()
        with pytest.raises(RuntimeError, match="has no weights"):
            shape(np.ones((1, 14, 14, w[1] * options["groups"]), np.float32))
    weights = rng.standard_normal((8, 4, 3, 3), np.float32)
    case = (1, 9, 9), (19, 19), 0, 0
    without, layer = (_core.ConvTranspose2dPlan(w, None, None, (2, 2)) for w in (weights.shape, weights))
    assert without._nanoseconds(*case) == layer._nanoseconds(*case)


@needs_bfloat16
def test_what_other_steps_read_stays_float32(rng):
    proto, x = linears(rng)
    model = fo.load_onnx(proto, precision="bfloat16")
    assert types(model, x) == [("float32", None, "bfloat16"), ("bfloat16", None, "float32")]


def block(rng, channels, inside, side=112):
    """An inverted residual block that one step computes in float32."""
    shapes = dict(p=(inside, channels, 1, 1), d=(inside, 1, 3, 3), q=(channels, inside, 1, 1))
    weights = [
        numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32) / 8, k) for k, shape in shapes.items()
    ]
    proto = parse_model(
        f'<ir_version: 8, opset_import: ["" : 17]> g (float[n, h, w, {channels}] x) => (float[n, h, w, {channels}] y) '
        "{ t = Transpose<perm=[0,3,1,2]>(x) a = Conv(t, p) b = Relu(a) "
        f"c = Conv<pads=[1,1,1,1], group={inside}>(b, d) e = Relu(c) z = Conv(e, q) y = Transpose<perm=[0,2,3,1]>(z) }}"
    )
    proto.graph.initializer.extend(weights)
    return proto, rng.standard_normal((1, side, side, channels)).astype(np.float32)


def kinds(model, x):
    return [s.kind for s in model._plan(x)[0].steps if s.kind != "copy"]


@needs_bfloat16
def test_blocks_whose_layers_are_faster_in_bfloat16(rng):
    proto, x = block(rng, 32, 192)
    assert kinds(fo.load_onnx(proto), x) == ["separable"]
    model = fo.load_onnx(proto, precision="bfloat16")
    assert kinds(model, x) == ["qconv2d", "conv2d", "qconv2d"]
    (why,) = {r.reason for r in model.explain().refusals if r.kind == "blocks"}
    assert why.startswith("in bfloat16 its layers are predicted to take 0.")
    np.testing.assert_allclose(model(x), fo.load_onnx(proto)(x), atol=0.02 * np.abs(model(x)).max())


def test_blocks_of_few_products_stay_in_one_step(rng):
    proto, x = block(rng, 8, 48, 256)
    model = fo.load_onnx(proto, precision="bfloat16")
    assert kinds(model, x) == ["separable"]
    np.testing.assert_array_equal(model(x), fo.load_onnx(proto)(x))


@pytest.mark.parametrize("make", [chain, linears])
@pytest.mark.parametrize("options", [{}, {"fuse": False}, {"fold": False, "fuse": False}])
def test_close_to_float32(isa, threads, rng, make, options):
    proto, x = make(rng)
    y, expected = fo.load_onnx(proto, precision="bfloat16", **options)(x), fo.load_onnx(proto, **options)(x)
    assert y.dtype == np.float32
    error = np.abs(y - expected).max() / np.abs(expected).max()
    assert error < 0.02 and (error > 1e-5) == _core.has_bfloat16()


def test_a_layer_that_gains_nothing_stays_float32(rng):
    """A product of few numbers: its call would take longer."""
    proto = network("y = MatMul x w", {"x": np.ones((2, 3), np.float32)}, {"w": np.ones((3, 4), np.float32)}, 2)
    model = fo.load_onnx(proto, precision="bfloat16")
    assert types(model, np.ones((2, 3), np.float32)) == []
    (refusal,) = [r for r in model.explain().refusals if r.kind == "precision"]
    assert "float32 is predicted" in refusal.reason or "no product of bfloat16" in refusal.reason
    np.testing.assert_array_equal(model(np.ones((2, 3), np.float32)), fo.load_onnx(proto)(np.ones((2, 3), np.float32)))


def test_without_the_instruction_all_stays_float32(rng):
    with using_machine(dot_product=False):
        proto, x = chain(rng)
        model = fo.load_onnx(proto, precision="bfloat16")
        np.testing.assert_array_equal(model(x), fo.load_onnx(proto)(x))
        assert {r.reason for r in model.explain().refusals if r.kind == "precision"} == {
            "the processor has no product of bfloat16 for it"
        }


def test_open_sizes(rng):
    proto, _ = linears(rng)
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
    model = fo.load_onnx(proto, precision="bfloat16")
    for rows in (40, 41, 7, 1, 300):
        x = rng.standard_normal((rows, 200)).astype(np.float32)
        np.testing.assert_allclose(model(x), fo.load_onnx(proto)(x), rtol=0.05, atol=1e-3)


@needs_bfloat16
def test_sessions_that_share_layers_plan_at_the_same_time(rng):
    """A network and its decoder have a lock each."""
    count, width = 60, 256
    weights = {f"w{i}": rng.standard_normal((width, width)).astype(np.float32) / 16 for i in range(count)}
    proto = network(
        "; ".join(f"h{i + 1} = MatMul h{i} w{i}" for i in range(count)),
        {"h0": np.empty((64, width), np.float32)}, weights, count,
    )  # fmt: skip
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
    session = fo.load_onnx(proto, precision="bfloat16")._session
    inputs = [rng.standard_normal((n, width)).astype(np.float32) for n in (64, 65, 66)]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(2) as pool:
            first, second = pool.map(lambda s: [s.run((x,))[0] for x in inputs], (session, session.keeping([])))
    finally:
        sys.setswitchinterval(before)
    for y, z in zip(first, second, strict=True):
        np.testing.assert_array_equal(y, z)
    packed = [key for key in session.layers if isinstance(key, tuple)]
    assert packed and not any(key in session.layers for key, _ in packed)  # what they were made of is let go


def test_batches_in_tiles(rng):
    """A batch, which runs in tiles, has the bits of its images."""
    proto, x = chain(rng)
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
    model = fo.load_onnx(proto, precision="bfloat16")
    batch = rng.standard_normal((12, *x.shape[1:])).astype(np.float32)
    y = model(batch)
    for i in range(12):
        np.testing.assert_array_equal(y[i : i + 1], model(batch[i : i + 1]))


def test_saved_with_its_precision(rng, tmp_path):
    proto, x = chain(rng)
    model = fo.load_onnx(proto, precision="bfloat16")
    model.save(tmp_path / "model.fo")
    again = fo.load(tmp_path / "model.fo")
    np.testing.assert_array_equal(again(x), model(x))
    assert types(again, x) == types(model, x)


def test_unknown_precision(rng):
    proto, _ = chain(rng)
    with pytest.raises(ValueError, match="unknown precision 'half'; known are 'float32', 'bfloat16'"):
        fo.load_onnx(proto, precision="half")


def test_command_line(rng, tmp_path, capsys):
    proto, _ = chain(rng)
    path = tmp_path / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    assert cli.main(["explain", str(path), "--precision", "bfloat16"]) in (0, None)
    assert "epilogue" in capsys.readouterr().out
    fo.load_onnx(proto, precision="bfloat16").save(tmp_path / "model.fo")
    assert cli.main(["explain", str(tmp_path / "model.fo"), "--precision", "bfloat16"])
    assert "was saved with its precision" in capsys.readouterr().err


def test_from_torch(rng):
    torch = pytest.importorskip("torch")
    module = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 32)).eval()
    x = torch.randn(50, 64)
    model = fo.from_torch(module, x, precision="bfloat16")
    with torch.no_grad():
        np.testing.assert_allclose(model(x.numpy()), module(x).numpy(), rtol=0.05, atol=0.02)
    layer = fo.from_torch(module[0], precision="bfloat16")
    np.testing.assert_array_equal(
        layer(x.numpy()),
        fo.Linear(*[p.detach().numpy() for p in module[0].parameters()], precision="bfloat16")(x.numpy()),
    )
    spread = fo.from_torch(torch.nn.ConvTranspose2d(3, 4, 2, output_padding=0), precision="bfloat16")
    assert "precision='bfloat16'" in repr(spread)


def test_layers_of_torch(rng):
    """Recurrent layers and attention, each alone, take a precision."""
    torch = pytest.importorskip("torch")
    x = rng.standard_normal((7, 3, 16)).astype(np.float32)
    for module in (torch.nn.LSTM(16, 8, 2), torch.nn.GRU(16, 8), torch.nn.RNN(16, 8)):
        layer = fo.from_torch(module, precision="bfloat16")
        with torch.no_grad():
            np.testing.assert_allclose(layer(x)[0], module(torch.from_numpy(x))[0].numpy(), atol=0.02)
        assert "precision='bfloat16'" in repr(layer)
    cell = fo.from_torch(torch.nn.GRUCell(16, 8), precision="bfloat16")
    assert "precision='bfloat16'" in repr(cell)
    module = torch.nn.MultiheadAttention(16, 2).eval()
    layer, given = fo.from_torch(module, precision="bfloat16"), torch.from_numpy(x)
    with torch.no_grad():
        np.testing.assert_allclose(layer(x), module(given, given, given)[0].numpy(), atol=0.02)


GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


def recurrent(rng, op, batch=16, units=96):
    """A layer and x."""
    rows = GATES[op] * units
    w, r = (rng.standard_normal((1, rows, units)).astype(np.float32) / 8 for _ in range(2))
    x = rng.standard_normal((5, batch, units)).astype(np.float32)
    return network(f"y = {op} x w r", {"x": x}, dict(w=w, r=r), 4), x, getattr(fo, op).from_onnx(w, r)


def attention(rng, t=64, s=80, heads=2):
    q, k, v = (rng.standard_normal((1, heads, n, 32)).astype(np.float32) for n in (t, s, s))
    inputs = dict(q=q, k=np.ascontiguousarray(k.swapaxes(2, 3)), v=v)
    proto = network("s = MatMul q k; w = Softmax s; y = MatMul w v", inputs, {}, 4)
    return proto, tuple(inputs.values()), (q, k, v)


def why_not(model):
    return [r.reason for r in model.explain().refusals if r.kind == "precision"]


@needs_bfloat16
@pytest.mark.parametrize("op", GATES)
def test_recurrent_layers(rng, tmp_path, op):
    proto, x, layer = recurrent(rng, op)
    model = fo.load_onnx(proto, precision="bfloat16")
    y = model(x)
    assert not why_not(model)
    cells = [type(c)(*c._arguments[0], **c._arguments[1] | {"precision": "bfloat16"}) for c in layer.cells]
    states = [np.zeros((16, 96), np.float32)] * (2 if op == "LSTM" else 1)
    for t in range(5):
        states = cells[0](x[t], *states) if op == "LSTM" else [cells[0](x[t], *states)]
        np.testing.assert_array_equal(y[t, 0], states[0])
    model.save(tmp_path / "model.fo")
    np.testing.assert_array_equal(fo.load(tmp_path / "model.fo")(x), y)


@needs_bfloat16
def test_attention(rng, tmp_path):
    proto, given, (q, k, v) = attention(rng)
    model = fo.load_onnx(proto, precision="bfloat16")
    y = model(*given)
    assert not why_not(model)
    np.testing.assert_array_equal(y, fo.attention(q, k, v, scale=1, precision="bfloat16"))
    model.save(tmp_path / "model.fo")
    np.testing.assert_array_equal(fo.load(tmp_path / "model.fo")(*given), y)


def transposed(rng, kernel=2, channels=64):
    w = rng.standard_normal((channels, 32, kernel, kernel)).astype(np.float32) / 16
    proto = parse_model(
        f'<ir_version: 8, opset_import: ["" : 17]> g (float[2, {channels}, 20, 20] x) => (float[2, 32, p, q] y) '
        "{ a = ConvTranspose<strides=[2,2]>(x, k) y = Relu(a) }"
    )
    proto.graph.initializer.append(numpy_helper.from_array(w, "k"))
    return proto, w, rng.standard_normal((2, channels, 20, 20)).astype(np.float32)


@needs_bfloat16
@pytest.mark.parametrize("kernel", [2, 3])
def test_transposed_convolutions(rng, tmp_path, kernel):
    proto, w, x = transposed(rng, kernel)
    model = fo.load_onnx(proto, precision="bfloat16")
    y = model(x)
    assert not why_not(model)
    layer = fo.ConvTranspose2d(w, stride=2, activation="relu", precision="bfloat16")
    np.testing.assert_array_equal(y, layer(x))
    model.save(tmp_path / "model.fo")
    np.testing.assert_array_equal(fo.load(tmp_path / "model.fo")(x), y)


@needs_bfloat16
def test_transposed_convolutions_over_three_axes(rng):
    """Each tap of the depth is a layer of its own."""
    torch = pytest.importorskip("torch")
    module, x = torch.nn.ConvTranspose3d(64, 64, 3, stride=2).eval(), torch.randn(1, 64, 3, 12, 12)
    model = fo.from_torch(module, x, precision="bfloat16")
    y, expected = model(x.numpy()), module(x).detach().numpy()
    assert not why_not(model)
    assert 1e-5 < np.abs(y - expected).max() / np.abs(expected).max() < 0.01


def test_transposed_convolutions_that_stay_float32(rng):
    """Two channels: the results take longer than the products."""
    proto, _, x = transposed(rng, channels=2)
    model = fo.load_onnx(proto, precision="bfloat16")
    np.testing.assert_array_equal(model(x), fo.load_onnx(proto)(x))
    assert len(why_not(model)) == 1


@pytest.mark.parametrize("instruction", [True, False])
def test_recurrent_layers_and_attention_that_stay_float32(rng, instruction):
    """Few numbers, one query, and any where the processor lacks the instruction: the bits of float32, and why."""
    with using_machine(dot_product=_core.machine()["dot_product"] and instruction):
        for proto, *given in (recurrent(rng, "LSTM", 1, 4)[:2], (lambda a: (a[0], *a[1]))(attention(rng, 1))):
            model = fo.load_onnx(proto, precision="bfloat16")
            np.testing.assert_array_equal(model(*given), fo.load_onnx(proto)(*given))
            (reason,) = why_not(model)
            assert ("float32 is predicted" if _core.has_bfloat16() else "no product of bfloat16") in reason


def test_images_in_planes_are_moved(rng):
    """The input and the output of a network, which takes longer; what is between them has its channels last."""
    w, v = rng.standard_normal((16, 32, 1, 1), np.float32), rng.standard_normal((24, 16, 3, 3), np.float32)
    x = rng.standard_normal((1, 32, 20, 20), np.float32)
    model = fo.load_onnx(network("a = Conv x w; b = Relu a; y = Conv b v", {"x": x}, dict(w=w, v=v), 4))
    first, second = map(call_of, model._plan(x)[0].steps)
    assert (first[4], second[4]) == (32 * 20 * 20, 24 * 18 * 18)
    for call in first, second:
        there = of_layer(*call[:4], 0, True)[1]
        assert of_layer(*call, True)[1] == there + _core.bfloat16_nanoseconds(2 * call[4]) or there == np.inf
