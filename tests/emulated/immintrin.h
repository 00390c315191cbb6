/* AVX-512 intrinsics, lane by lane, for a build that runs the kernels of 16 lanes on a processor that has none
 * (FUSEDOPS_EMULATE_AVX512=1, setup.py): for correctness and bits, not for time. csrc/simd/avx512.h alone includes
 * it. */
#ifndef FO_EMULATED_H
#define FO_EMULATED_H

#include_next <immintrin.h>

#include <math.h>
#include <stdint.h>
#include <string.h>

#define EMULATED static inline __attribute__((always_inline))
#define EACH(l, n) _Pragma("GCC unroll 16") for (int l = 0; l < (n); l++)

typedef int32_t ei32 __attribute__((vector_size(64)));
typedef uint32_t eu32 __attribute__((vector_size(64)));

/* The two halves of a vector; AVX2 has the arithmetic, each with one rounding. */
EMULATED __m256 e_low(__m512 a) { return *(__m256 *)&a; }
EMULATED __m256 e_high(__m512 a) { return *((__m256 *)&a + 1); }
EMULATED __m512 e_join(__m256 low, __m256 high) {
    __m512 y;
    memcpy(&y, &low, sizeof low), memcpy((char *)&y + sizeof low, &high, sizeof high);
    return y;
}
#define E_UNARY(f, half) EMULATED __m512 f(__m512 a) { return e_join(half(e_low(a)), half(e_high(a))); }
#define E_BINARY(f, half) \
    EMULATED __m512 f(__m512 a, __m512 b) { \
        return e_join(half(e_low(a), e_low(b)), half(e_high(a), e_high(b))); \
    }
#define E_TERNARY(f, half) \
    EMULATED __m512 f(__m512 a, __m512 b, __m512 c) { \
        return e_join(half(e_low(a), e_low(b), e_low(c)), half(e_high(a), e_high(b), e_high(c))); \
    }
E_UNARY(e_sqrt_ps, _mm256_sqrt_ps)
E_BINARY(e_add_ps, _mm256_add_ps)
E_BINARY(e_sub_ps, _mm256_sub_ps)
E_BINARY(e_mul_ps, _mm256_mul_ps)
E_BINARY(e_div_ps, _mm256_div_ps)
E_BINARY(e_max_ps, _mm256_max_ps)
E_BINARY(e_min_ps, _mm256_min_ps)
E_BINARY(e_unpacklo_ps, _mm256_unpacklo_ps)
E_BINARY(e_unpackhi_ps, _mm256_unpackhi_ps)
E_TERNARY(e_fmadd_ps, _mm256_fmadd_ps)
E_TERNARY(e_fnmadd_ps, _mm256_fnmadd_ps)

EMULATED __m512 e_loadu_ps(const void *p) {
    return e_join(_mm256_loadu_ps((const float *)p), _mm256_loadu_ps((const float *)p + 8));
}
EMULATED void e_storeu_ps(void *p, __m512 v) {
    _mm256_storeu_ps((float *)p, e_low(v)), _mm256_storeu_ps((float *)p + 8, e_high(v));
}
EMULATED __m256i e_lanes(unsigned m) { /* all bits of the lanes of m */
    const __m256i bit = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    return _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32((int)(m & 255)), bit), bit);
}
EMULATED __m512 e_maskz_loadu_ps(__mmask16 m, const void *p) {
    return e_join(_mm256_maskload_ps((const float *)p, e_lanes(m)),
                  _mm256_maskload_ps((const float *)p + 8, e_lanes(m >> 8)));
}
EMULATED void e_mask_storeu_ps(void *p, __mmask16 m, __m512 v) {
    _mm256_maskstore_ps((float *)p, e_lanes(m), e_low(v)),
        _mm256_maskstore_ps((float *)p + 8, e_lanes(m >> 8), e_high(v));
}
EMULATED __m512i e_mask_blend_epi16(__mmask32 m, __m512i a, __m512i b) {
    uint16_t x[32], y[32];
    memcpy(x, &a, sizeof x), memcpy(y, &b, sizeof y);
    for (int i = 0; i < 32; i++) x[i] = m >> i & 1 ? y[i] : x[i];
    memcpy(&a, x, sizeof x);
    return a;
}
EMULATED __m512 e_mask_blend_ps(__mmask16 m, __m512 a, __m512 b) {
    return e_join(_mm256_blendv_ps(e_low(a), e_low(b), _mm256_castsi256_ps(e_lanes(m))),
                  _mm256_blendv_ps(e_high(a), e_high(b), _mm256_castsi256_ps(e_lanes(m >> 8))));
}
EMULATED __mmask16 e_mask(__m256 low, __m256 high) {
    return (__mmask16)(_mm256_movemask_ps(low) | _mm256_movemask_ps(high) << 8);
}
#define e_cmp_ps_mask(a, b, how) \
    e_mask(_mm256_cmp_ps(e_low(a), e_low(b), how), _mm256_cmp_ps(e_high(a), e_high(b), how))

EMULATED __m512 e_setzero_ps(void) { return e_join(_mm256_setzero_ps(), _mm256_setzero_ps()); }
EMULATED __m512 e_set1_ps(float x) { return e_join(_mm256_set1_ps(x), _mm256_set1_ps(x)); }
EMULATED __m512i e_set1_epi32(int x) {
    eu32 y;
    EACH(l, 16) y[l] = (uint32_t)x;
    return (__m512i)y;
}
#define e_setr_epi32(...) ((__m512i)(ei32){__VA_ARGS__})
#define e_setr_epi64(...) ((__m512i){__VA_ARGS__})
#define e_castsi512_ps(v) ((__m512)(v))
#define e_castps_si512(v) ((__m512i)(v))
#define e_castpd_ps(v) ((__m512)(v))
#define e_castps_pd(v) ((__m512d)(v))
#define e_castps512_ps256(v) e_low(v)
EMULATED __m512 e_abs_ps(__m512 a) { return (__m512)((eu32)a & (eu32)e_set1_epi32(INT32_MAX)); }
EMULATED __m512i e_ternarylogic_epi32(__m512i a, __m512i b, __m512i c, int table) {
    const eu32 third = table == 0xca ? ~(eu32)a & (eu32)c : (eu32)c; /* a ? b : c, else 0xea: a & b | c */
    return (__m512i)(((eu32)a & (eu32)b) | third);
}
EMULATED __m512i e_srli_epi32(__m512i a, int n) { return (__m512i)((eu32)a >> n); }
EMULATED __m512i e_slli_epi32(__m512i a, int n) { return (__m512i)((eu32)a << n); }
EMULATED __m512 e_scalef_ps(__m512 a, __m512 n) { /* n is integral */
    EACH(l, 16) a[l] = n[l] == n[l] ? ldexpf(a[l], (int)(n[l] > 512 ? 512 : n[l] < -512 ? -512 : n[l])) : n[l];
    return a;
}
EMULATED __m512 e_permutex2var_ps(__m512 a, __m512i at, __m512 b) {
    __m512 y;
    EACH(l, 16) y[l] = ((ei32)at)[l] & 16 ? b[((ei32)at)[l] & 15] : a[((ei32)at)[l] & 15];
    return y;
}
EMULATED __m512 e_permutexvar_ps(__m512i at, __m512 a) { return e_permutex2var_ps(a, at, a); }
EMULATED __m512d e_permutexvar_pd(__m512i at, __m512d a) {
    __m512d y;
    EACH(l, 8) y[l] = a[at[l] & 7];
    return y;
}
#define e_shuffle_ps(a, b, how) \
    e_join(_mm256_shuffle_ps(e_low(a), e_low(b), how), _mm256_shuffle_ps(e_high(a), e_high(b), how))
EMULATED __m128 e_quarter(__m512 a, int q) { return *((__m128 *)&a + (q & 3)); }
EMULATED __m512 e_shuffle_f32x4(__m512 a, __m512 b, int how) {
    return e_join(_mm256_set_m128(e_quarter(a, how >> 2), e_quarter(a, how)),
                  _mm256_set_m128(e_quarter(b, how >> 6), e_quarter(b, how >> 4)));
}
EMULATED __m512i e_alignr_epi32(__m512i b, __m512i a, int n) {
    ei32 y;
    EACH(l, 16) y[l] = l + n < 16 ? ((ei32)a)[(l + n) & 15] : ((ei32)b)[(l + n) & 15];
    return (__m512i)y;
}
EMULATED __m512d e_castpd256_pd512(__m256d a) { return (__m512d)e_join(_mm256_castpd_ps(a), _mm256_setzero_ps()); }
EMULATED __m512d e_insertf64x4(__m512d a, __m256d b, int at) {
    memcpy((char *)&a + at * sizeof b, &b, sizeof b);
    return a;
}
EMULATED __m256d e_extractf64x4_pd(__m512d a, int at) {
    __m256d y;
    memcpy(&y, (char *)&a + at * sizeof y, sizeof y);
    return y;
}

/* Integers: AVX2 has the arithmetic of each half. */
EMULATED __m256i e_ilow(__m512i a) { return *(__m256i *)&a; }
EMULATED __m256i e_ihigh(__m512i a) { return *((__m256i *)&a + 1); }
EMULATED __m512i e_ijoin(__m256i low, __m256i high) {
    return (__m512i)e_join(_mm256_castsi256_ps(low), _mm256_castsi256_ps(high));
}
#define E_INTEGERS(f) \
    EMULATED __m512i e_##f(__m512i a, __m512i b) { \
        return e_ijoin(_mm256_##f(e_ilow(a), e_ilow(b)), _mm256_##f(e_ihigh(a), e_ihigh(b))); \
    }
E_INTEGERS(add_epi32)
E_INTEGERS(sub_epi32)
E_INTEGERS(mullo_epi32)
E_INTEGERS(madd_epi16)
E_INTEGERS(shuffle_epi8)
E_INTEGERS(packs_epi32)
E_INTEGERS(adds_epi16)
E_INTEGERS(packus_epi16)
E_INTEGERS(unpacklo_epi8)
E_INTEGERS(unpackhi_epi8)
E_INTEGERS(unpacklo_epi16)
E_INTEGERS(unpackhi_epi16)
EMULATED __m512i e_and_si512(__m512i a, __m512i b) { return (__m512i)((eu32)a & (eu32)b); }
EMULATED __m512i e_xor_si512(__m512i a, __m512i b) { return (__m512i)((eu32)a ^ (eu32)b); }
EMULATED __m512i e_set1_epi16(short x) { return e_ijoin(_mm256_set1_epi16(x), _mm256_set1_epi16(x)); }
#define e_slli_epi16(a, n) e_ijoin(_mm256_slli_epi16(e_ilow(a), n), _mm256_slli_epi16(e_ihigh(a), n))
#define e_srli_epi16(a, n) e_ijoin(_mm256_srli_epi16(e_ilow(a), n), _mm256_srli_epi16(e_ihigh(a), n))
#define e_srai_epi16(a, n) e_ijoin(_mm256_srai_epi16(e_ilow(a), n), _mm256_srai_epi16(e_ihigh(a), n))
EMULATED __m512i e_srl_epi32(__m512i a, __m128i n) { return (__m512i)((eu32)a >> _mm_cvtsi128_si32(n)); }
EMULATED __m512i e_loadu_si512(const void *p) { return (__m512i)e_loadu_ps(p); }
EMULATED void e_storeu_si512(void *p, __m512i v) { e_storeu_ps(p, (__m512)v); }
EMULATED __m512i e_cvtepu16_epi32(__m256i a) {
    return e_ijoin(_mm256_cvtepu16_epi32(_mm256_castsi256_si128(a)),
                   _mm256_cvtepu16_epi32(_mm256_extracti128_si256(a, 1)));
}
EMULATED __m512 e_cvtepi32_ps(__m512i a) {
    return e_join(_mm256_cvtepi32_ps(e_ilow(a)), _mm256_cvtepi32_ps(e_ihigh(a)));
}
EMULATED __m512i e_cvtps_epi32(__m512 a) {
    return e_ijoin(_mm256_cvtps_epi32(e_low(a)), _mm256_cvtps_epi32(e_high(a)));
}
EMULATED __m512 e_cvtph_ps(__m256i a) {
    return e_join(_mm256_cvtph_ps(_mm256_castsi256_si128(a)), _mm256_cvtph_ps(_mm256_extracti128_si256(a, 1)));
}
EMULATED __m256i e_cvtps_ph(__m512 a, int how) {
    (void)how;
    return _mm256_set_m128i(_mm256_cvtps_ph(e_high(a), 0), _mm256_cvtps_ph(e_low(a), 0));
}
EMULATED __m512i e_cvtepu8_epi32(__m128i a) {
    return e_ijoin(_mm256_cvtepu8_epi32(a), _mm256_cvtepu8_epi32(_mm_srli_si128(a, 8)));
}
EMULATED __m128i e_castsi512_si128(__m512i a) { return *(__m128i *)&a; }
EMULATED __m512i e_permutexvar_epi32(__m512i at, __m512i a) { return (__m512i)e_permutexvar_ps(at, (__m512)a); }
EMULATED __m512i e_maskz_loadu_epi8(uint64_t m, const void *p) { /* the first bytes alone */
    __m512i y = e_set1_epi32(0);
    memcpy(&y, p, m ? (size_t)(64 - __builtin_clzll(m)) : 0);
    return y;
}
EMULATED __m512i e_mask_loadu_epi8(__m512i y, uint64_t m, const void *p) {
    for (int i = 0; i < 64; i++)
        if (m >> i & 1) ((char *)&y)[i] = ((const char *)p)[i];
    return y;
}
EMULATED __m512i e_broadcast_i32x4(__m128i a) {
    __m512i y;
    for (int i = 0; i < 4; i++) memcpy((char *)&y + i * sizeof a, &a, sizeof a);
    return y;
}
EMULATED __m512i e_permutexvar_epi64(__m512i at, __m512i a) {
    __m512i y;
    EACH(i, 8) y[i] = a[at[i] & 7];
    return y;
}
EMULATED void e_mask_storeu_epi8(void *p, uint64_t m, __m512i v) {
    for (int i = 0; i < 64; i++)
        if (m >> i & 1) ((char *)p)[i] = ((const char *)&v)[i];
}
EMULATED __m512i e_castsi256_si512(__m256i a) { return (__m512i)e_castpd256_pd512((__m256d)a); }
EMULATED __m256i e_castsi512_si256(__m512i a) { return *(__m256i *)&a; }
EMULATED __m512i e_inserti64x4(__m512i a, __m256i b, int at) {
    return (__m512i)e_insertf64x4((__m512d)a, (__m256d)b, at);
}
EMULATED __m256i e_extracti64x4_epi64(__m512i a, int at) { return (__m256i)e_extractf64x4_pd((__m512d)a, at); }

#undef _mm512_abs_ps
#define _mm512_abs_ps e_abs_ps
#undef _mm512_add_ps
#define _mm512_add_ps e_add_ps
#undef _mm512_alignr_epi32
#define _mm512_alignr_epi32 e_alignr_epi32
#undef _mm512_castpd256_pd512
#define _mm512_castpd256_pd512 e_castpd256_pd512
#undef _mm512_castpd_ps
#define _mm512_castpd_ps e_castpd_ps
#undef _mm512_castps512_ps256
#define _mm512_castps512_ps256 e_castps512_ps256
#undef _mm512_castps_pd
#define _mm512_castps_pd e_castps_pd
#undef _mm512_castps_si512
#define _mm512_castps_si512 e_castps_si512
#undef _mm512_castsi512_ps
#define _mm512_castsi512_ps e_castsi512_ps
#undef _mm512_cmp_ps_mask
#define _mm512_cmp_ps_mask e_cmp_ps_mask
#undef _mm512_div_ps
#define _mm512_div_ps e_div_ps
#undef _mm512_extractf64x4_pd
#define _mm512_extractf64x4_pd e_extractf64x4_pd
#undef _mm512_fmadd_ps
#define _mm512_fmadd_ps e_fmadd_ps
#undef _mm512_fnmadd_ps
#define _mm512_fnmadd_ps e_fnmadd_ps
#undef _mm512_insertf64x4
#define _mm512_insertf64x4 e_insertf64x4
#undef _mm512_loadu_ps
#define _mm512_loadu_ps e_loadu_ps
#undef _mm512_mask_blend_epi16
#define _mm512_mask_blend_epi16 e_mask_blend_epi16
#undef _mm512_mask_blend_ps
#define _mm512_mask_blend_ps e_mask_blend_ps
#undef _mm512_mask_storeu_ps
#define _mm512_mask_storeu_ps e_mask_storeu_ps
#undef _mm512_maskz_loadu_ps
#define _mm512_maskz_loadu_ps e_maskz_loadu_ps
#undef _mm512_max_ps
#define _mm512_max_ps e_max_ps
#undef _mm512_min_ps
#define _mm512_min_ps e_min_ps
#undef _mm512_mul_ps
#define _mm512_mul_ps e_mul_ps
#undef _mm512_permutex2var_ps
#define _mm512_permutex2var_ps e_permutex2var_ps
#undef _mm512_permutexvar_pd
#define _mm512_permutexvar_pd e_permutexvar_pd
#undef _mm512_permutexvar_ps
#define _mm512_permutexvar_ps e_permutexvar_ps
#undef _mm512_scalef_ps
#define _mm512_scalef_ps e_scalef_ps
#undef _mm512_set1_epi32
#define _mm512_set1_epi32 e_set1_epi32
#undef _mm512_set1_ps
#define _mm512_set1_ps e_set1_ps
#undef _mm512_setr_epi32
#define _mm512_setr_epi32 e_setr_epi32
#undef _mm512_setr_epi64
#define _mm512_setr_epi64 e_setr_epi64
#undef _mm512_setzero_ps
#define _mm512_setzero_ps e_setzero_ps
#undef _mm512_shuffle_f32x4
#define _mm512_shuffle_f32x4 e_shuffle_f32x4
#undef _mm512_shuffle_ps
#define _mm512_shuffle_ps e_shuffle_ps
#undef _mm512_srli_epi32
#define _mm512_srli_epi32 e_srli_epi32
#undef _mm512_slli_epi32
#define _mm512_slli_epi32 e_slli_epi32
#undef _mm512_sqrt_ps
#define _mm512_sqrt_ps e_sqrt_ps
#undef _mm512_storeu_ps
#define _mm512_storeu_ps e_storeu_ps
#undef _mm512_sub_ps
#define _mm512_sub_ps e_sub_ps
#undef _mm512_ternarylogic_epi32
#define _mm512_ternarylogic_epi32 e_ternarylogic_epi32
#undef _mm512_unpackhi_ps
#define _mm512_unpackhi_ps e_unpackhi_ps
#undef _mm512_unpacklo_ps
#define _mm512_unpacklo_ps e_unpacklo_ps
#undef _mm512_add_epi32
#define _mm512_add_epi32 e_add_epi32
#undef _mm512_adds_epi16
#define _mm512_adds_epi16 e_adds_epi16
#undef _mm512_and_si512
#define _mm512_and_si512 e_and_si512
#undef _mm512_castsi256_si512
#define _mm512_castsi256_si512 e_castsi256_si512
#undef _mm512_castsi512_si256
#define _mm512_castsi512_si256 e_castsi512_si256
#undef _mm512_extracti64x4_epi64
#define _mm512_extracti64x4_epi64 e_extracti64x4_epi64
#undef _mm512_inserti64x4
#define _mm512_inserti64x4 e_inserti64x4
#undef _mm512_mask_loadu_epi8
#define _mm512_mask_loadu_epi8 e_mask_loadu_epi8
#undef _mm512_broadcast_i32x4
#define _mm512_broadcast_i32x4 e_broadcast_i32x4
#undef _mm512_permutexvar_epi64
#define _mm512_permutexvar_epi64 e_permutexvar_epi64
#undef _mm512_shuffle_epi8
#define _mm512_shuffle_epi8 e_shuffle_epi8
#undef _mm512_castsi512_si128
#define _mm512_castsi512_si128 e_castsi512_si128
#undef _mm512_cvtepu16_epi32
#define _mm512_cvtepu16_epi32 e_cvtepu16_epi32
#undef _mm512_cvtepi32_ps
#define _mm512_cvtepi32_ps e_cvtepi32_ps
#undef _mm512_cvtps_ph
#define _mm512_cvtps_ph e_cvtps_ph
#undef _mm512_cvtph_ps
#define _mm512_cvtph_ps e_cvtph_ps
#undef _mm512_cvtepu8_epi32
#define _mm512_cvtepu8_epi32 e_cvtepu8_epi32
#undef _mm512_cvtps_epi32
#define _mm512_cvtps_epi32 e_cvtps_epi32
#undef _mm512_loadu_si512
#define _mm512_loadu_si512 e_loadu_si512
#undef _mm512_madd_epi16
#define _mm512_madd_epi16 e_madd_epi16
#undef _mm512_mask_storeu_epi8
#define _mm512_mask_storeu_epi8 e_mask_storeu_epi8
#undef _mm512_maskz_loadu_epi8
#define _mm512_maskz_loadu_epi8 e_maskz_loadu_epi8
#undef _mm512_mullo_epi32
#define _mm512_mullo_epi32 e_mullo_epi32
#undef _mm512_packs_epi32
#define _mm512_packs_epi32 e_packs_epi32
#undef _mm512_packus_epi16
#define _mm512_packus_epi16 e_packus_epi16
#undef _mm512_permutexvar_epi32
#define _mm512_permutexvar_epi32 e_permutexvar_epi32
#undef _mm512_set1_epi16
#define _mm512_set1_epi16 e_set1_epi16
#undef _mm512_slli_epi16
#define _mm512_slli_epi16 e_slli_epi16
#undef _mm512_srai_epi16
#define _mm512_srai_epi16 e_srai_epi16
#undef _mm512_srl_epi32
#define _mm512_srl_epi32 e_srl_epi32
#undef _mm512_srli_epi16
#define _mm512_srli_epi16 e_srli_epi16
#undef _mm512_storeu_si512
#define _mm512_storeu_si512 e_storeu_si512
#undef _mm512_sub_epi32
#define _mm512_sub_epi32 e_sub_epi32
#undef _mm512_unpackhi_epi16
#define _mm512_unpackhi_epi16 e_unpackhi_epi16
#undef _mm512_unpackhi_epi8
#define _mm512_unpackhi_epi8 e_unpackhi_epi8
#undef _mm512_unpacklo_epi16
#define _mm512_unpacklo_epi16 e_unpacklo_epi16
#undef _mm512_unpacklo_epi8
#define _mm512_unpacklo_epi8 e_unpacklo_epi8
#undef _mm512_xor_si512
#define _mm512_xor_si512 e_xor_si512

#endif
