"""Errors of networks. What else is raised while one is read or planned is a fault of this library, and shows as it is."""


class DamagedFile(ValueError):
    """A file is no network, or a damaged one."""


class UnsupportedOperator(ValueError):
    """A network has operators, or forms of them, that fusedops does not have.

    Attributes
    ----------
    operators : tuple of str
        Their names, with their domain where it is not ONNX's, if operators are unknown altogether.
    """

    operators: tuple = ()


class InvalidArgument(ValueError):
    """A network was called with other inputs than it takes: their number, names or shapes."""


class BadNode(DamagedFile):
    """A node lacks an input or attribute, or has one that its operator does not take."""


class NoSymbolic(ValueError):
    """What is computed needs a plain int where a size is open."""
