"""What the logger ``fusedops`` says of plans."""

import logging

from ..planner import leftovers

LOGGER = logging.getLogger("fusedops")


def planned(graph, plan, shapes, seconds):
    """Says that a plan was made, and which of its nodes NumPy computes and why."""
    sizes = ", ".join(map(str, shapes))
    if plan.segmented:
        LOGGER.info("planned for %s in segments, whose shapes depend on data (%.1f ms)", sizes, 1e3 * seconds)
    else:
        LOGGER.info("planned for %s: %d steps, %d bytes (%.1f ms)", sizes, len(plan.steps), plan.arena, 1e3 * seconds)
    for node in leftovers.by_numpy(graph, plan, {}):
        LOGGER.info("%s %s is computed by NumPy: %s", node.operator, node.node, node.reason)
