"""Turns a graph with given input shapes into steps over one arena, ready to run.

Images stand in memory with their channels last (NHWC); their shapes are written (n, c, h, w) all the same, so that every operator's axes mean
what ONNX says, and a transposed, sliced, split or reshaped value is a view where strides can express it. What C has no step for runs as a
NumPy step between two programs, on the same memory.
"""
import math
from dataclasses import dataclass, replace

import numpy as np

from .. import _core
from ..layers import DepthwiseSeparable, InvertedResidual
from . import slices
from .evaluate import evaluate
from .ir import Node
from .lower import LOWER, STRIDED
from .memory import Buffer, Tensor, channels_last, in_order_of, lay_out, reshaped, row_major, same_order
from .passes import Fusion, Refusal
from .shapes import infer, physical_memory


@dataclass(slots=True, eq=False)
class Step:
    """One step: a method of _core.Program with its arguments, or (kind "numpy") a node to evaluate; `inner` are the nodes before it that
    it computes too, `slices` the parts of the batch that it runs on one after the other."""
    kind: str
    node: Node
    arguments: tuple
    reads: list[Tensor]
    writes: list[Tensor]
    inner: tuple[Node, ...] = ()
    slices: int = 1

    def tensors(self):
        return [t for t in (*self.reads, *self.writes) if t is not None]

    def replace(self, arguments):
        """Takes other tensors, by the place of the argument that each replaces."""
        by_old = {id(self.arguments[i]): t for i, t in arguments.items()}
        self.arguments = tuple(by_old.get(id(a), a) for a in self.arguments)
        self.reads, self.writes = ([by_old.get(id(t), t) for t in ts] for ts in (self.reads, self.writes))


class Program:
    """Steps in a row that run in one call into C."""

    def __init__(self, steps):
        self.steps, self.program = steps, _core.Program()
        for section in slices.sections(steps):
            first = len(self.program)
            for step in steps[section.start:section.stop]:
                getattr(self.program, step.kind)(*[a.argument if isinstance(a, Tensor) else a for a in step.arguments])
            self.program.repeat(first, step.slices)

    def run(self, slots, times=None):
        self.program.run(slots, times)


class Evaluation:
    """A step that NumPy computes."""

    def __init__(self, step):
        self.steps = [step]

    def run(self, slots, times=None):
        step, = self.steps
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

    def __init__(self, graph, shapes, values, layers, threads):
        builder = _Builder(graph, shapes, values, layers, threads)
        self.steps, self.arena, self.report = builder.steps, builder.arena, builder.report
        self.used = -1
        self.shapes = {name: known.shape for name, known in builder.known.items()}
        self.outputs = [(builder.known[v].shape, builder.known[v].dtype) for v in graph.results]
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


def batch_of(shapes):
    """The number of images that inputs of these shapes hold."""
    return next((shape[0] for shape in shapes if shape), 1)


class _Builder:
    """What the lowering of a node may use: shapes, tensors, new steps and prepared layers."""

    def __init__(self, graph, shapes, values, layers, threads):
        self.graph, self.layers, self.steps, self.buffers, self.report = graph, layers, [], [], []
        self.known, self.logits = infer(graph, shapes, values), graph.logits()
        self.places = {v.name: self._slot(i, self.known[v.name]) for i, v in enumerate(graph.inputs, 1)}
        self.targets = {}
        for i, v in enumerate(graph.results, 1 + len(graph.inputs)):
            self.targets.setdefault(v, self._slot(i, self.known[v]))
        self.homes = self._homes()
        for node in graph.nodes:
            if any(self.known[v].data is None for v in node.outputs if v):
                self._lower(node)
        self._finish(batch_of(shapes.values()), threads)

    @staticmethod
    def _slot(i, known):
        nbytes = math.prod(known.shape) * known.dtype.itemsize
        return Tensor(Buffer(nbytes, slot=i), known.shape, row_major(known.shape), known.dtype)

    # ---- where values stand

    def _homes(self):
        """The images that are written straight into their part of a concatenation along the channels: (concat's node, offset in channels)."""
        homes, images = {}, {n.output for n in self.graph.nodes if n.op in STRIDED and self._is_image(n.output)} - self.targets.keys()
        for node in self.graph.nodes:
            if node.op != "Concat" or node.output not in images or node.attrs["axis"] % 4 != 1:
                continue
            offset = 0
            for v in node.inputs:
                if v in images:
                    homes.setdefault(v, (node, offset))
                offset += self.known[v].shape[1]
        return homes

    def _is_image(self, value):
        known = self.known[value]
        return len(known.shape) == 4 and known.dtype == np.float32 and known.data is None

    def at(self, value):
        """The tensor of a value."""
        if value not in self.places:
            data = self.known[value].data
            data = np.ascontiguousarray(data).reshape(data.shape)  # NumPy gives a scalar an axis here
            self.places[value] = Tensor(Buffer(data.nbytes, array=data), data.shape, row_major(data.shape), data.dtype)
        return self.places[value]

    def data(self, value):
        """A value's data where it is known before the network runs, else None."""
        return self.known[value].data if value else None

    def new(self, shape, strides=None, dtype=np.dtype(np.float32)):
        """A tensor in the arena."""
        buffer = Buffer(int(np.prod(shape, dtype=np.int64)) * dtype.itemsize)
        self.buffers.append(buffer)
        return Tensor(buffer, tuple(shape), row_major(shape) if strides is None else strides, dtype)

    def result(self, value, like=None, image=False, direct=True):
        """Where a node writes a value: an output of the network (if `direct`), its part of a concatenation, or new memory, in which an
        image has its channels last and another value the order of the tensor `like`."""
        known = self.known[value]
        if value in self.targets and direct:
            t = self.targets[value]
        elif value in self.homes:
            node, offset = self.homes[value]
            whole = self.places.get(node.output) or self.result(node.output, image=True)
            t = Tensor(whole.buffer, known.shape, whole.strides, known.dtype, whole.offset + offset * whole.strides[1] * known.dtype.itemsize)
        elif image and len(known.shape) > 2:
            t = self.new(known.shape, channels_last(known.shape), known.dtype)
        elif like is not None and like.shape == known.shape:
            t = self.new(known.shape, in_order_of(known.shape, like.strides), known.dtype)
        else:
            t = self.new(known.shape, None, known.dtype)
        self.places[value] = t
        return t

    def view(self, value, tensor):
        """Lets a value be a view of memory that exists."""
        self.places[value] = tensor

    # ---- steps

    def add(self, kind, node, *arguments, writes):
        """Adds a step of a program; the tensors among its arguments, but those it writes, are what it reads."""
        writes = [writes] if isinstance(writes, Tensor) else writes
        reads = [a for a in arguments if isinstance(a, Tensor) and not any(a is t for t in writes)]
        self.steps.append(Step(kind, node, arguments, reads, writes))

    def copy(self, node, x, y):
        self.add("copy", node, x, y, writes=y)

    def dense(self, node, x, strides):
        """x with exactly these strides, copied if need be."""
        if same_order(x.shape, x.strides, strides):
            return x
        y = self.new(x.shape, strides, x.dtype)
        self.copy(node, x, y)
        return y

    def image(self, node, value):
        """The tensor of an image as (n, c, h, w) with its channels or its columns as neighbours; (n, c, w) gets h = 1."""
        x = self.as_2d(self.at(value))
        x = x._replace(strides=tuple(1 if n == 1 else s for n, s in zip(x.shape, x.strides, strict=True)))
        return x if 1 in (x.strides[1], x.strides[3]) else self.dense(node, x, channels_last(x.shape))

    def pixels(self, node, value):
        """The tensor of an image as (n, c, h, w) with its channels as neighbours."""
        x = self.image(node, value)
        return x if x.strides[1] == 1 else self.dense(node, x, channels_last(x.shape))

    @staticmethod
    def as_2d(x):
        """A tensor (n, c, w) as (n, c, 1, w)."""
        if len(x.shape) == 4:
            return x
        n, c, w = x.shape
        return x._replace(shape=(n, c, 1, w), strides=(*x.strides[:2], w * x.strides[2], x.strides[2]))

    def reshape(self, node, x, shape):
        """x under another shape, as a view where strides allow."""
        strides = reshaped(x.shape, x.strides, shape)
        if strides is None:
            x = self.dense(node, x, row_major(x.shape))
            strides = row_major(shape)
        return x._replace(shape=tuple(shape), strides=strides)

    def layer(self, key, make):
        """The prepared layer of a node, whose name is the key, or of a block: made once, shared by the plans of all shapes."""
        if key not in self.layers:
            self.layers[key] = make()
        return self.layers[key]

    def _lower(self, node):
        lower, made = LOWER.get(node.op), next(v for v in node.outputs if v)
        if lower is not None and self.known[made].dtype == np.float32 and lower(self, node):
            return
        reads = [self.at(v) for v in node.reads()]
        writes = [self.result(v) if v else None for v in node.outputs]
        self.steps.append(Step("numpy", node, (), reads, writes))

    # ---- memory

    def _finish(self, batch, threads):
        for i, v in enumerate(self.graph.results, 1 + len(self.graph.inputs)):
            target = self._slot(i, self.known[v])
            if self.places.get(v) is None or self.places[v].buffer.slot != i:
                kind = "copy" if target.dtype == np.float32 else "numpy"
                node = Node("Identity", f"output {self.graph.outputs[i - 1 - len(self.graph.inputs)].name}", [v], [v])
                self.steps.append(Step(kind, node, (self.at(v), target), [self.at(v)], [target]))
        slices.choose(self.steps, batch, threads)
        self._merge_blocks()
        self._space_pixels()
        slices.cut(self.steps)
        self._share()
        self.arena = lay_out([b for b in self.buffers if b.shares is None and b.first >= 0])
        if self.arena > physical_memory():
            raise MemoryError(f"the values inside the network take {self.arena} bytes for inputs of these shapes, more than this machine has")

    def _merge_blocks(self):
        """Lets one kernel compute the convolutions of a block (see passes/blocks.py) where that is faster for these sizes. Of two blocks that share
        a convolution the longer one comes first, for it saves more: 64 -> 128 of MobileNetV1 with the layers before it."""
        writers, inside = {id(t.buffer): step for step in self.steps for t in step.writes if t is not None}, set()
        for step in sorted(self.steps, key=lambda step: -step.node.attrs.get("block", 0)):
            parts = [step]
            for _ in range(min(step.node.attrs.get("block", 0), 2) if step.kind == "conv2d" else 0):
                parts.insert(0, writers.get(id(parts[0].arguments[1].buffer), step))
            if len(parts) == 1 or any(part.kind != "conv2d" or id(part) in inside for part in parts) or len(set(map(id, parts))) < len(parts):
                continue
            x, (_, _, y, residual, _, _), (*_, top, left) = parts[0].arguments[1], step.arguments, parts[-2].arguments
            layers = [part.arguments[0] for part in parts]
            block = self.layer((step.node.name, "block"), lambda kind=(DepthwiseSeparable, InvertedResidual)[len(parts) - 2], layers=layers:
                               kind(*layers, **{"residual": False} if len(layers) == 3 else {}))
            reason = ("an image beside it stands in planes" if x.strides[1] != 1 or y.strides[1] != 1 else
                      "the images inside are small: as fast one after the other"
                      if min(x.shape[2:]) < 7 or not block._pays(x.shape[2:], y.shape[2:]) else "")
            if reason:
                self.report.append(Refusal("blocks", step.node.name, reason))
            else:
                inside.update(map(id, parts[:-1]))
                self.steps = [s for s in self.steps if id(s) not in inside]
                step.kind, step.arguments, step.slices = "separable", (block, x, y, residual, top, left), parts[0].slices
                names = [name for part in parts[:-1] for name in (part.node.name, *part.node.absorbed)]
                step.node = replace(step.node, absorbed=step.node.absorbed + names)
                step.reads, step.inner = [x] if residual is None else [x, residual], tuple(part.node for part in parts[:-1])
                traffic = sum(2 * 4 * math.prod(part.writes[0].shape) for part in parts[:-1])
                self.report.append(Fusion("blocks", tuple(part.node.name for part in parts[:-1]), step.node.name, 0, traffic))

    def _space_pixels(self):
        """Lets the pixels of an image stand as far apart as the convolution that reads it wants, where convolutions alone use its memory."""
        users = {}
        for step in self.steps:
            for t in step.tensors():
                users.setdefault(id(t.buffer), []).append((step, t))
        for step in self.steps:
            x = step.arguments[1] if step.kind == "conv2d" else None
            floats = x and step.arguments[0]._pixel()
            if not x or floats == x.shape[1] or x.buffer.array is not None or x.buffer.slot:
                continue
            using, dense = users[id(x.buffer)], channels_last(x.shape)
            if any(s.kind != "conv2d" or t.shape != x.shape or not t.whole() or not same_order(x.shape, t.strides, dense) for s, t in using):
                continue
            n, _, *pixels = x.shape
            spaced = x._replace(strides=channels_last((n, floats, *pixels)))
            x.buffer.nbytes = math.prod((n, floats, *pixels)) * x.dtype.itemsize
            for s, t in using:
                s.replace({i: spaced for i, a in enumerate(s.arguments) if a is t})

    def _share(self):
        """Lets element-wise steps work in place: the result continues the memory of an input that nothing reads afterwards."""
        for i, step in enumerate(self.steps):
            if step.kind not in ("unary", "binary", "affine"):
                continue
            x, y = step.reads[0], step.writes[0]
            a, b = x.buffer.root(), y.buffer
            ours = all(t.array is None and t.slot == 0 for t in (a, b)) and a is not b
            alone = all(t.buffer.root() is not a or t.strides == x.strides for t in step.reads)
            if ours and alone and a.last == i and b.first == i and x.whole() and y.whole() and x.strides == y.strides:
                b.shares, a.last = a, b.last
