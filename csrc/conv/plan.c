/* Weights of a convolution: their order, what is packed of them; and helpers for images. */
#include "plan.h"

#include <string.h>

/* ---- the order of weights ---------------------------------------------------------------------------------------- */

typedef struct {
    const fo_conv2d *plan;
    const void *w;
    const double *scale; /* or NULL */
    ptrdiff_t channels;  /* output channels of a task */
} ordering;

static void order_16(const ordering *job, ptrdiff_t o) {
    const fo_conv2d *plan = job->plan;
    const ptrdiff_t area = plan->s.kh * plan->s.kw;
    const uint16_t *from = (const uint16_t *)job->w + o * plan->k;
    uint16_t *to = plan->w_16 + o * plan->ldw;
    for (ptrdiff_t c = 0; c < plan->icg; c += CHANNEL_BLOCK) {
        const ptrdiff_t block = min_(CHANNEL_BLOCK, plan->icg - c);
        fo_transpose_16(block, area, from + c * area, area, to + c * area, block);
    }
}

/* An output channel's weights. */
static void order_channel(const ordering *job, ptrdiff_t o) {
    const fo_conv2d *plan = job->plan;
    const ptrdiff_t area = plan->s.kh * plan->s.kw;
    const float *from = (const float *)job->w + o * plan->k;
    float *to = plan->w + o * plan->ldw;
    if (area == 1 && !job->scale) memcpy(to, from, (size_t)plan->k * sizeof *to);
    for (ptrdiff_t c = 0; area > 1 && c < plan->icg; c += CHANNEL_BLOCK) {
        const ptrdiff_t block = min_(CHANNEL_BLOCK, plan->icg - c);
        plan->kn->transpose(block, area, from + c * area, area, to + c * area, block);
    }
    if (job->scale) plan->kn->fold(plan->k, area == 1 ? from : to, job->scale[o], to);
}

static void order_task(void *context, ptrdiff_t task, int thread) {
    (void)thread;
    const ordering *job = context;
    const ptrdiff_t first = task * job->channels, end = min_(job->plan->s.oc, first + job->channels);
    for (ptrdiff_t o = first; o < end; o++) fo_size(job->plan->type) == 2 ? order_16(job, o) : order_channel(job, o);
}

/* Channels of a task are many, for one of 128 weights takes no longer than to claim it. */
static void order_weights(const fo_conv2d *plan, const void *w, const double *scale) {
    const ptrdiff_t oc = plan->s.oc, floats = oc * plan->k;
    const int threads = scale ? fo_threads_for(FO_FOLD_NS * (double)floats) : fo_pack_threads(floats);
    ordering order = {plan, w, scale, max_(1, div_up(oc, 4 * threads))};
    fo_parallel_for(div_up(oc, order.channels), threads, order_task, &order);
}

/* Where channels are neighbors, 1x1 products read panels, and rows only to make other forms of them: panels alone are
 * kept. */
static bool keeps_panels(const fo_conv2d *plan) { return plan->s.nhwc && plan->icg > 1 && fo_is_pixelwise(&plan->s); }

static ptrdiff_t rows_floats(const fo_conv2d *plan) { return plan->s.oc * plan->ldw; }
static ptrdiff_t panels_size(const fo_conv2d *plan) { return fo_packed_size(plan->kn, plan->ocg, plan->k); }

/* Panels as rows of stride ldw. */
static void unpack_panels(const fo_conv2d *plan, void *rows, ptrdiff_t ldw) {
    const ptrdiff_t nr = plan->kn->nr, size = fo_size(plan->type);
    const char *const panels = (const char *)atomic_load((_Atomic(float *) *)&plan->packed[FO_PANELS]);
    for (ptrdiff_t o = 0; o < plan->s.oc; o += min_(nr, plan->ocg - o % plan->ocg)) {
        const ptrdiff_t g = o / plan->ocg, n = min_(nr, plan->ocg - o % plan->ocg);
        const void *from = panels + (g * panels_size(plan) + o % plan->ocg * plan->k) * size;
        void *to = (char *)rows + o * ldw * size;
        if (size == 2)
            fo_transpose_16(plan->k, n, from, nr, to, ldw);
        else
            plan->kn->transpose(plan->k, n, from, nr, to, ldw);
    }
}

static void rows_to_weights(const fo_conv2d *plan, void *w) {
    const ptrdiff_t area = plan->s.kh * plan->s.kw;
    for (ptrdiff_t o = 0; o < plan->s.oc; o++)
        for (ptrdiff_t c = 0; c < plan->icg; c += CHANNEL_BLOCK) {
            const ptrdiff_t block = min_(CHANNEL_BLOCK, plan->icg - c), from = o * plan->ldw + c * area;
            const ptrdiff_t to = o * plan->k + c * area;
            if (fo_size(plan->type) == 2)
                fo_transpose_16(area, block, plan->w_16 + from, block, (uint16_t *)w + to, area);
            else
                plan->kn->transpose(area, block, plan->w + from, block, (float *)w + to, area);
        }
}

void fo_plan_weights(const fo_conv2d *plan, void *w) {
    if (plan->w)
        rows_to_weights(plan, w);
    else
        unpack_panels(plan, w, plan->k); /* 1x1: rows are in the order in which weights came */
}

/* ---- plans ------------------------------------------------------------------------------------------------------- */

static void set_shape(fo_conv2d *plan, const fo_conv2d_shape *s) {
    plan->s = *s;
    plan->icg = s->ic / s->groups, plan->ocg = s->oc / s->groups;
    plan->k = plan->icg * s->kh * s->kw;
}

static void set_kernels(fo_conv2d *plan) {
    const fo_conv2d_shape *s = &plan->s;
    const bool product = s->nhwc && s->kh == 1 && s->kw == 1 && s->groups == 1;
    plan->kn = product ? fo_kernels_for(s->oc, plan->k, true) : fo_active();
    plan->half_rate = fo_at_half_rate(plan->kn), plan->isa = plan->kn->set;
}

fo_conv2d *fo_plan_new(const fo_conv2d_shape *shape, fo_dtype type) {
    fo_conv2d *plan = fo_alloc(sizeof *plan);
    if (!plan) return NULL;
    memset(plan, 0, sizeof *plan);
    plan->type = type;
    set_shape(plan, shape);
    set_kernels(plan);
    return plan;
}

fo_conv2d *fo_plan_create(const fo_conv2d_shape *shape, const fo_weights *w, const double *scale, const float *bias) {
    fo_conv2d *plan = fo_plan_new(shape, w->type);
    if (!plan) return NULL;
    bool failed = false;
    /* rows a multiple of 1 KB apart would share few sets of the first-level cache */
    plan->ldw = plan->k % 256 ? plan->k : plan->k + 16;
    const size_t bytes = (size_t)(shape->oc * plan->ldw * fo_size(w->type));
    plan->w = fo_alloc(bytes);
    if (plan->w && w->type != FO_F32) memset(plan->w, 0, bytes); /* what is widened between rows, too */
    plan->bias = fo_copy(bias, shape->oc, &failed);
    plan->s.act.slopes = plan->slopes = fo_copy(shape->act.slopes, shape->oc, &failed);
    if (!plan->w || failed) {
        fo_plan_free(plan);
        return NULL;
    }
    order_weights(plan, w->data, scale);
    if (keeps_panels(plan) && fo_conv2d_panels(plan)) fo_free(plan->w), plan->w = NULL;
    return plan;
}

/* Another plan of the same weights, which has packed nothing of them. */
static void share(const fo_conv2d *plan, const fo_conv2d_shape *shape, fo_conv2d *other) {
    memset(other, 0, sizeof *other);
    other->type = plan->type;
    set_shape(other, shape);
    other->kn = plan->kn, other->isa = plan->isa, other->half_rate = plan->half_rate;
    other->ldw = plan->ldw, other->w = plan->w, other->bias = plan->bias, other->slopes = plan->slopes;
}

fo_conv2d *fo_plan_share(const fo_conv2d *plan, const fo_conv2d_shape *shape) {
    fo_conv2d *other = fo_alloc(sizeof *other);
    if (other) share(plan, shape, other);
    return other;
}

void fo_plan_free_shared(fo_conv2d *plan) {
    if (!plan) return;
    for (int f = 0; f < FO_WEIGHT_FORMS; f++) fo_free(atomic_load(&plan->packed[f]));
    fo_free(plan);
}

void fo_plan_free(fo_conv2d *plan) {
    if (!plan) return;
    fo_free(plan->w);
    fo_free(plan->bias);
    fo_free(plan->slopes);
    fo_plan_free_shared(plan);
}

const char *fo_conv2d_isa(const fo_conv2d *plan) { return plan->isa; }

/* ---- packed weights ---------------------------------------------------------------------------------------------- */

typedef struct {
    const fo_conv2d *plan;
    const void *context;
    float *packed;
    fo_pack_part *pack;
} packing;

static void pack_task(void *context, ptrdiff_t task, int thread) {
    (void)thread;
    const packing *job = context;
    job->pack(job->plan, job->context, task, job->packed);
}

const float *fo_conv2d_packed(const fo_conv2d *plan, fo_weight_form form, ptrdiff_t floats, ptrdiff_t parts,
                              fo_pack_part *pack, const void *context) {
    _Atomic(float *) *slot = (_Atomic(float *) *)&plan->packed[form]; /* a cache: the plan's value does not change */
    float *packed = atomic_load_explicit(slot, memory_order_acquire), *first = NULL;
    if (packed || !(packed = fo_alloc((size_t)(floats * fo_size(plan->type))))) return packed;
    float *const rows = plan->w ? NULL : fo_alloc((size_t)(rows_floats(plan) * fo_size(plan->type)));
    fo_conv2d with_rows;
    if (!plan->w) {
        if (!rows) return fo_free(packed), NULL;
        share(plan, &plan->s, &with_rows);
        with_rows.w = rows;
        unpack_panels(plan, rows, plan->ldw);
    }
    atomic_store((_Atomic ptrdiff_t *)&plan->bytes[form], floats * fo_size(plan->type));
    packing job = {plan->w ? plan : &with_rows, context, packed, pack};
    fo_parallel_for(parts, fo_pack_threads(floats), pack_task, &job);
    fo_free(rows);
    /* No lock, which a fork could leave taken: of two threads at once, one packs in vain. */
    if (atomic_compare_exchange_strong(slot, &first, packed)) return packed;
    fo_free(packed);
    return first;
}

/* With zeros after it, for what is widened between rows. */
static void copy_row(const fo_conv2d *plan, const void *context, ptrdiff_t part, float *packed) {
    (void)context;
    const ptrdiff_t size = fo_size(plan->type), bytes = plan->k * size, all = plan->ldw * size;
    memcpy((char *)packed + part * all, (const char *)plan->w + part * all, (size_t)bytes);
    memset((char *)packed + part * all + bytes, 0, (size_t)(all - bytes));
}

const float *fo_conv2d_rows(const fo_conv2d *plan) {
    return plan->w ? plan->w : fo_conv2d_packed(plan, FO_ROWS_OF_PANELS, rows_floats(plan), plan->s.oc, copy_row, NULL);
}

static void pack_panel(const fo_conv2d *plan, const void *context, ptrdiff_t part, float *packed) {
    (void)context;
    const ptrdiff_t nr = plan->kn->nr, panels = div_up(plan->ocg, nr), g = part / panels, o = part % panels * nr;
    const ptrdiff_t from = (g * plan->ocg + o) * plan->ldw, to = g * panels_size(plan) + o * plan->k;
    const ptrdiff_t size = fo_size(plan->type);
    const fo_weights w = {(const char *)plan->w + from * size, plan->type};
    fo_pack_weights(plan->kn, min_(nr, plan->ocg - o), plan->k, &w, 1, plan->ldw, (char *)packed + to * size);
}

const float *fo_conv2d_panels(const fo_conv2d *plan) {
    const ptrdiff_t panels = plan->s.groups * div_up(plan->ocg, plan->kn->nr);
    return fo_conv2d_packed(plan, FO_PANELS, plan->s.groups * panels_size(plan), panels, pack_panel, NULL);
}

/* ---- weights of 16 bits ------------------------------------------------------------------------------------------ */

ptrdiff_t fo_conv2d_wide_size(const fo_conv2d *plan, bool rows) {
    return rows ? plan->s.oc * plan->ldw : plan->s.groups * panels_size(plan);
}

typedef struct {
    const fo_conv2d *plan;
    const uint16_t *from;
    float *to;
    ptrdiff_t floats, each; /* in all, of a task */
} widening;

static void widen_task(void *context, ptrdiff_t task, int thread) {
    (void)thread;
    const widening *w = context;
    const ptrdiff_t at = task * w->each;
    w->plan->kn->widen(min_(w->each, w->floats - at), w->plan->type, w->from + at, w->to + at);
}

bool fo_conv2d_widen(const fo_conv2d *plan, bool rows, int threads, float *to) {
    const void *from = rows ? fo_conv2d_rows(plan) : fo_conv2d_panels(plan);
    const ptrdiff_t floats = fo_conv2d_wide_size(plan, rows);
    widening w = {plan, from, to, floats, round_up(div_up(floats, 4 * threads), MAX_LANES)};
    if (!from) return false;
    fo_parallel_for(div_up(floats, w.each), threads, widen_task, &w);
    return true;
}

/* ---- images ------------------------------------------------------------------------------------------------------ */

bool fo_is_huge(const fo_conv2d *plan, const fo_conv2d_size *z) {
    const fo_conv2d_shape *s = &plan->s;
    const double h = (z->oh - 1.0) * s->sh + (s->kh - 1.0) * s->dh + 1;
    const double w = (z->ow - 1.0) * s->sw + (s->kw - 1.0) * s->dw + 1;
    return (h > z->ih ? h : z->ih) * (w > z->iw ? w : z->iw) * s->ic > 0x1p48;
}

fo_status fo_copy_image(const fo_image *to, const fo_image *from, const fo_conv2d_size *z, ptrdiff_t channels) {
    fo_copy_args a = {{4,
                       {z->n, channels, z->oh, z->ow},
                       {{to->sn, to->sc, to->sh, to->sw}, {from->sn, from->sc, from->sh, from->sw}}},
                      to->data,
                      from->data,
                      0};
    fo_fold(&a.axes);
    return fo_strided_copy(&a);
}
