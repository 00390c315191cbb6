/* Pooling: where channels are neighbors a task is an output row of an image, else rows of a plane. */
#include <math.h>

#include "../dispatch/estimate.h"
#include "../runtime/arena.h"
#include "../runtime/parallel.h"

typedef struct {
    const fo_pool_args *a;
    const fo_kernels *kn;
    ptrdiff_t rows, blocks; /* of a plane: output rows of a block */
    fo_pool_strip strip;
    float *columns; /* a strip's of each thread */
} pool_job;

static void pool_row(void *context, ptrdiff_t task, int thread) {
    (void)thread;
    const pool_job *job = context;
    job->kn->pool_row(job->a, task / job->a->oh, task % job->a->oh);
}

static void pool_block(void *context, ptrdiff_t task, int thread) {
    const pool_job *job = context;
    const fo_pool_args *a = job->a;
    const ptrdiff_t plane = task / job->blocks, n = plane / a->c, c = plane % a->c,
                    first = task % job->blocks * job->rows;
    job->kn->pool_plane(a, a->x.data + n * a->x.sn + c * a->x.sc, a->y.data + n * a->y.sn + c * a->y.sc, first,
                        min_(first + job->rows, a->oh), &job->strip,
                        job->columns + thread * job->strip.rows * job->strip.width);
}

/* How many columns of each window count for a mean. */
static void count_columns(const fo_pool_args *a, ptrdiff_t n, float *counts) {
    for (ptrdiff_t w = 0; w < n; w++) {
        ptrdiff_t count = 0;
        for (ptrdiff_t j = 0, u = w * a->sw - a->left; j < a->kw; j++, u += a->dw) count += a->w_lo <= u && u < a->w_hi;
        counts[w] = (float)count;
    }
}

static fo_status pool_planes(pool_job *job, int threads) {
    const fo_pool_args *a = job->a;
    const ptrdiff_t vl = job->kn->vl, outputs = round_up(a->ow, vl), planes = a->n * a->c;
    const ptrdiff_t width = round_up(max_(outputs * a->sw + (a->kw - 1) * a->dw, a->left + a->iw) + vl, vl);
    job->rows = planes < 4 * threads ? div_up(a->oh, div_up(4 * threads, max_(planes, 1))) : a->oh;
    job->blocks = div_up(a->oh, max_(job->rows, 1));
    const ptrdiff_t fit = FO_L1_SHARE / (width * (ptrdiff_t)sizeof(float)), rows = max_(min_(fit, job->rows), 1);
    float *counts = fo_arena_take((size_t)(outputs + rows * width * threads) * sizeof(float));
    if (!counts) return FO_NO_MEMORY;
    count_columns(a, a->kind == FO_POOL_MAX ? 0 : outputs, counts);
    job->strip = (fo_pool_strip){rows, width, counts}, job->columns = counts + outputs;
    for (ptrdiff_t i = 0; i < rows * width * threads; i++) job->columns[i] = a->kind == FO_POOL_MAX ? -INFINITY : 0;
    fo_parallel_for(planes * job->blocks, threads, pool_block, job);
    fo_arena_release(counts);
    return FO_OK;
}

static void pool_whole(void *context, ptrdiff_t task, int thread) {
    (void)thread;
    const pool_job *job = context;
    const ptrdiff_t vl = job->kn->vl, end = min_((task + 1) * job->rows, job->a->n * job->a->c);
    for (ptrdiff_t i = task * job->rows; i < end; i += vl) job->kn->pool_whole(job->a, i, min_(vl, end - i));
}

/* Whether each plane has one window, of neighbors that all lie inside. */
static bool is_whole(const fo_pool_args *a) {
    return a->oh == 1 && a->ow == 1 && a->x.sw == 1 && a->dw == 1 && !a->top && !a->left && a->kw <= a->iw &&
           (a->kh - 1) * a->dh < a->ih;
}

fo_status fo_pool(const fo_pool_args *a) {
    pool_job job = {.a = a, .kn = fo_active()};
    const double outputs = (double)a->n * a->c * a->oh * a->ow, inputs = (double)a->n * a->c * a->ih * a->iw;
    const int threads = fo_threads_for(fo_nanoseconds(job.kn, 4 * outputs * a->kh * a->kw, 4 * (outputs + inputs)));
    if (a->x.sc != 1 && is_whole(a)) {
        const ptrdiff_t planes = a->n * a->c;
        job.rows = round_up(div_up(planes, threads > 1 ? 4 * threads : 1), job.kn->vl);
        fo_parallel_for(div_up(planes, job.rows), threads, pool_whole, &job);
        return FO_OK;
    }
    if (a->x.sc != 1 || a->y.sc != 1 || a->c == 1) return pool_planes(&job, threads);
    fo_parallel_for(a->n * a->oh, threads, pool_row, &job);
    return FO_OK;
}
