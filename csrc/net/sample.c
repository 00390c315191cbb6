/* Rows at computed places, cut into ranges of points; images between their pixels, in rows of them. */
#include "../pack.h"

typedef struct {
    const fo_sample_args *a;
    const fo_kernels *kn;
    ptrdiff_t each;
} sample_job;

static void sample_range(void *context, ptrdiff_t task, int thread) {
    (void)thread;
    const sample_job *job = context;
    job->kn->sample(job->a, task * job->each, min_((task + 1) * job->each, job->a->points));
}

void fo_sample(const fo_sample_args *a) {
    if (!a->points || !a->c) return;
    const double read = (double)a->points * (double)a->taps * (double)a->c;
    const fo_kernels *kn = fo_active();
    const int threads = fo_threads_for(fo_nanoseconds(kn, 2 * read, 4 * read));
    sample_job job = {a, kn, div_up(a->points, threads)};
    fo_parallel_for(div_up(a->points, job.each), threads, sample_range, &job);
}

typedef struct {
    const fo_grid_sample_args *a;
    const fo_kernels *kn;
} grid_job;

static void grid_row(void *context, ptrdiff_t task, int thread) {
    (void)thread;
    const grid_job *job = context;
    job->kn->grid_row(job->a, task / job->a->oh, task % job->a->oh);
}

fo_status fo_grid_sample(const fo_grid_sample_args *a) {
    const double points = (double)a->n * (double)a->oh * (double)a->ow, taps = a->mode == FO_BY_CUBIC ? 16 : 4;
    if (points == 0 || !a->c) return FO_OK;
    if (!a->h || !a->w) return FO_OUTSIDE;
    grid_job job = {a, fo_active()};
    const int threads = fo_threads_for(fo_nanoseconds(job.kn, points * taps * (4 + (double)a->c), 4 * points));
    fo_parallel_for(a->n * a->oh, threads, grid_row, &job);
    return FO_OK;
}
