"""What is done to a graph before it is planned: each pass changes it, and tells what it did or why it did not.

`fold` switches the passes that compute with constants alone, `fuse` those that let one kernel do the work of several.
What belongs to neither, such as the removal of identities, saves nothing that anyone would want to measure, and is
always done.
"""

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from ..._internal.lazy import LazyModule
from ..._internal.progress import quiet
from ..inference.shape_inference import without_data
from . import (
    activation_patterns,
    bn_folding,
    cleanup,
    computed_parameters,
    constant_folding,
    epilogue,
    float64,
    linear,
    mark_mbconv,
    pad,
    subgraphs,
)
from .context import Context

if TYPE_CHECKING:
    from . import attention_fusion, blocked_weights, heads, nbits_weights, qkv, rms_norm
    from .qdq import additions, qlayers, results
else:
    attention_fusion, blocked_weights, heads, nbits_weights, qkv, rms_norm, additions, qlayers, results = (
        LazyModule(name, __package__)
        for name in (
            ".attention_fusion",
            ".blocked_weights",
            ".heads",
            ".nbits_weights",
            ".qkv",
            ".rms_norm",
            ".qdq.additions",
            ".qdq.qlayers",
            ".qdq.results",
        )
    )


class Pass(NamedTuple):
    name: str
    kind: str  # "fold", "fuse", or "" for always
    module: object
    ops: frozenset | None = None  # operators of which a graph must have one, or the pass finds nothing
    function: str = "run"  # of the module

    def run(self, context):
        getattr(self.module, self.function)(context)


def _pass(name, kind, module, *ops, function="run"):
    return Pass(name, kind, module, frozenset(ops) or None, function)


_QUANTIZED = "QuantizeLinear", "DequantizeLinear", "QLinearConv", "QLinearMatMul", "ConvInteger", "MatMulInteger"


PASSES = [
    _pass("constant folding", "fold", constant_folding),
    _pass("clean-up", "", cleanup),
    _pass("weights in blocks", "fuse", blocked_weights, "DequantizeLinear"),
    _pass("packed weights", "fuse", nbits_weights, "MatMulBits", function="pack"),
    _pass("unpacked weights", "", nbits_weights, "MatMulBits", function="dequantize"),
    _pass("8-bit layers", "fuse", qlayers, *_QUANTIZED),
    _pass(
        "dequantized constants", "fold", constant_folding, "DequantizeLinear", "DequantizeBits", function="dequantized"
    ),
    _pass("linear", "", linear, "MatMul", "Gemm"),
    _pass("computed operands", "", computed_parameters, *computed_parameters.PARAMETERS),
    _pass("activation patterns", "fuse", activation_patterns, *activation_patterns.ROOTS),
    _pass("norms", "fuse", rms_norm, "ReduceMean"),
    _pass("heads", "fuse", heads, "Softmax"),
    _pass("batch norm", "fold", bn_folding, "BatchNormalization", *bn_folding.ARITHMETIC, function="fold_scales"),
    _pass("attention", "fuse", attention_fusion, "Softmax"),
    _pass("bias", "fuse", bn_folding, "Add", "Sub", function="fold_biases"),
    _pass("padding", "fuse", pad, "Pad"),
    _pass("epilogue", "fuse", epilogue, "Add", "Activation", "PRelu", "LayerNormalization"),
    _pass("projections", "fuse", qkv, "Linear"),
    _pass("8-bit results", "fuse", results, "QuantizeLinear", "DequantizeLinear"),
    _pass("8-bit additions", "fuse", additions, "QuantizedAdd"),
    _pass("blocks", "fuse", mark_mbconv, "Conv"),
    _pass("subgraphs", "", subgraphs),
    _pass("dead code", "", cleanup, function="remove_dead"),
    _pass("types", "", float64),
]
# the names of 1.0 stay valid
RENAMED = {"dequantised constants": "dequantized constants"}  # codespell:ignore dequantised


def check_names(disabled):
    """The names of passes as a set, or the error that lists them."""
    known = [each.name for each in PASSES]
    if isinstance(disabled, str):
        raise TypeError(f"disabled_passes takes several names: pass ({disabled!r},)")
    disabled = [RENAMED.get(name, name) for name in disabled]
    unknown = [name for name in disabled if name not in known]
    if unknown:
        raise ValueError(f"there is no pass {unknown[0]!r}; the passes are {', '.join(known)}")
    return frozenset(disabled)


def optimize(graph, *, fold, fuse, disabled=(), packed=None, tell=quiet):
    """Runs the passes on the graph, in place, but those whose names are in `disabled`; returns the list of Fusion and
    Refusal. `packed` has the weights that were packed in graphs around it; `tell` is told what part is done."""
    disabled, packed = check_names(disabled), {} if packed is None else packed
    inner = partial(optimize, fold=fold, fuse=fuse, disabled=disabled, packed=packed)
    context = Context(graph, subgraphs.inline_known(graph), inner, packed)
    for done, each in enumerate(PASSES, 1):
        if each.name not in disabled and (not each.kind or (fold if each.kind == "fold" else fuse)):
            context.run(each)
        tell(done / len(PASSES), each.name)
    if all(v.shape is not None and all(isinstance(n, int) for n in v.shape) for v in graph.inputs):
        graph.known = without_data(context.known)
    return context.report
