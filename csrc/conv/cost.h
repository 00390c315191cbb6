/* Nanoseconds of each algorithm on one image, on one thread. */
#ifndef FO_COST_H
#define FO_COST_H

#include "plan.h"

/* What several costs need, found once for a choice. */
typedef struct {
    const fo_conv2d *plan;
    const fo_conv2d_size *z;
    bool im2col, winograd1d; /* whether their conditions of size are met */
} fo_costing;
fo_costing fo_costing_of(const fo_conv2d *plan, const fo_conv2d_size *z);

/* They depend on shapes and the processor alone, so that results depend neither on threads nor on the batch. INFINITY:
 * never. */
double fo_cost_depthwise(const fo_costing *c);
double fo_cost_im2col(const fo_costing *c);
double fo_cost_winograd1d(const fo_costing *c);
double fo_cost_direct(const fo_costing *c);
double fo_cost_winograd(const fo_costing *c);

/* What a depthwise convolution really takes, which reads as long as it multiplies: the choice needs no such cost. */
double fo_depthwise_nanoseconds(const fo_conv2d *plan, const fo_conv2d_size *z);

/* The cheapest m of F(m x m, 3x3), and its cost in multiply-adds. */
int fo_winograd_tile(const fo_conv2d *plan, const fo_conv2d_size *z);
double fo_winograd_work(const fo_conv2d *plan, const fo_conv2d_size *z, int tile);

/* Whether to run `to` on a rewritten image is faster (rewrite.h). */
bool fo_rewrite_pays(const fo_conv2d *plan, const fo_conv2d *to, const fo_conv2d_size *z);

#endif
