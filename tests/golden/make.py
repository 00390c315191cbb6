"""The golden tables beside this file: what this build answers, compared with them.

    python tests/golden/make.py             rows that differ; the exit code is 1 if any does
    python tests/golden/make.py --write     writes the tables anew; columns of sets that this machine lacks stay
    python tests/golden/make.py --ran       the kernel variants that the cases run, by name

The kernel variants need a build with FUSEDOPS_TRACE=1. A column is an instruction set; a cell that is empty is not
compared: the set does not multiply as the case says, or no machine that has both has written it yet.
FUSEDOPS_EMULATE_AVX512=1 (setup.py) fills AVX-512's. Caches are those of the machine below, whatever this one has, for
the choice of an algorithm depends on them.
"""

import argparse
import csv
import os
import sys
from hashlib import sha256
from pathlib import Path

HERE = Path(__file__).resolve().parent
MACHINE = "l1=32768,l2=524288,l3=33554432,half_rate=0"
if __name__ == "__main__":
    os.environ["FUSEDOPS_MACHINE"] = MACHINE  # read once, at the first call
    sys.path[:0] = [str(HERE), str(HERE.parent / "support")]

import numpy as np

import fusedops as fo
from fusedops import _core

SETS = ("scalar", "avx2", "avx512", "avx512_half_rate", "neon")


def available():
    """The columns that this machine can fill."""
    return [s for s in SETS if s.removesuffix("_half_rate") in fo.available_isas()]


def use(name):
    fo.set_isa(name.removesuffix("_half_rate"))
    _core.set_half_rate(name.endswith("_half_rate"))


def digest(arrays):
    h = sha256()
    for a in arrays:
        h.update(str(a.shape).encode() + np.ascontiguousarray(a).tobytes())
    return h.hexdigest()[:8]


def bits():
    """{case: {set: hash of its results}}"""
    from bits import cases

    rows = run(cases(), available())
    return {
        name: {column: digest(arrays) for column, (arrays, _) in row.items() if arrays is not None}
        for name, row in rows
    }


def run(made, columns, threads=2):
    """(case, {set: its results and the names of the variants that ran}); without a trace no names."""
    from bits import Numbers

    fo.set_num_threads(threads)
    _core.variants()
    for name, case in made.items():
        row = {}
        for column in columns:
            use(column)
            row[column] = case(Numbers(name)), _core.variants()
        yield name, row


def variants():
    """The names of all variants that ran; AMX and the benchmark's convolutions run, too.

    One thread runs them, for which heights of tiles several take is chance; two only what Winograd's threads share.
    """
    from bits import benchmark, by_amx, cases

    vectors = [column for column in available() if column != "scalar"]
    alone = [*run(cases(), available(), threads=1), *run(by_amx() | benchmark(), vectors, threads=1)]
    rows = alone + [(name, row) for name, row in run(cases(), available()) if "winograd" in name]
    return {name for _, row in rows for _, names in row.values() for name in names}


def decisions():
    """{shape: {set: algorithm}}"""
    from decisions import answers

    table = {}
    for column in available():
        use(column)
        for name, answer in answers(column):
            table.setdefault(name, {})[column] = answer
    return table


TABLES = {"bits": bits, "decisions": decisions}


def read(path):
    if not path.exists():
        return {}
    with path.open(newline="") as file:
        return {row.pop("case"): row for row in csv.DictReader(file)}


def write(path, table, known):
    with path.open("w", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(["case", *SETS])
        rows.writerows([name, *((known.get(name, {}) | row).get(s, "") for s in SETS)] for name, row in table.items())


def differences(table, known):
    """Lines that say what differs."""
    lines = [f"{name}: in the table, but no case" for name in known.keys() - table.keys()]
    lines += [f"{name}: a case, but not in the table" for name in table.keys() - known.keys()]
    lines += [
        f"{name}, {column}: {known[name][column]} -> {cell}"
        for name in table.keys() & known.keys()
        for column, cell in table[name].items()
        if known[name][column] not in ("", cell)
    ]
    return sorted(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="*", default=list(TABLES), help=", ".join(TABLES))
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--ran", action="store_true")
    options = parser.parse_args()
    if options.ran:
        print(*sorted(variants()), sep="\n")
        return False
    failed = False
    for name in options.tables:
        path = HERE / f"{name}.csv"
        table, known = TABLES[name](), read(path)
        lines = differences(table, known)
        print(*lines, f"{name}: {len(table)} rows on {', '.join(available())}, {len(lines)} differ", sep="\n")
        if options.write:
            write(path, table, known)
        failed |= bool(lines) and not options.write
    if failed:
        print(f"If these changes are wanted: python {os.path.relpath(__file__)} --write, and the commit says why")
    return failed


if __name__ == "__main__":
    sys.exit(main())
