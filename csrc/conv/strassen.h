/* Strassen's algorithm for 1x1 convolutions. */
#ifndef FO_STRASSEN_H
#define FO_STRASSEN_H

#include "conv2d.h"

/* Whether it serves images of this size. */
bool fo_uses_strassen(const fo_conv2d *plan, const fo_conv2d_size *size);
ptrdiff_t fo_strassen_scratch(const fo_conv2d *plan, const fo_conv2d_size *size); /* bytes */
fo_status fo_strassen_run(const fo_conv2d *plan, const fo_conv2d_size *size, const fo_image *x, const fo_image *residual, const fo_image *y);

#endif
