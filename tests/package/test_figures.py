"""``python -m bench.report --publish``: what a file of docs/figures has, and the tables that are made of it."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT))
report = pytest.importorskip("bench.report", reason="bench/ is in a checkout alone")

HERE = "Some processor (family 1, model 2), 2 logical processors"
TIMES = {
    ("operation", "variant"): {"unfused": 2e-3, "folded": 1.5e-3, "fused": 1e-3},
    ("network", "variant"): {"unfused": 8e-3, "folded": 7e-3, "fused": 6e-3, "bfloat16": 4e-3, "int8 fused": 3e-3},
    ("file", "variant"): {"unfused": 5e-3, "fused": 2e-3},
    ("peer", "peer"): {"fusedops": 1e-3, "pytorch": 3e-3, "onnxruntime": 2e-3},
    ("threads", "number"): {1: 4e-3, 2: 3e-3},
    ("eight_bits", "variant"): {"float32": 4e-3, "int8 unfused": 3e-3, "int8 fused": 1e-3},
    ("precision", "variant"): {"float32 unfused": 6e-3, "float32": 5e-3, "bfloat16": 2e-3},
}
NAMES = {
    "operation": ["conv3x3_64x56", "conv3x3_256x14", "attention_8x512x64"],
    "threads": ["conv3x3_64x56"],
    "peer": ["conv3x3_64x56", "author__net"],
    "eight_bits": ["weenet_8_bits"],
    "precision": ["linear_512x512x512"],
    "network": ["resnet18", "resnet18, batch 8"],
    "file": ["author__net"],
}


@pytest.fixture(autouse=True)
def here(monkeypatch):
    monkeypatch.setattr(report, "processor", lambda: HERE)
    monkeypatch.setattr(report, "instructions", lambda: "avx2")


@pytest.fixture
def figures(monkeypatch, tmp_path):
    """docs/figures.py over a page of tmp_path, whose figures are published there too."""
    spec = importlib.util.spec_from_file_location("figures", ROOT / "docs/figures.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    return module


def run_of(threads=1, processor=HERE, isa="avx2", day="2026-01-02", factor=1, apart=1.1, **commit):
    """What pytest-benchmark writes, as far as it is read."""
    benchmarks = [
        {
            "stats": {"median": factor * seconds, "min": factor * seconds / apart},
            "extra_info": {"kind": kind, "name": name, column: variant, "flop": 8e6}
            | ({"traffic": 2e6} if kind == "operation" else {}),
        }
        for (kind, column), times in TIMES.items()
        for name in NAMES[kind]
        for variant, seconds in times.items()
    ]
    benchmarks += [
        {
            "stats": {"median": 1e-3, "min": 1e-3 / apart},
            "extra_info": {"kind": "size", "sweep": "n", "size": n, "flop": n**3},
        }
        for n in (100, 200)
    ]
    machine = dict(processor=processor, isa=isa, threads=threads, versions={"numpy": f"2.{threads}"})
    return {
        "benchmarks": benchmarks,
        "roof": {"peak": 80.0, "bandwidth": {"32768": 90.0, "33554432": 9.0}},
        "datetime": f"{day}T03:04:05+00:00",
        "commit_info": {"id": "0123456789", "dirty": False} | commit,
        "machine_info": {"fusedops": machine},
    }


def test_runs_of_each_number_of_threads_keep_what_they_were_measured_with(tmp_path):
    path = tmp_path / "figures/some.json"
    report.publish(report.Run(run_of()), path)
    report.publish(report.Run(run_of(2, day="2026-03-04", id="abcdefghij", dirty=True)), path)
    file = json.loads(path.read_text())
    assert (file["processor"], file["isa"], list(file["threads"])) == (HERE, "avx2", ["1", "2"])
    one, two = file["threads"].values()
    assert (one["date"], one["commit"], one["versions"]) == ("2026-01-02", "0123456", {"numpy": "2.1"})
    assert (two["date"], two["commit"], two["versions"]) == ("2026-03-04", "abcdefg-dirty", {"numpy": "2.2"})
    assert one["eight_bits"] == {"weenet_8_bits": {"float32": 4000, "int8 unfused": 3000, "int8 fused": 1000}}
    report.publish(report.Run(run_of(day="2026-05-06", factor=2)), path)
    again = json.loads(path.read_text())["threads"]
    assert again["2"] == two and again["1"]["date"] == "2026-05-06"
    assert again["1"]["peer"]["conv3x3_64x56"]["pytorch"] == 6000


def test_a_run_without_benchmarks_is_refused():
    with pytest.raises(ValueError, match="the run has no benchmarks: pytest-xdist"):
        report.Run(run_of() | {"benchmarks": []})


def test_a_busy_machine_is_told():
    assert report.Run(run_of()).remark() == ""
    assert report.Run(run_of(apart=2)).remark().startswith("Busy machine: 100% of the medians are 1.3 times the least")


@pytest.mark.parametrize(
    "other", [dict(processor="Some processor (family 1, model 3), 2 logical processors"), dict(isa="avx512")]
)
def test_a_file_is_of_one_processor(tmp_path, monkeypatch, other):
    path, foreign = tmp_path / "some.json", report.Run(run_of(2, **other))
    report.publish(report.Run(run_of()), path)
    before = path.read_bytes()
    monkeypatch.setattr(report, "processor", lambda: foreign.processor)
    with pytest.raises(ValueError, match=r"some.json has figures of Some processor .*but these are of .*another name"):
        report.publish(foreign, path)
    assert path.read_bytes() == before


def test_a_run_of_another_machine_is_not_published(tmp_path):
    with pytest.raises(ValueError, match="the run is of Another, but this is Some processor"):
        report.publish(report.Run(run_of(processor="Another")), tmp_path / "some.json")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["", "a/b", "../zen4", "zen-4", "zen4.json"])
def test_names_that_a_mark_cannot_have(monkeypatch, capsys, tmp_path, name):
    monkeypatch.setattr(sys, "argv", ["bench.report", "--output", str(tmp_path / "out"), "--publish", name])
    with pytest.raises(SystemExit):
        report.main()
    assert "must consist of letters, digits and _" in capsys.readouterr().err and not list(tmp_path.iterdir())


def test_another_processor_is_refused_before_measuring(monkeypatch, capsys, tmp_path):
    report.publish(report.Run(run_of()), tmp_path / "figures/some.json")
    monkeypatch.setattr(report, "DOCS", tmp_path)
    monkeypatch.setattr(report, "instructions", lambda: "scalar")
    monkeypatch.setattr(report, "measure", lambda *_: pytest.fail("it measured"))
    monkeypatch.setattr(sys, "argv", ["bench.report", "--output", str(tmp_path / "out"), "--publish", "some"])
    with pytest.raises(SystemExit):
        report.main()
    assert "some.json has figures of" in capsys.readouterr().err


def test_tables(figures, monkeypatch, tmp_path):
    monkeypatch.setattr(figures, "PAPER", ("conv3x3_64x56",))
    path, page = tmp_path / "docs/figures/some.json", tmp_path / "page.md"
    for run in run_of(), run_of(2, day="2026-03-04", factor=0.5):
        for section in "threads", "paper":
            report.publish(report.Run(run), path, section)
    page.write_text(
        "".join(
            f"<!-- figures: {kind} some{threads} -->\nold\n<!-- end of figures -->\n"
            for kind in figures.TABLES
            for threads in ("", " 2")
        )
    )
    made = figures.page(page)
    assert "\nold\n" not in made and not figures.TABLES.keys() & figures.charts.CHARTS.keys()
    assert made.count("2026-01-02") == made.count("2026-03-04") == len(figures.TABLES)
    for row in (
        "| one thread, ms | unfused | batch norm folded | fused | gain |\n|---|--:|--:|--:|--:|",
        "| conv 3x3 64x56x56 | 2.00 | 1.50 | 1.00 | 2.00x |",
        "| one thread, ms | fusedops, unfused | fusedops | PyTorch |\n|---|--:|--:|--:|\n"
        "| conv 3x3 64x56x56 | 2.00 | 1.00 | 3.00 |",
        "| 2 threads, ms | fusedops | the fastest other library | | ratio |",
        "|---|--:|--:|---|--:|\n| conv 3x3 64x56x56 | 0.500 | 1.00 | ONNX Runtime | 2.00 |",
        "| one thread, ms | fusedops | PyTorch | ONNX Runtime | ratio |\n|---|--:|--:|--:|--:|",
        "| conv 3x3 64x56x56 | 1.00 | 3.00 | 2.00 | 2.00 |",
        "| conv 3x3 64x128x128 | 4.00 | 3.00 | 1.00 | 3.00x | 4.00x |",
        "| linear 512 x 512 -> 512 | 6.00 | 5.00 | 2.00 | 1.20x | 1.50x | 2.50x |",
        "| ResNet-18 | 8.00 | 7.00 | 6.00 | 1.33x |",
        "| conv 3x3 256x14x14 | 2304 | 0.19 MB | 2.00 | 1.50 | 1.00 | 1.50 |",
        "| one thread, ms | unfused | fused | gain |\n|---|--:|--:|--:|\n"
        "| attention, 8 heads, 512 tokens | 2.00 | 1.00 | 2.00x |",
        "| one thread, ms an image | batch | unfused | batch norm folded | fused | gain "
        "| operations saved | traffic saved |",
        "| ResNet-18 | 1 | 8.00 | 7.00 | 6.00 | 1.33x | 6 M | 44 MB |",
        "| ResNet-18 | 8 | 1.00 | 0.875 | 0.750 | 1.33x |  |  |",
        "| ResNet-18 | 6.00 | 4.00 | 3.00 | 1.50x | 2.00x |",
        "| author: net | 5.00 | 2.00 | 2.50x | 3.00 | 2.00 | 2.00 |",
    ):
        assert row + "\n" in made
    page.write_text(made)
    assert figures.page(page) == made


@pytest.mark.thorough
def test_charts(figures, tmp_path):
    """Every chart is drawn of what a run publishes, for light pages and for dark ones."""
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    for run in run_of(), run_of(2):
        report.publish(report.Run(run), tmp_path / "docs/figures/some.json")
    page = tmp_path / "docs/page.md"
    page.write_text(
        "".join(f"<!-- figures: {kind} other,some -->\n<!-- end of figures -->\n" for kind in figures.charts.CHARTS)
    )
    made = figures.page(page, write=True)
    assert made.count("tab-item} Some processor") == 2 * len(figures.charts.CHARTS)
    for name in figures.charts.CHARTS:
        for end in "some_light.svg", "some_dark.svg", "some_2_light.svg", "some_2_dark.svg":
            picture = tmp_path / f"docs/pictures/{name}_{end}"
            assert f"pictures/{picture.name}\n:class: only-" in made and "<text" in picture.read_text()
    assert "ResNet-18" in (tmp_path / "docs/pictures/gain_some_light.svg").read_text()
    assert "multiply-adds: 80 GFLOP/s" in (tmp_path / "docs/pictures/roofline_some_light.svg").read_text()
