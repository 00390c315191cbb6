"""Measures with ``pytest bench`` and draws what came of it: ``python -m bench.report``, from the top of a checkout.

Writes a picture for each chart of docs/charts.py, and index.html with the pictures inside, which opens anywhere. They
come from one run, run.json; a run that is there already is drawn again with ``--run FILE``.
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

from fusedops._internal.timing import BUSY
from fusedops.benchmark.report import instructions, processor
from fusedops.benchmark.workloads import VARIANTS

from .peers import PEERS

DOCS = Path(__file__).resolve().parent.parent / "docs"
sys.path.append(str(DOCS))
import charts  # noqa: E402
import figures  # noqa: E402

PICTURES = {
    "every_gain": "The speed-up from fusion: speed over the unfused path. The same kernels, with batch norm, "
    "activation and gates as passes of their own; or with the batch norm folded into the weights alone; or all in one "
    "kernel.",
    "peer_table": "Time of a peer over ours: above 1, fusedops is faster. The same weights and threads everywhere, "
    "every result compared first; TVM's kernels are not tuned.",
    "roofline": "How near the machine's limits: each dot an operation, by its number in the list below it, a line to "
    "the same operation unfused. The roofs are measured, the bandwidths by passes over so many bytes. Operations of a "
    "Winograd convolution are counted for the direct one, which it beats.",
    "sizes": "Speed over sizes.",
    "scaling": "The speed of more threads, and of larger batches.",
}
LABELS = {name: peer.label for name, peer in PEERS.items()}
TABLES = {  # the title of a kind of benchmark, what differs within a row, and how that is called
    "operation": ("Fusion", "variant", VARIANTS),
    "block": ("Blocks of MobileNet", "variant", VARIANTS),
    "eight_bits": ("int8", "variant", VARIANTS),
    "precision": ("bfloat16", "variant", VARIANTS),
    "network": ("Networks", "variant", VARIANTS),
    "file": ("Networks of ONNX files", "variant", VARIANTS),
    "peer": ("Peers", "peer", LABELS),
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

    folder = Path(__file__).parent
    paper = [folder / "test_operations.py", folder / "test_peers.py", "-k", " or ".join(figures.PAPER)]
    arguments = [
        *map(str, paper if options.paper else [folder]),
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


def _rounded(number):
    return float(f"{number:.4g}")


class Run:
    """The medians of a run, in seconds, by what they are of."""

    def __init__(self, file):
        self.all, self.roof = file["benchmarks"], file["roof"]
        if not self.all:
            raise ValueError("the run has no benchmarks: pytest-xdist and --benchmark-disable turn them off")
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

    def record(self):
        """What tables and charts are made of: medians in microseconds, GFLOP/s over sizes, the machine's limits, and
        the operations and bytes of each operation."""
        columns = {kind: column for kind, (_, column, _) in TABLES.items()} | {"threads": "number", "batch": "number"}
        medians = {
            kind: {
                name: {str(key): _rounded(1e6 * seconds) for key, (seconds, _) in row.items()}
                for name, row in self.table(kind, "name", column).items()
            }
            for kind, column in columns.items()
        }
        rates = {
            sweep: {str(size): _rounded(1e-9 * info["flop"] / seconds) for size, (seconds, info) in row.items()}
            for sweep, row in self.table("size", "sweep", "size").items()
        }
        infos = [b["extra_info"] for b in self.all]
        work = {info["name"]: [info["flop"], info["traffic"]] for info in infos if "traffic" in info}
        about = dict(date=self.date, commit=self.commit, versions=self.versions, disturbed=round(self.disturbed, 2))
        return about | medians | {"size": rates, "roof": self.roof or None, "work": work}


def draw(run, folder):
    """The pictures that the run has figures for: their paths by name."""
    paths, record = {}, run.record()
    for name in PICTURES:
        figure = charts.draw(name, record, figures.LABELS, LABELS)
        if figure is not None:
            figure.suptitle(run.setting, fontsize=8, x=0.99, ha="right")
            paths[name] = folder / f"{name}.png"
            charts.save(figure, paths[name])
    return paths


def page(run, pictures):
    """The HTML page: pictures inlined, then every median."""
    parts = [
        f"<!doctype html><html lang=en><meta charset=utf-8><title>fusedops: benchmarks</title><style>{STYLE}</style>",
        f"<h1>fusedops: benchmarks</h1><p>{html.escape(run.setting)}<p><b>{run.remark()}</b>",
    ]
    for name, path in pictures.items():
        data = base64.b64encode(path.read_bytes()).decode()
        parts.append(f"<h2>{name.replace('_', ' ').capitalize()}</h2><p>{PICTURES[name]}")
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


def publish(run, path, section="threads"):
    """Writes the record of a run, with what it was measured on, into a file of docs/figures.

    They replace those of as many threads in a section; the others of the file stay, with their date, commit and
    versions.
    """
    if run.processor != processor():
        raise ValueError(f"the run is of {run.processor}, but this is {processor()}: publish it where it was measured")
    file = published(path, run.processor, run.isa)
    file["peers"] = LABELS
    file.setdefault(section, {})[str(run.threads)] = run.record()
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
    cases = arguments.add_mutually_exclusive_group()
    cases.add_argument("--networks", metavar="FOLDER", help="measure the ONNX files of a folder too")
    cases.add_argument(
        "--paper", action="store_true", help="only the workloads of the TVM paper's figure 4, which have a table"
    )
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
        publish(run, figures, "paper" if options.paper else "threads")
        subprocess.run([sys.executable, DOCS / "figures.py"], check=True)


if __name__ == "__main__":
    main()
