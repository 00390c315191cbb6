"""The blocks of MobileNet V1 and V2: as one kernel where the library's rule takes that, and layer by layer."""

import numpy as np
import pytest

from fusedops.benchmark.workloads import Block

from .cases import NETWORKS


def _blocks():
    """Each distinct block by its network and sizes."""
    return {
        f"{network[-2:]}_{b.channels}x{b.size}_{b.outputs}{'_s2' * (b.stride == 2)}": b
        for network in ("mobilenet_v1", "mobilenet_v2")
        for b in NETWORKS[network].parts
        if isinstance(b, Block)
    }


BLOCKS = _blocks()


@pytest.mark.parametrize("variant", ["fused", "block"])
@pytest.mark.parametrize("name", BLOCKS)
def test_block(benchmark, name, variant):
    block = BLOCKS[name]
    call = block.variants(block.arrays(np.random.default_rng(0)))[variant]
    benchmark.group = f"block {name}"
    benchmark.extra_info.update(kind="block", name=name, variant=variant, flop=block.flop)
    benchmark(call)
