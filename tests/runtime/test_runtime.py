import json
import os
import re
import shutil
import subprocess
import sys
from modulefinder import ModuleFinder
from pathlib import Path

import pytest

import fusedops as fo
from catalog import python
from fusedops import runtime
from fusedops._internal import install_hint


def test_scalar_is_always_there():
    assert "scalar" in fo.available_isas()
    assert fo.isa() in fo.available_isas()


def test_set_isa(isa):
    assert fo.isa() == isa


@pytest.mark.parametrize("name", ["avx3", "", "AVX2", "native"])
def test_unknown_isa(name):
    before = fo.isa()
    with pytest.raises(ValueError) as caught:
        fo.set_isa(name)
    assert repr(name) in str(caught.value) and "scalar" in str(caught.value)
    assert fo.isa() == before


def test_unsupported_isa():
    absent = {"scalar", "avx2", "avx512", "neon"} - set(fo.available_isas())
    for name in absent:
        with pytest.raises(ValueError, match=name):
            fo.set_isa(name)


@pytest.mark.parametrize("name", fo.available_isas())
def test_isa_from_the_environment(name):
    assert python("import fusedops; print(fusedops.isa())", FUSEDOPS_ISA=name).stdout == name + "\n"


@pytest.mark.parametrize("name", ["avx3", "neon" if "neon" not in fo.available_isas() else "avx2"])
def test_wrong_isa_in_the_environment(name):
    done = python("import fusedops", FUSEDOPS_ISA=name)
    assert done.returncode != 0
    assert "FUSEDOPS_ISA" in done.stderr and name in done.stderr


def test_show_config(capsys):
    config = fo.show_config()
    assert not capsys.readouterr().out, "it prints where nobody asked"
    text = str(config)
    assert runtime.version() in text and fo.isa() in text and str(fo.get_num_threads()) in text
    assert isinstance(config, dict) and repr(config) == text and len(text.splitlines()) == len(config)


@pytest.mark.skipif(not shutil.which("git"), reason="git is not installed")
def test_the_commit_of_a_checkout(tmp_path, monkeypatch):
    for name in [name for name in os.environ if name.startswith("GIT_")]:  # as of a hook that runs the tests
        monkeypatch.delenv(name)

    def git(*arguments):
        command = ["git", "-C", tmp_path, "-c", "user.name=n", "-c", "user.email=e", *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    inner = tmp_path / "inner"
    inner.mkdir()
    assert runtime._commit(tmp_path) == ""
    git("init")
    assert runtime._commit(tmp_path) == ""  # nothing is committed
    (tmp_path / "file").write_text("1")
    git("add", "file")
    git("commit", "-m", "one")
    assert runtime._commit(tmp_path) == git("rev-parse", "--short", "HEAD")
    assert runtime._commit(inner) == ""  # as of a package that is installed inside somebody's checkout
    git("worktree", "add", "tree")
    assert runtime._commit(tmp_path / "tree") == git("rev-parse", "--short", "HEAD")
    monkeypatch.setenv("GIT_DIR", str(inner))
    assert runtime._commit(tmp_path / "tree") != ""
    monkeypatch.delenv("GIT_DIR")
    (tmp_path / "file").write_text("2")
    assert runtime._commit(tmp_path) == git("rev-parse", "--short", "HEAD") + ".dirty"


def test_the_version_has_the_commit_as_a_local_part(monkeypatch):
    assert re.fullmatch(re.escape(fo.__version__) + r"(\+g[0-9a-f]+(\.dirty)?)?", runtime.version())
    monkeypatch.setattr(runtime, "_commit", lambda folder: "31ee619")
    assert runtime.version() == fo.__version__ + "+g31ee619"


def test_the_version_needs_no_git(tmp_path, monkeypatch):
    (tmp_path / ".git").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert runtime._commit(tmp_path) == ""


def test_public_names_exist():
    assert all(hasattr(fo, name) for name in fo.__all__)


def test_the_reference_path_comes_with_the_package():
    assert python("import fusedops as fo; print(fo.reference.conv2d.__name__)").stdout == "conv2d\n"


IMPORT = """
import json, sys, time
start = time.process_time()
import numpy
before, between = set(sys.modules), time.process_time()
import fusedops
print(json.dumps([(time.process_time() - between) / (between - start), sorted(set(sys.modules) - before)]))
"""


def test_import_is_light(tmp_path):
    """Less than half of NumPy's processor time (the best of some runs), and nothing but the standard library."""
    compiled = dict(PYTHONPYCACHEPREFIX=str(tmp_path), PYTHONDONTWRITEBYTECODE="")
    runs = [json.loads(python(IMPORT, **compiled).stdout) for _ in range(6)]
    assert min(share for share, _ in runs) < 0.5
    modules = {name.partition(".")[0] for name in runs[0][1] if not name.startswith("_cython")}
    assert modules <= sys.stdlib_module_names | {"fusedops", "numpy", "cython_runtime"}


def test_tools_that_look_for_imports_find_every_module(tmp_path):
    """As PyInstaller does, which reads the code of a program and runs none of it."""
    script = tmp_path / "program.py"
    script.write_text("import fusedops\n")
    (tmp_path / "fusedops").symlink_to(Path(fo.__file__).parent)  # and nothing else that is installed
    finder = ModuleFinder(path=[str(tmp_path)])
    finder.run_script(str(script))
    assert {"fusedops.reference", "fusedops.graph", "fusedops.graph.frontends.onnx.reader"} <= set(finder.modules)


@pytest.mark.parametrize("extra", ["onnx", "torch", "bench"])
def test_the_command_of_an_error_installs_an_extra_that_there_is(extra):
    tomllib = pytest.importorskip("tomllib", reason="Python before 3.11 has no tomllib")
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert f"pip install -e '.[{extra}]'" in install_hint.command(extra)
    assert extra in project["optional-dependencies"]


def test_a_process_can_be_another_machine():
    """FUSEDOPS_MACHINE tells what is not at hand; caches are held to what blocks are made for."""
    code = (
        "import fusedops as fo\nfrom fusedops import _core\nm = _core.machine()\n"
        "print(m['l1'], m['l2'], m['l3'], m['half_rate'], fo.available_isas(), fo.get_num_threads())\n"
        "_core.set_machine(l2=1 << 30, half_rate=False)\nprint(_core.machine()['l2'], _core.machine()['half_rate'])"
    )
    told = "name=small,l1=49152,l2=300000,l3=1,half_rate=1,sets=1,processors=1"
    done = python(code, FUSEDOPS_MACHINE=told, OMP_NUM_THREADS="2")
    first, second = done.stdout.splitlines()
    assert first == f"49152 300000 {4 << 20} True ['scalar'] 1" and second == f"{1 << 20} False"
