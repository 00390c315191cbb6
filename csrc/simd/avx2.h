/* The vocabulary on AVX2 and FMA, eight lanes. Contract: simd.h. */
#include <immintrin.h>

#include "simd.h"

typedef __m256 vf;
typedef __m256 vm;
enum { VL = 8, MR = 6, NV = 2, NR = NV * VL, REGISTERS = 16, FMA_READS = 0 };
_Static_assert(1 + NV + MR * NV <= REGISTERS, "one broadcast, b and accumulators fit the registers");

INLINE vf v_load(const float *p) { return _mm256_loadu_ps(p); }
INLINE void v_store(float *p, vf v) { _mm256_storeu_ps(p, v); }
INLINE vf v_load_f16(const uint16_t *p) { return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)); }
INLINE void v_store_f16(uint16_t *p, vf v) {
    _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}
INLINE vf v_load_bf16(const uint16_t *p) {
    const __m256i words = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(words, 16));
}
INLINE vf v_load_bits(const uint32_t *p, int first, int at, int bits) {
    const __m256i words = _mm256_srli_epi32(_mm256_loadu_si256((const __m256i *)p), first);
    return _mm256_castsi256_ps(
        _mm256_or_si256(_mm256_and_si256(words, _mm256_set1_epi32(V_MASK(at, bits))), _mm256_set1_epi32(V_BITS(at))));
}
INLINE __m256i v_clamped_(ptrdiff_t i) { return _mm256_set1_epi32(i < 0 ? 0 : i > VL ? VL : (int)i); }
INLINE vm v_range(ptrdiff_t lo, ptrdiff_t hi) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_castsi256_ps(
        _mm256_andnot_si256(_mm256_cmpgt_epi32(v_clamped_(lo), lane), _mm256_cmpgt_epi32(v_clamped_(hi), lane)));
}
INLINE vf v_load_mask(const float *p, vm m) { return _mm256_maskload_ps(p, _mm256_castps_si256(m)); }
INLINE void v_store_mask(float *p, vf v, vm m) { /* a masked store is microcode on many processors: 12 cycles */
    if (_mm256_movemask_ps(m) == 0xff)
        v_store(p, v);
    else
        _mm256_maskstore_ps(p, _mm256_castps_si256(m), v);
}
INLINE vf v_load_tail(const float *p, ptrdiff_t n) { return v_load_mask(p, v_range(0, n)); }
INLINE void v_store_tail(float *p, vf v, ptrdiff_t n) { /* in pieces rather than masked */
    if (n >= VL) {
        _mm256_storeu_ps(p, v);
        return;
    }
    __m128 part = _mm256_castps256_ps128(v);
    if (n & 4) _mm_storeu_ps(p, part), part = _mm256_extractf128_ps(v, 1), p += 4;
    if (n & 2) _mm_storel_pi((__m64 *)p, part), part = _mm_movehl_ps(part, part), p += 2;
    if (n & 1) _mm_store_ss(p, part);
}
INLINE void v_store_first(float *p, vf v, ptrdiff_t n, vm m) { (void)m, v_store_tail(p, v, n); }
INLINE vf v_zero(void) { return _mm256_setzero_ps(); }
INLINE vf v_set1(float x) { return _mm256_set1_ps(x); }
#define v_force_reg(v) __asm__("" : "+x"(v))
INLINE vf v_add(vf a, vf b) { return _mm256_add_ps(a, b); }
INLINE vf v_sub(vf a, vf b) { return _mm256_sub_ps(a, b); }
INLINE vf v_mul(vf a, vf b) { return _mm256_mul_ps(a, b); }
INLINE vf v_div(vf a, vf b) { return _mm256_div_ps(a, b); }
INLINE vf v_sqrt(vf a) { return _mm256_sqrt_ps(a); }
INLINE vf v_fma(vf a, vf b, vf c) { return _mm256_fmadd_ps(a, b, c); }
#define v_fma_to(c, a, b) __asm__("vfmadd231ps %2, %1, %0" : "+x"(c) : "x"(a), "x"(b))
#define v_fma_at(c, p, b) v_fma_to(c, v_set1(*(p)), b)
INLINE vf v_fnma(vf a, vf b, vf c) { return _mm256_fnmadd_ps(a, b, c); }
INLINE vf v_max(vf a, vf b) { return _mm256_max_ps(a, b); }
INLINE vf v_min(vf a, vf b) { return _mm256_min_ps(a, b); }
INLINE vf v_sign_(vf a) { return _mm256_and_ps(a, _mm256_set1_ps(-0.f)); }
INLINE vf v_abs(vf a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.f), a); }
INLINE vf v_copysign(vf a, vf s) { return _mm256_or_ps(v_abs(a), v_sign_(s)); }
INLINE vm v_lt(vf a, vf b) { return _mm256_cmp_ps(a, b, _CMP_LT_OQ); }
INLINE vm v_isnan(vf a) { return _mm256_cmp_ps(a, a, _CMP_UNORD_Q); }
INLINE vf v_select(vm m, vf a, vf b) { return _mm256_blendv_ps(b, a, m); }
INLINE vf v_pow2(vf z) { return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(z), 23)); }
INLINE vf v_scale(vf a, vf n) { /* in two steps, the first exact: 2^n itself may not be a float */
    __m256i i = _mm256_cvtps_epi32(n), h = _mm256_srai_epi32(i, 1), bias = _mm256_set1_epi32(127);
    vf p = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(h, bias), 23));
    vf r = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(_mm256_sub_epi32(i, h), bias), 23));
    return _mm256_mul_ps(_mm256_mul_ps(a, p), r);
}
/* Shuffled within each 128-bit half: what two vectors' lower halves give stands apart. */
INLINE vf v_uzp_inlane_even(vf a, vf b) { return _mm256_shuffle_ps(a, b, 0x88); }
INLINE vf v_uzp_inlane_odd(vf a, vf b) { return _mm256_shuffle_ps(a, b, 0xdd); }
INLINE vf v_lane_order(vf v) { return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(v), 0xd8)); }
INLINE vf v_rotate(vf v, int n) {
    return _mm256_permutevar8x32_ps(
        v, n == 1 ? _mm256_setr_epi32(1, 4, 3, 6, 5, 2, 7, 0) : _mm256_setr_epi32(7, 0, 5, 2, 1, 4, 3, 6));
}
INLINE vf v_uzp_even(vf a, vf b) { return v_lane_order(v_uzp_inlane_even(a, b)); }
INLINE vf v_uzp_odd(vf a, vf b) { return v_lane_order(v_uzp_inlane_odd(a, b)); }
INLINE vf v_concat(vf a, vf b, const int n) {
    const __m256i lo = _mm256_castps_si256(a), hi = _mm256_castps_si256(b);
    const __m256i mid = _mm256_permute2x128_si256(lo, hi, 0x21);
    switch (n) { /* the instruction takes a literal number of bytes, within each 128-bit half */
        case 1: return _mm256_castsi256_ps(_mm256_alignr_epi8(mid, lo, 4));
        case 2: return _mm256_castsi256_ps(_mm256_alignr_epi8(mid, lo, 8));
        case 3: return _mm256_castsi256_ps(_mm256_alignr_epi8(mid, lo, 12));
        case 4: return _mm256_castsi256_ps(mid);
        case 5: return _mm256_castsi256_ps(_mm256_alignr_epi8(hi, mid, 4));
        case 6: return _mm256_castsi256_ps(_mm256_alignr_epi8(hi, mid, 8));
        default: return _mm256_castsi256_ps(_mm256_alignr_epi8(hi, mid, 12));
    }
}
INLINE vf v_halves(vf a, vf b) { return _mm256_permute2f128_ps(a, b, 0x20); }
INLINE vf v_load_halves(const float *p, const float *q) {
    return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(p)), _mm_loadu_ps(q), 1);
}
INLINE void v_store_halves(float *p, float *q, vf v) {
    _mm_storeu_ps(p, _mm256_castps256_ps128(v));
    _mm_storeu_ps(q, _mm256_extractf128_ps(v, 1));
}
/* 4x4 blocks of each 128-bit half. */
INLINE void v_transpose_4_(vf r[4]) {
    const vf a = _mm256_unpacklo_ps(r[0], r[1]), b = _mm256_unpackhi_ps(r[0], r[1]);
    const vf c = _mm256_unpacklo_ps(r[2], r[3]), d = _mm256_unpackhi_ps(r[2], r[3]);
    r[0] = _mm256_shuffle_ps(a, c, 0x44);
    r[1] = _mm256_shuffle_ps(a, c, 0xee);
    r[2] = _mm256_shuffle_ps(b, d, 0x44);
    r[3] = _mm256_shuffle_ps(b, d, 0xee);
}
INLINE void v_transpose(vf r[VL]) {
    v_transpose_4_(r), v_transpose_4_(r + 4);
    UNROLL_FOR (int i = 0; i < 4; i++) {
        const vf t = r[i];
        r[i] = _mm256_permute2f128_ps(t, r[i + 4], 0x20);
        r[i + 4] = _mm256_permute2f128_ps(t, r[i + 4], 0x31);
    }
}
/* a load brings a half to its place, which else takes a shuffle */
INLINE void v_load_transposed(vf r[VL], const float *p, ptrdiff_t ld) {
    const float *q = p + 4 * ld;
    v_launder(q);
    UNROLL_FOR (int i = 0; i < VL; i++) r[i] = v_load_halves(p + i % 4 * ld + i / 4 * 4, q + i % 4 * ld + i / 4 * 4);
    v_transpose_4_(r), v_transpose_4_(r + 4);
}
