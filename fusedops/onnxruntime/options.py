"""The options of a session and of a call. What has a counterpart here is applied; what is about ONNX Runtime's memory,
logs and threads alone is told to the logger ``fusedops.onnxruntime``; what would change results or devices is a warning
or an error."""

import logging
import warnings
from dataclasses import dataclass, field, fields
from enum import IntEnum
from operator import index

from . import errors
from .providers import check_providers

logger = logging.getLogger("fusedops.onnxruntime")
SEVERITIES = logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL
# entries of a session that choose how ONNX Runtime itself works, and change no result
OWN_ENTRIES = (
    "ep.",
    "mlas.",
    "optimization.",
    "session.debug_",
    "session.disable_prepacking",
    "session.dynamic_block_base",
    "session.force_spinning_stop",
    "session.inter_op.",
    "session.intra_op.",
    "session.qdqisint8allowed",
    "session.record_ep_graph_assignment_info",
    "session.set_denormal_as_zero",
    "session.use_device_allocator_for_initializers",
    "session.use_env_allocators",
    "session.use_memory_mapped_ort_model",
    "session.use_ort_model_bytes",
)


_APPLIED = {"intra_op_num_threads", "graph_optimization_level", "optimized_model_filepath", "enable_profiling"}
_APPLIED |= {"profile_file_prefix", "use_per_session_threads"}
# what holds here in any case
_APPLIED |= {"use_deterministic_compute"}


class GraphOptimizationLevel(IntEnum):
    """What is fused: nothing, constants folded alone, or all."""

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99


class ExecutionMode(IntEnum):
    """How nodes follow one another. Here they run one after another, each on all threads."""

    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


class ExecutionOrder(IntEnum):
    """The order of nodes, which has no counterpart here."""

    DEFAULT = 0
    PRIORITY_BASED = 1
    MEMORY_EFFICIENT = 2


_KINDS = bool, str, GraphOptimizationLevel, ExecutionMode, ExecutionOrder


class _Options:
    """Attributes of the kinds that their defaults have."""

    __slots__ = ()

    def __setattr__(self, name, value):
        known = {f.name: f.default for f in fields(self)}  # type: ignore[arg-type]
        kind = type(known.get(name))
        if kind is int:
            value = index(value)  # or a TypeError
        elif kind in _KINDS and not isinstance(value, kind):
            raise TypeError(f"{name} is a {kind.__name__}, not {value!r}")
        object.__setattr__(self, name, value)


@dataclass(slots=True, eq=False)
class SessionOptions(_Options):
    """Options of an :class:`InferenceSession`, as ONNX Runtime has them.

    Attributes
    ----------
    intra_op_num_threads : int
        The most threads of an operation, of those that :func:`fusedops.set_num_threads` allows; 0: all of them.
    graph_optimization_level : GraphOptimizationLevel
        ORT_DISABLE_ALL folds and fuses nothing, ORT_ENABLE_BASIC folds; the others do all.
    optimized_model_filepath : str
        Where the network is saved, fused as it is: a file for :func:`fusedops.load` and sessions of this module.
    enable_profiling, profile_file_prefix : bool, str
        A file of each node's time; see :meth:`InferenceSession.end_profiling`.

    Examples
    --------
    >>> import fusedops.onnxruntime as ort
    >>> options = ort.SessionOptions()
    >>> options.intra_op_num_threads = 1
    """

    enable_cpu_mem_arena: bool = True
    enable_mem_pattern: bool = True
    enable_mem_reuse: bool = True
    enable_profiling: bool = False
    execution_mode: ExecutionMode = ExecutionMode.ORT_SEQUENTIAL
    execution_order: ExecutionOrder = ExecutionOrder.DEFAULT
    graph_optimization_level: GraphOptimizationLevel = GraphOptimizationLevel.ORT_ENABLE_ALL
    inter_op_num_threads: int = 0
    intra_op_num_threads: int = 0
    log_severity_level: int = -1
    log_verbosity_level: int = 0
    logid: str = ""
    optimized_model_filepath: str = ""
    profile_file_prefix: str = "onnxruntime_profile_"
    use_deterministic_compute: bool = False
    use_per_session_threads: bool = True
    _entries: dict[str, str] = field(default_factory=dict, init=False)
    _sizes: dict[str, int] = field(default_factory=dict, init=False)

    def add_session_config_entry(self, key, value):
        """Sets an entry of the configuration by its name."""
        key, value = _texts(key, value)
        if key == "session.load_model_format" and value.upper() != "ONNX":
            raise errors.NotImplemented(f"files of the format {value} cannot be read here: load the ONNX file")
        if not key.startswith((*OWN_ENTRIES, "session.load_model_format")):
            warnings.warn(f"fusedops.onnxruntime does not know the entry {key!r}: it has no effect", stacklevel=2)
        self._entries[key] = value

    def get_session_config_entry(self, key):
        """The value of an entry that was set."""
        if key not in self._entries:
            raise RuntimeError(f"SessionOptions does not have configuration with key: {key}")
        return self._entries[key]

    def add_free_dimension_override_by_name(self, name, size):
        """Fixes the size of a dimension of inputs and outputs that the file names."""
        self._sizes[name] = index(size)

    def add_free_dimension_override_by_denotation(self, denotation, size):
        """Refused: the denotations of a file are not read."""
        raise errors.NotImplemented("denotations are not read: call add_free_dimension_override_by_name")

    def register_custom_ops_library(self, path):
        """Refused: libraries of operators for ONNX Runtime cannot be called from here."""
        raise errors.NotImplemented(
            f"{path} has operators for ONNX Runtime itself, which fusedops cannot call: give the model a function "
            "(onnx.FunctionProto) for each of them"
        )

    def add_initializer(self, name, value):
        """Refused: weights come from the file."""
        raise errors.NotImplemented(f"weights such as {name!r} come from the model: write them into the file")

    def add_external_initializers(self, names, values):
        """Refused: weights come from the file, or from those next to it."""
        raise errors.NotImplemented("weights come from the model, or from files next to it: load the model by its path")

    def has_providers(self):
        """Whether the options themselves have providers: never, as there is the CPU alone."""
        return False

    def add_provider(self, name, options):
        """Takes a provider, of which only the CPU's is not a warning."""
        check_providers([name], [options])

    def _copied(self):
        """The options as they are now."""
        public = {f.name: getattr(self, f.name) for f in fields(self) if f.init}
        made = SessionOptions(**public)
        made._entries.update(self._entries)
        made._sizes.update(self._sizes)
        return made

    def _tell(self):
        """Tells the log what has no counterpart here."""
        for f in fields(self):
            if f.init and f.name not in _APPLIED and getattr(self, f.name) != f.default:
                logger.info("%s = %r has no counterpart and no effect", f.name, getattr(self, f.name))
        for key, value in self._entries.items():
            logger.info("the entry %s = %s has no counterpart and no effect", key, value)


@dataclass(slots=True, eq=False)
class RunOptions(_Options):
    """Options of a call. With `terminate` it ends before it begins; the outputs that are asked for alone are computed
    in any case.

    Examples
    --------
    >>> import fusedops.onnxruntime as ort
    >>> ort.RunOptions().terminate
    False
    """

    log_severity_level: int = -1
    log_verbosity_level: int = 0
    logid: str = ""
    only_execute_path_to_fetches: bool = False
    terminate: bool = False
    _entries: dict[str, str] = field(default_factory=dict, init=False)

    def add_run_config_entry(self, key, value):
        """Sets an entry of the configuration, of which none has an effect here."""
        key, value = _texts(key, value)
        logger.info("the entry %s = %s has no counterpart and no effect", key, value)
        self._entries[key] = value

    def get_run_config_entry(self, key):
        """The value of an entry that was set."""
        if key not in self._entries:
            raise RuntimeError(f"RunOptions does not have configuration with key: {key}")
        return self._entries[key]

    def add_active_adapter(self, adapter):
        """Refused: there are no adapters here."""
        raise errors.NotImplemented("LoRA adapters are not supported: merge them into the weights")


def _texts(key, value):
    if not isinstance(key, str) or not isinstance(value, str):
        raise TypeError(f"an entry of the configuration has a name and a value of type str, not {key!r}, {value!r}")
    return key, value
