"""Random small networks: whatever is folded, fused or cut into slices, the values are those of NumPy node by node in
float64."""

import itertools
import math
from unittest import mock

import numpy as np
import pytest
from hypothesis import assume
from hypothesis import strategies as st

from catalog import Draw
from fusedops import activations
from fusedops.graph import Model
from fusedops.graph.inference.evaluate import evaluate
from fusedops.graph.inference.shape_inference import infer_node
from fusedops.graph.ir.graph import Graph, Node, TensorInfo, Value, constant
from fusedops.graph.ir.options import BuildOptions
from fusedops.graph.planner import batch_tiling
from fuzzing import fuzz

pytestmark = pytest.mark.thorough

FLOAT = np.dtype(np.float32)
# of operators drawn for shapes that they do not take
MISFITS = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
ACTIVATIONS = ["relu", "relu6", "elu", *activations.PLAIN, ("leaky_relu", 0.2), ("clip", -0.5, 0.7)]
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


class Network:
    """A graph that grows by the nodes that fit the shapes so far."""

    def __init__(self, draw, shapes):
        self.draw, self.nodes, self.constants = draw, [], {}
        self.known = {name: TensorInfo(shape, FLOAT) for name, shape in shapes.items()}
        self.random = Draw(draw(st.integers(0, 99)))

    def pick(self, *choices):
        return self.draw(st.sampled_from(choices))

    def between(self, low, high):
        return self.draw(st.integers(low, high))

    def value(self):
        """One of the latest values."""
        return self.pick(*list(self.known)[-4:])

    def store(self, a):
        name = f"c{len(self.constants)}"
        self.constants[name] = a
        return name

    def floats(self, *shape):
        return self.store(self.random(*shape))

    def positive(self, *shape):
        return self.store(np.abs(self.random(*shape)) + np.float32(0.5))

    def ints(self, *values):
        return self.store(np.array(values, np.int64))

    def add(self, op, *inputs, results=1, activation=None, **attrs):
        """The first result of a new node."""
        outputs = [f"v{len(self.nodes)}.{i}" for i in range(results)]
        node = Node(op, f"{op}{len(self.nodes)}", list(inputs), outputs, attrs, activation=activation)
        made = infer_node(
            node, [self.known[v] if v in self.known else constant(self.constants[v]) if v else None for v in inputs]
        )
        if any(len(m.shape) > 5 or not 0 < math.prod(m.shape) < 4000 for m in made.values()):
            raise ValueError(f"{made} is too much for a small network")
        self.known |= made
        self.nodes.append(node)
        return node.output


# ---- operators: each adds what reads the value x of shape s ---------------------------------------------------------


def window(d, kernel):
    n = len(kernel)
    return dict(strides=[d.pick(1, 1, 2) for _ in kernel], pads=[d.pick(0, 0, 1) for _ in range(2 * n)])


def convolution(d, x, s):
    kernel, groups = [d.pick(1, 1, 2, 3) for _ in s[2:]], d.pick(1, 1, s[1], 2)
    oc = groups * d.between(1, 3)
    bias = [d.floats(oc)] * d.between(0, 1)
    if d.between(0, 4):
        d.add(
            "Conv",
            x,
            d.floats(oc, s[1] // groups, *kernel),
            *bias,
            group=groups,
            dilations=[d.pick(1, 1, 2) for _ in kernel],
            **window(d, kernel),
        )
    else:
        d.add("ConvTranspose", x, d.floats(s[1], oc // groups, *kernel), *bias, group=groups, **window(d, kernel))


def pool(d, x, s):
    kernel = [d.pick(1, 2, 3) for _ in s[2:]]
    d.add(d.pick("MaxPool", "AveragePool"), x, kernel_shape=kernel, ceil_mode=d.between(0, 1), **window(d, kernel))


def global_pool(d, x, s):
    d.add(d.pick("GlobalAveragePool", "GlobalMaxPool"), x)


def block(d, x, s):
    """An inverted residual."""
    wide = d.add("Conv", x, d.floats(6, s[1], 1, 1))
    deep = d.add("Conv", wide, d.floats(6, 1, 3, 3), group=6, pads=[1] * 4)
    d.add("Add", *d.draw(st.permutations([x, d.add("Conv", deep, d.floats(s[1], 6, 1, 1))])))


def norm(d, x, s):
    c, axis = s[1], d.between(1, len(s) - 1)
    op, *inputs = d.pick(
        ("BatchNormalization", d.floats(c), d.floats(c), d.floats(c), d.positive(c)),
        ("InstanceNormalization", d.floats(c), d.floats(c)),
        ("LayerNormalization", d.floats(*s[axis:]), d.floats(*s[axis:])),
        ("LRN",),
    )
    d.add(op, x, *inputs, **{"LayerNormalization": {"axis": axis}, "LRN": {"size": d.between(1, 5)}}.get(op, {}))


def activation(d, x, s):
    d.add("Activation", x, activation=d.pick(*ACTIVATIONS))


def spelled_out(d, x, s):
    """Expressions that the passes know, and some that only look like them."""
    kind, bound = d.pick("silu", "gelu", "hardswish", "clamped", "leaky"), d.store(np.float32(d.pick(1, 3, 30)))
    if kind == "silu":
        d.add("Mul", *d.draw(st.permutations([x, d.add("Activation", x, activation="sigmoid")])))
    elif kind == "gelu":
        e = d.add("Erf", d.add("Div", x, d.store(np.float32(d.pick(2**0.5, 2)))))
        d.add("Mul", d.add("Mul", x, d.add("Add", e, d.store(np.float32(1)))), d.store(np.float32(0.5)))
    elif kind == "hardswish":
        d.add("Mul", x, d.add("Activation", x, activation="hardsigmoid"))
    else:
        d.add("Min", d.add("Activation", x, activation="softplus" if kind == "clamped" else ("leaky_relu", 0.1)), bound)


def function(d, x, s):
    d.add(d.pick("Neg", "Abs", "Erf"), x)


def with_constant(d, x, s):
    """Scalars, vectors, one value a channel, one a pixel and whole images, on either side."""
    shape = d.pick((), (1,), s[-1:], (*s[1:2], *[1] * (len(s) - 2)), s[1:], (1, *s[1:]), (*s[:-1], 1)[1:])
    op = d.pick("Add", "Sub", "Mul", "Div", "Max", "Min", "PRelu", "Pow")
    if op in ("Div", "PRelu", "Pow"):
        d.add(op, x, d.store(np.float32(2)) if op == "Pow" else d.positive(*shape))
    else:
        d.add(op, *d.draw(st.permutations([x, d.floats(*shape)])))


def with_value(d, x, s):
    d.add(d.pick("Add", "Sub", "Mul", "Max", "Min"), x, d.value())


def concatenation(d, x, s):
    d.add("Concat", x, *[d.value() for _ in range(d.between(0, 2))], axis=d.between(0, len(s) - 1))


def product(d, x, s):
    k, n = s[-1], d.between(1, 5)
    if len(s) == 2 and d.between(0, 1):
        transposed, c = d.between(0, 1), d.pick((), (n,), (1,), (1, n), (s[0], 1), (1, 1))
        w = d.floats(n, k) if transposed else d.floats(k, n)
        d.add("Gemm", x, w, d.floats(*c), transB=transposed, alpha=d.pick(1.0, 0.5), beta=d.pick(1.0, 2.0))
    elif d.between(0, 2):
        d.add("MatMul", x, d.floats(*d.pick((k, n), (k,))))
    else:
        d.add("MatMul", x, d.add("Transpose", x, perm=[*range(len(s) - 2), len(s) - 1, len(s) - 2]))


def permutation(d, x, s):
    kept = d.between(0, 1)
    d.add("Transpose", x, perm=[*range(kept), *d.draw(st.permutations(range(kept, len(s))))])


def reshape(d, x, s):
    at = d.between(0, len(s) - 1)
    d.add(
        "Reshape",
        x,
        d.ints(
            *d.pick(
                (*[0] * at, -1), (*s[1:], -1), (0, -1, *s[-1:]), (0, *s[1:2], 1, -1), (-1, *s[1:]), (0, *s[1:][::-1])
            )
        ),
    )


def axes(d, x, s):
    op = d.pick("Unsqueeze", "Squeeze", "Flatten", "Identity", "Expand")
    if op == "Unsqueeze":
        d.add(op, x, d.ints(d.between(-len(s) - 1, len(s))))
    elif op == "Expand":
        d.add(op, x, d.ints(*(d.pick(1, n, 3) if n == 1 else n for n in s)))
    else:
        d.add(op, x, **{"axis": d.between(0, len(s))} if op == "Flatten" else {})


def part(d, x, s):
    step, axis = d.pick(1, 1, 2, -1, -2), d.between(-len(s), len(s) - 1)
    first, last = (d.between(0, 1), d.pick(99, -1, 2)) if step > 0 else (d.pick(-1, -2), -99)
    d.add("Slice", x, *map(d.ints, (first, last, axis, step)))


def split(d, x, s):
    axis = d.between(-len(s), len(s) - 1)
    first = d.between(1, s[axis])
    d.add("Split", x, d.ints(first, s[axis] - first), results=2, axis=axis)


def gather(d, x, s):
    axis = d.between(-len(s), len(s) - 1)
    i = np.array(d.draw(st.lists(st.integers(-s[axis], s[axis] - 1), min_size=1, max_size=3)), np.int64)
    d.add("Gather", x, d.store(i if d.between(0, 1) else i[0].reshape(())), axis=axis)


def padding(d, x, s):
    if not s:
        raise ValueError("a scalar has no edges")
    d.add(
        "Pad",
        x,
        d.ints(*(d.pick(0, 0, 0, 1, 2, -1) for _ in range(2 * len(s)))),
        mode=d.pick("constant", "constant", "edge", "reflect"),
    )


def reduction(d, x, s):
    chosen = d.draw(st.sets(st.integers(0, len(s) - 1), min_size=1))
    d.add(d.pick("ReduceMean", "ReduceSum", "ReduceMax"), x, d.ints(*chosen), keepdims=d.between(0, 1))


def softmax(d, x, s):
    d.add(d.pick("Softmax", "LogSoftmax"), x, axis=d.between(-len(s), len(s) - 1), to_end=d.pick(False, False, True))


def resize(d, x, s):
    scales = np.float32([1, 1, *(d.pick(1, 2, 0.5, 1.6) for _ in s[2:])])
    d.add(
        "Resize",
        x,
        "",
        d.store(scales),
        mode=d.pick("nearest", "linear"),
        coordinate_transformation_mode=d.pick("half_pixel", "asymmetric", "align_corners"),
        nearest_mode=d.pick("floor", "round_prefer_ceil"),
    )


def recurrence(d, x, s):
    x = x if len(s) == 3 else d.add("Reshape", x, d.ints(0, 0, -1))
    op, direction, hidden = d.pick(*GATES), d.pick("forward", "reverse", "bidirectional"), d.between(1, 4)
    each, rows = 1 + (direction == "bidirectional"), GATES[op] * hidden
    d.add(
        op,
        x,
        d.floats(each, rows, d.known[x].shape[2]),
        d.floats(each, rows, hidden),
        d.floats(each, 2 * rows),
        hidden_size=hidden,
        direction=direction,
    )


COMMON = [convolution, with_constant, with_value, activation, permutation, norm, product]
OPERATORS = [
    *COMMON,
    *COMMON,
    pool,
    global_pool,
    block,
    spelled_out,
    function,
    concatenation,
    reshape,
    axes,
    part,
    split,
    gather,
    padding,
    reduction,
    softmax,
    resize,
    recurrence,
]


@st.composite
def networks(draw):
    """(graph, arrays): a network with an open batch, and inputs for it."""
    batch = draw(st.integers(1, 3))
    inputs = {
        "x": ("n", 4, 5, 6),
        "r": draw(st.sampled_from([("n", 4, 5, 6), ("n", 4, 1, 1), (1, 4, 5, 6), (4, 1, 1), ("n", 6)])),
    }
    shapes = {name: tuple(batch if n == "n" else n for n in shape) for name, shape in inputs.items()}
    d = Network(draw, shapes)
    for operator in draw(st.lists(st.sampled_from(OPERATORS), min_size=1, max_size=8)):
        x = d.value()
        try:
            operator(d, x, d.known[x].shape)
        except MISFITS:
            pass
    assume(d.nodes)
    results = list(dict.fromkeys([d.nodes[-1].output, *[d.value()] * draw(st.integers(0, 1))]))
    graph = Graph(
        d.nodes,
        d.constants,
        [Value(name, shape, FLOAT) for name, shape in inputs.items()],
        [Value(f"y{i}", None, FLOAT) for i in range(len(results))],
        results,
        17,
    )
    return graph, [d.random(*shape) for shape in shapes.values()]


def computed(graph, arrays, dtype):
    """All values, in arithmetic of the given type."""
    values = {"": None} | {name: a.astype(dtype) if a.dtype == FLOAT else a for name, a in graph.constants.items()}
    values |= {v.name: x.astype(dtype) for v, x in zip(graph.inputs, arrays)}
    for node in graph.nodes:
        values |= zip(node.outputs, evaluate(node, [values[v] for v in node.inputs]))
    return values


@fuzz(st.tuples(networks(), st.sampled_from([2000, batch_tiling.CACHE_BYTES])))
def test_graphs(drawn):
    """The error may be what NumPy's own is in float32, some times over."""
    (graph, arrays), cache = drawn
    with np.errstate(all="ignore"):
        exact, rounded = computed(graph, arrays, np.float64), computed(graph, arrays, np.float32)
    assume(
        all(
            np.isfinite(a).all() and np.abs(a).max(initial=0) < 1e4
            for v in (exact, rounded)
            for a in v.values()
            if a is not None
        )
    )
    with mock.patch.object(batch_tiling, "CACHE_BYTES", cache):
        for fold, fuse in itertools.product((True, False), repeat=2):
            ys = Model.built(graph, BuildOptions(fold, fuse))(*arrays)
            for y, v in zip(ys if isinstance(ys, tuple) else (ys,), graph.results, strict=True):
                assert y.shape == exact[v].shape
                allowed = 2e-4 * np.abs(exact[v]).max() + 100 * np.abs(rounded[v] - exact[v]).max() + 1e-6
                assert np.abs(y - exact[v]).max() <= allowed, (fold, fuse)
