/* The plan of a convolution, shared by the algorithms that can run it. */
#ifndef FO_CONV2D_H
#define FO_CONV2D_H

#include <stdatomic.h>

#include "winograd1d.h"
#include "../pack.h"

/* The forms in which an algorithm wants the weights; each is packed when it is first used. */
typedef enum {
    FO_PANELS, FO_DEPTHWISE_TAPS, FO_WINOGRAD_2, FO_WINOGRAD_4, FO_WINOGRAD_6, FO_LINE_ROWS, FO_LINE_PANELS, FO_PATCH_PANELS, FO_STEM, FO_STRASSEN_LEFT, FO_STRASSEN_RIGHT,
    FO_WEIGHT_FORMS
} fo_weight_form;

struct fo_conv2d {
    const fo_kernels *kn;
    fo_conv2d_shape s;
    ptrdiff_t icg, ocg; /* channels of a group */
    ptrdiff_t k, ldw;   /* length of a reduction; distance of two output channels in w */
    float *w;           /* (oc, k): a row in the order of FOR_EACH_TAP */
    float *bias, *slopes;
    fo_lines lines;
    _Atomic(struct direct *) last; /* the direct convolution of the last call, unless one is running */
    struct fo_conv2d *rearranged; /* the same weights for another image, or NULL: rearranged.c */
    _Atomic(float *) packed[FO_WEIGHT_FORMS];
};

/* The reduction runs over blocks of CHANNEL_BLOCK channels, in a block over kh, kw and then the block's channels: neighbours in
 * memory stay neighbours in time for NCHW and NHWC alike, and every form of the direct algorithm has the same order and bits. */
enum { CHANNEL_BLOCK = 16 };

/* Steps p of the reduction, a block of channels c0.. at a time: kernel row i and column j. */
#define FOR_EACH_TAP(plan, p, c0, i, j) \
    for (ptrdiff_t p = 0, c0 = 0; c0 < (plan)->icg; c0 += CHANNEL_BLOCK) \
        for (ptrdiff_t i = 0; i < (plan)->s.kh; i++) \
            for (ptrdiff_t j = 0; j < (plan)->s.kw; j++, p += min_(CHANNEL_BLOCK, (plan)->icg - c0))

/* Steps p of the products that give several lines, a block of channels c0.. at a time: term e and kernel column j. */
#define FOR_EACH_LINE_BLOCK(plan, p, e, c0, j) \
    for (ptrdiff_t p = 0, t_ = 0; t_ < (plan)->lines.products; t_++) \
        for (ptrdiff_t c0 = 0; c0 < (plan)->icg; c0 += CHANNEL_BLOCK) \
            for (int e = 0; e < (plan)->lines.terms; e++) \
                for (ptrdiff_t j = 0; j < ((plan)->lines.term[e].product == t_ ? (plan)->s.kw : 0); \
                     j++, p += min_(CHANNEL_BLOCK, (plan)->icg - c0))

/* Whether an image is so large with its zeros (by strides of 0, by huge padding) that sizes computed of it may not fit 64 bits. */
bool fo_is_huge(const fo_conv2d *plan, const fo_conv2d_size *z);

/* The weights in one form, packed by `pack` into `floats` floats on first use, in so many parts that threads share; NULL where memory is short. */
typedef void fo_pack_part(const fo_conv2d *plan, ptrdiff_t part, float *packed);
const float *fo_conv2d_packed(const fo_conv2d *plan, fo_weight_form form, ptrdiff_t floats, ptrdiff_t parts, fo_pack_part *pack);

/* One input channel a group: depthwise.c. */
static inline bool fo_is_depthwise(const fo_conv2d *plan) { return plan->icg == 1 && plan->s.groups > 1; }
fo_status fo_depthwise_run(const fo_conv2d *plan, const fo_conv2d_size *z, const fo_image *x, const fo_image *r, const fo_image *y);

ptrdiff_t fo_depthwise_scratch(const fo_conv2d *plan, const fo_conv2d_size *z, bool nhwc);
const char *fo_depthwise_kernel(const fo_conv2d *plan, const fo_conv2d_size *z, bool nhwc);

/* The parts of g that follow from the plan, the memory order g->nhwc and all channels; false where memory is short. */
bool fo_depthwise_weights(const fo_conv2d *plan, fo_depthwise_args *g);

/* The weights as panels of a product whose rows are pixels, one group's after the other's; NULL where memory is short. */
const float *fo_conv2d_panels(const fo_conv2d *plan);

/* Several lines at once: steps of all products, the weights as rows fo_lines_ldw apart or as panels, and whether it is faster; it
 * depends on the sizes of an image alone. */
ptrdiff_t fo_lines_steps(const fo_conv2d *plan);
ptrdiff_t fo_lines_ldw(const fo_conv2d *plan);
const float *fo_lines_rows(const fo_conv2d *plan);
const float *fo_lines_panels(const fo_conv2d *plan);
bool fo_lines_pay(const fo_conv2d *plan, const fo_conv2d_size *z);

/* Two lines at once of a layer that begins a network: stem.c. */
bool fo_is_stem(const fo_conv2d *plan, const fo_conv2d_size *z);
fo_status fo_stem_run(const fo_conv2d *plan, const fo_conv2d_size *z, const fo_image *x, const fo_image *r, const fo_image *y);
ptrdiff_t fo_stem_scratch(const fo_conv2d *plan, const fo_conv2d_size *z);

/* By another convolution, of windows that are pixels or rows that are columns: rearranged.c. Creation fails where memory is short. */
bool fo_rearranged_create(fo_conv2d *plan);
bool fo_uses_rearranged(const fo_conv2d *plan, const fo_conv2d_size *z);
fo_status fo_rearranged_run(const fo_conv2d *plan, const fo_conv2d_size *z, const fo_image *x, const fo_image *r, const fo_image *y);
const char *fo_rearranged_kernel(const fo_conv2d *plan, const fo_conv2d_size *z, bool nhwc);
ptrdiff_t fo_rearranged_scratch(const fo_conv2d *plan, const fo_conv2d_size *z, bool nhwc);

/* Small or narrow images: patches.c. Which sizes of an image alone decide; of all products, the share that is left when those with rows and columns of zeros are not made. */
bool fo_uses_patches(const fo_conv2d *plan, const fo_conv2d_size *z);
double fo_patches_share(const fo_conv2d *plan, const fo_conv2d_size *z);
fo_status fo_patches_run(const fo_conv2d *plan, const fo_conv2d_size *z, const fo_image *x, const fo_image *r, const fo_image *y);
ptrdiff_t fo_patches_scratch(const fo_conv2d *plan, const fo_conv2d_size *z);

/* The epilogue of output channels from o on; residual's place is set by the caller. */
static inline fo_epilogue fo_conv2d_epilogue(const fo_conv2d *plan, ptrdiff_t o) {
    fo_epilogue ep = {.act = plan->s.act, .bias = plan->bias ? plan->bias + o : NULL};
    if (ep.act.slopes) ep.act.slopes += o;
    return ep;
}

/* Copies images of z->oh x z->ow pixels. */
fo_status fo_copy_image(const fo_image *to, const fo_image *from, const fo_conv2d_size *z, ptrdiff_t channels);

/* The strides of contiguous images of this size. */
static inline fo_image fo_contiguous(ptrdiff_t c, ptrdiff_t h, ptrdiff_t w, bool nhwc) {
    return nhwc ? (fo_image){.sc = 1, .sw = c, .sh = w * c, .sn = h * w * c} : (fo_image){.sw = 1, .sh = w, .sc = h * w, .sn = c * h * w};
}

static inline float *fo_at(const fo_image *t, ptrdiff_t n, ptrdiff_t c, ptrdiff_t h, ptrdiff_t w) {
    return t->data + n * t->sn + c * t->sc + h * t->sh + w * t->sw;
}

#endif
