"""``python -m fusedops.litert script.py ...``, or ``-m package ...``."""

import sys

from .. import stand_in
from . import install

if __name__ == "__main__":
    sys.exit(stand_in.run(sys.argv, "fusedops.litert", "ai_edge_litert, tflite_runtime or tensorflow.lite", install))
