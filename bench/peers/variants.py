"""The forms in which a case is measured: plain NumPy, unfused, folded, fused, as one kernel, in int8."""

from functools import lru_cache

from fusedops import load_onnx
from fusedops.benchmark import workloads
from fusedops.benchmark.workloads import Block

from ..cases import CASES, FUSION, Attention, File, Network, data
from ..encoder import Encoder
from ..passes import Pass
from . import inputs


def variants(operation, a):
    """A function for each form of a case, the fused one last."""
    return _forms(operation, a) if isinstance(operation, (Network, Encoder, File)) else operation.variants(a)


@lru_cache(maxsize=1)
def calls(name, batch=1):
    """The variants of a case, each checked against the first."""
    operation, a = data(name, batch)
    made = variants(operation, a)
    if name in FUSION:
        made.pop("numpy", None)
    workloads.check(name, made)
    return made


def variants_of(name):
    """Which forms a case has besides plain NumPy."""
    case = (CASES | FUSION)[name]
    if isinstance(case, Pass):
        return (*(["unfused"] if case.residual else []), "fused")
    folded = [] if isinstance(case, Attention) else ["folded"]
    return ("unfused", *folded, "fused", *(["block"] if isinstance(case, Block) else []))


def _forms(case, a):
    """A network as its ONNX file has it, with its batch norms folded, and fused."""
    from .onnx_model import onnx_model

    model, arrays = onnx_model(case, a), inputs(case, a)
    options = {"unfused": dict(fold=False, fuse=False), "folded": dict(fuse=False), "fused": {}}
    return {variant: lambda net=load_onnx(model, **o): net(*arrays) for variant, o in options.items()}


def bfloat16(case, a):
    """A network whose products are in bfloat16 where that is faster."""
    from .onnx_model import onnx_model

    net = load_onnx(onnx_model(case, a), precision="bfloat16")
    return lambda: net(a.x)


def eight_bits(case, a):
    """A network in int8, calibrated on its own input."""
    from .onnx_model import onnx_model

    net = load_onnx(onnx_model(case, a)).quantize([a.x])
    return lambda: net(a.x)
