/* The weights of Winograd's F(m x m, 3x3): U[position] = (G g G^T)[position] as panels of a product. */
#include "winograd_tiles.h"

#include <string.h>

enum { MAX_NR = 64 };    /* columns of a register tile, with any instruction set */
enum { MAX_VALUES = 9 }; /* of a tile along an axis */

/* Of stride 2: the point of a value; those of odd pixels stand after those of even ones. */
static int point_of(int m, int value) {
    return value <= m ? value : value - (m + 1) + (value - (m + 1) >= FO_SINGLE_POINT);
}

/* Stride 2: channel c's weights for nr output channels from o on. */
static void pack_phases(const fo_conv2d *plan, int tile, const float *g, ptrdiff_t o, ptrdiff_t c, float *packed) {
    const ptrdiff_t nr = plan->kn->nr, channels = fo_winograd_phase_floats(plan);
    const int values = fo_winograd_values(plan, tile);
    float u[MAX_VALUES * MAX_VALUES * MAX_NR], *from = u;
    plan->kn->winograd_weights(2, tile, g, u, nr);
    for (int i = 0; i < values; i++)
        for (int j = 0; j < values; j++, from += nr) {
            const int down = point_of(tile, i), across = point_of(tile, j), each = fo_winograd_values_at(plan, across);
            const int phase = (i > tile) * each + (j > tile);
            float *to = packed + fo_winograd_phases_before(plan, tile, down, across) * fo_winograd_u_phase(plan) +
                        fo_winograd_values_at(plan, down) * each * channels * o;
            memcpy(to + (phase * channels + c) * nr, from, (size_t)nr * sizeof *u);
        }
}

/* U[position] is B[ic, oc] packed into panels, as fo_pack does; a part of it is a block of channels of a panel, the
 * output channels side by side. */
static void pack_part(const fo_conv2d *plan, const void *context, ptrdiff_t part, float *packed) {
    const int tile = *(const int *)context;
    const fo_kernels *kn = plan->kn;
    const ptrdiff_t nr = kn->nr, ic = plan->icg, oc = plan->ocg, blocks = div_up(ic, CHANNEL_BLOCK);
    const ptrdiff_t panels = div_up(oc, nr), group = part / blocks / panels;
    const ptrdiff_t o = part / blocks % panels * nr, first = part % blocks * CHANNEL_BLOCK;
    const ptrdiff_t block = min_(CHANNEL_BLOCK, ic - first);
    const float *w = plan->w + (group * oc + o) * plan->ldw + 9 * first;
    packed += group * fo_winograd_u_group(plan, tile);
    float steps[9 * CHANNEL_BLOCK * MAX_NR], g[9 * MAX_NR];
    if (oc - o < nr) memset(steps, 0, (size_t)(9 * block * nr) * sizeof *steps);
    kn->transpose(min_(nr, oc - o), 9 * block, w, plan->ldw, steps, nr);
    for (ptrdiff_t c = 0; c < block; c++) {
        for (int tap = 0; tap < 9; tap++) memcpy(g + tap * nr, steps + (tap * block + c) * nr, (size_t)nr * sizeof *g);
        if (plan->s.sh == 1)
            kn->winograd_weights(1, tile, g, packed + o * ic + (first + c) * nr, fo_winograd_u_phase(plan));
        else
            pack_phases(plan, tile, g, o, first + c, packed);
    }
    memset(g, 0, sizeof g); /* weights of channels that there are not */
    for (ptrdiff_t c = ic; first + block == ic && c < fo_winograd_phase_floats(plan); c++)
        pack_phases(plan, tile, g, o, c, packed);
}

const float *fo_winograd_weights(const fo_conv2d *plan, int tile) {
    const ptrdiff_t floats = plan->s.groups * fo_winograd_u_group(plan, tile);
    const ptrdiff_t blocks = div_up(plan->icg, CHANNEL_BLOCK);
    const ptrdiff_t parts = plan->s.groups * div_up(plan->ocg, plan->kn->nr) * blocks;
    const fo_weight_form form = tile == 2 ? FO_WINOGRAD_2 : tile == 4 ? FO_WINOGRAD_4 : FO_WINOGRAD_6;
    return fo_conv2d_packed(plan, form, floats, parts, pack_part, &tile);
}
