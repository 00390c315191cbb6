/* Elements or parts of a tensor, put where indices say: ScatterND and ScatterElements.
 *
 * Points that differ along an axis of y that no index names reach different elements, so threads share such an axis;
 * all others are done in order, and of equal indices the last one counts. All indices are looked at before anything is
 * written. */
#include <string.h>

#include "../dispatch/estimate.h"
#include "axes.h"

typedef void scatter_fn(ptrdiff_t n, void *y, const ptrdiff_t *at, ptrdiff_t sy, const void *updates, ptrdiff_t su);

typedef struct {
    const fo_scatter_args *a;
    scatter_fn *run;
    ptrdiff_t size;     /* bytes of an element */
    int shared, pieces; /* the axis of points that tasks divide, and into how many; -1, 1 */
} scatter_job;

/* y = value of y and u, n elements, those of y where `at` says, or sy from each other. */
#define SCATTER_ROW(type, value, y_at, u_at) \
    for (ptrdiff_t i = 0; i < n; i++) { \
        const type y = to[y_at], u = updates[u_at]; \
        to[y_at] = (type)(value); \
    }
#define SCATTER(name, type, value) \
    static void scatter_##name(ptrdiff_t n, void *all, const ptrdiff_t *at, ptrdiff_t sy, const void *from, \
                               ptrdiff_t su) { \
        type *const to = all; \
        const type *const updates = from; \
        if (at) \
            SCATTER_ROW(type, value, at[i], i * su) \
        else if (sy == 1 && su == 1) \
            SCATTER_ROW(type, value, i, i) \
        else \
            SCATTER_ROW(type, value, i * sy, i * su) \
    }
#define SET(bits) SCATTER(set_##bits, uint##bits##_t, ((void)y, u))
SET(8)
SET(16)
SET(32)
SET(64)
/* Integers wrap around, and NaN goes through a maximum, as in NumPy. */
#define REDUCTIONS(name, type, wide) \
    SCATTER(add_##name, type, (wide)y + (wide)u) \
    SCATTER(mul_##name, type, (wide)y *(wide)u) \
    SCATTER(max_##name, type, y > u || y != y ? y : u) \
    SCATTER(min_##name, type, y < u || y != y ? y : u)
REDUCTIONS(f32, float, float)
REDUCTIONS(s32, int32_t, uint32_t)
REDUCTIONS(s64, int64_t, uint64_t)

static scatter_fn *function_of(const fo_scatter_args *a) {
#define ROW(name) {scatter_add_##name, scatter_mul_##name, scatter_max_##name, scatter_min_##name}
    static scatter_fn *const reductions[][4] = {ROW(f32), ROW(s32), ROW(s64)};
#undef ROW
    static scatter_fn *const sets[] = {scatter_set_8, scatter_set_16, scatter_set_32, scatter_set_64};
    if (a->kind == FO_SCATTER_SET) return sets[__builtin_ctz((unsigned)fo_size(a->type))];
    return reductions[a->type == FO_F32 ? 0 : a->type == FO_S32 ? 1 : 2][a->kind - FO_SCATTER_ADD];
}

static bool is_inside(const fo_scatter_args *a) {
    for (int d = 0; d < a->named.nd; d++)
        if (!fo_are_inside(&a->points, 2, a->indices + d * a->component, a->named.size[d])) return false;
    return true;
}

/* at[j] += where the indices of point j lead to in y; their distance is si. */
static void add_offsets(const fo_scatter_args *a, const int64_t *indices, ptrdiff_t si, ptrdiff_t count,
                        ptrdiff_t *at) {
    for (int d = 0; d < a->named.nd; d++) {
        const ptrdiff_t size = a->named.size[d], stride = a->named.stride[0][d];
        const int64_t *const index = indices + d * a->component;
        for (ptrdiff_t j = 0; j < count; j++) {
            const ptrdiff_t i = (ptrdiff_t)index[j * si];
            at[j] += (i < 0 ? i + size : i) * stride;
        }
    }
}

/* n points in a row from these places of y, updates and indices on: all at one index, or some at a time. */
static void scatter_row(const scatter_job *job, const ptrdiff_t stride[FO_TENSORS], ptrdiff_t n,
                        const ptrdiff_t from[FO_TENSORS]) {
    const fo_scatter_args *a = job->a;
    const char *const updates = (const char *)a->updates + from[1] * job->size;
    ptrdiff_t at[MAX_LANES] = {from[0]};
    if (!stride[2]) {
        add_offsets(a, a->indices + from[2], 0, 1, at);
        job->run(n, (char *)a->y + at[0] * job->size, NULL, stride[0], updates, stride[1]);
        return;
    }
    for (ptrdiff_t j = 0; j < n; j += MAX_LANES) {
        const ptrdiff_t count = min_(n - j, MAX_LANES);
        for (ptrdiff_t i = 0; i < count; i++) at[i] = from[0] + (j + i) * stride[0];
        add_offsets(a, a->indices + from[2] + j * stride[2], stride[2], count, at);
        job->run(count, a->y, at, 0, updates + j * stride[1] * job->size, stride[1]);
    }
}

static void scatter_piece(void *context, ptrdiff_t task, int thread) {
    (void)thread;
    const scatter_job *job = context;
    const fo_scatter_args *a = job->a;
    fo_axes points = a->points;
    ptrdiff_t base[FO_TENSORS] = {0};
    if (job->shared >= 0) {
        const ptrdiff_t n = points.size[job->shared], first = n * task / job->pieces;
        points.size[job->shared] = n * (task + 1) / job->pieces - first;
        for (int t = 0; t < 3; t++) base[t] = first * points.stride[t][job->shared];
    }
    const int last = points.nd - 1;
    ptrdiff_t stride[FO_TENSORS];
    for (int t = 0; t < FO_TENSORS; t++) stride[t] = points.stride[t][last];
    for (ptrdiff_t i = 0, rows = fo_points(&points, last); i < rows; i++) {
        ptrdiff_t from[FO_TENSORS];
        fo_offsets(&points, last, i, from);
        for (int t = 0; t < 3; t++) from[t] += base[t];
        scatter_row(job, stride, points.size[last], from);
    }
}

fo_status fo_scatter(const fo_scatter_args *a) {
    scatter_job job = {.a = a, .run = function_of(a), .size = fo_size(a->type), .shared = -1, .pieces = 1};
    const double elements = (double)fo_points(&a->points, a->points.nd);
    if (!is_inside(a)) return FO_OUTSIDE;
    if (a->y != a->x) {
        const fo_status status = fo_strided_copy(&(fo_copy_args){a->whole, a->y, a->x, job.size});
        if (status != FO_OK) return status;
    }
    if (elements == 0) return FO_OK;
    const int threads = fo_threads_for(fo_nanoseconds(fo_active(), 4 * elements, 3 * (double)job.size * elements));
    for (int d = 0; d < a->points.nd; d++)
        if (a->points.stride[0][d] && (job.shared < 0 || a->points.size[d] > a->points.size[job.shared]))
            job.shared = d;
    if (job.shared >= 0) job.pieces = (int)min_(threads, a->points.size[job.shared]);
    fo_parallel_for(job.pieces, job.pieces, scatter_piece, &job);
    return FO_OK;
}
