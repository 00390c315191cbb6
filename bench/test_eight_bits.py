"""Convolutions in float32 and in int8, unfused and fused: the third chapter of ``fusedops bench``."""

from functools import lru_cache

import pytest

from fusedops.benchmark.workloads import WORKLOADS, EightBits, build

NAMES = [name for name, workload in WORKLOADS.items() if isinstance(workload.operation, EightBits)]
calls = lru_cache(maxsize=1)(build)


@pytest.mark.parametrize("variant", ["float32", "int8 unfused", "int8 fused"])
@pytest.mark.parametrize("name", NAMES)
def test_eight_bits(benchmark, name, variant):
    benchmark.group = name
    flop = WORKLOADS[name].operation.convolution.flop
    benchmark.extra_info.update(kind="eight_bits", name=name, variant=variant, flop=flop)
    benchmark(calls(name)[variant])
