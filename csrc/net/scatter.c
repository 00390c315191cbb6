/* Elements or parts of a tensor, put where indices say: ScatterND and ScatterElements.
 *
 * Points that differ along an axis of y that no index names reach different elements, so threads share such an axis;
 * all others are done in order, and of equal indices the last one counts. All indices are looked at before anything is
 * written. */
#include <string.h>

#include "axes.h"

typedef void scatter_fn(ptrdiff_t n, void *y, ptrdiff_t sy, const void *updates, ptrdiff_t su);

typedef struct {
    const fo_scatter_args *a;
    scatter_fn *run;
    ptrdiff_t size;     /* bytes of an element */
    int shared, pieces; /* the axis of points that tasks divide, and into how many; -1, 1 */
} scatter_job;

/* y = value of y and u, n elements. */
#define SCATTER(name, type, value) \
    static void scatter_##name(ptrdiff_t n, void *to, ptrdiff_t sy, const void *from, ptrdiff_t su) { \
        type *const at = to; \
        const type *const updates = from; \
        if (sy == 1 && su == 1) \
            for (ptrdiff_t i = 0; i < n; i++) { \
                const type y = at[i], u = updates[i]; \
                at[i] = (type)(value); \
            } \
        else \
            for (ptrdiff_t i = 0; i < n; i++) { \
                const type y = at[i * sy], u = updates[i * su]; \
                at[i * sy] = (type)(value); \
            } \
    }
#define SET(bits) SCATTER(set_##bits, uint##bits##_t, ((void)y, u))
SET(8)
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
    const ptrdiff_t size = fo_size(a->type);
    if (a->kind == FO_SCATTER_SET) return size == 1 ? scatter_set_8 : size == 4 ? scatter_set_32 : scatter_set_64;
    return reductions[a->type == FO_F32 ? 0 : a->type == FO_S32 ? 1 : 2][a->kind - FO_SCATTER_ADD];
}

/* Whether all indices of a point are inside; *offset: where they lead to in y. */
static bool leads(const fo_scatter_args *a, const int64_t *index, ptrdiff_t *offset) {
    bool inside = true;
    for (int d = 0; d < a->named.nd; d++) {
        const int64_t i = index[d * a->component], n = a->named.size[d];
        inside &= i >= -n && i < n;
        *offset += (ptrdiff_t)(i < 0 ? i + n : i) * a->named.stride[0][d];
    }
    return inside;
}

static bool is_inside(const fo_scatter_args *a) {
    fo_axes found = {.nd = 0}; /* the axes along which indices differ */
    for (int d = 0; d < a->points.nd; d++)
        if (a->points.stride[2][d]) {
            found.size[found.nd] = a->points.size[d];
            found.stride[0][found.nd++] = a->points.stride[2][d];
        }
    const ptrdiff_t points = fo_points(&a->points, a->points.nd) ? fo_points(&found, found.nd) : 0;
    for (ptrdiff_t i = 0; i < points; i++) {
        ptrdiff_t offset[FO_TENSORS], ignored = 0;
        fo_offsets(&found, found.nd, i, offset);
        if (!leads(a, a->indices + offset[0], &ignored)) return false;
    }
    return true;
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
    const ptrdiff_t n = points.size[last], sy = points.stride[0][last], su = points.stride[1][last],
                    si = points.stride[2][last], each = si ? 1 : n, rows = fo_points(&points, last);
    for (ptrdiff_t i = 0; i < rows; i++) {
        ptrdiff_t offset[FO_TENSORS];
        fo_offsets(&points, last, i, offset);
        for (ptrdiff_t j = 0; j < n; j += each) {
            ptrdiff_t y = base[0] + offset[0] + j * sy;
            leads(a, a->indices + base[2] + offset[2] + j * si, &y);
            job->run(each, (char *)a->y + y * job->size, sy,
                     (const char *)a->updates + (base[1] + offset[1] + j * su) * job->size, su);
        }
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
