/* Convolutions that are others, with the same weights, of a rewritten image. The chooser asks before it looks at
 * algorithms, and once. */
#ifndef FO_REWRITE_H
#define FO_REWRITE_H

#include "algorithm.h"

/* The shape of the other convolution; false: there is none. */
bool fo_rewrite_shape(const fo_conv2d *plan, fo_conv2d_shape *shape);

/* Whether windows become pixels, or columns rows; else rows become columns. */
static inline bool fo_rewrites_windows(const fo_conv2d *to) { return to->s.kh == 1 && to->s.kw == 1; }
static inline bool fo_rewrites_columns(const fo_conv2d *to) { return to->s.kh == 1 && to->s.kw > 1; }

/* The size of a rewritten image. */
static inline fo_conv2d_size fo_rewrite_size(const fo_conv2d *to, const fo_conv2d_size *z) {
    if (fo_rewrites_windows(to)) return (fo_conv2d_size){.n = z->n, .ih = z->oh, .iw = z->ow, .oh = z->oh, .ow = z->ow};
    return (fo_conv2d_size){
        .n = z->n, .ih = z->iw, .iw = z->ih, .oh = z->ow, .ow = z->oh, .top = z->left, .left = z->top};
}

/* Whether images of this size can be rewritten for `to`, the plan of that shape. */
bool fo_rewrite_applies(const fo_conv2d *plan, const fo_conv2d *to, const fo_conv2d_size *z);

/* Prepares a call but for what it runs: the layouts of those calls, the second of which may have n = 0. */
fo_status fo_rewrite_prepare(fo_prepared_conv2d *call, const fo_conv2d *to, fo_layout inner[2]);
fo_status fo_rewrite_run(const fo_prepared_conv2d *call, const fo_image *x, const fo_image *residual,
                         const fo_image *y);

#endif
