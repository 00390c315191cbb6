"""The program `fusedops`, its workloads, and the README's examples."""

import json
import os
import re
import subprocess
import sys
import threading
import time
import types
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import fusedops as fo
from fusedops import cli, runtime
from fusedops._internal import timing
from fusedops.benchmark import report, workloads
from fusedops.graph.runtime import profiler


def test_info_names_the_machine_and_the_build(capsys):
    assert cli.main(["info"]) == 0
    shown = capsys.readouterr().out
    assert report.processor() in shown and fo.isa() in shown and fo.__version__ in shown
    assert all(
        re.search(rf"^{key} +\w", shown, re.MULTILINE)
        for key in ("caches", "available_isas", "num_threads", "compiler")
    )


@pytest.mark.skipif(sys.platform != "linux", reason="Linux tells of its caches")
def test_caches_have_their_sizes(tmp_path):
    assert re.fullmatch(r"(L\d[di]? \d+ KB(, |$))+", report.caches()) or report.caches() == "unknown"


def test_version(capsys):
    assert cli.main(["--version"]) == 0 and capsys.readouterr().out == f"fusedops {runtime.version()}\n"


@pytest.mark.parametrize(
    "raised, status, told",
    [(MemoryError("no memory for it"), 1, "fusedops: no memory for it\n"), (KeyboardInterrupt(), 130, "")],
)
def test_no_traceback(raised, status, told, monkeypatch, capsys):
    def stop(*_):
        raise raised

    monkeypatch.setattr(report, "measure", stop)
    assert cli.main(["bench"]) == status and capsys.readouterr().err == told


def test_a_reader_that_has_read_enough():
    """As of `fusedops bench --help | head -n 1`."""
    command = 'set -o pipefail; "$PYTHON" -m fusedops bench --help | true'
    done = subprocess.run(
        ["bash", "-c", command],
        env=os.environ | {"PYTHON": sys.executable},
        cwd=Path(fo.__file__).parent.parent,
        capture_output=True,
        text=True,
    )
    assert done.stderr == "" and done.returncode in (0, 1)


@pytest.mark.parametrize("command", ["bench", "explain"])
def test_help_has_examples_that_parse(command, capsys):
    with pytest.raises(SystemExit):
        cli.main([command, "--help"])
    examples = re.findall(rf"^  .*?fusedops ({command} .*?) *(?:#|>|\)).*$", capsys.readouterr().out, re.MULTILINE)
    assert examples
    for example in examples:
        assert cli._parser().parse_args(example.split()).command == command


@pytest.mark.parametrize("name", workloads.WORKLOADS)
def test_variants_of_a_workload_agree(name):
    operation, names = workloads.WORKLOADS[name].operation, list(workloads.VARIANTS)
    last = {workloads.Block: names[1:5], workloads.EightBits: names[5:]}
    expected = last.get(type(operation), names[:4])
    if "depthwise" in name:
        expected = [variant for variant in expected if variant != "bfloat16"]
    assert list(workloads.build(name)) == expected


def test_a_variant_that_differs_stops_the_benchmark(monkeypatch):
    monkeypatch.setattr(
        workloads.Cell, "variants", lambda *_: {"numpy": lambda: np.ones(3), "fused": lambda: np.full(3, 1.001)}
    )
    with pytest.raises(ArithmeticError, match="rnn_cell: fused differs from NumPy by 1.0e-03"):
        workloads.build("rnn_cell")


def test_8_bits_that_differ_stop_the_benchmark(monkeypatch):
    made = workloads.EightBits.variants
    monkeypatch.setattr(
        workloads.EightBits,
        "variants",
        lambda self, a: made(self, a) | {"int8 fused": lambda: np.full_like(made(self, a)["int8 fused"](), 200)},
    )
    with pytest.raises(ArithmeticError, match="depthwise_8_bits: int8 fused differs from float32 unfused by"):
        workloads.build("depthwise_8_bits")


def test_rounds_take_every_function_in_turn():
    calls, done = [], []
    functions = {"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}
    times = timing.interleaved(functions, 1e-9, batch_seconds=0, least_rounds=3, progress=done.append)
    assert calls[-12:] == ["a", "a", "b", "b"] * 3 and done == [pytest.approx(1 / 3), pytest.approx(2 / 3), 1.0]
    assert times["a"].min <= times["a"].median <= times["a"].max and times["b"].std >= 0


def test_a_thread_alone_is_timed_without_other_programs():
    """A call that sleeps, as one that waits for its turn, takes no processor time."""
    calls = {"sleep": lambda: time.sleep(2e-3)}
    waited, worked = (
        timing.interleaved(calls, 1e-9, clock=clock)["sleep"].median for clock in (time.perf_counter, time.thread_time)
    )
    assert waited >= 2 and worked < 1


@pytest.mark.parametrize("threads, clock", [(1, time.thread_time), (2, time.perf_counter)])
def test_the_clock_of_bench(threads, clock, monkeypatch):
    pytest.importorskip("rich", reason="rich is not installed")
    pytest.importorskip("threadpoolctl", reason="threadpoolctl is not installed")
    clocks, a_millisecond = [], timing.Summary.of([0.001])

    def interleaved(calls, seconds, *, clock, progress):
        clocks.append(clock)
        return dict.fromkeys(calls, a_millisecond)

    monkeypatch.setattr(report, "WORKLOADS", {"rnn_cell": workloads.WORKLOADS["rnn_cell"]})
    monkeypatch.setattr(report, "interleaved", interleaved)
    table = report.table(report.measure(threads))
    assert clocks == [clock] and ("processor time" in table) == (threads == 1)


def test_summary_is_in_milliseconds():
    summary = timing.Summary.of([0.001, 0.002, 0.006])
    std = (14 / 3) ** 0.5
    assert summary.as_dict() == pytest.approx({"mean": 3, "median": 2, "max": 6, "min": 1, "std": std})
    assert "median (ms)" in str(summary) and "2.0000" in str(summary)


def test_bench_prints_the_table_and_writes_its_files(monkeypatch, capsys, tmp_path):
    names = "rnn_cell", "inverted", "conv1x1_8_bits"
    monkeypatch.setattr(report, "WORKLOADS", {name: workloads.WORKLOADS[name] for name in names})
    a_millisecond = timing.Summary.of([0.0005, 0.001, 0.003])
    monkeypatch.setattr(report, "interleaved", lambda calls, seconds, **options: dict.fromkeys(calls, a_millisecond))
    before = fo.get_num_threads()
    figures, picture = tmp_path / "figures.json", tmp_path / "picture.png"
    assert cli.main(["bench", "--quick", "--threads", "1", "--json", str(figures), "--plot", str(picture)]) == 0
    table = capsys.readouterr().out
    assert all(label in table for label in workloads.VARIANTS.values()) and "1.00x" in table and "1 thread\n" in table
    assert table.startswith("Execution times. The machine is busy (medians are up to 2.0 times the least times)")
    assert json.loads(figures.read_text())["workloads"]["rnn_cell"]["ms"]["fused"]["median"] == 1
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert fo.get_num_threads() == before


def timed(name, **forms):
    """The results of one workload: the milliseconds of each form's samples."""
    ms = {
        form.replace("_", " "): timing.Summary.of([s / 1e3 for s in samples]).as_dict()
        for form, samples in forms.items()
    }
    return {"processor": "P", "isa": "I", "threads": 1, "workloads": {name: {"title": name, "ms": ms}}}


def cells(table, form):
    """The numbers in the row of a form."""
    return re.search(rf"^  {form} +(\d.*)$", table, re.MULTILINE)[1].split()


def test_a_quiet_machine_is_compared_by_medians():
    table = report.table(timed("t", unfused=[3.9, 4, 4.1], fused=[1.9, 2, 2.7]))
    assert table.startswith("Execution times\n") and "by the median column" in table and "busy" not in table
    assert cells(table, "unfused")[1:] == ["4.0000", "4.1000", "3.9000", "0.0816", "1.00x"]
    assert cells(table, "fused")[1] == "2.0000" and cells(table, "fused")[-1] == "2.00x"


def test_a_busy_machine_is_compared_by_least_times():
    """Other work took most of the fused form's samples: the medians would say 0.40x."""
    table = report.table(timed("t", numpy=[9, 9, 9], unfused=[4, 4, 4.1], fused=[2, 10, 11]))
    assert "busy (medians are up to 5.0 times the least times)" in table.splitlines()[0]
    assert "by the min column" in table and "median column" not in table
    assert cells(table, "NumPy") == ["9.0000", "0.44x"]
    assert cells(table, "unfused") == ["4.0000", "1.00x"] and cells(table, "fused") == ["2.0000", "2.00x"]


def test_bytes_are_compared_with_fused_float32():
    forms = {"float32_unfused": [5.0], "float32": [4.0], "int8_unfused": [8.0], "int8_fused": [1.0]}
    results = timed("t", unfused=[3], fused=[2])
    results["workloads"] |= timed("t, int8", **forms)["workloads"]
    table = report.table(results)
    assert [line.split("  ")[-1].strip() for line in table.splitlines() if line.startswith("ms ")] == [
        "vs unfused",
        "vs float32 fused",
    ]
    speeds = [cells(table, form)[-1] for form in ("float32 unfused", "float32 fused", "int8 unfused", "int8 fused")]
    assert speeds == ["0.80x", "1.00x", "0.50x", "4.00x"]


def test_bars_of_a_busy_machine_are_of_least_times(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    drawn = []
    monkeypatch.setattr(report, "_save", lambda figure, path: drawn.append(figure))
    report.plot(timed("t", unfused=[4, 4, 4], fused=[2, 10, 11]), tmp_path / "t.png")
    (axes,) = drawn[0].axes
    assert [bar.get_height() for bar in axes.patches] == [1, 2] and axes.get_ylabel() == "speed, unfused = 1"
    assert drawn[0].get_suptitle().endswith("compared by the min")


@pytest.mark.parametrize("samples, gain", [([2, 2, 2.1], "2.00 times"), ([1, 2, 2.1], "4.00 times")])
def test_a_quantized_network_is_compared_by_what_is_shown(samples, gain, monkeypatch):
    pytest.importorskip("rich", reason="rich is not installed")
    pytest.importorskip("threadpoolctl", reason="threadpoolctl is not installed")
    times = {"float32": timing.Summary.of([4e-3] * 3), "int8": timing.Summary.of([s / 1e3 for s in samples])}
    monkeypatch.setattr(report, "benchmark", lambda *_, **options: profiler.Benchmark(times))
    small = SimpleNamespace(explain=lambda: SimpleNamespace(quantized=SimpleNamespace(network_gain=3.5)))
    told = report.time_quantized(None, small, [], 1)
    assert "predicted were 3.50 times" in told
    assert f"int8: {gain} as fast as float32" in told and ("busy" in told) == (gain == "4.00 times")


@pytest.mark.parametrize(
    "module, arguments", [("rich.console", []), ("threadpoolctl", []), ("matplotlib", ["--plot", "x.png"])]
)
def test_a_missing_extra_is_named(module, arguments, monkeypatch, capsys):
    """Before anything is measured."""
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setattr(report, "interleaved", None)
    assert cli.main(["bench", *arguments]) == 1
    assert f"bench needs {module.split('.')[0]}: pip install -e '.[bench]'" in capsys.readouterr().err


def test_the_backend_of_torch_compile_names_torch(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ImportError, match=r"torch.compile's backend needs PyTorch: pip install -e '.\[torch\]'"):
        fo.graph.torch_backend  # noqa: B018


@pytest.mark.parametrize(
    "arguments",
    [
        ["unknown"],
        ["explain"],
        ["bench", "--threads", "0"],
        ["bench", "--threads", "many"],
        *(["bench", "m.onnx", "--dim", dim] for dim in ("batch", "batch=", "=2", "batch=0", "batch=two")),
    ],
)
def test_wrong_usage(arguments, capsys):
    with pytest.raises(SystemExit) as stopped:
        cli.main(arguments)
    shown = capsys.readouterr().err
    assert (
        stopped.value.code == 2
        and "usage: fusedops" in shown
        and ("--threads" not in arguments or "between 1 and 1024, not" in shown)
    )


@pytest.fixture
def network(tmp_path):
    """A file with a convolution and a ReLU, of a batch size that has a name."""
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    make, w = onnx.helper, np.ones((4, 3, 3, 3), np.float32)
    nodes = [make.make_node("Conv", ["x", "w"], ["c"], name="conv"), make.make_node("Relu", ["c"], ["y"], name="relu")]
    x, y = (
        make.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["batch", *shape])
        for name, shape in (("x", (3, 8, 8)), ("y", (4, 6, 6)))
    )
    graph = make.make_graph(nodes, "small", [x], [y], [onnx.numpy_helper.from_array(w, "w")])
    path = tmp_path / "small.onnx"
    onnx.save(make.make_model(graph, opset_imports=[make.make_opsetid("", 17)], ir_version=8), path)
    return str(path)


def test_explain_tells_what_is_fused(network, capsys):
    assert cli.main(["explain", network]) == 0
    assert re.search("relu +into +conv", capsys.readouterr().out)


def test_a_pass_left_out(network, capsys, tmp_path):
    assert cli.main(["explain", network, "--disable-pass", "epilogue"]) == 0
    assert capsys.readouterr().out.startswith("0 fusions")
    assert (
        cli.main(["explain", network, "--disable-pass", "eplogue"]) == 1 and "the passes are" in capsys.readouterr().err
    )
    assert cli.main(["bench", "--disable-pass", "epilogue"]) == 1 and "name a MODEL" in capsys.readouterr().err
    saved = str(tmp_path / "small.fo")
    fo.load_onnx(network).save(saved)
    assert (
        cli.main(["explain", saved, "--disable-pass", "epilogue"]) == 1
        and "saved after the passes" in capsys.readouterr().err
    )


def test_bench_of_a_network(network, capsys, tmp_path):
    figures, picture = tmp_path / "figures.json", tmp_path / "picture.png"
    files = ["--json", str(figures), "--plot", str(picture)]
    assert cli.main(["bench", network, "--quick", "--dim", "batch=2", *files]) == 0
    shown, written = capsys.readouterr().out, json.loads(figures.read_text())
    assert all(form in shown for form in ("fused", "folded only", "unfused", "GFLOP/s"))
    assert report.processor() in shown and "1 thread" in shown
    assert written["inputs"] == {"x": [2, 3, 8, 8]} and len(written["layers"]) == 1
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_network_that_other_work_disturbed():
    """A least time far above what its nodes take is told."""

    def told(least, *nodes):
        times, layers = types.SimpleNamespace(min=least), [types.SimpleNamespace(ms=ms) for ms in nodes]
        return report.disturbed(times, types.SimpleNamespace(layers=layers))

    assert "37.0 ms is 2.3 times 16.0 ms" in told(37.0, 10.0, 6.0)
    assert not told(18.0, 10.0, 6.0) and not told(0.02, 0.001)


def test_a_saved_network(network, capsys, tmp_path, monkeypatch):
    path = str(tmp_path / "small.fo")
    fo.load_onnx(network).save(path)
    monkeypatch.setattr(report, "load_onnx", None)  # ONNX need not be installed
    assert cli.main(["explain", path]) == 0
    assert re.search("relu +into +conv", capsys.readouterr().out)
    assert cli.main(["bench", path, "--quick", "--plot", str(tmp_path / "picture.png")]) == 0
    assert "has its fused form alone" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments, told",
    [
        (["--dim", "batch=2"], "--dim"),
        (["MODEL", "--dim", "height=1920"], "'height'; these have names: batch"),
        (["MODEL", "--json", "nowhere/x.json"], "nowhere"),
        (["MODEL", "--plot", "nowhere/x.png"], "nowhere"),
        (["MODEL", "--plot", "x.bmp"], "'bmp' cannot be drawn; known are"),
        (["--plot", "x.bmp"], "'bmp' cannot be drawn"),
    ],
)
def test_wrong_options_are_told_before_the_measuring(arguments, told, network, capsys, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(report, "measure", None)
    monkeypatch.setattr(fo.Model, "benchmark", None)
    assert cli.main(["bench", *(network if a == "MODEL" else a for a in arguments)]) == 1
    assert told in capsys.readouterr().err


def test_a_network_without_products_is_drawn(tmp_path):
    onnx = pytest.importorskip("onnx.parser", reason="onnx is not installed")
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    pytest.importorskip("rich", reason="rich is not installed")
    path, picture = tmp_path / "relu.onnx", tmp_path / "relu.png"
    path.write_bytes(
        onnx.parse_model(
            '<ir_version: 8, opset_import: ["" : 17]> net (float[n, 3] x) => (float[n, 3] y) { y = Relu(x) }'
        ).SerializeToString()
    )
    assert cli.main(["bench", str(path), "--quick", "--dim", "n=2000", "--plot", str(picture)]) == 0
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_dimension_of_one_that_does_not_fit(tmp_path, capsys):
    parser = pytest.importorskip("onnx.parser", reason="onnx is not installed")
    pytest.importorskip("rich", reason="rich is not installed")
    path = tmp_path / "pool.onnx"
    path.write_bytes(
        parser.parse_model(
            '<ir_version: 8, opset_import: ["" : 17]> net (float[n, 3, 8, width] x) => (float[n, 3, 6, w] y) '
            "{ y = MaxPool<kernel_shape=[3, 3]>(x) }"
        ).SerializeToString()
    )
    assert cli.main(["bench", str(path), "--quick", "--dim", "n=2"]) == 1
    assert "taken for 1; give their sizes, as in --dim width=N: width" in capsys.readouterr().err
    assert cli.main(["bench", str(path), "--quick", "--dim", "width=2", "--dim", "n=1"]) == 1
    assert "taken for 1" not in capsys.readouterr().err
    assert cli.main(["bench", str(path), "--quick", "--dim", "width=8"]) == 0


def test_a_file_that_is_no_network_is_told(tmp_path, capsys):
    pytest.importorskip("onnx", reason="onnx is not installed")
    (tmp_path / "no.onnx").write_bytes(b"no network")
    assert cli.main(["explain", str(tmp_path / "no.onnx")]) == 1
    assert "is not an ONNX model" in capsys.readouterr().err
    assert cli.main(["bench", str(tmp_path / "none.onnx")]) == 1
    assert "none.onnx: No such file" in capsys.readouterr().err


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no named pipes")
def test_a_network_in_a_pipe_is_told(tmp_path):
    """It would be opened twice, and keep the second reader waiting."""
    pipe = tmp_path / "net.onnx"
    os.mkfifo(pipe)
    threading.Thread(target=lambda: pipe.open("wb").close(), daemon=True).start()
    explain = [sys.executable, "-m", "fusedops", "explain", str(pipe)]
    done = subprocess.run(explain, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "is a pipe" in done.stderr


def test_no_command_gets_the_help(capsys):
    assert cli.main([]) == 2
    assert "time fused, folded only" in capsys.readouterr().err


def test_sources_that_are_not_compiled_say_so(tmp_path):
    """As the checkout is to one who installed the package, and calls Python there."""
    for path in Path(fo.__file__).parent.glob("*.py"):
        (tmp_path / "fusedops").mkdir(exist_ok=True)
        (tmp_path / "fusedops" / path.name).write_bytes(path.read_bytes())
    run = subprocess.run([sys.executable, "-c", "import fusedops"], cwd=tmp_path, capture_output=True, text=True)
    assert "not compiled for this Python: run `pip install -e .`" in run.stderr.splitlines()[-1]


README = Path(__file__).parents[2] / "README.md"


@pytest.mark.parametrize("code", re.findall(r"^```python\n(.*?)^```", README.read_text(), re.MULTILINE | re.DOTALL))
def test_examples_of_the_readme_run(code, tmp_path, monkeypatch):
    for module in ("torch", "onnx") if "from_torch" in code else ("torch",) if "import torch" in code else ():
        pytest.importorskip(module, reason=f"{module} is not installed")
    monkeypatch.chdir(tmp_path)
    exec(code, {})
