"""The types that the package ships: a user's script passes mypy --strict, the package mypy, and the binding's stub says
what is in it."""

import ast
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import get_args

import pytest

import fusedops as fo
from fusedops import _core, _types, activations
from fusedops.layers import ALGORITHMS, LAYOUTS, PRECISIONS
from fusedops.layers.stacks import DIRECTIONS

PACKAGE = Path(fo.__file__).parent
SCRIPT = Path(__file__).parent / "user_script.py"
ROOT = SCRIPT.parents[2]  # of the sources; where the tests meet an installed package, mypy finds that one
STUB = PACKAGE / "_core.pyi"


def run(*arguments):
    """A program of this Python, its output for the failure."""
    done = subprocess.run([sys.executable, *map(str, arguments)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


@pytest.fixture(scope="module")
def strict(tmp_path_factory):
    """mypy as a user calls it, for whom the package is installed: it tells of its own errors alone."""
    pytest.importorskip("mypy", reason="mypy is not installed")
    return "-m", "mypy", "--strict", "--follow-imports=silent", f"--cache-dir={tmp_path_factory.mktemp('mypy')}"


@pytest.mark.thorough
def test_a_users_script_passes_mypy(strict):
    run(*strict, SCRIPT)


@pytest.mark.thorough
def test_a_wrong_script_does_not(strict, tmp_path):
    wrong = {
        'fo.conv2d(x, x, activaton="relu")': "call-arg",
        'fo.Conv2d(x, padding="full")': "arg-type",
        'fo.conv2d(x, x, activation="rellu")': "arg-type",
        'fo.conv2d(x, x, activation=("clip", 0))': "arg-type",
        'fo.Conv1d(x, padding="SAME")': "arg-type",
        'fo.conv2d(x, x, layout="nhwc")': "arg-type",
        'fo.Linear(x, precision="int8")': "arg-type",
        'fo.LSTM(x, x, direction="both")': "arg-type",
        'fo.load("m").quantize([x], calibration="mean")': "arg-type",
        'fo.load("m").quantize(weights="int3")': "arg-type",
        'fo.load("m").plan(x)': "attr-defined",
        'fo.load_onx("m")': "attr-defined",
        "from fusedops import Nope": "attr-defined",
        "fo.linear(x)": "call-arg",
        "fo.conv2dd(x, x)": "attr-defined",
        "fo.LSTM(x, x)(x)[1].shape": "attr-defined",
    }
    script = tmp_path / "wrong.py"
    script.write_text(
        "import numpy as np\nimport fusedops as fo\nx = np.ones((1, 1, 1, 1), np.float32)\n" + "\n".join(wrong) + "\n"
    )
    done = subprocess.run([sys.executable, *strict, str(script)], cwd=ROOT, capture_output=True, text=True)
    found = [line for line in done.stdout.splitlines() if "error:" in line]
    for number, (line, code) in enumerate(wrong.items(), 4):
        assert any(f"wrong.py:{number}:" in error and f"[{code}]" in error for error in found), f"{line}: {done.stdout}"


def test_checkers_of_types_know_every_name():
    bounded = {"clip", "prelu"}  # which have parameters
    assert {*get_args(_types.Plain), *get_args(_types.Sloped), *bounded} == set(activations.NAMES)
    assert get_args(_types.Layout) == LAYOUTS and get_args(_types.Precision) == PRECISIONS
    assert set(get_args(_types.Algorithm)) == ALGORITHMS.keys() and get_args(_types.Direction) == DIRECTIONS


@pytest.mark.thorough
def test_the_package_passes_mypy():
    pytest.importorskip("mypy", reason="mypy is not installed")
    run("-m", "mypy", "--config-file", ROOT / "pyproject.toml")


def test_the_script_names_everything_public_and_runs(tmp_path):
    used = {node.attr for node in ast.walk(ast.parse(SCRIPT.read_text())) if isinstance(node, ast.Attribute)}
    assert set(fo.__all__) - used <= {"from_torch", "load_tflite", "torch_report"}  # which need PyTorch or a file
    assert "fusedops " + fo.__version__ in run(SCRIPT)


# The binding


def declared(body):
    """Name to node of what a module or class declares."""
    names = {node.name: node for node in body if isinstance(node, (ast.ClassDef, ast.FunctionDef))}
    return names | {node.target.id: node for node in body if isinstance(node, ast.AnnAssign)}


def members(kind):
    return {name for name in vars(kind) if not name.startswith("_")}


def test_every_public_name_of_the_binding_is_declared():
    modules = {name for name, value in vars(_core).items() if isinstance(value, ModuleType)}
    assert members(_core) - modules <= declared(ast.parse(STUB.read_text()).body).keys()


@pytest.mark.parametrize("kind", [k for k in vars(_core).values() if isinstance(k, type)], ids=lambda k: k.__name__)
def test_every_method_of_the_binding_is_declared(kind):
    assert declared(declared(ast.parse(STUB.read_text()).body)[kind.__name__].body).keys() >= members(kind)
