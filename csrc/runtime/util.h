/* Small functions of sizes. */
#ifndef FO_UTIL_H
#define FO_UTIL_H

#include <stddef.h>

static inline ptrdiff_t min_(ptrdiff_t a, ptrdiff_t b) { return a < b ? a : b; }
static inline ptrdiff_t max_(ptrdiff_t a, ptrdiff_t b) { return a > b ? a : b; }
static inline ptrdiff_t clamp_(ptrdiff_t v, ptrdiff_t least, ptrdiff_t most) { return max_(least, min_(v, most)); }
static inline ptrdiff_t div_up(ptrdiff_t a, ptrdiff_t b) { return (a + b - 1) / b; }
static inline ptrdiff_t round_up(ptrdiff_t a, ptrdiff_t b) { return div_up(a, b) * b; }

#endif
