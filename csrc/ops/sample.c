/* Rows at computed positions, and images between their pixels: cut into ranges of points. */
#include "../dispatch/estimate.h"
#include "../runtime/parallel.h"

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
    ptrdiff_t parts, each; /* of a row; points of a part */
} grid_job;

static void grid_part(void *context, ptrdiff_t task, int thread) {
    (void)thread;
    const grid_job *job = context;
    const ptrdiff_t row = task / job->parts, first = task % job->parts * job->each;
    fo_grid_sample_args a = *job->a;
    a.ow = min_(a.ow - first, job->each);
    a.rows.places += first * a.pw, a.columns.places += first * a.pw;
    a.y.data += first * a.y.sw;
    job->kn->grid_row(&a, row / a.oh, row % a.oh);
}

fo_status fo_grid_sample(const fo_grid_sample_args *a) {
    const double points = (double)a->n * (double)a->oh * (double)a->ow, taps = a->mode == FO_BY_CUBIC ? 16 : 4;
    if (points == 0 || !a->c) return FO_OK;
    if (!a->h || !a->w) return FO_OUTSIDE;
    grid_job job = {.a = a, .kn = fo_active()};
    const int threads = fo_threads_for(fo_nanoseconds(job.kn, points * taps * (4 + (double)a->c), 4 * points));
    job.each = div_up(a->ow, div_up(threads, a->n * a->oh)); /* rows are cut where there are fewer than threads */
    job.parts = div_up(a->ow, job.each);
    fo_parallel_for(a->n * a->oh * job.parts, threads, grid_part, &job);
    return FO_OK;
}
