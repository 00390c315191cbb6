"""Execution times: rounds of interleaved batches of calls, and their summary."""

from collections.abc import Iterable
from itertools import repeat
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

from .lazy import LazyModule

if TYPE_CHECKING:
    import statistics
else:
    statistics = LazyModule("statistics")


class Summary(NamedTuple):
    """Execution times in milliseconds; ``str()`` is a table."""

    mean: float
    median: float
    max: float
    min: float
    std: float

    @classmethod
    def of(cls, samples: Iterable[float]) -> "Summary":
        """The summary of times in seconds."""
        ms = [1e3 * s for s in samples]
        return cls(statistics.fmean(ms), statistics.median(ms), max(ms), min(ms), statistics.pstdev(ms))

    def as_dict(self) -> dict[str, float]:
        return self._asdict()

    def __str__(self):
        return (
            "Execution time summary:\n"
            + "".join(f"{name + ' (ms)':>14}" for name in self._fields)
            + "\n"
            + "".join(f"{ms:14.4f}" for ms in self)
        )


# Medians this many times the least time are those of a machine that does other work too. A quiet one has 1.1.
BUSY = 1.3


class Shown(NamedTuple):
    """What a table of summaries shows: its heading, the fields of its columns, and the field that ratios are of."""

    heading: str
    columns: tuple[str, ...]
    compared: str

    @classmethod
    def of(cls, summaries: Iterable[Summary]) -> "Shown":
        """Chooses every field and the medians' ratios, or the least times alone where the machine is busy."""
        ratio = max(s.median / s.min for s in summaries)
        if ratio < BUSY:
            return cls("Execution times", Summary._fields, "median")
        medians = f"medians are up to {ratio:.1f} times the least times"
        return cls(f"Execution times. The machine is busy ({medians}): these are the least.", ("min",), "min")


def batch_time(call, number, clock=perf_counter):
    """Mean seconds of `number` calls in a row."""
    start = clock()
    for _ in repeat(None, number):
        call()
    return (clock() - start) / number


def interleaved(calls, seconds, *, batch_seconds=2e-3, least_rounds=7, clock=perf_counter, progress=lambda done: None):
    """Times functions against one another.

    A round takes one sample of each, so that a change in the machine's speed meets them all. A sample is the mean of a
    batch of calls of about `batch_seconds`, after one call that brings back into the caches what the others drove out.

    Parameters
    ----------
    calls : dict of str to function
    seconds : float
        Time for all rounds together; `least_rounds` are made in any case.
    clock : function
        ``time.thread_time`` leaves out the time slices of other programs. It is for calls that use one thread.
    progress : function, optional
        Told after each round what part of the rounds is done.

    Returns
    -------
    dict of str to Summary
    """
    numbers = {}
    for name, call in calls.items():  # warm-up
        call()
        numbers[name] = max(1, round(batch_seconds / max(min(batch_time(call, 1, clock) for _ in range(3)), 1e-7)))
    samples = {name: [] for name in calls}
    start, rounds, done = perf_counter(), 0, 0.0
    while done < 1:
        for name, call in calls.items():
            call()
            samples[name].append(batch_time(call, numbers[name], clock))
        rounds += 1
        done = min(rounds / least_rounds, (perf_counter() - start) / seconds, 1.0)
        progress(done)
    return {name: Summary.of(s) for name, s in samples.items()}
