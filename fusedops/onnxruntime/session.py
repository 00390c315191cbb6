"""InferenceSession over :class:`fusedops.Model`."""

import os
import threading
import time
import warnings
from collections.abc import Mapping
from numbers import Number

import numpy as np

import fusedops as fo

from . import errors
from .binding import IOBinding
from .options import GraphOptimizationLevel, RunOptions, SessionOptions, logger
from .profiling import Profiling
from .providers import PROVIDERS, check_providers
from .values import OrtValue, type_name


class _Process:
    """What is set for all sessions."""

    seed: int | None = None
    num_threads = 0


def set_seed(seed):
    """Sets the seed of random numbers, for sessions that are made from now on."""
    _Process.seed = seed


def set_global_thread_pool_sizes(intra_op_num_threads=0, inter_op_num_threads=0):
    """Sets the threads of sessions whose options say ``use_per_session_threads = False``."""
    _Process.num_threads = intra_op_num_threads


class NodeArg:
    """An input or output: `name`, `type` such as "tensor(float)", and `shape`, a list of int, str or None."""

    def __init__(self, value, sizes):
        self.name, self.type = value.name, type_name(value.file_type)
        self.shape = [sizes.get(n, n) for n in value.shape or ()]

    def __repr__(self):
        return f"NodeArg(name={self.name!r}, type={self.type!r}, shape={self.shape!r})"


class ModelMetadata:
    """What a file says of itself."""

    def __init__(self, metadata):
        self.producer_name, self.graph_name, self.domain = metadata.producer, metadata.graph, metadata.domain
        self.description, self.graph_description = metadata.description, metadata.graph_description
        self.version, self.custom_metadata_map = metadata.version, dict(metadata.custom)


class InferenceSession:
    """A network that runs as a session of ONNX Runtime does, on the kernels of fusedops.

    Parameters
    ----------
    path_or_bytes : str, path-like or bytes
        An ONNX model, or a network that :meth:`fusedops.Model.save` wrote.
    sess_options : SessionOptions, optional
    providers : sequence of str or (str, dict), optional
        All but ``"CPUExecutionProvider"`` are a warning.
    provider_options : sequence of dict, optional

    Examples
    --------
    >>> import numpy as np, fusedops.onnxruntime as ort
    >>> from onnx.parser import parse_model
    >>> model = parse_model('''<ir_version: 8, opset_import: ["" : 17]>
    ...     net (float[n, 2] x) => (float[n, 2] y) { h = Add(x, x)  y = Relu(h) }''')
    >>> session = ort.InferenceSession(model.SerializeToString())
    >>> session.get_inputs()
    [NodeArg(name='x', type='tensor(float)', shape=['n', 2])]
    >>> session.run(["y"], {"x": np.float32([[-1, 2]])})
    [array([[0., 4.]], dtype=float32)]
    """

    def __init__(self, path_or_bytes, sess_options=None, providers=None, provider_options=None, **kwargs):
        if not isinstance(path_or_bytes, (str, os.PathLike, bytes)):
            raise TypeError(f"Unable to load from type '{type(path_or_bytes)}'")
        _check_others(kwargs)
        check_providers(providers, provider_options)
        self._sess_options = SessionOptions() if sess_options is None else sess_options._copied()
        self._sess_options._tell()
        self._providers, self._sizes = list(PROVIDERS), self._sess_options._sizes
        self._model_path = None if isinstance(path_or_bytes, bytes) else os.fspath(path_or_bytes)
        options = self._sess_options
        self._profiling = Profiling(options.profile_file_prefix.rstrip("_")) if options.enable_profiling else None
        start = time.monotonic_ns()
        with errors.loading(self._model_path):
            self._model = _load(path_or_bytes, options)
        if self._profiling is not None:
            self._profiling.event("model_loading", start)
        if options.optimized_model_filepath:
            self._model.save(options.optimized_model_filepath)
            logger.warning("%s is a file for fusedops alone", options.optimized_model_filepath)
        self._required = {v.name: v for v in self._model.inputs}
        self._inputs = self._required | {v.name: v for v in self._model.optional_inputs}
        # types of arrays that are taken as they are
        self._plain = {} if self._sizes else {v.name: v.dtype for v in self._inputs.values() if v.shape != ()}
        self._output_names = tuple(v.name for v in self._model.outputs)

    # ---- what there is

    def get_inputs(self):
        """The inputs that a call must give."""
        return [NodeArg(v, self._sizes) for v in self._model.inputs]

    def get_outputs(self):
        """The outputs."""
        return [NodeArg(v, self._sizes) for v in self._model.outputs]

    def get_overridable_initializers(self):
        """The inputs that the file has values for."""
        return [NodeArg(v, self._sizes) for v in self._model.optional_inputs]

    def get_modelmeta(self):
        """What the file says of itself."""
        return ModelMetadata(self._model.metadata)

    def get_session_options(self):
        """A copy of the options."""
        return self._sess_options._copied()

    def get_providers(self):
        """Names of the devices in use: the CPU's."""
        return list(self._providers)

    def get_provider_options(self):
        """Options of the devices in use."""
        return {name: {} for name in self._providers}

    def set_providers(self, providers=None, provider_options=None):
        """Warns about devices that there are none of; the session stays as it is."""
        check_providers(providers, provider_options)

    def enable_fallback(self):
        """Does nothing: there is no device to fall back from."""

    def disable_fallback(self):
        """Does nothing: there is no device to fall back from."""

    # ---- calls

    def run(self, output_names, input_feed, run_options=None):
        """Computes outputs, and of the network what these need.

        Parameters
        ----------
        output_names : sequence of str, or None
            None or none: all.
        input_feed : dict of str to ndarray
            Lists and numbers become arrays of the input's type; an array must have it already.
        run_options : RunOptions, optional

        Returns
        -------
        list of ndarray
        """
        _check_run_options(run_options)
        names = self._names(output_names)
        unique = tuple(dict.fromkeys(names))
        if len(unique) < len(names):
            results = dict(zip(unique, self._results(unique, input_feed), strict=True))
            return [results[name] for name in names]
        return self._results(names, input_feed)

    def _results(self, names, feed, out=None):
        """The outputs of these names, in the arrays of `out` where there are some."""
        given = self._given(feed)
        start = 0 if self._profiling is None else time.monotonic_ns()
        outputs = None if names == self._output_names else names
        try:
            if len(given) > len(self._required):
                found = self._model.run(given, outputs=names)
                return [found[name] for name in names]
            results = self._model(*(given[name] for name in self._required), outputs=outputs, out=out)
        except (TypeError, ValueError) as e:
            raise errors.of_a_call(e) from e
        if self._profiling is not None:
            self._profiling.ran(start, [given[name] for name in self._required])
        return list(results) if isinstance(results, tuple) else [results]

    def run_with_ort_values(self, output_names, input_dict_ort_values, run_options=None):
        """As :meth:`run`, from values to values."""
        return [OrtValue(y) for y in self.run(output_names, input_dict_ort_values, run_options)]

    def run_async(self, output_names, input_feed, callback, user_data, run_options=None):
        """Runs in a thread of its own, and then calls ``callback(results, user_data, error)``; `error` is "" where
        there is none."""
        self._names(output_names)
        given = self._given(input_feed)

        def work():
            try:
                results, error = self.run(output_names, given, run_options), ""
            except Exception as e:
                results, error = [], str(e)
            callback(results, user_data, error)

        threading.Thread(target=work, name="fusedops run_async").start()

    def io_binding(self):
        """Inputs and outputs in memory of the caller's, for :meth:`run_with_iobinding`."""
        return IOBinding(self)

    def run_with_iobinding(self, iobinding, run_options=None):
        """Runs the session on the inputs of a binding and writes its outputs."""
        if iobinding._session is not self:
            raise ValueError("IOBinding must be used with the session that created it.")
        _check_run_options(run_options)
        iobinding._run(self._run_into)

    def _run_into(self, inputs, outputs):
        """The outputs, in the arrays that are given for them, None for new ones."""
        try:
            return self._results(tuple(outputs), inputs, tuple(outputs.values()))
        except (errors.InvalidArgument, errors.Fail, ValueError) as e:
            raise RuntimeError(f"Error in execution: {e}") from e

    def _names(self, output_names):
        if isinstance(output_names, str):
            raise TypeError(f"run() takes a list of the names of outputs: [{output_names!r}], or None for all")
        if not output_names:
            return self._output_names
        names = tuple(output_names)
        for name in names:
            if name not in self._output_names:
                raise errors.InvalidArgument(f"Invalid output name:{name}: there are {', '.join(self._output_names)}")
        return names

    def _given(self, feed):
        """The arrays of a call by the names of its inputs."""
        if not isinstance(feed, Mapping):
            raise AttributeError(f"run() takes a dict from the names of inputs to arrays, not {type(feed).__name__}")
        if not feed.keys() >= self._required.keys():
            missing = [name for name in self._required if name not in feed]
            raise ValueError(f"Required inputs ({missing}) are missing from input feed ({list(feed)}).")
        given = {}
        for name, x in feed.items():
            plain = self._plain.get(name)
            if x.__class__ is np.ndarray and x.dtype is plain:
                given[name] = x
            elif name in self._inputs:
                given[name] = self._array(self._inputs[name], x)
            else:
                raise errors.InvalidArgument(f"Invalid input name: {name}: there are {', '.join(self._inputs)}")
        return given

    def _array(self, value, x):
        """Converts the value for an input to what the network takes."""
        x = x._value if isinstance(x, OrtValue) else x
        if value.dtype == object:
            if not isinstance(x, list):
                raise RuntimeError(f"Iterable of {type(x)} should be given as a list of arrays for {value.name!r}.")
            return x
        if not isinstance(x, np.ndarray):
            return _converted(value, x)
        if not x.dtype.isnative:
            x = x.astype(x.dtype.newbyteorder("="))
        if x.dtype != value.dtype:
            raise errors.InvalidArgument(
                f"Unexpected input data type. Actual: ({type_name(x.dtype.name)}) , expected: "
                f"({type_name(value.file_type)}): pass {value.name}.astype({value.dtype.name!r})"
            )
        self._check_sizes(value, x)
        return _scalar(value, x)

    def _check_sizes(self, value, x):
        """Refuses sizes that are not those that the options fix."""
        if not self._sizes or value.shape is None or len(value.shape) != x.ndim:
            return  # the network checks the rest
        for axis, (n, name) in enumerate(zip(x.shape, value.shape, strict=True)):
            if self._sizes.get(name, n) != n:
                raise errors.InvalidArgument(
                    f"Got invalid dimensions for input: {value.name} for the following indices: index: {axis} "
                    f"Got: {n} Expected: {self._sizes[name]}, which the session's options fix"
                )

    # ---- the profile

    def end_profiling(self):
        """Times each node on the inputs of the latest call, writes all to a file and returns its name; "" where there
        is nothing to write."""
        if self._profiling is None:
            return ""
        found, self._profiling = self._profiling, None
        return found.write(self._model)

    def get_profiling_start_time_ns(self):
        """When profiling began, as ``time.monotonic_ns()`` tells it; 0 where it did not."""
        return 0 if self._profiling is None else self._profiling.start_ns


def _load(source, options):
    threads = options.intra_op_num_threads if options.use_per_session_threads else _Process.num_threads
    threads = min(threads, 1024) if threads > 0 else None
    if threads is not None and threads > fo.get_num_threads():
        logger.info("of %d threads %d are used: see fusedops.set_num_threads", threads, fo.get_num_threads())
    if _starts_with(source, b"PK"):
        return fo.load(source, num_threads=threads)
    if _starts_with(source, b"ORTM", at=4) or str(source).endswith(".ort") and not isinstance(source, bytes):
        raise errors.NotImplemented("files of the format ORT cannot be read here: load the ONNX file")
    level = options.graph_optimization_level
    fold, fuse = level > GraphOptimizationLevel.ORT_DISABLE_ALL, level > GraphOptimizationLevel.ORT_ENABLE_BASIC
    return fo.load_onnx(source, fold=fold, fuse=fuse, seed=_Process.seed, num_threads=threads)


def _check_others(others):
    """Refuses arguments that a session does not have, and warns of those without effect."""
    unknown = others.keys() - {"enable_fallback", "disabled_optimizers", "read_config_from_model"}
    if unknown:
        raise TypeError(f"InferenceSession has no argument {min(unknown)!r}")
    if others.get("disabled_optimizers"):
        warnings.warn("disabled_optimizers names passes of ONNX Runtime: it has no effect", stacklevel=3)
    if int(others.get("read_config_from_model", os.environ.get("ORT_LOAD_CONFIG_FROM_MODEL", 0))):
        warnings.warn("options in the model are not read: pass them as sess_options", stacklevel=3)


def _starts_with(source, mark, at=0):
    if isinstance(source, bytes):
        return source[at : at + len(mark)] == mark
    if not os.path.isfile(source):
        return False
    with open(source, "rb") as f:
        return f.read(at + len(mark))[at:] == mark


def _converted(value, x):
    """A list or a number as an array of the input's type."""
    if x is None:
        raise errors.Fail(f"{value.name} is None: all inputs of the network are needed")
    if not isinstance(x, (list, tuple, Number, np.generic)):
        raise RuntimeError(f"Unable to handle object of type {type(x)} for {value.name!r}: pass a numpy array")
    try:
        kind = np.array(x).dtype
        if not np.can_cast(kind, value.dtype, "same_kind"):
            raise TypeError(f"elements of {kind} are no {value.dtype}")
        return _scalar(value, np.array(x, value.dtype))
    except (OverflowError, TypeError, ValueError) as e:
        raise RuntimeError(f"Could not create tensor from given input list for {value.name!r}: {e}") from e


def _scalar(value, x):
    """An array of one element where the network takes a number: ONNX Runtime does not look at the axes there."""
    return x.reshape(()) if value.shape == () and x.ndim and x.size == 1 else x


def _check_run_options(options):
    if options is None:
        return
    if not isinstance(options, RunOptions):
        raise TypeError(f"run(): run_options is a RunOptions, not {type(options).__name__}")
    if options.terminate:
        raise errors.Fail("Exiting due to terminate flag being set to true.")
