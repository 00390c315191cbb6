"""Networks of float16 and bfloat16: these are ways to store. What is computed is float32 and goes through the same
kernels. A float16 input, or a table of which rows are gathered, stays float16 while its elements are only moved, as
those of a decoder's caches; it is widened before something computes with it. Other values are rounded once, where they
join such a value or leave the network. NumPy has no bfloat16: such inputs and outputs are float32.

A cast to one of them whose value is cast back, compared or counted, and not computed with in it, is meant to round: it
becomes ``Narrow``, which gives the rounded values as float32."""

import numpy as np

from .dtypes import BY_ONNX, to_onnx
from .graph import Node, unique
from .subgraph import graphs_of

FLOAT16, _FLOAT32 = to_onnx(np.float16), to_onnx(np.float32)
_KEYS = "to", "dtype", "output_dtype", "softmax_precision"  # attributes that name a type of elements
# what depends on values in jumps, and what has the same values before and after
_JUMPS = {"Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "ArgMax", "ArgMin", "TopK", "IsInf", "IsNaN"}
_JUMPS |= {"Floor", "Ceil", "Round", "Sign", "Mod", "NonZero", "Unique", "BitCast", "QuantizeLinear"}
_KEEPS = {"Abs", "Neg", "Max", "Min", "Clip", "Where", "ReduceMax", "ReduceMin", "MaxPool", "GlobalMaxPool", "Identity"}
_KEEPS |= {"Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Slice", "Split", "Concat", "Gather", "Expand"}
_KEEPS |= {"GatherElements", "GatherND", "Pad", "Tile", "DepthToSpace", "SpaceToDepth", "Dropout"}
# Operators that move float16 as it is, and the inputs that they move; None: all.
_MOVES: dict[str, tuple[int, ...] | None] = dict.fromkeys(
    ("Expand", "Flatten", "Gather", "GatherElements", "GatherND", "Identity", "Reshape", "Slice", "Split"), (0,)
)
_MOVES |= dict.fromkeys(("Squeeze", "Tile", "Transpose", "Unsqueeze"), (0,))
_MOVES |= {"Concat": None, "Where": (1, 2), "ScatterElements": (0, 2), "ScatterND": (0, 2)}
_MOVES |= {"com.microsoft.GroupQueryAttention": (3, 4)}
_ROUNDED = {float(np.float16(c)): c for c in (2**0.5, 0.5**0.5, (2 / np.pi) ** 0.5, 0.044715, 1.702, 1 / 6, 1 / 3)}


def exact_float16(a):
    """float32 values as float16 where none is lost, else None."""
    with np.errstate(over="ignore", invalid="ignore"):
        for part in a.ravel("K")[:256], a:  # most arrays tell at once
            narrow = part.astype(np.float16)
            if not np.array_equal(
                narrow.astype(np.float32).view(np.uint32), np.ascontiguousarray(part).view(np.uint32)
            ):
                return None
    return narrow


def as_float16_weights(*weights):
    """Weights of a layer in float16 where none of them loses anything: a product of few rows is bound by reading
    them."""
    exact = [exact_float16(w) for w in weights]
    return weights if any(w is None for w in exact) else exact


def upcast(graph):
    """Turns float16 into float32, in place; returns the graph. The network's inputs and outputs keep their types, and
    so does what is only moved."""
    tables = _tables(graph)
    _upcast_inside(graph)
    graph.constants |= tables
    return keep_moved(graph)


def keep_moved(graph):
    """Lets what only moves elements of float16 move those of 16 bits, in place, in a graph whose other values are
    float32; returns the graph."""
    stored = [v.name for v in graph.inputs if v.dtype == np.float16]
    stored += [v for v, a in graph.constants.items() if a.dtype == np.float16]
    if stored or any(v.dtype == np.float16 for v in graph.outputs):
        _Stored(graph, stored).run()
    return graph


def _tables(graph):
    """The constants of float16 of which nodes only gather parts."""
    tables = {v: a for v, a in graph.constants.items() if a.dtype == np.float16}
    for node in graph.nodes:
        for i, v in enumerate(node.reads()):
            if v in tables and (i or node.op != "Gather"):
                del tables[v]
    return {v: a for v, a in tables.items() if v not in graph.results}


class _Stored:
    """Which values of a graph stay float16, made in one walk over its nodes: a move of such a value gives one. What
    else reads it reads a Cast."""

    def __init__(self, graph, stored):
        self._graph, self._values, self._names = graph, graph.value_names(), graph.node_names()
        self._stored = {v: v for v in stored}  # {value of the graph as it was: the same in float16}
        self._wide, self._rounded = {}, {}  # {value: its Cast to float32}, {value: its Cast to float16}
        self._nodes = []

    def run(self):
        graph = self._graph
        for node in graph.nodes:
            if node.op == "Cast" and node.attrs["to"] in (FLOAT16, _FLOAT32) and node.inputs[0] in self._stored:
                self._stored[node.output] = self._stored[node.inputs[0]]  # widened where something computes with it
                continue
            if node.op == "Cast" and node.attrs["to"] == FLOAT16:
                self._stored[node.output] = node.output
            if node.op in ("Shape", "Size"):
                node.inputs = [self._stored.get(v, v) for v in node.inputs]
            elif moved := self._moved(node):
                self._move(node, moved)
            else:
                node.inputs = [self._widened(v) for v in node.inputs]
                node.residual = self._widened(node.residual)
            self._nodes.append(node)
        graph.results = [
            (self._narrowed if value.dtype == np.float16 else self._widened)(v)
            for v, value in zip(graph.results, graph.outputs, strict=True)
        ]
        graph.nodes = self._nodes

    def _moved(self, node):
        """The numbers of the inputs that a node moves as they are stored, if it does."""
        places = _MOVES.get(node.op, ())
        places = range(len(node.inputs)) if places is None else [i for i in places if node.input(i)]
        computes = node.activation is not None or node.residual or node.attrs.get("reduction", "none") != "none"
        return [] if computes or not any(node.inputs[i] in self._stored for i in places) else places

    def _move(self, node, moved):
        node.inputs = [self._narrowed(v) if i in moved else self._widened(v) for i, v in enumerate(node.inputs)]
        first = 1 if node.op == "com.microsoft.GroupQueryAttention" else 0
        for i, v in enumerate(node.outputs):
            if v and i >= first:
                self._stored[v] = node.outputs[i] = unique(f"{v}.float16", self._values)

    def _widened(self, v):
        if v not in self._stored:
            return v
        if v not in self._wide:
            self._wide[v] = unique(f"{v}.float32", self._values)
            self._cast(self._stored[v], self._wide[v], np.float32)
        return self._wide[v]

    def _narrowed(self, v):
        if v in self._stored:
            return self._stored[v]
        if v not in self._rounded:
            self._rounded[v] = unique(f"{v}.float16", self._values)
            self._cast(v, self._rounded[v], np.float16)
        return self._rounded[v]

    def _cast(self, v, result, dtype):
        self._nodes.append(Node("Cast", unique(f"{v}.cast", self._names), [v], [result], {"to": to_onnx(dtype)}))


def _upcast_inside(graph):
    """The same of a graph and those inside its nodes, whose inputs and outputs are widened too."""
    shown = _keep_roundings(graph)
    graph.constants |= {
        v: a.astype(np.float32) if v in shown else _upcast_constant(a)
        for v, a in graph.constants.items()
        if a.dtype == np.float16
    }
    for node in graph.nodes:
        for key, a in node.attrs.items():
            if isinstance(a, np.ndarray) and a.dtype == np.float16:
                node.attrs[key] = a.astype(np.float32)
            elif key in _KEYS and a in BY_ONNX and BY_ONNX[a].stored:
                node.attrs[key] = to_onnx(np.float32)
        for inner in graphs_of(node).values():
            _upcast_inside(inner)
            for values in (inner.inputs, inner.outputs):
                values[:] = [_float32(v) for v in values]


def _keep_roundings(graph):
    """Makes casts to 16 bits that are meant to round ``Narrow``; returns the values whose bits show."""
    kinds, targets = _kinds_of_values(graph)
    shown = _shown_values(graph, kinds, targets)
    for node, kind in targets.items():
        if kind and kinds.get(node.inputs[0]) != kind and node.output in shown:
            node.op, node.inputs, node.attrs = "Narrow", node.inputs[:1], {"type": kind}
    return shown


def _kinds_of_values(graph):
    """({value: its type of 16 bits, or None}, {cast: its target of 16 bits, or None})"""
    kinds = {v: FLOAT16 for v, a in graph.constants.items() if a.dtype == np.float16}
    kinds |= {v.name: FLOAT16 for v in graph.inputs if v.dtype == np.float16}
    targets = {}
    for node in graph.nodes:
        if node.op in ("Cast", "CastLike"):
            kind = node.attrs["to"] if node.op == "Cast" else kinds.get(node.inputs[1])
            kind = targets[node] = kind if kind in BY_ONNX and BY_ONNX[kind].stored else None
        else:
            kind = None if node.op in _JUMPS else next((kinds[v] for v in node.inputs if kinds.get(v)), None)
        kinds |= dict.fromkeys(node.outputs, kind)
    return kinds, targets


def _shown_values(graph, kinds, targets):
    """Values whose bits show: what is cast back, compared, counted or made whole, or only moved on the way there."""
    shown = set()
    for node in reversed(graph.nodes):
        clips = node.op == "Activation" and (node.activation == "relu" or node.activation[0] == "clip")
        keeps = node in targets or node.op in _KEEPS or clips
        if node in targets and targets[node] != kinds.get(node.inputs[0]):
            shown.add(node.inputs[0])
        elif node.op in _JUMPS or graphs_of(node) or (keeps and shown.intersection(node.outputs)):
            shown.update(node.inputs)
    return shown


def _upcast_constant(a):
    """A constant as float32: a single number that activations consist of as it was before it was rounded."""
    wide = a.astype(np.float32)
    return np.full(a.shape, _ROUNDED.get(wide.item(), wide.item()), np.float32) if a.size == 1 else wide


def _float32(value):
    return type(value)(value.name, value.shape, np.dtype(np.float32)) if value.dtype == np.float16 else value
