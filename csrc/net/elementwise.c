/* Element-wise functions: the last two axes are the kernel's rows and columns, the others and blocks of rows tasks. */
#include "axes.h"

typedef struct {
    const fo_elementwise_args *a;
    const fo_kernels *kn;
    fo_elementwise_rows r; /* the last two axes whole */
    ptrdiff_t rows, columns, down, across;
    int outer; /* axes before them */
} elementwise_job;

static void elementwise_block(void *context, ptrdiff_t task, int thread) {
    (void)thread;
    const elementwise_job *job = context;
    const ptrdiff_t j = task % job->across * job->columns, i = task / job->across % job->down * job->rows;
    ptrdiff_t offset[FO_TENSORS];
    fo_offsets(&job->a->axes, job->outer, task / job->across / job->down, offset);
    fo_elementwise_rows r = job->r;
    r.m = min_(job->rows, r.m - i);
    r.n = min_(job->columns, r.n - j);
    r.y += offset[0] + i * r.ldy + j * r.sy;
    r.a += offset[1] + i * r.lda + j * r.sa;
    if (r.b) r.b += offset[2] + i * r.ldb + j * r.sb;
    job->kn->elementwise(&r);
}

static double cost(const fo_elementwise_args *a) {
    const bool by_lane = a->f == FO_LOG || a->f == FO_ERF || a->f == FO_POW;
    return (by_lane ? FO_LIBM_MACS : 2) + fo_act_cost(&a->act);
}

fo_status fo_elementwise(const fo_elementwise_args *a) {
    const fo_axes *x = &a->axes;
    const int last = x->nd - 1, row = x->nd > 1 ? x->nd - 2 : -1;
    elementwise_job job = {.a = a, .kn = fo_active(), .outer = row < 0 ? 0 : row};
    job.r = (fo_elementwise_rows){.f = a->f, .m = row < 0 ? 1 : x->size[row], .n = x->size[last], .a = a->a, .b = a->b,
                                  .y = a->y, .sy = x->stride[0][last], .sa = x->stride[1][last],
                                  .sb = x->stride[2][last], .act = a->act};
    if (row >= 0) job.r.ldy = x->stride[0][row], job.r.lda = x->stride[1][row], job.r.ldb = x->stride[2][row];
    const double elements = (double)fo_points(x, x->nd);
    const int threads = fo_threads_for(fo_nanoseconds(job.kn, cost(a) * elements, 12 * elements));
    const ptrdiff_t cuts = threads > 1 ? 4 * threads : 1, outer = fo_points(x, job.outer);
    job.rows = max_(1, div_up(job.r.m, div_up(cuts, max_(outer, 1))));
    job.down = div_up(job.r.m, job.rows);
    job.columns = job.r.m * outer < cuts ? round_up(div_up(job.r.n, cuts), 4 * job.kn->vl) : max_(job.r.n, 1);
    job.across = div_up(job.r.n, job.columns);
    fo_parallel_for(outer * job.down * job.across, threads, elementwise_block, &job);
    return FO_OK;
}
