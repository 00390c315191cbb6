/* Which instruction sets this processor has, and which one is used: the best, unless the caller chose another. */
#include "isa.h"

#include <stdatomic.h>
#if defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

#include "../fusedops.h"
#include "machine.h"

/* A set, and its kernels of int8: `dots` where the processor has the dot product that they take, `bf16` where it has
 * that of bfloat16, too, and `tiles` where it also has tiles. */
typedef struct {
    const fo_kernels *kernels;
    bool (*available)(void);
    const fo_qkernels *qkn, *dots, *bf16, *tiles;
    bool (*has_dots)(void), (*has_bf16)(void);
} isa_entry;

static bool always(void) { return true; }

/* FO_SCALAR_ALONE and FO_WITHOUT_AVX512: builds with sanitizers, whose compiler takes minutes for a set. */
#if defined(__x86_64__) && !defined(FO_SCALAR_ALONE)
/* The compiler's test covers both the processor (cpuid) and the operating system (xgetbv). */
static bool has_avx2(void) { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && fo_has_f16c(); }
#ifndef FO_WITHOUT_AVX512
#ifdef FO_EMULATED
static bool has_avx512(void) { return has_avx2(); }
#define AVX512_DOTS NULL, NULL, NULL, NULL, NULL
#else
static bool has_avx512vnni(void) { return __builtin_cpu_supports("avx512vnni"); }
#define AVX512_DOTS \
    &fo_qkernels_avx512vnni, &fo_qkernels_avx512bf16, &fo_qkernels_avx512amx, has_avx512vnni, fo_has_avx512_bf16
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
    {&fo_kernels_scalar, always, &fo_qkernels_scalar, NULL, NULL, NULL, NULL, NULL},
#ifdef FO_SCALAR_ALONE
#elif defined(__x86_64__)
    {&fo_kernels_avx2, has_avx2, &fo_qkernels_avx2, &fo_qkernels_avx2vnni, NULL, NULL, fo_has_avx_vnni, NULL},
#ifndef FO_WITHOUT_AVX512
    {&fo_kernels_avx512, has_avx512, &fo_qkernels_avx512, AVX512_DOTS},
#endif
#elif defined(__aarch64__)
    /* a part of the architecture */
    {&fo_kernels_neon, always, &fo_qkernels_neon, &fo_qkernels_neondot, &fo_qkernels_neonbf16, NULL, has_sdot,
     has_bfmmla},
#endif
};
enum { ISAS = sizeof isas / sizeof *isas };

static atomic_int chosen = -1;

int fo_isa_count(void) { return ISAS; }
const char *fo_isa_name(int isa) { return isas[isa].kernels->name; }
bool fo_isa_available(int isa) {
    const ptrdiff_t sets = fo_this_machine()->sets;
    return (!sets || isa < sets) && isas[isa].available();
}
void fo_set_isa(int isa) { atomic_store(&chosen, isa); }

int fo_get_isa(void) {
    int isa = atomic_load_explicit(&chosen, memory_order_relaxed);
    if (isa >= 0) return isa;
    for (isa = ISAS - 1; !fo_isa_available(isa);) isa--;
    fo_set_isa(isa);
    return isa;
}

const fo_kernels *fo_active(void) { return isas[fo_get_isa()].kernels; }

const fo_qkernels *fo_active_qkernels(void) {
    const isa_entry *set = &isas[fo_get_isa()];
    const fo_machine *m = fo_this_machine();
    if (!set->dots || !m->dot_product || !set->has_dots()) return set->qkn;
    if (!set->bf16 || !m->bf16 || !set->has_bf16()) return set->dots;
    return set->tiles && m->tiles && fo_has_amx() ? set->tiles : set->bf16;
}

bool fo_at_half_rate(const fo_kernels *kn) {
    enum { AVX512_LANES = 16 };
    return kn->vl == AVX512_LANES && fo_this_machine()->half_rate;
}

const fo_kernels *fo_half_width_kernels(void) {
    const int isa = fo_get_isa();
    return isas[fo_at_half_rate(isas[isa].kernels) ? isa - 1 : isa].kernels;
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
