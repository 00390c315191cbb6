"""The golden tables: the bits of every operation, and the algorithm of every shape. In a process of their own, for a machine of their own."""
import subprocess
import sys
from pathlib import Path

import pytest

import fusedops as fo

MAKE = Path(__file__).parent / "golden" / "make.py"


@pytest.mark.parametrize("table", ["bits", "decisions"])
def test_table(table):
    made = subprocess.run([sys.executable, MAKE, table], cwd=Path(fo.__file__).parent.parent, capture_output=True, text=True)
    assert made.returncode == 0, made.stdout[-4000:] + made.stderr
