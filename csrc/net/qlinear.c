/* y = activation(x w^T + bias + residual) in 8 bits: net/bytes.h with rows as they come, copied, or quantised each by
 * its own range. */
#include <float.h>
#include <math.h>

#include "bytes.h"
#include "../pack.h"

struct fo_qlinear {
    fo_byte_plan products;
};

fo_qlinear *fo_qlinear_create(ptrdiff_t n, ptrdiff_t k, const int8_t *w, ptrdiff_t wn, ptrdiff_t wk,
                              const fo_quantized *q) {
    fo_qlinear *plan = fo_alloc(sizeof *plan);
    if (plan && !fo_byte_plan_make(&plan->products, 1, n, k, w, wn, wk, q)) {
        fo_qlinear_free(plan);
        return NULL;
    }
    return plan;
}

const char *fo_qlinear_isa(const fo_qlinear *plan) { return plan->products.kn->name; }

void fo_qlinear_free(fo_qlinear *plan) {
    if (!plan) return;
    fo_byte_plan_free(&plan->products);
    fo_free(plan);
}

/* Where x is, and what follows from its type. */
typedef struct {
    const void *x;
    ptrdiff_t ldx;
} linear_rows;

static void row_of_bytes(const fo_byte_product *p, ptrdiff_t group, ptrdiff_t i, uint8_t *row, float *scale,
                         int32_t *zero) {
    const linear_rows *s = p->source;
    (void)group, (void)scale, (void)zero;
    p->plan->kn->copy(p->plan->k, (const uint8_t *)s->x + i * s->ldx, fo_byte_flip(p->plan->kn, p->types.x), row);
}

/* A row of floats by 255 steps from its least to its largest element, zero among them. Where one is not finite, all
 * results are NaN. */
static void row_of_floats(const fo_byte_product *p, ptrdiff_t group, ptrdiff_t i, uint8_t *row, float *scale,
                          int32_t *zero) {
    const linear_rows *s = p->source;
    const fo_byte_kernels *kn = p->plan->kn;
    const float *x = (const float *)s->x + i * s->ldx;
    float range[2];
    (void)group;
    kn->range(p->plan->k, x, range);
    const float step = (float)(((double)range[1] - range[0]) / 255);
    const bool finite = step < INFINITY, any = finite && step >= FLT_MIN;
    const int32_t zero_point = any ? (int32_t)fmin(rint(-range[0] / step), 255) : 0;
    kn->quantize(p->plan->k, x, any ? step : 1, zero_point, kn->is_signed ? 0x80 : 0, row);
    *scale = any ? step : finite ? 1 : NAN, *zero = (kn->is_signed ? 128 : 0) - zero_point;
}

fo_status fo_qlinear_run(const fo_qlinear *plan, fo_byte_types types, ptrdiff_t m, const void *x, ptrdiff_t ldx,
                         const void *residual, ptrdiff_t ldr, void *y, ptrdiff_t ldy) {
    const linear_rows source = {x, ldx};
    const fo_byte_product p = {.plan = &plan->products,
                               .types = types,
                               .m = m,
                               .a = fo_byte_direct(&plan->products, types.x) ? x : NULL,
                               .lda = ldx,
                               .row = types.x == FO_FLOAT32 ? row_of_floats : row_of_bytes,
                               .source = &source,
                               .c = y,
                               .ldc = ldy,
                               .residual = residual,
                               .ldr = ldr};
    return fo_byte_product_run(&p);
}
