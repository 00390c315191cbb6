"""The file of a session's profile, as browsers show it (chrome://tracing, Perfetto)."""

import json
import os
import time


class Profiling:
    """What a session did, from its start on: `name` is that of the file, without the time."""

    def __init__(self, name):
        self.start_ns = time.monotonic_ns()
        self._name, self._events, self._last = name, [], None
        self._stamp = time.strftime("%Y-%m-%d_%H-%M-%S")

    def event(self, name, start_ns, category="Session", duration_us=None, **args):
        """Notes what began at that time and ends now, or took so many microseconds."""
        now = time.monotonic_ns()
        took = (now - start_ns) // 1000 if duration_us is None else round(duration_us)
        here = {"pid": os.getpid(), "tid": os.getpid(), "ph": "X", "args": args}
        self._events.append(
            {"cat": category, "name": name, "ts": (start_ns - self.start_ns) // 1000, "dur": took} | here
        )

    def ran(self, start_ns, arrays):
        """Notes a call, whose arrays the nodes are timed with in the end."""
        self.event("model_run", start_ns)
        self._last = arrays

    def write(self, model):
        """Times each node on the arrays of the latest call, writes the file and returns its name."""
        if self._last is not None:
            at = time.monotonic_ns()
            for layer in model.profile(*self._last, repeat=1).layers:
                took = 1000 * layer.ms
                args = {"op_name": layer.op, "kernels": layer.kernels, "bytes": layer.bytes, "gflop": layer.gflop}
                name = f"{layer.name}_kernel_time"
                self.event(name, at, "Node", took, provider="CPUExecutionProvider", **args)
                at += round(1000 * took)
        path = f"{self._name}_{self._stamp}.json"
        with open(path, "w") as f:
            json.dump(self._events, f, indent=1)
        return path
