"""The rules of the architecture that a search can check."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fusedops import _core

ROOT = Path(__file__).parents[2]
SOURCES = [
    path
    for folder in ("csrc", "fusedops")
    for path in (ROOT / folder).rglob("*")
    if path.suffix in (".c", ".h", ".pyx", ".pxd", ".pxi", ".py") and path.name != "_core.c"
]
RULES = {
    "intrinsics": (r"immintrin|arm_neon|\b_mm\d+_|\b__m\d+", r"csrc/simd/\w+\.h"),
    "openmp": (r"\bomp_|omp\.h|#pragma omp|_Pragma\(\"omp", r"csrc/runtime/parallel\.c"),
    "threading_in_the_binding": (r"\bprange\b|cython\.parallel", "nowhere"),
    "switch_over_activations": (
        r"case FO_GELU\b|FO_EACH_ACTIVATION\(",
        r"csrc/(include/fusedops/(activations|types)\.h|program/activation_names\.c|kernels/epilogue\.h)",
    ),
    "headers_in_the_binding": (r"cdef extern from (?!\"(fusedops/fusedops|program/fusedops_test)\.h\")", "nowhere"),
    "dead_code": (r"^\s*#\s*if 0", "nowhere"),
}
# The rooms of C, lowest first: a file includes those of its own room and of lower ones. Rooms of one row do not know
# one another.
ROOMS = (
    ("include",),
    ("machine",),
    ("runtime", "simd"),
    ("kernels",),
    ("dispatch",),
    ("ops",),
    ("matmul",),
    ("conv", "rnn"),
    ("program",),
)


@pytest.mark.skipif(not (ROOT / "csrc").is_dir(), reason="the sources are not here")
@pytest.mark.parametrize("rule", RULES)
def test_stands_in_its_place_alone(rule):
    pattern, place = RULES[rule]
    assert SOURCES
    for path in SOURCES:
        name = path.relative_to(ROOT).as_posix()
        if not re.fullmatch(place, name):
            found = re.search(pattern, path.read_text(), re.MULTILINE)
            assert not found, f"{name}: {found.group()}"


@pytest.mark.skipif(not (ROOT / "csrc").is_dir(), reason="the sources are not here")
def test_rooms_of_c_include_lower_ones():
    csrc = ROOT / "csrc"
    floors = {room: floor for floor, rooms in enumerate(ROOMS) for room in rooms}
    assert set(floors) == {path.name for path in csrc.iterdir() if path.is_dir()}
    for path in (path for path in SOURCES if csrc in path.parents):
        room = path.relative_to(csrc).parts[0]
        for name in re.findall(r'^#include "(.+)"', path.read_text(), re.MULTILINE):
            other = (path.parent / name).resolve().relative_to(csrc).parts[0]
            assert other == room or floors[other] < floors[room], f"{path.relative_to(ROOT)} includes {name}"


@pytest.mark.skipif(not (ROOT / "csrc").is_dir(), reason="the sources are not here")
@pytest.mark.parametrize("header", sorted((ROOT / "csrc/include/fusedops").glob("*.h")), ids=lambda path: path.name)
def test_public_headers_are_complete(header):
    compiler = shutil.which("cc") or shutil.which("gcc")
    if not compiler:
        pytest.skip("no compiler")
    command = [compiler, "-std=gnu11", "-fsyntax-only", "-Werror", "-x", "c", "-"]
    subprocess.run(command, input=f'#include "{header}"\n', text=True, check=True)


def test_lines_have_up_to_120_columns():
    """Of C and Cython; ruff looks at Python's."""
    long = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in SOURCES
        if path.suffix != ".py" and path.name != "_steps.pxi"
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if len(line) > 120
    ]
    assert not long


def _refusing_functions():
    """The functions of C that may return FO_OUTSIDE, by themselves or by a call."""
    code = "\n".join(path.read_text() for path in SOURCES if path.suffix in (".c", ".h"))
    bodies = dict(re.findall(r"^[\w *]*?(\w+)\([^;{}]*\) \{\n(.*?)^}", code, re.MULTILINE | re.DOTALL))
    found, new = set(), {name for name, body in bodies.items() if "FO_OUTSIDE" in body}
    while new:
        found |= new
        calls = re.compile(rf"\b(?:{'|'.join(new)})\(")
        new = {name for name, body in bodies.items() if calls.search(body)} - found
    return found


@pytest.mark.skipif(not (ROOT / "csrc").is_dir(), reason="the sources are not here")
def test_steps_that_refuse_values_are_known():
    """A plan with one of them writes results when it has ended. A kind of step says so (step_kinds.pxi) where its
    function in C may return FO_OUTSIDE."""
    table = (
        (ROOT / "csrc/include/fusedops/program.h")
        .read_text()
        .partition("#define FO_EACH_STEP")[2]
        .partition("#define")[0]
    )
    functions = dict(re.findall(r"X\((\w+), \w+, \w+, (\w+)\)", table))
    kinds = (ROOT / "fusedops/binding/step_kinds.pxi").read_text()
    steps = dict(re.findall(r'\bstep\("(\w+)", FO_STEP_(\w+),', kinds))
    refusing = _refusing_functions()
    assert set(steps) == set(_core.STEPS) and set(steps.values()) == set(functions)
    may = {kind for kind, name in steps.items() if functions[name] in refusing}
    assert may - {"map"} == {kind for kind, step in _core.STEPS.items() if step.refuses}  # fo_map refuses in gathers


@pytest.mark.skipif(not (ROOT / "setup.py").exists(), reason="the sources are not here")
def test_compiler_flags():
    for name in ("setup.py", "pyproject.toml"):
        assert not re.search(r"ffast-math|march=native|Ofast", (ROOT / name).read_text())


PAGES = [
    path for path in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")] if path.exists()
]


@pytest.mark.skipif(not (ROOT / "csrc").is_dir(), reason="the sources are not here")
@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_names_of_pages_exist(page):
    """Files of the sources and functions of C, as pages write them in code."""
    code = "\n".join(path.read_text() for path in SOURCES)
    for name in re.findall(r"`((?:csrc|fusedops|tests|bench|examples)/[\w./*]+|fo_\w+)`", page.read_text()):
        exists = re.search(rf"\b{name}\b", code) if name.startswith("fo_") else list(ROOT.glob(name.rstrip("/")))
        assert exists, f"{page.name} names {name}, which is not there"


@pytest.mark.skipif(not (ROOT / "setup.py").exists(), reason="the sources are not here")
def test_an_editable_install_is_found_from_the_folder_above(tmp_path):
    """It is a path, which Python prefers to the checkout as a namespace; an import hook would come last."""
    project = pytest.importorskip("tomllib").loads((ROOT / "pyproject.toml").read_text())
    assert project["tool"]["setuptools"]["package-dir"] == {"": "."}
    builds = {need for need in project["build-system"]["requires"] if not need.startswith("numpy")}
    assert builds <= set(project["project"]["optional-dependencies"]["dev"])  # as setup.py build_ext wants them
    checkout = tmp_path / "fusedops"
    checkout.symlink_to(ROOT, target_is_directory=True)
    code = "import sys, importlib.util as u; sys.path.append(sys.argv[1]); print(u.find_spec('fusedops').origin)"
    alone = [sys.executable, "-S", "-E", "-c", code, str(checkout)]  # of no environment that has the package
    done = subprocess.run(alone, cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout == f"{checkout / 'fusedops' / '__init__.py'}\n", done.stderr
