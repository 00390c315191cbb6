/* Convolutions that are others, with the same weights, on images that are rewritten.
 *
 *     windows   that do not overlap are pixels of a 1x1 convolution, with as many channels as a window has elements:
 *               they are copied
 *     one row   of taps is one column of them on an image whose rows and columns change places: strides do, planes
 *               are copied to pixels and back
 *     one column  of taps on an image of few columns is one row of them, in the same way
 *
 * Copies are scratch of a call. Sizes of an image alone decide, in either memory order.
 */
#include "../dispatch/estimate.h"
#include "rewrite.h"

#include <string.h>

#include "../machine/tune.h"

typedef struct {
    const fo_conv2d *plan;
    fo_conv2d_size z, some; /* of the call, and of the windows that are copied at once */
    size_t bytes;           /* of copies */
    bool copies;
} rewrite;

/* ---- which, and when --------------------------------------------------------------------------------------------- */

/* Where windows do not overlap (1x1 with a stride, or the patches of a transformer), rows of pixels are short, and a
 * tap's are far apart. Copied to scratch, once, each window is a pixel of many channels, and all of them are one
 * row: 3 -> 768 channels, 16x16 of stride 16, in 0.75 of the time. Channels last, taps with many channels are read as
 * they are, 97 % of the peak. */
static bool is_patchify(const fo_conv2d *plan) {
    const fo_conv2d_shape *s = &plan->s;
    const bool strides = s->sh >= s->kh && s->sw >= s->kw && (s->sh > 1 || s->sw > 1) && s->dh == 1 && s->dw == 1;
    const bool gains = s->kh * s->kw == 1 || !s->nhwc || (s->ic < CHANNEL_BLOCK && s->kw * s->ic > CHANNEL_BLOCK);
    return strides && gains && s->groups == 1 && s->oc >= FO_REWRITE_CHANNELS &&
           (s->algorithm == FO_AUTO || s->algorithm == FO_DIRECT);
}

/* A kernel of one row is one of one column on an image whose rows are columns: several rows of it share products. (Not
 * with AVX2, 0.85 to 0.97.) */
static bool is_1xk(const fo_conv2d *plan) {
    return plan->s.kh == 1 && plan->s.kw > 1 && plan->s.groups == 1 && plan->s.algorithm == FO_AUTO &&
           plan->kn->vec_is_line;
}

/* A kernel of one column is one of one row: where an image has few columns, a product has few rows else, on any set. */
static bool is_kx1(const fo_conv2d *plan) {
    return plan->s.kw == 1 && plan->s.kh > 1 && (plan->s.algorithm == FO_AUTO || plan->s.algorithm == FO_DIRECT);
}

bool fo_rewrite_shape(const fo_conv2d *plan, fo_conv2d_shape *shape) {
    const fo_conv2d_shape *s = &plan->s;
    *shape = *s;
    if (is_patchify(plan)) {
        shape->kh = shape->kw = shape->sh = shape->sw = 1, shape->ic = plan->k;
        return true;
    }
    shape->kh = s->kw, shape->kw = s->kh;
    shape->sh = s->sw, shape->sw = s->sh;
    shape->dh = s->dw, shape->dw = s->dh;
    return is_1xk(plan) || is_kx1(plan);
}

/* Floats of an image and its result, and of a residual. */
static ptrdiff_t swapped_floats(const fo_conv2d *plan, const fo_conv2d_size *z, bool adds) {
    return plan->s.ic * z->ih * z->iw + (1 + adds) * plan->s.oc * z->oh * z->ow;
}

bool fo_rewrite_applies(const fo_conv2d *plan, const fo_conv2d *to, const fo_conv2d_size *z) {
    const fo_conv2d_shape *s = &plan->s;
    if (fo_rewrites_columns(to) && z->iw == 1 && z->ow == 1) return true; /* contiguous ones are rows as they are */
    if (!fo_rewrites_windows(to)) return swapped_floats(plan, z, true) <= FO_L3_PIECE / 4;
    return !z->top && !z->left && (z->oh - 1) * s->sh + s->kh <= z->ih && (z->ow - 1) * s->sw + s->kw <= z->iw;
}

/* ---- a call ------------------------------------------------------------------------------------------------------ */

/* Windows that are copied at once: those of some images, or some rows of a large one. */
static fo_conv2d_size windows_at_once(const fo_conv2d *plan, const fo_conv2d_size *z) {
    const ptrdiff_t row = max_(plan->k * z->ow, 1), rows = min_(z->oh, max_(FO_L3_PIECE / 4 / row, 1));
    const ptrdiff_t images = rows < z->oh ? 1 : min_(z->n, max_(FO_L3_PIECE / 4 / (rows * row), 1));
    return (fo_conv2d_size){.n = images, .ih = rows, .iw = z->ow, .oh = rows, .ow = z->ow};
}

static size_t windows_bytes(const fo_conv2d *plan, const fo_conv2d_size *some) {
    return (size_t)(some->n * plan->k * some->oh * some->ow) * sizeof(float);
}

/* The whole parts, and the last one where it has fewer images or rows. */
static void window_layouts(const rewrite *w, const fo_layout *given, fo_layout inner[2]) {
    const fo_conv2d_size *z = &w->z, *some = &w->some;
    for (int part = 0; part < 2; part++) {
        fo_layout *l = &inner[part];
        *l = (fo_layout){*some, fo_contiguous(0, 0, 0, true), given->r, given->y, given->types, given->adds};
        if (part && some->oh < z->oh)
            l->z.ih = l->z.oh = z->oh % some->oh, l->z.n = l->z.oh > 0;
        else if (part)
            l->z.n = z->n % some->n;
        l->x = fo_contiguous(w->plan->k, l->z.oh, l->z.ow, w->plan->s.nhwc);
    }
}

static fo_image swapped_image(const fo_image *t) { return (fo_image){t->data, t->sn, t->sc, t->sw, t->sh}; }

/* The whole call, or an image of it whose planes are copied to pixels. */
static void swapped_layout(const rewrite *w, const fo_conv2d *to, const fo_layout *given, fo_layout *inner) {
    fo_layout l = *given;
    l.z = fo_rewrite_size(to, &w->z);
    if (w->copies) {
        l.z.n = 1;
        l.x = fo_contiguous(w->plan->s.ic, w->z.ih, w->z.iw, true),
        l.y = fo_contiguous(w->plan->s.oc, w->z.oh, w->z.ow, true);
        if (l.adds) l.r = l.y;
    }
    l.x = swapped_image(&l.x), l.r = swapped_image(&l.r), l.y = swapped_image(&l.y);
    *inner = l;
}

/* Whether rows and columns of images change places by strides alone. */
static bool swaps_by_strides(const fo_layout *l) {
    const bool columns = l->z.iw == 1 && l->z.ow == 1 && l->x.sh == 1 && l->y.sh == 1 && (!l->adds || l->r.sh == 1);
    return columns || (l->x.sc == 1 && l->y.sc == 1 && (!l->adds || l->r.sc == 1));
}

fo_status fo_rewrite_prepare(fo_prepared_conv2d *call, const fo_conv2d *to, fo_layout inner[2]) {
    const fo_layout *l = &call->layout;
    const fo_conv2d *plan = call->plan;
    const bool windows = fo_rewrites_windows(to);
    rewrite w = {
        .plan = plan, .z = l->z, .some = windows_at_once(plan, &l->z), .copies = windows || !swaps_by_strides(l)};
    if (windows)
        w.bytes = windows_bytes(plan, &w.some), window_layouts(&w, l, inner);
    else
        w.bytes = w.copies ? (size_t)swapped_floats(plan, &l->z, l->adds) * sizeof(float) : 0,
        swapped_layout(&w, to, l, inner);
    const double points = (double)plan->s.oc * (double)(l->z.oh * l->z.ow);
    rewrite *state =
        fo_call_prepare(call, sizeof w, w.copies ? fo_nanoseconds(plan->kn, points * (double)plan->k, 0) : 0);
    if (!state) return FO_NO_MEMORY;
    *state = w;
    call->scratch = (ptrdiff_t)w.bytes;
    return FO_OK;
}

/* The part of the images that begins with row h of image n. */
static fo_image part_of(const fo_image *t, ptrdiff_t n, ptrdiff_t h) {
    return (fo_image){t->data + n * t->sn + h * t->sh, t->sn, t->sc, t->sh, t->sw};
}

typedef struct {
    const fo_prepared_conv2d *call;
    const rewrite *w;
    const fo_image *x, *r, *y;
    float *room;
    fo_status status;
} copied_call;

/* ---- windows as pixels ------------------------------------------------------------------------------------------- */

typedef struct {
    const fo_conv2d *plan;
    const fo_conv2d_size *some;
    const fo_image *to, *from;
} window_copy;

/* What the windows of planes have for kernel row i of channel c, for all of its columns. */
static void copy_windows(void *context, ptrdiff_t task, int thread) {
    (void)thread;
    const window_copy *job = context;
    const fo_conv2d_shape *s = &job->plan->s;
    const fo_kernels *kn = job->plan->kn;
    const ptrdiff_t i = task % s->kh, c = task / s->kh, c0 = c / CHANNEL_BLOCK * CHANNEL_BLOCK;
    const ptrdiff_t block = min_(CHANNEL_BLOCK, s->ic - c0);
    const ptrdiff_t oh = job->some->oh, ow = job->some->ow, down = s->sh * job->from->sh;
    const ptrdiff_t first = c0 * s->kh * s->kw + i * s->kw * block + c - c0;
    for (ptrdiff_t n = 0; n < job->some->n; n++) {
        const float *x = fo_at(job->from, n, c, i, 0);
        float *to = fo_at(job->to, n, first, 0, 0);
        const ptrdiff_t step = block * job->to->sc; /* from a kernel column to the next */
        if (s->kw <= FO_TRANSPOSE_ELEMENTS)
            for (ptrdiff_t j = 0; j < s->kw; j++)
                kn->pad(oh, ow, x, down, (ow - 1) * s->sw + s->kw, j, s->sw, to + j * step, ow);
        else
            for (ptrdiff_t h = 0; h < oh; h++) kn->transpose(ow, s->kw, x + h * down, s->sw, to + h * ow, step);
    }
}

/* Copies windows, the channels of each in the order of the weights; planes by the kernels, all others by what is
 * contiguous in both. */
static fo_status copy_all_windows(const fo_conv2d *plan, const fo_conv2d_size *some, const fo_image *to,
                                  const fo_image *from) {
    const fo_conv2d_shape *s = &plan->s;
    if (from->sw == 1 && to->sw == 1) {
        window_copy job = {plan, some, to, from};
        const int threads = fo_threads_for(fo_nanoseconds(plan->kn, 0, 2.0 * (double)windows_bytes(plan, some)));
        fo_parallel_for(s->ic * s->kh, threads, copy_windows, &job);
        return FO_OK;
    }
    for (ptrdiff_t c = 0, at = 0; c < s->ic; c += CHANNEL_BLOCK) {
        const ptrdiff_t block = min_(CHANNEL_BLOCK, s->ic - c);
        fo_copy_args a = {{6,
                           {some->n, s->kh, s->kw, block, some->oh, some->ow},
                           {{to->sn, s->kw * block * to->sc, block * to->sc, to->sc, to->sh, to->sw},
                            {from->sn, from->sh, from->sw, from->sc, s->sh * from->sh, s->sw * from->sw}}},
                          fo_at(to, 0, at, 0, 0),
                          fo_at(from, 0, c, 0, 0),
                          0};
        at += s->kh * s->kw * block;
        fo_fold(&a.axes);
        const fo_status status = fo_strided_copy(&a);
        if (status != FO_OK) return status;
    }
    return FO_OK;
}

/* Output rows h .. of images n .., whose windows are copied. */
static fo_status windows_part(const copied_call *c, const fo_prepared_conv2d *inner, ptrdiff_t n, ptrdiff_t h) {
    const fo_image from = part_of(c->x, n, h * c->w->plan->s.sh), residual = c->r ? part_of(c->r, n, h) : (fo_image){0};
    const fo_image result = part_of(c->y, n, h);
    fo_image to = inner->layout.x;
    to.data = c->room;
    const fo_status status = copy_all_windows(c->w->plan, &inner->layout.z, &to, &from);
    return status == FO_OK ? fo_call_run(inner, &to, c->r ? &residual : NULL, &result) : status;
}

static void run_windows(void *context) {
    copied_call *c = context;
    FO_RAN("conv rewrite windows as pixels");
    const fo_conv2d_size *z = &c->w->z, *some = &c->w->some;
    for (ptrdiff_t n = 0; n < z->n; n += some->n)
        for (ptrdiff_t h = 0; h < z->oh && c->status == FO_OK; h += some->oh) {
            const bool whole = n + some->n <= z->n && h + some->oh <= z->oh;
            c->status = windows_part(c, c->call->inner[!whole], n, h);
        }
}

/* ---- rows and columns change places ------------------------------------------------------------------------------ */

/* Of images whose channels are neighbors, or that are single columns. */
static fo_status swapped_pixels(const fo_prepared_conv2d *inner, const fo_image *x, const fo_image *r,
                                const fo_image *y) {
    if (fo_rewrites_columns(inner->plan))
        FO_RAN("conv rewrite columns as rows");
    else
        FO_RAN("conv rewrite rows as columns");
    const fo_image in = swapped_image(x), out = swapped_image(y), residual = r ? swapped_image(r) : (fo_image){0};
    return fo_call_run(inner, &in, r ? &residual : NULL, &out);
}

/* Image n of planes, by way of copies. */
static fo_status swapped_planes(const copied_call *c, ptrdiff_t n) {
    const fo_conv2d_shape *s = &c->w->plan->s;
    const fo_conv2d_size *z = &c->w->z, inputs = {.n = 1, .oh = z->ih, .ow = z->iw};
    const fo_conv2d_size outputs = {.n = 1, .oh = z->oh, .ow = z->ow};
    const fo_image from = part_of(c->x, n, 0), to = part_of(c->y, n, 0);
    const fo_image residual = c->r ? part_of(c->r, n, 0) : (fo_image){0};
    fo_image in = fo_contiguous(s->ic, z->ih, z->iw, true), out = fo_contiguous(s->oc, z->oh, z->ow, true), added = out;
    in.data = c->room, out.data = in.data + in.sn, added.data = out.data + out.sn;
    fo_status status = fo_copy_image(&in, &from, &inputs, s->ic);
    if (status == FO_OK && c->r) status = fo_copy_image(&added, &residual, &outputs, s->oc);
    if (status == FO_OK) status = swapped_pixels(c->call->inner[0], &in, c->r ? &added : NULL, &out);
    return status == FO_OK ? fo_copy_image(&to, &out, &outputs, s->oc) : status;
}

static void run_planes(void *context) {
    copied_call *c = context;
    FO_RAN("conv rewrite planes to pixels");
    for (ptrdiff_t n = 0; n < c->w->z.n && c->status == FO_OK; n++) c->status = swapped_planes(c, n);
}

/* ---- either ------------------------------------------------------------------------------------------------------ */

/* Calls with copies are shared by a team that is kept together. */
fo_status fo_rewrite_run(const fo_prepared_conv2d *call, const fo_image *x, const fo_image *r, const fo_image *y) {
    const rewrite *w = call->state;
    const bool windows = fo_rewrites_windows(call->inner[0]->plan);
    copied_call copied = {.call = call, .w = w, .x = x, .r = r, .y = y};
    void (*run)(void *) = windows ? run_windows : run_planes;
    if (!w->copies) return swapped_pixels(call->inner[0], x, r, y);
    if (!(copied.room = fo_arena_take(w->bytes))) return FO_NO_MEMORY;
    if (call->threads > 1)
        fo_parallel_region(run, &copied);
    else
        run(&copied);
    fo_arena_release(copied.room);
    return copied.status;
}
