"""Operators that no network of the other tests has, with random attributes and sizes, against ONNX Runtime and NumPy
in float64."""

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
from hypothesis import given
from hypothesis import strategies as st

import fusedops as fo
from onnx_single_node import SEEDS, agree, few, floats, integers, ints, model

_FUNCTIONS = [
    "Sin",
    "Cos",
    "Tan",
    "Sinh",
    "Cosh",
    "Asin",
    "Acos",
    "Atan",
    "Asinh",
    "Atanh",
    "Celu",
    "Selu",
    "Elu",
    "HardSigmoid",
    "Softsign",
    "Mean",
]


# ---- elements of other sizes -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "op",
    _FUNCTIONS,
)
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_types_stay(op, dtype):
    """Against float64; ONNX Runtime has these for float32 alone."""
    x = np.clip(floats(0, 3, 4, dtype=dtype), -0.9, 0.9)
    y = fo.load_onnx(model(op, {"x": x}, {}, (dtype,), opset=22))(x)
    exact = fo.load_onnx(model(op, {"x": x.astype(np.float64)}, {}, (np.float64,), opset=22))(x.astype(np.float64))
    assert y.dtype == dtype and exact.dtype == np.float64
    np.testing.assert_allclose(y, exact, rtol={2: 2e-3, 4: 1e-6, 8: 1e-15}[x.itemsize], atol=1e-7)
    functions = {"Asin": np.arcsin, "Acos": np.arccos, "Atan": np.arctan, "Asinh": np.arcsinh, "Atanh": np.arctanh}
    if hasattr(np, op.lower()) or op in functions:
        reference = functions.get(op) or getattr(np, op.lower())
        np.testing.assert_allclose(exact, reference(x.astype(np.float64)) if op != "Mean" else x, rtol=1e-12)


# ---- indices -----------------------------------------------------------------------------------------------------


@few
@given(st.sampled_from(["none", "add", "mul", "max", "min"]), st.sampled_from([0, 1, -1]), SEEDS)
def test_scatter(reduction, axis, seed):
    random = np.random.default_rng(seed)
    index = np.argsort(random.random((3, 4)), axis)[:2, :3] - random.integers(0, 2) * (3, 4)[axis]
    agree(
        "ScatterElements",
        {"x": floats(seed, 3, 4)},
        {"i": index, "u": floats(seed + 1, 2, 3)},
        axis=axis,
        reduction=reduction,
    )
    rows = random.permutation(4)[:3].reshape(3, 1) - 4 * random.integers(0, 2)
    agree("ScatterND", {"x": floats(seed, 4, 3, 2)}, {"i": rows, "u": floats(seed + 1, 3, 3, 2)}, reduction=reduction)


@few
@given(st.sampled_from([0, 1, 2, -1, -2]), st.integers(1, 5), SEEDS)
def test_one_hot(axis, depth, seed):
    agree("OneHot", {"i": integers(seed, -7, 7, 3, 2)}, {"d": np.array(depth), "v": floats(seed, 2)}, axis=axis)


@few
@given(st.sampled_from([None, 0, 1, -1]), st.booleans(), SEEDS)
def test_unique_and_compress(axis, ordered, seed):
    x, attrs = integers(seed, 0, 2, 4, 3).astype(np.float32), {} if axis is None else {"axis": axis}
    agree("Unique", {"x": x}, outputs=(np.float32, *[np.int64] * 3), sorted=int(ordered), **attrs)
    chosen = np.random.default_rng(seed).random(12 if axis is None else x.shape[axis]) < 0.5
    agree("Compress", {"x": x, "c": chosen}, **attrs)
    agree("NonZero", {"x": x}, outputs=(np.int64,))


@few
@given(st.booleans(), st.booleans(), st.sampled_from([0, 1, -1]), st.integers(0, 3), SEEDS)
def test_order(largest, last, axis, k, seed):
    x = integers(seed, 0, 3, 4, 5).astype(np.float32)
    agree("TopK", {"x": x}, {"k": ints(k)}, (np.float32, np.int64), largest=int(largest), axis=axis)
    agree(
        "ArgMax" if largest else "ArgMin",
        {"x": x},
        outputs=(np.int64,),
        axis=axis,
        select_last_index=int(last),
        keepdims=k % 2,
    )
    agree("CumSum", {"x": x}, {"axis": np.array(axis)}, exclusive=int(largest), reverse=int(last))


@few
@given(st.sampled_from([np.int64, np.int32, np.uint8, np.float64]), st.booleans(), st.sampled_from([1, 7, 300]),
       st.sampled_from([3, 250, 2**40]), SEEDS)  # fmt: skip
def test_the_best_of_long_rows(dtype, largest, k, most, seed):
    """Of equal ones the first; a row may be of one number, or in order."""
    x = integers(seed, 0 if dtype is np.uint8 else -most, most, 2, 5000).astype(dtype)
    x[1] = x[1, 0] if seed % 3 == 0 else np.sort(x[1])
    proto = model("TopK", {"x": x}, {"k": ints(k)}, (dtype, np.int64), attrs={"largest": int(largest)}.items())
    y, places = fo.load_onnx(proto)(x)
    keys = [[(-int(v) if largest else int(v), i) for i, v in enumerate(row)] for row in x]
    np.testing.assert_array_equal(places, [[i for _, i in sorted(row)[:k]] for row in keys])
    np.testing.assert_array_equal(y, np.take_along_axis(x, places, 1))


def test_the_best_beside_nan():
    x = floats(0, 2, 5000, dtype=np.float64)
    x[0, 77] = np.nan
    agree("TopK", {"x": x}, {"k": ints(5)}, (np.float64, np.int64))


@few
@given(st.integers(1, 4), st.data(), SEEDS)
def test_parts_behind_a_batch(axes, data, seed):
    """By indices from either end; one outside any of their axes is refused, though it is inside the whole."""
    batch = data.draw(st.integers(0, axes - 1))
    depth, shape = data.draw(st.integers(1, axes - batch)), tuple(data.draw(st.integers(1, 4)) for _ in range(axes))
    dtype = data.draw(st.sampled_from([np.float32, np.int64, np.uint8]))
    x = integers(seed, 0, 200, *shape).astype(dtype)
    i = np.stack([integers(seed + k, -n, n - 1, *shape[:batch], 3) for k, n in enumerate(shape[batch:][:depth])], -1)
    agree("GatherND", {"x": x, "i": i}, outputs=(dtype,), batch_dims=batch)
    net = fo.load_onnx(model("GatherND", {"x": x, "i": i}, {}, (dtype,), attrs={"batch_dims": batch}.items()))
    net(x, i)
    assert not any(step.kind == "numpy" for step in net._plan(x, i)[0].steps)
    i.reshape(-1, depth)[0, seed % depth] = shape[batch + seed % depth]
    with pytest.raises(ValueError, match="GatherND"):
        net(x, i)


@few
@given(st.permutations("abcdef"), st.lists(st.sampled_from("brci"), min_size=2, max_size=6), st.data(), SEEDS)
def test_products_over_any_axes(letters, kinds, data, seed):
    """Shared axes, rows, columns and summed ones, as many of each as there are, in any order."""
    kinds = dict(zip(letters, [*kinds, "i"], strict=False))
    a, b, y = ("".join(data.draw(st.permutations([c for c, k in kinds.items() if k != left]))) for left in "cri")
    sizes = {c: 2 + (seed + i) % 3 for i, c in enumerate(kinds)}
    given_ = {"a": floats(seed, *(sizes[c] for c in a)), "b": floats(seed + 1, *(sizes[c] for c in b))}
    attrs = {"equation": f"{a},{b}->{y}"}
    right = np.einsum(attrs["equation"], *(x.astype(np.float64) for x in given_.values()))
    for constants in ({}, {"b": given_["b"]}):
        inputs = {k: x for k, x in given_.items() if k not in constants}
        net = fo.load_onnx(model("Einsum", inputs, constants, (np.float32,), attrs=attrs.items()))
        for _ in range(2):
            np.testing.assert_allclose(net(*inputs.values()), right, rtol=1e-4, atol=1e-4)
        assert not any(step.kind == "numpy" for step in net._plan(*inputs.values())[0].steps)


@pytest.mark.parametrize("op, function", [("Max", np.maximum), ("Min", np.minimum)])
@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.uint16])
def test_what_numpy_computes_is_written_where_it_belongs(op, function, dtype):
    a, b = (integers(i, 0, 100, 3, 4).astype(dtype) for i in (0, 1))
    net = fo.load_onnx(model(op, {"a": a, "b": b[:1]}, {}, (dtype,)))
    y = np.empty((3, 4), dtype)
    assert net(a, b[:1], out=y) is y
    np.testing.assert_array_equal(y, function(a, b[:1]))


def test_sequences_backwards():
    agree("ReverseSequence", {"x": floats(0, 4, 3, 2)}, {"l": ints(2, 4, 1)})
    agree("ReverseSequence", {"x": floats(0, 3, 4, 2)}, {"l": ints(2, 4, 1)}, batch_axis=0, time_axis=1)
    for lengths in ints(2, 5, 1), ints(2, -1, 1):
        net = fo.load_onnx(model("ReverseSequence", {"x": floats(0, 4, 3, 2), "l": lengths}, {}, (np.float32,)))
        with pytest.raises(ValueError, match="lengths"):
            net(floats(0, 4, 3, 2), lengths)


# ---- images ------------------------------------------------------------------------------------------------------


@few
@given(
    st.sampled_from(["linear", "nearest", "cubic"]),
    st.sampled_from(["zeros", "border", "reflection"]),
    st.booleans(),
    st.integers(1, 7),
    st.integers(2, 7),
    SEEDS,
)
def test_grid_sample(mode, padding, corners, height, width, seed):
    height = (
        max(height, 2) if padding == "reflection" and corners else height
    )  # ONNX Runtime divides by the span of one pixel
    agree(
        "GridSample",
        {"x": floats(seed, 2, 3, height, width), "g": 1.2 * floats(seed + 1, 2, 4, 3, 2)},
        mode=mode,
        padding_mode=padding,
        align_corners=int(corners),
        opset=20,
    )
    if mode != "cubic":
        agree(
            "GridSample",
            {"x": floats(seed, 1, 2, 3, height, width), "g": 1.2 * floats(seed + 1, 1, 2, 2, 3, 3)},
            mode=mode,
            padding_mode=padding,
            align_corners=int(corners),
            opset=20,
        )


@few
@given(
    st.sampled_from(["nearest", "linear", "cubic"]),
    st.booleans(),
    st.booleans(),
    st.integers(4, 9),
    st.integers(4, 9),
    st.sampled_from(["half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel"]),
    st.tuples(*[st.sampled_from([0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.3])] * 2),
    SEEDS,
)
def test_resize(mode, antialias, outside, height, width, coordinates, scales, seed):
    antialias = antialias and mode != "nearest" and coordinates == "half_pixel"
    outside = outside and mode == "cubic" and not antialias
    agree(
        "Resize",
        {"x": floats(seed, 1, 2, height, width)},
        {"roi": None, "s": np.array([1, 1, *scales], np.float32)},
        opset=19,
        mode=mode,
        antialias=int(antialias),
        exclude_outside=int(outside),
        coordinate_transformation_mode=coordinates,
    )


def test_resize_of_integers_rounds():
    x = np.arange(6, dtype=np.uint8).reshape(1, 1, 1, 6) * 37
    net = fo.load_onnx(
        model(
            "Resize",
            {"x": x},
            {"roi": None, "s": np.float32([1, 1, 1, 1.5])},
            (np.uint8,),
            attrs={"mode": "linear"},
            opset=19,
        )
    )
    at = np.clip((np.arange(9) + 0.5) / 1.5 - 0.5, 0, 5)
    np.testing.assert_array_equal(net(x)[0, 0, 0], np.rint(np.interp(at, np.arange(6), x.ravel())))


@few
@given(st.sampled_from(["avg", "max"]), st.integers(0, 3), st.booleans(), st.floats(0.3, 1.5), SEEDS)
def test_roi_align(mode, samples, half, scale, seed):
    corners = np.abs(floats(seed, 3, 2)) * 4
    rois = np.concatenate([corners, corners + np.abs(floats(seed + 1, 3, 2)) * 5], 1).astype(np.float32)
    agree(
        "RoiAlign",
        {"x": floats(seed, 2, 3, 8, 9), "r": rois, "b": ints(0, 1, 1)},
        opset=16,
        mode=mode,
        sampling_ratio=samples,
        output_height=3,
        output_width=2,
        spatial_scale=scale,
        coordinate_transformation_mode="half_pixel" if half else "output_half_pixel",
    )
    agree(
        "MaxRoiPool",
        {"x": floats(seed, 2, 3, 8, 9), "r": np.concatenate([np.float32([[0], [1], [1]]), rois], 1)},
        pooled_shape=[2, 3],
        spatial_scale=scale,
    )


@few
@given(st.booleans(), st.integers(0, 5), st.floats(0, 1), st.floats(0, 1), SEEDS)
def test_non_max_suppression(centred, most, overlap, least, seed):
    boxes = np.random.default_rng(seed).random((2, 10, 4), np.float32)
    boxes[..., 2:] += 0 if centred else boxes[..., :2]
    limits = {"m": ints(most), "o": np.float32([overlap]), "l": np.float32([least])}
    agree(
        "NonMaxSuppression",
        {"b": boxes, "s": np.random.default_rng(seed + 1).random((2, 3, 10), np.float32)},
        limits,
        (np.int64,),
        center_point_box=int(centred),
    )


@few
@given(
    st.integers(1, 3),
    st.booleans(),
    st.booleans(),
    st.integers(1, 2),
    st.lists(st.integers(0, 1), min_size=4, max_size=4),
    SEEDS,
)
def test_pools(p, up, by_columns, dilation, pads, seed):
    x, window = floats(seed, 2, 2, 7, 8), dict(kernel_shape=[2, 3], strides=[2, 2], pads=pads, ceil_mode=int(up))
    agree(
        "MaxPool",
        {"x": x},
        outputs=(np.float32, np.int64),
        storage_order=int(by_columns),
        dilations=[dilation] * 2,
        **window,
    )
    agree("AveragePool", {"x": x}, opset=19, count_include_pad=int(by_columns), dilations=[dilation] * 2, **window)
    agree("LpPool", {"x": x}, opset=18, p=p, **{k: v for k, v in window.items() if k != "ceil_mode"})
    agree("GlobalLpPool", {"x": x}, p=p)


@pytest.mark.parametrize("size", [(1, 9), (1, 1), (9, 1), (2, 7)])
def test_a_window_of_maxima_is_larger_than_the_image(size):
    """By less than a stride: ONNX Runtime's sizes."""
    for window in (dict(kernel_shape=[2, 2], strides=[2, 2]), dict(kernel_shape=[4, 3], strides=[4, 4])):
        agree("MaxPool", {"x": floats(0, 1, 3, *size)}, **window)
        agree("MaxPool", {"x": floats(0, 1, 3, *size)}, outputs=(np.float32, np.int64), **window)
    attrs = dict(kernel_shape=[3, 3], strides=[2, 2])
    proto = model("MaxPool", {"x": floats(0, 1, 3, 1, 9)}, {}, (np.float32,), attrs=attrs)
    with pytest.raises(ValueError, match="a window of 3 does not fit an image of 1"):
        fo.load_onnx(proto)(floats(0, 1, 3, 1, 9))


def test_an_empty_image_has_no_window_of_maxima():
    empty = model("MaxPool", {"x": floats(0, 1, 3, 0)}, {}, (np.float32,), attrs=dict(kernel_shape=[2], strides=[3]))
    with pytest.raises(ValueError, match="a window of 2 does not fit an image of 0"):
        fo.load_onnx(empty)(floats(0, 1, 3, 0))


def test_unpooled_and_columns():
    agree(
        "MaxUnpool",
        {"x": floats(0, 1, 1, 2, 2)},
        {"i": ints(5, 7, 13, 15).reshape(1, 1, 2, 2)},
        kernel_shape=[2, 2],
        strides=[2, 2],
    )
    agree("Col2Im", {"x": floats(0, 1, 12, 4)}, {"s": ints(5, 5), "k": ints(2, 3)}, strides=[3, 2], opset=18)
    agree("AffineGrid", {"t": floats(0, 2, 2, 3)}, {"s": ints(2, 3, 4, 5)}, opset=20)


# ---- signals -----------------------------------------------------------------------------------------------------


@few
@given(st.integers(2, 20), st.integers(1, 24), st.booleans(), st.booleans(), SEEDS)
def test_fourier(size, length, onesided, inverse, seed):
    parts = 2 if inverse else 1
    x = floats(seed, 2, size, parts)
    if not (onesided and inverse):
        agree("DFT", {"x": x}, {"l": np.array(length)}, onesided=int(onesided), inverse=int(inverse), opset=20)
    net = fo.load_onnx(
        model(
            "DFT",
            {"x": x},
            {"l": np.array(length)},
            (np.float32,),
            attrs=dict(onesided=int(onesided), inverse=int(inverse)),
            opset=20,
        )
    )
    v = x.astype(np.float64) @ (np.array([1, 1j]) if inverse else np.ones(1))
    y = (
        np.fft.irfft(v, length)
        if onesided and inverse
        else np.fft.ifft(v, length)
        if inverse
        else np.fft.rfft(v, length)
        if onesided
        else np.fft.fft(v, length)
    )
    y = y[..., None] if onesided and inverse else np.stack([y.real, y.imag], -1)
    np.testing.assert_allclose(net(x), y, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("onesided", [0, 1])
def test_short_time_fourier(onesided):
    agree(
        "STFT",
        {"x": floats(0, 1, 64, 1)},
        {"s": np.array(8), "w": np.hanning(16).astype(np.float32), "l": np.array(16)},
        opset=17,
        onesided=onesided,
    )


def test_mel_filters():
    agree(
        "MelWeightMatrix",
        {"n": np.array(8)},
        {"l": np.array(64), "r": np.array(16000), "a": np.array(20, np.float32), "b": np.array(8000, np.float32)},
        opset=17,
    )


# ---- recurrent ---------------------------------------------------------------------------------------------------

GATES = {
    "RNN": (1, [["Tanh"], ["Relu"], ["Softsign"], ["HardSigmoid"]]),
    "GRU": (3, [["Sigmoid", "Tanh"], ["HardSigmoid", "Softplus"], ["Relu", "LeakyRelu"]]),
    "LSTM": (4, [["Sigmoid", "Tanh", "Tanh"], ["HardSigmoid", "Relu", "Softsign"], ["Sigmoid", "Elu", "Tanh"]]),
}


@few
@given(
    st.sampled_from(sorted(GATES)),
    st.integers(0, 3),
    st.sampled_from(["forward", "reverse", "bidirectional"]),
    st.booleans(),
    st.booleans(),
    SEEDS,
)
def test_recurrent(op, kind, direction, lengths, flag, seed):
    gates, kinds = GATES[op]
    n, hidden = 2 if direction == "bidirectional" else 1, 3
    attrs = dict(hidden_size=hidden, activations=kinds[kind % len(kinds)] * n, direction=direction)
    attrs |= {} if not flag else {"GRU": {"linear_before_reset": 1}, "LSTM": {"input_forget": 1}}.get(op, {})
    constants = {
        "w": floats(seed, n, gates * hidden, 4),
        "r": floats(seed + 1, n, gates * hidden, hidden),
        "b": floats(seed + 2, n, 2 * gates * hidden),
        "l": np.int32([3, 1]) if lengths else None,
        "h": floats(seed + 3, n, 2, hidden),
    }
    constants |= {"c": floats(seed + 4, n, 2, hidden), "p": floats(seed + 5, n, 3 * hidden)} if op == "LSTM" else {}
    agree(op, {"x": floats(seed, 3, 2, 4)}, constants, (np.float32,) * (3 if op == "LSTM" else 2), **attrs)


@pytest.mark.parametrize(
    "equation, shapes",
    [
        ("ii->i", [(3, 3)]),
        ("ijk,lk,lj->il", [(2, 3, 4), (5, 4), (5, 3)]),
        ("ij,ij", [(3, 4), (3, 4)]),
        ("...ij,...jk->...ik", [(2, 3, 4), (2, 4, 5)]),
        ("bhwc,hkc->bhwk", [(2, 3, 4, 5), (3, 6, 5)]),
    ],
)
def test_einsum(equation, shapes):
    agree("Einsum", {f"x{i}": floats(i, *shape) for i, shape in enumerate(shapes)}, equation=equation)
