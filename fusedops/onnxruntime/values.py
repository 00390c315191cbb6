"""OrtValue: an array, or a list of them, in the memory of the CPU."""

import ctypes
from enum import IntEnum

import numpy as np

_NAMES = {"float32": "float", "float64": "double"}
_TYPES = {  # ONNX's numbers
    "float32": 1,
    "uint8": 2,
    "int8": 3,
    "uint16": 4,
    "int16": 5,
    "int32": 6,
    "int64": 7,
    "bool": 9,
    "float16": 10,
    "float64": 11,
    "uint32": 12,
    "uint64": 13,
}
_DTYPES = {number: np.dtype(name) for name, number in _TYPES.items()}


def type_name(file_type):
    """ONNX Runtime's name of a type: tensor(float)."""
    if file_type.startswith("sequence("):
        return f"seq({type_name(file_type[len('sequence(') : -1])})"
    return f"tensor({_NAMES.get(file_type, file_type)})"


def on_cpu(device):
    """Refuses all devices but the CPU."""
    if str(device).lower() != "cpu":
        raise RuntimeError(f"there is no device {device!r} here: fusedops computes on the CPU")


def dtype_of(given):
    """NumPy's type of elements of a type of NumPy's or ONNX's number."""
    if isinstance(given, (int, np.integer)) and not isinstance(given, bool):
        if given not in _DTYPES:
            raise RuntimeError(f"NumPy has no type of elements for ONNX's number {given}")
        return _DTYPES[int(given)]
    return np.dtype(given)


def memory_at(address, shape, dtype):
    """An array of the memory at an address."""
    shape, dtype = tuple(shape), dtype_of(dtype)
    nbytes = dtype.itemsize * int(np.prod(shape, dtype=np.int64))
    if not nbytes:
        return np.empty(shape, dtype)
    return np.frombuffer((ctypes.c_char * nbytes).from_address(address), dtype).reshape(shape)


class OrtDeviceVendorId(IntEnum):
    """Who made a device; of the CPU nobody asks."""

    NONE = 0


class OrtDevice:
    """The CPU."""

    def __init__(self, name="cpu", device_id=0):
        on_cpu(name)
        self._id = device_id

    @staticmethod
    def make(ort_device_name, device_id, vendor_id=-1):
        """The device of this name: the CPU."""
        return OrtDevice(ort_device_name, device_id)

    def device_id(self):
        """Its number."""
        return self._id

    def device_type(self):
        """0, the number of CPUs."""
        return 0


class OrtValue:
    """A value in the memory of the CPU, as ONNX Runtime has it. It shares the memory of the array that it is made of.

    Examples
    --------
    >>> import numpy as np, fusedops.onnxruntime as ort
    >>> value = ort.OrtValue.ortvalue_from_numpy(np.ones((2, 3), np.float32))
    >>> value.data_type(), value.shape()
    ('tensor(float)', [2, 3])
    """

    def __init__(self, value):
        self._value = value

    @classmethod
    def ortvalue_from_numpy(cls, numpy_obj, /, device_type="cpu", device_id=0, vendor_id=-1):
        """The value of an array."""
        on_cpu(device_type)
        if not isinstance(numpy_obj, np.ndarray) or numpy_obj.dtype.name not in _TYPES:
            raise RuntimeError(f"an OrtValue is made of a numpy array of numbers, not {type(numpy_obj).__name__}")
        return cls(np.ascontiguousarray(numpy_obj).reshape(numpy_obj.shape))

    @classmethod
    def ortvalue_from_numpy_with_onnx_type(cls, data, /, onnx_element_type):
        """The value of an array whose elements are read as of another type of the same size."""
        dtype = dtype_of(onnx_element_type)
        if dtype.itemsize != data.dtype.itemsize:
            raise RuntimeError(f"elements of {data.dtype} cannot be read as {dtype}: they differ in size")
        return cls(np.ascontiguousarray(data).view(dtype))

    @classmethod
    def ortvalue_from_shape_and_type(cls, shape, element_type, device_type="cpu", device_id=0, vendor_id=-1):
        """A new value of this shape, with zeros."""
        on_cpu(device_type)
        return cls(np.zeros(tuple(shape), dtype_of(element_type)))

    @classmethod
    def from_dlpack(cls, data, /):
        """The value of what has DLPack's protocol."""
        return cls(np.from_dlpack(data))

    def __dlpack__(self, *, stream=None):
        return self.numpy().__dlpack__()

    def __dlpack_device__(self):
        return self.numpy().__dlpack_device__()

    def __array__(self, dtype=None, copy=None):
        a = self.numpy()
        if copy:
            return np.array(a, dtype)
        return a if dtype is None else np.asarray(a, dtype)

    def numpy(self):
        """The array, in the same memory."""
        if not self.is_tensor():
            raise RuntimeError("the value is a sequence of arrays: there is no one array of it")
        return self._value.view()

    def update_inplace(self, data):
        """Writes the elements of an array, or of another value, into this one."""
        data = data.numpy() if isinstance(data, OrtValue) else data
        if not isinstance(data, np.ndarray):
            raise TypeError("data must be a numpy.ndarray or an OrtValue.")
        if data.size != self.numpy().size:
            raise RuntimeError(f"the value has {self.numpy().size} elements, and the data {data.size}")
        if data.dtype != self._value.dtype:
            raise RuntimeError(f"the value has elements of {self._value.dtype}, and the data of {data.dtype}")
        np.copyto(self._value, data.reshape(self._value.shape))

    def data_ptr(self):
        """The address of its first element."""
        return self.numpy().__array_interface__["data"][0]

    def data_type(self):
        """The name of its type."""
        if self.is_tensor():
            return type_name(self._value.dtype.name)
        return f"seq({type_name(self._value[0].dtype.name if self._value else 'float32')})"

    def element_type(self):
        """ONNX's number of its type of elements."""
        return _TYPES[self.numpy().dtype.name]

    def shape(self):
        """Its shape."""
        return list(self.numpy().shape)

    def tensor_size_in_bytes(self):
        """Its size."""
        return self.numpy().nbytes

    def device_name(self):
        """Where it lies."""
        return "cpu"

    def has_value(self):
        """Whether there is a value: always."""
        return True

    def is_tensor(self):
        """Whether it is one array."""
        return isinstance(self._value, np.ndarray)

    def is_tensor_sequence(self):
        """Whether it is a list of arrays."""
        return not self.is_tensor()

    def is_sparse_tensor(self):
        """Whether it is sparse: never."""
        return False


def copy_tensors(src, dst, stream=None):
    """Writes each value of one list into that of another."""
    for source, target in zip(src, dst, strict=True):
        target.update_inplace(source)
