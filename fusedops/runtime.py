"""Threads and instruction sets: what is used, and how to choose."""

from __future__ import annotations

import os
from operator import index

from . import _core
from ._version import __version__


def set_num_threads(n: int) -> None:
    """Sets how many threads an operation may use, from the next call on. Small operations stay on one thread.

    Parameters
    ----------
    n : int
        From 1 to 1024. Results are bit-identical with any number.

    Raises
    ------
    TypeError, ValueError
        `n` is not an integer, or outside of 1 to 1024.

    Examples
    --------
    >>> import fusedops as fo
    >>> before = fo.get_num_threads()
    >>> fo.set_num_threads(2)
    >>> fo.get_num_threads()
    2
    >>> fo.set_num_threads(before)
    """
    try:
        n = index(n)
    except TypeError:
        raise TypeError(f"the number of threads must be an int from 1 to 1024, not {n!r}") from None
    if not 1 <= n <= 1024:
        raise ValueError(f"the number of threads must be between 1 and 1024, not {n}")
    _core.set_num_threads(n)


def get_num_threads() -> int:
    """How many threads an operation may use.

    The default is what the affinity mask, the cgroup's CPU quota and ``OMP_NUM_THREADS`` allow;
    ``FUSEDOPS_NUM_THREADS`` overrides it, and so does :func:`set_num_threads`. ``threadpoolctl.threadpool_limits``
    holds as well. In a child that was forked after operations ran on several threads it is 1.

    Returns
    -------
    int

    Examples
    --------
    >>> import fusedops as fo
    >>> fo.get_num_threads() >= 1
    True
    """
    return _core.get_num_threads()


def available_isas() -> list[str]:
    """Names of the instruction sets that this machine can run, in ascending order of preference.

    Returns
    -------
    list of str
        Of "scalar", "avx2", "avx512" and "neon".

    Examples
    --------
    >>> import fusedops as fo
    >>> fo.available_isas()[0]
    'scalar'
    """
    return _core.isa_names()


def isa() -> str:
    """Name of the instruction set in use.

    Returns
    -------
    str

    Examples
    --------
    >>> import fusedops as fo
    >>> fo.isa() in fo.available_isas()
    True
    """
    return _core.get_isa()


def set_isa(name: str) -> None:
    """Chooses the instruction set for operations and layers made from now on; a prepared layer keeps the one it was
    packed for.

    Parameters
    ----------
    name : str
        One of :func:`available_isas`. The environment variable ``FUSEDOPS_ISA`` does the same at import.

    Raises
    ------
    TypeError, ValueError
        Not a str; unknown, or not supported by this machine.

    Examples
    --------
    >>> import fusedops as fo
    >>> before = fo.isa()
    >>> fo.set_isa("scalar")  # plain C, to see what the vectors gain
    >>> fo.set_isa(before)
    """
    if not isinstance(name, str):
        raise TypeError(
            f"the name of an instruction set is a str, not {type(name).__name__}; this machine has "
            f"{', '.join(available_isas())}"
        )
    _core.set_isa(name)


def int8_products() -> str:
    """Names what multiplies int8 with this instruction set: ``"AMX"``, ``"VNNI"``, ``"SDOT"`` of ARM, or
    ``"multiply-add"`` of 16-bit integers."""
    if _core.has_amx():
        return "AMX"
    return ("SDOT" if isa() == "neon" else "VNNI") if _core.has_dot_product() else "multiply-add"


def bfloat16_products() -> str:
    """Names what multiplies bfloat16 with this instruction set: ``"AMX"``, ``"AVX512_BF16"``, ``"BFMMLA"`` of ARM, or
    ``"float32"``, if rounded numbers are multiplied as any others."""
    if not _core.has_bfloat16():
        return "float32"
    if _core.has_amx():
        return "AMX"
    return "BFMMLA" if isa() == "neon" else "AVX512_BF16"


def version() -> str:
    """Tells the version, in a git checkout with its commit: ``"1.1.0.dev0+g31ee619"``, and ``".dirty"`` after a change
    that is not committed."""
    commit = _commit(os.path.dirname(os.path.dirname(__file__)))
    return f"{__version__}+g{commit}" if commit else __version__


def _commit(folder: str) -> str:
    """Asks git for the commit of a checkout; returns nothing where there is no checkout, no commit or no git."""
    git = os.path.join(folder, ".git")  # git itself would search the folders above, which are another project's
    if not os.path.exists(git):
        return ""
    import subprocess  # noqa: PLC0415  # takes a millisecond or more, which `import fusedops` saves

    command = ["git", f"--git-dir={git}", f"--work-tree={folder}", "describe", "--always", "--exclude=*"]
    try:
        return subprocess.run([*command, "--dirty=.dirty"], capture_output=True, text=True).stdout.strip()
    except OSError:
        return ""


class Config(dict):
    """What :func:`show_config` gives: a dict that is shown as a table."""

    def __repr__(self):
        return "\n".join(f"{k:19}{', '.join(v) if isinstance(v, list) else v}" for k, v in self.items())

    __str__ = __repr__


def show_config() -> Config:
    """Tells what this build is and uses: as a table where it is printed or an interpreter shows it.

    Returns
    -------
    dict
        Version with the commit of a git checkout, instruction sets, what multiplies bytes and bfloat16, threads,
        threading and compiler.

    Examples
    --------
    >>> import fusedops as fo
    >>> config = fo.show_config()
    >>> sorted(config)[:3]
    ['available_isas', 'bfloat16_products', 'compiler']
    >>> print(config)  # doctest: +ELLIPSIS
    version            ...
    """
    config = {
        "version": version(),
        "isa": isa(),
        "available_isas": available_isas(),
        "int8_products": int8_products(),
        "bfloat16_products": bfloat16_products(),
        "num_threads": get_num_threads(),
        **_core.build_info(),
    }
    return Config(config)


def _read_environment():
    threads, name = os.environ.get("FUSEDOPS_NUM_THREADS"), os.environ.get("FUSEDOPS_ISA")
    if threads:
        try:
            set_num_threads(int(threads))
        except ValueError:
            raise ValueError(
                f"FUSEDOPS_NUM_THREADS must be a whole number between 1 and 1024, not {threads!r}"
            ) from None
    if name:
        try:
            set_isa(name)
        except ValueError as e:
            raise ValueError(f"FUSEDOPS_ISA: {e}") from None


_read_environment()
