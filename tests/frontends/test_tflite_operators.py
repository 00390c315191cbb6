"""Operators of TFLite, one at a time: fused, folded and not, they compute what NumPy does in float64, and in 8 and 16
bits the integers of that to one step; LiteRT's reference kernels agree."""

import numpy as np
import pytest

pytest.importorskip("tflite")

from tflite_stable import STABLE, with_body

import fusedops as fo
from fusedops import _core
from fusedops.graph.frontends.tflite.builtins import ABSENT, BUILTINS
from tflite_cases import CASES, feeds
from tflite_models import Graph, Op, Tensor, constant, single, write
from tflite_quantized import QUANTIZED, store
from tflite_quantized import feeds as quantized_feeds

ALL = [*CASES, *STABLE]
FORMS = {"fused": {}, "unfused": dict(fold=False, fuse=False)}
# LiteRT's reference leaves out one channel of the window, its other kernels do not; it reads past an array
ODD = {"lrn", "stablehlo_gather_columns"}


def _results(y):
    return y if isinstance(y, tuple) else (y,)


def _wanted(case, arrays):
    return [np.asarray(w) for w in case.wanted(*(x.astype(float) if x.dtype == np.float32 else x for x in arrays))]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("case", ALL, ids=lambda c: c.name)
def test_floats(case, form):
    arrays = feeds(case)
    got = _results(fo.load_tflite(single(*case[1:4], *case[5:]), **FORMS[form])(*arrays))
    for y, w, t in zip(got, _wanted(case, arrays), case.outputs, strict=True):
        assert y.shape == w.shape and y.dtype == t.dtype
        np.testing.assert_allclose(y, w, rtol=2e-5, atol=2e-5)


# what needs the sizes of more axes than the first: those of channels, of windows and blocks, and of diagonals
FIXED = "conv", "depthwise", "transpose_conv", "space_to_batch", "batch_to_space", "fully_connected_3d", "matrix"


@pytest.mark.parametrize("axes", ["batch", "all"])
@pytest.mark.parametrize("case", [c for c in CASES if any(t and t.data is None and t.shape for t in c.inputs)],
                         ids=lambda c: c.name)  # fmt: skip
def test_open_sizes(case, axes):
    """With an open first axis every operator is read, and in any sizes most of them."""
    if axes == "all" and case.name.startswith(FIXED):
        pytest.skip("it needs sizes")
    inputs = [
        t
        if t is None or t.data is not None or t.variable or not t.shape
        else t._replace(signature=(-1, *(t.shape[1:] if axes == "batch" else [-1] * (len(t.shape) - 1))))
        for t in case.inputs
    ]
    arrays = feeds(case)
    got = _results(fo.load_tflite(single(case.kind, inputs, *case[3:4], *case[5:]))(*arrays))
    for y, w in zip(got, _wanted(case, arrays), strict=True):
        assert y.shape == w.shape
        np.testing.assert_allclose(y, w, rtol=2e-5, atol=2e-5)


def test_transforms_of_other_lengths():
    """An open axis is cut or gets zeros after it."""
    x = np.random.default_rng(0).standard_normal((2, 3, 9)).astype(np.float32)
    for n in (8, 9, 12):
        given = [Tensor((2, 3, 9), signature=(-1, 3, -1)), constant(np.array([3, n], np.int32))]
        options = ("Rfft2dOptions", {})
        kinds = [Tensor((2, 3, n // 2 + 1), np.complex64), Tensor((2, 3, n // 2 + 1))]
        graph = Graph([*given, *kinds], [Op("RFFT2D", [0, 1], [2], options), Op("COMPLEX_ABS", [2], [3])], [0], [3])
        y = fo.load_tflite(write(graph))(x)
        np.testing.assert_allclose(y, np.abs(np.fft.rfft2(x, (3, n))), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("case", QUANTIZED, ids=lambda c: c.name)
def test_integers(case):
    arrays, reals = quantized_feeds(case)
    got = _results(fo.load_tflite(single(*case[1:4], *case[5:]))(*arrays))
    for y, w, t in zip(got, case.wanted(*reals), case.outputs, strict=True):
        w = np.asarray(w) if t.scale is None else store(w, t.scale, t.zero, t.dtype)
        assert y.shape == w.shape and y.dtype == t.dtype
        assert np.abs(y.astype(np.int64) - w.astype(np.int64)).max(initial=0) <= 1


def _litert(model, arrays):
    """The results of LiteRT's reference kernels; None where they have no such operator."""
    litert = pytest.importorskip("ai_edge_litert.interpreter")
    try:
        run = litert.Interpreter(
            model_content=model, experimental_op_resolver_type=litert.OpResolverType.BUILTIN_REF, num_threads=1
        )
        run.allocate_tensors()
        for detail, x in zip(run.get_input_details(), arrays, strict=True):
            run.set_tensor(detail["index"], x)
        run.invoke()
    except (ValueError, RuntimeError):
        return None
    return [run.get_tensor(detail["index"]) for detail in run.get_output_details()]


@pytest.mark.parametrize("case", [c for c in ALL if c.name not in ODD], ids=lambda c: c.name)
def test_floats_as_litert(case):
    arrays, model = feeds(case), single(*case[1:4], *case[5:])
    want = _litert(model, arrays)
    if want is None:
        pytest.skip("LiteRT's reference kernels do not have it")
    for y, w in zip(_results(fo.load_tflite(model)(*arrays)), want, strict=True):
        assert y.shape == w.shape and y.dtype == w.dtype
        np.testing.assert_allclose(y, w, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("case", QUANTIZED, ids=lambda c: c.name)
def test_integers_as_litert(case):
    (arrays, _), model = quantized_feeds(case), single(*case[1:4], *case[5:])
    want = _litert(model, arrays)
    if want is None:
        pytest.skip("LiteRT's reference kernels do not have it")
    for y, w in zip(_results(fo.load_tflite(model)(*arrays)), want, strict=True):
        assert y.shape == w.shape and y.dtype == w.dtype
        assert np.abs(y.astype(np.int64) - w.astype(np.int64)).max(initial=0) <= 1


def test_records_name_builtins():
    tflite = pytest.importorskip("tflite")
    known = {name for name, n in vars(tflite.BuiltinOperator).items() if isinstance(n, int)}
    names = [name for name in (*BUILTINS, *ABSENT) if not name.startswith("'")]
    assert set(names) <= known and not set(BUILTINS) & set(ABSENT)


@pytest.mark.parametrize("layer", [c for c in QUANTIZED if "int8" in c.name and c.kind in (
    "CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED")], ids=lambda c: c.name)  # fmt: skip
@pytest.mark.skipif(not _core.has_dot_product(), reason="without a dot product of int8 float32 may be faster")
def test_layers_stay_integers(layer):
    """No float is left between the integers of a layer."""
    model = fo.load_tflite(single(*layer[1:4], *layer[5:]))
    kinds = {node.op for node in model._graph.nodes} - {"Transpose"}
    assert kinds == {"QuantizedLinear" if layer.kind == "FULLY_CONNECTED" else "QuantizedConv"}


@pytest.mark.parametrize("act", [1, 3])
def test_images_are_not_transposed(act):
    """A convolution after another has no transposition between them, and its activation is fused."""
    case = next(c for c in CASES if c.name == "conv_same")
    model = fo.load_tflite(single(case.kind, case.inputs, case.outputs, (case.options[0], case.options[1] | dict(
        FusedActivationFunction=act))))  # fmt: skip
    kinds = [node.op for node in model._graph.nodes]
    assert kinds == ["Transpose", "Conv", "Transpose"] and model._graph.nodes[1].activation is not None


_ROWS_BY_COLUMNS = "DotGeneral", dict(LhsContractingDimensions=[1], RhsContractingDimensions=[0])


@pytest.mark.parametrize("kind, shapes, to, options", [
    ("RESHAPE", [(2, 0, 3)], (0, 6), None), ("RESHAPE", [(4, 0)], (0, 5), None),
    ("BROADCAST_IN_DIM", [(0,)], (3, 0), ("BroadcastInDim", dict(BroadcastDimensions=[1]))),
    ("DOT_GENERAL", [(3, 0), (0, 5)], (3, 5), _ROWS_BY_COLUMNS),
    ("DOT_GENERAL", [(0, 4), (4, 5)], (0, 5), _ROWS_BY_COLUMNS),
])  # fmt: skip
def test_axes_of_no_elements(kind, shapes, to, options):
    options = options and (f"Stablehlo{options[0]}Options", {k: np.array(v) for k, v in options[1].items()})
    model = single(f"STABLEHLO_{kind}", [Tensor(shape) for shape in shapes], [Tensor(to)], options)
    np.testing.assert_array_equal(
        fo.load_tflite(model)(*(np.ones(shape, np.float32) for shape in shapes)), np.zeros(to)
    )


# ---- operators that combine numbers as a subgraph says

_SCATTER = dict(UpdateWindowDims=(1,), InsertedWindowDims=(0,), ScatterDimsToOperandDims=(0,), IndexVectorDim=1)
_WINDOW = dict(WindowDimensions=(1, 3), WindowStrides=(1, 2), BaseDilations=(1, 1), WindowDilations=(2, 1),
               Padding=(0, 0, 1, 1))  # fmt: skip


def _as_litert(model, arrays, wanted):
    """Whether a model computes what is wanted, and LiteRT the same."""
    got = fo.load_tflite(model)(*arrays)
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)
    theirs = _litert(model, arrays)
    assert theirs is None or np.allclose(theirs[0], got, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("body, combine", [("STABLEHLO_ADD", np.add), ("STABLEHLO_MAXIMUM", np.maximum), ("", None)])
def test_scatter(body, combine):
    rng = np.random.default_rng(0)
    x, rows, at = rng.standard_normal((5, 4)), rng.standard_normal((3, 4)), np.array([[4], [0], [3]], np.int32)
    x, rows, want = x.astype(np.float32), rows.astype(np.float32), x.astype(np.float32)
    want[at[:, 0]] = rows if combine is None else combine(want[at[:, 0]], rows)
    inputs = [Tensor((5, 4)), constant(at), Tensor((3, 4))]
    model = with_body("STABLEHLO_SCATTER", ("StablehloScatterOptions", _SCATTER), inputs, Tensor((5, 4)), body,
                      "UpdateComputationSubgraphIndex")  # fmt: skip
    _as_litert(model, [x, rows], want)


@pytest.mark.parametrize("constant_indices", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_scatter_drops_what_lies_outside(dtype, constant_indices):
    x, at = np.arange(10, dtype=dtype).reshape(5, 2), np.array([[1], [-1], [5], [2**31 - 1], [-(2**31)]], np.int32)
    rows, want = np.arange(10, 20, dtype=dtype).reshape(5, 2), x.copy()
    want[1] += rows[0]
    indices = constant(at) if constant_indices else Tensor((5, 1), np.int32)
    model = with_body("STABLEHLO_SCATTER", ("StablehloScatterOptions", _SCATTER),
                      [Tensor((5, 2), dtype), indices, Tensor((5, 2), dtype)], Tensor((5, 2), dtype),
                      "STABLEHLO_ADD", "UpdateComputationSubgraphIndex")  # fmt: skip
    _as_litert(model, [x, rows] if constant_indices else [x, at, rows], want)


def test_scatter_of_windows_of_which_a_part_lies_outside():
    x, at = np.zeros((5, 4), np.float32), np.array([[3, 1], [-1, 2]], np.int32)
    windows, want = np.arange(1, 13, dtype=np.float32).reshape(2, 3, 2), np.zeros((5, 4), np.float32)
    want[3:, 1:3], want[:2, 2:] = windows[0, :2], windows[1, 1:]
    options = dict(UpdateWindowDims=(1, 2), ScatterDimsToOperandDims=(0, 1), IndexVectorDim=1)
    model = with_body("STABLEHLO_SCATTER", ("StablehloScatterOptions", options),
                      [Tensor((5, 4)), Tensor((2, 2), np.int32), Tensor((2, 3, 2))], Tensor((5, 4)), "",
                      "UpdateComputationSubgraphIndex")  # fmt: skip
    _as_litert(model, [x, at, windows], want)


@pytest.mark.parametrize("body, start, reduce", [("STABLEHLO_ADD", 0.0, np.sum), ("STABLEHLO_MAXIMUM", -9.0, np.max)])
def test_windows_and_reductions_by_a_subgraph(body, start, reduce):
    x = np.random.default_rng(0).standard_normal((4, 7)).astype(np.float32)
    inputs = [Tensor((4, 7)), constant(np.float32(start))]
    padded = np.pad(x, [(0, 0), (1, 1)], constant_values=start)
    want = np.stack([reduce(padded[:, i : i + 3], 1) for i in range(0, 7, 2)], 1)
    model = with_body("STABLEHLO_REDUCE_WINDOW", ("StablehloReduceWindowOptions", _WINDOW), inputs, Tensor((4, 4)),
                      body, "BodySubgraphIndex")  # fmt: skip
    _as_litert(model, [x], want)
    options = ("StablehloReduceOptions", dict(Dimensions=(0,)))
    _as_litert(
        with_body("STABLEHLO_REDUCE", options, inputs, Tensor((7,)), body, "BodySubgraphIndex"), [x], reduce(x, 0)
    )


def test_tensors_without_axes():
    """A window, and an update, of one number."""
    x, number = np.float32(3), Tensor(())
    options = "StablehloReduceWindowOptions", {}
    window = with_body("STABLEHLO_REDUCE_WINDOW", options, [number, constant(np.float32(2))], number,
                       "STABLEHLO_ADD", "BodySubgraphIndex")  # fmt: skip
    assert fo.load_tflite(window)(x) == 5
    inputs = [number, Tensor((0,), np.int32), number._replace(name="update")]
    scatter = with_body("STABLEHLO_SCATTER", ("StablehloScatterOptions", {}), inputs, number, "STABLEHLO_ADD",
                        "UpdateComputationSubgraphIndex")  # fmt: skip
    assert fo.load_tflite(scatter)(x, np.empty(0, np.int32), np.float32(4)) == 7


@pytest.mark.parametrize("number, start, reduce", [(1, 0.0, np.sum), (2, 1.0, np.prod), (3, 9.0, np.min),
                                                   (4, -9.0, np.max)])  # fmt: skip
def test_reduce_window(number, start, reduce):
    x = np.random.default_rng(0).standard_normal((4, 9)).astype(np.float32)
    lists = [constant(np.array(v, np.int64)) for v in ((2, 3), (1, 2), (1, 2))]
    model = single("REDUCE_WINDOW", [Tensor((4, 9)), constant(np.float32(start)), *lists], [Tensor((3, 3))],
                   ("ReduceWindowOptions", dict(ReduceFunction=number)))  # fmt: skip
    want = [[reduce(x[i : i + 2, j : j + 5 : 2]) for j in (0, 2, 4)] for i in range(3)]
    _as_litert(model, [x], want)


@pytest.mark.parametrize("options, words", [
    (_WINDOW | dict(WindowDimensions=(1, 99)), "larger than the tensor"),
    (_WINDOW | dict(BaseDilations=(1, 2)), "between elements"),
    (_WINDOW | dict(WindowDimensions=(4, 2000)), "8000 elements"),
])  # fmt: skip
def test_windows_that_are_refused(options, words):
    inputs = [Tensor((4, 7)), constant(np.float32(0))]
    given = "STABLEHLO_REDUCE_WINDOW", ("StablehloReduceWindowOptions", options), inputs, Tensor((4, 4))
    with pytest.raises(ValueError, match=words):
        fo.load_tflite(with_body(*given, "STABLEHLO_ADD", "BodySubgraphIndex"))
    with pytest.raises(ValueError, match="combines numbers by DIVIDE"):
        fo.load_tflite(with_body(*given, "STABLEHLO_DIVIDE", "BodySubgraphIndex"))
