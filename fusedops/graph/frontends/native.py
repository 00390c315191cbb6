"""Networks in files: a NumPy .npz archive with the constants as arrays and everything else as JSON. Nothing in it is
code, and NumPy alone reads it."""

import contextlib
import dataclasses
import functools
import io
import json
import os
from collections.abc import Callable

import numpy as np

from ... import activations
from ...layers import PRECISIONS
from ...mapped import mapped_file, opened, whole
from ..ir.draws import checked_seed
from ..ir.errors import DamagedFile
from ..ir.explanation import Fusion, Quantized, QuantizedLayer, QuantizedOutput, Refusal
from ..ir.float16 import exact_float16
from ..ir.graph import Graph, Metadata, Node, Value
from ..ir.options import BuildOptions
from ..operators.registry import OPERATORS
from .archive import Archive

FORMAT, VERSION = "fusedops network", 1
LARGE = 1 << 24  # bytes of a file that is mapped while it is read
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
    if a.dtype != np.float32 or a.size < SMALL:
        return a, ""
    bits = a.view(np.uint32)
    if not np.any(bits & 0xFFFF):
        return (bits >> 16).astype(np.uint16), "bfloat16"
    narrow = exact_float16(a)
    return (a, "") if narrow is None else (narrow, "float16")


def _widened(a, kind):
    """The float32 values that were stored in 16 bits."""
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
        archive = Archive(data)
        header = json.loads(bytes(archive["header"]))
        if not isinstance(header, dict) or header.get("format") != FORMAT:
            raise ValueError("it has another format")
        if header.get("version") != VERSION:
            raise _OtherVersion(
                f"{what} is a network saved in version {header.get('version')} of the format; this fusedops "
                f"reads version {VERSION}"
            )
        arrays = functools.cache(  # a header may name one more than once
            lambda i, kind=None: _numbers(archive[f"a{i:d}"]) if kind is None else _widened(arrays(i), kind)
        )
        graph, report = _graph(header, arrays), _report(header)
        graph.metadata = _metadata(header)
        if any(v.dtype is None for v in graph.inputs):
            raise ValueError("an input has no type of elements")
        options = BuildOptions(precision=_precision(header), seed=checked_seed(header.get("seed")))
        if "source" in header:
            return graph, report, *_source(header, graph, arrays, options)
        return graph, report, None, options
    except _OtherVersion as e:
        raise DamagedFile(str(e)) from None
    except MemoryError:
        raise
    except Exception as e:  # of json, NumPy or this reader, whichever met the damage
        raise DamagedFile(f"{what} is not a saved network, or a damaged one: {e}") from None


class _OtherVersion(Exception):
    pass


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
    if isinstance(value, dict):
        return (
            _graph(value["graph"], arrays)
            if "graph" in value
            else arrays(value["array"], *([value["as"]] if "as" in value else []))
        )
    return [_decoded(v, arrays) for v in value] if isinstance(value, list) else value


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
    return None if dtype is None else "sequence" if dtype.kind == "O" else dtype.str


def _type(name):
    if name is None or name == "sequence":
        return name and np.dtype(object)
    return _numbers(np.empty(0, _text(name))).dtype


def _text(value):
    if not isinstance(value, str):
        raise TypeError(f"{value!r} stands where a name must")
    return value


def _texts(values):
    return [_text(v) for v in values]


def _value(described):
    shape = described["shape"]
    if shape is not None and not all(isinstance(n, str) or type(n) is int and n >= 0 for n in shape):
        raise ValueError(f"an array has shape {shape}")
    name, stored = _text(described["name"]), _text(described.get("stored", ""))
    return Value(name, shape if shape is None else tuple(shape), _type(described["dtype"]), stored)


def _node(n, arrays):
    activation = _decoded(n["activation"], arrays)
    activations.parse(activation)  # or an error
    attrs = {_text(k): _decoded(v, arrays) for k, v in n["attrs"].items()}
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
    constants = {name: _decoded(a, arrays) for name, a in header["constants"].items()}
    if not all(isinstance(a, np.ndarray) for a in constants.values()):
        raise TypeError("a constant is no array")
    inputs, outputs = ([_value(v) for v in header[k]] for k in ("inputs", "outputs"))
    nodes, known = [], {"", *constants, *(v.name for v in inputs)}
    for node in (_node(n, arrays) for n in header["nodes"]):
        if node.op not in OPERATORS or not node.outputs or not known.issuperset(node.reads()):
            raise ValueError(f"node {node.name!r} ({node.op}) is unknown, makes nothing or reads what nothing makes")
        known.update(node.outputs)
        nodes.append(node)
    results = _texts(header["results"])
    if "" in results or not known.issuperset(results) or len(results) != len(outputs):
        raise ValueError("nothing makes its outputs")
    captures = header.get("captures", 0)
    if type(captures) is not int or not 0 <= captures <= len(inputs):
        raise ValueError(f"a graph of {len(inputs)} inputs takes {captures} from outside")
    return Graph(
        nodes,
        constants,
        inputs,
        outputs,
        results,
        header["opset"],
        captures=captures,
        states=_states(header, arrays, inputs, results),
    )


def _states(header, arrays, inputs, results):
    """What the last inputs hold at first that a network keeps."""
    states = [_decoded(a, arrays) for a in header.get("states", [])]
    kept = inputs[len(inputs) - len(states) :]
    if len(states) > min(len(inputs), len(results)) or any(
        not isinstance(a, np.ndarray) or (a.shape, a.dtype) != (v.shape, v.dtype)
        for a, v in zip(states, kept, strict=True)
    ):
        raise ValueError("its variables do not fit its inputs")
    return states


def _metadata(header):
    given = header.get("metadata", {})
    kinds = {f.name: int if f.name == "version" else dict if f.name == "custom" else str for f in _SAID}
    if any(type(value) is not kinds[name] for name, value in given.items()):
        raise ValueError(f"it says of itself {given!r}")
    _texts([*given.get("custom", {}).values()])
    return Metadata(**given)


def _precision(header):
    precision = header.get("precision", "float32")
    if precision not in PRECISIONS:
        raise ValueError(f"its precision is {precision!r}")
    return precision


def _source(header, graph, arrays, options):
    """(the graph as it was read, whose defaults those of `graph` are, the options of its passes)."""
    source, (fold, fuse, disabled) = _graph(header["source"], arrays), header["options"]
    source.defaults = graph.defaults = [_value(v) for v in header["source"]["defaults"]]
    if not source.constants.keys() >= {v.name for v in source.defaults}:
        raise ValueError("an input has no default")
    return source, options._replace(fold=bool(fold), fuse=bool(fuse), disabled=frozenset(_texts(disabled)))


def _report(header):
    kinds: dict[str, Callable] = {"Fusion": Fusion, "Refusal": Refusal, "Quantized": _quantized}
    return [kinds[kind](*(tuple(v) if isinstance(v, list) else v for v in fields)) for kind, fields in header["report"]]


def _quantized(calibration, layers, outputs, ns, float_ns, other_ns=None):
    return Quantized(
        calibration,
        tuple(QuantizedLayer(*row) for row in layers),
        tuple(QuantizedOutput(*row) for row in outputs),
        ns,
        float_ns,
        other_ns,
    )
