"""What the reading of an operator may use: the graph as it grows, new names, constants and nodes."""

import numpy as np

from .graph import Graph, Node, unique


class GraphBuilder:
    """`upgraded`: whether ONNX brought the model up from an older opset. `taken` are the names of values, `names` those
    of nodes."""

    def __init__(self, graph: Graph, upgraded, taken, infer):
        self.graph, self.opset, self.upgraded, self.taken = graph, graph.opset, upgraded, taken
        self.infer = infer  # shapes.infer_from
        self.names: dict[str, int] = {}
        self.makers: dict[str, Node] = {}
        self.types: dict[str, np.dtype] = {}

    def channel_block(self):
        """The channels of a block of images whose channels are in blocks."""
        raise ValueError("no file of this kind has images in blocks of channels")

    def has_int4(self, value):
        """Whether a value is a constant of 4 bits in the file, which int8 hold here."""
        return False

    def fresh(self, name):
        return unique(name, self.taken)

    def constant(self, name, data, dtype=np.int64):
        name = self.fresh(name)
        self.graph.constants[name] = np.asarray(data, dtype)
        return name

    def dtype(self, value):
        """The type of a value's elements; None where it is not known."""
        constant = self.graph.constants.get(value)
        return self.types.get(value) if constant is None else constant.dtype

    def shape(self, value):
        """The shape of a constant or of an input of the network, with None where an axis is open; None where nothing
        is known."""
        if value in self.graph.constants:
            return self.graph.constants[value].shape
        shape = next((v.shape for v in self.graph.inputs if v.name == value), None)
        return None if shape is None else tuple(n if isinstance(n, int) else None for n in shape)

    def axes(self, value):
        """How many axes a constant or an input of the network has; None where that is not known."""
        shape = GraphBuilder.shape(self, value)  # readers may have another method of that name
        return None if shape is None else len(shape)

    def constant_like(self, node, name, number):
        """A constant of the type that the node's first input has."""
        return self.constant(f"{node.name}.{name}", number, self.dtype(node.inputs[0]) or np.float32)

    def node(self, op, node, *inputs, result=None, outputs=1, **attrs):
        """Adds one of the nodes that a node of the file becomes; returns its result, or all of them."""
        results = [result or self.fresh(f"{node.name}.{op}")] + [
            self.fresh(f"{node.name}.{op}") for _ in range(outputs - 1)
        ]
        self.add(
            Node(op, unique(node.name if result else f"{node.name}.{op}", self.names), list(inputs), results, attrs)
        )
        return results[0] if outputs == 1 else results

    def add(self, node: Node):
        self.graph.nodes.append(node)
        for v in node.outputs:
            self.makers[v] = node

    def known(self, node, i):
        """The i-th input of the node where constants alone make it, else None."""
        return self._computed(node.input(i), 8) if node.input(i) else None

    def _computed(self, value, depth):
        """A value that at most `depth` nodes in a row compute from constants."""
        if value in self.graph.constants:
            return self.graph.constants[value]
        maker = self.makers.get(value)
        if not depth or maker is None or not maker.reads() or any(isinstance(a, Graph) for a in maker.attrs.values()):
            return None
        inputs = [self._computed(v, depth - 1) if v else None for v in maker.inputs]
        if any(a is None for v, a in zip(maker.inputs, inputs, strict=True) if v):
            return None
        constants = {v: a for v, a in zip(maker.inputs, inputs, strict=True) if a is not None}
        alone = Graph([maker], constants, [], [], [], self.opset)
        found = self.infer(alone, {}, strict=False).get(value)
        return found and found.data

    def as_input(self, node, attr, i):
        """Turns an attribute of an old opset into the constant input of a new one."""
        if attr in node.attrs:
            node.inputs += [""] * (i + 1 - len(node.inputs))
            node.inputs[i] = self.constant(f"{node.name}.{attr}", node.attrs.pop(attr))
