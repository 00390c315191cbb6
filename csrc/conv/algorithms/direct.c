/* The direct convolution: a product with another way to read the image. Two forms; the reduction's order and so the
 * bits are the same in both.
 *
 *   pixels are rows     A: a pixel's window, read through a table of offsets; B: packed weights. C: NHWC as it is, or
 *                       NCHW transposed in registers. Nothing is lost to short image rows.
 *   pixels are columns  A: the weights; B: the image, vectors along its rows. C: NCHW as it is. 1x1 reads the image as
 *                       it is.
 *
 * Where an image has zeros around it, or columns have a stride, rows of it are first copied to scratch that stays in
 * the cache (input_gather.c). An output row is a product; what computes several rows at once (winograd1d.c) brings
 * its own walk over them.
 */
#include "../../dispatch/estimate.h"
#include "direct_parts.h"

#include <string.h>

#include "../../machine/tune.h"
#include "../../machine/machine.h"

static ptrdiff_t scratch_bytes(ptrdiff_t weights) {
    const ptrdiff_t l2 = fo_this_machine()->l2;
    return weights <= l2 / 2 ? l2 / 4 : weights > FO_L3_PIECE ? FO_L2_SHARE : l2 / 32 * 15;
}
/* ---- the walk of the direct algorithm ---------------------------------------------------------------------------- */

static bool weights(fo_direct *d) {
    const fo_conv2d *plan = d->plan;
    d->ldw = plan->ldw;
    if (plan->type != FO_F32)
        d->w = d->packed = d->wide;
    else if (d->weights_lhs)
        d->w = fo_conv2d_rows(plan);
    else
        d->packed = fo_conv2d_panels(plan);
    return d->w || d->packed;
}

static void fill_table(const fo_direct *d) {
    const ptrdiff_t row = d->plan->s.dh * fo_source_strides(d).sh;
    FOR_EACH_TAP(d->plan, p, c, i, j) fo_source_table(d, i * row, j, c, d->table + p);
}

/* Channels of a product that follow each other while all rows of pixels pass: as many as their weights may take of
 * the cache, or panels that a tile of few pixels takes at once, to have enough independent sums. */
static ptrdiff_t channels_at_once(const fo_direct *d, ptrdiff_t px) {
    const fo_kernels *kn = d->plan->kn;
    const bool single = d->u.unit == 1;
    if (d->weights_lhs)
        return single && d->copies && d->streams ? round_up(FO_L2_PIECE / 4 / max_(d->plan->k, 1) + 1, kn->mr)
                                                 : d->plan->ocg;
    if (d->z.oh == 1) return d->plan->ocg; /* a row alone: nothing passes the weights but its pixels */
    const ptrdiff_t vectors = single ? kn->mr * kn->nr / kn->vl / px : 1;
    return vectors >= 8 ? 8 * kn->vl : vectors >= 4 ? 4 * kn->vl : kn->nr;
}

/* Whether the reduction of so many rows goes in pieces. */
static bool has_pieces(const fo_direct *d, ptrdiff_t rows) {
    return (rows > 1 || d->z.oh == 1) && d->piece < d->plan->k;
}

/* The sums of all pieces of a reduction but the last. */
static ptrdiff_t sums_floats(const fo_direct *d, ptrdiff_t rows) {
    return has_pieces(d, rows) ? rows * d->z.ow * round_up(channels_at_once(d, d->z.ow), d->plan->kn->nr) : 0;
}

/* Output rows h0 .. h0+rows of a part, the reduction in pieces whose weights stay in the cache while the rows pass. */
static void part_rows(const fo_direct *d, const fo_direct_part *q, const float *x, float *sums, ptrdiff_t h0,
                      ptrdiff_t rows, fo_gemm_args *a) {
    const ptrdiff_t k = d->plan->k, most = has_pieces(d, rows) ? d->piece : k;
    const ptrdiff_t sh = d->plan->s.sh * fo_source_strides(d).sh;
    a->lds = round_up(q->oc, d->plan->kn->nr);
    ptrdiff_t p = 0;
    do {
        for (ptrdiff_t h = 0; h < rows; h++) {
            float *own = sums + h * q->px * a->lds;
            fo_direct_epilogue(d, q, a);
            fo_direct_product(d, q, x + h * sh, 0, k, a);
            a->k = min_(most, k - p), a->table += p;
            if (a->form == FO_ROWS) a->a += p;
            if (p) a->b += p * a->ldb;
            if (rows > 1 && !d->weights_lhs) fo_direct_next(a->b + a->k * a->ldb, most * a->ldb, h, rows, a);
            a->start = p ? own : NULL;
            if (p + most < k)
                fo_direct_partial(own, a);
            else
                fo_direct_output(d, q, h0 + h, a);
            d->plan->kn->gemm(a);
        }
    } while ((p += most) < k);
}

/* ---- tasks ------------------------------------------------------------------------------------------------------- */

/* Output rows h0 .. h0+rows of oc channels from q.o on, whose source rows start at x. */
static void group_rows(const fo_direct *d, fo_direct_part q, ptrdiff_t oc, ptrdiff_t h0, ptrdiff_t rows, const float *x,
                       float *scratch) {
    const ptrdiff_t step = channels_at_once(d, q.px), end = q.o + oc, some = fo_direct_rows_at_once(d, rows);
    const ptrdiff_t sh = fo_source_strides(d).sh;
    float *sums = scratch + d->scratch_each - d->u.walk->sums_floats(d, d->rows);
    fo_gemm_args a = d->gemm;
    a.packed = scratch;
    for (; q.o < end; q.o += step) {
        q.oc = min_(step, end - q.o);
        for (ptrdiff_t h = 0; h < rows; h += some) {
            const float *row = x + fo_source_place(d, h * d->plan->s.sh) * sh;
            d->u.walk->rows(d, &q, row, sums, h0 + h, min_(some, rows - h), &a);
        }
    }
}

/* What a task's pieces are parts of: pixels whose panel is packed, rows that are copied, and channels where weights
 * come from afar or there is one row. */
static void divide(const fo_direct *d, fo_piece piece, fo_direct_part *q, ptrdiff_t *h0, ptrdiff_t *rows) {
    const fo_kernels *kn = d->plan->kn;
    const ptrdiff_t unit = d->weights_lhs ? kn->mr : kn->nr;
    if (d->weights_lhs && d->z.oh == 1 && q->px > kn->nr)
        fo_divide(piece, kn->nr, &q->w0, &q->px);
    else if (*rows > d->u.unit && !d->streams)
        fo_divide(piece, d->u.unit, h0, rows);
    else if (q->oc > unit)
        fo_divide(piece, unit, &q->o, &q->oc);
    else if (*rows > d->u.unit)
        fo_divide(piece, d->u.unit, h0, rows);
    else
        fo_divide(piece, 1, &q->w0, &q->px);
}

/* A task: some rows (or some pixels of the only row) of one image, some channels of the groups of a bundle. */
static void direct_task(void *context, fo_piece piece, int thread) {
    const fo_direct *d = context;
    const fo_conv2d *plan = d->plan;
    const ptrdiff_t i = piece.task, o = i % d->by_oc * d->oc, w0 = i / d->by_oc % d->by_px * d->px;
    ptrdiff_t h0 = i / d->by_oc / d->by_px % d->by_rows * d->rows, rows = min_(d->rows, d->z.oh - h0);
    const ptrdiff_t block = i / d->by_oc / d->by_px / d->by_rows, n = block / d->bundles;
    const ptrdiff_t g0 = block % d->bundles * d->bundle;
    const ptrdiff_t groups = min_(d->bundle, plan->s.groups - g0);
    fo_direct_part q = {n, g0, o, min_(d->oc, plan->ocg - o), w0, min_(d->px, d->z.ow - w0), 0};
    divide(d, piece, &q, &h0, &rows);
    if (!rows || !q.px || !q.oc) return;
    float *scratch = d->scratch + thread * d->scratch_each;
    const ptrdiff_t window = fo_window_rows(&plan->s, round_up(rows, d->u.unit)), top = h0 * plan->s.sh;
    q.first = d->copies ? q.w0 : 0;
    if (d->copies) fo_source_copy(d, &q, groups, top - d->z.top, window, scratch);
    if (d->u.walk->add_rows) d->u.walk->add_rows(d, rows, scratch);
    for (; q.g < g0 + groups; q.g++) {
        const float *copied = scratch + (q.g - g0) * plan->icg * fo_source_strides(d).sc;
        group_rows(d, q, q.oc, h0, rows, d->copies ? copied : fo_at(&d->x, n, q.g * plan->icg, top, 0), scratch);
    }
}

/* ---- what follows from the sizes --------------------------------------------------------------------------------- */

/* Relative time of a form: lanes that do nothing, sums too few to hide the latency, the transposition of a tile. */
static double form_cost(const fo_kernels *kn, ptrdiff_t m, ptrdiff_t n, ptrdiff_t k, bool transposed) {
    double lanes = (double)round_up(n, kn->vl) / n, latency = m < 4 && n <= kn->nr ? 4.0 / m : 1;
    return lanes * latency * (1 + (transposed ? 9.0 : 1.0) / k);
}

/* What pixels as columns cost more, on the same scale, where channels are neighbors: a square of vectors is
 * transposed in five cycles for each of them. */
static double transpose_cost(const fo_conv2d *plan) {
    const double squares = plan->s.groups > 1 ? (double)plan->icg / plan->kn->vl : div_up(plan->icg, plan->kn->vl);
    return 5 * squares * plan->s.sh * plan->s.sw * 2 * plan->kn->vl / ((double)plan->ocg * plan->k);
}

/* Whether pixels are better columns. */
static bool better_as_columns(const fo_direct *d, bool pixelwise) {
    const fo_conv2d *plan = d->plan;
    const fo_kernels *kn = plan->kn;
    const bool nhwc = d->y.sc == 1, transposes = d->x.sc == 1 && d->x.sw != 1;
    /* A tile of one vector of columns loads as much as it multiplies: 64 -> 64, 32x32, stride 2, takes 120 us, and 80
     * where pixels are rows. */
    const double narrow = !pixelwise && d->z.ow <= kn->vl && plan->ocg > kn->vl ? 1.2 : 1;
    const double columns =
        narrow * form_cost(kn, plan->ocg, d->z.ow, plan->k, nhwc) + (transposes ? transpose_cost(plan) : 0);
    /* A 1x1 kernel would read a copied pixel once: channels last, 256 -> 3 at 28x28 takes 94 us as columns, and 50 as
     * rows (AVX-512). */
    return !(transposes && pixelwise) && columns < form_cost(kn, d->z.ow, plan->ocg, plan->k, !nhwc);
}

static ptrdiff_t columns_under(const fo_conv2d_shape *s, ptrdiff_t px) {
    return (px - 1) * s->sw + (s->kw - 1) * s->dw + 1;
}

/* Rows of the image in scratch. */
static void set_source(fo_direct *d, bool pixelwise, bool padded) {
    const fo_conv2d_shape *s = &d->plan->s;
    d->copies = d->u.unit > 1 || padded || (d->weights_lhs && !(pixelwise && d->x.sw == 1));
    d->channels_last = !d->weights_lhs && d->x.sc == 1;
    d->bundle = d->x.sc == 1 && d->copies ? clamp_(FO_DIRECT_BUNDLE / max_(d->plan->icg, 1), 0, s->groups) : 1;
    d->bundle = max_(d->bundle, 1);
    d->bundles = div_up(s->groups, d->bundle);
    d->phases = d->weights_lhs ? min_(s->sw, columns_under(s, d->z.ow)) : 1;
}

/* Whether weights stream, and in which pieces. */
static void set_pieces(fo_direct *d) {
    const fo_conv2d *plan = d->plan;
    const bool flat = d->z.oh == 1;
    d->streams = 4 * d->u.steps * plan->ocg > fo_this_machine()->l2 / 2;
    const bool small = !flat || d->z.ow <= FO_DIRECT_SMALL_IMAGE;
    const bool cut = !d->weights_lhs && d->streams && small && plan->k <= FO_CHAIN_STEPS;
    const ptrdiff_t pieces = !cut   ? 1
                             : flat ? div_up(plan->k, FO_PIECE_STEPS)
                                    : div_up(4 * plan->k * channels_at_once(d, d->z.ow), FO_L2_PIECE);
    d->piece = pieces > 1 ? round_up(div_up(plan->k, pieces), CHANNEL_BLOCK) : plan->k;
    d->width = round_up(plan->ocg, plan->kn->nr);
}

static void setup(fo_direct *d, const fo_conv2d *plan, const fo_layout *l, const fo_direct_unit *unit) {
    const fo_conv2d_shape *s = &plan->s;
    const fo_conv2d_size *z = &l->z;
    const fo_image *x = &l->x, *y = &l->y;
    const bool pixelwise = fo_is_pixelwise(s) && fo_is_unpadded(z);
    *d = (fo_direct){.plan = plan, .u = *unit, .z = *z, .x = *x, .y = *y, .r = l->r};
    if (pixelwise && x->sh == z->iw * x->sw && y->sh == z->iw * y->sw && (!l->adds || l->r.sh == z->iw * l->r.sw)) {
        d->z.iw = d->z.ow = z->ih * z->iw; /* an image is one long row */
        d->z.ih = d->z.oh = 1;
    }
    d->weights_lhs = better_as_columns(d, pixelwise);
    const bool below = (z->oh - 1) * s->sh + (s->kh - 1) * s->dh >= z->ih;
    const bool after = (z->ow - 1) * s->sw + (s->kw - 1) * s->dw >= z->iw;
    set_source(d, pixelwise, z->top || z->left || below || after);
    set_pieces(d);
    d->large = fo_is_large(z->n * z->oh * z->ow * s->oc, s->act.kind);
}

/* Channels that follow each other in every block of them, in fours; products and pieces begin with a block. */
static ptrdiff_t contiguous_steps(const fo_direct *d) {
    ptrdiff_t steps = CHANNEL_BLOCK;
    while (steps > 2 && d->plan->icg % steps) steps /= 2;
    return steps > 2 ? steps : 0;
}

/* The parts of a product that are common to all tasks. */
static void set_common(fo_direct *d) {
    const fo_kernels *kn = d->plan->kn;
    const fo_image v = fo_source_strides(d);
    /* one instruction a step less for each row */
    const bool plain = d->plan->s.kh == 1 && d->plan->s.kw == 1 && v.sc == 1;
    if (d->weights_lhs)
        d->gemm = (fo_gemm_args){.form = d->copies ? FO_B_TABLE : FO_B_PACKING, .ldb = v.sc, .panel = kn->nr};
    else
        d->gemm = (fo_gemm_args){.form = plain ? FO_ROWS : FO_A_TABLE,
                                 .lda = d->plan->s.sw * v.sw,
                                 .ldb = kn->nr,
                                 .run = v.sc == 1 ? contiguous_steps(d) : 0};
}

/* ---- cuts -------------------------------------------------------------------------------------------------------- */

/* Scratch of a task of so many output rows of px pixels, in floats; the last vector of a row may pass its end. */
static ptrdiff_t scratch_floats(const fo_direct *d, ptrdiff_t rows, ptrdiff_t px) {
    const fo_kernels *kn = d->plan->kn;
    const ptrdiff_t last = fo_source_place(d, fo_window_rows(&d->plan->s, round_up(rows, d->u.unit)) - 1);
    const ptrdiff_t columns = round_up(columns_under(&d->plan->s, px), d->phases);
    const ptrdiff_t copied = (last + 1) * columns * d->bundle * d->plan->icg + kn->nr;
    const ptrdiff_t packed = d->weights_lhs ? d->plan->k * kn->nr : 0; /* a panel of pixels */
    return round_up(d->copies ? copied : packed, 16) + d->u.walk->sums_floats(d, rows);
}

/* What all cuts of a call have in common: the axis that is cut, rows or, of an image of one row, pixels. */
typedef struct {
    int threads;
    bool flat;
    ptrdiff_t length, grain, most; /* of the axis; the unit and the limit of a task's share */
    ptrdiff_t window;              /* pixels of a row that a window spans: a shorter copy is mostly of shared columns */
    ptrdiff_t images, unit;        /* unit: of channels */
    ptrdiff_t scratch;             /* bytes of a task */
    double step;                   /* time of a channel of one row or pixel */
    bool shared_pixels;            /* they are dearer to share than weights: they come out of another's cache */
} axis;

static axis axis_of(const fo_direct *d, int threads) {
    const fo_conv2d *plan = d->plan;
    const fo_kernels *kn = plan->kn;
    const ptrdiff_t l2 = fo_this_machine()->l2;
    axis a = {.threads = threads,
              .flat = d->z.oh == 1,
              .images = d->z.n * d->bundles,
              .unit = d->weights_lhs ? kn->mr : kn->nr};
    a.length = a.flat ? d->z.ow : d->z.oh;
    a.grain = a.flat && d->weights_lhs ? min_(kn->nr, a.length) : d->u.unit;
    const bool small = threads > 1 || 4 * plan->k * FO_DIRECT_SMALL_IMAGE <= l2 / 2;
    /* Where the result is more than the cache keeps, all its panels pass a part of it: 16 -> 96 channels at 112x112 0.9
     * of the time, 32 -> 64 0.95. */
    const bool passes = plan->k <= FO_FEW_STEPS && 4 * d->z.ow * plan->ocg > 2 * l2;
    const ptrdiff_t floats_each = max_(plan->k + (passes ? plan->ocg : 0), 1);
    a.most = a.flat && !d->weights_lhs
                 ? max_(scratch_bytes(0) / 4 / floats_each, small ? FO_DIRECT_SMALL_IMAGE : a.grain)
                 : a.length;
    a.window = a.flat && d->copies ? columns_under(&plan->s, 1) / plan->s.sw : 0;
    a.most = max_(a.most, min_(a.window, a.length));
    a.shared_pixels = 4 * plan->k * plan->ocg <= l2;
    a.step = (double)d->bundle * (a.flat ? 1 : d->z.ow) * plan->k / (2 * kn->vl);
    a.scratch = scratch_bytes(4 * d->u.steps * plan->ocg);
    return a;
}

/* Time of the slowest thread for tasks of so many rows or pixels, the channels in `parts`. */
static double cut_time(const fo_direct *d, const axis *a, ptrdiff_t size, ptrdiff_t parts, ptrdiff_t floats) {
    const ptrdiff_t ocg = d->plan->ocg, oc = round_up(div_up(ocg, parts), a->unit), some = min_(oc, ocg);
    const ptrdiff_t rounds = div_up(a->images * div_up(a->length, size) * div_up(ocg, oc), a->threads);
    /* Weights that the second-level cache does not keep come to each task from the third: 256 -> 256, 28x28, stride
     * 2 takes 1040 us, and 820 if all weights were those of the first channels. */
    const double fetched = d->streams ? 1 / 16.0 : 0, copied = d->streams ? 1 / 3.0 : 1 / 4.0;
    /* where channels divide evenly, a last task of fewer rows is no thread's alone */
    const double even = (double)a->images * parts / a->threads * round_up(a->length, a->grain);
    const double rows = a->images * parts % a->threads ? (double)rounds * size : even;
    const double all = rows * a->step * some + rounds * (copied * floats + 200 + fetched * d->u.steps * some);
    return all * (parts > 1 && a->shared_pixels ? 1.03 : 1);
}

/* Cuts the output into tasks: the cut whose slowest thread is done first. A task's time is its multiply-adds and
 * what it copies; its scratch stays in the cache. An image of one row is cut along the row, so that the part of x
 * that it reads stays there too. */
static void cut(fo_direct *d, int threads) {
    const axis a = axis_of(d, threads);
    const ptrdiff_t ocg = d->plan->ocg;
    const double even = a.step * a.images * a.length * ocg / threads;
    double best = 0;
    for (ptrdiff_t size = round_up(a.length, a.grain);;) {
        const ptrdiff_t floats = a.flat ? scratch_floats(d, 1, size) : scratch_floats(d, size, d->z.ow);
        const bool stays = (a.flat && !d->copies) || size <= a.window || floats * (ptrdiff_t)sizeof(float) <= a.scratch;
        const bool fits = size == a.grain || (size <= a.most && stays);
        for (ptrdiff_t parts = 1; fits && parts <= 4 && (parts == 1 || (threads > 1 && ocg >= parts * a.unit));
             parts *= 2) {
            const double time = cut_time(d, &a, size, parts, floats);
            if (best && time >= best) continue;
            best = time;
            d->rows = a.flat ? 1 : size, d->px = a.flat ? size : d->z.ow;
            d->oc = max_(1, min_(round_up(div_up(ocg, parts), a.unit), ocg));
        }
        /* One thread: the largest that fits. */
        if (size == a.grain ||
            (best && (threads == 1 || best < FO_DIRECT_NEARLY * even || size * 64 * threads < a.length)))
            break;
        size = round_up(div_up(a.length, div_up(a.length, size - a.grain)), a.grain); /* the next smaller piece */
    }
    d->by_rows = div_up(d->z.oh, d->rows);
    d->by_px = div_up(d->z.ow, d->px);
    d->by_oc = div_up(ocg, d->oc);
    d->pw = div_up(columns_under(&d->plan->s, d->px), d->phases);
    d->scratch_wanted = scratch_floats(d, d->rows, d->px);
}

/* Floats of weights that a call widens. */
static ptrdiff_t wide_size(const fo_direct *d) {
    return d->plan->type != FO_F32 ? fo_conv2d_wide_size(d->plan, d->weights_lhs) : 0;
}

/* ---- a call ------------------------------------------------------------------------------------------------------ */

fo_status fo_direct_prepare_unit(fo_prepared_conv2d *call, const fo_direct_unit *unit, const char *const kernels[2]) {
    const fo_conv2d *plan = call->plan;
    const fo_conv2d_size *z = &call->layout.z;
    const double macs = (double)z->n * plan->s.oc * z->oh * z->ow * plan->k;
    const size_t terms = (size_t)round_up((ptrdiff_t)unit->terms_bytes, (ptrdiff_t)sizeof(ptrdiff_t));
    const size_t table = (size_t)unit->steps * sizeof(ptrdiff_t);
    fo_direct *d =
        fo_call_prepare(call, sizeof *d + terms + table, fo_nanoseconds(plan->kn, macs, 4.0 * plan->s.oc * plan->k));
    if (!d) return FO_NO_MEMORY;
    setup(d, plan, &call->layout, unit);
    cut(d, call->threads);
    if (terms) d->u.terms = memcpy(d + 1, unit->terms, unit->terms_bytes);
    d->table = (ptrdiff_t *)(void *)((char *)(d + 1) + terms);
    unit->walk->fill_table(d);
    set_common(d);
    call->kernel = kernels[d->weights_lhs];
    call->scratch = (d->scratch_wanted * call->threads + wide_size(d)) * (ptrdiff_t)sizeof(float);
    return FO_OK;
}

fo_status fo_direct_run_unit(const fo_prepared_conv2d *call, const fo_image *x, const fo_image *r, const fo_image *y) {
    fo_direct d = *(const fo_direct *)call->state;
    fo_call_images(x, r, y, &d.x, &d.r, &d.y);
    d.scratch_each = d.scratch_wanted;
    if (!(d.scratch = fo_arena_share(&d.scratch_each, call->threads, wide_size(&d)))) return FO_NO_MEMORY;
    d.wide = d.scratch + call->threads * d.scratch_each;
    bool ready = !wide_size(&d) || fo_conv2d_widen(d.plan, d.weights_lhs, call->threads, d.wide);
    ready = ready && d.u.walk->weights(&d);
    if (d.weights_lhs) d.gemm.lda = d.ldw;
    if (ready) fo_parallel_pieces(d.z.n * d.bundles * d.by_rows * d.by_px * d.by_oc, call->threads, direct_task, &d);
    fo_arena_release(d.scratch);
    return ready ? FO_OK : FO_NO_MEMORY;
}

bool fo_direct_applies(const fo_conv2d *plan, const fo_conv2d_size *z) {
    (void)z;
    return !fo_is_depthwise(plan);
}

fo_status fo_direct_prepare(fo_prepared_conv2d *call) {
    static const fo_direct_walk walk = {weights, fill_table, sums_floats, NULL, part_rows};
    static const char *const names[] = {"direct, pixels as rows", "direct, pixels as columns"};
    const fo_direct_unit unit = {.walk = &walk, .unit = 1, .steps = call->plan->k};
    return fo_direct_prepare_unit(call, &unit, names);
}

fo_status fo_direct_run(const fo_prepared_conv2d *call, const fo_image *x, const fo_image *residual,
                        const fo_image *y) {
    FO_RAN(((const fo_direct *)call->state)->weights_lhs ? "conv direct columns" : "conv direct rows");
    return fo_direct_run_unit(call, x, residual, y);
}
