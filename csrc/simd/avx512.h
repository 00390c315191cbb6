/* The vocabulary on AVX-512F, sixteen lanes. Contract: simd.h. AVX-512BW is not used by name: without it GCC keeps
 * masks in general registers, from where each use waits in the queue of vector operations. */
#include <immintrin.h>

#include "simd.h"

#define FO_MAPS avx2 /* memory bounds maps: longer vectors gain nothing, and take the compiler five seconds */

typedef __m512 vf;
typedef __mmask16 vm;
enum { VL = 16, MR = 12, NV = 2, NR = NV * VL, REGISTERS = 32, FMA_READS = 1 };
_Static_assert(1 + NV + MR * NV <= REGISTERS, "one broadcast, b and accumulators fit the registers");

INLINE vf v_load(const float *p) { return _mm512_loadu_ps(p); }
INLINE void v_store(float *p, vf v) { _mm512_storeu_ps(p, v); }
INLINE vf v_load_f16(const uint16_t *p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p)); }
INLINE void v_store_f16(uint16_t *p, vf v) {
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
INLINE vf v_load_bf16(const uint16_t *p) {
    const __m512i words = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(words, 16));
}
INLINE vf v_load_bits(const uint32_t *p, int first, int at, int bits) {
    const __m512i words = _mm512_srl_epi32(_mm512_loadu_si512(p), _mm_cvtsi32_si128(first));
    const __m512i mask = _mm512_set1_epi32(V_MASK(at, bits)); /* words & mask | V_BITS */
    return _mm512_castsi512_ps(_mm512_ternarylogic_epi32(words, mask, _mm512_set1_epi32(V_BITS(at)), 0xea));
}
INLINE uint32_t v_below_(ptrdiff_t i) { return (1u << (i < 0 ? 0 : i > VL ? VL : i)) - 1; }
INLINE vm v_range(ptrdiff_t lo, ptrdiff_t hi) { return (vm)(v_below_(hi) & ~v_below_(lo)); }
INLINE vf v_load_mask(const float *p, vm m) { return _mm512_maskz_loadu_ps(m, p); }
INLINE void v_store_mask(float *p, vf v, vm m) { _mm512_mask_storeu_ps(p, m, v); }
INLINE vf v_load_tail(const float *p, ptrdiff_t n) { return v_load_mask(p, v_range(0, n)); }
INLINE void v_store_tail(float *p, vf v, ptrdiff_t n) { v_store_mask(p, v, v_range(0, n)); }
INLINE void v_store_first(float *p, vf v, ptrdiff_t n, vm m) { (void)n, v_store_mask(p, v, m); }
INLINE vf v_zero(void) { return _mm512_setzero_ps(); }
INLINE vf v_set1(float x) { return _mm512_set1_ps(x); }
#ifdef FO_EMULATED /* tests/emulated: no instruction of this set */
#define v_force_reg(v) __asm__("" : "+m"(v))
#else
#define v_force_reg(v) __asm__("" : "+v"(v))
#endif
INLINE vf v_add(vf a, vf b) { return _mm512_add_ps(a, b); }
INLINE vf v_sub(vf a, vf b) { return _mm512_sub_ps(a, b); }
INLINE vf v_mul(vf a, vf b) { return _mm512_mul_ps(a, b); }
INLINE vf v_div(vf a, vf b) { return _mm512_div_ps(a, b); }
INLINE vf v_sqrt(vf a) { return _mm512_sqrt_ps(a); }
INLINE vf v_fma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }
#ifdef FO_EMULATED
#define v_fma_to(c, a, b) ((c) = v_fma(a, b, c))
#define v_fma_at(c, p, b) v_fma_to(c, v_set1(*(p)), b)
#else
#define v_fma_to(c, a, b) __asm__("vfmadd231ps %2, %1, %0" : "+v"(c) : "v"(a), "v"(b))
#define v_fma_at(c, p, b) __asm__("vfmadd231ps %2%{1to16%}, %1, %0" : "+v"(c) : "v"(b), "m"(*(p)))
#endif
INLINE vf v_fnma(vf a, vf b, vf c) { return _mm512_fnmadd_ps(a, b, c); }
INLINE vf v_max(vf a, vf b) { return _mm512_max_ps(a, b); }
INLINE vf v_min(vf a, vf b) { return _mm512_min_ps(a, b); }
INLINE vf v_abs(vf a) { return _mm512_abs_ps(a); }
INLINE vf v_copysign(vf a, vf s) { /* bitwise sign ? s : a */
    return _mm512_castsi512_ps(
        _mm512_ternarylogic_epi32(_mm512_set1_epi32(INT32_MIN), _mm512_castps_si512(s), _mm512_castps_si512(a), 0xca));
}
INLINE vm v_lt(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
INLINE vm v_isnan(vf a) { return _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q); }
INLINE vf v_select(vm m, vf a, vf b) { return _mm512_mask_blend_ps(m, b, a); }
INLINE vf v_pow2(vf z) { return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(z), 23)); }
INLINE vf v_scale(vf a, vf n) { return _mm512_scalef_ps(a, n); }
INLINE vf v_uzp_even(vf a, vf b) {
    return _mm512_permutex2var_ps(a, _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30), b);
}
INLINE vf v_uzp_odd(vf a, vf b) {
    return _mm512_permutex2var_ps(a, _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31), b);
}
INLINE vf v_uzp_inlane_even(vf a, vf b) { return _mm512_shuffle_ps(a, b, 0x88); }
INLINE vf v_uzp_inlane_odd(vf a, vf b) { return _mm512_shuffle_ps(a, b, 0xdd); }
INLINE vf v_lane_order(vf v) {
    return _mm512_castpd_ps(_mm512_permutexvar_pd(_mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7), _mm512_castps_pd(v)));
}
INLINE vf v_rotate(vf v, int n) {
    const __m512i next = _mm512_setr_epi32(1, 4, 3, 6, 5, 8, 7, 10, 9, 12, 11, 14, 13, 2, 15, 0);
    const __m512i last = _mm512_setr_epi32(15, 0, 13, 2, 1, 4, 3, 6, 5, 8, 7, 10, 9, 12, 11, 14);
    return _mm512_permutexvar_ps(n == 1 ? next : last, v);
}
#define v_concat(a, b, n) _mm512_castsi512_ps(_mm512_alignr_epi32(_mm512_castps_si512(b), _mm512_castps_si512(a), n))
INLINE vf v_halves(vf a, vf b) { return _mm512_shuffle_f32x4(a, b, 0x44); }
INLINE vf v_load_halves(const float *p, const float *q) {
    return _mm512_castpd_ps(_mm512_insertf64x4(_mm512_castpd256_pd512(_mm256_loadu_pd((const double *)p)),
                                               _mm256_loadu_pd((const double *)q), 1));
}
INLINE void v_store_halves(float *p, float *q, vf v) {
    _mm256_storeu_ps(p, _mm512_castps512_ps256(v));
    _mm256_storeu_pd((double *)q, _mm512_extractf64x4_pd(_mm512_castps_pd(v), 1));
}
INLINE void v_transpose(vf r[VL]) {
    vf t[VL];
    UNROLL_FOR (int i = 0; i < VL; i += 4) { /* 4x4 blocks of each 128-bit quarter */
        vf a = _mm512_unpacklo_ps(r[i], r[i + 1]), b = _mm512_unpackhi_ps(r[i], r[i + 1]);
        vf c = _mm512_unpacklo_ps(r[i + 2], r[i + 3]), d = _mm512_unpackhi_ps(r[i + 2], r[i + 3]);
        t[i] = _mm512_shuffle_ps(a, c, 0x44);
        t[i + 1] = _mm512_shuffle_ps(a, c, 0xee);
        t[i + 2] = _mm512_shuffle_ps(b, d, 0x44);
        t[i + 3] = _mm512_shuffle_ps(b, d, 0xee);
    }
    UNROLL_FOR (int i = 0; i < 4; i++) { /* then the 4x4 matrix of those quarters */
        vf a = _mm512_shuffle_f32x4(t[i], t[i + 4], 0x88), b = _mm512_shuffle_f32x4(t[i], t[i + 4], 0xdd);
        vf c = _mm512_shuffle_f32x4(t[i + 8], t[i + 12], 0x88), d = _mm512_shuffle_f32x4(t[i + 8], t[i + 12], 0xdd);
        r[i] = _mm512_shuffle_f32x4(a, c, 0x88);
        r[i + 4] = _mm512_shuffle_f32x4(b, d, 0x88);
        r[i + 8] = _mm512_shuffle_f32x4(a, c, 0xdd);
        r[i + 12] = _mm512_shuffle_f32x4(b, d, 0xdd);
    }
}
INLINE void v_load_transposed(vf r[VL], const float *p, ptrdiff_t ld) {
    UNROLL_FOR (int i = 0; i < VL; i++) r[i] = v_load(p + i * ld);
    v_transpose(r);
}
