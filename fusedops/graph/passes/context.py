"""What passes share: the graph that they change, what is known of its values, and their report."""

from functools import cached_property

from ..inference.shape_inference import infer
from ..ir.explanation import Fusion, Refusal, operator_of
from ..ir.graph import unique
from ..steps.caches import caches_of

_COMMON = 192, 64, 32, 16  # sizes that all open dimensions may have in an example


class Context:
    """What passes share: the graph, the shapes of its values for a batch of one as far as they are known, and the
    report. Passes change nodes by the methods here, which keep `producers` and `consumers` of values and the `order`
    of nodes; `moved`: it is no longer that of the list of nodes."""

    def __init__(self, graph, known, optimize, packed):
        self.graph, self.report, self.kind = graph, [], ""
        self.optimize = optimize  # the same passes on a graph inside a node; returns their report
        self.packed = packed  # weights in blocks as kernels take them, by what they were; graphs inside share them
        self.sizes, self.known = _example(graph, known)
        self.producers, self.consumers = graph.producers(), graph.consumers()
        self._number(graph.nodes)
        self.names = graph.value_names()

    def run(self, each):
        if each.ops is not None and each.ops.isdisjoint([node.op for node in self.graph.nodes]):
            return
        self.kind = each.name
        each.run(self)
        if self.moved:
            self._number(sorted(self.order, key=self.order.__getitem__))

    def _number(self, nodes):
        self.graph.nodes, self.order, self.moved = nodes, {node: i for i, node in enumerate(nodes)}, False

    def nodes(self, reverse=False):
        """The nodes in order, but those that are removed meanwhile."""
        nodes = self.graph.nodes[::-1] if reverse else self.graph.nodes
        if self.moved:
            nodes = sorted(self.order, key=self.order.__getitem__, reverse=reverse)
        return (node for node in nodes if node in self.order)

    def add(self, node, after):
        """Puts a new node after another one."""
        self.order[node], self.moved = self.order[after], True  # sorting keeps the order in which they came
        self.produce(node, node.outputs)
        for v in node.reads():
            self._read(node, v)

    def produce(self, node, outputs):
        """Lets a node make these values."""
        node.outputs = outputs
        self.producers |= dict.fromkeys(filter(None, outputs), node)

    def _read(self, node, value):
        self.consumers.setdefault(value, []).append(node)

    def remove(self, *nodes):
        self.moved = True
        for node in nodes:
            del self.order[node]
            for v in node.reads():
                self.consumers[v].remove(node)
            for v in node.outputs:
                if self.producers.get(v) is node:
                    del self.producers[v]

    def merge(self, nodes, into):
        """Removes a row of nodes, whose result `into` makes."""
        self.produce(into, [nodes[-1].output])
        self.remove(*nodes)

    def move(self, node, to):
        """Puts a node beside a later one."""
        self.order[node], self.moved = self.order[to], True

    def read_instead(self, node, value, i=0):
        """Lets a node read another value as its first, or i-th, input."""
        self.consumers[node.inputs[i]].remove(node)
        self._read(node, value)
        node.inputs = [*node.inputs[:i], value, *node.inputs[i + 1 :]]

    def reads_instead(self, node, before):
        """Notes that a node reads other inputs than before."""
        inputs, node.inputs = node.inputs, before
        for v in filter(None, before):  # of what is known with the inputs that it had
            self.consumers[v].remove(node)
        node.inputs = inputs
        for v in filter(None, inputs):
            self._read(node, v)

    def add_residual(self, node, value):
        self._read(node, value)
        node.residual = value

    def rename(self, old, new):
        """Lets everything that reads `old` read `new`."""
        for node in self.consumers.pop(old, ()):
            self._read(node, new)
            node.inputs = [new if v == old else v for v in node.inputs]
            node.residual = new if node.residual == old else node.residual
        self.graph.results = [new if v == old else v for v in self.graph.results]

    def fresh(self, name):
        """A name like this one that no value has."""
        return unique(name, self.names)

    def add_constant(self, name, array):
        """Stores a constant under a name of its own, which is returned."""
        name = self.fresh(name)
        self.graph.constants[name] = array
        return name

    def shape(self, value):
        known = self.known.get(value)
        return None if known is None else known.shape

    @cached_property
    def _doubled(self):
        once, twice = (_shapes(self.graph, self.sizes, batch) for batch in (1, 2))
        return self.known if once == twice else infer(self.graph, twice, strict=False)

    def doubled(self, value):
        """The shape of a value where open sizes are twice as large; None where it is not known."""
        known = self._doubled.get(value)
        return None if known is None else known.shape

    def differ(self, a, b):
        """Whether two values of one shape have two where open sizes are larger: a batch of one has the shape of a fixed
        1."""
        found = [self._doubled.get(v) for v in (a, b)]
        return all(found) and found[0].shape != found[1].shape

    def size(self, value):
        """Elements of a value; 0 where its shape is not known."""
        n = 1
        for d in self.shape(value) or (0,):
            n *= d
        return n

    def fused(self, nodes, into, *, passes=0, per_element=0, value=None):
        """Notes that `nodes` became part of `into`: `passes` readings or writings of an array like `value` and
        `per_element` operations on each of its elements are saved."""
        value = into.output if value is None else value
        into.fused_from += [name for n in nodes for name in (n.name, *n.fused_from)]
        names, operators = tuple(n.name for n in nodes), tuple(map(operator_of, nodes))
        operations, traffic = per_element * self.size(value), 4 * passes * self.size(value)
        self.report.append(Fusion(self.kind, names, into.name, operations, traffic, operators, operator_of(into)))

    def refused(self, node, reason):
        self.report.append(Refusal(self.kind, node.name, reason, operator_of(node)))


def example_shapes(graph):
    """A shape for each input of a graph."""
    return _shapes(graph, _example(graph, {})[0])


def _shapes(graph, sizes, batch=1):
    """A shape for each input: `batch` for an open batch size, a multiple of it for each other open dimension."""
    return {
        v.name: tuple(d if isinstance(d, int) else batch * sizes.get(d, 1) for d in v.shape)
        for v in graph.inputs
        if v.shape is not None
    }


def _sums(graph, sizes):
    """Choices of sizes of which some are sums, as their names say ("past + new"), or because caches grow: a decoder's
    total is what is past and what is new."""
    named = {name: name.split(" + ") for name in sizes if " + " in name}
    ways = [named | way for way in _growing(graph, sizes.keys() - named.keys()) if named or way]
    return [sizes | {name: sum(sizes.get(p, 1) for p in parts) for name, parts in way.items()} for way in ways]


def _growing(graph, names):
    """Choices of {a size: what it is the sum of} where caches grow, the likely ones first. All have as many rows,
    whatever their names."""
    past = {graph.inputs[c.input].shape[c.axis] for c in caches_of(graph) if graph.inputs[c.input].shape}
    new = _lengths(graph, names - past)
    if not past or not past <= names or len(new) > 4:
        return [{}]
    first, *others = sorted(past)
    alike = {name: [first] for name in others}
    return [alike | {total: [first, other]} for total in new[::-1] for other in new if other != total]


def _lengths(graph, names):
    """The names of sizes, first that of words, an input of integers, last that of a mask."""
    counts = [v for v in graph.inputs if v.shape and v.dtype is not None and v.dtype.kind in "iu"]
    masks, words = ({d for v in counts if ("mask" in v.name) == is_mask for d in v.shape} for is_mask in (True, False))
    return sorted(names, key=lambda name: (name in masks, name not in words, name))


def _choices_of_sizes(graph):
    """Sizes for the open dimensions but batches: one of its own for each name, then one for all."""
    names = sorted({d for v in graph.inputs for d in (v.shape or ())[1:] if isinstance(d, str)})
    if not names:
        yield {}
        return
    for step in (64, 8):
        own = {name: step * (i + 3) for i, name in enumerate(names)}
        yield from _sums(graph, own)
        yield own
    yield from (dict.fromkeys(names, size) for size in _COMMON)


def _example(graph, earlier):
    """(a size for each open dimension but batches, what is then known of the graph's values): the graph's own, else one
    of its own for each name or, where names must agree or a table is short, one for all, so that most values are
    known."""
    if graph.example:
        return graph.example, infer(graph, _shapes(graph, graph.example), strict=False, earlier=earlier)
    values = graph.value_names()
    found, tried = None, []
    for sizes in _choices_of_sizes(graph):
        if sizes in tried:
            continue
        tried.append(sizes)
        known = infer(graph, _shapes(graph, sizes), strict=False, earlier=earlier)
        if found is None or len(known) > len(found[1]):
            found = sizes, known
        if len(known) == len(values):
            break
    return found
