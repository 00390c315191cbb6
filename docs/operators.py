"""Writes the tables of operators in operators.md, of ONNX, TFLite and PyTorch, from their records: ``python
docs/operators.py`` after one was added or changed."""

from pathlib import Path

import onnx
import tflite

from fusedops.graph.frontends.tflite.builtins import BUILTINS, why_absent
from fusedops.graph.frontends.torch.aten import FAMILIES
from fusedops.graph.operators.registry import RECORDS, Absent, Operator
from fusedops.graph.operators.schema import Kernel

PAGE = Path(__file__).with_name("operators.md")
BEGIN, END = "<!-- made by docs/operators.py: {} -->\n", "<!-- end of the table -->\n"
NO_OPERATORS = "CUSTOM", "PLACEHOLDER_FOR_GREATER_OP_CODES"


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


def _listed(heading, names, row):
    """A table of the names by what `row` says of each."""
    rows = {}
    for name in names:
        rows.setdefault(row(name), []).append(f"`{name}`")
    lines = [f"| {heading} | operators |", "|---|---|"]
    return (
        "\n".join([*lines, *(f"| {what} | {', '.join(found)} |" for (_, what), found in sorted(rows.items()))]) + "\n"
    )


def table():
    return _listed("computed by", names(), computed_by)


def tflite_names():
    """The schema's operators, and the custom ones that have a reader."""
    schema = {name for name, n in vars(tflite.BuiltinOperator).items() if isinstance(n, int)}
    return sorted(schema.difference(NO_OPERATORS).union(BUILTINS), key=lambda name: name.strip("'").lower())


def tflite_row(name):
    """(order of the row, what it says)."""
    if name not in BUILTINS:
        return 2, f"refused: {why_absent(name)}"
    note = BUILTINS[name].note
    return (1, note) if note else (0, "read")


def tflite_table():
    custom = _listed("TFLite", tflite_names(), tflite_row)
    return custom.replace("`'", "`").replace("'`", "`")


def torch_table():
    """The functions of torch.ops.aten that have a reader, in families; those of its own begin with "_"."""
    rows = {}
    for family in FAMILIES:
        what = " ".join(family.__doc__.split()).partition(". ")[0].rstrip(".").partition(":")[0]
        names = {name.removeprefix("complex ") for name in family.READERS}
        rows[what] = sorted((n for n in names if n[0] != "_" and n.isidentifier()), key=str.lower)
    lines = [f"| {what} | {', '.join(f'`{n}`' for n in names)} |" for what, names in rows.items()]
    return "\n".join(["| PyTorch | operators |", "|---|---|", *lines]) + "\n"


def page():
    """The page with the tables as they should be."""
    text = PAGE.read_text(encoding="utf-8")
    for name, made in (("ONNX", table()), ("TFLite", tflite_table()), ("PyTorch", torch_table())):
        begin = BEGIN.format(name)
        before, _, rest = text.partition(begin)
        text = before + begin + "\n" + made + "\n" + END + rest.partition(END)[2]
    return text


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
