"""Writes what ONNX says of its operators' inputs, outputs and attributes, for the check of files that are read without
the onnx package: ``python docs/schemas.py`` with another version of it."""

from pathlib import Path

import onnx

import fusedops.graph.frontends.onnx
from fusedops.graph.frontends.onnx.model_file import OPSETS
from fusedops.graph.frontends.onnx.schemas import MANY, TYPES

FILE = Path(fusedops.graph.frontends.onnx.__file__).with_name("schemas.txt")


def count(n):
    return "*" if n >= MANY else str(n)


def described(schema):
    """The counts and attributes of one version of an operator."""
    if schema.deprecated:
        return "deprecated"
    counts = schema.min_input, schema.max_input, schema.min_output, schema.max_output
    attributes = (
        f"{name}{':' if a.required else '='}{TYPES[a.type.value]}" for name, a in sorted(schema.attributes.items())
    )
    return " ".join([*map(count, counts), *attributes])


def text():
    """A line for each version of an operator that differs from the one before."""
    found = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain in ("", "ai.onnx.ml"):
            name = f"{schema.domain}.{schema.name}" if schema.domain else schema.name
            found.setdefault(name, {})[schema.since_version] = described(schema)
    lines = [f"# onnx {onnx.__version__}, by docs/schemas.py: operator, opset, inputs, outputs, attributes"]
    for name, versions in sorted(found.items()):
        first = max((v for v in versions if v <= OPSETS[0]), default=0) if "." not in name else 0
        before = None
        for version in sorted(versions):
            if version >= first and versions[version] != before:
                before = versions[version]
                lines.append(f"{name} {version} {before}")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    FILE.write_text(text())
