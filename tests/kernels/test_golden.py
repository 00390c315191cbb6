"""The golden tables: the bits of every operation, the algorithm of every shape, the kernel variants that run.

Made in a process of their own, which takes another machine's caches for this one's.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import fusedops as fo
from catalog import using_int8_products, using_isa
from fusedops import _core

ROOT = Path(fo.__file__).parent.parent
MAKE = Path(__file__).parents[1] / "golden" / "make.py"

# Variants of code that all sets share, which cases reach on these sets alone.
REACHED_BY = dict.fromkeys(("conv block slices", "conv rewrite rows as columns"), ("avx512",))


def make(*arguments):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))}
    return subprocess.run([sys.executable, MAKE, *arguments], env=environment, capture_output=True, text=True)


@pytest.mark.thorough
@pytest.mark.parametrize("table", ["bits", "decisions"])
def test_table(table):
    made = make(table)
    assert made.returncode == 0, made.stdout[-4000:] + made.stderr


@pytest.mark.thorough
def test_choices_are_near_the_best():
    """By recorded times: what the cost model chooses takes little longer than the best of all algorithms."""
    judged = subprocess.run(
        [sys.executable, "-m", "bench.tune.judge", "--most", "1.02"], cwd=ROOT, capture_output=True, text=True
    )
    assert judged.returncode == 0, judged.stdout + judged.stderr


def patterns(sources):
    """What the names of FO_RAN look like in C: literals, of which a macro may fill in parts."""
    for argument in re.findall(r"\bFO_RAN\((.*)\);", sources):
        for name in re.split(r"[?:]", argument) if "?" in argument else [argument]:
            parts = re.findall(r'"((?:[^"\\]|\\.)*)"|#\s*(\w+)', name)
            if parts:
                yield "".join(r"[\w.]+" if macro else re.escape(literal) for literal, macro in parts)


def compiled(sources):
    """The names in the binary."""
    known = re.compile("(?:" + "|".join(patterns(sources)) + r")(?=\0)")
    return set(known.findall(Path(_core.__file__).read_bytes().decode("latin-1")))


def test_names_are_found():
    """As they are written: a literal, a choice, a macro's."""
    text = 'FO_RAN("a");\nFO_RAN(n ? "b, c" : "d");\nif (x) FO_RAN("gemm " #form " " #mr "x" #width "/2"); \\\n'
    assert list(patterns(text)) == ["a", r"b,\ c", "d", r"gemm\ [\w.]+\ [\w.]+x[\w.]+/2"]


@pytest.mark.skipif(_core.variants() is None, reason="a build without FUSEDOPS_TRACE=1 does not know the variants")
@pytest.mark.skipif(len(fo.available_isas()) < _core.isa_count(), reason="a set of this build does not run here")
def test_every_variant_runs():
    """A name that no case runs is a variant without a test: either goes."""
    sources = "\n".join(p.read_text() for p in (ROOT / "csrc").rglob("*.[ch]") if p.name != "table.h")
    ran = set(make("--ran").stdout.splitlines())
    elsewhere = {name for name, sets in REACHED_BY.items() if not set(sets) & set(fo.available_isas())}
    known = compiled(sources)
    with using_isa(fo.available_isas()[-1]), using_int8_products("amx") as amx:
        elsewhere |= set() if amx else {"gemm S8 by AMX", "gemm BF16 by AMX", "gemm bits by AMX"}
        dots = _core.has_bfloat16()
    of_dots = "gemm BF16 ", "attention narrow", "pack narrow"
    elsewhere |= set() if dots else {name for name in known if name.startswith(of_dots)}
    never = known - ran - elsewhere
    assert ran and not never, f"no golden case runs {sorted(never)}: add one to tests/golden/bits.py"
    assert not ran & elsewhere, f"these run after all: {sorted(ran & elsewhere)}"
