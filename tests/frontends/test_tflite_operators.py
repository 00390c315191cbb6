"""Operators of TFLite, one at a time: fused, folded and not, they compute what NumPy does in float64, and in 8 and 16
bits the integers of that to one step; LiteRT's reference kernels agree."""

import numpy as np
import pytest

pytest.importorskip("tflite")

import fusedops as fo
from fusedops.graph.frontends.tflite.builtins import ABSENT, BUILTINS
from tflite_cases import CASES, feeds
from tflite_models import single
from tflite_quantized import QUANTIZED, store
from tflite_quantized import feeds as quantized_feeds

FORMS = {"fused": {}, "unfused": dict(fold=False, fuse=False)}
ODD = {"lrn"}  # LiteRT's reference leaves out one channel of the window; its other kernels do not


def _results(y):
    return y if isinstance(y, tuple) else (y,)


def _wanted(case, arrays):
    return [np.asarray(w) for w in case.wanted(*(x.astype(float) if x.dtype == np.float32 else x for x in arrays))]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_floats(case, form):
    arrays = feeds(case)
    got = _results(fo.load_tflite(single(*case[1:4], *case[5:]), **FORMS[form])(*arrays))
    for y, w, t in zip(got, _wanted(case, arrays), case.outputs, strict=True):
        assert y.shape == w.shape and y.dtype == t.dtype
        np.testing.assert_allclose(y, w, rtol=2e-5, atol=2e-5)


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


@pytest.mark.parametrize("case", [c for c in CASES if c.name not in ODD], ids=lambda c: c.name)
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
def test_layers_stay_integers(layer):
    """No float is left between the integers of a layer."""
    model = fo.load_tflite(single(*layer[1:4], *layer[5:]))
    kinds = {node.op for node in model._graph.nodes} - {"Transpose"}
    assert kinds == {"QuantizedLinear" if layer.kind == "FULLY_CONNECTED" else "QuantizedConv"}


@pytest.mark.parametrize("act", [1, 3])
def test_images_are_not_transposed(act):
    """A convolution behind another has no transposition between them, and its activation is fused."""
    case = next(c for c in CASES if c.name == "conv_same")
    model = fo.load_tflite(single(case.kind, case.inputs, case.outputs, (case.options[0], case.options[1] | dict(
        FusedActivationFunction=act))))  # fmt: skip
    kinds = [node.op for node in model._graph.nodes]
    assert kinds == ["Transpose", "Conv", "Transpose"] and model._graph.nodes[1].activation is not None
