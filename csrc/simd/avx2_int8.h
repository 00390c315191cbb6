/* Integers and bytes on AVX2. Contract: int8.h. */
typedef __m256i vi;
enum { Q_VECTORS = 2, Q_ROWS = 6 };
INLINE vi v_iload(const void *p) { return _mm256_loadu_si256((const __m256i *)p); }
INLINE void v_istore(void *p, vi v) { _mm256_storeu_si256((__m256i *)p, v); }
INLINE vi v_iset1(int32_t x) { return _mm256_set1_epi32(x); }
INLINE vi v_iadd(vi a, vi b) { return _mm256_add_epi32(a, b); }
INLINE vi v_isub(vi a, vi b) { return _mm256_sub_epi32(a, b); }
INLINE vi v_imul(vi a, vi b) { return _mm256_mullo_epi32(a, b); }
INLINE vi v_iand(vi a, vi b) { return _mm256_and_si256(a, b); }
INLINE vi v_ixor(vi a, vi b) { return _mm256_xor_si256(a, b); }
INLINE vi v_nibbles(vi v, int upper) {
    return _mm256_and_si256(upper ? _mm256_srli_epi16(v, 4) : v, _mm256_set1_epi8(15));
}
INLINE vi v_zip_shorts(vi a, vi b, const int upper) {
    return upper ? _mm256_blend_epi16(_mm256_srli_epi32(a, 16), b, 0xAA)
                 : _mm256_blend_epi16(a, _mm256_slli_epi32(b, 16), 0xAA);
}
INLINE vf v_to_float(vi v) { return _mm256_cvtepi32_ps(v); }
INLINE vi v_to_int(vf v) { return _mm256_cvtps_epi32(v); }
INLINE vi v_load_bytes(const uint8_t *p) { return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p)); }
INLINE vi v_load_bytes_tail(const uint8_t *p, ptrdiff_t n) {
    if (n >= VL) return v_load_bytes(p);
    uint8_t bytes[VL] = {0};
    for (int i = 0; i < VL; i++)
        if (i < n) bytes[i] = p[i];
    return v_load_bytes(bytes);
}
INLINE vi v_load_quads_tail(const void *p, ptrdiff_t n) {
    if (n >= 4 * VL) return v_iload(p);
    if (n == 2 * VL) return _mm256_zextsi128_si256(_mm_loadu_si128((const __m128i *)p));
    uint8_t bytes[4 * VL] = {0};
    memcpy(bytes, p, (size_t)n);
    return v_iload(bytes);
}
INLINE void v_store_quads_tail(void *p, vi v, ptrdiff_t n) { /* in pieces */
    if (n >= 4 * VL) {
        v_istore(p, v);
        return;
    }
    char *to = p;
    __m128i part = _mm256_castsi256_si128(v);
    if (n & 16) _mm_storeu_si128((__m128i *)to, part), part = _mm256_extracti128_si256(v, 1), to += 16;
    if (n & 8) _mm_storel_epi64((__m128i *)to, part), part = _mm_srli_si128(part, 8), to += 8;
    if (n & 4) _mm_storeu_si32(to, part), part = _mm_srli_si128(part, 4), to += 4;
    uint32_t last = (uint32_t)_mm_cvtsi128_si32(part);
    for (int i = 0; i < (n & 3); i++, last >>= 8) *to++ = (char)last;
}
INLINE vi v_pack_shorts(vi a, vi b, vi zero) { return _mm256_adds_epi16(_mm256_packs_epi32(a, b), zero); }
INLINE vi v_pack_bytes(vi a, vi b) { return _mm256_packus_epi16(a, b); }
INLINE vi v_pack_inlane(const vi v[4], vi zero) {
    return v_pack_bytes(v_pack_shorts(v[0], v[1], zero), v_pack_shorts(v[2], v[3], zero));
}
INLINE vi v_shuffle_(vi v, __m128i order) { return _mm256_shuffle_epi8(v, _mm256_broadcastsi128_si256(order)); }
INLINE vi v_pack_lanes(const vi v[4], vi zero) {
    return v_shuffle_(v_pack_inlane(v, zero), _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
}
INLINE vi v_pack_pairs(const vi v[4], vi zero) {
    const __m128i order = _mm_setr_epi8(0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15);
    return _mm256_permute4x64_epi64(v_shuffle_(v_pack_inlane(v, zero), order), 0xd8);
}
INLINE vf v_as_float(vi v) { return _mm256_castsi256_ps(v); }
INLINE vi v_as_int(vf v) { return _mm256_castps_si256(v); }
INLINE vi v_pack(const vi v[4], vi zero) {
    return _mm256_permutevar8x32_epi32(v_pack_inlane(v, zero), _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}
INLINE void v_quads(const vi r[4], vi q[4]) {
    const vi a = _mm256_unpacklo_epi8(r[0], r[1]), b = _mm256_unpackhi_epi8(r[0], r[1]);
    const vi c = _mm256_unpacklo_epi8(r[2], r[3]), d = _mm256_unpackhi_epi8(r[2], r[3]);
    q[0] = _mm256_unpacklo_epi16(a, c);
    q[1] = _mm256_unpackhi_epi16(a, c);
    q[2] = _mm256_unpacklo_epi16(b, d);
    q[3] = _mm256_unpackhi_epi16(b, d);
}
#ifdef FO_VNNI /* avx2vnni_int8.h */
#include "one_phase.h"
enum { DOT_SIGNED = 0 };
/* not the intrinsic, with which GCC 12 stores sums after every step */
#define v_dot(sum, a, w) __asm__(FO_VNNI " vpdpbusd %2, %1, %0" : "+x"(sum) : "x"(a), "x"(w))
#else
/* Even bytes as 16-bit integers, then odd ones: two products of a lane in the one, two in the other. */
enum { PHASES = 2, DOT_SIGNED = 0 };
INLINE vi v_dot_bytes(vi a, int phase) {
    return phase ? _mm256_srli_epi16(a, 8) : _mm256_and_si256(a, _mm256_set1_epi16(255));
}
INLINE vi v_dot_weights(vi w, int phase) { return _mm256_srai_epi16(phase ? w : _mm256_slli_epi16(w, 8), 8); }
/* the sum by hand: GCC 12 stores sums after every step of the intrinsic */
#define v_dot(sum, a, w) __asm__("vpaddd %1, %0, %0" : "+x"(sum) : "x"(_mm256_madd_epi16(a, w)))
#endif
