"""The measurement behind ``fusedops bench``, and its table, plot and JSON file."""
import json
import os
import platform

import numpy as np

from . import __version__, runtime
from .timing import Summary, interleaved
from .workloads import VARIANTS, WORKLOADS, build


def processor():
    """The processor's model and how many threads may run, for tables."""
    model = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo") as f:
            model = next((line.split(":", 1)[1].strip() for line in f if line.startswith("model name")), model)
    except OSError:
        pass  # not Linux
    return f"{model}, {os.cpu_count()} logical processors"


def measure(threads, quick=False):
    """Times all workloads with a progress display; everything as the dict that --json writes."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
    from threadpoolctl import threadpool_limits

    before = runtime.get_num_threads()
    runtime.set_num_threads(threads)
    results = {}
    columns = TextColumn("{task.description:26}"), BarColumn(), TimeElapsedColumn()
    try:
        with threadpool_limits(threads, user_api="blas"), Progress(*columns, console=Console(stderr=True)) as progress:
            for name, workload in WORKLOADS.items():
                task = progress.add_task(workload.title, total=1.0)
                times = interleaved(build(name), 1.2 if quick else 6.0, progress=lambda done, task=task: progress.update(task, completed=done))
                results[name] = {"title": workload.title, "ms": {variant: summary.as_dict() for variant, summary in times.items()}}
    finally:
        runtime.set_num_threads(before)
    return {"fusedops": __version__, "numpy": np.__version__, "processor": processor(), "isa": runtime.isa(), "threads": threads,
            "workloads": results}


def table(results):
    """The execution times, with the speed-up of each step over the line above and over the unfused path."""
    lines = ["Execution time summary, ms", _setting(results), "",
             f"{'':13}" + "".join(f"{name:>9}" for name in Summary._fields) + f"{'step':>8}{'vs unfused':>12}"]
    for workload in results["workloads"].values():
        lines.append(workload["title"])
        above, unfused = None, workload["ms"]["unfused"]["median"]
        for variant, label in VARIANTS.items():
            summary = workload["ms"][variant]
            median = summary["median"]
            decimals = 3 if median >= 10 else 4 if median >= 0.1 else 6
            step = "" if above is None else f"{above / median:.2f}x"
            lines.append(f"  {label:11}" + "".join(f"{ms:9.{decimals}f}" for ms in summary.values())
                         + f"{step:>8}{f'{unfused / median:.2f}x':>12}")
            above = median
    lines += ["", "step: speed-up of the median over the line above; vs unfused: over the unfused path.",
              "Shapes: figure 4 of the TVM paper (batch 1, stride 1, padding 1 for 3x3 and",
              "128 inputs are our assumptions), and WeeNet."]
    return "\n".join(lines)


def _setting(results):
    threads = results["threads"]
    return f"{results['processor']}, {results['isa']}, {threads} thread{'s' * (threads > 1)}"


def write_json(results, path):
    with open(path, "w") as f:
        json.dump(results, f, indent=2)
        f.write("\n")


def plot(results, path):
    """Speed of each variant relative to the unfused path, as in figure 4 of the TVM paper."""
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    workloads = results["workloads"].values()
    figure, axes = plt.subplots(figsize=(9, 3.6), layout="constrained")
    colors = {"numpy": "#bbbbbb", "unfused": "#8da0cb", "folded": "#66c2a5", "fused": "#d95f02"}
    width = 0.8 / len(VARIANTS)
    for i, (variant, label) in enumerate(VARIANTS.items()):
        speed = [w["ms"]["unfused"]["median"] / w["ms"][variant]["median"] for w in workloads]
        at = np.arange(len(speed)) + (i - (len(VARIANTS) - 1) / 2) * width
        bars = axes.bar(at, speed, width, label=label, color=colors[variant])
        axes.bar_label(bars, fmt="%.2f", fontsize=7)
    axes.set_xticks(range(len(workloads)), [w["title"].replace(" ", "\n", 1) for w in workloads], fontsize=8)
    axes.axhline(1, color="black", linewidth=0.5)
    axes.set_ylabel("speed, unfused = 1")
    axes.set_title(_setting(results), fontsize=9)
    axes.margins(y=0.2)
    axes.legend(ncols=len(VARIANTS), fontsize=8, frameon=False, loc="upper center")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=110)
    plt.close(figure)
