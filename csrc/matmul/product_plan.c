/* Plans of products: which kernel runs, its packed weights, and what has an element a channel. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "../dispatch/estimate.h"
#include "../ops/ranges.h"
#include "packing.h"
#include "product.h"

/* ---- scales of int8 ---------------------------------------------------------------------------------------------- */

static float within_floats(double v) { return v > FLT_MAX ? FLT_MAX : v < -FLT_MAX ? -FLT_MAX : (float)v; }
static double between(double v, double least, double most) { return v < least ? least : v > most ? most : v; }

/* Results of int8 that a clip follows are computed in units of their scale: one product less. */
static double unit_of(const fo_linear *plan) {
    return plan->q.y.scale && fo_in_registers(&plan->act) ? plan->q.y.scale : 1;
}

/* That of products with their bias: of what they are rounded to first, if that comes before all else. */
static double unit_of_products(const fo_linear *plan) {
    return plan->q.product.scale ? plan->q.product.scale : unit_of(plan);
}
static bool are_rounded(const fo_linear *plan) {
    return plan->q.product.scale || (plan->q.y.scale && fo_in_registers(&plan->act));
}

/* Whether all results fit 32 bits before they are held to int8. */
static bool fits_integers(const fo_linear *plan, const fo_quantized *q) {
    const double unit = unit_of_products(plan);
    for (ptrdiff_t o = 0; o < plan->groups * plan->n; o++) {
        const double largest = q->x.scale * q->w_scale[o] * 255.0 * 255 * plan->k + (q->bias ? fabs(q->bias[o]) : 0);
        if (largest / unit >= 0x1p30) return false;
    }
    return true;
}

/* A multiplier as LiteRT has it, of 31 bits. */
static double multiplier_of(double scale) {
    int exponent;
    const double part = frexp(scale, &exponent);
    return ldexp(round(ldexp(part, 31)), exponent - 31);
}

/* The largest sum of products of int8. */
static double largest_sum(const fo_linear *plan) { return 255.0 * (plan->q.w_zero ? 255 : 128) * plan->k; }

/* Results that are rounded twice, whose bias is a whole number of sums: its part of what they start with. */
static int32_t make_twice(fo_linear *plan, const fo_quantized *q, ptrdiff_t o, ptrdiff_t at) {
    const double sum = (double)q->x.scale * q->w_scale[o], scale = multiplier_of(sum / unit_of_products(plan));
    plan->q.scale[at] = within_floats(scale), plan->bias[at] = (float)(scale - plan->q.scale[at]);
    plan->q.nudge[at] = q->nudge[o];
    const double bias = q->bias ? between(rint(q->bias[o] / sum), INT32_MIN, INT32_MAX) : 0;
    plan->q.longer |= fabs(bias) + largest_sum(plan) > 0x1p24;
    return (int32_t)bias;
}

static ptrdiff_t channel_of(const fo_linear *plan, ptrdiff_t o) { return o / plan->n * plan->columns + o % plan->n; }

static void make_constants(fo_linear *plan, const fo_quantized *q) {
    fo_int8_constants *c = &plan->q;
    const double unit = unit_of_products(plan), x_scale = q->x.scale ? q->x.scale : 1;
    double largest = 0;
    for (ptrdiff_t o = 0; o < plan->groups * plan->n; o++) {
        const ptrdiff_t at = channel_of(plan, o);
        c->scale[at] = within_floats(x_scale * q->w_scale[o] / unit);
        plan->bias[at] = q->bias ? (float)(q->bias[o] / unit) : 0;
        const double most = fabs(c->scale[at]) * largest_sum(plan) + fabs(plan->bias[at]);
        if (most > largest || isnan(most)) largest = most; /* NaN stays: no result is known to fit */
        if (!c->nudge) continue;
        const int32_t bias = make_twice(plan, q, o, at);
        for (int s = 0; s < 2; s++) c->start[s][at] = bias;
    }
    if (c->product.scale) largest = 255 * unit / unit_of(plan);
    c->largest = largest + 255 * q->residual.scale / unit_of(plan);
    for (int s = 0; q->x.scale && s < 2; s++) {
        const int32_t zero = q->x.zero_point + fo_qoffset(plan->kn, s ? FO_S8 : FO_U8);
        for (ptrdiff_t at = 0; at < plan->groups * plan->columns; at++) c->start[s][at] -= zero * c->sums[at];
    }
}

/* Tells how a call's sums of int8 become results; whole: its other arguments. */
static void make_rescale(const fo_product_call *call, const fo_gemm_args *whole, fo_rescale *to) {
    const fo_linear *plan = call->plan;
    const fo_int8_constants *q = &plan->q;
    const fo_types types = call->types;
    const fo_activation *act = &plan->act;
    const bool int8 = fo_size(types.y) == 1, clips = act->kind == FO_CLIP;
    const double unit = unit_of(plan);
    double lo = clips ? act->p0 / unit : -INFINITY, hi = clips ? act->p1 / unit : INFINITY;
    *to =
        (fo_rescale){.start = types.x == FO_F32 ? q->sums : q->start[types.x == FO_S8], /* of floats a run knows more */
                     .w_zero = q->w_zero,
                     .scale = q->scale,
                     .nudge = q->nudge,
                     .longer = q->longer,
                     .residual_scale = within_floats((q->residual.scale ? q->residual.scale : 1) / unit),
                     .residual_zero = q->residual.zero_point + (types.residual == FO_S8 ? 128 : 0),
                     .product_scale = within_floats(q->product.scale / unit),
                     .product_lo = (float)-q->product.zero_point,
                     .product_hi = (float)(255 - q->product.zero_point)};
    if (int8) {
        to->zero = q->y.zero_point + (types.y == FO_S8 ? 128 : 0), to->inverse = within_floats(1.0 / q->y.scale);
        lo = between(lo, -to->zero, 255 - to->zero), hi = between(hi, -to->zero, 255 - to->zero);
    }
    to->lo = (float)lo, to->hi = (float)hi;
    to->saturates = int8 && fo_in_registers(act) && lo == -to->zero && hi == 255 - to->zero && q->x.scale &&
                    q->largest < 0x1p30 && (!whole->ep.residual || types.residual != FO_F32);
}

/* ---- packing ----------------------------------------------------------------------------------------------------- */

typedef struct {
    const fo_linear *plan;
    const void *w;
    ptrdiff_t wn, wk;
} packing;

static void pack_bf16(const packing *p, ptrdiff_t columns, ptrdiff_t wanted, const uint16_t *w, uint16_t *to) {
    for (ptrdiff_t c = 0; c < wanted; c++, w += p->wn)
        for (ptrdiff_t s = 0; s < p->plan->k; s++) to[(s / 2 * columns + c) * 2 + s % 2] = w[s * p->wk];
}

/* And the sums of these weights, from channel `at` on. */
static void pack_int8(const packing *p, ptrdiff_t columns, ptrdiff_t wanted, const int8_t *w, int8_t *to,
                      ptrdiff_t at) {
    const fo_linear *plan = p->plan;
    for (ptrdiff_t c = 0; c < wanted; c++, w += p->wn, at++) {
        int32_t sum = 0;
        for (ptrdiff_t s = 0; s < plan->k; s++) {
            const int8_t value = w[s * p->wk];
            to[(s / 4 * columns + c) * 4 + s % 4] = value;
            sum += value;
        }
        plan->q.sums[at] = sum + (plan->q.w_zero ? (int32_t)plan->k * plan->q.w_zero[at] : 0);
    }
}

/* A panel of one group from column j on. */
static void pack_panel(const packing *p, ptrdiff_t group, ptrdiff_t j, ptrdiff_t columns) {
    const fo_linear *plan = p->plan;
    int8_t *to = (int8_t *)plan->w + group * plan->bytes + 4 * j * plan->steps;
    const ptrdiff_t first = (group * plan->n + j) * p->wn, wanted = min_(columns, plan->n - j);
    memset(to, 0, (size_t)(4 * columns * plan->steps));
    if (plan->kernel->product.b == FO_BF16)
        pack_bf16(p, columns, wanted, (const uint16_t *)p->w + first, (uint16_t *)to);
    else
        pack_int8(p, columns, wanted, (const int8_t *)p->w + first, to, group * plan->columns + j);
}

static void pack_task(void *context, ptrdiff_t task, int thread) {
    const packing *p = context;
    const ptrdiff_t nr = p->plan->kernel->nr, vl = p->plan->kn->vl, n = p->plan->n, blocks = div_up(n, nr),
                    first = task % blocks * nr;
    (void)thread;
    for (ptrdiff_t j = first, columns; j < min_(first + nr, n); j += columns) {
        columns = fo_panel_columns(n - j, vl, nr);
        pack_panel(p, task / blocks, j, columns);
    }
}

/* Panels of groups of four bytes, or of floats. */
static void pack(fo_linear *plan, const fo_weights *w, ptrdiff_t wn, ptrdiff_t wk) {
    const ptrdiff_t n = plan->n, k = plan->k, groups = plan->groups;
    if (plan->kernel->product.group > 1) {
        packing p = {plan, w->data, wn, wk};
        if (n) fo_parallel_for(groups * div_up(n, plan->kernel->nr), fo_pack_threads(groups * n * k), pack_task, &p);
        return;
    }
    for (ptrdiff_t group = 0; group < groups; group++) {
        const fo_weights of_group = {(const char *)w->data + group * n * wn * fo_size(w->type), w->type};
        void *to = (char *)plan->w + group * plan->bytes;
        if (plan->kept == FO_OF_COLUMNS)
            fo_pack_columns(plan->kn, n, k, &of_group, wk, wn, to);
        else
            fo_pack_weights(plan->kn, n, k, &of_group, wk, wn, to);
    }
}

/* ---- plans ------------------------------------------------------------------------------------------------------- */

/* Zeros for an element a channel. */
static void *channels(const fo_linear *plan, bool *failed) {
    const size_t bytes = (size_t)(plan->groups * plan->columns + MAX_LANES) * sizeof(float);
    void *p = fo_alloc(bytes);
    if (p)
        memset(p, 0, bytes);
    else
        *failed = true;
    return p;
}

/* The kernel of a product, and of a set whose vectors suit it where it multiplies floats. */
static void choose_kernel(fo_linear *plan, fo_dtype a, fo_dtype b) {
    if (a != FO_F32) {
        plan->kn = fo_active(), plan->kernel = fo_product_of(plan->kn, a, b);
        if (plan->kernel->reads != FO_F32) return;
    }
    plan->kn = fo_kernels_for(plan->n, plan->k, false), plan->kernel = fo_product_of(plan->kn, a, b);
}

/* What has an element a channel. Sums of float32 start with zeros where there is no bias; all else reads one. */
static bool make_channels(fo_linear *plan, const float *bias, const fo_activation *act) {
    bool failed = false;
    plan->columns = round_up(plan->n, plan->kn->vl), plan->act = *act;
    if (plan->kernel->product.a == FO_F32) {
        plan->bias = fo_copy(bias, plan->n, &failed);
        plan->slopes = fo_copy(act->slopes, plan->n, &failed);
    } else {
        plan->bias = channels(plan, &failed);
        if (act->slopes) plan->slopes = channels(plan, &failed);
        for (ptrdiff_t o = 0; !failed && o < plan->groups * plan->n; o++) {
            if (bias) plan->bias[channel_of(plan, o)] = bias[o];
            if (plan->slopes) plan->slopes[channel_of(plan, o)] = act->slopes[o];
        }
    }
    plan->act.slopes = plan->slopes;
    return !failed;
}

/* Memory for the weights of a plan whose kernel is known. */
static bool make_room(fo_linear *plan) {
    const fo_product product = plan->kernel->product;
    const ptrdiff_t size = product.group * fo_size(product.b);
    plan->steps = div_up(plan->k, product.group);
    const ptrdiff_t columns = plan->kept == FO_OF_COLUMNS ? plan->n
                              : product.group > 1         ? round_up(plan->n, plan->kn->vl)
                                                          : round_up(plan->n, plan->kn->nr);
    plan->bytes = columns * plan->steps * size;
    plan->w = fo_alloc((size_t)max_(plan->groups * plan->bytes, 1));
    return plan->w;
}

bool fo_product_make(fo_linear *plan, fo_dtype a, ptrdiff_t groups, ptrdiff_t n, ptrdiff_t k, const fo_weights *w,
                     ptrdiff_t wn, ptrdiff_t wk, const float *bias, const fo_activation *act) {
    *plan = (fo_linear){.groups = groups, .n = n, .k = k};
    if (a == FO_F32 && fo_is_dots(n, k)) plan->kept = FO_OF_COLUMNS;
    choose_kernel(plan, a, plan->kept == FO_OF_COLUMNS ? FO_F32 : w->type);
    const bool made = make_channels(plan, bias, act);
    if (!make_room(plan) || !made) return false;
    pack(plan, w, wn, wk);
    return true;
}

bool fo_product_make_int8(fo_linear *plan, ptrdiff_t groups, ptrdiff_t n, ptrdiff_t k, const int8_t *w, ptrdiff_t wn,
                          ptrdiff_t wk, const fo_quantized *q) {
    fo_int8_constants *c = &plan->q;
    bool failed = false;
    *plan = (fo_linear){.groups = groups, .n = n, .k = k};
    *c = (fo_int8_constants){.x = q->x, .product = q->product, .residual = q->residual, .y = q->y, .whole = q->whole};
    choose_kernel(plan, FO_U8, FO_S8);
    const bool made = make_channels(plan, NULL, &q->act);
    c->scale = channels(plan, &failed), c->sums = channels(plan, &failed);
    for (int s = 0; s < 2; s++) c->start[s] = channels(plan, &failed);
    if (q->nudge && q->x.scale && are_rounded(plan) && fits_integers(plan, q)) c->nudge = channels(plan, &failed);
    if (q->w_zero) c->w_zero = channels(plan, &failed);
    if (!make_room(plan) || !made || failed) return false;
    for (ptrdiff_t o = 0; q->w_zero && o < groups * n; o++) c->w_zero[channel_of(plan, o)] = -q->w_zero[o];
    pack(plan, &(fo_weights){w, FO_S8}, wn, wk);
    make_constants(plan, q);
    return true;
}

bool fo_product_make_blocks(fo_linear *plan, fo_dtype a, ptrdiff_t n, ptrdiff_t k, const fo_blockwise *blocks,
                            const float *bias, const fo_activation *act) {
    const ptrdiff_t steps = blocks->blocks * blocks->block;
    *plan = (fo_linear){.groups = 1, .n = n, .k = k, .kept = FO_IN_BLOCKS, .blocks = *blocks};
    choose_kernel(plan, a, FO_U8);
    plan->steps = a == FO_F32 ? k : steps / plan->kernel->product.group;
    plan->bytes = n * (steps * blocks->bits / 8 + 4 * blocks->blocks);
    return make_channels(plan, bias, act);
}

bool fo_product_borrow(fo_linear *plan, ptrdiff_t n, ptrdiff_t k, const float *w, ptrdiff_t wn, ptrdiff_t wk,
                       const float *bias, const fo_activation *act) {
    *plan = (fo_linear){.groups = 1, .n = n, .k = k, .steps = k, .kept = FO_BORROWED, .borrowed = w};
    plan->wn = wn, plan->wk = wk;
    choose_kernel(plan, FO_F32, FO_F32);
    plan->bytes = n * k * fo_size(FO_F32);
    return make_channels(plan, bias, act);
}

void fo_product_free(fo_linear *plan) {
    const fo_int8_constants *c = &plan->q;
    fo_free(plan->w), fo_free(plan->bias), fo_free(plan->slopes);
    fo_free(c->scale), fo_free(c->nudge), fo_free(c->w_zero), fo_free(c->sums), fo_free(c->start[0]),
        fo_free(c->start[1]);
}

/* Columns of the panel that begins at column j, of a form of groups or of floats. */
static ptrdiff_t panel_at(const fo_linear *plan, ptrdiff_t j) {
    const ptrdiff_t nr = plan->kernel->nr;
    if (plan->kept == FO_OF_COLUMNS) return 1;
    return plan->kernel->product.group > 1 ? fo_panel_columns(plan->n - j, plan->kn->vl, nr) : nr;
}

void fo_product_column(const fo_linear *plan, ptrdiff_t o, float *w) {
    const fo_product product = plan->kernel->product;
    const ptrdiff_t group = product.group, size = group * fo_size(product.b); /* of an element */
    ptrdiff_t j = o % plan->n, first = 0, columns = panel_at(plan, 0);
    for (; j >= columns; columns = panel_at(plan, first)) first += columns, j -= columns;
    const char *from = (const char *)plan->w + o / plan->n * plan->bytes + (first * plan->steps + j) * size;
    for (ptrdiff_t s = 0; product.b == FO_F32 && s < plan->k; s++) w[s] = ((const float *)from)[s * columns];
    uint16_t some[256];
    for (ptrdiff_t s = 0, count; product.b != FO_F32 && s < plan->k; s += count) {
        count = min_((ptrdiff_t)(sizeof some / sizeof *some), plan->k - s);
        for (ptrdiff_t i = 0, p = s; i < count; i++, p++)
            some[i] = ((const uint16_t *)from)[p / group * columns * group + p % group];
        plan->kn->widen(count, product.b, some, w + s);
    }
}

/* ---- arguments --------------------------------------------------------------------------------------------------- */

/* Whether to fetch lines of a large result: 4096x128x512 in 0.90 of the time, 4096x200x1024 in 0.95; but of few steps
 * 10000x16x100 in 1.03. */
static bool wants_lines(const fo_linear *plan, ptrdiff_t m) {
    return plan->k >= FO_FEW_STEPS && fo_is_large(m * plan->n, plan->act.kind);
}

void fo_product_args(const fo_product_call *call, fo_gemm_args *g, fo_rescale *rescale) {
    const fo_linear *plan = call->plan;
    const bool floats = plan->kernel->reads == FO_F32;
    *g = (fo_gemm_args){.m = call->m,
                        .n = plan->n,
                        .k = plan->steps,
                        .a = call->a,
                        .lda = floats ? call->lda / (ptrdiff_t)sizeof(float) : call->lda,
                        .ak = call->ak,
                        .c = call->c,
                        .ldc = call->ldc,
                        .ep = {.bias = plan->bias,
                               .residual = call->residual,
                               .ldr = call->ldr,
                               .type = call->types.y,
                               .residual_type = call->types.residual,
                               .act = plan->act}};
    if (floats)
        g->ep.large = wants_lines(plan, call->m);
    else
        g->segments = g->lines = 1;
    if (plan->kept == FO_IN_BLOCKS)
        g->bits = &plan->blocks, g->form = FO_BLOCKWISE;
    else if (plan->kept == FO_OF_COLUMNS)
        fo_gemm_columns(plan->kn, g, plan->w, plan->k);
    else if (floats)
        fo_gemm_panels(plan->kn, g, plan->w, plan->kernel->product.b, 0);
    else
        g->b_groups = plan->w;
    if (plan->kernel->product.acc == FO_S32) make_rescale(call, g, rescale), g->ep.rescale = rescale;
}

fo_gemm_args fo_product_part(const fo_product_call *call, const fo_gemm_args *whole, ptrdiff_t group, ptrdiff_t i,
                             ptrdiff_t j) {
    const fo_linear *plan = call->plan;
    fo_gemm_args g = *whole;
    const ptrdiff_t line = call->line ? i / call->line : 0, row = i - line * call->line;
    const ptrdiff_t output = group * plan->n + j, channel = group * plan->columns + j;
    g.column += channel;
    if (plan->kernel->reads == FO_F32)
        g.b += (group * plan->bytes) / (ptrdiff_t)sizeof(float) + j / plan->kn->nr * g.panel;
    else if (plan->w)
        g.b_groups += group * plan->bytes + 4 * j * plan->steps;
    g.c_typed = (char *)g.c_typed + (line * call->c_line + row * g.ldc + output) * fo_size(g.ep.type);
    if (g.ep.bias) g.ep.bias += channel;
    if (g.ep.residual)
        g.ep.residual =
            (const char *)g.ep.residual + (line * call->r_line + row * g.ep.ldr + output) * fo_size(g.ep.residual_type);
    if (g.ep.act.slopes) g.ep.act.slopes += channel;
    return g;
}
