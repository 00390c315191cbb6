"""Attention in networks: whatever form exporters write it in becomes one step, and what is no attention stays."""

import itertools
import math

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper

import fusedops as fo
import oracle

RNG = np.random.default_rng(0)


def some(*shape):
    return RNG.uniform(-2, 2, shape).astype(np.float32)


class Net:
    """Nodes that are added one by one; inputs and constants by their arrays."""

    def __init__(self, **inputs):
        self.nodes, self.constants, self.inputs = [], [], inputs

    def node(self, op, *values, **attributes):
        names = [v if isinstance(v, str) else self.constant(v) for v in values]
        self.nodes.append(
            helper.make_node(op, names, [f"v{len(self.nodes)}"], name=f"{op}{len(self.nodes)}", **attributes)
        )
        return self.nodes[-1].output[0]

    def constant(self, array):
        array = np.asarray(array)
        self.constants.append(numpy_helper.from_array(array, f"c{len(self.constants)}"))
        return self.constants[-1].name

    def model(self, *outputs, opset=17, batch=None):
        types = {np.dtype(np.float32): TensorProto.FLOAT, np.dtype(bool): TensorProto.BOOL}

        def shape(a):
            return [batch, *a.shape[1:]] if batch and a.ndim > 2 else list(a.shape)

        inputs = [helper.make_tensor_value_info(k, types[a.dtype], shape(a)) for k, a in self.inputs.items()]
        results = [helper.make_tensor_value_info(v, TensorProto.FLOAT, None) for v in outputs]
        graph = helper.make_graph(self.nodes, "g", inputs, results, self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def transposed(net, k, axes):
    return net.node("Transpose", k, perm=[*range(axes - 2), axes - 1, axes - 2])


def check(net, expected, *outputs, fused=True, **options):
    """The network as it is fused, after a comparison of all forms with the expected result."""
    proto = net.model(*outputs, **options)
    values = list(net.inputs.values())
    for form in (
        dict(fold=False, fuse=False),
        dict(fold=False),
        dict(fuse=False),
        dict(disabled_passes=("attention",)),
        {},
    ):
        model = fo.load_onnx(proto, **form)
        y = model(*values)
        oracle.check(y if isinstance(y, np.ndarray) else y[0], oracle.Approx(expected.value, 2 * expected.error + 1e-6))
        found = [f for f in model.explain().fusions if f.kind == "attention"]
        assert len(found) == (fused and form.get("fuse", True) and "disabled_passes" not in form), form
    return model


SHAPES = {
    2: ((9, 8), (13, 8), (13, 5)),
    3: ((6, 9, 8), (6, 13, 8), (6, 13, 5)),
    4: ((2, 3, 9, 8), (2, 3, 13, 8), (2, 3, 13, 5)),
    5: ((2, 3, 2, 9, 8), (2, 3, 1, 13, 8), (2, 3, 1, 13, 5)),
}


@pytest.mark.parametrize("axes", SHAPES)
@pytest.mark.parametrize("scaled", ["none", "after", "divided", "before", "both", "split"])
def test_scales(axes, scaled):
    q, k, v = (some(*s) for s in SHAPES[axes])
    net, c = Net(q=q, k=k, v=v), math.sqrt(8)
    a, b = "q", transposed(net, "k", axes)
    if scaled in ("before", "both"):
        a = net.node("Mul", a, np.float32(1 / c))
    if scaled == "split":
        a, b = net.node("Mul", a, np.float32(c**-0.5)), net.node("Mul", b, np.float32(c**-0.5))
    s = net.node("MatMul", a, b)
    if scaled in ("after", "both"):
        s = net.node("Mul", np.float32(2 if scaled == "both" else 1 / c), s)
    if scaled == "divided":
        s = net.node("Div", s, np.float32(c))
    y = net.node("MatMul", net.node("Softmax", s, axis=-1), "v")
    q4, k4, v4 = (x[np.newaxis] if axes == 2 else x for x in (q, k, v))
    scale = {"none": 1, "both": 2 / c}.get(scaled, 1 / c)
    expected = oracle.attention(q4, k4, v4, scale=scale)
    check(net, expected.map(lambda x: x[0]) if axes == 2 else expected, y)


CAUSAL = np.triu(np.full((9, 13), -np.inf, np.float32), 1)
SEEN = RNG.uniform(size=(2, 1, 9, 13)) < 0.6


@pytest.mark.parametrize(
    "masked",
    [
        "causal",
        "causal low",
        "causal bool",
        "given",
        "added",
        "row",
        "where",
        "where constant",
        "where swapped",
        "two",
        "bool to float",
    ],
)
def test_masks(masked):
    q, k, v = (some(*s) for s in SHAPES[4])
    mask, low = some(2, 1, 9, 13), np.float32(np.finfo(np.float32).min)
    net = Net(q=q, k=k, v=v)
    if masked in ("given", "two"):
        net.inputs["mask"] = mask
    if masked in ("where", "where swapped"):
        net.inputs["seen"] = SEEN
    s = net.node("Div", net.node("MatMul", "q", transposed(net, "k", 4)), np.float32(math.sqrt(8)))
    if masked == "causal":
        s, mask = net.node("Add", s, CAUSAL), CAUSAL
    elif masked == "causal low":
        mask = np.where(CAUSAL == 0, np.float32(0), np.float32(-1e4))[np.newaxis, np.newaxis]
        s = net.node("Add", mask, s)
    elif masked == "causal bool":
        s, mask = net.node("Where", (CAUSAL == 0)[np.newaxis], s, np.float32(-1e9)), CAUSAL == 0
    elif masked == "given":
        s = net.node("Add", s, "mask")
    elif masked == "added":
        s = net.node("Add", s, mask)
    elif masked == "row":
        mask = mask[:1, :, :1]
        s = net.node("Add", s, mask)
    elif masked == "where":
        s, mask = net.node("Where", "seen", s, low), SEEN
    elif masked == "where swapped":
        s, mask = net.node("Where", "seen", np.float32(-np.inf), s), ~SEEN
    elif masked == "where constant":
        s, mask = net.node("Where", SEEN, s, np.float32(-np.inf)), SEEN
    elif masked == "two":
        s, mask = net.node("Add", net.node("Add", s, CAUSAL), "mask"), CAUSAL + mask
    elif masked == "bool to float":
        mask = np.where(SEEN, np.float32(0), low)
        s = net.node("Add", s, mask)
    y = net.node("MatMul", net.node("Softmax", s, axis=3), "v")
    model = check(net, oracle.attention(q, k, v, mask=mask), y)
    plan = model._plan(*net.inputs.values())[0]
    (step,) = (step for step in plan.steps if step.kind == "attention")
    assert step.arguments["causal"] == masked.startswith("causal")
    assert (step.arguments["mask"] is None) == masked.startswith("causal")


@pytest.mark.parametrize("masked", ["not", "causal", "given"])
@pytest.mark.parametrize("folded", [False, True], ids=["divided", "scaled"])
def test_caps(masked, folded):
    """c tanh(scores / c), as Gemma 2 has it, before the mask."""
    (q, k, v), cap = (some(*s) for s in SHAPES[4]), 1.5
    mask = {"causal": CAUSAL, "given": some(2, 1, 9, 13)}.get(masked)
    net = Net(q=q, k=k, v=v) if masked != "given" else Net(q=q, k=k, v=v, mask=mask)
    s = net.node("MatMul", "q", transposed(net, "k", 4))
    if folded:
        s = net.node("Mul", s, np.float32(1 / math.sqrt(8) / cap))
    else:
        s = net.node("Div", net.node("Mul", s, np.float32(1 / math.sqrt(8))), np.float32(cap))
    s = net.node("Mul", net.node("Tanh", s), np.float32(cap))
    if mask is not None:
        s = net.node("Add", s, "mask" if masked == "given" else mask)
    y = net.node("MatMul", net.node("Softmax", s, axis=-1), "v")
    model = check(net, oracle.attention(q, k, v, mask=mask, cap=cap), y)
    (step,) = (step for step in model._plan(*net.inputs.values())[0].steps if step.kind == "attention")
    assert step.arguments["softcap"] == cap and step.arguments["causal"] == (masked == "causal")


@pytest.mark.parametrize("batch", [None, "n"])
@pytest.mark.parametrize("form", ["plain", "mask", "bias", "softmax split", "shape"])
def test_heads_joined_for_products(form, batch):
    """(batch * heads, ...) for products, (batch, heads, ...) for masks and results: PyTorch's bmm and baddbmm."""
    q, k, v = (some(*s) for s in SHAPES[4])
    bias, mask = some(2, 3, 13), some(2, 1, 9, 13)
    given = {"bias": {"bias": bias}, "plain": {}, "shape": {}}.get(form, {"mask": mask})
    net = Net(q=q, k=k, v=v, **given)
    a, b, c = (net.node("Reshape", x, np.int64([-1, n, m])) for x, n, m in (("q", 9, 8), ("k", 13, 8), ("v", 13, 5)))
    s = net.node("Mul", net.node("MatMul", a, transposed(net, b, 3)), np.float32(8**-0.5))
    if form == "bias":
        s = net.node("Add", s, net.node("Reshape", "bias", np.int64([-1, 1, 13])))
    elif "mask" in given:
        s = net.node("Add", net.node("Reshape", s, np.int64([-1, 3, 9, 13])), "mask")
    joined, weights = np.int64([-1, 9, 13]), form == "softmax split"
    s = net.node("Softmax", s, axis=-1) if weights else s
    s = net.node("Reshape", s, joined) if "mask" in given else s
    y = net.node("MatMul", s if weights else net.node("Softmax", s, axis=2), c)
    shape = np.int64([-1, 3, 9, 5])
    if form == "shape":
        rows = net.node("Div", net.node("Gather", net.node("Shape", y), np.int64([0])), np.int64([3]))
        shape = net.node("Concat", rows, np.int64([3, 9, 5]), axis=0)
    expected = mask if "mask" in given else bias[:, :, np.newaxis] if form == "bias" else None
    model = check(net, oracle.attention(q, k, v, mask=expected), net.node("Reshape", y, shape), batch=batch)
    steps = model._plan(*net.inputs.values())[0].steps
    assert [step.kind for step in steps] == ["attention"], "nothing is copied"


def test_heads_of_a_product_are_read_in_place():
    """What a transformer's layer does: no copy before, between or after."""
    x, w = some(2, 9, 12), [some(12, 12) for _ in range(4)]
    net = Net(x=x)
    heads = [
        net.node("Transpose", net.node("Reshape", net.node("MatMul", "x", a), np.array([0, 0, 3, 4])), perm=perm)
        for a, perm in zip(w, ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]))
    ]
    s = net.node("Mul", net.node("MatMul", *heads[:2]), np.float32(0.5))
    y = net.node("Transpose", net.node("MatMul", net.node("Softmax", s, axis=-1), heads[2]), perm=[0, 2, 1, 3])
    z = net.node("MatMul", net.node("Reshape", y, np.array([0, 0, 12])), w[3])
    model = fo.load_onnx(net.model(z))
    q, k, v = ((x @ a).reshape(2, 9, 3, 4).swapaxes(1, 2) for a in w[:3])
    expected = oracle.attention(q, k, v).value.swapaxes(1, 2).reshape(2, 9, 12) @ w[3]
    np.testing.assert_allclose(model(x), expected, rtol=1e-4, atol=1e-4)
    assert [step.kind for step in model._plan(x)[0].steps] == ["linear", "attention", "linear"]


def projected(cross=False, past=False, tokens=9, **changes):
    """(network, its outputs): a layer's attention of three heads, from x or, for keys and values, from z. `changes` are
    nodes that follow a projection; with a past, keys and values follow those of it and are outputs too."""
    net, present = Net(x=some(2, tokens, 12), **(dict(z=some(2, 7, 12)) if cross else {})), []
    perms, heads = dict(q=[0, 2, 1, 3], k=[0, 2, 3, 1], v=[0, 2, 1, 3]), {}
    for name, perm in perms.items():
        y = net.node("MatMul", "z" if cross and name != "q" else "x", some(12, 12))
        y = net.node("Add", y, some(12)) if name != "k" else y
        y = net.node(changes[name], y) if name in changes else y
        heads[name] = net.node("Transpose", net.node("Reshape", y, np.array([0, -1, 3, 4])), perm=perm)
        if past and name != "q":
            axis = 3 if name == "k" else 2
            net.inputs[name] = some(2, 3, 4, 5) if name == "k" else some(2, 3, 5, 4)
            heads[name] = net.node("Concat", name, heads[name], axis=axis)
            present.append(heads[name])
    s = net.node("Mul", net.node("MatMul", heads["q"], heads["k"]), np.float32(0.5))
    return net, [net.node("MatMul", net.node("Softmax", s, axis=-1), heads["v"]), *present]


def same(model, other, net):
    found, expected = (m.run(net.inputs) for m in (model, other))
    for name in expected:
        np.testing.assert_array_equal(found[name], expected[name])


def products(model, net):
    return [
        step.arguments["y"].shape[-1] for step in model._plan(*net.inputs.values())[0].steps if step.kind == "linear"
    ]


@pytest.mark.parametrize(
    "layer, widths",
    [
        (dict(), [36]),
        (dict(tokens=16), [36]),
        (dict(tokens=17), [12, 12, 12]),  # 34 rows
        (dict(past=True), [36]),
        (dict(cross=True), [12, 24]),
        (dict(q="Relu"), [12, 24]),  # an activation is of one projection alone
        (dict(v="Sin"), [24, 12]),  # its reader is no view
        (dict(q="Relu", k="Relu"), [12, 12, 12]),
    ],
)
def test_projections_of_one_input_are_one_product(layer, widths, tmp_path):
    net, outputs = projected(**layer)
    proto = net.model(*outputs)
    model, separate = fo.load_onnx(proto), fo.load_onnx(proto, disabled_passes=("projections",))
    assert sorted(products(model, net)) == sorted(widths) and products(separate, net) == [12] * 3
    copies = [sum(step.kind == "copy" for step in m._plan(*net.inputs.values())[0].steps) for m in (model, separate)]
    assert copies[0] == copies[1] and (copies[0] == 0) == ("past" not in layer)
    model.save(tmp_path / "m.fused")
    for m in model, fo.load(tmp_path / "m.fused"):
        same(m, separate, net)
    report = [f for f in model.explain().fusions if f.kind == "projections"]
    assert len(report) == (len(widths) < 3)


def test_projections_of_an_open_number_of_rows():
    net, outputs = projected(tokens=20)
    proto = net.model(*outputs, batch="n")
    model, separate = fo.load_onnx(proto), fo.load_onnx(proto, disabled_passes=("projections",))
    assert products(model, net) == [36]
    for n in 2, 1, 2, 1:
        net.inputs["x"] = some(n, 20, 12)
        same(model, separate, net)


def test_projections_that_are_read_elsewhere_stay():
    net, outputs = projected()
    first = net.nodes[1].output[0]  # the queries, an output of the network too
    proto = net.model(*outputs, first)
    model, separate = fo.load_onnx(proto), fo.load_onnx(proto, disabled_passes=("projections",))
    assert sorted(products(model, net)) == [12, 24]
    same(model, separate, net)


def test_projections_that_float16_holds_keep_to_themselves():
    net, outputs = projected()
    for i, tensor in enumerate(net.constants):
        w = numpy_helper.to_array(tensor)
        if w.shape == (12, 12) and i == 0:
            net.constants[i] = numpy_helper.from_array(w.astype(np.float16).astype(np.float32), tensor.name)
    assert sorted(products(fo.load_onnx(net.model(*outputs)), net)) == [12, 24]


def test_an_open_batch_and_grouped_heads():
    q, k, v = some(4, 6, 9, 8), some(4, 2, 13, 8), some(4, 2, 13, 5)
    net = Net(q=q, k=k, v=v)

    def shared(x):
        wide = net.node("Expand", net.node("Unsqueeze", x, np.array([2])), np.array([1, 1, 3, 1, 1]))
        return net.node("Reshape", wide, np.array([0, 6, 13, -1]))

    y = net.node(
        "MatMul", net.node("Softmax", net.node("MatMul", "q", transposed(net, shared("k"), 4)), axis=-1), shared("v")
    )
    check(net, oracle.attention(q, k, v, scale=1.0), y, batch="n")


def test_rows_that_see_nothing_are_0():
    q, k, v = (some(*s) for s in SHAPES[4])
    mask = np.where(SEEN, np.float32(0), np.float32(-np.inf))
    mask[:, :, 4] = -np.inf
    net = Net(q=q, k=k, v=v, mask=mask)
    weights = net.node("Softmax", net.node("Add", net.node("MatMul", "q", transposed(net, "k", 4)), "mask"), axis=-1)
    safe = net.node("Where", net.node("IsNaN", weights), np.float32(0), weights)
    y = net.node("MatMul", safe, "v")
    check(net, oracle.attention(q, k, v, mask=mask, scale=1.0), y)


REFUSED = {
    "weights elsewhere": "are used elsewhere too",
    "weights out": "are an output of the network",
    "scores elsewhere": "are used elsewhere too",
    "axis": "its axis is not the last one",
    "activation": "an activation or a residual is between it and the product",
    "low": "which may be as large as others",
    "nothing seen": "which gives equal weights",
    "scaled mask": "is scaled after it is added",
    "wider": "more axes or elements",
    "capped mask": "is inside the cap of its scores",
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_stays_and_why(case):
    q, k, v = some(2, 3, 9, 8), some(2, 3, 9, 8), some(2, 3, 9, 5)
    net, more, _mask, axis = Net(q=q, k=k, v=v), [], None, -1
    scores = s = net.node("MatMul", "q", transposed(net, "k", 4))
    seen = np.tri(9, dtype=bool)
    if case == "low":
        net.inputs["seen"] = seen
        s, _mask = net.node("Where", "seen", s, np.float32(-1e4)), seen
    elif case == "nothing seen":
        seen = seen & (np.arange(9) != 4)[:, np.newaxis]
        s = net.node("Where", seen, s, np.float32(-1e4))
    elif case == "scaled mask":
        net.inputs["mask"] = some(9, 9)
        s = net.node("Mul", net.node("Add", s, "mask"), np.float32(0.5))
    elif case == "capped mask":
        s = net.node("Tanh", net.node("Add", s, some(9, 9)))
    elif case == "wider":
        s = net.node("Add", s, some(4, 1, 1, 1, 9))
    elif case == "activation":
        s = net.node("Relu", s)
    elif case == "axis":
        axis = -2
    weights = net.node("Softmax", s, axis=axis)
    y = net.node("MatMul", weights, "v")
    if case.startswith("weights"):
        more = [weights if case == "weights out" else net.node("Neg", weights)]
    elif case == "scores elsewhere":
        more = [net.node("Neg", scores)]
    proto = net.model(y, *more)
    model = fo.load_onnx(proto)
    assert not [f for f in model.explain().fusions if f.kind == "attention"]
    (reason,) = [r.reason for r in model.explain().refusals if r.kind == "attention"]
    assert REFUSED[case] in reason
    plain = fo.load_onnx(proto, fold=False, fuse=False)
    for a, b in zip(
        *(m(*net.inputs.values()) if more else [m(*net.inputs.values())] for m in (model, plain)), strict=True
    ):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_saved_and_read_again(tmp_path):
    q, k, v = (some(*s) for s in SHAPES[4])
    net = Net(q=q, k=k, v=v)
    y = net.node(
        "MatMul",
        net.node("Softmax", net.node("Add", net.node("MatMul", "q", transposed(net, "k", 4)), CAUSAL), axis=-1),
        "v",
    )
    model = fo.load_onnx(net.model(y))
    model.save(tmp_path / "net.fo")
    np.testing.assert_array_equal(fo.load(tmp_path / "net.fo")(q, k, v), model(q, k, v))


@pytest.mark.parametrize("causal, masked", [*itertools.product((False, True), repeat=2)])
def test_torch(causal, masked):
    torch = pytest.importorskip("torch")
    if causal and masked:
        pytest.skip("torch has no such call")

    class Attend(torch.nn.Module):
        def forward(self, q, k, v, *mask):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, *mask, is_causal=causal)

    given = [torch.from_numpy(some(2, 3, n, 8)) for n in (13, 13, 13)] + [torch.from_numpy(SEEN[:, :, :1])] * masked
    model = fo.from_torch(Attend(), tuple(given))
    assert [f.kind for f in model.explain().fusions].count("attention") == 1
    np.testing.assert_allclose(model(*(a.numpy() for a in given)), Attend()(*given), rtol=1e-4, atol=1e-5)
