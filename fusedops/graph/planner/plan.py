"""Turns a graph with given input shapes into steps over one arena, ready to run: a SymbolicPlan for all sizes of
some axes, and from that a Plan for each set of sizes.

Images stand in memory with their channels last (NHWC); their shapes are written (n, c, h, w) all the same, so that
every operator's axes mean what ONNX says, and a transposed, sliced, split or reshaped value is a view where strides can
express it. What C has no step for runs as a NumPy step between two programs, on the same memory.
"""

import functools
from itertools import groupby, islice
from typing import Any

import numpy as np

from ... import _core
from ..inference.evaluate import evaluate
from ..inference.shape_inference import infer
from ..ir.graph import Node
from ..ir.subgraph import DataDependentShape, branch_of, captured, graphs_of
from ..ir.symbolic import Conditions, concrete, is_symbolic
from ..operators.registry import OPERATORS
from ..operators.schema import Kernel
from ..steps.lowering import LoweringContext, NoKernel
from ..steps.step import Step
from ..steps.tensor import Buffer, TensorView, physical_memory
from . import batch_tiling, mbconv, step_passes
from .step_passes import PlannedSteps


class CallSequence:
    """Steps in a row that run in one call into C."""

    def __init__(self, part, program, idle):
        self._part, self._program, self._idle = part, program, idle

    def _steps(self):
        part = self._part
        return [step for i, step in enumerate(part.steps, part.first) if not self._idle[i]]

    def steps_of(self, plan):
        """Its steps in a plan; it knows none, as a circle of references would keep plans that nobody needs."""
        return [plan.step(step) for step in self._steps()]

    def run(self, slots, times=None):
        try:
            self._program.run(slots, times)
        except _core.StepError as e:
            node = self._steps()[e.step].node
            raise ValueError(f"{node.op} {node.name!r}: {e}") from None


class Evaluation:
    """A step that NumPy computes."""

    def __init__(self, step, graphs):
        self._step, self._graphs = step, graphs
        self._reads = [t.finder() for t in step.reads]
        self._writes: list[Any] = [None if t is None else t.finder() for t in step.writes]
        self._given = [bool(v) for v in step.node.inputs]
        self._ufunc = _ufunc_of(step)

    def steps_of(self, plan):
        return [self._step]

    def run(self, slots, times=None):
        step = self._step
        arrays = [find(slots) for find in self._reads]
        if self._ufunc is not None:
            with np.errstate(all="ignore"):
                self._ufunc(*arrays, out=self._writes[0](slots))
            return
        if step.node.op == "Cast":
            with np.errstate(invalid="ignore", over="ignore"):
                return np.copyto(self._writes[0](slots), arrays[0], casting="unsafe")
        inputs = iter(arrays)
        arrays = [next(inputs) if given else None for given in self._given]
        run_layer, residual = OPERATORS[step.node.op].run_layer, next(inputs, None)
        try:
            results = run_layer and run_layer(step.node, residual, *arrays)
            if results is None:
                results = evaluate(step.node, arrays, residual, self._graphs)
        except IndexError as e:
            raise ValueError(f"{step.node.op} {step.node.name!r}: {e}") from None
        results = results if isinstance(results, (list, tuple)) else [results]
        for find, result in zip(self._writes, results, strict=False):
            if find is not None:
                np.copyto(find(slots), result)


def _ufunc_of(step):
    """NumPy's own function where that alone is all that a step does, in the type of its result; else None."""
    node = step.node
    found = getattr(OPERATORS[node.op].evaluate, "ufunc", None)
    if found is None or node.activation is not None or node.residual or len(step.reads) != found.nin:
        return None
    made = _made_by(found, *(t.dtype for t in step.reads))
    return found if made == step.writes[0].dtype else None


@functools.cache
def _made_by(ufunc, *dtypes):
    """The type that NumPy's function makes of these; None where it takes others, as the call says."""
    try:
        return ufunc(*(np.ones((), dtype) for dtype in dtypes)).dtype
    except TypeError:  # NumPy has no such loop: the call of the network says so
        return None


class Branch(Evaluation):
    """An If: its condition says which graph runs, and that alone reads what it takes."""

    def __init__(self, step, graphs):
        super().__init__(step, graphs)
        node, numbers = step.node, list(range(len(self._reads)))
        self._branches = {
            key: (graph, [self._reads[i] for i in captured(node, key, numbers)])
            for key, graph in graphs_of(node).items()
        }

    def run(self, slots, times=None):
        graph, reads = self._branches[branch_of(self._step.node, self._reads[0](slots))]
        results = self._graphs.call(graph, [find(slots) for find in reads])
        for find, result in zip(self._writes, results, strict=False):
            if find is not None:
                np.copyto(find(slots), result)


class _Part:
    """Steps in a row that become a Program, with formulas for all that depends on sizes."""

    def __init__(self, template, first, steps):
        self.first, self.steps, self.template = first, steps, _core.ProgramTemplate()
        self._latest = None  # the program of the latest sizes, most of whose steps are those of the next
        self.options = [_core.STEPS[step.kind].options_of(step.arguments) for step in steps]
        self.open = [] if not template.env.given else _open(self.options)
        forms = {}
        for section in batch_tiling.sections(steps):
            first = len(self.template)
            for step in steps[section.start : section.stop]:
                given = [step.arguments.get(name) for name in _core.STEPS[step.kind].tensors]
                for a in given:
                    if id(a) not in forms:
                        forms[id(a)] = template.form(a)
                self.template.append(step.kind, [forms[id(a)] for a in given], step.arguments.get("name", step.kind))
            self.template.repeat(first, steps[section.start].tiles)

    def calls(self, idle, values, offsets, constants):
        """The calls of a plan but of the steps that are idle there."""
        options = self.options
        if self.open:
            options = list(options)
            for step, places in self.open:
                given = list(options[step])
                for i in places:
                    given[i] = concrete(given[i], values)
                options[step] = tuple(given)
        self._latest = self.template.program(values, offsets, constants, options, idle, self.first, self._latest)
        return CallSequence(self, self._latest, idle)


def _open(options):
    """(number of a step, the numbers of its options that have open sizes) for each that has some."""
    found = [[i for i, option in enumerate(each) if is_symbolic(option)] for each in options]
    return [(step, places) for step, places in enumerate(found) if places]


class SymbolicPlan:
    """The steps of a graph for input shapes, a dict from name to tuple, that SymInts may be in. `values` has the data
    of the inputs that decide on shapes inside. `threads` affects batch tiling alone, never results. `precision` is
    what products may have. `caches` are kept in memory with room for more: (caches, capacity).

    Attributes
    ----------
    steps : list of Step
    blocks : list of mbconv.Block, of which each plan takes one step or several
    report : list of Fusion and Refusal, what was decided of blocks for all sizes
    refuses : bool, whether a run may end at a value, such as an index outside its axis, with results half written
    """

    def __init__(self, graph, env, shapes, values, layers, threads, graphs=None, precision="float32", caches=((), 0)):
        self.graphs, self.env, self.known = graphs, env, infer(graph, shapes, values, earlier=graph.known)
        _check_arrays(graph, self.known)
        builder = LoweringContext(
            graph, self.known, layers, _logits(graph), _concat_slots(graph, self.known), _kernels, caches
        )
        for node in graph.nodes:
            if any(self.known[v].data is None for v in node.outputs if v):
                _lower(builder, node)
        _write_outputs(builder)
        planned = PlannedSteps(builder.steps, layers, env, batch_of(shapes.values()), threads, precision)
        step_passes.run(planned)
        self.steps, self.blocks, self.report = planned.steps, planned.blocks, planned.report
        self.refuses = any(step.kind == "numpy" or _core.STEPS[step.kind].refuses for step in self.steps)
        self._outputs, self._output_sizes = _results(env, [self.known[v] for v in graph.results])
        self._number(builder.buffers)
        self._blocks = mbconv.numbered(self.blocks, self.steps, env, self._arena)
        self._late = [i for i, c in enumerate(self.constants) if is_symbolic(c)]
        self._conditions = Conditions(env)
        self._layout = None  # (bytes of the buffers, their offsets) of the latest sizes

    def _number(self, buffers):
        """Gives numbers to the buffers of the arena, to constants and sizes, and makes the parts that use them."""
        self.buffers = [b for b in buffers if b.shares is None and b.first >= 0]
        self._arena = {id(b): i for i, b in enumerate(self.buffers)}
        self.constants, self._numbers = [], {}
        self.parts, first = [], 0
        for numpy, group in groupby(self.steps, key=lambda step: step.kind == "numpy"):
            steps = list(group)
            self.parts += steps if numpy else [_Part(self, first, steps)]
            first += len(steps)
        self._bytes = np.array([self.env.number(b.nbytes) for b in self.buffers], np.int64)
        self._first, self._last = (np.array([getattr(b, k) for b in self.buffers], np.int64) for k in ("first", "last"))

    def outputs(self, values):
        """The (shape, dtype) of each output."""
        sizes = iter(values[self._output_sizes].tolist())
        return [(tuple(islice(sizes, nd)), dtype) for nd, dtype in self._outputs]

    def form(self, t):
        """A tensor of a step as _core.ProgramTemplate takes it."""
        if t is None:
            return None
        if not isinstance(t, TensorView):
            return self._constant(t)
        b, number = t.buffer.root(), self.env.number
        slot, source = (b.slot, self._arena.get(id(b), -1)) if b.array is None else (-1, self._constant(b.array))
        return (
            slot,
            source,
            number(t.offset),
            number(t.stride_bytes),
            [number(n) for n in t.shape],
            [number(n) for n in t.strides],
        )

    def offset(self, buffer, offsets):
        """Where a buffer is, given the offsets of those in the arena."""
        return int(offsets[self._arena[id(buffer)]]) if id(buffer) in self._arena else 0

    def _constant(self, array):
        """The number of a constant, which each program has once."""
        if id(array) not in self._numbers:
            self._numbers[id(array)] = len(self.constants)
            self.constants.append(array)
        return self._numbers[id(array)]

    def _lay_out(self, nbytes):
        """(where buffers of so many bytes are, the bytes of all): of a decoder most sizes have the same."""
        key, layout = nbytes.tobytes(), self._layout
        if layout is None or layout[0] != key:
            self._layout = layout = key, _core.lay_out(nbytes, self._first, self._last)
        return layout[1]

    def plan(self, sizes):
        """The Plan for sizes of the inputs, in the environment's order; None where they do not meet its conditions."""
        values = self._conditions.values(sizes)
        if values is None:
            return None
        nbytes = values[self._bytes]
        idle, outcomes = mbconv.take(self._blocks, values, len(self.steps), nbytes)
        offsets, arena = self._lay_out(nbytes)
        if arena > physical_memory():
            raise MemoryError(
                f"the values inside the network take {arena} bytes for inputs of these shapes, "
                "more than this machine has"
            )
        constants = list(self.constants)
        for i in self._late:
            constants[i] = concrete(constants[i], values)
        return Plan(self, values, offsets, arena, constants, idle, outcomes)


def _results(env, known):
    """(the number of axes and the dtype of each result, the numbers of the formulas of all their sizes)."""
    sizes = np.array([env.number(n) for each in known for n in each.shape], np.int64)
    return [(len(each.shape), each.dtype) for each in known], sizes


class Plan:
    """The steps for one set of input shapes.

    Attributes
    ----------
    parts : list of Program and Evaluation, to be run in order
    arena : int, bytes of memory that the values inside the network take
    outputs : list of (shape, dtype)
    used : int, the number of the latest call that ran it
    idle : bytearray, 1 for each step of the template that another takes the place of
    """

    segmented = False

    def __init__(self, template, values, offsets, arena, constants, idle, outcomes):
        self.template, self.arena, self.used, self.idle = template, arena, -1, idle
        self._values, self._buffers, self._outcomes = values, {}, outcomes
        self._offsets = offsets
        self.outputs = template.outputs(values)
        self.parts = []
        for part in template.parts:
            if isinstance(part, _Part):
                self.parts.append(part.calls(idle, values, offsets, constants))
            else:
                kind = Branch if part.node.op == "If" else Evaluation
                self.parts.append(kind(self.step(part), template.graphs))

    def run(self, slots):
        for part in self.parts:
            part.run(slots)

    @property
    def steps(self):
        return [step for part in self.parts for step in part.steps_of(self)]

    @property
    def report(self):
        """The fusions and refusals at these sizes: list of Fusion and Refusal."""
        return [*self.template.report, *mbconv.report(self.template.blocks, self._outcomes, self._values)]

    @property
    def shapes(self):
        """The shape of each value."""
        return {name: concrete(value.shape, self._values) for name, value in self.template.known.items()}

    def step(self, step):
        """A step with the numbers of this plan."""
        found: Any = {id(t): self._tensor(t) for t in (*step.reads, *step.writes) if t is not None}
        arguments = {
            name: found[id(a)] if id(a) in found else concrete(a, self._values) for name, a in step.arguments.items()
        }
        reads, writes = ([found.get(id(t)) for t in ts] for ts in (step.reads, step.writes))
        return Step(step.kind, step.node, arguments, reads, writes, step.inner, step.tiles)

    def _tensor(self, t):
        b = t.buffer.root()
        if id(b) not in self._buffers:
            nbytes, array = concrete(b.nbytes, self._values), concrete(b.array, self._values)
            offset = self.template.offset(b, self._offsets)
            self._buffers[id(b)] = Buffer(nbytes, b.slot, array, offset, b.first, b.last)
        return TensorView(self._buffers[id(b)], *concrete(tuple(t[1:]), self._values))


def _check_arrays(graph, known):
    """Sequences have no place in memory: they are handed on between segments."""
    if any(known[v].dtype == object for v in (*(v.name for v in graph.inputs), *graph.results)):
        error = DataDependentShape("the network passes a sequence on")
        error.known = known
        raise error


def batch_of(shapes):
    """The number of images that inputs of these shapes hold."""
    return next((shape[0] for shape in shapes if shape), 1)


def _concat_slots(graph, known):
    """The images that are written straight into their part of a concatenation along the channels: (concat's node,
    offset in channels)."""
    slots, images = (
        {},
        {
            n.output for n in graph.nodes if OPERATORS[n.op].kernel.writes_strided and _is_image(known[n.output])
        }.difference(graph.results),
    )
    for node in graph.nodes:
        if node.op != "Concat" or node.output not in images or node.attrs["axis"] % 4 != 1:
            continue
        offset = 0
        for v in node.inputs:
            if v in images:
                slots.setdefault(v, (node, offset))
            offset += known[v].shape[1]
    return slots


def _logits(graph):
    """Values that a softmax reads, perhaps by way of pooling, an activation or another shape."""
    producers, found = graph.producers(), set()
    for node in graph.nodes:
        value = node.inputs[0] if OPERATORS[node.op].traits.reads_logits else None
        while value is not None:
            found.add(value)
            node = producers.get(value)
            value = node.inputs[0] if node is not None and OPERATORS[node.op].traits.keeps_logits else None
    return found


def _is_image(known):
    return len(known.shape) == 4 and known.dtype in (np.float32, np.uint8, np.int8) and known.data is None


def _kernels(builder, node):
    """Whether the operator's kernel has steps for this node, which it adds."""
    kernel, made = OPERATORS[node.op].kernel, next(v for v in node.outputs if v)
    return isinstance(kernel, Kernel) and builder.known[made].dtype in kernel.dtypes and kernel.lower(builder, node)


def _lower(builder, node):
    if builder.lower(node):
        return
    reads = [builder.at(v) for v in node.reads()]
    writes = [builder.result(v) if v else None for v in node.outputs]
    builder.numpy(node, reads, writes)


def _write_outputs(builder):
    """Copies what stands elsewhere to the network's outputs."""
    for output, v, target in zip(builder.graph.outputs, builder.graph.results, builder.outputs, strict=True):
        if builder.at(v).buffer is target.buffer:
            continue
        node = Node("Identity", f"output {output.name}", [v], [v])
        try:
            builder.copy(node, builder.at(v), target)
        except NoKernel:
            builder.numpy(node, [builder.at(v)], [target])
