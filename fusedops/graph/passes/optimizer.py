"""What is done to a graph before it is planned: each pass changes it, and tells what it did or why it did not.

`fold` switches the passes that compute with constants alone, `fuse` those that let one kernel do the work of several.
What belongs to neither, such as the removal of identities, saves nothing that anyone would want to measure, and is
always done.
"""

from functools import partial
from typing import NamedTuple

from ..inference.shape_inference import without_data
from . import (
    activation_patterns,
    attention_fusion,
    blocked_weights,
    bn_folding,
    cleanup,
    computed_parameters,
    constant_folding,
    epilogue,
    float64,
    heads,
    linear,
    mark_mbconv,
    nbits_weights,
    pad,
    qkv,
    rms_norm,
    subgraphs,
)
from .context import Context
from .qdq import additions, qlayers, results


class Pass(NamedTuple):
    name: str
    kind: str  # "fold", "fuse", or "" for always
    run: object
    ops: frozenset | None = None  # operators of which a graph must have one, or the pass finds nothing


def _pass(name, kind, run, *ops):
    return Pass(name, kind, run, frozenset(ops) or None)


PASSES = [
    _pass("constant folding", "fold", constant_folding.run),
    _pass("clean-up", "", cleanup.run),
    _pass("weights in blocks", "fuse", blocked_weights.run, "DequantizeLinear"),
    _pass("packed weights", "fuse", nbits_weights.pack, "MatMulBits"),
    _pass("unpacked weights", "", nbits_weights.dequantize, "MatMulBits"),
    _pass("8-bit layers", "fuse", qlayers.run, *qlayers.QUANTIZED),
    _pass("dequantized constants", "fold", constant_folding.dequantized, "DequantizeLinear", "DequantizeBits"),
    _pass("linear", "", linear.run, "MatMul", "Gemm"),
    _pass("computed operands", "", computed_parameters.run, *computed_parameters.PARAMETERS),
    _pass("activation patterns", "fuse", activation_patterns.run, *activation_patterns.ROOTS),
    _pass("norms", "fuse", rms_norm.run, "ReduceMean"),
    _pass("heads", "fuse", heads.run, "Softmax"),
    _pass("batch norm", "fold", bn_folding.fold_scales, "BatchNormalization", *bn_folding.ARITHMETIC),
    _pass("attention", "fuse", attention_fusion.run, "Softmax"),
    _pass("bias", "fuse", bn_folding.fold_biases, "Add", "Sub"),
    _pass("padding", "fuse", pad.run, "Pad"),
    _pass("epilogue", "fuse", epilogue.run, "Add", "Activation", "PRelu", "LayerNormalization"),
    _pass("projections", "fuse", qkv.run, "Linear"),
    _pass("8-bit results", "fuse", results.run, "QuantizeLinear", "DequantizeLinear"),
    _pass("8-bit additions", "fuse", additions.run, "QuantizedAdd"),
    _pass("blocks", "fuse", mark_mbconv.run, "Conv"),
    _pass("subgraphs", "", subgraphs.run),
    _pass("dead code", "", cleanup.remove_dead),
    _pass("types", "", float64.run),
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


def optimize(graph, *, fold, fuse, disabled=(), packed=None):
    """Runs the passes on the graph, in place, but those whose names are in `disabled`; returns the list of Fusion and
    Refusal. `packed` has the weights that were packed in graphs around it."""
    disabled, packed = check_names(disabled), {} if packed is None else packed
    inner = partial(optimize, fold=fold, fuse=fuse, disabled=disabled, packed=packed)
    context = Context(graph, subgraphs.inline_known(graph), inner, packed)
    for each in PASSES:
        if each.name not in disabled and (not each.kind or (fold if each.kind == "fold" else fuse)):
            context.run(each)
    if all(v.shape is not None and all(isinstance(n, int) for n in v.shape) for v in graph.inputs):
        graph.known = without_data(context.known)
    return context.report
