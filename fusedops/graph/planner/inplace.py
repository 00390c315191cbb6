"""Element-wise steps that work in place: the result continues the memory of an input that nothing reads afterwards."""

from ... import _core

_KINDS = {name for name, kind in _core.STEPS.items() if kind.in_place}


def run(p):
    for i, step in enumerate(p.steps):
        if step.kind in _KINDS and _may_write_over(step, i):
            a, b = step.reads[0].buffer.root(), step.writes[0].buffer
            b.shares, a.last = a, b.last


def _may_write_over(step, i):
    """Whether the i-th step may write its result over its first operand."""
    x, y = step.reads[0], step.writes[0]
    a, b = x.buffer.root(), y.buffer
    ends_here = a.last == i and b.first == i
    if not (ends_here and a.in_arena() and b.in_arena() and a is not b):
        return False
    alone = all(t is x or t.buffer.root() is not a or t.strides == x.strides for t in step.reads)
    return alone and x.whole() and y.whole() and x.strides == y.strides
