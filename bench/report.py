"""Measures with ``pytest bench`` and draws what came of it: ``python -m bench.report``, from the top of a checkout.

Writes fusion.png, peers.png, roofline.png, sizes.png, scaling.png, and index.html with the pictures inside, which opens
anywhere. The pictures come from one run, run.json; a run that is there already is drawn again with ``--run FILE``.
"""

import argparse
import base64
import contextlib
import html
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np

from fusedops.report import COLORS, instructions, processor
from fusedops.timing import BUSY
from fusedops.workloads import VARIANTS

from .cases import CASES
from .peers import PEERS

DOCS = Path(__file__).resolve().parent.parent / "docs"
PICTURES = {
    "fusion": "What fusion buys: speed over the unfused path. The same kernels, with batch norm, activation and gates "
    "as passes of their own; or with the batch norm folded into the weights alone; or all in one kernel.",
    "peers": "Time of a peer over ours: above 1, fusedops is faster. The same weights and threads everywhere, every "
    "result compared first; TVM's kernels are not tuned.",
    "roofline": "How near the machine's limits: each dot an operation, a line to the same operation unfused. The roofs "
    "are measured, the bandwidths by passes over so many bytes. Operations of a Winograd convolution are "
    "counted for the direct one, which it beats.",
    "sizes": "Speed over sizes.",
    "scaling": "What more threads buy, and larger batches.",
}
LABELS = {name: peer.label for name, peer in PEERS.items()}
TABLES = {  # the title of a kind of benchmark, what differs within a row, and how that is called
    "operation": ("Fusion", "variant", VARIANTS),
    "block": ("Blocks of MobileNet", "variant", VARIANTS),
    "eight_bits": ("8 bits", "variant", VARIANTS),
    "network": ("Networks", "variant", VARIANTS),
    "file": ("Networks of ONNX files", "variant", VARIANTS),
    "peer": ("Peers", "peer", LABELS),
}
FAMILIES = {
    "conv": ("convolution", "#d95f02"),
    "dw": ("depthwise", "#1b9e77"),
    "separable": ("block", "#7570b3"),
    "inverted": ("block", "#7570b3"),
    "linear": ("linear", "#e7298a"),
    "rnn": ("recurrent", "#4477aa"),
    "lstm": ("recurrent", "#4477aa"),
    "gru": ("recurrent", "#4477aa"),
    "attention": ("attention", "#a6761d"),
}


def measure(path, options):
    """Runs the suite with a progress display; writes its JSON file."""
    import pytest
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    class Told:
        """A pytest plugin that moves the display on."""

        def pytest_collection_finish(self, session):
            self.task = display.add_task("", total=len(session.items))

        def pytest_runtest_logstart(self, nodeid):
            display.update(self.task, description=nodeid.rpartition("::")[2])

        def pytest_runtest_logfinish(self):
            display.advance(self.task)

    arguments = [
        str(Path(__file__).parent),
        f"--threads={options.threads}",
        f"--benchmark-json={path}",
        "-p",
        "no:cacheprovider",
        *([f"--networks={options.networks}"] if options.networks else []),
    ]
    log = path.with_suffix(".txt")
    columns = BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}")
    display = Progress(*columns, console=Console(stderr=True))
    with display, log.open("w") as file, contextlib.redirect_stdout(file):
        status = pytest.main(arguments + ["--quick"] * options.quick, plugins=[Told()])
    if status:
        sys.exit(f"bench.report: a benchmark failed; {log} has the details")


class Run:
    """The medians of a run, in seconds, by what they are of."""

    def __init__(self, file):
        self.all, self.roof = file["benchmarks"], file["roof"]
        self.date, commit = file["datetime"][:10], file["commit_info"]
        self.commit = commit["id"][:7] + "-dirty" * bool(commit.get("dirty"))
        machine = file["machine_info"]["fusedops"]
        self.processor, self.isa, self.threads = machine["processor"], machine["isa"], machine["threads"]
        self.versions = machine.get("versions", {})
        self.setting = f"{self.processor}, {self.isa}, {self.threads} thread{'s' * (self.threads > 1)}"
        apart = [b["stats"]["median"] >= BUSY * b["stats"]["min"] for b in self.all]
        self.disturbed = sum(apart) / max(len(apart), 1)  # the part of the rows that other work got in the way of

    def remark(self):
        """A sentence on a busy machine; empty where there was little else to do."""
        if self.disturbed < 0.05:
            return ""
        return f"Busy machine: {self.disturbed:.0%} of the medians are {BUSY} times the least time or more."

    def table(self, kind, row, column):
        """``{row: {column: (seconds, extra_info)}}`` of the benchmarks of a kind."""
        table = {}
        for b in self.all:
            info = b["extra_info"]
            if info["kind"] == kind:
                table.setdefault(info[row], {})[info[column]] = b["stats"]["median"], info
        return table


def fusion(run, plt):
    table = run.table("operation", "name", "variant") | run.table("network", "name", "variant")
    table = {n: v for n, v in table.items() if n in CASES and {"folded", "unfused"} <= v.keys()}
    figure, axes = plt.subplots(figsize=(8.5, 0.31 * len(table) + 0.9))
    for i, variants in enumerate(table.values()):
        shown = [v for v in ("folded", "fused", "block") if v in variants]
        height = 0.84 / len(shown)
        for k, variant in enumerate(shown):
            speed = variants["unfused"][0] / variants[variant][0]
            y = i + (k - (len(shown) - 1) / 2) * height
            axes.barh(y, speed, height, color=COLORS[variant])
            axes.text(speed, y, f" {speed:.2f}", va="center", fontsize=6.5 if len(shown) == 2 else 5.5)
    axes.set_yticks(range(len(table)), table, fontsize=8)
    axes.set(ylim=(len(table) - 0.4, -0.6), xlabel="speed, unfused = 1")
    axes.axvline(1, color="black", linewidth=0.6)
    handles = [plt.Rectangle((0, 0), 1, 1, color=COLORS[v]) for v in ("folded", "fused", "block")]
    axes.legend(
        handles, [VARIANTS[v] for v in ("folded", "fused", "block")], frameon=False, loc="lower right", fontsize=8
    )
    return figure


def peers(run, plt):
    """A table of ratios, in colours."""
    table = run.table("peer", "name", "peer")
    names = [n for n in CASES if "fusedops" in table.get(n, ())]
    columns = [p for p in PEERS if p != "fusedops" and any(p in table[n] for n in names)]
    ratios = np.array(
        [[table[n][p][0] / table[n]["fusedops"][0] if p in table[n] else np.nan for p in columns] for n in names]
    )
    figure, axes = plt.subplots(figsize=(2.6 + 0.8 * len(columns), 0.26 * len(names) + 1.1))
    axes.imshow(np.log2(ratios), cmap="RdYlGn", vmin=-2, vmax=2, aspect="auto")
    for (i, j), ratio in np.ndenumerate(ratios):
        if not np.isnan(ratio):
            axes.text(
                j,
                i,
                f"{ratio:.2f}" if ratio < 10 else f"{ratio:.0f}",
                ha="center",
                va="center",
                fontsize=7.5,
                color="white" if abs(np.log2(ratio)) > 1.6 else "black",
            )
    axes.set_xticks(range(len(columns)), [PEERS[p].label.replace(" ", "\n") for p in columns], fontsize=8)
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.tick_params(length=0, top=True, labeltop=True, bottom=False, labelbottom=False)
    axes.spines[:].set_visible(False)
    return figure


def roofline(run, plt):
    if not run.roof:
        return None
    table = {
        n: v
        for n, v in run.table("operation", "name", "variant").items()
        if "unfused" in v and n.startswith(tuple(FAMILIES))
    }
    figure, axes = plt.subplots(figsize=(8.5, 5))
    peak, bandwidth = run.roof["peak"], {int(size): rate for size, rate in run.roof["bandwidth"].items()}
    sizes = sorted(bandwidth)
    intensity = np.geomspace(0.3, 300, 200)
    for size, style in zip((sizes[0], sizes[2], sizes[-3], sizes[-1]), ("-", "--", "-.", ":"), strict=True):
        label = f"{size >> 20} MB" if size >= 1 << 20 else f"{size >> 10} KB"
        axes.plot(
            intensity,
            np.minimum(peak, intensity * bandwidth[size]),
            style,
            color="#666666",
            linewidth=1,
            label=f"{label}: {bandwidth[size]:.0f} GB/s",
        )
    labelled = set()
    for name, variants in table.items():
        family, color = FAMILIES[next(prefix for prefix in FAMILIES if name.startswith(prefix))]
        (seconds, info), unfused = variants.get("block", variants["fused"]), variants["unfused"][0]
        at, fused = info["flop"] / info["traffic"], info["flop"] / seconds * 1e-9
        axes.plot([at, at], [info["flop"] / unfused * 1e-9, fused], color=color, linewidth=0.8)
        axes.scatter(at, fused, s=20, color=color, label=None if family in labelled else family)
        labelled.add(family)
    axes.set(xscale="log", yscale="log", xlabel="operations a byte of inputs, weights and results", ylabel="GFLOP/s")
    axes.set_title(f"multiply-add peak: {peak:.0f} GFLOP/s", fontsize=9)
    axes.legend(frameon=False, fontsize=8, loc="lower right", ncols=2)
    return figure


def sizes(run, plt):
    figure, axes = plt.subplots(figsize=(8.5, 4.2))
    for sweep, points in run.table("size", "sweep", "size").items():
        axes.plot(
            list(points), [info["flop"] / seconds * 1e-9 for seconds, info in points.values()], marker=".", label=sweep
        )
    if run.roof:
        axes.axhline(run.roof["peak"], color="#666666", linewidth=0.8, linestyle="--", label="multiply-add peak")
    axes.set(xscale="log", xlabel="n, or the image's side", ylabel="GFLOP/s", ylim=(0, None))
    axes.set_xticks([4, 8, 16, 32, 64, 128, 256, 512, 1024], [4, 8, 16, 32, 64, 128, 256, 512, 1024])
    axes.minorticks_off()
    axes.legend(frameon=False, fontsize=8)
    return figure


def scaling(run, plt):
    figure, (threads, batches) = plt.subplots(1, 2, figsize=(10, 3.8))
    for name, points in run.table("threads", "name", "number").items():
        threads.plot(list(points), [points[1][0] / seconds for seconds, _ in points.values()], marker=".", label=name)
        counts = list(points)
    threads.plot(counts, counts, color="#666666", linewidth=0.8, linestyle="--", label="as many as threads")
    threads.set(xlabel="threads", ylabel="speed, one thread = 1", xticks=counts, ylim=(0, None))
    for name, points in run.table("batch", "name", "number").items():
        batches.plot(
            list(points), [n * points[1][0] / seconds for n, (seconds, _) in points.items()], marker=".", label=name
        )
        counts = list(points)
    batches.set(xlabel="batch", ylabel="speed an item, batch 1 = 1", xscale="log", ylim=(0, None))
    batches.set_xticks(counts, counts)
    batches.minorticks_off()
    for axes in (threads, batches):
        axes.legend(frameon=False, fontsize=8, loc="lower right" if axes is threads else "best")
    return figure


def draw(run, folder):
    """The pictures that the run has figures for: their paths by name."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    paths = {}
    for name in PICTURES:
        figure = globals()[name](run, plt)
        if figure is None:
            continue
        figure.set_layout_engine("constrained")
        figure.suptitle(run.setting, fontsize=9)
        for axes in figure.axes if name != "peers" else ():
            axes.spines[["top", "right"]].set_visible(False)
        paths[name] = folder / f"{name}.png"
        figure.savefig(paths[name], dpi=100)
        plt.close(figure)
    return paths


def page(run, pictures):
    """The HTML page: pictures inlined, then every median."""
    parts = [
        f"<!doctype html><html lang=en><meta charset=utf-8><title>fusedops: benchmarks</title><style>{STYLE}</style>",
        f"<h1>fusedops: benchmarks</h1><p>{html.escape(run.setting)}<p><b>{run.remark()}</b>",
    ]
    for name, path in pictures.items():
        data = base64.b64encode(path.read_bytes()).decode()
        parts.append(f"<h2>{name.capitalize()}</h2><p>{PICTURES[name]}")
        parts.append(f"<p><img alt='{name}' src='data:image/png;base64,{data}'>")
    for kind, (title, column, labels) in TABLES.items():
        parts.append(_table(f"{title}: median microseconds", run.table(kind, "name", column), labels))
    return "\n".join(parts) + "</html>\n"


STYLE = """
body { font: 15px sans-serif; max-width: 62em; margin: 2em auto; padding: 0 1em }
img { max-width: 100% }
table { border-collapse: collapse; font-size: 13px }
td, th { padding: 2px 9px; text-align: right }
th:first-child, td:first-child { text-align: left }
tr:nth-child(even) { background: #f3f3f3 }
"""


def _table(title, table, columns):
    columns = {key: label for key, label in columns.items() if any(key in row for row in table.values())}
    rows = [
        f"<tr><td>{name}" + "".join(f"<td>{1e6 * row[c][0]:.4g}" if c in row else "<td>" for c in columns)
        for name, row in table.items()
    ]
    head = "<tr><th>" + "".join(f"<th>{html.escape(label)}" for label in columns.values())
    return f"<h2>{title}</h2><table>{head}{''.join(rows)}</table>"


def published(path, processor, isa):
    """What a file of docs/figures has so far, or a ValueError if that is of another processor or instruction set."""
    file = json.loads(path.read_text()) if path.exists() else {"processor": processor, "isa": isa, "threads": {}}
    there, here = (f"{p}, {i}" for p, i in ((file["processor"], file["isa"]), (processor, isa)))
    if there != here:
        raise ValueError(
            f"{path.name} has figures of {there}, but these are of {here}: publish them by another "
            "name, or remove the file first"
        )
    return file


def publish(run, path):
    """The medians of a run in microseconds, with what they were measured on, into a file of docs/figures.

    They replace those of as many threads; the others of the file stay, with their date, commit and versions.
    """
    if run.processor != processor():
        raise ValueError(f"the run is of {run.processor}, but this is {processor()}: publish it where it was measured")
    file = published(path, run.processor, run.isa)
    file["peers"] = LABELS
    tables = {kind: run.table(kind, "name", column) for kind, (_, column, _) in TABLES.items()}
    file["threads"][str(run.threads)] = dict(date=run.date, commit=run.commit, versions=run.versions) | {
        kind: {
            name: {column: float(f"{1e6 * seconds:.4g}") for column, (seconds, _) in row.items()}
            for name, row in table.items()
        }
        for kind, table in tables.items()
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(file, indent=1) + "\n")


def _name(text):
    """Of a file of figures, as the marks of the pages may have it."""
    if not re.fullmatch(r"\w+", text):
        raise argparse.ArgumentTypeError(f"{text!r} must consist of letters, digits and _")
    return text


def main():
    arguments = argparse.ArgumentParser(
        prog="python -m bench.report", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument(
        "--run", type=Path, metavar="FILE", help="draw this run of pytest bench --benchmark-json=FILE; do not measure"
    )
    arguments.add_argument(
        "--output", type=Path, default=Path("bench-report"), metavar="FOLDER", help="default: bench-report"
    )
    arguments.add_argument(
        "--threads", type=int, default=1, metavar="N", help="threads of fusedops and of its peers (default: 1)"
    )
    arguments.add_argument("--networks", metavar="FOLDER", help="measure the ONNX files of a folder too")
    arguments.add_argument("--quick", action="store_true", help="fewer rounds and cases: about a minute")
    arguments.add_argument(
        "--publish",
        metavar="NAME",
        type=_name,
        help="write the medians to docs/figures/NAME.json too, and make the pages' tables of it; "
        "one file has the runs of any number of threads on one processor",
    )
    options = arguments.parse_args()
    try:
        report(options)
    except ValueError as e:
        arguments.error(str(e))


def report(options):
    figures = DOCS / f"figures/{options.publish}.json"
    if options.publish and not options.run:
        published(figures, processor(), instructions())  # refused before it is measured
    options.output.mkdir(parents=True, exist_ok=True)
    path = options.run or options.output / "run.json"
    if not options.run:
        measure(path, options)
    run = Run(json.loads(path.read_text()))
    target = options.output / "index.html"
    target.write_text(page(run, draw(run, options.output)))
    print(target)
    if run.remark():
        print(f"bench.report: {run.remark()}", file=sys.stderr)
    if options.publish:
        publish(run, figures)
        subprocess.run([sys.executable, DOCS / "figures.py"], check=True)


if __name__ == "__main__":
    main()
