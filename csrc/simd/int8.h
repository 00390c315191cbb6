/* The vocabulary of integers and bytes: the contract that each simd/X_int8.h fulfills, besides simd.h. Four bytes fill
 * a lane, byte 0 first in memory.
 *
 *   vi                                 VL integers of 32 bits, or 4*VL bytes
 *   Q_VECTORS, Q_ROWS            GEMM register tile: rows of so many vectors; those of fewer are up to twice as
 *                                      many
 *   Q_PARTS                         most parts of a vector of bytes: 1, or 4 where 16 bytes are one
 *   PHASES                             parts of a dot product of four bytes: 1, or 2 where 16-bit products make it
 *   DOT_SIGNED                         whether it takes int8 in place of uint8
 *
 *   v_iload(p) v_istore(p, v)          VL integers or 4*VL bytes, any alignment
 *   v_iset1(x)                         all lanes x
 *   v_iadd v_isub v_imul               modulo 2^32
 *   v_iand v_ixor                      of bits
 *   v_nibbles(i, upper)                the upper (1) or lower (0) four bits of each byte
 *   v_zip_shorts(a, b, upper)          lane l: the lower (upper: 1: the upper) 16 bits of a's, then those of b's
 *   v_as_float(i) v_as_int(a)          the same bits
 *   v_to_float(i)                      rounded to nearest, halves to even
 *   v_to_int(a)                        the same way, of floats within 32 bits
 *   v_load_bytes(p)                    VL uint8 as integers
 *   v_load_bytes_tail(p, n)            the first n of them, the other lanes 0; memory after them is not touched
 *   v_load_quads_tail(p, n)            n <= 4*VL bytes, then zeros; memory after them is not touched
 *   v_store_quads_tail(p, v, n)        the first n >= 0 bytes of v
 *   v_load_parts(parts, p, n)          n bytes of each of p[0..parts-1], then zeros; parts is 1, 2 or 4, a literal
 *   v_store_parts(parts, p, step, v, n, count)
 *                                      the first n bytes of v's first `count` parts, at p, p + step, ..
 *   v_pack(i, zero)                    i[0..3] + zero, saturated to 0..255, as 4*VL bytes in order; zero is
 *                                      v_iset1(0x10001 * (0..255))
 *   v_pack_inlane(i, zero)             the same in the order of v_quads: byte 16*(l/4) + 4*q + l%4 (plain C: q) is that
 *                                      of i[q], lane l
 *   v_pack_shorts(a, b, zero)          its halves: 16-bit integers of i[0] and i[1], of i[2] and i[3]
 *   v_pack_bytes(s, t)                 its bytes of them
 *   v_pack_lanes(i, zero)              byte 4*l + q is that of i[q], lane l
 *   v_pack_pairs(i, zero)              byte 2*VL*(q/2) + 2*l + q%2 is
 *   v_quads(r, q)                      bytes of r[0..3] by fours: byte b of lane l of q[i] is that of r[b] where
 *                                      v_pack_inlane has i and l
 *   v_dot_bytes(a, phase)              the phase's operand of four unsigned bytes a lane (DOT_SIGNED: signed)
 *   v_dot_weights(w, phase)            the phase's operand of four signed bytes a lane
 *   v_dot(sum, a, w)                   sum += the products of these operands, exactly; all phases make the whole
 *   v_dot_bf16(sum, a, w)              sum, VL floats, += the products of two bfloat16 a lane; not on all sets, nor on
 *                                      all processors of a set: fo_kernels.gemm_bf16
 *   v_store_bf16(p, v)                 VL floats as bfloat16, rounded to nearest, halves to even; where v_dot_bf16 is
 *   v_narrow(a, b)                     the floats of a, then of b, as v_store_bf16 rounds them; where v_dot_bf16 is
 *   v_narrow_pairs(a, b)               the same, lane l: a's in the lower 16 bits, b's in the upper ones
 *   v_mmla_bf16(sum, a, w)             lane 2*i+j of sum += the products of row i of a and row j of w, of two rows of
 *                                      four bfloat16, as v_dot_bf16 twice; not on all sets, which have, of vectors of
 *                                      four lanes:
 *   v_load_two(p, q)                   8 bytes from p on, then as many from q on
 *   v_zip_words(a, b, upper)           lanes 0 and 1 (upper, a literal: 2 and 3) of a and b, interleaved
 *   v_zip_pairs(a, b, upper)           lanes 0 and 1 (upper: 2 and 3) of a, then those of b
 *   v_dot_lane(sum, a, w, lane)        sum += the products of four bytes of a, those of a lane (a literal), and of each
 *                                      lane's of w; not on all sets
 */
#ifndef FO_SIMD_INT8_H
#define FO_SIMD_INT8_H

#define FO_Q_VOCABULARY_(set) FO_STRING(set##_int8.h)
#define FO_Q_VOCABULARY(set) FO_Q_VOCABULARY_(set)
#include FO_Q_VOCABULARY(FO_ISA)

#ifdef v_dot_bf16
#define DOTS_BF16 1
#else /* never called */
#define DOTS_BF16 0
#define v_dot_bf16(sum, a, w) ((void)(sum), (void)(a), (void)(w))
#define v_store_bf16(p, v) ((void)(p), (void)(v))
#define v_narrow(a, b) ((void)(a), (void)(b), v_iset1(0))
#define v_narrow_pairs(a, b) v_narrow(a, b)
#endif

#ifndef Q_PARTS /* sets whose vectors are too short for parts */
#define Q_PARTS 1
INLINE vi v_load_parts(int parts, const uint8_t *const *p, ptrdiff_t n) {
    (void)parts;
    return v_load_quads_tail(p[0], n);
}
INLINE void v_store_parts(int parts, uint8_t *p, ptrdiff_t step, vi v, ptrdiff_t n, ptrdiff_t count) {
    (void)parts, (void)step;
    if (count > 0) v_store_quads_tail(p, v, n);
}
#endif

#endif
