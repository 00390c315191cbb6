/* Folding of axes, so that an operation walks over few long ones. */
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
