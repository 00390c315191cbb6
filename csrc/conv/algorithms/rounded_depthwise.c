/* A depthwise convolution of bfloat16: rounded operands are multiplied in float32. x is copied as rounded floats in the
 * order of y, for depthwise kernels are slow between two orders; images of bfloat16 are widened before and narrowed
 * after, channels last. */
#include "../../matmul/product.h"
#include "../algorithm.h"
#include "../qimage.h"

fo_conv2d *fo_rounded_plan(const fo_conv2d_shape *shape) {
    fo_conv2d *plan = fo_plan_new(shape, FO_BF16);
    if (plan) plan->s.act.slopes = NULL; /* the caller's */
    return plan;
}

float *fo_widened_weights(const fo_conv2d *plan, const uint16_t *w) {
    const ptrdiff_t floats = plan->s.oc * plan->k;
    float *wide = fo_alloc((size_t)max_(floats, 1) * sizeof *wide);
    if (wide) plan->kn->widen(floats, FO_BF16, w, wide);
    return wide;
}

/* What a run needs in scratch: of an image in bfloat16, of one in float32; 0 bytes: nothing. */
typedef struct {
    fo_qextent e;
    fo_image image; /* the one in float32, without data */
    ptrdiff_t narrow, wide;
} rounded_image;

typedef struct {
    rounded_image x, r, y;
} rounded_state;

static rounded_image room_of(fo_qextent e, const fo_image *image, fo_dtype type, bool needed) {
    return (rounded_image){e, *image, needed && type == FO_BF16 ? fo_qroom(e, FO_BF16) : 0,
                           needed ? fo_qroom(e, FO_F32) : 0};
}

fo_layout fo_rounded_inner(const fo_conv2d *plan, const fo_layout *l) {
    const bool planes = l->types.x == FO_F32 && l->types.y == FO_F32 && l->y.sw == 1 && l->y.sc != 1;
    fo_layout inner = *l;
    inner.types = (fo_types){0};
    inner.x = fo_contiguous(plan->s.ic, l->z.ih, l->z.iw, !planes);
    if (l->adds && l->types.residual == FO_BF16) inner.r = fo_contiguous(plan->s.oc, l->z.oh, l->z.ow, true);
    if (l->types.y == FO_BF16) inner.y = fo_contiguous(plan->s.oc, l->z.oh, l->z.ow, true);
    return inner;
}

bool fo_rounded_applies(const fo_conv2d *plan, const fo_conv2d_size *z) {
    (void)z;
    return plan->wide;
}

fo_status fo_rounded_prepare(fo_prepared_conv2d *call) {
    const fo_layout *l = &call->layout, *inner = &call->inner[0]->layout;
    const fo_conv2d_size *z = &l->z;
    const fo_conv2d_shape *s = &call->plan->s;
    const fo_qextent in = {z->n, s->ic, z->ih, z->iw}, out = {z->n, s->oc, z->oh, z->ow};
    const fo_types types = l->types;
    rounded_state *state = fo_call_prepare(call, sizeof *state, 0);
    if (!state) return FO_NO_MEMORY;
    *state = (rounded_state){room_of(in, &inner->x, types.x, true),
                             room_of(out, &inner->r, types.residual, types.residual == FO_BF16),
                             room_of(out, &inner->y, types.y, types.y == FO_BF16)};
    call->kernel = call->inner[0]->kernel, call->work = call->inner[0]->work, call->threads = call->inner[0]->threads;
    call->scratch = state->x.narrow + state->x.wide + state->r.narrow + state->r.wide + state->y.narrow +
                    state->y.wide + call->inner[0]->scratch;
    return FO_OK;
}

/* n elements that become floats: bfloat16, or floats that are rounded, in memory that may be theirs. */
typedef struct {
    fo_dtype type;
    ptrdiff_t n;
    const void *from;
    float *to;
} widening;

enum { PIECE = FO_COPY_BYTES / sizeof(float) };

static void widen_task(void *context, ptrdiff_t task, int thread) {
    const widening *w = context;
    const ptrdiff_t at = task * PIECE, n = min_(w->n - at, PIECE);
    (void)thread;
    if (w->type == FO_BF16)
        fo_active()->widen(n, FO_BF16, (const uint16_t *)w->from + at, w->to + at);
    else
        fo_round_floats(n, (const float *)w->from + at, w->to + at);
}

static bool has_order_of(const fo_image *x, const fo_image *y, fo_qextent e) {
    return (e.n == 1 || x->sn == y->sn) && (e.c == 1 || x->sc == y->sc) && (e.h == 1 || x->sh == y->sh) &&
           (e.w == 1 || x->sw == y->sw);
}

/* An image of floats or bfloat16 in any order, rounded, as floats at `room`, after its room in bfloat16. */
static fo_status widen_image(const rounded_image *i, fo_dtype type, const fo_image *from, char *room, fo_image *wide) {
    const fo_qextent e = i->e;
    const void *dense = from->data;
    *wide = i->image, wide->data = (float *)(room + i->narrow);
    if (type == FO_BF16) {
        const fo_image narrow = fo_qpixels(room, e);
        fo_qmove(e, FO_BF16, from, &narrow);
        dense = room;
    } else if (!has_order_of(from, wide, e)) {
        if (fo_copy_image(wide, from, &(fo_conv2d_size){.n = e.n, .oh = e.h, .ow = e.w}, e.c) != FO_OK)
            return FO_NO_MEMORY;
        dense = wide->data;
    }
    widening w = {type, e.n * e.c * e.h * e.w, dense, wide->data};
    fo_parallel_for(div_up(w.n, PIECE), fo_threads_for(0.1 * (double)w.n), widen_task, &w);
    return FO_OK;
}

fo_status fo_rounded_run(const fo_prepared_conv2d *call, const fo_image *x, const fo_image *residual,
                         const fo_image *y) {
    const rounded_state *s = call->state;
    const fo_types types = call->layout.types;
    const ptrdiff_t of_x = s->x.narrow + s->x.wide, of_r = s->r.narrow + s->r.wide;
    char *room = fo_arena_take((size_t)(of_x + of_r + s->y.narrow + s->y.wide));
    if (!room) return FO_NO_MEMORY;
    fo_image wide_x, wide_r, wide_y = s->y.wide ? fo_qpixels(room + of_x + of_r + s->y.narrow, s->y.e) : *y;
    fo_status status = widen_image(&s->x, types.x, x, room, &wide_x);
    if (status == FO_OK && s->r.wide && residual) {
        status = widen_image(&s->r, FO_BF16, residual, room + of_x, &wide_r);
        residual = &wide_r;
    }
    if (status == FO_OK) status = fo_call_run(call->inner[0], &wide_x, residual, &wide_y);
    if (status == FO_OK && s->y.wide) {
        const fo_image narrow = fo_qpixels(room + of_x + of_r, s->y.e);
        status = fo_qround(s->y.e, &wide_y, &narrow);
        fo_qmove(s->y.e, FO_BF16, &narrow, y);
    }
    fo_arena_release(room);
    return status;
}
