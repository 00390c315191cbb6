/* How floats become int8 by their range, and how kernels take int8. */
#ifndef FO_RANGES_H
#define FO_RANGES_H

#include "../dispatch/isa.h"

/* How floats become uint8: 255 steps from the least to the largest and zero among them, as ONNX says. Where one is not
 * finite, scale is NaN, and so is all that comes of them. */
typedef struct {
    float step, scale;
    int32_t zero_point;
} fo_qrange;
fo_qrange fo_qrange_of(const fo_kernels *kn, ptrdiff_t n, const float *x);
/* Of m rows of n floats, on all threads; false where memory is short. */
bool fo_qrange_of_rows(const fo_kernels *kn, ptrdiff_t m, ptrdiff_t n, const float *x, ptrdiff_t ldx, fo_qrange *range);
/* n floats as uint8 by the range of all, on all threads; false where memory is short. */
bool fo_qby_range(ptrdiff_t n, const float *x, uint8_t *bytes, fo_qrange *range);

/* Kernels take int8 as x ^ flip, whose zero point is x's + offset; bfloat16, and floats that become it, as they are. */
static inline uint8_t fo_qflip(const fo_kernels *kn, fo_dtype type) {
    return fo_size(type) == 1 && (type == FO_S8) != kn->is_signed ? 0x80 : 0;
}
static inline int32_t fo_qoffset(const fo_kernels *kn, fo_dtype type) {
    return fo_size(type) > 1 ? 0 : (type == FO_S8 ? 128 : 0) - (kn->is_signed ? 128 : 0);
}

#endif
