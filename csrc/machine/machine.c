/* Reads the machine once: caches as the system tells them, the rate of wide vectors as CPUID does. */
#include "machine.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#ifdef __x86_64__
#include <cpuid.h>
#endif
#ifdef __linux__
#include <sys/syscall.h>
#endif

#include "../fusedops_test.h"

static fo_machine machine;
static atomic_bool known;

static bool runs_at_half_rate(void) {
#ifdef __x86_64__
    /* AMD's leaf; a hypervisor may show it empty */
    enum { OPTIMIZATIONS = 0x8000001a, FP256 = 1 << 2, FP512 = 1 << 3 };
    unsigned a, b, c, d;
    return __builtin_cpu_supports("avx512f") && __get_cpuid(OPTIMIZATIONS, &a, &b, &c, &d) &&
           (a & (FP256 | FP512)) == FP256;
#else
    return false;
#endif
}

static bool tells_f16c(void) {
#ifdef __x86_64__
    enum { F16C = 1 << 29 }; /* not every compiler's test knows it */
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & F16C);
#else
    return false;
#endif
}

static bool tells_avx_vnni(void) {
#ifdef __x86_64__
    /* not every compiler's test knows it; AVX2's says that the system keeps the registers */
    enum { FEATURES = 7, AVX_VNNI = 1 << 4 };
    unsigned a, b, c, d;
    return __builtin_cpu_supports("avx2") && __get_cpuid_count(FEATURES, 1, &a, &b, &c, &d) && (a & AVX_VNNI);
#else
    return false;
#endif
}

static bool tells_avx512_bf16(void) {
#ifdef __x86_64__
    enum { FEATURES = 7, AVX512_BF16 = 1 << 5 };
    unsigned a, b, c, d;
    return __builtin_cpu_supports("avx512f") && __get_cpuid_count(FEATURES, 1, &a, &b, &c, &d) && (a & AVX512_BF16);
#else
    return false;
#endif
}

#ifdef FO_EMULATED_AMX
static bool asks_for_amx(void) { return true; }
#elif defined(__x86_64__) && defined(__linux__)
static bool asks_for_amx(void) {
    enum { FEATURES = 7, AMX = 3 << 24 | 1 << 22 /* tiles, and their products of int8 and of bfloat16 */ };
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
    unsigned a, b, c, d;
    return __get_cpuid_count(FEATURES, 0, &a, &b, &c, &d) && (d & AMX) == AMX &&
           !syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA);
}
#else
static bool asks_for_amx(void) { return false; }
#endif

/* What the processor tells is asked for once: in a virtual machine that takes tens of microseconds. */
static bool once(atomic_int *answer, bool (*ask)(void)) {
    enum { UNKNOWN, NO, YES };
    int known = atomic_load_explicit(answer, memory_order_relaxed);
    if (known == UNKNOWN) atomic_store(answer, known = ask() ? YES : NO);
    return known == YES;
}
#define ONCE(name, ask) \
    bool name(void) { \
        static atomic_int answer; \
        return once(&answer, ask); \
    }
ONCE(fo_has_f16c, tells_f16c)
ONCE(fo_has_avx_vnni, tells_avx_vnni)
ONCE(fo_has_avx512_bf16, tells_avx512_bf16)
ONCE(fo_has_amx, asks_for_amx)

/* What the system says of a cache, within what is plausible: it may say nothing, or be a virtual machine's idea. */
static ptrdiff_t cache(int name, ptrdiff_t least, ptrdiff_t most) {
    const long bytes = name < 0 ? 0 : sysconf(name);
    return bytes <= 0 || bytes > most ? most : bytes < least ? least : bytes;
}

#ifndef _SC_LEVEL1_DCACHE_SIZE /* macOS */
enum { _SC_LEVEL1_DCACHE_SIZE = -1, _SC_LEVEL2_CACHE_SIZE = -1, _SC_LEVEL3_CACHE_SIZE = -1 };
#endif

/* FUSEDOPS_MACHINE overrides fields by name, for tests of machines that are not at hand. */
static void override(fo_machine *m) {
    const char *text = getenv("FUSEDOPS_MACHINE");
    static const struct {
        const char *name;
        size_t at;
    } fields[] = {
        {"l1=", offsetof(fo_machine, l1)}, {"l2=", offsetof(fo_machine, l2)}, {"l3=", offsetof(fo_machine, l3)}};
    if (!text) return;
    for (size_t f = 0; f < sizeof fields / sizeof *fields; f++) {
        const char *found = strstr(text, fields[f].name);
        if (found) *(ptrdiff_t *)((char *)m + fields[f].at) = strtol(found + strlen(fields[f].name), NULL, 10);
    }
    const char *rate = strstr(text, "half_rate=");
    if (rate) m->half_rate = rate[strlen("half_rate=")] == '1';
    const char *dot = strstr(text, "dot_product=");
    if (dot) m->dot_product = dot[strlen("dot_product=")] == '1';
    const char *tiles = strstr(text, "tiles=");
    if (tiles) m->tiles = tiles[strlen("tiles=")] == '1';
}

const fo_machine *fo_this_machine(void) {
    if (atomic_load_explicit(&known, memory_order_acquire)) return &machine;
    enum { KB = 1 << 10, MB = 1 << 20 };
    fo_machine m = {.l1 = cache(_SC_LEVEL1_DCACHE_SIZE, 32 * KB, 64 * KB),
                    .l2 = cache(_SC_LEVEL2_CACHE_SIZE, 256 * KB, MB),
                    .l3 = cache(_SC_LEVEL3_CACHE_SIZE, 4 * MB, 32 * MB),
                    .line = 64,
                    .dot_product = true,
                    .tiles = true,
                    .half_rate = runs_at_half_rate()};
    override(&m);
    machine = m; /* threads that come here at once write the same */
    atomic_store_explicit(&known, true, memory_order_release);
    return &machine;
}

void fo_set_half_rate(bool half) {
    fo_this_machine();
    machine.half_rate = half;
}

void fo_set_dot_product(bool used) {
    fo_this_machine();
    machine.dot_product = used;
}

void fo_set_amx(bool used) {
    fo_this_machine();
    machine.tiles = used;
}

bool fo_uses_amx(void) { return fo_this_machine()->tiles; }
bool fo_dot_product(void) { return fo_this_machine()->dot_product; }
bool fo_half_rate(void) { return fo_this_machine()->half_rate; }
ptrdiff_t fo_l2_bytes(void) { return fo_this_machine()->l2; }
