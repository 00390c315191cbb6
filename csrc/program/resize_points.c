/* The points of a resized axis.
 *
 * They are computed in doubles, and those of nearest pixels rounded to floats first, as ONNX's reference does it. What
 * is outside the image becomes its border.
 */
#include <math.h>

#include "../include/fusedops/fusedops.h"

/* As in PyTorch and ONNX Runtime, the corners of both images meet with align_corners, where ONNX's reference takes
 * those of size * scale. */
static double point_of(const fo_resized_axis *a, double o) {
    const double x = (o + 0.5) / a->scale - 0.5, size = (double)a->size, out = (double)a->out;
    switch (a->transform) {
        case FO_ALIGN_CORNERS: return o * (size - 1) / (a->out > 1 ? out - 1 : 1);
        case FO_ASYMMETRIC: return o / a->scale;
        case FO_TF_HALF_PIXEL_FOR_NN: return (o + 0.5) / a->scale;
        case FO_PYTORCH_HALF_PIXEL: return a->out == 1 ? 0 : x;
        case FO_HALF_PIXEL_SYMMETRIC: return x + size / 2 * (1 - out / (a->scale * size));
        case FO_HALF_PIXEL: break;
    }
    return x;
}

static float rounded(fo_rounding rounding, float x) {
    switch (rounding) {
        case FO_ROUND_FLOOR: return floorf(x);
        case FO_ROUND_CEIL: return ceilf(x);
        case FO_ROUND_PREFER_FLOOR: return ceilf(x - 0.5f);
        default: return floorf(x + 0.5f);
    }
}

/* x between 0 and top; 0 for NaN, as of a scale of 0. */
static double within(double x, double top) { return x > 0 ? (x < top ? x : top) : 0; }

void fo_resize_points(const fo_resized_axis *a, int64_t *i0, int64_t *i1, float *t) {
    const ptrdiff_t last = a->size - 1;
    for (ptrdiff_t o = 0; o < a->out; o++) {
        const double x = point_of(a, (double)o);
        if (a->rounding != FO_BOTH_SIDES) {
            i0[o] = (int64_t)within((double)rounded(a->rounding, (float)x), (double)last);
            continue;
        }
        const double inside = within(x, (double)last);
        i0[o] = (int64_t)inside;
        i1[o] = i0[o] < last ? i0[o] + 1 : last;
        t[o] = (float)(inside - (double)i0[o]);
    }
}
