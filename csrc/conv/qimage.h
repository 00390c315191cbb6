/* Images of bytes or floats in any order of memory. */
#ifndef FO_CONV_QIMAGE_H
#define FO_CONV_QIMAGE_H

#include "../net/bytes.h"
#include "../pack.h"

/* h x w pixels of n images of c channels. */
typedef struct {
    ptrdiff_t n, c, h, w;
} fo_byte_extent;

/* Whether pixels have a distance of `ld` elements throughout, their channels neighbours. */
bool fo_byte_uniform(const fo_image *x, fo_byte_extent e, ptrdiff_t *ld);
void fo_byte_move(const fo_byte_kernels *kn, fo_byte_extent e, fo_dtype type, const fo_image *from, const fo_image *to);

/* Floats in any order as bfloat16, channels last; FO_NO_MEMORY where memory is short. */
fo_status fo_byte_round(const fo_byte_kernels *kn, fo_byte_extent e, const fo_image *from, const fo_image *to);

/* Contiguous pixels at `to`. */
static inline fo_image fo_byte_pixels(void *to, fo_byte_extent e) {
    return (fo_image){to, e.h * e.w * e.c, 1, e.w * e.c, e.c};
}
/* Of an image, in whole lines. */
static inline ptrdiff_t fo_byte_room(fo_byte_extent e, fo_dtype type) {
    return round_up(e.n * e.c * e.h * e.w * fo_size(type), 64);
}

#endif
