/* The plan of a convolution: its weights, in the forms into which algorithms pack them, and helpers for images. It
 * knows no algorithm. */
#ifndef FO_PLAN_H
#define FO_PLAN_H

#include <stdatomic.h>

#include "../matmul/packing.h"

/* The forms in which algorithms want the weights, with the names by which fo_conv2d_memory tells them; each is packed
 * when it is first used. */
#define FO_EACH_WEIGHT_FORM(X) \
    X(ROWS_OF_PANELS, "rows") \
    X(PANELS, "direct, panels") \
    X(DEPTHWISE_TAPS, "depthwise, channels as lanes") \
    X(WINOGRAD_2, "winograd, 2x2 pixels") \
    X(WINOGRAD_4, "winograd, 4x4 pixels") \
    X(WINOGRAD_6, "winograd, 6x6 pixels") \
    X(WINOGRAD1D_ROWS, "winograd1d, rows") \
    X(WINOGRAD1D_PANELS, "winograd1d, panels") \
    X(IM2COL_PANELS, "im2col, panels")
typedef enum { FO_EACH_WEIGHT_FORM(FO_MEMBER) FO_WEIGHT_FORMS } fo_weight_form;

/* It is constant, but for what it caches: packed weights and prepared calls. The processor and the active set count
 * when it is made, not later. */
struct fo_conv2d {
    const fo_kernels *kn;
    fo_dtype type; /* of the weights */
    const char *isa;
    bool half_rate; /* of the multiply-adds of kn */
    fo_conv2d_shape s;
    ptrdiff_t icg, ocg; /* channels of a group */
    ptrdiff_t k, ldw;   /* length of a reduction; distance of two output channels in w */
    union {             /* (oc, k): a row in the order of FOR_EACH_TAP; NULL where panels alone are kept */
        float *w;       /* FO_F32 */
        uint16_t *w_16; /* a type of 16 bits */
    };
    float *bias, *slopes;
    struct fo_prepared *prepared; /* the chooser's (choose.c), or NULL */
    struct fo_qconv2d *q;         /* FO_S8 and FO_BF16: what is packed of the weights (int8/qconv_plan.c); else NULL */
    fo_conv2d *wide;              /* depthwise of FO_BF16: a convolution of the rounded weights in float32
                        (rounded_depthwise.c) */
    _Atomic(float *) packed[FO_WEIGHT_FORMS];
    _Atomic ptrdiff_t bytes[FO_WEIGHT_FORMS]; /* of each */
};

/* The reduction runs over blocks of CHANNEL_BLOCK channels, in a block over kh, kw and then the block's channels:
 * neighbors in memory stay neighbors in time for NCHW and NHWC alike, and every form of the direct algorithm has
 * the same order and bits. */
enum { CHANNEL_BLOCK = 16 };

/* Steps p of the reduction, a block of channels c0.. at a time: kernel row i and column j. */
#define FOR_EACH_TAP(plan, p, c0, i, j) \
    for (ptrdiff_t p = 0, c0 = 0; c0 < (plan)->icg; c0 += CHANNEL_BLOCK) \
        for (ptrdiff_t i = 0; i < (plan)->s.kh; i++) \
            for (ptrdiff_t j = 0; j < (plan)->s.kw; j++, p += min_(CHANNEL_BLOCK, (plan)->icg - c0))

/* NULL where memory is short. The second one has the weights of another plan, which outlives it, for a shape in which
 * they stand in the same order. */
fo_conv2d *fo_plan_new(const fo_conv2d_shape *shape, fo_dtype type); /* without weights */
/* qconv.c: of FO_S8, or FO_BF16, which q gives a bias and an activation alone. */
fo_conv2d *fo_qconv2d_plan(const fo_conv2d_shape *shape, fo_dtype type, const void *w, const fo_quantized *q);
fo_conv2d *fo_plan_create(const fo_conv2d_shape *shape, const fo_weights *w, const double *scale, const float *bias);
/* rounded_depthwise.c: of depthwise bfloat16, still without its `wide`; and the weights of that, which are the caller's
 * to free. */
fo_conv2d *fo_rounded_plan(const fo_conv2d_shape *shape);
float *fo_widened_weights(const fo_conv2d *plan, const uint16_t *w);
fo_conv2d *fo_plan_share(const fo_conv2d *plan, const fo_conv2d_shape *shape);
void fo_plan_free(fo_conv2d *plan);                   /* but for `wide` and `q` */
void fo_plan_weights(const fo_conv2d *plan, void *w); /* as they came */
void fo_plan_free_shared(fo_conv2d *plan);
void fo_qconv2d_free(struct fo_qconv2d *q);
ptrdiff_t fo_qconv2d_bytes(const struct fo_qconv2d *q);        /* of the weights */
bool fo_qconv2d_weights(const struct fo_qconv2d *q, float *w); /* of FO_BF16, back again, widened */

/* The weights in one form, packed by `pack` into `floats` floats on first use, in so many parts that threads share;
 * NULL where memory is short. */
typedef void fo_pack_part(const fo_conv2d *plan, const void *context, ptrdiff_t part, float *packed);
const float *fo_conv2d_packed(const fo_conv2d *plan, fo_weight_form form, ptrdiff_t floats, ptrdiff_t parts,
                              fo_pack_part *pack, const void *context);

/* The weights as rows, out of panels where these alone are kept; NULL where memory is short. Packers find them in the
 * plan that they are given. */
const float *fo_conv2d_rows(const fo_conv2d *plan);

/* The weights as panels of a product whose rows are pixels, one group's after the other's; NULL where memory is
 * short. */
const float *fo_conv2d_panels(const fo_conv2d *plan);

/* Weights of 16 bits: how many floats they are as rows or as panels, and the same widened by so many threads; false
 * where memory is short. */
ptrdiff_t fo_conv2d_wide_size(const fo_conv2d *plan, bool rows);
bool fo_conv2d_widen(const fo_conv2d *plan, bool rows, int threads, float *to);

/* One input channel a group. */
static inline bool fo_is_depthwise(const fo_conv2d *plan) { return plan->icg == 1 && plan->s.groups > 1; }

/* A pixel of the result for each of x, which it alone reads. */
static inline bool fo_is_pixelwise(const fo_conv2d_shape *s) {
    return s->kh == 1 && s->kw == 1 && s->sh == 1 && s->sw == 1;
}
static inline bool fo_is_unpadded(const fo_conv2d_size *z) {
    return !z->top && !z->left && z->oh == z->ih && z->ow == z->iw;
}

/* The epilogue of output channels from o on; residual's place is set by the caller. */
static inline fo_epilogue fo_conv2d_epilogue(const fo_conv2d *plan, ptrdiff_t o) {
    fo_epilogue ep = {.act = plan->s.act, .bias = plan->bias ? plan->bias + o : NULL};
    if (ep.act.slopes) ep.act.slopes += o;
    return ep;
}

/* ---- images ------------------------------------------------------------------------------------------------------ */

/* Whether an image is so large with its zeros (by strides of 0, by huge padding) that sizes computed of it may not fit
 * 64 bits. */
bool fo_is_huge(const fo_conv2d *plan, const fo_conv2d_size *z);

/* Copies images of z->oh x z->ow pixels. */
fo_status fo_copy_image(const fo_image *to, const fo_image *from, const fo_conv2d_size *z, ptrdiff_t channels);

/* The strides of contiguous images of this size. */
static inline fo_image fo_contiguous(ptrdiff_t c, ptrdiff_t h, ptrdiff_t w, bool nhwc) {
    return nhwc ? (fo_image){.sc = 1, .sw = c, .sh = w * c, .sn = h * w * c}
                : (fo_image){.sw = 1, .sh = w, .sc = h * w, .sn = c * h * w};
}

static inline float *fo_at(const fo_image *t, ptrdiff_t n, ptrdiff_t c, ptrdiff_t h, ptrdiff_t w) {
    return t->data + n * t->sn + c * t->sc + h * t->sh + w * t->sw;
}

/* Rows of so many output rows' windows. */
static inline ptrdiff_t fo_window_rows(const fo_conv2d_shape *s, ptrdiff_t rows) {
    return (rows - 1) * s->sh + (s->kh - 1) * s->dh + 1;
}

#endif
