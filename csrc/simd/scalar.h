/* The vocabulary in plain C, one lane: for any processor, and the yardstick of the others. Contract: simd.h. */
#include "simd.h"

typedef float vf;
typedef int vm;
enum { VL = 1, MR = 4, NV = 2, NR = NV * VL, REGISTERS = 16, FMA_READS = 0 };
_Static_assert(1 + NV + MR * NV <= REGISTERS, "one broadcast, b and accumulators fit the registers");

INLINE vf v_load(const float *p) { return *p; }
INLINE void v_store(float *p, vf v) { *p = v; }
INLINE vf v_load_f16(const uint16_t *p) {
    enum { MANTISSA = 0x3ff, EXPONENT = 0x7c00, QUIET = 1 << 22 };
    const uint32_t sign = (uint32_t)(*p & 0x8000) << 16, m = *p & MANTISSA, e = *p & EXPONENT;
    uint32_t u = ((e | m) << 13) + ((127 - 15) << 23); /* another bias of the exponent */
    vf v;
    if (e == EXPONENT) u = 0x7f800000 | m << 13 | (m ? QUIET : 0);
    memcpy(&v, &u, sizeof v);
    if (!e) v = (float)m * 0x1p-24f;
    return sign ? -v : v;
}
INLINE void v_store_f16(uint16_t *p, vf v) {
    const float above = fabsf(v) + 0.5f; /* what is subnormal is an integer times 2^-24 */
    uint32_t bits, small;
    memcpy(&bits, &v, sizeof v), memcpy(&small, &above, sizeof v);
    const uint32_t size = bits & 0x7fffffff, near = size + 0xfff + (size >> 13 & 1);
    uint32_t y = near < 0x47800000 ? (near - 0x38000000) >> 13 : 0x7c00;
    if (size < 0x38800000) y = small & 0x7fffff;
    if (size > 0x7f800000) y = 0x7e00 | (size >> 13 & 0x3ff);
    *p = (uint16_t)(y | (bits >> 16 & 0x8000));
}
INLINE vf v_load_bf16(const uint16_t *p) {
    const uint32_t u = (uint32_t)*p << 16;
    vf v;
    memcpy(&v, &u, sizeof v);
    return v;
}
INLINE vf v_load_bits(const uint32_t *p, int first, int at, int bits) {
    return (float)(1 << (23 - at)) + (float)(*p >> (first + at) & ((1u << bits) - 1));
}
INLINE vm v_range(ptrdiff_t lo, ptrdiff_t hi) { return lo <= 0 && hi > 0; }
INLINE vf v_load_mask(const float *p, vm m) { return m ? *p : 0; }
INLINE void v_store_mask(float *p, vf v, vm m) {
    if (m) *p = v;
}
INLINE vf v_load_tail(const float *p, ptrdiff_t n) { return n > 0 ? *p : 0; }
INLINE void v_store_tail(float *p, vf v, ptrdiff_t n) {
    if (n > 0) *p = v;
}
INLINE void v_store_first(float *p, vf v, ptrdiff_t n, vm m) { (void)m, v_store_tail(p, v, n); }
INLINE vf v_zero(void) { return 0; }
INLINE vf v_set1(float x) { return x; }
#define v_force_reg(v) ((void)(v))
INLINE vf v_add(vf a, vf b) { return a + b; }
INLINE vf v_sub(vf a, vf b) { return a - b; }
INLINE vf v_mul(vf a, vf b) { return a * b; }
INLINE vf v_div(vf a, vf b) { return a / b; }
INLINE vf v_sqrt(vf a) { return sqrtf(a); }
/* The product of two floats is exact in double, so this rounds twice at most; it is within half an ulp and a bit. */
#ifdef FO_EXACT_FMA
INLINE vf v_fma(vf a, vf b, vf c) { return fmaf(a, b, c); }
#else
INLINE vf v_fma(vf a, vf b, vf c) { return (float)((double)a * b + c); }
#endif
#define v_fma_to(c, a, b) ((c) = v_fma(a, b, c))
#define v_fma_at(c, p, b) v_fma_to(c, v_set1(*(p)), b)
INLINE vf v_fnma(vf a, vf b, vf c) { return v_fma(-a, b, c); }
INLINE vf v_max(vf a, vf b) { return a > b ? a : b; }
INLINE vf v_min(vf a, vf b) { return a < b ? a : b; }
INLINE vf v_abs(vf a) { return fabsf(a); }
INLINE vf v_copysign(vf a, vf s) { return copysignf(a, s); }
INLINE vm v_lt(vf a, vf b) { return a < b; }
INLINE vm v_isnan(vf a) { return a != a; }
INLINE vf v_select(vm m, vf a, vf b) { return m ? a : b; }
INLINE vf v_pow2(vf z) {
    uint32_t u;
    memcpy(&u, &z, sizeof u);
    u <<= 23;
    memcpy(&z, &u, sizeof z);
    return z;
}
INLINE vf v_scale(vf a, vf n) { return ldexpf(a, (int)n); }
INLINE vf v_uzp_even(vf a, vf b) {
    (void)b;
    return a;
}
INLINE vf v_uzp_odd(vf a, vf b) {
    (void)a;
    return b;
}
INLINE vf v_uzp_inlane_even(vf a, vf b) { return v_uzp_even(a, b); }
INLINE vf v_uzp_inlane_odd(vf a, vf b) { return v_uzp_odd(a, b); }
INLINE vf v_lane_order(vf v) { return v; }
INLINE vf v_concat(vf a, vf b, const int n) { return n ? b : a; }
INLINE vf v_rotate(vf v, int n) { return n == 1 ? v_concat(v, v, 1) : v_concat(v, v, VL - 1); }
INLINE vf v_halves(vf a, vf b) {
    (void)a;
    return b;
}
INLINE vf v_load_halves(const float *p, const float *q) {
    (void)p;
    return *q;
}
INLINE void v_store_halves(float *p, float *q, vf v) {
    (void)p;
    *q = v;
}
INLINE void v_transpose(vf r[VL]) { (void)r; }
INLINE void v_load_transposed(vf r[VL], const float *p, ptrdiff_t ld) { (void)ld, r[0] = v_load(p); }
