"""The tables and charts of measured times in README.md and docs: ``python docs/figures.py`` makes them of
docs/figures/*.json.

A page has ``<!-- figures: WHAT PROCESSOR -->``, the table or the picture, and ``<!-- end of figures -->``. WHAT is a
name of TABLES below or of CHARTS in charts.py, and a number after PROCESSOR is that of threads, if not one. Several
processors with commas between them, or ``every``, are those that have such figures, with all numbers of threads, each
under a tab. A JSON file has the medians of runs on one processor by their threads: ``python -m bench.report --threads N
--publish NAME`` measures and writes them.
"""

import json
import math
import re
import sys
from itertools import product
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import charts

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
MARKED = re.compile(r"(<!-- figures: (\w+) ([\w,]+)(?: (\d+))? -->\n).*?(<!-- end of figures -->)", re.DOTALL)
NAMES = {  # what the files' processors are called, in the order of tabs; others are told by what they say of themselves
    "zen5": "AMD EPYC (Zen 5)",
    "zen4": "AMD EPYC (Zen 4)",
    "zen3": "AMD EPYC (Zen 3)",
    "xeon": "Intel Xeon (Emerald Rapids)",
}
BRIEF = (  # the rows of the short tables
    "conv1x1_128x28_256",
    "dw3x3_512x14",
    "conv3x3_64x56",
    "conv3x3s2_128x56",
    "linear_512x512x512",
    "rnn_cell_128",
    "lstm_cell_128",
    "gru_cell_128",
    "lstm_50x1_128",
    "inverted_24x224",
    "attention_8x512x64",
    "mobilenet_v1",
    "mobilenet_v2",
    "resnet18",
    "resnet50",
    "efficientnet_b0",
    "minilm",
)
LABELS = {
    "conv1x1_128x28_256": "conv 1x1 128x28x28 -> 256",
    "dw3x3_512x14": "depthwise 3x3 512x14x14",
    "conv3x3_64x56": "conv 3x3 64x56x56",
    "conv3x3s2_128x56": "conv 3x3, stride 2, 128x56x56",
    "linear_512x512x512": "linear 512 x 512 -> 512",
    "rnn_cell_128": "RNN cell, 128 units",
    "lstm_cell_128": "LSTM cell, 128 units",
    "gru_cell_128": "GRU cell, 128 units",
    "lstm_50x1_128": "LSTM, 50 steps of 128 units",
    "inverted_24x224": "inverted residual 24x224x224, 6x",
    "attention_8x512x64": "attention, 8 heads, 512 tokens",
    "mobilenet_v1": "MobileNetV1, 224x224",
    "mobilenet_v2": "MobileNetV2",
    "resnet18": "ResNet-18",
    "resnet50": "ResNet-50",
    "efficientnet_b0": "EfficientNet-B0",
    "minilm": "MiniLM, 6 layers, 128 tokens",
    "conv1x1_8_bits": "conv 1x1 128x28x28 -> 256",
    "depthwise_8_bits": "depthwise 3x3 512x14x14",
    "weenet_8_bits": "conv 3x3 64x128x128",
    "weenet_depthwise_8_bits": "depthwise 3x3 64x128x128",
    "conv1x1_256x56_64": "conv 1x1 256x56x56 -> 64",
    "conv1x1_1024x14_256": "conv 1x1 1024x14x14 -> 256",
    "conv3x3_64x128_weenet": "conv 3x3 64x128x128",
    "conv3x3_256x14": "conv 3x3 256x14x14",
    "conv3x3_512x7": "conv 3x3 512x7x7",
    "conv7x7s2_3x224": "conv 7x7, stride 2, 3x224x224",
    "dw3x3_32x128": "depthwise 3x3 32x128x128",
    "dw3x3_144x56": "depthwise 3x3 144x56x56",
    "dw3x3_576x14": "depthwise 3x3 576x14x14",
    "dw3x3s2_96x112": "depthwise 3x3, stride 2, 96x112x112",
    "dw5x5_240x28": "depthwise 5x5 240x28x28",
    "separable_32x112_64": "separable 32x112x112 -> 64",
    "separable_512x14_512": "separable 512x14x14 -> 512",
    "inverted_24x56": "inverted residual 24x56x56, 6x",
    "inverted_16x112_24_s2": "inverted residual, stride 2, 16x112x112 -> 24",
    "linear_gelu_128x768x3072": "linear + GELU, 128 x 768 -> 3072",
    "linear_1x2048x1000": "linear 1 x 2048 -> 1000",
    "linear_8x64x64": "linear 8 x 64 -> 64",
    "attention_8x2048x64": "attention, 8 heads, 2048 tokens",
    "attention_causal_8x1024x64": "attention, causal, 8 heads, 1024 tokens",
    "rnn_50x1_128": "RNN, 50 steps of 128 units",
    "lstm_50x16_256": "LSTM, 50 steps of 256 units, batch 16",
    "gru_50x1_128": "GRU, 50 steps of 128 units",
    "max_pool3s2_64x112": "max pooling 3x3, stride 2, 64x112x112",
    "max_pool3s2_64x112_nhwc": "max pooling 3x3, stride 2, 64x112x112, NHWC",
    "max_pool5_512x13_nhwc": "max pooling 5x5 512x13x13, NHWC",
    "avg_pool3_192x35": "average pooling 3x3 192x35x35",
    "avg_pool_global_2048x7": "global average 2048x7x7",
    "avg_pool_global_2048x7_nhwc": "global average 2048x7x7, NHWC",
    "softmax_1024x128": "softmax 1024 x 128",
    "softmax_64x1000": "softmax 64 x 1000",
    "softmax_channels_19x64": "softmax over channels, 19x64x64",
    "layer_norm_128x768": "layer norm 128 x 768",
    "layer_norm_residual_128x768": "layer norm 128 x 768, with residual",
    "rms_norm_128x768": "RMS norm 128 x 768",
    "group_norm_128x32": "group norm 128x32x32",
    "resize_nearest_32x64": "resize 32x64x64, nearest",
    "resize_linear_32x64": "resize 32x64x64, linear",
    "resize_linear_32x64_nhwc": "resize 32x64x64, linear, NHWC",
    "conv1x1_64x56_256_gelu": "conv 1x1 64x56x56 -> 256, GELU",
    "conv1x1_64x56_256_silu": "conv 1x1 64x56x56 -> 256, SiLU",
    "conv1x1_64x56_256_residual": "conv 1x1 64x56x56 -> 256, + residual",
    "conv3x3_64x128_batch16": "conv 3x3 64x128x128, batch 16",
    "dw3x3_96x112": "depthwise 3x3 96x112x112",
    "conv1x1_16x112_96": "conv 1x1 16x112x112 -> 96",
    "conv1x1_16x112_96_batch8": "conv 1x1 16x112x112 -> 96, batch 8",
    "linear_512x16x512": "linear 512 x 16 -> 512",
    "linear_64x64x64": "linear 64 x 64 -> 64",
    "linear_1x128x128": "linear 1 x 128 -> 128",
}
PAPER = "conv1x1_128x28_256", "dw3x3_512x14", "rnn_cell_128", "lstm_cell_128"  # as in the TVM paper's figure 4
WORK = {  # the multiply-adds of a value of y, and how many values y has
    "conv3x3_256x14": (2304, 256 * 14**2),
    "linear_512x512x512": (512, 512**2),
    "linear_gelu_128x768x3072": (768, 128 * 3072),
    "conv3x3_64x128_weenet": (576, 64 * 128**2),
    "conv3x3_64x128_batch16": (576, 16 * 64 * 128**2),
    "conv1x1_64x56_256_gelu": (64, 256 * 56**2),
    "conv1x1_64x56_256_silu": (64, 256 * 56**2),
    "conv1x1_64x56_256_residual": (64, 256 * 56**2),
    "conv1x1_128x28_256": (128, 256 * 28**2),
    "dw3x3_96x112": (9, 96 * 112**2),
    "conv1x1_16x112_96": (16, 96 * 112**2),
    "conv1x1_16x112_96_batch8": (16, 8 * 96 * 112**2),
    "linear_512x16x512": (16, 512**2),
    "dw3x3_512x14": (9, 512 * 14**2),
    "linear_64x64x64": (64, 64**2),
    "linear_1x128x128": (128, 128),
}
SAVED = {  # millions of operations and megabytes of traffic that fusion saves an image, as explain() has them
    "mobilenet_v1": (10, 89),
    "mobilenet_v2": (14, 128),
    "resnet18": (6, 44),
    "resnet50": (28, 210),
    "efficientnet_b0": (14, 154),
    "minilm": (4, 64),
}
NETWORKS = "mobilenet_v1", "mobilenet_v2", "resnet18", "resnet50", "efficientnet_b0", "minilm"
BATCHES = 1, 8


def milliseconds(us):
    """Three digits, as a number without an exponent."""
    return f"{us / 1000:.{max(0, 2 - math.floor(math.log10(us / 1000)))}f}"


def size(n):
    """Bytes with their unit."""
    return f"{n / (1 << 20):.2g} MB" if n >= 1 << 17 else f"{n / 1024:g} KB"


def cells(times, *names):
    """Those of some of a row's times, empty where there is none."""
    return " | ".join(milliseconds(times[name]) if name in times else "" for name in names)


def head(threads, *columns, unit="ms"):
    """The first two lines of a table: how many threads, and the columns, those of text without a title."""
    of = "one thread" if threads == "1" else f"{threads} threads"
    yield f"| {of}, {unit} |{'|'.join(f' {column} ' if column else ' ' for column in columns)}|"
    yield f"|---|{'|'.join('--:' if column else '---' for column in columns)}|"


def filled(lines):
    """A table without the columns that are empty in every row."""
    rows = [line.strip("|").split("|") for line in lines]
    kept = [any(cell.strip() for cell in column[2:]) for column in zip(*rows, strict=True)]
    for row in rows if len(rows) > 2 else []:
        yield f"|{'|'.join(cell for cell, keep in zip(row, kept, strict=True) if keep)}|"


def fusion(file, threads):
    """Unfused, folded only and fused (a block as one kernel where there is one), and the gain, of each operation."""
    yield from head(threads, "unfused", "batch norm folded", "fused", "gain")
    run = file["threads"][threads]
    for name, times in (run["operation"] | run["network"]).items():
        if name in BRIEF and {"unfused", "folded"} <= times.keys():
            best = min((v for v in ("fused", "block") if v in times), key=times.get)
            gain = times["unfused"] / times[best]
            yield f"| {LABELS[name]} | {cells(times, 'unfused', 'folded', best)} | {gain:.2f}x |"


def fusion_by_work(file, threads):
    """Rows by the gain of fusion, with their multiply-adds a value and the size of y; and what the pass costs that is
    fused away, in multiply-adds a value at the rate of the largest product, which is a row too. No cost where it says
    little: a long product hides it in noise, and in a small one it is that of a call."""
    rows = {name: times for name, times in file["threads"][threads]["operation"].items() if name in WORK}
    largest = rows.get("linear_512x512x512")
    yield from head(threads, "K", "y", "unfused", "batch norm folded", "fused", "folded / fused", "pass, multiply-adds")
    for name, times in sorted(rows.items(), key=lambda row: row[1]["folded"] / row[1]["fused"]):
        k, values = WORK[name]
        cost = (times["folded"] - times["fused"]) / values / (largest["fused"] / 512**3) if largest else math.nan
        tells = not math.isnan(cost) and k <= 576 and 4 * values > 1 << 14
        yield (
            f"| {LABELS[name]} | {k} | {size(4 * values)} | {cells(times, 'unfused', 'folded', 'fused')} "
            f"| {times['folded'] / times['fused']:.2f} | {f'{cost:.0f}' if tells else ''} |"
        )


def attention(file, threads):
    """Attention as two products with a matrix of scores between them, and as one kernel."""
    yield from head(threads, "unfused", "fused", "gain")
    for name, times in file["threads"][threads]["operation"].items():
        if name.startswith("attention"):
            yield f"| {LABELS[name]} | {cells(times, 'unfused', 'fused')} | {times['unfused'] / times['fused']:.2f}x |"


def networks(file, threads):
    """The forms of whole networks, an image alone and in batches: times of one image; and what fusion saves."""
    yield from head(
        threads, "batch", "unfused", "batch norm folded", "fused", "gain", "operations saved", "traffic saved",
        unit="ms an image",
    )  # fmt: skip
    for name, batch in product(NETWORKS, BATCHES):
        row = name if batch == 1 else f"{name}, batch {batch}"
        times = {form: us / batch for form, us in file["threads"][threads]["network"].get(row, {}).items()}
        if times:
            gain = times["unfused"] / times["fused"]
            saved = "{} M | {} MB".format(*SAVED[name]) if name in SAVED and batch == 1 else " | "
            yield f"| {LABELS[name]} | {batch} | {cells(times, 'unfused', 'folded', 'fused')} | {gain:.2f}x | {saved} |"


def gain(times, of, over):
    """How many times as fast a form is as another, empty where one was not measured."""
    return f"{times[over] / times[of]:.2f}x" if {of, over} <= times.keys() else ""


def around(times):
    """The gain of fusion where the passes that it spares in float32 stand around the product of bfloat16."""
    if not {"float32 unfused", "float32", "bfloat16"} <= times.keys():
        return ""
    return f"{1 + (times['float32 unfused'] - times['float32']) / times['bfloat16']:.2f}x"


def eight_bits(file, threads):
    """Convolutions in float32, bfloat16 and int8, and the gains of fusion and over float32."""
    yield from head(
        threads, "float32, unfused", "float32, fused", "bfloat16, fused", "int8, unfused", "int8, fused",
        "fusion gain: float32", "fusion gain: bfloat16", "fusion gain: int8", "bfloat16 over float32",
        "int8 over float32",
    )  # fmt: skip
    forms = "float32 unfused", "float32", "bfloat16", "int8 unfused", "int8 fused"
    for name, times in file["threads"][threads]["eight_bits"].items():
        fusion = gain(times, "float32", "float32 unfused"), around(times), gain(times, "int8 fused", "int8 unfused")
        over = gain(times, "bfloat16", "float32"), gain(times, "int8 fused", "float32")
        yield f"| {LABELS[name]} | {cells(times, *forms)} | {' | '.join(fusion + over)} |"


def precision(file, threads):
    """Products, attention and a recurrent layer in float32 and bfloat16, and the gains of fusion and over float32."""
    yield from head(
        threads, "float32, unfused", "float32, fused", "bfloat16, fused", "fusion gain: float32",
        "fusion gain: bfloat16", "bfloat16 over float32",
    )  # fmt: skip
    for name, times in file["threads"][threads].get("precision", {}).items():
        gains = gain(times, "float32", "float32 unfused"), around(times), gain(times, "bfloat16", "float32")
        yield f"| {LABELS[name]} | {cells(times, 'float32 unfused', 'float32', 'bfloat16')} | {' | '.join(gains)} |"


def narrow_networks(file, threads):
    """Whole networks, fused, in float32, bfloat16 and int8."""
    forms = "fused", "bfloat16", "int8 fused"
    titles = "float32", "bfloat16", "int8"
    yield from head(threads, *titles, "bfloat16 over float32", "int8 over float32")
    for name in NETWORKS:
        times = file["threads"][threads]["network"].get(name, {})
        if times.keys() & {"bfloat16", "int8 fused"}:
            gains = gain(times, "bfloat16", "fused"), gain(times, "int8 fused", "fused")
            yield f"| {LABELS[name]} | {cells(times, *forms)} | {' | '.join(gains)} |"


def files(file, threads):
    """The networks of ONNX files: their forms, and the peers that read such files, the fastest of them over ours."""
    run = file["threads"][threads]
    names = [peer for peer in file["peers"] if any(peer in run["peer"].get(name, ()) for name in run["file"])]
    names = [peer for peer in names if peer != "fusedops"]
    yield from head(threads, "unfused", "fused", "gain", *(file["peers"][peer] for peer in names), "ratio")
    for name, times in run["file"].items():
        peers = run["peer"].get(name, {})
        others, own = [peers[peer] for peer in names if peer in peers], peers.get("fusedops")
        ratio = f"{min(others) / own:.2f}" if own and others else ""
        yield (
            f"| {name.replace('__', ': ')} | {cells(times, 'unfused', 'fused')} "
            f"| {times['unfused'] / times['fused']:.2f}x | {cells(peers, *names)} | {ratio} |"
        )


def peers(file, threads):
    """The fastest of the peers over fusedops, with its name."""
    yield from head(threads, "fusedops", "the fastest other library", "", "ratio")
    for name, times in file["threads"][threads]["peer"].items():
        others = {peer: us for peer, us in times.items() if peer not in ("fusedops", "numpy")}
        if name in BRIEF and "fusedops" in times and others:
            best = min(others, key=others.get)
            ratio = others[best] / times["fusedops"]
            yield f"| {LABELS[name]} | {cells(times, 'fusedops', best)} | {file['peers'][best]} | {ratio:.2f} |"


def paper(file, threads):
    """The workloads of the TVM paper's figure 4: ours, TVM's and PyTorch's, each fused and not."""
    run = file.get("paper", {}).get(threads)
    if run is None:
        return
    names = "tvm_unfused", "tvm", "pytorch", "pytorch_compiled"
    yield from head(threads, "fusedops, unfused", "fusedops", *(file["peers"][peer] for peer in names))
    for name in PAPER:
        yield f"| {LABELS[name]} | {cells(run['operation'][name] | run['peer'][name], 'unfused', 'fused', *names)} |"


def every_peer(file, threads):
    """The times of each peer that has any, and the fastest of them over fusedops."""
    rows = file["threads"][threads]["peer"]
    names = [peer for peer in file["peers"] if peer != "numpy" and any(peer in times for times in rows.values())]
    yield from head(threads, *(file["peers"][peer] for peer in names), "ratio")
    for name, times in rows.items():
        others = [times[peer] for peer in names if peer in times and peer != "fusedops"]
        if name in LABELS and "fusedops" in times and others:
            yield f"| {LABELS[name]} | {cells(times, *names)} | {min(others) / times['fusedops']:.2f} |"


TABLES = {
    table.__name__: table
    for table in (
        *(fusion, fusion_by_work, attention, networks, eight_bits, precision, narrow_networks, files),
        *(peers, paper, every_peer),
    )
}


def files_of(processor, threads):
    """(file's name, what it has, number of threads) of a mark: one, or those of several files that are there."""
    folder = ROOT / "docs/figures"
    there = sorted(path.stem for path in folder.glob("*.json"))
    if processor == "every":
        named = [name for name in NAMES if name in there] + [name for name in there if name not in NAMES]
    else:
        named = processor.split(",")
    several = processor == "every" or len(named) > 1
    for name in named:
        if name in there or not several:
            file = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
            for n in sorted(file["threads"], key=int) if several else [threads]:
                yield name, file, n


def source(name, file, threads, section="threads"):
    """Says what was measured, on which processor and when."""
    run = file[section][threads]
    # the number of processors stands after what the processor says of itself
    of = f"{NAMES[name]}, {file['processor'].rpartition(', ')[2]}" if name in NAMES else file["processor"]
    busy = run.get("disturbed", 0)
    other = (
        f" Other work on the machine: {busy:.0%} of the medians are far above the least times." if busy > 0.1 else ""
    )
    threads = "one thread" if threads == "1" else f"{threads} threads"
    return f"Medians on {of}, {file['isa']}, {threads}, {run['date']}.{other}"


def table(kind, name, file, threads):
    """The lines of a table with their source, or nothing where the file has no such figures."""
    rows = list(filled(TABLES[kind](file, threads)))
    section = "paper" if kind == "paper" else "threads"
    return "\n".join([*rows, "", source(name, file, threads, section)]) if len(rows) > 2 else ""


def chart(kind, name, file, threads, path, write):
    """A chart as the page at `path` shows it: for light and for dark pages, with its source; or nothing."""
    made = {}
    for theme in "light", "dark":
        figure = charts.draw(kind, file["threads"][threads], LABELS, file["peers"], theme == "dark")
        if figure is None:
            return ""
        picture = ROOT / f"docs/pictures/{kind}_{name}{'' if threads == '1' else f'_{threads}'}_{theme}.svg"
        if write:
            picture.parent.mkdir(exist_ok=True)
            charts.save(figure, picture)
        made[theme] = picture.relative_to(path.parent).as_posix()
    alt = charts.told(kind, file["threads"][threads], LABELS, file["peers"])
    if path.name == "README.md":  # a page of its own kind: no Sphinx
        shown = (
            f'<picture>\n  <source media="(prefers-color-scheme: dark)" srcset="{made["dark"]}">\n'
            f'  <img src="{made["light"]}" alt="{alt}">\n</picture>'
        )
    else:
        shown = "\n".join(f":::{{image}} {made[t]}\n:class: only-{t}\n:alt: {alt}\n:::" for t in made)
    return f"{shown}\n\n{source(name, file, threads)}"


def block(kind, processor, threads, path, write):
    """What stands between the marks."""
    parts = []
    for name, file, n in files_of(processor, threads):
        made = chart(kind, name, file, n, path, write) if kind in charts.CHARTS else table(kind, name, file, n)
        if made:
            title = f"{NAMES.get(name, file['processor'])}, {'one thread' if n == '1' else f'{n} threads'}"
            tab = f"::::{{tab-item}} {title}\n:sync: {name}-{n}\n\n{made}\n\n::::\n"
            parts.append((made, tab))
    if len(parts) > 1:
        return f"\n:::::{{tab-set}}\n:sync-group: figures\n\n{''.join(tab for _, tab in parts)}:::::\n\n"
    if not parts:
        return "\nNot measured yet; `python -m bench.report --publish NAME` does it.\n\n"
    return f"\n{parts[0][0]}\n\n"


def page(path, write=False):
    """The text of a page with its tables and charts made again, and if told so its pictures."""
    text = path.read_text(encoding="utf-8")
    for theme in ("light", "dark") if write else ():
        picture = path.parent / f"pictures/conv_bn_relu_{theme}.svg"
        if f"pictures/{picture.name}" in text:
            charts.save(charts.conv_bn_relu(theme == "dark"), picture)
    return MARKED.sub(lambda m: m[1] + block(m[2], m[3], m[4] or "1", path, write) + m[5], text)


if __name__ == "__main__":
    for path in PAGES:
        path.write_text(page(path, write=True), encoding="utf-8")
