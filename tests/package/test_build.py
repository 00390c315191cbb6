"""The build compiles what has changed and nothing else, and says what it lacks: setup.py, with a compiler that notes
its calls and copies."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import fusedops as fo

ROOT = Path(fo.__file__).parent.parent
pytestmark = pytest.mark.skipif(not (ROOT / "setup.py").exists(), reason="the sources are not here")

COMPILER = """#!{python}
import re, sys
from pathlib import Path

arguments = sys.argv[1:]
with open("calls", "a") as calls:
    print(*arguments, file=calls)
made = Path(arguments[arguments.index("-o") + 1])
made.write_text("a module")
if "-MF" in arguments:  # the headers that a source includes itself
    source = Path(arguments[arguments.index("-c") + 1])
    found = re.findall('#include "(.*)"', source.read_text(errors="replace"))
    headers = [str(source.parent / name) for name in found if (source.parent / name).exists()]
    made.write_text("".join(Path(name).read_text(errors="replace") for name in [source, *headers]))
    needed = " \\\\\\n ".join([str(source), "/usr/include/x.h", *headers])
    Path(arguments[arguments.index("-MF") + 1]).write_text(f"{{made}}: {{needed}}")
"""


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """A copy of the sources, built once by that compiler."""
    pytest.importorskip("Cython", reason="Cython is not installed: the build needs it")
    pytest.importorskip("setuptools", reason="setuptools is not installed: the build needs it")
    root = tmp_path_factory.mktemp("checkout")
    ignored = shutil.ignore_patterns("*.so", "__pycache__", "*.egg-info")
    for name in ("csrc", "fusedops"):
        shutil.copytree(ROOT / name, root / name, ignore=ignored)
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, root)
    for folder in (ROOT / "build/objects").glob("cython-*"):  # the one slow step
        shutil.copytree(folder, root / "build/objects" / folder.name)
    compiler = root / "compiler"
    compiler.write_text(COMPILER.format(python=sys.executable))
    compiler.chmod(0o755)
    assert len(build(root)) > 80
    return root


def build(root, *command):
    """Builds: the compiler's calls."""
    (root / "calls").write_text("")
    environment = os.environ | {"CC": str(root / "compiler"), "LDSHARED": f"{root / 'compiler'} -shared"}
    command = command or (sys.executable, "setup.py", "-q", "build_ext", "--inplace")
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return (root / "calls").read_text().splitlines()


def sources(calls):
    return sorted(words[words.index("-c") + 1] for words in map(str.split, calls) if "-c" in words)


def test_a_second_build_compiles_nothing(checkout):
    assert build(checkout) == []
    os.utime(checkout / "csrc/include/fusedops/fusedops.h")  # as a checkout of another branch and back
    assert build(checkout) == []


def test_an_editable_install_compiles_nothing(checkout, tmp_path):
    pytest.importorskip("pip")
    pip = (sys.executable, "-m", "pip", "-q", "install", "--no-build-isolation", "--no-deps", "--target", tmp_path)
    assert build(checkout, *pip, "-e", ".") == []
    assert build(checkout, *pip, ".") == []


def test_a_changed_header_compiles_its_units(checkout):
    header = checkout / "csrc/kernels/rnn.h"
    header.write_text(header.read_text() + "/* a change */\n")
    calls = build(checkout)
    assert set(sources(calls)) == {"csrc/kernels/rnn.c"}
    assert any("-shared" in call for call in calls), "and nothing was linked"
    assert build(checkout) == []


def test_other_flags_leave_objects(checkout, monkeypatch):
    monkeypatch.setenv("FUSEDOPS_TRACE", "1")
    assert len(sources(build(checkout))) > 80
    monkeypatch.delenv("FUSEDOPS_TRACE")
    assert build(checkout) == []


def test_without_a_compiler_one_line_says_what_to_install(checkout):
    done = subprocess.run(
        [sys.executable, "setup.py", "build_ext", "--inplace"],
        cwd=checkout,
        env=os.environ | {"CC": "no-such-compiler"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1 and done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert "no-such-compiler" in line and "apt install gcc python3-dev" in line
