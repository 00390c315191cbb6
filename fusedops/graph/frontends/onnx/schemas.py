"""What ONNX says of its operators: how many inputs and outputs they have, and which attributes. ``schemas.txt`` has a
line for each version of one that differs from the one before, which docs/schemas.py writes."""

import functools
import os

MANY = 1 << 31  # inputs or outputs: any number
TYPES = ".fistgFISTGpPyY"  # a letter for each type of attributes, by AttributeProto's numbers
_NAMES = [
    "nothing",
    "a number",
    "an integer",
    "a text",
    "a tensor",
    "a graph",
    "numbers",
    "integers",
    "texts",
    "tensors",
    "graphs",
]


@functools.cache
def _lines():
    with open(os.path.join(os.path.dirname(__file__), "schemas.txt"), encoding="utf-8") as f:
        lines = f.read().splitlines()[1:]
    found = {}
    for line in lines:
        found.setdefault(line[: line.index(" ")], []).append(line)
    return found


@functools.lru_cache(1000)
def _schema(op, opset):
    """(counts, {attribute: its type}, attributes that must be there) of an operator; None where it is not known."""
    words = None
    for line in _lines().get(op, ()):
        found = line.split()
        if int(found[1]) <= opset:
            words = found
    if words is None or words[2] == "deprecated":
        return None
    attributes, needed = {}, []
    for word in words[6:]:
        name, kind = word[:-2], word[-1]
        attributes[name] = TYPES.index(kind)
        if word[-2] == ":":
            needed.append(name)
    return [MANY if n == "*" else int(n) for n in words[2:6]], attributes, needed


def check(node, opset):
    """ValueError where a node is none of its operator in this opset. Operators that are not known may be anything; the
    value of a Constant is checked as it is read."""
    schema = _schema(node.op, opset)
    if schema is None or node.op == "Constant":
        return
    (fewest, most, fewest_outputs, most_outputs), attributes, needed = schema
    if not fewest <= len(node.inputs) <= most:
        raise _wrong_count(node, "inputs", len(node.inputs), fewest, most)
    if not fewest_outputs <= len(node.outputs) <= most_outputs:
        raise _wrong_count(node, "outputs", len(node.outputs), fewest_outputs, most_outputs)
    for a in node.attributes:
        _check_attribute(node, a, attributes.get(a.name))
    if needed:
        given = {a.name for a in node.attributes}
        missing = [name for name in needed if name not in given]
        if missing:
            raise ValueError(f"{_named(node)} has no attribute {missing[0]!r}")


def _wrong_count(node, what, given, least, most):
    takes = f"{least}" if least == most else f"at least {least}" if most >= MANY else f"{least} to {most}"
    had = f"{given} {what[:-1] if given == 1 else what}"
    return ValueError(f"{_named(node)} has {had}, where {node.key[1]} has {takes}")


def _check_attribute(node, a, kind):
    """ValueError where a node has an attribute that its operator does not have, or, where it has one of this kind,
    another."""
    if kind is None and not a.name.startswith("__"):  # which exporters keep notes in
        raise ValueError(f"{_named(node)} has an attribute {a.name!r}, which {node.key[1]} does not have")
    if kind is not None and a.type not in (kind, 0):  # 0: what reads it says so
        raise ValueError(
            f"the attribute {a.name!r} of {_named(node)} is {_kind(a.type)}, where {node.key[1]} has {_kind(kind)}"
        )


def _named(node):
    return f"node {node.name!r} ({node.key[1]})" if node.name else f"a node of {node.key[1]}"


def _kind(number):
    return _NAMES[number] if 0 <= number < len(_NAMES) else f"of type {number}"
