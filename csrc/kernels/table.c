/* The table of one instruction set. */
#include "kernels.h"

#define IF_SHORT(f) (VEC_IS_LINE ? NULL : FO_NAME(f)) /* measured with AVX2 */

const fo_kernels FO_NAME(fo_kernels) = {
    .name = FO_STRING(FO_ISA), .vl = VL, .mr = MR, .nr = NR, .vec_is_line = VEC_IS_LINE,
    .group = GROUP, .group_of_3 = GROUP_OF_3,
    .gemm = FO_NAME(fo_gemm),
    .stem = IF_SHORT(fo_stem),
    .stem_rows = IF_SHORT(fo_stem_rows),
    .strassen_operands = FO_NAME(fo_strassen_operands),
    .strassen = FO_NAME(fo_strassen),
    .winograd_weights = FO_NAME(fo_winograd_weights),
    .winograd_input = FO_NAME(fo_winograd_input),
    .winograd_output = FO_NAME(fo_winograd_output),
    .winograd_rows = {FO_NAME(fo_winograd_columns), FO_NAME(fo_winograd_row), FO_NAME(fo_winograd_back_row),
                      FO_NAME(fo_winograd_back_columns)},
    .step = FO_NAME(fo_step),
    .depthwise = FO_NAME(fo_depthwise),
    .depthwise_line = FO_NAME(fo_depthwise_line),
    .pointwise = FO_NAME(fo_pointwise),
    .elementwise = FO_NAME(fo_elementwise),
    .pool_row = FO_NAME(fo_pool_row),
    .pool_plane = FO_NAME(fo_pool_plane),
    .reduce = FO_NAME(fo_reduce),
    .softmax = FO_NAME(fo_softmax),
    .norm = FO_NAME(fo_norm),
    .attention_weights = FO_NAME(fo_attention_weights),
    .attention_merge = FO_NAME(fo_attention_merge),
    .attention_end = FO_NAME(fo_attention_end),
    .lrn_row = FO_NAME(fo_lrn_row),
    .resize_row = FO_NAME(fo_resize_row),
    .resize_plane = FO_NAME(fo_resize_plane),
    .transpose = FO_NAME(fo_transpose),
    .sum = FO_NAME(fo_sum),
    .pad = FO_NAME(fo_pad),
    .fold = FO_NAME(fo_fold),
};
