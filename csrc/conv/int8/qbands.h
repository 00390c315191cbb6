/* Convolutions of int8 and bfloat16 over bands of an image, where fo_qbands says so. */
#ifndef FO_CONV_QBANDS_H
#define FO_CONV_QBANDS_H

#include "../../matmul/product.h"

/* A product whose rows are windows of `in`; sc: elements from channel to channel; channels: of a pixel of the copy,
 * fo_qchannels. */
fo_status fo_qrun_bands(const fo_product_call *p, const fo_qpatches *in, ptrdiff_t images, ptrdiff_t sc,
                        ptrdiff_t channels);

#endif
