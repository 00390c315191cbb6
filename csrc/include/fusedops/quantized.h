/* fusedops: tensors of int8, products of bfloat16, and what layers take in each type. */
#ifndef FO_QUANTIZED_H
#define FO_QUANTIZED_H

#include "layers.h"

/* y = saturate(round(x / scale) + zero_point), halves to even, and x = scale * (y - zero_point): `rows` rows of n
 * elements, each with a scale and a zero point of its own. NaN becomes the lowest value. */
void fo_quantize(ptrdiff_t rows, ptrdiff_t n, const float *x, const float *scale, const int32_t *zero_point,
                 fo_dtype type, void *y);
void fo_dequantize(ptrdiff_t rows, ptrdiff_t n, const void *x, const float *scale, const int32_t *zero_point,
                   fo_dtype type, float *y);

/* Whether the set in use has a dot product of int8, and whether AMX takes its place in large products. */
bool fo_has_dot_product(void);
bool fo_multiplies_by_amx(void);

/* What a layer of int8 is made of, besides int8 weights: a scale for each output, bias and zero points of weights, or
 * NULL. x of floats: each row gets the quantization that fits its least and largest element, or all of them one
 * (whole). y of floats has the results as they are. */
typedef struct {
    const float *w_scale, *bias;
    const int8_t *w_zero;
    /* for each output; NULL: nothing. Products and bias, a whole number of sums, are times a multiplier of 31 bits and
     * rounded twice: half of the last bit of the first rounding, in units of what `product` or y is rounded to */
    const float *nudge;
    fo_quantization x, residual, y;
    /* of uint8: what a product with its bias is rounded to before a residual of bytes is added; scale 0: nothing */
    fo_quantization product;
    fo_activation act;
    bool whole;
} fo_quantized;

/* Most products in a sum, and where weights have zero points: more may not fit 32 bits. */
#define FO_Q_STEPS (INT32_MAX / (UINT8_MAX * -INT8_MIN))
#define FO_Q_STEPS_OF_ZEROS (INT32_MAX / (UINT8_MAX * UINT8_MAX))

/* fo_linear of int8: w element (j, p) is at w[j*wn + p*wk]. */
fo_linear *fo_linear_create_int8(ptrdiff_t n, ptrdiff_t k, const int8_t *w, ptrdiff_t wn, ptrdiff_t wk,
                                 const fo_quantized *q);

/* A convolution in int8, for fo_conv2d_run_as: w int8; what is outside an image is x's zero point. x of floats is
 * quantized by the range of all. shape->algorithm and nhwc do not count; any strides do. */
fo_conv2d *fo_conv2d_create_int8(const fo_conv2d_shape *shape, const int8_t *w, const fo_quantized *q);

/* What layers take here on one thread with products of a type, FO_F32, FO_BF16 (INFINITY where these are multiplied in
 * float32) or FO_S8, and elements between float32 and that type, from shapes alone. Only their ratios count. A
 * convolution in float32 has the cost of the algorithm that its plan would choose, which needs no weights. */
double fo_linear_nanoseconds(fo_dtype type, ptrdiff_t m, ptrdiff_t n, ptrdiff_t k);
double fo_conv2d_nanoseconds(const fo_conv2d *plan, const fo_conv2d_size *size);
double fo_conv2d_nanoseconds_as(fo_dtype type, const fo_conv2d_shape *shape, const fo_conv2d_size *size);
double fo_convert_nanoseconds(fo_dtype type, ptrdiff_t elements);

#endif
