/* Walking over the axes of fo_axes. */
#ifndef FO_AXES_H
#define FO_AXES_H

#include "../dispatch/isa.h"

/* Points of the first nd axes. */
static inline ptrdiff_t fo_points(const fo_axes *a, int nd) {
    ptrdiff_t points = 1;
    for (int d = 0; d < nd; d++) points *= a->size[d];
    return points;
}

/* Offsets of point i of the first nd axes in each tensor. */
static inline void fo_offsets(const fo_axes *a, int nd, ptrdiff_t i, ptrdiff_t offset[FO_TENSORS]) {
    for (int t = 0; t < FO_TENSORS; t++) offset[t] = 0;
    for (int d = nd - 1; d >= 0; d--) {
        const ptrdiff_t at = i % a->size[d];
        i /= a->size[d];
        for (int t = 0; t < FO_TENSORS; t++) offset[t] += at * a->stride[t][d];
    }
}

/* Whether all indices, the tensor t of these axes, are in -size..size-1. */
bool fo_are_inside(const fo_axes *axes, int t, const int64_t *indices, ptrdiff_t size);

/* Floats of `packed` for a product by columns of an A whose columns are contiguous (kernels/gemm/gemv_dot.h). */
static inline ptrdiff_t fo_dots_scratch(const fo_kernels *kn) {
    return 3 * FO_DOT_COLUMNS * FO_DOT_LANES * FO_DOT_LANES * kn->vl;
}

#endif
