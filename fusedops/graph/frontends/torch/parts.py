"""A graph of torch's in parts: the largest that fusedops has readers for as networks, the rest as it was."""

import copy
import operator
from math import prod

import numpy as np
import torch
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import create_op_support
from torch.utils._sympy.interp import sympy_interp
from torch.utils._sympy.reference import PythonReferenceAnalysis

from ...._internal.progress import quiet
from ...ir.dtypes import BY_NAME
from .compile_report import EagerNode, TorchPart
from .fx_values import as_array
from .part_reader import PartReader, Probe, hint

_PRODUCTS = {
    *("convolution", "addmm", "mm", "bmm", "baddbmm", "linear", "scaled_dot_product_attention"),
    *("_scaled_dot_product_flash_attention_for_cpu", "lstm", "gru", "rnn_tanh", "rnn_relu"),
}
# One of these is worth a call of its own, whatever is around it.
_HEAVY = {
    *("_softmax", "_safe_softmax", "_log_softmax"),
    *("native_layer_norm", "native_group_norm", "_native_batch_norm_legit_no_training", "_fused_rms_norm"),
    *("max_pool2d_with_indices", "avg_pool2d", "_adaptive_avg_pool2d", "upsample_bilinear2d", "grid_sampler_2d"),
} | _PRODUCTS
_MANY, _LARGE = 3, 1 << 16  # so many other operators together are, on tensors of so many elements
_TORCH_TYPES = {np.dtype(n): t for n in BY_NAME if n != "bfloat16" and (t := getattr(torch, n, None)) is not None}


class Part:
    """A part of a graph as a network, called with tensors and numbers; its results are tensors of torch's memory. Those
    of bfloat16, which NumPy does not have, are float32 in the network."""

    def __init__(self, name, reader, model):
        self.__name__ = name  # in the code that torch makes
        self._run = model._session.run_into
        self._takes = [_moved(reader.orders[v.name]) for v in reader.graph.inputs]
        self._gives = [_moved(np.argsort(reader.orders[v.name]).tolist()) for v in reader.graph.outputs]
        self._narrow = [v.stored == "bfloat16" for v in reader.graph.outputs]
        self._as_they_lie = not any(self._gives) and not any(self._narrow)

    def __call__(self, *args):
        results = []

        def new(shape, dtype):
            results.append(torch.empty(shape, dtype=_TORCH_TYPES[dtype]))
            return results[-1].numpy()

        self._run(tuple([_array(x, order) for x, order in zip(args, self._takes, strict=True)]), new)
        if not self._as_they_lie:
            results = [y.bfloat16() if narrow else y for y, narrow in zip(results, self._narrow, strict=True)]
            results = [y.permute(order) if order else y for y, order in zip(results, self._gives, strict=True)]
        return results[0] if len(results) == 1 else tuple(results)


def _moved(order):
    """An order of axes; None where they stay as they are."""
    return None if list(order) == sorted(order) else list(order)


def _array(x, order):
    if not isinstance(x, torch.Tensor):
        return np.array(x, np.int64)
    return as_array(x if order is None else x.permute(order))


def split(graph_module, constants, build, tell=quiet):
    """(a copy of the graph with its parts as calls of networks, those parts, the nodes that PyTorch runs).

    `constants` are the tensors of placeholders that stay as they are, by name; `build` makes a Model of a Graph; `tell`
    is told what part is done."""
    module = copy.deepcopy(graph_module)
    module.graph.eliminate_dead_code()
    _count_by_inputs(module.graph)
    views = _part_views(module.graph)
    by_node = {n: constants[n.name] for n in module.graph.nodes if n.op == "placeholder" and n.name in constants}
    probe = Probe(module, by_node)
    taken = {n for n in module.graph.nodes if n.op == "call_function" and _runs_here(n, probe)} - views
    partitioner = CapabilityBasedPartitioner(
        module, create_op_support(lambda _, n: n in taken), allows_single_node_partition=True
    )
    proposed = partitioner.propose_partitions()
    kept = [p for p in proposed if _is_worth_a_call(p.nodes)]
    small = {n for p in proposed if p not in kept for n in p.nodes}
    fused = partitioner.fuse_partitions(kept, prefix="fusedops_")
    parts, refused = _built(fused, {n.name: v for n, v in probe.values.items()}, build, tell)
    fused.graph.eliminate_dead_code()
    for node in fused.graph.find_nodes(op="placeholder"):
        if not node.users:
            fused.graph.erase_node(node)
    fused.delete_all_unused_submodules()
    fused.recompile()
    return fused, parts, [*_eager(probe.reasons, small), *refused]


def _runs_here(node, probe):
    """Whether a node is read, and is not known before a call."""
    value = probe.values.get(node)
    if node in probe.reasons or isinstance(value, torch.Tensor):
        return False
    return not (isinstance(value, list) and value and all(isinstance(v, torch.Tensor) for v in value))


def name_of(node):
    schema = getattr(node.target, "_schema", None)
    return getattr(node.target, "__name__", str(node.target)) if schema is None else schema.name.split("::")[-1]


def _is_worth_a_call(nodes):
    if any(name_of(n) in _HEAVY for n in nodes):
        return True
    large = [n for n in nodes if not _is_view(n) and n.target is not operator.getitem and _elements(n) >= _LARGE]
    return len(large) >= _MANY


def _is_part_of(node):
    """Whether a node's result lies in the memory of its first argument."""
    return _is_view(node.args[0]) if node.target is operator.getitem else _is_view(node)


def _elements(node):
    made = node.meta["val"]
    sizes = [hint(n) for n in made.shape] if isinstance(made, torch.Tensor) else [0]
    return 0 if None in sizes else prod(sizes)


def _is_view(node):
    """Whether a node gives its first argument's memory back."""
    schema = getattr(node.target, "_schema", None)
    return schema is not None and not schema.is_mutable and any(a.alias_info is not None for a in schema.arguments)


# ---- what PyTorch does better


def _count_by_inputs(graph):
    """Sizes of tensors inside a graph from the numbers that come in: to ask such a tensor would end a part."""
    symbols, tracer = _numbers(graph), torch.fx.proxy.GraphAppendingTracer(graph)
    given = {e: torch.fx.Proxy(n, tracer) for e, n in symbols.items()}
    for node in list(graph.nodes):
        made = node.meta.get("val")
        asks = isinstance(made, torch.SymInt) and hasattr(node.target, "_schema") and node.args[0].op != "placeholder"
        if asks and made.node.expr.free_symbols <= symbols.keys():
            with graph.inserting_before(node):
                number = sympy_interp(PythonReferenceAnalysis, given, made.node.expr)
            if isinstance(number, torch.fx.Proxy):
                number = number.node
                number.meta["val"] = made
            node.replace_all_uses_with(number)
            graph.erase_node(node)


def _numbers(graph):
    """The placeholders that are open sizes, by their symbols."""
    holders = graph.find_nodes(op="placeholder")
    return {n.meta["val"].node.expr: n for n in holders if isinstance(n.meta.get("val"), torch.SymInt)}


def _part_views(graph):
    """Copies of the nodes that make results as views, for PyTorch: that costs nothing, and results share memory as
    they should."""
    output = next(n for n in graph.nodes if n.op == "output")
    copies = {}

    def copied(node):
        if not isinstance(node, torch.fx.Node) or node.op != "call_function" or not _is_part_of(node):
            return node
        if node not in copies:
            source = copied(node.args[0])
            with graph.inserting_before(output):
                copies[node] = graph.create_node(
                    node.op, node.target, (source, *node.args[1:]), node.kwargs, f"{node.name}_view"
                )
            copies[node].meta = copy.copy(node.meta)
        return copies[node]

    output.args = (torch.fx.map_arg(output.args[0], copied),)
    graph.eliminate_dead_code()
    return set(copies.values())


# ---- networks


def _built(fused, values, build, tell):
    """The parts of a graph, and the nodes of those that could not be built, with the reason; calls of modules become
    calls of parts. `values` has what was read, by names: the partitioner makes new nodes."""
    symbols, parts, refused = _numbers(fused.graph), [], []
    calls = list(fused.graph.find_nodes(op="call_module"))
    for done, node in enumerate(calls):
        tell(done / len(calls), f"part {done + 1} of {len(calls)}")
        inner = getattr(fused, node.target)
        nodes = [n for n in inner.graph.nodes if n.op == "call_function" and n.target is not operator.getitem]
        holders = dict(zip([n for n in inner.graph.nodes if n.op == "placeholder"], node.args, strict=True))
        known = {h: v for h, a in holders.items() if isinstance(v := values.get(a.name), torch.Tensor)}
        try:
            reader = PartReader(inner, known)
            given = [holders[t] if isinstance(t, torch.fx.Node) else symbols[t] for t in reader.sources.values()]
            reader.graph.precision = _precision(nodes)
            model = build(reader.graph)
        except ValueError as e:
            refused += [EagerNode(n.name, name_of(n), str(e)) for n in nodes]
            continue
        with fused.graph.inserting_before(node):
            call = fused.graph.call_function(Part(node.target, reader, model), tuple(given))
        call.meta = node.meta
        node.replace_all_uses_with(call)
        fused.graph.erase_node(node)
        parts.append(TorchPart(tuple(map(name_of, nodes)), model))
    return parts, refused


def _precision(nodes):
    """bfloat16 where PyTorch rounds the operands of all products to it."""
    made = [torch.utils._pytree.tree_leaves(n.meta["val"])[0] for n in nodes if name_of(n) in _PRODUCTS]
    return "bfloat16" if {y.dtype for y in made} == {torch.bfloat16} else "float32"


def _eager(reasons, small):
    found = [EagerNode(n.name, name_of(n), reason) for n, reason in reasons.items() if reason]
    return found + [
        EagerNode(n.name, name_of(n), "too little around it is computed here to be worth a call")
        for n in small
        if not _is_view(n) and n.target is not operator.getitem
    ]
