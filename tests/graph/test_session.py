"""Sessions alone: a graph made by hand, its plans, and what runs it."""

import gc
import weakref

import numpy as np
import pytest

import fusedops as fo
from fusedops.graph.inference.evaluate import Interpreter
from fusedops.graph.ir.graph import Graph, Node, Value
from fusedops.graph.quantization.quantizer import Options, quantize
from fusedops.graph.runtime.profiler import profile
from fusedops.graph.runtime.session import PLANS, Session

FLOAT = np.dtype(np.float32)
RNG = np.random.default_rng(0)


def net(n="n", k=8, m=6):
    """relu(x w^T + b) + x2, with an axis that is open or not."""
    w, b = RNG.standard_normal((m, k), np.float32), RNG.standard_normal(m, np.float32)
    nodes = [
        Node("Linear", "product", ["x", "w", "b"], ["h"], activation="relu"),
        Node("Add", "sum", ["h", "z"], ["y"]),
    ]
    inputs = [Value("x", (n, k), FLOAT), Value("z", (n, m), FLOAT)]
    return Graph(nodes, {"w": w, "b": b}, inputs, [Value("y", (n, m), FLOAT)], ["y"], 17)


def some(n, k=8, m=6):
    return tuple(RNG.standard_normal((n, size), np.float32) for size in (k, m))


def test_results_are_those_of_the_interpreter():
    graph = net()
    session = Session(graph)
    for n in (3, 1, 7, 3):
        (y,) = session.run(some(n) if n != 3 else (given := some(n)))
        assert y.shape == (n, 6)
    (expected,) = Interpreter().call(graph, given)
    np.testing.assert_allclose(session.run(given)[0], expected, rtol=1e-5, atol=1e-5)


def test_one_symbolic_plan_serves_all_sizes():
    session = Session(net())
    plans = [session.plan([(n, 8), (n, 6)])[0] for n in range(2, 9)]
    assert len({id(p.template) for p in plans[1:]}) == 1 and session.failures == 0, "the second size made it"
    assert session.plan([(4, 8), (4, 6)])[0] is plans[2]


def test_plans_are_kept_to_a_number():
    session = Session(net())
    for n in range(1, PLANS + 10):
        session.plan([(n, 8), (n, 6)])
    assert PLANS // 2 <= len(session._plans) <= PLANS


def test_a_fixed_graph_is_planned_when_it_is_made():
    session = Session(net(4))
    assert len(session._plans) == 1
    with pytest.raises(ValueError, match="the network takes x"):
        session.run(some(5))


def test_passes_leave_the_graph_that_they_are_given():
    graph = net()
    optimized, given = Session.optimized(graph), some(3)
    assert [n.op for n in optimized.graph.nodes] == ["Linear", "Add"] and graph.nodes[0] is not optimized.graph.nodes[0]
    np.testing.assert_array_equal(optimized.run(given)[0], Session(graph).run(given)[0])


def test_the_profiler_takes_a_session():
    session = Session(net())
    found = profile(session, None, session.take(some(3)), repeat=1)
    assert [layer.op for layer in found.layers] == ["Linear", "Add"] and found.layers[0].ms > 0


def test_quantization_takes_sessions():
    graph, told = net(k=512, m=512), []
    samples = [some(64, 512, 512) for _ in range(2)]
    options = Options.of("minmax", (), 10.0, 10.0, measure=False)
    made, report = quantize(Session(graph), Session.optimized, Session, samples, options, told.append)
    assert told[-1] == 1.0 and report.layers[0].node == "product"
    (y,), (z,) = (Session.optimized(g).run(samples[0]) for g in (graph, made))
    assert np.abs(y - z).max() <= 0.05 * np.abs(y).max()


def test_steps_that_sizes_leave_alone():
    """A new size takes them from the latest one; results are those of a session that sees that size alone."""
    graph = net()
    w = RNG.standard_normal((6, 8), np.float32)
    graph.constants["v"] = w
    graph.inputs.append(Value("one", (1, 8), FLOAT))
    graph.nodes.insert(1, Node("Linear", "same", ["one", "v"], ["s"], activation="tanh"))
    graph.nodes.append(Node("Mul", "product of both", ["y", "s"], ["t"]))
    graph.results, graph.outputs = ["t"], [Value("t", ("n", 6), FLOAT)]
    session, one = Session(graph), RNG.standard_normal((1, 8), np.float32)
    for n in (3, 5, 1, 40, 4, 0, 40, 7):
        given = (*some(n), one)
        np.testing.assert_array_equal(session.run(given)[0], Session(graph).run(given)[0])


def test_plans_that_leave_are_freed_at_once():
    """Without Python's collector, which a network that writes token by token would call again and again."""
    session = Session(net())
    for n in (1, 2, 3):
        session.run(some(n))
    (plan, _), gone = session._plans.popitem()[1], None
    gc.disable()
    try:
        gone = weakref.ref(plan)
        del plan
        assert gone() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("on", [True, False])
def test_collector_rests_while_a_network_is_read(on):
    seen = []
    (gc.enable if on else gc.disable)()
    try:
        with pytest.raises(ValueError, match="is not an ONNX model"):
            fo.load_onnx(b"no network", progress=lambda part: seen.append(gc.isenabled()))
        assert seen == [False]
        assert gc.isenabled() == on
    finally:
        gc.enable()


ZEROS = np.zeros((2, 8), np.float32)
REFUSED = {  # the step: a node, and its inputs with a value that it refuses
    "gather": (Node("Gather", "z", ["x", "i"], ["z"], {"axis": 0}), {"i": np.array([1, 9])}),
    "gather of elements": (Node("GatherElements", "z", ["x", "i"], ["z"], {"axis": 0}), {"i": np.full((2, 8), 9)}),
    "scatter": (Node("ScatterND", "z", ["x", "i", "u"], ["z"]), {"i": np.array([[1], [9]]), "u": ZEROS}),
    "scatter of elements": (
        Node("ScatterElements", "z", ["x", "i", "u"], ["z"], {"axis": 0}),
        {"i": np.full((2, 8), 9), "u": ZEROS},
    ),
    "roi_align": (
        Node("RoiAlign", "z", ["a", "boxes", "i"], ["z"], {"coordinate_transformation_mode": "half_pixel"}),
        {"a": np.ones((1, 4, 8, 8), np.float32), "boxes": np.float32([[0, 0, 4, 4]] * 2), "i": np.array([0, 5])},
    ),
    "grid_sample": (
        Node("GridSample", "z", ["a", "grid"], ["z"]),
        {"a": np.ones((1, 4, 0, 8), np.float32), "grid": np.zeros((1, 3, 3, 2), np.float32)},
    ),
    "grouped_matmul": (
        Node("GroupedMatMul", "z", ["x", "w", "ends"], ["z"]),
        {"w": np.ones((2, 8, 3), np.float32), "ends": np.array([3, 2])},
    ),
}


@pytest.mark.parametrize("step", REFUSED)
def test_an_error_of_a_value_leaves_out_alone(step):
    """Also what an earlier step computes."""
    node, more = REFUSED[step]
    given = {"x": np.ones((4, 8), np.float32)} | more
    inputs = [Value(name, a.shape, a.dtype) for name, a in given.items()]
    nodes, outputs = [Node("Exp", "y", ["x"], ["y"]), node], [Value(v, None, FLOAT) for v in "yz"]
    session = Session(Graph(nodes, {}, inputs, outputs, ["y", "z"], 18))
    plan, _ = session.plan_of(tuple(given.values()))
    assert step.split()[0] in {s.kind for s in plan.template.steps}
    out = [np.full(shape, 7, dtype) for shape, dtype in plan.outputs]
    for _ in range(2):
        with pytest.raises(ValueError, match="outside|do not rise|no pixels|in no image"):
            session.run(tuple(given.values()), out)
        assert all((a == 7).all() for a in out)
