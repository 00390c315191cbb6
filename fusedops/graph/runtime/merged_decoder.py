"""Decoders with two branches in one file, as optimum merges them: an `If` whose condition is an input, with a branch
that makes keys and values and one that takes those of the past.

The first call takes the first branch. Of what it makes, the caches of the second one grow from then on; what else the
second one takes, such as keys and values of another text, stays as the first call made it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..ir.subgraph import branch_of
from ..steps.caches import caches_of

if TYPE_CHECKING:
    from .session import Session


class FirstCall(NamedTuple):
    """What the first call of a merged decoder runs: `condition` is the number of the input that decides, and its value
    then and later; `kept` has the outputs that are inputs of later calls: {input: output}."""

    session: Session
    condition: int
    value: bool
    kept: dict[int, int]


def sessions(session: Session) -> tuple[Session, FirstCall | None]:
    """(the session that keeps its caches, what a merged decoder runs first) for that of a network."""
    caches = caches_of(session.graph)
    if caches:
        return session.keeping(caches), None
    numbers = {v.name: i for i, v in enumerate(session.graph.inputs)}
    for node in session.graph.nodes:
        if node.op == "If" and node.input(0) in numbers:
            for past in True, False:
                later = session.with_branches({node: branch_of(node, past)})
                caches = caches_of(later.graph)
                if caches:
                    first = session.with_branches({node: branch_of(node, not past)})
                    kept = _kept(later.graph, caches)
                    return later.keeping(caches), FirstCall(first, numbers[node.input(0)], not past, kept)
    raise ValueError("no input of the network comes back as an output with more rows after it: it has no caches")


def caches_of_calls(session: Session) -> dict[int, int]:
    """{input: output} of what calls of a network give and later ones take: its caches, and what a merged decoder keeps
    besides."""
    try:
        later, first = sessions(session)
    except ValueError:
        return {}
    return {c.input: c.output for c in later.caches} | ({} if first is None else first.kept)


def _kept(graph, caches):
    """{input: output} of names that are alike as those of caches are: past.0.cross.key, present.0.cross.key."""
    inputs, outputs = ([v.name for v in values] for values in (graph.inputs, graph.outputs))
    one = caches[0]
    old, new = _differing(inputs[one.input], outputs[one.output])
    own = {c.input for c in caches}
    pairs = {i: name.replace(old, new, 1) for i, name in enumerate(inputs) if old in name and i not in own}
    return {i: outputs.index(name) for i, name in pairs.items() if name in outputs}


def _differing(a, b):
    """The parts of two names before what they end with alike."""
    while a and b and a[-1] == b[-1]:
        a, b = a[:-1], b[:-1]
    return a, b
