/* Plans of convolutions of int8 and bfloat16: weights in the order of patches, as products have them; of a depthwise
 * convolution in blocks of channels, its constants in the order of quads.
 */
#include <string.h>

#include "../algorithm.h"
#include "../qimage.h"
#include "qconv_plan.h"
#include "windows.h"

/* Where a column's weight of tap t and channel i is, in the order of patches. */
static ptrdiff_t weight_at(const fo_qconv2d *plan, ptrdiff_t t, ptrdiff_t i) {
    return t / plan->s.kw * plan->line + t % plan->s.kw * plan->pixel + i;
}

/* w (oc, c, kh, kw), of a type, in the order of patches: (oc, kh, line), where elements that are no weights are 0, or
 * zero points; NULL where memory is short. */
static void *in_order_of_patches(const fo_qconv2d *plan, fo_dtype type, const void *w, const int8_t *zero) {
    const fo_conv2d_shape *s = &plan->s;
    const ptrdiff_t c = s->ic / s->groups, taps = s->kh * s->kw, size = fo_size(type), each = s->kh * plan->line * size;
    char *to = fo_alloc((size_t)max_(s->oc * each, 1));
    if (!to) return NULL;
    for (ptrdiff_t o = 0; o < s->oc; o++) {
        memset(to + o * each, zero ? zero[o] : 0, (size_t)each);
        for (ptrdiff_t i = 0; i < c; i++)
            for (ptrdiff_t t = 0; t < taps; t++)
                memcpy(to + o * each + weight_at(plan, t, i) * size, (const char *)w + ((o * c + i) * taps + t) * size,
                       (size_t)size);
    }
    return to;
}

/* The channel of a constant in the order of quads; after the last one there may be others. */
static ptrdiff_t quad_channel(const fo_qconv2d *plan, ptrdiff_t at) {
    const ptrdiff_t vl = plan->products.kn->vl, channels = 4 * vl, c = at / channels * channels,
                    part = channels / fo_qparts(plan->products.kn->parts, plan->s.oc - c, channels);
    return c + fo_quad_channel(at % channels / vl, at % vl, vl) % part;
}

/* A constant of each channel, floats or integers, in the order of quads: to *to. False where memory is short. */
static bool order_by_quads(const fo_qconv2d *plan, const void *from, void *to) {
    const ptrdiff_t n = round_up(plan->s.oc, 4 * plan->products.kn->vl), size = sizeof(int32_t);
    char *ordered = from ? fo_alloc((size_t)(n * size)) : NULL;
    for (ptrdiff_t at = 0, o; ordered && at < n; at++) {
        memset(ordered + at * size, 0, (size_t)size);
        if ((o = quad_channel(plan, at)) < plan->s.oc)
            memcpy(ordered + at * size, (const char *)from + o * size, (size_t)size);
    }
    memcpy(to, &ordered, sizeof ordered);
    return ordered || !from;
}

/* Weights by fours of rows, and constants in the order of quads. False where memory is short. */
static bool make_depthwise(fo_qconv2d *plan, const int8_t *w) {
    const fo_conv2d_shape *s = &plan->s;
    const fo_linear *p = &plan->products;
    const fo_int8_constants *q = &p->q;
    const ptrdiff_t vl = p->kn->vl, channels = 4 * vl, blocks = div_up(s->oc, channels), taps = s->kh * s->kw;
    const ptrdiff_t sets = s->kh < 4 ? 2 : 1; /* the second a row further down */
    plan->block = sets * div_up(s->kh, 4) * s->kw * 4 * channels;
    plan->taps_block = s->kh * round_up(s->kw, 4);
    plan->w = fo_alloc((size_t)(blocks * plan->block)), plan->taps = fo_alloc((size_t)(s->oc * plan->taps_block));
    const struct {
        const void *from;
        void *to;
    } constants[] = {{q->scale, &plan->scale},       {p->bias, &plan->bias},         {q->nudge, &plan->nudge},
                     {q->start[0], &plan->start[0]}, {q->start[1], &plan->start[1]}, {q->w_zero, &plan->w_zero}};
    bool made = plan->w && plan->taps;
    for (size_t i = 0; i < sizeof constants / sizeof *constants; i++)
        made = order_by_quads(plan, constants[i].from, constants[i].to) && made;
    if (!made) return false;
    memset(plan->w, 0, (size_t)(blocks * plan->block)), memset(plan->taps, 0, (size_t)(s->oc * plan->taps_block));
    for (ptrdiff_t r = 0; r < s->oc * s->kh; r++)
        memcpy(plan->taps + r * round_up(s->kw, 4), w + r * s->kw, (size_t)s->kw);
    for (ptrdiff_t at = 0; at < blocks * channels; at++) {
        const ptrdiff_t o = quad_channel(plan, at);
        int8_t *to = plan->w + at / channels * plan->block + at % channels * 4;
        for (ptrdiff_t i = 0; o < s->oc && i < s->kh; i++)
            for (ptrdiff_t j = 0; j < s->kw; j++)
                for (ptrdiff_t set = 0; set < sets; set++)
                    to[((set + i / 4) * s->kw + j) * 4 * channels + (i + set) % 4] = w[o * taps + i * s->kw + j];
    }
    return true;
}

/* Products of weights in the order of patches. */
static bool make_products(fo_linear *to, fo_dtype type, ptrdiff_t groups, ptrdiff_t n, ptrdiff_t k, const void *w,
                          const fo_quantized *q) {
    const fo_weights weights = {w, type};
    return type == FO_S8 ? fo_product_make_int8(to, groups, n, k, w, k, 1, q)
                         : fo_product_make(to, type, groups, n, k, &weights, k, 1, q->bias, &q->act);
}

/* False where memory is short. */
static bool make(fo_qconv2d *plan, const fo_conv2d_shape *shape, fo_dtype type, const void *w, const fo_quantized *q) {
    const fo_product_kernel *kernel = fo_product_of(fo_active(), type == FO_S8 ? FO_U8 : type, type);
    *plan = (fo_qconv2d){.s = *shape, .pixel = fo_qpixel(kernel, shape), .line = fo_qline(kernel, shape)};
    plan->depthwise = type == FO_S8 && q->x.scale && fo_qdepthwise(shape); /* others are products */
    const ptrdiff_t k = shape->kh * plan->line;
    void *ordered = in_order_of_patches(plan, type, w, q->w_zero);
    const bool made =
        ordered && make_products(&plan->products, type, shape->groups, shape->oc / shape->groups, k, ordered, q);
    fo_free(ordered);
    if (!made || !plan->depthwise) return made;
    fo_product_free(&plan->products); /* one group's constants are neighbors */
    return make_products(&plan->products, FO_S8, 1, shape->oc, shape->kh * shape->kw, w, q) && make_depthwise(plan, w);
}

fo_conv2d *fo_qconv2d_plan(const fo_conv2d_shape *shape, fo_dtype type, const void *w, const fo_quantized *q) {
    fo_conv2d *plan = fo_plan_new(shape, type);
    fo_qconv2d *packed = plan ? fo_alloc(sizeof *packed) : NULL;
    if (!packed || !make(packed, shape, type, w, q)) {
        fo_qconv2d_free(packed);
        fo_plan_free(plan);
        return NULL;
    }
    plan->q = packed, plan->isa = fo_linear_isa(&packed->products);
    plan->s.act.slopes = NULL; /* the caller's; products have a copy */
    return plan;
}

void fo_qconv2d_free(fo_qconv2d *plan) {
    if (!plan) return;
    fo_product_free(&plan->products);
    fo_free(plan->w), fo_free(plan->taps), fo_free(plan->scale), fo_free(plan->bias);
    fo_free(plan->nudge), fo_free(plan->start[0]), fo_free(plan->start[1]), fo_free(plan->w_zero);
    fo_free(plan);
}

ptrdiff_t fo_qconv2d_bytes(const fo_qconv2d *plan) {
    const fo_linear *p = &plan->products;
    const ptrdiff_t blocks = div_up(plan->s.oc, 4 * p->kn->vl);
    return fo_product_bytes(p) + (plan->w ? blocks * plan->block + plan->s.oc * plan->taps_block : 0);
}

bool fo_qconv2d_weights(const fo_qconv2d *plan, float *w) {
    const fo_linear *p = &plan->products;
    const ptrdiff_t c = plan->s.ic / plan->s.groups, taps = plan->s.kh * plan->s.kw;
    float *column = fo_alloc((size_t)max_(p->k, 1) * sizeof *column);
    for (ptrdiff_t o = 0; column && o < plan->s.oc; o++) {
        fo_product_column(p, o, column);
        for (ptrdiff_t i = 0; i < c; i++)
            for (ptrdiff_t t = 0; t < taps; t++) w[(o * c + i) * taps + t] = column[weight_at(plan, t, i)];
    }
    fo_free(column);
    return column;
}
