"""Detectors of torchvision as networks: how many boxes there are only a call knows."""

import sys

import numpy as np
import pytest

import fusedops as fo

torch = pytest.importorskip("torch", reason="PyTorch is not installed (its CPU build is enough)")

from fusedops.graph.frontends.torch import export, verify
from fusedops.graph.frontends.torch.detector_ops import without_decisions


class Called(torch.nn.Module):
    """A module that is a function of tensors."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *inputs):
        return self.function(*inputs)


@pytest.fixture
def exported(monkeypatch):
    """Torch's graph export alone."""

    def none(*_):
        raise export.Unsupported("tracing was needed")

    monkeypatch.setattr(export, "_traced", none)


@pytest.fixture
def ops():
    return pytest.importorskip("torchvision.ops", reason="torchvision is not installed")


def some_boxes(n, seed=0):
    r = torch.Generator().manual_seed(seed)
    begin, size = torch.rand(n, 2, generator=r) * 50, torch.rand(n, 2, generator=r) * 20 + 1
    return torch.cat([begin, begin + size], 1), torch.rand(n, generator=r), torch.randint(0, 3, (n,), generator=r)


def test_places_that_values_choose(exported):
    """torch.where of a condition alone; their number is a size of what is computed of them."""

    def chosen(x):
        rows, columns = torch.where(x > 0)
        return rows, columns * 2, x[x > 0].unsqueeze(1).expand(-1, 3).reshape(-1)

    x = torch.randn(4, 5, generator=torch.Generator().manual_seed(0))
    net, expected = fo.from_torch(Called(chosen), (x,)), chosen(x)
    for y, right in zip(net(x.numpy()), expected, strict=True):
        np.testing.assert_array_equal(y, right.numpy())


@pytest.mark.parametrize("n", [30, 1200])
def test_batched_nms(ops, exported, n):
    """On both sides of the number of boxes from which torchvision computes it otherwise."""
    boxes, scores, labels = some_boxes(n)

    def kept(boxes, scores, labels):
        keep = ops.boxes.batched_nms(boxes, scores, labels, 0.4)
        return boxes[keep], scores[keep], labels[keep]

    before = ops.boxes.batched_nms
    net = fo.from_torch(Called(kept), (boxes, scores, labels))
    assert ops.boxes.batched_nms is before
    for seed in (0, 1):
        given = some_boxes(n, seed)
        for y, right in zip(net(*(x.numpy() for x in given)), kept(*given), strict=True):
            np.testing.assert_array_equal(y, right.numpy())


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("ratio", [-1, 2])
def test_roi_align(ops, exported, aligned, ratio):
    images = torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    boxes = some_boxes(4)[0] / 5

    def pooled(images, boxes):
        return ops.roi_align(images, [boxes, boxes + 1], (3, 2), 0.9, ratio, aligned)

    y = fo.from_torch(Called(pooled), (images, boxes))(images.numpy(), boxes.numpy())
    np.testing.assert_allclose(y, pooled(images, boxes).numpy(), rtol=1e-4, atol=1e-5)


def test_without_torchvision(monkeypatch):
    monkeypatch.delitem(sys.modules, "torchvision.ops.boxes", raising=False)
    with without_decisions(torch):
        pass


def test_boxes_in_another_order():
    """Rows of all results belong together; those of nearly equal scores come in any order."""
    boxes, scores = np.arange(400, dtype=np.float32).reshape(100, 4), np.linspace(1, 0.5, 100, dtype=np.float32)
    labels = np.arange(100)
    order = np.r_[1, 0, np.arange(2, 100)]
    rows = [boxes, scores, labels]
    assert verify._missing_rows([a[order] for a in rows], rows, 1e-3) == (0, 100)
    assert verify._missing_rows([boxes[order], scores, labels], rows, 1e-3) == (2, 100)
    assert verify._missing_rows([boxes, scores, labels + (labels == 7)], rows, 1e-3) == (1, 100)
    assert verify._missing_rows([a[:97] for a in rows], rows, 1e-3) == (3, 100)
    assert verify._missing_rows([boxes, scores[:97], labels], rows, 1e-3) == (100, 100)
    assert verify._missing_rows([a[:0] for a in rows], [a[:0] for a in rows], 1e-3) == (0, 0)


def test_a_wrong_selection_is_found(ops, monkeypatch):
    """Boxes that another overlap keeps are not what the module keeps."""
    boxes, scores, _ = some_boxes(200)
    module = Called(lambda boxes, scores: boxes[ops.nms(boxes, scores, 0.5)])
    readers = export.aten.READERS
    right = readers["torchvision::nms"]
    monkeypatch.setitem(readers, "torchvision::nms", lambda p, dets, scores, iou_threshold: right(p, dets, scores, 0.1))
    monkeypatch.setattr(export, "_traced", lambda *_: (_ for _ in ()).throw(export.Unsupported("")))
    with pytest.raises(ValueError, match="rows are in none of its results"):
        fo.from_torch(module, (boxes, scores))


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["retinanet_resnet50_fpn", "ssd300_vgg16", "fasterrcnn_resnet50_fpn"])
def test_detectors(name):
    """As they come, with random weights."""
    detection = pytest.importorskip("torchvision.models.detection", reason="torchvision is not installed")
    torch.manual_seed(0)
    module, image = getattr(detection, name)(weights=None, weights_backbone=None).eval(), torch.rand(3, 320, 320)
    net = fo.from_torch(module, ([image],))
    with torch.no_grad():
        (expected,) = module([image])
    missing, rows = verify._missing_rows(net(image.numpy()), [v.numpy() for v in expected.values()], 1e-3)
    assert missing <= 0.02 * rows
