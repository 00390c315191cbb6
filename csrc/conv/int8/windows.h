/* How convolutions of int8 and bfloat16 read windows, from their shapes alone. */
#ifndef FO_CONV_WINDOWS_H
#define FO_CONV_WINDOWS_H

#include "../../kernels/product.h"

/* Whether the depthwise kernel serves: one filter a channel. */
static inline bool fo_qdepthwise(const fo_conv2d_shape *s) {
    return s->groups > 1 && s->groups == s->ic && s->groups == s->oc;
}

/* Channels of a group as a dense convolution has them. Where a kernel reads bands a group of three, as a first layer's,
 * gets a fourth one, whose weights are 0: a pixel is whole groups of four bytes. */
static inline ptrdiff_t fo_qchannels(const fo_product_kernel *kernel, const fo_conv2d_shape *s) {
    const ptrdiff_t c = s->ic / s->groups;
    return c == 3 && kernel->segments && s->kh * s->kw > 1 && s->dw == 1 ? c + 1 : c;
}

/* Whether a row of an image is tiles that are full enough: else copies of windows cost less. AMX has tiles of 16. */
static inline bool fo_qfills(const fo_product_kernel *kernel, ptrdiff_t ow) {
    return ow >= 4 * kernel->mr || (kernel->tiles && 4 * ow >= 3 * ((ow + 15) / 16 * 16));
}

/* Whether windows are read from bands of the image by this kernel; else each is copied. */
static inline bool fo_qbands(const fo_product_kernel *kernel, const fo_conv2d_shape *s, ptrdiff_t ow) {
    const ptrdiff_t c = fo_qchannels(kernel, s);
    return kernel->segments && s->kh * s->kw > 1 && s->dw == 1 && c % kernel->product.group == 0 &&
           (c > s->ic / s->groups || fo_qfills(kernel, ow));
}

#endif
