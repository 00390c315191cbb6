/* Winograd's algorithm for 3x3 convolutions of stride 1 or 2. */
#ifndef FO_WINOGRAD_H
#define FO_WINOGRAD_H

#include "conv2d.h"

/* The tile m of F(m x m, 3x3) that serves images of this size: 2, 4 or 6; 0 where the direct algorithm does. */
int fo_winograd_tile(const fo_conv2d *plan, const fo_conv2d_size *size);
const char *fo_winograd_kernel(int tile);
ptrdiff_t fo_winograd_scratch(const fo_conv2d *plan, const fo_conv2d_size *size, int tile, bool nhwc); /* bytes */
fo_status fo_winograd_run(const fo_conv2d *plan, const fo_conv2d_size *size, int tile, const fo_image *x, const fo_image *residual,
                          const fo_image *y);

#endif
