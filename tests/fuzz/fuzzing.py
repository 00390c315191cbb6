"""How long a fuzzer runs: some hundred examples of a fixed seed, or for FUSEDOPS_FUZZ_SECONDS with random ones.

``FUSEDOPS_FUZZ_SECONDS=600 pytest -s tests/fuzz`` is ten minutes of each; FUSEDOPS_FUZZ_SEED=1 makes the examples of that time the same ones.
"""
import os
import resource
import time
from contextlib import contextmanager

from hypothesis import HealthCheck, Phase, given, seed, settings

SECONDS = float(os.environ.get("FUSEDOPS_FUZZ_SECONDS", 0))
SEED = os.environ.get("FUSEDOPS_FUZZ_SEED")


def fuzz(strategy, examples=300):
    """Decorates a test of one argument, which is drawn from the strategy."""
    def decorate(test):
        how = settings(max_examples=examples, derandomize=not SECONDS, database=None, deadline=None,
                       suppress_health_check=list(HealthCheck), phases=[Phase.generate, Phase.shrink])

        def runs():
            end, done = time.monotonic() + SECONDS, 0
            with little_memory():
                while not done or time.monotonic() < end:
                    once = how(given(strategy)(test))
                    (once if SEED is None else seed(int(SEED) + done)(once))()
                    done += examples
            print(f"{test.__name__}: {done} examples")
        return runs
    return decorate


@contextmanager
def little_memory():
    """512 MB of address space more than now: who asks for a huge result gets a MemoryError at once, and does not wait for it either."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm") as f:
        used = int(f.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (512 << 20), before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
