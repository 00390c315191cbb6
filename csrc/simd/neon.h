/* The vocabulary on Advanced SIMD of AArch64, four lanes. Contract: simd.h. */
#include <arm_neon.h>

#include "simd.h"

typedef float32x4_t vf;
typedef uint32x4_t vm;
enum { VL = 4, MR = 8, NV = 2, NR = NV * VL, REGISTERS = 32, FMA_READS = 0 };
_Static_assert(1 + NV + MR * NV <= REGISTERS, "one broadcast, b and accumulators fit the registers");

INLINE vf v_zero(void) { return vdupq_n_f32(0); }
INLINE vf v_set1(float x) { return vdupq_n_f32(x); }
INLINE vf v_load(const float *p) { return vld1q_f32(p); }
INLINE void v_store(float *p, vf v) { vst1q_f32(p, v); }
INLINE vf v_load_f16(const uint16_t *p) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p))); }
INLINE void v_store_f16(uint16_t *p, vf v) { vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32(v))); }
INLINE vf v_load_bf16(const uint16_t *p) { return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16)); }
INLINE vf v_load_bits(const uint32_t *p, int first, int at, int bits) {
    const uint32x4_t words = vandq_u32(vld1q_u32(p) >> first, vdupq_n_u32(V_MASK(at, bits)));
    return vreinterpretq_f32_u32(vorrq_u32(words, vdupq_n_u32(V_BITS(at))));
}
INLINE int32x4_t v_clamped_(ptrdiff_t i) { return vdupq_n_s32(i < 0 ? 0 : i > VL ? VL : (int)i); }
INLINE vm v_range(ptrdiff_t lo, ptrdiff_t hi) {
    const int32x4_t lane = {0, 1, 2, 3};
    return vbicq_u32(vcltq_s32(lane, v_clamped_(hi)), vcltq_s32(lane, v_clamped_(lo)));
}
/* There are no masked loads and stores: a whole vector in one piece, which is the usual case, or lane by lane. */
INLINE vf v_load_mask(const float *p, vm m) {
    if (vminvq_u32(m)) return v_load(p);
    vf v = v_zero();
    if (m[0]) v = vld1q_lane_f32(p, v, 0);
    if (m[1]) v = vld1q_lane_f32(p + 1, v, 1);
    if (m[2]) v = vld1q_lane_f32(p + 2, v, 2);
    if (m[3]) v = vld1q_lane_f32(p + 3, v, 3);
    return v;
}
INLINE void v_store_mask(float *p, vf v, vm m) {
    if (vminvq_u32(m)) {
        v_store(p, v);
        return;
    }
    if (m[0]) vst1q_lane_f32(p, v, 0);
    if (m[1]) vst1q_lane_f32(p + 1, v, 1);
    if (m[2]) vst1q_lane_f32(p + 2, v, 2);
    if (m[3]) vst1q_lane_f32(p + 3, v, 3);
}
INLINE vf v_load_tail(const float *p, ptrdiff_t n) {
    if (n >= VL) return v_load(p);
    vf v = v_zero();
    if (n > 0) v = vld1q_lane_f32(p, v, 0);
    if (n > 1) v = vld1q_lane_f32(p + 1, v, 1);
    if (n > 2) v = vld1q_lane_f32(p + 2, v, 2);
    return v;
}
INLINE void v_store_tail(float *p, vf v, ptrdiff_t n) {
    if (n >= VL) {
        v_store(p, v);
        return;
    }
    if (n > 0) vst1q_lane_f32(p, v, 0);
    if (n > 1) vst1q_lane_f32(p + 1, v, 1);
    if (n > 2) vst1q_lane_f32(p + 2, v, 2);
}
INLINE void v_store_first(float *p, vf v, ptrdiff_t n, vm m) { (void)m, v_store_tail(p, v, n); }
#define v_force_reg(v) __asm__("" : "+w"(v))
INLINE vf v_add(vf a, vf b) { return vaddq_f32(a, b); }
INLINE vf v_sub(vf a, vf b) { return vsubq_f32(a, b); }
INLINE vf v_mul(vf a, vf b) { return vmulq_f32(a, b); }
INLINE vf v_div(vf a, vf b) { return vdivq_f32(a, b); }
INLINE vf v_sqrt(vf a) { return vsqrtq_f32(a); }
INLINE vf v_fma(vf a, vf b, vf c) { return vfmaq_f32(c, a, b); }
#define v_fma_to(c, a, b) ((c) = v_fma(a, b, c))
#define v_fma_at(c, p, b) v_fma_to(c, v_set1(*(p)), b)
INLINE vf v_fnma(vf a, vf b, vf c) { return vfmsq_f32(c, a, b); }
INLINE vm v_lt(vf a, vf b) { return vcltq_f32(a, b); }
INLINE vm v_isnan(vf a) { return vmvnq_u32(vceqq_f32(a, a)); }
INLINE vf v_select(vm m, vf a, vf b) { return vbslq_f32(m, a, b); }
/* Not vmaxq and vminq, which let a NaN through from either side and tell the zeros apart. */
INLINE vf v_max(vf a, vf b) { return v_select(v_lt(b, a), a, b); }
INLINE vf v_min(vf a, vf b) { return v_select(v_lt(a, b), a, b); }
INLINE vf v_abs(vf a) { return vabsq_f32(a); }
INLINE vf v_copysign(vf a, vf s) { return v_select(vdupq_n_u32(1u << 31), s, a); }
INLINE vf v_pow2(vf z) { return vreinterpretq_f32_s32(vshlq_n_s32(vreinterpretq_s32_f32(z), 23)); }
INLINE vf v_scale(vf a, vf n) { /* in two steps, the first exact: 2^n itself may not be a float */
    int32x4_t i = vcvtq_s32_f32(n), h = vshrq_n_s32(i, 1), bias = vdupq_n_s32(127);
    vf p = vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(h, bias), 23));
    vf r = vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(vsubq_s32(i, h), bias), 23));
    return vmulq_f32(vmulq_f32(a, p), r);
}
INLINE vf v_uzp_even(vf a, vf b) { return vuzp1q_f32(a, b); }
INLINE vf v_uzp_odd(vf a, vf b) { return vuzp2q_f32(a, b); }
INLINE vf v_uzp_inlane_even(vf a, vf b) { return v_uzp_even(a, b); }
INLINE vf v_uzp_inlane_odd(vf a, vf b) { return v_uzp_odd(a, b); }
INLINE vf v_lane_order(vf v) { return v; }
INLINE vf v_concat(vf a, vf b, const int n) {
    switch (n) { /* the instruction takes a literal */
        case 1: return vextq_f32(a, b, 1);
        case 2: return vextq_f32(a, b, 2);
        default: return vextq_f32(a, b, 3);
    }
}
INLINE vf v_rotate(vf v, int n) { return n == 1 ? v_concat(v, v, 1) : v_concat(v, v, VL - 1); }
INLINE vf v_halves(vf a, vf b) { return vcombine_f32(vget_low_f32(a), vget_low_f32(b)); }
INLINE vf v_load_halves(const float *p, const float *q) { return vcombine_f32(vld1_f32(p), vld1_f32(q)); }
INLINE void v_store_halves(float *p, float *q, vf v) {
    vst1_f32(p, vget_low_f32(v));
    vst1_f32(q, vget_high_f32(v));
}
INLINE void v_transpose(vf r[VL]) {
    vf a = vzip1q_f32(r[0], r[2]), b = vzip1q_f32(r[1], r[3]), c = vzip2q_f32(r[0], r[2]), d = vzip2q_f32(r[1], r[3]);
    r[0] = vzip1q_f32(a, b);
    r[1] = vzip2q_f32(a, b);
    r[2] = vzip1q_f32(c, d);
    r[3] = vzip2q_f32(c, d);
}
INLINE void v_load_transposed(vf r[VL], const float *p, ptrdiff_t ld) {
    UNROLL_FOR (int i = 0; i < VL; i++) r[i] = v_load(p + i * ld);
    v_transpose(r);
}
