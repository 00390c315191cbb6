/* Tensors of 8 bits, and products of bfloat16 and of weights in blocks. Compiled for each set, and again where that has a dot product of
 * bytes. */
#define FO_EXACT_FMA /* integers are the same on all sets, whatever the activation */
#include "kernels.h"
#include "../simd/bytes.h"
#include "bytes.h"

#include "quantized/epilogue.h"
#include "quantized/convert.h"
#include "quantized/between.h"
#include "quantized/gemm.h"
#include "quantized/bits.h"
#ifdef BYTE_TILES
#include "quantized/tiles.h"
#endif
#include "quantized/depthwise.h"
#include "quantized/planes.h"

#define BYTE_KERNELS \
    .vl = VL, .mr = BYTE_ROWS, .nr = BYTE_VECTORS * VL, .phases = PHASES, .parts = BYTE_PARTS, \
    .is_signed = DOT_SIGNED, .gemm_bits = byte_gemm_bits, .quantize = quantize, .dequantize = dequantize, \
    .range = range, .copy = copy, .patches = patches, .widen = widen, .pair = byte_pair, \
    .larger = byte_larger, .add = byte_add, .mean = byte_mean, .depthwise = byte_depthwise, \
    .row_sums = byte_row_sums, .planes = byte_planes, .transpose = byte_transpose, .narrow = narrow

const fo_byte_kernels FO_NAME(fo_byte_kernels) = {.name = FO_STRING(FO_ISA), .gemm = byte_gemm, BYTE_KERNELS};
#if DOTS_BF16
const fo_byte_kernels fo_byte_kernels_avx512bf16 = {
    .name = "avx512bf16", .gemm = byte_gemm, .gemm_bf16 = byte_gemm_bf16, BYTE_KERNELS};
#endif
#ifdef BYTE_TILES
const fo_byte_kernels fo_byte_kernels_avx512amx = {
    .name = "avx512amx", .tiles = true, .gemm = byte_gemm_by_tiles, .gemm_bf16 = byte_gemm_bf16_by_tiles, BYTE_KERNELS};
#endif
