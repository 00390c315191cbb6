"""A network, ready to be called."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from .._internal.arguments import integer
from .._internal.lazy import LazyModule
from .._internal.progress import quiet, shown
from ..interop import dask
from .ir.draws import checked_seed
from .ir.explanation import Explanation
from .ir.float16 import upcast
from .ir.float16_weights import Widened, narrow
from .ir.graph import Metadata, Value
from .ir.options import BuildOptions
from .passes.context import example_shapes
from .passes.optimizer import optimize
from .runtime.arguments import by_names, in_order, shape_of, with_inputs
from .runtime.calls import Calls
from .runtime.session import Session

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Sequence
    from typing import Any, BinaryIO, Literal

    from numpy.typing import DTypeLike, NDArray

    from .._types import Calibration, Input, Out, Progress
    from .frontends import native
    from .planner import leftovers
    from .quantization import quantizer, storage
    from .quantization import weights as few_bits
    from .runtime import decoder as decoding
    from .runtime import merged_decoder, profiler
    from .runtime.decoder import Decoder
    from .runtime.profiler import Benchmark, Profile
else:
    native = LazyModule(".frontends.native", __package__)
    leftovers = LazyModule(".planner.leftovers", __package__)
    quantizer = LazyModule(".quantization.quantizer", __package__)
    storage = LazyModule(".quantization.storage", __package__)
    few_bits = LazyModule(".quantization.weights", __package__)
    decoding = LazyModule(".runtime.decoder", __package__)
    merged_decoder = LazyModule(".runtime.merged_decoder", __package__)
    profiler = LazyModule(".runtime.profiler", __package__)


class Model:
    """A network loaded with :func:`fusedops.load_onnx`, :func:`fusedops.load_tflite`, :func:`fusedops.from_torch` or
    :func:`fusedops.load`.

    ``model(*arrays, **by_name, out=None, outputs=None)`` takes the inputs in order, or by their names, and returns the
    output, or a tuple of them. `outputs` has the names of those to compute, if not all are wanted. `out` is where they
    go: an array, or for several outputs a tuple of arrays or a dict from their names, with None or no name for those
    that are to be new. It takes any strides and may overlap an input; a contiguous array that overlaps no input is
    written without a copy. A model may be called from many threads. Memory for the values inside the network is planned
    at the first call with a set of input shapes and kept, for up to 64 sets. When one more comes, the half that was not
    used for longest is dropped.

    Attributes
    ----------
    inputs, outputs : list of Value
        Each with name, dtype and shape. A dimension that may differ from call to call is a str, or None if the file
        does not name it. ``file_type`` is the element type in the file.
    optional_inputs : list of Value
        Inputs that the file has values for; calls may give others by name.
    metadata : Metadata
        What the file says of itself: ``producer``, ``graph``, ``domain``, ``version``, ``description``,
        ``graph_description``, and ``custom``, a dict of its own entries.
    num_threads : int, or None
        An upper limit for the threads of a call, besides :func:`fusedops.set_num_threads`.

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
    >>> y = np.empty((1, 3), np.float32)
    >>> model(x, bias=bias, out=y) is y
    True
    >>> print(model.benchmark(x, bias, number=1, repeat=2))  # doctest: +ELLIPSIS
    Execution times...vs unfused
    fused ...
    """

    def __init__(self, graph, report, source=None, options=BuildOptions()):
        """`source` is the graph as it was read, from which the forms that benchmark and profile compare are made;
        `options` are those that it was made with."""
        self._graph, self._report, self._source, self._options, self._variants = graph, report, source, options, {}
        self._read = True  # whether `source` is as readers make it
        self._shares = {}  # of each node in the time of the latest profile
        self._calls = Calls(graph, options)
        self._session, self._run = self._calls.session, self._calls.run
        self._decoding = self._first_call = None

    @property
    def inputs(self) -> list[Value]:
        return list(self._calls.inputs)

    @property
    def optional_inputs(self) -> list[Value]:
        return list(self._calls.optional)

    @property
    def outputs(self) -> list[Value]:
        return list(self._calls.outputs)

    @property
    def metadata(self) -> Metadata:
        return self._graph.metadata

    @property
    def num_threads(self) -> int | None:
        return self._options.num_threads

    def __call__(
        self, /, *arrays, out: Out | None = None, outputs: str | Sequence[str] | None = None, **by_name
    ) -> Any:
        """The outputs for the inputs in order or by name: an array, or a tuple of them where the network has
        several."""
        if by_name:
            model, arrays = self._bound(in_order(self.inputs, arrays, by_name) | by_name)
            return model(*arrays, out=out, outputs=outputs)
        run = self._run if outputs is None else self._calls.of(outputs)
        try:
            results = run(arrays) if out is None else run(arrays, out)
        except ValueError:
            if len(self.outputs) != 1 or not dask.asked_for_dtype():
                raise
            return dask.example_of(self.outputs)
        return results[0] if len(results) == 1 else tuple(results)

    def run(
        self, inputs: Mapping[str, Input], *others, outputs: Sequence[str] | None = None
    ) -> dict[str, NDArray[Any]]:
        """Runs the network on arrays by the names of its inputs.

        Parameters
        ----------
        inputs : dict of str to ndarray
        *others
            Nothing: a call such as ONNX Runtime's ``run(None, inputs)`` is told what to write.
        outputs : sequence of str, optional
            Names of the outputs to compute; None: all.

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
        if others:
            raise TypeError(
                "run takes a dict of inputs alone, and gives all outputs by name: write model.run(inputs) in place of "
                "ONNX Runtime's run(names, inputs), and model.run(inputs, outputs=names) for some of them"
            )
        if not isinstance(inputs, Mapping):
            raise TypeError(
                f"run takes a dict from the names of inputs to arrays, not {type(inputs).__name__}: model(*arrays) "
                f"takes them in order"
            )
        model, arrays = self._bound(inputs)
        results = model(*arrays, outputs=outputs)
        names = [v.name for v in self._calls.outputs] if outputs is None else outputs
        names = [names] if isinstance(names, str) else names
        return dict(zip(names, results if isinstance(results, tuple) else (results,), strict=True))

    def _bound(self, inputs):
        """(the network, its inputs in order) of inputs by their names; one that takes inputs with a default where such
        are given."""
        more = by_names(self._calls.inputs, self._calls.optional, inputs)
        if more:
            return self._taking(more)._bound(inputs)
        return self, [inputs[v.name] for v in self._calls.inputs]

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
            self._variants[key] = self.built(source, self._options)
        return self._variants[key]

    def _plan(self, *arrays):
        """(plan, arenas) for these inputs."""
        return self._calls.limited(self._session.plan_of)(self._calls.with_state(arrays))

    def reset(self) -> None:
        """Sets the network's variables to their initial values, before another stream begins.

        Only networks from TFLite have variables. For others this does nothing.

        Examples
        --------
        >>> import fusedops as fo
        >>> from onnx.parser import parse_model
        >>> model = fo.load_onnx(parse_model('''<ir_version: 8, opset_import: ["" : 17]>
        ...     net (float[n] x) => (float[n] y) { y = Relu(x) }'''))
        >>> model.reset()
        """
        if self._calls.state is not None:
            self._calls.state.reset()

    def seed(self, seed: int | None = None) -> None:
        """Starts the network's random numbers again, from this seed.

        Each call has its own generator, which depends on the seed and on the number of calls before it. Nodes that have
        a seed in the file have their own sequences, which start again too. A copy of the network, or a saved one,
        starts where `seed` (of this method or of ``load_onnx``) leaves it.

        Parameters
        ----------
        seed : int, optional
            0 or more. None: another one each time.

        Raises
        ------
        TypeError, ValueError
            Not such a seed.

        Examples
        --------
        >>> import numpy as np, fusedops as fo
        >>> from onnx.parser import parse_model
        >>> model = fo.load_onnx(parse_model('''<ir_version: 8, opset_import: ["" : 17]>
        ...     net (float[n] x) => (float[n] y) { noise = RandomNormalLike(x)  y = Add(x, noise) }'''))
        >>> x = np.zeros(4, np.float32)
        >>> model.seed(7)
        >>> first, second = model(x), model(x)
        >>> model.seed(7)
        >>> bool((model(x) == first).all()), bool((second == first).any())
        (True, False)
        """
        seed = checked_seed(seed)
        self._options = self._options._replace(seed=seed)
        if self._calls.random is not None:
            self._calls.random.seed(seed)
            self._variants.clear()  # which draw by themselves

    def memory(self, *shapes) -> int:
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
        shapes = [shape_of(s, v) for s, v in with_inputs(self.inputs, shapes)]
        return self._calls.plan([*shapes, *(a.shape for a in self._graph.states)]).arena

    def explain(self) -> Explanation:
        """What was fused, with the operations and bytes saved, and what was not and why.

        Returns
        -------
        Explanation
            ``fusions`` and ``refusals`` are lists, ``operations`` and ``bytes`` what is saved in all; ``numpy`` lists
            the nodes that NumPy computes, with their share of the time after :meth:`profile`, and ``activations`` those
            that are passes of their own. ``str()`` is a table.

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
        plan = self._example_plan()
        report = [*self._report, *(plan.report if plan is not None else [])]
        fuses = self._options.fuse and "epilogue" not in self._options.disabled
        alone = leftovers.activations(self._graph, report, fuses)
        return Explanation.of(report, leftovers.by_numpy(self._graph, plan, self._shares), alone)

    def _example_plan(self):
        """The plan for example sizes; None where plans depend on what the inputs hold, or these sizes do not fit."""
        shapes = example_shapes(self._graph)
        if len(shapes) < len(self._graph.inputs) or self._session.shape_inputs:
            return None
        try:
            return self._calls.plan(list(shapes.values()))
        except (ValueError, MemoryError):
            return None

    def benchmark(self, *arrays, number: int = 10, repeat: int = 10, progress: Progress = None) -> Benchmark:
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
            Samples of each form, interleaved.
        progress : bool or callable, optional
            True: a bar, or lines where rich is not installed. A callable is told what part is done.

        Returns
        -------
        Benchmark
            ``str()`` is a table of mean, median, max, min and std, or on a busy machine of the minimum alone;
            ``as_dict()`` has all numbers, in milliseconds.

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
        number, repeat = integer(number, "number"), integer(repeat, "repeat")
        with shown(progress, "benchmark") as tell:
            return profiler.benchmark(self._forms(), arrays, number, repeat, tell)

    def profile(self, *arrays, repeat: int = 20) -> Profile:
        """Times each node of the network on these inputs, next to the nodes it was fused from.

        Parameters
        ----------
        *arrays : ndarray
            The inputs, in order.
        repeat : int
            Runs; a node's time is the minimum of them.

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
        unfused = self._forms().get("unfused")
        taken = self._session.take(self._calls.with_state(arrays))
        sessions = self._session, unfused and unfused._session
        profile = self._calls.limited(profiler.profile)(*sessions, taken, integer(repeat, "repeat"))
        total = sum(layer.ms for layer in profile.layers)
        self._shares = {layer.name: layer.ms / total for layer in profile.layers if total}
        return profile

    def _forms(self):
        """The network and the forms that it is compared with."""
        if self._source is None:
            return {"fused": self}
        unfused = self._options._replace(fuse=False, disabled=frozenset())
        return {
            "fused": self,
            "folded only": self.built(self._source, unfused._replace(fold=True), read=self._read),
            "unfused": self.built(self._source, unfused._replace(fold=False), read=self._read),
        }

    @classmethod
    def built(cls, source, options, *more, read=True, tell=quiet):
        """A model of the graph `source`, which stays as it is; read: as readers make it, which may have float16 to
        compute with. `more` is for its report, and `tell` is told what part is done."""
        graph, widened = source.copy(), Widened()
        if read:
            upcast(graph, widened)
        report = optimize(graph, fold=options.fold, fuse=options.fuse, disabled=options.disabled, tell=tell)
        model = cls(narrow(graph, widened), [*report, *more], source, options)
        model._read = read
        return model

    def decoder(self, *, capacity: int = 64) -> Decoder:
        """The network with keys and values that it keeps from call to call, to write token by token.

        Caches are inputs that an output repeats with more rows at the end: the past of a `GroupQueryAttention`, or what
        a `Concat` puts before new rows. They are found in the graph, not by their names. No call copies them, and a new
        length costs no more than a familiar one. If a file has two branches, as optimum merges them, the first call
        takes the one without a past.

        Parameters
        ----------
        capacity : int
            Tokens that the first memory holds. It is doubled when it is full.

        Returns
        -------
        Decoder
            Called with the other inputs; ``len(decoder)`` is its number of tokens, ``decoder.truncate(n)`` goes back.

        Raises
        ------
        TypeError, ValueError
            `capacity` is not a positive int, or the network has no such inputs.

        Examples
        --------
        >>> import numpy as np, fusedops as fo
        >>> from onnx.parser import parse_model
        >>> model = fo.load_onnx(parse_model('''<ir_version: 8, opset_import: ["" : 17]>
        ...     net (float[b, new, 2] x, float[b, past, 2] seen) => (float[b, 2] y, float[b, total, 2] all) {
        ...         all = Concat<axis=1>(seen, x)  y = ReduceMean<axes=[1], keepdims=0>(all) }'''))
        >>> decoder = model.decoder()
        >>> for n in (1, 3, 5):
        ...     y = decoder(np.full((1, 1, 2), n, np.float32))
        >>> y, len(decoder)
        (array([[3., 3.]], dtype=float32), 3)
        """
        capacity = integer(capacity, "capacity")
        if self._decoding is None:
            self._decoding, self._first_call = merged_decoder.sessions(self._session)
        return decoding.Decoder(self._decoding, self._first_call, capacity, self._calls.random, self._calls.num_threads)

    def quantize(
        self,
        samples: Iterable[Input | tuple[Input, ...] | list[Input] | Mapping[str, Input]] | None = None,
        *,
        weights: Literal["int4", "int8"] | None = None,
        calibration: Calibration | None = None,
        keep: Sequence[str] = (),
        layer_snr: float | None = None,
        snr: float | None = None,
        measure: bool = True,
        progress: Progress = None,
    ) -> Model:
        """Returns the network with layers in int8 where that is predicted to be faster here and is exact enough on
        samples; or, without samples, with the weights of its products in 4 or 8 bits. Other layers keep the network's
        precision: with bfloat16 each layer is in int8, bfloat16 or float32, whichever is faster, and errors are those
        of all three.

        Batch norm is folded, ranges of channels are equalized where that changes no result, and the mean error of a
        layer goes into its bias. A convolution or product with constant weights becomes an int8 layer: its weights have
        one scale for each output channel, its uint8 inputs have one scale and a zero point that follow from the
        samples.

        Parameters
        ----------
        samples : iterable
            Inputs such as the network will see, ten to a hundred: each an array, a tuple of arrays, or a dict from the
            names of inputs to arrays.
        weights : {"int4", "int8"}, optional
            Instead of samples. Products with constant weights keep them in 4 or 8 bits, in blocks of 32, each with the
            float32 scale of the lowest squared error. Each block of a row is rounded to int8 when it is read. This is
            for language models, which are bound by reading weights. `keep` is the only other option.
        calibration : str or tuple, optional
            How a range follows from what is seen: "mse", the lowest squared error in int8, which is the default;
            "minmax", all of it; "percentile" or ("percentile", 99.99), all but so much.
        keep : tuple of str
            Names of layers that stay float32.
        layer_snr, snr : float, optional
            The lowest signal-to-noise ratio in decibels: of the products of each int8 layer, and of each output of the
            network. 20, the default, is noise of a tenth of the signal; for integers, such as labels, one in a hundred
            differs. A result that is NaN or infinite, but is not so in float32, counts as noise alone.
        measure : bool
            Time both forms on the first sample. Layers that are slower in int8 here stay float32; if the whole network
            is slower, all of it does. Layers that are about as fast in both forms may then differ from run to run.
            False: decide by the prediction alone, which is always the same.
        progress : bool or callable, optional
            True: a bar, or lines where rich is not installed. A callable is told what part is done.

        Returns
        -------
        Model
            ``explain().quantized`` has each layer with its error, its gain as predicted and as measured, or why it
            stayed float32, and how far the outputs moved on the samples. If no layer gains, it is the network in
            float32. With `weights` a layer's error is that of its weights: signal to noise in decibels.

        Raises
        ------
        TypeError, ValueError
            Samples that the network does not take, with NaN, or none of them; a network that is quantized already or
            has no layer that can go to int8; options out of their range.

        See Also
        --------
        fusedops.QConv2d, fusedops.QLinear : The layers.

        Notes
        -----
        The prediction depends on shapes (those of the first sample), on the instruction set, and on whether it has dot
        products of int8. A layer between others that stay float32 pays for two conversions. The cheapest choice for all
        layers is found; it is never predicted to be slower than float32.

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
        >>> print(model.quantize(weights="int4").explain().quantized)  # doctest: +ELLIPSIS
        1 of 1 layers in int4; weights by rounding to nearest
        ...
        """
        if self._calls.state is not None:
            raise ValueError("the network has variables, which change from call to call: quantize it before conversion")
        if (samples is None) == (weights is None):
            raise TypeError("quantize takes samples, or weights='int4' or 'int8' in their place")
        options = quantizer.Options.of(calibration, keep, layer_snr, snr, measure)
        if self.explain().quantized is not None or quantizer.is_quantized(self._graph):
            raise ValueError("the network is quantized already: quantize the float32 network that it was made from")
        if weights is not None:
            if any(option is not None for option in (calibration, layer_snr, snr)):
                raise TypeError("calibration, layer_snr and snr are about samples: weights= takes keep alone")
            with shown(progress, f"weights in {weights}") as tell:
                graph, done = few_bits.quantize_weights(self._graph, weights, options.keep, tell)
            return Model(graph, [*self._report, done], None, self._options)
        optimized = partial(Session.optimized, options=self._options)
        with shown(progress, "quantize") as tell:
            timed = self._calls.limited(quantizer.quantize)  # layers are measured with the network's threads
            graph, done = timed(self._session, optimized, Session, samples, options, tell)
        return self.built(graph, self._options, done, read=False)

    def astype(self, dtype: Literal["float16", "bfloat16"] | DTypeLike) -> Model:
        """The network with its weights stored in 16 bits: half the memory for those of matrix products and recurrent
        layers, for tables and for decoders' caches, and half the size of a saved file.

        Weights, which are constants of two and more axes, are rounded to nearest, ties to even. Inputs and outputs keep
        their types, except caches: keys and values that come back as inputs are in 16 bits, too, where the network only
        adds rows to them, also in a decoder of two branches. NumPy has no bfloat16: a network's own calls take and give
        the bits of such caches, as a number of 16 bits in a field of that name, or arrays of ``ml_dtypes``.

        Parameters
        ----------
        dtype : "float16" or "bfloat16"
            float16: all is computed in float32; products of few rows, whose time is that of reading weights, are up to
            twice as fast. Weights beyond 65504 stay float32. bfloat16: products multiply in bfloat16 where that is
            predicted to be faster, as ``precision="bfloat16"`` lets them.

        Returns
        -------
        Model

        Raises
        ------
        ValueError
            Another type.

        See Also
        --------
        quantize : Weights of 4 and 8 bits, and int8.

        Notes
        -----
        Convolutions pack float32 weights: with float16 a network of them is smaller when it is saved, and little
        smaller in memory. Tensors between steps are float32, or bfloat16 between products of it. A weight moves by at
        most 1/2048 of itself in float16, and 1/256 in bfloat16.

        Examples
        --------
        >>> import numpy as np, fusedops as fo
        >>> from onnx.parser import parse_model
        >>> model = fo.load_onnx(parse_model('''<ir_version: 8, opset_import: ["" : 17]>
        ...     net (float[n, 64] x) => (float[n, 64] y) <int64[2] shape = {64, 64}> {
        ...     w = ConstantOfShape<value = float[1] {0.1}>(shape)  y = MatMul(x, w) }'''))
        >>> x = np.ones((1, 64), np.float32)
        >>> round(float(model(x)[0, 0]), 3), round(float(model.astype("float16")(x)[0, 0]), 3)
        (6.4, 6.398)
        """
        kind = storage.kind_of(dtype)
        options = self._options._replace(precision="bfloat16") if kind == "bfloat16" else self._options
        caches = merged_decoder.caches_of_calls(self._session)
        return Model(storage.stored_as(self._graph, kind, caches), self._report, None, options)

    def save(self, path: str | os.PathLike[str] | BinaryIO) -> None:
        """Writes the network, fused as it is, to a file that :func:`fusedops.load` reads with NumPy alone.

        Parameters
        ----------
        path : str, path-like or binary file
            The file is a NumPy archive, with the weights as arrays and the rest as JSON. It contains no code. Where
            inputs have defaults, it has the weights as they were before fusion too, for calls that give such inputs.

        Raises
        ------
        TypeError
            Neither a path nor a file that takes bytes.
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
