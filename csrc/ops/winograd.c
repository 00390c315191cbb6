/* Winograd's convolution F(m x m, 3x3): which tile, and the walk over blocks of tiles. Formula and transforms: kernels/winograd.h.
 *
 * The tiles of all images are numbered row by row. A block of them goes through three stages, its V and M staying in the cache:
 *
 *     V[position][tile][ic]  from x            transform, a run of neighbouring tiles at a time
 *     M[position][tile][oc]  = V U             one product for each of the (m+2)^2 positions, U[position] packed once in the plan
 *     y                      from M            transform, bias, residual and activation
 *
 * Many blocks: each is a task. Few: the stages of one block are cut over positions and channels, so that each thread reads a part
 * of U, which is then larger than everything else.
 */
#include "winograd.h"

enum { BLOCK_BYTES = 640 << 10, MOST_BYTES = 8160 << 10 /* 8 MB with gaps */, MIN_TILES = 24, MAX_TILES = 96, MIN_TILES_OF_A_THREAD = 12, MANY_ROUNDS = 8 };

/* ---- the choice --------------------------------------------------------------------------------------------------- */

/* Cost of a call on one image, in multiply-adds at full speed. It depends on the sizes of an image alone, so that results do not
 * depend on threads, batch or machine; its constants were measured with AVX-512. Three terms:
 *   products    as many multiply-adds as there are, and a start as long as 4 of them; channels come in vectors of 16
 *   weights     come from the third-level cache, one in the time of 8 multiply-adds, or from the second, where they fit it, in that
 *               of 5: that bounds products of few rows; the direct algorithm has a table to read and gains nothing below 16 rows
 *   transforms  so many multiply-adds for each channel of a tile, in and out
 */
enum { VECTOR = 16, START = 4, FAR = 8, NEAR = 5, NEAR_WEIGHTS = (512 << 10) / 4, DIRECT = 16 };

/* F(6x6) costs accuracy: it must win by a tenth, and its error, which grows as the root of the channels, stays under the bound. */
enum { F6_CHANNELS = 512 };
static const double F6_GAIN = 0.9;

static double streamed(double rows, double least, double weights) { return weights * (rows > least ? rows : least); }

static double direct_cost(const fo_conv2d *plan, const fo_conv2d_size *z) {
    return streamed((double)z->oh * z->ow, DIRECT, 9.0 * plan->s.ic * plan->s.oc);
}

static double winograd_cost(const fo_conv2d *plan, const fo_conv2d_size *z, int tile) {
    static const double in[] = {[2] = 80, [4] = 220, [6] = 500}, out[] = {[2] = 80, [4] = 200, [6] = 450};
    const double tiles = (double)div_up(z->oh, tile) * div_up(z->ow, tile);
    const double ic = round_up(plan->s.ic, VECTOR), oc = round_up(plan->s.oc, VECTOR);
    const double weights = (tile + 2.0) * (tile + 2) * (plan->s.ic + START) * oc;
    return streamed(tiles, weights > NEAR_WEIGHTS ? FAR : NEAR, weights) + tiles * (in[tile] * ic + out[tile] * oc);
}

int fo_winograd_tile(const fo_conv2d *plan, const fo_conv2d_size *z) {
    const fo_conv2d_shape *s = &plan->s;
    const bool applies = s->kh == 3 && s->kw == 3 && s->sh * s->sw * s->dh * s->dw * s->groups == 1 && s->ic;
    if (!applies || (s->algorithm != FO_AUTO && s->algorithm != FO_WINOGRAD)) return 0;
    int best = 2;
    double cost = winograd_cost(plan, z, 2);
    const double f4 = winograd_cost(plan, z, 4), f6 = winograd_cost(plan, z, 6);
    if (f4 < cost) best = 4, cost = f4;
    if (f6 < F6_GAIN * cost && s->ic <= F6_CHANNELS) best = 6, cost = f6;
    return s->algorithm == FO_AUTO && direct_cost(plan, z) <= cost ? 0 : best;
}

const char *fo_winograd_kernel(int tile) { return tile == 2 ? "winograd F(2x2,3x3)" : tile == 4 ? "winograd F(4x4,3x3)" : "winograd F(6x6,3x3)"; }

/* ---- weights ------------------------------------------------------------------------------------------------------ */

static ptrdiff_t positions_of(int tile) { return (ptrdiff_t)(tile + 2) * (tile + 2); }

/* U[position] is B[ic, oc] packed into panels, as fo_pack does. */
static void pack_weights(const fo_conv2d *plan, int tile, float *packed) {
    const ptrdiff_t nr = plan->kn->nr, ic = plan->s.ic, oc = plan->s.oc;
    for (ptrdiff_t o = 0; o < oc; o += nr)
        FOR_EACH_STEP(plan, p, c, i, j) {
            if (i || j) continue;
            const ptrdiff_t taps = min_(CHANNEL_BLOCK, ic - c / CHANNEL_BLOCK * CHANNEL_BLOCK); /* distance of two taps of c */
            float g[9 * 64] = {0};
            for (ptrdiff_t l = 0; l < min_(nr, oc - o); l++)
                for (int tap = 0; tap < 9; tap++) g[tap * nr + l] = plan->w[(o + l) * plan->ldw + p + tap * taps];
            plan->kn->winograd_weights(tile, g, packed + o * ic + c * nr, fo_packed_size(plan->kn, oc, ic));
        }
}

static void pack_2(const fo_conv2d *plan, float *packed) { pack_weights(plan, 2, packed); }
static void pack_4(const fo_conv2d *plan, float *packed) { pack_weights(plan, 4, packed); }
static void pack_6(const fo_conv2d *plan, float *packed) { pack_weights(plan, 6, packed); }

static const float *packed_weights(const fo_conv2d *plan, int tile) {
    const ptrdiff_t floats = positions_of(tile) * fo_packed_size(plan->kn, plan->s.oc, plan->s.ic);
    switch (tile) {
        case 2: return fo_conv2d_packed(plan, FO_WINOGRAD_2, floats, pack_2);
        case 4: return fo_conv2d_packed(plan, FO_WINOGRAD_4, floats, pack_4);
        default: return fo_conv2d_packed(plan, FO_WINOGRAD_6, floats, pack_6);
    }
}

/* ---- a call ------------------------------------------------------------------------------------------------------- */

typedef struct {
    const fo_conv2d *plan;
    fo_conv2d_size z;
    fo_image x, y, r; /* r.data is NULL where there is no residual */
    int tile;
    ptrdiff_t positions;
    ptrdiff_t across, down, tiles; /* of an image; of all images */
    ptrdiff_t block, blocks;       /* tiles of a block; blocks */
    ptrdiff_t ldv, ldp;            /* distance of two tiles in V and in M */
    ptrdiff_t v_position, p_position;
    const float *u;
    float *scratch;
    ptrdiff_t each; /* floats of a block's V and M */
    bool shared;    /* all threads work on one block */
    ptrdiff_t first; /* shared: the block's first tile */
} winograd;

/* Positions lie an odd number of lines apart, for a transform writes to all of them in turn. */
static ptrdiff_t position_stride(ptrdiff_t floats) { return round_up(floats, 32) + 16; }

/* Tiles of a block: as many as stay in the cache, in whole rows of an image where one fits; a product of few rows would wait for
 * its weights, so there are some more where channels are many, up to MOST_BYTES. Threads get equal numbers of blocks of their own, or share
 * blocks where those would be too small. */
static void cut_blocks(winograd *w, int threads) {
    const ptrdiff_t bytes = w->positions * (w->ldv + w->ldp) * (ptrdiff_t)sizeof(float), fitting = BLOCK_BYTES / bytes;
    w->block = min_(min_(max_(fitting, min_(MIN_TILES, max_(1, MOST_BYTES / bytes))), MAX_TILES), w->tiles);
    if (w->block > w->across) w->block -= w->block % w->across;
    w->blocks = div_up(w->tiles, w->block);
    const ptrdiff_t rounds = div_up(w->blocks, threads), own = div_up(w->tiles, rounds * threads);
    w->shared = threads > 1 && own < MIN_TILES_OF_A_THREAD;
    if (threads > 1 && !w->shared && rounds < MANY_ROUNDS) w->block = own;
    w->blocks = div_up(w->tiles, w->block);
}

static int winograd_setup(winograd *w, const fo_conv2d *plan, const fo_conv2d_size *z, int tile) {
    const fo_kernels *kn = plan->kn;
    *w = (winograd){.plan = plan, .z = *z, .tile = tile, .positions = positions_of(tile)};
    w->across = div_up(z->ow, tile), w->down = div_up(z->oh, tile), w->tiles = z->n * w->down * w->across;
    w->ldv = fo_leading(kn, plan->s.ic), w->ldp = fo_leading(kn, plan->s.oc);
    const double macs = (double)w->positions * w->tiles * plan->s.ic * plan->s.oc;
    const int threads = fo_threads_for(fo_nanoseconds(kn, macs, 4.0 * w->positions * plan->s.ic * plan->s.oc));
    cut_blocks(w, threads);
    w->v_position = position_stride(w->block * w->ldv), w->p_position = position_stride(w->block * w->ldp);
    w->each = w->positions * (w->v_position + w->p_position);
    return threads;
}

/* ---- the stages: of `tiles` tiles from t0 on, their V or M starting at v or products ---------------------------------- */

/* The neighbours among the tiles from t on: their number, and where the first one is. */
static ptrdiff_t run_of(const winograd *w, ptrdiff_t t, ptrdiff_t tiles, ptrdiff_t *n, ptrdiff_t *h, ptrdiff_t *column) {
    const ptrdiff_t row = t / w->across, q = t % w->across;
    *n = row / w->down, *h = row % w->down * w->tile, *column = q * w->tile;
    return min_(tiles, w->across - q);
}

static void transform_input(const winograd *w, ptrdiff_t t0, ptrdiff_t tiles, ptrdiff_t c, ptrdiff_t channels, float *v) {
    for (ptrdiff_t t = 0, n, h, q, count; t < tiles; t += count) {
        count = run_of(w, t0 + t, tiles - t, &n, &h, &q);
        fo_winograd_input_args a = {w->tile, count, channels, w->x, w->z.ih, w->z.iw, h - w->z.top, q - w->z.left,
                                    v + t * w->ldv + c, w->ldv, w->v_position};
        a.x.data = fo_at(&w->x, n, c, 0, 0);
        w->plan->kn->winograd_input(&a);
    }
}

static void multiply(const winograd *w, ptrdiff_t position, ptrdiff_t tiles, ptrdiff_t o, ptrdiff_t channels, const float *v, float *products) {
    const fo_kernels *kn = w->plan->kn;
    const ptrdiff_t ic = w->plan->s.ic;
    fo_gemm_args a = {.form = FO_ROWS, .m = tiles, .n = round_up(channels, kn->vl), .k = ic, .a = v + position * w->v_position, .lda = w->ldv,
                      .b = w->u + position * fo_packed_size(kn, w->plan->s.oc, ic) + o * ic, .ldb = kn->nr, .panel = kn->nr * ic,
                      .c = products + position * w->p_position + o, .ldc = w->ldp};
    kn->gemm(&a);
}

static void transform_output(const winograd *w, ptrdiff_t t0, ptrdiff_t tiles, ptrdiff_t o, ptrdiff_t channels, const float *products) {
    const fo_epilogue ep = fo_conv2d_epilogue(w->plan, o);
    for (ptrdiff_t t = 0, n, h, q, count; t < tiles; t += count) {
        count = run_of(w, t0 + t, tiles - t, &n, &h, &q);
        fo_winograd_output_args a = {w->tile, count, channels, products + t * w->ldp + o, w->ldp, w->p_position, w->y, w->r,
                                     min_(w->tile, w->z.oh - h), min_(count * w->tile, w->z.ow - q), ep.bias, ep.act};
        a.y.data = fo_at(&w->y, n, o, h, q);
        if (a.r.data) a.r.data = fo_at(&w->r, n, o, h, q);
        w->plan->kn->winograd_output(&a);
    }
}

/* ---- tasks -------------------------------------------------------------------------------------------------------- */

static void block_task(void *context, ptrdiff_t task, int thread) {
    const winograd *w = context;
    const ptrdiff_t t0 = task * w->block, tiles = min_(w->block, w->tiles - t0), oc = w->plan->s.oc;
    float *v = w->scratch + thread * w->each, *products = v + w->positions * w->v_position;
    transform_input(w, t0, tiles, 0, w->plan->s.ic, v);
    for (ptrdiff_t p = 0; p < w->positions; p++) multiply(w, p, tiles, 0, oc, v, products);
    transform_output(w, t0, tiles, 0, oc, products);
}

static ptrdiff_t shared_tiles(const winograd *w) { return min_(w->block, w->tiles - w->first); }
static float *shared_products(const winograd *w) { return w->scratch + w->positions * w->v_position; }

static void input_task(void *context, ptrdiff_t task, int thread) {
    (void)thread;
    const winograd *w = context;
    const ptrdiff_t step = w->plan->kn->nr, c = task * step;
    transform_input(w, w->first, shared_tiles(w), c, min_(step, w->plan->s.ic - c), w->scratch);
}

static void product_task(void *context, ptrdiff_t task, int thread) {
    (void)thread;
    const winograd *w = context;
    multiply(w, task, shared_tiles(w), 0, w->plan->s.oc, w->scratch, shared_products(w));
}

static void output_task(void *context, ptrdiff_t task, int thread) {
    (void)thread;
    const winograd *w = context;
    const ptrdiff_t step = w->plan->kn->nr, o = task * step;
    transform_output(w, w->first, shared_tiles(w), o, min_(step, w->plan->s.oc - o), shared_products(w));
}

static size_t scratch_bytes(const winograd *w, int threads) { return (size_t)(w->each * (w->shared ? 1 : threads)) * sizeof(float); }

ptrdiff_t fo_winograd_scratch(const fo_conv2d *plan, const fo_conv2d_size *z, int tile) {
    winograd w;
    const int threads = winograd_setup(&w, plan, z, tile);
    return (ptrdiff_t)scratch_bytes(&w, threads);
}

fo_status fo_winograd_run(const fo_conv2d *plan, const fo_conv2d_size *z, int tile, const fo_image *x, const fo_image *r, const fo_image *y) {
    winograd w;
    const int threads = winograd_setup(&w, plan, z, tile);
    w.x = *x, w.y = *y;
    if (r) w.r = *r;
    if (!(w.u = packed_weights(plan, tile))) return FO_NO_MEMORY;
    if (!(w.scratch = fo_arena_take(scratch_bytes(&w, threads)))) return FO_NO_MEMORY;
    if (!w.shared) fo_parallel_for(w.blocks, threads, block_task, &w);
    for (; w.shared && w.first < w.tiles; w.first += w.block) {
        fo_parallel_for(div_up(plan->s.ic, plan->kn->nr), threads, input_task, &w);
        fo_parallel_for(w.positions, threads, product_task, &w);
        fo_parallel_for(div_up(plan->s.oc, plan->kn->nr), threads, output_task, &w);
    }
    fo_arena_release(w.scratch);
    return FO_OK;
}
