"""Every operation fused, folded only and unfused, blocks also as one kernel, and whole networks: a group for each."""
import pytest

from . import cases


@pytest.mark.parametrize("name, variant",
                         [(name, variant) for name in cases.CASES for variant in cases.variants_of(name)])
def test_operation(benchmark, name, variant):
    if name in cases.NETWORKS:
        pytest.importorskip("onnx", reason="networks need onnx: pip install 'fusedops[onnx]'")
    call, operation = cases.calls(name)[variant], cases.CASES[name]
    benchmark.group = name
    benchmark.extra_info.update(kind="operation", name=name, variant=variant, flop=operation.flop)
    if name in cases.OPERATIONS:
        benchmark.extra_info["traffic"] = operation.traffic
    benchmark(call)
