"""What a network keeps from call to call: its last inputs, in whose place its last results come in the next call."""

from threading import Lock

import numpy as np

from . import destinations
from .arguments import with_inputs


class KeptState:
    """The state of a network with variables. A call takes it all at once, so that calls of several threads follow one
    another."""

    def __init__(self, graph, run):
        self._first, self._run, self._lock = graph.states, run, Lock()
        self.inputs, self.outputs = (
            values[: len(values) - len(graph.states)] for values in (graph.inputs, graph.outputs)
        )
        self.reset()

    def reset(self):
        """Gives the variables the values that they had at first."""
        with self._lock:
            self.now = [np.array(a) for a in self._first]

    def run(self, arrays, out=None):
        """The results for the inputs of a call, as a list."""
        with_inputs(self.inputs, arrays)  # says what the network takes
        given = None if out is None else destinations.listed(out, self.outputs)
        with self._lock:
            results = self._run((*arrays, *self.now))
            results, now = results[: len(self.outputs)], results[len(self.outputs) :]
            if given is not None:
                destinations.check(given, self.outputs, [(y.shape, y.dtype) for y in results])
            self.now = now
        return results if given is None else destinations.deliver(results, given)
