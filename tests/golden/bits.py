"""The cases of bits.csv: every operation, at shapes around the borders of each algorithm and kernel.

A case is a function of `Numbers` that gives arrays. Cases that call libm are left out, for its last bits are the
system's: `pow` with exponents other than 0, 1, 2, 3, -1 and 0.5, `log`, log-softmax, and normalization over channels.
"""

import zlib
from functools import partial
from itertools import product

import numpy as np

import fusedops as fo
from catalog import BATCHED, LARGE, OPERATIONS, dims, results, using_int8_products
from conv_cases import (
    DEPTHWISE,
    DIRECT,
    FEW_OUTPUTS,
    FEW_STEPS,
    FIRST,
    LINES,
    NARROW,
    ONE_ROW,
    SMALL,
    WINDOWS,
    WINOGRAD,
)
from fusedops import _core, activations
from fusedops._core import Program

LAYOUTS = ("NCHW", "NHWC")


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
        integers = (h >> np.uint32(8)).astype(np.int32) - (1 << 23)
        return (integers / np.float32(1 << 23)).astype(np.float32).reshape(shape)

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
    dict(bias=True, residual=True, activation="clip"),
    dict(bias=True, activation="silu"),
    dict(residual=True, activation="prelu"),
    dict(bias=True, residual=True, activation="gelu"),
    dict(),
    dict(bias=True, activation="hardswish"),
    dict(bias=True, bn=True, residual=True, activation="tanh"),
]


def described(options):
    """Options as words of a name; a plain True is its name alone."""
    return " ".join(name if value is True else f"{name}={value}".replace(" ", "") for name, value in options.items())


def joined(*parts):
    return " ".join(filter(None, parts))


def epilogue(numbers, given, c, shape):
    """The arguments that `given` names, for c channels and a result of this shape."""
    made = {"bias": partial(numbers, c), "bn": partial(numbers.batch_norm, c), "residual": partial(numbers, *shape)}
    return {k: numbers.activation(v, c) if k == "activation" else made[k]() for k, v in given.items()}


def convolution(numbers, layout, shape, algorithm, given, n):
    ic, size, oc, kernel, options = shape
    icg = ic // options.get("groups", 1)
    x, k = numbers(*dims(layout, n, ic, *size)), icg * kernel[0] * kernel[1]
    w = numbers(oc, icg, *kernel) / np.float32(k**0.5)
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
    return joined(f"{ic}x{h}x{w} to {oc} {kh}x{kw}", described(options))


AUTO = [
    (96, (27, 32), 130, (1, 1), dict(stride=2)),
    (97, (13, 25), 64, (1, 1), dict(stride=(1, 2))),
    (64, (12, 12), 64, (3, 3), dict(padding=1)),
    (33, (28, 28), 64, (3, 3), dict(padding=1)),
    (128, (28, 28), 64, (3, 3), dict(padding=1)),
    (48, (27, 27), 64, (5, 5), dict(padding=2)),
    (128, (14, 14), 128, (1, 1), {}),
    (3, (65, 67), 32, (7, 7), dict(stride=2, padding=3)),
    (64, (7, 7), 64, (3, 3), dict(padding=1)),
    (64, (28, 28), 64, (3, 3), dict(padding=1, stride=2)),
    (32, (20, 50), 33, (3, 3), dict(padding=1, stride=(2, 1))),
    (16, (3, 70), 34, (3, 3), {}),
    *((16, (1, 70), oc, (1, 3), {}) for oc in (4, 6, 15, 28)),
]


def convolutions():
    small = [
        (ic, size, oc, kernel, options | dict(groups=groups))
        for ic, oc, groups in [(64, 130, 1), (48, 15, 3)]
        for kernel, options, size in SMALL + NARROW
    ]
    lines = [
        (ic, (height, width), oc, kernel, options)
        for n, (kernel, options) in enumerate(LINES)
        for ic, oc, width, height in [(4, 6, 19, 11 + n % 7), (20, 34, 35, 17 - n % 7), (4, 70, 9, 12 + n % 5)]
    ]
    tables = {
        "direct": DIRECT + FEW_STEPS + small + FEW_OUTPUTS,
        "auto": WINDOWS + ONE_ROW + AUTO,
        "winograd": WINOGRAD,
        "winograd1d": lines,
    }
    for algorithm, shapes in tables.items():
        for shape, given in alternated(shapes):
            for layout in LAYOUTS:
                n = 2 if shape[0] * shape[1][0] * shape[1][1] * shape[2] < 50000 else 1
                yield (
                    joined("conv2d", algorithm, layout, f"{n} of", named(shape), described(given)),
                    partial(convolution, layout=layout, shape=shape, algorithm=algorithm, given=given, n=n),
                )
    for ic, oc, size, options in FIRST:
        shape = (ic, size, oc, (3, 3), dict(stride=2, **options))
        for given in EPILOGUES[:4]:
            yield (
                joined("conv2d first layer", named(shape), described(given)),
                partial(convolution, layout="NHWC", shape=shape, algorithm="auto", given=given, n=2),
            )


# Channels last: channels of a pixel, image, padding, and channels that are not read. Some share few sets of a cache.
WIDE_PIXELS = [
    (512, (9, 14), 1, 0),
    (500, (9, 13), 1, 12),
    (70, (15, 7), 1, 954),
    (64, (5, 30), 1, 448),
    (48, (8, 21), ((0, 1), (1, 0)), 464),
    (512, (8, 7), ((2, 0), (0, 2)), 0),
    (256, (14, 14), 1, 0),
    (144, (17, 22), 1, 0),
    (528, (8, 15), 1, 0),
    (112, (7, 13), 1, 0),
    (160, (7, 16), 0, 0),
    (32, (9, 9), 1, 0),
    (16, (9, 8), 1, 0),
    (48, (7, 3), 3, 0),
    (144, (6, 14), 1, 0),
    (260, (7, 14), 1, 0),
    (64, (28, 28), 1, 0),
    (20, (6, 23), 2, 0),
]
WIDTHS = (1, 2, 5, 7, 8, 9, 12, 14, 15, 16, 17, 23, 24, 28, 31, 32, 33, 40, 47, 48, 49, 56, 63, 64, 65, 80, 112, 130)
# Kernels that have no instance: kernel, image, options.
OTHER_KERNELS = [
    ((1, 3), (1, 261), dict(padding=(0, 1))),
    ((1, 31), (2, 300), dict(padding=(0, 15))),
    ((1, 4), (1, 530), dict(stride=(1, 2))),
    ((3, 5), (4, 256), dict(padding=(1, 2))),
    ((2, 6), (4, 300), dict(stride=(1, 2), dilation=(1, 3))),
    ((6, 6), (20, 30), dict(padding=3)),
    ((4, 4), (14, 30), dict(padding=(2, 1))),
    ((3, 3), (21, 29), dict(stride=3)),
    ((3, 3), (33, 33), dict(dilation=4, padding=4)),
    ((5, 5), (33, 33), dict(dilation=2, padding=4)),
    ((3, 1), (40, 1), dict(padding=(1, 0))),
]
SQUARES = [(7, 7), (14, 14), (28, 28), (15, 15), (16, 16), (8, 8), (33, 300)]


def depthwise_planes():
    def shape(k, stride, c, height, width, padding):
        return c, 1, (height, width), (k, k), dict(stride=stride, padding=padding)

    yield from (
        shape(3, stride, 2, 9 + n % 13, width, 1 if n % 3 else ((0, 1), (1, 0)))
        for stride in (1, 2)
        for n, width in enumerate(WIDTHS)
        if width > 2
    )
    yield from (
        shape(k, stride, 3, 11 + n % 5, width, k // 2)
        for k in (5, 7)
        for stride in (1, 2)
        for n, width in enumerate(WIDTHS[::3])
    )
    yield from (shape(3, stride, 3, *size, 1) for stride in (1, 2) for size in SQUARES)
    yield from ((3, 1, size, kernel, options) for kernel, size, options in OTHER_KERNELS)


def depthwise_pixels():
    """(shape, channels that are not read)"""
    for k, stride in (3, 1), (3, 2), (5, 1), (7, 1):
        for c, size, padding, gap in WIDE_PIXELS:
            if k == 3 or c * size[0] * size[1] < 40000:
                yield (c, 1, size, (k, k), dict(stride=stride, padding=padding)), gap
    for c in range(1, 35):
        yield (c, 1, (4 + c % 5, 5), (3, 3), dict(stride=1 + c % 2, padding=1)), 0


def depthwises():
    shapes = [(shape, layout, 0) for shape in DEPTHWISE for layout in LAYOUTS]
    shapes += [(shape, "NCHW", 0) for shape in depthwise_planes()]
    shapes += [(shape, "NHWC", gap) for shape, gap in depthwise_pixels()]
    for (shape, layout, gap), given in alternated(shapes):
        c, multiplier, size, kernel, options = shape
        n = 2 if c * size[0] * size[1] < 5000 else 1
        whole = named((c, size, c * multiplier, kernel, options))
        yield (
            joined("depthwise", layout, f"{n} of", whole, f"of {c + gap}" if gap else "", described(given)),
            partial(depthwise, layout=layout, shape=shape, given=given, n=n, gap=gap),
        )


def multiplied(numbers, m, n, k, given, function):
    a, b = numbers(m, k), numbers(n, k) / np.float32(k**0.5)
    options = epilogue(numbers, given, n, (m, n))
    return [fo.linear(a, b, **options) if function == "linear" else fo.gemm(a, b.T.copy(), **options)]


# Rows, columns, steps: blocks, pieces of a reduction, and what a cache does not hold.
PRODUCTS = [
    (1, 67, 1031),
    (67, 131, 1),
    (130, 1, 259),
    (13, 523, 700),
    (97, 33, 513),
    (150, 97, 64),
    (15, 67, 900),
    (2, 100, 1500),
    (4, 300, 65),
    (70, 21, 1027),
    (130, 8, 2049),
    (33, 261, 3001),
    (65, 260, 1100),
    (90, 70, 1024),
    (30, 256, 256),
    (1, 1000, 512),
    (64, 512, 96),
    (1100, 1000, 65),
    (1, 12, 70),
    (2, 12, 70),
    (3, 70, 8200),
    (17, 3, 9001),
    (3, 140, 600),
    (5, 300, 600),
]


def products():
    sizes = [
        (m, n, 1 + m * n % 37)
        for m in (1, 2, 3, 5, 6, 7, 11, 12, 13, 25)
        for n in (1, 2, 3, 7, 8, 15, 16, 17, 24, 31, 33, 49, 65)
    ]
    sizes += [
        (m, n, k)
        for n in (24, 40, 44, 56, 64, 72, 73)
        for m, k in [(19, 37), (22, 128), (64, 131), (97, 64), (13, 1026)]
    ]
    sizes += [(m, 70, k) for m in (71, 72, 75, 97) for k in (1, 16, 64, 65)]
    sizes += [(m, n, k) for n in (1, 2, 3) for m, k in [(7, 63), (16, 64), (31, 145), (64, 113), (75, 1024), (9, 16)]]
    for i, ((m, n, k), given) in enumerate(alternated(sizes + PRODUCTS)):
        given = {name: value for name, value in given.items() if name != "bn"}
        function = "gemm" if i % 4 > 1 else "linear"
        yield (
            joined(f"{function} {m}x{n}x{k}", described(given)),
            partial(multiplied, m=m, n=n, k=k, given=given, function=function),
        )


GATES = {"rnn": 1, "lstm": 4, "gru": 3}


BFLOAT16 = np.dtype((np.uint16, {"bfloat16": (np.uint16, 0)}))


def as_bfloat16(w, dtype=BFLOAT16):
    return (w.view(np.uint32) >> 16).astype(np.uint16).view(dtype)


COLUMNS = 1, 3, 8, 16, 17, 24, 31, 33, 49, 65, 100, 140, 600  # of all tiles


def packed(numbers, m):
    """Layers, whose weights are packed however few rows there are."""
    return [fo.Linear(numbers(n, 37), numbers(n))(numbers(m, 37)) for n in (*COLUMNS, 12)]


def of_many_steps(numbers, m):
    """Few rows whose tiles are four panels wide."""
    return [fo.Linear(numbers(140, 100), numbers(140))(numbers(m, 100))]


def halves(numbers, m, narrow):
    """Products with weights of 16 bits."""
    return [fo.linear(numbers(m, 37), narrow(numbers(n, 37)), numbers(n)) for n in COLUMNS]


def products_of_halves():
    for m in (*range(1, 14), 25):
        yield f"linear of halves {m} rows", partial(halves, m=m, narrow=np.float16)
        yield f"linear of bfloat16 {m} rows", partial(halves, m=m, narrow=as_bfloat16)


def packed_products():
    for m in (*range(1, 14), 25):
        yield f"Linear {m} rows", partial(packed, m=m)
    for m in (1, 2, 3):
        yield f"Linear {m} rows of 100 steps", partial(of_many_steps, m=m)


def blockwise(numbers, bits, m, rounds=False):
    """Products with weights of 4 or 8 bits, 50 x 60 in blocks of 32, of rows as they are or rounded."""
    q, zeros = (numbers(2, words, 32).view(np.uint32) for words in (2 * bits, 1))
    plan = _core.LinearPlan()
    plan._pack_bits(50, 60, bits, 32, q, numbers(2, 2, 32), zeros, numbers(50), activations.parse(None, 50), rounds)
    return plan(numbers(m, 60))


def products_of_blockwise():
    for bits, m in product((4, 8), (1, 2, 3, 4, 9)):
        yield f"linear of {bits} bits {m} rows", partial(blockwise, bits=bits, m=m)
        yield f"linear of {bits} bits {m} rounded rows", partial(blockwise, bits=bits, m=m, rounds=True)
    for bits, m in product((4, 8), (5, 6, 7, 8, 11, 13, 16)):  # each height of a tile that unpacks
        yield f"linear of {bits} bits {m} rows", partial(blockwise, bits=bits, m=m)


def recurrent(numbers, mode, steps, batch, inputs, hidden, dtype=np.float32, **options):
    """A layer of that many steps, or a cell where steps is 0."""
    directions = 2 if options.get("bidirectional") else 1
    gates, bound = GATES[mode] * hidden, np.float32(1 / hidden**0.5)
    w_ih, w_hh, b_ih, b_hh = (
        [(numbers(*shape) * bound).astype(dtype) for _ in range(directions)]
        for shape in ((gates, inputs), (gates, hidden), (gates,), (gates,))
    )
    if steps:
        weights = (w_ih, w_hh, b_ih, b_hh) if directions > 1 else (w_ih[0], w_hh[0], b_ih[0], b_hh[0])
        y, state = getattr(fo, mode)(numbers(steps, batch, inputs), None, *weights, **options)
        return [y, *(state if isinstance(state, tuple) else (state,))]
    states = [numbers(batch, hidden) for _ in range(2 if mode == "lstm" else 1)]
    weights = w_ih[0], w_hh[0], b_ih[0], b_hh[0]
    return results(getattr(fo, mode + "_cell")(numbers(batch, inputs), *states, *weights, **options))


def in_float32(case):
    """A case of precision="bfloat16" whose rounded operands are multiplied in float32, as any processor can."""

    def run(numbers):
        with using_int8_products("words"):
            return case(numbers)

    return run


def rounded(numbers, m):
    """Layers of all heights and widths of tiles."""
    return [
        fo.Linear(numbers(n, k), numbers(n), precision="bfloat16")(numbers(m, k)) for n in COLUMNS for k in (37, 64)
    ]


def rounded_ends(numbers, m=21, n=70, k=37):
    """What a product of bfloat16 stores and adds: floats and a residual, bfloat16 with and without one."""
    layer, x, residual = fo.Linear(numbers(n, k), numbers(n), precision="bfloat16"), numbers(m, k), numbers(m, n)
    bf16, floats = _core.BFLOAT16, np.dtype(np.float32)
    step = partial(byte_step, "qlinear", layer=layer, types=(floats, bf16, bf16), x=x)
    added = as_bfloat16(residual, bf16)
    return [
        layer(x, residual),
        step(np.empty((m, n), bf16)),
        step(np.empty((m, n), bf16), residual=added),
    ]


def by_dots(case):
    """The same by the set's dot product of bfloat16, whose sums no other set has; None where there is none."""

    def run(numbers):
        with using_int8_products("dots"):
            return case(numbers) if _core.has_bfloat16() else None

    return run


def rounded_image(numbers, layout, shape):
    ic, size, oc, kernel, options = shape
    w = numbers(oc, ic // options.get("groups", 1), *kernel)
    layer = fo.Conv2d(w, numbers(oc), layout=layout, precision="bfloat16", **options)
    return [layer(numbers(*dims(layout, 2, ic, *size)))]


ROUNDED_IMAGES = [
    (3, (33, 35), 20, (3, 3), dict(stride=2, padding=1)),
    (24, (9, 40), 34, (3, 3), dict(padding=1)),
    (40, (7, 8), 70, (1, 1), {}),
    (12, (11, 10), 18, (3, 2), dict(groups=2, dilation=2)),
]


ROUNDED_ROWS = [*range(1, 14), 25, 40]


def products_of_bfloat16():
    for shape, layout in product(ROUNDED_IMAGES, LAYOUTS):
        case = partial(rounded_image, layout=layout, shape=shape)
        yield f"conv2d {layout} {named(shape)} rounded to bfloat16", in_float32(case)
        yield f"conv2d {layout} {named(shape)} dots of bfloat16", by_dots(case)
    for m in ROUNDED_ROWS:
        case = partial(rounded, m=m)
        yield f"Linear {m} rows rounded to bfloat16", in_float32(case)
        yield f"Linear {m} rows, dots of bfloat16", by_dots(case)
    yield "Linear that stores and adds, dots of bfloat16", by_dots(rounded_ends)


# Steps (0: a cell), batch, inputs, units.
RECURRENT = [
    (0, 1, 7, 13),
    (0, 3, 33, 48),
    (0, 16, 20, 64),
    (0, 65, 17, 31),
    (5, 1, 7, 13),
    (6, 3, 17, 24),
    (4, 9, 40, 64),
    (3, 40, 64, 130),
    (12, 1, 128, 128),
]


def recurrents():
    for mode in GATES:
        forms = [{}, dict(reset_after=False)] if mode == "gru" else [{}]
        for steps, batch, inputs, hidden in RECURRENT:
            for options in forms + ([dict(bidirectional=True)] if steps else []):
                name = f"{mode}{'' if steps else '_cell'} {steps or 1}x{batch} {inputs} to {hidden}"
                yield (
                    joined(name, described(options)),
                    partial(recurrent, mode=mode, steps=steps, batch=batch, inputs=inputs, hidden=hidden, **options),
                )


def recurrents_of_bfloat16():
    for mode in GATES:
        forms = [{}, dict(reset_after=False)] if mode == "gru" else [{}]
        for options, (steps, batch, inputs, hidden) in product(forms, RECURRENT[4:]):
            sizes = dict(mode=mode, steps=steps, batch=batch, inputs=inputs, hidden=hidden)
            case = partial(recurrent, precision="bfloat16", **sizes, **options)
            name = f"{mode} {steps}x{batch} {inputs} to {hidden}"
            yield joined(f"{name} bfloat16", described(options)), in_float32(case)
            yield joined(f"{name} dots of bfloat16", described(options)), by_dots(case)

    for mode, names in ("lstm", ("hardsigmoid", "tanh", "softplus")), ("gru", ("hardsigmoid", "softplus")):
        yield (
            f"{mode} of other gates",
            partial(recurrent, mode=mode, steps=5, batch=3, inputs=7, hidden=37, activations=names),
        )


def recurrents_of_halves():
    for mode in GATES:
        for steps, batch, inputs, hidden in RECURRENT[:4] + RECURRENT[5:8]:
            yield (
                f"{mode} of halves {steps}x{batch} {inputs} to {hidden}",
                partial(recurrent, mode=mode, steps=steps, batch=batch, inputs=inputs, hidden=hidden, dtype=np.float16),
            )


def block(numbers, hidden, size, layout, stride, k, c, activation, one_pass=True):
    """An inverted residual block without its addition, or without an expansion where hidden is None."""
    inner = hidden or c
    scale = {n: np.float32(n**0.5) for n in (c, inner)}
    expand = hidden and fo.Conv2d(
        numbers(hidden, c, 1, 1) / scale[c], numbers(hidden), activation="relu6", layout=layout
    )
    depth = fo.Conv2d(
        numbers(inner, 1, k, k) / np.float32(k),
        numbers(inner),
        activation=activation,
        groups=inner,
        stride=stride,
        padding=k // 2,
        layout=layout,
    )
    project = fo.Conv2d(
        numbers(7, inner, 1, 1) / scale[inner], numbers(7), activation=("leaky_relu", 0.1), layout=layout
    )
    kernel = _core.SeparablePlan() if one_pass else _core.BlockPlan()  # which takes what is faster
    kernel._join(expand, depth, project)
    return [kernel(numbers(*dims(layout, 1, c, *size)), None)]


# Channels after the expansion, image, stride, kernel, channels, activation of the depthwise part.
BLOCKS = [
    (12, (9, 11), 1, 3, 7, "hardswish"),
    (96, (40, 50), 1, 3, 7, "relu6"),
    (96, (40, 50), 2, 3, 7, "relu6"),
    (100, (23, 90), 2, 5, 7, "hardswish"),
    (48, (24, 130), 1, 3, 8, "relu"),
    (128, (24, 230), 1, 3, 16, "relu6"),
    (None, (24, 41), 1, 3, 48, "relu6"),
    (None, (31, 30), 2, 3, 24, None),
    (None, (19, 120), 1, 3, 136, "relu6"),
    (50, (9, 180), 1, 3, 20, "relu6"),
]


def blocks():
    yield (
        "block layer by layer",
        partial(block, hidden=12, size=(9, 11), layout="NCHW", stride=1, k=3, c=7, activation="relu", one_pass=False),
    )
    for layout in LAYOUTS:
        for hidden, size, stride, k, c, activation in BLOCKS:
            yield (
                f"block {layout} {c} to {hidden} {size[0]}x{size[1]} {k}x{k} stride={stride} {activation}",
                partial(block, hidden=hidden, size=size, layout=layout, stride=stride, k=k, c=c, activation=activation),
            )


def step(kind, *args, **options):
    """One step of a program."""
    p = Program()
    p.append(kind, *args, **options) if hasattr(p, "append") else getattr(p, kind)(*args, **options)
    p.run(())


def channels_last(x):
    return np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)


ORDERS = {"": np.ascontiguousarray, " channels last": channels_last}


def stepped(kind, shape, before, after=lambda numbers: (), order=np.ascontiguousarray):
    """A case of one step: what stands before its result among the arguments, and after it."""

    def case(numbers):
        y = order(np.zeros(shape, np.float32))
        step(kind, *before(numbers), y, *after(numbers))
        return [np.ascontiguousarray(y)]

    return case


def transposed_16_bits(numbers):
    x, y = numbers(3, 70, 37).astype(np.float16), np.empty((3, 37, 70), np.float16)
    step("copy", x.swapaxes(1, 2), y, size=2)
    return [y.astype(np.float32)]


def elementwise():
    parse, shape = activations.parse, (5, 6, 33)
    for name in "identity", "sqrt", "exp", "erf", "reciprocal", "neg", "abs":
        yield f"unary {name} rows", stepped("unary", (37, 70), lambda n, f=name: (f, n.positive(37, 70)))
        yield (
            f"unary {name} strided",
            stepped("unary", (37, 70), lambda n, f=name: (f, np.repeat(n.positive(37, 70), 2, 1)[:, ::2])),
        )
    for name in sorted(activations.KINDS):
        if name not in ("identity", "prelu"):
            yield (
                f"activation {name}",
                stepped(
                    "unary",
                    (3, 1300),
                    lambda n: ("identity", 8 * n(3, 1300)),
                    lambda n, f=name: (parse(n.activation(f, 1)),),
                ),
            )
    for name in "add", "sub", "mul", "div", "max", "min", "prelu":
        for other in shape, (33,), (6, 1), (1, 1, 1):

            def before(numbers, name=name, other=other):
                return name, numbers(*shape), np.broadcast_to(numbers.positive(*other), shape)

            yield (
                f"binary {name} {'x'.join(map(str, other))}",
                stepped("binary", shape, before, lambda n: (parse("relu"),)),
            )
    for exponent in 0, 1, 2, 3, -1, 0.5:

        def before(numbers, exponent=exponent):
            return "pow", numbers.positive(9, 70), np.broadcast_to(np.float32(exponent), (9, 70))

        yield f"pow {exponent}", stepped("binary", (9, 70), before)


IMAGE = (2, 19, 9, 8)
# Kernel, stride, padding before, result.
POOLS = [
    ((2, 2), (2, 2), (0, 0), (2, 19, 4, 4)),
    ((3, 3), (2, 2), (1, 1), (2, 19, 5, 4)),
    ((3, 3), (1, 1), (1, 1), IMAGE),
]
COUNTED = (-1, 10, 0, 8)  # of an average: rows of zeros count, columns do not


def passes_over_images():
    for last, order in ORDERS.items():

        def image(numbers, order=order):
            return (order(numbers(*IMAGE)),)

        yield "affine" + last, partial(affine, order=order)
        yield ("instance_norm" + last, stepped("instance_norm", IMAGE, image, lambda n: (1e-5, n(19), n(19)), order))
        for kernel, stride, before, y in POOLS:
            k = "x".join(map(str, kernel + stride))
            window = kernel, stride, before, (1, 1)
            yield f"max_pool {k}{last}", stepped("max_pool", y, image, lambda n, w=window: w, order)
            yield f"avg_pool {k}{last}", stepped("avg_pool", y, image, lambda n, w=window: (*w, COUNTED), order)
        over = (0,), (1,), (3,), (2, 3), (1, 3), (0, 1, 2, 3)
        for name, axes in product(("mean", "sum", "max", "min", "prod"), over):
            y = tuple(1 if a in axes else n for a, n in enumerate((3, 70, 9, 33)))
            yield (
                f"reduce {name} {axes}{last}",
                stepped("reduce", y, lambda n, f=name, o=order: (f, o(n(3, 70, 9, 33))), lambda n, a=axes: (a,)),
            )
        shape = (3, 21, 37, 18)
        yield "copy" + last, stepped("copy", shape, lambda n, s=shape: (n(*s),), order=order)
    yield "copy of 16 bits, transposed", transposed_16_bits
    rows, columns = np.array([0, 0, 1, 1, 2, 2, 3, 3]), np.array([0, 0, 1, 2, 3, 3, 4])
    more = np.array([0, 0, 0, 1, 1, 2, 2])

    def small(numbers):
        return (channels_last(numbers(2, 21, 4, 5)),)

    yield (
        "resize nearest",
        stepped("resize", (2, 21, 8, 7), small, lambda n: ((rows, None, None), (columns, None, None)), channels_last),
    )

    def between(numbers):
        return (rows, rows[::-1].copy(), np.abs(numbers(8))), (columns, more, np.abs(numbers(7)))

    yield "resize linear", stepped("resize", (2, 21, 8, 7), small, between, channels_last)
    for kernel, stride, dilation, groups in TRANSPOSED:
        yield (
            f"conv_transpose {kernel[0]}x{kernel[1]} stride={stride[0]} groups={groups}",
            partial(transposed, kernel=kernel, stride=stride, dilation=dilation, groups=groups),
        )


def elements():
    """Of any type: bits of whole numbers and of what is chosen do not depend on a set."""
    for name, of, to in (
        ("less", np.int64, np.bool_),
        ("equal", np.float32, np.bool_),
        ("mul", np.int32, np.int32),
        ("mod", np.int64, np.int64),
        ("where", np.float32, np.float32),
        ("cast", np.float32, np.int64),
        ("cast", np.bool_, np.float32),
        ("round", np.float32, np.float32),
    ):
        yield f"map {name} {np.dtype(of)} to {np.dtype(to)}", partial(mapped, name=name, of=of, to=to)
    for axis in 0, 1:
        yield f"argmax {axis}", partial(argmax, axis=axis)
        yield f"top_k {axis}", partial(top_k, axis=axis)
        yield f"cumsum {axis}", partial(cumsum, axis=axis)
    yield "sampled", sampled

    def places(numbers):
        return channels_last(numbers(2, 21, 4, 5)), *(3 * numbers(2, 1, 6, 70) for _ in range(2))

    for mode, beyond in product(("nearest", "linear", "cubic"), ("zeros", "reflection")):
        yield (
            f"grid_sample {mode} {beyond}",
            stepped(
                "grid_sample", (2, 21, 6, 70), places, lambda n, m=mode, b=beyond: (m, b, "borders"), channels_last
            ),
        )

    def boxes(numbers):
        corners = np.abs(3 * numbers(5, 2))
        return (
            channels_last(numbers(2, 21, 9, 8)),
            np.hstack([corners, corners + 4]).astype(np.float32),
            np.arange(5) % 2,
        )

    yield "roi_align", stepped("roi_align", (5, 21, 3, 2), boxes, lambda n: (0, 0.75, -0.5, True), channels_last)


def mapped(numbers, name, of, to):
    count = {"where": 3, "cast": 1, "round": 1}.get(name, 2)
    given = [(9 * numbers(37, 70)).astype(of) for _ in range(count)]
    if name == "where":
        given[0] = given[0] > 0
    y = np.zeros((37, 70), to)
    step("map", name, *[*given, None, None][:3], y, np.dtype(of), np.dtype(to))
    return [y]


def sampled(numbers):
    at = np.argsort(numbers(4, 37), axis=1)
    return [_core.sampled(numbers(37, 70), at, numbers(4, 37))]


def argmax(numbers, axis):
    y = np.zeros((1, 70) if axis == 0 else (37, 1), np.int64)
    step("argmax", False, numbers(37, 70), y, axis)
    return [y]


def top_k(numbers, axis):
    shape = (5, 70) if axis == 0 else (37, 5)
    y, places = np.zeros(shape, np.float32), np.zeros(shape, np.int64)
    step("top_k", False, numbers(37, 70), y, places, axis)
    return [y, places]


def cumsum(numbers, axis):
    results = []
    for exclusive, reverse in (False, False), (True, True):
        y = np.zeros((37, 70), np.float32)
        step("cumsum", numbers(37, 70), y, axis, exclusive, reverse, y.dtype)
        results.append(y)
    return results


def rows_and_matrices():
    for axis, n in (0, 7), (0, 64), (1, 1), (1, 7), (1, 16), (1, 31), (1, 100), (1, 1000):
        shape = (n, 18) if axis == 0 else (6, n)
        yield (
            f"softmax {axis} of {n}",
            stepped("softmax", shape, lambda m, s=shape: (9 * m(*s),), lambda m, a=axis: (a, False)),
        )
    for n in 1, 2, 15, 16, 33, 64, 95, 768:
        yield (
            f"norm {n}",
            stepped("norm", (9, n), lambda m, n=n: (m(9, n) + np.float32(3),), lambda m, n=n: (1e-5, m(n), m(n), -1)),
        )
    for n in 1, 7, 16, 31, 100, 1000:
        yield f"rms_norm {n}", partial(called_with, fo.rms_norm, (9, n), weight=n)
        yield (
            f"layer_norm with a residual {n}",
            partial(called_with, fo.layer_norm, (9, n), weight=n, bias=n, residual=(9, n)),
        )
        yield f"layer_norm far from zero {n}", partial(called_with, fo.layer_norm, (9, n), add=1.6e7, eps=0.1)
        yield f"layer_norm huge {n}", partial(called_with, fo.layer_norm, (9, n), times=1e20)
    for groups in 1, 3, 6:
        for layout in LAYOUTS:
            yield (
                f"group_norm {groups} {layout}",
                partial(
                    called_with, fo.group_norm, dims(layout, 2, 6, 7, 9), weight=6, bias=6, groups=groups, layout=layout
                ),
            )
    for m, n, k in (
        (1, 1, 1),
        (5, 7, 3),
        (100, 33, 20),
        (1, 40, 64),
        (70, 17, 1),
        (33, 64, 300),
        (1, 1100, 70),
        (3, 2, 700),
    ):
        for swap in "", "a", "b":
            yield joined(f"matmul {m}x{n}x{k}", swap), partial(matmul, m=m, n=n, k=k, swap=swap)
    for swap in "", "b":
        yield joined("matmul 1x1100x70 in place", swap), partial(matmul, m=1, n=1100, k=70, swap=swap, scale=1)


def called_with(function, shape, numbers, add=0, times=1, **options):
    """A function of an array of this shape; numbers in place of other arrays are their lengths, tuples their shapes."""
    x = numbers(*shape) * np.float32(times) + np.float32(add)
    arrays = {
        name: numbers(*np.atleast_1d(options.pop(name))) for name in ("weight", "bias", "residual") if name in options
    }
    return [np.ascontiguousarray(function(x, **arrays, **options))]


def attentions():
    for heads, kv_heads, t, s, d, dv in (
        (2, 2, 5, 7, 3, 4),
        (4, 2, 1, 300, 16, 32),
        (3, 3, 1, 257, 64, 40),
        (2, 1, 97, 513, 24, 64),
        (1, 1, 13, 40, 300, 7),
    ):
        for kind in "", "causal", "added", "taken":
            yield (
                joined(f"attention {heads}/{kv_heads} {t}x{s} {d} {dv}", kind),
                partial(attention, sizes=(heads, kv_heads, t, s, d, dv), kind=kind),
            )
            case = partial(attention, sizes=(heads, kv_heads, t, s, d, dv), kind=kind, precision="bfloat16")
            yield joined(f"attention {heads}/{kv_heads} {t}x{s} {d} {dv} bfloat16", kind), in_float32(case)
            yield joined(f"attention {heads}/{kv_heads} {t}x{s} {d} {dv} dots of bfloat16", kind), by_dots(case)
        for narrow, kv_type in (("float16", np.dtype(np.float16)), ("bfloat16", _core.BFLOAT16)):
            case = partial(attention_of_16_bits, kv_type=kv_type, sizes=(heads, kv_heads, t, s, d, dv))
            yield f"attention {heads}/{kv_heads} {t}x{s} {d} {dv} {narrow} keys and values", case


def attention(numbers, sizes, kind, **options):
    heads, kv_heads, t, s, d, dv = sizes
    q, k, v, mask = 4 * numbers(heads, t, d), numbers(kv_heads, s, d), numbers(kv_heads, s, dv), numbers(heads, t, s)
    mask = {"added": mask, "taken": mask < 0}.get(kind)
    return [fo.attention(q, k, v, mask=mask, causal=kind == "causal", **options)]


def attention_of_16_bits(numbers, sizes, kv_type):
    heads, kv_heads, t, s, d, dv = sizes
    q, k, v = 4 * numbers(1, heads, t, d), numbers(1, kv_heads, s, d), numbers(1, kv_heads, s, dv)
    y, program = np.empty((1, heads, t, dv), np.float32), Program()
    k, v = (as_bfloat16(a, kv_type) if kv_type == _core.BFLOAT16 else a.astype(kv_type) for a in (k, v))
    program.append("attention", q, k, v, y, kv_type=kv_type)
    program.run(())
    return [y]


def affine(numbers, order):
    x, r, y = (order(numbers(*IMAGE)) for _ in range(3))
    step("affine", x, y, r, numbers(19), numbers(19), activations.parse("relu"))
    return [np.ascontiguousarray(y)]


def matmul(numbers, m, n, k, swap, scale=0.25):
    def matrix(name, *shape):
        x = numbers(*shape)
        return np.ascontiguousarray(x.swapaxes(2, 3)).swapaxes(2, 3) if name == swap else x

    y = np.zeros((2, 3, m, n), np.float32)
    step("matmul", matrix("a", 2, 3, m, k), matrix("b", 2, 3, k, n), y, scale, activations.parse("relu"))
    return [y]


# Kernel, stride, dilation, groups.
TRANSPOSED = [
    ((2, 2), (2, 2), (1, 1), 1),
    ((3, 3), (2, 2), (1, 1), 1),
    ((4, 4), (2, 2), (1, 1), 1),
    ((6, 5), (2, 3), (3, 2), 3),
]


def transposed(numbers, kernel, stride, dilation, groups):
    size = [(i - 1) * s + d * (k - 1) + 1 for i, s, d, k in zip((5, 4), stride, dilation, kernel)]
    w, bias = numbers(6, 8, *kernel), numbers(8 * groups)
    layer = _core.ConvTranspose2dPlan(w, bias, activations.parse("relu"), stride, dilation, groups)
    y = channels_last(np.zeros((2, 8 * groups, *size), np.float32))
    step("conv_transpose", layer, channels_last(numbers(2, 6, 5, 4)), y, None, 0, 0)
    return [np.ascontiguousarray(y)]


def of_the_table():
    for kind, table in ("operation", OPERATIONS), ("large operation", LARGE):
        for name, operation in table.items():
            if "log" not in operation.function.__name__:
                yield f"{kind} {name}", partial(called, operation)


def called(operation, numbers):
    arrays = operation.draw(numbers)
    arrays = {k: a if k in BATCHED else a / np.float32(a.shape[-1] ** 0.5) for k, a in arrays.items()}
    return [array for part in operation(arrays) for array in results(part)]


def as_bytes(numbers, dtype, *shape):
    return (128 * numbers(*shape) + (128 if dtype == np.uint8 else 0)).astype(dtype)


def quantized_product(numbers, m, n, k, dtype, activation):
    q = fo.Quantization(0.02, 100 if dtype == np.uint8 else -20)
    layer = fo.QLinear(
        as_bytes(numbers, np.int8, n, k),
        numbers(n),
        x_q=q,
        w_q=fo.Quantization(numbers.positive(n) / 100),
        y_q=fo.Quantization(0.1, 30),
        residual_q=q,
        activation=activation,
    )
    x, residual = as_bytes(numbers, dtype, m, k), as_bytes(numbers, dtype, m, n)
    return [layer(x), layer(x, residual), fo.QLinear(numbers(n, k), numbers(n), activation=activation)(numbers(m, k))]


# Channels, image, outputs, kernel, options.
QUANTIZED = [
    (64, (14, 14), 104, (1, 1), {}),
    (6, (7, 9), 30, (1, 1), dict(stride=2)),
    (16, (13, 12), 33, (3, 3), dict(padding=1)),
    (3, (23, 21), 24, (7, 7), dict(stride=2, padding=3)),
    (8, (9, 9), 12, (5, 5), dict(stride=(2, 3), padding=2, groups=4)),
    (70, (9, 40), 70, (3, 3), dict(padding=1, groups=70)),
    (33, (9, 11), 33, (5, 5), dict(stride=2, padding=2, groups=33)),
    (16, (12, 9), 16, (7, 4), dict(padding=3, dilation=2, groups=16)),
    (1, (6, 6), 3, (3, 3), {}),
    (70, (6, 8), 70, (3, 3), dict(padding=1, groups=70)),
]


def quantized_convolution(numbers, shape, layout, activation):
    c, size, oc, kernel, options = shape
    q = fo.Quantization(0.02, 100)
    layer = fo.QConv2d(
        as_bytes(numbers, np.int8, oc, c // options.get("groups", 1), *kernel),
        numbers(oc),
        x_q=q,
        residual_q=q,
        w_q=fo.Quantization(numbers.positive(oc) / 100),
        y_q=fo.Quantization(0.1, 30),
        activation=activation,
        layout=layout,
        **options,
    )
    x = as_bytes(numbers, np.uint8, *dims(layout, 2, c, *size))
    y = layer(x)
    return [y, layer(x, as_bytes(numbers, np.uint8, *y.shape))]


def conversions(numbers):
    q = fo.Quantization(0.01, 3)
    y = [fo.quantize(numbers(7, 333), q, dtype) for dtype in (np.uint8, np.int8)]
    return [*y, *(fo.dequantize(v, q) for v in y)]


def byte_step(kind, y, **arguments):
    p = Program()
    p.append(kind, y=y, **arguments)
    p.run(())
    return y


def bytes_between(numbers, dtype):
    """Steps between layers of int8."""
    dtype, q = np.dtype(dtype), ((0.021, 3), (0.034, -5 if dtype == np.int8 else 5), (0.05, 50))
    x, floats = as_bytes(numbers, dtype, 2, 7, 9, 70), 20 * numbers(5, 333)
    image = x.transpose(0, 3, 1, 2)
    found = [byte_step("requantize", np.empty_like(floats), x=floats)]
    for name in ("add", "sub", "mul"):
        found.append(
            byte_step(
                "qbinary",
                np.empty_like(x),
                name=name,
                types=(dtype,) * 3,
                q=q,
                a=x,
                b=x[::-1],
                activation=(1, 0.0, 6.0, None),
            )
        )
    for counted in (None, (0, 7, 0, 9)):
        y = np.empty((2, 4, 5, 70), dtype)
        byte_step(
            "qpool",
            y.transpose(0, 3, 1, 2),
            types=(dtype,) * 2,
            q=q[:2],
            x=image,
            kernel=(3, 3),
            stride=(2, 2),
            before=(1, 1),
            counted=counted,
        )
        found.append(y)
    return found


def dynamic_product(numbers):
    """A product that quantizes all of its rows alike."""
    layer = _core.QLinearPlan()
    layer._pack(
        as_bytes(numbers, np.int8, 33, 50),
        numbers.positive(33) / 100,
        numbers(33),
        (0, 0.0, 0.0, None),
        None,
        None,
        None,
        whole=True,
    )
    return [layer(numbers(70, 50))]


def product_to_floats(numbers):
    """A product of rows that are int8, whose results are floats."""
    layer, w = _core.QLinearPlan(), as_bytes(numbers, np.int8, 64, 50)
    layer._pack(w, numbers.positive(64) / 100, numbers(64), (0, 0.0, 0.0, None), (0.02, 100), None, None)
    return [layer(as_bytes(numbers, np.uint8, 21, 50))]


ROUNDED = {  # what products of int8 are made of besides
    "added to bytes": lambda numbers: dict(product_q=(0.04, 120)),
    "of weights with zero points": lambda numbers: dict(w_zero=as_bytes(numbers, np.int8, 33)),
    "rounded twice": lambda numbers: dict(nudge=numbers.positive(33) / 64),
}


def rounded_product(numbers, options):
    layer, ends = _core.QLinearPlan(), ((0.02, 100), (0.03, 90), (0.05, 30))
    w, scale, bias = as_bytes(numbers, np.int8, 33, 50), numbers.positive(33) / 100, numbers(33)
    layer._pack(w, scale, bias, (0, 0.0, 0.0, None), *ends, **options(numbers))
    x, residual = (as_bytes(numbers, np.uint8, 21, k) for k in (50, 33))
    return [layer(x), layer(x, residual)]


def eight_bits():
    """All sets have the same integers: a row's columns are one."""
    yield "quantize and dequantize", conversions
    yield "dynamic product", dynamic_product
    yield "qlinear to float32", product_to_floats
    for name, options in ROUNDED.items():
        yield f"qlinear {name}", partial(rounded_product, options=options)
    for dtype in (np.uint8, np.int8):
        yield f"between layers {dtype.__name__}", partial(bytes_between, dtype=dtype)
    for i, m in enumerate([*range(1, 14), 25, 64]):
        for n, k in (104, 10), (17, 64):
            dtype, activation = (np.uint8, np.int8)[i % 2], (None, "relu", "silu")[i % 3]
            yield (
                f"qlinear {m}x{n}x{k} {dtype.__name__} {activation}",
                partial(quantized_product, m=m, n=n, k=k, dtype=dtype, activation=activation),
            )
    for i, shape in enumerate(QUANTIZED):
        for layout in LAYOUTS:
            activation = ("relu", None, "hardswish")[i % 3]
            yield (
                f"qconv2d {shape[0]} to {shape[2]} {shape[3]} {described(shape[4])} {layout} {activation}",
                partial(quantized_convolution, shape=shape, layout=layout, activation=activation),
            )


def by_amx():
    """Products of bfloat16 by AMX: for which variants run, not for bits, which are not ours."""

    def case(numbers, m):
        with using_int8_products("amx") as amx:
            return rounded(numbers, m) if amx else None

    return {f"Linear {m} rows, AMX": partial(case, m=m) for m in ROUNDED_ROWS}


def benchmark():
    """The benchmark's convolutions: for which variants run, not for bits, which take plain C seconds."""
    from decisions import benchmark, named

    made = {}
    for (channels, outputs, kernel, stride, groups, padding, dilation), image in benchmark():
        options = dict(stride=stride, groups=groups, padding=padding, dilation=dilation)
        for layout in LAYOUTS:
            name = "benchmark " + named((channels, outputs, kernel, stride, groups, padding, dilation), image, layout)
            shape = (channels, image[1:], outputs, kernel, options)
            made[name] = partial(convolution, layout=layout, shape=shape, algorithm="auto", given=EPILOGUES[0], n=1)
    return made


def cases():
    """Every case by name."""
    made = {}
    for part in (
        convolutions,
        eight_bits,
        depthwises,
        products,
        products_of_halves,
        products_of_bfloat16,
        products_of_blockwise,
        packed_products,
        recurrents,
        recurrents_of_bfloat16,
        recurrents_of_halves,
        blocks,
        elementwise,
        elements,
        passes_over_images,
        rows_and_matrices,
        attentions,
        of_the_table,
    ):
        for name, case in part():
            assert name not in made, name
            made[name] = case
    return made
