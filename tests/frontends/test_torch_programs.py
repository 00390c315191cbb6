"""Branches, loops and scans of PyTorch, and programs of torch.export."""

import numpy as np
import pytest

import fusedops as fo

torch = pytest.importorskip("torch", reason="PyTorch is not installed (its CPU build is enough)")
import torch.nn.functional as F
from torch import nn
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop

from fusedops.graph.frontends.torch import export


@pytest.fixture(autouse=True)
def exported(monkeypatch):
    """Torch's graph export alone."""

    def none(*_):
        raise export.Unsupported("tracing was needed")

    monkeypatch.setattr(export, "_traced", none)


def randn(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


class Module(nn.Module):
    """A function of the module, whose layer it may call, and of tensors."""

    def __init__(self, function):
        super().__init__()
        self.function, self.layer = function, nn.Linear(4, 4)

    def forward(self, *inputs):
        return self.function(self.layer, *inputs)


def check(function, x, op, *feeds):
    """Also at inputs that take other branches, or other numbers of rounds, than the example."""
    module = Module(function).eval()
    net = fo.from_torch(module, x)
    assert op in [n.op for n in net._graph.nodes]
    for y in (x, *feeds):
        with torch.no_grad():
            expected = module(y)
        found = net(y.numpy())
        pairs = zip(found, expected, strict=True) if isinstance(found, tuple) else [(found, expected)]
        for a, b in pairs:
            assert a.dtype == b.numpy().dtype
            np.testing.assert_allclose(a, b.numpy(), rtol=1e-5, atol=1e-6)
    return net


def test_a_branch_by_values():
    def function(layer, x):
        return torch.cond(x.sum() > 0, lambda x: layer(x) + x.shape[0], lambda x: x.sin(), (x,))

    x = randn(5, 4).abs()
    check(function, x, "If", -x, x[:2], -x[:3])


def test_branches_of_several_results_inside_a_branch():
    def inner(x, y):
        return torch.cond(y.sum() > 0, lambda x, y: (x + y, y * 2), lambda x, y: (x * y, y - 1), (x, y))

    def function(layer, x):
        a, b = torch.cond(x.sum() > 0, inner, lambda x, y: (x.sin(), y.cos()), (x, layer(x)))
        return a * b

    x = randn(3, 4)
    check(function, x, "If", -x, x + 3, x - 3)


def test_a_loop_of_known_rounds():
    def function(layer, x):
        start = torch.tensor(0)
        return while_loop(lambda i, y: i < 5, lambda i, y: (i + 1, torch.tanh(layer(y))), (start, x))[1]

    check(function, randn(5, 4), "Loop", randn(2, 4))


def test_a_loop_until_values_say_so():
    def function(layer, x):
        total, y = while_loop(lambda i, y: y.abs().sum() > 1, lambda i, y: (i + 1, y * 0.5), (torch.tensor(0), x))
        return y, total

    x = randn(5, 4)
    check(function, x, "Loop", 100 * x, 0.001 * x)


@pytest.mark.parametrize("options", [{}, {"dim": 1, "reverse": True}])
def test_a_scan(options):
    def function(layer, x):
        start = torch.zeros_like(x.select(options.get("dim", 0), 0))
        change = layer if not options else torch.sin
        return scan(lambda c, x: (c + change(x), c * x), start, x, **options)

    check(function, randn(5, 4), "Scan", randn(7, 4))


def test_complex_numbers_in_a_branch_are_refused():
    def function(layer, x):
        z = torch.fft.fft(x)
        return torch.view_as_real(torch.cond(x.sum() > 0, lambda z: z * 2, lambda z: z + 1, (z,)))

    with pytest.raises(ValueError, match="real numbers in branches"):
        fo.from_torch(Module(function), randn(3, 4))


# ---- programs of torch.export


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU())

    def forward(self, x, *, scale):
        return self.body(x) * scale, x.mean((2, 3))


@pytest.mark.parametrize("opened", [False, True])
def test_a_program(opened, tmp_path):
    batch = torch.export.Dim("batch", min=1, max=64)
    shapes = {"x": {0: batch}, "scale": None} if opened else None
    module, x, scale = Scaled().eval(), randn(2, 3, 9, 8), randn(7, 6)
    program = torch.export.export(module, (x,), {"scale": scale}, dynamic_shapes=shapes)
    torch.export.save(program, tmp_path / "net.pt2")
    for each in (program, torch.export.load(tmp_path / "net.pt2")):
        net = fo.from_torch(each)
        assert len(net.explain().fusions) >= 2 and [v.name for v in net.inputs] == ["x", "scale"]
        for y in (x, *([randn(5, 3, 9, 8)] if opened else [])):
            with torch.no_grad():
                expected = module(y, scale=scale)
            for a, b in zip(net(y.numpy(), scale.numpy()), expected, strict=True):
                np.testing.assert_allclose(a, b.numpy(), rtol=1e-5, atol=1e-6)
    if not opened:
        with pytest.raises(ValueError, match="shape"):
            net(np.zeros((3, 3, 9, 8), np.float32), scale.numpy())


def test_a_program_has_its_sizes_and_its_example():
    program = torch.export.export(nn.ReLU(), (randn(2, 3),))
    with pytest.raises(TypeError, match="pass dynamic_shapes to torch.export.export"):
        fo.from_torch(program, dynamic_shapes=({0: "n"},))
    program.example_inputs = None
    with pytest.raises(TypeError, match="no example inputs"):
        fo.from_torch(program)
    assert fo.from_torch(program, randn(2, 3))(np.full((2, 3), -1, np.float32)).max() == 0


def test_a_program_that_cannot_be_loaded():
    program = torch.export.export(Module(lambda layer, x: torch.special.gammaln(x)), (randn(2, 3),))
    with pytest.raises(ValueError, match=r"program cannot be loaded: .*gammaln|lgamma"):
        fo.from_torch(program)


# ---- halves, and what NumPy computes

SPD = randn(2, 4, 4) / 4 + 4 * torch.eye(4)
FUNCTIONS = {
    "to halves and back": lambda x: (x * 100).half().float(),
    "to bfloat16 and back": lambda x: x.bfloat16().float(),
    "to bfloat16 by its name": lambda x: x.to(torch.bfloat16).to(torch.float32) + 1,
    "arithmetic of halves": lambda x: (x.half() * 2 + 1).float(),
    "arithmetic of bfloat16": lambda x: (x.bfloat16() * 3 - 1).float(),
    "median": lambda x: x.median(),
    "median of an even number": lambda x: x.median(0),
    "median along the last axis": lambda x: x.median(-1, True)[0],
    "k-th value": lambda x: x.kthvalue(2, dim=1),
    "inverse": lambda x: torch.linalg.inv(x @ x.transpose(1, 2) + 4 * torch.eye(3)),
    "inverse of one": lambda x: torch.inverse(x[0] @ x[0].T + torch.eye(3)),
    "norm": lambda x: torch.linalg.norm(x),
    "norm of rows": lambda x: torch.linalg.norm(x, 3, dim=1),
    "largest of rows": lambda x: torch.linalg.norm(x, float("inf"), dim=1),
    "norm of matrices": lambda x: torch.linalg.norm(x, "fro", dim=(1, 2)) + torch.linalg.norm(x, 1, dim=(1, 2)),
    "spectral norm": lambda x: torch.linalg.matrix_norm(x, 2) + torch.linalg.matrix_norm(x, "nuc"),
    "singular values": lambda x: torch.linalg.svdvals(x),
    **{
        f"distances of norm {p}": lambda x, p=p: torch.cdist(x, x * 2 + 1, p=p)
        for p in (0.0, 1.0, 2.0, 3.0, float("inf"))
    },
    "buckets": lambda x: torch.bucketize(x.round(), torch.tensor([-1.0, 0, 1])),
    "buckets with their ends": lambda x: torch.bucketize(
        x.round(), torch.tensor([-1, 0, 1]), right=True, out_int32=True
    ),
    "bfloat16 constants": lambda x: (torch.arange(5.0).bfloat16() * x + torch.full((5,), 0.3).bfloat16()).float(),
    "differences": lambda x: torch.diff(x),
    "differences of differences": lambda x: torch.diff(x, 2, 1, prepend=x[:, :1], append=x[:, :2] * 2),
    "differences of bools": lambda x: torch.diff(x > 0, dim=1),
    "a histogram": lambda x: torch.histc(x, 5, -1.0, 1.5),
    "a histogram of its ends": lambda x: torch.histc(x.round().clamp(-1, 3), 3, -1, 2),
    "elements where a mask is true": lambda x: x.masked_scatter(x > 0.2, x.flip(1) * 2),
    "a number, a row and rows where a mask is": lambda x: (
        x.index_put((x > 0,), torch.tensor(5.0)),
        x.index_put((x[..., 0] > 0,), torch.arange(5.0)),
        x.index_put((x[..., 0] > 0,), torch.arange(5.0)[None]),
        torch.zeros(4, 3, 5).index_put((x > 0,), x[x > 0] * 2),
        torch.zeros(4, 3, 5).index_put((x[..., 0] > 0,), x[x[..., 0] > 0] * 2),
    ),
    **{
        f"scattered by {how}{'' if both else ', without what was there'}": lambda x, how=how, both=both: (
            torch.full((4, 2, 5), 0.3).scatter_reduce(1, (x > 0).long() * (x > 1), x, how, include_self=both),
            torch.ones(4, 2, 5).long().scatter_reduce(1, (x > 9).long(), (x * 5).long(), how, include_self=both)
            if how != "mean"
            else x,
        )
        for how in ("sum", "prod", "amax", "amin", "mean")
        for both in (True, False)
    },
    "rows where a mask is true": lambda x: torch.zeros(4, 3, 5).masked_scatter(x[..., :1] > 0, x),
    "places in computed rows": lambda x: torch.searchsorted(x.sort(-1)[0], x * 1.1, side="right"),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name):
    fo.from_torch(Module(lambda layer, x: FUNCTIONS[name](x)), randn(4, 3, 5))


def test_a_branch_by_an_item():
    net = fo.from_torch(
        Module(lambda layer, x: torch.cond((x.sum() > 0).item(), lambda x: x * 2, lambda x: x - 1, (x,))), randn(2, 3)
    )
    assert net(np.ones((2, 3), np.float32)).tolist() == [[2] * 3] * 2
    assert net(-np.ones((2, 3), np.float32)).tolist() == [[-2] * 3] * 2


def test_assertions_are_left_out():
    """What only they use, too, such as an operator that has no reader."""

    def checked(layer, x):
        torch._check_tensor_all(torch.linalg.lu(x)[1] < 100)
        return layer(x)

    net = fo.from_torch(Module(checked), randn(2, 4, 4))
    assert [n.op for n in net._graph.nodes] == ["Linear"]


def test_a_slice_between_computed_bounds():
    def around(layer, x):
        n = torch.tensor(x.shape[1])
        return x.sum(1) @ table[4 - n : 4 + n].T

    table = randn(9, 4)
    net = fo.from_torch(Module(around), randn(2, 3, 4), dynamic_shapes=({1: "length"},))
    assert net(randn(2, 4, 4).numpy()).shape == (2, 8)


@pytest.mark.skipif(not hasattr(F, "grouped_mm"), reason="this PyTorch has no grouped_mm")
def test_products_of_groups():
    """The rows of each expert by its matrix, as mixtures of experts have them; one expert has no rows."""

    def experts(layer, x, number):
        ends = torch.histc(number.float(), 4, 0, 3).cumsum(0, dtype=torch.int32)
        return F.grouped_mm(x.bfloat16(), matrices.bfloat16(), offs=ends).float()

    matrices, number = randn(4, 8, 16), torch.tensor([0, 0, 0, 1, 1, 3, 3, 3, 3])
    net = fo.from_torch(Module(experts), (randn(9, 8), number))
    y = net(randn(9, 8).numpy(), np.array([1] * 9))
    np.testing.assert_allclose(y, randn(9, 8) @ matrices[1], rtol=0.02, atol=0.1)


@pytest.mark.parametrize("bins, low, high", [(6, 0.1, 0.7), (3, -1.0, 2.0), (100, 0.25, 7.0)])
def test_a_histogram_of_edges(bins, low, high):
    """And their neighbors, what is outside, and what is no number."""
    edges = np.linspace(low, high, bins + 1).astype("f")
    x = np.concatenate([edges, np.nextafter(edges, np.float32(-9)), np.nextafter(edges, np.float32(9))])
    x = np.concatenate([x, np.float32([np.nan, np.inf, -np.inf, low - 1, high + 1])])
    net = fo.from_torch(Module(lambda layer, x: torch.histc(x, bins, low, high)), torch.zeros(len(x)))
    np.testing.assert_array_equal(net(x), torch.histc(torch.from_numpy(x), bins, low, high))


def test_numbers_of_bfloat16_are_rounded():
    def numbers(layer, x):
        steps = torch.arange(x.shape[0], dtype=torch.bfloat16).float()
        return steps, torch.full_like(x, 0.3, dtype=torch.bfloat16).float()

    net = fo.from_torch(Module(numbers), randn(300))
    for y, expected in zip(net(np.zeros(400, np.float32)), numbers(None, torch.zeros(400)), strict=True):
        np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize(
    "function, words",
    [
        (lambda x: torch.histc(x, 4), "give min and max"),
        (lambda x: x.index_put((x > 0,), torch.tensor(1.0), accumulate=True), "a mask or several axes"),
        (lambda x: (x > 0).scatter_reduce(0, (x > 9).long(), x > 1, "amax", include_self=False), "of bools"),
        (lambda x: x.long().scatter_reduce(0, (x > 9).long(), x.long(), "mean"), "mean of integers"),
    ],
)
def test_forms_without_a_reader(function, words):
    with pytest.raises(ValueError, match=words):
        fo.from_torch(Module(lambda layer, x: function(x)), randn(4, 3))


def test_a_branch_by_a_size():
    module = Module(lambda layer, x: torch.cond(x.shape[0] > 3, torch.sin, torch.cos, (x,)))
    with pytest.raises(ValueError, match="by a size"):
        fo.from_torch(module, randn(4, 3), dynamic_shapes=({0: "n"},))


def test_a_cast_to_halves_rounds():
    net = fo.from_torch(Module(lambda layer, x: x.half().float()), randn(3))
    assert net(np.float32([1e5, 2049, 0.1])).tolist() == [np.inf, 2048, float(np.float16(0.1))]


def test_a_matrix_without_an_inverse():
    net = fo.from_torch(Module(lambda layer, x: torch.linalg.inv(x)), SPD)
    with pytest.raises(ValueError, match="no inverse"):
        net(np.zeros((2, 4, 4), np.float32))


# ---- linear algebra, and what adds up along an axis


def _spd(x):
    return x @ x.mT + 3 * torch.eye(4)


def _holes(x):
    return x.where(x > -0.5, torch.nan)


LINALG = torch.linalg
ALGEBRA = {
    "solve one column": lambda x: LINALG.solve(x, x.sum(-1)),
    "solve": lambda x: LINALG.solve(x, x @ x),
    "solve for several by one": lambda x: LINALG.solve(x[0], x),
    "solve from the right": lambda x: LINALG.solve(x, x @ x, left=False),
    "solve, and whether": lambda x: LINALG.solve_ex(x, x, check_errors=True),
    "solve, without whether": lambda x: LINALG.solve_ex(x, x)[0],
    "triangles": lambda x: LINALG.solve_triangular(x.tril() + 3 * torch.eye(4), x, upper=False),
    "triangles of ones": lambda x: LINALG.solve_triangular(x, x, upper=True, unitriangular=True),
    "a triangle of ones": lambda x: LINALG.solve_triangular(x[0], x[1], upper=False, unitriangular=True),
    "triangles from the right": lambda x: LINALG.solve_triangular(_spd(x), x[:, :3], upper=True, left=False),
    "triangles for several by one": lambda x: LINALG.solve_triangular(_spd(x[0]), x, upper=False),
    "triangles as before": lambda x: torch.triangular_solve(x, _spd(x), transpose=True)[0],
    "Cholesky": lambda x: LINALG.cholesky(_spd(x)),
    "Cholesky, upper": lambda x: LINALG.cholesky(_spd(x), upper=True),
    "Cholesky, solved": lambda x: torch.cholesky_solve(x, LINALG.cholesky(_spd(x))),
    "Cholesky, inverted": lambda x: torch.cholesky_inverse(LINALG.cholesky(_spd(x), upper=True), upper=True),
    "Cholesky, solved by a triangle": lambda x: torch.cholesky_solve(x, x + 3 * torch.eye(4)),
    "Cholesky, inverted by a triangle": lambda x: torch.cholesky_inverse(x + 3 * torch.eye(4), upper=True),
    "pseudo-inverse": lambda x: LINALG.pinv(x[:, :3]),
    "pseudo-inverse, cut": lambda x: LINALG.pinv(_spd(x), rtol=0.2, hermitian=True),
    "eigenvalues": lambda x: LINALG.eigvalsh(_spd(x)),
    "eigenvectors": lambda x: LINALG.eigh(_spd(x))[1].abs(),
    "QR": lambda x: LINALG.qr(x[:, :, :3]),
    "QR, complete": lambda x: LINALG.qr(x[:, :, :3], mode="complete"),
    "R": lambda x: LINALG.qr(x, mode="r")[1],
    "singular vectors": lambda x: [v.abs() for v in LINALG.svd(x[:, :3], full_matrices=False)],
    "logarithm of determinants": lambda x: LINALG.slogdet(x),
    "logarithm of positive determinants": lambda x: torch.logdet(_spd(x)),
    "exponentials": lambda x: LINALG.matrix_exp(3 * x),
    "products": lambda x: x.cumprod(1),
    "products and sums of one number": lambda x: [x.sum().cumprod(0), x.sum().cumsum(0)],
    "largest so far": lambda x: x.round().cummax(-1),
    "smallest so far": lambda x: x.cummin(1),
    "sums of exponentials": lambda x: x.logcumsumexp(2),
    "median of numbers": lambda x: _holes(x).nanmedian(),
    "median of numbers of rows": lambda x: torch.nanmedian(_holes(x).clamp_min(-9), 1),
    "medians of one number": lambda x: [
        *torch.nanmedian(x.sum(), 0),
        *torch.median(x.sum(), 0, keepdim=True),
        *torch.kthvalue(x.sum(), 1),
    ],
    "distance of all": lambda x: torch.dist(x, 2 * x, 3),
    "signs": lambda x: torch.copysign(x, torch.tensor([-0.0, 0.0, -2.0, float("inf")])),
    "powers of two": lambda x: torch.ldexp(x, torch.tensor([-3, 0, 2, 5])),
}


@pytest.mark.parametrize("name", ALGEBRA)
def test_linear_algebra(name):
    net = fo.from_torch(Module(lambda layer, x: ALGEBRA[name](x)), SPD + randn(2, 4, 4))
    batch = 2 if name == "solve one column" else 5  # torch compares sizes there, and so fixes them
    other = SPD[:1] + randn(batch, 4, 4)
    for y, wanted in zip(torch.utils._pytree.tree_leaves(net(other.numpy())), _leaves(ALGEBRA[name](other))):
        torch.testing.assert_close(torch.as_tensor(y), wanted, rtol=2e-4, atol=2e-4)


def _leaves(found):
    return torch.utils._pytree.tree_leaves(tuple(found) if isinstance(found, tuple) else found)


@pytest.mark.parametrize("function, words", [
    (lambda x: LINALG.solve(x, x), "Solve of such matrices: Singular"),
    (lambda x: LINALG.cholesky(x), "Cholesky of such matrices: .*not positive definite"),
])  # fmt: skip
def test_matrices_that_have_no_result(function, words):
    net = fo.from_torch(Module(lambda layer, x: function(x)), SPD @ SPD.mT)
    with pytest.raises(ValueError, match=words):
        net(np.zeros((2, 4, 4), np.float32))


@pytest.mark.parametrize("upper", [True, False])
def test_a_zero_on_the_diagonal_of_a_triangle_gives_infinities(upper):
    net = fo.from_torch(Module(lambda layer, x: LINALG.solve_triangular(x, x[:, :1].exp(), upper=upper)), SPD[0])
    x = torch.ones(4, 4)
    x[2, 2] = 0
    np.testing.assert_array_equal(net(x.numpy()), LINALG.solve_triangular(x, x[:, :1].exp(), upper=upper).numpy())


def test_a_cut_that_is_absolute():
    with pytest.raises(ValueError, match="pinv with rtol alone"):
        fo.from_torch(Module(lambda layer, x: LINALG.pinv(x, atol=0.1, rtol=0.1)), SPD)


@pytest.mark.parametrize("function", [LINALG.cholesky_ex, LINALG.inv_ex, lambda x: LINALG.solve_ex(x, x)])
def test_whether_matrices_have_results_is_refused(function):
    with pytest.raises(ValueError, match="check_errors=True"):
        fo.from_torch(Module(lambda layer, x: function(x)), SPD)
