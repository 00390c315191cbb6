"""Which nodes of a graph of torch its results need: those that only assertions use are left out."""

from .fx_values import leaves
from .in_place import is_change


def live_nodes(torch, graph):
    """The nodes that results need, those that change a tensor, and those that say what a symbol in a shape of these
    is."""
    live, symbols = set(), set()
    for node in reversed(graph.nodes):
        made = list(leaves([node.meta.get("val")]))
        asked = node in live or node.op == "output" or is_change(node) or _has_graphs(torch, node)
        if asked or any(_is_symbol(torch, x) and x.node.expr in symbols for x in made):
            live.update([node, *node.all_input_nodes])
            symbols.update(*(n.node.expr.free_symbols for x in made for n in _sizes(torch, x)))
    return live


def _has_graphs(torch, node):
    return isinstance(node.target, torch._ops.HigherOrderOperator)


def _is_symbol(torch, value):
    return isinstance(value, (torch.SymInt, torch.SymFloat)) and value.node.expr.is_Symbol


def _sizes(torch, value):
    """The sizes in the shape of a tensor that are open, or a size itself."""
    found = value.shape if isinstance(value, torch.Tensor) else [value]
    return [n for n in found if isinstance(n, (torch.SymInt, torch.SymFloat))]
