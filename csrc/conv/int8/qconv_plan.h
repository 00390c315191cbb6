/* What is packed of a convolution of int8 or bfloat16 (qconv_plan.c), which qconv.c runs. */
#ifndef FO_CONV_QCONV_PLAN_H
#define FO_CONV_QCONV_PLAN_H

#include "../../matmul/product.h"
#include "../plan.h"

/* products: of a depthwise convolution its constants alone, which the others have once more in the order of quads. */
typedef struct fo_qconv2d {
    fo_conv2d_shape s;
    bool depthwise;
    ptrdiff_t pixel, line; /* elements of a pixel of a group and of a line of a window in packed weights (windows.h) */
    fo_linear products;
    ptrdiff_t block, taps_block; /* bytes of weights of a block of channels; of a channel's taps */
    int8_t *w, *taps;            /* in blocks of channels; by channel, for planes */
    float *scale, *bias, *nudge;
    int32_t *start[2], *w_zero; /* for x of uint8 and of int8; as of products, or NULL */
} fo_qconv2d;

#endif
