"""PyTorch modules as networks: read from torch's graph export, or else from its tracing exporter to ONNX, and compared
with the module."""

import contextlib
import io
import logging
import traceback
import warnings
from threading import Lock
from typing import NamedTuple

from ...._internal.progress import quiet
from ...ir.graph import Graph
from ..onnx.reader import read_onnx
from . import aten, verify
from .detector_ops import without_decisions
from .examples import Example, in_order
from .fx_reader import FxReader
from .fx_values import Unsupported
from .in_place import is_plain
from .nn_layers import import_torch, no_module
from .packed_ops import difference, padded
from .progress import progress
from .rnn_ops import Lengths, whole
from .value_dependence import is_inside, line_of, look_at_values

LOGGER = logging.getLogger("fusedops")
OPSET = 17  # of the tracing exporter
MOST = 4096  # the largest size that is tried beyond the example's
_LOCK = Lock()  # torch's export changes torch itself while it lasts


def read_torch(module, example_inputs, dynamic_shapes, build, tell=quiet):
    """The network of a module in eval mode; `build` makes a Model of a Graph, and `tell` is told what part is done.

    Each way to read it is tried until one gives a network whose results are the module's: torch's graph export with
    open sizes, with the sizes of the example, and the tracing exporter where export fails."""
    torch = import_torch()
    if is_program(module):
        return _read_program(torch, module, example_inputs, dynamic_shapes, build)
    if not isinstance(module, torch.nn.Module):
        raise no_module(module)
    example = Example(torch, example_inputs, in_order(module, example_inputs, dynamic_shapes))
    with _LOCK, _as_for_inference(torch, module), progress("from_torch", tell is not quiet) as line:

        def says(part, text):
            line(text)
            tell(part, text)

        says(0.0, "the module computes the example")
        names, expected = _results(torch, module, example)
        reasons, outside = [], []
        for tried, read in enumerate((_exported_doubled, _exported, _fixed, _traced)):
            try:
                says(0.1 + 0.2 * tried, "torch traces the module" if read is _traced else "torch exports the module")
                candidate = read(torch, module, example)
                outside += candidate.beyond
                if candidate.program is None:  # what is traced does not know what export took for granted
                    candidate = candidate._replace(beyond=outside)
                says(0.2 + 0.2 * tried, "network and module are compared")
                found = _tried(candidate, module, example, build, names, expected)
            except Unsupported as e:
                reasons.append(str(e))
                if str(e):
                    LOGGER.info("from_torch: %s: %s", read.__name__.strip("_"), e)
                continue
            if not isinstance(found, str):
                tell(1.0)
                for w in candidate.warnings:
                    warnings.warn_explicit(w.message, w.category, w.filename, w.lineno)
                return found
            LOGGER.info("from_torch: %s: %s", read.__name__.strip("_"), found)
            reasons.append(found)
    first, last = next(r for r in reasons if r), reasons[-1]
    more = f"; and traced: {last}" if last not in ("", first) else ""
    raise ValueError(f"the module cannot be loaded: {first}{more}")


def is_program(module):
    return isinstance(module, import_torch().export.ExportedProgram)


def _read_program(torch, exported, example_inputs, dynamic_shapes, build):
    """The network of a program of torch.export, with the sizes that it has open, compared with the program."""
    if dynamic_shapes is not None:
        raise TypeError("an exported program has its open sizes: pass dynamic_shapes to torch.export.export")
    if example_inputs is None and not exported.example_inputs:
        raise TypeError("the exported program has no example inputs: pass some, from_torch(program, example_inputs)")
    given, named = exported.example_inputs if example_inputs is None else (example_inputs, {})
    example = Example(torch, given)
    example.add_named(named)
    module = exported.module()
    with _LOCK, _as_for_inference(torch, module):
        names, expected = _results(torch, module, example)
        try:
            program = _program(torch, exported, {})
        except Unsupported as e:
            raise ValueError(f"the program cannot be loaded: {e}") from e
        sizes, beyond = _other_sizes(program, example.sizes(), exported.range_constraints)
        found = _tried(Candidate(program.graph, program, sizes, beyond), module, example, build, names, expected)
    if isinstance(found, str):
        raise ValueError(f"the program cannot be loaded: {found}")
    return found


class Candidate(NamedTuple):
    """A way in which a module was read."""

    graph: Graph
    program: FxReader | None  # where torch's graph export was
    sizes: list  # shapes of the inputs, other than the example's, to compare in
    beyond: list  # shapes outside those that were exported, which the network may refuse
    warnings: tuple = ()  # of torch, for the user if this one is taken


def _tried(candidate, module, example, build, names, expected):
    """The Model of a candidate, or why it is not the module's network; `expected` are the module's results."""
    graph, program = candidate.graph, candidate.program
    if len(graph.outputs) != len(names):
        return f"it has {len(graph.outputs)} results, not {len(names)}"
    for value, name in zip(graph.outputs, names, strict=True):
        value.name = name
    example.casts = verify.casts_of(graph)
    try:
        model = build(graph)
    except ValueError as e:  # sizes or values that do not fit
        return str(e)
    sizes, beyond = candidate.sizes, candidate.beyond
    wrong = verify.difference(model, module, example, expected, sizes, traced=program is None, beyond=beyond)
    if wrong is None:
        return model
    text, own = wrong
    where = ""
    if own and program is not None:
        with contextlib.suppress(Exception):  # the finding stands without the place
            where = verify.first_difference(example.torch, program, graph, example)
    return f"it would not compute what the module does: {text}" + (f" ({where})" if where else "")


def _results(torch, module, example):
    """(a name for each tensor that the module returns: its key in a dict, its place in a tuple; the tensors)."""
    pytree = torch.utils._pytree
    try:
        made = example.call(module, example.leaves)
    except (RuntimeError, TypeError, ValueError, IndexError) as e:
        kind = TypeError if isinstance(e, TypeError) else ValueError
        raise kind(
            f"the module cannot compute the example inputs {example}: {_first_line(e)}; pass an example that it takes"
        ) from e
    names, tensors = [], []
    for path, leaf in pytree.tree_flatten_with_path(made)[0]:
        if isinstance(leaf, torch.Tensor):
            parts = [str(getattr(k, "key", getattr(k, "name", getattr(k, "idx", k)))) for k in path]
            name = ".".join(parts) if parts and not parts[0].isdigit() else "_".join(["output", *parts])
            names.append(name if name not in names else f"{name}.{len(names)}")
            tensors.append(leaf.clone())  # a module may change what it returned
    if not names:
        raise ValueError(f"the module returns {type(made).__name__} without a tensor in it")
    return names, tensors


# ---- torch's graph export


def _exported_doubled(torch, module, example):
    """With 2 for each open size of 1, which export takes for fixed."""
    if not any(example.leaves[i].shape[a] == 1 for i, a in example.open):
        raise Unsupported("")
    shapes = [
        tuple(2 if n == 1 and (i, a) in example.open else n for a, n in enumerate(x.shape))
        for i, x in enumerate(example.leaves)
    ]
    return _export(torch, module, example, example.resized(shapes), example.open)


def _exported(torch, module, example):
    if all(example.leaves[i].shape[a] == 1 for i, a in example.open):
        raise Unsupported("")  # nothing would be open
    return _export(torch, module, example, example.leaves, example.open)


def _fixed(torch, module, example):
    """With the sizes of the example, where the caller asked for no others."""
    if example.wanted:
        raise Unsupported("")
    return _export(torch, module, example, example.leaves, {})


def _export(torch, module, example, leaves, open_sizes):
    shapes = torch.export.ShapesCollection()
    for i, x in enumerate(leaves):
        axes = {a: torch.export.Dim.AUTO for j, a in open_sizes if i == j}
        if axes:
            shapes[x] = axes
    args, kwargs = example.replaced(example.args, leaves), example.replaced(example.kwargs, leaves)
    options = dict(dynamic_shapes=shapes if open_sizes else None, strict=False)
    with without_decisions(torch):
        exported = _as_exported(torch, example, lambda: torch.export.export(module, args, kwargs, **options))
    wrong = difference(torch, module, example) if example.packs else None
    if wrong:
        raise Unsupported(f"what it computes of packed sequences is not the same of padded sequences: {wrong}")
    program = _program(torch, exported, open_sizes)
    fixed = [(i, a) for i, a in open_sizes if isinstance(program.graph.inputs[i].shape[a], int)]
    for i, a in fixed:
        other = leaves[i].shape[a] != example.leaves[i].shape[a]
        if other or (i, a) in example.wanted or len(fixed) == len(open_sizes):
            raise Unsupported(f"the module fixes the size of dimension {a} of {program.graph.inputs[i].name!r}")
    return Candidate(program.graph, program, *_other_sizes(program, example.sizes(), exported.range_constraints))


def _as_exported(torch, example, run):
    """Exports the module. Sequences stay padded only for modules that need it: another thread that compiles what packs
    would see torch changed."""
    with whole(torch):
        if not example.packs:
            try:
                made = _quietly(torch, run)
                if not any("_pack_padded_sequence" in str(n.target) for n in made.graph.nodes):
                    return made
            except Unsupported:
                if example.packs is False:
                    raise
        with padded(torch) as steps:
            try:
                return _quietly(torch, run)
            except Unsupported as e:
                if f"{Lengths} in output" in str(e):
                    todo = "return what pad_packed_sequence makes of them"
                    raise Unsupported(f"packed sequences and their batch sizes cannot be results: {todo}") from e
                raise
            finally:
                example.packs = bool(steps)


def _quietly(torch, run):
    """Exports the module without torch's pages of logs and warnings; if that fails, raises Unsupported with the
    line."""
    disabled = logging.root.manager.disable
    try:
        logging.disable(logging.CRITICAL)
        with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):  # where it prints graphs that fail
            warnings.simplefilter("ignore")
            return run()
    except Exception as e:  # torch raises errors of many kinds here
        line = line_of(torch, [(f.f_code.co_filename, n) for f, n in traceback.walk_tb(e.__traceback__)])
        raise Unsupported(f"torch cannot export it{line}: {_first_line(e)}") from e
    finally:
        logging.disable(disabled)


def _first_line(error):
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def _program(torch, exported, names):
    """The program as a graph. One with changes in place that views see, or with operators that have no reader, is
    brought to simpler ones first."""
    plain = is_plain(exported.graph_module, exported.graph_signature.user_inputs)
    first = exported if plain else _quietly(torch, lambda: exported.run_decompositions({}))
    try:
        return FxReader(torch, first, aten.READERS, names)
    except RuntimeError as e:  # torch cannot say what a constant holds
        raise Unsupported(_first_line(e)) from e
    except Unsupported as unknown:
        with contextlib.suppress(Unsupported):
            return FxReader(torch, _quietly(torch, exported.run_decompositions), aten.READERS, names)
        raise unknown


def _other_sizes(program, sizes, ranges):
    """Shapes of the inputs that differ from the example's where sizes are open: each one more, each one, the next of
    those that export says are multiples, those just outside the ranges that export takes for granted; as ([within all
    ranges], [outside])."""
    pairs = [zip(value, shape, strict=True) for value, shape in zip(program.opened, sizes, strict=True)]
    example = {e: n for pair in pairs for e, n in pair if e is not None}
    if not example:
        return [], []
    chosen = [{e: n + 1 for e, n in example.items()}, dict.fromkeys(example, 1)]
    if any(not e.is_Symbol for e in example):
        chosen.append({e: 2 * n for e, n in example.items()})
    for s in example.keys() & ranges.keys():
        chosen += [example | {s: int(ranges[s].lower) - 1}] if ranges[s].lower > 2 else []
        chosen += [example | {s: int(ranges[s].upper) + 1}] if ranges[s].upper < MOST else []

    def is_outside(new):
        return any(n > ranges[e].upper or 2 < ranges[e].lower > n for e, n in new.items() if e in ranges)

    def shape(of, value, new):
        return tuple(n if e is None else new[e] for n, e in zip(of, value, strict=True))

    def shapes(each):
        return [[shape(s, v, new) for s, v in zip(sizes, program.opened, strict=True)] for new in each]

    return shapes(e for e in chosen if not is_outside(e)), shapes(filter(is_outside, chosen))


# ---- the tracing exporter


def _traced(torch, module, example):
    """By torch's tracing exporter to ONNX. It freezes what Python decides: its warnings are the user's to see."""
    try:
        seen = look_at_values(torch, module, example)
    except Exception as e:  # torch raises errors of many kinds here
        raise Unsupported(_first_line(e)) from e
    if seen is not None:
        raise ValueError(
            f"the module decides in Python by a value that only a call knows{seen}, but a network runs "
            "the same nodes for all inputs: compute with tensors, as torch.where does, instead of with "
            "bool(), int(), float(), item() or NumPy"
        )
    try:
        import onnx  # noqa: F401
    except ImportError:
        raise Unsupported("") from None
    args = (*example.args, example.kwargs) if example.kwargs else example.args
    names = [f"input_{i}" for i in range(len(example.leaves))]
    axes = {}
    for (i, a), name in example.open.items():
        axes.setdefault(names[i], {})[a] = name or ("batch" if a == 0 else f"{names[i]}.{a}")
    file = io.BytesIO()
    try:
        keep = torch.onnx.TrainingMode.PRESERVE  # or torch folds batch norms itself
        with warnings.catch_warnings(record=True) as warned, _without_log(torch), without_decisions(torch):
            warnings.simplefilter("always")
            torch.onnx.export(
                module,
                args,
                file,
                input_names=names,
                verbose=False,
                dynamo=False,
                dynamic_axes=axes,
                opset_version=OPSET,
                training=keep,
            )
        graph = read_onnx(file.getvalue())
    except Exception as e:  # torch raises errors of many kinds here
        raise Unsupported(_first_line(e)) from e
    shapes = example.sizes()
    other = [
        [tuple(size(n) if (i, a) in example.open else n for a, n in enumerate(s)) for i, s in enumerate(shapes)]
        for size in (lambda n: n + 1, lambda n: 1, lambda n: 2 * n + 3)
    ]
    told = [w for w in warned if issubclass(w.category, torch.jit.TracerWarning) and not is_inside(w.filename, torch)]
    return Candidate(graph, None, other, [], tuple(told))


@contextlib.contextmanager
def _without_log(torch):
    """Without the pages that the tracing exporter prints of a graph that it cannot write, its log on or off."""
    log = getattr(torch._C, "_jit_onnx_log", None)
    torch._C._jit_onnx_log = lambda *_: None
    try:
        yield
    finally:
        torch._C._jit_onnx_log = log


# ---- the module


@contextlib.contextmanager
def _as_for_inference(torch, module):
    """The module in eval mode, without gradients, and without the one kernel that torch has for attention."""
    training, fast_path = {m: m.training for m in module.modules()}, torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    with contextlib.suppress(NotImplementedError):  # what torch has exported is for one mode only
        module.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast_path)
        for m, before in training.items():
            m.training = before
