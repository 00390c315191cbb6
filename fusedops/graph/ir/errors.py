"""Errors of networks. What else is raised while one is read or planned is a fault of this library and is not caught."""


class DamagedFile(ValueError):
    """A file is not a network, or it is damaged.

    Parameters
    ----------
    message : str

    Examples
    --------
    >>> import fusedops as fo
    >>> try:
    ...     fo.load(b"no network")
    ... except fo.DamagedFile as error:
    ...     print(error)  # doctest: +ELLIPSIS
    the model is not a saved network...
    """

    def __init__(self, message):
        super().__init__(message)


class UnsupportedOperator(ValueError):
    """A network has operators, or forms of them, that fusedops does not have.

    Parameters
    ----------
    message : str
    operators : tuple of str
        The names of operators that are unknown altogether, with their domain where it is not ONNX's.

    Examples
    --------
    >>> import fusedops as fo
    >>> from onnx.parser import parse_model
    >>> try:
    ...     fo.load_onnx(parse_model('''<ir_version: 8, opset_import: ["" : 17, "mine" : 1]>
    ...         net (float[n] x) => (float[n] y) { y = mine.Unknown(x) }'''))
    ... except fo.UnsupportedOperator as error:
    ...     print(error.operators)
    ('mine.Unknown',)
    """

    def __init__(self, message, operators=()):
        super().__init__(message)
        self.operators = operators


class InvalidArgument(ValueError):
    """A network was called with other inputs than it takes, or asked for outputs that it does not have.

    Parameters
    ----------
    message : str

    Examples
    --------
    >>> import numpy as np, fusedops as fo
    >>> from onnx.parser import parse_model
    >>> model = fo.load_onnx(parse_model('''<ir_version: 8, opset_import: ["" : 17]>
    ...     net (float[n, 2] x) => (float[n, 2] y) { y = Relu(x) }'''))
    >>> try:
    ...     model(np.ones((1, 3), np.float32))
    ... except fo.InvalidArgument as error:
    ...     print(error)
    x has shape (1, 3), but the network takes x: float32 (n, 2)
    """

    def __init__(self, message):
        super().__init__(message)


class BadNode(DamagedFile):
    """A node lacks an input or attribute, or has one that its operator does not take."""


class NoSymbolic(ValueError):
    """What is computed needs a plain int where a size is open."""
