/* The vocabulary of vector operations: the contract that each simd/X.h fulfills.
 *
 * A kernel is written once over these names and compiled once for each instruction set. An X.h defines
 *
 *   vf, vm            VL floats; a set of lanes (the result of a comparison or of v_range)
 *   VL                lanes of a vf
 *   REGISTERS         that hold a vf each
 *   FMA_READS         whether v_fma_at is one instruction
 *   MR, NV, NR        GEMM register tile: MR rows of NV vectors, NR = NV * VL; asserted to fit the registers
 *   FO_NAME(f)        f with the instruction set appended: fo_gemm -> fo_gemm_avx2
 *
 *   v_load(p) v_store(p, v)            any alignment
 *   v_range(lo, hi)                    the lanes lo <= lane < hi; lo and hi may lie outside 0..VL
 *   v_load_f16(p)                      VL float16 values (their bits), widened exactly; a signaling NaN becomes quiet
 *   v_store_f16(p, v)                  VL floats as float16, rounded to nearest, ties to even; NaN stays a quiet one
 *   v_load_bf16(p)                     VL bfloat16 values (their bits), widened exactly
 *   v_load_bits(p, first, at, bits)    of VL words at p so many bits from first + at on, a number q, which stays at bit
 *                                      `at`, where it is not shifted to: 2^(23 - at) + q
 *   v_load_mask(p, m)                  lanes of m from p[lane], the others 0; memory outside m is not touched
 *   v_store_mask(p, v, m)              lanes of m to p[lane]; memory outside m is not touched
 *   v_load_tail(p, n) v_store_tail(p, v, n)   the same with m = v_range(0, n); what is stored, of n >= 0
 *   v_store_first(p, v, n, m)         v_store_tail where m = v_range(0, n) is at hand
 *   v_force_reg(v)                     v is in a register from here on, or the compiler loads it anew for each use
 *   v_zero() v_set1(x)                 all lanes 0; all lanes x
 *   v_add v_sub v_mul v_div v_sqrt     IEEE, one rounding each
 *   v_fma(a, b, c)                     a*b + c, one rounding (scalar: fmaf, also where the processor has no FMA)
 *   v_fma_to(c, a, b)                  c = v_fma(a, b, c) in c's own register: where 16 hold a tile, the compiler else
 *                                      moves sums about in straight code
 *   v_fma_at(c, p, b)                  v_fma_to(c, v_set1(*p), b); one instruction where the multiply-add can read p
 *   v_fnma(a, b, c)                    c - a*b, one rounding
 *   v_max(a, b) v_min(a, b)            a > b ? a : b and a < b ? a : b, so a NaN in b goes through, one in a does not
 *   v_abs(a) v_copysign(a, s)          |a|; |a| with the sign of s; both work on the bits, NaN included
 *   v_lt(a, b) v_isnan(a)              sets of lanes; a comparison with NaN is false
 *   v_select(m, a, b)                  m ? a : b
 *   v_pow2(z)                          2^n for z = n + V_POW2, n integral in -127..128; its ends are 0 and infinity
 *   v_scale(a, n)                      a * 2^n for integral n in -252..252, one rounding
 *   v_uzp_even(a, b) v_uzp_odd(a, b)           lanes 0, 2, 4, ... and 1, 3, 5, ... of a followed by b
 *   v_uzp_inlane_even(a, b) v_uzp_inlane_odd(a, b)   the same lanes in an order of the set's own
 *   v_lane_order(v)                    sorts lanes that stand so
 *   v_rotate(v, n)                     what v_concat(v, v, n) is, in that order, for n = 1 or VL - 1
 *   v_concat(a, b, n)                  lanes n .. n+VL-1 of a followed by b, for a literal 0 < n < VL
 *   v_halves(a, b)                     the lower half of a, then that of b
 *   v_load_halves(p, q) v_store_halves(p, q, v)   VL/2 floats at p and as many at q: the lower and the upper half
 *   v_transpose(r)                     r[0..VL-1] as a VL x VL matrix, transposed in place
 *   v_load_transposed(r, p, ld)        the same of VL rows at p, p + ld, ...
 */
#ifndef FO_SIMD_H
#define FO_SIMD_H

#include <float.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))
#define FO_JOIN_(a, b) a##_##b
#define FO_JOIN(a, b) FO_JOIN_(a, b)
#define FO_NAME(f) FO_JOIN(f, FO_ISA)

/* A float near V_POW2 holds its integer part in its low bits, n + 127 of them: the exponent field of 2^n. */
#define V_POW2 0x1.8000fep23f

/* A float of this exponent has an integer in its bits from `at` to 22. */
#define V_BITS(at) (0x4b000000 - ((at) << 23))
#define V_MASK(at, bits) (int)(((1u << (bits)) - 1) << (at))

/* Loops over arrays of vectors are always unrolled: one that is left rolled keeps its array in memory. */
#define UNROLL_FOR(...) _Pragma("GCC unroll 64") for (__VA_ARGS__)

/* Loads and stores stay on their side of it. */
#define v_barrier() __asm__ volatile("" ::: "memory")

/* Hides where a pointer comes from, or the compiler keeps a pointer for each of the places that a loop reads. */
#define v_launder(p) __asm__("" : "+r"(p))

/* What is read from memory where it is used: the compiler would spill it to vector registers, from where it waits
 * after arithmetic. */
#define v_force_mem(x) __asm__("" : "+m"(x))

#endif
