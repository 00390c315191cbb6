"""The cases of bits.csv: every operation, at shapes around the borders of each algorithm and kernel.

A case is a function of `Numbers` that gives arrays. Cases that call libm are left out, for its last bits are the system's: `pow` with
exponents other than 0, 1, 2, 3, -1 and 0.5, `log`, log-softmax, and normalisation over channels.
"""
import zlib
from functools import partial

import numpy as np
from shapes import DEPTHWISE, DIRECT, FEW_STEPS, FIRST, LINES, NARROW, ONE_ROW, SMALL, STRASSEN, WINDOWS, WINOGRAD

import fusedops as fo
from fusedops import _core, activations
from fusedops._core import Program
from operations import OPERATIONS, dims, results

LAYOUTS = ("NCHW", "NHWC")
SETS = ("scalar", "avx2", "avx512", "avx512_half_rate", "neon")


class Numbers:
    """Arrays of floats in -1..1 from a hash of their place: the same on every machine and with every NumPy."""

    def __init__(self, name):
        self.at = zlib.crc32(name.encode())

    def __call__(self, *shape):
        size = int(np.prod(shape))
        h = np.arange(size, dtype=np.uint32) * np.uint32(0x9E3779B1) + np.uint32(self.at)
        for shift, factor in (16, 0x85EBCA6B), (13, 0xC2B2AE35):
            h = (h ^ (h >> np.uint32(shift))) * np.uint32(factor)
        h ^= h >> np.uint32(16)
        self.at = (self.at + size * 0x9E3779B1 + 1) & 0xFFFFFFFF
        return ((h >> np.uint32(8)).astype(np.int32) - (1 << 23)).astype(np.float32).reshape(shape) / np.float32(1 << 23)

    def positive(self, *shape):
        """0.5 to 2.5."""
        return self(*shape) + np.float32(1.5)

    def batch_norm(self, c):
        return fo.BatchNorm(self(c), self(c), self(c), self.positive(c))

    def activation(self, name, c):
        return {"clip": ("clip", -0.5, 1.5), "prelu": ("prelu", self(c))}.get(name, name)


# What follows a sum; each shape has the first and one of the others in turn.
EPILOGUES = [
    dict(bias=True, activation="relu"),
    dict(bias=True, residual=True, activation="clip"), dict(bias=True, activation="silu"), dict(residual=True, activation="prelu"),
    dict(bias=True, residual=True, activation="gelu"), dict(), dict(bias=True, activation="hardswish"),
    dict(bias=True, bn=True, residual=True, activation="tanh"),
]


def described(options):
    def text(value):
        return str(value).replace(" ", "").replace("True", "") if isinstance(value, tuple) else str(value).replace("True", "")
    return " ".join(f"{name}{'=' if text(value) else ''}{text(value)}" for name, value in options.items())


def epilogue(numbers, given, c, shape):
    """The arguments that `given` names, for c channels and a result of this shape."""
    made = {"bias": partial(numbers, c), "bn": partial(numbers.batch_norm, c), "residual": partial(numbers, *shape)}
    return {k: numbers.activation(v, c) if k == "activation" else made[k]() for k, v in given.items()}


def convolution(numbers, layout, shape, algorithm, given, n):
    ic, size, oc, kernel, options = shape
    icg = ic // options.get("groups", 1)
    x, w = numbers(*dims(layout, n, ic, *size)), numbers(oc, icg, *kernel) / np.float32((icg * kernel[0] * kernel[1]) ** 0.5)
    y = fo.Conv2d(w, layout=layout, **options).output_shape(x.shape)
    return [fo.conv2d(x, w, layout=layout, algorithm=algorithm, **options, **epilogue(numbers, given, oc, y))]


def depthwise(numbers, layout, shape, given, n, gap):
    """gap: channels of wider pixels that are not read."""
    c, multiplier, size, kernel, options = shape
    x, w = numbers(*dims(layout, n, c + gap, *size)), numbers(c * multiplier, 1, *kernel) / np.float32(kernel[0])
    x = x[..., :c] if layout == "NHWC" else x[:, :c]
    y = fo.Conv2d(w, layout=layout, groups=c, **options).output_shape(x.shape)
    return [fo.conv2d(x, w, layout=layout, groups=c, **options, **epilogue(numbers, given, c * multiplier, y))]


def alternated(shapes):
    """(shape, epilogue): the first epilogue and another of each."""
    for n, shape in enumerate(shapes):
        yield shape, EPILOGUES[0]
        yield shape, EPILOGUES[1 + n % (len(EPILOGUES) - 1)]


def named(shape):
    ic, (h, w), oc, (kh, kw), options = shape
    return " ".join(filter(None, [f"{ic}x{h}x{w} to {oc} {kh}x{kw}", described(options)]))


def convolutions():
    tables = {
        "direct": DIRECT + FEW_STEPS + [(ic, size, oc, kernel, options | dict(groups=groups)) for ic, oc, groups in [(64, 130, 1), (48, 15, 3)]
                                        for kernel, options, size in SMALL + NARROW],
        "auto": WINDOWS + ONE_ROW + [
            (96, (27, 32), 130, (1, 1), dict(stride=2)), (97, (13, 25), 64, (1, 1), dict(stride=(1, 2))), (64, (12, 12), 64, (3, 3), dict(padding=1)),
            (33, (28, 28), 64, (3, 3), dict(padding=1)), (128, (28, 28), 64, (3, 3), dict(padding=1)), (48, (27, 27), 64, (5, 5), dict(padding=2)),
            (128, (14, 14), 128, (1, 1), {}), (3, (65, 67), 32, (7, 7), dict(stride=2, padding=3)), (64, (7, 7), 64, (3, 3), dict(padding=1)),
            (64, (28, 28), 64, (3, 3), dict(padding=1, stride=2)), (32, (20, 50), 33, (3, 3), dict(padding=1, stride=(2, 1)))],
        "winograd": WINOGRAD,
        "winograd1d": [(ic, (height, width), oc, kernel, options) for n, (kernel, options) in enumerate(LINES)
                       for ic, oc, width, height in [(4, 6, 19, 11 + n % 7), (20, 34, 35, 17 - n % 7), (4, 70, 9, 12 + n % 5)]],
        "strassen": STRASSEN,
    }
    for algorithm, shapes in tables.items():
        for shape, given in alternated(shapes):
            for layout in LAYOUTS:
                n = 2 if shape[0] * shape[1][0] * shape[1][1] * shape[2] < 50000 else 1
                yield (" ".join(filter(None, ["conv2d", algorithm, layout, f"{n} of", named(shape), described(given)])),
                       partial(convolution, layout=layout, shape=shape, algorithm=algorithm, given=given, n=n))
    for ic, oc, size, options in FIRST:
        shape = (ic, size, oc, (3, 3), dict(stride=2, **options))
        for given in EPILOGUES[:4]:
            yield (" ".join(["conv2d first layer", named(shape), described(given)]),
                   partial(convolution, layout="NHWC", shape=shape, algorithm="auto", given=given, n=2))


# Channels last: pixels of so many channels, image, padding, and channels that are not read. What crowds into few sets of the first-level cache.
WIDE_PIXELS = [
    (512, (9, 14), 1, 0), (500, (9, 13), 1, 12), (70, (15, 7), 1, 954), (64, (5, 30), 1, 448), (48, (8, 21), ((0, 1), (1, 0)), 464),
    (512, (8, 7), ((2, 0), (0, 2)), 0), (256, (14, 14), 1, 0), (144, (17, 22), 1, 0), (528, (8, 15), 1, 0), (112, (7, 13), 1, 0), (160, (7, 16), 0, 0),
    (32, (9, 9), 1, 0), (16, (9, 8), 1, 0), (48, (7, 3), 3, 0), (144, (6, 14), 1, 0), (260, (7, 14), 1, 0), (64, (28, 28), 1, 0), (20, (6, 23), 2, 0)]


def depthwises():
    def around(k, stride, c, height, width, padding):
        return c, 1, (height, width), (k, k), dict(stride=stride, padding=padding)

    widths = [1, 2, 5, 7, 8, 9, 12, 14, 15, 16, 17, 23, 24, 28, 31, 32, 33, 40, 47, 48, 49, 56, 63, 64, 65, 80, 112, 130]
    planes = [around(k, s, 2, 9 + n % 13, w, ((1, 1), (1, 1)) if n % 3 else ((0, 1), (1, 0)))
              for k, s in [(3, 1), (3, 2)] for n, w in enumerate(widths) if w > 2]
    planes += [around(k, s, 3, 11 + n % 5, w, k // 2) for k, s in [(5, 1), (5, 2), (7, 1), (7, 2)] for n, w in enumerate(widths[::3])]
    planes += [around(3, s, 3, h, w, 1) for s in (1, 2) for h, w in [(7, 7), (14, 14), (28, 28), (15, 15), (16, 16), (8, 8), (33, 300)]]
    planes += [(3, 1, size, kernel, options) for kernel, size, options in [
        ((1, 3), (1, 261), dict(padding=(0, 1))), ((1, 31), (2, 300), dict(padding=(0, 15))), ((1, 4), (1, 530), dict(stride=(1, 2))),
        ((3, 5), (4, 256), dict(padding=(1, 2))), ((2, 6), (4, 300), dict(stride=(1, 2), dilation=(1, 3))), ((6, 6), (20, 30), dict(padding=3)),
        ((4, 4), (14, 30), dict(padding=(2, 1))), ((3, 3), (21, 29), dict(stride=3)), ((3, 3), (33, 33), dict(dilation=4, padding=4)),
        ((5, 5), (33, 33), dict(dilation=2, padding=4)), ((3, 1), (40, 1), dict(padding=(1, 0)))]]
    pixels = [(c, 1, size, (k, k), dict(stride=s, padding=p), gap) for k, s in [(3, 1), (3, 2), (5, 1), (7, 1)]
              for c, size, p, gap in WIDE_PIXELS if k == 3 or c * size[0] * size[1] < 40000]
    pixels += [(c, 1, (4 + c % 5, 5), (3, 3), dict(stride=1 + c % 2, padding=1), 0) for c in range(1, 35)]
    both = [(shape, layout, 0) for shape in DEPTHWISE for layout in LAYOUTS]
    shapes = both + [(shape, "NCHW", 0) for shape in planes] + [(shape[:-1], "NHWC", shape[-1]) for shape in pixels]
    for (shape, layout, gap), given in alternated(shapes):
        c, multiplier, size, kernel, options = shape
        n = 2 if c * size[0] * size[1] < 5000 else 1
        wide = [f"of {c + gap}"] if gap else []
        yield (" ".join(filter(None, ["depthwise", layout, f"{n} of", named((c, size, c * multiplier, kernel, options)), *wide, described(given)])),
               partial(depthwise, layout=layout, shape=shape, given=given, n=n, gap=gap))


def product(numbers, m, n, k, given, function):
    a, b = numbers(m, k), numbers(n, k) / np.float32(k ** 0.5)
    options = epilogue(numbers, given, n, (m, n))
    return [fo.linear(a, b, **options) if function == "linear" else fo.gemm(a, b.T.copy(), **options)]


def products():
    sizes = [(m, n, 1 + m * n % 37) for m in (1, 2, 3, 5, 6, 7, 11, 12, 13, 25) for n in (1, 2, 3, 7, 8, 15, 16, 17, 24, 31, 33, 49, 65)]
    sizes += [(m, n, k) for n in (24, 40, 44, 56, 64, 72, 73) for m, k in [(19, 37), (22, 128), (64, 131), (97, 64), (13, 1026)]]
    sizes += [(m, 70, k) for m in (71, 72, 75, 97) for k in (1, 16, 64, 65)]
    sizes += [(m, n, k) for n in (1, 2, 3) for m, k in [(7, 63), (16, 64), (31, 145), (64, 113), (75, 1024), (9, 16)]]
    sizes += [(1, 67, 1031), (67, 131, 1), (130, 1, 259), (13, 523, 700), (97, 33, 513), (150, 97, 64), (15, 67, 900), (2, 100, 1500), (4, 300, 65),
              (70, 21, 1027), (130, 8, 2049), (33, 261, 3001), (65, 260, 1100), (90, 70, 1024), (30, 256, 256), (1, 1000, 512), (64, 512, 96)]
    for n, ((rows, columns, k), given) in enumerate(alternated(sizes)):
        given = {name: value for name, value in given.items() if name != "bn"}
        function = "gemm" if n % 4 > 1 else "linear"
        yield (" ".join([f"{function} {rows}x{columns}x{k}", described(given)]).strip(),
               partial(product, m=rows, n=columns, k=k, given=given, function=function))
    yield "linear 1100x1000x65, a result of 4 MB", partial(product, m=1100, n=1000, k=65, given=EPILOGUES[1], function="linear")


GATES = {"rnn": 1, "lstm": 4, "gru": 3}


def recurrent(numbers, mode, steps, batch, inputs, hidden, **options):
    """A layer of that many steps, or a cell where steps is 0."""
    directions = 2 if options.get("bidirectional") else 1
    gates, bound = GATES[mode] * hidden, np.float32(1 / hidden**0.5)
    w_ih, w_hh, b_ih, b_hh = ([numbers(*shape) * bound for _ in range(directions)]
                              for shape in ((gates, inputs), (gates, hidden), (gates,), (gates,)))
    if steps:
        weights = (w_ih, w_hh, b_ih, b_hh) if directions > 1 else (w_ih[0], w_hh[0], b_ih[0], b_hh[0])
        y, state = getattr(fo, mode)(numbers(steps, batch, inputs), None, *weights, **options)
        return [y, *(state if isinstance(state, tuple) else (state,))]
    states = [numbers(batch, hidden) for _ in range(2 if mode == "lstm" else 1)]
    return results(getattr(fo, mode + "_cell")(numbers(batch, inputs), *states, w_ih[0], w_hh[0], b_ih[0], b_hh[0], **options))


def recurrents():
    sizes = [(0, 1, 7, 13), (0, 3, 33, 48), (0, 16, 20, 64), (0, 65, 17, 31),
             (5, 1, 7, 13), (6, 3, 17, 24), (4, 9, 40, 64), (3, 40, 64, 130), (12, 1, 128, 128)]
    for mode in GATES:
        forms = [{}]
        forms += [dict(reset_after=False)] if mode == "gru" else []
        for steps, batch, inputs, hidden in sizes:
            for options in forms + ([dict(bidirectional=True)] if steps else []):
                name = " ".join(filter(None, [f"{mode}{'' if steps else '_cell'} {steps or 1}x{batch} {inputs} to {hidden}", described(options)]))
                yield name, partial(recurrent, mode=mode, steps=steps, batch=batch, inputs=inputs, hidden=hidden, **options)


def block(numbers, hidden, size, layout, stride, k, c, activation):
    """An inverted residual block without its addition, or without an expansion where hidden is None."""
    inner = hidden or c
    expand = hidden and fo.Conv2d(numbers(hidden, c, 1, 1) / np.float32(c**0.5), numbers(hidden), activation="relu6", layout=layout)
    depth = fo.Conv2d(numbers(inner, 1, k, k) / np.float32(k), numbers(inner), activation=activation, groups=inner, stride=stride,
                      padding=k // 2, layout=layout)
    project = fo.Conv2d(numbers(7, inner, 1, 1) / np.float32(inner**0.5), numbers(7), activation=("leaky_relu", 0.1), layout=layout)
    kernel = _core.SeparablePlan()  # in one pass, also where the layers one by one are faster
    kernel._join(expand, depth, project)
    return [kernel(numbers(*dims(layout, 1, c, *size)), None)]


def blocks():
    for layout in LAYOUTS:
        for hidden, size, stride, k, c, activation in [
                (12, (9, 11), 1, 3, 7, "hardswish"), (96, (40, 50), 1, 3, 7, "relu6"), (96, (40, 50), 2, 3, 7, "relu6"), (100, (23, 90), 2, 5, 7, "hardswish"),
                (48, (24, 130), 1, 3, 8, "relu"), (128, (24, 230), 1, 3, 16, "relu6"), (None, (24, 41), 1, 3, 48, "relu6"),
                (None, (31, 30), 2, 3, 24, None), (None, (19, 120), 1, 3, 136, "relu6"), (50, (9, 180), 1, 3, 20, "relu6")]:
            yield (f"block {layout} {c} to {hidden} {size[0]}x{size[1]} {k}x{k} stride={stride} {activation}",
                   partial(block, hidden=hidden, size=size, layout=layout, stride=stride, k=k, c=c, activation=activation))


def step(kind, *args, **options):
    """One step of a program."""
    p = Program()
    p.append(kind, *args, **options) if hasattr(p, "append") else getattr(p, kind)(*args, **options)
    p.run(())


def channels_last(x):
    return np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)


def stepped(numbers, kind, make, y, order=None):
    """The result of one step; make(numbers) gives what stands before it and behind it among the arguments."""
    order = order or np.ascontiguousarray
    before, after = make(numbers)
    out = order(np.zeros(y, np.float32))
    step(kind, *before, out, *after)
    return [np.ascontiguousarray(out)]


def steps():
    image, act = (2, 19, 9, 8), activations.parse
    for name in "identity", "sqrt", "exp", "erf", "reciprocal", "neg", "abs":
        for cut in "rows", "strided":
            def make(numbers, name=name, cut=cut):
                x = numbers.positive(37, 70)
                return (name, x if cut == "rows" else np.repeat(x, 2, 1)[:, ::2]), ()
            yield f"unary {name} {cut}", partial(stepped, kind="unary", make=make, y=(37, 70))
    for name in activations.KINDS:
        if name not in ("identity", "prelu"):
            def make(numbers, name=name):
                return ("identity", 8 * numbers(3, 1300)), (act(numbers.activation(name, 1)),)
            yield f"activation {name}", partial(stepped, kind="unary", make=make, y=(3, 1300))
    for name in "add", "sub", "mul", "div", "max", "min", "prelu":
        for shape in (5, 6, 33), (33,), (6, 1), (1, 1, 1):
            def make(numbers, name=name, shape=shape):
                a, b = numbers(5, 6, 33), np.broadcast_to(numbers.positive(*shape), (5, 6, 33))
                return (name, a, b), (act("relu"),)
            yield f"binary {name} {'x'.join(map(str, shape))}", partial(stepped, kind="binary", make=make, y=(5, 6, 33))
    for exponent in 0, 1, 2, 3, -1, 0.5:
        def make(numbers, exponent=exponent):
            return ("pow", numbers.positive(9, 70), np.broadcast_to(np.float32(exponent), (9, 70))), ()
        yield f"pow {exponent}", partial(stepped, kind="binary", make=make, y=(9, 70))
    for order in np.ascontiguousarray, channels_last:
        last = " channels last" if order is channels_last else ""

        def placed(kind, make, y=image, order=order):
            return partial(stepped, kind=kind, make=lambda numbers: make(numbers, order), y=y, order=order)

        yield "affine" + last, partial(affine, order=order)
        yield "instance_norm" + last, placed("instance_norm", lambda n, o: ((o(n.positive(*image)),), (1e-5, n(19), n(19))))
        for kernel, stride, before, y in ((2, 2), (2, 2), (0, 0), (2, 19, 4, 4)), ((3, 3), (2, 2), (1, 1), (2, 19, 5, 4)), ((3, 3), (1, 1), (1, 1), image):
            k = "x".join(map(str, kernel + stride))
            yield f"max_pool {k}{last}", placed("max_pool", lambda n, o, a=(kernel, stride, before, (1, 1)): ((o(n(*image)),), a), y)
            counted = (-1, 10, 0, 8)  # rows of zeros count, columns do not
            yield f"avg_pool {k}{last}", placed("avg_pool", lambda n, o, a=(kernel, stride, before, (1, 1), counted): ((o(n(*image)),), a), y)
        for name in "mean", "sum", "max":
            for axes in (0,), (1,), (3,), (2, 3), (1, 3), (0, 1, 2, 3):
                y = tuple(1 if a in axes else n for a, n in enumerate((3, 70, 9, 33)))
                yield (f"reduce {name} {axes}{last}",
                       partial(stepped, kind="reduce", make=lambda n, a=axes, name=name, o=order: ((name, o(n(3, 70, 9, 33))), (a,)), y=y))
        yield "copy" + last, partial(stepped, kind="copy", make=lambda n, o=order: ((n(3, 21, 37, 18),), ()), y=(3, 21, 37, 18), order=order)
    for axis, n in (0, 7), (0, 64), (1, 1), (1, 7), (1, 16), (1, 31), (1, 100), (1, 1000):
        shape = (n, 18) if axis == 0 else (6, n)
        yield f"softmax {axis} of {n}", partial(stepped, kind="softmax", make=lambda m, s=shape, a=axis: ((9 * m(*s),), (a, False)), y=shape)
    for n in 1, 2, 15, 16, 33, 64, 95, 768:
        yield f"norm {n}", partial(stepped, kind="norm", make=lambda m, n=n: ((m(9, n) + np.float32(3),), (1e-5, m(n), m(n), -1)), y=(9, n))
    for m, n, k in (1, 1, 1), (5, 7, 3), (100, 33, 20), (1, 40, 64), (70, 17, 1), (33, 64, 300):
        for swap in "", "a", "b":
            yield f"matmul {m}x{n}x{k} {swap}".strip(), partial(matmul, m=m, n=n, k=k, swap=swap)
    nearest, linear = ([0, 0, 1, 1, 2, 2, 3, 3], [0, 0, 1, 2, 3, 3, 4]), ([0, 0, 0, 1, 1, 2, 2, 3], [0, 1, 1, 2, 2, 3, 3, 3])
    yield "resize nearest", partial(stepped, kind="resize",
                                     make=lambda n: ((channels_last(n(2, 21, 4, 5)),), tuple((np.array(p), None, None) for p in nearest)),
                                    y=(2, 21, 8, 7), order=channels_last)
    yield "resize linear", partial(stepped, kind="resize", make=lambda n: ((channels_last(n(2, 21, 4, 5)),), tuple(
        (np.array(p), np.array(q), np.abs(n(len(p)))) for p, q in zip((linear[0], nearest[1]), (linear[1], nearest[1])))),
        y=(2, 21, 8, 7), order=channels_last)
    for kernel, stride, dilation, groups in ((2, 2), (2, 2), (1, 1), 1), ((3, 3), (2, 2), (1, 1), 1), ((4, 4), (2, 2), (1, 1), 1), ((6, 5), (2, 3), (3, 2), 3):
        yield (f"conv_transpose {kernel[0]}x{kernel[1]} stride={stride[0]} groups={groups}",
               partial(transposed, kernel=kernel, stride=stride, dilation=dilation, groups=groups))


def affine(numbers, order):
    x, r, y = (order(numbers(2, 19, 9, 8)) for _ in range(3))
    step("affine", x, y, r, numbers(19), numbers(19), activations.parse("relu"))
    return [np.ascontiguousarray(y)]


def matmul(numbers, m, n, k, swap):
    def matrix(name, *shape):
        x = numbers(*shape)
        return np.ascontiguousarray(x.swapaxes(2, 3)).swapaxes(2, 3) if name == swap else x
    y = np.zeros((2, 3, m, n), np.float32)
    step("matmul", matrix("a", 2, 3, m, k), matrix("b", 2, 3, k, n), y, 0.25, activations.parse("relu"))
    return [y]


def transposed(numbers, kernel, stride, dilation, groups):
    size = [(i - 1) * s + d * (k - 1) + 1 for i, s, d, k in zip((5, 4), stride, dilation, kernel)]
    layer = _core.ConvTranspose2dPlan(numbers(6, 8, *kernel), numbers(8 * groups), activations.parse("relu"), stride, dilation, groups)
    y = channels_last(np.zeros((2, 8 * groups, *size), np.float32))
    step("conv_transpose", layer, channels_last(numbers(2, 6, 5, 4)), y, None, 0, 0)
    return [np.ascontiguousarray(y)]


def of_the_table():
    for name, operation in OPERATIONS.items():
        yield f"operation {name}", lambda numbers, o=operation: o(o.draw(numbers))


def benchmark():
    """The benchmark's convolutions: for which variants run, not for bits, which take plain C seconds."""
    from decisions import benchmark, named
    made = {}
    for (channels, outputs, kernel, stride, groups, padding, dilation), image in benchmark():
        options = dict(stride=stride, groups=groups, padding=padding, dilation=dilation)
        for layout in LAYOUTS:
            name = "benchmark " + named((channels, outputs, kernel, stride, groups, padding, dilation), image, layout)
            made[name] = partial(convolution, layout=layout, shape=(channels, image[1:], outputs, kernel, options), algorithm="auto",
                                 given=EPILOGUES[0], n=1)
    return made


def cases():
    """Every case by name."""
    made = {}
    for part in convolutions, depthwises, products, recurrents, blocks, steps, of_the_table:
        for name, case in part():
            assert name not in made, name
            made[name] = case
    return made
