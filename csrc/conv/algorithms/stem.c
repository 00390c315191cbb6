/* The convolution that a network of images begins with, 3x3 of stride 2 with few channels (kernels/stem.h): a thread
 * goes down a band of the output, two rows at a time, whose five image rows it copies to scratch, with zeros around
 * them; the rows after those are fetched meanwhile. */
#include "../../dispatch/estimate.h"
#include "../../machine/tune.h"
#include "../algorithm.h"

#include <string.h>

enum { MAX_CHANNELS = 4, ROWS = 5, TERMS = 5 };

typedef struct {
    const fo_conv2d *plan;
    fo_conv2d_size z;
    fo_image x, y, r; /* r.data is NULL where there is no residual */
    const float *w;
    ptrdiff_t band, bands; /* output rows of a task; tasks of an image */
    ptrdiff_t inside;      /* columns of the image that are met */
    ptrdiff_t plane;       /* floats */
    float *scratch;
    ptrdiff_t scratch_each;
} stem;

bool fo_stem_applies(const fo_conv2d *plan, const fo_conv2d_size *z) {
    const fo_conv2d_shape *s = &plan->s;
    const ptrdiff_t mr = plan->kn->mr, nr = plan->kn->nr;
    const bool kernel = s->kh == 3 && s->kw == 3 && s->sh == 2 && s->sw == 2 && s->dh == 1 && s->dw == 1;
    return kernel && plan->kn->stem && s->nhwc && s->groups == 1 && s->ic && s->ic <= MAX_CHANNELS && s->oc % nr == 0 &&
           z->oh > 1 && z->ow >= (mr - 1) * (mr - 1);
}

/* A panel of output channels: the taps of each plane. */
static void pack_panel(const fo_conv2d *plan, const void *context, ptrdiff_t part, float *packed) {
    (void)context;
    static const struct {
        float g0, g1, g2;
    } terms[TERMS] = {{1, 0, 1}, {1, 0, 0}, {0, 1, 0}, {0, 0, 1}, {0, 1, 0}};
    const ptrdiff_t ic = plan->icg, nr = plan->kn->nr;
    float *to = packed + part * nr * TERMS * ic * 3;
    for (int t = 0; t < TERMS; t++)
        for (ptrdiff_t tap = 0; tap < 3 * ic; tap++, to += nr)
            for (ptrdiff_t o = 0; o < nr; o++) {
                /* as FOR_EACH_TAP orders them */
                const float *w = plan->w + (part * nr + o) * plan->ldw + tap % 3 * ic + tap / 3;
                to[o] = terms[t].g0 * w[0] + terms[t].g1 * w[3 * ic] + terms[t].g2 * w[6 * ic];
            }
}

/* Input row h of every channel of image n, or NULL outside the image; where columns are not neighbors they are copied
 * to `room`. */
static const float *row_of(const stem *s, ptrdiff_t n, ptrdiff_t h, float *room, ptrdiff_t *plane) {
    const bool planar = s->x.sw == 1;
    *plane = planar ? s->x.sc : s->plane;
    if (h < 0 || h >= s->z.ih) return NULL;
    const float *row = fo_at(&s->x, n, 0, h, 0);
    if (planar) return row;
    s->plan->kn->transpose(s->inside, s->plan->icg, row, s->x.sw, room, s->plane);
    return room;
}

/* The planes for output rows h and h + 1. */
static void make_planes(const stem *s, ptrdiff_t n, ptrdiff_t h, float *planes, float *room, const float *zeros) {
    const ptrdiff_t ic = s->plan->icg;
    const float *row[ROWS];
    ptrdiff_t plane;
    for (int t = 0; t < ROWS; t++) row[t] = row_of(s, n, 2 * h - s->z.top + t, room + t * ic * s->plane, &plane);
    for (ptrdiff_t c = 0; c < ic; c++) {
        const float *of_channel[ROWS];
        for (int t = 0; t < ROWS; t++) of_channel[t] = row[t] ? row[t] + c * plane : zeros;
        s->plan->kn->stem_rows(s->inside, of_channel, planes + s->z.left + c * s->plane, ic * s->plane);
    }
}

static void stem_task(void *context, ptrdiff_t task, int thread) {
    const stem *s = context;
    const fo_conv2d *plan = s->plan;
    const ptrdiff_t n = task / s->bands, first = task % s->bands * s->band, end = min_(s->z.oh, first + s->band);
    const ptrdiff_t ic = plan->icg;
    /* image columns from a line's start on */
    float *scratch = s->scratch + thread * s->scratch_each, *planes = scratch + LINE_FLOATS - s->z.left % LINE_FLOATS;
    float *zeros = scratch + 2 * LINE_FLOATS + TERMS * ic * s->plane, *room = zeros + s->plane;
    const bool nhwc = s->y.sc == 1;
    fo_stem_args a = {.ic = ic,
                      .oc = plan->s.oc,
                      .ow = s->z.ow,
                      .x = planes,
                      .w = s->w,
                      .plane = s->plane,
                      .bias = plan->bias,
                      .act = plan->s.act,
                      .transposed = !nhwc,
                      .ldy = nhwc ? s->y.sw : s->y.sc,
                      .ldr = nhwc ? s->r.sw : s->r.sc};
    memset(scratch, 0, (size_t)(room - scratch) * sizeof *scratch);
    for (ptrdiff_t h = first; h < end; h += 2) {
        make_planes(s, n, h, planes, room, zeros);
        for (int l = 0; l < 2; l++) {
            a.y[l] = h + l < end ? fo_at(&s->y, n, 0, h + l, 0) : NULL;
            a.residual[l] = s->r.data && a.y[l] ? fo_at(&s->r, n, 0, h + l, 0) : NULL;
        }
        const ptrdiff_t after = 2 * h - s->z.top + ROWS;
        const bool fetches = s->x.sw == 1 && s->x.sh == s->z.iw && after >= 0 && after + 4 <= s->z.ih && h + 2 < end;
        a.next = fetches ? fo_at(&s->x, n, 0, after, 0) : s->x.data, a.next_plane = s->x.sc;
        a.channels_fetched = fetches ? ic : 0, a.fetched = div_up(4 * s->z.iw, s->z.ow);
        plan->kn->stem(&a);
    }
}

fo_status fo_stem_prepare(fo_prepared_conv2d *call) {
    const fo_conv2d *plan = call->plan;
    const fo_layout *l = &call->layout;
    const fo_conv2d_size *z = &l->z;
    const ptrdiff_t columns = 2 * (z->ow - 1) + 3;
    stem *s = fo_call_prepare(call, sizeof *s,
                              fo_nanoseconds(plan->kn, (double)z->n * plan->s.oc * z->oh * z->ow * plan->k, 0));
    if (!s) return FO_NO_MEMORY;
    *s = (stem){.plan = plan, .z = *z, .x = l->x, .y = l->y, .r = l->r};
    s->inside = max_(0, min_(z->iw, columns - z->left)), s->plane = round_up(columns + plan->kn->vl, LINE_FLOATS);
    s->scratch_each = 2 * LINE_FLOATS + ((TERMS + ROWS) * plan->icg + 1) * s->plane;
    s->band = round_up(div_up(z->oh, call->threads > 1 ? FO_TASKS_A_THREAD * call->threads : 1), 2);
    s->bands = div_up(z->oh, s->band);
    call->kernel = "winograd F(2 rows), pixels as rows";
    call->scratch = s->scratch_each * call->threads * (ptrdiff_t)sizeof(float);
    return FO_OK;
}

fo_status fo_stem_run(const fo_prepared_conv2d *call, const fo_image *x, const fo_image *r, const fo_image *y) {
    stem s = *(const stem *)call->state;
    const fo_conv2d *plan = s.plan;
    const ptrdiff_t panels = plan->s.oc / plan->kn->nr;
    FO_RAN("conv winograd1d stem");
    fo_call_images(x, r, y, &s.x, &s.r, &s.y);
    if (!(s.w = fo_conv2d_packed(plan, FO_STEM_PANELS, plan->s.oc * TERMS * plan->icg * 3, panels, pack_panel, NULL)))
        return FO_NO_MEMORY;
    if (!(s.scratch = fo_arena_share(&s.scratch_each, call->threads, 0))) return FO_NO_MEMORY;
    fo_parallel_for(s.z.n * s.bands, call->threads, stem_task, &s);
    fo_arena_release(s.scratch);
    return FO_OK;
}
