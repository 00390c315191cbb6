"""The machine's roof, measured by ``machine.c``: its multiply-add peak and the bandwidths of its caches and memory."""

import os
import subprocess
import tempfile
from pathlib import Path


def roof(threads):
    """``{"peak": GFLOP/s, "bandwidth": {bytes passed over: GB/s}}``; empty where there is no C compiler."""
    compiler = os.environ.get("CC", "cc")
    with tempfile.TemporaryDirectory() as folder:
        program = str(Path(folder, "machine"))
        source = str(Path(__file__).with_suffix(".c"))
        try:
            subprocess.run(
                [*compiler.split(), "-O3", "-march=native", "-fopenmp", source, "-o", program],
                check=True,
                capture_output=True,
            )
        except (OSError, subprocess.CalledProcessError):
            return {}
        lines = subprocess.run([program, str(threads)], check=True, capture_output=True, text=True).stdout.split()
    figures = dict(zip(lines[::2], map(float, lines[1::2]), strict=True))
    return {"peak": figures.pop("peak"), "bandwidth": figures}
