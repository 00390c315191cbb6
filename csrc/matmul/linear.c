/* y = activation(x w^T + bias + residual): plans of one product, and rows of x for them: as they come, rounded,
 * quantized each by its own range or that of each block, or by that of all. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "../ops/axes.h"
#include "../ops/ranges.h"
#include "packing.h"
#include "product.h"

/* ---- plans ------------------------------------------------------------------------------------------------------- */

/* The plan, or NULL where it could not be made. */
static fo_linear *checked(fo_linear *plan, bool made) {
    if (made) return plan;
    fo_linear_free(plan);
    return NULL;
}

fo_linear *fo_linear_create(ptrdiff_t n, ptrdiff_t k, fo_dtype a, const fo_weights *w, ptrdiff_t wn, ptrdiff_t wk,
                            const float *bias, fo_activation act) {
    fo_linear *plan = fo_alloc(sizeof *plan);
    if (!plan) return NULL;
    if (a == FO_F32) return checked(plan, fo_product_make(plan, a, 1, n, k, w, wn, wk, bias, &act));
    memset(plan, 0, sizeof *plan);
    const fo_weights rounded = {fo_bf16_weights(n, k, w, wn, wk, NULL), FO_BF16};
    const bool made = rounded.data && fo_product_make(plan, a, 1, n, k, &rounded, k, 1, bias, &act);
    fo_free((void *)rounded.data);
    return checked(plan, made);
}

fo_linear *fo_linear_create_int8(ptrdiff_t n, ptrdiff_t k, const int8_t *w, ptrdiff_t wn, ptrdiff_t wk,
                                 const fo_quantized *q) {
    fo_linear *plan = fo_alloc(sizeof *plan);
    return plan ? checked(plan, fo_product_make_int8(plan, 1, n, k, w, wn, wk, q)) : NULL;
}

fo_linear *fo_linear_create_blockwise(ptrdiff_t n, ptrdiff_t k, fo_dtype a, const fo_blockwise *w, const float *bias,
                                      fo_activation act) {
    fo_linear *plan = fo_alloc(sizeof *plan);
    return plan ? checked(plan, fo_product_make_blocks(plan, a, n, k, w, bias, &act)) : NULL;
}

fo_linear *fo_linear_borrow(ptrdiff_t n, ptrdiff_t k, const float *w, ptrdiff_t wn, ptrdiff_t wk, const float *bias,
                            fo_activation act) {
    if (!k || (fo_is_dots(n, k) && wk != 1))
        return fo_linear_create(n, k, FO_F32, &(fo_weights){w, FO_F32}, wn, wk, bias, act);
    fo_linear *plan = fo_alloc(sizeof *plan);
    return plan ? checked(plan, fo_product_borrow(plan, n, k, w, wn, wk, bias, &act)) : NULL;
}

void fo_linear_free(fo_linear *plan) {
    if (!plan) return;
    fo_product_free(plan);
    fo_free(plan);
}

const char *fo_linear_isa(const fo_linear *plan) {
    return plan->kernel->reads == FO_F32 ? plan->kn->set : plan->kn->name;
}

ptrdiff_t fo_linear_bytes(const fo_linear *plan) { return fo_product_bytes(plan); }

void fo_linear_weights(const fo_linear *plan, float *w) {
    const ptrdiff_t n = plan->n, k = plan->k, nr = plan->kernel->nr;
    const bool panels = plan->kept == FO_PACKED && plan->kernel->product.b == FO_F32;
    for (ptrdiff_t j = 0; panels && k && j < n; j += nr)
        plan->kn->transpose(k, min_(nr, n - j), (const float *)plan->w + j * k, nr, w + j * k, k);
    for (ptrdiff_t j = 0; !panels && j < n; j++) fo_product_column(plan, j, w + j * k);
}

bool fo_has_bf16(void) { return fo_product_of(fo_active(), FO_BF16, FO_BF16)->reads == FO_BF16; }

/* ---- rows of x --------------------------------------------------------------------------------------------------- */

typedef struct {
    const void *x;
    ptrdiff_t ldx;
    const fo_qrange *range; /* of all rows, or NULL */
} linear_rows;

static const void *row_of(const fo_product_call *call, ptrdiff_t i) {
    const linear_rows *s = call->source;
    return (const char *)s->x + i * s->ldx * fo_size(call->types.x);
}

static void copy_row(const fo_product_call *call, ptrdiff_t group, ptrdiff_t i, void *row, float *scale,
                     int32_t *zero) {
    const fo_kernels *kn = call->plan->kn;
    (void)group, (void)scale, (void)zero;
    kn->flip(call->plan->k * fo_size(call->types.x), row_of(call, i), fo_qflip(kn, call->types.x), row);
}

static void round_row(const fo_product_call *call, ptrdiff_t group, ptrdiff_t i, void *row, float *scale,
                      int32_t *zero) {
    (void)group, (void)scale, (void)zero;
    fo_active()->narrow(call->plan->k, row_of(call, i), row);
}

/* Quantizes a row of floats by its own range, or that of all. */
static void quantize_row(const fo_product_call *call, ptrdiff_t group, ptrdiff_t i, void *row, float *scale,
                         int32_t *zero) {
    const linear_rows *s = call->source;
    const fo_kernels *kn = call->plan->kn;
    const fo_qrange r = s->range ? *s->range : fo_qrange_of(kn, call->plan->k, row_of(call, i));
    (void)group;
    kn->quantize(call->plan->k, row_of(call, i), r.step, r.zero_point, kn->is_signed ? 0x80 : 0, row);
    *scale = r.scale, *zero = (kn->is_signed ? 128 : 0) - r.zero_point;
}

/* n floats as int8 between -127 and 127, that scale times the largest magnitude; returns the sum of these. Where one is
 * not finite the scale is NaN. */
static int32_t quantize_block(const fo_kernels *kn, ptrdiff_t n, const float *x, int8_t *y, float *scale) {
    float range[2];
    int32_t sum = 0;
    kn->range(n, x, range);
    const float step = (range[1] > -range[0] ? range[1] : -range[0]) / 127;
    const bool finite = step < INFINITY, any = finite && step >= FLT_MIN;
    *scale = any ? step : finite ? 0 : NAN;
    kn->quantize(n, x, any ? step : FLT_MAX, 128, 0x80, (uint8_t *)y);
    for (ptrdiff_t p = 0; p < n; p++) sum += y[p];
    return sum;
}

/* Orders the steps of words of 4 bits, 8 each, as their dot products take them: even ones, then odd ones. */
static void order_by_nibbles(ptrdiff_t steps, int8_t *y) {
    for (; steps > 0; steps -= 8, y += 8) {
        const int8_t even[] = {y[0], y[2], y[4], y[6]}, odd[] = {y[1], y[3], y[5], y[7]};
        memcpy(y, even, sizeof even), memcpy(y + 4, odd, sizeof odd);
    }
}

static void quantize_blocks(const fo_product_call *call, ptrdiff_t group, ptrdiff_t i, void *row, float *scale,
                            int32_t *zero) {
    const fo_blockwise *w = &call->plan->blocks;
    const float *x = row_of(call, i);
    int8_t *to = row;
    (void)group;
    for (ptrdiff_t b = 0, at = 0; b < w->blocks; b++, at += w->block)
        zero[b] = -quantize_block(call->plan->kn, min_(w->block, call->plan->k - at), x + at, to + at, scale + b);
    if (w->bits == 4) order_by_nibbles(w->blocks * w->block, to);
}

static fo_make_row *maker_of(const fo_linear *plan, fo_dtype x) {
    if (x != FO_F32) return copy_row;
    if (plan->kernel->product.a == FO_BF16) return round_row;
    return plan->kept == FO_IN_BLOCKS ? quantize_blocks : quantize_row;
}

/* ---- runs -------------------------------------------------------------------------------------------------------- */

/* Packs borrowed weights first, for many rows. */
static fo_status run_packed(const fo_linear *plan, fo_types types, ptrdiff_t m, const void *x, ptrdiff_t ldx,
                            const void *residual, ptrdiff_t ldr, void *y, ptrdiff_t ldy) {
    const fo_weights w = {plan->borrowed, FO_F32};
    fo_linear *packed = fo_linear_create(plan->n, plan->k, FO_F32, &w, plan->wn, plan->wk, plan->bias, plan->act);
    const fo_status status = packed ? fo_linear_run(packed, types, m, x, ldx, residual, ldr, y, ldy) : FO_NO_MEMORY;
    fo_linear_free(packed);
    return status;
}

fo_status fo_linear_run(const fo_linear *plan, fo_types types, ptrdiff_t m, const void *x, ptrdiff_t ldx,
                        const void *residual, ptrdiff_t ldr, void *y, ptrdiff_t ldy) {
    if (plan->kept == FO_BORROWED && !fo_is_dots(plan->n, plan->k) && m > FO_MIN_ROWS)
        return run_packed(plan, types, m, x, ldx, residual, ldr, y, ldy);
    fo_product_call call = {.plan = plan,
                            .types = types,
                            .m = m,
                            .lda = ldx * fo_size(types.x),
                            .c = y,
                            .ldc = ldy,
                            .residual = residual,
                            .ldr = ldr};
    if (fo_reads_rows(plan, types.x)) {
        call.a = x;
        return fo_product_run(&call);
    }
    fo_qrange range;
    const bool whole = plan->q.whole && types.x == FO_F32;
    if (whole && !fo_qrange_of_rows(plan->kn, m, plan->k, x, ldx, &range)) return FO_NO_MEMORY;
    const linear_rows source = {x, ldx, whole ? &range : NULL};
    call.row = maker_of(plan, types.x), call.source = &source;
    return fo_product_run(&call);
}

fo_status fo_linear_run_columns(const fo_linear *plan, ptrdiff_t m, const float *x, ptrdiff_t ldx,
                                const float *residual, ptrdiff_t ldr, float *y, ptrdiff_t ldy) {
    const ptrdiff_t k = plan->k;
    const fo_types floats = {FO_F32, FO_F32, FO_F32};
    if (plan->kernel->product.a == FO_F32 && plan->kernel->product.b == FO_F32 && fo_is_dots(plan->n, k))
        return fo_product_run(&(fo_product_call){.plan = plan,
                                                 .m = m,
                                                 .a = x,
                                                 .lda = sizeof(float),
                                                 .ak = ldx,
                                                 .c = y,
                                                 .ldc = ldy,
                                                 .residual = residual,
                                                 .ldr = ldr});
    float *rows = fo_alloc_result((size_t)max_(m * k, 1) * sizeof *rows);
    if (!rows) return FO_NO_MEMORY;
    fo_copy_args copy = {.axes = {.nd = 2, .size = {m, k}, .stride = {{k, 1}, {1, ldx}}}, .y = rows, .x = x};
    fo_fold(&copy.axes);
    fo_status status = fo_strided_copy(&copy);
    if (status == FO_OK) status = fo_linear_run(plan, floats, m, rows, k, residual, ldr, y, ldy);
    fo_free_result(rows);
    return status;
}
