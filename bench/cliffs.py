"""Looks for cliffs: functions and operators on small and large, long and short, transposed and strided arrays, against
NumPy, PyTorch and ONNX Runtime where they are installed. ``python -m bench.cliffs [PATTERN] [--threads N] [--all]``
prints what takes over 1.5 times as long as the best of them, the worst first; `PATTERN` is part of a case's name.

A function's row has the calls of fusedops, NumPy and PyTorch (None: it has none), and the shapes of its arguments; an
operator's the attributes, the shapes of inputs, and constants. A new case is a row, or a shape in one.
"""

import argparse
import itertools
from importlib.util import find_spec
from typing import NamedTuple

import numpy as np

import fusedops as fo
from fusedops._internal.timing import batch_time

from . import few_layers

LIMIT = 1.5
if find_spec("torch"):
    import torch
    import torch.nn.functional as F
if ONNX := find_spec("onnx") and find_spec("onnxruntime"):
    import onnxruntime
    from onnx import helper, numpy_helper


class Case(NamedTuple):
    name: str
    calls: dict  # by who makes them, ours as "fusedops"


def draw(shape, dtype=np.float32):
    random = np.random.default_rng(len(shape))
    if np.dtype(dtype).kind == "f":
        return random.standard_normal(shape).astype(dtype)
    return random.integers(0, 2 if dtype == np.bool_ else 100, shape).astype(dtype)


def ints(*values):
    return np.array(values, np.int64)


# ---- functions -------------------------------------------------------------------------------------------------------

LAYOUTS = {
    "": lambda a: a,
    "transposed": lambda a: np.ascontiguousarray(a.swapaxes(-1, -2)).swapaxes(-1, -2),
    "strided": lambda a: np.repeat(a, 2, -1)[..., ::2],
}
MATRICES = [(1, 64), (1, 100000), (1000, 8), (100000, 8), (300, 300), (64, 4096), (4096, 64), (8, 100000), (100000, 1)]
IMAGES = [(1, 3, 224, 224), (1, 64, 56, 56), (1, 512, 7, 7), (8, 32, 32, 32), (1, 1, 1000, 1000), (1, 2048, 1, 1)]
PRODUCTS = [
    ((m, k), (n, k))
    for m, k, n in [
        *[(1, 64, 64), (1, 1024, 1024), (1, 4096, 1000), (16, 768, 3072), (300, 300, 300), (100000, 64, 1)],
        *[(4096, 1000, 10), (1000, 8, 1000), (8, 100000, 8), (1, 100000, 1), (2000, 3, 3)],
    ]
]
BATCHES = [
    *[((10000, 1, 64), (10000, 64, 1)), ((100, 64, 64), (100, 64, 1)), ((1000, 8, 8), (1000, 8, 8))],
    *[((12, 128, 64), (12, 64, 128)), ((64, 1, 128), (64, 128, 128)), ((4, 1, 300, 300), (5, 300, 300))],
    *[((1, 512), (512, 512)), ((512, 512), (512,))],
]
CONVOLUTIONS = [
    ((1, ic, s, s), (oc, ic // g, k, k), dict(padding=k // 2, groups=g))
    for ic, s, oc, k, g in [
        *[(3, 224, 32, 3, 1), (64, 56, 64, 3, 1), (64, 56, 64, 3, 64), (512, 7, 512, 3, 1), (2048, 1, 1000, 1, 1)],
        *[(1, 512, 1, 5, 1), (32, 56, 64, 3, 32), (64, 28, 64, 17, 64), (256, 14, 256, 1, 1), (64, 28, 1, 3, 1)],
    ]
]
TRANSPOSED = [
    ((1, ic, s, s), (ic, oc // g, k, k), dict(stride=t, groups=g))
    for ic, s, oc, k, t, g in [
        *[(64, 28, 32, 2, 2, 1), (64, 56, 64, 4, 2, 64), (21, 40, 21, 16, 8, 21), (128, 14, 64, 3, 2, 1)],
        *[(64, 64, 1, 2, 2, 1), (64, 64, 3, 4, 2, 1)],
    ]
]
LONG = [
    ((1, ic, s), (ic, oc, k), dict(stride=t))
    for ic, s, oc, k, t in [
        (1026, 300, 1, 1024, 256),
        (64, 200, 1, 2100, 1050),
        (256, 100, 128, 16, 8),
        (32, 6000, 1, 4, 2),
    ]
]
POOLS = [(s, dict(kernel_size=k, stride=t)) for s in IMAGES[:5] for k, t in [(3, 2), (2, 2), (7, 1)]]


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def _pool(kind):
    return lambda x, **options: getattr(F, kind)(x, **options)


FUNCTIONS = {
    "linear": (fo.linear, lambda x, w: x @ w.T, lambda x, w: F.linear(x, w), PRODUCTS, "transposed"),
    "gemm": (fo.gemm, np.matmul, lambda a, b: a @ b, [(x, w[::-1]) for x, w in PRODUCTS], "transposed"),
    "matmul": (fo.matmul, np.matmul, lambda a, b: a @ b, BATCHES, "transposed"),
    "conv2d": (fo.conv2d, None, lambda x, w, **o: F.conv2d(x, w, **o), CONVOLUTIONS, ""),
    "conv_transpose2d": (fo.conv_transpose2d, None, lambda x, w, **o: F.conv_transpose2d(x, w, **o), TRANSPOSED, ""),
    "conv_transpose1d": (fo.conv_transpose1d, None, lambda x, w, **o: F.conv_transpose1d(x, w, **o), LONG, ""),
    "softmax": (fo.softmax, softmax, lambda x: x.softmax(-1), MATRICES, "transposed strided"),
    "softmax over rows": (lambda x: fo.softmax(x, axis=0), None, lambda x: x.softmax(0), MATRICES, "transposed"),
    "layer_norm": (
        lambda x: fo.layer_norm(x),
        None,
        lambda x: F.layer_norm(x, x.shape[-1:]),
        MATRICES,
        "transposed strided",
    ),
    "gelu": (lambda x: fo.activation(x, "gelu"), None, lambda x: F.gelu(x), MATRICES, "transposed strided"),
    "relu": (
        lambda x: fo.activation(x, "relu"),
        lambda x: np.maximum(x, 0),
        lambda x: x.relu(),
        MATRICES,
        "transposed strided",
    ),
    "max_pool2d": (fo.max_pool2d, None, _pool("max_pool2d"), POOLS, "transposed"),
    "avg_pool2d": (fo.avg_pool2d, None, _pool("avg_pool2d"), POOLS, ""),
    "global_avg_pool2d": (
        fo.global_avg_pool2d,
        lambda x: x.mean((2, 3), keepdims=True),
        lambda x: x.mean((2, 3), keepdim=True),
        IMAGES,
        "transposed",
    ),
    "resize to nearest": (
        lambda x: fo.resize(x, scale=2, mode="nearest"),
        None,
        lambda x: F.interpolate(x, scale_factor=2, mode="nearest"),
        IMAGES,
        "",
    ),
    "resize": (
        lambda x: fo.resize(x, scale=2, mode="linear"),
        None,
        lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
        IMAGES,
        "",
    ),
}


def _named(shape):
    """(shapes of the arguments, options) of a row of shapes."""
    shape = (shape,) if isinstance(shape[0], int) else shape
    return [s for s in shape if not isinstance(s, dict)], next((s for s in shape if isinstance(s, dict)), {})


def functions():
    for name, (ours, plain, torchs, rows, layouts) in FUNCTIONS.items():
        for row, layout in itertools.product(rows, ["", *layouts.split()]):
            shapes, options = _named(row)
            if layout and len(shapes[0]) < 2:
                continue
            arrays = [LAYOUTS[layout](draw(shapes[0])), *map(draw, shapes[1:])]
            calls = {"fusedops": lambda f=ours, a=arrays, o=options: f(*a, **o)}
            if plain:
                calls["NumPy"] = lambda f=plain, a=arrays, o=options: f(*a, **o)
            if torchs and find_spec("torch"):
                tensors = [torch.from_numpy(a) for a in arrays]
                calls["PyTorch"] = lambda f=torchs, a=tensors, o=options: f(*a, **o)
            text = " ".join("x".join(map(str, s)) for s in shapes)
            yield Case(" ".join([name, text, layout, *map(str, options.values())]).replace("  ", " ").strip(), calls)


# ---- operators -------------------------------------------------------------------------------------------------------

ANY = [(1000, 8), (1, 100000), (64, 64, 64), (8, 3, 100, 100)]
TYPES = [np.float32, np.int64, np.int32]


def _alike(count, types=(np.float32,), shapes=ANY, **attributes):
    """Rows of an operator of `count` inputs of one shape."""
    return [(attributes, [draw(s, t)] * count, []) for s in shapes for t in types]


def _boxes(count, classes, most):
    corners = np.random.default_rng(0).random((1, count, 2)) * 600
    boxes = np.concatenate([corners, corners + 40], -1).astype(np.float32)
    scores = np.random.default_rng(1).random((1, classes, count), np.float32) ** 8
    return {}, [boxes, scores], [ints(most), np.float32([0.5]), np.float32([0.25])]


def _corners(count):
    corners = np.random.default_rng(0).random((count, 2)) * 120
    return np.concatenate([corners, corners + 20 + np.random.default_rng(1).random((count, 2)) * 60], 1).astype("f4")


def _along(axis, *shapes):
    return [({"axis": axis}, [draw(s)], []) for s in shapes]


def _rows(n, *indices):
    return np.random.default_rng(0).integers(0, n, indices)


LINES = [(1000, 8), (8, 100000), (64, 64, 64)]
OPERATORS = {
    **{op: _alike(1) for op in ("Exp", "Sqrt", "Abs", "Neg", "Erf", "Sigmoid", "Tanh", "Floor", "Round", "Sin", "Log")},
    **{op: _alike(2, TYPES) for op in ("Add", "Mul", "Sub", "Max", "Less", "Equal")},
    **{op: _alike(2, [np.bool_]) for op in ("And", "Or", "Xor")},
    "Not": _alike(1, [np.bool_]),
    "Add broadcast": [({}, [draw((64, 64, 64)), draw(s)], []) for s in [(64,), (64, 1), (64, 1, 1), ()]],
    "Where": [({}, [draw(s, np.bool_), draw(s), draw(s)], []) for s in ANY],
    "Cast": [({"to": to}, [draw((64, 64, 64), of)], []) for of in TYPES for to in (1, 6, 7, 10)],
    **{op: [({"axes": [a]}, [draw(s)], []) for s in LINES for a in (0, -1)] for op in ("ReduceMax", "ReduceMean")},
    "ReduceSum": [({}, [draw(s)], [ints(a)]) for s in LINES for a in (0, -1)],
    **{
        op: [*_along(0, *LINES), *_along(-1, *LINES)]
        for op in ("Softmax", "LogSoftmax", "ArgMax", "LpNormalization", "Hardmax")
    },
    "CumSum": [({}, [draw(s)], [np.array(a)]) for s in LINES for a in (0, -1)],
    "TopK": [({}, [draw(s)], [ints(5)]) for s in LINES],
    "Transpose": [
        ({"perm": p}, [draw(s)], [])
        for s, p in [((300, 300), (1, 0)), ((64, 64, 64), (2, 0, 1)), ((8, 3, 100, 100), (0, 2, 3, 1))]
    ],
    "Concat": [({"axis": a}, [draw((64, 64, 64))] * 3, []) for a in (0, 1, 2)],
    "Slice": [({}, [draw((64, 64, 64))], [ints(3), ints(60), ints(a), ints(2)]) for a in (0, 1, 2)],
    "Pad": [({"mode": m}, [draw((8, 16, 50, 50))], [ints(0, 0, 2, 2, 0, 0, 2, 2)]) for m in ("constant", "reflect")],
    "Tile": [({}, [draw((64, 64))], [ints(8, 4)])],
    "Expand": [({}, [draw((64, 1, 64))], [ints(64, 64, 64)])],
    "Gather": [({"axis": a}, [draw((1000, 64)), _rows(n, 500)], []) for a, n in ((0, 1000), (1, 64))],
    "GatherElements": [({"axis": a}, [draw((500, 64)), _rows(64, 500, 64)], []) for a in (0, 1)],
    "GatherND": [({}, [draw((100, 100, 16)), _rows(100, 1000, d)], []) for d in (1, 2)],
    "ScatterElements": [
        ({"axis": a, "reduction": r}, [draw((500, 64)), _rows(64, 500, 64), draw((500, 64))], [])
        for a in (0, 1)
        for r in ("none", "add")
    ],
    "ScatterND": [
        ({"reduction": r}, [draw((100,) * 3), _rows(100, 1000, d), draw((1000,) + (100,) * (3 - d))], [])
        for d in (1, 2, 3)
        for r in ("none", "add")
    ],
    "OneHot": [({}, [_rows(1000, 500)], [np.array(1000), np.float32([0, 1])])],
    "ReverseSequence": [({"batch_axis": 1, "time_axis": 0}, [draw((100, 32, 64)), _rows(100, 32)], [])],
    "NonMaxSuppression": [_boxes(8400, 1, 300), _boxes(8400, 80, 100), _boxes(1000, 80, 1000), _boxes(20, 3, 5)],
    "MaxPool 3d": [({"kernel_shape": [3] * 3, "strides": [2] * 3}, [draw((1, 16, 16, 56, 56))], [])],
    "Resize": [
        ({"mode": m}, [draw(s)], [None, np.float32([1, 1, 2, 2])])
        for m in ("nearest", "linear")
        for s in [(1, 3, 224, 224), (1, 64, 40, 40)]
    ],
    "GridSample": [
        ({"mode": m}, [draw((1, 16, 64, 64)), np.tanh(draw((1, 64, 64, 2)))], [])
        for m in ("bilinear", "nearest", "bicubic")
    ],
    "RoiAlign": [
        (
            {"output_height": 7, "output_width": 7, "sampling_ratio": r, "spatial_scale": 0.25},
            [draw((1, c, 50, 50)), _corners(n), np.zeros(n, np.int64)],
            [],
        )
        for c, n, r in [(256, 100, 2), (64, 1000, 2), (256, 20, 0)]
    ],
    "DeformConv": [
        ({"pads": [1] * 4}, [draw((1, c, s, s)), draw((1, 18, s, s))], [draw((c, c, 3, 3))])
        for c, s in [(64, 28), (256, 14), (16, 100)]
    ],
    "InstanceNormalization": [({}, [draw((1, 64, 56, 56)), draw((64,)), draw((64,))], [])],
    "LayerNormalization": [({}, [draw((*s, 256)), draw((256,))], []) for s in [(1,), (100,), (8, 512)]],
    "Einsum": [
        ({"equation": e}, [draw(a), draw(b)], [])
        for e, a, b in [
            ("bij,bjk->bik", (8, 64, 64), (8, 64, 64)),
            ("bhid,bhjd->bhij", (1, 8, 128, 64), (1, 8, 128, 64)),
        ]
    ],
    "Conv alone": [
        (dict(group=g, pads=[k // 2] * 4), [draw((1, c, s, s))], [draw((o, c // g, k, k))])
        for c, s, o, k, g in [(32, 128, 32, 3, 32), (64, 56, 64, 3, 1), (3, 224, 32, 3, 1), (256, 14, 256, 1, 1)]
    ],
    "ConvTranspose alone": [
        (dict(group=g, strides=[t, t]), [draw((1, c, s, s))], [draw((c, o // g, k, k))])
        for c, s, o, k, t, g in [(64, 56, 64, 4, 2, 64), (64, 64, 1, 2, 2, 1), (64, 28, 32, 2, 2, 1)]
    ],
}


OPSETS = {"DeformConv": 19}  # of operators that are newer than the others' forms
ORDER = {"DeformConv": ["x0", "c0", "x1"]}  # of nodes whose constants are not after their inputs


def operators(threads):
    if not ONNX:
        return
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 4

    def network(op, attributes, inputs, constants):
        named = {f"x{i}": a for i, a in enumerate(inputs)}
        stored = {f"c{i}": a for i, a in enumerate(constants)}
        values = [
            helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for k, a in named.items()
        ]
        names = ORDER.get(op, [*named, *(k if a is not None else "" for k, a in stored.items())])
        node = helper.make_node(op, names, ["y0", "y1"] if op == "TopK" else ["y0"], **attributes)
        graph = helper.make_graph(
            [node],
            "g",
            values,
            [helper.make_empty_tensor_value_info("y0")],
            [numpy_helper.from_array(a, k) for k, a in stored.items() if a is not None],
        )
        opsets = [helper.make_opsetid("", OPSETS.get(op, 17))]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8), named

    for name, rows in OPERATORS.items():
        for attributes, inputs, constants in rows:
            proto, named = network(name.split()[0], attributes, inputs, constants)
            model = fo.load_onnx(proto)
            session = onnxruntime.InferenceSession(proto.SerializeToString(), options)
            text = " ".join(f"{'x'.join(map(str, a.shape))}{'' if a.dtype == np.float32 else a.dtype}" for a in inputs)
            more = " ".join(f"{k}={v}" for k, v in attributes.items())
            yield Case(
                f"{name} {text} {more}".strip(),
                {
                    "fusedops": lambda m=model, a=inputs: m(*a),
                    "ONNX Runtime": lambda s=session, a=named: s.run(None, a),
                },
            )


def networks():
    """Networks of few layers, and the same layers called one by one."""
    if not ONNX:
        return
    for text, nodes, x, layers in few_layers.networks(draw):
        made, stored = [], []
        for i, (op, attributes, constants) in enumerate(nodes):
            names = [f"c{i}.{j}" if a is not None else "" for j, a in enumerate(constants)]
            stored += [numpy_helper.from_array(a, k) for k, a in zip(names, constants, strict=True) if k]
            made.append(helper.make_node(op, [f"v{i}", *names], [f"v{i + 1}"], **attributes))
        ends = helper.make_tensor_value_info("v0", 1, x.shape), helper.make_empty_tensor_value_info(f"v{len(nodes)}")
        graph = helper.make_graph(made, "g", ends[:1], ends[1:], stored)
        model = fo.load_onnx(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))
        yield Case(
            f"network of {text}",
            {"fusedops": lambda m=model, x=x: m(x), "its layers": lambda f=layers, x=x: f(x)},
        )


def cases(threads=1):
    yield from functions()
    yield from networks()
    yield from operators(threads)


# ---- what is slow ----------------------------------------------------------------------------------------------------


def seconds(case, rounds=7, least=1e-3):
    """The least mean of some calls of each, interleaved."""
    numbers, best = {}, {}
    for who, call in case.calls.items():
        numbers[who] = max(1, int(least / max(batch_time(call, 1), 1e-7)))
    for _, (who, call) in itertools.product(range(rounds), case.calls.items()):
        best[who] = min(best.get(who, np.inf), batch_time(call, numbers[who]))
    return best


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pattern", nargs="?", default="", help="part of the names of cases")
    parser.add_argument("--threads", type=int, default=1, help="default: 1")
    parser.add_argument("--all", action="store_true", help="print what is fast, too")
    options = parser.parse_args()
    fo.set_num_threads(options.threads)
    if find_spec("torch"):
        torch.set_num_threads(options.threads)
        torch.set_grad_enabled(False)
    found, count = [], 0
    for case in cases(options.threads):
        if options.pattern not in case.name or len(case.calls) == 1:
            continue
        best = seconds(case)
        ours = best.pop("fusedops")
        peer = min(best, key=best.get)
        count += 1
        found.append((ours / best[peer], case.name, ours, peer, best[peer]))
    slow = [f for f in sorted(found, reverse=True) if options.all or f[0] > LIMIT]
    for ratio, name, ours, peer, theirs in slow:
        print(f"{ratio:7.2f}  {name:70} {ours * 1e6:10.1f} us, {peer} {theirs * 1e6:.1f}")
    print(f"{count} cases, {sum(f[0] > LIMIT for f in found)} over {LIMIT} times the best of the others")


if __name__ == "__main__":
    main()
