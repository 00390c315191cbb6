"""What ``fusedops bench`` measures, and its table, plot and JSON file."""

import json
import os
import platform
import zipfile
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path
from time import perf_counter, thread_time

import numpy as np

from .. import load, load_onnx, load_tflite, runtime
from .._internal.mmap_arrays import opened
from .._internal.timing import BUSY, Shown, Summary, batch_time, interleaved
from ..graph.runtime.profiler import benchmark
from .workloads import BASELINES, VARIANTS, WORKLOADS, build

_LISTED = 8  # names of arrays in an error
COLORS = {
    "numpy": "#bbbbbb",
    "unfused": "#8da0cb",
    "folded": "#66c2a5",
    "fused": "#d95f02",
    "block": "#7a3803",
    "float32 unfused": "#66c2a5",
    "float32": "#d95f02",
    "bfloat16": "#e6ab02",
    "int8 unfused": "#8da0cb",
    "int8 fused": "#1b9e77",
}


def instructions():
    """The instruction set, and what multiplies bytes with it, for tables."""
    return f"{runtime.isa()}, int8 by {runtime.int8_products()}"


def processor():
    """The processor's model and how many threads may run, for tables. A virtual machine may hide the name's end, so
    that the family and the model's number tell its generation."""
    facts = {}
    try:
        with open("/proc/cpuinfo") as f:
            for line in takewhile(str.strip, f):
                key, _, value = line.partition(":")
                facts[key.strip()] = value.strip()
    except OSError:
        pass  # not Linux
    model = facts.get("model name") or platform.processor() or platform.machine()
    if {"cpu family", "model"} <= facts.keys():
        model += f" (family {facts['cpu family']}, model {facts['model']})"
    return f"{model}, {os.cpu_count()} logical processors"


def caches():
    """The first processor's caches, as Linux tells of them."""
    found = []
    for folder in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        level, kind, size = ((folder / name).read_text().strip() for name in ("level", "type", "size"))
        found.append(f"L{level}{kind[0].lower() if kind != 'Unified' else ''} {size.removesuffix('K')} KB")
    return ", ".join(found) or "unknown"


@contextmanager
def _conditions(threads):
    """The same number of threads for fusedops and for NumPy's BLAS; yields a progress display."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
    from threadpoolctl import threadpool_limits

    before = runtime.get_num_threads()
    runtime.set_num_threads(threads)
    columns = TextColumn("{task.description:30}"), BarColumn(), TimeElapsedColumn()
    try:
        with threadpool_limits(threads, user_api="blas"), Progress(*columns, console=Console(stderr=True)) as progress:
            yield progress
    finally:
        runtime.set_num_threads(before)


def _task(progress, title):
    """A new line of the display, as a function that is told what part is done."""
    task = progress.add_task(title, total=1.0)
    return lambda done: progress.update(task, completed=done)


def _heading(threads):
    return {
        "fusedops": runtime.version(),
        "numpy": np.__version__,
        "processor": processor(),
        "isa": runtime.isa(),
        "threads": threads,
    }


def measure(threads, quick=False):
    """Times all workloads with a progress display; everything as the dict that --json writes."""
    results, seconds = {}, 0.65 if quick else 5.0
    # On a busy machine every sample of a long call has time slices of other programs in it.
    clock = thread_time if threads == 1 else perf_counter
    with _conditions(threads) as progress:
        for name, workload in WORKLOADS.items():
            times = interleaved(build(name), seconds, clock=clock, progress=_task(progress, workload.title))
            results[name] = {"title": workload.title, "ms": {variant: s.as_dict() for variant, s in times.items()}}
    return {**_heading(threads), "workloads": results}


def table(results):
    """Writes the execution times, with speed-ups over the unfused path or, next to int8, over fused float32."""
    shown = _shown(results)
    lines, before = [shown.heading, setting(results)], None
    for workload in results["workloads"].values():
        baseline = _baseline(workload)
        if baseline != before:
            titles = "".join(f"{name:>9}" for name in shown.columns)
            lines += ["", f"{'ms':17}{titles}{'vs ' + VARIANTS[baseline]:>18}"]
            before = baseline
        lines.append(workload["title"])
        for (variant, summary), speed in zip(workload["ms"].items(), _speeds(workload, shown), strict=True):
            ms = summary[shown.compared]
            decimals = 3 if ms >= 10 else 4 if ms >= 0.1 else 6
            times = "".join(f"{summary[name]:9.{decimals}f}" for name in shown.columns)
            lines.append(f"  {VARIANTS[variant]:15}{times}{f'{speed:.2f}x':>18}")
    lines += [
        "",
        f"vs: speed-up by the {shown.compared} column.",
        "unfused: each operation is a pass over memory. folded only: batch norm and",
        "bias are in the kernel, the rest are passes. fused: all in one kernel, of",
        "blocks one for each layer. fused block: one for all layers, where that pays.",
        "int8 unfused: dequantize, compute, activate and quantize, each a pass.",
        "Shapes: figure 4 of the TVM paper (batch 1, stride 1, padding 1 for 3x3 and",
        "128 inputs are our assumptions), WeeNet, and blocks of MobileNet V1 and V2.",
        "int8 and the float32 next to it have channels last.",
    ]
    if results["threads"] == 1:
        lines.append("Times are processor time, without the time slices of other programs.")
    return "\n".join(lines)


def _shown(results):
    return Shown.of(Summary(**ms) for workload in results["workloads"].values() for ms in workload["ms"].values())


def _baseline(workload):
    """Chooses the variant that the others are compared with."""
    return next(name for name in BASELINES if name in workload["ms"])


def _speeds(workload, shown):
    """Divides the baseline's time by that of each variant."""
    baseline = workload["ms"][_baseline(workload)][shown.compared]
    return [baseline / summary[shown.compared] for summary in workload["ms"].values()]


def setting(results):
    threads = results["threads"]
    return f"{results['processor']}, {results['isa']}, {threads} thread{'s' * (threads > 1)}"


def write_json(results, path):
    with open(path, "w") as f:
        json.dump(results, f, indent=2)
        f.write("\n")


def check_picture(path):
    """A ValueError where matplotlib cannot draw a file of this name."""
    import matplotlib.backend_bases

    kinds = matplotlib.backend_bases.FigureCanvasBase.get_supported_filetypes()
    ending = os.path.splitext(path)[1][1:].lower()
    if ending and ending not in kinds:
        known = ", ".join(sorted(kinds))
        raise ValueError(f"{path!r}: pictures of the kind {ending!r} cannot be drawn; known are {known}")


def plot(results, path):
    """Draws the speed of each variant relative to the baseline, as in figure 4 of the TVM paper."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    shown, parts = _shown(results), {}
    for w in results["workloads"].values():
        parts.setdefault(tuple(w["ms"]), []).append(w)
    rows = list(parts.values())
    figure, axes = plt.subplots(len(rows), figsize=(9, 3.4 * len(rows)), layout="constrained", squeeze=False)
    for axis, part in zip(axes.flat, rows, strict=True):
        _bars(axis, part, shown)
    figure.suptitle(f"{setting(results)}, compared by the {shown.compared}", fontsize=9)
    _save(figure, path)


def _bars(axes, workloads, shown):
    """Draws a bar for each variant of the workloads, which all have the same ones."""
    variants = list(workloads[0]["ms"])
    width = 0.8 / len(variants)
    speeds = zip(*(_speeds(w, shown) for w in workloads), strict=True)
    for i, (variant, speed) in enumerate(zip(variants, speeds, strict=True)):
        at = np.arange(len(speed)) + (i - (len(variants) - 1) / 2) * width
        bars = axes.bar(at, speed, width, label=VARIANTS[variant], color=COLORS[variant])
        axes.bar_label(bars, fmt="%.2f", fontsize=7)
    axes.set_xticks(range(len(workloads)), [w["title"].replace(" ", "\n", 1) for w in workloads], fontsize=8)
    axes.axhline(1, color="black", linewidth=0.5)
    axes.set_ylabel(f"speed, {VARIANTS[_baseline(workloads[0])]} = 1")
    axes.margins(y=0.2)
    axes.legend(ncols=len(variants), fontsize=8, frameon=False, loc="upper center")
    axes.spines[["top", "right"]].set_visible(False)


def network(path, disabled_passes=(), precision=None):
    """The network of an ONNX or TFLite file, or of one that ``model.save`` wrote."""
    with opened(path) as f:
        if not f.seekable():
            raise ValueError(f"{path} is a pipe, and this reads a file more than once: write it to a file first")
        start = f.read(8)
    saved = start[:2] == b"PK"
    if saved and disabled_passes:
        raise ValueError(f"{path} was saved after the passes: leave them out when the file of the network is loaded")
    if saved and precision:
        raise ValueError(f"{path} was saved with its precision: choose it when the file of the network is loaded")
    if saved:
        return load(path)
    reader = load_tflite if start[4:] == b"TFL3" or str(path).endswith(".tflite") else load_onnx
    return reader(path, disabled_passes=disabled_passes, **({"precision": precision} if precision else {}))


def measure_network(path, threads, sizes, quick=False, disabled_passes=(), precision=None):
    """Times a network's file on random inputs: ``(Benchmark, Profile, dict for --json)``.

    `sizes` are those of the dimensions that have names.
    """
    model = network(path, disabled_passes, precision)
    names = {n for value in model.inputs for n in value.dimensions() or () if isinstance(n, str)}
    if unknown := set(sizes) - names:
        raise ValueError(
            f"no dimension of the network has the name {min(unknown)!r}; these have names: "
            f"{', '.join(sorted(names)) or 'none'}"
        )
    arrays = [random_input(value, sizes) for value in model.inputs]
    _try(model, arrays, names - set(sizes))
    with _conditions(threads) as progress:
        call = batch_time(lambda: model(*arrays), 1)
        number = min(max(1, round(2e-3 / call)), 10)  # of calls in a sample: short ones, some of which nothing disturbs
        repeat = max(5, 10 // number) if quick else max(20, 100 // number)
        times = model.benchmark(*arrays, number=number, repeat=repeat, progress=_task(progress, "network"))
        profile = model.profile(*arrays)
    shapes = {value.name: x.shape for value, x in zip(model.inputs, arrays, strict=True)}
    heading = {**_heading(threads), "network": str(path), "inputs": shapes}
    return times, profile, {**heading, "ms": times.as_dict(), **profile.as_dict()}


def disturbed(times, profile):
    """Tells of other work where even the network's least time is far above its nodes'; says nothing where it is not."""
    nodes = sum(node.ms for node in profile.layers)
    if times.min < BUSY * nodes + 0.1:  # a call has its own microseconds
        return ""
    return (
        f"The machine is busy: the network's least time of {times.min:.1f} ms is {times.min / nodes:.1f} times "
        f"{nodes:.1f} ms, the sum of its nodes' least times"
    )


def _try(model, arrays, unsized):
    """A first call; where it fails, the error names the dimensions that were taken for 1."""
    try:
        model(*arrays)
    except ValueError as e:
        if not unsized:
            raise
        raise ValueError(
            f"{e}. These dimensions were taken for 1; give their sizes, as in --dim {min(unsized)}=N: "
            f"{', '.join(sorted(unsized))}"
        ) from e


def quantize_network(path, samples, threads, **options):
    """(a network's file, the same in int8, the first of the samples of a file on which it was calibrated)."""
    model = network(path)
    found = read_samples(samples, model.inputs)
    with _conditions(threads) as progress:
        small = model.quantize(found, progress=_task(progress, f"{len(found)} samples"), **options)
    return model, small, [found[0][v.name] for v in model.inputs]


def time_quantized(model, small, arrays, threads):
    """A network in float32 and in int8 side by side, as text."""
    with _conditions(threads) as progress:
        forms = {"float32": model, "int8": small}
        times = benchmark(forms, arrays, number=3, repeat=10, progress=_task(progress, "network"))
    compared = Shown.of(times.times.values()).compared
    before, after = (getattr(s, compared) for s in times.times.values())
    predicted = small.explain().quantized.network_gain
    beside = "" if predicted is None else f"; predicted were {predicted:.2f} times"
    return f"{times}\nint8: {before / after:.2f} times as fast as float32, by the {compared} column{beside}"


def read_samples(path, inputs):
    """The samples of a file as a list of dicts: an array for each input by its name, or for the only input one of any
    name. Along the first axis are samples, or as many images as the network takes at once: one where that is open."""
    try:
        with open(path, "rb") as f:
            found = np.load(f, allow_pickle=False)
            arrays = {inputs[0].name: found} if isinstance(found, np.ndarray) else dict(found)
            if not all(isinstance(a, np.ndarray) for a in arrays.values()):
                raise ValueError("it has members that are not arrays")
    except (ValueError, EOFError, zipfile.BadZipFile) as e:
        raise ValueError(f"{path} is not an array of NumPy, .npy or .npz, or a damaged one: {e}") from None
    if len(arrays) == len(inputs) == 1:
        arrays = {inputs[0].name: next(iter(arrays.values()))}
    _check_names(path, list(arrays), [v.name for v in inputs])
    cut = {v.name: _cut(v, _narrowed(v, arrays[v.name])) for v in inputs}
    counts = {name: len(parts) for name, parts in cut.items()}
    if len(set(counts.values())) > 1:
        raise ValueError(
            f"{path} has not as many samples of each input: "
            + ", ".join(f"{n} of {name}" for name, n in counts.items())
        )
    return [dict(zip(cut, parts, strict=True)) for parts in zip(*cut.values(), strict=True)]


def _check_names(path, given, taken):
    """Refuses arrays that are not those of the network's inputs."""
    if set(given) == set(taken):
        return
    if "header" in given:
        raise ValueError(f"{path} is a saved network, not samples: arrays for {', '.join(taken)}")
    more = f" and {len(given) - _LISTED} more" if len(given) > _LISTED else ""
    there = ", ".join(given[:_LISTED]) + more
    raise ValueError(f"{path} has the arrays {there}, but the network takes {', '.join(taken)}")


def _narrowed(value, array):
    """An array of float64, which is what NumPy makes of numbers, as the float32 that the network takes."""
    return array.astype(np.float32) if array.dtype == np.float64 and value.dtype == np.float32 else array


def _cut(value, array):
    """The samples of an array: what the network's input takes, one after another."""
    if not array.ndim:
        raise ValueError(f"{value.name} is a single number: samples are along the first axis of an array")
    if value.shape is None or array.ndim == len(value.shape) + 1:
        return list(array)
    n = value.shape[0] if value.shape and isinstance(value.shape[0], int) else 1
    if len(array) % max(n, 1):
        raise ValueError(
            f"{value.name} has shape {array.shape}, but the network takes {n} at once: its first axis "
            f"must be a multiple of that"
        )
    return [array[i : i + n] for i in range(0, len(array), max(n, 1))]


def random_input(value, sizes):
    """Normal numbers, or zeros where the network takes integers: indices as a rule. A dimension without a size is 1."""
    if value.shape is None:
        raise ValueError(f"the network does not say what shape its input {value.name} has")
    shape = [sizes.get(n, 1) if isinstance(n, str) else n for n in value.dimensions()]
    if value.dtype != np.float32:
        return np.zeros(shape, value.dtype)
    return np.random.default_rng(0).standard_normal(shape, np.float32)


def plot_network(profile, results, path):
    """Bars of each node's time, fused beside unfused, and the nodes under the machine's roofline."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (bars, roof) = plt.subplots(1, 2, figsize=(13, 4.5), layout="constrained", width_ratios=(3, 2))
    at, layers = np.arange(len(profile.layers)), profile.layers
    if all(n.unfused_ms is not None for n in layers):
        bars.bar(at - 0.2, [n.unfused_ms for n in layers], 0.4, label="unfused", color=COLORS["unfused"])
    bars.bar(at + 0.2, [n.ms for n in layers], 0.4, label="fused", color=COLORS["fused"])
    bars.set(ylabel="ms", xlabel="node, in the order in which they run")
    bars.set_xticks(at[:: max(1, len(at) // 12)])
    bars.legend(frameon=False)

    dots = [(n.gflop * 1e9 / n.bytes, n.gflop / n.ms * 1e3) for n in layers if n.gflop]
    intensity = np.geomspace(0.1, max(2 * profile.peak / profile.bandwidth, *(d[0] for d in dots), 1) * 2, 200)
    roof.plot(intensity, np.minimum(profile.peak, intensity * profile.bandwidth), color="black", linewidth=1)
    roof.scatter([d[0] for d in dots], [d[1] for d in dots], s=14, color=COLORS["fused"])
    roof.set(
        xscale="log",
        yscale="log",
        xlabel="operations a byte of inputs, weights and results",
        ylabel="GFLOP/s",
        title=f"roof: {profile.peak:.0f} GFLOP/s, {profile.bandwidth:.0f} GB/s",
    )
    figure.suptitle(f"{os.path.basename(results['network'])}: {setting(results)}", fontsize=10)
    for axes in (bars, roof):
        axes.spines[["top", "right"]].set_visible(False)
    _save(figure, path)


def _save(figure, path):
    import matplotlib.pyplot as plt

    figure.savefig(path, dpi=110)
    plt.close(figure)
