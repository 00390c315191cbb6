/* Strided copies: runs that are contiguous in both tensors go through memcpy, pairs of axes of which one is contiguous
 * here and the other there through the transposition in registers, and what is left element by element. */
#include <string.h>

#include "axes.h"

/* A copy of n elements along the last axis, for each of m points of axis `row` and each point of the others. */
typedef struct {
    const fo_axes *axes;
    const fo_kernels *kn;
    float *y;
    const float *x;
    /* the axis that is cut into blocks; axes before and behind it, but for the last, are `outer` */
    int row;
    bool transposes;      /* x is contiguous along `row` */
    ptrdiff_t block, blocks;
    fo_axes outer;
} copy_job;

static void copy_rows(const copy_job *job, ptrdiff_t m, float *y, const float *x) {
    const int last = job->axes->nd - 1;
    const ptrdiff_t n = job->axes->size[last], sy = job->axes->stride[0][last], sx = job->axes->stride[1][last];
    const ptrdiff_t ldy = job->row < 0 ? 0 : job->axes->stride[0][job->row];
    const ptrdiff_t ldx = job->row < 0 ? 0 : job->axes->stride[1][job->row];
    if (job->transposes) {
        job->kn->transpose(n, m, x, sx, y, ldy);
        return;
    }
    for (ptrdiff_t i = 0; i < m; i++, y += ldy, x += ldx)
        if (sy == 1 && sx == 1)
            memcpy(y, x, (size_t)n * sizeof *y);
        else
            for (ptrdiff_t j = 0; j < n; j++) y[j * sy] = x[j * sx];
}

static void copy_block(void *context, ptrdiff_t task, int thread) {
    (void)thread;
    const copy_job *job = context;
    const ptrdiff_t i = task % job->blocks * job->block;
    ptrdiff_t offset[FO_TENSORS];
    fo_offsets(&job->outer, job->outer.nd, task / job->blocks, offset);
    float *y = job->y + offset[0];
    const float *x = job->x + offset[1];
    if (job->row < 0)
        copy_rows(job, 1, y, x);
    else
        copy_rows(job, min_(job->block, job->axes->size[job->row] - i), y + i * job->axes->stride[0][job->row],
                  x + i * job->axes->stride[1][job->row]);
}

/* The axis that forms rows with the last one: where the last is contiguous in y alone, the one that is so in x. */
static int row_axis(const fo_axes *a, bool *transposes) {
    const int last = a->nd - 1;
    *transposes = false;
    if (a->stride[0][last] == 1 && a->stride[1][last] != 1)
        for (int d = 0; d < last; d++)
            if (a->stride[1][d] == 1) {
                *transposes = true;
                return d;
            }
    return last - 1;
}

fo_status fo_strided_copy(const fo_copy_args *args) {
    const fo_axes *a = &args->axes;
    copy_job job = {.axes = a, .kn = fo_active(), .y = args->y, .x = args->x, .block = 1, .blocks = 1};
    job.row = row_axis(a, &job.transposes);
    for (int d = 0; d < a->nd - 1; d++) {
        if (d == job.row) continue;
        const int e = job.outer.nd++;
        job.outer.size[e] = a->size[d];
        for (int t = 0; t < FO_TENSORS; t++) job.outer.stride[t][e] = a->stride[t][d];
    }
    const ptrdiff_t n = max_(a->size[a->nd - 1], 1);
    if (job.row >= 0) {
        job.block = round_up(max_(1, FO_COPY_BYTES / (ptrdiff_t)sizeof(float) / n), job.transposes ? job.kn->vl : 1);
        job.blocks = div_up(a->size[job.row], job.block);
    }
    const double bytes = 8.0 * (double)fo_points(a, a->nd);
    const int threads = fo_threads_for(fo_nanoseconds(job.kn, 0, 2 * bytes));
    fo_parallel_for(fo_points(&job.outer, job.outer.nd) * job.blocks, threads, copy_block, &job);
    return FO_OK;
}

fo_status fo_fill(const fo_fill_args *args) {
    const fo_axes *a = &args->axes;
    const int last = a->nd - 1;
    for (ptrdiff_t i = 0, rows = fo_points(a, last); i < rows; i++) {
        ptrdiff_t offset[FO_TENSORS];
        fo_offsets(a, last, i, offset);
        for (ptrdiff_t j = 0; j < a->size[last]; j++) args->y[offset[0] + j * a->stride[0][last]] = args->value;
    }
    return FO_OK;
}

fo_status fo_gather(const fo_gather_args *g) {
    fo_copy_args part = {.axes = g->axes};
    for (ptrdiff_t i = 0; i < g->count; i++)
        if (g->indices[i] < -g->size || g->indices[i] >= g->size) return FO_OUTSIDE;
    for (ptrdiff_t i = 0; i < g->count; i++) {
        const ptrdiff_t at = g->indices[i] < 0 ? g->indices[i] + g->size : g->indices[i];
        part.y = g->y + i * g->sy;
        part.x = g->x + at * g->sx;
        fo_strided_copy(&part);
    }
    return FO_OK;
}
