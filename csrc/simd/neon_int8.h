/* Integers and bytes on Advanced SIMD of AArch64. Contract: int8.h. */
typedef int32x4_t vi;
enum { Q_VECTORS = 4, Q_ROWS = 6 };
INLINE vi v_iload(const void *p) { return vreinterpretq_s32_u8(vld1q_u8((const uint8_t *)p)); }
INLINE void v_istore(void *p, vi v) { vst1q_u8((uint8_t *)p, vreinterpretq_u8_s32(v)); }
INLINE vi v_iset1(int32_t x) { return vdupq_n_s32(x); }
INLINE vi v_iadd(vi a, vi b) { return vaddq_s32(a, b); }
INLINE vi v_isub(vi a, vi b) { return vsubq_s32(a, b); }
INLINE vi v_imul(vi a, vi b) { return vmulq_s32(a, b); }
INLINE vi v_iand(vi a, vi b) { return vandq_s32(a, b); }
INLINE vi v_ixor(vi a, vi b) { return veorq_s32(a, b); }
INLINE vi v_nibbles(vi v, int upper) {
    const uint8x16_t u = vreinterpretq_u8_s32(v);
    return vreinterpretq_s32_u8(upper ? vshrq_n_u8(u, 4) : vandq_u8(u, vdupq_n_u8(15)));
}
INLINE vi v_zip_shorts(vi a, vi b, const int upper) {
    const int16x8_t p = vreinterpretq_s16_s32(a), q = vreinterpretq_s16_s32(b);
    return vreinterpretq_s32_s16(upper ? vtrn2q_s16(p, q) : vtrn1q_s16(p, q));
}
INLINE vf v_to_float(vi v) { return vcvtq_f32_s32(v); }
INLINE vi v_to_int(vf v) { return vcvtnq_s32_f32(v); }
INLINE vi v_load_bytes(const uint8_t *p) {
    const uint8x8_t bytes = vreinterpret_u8_u32(vld1_lane_u32((const uint32_t *)p, vdup_n_u32(0), 0));
    return vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(vmovl_u8(bytes))));
}
INLINE vi v_load_bytes_tail(const uint8_t *p, ptrdiff_t n) {
    if (n >= VL) return v_load_bytes(p);
    vi v = vdupq_n_s32(0);
    if (n > 0) v[0] = p[0];
    if (n > 1) v[1] = p[1];
    if (n > 2) v[2] = p[2];
    return v;
}
INLINE vi v_load_quads_tail(const void *p, ptrdiff_t n) {
    vi v = vdupq_n_s32(0);
    memcpy(&v, p, n < 4 * VL ? (size_t)n : sizeof v);
    return v;
}
INLINE void v_store_quads_tail(void *p, vi v, ptrdiff_t n) { memcpy(p, &v, n < 4 * VL ? (size_t)n : sizeof v); }
INLINE vi v_pack_shorts(vi a, vi b, vi zero) {
    return vreinterpretq_s32_s16(vqaddq_s16(vcombine_s16(vqmovn_s32(a), vqmovn_s32(b)), vreinterpretq_s16_s32(zero)));
}
INLINE vi v_pack_bytes(vi a, vi b) {
    const int16x8_t low = vreinterpretq_s16_s32(a), high = vreinterpretq_s16_s32(b);
    return vreinterpretq_s32_u8(vcombine_u8(vqmovun_s16(low), vqmovun_s16(high)));
}
INLINE vi v_pack_inlane(const vi v[4], vi zero) {
    return v_pack_bytes(v_pack_shorts(v[0], v[1], zero), v_pack_shorts(v[2], v[3], zero));
}
INLINE vi v_pack(const vi v[4], vi zero) { return v_pack_inlane(v, zero); }
INLINE vi v_ordered_(vi v, const uint8_t order[16]) {
    return vreinterpretq_s32_u8(vqtbl1q_u8(vreinterpretq_u8_s32(v), vld1q_u8(order)));
}
INLINE vi v_pack_lanes(const vi v[4], vi zero) {
    static const uint8_t order[] = {0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15};
    return v_ordered_(v_pack(v, zero), order);
}
INLINE vi v_pack_pairs(const vi v[4], vi zero) {
    static const uint8_t order[] = {0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15};
    return v_ordered_(v_pack(v, zero), order);
}
INLINE vf v_as_float(vi v) { return vreinterpretq_f32_s32(v); }
INLINE vi v_as_int(vf v) { return vreinterpretq_s32_f32(v); }
INLINE void v_quads(const vi r[4], vi q[4]) {
    const uint8x16_t r0 = vreinterpretq_u8_s32(r[0]), r1 = vreinterpretq_u8_s32(r[1]);
    const uint8x16_t r2 = vreinterpretq_u8_s32(r[2]), r3 = vreinterpretq_u8_s32(r[3]);
    const uint16x8_t a = vreinterpretq_u16_u8(vzip1q_u8(r0, r1)), b = vreinterpretq_u16_u8(vzip2q_u8(r0, r1));
    const uint16x8_t c = vreinterpretq_u16_u8(vzip1q_u8(r2, r3)), d = vreinterpretq_u16_u8(vzip2q_u8(r2, r3));
    q[0] = vreinterpretq_s32_u16(vzip1q_u16(a, c));
    q[1] = vreinterpretq_s32_u16(vzip2q_u16(a, c));
    q[2] = vreinterpretq_s32_u16(vzip1q_u16(b, d));
    q[3] = vreinterpretq_s32_u16(vzip2q_u16(b, d));
}
#ifdef FO_SDOT /* neondot_int8.h: both operands are signed */
#include "one_phase.h"
enum { DOT_SIGNED = 1 };
#define v_dot(sum, a, w) ((sum) = vdotq_s32(sum, vreinterpretq_s8_s32(a), vreinterpretq_s8_s32(w)))
/* In this order, or GCC 12 loads so far ahead that it has to store sums. */
#define SDOT_BY_(l) __asm__ volatile("sdot %0.4s, %2.16b, %1.4b[" #l "]" : "+w"(sum) : "w"(a), "w"(w))
INLINE vi v_dot_lane_(vi sum, vi a, vi w, const int lane) {
    switch (lane) { /* the instruction takes a literal */
        case 0: SDOT_BY_(0); break;
        case 1: SDOT_BY_(1); break;
        case 2: SDOT_BY_(2); break;
        default: SDOT_BY_(3);
    }
    return sum;
}
#define v_dot_lane(sum, a, w, lane) ((sum) = v_dot_lane_(sum, a, w, lane))
/* of FEAT_BF16, which not all processors with FEAT_DotProd have; in this order, as SDOT_BY_ */
#define BF16_SET neonbf16
#define v_dot_bf16(sum, a, w) __asm__("bfdot %0.4s, %1.8h, %2.8h" : "+w"(sum) : "w"(a), "w"(w))
#define v_mmla_bf16(sum, a, w) __asm__ volatile("bfmmla %0.4s, %1.8h, %2.8h" : "+w"(sum) : "w"(a), "w"(w))
INLINE void v_store_bf16_(uint16_t *p, vf v) {
    uint16x4_t narrow;
    __asm__("bfcvtn %0.4h, %1.4s" : "=w"(narrow) : "w"(v));
    vst1_u16(p, narrow);
}
#define v_store_bf16(p, v) v_store_bf16_(p, v)
INLINE vi v_narrow(vf a, vf b) {
    vi narrow;
    __asm__("bfcvtn %0.4h, %1.4s\n\tbfcvtn2 %0.8h, %2.4s" : "=&w"(narrow) : "w"(a), "w"(b));
    return narrow;
}
INLINE vi v_narrow_pairs(vf a, vf b) {
    const uint16x8_t narrow = vreinterpretq_u16_s32(v_narrow(a, b));
    return vreinterpretq_s32_u16(vzip1q_u16(narrow, vextq_u16(narrow, narrow, 4)));
}
INLINE vi v_load_two(const void *p, const void *q) {
    return vcombine_s32(vreinterpret_s32_u8(vld1_u8((const uint8_t *)p)),
                        vreinterpret_s32_u8(vld1_u8((const uint8_t *)q)));
}
INLINE vi v_zip_words(vi a, vi b, const int upper) { return upper ? vzip2q_s32(a, b) : vzip1q_s32(a, b); }
INLINE vi v_zip_pairs(vi a, vi b, const int upper) {
    const int64x2_t x = vreinterpretq_s64_s32(a), y = vreinterpretq_s64_s32(b);
    return vreinterpretq_s32_s64(upper ? vzip2q_s64(x, y) : vzip1q_s64(x, y));
}
#else
/* Even bytes as 16-bit integers, then odd ones: two products of a lane in the one, two in the other. */
enum { PHASES = 2, DOT_SIGNED = 0 };
INLINE vi v_dot_bytes(vi a, int phase) {
    const uint16x8_t u = vreinterpretq_u16_s32(a);
    return vreinterpretq_s32_u16(phase ? vshrq_n_u16(u, 8) : vandq_u16(u, vdupq_n_u16(255)));
}
INLINE vi v_dot_weights(vi w, int phase) {
    const int16x8_t s = vreinterpretq_s16_s32(w);
    return vreinterpretq_s32_s16(vshrq_n_s16(phase ? s : vshlq_n_s16(s, 8), 8));
}
INLINE vi v_dot_(vi sum, int16x8_t a, int16x8_t w) {
    return vaddq_s32(sum, vpaddq_s32(vmull_s16(vget_low_s16(a), vget_low_s16(w)), vmull_high_s16(a, w)));
}
#define v_dot(sum, a, w) ((sum) = v_dot_(sum, vreinterpretq_s16_s32(a), vreinterpretq_s16_s32(w)))
#endif
