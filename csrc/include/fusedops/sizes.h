/* fusedops: what follows from the sizes of a network's inputs: memory, numbers, and the points of an image of another
 * size. */
#ifndef FO_SIZES_H
#define FO_SIZES_H

#include "types.h"

/* A buffer of a network's arena: it is in use from step `first` to step `last`. */
typedef struct {
    ptrdiff_t bytes, first, last, offset;
} fo_lifetime;
/* Gives each buffer its offset; returns the bytes of the arena, -1 where there is no memory to lay it out. */
ptrdiff_t fo_lay_out(fo_lifetime *buffers, ptrdiff_t n);

/* An integer that follows from earlier ones (a and b are their numbers), a constant a, the a-th given; or a
 * condition. */
typedef enum {
    FO_SIZE_CONSTANT,
    FO_SIZE_GIVEN,
    FO_SIZE_ADD,
    FO_SIZE_SUBTRACT,
    FO_SIZE_MULTIPLY,
    FO_SIZE_DIVIDE,
    FO_SIZE_REMAINDER,
    FO_SIZE_SCALE, /* the whole part of a times b, the bits of a float, as a float */
    FO_SIZE_EQUAL,
    FO_SIZE_UNEQUAL,
    FO_SIZE_LESS,
    FO_SIZE_AT_MOST
} fo_formula_kind;
typedef struct {
    int64_t kind, a, b;
} fo_formula;
/* Computes n values, division as in Python. Returns whether all conditions hold and nothing overflows. */
bool fo_formulas_run(const fo_formula *formulas, ptrdiff_t n, const int64_t *given, int64_t *values);

/* Where the points of an axis of a resized image lie in the image, and which pixels are taken: ONNX's
 * coordinate_transformation_mode and nearest_mode, or those on both sides. */
#define FO_EACH_TRANSFORM(X)                         \
    X(HALF_PIXEL, "half_pixel")                      \
    X(HALF_PIXEL_SYMMETRIC, "half_pixel_symmetric")  \
    X(PYTORCH_HALF_PIXEL, "pytorch_half_pixel")      \
    X(ALIGN_CORNERS, "align_corners")                \
    X(ASYMMETRIC, "asymmetric")                      \
    X(TF_HALF_PIXEL_FOR_NN, "tf_half_pixel_for_nn")
#define FO_EACH_ROUNDING(X)                          \
    X(ROUND_FLOOR, "floor")                          \
    X(ROUND_CEIL, "ceil")                            \
    X(ROUND_PREFER_FLOOR, "round_prefer_floor")      \
    X(ROUND_PREFER_CEIL, "round_prefer_ceil")        \
    X(BOTH_SIDES, "linear")
typedef enum { FO_EACH_TRANSFORM(FO_MEMBER) } fo_transform;
typedef enum { FO_EACH_ROUNDING(FO_MEMBER) } fo_rounding;

/* An axis of `size` >= 1 pixels that becomes one of `out`, whose points are 1 / scale apart. */
typedef struct {
    fo_transform transform;
    fo_rounding rounding;
    double scale;
    ptrdiff_t size, out;
} fo_resized_axis;
/* The points (1 - t[o]) x[i0[o]] + t[o] x[i1[o]]; where they are nearest pixels x[i0[o]] alone. */
void fo_resize_points(const fo_resized_axis *axis, int64_t *i0, int64_t *i1, float *t);

#endif
