"""What the reading of an operator may use: the graph as it grows, new names, constants and nodes."""
import numpy as np

from .ir import Graph, Node, unique


class Reader:
    """`upgraded`: whether ONNX brought the model up from an older opset. `taken` are the names of values, `names` those of nodes."""

    def __init__(self, graph: Graph, upgraded, taken):
        self.graph, self.opset, self.upgraded, self.taken = graph, graph.opset, upgraded, taken
        self.names: dict[str, int] = {}
        self.makers: dict[str, Node] = {}

    def fresh(self, name):
        return unique(name, self.taken)

    def constant(self, name, data, dtype=np.int64):
        name = self.fresh(name)
        self.graph.constants[name] = np.asarray(data, dtype)
        return name

    def add(self, node: Node):
        self.graph.nodes.append(node)
        self.makers |= dict.fromkeys(node.outputs, node)

    def known(self, node, i):
        """The i-th input of the node where constants alone make it, else None."""
        return self._computed(node.input(i), 8) if node.input(i) else None

    def _computed(self, value, depth):
        """A value that at most `depth` nodes in a row compute from constants."""
        if value in self.graph.constants:
            return self.graph.constants[value]
        from .shapes import infer_from
        maker = self.makers.get(value)
        if not depth or maker is None or not maker.reads() or any(isinstance(a, Graph) for a in maker.attrs.values()):
            return None
        inputs = [self._computed(v, depth - 1) if v else None for v in maker.inputs]
        if any(a is None for v, a in zip(maker.inputs, inputs, strict=True) if v):
            return None
        alone = Graph([maker], dict(zip(maker.inputs, inputs, strict=True)), [], [], [], self.opset)
        found = infer_from(alone, {}, strict=False).get(value)
        return found and found.data

    def as_input(self, node, attr, i):
        """Turns an attribute of an old opset into the constant input of a new one."""
        if attr in node.attrs:
            node.inputs += [""] * (i + 1 - len(node.inputs))
            node.inputs[i] = self.constant(f"{node.name}.{attr}", node.attrs.pop(attr))
