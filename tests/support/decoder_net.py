"""A small decoder as onnxruntime-genai exports it: GroupQueryAttention with keys and values of earlier calls."""

import numpy as np
from onnx import TensorProto as T
from onnx import helper, numpy_helper

WIDTH, HEADS, KV_HEADS, HEAD, WORDS, PLACES = 32, 4, 2, 16, 50, 600


def decoder(layers=2, seed=0, batch="batch"):
    """The model; its inputs are ids, mask and past.<layer>.<k or v>, its outputs logits and present.<layer>.<k or
    v>."""
    rng, inits, nodes = np.random.default_rng(seed), [], []

    def const(name, a):
        inits.append(numpy_helper.from_array(a, name))
        return name

    def node(op, inputs, outputs, domain="", **attrs):
        nodes.append(helper.make_node(op, inputs, outputs, domain=domain, **attrs))
        return outputs[0]

    def product(x, name, k, n):
        weights = const(f"{name}.w", rng.standard_normal((k, n), np.float32) * np.float32(k**-0.5))
        return node("MatMul", [x, weights], [f"{name}.y"])

    def norm(x, skip, name, out):
        given = [skip, x, const(f"{name}.n", np.ones(WIDTH, np.float32))]
        return node(
            "SkipSimplifiedLayerNormalization", given, [out, "", "", f"{out}.sum"], "com.microsoft", epsilon=1e-5
        )

    table = const("table", rng.standard_normal((WORDS, WIDTH), np.float32))
    x = skip = node("Gather", [table, "ids"], ["x"])
    node("ReduceSum", ["mask", const("axis", np.array([1]))], ["length"], keepdims=0)
    node("Sub", ["length", const("one", np.array([1]))], ["before"])
    node("Cast", ["before"], ["lasts"], to=T.INT32)
    node("Shape", ["mask"], ["shape"])
    node("Gather", ["shape", const("second", np.array(1))], ["total64"])
    node("Cast", ["total64"], ["total"], to=T.INT32)
    angle = np.arange(PLACES)[:, None] / 10000 ** (np.arange(0, HEAD, 2) / HEAD)
    const("cos", np.cos(angle).astype(np.float32)), const("sin", np.sin(angle).astype(np.float32))
    ids, mask = (
        helper.make_tensor_value_info(*v)
        for v in (("ids", T.INT64, [batch, "new"]), ("mask", T.INT64, [batch, "total"]))
    )
    ins, outs = [ids, mask], [helper.make_tensor_value_info("logits", T.FLOAT, [batch, "new", WORDS])]
    for i in range(layers):
        q, k, v = (
            product(x, f"{i}.{n}", WIDTH, count * HEAD) for n, count in (("q", HEADS), ("k", KV_HEADS), ("v", KV_HEADS))
        )
        for n in "kv":
            ins.append(helper.make_tensor_value_info(f"past.{i}.{n}", T.FLOAT, [batch, KV_HEADS, "past", HEAD]))
            outs.append(helper.make_tensor_value_info(f"present.{i}.{n}", T.FLOAT, [batch, KV_HEADS, "total", HEAD]))
        given = [q, k, v, f"past.{i}.k", f"past.{i}.v", "lasts", "total", "cos", "sin"]
        made = [f"{i}.a", f"present.{i}.k", f"present.{i}.v"]
        heads = dict(num_heads=HEADS, kv_num_heads=KV_HEADS, do_rotary=1)
        o = product(node("GroupQueryAttention", given, made, "com.microsoft", **heads), f"{i}.o", HEADS * HEAD, WIDTH)
        h = norm(o, skip, f"{i}.1", f"{i}.h")
        x = norm(product(h, f"{i}.f", WIDTH, WIDTH), f"{h}.sum", f"{i}.2", f"{i}.x")
        skip = f"{x}.sum"
    node("Identity", [product(x, "head", WIDTH, WORDS)], ["logits"])
    graph = helper.make_graph(nodes, "decoder", ins, outs, inits)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def no_past(batch=1, layers=2):
    return {f"past.{i}.{n}": np.zeros((batch, KV_HEADS, 0, HEAD), np.float32) for i in range(layers) for n in "kv"}


def step(past, ids, mask=None):
    """The inputs of a step with these new words, after the keys and values of `past`."""
    total = next(iter(past.values())).shape[2] + ids.shape[1]
    return {"ids": ids, "mask": np.ones((len(ids), total), np.int64) if mask is None else mask, **past}


def as_past(results):
    return {name.replace("present", "past"): a for name, a in results.items() if name != "logits"}
