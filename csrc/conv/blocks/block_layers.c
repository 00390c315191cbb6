/* Depthwise-separable blocks as their layers, one after the other, the images between them in scratch; and when that is
 * faster than one pass. */
#include "../../machine/tune.h"
#include "block.h"

typedef struct {
    const fo_separable *block;
    const fo_conv2d_size *size;
    fo_image x, r, y, e, d;
    fo_status status;
} layers;

static void run_layers(void *context) {
    layers *l = context;
    FO_RAN("conv block layers");
    const fo_conv2d_size *z = l->size, before = {.n = z->n, .ih = z->ih, .iw = z->iw, .oh = z->ih, .ow = z->iw};
    const fo_conv2d_size after = {.n = z->n, .ih = z->oh, .iw = z->ow, .oh = z->oh, .ow = z->ow};
    l->status = l->block->expand ? fo_conv2d_run(l->block->expand, &before, &l->x, NULL, &l->e) : FO_OK;
    if (!l->status) l->status = fo_conv2d_run(l->block->depthwise, z, l->block->expand ? &l->e : &l->x, NULL, &l->d);
    if (!l->status) l->status = fo_conv2d_run(l->block->pointwise, &after, &l->d, l->r.data ? &l->r : NULL, &l->y);
}

static double image_bytes(const fo_separable *block, const fo_conv2d_size *z) {
    return (double)sizeof(float) * block->depthwise->s.ic *
           ((double)z->oh * z->ow + (block->expand ? (double)z->ih * z->iw : 0));
}

fo_status fo_separable_layers(const fo_separable *block, const fo_conv2d_size *z, const fo_image *x, const fo_image *r,
                              const fo_image *y) {
    const fo_conv2d_shape *d = &block->depthwise->s;
    const bool pixels = x->sc == 1 && (x->sw != 1 || y->sc == 1);
    if (fo_block_is_empty(block, z)) return FO_OK;
    if (fo_is_huge(block->depthwise, z) || z->n * image_bytes(block, z) > 0x1p60) return FO_NO_MEMORY;
    layers l = {.block = block,
                .size = z,
                .x = *x,
                .y = *y,
                .e = fo_contiguous(d->ic, z->ih, z->iw, pixels),
                .d = fo_contiguous(d->ic, z->oh, z->ow, pixels)};
    if (r) l.r = *r;
    const ptrdiff_t floats = block->expand ? z->n * l.e.sn : 0;
    float *scratch = fo_arena_take((size_t)(floats + z->n * l.d.sn) * sizeof *scratch + 2 * FO_PAGE);
    if (!scratch) return FO_NO_MEMORY;
    /* Each image where a result of the one before would be for a caller; but D of x halfway to y, which will be
     * there. */
    if (block->expand) l.e.data = fo_place_in(scratch, x->data, FO_AFTER);
    l.d.data =
        block->expand ? fo_place_in(l.e.data + floats, l.e.data, FO_AFTER) : fo_place_in(scratch, x->data, FO_BETWEEN);
    if (fo_threads_for(fo_block_nanoseconds(block, z)) > 1)
        fo_parallel_region(run_layers, &l);
    else
        run_layers(&l);
    fo_arena_release(scratch);
    return l.status;
}

bool fo_separable_pays(const fo_separable *block, const fo_conv2d_size *z, bool nhwc) {
    if (!fo_block_is_float32(block)) return false;
    const double image = image_bytes(block, z), rate = block->depthwise->half_rate ? FO_BLOCK_AT_HALF_RATE : 1;
    if (image <= rate * (nhwc ? FO_L2_ALL : FO_L3_PIECE)) return false;
    if (image <= (double)FO_BLOCK_BYTES_AN_OUTPUT * block->pointwise->s.oc) return false;
    /* Of the images that an image is to a dilated kernel a tile has few rows: 256 -> 1024 -> 256 channels at 33x33,
     * dilation 2, 14.6 ms, layers 10.3. */
    return block->depthwise->s.dh == 1 && block->depthwise->s.dw == 1;
}
