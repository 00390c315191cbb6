"""A network, ready to be called."""

import os
from collections import deque
from collections.abc import Mapping
from itertools import count
from operator import index
from threading import Lock
from weakref import WeakSet

import numpy as np

from .. import _core
from ..layers import integer
from .frontends import native
from .inference.shape_inference import MAX_VALUES, infer, shape_inputs
from .ir.explanation import Explanation
from .ir.float16 import upcast
from .ir.subgraph import DataDependentShape, decisions, inlined
from .ir.symbolic import ShapeEnv
from .passes.context import example_shapes
from .passes.optimizer import optimize
from .planner.plan import SymbolicPlan, batch_of
from .quantization.quantizer import Options, quantize
from .runtime import profiler, segments
from .runtime.loop_runner import Subgraphs
from .steps.tensor import working_memory

PLANS = 64  # kept at most; when one more comes, the half that was not used for longest leaves
TEMPLATES = 16  # made at most for inputs of as many axes
_models: WeakSet = WeakSet()


def _unlock():
    """In a forked child: a lock that a thread of the parent held would never be free."""
    for model in _models:
        model._lock = Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_unlock)


class Model:
    """A network loaded with :func:`fusedops.load_onnx`, :func:`fusedops.from_torch` or :func:`fusedops.load`.

    ``model(*arrays)`` takes the inputs in order and returns the output, or a tuple of them. It may be called from many
    threads. Memory for the values inside the network is planned for each set of input shapes at its first call, and
    kept for the next ones, for up to 64 sets. When one more comes, the half that was not used for longest is dropped.

    Attributes
    ----------
    inputs, outputs : list of Value
        Each with name, shape (a str where a dimension may differ from call to call) and dtype.

    Examples
    --------
    >>> import numpy as np, fusedops as fo
    >>> from onnx.parser import parse_model
    >>> model = fo.load_onnx(parse_model('''<ir_version: 8, opset_import: ["" : 17]>
    ...     net (float[n, 3] x, float[n, 3] bias) => (float[n, 3] y) { h = Add(x, bias)  y = Relu(h) }'''))
    >>> model
    Model(x: float32 (n, 3), bias: float32 (n, 3) -> y: float32 (n, 3))
    >>> x, bias = np.float32([[-3, 0, 3]]), np.ones((1, 3), np.float32)
    >>> model(x, bias)
    array([[0., 1., 4.]], dtype=float32)
    >>> model.run({"x": x, "bias": bias})["y"].shape
    (1, 3)
    >>> print(model.benchmark(x, bias, number=1, repeat=2))  # doctest: +ELLIPSIS
    Execution time summary:
                 mean (ms)  median (ms)  max (ms)  min (ms)  std (ms)
    fused ...
    """

    def __init__(self, graph, report, source=None, options=(True, True, ()), inner=False, layers=None, subgraphs=None):
        """`source` is the graph as it was read, from which the forms that benchmark and profile compare are made;
        `options` of `built`;
        `inner`: a graph inside a node, which takes inputs of any shape."""
        self._graph, self._report, self._source, self._options, self._variants = graph, report, source, options, {}
        self._layers, self._inner = {} if layers is None else layers, inner
        self._subgraphs = subgraphs or Subgraphs(lambda g: Model(g, [], inner=True))
        self._plans, self._arenas, self._calls, self._lock = {}, deque(), count(), Lock()
        _models.add(self)
        self._shaping, self._branching = set(shape_inputs(graph, inner)), any(n.op == "If" for n in graph.nodes)
        self._templates, self._planned_anew, self._failures = {}, 0, 0
        self._open = any(v.shape is None or not all(isinstance(n, int) for n in v.shape) for v in graph.inputs)
        self._simple = not self._shaping and all(v.dtype == np.float32 for v in graph.inputs)
        if (
            not inner
            and not self._shaping
            and all(v.shape is not None and all(isinstance(n, int) for n in v.shape) for v in graph.inputs)
        ):
            self._plan([v.shape for v in graph.inputs])
        graph.known = {}

    @property
    def inputs(self):
        return list(self._graph.inputs)

    @property
    def outputs(self):
        return list(self._graph.outputs)

    def __call__(self, *arrays):
        """The outputs for the inputs in order: an array, or a tuple of them where the network has several."""
        found = self._simple and self._planned(arrays)
        if not found:
            arrays = self._take(arrays)
            found = self.plan(*arrays)
        results = segments.run(*found, arrays, _executed) if found[0].segmented else _executed(*found, arrays)
        return results[0] if len(results) == 1 else tuple(results)

    def _take(self, arrays):
        """The inputs of a call as the network takes them."""
        return [_checked(x, v, self._inner) for x, v in self._with_inputs(arrays)]

    @property
    def names(self):
        """The values behind the outputs."""
        return self._graph.results

    def _with_inputs(self, given):
        """What is given for each of the inputs, with that input."""
        inputs = self._graph.inputs
        if len(given) != len(inputs):
            nested = any(isinstance(x, (tuple, list, dict)) for x in given)
            raise ValueError(
                f"the network takes {len(inputs)} input{'s' * (len(inputs) != 1)} ({', '.join(map(str, inputs))}), got "
                f"{len(given)}" + ": pass the arrays inside a tuple, list or dict one by one" * nested
            )
        return zip(given, inputs, strict=True)

    def run(self, inputs):
        """Runs the network on arrays by the names of its inputs.

        Parameters
        ----------
        inputs : dict of str to ndarray

        Returns
        -------
        dict of str to ndarray
            The outputs by their names.

        Raises
        ------
        TypeError, ValueError
            Not the names, dtypes or shapes of the inputs.

        Examples
        --------
        >>> import numpy as np, fusedops as fo
        >>> from onnx.parser import parse_model
        >>> model = fo.load_onnx(parse_model('''<ir_version: 8, opset_import: ["" : 17]>
        ...     net (float[n] x) => (float[n] y) { h = Add(x, x)  y = Relu(h) }'''))
        >>> model.run({"x": np.float32([-1, 2])})
        {'y': array([0., 4.], dtype=float32)}
        """
        names = [v.name for v in self._graph.inputs]
        if not isinstance(inputs, Mapping):
            raise TypeError(
                f"run takes a dict from the names of inputs to arrays, not {type(inputs).__name__}: model(*arrays) "
                f"takes them in order"
            )
        defaults = [v.name for v in self._graph.defaults]
        if set(names) < set(inputs) <= {*names, *defaults}:
            return self._taking([name for name in defaults if name in inputs]).run(inputs)
        if set(inputs) != set(names):
            taken = ", ".join(names) + (f" (and may take {', '.join(defaults)})" if defaults else "")
            raise ValueError(f"the network takes the inputs {taken}, got {', '.join(map(str, inputs)) or 'none'}")
        results = self(*(inputs[name] for name in names))
        return dict(
            zip(
                [v.name for v in self._graph.outputs],
                results if isinstance(results, tuple) else (results,),
                strict=True,
            )
        )

    def _taking(self, names):
        """The network with inputs that have a default as inputs that must be given."""
        if self._source is None:
            raise ValueError(
                f"the network was saved with the defaults of {', '.join(names)}: load the ONNX file to give them"
            )
        key = tuple(names)
        if key not in self._variants:
            source = self._source.copy()
            source.inputs += [v for v in source.defaults if v.name in names]
            source.defaults = [v for v in source.defaults if v.name not in names]
            for name in names:
                del source.constants[name]
            self._variants[key] = self.built(upcast(source), *self._options)
        return self._variants[key]

    def plan(self, *arrays):
        """(plan, arenas) for these inputs."""
        return self._plan([() if isinstance(x, list) else x.shape for x in arrays], arrays)

    def timed(self, *arrays):
        """(plan, seconds of each of its steps) of one call."""
        plan, arenas = self.plan(*arrays)
        return (
            segments.timed(plan, arenas, arrays, _seconds) if plan.segmented else (plan, _seconds(plan, arenas, arrays))
        )

    def _planned(self, arrays):
        """As plan, for contiguous arrays of shapes that have a plan; None for others. A call finds Python in memory,
        not in a cache, behind the network's weights: it looks at little."""
        shapes = _core.plain_shapes(arrays)
        found = shapes and self._plans.get((self._threads(shapes), shapes))
        if found:
            found[0].used = next(self._calls)
        return found

    @staticmethod
    def _threads(shapes):
        threads = _core.get_num_threads()
        return min(threads, max(batch_of(shapes), 1)) if threads > 1 else threads

    def _plan(self, shapes, arrays=()):
        """The plan for these input shapes (and the values of those inputs that decide on shapes), and the
        arenas that no call is using."""
        values = {
            v.name: x
            for v, x in zip(self._graph.inputs, arrays, strict=False)
            if v.name in self._shaping and np.size(x) <= MAX_VALUES
        }
        threads = self._threads(shapes)
        key = threads, tuple(shapes), *((name, x.tobytes()) for name, x in values.items())
        found = self._plans.get(key)
        if found is None:
            with self._lock:
                found = self._plans.get(key)
                if found is None:
                    values = {name: x.copy() for name, x in values.items()}
                    found = self._new_plan(shapes, values, threads, arrays)
                    if len(self._plans) >= PLANS:  # half of them, as a sequence that grows needs one a call
                        for old in sorted(self._plans, key=lambda k: self._plans[k][0].used)[: (PLANS + 1) // 2]:
                            del self._plans[old]
                    self._plans[key] = found
        found[0].used = next(self._calls)
        return found

    def _new_plan(self, shapes, values, threads, arrays):
        """(plan, arenas): a segment where shapes depend on what is computed, and the plan of a network of the branches
        that are known."""
        try:
            by_name = dict(zip([v.name for v in self._graph.inputs], shapes, strict=True))
            decided = self._branching and decisions(self._graph, infer(self._graph, by_name, values, strict=False))
            if decided:
                return self._with_branches(decided)._plan(shapes, arrays)
            return self._from_template(shapes, values, threads), self._arenas
        except DataDependentShape as e:
            if not arrays and self._shaping:
                raise
            return segments.Segment(self._graph, e, self._part, self._inner, self._subgraphs), self._arenas
        except OverflowError as e:
            raise ValueError(f"the network has a size that no array can have: {e}") from None
        except (AttributeError, LookupError, TypeError, ZeroDivisionError) as e:  # an attribute of another kind
            raise ValueError(f"the network has a node that cannot be computed: {e}") from e

    def _from_template(self, shapes, values, threads):
        """The plan that a template has for these sizes. Of sizes without one, the second makes a template for all sizes
        of its axes."""
        fixed = [(name, x.tobytes()) for name, x in values.items() if not _counts(x)]
        key = threads, *map(len, shapes), *fixed
        counts = [n for x in values.values() if _counts(x) for n in x.reshape(-1).tolist()]
        given, templates = (*(n for shape in shapes for n in shape), *counts), self._templates.get(key, [])
        for i, template in enumerate(templates):
            plan = template.plan(given)
            if plan is not None:
                templates.insert(0, templates.pop(i))
                return plan
        plan, self._planned_anew = None, self._planned_anew + 1
        if (
            (self._open or counts)
            and self._planned_anew > 1
            and self._failures < TEMPLATES
            and max(len(templates), len(self._templates)) < TEMPLATES
        ):
            try:
                template = self._template(shapes, values, threads, ShapeEnv(given))
                plan = template.plan(given)
            except Exception:  # whatever an operator cannot do with SymInts, it may with ints
                self._failures += 1
            else:
                self._templates[key] = [template, *templates]
        return plan or self._template(shapes, values, threads, ShapeEnv(())).plan(())

    def _template(self, shapes, values, threads, trace):
        """A template for all sizes that meet the conditions of the trace."""
        if trace.given:
            sizes = iter(trace.given)
            shapes = [tuple(next(sizes) for _ in shape) for shape in shapes]
            values = {name: _with_sizes(x, sizes) if _counts(x) else x for name, x in values.items()}
            shapes = [
                shape
                if v.shape is None or self._inner
                else tuple(m if isinstance(m, int) else n for n, m in zip(shape, v.shape, strict=True))
                for shape, v in zip(shapes, self._graph.inputs, strict=True)
            ]
        by_name = dict(zip([v.name for v in self._graph.inputs], shapes, strict=True))
        return SymbolicPlan(self._graph, trace, by_name, values, self._layers, threads, self._subgraphs)

    def _part(self, graph):
        """The network of some of the nodes."""
        return Model(
            graph, [], options=self._options, inner=self._inner, layers=self._layers, subgraphs=self._subgraphs
        )

    def _with_branches(self, decided):
        """The network with these branches in the place of their nodes."""
        key = tuple((n.name, branch) for n, branch in decided.items())
        if key not in self._variants:
            graph = inlined(self._graph, decided).copy()
            fold, fuse, disabled = self._options
            report = optimize(graph, fold=fold, fuse=fuse, disabled=disabled)
            self._variants[key] = Model(graph, report, options=self._options, inner=self._inner)
        return self._variants[key]

    def memory(self, *shapes):
        """Bytes that the values inside the network take: the peak of a call, apart from weights, inputs and outputs.

        Parameters
        ----------
        *shapes : tuple of int
            Of the inputs.

        Returns
        -------
        int

        Raises
        ------
        TypeError, ValueError
            Not shapes, or shapes that the network cannot take.

        Examples
        --------
        >>> import numpy as np, fusedops as fo
        >>> from onnx.parser import parse_model
        >>> model = fo.load_onnx(parse_model('''<ir_version: 8, opset_import: ["" : 17]>
        ...     net (float[n] x) => (float[n] y) { h = Add(x, x)  y = Relu(h) }'''))
        >>> model.memory((1000,))  # the sum lives in registers
        0
        """
        return self._plan([_shape(s, v) for s, v in self._with_inputs(shapes)])[0].arena

    def explain(self):
        """What was fused, with the operations and bytes saved, and what was not and why.

        Returns
        -------
        Explanation
            ``fusions`` and ``refusals`` are lists, ``operations`` and ``bytes`` what is saved in all; ``str()`` is a
            table.

        Examples
        --------
        >>> import numpy as np, fusedops as fo
        >>> from onnx.parser import parse_model
        >>> model = fo.load_onnx(parse_model('''<ir_version: 8, opset_import: ["" : 17]>
        ...     net (float[n] x) => (float[n] y) { h = Add(x, x)  y = Relu(h) }'''))
        >>> print(model.explain())  # doctest: +ELLIPSIS
        1 fusion saves 0 operations and 8 B of memory traffic a call
        ...
        """
        shapes = example_shapes(self._graph)
        # else the plan depends on what the inputs hold
        known = len(shapes) == len(self._graph.inputs) and not self._shaping
        blocks = known and any("block" in node.attrs for node in self._graph.nodes)
        return Explanation.of([*self._report, *(self._plan(list(shapes.values()))[0].report if blocks else [])])

    def benchmark(self, *arrays, number=10, repeat=10, progress=lambda done: None):
        """Times the network on these inputs, and with it the network with batch norm folded only and with nothing
        fused or folded.

        A network from :func:`fusedops.load`, a copy or an unpickled one is timed alone: it comes without its other
        forms.

        Parameters
        ----------
        *arrays : ndarray
            The inputs, in order.
        number : int
            Calls of a sample, which is their mean.
        repeat : int
            Samples of each form, taken in turns.
        progress : callable
            Told after each round of samples what part of them is done.

        Returns
        -------
        Benchmark
            ``str()`` is a table of mean, median, max, min and std in milliseconds; ``as_dict()`` has the numbers.

        Raises
        ------
        TypeError, ValueError
            Not the dtypes or shapes of the inputs.

        Examples
        --------
        >>> import numpy as np, fusedops as fo
        >>> from onnx.parser import parse_model
        >>> model = fo.load_onnx(parse_model('''<ir_version: 8, opset_import: ["" : 17]>
        ...     net (float[n] x) => (float[n] y) { h = Add(x, x)  y = Relu(h) }'''))
        >>> list(model.benchmark(np.ones(8, np.float32), number=1, repeat=2).as_dict())
        ['fused', 'folded only', 'unfused']
        """
        return profiler.benchmark(self._forms(), arrays, integer(number, "number"), integer(repeat, "repeat"), progress)

    def profile(self, *arrays, repeat=20):
        """Times each node of the network on these inputs, beside the nodes it was fused from.

        Parameters
        ----------
        *arrays : ndarray
            The inputs, in order.
        repeat : int
            Runs; a node's time is the least of them.

        Returns
        -------
        Profile
            ``layers`` is a list with name, operator, kernels, times, operations and bytes of each node; ``str()`` is a
            table.

        Raises
        ------
        TypeError, ValueError
            Not the dtypes or shapes of the inputs.

        Examples
        --------
        >>> import numpy as np, fusedops as fo
        >>> from onnx.parser import parse_model
        >>> model = fo.load_onnx(parse_model('''<ir_version: 8, opset_import: ["" : 17]>
        ...     net (float[n] x) => (float[n] y) { h = Add(x, x)  y = Relu(h) }'''))
        >>> [layer.op for layer in model.profile(np.ones(8, np.float32), repeat=1).layers]
        ['Add']
        """
        arrays = self._take(arrays)
        return profiler.profile(self, self._forms().get("unfused"), arrays, integer(repeat, "repeat"))

    def _forms(self):
        """The network and the forms that it is compared with."""
        if self._source is None:
            return {"fused": self}
        return {
            "fused": self,
            "folded only": self.built(self._source, True, False),
            "unfused": self.built(self._source, False, False),
        }

    @classmethod
    def built(cls, source, fold, fuse, disabled=()):
        """A model of the graph `source`, which stays as it is."""
        graph = source.copy()
        return cls(graph, optimize(graph, fold=fold, fuse=fuse, disabled=disabled), source, (fold, fuse, disabled))

    def quantize(self, samples, *, calibration="mse", keep=(), layer_snr=20.0, snr=20.0, progress=lambda done: None):
        """The network in 8 bits where that is predicted to be faster here, and exact enough on samples.

        Batch norm is folded, ranges of channels are made alike where that changes nothing, and biases take up the mean
        error of their layer. A convolution or product with constant weights goes to 8 bits: int8 weights with one scale
        an output channel, uint8 inputs with one scale and a zero point that follow from the samples.

        Parameters
        ----------
        samples : iterable
            Inputs such as the network will see, ten to a hundred: each an array, a tuple of arrays, or a dict from the
            names of inputs to arrays.
        calibration : str or tuple
            How a range follows from what is seen: "mse", the lowest squared error in 8 bits; "minmax", all of it;
            "percentile" or ("percentile", 99.99), all but so much.
        keep : tuple of str
            Names of layers that stay float32.
        layer_snr, snr : float
            Least signal to noise in decibels, of the products of each layer that goes to 8 bits, and of each output of
            the network. 20 is noise of a tenth of the signal; of integers, such as labels, one in a hundred differs.
            A result that is NaN or infinite without being so in float32 is all noise.
        progress : callable
            Told what part is done.

        Returns
        -------
        Model
            ``explain().quantized`` has each layer with its error and its predicted gain, or why it stayed float32, and
            how far the outputs moved on the samples. Without a layer that gains it is the network in float32.

        Raises
        ------
        TypeError, ValueError
            Samples that the network does not take, with NaN, or none of them; a network that is quantised already or
            has no layer that can go to 8 bits; options out of their range.

        Notes
        -----
        The prediction depends on shapes (those of the first sample), on the instruction set, and on whether it has dot
        products of bytes, never on a measurement. A layer between others that stay float32 pays for two conversions;
        the cheapest choice for all layers is found, and it is never dearer than float32.

        See Also
        --------
        fusedops.QConv2d, fusedops.QLinear : The layers.

        Examples
        --------
        >>> import numpy as np, fusedops as fo
        >>> from onnx import numpy_helper
        >>> from onnx.parser import parse_model
        >>> proto = parse_model('''<ir_version: 8, opset_import: ["" : 17]>
        ...     net (float[n, 512] x) => (float[n, 512] y) { h = MatMul(x, w)  y = Relu(h) }''')
        >>> rng = np.random.default_rng(0)
        >>> w = rng.standard_normal((512, 512), np.float32) / 16
        >>> proto.graph.initializer.extend([numpy_helper.from_array(w, "w")])
        >>> model = fo.load_onnx(proto)
        >>> small = model.quantize([rng.standard_normal((64, 512), np.float32) for _ in range(4)])
        >>> small.explain().quantized.outputs[0].snr > 30
        True
        """
        options = Options.of(calibration, keep, layer_snr, snr)
        graph, done = quantize(self, lambda g: self.built(g, True, True), samples, options, progress)
        model = self.built(graph, *self._options)
        model._report.append(done)
        return model

    def save(self, path):
        """Writes the network, fused as it is, to a file that :func:`fusedops.load` reads with NumPy alone.

        Parameters
        ----------
        path : str or path-like
            The file is a NumPy archive, with the weights as arrays and the rest as JSON. It contains no code. Where
            inputs have defaults, it has the weights as they were before fusion too, for calls that give such inputs.

        Raises
        ------
        TypeError
            Not a path.
        OSError
            The file cannot be written.

        Examples
        --------
        >>> import os, tempfile
        >>> import numpy as np, fusedops as fo
        >>> from onnx.parser import parse_model
        >>> model = fo.load_onnx(parse_model('''<ir_version: 8, opset_import: ["" : 17]>
        ...     net (float[n] x) => (float[n] y) { h = Add(x, x)  y = Relu(h) }'''))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     model.save(os.path.join(folder, "model.fo"))
        ...     fo.load(os.path.join(folder, "model.fo"))
        Model(x: float32 (n) -> y: float32 (n))
        """
        native.save(path, self._graph, self._report, self._source, self._options)

    def __reduce__(self):
        source = self._source if self._graph.defaults else None
        return Model, (self._graph, self._report, source, self._options)

    def __repr__(self):
        return f"Model({', '.join(map(str, self.inputs))} -> {', '.join(map(str, self.outputs))})"


def _counts(x):
    """Whether an input that decides on shapes holds integers that plans may leave open."""
    return x.dtype == np.int64


def _with_sizes(x, sizes):
    return np.array([next(sizes) for _ in range(x.size)], object).reshape(x.shape)


def _executed(plan, arenas, arrays):
    """The results of a plan."""
    arena, *results = working_memory(plan, arenas)
    try:
        plan.run((arena, *arrays, *results))
    finally:
        arenas.append(arena)
    return results


def _seconds(plan, arenas, arrays):
    """The seconds of each of a plan's steps in one call."""
    arena, *results = working_memory(plan, arenas)
    try:
        return profiler.run_timed(plan, (arena, *arrays, *results))
    finally:
        arenas.append(arena)


def _checked(x, value, any_shape=False):
    """x as a contiguous array of the type and shape that the network takes."""
    if value.dtype == object:
        if not isinstance(x, (list, tuple)):
            raise TypeError(f"{value.name} is a sequence: pass a list of arrays, not {type(x).__name__}")
        return [np.ascontiguousarray(a).reshape(np.shape(a)) for a in x]
    a = _core.as_array(x, value.name)
    if a.dtype != value.dtype:
        raise TypeError(
            f"{value.name} has dtype {a.dtype}, but the network takes {value.dtype}: pass "
            f"{_core.conversion(x, value.name, value.dtype)}"
        )
    if not any_shape:
        _fits(a.shape, value)
    return a if a.flags.c_contiguous and a.flags.aligned else a.copy()


def _shape(given, value):
    """A shape that the network takes."""
    try:
        shape = tuple(map(index, given))
    except TypeError:
        raise TypeError(f"the shape of {value.name} must be a tuple of ints, not {given!r}") from None
    _fits(shape, value)
    return shape


def _fits(shape, value):
    wrong = value.shape is not None and (
        len(shape) != len(value.shape)
        or any(isinstance(n, int) and n != m for n, m in zip(value.shape, shape, strict=True))
    )
    if wrong or min(shape, default=0) < 0:
        raise ValueError(f"{value.name} has shape {shape}, but the network takes {value}")
