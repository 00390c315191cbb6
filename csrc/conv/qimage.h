/* Images of bytes or floats in any order of memory. */
#ifndef FO_CONV_QIMAGE_H
#define FO_CONV_QIMAGE_H

#include "../matmul/product.h"

/* h x w pixels of n images of c channels. */
typedef struct {
    ptrdiff_t n, c, h, w;
} fo_qextent;

/* Whether pixels have a distance of `ld` elements throughout, their channels neighbors. */
bool fo_quniform(const fo_image *x, fo_qextent e, ptrdiff_t *ld);
/* Whether they have it inside a row, and all rows of all images have a distance of `line`, which is not 0. */
bool fo_qlines(const fo_image *x, fo_qextent e, ptrdiff_t *ld, ptrdiff_t *line);
void fo_qmove(fo_qextent e, fo_dtype type, const fo_image *from, const fo_image *to);

/* Where channels and pixels of a row are: elements from one to the next. */
typedef struct {
    ptrdiff_t c, w;
} fo_qsteps;

/* Pixels of c channels, of elements of so many bytes. */
void fo_qmove_pixels(const fo_kernels *kn, ptrdiff_t size, ptrdiff_t c, ptrdiff_t pixels, const void *x, fo_qsteps from,
                     void *y, fo_qsteps to);
/* Floats as bfloat16, to pixels next to one another; near: c * pixels floats of scratch. */
void fo_qround_pixels(const fo_kernels *kn, ptrdiff_t c, ptrdiff_t pixels, const float *x, fo_qsteps from, float *near,
                      uint16_t *y);

/* Floats in any order as bfloat16, channels last; FO_NO_MEMORY where memory is short. */
fo_status fo_qround(fo_qextent e, const fo_image *from, const fo_image *to);

/* Contiguous pixels at `to`. */
static inline fo_image fo_qpixels(void *to, fo_qextent e) { return (fo_image){to, e.h * e.w * e.c, 1, e.w * e.c, e.c}; }
/* Of an image, in whole lines. */
static inline ptrdiff_t fo_qroom(fo_qextent e, fo_dtype type) {
    return round_up(e.n * e.c * e.h * e.w * fo_size(type), 64);
}

#endif
