"""Writes the table of operators in networks.md from their records: ``python docs/operators.py`` after one was added
or changed."""

from pathlib import Path

import onnx

from fusedops.graph.operators.registry import RECORDS, Absent, Operator
from fusedops.graph.operators.schema import Kernel

PAGE = Path(__file__).with_name("networks.md")
BEGIN, END = "<!-- made by docs/operators.py -->\n", "<!-- end of the table -->\n"


def names():
    """Operators of files: ONNX's own, as long as it did not withdraw them, and those of com.microsoft and others
    that have a record."""
    defined = {s.name for s in onnx.defs.get_all_schemas() if s.domain == "" and not s.deprecated}
    internal = {name for name, record in RECORDS.items() if isinstance(record, Operator) and record.read is None}
    return sorted(defined | (set(RECORDS) - internal), key=str.lower)


def computed_by(name):
    """(order of the row, what it says)."""
    record = RECORDS.get(name)
    if record is None:
        schema = onnx.defs.get_schema(name)
        return (
            (3, "ONNX's own function")
            if schema.has_function or schema.has_context_dependent_function
            else (9, "nothing")
        )
    if isinstance(record, Absent):
        return 5, f"nothing: {record.why}"
    if not isinstance(record, Operator):
        return 2, "other operators, as which it is read"
    kernel = record.kernel
    if isinstance(kernel, Kernel):
        return (1, f"kernels: {kernel.note}") if kernel.note else (0, "kernels")
    return 4, f"NumPy: {kernel.why}"


def table():
    rows = {}
    for name in names():
        rows.setdefault(computed_by(name), []).append(f"`{name}`")
    lines = ["| computed by | operators |", "|---|---|"]
    return (
        "\n".join([*lines, *(f"| {what} | {', '.join(found)} |" for (_, what), found in sorted(rows.items()))]) + "\n"
    )


def page():
    """The page with the table as it should be."""
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    return before + BEGIN + "\n" + table() + "\n" + END + rest.partition(END)[2]


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
