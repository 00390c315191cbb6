/* Transposed convolution as stride-1 convolutions, one for each phase of the output.
 *
 * Row h of y takes tap i from row (h + top - i*dh) / sh of x where that is whole: so the rows with one remainder r of
 * (h + top) / sh share their taps, i0, i0 + step, ..., and on them y is an ordinary convolution with those taps in
 * reverse order, dilation step*dh/sh, written to every sh-th row. The same holds for columns. No sum is scattered,
 * nothing is added twice.
 *
 * Of few output channels the phases of a row's columns are one convolution whose channels they are, all sw of them:
 *
 *      y, columns   | 0 1 .. sw-1 | sw .. | ..      is an image of    | pixel 0, sw * oc channels | pixel 1 | ..
 *
 * with kw / sw taps. Where y does not begin and end with such a pixel, or its channels are not neighbours, it is copied
 * from an image that has both.
 */
#include <string.h>

#include "plan.h"

/* The taps of one phase of one axis. */
typedef struct {
    ptrdiff_t first, step, count, dilation;
} phase_taps;

struct fo_conv_transpose {
    fo_conv2d_shape s;
    ptrdiff_t across;    /* phases of a row's columns that are convolutions of their own: sw, or 1 */
    fo_conv2d *phases[]; /* sh * across of them */
};

/* Fewer channels than vectors have lanes, and the same number of taps in each phase. */
static bool merges(const fo_conv2d_shape *s) {
    return s->sw > 1 && s->dw == 1 && s->kw % s->sw == 0 && s->groups == 1 && s->oc < CHANNEL_BLOCK && !s->act.slopes;
}

static bool is_merged(const fo_conv_transpose *t) { return t->across < t->s.sw; }

static phase_taps taps_of(ptrdiff_t phase, ptrdiff_t taps, ptrdiff_t stride, ptrdiff_t dilation) {
    phase_taps t = {.first = 0, .step = 1, .count = 0, .dilation = 1};
    while (t.first < taps && t.first * dilation % stride != phase) t.first++;
    while (t.step * dilation % stride) t.step++;
    if (t.first < taps) t.count = (taps - 1 - t.first) / t.step + 1;
    t.dilation = t.step * dilation / stride;
    return t;
}

static phase_taps columns_of(const fo_conv2d_shape *s, ptrdiff_t across, ptrdiff_t phase) {
    const phase_taps merged = {.first = 0, .step = 1, .count = s->kw / s->sw, .dilation = 1};
    return across < s->sw ? merged : taps_of(phase % across, s->kw, s->sw, s->dw);
}

/* w (oc, ic/groups, rows, columns) of a phase from the whole (ic, oc/groups, kh, kw); a zero where it has no taps. */
static void phase_weights(const fo_conv2d_shape *s, const float *w, phase_taps rows, phase_taps columns, float *to) {
    const ptrdiff_t icg = s->ic / s->groups, ocg = s->oc / s->groups, taps = rows.count * columns.count;
    for (ptrdiff_t o = 0; o < s->oc && taps; o++)
        for (ptrdiff_t c = 0; c < icg; c++) {
            const float *from = w + ((o / ocg * icg + c) * ocg + o % ocg) * s->kh * s->kw;
            for (ptrdiff_t i = rows.count - 1; i >= 0; i--)
                for (ptrdiff_t j = columns.count - 1; j >= 0; j--)
                    *to++ = from[(rows.first + i * rows.step) * s->kw + columns.first + j * columns.step];
        }
}

/* Its plan. The taps of a merged phase are those of each column of a pixel in turn, sw apart. */
static fo_conv2d *phase_plan(const fo_conv2d_shape *s, const float *w, const float *bias, ptrdiff_t across,
                             ptrdiff_t phase) {
    const phase_taps rows = taps_of(phase / across, s->kh, s->sh, s->dh);
    const phase_taps columns = columns_of(s, across, phase);
    const bool any = rows.count && columns.count;
    const ptrdiff_t merged = s->sw / across;
    fo_conv2d_shape part = *s;
    part.kh = any ? rows.count : 1, part.kw = any ? columns.count : 1;
    part.sh = part.sw = 1;
    part.dh = rows.dilation, part.dw = columns.dilation;
    part.oc = merged * s->oc;
    /* Strassen's would go by way of a copy: the pixels of a phase are not contiguous */
    if (part.kh * part.kw == 1 && merged == 1) part.algorithm = FO_DIRECT;
    const ptrdiff_t each = s->oc * (s->ic / s->groups) * part.kh * part.kw;
    float *own = fo_alloc((size_t)(merged * (each + s->oc)) * sizeof *own), *own_bias = own + merged * each;
    if (!own) return NULL;
    memset(own, 0, (size_t)(merged * each) * sizeof *own);
    for (ptrdiff_t m = 0; m < merged; m++) {
        phase_taps mine = columns;
        if (merged > 1) mine.first = m, mine.step = s->sw;
        phase_weights(s, w, rows, mine, own + m * each);
        if (bias) memcpy(own_bias + m * s->oc, bias, (size_t)s->oc * sizeof *own);
    }
    fo_conv2d *plan = fo_conv2d_create(&part, &(fo_weights){own, false}, NULL, bias ? own_bias : NULL);
    fo_free(own);
    return plan;
}

fo_conv_transpose *fo_conv_transpose_create(const fo_conv2d_shape *shape, const float *w, const float *bias) {
    const ptrdiff_t across = merges(shape) ? 1 : shape->sw, phases = shape->sh * across;
    const size_t bytes = sizeof(fo_conv_transpose) + (size_t)phases * sizeof(fo_conv2d *);
    fo_conv_transpose *plan = fo_alloc(bytes);
    if (!plan) return NULL;
    memset(plan, 0, bytes);
    plan->s = *shape, plan->across = across;
    for (ptrdiff_t p = 0; p < phases; p++)
        if (!(plan->phases[p] = phase_plan(shape, w, bias, across, p))) {
            fo_conv_transpose_free(plan);
            return NULL;
        }
    return plan;
}

void fo_conv_transpose_free(fo_conv_transpose *plan) {
    if (!plan) return;
    for (ptrdiff_t p = 0; p < plan->s.sh * plan->across; p++) fo_conv2d_free(plan->phases[p]);
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

/* y where a merged phase begins and ends with whole pixels, or any y of other phases. */
static fo_status run_phases(const fo_conv_transpose *plan, const fo_conv2d_size *z, const fo_image *x,
                            const fo_image *residual, const fo_image *y) {
    const fo_conv2d_shape *s = &plan->s;
    const ptrdiff_t pixel = s->sw / plan->across; /* columns of y that are one */
    for (ptrdiff_t p = 0; p < s->sh * plan->across; p++) {
        const ptrdiff_t r = p / plan->across, c = p % plan->across;
        const phase_taps down = taps_of(r, s->kh, s->sh, s->dh), across = columns_of(s, plan->across, c);
        const bool any = down.count && across.count;
        const phase_span rows = span_of(down, any, r, s->sh, s->dh, z->top, z->ih, z->oh);
        const phase_span columns = span_of(across, any, c, s->sw / pixel, s->dw, z->left / pixel, z->iw, z->ow / pixel);
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

/* What the phases write in place of y, and read in place of x: contiguous images with channels last. */
typedef struct {
    bool x, y;
    fo_conv2d_size z;  /* of the phases */
    ptrdiff_t skipped; /* columns before y's first */
} staging;

static bool are_pixels(const fo_image *t, ptrdiff_t channels) { return t->sc == 1 || channels == 1; }

static ptrdiff_t floor_multiple(ptrdiff_t v, ptrdiff_t of) { return v - (v % of + of) % of; }

static staging staging_of(const fo_conv_transpose *plan, const fo_conv2d_size *z, const fo_image *x, const fo_image *r,
                          const fo_image *y) {
    const fo_conv2d_shape *s = &plan->s;
    staging g = {.z = *z};
    if (is_merged(plan)) {
        g.z.left = floor_multiple(z->left, s->sw), g.skipped = z->left - g.z.left;
        g.z.ow = -floor_multiple(-g.skipped - z->ow, s->sw);
        g.y = g.z.ow != z->ow || !are_pixels(y, s->oc) || y->sw != s->oc ||
              (r && (!are_pixels(r, s->oc) || r->sw != s->oc));
    } else {
        g.y = !are_pixels(y, s->oc) && s->sh * s->sw > 1; /* pixels of a phase are no neighbours: channels must be */
    }
    /* depthwise kernels read planes where they write them */
    g.x = s->groups > 1 && !are_pixels(x, s->ic) && (g.y || are_pixels(y, s->oc));
    return g;
}

static fo_image staged_image(float *data, const fo_conv2d_size *z, ptrdiff_t c) {
    fo_image t = fo_contiguous(c, z->oh, z->ow, true);
    t.data = data;
    return t;
}

/* By way of images of its own. */
static fo_status run_staged(const fo_conv_transpose *plan, const staging *g, const fo_conv2d_size *z, const fo_image *x,
                            const fo_image *residual, const fo_image *y) {
    const fo_conv2d_shape *s = &plan->s;
    const fo_conv2d_size in = {.n = z->n, .oh = z->ih, .ow = z->iw};
    const ptrdiff_t x_floats = g->x ? z->n * z->ih * z->iw * s->ic : 0;
    const ptrdiff_t y_floats = g->y ? z->n * g->z.oh * g->z.ow * s->oc : 0;
    float *scratch = fo_alloc_result((size_t)(x_floats + (residual ? 2 : 1) * y_floats + 1) * sizeof *scratch);
    if (!scratch) return FO_NO_MEMORY;
    fo_image from = *x, to = *y, added = residual ? *residual : *y;
    fo_status status = FO_OK;
    if (g->x) from = staged_image(scratch, &in, s->ic), status = fo_copy_image(&from, x, &in, s->ic);
    if (g->y) {
        to = staged_image(scratch + x_floats, &g->z, s->oc);
        added = staged_image(scratch + x_floats + y_floats, &g->z, s->oc);
    }
    fo_image inside = to, inside_added = added; /* of what stands for y */
    inside.data += g->skipped * s->oc, inside_added.data += g->skipped * s->oc;
    if (g->y && residual) {
        memset(added.data, 0, (size_t)y_floats * sizeof *scratch);
        status = fo_copy_image(&inside_added, residual, z, s->oc);
    }
    if (status == FO_OK) status = run_phases(plan, &g->z, &from, residual ? &added : NULL, &to);
    if (status == FO_OK && g->y) status = fo_copy_image(y, &inside, z, s->oc);
    fo_free_result(scratch);
    return status;
}

fo_status fo_conv_transpose_run(const fo_conv_transpose *plan, const fo_conv2d_size *z, const fo_image *x,
                                const fo_image *residual, const fo_image *y) {
    const staging g = staging_of(plan, z, x, residual, y);
    return g.x || g.y ? run_staged(plan, &g, z, x, residual, y) : run_phases(plan, z, x, residual, y);
}
