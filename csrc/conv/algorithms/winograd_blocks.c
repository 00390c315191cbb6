/* Blocks of tiles (winograd_blocks.h): how many, how large, and the kinds of tiles in one. */
#include "../../machine/tune.h"
#include "winograd_blocks.h"

/* Lower tiles count by their points: 64 channels at 56x56, whose last row of tiles is two
 * pixels high, on two threads 0.95 of the time. */
ptrdiff_t fo_winograd_first_tile(const winograd *w, ptrdiff_t i) {
    if (!w->even) return min_(i * w->block, w->tiles);
    const ptrdiff_t whole = fo_winograd_points(w->plan, w->tile), low = fo_winograd_points(w->plan, w->last_height);
    const ptrdiff_t image = w->across * (w->down * whole - whole + low);
    const ptrdiff_t at = w->z.n * image * i / w->blocks, inside = at % image;
    const ptrdiff_t row = min_(inside / (w->across * whole), w->down - 1);
    const ptrdiff_t points = row < w->down - 1 ? whole : low; /* of this row's tiles */
    return at / image * w->down * w->across + row * w->across + (inside - row * w->across * whole) / points;
}

/* Tiles of a block: as many as stay in the cache, in whole rows of an image where one fits; a product of few rows
 * would wait for its weights, so there are some more where channels are many, up to FO_WINOGRAD_MAX_BYTES. Threads
 * get equal numbers of blocks of their own, of up to 3/2 of that size rather than one round more, or share blocks
 * where those would be too small: fewer than FO_WINOGRAD_MIN_TILES_OF_A_THREAD, or FO_WINOGRAD_FEW_TILES where the
 * cache has the weights (64 channels at 7x7, two threads, 0.8 of the time). */
static void cut_blocks(winograd *w, int threads) {
    const ptrdiff_t bytes = w->positions * (w->ldv + w->ldp) * (ptrdiff_t)sizeof(float);
    const ptrdiff_t fitting = FO_L2_SHARE / bytes;
    const ptrdiff_t most = max_(1, FO_WINOGRAD_MAX_BYTES / bytes);
    w->block = min_(min_(max_(fitting, min_(FO_WINOGRAD_MIN_TILES, most)), FO_WINOGRAD_MAX_TILES), w->tiles);
    const ptrdiff_t unit = w->block < w->across ? 1 : w->across;
    w->blocks = div_up(w->tiles, w->block / unit * unit);
    /* of equal sizes: a few tiles that are left would wait for all weights */
    w->block = round_up(div_up(w->tiles, w->blocks), unit);
    w->blocks = div_up(w->tiles, w->block);
    /* the nearest */
    const ptrdiff_t each = w->block * threads, rounds = max_(1, div_up(2 * w->tiles - each, 2 * each));
    const ptrdiff_t own = min_(div_up(w->tiles, rounds * threads), most);
    const bool light = SQUARE(fo_winograd_values(w->plan, w->tile)) * w->plan->icg * w->plan->ocg * 4 <= FO_L2_SHARE;
    w->shared = threads > 1 && own < (light ? FO_WINOGRAD_FEW_TILES : FO_WINOGRAD_MIN_TILES_OF_A_THREAD);
    const bool even = threads > 1 && !w->shared && rounds < FO_WINOGRAD_MANY_ROUNDS;
    if (even) w->block = own;
    w->blocks = div_up(w->tiles, w->block);
    w->even = even && w->last_height < w->tile;
    for (ptrdiff_t i = 0; w->even && i < w->blocks; i++)
        w->block = max_(w->block, fo_winograd_first_tile(w, i + 1) - fo_winograd_first_tile(w, i));
    if (w->block > most) w->even = false, w->block = own;
}

void fo_winograd_setup(winograd *w, const fo_conv2d *plan, const fo_conv2d_size *whole, int tile, int threads) {
    const fo_kernels *kn = plan->kn;
    *w = (winograd){.plan = plan,
                    .whole = *whole,
                    .z = fo_winograd_phases(plan, whole),
                    .tile = tile,
                    .positions = SQUARE(fo_winograd_points(plan, tile))};
    const fo_conv2d_size *z = &w->z;
    w->last_height = fo_winograd_last(z->oh, tile), w->last_width = fo_winograd_last(z->ow, tile);
    w->across = div_up(z->ow, tile), w->down = div_up(z->oh, tile), w->tiles = z->n * w->down * w->across;
    w->ldv = fo_leading(kn, SQUARE(plan->s.sh) * fo_winograd_phase_floats(plan)), w->ldp = fo_leading(kn, plan->ocg);
    cut_blocks(w, (int)div_up(threads, plan->s.groups));
    w->v_position = fo_winograd_stride(w->block * w->ldv), w->p_position = fo_winograd_stride(w->block * w->ldp);
    w->each = w->positions * (w->v_position + w->p_position);
    const ptrdiff_t runs = min_(w->block, (w->block - 1) / w->across + 2);
    const ptrdiff_t mid_row = fo_winograd_stride((w->block * tile + 2 * runs) * max_(w->ldv, w->ldp));
    const ptrdiff_t each = fo_winograd_points(plan, tile) * (w->v_position + w->p_position) + (tile + 2) * mid_row;
    w->by_rows = !w->shared && plan->s.sh == 1 && each * (ptrdiff_t)sizeof(float) <= FO_WINOGRAD_MAX_BYTES;
    if (w->by_rows) w->each = each, w->mid_row = mid_row;
}

tile_run fo_winograd_next_run(const winograd *w, ptrdiff_t t, ptrdiff_t tiles, ptrdiff_t *next) {
    const ptrdiff_t row = t / w->across, column = t % w->across, count = min_(tiles, w->across - column);
    const bool low = row % w->down == w->down - 1 && w->last_height < w->tile;
    const bool narrow = column + count == w->across && w->last_width < w->tile;
    const tile_run r = {row / w->down,
                        row % w->down * w->tile,
                        column * w->tile,
                        low ? w->last_height : w->tile,
                        narrow ? w->last_width : 0,
                        count - narrow,
                        next[low ? LOW : WHOLE],
                        next[low ? CORNER : NARROW]};
    next[low ? LOW : WHOLE] += r.whole, next[low ? CORNER : NARROW] += narrow;
    return r;
}

tile_block fo_winograd_block(const winograd *w, ptrdiff_t group, ptrdiff_t t0, ptrdiff_t tiles) {
    tile_block b = {group, t0, tiles, {0}};
    for (ptrdiff_t t = 0; t < b.tiles;) {
        const tile_run r = fo_winograd_next_run(w, t0 + t, b.tiles - t, b.from + 1);
        t += r.whole + (r.last > 0);
    }
    for (int kind = 0; kind < KINDS; kind++) b.from[kind + 1] += b.from[kind];
    return b;
}
