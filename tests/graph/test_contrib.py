"""Operators of com.microsoft, each against ONNX Runtime."""

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
import fusedops as fo
from onnx_single_node import agree as agreeing
from onnx_single_node import model, peer

RNG = np.random.default_rng(0)


def floats(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def scale(x, *shape):
    return np.full(shape, x, np.float32)


def eight(dtype, *shape):
    return RNG.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, shape, dtype, endpoint=True)


def in_kernels(proto, given):
    return all(step.kind != "numpy" for step in fo.load_onnx(proto)._plan(*given.values())[0].steps)


def agree(op, inputs, constants=None, outputs=(np.float32,), **options):
    agreeing(op, inputs, constants, outputs, **{"domain": "com.microsoft", **options})


# ---- fused nodes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "activation, params",
    [
        ("Relu", []),
        ("Sigmoid", []),
        ("Tanh", []),
        ("LeakyRelu", [0.3]),
        ("Clip", [-0.5, 1]),
        ("HardSigmoid", [0.3, 0.4]),
    ],
)
@pytest.mark.parametrize("added", [False, True])
def test_fused_conv(activation, params, added):
    z = {"z": floats(2, 4, 6, 7)} if added else {}
    inputs = {"x": floats(2, 3, 6, 7), "w": floats(4, 3, 3, 3), "b": floats(4), **z}
    agree("FusedConv", inputs, pads=[1] * 4, activation=activation, **({"activation_params": params} if params else {}))
    constants = {"w": inputs["w"], "b": inputs["b"], **z}
    agree(
        "FusedConv",
        {"x": inputs["x"]},
        constants,
        pads=[1] * 4,
        activation=activation,
        **({"activation_params": params} if params else {}),
    )


def test_fused_gemm():
    agree(
        "FusedGemm",
        {"a": floats(5, 3)},
        {"b": floats(4, 5), "c": floats(4)},
        transA=1,
        transB=1,
        alpha=0.5,
        beta=2.0,
        activation="LeakyRelu",
        activation_alpha=0.2,
    )


@pytest.mark.parametrize(
    "a, b, attrs",
    [
        ((2, 3, 4), (2, 4, 5), {}),
        ((2, 4, 3), (2, 4, 5), dict(transA=1)),
        ((2, 3, 4), (2, 5, 4), dict(transB=1, alpha=0.25)),
        ((3, 2, 4), (2, 4, 5), dict(transBatchA=1)),
        ((2, 3, 4), (4, 2, 5), dict(transBatchB=1)),
        ((2, 2, 3, 4), (2, 2, 5, 4), dict(transB=1)),
    ],
)
def test_fused_matmul(a, b, attrs):
    agree("FusedMatMul", {"a": floats(*a), "b": floats(*b)}, **attrs)
    agree("FusedMatMul", {"a": floats(*a)}, {"b": floats(*b)}, **attrs)


@pytest.mark.parametrize(
    "op, bias, attrs",
    [
        ("Gelu", False, {}),
        ("FastGelu", False, {}),
        ("FastGelu", True, {}),
        ("BiasGelu", True, {}),
        ("QuickGelu", False, {}),
        ("QuickGelu", False, {"alpha": 1.0}),
    ],
)
def test_gelu(op, bias, attrs):
    agree(op, {"x": 3 * floats(2, 5, 8)}, {"b": floats(8)} if bias else {}, **attrs)


@pytest.mark.parametrize("bias", [False, True])
def test_skip_layer_norm(bias):
    inputs = {"x": floats(2, 5, 8), "skip": floats(2, 5, 8)}
    constants = {"gamma": floats(8), "beta": floats(8), "bias": floats(8) if bias else None}
    outputs = (np.float32, None, None, np.float32)
    agree("SkipLayerNormalization", inputs, constants, outputs, epsilon=1e-5)
    del constants["beta"]
    agree("SkipSimplifiedLayerNormalization", inputs, constants, outputs, epsilon=1e-5)


def test_simplified_layer_norm():
    agree(
        "SimplifiedLayerNormalization", {"x": floats(2, 5, 8)}, {"scale": floats(8)}, domain="", epsilon=1e-5, axis=-1
    )


@pytest.mark.parametrize("segments", [False, True])
def test_embeddings(segments):
    ids = RNG.integers(0, 20, (2, 5), np.int32)
    mask = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32)
    constants = {
        "words": floats(20, 8),
        "positions": floats(9, 8),
        "kinds": floats(2, 8) if segments else None,
        "gamma": floats(8),
        "beta": floats(8),
    }
    inputs = {"ids": ids, "segments": np.array([[0, 0, 1, 1, 1]] * 2, np.int32) if segments else None}
    outputs = np.float32, np.int32, np.float32
    agree("EmbedLayerNormalization", inputs, constants | {"mask": mask}, outputs, epsilon=1e-5)


@pytest.mark.parametrize("segments", [False, True])
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_embeddings_of_bytes(dtype, segments):
    ids, kinds = RNG.integers(0, 20, (2, 5), np.int32), np.array([[0, 0, 1, 1, 1]] * 2, np.int32)
    mask = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32)
    shapes = {"words": (20, 8), "positions": (9, 8), "kinds": (2, 8), "gamma": (8,), "beta": (8,)}
    tables = {name: eight(dtype, *shape) for name, shape in shapes.items()}
    scales = {f"{name}_scale": scale(0.01 * (i + 1)) for i, name in enumerate(shapes)}
    zeros = {f"{name}_zero": np.array(3 * i + 1, dtype) for i, name in enumerate(shapes)}
    constants = tables | {"mask": mask} | scales | zeros
    if not segments:
        constants |= {"kinds": None, "kinds_scale": None, "kinds_zero": None}
    inputs = {"ids": ids, "segments": kinds if segments else None}
    agree("QEmbedLayerNormalization", inputs, constants, (np.float32, np.int32), epsilon=1e-5)


@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("skip", [(2, 5, 6, 8), (2, 1, 1, 8), (2, 8)])
@pytest.mark.parametrize("bias", [False, True])
def test_skip_group_norm(last, skip, bias):
    """ONNX Runtime has it on other devices alone."""
    x, other, gamma, beta, b = (floats(*shape) for shape in ((2, 5, 6, 8), skip, (8,), (8,), (8,)))
    total = x.astype(np.float64) + (other[:, None, None] if other.ndim == 2 else other) + (b if bias else 0)
    groups = total.reshape(2, 30, 4, 2)
    spread = np.sqrt(groups.var((1, 3), keepdims=True) + 1e-5)
    y = ((groups - groups.mean((1, 3), keepdims=True)) / spread).reshape(total.shape) * gamma + beta
    y = y / (1 + np.exp(-y))

    def placed(a):
        return np.ascontiguousarray(a if last or a.ndim < 4 else np.moveaxis(a, -1, 1))

    inputs, parameters = {"x": placed(x)}, {"gamma": gamma, "beta": beta, "skip": placed(other)}
    parameters |= {"bias": b} if bias else {}
    attrs = dict(groups=4, activation=1, channels_last=last, epsilon=1e-5)
    net = fo.load_onnx(model("SkipGroupNorm", inputs, parameters, [np.float32] * 2, "com.microsoft", attrs))
    found, added = net(inputs["x"])
    np.testing.assert_allclose(found, placed(y), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(added, placed(total), rtol=1e-6, atol=1e-6)


def test_bias_softmax():
    """ONNX Runtime has it on other devices alone."""
    x, bias = floats(2, 4, 3, 5), floats(2, 1, 1, 5)
    net = fo.load_onnx(
        model(
            "BiasSoftmax",
            {"x": x, "bias": bias},
            {},
            (np.float32,),
            "com.microsoft",
            dict(axis=3, is_inner_broadcast=0),
        )
    )
    e = np.exp(x + bias)
    np.testing.assert_allclose(net(x, bias), e / e.sum(-1, keepdims=True), rtol=1e-5)


# ---- attention ---------------------------------------------------------------------------------------------------

MASKS = {
    "none": None,
    "lengths": np.array([3, 5], np.int32),
    "begins": np.array([4, 5, 1, 0], np.int32),
    "keys": np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32),
    "pairs": np.tril(np.ones((2, 5, 5), np.int32)),
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("causal", [0, 1])
def test_attention(mask, causal):
    inputs = {"x": floats(2, 5, 16), "w": floats(16, 48), "b": floats(48), "mask": MASKS[mask]}
    agree("Attention", inputs, num_heads=4, unidirectional=causal)


def test_attention_with_past_or_bias():
    inputs = {"x": floats(2, 5, 16), "w": floats(16, 48), "b": floats(48), "mask": None}
    agree(
        "Attention", inputs | {"past": floats(2, 2, 4, 3, 4)}, outputs=(np.float32, np.float32), num_heads=4, scale=0.3
    )
    agree("Attention", inputs | {"past": None, "bias": floats(2, 4, 5, 5)}, num_heads=4)


@pytest.mark.parametrize("each", [False, True])
@pytest.mark.parametrize("mask", ["none", "lengths", "keys"])
@pytest.mark.parametrize("past", [False, True])
def test_attention_of_bytes(each, mask, past):
    inputs = {"x": eight(np.uint8, 2, 5, 16)}
    columns = (48,) if each else ()
    constants = {
        "w": eight(np.int8, 16, 48),
        "b": floats(48),
        "xs": scale(0.01),
        "ws": np.abs(floats(*columns)) * np.float32(0.01),
        "mask": None if past else MASKS[mask],
        "xz": np.array(121, np.uint8),
        "wz": np.zeros(columns, np.int8),
        **({"past": floats(2, 2, 4, 3, 4)} if past else {}),
    }
    outputs = [np.float32] * (1 + past)
    agree("QAttention", inputs, constants, outputs, num_heads=4, unidirectional=int(past))


@pytest.mark.parametrize("kind", ["separate", "bias", "mask", "past"])
def test_multi_head_attention(kind):
    q, k, v = floats(2, 5, 16), floats(2, 7, 16), floats(2, 7, 16)
    given = {
        "separate": {"q": q, "k": k, "v": v},
        "bias": {"q": q, "k": k, "v": v, "b": floats(48)},
        "mask": {
            "q": q,
            "k": k,
            "v": v,
            "b": None,
            "mask": np.array([[1] * 4 + [0] * 3, [1] * 7], np.int32),
            "bias": floats(1, 4, 5, 7),
        },
        "past": {
            "q": q,
            "k": q + 1,
            "v": q - 1,
            "b": None,
            "mask": None,
            "bias": None,
            "pk": floats(2, 4, 3, 4),
            "pv": floats(2, 4, 3, 4),
        },
    }[kind]
    outputs = (np.float32,) * (3 if kind == "past" else 1)
    agree("MultiHeadAttention", given, outputs=outputs, num_heads=4)


@pytest.mark.parametrize("computed", [False, True])
def test_bias_of_wider_values(computed):
    """The bias is that of queries, keys and values, of which the last have a width of their own."""
    given = {"q": floats(2, 5, 16), "k": floats(2, 7, 16), "v": floats(2, 7, 24), "b": floats(56)}
    if not computed:
        return agree("MultiHeadAttention", given, num_heads=4)
    proto = model("MultiHeadAttention", given, {}, (np.float32,), "com.microsoft", dict(num_heads=4))
    (wanted,) = peer(proto, given)
    proto.graph.node[0].input[0] = "twice"  # of a width that no shape of the file says
    proto.graph.node.insert(0, onnx.helper.make_node("Sub", ["q", "k2"], ["twice"]))
    proto.graph.input.extend([onnx.helper.make_tensor_value_info("k2", 1, ["a", "b", "c"])])
    net = fo.load_onnx(proto)
    np.testing.assert_allclose(net.run(given | {"k2": np.zeros((2, 5, 16), np.float32)})["y0"], wanted, 1e-4, 2e-5)


@pytest.mark.parametrize("parts", [3, 2])
def test_packed_heads(parts):
    """As the same parts in arrays of their own; ONNX Runtime has them on other devices alone."""
    q, packed = floats(2, 5, 16), floats(2, 5, 4, parts, 4)
    attrs = "com.microsoft", dict(num_heads=4)
    net = fo.load_onnx(
        model("MultiHeadAttention", {"q": packed} if parts == 3 else {"q": q, "k": packed}, {}, (np.float32,), *attrs)
    )
    each = [packed[:, :, :, i].reshape(2, 5, 16) for i in range(parts)]
    separate = ([] if parts == 3 else [q]) + each
    plain = fo.load_onnx(
        model("MultiHeadAttention", dict(zip("qkv", separate, strict=True)), {}, (np.float32,), *attrs)
    )
    np.testing.assert_allclose(net(*([packed] if parts == 3 else [q, packed])), plain(*separate), 1e-6, 1e-6)


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("positions", [np.array([2]), np.array([[0, 3, 1], [2, 2, 5]])])
def test_rotary(interleaved, positions):
    angles = floats(9, 4)
    inputs = {"x": floats(2, 3, 16), "p": positions.astype(np.int64), "cos": np.cos(angles), "sin": np.sin(angles)}
    agree("RotaryEmbedding", inputs, interleaved=interleaved)
    agree("RotaryEmbedding", inputs | {"x": floats(2, 2, 3, 8)}, interleaved=interleaved)
    proto = model("RotaryEmbedding", inputs, {}, (np.float32,), "com.microsoft", dict(interleaved=interleaved))
    assert in_kernels(proto, inputs) == (positions.ndim == 2)


@pytest.mark.parametrize("place", [9, -10])
def test_rotary_of_positions_beyond_the_table(place):
    inputs = {"x": floats(1, 2, 16), "p": np.array([[0, place]]), "cos": floats(9, 4), "sin": floats(9, 4)}
    with pytest.raises(ValueError, match="RotaryEmbedding .*: an index is outside its axis"):
        fo.load_onnx(model("RotaryEmbedding", inputs, {}, (np.float32,), "com.microsoft")).run(inputs)


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize(
    "attrs",
    [{}, dict(do_rotary=1), dict(local_window_size=2), dict(softcap=2.0), dict(do_rotary=1, rotary_interleaved=1)],
)
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("room", [0, 3])
def test_grouped_attention(isa, first, attrs, packed, batch, room):
    """`room`: the past is in the front of longer arrays."""
    heads, groups, size, length, past = 4, 2, 16, 3 if first else 1, 0 if first else 4
    angles = floats(9, size // 2)
    inputs = {
        "q": floats(batch, length, (heads + 2 * groups if packed else heads) * size),
        "k": None if packed else floats(batch, length, groups * size),
        "v": None if packed else floats(batch, length, groups * size),
        "pk": floats(batch, groups, past + room, size),
        "pv": floats(batch, groups, past + room, size),
        "lasts": np.full(batch, past + length - 1, np.int32),
        "total": np.array([past + length], np.int32),
    }
    if attrs.get("do_rotary"):
        inputs |= {"cos": np.cos(angles), "sin": np.sin(angles)}
    attrs |= dict(num_heads=heads, kv_num_heads=groups)
    agree("GroupQueryAttention", inputs, outputs=(np.float32,) * 3, **attrs)
    given = {k: a for k, a in inputs.items() if a is not None}
    proto = model("GroupQueryAttention", inputs, {}, (np.float32,) * 3, "com.microsoft", attrs)
    assert in_kernels(proto, given)
    first = model("GroupQueryAttention", inputs, {}, (np.float32,), "com.microsoft", attrs)
    np.testing.assert_allclose(fo.load_onnx(first).run(given)["y0"], fo.load_onnx(proto).run(given)["y0"], atol=1e-5)


def test_grouped_attention_of_places_that_are_not_there():
    inputs = {
        "q": floats(2, 1, 16),
        "k": floats(2, 1, 8),
        "v": floats(2, 1, 8),
        "pk": floats(2, 1, 4, 8),
        "pv": floats(2, 1, 4, 8),
        "lasts": np.int32([4, 6]),
        "total": np.int32([7]),
    }
    heads = dict(num_heads=2, kv_num_heads=1)
    proto = model("GroupQueryAttention", inputs, {}, (np.float32,) * 3, "com.microsoft", heads)
    with pytest.raises(ValueError, match="GroupQueryAttention .*: the rows do not follow those of earlier calls"):
        fo.load_onnx(proto).run(inputs)


@pytest.mark.parametrize("length", [1, 3])
@pytest.mark.parametrize("more", [{}, dict(local_window_size=3, softcap=2.0)])
def test_grouped_attention_of_lengths_of_their_own(length, more, isa, threads):
    """Each row of a batch after a past of its own, also several tokens at once, with a bias: as the row alone."""
    heads, groups, size, pasts = 4, 2, 16, np.array([5, 0, 2])
    angles, total = floats(20, size // 2), 5 + length
    inputs = {
        "q": floats(3, length, heads * size),
        "k": floats(3, length, groups * size),
        "v": floats(3, length, groups * size),
        "pk": floats(3, groups, 6, size),
        "pv": floats(3, groups, 6, size),
        "lasts": (pasts + length - 1).astype(np.int32),
        "total": np.array([total], np.int32),
        "cos": np.cos(angles),
        "sin": np.sin(angles),
        "at": None,
        "bias": floats(3, 1, length, total),
    }
    attrs = dict(num_heads=heads, kv_num_heads=groups, do_rotary=1) | more
    proto = model("GroupQueryAttention", inputs, {}, (np.float32,) * 3, "com.microsoft", attrs)
    given = {k: a for k, a in inputs.items() if a is not None}
    assert in_kernels(proto, given)
    y, *presents = fo.load_onnx(proto).run(given).values()
    for n, past in enumerate(pasts):
        own = {name: a[n : n + 1] if len(a) == 3 else a for name, a in given.items()}
        own |= {"total": np.array([past + length], np.int32), "bias": own["bias"][..., : past + length]}
        want, *kept = fo.load_onnx(proto).run(own).values()
        np.testing.assert_array_equal(y[n : n + 1], want)
        for present, alone in zip(presents, kept, strict=True):
            np.testing.assert_array_equal(present[n : n + 1, :, : past + length], alone[:, :, : past + length])
            assert not present[n, :, past + length :].any()


@pytest.mark.parametrize("window", [-1, 7])
def test_grouped_attention_token_by_token(window, isa):
    """The bits of all tokens at once, whatever the steps."""
    heads, groups, size, total = 4, 2, 16, 40
    attrs = dict(num_heads=heads, kv_num_heads=groups, local_window_size=window, softcap=3.0)
    q, k, v = floats(2, total, heads * size), floats(2, total, groups * size), floats(2, total, groups * size)
    past, found = floats(2, 2, groups, 0, size), {}
    for steps in ([total], [1] * total, [5, 1, 20, 1, 13]):
        pk, pv, at, rows = *past, 0, []
        for n in steps:
            inputs = dict(q=q[:, at : at + n], k=k[:, at : at + n], v=v[:, at : at + n], pk=pk, pv=pv)
            inputs |= dict(lasts=np.full(2, at + n - 1, np.int32), total=np.array([at + n], np.int32))
            if at == 0:
                net = fo.load_onnx(model("GroupQueryAttention", inputs, {}, (np.float32,) * 3, "com.microsoft", attrs))
            y, pk, pv = net.run(inputs).values()
            rows.append(y)
            at += n
        found[tuple(steps)] = np.concatenate(rows, 1)
    first, *others = found.values()
    for other in others:
        np.testing.assert_array_equal(other, first)


# ---- int8 --------------------------------------------------------------------------------------------------

STEPS = {"rtol": 0, "atol": 1}  # ONNX Runtime adds and scales in float32 and may round the other way


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("op", ["QLinearAdd", "QLinearMul"])
def test_qlinear_binary(op, dtype):
    zero = np.array(3, dtype)
    agree(
        op,
        {"a": eight(dtype, 2, 3, 4)},
        {
            "as": scale(0.1),
            "az": zero,
            "b": eight(dtype, 4),
            "bs": scale(0.2),
            "bz": zero,
            "cs": scale(0.3),
            "cz": zero,
        },
        (dtype,),
        **STEPS,
    )


@pytest.mark.parametrize(
    "op, attrs",
    [
        ("QLinearSigmoid", {}),
        ("QLinearLeakyRelu", {"alpha": 0.2}),
        ("QLinearGlobalAveragePool", {}),
        ("QLinearSoftmax", {"axis": 1, "opset": 13}),
        ("QLinearAveragePool", dict(kernel_shape=[2, 2], pads=[1] * 4, count_include_pad=1)),
    ],
)
def test_qlinear_unary(op, attrs):
    agree(
        op,
        {"x": eight(np.uint8, 2, 3, 4, 5)},
        {
            "s": scale(0.03),
            "z": np.uint8(120) + np.zeros((), np.uint8),
            "ys": scale(1 / 256),
            "yz": np.zeros((), np.uint8),
        },
        (np.uint8,),
        **STEPS,
        attrs=attrs,
    )


def test_qlinear_concat():
    a, b, zero = eight(np.uint8, 2, 3), eight(np.uint8, 2, 2), np.array(128, np.uint8)
    inputs = {
        "ys": scale(0.05),
        "yz": zero,
        "a": a,
        "as": scale(0.04),
        "az": zero,
        "b": b,
        "bs": scale(0.06),
        "bz": zero,
    }
    agree("QLinearConcat", inputs, {}, (np.uint8,), axis=1, **STEPS)


def test_quantised_products():
    a, b = eight(np.uint8, 5, 6), eight(np.int8, 6, 4)
    scales = {"as": scale(0.02), "bs": np.float32([0.01, 0.02, 0.03, 0.04])}
    zeros = {"az": np.array(117, np.uint8), "bz": np.array([1, -2, 0, 3], np.int8)}
    agree("MatMulIntegerToFloat", {"a": a}, {"b": b, **scales, **zeros, "bias": floats(4)})
    agree(
        "DynamicQuantizeMatMul", {"a": floats(5, 6)}, {"b": b, "bs": scales["bs"], "bz": zeros["bz"], "bias": floats(4)}
    )
    common = {"b": b.T.copy(), "bs": scale(0.01), "bz": np.array(1, np.int8), "c": np.arange(4, dtype=np.int32)}
    first = {"as": scale(0.02), "az": zeros["az"]}
    agree(
        "QGemm",
        {"a": a},
        {**first, **common, "ys": scale(0.1), "yz": np.array(9, np.uint8)},
        (np.uint8,),
        transB=1,
        rtol=0,
        atol=0,
    )
    agree("QGemm", {"a": a}, {**first, **common}, transB=1)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("zeros", [False, True])
def test_weights_of_a_few_bits(bits, zeros):
    n, k, block = 5, 40, 16
    blocks = -(-k // block)
    constants = {
        "b": eight(np.uint8, n, blocks, block * bits // 8),
        "scales": np.abs(floats(n, blocks)),
        "z": eight(np.uint8, n, -(-blocks * bits // 8)) if zeros else None,
    }
    agree("MatMulNBits", {"a": floats(3, k)}, constants, N=n, K=k, bits=bits, block_size=block, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("shape", [(7, 24), (7, 3, 40)])
def test_gather_from_blocks_of_a_few_bits(bits, zeros, shape):
    """A row that is not there is zeros."""
    blocks = -(-shape[-1] // 16)
    q = eight(np.uint8, *shape[:-1], shape[-1] * bits // 8)
    constants = {
        "scales": np.abs(floats(*shape[:-1], blocks)),
        "z": eight(np.uint8, *shape[:-1], -(-blocks * bits // 8)) if zeros else None,
    }
    attrs = dict(bits=bits, block_size=16, quantize_axis=-1)
    agree("GatherBlockQuantized", {"q": q, "at": np.array([[0, 6, -1], [3, -7, 2]])}, constants, **attrs)
    agree("GatherBlockQuantized", {"q": q, "at": np.array([9, -8, 1], np.int32)}, constants, **attrs)
    for other, changed, said in [
        ({"scales": constants["scales"][:-1]}, {}, "have scales of shape"),
        ({}, {"quantize_axis": 0}, "in blocks on the last axis"),
        ({}, {"bits": 3}, "2, 4 or 8 bits"),
    ]:
        given = {"q": q, "at": np.array([0])}
        proto = model("GatherBlockQuantized", given, constants | other, [np.float32], "com.microsoft", attrs | changed)
        with pytest.raises(ValueError, match=said):
            fo.load_onnx(proto).run(given)


@pytest.mark.parametrize("each", [False, True])
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_dynamic_quantize_lstm(isa, each, dtype):
    hidden, size, shape, zero = 4, 3, (1, 16) if each else (1,), 0 if each else 3
    constants = {
        "w": eight(dtype, 1, size, 4 * hidden),
        "r": eight(dtype, 1, hidden, 4 * hidden),
        "b": floats(1, 8 * hidden),
        "len": None,
        "h": None,
        "c": None,
        "p": None,
        "ws": scale(0.01, *shape),
        "wz": np.full(shape, zero, dtype),
        "rs": scale(0.01, *shape),
        "rz": np.full(shape, zero, dtype),
    }
    agree(
        "DynamicQuantizeLSTM",
        {"x": floats(6, 1, size)},
        constants,
        (np.float32,) * 3,
        hidden_size=hidden,
        rtol=1e-3,
        atol=1e-4,
    )
