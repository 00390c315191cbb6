"""``python -m fusedops.onnxruntime script.py ...``, or ``-m package ...``."""

import sys

from .. import stand_in
from . import install

if __name__ == "__main__":
    sys.exit(stand_in.run(sys.argv, "fusedops.onnxruntime", "onnxruntime", install))
