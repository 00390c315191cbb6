"""The programs of examples/ run and print what they promise."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import fusedops as fo

EXAMPLES = Path(__file__).parents[2] / "examples"
TESTED_ELSEWHERE = {"dask_batch.py", "make_networks.py"}  # by test_dask.py; makes what two others read
PROGRAMS = {  # arguments, what they need, and what they print
    "classify.py": ([], [], r"(?P<right>[\d.]+)% of 200 images right"),
    "voice_stream.py": (["--seconds", "4"], [], r"(?P<right>[\d.]+)% of 200 frames right"),
    "resnet.py": (["--images", "2", "--size", "64"], [], r"image 1: class \d+ .*%\n[\d.]+ ms for an image of 64 x 64"),
    "unet.py": (["--size", "32", "--depth", "2"], [], r"[.:oO#%@\n]+\n[\d.]+ ms for 32 x 32 pixels"),
    "keyword_spotter.py": (["--seconds", "2"], [], r"second 1: [\w ]+ \(\d+%\)\n[\d.]+ ms for a second of sound"),
    "score_table.py": (["--rows", "5000"], [], r"5000 rows: fused [\d.]+ ms, plain NumPy [\d.]+ ms"),
    "decoder.py": (["--tokens", "12", "--layers", "2"], [], r"12 tokens, [\d.]+ ms each; .* the same tokens and bits"),
    "compare_torch.py": (
        ["--shape", "1,3,32,32"],
        ["torch", "onnx"],
        r"(?s)11 fusions.*folded only.*PyTorch: [\d.]+ "
        r"ms.*differ by (\de-\d+|0e\+00)",
    ),
}


def run(name, *arguments):
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(Path(fo.__file__).parent.parent), os.environ.get("PYTHONPATH", "")])
    }
    done = subprocess.run(
        [sys.executable, EXAMPLES / name, *arguments], env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.thorough
@pytest.mark.thorough
@pytest.mark.parametrize("name", PROGRAMS)
def test_runs(name):
    arguments, needs, expected = PROGRAMS[name]
    for module in needs:
        pytest.importorskip(module, reason=f"{module} is not installed")
    found = re.search(expected, run(name, *arguments))
    assert found
    assert float(found.groupdict().get("right", 100)) > 90


def test_a_module_of_ones_own(tmp_path):
    for module in ("torch", "onnx"):
        pytest.importorskip(module, reason=f"{module} is not installed")
    (tmp_path / "mine.py").write_text(
        "from torch import nn\ndef net():\n    return nn.Sequential(nn.Linear(8, 4), nn.ReLU())\n"
    )
    assert "1 fusion saves" in run("compare_torch.py", f"{tmp_path / 'mine.py'}:net", "--shape", "2,8")


def test_each_is_tested_and_described():
    programs = {path.name for path in EXAMPLES.glob("*.py")}
    assert programs == PROGRAMS.keys() | TESTED_ELSEWHERE
    described = (EXAMPLES / "README.md").read_text()
    assert all(name in described for name in programs)
