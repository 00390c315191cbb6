/* The vocabulary of integers and bytes: the contract that each simd/X_bytes.h fulfils, besides simd.h. Four bytes fill
 * a lane, byte 0 first in memory.
 *
 *   vi                                 VL integers of 32 bits, or 4*VL bytes
 *   BYTE_VECTORS, BYTE_ROWS            GEMM register tile: rows of so many vectors; those of fewer are up to twice as
 * many PHASES                             parts of a dot product of four bytes: 1, or 2 where 16-bit products make it
 *   DOT_SIGNED                         whether it takes int8 in place of uint8
 *
 *   v_iload(p) v_istore(p, v)          VL integers or 4*VL bytes, any alignment
 *   v_iset1(x)                         all lanes x
 *   v_iadd v_isub v_imul v_ixor        modulo 2^32
 *   v_as_float(i) v_as_int(a)          the same bits
 *   v_to_float(i)                      rounded to nearest, halves to even
 *   v_to_int(a)                        the same way, of floats within 32 bits
 *   v_load_bytes(p)                    VL uint8 as integers
 *   v_load_bytes_tail(p, n)            the first n of them, the other lanes 0; memory behind them is not touched
 *   v_load_quads_tail(p, n)            n <= 4*VL bytes, then zeros; memory behind them is not touched
 *   v_store_quads_tail(p, v, n)        the first n >= 0 bytes of v
 *   v_pack(i, zero)                    i[0..3] + zero, saturated to 0..255, as 4*VL bytes in order; zero is
 * v_iset1(0x10001 * (0..255)) v_pack_inlane(i, zero)                 the same in the order of v_quads: byte 16*(l/4) +
 * 4*q + l%4 (plain C: q) is that of i[q], lane l v_quads(r, q)                      bytes of r[0..3] by fours: byte b
 * of lane l of q[i] is that of r[b] where v_pack_inlane has i and l v_dot_bytes(a, phase)              the phase's
 * operand of four unsigned bytes a lane (DOT_SIGNED: signed) v_dot_weights(w, phase)            the phase's operand of
 * four signed bytes a lane v_dot(sum, a, w)                   sum += the products of these operands, exactly; all
 * phases make the whole
 */
#ifndef FO_SIMD_BYTES_H
#define FO_SIMD_BYTES_H

#define FO_BYTE_VOCABULARY_(set) FO_STRING(set##_bytes.h)
#define FO_BYTE_VOCABULARY(set) FO_BYTE_VOCABULARY_(set)
#include FO_BYTE_VOCABULARY(FO_ISA)

#endif
