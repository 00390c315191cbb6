"""Control flow of torch (`cond`, `while_loop`, `scan`) as If, Loop and Scan of ONNX: what their functions take besides
carried and scanned values, the graphs inside capture."""

import numpy as np

from ...ir.graph import Graph, Node, Value, unique
from ...operators.registry import READ
from .fx_values import FxSize, FxValue, Unsupported, is_complex, sizes


class _Inside:
    """The reader while it reads a graph inside a node: constants, sizes and nodes are those of that graph."""

    _OWN = "graph", "kept", "symbols", "makers"

    def __init__(self, reader):
        self.reader = reader

    def __enter__(self):
        self.outside = [getattr(self.reader, name) for name in self._OWN]
        self.reader.graph = Graph([], {}, [], [], [], self.reader.opset)
        self.reader.kept, self.reader.symbols, self.reader.makers = {}, {}, {}
        return self.reader.graph

    def __exit__(self, *_):
        for name, value in zip(self._OWN, self.outside, strict=True):
            setattr(self.reader, name, value)


def _inputs(p, module, values, start=0, carried=0):
    """{placeholder: what it is inside} of a function's arguments from the start-th on; what is computed outside, and
    the first `carried` whatever they are, become inputs of the graph."""
    found, holders = {}, [n for n in module.graph.nodes if n.op == "placeholder"]
    for i, (holder, value) in enumerate(zip(holders[start:], values, strict=False)):
        found[holder] = value
        if i < carried or isinstance(value, (FxValue, FxSize)):
            found[holder] = _input(p, holder, value)
    return found


def _input(p, holder, value):
    made = holder.meta.get("val")
    made = value if made is None else made
    name = p.fresh(holder.name)
    if isinstance(value, FxSize):
        p.graph.inputs.append(Value(name, (), np.dtype(np.int64)))
        p.symbols.setdefault(value.number.node.expr, (name, None))
        return FxSize(name, value.number)
    inside = FxValue(name, sizes(made.shape), made.dtype)
    for axis, n in enumerate(inside.shape):
        if not isinstance(n, int):
            p.symbols.setdefault(n.expression, (inside, axis))
    p.graph.inputs.append(Value(name, None, p.numpy_type(made.dtype, "a value inside")))
    return inside


def _outside(values):
    """Returns those of these values that a graph captures."""
    return [v for v in values if isinstance(v, (FxValue, FxSize))]


def _finished(p, graph, results, captures):
    graph.captures = captures
    for v in results:
        dtype = np.int64 if isinstance(v, FxSize) else p.numpy_type(v.dtype, "a result")
        graph.results.append(p.name(v))
        graph.outputs.append(Value("", None, np.dtype(dtype)))
    return graph


def _added(p, op, inputs, made, **attrs):
    """The results of a new node, typed as torch says."""
    name = unique(f"{p.path}.{op}".lstrip("."), p.names)
    outputs = [p.fresh(f"{name}.{i}") for i in range(len(made))]
    READ[op](p, Node(op, name, [p.name(v) for v in inputs], list(outputs), attrs))
    return [p.typed(v, m) for v, m in zip(outputs, made, strict=True)]


def _checked(p, *values):
    if is_complex(p.torch, values) or any(
        v is not None and not hasattr(v, "dtype") and not isinstance(v, FxSize) for v in values
    ):
        raise Unsupported("fusedops takes tensors of real numbers in branches and loops")


def _cond(p, made, predicate, then, other, operands=()):
    _checked(p, *operands)
    if isinstance(predicate, p.torch.Tensor | bool):
        branch = then if bool(predicate) else other
        holders = [n for n in branch.graph.nodes if n.op == "placeholder"]
        return p.run(branch, dict(zip(holders, operands, strict=True)))
    if not isinstance(predicate, FxValue):
        raise Unsupported("fusedops does not have torch.cond by a size")
    captured, branches = _outside(operands), []
    for module in (then, other):
        with _Inside(p) as graph:
            results = p.run(module, _inputs(p, module, operands))
            branches.append(_finished(p, graph, results, len(captured)))
    return _added(p, "If", [predicate, *captured, *captured], made, then_branch=branches[0], else_branch=branches[1])


def _while_loop(p, made, going, body, carried, more=()):
    _checked(p, *carried, *more)
    holders = [n for n in going.graph.nodes if n.op == "placeholder"]
    flag, captured = p.run(going, dict(zip(holders, [*carried, *more], strict=True))), _outside(more)
    with _Inside(p) as graph:
        counter, before = p.fresh("round"), p.fresh("going")
        graph.inputs = [Value(counter, (), np.dtype(np.int64)), Value(before, (), np.dtype(np.bool_))]
        values = _inputs(p, body, [*carried, *more], carried=len(carried))
        others = list(values.values())[len(carried) :]
        results = p.run(body, values)
        again = p.run(going, dict(zip(holders, [*results, *others], strict=True)))
        _finished(p, graph, [_flag(again), *results], len(captured))
    return _added(p, "Loop", [None, _flag(flag), *carried, *captured], made, body=graph)


def _flag(found):
    found = found[0] if isinstance(found, list) else found
    if not hasattr(found, "dtype"):
        raise Unsupported("fusedops does not have torch.while_loop whose condition is not a tensor")
    return found


def _scan(p, made, combine, init, xs, more=()):
    _checked(p, *init, *xs, *more)
    if not xs:
        raise Unsupported("fusedops does not have torch.scan over nothing")
    captured = _outside(more)
    with _Inside(p) as graph:
        results = p.run(combine, _inputs(p, combine, [*init, *xs, *more], carried=len(init) + len(xs)))
        _finished(p, graph, results, len(captured))
    return _added(p, "Scan", [*init, *xs, *captured], made, body=graph, num_scan_inputs=len(xs))


READERS = {"cond": _cond, "while_loop": _while_loop, "scan": _scan}
