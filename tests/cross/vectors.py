"""Writes the cases that driver.c runs: random inputs and what the float64 oracle makes of them.

    python vectors.py FILE

Needs NumPy alone, not the package: the cases are for processors on which Python may not run. The form of a case is
described in driver.c, the integers of each kind at the function that reads them.
"""

import itertools
import math
import re
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import oracle
from oracle import Approx, U

ROOT = Path(__file__).resolve().parent.parent.parent
KINDS = re.findall(
    r'X\(with, FO_\w+, "(\w+)"', (ROOT / "csrc/include/fusedops/activations.h").read_text()
)  # fo_act_kind
PARAMETERS = {"clip": (-0.25, 0.5), "leaky_relu": (0.1,), "elu": (0.75,)}
FUNCTIONS = {  # fo_function
    "same": lambda a, b: a,
    "sqrt": lambda a, b: np.sqrt(a),
    "exp": lambda a, b: np.exp(a),
    "log": lambda a, b: np.log(a),
    "erf": lambda a, b: np.vectorize(math.erf)(a),
    "reciprocal": lambda a, b: 1 / a,
    "neg": lambda a, b: -a,
    "abs": lambda a, b: abs(a),
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "pow": lambda a, b: a**b,
    "max": lambda a, b: np.maximum(a, b),
    "min": lambda a, b: np.minimum(a, b),
    "slope": lambda a, b: np.where(a > 0, a, a * b),
}
AUTO, DIRECT, WINOGRAD, WINOGRAD_1D = range(4)
WINOGRAD_BOUNDS = {2: 2e-6, 4: 2e-5, 6: 5e-5}  # of max |y|, promised for each tile

rng = np.random.default_rng(0)
cases = []


def draw(*shape):
    return rng.uniform(-1, 1, shape).astype(np.float32)


def activation(name, channels):
    """The oracle's form of an activation, its parameters, and its slopes."""
    parameters = PARAMETERS.get(name, ())
    slopes = draw(channels) if name == "prelu" else None
    if name == "identity":
        return None, parameters, slopes
    return (name, slopes) if name == "prelu" else (name, *map(np.float32, parameters)), parameters, slopes


def case(kind, name, integers, inputs, outputs, act="identity", scalars=()):
    """`outputs` are Approx; every array is written in the order of its own axes."""
    inputs = [np.zeros(0, np.float32) if a is None else np.ascontiguousarray(a, np.float32) for a in inputs]
    head = [
        kind,
        name.replace(" ", "_")[:60],
        KINDS.index(act),
        *[*scalars, 0, 0, 0][:3],
        len(integers),
        *map(int, integers),
        len(inputs),
        *(a.size for a in inputs),
        len(outputs),
        *(y.value.size for y in outputs),
    ]
    arrays = [part for y in outputs for part in (y.value, np.broadcast_to(y.error, y.value.shape))]
    cases.append(
        b"".join(
            [
                " ".join(map(str, head)).encode() + b"\n",
                *(a.tobytes() for a in inputs),
                *(np.ascontiguousarray(a, np.float64).tobytes() for a in arrays),
            ]
        )
    )


def strides(a):
    return [s // a.itemsize for s in a.strides]


def axes(*tensors, shape=None):
    """What driver.c's `axes` reads, for views of one shape; None is a tensor that is not used."""
    shape = tensors[0].shape if shape is None else shape
    parts = [[0] * len(shape) if t is None else strides(t) for t in (*tensors, None, None, None)[:3]]
    return [len(shape), *shape, *itertools.chain(*parts)]


def close(value, relative, absolute=0.0):
    return Approx(value, np.broadcast_to(relative * np.abs(value) + absolute, np.shape(value)))


# Products and convolutions


WEIGHTS = "float32", "float16", "bfloat16"  # the first of fo_dtype


def bfloat16(a):
    """Floats rounded to the nearest bfloat16, ties to even."""
    u = a.view(np.uint32)
    return ((u + 0x7FFF + (u >> 16 & 1)) & 0xFFFF0000).view(np.float32)


def linear(m, n, k, act="identity", bias=True, residual=False, weights="float32"):
    act_, parameters, slopes = activation(act, n)
    x, w, b, r = draw(m, k), draw(n, k), draw(n) if bias else None, draw(m, n) if residual else None
    if weights == "float16":
        narrow = w.astype(np.float16)
        w = narrow.astype(np.float32)
    elif weights == "bfloat16":
        narrow = (w.view(np.uint32) >> 16).astype(np.uint16)
        w = (narrow.astype(np.uint32) << 16).view(np.float32)
    y = oracle.linear(x, w, b, residual=r, activation=act_)
    if weights != "float32":
        w = np.resize(narrow, narrow.size + narrow.size % 2).view(np.float32)
    name = f"{m}x{n}x{k} {act} {weights}"
    case("linear", name, [m, n, k, WEIGHTS.index(weights)], [slopes, x, w, b, r], [y], act, parameters)


def panels(columns):
    """Rows of words or scales, one for each column of a product, as fo_blockwise has them."""
    padded = np.zeros((-(-len(columns) // 32) * 32, columns.shape[1]), columns.dtype)
    padded[: len(columns)] = columns
    return np.ascontiguousarray(padded.reshape(-1, 32, columns.shape[1]).swapaxes(1, 2)).view(np.float32)


def blockwise(m, n, k, bits, block):
    x, bias, blocks, each = draw(m, k), draw(n), -(-k // block), 32 // bits
    q, zeros = (rng.integers(0, 1 << bits, (n, length)) for length in (blocks * block, -(-blocks // each) * each))
    scales = draw(n, blocks)
    w = (q.astype(np.float32) - zeros[:, :blocks].repeat(block, 1)).astype(np.float32) * scales.repeat(block, 1)
    words = [(a.reshape(n, -1, each) << np.arange(0, 32, bits)).sum(2).astype(np.uint32) for a in (q, zeros)]
    for rounds in False, True:
        case(
            "bits",
            f"{m}x{n}x{k} {bits} bits by {block}" + " of rounded rows" * rounds,
            [m, n, k, bits, block, rounds],
            [x, panels(words[0]), panels(scales), panels(words[1]), bias],
            [oracle.linear(by_blocks(x, block) if rounds else x, w[:, :k], bias)],
        )


def by_blocks(x, block):
    """Rows as int8 times a scale a block, for the largest magnitude to be 127."""
    blocks = np.pad(x, ((0, 0), (0, -x.shape[1] % block))).reshape(len(x), -1, block)
    step = np.abs(blocks).max(-1, keepdims=True) / np.float32(127)
    return (np.rint(blocks / step) * step).reshape(len(x), -1)[:, : x.shape[1]]


def matmul(m, n, k, batch, a_columns, y_columns):
    """A batch of which b is repeated along the first axis; a and y may stand column after column."""
    a, b = draw(*batch, m, k), draw(batch[1], k, n)
    y = oracle.activate(close(0.5 * (a.astype(np.float64) @ b), 0, 40 * U), ("clip", -0.25, 0.5))
    if a_columns:
        a = np.ascontiguousarray(np.swapaxes(a, -1, -2))
    if y_columns:
        y = y.map(lambda v: np.swapaxes(v, -1, -2))
    out = np.zeros(y.value.shape, np.float32)
    integers = [
        m,
        n,
        k,
        *((1, m) if y_columns else (n, 1)),
        *((1, m) if a_columns else (k, 1)),
        n,
        1,
        *axes(out[..., 0, 0], a[..., 0, 0], np.broadcast_to(b, (*batch, k, n))[..., 0, 0]),
    ]
    case("matmul", f"columns {a_columns} {y_columns}", integers, [a, b], [y], "clip", (-0.25, 0.5, 0.5))


def attention(heads, kv_heads, t, s, d, dv, causal, masked, rounded=False):
    """Heads side by side in q and y. rounded: to bfloat16, of which q, k, v and the scale are; weights are rounded."""
    q, k, v, mask = (
        draw(t, heads, d).swapaxes(0, 1),
        draw(kv_heads, s, d),
        draw(kv_heads, s, dv),
        draw(heads, t, s) if masked else None,
    )
    if rounded:
        q, k, v = map(bfloat16, (q, k, v))
    y = oracle.attention(q, k, v, mask=mask, causal=causal)
    if rounded:
        y = Approx(y.value, y.error + 2**-8 * np.abs(v).max())
    y = y.map(lambda a: np.ascontiguousarray(a.swapaxes(0, 1)))
    integers = [heads, kv_heads, t, s, d, dv, causal, *(([t * s, s, 1]) if masked else [0, 0, 0]), rounded]
    case(
        "attention",
        f"{t}x{s} causal {causal}" + " bfloat16" * rounded,
        integers,
        [q.swapaxes(0, 1), k, v, mask],
        [y],
        scalars=(0, 0, 1 / math.sqrt(d)),
    )


def conv2d(
    n,
    ic,
    oc,
    image,
    kernel,
    stride=1,
    padding=0,
    dilation=1,
    groups=1,
    act="identity",
    layout="NCHW",
    to=None,
    residual=False,
    tile=0,
    algorithm=DIRECT,
):
    """tile: Winograd's, which the sizes must be such as to choose; 0 is the algorithm that is given."""
    to = to or layout
    kernel, stride, dilation, image = map(oracle.pair, (kernel, stride, dilation, image))
    (top, _), (left, _) = oracle.pads(padding, image, kernel, stride, dilation)
    act_, parameters, slopes = activation(act, oc)
    x, w, b = draw(n, ic, *image), draw(oc, ic // groups, *kernel), draw(oc)
    options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    size = oracle.conv2d(x, w, **options).value.shape[2:]
    r = draw(n, oc, *size) if residual else None
    y = oracle.conv2d(x, w, bias=b, residual=r, activation=act_, **options)
    if tile:
        y = close(y.value, 0, WINOGRAD_BOUNDS[tile] * np.abs(y.value).max())

    def order(a, layout):
        return a if a is None or layout == "NCHW" else np.moveaxis(a, 1, 3)

    sizes = "x".join(map(str, (n, ic, *image, oc, *kernel)))
    name = f"{layout}-{to} {sizes} s{stride[0]} d{dilation[0]} g{groups} F{tile} a{algorithm} {act}"
    integers = [
        ic,
        oc,
        groups,
        *kernel,
        *stride,
        *dilation,
        n,
        *image,
        *size,
        top,
        left,
        layout == "NHWC",
        to == "NHWC",
        WINOGRAD if tile else algorithm,
        tile,
    ]
    case(
        "conv2d",
        name,
        integers,
        [slopes, order(x, layout), w, b, order(r, to)],
        [y.map(lambda v: order(v, to))],
        act,
        parameters,
    )


def conv_transpose(ic, oc, image, kernel, stride, padding, dilation=1, groups=1, residual=False):
    """y scatters each pixel of x over the kernel; here one tap at a time."""
    x, w, b = draw(2, ic, *image), draw(ic, oc // groups, *kernel), draw(oc)
    icg, ocg = ic // groups, oc // groups

    def reached(tap, pixels):
        return slice(tap * dilation, tap * dilation + (pixels - 1) * stride + 1, stride)

    span = [(i - 1) * stride + (k - 1) * dilation + 1 for i, k in zip(image, kernel)]
    full, size = np.zeros((2, 2, oc, *span))
    for (i, j), g in itertools.product(np.ndindex(*kernel), range(groups)):
        part = x[:, g * icg : (g + 1) * icg].astype(np.float64), w[g * icg : (g + 1) * icg, :, i, j].astype(np.float64)
        at = slice(None), slice(g * ocg, (g + 1) * ocg), reached(i, image[0]), reached(j, image[1])
        full[at] += np.einsum("nchw,co->nohw", *part)
        size[at] += np.einsum("nchw,co->nohw", *map(np.abs, part))
    full, size = (v[:, :, padding : v.shape[2] - padding, padding : v.shape[3] - padding] for v in (full, size))
    r = draw(*full.shape) if residual else np.zeros(full.shape, np.float32)
    value = full + b.reshape(-1, 1, 1) + r
    y = Approx(value, (icg * math.prod(kernel) + 8) * U * (size + 2)).map(lambda v: np.moveaxis(v, 1, 3))
    integers = [
        ic,
        oc,
        groups,
        *kernel,
        stride,
        stride,
        dilation,
        dilation,
        2,
        *image,
        *value.shape[2:],
        padding,
        padding,
        0,
        1,
        DIRECT,
        0,
    ]
    case(
        "conv_transpose",
        f"{ic}-{oc} {kernel[0]}x{kernel[1]} s{stride} d{dilation} g{groups}",
        integers,
        [None, x, w, b, np.moveaxis(r, 1, 3) if residual else None],
        [y],
    )


def write_products():
    for m, n, k in itertools.product((1, 2, 3, 7, 8, 17), (1, 3, 4, 5, 8, 9, 31, 32, 33), (1, 2, 67)):
        linear(m, n, k)
    for act in KINDS:
        linear(9, 13, 21, act, residual=True)
        linear(1, 40, 33, act, bias=False)
    linear(200, 70, 300, "clip")  # several tasks
    linear(5, 6, 0)
    for m in range(1, 10):
        linear(m, 67, 37, residual=True, weights="float16")
        linear(m, 67, 37, residual=True, weights="bfloat16")
    for m, n, k, bits, block in (
        (1, 40, 37, 4, 16),
        (3, 67, 130, 4, 32),
        (6, 9, 300, 8, 64),
        (1, 33, 9000, 4, 128),
        (2, 32, 64, 8, 32),
        (20, 50, 100, 4, 32),
    ):
        blockwise(m, n, k, bits, block)
    linear(19, 1, 70, "clip", residual=True)  # rows as lanes
    linear(40, 3, 130, "tanh")
    linear(9, 2, 64, "clip")
    linear(50, 2, 4000)  # the reduction in pieces
    for a_columns, y_columns in itertools.product((False, True), (False, True)):
        matmul(5, 9, 7, (2, 3), a_columns, y_columns)
    for t, s, d, dv in (1, 300, 16, 24), (5, 7, 3, 4), (50, 260, 24, 33):
        for causal, masked in (False, False), (True, False), (True, True):
            attention(4, 2, t, s, d, dv, causal, masked)
    for t, s, d, dv in (1, 300, 16, 24), (5, 7, 4, 5), (50, 261, 64, 33):
        for causal, masked in (False, False), (True, False), (True, True):
            attention(4, 2, t, s, d, dv, causal, masked, rounded=True)


def write_convolutions():
    orders = [("NCHW", "NCHW"), ("NHWC", "NHWC"), ("NCHW", "NHWC"), ("NHWC", "NCHW")]
    for layout, to in orders:
        common = {"layout": layout, "to": to}
        for kernel, stride, padding, dilation, groups in [
            (1, 1, 0, 1, 1),
            (1, 2, 0, 1, 1),
            (3, 1, 1, 1, 1),
            (3, 2, 1, 1, 1),
            ((3, 2), (1, 3), (0, 1), 1, 1),
            (3, 1, 2, 2, 1),
            (3, 1, 1, 1, 2),
            (5, 2, "same", 1, 1),
            ((1, 7), 1, (0, 3), 1, 3),
            (7, 2, 3, 1, 1),
        ]:
            oc = 10 if groups == 2 else 9
            conv2d(2, 6, oc, (11, 13), kernel, stride, padding, dilation, groups, residual=True, **common)
        conv2d(1, 35, 33, (9, 10), 1, act="clip", **common)
        conv2d(1, 64, 17, (14, 14), 3, padding=1, act="prelu", **common)
        for act in KINDS:
            conv2d(1, 3, 7, (6, 7), 3, act=act, residual=True, **common)
        for ic, oc, size, tile in [(5, 9, (2, 2), 2), (9, 5, (5, 6), 2), (33, 31, (9, 10), 4), (16, 17, (30, 29), 6)]:
            conv2d(2, ic, oc, size, 3, padding=1, tile=tile, residual=True, **common)
        conv2d(1, 6, 5, (5, 6), 3, padding=1, act="mish", tile=2, **common)
        for act in ("identity", "prelu", "gelu"):
            conv2d(2, 33, 67, (9, 13), 1, act=act, residual=True, **common)
            conv2d(2, 9, 21, (9, 13), 3, (2, 1), 1, act=act, residual=True, algorithm=WINOGRAD_1D, **common)
            conv2d(2, 3, 16, (7, 101), 3, 2, 1, act=act, residual=True, algorithm=AUTO, **common)
    for layout, kernel, stride in itertools.product(("NCHW", "NHWC"), (3, 5), (1, 2)):
        for c, image in [(1, (5, 6)), (3, (9, 33)), (9, (7, 8)), (37, (12, 11))]:
            conv2d(2, c, c, image, kernel, stride, kernel // 2, groups=c, layout=layout, residual=c == 9, act="clip")
        conv2d(1, 6, 6, (21, 40), kernel, stride, groups=6, layout=layout)  # no edges
        conv2d(1, 6, 6, (21, 40), kernel, stride, 1, groups=6, layout=layout, act="prelu")
        conv2d(1, 5, 5, (9, 8), kernel, stride, 1, groups=5, layout=layout, act="silu", residual=True)
    for layout, to in orders:  # the depthwise kernel for everything else
        conv2d(1, 5, 10, (9, 8), (3, 4), (2, 1), 2, 2, groups=5, layout=layout, to=to, act="tanh")
        conv2d(1, 7, 7, (6, 5), 7, 1, 3, groups=7, layout=layout, to=to, residual=True)
    for kernel, stride, padding, dilation, groups in [
        ((3, 3), 1, 1, 1, 1),
        ((4, 4), 2, 1, 1, 1),
        ((3, 2), 2, 0, 2, 2),
        ((2, 2), 3, 0, 1, 1),
    ]:
        conv_transpose(6, 10, (5, 4), kernel, stride, padding, dilation, groups, residual=groups == 2)


# Recurrent layers

CELLS = {"RNN": (0, 1), "LSTM": (1, 4), "GRU": (2, 3)}


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def step(kind, x, h, c, w, clip=np.inf, reset_after=True):
    """One step in float64: h and c after it."""

    def held(s):
        return np.clip(s, -clip, clip)

    gates, n = CELLS[kind][1], len(w["w_hh"]) // CELLS[kind][1]
    gx, gh = np.split(x @ w["w_ih"].T + w["b_ih"], gates, -1), np.split(h @ w["w_hh"].T + w["b_hh"], gates, -1)
    if kind == "RNN":
        return np.tanh(held(gx[0] + gh[0])), c
    if kind == "GRU":
        r, z = sigmoid(held(gx[0] + gh[0])), sigmoid(held(gx[1] + gh[1]))
        new = np.tanh(held(gx[2] + (r * gh[2] if reset_after else (r * h) @ w["w_hh"][2 * n :].T + w["b_hh"][2 * n :])))
        return (1 - z) * new + z * h, c
    p = np.zeros((3, n)) if w["peephole"] is None else w["peephole"]
    i, f = sigmoid(held(gx[0] + gh[0] + p[0] * c)), sigmoid(held(gx[1] + gh[1] + p[1] * c))
    c = f * c + i * np.tanh(held(gx[2] + gh[2]))
    h = sigmoid(held(gx[3] + gh[3] + p[2] * c)) * np.tanh(c)
    return h if w["w_hr"] is None else h @ w["w_hr"].T, c


def weights(kind, inputs, hidden, outputs, peephole=False):
    """Such that a step does not enlarge an error."""
    gates, scale = CELLS[kind][1] * hidden, np.float32(1 / math.sqrt(max(outputs, 1)))
    return {
        "w_ih": scale * draw(gates, inputs),
        "w_hh": scale * draw(gates, outputs),
        "b_ih": draw(gates),
        "b_hh": draw(gates),
        "w_hr": scale * draw(outputs, hidden) if outputs != hidden else None,
        "peephole": draw(3, hidden) if peephole else None,
    }


def wide(w):
    return {k: None if v is None else v.astype(np.float64) for k, v in w.items()}


RECURRENT = 4e-6  # bound of an error


def cell(kind, inputs, hidden, batch, outputs=None, reset_after=True, peephole=False, clip=np.inf, rounded=False):
    outputs = outputs or hidden
    w = weights(kind, inputs, hidden, outputs, peephole)
    x, h, c = draw(batch, inputs), draw(batch, outputs), draw(batch, hidden)
    if rounded:
        x, h = bfloat16(x), bfloat16(h)
        w |= {name: bfloat16(w[name]) for name in ("w_ih", "w_hh")}
    results = step(kind, *(v.astype(np.float64) for v in (x, h, c)), wide(w), clip, reset_after)
    lstm = kind == "LSTM"
    integers = [CELLS[kind][0], inputs, hidden, outputs, reset_after + 2 * rounded, batch]
    case(
        "cell",
        f"{kind} {batch}x{inputs}x{hidden}-{outputs} {reset_after}" + " bfloat16" * rounded,
        integers,
        [x, h, c if lstm else None, *w.values()],
        [close(v, 0, RECURRENT) for v in results[: 1 + lstm]],
        "tanh",
        (0, 0, clip),
    )


def sequence(
    kind,
    inputs,
    hidden,
    batch,
    steps,
    layers=1,
    directions=1,
    reverse=False,
    outputs=None,
    lengths=None,
    reset_after=True,
):
    outputs, lstm = outputs or hidden, kind == "LSTM"
    cells = [
        weights(kind, inputs if i < directions else directions * outputs, hidden, outputs)
        for i in range(layers * directions)
    ]
    x, h0, c0 = draw(steps, batch, inputs), draw(len(cells), batch, outputs), draw(len(cells), batch, hidden)
    h, c, y = h0.astype(np.float64), c0.astype(np.float64), x.astype(np.float64)
    for layer in range(layers):
        parts = []
        for d in range(directions):
            at, out = layer * directions + d, np.zeros((steps, batch, outputs))
            for t in range(steps)[:: -1 if (d == 1) != reverse else 1]:
                on = t < np.array(lengths or [steps] * batch)
                state = h[at, on], c[at, on]
                h[at, on], c[at, on] = step(kind, y[t, on], *state, wide(cells[at]), reset_after=reset_after)
                out[t, on] = h[at, on]
            parts.append(out)
        y = np.concatenate(parts, -1)
    integers = [
        CELLS[kind][0],
        inputs,
        hidden,
        outputs,
        reset_after,
        layers,
        directions,
        reverse,
        steps,
        batch,
        lengths is not None,
        *(lengths or [0] * batch),
    ]
    case(
        "sequence",
        f"{kind} {steps}x{batch}x{inputs}x{hidden} layers{layers}x{directions}",
        integers,
        [x, h0, c0 if lstm else None, *(v for w in cells for v in w.values())],
        [close(v, 0, 2 * RECURRENT) for v in (y, h, c)[: 2 + lstm]],
        "tanh",
        (0, 0, np.inf),
    )


def write_recurrent():
    for kind in CELLS:
        for inputs, hidden, batch in [
            (1, 1, 1),
            (7, 13, 3),
            (5, 4, 2),
            (8, 8, 1),
            (20, 33, 1),
            (9, 40, 9),
            (16, 17, 17),
        ]:
            cell(kind, inputs, hidden, batch)
        cell(kind, 6, 11, 4, clip=0.5)
        cell(kind, 33, 20, 5, rounded=True)
        cell(kind, 16, 33, 14, rounded=True)
        sequence(kind, 6, 9, 3, 5, lengths=[5, 0, 3])
        sequence(kind, 5, 7, 1, 6, layers=2, directions=2)
    for inputs, hidden, batch in [(7, 13, 3), (8, 8, 1), (16, 17, 17)]:
        cell("GRU", inputs, hidden, batch, reset_after=False)
        cell("LSTM", inputs, hidden, batch, outputs=5, peephole=True)
    sequence("GRU", 6, 9, 2, 4, reverse=True, reset_after=False)
    sequence("LSTM", 6, 9, 2, 4, outputs=5)
    sequence("LSTM", 24, 48, 2, 6)


# Passes over memory


def pointwise(m, n, channel_rows=0, act="identity", x=None, parts=()):
    """`parts`: which of factor, residual, scale and shift there are."""
    channels = channel_rows or n
    act_, parameters, slopes = activation(act, channels)
    x = draw(m, n) if x is None else x
    factor, residual = (draw(m, n) if name in parts else None for name in ("factor", "residual"))
    scale, shift = (draw(channels) if name in parts else None for name in ("scale", "shift"))

    def spread(v):
        return np.tile(v, m // channel_rows)[:, None] if channel_rows else v

    y = oracle.exact(x)
    for product in (factor, None if scale is None else spread(scale)):
        y = y if product is None else y * oracle.exact(np.broadcast_to(product, x.shape))
    for term in (None if shift is None else spread(shift), residual):
        y = y if term is None else y + oracle.exact(np.broadcast_to(term, x.shape))
    case(
        "pointwise",
        f"{m}x{n} rows{channel_rows} {act} {'-'.join(parts)}",
        [m, n, channel_rows],
        [slopes, x, factor, residual, scale, shift],
        [oracle.activate(y, act_, spread)],
        act,
        parameters,
    )


def elementwise(name, a, b=None, act="identity", label=""):
    """a and b are views; what is passed is the memory that they start at."""
    act_, parameters, _ = activation(act, 1)
    with np.errstate(invalid="ignore", divide="ignore"):
        y = FUNCTIONS[name](a.astype(np.float64), None if b is None else b.astype(np.float64))
    y = oracle.activate(close(y, 4 * U, U if np.isfinite(y).all() else 0), act_)
    out = np.zeros(a.shape, np.float32)
    memory = [None if v is None else v.base if v.base is not None else v for v in (a, b)]
    integers = [list(FUNCTIONS).index(name), *axes(out, a, b)]
    case("elementwise", f"{name} {act} {label}", integers, memory, [y], act, parameters)


def write_passes():
    special = np.float32([np.nan, np.inf, -np.inf, 0, -0.0, 1e-30, -1e-30, 3e38, -3e38, 89, -89, 104, -104, 20, -20])
    sweep = np.concatenate([rng.uniform(-s, s, 400) for s in (0.01, 1, 4, 10, 90)]).astype(np.float32)
    for act in KINDS:
        pointwise(1, len(sweep), 0, act, x=sweep[None])
        for n in (1, 2, 3, 4, 5, 7, 9):  # each lane of body and tail
            for value in special[:3] if act != "prelu" else special[:1]:
                pointwise(1, n, 0, act, x=np.where(np.arange(n) == n - 1, value, draw(n)).astype(np.float32)[None])
        if act in ("clip", "sigmoid", "tanh", "hardsigmoid"):  # the others grow with x
            pointwise(1, len(special), 0, act, x=special[None])
        pointwise(6, 13, 3, act, parts=("scale", "shift", "residual"))
    for n in (1, 3, 4, 6, 21):
        pointwise(5, n, parts=("factor", "scale", "shift", "residual"))
        pointwise(4, n, 2, parts=("scale",))
        pointwise(4, n, 2, parts=("shift",))
    for name in FUNCTIONS:
        center = np.float32(2 if name in ("sqrt", "log", "reciprocal", "div", "pow") else 0)
        two, shape = name in list(FUNCTIONS)[list(FUNCTIONS).index("add") :], (3, 5, 9)
        a, b, spread = center + draw(*shape), center + draw(*shape), np.broadcast_to(center + draw(5, 1), shape)
        elementwise(name, a, b if two else None)
        elementwise(name, a, b if two else None, act="tanh", label="activated")
        elementwise(name, (center + draw(3, 5, 18))[:, :, ::2], spread if two else None, label="strided")
    for a, b in itertools.permutations([np.nan, np.inf, -1.0, -np.inf], 2):
        for name in ("max", "min"):
            elementwise(name, np.full(5, a, np.float32), np.full(5, b, np.float32), label="special")
    for shape, order in [
        ((7, 5), (1, 0)),
        ((2, 9, 13), (0, 2, 1)),
        ((3, 4, 5, 6), (0, 3, 1, 2)),
        ((33, 40), (1, 0)),
        ((4, 4), (1, 0)),
    ]:
        x = draw(*shape)
        y = np.ascontiguousarray(x.transpose(order))
        case("copy", f"{shape}".replace(" ", ""), axes(y, x.transpose(order)), [x], [oracle.exact(y)])


# kernel, stride, padding before, dilation, size of y: for an image of 9 x 7
WINDOWS = [
    ((2, 2), (2, 2), (0, 0), (1, 1), (4, 3)),
    ((3, 3), (2, 2), (1, 1), (1, 1), (5, 4)),
    ((2, 3), (1, 2), (1, 2), (3, 2), (8, 4)),
    ((9, 7), (1, 1), (0, 0), (1, 1), (1, 1)),
]


def windows(x, size, kernel, stride, before, dilation):
    """x's windows as (n, c, oh, ow, kh * kw), NaN where they leave the image."""
    (kh, kw), (sh, sw), (top, left), (dh, dw), (oh, ow) = kernel, stride, before, dilation, size
    room = [(0, 0), (0, 0), (top, oh * sh + kh * dh), (left, ow * sw + kw * dw)]
    padded = np.pad(x.astype(np.float64), room, constant_values=np.nan)
    taps = [padded[:, :, i * dh :, j * dw :] for i in range(kh) for j in range(kw)]
    return np.stack([tap[:, :, : oh * sh : sh, : ow * sw : sw] for tap in taps], -1)


def between(x, axis, size, by_line):
    """x (float64) resized along an axis: the result, and the indices and weights that say how."""
    at = np.linspace(0, x.shape[axis] - 1, size)
    below = at.astype(int)
    above, weight = np.minimum(below + 1, x.shape[axis] - 1), (at - below).astype(np.float32)
    y = np.take(x, below, axis)
    if by_line:
        share = weight.astype(np.float64).reshape([-1 if d == axis else 1 for d in range(x.ndim)])
        y = y + (np.take(x, above, axis) - y) * share
    return y, below, above, weight


def resize(c, by_line):
    x, (oh, ow) = draw(2, 3, 5, c), (7, 4)
    y, h0, h1, th = between(x.astype(np.float64), 1, oh, by_line)
    y, w0, w1, tw = between(y, 2, ow, by_line)
    case(
        "resize",
        f"c{c} linear {by_line}",
        [2, c, 3, 5, oh, ow, by_line, *h0, *h1, *w0, *w1],
        [x, th, tw],
        [close(y, 0, 8 * U)],
    )


def write_images():
    for (kernel, stride, before, dilation, size), c in itertools.product(WINDOWS, (1, 3, 5, 16, 39)):
        x = draw(2, c, 9, 7)
        taps, memory = windows(x, size, kernel, stride, before, dilation), np.moveaxis(x, 1, 3)
        integers = [2, c, 9, 7, *size, *kernel, *stride, *dilation, *before, 0, 9, 0, 7]
        mean = close(np.nanmean(taps, -1), 0, (taps.shape[-1] + 2) * U)
        for kind, y in enumerate([oracle.exact(np.nanmax(taps, -1)), mean]):
            case(
                "pool",
                f"{('max', 'mean')[kind]} {kernel[0]}x{kernel[1]} c{c}",
                [kind, *integers],
                [memory],
                [y.map(lambda v: np.moveaxis(v, 1, 3))],
            )
    for c, size in itertools.product((1, 4, 7, 19), (1, 4, 5)):
        x, (alpha, beta, bias) = draw(2, 3, 2, c), (0.5, 0.75 if size == 5 else 0.6, 1.5)
        squares = np.pad(np.square(x, dtype=np.float64), [(0, 0)] * 3 + [((size - 1) // 2, size // 2)])
        around = sum(squares[..., d : d + c] for d in range(size))
        y = x / (bias + np.float32(alpha) / size * around) ** np.float32(beta)
        case("lrn", f"c{c} size{size}", [2, c, 3, 2, size], [x], [close(y, 16 * U)], scalars=(alpha, beta, bias))
    for c, by_line in itertools.product((1, 4, 6, 17), (False, True)):
        resize(c, by_line)
    for c in (1, 4, 7, 8, 19):
        x, w, at = draw(6, c), draw(4, 7), rng.integers(0, 6, (4, 7))
        y = (x[at].astype(np.float64) * w[..., np.newaxis]).sum(0)
        case("sample", f"c{c}", [7, 4, c, *at.reshape(-1)], [x, w], [close(y, 0, 8 * U)])
    for c in (1, 4, 7, 19):
        write_reading(c)


def tents(positions, size):
    """The weights (..., size) of pixels for linear interpolation at positions, beyond the image 0."""
    return np.maximum(1 - abs(np.asarray(positions, np.float64)[..., np.newaxis] - np.arange(size)), 0)


def write_reading(c):
    """Images between their pixels: at points, and in boxes."""
    x, at = draw(2, 5, 6, c), 9 * draw(2, 2, 3, 37)
    for beyond, border in enumerate((False, True)):
        rows, columns = (tents(np.clip(p, 0, n - 1) if border else p, n) for p, n in zip(at, (5, 6), strict=True))
        y = np.einsum("npqh,npqw,nhwc->npqc", rows, columns, x.astype(np.float64))
        case("grid_sample", f"c{c} {beyond}", [2, c, 5, 6, 3, 37, beyond], [x, *at], [close(y, 0, 8 * U)])
    boxes, (oh, ow, samples) = np.float32([[0.5, 1, 4, 4.5], [-3, -2, 9, 3], [5, 3, 1, 1]]), (3, 2, 2)
    lines = []
    for first, bins, size in (1, oh, 5), (0, ow, 6):
        start, length = boxes[:, first].astype(np.float64), np.diff(boxes[:, first::2].astype(np.float64))
        p = start[:, np.newaxis] + length * (np.arange(bins * samples) + 0.5) / (bins * samples)
        seen = ((p >= -1) & (p <= size))[..., np.newaxis]
        lines.append((tents(np.clip(p, 0, size - 1), size) * seen).reshape(len(boxes), bins, samples, size).mean(2))
    y = np.einsum("rph,rqw,hwc->rpqc", *lines, x[0].astype(np.float64))
    case("roi_align", f"c{c}", [len(boxes), c, 5, 6, oh, ow, samples], [x[0], boxes], [close(y, 0, 8 * U)])


def write_fibres():
    """Reductions, softmax and norms along each axis, so that fibres are contiguous and side by side."""
    for shape, axis in itertools.product([(3, 5, 4), (2, 7, 19), (1, 1, 1), (2, 300, 3), (2, 3, 700)], (0, 1, 2)):
        x = draw(*shape)
        n, exact = shape[axis], x.astype(np.float64)
        kept, name = np.take(x, 0, axis), f"{'x'.join(map(str, shape))} axis{axis}"
        inner = np.moveaxis(x, axis, -1)[..., 0]
        along = strides(x)[axis]
        total = close(exact.sum(axis), 0, (n + 8) * U)
        results = {"mean": Approx(*(v / n for v in total)), "sum": total, "max": oracle.exact(exact.max(axis))}
        for kind, (label, y) in enumerate(results.items()):
            case("reduce", f"{label} {name}", [kind, 1, n, along, 0, 0, *axes(kept, inner)], [x], [y])
        d = exact - exact.max(axis, keepdims=True)
        p = np.exp(d) / np.exp(d).sum(axis, keepdims=True)
        out = axes(inner, inner)
        for log, y in enumerate([close(p, (16 + math.sqrt(n)) * U), close(np.log(p), 4 * U, (16 + math.sqrt(n)) * U)]):
            case("softmax", f"log{log} {name}", [n, along, along, log, *out], [x], [y])
        scale, shift = draw(*shape), draw(n)
        centred = exact - exact.mean(axis, keepdims=True)
        y = centred / np.sqrt(np.square(centred).mean(axis, keepdims=True) + np.float32(0.1))
        spread = np.moveaxis(np.broadcast_to(shift, (*inner.shape, n)), -1, axis)
        case(
            "norm",
            f"{name}",
            [n, along, along, 1, *axes(inner, inner, np.broadcast_to(shift[0], inner.shape))],
            [x, shift, shift],
            [close(y * spread + spread, 0, 64 * U)],
            scalars=(0.1,),
        )
        case(
            "norm",
            f"{name} bare",
            [n, along, along, along, *axes(inner, inner, inner)],
            [x, scale, None],
            [close(y * scale, 0, 64 * U)],
            scalars=(0.1,),
        )
    x = draw(3, 4, 5, 6)
    y = x.sum((1, 3), dtype=np.float64)
    over = [2, 4, 6, strides(x)[1], strides(x)[3], 0, 0, 0, 0]
    case("reduce", "two axes", [1, *over, *axes(y.astype(np.float32), x[:, 0, :, 0])], [x], [close(y, 0, 32 * U)])


# int8


def quantized(kind, name, integers, x, w, sums, axis, clips):
    """uint8 and int8 as the bits of floats; sums have their channels at `axis`. The integers are exact."""
    scale, bias = rng.uniform(1e-3, 1e-2, len(w)).astype(np.float32), draw(len(w))
    unit = np.float32(0.02 * 0.01 * 2000 / (1 if clips else 100))
    act, parameters = ("clip", (0, 6)) if clips else ("identity", (0, 0))

    def spread(v):
        return v.astype(np.float32).reshape([-1 if a == axis else 1 for a in range(sums.ndim)]).astype(np.float64)

    x_scale = np.float64(np.float32(0.02))
    y = sums * spread(x_scale * scale / np.float64(unit)) + spread(bias / np.float64(unit))
    y = y.astype(np.float32)
    for nudge, less in itertools.product(([], [rng.uniform(0, 0.3, len(w)).astype(np.float32)]), (0, 128)):
        twice = (sums, spread(x_scale * scale), np.float64(unit), spread(bias))
        nudged = oracle.twice(*twice, spread(nudge[0])) if nudge else y
        held = np.clip(nudged, 0, np.float32(6 / np.float64(unit))) if clips else nudged
        bytes_ = np.clip(np.rint(held) + 20, 0, 255)
        inputs = [(x ^ np.uint8(less)).view(np.float32), w.reshape(-1).view(np.float32), scale, bias, *nudge]
        case(
            kind,
            f"{name} {less}{' nudged' * len(nudge)}",
            [*integers, less > 0],
            inputs,
            [oracle.exact(bytes_ - less)],
            act,
            (*parameters, unit),
        )


def qlinear(m, n, k, clips=False):
    x, w = rng.integers(0, 256, m * k, np.uint8), rng.integers(-128, 128, (n, k), np.int8)
    sums = (x.reshape(m, k).astype(int) - 100) @ w.T.astype(int)
    quantized("qlinear", f"{m}x{n}x{k}", [m, n, k], x, w, sums, 1, clips)


def qdynamic(m, n, k):
    """Rows that their own range quantizes exactly."""
    units, w = rng.integers(-100, 156, (m, k)), rng.integers(-128, 128, (n, k), np.int8)
    units[:, :2] = -100, 155
    x, scale, bias = (units / 64).astype(np.float32), rng.uniform(1e-3, 1e-2, n).astype(np.float32), draw(n)
    y = x.astype(np.float64) @ w.T.astype(int) * scale + bias
    case("qdynamic", f"{m}x{n}x{k}", [m, n, k], [x, w.reshape(-1).view(np.float32), scale, bias], [close(y, 4 * U, U)])


def qrounded(m, n, k, exact):
    """A product rounded to bfloat16; of integers it is exact. An instruction may round each sum to odd: twice the
    bound."""
    x, w, bias = (a.round(0) if exact else a for a in (9 * draw(m, k), 9 * draw(n, k), draw(n)))
    rounded = [bfloat16(a) for a in (x, w)]
    y = oracle.linear(*rounded, bias, activation=("clip", -200.0, 300.0))
    y = Approx(y.value, np.zeros_like(y.value) if exact else 2 * y.error)
    case("qrounded", f"{m}x{n}x{k}", [m, n, k], [x, w, bias], [y], "clip", (-200.0, 300.0, 0))


def qconv2d(ic, oc, image, kernel, stride=1, padding=0, groups=1, layout="NCHW", clips=False):
    x = rng.integers(0, 256, (2, ic, *image), np.uint8)
    w = rng.integers(-128, 128, (oc, ic // groups, *kernel), np.int8)
    inside = np.pad(x.astype(int) - 100, [(0, 0), (0, 0), (padding, padding), (padding, padding)])
    oh, ow = ((i + 2 * padding - k) // stride + 1 for i, k in zip(image, kernel))
    sums = np.zeros((2, groups, oc // groups, oh, ow), int)
    for r, s in np.ndindex(*kernel):
        tap = inside[..., r:, s:][..., : (oh - 1) * stride + 1 : stride, : (ow - 1) * stride + 1 : stride]
        sums += np.einsum(
            "goc,ngchw->ngohw",
            w[..., r, s].reshape(groups, -1, ic // groups).astype(int),
            tap.reshape(2, groups, -1, oh, ow),
        )
    sums = sums.reshape(2, oc, oh, ow)
    nhwc = layout == "NHWC"
    if nhwc:
        x, sums = (np.ascontiguousarray(a.transpose(0, 2, 3, 1)) for a in (x, sums))
    integers = [ic, oc, groups, *kernel, stride, stride, 1, 1, 2, *image, oh, ow, padding, padding, nhwc]
    name = f"{ic}-{oc} {image} {kernel} s{stride} g{groups} {layout}".replace(", ", "x")
    quantized("qconv2d", name, integers, x.reshape(-1), w, sums, 3 if nhwc else 1, clips)


def qconv2d_bf16(ic, oc, image, kernel, stride=1, padding=0, groups=1, layout="NCHW", exact=True):
    """As qrounded."""
    nhwc = layout == "NHWC"
    x, w, bias = 9 * draw(2, *((*image, ic) if nhwc else (ic, *image))), 9 * draw(oc, ic // groups, *kernel), draw(oc)
    x, w, bias = (a.round(0) if exact else a for a in (x, w, bias))
    options = dict(stride=stride, padding=padding, groups=groups, layout=layout)
    y = oracle.conv2d(bfloat16(x), bfloat16(w), bias=bias, activation=("clip", -200.0, 300.0), **options)
    y = Approx(y.value, np.zeros_like(y.value) if exact else 2 * y.error)
    size = y.value.shape[1:3] if nhwc else y.value.shape[2:]
    integers = [ic, oc, groups, *kernel, stride, stride, 1, 1, 2, *image, *size, padding, padding, nhwc]
    name = f"{ic}-{oc} {image} {kernel} s{stride} g{groups} {layout}".replace(", ", "x")
    case("qconv2d_bf16", name, integers, [x, w, bias], [y], "clip", (-200.0, 300.0, 0))


def write_bytes():
    for m, n, k in [(1, 1, 4), (8, 64, 64), (13, 19, 20), (4, 72, 33), (1, 100, 1000)]:
        qlinear(m, n, k, clips=n > 60)
    for m, n in itertools.product(range(1, 13), (4, 8, 20)):
        qlinear(m, n, 44)
        qrounded(m, n, 44, exact=True)
    for m, n, k in itertools.product((1, 2, 3, 5, 6, 7, 13, 40), (1, 7, 16, 35), (1, 2, 3, 4, 5, 6, 7, 8, 33, 150)):
        qrounded(m, n, k, exact=(m + k) % 2 == 0)
    for m, n, k in [(1, 20, 36), (7, 24, 100)]:
        qdynamic(m, n, k)
    for layout in "NCHW", "NHWC":
        qconv2d(16, 20, (5, 7), (1, 1), layout=layout)
        qconv2d(8, 12, (6, 30), (3, 3), padding=1, layout=layout, clips=True)
        qconv2d(3, 16, (9, 10), (3, 3), stride=2, padding=1, layout=layout)
        qconv2d(8, 8, (7, 6), (3, 3), padding=1, groups=2, layout=layout)
        for c, image, k, stride in [(20, (9, 34), 3, 1), (36, (7, 40), 3, 2), (16, (8, 18), 5, 1), (8, (6, 66), 7, 2)]:
            qconv2d(c, c, image, (k, k), stride, k // 2, c, layout, clips=stride == 1)
        qconv2d_bf16(16, 20, (5, 7), (1, 1), layout=layout)
        qconv2d_bf16(8, 7, (6, 7), (3, 3), padding=1, layout=layout, exact=False)
        qconv2d_bf16(8, 12, (7, 6), (3, 3), stride=2, padding=1, groups=2, layout=layout)
        # rows of the kernel as segments: of an even number of groups, an odd one, one alone
        for ic, kernel, stride in (3, (3, 3), 2), (8, (3, 3), 1), (6, (3, 3), 1), (10, (2, 5), 2), (2, (3, 1), 1):
            for oc, exact in (20, True), (35, False):
                qconv2d_bf16(ic, oc, (6, 29 * stride + 4), kernel, stride, 1, layout=layout, exact=exact)


if __name__ == "__main__":
    for write in (
        write_products,
        write_convolutions,
        write_recurrent,
        write_passes,
        write_images,
        write_fibres,
        write_bytes,
    ):
        write()
    Path(sys.argv[1]).write_bytes(b"".join(cases))
    print(f"{len(cases)} cases")
