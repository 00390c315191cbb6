/* What each algorithm costs on one image: one model, in multiply-adds at full speed, which fo_cost_* turn
 * into nanoseconds.
 *
 *   products    as many multiply-adds as there are
 *   weights     arrive in the time of so many rows of products: that bounds products of few rows
 *   transforms  so many multiply-adds for each channel of a tile, in and out
 *
 * Some algorithms have limits of size instead of a cost; outside of these they cost INFINITY.
 */
#include "cost.h"

#include <math.h>

#include "../machine/tune.h"
#include "algorithm.h"
#include "algorithms/im2col.h"
#include "algorithms/winograd1d.h"
#include "algorithms/winograd_tiles.h"
#include "rewrite.h"

/* Multiply-adds a nanosecond. */
static double rate(const fo_conv2d *plan) { return (plan->half_rate ? 2.0 : 4.0) * plan->kn->vl; }

/* Multiply-adds of a group as nanoseconds of the image. */
static double nanoseconds(const fo_conv2d *plan, double macs) { return macs * (double)plan->s.groups / rate(plan); }

/* ---- one-dimensional Winograd ------------------------------------------------------------------------------------ */

static bool winograd1d_pays(const fo_conv2d *plan, const fo_conv2d_size *z) {
    fo_winograd1d w;
    if (plan->s.algorithm == FO_DIRECT || !fo_winograd1d_terms(&w, &plan->s)) return false;
    if (plan->s.algorithm == FO_WINOGRAD_1D) return true;
    const double step = (double)plan->s.kw * plan->icg;
    const double sums = (double)w.sums * plan->icg * plan->s.sw / plan->ocg * FO_WINOGRAD1D_START;
    const ptrdiff_t units = z->oh / w.unit, left = z->oh % w.unit;
    double steps = units * (w.terms * step + w.products * FO_WINOGRAD1D_START + sums);
    if (left) {
        steps += sums;
        for (int t = 0; t < w.products; t++)
            if (t < left || t >= w.unit) steps += (double)(w.first[t + 1] - w.first[t]) + FO_WINOGRAD1D_START;
    }
    return steps * max_(z->ow, FO_WINOGRAD1D_PIXELS) <
           FO_WINOGRAD1D_GAIN * z->ow * z->oh * (plan->s.kh * step + FO_WINOGRAD1D_START);
}

/* ---- im2col ------------------------------------------------------------------------------------------------------ */

/* Whether patches of a dilated kernel are long enough to be copied sooner: of 8 channels that takes 1.4 times as
 * long. */
static bool is_dilated(const fo_conv2d *plan) {
    return (plan->s.dh > 1 || plan->s.dw > 1) && plan->icg >= 4 * FO_IM2COL_MIN_CHANNELS;
}

static bool is_small(const fo_conv2d_size *z) { return z->oh * z->ow <= FO_IM2COL_MAX_PIXELS; }

static bool im2col_pays(const fo_conv2d *plan, const fo_conv2d_size *z, bool winograd1d) {
    if ((plan->s.algorithm != FO_AUTO && plan->s.algorithm != FO_DIRECT) || !fo_im2col_applies(plan, z)) return false;
    if (plan->icg < FO_IM2COL_MIN_CHANNELS) return false;
    if (plan->s.kh == 1 && z->ih == 1) return false; /* one order of sums for sequences of any length */
    const bool small = is_small(z) && 4 * fo_im2col_floats(plan, z) <= FO_L2_SHARE;
    const double most = is_dilated(plan) ? FO_IM2COL_MAX_SHARE_DILATED : FO_IM2COL_MAX_SHARE;
    return (small && !winograd1d) || fo_im2col_share(plan, z) <= most;
}

fo_costing fo_costing_of(const fo_conv2d *plan, const fo_conv2d_size *z) {
    fo_costing c = {plan, z, false, false};
    if (plan->type != FO_F32 || plan->s.kh * plan->s.kw == 1 || fo_is_depthwise(plan)) return c;
    c.winograd1d = winograd1d_pays(plan, z);
    c.im2col = im2col_pays(plan, z, c.winograd1d);
    return c;
}

/* It leaves out products with zeros, reads weights once and in order, and has rows of all pixels. */
double fo_cost_im2col(const fo_costing *c) {
    const fo_conv2d *plan = c->plan;
    if (!c->im2col) return INFINITY;
    const double weights = (double)plan->k * plan->ocg;
    const double share = fo_im2col_share(plan, c->z), rows = share * (double)c->z->oh * c->z->ow;
    const bool more = is_dilated(plan) && share > FO_IM2COL_MAX_SHARE && !is_small(c->z);
    return nanoseconds(plan, (more ? FO_IM2COL_DILATED : 1) * rows * weights);
}

/* ---- direct ------------------------------------------------------------------------------------------------------ */

/* Of stride 2 it copies all of the image, and has rows of few pixels: its multiply-adds take 1.4 times as long
 * (AVX2). */
static double direct(const fo_conv2d *plan, const fo_conv2d_size *z, double gain) {
    const double slower = plan->s.sh == 1 ? 1 : 1.4 * gain, rows = (double)z->oh * z->ow;
    const double weights = (double)plan->k * plan->ocg;
    return nanoseconds(plan, slower * rows * weights);
}

double fo_cost_direct(const fo_costing *c) { return c->im2col ? INFINITY : direct(c->plan, c->z, 1); }
double fo_cost_winograd1d(const fo_costing *c) {
    return c->im2col || !c->winograd1d ? INFINITY : direct(c->plan, c->z, 7.0 / 9);
}
double fo_cost_depthwise(const fo_costing *c) { return direct(c->plan, c->z, 1); }

double fo_depthwise_nanoseconds(const fo_conv2d *plan, const fo_conv2d_size *z) {
    const double inputs = (double)z->ih * z->iw, taps = (double)plan->ocg * z->oh * z->ow * plan->k;
    return nanoseconds(plan, fo_float_costs.input * inputs + fo_float_costs.tap * taps);
}

/* ---- Winograd ---------------------------------------------------------------------------------------------------- */

/* Values of all tiles along an axis of n outputs. */
static ptrdiff_t axis_values(const fo_conv2d *plan, ptrdiff_t n, int tile) {
    return div_up(n, tile) * fo_winograd_values(plan, tile) - plan->s.sh * (tile - fo_winograd_last(n, tile));
}

double fo_winograd_work(const fo_conv2d *plan, const fo_conv2d_size *whole, int tile) {
    const ptrdiff_t stride = plan->s.sh;
    const fo_conv2d_size image = {.n = 1, .oh = whole->oh, .ow = whole->ow}, z = fo_winograd_phases(plan, &image);
    const double values = SQUARE(fo_winograd_values(plan, tile));
    const double tiles = (double)z.n * axis_values(plan, z.oh, tile) * axis_values(plan, z.ow, tile) / values;
    /* channels and columns fill whole vectors */
    const double ic = round_up(plan->icg, plan->kn->vl), oc = round_up(plan->ocg, plan->kn->vl);
    const double weights = values * (ic + FO_WINOGRAD_START) * oc;
    const double channels = fo_transform_in[stride - 1][tile] * ic + fo_transform_out[stride - 1][tile] * oc;
    const double runs = fo_is_dilated(plan) ? (double)z.n * div_up(z.oh, tile) * FO_PHASE_ROW_NS * rate(plan) : 0;
    return weights * max_(tiles, FO_WEIGHT_ROWS) + tiles * channels + runs;
}

/* The cheapest tile, and its cost. */
static int cheapest_tile(const fo_conv2d *plan, const fo_conv2d_size *z, double *cost) {
    int best = 2;
    *cost = fo_winograd_work(plan, z, 2);
    for (int tile = 4; tile <= 6; tile += 2) {
        if (!fo_winograd_admits(plan, tile)) continue;
        const double other = fo_winograd_work(plan, z, tile);
        if (other < *cost) best = tile, *cost = other;
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
    return nanoseconds(plan, cost);
}

/* ---- rewrites ---------------------------------------------------------------------------------------------------- */

bool fo_rewrite_pays(const fo_conv2d *plan, const fo_conv2d *to, const fo_conv2d_size *z) {
    if (fo_costing_of(plan, z).im2col) return false;
    if (fo_rewrites_windows(to)) return true;
    /* Rows shorter than a tile: 64 -> 64 channels, 3x1, of 1 column 0.23 of the time, of 4 0.56, of 8 0.72. */
    if (fo_rewrites_columns(to)) return z->ow < plan->kn->mr && z->oh > z->ow;
    /* In either memory order: to copy planes takes a fifth of the time that is gained. */
    const fo_conv2d_size size = fo_rewrite_size(to, z);
    return size.oh > 1 && winograd1d_pays(to, &size);
}
