"""Convolutions in float32, bfloat16 and int8, unfused and fused: the third chapter of ``fusedops bench``."""

from functools import lru_cache

import pytest

from fusedops.benchmark.workloads import WORKLOADS, EightBits, build

NAMES = [name for name, workload in WORKLOADS.items() if isinstance(workload.operation, EightBits)]
calls = lru_cache(maxsize=1)(build)


def variants_of(name):
    """Depthwise convolutions have no product in bfloat16."""
    dense = WORKLOADS[name].operation.convolution.groups == 1
    forms = "float32 unfused", "float32", "bfloat16", "int8 unfused", "int8 fused"
    return [form for form in forms if dense or "bfloat16" not in form]


@pytest.mark.parametrize("name, variant", [(name, variant) for name in NAMES for variant in variants_of(name)])
def test_eight_bits(benchmark, name, variant):
    benchmark.group = name
    flop = WORKLOADS[name].operation.convolution.flop
    benchmark.extra_info.update(kind="eight_bits", name=name, variant=variant, flop=flop)
    benchmark(calls(name)[variant])
