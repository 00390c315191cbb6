/* Heaps of keys of 64 bits, the least at the root. A key orders as an element does, and of equal elements the one whose
 * place is first has the larger key:
 *
 *      the element's bits, as an integer that orders alike | all ones minus its place
 */
#ifndef FO_HEAP_H
#define FO_HEAP_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { PASSED = 16 }; /* elements that are passed over at once where none matters: the compiler makes vectors */

/* NaNs are the largest, both zeros are equal. least: the order turned around. */
static inline uint64_t fo_key(float x, ptrdiff_t place, bool least) {
    const float value = isnan(x) ? fabsf(x) : x + 0.f;
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (isnan(x)) bits = INT32_MAX;
    const uint32_t order = bits >> 31 ? ~bits : bits | (uint32_t)1 << 31;
    return (uint64_t)(least ? ~order : order) << 32 | (uint32_t)~(uint32_t)place;
}

static inline ptrdiff_t fo_key_place(uint64_t key) { return (ptrdiff_t)(uint32_t)~(uint32_t)key; }

/* Lets the key at `at` sink to where no child is less. */
static inline void fo_sink(uint64_t *heap, ptrdiff_t size, ptrdiff_t at) {
    const uint64_t key = heap[at];
    for (ptrdiff_t child; (child = 2 * at + 1) < size; at = child) {
        child += child + 1 < size && heap[child + 1] < heap[child];
        if (heap[child] >= key) break;
        heap[at] = heap[child];
    }
    heap[at] = key;
}

static inline void fo_make_heap(uint64_t *heap, ptrdiff_t size) {
    for (ptrdiff_t at = size / 2; at-- > 0;) fo_sink(heap, size, at);
}

#endif
