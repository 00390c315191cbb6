"""A batch in slices: the same bits as image by image, in less memory, and never where a step mixes the images."""

import copy
import functools

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnx")
from onnx.parser import parse_model
from torch import nn

import fusedops as fo
from fusedops.graph.ir.options import BuildOptions
from fusedops.graph.planner import batch_tiling
from torch_models import NETWORKS, exported


def small_cache(monkeypatch, nbytes=1):
    """Lets every step that can run in slices do so."""
    monkeypatch.setattr(batch_tiling, "CACHE_BYTES", nbytes)
    monkeypatch.setattr(batch_tiling, "MOST", np.inf)


@functools.cache
def fused(name):
    """(network, three images, their results one by one)."""
    _, x, source = exported(name)
    net, x = (
        fo.Model.built(source._source, BuildOptions()),
        np.concatenate([np.roll(x.numpy(), i, -1) for i in range(3)]),
    )
    return net, x, np.concatenate([net(image[np.newaxis]) for image in x])


def network(body, constants=""):
    head = '<ir_version: 8, opset_import: ["" : 17]> net (float[n, 4, 6] x) => (float[k, l, m] y)'
    return parse_model(f"{head} {constants} {{ {body} }}")


@pytest.mark.parametrize("nbytes", [pytest.param(1, marks=pytest.mark.thorough), 100_000])
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.thorough] * (i > 2)) for i, name in enumerate(NETWORKS)]
)
def test_bits_and_memory(name, nbytes, threads, monkeypatch):
    net, x, expected = fused(name)
    net = copy.copy(net)  # without plans, which may be of another number of threads
    memory = net.memory(x.shape)
    small_cache(monkeypatch, nbytes / threads)
    net = copy.copy(net)
    assert max(step.tiles for step in net._plan(x)[0].steps) > 1
    assert net.memory(x.shape) < memory
    for _ in range(2):
        np.testing.assert_array_equal(net(x), expected)


def test_pixels_that_stand_apart(monkeypatch):
    """Images of 1024 channels have the layout that the convolution after them wants, in slices too: at distances of
    16 floats more, for depthwise ones with short vectors."""
    net = nn.Sequential(
        nn.Conv2d(4, 1024, 1),
        nn.ReLU(),
        nn.Conv2d(1024, 1024, 3, padding=1, groups=1024),
        nn.ReLU(),
        nn.Conv2d(1024, 4, 1),
    )
    x = np.random.default_rng(0).standard_normal((4, 4, 5, 5), np.float32)
    net = fo.from_torch(net, torch.zeros(1, 4, 5, 5))
    expected = np.concatenate([net(image[np.newaxis]) for image in x])
    small_cache(monkeypatch)
    net = copy.copy(net)
    steps = net._plan(x)[0].steps
    assert {step.tiles for step in steps} == {4}
    assert {t.strides[-1] for step in steps for t in step.tensors() if t.shape[1] == 1024} == {
        1040,
        1024 + 16 * (fo.isa() != "avx512"),
    }
    np.testing.assert_array_equal(net(x), expected)


def test_large_images_run_in_slices_and_small_ones_at_once():
    """ResNet's first images are larger than a slice may be for eight of them, those after them are not."""
    net = nn.Sequential(nn.Conv2d(3, 32, 3, 2, 1), nn.MaxPool2d(2), nn.Conv2d(32, 32, 3, 2, 1), nn.ReLU())
    x = np.random.default_rng(0).standard_normal((8, 3, 224, 224), np.float32)
    net = fo.from_torch(net, torch.zeros(1, 3, 224, 224))
    found = [step.tiles for step in net._plan(x)[0].steps]
    assert found[0] > 1 and found[-1] == 1 and found == sorted(found, reverse=True)
    np.testing.assert_array_equal(net(x), np.concatenate([net(x[i : i + 1]) for i in range(8)]))


def test_more_images_than_memory_holds():
    """The number has no divisors to search for: it is refused at once."""
    net = fo.from_torch(nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3)), torch.zeros(1, 3, 64, 64))
    with pytest.raises(MemoryError, match="bytes for inputs of these shapes"):
        net.memory((2**31 - 1, 3, 64, 64))


MIXED = {  # what mixes the images, or lets an axis that is as long stand where they stood
    "transpose": "h = Exp(x) t = Transpose<perm=[1, 0, 2]>(h) y = Sqrt(t)",
    "reshape": "s = Constant<value_ints=[8, 4, 6]>() t = Transpose<perm=[2, 0, 1]>(x) r = Reshape(t, s) y = Exp(r)",
    "softmax": "h = Exp(x) y = Softmax<axis=0>(h)",
    "mean": "h = Exp(x) y = ReduceMean<axes=[0]>(h)",
    "gather": "i = Constant<value_ints=[5, 0, 3, 3, 1, 2, 7, 6]>() h = Exp(x) y = Gather<axis=0>(h, i)",
    "reverse": "a = Constant<value_ints=[-1]>() b = Constant<value_ints=[-9]>() c = Constant<value_ints=[0]>() "
    "h = Exp(x) r = Slice(h, a, b, c, a) y = Neg(r)",
    "first": "a = Constant<value_ints=[0]>() b = Constant<value_ints=[1]>() h = Exp(x) f = Slice(h, a, b, a) "
    "y = Add(h, f)",
    "concatenate": "h = Exp(x) g = Neg(x) y = Concat<axis=0>(h, g)",
    "product": "t = Transpose<perm=[1, 2, 0]>(x) u = Transpose<perm=[1, 0, 2]>(x) y = MatMul(t, u)",
    "constant": "y = Add(x, c)",
    "sequences": "l = Constant<value_ints=[4, 0, 3, 1, 2, 4, 3, 2]>() h = Exp(x) "
    "y = ReverseSequence<batch_axis=0, time_axis=1>(h, l)",
    "elements": "k = Constant<value_ints=[3]>() v, i = TopK<axis=1>(x, k) h = Exp(x) y = GatherElements<axis=1>(h, i)",
}


@pytest.mark.parametrize("case", MIXED)
def test_images_that_mix(case, monkeypatch):
    """Eight images of shape (4, 6); the unsliced network is the judge."""
    constants = "<float[8, 1, 1] c = {1, 2, 3, 4, 5, 6, 7, 8}>" if case == "constant" else ""
    x = np.random.default_rng(0).uniform(0.5, 1, (8, 4, 6)).astype(np.float32)
    net = fo.load_onnx(network(MIXED[case], constants))
    expected = net(x)
    small_cache(monkeypatch)
    net = copy.copy(net)
    assert any(step.tiles == 1 for step in net._plan(x)[0].steps)
    np.testing.assert_array_equal(net(x), expected)


@pytest.mark.parametrize(
    "body",
    [
        "h = Exp(x) t = Transpose<perm=[0, 2, 1]>(h) y = Softmax<axis=1>(t)",
        "h = Exp(x) a, b = Split<axis=1>(h) c = Concat<axis=2>(b, a) y = Mul(c, c)",
        "i = Constant<value_ints=[3, 0]>() h = Exp(x) y = Gather<axis=1>(h, i)",
        "t = Transpose<perm=[0, 2, 1]>(x) p = MatMul(x, t) y = Relu(p)",
    ],
)
def test_images_that_stay_apart(body, monkeypatch):
    x = np.random.default_rng(0).uniform(0.5, 1, (8, 4, 6)).astype(np.float32)
    small_cache(monkeypatch)
    net = fo.load_onnx(network(body))
    assert {step.tiles for step in net._plan(x)[0].steps} == {8}
    np.testing.assert_array_equal(net(x), np.concatenate([net(image[np.newaxis]) for image in x]))


def test_few_slices_or_none(threads, monkeypatch):
    """The least divisor that is enough; where that is far too many, as for a prime number, the batch runs at once."""
    monkeypatch.setattr(batch_tiling, "CACHE_BYTES", 4 * 2 * 24 * 20 // threads)  # 20 images
    net = fo.load_onnx(network("y = Exp(x)"))
    found = {n: net._plan(np.ones((n, 4, 6), np.float32))[0].steps[0].tiles for n in (20, 40, 41, 49, 50)}
    assert found == {20: 1, 40: 2, 41: 1, 49: 7, 50: 5}
