/* Floats to int8 and back, on all threads: pieces of rows. */
#include <float.h>
#include <math.h>

#include "../runtime/arena.h"
#include "../runtime/parallel.h"
#include "ranges.h"

typedef struct {
    const fo_kernels *kn;
    ptrdiff_t n, piece, pieces; /* elements of a row and of a piece; pieces of a row */
    const void *x;
    void *y;
    const float *scale;
    const int32_t *zero_point;
    fo_dtype type; /* of the bytes */
    bool floats;   /* y is of floats */
} conversion;

static void convert_piece(void *context, ptrdiff_t task, int thread) {
    const conversion *c = context;
    const ptrdiff_t row = task / c->pieces, first = task % c->pieces * c->piece, at = row * c->n + first,
                    n = min_(c->piece, c->n - first);
    const uint8_t flip = c->type == FO_S8 ? 0x80 : 0;
    const int32_t zero = c->zero_point[row] + flip; /* of a uint8 */
    (void)thread;
    if (c->floats)
        c->kn->dequantize(n, (const uint8_t *)c->x + at, flip, zero, c->scale[row], (float *)c->y + at);
    else
        c->kn->quantize(n, (const float *)c->x + at, c->scale[row], zero, flip, (uint8_t *)c->y + at);
}

static void convert(ptrdiff_t rows, conversion c) {
    if (!rows || !c.n) return;
    c.kn = fo_active();
    c.piece = min_(c.n, FO_COPY_BYTES / (ptrdiff_t)sizeof(float)), c.pieces = div_up(c.n, c.piece);
    fo_parallel_for(rows * c.pieces, fo_threads_for(0.1 * (double)(rows * c.n)), convert_piece, &c);
}

void fo_quantize(ptrdiff_t rows, ptrdiff_t n, const float *x, const float *scale, const int32_t *zero_point,
                 fo_dtype type, void *y) {
    convert(rows, (conversion){.n = n, .x = x, .y = y, .scale = scale, .zero_point = zero_point, .type = type});
}

void fo_dequantize(ptrdiff_t rows, ptrdiff_t n, const void *x, const float *scale, const int32_t *zero_point,
                   fo_dtype type, float *y) {
    convert(rows, (conversion){
                      .floats = true, .n = n, .x = x, .y = y, .scale = scale, .zero_point = zero_point, .type = type});
}

void fo_convert(const fo_convert_args *a) {
    if (a->to == FO_F32)
        fo_dequantize(1, a->n, a->x, &a->q.scale, &a->q.zero_point, a->from, a->y);
    else
        fo_quantize(1, a->n, a->x, &a->q.scale, &a->q.zero_point, a->to, a->y);
}

static fo_qrange steps_of(const float range[2]) {
    const float step = (range[1] - range[0]) / 255;
    const bool finite = step < INFINITY, any = finite && step >= FLT_MIN;
    return (fo_qrange){any ? step : 1,
                       any      ? step
                       : finite ? 1
                                : NAN,
                       any ? (int32_t)fmin(rint(-range[0] / step), 255) : 0};
}

fo_qrange fo_qrange_of(const fo_kernels *kn, ptrdiff_t n, const float *x) {
    float range[2];
    kn->range(n, x, range);
    return steps_of(range);
}

typedef struct {
    const fo_kernels *kn;
    ptrdiff_t m, n, ldx, rows; /* rows of a task */
    const float *x;
    float *ranges; /* two for each task */
} ranging;

static void wider(float to[2], const float of[2]) {
    to[0] = of[0] < to[0] || isnan(of[0]) ? of[0] : to[0], to[1] = of[1] > to[1] || isnan(of[1]) ? of[1] : to[1];
}

static void range_of_rows(void *context, ptrdiff_t task, int thread) {
    const ranging *r = context;
    float *to = r->ranges + 2 * task;
    (void)thread;
    to[0] = to[1] = 0;
    for (ptrdiff_t i = task * r->rows; i < min_(r->m, (task + 1) * r->rows); i++) {
        float range[2];
        r->kn->range(r->n, r->x + i * r->ldx, range);
        wider(to, range);
    }
}

static bool range_of(const fo_kernels *kn, ptrdiff_t m, ptrdiff_t n, const float *x, ptrdiff_t ldx, float all[2]) {
    ranging r = {.kn = kn, .m = m, .n = n, .ldx = ldx, .rows = max_(1, FO_COPY_BYTES / 4 / max_(n, 1)), .x = x};
    const ptrdiff_t tasks = div_up(m, r.rows);
    r.ranges = fo_arena_take((size_t)(2 * tasks + 1) * sizeof(float));
    if (!r.ranges) return false;
    fo_parallel_for(tasks, fo_threads_for(0.03 * (double)(m * n)), range_of_rows, &r);
    for (ptrdiff_t i = 0; i < tasks; i++) wider(all, r.ranges + 2 * i);
    fo_arena_release(r.ranges);
    return true;
}

bool fo_qrange_of_rows(const fo_kernels *kn, ptrdiff_t m, ptrdiff_t n, const float *x, ptrdiff_t ldx,
                       fo_qrange *range) {
    float all[2] = {0, 0};
    if (!range_of(kn, m, n, x, ldx, all)) return false;
    *range = steps_of(all);
    return true;
}

/* Floats to bytes by one range of all, in pieces; and back to floats where there are no bytes to write. */
typedef struct {
    const fo_kernels *kn;
    ptrdiff_t n, piece;
    const float *x;
    uint8_t *bytes;
    float *y;
    fo_qrange range;
} requantizing;

static void requantize_piece(void *context, ptrdiff_t task, int thread) {
    const requantizing *r = context;
    uint8_t some[1024];
    (void)thread;
    for (ptrdiff_t i = task * r->piece, end = min_(r->n, i + r->piece); i < end; i += (ptrdiff_t)sizeof some) {
        const ptrdiff_t n = min_((ptrdiff_t)sizeof some, end - i);
        uint8_t *bytes = r->bytes ? r->bytes + i : some;
        r->kn->quantize(n, r->x + i, r->range.step, r->range.zero_point, 0, bytes);
        if (r->y) r->kn->dequantize(n, bytes, 0, r->range.zero_point, r->range.scale, r->y + i);
    }
}

static void requantize_by(fo_qrange range, requantizing *r) {
    r->kn = fo_active(), r->piece = FO_COPY_BYTES / 4, r->range = range;
    fo_parallel_for(div_up(r->n, r->piece), fo_threads_for(0.2 * (double)r->n), requantize_piece, r);
}

static bool requantize(requantizing *r) {
    const fo_kernels *kn = fo_active();
    const ptrdiff_t piece = FO_COPY_BYTES / 4, whole = r->n / piece;
    float all[2] = {0, 0}, rest[2];
    if (!range_of(kn, whole, piece, r->x, piece, all)) return false;
    kn->range(r->n - whole * piece, r->x + whole * piece, rest);
    wider(all, rest);
    requantize_by(steps_of(all), r);
    return true;
}

fo_status fo_requantize(const fo_requantize_args *a) {
    requantizing r = {.n = a->n, .x = a->x, .y = a->y};
    if (a->q.scale) {
        requantize_by((fo_qrange){a->q.scale, a->q.scale, a->q.zero_point}, &r);
        return FO_OK;
    }
    return requantize(&r) ? FO_OK : FO_NO_MEMORY;
}

bool fo_qby_range(ptrdiff_t n, const float *x, uint8_t *bytes, fo_qrange *range) {
    requantizing r = {.n = n, .x = x, .bytes = bytes};
    const bool done = requantize(&r);
    *range = r.range;
    return done;
}
