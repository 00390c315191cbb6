/* Convolutions of int8 and bfloat16 over bands of an image, where fo_qbands says so. */
#ifndef FO_CONV_QBANDS_H
#define FO_CONV_QBANDS_H

#include "../qimage.h"

/* A product whose rows are windows of `in`, an image of any order, of the kernel's type or of floats that become it;
 * pixel: elements of one in the copy, fo_qpixel. */
fo_status fo_qrun_bands(const fo_product_call *p, const fo_qpatches *in, ptrdiff_t images, fo_qsteps steps,
                        ptrdiff_t pixel);

#endif
