/* Depthwise-separable blocks: what one pass and the layers one after the other share. */
#ifndef FO_BLOCK_H
#define FO_BLOCK_H

#include "plan.h"

/* An estimate for one thread. */
double fo_block_nanoseconds(const fo_separable *block, const fo_conv2d_size *z);

static inline bool fo_block_is_empty(const fo_separable *block, const fo_conv2d_size *z) {
    return !z->n || !z->oh || !z->ow || !block->pointwise->s.oc;
}

#endif
