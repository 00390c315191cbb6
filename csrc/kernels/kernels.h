/* What each unit of kernels begins with: the vocabulary of the set that it is compiled for (-DFO_ISA=avx2), the
 * epilogue, and the kernels. */
#ifndef FO_KERNELS_H
#define FO_KERNELS_H

#define FO_STRING_(s) #s
#define FO_STRING(s) FO_STRING_(s)
#define FO_VOCABULARY FO_STRING(../simd/FO_ISA.h)
#include FO_VOCABULARY
#include "../simd/traits.h"
#include "../machine/tune.h"

#include "table.h"
#include "epilogue.h"

enum { GROUP = MANY_REGS ? 8 : 2, GROUP_OF_3 = MANY_REGS ? 6 : 3 }; /* vectors of a group: rnn.h */

/* The set whose maps serve this one: FO_MAPS, or its own. */
#ifdef FO_MAPS
#define FO_MAP FO_JOIN(fo_map, FO_MAPS)
#else
#define FO_MAP FO_JOIN(fo_map, FO_BASE)
#endif

/* The set that has the kernels of floats: another one where FO_ISA adds dot products to it. */
#ifndef FO_BASE
#define FO_BASE FO_ISA
#endif

/* The function of a kernel, by where it is. */
#define FO_KERNEL_EVERYWHERE(name) FO_JOIN(fo_##name, FO_BASE)
#define FO_KERNEL_MAPS(name) FO_MAP
#define FO_KERNEL_DOTS(name) FO_NAME(fo_##name)
#define FO_KERNEL_NARROW(name) FO_NAME(fo_##name)
#define FO_KERNEL_BF16(name) FO_NAME(fo_##name)
#define FO_KERNEL(name, arguments, where) void FO_KERNEL_##where(name) arguments;
FO_EACH_KERNEL(FO_KERNEL)
#undef FO_KERNEL

/* Products of operands that are not floats. */
void FO_NAME(fo_gemm_int8)(const fo_gemm_args *);
void FO_NAME(fo_gemm_bf16)(const fo_gemm_args *);
void FO_NAME(fo_gemm_blocks)(const fo_gemm_args *);
void fo_gemm_int8_amx(const fo_gemm_args *);
void fo_gemm_bf16_amx(const fo_gemm_args *);
void fo_gemm_blocks_amx(const fo_gemm_args *);
void FO_NAME(fo_narrow_bf16)(ptrdiff_t n, const float *x, uint16_t *y);

#endif
