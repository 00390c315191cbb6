/* Depthwise-separable blocks: what one pass and the layers one after the other share. */
#ifndef FO_BLOCK_H
#define FO_BLOCK_H

#include "plan.h"

/* An estimate for one thread. */
double fo_block_nanoseconds(const fo_separable *block, const fo_conv2d_size *z);

static inline bool fo_block_is_empty(const fo_separable *block, const fo_conv2d_size *z) {
    return !z->n || !z->oh || !z->ow || !block->pointwise->s.oc;
}

/* Whether a part keeps float16 weights, which it widens for a call: such blocks can go layer by layer alone. */
static inline bool fo_block_has_halves(const fo_separable *block) {
    return block->pointwise->type == FO_F16 || (block->expand && block->expand->type == FO_F16);
}

#endif
