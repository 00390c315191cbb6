/* Convolutions of int8 and bfloat16 over bands of an image, where fo_byte_bands says so. */
#ifndef FO_CONV_BANDS_H
#define FO_CONV_BANDS_H

#include "../net/bytes.h"

/* A product whose rows are windows of `in`; sc: elements from channel to channel; channels: of a pixel of the copy,
 * fo_byte_channels. */
fo_status fo_byte_run_bands(const fo_byte_product *p, const fo_byte_patches *in, ptrdiff_t images, ptrdiff_t sc,
                            ptrdiff_t channels);

#endif
