"""Forests and boosted trees of ai.onnx.ml, by NumPy: all rows go down all trees at once, a level after another.

A node of the graph has the trees as arrays: `feature`, `threshold` and `mode` of each of their nodes, and in
`following` where to go next, two numbers each, the second where the comparison holds; a leaf goes to itself. `roots`
are where trees begin, `leaf` the row of `weights` of a leaf, which has a number for each target."""

from collections.abc import Callable

import numpy as np

from ..ir.errors import BadNode, UnsupportedOperator
from ..ir.graph_builder import GraphBuilder
from .learned import DOMAIN, both_scores, classifier_shapes, refuse_texts, row_count, rows, transform_of, transformed
from .schema import Inference, NumPyOnly, Operator, always

AT_ONCE = 1 << 18  # places in trees that are followed at a time
WHY = "no kernel: trees are followed by NumPy, all rows at once"
_MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")
_COMPARE = (np.less_equal, np.less, np.greater_equal, np.greater, np.equal, np.not_equal)
_LEAF = len(_MODES)
_SUMS: dict[str, Callable] = {"SUM": np.sum, "AVERAGE": np.mean, "MIN": np.min, "MAX": np.max}


# ---- reading


def _numbers(node, name, dtype):
    """An attribute as an array; it may have its numbers as a tensor of doubles instead."""
    given = node.attrs.get(f"{name}_as_tensor", None)
    return np.asarray(node.attrs.get(name, []) if given is None else given, dtype).reshape(-1)


def _trees(node, targets, weights_of):
    """The arrays of the trees of a node in the form of ai.onnx.ml 1 to 3; `weights_of` is the prefix of what names
    targets and weights of leaves."""
    trees, ids = (_numbers(node, f"nodes_{name}", np.int64) for name in ("treeids", "nodeids"))
    modes = {name: i for i, name in enumerate((*_MODES, "LEAF"))}
    mode = np.array([modes.get(m, -1) for m in node.attrs["nodes_modes"]], np.int8)
    feature, threshold = _numbers(node, "nodes_featureids", np.int64), _numbers(node, "nodes_values", np.float64)
    missing = _numbers(node, "nodes_missing_value_tracks_true", bool)
    to = [_numbers(node, f"nodes_{name}nodeids", np.int64) for name in ("false", "true")]
    if any(a.size != trees.size for a in (ids, mode, feature, threshold, *to)) or (mode < 0).any():
        raise BadNode("the lists that describe its nodes do not fit one another")
    following, leaves = _places(node, trees, ids, mode, to, weights_of)
    made = {
        "feature": np.where(mode == _LEAF, 0, feature),
        "threshold": threshold,
        "mode": mode,
        "following": following.reshape(-1),
        "missing": missing if missing.size else np.zeros(trees.size, bool),
        "roots": _roots(trees, following[mode != _LEAF]),
    }
    target, weight = _numbers(node, f"{weights_of}_ids", np.int64), _numbers(node, f"{weights_of}_weights", np.float64)
    return made | _weights(made, leaves, target, weight, targets)


def _places(node, trees, ids, mode, to, weights_of):
    """(the places of the two nodes that follow each, those of the leaves that have weights)"""
    at = {key: i for i, key in enumerate(zip(trees.tolist(), ids.tolist(), strict=True))}
    if len(at) < trees.size:
        raise BadNode("two nodes of a tree have one number")
    named = [_numbers(node, f"{weights_of}_{name}", np.int64).tolist() for name in ("treeids", "nodeids")]
    try:
        following = [
            [i if m == _LEAF else at[t, n] for i, (m, t, n) in enumerate(zip(mode, trees, each, strict=True))]
            for each in to
        ]
        return np.array(following, np.int64).T.copy(), [at[key] for key in zip(*named, strict=True)]
    except KeyError as e:
        tree, number = e.args[0]
        raise BadNode(f"it names node {number} of tree {tree}, which is not there") from None


def _roots(trees, following):
    """The node of each tree that follows none."""
    begins = np.ones(trees.size, bool)
    begins[following] = False
    if not np.array_equal(np.unique(trees), np.sort(trees[begins])):
        raise BadNode("a tree has a circle, or does not begin at one node")
    return np.flatnonzero(begins)


def _weights(made, leaves, target, weight, targets):
    """{leaf: the row of weights of each node, weights: the number that a leaf adds to each target}"""
    if not len(leaves) == target.size == weight.size or target.size and not 0 <= target.min() <= target.max() < targets:
        raise BadNode(f"its {len(leaves)} weights do not fit {targets} targets")
    ends = np.flatnonzero(made["mode"] == _LEAF)
    leaf = np.zeros(made["mode"].size, np.int64)
    leaf[ends] = np.arange(ends.size)
    weights = np.zeros((ends.size, targets))
    np.add.at(weights, (leaf[leaves], target), weight)
    return {"leaf": leaf, "weights": weights, "depth": _depth(made)}


def _depth(made):
    """The steps from the roots to the deepest leaf."""
    front, depth = made["roots"], 0
    while True:
        front = front[made["mode"][front] != _LEAF]
        if not front.size:
            return depth
        front, depth = np.unique(made["following"].reshape(-1, 2)[front]), depth + 1
        if depth > made["mode"].size:
            raise BadNode("its trees have a circle")


def _read_regressor(r: GraphBuilder, node):
    targets, how = node.attrs.get("n_targets", 1), node.attrs.get("aggregate_function", "SUM")
    if how not in _SUMS:
        raise BadNode(f"its aggregate_function is {how!r}")
    base = _numbers(node, "base_values", np.float64)
    node.attrs = _trees(node, targets, "target") | {
        "base": base if base.size == targets else np.zeros(targets),
        "sum": how,
        "transform": transform_of(node),
    }
    r.add(node)


def _read_classifier(r: GraphBuilder, node):
    refuse_texts(node, "classlabels_strings")
    labels = np.array(node.attrs.get("classlabels_int64s", []), np.int64)
    if not labels.size:
        raise BadNode("it has no labels")
    used, weight = _numbers(node, "class_ids", np.int64), _numbers(node, "class_weights", np.float64)
    base = _numbers(node, "base_values", np.float64)
    one = labels.size == 2 and np.unique(used).size == 1  # weights of one class decide between two
    if one:
        node.attrs["class_ids"] = [0] * used.size
        base = base[-1:]
    count = 1 if one else labels.size
    node.attrs = _trees(node, count, "class") | {
        "base": base if base.size == count else np.zeros(count),
        "labels": labels,
        "shares": bool((weight >= 0).all()),
        "second": bool(used.any()),
        "transform": transform_of(node),
        "sum": "SUM",
    }
    r.add(node)


def _read_ensemble(r: GraphBuilder, node):
    """The form of ai.onnx.ml 5: nodes and leaves in lists of their own."""
    a, targets = node.attrs, node.attrs.get("n_targets", 1)
    mode = np.asarray(a["nodes_modes"], np.int8).reshape(-1)
    if (mode >= _LEAF).any():
        raise UnsupportedOperator(f"{node.op} {node.name!r}: fusedops has no branches by membership")
    if a.get("post_transform", 0):
        raise UnsupportedOperator(f"{node.op} {node.name!r}: fusedops has it without a transformation")
    target, weight = _numbers(node, "leaf_targetids", np.int64), _numbers(node, "leaf_weights", np.float64)
    inner, leaves = mode.size, np.arange(mode.size, mode.size + target.size)
    following = []
    for name in ("true", "false"):
        to = _numbers(node, f"nodes_{name}nodeids", np.int64)
        to = to + inner * _numbers(node, f"nodes_{name}leafs", np.int64)
        if to.size != inner or inner and not 0 <= to.min() <= to.max() < inner + target.size:
            raise BadNode("the lists that describe its nodes do not fit one another")
        following.append(np.concatenate([to, leaves]))
    missing = _numbers(node, "nodes_missing_value_tracks_true", bool)
    made = {
        "feature": np.concatenate([_numbers(node, "nodes_featureids", np.int64), np.zeros(target.size, np.int64)]),
        "threshold": np.concatenate([_numbers(node, "nodes_splits", np.float64), np.zeros(target.size)]),
        "mode": np.concatenate([mode, np.full(target.size, _LEAF, np.int8)]),
        "following": np.stack(following[::-1], 1).reshape(-1),
        "missing": np.concatenate([missing if missing.size else np.zeros(inner, bool), np.zeros(target.size, bool)]),
        "roots": _numbers(node, "tree_roots", np.int64),
    }
    how = ("AVERAGE", "SUM", "MIN", "MAX")[a.get("aggregate_function", 1)]
    made |= _weights(made, leaves.tolist(), target, weight, targets)
    node.attrs = made | {
        "base": np.zeros(targets),
        "sum": how,
        "transform": "NONE",
        "double": a["nodes_splits"].dtype == np.float64,
    }
    r.add(node)


# ---- what it computes


def _scores(node, x):
    """The sums over all trees, with the base values, in float64."""
    a, x = node.attrs, rows(x)
    x = x if x.dtype.kind == "f" else x.astype(np.float32)
    threshold = a["threshold"].astype(x.dtype)
    if not 0 <= a["feature"].min(initial=0) <= a["feature"].max(initial=0) < x.shape[1]:
        raise ValueError(f"rows of {x.shape[1]} features, of which its trees ask for number {a['feature'].max()}")
    found = np.empty((len(x), a["weights"].shape[1]))
    step = max(1, AT_ONCE // max(1, a["roots"].size))
    for i in range(0, len(x), step):
        at = _leaves(a, threshold, x[i : i + step])
        found[i : i + step] = _SUMS[a["sum"]](a["weights"][a["leaf"][at]], axis=1)
    return found + a["base"]


def _leaves(a, threshold, x):
    """The leaf of each row in each tree."""
    count, values = a["roots"].size, np.ascontiguousarray(x).reshape(-1)
    at, begin = np.tile(a["roots"], len(x)), np.repeat(np.arange(len(x)) * x.shape[1], count)
    modes, tracks = np.unique(a["mode"][a["mode"] != _LEAF]), a["missing"].any()
    for _ in range(a["depth"]):
        value, limit = values.take(begin + a["feature"].take(at)), threshold.take(at)
        goes = _COMPARE[modes[0]](value, limit)
        for m in modes[1:]:
            goes = np.where(a["mode"].take(at) == m, _COMPARE[m](value, limit), goes)
        if tracks:
            goes |= np.isnan(value) & a["missing"].take(at)
        at = a["following"].take(2 * at + goes)
    return at.reshape(len(x), count)


def _regressed(node, x):
    return transformed(node.attrs["transform"], _scores(node, x))


def _ensemble(node, x):
    return _scores(node, x).astype(np.float64 if node.attrs["double"] else np.float32)


def _classified(node, x):
    """(labels, scores). One score a row is that of the second of two classes: a share of 1 where all weights are
    positive, else above or below 0."""
    a, scores = node.attrs, _scores(node, x)
    if a["labels"].size != 2 or scores.shape[1] == 2:
        return a["labels"][scores.argmax(1)], transformed(a["transform"], scores)
    label = a["labels"][(scores[:, 0] > (0.5 if a["shares"] else 0)).astype(np.int64)]
    if a["second"]:  # as ONNX Runtime has it where weights say that they are the second's
        return label, transformed(a["transform"], np.stack([np.zeros(len(scores)), scores[:, 0]], 1))
    return label, both_scores(scores[:, 0], a["shares"], a["transform"])


def _targets_shape(node, x):
    return row_count(x), node.attrs["weights"].shape[1]


RECORDS = {
    f"{DOMAIN}.TreeEnsemble": Operator(
        _ensemble,
        Inference(_targets_shape, lambda node, inputs, i: np.dtype(np.float64 if node.attrs["double"] else np.float32)),
        NumPyOnly(WHY),
        _read_ensemble,
    ),
    f"{DOMAIN}.TreeEnsembleClassifier": Operator(
        _classified,
        Inference(classifier_shapes, always(np.int64, np.float32)),
        NumPyOnly(WHY),
        _read_classifier,
    ),
    f"{DOMAIN}.TreeEnsembleRegressor": Operator(
        _regressed, Inference(_targets_shape, always(np.float32)), NumPyOnly(WHY), _read_regressor
    ),
}
