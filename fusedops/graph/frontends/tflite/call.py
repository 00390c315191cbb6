"""An operator of a TFLite model as its reader sees it, and the tensors that it takes and makes."""

from collections.abc import Iterator

from ...ir.errors import BadNode, UnsupportedOperator
from .flat_model import QUANTIZED

FIRST, LAST = [0, 3, 1, 2], [0, 2, 3, 1]  # the axes of images with channels last as channels first, and the way back


class Held:
    """A tensor while a subgraph is read: `forms` has its values in the graph by (channels first, real). `native`:
    whether it was made with its channels first; `raw`: what stands for the file's integer 0."""

    __slots__ = "forms", "handle", "native", "raw", "tensor"

    def __init__(self, tensor, value=None, raw=0):
        self.tensor, self.handle, self.native, self.raw = tensor, None, False, raw
        self.forms = {} if value is None else {(False, False): value}

    @property
    def quantization(self):
        """How the elements are quantized; None where they are numbers themselves."""
        return self.tensor.quantization if self.tensor.dtype in QUANTIZED else None


class Helds(list):
    """The tensors that an operator takes or makes. One that it lacks, or that is left out, is an error of the operator
    where it is asked for; Call.input gives None."""

    def __getitem__(self, i):
        if isinstance(i, slice):
            return [self[j] for j in range(i.start or 0, len(self) if i.stop is None else i.stop)]
        found = super().__getitem__(i) if -len(self) <= i < len(self) else None
        if found is None:
            raise BadNode(f"it has no tensor {i} among {len(self)}")
        return found

    def __iter__(self) -> Iterator:
        return (self[i] for i in range(len(self)))


class Call:
    """An operator that is read: its `inputs` and `outputs` are Helds."""

    def __init__(self, reader, operation, name, inputs, outputs):
        self.reader, self.name, self.inputs, self.outputs = reader, name, Helds(inputs), Helds(outputs)
        self.kind, self.options, self.custom = operation.kind, operation.options, operation.custom

    def input(self, i):
        """A tensor that may be left out, or None."""
        return list.__getitem__(self.inputs, i) if i < len(self.inputs) else None

    def error(self, what):
        return UnsupportedOperator(f"{self.kind} {self.name!r}: {what}")

    def constant(self, i, what):
        """The data of an input that must be constant."""
        found = self.reader.array(self.inputs[i])
        if found is None:
            raise self.error(f"its {what} is computed by the network: fusedops takes one that is constant")
        return found

    def option(self, name, default=0):
        """An option of the operator, or what the schema has where it is left out."""
        if self.options is None:
            return default
        if not hasattr(self.options, name):
            raise BadNode(f"its options are {type(self.options).__name__}, which have no {name}")
        return getattr(self.options, name)()

    def numbers(self, name):
        """An option that is a list of numbers."""
        found = self.option(f"{name}AsNumpy")
        return [] if isinstance(found, int) else found.tolist()
