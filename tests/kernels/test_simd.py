"""The vocabulary of csrc/simd, operation by operation against NumPy, on every set that runs here.

simd/driver.c is compiled for each. AVX-512 runs by emulation where the processor has none, NEON under qemu where a
cross compiler is at hand.
"""

import itertools
import os
import platform
import re
import shutil
import subprocess
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

import fusedops as fo
from fusedops import _core

ROOT = Path(__file__).parents[2]
AVX2 = ["-mavx2", "-mfma", "-mf16c"]
X86 = platform.machine() in ("x86_64", "AMD64")
COMPILER = os.environ.get("CC", "cc").split()
CROSS = ["aarch64-linux-gnu-gcc", "-static"]
# Set and its options, the compiler, and what the program is started with.
BUILDS = {
    "scalar": ("scalar", [], COMPILER, []),
    "avx2": ("avx2", AVX2, COMPILER, []),
    "avx512": ("avx512", ["-mavx512f", "-mavx512bw", "-mfma"], COMPILER, []),
    "avx512-emulated": ("avx512", [*AVX2, "-Wno-psabi", "-DFO_EMULATED", f"-I{ROOT}/tests/emulated"], COMPILER, []),
    "neon": ("neon", [], CROSS if X86 else COMPILER, ["qemu-aarch64"] if X86 else []),
}
# Bytes alone: kernels of a dot product. AVX-VNNI's is also AVX-512's instruction of 32 bytes.
WIDE = ["-mavx512f", "-mavx512bw", "-mfma"]
BYTES = {
    "avx512vnni": ("avx512vnni", [*WIDE, "-mavx512vnni"], COMPILER, []),
    "avx2vnni": ("avx2vnni", [*AVX2, "-mavxvnni"], COMPILER, []),
    "avx2vnni-by-avx512": ("avx2vnni", [*AVX2, "-mavx512vnni", "-mavx512vl"], COMPILER, []),
    "neondot": (
        "neondot",
        ["-march=armv8.2-a+dotprod+bf16"],
        CROSS if X86 else COMPILER,
        ["qemu-aarch64"] if X86 else [],
    ),
}
NEEDS = {"avx512vnni": "avx512_vnni", "avx2vnni": "avx_vnni", "avx2vnni-by-avx512": "avx512_vnni", "neondot": "asimddp"}
GUARD = np.float32(7)


def why_not(name):
    """Why a set does not run here, or None."""
    isa, _, compiler, start = (BUILDS | BYTES)[name]
    needed = {"avx512-emulated": "avx2"}.get(name, isa)
    if not (ROOT / "csrc" / "simd").is_dir():
        return "the sources are not here"
    for tool in compiler[0], *start:
        if not shutil.which(tool):
            return f"{tool} is missing"
    cpu = Path("/proc/cpuinfo")
    if not start and name in NEEDS:
        found = cpu.exists() and NEEDS[name] in cpu.read_text().split()
        return None if found else f"the processor has no {NEEDS[name]}"
    if not start and needed not in fo.available_isas():
        return f"the processor has no {needed}"
    return None


class Driver:
    """The program of one set."""

    def __init__(self, name, folder):
        isa, options, compiler, self.start = (BUILDS | BYTES)[name]
        self.program = str(Path(folder) / name)
        flags = ["-O2", "-std=gnu11", "-ffp-contract=off", "-fno-math-errno", "-Wall", "-Wextra", f"-DFO_ISA={isa}"]
        source = ROOT / "tests" / "simd" / "driver.c"
        subprocess.run([*compiler, *flags, *options, source, "-lm", "-o", self.program], check=True)
        self.lanes, self.room, self.out = map(int, self.call(b"").split())
        self.exact = isa != "scalar"  # plain C rounds a multiply-add twice

    def call(self, records, *operation):
        command = [*self.start, self.program, *operation]
        return subprocess.run(command, input=records, capture_output=True, check=True).stdout

    def __call__(self, operation, floats, integers=(), wrote=None):
        """What the operation writes for each row of floats, of integers, or of both; the rest must be as it was."""
        integers = np.asarray(integers, np.int64) if len(integers) else np.zeros((1, 0), np.int64)
        floats = np.atleast_2d(np.asarray(floats, np.float32))
        count = max(len(floats), len(integers))
        record = np.zeros(count, [("n", np.int64, 4), ("in", np.float32, self.room)])
        record["n"][:, : integers.shape[1]] = integers
        record["in"][:, : floats.shape[1]] = floats
        results = np.frombuffer(self.call(record.tobytes(), operation), np.float32).reshape(count, self.out)
        before = 2 * self.lanes
        wrote = self.lanes if wrote is None else wrote
        assert (results[:, :before] == GUARD).all() and (results[:, before + wrote :] == GUARD).all()
        return results[:, before : before + wrote]


@lru_cache(maxsize=1)
def folder():
    return TemporaryDirectory()


@lru_cache
def driver(name):
    return Driver(name, folder().name)


@pytest.fixture(params=[*BUILDS, *BYTES])
def bytewise(request):
    if reason := why_not(request.param):
        pytest.skip(reason)
    return driver(request.param)


@pytest.fixture(params=BUILDS)
def run(request):
    if reason := why_not(request.param):
        pytest.skip(reason)
    return driver(request.param)


def same(actual, expected):
    """The same bits; any NaN is as good as another."""
    expected = np.broadcast_to(np.asarray(expected, np.float32), actual.shape)
    nan = np.isnan(actual) & np.isnan(expected)
    bits = [np.where(nan, 0, np.ascontiguousarray(v).view(np.int32)) for v in (actual, expected)]
    np.testing.assert_array_equal(*bits)


SPECIAL = np.float32([0, -0.0, 1, -1, 0.5, 3e38, -3e38, 1.2e-38, np.inf, -np.inf, np.nan, 16777217, 1 / 3, -7.25])


def pairs(lanes):
    """Rows a, b, in which each special value meets each other in every lane."""
    a, b = (v.ravel() for v in np.meshgrid(SPECIAL, SPECIAL))
    rows = [(np.roll(a, s)[:lanes], np.roll(b, s)[:lanes]) for s in range(len(a))]
    return tuple(np.array(part) for part in zip(*rows))


def floats(draw, rows, *shape):
    """Rows of several scales."""
    return draw(rows, *shape) * np.float32(2) ** np.resize(np.arange(-3, 4), (rows, *[1] * len(shape)))


BINARY = {
    "v_add": np.add,
    "v_sub": np.subtract,
    "v_mul": np.multiply,
    "v_div": np.divide,
    "v_copysign": np.copysign,
    "v_max": lambda a, b: np.where(a > b, a, b),
    "v_min": lambda a, b: np.where(a < b, a, b),
    "v_largest": lambda a, b: np.where(np.isnan(a) | (a > b), a, b),
    "v_lt": lambda a, b: (a < b).astype(np.float32),
}


@pytest.mark.parametrize("name", BINARY)
def test_two_operands(run, draw, name):
    """One rounding, NaN from the operand that simd.h says, signs of zeros."""
    for a, b in pairs(run.lanes), (floats(draw, 9, run.lanes), floats(draw, 9, run.lanes)):
        with np.errstate(all="ignore"):
            same(run(name, np.hstack([a, b])), BINARY[name](a, b))


UNARY = {
    "v_sqrt": np.sqrt,
    "v_abs": np.abs,
    "v_isnan": lambda a: np.isnan(a).astype(np.float32),
    "v_force_reg": lambda a: a,
}


@pytest.mark.parametrize("name", UNARY)
def test_one_operand(run, draw, name):
    for a in pairs(run.lanes)[0], floats(draw, 9, run.lanes):
        with np.errstate(all="ignore"):
            same(run(name, a), UNARY[name](a))


@pytest.mark.parametrize("name", ["v_fma", "v_fma_to", "v_fma_at", "v_fnma"])
def test_multiply_add_rounds_once(run, draw, name):
    """What a product loses shows where c takes the rest away: a b + c is exact in float64 here."""
    rows = 40
    a, b = draw(rows, run.lanes), draw(rows, run.lanes)
    if name == "v_fma_at":
        a[:] = a[:, -1:]
    sign = np.float32(-1 if name == "v_fnma" else 1)
    product = a * b
    for c in -sign * product, -sign * np.nextafter(product, np.float32(2)), draw(rows, run.lanes):
        exact = sign * a.astype(np.float64) * b + c
        actual = run(name, np.hstack([a, b, c]), [[run.lanes - 1]])
        if c is product or run.exact:
            same(actual, exact)
        else:
            np.testing.assert_allclose(actual, exact, rtol=1.2e-7, atol=1e-12)
        assert (actual != product * sign + c).any() or not run.exact or np.abs(exact).max() > 1


def test_constants_and_memory_at_any_place(run, draw):
    a = draw(1, run.room)
    same(run("v_zero", a), np.zeros((1, run.lanes)))
    same(run("v_set1", a), np.full((1, run.lanes), a[0, 0]))
    same(run("v_first", a, wrote=1), a[:, :1])
    for at in range(run.lanes + 1):
        same(run("v_load", a, [[at]]), a[:, at : at + run.lanes])
        same(run("v_store", a, [[at]], wrote=at + run.lanes)[:, at:], a[:, : run.lanes])


def test_load_bits(run):
    words = np.random.default_rng(0).integers(0, 1 << 32, run.room, np.uint32)
    for bits in 4, 8:
        for first in range(0, 32, bits):
            for from_, stays in itertools.product((0, 1), (0, bits)):
                if first < stays:
                    continue
                y = run("v_load_bits", words.view(np.float32)[None], [[from_, first - stays, stays, bits]])
                expected = (words[from_ : from_ + run.lanes] >> first & (1 << bits) - 1).astype(np.float32)
                same(y, expected[None] + np.float32(2 ** (23 - stays)))


def widened(bits, dtype):
    """Arrays of 16 bits as float32."""
    if dtype == "bfloat16":
        return (bits.astype(np.uint32) << 16).view(np.float32)
    return bits.view(dtype).astype(np.float32)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_load_16_bits(run, dtype):
    """Every value there is, subnormal ones, infinities and NaN among them, from any place."""
    rows = np.arange(1 << 16, dtype=np.uint16).reshape(-1, 16)
    wide = widened(rows, dtype)
    stored = np.zeros((len(rows), 18), np.uint16)
    for at in 0, 1:
        stored[:, at : at + 16] = rows
        y = run("v_load_as", stored.view(np.float32)[:, : run.room], [[at, _core.DTYPES[dtype]]])
        same(y, wide[:, : run.lanes])
        nan = np.isnan(y)
        assert (np.signbit(y) == np.signbit(wide[:, : run.lanes]))[nan].all()
        assert dtype != "float16" or (np.ascontiguousarray(y).view(np.uint32)[nan] >> 22 & 1).all()  # quiet ones


def test_store_float16(run):
    """Rounded as NumPy does, what becomes subnormal or infinite, too; NaN keeps its sign."""
    rng = np.random.default_rng(0)
    near = rng.integers(0x32800000, 0x47900000, 2048, np.uint32) & rng.choice(
        [0xFFFFF000, 0xFFFFE000, 0xFFFFFFFF], 2048
    )
    values = np.concatenate([near, near | 0x80000000, rng.integers(0, 1 << 32, 2048, np.uint32)]).astype(np.uint32)
    values = np.concatenate([values.view(np.float32), np.tile(SPECIAL, 128)])
    values = values[: len(values) // 16 * 16].reshape(-1, run.lanes)
    with np.errstate(over="ignore", invalid="ignore"):
        expected = values.astype(np.float16)
    y = run("v_store_f16", values).astype(np.uint16).view(np.float16)
    nan = np.isnan(expected)
    np.testing.assert_array_equal(y.view(np.uint16)[~nan], expected.view(np.uint16)[~nan])
    assert np.isnan(y[nan]).all() and (np.signbit(y) == np.signbit(values))[nan].all()


def bounds(lanes):
    """lo, hi: inside, outside, and far outside."""
    near = [*range(-2, lanes + 3)]
    far = [-(2**62), -(2**31) - 1, -(2**31), -1000, 1000, 2**31 - 1, 2**31, 2**32, 2**32 + 1, 2**62]
    return np.array([(lo, hi) for lo in near + far for hi in near + far])


def within(lanes, lo, hi):
    return (np.arange(lanes) >= lo[:, None]) & (np.arange(lanes) < hi[:, None])


def test_range(run):
    n, lanes = bounds(run.lanes), np.arange(run.lanes)
    given = np.hstack([lanes + 1, -lanes - 1]).astype(np.float32)
    same(run("v_range", given, n), np.where(within(run.lanes, *n.T), lanes + 1, -lanes - 1))


def test_select_takes_bits(run):
    a, b = pairs(run.lanes)
    c = np.where(np.arange(a.size).reshape(a.shape) % 3 == 0, np.float32(-1), np.float32(1))
    same(run("v_select", np.hstack([a, b, c])), np.where(c < 0, a, b))


@pytest.mark.parametrize("from_start", [False, True])
def test_masks_touch_nothing_else(run, draw, from_start):
    """A page that may not be touched begins where the lanes end, or ends where they begin."""
    n = np.array([(lo, hi, from_start) for lo in range(run.lanes) for hi in range(lo + 1, run.lanes + 1)])
    a = draw(1, run.lanes)
    inside = within(run.lanes, n[:, 0], n[:, 1])
    same(run("v_load_mask", a, n), np.where(inside, a, np.float32(0)))
    same(run("v_store_mask", a, n, wrote=2 * run.lanes), np.tile(np.where(inside, a, GUARD), 2))


@pytest.mark.parametrize("name", ["v_load_tail", "v_store_tail", "v_store_first"])
def test_tails_touch_nothing_else(run, draw, name):
    least, most = {"v_load_tail": (-2, 2), "v_store_tail": (0, 2), "v_store_first": (1, 0)}[name]
    n = np.arange(least, run.lanes + most + 1)
    a = draw(1, run.lanes)
    inside = within(run.lanes, 0 * n, n)
    if name == "v_load_tail":
        same(run(name, a, n[:, None]), np.where(inside, a, np.float32(0)))
    else:
        same(run(name, a, n[:, None], wrote=2 * run.lanes), np.tile(np.where(inside, a, GUARD), 2))


def test_powers_of_two(run):
    """To both ends: 2^-127 is 0 here, 2^128 infinite."""
    n = np.resize(np.arange(-127, 129), (256 + run.lanes - 1) // run.lanes * run.lanes).reshape(-1, run.lanes)
    z = n.astype(np.float32) + np.float32(float.fromhex("0x1.8000fep23"))
    with np.errstate(over="ignore"):
        same(run("v_pow2", z), np.where(n == -127, 0, np.ldexp(np.float32(1), n)))


def test_scaling(run, draw):
    """By powers that are no floats themselves; one rounding, of results that are normal."""
    n = np.resize(np.arange(-252, 253), (505 + run.lanes - 1) // run.lanes * run.lanes).reshape(-1, run.lanes)
    for center in 0, -n // 2, -n:
        a = (1 + np.abs(draw(*n.shape))) * np.ldexp(np.float32(1), np.clip(center, -120, 120))
        exact = np.ldexp(a.astype(np.float64), n)
        normal = np.abs(exact) >= 2.0**-126
        with np.errstate(over="ignore"):
            same(np.where(normal, run("v_scale", np.hstack([a, n])), 0), np.where(normal, exact, 0))


@pytest.mark.parametrize(
    "name, first", [("v_uzp_even", 0), ("v_uzp_odd", 1), ("v_uzp_inlane_even", 0), ("v_uzp_inlane_odd", 1)]
)
def test_every_second_lane(run, draw, name, first):
    both = draw(5, 2 * run.lanes)
    same(run(name, both), both[:, first::2])


def test_rotated_in_the_order_of_evens(run, draw):
    both, lanes = draw(3, 2 * run.lanes), run.lanes
    y = run("v_rotate", both, wrote=3 * lanes)
    even = both[:, ::2]
    same(y, np.hstack([even, np.roll(even, -1, 1), np.roll(even, 1, 1)]))


def test_concatenations(run, draw):
    both = draw(1, 2 * run.lanes)
    for n in range(1, run.lanes):
        same(run("v_concat", both, [[n]]), both[:, n : n + run.lanes])


def test_halves(run, draw):
    if run.lanes == 1:
        pytest.skip("one lane has no half")
    both, lanes, half = draw(1, 2 * run.lanes), run.lanes, run.lanes // 2
    same(run("v_halves", both), np.hstack([both[:, :half], both[:, lanes : lanes + half]]))
    for p, q in (0, half), (3, lanes + 1), (half, 0):
        same(run("v_load_halves", both, [[p, q]]), np.hstack([both[:, p : p + half], both[:, q : q + half]]))
    y = run("v_store_halves", both, [[half + 1, 0]], wrote=lanes + 1)
    same(y, np.hstack([both[:, half:lanes], np.full((1, 1), GUARD), both[:, :half]]))


@pytest.mark.parametrize("more", [0, 3])
def test_transposes(run, draw, more):
    lanes, ld = run.lanes, run.lanes + more
    x = draw(lanes, ld)
    expected = x[:, :lanes].T.reshape(1, -1)
    given = x.reshape(1, -1)[:, : run.room]
    same(run("v_load_transposed", given, [[ld]], wrote=lanes**2), expected)
    if not more:
        same(run("v_transpose", given, wrote=lanes**2), expected)


@pytest.mark.parametrize("stride", [0, 1, 2, 3])
def test_strided(run, draw, stride):
    lanes = run.lanes
    x = draw(1, run.room)
    for n in range(-1, lanes + 1):
        expected = np.zeros((1, lanes), np.float32)
        if stride == 0 and n > 0:
            expected[:] = x[0, 0]
        elif n > 0:
            expected[0, :n] = x[0, : n * stride : stride]
        same(run("v_load_strided", x, [[stride, n]]), expected)
        if stride and n > 0:
            y = run("v_store_strided", x, [[stride, n]], wrote=(n - 1) * stride + 1)
            same(y[:, ::stride], x[:, :n])
            assert (np.delete(y, np.s_[::stride], 1) == GUARD).all()


def test_over_all_lanes(run, draw):
    x = draw.integers(20, run.lanes)
    same(run("v_sum_lanes", x), np.repeat(x.sum(1, keepdims=True), run.lanes, 1))
    for lane in range(run.lanes):
        x[lane % 20, lane] = np.nan
    same(run("v_largest_lane", x), np.repeat(x.max(1, keepdims=True), run.lanes, 1))


def integers(rows, count):
    """int32 of several sizes, their bits as floats."""
    rng = np.random.default_rng(0)
    values = rng.integers(-(2**31), 2**31, (rows, count)) >> np.resize([0, 8, 16, 22, 28], (rows, 1))
    return values.astype(np.int32)


def bits(run, name, values, *given, wrote=None, dtype=np.int32):
    """The result's bits as integers."""
    y = run(name, np.ascontiguousarray(values).view(np.float32), *given, wrote=wrote)
    return np.ascontiguousarray(y).view(dtype)


@pytest.mark.parametrize("name", ["v_iadd", "v_isub", "v_imul", "v_iand", "v_ixor"])
def test_integers(bytewise, name):
    v = integers(15, 2 * bytewise.lanes)
    a, b = (part.astype(np.int64) for part in np.hsplit(v, 2))
    expected = {"v_iadd": a + b, "v_isub": a - b, "v_imul": a * b, "v_iand": a & b, "v_ixor": a ^ b}[name]
    np.testing.assert_array_equal(bits(bytewise, name, v), expected.astype(np.int32))


@pytest.mark.parametrize("upper", [0, 1])
def test_zipped_shorts(bytewise, upper):
    v = integers(15, 2 * bytewise.lanes).view(np.uint16).reshape(15, 2, -1, 2)
    expected = v[..., upper].transpose(0, 2, 1).reshape(15, -1)
    found = bits(bytewise, "v_zip_shorts", v.reshape(15, -1), [[upper]] * 15, dtype=np.uint16)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("upper", [0, 1])
def test_halves_of_bytes(bytewise, upper):
    v = integers(15, bytewise.lanes).view(np.uint8)
    expected = v >> 4 if upper else v & 15
    np.testing.assert_array_equal(bits(bytewise, "v_nibbles", v, [[upper]] * 15, dtype=np.uint8), expected)


def test_integers_and_floats(bytewise):
    v = integers(15, bytewise.lanes)
    np.testing.assert_array_equal(bits(bytewise, "v_as_int", v), v)
    np.testing.assert_array_equal(bits(bytewise, "v_as_float", v), v)
    np.testing.assert_array_equal(bits(bytewise, "v_to_float", v), v.astype(np.float32).view(np.int32))
    x = np.resize(
        np.float32([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 0.49999997, -0.0, 1e9, -2e9, 7.3, -7.7]), (3, bytewise.lanes)
    )
    np.testing.assert_array_equal(bits(bytewise, "v_to_int", x), np.rint(x).astype(np.int32))
    for n in 0, -1, 2**31 - 1, -(2**31):
        np.testing.assert_array_equal(bits(bytewise, "v_iset1", v[:1], [[n]]), np.full((1, bytewise.lanes), n))


def test_bytes_in_memory(bytewise):
    lanes = bytewise.lanes
    v = integers(1, bytewise.room)
    u = v.view(np.uint8)
    for at in 0, 1, 3, 4 * lanes:
        np.testing.assert_array_equal(bits(bytewise, "v_iload", v, [[at]], dtype=np.uint8), u[:, at : at + 4 * lanes])
        np.testing.assert_array_equal(bits(bytewise, "v_load_bytes", v, [[at]]), u[:, at : at + lanes])
        stored = bits(bytewise, "v_istore", v, [[at]], wrote=lanes + -(-at // 4), dtype=np.uint8)
        np.testing.assert_array_equal(stored[:, at : at + 4 * lanes], u[:, : 4 * lanes])
    n = np.arange(4 * lanes + 1)[:, None]
    inside = np.arange(4 * lanes) < n
    loaded = bits(bytewise, "v_load_quads_tail", v, n, dtype=np.uint8)
    np.testing.assert_array_equal(loaded, np.where(inside, u[:, : 4 * lanes], 0))
    stored = bits(bytewise, "v_store_quads_tail", v, n, dtype=np.uint8)
    np.testing.assert_array_equal(stored, np.where(inside, u[:, : 4 * lanes], np.full(lanes, GUARD).view(np.uint8)))
    n = np.arange(-1, lanes + 3)[:, None]
    loaded = bits(bytewise, "v_load_bytes_tail", v, n)
    np.testing.assert_array_equal(loaded, np.where(np.arange(lanes) < n, u[:, :lanes], 0))


def test_parts_of_vectors_of_bytes(bytewise):
    lanes = bytewise.lanes
    u = integers(1, bytewise.room).view(np.uint8)
    for parts in (1, 2, 4) if lanes == 16 else (1,):
        width = 4 * lanes // parts
        sizes = [(parts, n) for n in range(1, width + 1)]
        loaded = bits(bytewise, "v_load_parts", u.view(np.int32), sizes, dtype=np.uint8)
        for y, (_, n) in zip(loaded, sizes, strict=True):
            expected = np.zeros((parts, width), np.uint8)
            expected[:, :n] = u[0, : parts * n].reshape(parts, n)
            np.testing.assert_array_equal(y, expected.ravel())
        sizes = [(*size, count) for size in sizes for count in range(parts + 1)]
        stored = bits(bytewise, "v_store_parts", u.view(np.int32), sizes, dtype=np.uint8)
        for y, (_, n, count) in zip(stored, sizes, strict=True):
            wanted = u[0, : 4 * lanes].reshape(parts, width)[:count, :n]
            np.testing.assert_array_equal(y[: count * n], wanted.ravel())


def places(lanes):
    """Byte b of v_pack_inlane's result is that of vector q, lane l: (q, l)."""
    if lanes == 1:
        return np.arange(4), np.zeros(4, int)
    b = np.arange(4 * lanes)
    return b % 16 // 4, b // 16 * 4 + b % 4


def test_packs(bytewise):
    """From beyond 16 bits to 0 .. 255, with a zero point."""
    lanes = bytewise.lanes
    v = (integers(20, 4 * lanes) >> np.resize([0, 12, 16, 20], (20, 1))).astype(np.int32)
    q, lane = places(lanes)
    for zero in 0, 5, 128, 255:
        expected = np.clip(np.clip(v, -32768, 32767) + zero, 0, 255)
        np.testing.assert_array_equal(bits(bytewise, "v_pack", v, [[zero]], dtype=np.uint8), expected)
        lanewise = expected.reshape(20, 4, lanes).swapaxes(1, 2).reshape(20, -1)
        np.testing.assert_array_equal(bits(bytewise, "v_pack_lanes", v, [[zero]], dtype=np.uint8), lanewise)
        pairs = expected.reshape(20, 2, 2, lanes).swapaxes(2, 3).reshape(20, -1)
        np.testing.assert_array_equal(bits(bytewise, "v_pack_pairs", v, [[zero]], dtype=np.uint8), pairs)
        mixed = expected.reshape(20, 4, lanes)[:, q, lane]
        np.testing.assert_array_equal(bits(bytewise, "v_pack_inlane", v, [[zero]], dtype=np.uint8), mixed)
        shorts = [bits(bytewise, "v_pack_shorts", part, [[zero]]) for part in np.hsplit(v, 2)]
        np.testing.assert_array_equal(bits(bytewise, "v_pack_bytes", np.hstack(shorts), dtype=np.uint8), mixed)


def test_quads(bytewise):
    lanes = bytewise.lanes
    v = integers(3, 4 * lanes)
    rows = v.view(np.uint8).reshape(3, 4, 4 * lanes)
    expected = np.empty((3, 4, lanes, 4), np.uint8)
    q, lane = places(lanes)
    expected[:, q, lane] = np.moveaxis(rows, 1, 2)
    np.testing.assert_array_equal(
        bits(bytewise, "v_quads", v, wrote=4 * lanes, dtype=np.uint8), expected.reshape(3, -1)
    )


def test_dot_products_do_not_saturate(bytewise):
    """Of the worst bytes, too; where the set takes int8, they come less 128."""
    lanes, rng = bytewise.lanes, np.random.default_rng(1)
    a, b = rng.integers(0, 256, (30, 4 * lanes)), rng.integers(-128, 128, (30, 4 * lanes))
    a[:3], b[0], b[1], b[2] = 255, 127, -128, np.resize([127, -128], 4 * lanes)
    c = integers(30, lanes)
    given = np.hstack([a.astype(np.uint8).view(np.int32), b.astype(np.int8).view(np.int32), c])
    y = bytewise("v_dot", given.view(np.float32), wrote=lanes + 1)
    a = a - 128 * (y[0, -1] == 1)
    expected = c.astype(np.int64) + (a * b).reshape(30, lanes, 4).sum(2)
    np.testing.assert_array_equal(np.ascontiguousarray(y[:, :-1]).view(np.int32), expected.astype(np.int32))


def test_dot_products_with_a_lane():
    if reason := why_not("neondot"):
        pytest.skip(reason)
    lanes, rng = driver("neondot").lanes, np.random.default_rng(1)
    a, b, c = rng.integers(0, 256, (30, lanes, 4)), rng.integers(-128, 128, (30, lanes, 4)), integers(30, lanes)
    given = np.hstack([v.reshape(30, -1).astype(np.uint8).view(np.int32) for v in (a, b)] + [c])
    for lane in range(lanes):
        expected = c.astype(np.int64) + ((a[:, lane, None] - 128) * b).sum(2)
        y = bits(driver("neondot"), "v_dot_lane", given, [[lane]])
        np.testing.assert_array_equal(y, expected.astype(np.int32))


def with_bfloat16(name):
    """The driver of a set that multiplies bfloat16, where the processor does."""
    cpu = Path("/proc/cpuinfo")
    if reason := why_not(name):
        pytest.skip(reason)
    if not driver(name).start and not {"avx512_bf16", "bf16"} & set(cpu.read_text().split()):
        pytest.skip("the processor has no products of bfloat16")
    return driver(name)


def narrowed(a):
    """bfloat16 in pairs, as floats."""
    return (a.view(np.uint32) >> 16).astype(np.uint16).view(np.float32)


@pytest.mark.parametrize("name", ["avx512vnni", "neondot"])
def test_bfloat16(name):
    """Products of pairs that float32 holds, and narrow floats, rounded to nearest, ties to even."""
    run, rng = with_bfloat16(name), np.random.default_rng(1)
    a, b, c = (rng.integers(-9, 10, (30, n)).astype(np.float32) for n in (2 * run.lanes, 2 * run.lanes, run.lanes))
    y = run("v_dot_bf16", np.hstack([narrowed(a), narrowed(b), c]), wrote=run.lanes)
    np.testing.assert_array_equal(y, c + (a * b).reshape(30, -1, 2).sum(2))
    values = np.float32([1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-20, -3.4e38, np.inf, 0.1, -0.0, 0])
    expected = np.float32([1, 1 + 2**-6, 1 + 2**-7, -np.inf, np.inf, 0.10009765625, -0.0, 0])
    rows = 8, run.lanes
    y = bits(run, "v_store_bf16", np.resize(values, rows), wrote=run.lanes // 2, dtype=np.uint16)
    np.testing.assert_array_equal((y.astype(np.uint32) << 16).view(np.float32), np.resize(expected, rows))
    two = np.hstack([np.resize(values, rows), np.resize(values[::-1], rows)])
    expected = np.resize(expected, rows), np.resize(expected[::-1], rows)
    for op, both in ("v_narrow", np.hstack(expected)), ("v_narrow_pairs", np.stack(expected, 2).reshape(8, -1)):
        y = bits(run, op, two, dtype=np.uint16)
        np.testing.assert_array_equal((y.astype(np.uint32) << 16).view(np.float32), both)


def test_blocks_of_bfloat16():
    """Two rows by two columns of four steps, and what puts them so."""
    run, rng = with_bfloat16("neondot"), np.random.default_rng(1)
    a, b, c = (rng.integers(-9, 10, (30, n)).astype(np.float32) for n in (8, 8, 4))
    y = run("v_mmla_bf16", np.hstack([narrowed(a), narrowed(b), c]))
    products = np.einsum("rik,rjk->rij", a.reshape(30, 2, 4), b.reshape(30, 2, 4))
    np.testing.assert_array_equal(y, c + products.reshape(30, 4))
    x, z = np.arange(4), np.arange(10, 14)
    given = np.hstack([x, z])[None].astype(np.int32)
    np.testing.assert_array_equal(bits(run, "v_load_two", given)[0], [0, 1, 2, 3])
    for upper in 0, 1:
        i, j = x[2 * upper : 2 * upper + 2], z[2 * upper : 2 * upper + 2]
        np.testing.assert_array_equal(bits(run, "v_zip_words", given, [[upper]])[0], [i[0], j[0], i[1], j[1]])
        np.testing.assert_array_equal(bits(run, "v_zip_pairs", given, [[upper]])[0], [*i, *j])


def test_every_operation_is_here():
    """The list of simd.h against that of the driver, but for what other operations are made of, and barriers."""
    if not (ROOT / "csrc" / "simd").is_dir():
        pytest.skip("the sources are not here")
    contract = "".join((ROOT / "csrc" / "simd" / name).read_text().split("*/")[0] for name in ("simd.h", "int8.h"))
    lines = [line[5:] for line in contract.splitlines() if line.startswith(" *   v_")]
    named = {name for line in lines for name in re.findall(r"\bv_\w+", line.split("   ")[0])}
    known = set(re.findall(r"\bv_\w+", (ROOT / "tests" / "simd" / "driver.c").read_text()))
    assert len(named) > 30 and not named - known
