"""The golden tables next to this file: what this build answers, compared with them.

    python tests/golden/make.py             rows that differ; the exit code is 1 if any does
    python tests/golden/make.py --write     writes the tables anew; columns of sets that this machine lacks stay
    python tests/golden/make.py --ran       the kernel variants that the cases run, by name

The kernel variants need a build with FUSEDOPS_TRACE=1. A column of bits is an instruction set, with the caches of
MACHINE below, for the choice of an algorithm depends on them; one of decisions is a machine
(tests/support/machines.py), or the set of one that is not among them. A cell that is empty is not compared: the set
does not multiply as the case says, or no machine that has both has written it yet. FUSEDOPS_EMULATE_AVX512=1
(setup.py) fills AVX-512's.
"""

import argparse
import csv
import os
import sys
from hashlib import sha256
from pathlib import Path

HERE = Path(__file__).resolve().parent
if __name__ == "__main__":
    os.environ.pop("FUSEDOPS_MACHINE", None)  # this process is several
    sys.path[:0] = [str(HERE), str(HERE.parent / "support")]

import numpy as np

import fusedops as fo
from fusedops import _core
from machines import MACHINES

MACHINE = dict(l1=32 << 10, l2=512 << 10, l3=32 << 20, half_rate=False)
# The columns of each table: an instruction set and a machine.
SETS = {
    "scalar": ("scalar", MACHINE),
    "avx2": ("avx2", MACHINE),
    "avx512": ("avx512", MACHINE),
    "avx512_half_rate": ("avx512", MACHINE | {"half_rate": True}),
    "neon": ("neon", MACHINE),
}
OF_MACHINES = {
    "scalar": ("scalar", MACHINE),
    **{name: (("scalar", "avx2", "avx512")[m["sets"] - 1], m) for name, m in MACHINES.items()},
    "neon": ("neon", MACHINE),
}
COLUMNS = {"bits": SETS, "decisions": OF_MACHINES}


def available(columns=SETS):
    """The columns that this machine can fill."""
    return [name for name, (isa, _) in columns.items() if isa in fo.available_isas()]


def use(isa, machine):
    """Makes this process that machine, whose instructions are still this one's: no table asks for more."""
    _core.set_machine(**{field: machine[field] for field in MACHINE})
    fo.set_isa(isa)


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
            use(*SETS[column])
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
    for column in available(OF_MACHINES):
        use(*OF_MACHINES[column])
        for name, answer in answers():
            table.setdefault(name, {})[column] = answer
    return table


TABLES = {"bits": bits, "decisions": decisions}


def read(path):
    if not path.exists():
        return {}
    with path.open(newline="") as file:
        return {row.pop("case"): row for row in csv.DictReader(file)}


def write(path, columns, table, known):
    with path.open("w", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(["case", *columns])
        rows.writerows(
            [name, *((known.get(name, {}) | row).get(c, "") for c in columns)] for name, row in table.items()
        )


def differences(table, known):
    """Lines that say what differs."""
    lines = [f"{name}: in the table, but no case" for name in known.keys() - table.keys()]
    lines += [f"{name}: a case, but not in the table" for name in table.keys() - known.keys()]
    lines += [
        f"{name}, {column}: {known[name][column]} -> {cell}"
        for name in table.keys() & known.keys()
        for column, cell in table[name].items()
        if known[name].get(column, "") not in ("", cell)
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
        print(
            *lines, f"{name}: {len(table)} rows on {', '.join(available(COLUMNS[name]))}, {len(lines)} differ", sep="\n"
        )
        if options.write:
            write(path, COLUMNS[name], table, known)
        failed |= bool(lines) and not options.write
    if failed:
        print(f"If these changes are wanted: python {os.path.relpath(__file__)} --write, and the commit says why")
    return failed


if __name__ == "__main__":
    sys.exit(main())
