"""Arrays of other libraries: read without a copy where they can be, refused with the fix where they cannot."""

import numpy as np
import pytest

import fusedops as fo


class Foreign:
    """An array that has DLPack and nothing else; `device` as DLPack numbers them."""

    def __init__(self, a, device=1):
        self.a, self.code = a, device

    def __dlpack__(self, **options):
        return self.a.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.code, 0


class OnDevice(Foreign):
    device = "cuda:0"

    def cpu(self):
        return self.a


@pytest.fixture
def layer(draw):
    return fo.Linear(draw(4, 5))


def test_dlpack(draw, layer):
    x = draw(3, 5)
    np.testing.assert_array_equal(layer(Foreign(x)), layer(x))
    np.testing.assert_array_equal(layer(Foreign(x[::-1])), layer(x[::-1]))


@pytest.mark.parametrize(
    "given, fix",
    [
        (lambda x: Foreign(x, device=2), "move x there first"),
        (lambda x: OnDevice(x, device=2), "on cuda:0.*pass x.cpu()"),
        (lambda x: Foreign(x.astype(np.float64)), r"float64.*np.asarray\(x, np.float32\)"),
        (lambda x: x.tolist(), r"float64.*np.asarray\(x, np.float32\)"),
        (lambda x: "text", "x must be a float32 array, not str"),
        (lambda x: None, "x must be a float32 array, not NoneType"),
    ],
)
def test_refused(draw, layer, given, fix):
    with pytest.raises(TypeError, match=fix):
        layer(given(draw(3, 5)))


def test_array_protocol(draw, layer):
    x = draw(3, 5)

    class Table:
        def __array__(self, dtype=None, copy=None):
            return x

    np.testing.assert_array_equal(layer(Table()), layer(x))
    np.testing.assert_array_equal(layer(memoryview(x)), layer(x))


def test_tables_and_labelled_arrays(draw, layer):
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    x = draw(3, 5)
    np.testing.assert_array_equal(layer(pandas.DataFrame(x)), layer(x))
    xarray = pytest.importorskip("xarray", reason="xarray is not installed")
    np.testing.assert_array_equal(layer(xarray.DataArray(x)), layer(x))


class TestTensors:
    @pytest.fixture(autouse=True)
    def torch(self):
        return pytest.importorskip("torch", reason="PyTorch is not installed (its CPU build is enough)")

    def test_are_read_where_they_lie(self, torch, draw, layer):
        """Without a copy: a stride of 0 over 4 GB that are not there."""
        x = torch.from_numpy(draw(1, 5)).expand(1 << 28, 5)[:: 1 << 26]
        np.testing.assert_array_equal(layer(x), layer(x.numpy()))
        assert np.shares_memory(fo._core.as_input(x, "x"), x.numpy())

    def test_lengths_and_states(self, torch, draw):
        gru, x, h = fo.GRU(draw(9, 4), draw(9, 3)), draw(5, 2, 4), draw(1, 2, 3)
        tensors = gru(torch.from_numpy(x), torch.from_numpy(h), lengths=torch.tensor([5, 2]))
        for y, expected in zip(tensors, gru(x, h, lengths=[5, 2])):
            np.testing.assert_array_equal(y, expected)

    @pytest.mark.parametrize(
        "options, fix",
        [
            (dict(dtype="float64"), r"pass x.float\(\)"),
            (dict(dtype="bfloat16"), r"BFloat16.*pass x.float\(\)"),
            (dict(requires_grad=True), r"pass x.detach\(\)"),
            (dict(device="meta"), "meta"),
        ],
    )
    def test_refused(self, torch, layer, options, fix):
        if "dtype" in options:
            options = dict(dtype=getattr(torch, options["dtype"]))
        with pytest.raises(TypeError, match=rf"^x .*{fix}"):
            layer(torch.ones(3, 5, **options))

    def test_slopes_that_require_grad(self, torch, draw):
        with pytest.raises(TypeError, match=r"^slopes .*pass slopes.detach\(\)"):
            fo.Linear(draw(4, 5), activation=("prelu", torch.ones(4, requires_grad=True)))

    def test_weights_that_require_grad(self, torch):
        with pytest.raises(TypeError, match=r"pass w.detach\(\)"):
            fo.Linear(torch.nn.Linear(4, 3).weight)

    def test_out(self, torch, draw, layer):
        y = torch.empty(3, 4)
        with pytest.raises(TypeError, match=r"pass out.numpy\(\)"):
            layer(draw(3, 5), out=y)

    def test_shapes_in_errors_are_tuples(self, torch, layer):
        with pytest.raises(ValueError, match=r"x has shape \(3, 6\)"):
            layer(torch.ones(3, 6))
