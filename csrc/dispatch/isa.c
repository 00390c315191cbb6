/* Which instruction sets this processor has, and which one is used: the best, unless the caller chose another. */
#include "isa.h"

#include <stdatomic.h>
#if defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

#include "../include/fusedops/fusedops.h"
#include "../machine/machine.h"

/* A set, and its tables with more: dot products of int8, those of bfloat16, and tiles. Each has all of those before it.
 */
enum { DOTS, BF16, TILES, EXTRAS };
typedef struct {
    const fo_kernels *kernels;
    bool (*available)(void);
    struct {
        const fo_kernels *kernels;
        bool (*available)(void);
    } with[EXTRAS];
} isa_entry;

static bool always(void) { return true; }

/* FO_SCALAR_ALONE and FO_WITHOUT_AVX512: builds with sanitizers, whose compiler takes minutes for a set. */
#if defined(__x86_64__) && !defined(FO_SCALAR_ALONE)
/* The compiler's test covers both the processor (cpuid) and the operating system (xgetbv). */
static bool has_avx2(void) { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && fo_has_f16c(); }
#ifndef FO_WITHOUT_AVX512
#ifdef FO_EMULATED
static bool has_avx512(void) { return has_avx2(); }
#define AVX512_EXTRAS {{NULL, NULL}}
#else
static bool has_avx512vnni(void) { return __builtin_cpu_supports("avx512vnni"); }
#define AVX512_EXTRAS \
    {{&fo_kernels_avx512vnni, has_avx512vnni}, \
     {&fo_kernels_avx512bf16, fo_has_avx512_bf16}, \
     {&fo_kernels_avx512amx, fo_has_amx}}
static bool has_avx512(void) {
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw");
}
#endif
#endif
#elif defined(__aarch64__) && !defined(FO_SCALAR_ALONE)
static bool has_sdot(void) {
#ifdef __ARM_FEATURE_DOTPROD /* every processor that this is compiled for: macOS */
    return true;
#elif defined(__linux__)
    return getauxval(AT_HWCAP) & HWCAP_ASIMDDP;
#else
    return false;
#endif
}

static bool has_bfmmla(void) {
#ifdef __ARM_FEATURE_BF16_VECTOR_ARITHMETIC
    return true;
#elif defined(__linux__)
    enum { BF16 = 1 << 14 }; /* HWCAP2_BF16, which older headers lack */
    return getauxval(AT_HWCAP2) & BF16;
#else
    return false;
#endif
}
#endif

static const isa_entry isas[] = {
    {.kernels = &fo_kernels_scalar, .available = always},
#ifdef FO_SCALAR_ALONE
#elif defined(__x86_64__)
    {.kernels = &fo_kernels_avx2, .available = has_avx2, .with = {{&fo_kernels_avx2vnni, fo_has_avx_vnni}}},
#ifndef FO_WITHOUT_AVX512
    {.kernels = &fo_kernels_avx512, .available = has_avx512, .with = AVX512_EXTRAS},
#endif
#elif defined(__aarch64__)
    {.kernels = &fo_kernels_neon,
     .available = always, /* a part of the architecture */
     .with = {{&fo_kernels_neondot, has_sdot}, {&fo_kernels_neonbf16, has_bfmmla}}},
#endif
};
enum { ISAS = sizeof isas / sizeof *isas };

static atomic_int chosen = -1;

int fo_isa_count(void) { return ISAS; }
const char *fo_isa_name(int isa) { return isas[isa].kernels->set; }
bool fo_isa_available(int isa) {
    const ptrdiff_t sets = fo_this_machine()->sets;
    return (!sets || isa < sets) && isas[isa].available();
}

/* The table in use, or NULL where it has to be chosen again: every operation asks for it. */
static _Atomic(const fo_kernels *) active;

/* The best table of a set that this machine has. */
static const fo_kernels *best_of(const isa_entry *set) {
    const fo_machine *m = fo_this_machine();
    const bool wanted[EXTRAS] = {[DOTS] = m->dot_product, [BF16] = m->bf16, [TILES] = m->tiles};
    const fo_kernels *best = set->kernels;
    for (int i = 0; i < EXTRAS && wanted[i] && set->with[i].kernels && set->with[i].available(); i++)
        best = set->with[i].kernels;
    return best;
}

void fo_set_isa(int isa) {
    atomic_store(&chosen, isa);
    atomic_store(&active, best_of(&isas[isa]));
}

int fo_get_isa(void) {
    int isa = atomic_load_explicit(&chosen, memory_order_relaxed);
    if (isa >= 0) return isa;
    for (isa = ISAS - 1; !fo_isa_available(isa);) isa--;
    fo_set_isa(isa);
    return isa;
}

void fo_forget_kernels(void) { atomic_store(&active, NULL); }

const fo_kernels *fo_active(void) {
    const fo_kernels *kn = atomic_load_explicit(&active, memory_order_relaxed);
    if (!kn) atomic_store(&active, kn = best_of(&isas[fo_get_isa()]));
    return kn;
}

bool fo_at_half_rate(const fo_kernels *kn) {
    enum { AVX512_LANES = 16 };
    return kn->vl == AVX512_LANES && fo_this_machine()->half_rate;
}

const fo_kernels *fo_half_width_kernels(void) {
    const int isa = fo_get_isa();
    return fo_at_half_rate(isas[isa].kernels) ? isas[isa - 1].kernels : fo_active();
}

const char *fo_compiler(void) {
#if defined(__clang__)
    return "clang " __clang_version__;
#elif defined(__GNUC__)
    return "gcc " __VERSION__;
#else
    return "unknown";
#endif
}
