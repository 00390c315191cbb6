/* Convolutions that are others, with the same weights, on images that are rearranged.
 *
 *     windows      that do not overlap are pixels of a 1x1 convolution, with as many channels as a window has elements: they are copied
 *     one row      of taps is one column of them on an image whose rows and columns change places: strides do, planes are copied to pixels and back
 *
 * Copies are scratch of a call. Sizes of an image alone decide, in either memory order.
 */
#include "conv2d.h"

#include <string.h>

enum { MANY_CHANNELS = 64, FEW_CHANNELS = 32 }; /* output channels for which it pays to copy windows; where those of x are few, too */
enum { COPIED_BYTES = 4 << 20 }; /* at a time: they stay in the third-level cache, and scratch does not grow with batch and image */

/* ---- the plan --------------------------------------------------------------------------------------------------- */

/* Where windows do not overlap (1x1 with a stride, or the patches of a transformer), rows of pixels are short, and a tap's are far apart. Copied to scratch,
 * once, each window is a pixel of many channels, and all of them are one row, for Strassen's algorithm too: ResNet-50 in 0.95 of the time (AVX-512),
 * 3 -> 768 channels, 16x16 of stride 16, in 0.75. Channels last, taps with many channels are read as they lie, 97 % of the peak. */
static bool is_apart(const fo_conv2d *plan) {
    const fo_conv2d_shape *s = &plan->s;
    const bool strides = s->sh >= s->kh && s->sw >= s->kw && (s->sh > 1 || s->sw > 1) && s->dh == 1 && s->dw == 1;
    const bool gains = s->kh * s->kw == 1 || !s->nhwc || (s->ic < CHANNEL_BLOCK && s->kw * s->ic > CHANNEL_BLOCK);
    const ptrdiff_t least = s->ic < CHANNEL_BLOCK && plan->k >= 2 * CHANNEL_BLOCK ? FEW_CHANNELS : MANY_CHANNELS;
    return strides && gains && s->groups == 1 && s->oc >= least && (s->algorithm == FO_AUTO || s->algorithm == FO_DIRECT);
}

/* A kernel of one row is one of one column on an image whose rows are columns: several lines of it share products. (Not with AVX2, 0.85 to 0.97.) */
static bool is_row(const fo_conv2d *plan) {
    return plan->s.kh == 1 && plan->s.kw > 1 && plan->s.groups == 1 && plan->s.algorithm == FO_AUTO && !fo_is_narrow(plan->kn);
}

/* A plan with the same weights for another shape, in which they stand in the same order; NULL where memory is short. */
static fo_conv2d *same_weights(const fo_conv2d *plan, fo_conv2d_shape shape) {
    fo_conv2d *other = fo_alloc(sizeof *plan);
    if (!other) return NULL;
    memcpy(other, plan, sizeof *plan);
    other->rearranged = NULL;
    other->s = shape, other->icg = shape.ic / shape.groups;
    fo_lines_choose(&other->lines, &shape);
    return other;
}

bool fo_rearranged_create(fo_conv2d *plan) {
    const fo_conv2d_shape *s = &plan->s;
    fo_conv2d_shape shape = *s;
    if (is_apart(plan)) {
        shape.kh = shape.kw = shape.sh = shape.sw = 1, shape.ic = plan->k;
    } else if (is_row(plan)) {
        shape.kh = s->kw, shape.kw = 1;
        shape.sh = s->sw, shape.sw = s->sh;
        shape.dh = s->dw, shape.dw = s->dh;
    } else {
        return true;
    }
    plan->rearranged = same_weights(plan, shape);
    return plan->rearranged != NULL;
}

/* Whether windows become pixels; else rows become columns. */
static bool has_windows(const fo_conv2d *plan) { return plan->rearranged->s.kh == 1; }

/* The part of the images that begins with row h of image n. */
static fo_image part_of(const fo_image *t, ptrdiff_t n, ptrdiff_t h) {
    return (fo_image){t->data + n * t->sn + h * t->sh, t->sn, t->sc, t->sh, t->sw};
}

typedef struct {
    const fo_conv2d *plan;
    const fo_conv2d_size *z;
    const fo_image *x, *r, *y;
    float *room;
    fo_status status;
} copied_call;

/* Calls with copies, which a team that is kept together shares. */
static fo_status run_copied(copied_call call, size_t bytes, void (*run)(void *call)) {
    const double points = (double)call.plan->s.oc * (double)(call.z->oh * call.z->ow);
    if (!(call.room = fo_arena_take(bytes))) return FO_NO_MEMORY;
    if (fo_threads_for(fo_nanoseconds(call.plan->kn, points * (double)call.plan->k, 0)) > 1)
        fo_parallel_together(run, &call);
    else
        run(&call);
    fo_arena_release(call.room);
    return call.status;
}

/* ---- windows as pixels -------------------------------------------------------------------------------------------- */

static bool meets_windows(const fo_conv2d *plan, const fo_conv2d_size *z) {
    const fo_conv2d_shape *s = &plan->s;
    if (z->top || z->left || (z->oh - 1) * s->sh + s->kh > z->ih || (z->ow - 1) * s->sw + s->kw > z->iw) return false;
    return s->kh * s->kw == 1 || !fo_uses_patches(plan, z);
}

/* The size of the windows that are copied at once: those of some images, or some rows of a large one. */
static fo_conv2d_size met(const fo_conv2d *plan, const fo_conv2d_size *z) {
    const ptrdiff_t row = max_(plan->k * z->ow, 1), rows = min_(z->oh, max_(COPIED_BYTES / 4 / row, 1));
    const ptrdiff_t images = rows < z->oh ? 1 : min_(z->n, max_(COPIED_BYTES / 4 / (rows * row), 1));
    return (fo_conv2d_size){.n = images, .ih = rows, .iw = z->ow, .oh = rows, .ow = z->ow};
}

static size_t met_bytes(const fo_conv2d *plan, const fo_conv2d_size *some) {
    return (size_t)(some->n * plan->k * some->oh * some->ow) * sizeof(float);
}

typedef struct {
    const fo_conv2d *plan;
    const fo_conv2d_size *some;
    const fo_image *to, *from;
} window_copy;

/* What kernel row i of channel c meets in planes, for all of its columns. */
static void copy_windows(void *context, ptrdiff_t task, int thread) {
    (void)thread;
    enum { FEW = 4 }; /* columns that are picked one after the other, not by squares of pixels and columns */
    const window_copy *job = context;
    const fo_conv2d_shape *s = &job->plan->s;
    const fo_kernels *kn = job->plan->kn;
    const ptrdiff_t i = task % s->kh, c = task / s->kh, c0 = c / CHANNEL_BLOCK * CHANNEL_BLOCK, block = min_(CHANNEL_BLOCK, s->ic - c0);
    const ptrdiff_t oh = job->some->oh, ow = job->some->ow, down = s->sh * job->from->sh, first = c0 * s->kh * s->kw + i * s->kw * block + c - c0;
    for (ptrdiff_t n = 0; n < job->some->n; n++) {
        const float *x = fo_at(job->from, n, c, i, 0);
        float *to = fo_at(job->to, n, first, 0, 0);
        const ptrdiff_t step = block * job->to->sc; /* from a kernel column to the next */
        if (s->kw <= FEW)
            for (ptrdiff_t j = 0; j < s->kw; j++) kn->pad(oh, ow, x, down, (ow - 1) * s->sw + s->kw, j, s->sw, to + j * step, ow);
        else
            for (ptrdiff_t h = 0; h < oh; h++) kn->transpose(ow, s->kw, x + h * down, s->sw, to + h * ow, step);
    }
}

/* Copies windows, the channels of each in the order of the weights; planes by the kernels, all others by what is contiguous in both. */
static fo_status copy_met(const fo_conv2d *plan, const fo_conv2d_size *some, const fo_image *to, const fo_image *from) {
    const fo_conv2d_shape *s = &plan->s;
    if (from->sw == 1 && to->sw == 1) {
        window_copy job = {plan, some, to, from};
        const int threads = fo_threads_for(fo_nanoseconds(plan->kn, 0, 2.0 * (double)met_bytes(plan, some)));
        fo_parallel_for(s->ic * s->kh, threads, copy_windows, &job);
        return FO_OK;
    }
    for (ptrdiff_t c = 0, at = 0; c < s->ic; c += CHANNEL_BLOCK) {
        const ptrdiff_t block = min_(CHANNEL_BLOCK, s->ic - c);
        fo_copy_args a = {{6, {some->n, s->kh, s->kw, block, some->oh, some->ow},
                           {{to->sn, s->kw * block * to->sc, block * to->sc, to->sc, to->sh, to->sw},
                            {from->sn, from->sh, from->sw, from->sc, s->sh * from->sh, s->sw * from->sw}}},
                          fo_at(to, 0, at, 0, 0), fo_at(from, 0, c, 0, 0)};
        at += s->kh * s->kw * block;
        fo_fold(&a.axes);
        const fo_status status = fo_strided_copy(&a);
        if (status != FO_OK) return status;
    }
    return FO_OK;
}

/* Output rows h .. of images n .., whose windows are copied to `room`. */
static fo_status windows_part(const fo_conv2d *plan, const fo_conv2d_size *some, ptrdiff_t n, ptrdiff_t h, float *room, const fo_image *x,
                              const fo_image *r, const fo_image *y) {
    const fo_image from = part_of(x, n, h * plan->s.sh), residual = r ? part_of(r, n, h) : (fo_image){0}, result = part_of(y, n, h);
    fo_image to = fo_contiguous(plan->k, some->oh, some->ow, plan->s.nhwc);
    to.data = room;
    const fo_status status = copy_met(plan, some, &to, &from);
    return status == FO_OK ? fo_conv2d_run(plan->rearranged, some, &to, r ? &residual : NULL, &result) : status;
}

static void run_windows(void *context) {
    copied_call *call = context;
    const fo_conv2d_size *z = call->z, whole = met(call->plan, z);
    for (ptrdiff_t n = 0; n < z->n; n += whole.n)
        for (ptrdiff_t h = 0; h < z->oh && call->status == FO_OK; h += whole.oh) {
            fo_conv2d_size some = whole;
            some.n = min_(whole.n, z->n - n), some.ih = some.oh = min_(whole.oh, z->oh - h);
            call->status = windows_part(call->plan, &some, n, h, call->room, call->x, call->r, call->y);
        }
}

static fo_status windows_run(const fo_conv2d *plan, const fo_conv2d_size *z, const fo_image *x, const fo_image *r, const fo_image *y) {
    const fo_conv2d_size whole = met(plan, z);
    return run_copied((copied_call){plan, z, x, r, y, NULL, FO_OK}, met_bytes(plan, &whole), run_windows);
}

/* ---- rows as columns ---------------------------------------------------------------------------------------------- */

static fo_conv2d_size turned_size(const fo_conv2d_size *z) {
    return (fo_conv2d_size){.n = z->n, .ih = z->iw, .iw = z->ih, .oh = z->ow, .ow = z->oh, .top = z->left, .left = z->top};
}

/* Floats of an image and its result, and of a residual. */
static ptrdiff_t turned_floats(const fo_conv2d *plan, const fo_conv2d_size *z, bool adds) {
    return plan->s.ic * z->ih * z->iw + (1 + adds) * plan->s.oc * z->oh * z->ow;
}

/* Whether lines pay on the turned image, in either memory order: to copy planes takes a fifth of the time that is gained. */
static bool is_turned(const fo_conv2d *plan, const fo_conv2d_size *z) {
    if (fo_uses_patches(plan, z) || turned_floats(plan, z, true) > COPIED_BYTES / 4) return false;
    const fo_conv2d_size size = turned_size(z);
    return size.oh > 1 && fo_lines_pay(plan->rearranged, &size);
}

static fo_image turned_image(const fo_image *t) { return (fo_image){t->data, t->sn, t->sc, t->sw, t->sh}; }

/* Of images whose channels are neighbours. */
static fo_status turned_pixels(const fo_conv2d *plan, const fo_conv2d_size *z, const fo_image *x, const fo_image *r, const fo_image *y) {
    const fo_conv2d_size size = turned_size(z);
    const fo_image in = turned_image(x), out = turned_image(y), beside = r ? turned_image(r) : (fo_image){0};
    return fo_conv2d_run(plan->rearranged, &size, &in, r ? &beside : NULL, &out);
}

/* Image n of planes, by way of copies. */
static fo_status turned_part(const copied_call *call, ptrdiff_t n) {
    const fo_conv2d *plan = call->plan;
    const fo_conv2d_size *z = call->z, inputs = {.n = 1, .oh = z->ih, .ow = z->iw}, outputs = {.n = 1, .oh = z->oh, .ow = z->ow};
    const fo_image from = part_of(call->x, n, 0), to = part_of(call->y, n, 0), residual = call->r ? part_of(call->r, n, 0) : (fo_image){0};
    fo_image in = fo_contiguous(plan->s.ic, z->ih, z->iw, true), out = fo_contiguous(plan->s.oc, z->oh, z->ow, true), beside = out;
    fo_conv2d_size one = *z;
    one.n = 1;
    in.data = call->room, out.data = in.data + in.sn, beside.data = out.data + out.sn;
    fo_status status = fo_copy_image(&in, &from, &inputs, plan->s.ic);
    if (status == FO_OK && call->r) status = fo_copy_image(&beside, &residual, &outputs, plan->s.oc);
    if (status == FO_OK) status = turned_pixels(plan, &one, &in, call->r ? &beside : NULL, &out);
    return status == FO_OK ? fo_copy_image(&to, &out, &outputs, plan->s.oc) : status;
}

static void run_planes(void *context) {
    copied_call *call = context;
    for (ptrdiff_t n = 0; n < call->z->n && call->status == FO_OK; n++) call->status = turned_part(call, n);
}

static fo_status turned_run(const fo_conv2d *plan, const fo_conv2d_size *z, const fo_image *x, const fo_image *r, const fo_image *y) {
    if (x->sc == 1 && y->sc == 1 && (!r || r->sc == 1)) return turned_pixels(plan, z, x, r, y);
    return run_copied((copied_call){plan, z, x, r, y, NULL, FO_OK}, (size_t)turned_floats(plan, z, r != NULL) * sizeof(float), run_planes);
}

/* ---- either ------------------------------------------------------------------------------------------------------- */

bool fo_uses_rearranged(const fo_conv2d *plan, const fo_conv2d_size *z) {
    return plan->rearranged && (has_windows(plan) ? meets_windows(plan, z) : is_turned(plan, z));
}

fo_status fo_rearranged_run(const fo_conv2d *plan, const fo_conv2d_size *z, const fo_image *x, const fo_image *r, const fo_image *y) {
    return has_windows(plan) ? windows_run(plan, z, x, r, y) : turned_run(plan, z, x, r, y);
}

const char *fo_rearranged_kernel(const fo_conv2d *plan, const fo_conv2d_size *z, bool nhwc) {
    const fo_conv2d_size size = has_windows(plan) ? met(plan, z) : turned_size(z);
    return fo_conv2d_kernel(plan->rearranged, &size, nhwc || !has_windows(plan));
}

ptrdiff_t fo_rearranged_scratch(const fo_conv2d *plan, const fo_conv2d_size *z, bool nhwc) {
    const bool windows = has_windows(plan);
    const fo_conv2d_size size = windows ? met(plan, z) : turned_size(z);
    const size_t copies = windows ? met_bytes(plan, &size) : nhwc ? 0 : (size_t)turned_floats(plan, z, false) * sizeof(float);
    return fo_conv2d_scratch(plan->rearranged, &size, nhwc || !windows) + (ptrdiff_t)copies;
}
