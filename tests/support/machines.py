"""Machines that tests can be run as, whichever this one is.

    FUSEDOPS_MACHINE=zen4 pytest tests/kernels tests/layers

A machine is what csrc/machine/machine.h says of one: its caches, its rates and what it has of the processor's
instructions. What this processor lacks it cannot be; AMX can be emulated (FUSEDOPS_EMULATE_AMX=1, setup.py). Tests of
each set are then those of the machine's newest.
"""

import os

KB, MB = 1 << 10, 1 << 20
AVX512 = dict(sets=3, processors=2, dot_product=True, bf16=True)
MACHINES = {
    "xeon": dict(AVX512, l1=48 * KB, l2=2 * MB, l3=32 * MB, tiles=True, half_rate=False),  # Sapphire Rapids
    "zen4": dict(AVX512, l1=32 * KB, l2=1 * MB, l3=32 * MB, tiles=False, half_rate=True),
    "zen5": dict(AVX512, l1=48 * KB, l2=1 * MB, l3=32 * MB, tiles=False, half_rate=False),
    "avx2": dict(
        sets=2,
        processors=3,
        dot_product=False,
        bf16=False,
        tiles=False,
        half_rate=False,
        l1=32 * KB,
        l2=256 * KB,
        l3=6 * MB,
    ),  # Haswell to Skylake, of a laptop
}
# the processes of pytest-xdist have what become() wrote
NAME = os.environ.get("FUSEDOPS_MACHINE", "").removeprefix("name=").split(",")[0]


def named():
    """Says whether the tests are run as one of these machines."""
    return NAME in MACHINES


def become():
    """Makes this process the machine that FUSEDOPS_MACHINE names; the library reads it when it is loaded."""
    if NAME and "=" not in NAME and not named():
        raise SystemExit(f"FUSEDOPS_MACHINE={NAME}: no such machine; there are {', '.join(MACHINES)}")
    if named():
        fields = [f"{field}={int(value)}" for field, value in MACHINES[NAME].items()]
        os.environ["FUSEDOPS_MACHINE"] = ",".join([f"name={NAME}", *fields])


def lacks():
    """Says what this processor lacks to be that machine, or returns None."""
    import fusedops as fo
    from fusedops import _core

    fields = MACHINES.get(NAME, {})
    if fields.get("sets", 0) > len(fo.available_isas()):
        return f"this processor has no AVX-512, so it cannot be {NAME}"
    if fields.get("bf16") and not _core.has_bfloat16():
        return f"this processor has no AVX512_BF16, so it cannot be {NAME}"
    if fields.get("tiles") and not _core.has_amx():
        return f"this processor has no AMX, so it cannot be {NAME}: build with FUSEDOPS_EMULATE_AMX=1"
    return None
