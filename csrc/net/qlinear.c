/* y = activation(x w^T + bias + residual) of int8, bfloat16 or weights in blocks: net/qgemm.h with rows as they
 * come, copied, quantised each by its own range or that of each block, or rounded. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "qgemm.h"
#include "../pack.h"
#include "../machine/machine.h"

struct fo_qlinear {
    fo_qplan products;
    bool whole;
    fo_linear *wide; /* bfloat16 without a dot product: the rounded weights, widened where they are read; or NULL */
};

static fo_qlinear *new_plan(void) {
    fo_qlinear *plan = fo_alloc(sizeof *plan);
    if (plan) memset(plan, 0, sizeof *plan);
    return plan;
}

fo_qlinear *fo_qlinear_create(ptrdiff_t n, ptrdiff_t k, const int8_t *w, ptrdiff_t wn, ptrdiff_t wk,
                              const fo_quantized *q) {
    fo_qlinear *plan = new_plan();
    if (plan) plan->whole = q->whole;
    if (plan && fo_qplan_make(&plan->products, FO_S8, 1, n, k, w, wn, wk, q)) return plan;
    fo_qlinear_free(plan);
    return NULL;
}

fo_qlinear *fo_qlinear_create_bf16(ptrdiff_t n, ptrdiff_t k, const fo_weights *w, ptrdiff_t wn, ptrdiff_t wk,
                                   const float *bias, fo_activation act) {
    fo_qlinear *plan = new_plan();
    uint16_t *rounded = plan ? fo_bf16_weights(n, k, w, wn, wk, NULL) : NULL;
    bool made = false;
    if (rounded && fo_has_bf16()) {
        made =
            fo_qplan_make(&plan->products, FO_BF16, 1, n, k, rounded, k, 1, &(fo_quantized){.bias = bias, .act = act});
    } else if (rounded) {
        plan->products.n = n, plan->products.k = k, plan->products.kn = fo_active_qkernels();
        made = (plan->wide = fo_linear_create(n, k, &(fo_weights){rounded, FO_BF16}, k, 1, bias, act));
    }
    fo_free(rounded);
    if (made) return plan;
    fo_qlinear_free(plan);
    return NULL;
}

fo_qlinear *fo_qlinear_create_bits(ptrdiff_t n, ptrdiff_t k, const fo_blockwise *w, const float *bias,
                                   fo_activation act) {
    fo_qlinear *plan = new_plan();
    if (plan && fo_qplan_make_bits(&plan->products, n, k, w, bias, act)) return plan;
    fo_qlinear_free(plan);
    return NULL;
}

bool fo_has_bf16(void) { return fo_active_qkernels()->gemm_bf16; }

const char *fo_qlinear_isa(const fo_qlinear *plan) {
    return plan->wide ? fo_linear_isa(plan->wide) : plan->products.kn->name;
}

bool fo_qlinear_weights(const fo_qlinear *plan, float *w) {
    const fo_qplan *p = &plan->products;
    if (plan->wide) return fo_linear_weights(plan->wide, w);
    for (ptrdiff_t j = 0, ld; j < p->n; j++) {
        const uint16_t *column = fo_qcolumn_bf16(p, j, &ld);
        for (ptrdiff_t s = 0; s < p->k; s++)
            fo_active()->widen(1, FO_BF16, column + s / 2 * ld + s % 2, w + j * p->k + s);
    }
    return true;
}

ptrdiff_t fo_qlinear_bytes(const fo_qlinear *plan) {
    return plan->wide ? fo_linear_bytes(plan->wide) : plan->products.panels;
}

void fo_qlinear_free(fo_qlinear *plan) {
    if (!plan) return;
    fo_qplan_free(&plan->products);
    fo_linear_free(plan->wide);
    fo_free(plan);
}

/* Where x is, and what follows from its type. */
typedef struct {
    const void *x;
    ptrdiff_t ldx;
    const fo_qrange *range; /* of all rows, or NULL */
} linear_rows;

static void row_of_bytes(const fo_qproduct *p, ptrdiff_t group, ptrdiff_t i, uint8_t *row, float *scale,
                         int32_t *zero) {
    const linear_rows *s = p->source;
    (void)group, (void)scale, (void)zero;
    const ptrdiff_t size = fo_size(p->types.x);
    p->plan->kn->copy(p->plan->k * size, (const uint8_t *)s->x + i * s->ldx * size, fo_qflip(p->plan->kn, p->types.x),
                      row);
}

/* A row of floats by its own range, or that of all. */
static void row_of_floats(const fo_qproduct *p, ptrdiff_t group, ptrdiff_t i, uint8_t *row, float *scale,
                          int32_t *zero) {
    const linear_rows *s = p->source;
    const fo_qkernels *kn = p->plan->kn;
    const float *x = (const float *)s->x + i * s->ldx;
    const fo_qrange r = s->range ? *s->range : fo_qrange_of(kn, p->plan->k, x);
    (void)group;
    kn->quantize(p->plan->k, x, r.step, r.zero_point, kn->is_signed ? 0x80 : 0, row);
    *scale = r.scale, *zero = (kn->is_signed ? 128 : 0) - r.zero_point;
}

/* n floats as int8 between -127 and 127, that scale times the largest magnitude; the sum of these. Where one is not
 * finite the scale is NaN. */
static int32_t quantize_block(const fo_qkernels *kn, ptrdiff_t n, const float *x, int8_t *y, float *scale) {
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

/* The steps of words of 4 bits, 8 each, as their dot products take them: even ones, then odd ones. */
static void by_nibbles(ptrdiff_t steps, int8_t *y) {
    for (; steps > 0; steps -= 8, y += 8) {
        const int8_t even[] = {y[0], y[2], y[4], y[6]}, odd[] = {y[1], y[3], y[5], y[7]};
        memcpy(y, even, sizeof even), memcpy(y + 4, odd, sizeof odd);
    }
}

static void row_by_blocks(const fo_qproduct *p, ptrdiff_t group, ptrdiff_t i, uint8_t *row, float *scale,
                          int32_t *zero) {
    const linear_rows *s = p->source;
    const fo_blockwise *w = &p->plan->bits;
    const float *x = (const float *)s->x + i * s->ldx;
    (void)group;
    for (ptrdiff_t b = 0, at = 0; b < w->blocks; b++, at += w->block)
        zero[b] = -quantize_block(p->plan->kn, min_(w->block, p->plan->k - at), x + at, (int8_t *)row + at, scale + b);
    if (w->bits == 4) by_nibbles(w->blocks * w->block, (int8_t *)row);
}

static void row_rounded(const fo_qproduct *p, ptrdiff_t group, ptrdiff_t i, uint8_t *row, float *scale, int32_t *zero) {
    const linear_rows *s = p->source;
    (void)group, (void)scale, (void)zero;
    p->plan->kn->narrow(p->plan->k, (const float *)s->x + i * s->ldx, (uint16_t *)row);
}

/* Rows in float32 that are rounded, or were: a matrix of `columns`, and its copy. */
typedef struct {
    const fo_qkernels *kn;
    ptrdiff_t columns, ldx, ldy;
    fo_dtype from, to;
    const void *x;
    void *y;
} rows_job;

static void convert_row(void *context, ptrdiff_t i, int thread) {
    const rows_job *job = context;
    const ptrdiff_t n = job->columns;
    const char *x = (const char *)job->x + i * job->ldx * fo_size(job->from);
    char *y = (char *)job->y + i * job->ldy * fo_size(job->to);
    (void)thread;
    if (job->from == FO_BF16) {
        fo_active()->widen(n, FO_BF16, x, (float *)y);
    } else if (job->to == FO_BF16) {
        job->kn->narrow(n, (const float *)x, (uint16_t *)y);
    } else { /* by way of the row's own upper half, which is read before it is written */
        uint16_t *narrow = (uint16_t *)y + n;
        job->kn->narrow(n, (const float *)x, narrow);
        fo_active()->widen(n, FO_BF16, narrow, (float *)y);
    }
}

static void convert_rows(const fo_qkernels *kn, ptrdiff_t m, ptrdiff_t n, fo_dtype from, const void *x, ptrdiff_t ldx,
                         fo_dtype to, void *y, ptrdiff_t ldy) {
    rows_job job = {kn, n, ldx, ldy, from, to, x, y};
    fo_parallel_for(m, fo_threads_for((double)m * n / 8), convert_row, &job);
}

/* A matrix of floats or bfloat16 as floats: in `room` where it was none. */
static const float *as_floats(const fo_qkernels *kn, ptrdiff_t m, ptrdiff_t n, fo_dtype type, const void *x,
                              ptrdiff_t *ld, float *room) {
    if (!x || type == FO_F32) return x;
    convert_rows(kn, m, n, FO_BF16, x, *ld, FO_F32, room, n);
    *ld = n;
    return room;
}

/* Without a dot product: operands of some rows are rounded, and multiplied in float32. */
static fo_status run_wide(const fo_qlinear *plan, fo_types types, ptrdiff_t m, const char *x, ptrdiff_t ldx,
                          const char *residual, ptrdiff_t ldr, char *y, ptrdiff_t ldy) {
    const fo_qkernels *kn = plan->products.kn;
    const ptrdiff_t n = plan->products.n, k = plan->products.k, all = k + 2 * n;
    const ptrdiff_t rows = clamp_(m, 1, max_(4 * FO_MIN_ROWS, fo_this_machine()->l2 / max_(all, 1)));
    float *a = fo_arena_take((size_t)(rows * all) * sizeof *a), *r = a + rows * k, *c = r + rows * n;
    fo_status status = a ? FO_OK : FO_NO_MEMORY;
    for (ptrdiff_t i = 0, some; status == FO_OK && i < m; i += some) {
        char *to = y + i * ldy * fo_size(types.y);
        ptrdiff_t ld = ldr;
        some = min_(rows, m - i);
        convert_rows(kn, some, k, types.x, x + i * ldx * fo_size(types.x), ldx, FO_F32, a, k);
        const void *added = residual ? residual + i * ldr * fo_size(types.residual) : NULL;
        added = as_floats(kn, some, n, types.residual, added, &ld, r);
        const bool wide = types.y == FO_F32;
        status = fo_linear_run(plan->wide, some, a, k, added, ld, wide ? (float *)to : c, wide ? ldy : n);
        if (status == FO_OK && !wide) convert_rows(kn, some, n, FO_F32, c, n, FO_BF16, to, ldy);
    }
    if (a) fo_arena_release(a);
    return status;
}

fo_status fo_qlinear_run(const fo_qlinear *plan, fo_types types, ptrdiff_t m, const void *x, ptrdiff_t ldx,
                         const void *residual, ptrdiff_t ldr, void *y, ptrdiff_t ldy) {
    fo_qrange range;
    if (plan->wide) return m && plan->products.n ? run_wide(plan, types, m, x, ldx, residual, ldr, y, ldy) : FO_OK;
    const bool whole = plan->whole && types.x == FO_F32;
    if (whole && !fo_qrange_of_rows(plan->products.kn, m, plan->products.k, x, ldx, &range)) return FO_NO_MEMORY;
    const linear_rows source = {x, ldx, whole ? &range : NULL};
    const fo_qproduct p = {.plan = &plan->products,
                           .types = types,
                           .m = m,
                           .a = fo_qdirect(&plan->products, types.x) ? x : NULL,
                           .lda = ldx * fo_size(types.x),
                           .row = plan->products.bits.bits         ? row_by_blocks
                                  : types.x != FO_F32              ? row_of_bytes
                                  : plan->products.type == FO_BF16 ? row_rounded
                                                                   : row_of_floats,
                           .source = &source,
                           .c = y,
                           .ldc = ldy,
                           .residual = residual,
                           .ldr = ldr};
    return fo_qproduct_run(&p);
}
