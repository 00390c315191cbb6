/* Which products of a convolution read the image at all, for im2col and its cost. */
#ifndef FO_IM2COL_H
#define FO_IM2COL_H

#include "../plan.h"

/* Of all products, the share that is left when those with rows and columns of zeros are not made. */
double fo_im2col_share(const fo_conv2d *plan, const fo_conv2d_size *z);

/* Floats of the patches of an image and a group. */
ptrdiff_t fo_im2col_floats(const fo_conv2d *plan, const fo_conv2d_size *z);

#endif
