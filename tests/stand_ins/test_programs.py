"""Programs whose own `import onnxruntime` gets fusedops.onnxruntime; each in a process of its own."""

import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

pytest.importorskip("onnx")

PACKAGE = Path(__import__("fusedops").__file__).parents[1]
PROGRAM = """
import sys
import numpy as np
import onnxruntime
import onnxruntime as ort
from onnx.parser import parse_model
from onnxruntime import InferenceSession, SessionOptions
from onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument, NoSuchFile
from onnxruntime.capi import _pybind_state
from onnxruntime.capi.onnxruntime_inference_collection import InferenceSession as Again

assert __name__ == "__main__" and Again is InferenceSession and _pybind_state.NoSuchFile is NoSuchFile
session = InferenceSession(parse_model(
    '<ir_version: 8, opset_import: ["" : 17]> net (float[n] x) => (float[n] y) { y = Relu(x) }').SerializeToString())
try:
    session.run(None, {"x": np.ones(3)})
except InvalidArgument:
    print(ort.__name__, session.run(None, {"x": np.float32([-1, 2])})[0], sys.argv[1:])
"""
SAID = "fusedops.onnxruntime [0. 2.] ['--more', '3']\n"


def run(*arguments, cwd):
    environment = os.environ | {"PYTHONPATH": f"{PACKAGE}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    return subprocess.run([sys.executable, *arguments], cwd=cwd, env=environment, capture_output=True, text=True)


def test_a_script(tmp_path):
    (tmp_path / "neighbor.py").write_text("")  # is found as Python finds it
    (tmp_path / "program.py").write_text("import neighbor\n" + PROGRAM)
    (tmp_path / "elsewhere").mkdir()
    done = run("-m", "fusedops.onnxruntime", "../program.py", "--more", "3", cwd=tmp_path / "elsewhere")
    assert (done.stdout, done.returncode) == (SAID, 0), done.stderr


def test_a_package(tmp_path):
    (tmp_path / "tool").mkdir()
    (tmp_path / "tool" / "__init__.py").write_text("")
    (tmp_path / "tool" / "__main__.py").write_text(PROGRAM)
    done = run("-m", "fusedops.onnxruntime", "-m", "tool", "--more", "3", cwd=tmp_path)
    assert (done.stdout, done.returncode) == (SAID, 0), done.stderr


def test_inside_a_program(tmp_path):
    code = "import fusedops.onnxruntime as f; f.install(); f.install()\n" + PROGRAM
    done = run("-W", "error", "-c", code, "--more", "3", cwd=tmp_path)
    assert (done.stdout, done.returncode) == (SAID, 0), done.stderr


def test_what_a_program_ends_with(tmp_path):
    (tmp_path / "program.py").write_text("import sys, onnxruntime\nsys.exit(7)")
    assert run("-m", "fusedops.onnxruntime", "program.py", cwd=tmp_path).returncode == 7
    (tmp_path / "program.py").write_text("import onnxruntime.quantization")
    done = run("-m", "fusedops.onnxruntime", "program.py", cwd=tmp_path)
    assert done.returncode == 1
    assert (
        "ModuleNotFoundError: No module named 'onnxruntime.quantization': fusedops.onnxruntime stands in" in done.stderr
    )


def test_the_command_line(tmp_path):
    done = run("-m", "fusedops.onnxruntime", "--help", cwd=tmp_path)
    assert done.returncode == 0 and "python -m fusedops.onnxruntime script.py" in done.stdout
    assert run("-m", "fusedops.onnxruntime", cwd=tmp_path).returncode == 2
    done = run("-m", "fusedops.onnxruntime", "none.py", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (2, "fusedops.onnxruntime: there is no file none.py\n")
    assert run("-m", "fusedops.onnxruntime", "-m", cwd=tmp_path).returncode == 2


def test_it_takes_the_place_of_another(tmp_path):
    """Of one that was imported, with a warning."""
    (tmp_path / "onnxruntime").mkdir()
    (tmp_path / "onnxruntime" / "__init__.py").write_text("name = 'the other'")
    (tmp_path / "onnxruntime" / "inner.py").write_text("")
    code = """
import sys
sys.path.insert(0, ".")
import onnxruntime.inner
assert onnxruntime.name == "the other"
import warnings, fusedops.onnxruntime
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    fusedops.onnxruntime.install()
assert "was imported before" in str(told[0].message)
import onnxruntime
assert onnxruntime is fusedops.onnxruntime and "onnxruntime.inner" not in sys.modules
"""
    done = run("-c", code, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_importing_it_imports_neither_library(tmp_path):
    code = "import sys, fusedops.onnxruntime; print(sorted({'onnx', 'onnxruntime'} & set(sys.modules)))"
    assert run("-c", code, cwd=tmp_path).stdout == "[]\n"


def test_for_a_block_alone():
    import fusedops.onnxruntime as ours

    before = {m: found for m, found in sys.modules.items() if m.split(".")[0] == "onnxruntime"}
    finders = list(sys.meta_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # another test may have imported it
        with ours.install():
            import onnxruntime.capi.onnxruntime_pybind11_state as state

            assert sys.modules["onnxruntime"] is ours and state.Fail is ours.errors.Fail
            with ours.install():
                assert sys.modules["onnxruntime"] is ours
            assert sys.modules["onnxruntime"] is ours
    assert before == {m: found for m, found in sys.modules.items() if m.split(".")[0] == "onnxruntime"}
    assert finders == sys.meta_path
