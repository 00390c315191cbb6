"""Runs a network over many images on a local Dask cluster: worker processes with one kernel thread each, the network
sent to each once.

    python examples/dask_batch.py MODEL.onnx --images 512 --workers 4

MODEL is an .onnx file or what model.save() wrote. Needs pip install -e '.[dask,onnx]'.
"""

import argparse
import time

import dask.array as da
import numpy as np
from dask.distributed import Client, LocalCluster, progress, wait

import fusedops as fo


def one_thread():
    """A worker has a core of its own: its kernels need no more."""
    fo.set_num_threads(1)


def classify(block, network):
    return network(np.ascontiguousarray(block))


def batch(client, model, images):
    """The network's output for a dask array of images, lazily; each chunk is a batch."""
    client.run(one_thread)
    # The weights travel once to each worker, not with each task. A key of their own, not their content's: the scheduler
    # would drop them with what an earlier call lets go, and cancel the tasks.
    network = client.scatter(model, broadcast=True, hash=False)
    width = model(images[:1].compute()).shape[1]
    return da.map_blocks(
        classify, images, network, dtype=np.float32, drop_axis=(2, 3), chunks=(images.chunks[0], (width,))
    )


def best_classes(client, model, images):
    """The class of each image, and the seconds that all took; meanwhile the terminal has a progress bar."""
    classes = batch(client, model, images).argmax(axis=1)
    start = time.perf_counter()
    classes = classes.persist()
    progress(classes, notebook=False, interval="20ms")
    return classes.compute(), time.perf_counter() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--images", type=int, default=512)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    model = fo.load_onnx(options.model) if options.model.endswith(".onnx") else fo.load(options.model)
    shape = options.images, *model.inputs[0].shape[1:]
    images = da.random.default_rng(0).standard_normal(shape, dtype=np.float32, chunks=(options.batch, -1, -1, -1))
    with LocalCluster(n_workers=options.workers, threads_per_worker=1) as cluster, Client(cluster) as client:
        images = images.persist()
        wait(images)
        batch(client, model, images).compute()  # starts the workers: each unpacks the network and plans its memory
        classes, seconds = best_classes(client, model, images)
    print(
        f"\n{options.images} images on {options.workers} workers in {seconds:.2f} s: {options.images / seconds:.0f} a "
        f"second; "
        f"{len(np.unique(classes))} classes seen"
    )


if __name__ == "__main__":
    main()
