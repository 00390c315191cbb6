"""Every operation fused, folded only and unfused, blocks also as one kernel: a group for each."""

import pytest

from . import cases
from .peers import variants


@pytest.mark.parametrize(
    "name, variant",
    [(name, variant) for name in (*cases.OPERATIONS, *cases.FUSION) for variant in variants.variants_of(name)],
)
def test_operation(benchmark, name, variant):
    call, (operation, _) = variants.calls(name)[variant], cases.data(name)
    benchmark.group = name
    benchmark.extra_info.update(
        kind="operation", name=name, variant=variant, flop=operation.flop, traffic=operation.traffic
    )
    benchmark(call)
