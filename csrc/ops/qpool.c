/* Bytes to bytes between layers: lookups, sums and products, pools and the nearest pixels. */
#include <math.h>
#include <string.h>

#include "../runtime/arena.h"
#include "../runtime/parallel.h"
#include "axes.h"
#include "ranges.h"

static uint8_t flip_of(fo_dtype type) { return type == FO_S8 ? 0x80 : 0; }
static int32_t zero_of(fo_dtype type, fo_quantization q) { return q.zero_point + (type == FO_S8 ? 128 : 0); }

/* ---- element by element: a task is a piece of the last axis ---- */

typedef struct {
    const fo_axes *axes;
    const void *args;
    ptrdiff_t piece, pieces;
    fo_qpair pair;
} element_job;

/* The first element of a task, in each tensor, and how many it has. */
static ptrdiff_t place_of(const element_job *job, ptrdiff_t task, ptrdiff_t offset[FO_TENSORS]) {
    const int last = job->axes->nd - 1;
    const ptrdiff_t i = task % job->pieces * job->piece;
    fo_offsets(job->axes, last, task / job->pieces, offset);
    for (int t = 0; t < FO_TENSORS; t++) offset[t] += i * job->axes->stride[t][last];
    return min_(job->piece, job->axes->size[last] - i);
}

static fo_status for_elements(element_job job, double each, fo_task *task) {
    const int last = job.axes->nd - 1;
    const double elements = (double)fo_points(job.axes, job.axes->nd);
    job.piece = FO_COPY_BYTES, job.pieces = div_up(job.axes->size[last], job.piece);
    fo_parallel_for(fo_points(job.axes, last) * job.pieces, fo_threads_for(each * elements), task, &job);
    return FO_OK;
}

static void lookup_piece(void *context, ptrdiff_t task, int thread) {
    const element_job *job = context;
    const fo_lookup_args *a = job->args;
    const int last = job->axes->nd - 1;
    ptrdiff_t offset[FO_TENSORS];
    const ptrdiff_t n = place_of(job, task, offset), sy = a->axes.stride[0][last], sx = a->axes.stride[1][last];
    (void)thread;
    uint8_t *restrict y = a->y + offset[0];
    const uint8_t *x = a->x + offset[1], *table = a->table;
    if (sy == 1 && sx == 1)
        for (ptrdiff_t i = 0; i < n; i++) y[i] = table[x[i]];
    else
        for (ptrdiff_t i = 0; i < n; i++) y[i * sy] = table[x[i * sx]];
}

fo_status fo_lookup(const fo_lookup_args *a) {
    return for_elements((element_job){.axes = &a->axes, .args = a}, 0.3, lookup_piece);
}

static void pair_piece(void *context, ptrdiff_t task, int thread) {
    const element_job *job = context;
    const fo_qbinary_args *a = job->args;
    ptrdiff_t offset[FO_TENSORS];
    fo_qpair p = job->pair;
    (void)thread;
    p.n = place_of(job, task, offset);
    p.y = (uint8_t *)a->y + offset[0], p.a = (const uint8_t *)a->a + offset[1], p.b = (const uint8_t *)a->b + offset[2];
    p.b_first = (*p.b ^ p.b_flip) - p.b_zero;
    fo_active()->qpair(&p);
}

fo_status fo_qbinary(const fo_qbinary_args *a) {
    const double unit = a->qy.scale, sign = a->f == FO_SUB ? -1 : 1;
    const int32_t zero = zero_of(a->ty, a->qy);
    const bool clips = a->act.kind == FO_CLIP, product = a->f == FO_MUL;
    const double lo = clips ? a->act.p0 / unit : -INFINITY, hi = clips ? a->act.p1 / unit : INFINITY;
    element_job job = {.axes = &a->axes, .args = a};
    job.pair = (fo_qpair){.product = product,
                          .one = a->axes.stride[2][a->axes.nd - 1] == 0,
                          .a_flip = flip_of(a->ta),
                          .b_flip = flip_of(a->tb),
                          .flip = flip_of(a->ty),
                          .a_zero = zero_of(a->ta, a->qa),
                          .b_zero = zero_of(a->tb, a->qb),
                          .zero = zero,
                          .a_scale = (float)(a->qa.scale * (product ? (double)a->qb.scale : 1) / unit),
                          .b_scale = (float)(sign * a->qb.scale / unit),
                          .lo = (float)fmin(fmax(lo, -zero), 255 - zero),
                          .hi = (float)fmax(fmin(hi, 255 - zero), -zero)};
    return for_elements(job, 0.1, pair_piece);
}

/* ---- pools: a task is an output row of an image ---- */

typedef struct {
    const fo_qpool_args *a;
    const fo_kernels *kn;
    uint8_t *memory; /* of each thread */
    ptrdiff_t bytes;
} qpool_job;

static const uint8_t *row_at(const fo_qpool_args *a, ptrdiff_t n, ptrdiff_t h) {
    return (const uint8_t *)a->pool.x.data + n * a->pool.x.sn + h * a->pool.x.sh;
}

/* The largest of the rows of a window, with the lowest bytes around them, then of its columns. Bytes are unsigned
 * inside. */
static void largest_row(const qpool_job *job, ptrdiff_t n, ptrdiff_t h, uint8_t *y, uint8_t *row) {
    const fo_qpool_args *a = job->a;
    const fo_pool_args *p = &a->pool;
    const uint8_t flip = flip_of(a->tx);
    uint8_t *pixel = row + job->bytes - round_up(p->c, 64);
    memset(row, 0, (size_t)job->bytes);
    for (ptrdiff_t i = 0, u = h * p->sh - p->top; i < p->kh; i++, u += p->dh)
        for (ptrdiff_t w = 0, dense = p->x.sw == p->c; u >= 0 && u < p->ih && w < (dense ? 1 : p->iw); w++)
            job->kn->qmax(dense ? p->iw * p->c : p->c, row_at(a, n, u) + w * p->x.sw, flip, row + (p->left + w) * p->c);
    for (ptrdiff_t w = 0; w < p->ow; w++, y += p->y.sw) {
        memcpy(pixel, row + w * p->sw * p->c, (size_t)p->c);
        for (ptrdiff_t j = 1; j < p->kw; j++) job->kn->qmax(p->c, row + (w * p->sw + j * p->dw) * p->c, 0, pixel);
        job->kn->flip(p->c, pixel, flip, y);
    }
}

static ptrdiff_t inside(ptrdiff_t first, ptrdiff_t count, ptrdiff_t step, ptrdiff_t lo, ptrdiff_t hi) {
    ptrdiff_t found = 0;
    for (ptrdiff_t i = 0, at = first; i < count; i++, at += step) found += lo <= at && at < hi;
    return found;
}

static void mean_row(const qpool_job *job, ptrdiff_t n, ptrdiff_t h, uint8_t *y, int32_t *sums) {
    const fo_qpool_args *a = job->a;
    const fo_pool_args *p = &a->pool;
    const ptrdiff_t top = h * p->sh - p->top, rows = inside(top, p->kh, p->dh, 0, p->ih);
    const double scale = (double)a->qx.scale / a->qy.scale;
    for (ptrdiff_t w = 0; w < p->ow; w++, y += p->y.sw) {
        const ptrdiff_t left = w * p->sw - p->left, points = rows * inside(left, p->kw, p->dw, 0, p->iw);
        const ptrdiff_t counted =
            inside(top, p->kh, p->dh, p->h_lo, p->h_hi) * inside(left, p->kw, p->dw, p->w_lo, p->w_hi);
        memset(sums, 0, (size_t)job->bytes);
        for (ptrdiff_t i = 0, u = top; i < p->kh; i++, u += p->dh)
            for (ptrdiff_t j = 0, v = left; u >= 0 && u < p->ih && j < p->kw; j++, v += p->dw)
                if (v >= 0 && v < p->iw) job->kn->qadd(p->c, row_at(a, n, u) + v * p->x.sw, flip_of(a->tx), sums);
        job->kn->qmean(p->c, sums, (int32_t)points * zero_of(a->tx, a->qx), (float)(scale / max_(counted, 1)),
                       zero_of(a->ty, a->qy), flip_of(a->ty), y);
    }
}

static void qpool_row(void *context, ptrdiff_t task, int thread) {
    const qpool_job *job = context;
    const fo_pool_args *p = &job->a->pool;
    const ptrdiff_t n = task / p->oh, h = task % p->oh;
    uint8_t *y = (uint8_t *)p->y.data + n * p->y.sn + h * p->y.sh, *memory = job->memory + thread * job->bytes;
    if (p->kind == FO_POOL_MAX)
        largest_row(job, n, h, y, memory);
    else
        mean_row(job, n, h, y, (int32_t *)memory);
}

fo_status fo_qpool(const fo_qpool_args *a) {
    const fo_pool_args *p = &a->pool;
    qpool_job job = {.a = a, .kn = fo_active()};
    const ptrdiff_t width = max_(p->left + p->iw, (p->ow - 1) * p->sw + (p->kw - 1) * p->dw + 1);
    const int threads = fo_threads_for(0.05 * (double)(p->n * p->oh * p->ow * p->c * p->kh * p->kw));
    job.bytes = p->kind == FO_POOL_MAX ? round_up(width * p->c, 64) + round_up(p->c, 64) : 4 * round_up(p->c, 64);
    if (!p->c || !p->ow) return FO_OK;
    job.memory = fo_arena_take((size_t)(job.bytes * threads));
    if (!job.memory) return FO_NO_MEMORY;
    fo_parallel_for(p->n * p->oh, threads, qpool_row, &job);
    fo_arena_release(job.memory);
    return FO_OK;
}

/* ---- nearest pixels ---- */

static void nearest_row(void *context, ptrdiff_t task, int thread) {
    const fo_resize_args *a = context;
    const ptrdiff_t n = task / a->oh, h = task % a->oh;
    const uint8_t *x = (const uint8_t *)a->x.data + n * a->x.sn + a->h0[h] * a->x.sh;
    uint8_t *y = (uint8_t *)a->y.data + n * a->y.sn + h * a->y.sh;
    (void)thread;
    for (ptrdiff_t w = 0; w < a->ow; w++, y += a->y.sw) memcpy(y, x + a->w0[w] * a->x.sw, (size_t)a->c);
}

fo_status fo_nearest(const fo_resize_args *a) {
    fo_parallel_for(a->n * a->oh, fo_threads_for(0.05 * (double)(a->n * a->oh * a->ow * a->c)), nearest_row, (void *)a);
    return FO_OK;
}
