/* Strided copies: runs that are contiguous in both tensors go through memcpy, pairs of axes of which one is contiguous
 * here and the other there through the transposition in registers, and what is left element by element. */
#include <string.h>

#include "../dispatch/estimate.h"
#include "../runtime/parallel.h"
#include "axes.h"

enum { TILE = FO_PAGE_FLOATS / 8 };

/* A copy of n elements along the last axis, for each of m points of axis `row` and each point of the others. */
typedef struct {
    const fo_axes *axes;
    const fo_kernels *kn;
    ptrdiff_t size; /* of an element; strides are in elements */
    char *y;
    const char *x;
    /* the axis that is cut into blocks; axes before and after it, but for the last, are `outer` */
    int row;
    bool transposes; /* x is contiguous along `row` */
    ptrdiff_t block, blocks;
    fo_axes outer;
} copy_job;

#define COPY_ELEMENTS(type) \
    for (ptrdiff_t j = 0; j < n; j++) ((type *)y)[j * sy] = ((const type *)x)[j * sx]

static void copy_elements(ptrdiff_t size, ptrdiff_t n, void *y, ptrdiff_t sy, const void *x, ptrdiff_t sx) {
    if (size == 4)
        COPY_ELEMENTS(uint32_t);
    else if (size == 1)
        COPY_ELEMENTS(uint8_t);
    else if (size == 2)
        COPY_ELEMENTS(uint16_t);
    else
        COPY_ELEMENTS(uint64_t);
}

static void copy_rows(const copy_job *job, ptrdiff_t m, char *y, const char *x) {
    const int last = job->axes->nd - 1;
    const ptrdiff_t n = job->axes->size[last], sy = job->axes->stride[0][last], sx = job->axes->stride[1][last];
    const ptrdiff_t ldy = job->row < 0 ? 0 : job->axes->stride[0][job->row];
    const ptrdiff_t ldx = job->row < 0 ? 0 : job->axes->stride[1][job->row];
    if (job->transposes && job->size == 1) {
        job->kn->transpose_8(n, m, (const uint8_t *)x, sx, (uint8_t *)y, ldy);
        return;
    }
    if (job->transposes) { /* by tiles, whose lines are on few pages: a piece of each line of x, all of m */
        for (ptrdiff_t j = 0; j < n; j += TILE)
            if (job->size == 2)
                job->kn->transpose_16(min_(TILE, n - j), m, (const uint16_t *)x + j * sx, sx, (uint16_t *)y + j, ldy);
            else
                job->kn->transpose(min_(TILE, n - j), m, (const float *)x + j * sx, sx, (float *)y + j, ldy);
        return;
    }
    if (job->size == 4 && sy == 1 && (sx == 2 || sx == 4)) { /* every second or fourth element of longer rows */
        job->kn->pad(m, n, (const float *)x, ldx, (n - 1) * sx + 1, 0, sx, (float *)y, ldy);
        return;
    }
    for (ptrdiff_t i = 0; i < m; i++, y += ldy * job->size, x += ldx * job->size)
        if (sy == 1 && sx == 1)
            memcpy(y, x, (size_t)(n * job->size));
        else
            copy_elements(job->size, n, y, sy, x, sx);
}

static void copy_block(void *context, ptrdiff_t task, int thread) {
    (void)thread;
    const copy_job *job = context;
    const ptrdiff_t i = task % job->blocks * job->block;
    ptrdiff_t offset[FO_TENSORS];
    fo_offsets(&job->outer, job->outer.nd, task / job->blocks, offset);
    char *y = job->y + offset[0] * job->size;
    const char *x = job->x + offset[1] * job->size;
    if (job->row < 0)
        copy_rows(job, 1, y, x);
    else
        copy_rows(job, min_(job->block, job->axes->size[job->row] - i),
                  y + i * job->axes->stride[0][job->row] * job->size,
                  x + i * job->axes->stride[1][job->row] * job->size);
}

/* The axis that forms rows with the last one: where the last is contiguous in y alone, the one that is so in x. */
static int row_axis(const fo_axes *a, ptrdiff_t size, bool *transposes) {
    const int last = a->nd - 1;
    *transposes = false;
    if (size <= 4 && a->stride[0][last] == 1 && a->stride[1][last] != 1)
        for (int d = 0; d < last; d++)
            if (a->stride[1][d] == 1) {
                *transposes = true;
                return d;
            }
    return last - 1;
}

fo_status fo_strided_copy(const fo_copy_args *args) {
    const fo_axes *a = &args->axes;
    copy_job job = {.axes = a,
                    .kn = fo_active(),
                    .size = args->size ? args->size : (ptrdiff_t)sizeof(float),
                    .y = args->y,
                    .x = args->x,
                    .block = 1,
                    .blocks = 1};
    job.row = row_axis(a, job.size, &job.transposes);
    for (int d = 0; d < a->nd - 1; d++) {
        if (d == job.row) continue;
        const int e = job.outer.nd++;
        job.outer.size[e] = a->size[d];
        for (int t = 0; t < FO_TENSORS; t++) job.outer.stride[t][e] = a->stride[t][d];
    }
    const ptrdiff_t n = max_(a->size[a->nd - 1], 1);
    if (job.row >= 0) {
        job.block = round_up(max_(1, FO_COPY_BYTES / job.size / n), job.transposes ? 2 * job.kn->vl : 1);
        if (job.transposes) job.block = max_(job.block, TILE);
        job.blocks = div_up(a->size[job.row], job.block);
    }
    const double bytes = 2.0 * (double)(job.size * fo_points(a, a->nd));
    const int threads = fo_threads_for(fo_nanoseconds(job.kn, 0, 2 * bytes));
    fo_parallel_for(fo_points(&job.outer, job.outer.nd) * job.blocks, threads, copy_block, &job);
    return FO_OK;
}

#define FILL_ROWS(type, element, y_at) \
    for (ptrdiff_t i = 0; i < m; i++) \
        for (ptrdiff_t j = 0; j < n; j++) ((type *)a->y + at + i * ld)[y_at] = element

/* m rows of n elements, from `at` on. */
static void fill_rows(const fo_fill_args *a, ptrdiff_t at, ptrdiff_t m, ptrdiff_t ld, ptrdiff_t n, ptrdiff_t step) {
    const float value = a->value;
    const uint8_t byte = a->size == 1 ? (uint8_t)(int)value : 0;
    if (a->size == 1)
        FILL_ROWS(uint8_t, byte, (j * step));
    else if (a->size == 2)
        FILL_ROWS(uint16_t, a->half, (j * step));
    else if (step == 1)
        FILL_ROWS(float, value, j);
    else
        FILL_ROWS(float, value, (j * step));
}

fo_status fo_fill(const fo_fill_args *args) {
    const fo_axes *a = &args->axes;
    const int last = a->nd - 1, row = max_(last - 1, 0);
    const ptrdiff_t m = last ? a->size[row] : 1, ld = last ? a->stride[0][row] : 0;
    for (ptrdiff_t i = 0, outer = fo_points(a, row); i < outer; i++) {
        ptrdiff_t offset[FO_TENSORS];
        fo_offsets(a, row, i, offset);
        fill_rows(args, offset[0], m, ld, a->size[last], a->stride[0][last]);
    }
    return FO_OK;
}
