"""Shapes at the borders of every algorithm and kernel, which the tests of each share with the golden tables.

A convolution is (input channels, image, output channels, kernel, options). The register tiles of products are 12 x 32,
6 x 16, 8 x 8 and 4 x 2.
"""

DIRECT = [
    (1, (1, 1), 1, (1, 1), {}),
    (3, (5, 7), 2, (1, 1), {}),
    (16, (4, 3), 32, (1, 1), {}),
    (17, (7, 7), 33, (1, 1), {}),
    (65, (13, 1), 47, (1, 1), {}),
    (31, (3, 11), 12, (1, 1), dict(stride=2)),
    (300, (4, 5), 17, (1, 1), dict(stride=(1, 3))),
    (3, (5, 5), 4, (3, 3), {}),
    (2, (7, 6), 12, (3, 3), dict(padding=1)),
    (8, (11, 13), 17, (3, 3), dict(padding=1)),
    (64, (8, 8), 64, (3, 3), dict(padding=1)),
    (130, (5, 6), 49, (3, 3), dict(padding=1)),
    (5, (9, 8), 7, (3, 3), dict(stride=2, padding=1)),
    (4, (12, 7), 33, (3, 3), dict(stride=(2, 1), padding=(0, 2))),
    (3, (17, 19), 16, (7, 7), dict(stride=2, padding=3)),
    (2, (9, 11), 6, (5, 5), dict(padding=2)),
    (2, (9, 11), 6, (3, 5), dict(padding=((2, 0), (1, 3)))),
    (3, (6, 7), 5, (3, 3), dict(padding=((0, 0), (0, 2)))),
    (3, (6, 7), 5, (3, 3), dict(padding=((0, 1), (0, 0)), stride=2)),
    (2, (3, 40), 5, (1, 7), dict(padding=(0, 3))),
    (2, (40, 3), 5, (7, 1), dict(padding=(3, 0), stride=3)),
    (3, (11, 11), 5, (3, 3), dict(dilation=2, padding=2)),
    (3, (13, 12), 5, (3, 2), dict(dilation=(1, 3), stride=(3, 2), padding=((0, 1), (2, 0)))),
    (6, (6, 6), 4, (3, 3), dict(groups=2, padding=1)),
    (32, (5, 5), 64, (3, 3), dict(groups=4, padding=1)),
    (8, (9, 40), 8, (3, 3), dict(groups=2, padding=1)),
    (8, (9, 41), 12, (3, 3), dict(groups=2, stride=2, padding=(1, 3))),
    (34, (4, 4), 51, (1, 1), dict(groups=17)),
    (100, (6, 21), 60, (3, 3), dict(groups=5, padding=1)),  # groups that are copied in one go, and some that are left
    (90, (9, 40), 18, (3, 3), dict(groups=9, stride=2, padding=1)),
    (5, (6, 3), 131, (3, 3), dict(padding=1)),
    (5, (9, 12), 70, (3, 3), dict(stride=2)),
    (5, (6, 7), 5, (3, 3), dict(groups=5, padding=1)),
    (4, (6, 17), 12, (3, 3), dict(groups=4, stride=2)),
    (192, (25, 11), 100, (3, 3), dict(stride=2, padding=1)),  # weights that pass in pieces, of all rows
    (224, (11, 10), 70, (3, 3), {}),
    (160, (5, 32), 100, (3, 3), dict(padding=1)),
    (4, (2, 2), 8, (3, 3), dict(padding=4)),  # windows that see nothing but padding
    (2, (4, 5), 3, (4, 5), {}),  # one window
]

# Of few steps: tiles stacked along the rows of the result, of each height that they may have.
FEW_STEPS = [
    (ic, size, oc, (1, 1), {})
    for ic, size, oc in [
        (4, (23, 25), 6),
        (5, (23, 25), 13),
        (7, (23, 25), 15),
        (16, (23, 25), 17),
        (37, (23, 25), 29),
        (64, (23, 25), 34),
        (63, (23, 25), 48),
        (16, (5, 6), 33),
        (18, (5, 7), 70),
        (60, (60, 91), 41),
        (5, (59, 139), 70),
        (300, (19, 21), 17),
    ]
]

# Small images and narrow ones: products with zeros are left out. Kernel, options, image.
SMALL = [
    ((3, 3), dict(padding=1), (1, 1)),
    ((3, 3), dict(padding=1), (2, 2)),
    ((3, 3), dict(padding=1), (3, 5)),
    ((3, 3), {}, (3, 9)),
    ((3, 3), dict(padding=3), (2, 4)),
    ((3, 3), dict(padding=((0, 2), (1, 0))), (4, 7)),
    ((3, 3), dict(padding=1, stride=2), (7, 7)),
    ((3, 3), dict(padding=1, stride=2), (8, 3)),
    ((3, 3), dict(padding=1, stride=(3, 2)), (5, 4)),
    ((3, 3), dict(padding=2, stride=(5, 4)), (9, 9)),
    ((3, 3), dict(padding=2, dilation=2), (5, 6)),
    ((3, 3), dict(padding=(2, 4), dilation=(2, 4), stride=(2, 3)), (6, 5)),
    ((3, 3), dict(padding=(6, 9), dilation=(6, 9)), (5, 4)),
    ((4, 3), dict(padding=(5, 3), dilation=(3, 2), stride=(2, 1)), (4, 6)),
    ((2, 5), dict(padding=(0, 2)), (4, 7)),
    ((5, 5), dict(padding=2, stride=2), (5, 5)),
    ((1, 3), dict(padding=(0, 1)), (2, 6)),
    ((7, 7), dict(padding=3, stride=2), (4, 5)),
]
NARROW = [
    ((3, 3), dict(padding=1), (1, 700)),
    ((3, 3), dict(padding=1), (700, 1)),
    ((3, 5), dict(padding=(1, 2), stride=(1, 3)), (1, 800)),
    ((7, 3), dict(padding=(3, 1), stride=(2, 1)), (901, 1)),
    ((3, 3), dict(padding=(50, 1), dilation=(50, 1)), (340, 1)),
    ((16, 2), dict(padding=(15, 0)), (1, 40)),
]

# Windows that do not overlap become pixels of a 1x1 convolution where there is no padding.
WINDOWS = [
    (ic, size, oc, kernel, dict(stride=stride))
    for ic, size, oc, kernel, stride in [
        (3, (32, 48), 64, (4, 4), 4),
        (3, (65, 33), 32, (8, 8), 8),
        (3, (50, 75), 70, (5, 5), 5),
        (1, (29, 31), 64, (6, 6), 7),
        (20, (30, 18), 64, (2, 3), (2, 3)),
        (33, (19, 40), 65, (2, 2), 2),
        (18, (41, 17), 64, (3, 3), 4),
        (40, (16, 21), 64, (1, 3), (2, 3)),
        (16, (9, 9), 64, (1, 1), 3),
        (64, (14, 14), 64, (2, 2), 2),
        (3, (64, 96), 64, (16, 16), 16),
        (17, (8, 300), 64, (4, 4), 4),
    ]
]

# Kernels of one row, some of which become kernels of one column on a transposed image.
ONE_ROW = [
    (ic, size, oc, (1, k), options)
    for ic, size, oc, k, options in [
        (32, (17, 19), 48, 7, dict(padding=(0, 3))),
        (17, (12, 33), 33, 3, dict(padding=((1, 0), (0, 1)))),
        (64, (18, 40), 64, 5, dict(stride=(2, 1), padding=(0, 2))),
        (24, (14, 30), 96, 9, dict(stride=(1, 2), padding=(0, 4))),
        (16, (11, 25), 70, 3, dict(dilation=(1, 2), padding=(0, 2))),
        (40, (1, 300), 40, 3, {}),
        (130, (20, 21), 5, 4, {}),
        (3, (40, 3), 64, 3, dict(padding=(0, 1))),
    ]
]

WINOGRAD = [
    (ic, size, oc, (3, 3), options)
    for ic, size, oc, options in [
        (5, (1, 1), 7, dict(padding=1)),
        (5, (2, 3), 7, dict(padding=1)),
        (5, (9, 11), 7, dict(padding=1)),
        (9, (8, 17), 5, {}),
        (20, (10, 14), 33, dict(padding=1)),
        (12, (8, 10), 33, dict(padding=1)),
        (70, (20, 22), 35, dict(padding=1)),
        (70, (25, 24), 35, dict(padding=1)),
        (70, (23, 21), 35, dict(padding=1)),
        (130, (14, 14), 64, dict(padding=1)),
        (20, (9, 47), 33, dict(padding=((2, 0), (3, 1)))),
        (16, (13, 64), 40, dict(padding=1)),
        (9, (7, 129), 24, dict(padding=9)),
        (1, (18, 32), 256, dict(padding=1)),
        (64, (26, 20), 64, dict(padding=1)),
        (32, (56, 56), 32, dict(padding=1)),
        (5, (21, 27), 7, dict(padding=(1, 2), dilation=(3, 2))),
        (9, (8, 17), 5, dict(dilation=2)),
        (16, (36, 41), 32, dict(padding=2, dilation=2)),
        (16, (13, 14), 32, dict(padding=5, dilation=5)),
        (24, (19, 22), 32, dict(padding=1, groups=2)),
        (64, (14, 15), 64, dict(padding=1, groups=4)),
        (5, (2, 3), 7, dict(padding=1, stride=2)),
        (5, (21, 27), 7, dict(padding=1, stride=2)),
        (9, (8, 17), 5, dict(stride=2)),
        (130, (13, 14), 140, dict(padding=1, stride=2)),
        (37, (20, 21), 35, dict(padding=1, stride=2)),
        (37, (26, 32), 35, dict(padding=1, stride=2)),
        (37, (31, 25), 35, dict(padding=1, stride=2)),
        (20, (16, 130), 18, dict(padding=1, stride=2)),
        (20, (11, 100), 18, dict(padding=1, stride=2)),
        (16, (36, 41), 32, dict(padding=1, stride=2, groups=2)),
    ]
]

# Several output rows share products: every number of taps that a stride leaves, and of rows. Kernel, options.
LINES = [
    ((3, 3), dict(stride=2, padding=1)),
    ((2, 3), {}),
    ((3, 1), dict(stride=(1, 2))),
    ((3, 3), dict(groups=2, padding=1)),
    ((4, 2), dict(stride=(3, 1), padding=((2, 1), (0, 3)))),
    ((4, 4), dict(dilation=(1, 2), padding=3)),
    ((5, 5), dict(padding=2)),
    ((5, 5), dict(stride=2, padding=2)),
    ((7, 7), dict(stride=2, padding=3)),
    ((11, 11), dict(stride=4, padding=2)),
    ((16, 1), dict(padding=(9, 0))),
]

# The first layer of a network: channels, output channels, image, options; 3x3, stride 2, channels last.
FIRST = [
    (3, 32, (33, 98), dict(padding=1)),
    (3, 16, (24, 109), dict(padding=((0, 1), (0, 1)))),
    (1, 48, (22, 75), dict(padding=((3, 2), (20, 5)))),
    (4, 32, (13, 101), {}),
]

# Channels, multiplier, image, kernel, options. Lanes, 16 to 1, are channels (NHWC) or columns (NCHW).
DEPTHWISE = [
    (1, 1, (1, 1), (1, 1), {}),
    (3, 1, (3, 3), (3, 3), {}),
    (8, 1, (5, 7), (3, 3), dict(padding=1)),
    (16, 1, (4, 16), (3, 3), dict(padding=1)),
    (17, 1, (6, 17), (3, 3), dict(padding=1)),
    (33, 1, (3, 33), (3, 3), dict(padding=1)),
    (64, 1, (14, 14), (3, 3), dict(padding=1)),
    (5, 1, (9, 31), (3, 3), dict(stride=2, padding=1)),
    (15, 1, (8, 18), (3, 3), dict(stride=2, padding=((0, 1), (0, 1)))),
    (32, 1, (9, 9), (5, 5), dict(padding=2)),
    (7, 1, (11, 35), (5, 5), dict(stride=2, padding=2)),
    (9, 1, (9, 12), (7, 7), dict(padding=3)),
    (140, 1, (6, 7), (7, 7), dict(padding=3)),
    (3, 1, (8, 52), (7, 7), dict(padding=((0, 3), (3, 1)))),
    (8, 1, (11, 23), (7, 7), dict(stride=2, padding=3)),
    (150, 1, (9, 11), (3, 3), dict(padding=1)),  # many channels: tiles follow each other over them
    (150, 1, (9, 11), (3, 3), dict(stride=2, padding=1)),
    (40, 1, (7, 41), (5, 5), dict(padding=((0, 2), (4, 0)))),
    (24, 1, (13, 30), (3, 3), dict(dilation=(3, 2), padding=2)),
    (4, 1, (10, 19), (2, 2), dict(stride=2)),
    (6, 1, (10, 19), (1, 4), dict(padding=((0, 0), (3, 0)))),
    (6, 1, (19, 10), (4, 1), dict(stride=(3, 1))),
    (13, 1, (12, 20), (3, 3), dict(dilation=2, padding=2)),
    (13, 1, (12, 20), (3, 3), dict(dilation=(1, 3), stride=(2, 1), padding=(1, 3))),
    (3, 2, (6, 9), (3, 3), dict(padding=1)),
    (8, 4, (5, 17), (3, 3), dict(stride=2, padding=1)),
    (17, 3, (5, 5), (1, 1), {}),
    (2, 1, (2, 3), (3, 3), dict(padding=3)),  # windows that see nothing but padding
    (2, 1, (9, 8), (9, 8), {}),  # one window
]

# Few output channels, few pixels: (channels, size, output channels, kernel, options).
FEW_OUTPUTS = [
    (4, size, oc, (3, 3), dict(padding=1))
    for size, oc in [
        ((5, 40), 1),
        ((5, 40), 2),
        ((5, 40), 3),
        ((3, 24), 1),
        ((1, 16), 1),
        ((1, 2), 1),
        ((1, 1), 24),
        ((1, 5), 48),  # three vectors of AVX-512, in tiles of 5 and of 8 pixels
        ((1, 8), 48),
        ((4, 60), 5),
    ]
]
