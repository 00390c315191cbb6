"""Products of (batch * heads, ...) become products of (batch, heads, ...).

Exporters of many models join the two axes for batched products, and split them for a mask or a result. Where they
stay split, the pass of attention finds its products, and reads queries, keys and values where they are.
"""

from ..ir.graph import Node

_DEPTH = 12  # nodes between a Reshape and what joined the axes
_MOVED = "MatMul", "Softmax", "Mul", "Div", "Add", "Where", "Transpose"


def run(context):
    for node in context.nodes():
        if node.op == "Reshape" and node in context.order and _joined(context, node.output, node.inputs[0]):
            _Apart(context, node).run()


def _joined(context, split, joined):
    """Whether a value of three axes is one of four with the first two joined, in any batch."""
    for shape in context.shape, context.doubled:
        four, three = shape(split), shape(joined)
        if four is None or three is None or len(four) != 4 or three != (four[0] * four[1], *four[2:]):
            return False
    return True


class _Apart:
    """A Reshape that splits batch and heads moves up to where they were joined."""

    def __init__(self, context, reshape):
        self.context, self.reshape, self.removed = context, reshape, []
        self.four = context.shape(reshape.output)

    def run(self):
        context, value, moved, joins = self.context, self.reshape.inputs[0], [], {}
        self._find(value, moved, joins, _DEPTH)
        if not joins or all(node.op != "MatMul" for node in moved):
            return
        self.first = min((join.inputs[0] for join in joins), key=self._place)
        if self._place(self.first) > min(map(context.order.__getitem__, moved)):  # it says batch and heads to them
            return
        split = self._take(value, self.reshape, _DEPTH)
        context.rename(self.reshape.output, split)
        context.remove(self.reshape, *self.removed)
        unread = [n for n in joins if not context.consumers.get(n.output) and n.output not in context.graph.results]
        context.remove(*unread)

    def _find(self, value, moved, joins, depth):
        """Notes the nodes on the way up to where the axes were joined, and the Reshapes that did so."""
        node = self.context.producers.get(value)
        if depth and self._joins(node):
            joins[node] = True
        elif depth and self._moves(node):
            moved.append(node)
            for v in filter(self._has_both, node.inputs):
                self._find(v, moved, joins, depth - 1)

    def _place(self, value):
        """Where the node that makes a value is among the others."""
        return self.context.order.get(self.context.producers.get(value), -1)

    def _has_both(self, value):
        """Whether the first of a value's three axes is that of batch and heads, in any batch."""
        return self._firsts(value) == self._firsts(self.reshape.inputs[0])

    def _firsts(self, value):
        """The first of a value's three axes, and where open sizes are twice as large; None for what has no three."""
        shapes = self.context.shape(value), self.context.doubled(value)
        return None if any(s is None or len(s) != 3 for s in shapes) else [s[0] for s in shapes]

    def _broadcasts(self, value):
        """Whether a value is the same for all batches and heads, whose axes are none of its own or 1."""
        shape = self.context.shape(value)
        return shape is not None and (len(shape) < 3 or self._firsts(value) == [1, 1])

    def _joins(self, node):
        """Whether a Reshape joins the same batch and heads."""
        if node is None or node.op != "Reshape" or not _joined(self.context, node.inputs[0], node.output):
            return False
        split = self.context.shape(node.inputs[0])
        return split[:2] == self.four[:2] and self._alike(node.inputs[0])

    def _alike(self, value):
        """Whether batch and heads are also alike where open sizes are twice as large."""
        return self.context.doubled(value)[:2] == self.context.doubled(self.reshape.output)[:2]

    def _moves(self, node):
        """Whether a node may have four axes instead: nothing else reads its result, but its shape."""
        if node is None or node.op not in _MOVED or node.activation is not None or node.residual:
            return False
        shape = self.context.shape(node.output)
        if shape is None or len(shape) != 3 or not self._has_one_reader(node.output):
            return False
        if node.op == "MatMul":
            return all(map(self._has_both, node.inputs))
        if node.op == "Softmax":
            return node.attrs.get("axis", -1) % 3 > 0
        if node.op == "Transpose":
            return node.attrs.get("perm") == [0, 2, 1]
        return all(self._has_both(v) or self._broadcasts(v) for v in node.inputs)

    def _has_one_reader(self, value):
        """Whether one node alone reads a value, beside those that read its shape."""
        readers = self.context.consumers.get(value, ())
        others = [n for n in readers if n.op != "Shape" or n.attrs.get("start") or n.attrs.get("end") is not None]
        return value not in self.context.graph.results and len(others) == 1

    def _take(self, value, reader, depth):
        """The name of a value with batch and heads split; `reader` is a node that reads it."""
        node = self.context.producers.get(value)
        if depth and self._joins(node):
            return node.inputs[0]
        if not depth or not self._moves(node):
            return self._reshaped(value, reader)
        inputs = [self._take(v, node, depth - 1) if self._has_both(v) else v for v in node.inputs]
        attrs = dict(node.attrs)
        if node.op == "Transpose":
            attrs["perm"] = [0, 1, 3, 2]
        elif node.op == "Softmax":
            attrs["axis"] = -1 if attrs.get("axis", -1) % 3 == 2 else -2
        self.removed.append(node)
        moved = Node(node.op, node.name, inputs, [], attrs, fused_from=node.fused_from)
        made = self._added(moved, node, value)
        for shape in [n for n in self.context.consumers.get(value, ()) if n.op == "Shape"]:
            self._joined_shape(shape, made, node)
        return made

    def _joined_shape(self, shape, split, after):
        """Lets a node make the shape of three axes of what has four now."""
        both = [self._part(split, after, i, i + 1) for i in range(2)]
        joined = self.context.fresh(f"{split}.joined")
        self.context.add(Node("Mul", joined, both, [joined]), after)
        parts = [joined, self._part(split, after, 2, 4)]
        self.context.remove(shape)
        self.context.add(Node("Concat", shape.name, parts, shape.outputs, {"axis": 0}), after)

    def _part(self, value, after, start, end):
        """A part of the shape of a value."""
        name = self.context.fresh(f"{value}.shape")
        self.context.add(Node("Shape", name, [value], [name], {"start": start, "end": end}), after)
        return name

    def _added(self, node, after, value):
        """The result of a new node: `value` with four axes."""
        context, known = self.context, self.context.known[value]
        node.outputs = [context.fresh(f"{value}.split")]
        context.add(node, after)
        context.known[node.output] = known._replace(shape=(*self.four[:2], *known.shape[1:]), data=None)
        return node.output

    def _reshaped(self, value, reader):
        """A value whose axes were joined otherwise, as (batch, heads, ...)."""
        context, parts = self.context, [self._part(self.first, reader, 0, 2), self._part(value, reader, 1, 3)]
        shape = context.fresh(f"{value}.shape")
        context.add(Node("Concat", shape, parts, [shape], {"axis": 0}), reader)
        return self._added(Node("Reshape", context.fresh(f"{value}.reshape"), [value, shape], []), reader, value)
