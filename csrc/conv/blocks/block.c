/* Depthwise-separable blocks: [1x1 expand ->] depthwise -> 1x1 pointwise, a tile of rows at a time.
 *
 *    x  --expand-->  E: input rows of the tile  --depthwise-->  D: its output rows  --pointwise-->  y
 *
 * E and D are scratch of one thread, small enough for its second-level cache; no intermediate image exists. A thread
 * has a band, a range of rows and of columns, whose tiles are its tasks. They follow each other downwards: rows of E
 * that the next tile needs too are kept instead of being computed again, unless a thread takes the last tiles of a
 * slower one. E and D have the memory order of x: planes (NCHW) or pixels (NHWC), where vectors are long E of large
 * images in slices of channels.
 */
#include "../../dispatch/estimate.h"
#include "block.h"

#include <string.h>

#include "../../machine/tune.h"
#include "../algorithms/depthwise.h"

typedef struct {
    fo_separable b;
    fo_conv2d_size z; /* of the depthwise part */
    fo_image x, y, r;
    bool planes;
    const float *expand_panels, *panels; /* of the 1x1 parts, where pixels are rows */
    fo_depthwise_args depthwise;
    ptrdiff_t rows, cols, band;    /* output rows and columns of a tile; output rows of a band */
    ptrdiff_t across, down, tiles; /* bands of an image, tiles of a band */
    int threads;
    /* channels of E that stand side by side, e_rows x e_cols pixels of them: all, or whole panels */
    ptrdiff_t slice;
    ptrdiff_t strip; /* output rows of a strip, or 0: the depthwise part does a tile at once */
    ptrdiff_t e_rows, e_cols, e_plane, d_plane;
    ptrdiff_t e_each, d_each, each; /* floats of a thread: of E, of D, of both and a panel of B */
    float *scratch;
} separable;

/* The band that a thread was in last and the output row after those, and the input rows first .. held of which its E
 * is. */
typedef struct {
    ptrdiff_t band, next, first, held;
} last_tile;

static last_tile *last_of(const separable *s, int thread) {
    return (last_tile *)(s->scratch + s->threads * s->each + thread * LINE_FLOATS);
}

static ptrdiff_t reach(ptrdiff_t k, ptrdiff_t dilation) { return (k - 1) * dilation + 1; }

/* A plane's length: not a multiple of 1 KB, or the planes would share few sets of the first-level cache. */
static ptrdiff_t plane(ptrdiff_t floats) {
    floats = round_up(floats, 16);
    return floats % 256 ? floats : floats + 16;
}

static fo_image scratch_image(bool planes, float *data, ptrdiff_t channels, ptrdiff_t cols, ptrdiff_t plane) {
    return planes ? (fo_image){data, 0, plane, cols, 1} : (fo_image){data, 0, 1, cols * channels, channels};
}

/* The product of a 1x1 convolution over pixels, output channels o .. o+oc; `panels` of its weights where pixels are
 * rows, else NULL. Where the pixels stand is left to the caller. */
static fo_gemm_args pixelwise_args(const fo_conv2d *plan, const float *panels, float *scratch, const fo_image *from,
                                   const fo_image *to, const fo_image *r, ptrdiff_t o, ptrdiff_t oc) {
    const fo_kernels *kn = plan->kn;
    const bool planes = !panels;
    const bool transposed = planes ? to->sw != 1 || (r->data && r->sw != 1) : to->sc != 1 || (r->data && r->sc != 1);
    fo_gemm_args a = {.form = planes ? FO_B_PACKING : FO_ROWS, .k = plan->k, .ep = fo_conv2d_epilogue(plan, o)};
    a.ep.channel_rows = planes;
    a.ep.transposed = transposed;
    a.ldc = planes != transposed ? to->sc : to->sw;
    a.ep.ldr = planes != transposed ? r->sc : r->sw;
    if (planes)
        a.m = oc, a.a = fo_conv2d_rows(plan) + o * plan->ldw, a.lda = plan->ldw, a.ldb = from->sc, a.panel = kn->nr,
        a.packed = scratch;
    else
        a.n = oc, a.lda = from->sw, a.b = panels + o * plan->k, a.ldb = kn->nr, a.panel = plan->k * kn->nr;
    return a;
}

/* rows x cols pixels through a 1x1 convolution. */
static void pixelwise(const fo_conv2d *plan, const float *panels, float *scratch, const fo_image *from,
                      const fo_image *to, const fo_image *r, ptrdiff_t o, ptrdiff_t oc, ptrdiff_t rows,
                      ptrdiff_t cols) {
    fo_gemm_args a = pixelwise_args(plan, panels, scratch, from, to, r, o, oc);
    const bool one_row = from->sh == cols * from->sw && to->sh == cols * to->sw && (!r->data || r->sh == cols * r->sw);
    if (one_row) cols *= rows, rows = 1;
    for (ptrdiff_t h = 0; h < rows; h++) {
        const float *row = from->data + h * from->sh;
        a.c = to->data + h * to->sh;
        if (r->data) a.ep.residual = r->data + h * r->sh;
        if (panels)
            a.m = cols, a.a = row;
        else
            a.n = cols, a.b = row;
        plan->kn->gemm(&a);
    }
}

/* Moves rows `from` .. `to` of a slice of E, `line` floats each (of a plane, or of pixels), to its front. */
static void keep_rows(const separable *s, float *e, ptrdiff_t line, ptrdiff_t from, ptrdiff_t to) {
    for (ptrdiff_t c = 0; c < (s->planes ? s->b.depthwise->s.ic : 1); c++, e += s->e_plane)
        memmove(e, e + from * line, (size_t)((to - from) * line) * sizeof *e);
}

/* What a tile sees of the image: output rows h0 .. h0+rows, columns w0 .. w0+cols, and the part of the input that they
 * need. */
typedef struct {
    ptrdiff_t h0, rows, w0, cols, t0, t1, u0, u1; /* input rows t0 .. t1, columns u0 .. u1 */
} window;

static window window_of(const separable *s, ptrdiff_t h0, ptrdiff_t rows, ptrdiff_t w0, ptrdiff_t cols) {
    const fo_conv2d_shape *d = &s->b.depthwise->s;
    const ptrdiff_t t = h0 * d->sh - s->z.top, u = w0 * d->sw - s->z.left;
    window v = {h0, rows, w0, cols, min_(max_(t, 0), s->z.ih), 0, min_(max_(u, 0), s->z.iw), 0};
    v.t1 = max_(v.t0, min_(s->z.ih, t + (rows - 1) * d->sh + reach(d->kh, d->dh)));
    v.u1 = max_(v.u0, min_(s->z.iw, u + (cols - 1) * d->sw + reach(d->kw, d->dw)));
    return v;
}

static void depthwise_tile(const separable *s, const window *v, fo_image in, fo_image out, ptrdiff_t c,
                           ptrdiff_t channels) {
    const fo_conv2d *plan = s->b.depthwise;
    const fo_conv2d_size z = {.n = 1,
                              .ih = v->t1 - v->t0,
                              .iw = v->u1 - v->u0,
                              .oh = v->rows,
                              .ow = v->cols,
                              .top = v->t0 - (v->h0 * plan->s.sh - s->z.top),
                              .left = v->u0 - (v->w0 * plan->s.sw - s->z.left)};
    fo_depthwise_args g = s->depthwise;
    g.z = &z, g.x = in, g.y = out, g.h1 = v->rows, g.c0 = c, g.c1 = c + channels;
    plan->kn->depthwise(&g);
}

/* Where output or input pixel (h, w) of image n stands. */
static fo_image at(fo_image image, ptrdiff_t n, ptrdiff_t h, ptrdiff_t w) {
    if (image.data) image.data = fo_at(&image, n, 0, h, w);
    return image;
}

/* Channels c .. c+channels of the window's input rows, expanded: rows up to `held` are there, from row `first` on, and
 * move up. */
static fo_image expand_tile(const separable *s, const window *v, const fo_image *x, ptrdiff_t c, ptrdiff_t channels,
                            ptrdiff_t first, ptrdiff_t held, float *e, float *scratch) {
    const ptrdiff_t width = v->u1 - v->u0, kept = max_(held - v->t0, 0), line = width * (s->planes ? 1 : channels);
    const fo_image from = at(*x, 0, kept, 0), none = {0};
    if (kept) keep_rows(s, e, line, v->t0 - first, held - first);
    fo_image to = scratch_image(s->planes, e + kept * line, channels, width, s->e_plane);
    pixelwise(s->b.expand, s->expand_panels, scratch, &from, &to, &none, c, channels, v->t1 - v->t0 - kept, width);
    to.data = e - c * to.sc;
    return to;
}

/* Input rows of a depthwise part that goes by lines: row t stands at data + (t + shift) % count * step. */
typedef struct {
    const float *data;
    ptrdiff_t shift, count, step;
} line_rows;

/* Output row h. */
static void depthwise_line(const separable *s, const line_rows *in, fo_depthwise_line_args *g, ptrdiff_t h) {
    const ptrdiff_t t = h * g->stride - s->z.top;
    for (ptrdiff_t i = 0, at = (t + in->shift) % in->count; i < 3; i++, at = at + 1 < in->count ? at + 1 : 0)
        g->rows[i] = t + i >= 0 && t + i < s->z.ih ? in->data + at * in->step : NULL;
    s->b.depthwise->kn->depthwise_line(g);
}

static fo_depthwise_line_args line_args(const separable *s, const window *v, ptrdiff_t c, ptrdiff_t channels,
                                        float *d) {
    const fo_conv2d *plan = s->b.depthwise;
    return (fo_depthwise_line_args){.stride = (int)plan->s.sh,
                                    .xw = channels,
                                    .left = v->u0 - (v->w0 * plan->s.sw - s->z.left),
                                    .iw = v->u1 - v->u0,
                                    .ow = v->cols,
                                    .vectors = channels / plan->kn->vl,
                                    .w = s->depthwise.w + c * 9,
                                    .bias = plan->bias ? plan->bias + c : NULL,
                                    .y = d + c,
                                    .yw = plan->s.ic,
                                    .act = plan->s.act};
}

/* Channels c .. c+channels of a tile of D, a strip of rows after the other: its input rows, of which those below
 * `held` are there, are expanded into a ring, and read while they are fresh. */
static void strips_of_tile(const separable *s, const window *v, const fo_image *x, ptrdiff_t c, ptrdiff_t channels,
                           ptrdiff_t held, float *e, float *d) {
    const ptrdiff_t sh = s->b.depthwise->s.sh, width = v->u1 - v->u0, end = v->h0 + v->rows;
    const line_rows in = {e, s->z.top + sh - 3 + s->e_rows, s->e_rows, width * channels};
    const fo_image to = scratch_image(false, e, channels, width, 0), none = {0};
    const bool rows_touch = x->sh == width * x->sw;
    fo_depthwise_line_args g = line_args(s, v, c, channels, d);
    fo_gemm_args a = pixelwise_args(s->b.expand, s->expand_panels, NULL, x, &to, &none, c, channels);
    for (ptrdiff_t h = v->h0, t = max_(held, v->t0); h < end;) {
        const ptrdiff_t next = min_(h + s->strip, end), t1 = min_(v->t1, (next - 1) * sh - s->z.top + 3);
        for (ptrdiff_t rows; t < t1; t += rows) { /* at once but where the ring comes round */
            const ptrdiff_t at = (t + in.shift) % in.count;
            rows = rows_touch ? min_(t1 - t, in.count - at) : 1;
            a.m = rows * width, a.a = x->data + (t - v->t0) * x->sh, a.c = e + at * in.step;
            s->b.expand->kn->gemm(&a);
        }
        for (; h < next; h++, g.y += v->cols * g.yw) depthwise_line(s, &in, &g, h);
    }
}

static void separable_tile(void *context, fo_piece piece, int thread) {
    const separable *s = context;
    const ptrdiff_t tile = piece.task % s->tiles, band = piece.task / s->tiles, down = band % s->down;
    const ptrdiff_t across = band / s->down % s->across;
    const ptrdiff_t n = band / s->down / s->across, channels = s->b.depthwise->s.ic;
    ptrdiff_t h0 = down * s->band + tile * s->rows,
              rows = max_(0, min_(s->rows, min_(s->z.oh, (down + 1) * s->band) - h0));
    const ptrdiff_t w0 = across * s->cols, cols = min_(s->cols, s->z.ow - w0);
    fo_divide(piece, s->strip ? s->strip : 1, &h0, &rows);
    if (!rows) return; /* of a last band, lower than others */
    float *e = s->scratch + thread * s->each, *d = e + s->e_each, *packed = d + s->d_each;
    last_tile *last = last_of(s, thread);
    if (last->band != band || last->next != h0) last->first = last->held = 0;
    const window v = window_of(s, h0, rows, w0, cols);
    const fo_image x = at(s->x, n, v.t0, v.u0), out = scratch_image(s->planes, d, channels, cols, s->d_plane);
    for (ptrdiff_t c = 0, some; c < channels; c += some) {
        some = min_(s->slice, channels - c);
        if (s->strip) {
            strips_of_tile(s, &v, &x, c, some, last->held, e + c * s->e_rows * s->e_cols, d);
            continue;
        }
        fo_image in = x;
        if (s->b.expand)
            in = expand_tile(s, &v, &x, c, some, last->first, last->held, e + c * s->e_rows * s->e_cols, packed);
        depthwise_tile(s, &v, in, out, c, some);
    }
    *last = (last_tile){band, h0 + rows, v.t0, v.t1};
    const fo_image y = at(s->y, n, h0, w0), r = at(s->r, n, h0, w0);
    pixelwise(s->b.pointwise, s->panels, packed, &out, &y, &r, 0, s->b.pointwise->s.oc, v.rows, cols);
}

/* The bands whose slowest thread is done first, in input rows: an expansion computes those between two bands twice. */
static void separable_bands(separable *s, int threads) {
    const fo_conv2d_shape *d = &s->b.depthwise->s;
    const ptrdiff_t repeated = s->b.expand ? max_(0, reach(d->kh, d->dh) - d->sh) : 0;
    ptrdiff_t best = PTRDIFF_MAX;
    for (ptrdiff_t down = 1; down <= (threads > 1 ? FO_BLOCK_BANDS_A_THREAD * threads : 1); down++) {
        const ptrdiff_t band = div_up(s->z.oh, down), tasks = s->z.n * s->across * div_up(s->z.oh, band);
        const ptrdiff_t time = div_up(tasks, threads) * (band * d->sh + repeated);
        if (time < best) best = time, s->band = band;
    }
    s->down = div_up(s->z.oh, s->band);
}

/* Whether E can go by strips, and the depthwise part by lines. */
static bool goes_by_lines(const separable *s) {
    const fo_conv2d *d = s->b.depthwise;
    const ptrdiff_t right = (s->z.ow - 1) * d->s.sw + 3 - s->z.left - s->z.iw, rest = s->z.ow % s->cols;
    const bool pays = !d->kn->vec_is_line || s->z.iw * d->s.ic * (ptrdiff_t)sizeof(float) > FO_L1_SHARE;
    return pays && s->b.expand && !s->planes && s->x.sc == 1 && d->s.kh == 3 && d->s.kw == 3 && d->s.sh == d->s.sw &&
           d->s.sh <= 2 && d->s.dh == 1 && d->s.dw == 1 && d->s.ic % d->kn->vl == 0 && d->ocg == 1 &&
           fo_in_registers(&d->s.act) && s->z.left <= 1 && right <= 1 && s->cols >= FO_BLOCK_MIN_COLS &&
           (!rest || rest >= FO_BLOCK_MIN_COLS);
}

/* The columns of a tile, and of E a strip and a ring of rows where the depthwise part goes by lines; returns how many
 * rows the cache holds. */
static ptrdiff_t separable_columns(separable *s) {
    const fo_conv2d_shape *d = &s->b.depthwise->s;
    const ptrdiff_t bytes = d->ic * (ptrdiff_t)sizeof(float), vl = s->b.pointwise->kn->vl;
    const ptrdiff_t kept = max_(0, reach(d->kh, d->dh) - d->sh);
    for (ptrdiff_t parts = 1;; parts++) {
        s->cols = parts == 1 ? s->z.ow : round_up(div_up(s->z.ow, parts), vl);
        s->e_cols = s->b.expand ? min_(s->z.iw, (s->cols - 1) * d->sw + reach(d->kw, d->dw)) : 0;
        s->strip = goes_by_lines(s) ? max_(1, FO_BLOCK_STRIP_PIXELS / max_(1, d->sh * s->e_cols)) : 0;
        s->e_rows = s->strip ? round_up(s->strip * d->sh + kept, s->strip * d->sh) : 0;
        const ptrdiff_t fixed = (s->strip ? s->e_rows : kept) * s->e_cols;
        const ptrdiff_t row = (s->strip ? 0 : d->sh * s->e_cols) + s->cols;
        const ptrdiff_t most = min_(s->z.oh, (FO_L2_SHARE - fixed * bytes) / (row * bytes));
        if (most >= min_(FO_BLOCK_MIN_ROWS, s->z.oh) || s->cols <= 2 * vl) return most;
    }
}

/* The tile: as many rows as the cache holds, narrower where that would be few, a band in tiles of nearly equal
 * heights; rows x cols near a multiple of the GEMM's columns. */
static void separable_cut(separable *s, int threads) {
    const fo_conv2d_shape *d = &s->b.depthwise->s;
    const ptrdiff_t nr = s->b.pointwise->kn->nr;
    ptrdiff_t most = separable_columns(s);
    const bool narrow = !s->b.depthwise->kn->vec_is_line;
    const bool long_lines = !s->planes && !narrow && s->e_cols * d->ic * (ptrdiff_t)sizeof(float) > FO_L1_SHARE;
    s->slice = s->b.expand && (s->strip || long_lines) ? s->b.expand->kn->nr : d->ic;
    s->across = div_up(s->z.ow, s->cols);
    separable_bands(s, threads);
    if (threads > 1 && !s->b.expand && narrow)
        most = min_(most, max_(FO_BLOCK_MIN_ROWS, div_up(s->band, FO_BLOCK_SHARED_TILES)));
    most = s->rows = div_up(s->band, div_up(s->band, max_(most, 1)));
    if (s->slice < d->ic) s->rows = min_(s->band, round_up(most, s->strip ? s->strip : FO_BLOCK_SLICE_ROWS));
    for (ptrdiff_t r = most; s->slice >= d->ic && r > most / 2; r--)
        if (round_up(r * s->cols, nr) * s->rows < round_up(s->rows * s->cols, nr) * r) s->rows = r;
    s->tiles = div_up(s->band, s->rows);
    if (!s->strip) s->e_rows = s->b.expand ? min_(s->z.ih, (s->rows - 1) * d->sh + reach(d->kh, d->dh)) : 0;
    s->e_plane = s->planes ? plane(s->e_rows * s->e_cols) : 0;
    s->d_plane = s->planes ? plane(s->rows * s->cols) : 0;
    s->e_each = round_up(d->ic * (s->planes ? s->e_plane : s->e_rows * s->e_cols), 16);
    s->d_each = round_up(d->ic * (s->planes ? s->d_plane : s->rows * s->cols), 16);
    const ptrdiff_t expanded = s->b.expand ? s->b.expand->k * s->b.expand->kn->nr : 0;
    s->each = s->e_each + s->d_each + (s->planes ? max_(expanded, d->oc * nr) : 0);
}

double fo_block_nanoseconds(const fo_separable *block, const fo_conv2d_size *z) {
    const fo_conv2d_shape *d = &block->depthwise->s;
    const double points = (double)z->n * z->oh * z->ow * d->ic * (d->kh * d->kw + block->pointwise->s.oc);
    const double expanded = block->expand ? (double)z->n * z->ih * z->iw * d->ic * block->expand->k : 0;
    return fo_nanoseconds(block->pointwise->kn, points + expanded, 0);
}

struct fo_prepared_separable {
    separable s; /* but for the images' data, the weights and the scratch */
    double work;
};

/* All that follows from sizes and strides. */
static void separable_setup(fo_prepared_separable *call, const fo_separable *block, const fo_conv2d_size *z,
                            const fo_image *x, const fo_image *r, const fo_image *y, fo_team team) {
    *call = (fo_prepared_separable){.work = fo_block_nanoseconds(block, z)};
    separable *s = &call->s;
    *s = (separable){.b = *block, .z = *z, .x = *x, .y = *y, .planes = x->sw == 1 && (y->sw == 1 || x->sc != 1)};
    if (r) s->r = *r;
    s->depthwise.nhwc = !s->planes;
    fo_depthwise_shape(block->depthwise, &s->depthwise);
    s->threads = fo_threads_of(team, call->work);
    separable_cut(s, s->threads);
}

/* The weights of all parts; false where memory is short. */
static bool block_weights(separable *s) {
    const fo_conv2d *expand = s->b.expand, *pointwise = s->b.pointwise;
    if (!fo_depthwise_weights(s->b.depthwise, &s->depthwise)) return false;
    if (s->planes) return fo_conv2d_rows(pointwise) && (!expand || fo_conv2d_rows(expand));
    return (s->panels = fo_conv2d_panels(pointwise)) && (!expand || (s->expand_panels = fo_conv2d_panels(expand)));
}

static fo_status separable_run(separable s, const fo_image *x, const fo_image *r, const fo_image *y) {
    if (s.b.expand && s.strip)
        FO_RAN("conv block strips");
    else if (s.b.expand && s.slice < s.b.depthwise->s.ic)
        FO_RAN("conv block slices");
    else
        FO_RAN("conv block tiles");
    s.x.data = x->data, s.y.data = y->data, s.r.data = r ? r->data : NULL;
    if (!block_weights(&s)) return FO_NO_MEMORY;
    if (!(s.scratch = fo_arena_share(&s.each, s.threads, s.threads * LINE_FLOATS))) return FO_NO_MEMORY;
    for (int t = 0; t < s.threads; t++) last_of(&s, t)->band = -1;
    fo_parallel_pieces(s.z.n * s.across * s.down * s.tiles, s.threads, separable_tile, &s);
    fo_arena_release(s.scratch);
    return FO_OK;
}

fo_status fo_separable_run(const fo_separable *block, const fo_conv2d_size *z, const fo_image *x, const fo_image *r,
                           const fo_image *y) {
    fo_prepared_separable call;
    if (fo_block_is_empty(block, z)) return FO_OK;
    if (fo_is_huge(block->depthwise, z)) return FO_NO_MEMORY;
    separable_setup(&call, block, z, x, r, y, fo_team_here());
    return separable_run(call.s, x, r, y);
}

/* ---- prepared calls ---------------------------------------------------------------------------------------------- */

void fo_separable_prepare(fo_prepared_separable *calls[2], const fo_separable *block, const fo_conv2d_size *z,
                          const fo_image *x, const fo_image *r, const fo_image *y) {
    const fo_team teams[] = {fo_team_here(), fo_region_team()};
    const bool none = fo_block_is_empty(block, z) || fo_is_huge(block->depthwise, z);
    for (int i = 0; i < 2; i++) {
        const bool same = i && calls[0] && fo_threads_of(teams[1], calls[0]->work) == calls[0]->s.threads;
        calls[i] = none || same ? NULL : fo_alloc(sizeof *calls[i]);
        if (calls[i]) separable_setup(calls[i], block, z, x, r, y, teams[i]);
    }
}

void fo_separable_release(fo_prepared_separable *call) { fo_free(call); }

fo_status fo_separable_run_prepared(fo_prepared_separable *const calls[2], const fo_separable *block,
                                    const fo_conv2d_size *z, const fo_image *x, const fo_image *r, const fo_image *y) {
    for (int i = 0; i < 2; i++)
        if (calls[i] && fo_threads_for(calls[i]->work) == calls[i]->s.threads)
            return separable_run(calls[i]->s, x, r, y);
    return fo_separable_run(block, z, x, r, y);
}
