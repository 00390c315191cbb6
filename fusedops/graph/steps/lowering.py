"""What the lowering of an operator may use: shapes, tensors, new steps and prepared layers."""

import math

import numpy as np

from ... import _core, activations
from ..._internal.mmap_arrays import aligned
from ..ir.dtypes import MOVED
from ..ir.symbolic import Deferred, is_symbolic, typed
from .caches import kept
from .prepared import OfConstants
from .step import Step
from .tensor import Buffer, TensorView, broadcast, channels_last, folded, in_order_of, reshaped, row_major, same_order

_FOLDS = "unary", "binary", "map", "copy", "fill"  # kinds of steps that take every element for itself


class NoKernel(Exception):
    """The kernels have no such step for tensors of this type or of so many axes: NumPy computes the node."""


def _with_few_axes(kind, arguments):
    """The tensors among a step's arguments with no more axes than kernels take."""
    tensors = {name: a for name, a in arguments.items() if isinstance(a, TensorView)}
    if len({t.shape for t in tensors.values()}) == 1 and kind in _FOLDS:
        few = folded(list(tensors.values()))
        if len(few[0].shape) <= _core.AXES:
            return dict(zip(tensors, few, strict=True))
    raise NoKernel(kind)


class LoweringContext:
    """Steps as they are added, and where every value of the graph stands.

    `known` is what shapes.infer says of each value; `logits` are the values whose differences a softmax makes factors
    of; `concat_slots` are the images that are written straight into their part of a concatenation along the channels:
    (concat's node, offset in channels). `caches` are kept in memory with so much room: (caches, capacity). `lower` is a
    function of the context and a node: whether it added steps of kernels.
    """

    def __init__(self, graph, known, layers, logits, concat_slots, lower, caches=((), 0)):
        self.graph, self.known, self.layers, self.logits, self.concat_slots = graph, known, layers, logits, concat_slots
        self._lower, self.grows = lower, bool(caches[0])
        self.steps, self.buffers, self.producers = [], [], graph.producers()
        self.planes = set()  # images between layers that stay in planes
        self.tensors = {v.name: self._slot(i, self.known[v.name]) for i, v in enumerate(graph.inputs, 1)}
        self.outputs = [self._slot(i, self.known[v]) for i, v in enumerate(graph.results, 1 + len(graph.inputs))]
        for cache in caches[0]:
            name = graph.inputs[cache.input].name
            self.tensors[name], self.outputs[cache.output] = kept(
                cache, 1 + cache.input, known[name], known[graph.results[cache.output]], caches[1]
            )
        # of two outputs with one value the first
        self.targets = dict(zip(reversed(graph.results), reversed(self.outputs), strict=True))

    @staticmethod
    def _slot(i, known):
        nbytes = math.prod(known.shape) * known.dtype.itemsize
        return TensorView(Buffer(nbytes, slot=i), known.shape, row_major(known.shape), known.dtype)

    # ---- where values stand

    def at(self, value):
        """The tensor of a value."""
        if value not in self.tensors and not self._computed(value):
            dtype = self.known[value].dtype
            data = typed(self.known[value].data, dtype)
            self.tensors[value] = self.constant(data, data.shape, dtype) if is_symbolic(data) else self._known(data)
        return self.tensors[value]

    def _computed(self, value):
        """Whether steps compute a value that follows from sizes. Where caches grow from call to call rarely a size
        comes twice, and NumPy would make the value for each."""
        return self.grows and isinstance(self.known[value].data, Deferred) and self.lower(self.producers[value])

    def lower(self, node):
        """Whether steps of kernels compute a node; then they are added."""
        steps, tensors = len(self.steps), dict(self.tensors) if self.grows else self.tensors
        try:
            if self._lower(self, node):
                return True
        except NoKernel:
            pass
        del self.steps[steps:]
        self.tensors = tensors
        return False

    def _known(self, data):
        """The tensor of a constant. Of one that was broadcast, what it was made of is in memory; of one at an odd
        address in a mapped file, a copy for all plans."""
        once = data[
            tuple(slice(0, 1) if not step and n > 1 else slice(None) for n, step in zip(data.shape, data.strides))
        ]
        once = np.ascontiguousarray(once).reshape(once.shape)  # NumPy gives a scalar an axis here
        if not once.flags.aligned:
            once = self.layer(OfConstants("aligned", once), lambda: aligned(once))
        return broadcast(self.constant(once, once.shape), data.shape)

    @staticmethod
    def constant(array, shape, dtype=np.dtype(np.float32)):
        """A tensor of numbers that are known now, or of those of a type that are when sizes are."""
        dtype = array.dtype if isinstance(array, np.ndarray) and array.dtype != object else dtype
        return TensorView(Buffer(math.prod(shape) * dtype.itemsize, array=array), tuple(shape), row_major(shape), dtype)

    def data(self, value):
        """A value's data where it is known before the network runs, else None. It may have SymInts of the plan, or be
        Deferred."""
        return self.known[value].data if value else None

    def new(self, shape, strides=None, dtype=np.dtype(np.float32)):
        """A tensor in the arena."""
        buffer = Buffer(math.prod(shape) * dtype.itemsize)
        self.buffers.append(buffer)
        return TensorView(buffer, tuple(shape), row_major(shape) if strides is None else strides, dtype)

    def result(self, value, like=None, image=False, direct=True):
        """Where a node writes a value: an output of the network (if `direct`), its part of a concatenation, or new
        memory, in which an image has its channels last and another value the order of the tensor `like`."""
        known = self.known[value]
        if value in self.targets and direct:
            t = self.targets[value]
        elif value in self.concat_slots:
            node, offset = self.concat_slots[value]
            whole = self.tensors.get(node.output) or self.result(node.output, image=True)
            t = TensorView(
                whole.buffer,
                known.shape,
                whole.strides,
                known.dtype,
                whole.offset + offset * whole.strides[1] * known.dtype.itemsize,
            )
        elif image and len(known.shape) > 2:
            t = self.new(known.shape, channels_last(known.shape), known.dtype)
        elif like is not None and like.shape == known.shape:
            t = self.new(known.shape, in_order_of(known.shape, like.strides), known.dtype)
        else:
            t = self.new(known.shape, None, known.dtype)
        self.tensors[value] = t
        return t

    def view(self, value, tensor):
        """Lets a value be a view of memory that exists."""
        self.tensors[value] = tensor

    # ---- steps

    def add(self, kind, node, **arguments):
        """Adds a step of a program; _core.STEPS[kind] has the names of its arguments. Axes beyond those that kernels
        take are folded; NoKernel where they cannot be."""
        step = Step.of(kind, node, arguments)
        if any(len(t.shape) > _core.AXES for t in (*step.reads, *step.writes)):
            step = Step.of(kind, node, arguments | _with_few_axes(kind, arguments))
        self.steps.append(step)

    def numpy(self, node, reads, writes):
        """Adds a step that NumPy computes."""
        self.steps.append(Step("numpy", node, {}, reads, writes))

    def map(self, node, name, y, *operands):
        """Adds an elementwise function of elements of any type, which are broadcast; NoKernel where there is none for
        them. What is computed with is of the first operand's type, of a choice (`where`) of the second's."""
        of = operands[name == "where"].dtype
        if y.dtype not in MOVED or not _core.map_takes(name, of, y.dtype):
            raise NoKernel(name)
        tensors = dict(zip("abc", (broadcast(t, y.shape) for t in operands), strict=False))
        self.add("map", node, name=name, **tensors, y=y, of=of, to=y.dtype)

    def copy(self, node, x, y):
        if x.dtype != y.dtype or x.dtype.itemsize not in (1, 2, 4, 8):
            raise NoKernel
        self.add("copy", node, x=x, y=y, size=x.dtype.itemsize)

    def dense(self, node, x, strides):
        """x with exactly these strides, copied if need be."""
        if same_order(x.shape, x.strides, strides):
            return x
        y = self.new(x.shape, strides, x.dtype)
        self.copy(node, x, y)
        return y

    def image(self, node, value):
        """The tensor of an image as (n, c, h, w) with its channels or its columns as neighbors; (n, c, w) gets h =
        1."""
        x = self.as_2d(self.at(value))
        x = x._replace(strides=tuple(1 if n == 1 else s for n, s in zip(x.shape, x.strides, strict=True)))
        return x if 1 in (x.strides[1], x.strides[3]) else self.dense(node, x, channels_last(x.shape))

    def pixels(self, node, value):
        """The tensor of an image as (n, c, h, w) with its channels as neighbors."""
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

    @staticmethod
    def activation(node, channels=None):
        """A node's activation as steps take it."""
        return activations.parse(node.activation, channels)

    def residual(self, node, y):
        """The residual as a tensor in the order of y."""
        if not node.residual:
            return None
        r = self.at(node.residual)
        if len(y.shape) == 4:
            r = self.as_2d(r)
            return (
                self.dense(node, r, channels_last(r.shape))
                if y.strides[1] == 1 and r.strides[1] != 1
                else self.dense(node, r, row_major(r.shape))
                if y.strides[1] != 1 and r.strides[3] != 1
                else r
            )
        return self.dense(node, r, row_major(r.shape))

    def layer(self, key, make):
        """The prepared layer of a node, whose name is the key: made once, shared by the plans of all shapes. One whose
        products may have several types is an UnpackedLayer."""
        return self.layers.layer(key, make)
