"""What networks are predicted to take with precision="bfloat16", on every processor whose times are recorded."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("onnx")

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(not (ROOT / "bench").is_dir(), reason="no checkout: the benchmarks are not there"),
]


def test_no_network_is_predicted_to_be_slower_than_in_float32():
    told = subprocess.run([sys.executable, "-m", "bench.tune.precisions"], cwd=ROOT, capture_output=True, text=True)
    assert told.returncode == 0, told.stdout + told.stderr
    found = [
        (file, float(ratio)) for file, ratio in re.findall(r"(\S+) \S+: bfloat16 ([\d.]+) of float32", told.stdout)
    ]
    assert {file for file, _ in found} == {path.name for path in (ROOT / "bench" / "tune").glob("*.csv")}
    assert all(ratio <= 1 for _, ratio in found)
