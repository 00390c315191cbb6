/* Element-wise functions: the last two axes are the kernel's rows and columns, the others and blocks of rows tasks. */
#include "../dispatch/estimate.h"
#include "../runtime/parallel.h"
#include "axes.h"

typedef struct rows_job rows_job;
struct rows_job {
    const fo_axes *axes;
    /* Computes m rows of n elements; the tensors begin `offset` elements after where the call's do. */
    void (*run)(const rows_job *, const ptrdiff_t offset[FO_TENSORS], ptrdiff_t m, ptrdiff_t n);
    const fo_kernels *kn;
    const void *args;
    ptrdiff_t m, n, rows, columns, down, across;
    int outer; /* axes before the last two */
};

/* From a row, or an element of a row, of tensor t to the next. */
static ptrdiff_t row_stride(const fo_axes *x, int t) { return x->nd > 1 ? x->stride[t][x->nd - 2] : 0; }
static ptrdiff_t step_of(const fo_axes *x, int t) { return x->stride[t][x->nd - 1]; }

static void rows_block(void *context, ptrdiff_t task, int thread) {
    (void)thread;
    const rows_job *job = context;
    const ptrdiff_t j = task % job->across * job->columns, i = task / job->across % job->down * job->rows;
    ptrdiff_t offset[FO_TENSORS];
    fo_offsets(job->axes, job->outer, task / job->across / job->down, offset);
    for (int t = 0; t < FO_TENSORS; t++) offset[t] += i * row_stride(job->axes, t) + j * step_of(job->axes, t);
    job->run(job, offset, min_(job->rows, job->m - i), min_(job->columns, job->n - j));
}

/* Runs a job whose axes, run, kn and args are set; `each` is the cost of an element of so many bytes. */
static void run_rows(rows_job *job, double each, double bytes) {
    const fo_axes *x = job->axes;
    const int last = x->nd - 1, row = last - 1;
    job->m = row < 0 ? 1 : x->size[row], job->n = x->size[last], job->outer = max_(row, 0);
    const double elements = (double)fo_points(x, x->nd);
    if (!elements) return;
    const int threads = fo_threads_for(fo_nanoseconds(job->kn, each * elements, bytes * elements));
    const ptrdiff_t cuts = threads > 1 ? 4 * threads : 1, outer = fo_points(x, job->outer);
    job->rows = max_(1, div_up(job->m, div_up(cuts, max_(outer, 1))));
    job->down = div_up(job->m, job->rows);
    job->columns = job->m * outer < cuts ? round_up(div_up(job->n, cuts), 4 * job->kn->vl) : max_(job->n, 1);
    job->across = div_up(job->n, job->columns);
    fo_parallel_for(outer * job->down * job->across, threads, rows_block, job);
}

/* ---- floats ------------------------------------------------------------------------------------------------------ */

static void elementwise_rows(const rows_job *job, const ptrdiff_t offset[FO_TENSORS], ptrdiff_t m, ptrdiff_t n) {
    const fo_elementwise_args *a = job->args;
    const fo_axes *x = job->axes;
    fo_elementwise_rows r = {.f = a->f,
                             .m = m,
                             .n = n,
                             .y = a->y + offset[0],
                             .a = a->a + offset[1],
                             .b = a->b ? a->b + offset[2] : NULL,
                             .act = a->act};
    r.ldy = row_stride(x, 0), r.lda = row_stride(x, 1), r.ldb = row_stride(x, 2);
    r.sy = step_of(x, 0), r.sa = step_of(x, 1), r.sb = step_of(x, 2);
    job->kn->elementwise(&r);
}

static double cost(const fo_elementwise_args *a) {
    const bool by_lane = a->f == FO_ERF || a->f == FO_POW;
    return (by_lane ? FO_LIBM_MACS : 2) + fo_act_cost(&a->act);
}

fo_status fo_elementwise(const fo_elementwise_args *a) {
    rows_job job = {.axes = &a->axes, .run = elementwise_rows, .kn = fo_active(), .args = a};
    run_rows(&job, cost(a), 12);
    return FO_OK;
}

/* ---- elements of any type ---------------------------------------------------------------------------------------- */

static void map_rows(const rows_job *job, const ptrdiff_t offset[FO_TENSORS], ptrdiff_t m, ptrdiff_t n) {
    const fo_map_args *a = job->args;
    const bool where = a->f == FO_MAP_WHERE, gather = a->f == FO_MAP_GATHER;
    const void *const at[FO_TENSORS] = {a->y, a->a, a->b, a->c};
    const fo_dtype types[FO_TENSORS] = {a->to,
                                        where    ? FO_BOOL
                                        : gather ? a->to
                                                 : a->from,
                                        where ? a->to : a->from, a->to};
    fo_map_rows r = {.f = a->f, .from = a->from, .to = a->to, .m = m, .n = n, .size = a->size, .stride = a->stride};
    for (int t = 0; t < FO_TENSORS; t++) {
        r.ld[t] = row_stride(job->axes, t), r.step[t] = step_of(job->axes, t);
        r.at[t] = (char *)at[at[t] ? t : 1] + offset[at[t] ? t : 1] * fo_size(types[at[t] ? t : 1]);
        if (!at[t]) r.ld[t] = r.ld[1], r.step[t] = r.step[1]; /* a function of one argument reads it twice */
    }
    job->kn->map(&r);
}

fo_status fo_map(const fo_map_args *a) {
    rows_job job = {.axes = &a->axes, .run = map_rows, .kn = fo_active(), .args = a};
    if (a->f == FO_MAP_GATHER && !fo_are_inside(&a->axes, 2, a->b, a->size)) return FO_OUTSIDE;
    run_rows(&job, 2, 16);
    return FO_OK;
}
