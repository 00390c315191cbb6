"""The shapes of decisions.csv: which algorithm serves which, by set and layout.

Rows of the benchmark, layers of four networks, sweeps through tile borders, and both sides of every border that an
algorithm is known to have.
"""

from itertools import product

import numpy as np

import fusedops as fo

LAYOUTS = ("NCHW", "NHWC")
SIZES = (1, 2, 3, 5, 7, 8, 12, 13, 16, 17, 24, 31, 32, 33, 48, 63, 64, 65, 96, 127, 128, 129, 192, 255, 256, 257, 512)
IMAGES = (
    4,
    5,
    7,
    8,
    9,
    13,
    14,
    15,
    16,
    17,
    27,
    28,
    29,
    31,
    32,
    33,
    48,
    55,
    56,
    57,
    63,
    64,
    65,
    96,
    112,
    113,
    127,
    128,
    129,
)


def half(kernel, dilation):
    """The padding that keeps an image's size."""
    return tuple((k - 1) * d // 2 for k, d in zip(kernel, np.broadcast_to(dilation, 2).tolist()))


def conv(channels, size, outputs, kernel=1, stride=1, groups=1, padding=None, dilation=1, n=1, width=None):
    """A hashable description: what makes the layer, and what makes the image."""
    kernel = kernel if isinstance(kernel, tuple) else (kernel, kernel)
    padding = half(kernel, dilation) if padding is None else padding
    return (channels, outputs, kernel, stride, groups, padding, dilation), (n, size, width or size)


def benchmark():
    yield from (
        conv(128, 28, 256),
        conv(64, 128, 64, 3),
        conv(64, 56, 64, 3),
        conv(256, 14, 256, 3),
        conv(512, 7, 512, 3),
        conv(128, 56, 128, 3, 2),
        conv(3, 224, 64, 7, 2),
        conv(256, 56, 64),
        conv(1024, 14, 256),
    )
    for c, size, kernel, stride in [
        (512, 14, 3, 1),
        (32, 128, 3, 1),
        (96, 112, 3, 2),
        (144, 56, 3, 1),
        (576, 14, 3, 1),
        (240, 28, 5, 1),
    ]:
        yield conv(c, size, c, kernel, stride, c)


def mobilenets():
    yield conv(3, 224, 32, 3, 2)
    size = 112
    for channels, outputs, stride in [
        (32, 64, 1),
        (64, 128, 2),
        (128, 128, 1),
        (128, 256, 2),
        (256, 256, 1),
        (256, 512, 2),
        (512, 512, 1),
        (512, 1024, 2),
        (1024, 1024, 1),
    ]:
        yield conv(channels, size, channels, 3, stride, channels)
        size //= stride
        yield conv(channels, size, outputs)
    channels, size = 16, 112
    for outputs, count, first in [(24, 2, 2), (32, 3, 2), (64, 4, 2), (96, 3, 1), (160, 3, 2), (320, 1, 1)]:
        for stride in (first, 1)[:count]:
            yield conv(channels, size, 6 * channels)
            yield conv(6 * channels, size, 6 * channels, 3, stride, 6 * channels)
            channels, size, hidden = outputs, size // stride, 6 * channels
            yield conv(hidden, size, outputs)
    yield conv(320, 7, 1280)


def resnets():
    for expansion in 1, 4:
        channels, size = 64, 56
        for stage in range(4):
            width, stride = 64 << stage, 2 if stage else 1
            for s in stride, 1:
                if expansion == 4:
                    yield conv(channels, size, width)
                yield conv(width if expansion == 4 else channels, size, width, 3, s)
                if s == 2 or channels != expansion * width:
                    yield conv(channels, size, expansion * width, 1, s)
                channels, size = expansion * width, size // s
                yield conv(width, size, channels, 1 if expansion == 4 else 3)


def sweeps():
    for size in IMAGES:
        yield from (
            conv(64, size, 128),
            conv(64, size, 64, 3),
            conv(32, size, 64, 3, 2),
            conv(24, size, 40, 5),
            conv(128, size, 128, 3, 1, 32),
            conv(64, size, 64, 3, 1, 64),
            conv(3, size, 32, 3, 2),
            conv(256, size, 64, 1, 2),
            conv(16, size, 16, 3, dilation=2),
        )
    for channels in SIZES:
        yield from (
            conv(channels, 28, 64, 3),
            conv(64, 28, channels, 3),
            conv(channels, 14, 256),
            conv(256, 14, channels),
        )


LINES = [
    ((3, 3), (2, 1)),
    ((5, 5), 1),
    ((5, 5), 2),
    ((7, 7), 1),
    ((7, 7), 2),
    ((11, 11), 4),
    ((3, 1), 1),
    ((1, 3), 1),
    ((1, 7), 1),
    ((7, 1), 1),
    ((2, 2), 1),
]
SMALL = [
    (64, 64, 1, 64),
    (256, 256, 1, 64),
    (512, 512, 3, 3),
    (64, 64, 5, 5),
    (64, 64, 12, 12),
    (3, 32, 8, 8),
    (4, 8, 1, 500),
    (512, 512, 7, 7),
    (256, 64, 1, 100000),
    (64, 256, 100000, 1),
]


def borders():
    for channels, size in product((3, 8, 16, 32, 64, 128, 256, 512, 513), (7, 10, 14, 28, 56, 112)):  # Winograd's
        for stride, dilation in (1, 1), (2, 1), (1, 2), (1, 6):
            yield conv(channels, size, max(channels, 16), 3, stride, dilation=dilation)
    for groups, channels, size in product((2, 4, 8, 32), (32, 64, 128, 256, 512), (14, 28, 56)):
        yield conv(channels, size, channels, 3, 1, groups)
        yield conv(channels, size, channels, 3, 2, groups)
    yield conv(1025, 64, 32, 3, 2)
    for (kernel, stride), channels, size in product(LINES, (3, 16, 48, 128), (9, 17, 27, 56)):
        yield conv(channels, size, 64, kernel, stride)  # Winograd's in one dimension, rows as columns
    for channels, outputs, k in product((1, 3, 16, 20, 64), (31, 32, 63, 64, 128), (1, 2, 4, 7, 16)):
        yield conv(channels, 48, outputs, k, k + (k == 1), padding=0)  # windows that become pixels
    for channels, outputs, height, width in SMALL:
        yield from (conv(channels, height, outputs, 3, stride, width=width) for stride in (1, 2))  # im2col
    for k, stride, dilation, size in product((2, 3, 4, 5, 7, 9), (1, 2, 3), (1, 2), (7, 30, 200)):
        yield conv(64, size, 64, k, stride, 64, dilation=dilation)  # depthwise
    yield from (
        conv(64, 56, 64, 3, n=8),
        conv(128, 14, 256, n=8),
        conv(3, 224, 64, 7, 2, n=8),
        conv(512, 7, 512, 3, n=8),
    )


def named(layer, image, layout):
    channels, outputs, kernel, stride, groups, padding, dilation = layer
    n, height, width = image
    text = f"conv2d {layout} {n}x{channels}x{height}x{width} to {outputs} {kernel[0]}x{kernel[1]}"
    padding = None if padding == half(kernel, dilation) else padding
    for name, value in ("stride", stride), ("groups", groups), ("dilation", dilation), ("padding", padding):
        if value not in (1, None):
            text += f" {name}={'x'.join(map(str, np.ravel(value)))}"
    return text


def shapes():
    """{layer: its images}, in the order of the lists."""
    layers = {}
    for part in benchmark, mobilenets, resnets, sweeps, borders:
        for layer, image in part():
            layers.setdefault(layer, {})[image] = None
    return layers


def convolutions():
    """(row, answer)"""
    for (channels, outputs, kernel, stride, groups, padding, dilation), images in shapes().items():
        w = np.zeros((outputs, channels // groups, *kernel), np.float32)
        for layout in LAYOUTS:
            layer = fo.Conv2d(w, stride=stride, groups=groups, padding=padding, dilation=dilation, layout=layout)
            for image in images:
                n, height, width = image
                shape = (n, channels, height, width) if layout == "NCHW" else (n, height, width, channels)
                name = layer.kernel(shape)[0]
                yield (
                    named((channels, outputs, kernel, stride, groups, padding, dilation), image, layout),
                    name if layer.isa == fo.isa() else f"{layer.isa} {name}",
                )


def products():
    sizes = (1, 2, 3, 7, 8, 12, 16, 24, 32, 40, 48, 64, 72, 100, 300, 1000)
    for n, k in product(sizes, (3, 16, 32, 33, 64, 100, 512)):
        yield f"linear {n} from {k}", fo.Linear(np.zeros((n, k), np.float32)).isa


# Channels, those after the expansion, output channels; images.
BLOCKS = [(8, 48, 8), (8, 96, 8), (24, 144, 24), (64, None, 128), (128, None, 128), (128, None, 16)]
BLOCK_IMAGES = (6, 14, 28, 40, 56, 65, 72, 110, 112, 224)


def block(channels, hidden, outputs, layout, stride):
    def layer(c, outputs, kernel=1, **options):
        w = np.zeros((outputs, c // options.get("groups", 1), kernel, kernel), np.float32)
        return fo.Conv2d(w, layout=layout, **options)

    inner = hidden or channels
    depthwise = layer(inner, inner, 3, groups=inner, padding=1, stride=stride, activation="relu6")
    project = layer(inner, outputs)
    if hidden:
        return fo.InvertedResidual(layer(channels, hidden, activation="relu6"), depthwise, project)
    return fo.DepthwiseSeparable(depthwise, project)


def blocks():
    for layout, (channels, hidden, outputs), stride in product(LAYOUTS, BLOCKS, (1, 2)):
        made = block(channels, hidden, outputs, layout, stride)
        for size in BLOCK_IMAGES:
            shape = (1, channels, size, size) if layout == "NCHW" else (1, size, size, channels)
            name = f"block {layout} {channels} {hidden or ''} {outputs} at {size} stride={stride}"
            yield name, "one pass" if made.fuses(shape) else "layers"


def answers():
    """(row, answer) of the machine that this process is."""
    fo.set_num_threads(1)
    for part in convolutions, products, blocks:
        yield from part()
