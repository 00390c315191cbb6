/* Tensors of int8, and products of bfloat16 and of weights in blocks. Compiled for each set, and again where that has a
 * dot product of int8. */
#define FO_EXACT_FMA /* integers are the same on all sets, whatever the activation */
#include "kernels.h"
#include "../simd/int8.h"
#include "qtable.h"

#include "quantized/qepilogue.h"
#include "quantized/convert.h"
#include "quantized/qelementwise.h"
#include "quantized/qgemm_tile.h"
#include "quantized/qblockwise.h"
#ifdef HAS_AMX
#include "quantized/amx.h"
#endif
#include "quantized/qdepthwise.h"
#include "quantized/qdepthwise_planes.h"

#define Q_KERNELS \
    .vl = VL, .mr = Q_ROWS, .phases = PHASES, .parts = Q_PARTS, \
    .is_signed = DOT_SIGNED, .gemm_blockwise = byte_gemm_bits, .quantize = quantize, .dequantize = dequantize, \
    .range = range, .copy = copy, .patches = patches, .widen = widen, .pair = qpair, \
    .max = qmax, .add = qadd, .mean = qmean, .depthwise = qdepthwise, \
    .row_sums = qrow_sums, .planes = qplanes, .transpose = qtranspose

const fo_qkernels FO_NAME(fo_qkernels) = {
    .name = FO_STRING(FO_ISA), .nr = Q_VECTORS * VL, .gemm = qgemm, .narrow = narrow, Q_KERNELS};
#if DOTS_BF16
const fo_qkernels FO_JOIN(fo_qkernels, BF16_SET) = {.name = FO_STRING(BF16_SET),
                                                    .nr = Q_VECTORS * VL,
                                                    .gemm = qgemm,
                                                    .gemm_bf16 = qgemm_bf16,
                                                    .narrow = narrow_bf16,
                                                    Q_KERNELS};
#endif
#ifdef HAS_AMX
const fo_qkernels fo_qkernels_avx512amx = {.name = "avx512amx",
                                           .nr = AMX_COLUMNS,
                                           .tiles = true,
                                           .gemm = qgemm_amx,
                                           .gemm_bf16 = qgemm_bf16_amx,
                                           .narrow = narrow_bf16,
                                           Q_KERNELS};
#endif
