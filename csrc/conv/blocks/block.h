/* Depthwise-separable blocks: what one pass and the layers one after the other share. */
#ifndef FO_BLOCK_H
#define FO_BLOCK_H

#include "../plan.h"

/* An estimate for one thread. */
double fo_block_nanoseconds(const fo_separable *block, const fo_conv2d_size *z);

static inline bool fo_block_is_empty(const fo_separable *block, const fo_conv2d_size *z) {
    return !z->n || !z->oh || !z->ow || !block->pointwise->s.oc;
}

/* Whether all parts multiply float32. Others go layer by layer alone: of float16, whose weights are widened for a call,
 * and of bfloat16, whose products are another kernel's. */
static inline bool fo_block_is_float32(const fo_separable *block) {
    return block->pointwise->type == FO_F32 && block->depthwise->type == FO_F32 &&
           (!block->expand || block->expand->type == FO_F32);
}

#endif
