"""Networks: read, fused, planned, and run in one call."""
from . import saved
from .executor import Model

__all__ = ["Model", "from_torch", "load", "load_onnx"]


def load_onnx(model, *, fold=True, fuse=True):
    """Loads a network from ONNX. Needs the ``onnx`` package: ``pip install 'fusedops[onnx]'``.

    Parameters
    ----------
    model : str, path-like, bytes or onnx.ModelProto
        Opset 7 to 21; older ones as far as ONNX converts them.
    fold : bool
        Compute with constants now: batch norm goes into the weights before it.
    fuse : bool
        Let one kernel do the work of several nodes: bias, residual and activation are applied where a result is made.

    Returns
    -------
    Model

    Raises
    ------
    ValueError
        Not an ONNX model, a damaged one, or operators that fusedops does not have, all of them named.

    Examples
    --------
    >>> model = fo.load_onnx("resnet50.onnx")  # doctest: +SKIP
    >>> print(model.explain())  # doctest: +SKIP
    >>> y = model(x)  # doctest: +SKIP
    """
    from .onnx_reader import read_onnx
    return Model.built(read_onnx(model), fold, fuse)


def from_torch(module, example_inputs=None, *, fold=True, fuse=True):
    """Loads a network, or a single layer, from PyTorch. Needs ``pip install 'fusedops[torch]'``.

    Parameters
    ----------
    module : torch.nn.Module
        Taken as for inference (``module.eval()``).
    example_inputs : tensor, array, or tuple of them, optional
        Inputs to trace the network with; their first dimension may differ in later calls. Without them, `module` is a single layer
        (``nn.Conv2d``, ``nn.Linear``, ...) and the result the layer of fusedops with its weights.
    fold, fuse : bool
        See :func:`load_onnx`.

    Returns
    -------
    Model, or a layer

    Raises
    ------
    ValueError
        Torch cannot export the network, or it has operators that fusedops does not have.
    TypeError
        No example inputs, and no such layer.
    """
    from . import torch_reader
    if example_inputs is None:
        return torch_reader.layer_of(module)
    return Model.built(torch_reader.read_torch(module, example_inputs), fold, fuse)


def load(path):
    """Loads a network that ``model.save`` wrote. Needs NumPy alone.

    Raises
    ------
    ValueError
        Not a saved network, a damaged one, or one of another version.
    """
    return Model(*saved.load(path))
