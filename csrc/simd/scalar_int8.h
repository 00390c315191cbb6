/* Integers and bytes on plain C. Contract: int8.h. */
typedef int32_t vi;
enum { Q_VECTORS = 1, Q_ROWS = 6 };
enum { DOT_SIGNED = 0 };
INLINE vi v_iload(const void *p) {
    vi v;
    memcpy(&v, p, sizeof v);
    return v;
}
INLINE void v_istore(void *p, vi v) { memcpy(p, &v, sizeof v); }
INLINE vi v_iset1(int32_t x) { return x; }
INLINE vi v_iadd(vi a, vi b) { return (vi)((uint32_t)a + (uint32_t)b); }
INLINE vi v_isub(vi a, vi b) { return (vi)((uint32_t)a - (uint32_t)b); }
INLINE vi v_imul(vi a, vi b) { return (vi)((uint32_t)a * (uint32_t)b); }
INLINE vi v_iand(vi a, vi b) { return a & b; }
INLINE vi v_ixor(vi a, vi b) { return a ^ b; }
INLINE vi v_nibbles(vi v, int upper) { return (vi)((uint32_t)v >> 4 * upper & 0x0f0f0f0f); }
INLINE vi v_zip_shorts(vi a, vi b, const int upper) {
    const uint32_t p = (uint32_t)a, q = (uint32_t)b;
    return (vi)(upper ? p >> 16 | (q & 0xffff0000) : (p & 0xffff) | q << 16);
}
INLINE vf v_to_float(vi v) { return (vf)v; }
INLINE vi v_to_int(vf v) { return (vi)lrintf(v); }
INLINE vi v_load_bytes(const uint8_t *p) { return *p; }
INLINE vi v_load_bytes_tail(const uint8_t *p, ptrdiff_t n) { return n > 0 ? *p : 0; }
INLINE vi v_load_quads_tail(const void *p, ptrdiff_t n) {
    uint8_t bytes[4] = {0};
    for (int i = 0; i < 4 && i < n; i++) bytes[i] = ((const uint8_t *)p)[i];
    return v_iload(bytes);
}
INLINE void v_store_quads_tail(void *p, vi v, ptrdiff_t n) {
    uint8_t bytes[4];
    v_istore(bytes, v);
    for (int i = 0; i < 4 && i < n; i++) ((uint8_t *)p)[i] = bytes[i];
}
INLINE int32_t v_within_(int32_t v, int32_t least, int32_t most) { return v < least ? least : v > most ? most : v; }
INLINE vi v_pack_shorts(vi a, vi b, vi zero) {
    const int16_t shorts[2] = {(int16_t)v_within_(v_within_(a, -32768, 32767) + (zero & 255), -32768, 32767),
                               (int16_t)v_within_(v_within_(b, -32768, 32767) + (zero & 255), -32768, 32767)};
    return v_iload(shorts);
}
INLINE vi v_pack_bytes(vi a, vi b) {
    int16_t in[4];
    v_istore(in, a), v_istore(in + 2, b);
    uint8_t bytes[4];
    for (int i = 0; i < 4; i++) bytes[i] = (uint8_t)v_within_(in[i], 0, 255);
    return v_iload(bytes);
}
INLINE vi v_pack_inlane(const vi v[4], vi zero) {
    return v_pack_bytes(v_pack_shorts(v[0], v[1], zero), v_pack_shorts(v[2], v[3], zero));
}
INLINE vi v_pack(const vi v[4], vi zero) { return v_pack_inlane(v, zero); }
INLINE vi v_pack_lanes(const vi v[4], vi zero) { return v_pack(v, zero); }
INLINE vi v_pack_pairs(const vi v[4], vi zero) { return v_pack(v, zero); }
INLINE vf v_as_float(vi v) {
    vf f;
    memcpy(&f, &v, sizeof f);
    return f;
}
INLINE vi v_as_int(vf v) { return v_iload(&v); }
INLINE void v_quads(const vi r[4], vi q[4]) {
    uint8_t in[4][4], out[4][4];
    for (int i = 0; i < 4; i++) v_istore(in[i], r[i]);
    for (int i = 0; i < 16; i++) out[i % 4][i / 4] = in[i / 4][i % 4];
    for (int i = 0; i < 4; i++) q[i] = v_iload(out[i]);
}
#include "one_phase.h"
INLINE vi v_dot_(vi sum, vi a, vi w) {
    for (int b = 0; b < 32; b += 8) sum = v_iadd(sum, (uint8_t)((uint32_t)a >> b) * (int8_t)((uint32_t)w >> b));
    return sum;
}
#define v_dot(sum, a, w) ((sum) = v_dot_(sum, a, w))
