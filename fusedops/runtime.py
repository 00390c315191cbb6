"""Threads and instruction sets: what is used, and how to choose."""
import os
from operator import index

from . import _core


def set_num_threads(n):
    """Sets how many threads an operation may use, from the next call on. Small operations stay on one thread.

    Raises
    ------
    TypeError, ValueError
        `n` is not an integer, or less than 1.
    """
    n = index(n)
    if not 1 <= n <= 1024:
        raise ValueError(f"the number of threads must be between 1 and 1024, not {n}")
    _core.set_num_threads(n)


def get_num_threads():
    """How many threads an operation may use.

    The default is what the affinity mask, the cgroup's CPU quota and ``OMP_NUM_THREADS`` allow; ``FUSEDOPS_NUM_THREADS``
    overrides it, and so does :func:`set_num_threads`. ``threadpoolctl.threadpool_limits`` holds as well.
    """
    return _core.get_num_threads()


def available_isas():
    """Names of the instruction sets that this machine can run, in ascending order of preference."""
    return _core.isa_names()


def isa():
    """Name of the instruction set in use."""
    return _core.get_isa()


def set_isa(name):
    """Chooses the instruction set for operations and layers made from now on; a prepared layer keeps the one it was packed for.

    Parameters
    ----------
    name : str
        One of :func:`available_isas`. The environment variable ``FUSEDOPS_ISA`` does the same at import.

    Raises
    ------
    ValueError
        Unknown, or not supported by this machine.
    """
    if not isinstance(name, str):
        raise TypeError(f"the name of an instruction set is a str, not {type(name).__name__}; this machine has {', '.join(available_isas())}")
    _core.set_isa(name)


def show_config():
    """Returns and prints what this build is and uses: a dict of version, instruction sets, threads, threading and compiler."""
    from . import __version__
    config = {"version": __version__, "isa": isa(), "available_isas": available_isas(), "num_threads": get_num_threads(), **_core.build_info()}
    for key, value in config.items():
        print(f"{key:16}{', '.join(value) if isinstance(value, list) else value}")
    return config


def _read_environment():
    threads, name = os.environ.get("FUSEDOPS_NUM_THREADS"), os.environ.get("FUSEDOPS_ISA")
    if threads:
        try:
            set_num_threads(int(threads))
        except ValueError:
            raise ValueError(f"FUSEDOPS_NUM_THREADS must be a whole number of at least 1, not {threads!r}") from None
    if name:
        try:
            set_isa(name)
        except ValueError as e:
            raise ValueError(f"FUSEDOPS_ISA: {e}") from None


_read_environment()
