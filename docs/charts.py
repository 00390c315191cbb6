"""Charts of measured times. ``docs/figures.py`` draws those of the pages, ``python -m bench.report`` those of a run.

A chart is a function of `run`, one of the runs of a file of docs/figures, of `labels`, what operations are called, and
of `peers`, what libraries are called. It gives a figure, or None where the run has nothing for it. A figure has a
transparent ground: `draw` makes it in colors for light pages or for dark ones.
"""

import re

import numpy as np

COLORS = {"folded": "#56a5d8", "fused": "#d95f02"}
FORMS = {"folded": "batch norm folded", "fused": "folded and fused"}
MARKERS = {  # of the peers, in the order of the key
    "pytorch": ("o", "#d6604d"),
    "onnxruntime": ("s", "#3f87c6"),
    "openvino": ("D", "#8d6cc0"),
    "ncnn": ("^", "#2a9d74"),
    "xnnpack": ("v", "#c9961a"),
    "pytorch_compiled": ("p", "#a33b2f"),
    "tvm": ("P", "#c06c9b"),
    "tvm_unfused": ("X", "#8a929c"),
}
FAMILIES = {
    "conv": ("convolution", "#d95f02"),
    "dw": ("depthwise", "#1b9e77"),
    "separable": ("block of MobileNet", "#8d86cf"),
    "inverted": ("block of MobileNet", "#8d86cf"),
    "linear": ("linear", "#e7298a"),
    "rnn": ("recurrent", "#4e8fce"),
    "lstm": ("recurrent", "#4e8fce"),
    "gru": ("recurrent", "#4e8fce"),
    "attention": ("attention", "#b5892b"),
}
FRONT = (  # the rows of the two charts that a reader sees first
    "resnet50",
    "resnet18",
    "mobilenet_v2",
    "mobilenet_v1",
    "inverted_24x224",
    "conv3x3_64x56",
    "conv1x1_128x28_256",
    "dw3x3_512x14",
    "linear_512x512x512",
    "attention_8x512x64",
    "lstm_50x1_128",
    "gru_cell_128",
)
LINES = "-", "--", "-.", ":"
WIDTH = 4.6  # inches of the charts of the first pages: at 390 pixels their text is 11 pixels high


def _style(dark):
    """What a figure is drawn with, on a light page or on a dark one."""
    import matplotlib

    text, lines = ("#d8dee6", "#4a525c") if dark else ("#24292f", "#c8ced6")
    colors = dict.fromkeys(("text.color", "axes.labelcolor", "xtick.labelcolor", "ytick.labelcolor"), text)
    colors |= dict.fromkeys(("axes.edgecolor", "grid.color", "xtick.color", "ytick.color"), lines)
    style = {
        "font.size": 10.5,
        "axes.facecolor": "none",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.axisbelow": True,
        "legend.frameon": False,
    }
    return matplotlib.rc_context(style | colors)


def draw(chart, run, labels, peers, dark=False):
    """The figure of a chart, a name of CHARTS, or None."""
    with _style(dark):
        return CHARTS[chart](run, labels, peers)


def conv_bn_relu(dark=False):
    """Convolution, batch norm and ReLU as boxes: three loops with tensors between them, and one loop."""
    with _style(dark):
        figure, axes = _figure(WIDTH, 5.2)
        axes.set(xlim=(0, 2), ylim=(7.2, -0.9))
        axes.axis("off")
        line, fill = axes.xaxis.label.get_color(), axes.spines["left"].get_edgecolor()
        loops = {"fc": "none", "ec": COLORS["fused"], "linewidth": 1.6, "boxstyle": "round,pad=0.45"}
        tensors = {"fc": fill, "ec": "none", "alpha": 0.45, "boxstyle": "square,pad=0.35"}
        for x, title, boxes in (
            (0.48, "unfused: three loops", (
                (0, "x", tensors), (1, "convolution", loops), (2, "t: written, read", tensors),
                (3, "batch norm", loops), (4, "u: written, read", tensors), (5, "ReLU", loops), (6, "y", tensors),
            )),
            (1.5, "fused: one loop", (
                (0, "x", tensors),
                (3, "convolution\nwith folded weights\n\nt in registers,\nnever in memory\n\nmax(t, 0)", loops),
                (6, "y", tensors),
            )),
        ):  # fmt: skip
            axes.text(x, -0.75, title, ha="center", va="center", weight="bold")
            for place, text, box in boxes:
                axes.text(x, place, text, ha="center", va="center", bbox=box)
        for x, ends in ((0.48, [(i + 0.3, i + 0.67) for i in range(6)]), (1.5, [(0.3, 1.85), (4.2, 5.67)])):
            for start, end in ends:
                axes.annotate("", (x, end), (x, start), arrowprops={"arrowstyle": "-|>", "color": line})
        axes.text(1, 6.95, "gray: tensors in memory", ha="center", va="center")
    return figure


def save(figure, path):
    """Writes an SVG with a transparent ground, the same file for the same figure, or a picture of another kind."""
    import matplotlib

    if path.suffix != ".svg":
        figure.savefig(path, dpi=100)
        return
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "fusedops"}):  # text stays text
        figure.savefig(path, transparent=True, metadata={"Date": None})
    text = path.read_text(encoding="utf-8")
    text = re.sub(r"font-family: [^;]*;", "font-family: 'DejaVu Sans', Verdana, sans-serif;", text)
    text = re.sub(r' transform="rotate\(-0 [^)]*\)"|[ \t]+$', "", text, flags=re.MULTILINE)  # which says nothing
    path.write_text(text, encoding="utf-8")


def _figure(width, height, columns=1):
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, max(height, 3)), layout="constrained")
    return figure, figure.subplots(1, columns)


def _rows(axes, names, above=False):
    """Operations by their names, the first one at the top; the names at the left, or above their rows."""
    axes.set_yticks(range(len(names)), [""] * len(names) if above else names)
    for i, name in enumerate(names if above else ()):
        axes.annotate(name, (0, i - 0.36), (2, 0), ("axes fraction", "data"), textcoords="offset points", va="bottom")
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(names) - 0.4, -1 if above else -0.6)


def _plain(axis, values):
    """Ticks at these values, as numbers without an exponent."""
    from matplotlib.ticker import NullLocator

    axis.set_ticks(values, [f"{v:g}" for v in values])
    axis.set_minor_locator(NullLocator())


def _powers(low, high, steps=(1, 2, 5)):
    """Round numbers from `low` to `high`, for a logarithmic axis."""
    decades = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
    return [v for d in decades for s in steps if low <= (v := s * 10.0**d) <= high]


def _others(times):
    return {peer: us for peer, us in times.items() if peer in MARKERS}


def speed(run, labels, peers):
    """A dot for each peer at its time over that of fusedops, for the operations that a reader sees first."""
    table = {n: run["peer"][n] for n in FRONT if "fusedops" in run["peer"].get(n, ()) and _others(run["peer"][n])}
    if not table:
        return None
    figure, axes = _figure(WIDTH, 0.46 * len(table) + 1.6)
    for peer, (marker, color) in MARKERS.items():
        dots = [(t[peer] / t["fusedops"], i) for i, t in enumerate(table.values()) if peer in t]
        if dots:
            axes.plot(*zip(*dots, strict=True), marker, color=color, label=peers[peer], markersize=6, alpha=0.9)
    ratios = [us / t["fusedops"] for t in table.values() for us in _others(t).values()]
    axes.axvline(1, color=COLORS["fused"], linewidth=2.5)
    axes.annotate("fusedops", (1, 1), (0, 4), ("data", "axes fraction"), textcoords="offset points",
                  ha="center", color=COLORS["fused"], weight="bold")  # fmt: skip
    low, high = min(0.8, 0.9 * min(ratios)), 1.15 * max(ratios)
    axes.set(xscale="log", xlim=(low, high))
    _plain(axes.xaxis, [v for v in (0.25, 0.5, 1, 2, 4, 8, 16, 32, 64) if low <= v <= high])
    axes.set_xlabel("time over that of fusedops:\nright of the line, fusedops is faster")
    axes.grid(axis="both", linewidth=0.5)
    _rows(axes, [labels[n] for n in table], above=True)
    figure.legend(loc="outside upper center", ncols=3, handletextpad=0.2, columnspacing=1.2)
    return figure


def gain(run, labels, peers):
    """Speed over the unfused path, folded only and fused, for the operations that a reader sees first."""
    rows = run["operation"] | run["network"]
    table = {n: rows[n] for n in FRONT if {"unfused", "fused"} <= rows.get(n, {}).keys()}
    return _bars(table, labels) if table else None


def every_gain(run, labels, peers):
    """The same for all operations."""
    rows = run["operation"] | run["network"]
    table = {n: t for n, t in rows.items() if {"unfused", "fused"} <= t.keys()}
    return _bars(table, labels) if table else None


def _bars(table, labels):
    figure, axes = _figure(WIDTH, 0.62 * len(table) + 1.2)
    for i, times in enumerate(table.values()):
        best = {form: times[form] for form in ("folded", "fused") if form in times}
        best["fused"] = min(times["fused"], times.get("block", times["fused"]))
        height = 0.56 / len(best)
        for k, (form, us) in enumerate(best.items()):
            gain, y = times["unfused"] / us, i + (k - (len(best) - 1) / 2) * height
            axes.barh(y, gain, height, color=COLORS[form], label=FORMS[form] if len(best) == 2 else None)
            axes.annotate(
                f"{gain:.2f}",
                (gain, y),
                (3, 0),
                textcoords="offset points",
                va="center",
                fontsize=9,
            )
    axes.axvline(1, color=axes.xaxis.label.get_color(), linewidth=0.8)
    axes.set_xlabel("speed over the unfused path")
    axes.set_xlim(0, 1.07 * axes.get_xlim()[1])
    axes.spines["left"].set_visible(False)
    _rows(axes, [labels.get(n, n) for n in table], above=True)
    handles = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    figure.legend(handles.values(), handles, loc="outside upper center", ncols=2)
    return figure


def peer_table(run, labels, peers):
    """Every ratio of a peer's time to that of fusedops, in colors."""
    names = [n for n, times in run["peer"].items() if n in labels and "fusedops" in times and _others(times)]
    columns = [p for p in MARKERS if any(p in run["peer"][n] for n in names)]
    if not names:
        return None
    times = [run["peer"][n] for n in names]
    ratios = np.array([[t[p] / t["fusedops"] if p in t else np.nan for p in columns] for t in times])
    figure, axes = _figure(WIDTH + 0.6, 0.44 * len(names) + 2.2)
    shades = np.full((2 * len(names), len(columns)), np.nan)
    shades[1::2] = np.log2(ratios)  # below the line that has the row's name
    image = axes.imshow(shades, cmap="PuOr", vmin=-3, vmax=3, aspect="auto")  # orange: slower
    for (i, j), ratio in np.ndenumerate(ratios):
        if not np.isnan(ratio):
            color = "white" if sum(image.cmap(image.norm(np.log2(ratio)))[:3]) < 1.9 else "#24292f"
            text = f"{ratio:.2f}" if ratio < 10 else f"{ratio:.0f}"
            axes.text(j, 2 * i + 1, text, ha="center", va="center", color=color)
    for i, name in enumerate(names):
        axes.annotate(
            labels[name], (0, 2 * i), (2, 0), ("axes fraction", "data"), textcoords="offset points", va="center"
        )
    axes.set_xticks(range(len(columns)), [peers[p].replace(" ", "\n") for p in columns])
    axes.tick_params(length=0, top=True, labeltop=True, bottom=False, labelbottom=False)
    axes.set_yticks([])
    axes.spines[:].set_visible(False)
    key = figure.colorbar(image, ax=axes, location="bottom", shrink=0.6, aspect=40, pad=0.01)
    key.set_ticks([-3, -2, -1, 0, 1, 2, 3], labels=["1/8", "1/4", "1/2", "1", "2", "4", "8"])
    key.outline.set_visible(False)
    key.set_label("time over that of fusedops: above 1, fusedops is faster")
    return figure


def roofline(run, labels, peers):
    """Each operation under the machine's limits, by its number, with a line down to its unfused form."""
    roof, work = run.get("roof"), run.get("work", {})
    table = {
        n: t for n, t in run["operation"].items() if "unfused" in t and n in work and n.startswith(tuple(FAMILIES))
    }
    if not roof or not table:
        return None
    figure, axes = _figure(7.2, 5 + 0.15 * -(-len(table) // 3))
    intensity = np.geomspace(0.3, 600, 200)
    slopes = sorted((int(size), rate) for size, rate in roof["bandwidth"].items())
    shown = slopes if len(slopes) <= len(LINES) else [slopes[0], slopes[2], slopes[-3], slopes[-1]]
    for (size, rate), style in zip(shown, LINES):
        of = f"{size >> 20} MB" if size >= 1 << 20 else f"{size >> 10} KB"
        y = np.minimum(roof["peak"], intensity * rate)
        axes.plot(intensity, y, style, color="#8a929c", linewidth=1.2, label=f"passes over {of}: {rate:.0f} GB/s")
    reached, names = [], []
    for number, (name, times) in enumerate(table.items(), 1):
        family, color = FAMILIES[next(prefix for prefix in FAMILIES if name.startswith(prefix))]
        flop, traffic = work[name]
        rates = [flop / us * 1e-3 for us in (times["unfused"], min(times["fused"], times.get("block", times["fused"])))]
        axes.plot([flop / traffic] * 2, rates, color=color, linewidth=1)
        axes.plot(flop / traffic, rates[1], "o", color=color, markersize=5, label=family)
        axes.annotate(str(number), (flop / traffic, rates[1]), (3, 2), textcoords="offset points", fontsize=6)
        names.append(f"{number}  {labels.get(name, name)}")
        reached += rates
    axes.set(xscale="log", yscale="log", xlabel="operations for each byte of inputs, weights and results")
    axes.set(ylabel="GFLOP/s", ylim=(0.7 * min(reached), 1.4 * max(roof["peak"], *reached)))
    axes.axhline(roof["peak"], color="#8a929c", linewidth=1.2)
    axes.text(0.3, roof["peak"] * 1.05, f"multiply-adds: {roof['peak']:.0f} GFLOP/s", va="bottom", fontsize=8)
    _plain(axes.xaxis, _powers(0.3, 700))
    _plain(axes.yaxis, _powers(*axes.get_ylim()))
    axes.grid(linewidth=0.4)
    handles = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    figure.legend(handles.values(), handles, loc="outside upper center", ncols=4, fontsize=8)
    empty = [axes.plot([], [], " ")[0] for _ in names]  # a key of text alone
    figure.legend(empty, names, loc="outside lower center", ncols=3, fontsize=6, handlelength=0, handletextpad=0)
    return figure


def sizes(run, labels, peers):
    """GFLOP/s over the sizes of a few operations."""
    if not run.get("size"):
        return None
    figure, axes = _figure(7.2, 3.8)
    points = sorted({int(size) for rates in run["size"].values() for size in rates})
    for (sweep, rates), color in zip(run["size"].items(), ("#4e8fce", "#d95f02", "#8d86cf", "#1b9e77")):
        axes.plot([int(n) for n in rates], list(rates.values()), ".-", color=color, label=sweep)
    if run.get("roof"):
        axes.axhline(run["roof"]["peak"], color="#8a929c", linestyle="--", linewidth=1, label="multiply-add peak")
    axes.set(xscale="log", xlabel="n, or the side of the image", ylabel="GFLOP/s", ylim=(0, None))
    _plain(axes.xaxis, [v for v in (4, 8, 16, 32, 64, 128, 256, 512, 1024) if points[0] <= v <= points[-1]])
    axes.grid(linewidth=0.4)
    figure.legend(loc="outside upper center", ncols=3, fontsize=8)
    return figure


def scaling(run, labels, peers):
    """The speed of more threads, and of larger batches."""
    if not run.get("threads") and not run.get("batch"):
        return None
    figure, (threads, batches) = _figure(9, 3.8, 2)
    for axes, kind, title, gain in (
        (threads, "threads", "threads", lambda first, us, n: first / us),
        (batches, "batch", "batch", lambda first, us, n: n * first / us),
    ):
        counts = set()
        for name, times in run.get(kind, {}).items():
            points = {int(n): us for n, us in times.items()}
            axes.plot(list(points), [gain(points[1], us, n) for n, us in points.items()], ".-", label=labels[name])
            counts |= points.keys()
        axes.set(xscale="log", xlabel=title)
        axes.grid(linewidth=0.4)
        _plain(axes.xaxis, sorted(counts))
        if counts:
            axes.legend(fontsize=7)
    counts = sorted({int(n) for times in run.get("threads", {}).values() for n in times})
    threads.plot(counts, counts, "--", color="#8a929c")
    for axes in (threads, batches):
        axes.set_ylim(0, 1.05 * axes.dataLim.y1 if axes.lines else 1)
    threads.set_ylabel("speed, one thread = 1")
    batches.set_ylabel("speed an item, batch 1 = 1")
    return figure


CHARTS = {f.__name__: f for f in (speed, gain, every_gain, peer_table, roofline, sizes, scaling)}


def told(chart, run, labels, peers):
    """What a chart shows, in words, for those who do not see it."""
    if chart in ("speed", "peer_table"):
        rows = {n: t for n, t in run["peer"].items() if n in FRONT and "fusedops" in t and _others(t)}
        best = {labels[n]: min(_others(t).values()) / t["fusedops"] for n, t in rows.items()}
        return "Time of the fastest other library over that of fusedops: " + _listed(best)
    if chart in ("gain", "every_gain"):
        rows = {n: t for n, t in (run["operation"] | run["network"]).items() if n in FRONT and "unfused" in t}
        gains = {labels[n]: t["unfused"] / min(t["fused"], t.get("block", t["fused"])) for n, t in rows.items()}
        return "Speed of the fused form over the unfused one: " + _listed(gains)
    return (CHARTS[chart].__doc__ or "").splitlines()[0]


def _listed(ratios):
    return ", ".join(f"{name} {ratio:.2f}" for name, ratio in ratios.items())
