/* Pairs of elements turned by angles: rotary positions. A row is d elements, of which the first 2 half are pairs: one
 * stands `half` elements after the other, or next to it. The compiler makes vectors of the loops.
 */
#include "../dispatch/estimate.h"
#include "../runtime/parallel.h"
#include "axes.h"

typedef struct {
    const fo_rotate_args *a;
    ptrdiff_t rows, each; /* in all, of a task */
} rotate_job;

static void rotate_halves(ptrdiff_t half, float *restrict y, const float *x, const float *c, const float *s) {
    for (ptrdiff_t i = 0; i < half; i++) {
        const float u = x[i], v = x[half + i];
        y[i] = u * c[i] - v * s[i];
        y[half + i] = u * s[i] + v * c[i];
    }
}

static void rotate_strided(const fo_rotate_args *a, float *y, const float *x, const float *c, const float *s) {
    const ptrdiff_t next = a->interleaved ? 2 : 1, other = a->interleaved ? 1 : a->half;
    for (ptrdiff_t i = 0; i < a->half; i++) {
        const float u = x[i * next * a->sx], v = x[(i * next + other) * a->sx];
        y[i * next * a->sy] = u * c[i] - v * s[i];
        y[(i * next + other) * a->sy] = u * s[i] + v * c[i];
    }
}

static void rotate_rows(void *context, ptrdiff_t task, int thread) {
    (void)thread;
    const rotate_job *j = context;
    const fo_rotate_args *a = j->a;
    for (ptrdiff_t i = task * j->each; i < min_((task + 1) * j->each, j->rows); i++) {
        ptrdiff_t at[FO_TENSORS];
        fo_offsets(&a->rows, a->rows.nd, i, at);
        float *y = a->y + at[0];
        const float *x = a->x + at[1];
        if (!a->interleaved && a->sx == 1 && a->sy == 1)
            rotate_halves(a->half, y, x, a->c + at[2], a->s + at[3]);
        else
            rotate_strided(a, y, x, a->c + at[2], a->s + at[3]);
        for (ptrdiff_t k = 2 * a->half; k < a->d; k++) y[k * a->sy] = x[k * a->sx];
    }
}

fo_status fo_rotate(const fo_rotate_args *a) {
    rotate_job j = {.a = a, .rows = fo_points(&a->rows, a->rows.nd)};
    const double elements = (double)j.rows * (double)a->d;
    if (elements == 0) return FO_OK;
    const int threads = fo_threads_for(fo_nanoseconds(fo_active(), 4 * elements, 12 * elements));
    j.each = div_up(j.rows, threads);
    fo_parallel_for(div_up(j.rows, j.each), threads, rotate_rows, &j);
    return FO_OK;
}
