/* Resizing and local response normalization: a task is an output row of an image, or rows of a plane. */
#include "../dispatch/estimate.h"
#include "../runtime/arena.h"
#include "../runtime/parallel.h"

typedef struct {
    const fo_kernels *kn;
    const void *args;
    ptrdiff_t rows; /* of an image */
} row_job;

static void resize_row(void *context, ptrdiff_t task, int thread) {
    (void)thread;
    const row_job *job = context;
    job->kn->resize_row(job->args, task / job->rows, task % job->rows);
}

typedef struct {
    const fo_kernels *kn;
    const fo_resize_args *a;
    ptrdiff_t rows, blocks; /* of a plane: output rows of a block */
    float *memory;          /* of each thread, two rows */
} plane_job;

static void resize_block(void *context, ptrdiff_t task, int thread) {
    const plane_job *job = context;
    const fo_resize_args *a = job->a;
    const ptrdiff_t plane = task / job->blocks, n = plane / a->c, c = plane % a->c,
                    first = task % job->blocks * job->rows;
    job->kn->resize_plane(a, a->x.data + n * a->x.sn + c * a->x.sc, a->y.data + n * a->y.sn + c * a->y.sc, first,
                          min_(first + job->rows, a->oh), job->memory + thread * 2 * a->ow);
}

static fo_status resize_planes(const fo_kernels *kn, const fo_resize_args *a, int threads) {
    const ptrdiff_t planes = a->n * a->c;
    plane_job job = {.kn = kn, .a = a, .memory = fo_arena_take((size_t)(2 * a->ow * threads) * sizeof(float))};
    if (!job.memory) return FO_NO_MEMORY;
    job.rows = planes < 4 * threads ? div_up(a->oh, div_up(4 * threads, max_(planes, 1))) : a->oh;
    job.blocks = div_up(a->oh, max_(job.rows, 1));
    fo_parallel_for(planes * job.blocks, threads, resize_block, &job);
    fo_arena_release(job.memory);
    return FO_OK;
}

fo_status fo_resize(const fo_resize_args *a) {
    row_job job = {fo_active(), a, a->oh};
    const double outputs = (double)a->n * a->c * a->oh * a->ow;
    const int threads = fo_threads_for(fo_nanoseconds(job.kn, 4 * outputs, 8 * outputs));
    if (a->x.sc != 1 || a->y.sc != 1 || a->c == 1) return resize_planes(job.kn, a, threads);
    fo_parallel_for(a->n * a->oh, threads, resize_row, &job);
    return FO_OK;
}

static void lrn_row(void *context, ptrdiff_t task, int thread) {
    (void)thread;
    const row_job *job = context;
    job->kn->lrn_row(job->args, task / job->rows, task % job->rows);
}

fo_status fo_lrn(const fo_lrn_args *a) {
    row_job job = {fo_active(), a, a->h};
    const double outputs = (double)a->n * a->c * a->h * a->w;
    const double each = (double)a->size + (a->beta == 0.75f ? 20 : FO_LIBM_MACS);
    fo_parallel_for(a->n * a->h, fo_threads_for(fo_nanoseconds(job.kn, each * outputs, 8 * outputs)), lrn_row, &job);
    return FO_OK;
}
