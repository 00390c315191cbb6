"""ONNX's own Attention: every form is one step of the kernel, and what the kernel does not compute is right all the
same; and other operators that have a record instead of the function that ONNX defines them by."""

import numpy as np
import pytest

pytest.importorskip("onnx")
from hypothesis import given
from hypothesis import strategies as st
from onnx import numpy_helper

import fusedops as fo
from onnx_single_node import SEEDS, few, floats, integers, ints, model

HEADS, KEYS, SIZE = 8, 24, 16
FORMS = {
    "plain": {},
    "causal": {"is_causal": 1},
    "bool mask": {"mask": "bool"},
    "float mask": {"mask": "float"},
    "both": {"mask": "float", "is_causal": 1},
    "grouped heads": {"kv_heads": 2},
    "three axes": {"flat": True},
    "grouped heads of three axes": {"flat": True, "kv_heads": 2, "is_causal": 1},
    "past": {"past": 5},
    "causal past": {"past": 5, "is_causal": 1, "mask": "bool"},
    "one query": {"past": 20, "is_causal": 1, "queries": 1, "kv_heads": 2},
    "softcap": {"softcap": 2.0, "mask": "float"},
    "scale": {"scale": 0.5},
    "wide values": {"value_size": 24, "queries": 7},
    "a softmax in float32": {"softmax_precision": 1},
}
LATER = {
    "lengths": {"lengths": True},
    "causal lengths": {"lengths": True, "is_causal": 1, "queries": 7, "kv_heads": 4},
    "short mask": {"mask": "bool", "short": 5},
    "short float mask": {"mask": "float", "short": 5, "softcap": 3.0},
}
WINDOWS = {
    "left": {"left_window_size": 3},
    "right": {"right_window_size": 2},
    "both sides": {"left_window_size": 3, "right_window_size": 2, "past": 5},
    "causal window": {"left_window_size": 3, "right_window_size": 2, "is_causal": 1, "past": 5},
    "window of lengths": {"left_window_size": 3, "lengths": True, "is_causal": 1},
    "open window of lengths": {"left_window_size": 3, "right_window_size": 1, "lengths": True},
}


def _causal(given_, k, t, keys, lengths):
    """The keys that each query may see, (batch or 1, 1, queries, keys)."""
    first = k["past"] if lengths is None else (lengths - t)[:, None, None, None]
    at, places = np.arange(t)[:, None] + first, np.arange(keys)
    seen = np.broadcast_to(np.ones(keys, bool), np.broadcast_shapes(np.shape(at), (t, keys)))
    if given_.get("is_causal"):
        seen = seen & (places <= at)
    if given_.get("left_window_size", -1) >= 0:
        seen = seen & (places >= at - given_["left_window_size"])
    if given_.get("right_window_size", -1) >= 0:
        seen = seen & (places <= at + given_["right_window_size"])
    return seen if lengths is None else seen & (places < lengths[:, None, None, None])


def attention(inputs, attrs, heads, kv_heads):
    """y and scores at each stage, in float64, for inputs by their names."""
    q, k, v = (inputs[name].astype(np.float64) for name in "qkv")
    flat, mask, lengths = q.ndim == 3, inputs.get("mask"), inputs.get("lengths")
    if flat:
        q, k, v = (x.reshape(*x.shape[:2], n, -1).swapaxes(1, 2) for x, n in ((q, heads), (k, kv_heads), (v, kv_heads)))
    past = inputs.get("past_k")
    k, v = (
        x if inputs.get(p) is None else np.concatenate([inputs[p], x], 2) for x, p in ((k, "past_k"), (v, "past_v"))
    )
    present, (t, keys) = (k, v), (q.shape[2], k.shape[2])
    k, v = (np.repeat(x, q.shape[1] // x.shape[1], 1) for x in (k, v))
    stages = [q @ k.swapaxes(2, 3) * attrs.get("scale", q.shape[3] ** -0.5)]
    cap = attrs.get("softcap", 0)
    stages.append(cap * np.tanh(stages[0] / cap) if cap else stages[0])
    added = np.where(_causal(attrs, {"past": 0 if past is None else past.shape[2]}, t, keys, lengths), 0, -np.inf)
    if mask is not None:
        mask = np.where(mask, 0, -np.inf) if mask.dtype == bool else mask
        added = added + np.pad(mask, [(0, 0)] * (mask.ndim - 1) + [(0, keys - mask.shape[-1])], constant_values=-np.inf)
    stages.append(stages[1] + added)
    top = stages[2].max(-1, keepdims=True)
    e = np.exp(stages[2] - np.where(np.isinf(top), 0, top))
    stages.append(e / np.maximum(e.sum(-1, keepdims=True), 1e-300))
    y = stages[3] @ v
    return (y.swapaxes(1, 2).reshape(*y.shape[::2], -1) if flat else y), present, stages


def case(form, seed=0, dtype=np.float32, opset=24, batch=2):
    """(the model, inputs by names, attributes, heads of keys)."""
    form = dict(form)
    kv_heads, t, past = form.pop("kv_heads", HEADS), form.pop("queries", KEYS), form.pop("past", 0)
    flat, kind, short = form.pop("flat", False), form.pop("mask", None), form.pop("short", 0)
    lengths, wide, modes = form.pop("lengths", False), form.pop("value_size", SIZE), form.pop("scores", None)
    q, k, v = (
        floats(seed + i, batch, n, m, d, dtype=dtype)
        for i, (n, m, d) in enumerate([(HEADS, t, SIZE), (kv_heads, KEYS, SIZE), (kv_heads, KEYS, wide)])
    )
    if flat:
        q, k, v = (np.ascontiguousarray(x.swapaxes(1, 2)).reshape(batch, x.shape[2], -1) for x in (q, k, v))
        form |= {"q_num_heads": HEADS, "kv_num_heads": kv_heads}
    shape, mask = (1, 1, t, KEYS + past - short), None
    if kind:
        mask = floats(seed + 3, *shape, dtype=dtype) if kind == "float" else floats(seed + 3, *shape) > -0.5
        mask[..., 1, :] = mask[..., 1, :] if kind == "float" else False  # a query without a key
    inputs = {"q": q, "k": k, "v": v, "mask": mask}
    inputs |= {
        f"past_{n}": floats(5, batch, kv_heads, past, d, dtype=dtype) if past else None
        for n, d in (("k", SIZE), ("v", wide))
    }
    if lengths:
        inputs["lengths"] = np.arange(KEYS, KEYS - 9 * batch, -9)
    outputs = (dtype, *[dtype if past else None] * 2)
    outputs = outputs if modes is None else (*outputs, dtype)
    form |= {} if modes is None else {"qk_matmul_output_mode": modes}
    while outputs[-1] is None:
        outputs = outputs[:-1]
    while list(inputs.values())[-1] is None:
        inputs.popitem()
    return model("Attention", inputs, {}, outputs, attrs=form.items(), opset=opset), inputs, form, kv_heads


def results(net, inputs):
    y = net(*(a for a in inputs.values() if a is not None))
    return y if isinstance(y, tuple) else (y,)


def check(form, *, tolerance=1e-5, kernel=True, **options):
    proto, inputs, attrs, kv_heads = case(form, **options)
    y, present, stages = attention(inputs, attrs, HEADS, kv_heads)
    expected = [y, *(present if inputs.get("past_k") is not None else ())]
    if "scores" in form:
        expected.append(stages[form["scores"]])
    for how in ({}, {"fold": False, "fuse": False}):
        net = fo.load_onnx(proto, **how)
        for _ in range(2):
            for found, right in zip(results(net, inputs), expected, strict=True):
                np.testing.assert_allclose(found, right, rtol=tolerance, atol=tolerance)
        kinds = [s.kind for s in net._plan(*(a for a in inputs.values() if a is not None))[0].steps]
        assert ("attention" in kinds) == kernel and not {"matmul", "softmax", "numpy"} & set(kinds if kernel else ())


@pytest.mark.parametrize("opset", [23, 24])
@pytest.mark.parametrize("form", FORMS)
def test_every_form_reaches_the_kernel(form, opset):
    check(FORMS[form], opset=opset)


@pytest.mark.parametrize("form", LATER)
def test_what_opset_24_adds(form):
    check(LATER[form])


@pytest.mark.parametrize("form", WINDOWS)
def test_windows(form):
    check(WINDOWS[form], opset=25)


@pytest.mark.parametrize("mode", range(4))
@pytest.mark.parametrize("form", ["both", "causal past", "softcap", "grouped heads of three axes"])
def test_scores_that_are_an_output(form, mode):
    check({**FORMS[form], "scores": mode}, kernel=False)


def test_scores_of_a_window():
    check({"left_window_size": 3, "right_window_size": 1, "kv_heads": 4, "scores": 2}, kernel=False, opset=25)


def test_another_precision():
    check({"is_causal": 1, "softmax_precision": 11}, kernel=False, tolerance=1e-6)
    check({"softmax_precision": 10, "mask": "float"})
    check({"softmax_precision": 1}, dtype=np.float16, tolerance=4e-3)


def test_float64():
    proto, inputs, attrs, _ = case({"is_causal": 1, "past": 3, "kv_heads": 2}, dtype=np.float64)
    y, _, _ = attention(inputs, attrs, HEADS, 2)
    np.testing.assert_allclose(results(fo.load_onnx(proto), inputs)[0], y, rtol=1e-12, atol=1e-13)


def test_other_sizes():
    """One network, its sizes open, is right in each of them."""
    proto, *_ = case({"is_causal": 1, "past": 5, "mask": "float"})
    net = fo.load_onnx(proto)
    for seed, past in enumerate((5, 1, 9)):
        for batch in (1, 3):
            _, inputs, attrs, _ = case({"is_causal": 1, "past": past, "mask": "float"}, seed=seed, batch=batch)
            y, present, _ = attention(inputs, attrs, HEADS, HEADS)
            for found, right in zip(results(net, inputs), (y, *present), strict=True):
                np.testing.assert_allclose(found, right, rtol=1e-5, atol=1e-5)


def test_values_whose_axes_the_file_does_not_say():
    """Attributes say that three axes are meant; four are an error then."""
    from onnx.parser import parse_model

    text = """<ir_version: 10, opset_import: ["" : 23]> net (float[b, s, AXES] x) => (float[b, s, n] y)
        { q = Neg(x)  y = Attention<q_num_heads=2, kv_num_heads=2>(q, q, q) }"""
    x = floats(0, 2, 5, 8)
    y, _, _ = attention(dict.fromkeys("qkv", -x), {}, 2, 2)
    np.testing.assert_allclose(fo.load_onnx(parse_model(text.replace("AXES", "8")))(x), y, rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match="Attention"):
        fo.load_onnx(parse_model(text.replace("AXES", "2, 4")))(x.reshape(2, 5, 2, 4))


def test_half_a_past_is_refused():
    proto, *_ = case({"past": 3})
    proto.graph.node[0].input[5] = ""
    with pytest.raises(ValueError, match="takes keys and values of earlier calls together"):
        fo.load_onnx(proto)


DECODER = """<ir_version: 10, opset_import: ["" : 23]>
net (float[batch, new, 32] x, float[batch, 2, past, 8] keys, float[batch, 2, past, 8] values)
    => (float[batch, new, 32] y, float[batch, 2, total, 8] all_keys, float[batch, 2, total, 8] all_values)
    <int64[1] half = {16}, int64[1] zero = {0}, int64[1] last = {-1}> {
    k = Slice(x, zero, half, last)  v = Exp(k)
    y, all_keys, all_values = Attention<is_causal=1, q_num_heads=4, kv_num_heads=2>(x, k, v, , keys, values) }"""


def test_a_decoder():
    """It keeps its keys and values, of fewer heads, and gives what a network gives that takes them."""
    from onnx.parser import parse_model

    net = fo.load_onnx(parse_model(DECODER))
    decoder, past, all_x = net.decoder(capacity=4), [np.zeros((2, 2, 0, 8), np.float32)] * 2, floats(1, 2, 12, 32)
    k = all_x[..., :16]
    right, _, _ = attention({"q": all_x, "k": k, "v": np.exp(k)}, {"is_causal": 1}, 4, 2)
    for begin, end in ((0, 5), (5, 6), (6, 7), (7, 10), (10, 12)):
        x = np.ascontiguousarray(all_x[:, begin:end])
        y, *past = net(x, *past)
        np.testing.assert_array_equal(decoder(x), y)
        np.testing.assert_allclose(y, right[:, begin:end], rtol=1e-5, atol=1e-5)


def test_the_function_of_onnx_becomes_one_step():
    """A file that has the nodes of the function, with its test of rows without a key, reaches the kernel too."""
    from onnx.parser import parse_model

    text = """<ir_version: 10, opset_import: ["" : 18]>
        net (float[2, 3, 5, 8] q, float[2, 3, 8, 7] k, float[2, 3, 7, 8] v, bool[5, 7] m) => (float[2, 3, 5, 8] y)
        <float none = {0}, float low = {-inf}, int64[1] last = {-1}> {
        a = Where(m, none, low)  s = MatMul(q, k)  t = Add(s, a)  p = Softmax<axis=-1>(t)
        top = ReduceMax(BIAS, last)  hidden = Equal(top, low)  w = Where(hidden, none, p)  y = MatMul(w, v) }"""
    inputs = {"q": floats(0, 2, 3, 5, 8), "k": floats(1, 2, 3, 8, 7), "v": floats(2, 2, 3, 7, 8)}
    inputs["m"] = floats(3, 5, 7) > 0
    inputs["m"][2] = False
    net = fo.load_onnx(parse_model(text.replace("BIAS", "a")))
    y, _, _ = attention(inputs | {"k": inputs["k"].swapaxes(2, 3), "mask": inputs["m"]}, {"scale": 1.0}, 3, 3)
    np.testing.assert_allclose(net(*inputs.values()), y, rtol=1e-5, atol=1e-6)
    assert [f.kind for f in net.explain().fusions] == ["attention"]
    other = fo.load_onnx(parse_model(text.replace("top =", "b = Exp(a)  top =").replace("BIAS", "b")))
    assert [r.reason for r in other.explain().refusals] == [
        "rows of b, which is not its mask, say where the weights are 0"
    ]
    changed = fo.load_onnx(parse_model(text.replace("Equal(top, low)", "Less(top, low)").replace("BIAS", "a")))
    assert [r.reason.split(" is ")[1] for r in changed.explain().refusals] == ["between its weights and their product"]


# ---- others ------------------------------------------------------------------------------------------------------


def rotation(x, cos, sin, interleaved):
    """x (batch, heads, length, features) with pairs of its first features turned by angles (batch, length, half)."""
    half = cos.shape[-1]
    pairs = (slice(0, 2 * half, 2), slice(1, 2 * half, 2)) if interleaved else (slice(half), slice(half, 2 * half))
    y, c, s = x.astype(np.float64), cos[:, None], sin[:, None]
    (a, b), (u, v) = pairs, (x[..., part].astype(np.float64) for part in pairs)
    y[..., a], y[..., b] = u * c - v * s, u * s + v * c
    return y


@few
@given(st.booleans(), st.booleans(), st.booleans(), st.booleans(), SEEDS)
def test_rotary_embedding(flat, interleaved, positions, part, seed):
    x, size = floats(seed, 2, 3, 6, 16), 8 if part else 16
    attrs = {"interleaved": int(interleaved), "rotary_embedding_dim": 8 if part else 0}
    tables = [floats(seed + i, *((9, size // 2) if positions else (2, 6, size // 2))) for i in (1, 2)]
    at = integers(seed, 0, 8, 2, 6) if positions else None
    y = rotation(x, *(t[at] if positions else t for t in tables), interleaved)
    if flat:
        x, y = (a.swapaxes(1, 2).reshape(2, 6, -1) for a in (x, y))
        attrs["num_heads"] = 3
    inputs = {"x": x, "cos": tables[0], "sin": tables[1], **({"at": at} if positions else {})}
    proto = model("RotaryEmbedding", inputs, {}, (np.float32,), attrs=attrs.items(), opset=23)
    for how in ({}, {"fold": False, "fuse": False}):
        net = fo.load_onnx(proto, **how)
        np.testing.assert_allclose(results(net, inputs)[0], y, rtol=1e-5, atol=1e-6)
        assert {s.kind for s in net._plan(*inputs.values())[0].steps} <= {"gather", "rotate"}
    wide = {k: a.astype(np.float64) if a.dtype.kind == "f" else a for k, a in inputs.items()}
    proto = model("RotaryEmbedding", wide, {}, (np.float64,), attrs=attrs.items(), opset=23)
    np.testing.assert_allclose(results(fo.load_onnx(proto), wide)[0], y, rtol=1e-12)


def test_angles_that_do_not_fit():
    inputs = {"x": floats(0, 2, 3, 6, 16), "cos": floats(1, 2, 6, 7), "sin": floats(2, 2, 6, 7)}
    with pytest.raises(ValueError, match="do not fit 16 features"):
        fo.load_onnx(model("RotaryEmbedding", inputs, {}, (np.float32,), opset=23))(*inputs.values())


@pytest.mark.parametrize("opset", [18, 21])
@pytest.mark.parametrize("computed", [False, True])
@pytest.mark.parametrize("image", [(5,), (5, 4), (3, 4, 2)])
def test_group_norm(image, computed, opset):
    x, of = floats(0, 2, 6, *image), 6 if opset == 21 else 3
    parameters = {"scale": floats(1, of), "shift": floats(2, of)}
    inputs, constants = ({"x": x, **parameters}, {}) if computed else ({"x": x}, parameters)
    attrs = {"num_groups": 3, "epsilon": 1e-3}
    v = x.astype(np.float64).reshape(2, 3, -1)
    v = (v - v.mean(-1, keepdims=True)) / np.sqrt(v.var(-1, keepdims=True) + 1e-3)
    scale, shift = (np.repeat(p, 6 // of).reshape(6, *[1] * len(image)) for p in parameters.values())
    proto = model("GroupNormalization", inputs, constants, (np.float32,), attrs=attrs.items(), opset=opset)
    for how in ({}, {"fold": False, "fuse": False}):
        net = fo.load_onnx(proto, **how)
        np.testing.assert_allclose(results(net, inputs)[0], v.reshape(x.shape) * scale + shift, rtol=1e-4, atol=1e-5)
    if not computed and opset == 21:
        net = fo.load_onnx(proto)
        net(x)
        assert [s.kind for s in net._plan(x)[0].steps] == ["instance_norm", "affine"]


@pytest.mark.parametrize(
    "dtype", ["uint8", "uint16", "uint32", "uint64", "int8", "int32", "int64", "float32", "float64"]
)
@pytest.mark.parametrize("bound, bias", [(0.5, 0.0), (2.0, 1.5), (1.0, 3.0), (-2.0, 1.0)])
def test_shrink(dtype, bound, bias):
    """Integers that leave their type come back at its other end; unsigned ones have bounds below 0, too."""
    x = np.array([0, 1, 2, 3, 4, 100] if dtype[0] == "u" else [-5, -2, -1, 0, 1, 2, 3, 100], dtype)
    wide = x.astype(np.float64)
    y = np.where(wide < -bound, wide + bias, np.where(wide > bound, wide - bias, 0))
    proto = model("Shrink", {"x": x}, {}, (x.dtype,), attrs={"lambd": bound, "bias": bias}.items(), opset=18)
    found = fo.load_onnx(proto)(x)
    np.testing.assert_array_equal(found, y if x.dtype.kind == "f" else np.trunc(y).astype(np.int64).astype(dtype))


@pytest.mark.parametrize("dtype", ["float32", "int8", "uint8", "bool", "int16", "int32", "int64", "float64"])
@pytest.mark.parametrize("value", [None, "constant", "computed"])
def test_pads_of_every_type_are_copies(dtype, value):
    x, one = integers(0, 0, 1, 2, 5, 6).astype(dtype), np.ones((), dtype)
    inputs, constants = {"x": x}, {"pads": ints(0, 1, 2, 0, 3, -1)}
    if value == "constant":
        constants["value"] = one
    proto = model("Pad", inputs, constants, (x.dtype,), opset=21)
    if value == "computed":
        inputs = {"x": x, "value": one}
        proto = model("Pad", {"x": x, "pads": ints(0), "value": one}, {}, (x.dtype,), opset=21)
        pads = next(v for v in proto.graph.input if v.name == "pads")
        proto.graph.input.remove(pads)
        proto.graph.initializer.append(numpy_helper.from_array(constants["pads"], "pads"))
    net = fo.load_onnx(proto)
    right = np.pad(x[:, :, :-1], [(0, 0), (1, 3), (2, 0)], constant_values=one if value else 0)
    np.testing.assert_array_equal(net(*inputs.values()), right)
    assert not any(s.kind == "numpy" for s in net._plan(*inputs.values())[0].steps)
