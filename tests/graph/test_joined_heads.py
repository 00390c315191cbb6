"""Products of (batch * heads, ...) with operands whose first axis is 1 or of its own, for one head and several."""

import numpy as np
import pytest

pytest.importorskip("onnx")
import onnx_text

RNG = np.random.default_rng(0)
# scores s0 (batch * heads, t, s) become weights p by what is said there
NET = """net (float[{batch}, {heads}, t, 4] q, float[{batch}, {heads}, s, 4] k, float[{batch}, {heads}, s, 4] v{more})
    => (float[{batch}, {heads}, t, 4] y{result})
    <int64[1] joined = {{-1}}, int64[1] two = {{2}}, int64[1] three = {{3}}, int64[1] four = {{4}}, int64[1] no = {{0}},
     float[1, 1, 1] one = {{0.5}}, float low = {{-1e9}}> {{
    qs = Shape(q)  ks = Shape(k)  rows = Slice(qs, two, four)  columns = Slice(ks, two, four)
    n = Slice(qs, two, three)  m = Slice(ks, two, three)  first = Slice(qs, no, two)
    split = Concat<axis=0>(first, n, m)  scores = Concat<axis=0>(joined, n, m)
    q3s = Concat<axis=0>(joined, rows)  k3s = Concat<axis=0>(joined, columns)
    q3 = Reshape(q, q3s)  k3 = Reshape(k, k3s)  v3 = Reshape(v, k3s)
    kt = Transpose<perm=[0,2,1]>(k3)  s0 = MatMul(q3, kt)
    {body}
    y3 = MatMul(p, v3)  y = Reshape(y3, qs) }}"""
FORMS = {  # what is said, another input, another result
    "add": ("s1 = Add(s0, mask)  p = Softmax<axis=-1>(s1)", "float[1, t, s] mask"),
    "where": ("s1 = Where(mask, s0, low)  p = Softmax<axis=-1>(s1)", "bool[1, t, s] mask"),
    "constant": ("s1 = Mul(s0, one)  p = Softmax<axis=-1>(s1)", ""),
    "no batch": ("s1 = Add(mask, s0)  p = Softmax<axis=-1>(s1)", "float[t, s] mask"),
    "open axis": ("s1 = Add(mask, s0)  p = Softmax<axis=-1>(s1)", "float[both, 1, s] mask"),
    "split": (
        "s1 = Div(mask, s0)  a = Reshape(s1, split)  b = Softmax<axis=-1>(a)  p = Reshape(b, scores)",
        "float[both, 1, s] mask",
    ),
    "no shape": (
        "s1 = Mul(s0, one)  part = Shape<start=0, end=0>(s1)  o = Concat<axis=0>(part, two)  p = Softmax<axis=-1>(s1)",
        "",
        ", int64[k] o",
    ),
}


@pytest.mark.parametrize("batch", ["b", 1, 2])
@pytest.mark.parametrize("heads", [1, 3])
@pytest.mark.parametrize("form", FORMS)
def test_operands_without_batch_and_heads(form, heads, batch):
    body, more, result = (*FORMS[form], "")[:3]
    text = NET.format(batch=batch, heads=heads, body=body, more=more and f", {more}", result=result)

    def feed(b, t, s):
        inputs = {name: RNG.standard_normal((b, heads, n, 4), np.float32) for name, n in (("q", t), ("k", s), ("v", s))}
        if more:
            sizes = {"t": t, "s": s, "both": b * heads, "1": 1}
            shape = [sizes[n.strip()] for n in more[more.index("[") + 1 : more.index("]")].split(",")]
            inputs["mask"] = RNG.standard_normal(shape, np.float32)
            if "bool" in more:
                inputs["mask"] = inputs["mask"] > -1
        return inputs

    batches = (1, 2, 3) if batch == "b" else (batch,)
    onnx_text.check(text, *(feed(b, t, s) for b in batches for t, s in ((5, 5), (1, 9))))
