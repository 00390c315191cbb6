/* y = activation(x w^T + bias + residual) in 8 bits: net/bytes.h with rows as they come, copied, or quantised each by
 * its own range. */
#include "bytes.h"
#include "../pack.h"

struct fo_qlinear {
    fo_byte_plan products;
    bool whole;
};

fo_qlinear *fo_qlinear_create(ptrdiff_t n, ptrdiff_t k, const int8_t *w, ptrdiff_t wn, ptrdiff_t wk,
                              const fo_quantized *q) {
    fo_qlinear *plan = fo_alloc(sizeof *plan);
    if (plan) plan->whole = q->whole;
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
    const fo_byte_range *range; /* of all rows, or NULL */
} linear_rows;

static void row_of_bytes(const fo_byte_product *p, ptrdiff_t group, ptrdiff_t i, uint8_t *row, float *scale,
                         int32_t *zero) {
    const linear_rows *s = p->source;
    (void)group, (void)scale, (void)zero;
    p->plan->kn->copy(p->plan->k, (const uint8_t *)s->x + i * s->ldx, fo_byte_flip(p->plan->kn, p->types.x), row);
}

/* A row of floats by its own range, or that of all. */
static void row_of_floats(const fo_byte_product *p, ptrdiff_t group, ptrdiff_t i, uint8_t *row, float *scale,
                          int32_t *zero) {
    const linear_rows *s = p->source;
    const fo_byte_kernels *kn = p->plan->kn;
    const float *x = (const float *)s->x + i * s->ldx;
    const fo_byte_range r = s->range ? *s->range : fo_byte_range_of(kn, p->plan->k, x);
    (void)group;
    kn->quantize(p->plan->k, x, r.step, r.zero_point, kn->is_signed ? 0x80 : 0, row);
    *scale = r.scale, *zero = (kn->is_signed ? 128 : 0) - r.zero_point;
}

fo_status fo_qlinear_run(const fo_qlinear *plan, fo_types types, ptrdiff_t m, const void *x, ptrdiff_t ldx,
                         const void *residual, ptrdiff_t ldr, void *y, ptrdiff_t ldy) {
    fo_byte_range range;
    const bool whole = plan->whole && types.x == FO_F32;
    if (whole && !fo_byte_range_of_rows(plan->products.kn, m, plan->products.k, x, ldx, &range)) return FO_NO_MEMORY;
    const linear_rows source = {x, ldx, whole ? &range : NULL};
    const fo_byte_product p = {.plan = &plan->products,
                               .types = types,
                               .m = m,
                               .a = fo_byte_direct(&plan->products, types.x) ? x : NULL,
                               .lda = ldx,
                               .row = types.x == FO_F32 ? row_of_floats : row_of_bytes,
                               .source = &source,
                               .c = y,
                               .ldc = ldy,
                               .residual = residual,
                               .ldr = ldr};
    return fo_byte_product_run(&p);
}
