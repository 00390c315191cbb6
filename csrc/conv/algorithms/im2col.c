/* A direct convolution of small or narrow images, whose rows are short and many of whose products would be with
 * zeros: the patches that kernel rows read are copied, and all pixels are one product with one row of the kernel
 * after the other.
 *
 *     P[input row][image][output column][kernel column][channel]
 *     y[output row][image][output column]  +=  P[the input row that it reads] w[kernel row]
 *
 * Input rows stand in order, those of each phase of the stride for themselves, so that what all output rows read
 * with a kernel row is contiguous. Output rows that read zeros alone are left out of its product, as are kernel
 * columns that never read the image: on one row of pixels 3x3 becomes 1x3. Weights are read once for all pixels, in
 * the order in which they are packed. Sums begin with the kernel row of most output rows.
 */
#include "../../dispatch/estimate.h"
#include "im2col.h"

#include <string.h>

#include "../../machine/tune.h"
#include "../algorithm.h"

enum { MAX_TAPS = 16 }; /* along an axis of a kernel */
enum { HEAD = 16 };     /* floats of scratch that say which chunk's patches it has */

typedef struct {
    ptrdiff_t first, end;
} span;

typedef struct {
    const fo_conv2d *plan;
    fo_conv2d_size z;
    fo_image x, y, r; /* r.data is NULL where there is no residual */
    const float *w;
    span columns_inside;                             /* of the kernel */
    ptrdiff_t begin;                                 /* the kernel row that sums begin with */
    ptrdiff_t k, lda;                                /* steps of a kernel row; distance of two patches */
    ptrdiff_t images, rows, columns;                 /* of a chunk of the output */
    ptrdiff_t by_images, by_rows, by_columns, by_oc; /* chunks; tasks of a chunk */
    ptrdiff_t oc, step;                              /* channels of a task, and at a time */
    ptrdiff_t patches, sums, each;                   /* floats of P, of sums, of a thread's scratch */
    float *scratch;
} im2col;

/* ---- what reads the image ---------------------------------------------------------------------------------------- */

/* Outputs that read the image, `in` pixels after so many zeros, with the tap that stands `at` pixels after the
 * first. */
static span outputs_of(ptrdiff_t out, ptrdiff_t in, ptrdiff_t zeros, ptrdiff_t stride, ptrdiff_t at) {
    const ptrdiff_t first = clamp_(div_up(zeros - at, stride), 0, out);
    return (span){first, clamp_(div_up(in + zeros - at, stride), first, out)};
}

/* How many output rows read the image with kernel row i. */
static ptrdiff_t rows_inside(const fo_conv2d *plan, const fo_conv2d_size *z, ptrdiff_t i) {
    const span s = outputs_of(z->oh, z->ih, z->top, plan->s.sh, i * plan->s.dh);
    return s.end - s.first;
}

/* The kernel columns that read the image, from the first to the last. */
static span columns_inside(const fo_conv2d *plan, const fo_conv2d_size *z) {
    span met = {plan->s.kw, 0};
    for (ptrdiff_t j = 0; j < plan->s.kw; j++) {
        const span s = outputs_of(z->ow, z->iw, z->left, plan->s.sw, j * plan->s.dw);
        if (s.first < s.end) met = (span){min_(met.first, j), j + 1};
    }
    return met.end ? met : (span){0, 0};
}

double fo_im2col_share(const fo_conv2d *plan, const fo_conv2d_size *z) {
    const span met = columns_inside(plan, z);
    double rows = 0;
    for (ptrdiff_t i = 0; i < plan->s.kh; i++) rows += (double)rows_inside(plan, z, i);
    return rows / ((double)z->oh * (double)plan->s.kh) * (double)(met.end - met.first) / (double)plan->s.kw;
}

/* ---- chunks and their patches ------------------------------------------------------------------------------------ */

/* Some output rows and columns of some images, of one group. */
typedef struct {
    ptrdiff_t g, n, images, h, rows, w, columns;
} chunk;

static chunk chunk_of(const im2col *p, ptrdiff_t i) {
    const ptrdiff_t w = i % p->by_columns * p->columns, h = i / p->by_columns % p->by_rows * p->rows;
    const ptrdiff_t rest = i / p->by_columns / p->by_rows, n = rest % p->by_images * p->images;
    return (chunk){rest / p->by_images,        n, min_(p->images, p->z.n - n),  h,
                   min_(p->rows, p->z.oh - h), w, min_(p->columns, p->z.ow - w)};
}

/* The first kernel row whose input rows are of the same phase of the stride. */
static ptrdiff_t phase_of(const fo_conv2d *plan, ptrdiff_t i) {
    ptrdiff_t f = 0;
    while ((i - f) * plan->s.dh % plan->s.sh) f++;
    return f;
}

/* How many input rows of the phase that begins with kernel row f so many output rows may read. */
static ptrdiff_t phase_rows(const fo_conv2d *plan, ptrdiff_t rows, ptrdiff_t f) {
    return rows + (plan->s.kh - 1 - f) * plan->s.dh / plan->s.sh;
}

static ptrdiff_t patch_rows(const fo_conv2d *plan, const fo_conv2d_size *z, ptrdiff_t rows) {
    ptrdiff_t all = 0;
    for (ptrdiff_t f = 0; f < plan->s.kh; f++)
        if (phase_of(plan, f) == f) all += phase_rows(plan, rows, f);
    return min_(all, z->ih);
}

static ptrdiff_t patch_floats(const fo_conv2d *plan, ptrdiff_t columns) {
    return fo_leading(plan->kn, columns * plan->icg);
}

ptrdiff_t fo_im2col_floats(const fo_conv2d *plan, const fo_conv2d_size *z) {
    return patch_rows(plan, z, z->oh) * z->ow * patch_floats(plan, plan->s.kw);
}

/* A kernel row: the output rows of a chunk that read the image with it, and the row of P that the first of them
 * reads. */
typedef struct {
    ptrdiff_t first, end, place;
} tap;

/* Pixels of an input row of an image, their channels side by side, and their distance: those of x, or copies in
 * `room`. */
static const float *pixels_of(const im2col *p, const chunk *c, ptrdiff_t n, ptrdiff_t row, span inside, float *room,
                              ptrdiff_t *pixel) {
    const ptrdiff_t icg = p->plan->icg, count = inside.end - inside.first;
    const float *x = fo_at(&p->x, n, c->g * icg, row, inside.first);
    const bool in_place = p->x.sc == 1 || icg == 1;
    *pixel = in_place ? p->x.sw : icg;
    if (in_place) return x;
    if (p->x.sw == 1)
        p->plan->kn->transpose(icg, count, x, p->x.sc, room, icg);
    else
        for (ptrdiff_t q = 0; q < count; q++)
            for (ptrdiff_t i = 0; i < icg; i++) room[q * icg + i] = x[q * p->x.sw + i * p->x.sc];
    return room;
}

/* The patches of an input row of an image, one for each output column of a chunk. */
static void copy_row(const im2col *p, const chunk *c, ptrdiff_t n, ptrdiff_t row, float *to, float *room) {
    const fo_conv2d_shape *s = &p->plan->s;
    const ptrdiff_t icg = p->plan->icg, at = c->w * s->sw - p->z.left;
    const ptrdiff_t reach = (c->columns - 1) * s->sw + (p->columns_inside.end - 1) * s->dw + 1;
    const ptrdiff_t first = clamp_(at + p->columns_inside.first * s->dw, 0, p->z.iw);
    const span inside = {first, clamp_(at + reach, first, p->z.iw)};
    ptrdiff_t pixel;
    const float *x = pixels_of(p, c, n, row, inside, room, &pixel);
    /* taps whose channels follow each other in x, too */
    const ptrdiff_t run = s->dw == 1 && pixel == icg ? p->columns_inside.end - p->columns_inside.first : 1;
    for (ptrdiff_t w = 0; w < c->columns; w++, to += p->lda) {
        float *tap = to;
        for (ptrdiff_t j = p->columns_inside.first; j < p->columns_inside.end; j += run, tap += run * icg) {
            const ptrdiff_t q = at + w * s->sw + j * s->dw, before = clamp_(inside.first - q, 0, run);
            const ptrdiff_t end = clamp_(inside.end - q, before, run);
            if (before) memset(tap, 0, (size_t)(before * icg) * sizeof *tap);
            if (end > before)
                memcpy(tap + before * icg, x + (q + before - inside.first) * pixel,
                       (size_t)((end - before) * icg) * sizeof *tap);
            if (end < run) memset(tap + end * icg, 0, (size_t)((run - end) * icg) * sizeof *tap);
        }
    }
}

/* Where each kernel row's patches are; copies them unless `to` is NULL. */
static void find_patches(const im2col *p, const chunk *c, tap *taps, float *to, float *room) {
    const fo_conv2d *plan = p->plan;
    const fo_conv2d_shape *s = &plan->s;
    const ptrdiff_t row = c->columns * p->lda;
    ptrdiff_t rows = 0, begin[MAX_TAPS]; /* of a phase: where its row 0 is, or would be, in P */
    span inside[MAX_TAPS];               /* and which of its rows are in the image */
    for (ptrdiff_t i = 0; i < s->kh; i++) {
        const ptrdiff_t f = phase_of(plan, i), after = (i - f) * s->dh / s->sh;
        const ptrdiff_t at = c->h * s->sh + i * s->dh - p->z.top;
        if (f == i) {
            inside[i] = outputs_of(phase_rows(plan, c->rows, i), p->z.ih, -at, s->sh, 0);
            begin[i] = rows - inside[i].first;
            for (ptrdiff_t t = inside[i].first; t < inside[i].end; t++, rows++)
                for (ptrdiff_t n = 0; n < c->images && to; n++)
                    copy_row(p, c, c->n + n, at + t * s->sh, to + (rows * c->images + n) * row, room);
        }
        const ptrdiff_t first = clamp_(inside[f].first - after, 0, c->rows);
        taps[i] = (tap){first, clamp_(inside[f].end - after, first, c->rows), begin[f] + first + after};
    }
}

static bool is_idle(const tap *t) { return t->first == t->end; }

/* ---- products ---------------------------------------------------------------------------------------------------- */

/* Floats of a group's weights. */
static ptrdiff_t group_floats(const fo_conv2d *plan) { return fo_packed_size(plan->kn, plan->ocg, plan->k); }

/* Kernel row t in the order of the sums. */
static ptrdiff_t in_order(const im2col *p, ptrdiff_t t) { return !t ? p->begin : t <= p->begin ? t - 1 : t; }

/* Lets a product end in y, from an output row, an image and the first column of a chunk on. */
static void set_output(const im2col *p, const chunk *c, ptrdiff_t o, ptrdiff_t h, ptrdiff_t n, fo_gemm_args *a) {
    const bool nhwc = p->y.sc == 1;
    const ptrdiff_t channel = c->g * p->plan->ocg + o;
    a->ep = fo_conv2d_epilogue(p->plan, channel);
    a->ep.transposed = !nhwc;
    a->c = fo_at(&p->y, c->n + n, channel, c->h + h, c->w), a->ldc = nhwc ? p->y.sw : p->y.sc;
    if (p->r.data)
        a->ep.residual = fo_at(&p->r, c->n + n, channel, c->h + h, c->w), a->ep.ldr = nhwc ? p->r.sw : p->r.sc;
}

/* Whether a chunk's pixels follow each other. */
static bool in_line(const chunk *c, const fo_image *t) {
    return (c->rows == 1 || (c->images == 1 && t->sh == c->columns * t->sw)) &&
           (c->images == 1 || t->sn == c->columns * t->sw);
}

/* Sums to y: a row of an image at a time, or all pixels where they follow each other. */
static void store_sums(const im2col *p, const chunk *c, ptrdiff_t o, bool line, const float *sums, fo_gemm_args *a) {
    a->k = 0, a->m = line ? c->rows * c->images * c->columns : c->columns;
    for (ptrdiff_t i = 0; i < (line ? 1 : c->rows * c->images); i++) {
        set_output(p, c, o, i / c->images, i % c->images, a);
        a->start = sums + i * c->columns * p->step;
        p->plan->kn->gemm(a);
    }
}

/* Channels o .. o+oc of a chunk's pixels. Sums start at the bias, in scratch; the last product may end in y. */
static void multiply(const im2col *p, const chunk *c, const tap *taps, const float *patches, float *sums, ptrdiff_t o,
                     ptrdiff_t oc) {
    const fo_conv2d *plan = p->plan;
    const fo_kernels *kn = plan->kn;
    const ptrdiff_t row = c->images * c->columns, kernel_row = plan->s.kw * plan->icg * kn->nr;
    const float *w = p->w + c->g * group_floats(plan) + o * plan->k + p->columns_inside.first * plan->icg * kn->nr;
    const bool line = in_line(c, &p->y) && (!p->r.data || in_line(c, &p->r));
    fo_gemm_args a = {.form = FO_ROWS,
                      .m = c->rows * row,
                      .n = oc,
                      .lda = p->lda,
                      .b = w,
                      .ldb = kn->nr,
                      .panel = plan->k * kn->nr,
                      .lds = p->step,
                      .c = sums,
                      .ldc = p->step,
                      .ep.bias = fo_conv2d_epilogue(plan, c->g * plan->ocg + o).bias};
    const tap *first = &taps[p->begin];
    ptrdiff_t last = plan->s.kh - 1;
    while (last && is_idle(&taps[in_order(p, last)])) last--;
    bool done = false;
    if (first->end - first->first < c->rows) kn->gemm(&a), a.start = sums; /* of no steps: the bias alone */
    for (ptrdiff_t t = 0; t <= last; t++) {
        const ptrdiff_t i = in_order(p, t);
        if (is_idle(&taps[i])) continue;
        a.m = (taps[i].end - taps[i].first) * row, a.k = p->k;
        a.a = patches + taps[i].place * row * p->lda, a.b = w + i * kernel_row;
        a.c = sums + taps[i].first * row * p->step;
        if (a.start) a.start = a.c;
        done = t == last && line && a.m == c->rows * row;
        if (done) set_output(p, c, o, 0, 0, &a);
        kn->gemm(&a);
        a.start = sums;
    }
    if (!done) store_sums(p, c, o, line, sums, &a);
}

static void im2col_task(void *context, ptrdiff_t task, int thread) {
    const im2col *p = context;
    const chunk c = chunk_of(p, task / p->by_oc);
    float *scratch = p->scratch + thread * p->each, *patches = scratch + HEAD, *sums = patches + p->patches;
    float *room = sums + p->sums;
    ptrdiff_t *held = (ptrdiff_t *)(void *)scratch;
    tap taps[MAX_TAPS];
    find_patches(p, &c, taps, *held == task / p->by_oc ? NULL : patches, room);
    *held = task / p->by_oc;
    const ptrdiff_t o = task % p->by_oc * p->oc, end = min_(p->plan->ocg, o + p->oc);
    for (ptrdiff_t i = o; i < end; i += p->step) multiply(p, &c, taps, patches, sums, i, min_(p->step, end - i));
}

/* ---- a call ------------------------------------------------------------------------------------------------------ */

/* A panel's weights: kernel rows and columns, and then all channels of each. */
static void pack_panel(const fo_conv2d *plan, const void *context, ptrdiff_t part, float *packed) {
    (void)context;
    const ptrdiff_t nr = plan->kn->nr, area = plan->s.kh * plan->s.kw, panels = div_up(plan->ocg, nr);
    const ptrdiff_t g = part / panels, o = part % panels * nr, n = min_(nr, plan->ocg - o);
    const float *w = plan->w + (g * plan->ocg + o) * plan->ldw;
    float *to = packed + g * group_floats(plan) + o * plan->k;
    if (n < nr) memset(to, 0, (size_t)(plan->k * nr) * sizeof *to);
    for (ptrdiff_t c = 0; c < plan->icg; c += CHANNEL_BLOCK) {
        const ptrdiff_t block = min_(CHANNEL_BLOCK, plan->icg - c);
        for (ptrdiff_t i = 0; i < area; i++)
            plan->kn->transpose(n, block, w + c * area + i * block, plan->ldw, to + (i * plan->icg + c) * nr, nr);
    }
}

/* Rows of a chunk whose patches stay in the cache, as far as fewer output rows read fewer rows of the image: with a
 * dilation they may not. */
static ptrdiff_t rows_at_once(const im2col *p, ptrdiff_t most) {
    const fo_conv2d *plan = p->plan;
    ptrdiff_t rows = p->z.oh, half;
    for (; rows > 1; rows = half) {
        half = div_up(rows, 2);
        const ptrdiff_t all = patch_rows(plan, &p->z, rows), less = patch_rows(plan, &p->z, half);
        const bool large = 4 * all * p->z.ow * p->lda > FO_L2_SHARE && 4 * less <= 3 * all;
        if (!large && rows * p->z.ow <= most) break;
    }
    return rows;
}

/* Cuts the output so that a chunk's patches stay in the cache; threads share pixels where there are many, else
 * channels. */
static void cut(im2col *p, int threads) {
    const fo_conv2d *plan = p->plan;
    const fo_conv2d_size *z = &p->z;
    const ptrdiff_t nr = plan->kn->nr, image = max_(1, patch_rows(plan, z, z->oh) * z->ow * p->lda);
    /* of a chunk */
    const ptrdiff_t pixels = div_up(z->n * z->oh * z->ow, threads);
    const ptrdiff_t most = pixels >= FO_IM2COL_ENOUGH ? pixels : PTRDIFF_MAX;
    p->images = clamp_(min_(FO_L2_SHARE / 4 / image, most / (z->oh * z->ow)), 1, z->n);
    p->rows = rows_at_once(p, most);
    const ptrdiff_t column = patch_rows(plan, z, p->rows) * p->lda; /* floats */
    p->columns = clamp_(min_(FO_L2_SHARE / 4 / max_(1, column), most / p->rows), 1, z->ow);
    p->columns = div_up(z->ow, div_up(z->ow, p->columns)); /* of equal sizes */
    p->by_images = div_up(z->n, p->images), p->by_rows = div_up(z->oh, p->rows),
    p->by_columns = div_up(z->ow, p->columns);
    const ptrdiff_t pixels_of_chunk = p->images * p->rows * p->columns;
    const ptrdiff_t chunks = plan->s.groups * p->by_images * p->by_rows * p->by_columns;
    /* as many panels as a tile of few rows reads */
    p->step = (pixels_of_chunk <= 3 ? 4 : pixels_of_chunk <= 12 ? 2 : 1) * nr;
    const ptrdiff_t pieces =
        threads > 1 && chunks < FO_TASKS_A_THREAD * threads ? div_up(FO_TASKS_A_THREAD * threads, chunks) : 1;
    p->oc = round_up(div_up(plan->ocg, pieces), p->step);
    p->by_oc = div_up(plan->ocg, p->oc);
    p->patches = column * p->images * p->columns;
    p->sums = pixels_of_chunk * p->step;
    const ptrdiff_t reach = min_((p->columns - 1) * plan->s.sw + (p->columns_inside.end - 1) * plan->s.dw + 1, z->iw);
    p->each = HEAD + p->patches + p->sums + round_up(reach * plan->icg, HEAD);
}

bool fo_im2col_applies(const fo_conv2d *plan, const fo_conv2d_size *z) {
    const fo_conv2d_shape *s = &plan->s;
    const bool applies =
        s->kh <= MAX_TAPS && s->kw <= MAX_TAPS && s->kh * s->kw > 1 && plan->icg && !fo_is_depthwise(plan);
    return applies && fo_im2col_share(plan, z) > 0; /* windows of zeros alone: no patches */
}

fo_status fo_im2col_prepare(fo_prepared_conv2d *call) {
    const fo_conv2d *plan = call->plan;
    const fo_layout *l = &call->layout;
    const fo_conv2d_size *z = &l->z;
    const double macs =
        fo_im2col_share(plan, z) * (double)(z->n * z->oh * z->ow) * (double)plan->s.oc * (double)plan->k;
    im2col *p =
        fo_call_prepare(call, sizeof *p, fo_nanoseconds(plan->kn, macs, 4.0 * (double)plan->s.oc * (double)plan->k));
    if (!p) return FO_NO_MEMORY;
    *p = (im2col){.plan = plan, .z = *z, .x = l->x, .y = l->y, .r = l->r, .columns_inside = columns_inside(plan, z)};
    const ptrdiff_t columns = p->columns_inside.end - p->columns_inside.first;
    p->k = columns * plan->icg, p->lda = patch_floats(plan, columns);
    for (ptrdiff_t i = 1; i < plan->s.kh; i++)
        if (rows_inside(plan, z, i) > rows_inside(plan, z, p->begin)) p->begin = i;
    cut(p, call->threads);
    call->kernel = "direct, patches as rows";
    call->scratch = p->each * call->threads * (ptrdiff_t)sizeof(float);
    return FO_OK;
}

fo_status fo_im2col_run(const fo_prepared_conv2d *call, const fo_image *x, const fo_image *r, const fo_image *y) {
    im2col p = *(const im2col *)call->state;
    const fo_conv2d *plan = p.plan;
    const ptrdiff_t panels = plan->s.groups * div_up(plan->ocg, plan->kn->nr);
    const ptrdiff_t floats = plan->s.groups * group_floats(plan);
    FO_RAN("conv im2col");
    fo_call_images(x, r, y, &p.x, &p.r, &p.y);
    if (!(p.w = fo_conv2d_packed(plan, FO_IM2COL_PANELS, floats, panels, pack_panel, NULL))) return FO_NO_MEMORY;
    if (!(p.scratch = fo_arena_share(&p.each, call->threads, 0))) return FO_NO_MEMORY;
    for (int t = 0; t < call->threads; t++) *(ptrdiff_t *)(void *)(p.scratch + t * p.each) = -1;
    fo_parallel_for(plan->s.groups * p.by_images * p.by_rows * p.by_columns * p.by_oc, call->threads, im2col_task, &p);
    fo_arena_release(p.scratch);
    return FO_OK;
}
