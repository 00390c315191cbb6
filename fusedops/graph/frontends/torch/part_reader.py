"""Readers of parts of torch's compiled graphs: of a part as a network, and of a whole graph to find out which nodes can
be read."""

import operator

import numpy as np
import torch

from ...ir.dtypes import BY_NAME
from ...ir.graph import Value
from .aten import READERS, boxes, random_tensors
from .fx_reader import FxReader
from .fx_values import FxSize, FxValue, Unsupported, as_array

# random numbers are torch's, so that its seeds hold, and what chooses boxes is a call of torchvision's
_READERS = {k: reader for k, reader in READERS.items() if k not in random_tensors.READERS | boxes.READERS}


class PartReader(FxReader):
    """Reads a graph whose placeholders are tensors, constants or sizes: `constants` has the tensors that stay as they
    are, by placeholder. Arrays come and go in the order in which a tensor's elements lie in memory.

    Attributes
    ----------
    sources : dict
        By the name of each input, its placeholder, or the symbol whose number it is.
    orders : dict
        By the name of each input and output, its axes as they lie in memory, () for a number.
    """

    def __init__(self, graph_module, constants):
        self.constants, self.orders, self.sources = constants, {}, {}
        super().__init__(torch, graph_module, _READERS, {}, graph_module)

    def _bind(self, module, names):
        for node in module.graph.nodes:
            if node.op == "placeholder":
                found = node.meta.get("val")
                if node in self.constants:
                    self.values[node] = self._label(node.name, self.constants[node])
                elif isinstance(found, torch.Tensor):
                    self._input(node, found, names)
                else:
                    self.values[node] = found

    def _input(self, node, found, names):
        check_tensor(found)
        order = memory_order(found)
        super()._input(node, found.permute(order), names)
        opened = zip([found.shape[i] for i in order], self.opened[-1], strict=True)
        self.graph.example |= {self.dims[e]: n for size, e in opened if e is not None and (n := hint(size))}
        if order != sorted(order):
            back = [order.index(i) for i in range(found.ndim)]
            self.values[node] = self.typed(self.op("Transpose", self.values[node], perm=back), found)
        name = self.inputs[node].name
        self.orders[name], self.sources[name] = order, node

    def resolved(self, arg):
        """A size of torch's as an int, or as a value that follows from the shapes of the inputs."""
        found = super().resolved(arg)
        if isinstance(arg, torch.fx.Node) and isinstance(found, torch.SymInt):
            size = self.size(found)
            return size if isinstance(size, int) else FxSize(size, found)
        return found

    def _of_expression(self, e):
        """A symbol that no shape has is an input of its own, a number."""
        if e.is_Symbol and e not in self.symbols:
            name = self.fresh(str(e))
            self.graph.inputs.append(Value(name, (), np.dtype(np.int64)))
            self.symbols[e], self.sources[name], self.orders[name] = (name, None), e, ()
        return super()._of_expression(e)

    def _array(self, value, dtype):
        """A constant as NumPy sees torch's memory where it lies in rows: it is not copied."""
        return np.ascontiguousarray(as_array(value)).reshape(value.shape)

    def _finish(self, module):
        results = next(n for n in module.graph.nodes if n.op == "output").args[0]
        for node in results if isinstance(results, (tuple, list)) else [results]:
            self._result(node.meta["val"], self.resolved(node))

    def _result(self, made, value):
        check_tensor(made)
        order = memory_order(made)
        if order != sorted(order):
            made = made.permute(order)
            value = self.op("Transpose", value, perm=order)
        name = f"output_{len(self.graph.outputs)}"
        self.orders[name] = order
        self.graph.results.append(self.name(value))
        self.graph.outputs.append(self.typed_value(name, made.shape, made.dtype, "a result"))


class Probe(PartReader):
    """Reads all of a graph that can be read: `reasons` has the other nodes, and says why not, or nothing of what only
    counts or checks sizes. The results of such nodes are as given."""

    def __init__(self, graph_module, constants):
        self.reasons = {}
        super().__init__(graph_module, constants)

    def _input(self, node, found, names):
        try:
            super()._input(node, found, names)
        except ValueError:  # of a type that its readers refuse too
            self.values[node] = FxValue(self.fresh(node.name), (), found.dtype)

    def _call(self, node):
        made = node.meta.get("val")
        if made is None or isinstance(made, (torch.SymInt, torch.SymBool, int, float, bool)):
            self.reasons[node], self.values[node] = "", made
            return
        try:
            _check_types(node)
            super()._call(node)
            _check_results(self.values[node], node)
        except ValueError as e:
            self.reasons[node] = next(iter(str(e).strip().splitlines()), type(e).__name__)
            self.values[node] = self._given(node.name, made)

    def _given(self, name, made):
        """The result of a node that is not read, as an input."""
        if isinstance(made, (tuple, list)):
            return [self._given(name, m) for m in made]
        if not isinstance(made, torch.Tensor):
            return made
        name = self.fresh(name)
        known = str(made.dtype).removeprefix("torch.") in BY_NAME
        dtype = self.numpy_type(made.dtype, name) if known else np.dtype(np.float32)
        self.graph.inputs.append(Value(name, self._named(made.shape), dtype))
        return self.typed(name, made)

    def _finish(self, module):
        pass


def check_tensor(tensor):
    """Raises Unsupported where NumPy cannot see a tensor's memory."""
    name = str(tensor.dtype).removeprefix("torch.")
    if name not in BY_NAME:
        raise Unsupported(f"NumPy has no {name}")
    if tensor.device.type != "cpu" or tensor.layout != torch.strided:
        raise Unsupported(f"NumPy cannot see a tensor that is {tensor.layout} on {tensor.device.type}")


def _check_types(node):
    """Raises Unsupported where a node takes or gives tensors that NumPy does not have, or numbers that Python sees."""
    for each in torch.utils._pytree.tree_leaves([n.meta.get("val") for n in (node, *node.all_input_nodes)]):
        if isinstance(each, torch.Tensor):
            check_tensor(each)
        elif isinstance(each, (torch.SymFloat, torch.SymBool)):
            raise Unsupported("fusedops does not take floats that are computed")


def _check_results(value, node):
    """Raises Unsupported where a result is read that its reader does not make, as the log of a sum of attention."""
    if isinstance(value, list):
        read = [u.args[1] for u in node.users if u.target is operator.getitem]
        if any(i >= len(value) or value[i] is None for i in read):
            raise Unsupported(f"fusedops does not have all results of {node.target}")


def memory_order(tensor):
    """The axes of a tensor, those first whose elements lie farthest apart; as they are where strides do not say."""
    sizes, strides = [hint(n) for n in tensor.shape], [hint(s) for s in tensor.stride()]
    order = list(range(tensor.ndim))
    if None in sizes or None in strides:
        return order
    matter = [s for n, s in zip(sizes, strides, strict=True) if n != 1]
    if 0 in matter or matter == sorted(matter, reverse=True):
        return order
    return sorted(order, key=lambda i: -strides[i])


def hint(n):
    """A size; of an open one the example's, None where none is known. To ask so adds no guard."""
    return n if isinstance(n, int) else n.node.hint
