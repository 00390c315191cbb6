"""Every activation at every lane: the values, NaN, infinities and signed zeros, vector body and tail alike."""

import re
from pathlib import Path

import numpy as np
import pytest

import fusedops as fo
import oracle
from catalog import EXHAUSTIVE
from fusedops import _core, activations
from oracle import check

ROOT = Path(__file__).parents[2]
ACTIVATIONS = {name: name for name in activations.NAMES if name not in ("clip", "prelu")} | {
    "clip": ("clip", -0.75, 1.5),
    "clip_from_below": ("clip", 0, np.inf),
    "leaky_relu_0.3": ("leaky_relu", 0.3),
    "leaky_relu_negative": ("leaky_relu", -2.0),
    "elu_0.5": ("elu", 0.5),
}
SPECIAL = np.float32([np.nan, np.inf, -np.inf, -0.0])
LENGTHS = range(1, 36)  # 2 * 16 lanes and some more


@pytest.fixture(params=ACTIVATIONS)
def activation(request):
    return ACTIVATIONS[request.param]


def apply(activation, x):
    """activation(x) through a GEMM that adds nothing but x."""
    m, n = x.shape
    return fo.gemm(np.zeros((m, 1), np.float32), np.zeros((1, n), np.float32), residual=x, activation=activation)


def test_values(isa, activation):
    magnitudes = np.geomspace(1e-30, 1e38, 2001)
    x = np.concatenate([np.linspace(-25, 25, 20001), magnitudes, -magnitudes]).astype(np.float32)[None]
    check(apply(activation, x), oracle.activate(x, activation))


@pytest.mark.parametrize("special", SPECIAL, ids=str)
def test_special_values_at_every_lane(isa, draw, activation, special):
    """Row i has the special value at column i: there it comes out as NumPy has it, and its neighbors do not notice."""
    for n in LENGTHS:
        x = draw(n, n)
        np.fill_diagonal(x, special)
        check(apply(activation, x), oracle.activate(x, activation))


def test_every_lane_and_length_has_the_same_bits(isa, draw, activation):
    column = 6 * draw(64, 1)
    expected = apply(activation, column)
    for n in LENGTHS:
        y = apply(activation, np.repeat(column, n, axis=1))
        np.testing.assert_array_equal(y, np.repeat(expected, n, axis=1))


@pytest.mark.parametrize("special", SPECIAL, ids=str)
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("depthwise", [False, True])
def test_special_values_in_an_image(isa, draw, layout, depthwise, special):
    """Image i has the special value at pixel i; a window of one pixel keeps it there."""
    for n in (1, 7, 15, 16, 17, 33, 35):
        x = draw(n, 1, n, 1) if layout == "NHWC" else draw(n, 1, 1, n)
        np.fill_diagonal(x.reshape(n, n), special)
        w = np.ones((1, 1, 1, 1), np.float32)
        y = (fo.depthwise_conv2d if depthwise else fo.conv2d)(x, w, layout=layout, activation="relu")
        np.testing.assert_array_equal(y, np.maximum(x, 0))


def test_nan_reaches_the_windows_that_see_it(isa, draw):
    x, w = draw(1, 3, 9, 20), draw(5, 3, 3, 3)
    x[0, 1, 4, 17] = np.nan
    seen = np.zeros((1, 5, 9, 20), bool)
    seen[:, :, 3:6, 16:19] = True
    for options in (dict(), dict(groups=1, activation="relu6"), dict(activation=("clip", -1, 1))):
        y = fo.conv2d(x, w, padding=1, algorithm="direct", **options)
        np.testing.assert_array_equal(np.isnan(y), seen)


@pytest.mark.parametrize("n", [1, 15, 16, 17, 33])
def test_prelu_has_a_slope_for_each_channel(isa, draw, n):
    x, slopes = draw(7, n), draw(n)
    check(apply(("prelu", slopes), x), oracle.activate(x, ("prelu", slopes)))
    image = draw(2, n, 3, 5)
    w = np.ones((n, 1, 1, 1), np.float32)
    for layout, view in ("NCHW", image), ("NHWC", np.ascontiguousarray(image.transpose(0, 2, 3, 1))):
        y = fo.depthwise_conv2d(view, w, activation=("prelu", slopes), layout=layout)
        check(y, oracle.depthwise_conv2d(view, w, activation=("prelu", slopes), layout=layout))


def test_ranges(isa):
    """Saturation stays inside: nothing above 1 from a sigmoid, and both ends are reached."""
    x = np.linspace(-200, 200, 4001, dtype=np.float32)[None]
    for name, lo, hi in [("sigmoid", 0, 1), ("tanh", -1, 1), ("hardsigmoid", 0, 1), ("relu6", 0, 6)]:
        y = apply(name, x)
        assert y.min() >= lo and y.max() <= hi
        assert abs(y[0, 0] - lo) < 1e-37 and y[0, -1] == hi


def test_forms_in_numpy_are_those_of_the_kernels():
    """Which names there are, the kernels say."""
    assert set(activations.FORMS) == set(activations.KINDS)
    x = np.linspace(-9, 9, 181)
    for name, form in activations.FORMS.items():
        given = {"clip": (-0.75, 1.5), "prelu": (0.25,)}.get(name, form.defaults)
        named = None if name == "identity" else (name, *given)
        np.testing.assert_allclose(form.numpy(x, *given), oracle.activate(x, named).value, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("name", activations.NAMES)
def test_every_activation_is_documented(name):
    assert f'"{name}"' in fo.conv2d.__doc__
    page = ROOT / "docs/operations.md"
    if page.exists():
        assert re.search(rf'^\|.*`\(?"{name}"', page.read_text(), re.MULTILINE)


@pytest.mark.skipif(not (ROOT / "CONTRIBUTING.md").exists(), reason="the sources are not here")
def test_the_places_of_an_activation_that_contributing_names():
    """Where the last one that was added stands: in these files and in no other one."""
    page = (ROOT / "CONTRIBUTING.md").read_text()
    recipe = re.search(r"^\*\*An activation\*\*.*?\n\n", page, re.MULTILINE | re.DOTALL).group()
    named = set(re.findall(r"`([\w/]+\.\w+)`", recipe)) - {"csrc/kernels/math.h"}  # this one, where it is a polynomial
    found = {
        path.relative_to(ROOT).as_posix()
        for folder in ("csrc", "fusedops", "docs")
        for path in (ROOT / folder).rglob("*.*")
        if path.suffix in (".c", ".h", ".py", ".pyi", ".pyx", ".pxd", ".pxi", ".md")
        and path.name != "_core.c"
        and "softsign" in path.read_text()
    }
    assert found | {"tests/support/oracle.py"} == named
    assert '"softsign"' in (ROOT / "tests/support/oracle.py").read_text()


@pytest.mark.thorough
@pytest.mark.parametrize(
    "name, exact", {"exp": np.exp, "tanh": np.tanh, "sigmoid": lambda x: 1 / (1 + np.exp(-x))}.items()
)
def test_error_over_every_float(isa, name, exact):
    """At most 2 units in the last place of the exact result; what is subnormal counts as zero. Every float where
    FUSEDOPS_EXHAUSTIVE=1, else every 257th."""
    step = 1 if EXHAUSTIVE else 257
    chunk, worst = step << 22, 0
    for first in range(0, 1 << 32, chunk):
        x = np.arange(first, min(first + chunk, 1 << 32), step, dtype=np.uint32).view(np.float32)
        x = x[~np.isnan(x)]
        y = np.empty_like(x)
        program = _core.Program()
        if name == "exp":
            program.append("unary", "exp", x, y)
        else:
            program.append("unary", "identity", x, y, activations.parse(name))
        program.run(())
        with np.errstate(over="ignore"):
            value = exact(x.astype(np.float64))
            nearest = np.abs(value).astype(np.float32)
        finite = np.isfinite(nearest)
        assert np.array_equal(y[~finite], nearest[~finite])
        binade = np.maximum((nearest.view(np.uint32) & 0x7F800000).view(np.float32), np.finfo(np.float32).tiny)
        error = (np.abs(y - value) - (nearest < 1.2e-38) * 1.2e-38) / (binade * 2.0**-23)
        worst = max(worst, error[finite].max(initial=0))
    assert worst <= 2, worst
