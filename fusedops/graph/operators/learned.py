"""What converters of scikit-learn write around a network, in the domain ai.onnx.ml: scaling, missing values, labels and
linear models. Trees are in :mod:`.trees`. Results are float32 where ONNX says so, whatever the input is."""

import numpy as np

from ..ir.errors import BadNode, UnsupportedOperator
from ..ir.graph_builder import GraphBuilder
from .schema import Absent, Inference, NumPyOnly, Operator, Rewrite, always, same_shape

DOMAIN = "ai.onnx.ml"
WHY = "no kernel: networks spend no time in it"


def refuse_texts(node, *names):
    """Refuses attributes of texts, which have no type in NumPy's networks."""
    given = [name for name in names if node.attrs.get(name, ())]
    if given:
        raise UnsupportedOperator(
            f"{node.op} {node.name!r} has texts ({given[0]}): fusedops has numbers alone; train on labels that are "
            f"numbers, sklearn.preprocessing.LabelEncoder makes them"
        )


def rows(x):
    """Features as rows: those of one sample are one row."""
    return x.reshape(1, -1) if x.ndim < 2 else x.reshape(len(x), -1)


def row_count(x):
    return 1 if len(x.shape) < 2 else x.shape[0]


# ---- scores


def _logistic(x):
    return 1 / (1 + np.exp(-x))


def _softmax(x):
    shifted = np.exp(x - x.max(1, keepdims=True, initial=-np.inf))
    return shifted / shifted.sum(1, keepdims=True)


def _softmax_zero(x):
    """The softmax of what is not zero, which stays zero."""
    shifted = np.where(x == 0, 0, np.exp(x - x.max(1, keepdims=True, initial=-np.inf)))
    total = shifted.sum(1, keepdims=True)
    return np.divide(shifted, total, out=np.zeros_like(shifted), where=total != 0)


TRANSFORMS = {"NONE": lambda x: x, "LOGISTIC": _logistic, "SOFTMAX": _softmax, "SOFTMAX_ZERO": _softmax_zero}


def transform_of(node):
    """What is done to scores in the end: its name."""
    name = node.attrs.get("post_transform", "NONE")
    if name not in TRANSFORMS:
        raise UnsupportedOperator(f"{node.op} {node.name!r}: fusedops has {', '.join(TRANSFORMS)}, not {name}")
    return name


def transformed(name, scores):
    with np.errstate(over="ignore", invalid="ignore"):
        return TRANSFORMS[name](scores).astype(np.float32)


def both_scores(score, shares, transform):
    """Returns the scores of two classes from the second's, one number a row; with `shares` the two add up to 1."""
    if transform == "LOGISTIC":
        return transformed(transform, np.stack([-score, score], 1))
    return np.stack([1 - score if shares else -score, score], 1).astype(np.float32)


# ---- linear models


def _read_scaler(r: GraphBuilder, node):
    """(x - offset) scale, in float32."""
    x = _as_float32(r, node)
    offset, scale = (r.constant(f"{node.name}.{k}", node.attrs[k], np.float32) for k in ("offset", "scale"))
    r.node("Mul", node, r.node("Sub", node, x, offset), scale, result=node.output)


def _as_float32(r, node):
    x = node.inputs[0]
    return x if r.dtype(x) == np.float32 else r.node("Cast", node, x, to=1)


def _read_linear_regressor(r: GraphBuilder, node):
    if transform_of(node) != "NONE":
        raise UnsupportedOperator(f"{node.op} {node.name!r}: fusedops has regression without a transformation")
    targets = node.attrs.get("targets", 1)
    w = np.reshape(node.attrs["coefficients"], (targets, -1)).T
    given = r.constant(f"{node.name}.w", w, np.float32)
    bias = r.constant(f"{node.name}.b", node.attrs.get("intercepts", [0.0] * targets), np.float32)
    r.node("Add", node, r.node("MatMul", node, _as_float32(r, node), given), bias, result=node.output)


def _read_linear_classifier(r: GraphBuilder, node):
    refuse_texts(node, "classlabels_strings")
    labels = np.array(node.attrs.get("classlabels_ints", []), np.int64)
    bias = np.array(node.attrs.get("intercepts", []), np.float32)
    coefficients = np.array(node.attrs["coefficients"], np.float32)
    count = bias.size or labels.size
    if not count or coefficients.size % count or labels.size not in (count, 2 * (count == 1)):
        raise BadNode(f"it has {coefficients.size} coefficients, {bias.size} intercepts and {labels.size} labels")
    node.attrs = {
        "labels": labels,
        "coefficients": coefficients.reshape(count, -1),
        "intercepts": bias if bias.size else np.zeros(count, np.float32),
        "transform": transform_of(node),
    }
    r.add(node)


def _linear_classifier(node, x):
    a = node.attrs
    scores = rows(x).astype(np.float32) @ a["coefficients"].T + a["intercepts"]
    if scores.shape[1] == 1 and a["labels"].size == 2:
        score = scores[:, 0]
        return a["labels"][(score > 0).astype(np.int64)], both_scores(score, True, a["transform"])
    return a["labels"][scores.argmax(1)], transformed(a["transform"], scores)


def classifier_shapes(node, x):
    return [(row_count(x),), (row_count(x), node.attrs["labels"].size)]


# ---- features


def _extracted(node, x, at):
    found = np.take(x, at.reshape(-1), axis=-1)
    return found.reshape(1, -1) if x.ndim == 1 else found


def _extracted_shape(node, x, at):
    count = 1
    for n in at.shape:
        count = count * n
    return (*(x.shape[:-1] if len(x.shape) > 1 else (1,)), count)


def _normalized(node, x):
    """Rows over their norm; one whose norm is 0 stays as it is."""
    kind, x = node.attrs.get("norm", "MAX"), x.astype(np.float32)
    wide = x.astype(np.float64)
    norms = {
        "MAX": wide.max,
        "L1": np.abs(wide).sum,
        "L2": lambda axis, keepdims: np.sqrt((wide**2).sum(axis=axis, keepdims=keepdims)),
    }
    if kind not in norms:
        raise BadNode(f"its norm is {kind!r}, not one of {', '.join(norms)}")
    norm = norms[kind](axis=-1, keepdims=True)
    return np.divide(wide, norm, out=wide.copy(), where=norm != 0).astype(np.float32)


def _imputed(node, x):
    """Values that are missing, each as the one of its column."""
    whole = x.dtype.kind in "iu"
    values = node.attrs.get("imputed_value_int64s" if whole else "imputed_value_floats", [])
    missing = node.attrs.get("replaced_value_int64" if whole else "replaced_value_float", 0 if whole else 0.0)
    if len(values) not in (1, x.shape[-1]):
        raise BadNode(f"it has {len(values)} values for {x.shape[-1]} columns")
    absent = np.isnan(x) if not whole and np.isnan(missing) else x == x.dtype.type(missing)
    return np.where(absent, np.array(values, x.dtype), x)


_KINDS = {"int64s": np.int64, "floats": np.float32, "strings": None, "tensor": None}


def _read_label_encoder(r: GraphBuilder, node):
    refuse_texts(node, "classes_strings", "keys_strings", "values_strings")
    found = {}
    for what in ("keys", "values"):
        for kind, dtype in _KINDS.items():
            given = node.attrs.get(f"{what}_{kind}", None)
            if given is not None and np.size(given):
                found[what] = np.asarray(given, dtype).reshape(-1)
    if found.keys() != {"keys", "values"} or found["keys"].size != found["values"].size:
        raise BadNode("it does not have as many keys as values")
    values = found["values"]
    default = node.attrs.get("default_tensor", None)
    if default is None:
        default = (
            node.attrs.get("default_int64", -1) if values.dtype.kind == "i" else node.attrs.get("default_float", -0.0)
        )
    node.attrs = found | {"default": np.asarray(default, values.dtype).reshape(())}
    r.add(node)


def _encoded(node, x):
    keys, values, default = (node.attrs[k] for k in ("keys", "values", "default"))
    order = np.argsort(keys, kind="stable")  # NaN is last
    at = order[np.minimum(np.searchsorted(keys, x, sorter=order), keys.size - 1)]
    same = keys[at] == x
    if keys.dtype.kind == "f":
        same |= np.isnan(keys[at]) & np.isnan(x)
    return np.where(same, values[at], default)


RECORDS = {
    f"{DOMAIN}.ArrayFeatureExtractor": Operator(_extracted, Inference(_extracted_shape), NumPyOnly(WHY)),
    f"{DOMAIN}.Binarizer": Operator(
        lambda node, x: (x > node.attrs.get("threshold", 0.0)).astype(x.dtype), Inference(same_shape), NumPyOnly(WHY)
    ),
    f"{DOMAIN}.Imputer": Operator(_imputed, Inference(same_shape), NumPyOnly(WHY)),
    f"{DOMAIN}.LabelEncoder": Operator(
        _encoded,
        Inference(same_shape, lambda node, inputs, i: node.attrs["values"].dtype),
        NumPyOnly(WHY),
        _read_label_encoder,
    ),
    f"{DOMAIN}.LinearClassifier": Operator(
        _linear_classifier,
        Inference(classifier_shapes, always(np.int64, np.float32)),
        NumPyOnly(WHY),
        _read_linear_classifier,
    ),
    f"{DOMAIN}.LinearRegressor": Rewrite(_read_linear_regressor, ("MatMul", "Add")),
    f"{DOMAIN}.Normalizer": Operator(_normalized, Inference(same_shape, always(np.float32)), NumPyOnly(WHY)),
    f"{DOMAIN}.Scaler": Rewrite(_read_scaler, ("Sub", "Mul")),
    f"{DOMAIN}.ZipMap": Absent(
        "it makes a list of dicts of an array of scores: convert with options={'zipmap': False} and take the array"
    ),
}
