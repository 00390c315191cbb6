/* Rows at computed places, cut into ranges of points. */
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
