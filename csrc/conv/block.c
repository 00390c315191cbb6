/* Depthwise-separable blocks: [1x1 expand ->] depthwise -> 1x1 pointwise, a tile of rows at a time.
 *
 *    x  --expand-->  E: input rows of the tile  --depthwise-->  D: its output rows  --pointwise-->  y
 *
 * E and D are scratch of one thread, small enough for its second-level cache; no intermediate image exists. A thread has a band, a range
 * of rows and of columns, whose tiles are its tasks. They follow each other downwards: rows of E that the next tile needs too are kept
 * instead of being computed again, unless a thread takes the last tiles of a slower one. E and D have the memory order of x: planes (NCHW)
 * or pixels (NHWC), where vectors are long E of large images in slices of channels.
 */
#include "conv2d.h"
#include "strassen.h"

#include <string.h>

/* Intermediate images up to this size are as fast in memory: pixels stay in a cache near by; planes make longer rows for the products,
 * and gain from the tiles only what the third-level cache is slower (16x112x112 x6: 1.06; 24x56x56 x6, 3.6 MB: 0.96 to 1.01). Beside products
 * at half rate memory takes half as long (Zen 4: 32x112x112 -> 16 channels last, 1.6 MB, 0.97 to 1.01, 16x112x112 x6 in planes 0.98). */
enum { PIXELS_BYTES = 1 << 20, PLANES_BYTES = 4 << 20, AT_HALF_RATE = 2 };

/* Nor does an image cost what a long product hides: 128x56x56 -> 128, 1.6 MB, 0.98 to 1.00; 128x112x112 -> 128, 6.4 MB, 1.07. */
enum { BYTES_AN_OUTPUT = 16 << 10 };

/* Where a line of E is longer, a panel's channels of it stand by themselves: a slice, which the depthwise part reads while it is fresh. Half
 * a panel costs the expansion what the depthwise part gains. 3x3 goes by strips (below); what does not, for its kernel or activation, has the
 * slices of a whole tile, whose rows are a multiple of the depthwise kernel's for 3x3. Time of E in one piece over that of slices, one thread,
 * AVX-512, medians / least: Zen 5 (1 MB of second-level cache, 3x3) 24x56x56 x6 1.07, stride 2 1.05, 32x28x28 x6, whose lines are 21 KB, 0.96;
 * Xeon (2 MB, 5x5) 24x56x56 x6 1.11 / 1.13, stride 2 0.98 / 0.95, 40x28x28 x6 0.94 / 0.95. */
enum { LINE_BYTES = 24 << 10, SLICE_ROWS = 4 };
enum { TILE_BYTES = 512 << 10, LEAST_ROWS = 4, BANDS_A_THREAD = 3 };

/* Tiles of a band without E that several threads take: of two the faster thread waits for the last. AVX2, two threads, against the layers:
 * 32x112x112 -> 64 from 0.96 to 1.01, -> 16 from 1.01 to 1.07; with E lower tiles cost more than that, 24x56x56 x6 0.9. */
enum { SHARED_TILES = 7 };

/* A strip: some output rows of a tile, for which a panel's channels of E are expanded, so many pixels or more (a product long enough to run as
 * fast as a tile's), into a ring of rows that the first-level cache holds, where the depthwise part reads them. Time of whole tiles over that of
 * strips, one thread, AVX2, medians / least: 16x112x112 x6, stride 2 1.12 / 1.07, 24x56x56 x6 1.09 / 1.05. Of slices, AVX-512 (Xeon): 1.03 / 1.03,
 * 1.03 / 1.01, stride 2 1.06 / 1.06; 32x28x28 x6, whose lines are short, 0.99 / 0.98. */
enum { STRIP_PIXELS = 112, LEAST_COLS = 8 };

typedef struct {
    fo_separable b;
    fo_conv2d_size z; /* of the depthwise part */
    fo_image x, y, r;
    bool planes;
    const float *expand_panels, *panels; /* of the 1x1 parts, where pixels are rows */
    fo_depthwise_args depthwise;
    ptrdiff_t rows, cols, band;          /* output rows and columns of a tile; output rows of a band */
    ptrdiff_t across, down, tiles;       /* bands of an image, tiles of a band */
    int threads;
    ptrdiff_t slice;                     /* channels of E that stand side by side, e_rows x e_cols pixels of them: all, or whole panels */
    ptrdiff_t strip;                     /* output rows of a strip, or 0: the depthwise part does a tile at once */
    ptrdiff_t e_rows, e_cols, e_plane, d_plane;
    ptrdiff_t e_each, d_each, each; /* floats of a thread: of E, of D, of both and a panel of B */
    float *scratch;
} separable;

/* The band that a thread was in last and the output row after those, and the input rows first .. held of which its E is. */
typedef struct {
    ptrdiff_t band, next, first, held;
} last_tile;
enum { LAST_FLOATS = 16 }; /* a cache line for each thread's */

static last_tile *last_of(const separable *s, int thread) { return (last_tile *)(s->scratch + s->threads * s->each + thread * LAST_FLOATS); }

static ptrdiff_t reach(ptrdiff_t k, ptrdiff_t dilation) { return (k - 1) * dilation + 1; }

/* A plane's length: not a multiple of 1 KB, or the planes would share few sets of the first-level cache. */
static ptrdiff_t plane(ptrdiff_t floats) {
    floats = round_up(floats, 16);
    return floats % 256 ? floats : floats + 16;
}

static fo_image scratch_image(bool planes, float *data, ptrdiff_t channels, ptrdiff_t cols, ptrdiff_t plane) {
    return planes ? (fo_image){data, 0, plane, cols, 1} : (fo_image){data, 0, 1, cols * channels, channels};
}

/* The product of a 1x1 convolution over pixels, output channels o .. o+oc; `panels` of its weights where pixels are rows, else NULL. Where the
 * pixels stand is left to the caller. */
static fo_gemm_args pixelwise_args(const fo_conv2d *plan, const float *panels, float *scratch, const fo_image *from, const fo_image *to, const fo_image *r,
                                   ptrdiff_t o, ptrdiff_t oc) {
    const fo_kernels *kn = plan->kn;
    const bool planes = !panels, transposed = planes ? to->sw != 1 || (r->data && r->sw != 1) : to->sc != 1 || (r->data && r->sc != 1);
    fo_gemm_args a = {.form = planes ? FO_B_PACKING : FO_ROWS, .k = plan->k, .ep = fo_conv2d_epilogue(plan, o)};
    a.ep.channel_rows = planes;
    a.ep.transposed = transposed;
    a.ldc = planes != transposed ? to->sc : to->sw;
    a.ep.ldr = planes != transposed ? r->sc : r->sw;
    if (planes)
        a.m = oc, a.a = plan->w + o * plan->ldw, a.lda = plan->ldw, a.ldb = from->sc, a.panel = kn->nr, a.packed = scratch;
    else
        a.n = oc, a.lda = from->sw, a.b = panels + o * plan->k, a.ldb = kn->nr, a.panel = plan->k * kn->nr;
    return a;
}

/* rows x cols pixels through a 1x1 convolution. */
static void pixelwise(const fo_conv2d *plan, const float *panels, float *scratch, const fo_image *from, const fo_image *to, const fo_image *r,
                      ptrdiff_t o, ptrdiff_t oc, ptrdiff_t rows, ptrdiff_t cols) {
    fo_gemm_args a = pixelwise_args(plan, panels, scratch, from, to, r, o, oc);
    if (from->sh == cols * from->sw && to->sh == cols * to->sw && (!r->data || r->sh == cols * r->sw)) cols *= rows, rows = 1;
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

/* What a tile sees of the image: output rows h0 .. h0+rows, columns w0 .. w0+cols, and the part of the input that they need. */
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

static void depthwise_tile(const separable *s, const window *v, fo_image in, fo_image out, ptrdiff_t c, ptrdiff_t channels) {
    const fo_conv2d *plan = s->b.depthwise;
    const fo_conv2d_size z = {.n = 1, .ih = v->t1 - v->t0, .iw = v->u1 - v->u0, .oh = v->rows, .ow = v->cols,
                              .top = v->t0 - (v->h0 * plan->s.sh - s->z.top), .left = v->u0 - (v->w0 * plan->s.sw - s->z.left)};
    fo_depthwise_args g = s->depthwise;
    g.z = &z, g.x = in, g.y = out, g.h1 = v->rows, g.c0 = c, g.c1 = c + channels;
    plan->kn->depthwise(&g);
}

/* Where output or input pixel (h, w) of image n stands. */
static fo_image at(fo_image image, ptrdiff_t n, ptrdiff_t h, ptrdiff_t w) {
    if (image.data) image.data = fo_at(&image, n, 0, h, w);
    return image;
}

/* Channels c .. c+channels of the window's input rows, expanded: rows up to `held` are there, from row `first` on, and move up. */
static fo_image expand_tile(const separable *s, const window *v, const fo_image *x, ptrdiff_t c, ptrdiff_t channels, ptrdiff_t first, ptrdiff_t held,
                            float *e, float *scratch) {
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

static fo_depthwise_line_args line_args(const separable *s, const window *v, ptrdiff_t c, ptrdiff_t channels, float *d) {
    const fo_conv2d *plan = s->b.depthwise;
    return (fo_depthwise_line_args){.stride = (int)plan->s.sh, .xw = channels, .left = v->u0 - (v->w0 * plan->s.sw - s->z.left), .iw = v->u1 - v->u0, .ow = v->cols,
                                    .vectors = channels / plan->kn->vl, .w = s->depthwise.w + c * 9, .bias = plan->bias ? plan->bias + c : NULL,
                                    .y = d + c, .yw = plan->s.ic, .act = plan->s.act};
}

/* Channels c .. c+channels of a tile of D, a strip of rows after the other: its input rows, of which those below `held` are there, are expanded
 * into a ring, and read while they are fresh. */
static void strips_of_tile(const separable *s, const window *v, const fo_image *x, ptrdiff_t c, ptrdiff_t channels, ptrdiff_t held, float *e, float *d) {
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
    const ptrdiff_t tile = piece.task % s->tiles, band = piece.task / s->tiles, down = band % s->down, across = band / s->down % s->across;
    const ptrdiff_t n = band / s->down / s->across, channels = s->b.depthwise->s.ic;
    ptrdiff_t h0 = down * s->band + tile * s->rows, rows = max_(0, min_(s->rows, min_(s->z.oh, (down + 1) * s->band) - h0));
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
        const fo_image in = s->b.expand ? expand_tile(s, &v, &x, c, some, last->first, last->held, e + c * s->e_rows * s->e_cols, packed) : x;
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
    for (ptrdiff_t down = 1; down <= (threads > 1 ? BANDS_A_THREAD * threads : 1); down++) {
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
    const bool pays = fo_is_narrow(d->kn) || s->z.iw * d->s.ic * (ptrdiff_t)sizeof(float) > LINE_BYTES;
    return pays && s->b.expand && !s->planes && s->x.sc == 1 && d->s.kh == 3 && d->s.kw == 3 && d->s.sh == d->s.sw && d->s.sh <= 2 && d->s.dh == 1 && d->s.dw == 1 &&
           d->s.ic % d->kn->vl == 0 && d->ocg == 1 && d->s.act.kind <= FO_CLIP && s->z.left <= 1 && right <= 1 && s->cols >= LEAST_COLS &&
           (!rest || rest >= LEAST_COLS);
}

/* The columns of a tile, and of E a strip and a ring of rows where the depthwise part goes by lines; answers how many rows the cache holds. */
static ptrdiff_t separable_columns(separable *s) {
    const fo_conv2d_shape *d = &s->b.depthwise->s;
    const ptrdiff_t bytes = d->ic * (ptrdiff_t)sizeof(float), vl = s->b.pointwise->kn->vl, kept = max_(0, reach(d->kh, d->dh) - d->sh);
    for (ptrdiff_t parts = 1;; parts++) {
        s->cols = parts == 1 ? s->z.ow : round_up(div_up(s->z.ow, parts), vl);
        s->e_cols = s->b.expand ? min_(s->z.iw, (s->cols - 1) * d->sw + reach(d->kw, d->dw)) : 0;
        s->strip = goes_by_lines(s) ? max_(1, STRIP_PIXELS / max_(1, d->sh * s->e_cols)) : 0;
        s->e_rows = s->strip ? round_up(s->strip * d->sh + kept, s->strip * d->sh) : 0;
        const ptrdiff_t fixed = (s->strip ? s->e_rows : kept) * s->e_cols, row = (s->strip ? 0 : d->sh * s->e_cols) + s->cols;
        const ptrdiff_t most = min_(s->z.oh, (TILE_BYTES - fixed * bytes) / (row * bytes));
        if (most >= min_(LEAST_ROWS, s->z.oh) || s->cols <= 2 * vl) return most;
    }
}

/* The tile: as many rows as the cache holds, narrower where that would be few, a band in tiles of nearly equal heights; rows x cols
 * near a multiple of the GEMM's columns. */
static void separable_cut(separable *s, int threads) {
    const fo_conv2d_shape *d = &s->b.depthwise->s;
    const ptrdiff_t nr = s->b.pointwise->kn->nr;
    ptrdiff_t most = separable_columns(s);
    const bool narrow = fo_is_narrow(s->b.depthwise->kn), long_lines = !s->planes && !narrow && s->e_cols * d->ic * (ptrdiff_t)sizeof(float) > LINE_BYTES;
    s->slice = s->b.expand && (s->strip || long_lines) ? s->b.expand->kn->nr : d->ic;
    s->across = div_up(s->z.ow, s->cols);
    separable_bands(s, threads);
    if (threads > 1 && !s->b.expand && narrow) most = min_(most, max_(LEAST_ROWS, div_up(s->band, SHARED_TILES)));
    most = s->rows = div_up(s->band, div_up(s->band, max_(most, 1)));
    if (s->slice < d->ic) s->rows = min_(s->band, round_up(most, s->strip ? s->strip : SLICE_ROWS));
    for (ptrdiff_t r = most; s->slice >= d->ic && r > most / 2; r--)
        if (round_up(r * s->cols, nr) * s->rows < round_up(s->rows * s->cols, nr) * r) s->rows = r;
    s->tiles = div_up(s->band, s->rows);
    if (!s->strip) s->e_rows = s->b.expand ? min_(s->z.ih, (s->rows - 1) * d->sh + reach(d->kh, d->dh)) : 0;
    s->e_plane = s->planes ? plane(s->e_rows * s->e_cols) : 0;
    s->d_plane = s->planes ? plane(s->rows * s->cols) : 0;
    s->e_each = round_up(d->ic * (s->planes ? s->e_plane : s->e_rows * s->e_cols), 16);
    s->d_each = round_up(d->ic * (s->planes ? s->d_plane : s->rows * s->cols), 16);
    s->each = s->e_each + s->d_each + (s->planes ? max_(s->b.expand ? s->b.expand->k * s->b.expand->kn->nr : 0, d->oc * nr) : 0);
}

static double block_nanoseconds(const fo_separable *block, const fo_conv2d_size *z) {
    const fo_conv2d_shape *d = &block->depthwise->s;
    const double points = (double)z->n * z->oh * z->ow * d->ic * (d->kh * d->kw + block->pointwise->s.oc);
    const double expanded = block->expand ? (double)z->n * z->ih * z->iw * d->ic * block->expand->k : 0;
    return fo_nanoseconds(block->pointwise->kn, points + expanded, 0);
}

fo_status fo_separable_run(const fo_separable *block, const fo_conv2d_size *z, const fo_image *x, const fo_image *r, const fo_image *y) {
    if (!z->n || !z->oh || !z->ow || !block->pointwise->s.oc) return FO_OK;
    if (fo_is_huge(block->depthwise, z)) return FO_NO_MEMORY;
    separable s = {.b = *block, .z = *z, .x = *x, .y = *y, .planes = x->sw == 1 && (y->sw == 1 || x->sc != 1)};
    if (r) s.r = *r;
    s.depthwise.nhwc = !s.planes;
    if (!fo_depthwise_weights(block->depthwise, &s.depthwise)) return FO_NO_MEMORY;
    if (!s.planes && !(s.panels = fo_conv2d_panels(block->pointwise))) return FO_NO_MEMORY;
    if (!s.planes && block->expand && !(s.expand_panels = fo_conv2d_panels(block->expand))) return FO_NO_MEMORY;
    const int threads = fo_threads_for(block_nanoseconds(block, z));
    s.threads = threads;
    separable_cut(&s, threads);
    if (!(s.scratch = fo_arena_share(&s.each, threads, threads * LAST_FLOATS))) return FO_NO_MEMORY;
    for (int t = 0; t < threads; t++) last_of(&s, t)->band = -1;
    fo_parallel_pieces(z->n * s.across * s.down * s.tiles, threads, separable_tile, &s);
    fo_arena_release(s.scratch);
    return FO_OK;
}

/* ---- the layers one after the other --------------------------------------------------------------------------------------------------- */

typedef struct {
    const fo_separable *block;
    const fo_conv2d_size *size;
    fo_image x, r, y, e, d;
    fo_status status;
} layers;

static void run_layers(void *context) {
    layers *l = context;
    const fo_conv2d_size *z = l->size, before = {.n = z->n, .ih = z->ih, .iw = z->iw, .oh = z->ih, .ow = z->iw};
    const fo_conv2d_size after = {.n = z->n, .ih = z->oh, .iw = z->ow, .oh = z->oh, .ow = z->ow};
    l->status = l->block->expand ? fo_conv2d_run(l->block->expand, &before, &l->x, NULL, &l->e) : FO_OK;
    if (!l->status) l->status = fo_conv2d_run(l->block->depthwise, z, l->block->expand ? &l->e : &l->x, NULL, &l->d);
    if (!l->status) l->status = fo_conv2d_run(l->block->pointwise, &after, &l->d, l->r.data ? &l->r : NULL, &l->y);
}

static double image_bytes(const fo_separable *block, const fo_conv2d_size *z) {
    return (double)sizeof(float) * block->depthwise->s.ic * ((double)z->oh * z->ow + (block->expand ? (double)z->ih * z->iw : 0));
}

fo_status fo_separable_layers(const fo_separable *block, const fo_conv2d_size *z, const fo_image *x, const fo_image *r, const fo_image *y) {
    const fo_conv2d_shape *d = &block->depthwise->s;
    const bool pixels = x->sc == 1 && (x->sw != 1 || y->sc == 1);
    if (!z->n || !z->oh || !z->ow || !block->pointwise->s.oc) return FO_OK;
    if (fo_is_huge(block->depthwise, z) || z->n * image_bytes(block, z) > 0x1p60) return FO_NO_MEMORY;
    layers l = {.block = block, .size = z, .x = *x, .y = *y, .e = fo_contiguous(d->ic, z->ih, z->iw, pixels), .d = fo_contiguous(d->ic, z->oh, z->ow, pixels)};
    if (r) l.r = *r;
    const ptrdiff_t floats = block->expand ? z->n * l.e.sn : 0;
    float *scratch = fo_arena_take((size_t)(floats + z->n * l.d.sn) * sizeof *scratch + 2 * FO_PAGE);
    if (!scratch) return FO_NO_MEMORY;
    /* Each image where a result of the one before would lie for a caller; but D of x halfway to y, which will lie there. */
    if (block->expand) l.e.data = fo_place_in(scratch, x->data, FO_BEHIND);
    l.d.data = block->expand ? fo_place_in(l.e.data + floats, l.e.data, FO_BEHIND) : fo_place_in(scratch, x->data, FO_BETWEEN);
    if (fo_threads_for(block_nanoseconds(block, z)) > 1)
        fo_parallel_together(run_layers, &l);
    else
        run_layers(&l);
    fo_arena_release(scratch);
    return l.status;
}

bool fo_separable_pays(const fo_separable *block, const fo_conv2d_size *z, bool nhwc) {
    const double image = image_bytes(block, z);
    /* Of the images that an image is to a dilated kernel a tile has few rows: 256 -> 1024 -> 256 channels at 33x33, dilation 2, 14.6 ms, layers 10.3. */
    if (block->depthwise->s.dh > 1 || block->depthwise->s.dw > 1) return false;
    const fo_conv2d_size after = {.n = z->n, .ih = z->oh, .iw = z->ow, .oh = z->oh, .ow = z->ow};
    /* An image costs less than Strassen's algorithm saves: AVX2, 128x56x56 -> 128 0.90 of one pass. */
    if (fo_is_narrow(block->pointwise->kn) && fo_uses_strassen(block->pointwise, &after)) return false;
    const double small = (nhwc ? PIXELS_BYTES : PLANES_BYTES) * (fo_at_half_rate(block->depthwise->kn) ? AT_HALF_RATE : 1);
    return image > small && image > (double)BYTES_AN_OUTPUT * block->pointwise->s.oc;
}
