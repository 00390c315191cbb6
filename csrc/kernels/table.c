/* The tables of one instruction set, and of it with dot products of int8, those of bfloat16, and tiles. */
#include "kernels.h"
#include "../simd/int8.h"

/* ---- products, the best first ------------------------------------------------------------------------------------ */

#define FLOATS_BY(type) \
    {.product = {FO_F32, FO_##type, FO_F32, 1}, .reads = FO_F32, .types = FO_OF(FO_F32), .phases = 1, .mr = MR, \
     .nr = NR, .run = FO_KERNEL_EVERYWHERE(gemm)},
/* Floats, and bfloat16 without its dot product: rows are rounded, rows and panels widened. */
#define FLOATS \
    FO_EACH_WEIGHT(FLOATS_BY) \
    {.product = {FO_F32, FO_U8, FO_F32, 1}, .reads = FO_F32, .types = FO_OF(FO_F32), .phases = 1, .mr = MR, .nr = NR, \
     .run = FO_KERNEL_EVERYWHERE(gemm)}, \
    {.product = {FO_BF16, FO_BF16, FO_F32, 1}, .reads = FO_F32, .types = FO_OF(FO_F32), .phases = 1, .mr = MR, \
     .nr = NR, .run = FO_KERNEL_EVERYWHERE(gemm)}

#define INT8_TYPES FO_OF(FO_F32) | FO_OF(FO_U8) | FO_OF(FO_S8)
#define INT8(columns, is_tiles, speed, cost, kernel, of_blocks) \
    {.product = {DOT_SIGNED ? FO_S8 : FO_U8, FO_S8, FO_S32, 4}, .reads = DOT_SIGNED ? FO_S8 : FO_U8, \
     .types = INT8_TYPES, .segments = true, .tiles = is_tiles, .phases = PHASES, .mr = Q_ROWS, .nr = columns, \
     .rate = speed, .costs = cost, .run = kernel}, \
    {.product = {FO_S8, FO_U8, FO_F32, 4}, .reads = FO_S8, .types = FO_OF(FO_F32), .phases = 1, .mr = Q_ROWS, \
     .tiles = is_tiles, .nr = columns, .rate = 8, .run = of_blocks}
#define BFLOAT16(columns, is_tiles, speed, cost, kernel) \
    {.product = {FO_BF16, FO_BF16, FO_F32, 2}, .reads = FO_BF16, .types = FO_OF(FO_F32) | FO_OF(FO_BF16), \
     .segments = true, .tiles = is_tiles, .phases = 1, .mr = Q_ROWS, .nr = columns, .rate = speed, .costs = cost, \
     .run = kernel}

#define COSTS_OF_INT8 (PHASES == 1 ? &fo_costs_of_vnni : &fo_costs_of_multiply_add)
#define INT8_BY_VECTORS \
    INT8(Q_VECTORS * VL, false, PHASES == 1 ? 8 : 4, COSTS_OF_INT8, FO_NAME(fo_gemm_int8), FO_NAME(fo_gemm_blocks))

static const fo_product_kernel products[] = {INT8_BY_VECTORS, FLOATS, {.run = NULL}};

/* ---- tables ------------------------------------------------------------------------------------------------------ */

#define FO_ENTRY_EVERYWHERE(f) f
#define FO_ENTRY_MAPS(f) f
#define FO_ENTRY_DOTS(f) f
#define FO_ENTRY(kernel, arguments, where) .kernel = FO_ENTRY_##where(FO_KERNEL_##where(kernel)),
#define TABLE(full, list) \
    {.set = FO_STRING(FO_BASE), .name = FO_STRING(full), .vl = VL, .mr = MR, .nr = NR, .vec_is_line = VEC_IS_LINE, \
     .group = GROUP, .group_of_3 = GROUP_OF_3, .parts = Q_PARTS, .is_signed = DOT_SIGNED, .products = list, \
     FO_EACH_KERNEL(FO_ENTRY)}

#define FO_ENTRY_NARROW(f) FO_NAME(fo_narrow)
#define FO_ENTRY_BF16(f) NULL
const fo_kernels FO_NAME(fo_kernels) = TABLE(FO_ISA, products);
#undef FO_ENTRY_NARROW
#undef FO_ENTRY_BF16

#define FO_ENTRY_NARROW(f) FO_NAME(fo_narrow_bf16)
#define FO_ENTRY_BF16(f) f
#if DOTS_BF16
static const fo_product_kernel with_bf16[] = {
    INT8_BY_VECTORS,
    BFLOAT16(Q_VECTORS * VL, false, 4, &fo_costs_of_bf16, FO_NAME(fo_gemm_bf16)),
    FLOATS,
    {.run = NULL}};
const fo_kernels FO_JOIN(fo_kernels, BF16_SET) = TABLE(BF16_SET, with_bf16);
#endif
#ifdef HAS_AMX
enum { AMX_COLUMNS = 2 * VL };
static const fo_product_kernel with_tiles[] = {
    INT8(AMX_COLUMNS, true, 32, &fo_costs_of_amx, fo_gemm_int8_amx, fo_gemm_blocks_amx),
    BFLOAT16(AMX_COLUMNS, true, 16, &fo_costs_of_bf16_amx, fo_gemm_bf16_amx),
    FLOATS,
    {.run = NULL}};
const fo_kernels fo_kernels_avx512amx = TABLE(avx512amx, with_tiles);
#endif
