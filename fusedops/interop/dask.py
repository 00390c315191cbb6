"""Functions of blocks of Dask arrays."""

import sys

import numpy as np


def asked_for_dtype():
    """Whether Dask is calling to learn the dtype of the result: ``map_blocks`` without ``dtype=`` tries a function on
    an array of ones whose axes all have length 1, which few networks take."""
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "apply_infer_dtype" and frame.f_globals.get("__name__", "").startswith("dask."):
            return True
        frame = frame.f_back
    return False


def example_of(outputs):
    """An array of the dtype and number of axes of a network's only output."""
    (output,) = outputs
    return np.ones((1,) * len(output.shape or ()), output.dtype)
