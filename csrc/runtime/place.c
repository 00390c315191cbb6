/* Where images lie in a page: of layers called one by one, of a block's layers, of a network's arena.
 *
 * A load whose address equals that of a store on its way but for whole pages waits for it (4K aliasing). So what a step
 * writes begins FO_ALIAS_OFFSET bytes after what it reads, modulo a page: depthwise convolutions, channels last, of
 * power of two sizes take 0.6 to 0.9 of the time (Zen 4).
 */
#include "../include/fusedops/fusedops.h"
#include "../machine/tune.h"

enum { LINE = LINE_FLOATS * sizeof(float), ALIGNED = 16 };

size_t fo_place_after(const void *x, fo_place place) {
    const size_t unit = place == FO_AFTER ? LINE : ALIGNED;
    return ((size_t)x / unit * unit + (place == FO_BETWEEN ? FO_ALIAS_OFFSET / 2 : FO_ALIAS_OFFSET)) % FO_PAGE;
}

float *fo_place_in(float *room, const void *x, fo_place place) {
    return room + (fo_place_after(x, place) - (size_t)room) % FO_PAGE / sizeof *room;
}

size_t fo_place_of_step(size_t at, size_t bytes, size_t step) {
    if (bytes < FO_PLACED) return (at + LINE - 1) / LINE * LINE;
    return at + (step * FO_ALIAS_OFFSET - at) % FO_PAGE;
}
