"""Parts of the library that come when they are first used."""

import subprocess
import sys

import numpy as np
import pytest

import fusedops as fo
from fusedops.graph.operators import registry


@pytest.mark.parametrize("family", registry.FAMILIES)
def test_the_table_of_operators_has_those_of_each_file(family):
    module = __import__(f"fusedops.graph.operators.{family}", fromlist=["RECORDS"])
    assert sorted(module.RECORDS) == sorted(registry.FAMILIES[family].split())


def test_every_file_of_operators_is_in_the_table():
    folder = registry.__file__.rpartition("registry.py")[0]
    from pathlib import Path

    found = [p for p in Path(folder).rglob("*.py") if "\nRECORDS = {" in p.read_text(encoding="utf-8")]
    assert sorted(str(p.relative_to(folder))[:-3].replace("/", ".") for p in found) == sorted(registry.FAMILIES)


def test_records_are_a_mapping():
    assert "Conv" in registry.OPERATORS and "NoSuchOperator" not in registry.OPERATORS
    assert "ZipMap" not in registry.OPERATORS and registry.RECORDS.get("NoSuchOperator") is None
    assert dict(registry.OPERATORS.items()).keys() == set(registry.OPERATORS)
    assert len(registry.OPERATORS) < len(registry.RECORDS)
    with pytest.raises(KeyError, match="NoSuchOperator"):
        registry.OPERATORS["NoSuchOperator"]


def test_every_public_name_is_there():
    for name in fo.__all__:
        if name not in ("from_keras", "torch_report"):
            assert getattr(fo, name).__name__ == name
    assert fo.norms.softmax is fo.softmax


def test_a_network_imports_what_it_needs(tmp_path):
    pytest.importorskip("onnx")
    from onnx.parser import parse_model

    text = '<ir_version: 8, opset_import: ["" : 17]> g (float[2] x) => (float[2] y) { y = Relu(x) }'
    (tmp_path / "net.onnx").write_bytes(parse_model(text).SerializeToString())
    program = (
        f"import sys, numpy as np, fusedops as fo\nm = fo.load_onnx({str(tmp_path / 'net.onnx')!r})\n"
        "print(m(np.float32([-1, 2])), *(name for name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    y, imported = done.stdout.split("]")
    np.testing.assert_array_equal(np.fromstring(y[1:], sep=" "), [0, 2])
    needless = [
        "onnx",
        "google.protobuf",
        "json",
        "zipfile",
        "statistics",
        "fusedops.recurrent",
        "fusedops.graph.operators.rnn",
    ]
    needless += [f"fusedops.graph.{name}" for name in ("frontends.tflite", "quantization", "runtime.profiler")]
    assert not set(needless).intersection(imported.split())
