"""Networks of TFLite in 8 and 16 bits as wholes, and how their products are rounded."""

import numpy as np
import pytest

pytest.importorskip("tflite")

import fusedops as fo
from fusedops import _core
from tflite_cases import nhwc_conv
from tflite_models import Graph, Op, Tensor, constant, single, write

F, INT = np.float32, np.int32
RNG = np.random.default_rng


# ---- networks of several layers in 8 and 16 bits


def _chain(dtype):
    """(a network of a convolution, a padding, a depthwise convolution, a sum, a pool and a product, its value in
    floats)."""
    rng, tensors, ops, real = RNG(7), [], [], {}
    info, w_type = np.iinfo(dtype), np.int8 if dtype != np.uint8 else np.uint8
    steps, zero = (32767, 0) if dtype == np.int16 else (127, 128 if dtype == np.uint8 else 3)

    def tensor(shape, most):
        tensors.append(Tensor(shape, dtype, None, most / steps, zero))
        return len(tensors) - 1

    def weights(shape, axis, x):
        w_zero = 128 if w_type is np.uint8 else 0
        w = rng.integers(-60, 60, shape)
        tensors.append(constant((w + w_zero).astype(w_type), scale=0.01, zero=w_zero, axis=axis))
        b = rng.integers(-50, 50, shape[axis])
        scale = 0.01 * tensors[x].scale
        tensors.append(constant(b.astype(np.int64 if dtype == np.int16 else INT), scale=scale))
        real[len(tensors) - 2], real[len(tensors) - 1] = w * 0.01, b * scale
        return len(tensors) - 2, len(tensors) - 1

    x = tensor((1, 8, 8, 4), 1.0)
    w, b = weights((6, 3, 3, 4), 0, x)
    c = tensor((1, 8, 8, 6), 6.0)
    pads = len(tensors)
    tensors.append(constant(np.array([[0, 0], [1, 1], [1, 1], [0, 0]], INT)))
    p = tensor((1, 10, 10, 6), 6.0)
    w2, b2 = weights((1, 3, 3, 6), 3, p)
    d, s, m = tensor((1, 8, 8, 6), 9.0), tensor((1, 8, 8, 6), 15.0), tensor((1, 4, 4, 6), 15.0)
    w3, b3 = weights((5, 96), 0, m)
    y = tensor((1, 5), 150.0)
    window = dict(StrideH=1, StrideW=1, DilationHFactor=1, DilationWFactor=1)
    pool = dict(StrideH=2, StrideW=2, FilterHeight=2, FilterWidth=2, Padding=1)
    ops = [
        Op("CONV_2D", [x, w, b], [c], ("Conv2DOptions", window | dict(Padding=0, FusedActivationFunction=3))),
        Op("PAD", [c, pads], [p]),
        Op("DEPTHWISE_CONV_2D", [p, w2, b2], [d], ("DepthwiseConv2DOptions", window | dict(Padding=1))),
        Op("ADD", [c, d], [s], ("AddOptions", dict(FusedActivationFunction=1))),
        Op("MAX_POOL_2D", [s], [m], ("Pool2DOptions", pool)),
        Op("FULLY_CONNECTED", [m, w3, b3], [y]),
    ]

    def compute(a):
        a = (a.astype(float) - zero) / steps
        one = np.clip(nhwc_conv(a, real[w], real[b], padding="SAME"), 0, 6)
        two = nhwc_conv(one, real[w2].transpose(3, 1, 2, 0), real[b2], padding="SAME", groups=6)
        both = np.maximum(one + two, 0).reshape(1, 4, 2, 4, 2, 6).max((2, 4))
        return both.reshape(1, -1) @ real[w3].T + real[b3]

    given = RNG(0).integers(info.min, info.max, (1, 8, 8, 4), endpoint=True).astype(dtype)
    return write(Graph(tensors, ops, [x], [y])), given, compute(given), tensors[y]


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16])
def test_quantized_network(dtype, tmp_path):
    data, x, want, result = _chain(dtype)
    model = fo.load_tflite(data)
    y = model(x)
    model.save(tmp_path / "model.fo")
    assert np.array_equal(fo.load(tmp_path / "model.fo")(x), y)
    assert y.dtype == dtype
    got = (y.astype(float) - result.zero) * result.scale
    bound = 0.02 if dtype != np.int16 else 2e-4  # of several roundings, by the largest value
    assert np.abs(got - want).max() <= bound * np.abs(want).max() + 2 * result.scale
    kinds = [n.op for n in model._graph.nodes]
    if dtype == np.int16:
        assert "Conv" in kinds and kinds.count("DequantizeLinear") == 1  # the input; inside they are floats
    elif _core.has_dot_product():  # else float32 may be faster
        assert not {"Conv", "Gemm", "Pad", "DequantizeLinear", "QuantizeLinear"}.intersection(kinds)
    unfused = fo.load_tflite(data, fold=False, fuse=False)(x)
    assert np.abs(unfused.astype(np.int64) - y.astype(np.int64)).max() <= 2


def test_products_of_rows_take_a_residual():
    w = RNG(1).standard_normal((3, 3)).astype(F)
    tensors = [Tensor((2, 5, 3)), constant(w), Tensor((2, 5, 3)), Tensor((2, 5, 3))]
    options = ("FullyConnectedOptions", dict(KeepNumDims=True))
    ops = [Op("FULLY_CONNECTED", [0, 1, -1], [2], options), Op("ADD", [2, 0], [3])]
    model = fo.load_tflite(write(Graph(tensors, ops, [0], [3])))
    assert [n.op for n in model._graph.nodes] == ["Linear"]
    x = RNG(0).standard_normal((2, 5, 3)).astype(F)
    np.testing.assert_allclose(model(x), x @ w.astype(float).T + x, rtol=1e-5, atol=1e-5)


def _requantized(sums, scale, zero, low):
    """Sums as LiteRT's reference kernels make int8 of them: by a multiplier of 31 bits, rounded to bits after the
    point that a second rounding drops, halves away from zero."""
    significand, exponent = np.frexp(scale)
    multiplier = np.rint(significand * 2**31).astype(np.int64)
    first = (sums.astype(np.int64) * multiplier + (1 << 30)) >> 31
    right = -exponent.astype(np.int64)
    return np.clip((first + (1 << right >> 1) - (first < 0) >> right) + zero, low, 127)


@pytest.mark.parametrize("act, zero", [(0, 5), (1, 5), (0, -128)])
@pytest.mark.parametrize("kind", ["CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"])
def test_rounds_as_litert(isa, kind, act, zero):
    """Large scales, where the first of two roundings keeps few bits, and so shows: to the bit by products of int8."""
    rng, channels = RNG(2), 24
    x, x_zero = rng.integers(-128, 128, (1, 9, 9, channels)).astype(np.int8), -7
    deep = kind == "DEPTHWISE_CONV_2D"
    w = rng.integers(-127, 128, (1, 3, 3, channels) if deep else (channels, 1, 1, channels)).astype(np.int8)
    b = rng.integers(-500, 500, channels).astype(INT)
    w_scale, y_scale = rng.uniform(0.002, 0.02, channels).astype(F), F(0.35 if deep else 0.7)
    scale = w_scale.astype(float) * F(0.5) / y_scale
    centred = x.astype(np.int64) - x_zero
    if deep:
        padded = np.pad(centred, [(0, 0), (1, 1), (1, 1), (0, 0)])
        sums = sum(padded[:, i : i + 9, j : j + 9] * w[0, i, j].astype(np.int64) for i in range(3) for j in range(3))
    else:
        sums = centred @ w.reshape(channels, channels).astype(np.int64).T
    want = _requantized(sums + b, scale, zero, max(-128, zero) if act else -128)
    if kind == "FULLY_CONNECTED":
        x, w, want = x.reshape(-1, channels), w.reshape(channels, channels), want.reshape(-1, channels)
    tensors = [
        Tensor(x.shape, np.int8, None, 0.5, x_zero),
        constant(w, scale=w_scale, axis=3 if deep else 0),
        constant(b, scale=w_scale * F(0.5)),
        Tensor(want.shape, np.int8, None, float(y_scale), zero),
    ]
    names = {"CONV_2D": "Conv2DOptions", "DEPTHWISE_CONV_2D": "DepthwiseConv2DOptions"}
    options = dict(FusedActivationFunction=act)
    if kind != "FULLY_CONNECTED":
        options |= dict(StrideH=1, StrideW=1, DilationHFactor=1, DilationWFactor=1, Padding=0)
    op = Op(kind, [0, 1, 2], [3], (names.get(kind, "FullyConnectedOptions"), options))
    data = write(Graph(tensors, [op], [0], [3]))
    for form in ({}, dict(fuse=False)) if act or zero == -128 else ({},):
        model = fo.load_tflite(data, **form)
        y = model(x)
        assert np.abs(y - want).max() <= 1 and np.mean(y != want) < 2e-3
        floats = {"Conv", "Linear"} & {node.op for node in model._graph.nodes}  # faster on some sets
        assert floats or form or np.array_equal(y, want)


def test_integers_inside_a_network_are_those_of_the_file():
    """A cast of what is kept as uint8 inside."""
    x, z = Tensor((4,), np.int8, None, 0.1, 3), Tensor((4,), np.int8, None, 0.1, 3)
    ops = [Op("RELU", [0], [1]), Op("CAST", [1], [2], ("CastOptions", dict(OutDataType=2)))]
    model = fo.load_tflite(write(Graph([x, z, Tensor((4,), INT)], ops, [0], [2])))
    assert model(np.array([-128, 2, 3, 127], np.int8)).tolist() == [3, 3, 3, 127]


def test_inputs_that_are_outputs_and_outputs_that_are_one():
    x = Tensor((1, 2, 2, 3))
    data = write(Graph([x, x], [Op("TANH", [0], [1])], [0], [0, 1, 1]))
    a = RNG(0).standard_normal((1, 2, 2, 3)).astype(F)
    same, once, twice = fo.load_tflite(data)(a)
    assert np.array_equal(same, a) and np.array_equal(once, twice)
    np.testing.assert_allclose(once, np.tanh(a), rtol=1e-5)


def _of_pixels(x, w, b, scale, act):
    """The result of a convolution of 1x1 in int8."""
    window = dict(StrideH=1, StrideW=1, DilationHFactor=1, DilationWFactor=1, Padding=0, FusedActivationFunction=act)
    tensors = [
        Tensor(x.shape, np.int8, None, 0.5, -7),
        constant(w, scale=scale, axis=0),
        constant(b, scale=scale * F(0.5)),
        Tensor((*x.shape[:3], len(w)), np.int8, None, 0.7, 5),
    ]
    model = fo.load_tflite(write(Graph(tensors, [Op("CONV_2D", [0, 1, 2], [3], ("Conv2DOptions", window))], [0], [3])))
    if "Conv" in {node.op for node in model._graph.nodes}:
        pytest.skip("floats are predicted to be faster on this set")
    return model(x)


@pytest.mark.parametrize("outputs, act", [(1, 0), (2, 1), (3, 3), (8, 0)])
def test_few_outputs_take_several_pixels_at_once(isa, outputs, act):
    """The same integers as of the same outputs among many."""
    rng = RNG(3)
    w, b = rng.integers(-127, 128, (40, 1, 1, 12)).astype(np.int8), rng.integers(-500, 500, 40).astype(INT)
    x = rng.integers(-128, 128, (1, 40, 33, 12)).astype(np.int8)
    scale = rng.uniform(0.002, 0.02, 40).astype(F)
    few, many = (_of_pixels(x, w[:n], b[:n], scale[:n], act) for n in (outputs, 40))
    assert np.array_equal(few, many[..., :outputs])


@pytest.mark.parametrize("groups", [2, 6])
def test_few_outputs_of_groups_do_not(isa, groups):
    """The same integers as of two parts of the image, which are small."""
    rng = RNG(4)
    w, b = rng.integers(-127, 128, (6, 1, 1, 6 // groups)).astype(np.int8), rng.integers(-500, 500, 6).astype(INT)
    x, scale = rng.integers(-128, 128, (1, 40, 33, 6)).astype(np.int8), rng.uniform(0.002, 0.02, 6).astype(F)
    whole, *parts = (_of_pixels(image, w, b, scale, 0) for image in (x, x[:, :20], x[:, 20:]))
    assert np.array_equal(whole, np.concatenate(parts, 1)) and len(np.unique(whole)) > 200


# ---- functions of int16, which LiteRT computes by tables


ALL_INT16 = np.arange(-32768, 32768).astype(np.int16)
TABLES = [
    *(("LOGISTIC", s) for s in (3 / 32767, 2.0**-12, 2.0**-11, 2.0**-13, 1e-5)),
    *(("TANH", s) for s in (3 / 32767, 2.0**-12, 2.0**-11, 2.0**-15, 20 / 32767)),
    *(("EXP", s) for s in (1 / 32767, 3 / 32767, 2.0**-12)),
    *(("LOG", s) for s in (1 / 32767, 1e-4, 2.0**-8)),
    *(("SOFTMAX", s) for s in (3 / 32767, 10 / 32767, 2.0**-12, 0.01)),
]


def _of_int16(kind, scale):
    """(a network of one function, inputs: all of int16, or for softmax rows of many ranges)."""
    shape, scale, options = (1, 65536), float(F(scale)), ()
    x, y_scale = ALL_INT16.reshape(shape), 1 / 32768
    if kind == "EXP":
        y_scale = float(F(np.exp(scale * 32767) / 32767))
    elif kind == "LOG":
        y_scale = float(F(np.log(32767 * 128) / 32767))
    elif kind == "SOFTMAX":
        shape, options = (2048, 32), (("SoftmaxOptions", dict(Beta=0.5)),)
        x = (RNG(1).integers(-32768, 32768, shape) // RNG(2).integers(1, 300, (2048, 1))).astype(np.int16)
    tensors = [Tensor(shape, np.int16, None, s, 0) for s in (scale, y_scale)]
    return single(kind, tensors[:1], tensors[1:], *options), x, y_scale


@pytest.mark.parametrize("kind, scale", [case for case in TABLES if case[0] != "LOG"])
def test_functions_of_int16(kind, scale, tmp_path):
    model, x, y_scale = _of_int16(kind, scale)
    model = fo.load_tflite(model)
    v = x * float(F(scale))
    want = {
        "LOGISTIC": lambda: 1 / (1 + np.exp(-v)),
        "TANH": lambda: np.tanh(v),
        "EXP": lambda: np.exp(v),
        "SOFTMAX": lambda: (e := np.exp((v - v.max(1, keepdims=True)) / 2)) / e.sum(1, keepdims=True),
    }[kind]()
    y = model(x)
    assert y.dtype == np.int16 and np.abs(y - np.clip(want / y_scale, -32768, 32767)).max() < (
        70 if scale == 0.01 else 12
    )
    model.save(tmp_path / "model.fo")
    assert np.array_equal(fo.load(tmp_path / "model.fo")(x), y)


@pytest.mark.parametrize("kind, scale", TABLES)
def test_functions_of_int16_have_litert_s_integers(kind, scale):
    litert = pytest.importorskip("ai_edge_litert.interpreter")
    data, x, _ = _of_int16(kind, scale)
    run = litert.Interpreter(model_content=data, experimental_op_resolver_type=litert.OpResolverType.BUILTIN_REF)
    run.allocate_tensors()
    run.set_tensor(run.get_input_details()[0]["index"], x)
    run.invoke()
    np.testing.assert_array_equal(fo.load_tflite(data)(x), run.get_tensor(run.get_output_details()[0]["index"]))


@pytest.mark.parametrize("scale", [s for kind, s in TABLES if kind == "LOG"])
def test_logarithms_of_int16(scale):
    """Below zero the lowest. LiteRT's table has a value at every 128th integer, and lines are far off near zero."""
    model, x, y_scale = _of_int16("LOG", scale)
    y, v = fo.load_tflite(model)(x)[0], np.arange(4096, 32768) * float(F(scale))
    assert set(y[: 32768 - 128]) == {-32768}
    assert np.all(np.diff(y.astype(INT)) >= 0)
    assert np.abs(y[32768 + 4096 :] - np.clip(np.log(v) / y_scale, -32768, 32767)).max() < 3


@pytest.mark.parametrize("dtype, zero", [(np.int8, -20), (np.int8, -128), (np.uint8, 128), (np.int16, 0)])
@pytest.mark.parametrize("kind", ["LOG", "SQRT", "RSQRT"])
def test_results_that_are_no_number_are_the_lowest(kind, dtype, zero):
    """LiteRT's LOG gives them so too; its SQRT and RSQRT refuse such inputs."""
    functions = {"LOG": np.log, "SQRT": np.sqrt, "RSQRT": lambda v: 1 / np.sqrt(v)}
    info, (scale, y_scale, y_zero) = np.iinfo(dtype), (1e-4, 2e-4, 0) if dtype is np.int16 else (0.02, 0.05, 10)
    x = np.arange(info.min, info.max + 1).astype(dtype)[None]
    here, there, last = (
        Tensor(x.shape, dtype, None, *q) for q in ((scale, zero), (y_scale, y_zero), (y_scale, y_zero))
    )
    y = fo.load_tflite(single(kind, [here], [there]))(x)
    if kind == "LOG":  # before another operator
        graph = Graph([here, there, last], [Op(kind, [0], [1]), Op("RELU", [1], [2])], [0], [2])
        np.testing.assert_array_equal(fo.load_tflite(write(graph))(x), np.maximum(y, y_zero))
    with np.errstate(all="ignore"):
        real = functions[kind]((x.astype(INT) - zero) * scale) / y_scale + y_zero
    far = 4096 if dtype is np.int16 and kind == "LOG" else 0  # from the middle of a table of lines
    known, lowest = x.astype(INT) - zero >= far, np.isnan(real) & (x <= -far)
    assert set(y[lowest]) <= {info.min} and lowest.any() == (zero > info.min)
    assert np.abs(y - np.clip(real, info.min, info.max))[known].max() < (3 if far else 1)


def test_an_exponential_beyond_floats_is_the_largest():
    tensors = [Tensor((1, 3), np.int16, None, scale, 0) for scale in (1.0, 1.0)]
    model = fo.load_tflite(single("EXP", tensors[:1], tensors[1:]))
    np.testing.assert_array_equal(model(np.array([[-32768, 2000, 32767]], np.int16)), [[0, 32767, 32767]])
