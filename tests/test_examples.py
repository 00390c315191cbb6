"""The examples of the documentation give what they show."""
import doctest
from importlib import import_module

import numpy as np
import pytest


@pytest.mark.skipif(np.__version__ < "2", reason="NumPy 1 writes its scalars in another way")
@pytest.mark.parametrize("module", ["batchnorm", "functional", "layers", "recurrent"])
def test_docstrings(module):
    result = doctest.testmod(import_module("fusedops." + module))
    assert result.attempted and not result.failed
