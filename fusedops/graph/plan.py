"""Turns a graph with given input shapes into steps over one arena, ready to run.

Images stand in memory with their channels last (NHWC); their shapes are written (n, c, h, w) all the same, so that every operator's axes mean
what ONNX says, and a transposed, sliced, split or reshaped value is a view where strides can express it. What C has no step for runs as a
NumPy step between two programs, on the same memory.
"""
import math

import numpy as np

from .. import _core
from . import blocks, slices
from .builder import Builder
from .control import Undetermined
from .evaluate import evaluate
from .ir import Node
from .memory import Tensor, channels_last, lay_out, physical_memory, same_order
from .operators import OPERATORS
from .shapes import infer
from .steps import RULES


class Program:
    """Steps in a row that run in one call into C."""

    def __init__(self, steps):
        self.steps, self.program = steps, _core.Program()
        for section in slices.sections(steps):
            first = len(self.program)
            for step in steps[section.start:section.stop]:
                self.program.append(step.kind, **{name: a.argument if isinstance(a, Tensor) else a for name, a in step.arguments.items()})
            self.program.repeat(first, step.slices)

    def run(self, slots, times=None):
        self.program.run(slots, times)


class Evaluation:
    """A step that NumPy computes."""

    def __init__(self, step):
        self.steps = [step]

    def run(self, slots, times=None):
        step, = self.steps
        if step.node.op == "Cast":
            with np.errstate(invalid="ignore", over="ignore"):
                return np.copyto(step.writes[0].array(slots), step.reads[0].array(slots), casting="unsafe")
        inputs = iter([t.array(slots) for t in step.reads])
        try:
            results = evaluate(step.node, [next(inputs) if v else None for v in step.node.inputs], next(inputs, None))
        except IndexError as e:
            raise ValueError(f"{step.node.op} {step.node.name!r}: {e}") from None
        for t, result in zip(step.writes, results, strict=False):
            if t is not None:
                np.copyto(t.array(slots), result)


class Plan:
    """The steps for one set of input shapes, a dict from name to tuple; `values` has the data of the inputs that decide on shapes inside.
    `threads` decides with how many images of a batch at once a step should run, not on results.

    Attributes
    ----------
    parts : list of Program and Evaluation, to be run in order
    arena : int, bytes of memory that the values inside the network take
    outputs : list of (shape, dtype)
    shapes : dict from each value to its shape
    used : int, the number of the latest call that ran it
    report : list of Fusion and Refusal, the blocks that one kernel computes at these sizes and those that it does not
    """

    staged = False

    def __init__(self, graph, shapes, values, layers, threads):
        known = infer(graph, shapes, values)
        _check_arrays(graph, known)
        builder = Builder(graph, known, layers, _logits(graph), _homes(graph, known))
        for node in graph.nodes:
            if any(known[v].data is None for v in node.outputs if v):
                _lower(builder, node)
        _write_outputs(builder)
        slices.choose(builder.steps, batch_of(shapes.values()), threads)
        self.steps, self.report = blocks.merge(builder)
        _space_pixels(self.steps)
        slices.cut(self.steps)
        _share(self.steps)
        self.arena = _arena(builder.buffers)
        self.used = -1
        self.shapes = {name: value.shape for name, value in known.items()}
        self.outputs = [(known[v].shape, known[v].dtype) for v in graph.results]
        self.parts, run = [], []
        for step in self.steps:
            if step.kind == "numpy":
                self.parts += [Program(run)] * bool(run) + [Evaluation(step)]
                run = []
            else:
                run.append(step)
        self.parts += [Program(run)] * bool(run)

    def run(self, slots):
        for part in self.parts:
            part.run(slots)


def _check_arrays(graph, known):
    """Sequences have no place in memory: they are handed on between stages."""
    if any(known[v].dtype == object for v in (*(v.name for v in graph.inputs), *graph.results)):
        error = Undetermined("the network passes a sequence on")
        error.known = known
        raise error


def batch_of(shapes):
    """The number of images that inputs of these shapes hold."""
    return next((shape[0] for shape in shapes if shape), 1)


def _homes(graph, known):
    """The images that are written straight into their part of a concatenation along the channels: (concat's node, offset in channels)."""
    homes, images = {}, {n.output for n in graph.nodes if OPERATORS[n.op].anywhere and _is_image(known[n.output])}.difference(graph.results)
    for node in graph.nodes:
        if node.op != "Concat" or node.output not in images or node.attrs["axis"] % 4 != 1:
            continue
        offset = 0
        for v in node.inputs:
            if v in images:
                homes.setdefault(v, (node, offset))
            offset += known[v].shape[1]
    return homes


def _logits(graph):
    """Values that a softmax reads, perhaps by way of pooling, an activation or another shape."""
    producers, found = graph.producers(), set()
    for node in graph.nodes:
        value = node.inputs[0] if OPERATORS[node.op].logits else None
        while value is not None:
            found.add(value)
            node = producers.get(value)
            value = node.inputs[0] if node is not None and OPERATORS[node.op].weightless else None
    return found


def _is_image(known):
    return len(known.shape) == 4 and known.dtype == np.float32 and known.data is None


def _lower(builder, node):
    lower, made = OPERATORS[node.op].lower, next(v for v in node.outputs if v)
    if callable(lower) and builder.known[made].dtype == np.float32 and lower(builder, node):
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
        if target.dtype == np.float32:
            builder.copy(node, builder.at(v), target)
        else:
            builder.numpy(node, [builder.at(v)], [target])


def _space_pixels(steps):
    """Lets the pixels of an image stand as far apart as the convolution that reads it wants, where convolutions alone use its memory."""
    users = {}
    for step in steps:
        for t in step.tensors():
            users.setdefault(id(t.buffer), []).append((step, t))
    for step in steps:
        x = step.arguments["x"] if step.kind == "conv2d" else None
        floats = x and step.arguments["layer"]._pixel()
        if not x or floats == x.shape[1] or x.buffer.array is not None or x.buffer.slot:
            continue
        using, dense = users[id(x.buffer)], channels_last(x.shape)
        if any(s.kind != "conv2d" or t.shape != x.shape or not t.whole() or not same_order(x.shape, t.strides, dense) for s, t in using):
            continue
        n, _, *pixels = x.shape
        spaced = x._replace(strides=channels_last((n, floats, *pixels)))
        x.buffer.nbytes = math.prod((n, floats, *pixels)) * x.dtype.itemsize
        for s, t in using:
            s.replace({name: spaced for name, a in s.arguments.items() if a is t})


def _share(steps):
    """Lets element-wise steps work in place: the result continues the memory of an input that nothing reads afterwards."""
    for i, step in enumerate(steps):
        if step.kind not in RULES or not RULES[step.kind].in_place:
            continue
        x, y = step.reads[0], step.writes[0]
        a, b = x.buffer.root(), y.buffer
        ours = all(t.array is None and t.slot == 0 for t in (a, b)) and a is not b
        alone = all(t.buffer.root() is not a or t.strides == x.strides for t in step.reads)
        if ours and alone and a.last == i and b.first == i and x.whole() and y.whole() and x.strides == y.strides:
            b.shares, a.last = a, b.last


def _arena(buffers):
    """Lays the buffers out; returns the bytes that they take."""
    arena = lay_out([b for b in buffers if b.shares is None and b.first >= 0])
    if arena > physical_memory():
        raise MemoryError(f"the values inside the network take {arena} bytes for inputs of these shapes, more than this machine has")
    return arena
