/* A convolution of bfloat16 where no kernel multiplies it: a depthwise one, or without a dot product of the set.
 * Rounded operands are multiplied in float32, by whichever algorithm is best there; images of bfloat16 are widened
 * before and narrowed behind. */
#include "algorithm.h"
#include "qimage.h"

fo_conv2d *fo_rounded_plan(const fo_conv2d_shape *shape) {
    fo_conv2d *plan = fo_plan_new(shape, FO_BF16);
    if (plan) plan->s.act.slopes = NULL; /* the caller's */
    return plan;
}

float *fo_rounded_weights(const fo_conv2d *plan, const uint16_t *w) {
    const ptrdiff_t floats = plan->s.oc * plan->k;
    float *wide = fo_alloc((size_t)max_(floats, 1) * sizeof *wide);
    if (wide) plan->kn->widen(floats, FO_BF16, w, wide);
    return wide;
}

/* What a run needs in scratch, channels last: of an image in bfloat16, of one in float32; 0 bytes: nothing. */
typedef struct {
    fo_qextent e;
    ptrdiff_t narrow, wide;
} rounded_image;

typedef struct {
    const fo_qkernels *kn;
    rounded_image x, r, y;
} rounded_state;

static rounded_image room_of(fo_qextent e, bool needed) {
    return (rounded_image){e, needed ? fo_qroom(e, FO_BF16) : 0, needed ? fo_qroom(e, FO_F32) : 0};
}

fo_layout fo_rounded_inner(const fo_conv2d *plan, const fo_layout *l) {
    const fo_qextent in = {l->z.n, plan->s.ic, l->z.ih, l->z.iw}, out = {l->z.n, plan->s.oc, l->z.oh, l->z.ow};
    fo_layout inner = *l;
    inner.types = (fo_types){0};
    inner.x = fo_qpixels(NULL, in);
    if (l->adds && l->types.residual == FO_BF16) inner.r = fo_qpixels(NULL, out);
    if (l->types.y == FO_BF16) inner.y = fo_qpixels(NULL, out);
    return inner;
}

bool fo_rounded_applies(const fo_conv2d *plan, const fo_conv2d_size *z) {
    (void)z;
    return plan->wide;
}

fo_status fo_rounded_prepare(fo_prepared_conv2d *call) {
    const fo_layout *l = &call->layout;
    const fo_conv2d_size *z = &l->z;
    const fo_conv2d_shape *s = &call->plan->s;
    const fo_qextent in = {z->n, s->ic, z->ih, z->iw}, out = {z->n, s->oc, z->oh, z->ow};
    rounded_state *state = fo_call_prepare(call, sizeof *state, 0);
    if (!state) return FO_NO_MEMORY;
    *state = (rounded_state){fo_active_qkernels(), room_of(in, true), room_of(out, l->types.residual == FO_BF16),
                             room_of(out, l->types.y == FO_BF16)};
    call->kernel = call->inner[0]->kernel, call->work = call->inner[0]->work, call->threads = call->inner[0]->threads;
    call->scratch = state->x.narrow + state->x.wide + state->r.narrow + state->r.wide + state->y.narrow +
                    state->y.wide + call->inner[0]->scratch;
    return FO_OK;
}

/* An image of floats or bfloat16 in any order, rounded, as floats at `room` behind its room in bfloat16. */
static fo_status widen_image(const rounded_state *s, const rounded_image *i, fo_dtype type, const fo_image *from,
                             char *room, fo_image *wide) {
    const fo_image narrow = fo_qpixels(room, i->e);
    *wide = fo_qpixels(room + i->narrow, i->e);
    if (type == FO_BF16)
        fo_qmove(s->kn, i->e, FO_BF16, from, &narrow);
    else if (fo_qround(s->kn, i->e, from, &narrow) != FO_OK)
        return FO_NO_MEMORY;
    fo_active()->widen(i->e.n * i->e.c * i->e.h * i->e.w, FO_BF16, narrow.data, wide->data);
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
    fo_status status = widen_image(s, &s->x, types.x, x, room, &wide_x);
    if (status == FO_OK && s->r.wide && residual) {
        status = widen_image(s, &s->r, FO_BF16, residual, room + of_x, &wide_r);
        residual = &wide_r;
    }
    if (status == FO_OK) status = fo_call_run(call->inner[0], &wide_x, residual, &wide_y);
    if (status == FO_OK && s->y.wide) {
        const fo_image narrow = fo_qpixels(room + of_x + of_r, s->y.e);
        status = fo_qround(s->kn, s->y.e, &wide_y, &narrow);
        fo_qmove(s->kn, s->y.e, FO_BF16, &narrow, y);
    }
    fo_arena_release(room);
    return status;
}
