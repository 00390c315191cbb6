/* Transposed convolution as stride-1 convolutions, one for each phase of the output.
 *
 * Row h of y takes tap i from row (h + top - i*dh) / sh of x where that is whole: so the rows with one remainder r of
 * (h + top) / sh share their taps, i0, i0 + step, ..., and on them y is an ordinary convolution with those taps in
 * reverse order, dilation step*dh/sh, written to every sh-th row. The same holds for columns. No sum is scattered,
 * nothing is added twice.
 *
 * Of few output channels, or of as many columns as the stride, phases of columns are one convolution's channels:
 *
 *      y, columns   | 0 1 .. sw-1 | sw .. | ..      is an image of    | pixel 0, sw * oc channels | pixel 1 | ..
 *
 * with kw / sw taps. Where y does not begin and end with such a pixel, or its channels are not neighbors, it is copied
 * from an image that has both.
 *
 * Of bfloat16 all phases share the image that is rounded; where the processor has no product of it, or a group has one
 * channel, the rounded numbers are multiplied in float32.
 */
#include <string.h>

#include "plan.h"
#include "qimage.h"

/* The taps of one phase of one axis. */
typedef struct {
    ptrdiff_t first, step, count, dilation;
} phase_taps;

struct fo_conv_transpose {
    fo_conv2d_shape s;
    bool rounds;         /* operands are bfloat16 */
    fo_dtype x;          /* of the image that phases read: FO_F32, or FO_BF16 where they multiply it */
    ptrdiff_t across;    /* phases of a row's columns that are convolutions of their own: sw, or 1 */
    fo_conv2d *phases[]; /* sh * across of them */
};

/* The same number of taps in each phase, and fewer channels than vectors have lanes, or one tap a row, so that images
 * are written whole lines at a time (Zen 4, 24 -> 24 channels, 2x2, 160x160: 0.74 of the time). */
static bool merges(const fo_conv2d_shape *s) {
    return s->sw > 1 && s->dw == 1 && s->kw % s->sw == 0 && s->groups == 1 &&
           (s->oc < CHANNEL_BLOCK || s->kw == s->sw) && !s->act.slopes;
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
static fo_conv2d *phase_plan(const fo_conv_transpose *t, const float *w, const float *bias, ptrdiff_t phase) {
    const fo_conv2d_shape *s = &t->s;
    const ptrdiff_t across = t->across;
    const phase_taps rows = taps_of(phase / across, s->kh, s->sh, s->dh);
    const phase_taps columns = columns_of(s, across, phase);
    const bool any = rows.count && columns.count;
    const ptrdiff_t merged = s->sw / across;
    fo_conv2d_shape part = *s;
    part.kh = any ? rows.count : 1, part.kw = any ? columns.count : 1;
    part.sh = part.sw = 1;
    part.dh = rows.dilation, part.dw = columns.dilation;
    part.oc = merged * s->oc;
    if (!w) return fo_conv2d_create(&part, FO_F32, &(fo_weights){NULL, FO_F32}, NULL, NULL);
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
    fo_conv2d *plan = fo_conv2d_create(&part, t->x, &(fo_weights){own, FO_F32}, NULL, bias ? own_bias : NULL);
    fo_free(own);
    return plan;
}

/* Weights of bfloat16 as floats; NULL where memory is short. */
static float *rounded_weights(const fo_conv2d_shape *s, const float *w) {
    const ptrdiff_t k = s->oc / s->groups * s->kh * s->kw, n = s->ic * k;
    uint16_t *narrow = fo_bf16_weights(s->ic, k, &(fo_weights){w, FO_F32}, k, 1, NULL);
    float *wide = fo_alloc((size_t)max_(n, 1) * sizeof *wide);
    if (narrow && wide) fo_active()->widen(n, FO_BF16, narrow, wide);
    if (!narrow) fo_free(wide), wide = NULL;
    fo_free(narrow);
    return wide;
}

/* Without its phases; NULL where memory is short. */
static fo_conv_transpose *plan_of(const fo_conv2d_shape *shape, bool rounds) {
    const ptrdiff_t across = merges(shape) ? 1 : shape->sw;
    const size_t bytes = sizeof(fo_conv_transpose) + (size_t)(shape->sh * across) * sizeof(fo_conv2d *);
    fo_conv_transpose *plan = fo_alloc(bytes);
    if (!plan) return NULL;
    memset(plan, 0, bytes);
    plan->s = *shape, plan->rounds = rounds, plan->across = across;
    plan->x = rounds && fo_has_bf16() && shape->ic > shape->groups ? FO_BF16 : FO_F32;
    return plan;
}

fo_conv_transpose *fo_conv_transpose_create(const fo_conv2d_shape *shape, fo_dtype a, const float *w,
                                            const float *bias) {
    fo_conv_transpose *plan = plan_of(shape, a == FO_BF16);
    if (!plan) return NULL;
    float *rounded = w && plan->rounds && plan->x == FO_F32 ? rounded_weights(shape, w) : NULL;
    const float *own = plan->rounds && plan->x == FO_F32 ? rounded : w;
    bool made = own || !w;
    for (ptrdiff_t p = 0; made && p < shape->sh * plan->across; p++)
        made = (plan->phases[p] = phase_plan(plan, own, bias, p));
    if (!made) fo_conv_transpose_free(plan), plan = NULL;
    fo_free(rounded);
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

/* Where a phase is in x and y, and the size of its convolution. */
typedef struct {
    phase_span rows, columns;
    fo_conv2d_size size;
} phase_part;

static phase_part part_of(const fo_conv_transpose *plan, const fo_conv2d_size *z, ptrdiff_t p) {
    const fo_conv2d_shape *s = &plan->s;
    const ptrdiff_t pixel = s->sw / plan->across; /* columns of y that are one */
    const ptrdiff_t r = p / plan->across, c = p % plan->across;
    const phase_taps down = taps_of(r, s->kh, s->sh, s->dh), across = columns_of(s, plan->across, c);
    const bool any = down.count && across.count;
    const phase_span rows = span_of(down, any, r, s->sh, s->dh, z->top, z->ih, z->oh);
    const phase_span columns = span_of(across, any, c, s->sw / pixel, s->dw, z->left / pixel, z->iw, z->ow / pixel);
    return (phase_part){
        rows, columns, {z->n, rows.size, columns.size, rows.count, columns.count, rows.before, columns.before}};
}

/* y where a merged phase begins and ends with whole pixels, or any y of other phases. */
static fo_status run_phases(const fo_conv_transpose *plan, const fo_conv2d_size *z, const fo_image *x,
                            const fo_image *residual, const fo_image *y) {
    for (ptrdiff_t p = 0; p < plan->s.sh * plan->across; p++) {
        const phase_part at = part_of(plan, z, p);
        fo_image from = *x, to = phase_image(y, &plan->s, at.rows, at.columns), added;
        from.data = (float *)((char *)x->data + (at.rows.from * x->sh + at.columns.from * x->sw) * fo_size(plan->x));
        if (residual) added = phase_image(residual, &plan->s, at.rows, at.columns);
        const fo_status status =
            fo_conv2d_run_as(plan->phases[p], (fo_types){.x = plan->x}, &at.size, &from, residual ? &added : NULL, &to);
        if (status != FO_OK) return status;
    }
    return FO_OK;
}

double fo_conv_transpose_nanoseconds(const fo_conv_transpose *plan, const fo_conv2d_size *z, fo_dtype type) {
    double ns = type == FO_BF16 ? fo_convert_nanoseconds(type, z->n * plan->s.ic * z->ih * z->iw) : 0;
    for (ptrdiff_t p = 0; p < plan->s.sh * plan->across; p++) {
        const phase_part at = part_of(plan, z, p);
        ns += type == FO_BF16 ? fo_conv2d_nanoseconds_as(type, &plan->phases[p]->s, &at.size)
                              : fo_conv2d_nanoseconds(plan->phases[p], &at.size);
    }
    return ns;
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
        g.y = !are_pixels(y, s->oc) && s->sh * s->sw > 1; /* pixels of a phase are no neighbors: channels must be */
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

static fo_status run(const fo_conv_transpose *plan, const fo_conv2d_size *z, const fo_image *x,
                     const fo_image *residual, const fo_image *y) {
    const staging g = staging_of(plan, z, x, residual, y);
    return g.x || g.y ? run_staged(plan, &g, z, x, residual, y) : run_phases(plan, z, x, residual, y);
}

fo_status fo_conv_transpose_run(const fo_conv_transpose *plan, const fo_conv2d_size *z, const fo_image *x,
                                const fo_image *residual, const fo_image *y) {
    if (!plan->rounds) return run(plan, z, x, residual, y);
    const fo_qextent in = {z->n, plan->s.ic, z->ih, z->iw};
    const ptrdiff_t narrow = fo_qroom(in, FO_BF16), wide = plan->x == FO_F32 ? fo_qroom(in, FO_F32) : 0;
    char *room = fo_arena_take((size_t)(narrow + wide));
    if (!room) return FO_NO_MEMORY;
    fo_image rounded = fo_qpixels(room, in);
    fo_status status = fo_qround(in, x, &rounded);
    if (status == FO_OK && wide) {
        fo_active()->widen(in.n * in.c * in.h * in.w, FO_BF16, rounded.data, (float *)(room + narrow));
        rounded.data = (float *)(room + narrow);
    }
    if (status == FO_OK) status = run(plan, z, &rounded, residual, y);
    fo_arena_release(room);
    return status;
}
