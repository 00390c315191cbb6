/* Winograd's F(m x m, 3x3) of stride 1 or 2: its tiles, as the walk over them and their cost see them. */
#ifndef FO_WINOGRAD_TILES_H
#define FO_WINOGRAD_TILES_H

#include "../plan.h"

#define SQUARE(x) ((ptrdiff_t)(x) * (x))

/* Errors grow as the root of the channels and more; within these they stay under the bounds of docs/numerics.md. */
enum { FO_F6_CHANNELS = 512, FO_STRIDED_CHANNELS = 1024 };
static inline bool fo_winograd_admits(const fo_conv2d *plan, int tile) {
    if (plan->s.sh == 1) return tile < 6 || plan->icg <= FO_F6_CHANNELS;
    return tile == 2 || (tile == 4 && plan->icg <= FO_STRIDED_CHANNELS);
}

/* Of a tile of m outputs along an axis: values of its inputs, and points, most of which have two of them where the
 * stride is 2. */
enum { FO_SINGLE_POINT = 2 };
static inline int fo_winograd_values(const fo_conv2d *plan, int m) { return (int)plan->s.sh * (m - 1) + 3; }
static inline int fo_winograd_points(const fo_conv2d *plan, int m) { return m + 3 - (int)plan->s.sh; }
static inline int fo_winograd_values_at(const fo_conv2d *plan, int point) {
    return plan->s.sh == 2 && point != FO_SINGLE_POINT ? 2 : 1;
}

static inline bool fo_is_dilated(const fo_conv2d *plan) { return plan->s.dh > 1 || plan->s.dw > 1; }

/* The images that the phases of a dilation are, those with fewer outputs among them. */
static inline ptrdiff_t fo_phase_count(ptrdiff_t dilation, ptrdiff_t n) { return min_(dilation, n); }
static inline fo_conv2d_size fo_winograd_phases(const fo_conv2d *plan, const fo_conv2d_size *z) {
    fo_conv2d_size each = *z;
    each.n *= fo_phase_count(plan->s.dh, z->oh) * fo_phase_count(plan->s.dw, z->ow);
    each.oh = div_up(z->oh, plan->s.dh), each.ow = div_up(z->ow, plan->s.dw);
    return each;
}

/* An axis of n outputs: that of the last tile, the others having `tile`. */
static inline int fo_winograd_last(ptrdiff_t n, int tile) { return (int)round_up((n - 1) % tile + 1, 2); }

/* ---- positions of a tile ----------------------------------------------------------------------------------------- */

/* Floats of a phase: its channels, to whole vectors where there are several. */
static inline ptrdiff_t fo_winograd_phase_floats(const fo_conv2d *plan) {
    return plan->s.sh == 1 ? plan->icg : round_up(plan->icg, plan->kn->vl);
}

/* Values of all points before this one; phases of all positions before that of these points. */
static inline int fo_winograd_values_before(const fo_conv2d *plan, int point) {
    return plan->s.sh == 1 ? point : 2 * point - (point > FO_SINGLE_POINT);
}
static inline ptrdiff_t fo_winograd_phases_before(const fo_conv2d *plan, int m, int down, int across) {
    const ptrdiff_t before = fo_winograd_values_before(plan, down) * fo_winograd_values(plan, m);
    return before + fo_winograd_values_at(plan, down) * fo_winograd_values_before(plan, across);
}

/* Positions are an odd number of cache lines apart, for a transform writes to all of them in turn. */
static inline ptrdiff_t fo_winograd_stride(ptrdiff_t floats) { return round_up(floats, 32) + 16; }

/* Floats of U for each phase of a position. */
static inline ptrdiff_t fo_winograd_u_phase(const fo_conv2d *plan) {
    return fo_winograd_stride(fo_packed_size(plan->kn, plan->ocg, fo_winograd_phase_floats(plan)));
}

/* Of a group, all positions. */
static inline ptrdiff_t fo_winograd_u_group(const fo_conv2d *plan, int tile) {
    return SQUARE(fo_winograd_values(plan, tile)) * fo_winograd_u_phase(plan);
}

/* U, whose rows of positions stand in the order of fo_winograd_phases_before; NULL where memory is short. */
const float *fo_winograd_weights(const fo_conv2d *plan, int tile);

#endif
