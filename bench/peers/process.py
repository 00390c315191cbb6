"""A peer in a process of its own, alone: no thread pool of another waits, spinning, on the cores that it needs.

The process measures itself. `clock` is pytest-benchmark's timer: what it has counted is the time of a call as the
process tells it.
"""

import importlib
import os
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from multiprocessing import get_context
from time import perf_counter

import numpy as np
from threadpoolctl import threadpool_limits

from .. import cases
from . import PEERS

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "TVM_NUM_THREADS")


class PeerProcess:
    """Started at once; one case at a time."""

    def __init__(self, peer, threads):
        self.peer, self.seconds = peer, 0.0
        before = {name: os.environ.get(name) for name in THREADS}
        os.environ.update(dict.fromkeys(THREADS, str(threads)))
        try:
            self._pool = ProcessPoolExecutor(1, get_context("spawn"))
            self._submit(_start, PEERS[peer].module, threads)
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value

    def _submit(self, function, *arguments):
        return self._pool.submit(function, *arguments).result()

    def prepare(self, name):
        """The peer's result for a case, which is measured from now on.

        Raises
        ------
        Unsupported
        """
        return self._submit(_prepare, name)

    def seconds_of_a_call(self):
        return self._submit(_time, 1)

    def run(self, number):
        """Counts the mean seconds of `number` calls in a row."""
        self.seconds += self._submit(_time, number)

    def close(self):
        self._pool.shutdown()


class Clock:
    """The seconds that the present peer has counted."""

    process = None

    def __call__(self):
        return self.process.seconds


# The rest runs in the process.


class _State:
    module = threads = call = limits = None


def _start(module, threads):
    _State.module, _State.threads = importlib.import_module(f".{module}", __package__), threads
    _State.limits = threadpool_limits(threads)  # of the pools that importing the peer has brought


def _prepare(name):
    operation, a = cases.data(name)
    _State.call = _State.module.prepare(operation, a, _State.threads)
    return np.array(_State.call.array(_State.call.run()))


def _time(number):
    run = _State.call.run
    run()  # brings back what the pause has driven out of the caches
    start = perf_counter()
    for _ in repeat(None, number):
        run()
    return (perf_counter() - start) / number
