/* Sums of what is before each element of fibres, added in the order of the elements. Where fibres are neighbors, rows
 * of them are added to rows, which the compiler makes vectors of. */
#include "../dispatch/estimate.h"
#include "../runtime/parallel.h"
#include "axes.h"

typedef struct {
    const fo_cumsum_args *a;
    fo_axes outer; /* without the axis of the lanes: neighboring fibres, if there are any */
    ptrdiff_t lanes, y_lane, x_lane, block, blocks;
} cumsum_job;

/* y and x: the first elements of the first of some fibres. */
#define CUMSUM(name, type) \
    static void name(const cumsum_job *job, ptrdiff_t lanes, type *y, const type *x) { \
        const ptrdiff_t n = job->a->n, sy = job->a->sy, sx = job->a->sx, ly = job->y_lane, lx = job->x_lane; \
        const ptrdiff_t first = job->a->exclusive; /* the row that has the first of x */ \
        for (ptrdiff_t l = 0; l < lanes; l++) y[l * ly] = first ? 0 : x[l * lx]; \
        if (ly != 1 || lx != 1) { \
            for (ptrdiff_t l = 0; l < lanes; l++) { \
                type sum = y[l * ly]; \
                for (ptrdiff_t p = 1; p < n; p++) y[p * sy + l * ly] = sum += x[(p - first) * sx + l * lx]; \
            } \
            return; \
        } \
        for (ptrdiff_t p = 1; p < n; p++) { \
            type *restrict const row = y + p * sy; \
            const type *const before = row - sy, *const from = x + (p - first) * sx; \
            for (ptrdiff_t l = 0; l < lanes; l++) row[l] = before[l] + from[l]; \
        } \
    }
CUMSUM(cumsum_floats, float)
CUMSUM(cumsum_int32, uint32_t) /* which wrap around */
CUMSUM(cumsum_int64, uint64_t)

static void cumsum_block(void *context, ptrdiff_t task, int thread) {
    (void)thread;
    const cumsum_job *job = context;
    const fo_cumsum_args *a = job->a;
    const ptrdiff_t lane = task % job->blocks * job->block, lanes = min_(job->block, job->lanes - lane);
    ptrdiff_t offset[FO_TENSORS];
    fo_offsets(&job->outer, job->outer.nd, task / job->blocks, offset);
    const ptrdiff_t y = offset[0] + lane * job->y_lane, x = offset[1] + lane * job->x_lane;
    if (a->type == FO_S64)
        cumsum_int64(job, lanes, (uint64_t *)a->y + y, (const uint64_t *)a->x + x);
    else if (a->type == FO_S32)
        cumsum_int32(job, lanes, (uint32_t *)a->y + y, (const uint32_t *)a->x + x);
    else
        cumsum_floats(job, lanes, (float *)a->y + y, (const float *)a->x + x);
}

fo_status fo_cumsum(const fo_cumsum_args *args) {
    fo_cumsum_args a = *args;
    cumsum_job job = {.a = &a, .outer = a.kept};
    const int last = --job.outer.nd;
    const ptrdiff_t size = fo_size(a.type);
    const double elements = (double)fo_points(&a.kept, a.kept.nd) * (double)a.n;
    if (elements == 0) return FO_OK;
    if (a.reverse) { /* from the last element on, at negative steps */
        a.y = (char *)a.y + (a.n - 1) * a.sy * size, a.x = (const char *)a.x + (a.n - 1) * a.sx * size;
        a.sy = -a.sy, a.sx = -a.sx;
    }
    const int threads = fo_threads_for(fo_nanoseconds(fo_active(), 4 * elements, 2 * (double)size * elements));
    job.lanes = a.kept.size[last], job.y_lane = a.kept.stride[0][last], job.x_lane = a.kept.stride[1][last];
    job.block = min_(FO_L1_SHARE / 16, div_up(job.lanes, threads > 1 ? 4 * threads : 1)); /* two rows stay there */
    job.blocks = div_up(job.lanes, job.block);
    fo_parallel_for(fo_points(&job.outer, job.outer.nd) * job.blocks, threads, cumsum_block, &job);
    return FO_OK;
}
