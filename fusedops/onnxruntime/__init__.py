"""ONNX Runtime's Python interface over :class:`fusedops.Model`: ``import fusedops.onnxruntime as ort`` in place of
``import onnxruntime as ort``. Networks run on the CPU, on the kernels of this library; what it does differently is a
warning or an error.

``python -m fusedops.onnxruntime script.py ...`` runs a program whose own ``import onnxruntime`` gets this module, and
:func:`install` does so inside a program. ONNX Runtime itself is not needed, and not imported.
"""

import logging
import sys

from .. import stand_in
from . import errors, options
from .binding import IOBinding
from .options import ExecutionMode, ExecutionOrder, GraphOptimizationLevel, RunOptions, SessionOptions
from .providers import PROVIDERS
from .session import (
    InferenceSession,
    ModelMetadata,
    NodeArg,
    set_global_thread_pool_sizes,
    set_seed,
)
from .values import OrtDevice, OrtDeviceVendorId, OrtValue, copy_tensors

__version__ = "1.32.0"  # of ONNX Runtime, whose interface this is
__author__ = "fusedops"

__all__ = [
    "ExecutionMode",
    "ExecutionOrder",
    "GraphOptimizationLevel",
    "IOBinding",
    "InferenceSession",
    "ModelMetadata",
    "NodeArg",
    "OrtDevice",
    "OrtDeviceVendorId",
    "OrtValue",
    "RunOptions",
    "SessionOptions",
    "copy_tensors",
    "disable_telemetry_events",
    "enable_telemetry_events",
    "get_all_providers",
    "get_available_providers",
    "get_build_info",
    "get_device",
    "get_version_string",
    "has_collective_ops",
    "install",
    "set_default_logger_severity",
    "set_default_logger_verbosity",
    "set_global_thread_pool_sizes",
    "set_seed",
]


def get_available_providers():
    """Names of the devices that there are kernels for.

    Examples
    --------
    >>> import fusedops.onnxruntime as ort
    >>> ort.get_available_providers()
    ['CPUExecutionProvider']
    """
    return list(PROVIDERS)


def get_all_providers():
    """Names of all devices that this module knows: the same."""
    return list(PROVIDERS)


def get_device():
    """What computes: "CPU"."""
    return "CPU"


def get_version_string():
    """The version of ONNX Runtime whose interface this is."""
    return __version__


def get_build_info():
    """What this is in truth."""
    from ..runtime import isa, version  # noqa: PLC0415  # asks git

    return f"fusedops {version()}, {isa()}, in place of ONNX Runtime {__version__}"


def has_collective_ops():
    """Whether networks run on several machines: no."""
    return False


def enable_telemetry_events():
    """Does nothing: there is no telemetry."""


def disable_telemetry_events():
    """Does nothing: there is no telemetry."""


def set_default_logger_severity(severity):
    """Sets the least severity that the logger ``fusedops.onnxruntime`` tells: 0 verbose, 1 info, 2 warning, 3 error, 4
    fatal."""
    if severity not in range(5):
        raise RuntimeError(
            "Invalid logging severity. 0:Verbose, 1:Info, 2:Warning, 3:Error, 4:Fatal; not " + repr(severity)
        )
    logging.getLogger("fusedops.onnxruntime").setLevel(options.SEVERITIES[severity])


def set_default_logger_verbosity(level):
    """Does nothing: the logger has severities alone."""
    options.logger.info("the verbosity %r has no counterpart and no effect", level)


def _state():
    """The names of ``onnxruntime.capi.onnxruntime_pybind11_state``."""
    names = {name: globals()[name] for name in __all__ if name != "install"}
    names |= {name: getattr(errors, name) for name in errors.NAMES}
    return names | {"SessionIOBinding": IOBinding, "get_default_session_options": SessionOptions}


def install():
    """Lets ``import onnxruntime`` give this module, from here on in this process.

    Returns
    -------
    Installed
        Nothing need be done with it; ``with install():`` does so for a block alone.

    Examples
    --------
    >>> import fusedops.onnxruntime
    >>> with fusedops.onnxruntime.install():
    ...     import onnxruntime
    >>> onnxruntime is fusedops.onnxruntime
    True
    """
    state = _state()
    collection = {name: state[name] for name in ("InferenceSession", "IOBinding", "OrtDevice", "OrtValue")}
    collection |= {"Session": InferenceSession, "OrtDeviceVendorId": OrtDeviceVendorId}
    modules = {
        "capi": {},
        "capi.onnxruntime_pybind11_state": state,
        "capi._pybind_state": state,
        "capi.onnxruntime_inference_collection": collection,
    }
    reason = "it has InferenceSession and what belongs to it; to quantize a network see fusedops.Model.quantize"
    return stand_in.Installed(stand_in.install("onnxruntime", sys.modules[__name__], modules, reason))
