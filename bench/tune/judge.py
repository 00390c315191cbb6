"""How good the choices of the cost model (csrc/conv/cost.c) are, by the recorded times of all algorithms.

    python -m bench.tune.judge                  every file of this folder
    python -m bench.tune.judge zen4.csv -v      and each shape that loses 5 % and more
    python -m bench.tune.judge --most 1.02      fails where a mean is above

For each set and memory order: the time of what this build chooses over that of the best, as a geometric mean, and how
many shapes lose 5 % and 15 %. A time is the geometric mean of a warm and a cold call. Nothing is measured here, so a
change of the model can be judged for processors that are not at hand. Their caches and rates are in MACHINES.
"""

import argparse
import csv
import math
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import fusedops as fo

from .measure import made

HERE = Path(__file__).resolve().parent
MACHINES = {
    "zen4.csv": "l1=32768,l2=1048576,l3=33554432,half_rate=1",
    "zen5.csv": "l1=49152,l2=1048576,l3=33554432,half_rate=0",
}
SHAPE = ("ic", "ih", "iw", "oc", "kh", "kw", "stride", "groups")


def read(path):
    """{(set, layout, *shape): {algorithm: microseconds}}; "other" is what no algorithm's name asks for."""
    table = defaultdict(dict)
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            key = (row["set"], row["layout"], *(int(row[name]) for name in SHAPE))
            table[key][row["algorithm"]] = math.sqrt(float(row["warm"]) * float(row["cold"]))
    return table


def chosen(key):
    """The algorithm that this build takes, as the files name it."""
    isa, layout, *shape = key
    fo.set_isa(isa)
    x, found = made(tuple(shape), layout)
    kernel = found["auto"].kernel(x.shape)[0]
    for name, layer in found.items():
        if name != "auto" and layer.kernel(x.shape)[0] == kernel:
            return name
    return "other"


def losses(table):
    """{(set, layout): [(time of the choice over the best, shape, the choice, the best)]}"""
    found = defaultdict(list)
    for key, times in table.items():
        if key[0] not in fo.available_isas():
            continue
        best, choice = min(times, key=times.get), chosen(key)
        if choice in times:
            found[key[:2]].append((times[choice] / times[best], key[2:], choice, best))
    return found


def show(path, verbose):
    """Prints the table of a file; returns the worst mean."""
    worst = 1
    print(f"{path.name}: {MACHINES[path.name]}")
    for (isa, layout), rows in losses(read(path)).items():
        mean = math.exp(sum(math.log(loss) for loss, *_ in rows) / len(rows))
        worst = max(worst, mean)
        print(
            f"  {isa:7} {layout}: {len(rows)} shapes, {mean:.3f} of the best time, "
            f"{sum(r[0] > 1.05 for r in rows)} lose 5 %, {sum(r[0] > 1.15 for r in rows)} lose 15 %"
        )
        for loss, shape, choice, best in sorted(rows, reverse=True) if verbose else ():
            if loss > 1.05:
                words = " ".join(f"{name}={value}" for name, value in zip(SHAPE, shape, strict=True))
                print(f"    {loss:.2f} {choice} instead of {best}: {words}")
    return worst


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", help="default: all")
    parser.add_argument("-v", "--verbose", action="store_true")
    parser.add_argument("--most", type=float, default=math.inf)
    options = parser.parse_args()
    paths = [HERE / name for name in options.files] or sorted(HERE.glob("*.csv"))
    if len(paths) == 1 and os.environ.get("FUSEDOPS_MACHINE") == MACHINES[paths[0].name]:
        return show(paths[0], options.verbose) > options.most
    failed = False
    for path in paths:  # in a process each: the machine is read once
        again = [sys.executable, "-m", "bench.tune.judge", path.name, "--most", str(options.most)]
        environment = os.environ | {"FUSEDOPS_MACHINE": MACHINES[path.name]}
        failed |= subprocess.run(again + ["-v"] * options.verbose, env=environment).returncode != 0
    return failed


if __name__ == "__main__":
    sys.exit(main())
