/* Winograd's convolution F(m x m, 3x3), of stride 1 or 2: the walk over blocks of tiles. Formula and transforms:
 * kernels/winograd/.
 *
 * The tiles of all images are numbered row by row. A block of them goes through three stages, its V and M staying in
 * the cache:
 *
 *     V[position][tile][ic]  from x    transform, a run of neighboring tiles at a time
 *     M[position][tile][oc]  = V U     one product for each of the (m+2)^2 positions, U[position] packed in the plan;
 *                                      stride 2: (m+1)^2 positions, whose V and U have one, two or four phases of ic
 *                                      channels
 *     y                      from M    transform, bias, residual and activation
 *
 * Groups are convolutions of their own, which follow each other: a block is of one of them.
 *
 * A kernel with dilation reads pixels of one phase of it alone, so that an image is dh*dw smaller ones, whose pixels
 * are not contiguous; all cache lines of a plane have all phases, so planes are first copied to pixels with all
 * their channels.
 *
 * Many blocks: each is a task, which with stride 1 goes through them by rows of positions (kernels/winograd).
 * Few: the stages of one block are cut over positions and channels, so that each thread reads a part of U, which is
 * then larger than everything else.
 */
#include "../../dispatch/estimate.h"
#include "../../machine/tune.h"
#include "../algorithm.h"
#include "../cost.h"
#include "winograd_blocks.h"

/* ---- phases of a dilation ---------------------------------------------------------------------------------------- */

/* Of n pixels along an axis, with zeros before them, those that outputs i, i + dilation .. read: the first, their
 * number, zeros before them. */
typedef struct {
    ptrdiff_t first, count, zeros;
} phase;
static phase inputs_of(ptrdiff_t n, ptrdiff_t zeros, ptrdiff_t dilation, ptrdiff_t i) {
    const ptrdiff_t before = div_up(zeros - i, dilation), first = i - zeros + before * dilation;
    return (phase){first, div_up(n - first, dilation), before};
}

/* Phase (down, across) of image n, of image r.n that it is in a block's runs. */
typedef struct {
    ptrdiff_t n, down, across;
} place;
static place place_of(const winograd *w, const tile_run *r) {
    const ptrdiff_t down = fo_phase_count(w->plan->s.dh, w->whole.oh);
    const ptrdiff_t across = fo_phase_count(w->plan->s.dw, w->whole.ow);
    return (place){r->n / across / down, r->n / across % down, r->n % across};
}

/* The pixels of a phase that begin at `first`. */
static fo_image phase_image(const winograd *w, const fo_image *t, const float *first) {
    return (fo_image){(float *)first, t->sn, t->sc, t->sh * w->plan->s.dh, t->sw * w->plan->s.dw};
}

/* ---- the stages of a block --------------------------------------------------------------------------------------- */

static fo_winograd_input_args input_args(const winograd *w, const tile_block *b, const tile_run *r, ptrdiff_t c,
                                         ptrdiff_t channels, float *v) {
    const fo_conv2d_shape *s = &w->plan->s;
    const place at = place_of(w, r);
    const phase rows = inputs_of(w->whole.ih, w->whole.top, s->dh, at.down);
    const phase columns = inputs_of(w->whole.iw, w->whole.left, s->dw, at.across);
    const float *x = fo_at(&w->x, at.n, b->group * w->plan->icg + c, rows.first, columns.first);
    return (fo_winograd_input_args){(int)s->sh,
                                    w->tile,
                                    r->height,
                                    r->last,
                                    r->whole,
                                    channels,
                                    phase_image(w, &w->x, x),
                                    rows.count,
                                    columns.count,
                                    s->sh * r->h - rows.zeros,
                                    s->sh * r->q - columns.zeros,
                                    v + r->slot * w->ldv + c,
                                    v + r->last_slot * w->ldv + c,
                                    w->ldv,
                                    w->v_position,
                                    fo_winograd_phase_floats(w->plan),
                                    NULL,
                                    w->mid_row};
}

static void transform_input(const winograd *w, const tile_block *b, ptrdiff_t c, ptrdiff_t channels, float *v) {
    tile_block left = *b;
    for (ptrdiff_t t = 0; t < b->tiles;) {
        const tile_run r = fo_winograd_next_run(w, b->t0 + t, b->tiles - t, left.from);
        const fo_winograd_input_args a = input_args(w, b, &r, c, channels, v);
        w->plan->kn->winograd_input(&a);
        t += r.whole + (r.last > 0);
    }
}

/* Positions p to end-1, the first of which has its V and M at v and products; oc channels from o on. */
static void multiply(const winograd *w, const tile_block *b, ptrdiff_t p, ptrdiff_t end, const float *v,
                     float *products, ptrdiff_t o, ptrdiff_t oc) {
    const fo_conv2d *plan = w->plan;
    const fo_kernels *kn = plan->kn;
    const int points = fo_winograd_points(plan, w->tile);
    const float *u = w->u + b->group * fo_winograd_u_group(plan, w->tile);
    fo_gemm_args a = {.form = FO_ROWS, .n = round_up(oc, kn->vl), .lda = w->ldv, .ldb = kn->nr, .ldc = w->ldp};
    for (; p < end; p++, v += w->v_position, products += w->p_position) {
        const int row = (int)(p / points), column = (int)(p % points);
        const bool low = row < fo_winograd_points(plan, w->last_height);
        const bool narrow = column < fo_winograd_points(plan, w->last_width);
        const ptrdiff_t first = b->from[narrow ? NARROW : WHOLE];
        a.m = b->from[!low ? LOW : narrow ? KINDS : CORNER] - first;
        a.a = v + first * w->ldv;
        a.k = fo_winograd_values_at(plan, row) * fo_winograd_values_at(plan, column) * fo_winograd_phase_floats(plan),
        a.panel = kn->nr * a.k;
        a.b = u + fo_winograd_phases_before(plan, w->tile, row, column) * fo_winograd_u_phase(plan) + o * a.k;
        a.c = products + first * w->ldp + o;
        kn->gemm(&a);
    }
}

static fo_winograd_output_args output_args(const winograd *w, const tile_block *b, const tile_run *r, ptrdiff_t o,
                                           ptrdiff_t channels, const float *products) {
    const ptrdiff_t channel = b->group * w->plan->ocg + o;
    const fo_epilogue ep = fo_conv2d_epilogue(w->plan, channel);
    const ptrdiff_t dh = w->plan->s.dh, dw = w->plan->s.dw;
    const place at = place_of(w, r);
    /* of this phase */
    const ptrdiff_t rows = div_up(w->whole.oh - at.down, dh), columns = div_up(w->whole.ow - at.across, dw);
    const ptrdiff_t h = r->h * dh + at.down, q = r->q * dw + at.across;
    return (fo_winograd_output_args){(int)w->plan->s.sh,
                                     w->tile,
                                     r->height,
                                     r->last,
                                     r->whole,
                                     channels,
                                     products + r->slot * w->ldp + o,
                                     products + r->last_slot * w->ldp + o,
                                     w->ldp,
                                     w->p_position,
                                     phase_image(w, &w->y, fo_at(&w->y, at.n, channel, h, q)),
                                     phase_image(w, &w->r, w->r.data ? fo_at(&w->r, at.n, channel, h, q) : NULL),
                                     min_(r->height, rows - r->h),
                                     min_(r->whole * w->tile + r->last, columns - r->q),
                                     ep.bias,
                                     ep.act,
                                     NULL,
                                     w->mid_row};
}

static void transform_output(const winograd *w, const tile_block *b, ptrdiff_t o, ptrdiff_t channels,
                             const float *products) {
    tile_block left = *b;
    for (ptrdiff_t t = 0; t < b->tiles;) {
        const tile_run r = fo_winograd_next_run(w, b->t0 + t, b->tiles - t, left.from);
        const fo_winograd_output_args a = output_args(w, b, &r, o, channels, products);
        w->plan->kn->winograd_output(&a);
        t += r.whole + (r.last > 0);
    }
}

/* ---- a block by rows of positions: formulas and reasons in kernels/winograd -------------------------------------- */

enum { COLUMNS = -1 }; /* the stage of columns; others are those of a row of positions */

/* Columns of mid that a run takes. */
static ptrdiff_t mid_columns(const winograd *w, const tile_run *r) { return r->whole * w->tile + r->last + 2; }

/* A stage of the transform of a block's input, or back to its output: the columns, or a row of positions. */
static void transform_by_rows(const winograd *w, const tile_block *b, bool back, int row, float *mid, float *data) {
    const fo_kernels *kn = w->plan->kn;
    tile_block left = *b;
    for (ptrdiff_t t = 0; t < b->tiles;) {
        const tile_run r = fo_winograd_next_run(w, b->t0 + t, b->tiles - t, left.from);
        fo_winograd_output_args out = output_args(w, b, &r, 0, w->plan->ocg, data);
        fo_winograd_input_args in = input_args(w, b, &r, 0, w->plan->icg, data);
        out.mid = in.mid = mid;
        if (row == COLUMNS)
            back ? kn->winograd_back_columns(&out) : kn->winograd_columns(&in);
        else if (row < r.height + 2)
            back ? kn->winograd_back_row(&out, row) : kn->winograd_row(&in, row);
        t += r.whole + (r.last > 0), mid += mid_columns(w, &r) * (back ? w->ldp : w->ldv);
    }
}

static void multiply_by_rows(const winograd *w, const tile_block *b, float *mid) {
    const int rows = w->tile + 2;
    float *v = mid + rows * w->mid_row, *products = v + rows * w->v_position;
    transform_by_rows(w, b, false, COLUMNS, mid, v);
    for (int row = 0; row < rows; row++) {
        transform_by_rows(w, b, false, row, mid, v);
        multiply(w, b, row * rows, (row + 1) * rows, v, products, 0, w->plan->ocg);
        transform_by_rows(w, b, true, row, mid, products);
    }
    transform_by_rows(w, b, true, COLUMNS, mid, products);
}

/* ---- tasks ------------------------------------------------------------------------------------------------------- */

static void block_task(void *context, fo_piece piece, int thread) {
    const winograd *w = context;
    const ptrdiff_t i = piece.task % w->blocks;
    ptrdiff_t t0 = fo_winograd_first_tile(w, i), tiles = fo_winograd_first_tile(w, i + 1) - t0;
    fo_divide(piece, 1, &t0, &tiles);
    if (!tiles) return;
    const tile_block b = fo_winograd_block(w, piece.task / w->blocks, t0, tiles);
    float *v = w->scratch + thread * w->each;
    if (w->by_rows) {
        multiply_by_rows(w, &b, v);
        return;
    }
    float *products = v + w->positions * w->v_position;
    transform_input(w, &b, 0, w->plan->icg, v);
    multiply(w, &b, 0, w->positions, v, products, 0, w->plan->ocg);
    transform_output(w, &b, 0, w->plan->ocg, products);
}

static float *shared_products(const winograd *w) { return w->scratch + w->positions * w->v_position; }

static void input_task(void *context, ptrdiff_t task, int thread) {
    (void)thread;
    const winograd *w = context;
    const ptrdiff_t step = w->plan->kn->nr, c = task * step;
    transform_input(w, &w->shared_block, c, min_(step, w->plan->icg - c), w->scratch);
}

static void product_task(void *context, fo_piece piece, int thread) {
    (void)thread;
    const winograd *w = context;
    const ptrdiff_t p = piece.task;
    ptrdiff_t o = 0, oc = w->plan->ocg;
    fo_divide(piece, w->plan->kn->nr, &o, &oc);
    const float *v = w->scratch + p * w->v_position;
    if (oc) multiply(w, &w->shared_block, p, p + 1, v, shared_products(w) + p * w->p_position, o, oc);
}

static void output_task(void *context, ptrdiff_t task, int thread) {
    (void)thread;
    const winograd *w = context;
    const ptrdiff_t step = w->plan->kn->nr, o = task * step;
    transform_output(w, &w->shared_block, o, min_(step, w->plan->ocg - o), shared_products(w));
}

/* The images of w. */
static fo_status run_images(winograd *w, int threads) {
    const fo_conv2d *plan = w->plan;
    if (!(w->u = fo_winograd_weights(plan, w->tile))) return FO_NO_MEMORY;
    if (!(w->scratch = fo_arena_share(&w->each, w->shared ? 1 : threads, 0))) return FO_NO_MEMORY;
    const ptrdiff_t blocks = plan->s.groups * w->blocks;
    if (!w->shared) fo_parallel_pieces(blocks, threads, block_task, w);
    for (ptrdiff_t i = 0; w->shared && i < blocks; i++) {
        const ptrdiff_t t = i % w->blocks * w->block;
        w->shared_block = fo_winograd_block(w, i / w->blocks, t, min_(w->block, w->tiles - t));
        fo_parallel_for(div_up(plan->icg, plan->kn->nr), threads, input_task, w);
        fo_parallel_pieces(w->positions, threads, product_task, w);
        fo_parallel_for(div_up(plan->ocg, plan->kn->nr), threads, output_task, w);
    }
    fo_arena_release(w->scratch);
    return FO_OK;
}

/* ---- planes with dilation ---------------------------------------------------------------------------------------- */

/* An image of pixels with all their channels: its floats, and a copy. */
static ptrdiff_t pixels_floats(ptrdiff_t channels, ptrdiff_t h, ptrdiff_t w) {
    return round_up(channels * h * w, MAX_LANES);
}
static fo_status copy_pixels(const fo_image *to, const fo_image *from, ptrdiff_t channels, ptrdiff_t h, ptrdiff_t w) {
    return fo_copy_image(to, from, &(fo_conv2d_size){.n = 1, .oh = h, .ow = w}, channels);
}

/* Of an image and its result. */
static size_t pixels_bytes(const fo_conv2d *plan, const fo_conv2d_size *z) {
    return (size_t)(pixels_floats(plan->s.ic, z->ih, z->iw) + pixels_floats(plan->s.oc, z->oh, z->ow)) * sizeof(float);
}

/* One image, by way of such copies in `room`; its residual goes where the result will be. */
static fo_status run_planes(winograd w, int threads, float *room, const fo_image *x, const fo_image *r,
                            const fo_image *y) {
    const fo_conv2d_shape *s = &w.plan->s;
    const fo_conv2d_size *z = &w.whole;
    w.x = fo_contiguous(s->ic, z->ih, z->iw, true), w.y = fo_contiguous(s->oc, z->oh, z->ow, true);
    w.x.data = room, w.y.data = room + pixels_floats(s->ic, z->ih, z->iw);
    w.r = w.y;
    if (!r) w.r.data = NULL;
    fo_status status = copy_pixels(&w.x, x, s->ic, z->ih, z->iw);
    if (r && status == FO_OK) status = copy_pixels(&w.y, r, s->oc, z->oh, z->ow);
    if (status == FO_OK) status = run_images(&w, threads);
    return status == FO_OK ? copy_pixels(y, &w.y, s->oc, z->oh, z->ow) : status;
}

/* All images, one at a time. */
static fo_status run_all_planes(const winograd *w, const fo_prepared_conv2d *call, const fo_image *x, const fo_image *r,
                                const fo_image *y) {
    float *room = fo_arena_take(pixels_bytes(w->plan, &w->whole));
    fo_status status = room ? FO_OK : FO_NO_MEMORY;
    for (ptrdiff_t n = 0; n < call->layout.z.n && status == FO_OK; n++) {
        fo_image from = *x, to = *y, residual = r ? *r : (fo_image){0};
        from.data += n * x->sn, to.data += n * y->sn;
        if (r) residual.data += n * r->sn;
        status = run_planes(*w, call->threads, room, &from, r ? &residual : NULL, &to);
    }
    if (room) fo_arena_release(room);
    return status;
}

/* ---- the algorithm ----------------------------------------------------------------------------------------------- */

bool fo_winograd_applies(const fo_conv2d *plan, const fo_conv2d_size *z) {
    (void)z;
    const fo_conv2d_shape *s = &plan->s;
    const bool kernel =
        s->kh == 3 && s->kw == 3 && s->sh == s->sw && s->sh <= 2 && (s->sh == 1 || !fo_is_dilated(plan));
    if (!kernel || !plan->icg || fo_is_depthwise(plan)) return false;
    /* who asks for it gets F(2x2) */
    return s->sh == 1 || plan->icg <= FO_STRIDED_CHANNELS || s->algorithm == FO_WINOGRAD;
}

fo_status fo_winograd_prepare(fo_prepared_conv2d *call) {
    const fo_conv2d *plan = call->plan;
    const fo_layout *l = &call->layout;
    const int tile = fo_winograd_tile(plan, &l->z);
    const bool planes = fo_is_dilated(plan) && !(l->x.sc == 1 && l->y.sc == 1 && (!l->adds || l->r.sc == 1));
    fo_conv2d_size z = l->z;
    if (planes) z.n = 1;
    const double work = (double)(z.n * plan->s.groups) * fo_winograd_work(plan, &z, tile);
    winograd *w = fo_call_prepare(call, sizeof *w, fo_nanoseconds(plan->kn, work, 0));
    if (!w) return FO_NO_MEMORY;
    fo_winograd_setup(w, plan, &z, tile, call->threads);
    w->planes = planes;
    w->x = l->x, w->y = l->y, w->r = l->r;
    call->kernel = tile == 2 ? "winograd F(2x2,3x3)" : tile == 4 ? "winograd F(4x4,3x3)" : "winograd F(6x6,3x3)";
    const size_t blocks = (size_t)(w->each * (w->shared ? 1 : call->threads)) * sizeof(float);
    call->scratch = (ptrdiff_t)(blocks + (planes ? pixels_bytes(plan, &z) : 0));
    return FO_OK;
}

fo_status fo_winograd_run(const fo_prepared_conv2d *call, const fo_image *x, const fo_image *r, const fo_image *y) {
    winograd w = *(const winograd *)call->state;
    if (w.planes) {
        FO_RAN("conv winograd planes");
        return run_all_planes(&w, call, x, r, y);
    }
    if (w.shared)
        FO_RAN("conv winograd shared block");
    else if (w.by_rows)
        FO_RAN("conv winograd rows of positions");
    else
        FO_RAN("conv winograd blocks");
    fo_call_images(x, r, y, &w.x, &w.r, &w.y);
    return run_images(&w, call->threads);
}
