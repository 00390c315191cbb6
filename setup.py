"""Builds the C kernels, one static library for each instruction set, and the Cython binding around them.

csrc/kernels/*.c is compiled once for each instruction set, everything else for the baseline processor, so that the
module loads on any machine of its architecture; which set runs is decided at run time (csrc/machine/isa.c). The sets
are those of the processor that is built for, which need not be the one that builds. FUSEDOPS_OPENMP=0 builds without
threads: the default on macOS, whose compiler comes without OpenMP; with Homebrew's, FUSEDOPS_OPENMP=1 CPPFLAGS=-I$(brew
--prefix libomp)/include LDFLAGS=-L$(brew --prefix libomp)/lib pip install . FUSEDOPS_SANITIZE=address,undefined with
the checks of these sanitizers (.ci/sanitize). FUSEDOPS_TRACE=1 for tests, which then know the kernel variants that ran
(csrc/runtime/trace.c). Objects of one kind of build are not those of another: each in a copy of its own.
"""

import os
import platform
import re
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from glob import glob
from pathlib import Path

import numpy
from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_clib import build_clib
from setuptools.command.build_ext import build_ext

# Of two copies of one transform GCC 12 gave one other bits when it made vectors of the double products by which plain C
# replaces an FMA. Small code: half a megabyte less, one to three percent of the time.
SCALAR = ["-Os", "-fno-tree-slp-vectorize"]
X86_SETS = {"scalar": SCALAR, "avx2": ["-mavx2", "-mfma", "-mf16c"], "avx512": ["-mavx512f", "-mavx512bw", "-mfma"]}
ARM_SETS = {"scalar": SCALAR, "neon": []}
MACOS = sys.platform == "darwin"


def target():
    """The processor that is built for."""
    if MACOS:  # its Python may be one for two processors; a build is for one, by default this machine's
        return " ".join(re.findall(r"-arch (\w+)", os.environ.setdefault("ARCHFLAGS", f"-arch {platform.machine()}")))
    return sysconfig.get_platform().split("-")[-1]


SETS = (
    X86_SETS
    if target() in ("x86_64", "amd64")
    else ARM_SETS
    if target() in ("aarch64", "arm64")
    else {"scalar": SCALAR}
)

THREADS = os.environ.get("FUSEDOPS_OPENMP", "0" if MACOS else "1") != "0"
OPENMP = [] if not THREADS else ["-Xclang", "-fopenmp"] if MACOS else ["-fopenmp"]
LINK_OPENMP = ["-lomp"] if THREADS and MACOS else OPENMP
SANITIZE = (
    [f"-fsanitize={os.environ['FUSEDOPS_SANITIZE']}", "-O1", "-g1", "-fno-sanitize-recover=all"]
    if os.environ.get("FUSEDOPS_SANITIZE")
    else []
)
# Of a kernel's pointers the other checks say what AddressSanitizer says, or nothing on these processors, and took the
# compiler as long as all else.
POINTERS = ["-fno-sanitize=null,alignment,object-size,pointer-overflow"] if SANITIZE else []
WITHOUT = []
# the kernels of 16 lanes on a processor that has none: for their bits, not for time
if os.environ.get("FUSEDOPS_EMULATE_AVX512"):
    SETS["avx512"] = ["-mavx2", "-mfma", "-mf16c", "-O1", "-Wno-psabi", "-DFO_EMULATED", "-Itests/emulated"]
    WITHOUT = ["-DFO_EMULATED"]
# kernels of tiles (AMX) on a processor with AVX512_BF16 that has none: for their results, not for time
TILES = ["-DFO_EMULATED_AMX", "-Itests/emulated/amx"] if os.environ.get("FUSEDOPS_EMULATE_AMX") else []
# AVX-512's shuffles take constants, which the optimiser finds at -O3 alone; the algorithms are those of AVX2
if SANITIZE and SETS is X86_SETS:
    del SETS["avx512"]
    WITHOUT = ["-DFO_WITHOUT_AVX512"]
WITHOUT += TILES
TRACE = ["-DFO_TRACE"] if os.environ.get("FUSEDOPS_TRACE", "0") != "0" else []
# An FMA stands where the source says v_fma and nowhere else, or results would depend on the compiler's mood.
CFLAGS = [
    "-O3",
    "-g0",
    "-std=gnu11",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fvisibility=hidden",
    "-fPIC",
    "-Wall",
    "-Wextra",
    "-fno-asynchronous-unwind-tables",
    *SANITIZE,
    *TRACE,
]
# Kernels of bytes once more, with the processor's int8 dot product.
WITH_DOTS = {
    "avx2": ("avx2vnni", "-mavxvnni"),
    "avx512": ("avx512vnni", "-mavx512vnni"),
    "neon": ("neondot", "-march=armv8.2-a+dotprod+bf16"),
}
DOTS = {
    WITH_DOTS[isa][0]: [*flags, *TILES, WITH_DOTS[isa][1]]
    for isa, flags in SETS.items()
    if isa in WITH_DOTS and "-DFO_EMULATED" not in flags
}
# As the linker needs them: each before what it calls.
UNITS = [
    "table",
    "gemm",
    "strassen_sums",
    "winograd_transforms",
    "rnn",
    "depthwise_passes",
    "passes",
    "quantized",
    "epilogue",
]
HEADERS = sorted(glob("csrc/**/*.h", recursive=True))


def library(name, sources, flags):
    return "fusedops_" + name, {"sources": sources, "cflags": CFLAGS + flags, "obj_deps": {"": HEADERS}}


def kernels(isa, flags, units):
    """A library for each unit, so that they are compiled side by side."""
    return [
        library(f"{isa}_{unit}", [f"csrc/kernels/{unit}.c"], [*flags, *POINTERS, f"-DFO_ISA={isa}"]) for unit in units
    ]


class BuildClib(build_clib):
    """Builds the libraries side by side, objects of each in a folder of its own."""

    def build_libraries(self, libraries):
        def build(one):
            builder = copy(self)
            builder.build_temp = os.path.join(self.build_temp, one[0])
            archive = os.path.join(self.build_clib, f"lib{one[0]}.a")
            if os.path.exists(archive):
                os.remove(archive)  # or it would keep the objects of sources that are gone
            build_clib.build_libraries(builder, [one])

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(build, reversed(libraries)))


class BuildExt(build_ext):
    """Builds the static libraries first, also for an in-place or editable build."""

    def run(self):
        self.run_command("build_clib")
        archives = glob(os.path.join(self.get_finalized_command("build_clib").build_clib, "*.a"))
        for extension in self.extensions:
            extension.depends += archives  # or a changed kernel would not be linked again
        super().run()


def step_declarations():
    """Cython's declarations of the steps of networks, from the C text: structs fo_X_args without their arrays, the
    functions that take them alone, and what FO_EACH_STEP lists."""

    def fields(body):
        for declaration in filter(None, map(str.strip, body.split(";"))):
            kind, names = re.fullmatch(r"((?:const )?\w+) (.+)", declaration, re.DOTALL).groups()
            yield from (f"{kind} {name}" for name in re.split(r",\s*", names) if "[" not in name)

    text = "".join(Path(f"csrc/{name}.h").read_text() for name in ("fusedops", "quantized", "network", "program"))
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL).replace("bool ", "bint ").replace("ptrdiff_t", "Py_ssize_t")
    lines = ["# Made by setup.py of the headers in csrc.", 'cdef extern from "fusedops.h" nogil:']
    for body, name in re.findall(r"typedef struct {([^{}]*)} (fo_\w+_args);", text):
        lines += [f"    ctypedef struct {name}:", *(f"        {field}" for field in fields(body))]
    functions = re.findall(r"^(fo_status|void) (fo_\w+)\(const (fo_\w+_args) \*args\);", text, re.MULTILINE)
    lines += [f"    {result} {name}(const {args} *args)" for result, name, args in functions]
    steps = re.findall(r"X\((\w+), (\w+), (\w+), \w+\)", text[text.index("define FO_EACH_STEP") :])
    lines += ["    ctypedef enum fo_step_kind:", *(f"        FO_STEP_{kind}" for kind, _, _ in steps)]
    lines += ["    ctypedef struct fo_step:", "        fo_step_kind kind", "        Py_ssize_t repeats, back"]
    lines += [f"        {args} {name}" for _, name, args in steps]
    return "\n".join(lines).replace(" from\n", ' from_ "from"\n') + "\n"


declarations = Path("fusedops/_steps.pxi")
if not declarations.exists() or declarations.read_text() != step_declarations():
    declarations.write_text(step_declarations())

core = Extension(
    "fusedops._core",
    ["fusedops/_core.pyx"],
    include_dirs=["csrc", numpy.get_include()],
    depends=glob("csrc/*.h"),
    define_macros=[
        ("NPY_NO_DEPRECATED_API", "NPY_1_7_API_VERSION"),
        # NumPy 1.26's; headers of 2.0 to 2.2 hide memory handlers without
        ("NPY_TARGET_VERSION", "NPY_1_25_API_VERSION"),
    ],
    extra_compile_args=["-O2", "-g0", "-fvisibility=hidden", "-fno-asynchronous-unwind-tables", *SANITIZE],
    extra_link_args=LINK_OPENMP + SANITIZE,
    libraries=["m"],
)

setup(
    ext_modules=cythonize([core], language_level=3),
    libraries=[
        library(
            "base", sorted(set(glob("csrc/**/*.c", recursive=True)) - set(glob("csrc/kernels/*.c"))), OPENMP + WITHOUT
        ),
        *(one for isa, flags in SETS.items() for one in kernels(isa, flags, UNITS)),
        *(one for isa, flags in DOTS.items() for one in kernels(isa, flags, ["quantized"])),
    ],
    cmdclass={"build_clib": BuildClib, "build_ext": BuildExt},
)
