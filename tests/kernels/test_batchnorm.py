import numpy as np
import pytest

import fusedops as fo
import oracle
from oracle import check


def rounded_once(actual, exact):
    """Each element is the float32 that is nearest to the exact one (but for the last bit of float64)."""
    assert actual.dtype == np.float32 and actual.shape == exact.shape
    ulp = np.spacing(np.maximum(np.abs(actual), np.finfo(np.float32).tiny)).astype(np.float64)
    assert (np.abs(actual - exact) <= 0.5000001 * ulp).all()


STATISTICS = {
    "usual": {},
    "negative_gamma": dict(gamma=[-1.5, -0.5, -1e-3, -7]),
    "zero_gamma": dict(gamma=[0, 1, -0.0, 2]),
    "huge_gamma": dict(gamma=[1e6, -1e6, 3e5, 1]),
    "tiny_var": dict(var=[1e-12, 0, 1e-30, 1e-6]),
    "huge_var": dict(var=[1e12, 1e6, 1e30, 1]),
    "no_gamma": dict(gamma=None),
    "no_beta": dict(beta=None),
    "neither": dict(gamma=None, beta=None),
    "eps_zero": dict(eps=0.0),
    "eps_large": dict(eps=1e-1),
}


@pytest.fixture(params=STATISTICS)
def bn(request, draw):
    given = {k: np.float32(v) if isinstance(v, list) else v for k, v in STATISTICS[request.param].items()}
    return draw.batch_norm(4)._replace(**given)


@pytest.mark.parametrize("shape", [(4, 3, 3, 3), (4, 1, 1, 1), (4, 5), (4, 3, 3)])
@pytest.mark.parametrize("biased", [False, True])
def test_fold_is_exact_and_rounded_once(draw, bn, shape, biased):
    w, bias = draw(*shape), draw(4) if biased else None
    exact_w, exact_bias = oracle.fold_batch_norm(w, bias, bn)
    folded_w, folded_bias = fo.fold_batch_norm(w, bias, bn)
    rounded_once(folded_w, exact_w)
    rounded_once(folded_bias, exact_bias)


def test_fold_leaves_its_arguments_alone(draw):
    w, bias, bn = draw(4, 3, 3, 3), draw(4), draw.batch_norm(4)
    before = w.copy(), bias.copy()
    fo.fold_batch_norm(w, bias, bn)
    np.testing.assert_array_equal(w, before[0])
    np.testing.assert_array_equal(bias, before[1])


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("biased", [False, True])
def test_fused(isa, draw, bn, layout, biased):
    x, w, bias = draw(2, 6, 6, 6), draw(4, 6, 3, 3), draw(4) if biased else None
    options = dict(bias=bias, bn=bn, activation="relu", layout=layout)
    check(fo.conv2d(x, w, **options, algorithm="direct"), oracle.conv2d(x, w, **options))


@pytest.mark.parametrize("groups", [2, 4])
def test_fused_with_groups(isa, draw, bn, groups):
    x, w = draw(2, 4, 6, 6), draw(4, 4 // groups, 3, 3)
    check(fo.conv2d(x, w, bn=bn, groups=groups), oracle.conv2d(x, w, bn=bn, groups=groups))


def test_fused_is_folded_by_hand(draw):
    x, w, bias, bn = draw(2, 3, 6, 6), draw(4, 3, 3, 3), draw(4), draw.batch_norm(4)
    folded_w, folded_bias = fo.fold_batch_norm(w, bias, bn)
    np.testing.assert_array_equal(fo.conv2d(x, w, bias=bias, bn=bn), fo.conv2d(x, folded_w, bias=folded_bias))


def test_a_plain_tuple_will_do(draw):
    x, w, bn = draw(2, 3, 6, 6), draw(4, 3, 3, 3), draw.batch_norm(4)
    np.testing.assert_array_equal(fo.conv2d(x, w, bn=tuple(bn)), fo.conv2d(x, w, bn=bn))


def test_defaults():
    mean, var = np.zeros(3, np.float32), np.ones(3, np.float32)
    bn = fo.BatchNorm(None, None, mean, var)
    assert bn.eps == 1e-5
    assert bn._fields == ("gamma", "beta", "mean", "var", "eps")


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "values",
    [
        dict(gamma=np.inf),
        dict(beta=np.nan),
        dict(mean=np.inf),
        dict(var=np.inf),
        dict(var=np.inf, gamma=np.inf),
        dict(mean=-np.inf, beta=-np.inf),
        dict(gamma=3e38, var=1e-30, eps=0.0),
    ],
    ids=str,
)
def test_statistics_beyond_all_bounds(draw, values):
    """IEEE's result, and no warning, which kernels do not give either."""
    x, w, bias, bn = draw(1, 3, 5, 5), draw(4, 3, 3, 3), draw(4), draw.batch_norm(4)
    bn = bn._replace(**{k: v if k == "eps" else np.full(4, v, np.float32) for k, v in values.items()})
    with np.errstate(all="ignore"):
        scale = (1 if bn.gamma is None else bn.gamma.astype(float)) / np.sqrt(bn.var.astype(float) + bn.eps)
        expected = ((bias.astype(float) - bn.mean) * scale + bn.beta).astype(np.float32)
    _, shift = fo.fold_batch_norm(w, bias, bn)
    np.testing.assert_array_equal(np.isfinite(shift), np.isfinite(expected))
    assert not np.isfinite(fo.conv2d(x, w, bias=bias, bn=bn)).all() or np.isinf(bn.var).all()
    fo.reference.conv2d(x, w, bias=bias, bn=bn), fo.reference.conv2d(x, w, bias=bias, bn=bn, fold_bn=True)
