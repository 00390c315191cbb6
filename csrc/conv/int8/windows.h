/* How convolutions of int8 and bfloat16 read windows, from their shapes alone.
 *
 * Where a kernel takes segments, a row of A is kh of them: the kw pixels of a line of a window lie side by side in a
 * copy of the image. What follows them, up to whole groups of four bytes, is times weights that are 0.
 */
#ifndef FO_CONV_WINDOWS_H
#define FO_CONV_WINDOWS_H

#include "../../kernels/product.h"
#include "../../machine/tune.h"
#include "../../runtime/util.h"

/* Whether the depthwise kernel serves: one filter a channel. */
static inline bool fo_qdepthwise(const fo_conv2d_shape *s) {
    return s->groups > 1 && s->groups == s->ic && s->groups == s->oc;
}

/* Whether lines of windows are segments. Operands of two phases are made of whole groups, which pixels have to fill. */
static inline bool fo_qsegments(const fo_product_kernel *kernel, const fo_conv2d_shape *s) {
    const ptrdiff_t c = s->ic / s->groups;
    return kernel->segments && s->kh * s->kw > 1 && s->dw == 1 && c > 0 &&
           (kernel->phases == 1 || c == 3 || c % 4 == 0);
}

/* Elements of a pixel of a group, and of a line of a window, as packed weights have them: tiles (AMX) take equal parts
 * of a line. */
static inline ptrdiff_t fo_qpixel(const fo_product_kernel *kernel, const fo_conv2d_shape *s) {
    const ptrdiff_t c = s->ic / s->groups;
    return kernel->phases > 1 && c == 3 && fo_qsegments(kernel, s) ? 4 : c;
}
static inline ptrdiff_t fo_qline(const fo_product_kernel *kernel, const fo_conv2d_shape *s) {
    const ptrdiff_t elements = s->kw * fo_qpixel(kernel, s), groups = div_up(elements, kernel->product.group),
                    steps = kernel->tiles ? div_up(groups, FO_TILE_GROUPS) : groups;
    return fo_qsegments(kernel, s) ? round_up(groups, steps) * kernel->product.group : elements;
}

/* Whether a row of an image is tiles that are full enough: else copies of windows cost less. AMX has tiles of 16. */
static inline bool fo_qfills(const fo_product_kernel *kernel, ptrdiff_t ow) {
    return ow >= 4 * kernel->mr || (kernel->tiles && 4 * ow >= 3 * ((ow + 15) / 16 * 16));
}

/* Whether windows are read from bands of the image by this kernel; else each is copied. */
static inline bool fo_qbands(const fo_product_kernel *kernel, const fo_conv2d_shape *s, ptrdiff_t ow) {
    return fo_qsegments(kernel, s) && (s->ic / s->groups < FO_IM2COL_MIN_CHANNELS || fo_qfills(kernel, ow));
}

#endif
