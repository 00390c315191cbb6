"""What a network keeps from call to call: its last inputs, in whose place its last results come in the next call."""

from threading import Lock

import numpy as np

from . import destinations
from .arguments import with_inputs


class KeptState:
    """The state of a network with variables. A call takes it all at once, so that calls of several threads follow one
    another."""

    def __init__(self, graph):
        self._first, self._lock = graph.states, Lock()
        self.inputs = graph.inputs[: len(graph.inputs) - len(graph.states)]
        self.reset()

    def reset(self):
        """Gives the variables the values that they had at first."""
        with self._lock:
            self.now = [np.array(a) for a in self._first]

    def run(self, session, arrays, out=None):
        """The results of a session that keeps these variables for the inputs of a call, as a list."""
        outputs = session.graph.outputs[: len(session.graph.outputs) - len(self._first)]
        with_inputs(self.inputs, arrays)  # says what the network takes
        given = None if out is None else destinations.listed(out, outputs)
        with self._lock:
            results = session.run((*arrays, *self.now))
            results, now = results[: len(outputs)], results[len(outputs) :]
            if given is not None:
                destinations.check(given, outputs, [(y.shape, y.dtype) for y in results])
            self.now = now
        return results if given is None else destinations.deliver(results, given)
