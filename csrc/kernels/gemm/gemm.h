/* C = epilogue(A B), with sums of any length. */
#include "macro_kernel.h"
#include "blocked_sum.h"
#include "gemv_dot.h"

void FO_NAME(fo_gemm)(const fo_gemm_args *g) {
    if (!g->m || !g->n) return;
    if (g->form == FO_COLUMNS)
        gemm_dots(g);
    else if (g->k > FO_CHAIN_STEPS)
        gemm_long(g);
    else
        gemm_walk(g);
}

/* Weights in blocks as a panel of floats. */
void FO_NAME(fo_unpack)(const fo_blockwise *w, ptrdiff_t k, ptrdiff_t column, float *to) {
    const fo_gemm_args g = {.bits = w, .k = k, .column = column};
    blockwise_steps(&g, (tile_shape){0, NV, false, FO_BLOCKWISE, FO_F32}, NULL, NULL, 0, to);
}
