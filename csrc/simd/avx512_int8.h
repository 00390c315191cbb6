/* Integers and bytes on AVX-512. Contract: int8.h. */
typedef __m512i vi;
enum { Q_VECTORS = 4, Q_ROWS = 6 };
INLINE vi v_iload(const void *p) { return _mm512_loadu_si512(p); }
INLINE void v_istore(void *p, vi v) { _mm512_storeu_si512(p, v); }
INLINE vi v_iset1(int32_t x) { return _mm512_set1_epi32(x); }
INLINE vi v_iadd(vi a, vi b) { return _mm512_add_epi32(a, b); }
INLINE vi v_isub(vi a, vi b) { return _mm512_sub_epi32(a, b); }
INLINE vi v_imul(vi a, vi b) { return _mm512_mullo_epi32(a, b); }
INLINE vi v_iand(vi a, vi b) { return _mm512_and_si512(a, b); }
INLINE vi v_ixor(vi a, vi b) { return _mm512_xor_si512(a, b); }
INLINE vi v_nibbles(vi v, int upper) {
    return _mm512_and_si512(upper ? _mm512_srli_epi16(v, 4) : v, _mm512_set1_epi32(0x0f0f0f0f));
}
INLINE vi v_zip_shorts(vi a, vi b, const int upper) {
    return upper ? _mm512_mask_blend_epi16(0xAAAAAAAA, _mm512_srli_epi32(a, 16), b)
                 : _mm512_mask_blend_epi16(0xAAAAAAAA, a, _mm512_slli_epi32(b, 16));
}
INLINE vf v_to_float(vi v) { return _mm512_cvtepi32_ps(v); }
INLINE vi v_to_int(vf v) { return _mm512_cvtps_epi32(v); }
INLINE vi v_load_bytes(const uint8_t *p) { return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p)); }
INLINE uint64_t v_bytes_(ptrdiff_t n) { return n >= 4 * VL ? UINT64_MAX : ((uint64_t)1 << (n < 0 ? 0 : n)) - 1; }
INLINE vi v_load_quads_tail(const void *p, ptrdiff_t n) { return _mm512_maskz_loadu_epi8(v_bytes_(n), p); }
INLINE vi v_load_bytes_tail(const uint8_t *p, ptrdiff_t n) {
    return _mm512_cvtepu8_epi32(_mm512_castsi512_si128(v_load_quads_tail(p, n < VL ? n : VL)));
}
INLINE void v_store_quads_tail(void *p, vi v, ptrdiff_t n) { _mm512_mask_storeu_epi8(p, v_bytes_(n), v); }
#define Q_PARTS 4
INLINE vi v_load_parts(int parts, const uint8_t *const *p, ptrdiff_t n) {
    if (parts == 2 && n == 32)
        return _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)p[0])),
                                  _mm256_loadu_si256((const __m256i *)p[1]), 1);
    const uint64_t some = v_bytes_(n);
    vi v = _mm512_maskz_loadu_epi8(some, p[0]);
    UNROLL_FOR (int i = 1; i < parts; i++)
        v = _mm512_mask_loadu_epi8(v, some << 4 * VL / parts * i, p[i] - 4 * VL / parts * i);
    return v;
}
INLINE void v_store_parts(int parts, uint8_t *p, ptrdiff_t step, vi v, ptrdiff_t n, ptrdiff_t count) {
    const uint64_t some = v_bytes_(n);
    if (parts == 2 && n == 32 && count > 1) {
        _mm256_storeu_si256((__m256i *)p, _mm512_castsi512_si256(v));
        _mm256_storeu_si256((__m256i *)(p + step), _mm512_extracti64x4_epi64(v, 1));
        return;
    }
    UNROLL_FOR (int i = 0; i < parts; i++)
        if (i < count) _mm512_mask_storeu_epi8(p + i * step - 4 * VL / parts * i, some << 4 * VL / parts * i, v);
}
INLINE vi v_pack_shorts(vi a, vi b, vi zero) { return _mm512_adds_epi16(_mm512_packs_epi32(a, b), zero); }
INLINE vi v_pack_bytes(vi a, vi b) { return _mm512_packus_epi16(a, b); }
INLINE vi v_pack_inlane(const vi v[4], vi zero) {
    return v_pack_bytes(v_pack_shorts(v[0], v[1], zero), v_pack_shorts(v[2], v[3], zero));
}
INLINE vi v_pack_lanes(const vi v[4], vi zero) {
    const __m128i order = _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    return _mm512_shuffle_epi8(v_pack_inlane(v, zero), _mm512_broadcast_i32x4(order));
}
INLINE vi v_pack_pairs(const vi v[4], vi zero) {
    const __m128i order = _mm_setr_epi8(0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15);
    return _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7),
                                    _mm512_shuffle_epi8(v_pack_inlane(v, zero), _mm512_broadcast_i32x4(order)));
}
INLINE vf v_as_float(vi v) { return _mm512_castsi512_ps(v); }
INLINE vi v_as_int(vf v) { return _mm512_castps_si512(v); }
INLINE vi v_pack(const vi v[4], vi zero) {
    return _mm512_permutexvar_epi32(_mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15),
                                    v_pack_inlane(v, zero));
}
INLINE void v_quads(const vi r[4], vi q[4]) {
    const vi a = _mm512_unpacklo_epi8(r[0], r[1]), b = _mm512_unpackhi_epi8(r[0], r[1]);
    const vi c = _mm512_unpacklo_epi8(r[2], r[3]), d = _mm512_unpackhi_epi8(r[2], r[3]);
    q[0] = _mm512_unpacklo_epi16(a, c);
    q[1] = _mm512_unpackhi_epi16(a, c);
    q[2] = _mm512_unpacklo_epi16(b, d);
    q[3] = _mm512_unpackhi_epi16(b, d);
}
#ifdef FO_VNNI /* avx512vnni_int8.h */
#include "one_phase.h"
enum { DOT_SIGNED = 0 };
/* not the intrinsic, with which GCC 12 stores sums after every step */
#define v_dot(sum, a, w) __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(a), "v"(w))
/* of AVX512_BF16, which not all processors with VNNI have */
#define BF16_SET avx512bf16
#define v_dot_bf16(sum, a, w) __asm__("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(a), "v"(w))
INLINE void v_store_bf16_(uint16_t *p, vf v) {
    __m256i narrow;
    __asm__("vcvtneps2bf16 %1, %0" : "=v"(narrow) : "v"(v));
    _mm256_storeu_si256((__m256i *)p, narrow);
}
#define v_store_bf16(p, v) v_store_bf16_(p, v)
INLINE vi v_narrow(vf a, vf b) {
    vi narrow;
    __asm__("vcvtne2ps2bf16 %1, %2, %0" : "=v"(narrow) : "v"(a), "v"(b));
    return narrow;
}
INLINE vi v_narrow_pairs(vf a, vf b) {
    const vi order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6, 21, 5,
                                      20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    return _mm512_permutexvar_epi16(order, v_narrow(a, b));
}
#else
/* Even bytes as 16-bit integers, then odd ones: two products of a lane in the one, two in the other. */
enum { PHASES = 2, DOT_SIGNED = 0 };
INLINE vi v_dot_bytes(vi a, int phase) {
    return phase ? _mm512_srli_epi16(a, 8) : _mm512_and_si512(a, _mm512_set1_epi16(255));
}
INLINE vi v_dot_weights(vi w, int phase) { return _mm512_srai_epi16(phase ? w : _mm512_slli_epi16(w, 8), 8); }
#ifdef FO_EMULATED /* tests/emulated: no instruction of this set */
#define v_dot(sum, a, w) ((sum) = v_iadd(sum, _mm512_madd_epi16(a, w)))
#else /* the sum by hand: GCC 12 stores sums after every step of the intrinsic */
#define v_dot(sum, a, w) __asm__("vpaddd %1, %0, %0" : "+v"(sum) : "v"(_mm512_madd_epi16(a, w)))
#endif
#endif
