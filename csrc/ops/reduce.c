/* Reductions, softmax and norms: the kept axes are cut into tasks, the last of them into ranges of fibres. */
#include "../dispatch/estimate.h"
#include "../runtime/parallel.h"
#include "axes.h"

typedef struct fibre_job fibre_job;
struct fibre_job {
    const fo_kernels *kn;
    const fo_axes *kept;
    fo_fibres f; /* of the last kept axis */
    ptrdiff_t block, blocks;
    void (*run)(const fibre_job *, const fo_fibres *, ptrdiff_t scale);
    const void *args;
};

static void fibre_block(void *context, ptrdiff_t task, int thread) {
    (void)thread;
    const fibre_job *job = context;
    const ptrdiff_t first = task % job->blocks * job->block;
    ptrdiff_t offset[FO_TENSORS];
    fo_fibres f = job->f;
    fo_offsets(job->kept, job->kept->nd - 1, task / job->blocks, offset);
    f.w = min_(job->block, f.w - first);
    f.to += offset[0] + first * f.y.lane;
    f.from += offset[1] + first * f.x.lane;
    job->run(job, &f, offset[2] + first * f.scale.lane);
}

/* Runs a job whose kn, kept, run, args and f.to, f.from, f.n and steps are set; `each` is the cost of an
 * element. */
static void run_fibres(fibre_job *job, double elements, double each) {
    const int last = job->kept->nd - 1;
    const ptrdiff_t outer = fo_points(job->kept, last);
    const int threads = fo_threads_for(fo_nanoseconds(job->kn, each * elements, 8 * elements));
    job->f.w = job->kept->size[last];
    job->f.y.lane = job->kept->stride[0][last];
    job->f.x.lane = job->kept->stride[1][last];
    job->f.scale.lane = job->kept->stride[2][last];
    const ptrdiff_t cuts = threads > 1 && outer < 4 * threads ? div_up(4 * threads, max_(outer, 1)) : 1;
    job->block = max_(1, min_(job->f.w, round_up(div_up(job->f.w, cuts), job->f.x.step == 1 ? 1 : job->kn->vl)));
    job->blocks = div_up(job->f.w, job->block);
    fo_parallel_for(outer * job->blocks, threads, fibre_block, job);
}

static void run_reduce(const fibre_job *job, const fo_fibres *f, ptrdiff_t scale) {
    (void)scale;
    const fo_reduce_args *a = job->args;
    ptrdiff_t outer[2] = {1, 1}, step[2] = {0, 0};
    for (int d = 0; d < a->over.nd - 1; d++) outer[d] = a->over.size[d], step[d] = a->over.stride[0][d];
    job->kn->reduce(f, a->kind, outer, step);
}

fo_status fo_reduce(const fo_reduce_args *a) {
    const int last = a->over.nd - 1;
    fibre_job job = {.kn = fo_active(), .kept = &a->kept, .run = run_reduce, .args = a};
    job.f.to = a->y, job.f.from = a->x;
    job.f.n = a->over.size[last];
    job.f.x.step = a->over.stride[0][last];
    run_fibres(&job, (double)fo_points(&a->kept, a->kept.nd) * (double)fo_points(&a->over, a->over.nd), 1);
    return FO_OK;
}

static void run_argmax(const fibre_job *job, const fo_fibres *f, ptrdiff_t scale) {
    const fo_argmax_args *a = job->args;
    job->kn->argmax(f, a->y + scale, a->least);
}

fo_status fo_argmax(const fo_argmax_args *a) {
    fibre_job job = {.kn = fo_active(), .kept = &a->kept, .run = run_argmax, .args = a};
    job.f.to = (float *)(void *)a->y; /* places are found by the third strides */
    job.f.from = a->x, job.f.n = a->n, job.f.x.step = a->sx;
    run_fibres(&job, (double)fo_points(&a->kept, a->kept.nd) * (double)a->n, 2);
    return FO_OK;
}

static void run_softmax(const fibre_job *job, const fo_fibres *f, ptrdiff_t scale) {
    (void)scale;
    job->kn->softmax(f, ((const fo_softmax_args *)job->args)->log);
}

fo_status fo_softmax(const fo_softmax_args *a) {
    fibre_job job = {.kn = fo_active(), .kept = &a->kept, .run = run_softmax, .args = a};
    job.f.to = a->y, job.f.from = a->x;
    job.f.n = a->n, job.f.y.step = a->sy, job.f.x.step = a->sx;
    run_fibres(&job, (double)fo_points(&a->kept, a->kept.nd) * (double)a->n, 16);
    return FO_OK;
}

static void run_norm(const fibre_job *job, const fo_fibres *f, ptrdiff_t scale) {
    const fo_norm_args *all = job->args;
    fo_norm_args a = *all;
    if (a.scale) a.scale += scale;
    if (a.shift) a.shift += scale;
    if (a.residual) a.residual += f->from - all->x;
    job->kn->norm(f, &a);
}

fo_status fo_norm(const fo_norm_args *a) {
    fibre_job job = {.kn = fo_active(), .kept = &a->kept, .run = run_norm, .args = a};
    job.f.to = a->y, job.f.from = a->x;
    job.f.n = a->n, job.f.y.step = a->sy, job.f.x.step = a->sx, job.f.scale.step = a->ss;
    run_fibres(&job, (double)fo_points(&a->kept, a->kept.nd) * (double)a->n, 6);
    return FO_OK;
}
