/* Rows after those of a past, from a place that each part of a batch has: keys and values of new tokens.
 *
 * Where the past is the result's own memory, its rows stay where they are.
 */
#include <string.h>

#include "../dispatch/estimate.h"
#include "../runtime/parallel.h"
#include "axes.h"

static void append_head(void *context, ptrdiff_t task, int thread) {
    (void)thread;
    const fo_append_args *a = context;
    const ptrdiff_t n = task / a->heads, h = task % a->heads, begin = (ptrdiff_t)a->begins[n];
    const ptrdiff_t size = a->size;
    const char *x = (const char *)a->x + (n * a->xn + h * a->xh) * size,
               *past = a->past ? (const char *)a->past + (n * a->pn + h * a->ph) * size : NULL;
    const size_t bytes = (size_t)(a->d * size);
    char *y = (char *)a->y + (n * a->yn + h * a->yh) * size;
    for (ptrdiff_t p = 0; p < begin && past != y; p++) memcpy(y + p * a->yt * size, past + p * a->pt * size, bytes);
    for (ptrdiff_t p = 0; p < a->t; p++) memcpy(y + (begin + p) * a->yt * size, x + p * a->xt * size, bytes);
    for (ptrdiff_t p = begin + a->t; p < a->room; p++) memset(y + p * a->yt * size, 0, bytes);
}

fo_status fo_append(const fo_append_args *a) {
    for (ptrdiff_t n = 0; n < a->n; n++)
        if (a->begins[n] < 0 || a->begins[n] > (a->past ? a->kept : 0) || a->begins[n] + a->t > a->room)
            return FO_OUTSIDE;
    const double elements = (double)a->n * (double)a->heads * (double)a->room * (double)a->d;
    const int threads = fo_threads_for(fo_nanoseconds(fo_active(), 0, 2 * elements * (double)a->size));
    fo_parallel_for(a->n * a->heads, threads, append_head, (void *)a);
    return FO_OK;
}
