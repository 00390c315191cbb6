/* Winograd's convolution F(m x m, 3x3), of stride 1 or 2: which tile, and the walk over blocks of tiles. Formula and transforms: kernels/winograd/.
 *
 * The tiles of all images are numbered row by row. A block of them goes through three stages, its V and M staying in the cache:
 *
 *     V[position][tile][ic]  from x            transform, a run of neighbouring tiles at a time
 *     M[position][tile][oc]  = V U             one product for each of the (m+2)^2 positions, U[position] packed once in the plan; of
 *                                              stride 2 (m+1)^2 positions, whose V and U have one, two or four phases of ic channels
 *     y                      from M            transform, bias, residual and activation
 *
 * Groups are convolutions of their own, which follow each other: a block is of one of them.
 *
 * A kernel with dilation meets pixels of one phase of it alone, so that an image is dh*dw smaller ones, whose pixels stand apart; all lines of
 * a plane have all phases, so planes are first copied to pixels with all their channels.
 *
 * Many blocks: each is a task, which with stride 1 goes through them by rows of positions (kernels/winograd/input.h). Few: the
 * stages of one block are cut over positions and channels, so that each thread reads a part of U, which is then larger than everything else.
 */
#include "winograd.h"

#include <string.h>

enum { MOST_NR = 64 }; /* columns of a register tile, with any instruction set */
enum { BLOCK_BYTES = 640 << 10, MOST_BYTES = 8160 << 10 /* 8 MB with gaps */, MIN_TILES = 28, MAX_TILES = 96, MIN_TILES_OF_A_THREAD = 12, FEW_TILES = 4, MANY_ROUNDS = 8 };

/* ---- positions ---------------------------------------------------------------------------------------------------- */

#define SQUARE(x) ((ptrdiff_t)(x) * (x))

/* Of a tile of m outputs along an axis: values of its inputs, and points, most of which have two of them where the stride is 2. */
enum { ONE = 2, MOST_VALUES = 9 };
static int values_of(const fo_conv2d *plan, int m) { return (int)plan->s.sh * (m - 1) + 3; }
static int points_of(const fo_conv2d *plan, int m) { return m + 3 - (int)plan->s.sh; }
static int values_at(const fo_conv2d *plan, int point) { return plan->s.sh == 2 && point != ONE ? 2 : 1; }

/* Of stride 2: the point of a value; those of odd pixels stand behind those of even ones. */
static int point_of(int m, int value) { return value <= m ? value : value - (m + 1) + (value - (m + 1) >= ONE); }

/* Floats of a phase: its channels, to whole vectors where there are several. */
static ptrdiff_t phase_floats(const fo_conv2d *plan) { return plan->s.sh == 1 ? plan->icg : round_up(plan->icg, plan->kn->vl); }

/* Values of all points before this one; phases of all positions before that of these points. */
static int values_before(const fo_conv2d *plan, int point) { return plan->s.sh == 1 ? point : 2 * point - (point > ONE); }
static ptrdiff_t phases_before(const fo_conv2d *plan, int m, int down, int across) {
    return values_before(plan, down) * values_of(plan, m) + values_at(plan, down) * values_before(plan, across);
}

/* ---- the choice --------------------------------------------------------------------------------------------------- */

/* Cost of a call on one image, in multiply-adds at full speed. It depends on the processor and the sizes of an image alone, so that results do not
 * depend on threads or batch. Three terms, whose constants were measured with AVX-512, at full rate (Xeon) and at half (Zen 4), and, for sets of
 * short vectors, with AVX2:
 *   products    as many multiply-adds as there are, and a start as long as 4 of them; channels come in vectors of 16
 *   weights     come from memory, one in the time of 12 multiply-adds, or from the third-level cache in that of `far`, or from the second
 *               in that of 5: that bounds products of few rows; where they are many, as much as some rows is not hidden behind products;
 *               in a network they come from memory, which weighs most with stride 2, whose weights are more than its direct ones: 256 -> 512 channels
 *               at 14x14 take 0.87 of the direct time alone, but 1.5 times that in ResNet-18 (a Xeon), 128 at 56x56 with F(4x4) 0.8 and 1.35;
 *               the direct algorithm has a table to read and gains nothing below 16 rows
 *   transforms  so many multiply-adds for each channel of a tile, in and out; where dilation has phases, whose rows of
 *               tiles are short, `run` for each row, which is half a microsecond
 */
enum { VECTOR = 16, START = 4, MEMORY = 12, NEAR = 5, DIRECT = 16, PATCHES = 9 };
typedef struct {
    double far, run, many_weights[2], many_rows[2], in[2][7], out[2][7]; /* of each stride; the transforms': and tile */
} costs;
static const costs long_vectors = {8, 60000, {2 << 20, 1 << 20}, {6, 16}, {{[2] = 80, [4] = 220, [6] = 580}, {[2] = 430, [4] = 1400}}, /* of stride 2 as seen with AVX2, which choose well here, too */
                                   {{[2] = 80, [4] = 200, [6] = 520}, {[2] = 140, [4] = 450}}};
/* A multiply-add takes twice as long: with AVX2, and with AVX-512 at half rate, where the weights that are many come faster (1 MB of second-level cache). There
 * 64 to 256 channels at 7x7 have F(4x4), 0.57 to 0.64 of the time of F(2x2) while the weights stay in a cache, 1.1 to 1.2 where they come from memory. */
#define SLOWER_TRANSFORMS {{[2] = 115, [4] = 320, [6] = 640}, {[2] = 430, [4] = 1400}}, {{[2] = 90, [4] = 270, [6] = 550}, {[2] = 140, [4] = 450}}
static const costs short_vectors = {6, 25000, {2 << 20, 2 << 20}, {4, 4}, SLOWER_TRANSFORMS};
static const costs half_rate = {6, 25000, {2 << 20, 2 << 20}, {2, 4}, SLOWER_TRANSFORMS};
static const costs *costs_of(const fo_conv2d *plan) { return fo_is_narrow(plan->kn) ? &short_vectors : fo_at_half_rate(plan->kn) ? &half_rate : &long_vectors; }

enum { NEAR_WEIGHTS = (512 << 10) / 4, FAR_WEIGHTS = (32 << 20) / 4 };

/* Errors grow as the root of the channels and more; within these they stay under the bounds of docs/numerics.md. F(6x6) must win by a tenth. */
enum { F6_CHANNELS = 512, STRIDED_CHANNELS = 1024 };
static const double F6_GAIN = 0.9, PATCHES_GAIN = 0.88;
/* Groups have few channels: transforms and short products take more of the time than the model has, and those of a single vector of columns
 * more again, for they load as much as they multiply. Direct time over Winograd's, and by the model: 32 channels a group at 7x7 0.9 (1.2),
 * 64 1.25 (1.4); 16 at 14x14 0.9 to 1.1 (1.3), at 28x28 1.2 to 1.5 (1.4). */
static const double GROUP_GAIN = 1 / 1.3, THIN_GROUP = 1.7;

static bool dilated(const fo_conv2d *plan) { return plan->s.dh > 1 || plan->s.dw > 1; }

/* The images that the phases of a dilation are, those with fewer outputs among them. */
static ptrdiff_t phases_along(ptrdiff_t dilation, ptrdiff_t n) { return min_(dilation, n); }
static fo_conv2d_size phases_of(const fo_conv2d *plan, const fo_conv2d_size *z) {
    fo_conv2d_size each = *z;
    each.n *= phases_along(plan->s.dh, z->oh) * phases_along(plan->s.dw, z->ow);
    each.oh = div_up(z->oh, plan->s.dh), each.ow = div_up(z->ow, plan->s.dw);
    return each;
}

/* An axis of n outputs: that of the last tile, the others having `tile`; the values of all. */
static int last_tile(ptrdiff_t n, int tile) { return (int)round_up((n - 1) % tile + 1, 2); }
static ptrdiff_t values_along(const fo_conv2d *plan, ptrdiff_t n, int tile) {
    return div_up(n, tile) * values_of(plan, tile) - plan->s.sh * (tile - last_tile(n, tile));
}

static double streamed(const fo_conv2d *plan, double rows, double least, double weights) {
    const costs *c = costs_of(plan);
    if (plan->s.groups * weights > c->many_weights[plan->s.sh - 1]) rows += c->many_rows[plan->s.sh - 1];
    return weights * (rows > least ? rows : least);
}

/* Of stride 2 it copies all of the image, and has rows of few pixels, or lines that share sums: its multiply-adds take 1.4 times as long (AVX2).
 * Patches leave out products with zeros, read weights once and in order, and have rows of all pixels. */
static double direct_cost(const fo_conv2d *plan, const fo_conv2d_size *z) {
    const double rows = (double)z->oh * z->ow, weights = 9.0 * plan->icg * plan->ocg;
    if (fo_uses_patches(plan, z)) {
        const double gain = fo_is_narrow(plan->kn) && weights > NEAR_WEIGHTS ? 1 : PATCHES_GAIN;
        return gain * streamed(plan, fo_patches_share(plan, z) * rows, PATCHES, weights);
    }
    const double slower = plan->s.sh == 1 ? 1 : 1.4 * (fo_lines_pay(plan, z) ? 7.0 / 9 : 1);
    /* As measured: with short vectors what waits for weights is slower, too. */
    return fo_is_narrow(plan->kn) ? slower * streamed(plan, rows, DIRECT, weights) : streamed(plan, slower * rows, DIRECT, weights);
}

static double winograd_cost(const fo_conv2d *plan, const fo_conv2d_size *whole, int tile) {
    const costs *c = costs_of(plan);
    const ptrdiff_t stride = plan->s.sh;
    const fo_conv2d_size image = {.n = 1, .oh = whole->oh, .ow = whole->ow}, z = phases_of(plan, &image);
    const double values = SQUARE(values_of(plan, tile)), tiles = (double)z.n * values_along(plan, z.oh, tile) * values_along(plan, z.ow, tile) / values;
    const double ic = round_up(plan->icg, VECTOR), oc = round_up(plan->ocg, VECTOR);
    const double thin = plan->s.groups > 1 && plan->ocg <= plan->kn->vl ? THIN_GROUP : 1;
    const double weights = values * (plan->icg + START) * oc * thin, all = plan->s.groups * weights;
    return streamed(plan, tiles, all > FAR_WEIGHTS ? MEMORY : all > NEAR_WEIGHTS ? c->far : NEAR, weights) +
           tiles * (c->in[stride - 1][tile] * ic + c->out[stride - 1][tile] * oc) + (dilated(plan) ? (double)z.n * div_up(z.oh, tile) * c->run : 0);
}

int fo_winograd_tile(const fo_conv2d *plan, const fo_conv2d_size *z) {
    const fo_conv2d_shape *s = &plan->s;
    const bool applies = s->kh == 3 && s->kw == 3 && s->sh == s->sw && s->sh <= 2 && (s->sh == 1 || !dilated(plan)) && plan->icg && !fo_is_depthwise(plan);
    if (!applies || (s->algorithm != FO_AUTO && s->algorithm != FO_WINOGRAD)) return 0;
    const bool exact = s->sh == 1 || plan->icg <= STRIDED_CHANNELS;
    if (!exact && s->algorithm == FO_AUTO) return 0;
    int best = 2;
    double cost = winograd_cost(plan, z, 2);
    const double f4 = winograd_cost(plan, z, 4), f6 = winograd_cost(plan, z, 6);
    if (f4 < cost && exact) best = 4, cost = f4;
    if (s->sh == 1 && f6 < F6_GAIN * cost && plan->icg <= F6_CHANNELS) best = 6, cost = f6;
    const double gain = s->groups > 1 && s->sh == 1 ? GROUP_GAIN : 1;
    return s->algorithm == FO_AUTO && gain * direct_cost(plan, z) <= cost ? 0 : best;
}

const char *fo_winograd_kernel(int tile) { return tile == 2 ? "winograd F(2x2,3x3)" : tile == 4 ? "winograd F(4x4,3x3)" : "winograd F(6x6,3x3)"; }

/* ---- weights ------------------------------------------------------------------------------------------------------ */

/* Positions lie an odd number of lines apart, for a transform writes to all of them in turn. */
static ptrdiff_t position_stride(ptrdiff_t floats) { return round_up(floats, 32) + 16; }

/* Floats of U for each phase of a position. */
static ptrdiff_t u_phase(const fo_conv2d *plan) { return position_stride(fo_packed_size(plan->kn, plan->ocg, phase_floats(plan))); }

/* Of a group, all positions. */
static ptrdiff_t u_group(const fo_conv2d *plan, int tile) { return SQUARE(values_of(plan, tile)) * u_phase(plan); }

/* Stride 2: channel c's weights for nr output channels from o on. */
static void pack_phases(const fo_conv2d *plan, int tile, const float *g, ptrdiff_t o, ptrdiff_t c, float *packed) {
    const ptrdiff_t nr = plan->kn->nr, channels = phase_floats(plan);
    const int values = values_of(plan, tile);
    float u[MOST_VALUES * MOST_VALUES * MOST_NR], *from = u;
    plan->kn->winograd_weights(2, tile, g, u, nr);
    for (int i = 0; i < values; i++)
        for (int j = 0; j < values; j++, from += nr) {
            const int down = point_of(tile, i), across = point_of(tile, j), each = values_at(plan, across), phase = (i > tile) * each + (j > tile);
            float *to = packed + phases_before(plan, tile, down, across) * u_phase(plan) + values_at(plan, down) * each * channels * o;
            memcpy(to + (phase * channels + c) * nr, from, (size_t)nr * sizeof *u);
        }
}

/* U[position] is B[ic, oc] packed into panels, as fo_pack does; a part of it is a block of channels of a panel, the output channels side by side. */
static void pack_part(const fo_conv2d *plan, int tile, ptrdiff_t part, float *packed) {
    const fo_kernels *kn = plan->kn;
    const ptrdiff_t nr = kn->nr, ic = plan->icg, oc = plan->ocg, blocks = div_up(ic, CHANNEL_BLOCK);
    const ptrdiff_t panels = div_up(oc, nr), group = part / blocks / panels;
    const ptrdiff_t o = part / blocks % panels * nr, first = part % blocks * CHANNEL_BLOCK, block = min_(CHANNEL_BLOCK, ic - first);
    const float *w = plan->w + (group * oc + o) * plan->ldw + 9 * first;
    packed += group * u_group(plan, tile);
    float steps[9 * CHANNEL_BLOCK * MOST_NR], g[9 * MOST_NR];
    if (oc - o < nr) memset(steps, 0, (size_t)(9 * block * nr) * sizeof *steps);
    kn->transpose(min_(nr, oc - o), 9 * block, w, plan->ldw, steps, nr);
    for (ptrdiff_t c = 0; c < block; c++) {
        for (int tap = 0; tap < 9; tap++) memcpy(g + tap * nr, steps + (tap * block + c) * nr, (size_t)nr * sizeof *g);
        if (plan->s.sh == 1)
            kn->winograd_weights(1, tile, g, packed + o * ic + (first + c) * nr, u_phase(plan));
        else
            pack_phases(plan, tile, g, o, first + c, packed);
    }
    memset(g, 0, sizeof g); /* weights of channels that there are not */
    for (ptrdiff_t c = ic; first + block == ic && c < phase_floats(plan); c++) pack_phases(plan, tile, g, o, c, packed);
}

static void pack_2(const fo_conv2d *plan, ptrdiff_t part, float *packed) { pack_part(plan, 2, part, packed); }
static void pack_4(const fo_conv2d *plan, ptrdiff_t part, float *packed) { pack_part(plan, 4, part, packed); }
static void pack_6(const fo_conv2d *plan, ptrdiff_t part, float *packed) { pack_part(plan, 6, part, packed); }

static const float *packed_weights(const fo_conv2d *plan, int tile) {
    const ptrdiff_t groups = plan->s.groups, floats = groups * u_group(plan, tile);
    const ptrdiff_t parts = groups * div_up(plan->ocg, plan->kn->nr) * div_up(plan->icg, CHANNEL_BLOCK);
    switch (tile) {
        case 2: return fo_conv2d_packed(plan, FO_WINOGRAD_2, floats, parts, pack_2);
        case 4: return fo_conv2d_packed(plan, FO_WINOGRAD_4, floats, parts, pack_4);
        default: return fo_conv2d_packed(plan, FO_WINOGRAD_6, floats, parts, pack_6);
    }
}

/* ---- a call ------------------------------------------------------------------------------------------------------- */

/* A smaller tile has the first positions of its row or column alone (kernels/winograd/). Tiles stand in this order, and so those of
 * any position stand together: narrow ones of whole rows, whole tiles, tiles of a lower row, the one that is both. */
enum { NARROW, WHOLE, LOW, CORNER, KINDS };

typedef struct {
    ptrdiff_t group, t0, tiles, from[KINDS + 1]; /* where each kind begins */
} block;

typedef struct {
    const fo_conv2d *plan;
    fo_conv2d_size whole, z; /* of the images, and of a dilation's phases as images */
    fo_image x, y, r; /* r.data is NULL where there is no residual */
    int tile;
    ptrdiff_t positions;
    int last_height, last_width;   /* of the tiles in an image's last row and in its last column */
    ptrdiff_t across, down, tiles; /* of an image; of all images */
    ptrdiff_t block, blocks;       /* tiles of a block; blocks */
    ptrdiff_t ldv, ldp;            /* distance of two tiles in V and in M */
    ptrdiff_t v_position, p_position;
    ptrdiff_t mid_row; /* distance of two rows of mid, which hold all tiles of a block */
    const float *u;
    float *scratch;
    ptrdiff_t each; /* floats of a block's V and M, and mid */
    bool shared;    /* all threads work on one block */
    bool even;      /* blocks have equal work, not equal numbers of tiles */
    bool by_rows;   /* V and M are those of one row of positions */
    block shared_block;
} winograd;

/* The first tile of a block. Lower tiles count by their points: 64 channels at 56x56, whose last row of tiles is two pixels high, on two threads 0.95 of the time. */
static ptrdiff_t first_tile(const winograd *w, ptrdiff_t i) {
    if (!w->even) return min_(i * w->block, w->tiles);
    const ptrdiff_t whole = points_of(w->plan, w->tile), low = points_of(w->plan, w->last_height), image = w->across * (w->down * whole - whole + low);
    const ptrdiff_t at = w->z.n * image * i / w->blocks, inside = at % image, row = min_(inside / (w->across * whole), w->down - 1);
    return at / image * w->down * w->across + row * w->across + (inside - row * w->across * whole) / (row < w->down - 1 ? whole : low);
}

/* Tiles of a block: as many as stay in the cache, in whole rows of an image where one fits; a product of few rows would wait for
 * its weights, so there are some more where channels are many, up to MOST_BYTES. Threads get equal numbers of blocks of their own, of up to 3/2 of
 * that size rather than one round more, or share blocks where those would be too small: fewer than MIN_TILES_OF_A_THREAD, or FEW_TILES where
 * the cache has the weights (64 channels at 7x7, two threads, 0.8 of the time). */
static void cut_blocks(winograd *w, int threads) {
    const ptrdiff_t bytes = w->positions * (w->ldv + w->ldp) * (ptrdiff_t)sizeof(float), fitting = BLOCK_BYTES / bytes;
    const ptrdiff_t most = max_(1, MOST_BYTES / bytes);
    w->block = min_(min_(max_(fitting, min_(MIN_TILES, most)), MAX_TILES), w->tiles);
    const ptrdiff_t unit = w->block < w->across ? 1 : w->across;
    w->blocks = div_up(w->tiles, w->block / unit * unit);
    w->block = round_up(div_up(w->tiles, w->blocks), unit); /* of equal sizes: a few tiles that are left would wait for all weights */
    w->blocks = div_up(w->tiles, w->block);
    const ptrdiff_t each = w->block * threads, rounds = max_(1, div_up(2 * w->tiles - each, 2 * each)); /* the nearest */
    const ptrdiff_t own = min_(div_up(w->tiles, rounds * threads), most);
    const bool light = SQUARE(values_of(w->plan, w->tile)) * w->plan->icg * w->plan->ocg <= NEAR_WEIGHTS;
    w->shared = threads > 1 && own < (light ? FEW_TILES : MIN_TILES_OF_A_THREAD);
    const bool even = threads > 1 && !w->shared && rounds < MANY_ROUNDS;
    if (even) w->block = own;
    w->blocks = div_up(w->tiles, w->block);
    w->even = even && w->last_height < w->tile;
    for (ptrdiff_t i = 0; w->even && i < w->blocks; i++) w->block = max_(w->block, first_tile(w, i + 1) - first_tile(w, i));
    if (w->block > most) w->even = false, w->block = own;
}

static int winograd_setup(winograd *w, const fo_conv2d *plan, const fo_conv2d_size *whole, int tile) {
    const fo_kernels *kn = plan->kn;
    *w = (winograd){.plan = plan, .whole = *whole, .z = phases_of(plan, whole), .tile = tile, .positions = SQUARE(points_of(plan, tile))};
    const fo_conv2d_size *z = &w->z;
    w->last_height = last_tile(z->oh, tile), w->last_width = last_tile(z->ow, tile);
    w->across = div_up(z->ow, tile), w->down = div_up(z->oh, tile), w->tiles = z->n * w->down * w->across;
    w->ldv = fo_leading(kn, SQUARE(plan->s.sh) * phase_floats(plan)), w->ldp = fo_leading(kn, plan->ocg);
    const ptrdiff_t groups = plan->s.groups;
    const int threads = fo_threads_for(fo_nanoseconds(kn, (double)(whole->n * groups) * winograd_cost(plan, whole, tile), 0));
    cut_blocks(w, (int)div_up(threads, groups));
    w->v_position = position_stride(w->block * w->ldv), w->p_position = position_stride(w->block * w->ldp);
    w->each = w->positions * (w->v_position + w->p_position);
    const ptrdiff_t runs = min_(w->block, (w->block - 1) / w->across + 2);
    const ptrdiff_t mid_row = position_stride((w->block * tile + 2 * runs) * max_(w->ldv, w->ldp));
    const ptrdiff_t each = points_of(plan, tile) * (w->v_position + w->p_position) + (tile + 2) * mid_row;
    w->by_rows = !w->shared && plan->s.sh == 1 && each * (ptrdiff_t)sizeof(float) <= MOST_BYTES;
    if (w->by_rows) w->each = each, w->mid_row = mid_row;
    return threads;
}

/* ---- blocks: their tiles in V and M ------------------------------------------------------------------------------------- */

/* Neighbours in a row of tiles: `whole` of them, and a narrow one of `last` columns unless that is 0. */
typedef struct {
    ptrdiff_t n, h, q; /* image, first row and column */
    int height, last;
    ptrdiff_t whole, slot, last_slot; /* their places in V and M */
} run;

/* The run from tile t on, of `tiles` at most; kinds go on from next[]. */
static run next_run(const winograd *w, ptrdiff_t t, ptrdiff_t tiles, ptrdiff_t *next) {
    const ptrdiff_t row = t / w->across, column = t % w->across, count = min_(tiles, w->across - column);
    const bool low = row % w->down == w->down - 1 && w->last_height < w->tile, narrow = column + count == w->across && w->last_width < w->tile;
    const run r = {row / w->down, row % w->down * w->tile, column * w->tile, low ? w->last_height : w->tile, narrow ? w->last_width : 0,
                   count - narrow, next[low ? LOW : WHOLE], next[low ? CORNER : NARROW]};
    next[low ? LOW : WHOLE] += r.whole, next[low ? CORNER : NARROW] += narrow;
    return r;
}

static block block_of(const winograd *w, ptrdiff_t group, ptrdiff_t t0, ptrdiff_t tiles) {
    block b = {group, t0, tiles, {0}};
    for (ptrdiff_t t = 0; t < b.tiles;) {
        const run r = next_run(w, t0 + t, b.tiles - t, b.from + 1);
        t += r.whole + (r.last > 0);
    }
    for (int kind = 0; kind < KINDS; kind++) b.from[kind + 1] += b.from[kind];
    return b;
}

/* ---- phases of a dilation ------------------------------------------------------------------------------------------------- */

/* Of n pixels along an axis, with zeros before them, those that outputs i, i + dilation .. meet: the first, their number, zeros before them. */
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
static place place_of(const winograd *w, const run *r) {
    const ptrdiff_t down = phases_along(w->plan->s.dh, w->whole.oh), across = phases_along(w->plan->s.dw, w->whole.ow);
    return (place){r->n / across / down, r->n / across % down, r->n % across};
}

/* The pixels of a phase that begin at `first`. */
static fo_image phase_image(const winograd *w, const fo_image *t, const float *first) {
    return (fo_image){(float *)first, t->sn, t->sc, t->sh * w->plan->s.dh, t->sw * w->plan->s.dw};
}

/* ---- the stages of a block -------------------------------------------------------------------------------------------------- */

static fo_winograd_input_args input_args(const winograd *w, const block *b, const run *r, ptrdiff_t c, ptrdiff_t channels, float *v) {
    const fo_conv2d_shape *s = &w->plan->s;
    const place at = place_of(w, r);
    const phase rows = inputs_of(w->whole.ih, w->whole.top, s->dh, at.down), columns = inputs_of(w->whole.iw, w->whole.left, s->dw, at.across);
    return (fo_winograd_input_args){(int)s->sh, w->tile, r->height, r->last, r->whole, channels,
                                    phase_image(w, &w->x, fo_at(&w->x, at.n, b->group * w->plan->icg + c, rows.first, columns.first)), rows.count, columns.count,
                                    s->sh * r->h - rows.zeros, s->sh * r->q - columns.zeros, v + r->slot * w->ldv + c,
                                    v + r->last_slot * w->ldv + c, w->ldv, w->v_position, phase_floats(w->plan), NULL, w->mid_row};
}

static void transform_input(const winograd *w, const block *b, ptrdiff_t c, ptrdiff_t channels, float *v) {
    block left = *b;
    for (ptrdiff_t t = 0; t < b->tiles;) {
        const run r = next_run(w, b->t0 + t, b->tiles - t, left.from);
        const fo_winograd_input_args a = input_args(w, b, &r, c, channels, v);
        w->plan->kn->winograd_input(&a);
        t += r.whole + (r.last > 0);
    }
}

/* Positions p to end-1, the first of which has its V and M at v and products; oc channels from o on. */
static void multiply(const winograd *w, const block *b, ptrdiff_t p, ptrdiff_t end, const float *v, float *products, ptrdiff_t o, ptrdiff_t oc) {
    const fo_conv2d *plan = w->plan;
    const fo_kernels *kn = plan->kn;
    const int points = points_of(plan, w->tile);
    const float *u = w->u + b->group * u_group(plan, w->tile);
    fo_gemm_args a = {.form = FO_ROWS, .n = round_up(oc, kn->vl), .lda = w->ldv, .ldb = kn->nr, .ldc = w->ldp};
    for (; p < end; p++, v += w->v_position, products += w->p_position) {
        const int row = (int)(p / points), column = (int)(p % points);
        const bool low = row < points_of(plan, w->last_height), narrow = column < points_of(plan, w->last_width);
        const ptrdiff_t first = b->from[narrow ? NARROW : WHOLE];
        a.m = b->from[!low ? LOW : narrow ? KINDS : CORNER] - first;
        a.a = v + first * w->ldv;
        a.k = values_at(plan, row) * values_at(plan, column) * phase_floats(plan), a.panel = kn->nr * a.k;
        a.b = u + phases_before(plan, w->tile, row, column) * u_phase(plan) + o * a.k;
        a.c = products + first * w->ldp + o;
        kn->gemm(&a);
    }
}

static fo_winograd_output_args output_args(const winograd *w, const block *b, const run *r, ptrdiff_t o, ptrdiff_t channels, const float *products) {
    const ptrdiff_t channel = b->group * w->plan->ocg + o;
    const fo_epilogue ep = fo_conv2d_epilogue(w->plan, channel);
    const ptrdiff_t dh = w->plan->s.dh, dw = w->plan->s.dw;
    const place at = place_of(w, r);
    const ptrdiff_t rows = div_up(w->whole.oh - at.down, dh), columns = div_up(w->whole.ow - at.across, dw); /* of this phase */
    const ptrdiff_t h = r->h * dh + at.down, q = r->q * dw + at.across;
    return (fo_winograd_output_args){(int)w->plan->s.sh, w->tile, r->height, r->last, r->whole, channels, products + r->slot * w->ldp + o,
                                     products + r->last_slot * w->ldp + o, w->ldp, w->p_position,
                                     phase_image(w, &w->y, fo_at(&w->y, at.n, channel, h, q)),
                                     phase_image(w, &w->r, w->r.data ? fo_at(&w->r, at.n, channel, h, q) : NULL),
                                     min_(r->height, rows - r->h), min_(r->whole * w->tile + r->last, columns - r->q), ep.bias, ep.act,
                                     NULL, w->mid_row};
}

static void transform_output(const winograd *w, const block *b, ptrdiff_t o, ptrdiff_t channels, const float *products) {
    block left = *b;
    for (ptrdiff_t t = 0; t < b->tiles;) {
        const run r = next_run(w, b->t0 + t, b->tiles - t, left.from);
        const fo_winograd_output_args a = output_args(w, b, &r, o, channels, products);
        w->plan->kn->winograd_output(&a);
        t += r.whole + (r.last > 0);
    }
}

/* ---- a block by rows of positions: formulas in kernels/winograd/ --------------------------------------------------------- */

enum { COLUMNS = -1 }; /* the stage of columns; others are those of a row of positions */

/* Columns of mid that a run takes. */
static ptrdiff_t mid_columns(const winograd *w, const run *r) { return r->whole * w->tile + r->last + 2; }

static void input_by_rows(const winograd *w, const block *b, int row, float *mid, float *v) {
    const fo_winograd_rows *kn = &w->plan->kn->winograd_rows;
    block left = *b;
    for (ptrdiff_t t = 0; t < b->tiles;) {
        const run r = next_run(w, b->t0 + t, b->tiles - t, left.from);
        fo_winograd_input_args a = input_args(w, b, &r, 0, w->plan->icg, v);
        a.mid = mid;
        if (row == COLUMNS)
            kn->columns(&a);
        else if (row < r.height + 2)
            kn->row(&a, row);
        t += r.whole + (r.last > 0), mid += mid_columns(w, &r) * w->ldv;
    }
}

static void output_by_rows(const winograd *w, const block *b, int row, float *mid, const float *products) {
    const fo_winograd_rows *kn = &w->plan->kn->winograd_rows;
    block left = *b;
    for (ptrdiff_t t = 0; t < b->tiles;) {
        const run r = next_run(w, b->t0 + t, b->tiles - t, left.from);
        fo_winograd_output_args a = output_args(w, b, &r, 0, w->plan->ocg, products);
        a.mid = mid;
        if (row == COLUMNS)
            kn->back_columns(&a);
        else if (row < r.height + 2)
            kn->back_row(&a, row);
        t += r.whole + (r.last > 0), mid += mid_columns(w, &r) * w->ldp;
    }
}

static void multiply_by_rows(const winograd *w, const block *b, float *mid) {
    const int rows = w->tile + 2;
    float *v = mid + rows * w->mid_row, *products = v + rows * w->v_position;
    input_by_rows(w, b, COLUMNS, mid, v);
    for (int row = 0; row < rows; row++) {
        input_by_rows(w, b, row, mid, v);
        multiply(w, b, row * rows, (row + 1) * rows, v, products, 0, w->plan->ocg);
        output_by_rows(w, b, row, mid, products);
    }
    output_by_rows(w, b, COLUMNS, mid, products);
}

/* ---- tasks -------------------------------------------------------------------------------------------------------- */

static void block_task(void *context, fo_piece piece, int thread) {
    const winograd *w = context;
    const ptrdiff_t i = piece.task % w->blocks;
    ptrdiff_t t0 = first_tile(w, i), tiles = first_tile(w, i + 1) - t0;
    fo_divide(piece, 1, &t0, &tiles);
    if (!tiles) return;
    const block b = block_of(w, piece.task / w->blocks, t0, tiles);
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
    if (oc) multiply(w, &w->shared_block, p, p + 1, w->scratch + p * w->v_position, shared_products(w) + p * w->p_position, o, oc);
}

static void output_task(void *context, ptrdiff_t task, int thread) {
    (void)thread;
    const winograd *w = context;
    const ptrdiff_t step = w->plan->kn->nr, o = task * step;
    transform_output(w, &w->shared_block, o, min_(step, w->plan->ocg - o), shared_products(w));
}

static size_t scratch_bytes(const winograd *w, int threads) { return (size_t)(w->each * (w->shared ? 1 : threads)) * sizeof(float); }

static fo_status run_images(const fo_conv2d *plan, const fo_conv2d_size *z, int tile, const fo_image *x, const fo_image *r, const fo_image *y) {
    winograd w;
    const int threads = winograd_setup(&w, plan, z, tile);
    w.x = *x, w.y = *y;
    if (r) w.r = *r;
    if (!(w.u = packed_weights(plan, tile))) return FO_NO_MEMORY;
    if (!(w.scratch = fo_arena_share(&w.each, w.shared ? 1 : threads, 0))) return FO_NO_MEMORY;
    const ptrdiff_t blocks = plan->s.groups * w.blocks;
    if (!w.shared) fo_parallel_pieces(blocks, threads, block_task, &w);
    for (ptrdiff_t i = 0; w.shared && i < blocks; i++) {
        const ptrdiff_t t = i % w.blocks * w.block;
        w.shared_block = block_of(&w, i / w.blocks, t, min_(w.block, w.tiles - t));
        fo_parallel_for(div_up(plan->icg, plan->kn->nr), threads, input_task, &w);
        fo_parallel_pieces(w.positions, threads, product_task, &w);
        fo_parallel_for(div_up(plan->ocg, plan->kn->nr), threads, output_task, &w);
    }
    fo_arena_release(w.scratch);
    return FO_OK;
}

/* ---- planes with dilation ------------------------------------------------------------------------------------------- */

/* An image of pixels with all their channels: its floats, and a copy. */
static ptrdiff_t pixels_floats(ptrdiff_t channels, ptrdiff_t h, ptrdiff_t w) { return round_up(channels * h * w, VECTOR); }
static fo_status copy_pixels(const fo_image *to, const fo_image *from, ptrdiff_t channels, ptrdiff_t h, ptrdiff_t w) {
    return fo_copy_image(to, from, &(fo_conv2d_size){.n = 1, .oh = h, .ow = w}, channels);
}

/* Of an image and its result. */
static size_t pixels_bytes(const fo_conv2d *plan, const fo_conv2d_size *z) {
    return (size_t)(pixels_floats(plan->s.ic, z->ih, z->iw) + pixels_floats(plan->s.oc, z->oh, z->ow)) * sizeof(float);
}

/* One image, by way of such copies in `room`; its residual goes where the result will be. */
static fo_status run_planes(const fo_conv2d *plan, const fo_conv2d_size *z, int tile, float *room, const fo_image *x, const fo_image *r,
                            const fo_image *y) {
    fo_image from = fo_contiguous(plan->s.ic, z->ih, z->iw, true), to = fo_contiguous(plan->s.oc, z->oh, z->ow, true);
    from.data = room, to.data = room + pixels_floats(plan->s.ic, z->ih, z->iw);
    fo_status status = copy_pixels(&from, x, plan->s.ic, z->ih, z->iw);
    if (r && status == FO_OK) status = copy_pixels(&to, r, plan->s.oc, z->oh, z->ow);
    if (status == FO_OK) status = run_images(plan, z, tile, &from, r ? &to : NULL, &to);
    return status == FO_OK ? copy_pixels(y, &to, plan->s.oc, z->oh, z->ow) : status;
}

ptrdiff_t fo_winograd_scratch(const fo_conv2d *plan, const fo_conv2d_size *z, int tile, bool nhwc) {
    winograd w;
    const int threads = winograd_setup(&w, plan, z, tile);
    return (ptrdiff_t)(scratch_bytes(&w, threads) + (dilated(plan) && !nhwc ? pixels_bytes(plan, z) : 0));
}

fo_status fo_winograd_run(const fo_conv2d *plan, const fo_conv2d_size *z, int tile, const fo_image *x, const fo_image *r, const fo_image *y) {
    if (!dilated(plan) || (x->sc == 1 && y->sc == 1 && (!r || r->sc == 1))) return run_images(plan, z, tile, x, r, y);
    fo_conv2d_size one = *z;
    one.n = 1;
    float *room = fo_arena_take(pixels_bytes(plan, z));
    fo_status status = room ? FO_OK : FO_NO_MEMORY;
    for (ptrdiff_t n = 0; n < z->n && status == FO_OK; n++) {
        fo_image from = *x, to = *y, residual = r ? *r : (fo_image){0};
        from.data += n * x->sn, to.data += n * y->sn;
        if (r) residual.data += n * r->sn;
        status = run_planes(plan, &one, tile, room, &from, r ? &residual : NULL, &to);
    }
    if (room) fo_arena_release(room);
    return status;
}
