"""What fusion and the kernels leave of a network: nodes that NumPy computes, and activations that are passes of their
own."""

from ..ir.explanation import Evaluated, Refusal, operator_of
from ..operators.registry import OPERATORS
from ..operators.schema import NumPyOnly


def by_numpy(graph, plan, shares):
    """The nodes that NumPy computes, by their steps where there is a plan. Without one, or after its first segment,
    those that never have a kernel. `shares` are the parts of the time of nodes, by name, as far as they are known."""
    segmented = plan is None or plan.segmented
    numpy = [step for step in plan.steps if step.kind == "numpy"] if plan is not None else []
    steps = {(s.node.name, s.node.op): s for s in numpy}  # also checks of what goes into a node, under its name
    if plan is not None and plan.segmented and plan.node is not None:
        steps[plan.node.name, plan.node.op] = None
    found = []
    for node in graph.nodes:
        record = OPERATORS[node.op]
        kernel = record.kernel
        never = isinstance(kernel, NumPyOnly)
        key = node.name, node.op
        if key in steps or segmented and never and not record.inference.shape_only:
            reason = kernel.why if isinstance(kernel, NumPyOnly) else _why(kernel, steps.get(key))
            found.append(Evaluated(node.name, operator_of(node), reason, shares.get(node.name)))
    return found


def _why(kernel, step):
    """Why a node of an operator that has kernels has none."""
    made = next((t.dtype for t in step.writes if t is not None), None) if step is not None else None
    if made is not None and made not in kernel.dtypes:
        return f"its result is {made}, but the kernels make {', '.join(sorted(map(str, kernel.dtypes)))}"
    return f"kernels are for: {kernel.note}" if kernel.note else "no kernel takes it in this form"


def activations(graph, report, fused):
    """The activations that nothing absorbed, each with the reason; `fused`: whether the pass that would was to run."""
    refused = {r.node: r.reason for r in report if isinstance(r, Refusal)}
    producers = graph.producers()
    return [
        Refusal(
            "epilogue", node.name, refused.get(node.name) or _alone(graph, node, producers, fused), operator_of(node)
        )
        for node in graph.nodes
        if node.op in ("Activation", "PRelu")
    ]


def _alone(graph, node, producers, fused):
    """Why an activation was not applied where its operand is made."""
    if not fused:
        return "fusion of activations is switched off"
    v = node.inputs[0]
    into = producers.get(v)
    if into is None:
        return f"{v} is {'an input' if v not in graph.constants else 'a constant'} of the network"
    if "activation" not in OPERATORS[into.op].kernel.fuses:
        return f"the steps of {operator_of(into)} {into.name} apply no activation"
    if node.op == "PRelu":
        return "its slopes are not one constant, or one for each channel"
    return f"{operator_of(into)} {into.name} makes no float32 that it could be applied to"
