/* What each algorithm costs on one image: one model, in multiply-adds at full speed, which fo_cost_* turn into
 * nanoseconds.
 *
 *   products    as many multiply-adds as there are
 *   weights     come from memory or a cache, one in the time of so many multiply-adds: that bounds products of few
 *               rows; where they are many, as much as some rows is not hidden behind products
 *   transforms  so many multiply-adds for each channel of a tile, in and out
 *
 * Some algorithms have conditions of size in place of a price; who does not fulfil them costs INFINITY.
 */
#include "cost.h"

#include <math.h>

#include "../machine/tune.h"
#include "algorithm.h"
#include "im2col.h"
#include "rewrite.h"
#include "winograd.h"
#include "winograd1d.h"

/* Multiply-adds of a group as nanoseconds of the image. */
static double nanoseconds(const fo_conv2d *plan, double macs) {
    return macs * (double)plan->s.groups / ((plan->half_rate ? 2.0 : 4.0) * plan->kn->vl);
}

/* ---- what weights cost ------------------------------------------------------------------------------------------- */

/* Measured with AVX-512, at full rate (Xeon) and at half (Zen 4), and, for sets of short vectors, with AVX2. A
 * weight comes from memory in the time of MEMORY multiply-adds, from the third-level cache in that of `far`, from
 * the second in that of NEAR. In a network weights come from memory, which weighs most with stride 2, whose weights
 * are more than its direct ones: 256 -> 512 channels at 14x14 take 0.87 of the direct time alone, but 1.5 times that
 * in ResNet-18 (a Xeon), 128 at 56x56 with F(4x4) 0.8 and 1.35. The direct algorithm has a table to read and gains
 * nothing below DIRECT rows. Where dilation has phases, whose rows of tiles are short, `run` is for each row, which
 * is half a microsecond. */
enum { VECTOR = 16, START = 4, MEMORY = 12, NEAR = 5, DIRECT = 16, PATCHES = 9 };
typedef struct {
    double in[2][7], out[2][7]; /* multiply-adds for a channel of a tile: of each stride, and of each tile */
} transforms;
typedef struct {
    double far, run, many_weights[2], many_rows[2]; /* of each stride */
    const transforms *transforms;
} costs;

/* With AVX-512; those of stride 2 are as with AVX2, which choose well. */
static const transforms fast = {.in = {{[2] = 80, [4] = 220, [6] = 580}, {[2] = 430, [4] = 1400}},
                                .out = {{[2] = 80, [4] = 200, [6] = 520}, {[2] = 140, [4] = 450}}};
static const costs long_vectors = {8, 60000, {2 << 20, 1 << 20}, {6, 16}, &fast};
/* A multiply-add takes twice as long: with AVX2, and with AVX-512 at half rate, where the weights that are many come
 * faster (1 MB of second-level cache). There 64 to 256 channels at 7x7 have F(4x4), 0.57 to 0.64 of the time of
 * F(2x2) while the weights stay in a cache, 1.1 to 1.2 where they come from memory. */
static const transforms slow = {.in = {{[2] = 115, [4] = 320, [6] = 640}, {[2] = 430, [4] = 1400}},
                                .out = {{[2] = 90, [4] = 270, [6] = 550}, {[2] = 140, [4] = 450}}};
static const costs short_vectors = {6, 25000, {2 << 20, 2 << 20}, {4, 4}, &slow};
static const costs half_rate = {6, 25000, {2 << 20, 2 << 20}, {2, 4}, &slow};
static const costs *costs_of(const fo_conv2d *plan) {
    return fo_is_narrow(plan->kn) ? &short_vectors : plan->half_rate ? &half_rate : &long_vectors;
}

enum { FAR_WEIGHTS = (32 << 20) / 4 };

/* A product of so many weights and rows, the weights as slow as `least` rows. */
static double streamed(const fo_conv2d *plan, double rows, double least, double weights) {
    const costs *c = costs_of(plan);
    const bool strided = plan->s.sh > 1;
    if (plan->s.groups * weights > c->many_weights[strided]) rows += c->many_rows[strided];
    return weights * (rows > least ? rows : least);
}

/* ---- one-dimensional Winograd ------------------------------------------------------------------------------------ */

/* Steps of the reduction that take as long as a tile's start and end, and as the sum of two vectors of rows; pixels
 * of a row that a weight must serve, or its way from the third-level cache takes longer. Measured with AVX-512. */
enum { TILE_START = 8, SUM = 5, PIXELS = 10 };
static const double ROWS_GAIN = 0.95;

static bool winograd1d_pays(const fo_conv2d *plan, const fo_conv2d_size *z) {
    fo_winograd1d w;
    if (plan->s.algorithm == FO_DIRECT || !fo_winograd1d_terms(&w, &plan->s)) return false;
    if (plan->s.algorithm == FO_WINOGRAD_1D) return true;
    const double step = (double)plan->s.kw * plan->icg;
    const double sums = (double)w.sums * plan->icg * plan->s.sw / plan->ocg * SUM;
    const ptrdiff_t units = z->oh / w.unit, left = z->oh % w.unit;
    double steps = units * (w.terms * step + w.products * TILE_START + sums);
    if (left) {
        steps += sums;
        for (int t = 0; t < w.products; t++)
            if (t < left || t >= w.unit) steps += (double)(w.first[t + 1] - w.first[t]) + TILE_START;
    }
    return steps * max_(z->ow, PIXELS) < ROWS_GAIN * z->ow * z->oh * (plan->s.kh * step + TILE_START);
}

/* ---- im2col ------------------------------------------------------------------------------------------------------ */

enum { MOST_PIXELS = 64 };            /* of an image, unless many products are left out */
static const double MOST_SHARE = 0.7; /* of products, then */
/* Copies take longer than they gain where patches are short (3 -> 32 channels at 16x16, stride 2, 1.7 times as
 * long), or few are left out (3 -> 64 channels on a row of pixels 1.25 times), counted for an output pixel and a
 * group. */
enum { LEAST_CHANNELS = CHANNEL_BLOCK, LEAST_SAVED = 1200 };

static bool im2col_pays(const fo_conv2d *plan, const fo_conv2d_size *z, bool winograd1d) {
    if ((plan->s.algorithm != FO_AUTO && plan->s.algorithm != FO_DIRECT) || !fo_im2col_applies(plan, z)) return false;
    const bool small = plan->icg >= LEAST_CHANNELS && z->oh * z->ow <= MOST_PIXELS && !winograd1d;
    if (small && fo_im2col_floats(plan, z) <= FO_IM2COL_FLOATS) return true;
    const double share = fo_im2col_share(plan, z);
    return share <= MOST_SHARE && (1 - share) * (double)plan->k * (double)plan->ocg >= LEAST_SAVED;
}

fo_costing fo_costing_of(const fo_conv2d *plan, const fo_conv2d_size *z) {
    fo_costing c = {plan, z, false, false};
    if (plan->s.kh * plan->s.kw == 1 || fo_is_depthwise(plan)) return c;
    c.winograd1d = winograd1d_pays(plan, z);
    c.im2col = im2col_pays(plan, z, c.winograd1d);
    return c;
}

static const double PATCHES_GAIN = 0.88;

/* It leaves out products with zeros, reads weights once and in order, and has rows of all pixels. */
double fo_cost_im2col(const fo_costing *c) {
    const fo_conv2d *plan = c->plan;
    if (!c->im2col) return INFINITY;
    const double weights = (double)plan->k * plan->ocg;
    const double rows = fo_im2col_share(plan, c->z) * (double)c->z->oh * c->z->ow;
    const double gain = fo_is_narrow(plan->kn) && weights > FO_CACHED_WEIGHTS ? 1 : PATCHES_GAIN;
    return nanoseconds(plan, gain * streamed(plan, rows, PATCHES, weights));
}

/* ---- direct ------------------------------------------------------------------------------------------------------ */

/* Of stride 2 it copies all of the image, and has rows of few pixels: its multiply-adds take 1.4 times as long
 * (AVX2). */
static double direct(const fo_conv2d *plan, const fo_conv2d_size *z, double gain) {
    const double slower = plan->s.sh == 1 ? 1 : 1.4 * gain, rows = (double)z->oh * z->ow;
    const double weights = (double)plan->k * plan->ocg;
    /* As measured: with short vectors what waits for weights is slower, too. */
    const double macs = fo_is_narrow(plan->kn) ? slower * streamed(plan, rows, DIRECT, weights)
                                               : streamed(plan, slower * rows, DIRECT, weights);
    return nanoseconds(plan, macs);
}

double fo_cost_direct(const fo_costing *c) { return c->im2col ? INFINITY : direct(c->plan, c->z, 1); }
double fo_cost_winograd1d(const fo_costing *c) {
    return c->im2col || !c->winograd1d ? INFINITY : direct(c->plan, c->z, 7.0 / 9);
}
double fo_cost_stem(const fo_costing *c) { return 0.8 * direct(c->plan, c->z, 1); }
double fo_cost_depthwise(const fo_costing *c) { return direct(c->plan, c->z, 1); }

/* ---- Strassen ---------------------------------------------------------------------------------------------------- */

/* Measured with AVX-512: sums are computed for each pair of pixels and must serve many channels, products of half a
 * reduction must be long, and pixels enough for the weights that pass by, which are 7/4 of the direct product's. */
enum { SHORTEST = 96, LEAST_OUTPUTS = 64, LEAST_WEIGHTS = 64 * 128 };

/* With AVX2 shorter products pay: 80 -> 480 channels at 14x14 take 0.74 of the direct product's time, two threads;
 * as columns of pixels 64 -> 256 at 56x56 0.80 (as rows 1.01), 64 -> 64 0.95. With AVX-512 at half rate (Zen 4) as
 * columns 32 -> 128 at 56x56 0.92, 48 -> 192 at 28x28 0.92, 64 -> 384 at 14x14 0.85, 32 -> 64 at 112x112 1.00; as
 * rows 64 -> 128 at 56x56 1.1. */
enum { AVX2_LANES = 8, SHORT_ROWS = 80, SHORT_COLUMNS = 64, LEAST_COLUMN_WEIGHTS = 64 * 64, HALF_RATE_COLUMNS = 32,
       HALF_RATE_WEIGHTS = 32 * 96 };

/* And images of 7x7 where pixels are rows, for as many channels as there are or more: 1024 -> 1024 takes 0.82 of the
 * direct product's time in a network, 320 -> 1280 0.85; 960 -> 160 0.97, but on two threads 1.2, for each needs all
 * operands of the pixels. */
enum { FEW_ROWS = 7 * 7 };

/* With AVX-512 a network's weights take as long to come from memory as the products of few rows save: on a Xeon 256
 * -> 1024 at 14x14 takes 1.1 of the direct product's time in ResNet-50, 1024 -> 512 1.2, on two threads 512 -> 512
 * in MobileNetV1 1.05 to 1.2. By itself, at 28x28, it is 0.9. At half rate products save twice as much: on a Zen 4
 * all three are 0.90 to 0.93, MobileNetV1 0.97; fewer weights, as 96 -> 576, gain by themselves alone. */
enum { AVX512_LANES = 16, MANY_ROWS = 256, MANY_WEIGHTS = 1 << 17 };

static ptrdiff_t shortest(const fo_conv2d *plan) {
    if (plan->half_rate && !plan->s.nhwc) return HALF_RATE_COLUMNS;
    return plan->kn->vl != AVX2_LANES ? SHORTEST : plan->s.nhwc ? SHORT_ROWS : SHORT_COLUMNS;
}

static ptrdiff_t least_weights(const fo_conv2d *plan) {
    if (plan->s.nhwc) return LEAST_WEIGHTS;
    return plan->half_rate ? HALF_RATE_WEIGHTS : plan->kn->vl == AVX2_LANES ? LEAST_COLUMN_WEIGHTS : LEAST_WEIGHTS;
}

ptrdiff_t fo_strassen_least_pixels(const fo_conv2d *plan) {
    if (!plan->s.nhwc) return FO_STRASSEN_PIXELS;
    const bool gains = plan->half_rate && plan->s.ic * plan->s.oc >= MANY_WEIGHTS;
    const bool avx2 = plan->kn->vl == AVX2_LANES && !plan->narrowed;
    if (plan->kn->vl == AVX512_LANES && !gains) return MANY_ROWS;
    return avx2 && plan->s.oc >= plan->s.ic ? FEW_ROWS : FO_STRASSEN_PIXELS;
}

double fo_cost_strassen(const fo_costing *c) {
    const fo_conv2d *plan = c->plan;
    const fo_conv2d_shape *s = &plan->s;
    const bool pays = s->ic >= shortest(plan) && s->oc >= LEAST_OUTPUTS && s->ic * s->oc >= least_weights(plan) &&
                      c->z->oh * c->z->ow >= fo_strassen_least_pixels(plan);
    return pays ? 7.0 / 8 * direct(plan, c->z, 1) : INFINITY;
}

/* ---- Winograd ---------------------------------------------------------------------------------------------------- */

static const double F6_GAIN = 0.9; /* by which F(6x6) must win */
/* Groups have few channels: transforms and short products take more of the time than the model has, and those of a
 * single vector of columns more again, for they load as much as they multiply. Direct time over Winograd's, and by
 * the model: 32 channels a group at 7x7 0.9 (1.2), 64 1.25 (1.4); 16 at 14x14 0.9 to 1.1 (1.3), at 28x28 1.2 to 1.5
 * (1.4). */
static const double GROUP_GAIN = 1 / 1.3, THIN_GROUP = 1.7;

/* Values of all tiles along an axis of n outputs. */
static ptrdiff_t values_along(const fo_conv2d *plan, ptrdiff_t n, int tile) {
    return div_up(n, tile) * fo_winograd_values(plan, tile) - plan->s.sh * (tile - fo_winograd_last(n, tile));
}

double fo_winograd_work(const fo_conv2d *plan, const fo_conv2d_size *whole, int tile) {
    const costs *c = costs_of(plan);
    const ptrdiff_t stride = plan->s.sh;
    const fo_conv2d_size image = {.n = 1, .oh = whole->oh, .ow = whole->ow}, z = fo_winograd_phases(plan, &image);
    const double values = SQUARE(fo_winograd_values(plan, tile));
    const double tiles = (double)z.n * values_along(plan, z.oh, tile) * values_along(plan, z.ow, tile) / values;
    const double ic = round_up(plan->icg, VECTOR), oc = round_up(plan->ocg, VECTOR);
    const double thin = plan->s.groups > 1 && plan->ocg <= plan->kn->vl ? THIN_GROUP : 1;
    const double weights = values * (plan->icg + START) * oc * thin, all = plan->s.groups * weights;
    const double weight = all > FAR_WEIGHTS ? MEMORY : all > FO_CACHED_WEIGHTS ? c->far : NEAR;
    const double channels = c->transforms->in[stride - 1][tile] * ic + c->transforms->out[stride - 1][tile] * oc;
    const double runs = fo_is_dilated(plan) ? (double)z.n * div_up(z.oh, tile) * c->run : 0;
    return streamed(plan, tiles, weight, weights) + tiles * channels + runs;
}

/* The cheapest tile, and its cost. */
static int cheapest_tile(const fo_conv2d *plan, const fo_conv2d_size *z, double *cost) {
    int best = 2;
    *cost = fo_winograd_work(plan, z, 2);
    for (int tile = 4; tile <= 6; tile += 2) {
        if (!fo_winograd_admits(plan, tile)) continue;
        const double other = fo_winograd_work(plan, z, tile);
        if (other < (tile == 6 ? F6_GAIN : 1) * *cost) best = tile, *cost = other;
    }
    return best;
}

int fo_winograd_tile(const fo_conv2d *plan, const fo_conv2d_size *z) {
    double cost;
    return cheapest_tile(plan, z, &cost);
}

double fo_cost_winograd(const fo_costing *c) {
    const fo_conv2d *plan = c->plan;
    double cost;
    cheapest_tile(plan, c->z, &cost);
    return nanoseconds(plan, plan->s.groups > 1 && plan->s.sh == 1 ? cost / GROUP_GAIN : cost);
}

/* ---- rewrites ---------------------------------------------------------------------------------------------------- */

bool fo_rewrite_pays(const fo_conv2d *plan, const fo_conv2d *to, const fo_conv2d_size *z) {
    if (fo_costing_of(plan, z).im2col) return false;
    if (fo_rewrites_windows(to)) return true;
    /* In either memory order: to copy planes takes a fifth of the time that is gained. */
    const fo_conv2d_size size = fo_rewrite_size(to, z);
    return size.oh > 1 && winograd1d_pays(to, &size);
}
