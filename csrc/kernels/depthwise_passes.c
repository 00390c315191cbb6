/* Depthwise convolutions: which kernels serve. Square kernels of 2 to 5 and 7 have tiles, of 3, 5 and 7 walks; all
 * others, dilated ones, and all of plain C, go by any.h. */
#include "depthwise/any.h"
#include "depthwise/line.h"
#include "depthwise/pixels.h"
#include "depthwise/planes.h"

/* Where lanes are channels. */
static void dw_any_pixels(const fo_depthwise_args *g, ptrdiff_t k, ptrdiff_t stride) {
    const bool dilated = g->s->dh > 1 || g->s->dw > 1;
    if (((k >= 2 && k <= 5) || k == 7) && !dilated && (stride == 1 || stride == 2))
        dw_pixels(g, k, stride);
    else
        dw_across_rows(g);
}

/* Where they are columns. */
static void dw_any_planes(const fo_depthwise_args *g, ptrdiff_t k, ptrdiff_t stride) {
    const bool dilated = g->s->dh > 1 || g->s->dw > 1;
    if (!dilated && ((k == 7 && stride == 1) || ((k == 3 || k == 5) && (stride == 1 || stride == 2))))
        dw_planes(g, k, stride);
    else if (!dw_dilated_planes(g))
        dw_everywhere(g);
}

void FO_NAME(fo_depthwise)(const fo_depthwise_args *g) {
    const fo_conv2d_shape *s = g->s;
    const ptrdiff_t k = s->kh == s->kw ? s->kh : 0, stride = s->sh == s->sw ? s->sh : 0; /* 0: none that kernels know */
    if (IS_SCALAR) /* a third of a megabyte less */
        dw_everywhere(g);
    else if (g->nhwc && g->x.sc == 1 && g->multiplier == 1)
        dw_any_pixels(g, k, stride);
    else if (!g->nhwc && g->x.sw == 1)
        dw_any_planes(g, k, stride);
    else
        dw_everywhere(g);
}
