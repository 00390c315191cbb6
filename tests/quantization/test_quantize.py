"""Networks in int8: ranges, channels made alike, the choice of layers, what the outputs lose, files and errors."""

import itertools
import pickle
import re

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper

import fusedops as fo
from catalog import INT8_PRODUCTS, using_int8_products, using_isa
from fusedops import _core, cli
from fusedops.benchmark import report
from fusedops.graph.frontends import native
from fusedops.graph.inference import cost as layer_costs
from fusedops.graph.ir.explanation import Quantized
from fusedops.graph.ir.graph import Graph, Node, Value
from fusedops.graph.ir.options import BuildOptions
from fusedops.graph.quantization import calibration, choice, equalization, quantizer
from fusedops.graph.quantization import timing as layer_times

MEASURED = layer_times.measured
MSE = calibration.method_of("mse")


class Net:
    """An ONNX network, a layer at a time."""

    def __init__(self, *shape, seed=0):
        self.rng, self.nodes, self.constants = np.random.default_rng(seed), [], []
        self.x, self.shape, self.channels = "x", shape, shape[1]

    def constant(self, name, array):
        self.constants.append(numpy_helper.from_array(np.asarray(array, np.float32), name))
        return name

    def node(self, op, inputs, name, **attrs):
        self.nodes.append(helper.make_node(op, inputs, [f"{name}.y"], name=name, **attrs))
        return f"{name}.y"

    def conv(self, x, outputs, kernel, name, groups=1, stride=1, activation="Relu", channels=None):
        """With a batch norm whose channels differ widely in range."""
        c = (channels or self.channels) // groups
        w = self.rng.standard_normal((outputs, c, kernel, kernel)) * np.sqrt(2 / (c * kernel**2))
        inputs = [x, self.constant(f"{name}.w", w)]
        y = self.node("Conv", inputs, name, pads=[kernel // 2] * 4, group=groups, strides=[stride] * 2)
        gamma, beta, mean = np.exp(self.rng.standard_normal(outputs)), *self.rng.standard_normal((2, outputs)) * 0.2
        values = zip("gbmv", (gamma, beta, mean, self.rng.uniform(0.5, 1.5, outputs)), strict=True)
        y = self.node("BatchNormalization", [y, *(self.constant(f"{name}.{k}", a) for k, a in values)], f"{name}.bn")
        self.channels = outputs
        return self.node(activation, [y], f"{name}.act") if activation else y

    def linear(self, x, inputs, outputs, name, activation=None):
        w = self.rng.standard_normal((outputs, inputs)) / np.sqrt(inputs)
        y = self.node(
            "Gemm",
            [x, self.constant(f"{name}.w", w), self.constant(f"{name}.b", self.rng.standard_normal(outputs))],
            name,
            transB=1,
        )
        return self.node(activation, [y], f"{name}.act") if activation else y

    def proto(self, *results):
        inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, self.shape)]
        outputs = [helper.make_tensor_value_info(v, TensorProto.FLOAT, None) for v in results]
        graph = helper.make_graph(self.nodes, "net", inputs, outputs, self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def images(batch="n"):
    """A stem, a pool, a depthwise layer, a residual, a mean and a product."""
    net = Net(batch, 3, 32, 32)
    pool = net.node("MaxPool", [net.conv("x", 16, 3, "stem")], "pool", kernel_shape=[2, 2], strides=[2, 2])
    y = net.conv(net.conv(pool, 32, 1, "expand"), 32, 3, "depthwise", groups=32)
    y = net.node("Relu", [net.node("Add", [net.conv(y, 16, 1, "project", activation=None), pool], "add")], "sum")
    y = net.node("GlobalAveragePool", [net.conv(y, 32, 3, "last", stride=2)], "mean")
    return net.proto(net.linear(net.node("Flatten", [y], "flat"), 32, 10, "head"))


def branches():
    """A concatenation of two layers, whose bytes have one scale."""
    net = Net("n", 8, 12, 12)
    stem = net.conv("x", 16, 3, "stem")
    parts = [net.conv(stem, n, k, f"branch{k}", channels=16) for n, k in ((24, 1), (8, 3))]
    y = net.conv(net.node("Concat", parts, "joined", axis=1), 16, 1, "last", channels=32)
    return net.proto(net.node("GlobalAveragePool", [y], "mean"))


def rows():
    net = Net("n", 64)
    y = net.linear(net.linear("x", 64, 128, "first", "Relu"), 128, 128, "second", "Tanh")
    return net.proto(net.linear(y, 128, 10, "third"))


def samples_of(model, count=4, batch=2, seed=1):
    rng, shape = np.random.default_rng(seed), model.inputs[0].shape
    return [rng.standard_normal((batch, *shape[1:]), np.float32) for _ in range(count)]


def decibels(y, moved):
    noise = ((moved.astype(np.float64) - y) ** 2).sum()
    return 10 * np.log10((y.astype(np.float64) ** 2).sum() / max(noise, 1e-300))


@pytest.fixture(autouse=True)
def by_prediction(monkeypatch):
    """The networks here are too small for int8 to be faster than float32."""
    monkeypatch.setattr(layer_times, "measured", lambda *_: layer_times.Times({}, (0.0, 1.0)))


@pytest.fixture
def cheap(monkeypatch):
    """int8 are worth it for every layer, on every machine."""
    monkeypatch.setattr(choice, "cost_of", lambda *case: choice.Cost(1e3, 1e7))
    monkeypatch.setattr(layer_costs, "unquantized", lambda *shapes: 0.5)


# ---- whole networks --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["mse", "minmax", "percentile", ("percentile", 99.9)])
@pytest.mark.parametrize("make, layers", [(images, 6), (branches, 4), (rows, 3)])
def test_outputs_stay_near_float32(make, layers, method, cheap):
    model = fo.load_onnx(make())
    small = model.quantize(samples_of(model), calibration=method)
    done = small.explain().quantized
    bound = 18 if method == ("percentile", 99.9) else 25  # it cuts off what others keep
    assert [layer.bits for layer in done.layers] == [8] * layers and all(layer.snr > bound for layer in done.layers)
    for x in samples_of(model, seed=2):  # others than those of the calibration
        assert decibels(model(x), small(x)) > bound
        assert not np.array_equal(model(x), small(x))
    assert len(small(samples_of(model, batch=5)[0])) == 5


@pytest.mark.skipif(not _core.has_bfloat16(), reason="the processor has no dot product of bfloat16")
def test_what_is_kept_has_the_precision_of_the_network(cheap):
    """int8 and bfloat16 in one network, whose errors are those of both."""
    plain, model = fo.load_onnx(rows()), fo.load_onnx(rows(), precision="bfloat16")
    samples = samples_of(model, batch=64)
    small, wide = (network.quantize(samples, keep=["second"]) for network in (model, plain))
    layers = [s.arguments["layer"] for s in small._plan(samples[0])[0].steps if s.kind == "qlinear"]
    assert [isinstance(layer, fo.Linear) for layer in layers] == [False, True, False]
    assert "precision='bfloat16'" in repr(layers[1])
    assert small.explain().quantized.outputs[0].snr != wide.explain().quantized.outputs[0].snr
    assert decibels(plain(samples[0]), small(samples[0])) > 20


@pytest.mark.skipif(not _core.has_bfloat16(), reason="the processor has no dot product of bfloat16")
def test_what_stays_bfloat16_is_called_so():
    for precision, bits in ("bfloat16", 16), ("float32", 32):
        model = fo.load_onnx(rows(), precision=precision)
        done = model.quantize(samples_of(model, batch=64), keep=["second"]).explain().quantized
        assert [layer.bits for layer in done.layers if layer.node == "second"] == [bits]
        assert f" {precision} " in str(done) and ("without it" in str(done)) == (bits == 16)


def test_layers_that_bfloat16_makes_faster_stay_floats():
    node, shapes = Node("Linear", "product", ["x", "w"], ["y"]), {"x": (512, 512), "y": (512, 512)}
    (ns, float_ns), (same, narrow_ns) = (choice.cost_of(node, shapes, None, kind) for kind in ("float32", "bfloat16"))
    assert ns == same and (narrow_ns < float_ns if _core.has_bfloat16() else narrow_ns == float_ns)


def test_what_is_said_of_outputs_is_what_they_lost(cheap):
    model = fo.load_onnx(images())
    given = samples_of(model)
    small = model.quantize(given)
    y, moved = (np.concatenate([m(x) for x in given]) for m in (model, small))
    assert small.explain().quantized.outputs[0].snr == pytest.approx(decibels(y, moved), abs=0.01)


def test_weights_are_int8_with_a_scale_a_channel(cheap):
    model = fo.load_onnx(images())
    source = model.quantize(samples_of(model))._source
    pairs = {n.output: n for n in source.nodes if n.op == "DequantizeLinear"}
    layers = [n for n in source.nodes if n.op in ("Conv", "MatMul")]
    assert len(layers) == 6 and all(n.inputs[0] in pairs for n in layers)
    for n in layers:
        w, scale, zero = (source.constants[v] for v in pairs[n.inputs[1]].inputs)
        w = w.T if n.op == "MatMul" else w
        assert w.dtype == np.int8 and scale.shape == zero.shape == (len(w),) and not zero.any()
        assert (np.abs(w.reshape(len(w), -1).astype(int)).max(1) == 127).all()


@pytest.mark.parametrize("make", [images, rows, branches])
def test_layers_in_8_bits_are_fused(make, cheap):
    """Nothing between the first layer and the last one is floats, but what pools and means make."""
    model = fo.load_onnx(make())
    small = model.quantize(samples_of(model))
    ops = [n.op for n in small._graph.nodes]
    layers = [layer for layer in small.explain().quantized.layers if layer.bits == 8]
    assert len(layers) == sum(op in ("QuantizedConv", "QuantizedLinear") for op in ops) > 2
    assert make is images or ops.count("QuantizeLinear") == 1
    assert not {"DequantizeLinear", "Add", "Activation"}.intersection(ops)
    x = samples_of(model, seed=4)[0]
    unfused = fo.Model.built(small._source, BuildOptions(fuse=False))
    assert decibels(unfused(x), small(x)) > 35  # a byte off by one where a product is within rounding of a half


def test_bytes_that_move_keep_their_scale(cheap):
    """So that the pairs in front of a concatenation and the one after it are one."""
    model = fo.load_onnx(branches())
    source = model.quantize(samples_of(model))._source
    joined = next(n for n in source.nodes if n.op == "Concat")
    pairs = [n for n in source.nodes if n.output in joined.inputs] + [
        n for n in source.nodes if n.input(0) == joined.output
    ]
    assert [n.op for n in pairs] == ["DequantizeLinear", "DequantizeLinear", "QuantizeLinear"]
    assert len({tuple(source.constants[v].item() for v in n.inputs[1:]) for n in pairs}) == 1


@pytest.mark.parametrize("make", [images, rows])
def test_saved_and_copied_networks_have_the_same_bits(make, cheap, tmp_path):
    model = fo.load_onnx(make())
    small = model.quantize(samples_of(model))
    small.save(tmp_path / "small.fo")
    x = samples_of(model, seed=3)[0]
    for other in (fo.load(tmp_path / "small.fo"), pickle.loads(pickle.dumps(small))):
        assert np.array_equal(other(x), small(x))
        assert other.explain().quantized == small.explain().quantized and str(other.explain()) == str(small.explain())


def test_a_saved_float32_network_and_dicts_will_do(cheap, tmp_path):
    model = fo.load_onnx(images(batch=2))
    model.save(tmp_path / "model.fo")
    given = samples_of(model)
    a, b = model.quantize(iter(given)), fo.load(tmp_path / "model.fo").quantize([{"x": x} for x in given])
    assert np.array_equal(a(given[0]), b(given[0])) and a.explain().quantized == b.explain().quantized


def test_a_network_that_was_loaded_unfused_is_folded_first(cheap):
    a, b = (fo.load_onnx(images(), fold=f, fuse=f) for f in (True, False))
    given = samples_of(a)
    assert a.quantize(given).explain().quantized.layers == b.quantize(given).explain().quantized.layers
    y, z = a.quantize(given)(given[0]), b.quantize(given)(given[0])
    assert decibels(y, z) > 40


# ---- ranges ----------------------------------------------------------------------------------------------------------


def seen(x):
    r = calibration.Range()
    r.widen(x)
    r.count(x)
    return r


def test_ranges():
    x = np.float32([-1, 0, 4.1])
    q = seen(x).quantization(("minmax", None))
    assert q.scale == pytest.approx(5.1 / 255) and q.zero_point == 50
    assert seen(np.float32([2, 3])).quantization(("minmax", None)) == (pytest.approx(3 / 255), 0)
    assert seen(np.zeros(3, np.float32)).quantization(MSE) == (1.0, 0)
    many = np.r_[np.linspace(0, 1, 99_900), np.full(100, 50)].astype(np.float32)
    assert 0.9 < seen(many).quantization(("percentile", 99.8)).scale * 255 < 1.1
    assert seen(many).quantization(("percentile", 100.0)).scale * 255 == pytest.approx(50, rel=1e-3)


def test_lowest_error_is_lower(rng=np.random.default_rng(0)):
    x = np.r_[rng.standard_normal(200_000), 40].astype(np.float32)

    def error(q):
        return ((fo.dequantize(fo.quantize(x, q), q) - x) ** 2).sum()

    r = seen(x)
    assert error(r.quantization(MSE)) < 0.9 * error(r.quantization(("minmax", None)))
    assert error(r.quantization(MSE)) < error(r.quantization(calibration.method_of("percentile")))


# ---- channels made alike ---------------------------------------------------------------------------------------------


def chain(activation, depthwise, rng):
    """Two convolutions, or products where `depthwise` is None."""
    scale = np.exp(2 * rng.standard_normal(8)).astype(np.float32)
    if depthwise is None:
        w = rng.standard_normal((8, 4)).astype(np.float32) * scale[:, None], rng.standard_normal((5, 8))
        attrs, shape = {}, (30, 4)
    else:
        w = (
            rng.standard_normal((8, 4, 1, 1)).astype(np.float32) * scale[:, None, None, None],
            rng.standard_normal((16, 1, 3, 3) if depthwise else (5, 8, 3, 3)),
        )
        attrs, shape = {"group": 8} if depthwise else {}, (2, 4, 6, 6)
    op = "Linear" if depthwise is None else "Conv"
    constants = {"w": w[0], "b": rng.standard_normal(8).astype(np.float32), "v": w[1].astype(np.float32)}
    nodes = [
        Node(op, "first", ["x", "w", "b"], ["h"], activation=activation),
        Node(op, "second", ["h", "v"], ["y"], attrs),
    ]
    value = Value("x", shape, np.dtype(np.float32))
    return Graph(nodes, constants, [value], [Value("y", None, value.dtype)], ["y"], 17), shape


def in_float64(graph, x):
    values = {"x": x.astype(np.float64)} | {v: a.astype(np.float64) for v, a in graph.constants.items()}
    for n in graph.nodes:
        values[n.output] = quantizer.evaluate(n, [values[v] for v in n.inputs])[0]
    return values["h"], values["y"]


@pytest.mark.parametrize("depthwise", [False, True, None])
@pytest.mark.parametrize("activation", [None, "relu", ("leaky_relu", 0.1), ("prelu", np.linspace(0, 1, 8, dtype="f"))])
def test_equalised_networks_compute_the_same(activation, depthwise):
    if depthwise is None and isinstance(activation, tuple) and activation[0] == "prelu":
        activation = "relu"  # products have no channels for slopes
    rng = np.random.default_rng(0)
    graph, shape = chain(activation, depthwise, rng)
    other, x = graph.copy(), rng.standard_normal(shape).astype(np.float32)
    h, y = in_float64(graph, x)
    axes = tuple(a for a in range(h.ndim) if a != (1 if h.ndim == 4 else h.ndim - 1))
    assert equalization.equalize(other, {"h": np.abs(h).max(axes)}) == ["h"]
    moved, z = in_float64(other, x)
    assert np.array_equal(y, z) and not np.array_equal(h, moved)
    before, after = (np.abs(a).max(axes)[np.abs(h).max(axes) > 0] for a in (h, moved))
    assert np.ptp(np.log2(after)) < 0.8 * np.ptp(np.log2(before))
    assert np.array_equal(fo.Model(graph, [])(x), fo.Model(other, [])(x))


@pytest.mark.parametrize(
    "change",
    [
        dict(activation="tanh"),
        dict(activation="relu6"),
        dict(residual="x"),
        dict(op="MatMul"),
        "output",
        "second reader",
    ],
)
def test_values_that_may_not_be_scaled(change):
    graph, _ = chain("relu", False, np.random.default_rng(0))
    assert len(equalization.pairs(graph)) == 1
    if change == "output":
        graph.results.append("h")
    elif change == "second reader":
        graph.nodes.append(Node("Conv", "third", ["h", "v"], ["z"]))
    else:
        for key, value in change.items():
            setattr(graph.nodes[0], key, value)
    assert not equalization.pairs(graph)


def test_biases_take_up_the_mean_error():
    errors, rng = quantizer._Errors(), np.random.default_rng(0)
    for _ in range(3):
        y = rng.standard_normal((2, 4, 5, 5))
        errors.add(y, y + np.arange(4).reshape(4, 1, 1) + 0.01 * rng.standard_normal(y.shape), 1)
    assert np.allclose(errors.bias, -np.arange(4), atol=0.01) and 35 < errors.snr < 45


# ---- the choice ------------------------------------------------------------------------------------------------------


def row_of(costs, *, residual=False):
    """Products in a row of as many layers, of 1000 elements each."""
    nodes = [Node("Linear", f"n{i}", [f"v{i}", f"w{i}"], [f"v{i + 1}"]) for i in range(len(costs))]
    if residual:
        nodes[-1].residual = "v1"
    values = [Value(v, (10, 100), np.dtype(np.float32)) for v in ("v0", f"v{len(nodes)}")]
    graph = Graph(
        nodes,
        {f"w{i}": np.ones((1, 1), np.float32) for i in range(len(nodes))},
        values[:1],
        values[1:],
        [values[1].name],
        17,
    )
    return graph, dict(zip(nodes, costs, strict=True)), {f"v{i}": (10, 100) for i in range(len(nodes) + 1)}


def least(graph, costs, way):
    """The least cost of all choices, one by one."""
    nodes, inner = graph.nodes, [n.output for n in graph.nodes[:-1]]
    best = np.inf
    for layers, bytes_ in itertools.product(
        itertools.product((0, 1), repeat=len(nodes)), itertools.product((0, 1), repeat=len(inner) + 1)
    ):
        eight = dict(zip(nodes, layers, strict=True)) | dict(zip(["v0", *inner], bytes_, strict=True))
        total = way * eight["v0"]
        for n in nodes:
            total += costs[n].ns * 1.1 if eight[n] else costs[n].float_ns
            total += way * (eight[n] != eight[n.inputs[0]]) + way * (eight.get(n.output, 0) > eight[n])
            total += way * bool(n.residual and eight[n.residual] > eight[n])
        best = min(best, total)
    return best


@pytest.mark.parametrize("seed", range(12))
def test_the_choice_is_the_cheapest(seed):
    rng, way = np.random.default_rng(seed), _core.convert_nanoseconds(1000)
    graph, costs, shapes = row_of([choice.Cost(*rng.uniform(0, 4 * way, 2)) for _ in range(5)], residual=seed % 2)
    eight, _, ns, float_ns = choice.choose(graph, costs, shapes, ())
    doubt = 0.1 * sum(costs[n].ns for n in eight)
    assert ns + doubt == pytest.approx(least(graph, costs, way)) and ns <= float_ns + 1e-9


@pytest.mark.parametrize(
    "gains, chosen",
    [
        ([0, 0.8, 0], []),
        ([0, 1.2, 0], [1]),
        ([0, 0.6, 0.6, 0], [1, 2]),
        ([1.5, -0.5, 1.5], [0, 1, 2]),
        ([1.5, -1.5, 1.5], [0, 2]),
        ([0.9], []),
    ],
)
def test_a_layer_between_floats_pays_for_its_conversion(gains, chosen):
    """In conversions; what a layer in int8 writes may be floats for nothing."""
    way = _core.convert_nanoseconds(1000)
    costs = [choice.Cost(max(-g, 0) * way, max(g, 0) * way) for g in gains]
    graph, costs, shapes = row_of(costs)
    eight, values, *_ = choice.choose(graph, costs, shapes, ())
    assert [i for i, n in enumerate(graph.nodes) if n in eight] == chosen
    assert ("v2" in values) == (chosen in ([1, 2], [0, 1, 2]))


def test_what_may_stay_bytes_between_layers():
    shapes = {"a": (2, 8, 4, 4), "b": (2, 8, 4, 4), "gate": (2, 8, 1, 1)}
    for inputs, change, reads in (
        ("ab", {}, ["a", "b"]),
        ("ab", dict(activation="relu"), ["a", "b"]),
        ("ab", dict(activation="silu"), []),
        ("ab", dict(op="Div"), []),
        (["a", "gate"], dict(op="Mul"), []),
        ("a", dict(op="GlobalAveragePool"), ["a"]),
        ("a", dict(op="Flatten"), ["a"]),
        ("a", dict(op="Flatten", activation="relu"), []),
    ):
        node = Node("Add", "n", list(inputs), ["y"])
        for key, value in change.items():
            setattr(node, key, value)
        assert choice.taken(node, shapes) == reads


@pytest.mark.parametrize("kind", INT8_PRODUCTS)
@pytest.mark.parametrize("make", [images, rows])
def test_never_slower_than_float32(make, isa, kind):
    """By the nanoseconds that are predicted, conversions among them."""
    with using_int8_products(kind):
        model = fo.load_onnx(make())
        done = model.quantize(samples_of(model, 1, 64)).explain().quantized
    assert done.ns <= done.float_ns and done.gain >= 1
    for layer in done.layers:
        assert layer.bits == 8 or layer.reason
    if not any(layer.bits == 8 for layer in done.layers):
        assert done.ns == done.float_ns and done.outputs[0].snr > 100


def test_what_is_predicted_for_the_layers_and_for_the_network(cheap):
    """The network has nodes that are no layers, and layers that stay float32."""
    net = Net("n", 64)
    y = net.node("Softmax", [net.linear("x", 64, 64, "first", "Relu")], "softmax")
    model = fo.load_onnx(net.proto(net.linear(y, 64, 64, "second")))
    done = model.quantize([X], keep=("second",)).explain().quantized
    first, second = done.layers
    assert (first.bits, second.bits) == (8, 32)
    assert done.changed_gain == pytest.approx(first.float_ns / first.ns)
    assert done.other_ns > 0
    assert done.network_gain == pytest.approx((done.float_ns + done.other_ns) / (done.ns + done.other_ns))
    assert 1 < done.network_gain < done.gain < done.changed_gain
    assert f"{done.changed_gain:.2f} times as fast as in float32, the whole network {done.network_gain:.2f}" in str(
        done
    )
    assert done.as_dict()["network_gain"] == done.network_gain


def test_a_report_of_an_earlier_version():
    """Has no prediction of what is no layer."""
    done = native._part_of_report(["Quantized", ["mse", [], [], 1.0, 2.0]])
    assert done.gain == 2 and done.network_gain is None and "whole network" not in str(done)


def test_what_other_nodes_are_predicted_to_take():
    """Products of computed values by their multiply-adds, all else by what is read and written; views nothing."""
    x, y = (8, 64, 64), (8, 64, 64)
    shapes = dict(x=x, y=y, z=y, v=(64, 512))
    product = layer_costs.of_others([Node("MatMul", "m", ["x", "y"], ["z"])], shapes)
    assert product == pytest.approx(8 * _core.linear_nanoseconds(64, 64, 64)[0])
    attention = layer_costs.of_others([Node("SoftmaxProduct", "a", ["x", "y", "y"], ["z"])], shapes)
    assert attention == pytest.approx(2 * product)
    passed = layer_costs.of_others([Node("Softmax", "s", ["x"], ["y"])], shapes)
    assert passed == pytest.approx(_core.convert_nanoseconds(2 * 8 * 64 * 64))
    assert layer_costs.of_others([Node("Reshape", "r", ["x", "shape"], ["v"])], shapes) == 0


def test_predictions_depend_on_what_the_processor_has():
    layer = fo.Conv2d(np.ones((256, 128, 1, 1), np.float32), layout="NHWC")
    gains = []
    for isa, kind in ("avx512", "amx"), *itertools.product(("avx2", "neon"), ("dots", "words")):
        if isa not in fo.available_isas():
            continue
        with using_isa(isa), using_int8_products(kind) as there:
            if not there:
                continue
            float_ns, ns, _ = layer._nanoseconds((1, 28, 28), (28, 28), 0, 0)
            gains.append(float_ns / ns)
            assert layer._nanoseconds((2, 28, 28), (28, 28), 0, 0)[:2] == pytest.approx(
                (2 * float_ns, 2 * ns), rel=0.01
            )
    if not gains:
        pytest.skip("no set with and without dot products")
    assert gains == sorted(set(gains), reverse=True) and gains[-1] < 1.5


# ---- bounds and what is kept -----------------------------------------------------------------------------------------


def reasons(model):
    return {layer.node: layer.reason for layer in model.explain().quantized.layers}


def test_layers_that_stay_float32_say_why(cheap):
    model = fo.load_onnx(images())
    given = samples_of(model)
    kept = model.quantize(given, keep=("depthwise",))
    assert reasons(kept) == dict.fromkeys(reasons(kept), "") | {"depthwise": "kept, as was asked"}
    snrs = sorted(layer.snr for layer in kept.explain().quantized.layers)
    bound = (snrs[1] + snrs[2]) / 2
    some = model.quantize(given, layer_snr=bound)
    assert sum("above the bound" in why for why in reasons(some).values()) == 2
    all_of_them = model.quantize(given, layer_snr=200)
    assert all("above the bound of 200 dB" in why for why in reasons(all_of_them).values())
    assert all_of_them.explain().quantized.outputs[0].snr > 100
    assert "float32" in str(all_of_them.explain()) and "0 of 6" in repr(all_of_them.explain().quantized)


def test_outputs_move_no_farther_than_they_may(cheap):
    model = fo.load_onnx(images())
    given = samples_of(model)
    free = model.quantize(given).explain().quantized
    bound = free.outputs[0].snr + 3
    held = model.quantize(given, snr=bound).explain().quantized
    assert held.outputs[0].snr >= bound and any("beyond the bound" in layer.reason for layer in held.layers)
    told = held.as_dict()["outputs"]
    assert isinstance(held, Quantized) and told == [{"output": "head.y", "snr": held.outputs[0].snr}]


# ---- errors ----------------------------------------------------------------------------------------------------------

X = np.ones((2, 64), np.float32)


@pytest.mark.parametrize(
    "samples, options, error, told",
    [
        ([], {}, ValueError, "samples is empty"),
        (X, {}, TypeError, "pass \\[x\\] for one"),
        (3, {}, TypeError, "samples is of type int"),
        ([X, X.astype(np.float64)], {}, TypeError, "samples\\[1\\]: x has dtype float64"),
        ([X[:, :3]], {}, ValueError, "samples\\[0\\]: x has shape \\(2, 3\\)"),
        ([X[:0]], {}, ValueError, "an empty batch"),
        ([X * np.nan], {}, ValueError, "samples\\[0\\]: x has NaN"),
        ([(X, X)], {}, ValueError, "takes 1 input"),
        ([{"z": X}], {}, ValueError, "takes the inputs x, got z"),
        ([X], dict(calibration="best"), ValueError, "must be 'minmax'"),
        ([X], dict(calibration=("percentile", 3)), ValueError, "above 50 and at most 100"),
        ([X], dict(calibration=("mse", 3)), ValueError, "must be 'minmax'"),
        ([X], dict(keep="first"), TypeError, "keep takes names"),
        ([X], dict(keep=("none",)), ValueError, "not a layer; the layers are first, second, third"),
        ([X], dict(snr="high"), ValueError, "must be decibels"),
        ([X], dict(layer_snr=float("nan")), ValueError, "must be decibels"),
    ],
)
def test_errors(samples, options, error, told):
    with pytest.raises(error, match=told):
        fo.load_onnx(rows()).quantize(samples, **options)


def test_networks_that_have_no_way_to_8_bits(cheap):
    model = fo.load_onnx(rows())
    with pytest.raises(ValueError, match="quantized already"):
        model.quantize([X]).quantize([X])
    net = Net("n", 64)
    with pytest.raises(ValueError, match="no layer that can go to int8"):
        fo.load_onnx(net.proto(net.node("Relu", ["x"], "only"))).quantize([X])


def test_weights_that_are_not_finite_stay_float32(cheap):
    net = Net("n", 64)
    proto = net.proto(net.linear("x", 64, 8, "first"))
    w = numpy_helper.to_array(proto.graph.initializer[0]).copy()
    w[0, 0] = np.inf
    proto.graph.initializer[0].CopyFrom(numpy_helper.from_array(w, "first.w"))
    small = fo.load_onnx(proto).quantize([X])
    assert reasons(small) == {"first": "its weights are not finite"}


@pytest.mark.parametrize(
    "options",
    [dict(calibration=5), dict(calibration=()), dict(calibration=("percentile", "99")), dict(keep=3), dict(snr=b"x")],
)
def test_options_of_other_types(options):
    with pytest.raises((TypeError, ValueError), match=f"{next(iter(options))} is"):
        fo.load_onnx(rows()).quantize([X], **options)


def test_values_that_are_not_finite_keep_their_layers_in_float32(cheap):
    """The logarithm of zeros is an infinity."""
    net = Net("n", 64)
    y = net.node("Log", [net.linear("x", 64, 64, "first", "Relu")], "log")
    small = fo.load_onnx(net.proto(net.linear(y, 64, 64, "second"))).quantize([X])
    assert reasons(small)["second"] == "its values are not finite on the samples"


# ---- the command -----------------------------------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path):
    onnx.save(rows(), tmp_path / "rows.onnx")
    x = np.random.default_rng(0).standard_normal((5, 64)).astype(np.float32)
    np.savez(tmp_path / "x.npz", x=x)
    return tmp_path, x


def test_the_command_writes_a_network(files, cheap, capsys):
    folder, x = files
    command = ["quantize", f"{folder}/rows.onnx", f"{folder}/x.npz", "-o", f"{folder}/rows.fo", "--keep", "third"]
    assert cli.main(command) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("2 of 3 layers in int8") and "kept, as was asked" in shown and "dB" in shown
    assert re.search(
        r"^float32 .*\nint8 .*\n(?:.*\n)?int8: \d+\.\d\d times as fast as float32, "
        r"by the (?:median|min) column; predicted were \d",
        shown,
        re.MULTILINE,
    )
    model = fo.load_onnx(str(folder / "rows.onnx"))
    same = model.quantize([x[i : i + 1] for i in range(5)], keep=("third",))
    assert np.array_equal(fo.load(folder / "rows.fo")(x), same(x))


def test_the_command_does_not_time(files, cheap, capsys, monkeypatch):
    monkeypatch.setattr(report, "benchmark", None)
    folder, _ = files
    command = ["quantize", f"{folder}/rows.onnx", f"{folder}/x.npz", "-o", f"{folder}/rows.fo", "--no-time"]
    assert cli.main(command) == 0
    assert "by the medians" not in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments, told",
    [
        (["absent.onnx", "x.npz"], "absent.onnx"),
        (["rows.onnx", "rows.onnx"], "is not an array of NumPy"),
        (["rows.onnx", "wrong.npz"], "has the arrays a, b, but the network takes x"),
        (["rows.onnx", "many.npz"], "n7 and 4 more, but the network takes x"),
        (["rows.onnx", "saved.npz"], "is a saved network, not samples"),
        (["rows.onnx", "saved.fo"], "is a saved network, not samples; the network to write is named with -o"),
        (["rows.onnx", "short.npz"], "samples[0]: x has shape (1, 3)"),
        (["rows.onnx", "x.npz", "--snr", "nan"], "must be decibels"),
    ],
)
def test_the_command_tells_what_is_wrong(files, arguments, told, capsys):
    folder, x = files
    np.savez(folder / "wrong.npz", a=x, b=x)
    np.savez(folder / "short.npz", any_name=x[:, :3])
    np.savez(folder / "many.npz", **{f"n{i}": x for i in range(12)})
    np.savez(folder / "saved.npz", header=x, a0=x)
    command = ["quantize", *(f"{folder}/{a}" if "." in a and "-" not in a else a for a in arguments)]
    assert cli.main([*command, "-o", f"{folder}/out.fo"]) == 1
    assert told in capsys.readouterr().err and not (folder / "out.fo").exists()


def test_the_command_needs_a_place_to_write(files, capsys):
    folder, _ = files
    assert cli.main(["quantize", f"{folder}/rows.onnx", f"{folder}/x.npz", "-o", f"{folder}/no/out.fo"]) == 1
    assert "cannot be written" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["out.onnx", "out.tflite", "out.PT", "out.npz"])
def test_the_command_writes_no_other_format(files, name, capsys):
    folder, _ = files
    assert cli.main(["quantize", f"{folder}/rows.onnx", f"{folder}/x.npz", "-o", f"{folder}/{name}"]) == 1
    assert "a format of its own, .fo" in capsys.readouterr().err and not (folder / name).exists()


def test_the_command_takes_numpys_own_floats(files, cheap, capsys):
    folder, x = files
    np.save(folder / "x64.npy", x.astype(np.float64))
    for samples in ("x.npz", "x64.npy"):
        command = [
            "quantize",
            f"{folder}/rows.onnx",
            f"{folder}/{samples}",
            "-o",
            f"{folder}/{samples}.fo",
            "--no-time",
        ]
        assert cli.main(command) == 0
    assert np.array_equal(*(fo.load(folder / f"{samples}.fo")(x) for samples in ("x.npz", "x64.npy")))


# ---- what is measured ------------------------------------------------------------------------------------------------


def timed(monkeypatch, of_layers, whole):
    """Measured times: of each layer that is in int8, and of the whole network once."""
    times = iter(whole)
    monkeypatch.setattr(
        layer_times,
        "measured",
        lambda int8, float32, arrays, predicted: layer_times.Times(
            {name: of_layers[name] for name in predicted}, next(times)
        ),
    )


def test_what_is_measured_to_be_slower_stays_float32(cheap, monkeypatch):
    model = fo.load_onnx(rows())
    given = samples_of(model, batch=64)
    of_layers = {"first": (1e-6, 1e-4), "second": (9e-4, 1e-4), "third": (1e-6, 1e-4)}
    timed(monkeypatch, of_layers, [(2e-3, 3e-3)] * 3)
    done = model.quantize(given).explain().quantized
    found = {layer.node: layer for layer in done.layers}
    assert [found[name].bits for name in of_layers] == [8, 32, 8]
    assert found["second"].reason == "it is measured to be slower in int8 here: 900 us, 100 in float32"
    assert found["first"].measured_gain == pytest.approx(100) and (done.ms, done.float_ms) == (2.0, 3.0)
    assert "measured 1.50 times (2 ms, 3 in float32)" in str(done) and "measured" in str(done).splitlines()[1]
    assert done.as_dict()["measured_gain"] == 1.5


def test_a_network_that_is_slower_as_a_whole_stays_float32(cheap, monkeypatch):
    model = fo.load_onnx(rows())
    given = samples_of(model, batch=64)
    timed(monkeypatch, dict.fromkeys(("first", "second", "third"), (1e-6, 1e-4)), [(4e-3, 3e-3)])
    done = model.quantize(given).explain().quantized
    assert {layer.bits for layer in done.layers} == {32} and done.ms is None
    why = "the whole network is measured to be slower in int8 here: 4 ms, 3 in float32"
    assert {layer.reason for layer in done.layers} == {why}
    monkeypatch.setattr(layer_times, "measured", None)
    assert {layer.bits for layer in model.quantize(given, measure=False).explain().quantized.layers} == {8}


def test_times_are_of_both_forms(cheap, monkeypatch):
    """Without a stand-in for the clock: each layer in int8 has two times, and those of blocks are shares."""
    monkeypatch.setattr(layer_times, "measured", MEASURED)
    model = fo.load_onnx(images())
    done = model.quantize(samples_of(model)).explain().quantized
    for layer in done.layers:
        assert layer.us is None or layer.us > 0 and layer.float_us > 0
    assert any(layer.us for layer in done.layers)


def test_measured_times_are_saved(cheap, monkeypatch, tmp_path):
    model = fo.load_onnx(rows())
    timed(monkeypatch, dict.fromkeys(("first", "second", "third"), (1e-6, 1e-4)), [(1e-3, 3e-3)])
    small = model.quantize(samples_of(model, batch=64))
    small.save(tmp_path / "small.fo")
    assert fo.load(tmp_path / "small.fo").explain().quantized == small.explain().quantized


def test_samples_of_files(tmp_path):
    a = np.arange(24, dtype=np.float32).reshape(6, 4)
    np.save(tmp_path / "a.npy", a)
    np.savez(tmp_path / "b.npz", x=a, z=a[:3])

    def value(name, *shape):
        return Value(name, shape, np.dtype(np.float32))

    parts = report.read_samples(tmp_path / "a.npy", [value("x", 2, 4)])
    assert len(parts) == 3 and np.array_equal(parts[1]["x"], a[2:4])
    assert [p["x"].shape for p in report.read_samples(tmp_path / "a.npy", [value("x", "n", 4)])] == [(1, 4)] * 6
    assert [p["x"].shape for p in report.read_samples(tmp_path / "a.npy", [value("x", 4)])] == [(4,)] * 6
    parts = report.read_samples(tmp_path / "b.npz", [value("x", 2, 4), value("z", "n", 4)])
    assert len(parts) == 3 and np.array_equal(parts[2]["z"], a[2:3])
    with pytest.raises(ValueError, match="a multiple of that"):
        report.read_samples(tmp_path / "a.npy", [value("x", 4, 4)])
    with pytest.raises(ValueError, match="6 of x, 3 of z"):
        report.read_samples(tmp_path / "b.npz", [value("x", "n", 4), value("z", "n", 4)])


def test_signal_and_noise_of_outputs_of_any_kind():
    """Integers by how many differ; what is not finite does not count where it stays, and is all noise where not."""
    found, nan = quantizer._signal_and_noise, np.float32([1, np.nan, -np.inf, 2])
    assert found(np.int64([3, 900, 5, 7]), np.int64([3, 4, 5, 7])) == (4, 1)
    assert found(np.array([True, False]), np.array([True, True])) == (2, 1)
    assert found(nan, nan + np.float32([0, 0, 0, 1])) == (5, 1)
    for other in ([1, 0, -np.inf, 2], [1, np.nan, np.inf, 2], [np.nan, np.nan, -np.inf, 2]):
        assert found(nan, np.float32(other))[1] == np.inf == found(np.float32(other), nan)[1]
    assert quantizer.decibels(5, np.inf) == -np.inf and quantizer.decibels(4, 0.04) == pytest.approx(20)
    assert quantizer.decibels(0, 0) == np.inf


def test_a_label_that_changes_is_noise(cheap):
    """It showed as no noise at all."""
    net = Net("n", 64)
    y = net.linear(net.linear("x", 64, 128, "first", "Relu"), 128, 10, "second")
    proto = net.proto(net.node("ArgMax", [y], "label", axis=1))
    proto.graph.output[0].type.tensor_type.elem_type = TensorProto.INT64
    model = fo.load_onnx(proto)
    given = samples_of(model, batch=100)
    small = model.quantize(given, snr=-np.inf)
    labels, others = (np.concatenate([m(x) for x in given]) for m in (model, small))
    differ = np.count_nonzero(labels != others)
    assert differ and small.explain().quantized.outputs[0].snr == pytest.approx(10 * np.log10(labels.size / differ))
