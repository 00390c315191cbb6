"""Interpreter over :class:`fusedops.Model`."""

import enum
import logging
import os
import warnings

import numpy as np

import fusedops as fo

from .flatbuffer import File

logger = logging.getLogger("fusedops.litert")
MODELS = 4  # kept of other sizes and signatures, each with weights of its own
_NULL = "Tensor data is null. Run allocate_tensors() first"


class OpResolverType(enum.Enum):
    """Which kernels compute; here there are those of fusedops alone."""

    AUTO = 0
    BUILTIN = 1
    BUILTIN_REF = 2
    BUILTIN_WITHOUT_DEFAULT_DELEGATES = 3


class Delegate:
    """A library for another device: none can be loaded."""

    def __init__(self, library, options=None):
        raise ValueError(f"Failed to load delegate from {library}: fusedops computes on the CPU, by kernels of its own")


def load_delegate(library, options=None):
    """Refuses to load a delegate, with the error that programs fall back from."""
    return Delegate(library, options)


class Interpreter:
    """A TFLite network that is called as LiteRT's interpreter calls one, on the kernels of fusedops.

    Parameters
    ----------
    model_path : str or path-like, optional
    model_content : bytes, optional
        The file itself; one of these two.
    experimental_delegates : list, optional
        Refused.
    num_threads : int, optional
        The most threads of an operation, of those that :func:`fusedops.set_num_threads` allows; None: all of them.
    experimental_op_resolver_type : OpResolverType
    experimental_preserve_all_tensors : bool
        A warning: what is between operations is not kept.
    **others
        Further experimental options of LiteRT, which have no effect here.

    Examples
    --------
    >>> import base64, zlib
    >>> import numpy as np
    >>> from fusedops.litert import Interpreter
    >>> file = zlib.decompress(base64.b85decode(
    ...     'c-oU;U|<Mw^D!1-kYEsD5MbZ|@;MklfCb2BfMW?DmH}dB1_)q;ih*baD18E~3j`T}=0Hs20P;X)3IMSU5IX>'
    ...     '|3sk)T*d#8foh(2W#BLs_JPb2n;WGiT0oXnUhA033{}+I=8KG_j(UoAcc;NnlxdUBY1ymh3k~(3CHNpVekqT'
    ...     'Y'))
    >>> interpreter = Interpreter(model_content=file)
    >>> interpreter.allocate_tensors()
    >>> x, y = interpreter.get_input_details()[0], interpreter.get_output_details()[0]
    >>> interpreter.set_tensor(x["index"], np.float32([-1, 0, 2]))
    >>> interpreter.invoke()
    >>> interpreter.get_tensor(y["index"])
    array([0., 0., 2.], dtype=float32)
    """

    def __init__(
        self,
        model_path=None,
        model_content=None,
        experimental_delegates=None,
        num_threads=None,
        experimental_op_resolver_type=OpResolverType.AUTO,
        experimental_preserve_all_tensors=False,
        **others,
    ):
        _check_options(num_threads, experimental_delegates, experimental_op_resolver_type, others)
        if experimental_preserve_all_tensors:
            warnings.warn(
                "fusedops keeps no tensors between operations: get_tensor() of them is an error", stacklevel=2
            )
        data = _content(model_path, model_content)
        self._num_threads = num_threads
        self._models: dict[tuple, fo.Model] = {}  # by signature and the sizes of inputs that the file does not have
        self._open = True
        self._model = self._models[None, ()] = self._load(data)
        self._file = File(data)
        self._tensors, self._inputs, self._outputs = (
            each[0] for each in (self._file.tensors, self._file.inputs, self._file.outputs)
        )
        self._shapes = {i: self._tensors[i].shape.tolist() for i in self._inputs}
        self._given, self._results = {}, None
        self._ready = False
        self._result_shapes = None  # of the sizes that were allocated, where they are known

    def _load(self, data):
        """The network of the file: with its open sizes, or with those that it begins with, where an operator wants
        them fixed."""
        try:
            return fo.load_tflite(data, num_threads=self._num_threads)
        except fo.UnsupportedOperator:
            file = File(data)
            fixed = file.resized({(0, i): file.tensors[0][i].shape for i in file.inputs[0]})
            if fixed == data:
                raise
            self._open = False
            return fo.load_tflite(fixed, num_threads=self._num_threads)

    # ---- what there is

    def get_input_details(self):
        """Names, sizes, types and scales of the inputs."""
        return [self._tensors[i].details(self._shapes[i]) for i in self._inputs]

    def get_output_details(self):
        """The same of the outputs."""
        shapes = self._shapes_of_results()
        return [self._tensors[i].details(shapes.get(i)) for i in self._outputs]

    def get_tensor_details(self, subgraph_index=0):
        """The same of all tensors of a subgraph."""
        if not 0 <= subgraph_index < self.num_subgraphs():
            raise ValueError(
                f"subgraph_index is out of range: {subgraph_index} for the model, which has {self.num_subgraphs()} "
                "subgraphs."
            )
        if subgraph_index:
            return [t.details() for t in self._file.tensors[subgraph_index] if t.dtype is not None]
        shapes = self._shapes_of_results() | self._shapes
        return [t.details(shapes.get(t.number)) for t in self._tensors if t.dtype is not None]

    def num_subgraphs(self):
        """How many subgraphs the file has."""
        return len(self._file.tensors)

    def get_signature_list(self):
        """The names of inputs and outputs of each signature by its key."""
        return {key: {"inputs": list(s.inputs), "outputs": list(s.outputs)} for key, s in self._file.signatures.items()}

    def _shapes_of_results(self):
        """{output: shape} for the sizes that the inputs have; {} while they are those of the file."""
        if self._results is not None:
            return {i: np.shape(y) for i, y in zip(self._outputs, self._results, strict=True)}
        if not self._ready or all(self._shapes[i] == self._tensors[i].shape.tolist() for i in self._inputs):
            return {}
        if self._result_shapes is None:
            model = self.model_of(None, 0, self._shapes)
            self._result_shapes = {
                i: v.shape
                for i, v in zip(self._outputs, model.outputs, strict=True)
                if v.shape is not None and all(isinstance(n, int) for n in v.shape)
            }
        return self._result_shapes

    # ---- tensors

    def allocate_tensors(self):
        """Makes the inputs, in the sizes that they have now."""
        if not self._ready:
            fixed = [self._shapes[i] for i in self._inputs if not self._fits(i, self._shapes[i])]
            self._model = self.model_of(None, 0, self._shapes) if fixed else self._models[None, ()]
            self._given = {
                i: self._given[i] if i in self._given and self._given[i].shape == tuple(self._shapes[i]) else zeros
                for i in self._inputs
                for zeros in [np.zeros(self._shapes[i], self._tensors[i].dtype)]
            }
            self._ready, self._results, self._result_shapes = True, None, None

    def _fits(self, i, shape, subgraph=0):
        """Whether the network as the file has it takes an input of this shape."""
        tensor = self._file.tensors[subgraph][i]
        signature = (tensor.signature if self._open else tensor.shape).tolist()
        return len(signature) == len(shape) and all(n in (-1, m) for n, m in zip(signature, shape, strict=True))

    def resize_tensor_input(self, input_index, tensor_size, strict=False):
        """Gives an input another size; the next call is :meth:`allocate_tensors`."""
        shape = [int(n) for n in tensor_size]
        if input_index not in self._inputs:
            raise ValueError(f"tensor {input_index} is not an input: the inputs are {self._inputs}")
        if strict and not self._fits(input_index, shape):
            raise RuntimeError(
                f"tensor {input_index} has the shape {self._tensors[input_index].signature.tolist()}, and strict=True "
                f"lets sizes of -1 alone become others: not {shape}"
            )
        if len(shape) != self._tensors[input_index].shape.size:
            raise ValueError(
                f"tensor {input_index} has {self._tensors[input_index].shape.size} axes, and fusedops cannot give it "
                f"{len(shape)}: {shape}"
            )
        if shape != self._shapes[input_index]:
            self._shapes[input_index], self._ready, self._results = shape, False, None

    def set_tensor(self, tensor_index, value):
        """Copies an array into an input."""
        tensor, value = self._tensor(tensor_index), np.asarray(value)
        if not self._ready:
            raise ValueError("Cannot set tensor: Tensor is unallocated. Try calling allocate_tensors() first")
        if tensor_index not in self._given:
            given = f"{tensor_index} ({tensor.name})"
            raise ValueError(f"Cannot set tensor: {given} is not an input: the inputs are {self._inputs}")
        _check_type(tensor, value)
        shape = self._given[tensor_index].shape
        if value.shape != shape:
            raise ValueError(
                f"Cannot set tensor: Dimension mismatch. Got {value.shape} but expected {shape} for input "
                f"{tensor_index}: call resize_tensor_input({tensor_index}, {list(value.shape)}) and allocate_tensors()"
            )
        np.copyto(self._given[tensor_index], value)

    def get_tensor(self, tensor_index, subgraph_index=0):
        """A copy of an input, of a constant, or of an output after :meth:`invoke`."""
        if subgraph_index:
            raise ValueError("tensors of other subgraphs than the first are not kept: call a signature's runner")
        return self._array(tensor_index).copy()

    def tensor(self, tensor_index):
        """A function that gives the array of an input, which may be written, or of an output."""
        self._tensor(tensor_index)
        return lambda: self._array(tensor_index)

    def _tensor(self, i):
        if not 0 <= i < len(self._tensors):
            raise ValueError(f"Invalid tensor index {i} exceeds max tensor index {len(self._tensors)}")
        return self._tensors[i]

    def _array(self, i):
        tensor = self._tensor(i)
        if tensor.data is not None:
            return tensor.data
        if not self._ready:
            raise ValueError(_NULL)
        if i in self._given:
            return self._given[i]
        if i not in self._outputs:
            raise ValueError(f"{_NULL}: and fusedops does not keep {tensor.name!r}, which is between operations")
        if self._results is None:
            raise ValueError(f"output {tensor.name!r} is not computed yet: call invoke() first")
        return self._results[self._outputs.index(i)]

    # ---- calls

    def invoke(self):
        """Computes the outputs."""
        if not self._ready:
            raise RuntimeError("Invoke called on model that is not ready: call allocate_tensors() first")
        results = self._model(*(self._given[i] for i in self._inputs))
        self._results = list(results) if isinstance(results, tuple) else [results]

    def reset_all_variables(self):
        """Gives variables the values that they had at first."""
        for model in self._models.values():
            model.reset()

    def get_signature_runner(self, signature_key=None):
        """A function that takes the inputs of a signature by their names and gives its outputs as a dict."""
        keys = list(self._file.signatures)
        if signature_key is None:
            if len(keys) != 1:
                raise ValueError(
                    f"SignatureDef signature_key is None and model has {len(keys)} Signatures. None is only allowed "
                    "when the model has 1 SignatureDef"
                )
            signature_key = keys[0]
        return SignatureRunner(self, signature_key)

    def model_of(self, key, subgraph, shapes):
        """The network of a signature, or of the first subgraph, for inputs of these shapes, {tensor: shape}."""
        fixed = () if all(self._fits(i, n, subgraph) for i, n in shapes.items()) and key is not None else shapes
        name = None if subgraph == 0 else key  # they share its variables
        asked = name, tuple((i, tuple(n)) for i, n in fixed.items()) if fixed else ()
        if asked not in self._models:
            if self._file.has_variables:
                warnings.warn("variables are kept for each signature and each size of inputs apart", stacklevel=3)
            sizes = {(subgraph, i): n for i, n in fixed.items()} if fixed else {}
            data = self._file.resized(sizes)
            if len(self._models) > MODELS:
                del self._models[list(self._models)[1]]  # the first is that of the file
            self._models[asked] = fo.load_tflite(data, signature=name, num_threads=self._num_threads)
        return self._models[asked]


class SignatureRunner:
    """The network of a signature; see :meth:`Interpreter.get_signature_runner`."""

    def __init__(self, interpreter, signature_key):
        if signature_key not in interpreter._file.signatures:
            raise ValueError(f'Invalid signature_key provided: "{signature_key}".')
        self._interpreter, self._key = interpreter, signature_key
        self._signature = interpreter._file.signatures[signature_key]
        file, graph = interpreter._file, self._signature.subgraph
        self._tensors, self._inputs, self._outputs = file.tensors[graph], file.inputs[graph], file.outputs[graph]

    def __call__(self, **kwargs):
        names = {i: name for name, i in self._signature.inputs.items()}
        if len(kwargs) != len(names):
            raise ValueError(
                "Invalid number of inputs provided for running a SignatureDef, expected "
                f"{len(names)} vs provided {len(kwargs)}: it takes {', '.join(names.values())}"
            )
        for name in kwargs:
            if name not in self._signature.inputs:
                raise ValueError(f"Invalid Input name ({name}) for SignatureDef: it takes {', '.join(names.values())}")
        given = {i: np.asarray(kwargs[name]) for i, name in names.items()}
        for i, x in given.items():
            _check_type(self._tensors[i], x)
        shapes = {i: list(given[i].shape) for i in self._inputs}
        model = self._interpreter.model_of(self._key, self._signature.subgraph, shapes)
        results = model(*(given[i] for i in self._inputs))
        by_tensor = dict(zip(self._outputs, results if isinstance(results, tuple) else (results,), strict=True))
        return {name: by_tensor[i] for name, i in self._signature.outputs.items()}

    def get_input_details(self):
        """Details of the inputs by their names."""
        return {name: self._tensors[i].details() for name, i in self._signature.inputs.items()}

    def get_output_details(self):
        """Details of the outputs by their names."""
        return {name: self._tensors[i].details() for name, i in self._signature.outputs.items()}


def _content(path, content):
    """The bytes of the file."""
    if not path and not content:
        raise ValueError("`model_path` or `model_content` must be specified.")
    if path and content:
        raise ValueError("Can't both provide `model_path` and `model_content`")
    if content:
        return bytes(content)
    try:
        with open(os.fspath(path), "rb") as f:
            return f.read()
    except OSError as e:
        raise ValueError(f"Could not open {path!r}: {e}") from e


_EXPERIMENTAL = {
    "experimental_disable_delegate_clustering",
    "experimental_default_delegate_latest_features",
    "experimental_compress_quantization_zero_points",
    "experimental_disable_delegate_node_fusion",
    "experimental_force_delegate_node_profiling",
}


def _check_options(num_threads, delegates, resolver, others):
    if num_threads is not None:
        if not isinstance(num_threads, int):
            raise ValueError("type of num_threads should be int")
        if num_threads < 1:
            raise ValueError("num_threads should >= 1")
    if delegates:
        raise ValueError("fusedops computes on the CPU, by kernels of its own: it takes no delegates")
    if not isinstance(resolver, OpResolverType):
        raise ValueError(f"Unrecognized passed in op resolver type: {resolver}")
    if resolver is not OpResolverType.AUTO:
        logger.info("%s has no counterpart and no effect", resolver)
    for name, value in others.items():
        if name not in _EXPERIMENTAL:
            raise TypeError(f"Interpreter has no argument {name!r}")
        logger.info("%s = %r has no counterpart and no effect", name, value)


def _check_type(tensor, value):
    if value.dtype != tensor.dtype:
        wanted = np.dtype(tensor.dtype).name
        raise ValueError(
            f"Cannot set tensor: Got value of type {value.dtype.name.upper()} but expected type {wanted.upper()} for "
            f"input {tensor.number}, name: {tensor.name}: pass it as astype({wanted!r})"
        )
