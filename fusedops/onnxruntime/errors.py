"""The exceptions of ONNX Runtime by their names, and which of them an error of this library is there."""

import contextlib

import fusedops as fo


class DeviceReset(Exception):
    """A device was reset; nothing here raises it."""


class EPFail(Exception):
    """An execution provider failed; nothing here raises it."""


class EngineError(Exception):
    """An engine failed; nothing here raises it."""


class Fail(Exception):
    """A network cannot be loaded or run."""


class InvalidArgument(Exception):
    """A call gives other inputs than the network takes, or asks for outputs that it does not have."""


class InvalidGraph(Exception):
    """The file holds no graph that can run."""


class InvalidProtobuf(Exception):
    """The file is no ONNX model, or a damaged one."""


class ModelLoadCanceled(Exception):
    """Loading was canceled; nothing here raises it."""


class ModelLoaded(Exception):
    """A session has its network already; nothing here raises it."""


class ModelRequiresCompilation(Exception):
    """A network has to be compiled first; nothing here raises it."""


class NoModel(Exception):
    """A session has no network; nothing here raises it."""


class NoSuchFile(Exception):
    """There is no file of that name."""


class NotFound(Exception):
    """Something was not found; nothing here raises it."""


class NotImplemented(Exception):
    """What is asked for exists in ONNX Runtime and not here."""


class RuntimeException(Exception):
    """An error while a network runs; nothing here raises it."""


@contextlib.contextmanager
def loading(path):
    """Errors of a network that is loaded as those of ONNX Runtime; `path` is None for one in memory."""
    try:
        yield
    except FileNotFoundError as e:
        raise (NoSuchFile if e.filename == path else Fail)(f"{path} cannot be loaded: {e}") from e
    except OSError as e:
        raise InvalidProtobuf(f"{path} cannot be loaded: {e}") from e
    except fo.UnsupportedOperator as e:
        raise _unsupported(e) from e
    except fo.DamagedFile as e:
        raise _damaged(str(e))(str(e)) from e
    except ValueError as e:
        raise Fail(str(e)) from e


def _damaged(message):
    if "it has no graph" in message:
        return InvalidArgument
    return InvalidProtobuf if "is not an ONNX model" in message else InvalidGraph


def _unsupported(error):
    """Operators of a domain that nobody knows are a Fail there, unknown ones of ONNX an InvalidGraph."""
    import onnx

    domains = {op.rpartition(".")[0] for op in error.operators}
    if domains - {"", "ai.onnx.ml", "com.microsoft"}:
        return Fail(str(error))
    if any(not onnx.defs.has(op) for op in error.operators if "." not in op):
        return InvalidGraph(str(error))
    return NotImplemented(str(error))


def of_a_call(error):
    """An error of a call as that of ONNX Runtime."""
    wrong = isinstance(error, (fo.InvalidArgument, TypeError))
    return (InvalidArgument if wrong else Fail)(str(error))


NAMES = tuple(name for name, kind in vars().items() if isinstance(kind, type) and issubclass(kind, Exception))
