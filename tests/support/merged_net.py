"""A decoder of two branches in one file, as optimum merges them, and its results in float64."""

import numpy as np
from onnx import helper, numpy_helper
from onnx.parser import parse_graph, parse_model

WIDTH, WORDS = 16, 40
BOTH = "x = Gather(table, ids)  q = MatMul(x, wq)  k0 = MatMul(x, wk)  v0 = MatMul(x, wv)"
ATTENTION = (
    "kt = Transpose<perm = [0, 2, 1]>(k)  s = MatMul(q, kt)  {mask}  p = Softmax<axis = -1>(m)  o = MatMul(p, v)"
)
MASK = """two = Shape<start = 1>(ids)  square = Concat<axis = 0>(two, two)
    low = ConstantOfShape<value = float[1] {-3e4}>(square)  above = Trilu<upper = 1>(low, next)  m = Add(s, above)"""
CROSS = "ct = Transpose<perm = [0, 2, 1]>(c)  cs = MatMul(o, ct)  cp = Softmax<axis = -1>(cs)  r = MatMul(cp, c)"
KEYS = f"float[b, past, {WIDTH}]"


def branch(name, body, crossed, with_past):
    """A graph of logits, keys and values, and of those of another text."""
    outputs = [f"float[b, n, {WORDS}] l", f"{KEYS} k", f"{KEYS} v", *[f"float[b, source, {WIDTH}] made"] * crossed]
    graph = parse_graph(f"{name} () => ({', '.join(outputs)}) {{ {body} }}")
    if crossed and with_past:  # optimum's stand-in for an output that this branch does not have
        empty = numpy_helper.from_array(np.zeros((0, 0, WIDTH), np.float32), "made")
        graph.node.append(helper.make_node("Constant", [], ["made"], value=empty))
    return graph


def merged(crossed=False, then_has_past=True):
    """(the model, its weights)"""
    head = "l = MatMul(r, head)" if crossed else "l = MatMul(o, head)"
    past = f"{BOTH}  k = Concat<axis = 1>(past_k, k0)  v = Concat<axis = 1>(past_v, v0) "
    past += (
        ATTENTION.format(mask="m = Identity(s)") + (f" c = Identity(past_cross)  {CROSS} " if crossed else " ") + head
    )
    none = f"{BOTH}  k = Identity(k0)  v = Identity(v0) " + ATTENTION.format(mask=MASK)
    none += (f" c = MatMul(text, wc)  made = Identity(c)  {CROSS} " if crossed else " ") + head
    graphs = [branch("with_past", past, crossed, True), branch("no_past", none, crossed, False)]
    inputs = f"int64[b, n] ids, {KEYS} past_k, {KEYS} past_v"
    outputs = f"float[b, n, {WORDS}] logits, float[b, total, {WIDTH}] present_k, float[b, total, {WIDTH}] present_v"
    if crossed:
        inputs += f", float[b, source, {WIDTH}] past_cross, float[b, source, {WIDTH}] text"
        outputs += f", float[b, source, {WIDTH}] present_cross"
    names = ["logits", "present_k", "present_v", "present_cross"][: 3 + crossed]
    proto = parse_model(
        f'<ir_version: 8, opset_import: ["" : 17]> g ({inputs}, bool[1] use_cache_branch) => ({outputs}) '
        f"{{ {', '.join(names)} = If(use_cache_branch) }}"
    )
    then, other = graphs if then_has_past else graphs[::-1]
    proto.graph.node[0].attribute.extend(
        [helper.make_attribute("then_branch", then), helper.make_attribute("else_branch", other)]
    )
    rng = np.random.default_rng(0)
    shapes = dict.fromkeys(["wq", "wk", "wv", "wc"], (WIDTH, WIDTH)) | {"head": (WIDTH, WORDS), "table": (WORDS, WIDTH)}
    weights = {name: rng.standard_normal(shape).astype(np.float32) / np.float32(4) for name, shape in shapes.items()}
    proto.graph.initializer.extend(numpy_helper.from_array(a, name) for name, a in weights.items())
    proto.graph.initializer.append(numpy_helper.from_array(np.int64(1), "next"))
    return proto, weights


def softmax(a):
    e = np.exp(a - a.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def logits(w, ids, text=None):
    """Those of a whole text at once, in float64."""
    w = {name: a.astype(np.float64) for name, a in w.items()}
    x = w["table"][ids]
    q, k, v = (x @ w[name] for name in ("wq", "wk", "wv"))
    scores = q @ k.swapaxes(1, 2) + np.triu(np.full((ids.shape[1],) * 2, -np.inf), 1)
    y = softmax(scores) @ v
    if text is not None:
        c = text @ w["wc"]
        y = softmax(y @ c.swapaxes(1, 2)) @ c
    return y @ w["head"]
