"""Networks: read, fused, planned, and run in one call."""
from .executor import Model

__all__ = ["Model", "from_torch", "load", "load_onnx"]


def load_onnx(model, *, fold=True, fuse=True):
    """Loads a network from ONNX."""
    from .onnx_reader import read_onnx
    from .passes import optimize
    graph = read_onnx(model)
    return Model(graph, optimize(graph, fold=fold, fuse=fuse))
