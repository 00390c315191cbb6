import os
from collections.abc import Iterable
from typing import Any, overload

from .._types import Precision
from .model import Model as Model

__all__ = ["Model", "from_torch", "load", "load_onnx", "load_tflite"]

def load_onnx(
    model: Any,
    *,
    fold: bool = True,
    fuse: bool = True,
    disabled_passes: Iterable[str] = (),
    precision: Precision = "float32",
) -> Model: ...
def load_tflite(
    model: str | os.PathLike[str] | bytes | bytearray | memoryview,
    *,
    fold: bool = True,
    fuse: bool = True,
    disabled_passes: Iterable[str] = (),
    precision: Precision = "float32",
) -> Model: ...
@overload
def from_torch(
    module: Any,
    example_inputs: None = None,
    *,
    dynamic_shapes: None = None,
    fold: bool = True,
    fuse: bool = True,
    disabled_passes: Iterable[str] = (),
    precision: Precision = "float32",
) -> Any: ...
@overload
def from_torch(
    module: Any,
    example_inputs: Any,
    *,
    dynamic_shapes: Any = None,
    fold: bool = True,
    fuse: bool = True,
    disabled_passes: Iterable[str] = (),
    precision: Precision = "float32",
) -> Model: ...
def load(path: str | os.PathLike[str]) -> Model: ...
