/* Products of groups of rows, each by a matrix of its own: the experts of a mixture, one after another. Each is a
 * product whose blocks are tasks. */
#include <string.h>

#include "../include/fusedops/fusedops.h"

fo_status fo_grouped_matmul(const fo_grouped_matmul_args *a) {
    ptrdiff_t begin = 0;
    for (ptrdiff_t g = 0; g < a->groups; g++) {
        const int64_t end = a->ends[g]; /* once: it may be the caller's array */
        if (end < begin || end > a->each.m) return FO_OUTSIDE;
        fo_matmul_args one = a->each;
        one.m = (ptrdiff_t)end - begin;
        one.y += begin * one.ym, one.a += begin * one.am, one.b += g * a->wg;
        const fo_status status = fo_matmul(&one);
        if (status != FO_OK) return status;
        begin = (ptrdiff_t)end;
    }
    for (ptrdiff_t i = begin; i < a->each.m; i++)
        memset(a->each.y + i * a->each.ym, 0, (size_t)a->each.n * sizeof(float));
    return FO_OK;
}
