/* Transposed convolution as stride-1 convolutions, one for each phase of the output.
 *
 * Row h of y takes tap i from row (h + top - i*dh) / sh of x where that is whole: so the rows with one remainder r of
 * (h + top) / sh share their taps, i0, i0 + step, ..., and on them y is an ordinary convolution with those taps in
 * reverse order, dilation step*dh/sh, written to every sh-th row. The same holds for columns. No sum is scattered,
 * nothing is added twice. */
#include <string.h>

#include "../pack.h"

/* The taps of one phase of one axis. */
typedef struct {
    ptrdiff_t first, step, count, dilation;
} phase_taps;

struct fo_conv_transpose {
    fo_conv2d_shape s;
    fo_conv2d *phases[]; /* sh * sw of them */
};

static phase_taps taps_of(ptrdiff_t phase, ptrdiff_t taps, ptrdiff_t stride, ptrdiff_t dilation) {
    phase_taps t = {.first = 0, .step = 1, .count = 0, .dilation = 1};
    while (t.first < taps && t.first * dilation % stride != phase) t.first++;
    while (t.step * dilation % stride) t.step++;
    if (t.first < taps) t.count = (taps - 1 - t.first) / t.step + 1;
    t.dilation = t.step * dilation / stride;
    return t;
}

/* w (oc, ic/groups, rows, columns) of a phase from the whole (ic, oc/groups, kh, kw); a zero where it has no taps. */
static float *phase_weights(const fo_conv2d_shape *s, const float *w, phase_taps rows, phase_taps columns) {
    const ptrdiff_t icg = s->ic / s->groups, ocg = s->oc / s->groups, taps = rows.count * columns.count;
    float *part = fo_alloc((size_t)(s->oc * icg * max_(taps, 1)) * sizeof *part), *to = part;
    if (!part) return NULL;
    memset(part, 0, (size_t)(s->oc * icg * max_(taps, 1)) * sizeof *part);
    for (ptrdiff_t o = 0; o < s->oc && taps; o++)
        for (ptrdiff_t c = 0; c < icg; c++) {
            const float *from = w + ((o / ocg * icg + c) * ocg + o % ocg) * s->kh * s->kw;
            for (ptrdiff_t i = rows.count - 1; i >= 0; i--)
                for (ptrdiff_t j = columns.count - 1; j >= 0; j--)
                    *to++ = from[(rows.first + i * rows.step) * s->kw + columns.first + j * columns.step];
        }
    return part;
}

static fo_conv2d *phase_plan(const fo_conv2d_shape *s, const float *w, const float *bias, ptrdiff_t phase) {
    const phase_taps rows = taps_of(phase / s->sw, s->kh, s->sh, s->dh);
    const phase_taps columns = taps_of(phase % s->sw, s->kw, s->sw, s->dw);
    const bool any = rows.count && columns.count;
    fo_conv2d_shape part = *s;
    part.kh = any ? rows.count : 1, part.kw = any ? columns.count : 1;
    part.sh = part.sw = 1;
    part.dh = rows.dilation, part.dw = columns.dilation;
    /* Strassen's would go by way of a copy: the pixels of a phase are not contiguous */
    if (part.kh * part.kw == 1) part.algorithm = FO_DIRECT;
    float *own = phase_weights(s, w, rows, columns);
    fo_conv2d *plan = own ? fo_conv2d_create(&part, &(fo_weights){own, false}, NULL, bias) : NULL;
    fo_free(own);
    return plan;
}

fo_conv_transpose *fo_conv_transpose_create(const fo_conv2d_shape *shape, const float *w, const float *bias) {
    const ptrdiff_t phases = shape->sh * shape->sw;
    const size_t bytes = sizeof(fo_conv_transpose) + (size_t)phases * sizeof(fo_conv2d *);
    fo_conv_transpose *plan = fo_alloc(bytes);
    if (!plan) return NULL;
    memset(plan, 0, bytes);
    plan->s = *shape;
    for (ptrdiff_t p = 0; p < phases; p++)
        if (!(plan->phases[p] = phase_plan(shape, w, bias, p))) {
            fo_conv_transpose_free(plan);
            return NULL;
        }
    return plan;
}

void fo_conv_transpose_free(fo_conv_transpose *plan) {
    if (!plan) return;
    for (ptrdiff_t p = 0; p < plan->s.sh * plan->s.sw; p++) fo_conv2d_free(plan->phases[p]);
    fo_free(plan);
}

/* Rows (or columns) of one phase: y's first, how many, x's first, how many, and the zeros before it. */
typedef struct {
    ptrdiff_t first, count, from, size, before;
} phase_span;

static phase_span span_of(phase_taps t, bool any, ptrdiff_t phase, ptrdiff_t stride, ptrdiff_t dilation, ptrdiff_t crop,
                          ptrdiff_t in, ptrdiff_t out) {
    phase_span v = {.first = ((phase - crop) % stride + stride) % stride, .size = in};
    v.count = v.first < out ? (out - v.first - 1) / stride + 1 : 0;
    const ptrdiff_t reach = (t.count - 1) * t.dilation;
    v.before = reach - (v.first + crop - t.first * dilation) / stride;
    if (v.before < 0) v.from = -v.before, v.size += v.before, v.before = 0;
    if (!any || v.size <= 0) v.from = 0, v.size = 1, v.before = v.count + max_(reach, 0); /* zeros alone */
    return v;
}

static fo_image phase_image(const fo_image *y, const fo_conv2d_shape *s, phase_span rows, phase_span columns) {
    return (fo_image){.data = y->data + rows.first * y->sh + columns.first * y->sw,
                      .sn = y->sn,
                      .sc = y->sc,
                      .sh = y->sh * s->sh,
                      .sw = y->sw * s->sw};
}

fo_status fo_conv_transpose_run(const fo_conv_transpose *plan, const fo_conv2d_size *z, const fo_image *x,
                                const fo_image *residual, const fo_image *y) {
    const fo_conv2d_shape *s = &plan->s;
    for (ptrdiff_t p = 0; p < s->sh * s->sw; p++) {
        const ptrdiff_t r = p / s->sw, c = p % s->sw;
        const phase_taps down = taps_of(r, s->kh, s->sh, s->dh), across = taps_of(c, s->kw, s->sw, s->dw);
        const bool any = down.count && across.count;
        const phase_span rows = span_of(down, any, r, s->sh, s->dh, z->top, z->ih, z->oh);
        const phase_span columns = span_of(across, any, c, s->sw, s->dw, z->left, z->iw, z->ow);
        const fo_conv2d_size size = {z->n,          rows.size,   columns.size,  rows.count,
                                     columns.count, rows.before, columns.before};
        fo_image from = *x, to = phase_image(y, s, rows, columns), added;
        from.data += rows.from * x->sh + columns.from * x->sw;
        if (residual) added = phase_image(residual, s, rows, columns);
        const fo_status status = fo_conv2d_run(plan->phases[p], &size, &from, residual ? &added : NULL, &to);
        if (status != FO_OK) return status;
    }
    return FO_OK;
}
