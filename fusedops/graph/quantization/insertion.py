"""A network's graph with pairs of QuantizeLinear and DequantizeLinear where values are int8, and int8 weights after a
DequantizeLinear: what files of quantized networks have, so that the same passes fuse it."""

from dataclasses import replace

import numpy as np

from ...quantization import Quantization, quantize, symmetric
from ..ir.graph import Node, unique


def spelled(node, fresh, bias=""):
    """A node without residual and activation, and nodes for these after it; `bias`: a value to add first."""
    attrs = {k: a for k, a in node.attrs.items() if k != "block"}
    nodes = [replace(node, attrs=attrs, residual="", activation=None, fused_from=[], outputs=list(node.outputs))]
    after = [("Add", [v], None) for v in (bias, node.residual) if v]
    if node.activation is not None:
        after.append(("Activation", [], node.activation))
    for op, addend, activation in after:
        before = nodes[-1].outputs[0] = fresh(f"{node.output}.before")
        name = fresh(f"{node.name}.{op}")
        nodes.append(Node(op, name, [before, *addend], [node.output], activation=activation))
    return nodes


class Insertion:
    """Makes the graph. `int8`: the nodes in int8; `values`: the names of those that are int8; `quantizations` of
    each value that a layer reads or that is int8; `biases` of the layers."""

    def __init__(self, graph, int8, values, quantizations, biases):
        self.source, self.graph = graph, graph.copy()
        self.int8, self.values, self.quantizations, self.biases = int8, values, quantizations, biases
        self.names = graph.value_names() | graph.node_names()
        self.read = {}  # the name of the value after a pair

    def made(self):
        self.graph.nodes = []
        for v in self.graph.inputs:
            if v.name in self.values:
                self._pair(v.name)
        for node in self.source.nodes:
            if node in self.int8 and node.op in ("Conv", "Linear"):
                self._layer(node)
            else:
                self.graph.nodes += spelled(self._reading(node, node.inputs), self._fresh)
            for v in filter(self.values.__contains__, node.outputs):
                self._pair(v)
        return self.graph

    def _fresh(self, name):
        return unique(name, self.names)

    def _constant(self, name, array):
        name = self._fresh(name)
        self.graph.constants[name] = np.asarray(array)
        return name

    def _reading(self, node, inputs):
        residual = self.read.get(node.residual, node.residual)
        return replace(node, inputs=[self.read.get(v, v) for v in inputs], residual=residual)

    def _pair(self, value):
        """A value as int8, and these as what others read."""
        q = self.quantizations[value]
        ends = [
            self._constant(f"{value}.scale", np.float32(q.scale)),
            self._constant(f"{value}.zero_point", np.uint8(q.zero_point)),
        ]
        self.read[value] = self._linear("DequantizeLinear", self._linear("QuantizeLinear", value, ends), ends)

    def _linear(self, op, value, ends, **attrs):
        result = self._fresh(f"{value}.{'bytes' if op == 'QuantizeLinear' else 'real'}")
        self.graph.nodes.append(Node(op, self._fresh(f"{value}.{op}"), [value, *ends], [result], attrs))
        return result

    def _layer(self, node):
        """A layer that reads int8 and int8 weights; a Linear as files have it, a MatMul and the addition of a bias."""
        (x, name), rows = node.inputs[:2], node.op == "Linear"
        if x not in self.read:
            self._pair(x)
        w, scale = quantized_weights(self.source.constants[name])
        ends = [self._constant(f"{name}.scale", scale), self._constant(f"{name}.zero_point", np.zeros(len(w), np.int8))]
        weights = self._constant(f"{name}.int8", np.ascontiguousarray(w.T) if rows else w)
        weights = self._linear("DequantizeLinear", weights, ends, axis=int(rows))
        bias = self._constant(f"{node.name}.bias", self.biases[node.name])
        reading = self._reading(node, [x, weights] if rows else [x, weights, bias])
        if rows:
            reading = replace(reading, op="MatMul", attrs={})
        self.graph.nodes += spelled(reading, self._fresh, bias if rows else "")


def quantized_weights(w):
    """(int8 weights, the scale of each output channel)."""
    scale = symmetric(w).scale
    return quantize(np.ascontiguousarray(w), Quantization(scale, 0), np.int8), scale
