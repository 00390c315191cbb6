"""Networks: read, fused, planned, and run in one call."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, overload

from .._internal.arguments import checked_precision
from .._internal.collector import resting
from .._internal.lazy import LazyModule
from .._internal.progress import shown
from .ir.draws import checked_seed
from .ir.errors import DamagedFile, InvalidArgument, UnsupportedOperator
from .ir.explanation import Explanation, Fusion, Refusal
from .ir.graph import Value
from .ir.options import BuildOptions
from .model import Model
from .passes.optimizer import check_names
from .runtime.threads import checked_threads

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping
    from typing import Any, BinaryIO

    from .._types import Precision, Progress
    from .frontends import native
    from .frontends.onnx import reader as onnx_reader
    from .frontends.tflite import tflite_reader
    from .frontends.torch.compile_report import TorchReport
    from .runtime.decoder import Decoder
    from .runtime.profiler import Benchmark, Profile
else:
    native = LazyModule(".frontends.native", __name__)
    onnx_reader = LazyModule(".frontends.onnx.reader", __name__)
    tflite_reader = LazyModule(".frontends.tflite.tflite_reader", __name__)

__all__ = [
    "Benchmark",
    "DamagedFile",
    "Decoder",
    "Explanation",
    "InvalidArgument",
    "Model",
    "Profile",
    "UnsupportedOperator",
    "Value",
    "from_torch",
    "load",
    "load_onnx",
    "load_tflite",
    "torch_report",
]


_COMPILE_OPTIONS = ("disabled_passes", "precision", "progress")
LOGGER = logging.getLogger("fusedops")


def load_onnx(
    model: Any,
    *,
    fold: bool = True,
    fuse: bool = True,
    disabled_passes: Iterable[str] = (),
    precision: Precision | None = None,
    seed: int | None = None,
    num_threads: int | None = None,
    progress: Progress = None,
) -> Model:
    """Loads a network from ONNX.

    Most files need NumPy alone. Files of text, operators that ONNX defines by others, types that NumPy does not have
    and opsets before 7 need the ``onnx`` package: ``pip install -e '.[onnx]'`` in a checkout.

    Parameters
    ----------
    model : str, path-like, bytes, binary file or onnx.ModelProto
        Weights in other files are found only if a path is given. Opsets 7 to 21 are read; so are later ones whose
        operators mean the same, and older ones that ONNX can convert. A file of 16 MB and more is mapped: do not modify
        it while the network is used. Write a new file and rename it into place.
    fold : bool
        Compute with constants now: batch norm goes into the weights before it.
    fuse : bool
        Let one kernel do the work of several nodes: bias, residual and activation are applied where a result is made.
    disabled_passes : tuple of str
        Names of passes to leave out, such as ``("epilogue", "blocks")``, to measure the gain of each.
    precision : "float32" or "bfloat16", optional
        With bfloat16, convolutions, products, recurrent layers and attention round their operands to it where that is
        predicted to be faster on the processor at hand, layer by layer, and sum in float32. Values between two such
        convolutions or products stay bfloat16. Inputs and outputs keep their types. ``model.explain()`` says what
        stayed float32 and why. None: bfloat16 for a file whose weights are of that type, else float32.
    seed : int, optional
        The seed of the random numbers that the network draws, if it draws any; None: another one for each network. See
        :meth:`Model.seed`.
    num_threads : int, optional
        An upper limit for the threads of this network's calls, besides :func:`fusedops.set_num_threads`. Networks
        with other numbers may run at the same time in other Python threads.
    progress : bool or callable, optional
        True shows on standard error how far this is: a bar, or lines where rich is not installed. A callable is told
        what part is done, from 0 to 1.

    Returns
    -------
    Model

    Raises
    ------
    DamagedFile
        Not an ONNX model, or a damaged one. This and the next are ValueErrors.
    UnsupportedOperator
        Operators that fusedops does not have, all of them named.
    OSError
        The file cannot be read.
    ImportError
        The file needs the ``onnx`` package, which is missing.

    See Also
    --------
    from_torch : The same from a PyTorch module.

    Examples
    --------
    >>> import numpy as np, fusedops as fo
    >>> from onnx.parser import parse_model
    >>> model = fo.load_onnx(parse_model('''<ir_version: 8, opset_import: ["" : 17]>
    ...     net (float[n, 3] x, float[3, 2] w) => (float[n, 2] y) { h = MatMul(x, w)  y = Relu(h) }'''))
    >>> model(np.ones((1, 3), np.float32), np.ones((3, 2), np.float32))
    array([[3., 3.]], dtype=float32)
    """
    options = _options(fold, fuse, disabled_passes, "float32" if precision is None else precision, seed, num_threads)
    with _loading("load_onnx", progress) as tell:
        graph = onnx_reader.read_onnx(model)
        options = options._replace(precision=precision or graph.precision)
        return _logged("load_onnx", Model.built(graph, options, tell=tell))


@contextmanager
def _loading(title, progress):
    """Shows or tells how far a reader is: a third for the file, the rest for the passes."""
    with shown(progress, title) as tell, resting():
        tell(0.0, "reads the file")
        yield lambda part, doing="": tell((1 + 2 * part) / 3, doing)


def _logged(title, model):
    """The model, of which the log says what it is."""
    if LOGGER.isEnabledFor(logging.INFO):
        refusals = [entry for entry in model._report if isinstance(entry, Refusal)]
        fusions = sum(isinstance(entry, Fusion) for entry in model._report)
        LOGGER.info("%s: %r: %d fusions, %d refused", title, model, fusions, len(refusals))
        for refusal in refusals:
            LOGGER.debug("%s: %s %s: %s", title, refusal.kind, refusal.node, refusal.reason)
    return model


def _options(fold, fuse, disabled_passes, precision, seed, num_threads=None):
    disabled, precision = check_names(disabled_passes), checked_precision(precision)
    return BuildOptions(fold, fuse, disabled, precision, checked_seed(seed), checked_threads(num_threads))


def load_tflite(
    model: str | os.PathLike[str] | bytes | bytearray | memoryview | BinaryIO,
    *,
    signature: str | None = None,
    fold: bool = True,
    fuse: bool = True,
    disabled_passes: Iterable[str] = (),
    precision: Precision = "float32",
    seed: int | None = None,
    num_threads: int | None = None,
    progress: Progress = None,
) -> Model:
    """Loads a network from a TFLite (LiteRT) file. Needs the ``tflite`` package: ``pip install -e '.[tflite]'`` in a
    checkout.

    Images stay (n, h, w, c), as in the file. Quantized inputs and outputs are integers, as in the file.

    Parameters
    ----------
    model : str, path-like, bytes or binary file
        A ``.tflite`` file.
    signature : str, optional
        The signature to read, of a file that has several; None: the first subgraph.
    fold, fuse : bool
    disabled_passes : tuple of str
    precision : "float32" or "bfloat16"
    seed : int, optional
    num_threads : int, optional
    progress : bool or callable, optional
        See :func:`load_onnx`.

    Returns
    -------
    Model
        The signature names the inputs and outputs. Variables of the file keep their
        values from call to call until ``model.reset()``.

    Raises
    ------
    DamagedFile
        Not a TFLite model, or a damaged one. All of these are ValueErrors.
    UnsupportedOperator
        Operators that fusedops does not have, all of them named.
    InvalidArgument
        The file has no such signature.
    OSError
        The file cannot be read.
    ImportError
        The ``tflite`` package is missing.

    See Also
    --------
    load_onnx : The same from an ONNX file.

    Examples
    --------
    A file of one operator, as text; usually this is a path.

    >>> import base64, zlib
    >>> import numpy as np, fusedops as fo
    >>> file = zlib.decompress(base64.b85decode(
    ...     'c-oU;U|<Mw^D!1-kYEsD5MbZ|@;MklfCb2BfMW?DmH}dB1_)q;ih*baD18E~3j`T}=0Hs20P;X)3IMSU5IX>'
    ...     '|3sk)T*d#8foh(2W#BLs_JPb2n;WGiT0oXnUhA033{}+I=8KG_j(UoAcc;NnlxdUBY1ymh3k~(3CHNpVekqT'
    ...     'Y'))
    >>> model = fo.load_tflite(file)
    >>> model
    Model(x: float32 (3) -> y: float32 (3))
    >>> model(np.float32([-1, 0, 2]))
    array([0., 0., 2.], dtype=float32)
    """
    options = _options(fold, fuse, disabled_passes, precision, seed, num_threads)
    with _loading("load_tflite", progress) as tell:
        return _logged("load_tflite", Model.built(tflite_reader.read_tflite(model, signature), options, tell=tell))


@overload
def from_torch(
    module: Any,
    example_inputs: None = None,
    *,
    dynamic_shapes: None = None,
    fold: bool = True,
    fuse: bool = True,
    disabled_passes: Iterable[str] = (),
    precision: Precision | None = None,
    seed: None = None,
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
    precision: Precision | None = None,
    seed: int | None = None,
    num_threads: int | None = None,
    progress: Progress = None,
) -> Model: ...
def from_torch(
    module: Any,
    example_inputs: Any = None,
    *,
    dynamic_shapes: Any = None,
    fold: bool = True,
    fuse: bool = True,
    disabled_passes: Iterable[str] = (),
    precision: Precision | None = None,
    seed: int | None = None,
    num_threads: int | None = None,
    progress: Progress = None,
) -> Any:
    """Loads a network, or a single layer, from PyTorch. Needs ``pip install -e '.[torch]'`` in a checkout.

    The network is compared with the module before it is returned: on the example, on other values, and in other sizes
    if sizes are open.

    Parameters
    ----------
    module : torch.nn.Module or torch.export.ExportedProgram
        A module is read as for inference (``module.eval()``). Its weights are copied: later changes to it do not change
        the network.
    example_inputs : tensor, array, or a tuple, list or dict of them, optional
        The arguments of a call: a tuple or list has positional arguments, a dict has keyword arguments, and each may be
        nested. The tensors in them become the inputs of the network, in order; everything else is constant. Without
        them, `module` is a single layer (``nn.Conv2d``, ``nn.Linear``, ...), and the result is the fusedops layer with
        its weights. An exported program has its own example and open sizes.
    dynamic_shapes : tuple, list or dict, optional
        Which dimensions may differ between calls. The first one always may, unless the module fixes it. For each
        example input give None or a dict from dimensions to names, such as ``({2: "height", 3: "width"},)``. The forms
        of torch.export are accepted too: a dict from the names of forward's arguments, and ``torch.export.Dim``.
    fold, fuse : bool
    disabled_passes : tuple of str
        See :func:`load_onnx`. A single layer has nothing to fold or fuse and takes none of them.
    precision : "float32" or "bfloat16", optional
        See :func:`load_onnx`. None: bfloat16 for a module whose weights are of that type, else float32. The network is
        compared with the module in float32. A single layer always uses the precision that is given.
    seed : int, optional
        See :func:`load_onnx`. Where the module draws random numbers, the network does so too, in each call, from
        NumPy's generator: they are not the numbers that PyTorch has for a seed. Dropout of a module in eval mode draws
        none.
    num_threads : int, optional
        See :func:`load_onnx`.
    progress : bool or callable, optional
        See :func:`load_onnx`. Without it a terminal shows what is being done after two seconds.

    Returns
    -------
    Model, or a layer

    Raises
    ------
    ValueError
        The module decides by values that only a call knows, keeps state, has operators that fusedops does not have, or
        fixes a size that was to be open; or the network would not compute what the module does.
    TypeError
        Not a module, or example inputs of another kind; no example inputs, and no such layer, or options of networks
        for one.

    Examples
    --------
    >>> import torch, fusedops as fo
    >>> layer = torch.nn.Conv2d(3, 8, 3, padding=1)
    >>> fo.from_torch(layer).output_shape((1, 3, 8, 8))
    (1, 8, 8, 8)
    >>> model = fo.from_torch(torch.nn.Sequential(layer, torch.nn.ReLU()), torch.zeros(1, 3, 8, 8))
    >>> len(model.explain().fusions)
    1
    """
    from .frontends.torch import export, nn_layers  # a sixth of the time that `load` takes without them

    options = _options(fold, fuse, disabled_passes, precision or "float32", seed, num_threads)
    if example_inputs is None and not export.is_program(module):
        if not (fold and fuse) or options.disabled or (dynamic_shapes, seed, num_threads) != (None, None, None):
            raise TypeError(
                "a single layer has nothing to fold or fuse: for a network pass example inputs as well, "
                "from_torch(module, example_inputs, fold=..., fuse=...)"
            )
        return nn_layers.layer_of(module, precision)

    def build(graph, options=options._replace(precision="float32")):
        return Model.built(graph, options)

    with shown(progress, "from_torch") as tell:
        found = export.read_torch(module, example_inputs, dynamic_shapes, build, tell)
        options = options._replace(precision=precision or found._source.precision)
        return _logged("from_torch", found if options.precision == "float32" else build(found._source, options))


def __getattr__(name: str) -> Any:
    """Names for annotations, whose modules few networks need, and `torch_backend`, the entry point by which
    torch.compile finds it, before it makes the first graph."""
    where = {"Decoder": "decoder", "Benchmark": "profiler", "Profile": "profiler"}.get(name)
    if where is not None:
        return getattr(import_module(f".runtime.{where}", __name__), name)
    if name != "torch_backend":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .frontends.torch.nn_layers import import_torch

    import_torch("torch.compile's backend")
    from .frontends.torch.compile_recurrent import register

    register(_torch_backend)
    return _torch_backend


def _torch_backend(
    graph_module: Any, example_inputs: Any, *, options: Mapping[str, Any] | None = None, mode: str | None = None
) -> Any:
    """What ``torch.compile(module, backend="fusedops")`` calls for each graph of the module."""
    from .frontends.torch.compile import compile_graph

    unknown = sorted(set(options or ()) - set(_COMPILE_OPTIONS))
    if unknown or mode is not None:
        what = f"option {', '.join(map(repr, unknown))}" if unknown else f"mode ({mode!r})"
        raise TypeError(f"the backend fusedops has no {what}: its options are {', '.join(_COMPILE_OPTIONS)}")
    given = dict(options or {})
    chosen = _options(True, True, given.get("disabled_passes", ()), given.get("precision", "float32"), None)

    def build(graph):
        return Model.built(graph, chosen._replace(precision=given.get("precision", graph.precision)))

    return compile_graph(graph_module, example_inputs, build, given.get("progress"))


def torch_report(compiled: Any) -> TorchReport:
    """Reports what runs where in a module from ``torch.compile(module, backend="fusedops")``, after a call.

    Parameters
    ----------
    compiled : module or function
        The result of `torch.compile`, or a module whose ``compile`` method was called.

    Returns
    -------
    TorchReport
        ``graphs`` has those that PyTorch made of the module, each with its ``parts``, which are networks (``model``)
        and the names of PyTorch's operators in them, and with ``eager``, the nodes that PyTorch runs, and why.
        ``fallback`` says why PyTorch runs all of a graph. ``str()`` is a table. Before the first call, and after
        ``torch._dynamo.reset()``, there are none.

    Raises
    ------
    TypeError
        Neither a module nor a function.

    See Also
    --------
    from_torch : A whole module as one network, for NumPy's arrays.

    Examples
    --------
    >>> import torch, fusedops as fo
    >>> compiled = torch.compile(torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU()), backend="fusedops")
    >>> with torch.no_grad():
    ...     y = compiled(torch.zeros(2, 3))
    >>> print(fo.torch_report(compiled))
    1 graph: 2 operators in 1 part here, 0 in PyTorch
    graph  runs in  operators  what
        0  part 0           2  addmm, relu
    """
    from .frontends.torch.compile_report import report

    return report(compiled)


def load(
    path: str | os.PathLike[str] | bytes | BinaryIO, *, num_threads: int | None = None, progress: Progress = None
) -> Model:
    """Loads a network that ``model.save`` wrote. Needs NumPy alone.

    Parameters
    ----------
    path : str, path-like, bytes or binary file
    num_threads : int, optional
        See :func:`load_onnx`. It is not saved.
    progress : bool or callable, optional
        See :func:`load_onnx`.

    Returns
    -------
    Model
        As it was saved; nothing of what the file holds is executed.

    Raises
    ------
    TypeError
        Neither a path nor bytes.
    OSError
        No such file.
    DamagedFile
        Not a saved network, a damaged one, or one of another version. It is a ValueError.
    MemoryError
        Its arrays do not fit into memory.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np, fusedops as fo
    >>> from onnx.parser import parse_model
    >>> model = fo.load_onnx(parse_model('''<ir_version: 8, opset_import: ["" : 17]>
    ...     net (float[n] x) => (float[n] y) { y = Relu(x) }'''))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "model.fo")
    ...     model.save(path)
    ...     fo.load(path)(np.float32([-1, 2]))
    array([0., 2.], dtype=float32)
    """
    threads = checked_threads(num_threads)
    with _loading("load", progress) as tell:
        graph, report, source, options = native.load(path)
        tell(0.0, "plans")
        model = Model(graph, report, source, options._replace(num_threads=threads))
        tell(1.0)
        return _logged("load", model)
