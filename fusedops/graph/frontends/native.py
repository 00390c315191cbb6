"""Networks in files: a NumPy .npz archive with the constants as arrays and everything else as JSON. Nothing in it is
code, and NumPy alone reads it."""

import contextlib
import dataclasses
import functools
import io
import json
import os
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import activations
from ..._internal.lazy import LazyModule
from ..._internal.mmap_arrays import mapped_file, opened, whole
from ...layers import PRECISIONS
from ..ir.draws import checked_seed
from ..ir.dtypes import BFLOAT16
from ..ir.errors import DamagedFile
from ..ir.explanation import Fusion, Quantized, QuantizedLayer, QuantizedOutput, Refusal
from ..ir.float16_weights import exact_float16
from ..ir.graph import Graph, Metadata, Node, Value
from ..ir.options import BuildOptions
from ..operators.registry import OPERATORS
from .archive import Archive

if TYPE_CHECKING:
    import zipfile
else:
    zipfile = LazyModule("zipfile")  # takes 20 ms to import

FORMAT, VERSION = "fusedops network", 1
LARGE = 1 << 24  # bytes of a file that is mapped while it is read
MAX_NAMES = 1 << 20  # bytes at the end of an archive in which the names of what it has are looked for
SMALL = 64  # elements of an array that is kept as it is
_SAID = dataclasses.fields(Metadata)


def save(path, graph, report, source=None, options=BuildOptions()):
    """Writes a graph, the report of its passes, its precision and, where inputs have defaults, the graph as it was
    read, with the options of its passes."""
    arrays = _Arrays()
    header = {
        "format": FORMAT,
        "version": VERSION,
        **_written(graph, arrays),
        "report": [[type(r).__name__, list(r)] for r in report],
    }
    if source is not None and source.defaults:
        header["source"] = _written(source, arrays) | {"defaults": [_described(v) for v in source.defaults]}
        header["options"] = [options.fold, options.fuse, sorted(options.disabled)]
    if options.precision != BuildOptions().precision:
        header["precision"] = options.precision
    if options.seed is not None:
        header["seed"] = options.seed
    if graph.metadata != Metadata():
        header["metadata"] = dataclasses.asdict(graph.metadata)
    text = np.frombuffer(json.dumps(header).encode(), np.uint8)
    with _to_write(path) as f:
        np.savez(f, header=text, **{f"a{i}": a for i, a in enumerate(arrays.stored)})


def _to_write(path):
    """A file to write to: one that is open, or that of a path."""
    if isinstance(path, io.TextIOBase):
        raise TypeError("the file takes text, and a network is saved as bytes: open it with mode 'wb'")
    if hasattr(path, "write"):
        return contextlib.nullcontext(path)
    return open(os.fspath(path), "wb")  # not the number of a file that is open, which would be closed


class _Arrays:
    """The arrays of a file: each once, and those of float32 whose values fit into 16 bits in that size."""

    def __init__(self):
        self.stored, self.places, self.kept = [], {}, []

    def add(self, a):
        """An array as JSON."""
        if id(a) not in self.places:
            self.kept.append(a)  # or another could get its id
            data, kind = _shortest(np.ascontiguousarray(a).reshape(a.shape))
            self.stored.append(data)
            self.places[id(a)] = {"array": len(self.stored) - 1} | ({"as": kind} if kind else {})
        return self.places[id(a)]


def _shortest(a):
    """(an array, or its values in 16 bits where nothing is lost, how these are to be read or "")."""
    if a.dtype == BFLOAT16:
        return a.view(np.uint16), "bits of bfloat16"
    if a.dtype != np.float32 or a.size < SMALL:
        return a, ""
    bits = a.view(np.uint32)
    if not np.any(bits & 0xFFFF):
        return (bits >> 16).astype(np.uint16), "bfloat16"
    narrow = exact_float16(a)
    return (a, "") if narrow is None else (narrow, "float16")


def _widened(a, kind):
    """What was stored in 16 bits: the float32 values, or bfloat16."""
    if kind == "bits of bfloat16" and a.dtype == np.uint16:
        return a.view(BFLOAT16)
    if kind == "bfloat16" and a.dtype == np.uint16:
        wide = a.astype(np.uint32)
        wide <<= 16
        return wide.view(np.float32)
    if kind == "float16" and a.dtype == np.float16:
        return a.astype(np.float32)
    raise ValueError(f"an array of {a.dtype} cannot be read as {kind}")


def _written(graph, arrays):
    """A graph as JSON."""
    nodes = [
        {
            "op": n.op,
            "name": n.name,
            "inputs": n.inputs,
            "outputs": n.outputs,
            "attrs": {k: _encoded(v, arrays) for k, v in n.attrs.items()},
            "residual": n.residual,
            "activation": _encoded(n.activation, arrays),
            "absorbed": n.fused_from,
        }
        for n in graph.nodes
    ]
    return {
        "opset": graph.opset,
        "nodes": nodes,
        "results": graph.results,
        "captures": graph.captures,
        "constants": {name: _encoded(a, arrays) for name, a in graph.constants.items()},
        "inputs": [_described(v) for v in graph.inputs],
        "outputs": [_described(v) for v in graph.outputs],
    } | ({"states": [arrays.add(a) for a in graph.states]} if graph.states else {})


def load(source):
    """What Model takes, of a saved network: a path, bytes or a binary file.

    Raises
    ------
    DamagedFile
        Not a saved network, a damaged one, or one of another version.
    MemoryError
        Its arrays do not fit into memory.
    """
    source = whole(source)
    if isinstance(source, (bytes, bytearray, memoryview)):
        return _checked("the model", bytes(source))
    path = os.fspath(source)
    with opened(path) as f:
        large = os.fstat(f.fileno()).st_size >= LARGE  # a pipe has no size
        return _checked(repr(path), mapped_file(f) if large else f.read())


def _checked(what, data):
    if data[:2] != b"PK":
        raise DamagedFile(
            f"{what} is not a saved network, or a damaged one; fusedops.load_onnx reads ONNX, "
            "fusedops.load_tflite TFLite"
        )
    return _read(what, data)


def _read(what, data):
    try:
        with _archived():
            return _network(what, Archive(data))
    except _OtherVersion as e:
        raise DamagedFile(str(e)) from None
    except ValueError as e:
        if kind := _foreign(data):
            raise DamagedFile(f"{what} is {kind}") from None
        raise DamagedFile(f"{what} is not a saved network, or a damaged one: {e}") from None


@contextlib.contextmanager
def _archived():
    """The errors of what reads archives, which are of many kinds where bytes are damaged, as ValueErrors."""
    try:
        yield
    except (ValueError, MemoryError):
        raise
    except Exception as e:
        if _is_of_library(e) and not isinstance(e, RecursionError):  # of tables that are nested too deep
            raise
        raise ValueError(f"{type(e).__name__}: {e}") from e


def _is_of_library(error):
    """Whether the code that raised an error is of this library."""
    at = error.__traceback__
    while at.tb_next is not None:
        at = at.tb_next
    return at.tb_frame.f_globals["__name__"].partition(".")[0] == __name__.partition(".")[0]


def _network(what, archive):
    """Decodes an archive into what Model takes."""
    text = archive["header"]
    if text.dtype != np.uint8 or text.ndim != 1:
        raise ValueError("its header is not text")
    header = json.loads(bytes(text), object_hook=_Table)
    if not isinstance(header, _Table) or header.get("format") != FORMAT:
        raise ValueError("it has another format")
    if header.get("version") != VERSION:
        raise _OtherVersion(
            f"{what} is a network saved in version {header.get('version')} of the format; this fusedops reads "
            f"version {VERSION}"
        )
    arrays = functools.cache(  # a header may name one more than once
        lambda i, kind=None: _numbers(archive[f"a{i:d}"]) if kind is None else _widened(arrays(i), kind)
    )
    graph, report = _graph(header, arrays), _report(header)
    graph.metadata = _metadata(header)
    if any(v.dtype is None for v in graph.inputs):
        raise ValueError("an input has no element type")
    options = BuildOptions(precision=_precision(header), seed=_seed(header))
    if "source" in header:
        return graph, report, *_source(header, graph, arrays, options)
    return graph, report, None, options


class _Table(dict):
    """A table of the header; what it lacks, or has of another kind, is an error of the file."""

    def __missing__(self, name):
        raise ValueError(f"it has no {name!r}")

    def of(self, kind, name):
        """A value of this kind."""
        found = self[name]
        if not isinstance(found, kind):
            raise ValueError(f"{found!r} stands where {name!r} must")
        return found


class _OtherVersion(ValueError):
    pass


def _foreign(data):
    """Names an archive of another library or of NumPy, with what to do; "" for others. Its end has the names."""
    try:
        names = zipfile.ZipFile(io.BytesIO(bytes(data[-MAX_NAMES:]))).namelist()
    except (OSError, ValueError, zipfile.BadZipFile):
        return ""
    folders = {part for name in names for part in name.split("/")}
    if folders & {"data.pkl", "archive_format"}:  # of torch.save and torch.export.save
        load = "torch.export.load" if "archive_format" in folders else "torch.load"
        return f"a file of PyTorch: read it with {load}, and pass the module to fusedops.from_torch with an example"
    if names and all(name.endswith(".npy") for name in names) and "header.npy" not in names:
        return f"an archive of arrays ({', '.join(name[:-4] for name in names[:4])}): numpy.load reads it"
    return ""


def _encoded(value, arrays):
    """A value as JSON; arrays are put into the list and named by their place."""
    if isinstance(value, np.ndarray):
        return arrays.add(value)
    if isinstance(value, Graph):
        return {"graph": _written(value, arrays)}
    if isinstance(value, (tuple, list)):
        return [_encoded(v, arrays) for v in value]
    return value.item() if isinstance(value, np.generic) else value


def _decoded(value, arrays):
    if not isinstance(value, _Table):
        return [_decoded(v, arrays) for v in value] if isinstance(value, list) else value
    if "graph" in value:
        return _graph(value.of(_Table, "graph"), arrays)
    return arrays(value.of(int, "array"), *([value.of(str, "as")] if "as" in value else []))


def _numbers(array):
    if array.dtype.kind not in "biuf" or not array.dtype.isnative:
        raise ValueError(f"an array has dtype {array.dtype}")
    return array


def _described(value):
    return {
        "name": value.name,
        "shape": value.shape if value.shape is None else list(value.shape),
        "dtype": _type_name(value.dtype),
    } | ({"stored": value.stored} if value.stored else {})


def _type_name(dtype):
    """None where only a call knows it."""
    if dtype == BFLOAT16:
        return "bfloat16"
    return None if dtype is None else "sequence" if dtype.kind == "O" else dtype.str


def _type(name):
    if name is None or name == "sequence":
        return name and np.dtype(object)
    if name == "bfloat16":
        return BFLOAT16
    try:
        dtype = np.dtype(_text(name))
    except TypeError:
        raise ValueError(f"an array has dtype {name!r}") from None
    return _numbers(np.empty(0, dtype)).dtype


def _text(value):
    if not isinstance(value, str):
        raise ValueError(f"{value!r} stands where a name must")
    return value


def _list(values):
    if not isinstance(values, list):
        raise ValueError(f"{values!r} stands where a list must")
    return values


def _tables(values):
    if not all(isinstance(v, _Table) for v in _list(values)):
        raise ValueError(f"{values!r} stands where tables must")
    return values


def _texts(values):
    values = _list(values)
    return [_text(v) for v in values]


def _value(described):
    shape = described["shape"]
    if shape is not None and not all(isinstance(n, str) or type(n) is int and n >= 0 for n in _list(shape)):
        raise ValueError(f"an array has shape {shape}")
    name, stored = _text(described["name"]), _text(described.get("stored", ""))
    return Value(name, shape if shape is None else tuple(shape), _type(described["dtype"]), stored)


def _node(n, arrays):
    activation = _decoded(n["activation"], arrays)
    try:
        activations.parse(activation)
    except TypeError as e:  # it is no name with numbers
        raise ValueError(str(e)) from None
    attrs = {_text(k): _decoded(v, arrays) for k, v in n.of(_Table, "attrs").items()}
    return Node(
        _text(n["op"]),
        _text(n["name"]),
        _texts(n["inputs"]),
        _texts(n["outputs"]),
        attrs,
        _text(n["residual"]),
        tuple(activation) if isinstance(activation, list) else activation,
        _texts(n["absorbed"]),
    )


def _graph(header, arrays):
    constants = {name: _decoded(a, arrays) for name, a in header.of(_Table, "constants").items()}
    if not all(isinstance(a, np.ndarray) for a in constants.values()):
        raise ValueError("a constant is not an array")
    inputs, outputs = ([_value(v) for v in _tables(header[k])] for k in ("inputs", "outputs"))
    nodes, known = [], {"", *constants, *(v.name for v in inputs)}
    for node in (_node(n, arrays) for n in _tables(header["nodes"])):
        if node.op not in OPERATORS or not node.outputs or not known.issuperset(node.reads()):
            raise ValueError(f"node {node.name!r} ({node.op}) is unknown, makes nothing or reads what nothing makes")
        known.update(node.outputs)
        nodes.append(node)
    results = _texts(header["results"])
    if "" in results or not known.issuperset(results) or len(results) != len(outputs):
        raise ValueError("no node computes its outputs")
    captures = header.get("captures", 0)
    if type(captures) is not int or not 0 <= captures <= len(inputs):
        raise ValueError(f"a graph of {len(inputs)} inputs takes {captures} from outside")
    return Graph(
        nodes,
        constants,
        inputs,
        outputs,
        results,
        header.of(int, "opset"),
        captures=captures,
        states=_states(header, arrays, inputs, results),
    )


def _states(header, arrays, inputs, results):
    """Returns the initial values of the last inputs, which a network keeps."""
    states = [_decoded(a, arrays) for a in _list(header.get("states", []))]
    kept = inputs[len(inputs) - len(states) :]
    if len(states) > min(len(inputs), len(results)) or any(
        not isinstance(a, np.ndarray) or (a.shape, a.dtype) != (v.shape, v.dtype)
        for a, v in zip(states, kept, strict=True)
    ):
        raise ValueError("its variables do not fit its inputs")
    return states


def _metadata(header):
    given = header.of(_Table, "metadata") if "metadata" in header else {}
    kinds = {f.name: int if f.name == "version" else dict if f.name == "custom" else str for f in _SAID}
    if any(name not in kinds or not isinstance(value, kinds[name]) for name, value in given.items()):
        raise ValueError(f"it says of itself {given!r}")
    _texts([*given.get("custom", {}).values()])
    said: dict[str, Any] = {name: dict(value) if name == "custom" else value for name, value in given.items()}
    return Metadata(**said)


def _precision(header):
    precision = header.get("precision", "float32")
    if precision not in PRECISIONS:
        raise ValueError(f"its precision is {precision!r}")
    return precision


def _seed(header):
    try:
        return checked_seed(header.get("seed"))
    except TypeError as e:
        raise ValueError(str(e)) from None


def _source(header, graph, arrays, options):
    """(the graph as it was read, whose defaults those of `graph` are, the options of its passes)."""
    given, options_ = header.of(_Table, "source"), _list(header["options"])
    source = _graph(given, arrays)
    fold, fuse, disabled = options_ if len(options_) == 3 else (True, True, None)
    source.defaults = graph.defaults = [_value(v) for v in _tables(given["defaults"])]
    if not source.constants.keys() >= {v.name for v in source.defaults}:
        raise ValueError("an input has no default")
    return source, options._replace(fold=bool(fold), fuse=bool(fuse), disabled=frozenset(_texts(disabled)))


def _report(header):
    return [_part_of_report(each) for each in _list(header["report"])]


def _part_of_report(each):
    kinds = {kind.__name__: kind for kind in (Fusion, Refusal, Quantized)}
    name, fields = each if isinstance(each, list) and len(each) == 2 else (None, None)
    if not isinstance(name, str) or name not in kinds:
        raise ValueError(f"its report has {each!r}")
    made = _record(kinds[name], fields)
    if not isinstance(made, Quantized):
        return made
    layers, outputs = (
        tuple(_record(kind, row) for row in _list(_list(fields)[i]))
        for i, kind in ((1, QuantizedLayer), (2, QuantizedOutput))
    )
    return made._replace(layers=layers, outputs=outputs)


def _record(kind, values):
    """A part of the report from its fields, of which those with a default may be left out."""
    most = len(kind._fields)
    if not most - len(kind._field_defaults) <= len(_list(values)) <= most:
        raise ValueError(f"a {kind.__name__} of its report has {len(values)} fields of {most}")
    for name, value in zip(kind._fields, values, strict=False):
        if not _fits(kind.__annotations__[name], value):
            raise ValueError(f"{value!r} stands in its report where {name!r} must")
    return kind(*(tuple(v) if isinstance(v, list) else v for v in values))


def _fits(kind, value):
    """Whether a value of the header is one of this kind; a tuple is a list of names."""
    if kind is tuple:
        return isinstance(value, list) and all(isinstance(v, str) for v in value)
    if kind in (str, int, float):
        return isinstance(value, str if kind is str else (int, float))
    return value is None or isinstance(value, (int, float, list))
