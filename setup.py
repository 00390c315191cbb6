"""Builds the extension: the C kernels, once for each instruction set, and the Cython binding around them.

csrc/kernels/*.c is compiled once for each instruction set, everything else for the baseline processor, so that the
module loads on any machine of its architecture; which set runs is decided at run time (csrc/dispatch/isa.c). The sets
are those of the processor that is built for, which need not be the one that builds.

Objects are kept in build/objects, a folder for each compiler and set of flags, and compiled again when what they were
made of has changed: a second build of one checkout, editable, wheel or in place, calls no compiler.

FUSEDOPS_OPENMP=0 builds without threads: the default on macOS, whose compiler comes without OpenMP; with Homebrew's,
FUSEDOPS_OPENMP=1 CPPFLAGS=-I$(brew --prefix libomp)/include LDFLAGS=-L$(brew --prefix libomp)/lib pip install .
FUSEDOPS_SANITIZE=address,undefined builds with the checks of these sanitizers (.ci/sanitize). FUSEDOPS_TRACE=1 builds
for tests, which then know the kernel variants that ran (csrc/dispatch/trace.c).
"""

import hashlib
import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from glob import glob
from pathlib import Path

import Cython
import numpy
from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

MACOS = sys.platform == "darwin"

# ---- what is compiled, and how ---------------------------------------------------------------------------------------

# Of two copies of one transform GCC 12 gave one other bits when it made vectors of the double products by which plain C
# replaces an FMA. Small code: half a megabyte less, one to three percent of the time.
SCALAR = ["-Os", "-fno-tree-slp-vectorize"]
X86_SETS = {"scalar": SCALAR, "avx2": ["-mavx2", "-mfma", "-mf16c"], "avx512": ["-mavx512f", "-mavx512bw", "-mfma"]}
ARM_SETS = {"scalar": SCALAR, "neon": []}


def target():
    """Returns the processor that is built for."""
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
# AVX-512's shuffles take constants, which the optimizer finds at -O3 alone; the algorithms are those of AVX2
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
CYTHON_FLAGS = ["-O1", "-g0", "-fvisibility=hidden", "-fno-asynchronous-unwind-tables", *SANITIZE]
# Kernels of int8 once more, with the processor's int8 dot product.
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
KERNELS = sorted(glob("csrc/kernels/*.c"))
# Loops over memory, not over registers: what -O3 adds are copies of them, which gained under 3 % and took the compiler
# as long again.
LESS = {
    f"csrc/kernels/{unit}.c": [
        "-O2",
        "-fpeel-loops",
        "-funswitch-loops",
        "-ftree-vectorize",
        "-fvect-cost-model=dynamic",
    ]
    for unit in ("epilogue", "passes", "winograd_transforms")
}


def units():
    """Returns (kind, flags, source) of each C source, those that take longest first."""
    kernels = [(isa, flags, source) for isa, flags in reversed(SETS.items()) for source in KERNELS]
    kernels += [
        (isa, flags, f"csrc/kernels/{unit}.c") for isa, flags in DOTS.items() for unit in ("quantized", "table")
    ]
    others = sorted(set(glob("csrc/**/*.c", recursive=True)) - set(KERNELS))
    return [
        *(
            (isa, [*CFLAGS, *LESS.get(source, ()), *flags, *SANITIZE, *POINTERS, f"-DFO_ISA={isa}"], source)
            for isa, flags, source in kernels
        ),
        *(("base", CFLAGS + OPENMP + WITHOUT, source) for source in others),
    ]


# ---- objects that are kept -------------------------------------------------------------------------------------------

OBJECTS = Path("build/objects")


def digest(data):
    return hashlib.sha256(data).hexdigest()[:16]


@cache
def content(path):
    """Returns the digest of a file, or None where there is none."""
    return digest(Path(path).read_bytes()) if os.path.exists(path) else None


def kept(path, make):
    """Returns `path`. make() makes it, unless all that it was made of is as it was, and returns the names of that and
    the seconds of the compiler."""
    stamp = path.with_name(path.name + ".json")
    try:
        made_of = json.loads(stamp.read_text())["made_of"]
    except (FileNotFoundError, ValueError):
        made_of = {}
    if not made_of or not path.exists() or any(content(name) != text for name, text in made_of.items()):
        path.parent.mkdir(parents=True, exist_ok=True)
        stamp.unlink(missing_ok=True)
        sources, seconds = make()
        stamp.write_text(json.dumps({"seconds": seconds, "made_of": {name: content(name) for name in sources}}))
    return path


def compiler_identity(command):
    """Tells one compiler from another without calling it: words, and size and time of the programs that they name."""
    programs = [os.stat(found) for word in command if not word.startswith("-") and (found := shutil.which(word))]
    return repr((command, [(p.st_size, p.st_mtime_ns) for p in programs]))


def compiled(kind, command, source, headers=()):
    """Returns the object of a source, compiled if it has to be. `headers`: folders whose paths tell nothing, as those
    of pip's own environment."""
    folder = OBJECTS / f"{kind}-{digest(compiler_identity(command).encode())}"
    path = (folder / source).with_suffix(".o")
    rule = path.with_suffix(".d")

    def make():
        words = [
            *command,
            *(f"-I{folder}" for folder in headers),
            "-MMD",
            "-MF",
            str(rule),
            "-c",
            source,
            "-o",
            str(path),
        ]
        process = subprocess.Popen(words)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            sys.exit(f"This failed: {shlex.join(words)}")
        named = rule.read_text().replace("\\\n", " ").split(":", 1)[1].split()
        # what is outside the checkout is the compiler's, Python's or NumPy's, whose versions the folder's name knows
        return [name for name in named if not os.path.isabs(name)], usage.ru_utime + usage.ru_stime

    return kept(path, make)


def cython_source(core):
    """Returns the C source of the binding."""
    declarations = Path("fusedops/_steps.pxi")
    if not declarations.exists() or declarations.read_text() != step_declarations():
        declarations.write_text(step_declarations())
    folder = OBJECTS / f"cython-{Cython.__version__}"
    path = folder / "fusedops/_core.c"

    def make():
        cythonize([core], language_level=3, build_dir=str(folder), force=True)
        return [name for end in ("pyx", "pxd", "pxi") for name in glob(f"fusedops/**/*.{end}", recursive=True)], 0

    return str(kept(path, make))


class BuildExt(build_ext):
    """Compiles what has changed, side by side, and links it."""

    def build_extensions(self):
        (core,) = self.extensions
        compiler = list(self.compiler.compiler_so)
        python = [f"-D{name}={value}" for name, value in core.define_macros] + [
            f"-I{name}" for name in self.include_dirs
        ]

        def binding():
            words = [*compiler, *python, *CYTHON_FLAGS, "-Icsrc", "-Icsrc/include"]
            kind = f"binding-numpy-{numpy.__version__}"
            return compiled(kind, words, cython_source(core), [numpy.get_include()])

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            jobs = [pool.submit(binding)]
            jobs += [pool.submit(compiled, kind, [*compiler, *flags], source) for kind, flags, source in units()]
            try:
                objects = [str(job.result()) for job in jobs]
            except BaseException:  # the first error is enough
                pool.shutdown(cancel_futures=True)
                raise
        (OBJECTS / "last_build").write_text("\n".join(objects))  # .ci/measures

        linker = compiler_identity([*self.compiler.linker_so, *LINK_OPENMP, *SANITIZE, *objects])
        module = OBJECTS / f"module-{digest(linker.encode())}" / self.get_ext_filename(core.name)

        def link():
            self.compiler.link_shared_object(
                objects, str(module), libraries=["m"], extra_postargs=LINK_OPENMP + SANITIZE
            )
            return objects, 0

        wanted = self.get_ext_fullpath(core.name)
        self.mkpath(os.path.dirname(wanted))
        self.copy_file(str(kept(module, link)), wanted)


def step_declarations():
    """Returns Cython's declarations of the steps of networks, made of the C text: structs fo_X_args without their
    arrays, the functions that take them alone, and what FO_EACH_STEP lists."""

    def fields(body):
        for declaration in filter(None, map(str.strip, body.split(";"))):
            kind, names = re.fullmatch(r"((?:const )?\w+) (.+)", declaration, re.DOTALL).groups()
            yield from (f"{kind} {name}" for name in re.split(r",\s*", names) if "[" not in name)

    headers = ("types", "layers", "quantized", "network", "program")
    text = "".join(Path(f"csrc/include/fusedops/{name}.h").read_text() for name in headers)
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL).replace("bool ", "bint ").replace("ptrdiff_t", "Py_ssize_t")
    lines = ["# Made by setup.py of the headers in csrc/include.", 'cdef extern from "fusedops/fusedops.h" nogil:']
    for body, name in re.findall(r"typedef struct {([^{}]*)} (fo_\w+_args);", text):
        lines += [f"    ctypedef struct {name}:", *(f"        {field}" for field in fields(body))]
    functions = re.findall(r"^(fo_status|void) (fo_\w+)\(const (fo_\w+_args) \*args\);", text, re.MULTILINE)
    lines += [f"    {result} {name}(const {args} *args)" for result, name, args in functions]
    steps = re.findall(r"X\((\w+), (\w+), (\w+), \w+\)", text[text.index("define FO_EACH_STEP") :])
    lines += ["    ctypedef enum fo_step_kind:", *(f"        FO_STEP_{kind}" for kind, _, _ in steps)]
    lines += ["    ctypedef struct fo_step:", "        fo_step_kind kind", "        Py_ssize_t repeats, back"]
    lines += [f"        {args} {name}" for _, name, args in steps]
    return "\n".join(lines).replace(" from\n", ' from_ "from"\n') + "\n"


# ---- the build -------------------------------------------------------------------------------------------------------


def missing_tool():
    """Says what a build lacks, or returns None."""
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")[0]
    if not shutil.which(compiler):
        lacks = f"a C compiler, and {compiler} is not installed"
    elif not Path(sysconfig.get_path("include"), "Python.h").exists():
        lacks = f"Python's headers, and {sysconfig.get_path('include')}/Python.h is not there"
    else:
        return None
    return (
        f"A build of fusedops from source needs {lacks}. Debian, Ubuntu: apt install gcc python3-dev. Fedora: dnf "
        "install gcc python3-devel. macOS: xcode-select --install. Or install a wheel that was built elsewhere."
    )


# before setuptools prints every file that it copies
if {"build", "build_ext", "bdist_wheel", "editable_wheel", "develop", "install"} & set(sys.argv) and missing_tool():
    sys.exit(missing_tool())

core = Extension(
    "fusedops._core",
    ["fusedops/_core.pyx"],
    define_macros=[
        ("NPY_NO_DEPRECATED_API", "NPY_1_7_API_VERSION"),
        # NumPy 1.26's; headers of 2.0 to 2.2 hide memory handlers without
        ("NPY_TARGET_VERSION", "NPY_1_25_API_VERSION"),
    ],
)

setup(ext_modules=[core], cmdclass={"build_ext": BuildExt})
