/* Products of groups of rows, each by a matrix of its own: the experts of a mixture, one after another, each as a product
 * whose blocks are tasks. */
#include <string.h>

#include "../fusedops.h"

static bool are_ends(const fo_grouped_matmul_args *a) {
    int64_t begin = 0;
    for (ptrdiff_t g = 0; g < a->groups; begin = a->ends[g++])
        if (a->ends[g] < begin || a->ends[g] > a->each.m) return false;
    return true;
}

fo_status fo_grouped_matmul(const fo_grouped_matmul_args *a) {
    if (!are_ends(a)) return FO_OUTSIDE;
    ptrdiff_t begin = 0;
    for (ptrdiff_t g = 0; g < a->groups; g++) {
        fo_matmul_args one = a->each;
        one.m = (ptrdiff_t)a->ends[g] - begin;
        one.y += begin * one.ym, one.a += begin * one.am, one.b += g * a->wg;
        const fo_status status = fo_matmul(&one);
        if (status != FO_OK) return status;
        begin = (ptrdiff_t)a->ends[g];
    }
    for (ptrdiff_t i = begin; i < a->each.m; i++)
        memset(a->each.y + i * a->each.ym, 0, (size_t)a->each.n * sizeof(float));
    return FO_OK;
}
