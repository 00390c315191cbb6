"""PyTorch's modules by torch.compile with Inductor, with constants folded into the weights (freezing). Each layer is
compiled by itself, so that blocks and networks, whose layers it would join, are left out."""

import torch
import torch._inductor.config

from fusedops.benchmark.workloads import Cell, Convolution

from ..cases import Added, Product
from . import Call, Unsupported, inputs
from .pytorch import TorchBuilder


class _Compiled(TorchBuilder):
    def module(self, a, make, *arguments):
        if id(a) not in self.modules:
            self.modules[id(a)] = torch.compile(make(*arguments, a).eval())
        return self.modules[id(a)]


def prepare(operation, a, threads):
    if not isinstance(operation, (Convolution, Cell, Product)) or isinstance(operation, Added):
        raise Unsupported("is not compiled as a whole")
    torch.set_num_threads(threads)
    torch._inductor.config.freezing = True
    builder, tensors = _Compiled(), [torch.from_numpy(v) for v in inputs(operation, a)]

    def call():
        with torch.inference_mode():
            return builder.build(operation, a, *tensors)

    return Call(call)
