"""How far long work is, and what the logger says of it."""

import logging
import sys

import numpy as np
import pytest

import fusedops as fo
from fusedops._internal import progress

onnx = pytest.importorskip("onnx")
from onnx import numpy_helper

X = np.random.default_rng(0).standard_normal((4, 64)).astype(np.float32)


@pytest.fixture
def file(tmp_path):
    """A product and an activation that it takes."""
    proto = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> net (float[n, 64] x) => (float[n, 64] y) '
        "{ h = MatMul(x, w)  y = Relu(h) }"
    )
    w = np.random.default_rng(1).standard_normal((64, 64)).astype(np.float32)
    proto.graph.initializer.append(numpy_helper.from_array(w, "w"))
    onnx.save(proto, tmp_path / "net.onnx")
    return tmp_path / "net.onnx"


def is_whole(parts):
    return parts and parts[0] == 0.0 and parts[-1] == 1.0 and sorted(parts) == parts


def test_a_function_is_told(file, tmp_path):
    loaded, quantized, rounded, again, timed = [], [], [], [], []
    model = fo.load_onnx(file, progress=loaded.append)
    model.quantize([X], progress=quantized.append)
    model.quantize(weights="int4", progress=rounded.append).save(tmp_path / "net.fo")
    fo.load(tmp_path / "net.fo", progress=again.append)
    model.benchmark(X, number=1, repeat=3, progress=timed.append)
    assert is_whole(loaded) and is_whole(rounded) and is_whole(again)
    assert quantized[-1] == timed[-1] == 1.0 and sorted(quantized) == quantized


def test_lines_without_rich(file, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "rich.console", None)
    fo.load_onnx(file, progress=True)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "load_onnx:   0%  reads the file" and lines[-1].startswith("load_onnx: 100%")
    assert len(lines) == len(set(lines)) > 3


def test_a_bar_of_rich(file, capsys):
    pytest.importorskip("rich", reason="rich is not installed")
    fo.load_onnx(file).quantize(weights="int8", progress=True)
    shown = capsys.readouterr()
    assert not shown.out and "weights in int8" in shown.err and "100%" in shown.err


def test_nothing_is_shown_unasked(file, capsys):
    fo.load_onnx(file, progress=False).quantize([X])
    shown = capsys.readouterr()
    assert not shown.out and not shown.err


@pytest.mark.parametrize("wrong", ["yes", 1, 0.5])
def test_wrong_progress(file, wrong):
    with pytest.raises(TypeError, match="must be True, or a function"):
        fo.load_onnx(file, progress=wrong)


def test_lines_come_once_a_tenth(capsys):
    with progress.shown(None, "nothing") as tell:
        tell(0.5)
    tell = progress._lines("work")
    for i in range(101):
        tell(i / 100)
    assert len(capsys.readouterr().err.splitlines()) == 11


def test_the_logger_says_what_is_done(file, tmp_path, caplog):
    with caplog.at_level(logging.DEBUG, "fusedops"):
        model = fo.load_onnx(file)
        model(X)
        model.quantize([X])
        model.quantize(weights="int4")
    said = [record.getMessage() for record in caplog.records if record.name == "fusedops"]
    for start in (
        "load_onnx: Model(x: float32 (n, 64)",
        "planned for (4, 64): ",
        "quantized: Quantized(",
        "weights in",
    ):
        assert any(text.startswith(start) for text in said), (start, said)


def test_the_logger_says_why_numpy_computes(caplog):
    proto = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> net (float[n, 3, 3] x) => (float[n] y) { y = Det(x) }'
    )
    with caplog.at_level(logging.INFO, "fusedops"):
        fo.load_onnx(proto)(np.ones((2, 3, 3), np.float32))
    assert any("is computed by NumPy: " in record.getMessage() for record in caplog.records)


def test_a_silent_logger_costs_no_explanation(file, monkeypatch, caplog):
    monkeypatch.setattr("fusedops.graph.runtime.plan_log.planned", None)
    with caplog.at_level(logging.WARNING, "fusedops"):
        fo.load_onnx(file)(X)
    assert not caplog.records
