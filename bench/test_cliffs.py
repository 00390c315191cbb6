"""Functions and operators on arrays of every shape, each next to its peers: a group for each case of cliffs.py."""

import pytest

from . import cliffs


@pytest.fixture(scope="module")
def cases(pytestconfig):
    return {case.name: case for case in cliffs.cases(pytestconfig.option.threads)}


def test_cliffs(benchmark, cases, quick):
    """How many cases take over 1.5 times as long as the best peer; the time is that of all cases, ours alone."""
    few = list(cases.values())[:: 40 if quick else 1]
    slow = [case.name for case in few if is_slow(cliffs.seconds(case, rounds=3))]
    benchmark.extra_info.update(kind="cliffs", cases=len(few), slow=slow)
    benchmark.pedantic(lambda: [case.calls["fusedops"]() for case in few], rounds=1)


def is_slow(seconds):
    others = [s for who, s in seconds.items() if who != "fusedops"]
    return bool(others) and seconds["fusedops"] > cliffs.LIMIT * min(others)
