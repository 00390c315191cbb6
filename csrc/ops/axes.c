/* Folding of axes, so that an operation walks over few long ones; indices along them. */
#include "axes.h"

static ptrdiff_t magnitude(ptrdiff_t stride) { return stride < 0 ? -stride : stride; }

static void drop(fo_axes *a, int d) {
    a->nd--;
    for (; d < a->nd; d++) {
        a->size[d] = a->size[d + 1];
        for (int t = 0; t < FO_TENSORS; t++) a->stride[t][d] = a->stride[t][d + 1];
    }
}

static void swap(fo_axes *a, int d, int e) {
    for (int t = -1; t < FO_TENSORS; t++) {
        ptrdiff_t *const row = t < 0 ? a->size : a->stride[t], v = row[d];
        row[d] = row[e];
        row[e] = v;
    }
}

/* Whether axes d and d + 1 are one axis in every tensor. */
static bool joined(const fo_axes *a, int d) {
    for (int t = 0; t < FO_TENSORS; t++)
        if (a->stride[t][d] != a->size[d + 1] * a->stride[t][d + 1]) return false;
    return true;
}

void fo_fold(fo_axes *a) {
    for (int d = a->nd - 1; d >= 0; d--)
        if (a->size[d] == 1) drop(a, d);
    for (int d = 1; d < a->nd; d++) /* insertion keeps the order of equals */
        for (int e = d; e > 0 && magnitude(a->stride[0][e - 1]) < magnitude(a->stride[0][e]); e--) swap(a, e - 1, e);
    for (int d = a->nd - 2; d >= 0; d--)
        if (joined(a, d)) {
            a->size[d + 1] *= a->size[d];
            drop(a, d);
        }
    if (!a->nd) {
        a->nd = 1;
        a->size[0] = 1;
        for (int t = 0; t < FO_TENSORS; t++) a->stride[t][0] = 0;
    }
}

/* The signs of n numbers k + size and size - 1 - k: no comparison, so that the compiler makes vectors. A k + size
 * beyond 64 bits is negative. */
static uint64_t signs(ptrdiff_t n, const int64_t *indices, ptrdiff_t step, uint64_t size) {
    uint64_t bad = 0;
    if (step == 1)
        for (ptrdiff_t j = 0; j < n; j++) {
            const uint64_t wrapped = (uint64_t)indices[j] + size;
            bad |= wrapped | (2 * size - 1 - wrapped);
        }
    else
        for (ptrdiff_t j = 0; j < n; j++) {
            const uint64_t wrapped = (uint64_t)indices[j * step] + size;
            bad |= wrapped | (2 * size - 1 - wrapped);
        }
    return bad;
}

bool fo_are_inside(const fo_axes *axes, int t, const int64_t *indices, ptrdiff_t size) {
    fo_axes found = {.nd = 0}; /* the axes along which indices differ */
    for (int d = 0; d < axes->nd; d++)
        if (axes->stride[t][d]) {
            found.size[found.nd] = axes->size[d];
            found.stride[0][found.nd++] = axes->stride[t][d];
        }
    const int last = max_(found.nd - 1, 0);
    const ptrdiff_t n = found.nd ? found.size[last] : 1, step = found.stride[0][last];
    const ptrdiff_t rows = fo_points(axes, axes->nd) ? fo_points(&found, last) : 0;
    uint64_t bad = 0;
    for (ptrdiff_t i = 0; i < rows; i++) {
        ptrdiff_t offset[FO_TENSORS];
        fo_offsets(&found, last, i, offset);
        bad |= signs(n, indices + offset[0], step, (uint64_t)size);
    }
    return !(bad >> 63);
}
