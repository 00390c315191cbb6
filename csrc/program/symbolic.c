/* Integers that follow from others by a list of formulas, and conditions on them.
 *
 * Formula i computes values[i] from values that come before it, or tests them. The first that fails ends the list: a
 * condition that does not hold, a division by zero, a value beyond 64 bits.
 */
#include <string.h>

#include "../include/fusedops/fusedops.h"

static int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }

static bool divides(int64_t a, int64_t b) { return b != 0 && !(b == -1 && a == INT64_MIN); }

/* Whether n * factor, rounded to a float, has a whole part that fits: it is the result. */
static bool scale(int64_t n, int64_t bits, int64_t *result) {
    const int32_t word = (int32_t)bits;
    float factor;
    memcpy(&factor, &word, sizeof factor);
    const float product = (float)((double)n * (double)factor);
    if (!(product > -0x1p62f && product < 0x1p62f)) return false;
    *result = (int64_t)product;
    return true;
}

bool fo_formulas_run(const fo_formula *f, ptrdiff_t n, const int64_t *given, int64_t *values) {
    for (ptrdiff_t i = 0; i < n; i++) {
        if (f[i].kind == FO_SIZE_CONSTANT) {
            values[i] = f[i].a;
            continue;
        }
        if (f[i].kind == FO_SIZE_GIVEN) {
            values[i] = given[f[i].a];
            continue;
        }
        const int64_t a = values[f[i].a], b = values[f[i].b];
        bool good = true;
        switch (f[i].kind) {
            case FO_SIZE_ADD: good = !__builtin_add_overflow(a, b, &values[i]); break;
            case FO_SIZE_SUBTRACT: good = !__builtin_sub_overflow(a, b, &values[i]); break;
            case FO_SIZE_MULTIPLY: good = !__builtin_mul_overflow(a, b, &values[i]); break;
            case FO_SIZE_DIVIDE:
                if ((good = divides(a, b))) values[i] = floor_div(a, b);
                break;
            case FO_SIZE_REMAINDER:
                if ((good = divides(a, b))) values[i] = a - b * floor_div(a, b);
                break;
            case FO_SIZE_SCALE: good = scale(a, b, &values[i]); break;
            case FO_SIZE_EQUAL: good = a == b; break;
            case FO_SIZE_UNEQUAL: good = a != b; break;
            case FO_SIZE_LESS: good = a < b; break;
            case FO_SIZE_AT_MOST: good = a <= b; break;
        }
        if (!good) return false;
    }
    return true;
}
