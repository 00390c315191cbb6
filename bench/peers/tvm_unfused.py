"""TVM with fusion limited to one operator a kernel: limited, not disabled, as the pass also makes the kernels'
functions."""

from . import tvm_relax


def prepare(operation, a, threads):
    return tvm_relax.prepare(operation, a, threads, fuse=False)
