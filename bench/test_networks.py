"""Whole networks: as they are written, with batch norms folded, fused, in bfloat16, and in int8. Those of ``cases``
with one image and with eight; with ``--networks FOLDER`` also the ONNX files of a folder."""

from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest

from . import cases
from .peers import variants

FORMS = "unfused", "folded", "fused"
NARROW = {"bfloat16": variants.bfloat16, "int8 fused": variants.eight_bits}
BATCHES = 1, 8
MIN_SNR = 20  # decibels of signal to noise at the output of a network in bfloat16 or int8


@pytest.fixture(autouse=True)
def _onnx():
    pytest.importorskip("onnx", reason="networks need onnx: pip install -e '.[onnx]'")


def pytest_generate_tests(metafunc):
    if "file" in metafunc.fixturenames:
        metafunc.parametrize(
            "file, form", [(f, form) for f in cases.files(metafunc.config.option.networks) for form in FORMS]
        )


@pytest.mark.parametrize(
    "name, batch, form",
    [(name, batch, form) for name in cases.NETWORKS for batch in BATCHES for form in (*FORMS, *NARROW)],
)
def test_network(benchmark, quick, name, batch, form):
    if quick and batch > 1:
        pytest.skip("not in a quick run")
    call = variants.calls(name, batch)[form] if form in FORMS else narrow(name, batch, form)
    benchmark.group = name if batch == 1 else f"{name}, batch {batch}"
    benchmark.extra_info.update(
        kind="network", name=benchmark.group, variant=form, flop=cases.data(name, batch)[0].flop
    )
    benchmark(call)


@lru_cache(maxsize=1)
def narrow(name, batch, form):
    case, a = cases.data(name, batch)
    call, expected = NARROW[form](case, a), variants.calls(name, batch)["fused"]()
    noise = np.mean((call() - expected) ** 2) / np.mean(expected**2)
    assert -10 * np.log10(noise) > MIN_SNR
    return call


def test_file(benchmark, file, form):
    try:
        call = variants.calls(file)[form]
    except (ArithmeticError, ValueError) as e:
        pytest.skip(str(e))
    benchmark.group = Path(file).stem
    benchmark.extra_info.update(kind="file", name=Path(file).stem, variant=form)
    benchmark(call)
