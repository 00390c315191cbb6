/* Which tiles are in which block of a Winograd convolution, and where they are in V and M. */
#ifndef FO_WINOGRAD_BLOCKS_H
#define FO_WINOGRAD_BLOCKS_H

#include "winograd_tiles.h"

/* A smaller tile has the first positions of its row or column alone (kernels/winograd/). Tiles stand in this order,
 * and so those of any position are contiguous: narrow ones of whole rows, whole tiles, tiles of a lower row, the one
 * that is both. */
enum { NARROW, WHOLE, LOW, CORNER, KINDS };

typedef struct {
    ptrdiff_t group, t0, tiles, from[KINDS + 1]; /* where each kind begins */
} tile_block;

typedef struct {
    const fo_conv2d *plan;
    fo_conv2d_size whole, z; /* of the images, and of a dilation's phases as images */
    fo_image x, y, r;        /* r.data is NULL where there is no residual */
    int tile;
    ptrdiff_t positions;
    int last_height, last_width;   /* of the tiles in an image's last row and in its last column */
    ptrdiff_t across, down, tiles; /* of an image; of all images */
    ptrdiff_t block, blocks;       /* tiles of a block; blocks */
    ptrdiff_t ldv, ldp;            /* distance of two tiles in V and in M */
    ptrdiff_t v_position, p_position;
    ptrdiff_t mid_row; /* distance of two rows of mid, which hold all tiles of a block */
    const float *u;
    float *scratch;
    ptrdiff_t each; /* floats of a block's V and M, and mid */
    bool shared;    /* all threads work on one block */
    bool even;      /* blocks have equal work, not equal numbers of tiles */
    bool by_rows;   /* V and M are those of one row of positions */
    bool planes;    /* images go by way of copies */
    tile_block shared_block;
} winograd;

/* Neighbors in a row of tiles: `whole` of them, and a narrow one of `last` columns unless that is 0. */
typedef struct {
    ptrdiff_t n, h, q; /* image, first row and column */
    int height, last;
    ptrdiff_t whole, slot, last_slot; /* their places in V and M */
} tile_run;

/* Cuts a call's tiles into blocks, of equal work for threads; x, y, r, u and scratch are left to the caller. */
void fo_winograd_setup(winograd *w, const fo_conv2d *plan, const fo_conv2d_size *whole, int tile, int threads);
/* The first tile of block i. */
ptrdiff_t fo_winograd_first_tile(const winograd *w, ptrdiff_t i);
tile_block fo_winograd_block(const winograd *w, ptrdiff_t group, ptrdiff_t t0, ptrdiff_t tiles);
/* The run from tile t on, of `tiles` at most; kinds go on from next[]. */
tile_run fo_winograd_next_run(const winograd *w, ptrdiff_t t, ptrdiff_t tiles, ptrdiff_t *next);

#endif
