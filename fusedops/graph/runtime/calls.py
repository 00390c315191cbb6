"""The calls of a network: its session with the state that it keeps, its random numbers and its threads; and calls that
want some of the outputs, for which the nodes run that these need."""

from dataclasses import replace
from functools import partial

from ..ir.draws import RandomNumbers
from ..ir.errors import InvalidArgument
from ..ir.graph import Graph
from ..operators.random_numbers import draws
from .kept_state import KeptState
from .session import Session
from .threads import limited


class Calls:
    """What runs a graph.

    Attributes
    ----------
    run : callable
        (a tuple of the inputs in order, `out`) -> a list of the outputs.
    inputs, optional, outputs : list of Value
        Without the variables that the network keeps; sizes that the file does not name are None.
    """

    def __init__(self, graph, options):
        self._graph, self.num_threads = graph, options.num_threads
        self.session = self.limited(Session)(graph, options)
        self.state = KeptState(graph) if graph.states else None
        self.random = RandomNumbers(options.seed) if draws(graph) else None
        self.run = self._call_of(self.session)
        self._some = {}  # functions like `run` by the names of the outputs that they compute
        inputs, outputs = (values[: len(values) - len(graph.states)] for values in (graph.inputs, graph.outputs))
        self.inputs, self.outputs = [v.as_in_file() for v in inputs], self._described(outputs)
        self.optional = [v.as_in_file(optional=True) for v in graph.defaults]

    def limited(self, call):
        """A function, in which operations keep to the network's number of threads."""
        return limited(self.num_threads, call)

    def _call_of(self, session):
        call = session.run if self.state is None else partial(self.state.run, session)
        return self.limited(call if self.random is None else partial(self.random.call, call))

    def _described(self, outputs):
        """Outputs as users see them; where all inputs have one shape, so have these."""
        found = [v.as_in_file() for v in outputs]
        if self.session.fixed and any(v.shape is None or not all(isinstance(n, int) for n in v.shape) for v in found):
            plan = self.plan([v.shape for v in self._graph.inputs])
            if not plan.segmented:
                shapes = [shape for shape, _ in plan.outputs]
                found = [replace(v, shape=shape) for v, shape in zip(found, shapes, strict=False)]
        return found

    def plan(self, shapes):
        """The plan for these shapes of all inputs."""
        return self.limited(self.session.plan)(shapes)[0]

    def with_state(self, arrays):
        """What the session takes for the inputs of a call."""
        return arrays if self.state is None else (*arrays, *self.state.now)

    def of(self, outputs):
        """The function that computes the outputs of these names alone."""
        names = (outputs,) if isinstance(outputs, str) else tuple(outputs)
        if names not in self._some:
            every = names == tuple(v.name for v in self.outputs)
            self._some[names] = self.run if every else self._call_of(self._part(selected(self._graph, names)))
        return self._some[names]

    def _part(self, graph):
        return self.limited(self.session.part)(graph)


def selected(graph, names):
    """The graph of the outputs with these names, in their order, and of the states that the network keeps."""
    kept = len(graph.states)
    numbers = {v.name: i for i, v in enumerate(graph.outputs[: len(graph.outputs) - kept])}
    _check(names, numbers)
    wanted = [*(numbers[name] for name in names), *range(len(numbers), len(graph.outputs))]
    results = [graph.results[i] for i in wanted]
    live, nodes = set(results), []
    for node in reversed(graph.nodes):
        if not live.isdisjoint(node.outputs):
            live.update(node.reads())
            nodes.append(node)
    constants = {v: a for v, a in graph.constants.items() if v in live}
    outputs = [graph.outputs[i] for i in wanted]
    return Graph(nodes[::-1], constants, graph.inputs, outputs, results, graph.opset, states=graph.states)


def _check(names, known):
    unknown = [str(name) for name in names if name not in known]
    if unknown:
        raise InvalidArgument(
            f"the network has no output {', '.join(map(repr, unknown))}: its outputs are {', '.join(known)}"
        )
    if not names:
        raise InvalidArgument(f"outputs names none: the network has {', '.join(known)}")
    if len(set(names)) < len(names):
        raise InvalidArgument(f"outputs names one more than once: {', '.join(names)}")
