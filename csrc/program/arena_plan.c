/* Where the buffers of a network lie in its arena: offsets such that no two that are in use at one time overlap.
 *
 * Two layouts, both with the largest buffer first. The tight one puts each at the lowest place that is free while it
 * lives. The centred one has lanes next to each other and puts each buffer in the middle of the first lane that is free
 * while it lives. Threads cut one image after the other in the same way: where the middles of images have one address,
 * each of two threads writes where it wrote before, to lines that its own processor's cache holds. That is worth SPARE
 * times the memory of the tight layout.
 */
#include "../include/fusedops/fusedops.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static const double SPARE = 1.25;

static int by_size(const void *a, const void *b) {
    const fo_lifetime *x = *(fo_lifetime *const *)a, *y = *(fo_lifetime *const *)b;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
    if (x->first != y->first) return x->first < y->first ? -1 : 1;
    return x < y ? -1 : x > y;
}

static bool meet(const fo_lifetime *a, const fo_lifetime *b) { return a->first <= b->last && b->first <= a->last; }

static ptrdiff_t larger(ptrdiff_t a, ptrdiff_t b) { return a > b ? a : b; }

static ptrdiff_t placed(ptrdiff_t at, const fo_lifetime *b) {
    return (ptrdiff_t)fo_place_of_step((size_t)at, (size_t)b->bytes, (size_t)b->first);
}

static ptrdiff_t tight(fo_lifetime *const *order, fo_lifetime **row, ptrdiff_t n) {
    ptrdiff_t top = 0;
    for (ptrdiff_t i = 0; i < n; i++) { /* row: those that are placed, in ascending order of their offsets */
        fo_lifetime *b = order[i];
        ptrdiff_t offset = placed(0, b), j;
        for (j = 0; j < i; j++)
            if (meet(row[j], b) && row[j]->offset < offset + b->bytes)
                offset = larger(offset, placed(row[j]->offset + row[j]->bytes, b));
        b->offset = offset;
        for (j = i; j > 0 && row[j - 1]->offset > offset; j--) row[j] = row[j - 1];
        row[j] = b;
        top = larger(top, offset + b->bytes);
    }
    return top;
}

static ptrdiff_t centred(fo_lifetime *const *order, ptrdiff_t *lane, ptrdiff_t *offset, ptrdiff_t n) {
    ptrdiff_t top = 0, lanes = 0;
    for (ptrdiff_t i = 0; i < n; i++) {
        ptrdiff_t l = 0, j = 0;
        while (j < i) {
            const bool taken = lane[j] == l && meet(order[j], order[i]);
            j = taken ? 0 : j + 1;
            l += taken;
        }
        lane[i] = l;
        lanes = larger(lanes, l + 1);
    }
    for (ptrdiff_t l = 0; l < lanes; l++) {
        ptrdiff_t width = -1, end = top;
        for (ptrdiff_t i = 0; i < n; i++)
            if (lane[i] == l) {
                if (width < 0) width = order[i]->bytes;
                offset[i] = placed(top + (width - order[i]->bytes) / 2, order[i]);
                end = larger(end, offset[i] + order[i]->bytes);
            }
        top = end;
    }
    return top;
}

ptrdiff_t fo_lay_out(fo_lifetime *buffers, ptrdiff_t n) {
    void **room = malloc((size_t)(4 * n + 1) * sizeof *room);
    if (!room) return -1;
    fo_lifetime **order = (fo_lifetime **)room;
    ptrdiff_t *lane = (ptrdiff_t *)(room + 2 * n), *offset = lane + n;
    for (ptrdiff_t i = 0; i < n; i++) order[i] = buffers + i;
    qsort(order, (size_t)n, sizeof *order, by_size);
    ptrdiff_t top = tight(order, order + n, n);
    const ptrdiff_t wide = centred(order, lane, offset, n);
    if ((double)wide <= SPARE * (double)top) {
        for (ptrdiff_t i = 0; i < n; i++) order[i]->offset = offset[i];
        top = wide;
    }
    free(room);
    return top;
}
