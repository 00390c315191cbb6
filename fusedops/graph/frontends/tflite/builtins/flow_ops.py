"""Subgraphs that operators call, and variables that keep their values from call to call."""

import numpy as np

from ....ir.graph import Node, unique
from .entry import Builtin

UNROLLED = 4096  # operators of a loop whose rounds are known, read one after the other


def _condition(r, held, op):
    value = r.value(held)
    if (r.sizes(held) or ()) not in ((), (1,)):
        raise op.error(f"its condition has shape {r.sizes(held)}, but must have one element")
    return value


def _if(r, op):
    """A branch that is known takes the operator's place."""
    condition, given = op.inputs[0], op.inputs[1:]
    branches = dict(then_branch=op.option("ThenSubgraphIndex"), else_branch=op.option("ElseSubgraphIndex"))
    known = r.array(condition)
    if known is not None:
        key = "then_branch" if np.all(known) else "else_branch"
        op.outputs = _matched(op, r.subgraph(branches[key], given))
        return
    inputs, attrs = [_condition(r, condition, op)], {}
    for key, index in branches.items():
        child = r.child()
        held = [child.formal(r, h) for h in given]
        results = _matched(op, child.subgraph(index, [h for h, _ in held]))
        taken = [outside for _, outside in held if outside]
        child.finish([child.value(h, real=False) for h in results], len(taken))
        attrs[key] = child.graph
        inputs += taken
    _put(r, op.outputs, _add(r, "If", inputs, len(op.outputs), attrs))


def _matched(op, results):
    if len(results) != len(op.outputs):
        raise op.error(f"a subgraph gives {len(results)} results, the operator has {len(op.outputs)}")
    return results


def _add(r, kind, inputs, count, attrs):
    outputs = [r.fresh(r.at) for _ in range(count)]
    r.add(Node(kind, unique(r.at, r.names), inputs, list(outputs), attrs))
    return outputs


def _put(r, helds, values):
    for held, value in zip(helds, values, strict=True):
        r.put(held, value, real=False)


def _while(r, op):
    """Rounds that are known are read one after the other; else a Loop, whose body ends with the next condition."""
    condition, body = op.option("CondSubgraphIndex"), op.option("BodySubgraphIndex")
    results = _unrolled(r, op, condition, body)
    if results is not None:
        op.outputs = _matched(op, results)
    else:
        _loop(r, op, condition, body)


def _loop(r, op, condition, body):
    first = _condition(r, r.subgraph(condition, op.inputs)[0], op)
    child, helds = _body(r, op, condition, body, set())
    if changed := _changed(r, op, child):
        child, helds = _body(r, op, condition, body, changed)
    formal = [held.forms[False, False] for held, _ in helds]
    ends = [child.value(h, real=False) for h in child.ends]
    carried = [i for i, v in enumerate(ends) if v != formal[i]]
    others = [i for i, (_, outside) in enumerate(helds) if i not in carried and outside]
    names = {v.name: v for v in child.graph.inputs}
    child.graph.inputs = [*child.graph.inputs[:2], *(names[formal[i]] for i in (*carried, *others))]
    child.finish([child.flag, *(ends[i] for i in carried)], len(others))
    values = {i: r.value(h, real=False) for i, h in enumerate(op.inputs)}
    inputs = ["", first, *(values[i] for i in (*carried, *others))]
    made = dict(zip(carried, _add(r, "Loop", inputs, len(carried), {"body": child.graph}), strict=True))
    _put(r, op.outputs, [made.get(i, values[i]) for i in range(len(op.outputs))])


def _changed(r, op, child):
    """The values of a loop whose shapes differ from round to round."""
    before = [r.fixed(h) for h in op.inputs]
    return {i for i, h in enumerate(child.ends) if before[i] is not None and child.fixed(h) != before[i]}


def _body(r, op, condition, body, changed):
    """(the reader of a Loop's body, (formal, outside) of each value that it takes)."""
    child = r.child()
    for name, dtype in (("round", np.int64), ("going", np.bool_)):
        child.add_input(op.outputs[0].tensor._replace(dtype=np.dtype(dtype), quantization=None), child.fresh(name), ())
    helds = [child.formal(r, h, constant=False, shape=i not in changed) for i, h in enumerate(op.inputs)]
    child.ends = _matched(op, child.subgraph(body, [h for h, _ in helds]))
    child.flag = _condition(child, child.subgraph(condition, child.ends)[0], op)
    return child, helds


def _unrolled(r, op, condition, body):
    """The results of a loop whose conditions constants alone make, as they count; None where they do not, or where the
    rounds are many."""
    start, before, states = len(r.graph.nodes), r.counter[0], dict(r.states)
    forms = [dict(h.forms) for h in op.inputs]
    values = list(op.inputs)
    while r.counter[0] - before <= UNROLLED:
        (flag,) = r.subgraph(condition, values)[:1]
        known = r.array(flag)
        if known is None:
            break
        if not np.all(known):
            return values
        values = _matched(op, r.subgraph(body, values))
    del r.graph.nodes[start:]
    r.states = states
    for held, known in zip(op.inputs, forms, strict=True):
        held.forms = known
    return None


def _call(r, op):
    index = op.option("Subgraph" if op.kind == "CALL" else "DecompositionSubgraphIndex")
    op.outputs = _matched(op, r.subgraph(index, op.inputs))


def _call_once(r, op):
    """Gives variables the values that they have at first."""
    index = op.option("InitSubgraphIndex")
    if index not in r.called_once:
        r.called_once.add(index)
        before, r.initial = r.initial, True
        r.subgraph(index, [])
        r.initial = before


# ---- variables


def _var_handle(r, op):
    key = (op.option("Container") or b"", op.option("SharedName") or b"") if op.options is not None else op.name
    op.outputs[0].handle = str(key)


def _variable(r, op):
    key = op.inputs[0].handle
    if key is None:
        raise op.error("its first input is not a variable")
    return key


def _assign_variable(r, op):
    key, held = _variable(r, op), op.inputs[1]
    tensor = held.tensor
    if r.initial:
        first = r.array(held)
        if first is None:
            raise op.error("the value that a variable has at first is computed: fusedops takes one that is constant")
        r.variables[key] = first, tensor
        return
    value = r.value(held, real=False)
    if key not in r.variables:
        sizes = r.fixed(held)
        if sizes is None:
            raise op.error("a variable of an open size: convert it with fixed sizes")
        r.variables[key] = np.zeros(sizes, tensor.dtype), tensor
    r.write(_state(r, key), value)


def _state(r, key):
    """The name of the state that a variable is."""
    if r.nested:
        raise ValueError("the network reads or writes a variable inside a loop or branch: fusedops does not have that")
    first, tensor = r.variables[key]
    if key not in r.resources:
        r.resources[key] = r.state(tensor, f"variable {len(r.resources)}", first).handle
    return r.resources[key]


def _read_variable(r, op):
    key = _variable(r, op)
    if key not in r.variables:
        raise op.error("it reads a variable that nothing has given a value")
    name = _state(r, key)
    held = op.outputs[0]
    _, tensor = r.variables[key]
    held.tensor = held.tensor._replace(dtype=tensor.dtype, quantization=held.tensor.quantization or tensor.quantization)
    r.put(held, r.states[name][1], real=False)


_LOOP = "rounds that are known are unrolled, others are a network of their own"
READERS = {
    "ASSIGN_VARIABLE": Builtin(_assign_variable),
    "CALL": Builtin(_call),
    "CALL_ONCE": Builtin(_call_once),
    "IF": Builtin(_if, "a branch that is known takes its place"),
    "READ_VARIABLE": Builtin(_read_variable),
    "STABLEHLO_COMPOSITE": Builtin(_call, "as the subgraph that it names"),
    "VAR_HANDLE": Builtin(_var_handle),
    "WHILE": Builtin(_while, _LOOP),
}
