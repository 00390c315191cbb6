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
