"""LiteRT's Python interface over :class:`fusedops.Model`: ``from fusedops.litert import Interpreter`` in place of
``from ai_edge_litert.interpreter import Interpreter``, of ``tflite_runtime.interpreter`` and of ``tensorflow.lite``.

``python -m fusedops.litert script.py ...`` runs a program whose own imports of these get this module, and
:func:`install` does so inside a program. None of them is needed, and none imported.
"""

import importlib.util
import sys
import types

from .. import stand_in
from .interpreter import Delegate, Interpreter, OpResolverType, SignatureRunner, load_delegate

__all__ = ["Delegate", "Interpreter", "OpResolverType", "SignatureRunner", "install", "load_delegate"]

_REASON = "it has Interpreter and what belongs to it"


def install():
    """Lets imports of ``ai_edge_litert`` and ``tflite_runtime`` give this module, from here on in this process, and
    ``tensorflow.lite`` where TensorFlow is not installed.

    Returns
    -------
    Installed
        Nothing need be done with it; ``with install():`` does so for a block alone.

    Examples
    --------
    >>> import fusedops.litert
    >>> with fusedops.litert.install():
    ...     from tflite_runtime.interpreter import Interpreter
    >>> Interpreter is fusedops.litert.Interpreter
    True
    """
    names = {name: globals()[name] for name in __all__ if name != "install"}
    done = []
    for name in "ai_edge_litert", "tflite_runtime":
        done += stand_in.install(name, sys.modules[__name__], {"interpreter": names}, _REASON)
    if "tensorflow" not in sys.modules and importlib.util.find_spec("tensorflow") is None:
        experimental = {"OpResolverType": OpResolverType, "load_delegate": load_delegate}
        inside = {"lite": names, "lite.experimental": experimental}
        done += stand_in.install("tensorflow", types.ModuleType("tensorflow"), inside, _REASON, __name__)
    return stand_in.Installed(done)
