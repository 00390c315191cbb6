"""The workloads of `fusedops bench` under pytest-benchmark: one group each, on one thread. ``pytest bench``"""
import pytest
from threadpoolctl import threadpool_limits

import fusedops as fo
from fusedops.workloads import VARIANTS, WORKLOADS, build


@pytest.fixture(autouse=True)
def one_thread():
    before = fo.get_num_threads()
    fo.set_num_threads(1)
    with threadpool_limits(1, user_api="blas"):
        yield
    fo.set_num_threads(before)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", WORKLOADS)
def test_workload(benchmark, name, variant):
    calls = build(name)
    if variant not in calls:
        pytest.skip(f"there is no form {VARIANTS[variant]!r} of it")
    benchmark.group = WORKLOADS[name].title
    benchmark(calls[variant])
