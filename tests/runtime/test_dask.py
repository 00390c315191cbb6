"""Batch inference on a real Dask cluster of worker processes."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("dask.array")
distributed = pytest.importorskip("distributed")
pytest.importorskip("onnx")
pytest.importorskip("torch")
import dask.array as da

import fusedops as fo
from torch_models import build

EXAMPLE = Path(__file__).parents[2] / "examples" / "dask_batch.py"


@pytest.mark.thorough
@pytest.mark.parametrize("saved", [False, True], ids=["in-memory", "saved"])
def test_equal_results_on_a_local_cluster(saved, tmp_path, capsys):
    spec = importlib.util.spec_from_file_location("dask_batch", EXAMPLE)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    module, x = build("mobilenet_v2")
    model = fo.from_torch(module, x)
    if saved:
        model.save(tmp_path / "network.fo")
        model = fo.load(tmp_path / "network.fo")
    images = np.random.default_rng(0).standard_normal((14, 3, 64, 64), np.float32)
    local = dict(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None)
    with distributed.LocalCluster(**local) as cluster, distributed.Client(cluster) as client:
        client.upload_file(str(EXAMPLE))
        chunks = da.from_array(images, chunks=(4, 3, 64, 64))
        y = example.batch(client, model, chunks).compute()
        classes, seconds = example.best_classes(client, model, chunks)
        assert set(client.run(fo.get_num_threads).values()) == {1}
    np.testing.assert_array_equal(y, model(images))
    np.testing.assert_array_equal(classes, y.argmax(axis=1))
    assert seconds > 0 and "100% Completed" in capsys.readouterr().out
