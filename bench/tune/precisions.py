"""Predicted times of the benchmark's networks in float32 and with precision="bfloat16", which must not be slower.

    python -m bench.tune.precisions             on every processor of MACHINES
    python -m bench.tune.precisions zen4.csv    on one of them

Caches and rates are MACHINES', the instructions are this processor's. Nothing is measured. Fails where a network is
predicted to be slower.
"""

import os
import subprocess
import sys

import numpy as np

import fusedops as fo
from fusedops.graph.planner.precision import PRODUCTS, call_of, of_layer

from .. import cases
from ..peers import inputs
from ..peers.onnx_model import onnx_model
from .judge import MACHINES


def predicted(name):
    """Nanoseconds of a network's convolutions and products in float32, and as precision="bfloat16" has them."""
    case, a = cases.data(name)
    model, arrays = onnx_model(case, a), inputs(case, a)
    floats = fo.load_onnx(model, disabled_passes=["blocks"])._plan(*arrays)[0].steps
    calls = {s.node.name: call_of(s) for s in floats if s.kind in PRODUCTS}
    total = sum(of_layer(*call, False)[0] for call in calls.values())
    mixed = 0.0
    for step in fo.load_onnx(model, precision="bfloat16")._plan(*arrays)[0].steps:
        for node in (step.node, *step.inner):
            if node.name in calls:
                narrow = step.kind in PRODUCTS.values()
                rounds = narrow and step.arguments["types"][0] == np.float32
                mixed += of_layer(*calls[node.name], rounds)[narrow]
    return total, mixed


def show(file):
    """Prints what networks are predicted to gain; whether one loses."""
    worst = 0.0
    for name in cases.NETWORKS:
        total, mixed = predicted(name)
        worst = max(worst, mixed / total)
        print(f"{file} {name}: bfloat16 {mixed / total:.2f} of float32")
    return worst > 1


def main():
    files = sys.argv[1:] or list(MACHINES)
    if len(files) == 1 and os.environ.get("FUSEDOPS_MACHINE") == MACHINES[files[0]]:
        return show(files[0])
    failed = False
    for file in files:  # in a process each: the machine is read once
        again = [sys.executable, "-m", "bench.tune.precisions", file]
        failed |= subprocess.run(again, env=os.environ | {"FUSEDOPS_MACHINE": MACHINES[file]}).returncode != 0
    return failed


if __name__ == "__main__":
    sys.exit(main())
