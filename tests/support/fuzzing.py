"""How long a fuzzer runs: some hundred examples, the same each time, as many as FUSEDOPS_FUZZ_EXAMPLES says, or random
ones for a time.

``FUSEDOPS_FUZZ_SECONDS=600 pytest -s tests/fuzz`` is ten minutes of each.
"""

import os
import resource
import time
from contextlib import contextmanager

from hypothesis import HealthCheck, Phase, given, seed, settings

SECONDS = float(os.environ.get("FUSEDOPS_FUZZ_SECONDS", 0))
EXAMPLES = int(os.environ.get("FUSEDOPS_FUZZ_EXAMPLES", 300))
ROUND = 300  # examples that Hypothesis plans together


def fuzz(strategy):
    """Decorates a test of one argument, which is drawn from the strategy."""

    def decorate(test):
        how = settings(
            max_examples=min(EXAMPLES, ROUND),
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.generate, Phase.shrink],
        )

        def runs():
            end, done = time.monotonic() + SECONDS, 0
            with little_memory():
                while time.monotonic() < end if SECONDS else done < EXAMPLES:
                    once = how(given(strategy)(test))
                    (once if SECONDS else seed(done)(once))()
                    done += ROUND
            print(f"{test.__name__}: {done} examples")

        return runs

    return decorate


@contextmanager
def little_memory():
    """512 MB of address space more than now: who asks for a huge result gets a MemoryError at once, and does not wait
    for it either."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm") as f:
        used = int(f.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (512 << 20), before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
