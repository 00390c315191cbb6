"""IOBinding: inputs and outputs in memory of the caller's."""

import numpy as np

from .values import OrtValue, memory_at, on_cpu


class IOBinding:
    """The inputs of a session, and where its outputs go; see :meth:`InferenceSession.io_binding`."""

    def __init__(self, session):
        self._session, self._inputs, self._outputs, self._results = session, {}, {}, []

    # ---- inputs

    def _input(self, name, value):
        self._check(name, [v.name for v in self._session.get_inputs()])
        self._inputs[name] = value

    @staticmethod
    def _check(name, names):
        if name not in names:
            raise RuntimeError(f"Failed to find NodeArg with name: {name} in the def list: {', '.join(names)}")

    def bind_cpu_input(self, name, arr_on_cpu):
        """Binds an input to an array, whose memory is read when the session runs."""
        if not isinstance(arr_on_cpu, np.ndarray):
            raise RuntimeError(f"{name} is bound to a numpy array, not {type(arr_on_cpu).__name__}")
        self._input(name, arr_on_cpu)

    def bind_input(self, name, device_type, device_id, element_type, shape, buffer_ptr):
        """Binds an input to memory at an address."""
        on_cpu(device_type)
        self._input(name, memory_at(buffer_ptr, shape, element_type))

    def bind_ortvalue_input(self, name, ortvalue):
        """Binds an input to a value."""
        self._input(name, ortvalue)

    def clear_binding_inputs(self):
        """Forgets all inputs."""
        self._inputs.clear()

    def synchronize_inputs(self):
        """Waits until the inputs are there: on the CPU they are."""

    # ---- outputs

    def _output(self, name, array):
        self._check(name, [v.name for v in self._session.get_outputs()])
        self._outputs[name] = array

    def bind_output(self, name, device_type="cpu", device_id=0, element_type=None, shape=None, buffer_ptr=None):
        """Asks for an output: in memory at an address, or in a new array."""
        on_cpu(device_type)
        if buffer_ptr is None:
            return self._output(name, None)
        if element_type is None or shape is None:
            raise ValueError("`element_type` and `shape` are to be provided if pre-allocated memory is provided")
        return self._output(name, memory_at(buffer_ptr, shape, element_type))

    def bind_ortvalue_output(self, name, ortvalue):
        """Binds an output to a value, which is written."""
        self._output(name, ortvalue.numpy())

    def clear_binding_outputs(self):
        """Forgets all outputs."""
        self._outputs.clear()

    def synchronize_outputs(self):
        """Waits until the outputs are there: on the CPU they are."""

    def get_outputs(self):
        """The values of the outputs of the latest run, in the order in which they were bound."""
        return [OrtValue(y) for y in self._results]

    def get_outputs_as_ortvaluevector(self):
        """The same as :meth:`get_outputs`."""
        return self.get_outputs()

    def copy_outputs_to_cpu(self):
        """The arrays of the outputs of the latest run, each as one of its own."""
        return [y.copy() if isinstance(y, np.ndarray) else y for y in self._results]

    def _run(self, call):
        """Keeps what `call` gives for the inputs and the outputs."""
        if not self._outputs:
            raise RuntimeError("Error in execution: At least one output should be requested: call bind_output.")
        self._results = call(self._inputs, self._outputs)
