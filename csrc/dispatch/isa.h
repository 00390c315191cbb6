/* Which instruction sets this processor has, and which one is used. */
#ifndef FO_ISA_H
#define FO_ISA_H

#include "../kernels/table.h"
#include "../machine/tune.h"
#include "../runtime/util.h"

enum { MAX_LANES = 16 }; /* of any set */

const fo_kernels *fo_active(void);
void fo_forget_kernels(void); /* after fo_set_machine: the next operation chooses its kernels again */

/* Whether multiply-adds of these kernels take twice as long as of those with shorter vectors. */
bool fo_at_half_rate(const fo_kernels *kn);

/* The active kernels, or in shorter vectors those that multiply as fast: AVX2's where AVX-512 runs at half rate. */
const fo_kernels *fo_half_width_kernels(void);

/* The kernels for a product with n columns of weights and k steps, of many rows or perhaps of few. With AVX-512 at half
 * rate (Zen 4) vectors of 8 lanes are as fast, and waste less where n leaves half of a vector empty: 144 -> 24 channels
 * at 56x56, channels last, takes 0.68 of the time, n = 8, 40 and 72 0.65, 0.8 and 0.9. Their stores, of half a line a
 * cycle, also do better with few steps: 16 -> 96 at 112x112 0.93, k = 16 to 48 0.91 to 0.97; of four rows 1.1. */
static inline const fo_kernels *fo_kernels_for(ptrdiff_t n, ptrdiff_t k, bool many_rows) {
    enum { LANES = 16 };
    const bool wasted = (n - 1) % LANES < LANES / 2 && n <= FO_FINER_COLUMNS;
    return wasted || (many_rows && k <= FO_HALF_WIDTH_STEPS) ? fo_half_width_kernels() : fo_active();
}

/* Distance of rows of n floats: rows a multiple of 1 KB apart would share few sets of the first-level cache. */
static inline ptrdiff_t fo_leading(const fo_kernels *kn, ptrdiff_t n) {
    const ptrdiff_t ld = round_up(n, kn->vl);
    return ld % 256 ? ld : ld + 16;
}

#endif
