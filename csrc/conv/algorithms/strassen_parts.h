/* Strassen's algorithm for 1x1 convolutions: pairs of blocks, their operands, and where the weights' operands stand. */
#ifndef FO_STRASSEN_PARTS_H
#define FO_STRASSEN_PARTS_H

#include "../../machine/tune.h"
#include "../algorithm.h"

/* One pair of blocks: where it starts, and the lengths of its two blocks. */
typedef struct {
    ptrdiff_t at, size[2];
} pair;

/* Rows in pairs of nearly equal heights: the first `taller` have one more, the last lacks a row where m is odd. */
typedef struct {
    ptrdiff_t m, pairs, height, taller;
} rows;

static inline rows rows_of(const fo_kernels *kn, ptrdiff_t m) {
    const ptrdiff_t half = div_up(m, 2), pairs = div_up(m, 2 * kn->mr);
    return (rows){m, pairs, half / pairs, half % pairs};
}

/* Called for every chain: without a division, which takes as long as a dozen vectors of multiply-adds. */
static inline pair row_pair(const rows *r, ptrdiff_t i) {
    const ptrdiff_t height = r->height + (i < r->taller), at = 2 * (r->height * i + min_(i, r->taller));
    return (pair){at, {height, min_(height, r->m - at - height)}};
}

/* Pairs of nr columns; the columns after them are left to the direct product. */
static inline ptrdiff_t column_pairs(const fo_kernels *kn, ptrdiff_t n) { return n / (2 * kn->nr); }
static inline ptrdiff_t rest_of(const fo_kernels *kn, ptrdiff_t n) { return column_pairs(kn, n) * 2 * kn->nr; }

/* ---- operands ---------------------------------------------------------------------------------------------------- */

static inline ptrdiff_t half_of(const fo_conv2d *plan) { return div_up(plan->k, 2); }
static inline ptrdiff_t left_part(const fo_conv2d *plan) { return plan->kn->mr * fo_leading(plan->kn, half_of(plan)); }
static inline ptrdiff_t right_part(const fo_conv2d *plan) { return half_of(plan) * plan->kn->nr; }
/* Operands of pixels as columns: seven streams of stores a page apart would share few sets of the first-level cache. */
static inline ptrdiff_t column_part(const fo_conv2d *plan) { return right_part(plan) + 6 * LINE_FLOATS; }
static inline ptrdiff_t parts(bool copies) { return copies ? FO_STRASSEN_PRODUCTS : FO_STRASSEN_SUMS; }

/* Computes what the rows of a pair give as A, which is at x. */
static inline void left_operands(const fo_conv2d *plan, bool copies, pair r, const float *x, ptrdiff_t ldx, float *to) {
    const ptrdiff_t half = half_of(plan);
    plan->kn->strassen_operands(&(fo_strassen_operands){false,
                                                        copies,
                                                        {r.size[0], r.size[1]},
                                                        {half, plan->k - half},
                                                        x + r.at * ldx,
                                                        ldx,
                                                        half,
                                                        to,
                                                        fo_leading(plan->kn, half),
                                                        left_part(plan)});
}

/* The same of two blocks of nr columns as B: the left one is at x, the right one `across` further. */
static inline void right_operands(const fo_conv2d *plan, bool copies, const float *x, ptrdiff_t ldx, ptrdiff_t across,
                                  float *to, ptrdiff_t part) {
    const ptrdiff_t half = half_of(plan), nr = plan->kn->nr;
    plan->kn->strassen_operands(
        &(fo_strassen_operands){true, copies, {half, plan->k - half}, {nr, nr}, x, ldx, across, to, nr, part});
}

/* ---- weights: the operands of each pair, what the rest needs, and a bias that may be read beyond its end --------- */

/* Where the panels of pair i stand, weights being A: the sums, a step's rows side by side, and the weights
 * with the rows of both blocks, for rows in place are streams too many. After them a pair has room for what is
 * written beyond sums on their way. */
static inline ptrdiff_t left_at(const fo_conv2d *plan, ptrdiff_t i) {
    return i * FO_STRASSEN_SUMS * (2 * plan->kn->mr * half_of(plan) + plan->kn->vl);
}
static inline ptrdiff_t left_weights(const fo_conv2d *plan) {
    return left_at(plan, rows_of(plan->kn, plan->s.oc).pairs);
}

/* Where the weights from output channel o on stand, weights being B: 7 halves for 2 blocks. */
static inline ptrdiff_t right_at(const fo_conv2d *plan, ptrdiff_t o) {
    return FO_STRASSEN_PRODUCTS * half_of(plan) * (o / 2);
}
static inline ptrdiff_t right_weights(const fo_conv2d *plan) {
    const ptrdiff_t rest = rest_of(plan->kn, plan->s.oc);
    return right_at(plan, rest) + fo_packed_size(plan->kn, plan->s.oc - rest, plan->k);
}

static inline ptrdiff_t bias_floats(const fo_conv2d *plan) { return plan->s.oc + plan->kn->mr; }

/* All that; NULL where memory is short. The bias begins after fo_strassen_floats of it. */
const float *fo_strassen_weights(const fo_conv2d *plan);
static inline ptrdiff_t fo_strassen_floats(const fo_conv2d *plan) {
    return plan->s.nhwc ? right_weights(plan) : left_weights(plan);
}

#endif
