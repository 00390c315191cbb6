/* fusedops: what its functions take and return: a status, activations, weights, images. */
#ifndef FO_TYPES_H
#define FO_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "activations.h"
#include "dtype.h"

typedef enum { FO_OK, FO_NO_MEMORY, FO_OUTSIDE } fo_status;

#define FO_KIND(with, kind, name, value) kind,
typedef enum { FO_EACH_ACTIVATION(FO_KIND, ) FO_ACTIVATIONS } fo_act_kind;
#undef FO_KIND
const char *fo_activation_name(fo_act_kind kind);

typedef struct {
    fo_act_kind kind;
    float p0, p1;
    const float *slopes; /* FO_PRELU: one a channel; a plan keeps a copy */
} fo_activation;

/* Weights of float32 or float16, which stay so and are widened, exactly, where they are read. */
typedef struct {
    const void *data;
    fo_dtype type;
} fo_weights;

/* Products of up to so many columns, and of many steps, may be dot products, whose sums have an order of their own. */
enum { FO_DOT_COLUMNS = 8 };

/* Weights of 4 or 8 bits, which stay so: column j of step p is (q - zero) * scale, where zero and scale are those of a
 * block of steps, a multiple of 8. Words hold 32 / bits numbers, the first one in the lowest bits: q those of
 * consecutive steps, zeros those of consecutive blocks. All three come in panels of FO_BLOCKWISE_COLUMNS columns, the
 * last one padded: word, or scale, i of column j is element [j / 32][i][j % 32]. */
enum { FO_BLOCKWISE_COLUMNS = 32 };
typedef struct {
    int bits;
    ptrdiff_t block, blocks; /* steps of a block; blocks of a column */
    const uint32_t *q, *zeros;
    const float *scales;
} fo_blockwise;

/* A batch of images: element (n, c, h, w) stands at data[n*sn + c*sc + h*sh + w*sw], a float, or of another type where
 * a call has types. */
typedef struct {
    float *data;
    ptrdiff_t sn, sc, sh, sw;
} fo_image;

/* real = scale * (q - zero_point). scale 0: a tensor of floats. */
typedef struct {
    float scale;
    int32_t zero_point;
} fo_quantization;

#endif
