/* Where the buffers of a network lie in its arena: offsets such that no two that are in use at one time overlap.
 *
 * Two layouts, both with the largest buffer first. The tight one puts each at the lowest place that is free while it
 * lives. The centred one has lanes next to each other and puts each buffer in the middle of the first lane that is free
 * while it lives. Threads cut one image after the other in the same way: where the middles of images have one address,
 * each of two threads writes where it wrote before, to lines that its own processor's cache holds. That is worth SPARE
 * times the memory of the tight layout.
 *
 * Only buffers that are in use at one time matter to each other. A tree over the steps finds these, so that a network
 * of many steps, most of whose buffers live for few, takes time by the step: a buffer is in the smallest node, of 1, 2,
 * 4 ... steps, that holds its life, and meets those in the nodes that its own life touches.
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

/* Of buffers by their places in `order`: `first` in each node and the `next` one there, -1 at the end. The leaves are
 * nodes `leaves` + step, the node above node v is v / 2. */
typedef struct {
    ptrdiff_t leaves, *first, *next;
} tree;

static void put(const tree *t, const fo_lifetime *b, ptrdiff_t i) {
    ptrdiff_t from = t->leaves + b->first, to = t->leaves + b->last;
    for (; from != to; from /= 2) to /= 2;
    t->next[i] = t->first[from];
    t->first[from] = i;
}

/* Which of the n buffers in the tree are in use while b is, at the end of `which`, in about the order in which they
 * came; returns where they begin. */
static ptrdiff_t met(const tree *t, fo_lifetime *const *order, const fo_lifetime *b, ptrdiff_t n, ptrdiff_t *which) {
    ptrdiff_t from = t->leaves + b->first, to = t->leaves + b->last;
    for (; from > 0; from /= 2, to /= 2)
        for (ptrdiff_t v = from; v <= to; v++)
            for (ptrdiff_t i = t->first[v]; i >= 0; i = t->next[i])
                if (meet(order[i], b)) which[--n] = i;
    return n;
}

/* The lowest place of b that is free between n others. One that begins before b would end moves it after itself: that
 * is asked again of those that begin later, until it holds of none. */
static ptrdiff_t tight(fo_lifetime *const *order, ptrdiff_t *others, ptrdiff_t n, const fo_lifetime *b) {
    ptrdiff_t offset = placed(0, b);
    for (ptrdiff_t left = n, before = n + 1; left < before;) {
        before = left;
        left = 0;
        for (ptrdiff_t j = 0; j < before; j++) {
            const fo_lifetime *other = order[others[j]];
            if (other->offset < offset + b->bytes)
                offset = larger(offset, placed(other->offset + other->bytes, b));
            else
                others[left++] = others[j];
        }
    }
    return offset;
}

/* The offsets of buffers in their lanes, whose numbers are below `lanes`; `head` and `next` take up those of each. */
static ptrdiff_t centred(fo_lifetime *const *order, const ptrdiff_t *lane, ptrdiff_t n, ptrdiff_t lanes,
                         ptrdiff_t *head, ptrdiff_t *next, ptrdiff_t *offset) {
    ptrdiff_t top = 0;
    for (ptrdiff_t l = 0; l < lanes; l++) head[l] = -1;
    for (ptrdiff_t i = n - 1; i >= 0; i--) {
        next[i] = head[lane[i]];
        head[lane[i]] = i;
    }
    for (ptrdiff_t l = 0; l < lanes; l++) {
        const ptrdiff_t width = order[head[l]]->bytes; /* the largest comes first */
        ptrdiff_t end = top;
        for (ptrdiff_t i = head[l]; i >= 0; i = next[i]) {
            offset[i] = placed(top + (width - order[i]->bytes) / 2, order[i]);
            end = larger(end, offset[i] + order[i]->bytes);
        }
        top = end;
    }
    return top;
}

/* Gives each buffer its place in the tight layout and its lane in the other; returns the bytes of the first. */
static ptrdiff_t lay_out(fo_lifetime *const *order, ptrdiff_t n, const tree *t, ptrdiff_t *which, ptrdiff_t *taken,
                         ptrdiff_t *lane, ptrdiff_t *lanes) {
    ptrdiff_t top = 0;
    for (ptrdiff_t i = 0; i < n; i++) taken[i] = -1;
    for (ptrdiff_t i = 0; i < n; i++) {
        fo_lifetime *b = order[i];
        const ptrdiff_t begin = met(t, order, b, n, which);
        ptrdiff_t l = 0;
        for (ptrdiff_t j = begin; j < n; j++) taken[lane[which[j]]] = i; /* next to b */
        while (taken[l] == i) l++;
        lane[i] = l;
        *lanes = larger(*lanes, l + 1);
        b->offset = tight(order, which + begin, n - begin, b);
        top = larger(top, b->offset + b->bytes);
        put(t, b, i);
    }
    return top;
}

ptrdiff_t fo_lay_out(fo_lifetime *buffers, ptrdiff_t n) {
    ptrdiff_t leaves = 1, lanes = 0;
    for (ptrdiff_t i = 0; i < n; i++)
        while (leaves <= buffers[i].last) leaves *= 2;
    void **room = malloc((size_t)(6 * n + 2 * leaves + 1) * sizeof *room);
    if (!room) return -1;
    fo_lifetime **order = (fo_lifetime **)room;
    ptrdiff_t *lane = (ptrdiff_t *)(room + n), *offset = lane + n, *which = offset + n, *taken = which + n;
    const tree t = {leaves, taken + n + n, taken + n};
    for (ptrdiff_t v = 0; v < 2 * leaves; v++) t.first[v] = -1;
    for (ptrdiff_t i = 0; i < n; i++) order[i] = buffers + i;
    qsort(order, (size_t)n, sizeof *order, by_size);
    ptrdiff_t top = lay_out(order, n, &t, which, taken, lane, &lanes);
    const ptrdiff_t wide = centred(order, lane, n, lanes, taken, which, offset);
    if ((double)wide <= SPARE * (double)top) {
        for (ptrdiff_t i = 0; i < n; i++) order[i]->offset = offset[i];
        top = wide;
    }
    free(room);
    return top;
}
