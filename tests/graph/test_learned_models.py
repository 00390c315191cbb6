"""What converters of scikit-learn write, of the domain ai.onnx.ml: expected values by hand, and those of ONNX Runtime
where it is installed."""

import io

import numpy as np
import pytest

pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper

import fusedops as fo

F, INT = np.float32, np.int64
X = F([[1, -2, 0], [0, 0, 0], [-3, 4, 12], [0.5, 0.25, -1]])
NAN = F([[1, np.nan, 0], [np.nan, 0, 2]])


def proto(op, attrs, *inputs, outputs=(F,), constants=(), version=3):
    """A network of one node: `inputs` are arrays, `outputs` the types of results."""
    kind = helper.np_dtype_to_tensor_dtype
    given = [helper.make_tensor_value_info(f"x{i}", kind(a.dtype), [None] * a.ndim) for i, a in enumerate(inputs)]
    made = [helper.make_tensor_value_info(f"y{i}", kind(np.dtype(t)), None) for i, t in enumerate(outputs)]
    weights = [numpy_helper.from_array(a, f"c{i}") for i, a in enumerate(constants)]
    names = [*(v.name for v in given), *(t.name for t in weights)]
    node = helper.make_node(op, names, [v.name for v in made], domain="ai.onnx.ml", **attrs)
    graph = helper.make_graph([node], "net", given, made, weights)
    return helper.make_model(
        graph, ir_version=8, opset_imports=[helper.make_opsetid("ai.onnx.ml", version), helper.make_opsetid("", 17)]
    )


def run(model, *inputs):
    """The results, which are those of ONNX Runtime and those of the saved network too."""
    net = fo.load_onnx(model)
    found = net(*inputs)
    found = found if isinstance(found, tuple) else (found,)
    f = io.BytesIO()
    net.save(f)
    again = fo.load(f.getvalue())(*inputs)
    for y, z in zip(found, again if isinstance(again, tuple) else (again,)):
        assert np.array_equal(y, z, equal_nan=True)
    try:
        import onnxruntime
    except ImportError:
        return found
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    except onnxruntime.capi.onnxruntime_pybind11_state.NotImplemented:
        return found
    expected = session.run(None, {v.name: x for v, x in zip(session.get_inputs(), inputs)})
    for y, z in zip(found, expected, strict=True):
        assert y.dtype == z.dtype and y.shape == z.shape
        np.testing.assert_allclose(y, z, rtol=1e-5, atol=1e-6)
    return found


# ---- features


def test_scaler():
    (y,) = run(proto("Scaler", {"offset": [1.0, 2.0, 3.0], "scale": [2.0, 1.0, 0.5]}, X), X)
    assert np.array_equal(y, (X - F([1, 2, 3])) * F([2, 1, 0.5]))
    whole = X.astype(INT)
    (y,) = run(proto("Scaler", {"offset": [1.0] * 3, "scale": [2.0] * 3}, whole), whole)
    assert y.dtype == F and np.array_equal(y, 2 * (whole - 1))


@pytest.mark.parametrize("norm", ["MAX", "L1", "L2"])
def test_normalizer(norm):
    (y,) = run(proto("Normalizer", {"norm": norm}, X), X)
    norms = {"MAX": X.max(1), "L1": np.abs(X).sum(1), "L2": np.sqrt((X**2).sum(1))}[norm]
    norms[norms == 0] = 1
    np.testing.assert_allclose(y, X / norms[:, np.newaxis], rtol=1e-6)


def test_binarizer():
    (y,) = run(proto("Binarizer", {"threshold": 0.5}, X), X)
    assert np.array_equal(y, F([[1, 0, 0], [0, 0, 0], [0, 1, 1], [0, 0, 0]]))


def test_imputer():
    attrs = {"imputed_value_floats": [7.0, 8.0, 9.0], "replaced_value_float": float("nan")}
    assert np.array_equal(run(proto("Imputer", attrs, NAN), NAN)[0], F([[1, 8, 0], [7, 0, 2]]))
    attrs = {"imputed_value_floats": [5.0], "replaced_value_float": 0.0}
    assert np.array_equal(run(proto("Imputer", attrs, X), X)[0], np.where(X == 0, F(5), X))
    x = np.array([[1, -1], [3, -1]])
    attrs = {"imputed_value_int64s": [5, 6], "replaced_value_int64": -1}
    assert np.array_equal(run(proto("Imputer", attrs, x, outputs=(INT,)), x)[0], [[1, 6], [3, 6]])


def test_array_feature_extractor():
    at = np.array([2, 0, 2])
    assert np.array_equal(run(proto("ArrayFeatureExtractor", {}, X, constants=[at]), X)[0], X[:, at])
    labels = np.array([10, 20, 30])
    model = proto("ArrayFeatureExtractor", {}, labels, at, outputs=(INT,))
    assert np.array_equal(run(model, labels, at)[0], [[30, 10, 30]])


@pytest.mark.parametrize(
    ("keys", "values", "default", "x", "expected"),
    [
        ({"keys_int64s": [3, 1]}, {"values_int64s": [30, 10]}, {}, np.array([[1, 2, 3]]), np.array([[10, -1, 30]])),
        ({"keys_int64s": [3, 1]}, {"values_floats": [0.5, 1.5]}, {"default_float": 9.0}, np.array([1, 2]), F([1.5, 9])),
        ({"keys_floats": [float("nan"), 0.5]}, {"values_int64s": [1, 2]}, {"default_int64": 5},
         F([0.5, np.nan, 7]), np.array([2, 1, 5])),
    ],
)  # fmt: skip
def test_label_encoder(keys, values, default, x, expected):
    model = proto("LabelEncoder", keys | values | default, x, outputs=(expected.dtype,))
    y = fo.load_onnx(model)(x) if np.isnan(x).any() else run(model, x)[0]  # ONNX Runtime finds no NaN, as ONNX has it
    assert y.dtype == expected.dtype and np.array_equal(y, expected)


# ---- linear models


def test_linear_regressor():
    w, b = F([[1, 2, 3], [-1, 0.5, 0]]), F([0.5, -0.5])
    attrs = {"coefficients": w.reshape(-1).tolist(), "intercepts": b.tolist(), "targets": 2}
    np.testing.assert_allclose(run(proto("LinearRegressor", attrs, X), X)[0], X @ w.T + b, rtol=1e-6)
    attrs = {"coefficients": w[0].tolist()}
    np.testing.assert_allclose(run(proto("LinearRegressor", attrs, X), X)[0], (X @ w[:1].T), rtol=1e-6)
    assert fo.load_onnx(proto("LinearRegressor", attrs, X)).explain().numpy == []  # kernels compute it


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"])
@pytest.mark.parametrize("classes", [2, 3])
def test_linear_classifier(transform, classes):
    w, b = F([[1, 2, 3], [-1, 0.5, 0], [0.5, 0.5, -1]])[:classes], F([0.5, -0.5, 0])[:classes]
    labels = [7, -3, 5][:classes]
    attrs = {"coefficients": w.reshape(-1).tolist(), "intercepts": b.tolist(), "classlabels_ints": labels}
    model = proto("LinearClassifier", attrs | {"post_transform": transform}, X, outputs=(INT, F))
    label, scores = run(model, X)
    exact = X @ w.T + b
    assert np.array_equal(label, np.array(labels)[exact.argmax(1)])
    if transform == "LOGISTIC":
        np.testing.assert_allclose(scores, 1 / (1 + np.exp(-exact)), rtol=1e-5, atol=1e-7)
    if transform == "SOFTMAX":
        np.testing.assert_allclose(scores.sum(1), 1, rtol=1e-6)


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC"])
def test_one_score_of_two_classes(transform):
    attrs = {"coefficients": [1.0, -1.0, 0.5], "intercepts": [0.25], "classlabels_ints": [4, 9]}
    label, scores = run(proto("LinearClassifier", attrs | {"post_transform": transform}, X, outputs=(INT, F)), X)
    exact = X @ F([1, -1, 0.5]) + F(0.25)
    assert np.array_equal(label, np.where(exact > 0, 9, 4)) and scores.shape == (4, 2)


# ---- trees


def tree(modes="BRANCH_LEQ", missing=0):
    """Two trees of depth 2 and 1: of feature 0 at 0, then 1 at 1; of feature 2 at 0."""
    return {
        "nodes_treeids": [0] * 5 + [1] * 3,
        "nodes_nodeids": [0, 1, 2, 3, 4, 0, 1, 2],
        "nodes_featureids": [0, 1, 0, 0, 0, 2, 0, 0],
        "nodes_modes": [modes, modes, "LEAF", "LEAF", "LEAF", modes, "LEAF", "LEAF"],
        "nodes_values": [0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0],
        "nodes_truenodeids": [1, 3, 0, 0, 0, 1, 0, 0],
        "nodes_falsenodeids": [2, 4, 0, 0, 0, 2, 0, 0],
        "nodes_missing_value_tracks_true": [missing] * 8,
        "nodes_hitrates": [1.0] * 8,
    }


def leaves(prefix, ids=(0, 0, 0, 0, 0), weights=(1.0, 2.0, 4.0, 8.0, 16.0)):
    """Leaves 2, 3, 4 of the first tree, and 1, 2 of the second."""
    return {
        f"{prefix}_treeids": [0, 0, 0, 1, 1],
        f"{prefix}_nodeids": [2, 3, 4, 1, 2],
        f"{prefix}_ids": list(ids),
        f"{prefix}_weights": list(weights),
    }


def by_hand(x, less=np.less_equal):
    """The sums of both trees."""
    return F([(2 if less(b, 1) else 4) if less(a, 0) else 1 for a, b, _ in x]) + F(
        [8 if less(c, 0) else 16 for _, _, c in x]
    )


@pytest.mark.parametrize(
    ("mode", "less"),
    [("BRANCH_LEQ", np.less_equal), ("BRANCH_LT", np.less), ("BRANCH_GTE", np.greater_equal),
     ("BRANCH_GT", np.greater), ("BRANCH_EQ", np.equal), ("BRANCH_NEQ", np.not_equal)],
)  # fmt: skip
def test_regressor(mode, less):
    model = proto("TreeEnsembleRegressor", tree(mode) | leaves("target") | {"n_targets": 1}, X)
    assert np.array_equal(run(model, X)[0][:, 0], by_hand(X, less))


def test_modes_that_differ():
    attrs = tree() | leaves("target") | {"n_targets": 1}
    attrs["nodes_modes"][1] = "BRANCH_GT"
    model = proto("TreeEnsembleRegressor", attrs, X)
    expected = by_hand(X)
    for row, (a, b, _) in enumerate(X):
        expected[row] += 0 if a > 0 else 2 if b <= 1 else -2
    assert np.array_equal(run(model, X)[0][:, 0], expected)


@pytest.mark.parametrize("how", ["SUM", "AVERAGE", "MIN", "MAX"])
def test_how_trees_are_joined(how):
    attrs = tree() | leaves("target") | {"n_targets": 1, "aggregate_function": how, "base_values": [0.5]}
    (y,) = run(proto("TreeEnsembleRegressor", attrs, X), X)
    first = F([1 if a > 0 else 2 if b <= 1 else 4 for a, b, _ in X])
    second = by_hand(X) - first
    joined = {"SUM": first + second, "AVERAGE": (first + second) / 2, "MIN": np.minimum(first, second),
              "MAX": np.maximum(first, second)}  # fmt: skip
    assert np.array_equal(y[:, 0], joined[how] + F(0.5))


@pytest.mark.parametrize("missing", [0, 1])
def test_missing_values(missing):
    model = proto("TreeEnsembleRegressor", tree(missing=missing) | leaves("target") | {"n_targets": 1}, NAN)
    (y,) = run(model, NAN)
    first = F([1, 2 if missing else 1])
    assert np.array_equal(y[:, 0], first + F([8, 16]))


def test_integers_are_features():
    x = X.astype(INT)
    model = proto("TreeEnsembleRegressor", tree() | leaves("target") | {"n_targets": 1}, x)
    assert np.array_equal(run(model, x)[0][:, 0], by_hand(x))


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX"])
def test_classifier(transform):
    attrs = tree() | leaves("class", (0, 1, 2, 0, 2), (0.5, 0.25, 0.75, 0.4, 0.6))
    attrs |= {"classlabels_int64s": [3, 1, 2], "post_transform": transform, "base_values": [0.1, 0.0, 0.2]}
    label, scores = run(proto("TreeEnsembleClassifier", attrs, X, outputs=(INT, F)), X)
    exact = F([[1.0, 0, 0.2], [0.5, 0.25, 0.2], [0.1, 0, 1.55], [1.0, 0, 0.2]])
    assert np.array_equal(label, np.array([3, 1, 2])[exact.argmax(1)])
    if transform == "NONE":
        np.testing.assert_allclose(scores, exact, rtol=1e-6)


@pytest.mark.parametrize("weights", [(0.1, 0.2, 0.3, 0.2, 0.5), (-1.0, 2.0, -4.0, 3.0, -0.5)])
@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC"])
@pytest.mark.parametrize("one", [0, 1])
def test_two_classes_with_one_score(weights, transform, one):
    """Shares of the second class, or a number whose sign decides."""
    attrs = tree() | leaves("class", (one,) * 5, weights) | {"classlabels_int64s": [6, 8], "post_transform": transform}
    label, scores = run(proto("TreeEnsembleClassifier", attrs, X, outputs=(INT, F)), X)
    assert scores.shape == (4, 2) and set(label.tolist()) <= {6, 8}
    if min(weights) < 0 and not one:
        assert np.array_equal(label == 8, scores[:, 1] > scores[:, 0])


def test_many_rows_and_trees():
    """More than are followed at a time."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((3000, 3)).astype(F)
    attrs, weights = {k: [] for k in tree()}, {k: [] for k in leaves("target")}
    for i in range(60):
        for k, v in tree().items():
            attrs[k] += v if k != "nodes_treeids" else [t + 2 * i for t in v]
        for k, v in leaves("target").items():
            weights[k] += v if k != "target_treeids" else [t + 2 * i for t in v]
    model = proto("TreeEnsembleRegressor", attrs | weights | {"n_targets": 1}, x)
    assert np.array_equal(run(model, x)[0][:, 0], 60 * by_hand(x))
    assert np.array_equal(fo.load_onnx(model)(x[5:6]), 60 * by_hand(x[5:6]).reshape(1, 1))


def test_the_newest_form():
    attrs = {
        "tree_roots": [0, 2],
        "nodes_featureids": [0, 1, 2],
        "nodes_modes": helper.make_tensor("modes", TensorProto.UINT8, [3], [0, 0, 0]),
        "nodes_splits": helper.make_tensor("splits", TensorProto.FLOAT, [3], [0.0, 1.0, 0.0]),
        "nodes_truenodeids": [1, 1, 3],
        "nodes_trueleafs": [0, 1, 1],
        "nodes_falsenodeids": [0, 2, 4],
        "nodes_falseleafs": [1, 1, 1],
        "leaf_targetids": [0] * 5,
        "leaf_weights": helper.make_tensor("weights", TensorProto.FLOAT, [5], [1.0, 2.0, 4.0, 8.0, 16.0]),
        "n_targets": 1,
    }
    model = proto("TreeEnsemble", attrs, X, version=5)
    assert np.array_equal(fo.load_onnx(model)(X)[:, 0], by_hand(X))


# ---- what is refused


@pytest.mark.parametrize(
    ("op", "attrs", "words"),
    [
        (
            "LinearClassifier",
            {"coefficients": [1.0] * 6, "classlabels_strings": ["a", "b"]},
            "train on labels that are n",
        ),
        ("TreeEnsembleClassifier", tree() | leaves("class") | {"classlabels_strings": ["a", "b"]}, "texts"),
        ("LabelEncoder", {"keys_strings": ["a"], "values_int64s": [1]}, "texts"),
        ("ZipMap", {"classlabels_int64s": [1, 2]}, r"options=\{'zipmap': False\}"),
        ("SVMRegressor", {}, "support vectors"),
    ],
)
def test_what_is_not_there(op, attrs, words):
    with pytest.raises(fo.UnsupportedOperator, match=words):
        fo.load_onnx(proto(op, attrs, X, outputs=(INT, F) if "Classifier" in op else (F,)))


def test_damaged_trees():
    for change, words in (
        ({"nodes_truenodeids": [9, 3, 0, 0, 0, 1, 0, 0]}, "node 9 of tree 0"),
        ({"nodes_values": [0.0]}, "do not fit"),
        ({"nodes_truenodeids": [1, 1, 0, 0, 0, 1, 0, 0]}, "circle"),
        ({"nodes_nodeids": [0, 0, 2, 3, 4, 0, 1, 2]}, "one number"),
        ({"target_ids": [0, 0, 0, 0, 3]}, "do not fit 1 targets"),
        ({"aggregate_function": "MOST"}, "MOST"),
    ):
        with pytest.raises(fo.DamagedFile, match=words):
            fo.load_onnx(proto("TreeEnsembleRegressor", tree() | leaves("target") | {"n_targets": 1} | change, X))
    with pytest.raises(ValueError, match="rows of 2 features"):
        fo.load_onnx(proto("TreeEnsembleRegressor", tree() | leaves("target") | {"n_targets": 1}, X))(X[:, :2])


# ---- whole pipelines


def test_pipelines_of_scikit_learn():
    pytest.importorskip("sklearn")
    skl2onnx = pytest.importorskip("skl2onnx")
    from sklearn.datasets import load_iris
    from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    x, y = load_iris(return_X_y=True)
    x = x.astype(F)
    for model in (
        make_pipeline(StandardScaler(), LogisticRegression()),
        make_pipeline(StandardScaler(), MLPClassifier(max_iter=500, random_state=0)),
        RandomForestClassifier(10, random_state=0),
        GradientBoostingClassifier(n_estimators=5, random_state=0),
    ):
        model.fit(x, y)
        converted = skl2onnx.to_onnx(model, x[:1], options={"zipmap": False})
        label, scores = fo.load_onnx(converted)(x)
        assert np.array_equal(label, model.predict(x))
        np.testing.assert_allclose(scores, model.predict_proba(x), rtol=1e-4, atol=1e-5)
        with pytest.raises(fo.UnsupportedOperator, match="zipmap"):
            fo.load_onnx(skl2onnx.to_onnx(model, x[:1]))
