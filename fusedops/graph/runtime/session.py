"""A graph that runs: its plans, kept by the shapes of its inputs, and the memory that calls share."""

from __future__ import annotations

import os
from collections import deque
from functools import partial
from itertools import count
from logging import INFO
from threading import Lock
from time import perf_counter
from typing import TYPE_CHECKING
from weakref import WeakSet

import numpy as np

from ... import _core
from ..._internal.collector import resting
from ..._internal.lazy import LazyModule
from ..inference.shape_inference import MAX_VALUES, infer, shape_inputs
from ..ir.float16_moves import keep_moved
from ..ir.float16_weights import narrow, widen
from ..ir.options import BuildOptions
from ..ir.subgraph import DataDependentShape, decisions, inlined
from ..ir.symbolic import Conditions, ShapeEnv
from ..passes.optimizer import optimize
from ..planner.plan import SymbolicPlan, batch_of
from ..steps.caches import caches_of
from ..steps.prepared import Prepared
from ..steps.tensor import working_memory
from . import destinations, plan_log
from .arguments import checked, with_inputs
from .loop_runner import Subgraphs

if TYPE_CHECKING:
    from . import lent_caches, profiler, segments
else:
    lent_caches = LazyModule(".lent_caches", __package__)
    profiler = LazyModule(".profiler", __package__)
    segments = LazyModule(".segments", __package__)

PLANS = 64  # kept at most; when one more comes, the half that was not used for longest leaves
CACHED_PLANS = 4  # for decoders: a length rarely repeats
SYMBOLIC_PLANS = 16  # made at most for inputs of as many axes
_sessions: WeakSet = WeakSet()


def _unlock():
    """In a forked child: a lock that a thread of the parent held would never be free."""
    for session in _sessions:
        session.unlock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_unlock)


class Session:
    """Runs a graph, from many threads at once. A plan is made for each set of input shapes; from the second set on, for
    all sizes of the open axes.

    Parameters
    ----------
    graph : Graph
    options : BuildOptions
        What is done to a branch that takes the place of its node, and the precision of all.
    inner : bool
        A graph inside a node, which takes inputs of any shape.
    layers : Prepared, optional
        Prepared layers, shared with another session of the graph.
    shared : WeakValueDictionary, optional
        Prepared layers of constants, shared with sessions of other graphs.
    subgraphs : Subgraphs, optional
        The sessions of graphs inside nodes, shared with another session.
    caches : list of Cache, optional
        Inputs and outputs that are one piece of memory, whose capacity a plan is told.

    Attributes
    ----------
    failures : int
        Symbolic plans that could not be made, as an operator takes plain ints alone: each new size is planned anew.
    """

    def __init__(
        self, graph, options=BuildOptions(), *, inner=False, layers=None, shared=None, subgraphs=None, caches=()
    ):
        self.graph, self.options, self.inner = graph, options, inner
        self.layers = Prepared(shared) if layers is None else layers
        self.subgraphs = subgraphs or Subgraphs(
            partial(Session, options=options, inner=True, shared=self.layers.shared)
        )
        self._plans, self._arenas, self._calls, self._lock = {}, deque(), count(), Lock()
        _sessions.add(self)
        self.shape_inputs, self._branching = set(shape_inputs(graph, inner)), any(n.op == "If" for n in graph.nodes)
        self._symbolic, self._planned_anew, self.failures = {}, 0, 0
        self._branches, self._decisions, self.caches = {}, {}, caches
        self._lent = None  # caches in memory of callers, from the first call with `out` on
        fixed = all(v.shape is not None and all(isinstance(n, int) for n in v.shape) for v in graph.inputs)
        self.fixed = fixed and not inner and not self.shape_inputs
        self._open = not fixed
        self._simple = not self.shape_inputs and all(v.dtype == np.float32 for v in graph.inputs)
        if self.fixed:
            self.plan([v.shape for v in graph.inputs])
        graph.known = {}

    @classmethod
    def optimized(cls, graph, options=BuildOptions()):
        """The session of a copy of a graph that went through all passes."""
        graph = graph.copy()
        widen(graph)
        optimize(graph, fold=True, fuse=True)
        return cls(graph, options)

    def unlock(self):
        self._lock = Lock()

    # ---- calls

    def run(self, arrays, out=None):
        """The results for a tuple of the inputs in order, as a list; `out` as :mod:`.destinations` takes it."""
        given = None if out is None else destinations.listed(out, self.graph.outputs)
        if given is not None:
            if self._lent is None:
                self._lent = lent_caches.LentCaches([] if self.caches or self._branching else caches_of(self.graph))
            results = self._lent.run(self, arrays, given, executed)
            if results is not None:
                return results
        found = self._simple and self._planned(arrays)
        if not found:
            arrays = self.take(arrays)
            found = self.plan_of(arrays)
        plan, arenas = found
        if given is not None:
            return _written(plan, arenas, arrays, given, self.graph.outputs)
        return segments.run(plan, arenas, arrays, executed) if plan.segmented else executed(plan, arenas, arrays)

    def run_into(self, arrays, new):
        """The results for a tuple of the inputs in order, in arrays that `new` makes of a shape and a dtype."""
        found = self._simple and self._planned(arrays)
        if not found:
            arrays = self.take(arrays)
            found = self.plan_of(arrays)
        plan, arenas = found
        if plan.segmented:  # shapes are known when all is computed
            results = segments.run(plan, arenas, arrays, executed)
            return destinations.deliver(results, [new(y.shape, y.dtype) for y in results])
        given = [new(shape, dtype) for shape, dtype in plan.outputs]
        return destinations.deliver(executed(plan, arenas, arrays, None if plan.template.refuses else given), given)

    def take(self, arrays):
        """The inputs of a call as the plan takes them."""
        return [checked(x, v, self.inner) for x, v in with_inputs(self.graph.inputs, arrays)]

    def timed(self, arrays):
        """(plan, seconds of each of its steps) of one call; `arrays` as `take` gives them."""
        plan, arenas = self.plan_of(arrays)
        if plan.segmented:
            return segments.timed(plan, arenas, arrays, _seconds)
        return plan, _seconds(plan, arenas, arrays)

    # ---- plans

    def plan_of(self, arrays):
        """(plan, arenas) for these inputs."""
        return self.plan([() if isinstance(x, list) else x.shape for x in arrays], arrays)

    def plan(self, shapes, arrays=(), capacity=()):
        """The plan for these input shapes (and the values of those inputs that decide on shapes), and the arenas that
        no call is using. `capacity` is that of caches, a tuple of one number, where there are some."""
        values = {
            v.name: x
            for v, x in zip(self.graph.inputs, arrays, strict=False)
            if v.name in self.shape_inputs and np.size(x) <= MAX_VALUES
        }
        threads = self._threads(shapes)
        key = threads, tuple(shapes), *capacity, *((name, x.tobytes()) for name, x in values.items())
        found = self._plans.get(key)
        if found is None:
            with self._lock:
                found = self._plans.get(key)
                if found is None:
                    values, start = {name: x.copy() for name, x in values.items()}, perf_counter()
                    with resting():
                        found = self._new_plan(shapes, values, threads, arrays, capacity)
                    if plan_log.LOGGER.isEnabledFor(INFO) and not self.inner:
                        plan_log.planned(self.graph, found[0], shapes, perf_counter() - start)
                    most = CACHED_PLANS if capacity else PLANS
                    if len(self._plans) >= most:  # half of them, as a sequence that grows needs one a call
                        for old in sorted(self._plans, key=lambda k: self._plans[k][0].used)[: (most + 1) // 2]:
                            del self._plans[old]
                    self._plans[key] = found
        found[0].used = next(self._calls)
        return found

    def _planned(self, arrays):
        """As plan_of, for contiguous arrays of shapes that have a plan; None for others. The network's
        weights have evicted Python from the caches: this reads as little as it can."""
        shapes = _core.plain_shapes(arrays)
        found = shapes and self._plans.get((self._threads(shapes), shapes))
        if found:
            found[0].used = next(self._calls)
        return found

    @staticmethod
    def _threads(shapes):
        threads = _core.get_num_threads()
        return min(threads, max(batch_of(shapes), 1)) if threads > 1 else threads

    def _new_plan(self, shapes, values, threads, arrays, capacity):
        """(plan, arenas): a segment where shapes depend on what is computed, and the plan of a network of the branches
        that are known."""
        try:
            decided = self._branching and self._decided(shapes, values)
            if decided and capacity:
                raise ValueError("a network with branches keeps no caches: call the model with them")
            if decided:  # the plan is kept here alone
                inner = self.with_branches(decided)
                values = {name: x for name, x in values.items() if name in inner.shape_inputs}
                return inner._new_plan(shapes, values, threads, arrays, capacity)
            return self._concrete_plan(shapes, values, threads, capacity), self._arenas
        except DataDependentShape as e:
            if not arrays and self.shape_inputs:
                raise
            return segments.Segment(self.graph, e, self.part, self.inner, self.subgraphs), self._arenas
        except OverflowError as e:
            raise ValueError(f"the network has a size that no array can have: {e}") from None
        except ZeroDivisionError as e:
            raise ValueError(f"the network has a node that cannot be computed: {e}") from e

    def _decided(self, shapes, values):
        """{node: attribute of its branch} of each `If` that is decided before the network runs. Other sizes that meet
        the same conditions have the same."""
        key, given, _ = _sizes(shapes, values, 0, ())
        made = self._decisions.setdefault(key, [])
        for conditions, decided in made:
            if conditions.values(given) is not None:
                return decided
        decided, env = self._decisions_of(shapes, values, ShapeEnv(())), ShapeEnv(given)
        if len(made) < SYMBOLIC_PLANS and self._decisions_of(shapes, values, env) == decided:
            made.insert(0, (Conditions(env), decided))
        return decided

    def _decisions_of(self, shapes, values, env):
        by_name, values = self._known_inputs(shapes, values, env)
        return decisions(self.graph, infer(self.graph, by_name, values, strict=False))

    def _concrete_plan(self, shapes, values, threads, capacity):
        """The plan that a symbolic one has for these sizes. Of sizes without one, the second makes a symbolic plan, for
        all sizes of its axes."""
        key, given, counts = _sizes(shapes, values, threads, capacity)
        plan, error = self._known_plan(key, given), None
        if plan is None:
            self._planned_anew += 1
            if self._planned_anew > 1 and (self._open or counts) and self._may_try(key):
                try:
                    plan = self._learn(key, given, shapes, values, threads, capacity)
                except (ArithmeticError, ValueError) as e:  # NoSymbolic, or what inference makes of it
                    error = e
        plan = plan or self._symbolic_plan(shapes, values, threads, ShapeEnv(()), capacity).plan(())
        if error is not None:  # with ints there was none
            self._failed(error)
        return plan

    def _known_plan(self, key, given):
        """The plan that a symbolic one has for these sizes, or None."""
        made = self._symbolic.get(key, [])
        for i, symbolic in enumerate(made):
            plan = symbolic.plan(given)
            if plan is not None:
                made.insert(0, made.pop(i))
                return plan
        return None

    def _may_try(self, key):
        """Whether few symbolic plans were made, or tried in vain."""
        made = max(len(self._symbolic.get(key, ())), len(self._symbolic))
        return max(made, self.failures) < SYMBOLIC_PLANS

    def _learn(self, key, given, shapes, values, threads, capacity):
        """The plan of a new symbolic one for these sizes."""
        symbolic = self._symbolic_plan(shapes, values, threads, ShapeEnv(given), capacity)
        plan = symbolic.plan(given)
        self._symbolic[key] = [symbolic, *self._symbolic.get(key, [])]
        return plan

    def _failed(self, error):
        """Counts a symbolic plan that an error of an operator ended, though with ints it has none."""
        self.failures += 1

    def _symbolic_plan(self, shapes, values, threads, env, capacity):
        """A plan for all sizes that meet the conditions of the environment."""
        by_name, values = self._known_inputs(shapes, values, env)
        caches = (self.caches, *(env.given[-1:] or capacity)) if capacity else ((), 0)
        given = self.layers, threads, self.subgraphs, self.options.precision, caches
        return SymbolicPlan(self.graph, env, by_name, values, *given)

    def _known_inputs(self, shapes, values, env):
        """(shapes of inputs by their names, the data of those that decide on shapes inside), open where the environment
        has sizes."""
        if env.given:
            sizes = iter(env.given)
            shapes = [tuple(next(sizes) for _ in shape) for shape in shapes]
            values = {name: _with_sizes(x, sizes) if _counts(x) else x for name, x in values.items()}
            shapes = [
                shape
                if v.shape is None or self.inner
                else tuple(m if isinstance(m, int) else n for n, m in zip(shape, v.shape, strict=True))
                for shape, v in zip(shapes, self.graph.inputs, strict=True)
            ]
        return dict(zip([v.name for v in self.graph.inputs], shapes, strict=True)), values

    def part(self, graph):
        """The session of some of the nodes."""
        return Session(graph, self.options, inner=self.inner, layers=self.layers, subgraphs=self.subgraphs)

    def keeping(self, caches):
        """The session of the same network that keeps these caches."""
        return Session(
            self.graph, self.options, inner=self.inner, layers=self.layers, subgraphs=self.subgraphs, caches=caches
        )

    def with_branches(self, decided):
        """The session with these branches in the place of their nodes."""
        key = tuple((n.name, branch) for n, branch in decided.items())
        if key not in self._branches:
            graph = keep_moved(inlined(self.graph, decided).copy())
            widened = widen(graph)
            optimize(graph, fold=self.options.fold, fuse=self.options.fuse, disabled=self.options.disabled)
            narrow(graph, widened)
            self._branches[key] = Session(graph, self.options, inner=self.inner, shared=self.layers.shared)
        return self._branches[key]


def _sizes(shapes, values, threads, capacity):
    """(what a symbolic plan is made for, the sizes that it leaves open, those of them that are values of inputs)."""
    fixed = [(name, x.shape if _counts(x) else x.tobytes()) for name, x in values.items()]
    counts = [n for x in values.values() if _counts(x) for n in x.reshape(-1).tolist()]
    return (threads, *map(len, shapes), *fixed), (*(n for shape in shapes for n in shape), *counts, *capacity), counts


def _counts(x):
    """Whether an input that decides on shapes holds integers that plans may leave open."""
    return x.dtype.kind in "iu" and x.dtype != np.uint64


def _with_sizes(x, sizes):
    return np.array([next(sizes) for _ in range(x.size)], object).reshape(x.shape)


def executed(plan, arenas, arrays, given=None):
    """The results of a plan; in the arrays that are given for them, None for new ones."""
    arena, *results = working_memory(plan, arenas, given)
    try:
        plan.run((arena, *arrays, *results))
    finally:
        arenas.append(arena)
    return results


def _written(plan, arenas, arrays, given, outputs):
    """The results of a plan in the arrays that are given for them, None for new ones."""
    if plan.segmented:  # shapes are known when all is computed
        results = segments.run(plan, arenas, arrays, executed)
        destinations.check(given, outputs, [(np.shape(y), getattr(y, "dtype", None)) for y in results])
    else:
        destinations.check(given, outputs, plan.outputs)
        ready = None if plan.template.refuses else destinations.in_place(given, arrays)
        results = executed(plan, arenas, arrays, ready)
    return destinations.deliver(results, given)


def _seconds(plan, arenas, arrays):
    """The seconds of each of a plan's steps in one call."""
    arena, *results = working_memory(plan, arenas)
    try:
        return profiler.run_timed(plan, (arena, *arrays, *results))
    finally:
        arenas.append(arena)
