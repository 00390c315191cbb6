"""TVM's Relax with its default pipeline for processors, not tuned: tuning takes hours, and would be another
comparison."""

import onnx
import tvm
from tvm import relax
from tvm.relax.frontend.onnx import from_onnx

from ..cases import File, Network
from ..encoder import Encoder
from . import Call, Unsupported, inputs
from .onnx_model import onnx_model

LIMIT_FLOP = 1.5e9  # a second or more a call without tuning


def prepare(operation, a, threads, fuse=True):
    """`fuse=False`: batch norm stays apart, and fusion is limited to one operator a kernel."""
    if isinstance(operation, (Encoder, File, Network)) or operation.flop > LIMIT_FLOP:
        raise Unsupported("takes too long where it is not tuned")
    try:
        module = from_onnx(onnx.load_from_string(onnx_model(operation, a)), keep_params_in_input=False)
    except tvm.error.OpNotImplemented as e:
        raise Unsupported(str(e)) from None
    target = tvm.target.Target({"kind": "llvm", "mcpu": tvm.target.codegen.llvm_get_system_cpu(), "num-cores": threads})
    if fuse:
        module = relax.transform.FoldBatchnormToConv2D()(module)
    with target, tvm.transform.PassContext(opt_level=3, config={} if fuse else {"relax.FuseOps.max_depth": 1}):
        module = relax.transform.DecomposeOpsForInference()(module)
        program = relax.build(module, target, relax_pipeline=relax.backend.cpu_generic.get_default_pipeline(target))
    machine = relax.VirtualMachine(program, tvm.cpu())
    values = [tvm.runtime.tensor(v) for v in inputs(operation, a)]
    main = machine["main"]
    return Call(lambda: main(*values), lambda y: y.numpy())
