"""How long a fuzzer runs: some hundred examples of a fixed seed, or for FUSEDOPS_FUZZ_SECONDS with random ones.

``FUSEDOPS_FUZZ_SECONDS=600 pytest -s tests/fuzz`` is ten minutes of each.
"""
import os
import time

from hypothesis import HealthCheck, Phase, given, settings

SECONDS = float(os.environ.get("FUSEDOPS_FUZZ_SECONDS", 0))


def fuzz(strategy, examples=300):
    """Decorates a test of one argument, which is drawn from the strategy."""
    def decorate(test):
        once = settings(max_examples=examples, derandomize=not SECONDS, database=None, deadline=None,
                        suppress_health_check=list(HealthCheck), phases=[Phase.generate, Phase.shrink])(given(strategy)(test))

        def runs():
            end, done = time.monotonic() + SECONDS, 0
            while not done or time.monotonic() < end:
                once()
                done += examples
            print(f"{test.__name__}: {done} examples")
        return runs
    return decorate
