"""Products, attention and a recurrent layer in float32, unfused and fused, and fused in bfloat16."""

from functools import lru_cache

import pytest

from fusedops.benchmark import workloads
from fusedops.layers import PRECISIONS

from . import cases

NAMES = (
    "linear_512x512x512",
    "linear_gelu_128x768x3072",
    "linear_1x2048x1000",
    "attention_8x512x64",
    "attention_8x2048x64",
    "lstm_50x16_256",
)
FORMS = {"float32 unfused": ("float32", "unfused"), "float32": ("float32", "fused"), "bfloat16": ("bfloat16", "fused")}


@lru_cache(maxsize=1)
def calls(name):
    operation, a = cases.data(name)
    made = {p: operation.variants(a, precision=p) for p in PRECISIONS}
    found = {form: made[p][kind] for form, (p, kind) in FORMS.items()}
    workloads.check(name, found, lambda results: (results, 0.03))
    return found


@pytest.mark.parametrize("name, form", [(name, form) for name in NAMES for form in FORMS])
def test_precision(benchmark, name, form):
    call = calls(name)[form]
    benchmark.group = f"{name}, precision"
    benchmark.extra_info.update(kind="precision", name=name, variant=form, flop=cases.data(name)[0].flop)
    benchmark(call)
