"""What the reading of an operator may use: the graph as it grows, new names, constants and nodes."""
import numpy as np

from .ir import Graph, Node, unique


class Reader:
    """`upgraded`: whether ONNX brought the model up from an older opset. `taken` are the names of values, `names` those of nodes."""

    def __init__(self, graph: Graph, upgraded, taken):
        self.graph, self.opset, self.upgraded, self.taken = graph, graph.opset, upgraded, taken
        self.names: dict[str, int] = {}

    def fresh(self, name):
        return unique(name, self.taken)

    def constant(self, name, data, dtype=np.int64):
        name = self.fresh(name)
        self.graph.constants[name] = np.asarray(data, dtype)
        return name

    def add(self, node: Node):
        self.graph.nodes.append(node)

    def as_input(self, node, attr, i):
        """Turns an attribute of an old opset into the constant input of a new one."""
        if attr in node.attrs:
            node.inputs += [""] * (i + 1 - len(node.inputs))
            node.inputs[i] = self.constant(f"{node.name}.{attr}", node.attrs.pop(attr))
