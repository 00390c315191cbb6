/* Depthwise convolution, for those who run its kernel themselves. */
#ifndef FO_DEPTHWISE_H
#define FO_DEPTHWISE_H

#include "../algorithm.h"

/* The parts of g that follow from the plan, and all channels; its weights, in the memory order g->nhwc: false where
 * memory is short. */
void fo_depthwise_shape(const fo_conv2d *plan, fo_depthwise_args *g);
bool fo_depthwise_weights(const fo_conv2d *plan, fo_depthwise_args *g);

#endif
