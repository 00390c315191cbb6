"""Fused operations over sizes, threads and batches."""

import os
from dataclasses import replace

import numpy as np
import pytest

import fusedops as fo
from fusedops.benchmark.workloads import into_one_array

from .cases import OPERATIONS
from .sweep import SWEEPS

SIZES = {
    "product, n x n x n": (8, 16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024),
    "1x1 convolution, 64 -> 128": (4, 7, 14, 28, 56, 112),
    "3x3 convolution, 64 -> 64": (4, 7, 14, 28, 56, 112),
    "3x3 convolution, 64 channels, depthwise": (4, 7, 14, 28, 56, 112, 224),
}
PROCESSORS = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
THREADS = sorted({*(1 << i for i in range(PROCESSORS.bit_length())), PROCESSORS})
SCALED = ("conv1x1_128x28_256", "conv3x3_64x56", "dw3x3_144x56", "linear_512x512x512", "lstm_50x16_256")
BATCHES = (1, 2, 4, 8, 16, 32)
BATCHED = ("conv1x1_128x28_256", "conv3x3_64x56", "dw3x3_512x14", "lstm_50x1_128")


@pytest.mark.parametrize("sweep, size", [(sweep, size) for sweep, sizes in SIZES.items() for size in sizes])
def test_size(benchmark, sweep, size):
    layer, x, flop = SWEEPS[sweep][1](size)
    benchmark.group = sweep
    benchmark.extra_info.update(kind="size", sweep=sweep, size=size, flop=flop)
    benchmark(into_one_array(layer, x))


@pytest.mark.parametrize("number", THREADS)
@pytest.mark.parametrize("name", SCALED)
def test_threads(benchmark, name, number):
    fo.set_num_threads(number)
    _fused(benchmark, OPERATIONS[name])
    benchmark.group = f"{name}, threads"
    benchmark.extra_info.update(kind="threads", name=name, number=number, flop=OPERATIONS[name].flop)


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("name", BATCHED)
def test_batch(benchmark, name, batch):
    operation = replace(OPERATIONS[name], batch=batch)
    _fused(benchmark, operation)
    benchmark.group = f"{name}, batches"
    benchmark.extra_info.update(kind="batch", name=name, number=batch, flop=operation.flop)


def _fused(benchmark, operation):
    benchmark(operation.variants(operation.arrays(np.random.default_rng(0)))["fused"])
