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

/* What is plausible of a cache: a system may say nothing, or be a virtual machine's idea. */
static ptrdiff_t within(ptrdiff_t bytes, ptrdiff_t least, ptrdiff_t most) {
    return bytes <= 0 || bytes > most ? most : bytes < least ? least : bytes;
}

#ifndef _SC_LEVEL1_DCACHE_SIZE /* macOS */
enum { _SC_LEVEL1_DCACHE_SIZE = -1, _SC_LEVEL2_CACHE_SIZE = -1, _SC_LEVEL3_CACHE_SIZE = -1 };
#endif
static ptrdiff_t cache(int name) { return name < 0 ? 0 : sysconf(name); }

/* Returns the number after name= in a list of such, or `otherwise`. */
static ptrdiff_t told(const char *text, const char *name, ptrdiff_t otherwise) {
    const size_t length = strlen(name);
    for (const char *field = text; field && *field; field += strcspn(field, ","), field += *field == ',')
        if (!strncmp(field, name, length) && field[length] == '=') return strtol(field + length + 1, NULL, 10);
    return otherwise;
}

/* FUSEDOPS_MACHINE, for tests of machines that are not at hand. */
static void override(fo_machine *m) {
    const char *text = getenv("FUSEDOPS_MACHINE");
#define SIZE(name) m->name = told(text, #name, m->name);
#define FLAG(name) m->name = told(text, #name, m->name) != 0;
    FO_EACH_MACHINE_SIZE(SIZE)
    FO_EACH_MACHINE_FLAG(FLAG)
#undef SIZE
#undef FLAG
}

void fo_set_machine(const fo_machine *m) {
    enum { KB = 1 << 10, MB = 1 << 20 };
    machine = *m;
    machine.l1 = within(m->l1, 32 * KB, 64 * KB);
    machine.l2 = within(m->l2, 256 * KB, MB);
    machine.l3 = within(m->l3, 4 * MB, 32 * MB);
}

const fo_machine *fo_this_machine(void) {
    if (atomic_load_explicit(&known, memory_order_acquire)) return &machine;
    fo_machine m = {.l1 = cache(_SC_LEVEL1_DCACHE_SIZE),
                    .l2 = cache(_SC_LEVEL2_CACHE_SIZE),
                    .l3 = cache(_SC_LEVEL3_CACHE_SIZE),
                    .dot_product = true,
                    .bf16 = true,
                    .tiles = true,
                    .half_rate = runs_at_half_rate()};
    override(&m);
    fo_set_machine(&m); /* threads that come here at once write the same */
    atomic_store_explicit(&known, true, memory_order_release);
    return &machine;
}
