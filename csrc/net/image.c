/* Resizing and local response normalisation: a task is one output row. */
#include "../pack.h"

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

fo_status fo_resize(const fo_resize_args *a) {
    row_job job = {fo_active(), a, a->oh};
    const double outputs = (double)a->n * a->c * a->oh * a->ow;
    fo_parallel_for(a->n * a->oh, fo_threads_for(fo_nanoseconds(job.kn, 4 * outputs, 8 * outputs)), resize_row, &job);
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
